"""Owns permission rules: their notation, where they come from, and whether one covers a call.

A rule is about a tool as a whole, or about commands and files that are named exactly or by their beginning.
What follows from a rule is decided in `judge`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast
from urllib.parse import urlsplit

import msgspec

from outrider.wire import JsonObject

if TYPE_CHECKING:
    from outrider.testing._simulator.program.invocation import Invocation
    from outrider.testing._simulator.world import ToolCall

__all__ = ["EDITING", "READING", "Behavior", "Rule", "RuleBook", "path_of", "read_rule", "subjects"]

Behavior: TypeAlias = Literal["allow", "deny", "ask"]

_BEHAVIORS: Final[tuple[Behavior, ...]] = ("allow", "deny", "ask")

READING: Final = frozenset({"Read", "Glob", "Grep"})
EDITING: Final = frozenset({"Edit", "Write", "NotebookEdit"})
_ALIASES: Final = {"Task": "Agent"}
_OPEN_ENDS: Final = (":*", " *", "/**", "**", "*")
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

    def covers(self, call: ToolCall, cwd: Path) -> bool:
        """Whether it is about what the call is for: a command, a file or a site."""
        content = (self.content or "").removeprefix("./").strip()
        kind = "Read" if call.name in READING else "Edit" if call.name in EDITING else call.name
        if not content or self.tool not in (call.name, kind):
            return False
        return any(_fits(content, text) for text in subjects(call, cwd))

    def is_exact(self, call: ToolCall) -> bool:
        """Whether it names just this command; what follows it may be open."""
        return (self.content or "").strip().removesuffix(":*") == str(call.input.get("command")).strip()


def _fits(pattern: str, text: str) -> bool:
    for ending in _OPEN_ENDS:
        if pattern.endswith(ending):
            start = pattern.removesuffix(ending)
            between = {":*": " ", " *": " ", "/**": "/"}.get(ending, "")
            return text == start or text.startswith(f"{start}{between}")
    return text == pattern


def subjects(call: ToolCall, cwd: Path) -> list[str]:
    """What the content of a rule is compared with."""
    if call.name == "Bash":
        return [str(call.input.get("command", "")).strip()]
    if call.name == "WebFetch":
        return [f"domain:{urlsplit(str(call.input.get('url', ''))).hostname}"]
    path = path_of(call, cwd)
    if path is None:
        return []
    inner = path.relative_to(cwd).as_posix() if path.is_relative_to(cwd) else ""
    return [f"/{path}", *([inner, f"/{inner}"] if inner else [])]


def path_of(call: ToolCall, cwd: Path) -> Path | None:
    """The file that a call is about; none if it is about none."""
    for name in ("file_path", "notebook_path", "path"):
        given = call.input.get(name)
        if call.name in READING | EDITING and isinstance(given, str):
            # Not by `Path`, which raises for links that lead in a circle and for users that are not there.
            return Path(os.path.realpath(os.path.join(cwd, os.path.expanduser(given))))  # noqa: PTH111, PTH118
    return cwd if call.name in ("Glob", "Grep") else None


def read_rule(text: str, source: str) -> Rule:
    """Read a rule as it is written in settings and on the command line."""
    name, bracket, rest = text.strip().partition("(")
    return Rule(name, rest.removesuffix(")") if bracket else None, source)


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

    def for_tool(self, behavior: Behavior, name: str) -> Rule | None:
        """The rule about the tool as a whole, if there is one."""
        return next((rule for kind, rule in self if kind == behavior and rule.covers_tool(name)), None)

    def for_call(self, behavior: Behavior, call: ToolCall) -> Rule | None:
        """The rule about what the call is for, if there is one."""
        return next((rule for kind, rule in self if kind == behavior and rule.covers(call, self._cwd)), None)

    def holds(self, path: Path) -> bool:
        """Whether the file is in a folder that the run may work in."""
        return any(path.is_relative_to(folder) for folder in self.folders)


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
