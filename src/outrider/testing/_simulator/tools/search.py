"""Owns the tools `Glob` and `Grep` of the simulated agent, in Python: no program is needed for them.

Regular expressions are those of Python; the program's differ in rare words.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from outrider.testing._simulator.tools.results import WentWrong
from outrider.testing._simulator.world import Outcome
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from outrider.testing._simulator.tools.files import Paths

__all__ = ["Glob", "Search", "files_under", "is_glob_match", "split_globs"]


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


_MOST_FILES: Final = 100
_USUAL_LIMIT: Final = 250
_LONGEST_LINE: Final = 500
_REJECTED: Final = "Search failed — ripgrep rejected the pattern, glob, or file type without searching:\nrg: "
_TYPES: Final = {
    "c": "*.c *.h",
    "cpp": "*.cpp *.cc *.cxx *.hpp *.hh *.h",
    "cs": "*.cs",
    "css": "*.css *.scss",
    "go": "*.go",
    "html": "*.htm *.html *.ejs",
    "java": "*.java *.jsp",
    "js": "*.js *.jsx *.mjs *.cjs *.vue",
    "json": "*.json",
    "kotlin": "*.kt *.kts",
    "markdown": "*.md *.markdown *.mdx",
    "md": "*.md *.markdown *.mdx",
    "php": "*.php",
    "py": "*.py *.pyi",
    "python": "*.py *.pyi",
    "ruby": "*.rb *.gemspec Gemfile Rakefile",
    "rust": "*.rs",
    "sh": "*.sh *.bash *.zsh",
    "sql": "*.sql",
    "swift": "*.swift",
    "toml": "*.toml",
    "ts": "*.ts *.tsx *.cts *.mts",
    "txt": "*.txt",
    "xml": "*.xml",
    "yaml": "*.yaml *.yml",
}


class _Line(msgspec.Struct, frozen=True):
    number: int
    text: str
    is_match: bool


class Search:
    """Finds files, by their names and by what is in them."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths

    # Glob

    def glob(self, given: JsonObject) -> Outcome:
        began = time.monotonic()
        pattern: str = given["pattern"]
        folder = self._paths.find(given.get("path") or ".")
        cwd = self._paths.cwd()
        if not folder.exists():
            note = f"Note: your current working directory is {cwd}."
            raise WentWrong(f"Directory does not exist: {folder}. {note}")
        if not folder.is_dir():
            raise WentWrong(f"Path is not a directory: {folder}")
        if Path(pattern).is_absolute():
            folder, pattern = _split_absolute(pattern)
        wanted = Glob.read(pattern)
        found = [
            path
            for path in files_under(folder, everything=True)
            if wanted.matches(path.relative_to(folder).as_posix())
        ]
        found.sort(key=lambda path: (_changed(path), str(path)))
        shown = [self._name(path) for path in found[:_MOST_FILES]]
        detail: JsonObject = {
            "filenames": shown,
            "durationMs": int((time.monotonic() - began) * 1000),
            "numFiles": len(shown),
            "truncated": len(found) > len(shown),
            "totalMatches": len(found),
            "countIsComplete": True,
        }
        lines = list(shown)
        if len(found) > len(shown):
            lines.append(
                f"(Showing {len(shown)} of {len(found)} matching files; {len(found) - len(shown)} more are "
                "not listed. Narrow the pattern or path to see the rest.)"
            )
        return Outcome(content="\n".join(lines) or "No files found", detail=detail)

    # Grep

    def grep(self, given: JsonObject) -> Outcome:
        place = self._paths.find(given.get("path") or ".")
        if not place.exists():
            note = f"Note: your current working directory is {self._paths.cwd()}."
            raise WentWrong(f"Path does not exist: {given['path']}. {note}")
        pattern = _compile(given)
        files = self._candidates(place, given)
        mode = given.get("output_mode", "files_with_matches")
        limit = given.get("head_limit", _USUAL_LIMIT)
        page = _Page(int(given.get("offset") or 0), int(limit) or None)
        if mode == "files_with_matches":
            return self._names(pattern, files, page)
        if mode == "count":
            return self._counts(pattern, files, page)
        return self._content(pattern, files, page, given, place)

    def _candidates(self, place: Path, given: JsonObject) -> list[tuple[Path, str]]:
        """The files to look into, with what is in them."""
        if place.is_file():
            return self._load([place])
        wanted = split_globs(given.get("glob") or "")
        kind: str | None = given.get("type")
        if kind is not None and kind not in _TYPES:
            raise WentWrong(f"{_REJECTED}unrecognized file type: {kind}")
        typed = split_globs(_TYPES[kind]) if kind is not None else []
        # Patterns count from the working folder, wherever the search begins.
        return self._load(
            path
            for path in files_under(place, everything=False)
            if is_glob_match(wanted, self._name(path)) and is_glob_match(typed, path.name)
        )

    def _load(self, paths: Iterable[Path]) -> list[tuple[Path, str]]:
        found: list[tuple[Path, str]] = []
        for path in paths:
            try:
                raw = path.read_bytes()
            except OSError:
                continue
            if b"\0" not in raw:
                found.append((path, raw.decode("utf-8", "replace")))
        return found

    def _names(self, pattern: re.Pattern[str], files: list[tuple[Path, str]], page: _Page) -> Outcome:
        paths = [path for path, text in files if next(_matching(pattern, text), None) is not None]
        paths.sort(key=lambda path: (-_changed(path), str(path)))
        names = [self._name(path) for path in paths]
        shown = page.of(names)
        detail: JsonObject = {
            "mode": "files_with_matches",
            "filenames": shown,
            "numFiles": len(shown),
            "totalFiles": len(names),
            **page.applied(len(names)),
        }
        if not shown:
            return Outcome(content="No files found", detail=detail)
        word = "file" if len(shown) == 1 else "files"
        told = page.told(len(names))
        head = f"Found {len(shown)} {word}{f' {told}' if told else ''}"
        return Outcome(content="\n".join([head, *shown]), detail=detail)

    def _counts(self, pattern: re.Pattern[str], files: list[tuple[Path, str]], page: _Page) -> Outcome:
        counts = [(self._name(path), len(set(_matching(pattern, text)))) for path, text in files]
        counts = [(name, count) for name, count in counts if count]
        total = sum(count for _, count in counts)
        shown = page.of([f"{name}:{count}" for name, count in counts])
        content = "\n".join(shown)
        detail: JsonObject = {
            "mode": "count",
            "numFiles": len(counts),
            "filenames": [],
            "content": content,
            "numMatches": total,
            **page.applied(len(counts)),
        }
        times = "occurrence" if total == 1 else "occurrences"
        word = "file" if len(counts) == 1 else "files"
        told = page.told(len(counts))
        end = f"Found {total} total {times} across {len(counts)} {word}."
        end += f" with pagination = {told}" if told else ""
        return Outcome(content=f"{content or 'No matches found'}\n\n{end}", detail=detail)

    def _content(
        self,
        pattern: re.Pattern[str],
        files: list[tuple[Path, str]],
        page: _Page,
        given: JsonObject,
        place: Path,
    ) -> Outcome:
        around = given.get("-C", given.get("context"))
        before = int(around if around is not None else given.get("-B") or 0)
        after = int(around if around is not None else given.get("-A") or 0)
        numbered = given.get("-n", True)
        lines: list[str] = []
        for path, text in files:
            prefix = "" if place.is_file() else self._name(path)
            if given.get("-o"):
                groups = [_parts(pattern, text)]
            else:
                groups = _groups(text, sorted(set(_matching(pattern, text))), before, after)
            for group in groups:
                if not group:
                    continue
                if lines and (before or after):
                    lines.append("--")
                for line in group:
                    mark = ":" if line.is_match else "-"
                    head = f"{prefix}{mark}" if prefix else ""
                    head += f"{line.number}{mark}" if numbered else ""
                    long = len(line.text) > _LONGEST_LINE
                    lines.append(head + ("[Omitted long matching line]" if long else line.text))
        shown = page.of(lines)
        content = "\n".join(shown)
        detail: JsonObject = {
            "mode": "content",
            "numFiles": 0,
            "filenames": [],
            "content": content,
            "numLines": len(shown),
            "totalLines": len(lines),
            **page.applied(len(lines)),
        }
        told = page.told(len(lines))
        end = f"\n\n[Showing results with pagination = {told}]" if told else ""
        return Outcome(content=(content or "No matches found") + end, detail=detail)

    def _name(self, path: Path) -> str:
        cwd = self._paths.cwd()
        return path.relative_to(cwd).as_posix() if path.is_relative_to(cwd) else str(path)


