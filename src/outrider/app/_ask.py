"""Asks the person at the terminal what the agent wants to know: permissions, choices, plans.

Without a terminal, everything that would be asked is denied, with a text that says how to allow it.
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
from outrider.app._render.describe import call_in_words, shortened, tool_name
from outrider.app._terminal import chopped, one_line, printable
from outrider.handlers import decline

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from rich.console import Console

    from outrider import Answer, PermissionRequest, Plan, Question
    from outrider.app._render.stream import Stream
    from outrider.app._terminal import Glyphs, Terminal
    from outrider.handlers import ElicitationRequest
    from outrider.options import OptionFields
    from outrider.wire.control import ElicitationResult
    from outrider.wire.permissions import PermissionUpdate

__all__ = ["Asker", "Row", "Sheet", "changes_of", "rules_of"]


# How a question looks.

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
        for label, field, value in _leaves(request.tool_input):
            if field in _CHANGES and isinstance(value, str):
                sign, style = _CHANGES[field]
                self.quote(f"{label}:", "dim")
                self.quote(value, style, before=sign)
            else:
                style = "cyan" if field == "command" else ""
                self.fact(label, value if isinstance(value, str) else _json(value), style)
        if not request.tool_input:
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


# How it is answered.

_NO: Final = ("n", "n", "no (Enter)")
_YES: Final = ("y", "y", "yes")
_ALWAYS: Final = ("a", "a", "always, in this session")
"""A key, how it is called, and what it means."""

_AT_ONCE: Final = 100
"""Rows that are printed before others get their turn."""

_AROUND: Final = 4
"""Rows of a screen that are for the bar, the question and the keys."""


class Asker:
    """Answers for the person at the terminal, one question at a time."""

    def __init__(self, terminal: Terminal, stream: Stream, *, cwd: str | None) -> None:
        self._terminal = terminal
        self._stream = stream
        self._cwd = cwd
        self._turn: anyio.Lock | None = None

    def fields(self) -> OptionFields:
        """The options that have the agent ask here."""
        if not self._terminal.can_ask:
            return {"permission": self.refuse, "on_elicitation": self.decline}
        return {
            "permission": self.permit,
            "on_question": self.choose,
            "on_plan": self.approve,
            "on_elicitation": self.decline,
        }

    async def refuse(self, request: PermissionRequest) -> Answer:
        """Nobody is there: deny it."""
        await self._stream.wait_for(request.tool_use_id)
        name = request.tool_name
        suggested = [rule for update in request.suggestions for rule in rules_of(update)]
        rule = quote(one_line((suggested or [name])[0]))
        self._terminal.note(
            Text(
                f"denied: {tool_name(name)} {call_in_words(name, request.tool_input, self._cwd)} "
                f"(nobody can be asked here; to allow it: --allow {rule})",
                style="yellow",
            )
        )
        return deny("Nobody can be asked for permission here: there is no terminal.")

    async def decline(self, request: ElicitationRequest) -> ElicitationResult:
        """Decline what an MCP server asks for: forms are not filled in here."""
        asked = shortened(one_line(request.message))
        words = f"declined: the MCP server {one_line(request.server)} asks: {asked}"
        self._terminal.note(Text(f"{words} (outrider answers no forms)", style="yellow"))
        return decline()

    async def permit(self, request: PermissionRequest) -> Answer:
        """Ask whether a tool may be used."""
        updates = _for_this_session(request)

        def write(sheet: Sheet) -> None:
            sheet.bar("Permission")
            # By its full name: a tool of a server may be called like one of the program's own.
            sheet.say(f"May it use {request.tool_name}?", "bold")
            sheet.input(request)
            sheet.reasons(request)
            if updates:
                sheet.updates(updates)

        key = await self._decide(request, write, *((_ALWAYS,) if updates else ()))
        if key == "a":
            return allow(updates=updates)
        return allow() if key == "y" else deny("The user said no.")

    async def approve(self, plan: Plan) -> Answer:
        """Ask whether a plan is to be carried out."""

        def write(sheet: Sheet) -> None:
            sheet.bar("Plan")
            sheet.say("Is this plan to be carried out?", "bold")
            # As it is written: Markdown that is rendered leaves things out.
            sheet.input(plan)
            sheet.reasons(plan)

        key = await self._decide(plan, write)
        return allow() if key == "y" else deny("The user does not want this plan carried out.")

    async def choose(self, question: Question) -> str | list[str] | None:
        """Have one of the answers to a question chosen, or a text typed."""

        def write(sheet: Sheet) -> None:
            sheet.bar("The agent asks you")
            sheet.choices(question)

        async with self._alone(question.tool_use_id):
            if not await self._show(write):
                return None
            several = "numbers with commas" if question.multi_select else "a number"
            self._say(Text(f"{several}, or an answer of your own; empty: none", style="dim"))
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

    # How it is asked.

    @asynccontextmanager
    async def _alone(self, tool_use_id: str | None) -> AsyncGenerator[None]:
        """The screen for one question: others wait, and what the question is about is shown first."""
        if self._turn is None:
            self._turn = anyio.Lock()
        async with self._turn:
            await self._stream.wait_for(tool_use_id)
            async with self._terminal.asking():
                yield

    async def _decide(
        self, request: PermissionRequest, write: Callable[[Sheet], None], *more: tuple[str, str, str]
    ) -> str:
        """Put a question of yes and no; what can be chosen besides is in `more`. Gives the key."""
        async with self._alone(request.tool_use_id):
            key = "n"
            if await self._show(write):
                key = await self._key(_YES, *more, _NO)
            self._say(Text({"y": "yes", "a": "always"}.get(key, "no"), style="bold"))
            return key

    async def _show(self, write: Callable[[Sheet], None]) -> bool:
        """Show a question to its end, page by page; gives whether somebody wanted to see it all.

        There is no yes before the end: nobody can allow what was not on the screen.
        """
        voice = self._terminal.voice
        sheet = Sheet(voice, self._terminal.glyphs)
        # It may be long, and the agent must not wait for other answers meanwhile.
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
            rows = f"{left:,} more line{'s' if left > 1 else ''}: "
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
    """What the agent suggests, as narrow as it can be had, and without a trace in anybody's settings."""
    if request.suppress_always_allow_rule:
        return []
    # Beside a rule for this it may suggest a mode and folders, which allow more.
    narrow = [update for update in request.suggestions if update.type == "addRules"]
    chosen = [msgspec.structs.replace(each, destination="session") for each in narrow or request.suggestions]
    # What cannot be put in words cannot be allowed with them.
    return chosen if all(any(changes_of(update)) for update in chosen) else []
