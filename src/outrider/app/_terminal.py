"""Writes to the terminal and reads keys from it; escape codes in foreign text are shown, never obeyed.

All output goes through here: `SafeConsole` for layouts, `Terminal.write` for text, `Terminal.write_json` for
data, `guarded_streams` for what Python and other packages write. Only `Terminal.write_exactly` writes escape
codes. Knows nothing of conversations: `_render` does.
"""

from __future__ import annotations

import codecs
import os
import re
import sys
import time
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from threading import Lock, RLock
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple, TextIO, cast

from rich.console import Console
from rich.control import Control
from rich.live import Live
from rich.segment import ControlType, Segment
from rich.text import Text

from outrider._display import chopped, escaped_json, plain, printable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator, Iterable

    from rich.console import ConsoleOptions, RenderableType


class Glyphs(NamedTuple):
    """The symbols on the screen."""

    prompt: str = "\N{HEAVY RIGHT-POINTING ANGLE QUOTATION MARK ORNAMENT}"
    tool: str = "⏺"
    returns: str = "└"
    good: str = "✓"
    bad: str = "✗"
    warning: str = "!"
    more: str = "…"
    dot: str = "·"
    spinner: str = "dots"
    bar: str = "━"
    gutter: str = "│"
    goes_on: str = "┊"


UNICODE: Final = Glyphs()
ASCII: Final = Glyphs(">", "*", "`-", "+", "x", "!", "...", "-", "line", "=", "|", ":")
"""For terminals that cannot show others."""

INDENT: Final = "  "
"""Goes before every line of the agent's at a terminal. Only Outrider writes in the first column, so that no
answer can pass for a question."""

_HANGING: Final = 4 * " "
_PIECE: Final = 4096
_MOST_KEYS: Final = 1024

# An arrow key sends letters, too.
_SPECIAL_KEY = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.|[^\[O])")
_BEGUN_KEY = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|O)?\Z")


def _code(code: str) -> Control:
    made = Control()
    made.segment = Segment(code, None, [(ControlType.HOME,)])
    return made


_WRAP_OFF: Final = _code("\x1b[?7l")
_WRAP_ON: Final = _code("\x1b[?7h")


class SafeConsole(Console):
    """A console that removes control characters and links from everything it prints.

    Lines do not wrap: terminals disagree on how wide a character is, and a line that wrapped would put the
    agent's words into the first column.
    """

    def print(self, *objects: Any, **given: Any) -> None:  # noqa: ANN401 - as in the class above
        if given.get("soft_wrap"):
            super().print(*objects, **given)
            return
        with self:
            self.control(_WRAP_OFF)
            super().print(*objects, **given)
            self.control(_WRAP_ON)

    def on_broken_pipe(self) -> None:
        # Rich would end the process, with another code.
        raise BrokenPipeError

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
                continue
            text, style, _ = segment
            yield Segment(plain(text), style.update_link(None) if style and style.link else style)


