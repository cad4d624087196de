"""Reads what an agent says, for its connection: in steps, with pauses when enough is unread.

What is said is not known here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import anyio
from anyio.lowlevel import checkpoint

if TYPE_CHECKING:
    from outrider.protocol import Peer
    from outrider.session._connection import Connection

_PAUSE_SECONDS: Final = 1.0
"""How often a reader that pauses looks up: one that is dropped, which may be what it waits for, does not say
so."""


class Reading:
    """Takes bytes from the transport to the peer, and what that makes of them to the connection.

    It can be broken off at any time and begun again: what was not gone through waits in the peer.
    """

    def __init__(self, connection: Connection, peer: Peer) -> None:
        self._connection = connection
        self._peer = peer
        self.is_paused = False

    async def run(self) -> None:
        """Read to the end. Raises what the transport raises, and `TransportClosed` if too much is unread."""
        connection, peer, flow = self._connection, self._peer, self._connection.flow
        receive = connection.transport.receive
        while True:
            if flow.is_full and self._may_pause():
                await self._pause()
            flow.check_ceiling()
            if peer.has_more:
                await self._go_on()
            elif data := await receive():
                connection.take(peer.begin(data), len(data))
            else:
                return

    async def finish(self) -> None:
        """Take what is left once no more bytes come, such as a last line that has no end. What is more than
        can be kept is dropped."""
        flow = self._connection.flow
        self._connection.take(self._peer.begin(None), 0)
        while self._peer.has_more and flow.unread <= flow.ceiling:
            await self._go_on()
        self._peer.drop_input()

    async def _go_on(self) -> None:
        """Do the next step on bytes that take more than one; whoever else has something to do comes first."""
        await checkpoint()
        self._connection.take(self._peer.go_on(), 0)

    def _may_pause(self) -> bool:
        """Whether nothing can be behind what is not read yet that somebody waits for."""
        connection, peer = self._connection, self._peer
        return not (
            connection.routing.turns.can_be_asked or connection.is_closed or peer.pending or peer.open
        )

    async def _pause(self) -> None:
        flow = self._connection.flow
        self.is_paused = True
        try:
            while flow.is_full and self._may_pause():
                with anyio.move_on_after(_PAUSE_SECONDS):
                    await flow.wait_moved()
        finally:
            self.is_paused = False
            self._connection.was_excused()
