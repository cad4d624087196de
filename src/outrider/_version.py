__version__ = "0.1.0"

MINIMUM_AGENT_VERSION = "2.0.0"
"""The oldest version of Claude Code that Outrider can drive."""
