"""Implements `outrider demo`: a live session, from a few lines of Python to its clean end.

Nothing is recorded or faked. The tool, the hook and the script are in `parts`.
"""

from __future__ import annotations

import inspect
import io
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Literal

import anyio
from rich.text import Text

import outrider
from outrider.app._demo import parts
from outrider.app._failing import Code, code_of
from outrider.app._render.describe import Said, call_in_words, money, said, tool_name
from outrider.app._render.page import Page
from outrider.app._run import follow, opened
from outrider.app._terminal import SafeConsole, Terminal, one_line, printable
from outrider.wire import AssistantMessage, ResultMessage, StreamEvent

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from outrider import Answer, Message, Options, PermissionRequest, Result

__all__ = ["show_demo"]

_WORD: Final = 0.06
"""Seconds for a word of the model, at speed 1."""

_CODE: Final = 2.2
_STEP: Final = 0.55
"""Seconds to look at the code, and at each thing that happens."""

_PATIENCE: Final = 30.0
"""How long a question waits for what it is about to be on the screen."""

_PICTURE_WIDTH: Final = 88

_HOOK_SAYS: Final = "hook error:"
"""How the agent begins what a hook refuses with."""


def show_demo(
    agent: Literal["simulated", "real"],
    *,
    no_color: bool,
    speed: float,
    program: str | None = None,
    svg: Path | None = None,
) -> int:
    """Show a session; gives the exit code.

    Raises `AgentNotFound` if it is to be the real program, and that is not here.
    """
    terminal = Terminal(no_color=no_color)
    copy = None
    if svg is not None:
        # What cannot be written is told before the show.
        svg.touch()
        copy = SafeConsole(
            record=True,
            width=_PICTURE_WIDTH,
            file=io.StringIO(),
            force_terminal=True,
            color_system="truecolor",
        )
    # Where nobody watches, nothing is waited for.
    pace = 1 / speed if speed and terminal.is_live else 0.0
    demo = _Demo(Page(terminal, copy=copy), pace)
    try:
        with _agent(agent, _WORD * pace, program) as (options, who):
            result = demo.play(options, who)
    finally:
        terminal.clear()
    if copy is not None and svg is not None:
        from outrider.app._render.page import picture

        svg.write_text(picture(copy), encoding="utf-8")
    return Code.OK if result.error is None else code_of(result.error)


@contextmanager
def _agent(
    kind: Literal["simulated", "real"], delay: float, program: str | None
) -> Generator[tuple[Options, str]]:
    """Options for an agent in a folder of its own that plays the script, and what to call it."""
    script = parts.script(delay)
    if kind == "real":
        from outrider.testing import RealAgent

        with RealAgent(script, program=program) as real:
            _fill(real.folder)
            yield real.options(), "the installed program, its model played from a script"
    else:
        from outrider.testing import Simulator

        with Simulator(script, executable=True) as simulated:
            _fill(simulated.folder)
            yield simulated.options(), "the embedded agent"


def _fill(folder: Path) -> None:
    for name, text in parts.FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


