"""What of a frame is compared: its keys, the kinds of their values, and values that are not of the moment.

Does not compare anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final

from tests.conformance.host import Frame, Run

__all__ = ["CUT", "Reading", "kind"]

# Of these, only the kind of the value is kept: they differ from run to run, or say how a version is equipped.
BY_KIND: Final = frozenset(
    {
        # When, how long, and how much.
        *("timestamp", "start_time", "end_time", "startTime", "elapsed_time_seconds"),
        *("request_sent_wall_ms", "lastUpdated", "duration_ms", "duration_api_ms", "durationMs"),
        *("durationSeconds", "total_duration_ms", "total_api_duration_ms", "totalDurationMs"),
        *("totalDuration", "totalToolDuration", "totalAPIDuration", "totalAPIDurationWithoutRetries"),
        *("ttft_ms", "ttft_stream_ms", "time_to_request_ms", "first_content_frame_ms", "retry_delay_ms"),
        *("thinking_duration_ms", "total_cost_usd", "costUSD"),
        # Which.
        *("uuid", "pid", "request_id", "messaging_socket_path", "claude_code_version", "signature"),
        # What there is.
        *("commands", "skills", "plugins", "slash_commands", "terminal_slash_commands", "capabilities"),
        *("agents", "models", "memory_paths", "account", "available_output_styles", "feedback_mode"),
        # How full the model's memory is.
        *("categories", "gridRows", "messageBreakdown", "totalTokens", "percentage", "slashCommands"),
        *("autocompactSource",),
    }
)

# A full picture of these is in the scenarios that say so. Elsewhere they would only repeat it.
BRIEF: Final = frozenset({"usage", "modelUsage", "model_usage_since_last_result", "subagent_stats"})
INIT: Final = (
    *("type", "subtype", "uuid", "session_id"),
    *("permissionMode", "model", "mcp_servers", "user_message_uuids"),
)
AT_EXIT: Final = frozenset({"atis-latch", "last-prompt"})
"""Entries that the program writes while it ends. Whether they are mirrored, too, is up to chance."""

# Left out of frames that have them so; one that has not is told to lack them.
USUAL: Final[dict[str, dict[str, object]]] = {
    "assistant": {
        "uuid": "<string>",
        "timestamp": "<string>",
        "request_id": "<string>",
        "parent_tool_use_id": None,
    },
    "assistant.message": {
        "type": "message",
        "role": "assistant",
        "stop_reason": None,
        "stop_sequence": None,
        "usage": "<object>",
        "context_management": None,
    },
    "user": {"uuid": "<string>", "timestamp": "<string>", "parent_tool_use_id": None},
    "stream_event": {"uuid": "<string>", "parent_tool_use_id": None},
    "command_lifecycle": {"uuid": "<string>"},
    "system": {"uuid": "<string>"},
    "result": {
        "uuid": "<string>",
        "fast_mode_disabled_reason": "sdk_opt_in_required",
        "fast_mode_state": "off",
        "duration_ms": "<number>",
        "duration_api_ms": "<number>",
        "first_content_frame_ms": "<number>",
        "time_to_request_ms": "<number>",
        "ttft_ms": "<number>",
        "ttft_stream_ms": "<number>",
        "modelUsage": "<object>",
        "model_usage_since_last_result": "<object>",
        "usage": "<object>",
        "subagent_stats": "<object>",
        "total_cost_usd": "<number>",
        "api_error_status": None,
        "permission_denials": [],
        "queued_turn_count": 0,
        "safety_stops": 0,
    },
}

LONGEST: Final = 100
"""What is kept of a text, in characters."""
CUT: Final = "…"
"""Stands for what is not kept."""

PASSING: Final = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "<uuid>"),
    # What it says of its own source.
    (re.compile(r":\s+\d+ \| .*", re.DOTALL), ": (source)"),
    (re.compile(r"(/usr)?/bin/(ba|z)?sh\b"), "$SHELL"),
    # Where files are that need not stay.
    (re.compile(r"\$(ROOT|CONFIG)(/[\w.]+)*/claude-\d+/"), "$TEMPORARY/"),
    (re.compile(r"-blob-\d+-\w+"), "-blob-<name>"),
    (re.compile(r"/plans/[\w-]+\.md"), "/plans/<name>.md"),
    (re.compile(r"\d+(\.\d+)?( ?ms\b| seconds\b|s\b)"), r"<time>"),
)
MADE_UP: Final = re.compile(r"\b(toolu|msg|req)_[0-9A-Za-z_]+(-[a-z]+-\d+)?")
NAMED: Final = {
    "session_id": "session",
    "task_id": "task",
    "agent_id": "task",
    "agentId": "task",
    "run_id": "run",
    "runId": "run",
}


def kind(value: object) -> str:
    """What sort of JSON a value is."""
    match value:
        case None:
            return "null"
        case bool():
            return "bool"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "list"
        case _:
            return "object"


class Reading:
    """Reads the frames of a scenario, in their order: ids are numbered as they come."""

    def __init__(self, places: Iterable[tuple[str, str]], *, full: bool = False, loose: bool = False) -> None:
        """`places` are texts that differ from run to run, and what is written instead."""
        # The longest first: one may lie within another.
        self._places = sorted(places, key=lambda pair: -len(pair[0]))
        self._full, self._loose = full, loose
        self._names: dict[str, str] = {}
        self._asked: dict[str, str] = {}
        self._session = "<session 1>"

    def run(self, run: Run) -> dict[str, Any]:
        """All of a run."""
        mirrored = [frame for frame in run.frames if frame.get("type") == "transcript_mirror"]
        frames = [self.frame(frame) for frame in run.frames if frame not in mirrored]
        read: dict[str, Any] = {"frames": _arranged(frames) if self._loose else frames}
        if mirrored:
            read["mirrored"] = self._mirrored(mirrored)
        if run.output:
            read["output"] = self._text(run.output.decode())
        read["exit_code"] = run.exit_code
        if run.stderr:
            read["stderr"] = self._text(run.stderr)
        return read

    def _mirrored(self, frames: list[Frame]) -> dict[str, list[str]]:
        """What is written to each file, whenever it is: kinds of lines, with their keys."""
        read: dict[str, list[str]] = {}
        for frame in frames:
            lines = read.setdefault(self._text(frame["filePath"]), [])
            entries = [entry for entry in frame["entries"] if entry["type"] not in AT_EXIT]
            lines += [f"{entry['type']}: {' '.join(sorted(entry))}" for entry in entries]
        return {path: sorted(lines) for path, lines in read.items()}

    def requests(self, requests: Iterable[Any]) -> list[dict[str, Any]]:
        """What the model was asked, as far as it is not prose."""
        kept = [request for request in requests if request.kind in ("main", "subagent")]
        read = [{"kind": request.kind, "tool_results": self._value(request.tool_results)} for request in kept]
        for each in read if self._loose else ():
            each["tool_results"].sort(key=json.dumps)
        return read

    def frame(self, frame: Frame) -> dict[str, Any]:
        kept = frame
        if not self._full and (frame.get("type"), frame.get("subtype")) == ("system", "init"):
            kept = {key: frame[key] for key in INIT if key in frame}
        # First, because another key may tell the same id before its own does.
        self._note_ids(kept)
        read: dict[str, Any] = self._value(kept)
        match frame.get("type"):
            case "control_request":
                read["request_id"] = self._asked.setdefault(
                    frame["request_id"], f"<asked {len(self._asked) + 1}>"
                )
            case "control_cancel_request":
                read["request_id"] = self._asked.get(frame["request_id"], "<unknown>")
            case "control_response":
                self._response(frame["response"], read["response"])
            case _:
                pass
        if not self._full:
            self._leave_out_usual(frame, read)
        return {key: read[key] for key in sorted(read, key=_order)}

    def _leave_out_usual(self, frame: Frame, read: dict[str, Any]) -> None:
        name = str(frame.get("type"))
        if name in USUAL:
            if read.get("session_id") == self._session:
                del read["session_id"]
            self._session = self._names.get(frame.get("session_id", ""), self._session)
            _leave_out(read, USUAL[name])
        if name == "assistant":
            _leave_out(read["message"], USUAL["assistant.message"])

    def _response(self, response: Frame, read: dict[str, Any]) -> None:
        if "request_id" in response:
            read["request_id"] = response["request_id"]
        payload = response.get("response")
        if isinstance(payload, dict) and "claude_code_version" in payload and not self._full:
            kept = ("current_permission_mode", "hooks_applied", "session_state")
            read["response"] = {key: payload[key] for key in kept if key in payload}

    def _value(self, value: Any, key: str = "") -> Any:
        if key in BY_KIND or (key in BRIEF and not self._full):
            return f"<{kind(value)}>"
        match value:
            case dict():
                # How much the API may keep for later is not part of what is said.
                kept = {name: each for name, each in value.items() if name != "cache_control"}
                return {self._text(name): self._value(each, name) for name, each in kept.items()}
            case list():
                return [self._value(each, key if key in NAMED else "") for each in value]
            case str() if key in NAMED:
                return self._named(value, NAMED[key])
            case str():
                return self._text(value)
            case _:
                return value

    def _note_ids(self, value: Any, key: str = "") -> None:
        match value:
            case dict():
                for name, each in value.items():
                    self._note_ids(each, name)
            case list():
                for each in value:
                    self._note_ids(each, key)
            case str() if key in NAMED:
                self._named(value, NAMED[key])
            case _:
                pass

    def _named(self, value: str, sort: str) -> str:
        """The name of an id, by its place among its like."""
        if value not in self._names:
            number = sum(name.startswith(f"<{sort} ") for name in self._names.values()) + 1
            self._names[value] = f"<{sort} {number}>"
        return self._names[value]

    def _text(self, text: str) -> str:
        for place, name in self._places:
            text = text.replace(place, name)
        text = MADE_UP.sub(lambda found: self._named(found[0], found[1]), text)
        for id, name in self._names.items():
            text = text.replace(id, name)
        for pattern, name in PASSING:
            text = pattern.sub(name, text)
        # The program's longer texts are prose for a model: how they begin is enough to tell them apart.
        return text if len(text) <= LONGEST else text[:LONGEST] + CUT


def _order(key: str) -> tuple[int, str]:
    first = ("type", "subtype", "request_id")
    return (first.index(key) if key in first else len(first), key)


def _leave_out(read: dict[str, Any], usual: dict[str, object]) -> None:
    lacking = [key for key in usual if key not in read]
    for key, value in usual.items():
        if key in read and read[key] == value:
            del read[key]
    if lacking:
        read["lacking"] = lacking


def _arranged(frames: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Results of tools behind the message that calls them all, in the order of its calls."""
    arranged: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    message: object = None
    for frame in frames:
        if frame["type"] == "user":
            results.append(frame)
            continue
        if frame["type"] != "assistant" or frame["message"]["id"] != message:
            arranged += sorted(results, key=json.dumps)
            results = []
            message = frame["message"]["id"] if frame["type"] == "assistant" else None
        arranged.append(frame)
    return arranged + sorted(results, key=json.dumps)
