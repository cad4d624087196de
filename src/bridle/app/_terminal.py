"""Owns the terminal: what the two streams can show, what is drawn for a moment, and single keys.

Does not know what a conversation is.
"""

from __future__ import annotations

import codecs
import os
import re
import sys
import time
from contextlib import asynccontextmanager, contextmanager
from threading import Lock, RLock
from typing import IO, TYPE_CHECKING, Final

from rich.console import Console
from rich.control import Control
from rich.live import Live
from rich.segment import ControlType
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from rich.console import RenderableType

__all__ = ["ASCII", "UNICODE", "Glyphs", "Terminal", "printable"]


class Glyphs:
    """The signs that are used, for terminals that know them and for those that do not."""

    def __init__(self, **signs: str) -> None:
        self.prompt = signs["prompt"]
        self.tool = signs["tool"]
        self.returns = signs["returns"]
        self.good = signs["good"]
        self.bad = signs["bad"]
        self.warning = signs["warning"]
        self.more = signs["more"]
        self.dot = signs["dot"]
        self.spinner = signs["spinner"]


UNICODE: Final = Glyphs(
    prompt="\N{HEAVY RIGHT-POINTING ANGLE QUOTATION MARK ORNAMENT}",
    tool="⏺",
    returns="└",
    good="✓",
    bad="✗",
    warning="!",
    more="…",
    dot="·",
    spinner="dots",
)
ASCII: Final = Glyphs(
    prompt=">", tool="*", returns="`-", good="+", bad="x", warning="!", more="...", dot="-", spinner="line"
)

# What a terminal would obey, or what would show text in another order than it is in.
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_REPLACED = "\N{REPLACEMENT CHARACTER}"

_PIECE: Final = 4096
_MOST_KEYS: Final = 1024

# An arrow sends letters too, and is none of them.
_SPECIAL_KEY = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.|.)?")


def printable(text: str, *, with_tabs: bool = False) -> str:
    """A text of somebody else's that a terminal shows and does not obey; with tabs, or spaces for them."""
    shown = _UNPRINTABLE.sub(_REPLACED, text.replace("\r\n", "\n"))
    return shown if with_tabs else shown.expandtabs(4)


