"""Owns the tools `Write` and `Edit` of the simulated agent, and what it knows of the files that it saw.

Where a path may lie is a question of permission, not of these.
"""

from __future__ import annotations

import codecs
import difflib
import os
import re
import stat
import tempfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from outrider.testing._simulator.tools.results import Unusable, WentWrong, system_error
from outrider.testing._simulator.world import Outcome
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Files", "Paths", "TextFile", "differences", "read_text", "write_atomically"]


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


_CURRENT: Final = " (file state is current in your context — no need to Read it back)"
_CHANGED: Final = (
    " (note: the file had been modified on disk since you last read it — the edit applied cleanly, but the "
    "file contains other changes not in your context. Read it before edits that depend on surrounding "
    "content.)"
)
_NOT_OURS: Final = (
    "File is not valid UTF-8: it uses a legacy encoding such as Windows-1252, Shift-JIS or GBK, or it is "
    "binary. These tools write UTF-8 (or UTF-16LE behind its byte-order mark) and never convert a file's "
    "encoding on their own, so nothing was written. If the file is text, make the change with a shell "
    "command that reads and writes it in its own encoding (iconv, or PowerShell Get-Content/Set-Content "
    "-Encoding), or ask the user whether to convert it to UTF-8 first. To replace the whole file with new "
    "UTF-8 text anyway, delete it first, then Write it."
)
_CURLY: Final = {'"': ("\u201c", "\u201d"), "'": ("\u2018", "\u2019")}
_STRAIGHT: Final = str.maketrans({mark: plain for plain, pair in _CURLY.items() for mark in pair})


class Paths:
    """What paths mean, and which files the model has seen whole."""

    def __init__(self, environment: Mapping[str, str], cwd: Callable[[], Path]) -> None:
        self._environment = environment
        self.cwd = cwd
        self._seen: dict[Path, bytes | None] = {}
        """With a digest of what was read; none for what was written."""

    def find(self, path: str) -> Path:
        """The file that a path stands for."""
        home = self._environment.get("HOME")
        if home is not None and (path == "~" or path.startswith("~/")):
            path = home + path[1:]
        return Path(os.path.normpath(self.cwd() / path))

    def missing(self, path: Path) -> str:
        """What is said of a file that is not there."""
        text = f"File does not exist. Note: your current working directory is {self.cwd()}."
        try:
            names = sorted(entry.name for entry in path.parent.iterdir())
            similar = [name for name in names if Path(name).stem == path.stem and name != path.name]
        except OSError:
            similar = []
        return f"{text} Did you mean {similar[0]}?" if similar else text

    def saw(self, path: Path, raw: bytes | None = None) -> None:
        """The model has read a whole file, with this in it, or has written one."""
        self._seen[path] = None if raw is None else sha256(raw).digest()

    def forget(self, path: Path) -> None:
        """What the model knows of a file is not all of it."""
        self._seen.pop(path, None)

    def is_seen(self, path: Path) -> bool:
        """Whether it has; what became of the file since is not asked."""
        return path in self._seen

    def is_changed(self, path: Path) -> bool:
        """Whether a file that the model has read is another by now. Of files that it wrote last, the program
        does not ask."""
        digest = self._seen.get(path)
        try:
            return digest is not None and digest != sha256(path.read_bytes()).digest()
        except OSError:
            return False


