"""Splits a byte stream into frames, even if the stream contains other output too.

A complete line that is a frame is delivered as one. Any other line is searched for JSON objects, which may
continue on the lines that follow. Does not interpret frames: `_decoding` does.
"""

from __future__ import annotations

import re
from collections import deque
from io import BytesIO
from json import JSONDecodeError
from typing import TYPE_CHECKING, Final, cast

from outrider.errors import OptionsError
from outrider.wire._decoding import (
    BLANK,
    FRAME_TYPES,
    asker_of,
    decode_frame,
    decode_tolerantly,
    fast_decoder,
    finished,
    known_frames,
    opening,
)
from outrider.wire._messages import AnyFrame, Arrival, MalformedLine, OversizedMessage

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self

DEFAULT_LIMIT: Final = 256 * 1024 * 1024
"""Frames may be this large, in bytes. The largest seen were 3 MB; the limit only keeps memory bounded."""

_KEPT: Final = 4096
"""How much of either end of an oversized frame is kept, to show it and to tell its type."""


_STEP: Final = 16384
"""How much work is done in one step, in looks at a bracket: some milliseconds."""

_LINE: Final = 32
"""What a line that needs more than the fast path costs, or an object on one, beside its bytes."""

_BYTES: Final = 16
"""So many bytes to decode cost as much as one look."""

_SWEEP: Final = _STEP // _LINE
"""So many lines go through the fast path together."""

_PIECE: Final = _STEP * _BYTES
"""A larger chunk is taken in pieces."""

_WHOLE: Final = 4096
"""So few bytes are always decoded at once."""

_GLANCE: Final = 128
"""One look goes over so many bytes at most, if it finds nothing."""


