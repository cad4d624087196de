"""Asks the user at the terminal: for permissions, choices, and approval of plans.

Without a terminal, every such question is denied, with a text that says how to allow it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from shlex import quote
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import anyio
import anyio.lowlevel
import msgspec
from rich.text import Text

from outrider import allow, deny
from outrider._display import chopped, one_line, printable
from outrider.app._render import as_json, call_in_words, counted, shortened, tool_name
from outrider.handlers import decline

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from rich.console import Console

    from outrider import Answer, PermissionRequest, Plan, Question
    from outrider.app._render import Stream
    from outrider.app._terminal import Glyphs, Terminal
    from outrider.handlers import ElicitationRequest
    from outrider.options import OptionFields
    from outrider.wire import JsonObject
    from outrider.wire.control import ElicitationResult
    from outrider.wire.permissions import PermissionUpdate


# Questions.

_CHANGES: Final[Mapping[str, tuple[str, str]]] = {
    "old_string": ("- ", "red"),
    "new_string": ("+ ", "green"),
    "content": ("+ ", "green"),
    "new_source": ("+ ", "green"),
}
"""How to show what a tool removes and adds, by the field of its input."""

_FOLDERS: Final[Mapping[str, str]] = {"addDirectories": "folder", "removeDirectories": "remove folder"}

_DEEPEST: Final = 6
"""Values nested deeper are shown as JSON."""


class Row(NamedTuple):
    """A row of a question; rendered only when shown, because there may be very many."""

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
    """The rows of a question, laid out for the width of a console."""

    def __init__(self, console: Console, glyphs: Glyphs) -> None:
        self._width = max(console.width, 8)
        self._glyphs = glyphs
        self.rows: list[Row] = []

    def bar(self, title: str) -> None:
        """Add the bar that begins a question."""
        head = f"{2 * self._glyphs.bar} {title} "
        bar = head + self._glyphs.bar * max(self._width - 1 - len(head), 0)
        self.rows.append(Row(bar, "bold yellow"))

    def say(self, words: str, style: str = "") -> None:
        """Add text of Outrider's, on as many rows as it takes."""
        first, *more = chopped(one_line(words), self._width - 5)
        self.rows.append(Row(first, style))
        self.rows += [Row(f"    {row}", style) for row in more]

    def quote(self, words: str, style: str = "", *, before: str = "") -> None:
        """Add foreign text, complete, line by line beside the gutter; `before` goes before each line."""
        room = max(self._width - 3 - len(before), 1)
        for line in printable(words).removesuffix("\n").split("\n"):
            for number, row in enumerate(chopped(line, room)):
                # Mark a continued line: in a shell command, a new line would be a new command.
                sign = self._glyphs.goes_on if number else self._glyphs.gutter
                self.rows.append(Row(f"{before}{row}", style, sign))

    def fact(self, label: str, value: str, style: str = "") -> None:
        """Add a labelled value."""
        if "\n" not in value:
            self.quote(f"{label}: {value}", style)
        else:
            self.quote(f"{label}:", "dim")
            self.quote(value, style, before="  ")

    # The parts of a question.

    def input(self, input: JsonObject) -> None:
        """Add the whole input of a tool call."""
        for label, field, value in _leaves(input):
            if field in _CHANGES and isinstance(value, str):
                sign, style = _CHANGES[field]
                self.quote(f"{label}:", "dim")
                self.quote(value, style, before=sign)
            else:
                style = "cyan" if field == "command" else ""
                self.fact(label, value if isinstance(value, str) else as_json(value), style)
        if not input:
            self.quote("(nothing)", "dim")

    def reasons(self, request: PermissionRequest) -> None:
        """Add what Claude Code says about the call."""
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
        """Add every change for the rest of the session."""
        self.say("`a` allows until the session ends:")
        for update in updates:
            for words in changes_of(update):
                self.quote(one_line(words))

    def choices(self, question: Question) -> None:
        """Add a question of the agent's, and its options."""
        self.quote(question.text, "bold")
        for number, option in enumerate(question.options, 1):
            self.quote(f"{number} {one_line(option.label)}", "bold")
            for words in filter(None, (option.description, option.preview)):
                self.quote(words, "dim", before="    ")


