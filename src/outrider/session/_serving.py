"""Runs the MCP servers of this process for one conversation, and lets them come and go.

What a server does is its own business; which one a message is for is known to `outrider.handlers`.
"""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
from anyio.lowlevel import checkpoint

from outrider.errors import OptionsError
from outrider.session._links import ServerLink
from outrider.session._raising import is_failure, unwrapped

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping
    from contextvars import Context

    from outrider.handlers import Endpoint, Handlers
    from outrider.options import SdkServer
    from outrider.session._connection import Connection
    from outrider.wire import JsonObject

log = logging.getLogger("outrider.session")


class Serving:
    """The servers that a conversation runs."""

    def __init__(self, handlers: Handlers, connection: Connection, context: Context) -> None:
        self._handlers = handlers
        self._connection = connection
        self._context = context
        self._fixed = handlers.servers.given
        """Those of the start, which stay."""
        self._changing = anyio.Lock()
        self._running: dict[str, anyio.CancelScope] = {}

    def begin(self, find_handlers: Callable[[], Handlers | None]) -> None:
        """Begin to run those of the start. Their links reach the handlers without keeping them."""
        self._find_handlers = find_handlers
        for name in self._fixed:
            self._run(name)

    @asynccontextmanager
    async def exchanged(self, wanted: Mapping[str, SdkServer]) -> AsyncGenerator[dict[str, JsonObject]]:
        """Have other servers beside those of the start than until now; gives all as the agent has to be told.

        If the block fails, those of before are served again. Raises `OptionsError` for what is no server, or
        has the name of one of the start.
        """
        async with self._changing:
            servers = self._handlers.servers
            before = {name: given for name, given in servers.given.items() if name not in self._fixed}
            for name in wanted:
                if name in self._fixed:
                    raise OptionsError(
                        f"there is a server {name!r} of this process from the start",
                        hint="Give it another name.",
                    )
            try:
                self._become(before, wanted, is_final=False)
                told = {**self._fixed, **wanted}
                yield {name: {**given.to_wire(), "name": name} for name, given in told.items()}
            except BaseException:
                self._become(servers.given.keys() - self._fixed.keys(), before, is_final=True)
                raise
            self._become(before.keys() | wanted.keys(), wanted, is_final=True)
            self._connection.routing.turns.can_be_asked = self._handlers.can_be_asked

    def _become(
        self, before: Mapping[str, object] | set[str], wanted: Mapping[str, SdkServer], *, is_final: bool
    ) -> None:
        """Run what is wanted; if that is final, end what is not."""
        servers = self._handlers.servers
        for name, given in wanted.items():
            if (known := servers.given.get(name)) is None or known.instance is not given.instance:
                # First, because it may raise.
                servers.put(name, given)
                self._end(name)
                self._run(name)
        if is_final:
            for name in set(before) - wanted.keys():
                self._end(name)
                if name in servers.given:
                    servers.remove(name)

    def _run(self, name: str) -> None:
        link = ServerLink(self._connection, name, self._find_handlers)
        endpoint = self._handlers.servers.open(name, link)
        scope = self._running[name] = anyio.CancelScope()
        self._connection.start(_run_endpoint, endpoint, scope, self._connection, context=self._context)

    def _end(self, name: str) -> None:
        if (scope := self._running.pop(name, None)) is not None:
            scope.cancel()


async def _run_endpoint(endpoint: Endpoint, scope: anyio.CancelScope, connection: Connection) -> None:
    """Run a server for as long as it is wanted. One that fails takes nothing else with it."""
    try:
        with scope:
            await endpoint.run()
    except Exception:
        log.exception("a server of this process failed")
    except GeneratorExit:
        # The server's, or this is thrown away together with its event loop.
        if not connection.is_here:
            raise
        log.exception("a server of this process failed")
    except BaseException as error:
        if not is_failure(error):
            connection.end_with(unwrapped(error))
            return
        # Raises it again if it was meant for this task.
        await checkpoint()
        log.exception("a server of this process failed")
