"""Converts JSON objects to typed values even if they do not match exactly: `convert_leniently`.

Knows no particular message, and does not parse or write JSON text.
"""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias, TypeGuard, TypeVar

import msgspec

T = TypeVar("T", bound=msgspec.Struct)

_Annotation: TypeAlias = Any
"""A type, a union of types, or any other form that an annotation may take."""

_MISFIT: Final = object()

# Beside its own error, msgspec raises a ValueError (of encoding) for a lone surrogate in a key or a literal,
# and before 0.22 a SystemError for an int that is too large for a float.
_REFUSALS: Final = (msgspec.ValidationError, ValueError, RecursionError, SystemError)


class _Shape(NamedTuple):
    """How to treat values of one type."""

    fit: Callable[[object], object]
    """The nearest value of the type, or `_MISFIT`."""
    empty: Callable[[], object]
    """What stands in for a required value that is missing or does not fit."""


class _Field(NamedTuple):
    """A field of a struct: its name here and on the wire."""

    name: str
    wire_name: str
    required: bool
    shape: _Shape


def convert_leniently(kind: type[T], data: dict[str, Any]) -> T:
    """Make a `kind` of a JSON object, even if fields are missing, mistyped or nested too deeply.

    An object that fits is converted exactly as `msgspec.convert` does it. Otherwise each field is taken for
    itself: what does not fit becomes the field's default or, for a required field, the empty value of its
    type (of a literal: its first value). Objects inside are treated alike; items that fit in no way are
    left out of lists and dicts. A tag that says another class is not looked at: `kind` is what is made.
    """
    try:
        return msgspec.convert(data, kind, strict=True)
    except _REFUSALS:
        return _mend(kind, data)


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    """Whether a JSON value is an object."""
    return isinstance(value, dict)


def _mend(kind: type[T], data: dict[str, Any]) -> T:
    values: dict[str, object] = {}
    for field in fields_of(kind):
        value: object = data.get(field.wire_name, _MISFIT)
        if value is not _MISFIT:
            value = field.shape.fit(value)
        if value is not _MISFIT:
            values[field.name] = value
        elif field.required:
            values[field.name] = field.shape.empty()
    return kind(**values)


@cache
def fields_of(kind: type[msgspec.Struct]) -> tuple[_Field, ...]:
    """The fields of a struct. To look them up takes a hundred times as long as to use them."""
    return tuple(
        _Field(field.name, field.encode_name, field.required, _shape_of(field.type))
        for field in msgspec.structs.fields(kind)
    )


def _shape_of(annotation: _Annotation) -> _Shape:
    container = _unsubscripted(annotation)
    arguments = typing.get_args(annotation)
    if container is Annotated:
        return _constrained_shape(annotation, _shape_of(arguments[0]))
    if container in (typing.Union, types.UnionType):
        return _union_shape(annotation, arguments)
    if container is Literal:
        return _Shape(_exactly(annotation), lambda: None if None in arguments else arguments[0])
    if container in (Any, object) or isinstance(container, TypeVar):
        return _Shape(_keep, _none)
    if _is_struct(container):
        return _struct_shape(annotation)
    if container in (list, Sequence):
        return _list_shape(_shape_of(arguments[0] if arguments else Any), list)
    if container is tuple and arguments[1:] == (...,):
        return _list_shape(_shape_of(arguments[0]), tuple)
    if container in (dict, Mapping):
        return _dict_shape(annotation, arguments)
    if typing.is_typeddict(container):
        return _Shape(_keep_object, dict)
    if container in _PLAIN:
        return _Shape(_PLAIN[container], container)
    if container is msgspec.Raw:
        return _Shape(_fit_raw, lambda: msgspec.Raw(b"null"))
    return _Shape(_exactly(annotation), _EMPTY.get(container, _none))


def _unsubscripted(annotation: _Annotation) -> _Annotation:
    origin: _Annotation = typing.get_origin(annotation)
    return annotation if origin is None else origin


def _none() -> None:
    return None


_EMPTY: Final[dict[_Annotation, Callable[[], object]]] = {
    float: float,
    bytes: bytes,
    set: set,
    frozenset: frozenset,
    msgspec.UnsetType: lambda: msgspec.UNSET,
}


def _exactly(annotation: _Annotation) -> Callable[[object], object]:
    """Fits what msgspec accepts and nothing else."""

    def fit(value: object) -> object:
        try:
            return msgspec.convert(value, annotation, strict=True)
        except _REFUSALS:
            return _MISFIT

    return fit


def _keep(value: object) -> object:
    return value


def _keep_object(value: object) -> object:
    return value if is_object(value) else _MISFIT


