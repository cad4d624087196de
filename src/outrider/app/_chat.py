"""Implements `outrider chat`: a conversation line by line, at a terminal or over stdin.

`_render.Stream` lays out messages, `_ask` asks questions.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from importlib import import_module
from shlex import quote
from threading import Lock
from typing import TYPE_CHECKING, Final

from rich.table import Table
from rich.text import Text

import outrider
from outrider._display import one_line, printable
from outrider._threads import start_thread
from outrider.app._ask import Asker
from outrider.app._flags import BY_OPTION, Code, code_of, in_one_line, working_folder
from outrider.app._render import Stream, describe, money, shortened
from outrider.app._run import follow, is_embedded, opened, summary
from outrider.app._terminal import Terminal
from outrider.errors import ConnectionLost, OutriderError
from outrider.wire import AssistantMessage, InitMessage, StreamEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from outrider import Message, Result
    from outrider.options import OptionFields
    from outrider.sync import Session


class BackgroundNotices:
    """Shows messages that belong to no turn: at once while the user types, else after the turn."""

    def __init__(self, session: Session[object], terminal: Terminal, stream: Stream) -> None:
        self._terminal = terminal
        self._stream = stream
        self._lock = Lock()
        self._waiting: list[Message] = []
        self._shown: dict[int, Message] = {}
        """Messages of the last turn by identity; kept, so that no other object gets the same one."""
        self._shown_before: dict[int, Message] = {}
        """Those of the turn before it: the listener may lag that far behind."""
        self._draw_prompt: Callable[[], None] | None = None
        start_thread(self._listen, session, name="outrider-notices")

    def end_turn(self, messages: Iterable[Message]) -> None:
        """Note the messages of a turn that is over."""
        with self._lock:
            self._shown_before, self._shown = self._shown, {id(each): each for each in messages}
            self._catch_up()

    @contextmanager
    def typing(self, draw_prompt: Callable[[], None]) -> Generator[None]:
        """Draw the prompt again below whatever is shown while the user types."""
        with self._lock:
            self._catch_up()
            self._draw_prompt = draw_prompt
        try:
            yield
        finally:
            with self._lock:
                self._draw_prompt = None

    def _listen(self, session: Session[object]) -> None:
        # Errors that end the session are reported elsewhere.
        with suppress(OutriderError):
            for message in session:
                with self._lock:
                    self._waiting.append(message)
                    if self._draw_prompt is not None and any(map(self._has_words, self._waiting)):
                        self._terminal.unprompt(self._terminal.out)
                        self._catch_up()
                        self._draw_prompt()

    def _catch_up(self) -> None:
        waiting, self._waiting = self._waiting, []
        with self._terminal.held():
            for message in filter(self._has_words, waiting):
                self._stream.show(message)
                if not self._terminal.is_live and isinstance(message, AssistantMessage) and message.text:
                    self._terminal.write_words(message.text, is_apart=self._terminal.can_ask)

    def _has_words(self, message: Message) -> bool:
        if isinstance(message, StreamEvent | InitMessage):
            return False
        is_of_turn = id(message) in self._shown or id(message) in self._shown_before
        return not is_of_turn and any(each.kind not in ("done", "failed") for each in describe(message))


_OWN: Final[Mapping[str, str]] = {
    "/help": "show this list",
    "/model [NAME]": "list the models, or switch to one",
    "/mode [MODE]": "show or change the permission mode",
    "/cost": "show tokens and cost so far",
    "/exit": "leave, as Ctrl-D does",
    "\\": "at the end of a line: continue on the next",
}


class _Leave(Exception):
    """The user wants to leave."""


def hold_chat(fields: OptionFields, *, no_color: bool) -> int:
    """Hold a conversation until the user leaves; gives the exit code."""
    terminal = Terminal(no_color=no_color)
    cwd = working_folder(fields)
    stream = Stream(terminal, cwd=cwd)
    base: OptionFields = {"include_partial_messages": terminal.is_live}
    chosen: OptionFields = {**base, **Asker(terminal, stream, cwd=cwd).fields(), **fields}
    made: outrider.sync.Session = outrider.sync.Session(outrider.Options(**chosen))
    with opened(made, terminal) as session:
        code = _Chat(session, terminal, stream, embedded := is_embedded(fields)).hold()
        id = session.id
    if id is not None and not embedded and outrider.Options(**chosen).persist_session:
        terminal.note(Text(f"To continue: outrider chat --resume {quote(one_line(id))}", style="dim"))
    return code


class _Chat:
    """One conversation."""

    def __init__(
        self, session: Session[object], terminal: Terminal, stream: Stream, is_embedded: bool
    ) -> None:
        self._session = session
        self._terminal = terminal
        self._stream = stream
        self._is_embedded = is_embedded
        self._notices = BackgroundNotices(session, terminal, stream)
        self._read = _reader(terminal, self._notices)
        self._commands: Mapping[str, Callable[[str], None]] = {
            "help": self._help,
            "model": self._model,
            "mode": self._mode,
            "cost": self._cost,
            "exit": self._exit,
            "quit": self._exit,
        }

    def hold(self) -> int:
        self._welcome()
        is_warned = False
        while True:
            try:
                text = self._read()
                is_warned = False
            except KeyboardInterrupt:
                # Keep what was typed on its line.
                self._terminal.print()
                if is_warned:
                    return Code.INTERRUPTED
                is_warned = True
                self._say("Ctrl-C again leaves.", "dim")
                continue
            if text is None:
                return Code.OK
            if not text.strip():
                continue
            try:
                self._take(text)
            except _Leave:
                return Code.OK
            except KeyboardInterrupt:
                return Code.INTERRUPTED
            except ConnectionLost:
                raise
            except OutriderError as error:
                self._terminal.note(Text(f"error: {in_one_line(error, BY_OPTION)}", style="red"))

    def _take(self, text: str) -> None:
        word, _, rest = text.strip().partition(" ")
        if word.startswith("/"):
            own = self._commands.get(word[1:])
            if own is not None:
                own(rest.strip())
                return
            names = {
                each
                for command in self._session.info.commands
                for each in (command.name, *(command.aliases or ()))
            }
            if word[1:] not in names and "/" not in word[1:]:
                self._terminal.note(
                    Text(f"There is no command {one_line(word)}. /help lists them all."),
                    style="yellow",
                )
                return
        self._ask(text)

    def _ask(self, text: str) -> None:
        self._terminal.wait("working")
        turn = self._session.send(text, until="idle")
        try:
            self._conclude(follow(turn, self._stream.show, self._terminal))
        finally:
            self._notices.end_turn(turn.messages)

    def _conclude(self, result: Result[object]) -> None:
        self._stream.finish()
        if not self._terminal.is_live and result.text:
            self._terminal.write_words(result.text, is_apart=self._terminal.can_ask)
        error = result.error
        if error is not None:
            if isinstance(error, ConnectionLost):
                raise error
            if code_of(error) is not Code.INTERRUPTED:
                raise error
            self._say("interrupted", "yellow")
        self._terminal.note(summary(result, self._terminal))

    # The commands.

    def _welcome(self) -> None:
        self._terminal.clear()
        info = self._session.info
        dot = f" {self._terminal.glyphs.dot} "
        program = f"Claude Code {one_line(info.version)}" if info.version else "Claude Code"
        program = "the embedded agent" if self._is_embedded else program
        head = Text.assemble(("Outrider", "bold cyan"), f" {outrider.__version__}{dot}{program}")
        self._terminal.note(head)
        if self._terminal.can_ask:
            self._say("/help lists commands, Ctrl-C interrupts, Ctrl-D leaves.", "dim")

    def _help(self, _: str) -> None:
        table = Table.grid(padding=(0, 2))
        for name, text in _OWN.items():
            table.add_row(Text(name, style="bold"), text)
        theirs = [command for command in self._session.info.commands if command.name not in self._commands]
        # The embedded agent lists commands that it does not carry out.
        if theirs and not self._is_embedded:
            table.add_row()
            table.add_row(Text("commands of Claude Code", style="dim"))
            for command in sorted(theirs, key=lambda each: each.name):
                words = one_line(command.description)
                table.add_row(
                    Text(f"/{one_line(command.name)}", style="bold", no_wrap=True, overflow="ellipsis"),
                    Text(shortened(words, 90), style="dim"),
                )
        self._terminal.print(table)

    def _model(self, name: str) -> None:
        if name:
            self._say(f"The model is now {one_line(self._session.set_model(name))}.")
            return
        now = self._session.info.model
        table = Table.grid(padding=(0, 2))
        for model in self._session.info.models:
            is_it = now in (model.value, model.resolved_model)
            sign = self._terminal.glyphs.prompt if is_it else ""
            table.add_row(
                sign,
                Text(one_line(model.value), style="bold", no_wrap=True, overflow="ellipsis"),
                Text(one_line(model.display_name)),
            )
        self._terminal.print(table)
        self._say(
            f"Now: {one_line(now or 'the default, known after the first turn')}. /model NAME switches.",
            "dim",
        )

    def _mode(self, name: str) -> None:
        if name:
            self._say(f"The permission mode is now {one_line(self._session.set_permission_mode(name))}.")
        else:
            self._say(f"The permission mode is {one_line(self._session.info.permission_mode or 'default')}.")

    def _cost(self, _: str) -> None:
        usage = self._session.usage
        self._say(str(usage))
        for model, each in sorted(usage.by_model.items()):
            self._say(f"  {one_line(model)}: {each.total_tokens:,} tokens, {money(each.cost_usd)}", "dim")

    def _exit(self, _: str) -> None:
        raise _Leave

    def _say(self, text: str, style: str | None = None) -> None:
        self._terminal.print(Text(text), style=style)


def _reader(terminal: Terminal, notices: BackgroundNotices) -> Callable[[], str | None]:
    """A function that reads the next prompt; lines that end with a backslash are joined."""
    if not sys.stdin.isatty():
        return lambda: _joined(lambda _: sys.stdin.readline() or None)
    # Once imported, `input` uses it for editing and history.
    readline = None
    with suppress(ImportError):
        readline = import_module("readline")
    sign = terminal.glyphs.prompt
    prompts = [f"{sign} ", f"{terminal.glyphs.more} "]
    if not terminal.no_color and terminal.out.color_system:
        # Marked as of no width for readline.
        prompts = [f"\001\033[1;36m\002{each}\001\033[0m\002" for each in prompts]

    def line(is_first: bool) -> str | None:
        prompt = prompts[0 if is_first else 1]

        def draw() -> None:
            typed = readline.get_line_buffer() if readline else ""
            terminal.write_exactly(prompt.translate({1: None, 2: None}) + printable(typed))

        try:
            with terminal.typing(), notices.typing(draw):
                return input(prompt)
        except EOFError:
            terminal.print()
            return None

    return lambda: _joined(line)


def _joined(line: Callable[[bool], str | None]) -> str | None:
    lines: list[str] = []
    while (text := line(not lines)) is not None:
        text = text.rstrip("\r\n")
        if not text.endswith("\\"):
            return "\n".join([*lines, text])
        lines.append(text[:-1])
    return "\n".join(lines) if lines else None
