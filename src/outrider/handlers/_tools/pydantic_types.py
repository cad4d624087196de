"""Reads types with pydantic: their JSON Schema, and conversion from and to JSON.

Importing this module imports pydantic, which may be missing. `shape` decides when it is needed.
"""

from __future__ import annotations

from typing import Any, Final, cast

import msgspec
from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from outrider.handlers._tools.shape import has_limits
from outrider.handlers._tools.shape_errors import Misfit, named, shown
from outrider.handlers._tools.signature import parts, settle
from outrider.wire import Json, JsonObject, Value


class Pydantic:
    """A type as pydantic reads it. Raises TypeError for one that it cannot read."""

    def __init__(self, kind: object) -> None:
        self.kind: Final = kind
        if any(map(has_limits, parts(kind))):
            raise TypeError("pydantic does not know the limits in `msgspec.Meta`")
        if values := [each for each in parts(kind) if isinstance(each, type) and issubclass(each, Value)]:
            # It would read their fields and not, as messages have them, what kind they are.
            raise TypeError(f"pydantic does not tell which kind of message a `{values[0].__name__}` is")
        try:
            try:
                self._prepare()
            except (NameError, PydanticUserError):
                settle(kind)
                self._prepare()
        except PydanticUserError as error:
            if error.code == "class-not-fully-defined":
                raise NameError(str(error).splitlines()[0]) from error
            raise TypeError(str(error).splitlines()[0]) from error

    def _prepare(self) -> None:
        self._adapter: TypeAdapter[Any] = TypeAdapter(cast(Any, self.kind))
        self.schema: JsonObject = self._adapter.json_schema(mode="validation")

    def convert(self, value: object) -> object:
        """The value that JSON means. Raises `Misfit`."""
        return self._read(value, "")

    def faults(self, value: object, path: str) -> list[str]:
        """What is wrong with a value; empty if nothing is."""
        try:
            self._read(value, path)
        except Misfit as misfit:
            return list(misfit.faults)
        return []

    def dump(self, value: object) -> Json:
        """A value of the type as JSON. Raises TypeError or ValueError for what cannot be."""
        return cast(Json, self._adapter.dump_python(value, mode="json", warnings="error"))

    def _read(self, value: object, path: str) -> object:
        try:
            # From JSON, where strict means the kinds that JSON has: of Python values, a date must be a date.
            return self._adapter.validate_json(_encoded(value), strict=True)
        except ValidationError as error:
            raise Misfit(_faults(error, path)) from None
        except RecursionError:
            raise Misfit([named(path, "nested too deeply")]) from None
        except Exception as error:
            # Whatever a class of the user's raises when it is made.
            raise Misfit([named(path, f"{type(error).__name__}: {error}")]) from error


def _encoded(value: object) -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        import json

        return json.dumps(value).encode()


def _faults(error: ValidationError, path: str) -> list[str]:
    faults: list[str] = []
    for each in error.errors(include_url=False, include_context=False):
        at = path
        for part in each["loc"]:
            at += f"[{part}]" if isinstance(part, int) else f".{part}" if at else part
        if each["type"] == "missing":
            faults.append(named(at, "missing"))
        else:
            faults.append(named(at, f"{each['msg']}, got {shown(each['input'])}"))
    return faults
