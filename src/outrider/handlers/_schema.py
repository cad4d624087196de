"""JSON Schemas as data: where their definitions are, and how several become one.

Does not make schemas from types and does not check values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeGuard, cast

from outrider.wire import JsonObject

_REF: Final = "#/$defs/"
_DATA: Final = frozenset(("const", "default", "enum", "example", "examples"))
"""What is not a schema in a schema."""
_NAMED: Final = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"))
"""What holds schemas by names that anybody may choose."""


def is_object(value: object) -> TypeGuard[JsonObject]:
    return isinstance(value, dict)


def unfolded(schema: JsonObject) -> JsonObject:
    """The schema with what it is at its top, where it would only refer to it."""
    reference = schema.get("$ref")
    if not isinstance(reference, str) or not reference.startswith(_REF):
        return schema
    name = reference.removeprefix(_REF)
    definitions = dict(schema["$defs"])
    body = definitions[name]
    rest = {key: value for key, value in schema.items() if key not in ("$ref", "$defs")}
    if not any(reference in references(each) for each in definitions.values()):
        del definitions[name]
    top = {**body, **rest}
    return {**top, "$defs": definitions} if definitions else top


def references(schema: object) -> set[str]:
    """All that a schema refers to."""
    found: set[str] = set()

    def note(reference: str) -> str:
        found.add(reference)
        return reference

    _rewritten(schema, note)
    return found


class Definitions:
    """The definitions of several schemas in one place; those that share a name without being equal get
    names of their own."""

    def __init__(self) -> None:
        self.all: Final[dict[str, Any]] = {}

    def hoist(self, schema: JsonObject) -> JsonObject:
        """Take the definitions of a schema; gives the rest of it, which refers to them here."""
        renamed = {name: self._place(name, body) for name, body in schema.get("$defs", {}).items()}

        def moved(reference: str) -> str:
            name = reference.removeprefix(_REF)
            return _REF + renamed.get(name, name) if reference.startswith(_REF) else reference

        for name, new in renamed.items():
            self.all[new] = _rewritten(schema["$defs"][name], moved)
        rest = {key: value for key, value in schema.items() if key != "$defs"}
        moved_rest: JsonObject = _rewritten(rest, moved)
        return moved_rest

    def _place(self, name: str, body: object) -> str:
        new, number = name, 2
        while new in self.all and self.all[new] != body:
            new, number = f"{name}_{number}", number + 1
        self.all.setdefault(new, body)
        return new


def _rewritten(schema: Any, change: Callable[[str], str], *, is_names: bool = False) -> Any:  # noqa: ANN401 - any part of a schema
    """A copy of a schema with its references changed."""
    if isinstance(schema, list):
        return [_rewritten(each, change) for each in cast("list[object]", schema)]
    if not is_object(schema):
        return schema
    copy: JsonObject = {}
    for key, value in schema.items():
        if is_names:
            copy[key] = _rewritten(value, change)
        elif key == "$ref" and isinstance(value, str):
            copy[key] = change(value)
        elif key in _DATA:
            copy[key] = value
        else:
            copy[key] = _rewritten(value, change, is_names=key in _NAMED)
    return copy
