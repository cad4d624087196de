"""Shim: where the reference SDK has its `Transport`."""

from outrider.compat._transport import Transport as Transport

__all__ = ["Transport"]
