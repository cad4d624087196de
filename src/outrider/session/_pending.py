"""A request of ours that has no answer yet.

Does not know how either travels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from outrider.errors import RequestFailed, RequestTimedOut, Unsupported
from outrider.protocol import RequestRefused
from outrider.wire import UNSUPPORTED_REQUEST

if TYPE_CHECKING:
    from outrider.protocol import RequestEvent


class Pending:
    """The place where the outcome of a request is waited for."""

    def __init__(self) -> None:
        self.event: RequestEvent | None = None
        self._is_set = anyio.Event()

    def set(self, event: RequestEvent) -> None:
        self.event = event
        self._is_set.set()

    async def wait(self) -> None:
        await self._is_set.wait()


def failure_of_request(
    request: object, event: RequestEvent | None, timeout: float | None, session_id: str | None
) -> RequestFailed:
    """Why there is no answer: the agent refused it, or, if nothing was heard, did not answer in time."""
    if isinstance(event, RequestRefused):
        kind = Unsupported if event.code == UNSUPPORTED_REQUEST else RequestFailed
        return kind(request, event.error, event.code, session_id=session_id)
    return RequestTimedOut(request, timeout, session_id=session_id)
