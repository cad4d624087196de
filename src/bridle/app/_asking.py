"""Owns the questions of the agent to the person at the terminal: permissions, choices, plans.

Where nobody is there, what would be asked is denied, with a text that says how to allow it.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import anyio
import msgspec
from rich.text import Text

from bridle import allow, deny
from bridle.app._saying import call_in_words, shortened, tool_name
from bridle.app._terminal import printable
from bridle.handlers import decline

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from bridle import Answer, ElicitationRequest, PermissionRequest, Plan, Question
    from bridle.app._stream import Stream
    from bridle.app._terminal import Terminal
    from bridle.options import OptionFields
    from bridle.wire.control import ElicitationResult
    from bridle.wire.permissions import PermissionUpdate

__all__ = ["Asker"]

_SHOWN_LINES: Final = 30

_CHANGES: Final = (("old_string", "-", "red"), ("new_string", "+", "green"), ("content", "+", "green"))
"""What a tool would change, by its fields, and how that is shown."""

_NO: Final = "n no (Enter)"


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
        suggested = [rule for update in request.suggestions for rule in _rules(update)]
        rule = printable((suggested or [name])[0])
        self._terminal.note(
            Text(
                f"denied: {tool_name(name)} {call_in_words(name, request.input, self._cwd)} "
                f"(nobody can be asked here; to allow it: --allow '{rule}')",
                style="yellow",
            )
        )
        return deny("Nobody can be asked for permission here: there is no terminal.")

    async def decline(self, request: ElicitationRequest) -> ElicitationResult:
        """Decline what an MCP server asks for: forms are not filled in here."""
        asked = " ".join(printable(request.message).split())
        words = f"declined: the MCP server {printable(request.server)} asks: {shortened(asked)}"
        self._terminal.leave_question()
        self._terminal.note(Text(f"{words} (bridle answers no forms)", style="yellow"))
        return decline()

    async def permit(self, request: PermissionRequest) -> Answer:
        """Ask whether a tool may be used."""
        async with self._alone(request.tool_use_id):
            updates = _for_this_session(request)
            self._head(f"May it use {tool_name(request.tool_name)}?")
            self._details(request)
            keys = ["y yes", _NO]
            if updates:
                keys.insert(1, f"a always, in this session{_named(updates)}")
            key = await self._key(keys, default="n")
            self._answered({"y": "yes", "a": "always"}.get(key, "no"))
            if key == "a":
                return allow(updates=updates)
            return allow() if key == "y" else deny("The user said no.")

    async def choose(self, question: Question) -> str | list[str] | None:
        """Have one of the answers to a question chosen, or a text typed."""
        async with self._alone(question.tool_use_id):
            self._head(printable(question.text))
            for number, option in enumerate(question.options, 1):
                line = Text.assemble((f"  {number} ", "bold"), printable(option.label))
                self._say(line.append(f"  {printable(option.description)}", style="dim"))
            several = "numbers with commas" if question.multi_select else "a number"
            self._say(Text(f"  {several}, or an answer of your own; empty: none", style="dim"))
            self._say(Text(f"  {self._terminal.glyphs.prompt} ", style="yellow"), end="")
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

    async def approve(self, plan: Plan) -> Answer:
        """Ask whether a plan is to be carried out."""
        from rich.markdown import Markdown

        async with self._alone(plan.tool_use_id):
            self._head("Is this plan to be carried out?")
            self._terminal.voice.print(Markdown(printable(plan.text)))
            key = await self._key(["y yes", _NO], default="n")
            self._answered("yes" if key == "y" else "no")
            return allow() if key == "y" else deny("The user does not want this plan carried out.")

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

    def _say(self, line: Text, end: str = "\n") -> None:
        self._terminal.voice.print(line, end=end, highlight=False)

    def _head(self, text: str) -> None:
        self._say(Text.assemble(("? ", "bold yellow"), (text, "bold")))

    def _details(self, request: PermissionRequest) -> None:
        command = request.input.get("command")
        text = command if isinstance(command, str) else ""
        shown = printable(text) or call_in_words(request.tool_name, request.input, self._cwd)
        lines = [Text(f"    {line}", style="cyan") for line in shown.splitlines()]
        for field, sign, style in _CHANGES:
            change = request.input.get(field)
            if isinstance(change, str):
                lines += [Text(f"    {sign} {line}", style=style) for line in printable(change).splitlines()]
        for line in lines[:_SHOWN_LINES]:
            self._say(line)
        if more := len(lines[_SHOWN_LINES:]):
            self._say(Text(f"    (and {more} more line{'s' if more > 1 else ''})", style="yellow"))
        for label, fact in (
            ("why", request.decision_reason),
            ("path", request.blocked_path),
            ("subagent", request.agent_id),
        ):
            if fact:
                self._say(Text(f"    {label}: {printable(str(fact))}", style="dim"))

    async def _key(self, keys: list[str], *, default: str) -> str:
        line = Text("  ")
        for each in keys:
            key, _, meaning = each.partition(" ")
            line.append(key, style="bold yellow").append(f" {meaning}   ")
        self._say(line, end="")
        return await self._terminal.key("".join(each[0] for each in keys), default=default)

    def _answered(self, word: str) -> None:
        self._say(Text(word, style="bold"))


def _for_this_session(request: PermissionRequest) -> list[PermissionUpdate]:
    """What the agent suggests, as narrow as it can be had, and without a trace in anybody's settings."""
    if request.suppress_always_allow_rule:
        return []
    # Beside a rule for this it may suggest a mode and folders, which allow more.
    narrow = [update for update in request.suggestions if update.type == "addRules"]
    chosen = narrow or request.suggestions
    return [msgspec.structs.replace(update, destination="session") for update in chosen]


def _named(updates: list[PermissionUpdate]) -> str:
    """What would be allowed, in words."""
    rules = [rule for update in updates for rule in _rules(update)]
    modes = [f"mode {update.mode}" for update in updates if update.mode]
    folders = [folder for update in updates for folder in update.directories or ()]
    named = ", ".join(printable(each) for each in (*rules, *modes, *folders))
    return f" ({named})" if named else ""


def _rules(update: PermissionUpdate) -> list[str]:
    return [
        f"{rule.tool_name}({rule.rule_content})" if rule.rule_content else rule.tool_name
        for rule in update.rules or ()
    ]
