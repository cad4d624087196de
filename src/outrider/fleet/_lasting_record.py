"""Owns what is known of a lasting turn: all that came for it, what it came to, and whether it is to stop.

Decides nothing: it is filled by whoever drives the turn, and read by whoever has it.
"""

from __future__ import annotations

from copy import copy
from typing import TypeAlias

import anyio
import msgspec
from anyio.lowlevel import checkpoint

from outrider.fleet._restart import Restarted
from outrider.fleet._retry import Retrying
from outrider.session import CancelReceipt, Result, Usage
from outrider.wire import Message, StreamEvent

Item: TypeAlias = Message | Restarted | Retrying
"""What comes in a lasting turn."""


class Link:
    """A message, and a way to the one after it. Nothing holds those that everybody has read."""

    __slots__ = ("following", "item")

    def __init__(self) -> None:
        self.item: Item | Exception | None = None
        self.following: Link | None = None
        """None at the end, where the next message will be."""


class Position:
    """How far somebody has read."""

    __slots__ = ("link",)

    def __init__(self, link: Link) -> None:
        self.link = link


class Record:
    """One turn, from its prompt to its end."""

    def __init__(self) -> None:
        self.last = Link()
        """Where the next message will be."""
        self.messages: list[Message] = []
        self.usage = Usage()
        """Of all tries that have ended."""
        self.result: Result[object] | None = None
        self.crash: BaseException | None = None
        """What ended it that is no error of the agent's."""
        self.receipt: CancelReceipt | None = None
        """What became of a try that was interrupted because the turn was cancelled."""
        self.stopping = anyio.CancelScope()
        """Around all that is done for it."""
        self.closing = anyio.CancelScope()
        """Around what is done to stop it in good order."""
        self._began_at = anyio.current_time()
        self._news: anyio.Event | None = None

    @property
    def is_over(self) -> bool:
        return self.result is not None or self.crash is not None

    @property
    def is_closed(self) -> bool:
        """Whether it ends with its agent."""
        return self.closing.cancel_called

    @property
    def failure(self) -> BaseException | None:
        """What readers raise at the end: why there is no result."""
        if self.crash is not None:
            return self.crash
        result = self.result
        return None if result is None or result.message is not None else copy(result.error)

    # How it is stopped.

    def stop(self) -> None:
        """Begin to cancel it: a try that runs is interrupted."""
        self.stopping.cancel()

    def close(self) -> None:
        """Begin to end it with its agent."""
        self.stop()
        self.closing.cancel()

    # What comes.

    def add(self, item: Item | Exception) -> None:
        """A message, or what its readers are to raise in the place of one."""
        if not isinstance(item, Exception | StreamEvent | Restarted | Retrying):
            self.messages.append(item)
        link = self.last
        link.item = item
        self.last = link.following = Link()
        self._wake()

    def finish(self, result: Result[object], total: Usage, session_id: str | None) -> None:
        """It is over: with its last try, and with what all of them have said and used."""
        self.result = whole = msgspec.structs.replace(
            result,
            messages=tuple(self.messages),
            usage=self.usage,
            total_usage=total,
            duration=anyio.current_time() - self._began_at,
            session_id=result.session_id or session_id,
        )
        if whole.error is not None:
            whole.error.result = whole
        self._wake()

    def fail(self, error: BaseException) -> None:
        """It is over, by something that is no error of the agent's."""
        self.crash = error
        self._wake()

    def _wake(self) -> None:
        if self._news is not None:
            self._news.set()
            self._news = None

    async def wait(self) -> None:
        """Wait until something comes, or it is over."""
        if self._news is None:
            self._news = anyio.Event()
        await self._news.wait()

    async def wait_over(self) -> None:
        """Wait until it is over."""
        await checkpoint()
        while not self.is_over:
            await self.wait()
