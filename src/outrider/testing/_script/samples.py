"""Owns values made from JSON Schemas, as a model would that takes them at their word.

Does not check values: `JsonSchema` does, each one that is made here.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, count, islice
from typing import Any, Final, TypeVar, cast

from outrider.errors import OptionsError
from outrider.handlers._tools.shape_errors import JsonSchema
from outrider.wire import Json, JsonObject

__all__ = ["sample", "text_for"]


_CLASSES: Final = {"d": "1", "w": "a", "s": " ", "D": "a", "W": "-", "S": "a"}
_SIGNS: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "0": "\0"}
_MOST: Final = 1000


class _Unknown(Exception):
    """The pattern has what is not known here."""


def text_for(pattern: str, length: int = 0) -> str | None:
    """A text that a pattern is found in, of this length if its repetitions allow it; None if it is not
    simple."""
    for wished in dict.fromkeys((length, max(length - 1, 0))):
        try:
            reader = _Reader(pattern)
            made = reader.choice(0)
            if wished > len(made):
                reader = _Reader(pattern, more=wished - len(made))
                made = reader.choice(0)
        except (_Unknown, IndexError, ValueError, RecursionError):
            return None
        if reader.at == len(pattern):
            return made
    return None


class _Reader:
    """Reads a pattern and writes a text for it."""

    def __init__(self, pattern: str, *, more: int = 0) -> None:
        self._pattern = pattern
        self._more = more
        """How many characters repetitions have to add."""
        self.at = 0

    def choice(self, depth: int) -> str:
        """The first of the alternatives."""
        made = self._sequence(depth)
        while self._next() == "|":
            self.at += 1
            more, self._more = self._more, 0
            self._sequence(depth)
            self._more = more
        return made

    def _next(self) -> str:
        return self._pattern[self.at : self.at + 1]

    def _sequence(self, depth: int) -> str:
        made = ""
        while self._next() not in ("", "|", ")"):
            start = self.at
            more, self._more = self._more, 0
            piece = self._atom(depth)
            self._more = more
            least, most = self._repetition()
            if least > _MOST:
                raise _Unknown
            if piece and self._more:
                extra = min(most - least, -(-self._more // len(piece)))
                self._more = max(0, self._more - extra * len(piece))
                least += extra
            made += piece * least
            if self.at == start:
                raise _Unknown
        return made

    def _atom(self, depth: int) -> str:
        sign = self._pattern[self.at]
        self.at += 1
        if sign in "^$":
            return ""
        if sign == ".":
            return "a"
        if sign == "\\":
            return self._escaped()
        if sign == "[":
            return self._one_of()
        if sign == "(":
            return self._group(depth)
        if sign in "*+?{":
            raise _Unknown
        return sign

    def _escaped(self) -> str:
        sign = self._pattern[self.at]
        self.at += 1
        if sign in "AZbB":
            return ""
        if sign in "xu":
            digits = 2 if sign == "x" else 4
            code = self._pattern[self.at : self.at + digits]
            self.at += digits
            return chr(int(code, 16))
        if sign.isdigit() and sign != "0":
            raise _Unknown
        if sign in "pPk":
            raise _Unknown
        return _CLASSES.get(sign) or _SIGNS.get(sign) or sign

    def _group(self, depth: int) -> str:
        is_needed = True
        if self._pattern.startswith("?", self.at):
            if self._pattern.startswith("?:", self.at):
                self.at += 2
            elif self._pattern.startswith(("?P<", "?<"), self.at) and self._pattern[self.at + 2] not in "=!":
                self.at = self._pattern.index(">", self.at) + 1
            elif self._pattern.startswith(("?=", "?!", "?<=", "?<!"), self.at):
                # What follows may fit by chance.
                self.at += 2 if self._pattern[self.at + 1] in "=!" else 3
                is_needed = False
            else:
                raise _Unknown
        made = self.choice(depth + 1)
        if self._next() != ")":
            raise _Unknown
        self.at += 1
        return made if is_needed else ""

    def _one_of(self) -> str:
        is_not = self._next() == "^"
        self.at += is_not
        allowed: set[str] = set()
        shown = ""
        start = self.at
        while self._next() != "]" or self.at == start:
            low = self._member()
            high = low
            if self._next() == "-" and self._pattern[self.at + 1] != "]":
                self.at += 1
                high = self._member()
            shown = shown or low
            allowed.update(chr(code) for code in range(ord(low), min(ord(high), ord(low) + 200) + 1))
        self.at += 1
        if is_not:
            return next(sign for sign in "a1-_ x.Z!~" if sign not in allowed)
        return shown

    def _member(self) -> str:
        sign = self._pattern[self.at]
        self.at += 1
        return self._escaped() if sign == "\\" else sign

    def _repetition(self) -> tuple[int, int]:
        least, most = 1, 1
        sign = self._next()
        if sign in ("*", "+", "?") and sign:
            self.at += 1
            least, most = (1 if sign == "+" else 0), (1 if sign == "?" else _MOST)
        elif sign == "{":
            end = self._pattern.index("}", self.at)
            first, comma, last = self._pattern[self.at + 1 : end].partition(",")
            self.at = end + 1
            least = int(first or 0)
            most = (int(last) if last else _MOST) if comma else least
        else:
            return least, most
        if self._next() in ("?", "+") and self._next():
            self.at += 1
        return least, most


T = TypeVar("T")

# Deeper than that, only what is required is made, and then nothing.
_ENOUGH: Final = 3
_TOO_DEEP: Final = 24
# How many values are tried, and in how many ways a schema's choices are made.
_TRIED: Final = 200
_CHOICES: Final = 64

_LIMITS: Final = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")

_FORMATS: Final[Mapping[str, str]] = {
    "date": "2026-01-31",
    "time": "12:30:00Z",
    "date-time": "2026-01-31T12:30:00Z",
    "duration": "PT1H",
    "email": "ada@example.com",
    "idn-email": "ada@example.com",
    "hostname": "example.com",
    "idn-hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/",
    "url": "https://example.com/",
    "uri-reference": "/path",
    "iri": "https://example.com/",
    "uuid": "12345678-1234-4234-8234-123456789012",
    "byte": "dGV4dA==",
    "binary": "dGV4dA==",
    "base64": "dGV4dA==",
    "json-pointer": "/path",
    "regex": "a+",
    "decimal": "1.5",
    "path": "file.txt",
    "file-path": "file.txt",
    "directory-path": "folder",
}


def sample(schema: object) -> Json:
    """A value that fits a schema: the first that comes to mind, with all of its properties if they can be.

    Raises `OptionsError` if none is found.
    """
    for value in _Maker(schema).first(schema, 0):
        return value
    hint = "Write a script that calls the tool, or make its schema simpler."
    raise OptionsError(f"No value was found that fits the schema {schema!r:.300}", hint=hint)


class _Maker:
    """Makes values for the parts of one schema."""

    def __init__(self, root: object) -> None:
        self._root = root
        self._checked = JsonSchema(root, extra="testing")

    def values(self, schema: object, depth: int) -> Iterator[Json]:
        """Values that may fit, the likeliest first."""
        if schema is False or depth > _TOO_DEEP:
            return
        if not isinstance(schema, dict):
            yield from chain(_texts({}), (1, True, None, {}, []))
            return
        found = _alternatives(cast("JsonObject", schema), self._root, 0)
        choices = list(islice(found, _CHOICES))
        if depth >= _ENOUGH:
            # What is deep is best made an end of.
            choices.sort(key=lambda each: not {"object", "array"}.isdisjoint(_kinds(each)))
        yield from _in_turn([self._plain(each, depth) for each in choices])

    def first(self, schema: object, depth: int) -> list[Json]:
        """The first value that fits, if one is found."""
        return self.some(schema, depth, 1)

    def some(self, schema: object, depth: int, number: int, taken: list[Json] | None = None) -> list[Json]:
        """So many values that fit and differ from each other and from those that are taken."""
        found: list[Json] = []
        for value in islice(self.values(schema, depth), _TRIED):
            if self._checked.is_valid(value, schema) and not any(
                _same(value, other) for other in (*found, *(taken or ()))
            ):
                found.append(value)
                if len(found) == number:
                    break
        return found

    def _plain(self, rules: JsonObject, depth: int) -> Iterator[Json]:
        """Values for a schema that has no choices in it."""
        if "const" in rules:
            yield rules["const"]
            return
        if "enum" in rules:
            yield from rules["enum"]
            return
        yield from _list(rules.get("examples"))
        # What a parameter is if it is left out; nothing and empty ones show nothing of it.
        if "default" in rules and rules["default"] not in (None, "", [], {}):
            yield rules["default"]
        kinds: Mapping[str, Callable[[], Iterator[Json]]] = {
            "object": lambda: self._objects(rules, depth),
            "array": lambda: self._arrays(rules, depth),
            "string": lambda: _texts(rules),
            "integer": lambda: _numbers(rules, is_whole=True),
            "number": lambda: _numbers(rules, is_whole=False),
            "boolean": lambda: iter((True, False)),
            "null": lambda: iter((None,)),
        }
        makers = [kinds[kind]() for kind in _kinds(rules) if kind in kinds]
        yield from _in_turn(makers)

    def _arrays(self, rules: JsonObject, depth: int) -> Iterator[Json]:
        least = int(rules.get("minItems", 0))
        rest: object = rules.get("items", True)
        start = _list(rules.get("prefixItems"))
        if isinstance(rest, list):
            start, rest = cast("list[Json]", rest), rules.get("additionalItems", True)
        wanted = [least] if depth >= _ENOUGH else [max(least, len(start), 1), least]
        for length in dict.fromkeys((*wanted, len(start), 0)):
            made: list[Json] = []
            if "contains" in rules and length > len(start):
                needed = int(rules.get("minContains", 1))
                made += self.some(rules["contains"], depth + 1, needed) or []
                made += made[:1] * (needed - len(made))
            items: list[Json] = []
            for at in range(length - len(made)):
                schema = start[at] if at < len(start) else rest
                is_unique = rules.get("uniqueItems") is True
                items += self.some(schema, depth + 1, 1, [*items, *made] if is_unique else None)
            yield items + made

    def _objects(self, rules: JsonObject, depth: int) -> Iterator[Json]:
        known = cast("JsonObject", rules.get("properties") or {})
        required = [str(name) for name in _list(rules.get("required"))]
        all_of_them = list(dict.fromkeys((*known, *required)))
        wanted = [required] if depth >= _ENOUGH else [all_of_them, required]
        for names in wanted:
            made: JsonObject = {}
            for name in names:
                for value in self.first(self._property(rules, name), depth + 1):
                    made[name] = value
            if depth < _ENOUGH and not known:
                yield made | self._more(rules, made, 1, depth)
            if (missing := int(rules.get("minProperties", 0)) - len(made)) > 0:
                made |= self._more(rules, made, missing, depth)
            yield made
        if not required:
            yield {}

    def _property(self, rules: JsonObject, name: str) -> object:
        known = cast("JsonObject", rules.get("properties") or {})
        for pattern, schema in cast("JsonObject", rules.get("patternProperties") or {}).items():
            if name not in known and self._checked.is_valid(name, {"pattern": pattern}):
                return schema
        return known.get(name, rules.get("additionalProperties", True))

    def _more(self, rules: JsonObject, made: JsonObject, number: int, depth: int) -> JsonObject:
        """Properties that are not named in the schema."""
        patterns = list(cast("JsonObject", rules.get("patternProperties") or {}))
        names = rules.get("propertyNames", True)
        if patterns and rules.get("additionalProperties") is False:
            names = {"allOf": [names, {"type": "string", "pattern": patterns[0]}]}
        found = self.some(
            {"allOf": [names, {"type": "string", "not": {"enum": list(made)}}]}, depth + 1, number, list(made)
        )
        return {
            str(name): value
            for name in found
            for value in self.first(self._property(rules, str(name)), depth + 1)
        }


def _alternatives(rules: JsonObject, root: object, level: int) -> Iterator[JsonObject]:
    """The schema with each of its choices made, one after the other."""
    if level > _TOO_DEEP:
        return
    for name in ("$ref", "anyOf", "oneOf", "allOf", "if"):
        if name not in rules:
            continue
        rest = {key: value for key, value in rules.items() if key != name}
        others: list[object] = _list(rules[name])
        match name:
            case "$ref":
                others = [_referred(str(rules[name]), root)]
            case "allOf":
                rest |= {"allOf": others[1:]} if others[1:] else {}
                others = others[:1] or [True]
            case "if":
                others = [{"allOf": [rules["if"], rules.get("then", True)]}, rules.get("else", True)]
            case _:
                pass
        yield from _in_turn([_joined_alternatives(rest, other, root, level) for other in others])
        return
    yield rules


def _joined_alternatives(rules: JsonObject, other: object, root: object, level: int) -> Iterator[JsonObject]:
    if other is False:
        return
    joined = _joined(rules, cast("JsonObject", other)) if isinstance(other, dict) else rules
    yield from _alternatives(joined, root, level + 1)


def _joined(one: JsonObject, other: JsonObject) -> JsonObject:
    """A schema for what fits both, as far as can be."""
    joined = {**one, **other}
    # `allOf` before the choices, which add to it.
    for key in sorted(one.keys() & other.keys()):
        first, second = one[key], other[key]
        match key:
            case "properties" | "patternProperties" | "$defs":
                joined[key] = {
                    **first,
                    **{
                        name: _both(first[name], second[name]) if name in first else second[name]
                        for name in second
                    },
                }
            case "required":
                joined[key] = list(dict.fromkeys((*first, *second)))
            case "type":
                joined[key] = _shared_kinds(_kinds(one), _kinds(other))
            case "enum":
                joined[key] = [value for value in first if any(_same(value, each) for each in second)]
            case "minimum" | "exclusiveMinimum" | "minLength" | "minItems" | "minProperties":
                joined[key] = max(first, second)
            case "maximum" | "exclusiveMaximum" | "maxLength" | "maxItems" | "maxProperties":
                joined[key] = min(first, second)
            case "allOf":
                joined[key] = [*first, *second]
            case "anyOf" | "oneOf":
                joined[key] = second
                joined["allOf"] = [*_list(joined.get("allOf")), {key: first}]
            case "items" | "additionalProperties" | "propertyNames":
                joined[key] = _both(first, second)
            case "multipleOf":
                joined[key] = _common_multiple(first, second)
            case _:
                pass
    return joined


def _both(one: object, other: object) -> object:
    if _same(one, other) or one is True:
        return other
    return one if other is True else {"allOf": [one, other]}


def _shared_kinds(first: list[str], second: list[str]) -> list[str]:
    if "number" in first:
        first = [*first, "integer"]
    if "number" in second:
        second = [*second, "integer"]
    return [kind for kind in first if kind in second] or ["none"]


def _common_multiple(one: float, other: float) -> float:
    if isinstance(one, int) and isinstance(other, int):
        return math.lcm(one, other)
    return max(one, other)


def _kinds(rules: JsonObject) -> list[str]:
    given = rules.get("type")
    if isinstance(given, str):
        return [given]
    if isinstance(given, list):
        return [str(kind) for kind in cast("list[object]", given)]
    for kind, keys in (
        ("object", ("properties", "required", "additionalProperties", "patternProperties", "minProperties")),
        ("array", ("items", "prefixItems", "minItems", "contains", "uniqueItems")),
        ("integer", ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")),
    ):
        if any(key in rules for key in keys):
            return [kind, "string", "integer", "null"]
    return ["string", "integer", "boolean", "null", "object", "array"]


def _texts(rules: JsonObject) -> Iterator[str]:
    least, most = int(rules.get("minLength", 0)), rules.get("maxLength")
    if (known := _FORMATS.get(str(rules.get("format")))) is not None:
        yield known
    if rules.get("contentEncoding") == "base64":
        yield base64.b64encode(b"text").decode()
    if isinstance(pattern := rules.get("pattern"), str):
        for length in (0, least, least + 1, most or 1, 1, 2, 3, 8):
            if (text := text_for(pattern, int(length))) is not None:
                yield text
                yield from (f"{text}{number}" for number in range(1, 5))
    for number in islice(count(1), _TRIED):
        text = "text" if number == 1 else f"text{number}"
        if most is not None and len(text) > most:
            text = _short(number, int(most))
        yield text if len(text) >= least else text + "x" * (least - len(text))


def _short(number: int, length: int) -> str:
    """The n-th text of that length."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    made = ""
    for _ in range(length):
        number, at = divmod(number, len(letters))
        made += letters[at]
    return made


