"""Owns `Gate`, where a scripted answer stops until a test lets it go on.

Knows nothing of answers or connections.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Gate"]


class Gate:
    """A place in an answer where it waits for `open()`.

        gate = Gate()
        with MessagesApi([say("one two three", gate=gate)]) as api:
            ...                     # a prompt is sent
            gate.wait_reached()     # "one " was sent, and nothing more
            gate.open()             # the rest follows

    `after` is how many pieces of the answer are sent before: 0 holds back all of it, the status too.
    An open gate stays open. Any thread may use it.
    """

    def __init__(self, *, after: int = 1) -> None:
        self.after = after
        self.reached = threading.Event()
        """Set once an answer has come to the gate."""
        self._lock = threading.Lock()
        self._is_open = False
        self._listeners: list[Callable[[], object]] = []

    @property
    def is_open(self) -> bool:
        return self._is_open

    def open(self) -> None:
        """Let the answer go on, and all that come later."""
        with self._lock:
            self._is_open = True
            listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener()

    def wait_reached(self, timeout: float = 30.0) -> None:
        """Block this thread until an answer has come to the gate.

        Raises `TimeoutError` if none does.
        """
        if not self.reached.wait(timeout):
            raise TimeoutError(f"No answer came to the gate within {timeout:g} s: was the request made?")

    def on_open(self, listener: Callable[[], object]) -> None:
        """Call this when the gate opens; at once, if it is open."""
        with self._lock:
            if not self._is_open:
                self._listeners.append(listener)
                return
        listener()

    def forget(self, listener: Callable[[], object]) -> None:
        """Do not call this any more."""
        with self._lock:
            if listener in self._listeners:
                self._listeners.remove(listener)

    def __repr__(self) -> str:
        state = "open" if self._is_open else "reached" if self.reached.is_set() else "closed"
        return f"<Gate after={self.after} {state}>"