class Terminal:
    """Standard output and error, and the user in front of them.

    `out` gets the answer, `err` everything about it. Characters that a stream cannot encode or decode never
    raise. Printed texts must have one line (`one_line`), or be laid out line by line.
    """

    def __init__(self, *, no_color: bool = False) -> None:
        _set_errors(sys.stdin, "replace")
        self._stdout, stderr = _exact(sys.stdout), _exact(sys.stderr)
        for stream in (self._stdout, stderr):
            _set_errors(stream, _HANDLER)
        self.no_color = no_color or bool(os.environ.get("NO_COLOR"))
        self.out = self._console(self._stdout)
        self.err = self._console(stderr)
        is_dumb = self.out.is_dumb_terminal
        self.is_live: bool = _is_terminal(sys.stdout) and not is_dumb
        """Whether drawn output can be erased."""
        self.can_ask: bool = _is_terminal(sys.stdin) and (
            _is_terminal(sys.stdout) or _is_terminal(sys.stderr)
        )
        """Whether there is a user to ask."""
        self.glyphs: Glyphs = UNICODE if self._knows_unicode() else ASCII
        self._area: Live | None = None
        self._holders = 0
        self._lock = RLock()
        self._keyboard = Lock()
        self._questions = 0
        self._is_asking = False
        self._held_back: list[Callable[[], None]] = []

    def _console(self, stream: IO[str]) -> Console:
        return SafeConsole(file=stream, highlight=False, markup=False, no_color=self.no_color, emoji=False)

    def _knows_unicode(self) -> bool:
        if not (sys.stdout.encoding or "").lower().replace("-", "").startswith("utf"):
            return False
        named = next(filter(None, map(os.environ.get, ("LC_ALL", "LC_CTYPE", "LANG"))), "")
        return not self.is_live or named not in ("C", "POSIX")

    @property
    def voice(self) -> Console:
        """The console for questions: the stream that is a terminal."""
        return self.err if _is_terminal(sys.stderr) or not _is_terminal(sys.stdout) else self.out

    # Transient output.

    def show(self, renderable: RenderableType) -> None:
        """Draw something below the output, until something else is printed."""
        if not self.is_live:
            return
        with self._lock:
            # Checked under the lock: a question may have come, and drawing would erase lines of it.
            if self._holders:
                return
            if self._area is None:
                self._area = Live(
                    renderable, console=self.out, transient=True, refresh_per_second=15, redirect_stderr=False
                )
                self._area.start()
            else:
                self._area.update(renderable)

    def wait(self, text: str) -> None:
        """Show a spinner."""
        if self.is_live:
            from rich.spinner import Spinner

            self.show(Spinner(self.glyphs.spinner, Text(text, style="dim"), style="cyan"))

    def clear(self) -> None:
        """Erase transient output."""
        with self._lock:
            area, self._area = self._area, None
            if area is None:
                return
            try:
                area.stop()
            except BaseException as error:
                # Ctrl-C came now, or while it was first drawn, which makes rich raise an IndexError.
                self.out.show_cursor(True)
                if not isinstance(error, IndexError):
                    raise

    @contextmanager
    def held(self) -> Generator[None]:
        """Draw nothing while a question is on the screen."""
        with self._lock:
            self._holders += 1
            self.clear()
        try:
            yield
        finally:
            with self._lock:
                self._holders -= 1

    # Permanent output.

    def print(self, renderable: RenderableType = "", *, style: str | None = None, end: str = "\n") -> None:
        """Print on standard output."""
        self._print(self.out, renderable, style, end)

    def note(self, renderable: RenderableType = "", *, style: str | None = None) -> None:
        """Print on standard error."""
        self._print(self.err, renderable, style)

    def leave_question(self) -> None:
        """Go to the next line if a question that will not be answered is on this one."""
        if self._is_asking:
            self.voice.print()
            self._let_go()

    def _print(
        self, console: Console, renderable: RenderableType, style: str | None, end: str = "\n"
    ) -> None:
        with self._lock:
            if self._is_asking:
                self._held_back.append(partial(self._print, console, renderable, style, end))
                return
            self.clear()
            if console.is_terminal and isinstance(renderable, str | Text):
                renderable = _hanging(renderable, console)
            # Do not wrap lines for a pipe.
            console.print(
                renderable,
                style=style,
                end=end,
                markup=False,
                soft_wrap=not console.is_terminal,
                highlight=False,
            )

    def write(self, text: str) -> None:
        """Write text to standard output at once."""
        self.write_exactly(plain(text))

    def write_words(self, text: str, *, is_apart: bool) -> None:
        """Write the agent's words; with `is_apart`, indented, so that they cannot pass for Outrider's."""
        if is_apart or self.out.is_terminal:
            width = max(self.voice.width - len(INDENT) - 1, 20)
            lines = [piece for line in printable(text).split("\n") for piece in chopped(line, width)]
            text = "\n".join(f"{INDENT}{line}".rstrip() for line in lines)
        self.write(text if text.endswith("\n") else f"{text}\n")

    def write_json(self, text: str) -> None:
        """Write a line of JSON to standard output, with control characters escaped."""
        self.write_exactly(f"{escaped_json(text)}\n")

    def write_exactly(self, text: str) -> None:
        """Write text of Outrider's own, with its escape codes."""
        with self._lock:
            if self._is_asking:
                self._held_back.append(partial(self.write_exactly, text))
                return
            self.clear()
            # In pieces: an unbuffered stream whose reader leaves may silently take less than it is given.
            for start in range(0, len(text), _PIECE):
                self._stdout.write(text[start : start + _PIECE])
            self._stdout.flush()

    # Keys.

    @contextmanager
    def typing(self) -> Generator[None]:
        """Hold the keyboard for the user's own line, once all questions are answered."""
        while self._questions or not self._keyboard.acquire(timeout=0.05):
            time.sleep(0.05)
        try:
            yield
        finally:
            self._keyboard.release()

    @asynccontextmanager
    async def asking(self) -> AsyncGenerator[None]:
        """Hold the keyboard and the bottom of the screen for a question.

        Other output waits until it is answered.
        """
        import anyio

        self._questions += 1
        try:
            if not self._keyboard.acquire(blocking=False):
                self.voice.print("\nThe agent has a question: press Enter.", style="yellow")
                # Another thread has it.
                while not self._keyboard.acquire(blocking=False):  # noqa: ASYNC110
                    await anyio.sleep(0.05)
            with self._lock:
                self._is_asking = True
            try:
                with self.held():
                    yield
            except BaseException:
                self.leave_question()
                raise
            finally:
                self._let_go()
                self._keyboard.release()
        finally:
            self._questions -= 1

    def _let_go(self) -> None:
        """Print the output that waited for a question."""
        with self._lock:
            self._is_asking = False
            waiting, self._held_back = self._held_back, []
            for show in waiting:
                show()

    def question(self, words: str) -> None:
        """Print a question and stay on its line."""
        self.voice.print(_hanging(words, self.voice), end="")

    def unprompt(self, console: Console) -> None:
        """Erase the current line, or go to the next if that is impossible."""
        if console.is_terminal and not console.is_dumb_terminal:
            console.control(Control((ControlType.ERASE_IN_LINE, 2)), Control((ControlType.CARRIAGE_RETURN,)))
        else:
            console.print()

    async def key(self, prompt: Text, keys: str, *, default: str) -> str:
        """Print a prompt and wait for one of these keys. Cancelling the call leaves the terminal as it was.

        Keys pressed before the prompt was shown are discarded. The end of the input is the default.
        """
        import anyio

        fd = sys.stdin.fileno()
        begun = ""
        with _single_keys(fd):
            self.voice.print(prompt, end="", soft_wrap=True)
            while True:
                await anyio.wait_readable(fd)
                data = os.read(fd, _MOST_KEYS)
                if not data:
                    return default
                pressed = _SPECIAL_KEY.sub("", begun + data.decode("ascii", "replace"))
                # On a slow connection the rest of an arrow key comes later.
                begun = "".join(_BEGUN_KEY.findall(pressed)[:1])
                for key in pressed.removesuffix(begun).lower():
                    if key in keys:
                        return key
                    if key in "\x04\r\n":
                        return default

    async def line(self, prompt: Text) -> str | None:
        """Print a prompt and wait for a line; None at the end of the input.

        Whatever was typed before the prompt was shown is discarded.
        """
        import termios

        import anyio

        fd = sys.stdin.fileno()
        termios.tcflush(fd, termios.TCIFLUSH)
        self.voice.print(prompt, end="", soft_wrap=True)
        await anyio.wait_readable(fd)
        data = os.read(fd, 65536)
        return data.decode("utf-8", "replace").rstrip("\n") if data else None