class _Demo:
    """The session, and how it is shown."""

    def __init__(self, page: Page, pace: float) -> None:
        self._page = page
        self._terminal = page.terminal
        self._pace = pace
        self._text = ""
        self._cwd: str | None = None
        self._shown_calls: set[str] = set()

    def play(self, options: Options, who: str) -> Result[object]:
        self._cwd = options.cwd
        self._introduce(who)
        chosen = options.replace(
            tools=[parts.ticket],
            hooks=[parts.careful],
            permission=self._permit,
            allowed_tools=["mcp__tools__ticket"],
            include_partial_messages=True,
        )
        self._page.say(Said("user", parts.PROMPT))
        with opened(outrider.sync.Session(chosen, output=parts.Report), self._terminal) as session:
            result = follow(session.send(parts.PROMPT, until="idle"), self._show, self._terminal)
            usage = session.usage
        self._pause(_STEP)
        if result.error is None:
            self._page.say(Said("done", one_line(f"{result.output!r}, checked")), label="output")
        elif code_of(result.error) is Code.INTERRUPTED:
            self._page.say(Said("failed", "interrupted"))
        else:
            self._page.say(Said("failed", one_line(str(result.error).partition("\n")[0])))
        self._pause(_STEP)
        dot = f" {self._terminal.glyphs.dot} "
        calls = f"{result.num_turns} model calls"
        cost = dot.join((calls, f"{usage.total_tokens:,} tokens", money(usage.cost_usd)))
        self._page.say(Said("note", cost), label="cost")
        left = len(outrider.transports.live_processes())
        self._page.say(Said("note", f"the session is closed; processes left: {left}"), label="end")
        self._farewell()
        return result

    # What is said around it.

    def _introduce(self, who: str) -> None:
        dot = self._terminal.glyphs.dot
        self._page.print(
            Text.assemble(
                ("Outrider", "bold cyan"), f" {outrider.__version__} {dot} a live session with {who}"
            )
        )
        self._page.print(Text("No key, and nothing leaves this machine. This is what runs:", style="dim"))
        self._page.print()
        for part in (parts.ticket.function, parts.careful.function, parts.Report):
            self._page.code(inspect.getsource(part).rstrip())
            self._page.print()
        self._page.code("outrider.Session(tools=[ticket], hooks=[careful], permission=ask_me, output=Report)")
        self._page.print()
        self._pause(_CODE)

    def _farewell(self) -> None:
        self._page.print()
        self._page.print(
            Text.assemble(
                ("Next: ", "dim"),
                ("outrider doctor", "bold"),
                (" looks whether an agent can work here, ", "dim"),
                ("outrider chat", "bold"),
                (" talks to it.", "dim"),
            )
        )

    def _pause(self, seconds: float) -> None:
        if self._pace:
            time.sleep(seconds * self._pace)

    # What comes.

    def _show(self, message: Message) -> None:
        match message:
            case StreamEvent():
                self._text += message.text
                if self._text.strip():
                    self._page.draw(Said("agent", printable(self._text.strip())))
            case ResultMessage():
                pass
            case _:
                for each in said(message, cwd=self._cwd):
                    # The report is shown as what it becomes.
                    if each.name != "StructuredOutput" and not each.text.startswith("Structured output"):
                        self._line(each)
                if isinstance(message, AssistantMessage):
                    self._text = ""
                    self._shown_calls.update(call.id for call in message.tool_uses)

    def _line(self, each: Said) -> None:
        if each.kind == "fails" and _HOOK_SAYS in each.text:
            reason = each.text.partition(_HOOK_SAYS)[2].strip()
            self._page.say(Said("fails", f"careful refuses: {reason} It was never run."), label="hook")
        elif each.kind == "note":
            self._page.say(each, label="starts")
        else:
            self._page.say(each)
        if each.kind != "agent":
            self._pause(_STEP)

    # What is asked.

    async def _permit(self, request: PermissionRequest) -> Answer:
        with anyio.move_on_after(_PATIENCE):
            while request.tool_use_id not in self._shown_calls:  # noqa: ASYNC110 - another thread shows them
                await anyio.sleep(0.01)
        name = tool_name(request.tool_name)
        words = call_in_words(request.tool_name, request.tool_input, self._cwd)
        self._page.say(Said("asks", f"May it use {name}? {words}"))
        for sign, field, style in (("-", "old_string", "red"), ("+", "new_string", "green")):
            line = Text(f"{sign} {one_line(str(request.tool_input.get(field, '')))}", style=style)
            self._page.print(self._page.indented(line))
        if not self._terminal.can_ask:
            self._page.say(Said("answer", "yes (by itself: nobody is at a terminal)"), label="you")
            return outrider.allow()
        keys = Text.assemble(("y", "bold yellow"), " yes   ", ("n", "bold yellow"), " no  ")
        async with self._terminal.asking():
            try:
                key = await self._terminal.key(self._page.indented(keys), "yn", default="y")
            finally:
                self._terminal.unprompt(self._terminal.voice)
        self._page.say(Said("answer", "no" if key == "n" else "yes"), label="you")
        return outrider.deny("The user said no.") if key == "n" else outrider.allow()
