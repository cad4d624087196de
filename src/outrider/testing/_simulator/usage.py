"""Owns what a run has used: tokens and money, by model, in all and since the last result.

Does not decide what a request uses; scripts do.
"""

from __future__ import annotations

from typing import Final, cast

import msgspec

from outrider.handlers._tools.shape_errors import JsonSchema
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


_TYPES: Final = frozenset(["object", "array", "string", "integer", "number", "boolean", "null"])
_MEANINGS: Final = {
    "additionalProperties": "must NOT have additional properties",
    "const": "must be equal to constant",
    "enum": "must be equal to one of the allowed values",
}


def check_schema(schema: JsonObject) -> str | None:
    """What is wrong with a schema, if it is not one."""
    if all(kind in _TYPES for kind in _listed(schema.get("type", "object"))):
        return None
    return (
        "data/type must be equal to one of the allowed values, data/type must be array, "
        "data/type must match a schema in anyOf"
    )


def check_output(value: object, schema: JsonObject) -> str | None:
    """The first thing that does not fit, as `/path: what`; none if all does.

    Raises `OptionsError` if `jsonschema` is not installed.
    """
    found = next(iter(JsonSchema(schema, extra="testing").errors(value)), None)
    if found is None:
        return None
    path = "".join(f"/{step}" for step in found.absolute_path) or "root"
    match found.validator:
        case "type":
            return f"{path}: must be {','.join(map(str, _listed(found.validator_value)))}"
        case "required":
            names = set(cast("JsonObject", found.instance))
            missing = next(name for name in _listed(found.validator_value) if name not in names)
            return f"{path}: must have required property '{missing}'"
        case keyword:
            return f"{path}: {_MEANINGS.get(keyword or '', found.message)}"


def _listed(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else [value]
