"""Defines the contents of control frames: requests in both directions, their answers, and MCP messages.

The frames around them are in `outrider.wire`, permissions in `outrider.wire.permissions`, hooks in
`outrider.wire.hooks`. Nothing here sends anything.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outrider.wire.control._asks import *
    from outrider.wire.control._base import *
    from outrider.wire.control._mcp import *
    from outrider.wire.control._session import *
    from outrider.wire.control._settings import *

_MODULES = ("_asks", "_base", "_session", "_mcp", "_settings")
"""Where the names are, most wanted first: two hundred classes are loaded only as far as they are used."""


def __getattr__(name: str) -> object:
    if not name.startswith("_"):
        for module in _MODULES:
            found: object = getattr(import_module(f"{__name__}.{module}"), name, None)
            if found is not None:
                globals()[name] = found
                return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
