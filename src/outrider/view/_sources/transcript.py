"""Reads a transcript in windows: a cursor is the offset of a line, so that no more of a file is read than is
shown, however long it is.

A window begins and ends where no call is open: a call and its result are in the same one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, cast

import msgspec

from outrider.transcripts._disk.files import open_file
from outrider.transcripts._entries import TranscriptEntry, fields_of, read_entry, to_entry, to_time
from outrider.transcripts._export.turns import FROM_PROGRAM

if TYPE_CHECKING:
    from datetime import datetime

    from outrider.transcripts._disk.read import Search
    from outrider.wire import JsonObject

WINDOW: Final = 80
"""Entries that are shown at once."""
_STRETCH: Final = 3 * WINDOW
"""How many a window may have until its calls are answered."""
_MOST_BYTES: Final = 8 << 20
"""A window ends here, whatever it has."""
_BLOCK: Final = 1 << 16
_LONGEST_LINE: Final = 1 << 24
"""A line that is longer is shown as that."""

_TAGS: Final = re.compile("</?(?:local-command|bash|system)-(?:stdout|stderr|reminder)>")

SHOWN: Final = frozenset(("user", "assistant", "system", "result", "too-long"))


class Line:
    """A line of a transcript, and where it is."""

    def __init__(self, offset: int, end: int, entry: TranscriptEntry) -> None:
        self.offset = offset
        self.end = end
        self.entry = entry

    @cached_property
    def raw(self) -> JsonObject:
        """All that it says."""
        return self.entry.raw

    @cached_property
    def message(self) -> JsonObject:
        return fields_of(self.raw.get("message"))

    @cached_property
    def blocks(self) -> list[JsonObject]:
        """What is said in it; a text is one block."""
        return blocks_of(self.message.get("content"))

    @property
    def is_shown(self) -> bool:
        """Whether readers see something of it."""
        entry = self.entry
        if entry.type == "attachment":
            return fields_of(self.raw.get("attachment")).get("type") == "queued_command"
        return entry.type in SHOWN and not entry.is_meta

    @property
    def when(self) -> datetime | None:
        return to_time(self.entry.written_at)

    @property
    def calls(self) -> list[str]:
        return [str(block.get("id")) for block in self.blocks if is_call(block)]

    @property
    def answers(self) -> list[str]:
        return [str(block.get("tool_use_id")) for block in self.blocks if is_answer(block)]


def items_of(value: object) -> list[object]:
    """What is in a list; of anything else, nothing."""
    return cast("list[object]", value) if isinstance(value, list) else []


def blocks_of(content: object) -> list[JsonObject]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for item in items_of(content) or [content] if (block := fields_of(item))]


def typed(words: str) -> str | None:
    """What a person typed, of a text in the user's role; None if the program put it there."""
    words = words.strip("\n")
    if words.startswith("<bash-input>"):
        return f"! {_between(words, 'bash-input') or ''}"
    if words.startswith(("<command-name>", "<command-message>")):
        return f"{_between(words, 'command-name') or ''} {_between(words, 'command-args') or ''}".strip()
    return None if words.lstrip().startswith(FROM_PROGRAM) else words


def noted(words: str) -> str:
    """What the program says in a text that it put there, without the names that stand around it."""
    if words.lstrip().startswith("<task-notification>"):
        return _between(words, "summary") or _between(words, "status") or words
    return _TAGS.sub("", words).strip() or "(nothing)"


def _between(words: str, name: str) -> str | None:
    _, begun, rest = words.partition(f"<{name}>")
    found, ended, _ = rest.partition(f"</{name}>")
    return found.strip() if begun and ended else None


def is_call(block: JsonObject) -> bool:
    return str(block.get("type")).endswith("tool_use")


def is_answer(block: JsonObject) -> bool:
    return str(block.get("type")).endswith("tool_result")


class Window(msgspec.Struct, frozen=True):
    """Some lines that follow each other."""

    lines: list[Line]
    start: int
    end: int
    is_last: bool
    """Whether nothing follows, as yet."""

    @property
    def is_first(self) -> bool:
        return self.start <= 0


