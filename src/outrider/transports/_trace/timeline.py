"""Owns the timeline of a trace: one line for each thing that was said or happened, for people to read.

Does not print: the caller chooses colours and columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, cast

import msgspec

from outrider._display import one_line
from outrider.transports._trace.format import FROM_AGENT, FROM_HOST, Recording, TraceRecord

if TYPE_CHECKING:
    from outrider.transports._trace.format import Direction
    from outrider.wire import JsonObject

__all__ = ["TimelineEntry", "timeline"]

_WIDTH: Final = 100
_EVENT_FACTS: Final = ("pid", "returncode", "signal", "error", "argv", "cwd", "why")


class TimelineEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a timeline."""

    run: int
    time: float
    """Seconds since the start of the run."""
    direction: Direction
    kind: str
    """What it is: `user`, `result`, `request initialize`, `answer initialize`, `stderr`, `start`, …"""
    summary: str
    """What it says, on one line, elided."""
    turn: int | None = None
    """The number of the prompt, from 1 on, that it belongs to; None between turns."""
    duration: float | None = None
    """How long it took: from the request, for an answer; from the prompt, for a result."""
    record: TraceRecord


def timeline(
    source: Recording | Iterable[TraceRecord], *, width: int = _WIDTH, partials: bool = True
) -> Iterator[TimelineEntry]:
    """What was said and what happened, in order.

    Summaries have at most `width` characters. Without `partials`, the pieces of messages that came while the
    model wrote them are left out.
    """
    runs: dict[int, _Run] = {}
    records = source.records if isinstance(source, Recording) else source
    for record in records:
        entry = runs.setdefault(record.run, _Run()).entry(record, width)
        if partials or entry.kind != "stream_event":
            yield entry


class _Run:
    """What has to be kept in mind of a run to tell what comes next."""

    def __init__(self) -> None:
        self._asked: dict[tuple[str, str], tuple[str, float]] = {}
        """By who asked and the id: what, and when."""
        self._prompts: list[float] = []
        self._results = 0

    def entry(self, record: TraceRecord, width: int) -> TimelineEntry:
        frame = record.frame
        duration: float | None = None
        turn = self._turn()
        if frame is None:
            kind, summary = _without_frame(record)
        elif (kind := str(frame.get("type", "frame"))) == "control_request":
            kind, summary = self._request(frame, record)
        elif kind == "control_response":
            kind, summary, duration = self._answer(frame, record)
        elif kind == "control_cancel_request":
            other = (record.direction, str(frame.get("request_id")))
            kind, summary = "withdrawn", self._asked.get(other, ("", 0.0))[0]
        else:
            summary = _said(frame)
            if kind == "user" and record.direction == FROM_HOST:
                self._prompts.append(record.time)
                turn = len(self._prompts)
            elif kind == "result":
                duration = record.time - self._prompts[self._results] if turn is not None else None
                self._results += 1
            elif kind == "system":
                kind = f"system {frame.get('subtype', '')}".rstrip()
        return TimelineEntry(
            run=record.run,
            time=record.time,
            direction=record.direction,
            kind=one_line(kind),
            summary=_elided(summary, width),
            turn=turn,
            duration=duration,
            record=record,
        )

    def _turn(self) -> int | None:
        return self._results + 1 if len(self._prompts) > self._results else None

    def _request(self, frame: JsonObject, record: TraceRecord) -> tuple[str, str]:
        request = _mapping(frame.get("request"))
        subtype = str(request.get("subtype", "?"))
        self._asked[record.direction, str(frame.get("request_id"))] = subtype, record.time
        return f"request {subtype}", _asked(subtype, request)

    def _answer(self, frame: JsonObject, record: TraceRecord) -> tuple[str, str, float | None]:
        outcome = _mapping(frame.get("response"))
        asker = FROM_AGENT if record.direction == FROM_HOST else FROM_HOST
        found = self._asked.get((asker, str(outcome.get("request_id"))))
        subtype, since = found or ("?", None)
        duration = None if since is None else record.time - since
        if outcome.get("subtype") == "error":
            return f"answer {subtype}", f"error: {outcome.get('error', '')}", duration
        return f"answer {subtype}", _short(outcome.get("response")), duration


def _without_frame(record: TraceRecord) -> tuple[str, str]:
    if record.direction in ("meta", "note"):
        named = [name for name in _EVENT_FACTS if record.facts.get(name) is not None]
        facts = ", ".join(f"{name} {_short(record.facts[name])}" for name in named)
        return record.event or record.direction, facts or _short(record.facts.get("note"))
    size = f" ({record.size} bytes)" if record.is_cut else ""
    return "stderr" if record.direction == "stderr" else "no frame", record.text + size


def _said(frame: JsonObject) -> str:
    """What a message says."""
    kind = frame.get("type")
    if kind in ("user", "assistant"):
        return _content(_mapping(frame.get("message")).get("content"))
    if kind == "stream_event":
        return _event(_mapping(frame.get("event")))
    if kind == "result":
        cost = frame.get("total_cost_usd")
        parts = [str(frame.get("subtype", "")), f"${cost:.4f}" if isinstance(cost, int | float) else ""]
        return " ".join(filter(None, (*parts, _short(frame.get("result") or frame.get("errors")))))
    rest = {name: value for name, value in frame.items() if name not in _NOISE}
    return _short(rest) if rest else ""


_NOISE: Final = frozenset(("type", "subtype", "uuid", "session_id", "parent_tool_use_id"))


def _content(content: object) -> str:
    if not isinstance(content, list):
        return _short(content)
    return " ".join(_block(_mapping(block)) for block in cast("Sequence[object]", content))


def _block(block: Mapping[str, object]) -> str:
    match block.get("type"):
        case "text":
            return _short(block.get("text"))
        case "thinking":
            return f"(thinks) {_short(block.get('thinking'))}"
        case "tool_use":
            return f"{block.get('name')}({_arguments(block.get('input'))})"
        case "tool_result":
            sign = "✗" if block.get("is_error") else "→"
            return f"{sign} {_content(block.get('content'))}"
        case kind:
            return f"<{kind}>"


def _event(event: Mapping[str, object]) -> str:
    delta = _mapping(event.get("delta"))
    text = next((delta[name] for name in ("text", "thinking", "partial_json") if name in delta), None)
    return str(event.get("type", "")) if text is None else _short(text)


def _asked(subtype: str, request: Mapping[str, object]) -> str:
    if subtype == "can_use_tool":
        return f"{request.get('tool_name')}({_arguments(request.get('input'))})"
    if subtype == "hook_callback":
        hook = _mapping(request.get("input"))
        return f"{hook.get('hook_event_name', '')} {hook.get('tool_name', '')}".strip()
    if subtype == "mcp_message":
        message = _mapping(request.get("message"))
        method, parameters = message.get("method", "answer"), _mapping(message.get("params"))
        call = f"{request.get('server_name')}: {method}"
        if "name" not in parameters:
            return call
        return f"{call} {parameters['name']}({_arguments(parameters.get('arguments'))})"
    rest = {name: value for name, value in request.items() if name != "subtype"}
    return _short(rest) if rest else ""


def _arguments(value: object) -> str:
    return ", ".join(f"{name}={_short(item)}" for name, item in _mapping(value).items())


def _short(value: object) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return msgspec.json.encode(value).decode("utf-8", "replace")


def _mapping(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else {}


def _elided(text: str, width: int) -> str:
    # So much of it makes the line, whatever is left out of it as white space.
    line = one_line(text[: 20 * width])
    return line if len(line) <= width else line[: width - 1] + "…"
