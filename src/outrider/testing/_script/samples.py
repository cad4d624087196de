"""Values made from simple JSON Schemas, as a model would make them that takes a schema at its word."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from importlib import import_module
from itertools import chain, count, islice
from typing import Any, Final, cast

from outrider.errors import OptionsError
from outrider.handlers._tools.shape_errors import JsonSchema
from outrider.wire import Json, JsonObject

# The parser of `re` is the one thing that knows all of its syntax.
_parser: Final = import_module("re._parser")
_CATEGORIES: Final = {"DIGIT": "1", "WORD": "a", "SPACE": " ", "NOT_DIGIT": "a", "NOT_WORD": "-"}
_LETTERS: Final = "a1-_ x.Z!~"
_MOST_REPEATED: Final = 1000


class _NotSimple(Exception):
    """The pattern has something in it for which no text is made."""


def text_for(pattern: str, length: int = 0) -> str | None:
    """A text in which a pattern is found, as long as this if its repetitions allow it; None if the pattern is
    not simple."""
    try:
        parsed = _parser.parse(pattern)
        shortest = _text(parsed, 0)
        return _text(parsed, max(length - len(shortest), 0))
    except (re.error, _NotSimple, RecursionError, OverflowError):
        return None


def _text(parsed: Any, more: int) -> str:  # noqa: ANN401 - the parser has no types
    """A text for a parsed pattern, with about this many characters more than the shortest."""
    made = ""
    for code, given in parsed:
        match str(code):
            case "LITERAL":
                made += chr(given)
            case "ANY":
                made += "a"
            case "NOT_LITERAL":
                made += "a" if chr(given) != "a" else "b"
            case "IN":
                made += _letter(given)
            case "BRANCH":
                made += _text(given[1][0], 0)
            case "SUBPATTERN" if not given[1] and not given[2]:
                made += _text(given[3], 0)
            case "MAX_REPEAT" | "MIN_REPEAT" if given[0] <= _MOST_REPEATED:
                least, most, inner = given
                piece = _text(inner, 0)
                extra = min(int(most) - least, -(-more // len(piece))) if piece else 0
                more -= extra * len(piece)
                made += piece * (least + extra)
            case "AT" | "ASSERT" | "ASSERT_NOT":
                # What follows may fit by chance.
                pass
            case _:
                raise _NotSimple
    return made


def _letter(members: Any) -> str:  # noqa: ANN401
    """A letter of a class."""
    kinds = [(str(code), given) for code, given in members]
    if kinds[0][0] == "NEGATE":
        return next(letter for letter in _LETTERS if not any(_has(member, letter) for member in kinds[1:]))
    kind, given = kinds[0]
    if kind == "CATEGORY":
        return _CATEGORIES.get(str(given).removeprefix("CATEGORY_"), "a")
    return chr(given if kind == "LITERAL" else given[0])


def _has(member: tuple[str, Any], letter: str) -> bool:
    kind, given = member
    if kind == "CATEGORY":
        name = str(given).removeprefix("CATEGORY_")
        sign = name.removeprefix("NOT_")[0].lower()
        return re.match(f"\\{sign.upper() if name.startswith('NOT_') else sign}", letter) is not None
    low, high = given if kind == "RANGE" else (given, given)
    return bool(low <= ord(letter) <= high)


# Deeper than that, only what is required is made, and then nothing.
_ENOUGH: Final = 3
_TOO_DEEP: Final = 12
_TRIED: Final = 40
_FORMATS: Final = {
    "date": "2026-01-31",
    "time": "12:30:00Z",
    "date-time": "2026-01-31T12:30:00Z",
    "duration": "PT1H",
    "email": "ada@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/",
    "uuid": "12345678-1234-4234-8234-123456789012",
    "decimal": "1.5",
    "binary": "dGV4dA==",
    "json-pointer": "/path",
    "path": "file.txt",
}


def sample(schema: object) -> Json:
    """A value that fits a schema: the first that comes to mind, with all of its properties if they can be.
    Raises `OptionsError` if none is found."""
    for value in _Maker(schema).some(schema, 0, 1):
        return value
    hint = "Write a script that calls the tool, or make its schema simpler."
    raise OptionsError(f"No value was found that fits the schema {schema!r:.300}", hint=hint)


class _Maker:
    """Makes values for the parts of one schema."""

    def __init__(self, root: object) -> None:
        self._root = root
        self._checked = JsonSchema(root, extra="testing")

    def some(self, schema: object, depth: int, number: int) -> list[Json]:
        """So many different values that fit, or fewer."""
        found: list[Json] = []
        for value in islice(self._values(schema, depth), _TRIED if number > 0 else 0):
            if len(found) == number:
                break
            if self._checked.is_valid(value, schema) and value not in found:
                found.append(value)
        return found

    def _values(self, schema: object, depth: int, level: int = 0) -> Iterator[Json]:
        """Values that may fit, the likeliest first."""
        if schema is False or max(depth, level) > _TOO_DEEP:
            return
        rules = cast("JsonObject", schema) if isinstance(schema, dict) else {}
        for name in ("$ref", "allOf", "anyOf", "oneOf"):
            if name in rules:
                rest = {key: rules[key] for key in rules if key != name}
                yield from self._combined(name, rules[name], rest, depth, level + 1)
                return
        if "const" in rules or "enum" in rules:
            yield from [rules["const"]] if "const" in rules else rules["enum"]
            return
        yield from rules.get("examples") or ()
        # What a parameter is if it is left out; nothing and empty ones show nothing of it.
        if rules.get("default") not in (None, "", [], {}):
            yield rules["default"]
        kind = rules.get("type") or _kind(rules)
        for each in cast("list[str]", kind) if isinstance(kind, list) else [kind]:
            yield from self._of_type(str(each), rules, depth)

    def _combined(self, name: str, given: object, rest: JsonObject, depth: int, level: int) -> Iterator[Json]:
        parts = [_referred(str(given), self._root)]
        if isinstance(given, list):
            parts = [*cast("list[object]", given)]
        if name in ("$ref", "allOf"):
            for part in parts:
                rest = _joined(part, rest)
            yield from self._values(rest, depth, level)
            return
        if depth >= _ENOUGH:
            # What is deep is best made an end of.
            parts.sort(key=_is_container)
        for part in parts:
            if part is not False:
                yield from islice(self._values(_joined(part, rest), depth, level), _TRIED // len(parts))

    def _of_type(self, kind: str, rules: JsonObject, depth: int) -> Iterator[Json]:
        match kind:
            case "object":
                yield from self._objects(rules, depth)
            case "array":
                yield from self._arrays(rules, depth)
            case "string":
                yield from _texts(rules)
            case "integer" | "number":
                yield from _numbers(rules, is_whole=kind == "integer")
            case "boolean":
                yield from (True, False)
            case _:
                yield None

    def _arrays(self, rules: JsonObject, depth: int) -> Iterator[Json]:
        start: list[Json] = rules.get("prefixItems") or []
        rest: object = rules.get("items", True)
        if isinstance(rest, list):
            start, rest = cast("list[Json]", rest), True
        least = max(int(rules.get("minItems", 0)), len(start))
        is_unique = rules.get("uniqueItems") is True
        for length in dict.fromkeys((least if depth >= _ENOUGH else max(least, 1), least, 0)):
            items = [value for schema in start for value in self.some(schema, depth + 1, 1)]
            left = length - len(start)
            found = self.some(rest, depth + 1, left if is_unique else min(left, 1))
            yield items + (found if is_unique else found * left)

    def _objects(self, rules: JsonObject, depth: int) -> Iterator[Json]:
        known: JsonObject = rules.get("properties") or {}
        required = [str(name) for name in rules.get("required") or ()]
        others = rules.get("additionalProperties", True)
        least = int(rules.get("minProperties", 0))
        for names in [required] if depth >= _ENOUGH else [[*known, *required], required]:
            made: JsonObject = {}
            for name in names:
                for value in self.some(known.get(name, others), depth + 1, 1):
                    made[name] = value
            # A mapping shows little without anything in it.
            wanted = max(least, 1) if not known and depth < _ENOUGH else least
            more = self.some(rules.get("propertyNames", {}), depth + 1, wanted - len(made))
            for value in self.some(others, depth + 1, 1) if more else ():
                made |= {str(name): value for name in more}
            yield made
        yield {}


def _is_container(schema: object) -> bool:
    rules = cast("JsonObject", schema) if isinstance(schema, dict) else {}
    return "$ref" in rules or (rules.get("type") or _kind(rules)) in ("object", "array")


def _kind(rules: JsonObject) -> str:
    if rules.keys() & {"properties", "required", "additionalProperties"}:
        return "object"
    if rules.keys() & {"items", "prefixItems", "minItems"}:
        return "array"
    return "integer" if rules.keys() & {"minimum", "maximum", "multipleOf"} else "string"


def _joined(part: object, rest: JsonObject) -> JsonObject:
    """A schema for what fits both, as far as their keys do not contradict each other."""
    other = cast("JsonObject", part) if isinstance(part, dict) else {}
    joined = {**other, **rest}
    if "properties" in other:
        joined["properties"] = {**other["properties"], **rest.get("properties", {})}
    if "required" in other:
        joined["required"] = [*other["required"], *rest.get("required", ())]
    return joined


def _texts(rules: JsonObject) -> Iterator[str]:
    least, most = int(rules.get("minLength", 0)), int(rules.get("maxLength", 1000))
    if (known := _FORMATS.get(str(rules.get("format") or rules.get("contentEncoding")))) is not None:
        yield known
    if rules.get("contentEncoding") == "base64":
        yield _FORMATS["binary"]
    if isinstance(pattern := rules.get("pattern"), str):
        for length in (0, least, least + 1):
            if (text := text_for(pattern, length)) is not None:
                yield text
    for number in count(1):
        text = "text" if number == 1 else f"text{number}"
        # The end differs from one to the next.
        text = text if len(text) <= most else text[len(text) - most :]
        yield text.ljust(least, "x")


def _numbers(rules: JsonObject, *, is_whole: bool) -> Iterator[Json]:
    least = max((rules[key] for key in ("minimum", "exclusiveMinimum") if key in rules), default=None)
    most = min((rules[key] for key in ("maximum", "exclusiveMaximum") if key in rules), default=None)
    step = rules.get("multipleOf") or 1
    start = 1 if least is None else least
    start = start if most is None else min(start, most)
    if not is_whole and "multipleOf" not in rules:
        yield 1.5
        if least is not None and most is not None:
            yield (least + most) / 2
    first = math.ceil(start / step)
    sign = -1 if least is None and most is not None else 1
    for number in chain(range(_TRIED), range(-1, -3, -1)):
        yield (first + sign * number) * step


def _referred(reference: str, root: object) -> object:
    """What a reference within a schema leads to; True, which anything fits, if that is nothing."""
    found: object = root
    for step in reference.removeprefix("#").split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        found = cast("JsonObject", found).get(name, True) if isinstance(found, dict) else True
    return found if reference.startswith("#") else True
