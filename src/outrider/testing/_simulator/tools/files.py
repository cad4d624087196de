"""Owns the tools `Read`, `Write` and `Edit` of the simulated agent, for files of text.

Where a path may lie is a question of permission, not of these.
"""

from __future__ import annotations

import difflib
import errno
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from outrider.testing._simulator.tools.results import Unusable, WentWrong
from outrider.testing._simulator.world import Outcome
from outrider.wire import JsonObject

__all__ = ["Files"]

_CONTEXT: Final = 3
_CURRENT: Final = " (file state is current in your context — no need to Read it back)"


class Files:
    """Reads and writes files, and knows which of them the model has seen whole."""

    def __init__(self, environment: Mapping[str, str], cwd: Callable[[], Path]) -> None:
        self._environment, self._cwd = environment, cwd
        self._seen: set[Path] = set()

    def _find(self, path: str) -> Path:
        home = self._environment.get("HOME")
        if home is not None and (path == "~" or path.startswith("~/")):
            path = home + path[1:]
        return Path(os.path.normpath(self._cwd() / path))

    def mark_read(self, path: str) -> None:
        """Take a file for read, as `seed_read_state` asks."""
        self._seen.add(self._find(path))

    def read(self, given: JsonObject) -> Outcome:
        path = self._find(given["file_path"])
        text = self._load(path)
        if text is None:
            raise WentWrong(self._missing())
        offset = max(int(given.get("offset", 1)), 0)
        limit: int | None = given.get("limit") or None
        lines, first = text.split("\n"), max(offset - 1, 0)
        shown = lines[first : None if limit is None else first + limit]
        (self._seen.add if len(shown) == len(lines) else self._seen.discard)(path)
        if not text:
            told = _warning("the file exists but the contents are empty.")
        elif not shown:
            told = _warning(
                f"the file exists but is shorter than the provided offset ({offset}). "
                f"The file has {len(lines)} lines."
            )
        else:
            told = "\n".join(f"{number}\t{line}" for number, line in enumerate(shown, offset))
        detail: JsonObject = {
            "filePath": given["file_path"],
            "content": "\n".join(shown),
            "numLines": len(shown),
            "startLine": offset,
            "totalLines": len(lines),
        }
        return Outcome(content=told, detail={"type": "text", "file": detail})

    def write(self, given: JsonObject) -> Outcome:
        path, content = self._find(given["file_path"]), str(given["content"])
        # An empty file is as good as none.
        original = self._load(path) or None
        self._save(path, content)
        self._seen.add(path)
        detail: JsonObject = {
            "type": "create" if original is None else "update",
            "filePath": given["file_path"],
            "content": content,
            "structuredPatch": [] if original is None else _patch(original, content),
            "originalFile": original,
            "userModified": False,
        }
        told = (
            f"File created successfully at: {given['file_path']}"
            if original is None
            else f"The file {given['file_path']} has been updated successfully."
        )
        return Outcome(content=told + _CURRENT, detail=detail)

    def check_edit(self, given: JsonObject) -> None:
        """Raises `Unusable` for an edit that cannot be made."""
        self._original(given)

    def edit(self, given: JsonObject) -> Outcome:
        path, original = self._find(given["file_path"]), self._original(given)
        old, new = str(given["old_string"]), str(given["new_string"])
        replaces_all = bool(given.get("replace_all"))
        text = original.replace(old, new, -1 if replaces_all else 1) if old else new
        is_seen = path in self._seen or not path.exists()
        self._save(path, text)
        detail: JsonObject = {
            "filePath": given["file_path"],
            "oldString": old,
            "newString": new,
            "originalFile": original,
            "structuredPatch": _patch(original, text),
            "userModified": False,
            "replaceAll": replaces_all,
        }
        if not is_seen:
            detail["contentNotInModelContext"] = True
        how = ". All occurrences were successfully replaced." if replaces_all else " successfully."
        told = f"The file {given['file_path']} has been updated{how}{_CURRENT if is_seen else ''}"
        return Outcome(content=told, detail=detail)

    def _original(self, given: JsonObject) -> str:
        """What is in the file that is to be edited."""
        old = str(given["old_string"])
        if old == given["new_string"]:
            raise Unusable("No changes to make: old_string and new_string are exactly the same.")
        original = self._load(self._find(given["file_path"]))
        if original is None:
            if old:
                raise Unusable(self._missing())
            return ""
        if not old:
            if original.strip():
                raise Unusable("Cannot create new file - file already exists.")
            return original
        count = original.count(old)
        if not count:
            raise Unusable(f"String to replace not found in file.\nString: {old}")
        if count > 1 and not given.get("replace_all"):
            raise Unusable(
                f"Found {count} matches of the string to replace, but replace_all is false. To replace all "
                "occurrences, set replace_all to true. To replace only one occurrence, please provide more "
                f"context to uniquely identify the instance.\nString: {old}"
            )
        return original

    def _missing(self) -> str:
        return f"File does not exist. Note: your current working directory is {self._cwd()}."

    def _load(self, path: Path) -> str | None:
        """The text of a file; none if there is no such file."""
        try:
            return path.read_bytes().decode("utf-8", "replace").replace("\r\n", "\n")
        except FileNotFoundError:
            return None
        except IsADirectoryError:
            raise WentWrong(f"EISDIR: illegal operation on a directory, read '{path}'") from None
        except OSError as error:
            raise WentWrong(_system_error(error, path)) from error

    def _save(self, path: Path, text: str) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode("utf-8", "replace"))
        except OSError as error:
            raise WentWrong(_system_error(error, path)) from error


def _warning(text: str) -> str:
    return f"<system-reminder>Warning: {text}</system-reminder>"


def _system_error(error: OSError, path: Path) -> str:
    name = errno.errorcode.get(error.errno or 0, "EIO")
    return f"{name}: {(error.strerror or str(error)).lower()}, open '{path}'"


def _patch(before: str, after: str) -> list[JsonObject]:
    """What changed, as `structuredPatch` has it."""
    old, new = before.splitlines(), after.splitlines()
    hunks: list[JsonObject] = []
    for group in difflib.SequenceMatcher(None, old, new).get_grouped_opcodes(_CONTEXT):
        lines: list[str] = []
        for kind, old_start, old_end, new_start, new_end in group:
            if kind == "equal":
                lines += [f" {line}" for line in old[old_start:old_end]]
            else:
                lines += [f"-{line}" for line in old[old_start:old_end]]
                lines += [f"+{line}" for line in new[new_start:new_end]]
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
