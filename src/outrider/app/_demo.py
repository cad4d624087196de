"""Implements `outrider demo`: a live session, from a few lines of Python to its clean end.

Nothing is recorded or faked. It shows the source of its tool, hook and type, so keep them readable.
"""

from __future__ import annotations

import inspect
import io
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import anyio
import msgspec
from rich.text import Text

import outrider
from outrider._display import one_line, printable
from outrider.app._flags import Code, code_of
from outrider.app._render import DisplayLine, Page, call_in_words, describe, money, tool_name
from outrider.app._run import follow, opened
from outrider.app._terminal import SafeConsole, Terminal
from outrider.testing import answer, say, use_tool
from outrider.wire import AssistantMessage, ResultMessage, StreamEvent
from outrider.wire.hooks import PreToolUseInput

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from pathlib import Path

    from outrider import Answer, Message, Options, PermissionRequest, Result
    from outrider.app._flags import AgentKind
    from outrider.testing import Request, Step


# What it runs, as a user would write it.

TICKETS: Final = {7: {"title": "Tabs are not parsed", "owner": "Ada", "file": "parser.py"}}


@outrider.tool
def ticket(number: int) -> dict[str, str]:
    """Look up a ticket."""
    return TICKETS[number]


@outrider.hook("PreToolUse", matcher="Bash")
def careful(call: PreToolUseInput) -> outrider.Answer | None:
    if "rm " in call.tool_input["command"]:
        return outrider.deny("Nothing is deleted here.")
    return None


class Report(msgspec.Struct):
    """The format of the answer."""

    ticket: int
    is_fixed: bool
    files: list[str]


PROMPT: Final = "Fix ticket 7, clean up, and report."

_BEFORE, _AFTER = 'line.split(" ")', "line.split()"

FILES: Final[Mapping[str, str]] = {
    "parser.py": f"def fields(line):\n    return {_BEFORE}\n",
    "build/parser.pyc": "",
}
"""The files in the working folder."""

_USAGE: Final = {"input_tokens": 180, "cache_read_input_tokens": 2400, "output_tokens": 45}


def make_script(delay: float) -> list[Step | Callable[[Request], Step]]:
    """The script of the model, with `delay` seconds for each word."""
    changed: list[str] = []

    def words(text: str) -> outrider.testing.Answer:
        return say(text, delay=delay, usage=_USAGE)

    def clean_up(request: Request) -> Step:
        is_done = not any(result.get("is_error") for result in request.tool_results)
        changed.extend(["parser.py"] if is_done else [])
        text = "Done. Now the old build:" if is_done else "I leave it as it is. Now the old build:"
        return answer(
            words(text), use_tool("Bash", command="rm -rf build", description="Remove the old build")
        )

    def report(_: Request) -> Step:
        filled_in = use_tool("StructuredOutput", ticket=7, is_fixed=bool(changed), files=changed)
        return answer(words("Then it stays. Here is the report."), filled_in)

    return [
        answer(words("Let me look up the ticket."), use_tool("mcp__tools__ticket", number=7)),
        use_tool("Read", file_path="parser.py"),
        answer(
            words(f"`{_BEFORE}` does not split at tabs. One line fixes that:"),
            use_tool("Edit", file_path="parser.py", old_string=_BEFORE, new_string=_AFTER),
        ),
        clean_up,
        report,
        words("That is all."),
    ]


# How it is shown.

_WORD: Final = 0.06
"""Seconds for a word of the model, at speed 1."""

_CODE: Final = 2.2
_STEP: Final = 0.55
"""Seconds to read the code, and each line."""

_PATIENCE: Final = 30.0
"""Seconds that a question waits until its tool call is on the screen."""

_PICTURE_WIDTH: Final = 88

_HOOK_SAYS: Final = "hook error:"
"""How Claude Code introduces the reason of a hook."""


def show_demo(
    agent: AgentKind,
    *,
    no_color: bool,
    speed: float,
    program: str | None = None,
    svg: Path | None = None,
) -> int:
    """Show a session; gives the exit code. Raises `AgentNotFound` if Claude Code is not there."""
    terminal = Terminal(no_color=no_color)
    copy = None
    if svg is not None:
        # Fail early if it cannot be written.
        svg.touch()
        copy = SafeConsole(
            record=True,
            width=_PICTURE_WIDTH,
            file=io.StringIO(),
            force_terminal=True,
            color_system="truecolor",
        )
    # No pauses if nobody watches.
    pace = 1 / speed if speed and terminal.is_live else 0.0
    demo = _Demo(Page(terminal, copy=copy), pace)
    try:
        with _agent(agent, _WORD * pace, program) as (options, who):
            result = demo.play(options, who)
    finally:
        terminal.clear()
    if copy is not None and svg is not None:
        from outrider.app._render import picture

        svg.write_text(picture(copy), encoding="utf-8")
    return Code.OK if result.error is None else code_of(result.error)


@contextmanager
def _agent(kind: AgentKind, delay: float, program: str | None) -> Generator[tuple[Options, str]]:
    """Options for an agent that plays the script in its own folder, and its description."""
    script = make_script(delay)
    if kind == "real":
        from outrider.testing import RealAgent

        with RealAgent(script, program=program) as real:
            _fill(real.folder)
            yield real.options(), "Claude Code and a scripted model"
    else:
        from outrider.testing import Simulator

        with Simulator(script, executable=True) as simulated:
            _fill(simulated.folder)
            yield simulated.options(), "the embedded agent"