def rules_of(update: PermissionUpdate) -> list[str]:
    """The rules of an update, as Claude Code writes them."""
    return [_rule(rule.tool_name, rule.rule_content) for rule in update.rules or ()]


def changes_of(update: PermissionUpdate) -> Iterator[str]:
    """The changes of an update, in words; none for an unknown kind."""
    made = {"addRules": "", "removeRules": "remove: ", "replaceRules": "replace all such rules with: "}
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
    """Each value in an input, however deep, with its label and field."""
    if isinstance(value, Mapping) and value and depth < _DEEPEST:
        for key, each in cast("Mapping[object, object]", value).items():
            name = one_line(str(key)) or '""'
            yield from _leaves(each, f"{label}.{name}" if label else name, name, depth + 1)
    elif isinstance(value, list) and value and depth < _DEEPEST:
        for number, each in enumerate(cast("list[object]", value), 1):
            yield from _leaves(each, f"{label}[{number}]", field, depth + 1)
    elif depth or value:
        yield label, field, value


# Answers.

_NO: Final = ("n", "n", "no (Enter)")
_YES: Final = ("y", "y", "yes")
_ALWAYS: Final = ("a", "a", "always, in this session")
"""A key, its name, and its meaning."""

_AT_ONCE: Final = 100
"""Rows that are printed before other tasks get a turn."""

_AROUND: Final = 4
"""Rows of the screen for the bar, the question and the keys."""


