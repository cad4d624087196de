"""Owns how much of a file is read: its two ends, its lines one by one, or from the end as far as needed.

Does not know what the lines mean. A file that grows meanwhile is read as long as it was at first; the last
line may be cut off. No file takes more memory than its longest line, and no line more than there may be.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, BinaryIO, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Ends", "backwards", "chunks", "lines"]

_END: Final = 1 << 16
"""So much of each end tells what lists say: after each turn, the program writes title and tag anew."""
_LONGEST_LINE: Final = 1 << 25
"""A longer one at the beginning is not read to its end."""
_LONGEST_KEPT: Final = 1 << 28
"""A line that is longer is left out: it would take all memory, and the program writes none like it."""
_BUFFER: Final = 1 << 20


class Ends:
    """The whole lines at both ends of a file; all of them if it is small."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._size = os.fstat(file.fileno()).st_size
        head = file.read(2 * _END if self._size <= 2 * _END else _END)
        self._is_all = self._size <= 2 * _END
        cut = len(head) if self._is_all else head.rfind(b"\n") + 1
        self.head: list[bytes] = head[:cut].split(b"\n")
        self._cut_off = head[cut:]

    def next_line(self) -> bytes:
        """The line that the head ends in: a long prompt may well be the first. Empty if there is none, and if
        it is longer than any prompt."""
        if self._is_all:
            return b""
        self._file.seek(_END)
        pieces = [self._cut_off]
        size = len(self._cut_off)
        while size < _LONGEST_LINE and (piece := self._file.read(4 * _END)):
            end = piece.find(b"\n")
            pieces.append(piece if end < 0 else piece[:end])
            if end >= 0:
                return b"".join(pieces)
            size += len(piece)
        return b""

    def tail(self) -> list[bytes]:
        """The lines at the end, without those of the head."""
        if self._is_all:
            return []
        # One byte more: a line may begin exactly here.
        self._file.seek(self._size - _END - 1)
        tail = self._file.read(_END + 1)
        start = tail.find(b"\n")
        return tail[start + 1 :].split(b"\n") if start >= 0 else []


def lines(file: BinaryIO) -> Iterator[bytes]:
    """All lines, first to last."""
    left = os.fstat(file.fileno()).st_size
    is_going_on = False
    while left > 0 and (line := file.readline(_LONGEST_KEPT)):
        left -= len(line)
        is_rest, is_going_on = is_going_on, len(line) == _LONGEST_KEPT and not line.endswith(b"\n")
        if not is_rest and not is_going_on:
            yield line


def chunks(file: BinaryIO) -> Iterator[bytes]:
    """All lines, many at a time: each chunk ends where a line does. One that is left out is an empty line."""
    left = os.fstat(file.fileno()).st_size
    kept: list[bytes] = []
    is_left_out = False
    while left > 0 and (piece := file.read(min(left, _BUFFER))):
        left -= len(piece)
        if is_left_out:
            start = piece.find(b"\n")
            if start < 0:
                continue
            piece, is_left_out = piece[start:], False
        end = piece.rfind(b"\n") + 1
        if end:
            yield b"".join([*kept, piece[:end]])
            kept = []
        kept.append(piece[end:])
        if sum(map(len, kept)) > _LONGEST_KEPT:
            kept, is_left_out = [], True
    if any(kept):
        yield b"".join(kept)


def backwards(file: BinaryIO) -> Iterator[list[bytes]]:
    """The lines from the end of a file to its beginning, some at a time, and more each time; each list is in
    the order of the file."""
    place = os.fstat(file.fileno()).st_size
    size = _END
    kept: list[bytes] = []
    """The end of a line whose beginning is not read yet, last piece first."""
    is_left_out = False
    while place > 0:
        size = min(size, place)
        place -= size
        file.seek(place)
        piece = file.read(size)
        if is_left_out:
            end = piece.rfind(b"\n") + 1
            piece, is_left_out = piece[:end], not end
        start = 0 if not place else piece.find(b"\n") + 1
        if place and not start:
            kept.append(piece)
            if sum(map(len, kept)) > _LONGEST_KEPT:
                kept, is_left_out = [], True
        else:
            whole = b"".join([piece[start:], *reversed(kept)])
            kept = [piece[:start]]
            yield whole.split(b"\n")
        size = min(2 * size, _LONGEST_KEPT)