class Files:
    """Writes files."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths

    # Write

    def check_write(self, given: JsonObject) -> None:
        path = self._paths.find(given["file_path"])
        if path.is_dir():
            raise Unusable(
                f"{given['file_path']} is a directory, not a file. To create a file inside it, include the "
                "file name in file_path."
            )
        if self._paths.is_changed(path):
            raise Unusable(
                "File has been modified since read, either by the user or by a linter. Read it again before "
                "attempting to write it."
            )

    def write(self, given: JsonObject) -> Outcome:
        self.check_write(given)
        path = self._paths.find(given["file_path"])
        content: str = given["content"]
        _refuse_link(path)
        original = self._load(path)
        if original is not None and (original.is_damaged or original.has_nul):
            raise WentWrong(_NOT_OURS)
        # Ends of lines are those of the new text; an encoding stays.
        manner = TextFile(text="", encoding=original.encoding, mark=original.mark) if original else None
        self._save(path, manner.encode(content) if manner else content.encode("utf-8", "surrogatepass"))
        self._paths.saw(path)
        if original is not None and not original.text:
            # An empty file is as good as none.
            original = None
        detail: JsonObject = {
            "type": "create" if original is None else "update",
            "filePath": given["file_path"],
            "content": content,
            "structuredPatch": [] if original is None else differences(original.text, content),
            "originalFile": None if original is None else original.text,
            "userModified": False,
        }
        if original is None:
            return Outcome(
                content=f"File created successfully at: {given['file_path']}{_CURRENT}", detail=detail
            )
        text = f"The file {given['file_path']} has been updated successfully.{_CURRENT}"
        return Outcome(content=text, detail=detail)

    # Edit

    def check_edit(self, given: JsonObject) -> None:
        self._plan(given)

    def edit(self, given: JsonObject) -> Outcome:
        path, original, found = self._plan(given)
        _refuse_link(path)
        replaces_all = bool(given.get("replace_all"))
        new = _in_quotes_of(found, given["old_string"], given["new_string"])
        if not found:
            text = new
        else:
            text = original.text.replace(found, new, -1 if replaces_all else 1)
        was_seen, is_changed = not path.exists() or self._paths.is_seen(path), self._paths.is_changed(path)
        self._save(path, original.encode(text))
        if is_changed:
            self._paths.forget(path)
        elif was_seen:
            self._paths.saw(path)
        detail: JsonObject = {
            "filePath": given["file_path"],
            "oldString": found,
            "newString": given["new_string"],
            "originalFile": original.text,
            "structuredPatch": differences(original.text, text),
            "userModified": False,
            "replaceAll": replaces_all,
        }
        if not was_seen:
            detail["contentNotInModelContext"] = True
        how = ". All occurrences were successfully replaced." if replaces_all else " successfully."
        note = _CHANGED if is_changed else _CURRENT if was_seen else ""
        content = f"The file {given['file_path']} has been updated{how}{note}"
        return Outcome(content=content, detail=detail)

    def _plan(self, given: JsonObject) -> tuple[Path, TextFile, str]:
        """The file, what is in it, and which text of it is to be replaced."""
        path = self._paths.find(given["file_path"])
        old: str = given["old_string"]
        if old == given["new_string"]:
            raise Unusable("No changes to make: old_string and new_string are exactly the same.")
        try:
            original = self._load(path)
        except WentWrong as error:
            if path.is_dir():
                raise _Crashed("EISDIR: illegal operation on a directory, read") from error
            raise
        if original is None:
            if not old:
                return path, TextFile(text=""), ""
            raise Unusable(self._paths.missing(path))
        if original.is_damaged or original.has_nul:
            raise Unusable(_NOT_OURS)
        if not old:
            if original.text.strip():
                raise Unusable("Cannot create new file - file already exists.")
            return path, original, ""
        found = old
        if old not in original.text:
            start = original.text.translate(_STRAIGHT).find(old.translate(_STRAIGHT))
            if start < 0:
                raise Unusable(f"String to replace not found in file.\nString: {old}")
            found = original.text[start : start + len(old)]
        count = original.text.count(found)
        if count > 1 and not given.get("replace_all"):
            raise Unusable(
                f"Found {count} matches of the string to replace, but replace_all is false. To replace all "
                "occurrences, set replace_all to true. To replace only one occurrence, please provide more "
                f"context to uniquely identify the instance.\nString: {old}"
            )
        return path, original, found

    def _load(self, path: Path) -> TextFile | None:
        try:
            # A mark of UTF-8 is a character like others for those who write.
            return read_text(path.read_bytes(), keeps_mark=True)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise WentWrong(system_error(error, path)) from error

    def _save(self, path: Path, raw: bytes) -> None:
        try:
            write_atomically(path, raw)
        except OSError as error:
            raise WentWrong(system_error(error, path)) from error


class _Crashed(Unusable):
    """The program has no words of its own for it."""

    def outcome(self) -> Outcome:
        text = f"Error calling tool (Edit): {self}"
        return Outcome(content=f"<tool_use_error>{text}</tool_use_error>", is_error=True, detail=text)


def _refuse_link(path: Path) -> None:
    if path.is_symlink():
        target = os.path.realpath(path)
        raise WentWrong(
            f"Refusing to write {path}: it is a symbolic link. Write to the link's target path instead: "
            f"{target}."
        )


def _in_quotes_of(found: str, old: str, new: str) -> str:
    """A new text with curly quotes where the text that it replaces has them."""
    if found == old:
        return new
    used = {plain for plain, pair in _CURLY.items() if any(mark in found for mark in pair)}
    made: list[str] = []
    for index, mark in enumerate(new):
        if mark in used:
            before = new[index - 1] if index else " "
            made.append(_CURLY[mark][0 if before.isspace() or before in "([{" else 1])
        else:
            made.append(mark)
    return "".join(made)
