"""Owns the questions of the agent to the person at the terminal: permissions, choices, plans.

Where nobody is there, what would be asked is denied, with a text that says how to allow it.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from shlex import quote
from typing import TYPE_CHECKING, Final

import anyio
import anyio.lowlevel
import msgspec
from rich.text import Text

from outrider import allow, deny
from outrider.app._question import Sheet, changes_of, rules_of
from outrider.app._saying import call_in_words, shortened, tool_name
from outrider.app._terminal import one_line
from outrider.handlers import decline

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from outrider import Answer, ElicitationRequest, PermissionRequest, Plan, Question
    from outrider.app._stream import Stream
    from outrider.app._terminal import Terminal
    from outrider.options import OptionFields
    from outrider.wire.control import ElicitationResult
    from outrider.wire.permissions import PermissionUpdate

__all__ = ["Asker"]

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
                f"denied: {tool_name(name)} {call_in_words(name, request.input, self._cwd)} "
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
            self._say(Text(f"{self._terminal.glyphs.prompt} ", style="yellow"), end="")
            typed = (await self._terminal.line() or "").strip()
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
        self._say(line, end="")
        return await self._terminal.key("".join(key for key, _, _ in keys), default="n")

    def _say(self, line: Text, end: str = "\n") -> None:
        self._terminal.voice.print(line, end=end, soft_wrap=True)


def _for_this_session(request: PermissionRequest) -> list[PermissionUpdate]:
    """What the agent suggests, as narrow as it can be had, and without a trace in anybody's settings."""
    if request.suppress_always_allow_rule:
        return []
    # Beside a rule for this it may suggest a mode and folders, which allow more.
    narrow = [update for update in request.suggestions if update.type == "addRules"]
    chosen = [msgspec.structs.replace(each, destination="session") for each in narrow or request.suggestions]
    # What cannot be put in words cannot be allowed with them.
    return chosen if all(any(changes_of(update)) for update in chosen) else []
