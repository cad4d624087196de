"""Sends what is new to pages that are open: server-sent events, as few clients at once as are allowed.

Nothing is queued for a client. One that does not read is waited for a while, and dropped.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeAlias

import anyio
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from outrider.errors import OutriderError
from outrider.view._pages.layout import page
from outrider.view._pages.markup import Markup, h

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

Answer: TypeAlias = "Callable[[Request], Awaitable[Response]]"
"""What answers to an address."""
Tabs: TypeAlias = "list[tuple[str, str, int]]"
"""The names of pages, their addresses, and how much waits there."""

_MOST_CLIENTS: Final = 32
_PATIENCE: Final = 20.0
"""Seconds until a client is dropped that does not read."""
HEARTBEAT: Final = 15.0
TICK: Final = 0.25
"""Seconds between two looks at what may be new, or over."""
_HEADERS: Final = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"x-accel-buffering", b"no")]


def event(data: str, *, name: str = "", id: str | int = "") -> bytes:
    """An event, as it is written."""
    lines = [f"event: {name}"] if name else []
    if id != "":
        lines.append(f"id: {id}")
    # Only these end a line there.
    lines += [f"data: {part}" for part in data.replace("\r\n", "\n").replace("\r", "\n").split("\n")]
    return ("\n".join(lines) + "\n\n").encode("utf-8", "replace")


BEAT: Final = b": still here\n\n"


class Clients:
    """Those that listen."""

    def __init__(self) -> None:
        self.count = 0
        self.is_closing = False

    def stream(self, events: AsyncIterator[bytes]) -> Response:
        """The answer to a client; one too many is sent away."""
        if self.count >= _MOST_CLIENTS:
            return PlainTextResponse("Too many pages are open.", 503, headers={"retry-after": "5"})
        return _EventResponse(self, events)

    def watch(self, signature: Callable[[], Awaitable[object]], seconds: float) -> Response:
        """An answer that tells whenever something has another signature."""
        return self.stream(_changes(signature, seconds, self))


class _EventResponse(Response):
    def __init__(self, clients: Clients, events: AsyncIterator[bytes]) -> None:
        super().__init__()
        self._clients = clients
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._clients.count += 1
        try:
            async with anyio.create_task_group() as group:

                async def listen() -> None:
                    while (await receive())["type"] != "http.disconnect":
                        pass
                    group.cancel_scope.cancel()

                group.start_soon(listen)
                await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
                if await self._send_all(send):
                    await send({"type": "http.response.body", "body": b"", "more_body": False})
                group.cancel_scope.cancel()
        finally:
            self._clients.count -= 1

    async def _send_all(self, send: Send) -> bool:
        """Whether the client has read everything."""
        async for piece in self._events:
            with anyio.move_on_after(_PATIENCE) as waiting:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            if waiting.cancelled_caught:
                return False
        return True


def root_of(request: Request) -> str:
    """Where the viewer is mounted."""
    return str(request.scope.get("root_path", "")).rstrip("/")


async def renewed(
    request: Request,
    title: str,
    region: Markup,
    tabs: Callable[[], Awaitable[Tabs]],
    *,
    heading: str = "",
    note: Markup | None = None,
) -> Response:
    """A page with a region that is renewed when `/watch/…` tells; or that region by itself."""
    if "part" in request.query_params:
        return HTMLResponse(region)
    root = root_of(request)
    here = request.url.path.removeprefix(root)
    main = h("main", h("h1", heading or title), note, h("div", region, id="live"), id="main")
    body = h("div.single.wide", main)
    made = page(root, title, body, tabs=await tabs(), current=here, kind="work-page", watch=f"/watch{here}")
    return HTMLResponse(made)


async def _changes(
    signature: Callable[[], Awaitable[object]], seconds: float, clients: Clients
) -> AsyncIterator[bytes]:

    async def look() -> object:
        """What cannot be read has changed when it can: the page is told then."""
        try:
            return await signature()
        except (OutriderError, OSError) as error:
            return str(error)

    known = await look()
    yield b"retry: 2000\n\n"
    silent = waited = 0.0
    while not clients.is_closing:
        await anyio.sleep(TICK)
        waited += TICK
        silent += TICK
        if waited >= seconds:
            waited = 0.0
            now = await look()
            if now != known:
                known, silent = now, 0.0
                yield event("", name="changed")
        if silent >= HEARTBEAT:
            silent = 0.0
            yield BEAT
