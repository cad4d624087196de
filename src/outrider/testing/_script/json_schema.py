"""Owns the check of a JSON value against a JSON Schema, as far as the schemas of tools go.

Does not make values, and does not check formats.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from typing import Final, TypeGuard, cast

from outrider.wire import JsonObject

__all__ = ["faults", "fits", "referred", "same"]


def fits(value: object, schema: object, root: object = None) -> bool:
    """Whether a value is as a schema says. References lead into `root`, or into the schema itself."""
    return next(_faults(value, schema, schema if root is None else root, ""), None) is None


def faults(value: object, schema: object) -> list[str]:
    """All that is wrong with a value, each with its place; empty if it fits."""
    return list(_faults(value, schema, schema, ""))


def same(one: object, other: object) -> bool:
    """Whether two JSON values are equal; a truth value is no number."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        ones, others = cast("list[object]", one), cast("list[object]", other)
        return len(ones) == len(others) and all(map(same, ones, others))
    if isinstance(one, dict) and isinstance(other, dict):
        first, second = cast("JsonObject", one), cast("JsonObject", other)
        return first.keys() == second.keys() and all(same(first[key], second[key]) for key in first)
    return one == other


def referred(reference: str, root: object) -> object:
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


def _faults(value: object, schema: object, root: object, path: str) -> Iterator[str]:
    where = path or "the value"
    if schema is False:
        yield f"{where}: nothing is allowed here"
    if not isinstance(schema, dict):
        return
    rules = cast("JsonObject", schema)
    if isinstance(reference := rules.get("$ref"), str):
        yield from _faults(value, referred(reference, root), root, path)
    kinds = rules.get("type")
    if kinds is not None:
        names = cast("list[str]", kinds if isinstance(kinds, list) else [kinds])
        if not any(_KINDS[name](value) for name in names if name in _KINDS):
            yield f"{where}: expected {' or '.join(names)}, got {value!r:.80}"
            return
    yield from _of_choices(value, rules, root, path)
    if "enum" in rules and not any(same(value, each) for each in _list(rules["enum"])):
        yield f"{where}: {value!r:.80} is not one of {rules['enum']!r:.200}"
    if "const" in rules and not same(value, rules["const"]):
        yield f"{where}: {value!r:.80} is not {rules['const']!r:.80}"
    if _is_number(value):
        yield from _of_number(value, rules, where)
    elif isinstance(value, str):
        yield from _of_text(value, rules, where)
    elif isinstance(value, list):
        yield from _of_list(cast("list[object]", value), rules, root, path)
    elif isinstance(value, dict):
        yield from _of_object(cast("JsonObject", value), rules, root, path)


def _of_number(value: float, rules: JsonObject, where: str) -> Iterator[str]:
    limits = {key: rules[key] for key in _LIMITS if _is_number(rules.get(key))}
    for key, limit in limits.items():
        if not _LIMITS[key](value, limit):
            yield f"{where}: {value} breaks {key} {limit}"


def _of_text(value: str, rules: JsonObject, where: str) -> Iterator[str]:
    if len(value) < rules.get("minLength", 0):
        yield f"{where}: {value!r:.80} is shorter than {rules['minLength']}"
    if len(value) > rules.get("maxLength", len(value)):
        yield f"{where}: {value!r:.80} is longer than {rules['maxLength']}"
    if "pattern" in rules and not _is_found(str(rules["pattern"]), value):
        yield f"{where}: {value!r:.80} does not match {rules['pattern']!r}"


def _of_list(value: list[object], rules: JsonObject, root: object, path: str) -> Iterator[str]:
    where = path or "the value"
    if not rules.get("minItems", 0) <= len(value) <= rules.get("maxItems", len(value)):
        yield f"{where}: {len(value)} items are too few or too many"
    if rules.get("uniqueItems") is True and any(
        same(one, other) for at, one in enumerate(value) for other in value[:at]
    ):
        yield f"{where}: an item is there twice"
    rest = rules.get("items", True)
    first = _list(rules.get("prefixItems"))
    if isinstance(rest, list):
        # As it was written before `prefixItems`.
        first, rest = cast("list[object]", rest), rules.get("additionalItems", True)
    for at, item in enumerate(value):
        yield from _faults(item, first[at] if at < len(first) else rest, root, f"{path}[{at}]")
    if "contains" in rules:
        count = sum(fits(item, rules["contains"], root) for item in value)
        if not rules.get("minContains", 1) <= count <= rules.get("maxContains", count):
            yield f"{where}: {count} items are as `contains` says"


def _of_object(value: JsonObject, rules: JsonObject, root: object, path: str) -> Iterator[str]:
    where = path or "the value"
    if not rules.get("minProperties", 0) <= len(value) <= rules.get("maxProperties", len(value)):
        yield f"{where}: {len(value)} properties are too few or too many"
    needed = list(_list(rules.get("required")))
    for name, others in cast("JsonObject", rules.get("dependentRequired") or {}).items():
        needed += _list(others) if name in value else []
    for missing in needed:
        if missing not in value:
            yield f"{where}: `{missing}` is missing"
    known = cast("JsonObject", rules.get("properties") or {})
    patterns = cast("JsonObject", rules.get("patternProperties") or {})
    for name, each in value.items():
        place = f"{path}.{name}" if path else name
        schemas = [known[name]] if name in known else []
        schemas += [patterns[pattern] for pattern in patterns if _is_found(pattern, name)]
        for schema in schemas or [rules.get("additionalProperties", True)]:
            yield from _faults(each, schema, root, place)
        yield from _faults(name, rules.get("propertyNames", True), root, f"the name {place}")


def _of_choices(value: object, rules: JsonObject, root: object, path: str) -> Iterator[str]:
    where = path or "the value"
    for schema in _list(rules.get("allOf")):
        yield from _faults(value, schema, root, path)
    for name in ("anyOf", "oneOf"):
        count = sum(fits(value, each, root) for each in _list(rules.get(name)))
        if name in rules and (count == 0 or (count > 1 and name == "oneOf")):
            yield f"{where}: {value!r:.80} is not as `{name}` says"
    if "not" in rules and fits(value, rules["not"], root):
        yield f"{where}: {value!r:.80} is what it must not be"
    if "if" in rules:
        branch = "then" if fits(value, rules["if"], root) else "else"
        yield from _faults(value, rules.get(branch, True), root, path)


def _list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_multiple(value: float, of: float) -> bool:
    if isinstance(value, int) and isinstance(of, int):
        return value % of == 0
    return (value / of).is_integer()


_LIMITS: Final[dict[str, Callable[[float, float], bool]]] = {
    "minimum": operator.ge,
    "maximum": operator.le,
    "exclusiveMinimum": operator.gt,
    "exclusiveMaximum": operator.lt,
    "multipleOf": _is_multiple,
}

_KINDS: Final[dict[str, Callable[[object], bool]]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: _is_number(value) and (isinstance(value, int) or value.is_integer()),
    "number": _is_number,
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
}


def _is_found(pattern: str, text: str) -> bool:
    try:
        return re.search(pattern, text) is not None
    except re.error:
        # Another language's pattern: nothing can be said.
        return True
