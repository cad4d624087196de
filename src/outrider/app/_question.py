"""Owns how a question to the person at the terminal looks: all that it is about, in lines that fit.

Does not ask. A question begins with a bar in the first column, where no text of the agent's ever stands, and
each line of the agent's in it has a gutter: nothing in it can pass for words of ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import msgspec
from rich.text import Text

from outrider.app._terminal import chopped, one_line, printable

if TYPE_CHECKING:
    from rich.console import Console

    from outrider import PermissionRequest, Question
    from outrider.app._terminal import Glyphs
    from outrider.wire.permissions import PermissionUpdate

__all__ = ["Row", "Sheet", "changes_of", "rules_of"]

_CHANGES: Final[Mapping[str, tuple[str, str]]] = {
    "old_string": ("- ", "red"),
    "new_string": ("+ ", "green"),
    "content": ("+ ", "green"),
    "new_source": ("+ ", "green"),
}
"""How what a tool would take away and put in looks, by its field."""

_FOLDERS: Final[Mapping[str, str]] = {"addDirectories": "folder", "removeDirectories": "no longer: folder"}

_DEEPEST: Final = 6
"""What is nested deeper is shown as JSON."""


class Row(NamedTuple):
    """A row of a question. There may be very many, so it is drawn when it is shown."""

    words: str
    style: str
    gutter: str = ""

    def drawn(self) -> Text:
        if not self.gutter:
            return Text(self.words, style=self.style)
        made = Text.assemble((self.gutter, "yellow"), " ", (self.words, self.style))
        made.rstrip()
        return made


class Sheet:
    """The rows of a question, for a console of a certain width."""

    def __init__(self, console: Console, glyphs: Glyphs) -> None:
        self._width = max(console.width, 8)
        self._glyphs = glyphs
        self.rows: list[Row] = []

    def bar(self, title: str) -> None:
        """Where a question begins."""
        head = f"{2 * self._glyphs.bar} {title} "
        bar = head + self._glyphs.bar * max(self._width - 1 - len(head), 0)
        self.rows.append(Row(bar, "bold yellow"))

    def say(self, words: str, style: str = "") -> None:
        """Words of ours, on as many rows as it takes."""
        first, *more = chopped(one_line(words), self._width - 5)
        self.rows.append(Row(first, style))
        self.rows += [Row(f"    {row}", style) for row in more]

    def quote(self, words: str, style: str = "", *, before: str = "") -> None:
        """Words of somebody else's, all of them, line by line in the gutter; `before` each line."""
        room = max(self._width - 3 - len(before), 1)
        for line in printable(words).removesuffix("\n").split("\n"):
            for number, row in enumerate(chopped(line, room)):
                # A line that goes on is no new one: in a command, that would be another command.
                sign = self._glyphs.goes_on if number else self._glyphs.gutter
                self.rows.append(Row(f"{before}{row}", style, sign))

    def fact(self, label: str, value: str, style: str = "") -> None:
        """Something that is called so: on one line if it is one."""
        if "\n" not in value:
            self.quote(f"{label}: {value}", style)
        else:
            self.quote(f"{label}:", "dim")
            self.quote(value, style, before="  ")

    # What it is about.

    def input(self, request: PermissionRequest) -> None:
        """All that a tool would be called with."""
        for label, field, value in _leaves(request.input):
            if field in _CHANGES and isinstance(value, str):
                sign, style = _CHANGES[field]
                self.quote(f"{label}:", "dim")
                self.quote(value, style, before=sign)
            else:
                style = "cyan" if field == "command" else ""
                self.fact(label, value if isinstance(value, str) else _json(value), style)
        if not request.input:
            self.quote("(nothing)", "dim")

    def reasons(self, request: PermissionRequest) -> None:
        """What the program says about the call, a line for each thing."""
        rule, folder = request.matched_ask_rule, request.computer_folder
        for label, fact in (
            ("why", request.decision_reason),
            ("rule", rule and f"{_rule(rule.tool_name, rule.rule_content)} of {rule.source}"),
            ("path", request.blocked_path),
            ("folder", folder and f"{folder.path} of {folder.computer_name or 'this computer'}"),
            ("subagent", request.agent_id),
        ):
            if fact:
                self.say(f"{label}: {fact}", "dim")

    def updates(self, updates: Sequence[PermissionUpdate]) -> None:
        """What would change for the rest of the session, each of it."""
        self.say("With `a`, until the session ends:")
        for update in updates:
            for words in changes_of(update):
                self.quote(one_line(words))

    def choices(self, question: Question) -> None:
        """A question of the agent's own, and what it offers."""
        self.quote(question.text, "bold")
        for number, option in enumerate(question.options, 1):
            self.quote(f"{number} {one_line(option.label)}", "bold")
            for words in filter(None, (option.description, option.preview)):
                self.quote(words, "dim", before="    ")


def rules_of(update: PermissionUpdate) -> list[str]:
    """The rules of an update, as the agent writes them."""
    return [_rule(rule.tool_name, rule.rule_content) for rule in update.rules or ()]


def changes_of(update: PermissionUpdate) -> Iterator[str]:
    """What an update changes, in words; nothing for one of a kind that is not known."""
    made = {"addRules": "", "removeRules": "no longer: ", "replaceRules": "in place of all such rules: "}
    for rule in rules_of(update) if update.type in made else ():
        yield f"{made[update.type]}{update.behavior or 'allow'} {rule}"
    if update.type == "setMode" and update.mode:
        yield f"permission mode {update.mode}"
    for folder in (update.directories or ()) if update.type in _FOLDERS else ():
        yield f"{_FOLDERS[update.type]} {folder}"


def _rule(tool: str, content: str | None) -> str:
    return f"{tool}({content})" if content else tool


def _leaves(
    value: object, label: str = "", field: str = "", depth: int = 0
) -> Iterator[tuple[str, str, object]]:
    """Each value in an input: what to call it, its field, and itself. None is left out, however deep."""
    if isinstance(value, Mapping) and value and depth < _DEEPEST:
        for key, each in cast("Mapping[object, object]", value).items():
            name = one_line(str(key)) or '""'
            yield from _leaves(each, f"{label}.{name}" if label else name, name, depth + 1)
    elif isinstance(value, list) and value and depth < _DEEPEST:
        for number, each in enumerate(cast("list[object]", value), 1):
            yield from _leaves(each, f"{label}[{number}]", field, depth + 1)
    elif depth or value:
        yield label, field, value


def _json(value: object) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode()