class Framer:
    """Cuts a stream into frames. Feed it bytes as they come, in any chunks, then `flush` it at the end.

    Nothing raises: what is not a frame comes out as `MalformedLine`, what is too large as
    `OversizedMessage`, both in their place. Time and memory are linear in the size of a frame.

    Where something else has to continue meanwhile, such as an event loop, `begin` and `go_on` do the same in
    steps: each does a bounded amount of work, but for a single frame, which is decoded at once.
    """

    def __init__(self, limit: int | None = None) -> None:
        """`limit` is the largest frame, in bytes; 0 or None: the default. Negative: an `OptionsError`."""
        if limit is not None and limit < 0:
            raise OptionsError(f"the size limit is {limit}; give a number of bytes, or None for the default")
        self._limit = limit or DEFAULT_LIMIT
        self._whole = min(self._limit, _WHOLE)
        self._chunks: deque[bytes | None] = deque()
        """What has not been cut into lines yet; None is the end of the stream."""
        self._is_ending = False
        self._held: list[bytes] = []
        """Pieces of the line whose end has not come yet."""
        self._held_size = 0
        self._skipped: _Oversized | None = None
        """Set while the rest of an oversized line is thrown away."""
        self._lines: list[bytes] = []
        """Whole lines that are to be taken."""
        self._is_safe = False
        """Whether none of them can be too large."""
        self._odd = b""
        """The line that is being taken apart, and how far it has been."""
        self._position = 0
        self._object = _OpenObject()
        """An object that began on an earlier line, or is not at its end yet."""
        self._effort = 0
        """What is left of a step."""

    def feed(self, data: bytes | bytearray | memoryview) -> list[Arrival]:
        """Take the next bytes; returns the frames that they complete."""
        return self._to_the_end(self.begin(data))

    def flush(self) -> list[Arrival]:
        """The stream has ended; returns what was still waiting for its end."""
        return self._to_the_end(self.begin(None))

    def _to_the_end(self, arrivals: list[Arrival]) -> list[Arrival]:
        while self.has_more:
            arrivals += self.go_on()
        return arrivals

    def begin(self, data: bytes | bytearray | memoryview | None) -> list[Arrival]:
        """Take the next bytes, None at the end of the stream, and do one step of the work.

        Returns the frames that were found, perhaps none. If it `has_more`, call `go_on`; bytes that
        are given before that has come to its end wait for their turn.
        """
        if data is not None:
            data = bytes(data)
            if data.endswith(b"\n") and self._is_idle and len(data) <= self._whole:
                # Most often: a few whole lines, and nothing before them.
                lines = BytesIO(data).readlines()
                if (known := known_frames(lines)) is not None:
                    return cast("list[Arrival]", known)
            if len(data) > _PIECE:
                self._chunks.extend(data[start : start + _PIECE] for start in range(0, len(data), _PIECE))
                return self.go_on()
        self._chunks.append(data)
        return self.go_on()

    @property
    def has_more(self) -> bool:
        """Whether there is work left to do on the bytes that have come."""
        return bool(self._lines or self._odd or self._chunks)

    @property
    def _is_idle(self) -> bool:
        """Whether nothing that came before has to do with what comes next."""
        return not (
            self._chunks or self._lines or self._odd or self._held or self._skipped or self._object.data
        )

    def go_on(self) -> list[Arrival]:
        """Do one more step; returns the frames that were found, perhaps none."""
        arrivals: list[Arrival] = []
        if not self._lines and not self._odd and self._chunks:
            self._cut(self._chunks.popleft(), arrivals)
        if self._lines and self._is_safe and not self._odd and not self._object.data:
            lines = self._lines[:_SWEEP]
            known = known_frames(lines)
            if known is not None:
                del self._lines[:_SWEEP]
                return cast("list[Arrival]", known)
        self._effort, taken = _STEP, 0
        while self._effort > 0:
            if self._odd:
                self._look_into(arrivals)
            elif taken < len(self._lines):
                line = self._lines[taken]
                taken += 1
                self._effort -= _LINE + len(line) // _BYTES
                self._take_line(line, arrivals)
            else:
                break
        del self._lines[:taken]
        if self._is_ending and not self._lines and not self._odd:
            self._is_ending = False
            if self._object.data:
                self._add_noise(self._object.take(), "the output ended inside an object", arrivals)
        return arrivals

    def drop(self) -> None:
        """Forget what has come and is not taken yet, such as the beginning of a frame."""
        self._chunks.clear()
        self._lines, self._odd, self._held, self._held_size = [], b"", [], 0
        self._skipped, self._is_ending = None, False
        self._object.take()

    def _cut(self, data: bytes | None, arrivals: list[Arrival]) -> None:
        """Cut bytes into lines. Nothing that came before them waits any more."""
        # No line can be too large if all of them together are not.
        self._is_safe = self._held_size + len(data or b"") <= self._limit
        if data is None:
            self._is_ending = True
            last = self._finish_line(b"", arrivals)
            self._lines = [last] if last else []
            return
        if b"\n" not in data:
            self._hold(data)
            return
        lines = BytesIO(data).readlines()
        rest = b"" if data.endswith(b"\n") else lines.pop()
        lines[0] = self._finish_line(lines[0], arrivals)
        self._lines = lines
        self._hold(rest)

    def _hold(self, data: bytes) -> None:
        """Keep the beginning of a line, as long as it is not too large."""
        if not data:
            return
        if self._skipped is not None:
            self._skipped.add(data)
            return
        self._held.append(data)
        self._held_size += len(data)
        # One byte more: it may be the first half of a line end, which does not count.
        if self._held_size > self._limit + 1:
            self._skipped = _Oversized(self._limit, *self._held)
            self._held, self._held_size = [], 0

    def _finish_line(self, end: bytes, arrivals: list[Arrival]) -> bytes:
        """The line that was held, with its end; of an oversized one only say that it was there."""
        if self._skipped is not None:
            self._skipped.add(end.removesuffix(b"\n"))
            self._skipped.end_line()
            self._refuse(self._skipped, arrivals)
            self._skipped = None
            return b""
        if self._held:
            end = b"".join([*self._held, end])
            self._held, self._held_size = [], 0
        return end

    def _take_line(self, line: bytes, arrivals: list[Arrival]) -> None:
        """Take one line: a frame, noise, or a part of a frame."""
        line = _without_end(line)
        if len(line) > self._limit:
            self._refuse(_Oversized(self._limit, line), arrivals)
        elif not self._object.data:
            try:
                arrivals.append(finished(fast_decoder()(line), line))
            except (ValueError, RecursionError):
                self._take_odd_line(line, arrivals)
        elif (frame := _whole_frame(line)) is not None:
            self._add_noise(self._object.take(), "cut off by the frame after it", arrivals)
            arrivals.append(frame)
        else:
            self._odd, self._position = line, 0

    def _refuse(self, line: _Oversized, arrivals: list[Arrival]) -> None:
        """Report that a line was too large. An open object cannot continue after it: a part is missing."""
        if self._object.data:
            self._add_noise(self._object.take(), "cut off by a line over the size limit", arrivals)
        arrivals.append(line.message())

    def _take_odd_line(self, line: bytes, arrivals: list[Arrival]) -> None:
        """Take a line that the fast path refused: an odd frame, noise, several objects, a piece of one."""
        start = opening(line)
        if not start:
            return
        try:
            arrivals.append(decode_tolerantly(start.rstrip(BLANK)))
        except ValueError as error:
            if start.startswith(b"{"):
                self._odd, self._position = start, 0
            else:
                self._add_noise(line, _reason(error), arrivals)

    def _add_noise(self, data: bytes, reason: str, arrivals: list[Arrival]) -> None:
        arrivals.append(MalformedLine(data, reason))
        # Each byte counts: it may be searched for a request.
        self._effort -= _LINE + len(data)

    def _look_into(self, arrivals: list[Arrival]) -> None:
        """Take a line apart into objects and what is between them, as far as the effort goes; the last may
        stay open."""
        line, position = self._odd, self._position
        while position < len(line) and self._effort > 0:
            if not self._object.data:
                start = line.find(b"{", position)
                noise = line[position : start if start >= 0 else None].strip(BLANK)
                if noise:
                    self._add_noise(noise, "not JSON", arrivals)
                if start < 0:
                    position = len(line)
                    break
                position = start
                if self._effort <= 0:
                    break
            position, self._effort = self._object.extend(line, position, self._effort)
            if position < len(line) and not self._object.is_closed:
                break
            if len(self._object.data) > self._limit:
                arrivals.append(_Oversized(self._limit, self._object.take()).message())
            elif self._object.is_closed:
                self._take_object(self._object.take(), arrivals)
        self._odd, self._position = (line, position) if position < len(line) else (b"", 0)

    def _take_object(self, data: bytes, arrivals: list[Arrival]) -> None:
        """Take what has as many closing brackets as opening ones: a frame, most likely."""
        self._effort -= _LINE + len(data) // _BYTES
        try:
            arrivals.append(decode_tolerantly(data))
        except ValueError as error:
            self._add_noise(data, _reason(error), arrivals)


