"""Traces: what a line of the file means, reading them, and their timeline: a line for each thing that was
said or happened.

Does not write them nor print anything, and does not know what the frames mean. The format is described in
docs/cassettes.md.
"""

from __future__ import annotations

import os
from binascii import a2b_base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Final, Literal, TypeAlias, cast

import msgspec

from outrider._display import one_line
from outrider.errors import TranscriptDamaged, UsageError
from outrider.redaction import MASK
from outrider.wire import Json, JsonObject

VERSION: Final = 1

Direction: TypeAlias = Literal["host->cli", "cli->host", "stderr", "meta", "note"]
"""The source: this process, the agent, the agent's stderr; or an event, or a note."""

FROM_HOST: Final = "host->cli"
FROM_AGENT: Final = "cli->host"
_DIRECTIONS: Final = frozenset((FROM_HOST, FROM_AGENT, "stderr", "meta", "note"))

EXTRA_FIELDS: Final = frozenset(("run", "t", "dir", "event", "json", "text", "base64", "n", "cut", "open"))
"""The fields of a line that have a meaning of their own; all others are `facts`."""

StrPath: TypeAlias = "str | os.PathLike[str]"


class _Line(msgspec.Struct):
    """A line of the file; further fields are read only where there may be some."""

    dir: str
    t: float | None = None
    run: int | None = None
    event: str | None = None
    json: msgspec.Raw = msgspec.Raw()
    text: str | None = None
    base64: str | None = None
    n: int | None = None
    cut: bool = False
    open: bool = False
    masked: bool = False


