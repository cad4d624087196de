"""Owns the patterns for paths that the search tools of the simulated agent understand, and files to ignore.

Does not look into files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

__all__ = ["Glob", "files_under", "is_glob_match", "split_globs"]

_OF_VERSIONING: Final = frozenset([".git", ".svn", ".hg", ".bzr", ".jj", ".sl"])


class Glob(msgspec.Struct, frozen=True):
    """A pattern: with a slash it counts from the top, without one it is for names at any depth."""

    pattern: re.Pattern[str]
    is_negative: bool = False
    is_for_folders: bool = False

    @classmethod
    def read(cls, text: str) -> Glob:
        """What a text means, in the language of ignore files."""
        is_negative = text.startswith("!")
        text = text.removeprefix("!")
        is_for_folders = text.endswith("/")
        text = text.removesuffix("/")
        if "/" not in text:
            text = f"**/{text}"
        return cls(re.compile(_regex(text.removeprefix("/")) + r"\Z"), is_negative, is_for_folders)

    def matches(self, path: str) -> bool:
        return self.pattern.match(path) is not None


def split_globs(text: str) -> list[Glob]:
    """The patterns in a text that has several, with commas or blanks between them; not those in braces."""
    parts: list[str] = []
    depth, part = 0, ""
    for mark in text:
        depth += {"{": 1, "}": -1}.get(mark, 0)
        if depth == 0 and (mark == "," or mark.isspace()):
            parts.append(part)
            part = ""
        else:
            part += mark
    return [Glob.read(part) for part in (*parts, part) if part]


def is_glob_match(globs: list[Glob], path: str) -> bool:
    """Whether a file is wanted: the last pattern that matches decides; if none does, it must not be named."""
    for glob in reversed(globs):
        if glob.matches(path):
            return not glob.is_negative
    return all(glob.is_negative for glob in globs)


def files_under(folder: Path, *, everything: bool) -> Iterator[Path]:
    """The files in a folder, also hidden ones; unless it is to be `everything`, without those that a
    repository ignores and those of the version control itself."""
    rules = [] if everything else list(_rules_above(folder))
    yield from _walk(folder, rules, everything or not _is_in_repository(folder), everything)


def _walk(
    folder: Path, rules: list[tuple[Path, Glob]], without_rules: bool, everything: bool
) -> Iterator[Path]:
    if not without_rules:
        rules = [*rules, *_rules_of(folder)]
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        path = Path(entry.path)
        is_folder = entry.is_dir(follow_symlinks=False)
        if not everything and (entry.name in _OF_VERSIONING or _is_ignored(path, is_folder, rules)):
            continue
        if is_folder:
            yield from _walk(path, rules, without_rules, everything)
        elif entry.is_file():
            yield path


def _is_in_repository(folder: Path) -> bool:
    return any((parent / ".git").exists() for parent in (folder, *folder.parents))


def _rules_above(folder: Path) -> Iterator[tuple[Path, Glob]]:
    for parent in reversed(folder.parents):
        if _is_in_repository(parent):
            yield from _rules_of(parent)


def _rules_of(folder: Path) -> Iterator[tuple[Path, Glob]]:
    try:
        text = (folder / ".gitignore").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for line in text.splitlines():
        if (rule := line.rstrip()) and not rule.startswith("#"):
            yield folder, Glob.read(rule)


def _is_ignored(path: Path, is_folder: bool, rules: list[tuple[Path, Glob]]) -> bool:
    for base, glob in reversed(rules):
        if glob.is_for_folders and not is_folder:
            continue
        if path.is_relative_to(base) and glob.matches(path.relative_to(base).as_posix()):
            return not glob.is_negative
    return False


def _regex(glob: str) -> str:
    made, index = "", 0
    while index < len(glob):
        rest = glob[index:]
        if rest.startswith("**/"):
            made, index = made + r"(?:.*/)?", index + 3
        elif rest.startswith("**"):
            made, index = made + r".*", index + 2
        elif rest[0] == "*":
            made, index = made + r"[^/]*", index + 1
        elif rest[0] == "?":
            made, index = made + r"[^/]", index + 1
        elif rest[0] == "[" and (found := re.match(r"\[([!^]?)(\]?[^\]]*)\]", rest)):
            negation = "^" if found[1] else ""
            inside = found[2].replace("\\", "\\\\")
            made, index = f"{made}[{negation}{inside}]", index + found.end()
        elif rest[0] == "{" and (end := _closing(rest)):
            choices = "|".join(_regex(choice) for choice in _choices(rest[1:end]))
            made, index = f"{made}(?:{choices})", index + end + 1
        elif rest[0] == "\\" and len(rest) > 1:
            made, index = made + re.escape(rest[1]), index + 2
        else:
            made, index = made + re.escape(rest[0]), index + 1
    return made


def _closing(text: str) -> int:
    depth = 0
    for index, mark in enumerate(text):
        depth += {"{": 1, "}": -1}.get(mark, 0)
        if depth == 0:
            return index
    return 0


def _choices(text: str) -> list[str]:
    choices, depth = [""], 0
    for mark in text:
        depth += {"{": 1, "}": -1}.get(mark, 0)
        if mark == "," and depth == 0:
            choices.append("")
        else:
            choices[-1] += mark
    return choices
