"""Makes values of the wire's types from their annotations: with every field set, or only what must be."""

from __future__ import annotations

import types
import typing
from typing import Annotated, Any, TypeVar

import msgspec

S = TypeVar("S", bound=msgspec.Struct)

_LEAVES: dict[object, object] = {str: "text", int: 7, float: 1.5, bool: True, Any: {"any": [1, None]}}


def complete(kind: type[S]) -> S:
    """A value with all fields set, and none to its default."""
    return kind(**{field.name: _sample(field.type) for field in msgspec.structs.fields(kind)})


def minimal(kind: type[S]) -> S:
    """A value with the required fields only."""
    fields = msgspec.structs.fields(kind)
    return kind(**{field.name: _sample(field.type) for field in fields if field.required})


def _sample(annotation: Any) -> object:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return _sample(arguments[0])
    if origin in (typing.Union, types.UnionType):
        return _sample(next(member for member in arguments if member is not type(None)))
    if origin is list:
        return [_sample(arguments[0])]
    if origin is dict:
        return {"key": _sample(arguments[1])}
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return complete(annotation)
    return _LEAVES[annotation]