class Terminal:
    """Standard output and error, and who is in front of them.

    `out` has the answer, `err` all that is said about it. Both never raise for a character that they cannot
    show, nor does standard input for one that it does not know.
    """

    def __init__(self, *, no_color: bool = False) -> None:
        _forgive(sys.stdin, "replace")
        for stream in (sys.stdout, sys.stderr):
            _forgive(stream, _HANDLER)
        self.no_color = no_color or bool(os.environ.get("NO_COLOR"))
        self.out = self._console(sys.stdout)
        self.err = self._console(sys.stderr)
        is_dumb = self.out.is_dumb_terminal
        self.is_live: bool = _is_terminal(sys.stdout) and not is_dumb
        """Whether what is drawn can be taken back."""
        self.can_ask: bool = _is_terminal(sys.stdin) and (
            _is_terminal(sys.stdout) or _is_terminal(sys.stderr)
        )
        """Whether somebody is there to answer."""
        self.glyphs: Glyphs = UNICODE if self._knows_unicode() else ASCII
        self._area: Live | None = None
        self._is_held = False
        self._lock = RLock()
        self._keyboard = Lock()
        self._questions = 0
        self._is_asking = False

    def _console(self, stream: IO[str]) -> Console:
        return Console(file=stream, highlight=False, no_color=self.no_color, emoji=False)

    def _knows_unicode(self) -> bool:
        if not (sys.stdout.encoding or "").lower().replace("-", "").startswith("utf"):
            return False
        named = next(filter(None, map(os.environ.get, ("LC_ALL", "LC_CTYPE", "LANG"))), "")
        return not self.is_live or named not in ("C", "POSIX")

    @property
    def voice(self) -> Console:
        """Where to speak to a person: the stream that is a terminal."""
        return self.err if _is_terminal(sys.stderr) or not _is_terminal(sys.stdout) else self.out

    # For a moment.

    def show(self, renderable: RenderableType) -> None:
        """Draw something below all that is printed; it is gone with the next thing that is."""
        if not self.is_live or self._is_held:
            return
        with self._lock:
            if self._area is None:
                self._area = Live(
                    renderable, console=self.out, transient=True, refresh_per_second=15, redirect_stderr=False
                )
                self._area.start()
            else:
                self._area.update(renderable)

    def wait(self, text: str) -> None:
        """Show that something is being waited for."""
        if self.is_live:
            from rich.spinner import Spinner

            self.show(Spinner(self.glyphs.spinner, Text(text, style="dim"), style="cyan"))

    def clear(self) -> None:
        """Take away what is drawn for a moment."""
        with self._lock:
            area, self._area = self._area, None
            if area is not None:
                area.stop()

    @contextmanager
    def held(self) -> Generator[None]:
        """Draw nothing for a moment, because a question stands at the bottom."""
        self._is_held = True
        self.clear()
        try:
            yield
        finally:
            self._is_held = False

    # For good.

    def print(self, renderable: RenderableType = "", *, style: str | None = None, end: str = "\n") -> None:
        """Print on standard output."""
        self._print(self.out, renderable, style, end)

    def note(self, renderable: RenderableType = "", *, style: str | None = None) -> None:
        """Print on standard error."""
        self._print(self.err, renderable, style)

    def leave_question(self) -> None:
        """Go to the next line if a question stands in this one, because it will not be answered."""
        if self._is_asking:
            self._is_asking = False
            self.voice.print()

    def _print(
        self, console: Console, renderable: RenderableType, style: str | None, end: str = "\n"
    ) -> None:
        with self._lock:
            self.clear()
            # A line that is piped belongs together, however long it is.
            console.print(
                renderable,
                style=style,
                end=end,
                markup=False,
                soft_wrap=not console.is_terminal,
                highlight=False,
            )

    def write(self, text: str) -> None:
        """Write text to standard output as it is, at once."""
        with self._lock:
            self.clear()
            # Unbuffered, a stream may take less than it is given without a word, if its reader goes.
            for start in range(0, len(text), _PIECE):
                sys.stdout.write(text[start : start + _PIECE])
            sys.stdout.flush()

    # Keys.

    @contextmanager
    def typing(self) -> Generator[None]:
        """Have the keyboard for a line of the user's own, once all that is asked has been answered."""
        while self._questions or not self._keyboard.acquire(timeout=0.05):
            time.sleep(0.05)
        try:
            yield
        finally:
            self._keyboard.release()

    @asynccontextmanager
    async def asking(self) -> AsyncGenerator[None]:
        """Have the keyboard, and the bottom of the screen, for a question."""
        import anyio

        self._questions += 1
        try:
            if not self._keyboard.acquire(blocking=False):
                self.voice.print("\nIt wants to ask you something: press Enter.", style="yellow")
                # Another thread has it.
                while not self._keyboard.acquire(blocking=False):  # noqa: ASYNC110
                    await anyio.sleep(0.05)
            self._is_asking = True
            try:
                with self.held():
                    yield
            except BaseException:
                self.leave_question()
                raise
            finally:
                self._is_asking = False
                self._keyboard.release()
        finally:
            self._questions -= 1

    def prompt(self, text: Text) -> None:
        """Print on standard output without going to the next line."""
        self.out.print(text, end="", soft_wrap=True)

    def unprompt(self) -> None:
        """Take the line of `prompt` away; where that cannot be done, go to the next."""
        if self.is_live:
            self.out.control(Control((ControlType.ERASE_IN_LINE, 2)), Control((ControlType.CARRIAGE_RETURN,)))
        else:
            self.out.print()

    async def key(self, keys: str, *, default: str) -> str:
        """Wait for one of these keys to be pressed. Cancelling the call leaves the terminal as it was.

        What was typed before the question is thrown away: it was not meant for it. The end of the input is
        the default.
        """
        import anyio

        if sys.platform == "win32":
            typed = (await self.line() or "").strip().lower()[:1]
            return typed if typed and typed in keys else default
        fd = sys.stdin.fileno()
        with _single_keys(fd):
            while True:
                await anyio.wait_readable(fd)
                data = os.read(fd, _MOST_KEYS)
                if not data:
                    return default
                for key in _SPECIAL_KEY.sub("", data.decode("ascii", "replace")).lower():
                    if key in keys:
                        return key
                    if key in "\x04\r\n":
                        return default

    async def line(self) -> str | None:
        """Wait for a line to be typed; None at the end of the input. What was typed before is thrown away."""
        import anyio

        if sys.platform == "win32":
            typed = await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
            return typed.rstrip("\n") if typed else None
        import termios

        fd = sys.stdin.fileno()
        termios.tcflush(fd, termios.TCIFLUSH)
        await anyio.wait_readable(fd)
        data = os.read(fd, 65536)
        return data.decode("utf-8", "replace").rstrip("\n") if data else None


@contextmanager
def _single_keys(fd: int) -> Generator[None]:
    import termios
    import tty

    before = termios.tcgetattr(fd)
    try:
        # Ctrl-C stays what it is.
        tty.setcbreak(fd, termios.TCSAFLUSH)
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


def _is_terminal(stream: IO[str] | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:
        # It is closed.
        return False


_IN_ASCII: Final = {
    "…": "...",
    "—": "-",
    "\u2013": "-",
    "·": "-",
    "\u2019": "'",
    "“": '"',
    "”": '"',
    "→": "->",
}
_HANDLER: Final = "bridle-terminal"


def _spelled(error: UnicodeError) -> tuple[str, int]:
    """What stands for characters that a stream cannot show."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_IN_ASCII.get(sign, "?") for sign in error.object[error.start : error.end]), error.end


def _forgive(stream: IO[str], how: str) -> None:
    codecs.register_error(_HANDLER, _spelled)
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors=how)