def _fill(folder: Path) -> None:
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


class _Demo:
    """Runs the session and shows it."""

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
            tools=[ticket],
            hooks=[careful],
            permission=self._permit,
            allowed_tools=["mcp__tools__ticket"],
            include_partial_messages=True,
        )
        self._page.say(DisplayLine("user", PROMPT))
        with opened(outrider.sync.Session(chosen, output=Report), self._terminal) as session:
            result = follow(session.send(PROMPT, until="idle"), self._show, self._terminal)
            usage = session.usage
        self._pause(_STEP)
        if result.error is None:
            self._page.say(DisplayLine("done", one_line(f"{result.output!r}, checked")), label="output")
        elif code_of(result.error) is Code.INTERRUPTED:
            self._page.say(DisplayLine("failed", "interrupted"))
        else:
            self._page.say(DisplayLine("failed", one_line(str(result.error).partition("\n")[0])))
        self._pause(_STEP)
        dot = f" {self._terminal.glyphs.dot} "
        calls = f"{result.num_turns} model calls"
        cost = dot.join((calls, f"{usage.total_tokens:,} tokens", money(usage.cost_usd)))
        self._page.say(DisplayLine("note", cost), label="cost")
        left = len(outrider.transports.live_processes())
        self._page.say(DisplayLine("note", f"the session is closed; processes left: {left}"), label="end")
        self._farewell()
        return result

    # Around the session.

    def _introduce(self, who: str) -> None:
        dot = self._terminal.glyphs.dot
        self._page.print(
            Text.assemble(
                ("Outrider", "bold cyan"), f" {outrider.__version__} {dot} a live session with {who}"
            )
        )
        self._page.print(Text("No API key, and nothing leaves this machine. This is what runs:", style="dim"))
        self._page.print()
        # Not in a picture, which it would fill.
        screen = Page(self._terminal)
        for part in (ticket.function, careful.function, Report):
            screen.code(inspect.getsource(part).rstrip())
            screen.print()
        self._page.code("outrider.Session(tools=[ticket], hooks=[careful], permission=ask_me, output=Report)")
        self._page.print()
        self._pause(_CODE)

    def _farewell(self) -> None:
        self._page.print()
        self._page.print(
            Text.assemble(
                ("Next: ", "dim"),
                ("outrider doctor", "bold"),
                (" checks your machine, ", "dim"),
                ("outrider chat", "bold"),
                (" starts a conversation.", "dim"),
            )
        )

    def _pause(self, seconds: float) -> None:
        if self._pace:
            time.sleep(seconds * self._pace)

    # Messages.

    def _show(self, message: Message) -> None:
        match message:
            case StreamEvent():
                self._text += message.text
                if self._text.strip():
                    self._page.draw(DisplayLine("agent", printable(self._text.strip())))
            case ResultMessage():
                pass
            case _:
                for each in describe(message, cwd=self._cwd):
                    # The report is shown as a Python object instead.
                    if each.name != "StructuredOutput" and not each.text.startswith("Structured output"):
                        self._line(each)
                if isinstance(message, AssistantMessage):
                    self._text = ""
                    self._shown_calls.update(call.id for call in message.tool_uses)

    def _line(self, each: DisplayLine) -> None:
        if each.kind == "fails" and _HOOK_SAYS in each.text:
            reason = each.text.partition(_HOOK_SAYS)[2].strip()
            self._page.say(DisplayLine("fails", f"careful refuses: {reason} It was never run."), label="hook")
        elif each.kind == "note":
            self._page.say(each, label="starts")
        else:
            self._page.say(each)
        if each.kind != "agent":
            self._pause(_STEP)

    # Questions.

    async def _permit(self, request: PermissionRequest) -> Answer:
        with anyio.move_on_after(_PATIENCE):
            while request.tool_use_id not in self._shown_calls:  # noqa: ASYNC110 - set by another thread
                await anyio.sleep(0.01)
        name = tool_name(request.tool_name)
        words = call_in_words(request.tool_name, request.tool_input, self._cwd)
        self._page.say(DisplayLine("asks", f"May it use {name}? {words}"))
        for sign, field, style in (("-", "old_string", "red"), ("+", "new_string", "green")):
            line = Text(f"{sign} {one_line(str(request.tool_input.get(field, '')))}", style=style)
            self._page.print(self._page.indented(line))
        if not self._terminal.can_ask:
            self._page.say(DisplayLine("answer", "yes (automatic: no terminal)"), label="you")
            return outrider.allow()
        keys = Text.assemble(("y", "bold yellow"), " yes   ", ("n", "bold yellow"), " no  ")
        async with self._terminal.asking():
            try:
                key = await self._terminal.key(self._page.indented(keys), "yn", default="y")
            finally:
                self._terminal.unprompt(self._terminal.voice)
        self._page.say(DisplayLine("answer", "no" if key == "n" else "yes"), label="you")
        return outrider.deny("The user said no.") if key == "n" else outrider.allow()
