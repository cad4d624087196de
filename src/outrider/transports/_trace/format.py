"""Owns the file format of traces: what a line of one means, and reading them.

Does not write them, nor know what the frames in them mean. The format is described in docs/cassettes.md.
"""

from __future__ import annotations

import os
from binascii import a2b_base64
from collections.abc import Mapping
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Final, Literal, TypeAlias, cast

import msgspec

from outrider.errors import TranscriptDamaged, UsageError
from outrider.redaction import MASK
from outrider.wire import Json, JsonObject

__all__ = [
    "EXTRA_FIELDS",
    "FROM_AGENT",
    "FROM_HOST",
    "VERSION",
    "Direction",
    "Recording",
    "TraceRecord",
    "TraceRun",
    "read_trace",
]

VERSION: Final = 1

Direction: TypeAlias = Literal["host->cli", "cli->host", "stderr", "meta", "note"]
"""Who said it: this process, the agent, the agent on stderr; or what happened, or a remark."""

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
    """One line that was said, or something that happened."""

    run: int
    """Which run of an agent it belongs to, from 1 on."""
    time: float
    """Seconds since the start of the run."""
    direction: Direction
    data: bytes = b""
    """The line as it was said, without its line end; secrets hidden."""
    size: int = 0
    """How many bytes the line had when it was said."""
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
        """Whether it was said on stdin or stdout."""
        return self.direction in (FROM_HOST, FROM_AGENT)

    @cached_property
    def frame(self) -> JsonObject | None:
        """The line as a JSON object; None if it is none. Shared: not to be changed."""
        if not self.is_line:
            return None
        try:
            found: object = msgspec.json.decode(self.data)
        except (ValueError, RecursionError):
            return None
        return cast("JsonObject", found) if isinstance(found, dict) else None

    @property
    def text(self) -> str:
        """The line as text; bytes that are no UTF-8 by their numbers."""
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
        """How the program was started, secrets hidden; empty if that is not known."""
        start = self.first("start")
        argv = start.facts.get("argv") if start is not None else None
        return tuple(map(str, argv)) if isinstance(argv, list) else ()

    @property
    def returncode(self) -> int | None:
        """What the program ended with, negative for a signal; None if that is not known."""
        end = self.first("exit")
        code = end.facts.get("returncode") if end is not None else None
        return code if isinstance(code, int) else None


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """What is in a trace."""

    path: str
    version: int
    """Of the format; 0 for one that has no header."""
    header: Mapping[str, Json]
    """When and by what it was made."""
    records: tuple[TraceRecord, ...]
    is_cut_short: bool = False
    """Whether its last line is not whole: its writer was killed, or the disk was full."""

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
            raise TranscriptDamaged(name, number, message=f"This is no line of a trace: {error}") from None
        if read.run is not None:
            run = read.run
        elif not run or (read.event == "start" and has_begun):
            run += 1
        has_begun = has_begun or read.dir != "note"
        # Who wrote no header does not say either what was hidden.
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
    """What can be had of it: the writer may have been killed."""
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
