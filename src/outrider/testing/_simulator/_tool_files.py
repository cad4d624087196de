"""Owns the tools `Write` and `Edit` of the simulated agent, and what it knows of the files that it saw.

Where a path may lie is a question of permission, not of these.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from outrider.testing._simulator._text_files import TextFile, differences, read_text, write_atomically
from outrider.testing._simulator._tool_results import Unusable, WentWrong, system_error
from outrider.testing._simulator._world import Outcome
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Files", "Paths"]

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