def _numbers(rules: JsonObject, *, is_whole: bool) -> Iterator[Json]:
    limits = {key: value for key, value in rules.items() if key in _LIMITS and not isinstance(value, bool)}
    least = max((limits[key] for key in _LIMITS[:2] if key in limits), default=None)
    most = min((limits[key] for key in _LIMITS[2:] if key in limits), default=None)
    step = rules.get("multipleOf") or 1
    start = 1 if least is None else least
    if most is not None and start > most:
        start = most
    if not is_whole and "multipleOf" not in rules:
        yield 1.5
        if least is not None and most is not None:
            yield (least + most) / 2
    begin = math.ceil(start / step)
    for number in range(_TRIED):
        for sign in (1, -1):
            value = (begin + sign * number) * step
            yield int(value) if is_whole and float(value).is_integer() else value


def _in_turn(makers: list[Iterator[T]]) -> Iterator[T]:
    """The first of each, then the second of each."""
    while makers:
        going: list[Iterator[T]] = []
        for maker in makers:
            for value in islice(maker, 1):
                yield value
                going.append(maker)
        makers = going


def _same(one: object, other: object) -> bool:
    """Whether two JSON values are equal; a truth value is no number."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        ones, others = cast("list[object]", one), cast("list[object]", other)
        return len(ones) == len(others) and all(map(_same, ones, others))
    if isinstance(one, dict) and isinstance(other, dict):
        first, second = cast("JsonObject", one), cast("JsonObject", other)
        return first.keys() == second.keys() and all(_same(first[key], second[key]) for key in first)
    return one == other


def _referred(reference: str, root: object) -> object:
    """What a reference within a schema leads to; True, which anything fits, if that is nothing."""
    found = root
    for step in reference.removeprefix("#").split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict) and name in found:
            found = cast("object", found[name])
        elif isinstance(found, list) and name.isdigit() and int(name) < len(cast("list[object]", found)):
            found = cast("list[object]", found)[int(name)]
        else:
            return True
    return found if reference.startswith("#") else True


def _list(value: object) -> list[Any]:
    return [*cast("Iterable[Any]", value)] if isinstance(value, list) else []
