"""Makes the JSON Schema of a function's parameters, and converts a model's arguments to them.

Does not call the function: `server` does, and only with arguments that fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, NotRequired, TypeAlias, TypedDict, cast

import msgspec

from outrider.errors import OptionsError
from outrider.handlers._tools.shape import Native, Reader, convert, make_reader
from outrider.handlers._tools.shape_errors import Definitions, Misfit, is_object, named, shown
from outrider.handlers._tools.signature import NO_DEFAULT, Parameter, Signature
from outrider.wire import Json, JsonObject

if TYPE_CHECKING:
    from outrider.handlers._calls import CallContext

Bound: TypeAlias = tuple[Sequence[object], Mapping[str, object]]
"""What a function is called with."""

_LONGEST_NAME: Final = 100
"""Characters of an unknown name that are compared with the known ones."""


class Arguments:
    """Turns the JSON object that a model gives into arguments of a function.

    Kinds of JSON values must be right: nothing is bent, but a whole number is taken for a `float`, and any
    number for a `Decimal`. A parameter whose default is None may be given as null. What is left out gets the
    function's own default. What no parameter takes is refused, unless there is a `**name` for it.

    Raises `OptionsError` for a parameter whose type cannot be read, and NameError if it mentions what is not
    there (yet).
    """

    def __init__(self, signature: Signature, place: str, schema: Mapping[str, Any] | None = None) -> None:
        self._place = place
        taken = [each for each in signature.parameters if not each.is_context]
        self._contexts: Final = tuple(
            each.name for each in signature.parameters if each.is_context and not each.is_positional
        )
        self._positional: Final = tuple(each for each in signature.parameters if each.is_positional)
        self._required: Final = tuple(each.name for each in taken if each.is_required)
        self._readers: Final = {each.name: self._reader(each) for each in taken}
        self._defaults: Final = dict(self._known_defaults(taken))
        self._extra: Final = None if signature.extra is None else self._reader(signature.extra)
        self._foreign: Final = {
            name: reader for name, reader in self._readers.items() if not isinstance(reader, Native)
        }
        self._kind: Final = _object_type(taken, self._readers)
        self._is_simple: Final = not (self._contexts or self._positional or self._foreign or self._extra)
        self.schema: Final = (
            self._schema(taken, signature.extra) if schema is None else self._given_schema(schema)
        )
        """The JSON Schema of the object."""

    @property
    def takes_context(self) -> bool:
        return bool(self._contexts) or any(each.is_context for each in self._positional)

    def bind(self, given: JsonObject, context: CallContext | None = None) -> Bound:
        """What the function is to be called with. Raises `Misfit`, whose faults are for the model."""
        try:
            values = cast("dict[str, object]", convert(given, self._kind))
        except msgspec.ValidationError as error:
            raise self._misfit(given, error) from error
        if self._is_simple:
            if len(values) != len(given):
                raise self._misfit(given)
            return (), values
        return self._completed(given, values, context)

    def _completed(self, given: JsonObject, values: dict[str, object], context: CallContext | None) -> Bound:
        try:
            for name, reader in self._foreign.items():
                if name in values:
                    values[name] = reader.convert(values[name])
            others = {name: value for name, value in given.items() if name not in self._readers}
            if self._extra is not None:
                others = {name: self._extra.convert(value) for name, value in others.items()}
        except Misfit as error:
            raise self._misfit(given, error) from error
        if others and (self._extra is None or not others.keys().isdisjoint(self._contexts)):
            raise self._misfit(given)
        for name in self._contexts:
            values[name] = context
        positional = [
            context if each.is_context else values.pop(each.name, each.default) for each in self._positional
        ]
        return positional, {**values, **others}

    # What is wrong.

    def _misfit(self, given: JsonObject, error: Exception | None = None) -> Misfit:
        faults: list[str] = []
        for name, value in given.items():
            if (reader := self._readers.get(name)) is not None:
                found = reader.faults(value, name)
                if found and value is None and name in self._defaults:
                    found[-1] += f" (leave it out to get {shown(self._defaults[name])})"
                faults += found
            elif self._extra is not None and name not in self._contexts:
                faults += self._extra.faults(value, name)
            else:
                faults.append(self._unknown(name, given))
        for name in self._required:
            if name not in given:
                faults.append(named(name, "missing"))
        return Misfit(faults or [str(error)])

    def _unknown(self, name: str, given: JsonObject) -> str:
        free = [each for each in self._readers if each not in given]
        if alike := get_close_matches(name[:_LONGEST_NAME], free, n=1):
            return named(name, f"unknown; did you mean `{alike[0]}`?")
        known = ", ".join(f"`{each}`" for each in self._readers)
        return named(name, f"unknown; known are {known}" if known else "unknown; there are no parameters")

    # Made once.

    def _reader(self, parameter: Parameter) -> Reader:
        try:
            return make_reader(parameter.kind)
        except OptionsError as error:
            raise OptionsError(
                f"{self._place}: parameter `{parameter.name}`: {error.message}", hint=error.hint
            ) from error

    def _known_defaults(self, taken: list[Parameter]) -> list[tuple[str, Json]]:
        """The defaults that can be told to a model."""
        known: list[tuple[str, Json]] = []
        for each in taken:
            if each.default is not NO_DEFAULT:
                reader = self._readers[each.name]
                try:
                    default = reader.dump(each.default)
                    reader.convert(default)
                except Exception:  # noqa: BLE001 - a marker, or whatever the class of somebody does
                    continue
                known.append((each.name, default))
        return known

    def _schema(self, taken: list[Parameter], extra: Parameter | None) -> JsonObject:
        definitions = Definitions()
        properties = {each.name: self._property(each, definitions) for each in taken}
        others: Json = False
        if extra is not None and self._extra is not None:
            others = definitions.hoist(self._extra.schema) or True
        schema: JsonObject = {
            "type": "object",
            "properties": properties,
            "required": list(self._required),
            "additionalProperties": others,
        }
        return {**schema, "$defs": definitions.all} if definitions.all else schema

    def _property(self, parameter: Parameter, definitions: Definitions) -> JsonObject:
        schema = definitions.hoist(self._readers[parameter.name].schema)
        if parameter.description:
            schema["description"] = parameter.description
        if parameter.name in self._defaults:
            schema["default"] = self._defaults[parameter.name]
        return schema

    def _given_schema(self, given: Mapping[str, Any]) -> JsonObject:
        schema = make_reader(given).schema
        if schema.setdefault("type", "object") != "object":
            raise OptionsError(
                f"{self._place}: the `schema` must be that of an object, not {shown(schema['type'])}",
                hint='Write `{"type": "object", "properties": {…}}`.',
            )
        properties = schema.get("properties")
        if is_object(properties):
            self._check_names(properties)
        return schema

    def _check_names(self, properties: JsonObject) -> None:
        if self._extra is None and (unknown := [name for name in properties if name not in self._readers]):
            raise OptionsError(
                f"{self._place}: the `schema` has `{unknown[0]}`, which the function does not take",
                hint="Add a parameter of that name, or `**others`.",
            )
        if missing := [name for name in self._required if name not in properties]:
            raise OptionsError(
                f"{self._place}: the `schema` does not have the parameter `{missing[0]}`",
                hint="Add it to the schema, or give it a default.",
            )


def _object_type(taken: list[Parameter], readers: Mapping[str, Reader]) -> object:
    """A type for all parameters at once. What msgspec does not read passes as it is."""
    fields: dict[str, Any] = {}
    for each in taken:
        reader = readers[each.name]
        kind = reader.kind if isinstance(reader, Native) else Any
        fields[each.name] = kind if each.is_required else NotRequired[cast(Any, kind)]
    return TypedDict("Arguments", fields)  # type: ignore[operator] # pyright: ignore[reportArgumentType]
