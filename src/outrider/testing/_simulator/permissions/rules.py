"""Owns permission rules: their notation, where they come from, and whether one covers a call.

What follows from a rule that does is decided in `_permissions`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast
from urllib.parse import urlsplit

import msgspec

from outrider.wire import JsonObject

if TYPE_CHECKING:
    from outrider.testing._simulator.program.invocation import Invocation

__all__ = ["EDITING", "READING", "Behavior", "Rule", "RuleBook", "covers_path", "read_rule"]

Behavior: TypeAlias = Literal["allow", "deny", "ask"]

_BEHAVIORS: Final[tuple[Behavior, ...]] = ("allow", "deny", "ask")

READING: Final = frozenset({"Read", "Glob", "Grep"})
EDITING: Final = frozenset({"Edit", "Write", "NotebookEdit"})
_ALIASES: Final = {"Task": "Agent"}
_FILES: Final = {
    "userSettings": ("user", "settings.json"),
    "projectSettings": ("project", "settings.json"),
    "localSettings": ("local", "settings.local.json"),
}


class Rule(msgspec.Struct, frozen=True):
    """One rule: `Bash`, `Bash(git push:*)`, `mcp__files`."""

    tool: str
    content: str | None
    source: str
    """As the program names it: `cliArg`, `flagSettings`, `localSettings`, `session`, …"""

    @property
    def text(self) -> str:
        return self.tool if self.content is None else f"{self.tool}({self.content})"

    def covers_tool(self, name: str) -> bool:
        """Whether it is about the tool as a whole."""
        if self.content not in (None, "*") or (self.content == "*" and name in READING | EDITING):
            return False
        own, name = _ALIASES.get(self.tool, self.tool), _ALIASES.get(name, name)
        if own == name or ("*" in own and fnmatchcase(name, own)):
            return True
        return own.startswith("mcp__") and own.count("__") == 1 and name.startswith(f"{own}__")

    def covers_command(self, command: str) -> bool:
        """Whether it is about this shell command, which has no operators in it."""
        if self.tool != "Bash" or self.content is None:
            return False
        pattern, command = self.content.strip(), command.strip()
        for ending in (":*", " *"):
            if pattern.endswith(ending) and "*" not in pattern[: -len(ending)]:
                start = pattern[: -len(ending)]
                return command == start or command.startswith(f"{start} ")
        if "*" not in pattern:
            return command == pattern
        return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), command, re.DOTALL) is not None

    def is_exact(self, command: str) -> bool:
        """Whether it names just this command; what follows it may be open."""
        if self.tool != "Bash" or self.content is None:
            return False
        return self.content.strip().removesuffix(":*") == command.strip()

    def covers_url(self, url: str) -> bool:
        domain = (self.content or "").removeprefix("domain:")
        return self.tool == "WebFetch" and bool(domain) and fnmatchcase(urlsplit(url).hostname or "", domain)


def read_rule(text: str, source: str) -> Rule:
    """Read a rule as it is written in settings and on the command line."""
    found = re.fullmatch(r"([^()]+)\((.*)\)", text.strip(), re.DOTALL)
    if found is None:
        return Rule(text.strip(), None, source)
    return Rule(found[1], found[2], source)


class RuleBook:
    """The rules of a run, and the folders that it may work in."""

    def __init__(self, invocation: Invocation, cwd: Path, config_dir: Path) -> None:
        self._cwd = cwd
        self._rules: list[tuple[Behavior, Rule]] = []
        self.folders: list[Path] = [cwd, *(_below(cwd, folder) for folder in invocation.add_dirs)]
        self.default_mode: str | None = None
        """Of the settings."""
        self._take("cliArg", {"allow": invocation.allowed_tools, "deny": invocation.disallowed_tools})
        self._take_settings("flagSettings", invocation.settings)
        wanted = invocation.setting_sources
        for source, (short, name) in _FILES.items():
            if wanted is None or short in wanted:
                folder = config_dir if short == "user" else cwd / ".claude"
                self._take_settings(source, _read_json(folder / name))

    def _take_settings(self, source: str, settings: JsonObject) -> None:
        permissions = settings.get("permissions")
        if not isinstance(permissions, dict):
            return
        given = cast("JsonObject", permissions)
        self._take(source, given)
        self.folders += [_below(self._cwd, folder) for folder in _texts(given.get("additionalDirectories"))]
        mode = given.get("defaultMode")
        self.default_mode = self.default_mode or (mode if isinstance(mode, str) else None)

    def _take(self, source: str, given: JsonObject) -> None:
        for behavior in _BEHAVIORS:
            self.add(behavior, [read_rule(text, source) for text in _texts(given.get(behavior))])

    def add(self, behavior: Behavior, rules: Iterable[Rule]) -> None:
        self._rules.extend((behavior, rule) for rule in rules)

    def remove(self, behavior: Behavior, rules: Iterable[Rule]) -> None:
        """Those that were added with the same source."""
        gone = {(behavior, rule) for rule in rules}
        self._rules = [entry for entry in self._rules if entry not in gone]

    def clear(self, behavior: Behavior, source: str) -> None:
        self._rules = [
            (kind, rule) for kind, rule in self._rules if kind != behavior or rule.source != source
        ]

    def add_folders(self, folders: Iterable[str]) -> None:
        self.folders += [_below(self._cwd, folder) for folder in folders]

    def remove_folders(self, folders: Iterable[str]) -> None:
        gone = {_below(self._cwd, folder) for folder in folders}
        self.folders = [folder for folder in self.folders if folder not in gone]

    def __iter__(self) -> Iterator[tuple[Behavior, Rule]]:
        return iter(self._rules)

    def of(self, behavior: Behavior) -> list[Rule]:
        return [rule for kind, rule in self._rules if kind == behavior]

    def for_tool(self, behavior: Behavior, name: str) -> Rule | None:
        """The rule about the tool as a whole, if there is one."""
        return next((rule for rule in self.of(behavior) if rule.covers_tool(name)), None)

    def for_path(self, behavior: Behavior, name: str, path: Path) -> Rule | None:
        """The rule about that file, for a tool that reads or changes files."""
        kind = "Read" if name in READING else "Edit"
        for rule in self.of(behavior):
            if rule.tool in (kind, name) and covers_path(rule, path, self._cwd):
                return rule
        return None

    def for_command(self, behavior: Behavior, command: str) -> Rule | None:
        return next((rule for rule in self.of(behavior) if rule.covers_command(command)), None)

    def for_url(self, behavior: Behavior, url: str) -> Rule | None:
        return next((rule for rule in self.of(behavior) if rule.covers_url(url)), None)

    def holds(self, path: Path) -> bool:
        """Whether the file is in a folder that the run may work in."""
        return any(path == folder or folder in path.parents for folder in self.folders)


def covers_path(rule: Rule, path: Path, cwd: Path) -> bool:
    """Patterns are those of gitignore files, below the working folder; `//` begins at the root."""
    pattern = rule.content
    if pattern is None:
        return False
    if pattern.startswith("//"):
        root, pattern = Path("/"), pattern[1:]
    elif pattern.startswith("~/"):
        root, pattern = Path.home(), pattern[1:]
    else:
        root, pattern = cwd, pattern.removeprefix(".") if pattern.startswith("./") else pattern
    try:
        inner = path.relative_to(root).as_posix()
    except ValueError:
        return False
    return _gitignore(pattern).fullmatch(inner) is not None


@cache
def _gitignore(pattern: str) -> re.Pattern[str]:
    anchored = "/" in pattern.rstrip("/")
    made = "" if anchored else "(?:.*/)?"
    rest = pattern.strip("/")
    while rest:
        if found := re.match(r"\*\*/", rest):
            made += "(?:.*/)?"
        elif found := re.match(r"\*\*", rest):
            made += ".*"
        elif found := re.match(r"\*", rest):
            made += "[^/]*"
        elif found := re.match(r"\?", rest):
            made += "[^/]"
        elif found := re.match(r"\[!?[^]]+\]", rest):
            made += found[0].replace("[!", "[^")
        else:
            made += re.escape(rest[0])
        rest = rest[found.end() if found else 1 :]
    # A folder stands for all that is in it.
    return re.compile(made + "(?:/.*)?", re.DOTALL)


def _below(cwd: Path, folder: str) -> Path:
    return Path(cwd, folder).resolve()


def _texts(value: object) -> list[str]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        return []
    return [item for item in cast("Sequence[object]", value) if isinstance(item, str)]


def _read_json(path: Path) -> JsonObject:
    """A file that is not there or cannot be read counts for nothing, as in the program."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return cast("JsonObject", found) if isinstance(found, dict) else {}
