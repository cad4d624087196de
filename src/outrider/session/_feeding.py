"""Prompts that come one after the other: from an iterable of the user's into a turn.

Does not know what a prompt looks like on the wire.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Generator, Iterable, Iterator
from contextvars import copy_context
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, TypeAlias, cast

import anyio
from anyio import from_thread
from anyio.lowlevel import EventLoopToken, checkpoint, current_token

from outrider._threads import start_thread
from outrider.errors import ConnectionLost, TurnFailed, TurnInterrupted, UsageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from threading import Thread

    from outrider.session._connection import Connection
    from outrider.session._turn_state import TurnState

log = logging.getLogger("outrider.session")

Prompts: TypeAlias = AsyncIterable[object] | Iterable[object]

_END: Final = object()
_CLOSE_SECONDS: Final = 1.0
"""How long a generator that is no longer wanted may take to end."""


async def feed(
    connection: Connection, state: TurnState, prompts: Prompts, send: Callable[[object], Awaitable[None]]
) -> None:
    """Send each prompt as it comes. That the iterable fails is the failure of the turn."""
    source = _AsyncSource(prompts) if isinstance(prompts, AsyncIterable) else _BlockingSource(prompts)
    failure: BaseException | None = None
    count = 0
    where = "after"
    try:
        with anyio.CancelScope() as state.feeding:
            if state.is_stopping:
                state.feeding.cancel()
            while (prompt := await source.next()) is not _END:
                count += 1
                where = "at"
                # One that is cut short may have been sent or not, and the agent would be asked for something
                # that it never saw. What stops the turn or closes the session ends this, too.
                with anyio.CancelScope(shield=True):
                    await send(prompt)
                where = "after"
    except anyio.get_cancelled_exc_class() as error:
        # Raises it again if it was meant for this task. Else something that the iterable waited for was
        # cancelled, which is an error like any other.
        await checkpoint()
        failure = error
    except BaseException as error:  # noqa: BLE001 - whatever the user's code raises
        failure = error
    finally:
        state.feeding = None
        await source.close()
    if not isinstance(failure, Exception | anyio.get_cancelled_exc_class() | None):
        connection.end_with(failure)
    elif not state.is_over:
        if where == "at" and isinstance(failure, ConnectionLost):
            # Not the iterable's fault: the agent does not read, or is gone.
            state.input_error = failure
        _conclude(connection, state, failure, f"{where} prompt {count}" if count else "before the first")


def _conclude(connection: Connection, state: TurnState, failure: BaseException | None, where: str) -> None:
    """No more prompts will come, for whatever reason."""
    routing, now = connection.routing, anyio.current_time()
    if isinstance(failure, ConnectionLost) and connection.is_closed:
        # Then the turn ends with the connection.
        return
    if failure is not None and state.input_error is None:
        state.input_error = TurnFailed(
            messages=state.received,
            session_id=connection.info.session_id,
            message=f"the iterable of prompts came to an end {where}, with {failure!r}",
            hint="Look at what makes the prompts; `__cause__` has its exception.",
        )
        state.input_error.__cause__ = failure
    elif not state.uuids and not state.is_stopping:
        state.input_error = UsageError("There was no prompt in the iterable. Give it at least one.")
    if not state.uuids:
        routing.fail(state, TurnInterrupted(message="the turn was ended before its first prompt"), now)
        return
    if state.input_error is not None:
        connection.begin_stop(state)
    routing.fed(state, now)


class _AsyncSource:
    """The prompts of an async iterable."""

    def __init__(self, prompts: AsyncIterable[object]) -> None:
        self._prompts = prompts
        self._iterator: AsyncIterator[object] | None = None

    async def next(self) -> object:
        """The next prompt, or the end."""
        if self._iterator is None:
            self._iterator = aiter(self._prompts)
        try:
            # With a default, one whose `__anext__` raises `StopIteration` crashes CPython 3.11.
            return await anext(self._iterator)
        except StopAsyncIteration:
            return _END

    async def close(self) -> None:
        """Close a generator. Anything else that can be closed may be of use to its owner."""
        if isinstance(cast("object", self._iterator), AsyncGenerator):
            generator = cast("AsyncGenerator[object, None]", self._iterator)
            try:
                with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
                    await generator.aclose()
            except Exception:
                log.exception("the generator of prompts could not be closed")


class _BlockingSource:
    """The prompts of a plain iterable, which may block, and so is asked in a thread of its own.

    A daemon: one that blocks for ever, as `input()` may, holds up neither its session nor the program's end.
    """

    def __init__(self, prompts: Iterable[object]) -> None:
        self._prompts = prompts
        self._orders: SimpleQueue[bool] = SimpleQueue()
        """True: give the next prompt; False: none is wanted any more."""
        self._thread: Thread | None = None
        self._arrival = anyio.Event()
        self._prompt: object = _END
        self._error: BaseException | None = None

    async def next(self) -> object:
        """The next prompt, or the end."""
        if self._thread is None:
            context, token = copy_context(), current_token()
            self._thread = start_thread(lambda: context.run(self._serve, token), name="outrider-prompts")
        self._arrival = anyio.Event()
        self._orders.put(True)
        await self._arrival.wait()
        if self._error is not None:
            raise self._error
        return self._prompt

    async def close(self) -> None:
        """The thread closes a generator, as soon as it has it back."""
        self._orders.put(False)

    def _serve(self, token: EventLoopToken) -> None:
        iterator: Iterator[object] | None = None
        while self._orders.get():
            prompt, error = _END, None
            try:
                iterator = iter(self._prompts) if iterator is None else iterator
                prompt = next(iterator, _END)
            except BaseException as raised:  # noqa: BLE001 - raised again where it is waited for
                error = raised
            try:
                from_thread.run_sync(self._take, prompt, error, token=token)
            except Exception as gone:  # noqa: BLE001 - the event loop; there is nobody to tell
                log.debug("a prompt came after its event loop had ended: %s", gone)
                break
        if isinstance(iterator, Generator):
            try:
                iterator.close()
            except Exception:
                log.exception("the generator of prompts could not be closed")

    def _take(self, prompt: object, error: BaseException | None) -> None:
        self._prompt, self._error = prompt, error
        self._arrival.set()
