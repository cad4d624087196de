"""Bridle drives an agent command-line program as a child process and keeps promises about it."""

from bridle._version import __version__

__all__ = ["__version__"]