class TraceRecord(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One line that was sent or received, or an event."""

    run: int
    """Which run of an agent it belongs to, from 1 on."""
    time: float
    """Seconds since the start of the run."""
    direction: Direction
    data: bytes = b""
    """The line as it was sent, without its end; secrets are hidden."""
    size: int = 0
    """How many bytes the line had when it was sent."""
    is_cut: bool = False
    """Whether `data` is only the beginning of the line, which was too long."""
    is_open: bool = False
    """Whether the output ended before the line did."""
    is_masked: bool = False
    """Whether a secret was hidden in it."""
    event: str | None = None
    """What happened, for `meta`: `start`, `connected`, `stdin_eof`, `stdout_eof`, `close`, `exit`, …"""
    facts: Mapping[str, Json] = {}
    """What an event or a note says: `argv`, `cwd`, `pid`, `returncode`, …"""

    @property
    def is_line(self) -> bool:
        """Whether it was sent on stdin or stdout."""
        return self.direction in (FROM_HOST, FROM_AGENT)

    @cached_property
    def frame(self) -> JsonObject | None:
        """The line as a JSON object, or None. Shared: do not change it."""
        if not self.is_line:
            return None
        try:
            found: object = msgspec.json.decode(self.data)
        except (ValueError, RecursionError):
            return None
        return cast("JsonObject", found) if isinstance(found, dict) else None

    @property
    def text(self) -> str:
        """The line as text; bytes that are not UTF-8 are escaped."""
        return self.data.decode("utf-8", "backslashreplace")


class TraceRun(msgspec.Struct, frozen=True):
    """One run of an agent, from its start to its end."""

    number: int
    records: tuple[TraceRecord, ...]

    def first(self, event: str) -> TraceRecord | None:
        """The first record of an event."""
        return next((record for record in self.records if record.event == event), None)

    @property
    def argv(self) -> tuple[str, ...]:
        """The command line, secrets hidden; empty if unknown."""
        start = self.first("start")
        argv = start.facts.get("argv") if start is not None else None
        return tuple(map(str, argv)) if isinstance(argv, list) else ()

    @property
    def returncode(self) -> int | None:
        """The exit code, negative for a signal; None if unknown."""
        end = self.first("exit")
        code = end.facts.get("returncode") if end is not None else None
        return code if isinstance(code, int) else None


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a trace."""

    path: str
    version: int
    """Of the format; 0 for one that has no header."""
    header: Mapping[str, Json]
    """When and by what it was made."""
    records: tuple[TraceRecord, ...]
    is_cut_short: bool = False
    """Whether its last line is incomplete: its writer was killed, or the disk was full."""

    @property
    def runs(self) -> tuple[TraceRun, ...]:
        """The runs of agents in it, in the order in which they began."""
        runs: dict[int, list[TraceRecord]] = {}
        for record in self.records:
            runs.setdefault(record.run, []).append(record)
        return tuple(TraceRun(number, tuple(records)) for number, records in runs.items())


def read_trace(path: StrPath) -> Recording:
    """Read a trace or a cassette, also a gzipped one, also one whose writer was killed.

    Recordings without a header are read as well; a run begins at each `start` in them then.

    Raises `OSError` if the file cannot be read, `TranscriptDamaged` if a line in it is none of a trace,
    `UsageError` for one in a format that is newer than this version of Outrider.
    """
    name = os.fspath(path)
    lines, is_cut_short = _lines(name)
    header: JsonObject = {}
    records: list[TraceRecord] = []
    run, time, has_begun = 0, 0.0, False
    for number, line in enumerate(lines, 1):
        is_last = number == len(lines)
        if not line.strip():
            continue
        if number == 1 and (found := _header(line)) is not None:
            header = found
            _check_version(name, header)
            continue
        try:
            read = msgspec.json.decode(line, type=_Line)
            data = _data(read)
            if read.dir not in _DIRECTIONS:
                raise ValueError(f"its `dir` is {read.dir!r}")
        except (ValueError, RecursionError) as error:
            if is_last and not line.endswith(b"\n") and records:
                is_cut_short = True
                break
            raise TranscriptDamaged(name, number, message=f"This is not a line of a trace: {error}") from None
        if read.run is not None:
            run = read.run
        elif not run or (read.event == "start" and has_begun):
            run += 1
        has_begun = has_begun or read.dir != "note"
        # Without a header, it is unknown what was hidden.
        read.masked = read.masked or (not header and MASK.encode() in data)
        time = time if read.t is None else read.t
        records.append(_record(read, line, data, run, time))
    version = header.get("outrider_trace", 0)
    return Recording(
        path=name,
        version=version if isinstance(version, int) else 0,
        header=header,
        records=tuple(records),
        is_cut_short=is_cut_short,
    )


def _lines(name: str) -> tuple[list[bytes], bool]:
    """The lines of a file, and whether its end is missing."""
    data = Path(name).read_bytes()
    is_cut = False
    if data[:2] == b"\x1f\x8b":
        from zlib import error as ZlibError  # noqa: N812 - that is its name

        try:
            data, is_cut = _unzipped(data)
        except (OSError, ZlibError) as error:
            raise TranscriptDamaged(name, message=f"It cannot be unzipped: {error}") from None
    return BytesIO(data).readlines(), is_cut


def _unzipped(data: bytes) -> tuple[bytes, bool]:
    """All that can be read of it: the writer may have been killed."""
    import gzip

    pieces: list[bytes] = []
    with gzip.GzipFile(fileobj=BytesIO(data)) as file:
        try:
            while piece := file.read(65536):
                pieces.append(piece)
        except EOFError:
            return b"".join(pieces), True
    return b"".join(pieces), False


def _header(line: bytes) -> JsonObject | None:
    try:
        found: object = msgspec.json.decode(line)
    except (ValueError, RecursionError):
        return None
    is_header = isinstance(found, dict) and "outrider_trace" in found
    return cast("JsonObject", found) if is_header else None


def _check_version(name: str, header: JsonObject) -> None:
    version = header["outrider_trace"]
    if not isinstance(version, int) or version > VERSION:
        raise UsageError(
            f"The trace {name!r} has the format {version!r}, and this version of Outrider knows {VERSION}",
            hint="Update Outrider with pip.",
        )


def _data(line: _Line) -> bytes:
    if bytes(line.json):
        return bytes(line.json)
    if line.base64 is not None:
        return a2b_base64(line.base64, strict_mode=True)
    return (line.text or "").encode("utf-8", "surrogatepass")


def _record(read: _Line, line: bytes, data: bytes, run: int, time: float) -> TraceRecord:
    facts: JsonObject = {}
    if read.dir in ("meta", "note"):
        whole = cast("JsonObject", msgspec.json.decode(line))
        facts = {name: value for name, value in whole.items() if name not in EXTRA_FIELDS}
    return TraceRecord(
        run=run,
        time=time,
        direction=cast("Direction", read.dir),
        data=data,
        size=len(data) if read.n is None else read.n,
        is_cut=read.cut,
        is_open=read.open,
        is_masked=read.masked,
        event=read.event,
        facts=facts,
    )


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
    """All messages and events, in order.

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
    """The state of a run that later lines depend on."""

    def __init__(self) -> None:
        self._asked: dict[tuple[str, str], tuple[str, float]] = {}
        """Requests by sender and id: the kind and the time of each."""
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
    """A summary of a message."""
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
