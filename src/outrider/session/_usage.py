"""Owns what turns use: tokens and money as a value that adds up, and the meter that follows a connection.

Does not know what a turn is: the caller says when one ends.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias, cast

import msgspec

from outrider.wire import AssistantMessage, ConversationResetMessage, ResultMessage, StreamEvent
from outrider.wire._value import loads

if TYPE_CHECKING:
    from outrider.wire import Message

# What the agent calls an answer that it wrote itself: no model was asked.
_NO_MODEL = "<synthetic>"

_Counts: TypeAlias = tuple[int, int, int, int, int]
"""Tokens in, out, read from the cache and written to it, and searches."""

_NOTHING: _Counts = (0, 0, 0, 0, 0)

_CONTENT = b'{"type":"stream_event","event":{"type":"content_'
"""How nearly all stream events begin. They are pieces of content, and say nothing of usage."""

_UNCOUNTED, _UNREAD = 16384, 1024
"""So many API messages are kept uncounted at most, and so many stream events."""


class Usage(msgspec.Struct, frozen=True, omit_defaults=True, repr_omit_defaults=True):
    """Tokens and money. Adds up: `a + b`, `sum(usages)`."""

    input_tokens: int = 0
    """What was sent and not in the cache."""
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_creation_tokens: int = 0
    web_search_requests: int = 0
    cost_usd: float = 0.0
    """As Claude Code computes it. Only results report it, so it is 0 for what no result covers yet."""
    by_model: Mapping[str, Usage] = {}
    """The same for each model, those of subagents included. Empty if the agent did not say."""

    @property
    def total_tokens(self) -> int:
        """All tokens, cached ones too."""
        return self.input_tokens + self.output_tokens + self.cache_read_tokens + self.cache_creation_tokens

    def __add__(self, other: Usage) -> Usage:
        if not isinstance(other, Usage):  # pyright: ignore[reportUnnecessaryIsInstance]
            return NotImplemented
        models = dict(self.by_model)
        for model, usage in other.by_model.items():
            models[model] = models[model] + usage if model in models else usage
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_creation_tokens + other.cache_creation_tokens,
            self.web_search_requests + other.web_search_requests,
            self.cost_usd + other.cost_usd,
            models,
        )

    def __radd__(self, other: int) -> Usage:
        # `sum` begins with 0.
        return self if other == 0 else NotImplemented

    def __str__(self) -> str:
        cached = self.cache_read_tokens + self.cache_creation_tokens
        parts = f"{self.input_tokens:,} in, {self.output_tokens:,} out" + (
            f", {cached:,} cached" if cached else ""
        )
        text = f"{self.total_tokens:,} tokens ({parts}), ${self.cost_usd:.4f}"
        return f"{text}, {self.web_search_requests} web searches" if self.web_search_requests else text


class UsageMeter:
    """Adds up what is used over one connection; nothing is counted twice.

    A result says what all models have used since the result before it, and that is what counts. Until it
    comes, the model's own messages tell most of it. They come several to an API message, all with the same
    figures, and repeat what a compaction keeps: each API message is counted once.
    """

    def __init__(self, *, resumed: bool = False) -> None:
        """`resumed`: the session is older than the connection, and so are the agent's own totals."""
        self.session_cost_usd: float | None = None if resumed else 0.0
        """What the session has cost so far, by the last result: with all before it was resumed, but from 0
        again after `/clear`. None: not known yet."""
        self._reported: dict[str, Usage] | None = None if resumed else {}
        """The agent's totals by model in its last result."""
        self._settled = Usage()
        """What results have reported since the connection began."""
        self._turn = Usage()
        """The part of it that belongs to the running turn."""
        self._open: dict[str, tuple[str, _Counts]] = {}
        """API messages that no result has covered yet: model and figures by id."""
        self._given = Usage()
        """The part of them that went to turns which ended without a result."""
        self._closed: set[str] = set()
        """Ids of API messages and results that are counted."""
        self._started = "", ""
        """The API message that stream events belong to: its id and model."""
        self._uncounted: dict[str, object] = {}
        """The last figures of API messages, by id, as long as nobody has asked for them."""
        self._model = ""
        """The model that all of these are of."""
        self._unread: list[StreamEvent] = []
        """Stream events with figures, the same."""

    @property
    def total(self) -> Usage:
        """Since the connection began."""
        return self._settled + self._seen()

    @property
    def turn(self) -> Usage:
        """Since the last turn ended."""
        return self._turn + less(self._seen(), self._given)

    def receive(self, message: Message) -> list[StreamEvent]:
        """Count a message; those that say nothing about usage are ignored. Returns as `receive_output`."""
        if isinstance(message, StreamEvent | AssistantMessage):
            return self.receive_output([message], {type(message)})
        if isinstance(message, ResultMessage):
            self._settle(message)
        elif isinstance(message, ConversationResetMessage):
            self._reset()
        return []

    def receive_output(self, messages: list[Message], kinds: set[type]) -> list[StreamEvent]:
        """The same for messages of the model that came together, and are of these types. Returns the stream
        events among them that may tell of usage: those that begin or end a message.

        They are counted when somebody asks: most often it is the result that says what was used.
        """
        found: list[StreamEvent] = []
        if StreamEvent in kinds:
            # Thousands come between two of these; to look into each would cost more than all else here.
            events = messages if len(kinds) == 1 else [each for each in messages if type(each) is StreamEvent]
            found = _with_figures(cast("list[StreamEvent]", events))
            self._unread += found
        if AssistantMessage in kinds:
            uncounted = self._uncounted
            for message in messages:
                if type(message) is AssistantMessage and (usage := message.undecoded_usage) is not None:
                    if message.model != self._model:
                        self._count()
                        self._model = message.model
                    key = message.message_id or message.uuid or ""
                    before = uncounted.get(key)
                    if before is None or before != usage:
                        if before is not None:
                            self._see(key, message.model, before)
                        # A copy, since what is undecoded keeps the whole line.
                        uncounted[key] = usage.copy() if type(usage) is msgspec.Raw else usage
        if len(self._uncounted) > _UNCOUNTED or len(self._unread) > _UNREAD:
            self._count()
        return found

    def _count(self) -> None:
        for event in self._unread:
            self._watch(event)
        for key, figures in self._uncounted.items():
            self._see(key, self._model, figures)
        self._unread.clear()
        self._uncounted.clear()

    def finish_turn(self, result: ResultMessage | None = None) -> Usage:
        """What the turn has used; a new one begins. `result` need not be received before, and may be."""
        if result is not None:
            self._settle(result)
        usage = self.turn
        self._turn, self._given = Usage(), self._seen()
        return usage

    def _watch(self, message: StreamEvent) -> None:
        event = message.event
        kind = event.get("type")
        if kind == "message_start":
            inner = _object(event.get("message"))
            self._started = str(inner.get("id") or ""), str(inner.get("model") or "")
            self._see(*self._started, inner.get("usage"))
        elif kind == "message_delta":
            # Only here does a message tell how long it became.
            self._see(*self._started, event.get("usage"))

    def _see(self, key: str, model: str, usage: object) -> None:
        if key and model != _NO_MODEL and key not in self._closed and usage:
            usage = loads(bytes(usage)) if isinstance(usage, msgspec.Raw) else usage
            before = self._open.get(key, (model, _NOTHING))[1]
            self._open[key] = model, cast("_Counts", tuple(map(max, before, _api_counts(usage))))

    def _seen(self) -> Usage:
        """What the messages tell of that no result has covered."""
        self._count()
        if not self._open:
            return Usage()
        models: dict[str, Usage] = {}
        for model, counts in self._open.values():
            models[model] = models.get(model, Usage()) + Usage(*counts)
        return _summed(models)

    def _settle(self, result: ResultMessage) -> None:
        key = result.uuid or f"result {result.result_index} {result.session_id}"
        if key in self._closed:
            return
        self._closed.add(key)
        used = self._used(result)
        if result.model_usage is not None:
            self._reported = _models(result.model_usage)
        if result.total_cost_usd is not None:
            self.session_cost_usd = float(result.total_cost_usd)
        self._close(used)

    def _used(self, result: ResultMessage) -> Usage:
        """What all models have used since the result before."""
        if result.model_usage_since_last_result is not None:
            return _summed(_models(result.model_usage_since_last_result))
        if result.model_usage is not None and self._reported is not None:
            now, before = _models(result.model_usage), self._reported
            return _summed({model: _since(usage, before.get(model)) for model, usage in now.items()})
        cost = 0.0
        if self.session_cost_usd is not None and result.total_cost_usd is not None:
            cost = max(0.0, result.total_cost_usd - self.session_cost_usd)
        return Usage(*_api_counts(result.usage), cost)

    def _close(self, used: Usage) -> None:
        # What was given to a turn stays given, also if it turns out to be more than was used.
        rest = less(used, self._given)
        self._settled += self._given + rest
        self._turn += rest
        self._given = Usage()
        # The figures do not matter any more, only which messages they were about.
        for event in self._unread:
            self._watch(event)
        self._closed.update(self._open, self._uncounted)
        self._unread.clear()
        self._uncounted.clear()
        self._open.clear()

    def _reset(self) -> None:
        # The totals start again at 0: what they have not reported by now, they never will.
        self._close(self._seen())
        self._reported, self.session_cost_usd = {}, 0.0


