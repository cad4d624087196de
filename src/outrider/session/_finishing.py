"""Brings a session to its own end: waits until all that was asked is done, and lets the agent go.

Does not interrupt anything; to close a session is the connection's business.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import anyio

from outrider.protocol import RunState

if TYPE_CHECKING:
    from outrider.protocol import Turns
    from outrider.session._connection import Connection

log = logging.getLogger("outrider.session")


async def wait_idle(connection: Connection) -> None:
    """Wait until nothing is asked and nothing goes on, in the background either."""
    routing = connection.routing
    while not connection.is_closed and (routing.outstanding or not _is_quiet(routing.turns)):
        await routing.everything.wait()


async def finish(connection: Connection) -> None:
    """End the agent's input once all is done. An agent that goes on after that is made to end."""
    await wait_idle(connection)
    if connection.is_closed:
        return
    try:
        await connection.transport.end_input()
    except Exception as error:  # noqa: BLE001 - also what a user's transport may raise
        log.debug("the input could not be ended: %s", error)
    with anyio.move_on_after(connection.timeouts.close):
        await _wait_closed(connection)
        return
    await connection.close("it did not end with its input")


async def _wait_closed(connection: Connection) -> None:
    while not connection.is_closed:
        await connection.routing.everything.wait()


def _is_quiet(turns: Turns) -> bool:
    return turns.is_over or turns.run is RunState.QUIET
