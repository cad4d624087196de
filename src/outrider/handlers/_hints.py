"""What annotations mean: names in them are looked up where the function or class was written.

Does not know which types can be used.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterator, Mapping
from types import FrameType, SimpleNamespace
from typing import Annotated, Any, Final, get_args, get_origin

import msgspec

_LOCAL: Final = "<locals>"


def resolve(annotation: object, module: Mapping[str, object], local: Mapping[str, object]) -> object:
    """The type that an annotation means. Raises NameError for a name that is not there (yet)."""
    holder = SimpleNamespace(__annotations__={"it": annotation})
    hints = typing.get_type_hints(holder, dict(module), dict(local), include_extras=True)
    return hints["it"]


def names_in_sight(module: str) -> dict[str, object]:
    """The local names of all functions and classes of a module that are running now; inner ones win."""
    names: dict[str, object] = {}
    frame: FrameType | None = inspect.currentframe()
    while frame is not None:
        space = frame.f_globals
        if space.get("__name__") == module and frame.f_locals is not space:
            names = {**frame.f_locals, **names}
        frame = frame.f_back
    return names


def settle(kind: object) -> None:
    """Give the classes whose annotations are texts, and mention what is not known all over their module, the
    types that they mean: what a function made, and type parameters. Raises NameError for a name that is not
    there."""
    for each in classes_within(kind):
        own = vars(each).get("__annotations__")
        local = _local_names(each)
        if own and local:
            hints = typing.get_type_hints(each, localns=local, include_extras=True)
            own.update({name: hints[name] for name in own if name in hints})
            for name, field in getattr(each, "__dataclass_fields__", {}).items():
                field.type = hints.get(name, field.type)


def class_hints(kind: type) -> dict[str, object]:
    """The annotations of a class as types; empty where they cannot be read."""
    kind = get_origin(kind) or kind
    try:
        return typing.get_type_hints(kind, localns=_local_names(kind) or None, include_extras=True)
    except Exception:  # noqa: BLE001 - whatever evaluating what somebody wrote raises
        return {}


def _local_names(kind: type) -> dict[str, object]:
    names = names_in_sight(kind.__module__) if _LOCAL in kind.__qualname__ else {}
    return {**names, **{each.__name__: each for each in getattr(kind, "__type_params__", ())}}


def classes_within(kind: object) -> list[type]:
    """The classes with annotated fields that a type is made of."""
    return [each for each in parts(kind) if isinstance(each, type)]


def parts(kind: object) -> Iterator[object]:
    """All types and all metadata that a type is made of, itself first, each once."""
    seen: set[int] = set()
    waiting = [kind]
    # Keeps them all alive, so that no two have the same identity.
    met: list[object] = []
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        met.append(each)
        yield each
        waiting.extend(_inner(each))


def _inner(kind: object) -> list[object]:
    if get_origin(kind) is Annotated:
        return [*get_args(kind), *getattr(kind, "__metadata__", ())]
    inner = list(get_args(kind))
    origin = get_origin(kind)
    if origin is typing.Literal:
        return []
    if isinstance(origin, type):
        inner.append(origin)
    if (value := _alias_value(kind)) is not None:
        inner.append(value)
    if isinstance(kind, typing.NewType):
        inner.append(kind.__supertype__)
    if isinstance(kind, type) and getattr(kind, "__annotations__", None) and origin is None:
        inner.extend(class_hints(kind).values())
    return inner


def _alias_value(kind: object) -> object:
    """What `type X = …` stands for."""
    if type(kind).__name__ != "TypeAliasType":
        return None
    try:
        return getattr(kind, "__value__", None)
    except NameError:
        return None


def description_in(annotation: object) -> str | None:
    """The text that `Annotated[…, "text"]`, or a `Meta` in its place, gives to what it annotates."""
    if get_origin(annotation) is Annotated:
        metadata: tuple[object, ...] = getattr(annotation, "__metadata__", ())
        for each in reversed(metadata):
            text: object = each if isinstance(each, str) else getattr(each, "description", None)
            if isinstance(text, str) and text:
                return text
    return None


def is_described(annotation: object) -> bool:
    """Whether msgspec knows the description by itself."""
    metadata: tuple[Any, ...] = getattr(annotation, "__metadata__", ())
    return any(isinstance(each, msgspec.Meta) and each.description for each in metadata)