def _with_figures(events: list[StreamEvent]) -> list[StreamEvent]:
    """The stream events that may tell of usage."""
    try:
        # To compare is faster than to ask how it begins.
        rest = [event for event in events if event.wire_line[: len(_CONTENT)] != _CONTENT]
        return [event for event in rest if b'"message_' in event.wire_line]
    except AttributeError:
        # Made by hand.
        return events


def less(usage: Usage, taken: Usage) -> Usage:
    """What is left of it. Never below 0: messages and results may tell of the same in different figures."""
    if taken == Usage():
        return usage
    models = {
        model: less(part, taken.by_model[model]) if model in taken.by_model else part
        for model, part in usage.by_model.items()
    }
    return Usage(
        max(0, usage.input_tokens - taken.input_tokens),
        max(0, usage.output_tokens - taken.output_tokens),
        max(0, usage.cache_read_tokens - taken.cache_read_tokens),
        max(0, usage.cache_creation_tokens - taken.cache_creation_tokens),
        max(0, usage.web_search_requests - taken.web_search_requests),
        max(0.0, usage.cost_usd - taken.cost_usd),
        models,
    )


def _since(now: Usage, before: Usage | None) -> Usage:
    """The growth of a total; all of it where it has begun again."""
    return less(now, before) if before is not None and before.total_tokens <= now.total_tokens else now