def complain(words: str) -> None:
    """Write a line to the current stderr."""
    console = Terminal(no_color=True).err
    if console.is_terminal:
        console.print(_hanging(words, console))
    else:
        sys.stderr.write(f"{plain(words)}\n")


def _hanging(words: str | Text, console: Console) -> Text:
    """Wrap a line with a hanging indent, to keep the first column for Outrider."""
    text = Text(words) if isinstance(words, str) else words
    if text.cell_len <= console.width:
        return text
    first, *more = text.wrap(console, max(console.width - len(_HANGING), 20))
    return Text("\n").join([first, *(Text(_HANGING).append_text(line) for line in more)])


@contextmanager
def _single_keys(fd: int) -> Generator[None]:
    import termios
    import tty

    before = termios.tcgetattr(fd)
    try:
        # Ctrl-C still sends a signal.
        tty.setcbreak(fd, termios.TCSAFLUSH)
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


class _Guarded:
    """A standard stream that makes everything written to it safe: logs, warnings, tracebacks, packages."""

    def __init__(self, stream: IO[str]) -> None:
        self.exact = stream

    def write(self, text: str) -> int:
        self.exact.write(plain(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a stream has
        return getattr(self.exact, name)


@contextmanager
def guarded_streams() -> Generator[None]:
    """Make everything that is written to standard output and error safe to show."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast("TextIO", _Guarded(stream)) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def _exact(stream: IO[str]) -> IO[str]:
    return stream.exact if isinstance(stream, _Guarded) else stream


def _is_terminal(stream: IO[str] | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:
        # It is closed.
        return False


_IN_ASCII: Final = dict(zip("…—\u2013·\u2019“”→", ("...", "-", "-", "-", "'", '"', '"', "->"), strict=True))
_HANDLER: Final = "outrider-terminal"


def _replace(error: UnicodeError) -> tuple[str, int]:
    """Replace characters that a stream cannot encode."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_IN_ASCII.get(sign, "?") for sign in error.object[error.start : error.end]), error.end


def _set_errors(stream: IO[str], how: str) -> None:
    codecs.register_error(_HANDLER, _replace)
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors=how)
