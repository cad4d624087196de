"""The version of Claude Code that the tests run with, and that comes with the reference SDK."""

__cli_version__ = "2.1.325"
