"""Implements `outrider run`: one prompt, its answer, and an exit code.

`_render.Stream` lays out messages.
"""

from __future__ import annotations

import select
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar, cast

import msgspec
from rich.text import Text

import outrider
from outrider._display import escaped_json, one_line
from outrider.app._ask import Asker
from outrider.app._flags import Code, Failed, working_folder
from outrider.app._render import Stream, counted, money
from outrider.app._terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from outrider import Message, Result
    from outrider.app._flags import AgentKind
    from outrider.options import OptionFields
    from outrider.sync import Session, Turn


# Shared with `_chat`, `_demo` and `_doctor`.

S = TypeVar("S", bound="Session[object]")

AS_USUAL: Final[OptionFields] = {
    "system_prompt": {"type": "preset", "preset": "claude_code"},
    "setting_sources": None,
}
"""Claude Code as people know it: with its own system prompt, and the settings that it reads by itself."""


@contextmanager
def agent_for(kind: AgentKind, fields: OptionFields, *, is_bare: bool) -> Generator[OptionFields]:
    """The options for a session with this agent, in the order of the defaults and the flags."""
    chosen: OptionFields = {**fields} if is_bare else {**AS_USUAL, **fields}
    if chosen.get("isolation") == "hermetic" and "setting_sources" not in fields:
        chosen.pop("setting_sources", None)
    if kind == "real":
        yield chosen
        return
    from outrider.testing import Simulator

    # It runs none of its tools by itself, so it may work in the user's folder.
    cwd = working_folder(fields)
    with Simulator(folder=cwd) as agent:
        yield {**chosen, "transport": agent}


def is_embedded(fields: OptionFields) -> bool:
    """Whether the embedded agent answers: its sessions end with it."""
    return fields.get("transport") is not None


@contextmanager
def opened(session: S, terminal: Terminal) -> Generator[S]:
    """Open and close a session, and show that this takes time."""
    terminal.wait("starting Claude Code")
    try:
        with session:
            try:
                yield session
            finally:
                terminal.wait("ending Claude Code")
    finally:
        terminal.clear()


def follow(turn: Turn[object], show: Callable[[Message], None], terminal: Terminal) -> Result[object]:
    """Show the messages of a turn; gives its result.

    Ctrl-C interrupts the turn. A second one is raised as `KeyboardInterrupt`.
    """
    reader = iter(turn)
    try:
        try:
            while True:
                for message in reader.batch():
                    show(message)
        except StopIteration:
            pass
        return turn.result(check=False)
    except KeyboardInterrupt:
        terminal.clear()
        terminal.leave_question()
        terminal.note(Text("interrupting (Ctrl-C again leaves)", style="yellow"))
        turn.cancel()
        return turn.result(check=False)
    finally:
        terminal.clear()


def summary(result: Result[object], terminal: Terminal, more: str = "") -> Text:
    """The cost and duration of a turn, on one line."""
    dot = f" {terminal.glyphs.dot} "
    usage = result.usage
    parts = [counted(result.num_turns, "model call"), f"{result.duration:.1f} s"]
    parts += [f"{usage.total_tokens:,} tokens", money(usage.cost_usd)]
    return Text(dot.join((*parts, *([more] if more else []))), style="dim")


# The command.

_SILENCE: Final = 3.0
"""Seconds to wait for stdin in silence."""


def run_prompt(
    prompt: str | None,
    fields: OptionFields,
    *,
    no_color: bool,
    as_json: bool,
    schema: str | None,
    is_quiet: bool,
) -> int:
    """Run a prompt and print the answer; gives the exit code."""
    terminal = Terminal(no_color=no_color)
    output = None if schema is None else read_schema(schema)
    cwd = working_folder(fields)
    stream = Stream(terminal, cwd=cwd, is_quiet=is_quiet or as_json)
    base: OptionFields = {"include_partial_messages": terminal.is_live and not as_json}
    chosen: OptionFields = {**base, **Asker(terminal, stream, cwd=cwd).fields(), **fields}
    options = outrider.Options(**chosen)
    # Last, because stdin may take time.
    text = read_prompt(prompt)

    def show(message: Message) -> None:
        if as_json:
            _print_frame(terminal, message)
            stream.remember(message)
        else:
            stream.show(message)

    with opened(outrider.sync.Session(options, output=output), terminal) as session:
        result = follow(session.send(text, until="idle"), show, terminal)
        stream.finish()
    if not as_json:
        _print_answer(terminal, result, is_structured=schema is not None)
    if not (is_quiet or as_json):
        kept_as = f"session {one_line(result.session_id)}" if result.session_id else ""
        terminal.note(summary(result, terminal, "embedded agent" if is_embedded(fields) else kept_as))
    if isinstance(result.error, outrider.TurnInterrupted):
        return Code.INTERRUPTED
    result.raise_for_error()
    return Code.OK


def _print_answer(terminal: Terminal, result: Result[object], *, is_structured: bool) -> None:
    if is_structured:
        if result.error is None:
            from rich.json import JSON

            text = msgspec.json.encode(result.output).decode()
            terminal.print(JSON(escaped_json(text))) if terminal.is_live else terminal.write_json(text)
    elif not terminal.is_live and result.text:
        # No question follows, and a pipe gets the answer unchanged.
        terminal.write_words(result.text, is_apart=False)


def _print_frame(terminal: Terminal, message: Message) -> None:
    line = message.raw_json.decode("utf-8", "replace")
    if isinstance(message, outrider.messages.MalformedLine | outrider.messages.OversizedMessage):
        # Keep stdout free of lines that are not frames.
        terminal.note(Text(one_line(line)))
    else:
        terminal.write_json(line.replace("\n", " "))


def read_prompt(given: str | None) -> str:
    """The prompt from the command line, from stdin, or both. Raises `Failed` if there is none."""
    is_piped = not sys.stdin.isatty()
    if given is None and not is_piped:
        raise Failed("There is no prompt. Give one, or pipe it: outrider run 'What is here?'", Code.USAGE)
    if given is not None and given != "-":
        more = _piped() if is_piped else ""
        return f"{given}\n\n{more}" if more.strip() else given
    text = _piped()
    if not text.strip():
        raise Failed("The prompt on stdin is empty.", Code.USAGE)
    return text


def _piped() -> str:
    """Read stdin to its end; after a while, say that this is being waited for."""
    if not select.select([sys.stdin], [], [], _SILENCE)[0]:
        sys.stderr.write("waiting for the end of stdin; use `</dev/null` if there is nothing to read\n")
    return sys.stdin.read()


def read_schema(given: str) -> Mapping[str, object]:
    """Read the JSON Schema of `--output`, a file or JSON. Raises `Failed`."""
    shown = "the text" if given.lstrip().startswith("{") else given
    try:
        data = given.encode() if given.lstrip().startswith("{") else Path(given).read_bytes()
        value: object = msgspec.json.decode(data)
    except OSError as error:
        reason = error.strerror or str(error)
        raise Failed(f"--output: {shown} cannot be read: {reason}.", Code.USAGE) from error
    except ValueError as error:
        raise Failed(f"--output: {shown} is not JSON: {error}.", Code.USAGE) from error
    if not isinstance(value, dict):
        raise Failed(f"--output: {shown} is not a JSON Schema: it must be an object.", Code.USAGE)
    return cast("Mapping[str, object]", value)
