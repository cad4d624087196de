"""Owns how the simulated agent reads and writes text files: encodings, ends of lines, differences.

Does not know tools.
"""

from __future__ import annotations

import codecs
import difflib
import os
import re
import stat
import tempfile
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from outrider.wire import JsonObject

__all__ = ["TextFile", "differences", "read_text", "write_atomically"]

_LOOKED_AT: Final = 8192
_CONTEXT: Final = 3
_MOST_COMPARED: Final = 4_000_000
"""Pairs of lines that are compared; beyond, all that is between the equal ends counts as changed."""
_NO_END: Final = "\\ No newline at end of file"


_Opcode: TypeAlias = tuple[Literal["replace", "delete", "insert", "equal"], int, int, int, int]


class TextFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file as text, with `\\n` at the ends of its lines."""

    text: str
    encoding: str = "utf-8"
    mark: bytes = b""
    has_crlf: bool = False
    is_damaged: bool = False
    """Some bytes are not of its encoding."""
    has_nul: bool = False

    def encode(self, text: str) -> bytes:
        """Another text, in the manner of this file."""
        if self.has_crlf:
            text = text.replace("\r\n", "\n").replace("\n", "\r\n")
        return self.mark + text.encode(self.encoding, "surrogatepass")


def read_text(raw: bytes, *, keeps_mark: bool = False) -> TextFile:
    """What a file says; `keeps_mark`: with the byte-order mark of UTF-8, if it has one."""
    encoding, mark = "utf-8", b""
    if raw.startswith(codecs.BOM_UTF16_LE):
        encoding, mark = "utf-16-le", codecs.BOM_UTF16_LE
    elif raw.startswith(codecs.BOM_UTF8) and not keeps_mark:
        mark = codecs.BOM_UTF8
    body = raw[len(mark) :]
    text = body.decode(encoding, "replace")
    return TextFile(
        text=text.replace("\r\n", "\n"),
        encoding=encoding,
        mark=mark,
        has_crlf="\r\n" in text,
        is_damaged="�" in text and not _is_valid(body, encoding),
        has_nul=encoding == "utf-8" and b"\0" in body[:_LOOKED_AT],
    )


def _is_valid(raw: bytes, encoding: str) -> bool:
    try:
        raw.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


def write_atomically(path: Path, raw: bytes) -> None:
    """Put a whole file in the place of another, which keeps its rights. Folders are made.

    Raises `OSError`.
    """
    # A link stays one.
    place = Path(os.path.realpath(path))
    place.parent.mkdir(parents=True, exist_ok=True)
    number, name = tempfile.mkstemp(prefix=".write-", dir=place.parent)
    try:
        with os.fdopen(number, "wb") as file:
            file.write(raw)
        try:
            Path(name).chmod(stat.S_IMODE(place.stat().st_mode))
        except FileNotFoundError:
            mask = os.umask(0o077)
            os.umask(mask)
            Path(name).chmod(0o666 & ~mask)
        Path(name).replace(place)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def differences(before: str, after: str) -> list[JsonObject]:
    """What changed, as `structuredPatch` has it."""
    old, new = _lines(before), _lines(after)
    hunks: list[JsonObject] = []
    for group in _Matcher(old, new).get_grouped_opcodes(_CONTEXT):
        lines: list[str] = []
        for kind, old_start, old_end, new_start, new_end in group:
            if kind == "equal":
                lines += _marked(" ", old[old_start:old_end])
            else:
                lines += _marked("-", old[old_start:old_end])
                lines += _marked("+", new[new_start:new_end])
        first, last = group[0], group[-1]
        hunks.append(
            {
                "oldStart": first[1] + 1,
                "oldLines": last[2] - first[1],
                "newStart": first[3] + 1,
                "newLines": last[4] - first[3],
                "lines": lines,
            }
        )
    return hunks


class _Matcher(difflib.SequenceMatcher[str]):
    """Compares only what is between the beginning and the end that two texts share."""

    def __init__(self, old: list[str], new: list[str]) -> None:
        super().__init__(None, (), (), autojunk=False)
        self._old, self._new = old, new

    def get_opcodes(self) -> list[_Opcode]:
        old, new = self._old, self._new
        most = min(len(old), len(new))
        start = next((index for index in range(most) if old[index] != new[index]), most)
        most -= start
        end = next((index for index in range(most) if old[-1 - index] != new[-1 - index]), most)
        old_end, new_end = len(old) - end, len(new) - end
        opcodes: list[_Opcode] = [("equal", 0, start, 0, start)] if start else []
        if (old_end - start) * (new_end - start) > _MOST_COMPARED:
            opcodes.append(("replace", start, old_end, start, new_end))
        else:
            between = difflib.SequenceMatcher(
                None, old[start:old_end], new[start:new_end], autojunk=False
            ).get_opcodes()
            for kind, *places in between:
                first, last, new_first, new_last = (start + place for place in places)
                opcodes.append((kind, first, last, new_first, new_last))
        if end:
            opcodes.append(("equal", old_end, len(old), new_end, len(new)))
        return opcodes


def _lines(text: str) -> list[str]:
    shown = re.sub(r"^\t+", lambda tabs: "  " * len(tabs[0]), text, flags=re.MULTILINE)
    return [line for line in re.split(r"(?<=\n)", shown) if line]


def _marked(mark: str, lines: list[str]) -> list[str]:
    marked: list[str] = []
    for line in lines:
        marked.append(mark + line.removesuffix("\n"))
        if not line.endswith("\n"):
            marked.append(_NO_END)
    return marked
