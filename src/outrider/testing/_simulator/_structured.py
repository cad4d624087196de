"""Owns whether a structured answer fits its schema, in the words of the program.

Knows the parts of JSON Schema that answers are described with; what else a schema says counts for nothing.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Final, cast

from outrider.wire import JsonObject

__all__ = ["check_output", "check_schema"]

_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_LIMITS: Final[tuple[tuple[str, str, Callable[[float, float], bool]], ...]] = (
    ("minimum", ">=", operator.ge),
    ("maximum", "<=", operator.le),
    ("exclusiveMinimum", ">", operator.gt),
    ("exclusiveMaximum", "<", operator.lt),
)


def check_schema(schema: JsonObject) -> str | None:
    """What is wrong with a schema, if it is not one."""
    kinds = schema.get("type")
    named = cast("list[object]", kinds) if isinstance(kinds, list) else [] if kinds is None else [kinds]
    if any(kind not in _TYPES for kind in named):
        return (
            "data/type must be equal to one of the allowed values, data/type must be array, "
            "data/type must match a schema in anyOf"
        )
    return None


def check_output(value: object, schema: JsonObject) -> str | None:
    """The first thing that does not fit, as `/path: what`; none if all does."""
    return _check(value, schema, "", schema)


def _check(value: object, schema: object, path: str, root: JsonObject) -> str | None:
    if not isinstance(schema, dict):
        return f"{path or 'root'}: boolean schema is false" if schema is False else None
    rules = cast("JsonObject", schema)
    if isinstance(reference := rules.get("$ref"), str):
        return _check(value, _found(root, reference), path, root)
    for rule in (_check_type, _check_choice, _check_size):
        if (wrong := rule(value, rules)) is not None:
            return f"{path or 'root'}: {wrong}"
    for part in cast("list[object]", rules.get("allOf") or []):
        if (wrong := _check(value, part, path, root)) is not None:
            return wrong
    for name in ("anyOf", "oneOf"):
        parts = cast("list[object]", rules.get(name) or [])
        if parts and all(_check(value, part, path, root) is not None for part in parts):
            return f"{path or 'root'}: must match a schema in {name}"
    if isinstance(value, dict):
        return _check_object(cast("JsonObject", value), rules, path, root)
    if isinstance(value, list):
        for at, item in enumerate(cast("list[object]", value)):
            if (wrong := _check(item, rules.get("items", True), f"{path}/{at}", root)) is not None:
                return wrong
    return None


def _check_object(value: JsonObject, rules: JsonObject, path: str, root: JsonObject) -> str | None:
    for name in cast("list[str]", rules.get("required") or []):
        if name not in value:
            return f"{path or 'root'}: must have required property '{name}'"
    properties = cast("JsonObject", rules.get("properties") or {})
    for name, item in value.items():
        if name in properties:
            wrong = _check(item, properties[name], f"{path}/{name}", root)
        elif rules.get("additionalProperties") is False:
            wrong = f"{path or 'root'}: must NOT have additional properties"
        else:
            wrong = _check(item, rules.get("additionalProperties", True), f"{path}/{name}", root)
        if wrong is not None:
            return wrong
    return None


def _check_type(value: object, rules: JsonObject) -> str | None:
    kinds = rules.get("type")
    if kinds is None:
        return None
    named = cast("list[str]", kinds if isinstance(kinds, list) else [kinds])
    if any(_is(value, kind) for kind in named):
        return None
    return f"must be {','.join(named)}"


def _is(value: object, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES.get(kind, (object,)))


def _check_choice(value: object, rules: JsonObject) -> str | None:
    if "enum" in rules and value not in cast("list[object]", rules["enum"]):
        return "must be equal to one of the allowed values"
    if "const" in rules and value != rules["const"]:
        return "must be equal to constant"
    return None


def _check_size(value: object, rules: JsonObject) -> str | None:
    if isinstance(value, str):
        if len(value) < rules.get("minLength", 0):
            return f"must NOT have fewer than {rules['minLength']} characters"
        if len(value) > rules.get("maxLength", len(value)):
            return f"must NOT have more than {rules['maxLength']} characters"
        if isinstance(pattern := rules.get("pattern"), str) and not re.search(pattern, value):
            return f'must match pattern "{pattern}"'
    elif isinstance(value, int | float) and not isinstance(value, bool):
        for name, sign, is_right in _LIMITS:
            if isinstance(limit := rules.get(name), int | float) and not is_right(value, limit):
                return f"must be {sign} {limit}"
    elif isinstance(value, list):
        items = cast("list[object]", value)
        if len(items) < rules.get("minItems", 0):
            return f"must NOT have fewer than {rules['minItems']} items"
        if len(items) > rules.get("maxItems", len(items)):
            return f"must NOT have more than {rules['maxItems']} items"
    return None


def _found(root: JsonObject, reference: str) -> object:
    found: JsonObject = root
    for name in reference.removeprefix("#").split("/")[1:]:
        found = found.get(name.replace("~1", "/").replace("~0", "~"), {})
    return found
