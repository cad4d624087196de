"""Owns what the agent says between turns, when work in the background has ended: has it shown, once.

Does not read what is typed: it is told when somebody types.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from threading import Lock
from typing import TYPE_CHECKING

from outrider._threads import start_thread
from outrider.app._saying import said
from outrider.errors import OutriderError
from outrider.wire import AssistantMessage, InitMessage, StreamEvent

if TYPE_CHECKING:
    from collections.abc import Callable

    from outrider import Message
    from outrider.app._stream import Stream
    from outrider.app._terminal import Terminal
    from outrider.sync import Session

__all__ = ["Between"]


class Between:
    """Listens to a session, and shows what belongs to no turn: at once while somebody types, else after."""

    def __init__(self, session: Session[object], terminal: Terminal, stream: Stream) -> None:
        self._terminal = terminal
        self._stream = stream
        self._lock = Lock()
        self._waiting: list[Message] = []
        self._shown: dict[int, Message] = {}
        """Messages of the last turn, by identity: kept, so that no other can have it."""
        self._shown_before: dict[int, Message] = {}
        """Those of the turn before it. The listener may be that late."""
        self._draw_prompt: Callable[[], None] | None = None
        start_thread(self._listen, session, name="outrider-between")

    def end_turn(self, messages: Iterable[Message]) -> None:
        """A turn is over, and these are its messages."""
        with self._lock:
            self._shown_before, self._shown = self._shown, {id(each): each for each in messages}
            self._catch_up()

    @contextmanager
    def typing(self, draw_prompt: Callable[[], None]) -> Generator[None]:
        """Somebody types at a prompt, which is drawn again below what is shown meanwhile."""
        with self._lock:
            self._catch_up()
            self._draw_prompt = draw_prompt
        try:
            yield
        finally:
            with self._lock:
                self._draw_prompt = None

    def _listen(self, session: Session[object]) -> None:
        # How a session ends is for others to say.
        with suppress(OutriderError):
            for message in session:
                with self._lock:
                    self._waiting.append(message)
                    if self._draw_prompt is not None and any(map(self._has_words, self._waiting)):
                        self._terminal.unprompt()
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
        return not is_of_turn and any(each.kind not in ("done", "failed") for each in said(message))
