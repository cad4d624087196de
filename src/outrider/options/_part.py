"""Owns `Part`, what all values inside options have in common: how they are checked, copied, spelled, shown.

Knows no particular one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, ClassVar, TypeVar, cast

import msgspec

from outrider.errors import OptionsError
from outrider.options._readers import Reader, did_you_mean, fault, is_mapping, near, within
from outrider.options._showing import shown_fields
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from typing import Self

T = TypeVar("T")
P = TypeVar("P", bound="Part")


class Part(msgspec.Struct, frozen=True, omit_defaults=True):
    """A value inside options: immutable, compared by its fields, with secrets hidden in its `repr`.

    Raises `OptionsError` for what cannot work.
    """

    _readers: ClassVar[Mapping[str, Reader]] = {}
    """How each field is read; a field that is not here is kept as it is given."""
    _kept_here: ClassVar[frozenset[str]] = frozenset()
    """Fields that mean nothing to the agent."""
    _secret: ClassVar[frozenset[str]] = frozenset()
    """Fields whose values are all secret."""

    def __post_init__(self) -> None:
        for name, read in self._readers.items():
            given = getattr(self, name)
            if (normal := read(f"`{type(self).__name__}.{name}`", given)) is not given:
                msgspec.structs.force_setattr(self, name, normal)

    def copied(self) -> Self:
        """The same value, with mappings of its own."""
        return msgspec.structs.replace(self)

    def to_wire(self) -> JsonObject:
        """The part as the agent reads it: its keys, nothing that is unset, and what is in `extra`."""
        config = self.__struct_config__
        wire: JsonObject = {} if config.tag is None else {cast(str, config.tag_field): config.tag}
        keys = dict(zip(self.__struct_fields__, self.__struct_encode_fields__, strict=True))
        extra: JsonObject = {}
        for name, value in self._given().items():
            if name == "extra":
                extra = cast(JsonObject, plain(value))
            elif name not in self._kept_here:
                wire[keys[name]] = plain(value)
        return wire | extra

    def _given(self) -> dict[str, object]:
        """The fields that differ from their defaults."""
        return differing(self)

    def __copy__(self) -> Self:
        return self.copied()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({shown_fields(self._given(), self._secret)})"


@cache
def defaults_of(kind: type[msgspec.Struct]) -> dict[str, object]:
    """The default of each field that has one."""
    values = kind.__struct_defaults__
    names = kind.__struct_fields__[len(kind.__struct_fields__) - len(values) :]
    made = {name: _made_default(value) for name, value in zip(names, values, strict=True)}
    return {name: value for name, value in made.items() if value is not msgspec.NODEFAULT}


def _made_default(value: object) -> object:
    factory = getattr(value, "factory", None)
    return value if factory is None else factory()


def differing(struct: msgspec.Struct) -> dict[str, object]:
    """The fields that differ from their defaults, in their order."""
    found: dict[str, object] = {}
    defaults = defaults_of(type(struct))
    for name in struct.__struct_fields__:
        value, default = getattr(struct, name), defaults.get(name, msgspec.NODEFAULT)
        # Objects of others are not compared: they may answer anything.
        if value is not default and not (type(value) is type(default) and value == default):
            found[name] = value
    return found


def plain(value: object) -> object:
    """A value in JSON types, as the agent spells it: parts and tuples as mappings and lists, in copies."""
    if isinstance(value, Part):
        return value.to_wire()
    if is_mapping(value):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in cast("list[object]", value)]
    return value


# From plain mappings.


@cache
def _spellings(kind: type[Part]) -> dict[str, str]:
    """Each field by the names that it may be given: its own, in camel case, and the agent's."""
    names = kind.__struct_fields__
    spelled = dict(zip(kind.__struct_encode_fields__, names, strict=True))
    return spelled | {_camel(name): name for name in names} | {name: name for name in names}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


def from_mapping(kind: type[P], place: str, value: Mapping[object, object], **implied: object) -> P:
    """A part from a mapping with the keys of its fields or of the agent.

    A key that is neither goes into `extra`, if there is one and the key does not look misspelled; else it is
    refused.
    """
    fields: dict[str, object] = {}
    extra: dict[str, object] = {}
    for key, item in value.items():
        if not isinstance(key, str):
            raise fault(f"a key of {place}", "a text", key)
        if key == kind.__struct_config__.tag_field:
            continue
        name = _spellings(kind).get(key)
        if name is None:
            extra[key] = item
        elif name in fields:
            raise OptionsError(f"{place} has `{name}` in two spellings", hint="Give it once.")
        else:
            fields[name] = item
    if extra:
        fields["extra"] = _joined(kind, place, fields.get("extra", {}), extra)
    _refuse_missing(kind, place, implied | fields)
    for key in extra:
        meant = near(key, list(_spellings(kind)), cutoff=0.85)
        # Not `disallowed_tools` for `allowedTools`.
        if meant and key[0].lower() == meant[0]:
            hint = f"Did you mean {meant!r}? If not, put it into `extra`."
            raise OptionsError(f"{place} has a key that means nothing: {key!r}", hint=hint)
    return placed(place, lambda: kind(**(implied | fields)))


def _joined(kind: type[Part], place: str, given: object, found: Mapping[str, object]) -> object:
    known = kind.__struct_fields__
    if "extra" not in known:
        key = next(iter(found))
        hint = did_you_mean(key, known) or f"It may have {', '.join(known) or 'no keys at all'}."
        raise OptionsError(f"{place} has a key that means nothing: {key!r}", hint=hint)
    if not is_mapping(given):
        raise fault(within(place, "extra"), "a mapping", given, hidden=True)
    return dict(given) | dict(found)


def _refuse_missing(kind: type[Part], place: str, fields: Mapping[str, object]) -> None:
    for name in kind.__struct_fields__:
        if name not in fields and name not in defaults_of(kind):
            others = [str(key) for key in cast("dict[str, object]", fields.get("extra", {}))]
            meant = near(name, others)
            hint = f"It has {meant!r}: was that meant?" if meant else f"Add {name!r} to the mapping."
            raise OptionsError(f"{place} has no `{name}`, which every {kind.__name__} needs", hint=hint)


def placed(place: str, make: Callable[[], T]) -> T:
    """What is made, with the place named in its error."""
    try:
        return make()
    except OptionsError as error:
        raise OptionsError(f"{place}: {error.message}", hint=error.hint) from None


def part_reader(kind: type[Part]) -> Reader:
    """A part of this kind, or a mapping that says the same."""

    def read(place: str, value: object) -> object:
        if isinstance(value, kind):
            return value.copied()
        if is_mapping(value):
            return from_mapping(kind, place, value)
        raise fault(place, f"a {kind.__name__} or a mapping", value, hidden=True)

    return read
