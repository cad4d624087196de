"""Owns the requests that the model was asked, and waiting for one of them. Any thread may use it.

Does not make or answer any.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from outrider.testing._requests import Request

__all__ = ["RequestLog"]


class RequestLog:
    """Requests in the order in which they were made."""

    def __init__(self) -> None:
        self._requests: list[Request] = []
        self._arrived = threading.Condition()

    def __len__(self) -> int:
        return len(self._requests)

    def add(self, request: Request) -> None:
        with self._arrived:
            self._requests.append(request)
            self._arrived.notify_all()

    def all(self) -> list[Request]:
        with self._arrived:
            return list(self._requests)

    def main(self) -> list[Request]:
        """Those of the main conversation."""
        return [request for request in self.all() if request.kind == "main"]

    def wait_for(self, what: int | Callable[[Request], bool], timeout: float) -> Request:
        """Block this thread until one is there. Raises `TimeoutError` if it does not come."""
        deadline = time.monotonic() + timeout
        with self._arrived:
            while (found := self._find(what)) is None:
                left = deadline - time.monotonic()
                if left <= 0:
                    came = ", ".join(request.kind for request in self._requests) or "none"
                    wanted = f"main request {what}" if isinstance(what, int) else "the request"
                    raise TimeoutError(f"{wanted} did not come within {timeout:g} s; those that did: {came}")
                self._arrived.wait(left)
        return found

    def _find(self, what: int | Callable[[Request], bool]) -> Request | None:
        if callable(what):
            return next(filter(what, self._requests), None)
        main = [request for request in self._requests if request.kind == "main"]
        return main[what - 1] if 1 <= what <= len(main) else None
