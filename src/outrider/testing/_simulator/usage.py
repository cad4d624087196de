"""Owns what a run has used: tokens and money, by model, in all and since the last result.

Does not decide what a request uses; scripts do.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Final, cast

import msgspec

from outrider.testing._simulator.frames import model_of
from outrider.wire import JsonObject

__all__ = ["Meter", "Tally", "check_output", "check_schema"]


_FIELDS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


class Tally(msgspec.Struct):
    """Tokens and money."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cost_usd: float = 0.0

    @property
    def total_tokens(self) -> int:
        return sum(getattr(self, field) for field in _FIELDS)

    def add(self, other: Tally) -> None:
        for field in (*_FIELDS, "cost_usd"):
            setattr(self, field, getattr(self, field) + getattr(other, field))

    def counts(self) -> JsonObject:
        """The tokens alone."""
        return {field: getattr(self, field) for field in _FIELDS}

    def to_wire(self) -> JsonObject:
        """As `usage` of a result."""
        return {
            "input_tokens": self.input_tokens,
            "cache_creation_input_tokens": self.cache_creation_input_tokens,
            "cache_read_input_tokens": self.cache_read_input_tokens,
            "output_tokens": self.output_tokens,
            "output_tokens_details": {"thinking_tokens": 0},
            "server_tool_use": {"web_search_requests": 0, "web_fetch_requests": 0},
            "service_tier": "standard",
            "cache_creation": {
                "ephemeral_1h_input_tokens": 0,
                "ephemeral_5m_input_tokens": self.cache_creation_input_tokens,
            },
            "inference_geo": "",
            "iterations": [],
            "speed": "standard",
            "fallback_credit": None,
        }

    def to_model_usage(self, name: str) -> JsonObject:
        """As one entry of `modelUsage`."""
        return {
            "inputTokens": self.input_tokens,
            "outputTokens": self.output_tokens,
            "cacheReadInputTokens": self.cache_read_input_tokens,
            "cacheCreationInputTokens": self.cache_creation_input_tokens,
            "webSearchRequests": 0,
            "costUSD": money(self.cost_usd),
            "contextWindow": 1_000_000,
            "maxOutputTokens": model_of(name).max_output,
            "thinkingTokens": 0,
            "cacheCreationEphemeral5mInputTokens": self.cache_creation_input_tokens,
            "cacheCreationEphemeral1hInputTokens": 0,
            "canonicalModel": name,
            "provider": "firstParty",
            "costBasis": "list",
        }


class Meter:
    """Counts for one run."""

    def __init__(self) -> None:
        self.earlier_usd = 0.0
        """What the session had cost before this run."""
        self.turn = Tally()
        """What the main conversation has used since its turn began."""
        self.last: Tally | None = None
        """What its last request has used."""
        self.api_ms = 0
        self._all: dict[str, Tally] = {}
        self._new: dict[str, Tally] = {}

    @property
    def cost_usd(self) -> float:
        return money(self.earlier_usd + sum(tally.cost_usd for tally in self._all.values()))

    def add(self, model: str, usage: JsonObject, *, is_main: bool) -> Tally:
        """Count a request; gives back what it used."""
        known = model_of(model)
        tally = Tally(**{field: _count(usage.get(field)) for field in _FIELDS})
        tally.cost_usd = (
            tally.input_tokens * known.input_usd
            + tally.output_tokens * known.output_usd
            + tally.cache_read_input_tokens * known.input_usd * 0.1
            + tally.cache_creation_input_tokens * known.input_usd * 1.25
        ) / 1e6
        for counted in (self._all, self._new):
            counted.setdefault(model, Tally()).add(tally)
        if is_main:
            self.turn.add(tally)
            self.last = tally
        return tally

    def begin_turn(self) -> None:
        self.turn = Tally()

    def by_model(self) -> JsonObject:
        """`modelUsage` of a result."""
        return {name: tally.to_model_usage(name) for name, tally in self._all.items()}

    def take_new(self) -> JsonObject:
        """`model_usage_since_last_result` of a result, which ends with it."""
        new, self._new = self._new, {}
        return {name: tally.to_model_usage(name) for name, tally in new.items()}

    def forget(self) -> None:
        """Count from zero again, as after `/clear`."""
        self.earlier_usd = 0.0
        self._all.clear()
        self._new.clear()


def money(usd: float) -> float:
    """Without the tail that sums of such small numbers get."""
    return round(usd, 10)


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0


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