def _without_end(line: bytes) -> bytes:
    return line.removesuffix(b"\n").removesuffix(b"\r")


def _whole_frame(line: bytes) -> AnyFrame | None:
    """The frame on a line, if it is one of a known type."""
    start = opening(line)
    if not start.startswith(b"{"):
        return None
    try:
        frame = decode_frame(start.rstrip(BLANK))
    except ValueError:
        return None
    return frame if frame.type in FRAME_TYPES else None


def _reason(error: ValueError) -> str:
    """Why bytes are not a frame; where a parser stumbled over noise says nothing."""
    return "not JSON" if isinstance(error, JSONDecodeError) else str(error)


class FrameReader:
    """Reads frames from an iterable of chunks: a file, a recording, a pipe.

    With `strict`, what is not a frame is raised in its place, as `MalformedFrame` or `FrameTooLarge`, once;
    reading can continue after it.
    """

    def __init__(self, chunks: Iterable[bytes], *, limit: int | None = None, strict: bool = False) -> None:
        self._chunks = iter(chunks)
        self._framer = Framer(limit)
        self._ready: deque[Arrival] = deque()
        self._strict = strict
        self._is_at_end = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Arrival:
        while not self._ready:
            if self._is_at_end:
                raise StopIteration
            try:
                self._ready.extend(self._framer.feed(next(self._chunks)))
            except StopIteration:
                self._is_at_end = True
                self._ready.extend(self._framer.flush())
        arrival = self._ready.popleft()
        if self._strict and isinstance(arrival, MalformedLine | OversizedMessage):
            raise arrival.error()
        return arrival


class _OpenObject:
    """A JSON object of which only the beginning has come. Counts brackets, so that it is parsed only once."""

    def __init__(self) -> None:
        self.data = bytearray()
        """All of it so far; empty if no object is open."""
        self._depth = 0
        self._in_string = False
        self._escaped = False

    @property
    def is_closed(self) -> bool:
        return self._depth == 0

    def extend(self, line: bytes, start: int, effort: int) -> tuple[int, int]:
        """Take from `start` to the end of the object, of the line, or of the effort; says where it stopped,
        and how much effort is left."""
        position = start
        while position < len(line) and effort > 0:
            effort -= 1
            if self._escaped:
                self._escaped = False
                position += 1
                continue
            search = (_IN_STRING if self._in_string else _OUTSIDE).search
            found = search(line, position, position + _GLANCE)
            if found is None:
                position = min(position + _GLANCE, len(line))
                continue
            position = found.end()
            match line[position - 1]:
                case 0x22:  # a quotation mark
                    self._in_string = not self._in_string
                case 0x5C:  # a backslash
                    self._escaped = True
                case 0x7B | 0x5B:  # { [
                    self._depth += 1
                case _:
                    self._depth -= 1
                    if self._depth == 0:
                        break
        self.data += line[start:position]
        return position, effort

    def take(self) -> bytes:
        """The bytes so far, joined with nothing between; the object is empty again."""
        data = bytes(self.data)
        self.data, self._depth = bytearray(), 0
        self._in_string = self._escaped = False
        return data


_OUTSIDE: Final = re.compile(rb'["{}\[\]]')
_IN_STRING: Final = re.compile(rb'["\\]')


class _Oversized:
    """Counts the bytes of a frame that is too large, and keeps both of its ends."""

    def __init__(self, limit: int, *pieces: bytes) -> None:
        self._limit = limit
        self._size = 0
        self._head = b""
        self._tail = b""
        for piece in pieces:
            self.add(piece)

    def add(self, data: bytes) -> None:
        self._size += len(data)
        if len(self._head) < _KEPT:
            self._head += data[: _KEPT - len(self._head)]
        self._tail = (self._tail + data[-_KEPT:])[-_KEPT:]

    def end_line(self) -> None:
        """All of the line has come: the first half of its end does not count."""
        self._size -= self._tail.endswith(b"\r")

    def message(self) -> OversizedMessage:
        head = self._head[: self._size]
        return OversizedMessage(self._size, self._limit, head, self._type(), asker_of(head, self._tail))

    def _type(self) -> str | None:
        """The type is the first key of most frames, and one of the last of a result."""
        for end in (self._head, self._tail):
            for found in re.finditer(_TYPE, end):
                if (kind := found[1].decode("ascii")) in FRAME_TYPES:
                    return kind
        return None


_TYPE: Final = rb'[{,]\s*"type"\s*:\s*"(\w{1,64})"'
"""A `type` key; inside a JSON string the quotation marks would be escaped."""
