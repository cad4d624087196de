"""Owns a turn in front of a person: shows it as it comes, and ends it when Ctrl-C is pressed.

Does not know which command it is for.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from rich.text import Text

from outrider.app._saying import money
from outrider.app._terminal import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from outrider import Message, Result
    from outrider.app._terminal import Terminal
    from outrider.sync import Session, Turn

__all__ = ["follow", "opened", "summary"]

S = TypeVar("S", bound="Session[object]")


@contextmanager
def opened(session: S, terminal: Terminal) -> Generator[S]:
    """Start the agent of a session, and end it, with a word about each while it lasts."""
    terminal.wait("starting the agent")
    try:
        with session:
            try:
                yield session
            finally:
                terminal.wait("ending the agent")
    finally:
        terminal.clear()


def follow(turn: Turn[object], show: Callable[[Message], None], terminal: Terminal) -> Result[object]:
    """Show the messages of a turn to its end; gives what it came to.

    Ctrl-C interrupts the turn, and its result says so. A second one, while that is waited for, is raised.
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


def summary(result: Result[object], terminal: Terminal, *, with_session: bool = False) -> Text:
    """What a turn came to, on one line."""
    dot = f" {terminal.glyphs.dot} "
    calls = f"{result.num_turns} model call{'' if result.num_turns == 1 else 's'}"
    usage = result.usage
    parts = [
        calls,
        f"{result.duration:.1f} s",
        f"{usage.total_tokens:,} tokens",
        money(usage.cost_usd),
    ]
    if with_session and result.session_id:
        parts.append(f"session {one_line(result.session_id)}")
    return Text(dot.join(parts), style="dim")