class TranscriptFile:
    """A transcript on disk. Nothing of it is kept in memory. Methods block, and raise `OSError`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def size(self) -> int:
        return self.path.stat().st_size

    def last(self, count: int = WINDOW) -> Window:
        """The end."""
        return self.before(self.size(), count)

    def before(self, offset: int, count: int = WINDOW) -> Window:
        """What comes before an offset."""
        with open_file(self.path, 0) as file:
            size = os.fstat(file.fileno()).st_size
            offset = min(offset, size)
            lines: list[Line] = []
            start, end = 0, offset
            open_calls: set[str] = set()
            shown = 0
            later: Line | None = None
            for line in _backwards(file, offset):
                if later is None:
                    end = line.end
                elif _is_cut(line, later, open_calls, shown, count, end):
                    start = later.offset
                    break
                later = line
                lines.append(line)
                shown += line.is_shown
                open_calls.update(line.answers)
                open_calls.difference_update(line.calls)
            return Window(lines[::-1], start, end, offset >= size)

    def after(self, offset: int, count: int = WINDOW) -> Window:
        """What begins at an offset."""
        with open_file(self.path, _BLOCK) as file:
            lines: list[Line] = []
            open_calls: set[str] = set()
            shown, end, is_last = 0, offset, True
            for line in _forwards(file, offset):
                if lines and _is_cut(lines[-1], line, open_calls, shown, count, offset):
                    is_last = False
                    break
                lines.append(line)
                end = line.end
                shown += line.is_shown
                open_calls.update(line.calls)
                open_calls.difference_update(line.answers)
            return Window(lines, offset, end, is_last)

    def around(self, offset: int, count: int = WINDOW) -> Window:
        """A window that has the line at an offset, not as the first one."""
        window = self.after(self.before(offset, max(count // 4, 1)).start, count)
        # Where lines are very long, it may have ended before.
        return window if window.end > offset else self.after(offset, count)

    def line_at(self, offset: int) -> Line | None:
        with open_file(self.path, _BLOCK) as file:
            if offset:
                file.seek(offset - 1)
                if file.read(1) != b"\n":
                    return None
            return next(_forwards(file, offset), None)

    def find(self, uuid: str) -> int | None:
        """Where the entry with an id is."""
        wanted = b'"uuid":"' + uuid.encode() + b'"'
        with open_file(self.path, 1 << 20) as file:
            offset = 0
            for data in file:
                if wanted in data:
                    return offset
                offset += len(data)
        return None

    def search(self, search: Search) -> Iterator[tuple[int, str]]:
        """Where something is said, and the words around it."""
        with open_file(self.path, 1 << 20) as file:
            offset = 0
            while data := file.readline(_LONGEST_LINE):
                hit = search.in_line(data) if search.may_be_in(data) else None
                if hit is not None and hit[0].type in SHOWN:
                    yield offset, hit[1]
                offset += len(data)


def _is_cut(earlier: Line, later: Line, open_calls: set[str], shown: int, count: int, edge: int) -> bool:
    """Whether a window may end between two lines."""
    if shown < count and abs(later.offset - edge) < _MOST_BYTES:
        return False
    if shown >= _STRETCH or abs(later.offset - edge) >= _MOST_BYTES:
        return True
    id = later.entry.message_id
    return not open_calls and (id is None or id != earlier.entry.message_id)


def _line(offset: int, data: bytes) -> Line | None:
    if len(data) >= _LONGEST_LINE:
        return _too_long(offset, len(data))
    entry = read_entry(data) if data.strip() else None
    return None if entry is None else Line(offset, offset + len(data), entry)


def _forwards(file: BinaryIO, offset: int) -> Iterator[Line]:
    """The lines from an offset on; damaged ones, and one that is not written to its end, are left out."""
    file.seek(offset)
    while data := file.readline(_LONGEST_LINE):
        begun, whole = offset, len(data)
        while not data.endswith(b"\n") and len(data) == _LONGEST_LINE:
            # Too long to be held: only its length is of interest.
            data = file.readline(_LONGEST_LINE)
            whole += len(data)
        offset += whole
        if whole >= _LONGEST_LINE:
            yield _too_long(begun, whole)
        elif (line := _line(begun, data)) is not None:
            yield line


def _backwards(file: BinaryIO, end: int) -> Iterator[Line]:
    """The lines before an offset, the last one first."""
    place, size = end, _BLOCK
    kept = b""
    """What is read of a line whose beginning is not."""
    lost = 0
    """Bytes of a line that is too long to be held."""
    while place > 0:
        size = min(size, place)
        place -= size
        file.seek(place)
        data = file.read(size)
        if not lost:
            data += kept
        start = 0 if place == 0 else data.find(b"\n") + 1
        if place and not start:
            if lost or len(data) > _LONGEST_LINE:
                lost += size if lost else len(data)
                kept = b""
            else:
                kept = data
            size = min(2 * size, _LONGEST_LINE)
            continue
        if lost:
            cut = data.rfind(b"\n") + 1
            yield _too_long(place + cut, len(data) - cut + lost)
            data, lost = data[:cut], 0
        kept = data[:start]
        offset = place + len(data)
        for each in reversed(_split(data[start:])):
            offset -= len(each)
            if (line := _line(offset, each)) is not None:
                yield line
        size = _BLOCK


def _split(data: bytes) -> list[bytes]:
    """The lines, which end with a line feed and nothing else."""
    parts = data.split(b"\n")
    return [part + b"\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def _too_long(offset: int, size: int) -> Line:
    return Line(offset, offset + size, to_entry({"type": "too-long", "size": size}))
