"""Owns `LastingTurn`: a prompt and all that comes of it, for its user.

Does not try anything: what is known of it is in its record, which whoever drives it fills.
"""

from __future__ import annotations

import weakref
from copy import copy
from typing import TYPE_CHECKING, Generic, cast

from anyio.lowlevel import checkpoint

from outrider.errors import TurnInterrupted
from outrider.fleet._lasting_record import Link, Position
from outrider.session import CancelReceipt
from outrider.session._result import Output_co

if TYPE_CHECKING:
    from typing import Self

    from outrider.fleet._lasting_record import Item, Record
    from outrider.session import Result, Usage
    from outrider.wire import Message


class LastingTurn(Generic[Output_co]):
    """A turn that outlives the agent's process, and failures of the API.

    `async for message in turn` gives what comes, with a `Restarted` or a `Retrying` where it was tried again;
    `result()` waits for the end. Both can be used together, by several tasks. A loop goes on where the one
    before it stopped. Whether anybody reads it changes nothing: it goes on until it is over or cancelled.
    """

    def __init__(self, record: Record) -> None:
        """Made by `LastingSession.send`."""
        self._record = record
        self._position = Position(record.last)
        self._reader: weakref.ref[LastingReader] | None = None

    def __repr__(self) -> str:
        return (
            f"<LastingTurn, {'over' if self.is_over else 'running'}, {len(self._record.messages)} messages>"
        )

    @property
    def is_over(self) -> bool:
        """Whether it has come to its end, good or bad."""
        return self._record.is_over

    @property
    def messages(self) -> tuple[Message, ...]:
        """All that the agent has said so far, in all tries; without stream events."""
        return tuple(self._record.messages)

    @property
    def usage(self) -> Usage:
        """What all tries that have ended have used."""
        return self._record.usage

    def __aiter__(self) -> LastingReader:
        """What comes, up to the end.

        A turn that its result says has failed ends like any other; one that ended without a result raises
        after the last message what `result` would raise.
        """
        if self._reader is not None and self._reader() is not None:
            # Another loop is at it. This one starts from there, and goes its own way.
            return LastingReader(self._record, copy(self._position))
        reader = LastingReader(self._record, self._position)
        self._reader = weakref.ref(reader)
        return reader

    async def result(self, *, check: bool = True) -> Result[Output_co]:
        """Wait for the end, and give what it came to: the last try, with the messages and the usage of all.

        Raises its error: what `Turn.result` raises, a `LimitReached` of a budget, a `ConnectionLost` if it
        was not sent again, or what kept the agent from being started. In each, `result` has what there is.
        With `check=False` the result is given back instead, with its `error`. Cancelling the call does not
        cancel the turn.
        """
        await self._record.wait_over()
        if self._record.crash is not None:
            raise self._record.crash
        result = cast("Result[Output_co]", self._record.result)
        return result.raise_for_error() if check else result

    async def cancel(self) -> CancelReceipt:
        """End the turn, whatever it waits for: a try that runs is interrupted, and there is no other.

        If the agent does not react within `timeouts.interrupt`, it is ended; the next prompt resumes the
        session. Cancelling this call does not stop any of it.
        """
        record = self._record
        was_over = record.is_over
        self.stop()
        await record.wait_over()
        if record.receipt is not None and not was_over:
            return record.receipt
        result = record.result
        message = None if result is None else result.message
        if was_over or (result is not None and result.error is None):
            return CancelReceipt("finished_first", message)
        is_interrupted = result is not None and isinstance(result.error, TurnInterrupted)
        return CancelReceipt("cancelled" if is_interrupted else "killed", message)

    def leave_unread(self) -> None:
        """Hold nothing for a loop: there will be none."""
        self._position = Position(Link())

    def stop(self) -> None:
        """Begin to cancel the turn, without waiting for it."""
        if not self._record.is_over:
            self._record.stop()


class LastingReader:
    """Reads a lasting turn: `async for message in turn`. Leaving the loop leaves nothing behind."""

    def __init__(self, record: Record, position: Position) -> None:
        self._record = record
        self._position = position

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        await checkpoint()
        position = self._position
        while (following := position.link.following) is None:
            if self._record.is_over:
                failure = self._record.failure
                raise StopAsyncIteration if failure is None else failure
            await self._record.wait()
        item, position.link = position.link.item, following
        if isinstance(item, Exception):
            raise copy(item)
        return cast("Item", item)
