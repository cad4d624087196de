"""Owns how the schema of a tool becomes a JSON Schema: from names with types, a TypedDict, or one as it is.

Does not check arguments against it.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import (
    Annotated,
    Any,
    Final,
    NotRequired,
    Required,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

_NAMES: Final[Mapping[object, str]] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    list: "array",
    dict: "object",
}
_MARKS: Final = frozenset(("NotRequired", "Required", "ReadOnly"))
"""What says something of a key, and nothing of its type. The last is newer than the oldest Python here."""


def json_schema(given: object) -> dict[str, Any]:
    """The JSON Schema of a tool's arguments."""
    if isinstance(given, dict):
        schema = cast("dict[str, Any]", given)
        if isinstance(schema.get("type"), str) and "properties" in schema:
            return schema
        properties = {name: _of_type(kind) for name, kind in schema.items()}
        return {"type": "object", "properties": properties, "required": list(properties)}
    if is_typeddict(given):
        return _of_typed_dict(cast(type, given))
    return {"type": "object", "properties": {}}


def _of_typed_dict(kind: Any) -> dict[str, Any]:  # noqa: ANN401 - TypedDicts have no type
    hints = get_type_hints(kind, include_extras=True)
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: _of_type(hint) for name, hint in hints.items()},
    }
    if required := sorted(kind.__required_keys__):
        schema["required"] = required
    return schema


def _of_type(kind: object) -> dict[str, Any]:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        inner, *notes = arguments
        text = next((note for note in notes if isinstance(note, str)), None)
        return _of_type(inner) if text is None else {**_of_type(inner), "description": text}
    if origin in (NotRequired, Required) or getattr(origin, "_name", None) in _MARKS:
        return _of_type(arguments[0])
    if origin in (Union, types.UnionType):
        members = [_of_type(each) for each in arguments if each is not type(None)]
        return members[0] if len(members) == 1 else {"anyOf": members}
    if origin is list and arguments:
        return {"type": "array", "items": _of_type(arguments[0])}
    if is_typeddict(kind):
        return _of_typed_dict(kind)
    try:
        return {"type": _NAMES.get(origin or kind, "string")}
    except TypeError:
        # What cannot be hashed is no type that is known.
        return {"type": "string"}
