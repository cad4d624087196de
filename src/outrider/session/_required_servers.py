"""Waits for the MCP servers that a session cannot do without.

Does not connect to a server: the agent does, from its start on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import anyio

from outrider.errors import McpServerFailed
from outrider.options import SdkServer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from outrider.options import Options
    from outrider.wire.control import McpServerStatus

_FIRST_PAUSE: Final = 0.02
_GROWTH: Final = 1.5
_LONGEST_PAUSE: Final = 0.5
"""The agent does not tell when a server is connected, so it is asked again and again. An answer takes it
1 ms; most servers are there within 0.3 s, and some take many seconds."""

_WAITING: Final = "pending"


def required_servers(options: Options) -> tuple[str, ...]:
    """The names of the servers that options call required."""
    if isinstance(options.mcp_servers, str):
        return ()
    external = {
        name: server for name, server in options.mcp_servers.items() if not isinstance(server, SdkServer)
    }
    return tuple(name for name, server in external.items() if server.required)


async def wait_for_servers(
    request_status: Callable[[], Awaitable[list[McpServerStatus]]],
    names: Collection[str],
    timeout: float | None = None,
) -> None:
    """Wait until the agent is connected to each of these servers.

    Raises `McpServerFailed` as soon as one of them cannot be used, and after `timeout` seconds for one that
    is still awaited. What `request_status` raises comes through.
    """
    missing = set(names)
    with anyio.move_on_after(timeout):
        pause = _FIRST_PAUSE
        while missing := _still_awaited(await request_status(), names):
            await anyio.sleep(pause)
            pause = min(pause * _GROWTH, _LONGEST_PAUSE)
        return
    first = next(name for name in names if name in missing)
    raise McpServerFailed(first, f"it was not reached within {timeout:g} s", _WAITING)


def _still_awaited(statuses: list[McpServerStatus], names: Collection[str]) -> set[str]:
    """The servers that are not connected yet. Raises `McpServerFailed` for one that will not be."""
    known = {status.name: status for status in statuses}
    awaited: set[str] = set()
    for name in names:
        status = known.get(name)
        if status is None:
            hint = "Its settings, or a policy of the machine, may forbid it."
            raise McpServerFailed(name, "the agent does not have it", None, hint=hint)
        if status.status == _WAITING:
            awaited.add(name)
        elif status.status != "connected":
            raise McpServerFailed(name, _reason(status), status.status)
    return awaited


def _reason(status: McpServerStatus) -> str:
    """What the agent says, with what it leaves out of it: it names no program that it does not find."""
    command = status.config.command if status.config is not None else None
    said = status.error or ""
    return f"{said} (command: {command})" if command and command not in said else said
