"""Owns how arguments are checked against a JSON Schema, and what a model is told of those that do not fit.

Knows the keywords that schemas of arguments have. What else a schema says is left to the tool.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from heapq import nsmallest
from typing import Any, Final, NamedTuple, TypeAlias, TypeGuard, cast

Json: TypeAlias = Any
"""What a keyword of a schema says."""
Schema: TypeAlias = Mapping[str, Json]
Path: TypeAlias = tuple[str | int, ...]


class Fault(NamedTuple):
    """Something that does not fit."""

    path: Path
    keyword: str
    text: str
    is_of_type: bool
    """The value is of a type that the schema allows."""
    inside: tuple[Fault, ...] = ()
    """Where none of several schemas fits: what is wrong by each of them."""


def fault_in(value: object, schema: Schema) -> str | None:
    """The one fault that says most, or None for what fits. One near the top says more than those below it."""
    best = max(_faults(value, schema, schema, ()), key=_weight, default=None)
    if best is None:
        return None
    while best.inside:
        first, *others = nsmallest(2, best.inside, key=_weight)
        if others and _weight(first) == _weight(others[0]):
            break
        best = first
    return best.text


def _weight(fault: Fault) -> tuple[int, list[tuple[bool, str | int]], bool, bool]:
    # Names and numbers do not compare.
    path = [(isinstance(part, str), part) for part in fault.path]
    return -len(path), path, fault.keyword not in ("anyOf", "oneOf"), not fault.is_of_type


def _faults(value: object, schema: object, root: Schema, path: Path) -> Iterator[Fault]:
    if schema is False:
        yield Fault(path, "", f"False schema does not allow {value!r}", is_of_type=False)
    if not _is_object(schema):
        return
    is_of_type = "type" in schema and _is_of(value, schema["type"])
    for keyword, wanted in schema.items():
        check = _CHECKS.get(keyword)
        if check is None:
            continue
        for found in check(_Place(value, schema, root, path), wanted):
            yield found if isinstance(found, Fault) else Fault(path, keyword, found, is_of_type)


class _Place(NamedTuple):
    """A value, and where it is."""

    value: Json
    schema: Schema
    root: Schema
    path: Path

    def under(self, schema: object) -> list[Fault]:
        """What is wrong with the value by another schema."""
        return list(_faults(self.value, schema, self.root, self.path))

    def below(self, part: str | int, schema: object) -> Iterator[Fault]:
        """What is wrong with a part of the value."""
        return _faults(self.value[part], schema, self.root, (*self.path, part))


Found: TypeAlias = Iterable[str | Fault]
Check: TypeAlias = Callable[[_Place, Json], Found]


def _is_list(value: object) -> TypeGuard[list[Json]]:
    return isinstance(value, list)


def _is_object(value: object) -> TypeGuard[dict[str, Json]]:
    return isinstance(value, dict)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


_TYPES: Final[Mapping[str, Callable[[Any], bool]]] = {
    "object": _is_object,
    "array": _is_list,
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: _is_number(value) and (isinstance(value, int) or value.is_integer()),
    "number": _is_number,
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
}


def _is_of(value: object, names: object) -> bool:
    each = cast("list[object]", names) if isinstance(names, list) else [names]
    return any(name not in _TYPES or _TYPES[str(name)](value) for name in each)


def _is_same(one: object, other: object) -> bool:
    """Whether JSON has one value for both: to Python, true is 1."""
    if isinstance(one, list) and isinstance(other, list):
        ones, others = cast("list[object]", one), cast("list[object]", other)
        return len(ones) == len(others) and all(map(_is_same, ones, others))
    if isinstance(one, dict) and isinstance(other, dict):
        by_name, also = cast("dict[str, object]", one), cast("dict[str, object]", other)
        return by_name.keys() == also.keys() and all(_is_same(by_name[name], also[name]) for name in also)
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def _frozen(value: object) -> object:
    """What is equal for the same JSON, and can be in a set."""
    if isinstance(value, list):
        return "list", tuple(map(_frozen, cast("list[object]", value)))
    if isinstance(value, dict):
        items = cast("dict[str, object]", value).items()
        return "dict", frozenset((name, _frozen(each)) for name, each in items)
    return (bool, value) if isinstance(value, bool) else value


@cache
def _pattern(text: str) -> re.Pattern[str] | None:
    try:
        return re.compile(text)
    except re.error:
        # Written for another language.
        return None


# One for each keyword. Those that are not for a value of this kind say nothing.


def _type(place: _Place, names: Json) -> Found:
    if not _is_of(place.value, names):
        each = cast("list[str]", names) if isinstance(names, list) else [names]
        yield f"{place.value!r} is not of type {', '.join(map(repr, each))}"


def _required(place: _Place, names: Json) -> Found:
    if _is_object(place.value):
        yield from (f"{name!r} is a required property" for name in names if name not in place.value)


def _properties(place: _Place, schemas: Json) -> Found:
    if _is_object(place.value):
        for name, schema in schemas.items():
            if name in place.value:
                yield from place.below(name, schema)


def _by_pattern(place: _Place, schemas: Json) -> Found:
    if _is_object(place.value):
        for text, schema in schemas.items():
            pattern = _pattern(text)
            for name in place.value:
                if pattern is not None and pattern.search(name):
                    yield from place.below(name, schema)


def _additional(place: _Place, schema: Json) -> Found:
    if not _is_object(place.value):
        return
    texts = sorted(place.schema.get("patternProperties", {}))
    patterns = [_pattern(text) for text in texts]
    if None in patterns:
        return
    known = place.schema.get("properties", {})
    others = [
        name
        for name in place.value
        if name not in known and not any(pattern and pattern.search(name) for pattern in patterns)
    ]
    if _is_object(schema):
        for name in others:
            yield from place.below(name, schema)
    elif schema is False and others:
        names, is_one = ", ".join(map(repr, sorted(others))), len(others) == 1
        if patterns:
            told = ", ".join(map(repr, texts))
            yield f"{names} {'does' if is_one else 'do'} not match any of the regexes: {told}"
        else:
            yield f"Additional properties are not allowed ({names} {'was' if is_one else 'were'} unexpected)"


def _names(place: _Place, schema: Json) -> Found:
    if _is_object(place.value):
        for name in place.value:
            yield from place._replace(value=name).under(schema)


def _items(place: _Place, schema: Json) -> Found:
    if not _is_list(place.value):
        return
    if isinstance(schema, list):
        # As it was written before there was `prefixItems`.
        yield from _first_items(place, schema)
        return
    start = len(place.schema.get("prefixItems", ()))
    rest = place.value[start:]
    if schema is False and rest:
        told = repr(rest if len(rest) > 1 else rest[0])
        yield f"Expected at most {start} item{'s' * (start != 1)} but found {len(rest)} extra: {told}"
        return
    for index in range(start, len(place.value)):
        yield from place.below(index, schema)


def _first_items(place: _Place, schemas: Json) -> Found:
    if _is_list(place.value):
        for index, schema in zip(range(len(place.value)), schemas, strict=False):
            yield from place.below(index, schema)


def _contains(place: _Place, schema: Json) -> Found:
    if not _is_list(place.value):
        return
    least, most = place.schema.get("minContains", 1), place.schema.get("maxContains", len(place.value))
    fitting = sum(not list(place.below(index, schema)) for index in range(len(place.value)))
    if fitting > most:
        yield f"Too many items match the given schema (expected at most {most})"
    elif fitting < least and not fitting:
        yield f"{place.value!r} does not contain items matching the given schema"
    elif fitting < least:
        yield f"Too few items match the given schema (expected at least {least} but only {fitting} matched)"


def _needs(place: _Place, names: Json) -> Found:
    if _is_object(place.value):
        for name, needed in names.items():
            if name in place.value:
                yield from (
                    f"{each!r} is a dependency of {name!r}" for each in needed if each not in place.value
                )


def _needs_schema(place: _Place, schemas: Json) -> Found:
    if _is_object(place.value):
        for name, schema in schemas.items():
            if name in place.value:
                yield from place.under(schema)


def _if(place: _Place, schema: Json) -> Found:
    branch = "else" if place.under(schema) else "then"
    if branch in place.schema:
        yield from place.under(place.schema[branch])


def _enum(place: _Place, values: Json) -> Found:
    if not any(_is_same(place.value, each) for each in values):
        yield f"{place.value!r} is not one of {values!r}"


def _const(place: _Place, value: Json) -> Found:
    if not _is_same(place.value, value):
        yield f"{value!r} was expected"


def _unique(place: _Place, is_wanted: Json) -> Found:
    values: Json = place.value
    if not is_wanted or not _is_list(values):
        return
    if len(set(map(_frozen, values))) < len(values):
        yield f"{values!r} has non-unique elements"


def _multiple(place: _Place, number: Json) -> Found:
    if _is_number(place.value):
        rest = place.value / number
        if rest != int(rest) if isinstance(number, float) else place.value % number:
            yield f"{place.value!r} is not a multiple of {number!r}"


def _matches(place: _Place, text: Json) -> Found:
    if isinstance(place.value, str) and (pattern := _pattern(text)) and not pattern.search(place.value):
        yield f"{place.value!r} does not match {text!r}"


def _any_of(place: _Place, schemas: Json) -> Found:
    found = [place.under(schema) for schema in schemas]
    if all(found):
        yield _none_fits(place, "anyOf", found)


def _one_of(place: _Place, schemas: Json) -> Found:
    found = [place.under(schema) for schema in schemas]
    fitting = [schema for schema, faults in zip(schemas, found, strict=True) if not faults]
    if not fitting:
        yield _none_fits(place, "oneOf", found)
    elif len(fitting) > 1:
        # The first that fits comes last.
        told = ", ".join(map(repr, (*fitting[1:], fitting[0])))
        yield f"{place.value!r} is valid under each of {told}"


def _none_fits(place: _Place, keyword: str, found: list[list[Fault]]) -> Fault:
    text = f"{place.value!r} is not valid under any of the given schemas"
    is_of_type = "type" in place.schema and _is_of(place.value, place.schema["type"])
    return Fault(place.path, keyword, text, is_of_type, tuple(fault for faults in found for fault in faults))


def _all_of(place: _Place, schemas: Json) -> Found:
    for schema in schemas:
        yield from place.under(schema)


def _not(place: _Place, schema: Json) -> Found:
    if not place.under(schema):
        yield f"{place.value!r} should not be valid under {schema!r}"


def _ref(place: _Place, reference: Json) -> Found:
    target: Any = place.root
    head, *names = str(reference).split("/")
    for name in names:
        target = target.get(name.replace("~1", "/").replace("~0", "~")) if _is_object(target) else None
    if head == "#" and target is not None:
        yield from place.under(target)


def _limit(is_over: Callable[[Any, Any], bool], text: str, strict: str = "") -> Check:
    def check(place: _Place, limit: Json) -> Found:
        if not _is_number(place.value) or isinstance(limit, bool):
            return
        if place.schema.get(strict) is True:
            # The fourth draft says of the one limit that the other is meant.
            yield from _CHECKS[strict](place, limit)
        elif is_over(place.value, limit):
            yield f"{place.value!r} {text} {limit!r}"

    return check


def _length(kind: type, *, most: bool, word: str) -> Check:
    def check(place: _Place, limit: Json) -> Found:
        if not isinstance(place.value, kind):
            return
        length = len(cast("str", place.value))
        if most and length > limit:
            yield f"{place.value!r} {'is expected to be empty' if limit == 0 else word}"
        elif not most and length < limit:
            yield f"{place.value!r} {'should be non-empty' if limit == 1 else word}"

    return check


_CHECKS: Final[Mapping[str, Check]] = {
    "$ref": _ref,
    "type": _type,
    "required": _required,
    "properties": _properties,
    "patternProperties": _by_pattern,
    "additionalProperties": _additional,
    "propertyNames": _names,
    "dependentRequired": _needs,
    "dependentSchemas": _needs_schema,
    "prefixItems": _first_items,
    "items": _items,
    "contains": _contains,
    "enum": _enum,
    "const": _const,
    "minimum": _limit(
        lambda value, limit: value < limit, "is less than the minimum of", strict="exclusiveMinimum"
    ),
    "maximum": _limit(
        lambda value, limit: value > limit, "is greater than the maximum of", strict="exclusiveMaximum"
    ),
    "exclusiveMinimum": _limit(
        lambda value, limit: value <= limit, "is less than or equal to the minimum of"
    ),
    "exclusiveMaximum": _limit(
        lambda value, limit: value >= limit, "is greater than or equal to the maximum of"
    ),
    "multipleOf": _multiple,
    "minLength": _length(str, most=False, word="is too short"),
    "maxLength": _length(str, most=True, word="is too long"),
    "pattern": _matches,
    "minItems": _length(list, most=False, word="is too short"),
    "maxItems": _length(list, most=True, word="is too long"),
    "uniqueItems": _unique,
    "minProperties": _length(dict, most=False, word="does not have enough properties"),
    "maxProperties": _length(dict, most=True, word="has too many properties"),
    "anyOf": _any_of,
    "oneOf": _one_of,
    "allOf": _all_of,
    "not": _not,
    "if": _if,
}
