"""The version of the reference SDK whose behaviour this is. Programs compare it."""

__version__ = "0.2.182"
