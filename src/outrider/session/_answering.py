"""Answers the agent's requests, each in a task of its own and in the context of the turn that it comes from.

What an answer is, is known to the handlers, which are reached through whoever holds them: a handler that
mentions its session does not keep it.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio
from anyio.lowlevel import checkpoint

from outrider.session._raising import is_failure, unwrapped, words_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextvars import Context
    from typing import TypeAlias

    from outrider.protocol import Peer, RequestReceived, RequestWithdrawn
    from outrider.session._connection import Connection
    from outrider.session._turn_state import TurnState
    from outrider.wire import JsonObject, RequestId
    from outrider.wire.control import Ask

    Answerer: TypeAlias = Callable[[Ask], Awaitable[JsonObject]]

log = logging.getLogger("outrider.session")

_AT_ONCE: Final = 16
"""Answers that are begun before others get their turn, however many are asked for."""


class Answering:
    """The requests of the agent that are open."""

    def __init__(self, connection: Connection, peer: Peer) -> None:
        self._connection = connection
        self._peer = peer
        self.find_answerer: Callable[[TurnState | None], Answerer | None] = lambda _: None
        self.find_context: Callable[[TurnState | None], Context | None] = lambda _: None
        self._open: dict[RequestId, anyio.CancelScope] = {}
        self._waiting: OrderedDict[RequestId, Callable[[], None]] = OrderedDict()
        self._starting = 0

    def received(self, event: RequestReceived) -> None:
        """Begin to answer, or have it wait for those that are about to begin."""
        # From now on: it may be taken back before its task runs.
        scope = self._open[event.id] = anyio.CancelScope()
        turn = self._connection.routing.front
        answer = (self._answer, event.id, event.request, turn, scope)
        self._waiting[event.id] = partial(self._connection.start, *answer, context=self.find_context(turn))
        self._begin()

    def _begin(self) -> None:
        while self._waiting and self._starting < _AT_ONCE:
            self._starting += 1
            _, begin = self._waiting.popitem(last=False)
            begin()

    def withdrawn(self, event: RequestWithdrawn) -> None:
        """The answer is not wanted any more."""
        if self._waiting.pop(event.id, None) is not None:
            del self._open[event.id]
        elif (scope := self._open.get(event.id)) is not None:
            scope.cancel()

    async def _answer(
        self, id: RequestId, request: Ask, turn: TurnState | None, scope: anyio.CancelScope
    ) -> None:
        self._starting -= 1
        self._begin()
        try:
            with scope:
                if not scope.cancel_called and not await self._reply(id, request, turn):
                    return
            # Not to be taken back: the answers of others may go with this one.
            await self._connection.flush()
        finally:
            del self._open[id]
            self._connection.was_excused()

    async def _reply(self, id: RequestId, request: Ask, turn: TurnState | None) -> bool:
        """Answer; gives whether the task may wait for the answer to be sent."""
        peer = self._peer
        try:
            answerer = self.find_answerer(turn)
            if answerer is None:
                peer.refuse(id, "the session is being closed")
            else:
                peer.respond(id, await answerer(request))
        except Exception as error:  # noqa: BLE001 - whatever the user's code raises
            self._refuse_for(id, request, error)
        except GeneratorExit as error:
            # Of the user's code, or this is thrown away together with its event loop. It may not wait then.
            if not self._connection.is_here:
                raise
            self._refuse_for(id, request, error)
            self._connection.start(self._connection.flush)
            return False
        except BaseException as error:  # noqa: BLE001 - Ctrl-C and its like, and cancellations
            if is_failure(error):
                # Raises it again if it was meant for this task. Else something that the handler waited for
                # was cancelled.
                await checkpoint()
                self._refuse_for(id, request, error)
            else:
                crash = unwrapped(error)
                peer.refuse(id, f"the host was ended: {type(crash).__name__}")
                self._connection.end_with(crash)
        return True

    def _refuse_for(self, id: RequestId, request: Ask, error: BaseException) -> None:
        log.error("a handler failed: %s", request.subtype, exc_info=error)
        self._peer.refuse(id, words_of(error))
