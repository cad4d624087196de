__version__ = "0.1.0"

MINIMUM_AGENT_VERSION = "2.0.0"
"""The oldest version of the agent's program that Outrider can drive."""