class _Page(msgspec.Struct, frozen=True):
    offset: int
    limit: int | None

    def of(self, lines: list[str]) -> list[str]:
        return lines[self.offset : None if self.limit is None else self.offset + self.limit]

    def _is_cut(self, total: int) -> bool:
        return self.limit is not None and total - self.offset > self.limit

    def applied(self, total: int) -> JsonObject:
        limit: JsonObject = {"appliedLimit": self.limit} if self._is_cut(total) else {}
        return {**limit, "appliedOffset": self.offset} if self.offset else limit

    def told(self, total: int) -> str:
        parts = [f"limit: {self.limit}"] if self._is_cut(total) else []
        return ", ".join([*parts, f"offset: {self.offset}"] if self.offset else parts)


def _split_absolute(pattern: str) -> tuple[Path, str]:
    fixed = re.split(r"[*?\[{]", pattern, maxsplit=1)[0]
    folder = fixed[: fixed.rindex("/") + 1]
    return Path(folder), f"/{pattern[len(folder) :]}"


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _compile(given: JsonObject) -> re.Pattern[str]:
    flags = re.MULTILINE | (re.IGNORECASE if given.get("-i") else 0)
    flags |= re.DOTALL if given.get("multiline") else 0
    try:
        return re.compile(given["pattern"], flags)
    except re.error as error:
        why = "unclosed group" if "unterminated subpattern" in error.msg else error.msg
        raise WentWrong(
            f"{_REJECTED}regex parse error:\n    (?:{given['pattern']})\n    ^\nerror: {why}"
        ) from error


def _matching(pattern: re.Pattern[str], text: str) -> Iterator[int]:
    """The numbers of the lines, from 0, that a match touches."""
    if pattern.flags & re.DOTALL:
        for match in pattern.finditer(text):
            first = text.count("\n", 0, match.start())
            yield from range(first, first + match[0].removesuffix("\n").count("\n") + 1)
        return
    for number, line in enumerate(_lines(text)):
        if pattern.search(line):
            yield number


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return lines


def _parts(pattern: re.Pattern[str], text: str) -> list[_Line]:
    return [
        _Line(number, match[0], True)
        for number, line in enumerate(_lines(text), 1)
        for match in pattern.finditer(line)
        if match[0]
    ]


def _groups(text: str, numbers: list[int], before: int, after: int) -> list[list[_Line]]:
    """Matching lines with those around them; what touches is one group."""
    lines = _lines(text)
    matches = set(numbers)
    shown = sorted(
        {
            number
            for match in numbers
            for number in range(max(match - before, 0), min(match + after + 1, len(lines)))
        }
    )
    groups: list[list[_Line]] = []
    last = -2
    for number in shown:
        if number != last + 1 or (not before and not after and not groups):
            groups.append([])
        groups[-1].append(_Line(number + 1, lines[number], number in matches))
        last = number
    return groups
