"""Bridle drives an agent command-line program as a child process and keeps promises about it."""

from bridle._version import MINIMUM_AGENT_VERSION, __version__

__all__ = ["MINIMUM_AGENT_VERSION", "__version__"]