def _summed(models: dict[str, Usage]) -> Usage:
    whole = sum(models.values(), Usage())
    return msgspec.structs.replace(whole, by_model=models)


def _models(usage: Mapping[str, object]) -> dict[str, Usage]:
    return {model: _model(_object(part)) for model, part in usage.items()}


def _model(part: Mapping[str, object]) -> Usage:
    return Usage(
        _count(part, "inputTokens"),
        _count(part, "outputTokens"),
        _count(part, "cacheReadInputTokens"),
        _count(part, "cacheCreationInputTokens"),
        _count(part, "webSearchRequests"),
        _money(part.get("costUSD")),
    )


def _api_counts(usage: object) -> _Counts:
    """The same in the API's own words."""
    fields = _object(usage)
    return (
        _count(fields, "input_tokens"),
        _count(fields, "output_tokens"),
        _count(fields, "cache_read_input_tokens"),
        _count(fields, "cache_creation_input_tokens"),
        _count(_object(fields.get("server_tool_use")), "web_search_requests"),
    )


def _object(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else {}


def _count(fields: Mapping[str, object], name: str) -> int:
    value = fields.get(name)
    return int(value) if isinstance(value, int | float) and 0 < value < math.inf else 0


def _money(value: object) -> float:
    # Whole numbers in JSON may be larger than any float.
    return float(value) if isinstance(value, int | float) and abs(value) <= sys.float_info.max else 0.0