class Asker:
    """Asks the user at the terminal, one question at a time."""

    def __init__(self, terminal: Terminal, stream: Stream, *, cwd: str | None) -> None:
        self._terminal = terminal
        self._stream = stream
        self._cwd = cwd
        self._turn: anyio.Lock | None = None

    def fields(self) -> OptionFields:
        """The options that route questions here."""
        if not self._terminal.can_ask:
            return {"permission": self.refuse, "on_elicitation": self.decline}
        return {
            "permission": self.permit,
            "on_question": self.choose,
            "on_plan": self.approve,
            "on_elicitation": self.decline,
        }

    async def refuse(self, request: PermissionRequest) -> Answer:
        """Deny a call, because there is nobody to ask."""
        await self._stream.wait_for(request.tool_use_id)
        name = request.tool_name
        suggested = [rule for update in request.suggestions for rule in rules_of(update)]
        rule = quote(one_line((suggested or [name])[0]))
        self._terminal.note(
            Text(
                f"denied: {tool_name(name)} {call_in_words(name, request.tool_input, self._cwd)} "
                f"(there is no terminal to ask at; allow it with --allow {rule})",
                style="yellow",
            )
        )
        return deny("There is no terminal to ask the user for permission.")

    async def decline(self, request: ElicitationRequest) -> ElicitationResult:
        """Decline the form of an MCP server."""
        asked = shortened(one_line(request.message))
        words = f"declined: the MCP server {one_line(request.server)} asks: {asked}"
        self._terminal.note(Text(f"{words} (outrider does not fill in forms)", style="yellow"))
        return decline()

    async def permit(self, request: PermissionRequest) -> Answer:
        """Ask for permission to use a tool."""
        updates = _for_this_session(request)

        def write(sheet: Sheet) -> None:
            sheet.bar("Permission")
            # The full name: a server's tool may be named like a built-in one.
            sheet.say(f"May it use {request.tool_name}?", "bold")
            sheet.input(request.tool_input)
            sheet.reasons(request)
            if updates:
                sheet.updates(updates)

        key = await self._decide(request, write, *((_ALWAYS,) if updates else ()))
        if key == "a":
            return allow(updates=updates)
        return allow() if key == "y" else deny("The user said no.")

    async def approve(self, plan: Plan) -> Answer:
        """Ask for approval of a plan."""

        def write(sheet: Sheet) -> None:
            sheet.bar("Plan")
            sheet.say("Carry out this plan?", "bold")
            # Not rendered: Markdown can hide text.
            sheet.input(plan.tool_input)
            sheet.reasons(plan)

        key = await self._decide(plan, write)
        return allow() if key == "y" else deny("The user did not approve the plan.")

    async def choose(self, question: Question) -> str | list[str] | None:
        """Ask a question of the agent's: by number, or with the user's own words."""

        def write(sheet: Sheet) -> None:
            sheet.bar("The agent asks you")
            sheet.choices(question)

        async with self._alone(question.tool_use_id):
            if not await self._show(write):
                return None
            several = "numbers, separated by commas" if question.multi_select else "a number"
            self._say(Text(f"{several}, or your own answer; empty for none", style="dim"))
            prompt = Text(f"{self._terminal.glyphs.prompt} ", style="yellow")
            typed = (await self._terminal.line(prompt) or "").strip()
            if not typed:
                return None
            parts = [part.strip() for part in typed.split(",")] if question.multi_select else [typed]
            labels = [
                question.labels[int(part) - 1]
                if part.isdecimal() and 1 <= int(part) <= len(question.labels)
                else part
                for part in parts
            ]
            return labels if question.multi_select else labels[0]

    # Asking.

    @asynccontextmanager
    async def _alone(self, tool_use_id: str | None) -> AsyncGenerator[None]:
        """Hold the screen for one question, once what it is about is shown."""
        if self._turn is None:
            self._turn = anyio.Lock()
        async with self._turn:
            await self._stream.wait_for(tool_use_id)
            async with self._terminal.asking():
                yield

    async def _decide(
        self, request: PermissionRequest, write: Callable[[Sheet], None], *more: tuple[str, str, str]
    ) -> str:
        """Ask a yes-or-no question, with further keys in `more`; gives the key."""
        async with self._alone(request.tool_use_id):
            key = "n"
            if await self._show(write):
                key = await self._key(_YES, *more, _NO)
            self._say(Text({"y": "yes", "a": "always"}.get(key, "no"), style="bold"))
            return key

    async def _show(self, write: Callable[[Sheet], None]) -> bool:
        """Show a question page by page; gives whether the user saw all of it.

        Yes is not offered before the end: nobody can allow what was not on the screen.
        """
        voice = self._terminal.voice
        sheet = Sheet(voice, self._terminal.glyphs)
        # In a thread: a long question must not delay other answers.
        await anyio.to_thread.run_sync(write, sheet)
        room, shown = max(voice.height - _AROUND, 5), 0
        while True:
            for number, row in enumerate(sheet.rows[shown : shown + room]):
                voice.print(row.drawn())
                if number % _AT_ONCE == 0:
                    await anyio.lowlevel.checkpoint()
            shown = min(shown + room, len(sheet.rows))
            if not (left := len(sheet.rows) - shown):
                return True
            rows = f"{counted(left, 'more line')}: "
            key = await self._key((" ", "Space", "next page"), ("e", "e", "to the end"), _NO, before=rows)
            if key == "n":
                return False
            self._terminal.unprompt(voice)
            room = left if key == "e" else room

    async def _key(self, *keys: tuple[str, str, str], before: str = "") -> str:
        line = Text(before, style="dim")
        for _, name, meaning in keys:
            line.append(name, style="bold yellow not dim").append(f" {meaning}   ", style="not dim")
        return await self._terminal.key(line, "".join(key for key, _, _ in keys), default="n")

    def _say(self, line: Text) -> None:
        self._terminal.voice.print(line, soft_wrap=True)


def _for_this_session(request: PermissionRequest) -> list[PermissionUpdate]:
    """The narrowest of the suggested changes, for this session only: no settings file changes."""
    if request.suppress_always_allow_rule:
        return []
    # Suggested modes and folders would allow more than the rules.
    narrow = [update for update in request.suggestions if update.type == "addRules"]
    chosen = [msgspec.structs.replace(each, destination="session") for each in narrow or request.suggestions]
    # Do not offer changes that cannot be described.
    return chosen if all(any(changes_of(update)) for update in chosen) else []