def _fit_int(value: object) -> object:
    """A number that came as `3.0` or `3.2` is 3; `True` is not a number."""
    if isinstance(value, float):
        return round(value) if math.isfinite(value) else _MISFIT
    return value if isinstance(value, int) and not isinstance(value, bool) else _MISFIT


def _fit_str(value: object) -> object:
    return value if isinstance(value, str) else _MISFIT


def _fit_bool(value: object) -> object:
    return value if isinstance(value, bool) else _MISFIT


# Looked at here rather than by msgspec: at the edge of the stack its call would fail for a good value.
_PLAIN: Final[dict[object, Callable[[object], object]]] = {int: _fit_int, str: _fit_str, bool: _fit_bool}


def _fit_raw(value: object) -> object:
    try:
        return value if isinstance(value, msgspec.Raw) else msgspec.Raw(msgspec.json.encode(value))
    except _REFUSALS:
        return _MISFIT


def _constrained_shape(annotation: _Annotation, bare: _Shape) -> _Shape:
    """For `Annotated[…]`: what fits the bare type must keep the constraint too, but for containers."""
    keeping_constraint = _exactly(annotation)

    def fit(value: object) -> object:
        fitted = bare.fit(value)
        if fitted is _MISFIT or isinstance(fitted, (list, dict, msgspec.Struct)):
            return fitted  # pyright: ignore[reportUnknownVariableType]
        return keeping_constraint(fitted)

    return _Shape(fit, bare.empty)


def _is_struct(annotation: _Annotation) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, msgspec.Struct)


def _fit_struct(kind: type[msgspec.Struct], value: dict[str, Any]) -> object:
    """An object inside another. One that is too deep for the stack is left out whole, never half made."""
    try:
        return convert_leniently(kind, value)
    except RecursionError:
        return _MISFIT


def _struct_shape(kind: type[msgspec.Struct]) -> _Shape:
    def fit(value: object) -> object:
        return _fit_struct(kind, value) if is_object(value) else _MISFIT

    return _Shape(fit, lambda: convert_leniently(kind, {}))


def _list_shape(item: _Shape, container: Callable[[list[object]], object]) -> _Shape:
    def fit(value: object) -> object:
        if not isinstance(value, (list, tuple)):
            return _MISFIT
        fitted = [item.fit(entry) for entry in typing.cast(Sequence[object], value)]
        return container([entry for entry in fitted if entry is not _MISFIT])

    return _Shape(fit, lambda: container([]))


def _dict_shape(annotation: _Annotation, arguments: tuple[_Annotation, ...]) -> _Shape:
    key_type, item_type = arguments or (str, Any)
    if key_type is not str:
        return _Shape(_exactly(annotation), dict)
    if item_type is Any:
        return _Shape(_keep_object, dict)
    item = _shape_of(item_type)

    def fit(value: object) -> object:
        if not is_object(value):
            return _MISFIT
        fitted = {key: item.fit(entry) for key, entry in value.items()}
        return {key: entry for key, entry in fitted.items() if entry is not _MISFIT}

    return _Shape(fit, dict)


def _union_shape(annotation: _Annotation, members: tuple[_Annotation, ...]) -> _Shape:
    """What fits a member exactly is taken so; then the class the tag names; then any member that will do."""
    exactly = _exactly(annotation)
    classes = {member: _unsubscripted(member) for member in members}
    structs = {member: kind.__struct_config__ for member, kind in classes.items() if _is_struct(kind)}
    # Several classes in one union are all tagged, or msgspec would not have it; one alone need not be, and
    # stands for every object.
    by_tag = {config.tag: member for member, config in structs.items()} if len(structs) > 1 else {}
    tag_field = next((config.tag_field for config in structs.values()), None)
    shapes = [
        _shape_of(member) for member in members if member is not type(None) and member not in by_tag.values()
    ]

    def fit(value: object) -> object:
        if (fitted := exactly(value)) is not _MISFIT:
            return fitted
        if tag_field is not None and is_object(value):
            tag = value.get(tag_field)
            if isinstance(tag, (str, int)) and tag in by_tag:
                return _fit_struct(by_tag[tag], value)
        fits = (fitted for shape in shapes if (fitted := shape.fit(value)) is not _MISFIT)
        return next(fits, _MISFIT)

    if type(None) in members or Any in members:
        return _Shape(fit, _none)
    # Of an open set (`Literal["a", "b"] | str`) the empty value is the empty text, not its first choice.
    unchosen = [member for member, kind in classes.items() if kind is not Literal]
    return _Shape(fit, _shape_of((unchosen or members)[0]).empty)
