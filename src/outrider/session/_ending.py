"""How a connection came to its end, and how one is ended by whoever is not on its event loop.

Does not decide that it ends.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

import anyio
from anyio import from_thread

from outrider.errors import ConnectionLost, OutriderError, ProcessExited

if TYPE_CHECKING:
    from collections.abc import Callable

    from anyio.lowlevel import EventLoopToken

    from outrider.transports import Transport

log = logging.getLogger("outrider.session")

_INTERRUPT: Final = b'{"type":"control_request","request_id":"the-last","request":{"subtype":"interrupt"}}\n'
"""Whoever ends an agent in this way may be on any thread, where the peer must not be used."""


def why_lost(error: BaseException | None, transport: Transport) -> OutriderError:
    """Why a connection that nobody closed has ended: by an error, or with the agent's output."""
    if isinstance(error, OutriderError):
        return error
    if error is not None:
        lost = ConnectionLost(f"the transport failed: {error!r}")
        lost.__cause__ = error
        return lost
    code = getattr(transport, "returncode", None)
    if isinstance(code, int):
        # With 0, or it would have been an error. That is no success while something is owed.
        tail = str(getattr(transport, "stderr_tail", ""))
        return ProcessExited(code, stderr_tail=tail, message="the agent ended its output")
    return ConnectionLost("the agent ended its output")


def end_transport(transport: Transport, *, interrupt: bool = False) -> bool:
    """Begin to end the agent, without waiting; False if its transport cannot do that.

    `interrupt`: it is at work, and would go on until the grace period has passed."""
    put = getattr(transport, "put", None)
    if interrupt and put is not None:
        put(_INTERRUPT)
    end = getattr(transport, "end", None)
    if end is not None:
        end()
    return end is not None


async def close_transport(transport: Transport, seconds: float | None = None) -> None:
    """End the agent, whatever becomes of the caller. That it fails is logged."""
    try:
        with anyio.move_on_after(seconds, shield=True):
            await transport.close()
    except Exception:
        log.exception("a transport could not be closed")


def call_from_outside(function: Callable[[], object], token: EventLoopToken) -> None:
    """Have a function called on an event loop, from any thread, that of a finalizer included, and at any
    time. Does not wait for it; if the loop is gone, nothing happens."""

    def call() -> None:
        try:
            from_thread.run_sync(function, token=token)
        except Exception as error:  # noqa: BLE001 - the loop is closed; there is nobody to tell
            log.debug("the event loop ended before an abandoned session: %s", error)

    try:
        threading.Thread(target=call, name="outrider-abandoned", daemon=True).start()
    except RuntimeError as error:
        # The interpreter is going down, and all loops with it.
        log.debug("an abandoned session could not be ended: %s", error)
