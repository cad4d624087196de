"""The forms that MCP servers ask to have filled in: their fields, typed, and the check of what was filled in.

Only what the MCP specification lets a form have: texts, numbers, switches and choices, none inside another.
Does not know who fills a form in.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeGuard

import msgspec

from outrider.redaction import preview_value
from outrider.wire import Json

if TYPE_CHECKING:
    from outrider.wire import JsonObject

FieldType: TypeAlias = Literal["string", "number", "integer", "boolean", "choice", "choices", "other"]
"""What a field takes: `choice` is one of its choices, `choices` a list of them; `other` is what no form
should have, and is not checked."""


class Choice(msgspec.Struct, frozen=True):
    """One of the values that a field offers."""

    value: str
    title: str
    """What to show for it."""


class FormField(msgspec.Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """A field of a form."""

    name: str
    type: FieldType
    title: str = ""
    """What to call it; its name where the server gives no title."""
    description: str = ""
    required: bool = False
    default: Json = None
    choices: tuple[Choice, ...] = ()
    """With `choice` and `choices`."""
    format: str | None = None
    """Of a text: `email`, `uri`, `date` or `date-time`. Not checked here."""
    pattern: str | None = None
    """A regular expression for a text. Not checked here."""
    min_length: int | None = None
    max_length: int | None = None
    minimum: float | None = None
    maximum: float | None = None
    min_items: int | None = None
    max_items: int | None = None

    def fault(self, value: object) -> str:
        """What is wrong with a value for the field; empty if nothing is."""
        match self.type:
            case "string":
                return self._text_fault(value)
            case "number" | "integer":
                return self._number_fault(value)
            case "boolean":
                return "" if isinstance(value, bool) else "must be True or False"
            case "choice":
                return "" if self._offers(value) else f"must be one of {self._offered}"
            case "choices":
                return self._list_fault(value)
            case "other":
                return ""

    def _text_fault(self, value: object) -> str:
        if not isinstance(value, str):
            return "must be a text"
        return _range_fault(len(value), self.min_length, self.max_length, "characters")

    def _number_fault(self, value: object) -> str:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            return "must be a number"
        if self.type == "integer" and value != int(value):
            return "must be a whole number"
        return _range_fault(value, self.minimum, self.maximum, "")

    def _list_fault(self, value: object) -> str:
        if not _is_list(value) or not all(map(self._offers, value)):
            return f"must be a list of {self._offered}"
        return _range_fault(len(value), self.min_items, self.max_items, "choices")

    def _offers(self, value: object) -> bool:
        return isinstance(value, str) and any(choice.value == value for choice in self.choices)

    @property
    def _offered(self) -> str:
        return ", ".join(repr(choice.value) for choice in self.choices)


def _range_fault(number: float, least: float | None, most: float | None, unit: str) -> str:
    if least is not None and number < least:
        return f"must be {least:g} or more {unit}".rstrip()
    if most is not None and number > most:
        return f"must be {most:g} or less {unit}".rstrip()
    return ""


def form_fields(schema: JsonObject | None, order: Sequence[str] | None) -> tuple[FormField, ...]:
    """The fields that a schema asks for, in the order that the server lists them in. Never raises."""
    properties = _objects((schema or {}).get("properties"))
    required = _texts((schema or {}).get("required"))
    names = [name for name in order or () if name in properties]
    names += [name for name in properties if name not in names]
    return tuple(_field(name, properties[name], name in required) for name in names)


def content_fault(content: JsonObject, fields: Sequence[FormField]) -> str:
    """What is wrong with a form as it was filled in; empty if nothing is."""
    by_name = {field.name: field for field in fields}
    for name, value in content.items():
        if (field := by_name.get(name)) is None:
            return f"the form has no field {name!r}: it has {', '.join(map(repr, by_name)) or 'none'}"
        if fault := field.fault(value):
            return f"{name!r} {fault}, not {preview_value(value, 80)}"
    missing = [field.name for field in fields if field.required and field.name not in content]
    return f"{missing[0]!r} is required" if missing else ""


def _field(name: str, schema: JsonObject, required: bool) -> FormField:
    kind, choices = _kind(schema)
    return FormField(
        name=name,
        type=kind,
        title=_text(schema.get("title")) or name,
        description=_text(schema.get("description")),
        required=required,
        default=schema.get("default"),
        choices=choices,
        format=_text(schema.get("format")) or None,
        pattern=_text(schema.get("pattern")) or None,
        min_length=_whole(schema.get("minLength")),
        max_length=_whole(schema.get("maxLength")),
        minimum=_number(schema.get("minimum")),
        maximum=_number(schema.get("maximum")),
        min_items=_whole(schema.get("minItems")),
        max_items=_whole(schema.get("maxItems")),
    )


def _kind(schema: JsonObject) -> tuple[FieldType, tuple[Choice, ...]]:
    match schema.get("type"):
        case "string" | None if choices := _choices(schema):
            return "choice", choices
        case "array" if choices := _choices(schema.get("items")):
            return "choices", choices
        case "string":
            return "string", ()
        case "number":
            return "number", ()
        case "integer":
            return "integer", ()
        case "boolean":
            return "boolean", ()
        case _:
            return "other", ()


def _choices(schema: object) -> tuple[Choice, ...]:
    """The values to choose from: a list of them, perhaps with a list of their names, or each with a title."""
    if not _is_object(schema):
        return ()
    for key in ("oneOf", "anyOf"):
        titled = schema.get(key)
        if _is_list(titled):
            found = [each for each in titled if _is_object(each) and isinstance(each.get("const"), str)]
            return tuple(Choice(each["const"], _text(each.get("title")) or each["const"]) for each in found)
    values = _texts(schema.get("enum"))
    titles = _texts(schema.get("enumNames"))
    titles += values[len(titles) :]
    return tuple(Choice(value, title) for value, title in zip(values, titles, strict=False))


def _objects(value: object) -> dict[str, JsonObject]:
    found = value if _is_object(value) else {}
    return {name: each for name, each in found.items() if _is_object(each)}


def _texts(value: object) -> list[str]:
    return [each for each in value if isinstance(each, str)] if _is_list(value) else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _number(value: object) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _is_object(value: object) -> TypeGuard[JsonObject]:
    return isinstance(value, dict)


def _is_list(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, list | tuple)
