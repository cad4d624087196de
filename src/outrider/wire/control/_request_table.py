"""Finds the class of a request by its name on the wire, and reads a JSON object as one.

Does not send or answer requests: `outrider.protocol` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from outrider.wire._value import JsonObject
from outrider.wire.control import _mcp, _session, _settings
from outrider.wire.control import _session as _files
from outrider.wire.control._base import GenericRequest, Request

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import ModuleType


def _requests_in(theme: ModuleType) -> Iterator[tuple[str, type[Request[Any]]]]:
    for kind in vars(theme).values():
        if isinstance(kind, type) and issubclass(kind, Request) and kind.__module__ == theme.__name__:
            yield cast(str, kind.__struct_config__.tag), kind


REQUESTS: Final[Mapping[str, type[Request[Any]]]] = {
    **dict(_requests_in(_session)),
    **dict(_requests_in(_settings)),
    **dict(_requests_in(_mcp)),
    **dict(_requests_in(_files)),
}
"""Every request that has a class, by `subtype`."""


def request_from_wire(data: JsonObject) -> Request[Any]:
    """Type the `request` object of a control request; never raises for a dict.

    A subtype that is not known, or a field that is missing or does not fit, gives a `GenericRequest`.
    """
    subtype = data.get("subtype")
    kind = REQUESTS.get(subtype) if isinstance(subtype, str) else None
    if kind is not None:
        try:
            return kind.from_wire(data)
        except (ValueError, RecursionError):
            # A ValidationError is a ValueError, and so is what msgspec raises for a lone surrogate in a key.
            pass
    return GenericRequest.from_wire(data)
