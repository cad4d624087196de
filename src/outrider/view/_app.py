"""`app`: the viewer as an ASGI application, and what it answers to each address.

The pages are made in `_pages`, from what `_sources` finds. Who may look is decided in `_guard`.
"""

from __future__ import annotations

import base64
import binascii
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar
from urllib.parse import quote

import anyio
from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from outrider._threads import run_sync
from outrider.approvals import Approvals
from outrider.errors import OptionsError, OutriderError, SessionNotFound, UsageError
from outrider.fleet import Journal, Pool, Run
from outrider.redaction import DEFAULT
from outrider.session import Session
from outrider.transcripts import Sessions, SessionStore, StoredSession
from outrider.transcripts._disk.read import Search
from outrider.transcripts._entries import fields_of
from outrider.transcripts._export.turns import check_format
from outrider.transcripts.stores._heads import HeadStore
from outrider.view._guard import LOOPBACK, Guard
from outrider.view._live import BEAT, HEARTBEAT, TICK, Answer, Clients, Tabs, event, root_of
from outrider.view._pages.conversation import changed_files, doing, rows
from outrider.view._pages.layout import error_page, page
from outrider.view._pages.markup import Markup, h
from outrider.view._pages.sessions import (
    PAGE,
    Filter,
    changes_body,
    found_list,
    hit_row,
    list_body,
    list_rows,
    outline_parts,
    session_body,
    window_element,
)
from outrider.view._pages.timeline import timeline
from outrider.view._pages.tools import PICTURES, Shown, result_blocks
from outrider.view._sources.batch import Batch, is_batch
from outrider.view._sources.library import Library, by_call
from outrider.view._sources.transcript import TranscriptFile, Window, blocks_of, is_answer
from outrider.view._waiting import ApprovalPages
from outrider.view._work import BatchPages, PoolPages

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

    from outrider.view._sources.library import OpenSession

Viewable: TypeAlias = (
    Sessions | SessionStore | Session[Any] | Pool | Run[Any] | Journal | Approvals | str | os.PathLike[str]
)
"""What can be looked at."""

_HOLE: Final = Markup("<!--hits-->")
"""Where in a page the hits of a search come."""
_MOST_HITS: Final = 200
_NESTED: Final = 400
"""Rows of a subagent that are shown within its call."""
_FOLLOWED: Final = 20
"""Entries that may change as more are written: what came last is sent again."""
_FRESH: Final = 20.0
"""Seconds: a session that was written to so lately counts as running."""
_LONGEST_CALL: Final = 600.0
"""So does one that was so lately, and waits for the result of a call."""
_SLOW: Final = 3.0
"""Seconds between two looks at the list."""
_STATIC: Final = {"view.js": "text/javascript", "view.css": "text/css", "icon.svg": "image/svg+xml"}
_FORMATS: Final = {
    "html": ("text/html", "html"),
    "markdown": ("text/markdown", "md"),
    "json": ("application/json", "json"),
}


def app(
    *what: Viewable,
    approve: bool = False,
    token: str | None = None,
    password: str | None = None,
    hosts: Sequence[str] | None = LOOPBACK,
    guard: bool = True,
    redact: bool = True,
) -> View:
    """The viewer, as an ASGI application of its own or to be mounted in a service.

        app = Starlette(routes=[Mount("/agents", outrider.view.app(pool, "postgresql://…"))])

    `what`: `Sessions` or a store (or its URL or path), a `Pool`, a `Run` or the journal of one, a `Session`
    that is open, `Approvals`, the file of a transcript or of a trace; several of them at once. Without any,
    the sessions on this machine.

    `approve` lets those who look decide about approvals; else nothing can be changed. `token` is what the
    first address must have (`?token=…`; by default a random one: `View.token`); with a `password`, a page
    asks for that instead. `guard=False` is for a service that lets in only those who may see everything.
    `hosts`: the names that this server may be called by; `"*"` is any IP address, None any name. `redact`:
    whether secrets are masked that are recognised by their shape or name.

    Raises `OptionsError` for what cannot be looked at, and `UsageError` for a session that is not open.
    """
    guarded = partial(Guard, token=token, password=password, hosts=hosts, is_guarded=guard)
    return View(what, guarded, approve=approve, redact=redact)


class Single(NamedTuple):
    """What is looked at by itself, and is in no store."""

    add: Callable[[Library, Any], None]
    it: Session[Any] | Path


Taken: TypeAlias = Sessions | Single | Batch | Pool | Approvals
_T = TypeVar("_T")


def _taken(what: Viewable) -> Taken:
    """One thing, as what it is."""
    if isinstance(what, Sessions | Pool | Approvals):
        return what
    if isinstance(what, Session):
        return Single(Library.add_session, what)
    if isinstance(what, Run | Journal):
        return Batch(what)
    if isinstance(what, str) and is_batch(what):
        return Batch(Journal(what))
    if not isinstance(what, os.PathLike) and (not isinstance(what, str) or "://" in what):
        return Sessions(what)
    if not os.fspath(what):
        raise OptionsError("The path is empty", hint="Leave it out, for the sessions of this machine.")
    path = Path(what).expanduser()
    if path.is_file():
        return _taken_file(path)
    if path.is_dir():
        is_config = (path / "projects").is_dir()
        return Sessions(config=path) if is_config else Sessions(f"file://{path.absolute()}")
    if isinstance(what, str) and what.startswith("memory:"):
        return Sessions(what)
    raise OptionsError(
        f"{os.fspath(what)!r} does not exist",
        hint="Give a store, a journal, a trace or a transcript; or nothing, for this machine.",
    )


def _taken_file(path: Path) -> Taken:
    with path.open("rb") as file:
        head = file.read(1 << 16)
    if head.startswith(b"SQLite format 3\0"):
        return Batch(Journal(path)) if Batch.is_journal(path) else Sessions(path)
    if path.suffix == ".gz" or b'"outrider_trace"' in head or b'"dir":' in head.replace(b" ", b"")[:4000]:
        return Single(Library.add_trace, path)
    if head.lstrip().startswith(b"{"):
        return Single(Library.add_file, path)
    raise OptionsError(
        f"{str(path)!r} is not a store, a journal, a trace or a transcript",
        hint="See docs/view.md for what can be looked at.",
    )


def _the_one(taken: Sequence[Taken], kind: type[_T]) -> _T | None:
    """What there is of a kind. Raises `OptionsError` if there are two."""
    found = [each for each in taken if isinstance(each, kind)]
    if len(found) > 1:
        name = "stores of sessions" if kind is Sessions else f"things of the kind {kind.__name__}"
        raise OptionsError(f"There are {len(found)} {name}", hint="Give one, or make two viewers.")
    return found[0] if found else None


class View:
    """The viewer: an ASGI application. Made by `app`."""

    def __init__(
        self, what: Sequence[Viewable], guard: Callable[[ASGIApp], Guard], *, approve: bool, redact: bool
    ) -> None:
        self._redact = redact
        self._clients = Clients()
        taken = [_taken(each) for each in what]
        sessions = _the_one(taken, Sessions)
        batch, pool = _the_one(taken, Batch), _the_one(taken, Pool)
        approvals = _the_one(taken, Approvals)
        singles = [each for each in taken if isinstance(each, Single)]
        if sessions is None and (not singles or batch or pool or approvals):
            sessions = Sessions()
        self._library = Library(sessions)
        for each in singles:
            each.add(self._library, each.it)
        if approvals is None and sessions is not None:
            store = getattr(getattr(sessions._library, "_store", None), "_store", None)  # pyright: ignore[reportPrivateUsage]
            approvals = Approvals(store) if isinstance(store, HeadStore) else None
        made = (
            None if batch is None else BatchPages(batch, self._clients, self._tabs),
            None if pool is None else PoolPages(pool, self._clients, self._tabs),
            None
            if approvals is None
            else ApprovalPages(approvals, self._clients, self._tabs, may_decide=approve),
        )
        self._others = [each for each in made if each is not None]
        errors = {404: self._nowhere}
        pages = Starlette(routes=self._routes(), lifespan=self._lifespan, exception_handlers=errors)
        self._guard = guard(pages)

    @property
    def token(self) -> str:
        """What the first address must have, as `?token=…`."""
        return self._guard.token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._guard(scope, receive, send)

    def hang_up(self) -> None:
        """End the streams of pages that listen, so that a server does not wait for them when it ends."""
        self._clients.is_closing = True

    async def close(self) -> None:
        """End what is open: streams, copies of sessions, stores that were given as URLs. As the lifespan of
        the application ends, this is done by itself, unless it is mounted in another."""
        self.hang_up()
        with anyio.CancelScope(shield=True):
            await self._library.close()

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            await self.close()

    def _routes(self) -> list[Route]:
        def route(path: str, answer: Answer) -> Route:
            method, _, path = path.rpartition(" ")
            return Route(path, self._guarded(answer), methods=[method or "GET"])

        return [
            route("/", self._list),
            route("/watch/sessions", self._watch_list),
            route("/s/{id}", self._session),
            route("/s/{id}/rows", self._rows),
            route("/s/{id}/live", self._live),
            route("/s/{id}/full", self._full),
            route("/s/{id}/picture", self._picture),
            route("/s/{id}/outline", self._outline),
            route("/s/{id}/export", self._export),
            route("/s/{id}/timeline", self._timeline),
            route("/s/{id}/changes", self._changes),
            route("/s/{id}/find", self._find),
            route("/static/{name}", _static),
            *(route(*each) for pages in self._others for each in pages.routes().items()),
        ]

    def _guarded(self, answer: Answer) -> Answer:
        """Errors as pages."""

        async def answered(request: Request) -> Response:
            try:
                return await answer(request)
            except SessionNotFound:
                found = 404, "It is not there", "This session does not exist, or has been deleted."
            except (OptionsError, UsageError) as error:
                found = 400, "That is not possible", str(error)
            except (OutriderError, OSError) as error:
                found = 502, "It cannot be read", str(error)
            status, title, says = found
            return HTMLResponse(error_page(root_of(request), title, says, await self._tabs()), status)

        return answered

    async def _nowhere(self, request: Request, _: Exception) -> Response:
        says = "There is no page with this address."
        return HTMLResponse(error_page(root_of(request), "It is not there", says, await self._tabs()), 404)

    async def _tabs(self) -> Tabs:
        return [("Sessions", "/", 0), *[tab for each in self._others for tab in await each.tabs()]]

    # The list.

    async def _list(self, request: Request) -> Response:
        root = root_of(request)
        if self._library.single is not None:
            return RedirectResponse(f"{root}/s/{self._library.single}")
        chosen = Filter.read(request.query_params)
        if chosen.q:
            return await self._search(request, root, chosen)
        infos = await self._library.list(chosen.query(None if chosen.sort else PAGE + 1))
        if chosen.sort:
            every = await self._library.costs(infos) if chosen.sort == "cost" else {}
            infos = chosen.sorted(infos, every)[chosen.first :][: PAGE + 1]
        some = infos[:PAGE]
        costs, running = await self._library.costs(some), await run_sync(self._running, some)
        region = list_rows(root, chosen, some, costs, running, has_more=len(infos) > PAGE)
        if "part" in request.query_params:
            return HTMLResponse(region)
        projects = await self._library.projects()
        body = list_body(
            root, chosen, region, projects, self._library.place, can_search=self._library.sessions is not None
        )
        tabs = await self._tabs()
        watch = "" if chosen.until or chosen.page else "/watch/sessions"
        return HTMLResponse(
            page(root, "Sessions", body, tabs=tabs, current="/", kind="list-page", watch=watch)
        )

    async def _search(self, request: Request, root: str, chosen: Filter) -> Response:
        hits = self._library.search(chosen.q, chosen.query(None), _MOST_HITS)
        body = list_body(
            root, chosen, _HOLE, await self._library.projects(), self._library.place, can_search=True
        )
        whole = page(
            root, f"{chosen.q} · Search", body, tabs=await self._tabs(), current="/", kind="list-page"
        )
        before, _, after = whole.partition(_HOLE)

        async def pieces() -> AsyncIterator[str]:
            """Each hit as soon as it is found."""
            yield before
            count, before_it = 0, ""
            if hits is not None:
                try:
                    async for hit in hits:
                        count += 1
                        yield hit_row(root, hit, chosen.q, is_again=hit.session.id == before_it)
                        before_it = hit.session.id
                except OutriderError as error:
                    yield _note(f"The search has ended early: {error}")
            if not count:
                yield _note("Nothing was found.")
            elif count == _MOST_HITS:
                yield _note(f"The first {_MOST_HITS:,} are shown.")
            else:
                yield _note(f"{count:,} found.")
            yield after

        return StreamingResponse(pieces(), media_type="text/html")

    async def _watch_list(self, request: Request) -> Response:
        chosen = Filter.read(request.query_params)

        async def signature() -> object:
            newest = await self._library.list(chosen.query(5))
            return [(info.id, info.last_modified, _age(info) < _FRESH) for info in newest]

        return self._clients.watch(signature, _SLOW)

    def _running(self, infos: Sequence[StoredSession]) -> dict[str, str]:
        """What those do that were written to just now, or that wait for a tool."""
        found: dict[str, str] = {}
        for info in infos:
            said, is_waiting = "", False
            if info.path is not None and _age(info) < _LONGEST_CALL:
                shown = Shown(base="", redact=self._redact, folder=info.cwd or "")
                with suppress(OSError):
                    said, is_waiting = doing(TranscriptFile(info.path), shown)
            if is_waiting or _age(info) < _FRESH:
                found[info.id] = said
        return found

    # One session.

    async def _opened(self, request: Request) -> tuple[OpenSession, str | None]:
        opened = await self._library.open(request.path_params["id"])
        return opened, request.query_params.get("agent") or None

    def _shown(self, request: Request, opened: OpenSession, agent: str | None) -> Shown:
        query = f"&agent={quote(agent)}" if agent else ""
        base = f"{root_of(request)}/s/{request.path_params['id']}"
        return Shown(base=base, redact=self._redact, query=query, folder=opened.info.cwd or "")

    async def _session(self, request: Request) -> Response:
        opened, agent = await self._opened(request)
        file = await run_sync(opened.transcript, agent)
        params = request.query_params
        if uuid := params.get("uuid"):
            offset = await run_sync(file.find, uuid)
            if offset is not None:
                query = f"&agent={quote(agent)}" if agent else ""
                return RedirectResponse(f"{request.url.path}?at={offset}{query}#e{offset}")
        window = await run_sync(_chosen_window, file, params.get("at"), params.get("start"))
        agents = await run_sync(opened.agents)
        is_live = window.is_last
        made = await run_sync(
            lambda: rows(window, self._shown(request, opened, agent), by_call(agents), live=is_live)
        )
        body = session_body(
            root_of(request),
            opened,
            window,
            made,
            agent=agents.get(agent) if agent else None,
            is_live=is_live,
            resume=self._library.resume_command(opened),
        )
        title = DEFAULT.mask(opened.info.title) or opened.info.id[:8]
        return HTMLResponse(page(root_of(request), title, body, tabs=await self._tabs(), kind="session-page"))

    async def _rows(self, request: Request) -> Response:
        opened, agent = await self._opened(request)
        file = await run_sync(opened.transcript, agent)
        params = request.query_params
        is_nested = "all" in params

        def read() -> str:
            if is_nested:
                window = file.after(0, _NESTED)
            elif "before" in params:
                window = file.before(_number(params["before"]))
            else:
                window = file.after(_number(params.get("after", "0")))
            shown = self._shown(request, opened, agent)
            if is_nested and agent:
                shown = replace(shown, prefix=f"{agent}-")
            return window_element(window, rows(window, shown, by_call(opened.agents())))

        return HTMLResponse(await run_sync(read))

    async def _full(self, request: Request) -> Response:
        opened, agent = await self._opened(request)
        file = await run_sync(opened.transcript, agent)
        offset = _number(request.query_params.get("at", ""))

        def read() -> str:
            shown = replace(self._shown(request, opened, agent), clip=None)
            return "".join(rows(file.around(offset), shown, by_call(opened.agents()), only=offset))

        row = await run_sync(read)
        return HTMLResponse(row) if row else PlainTextResponse("It is not there.", 404)

    async def _picture(self, request: Request) -> Response:
        opened, agent = await self._opened(request)
        file = await run_sync(opened.transcript, agent)
        offset, place = (_number(request.query_params.get(name, "")) for name in ("at", "n"))
        line = await run_sync(file.line_at, offset)
        blocks = [] if line is None else line.blocks
        if line is not None and line.entry.type == "attachment":
            blocks = blocks_of(fields_of(line.raw.get("attachment")).get("prompt"))
        answers = [inner for block in blocks if is_answer(block) for inner in result_blocks(block)]
        for candidates in (answers, blocks):
            source = fields_of(candidates[place].get("source")) if place < len(candidates) else {}
            media, data = str(source.get("media_type")), source.get("data")
            if media in PICTURES and isinstance(data, str):
                try:
                    content = base64.b64decode(data, validate=True)
                except (binascii.Error, ValueError):
                    break
                return Response(content, media_type=media)
        return PlainTextResponse("It is not there.", 404)

    async def _outline(self, request: Request) -> Response:
        opened, agent = await self._opened(request)
        outline = await opened.outline(agent)
        agents = await run_sync(opened.agents)
        made = await run_sync(outline_parts, root_of(request), opened, outline, agents, agent)
        return HTMLResponse(made)

    async def _timeline(self, request: Request) -> Response:
        """A part of it, from second to second."""
        opened, agent = await self._opened(request)
        first, last = (_number(request.query_params.get(name, "")) / 100 for name in ("from", "to"))
        outline = await opened.outline(agent)
        link = f"{self._shown(request, opened, agent).base}?{f'agent={quote(agent)}&' if agent else ''}at="
        return HTMLResponse(await run_sync(timeline, outline, link, first, last))

    async def _changes(self, request: Request) -> Response:
        """What was changed, by the subagents, too."""
        opened, _ = await self._opened(request)
        agents = await run_sync(opened.agents)
        transcripts: list[tuple[TranscriptFile, Sequence[tuple[int, int]], Shown, str]] = []
        for agent in (None, *agents):
            outline = await opened.outline(agent)
            shown = self._shown(request, opened, agent)
            who = "Claude" if agent is None else shown.mask(agents[agent].description) or "Subagent"
            transcripts.append((TranscriptFile(outline.path), list(outline.edits), shown, who))
        root, resume = root_of(request), self._library.resume_command(opened)
        body = changes_body(root, opened, await run_sync(changed_files, transcripts), resume)
        title = DEFAULT.mask(opened.info.title) or opened.info.id[:8]
        return HTMLResponse(page(root, title, body, tabs=await self._tabs(), kind="session-page"))

    async def _find(self, request: Request) -> Response:
        """What is said in a session, also by its subagents."""
        opened, _ = await self._opened(request)
        words = request.query_params.get("q", "").strip()[:1000]
        found = await run_sync(_found, opened, Search(words)) if words else []
        base = f"{root_of(request)}/s/{opened.info.id}"
        return HTMLResponse(found_list(base, found, words, _MOST_HITS))

    async def _export(self, request: Request) -> Response:
        opened, _ = await self._opened(request)
        form = check_format(request.query_params.get("format", "html"))
        media, ending = _FORMATS[form]
        if self._library.sessions is not None and opened.live is None and opened.info.path is None:
            text = await self._library.sessions.export(opened.info.id, form, redact=self._redact or None)
        else:
            from outrider.transcripts._disk.read import load_bundle
            from outrider.transcripts._export.turns import exported

            bundle = await run_sync(load_bundle, opened.file)
            text = await run_sync(
                lambda: exported(bundle, form, redact=self._redact if form != "json" else None)
            )
        name = f"session-{opened.info.id[:8]}.{ending}"
        # To be saved: here it would be a page of this server.
        headers = {
            "content-disposition": f'attachment; filename="{name}"',
            "content-security-policy": "sandbox",
        }
        return Response(text.encode("utf-8", "replace"), media_type=media, headers=headers)

    async def _live(self, request: Request) -> Response:
        opened, agent = await self._opened(request)
        given = request.headers.get("last-event-id") or request.query_params.get("from", "")
        start = _number(given)
        shown = self._shown(request, opened, agent)
        return self._clients.stream(self._followed(opened, agent, shown, start))

    async def _followed(
        self, opened: OpenSession, agent: str | None, shown: Shown, offset: int
    ) -> AsyncIterator[bytes]:
        """Rows as they are written: those that are new, and those that have changed, as a result came."""
        yield b"retry: 1000\n\n"
        silent, partial, is_away = 0.0, "", False
        while not self._clients.is_closing:
            try:
                await opened.refresh()
                file = await run_sync(opened.transcript, agent)
                size = await run_sync(file.size)
            except (SessionNotFound, FileNotFoundError):
                yield event("", name="gone")
                return
            except (OutriderError, OSError) as error:
                if not is_away:
                    yield event(str(error), name="away")
                is_away = True
                await anyio.sleep(_SLOW)
                continue
            is_away = False
            if size < offset:
                yield event("", name="reset")
                return
            while offset < size:
                window, made = await run_sync(self._news, file, offset, opened, shown)
                if window.end <= offset:
                    break
                offset, silent = window.end, 0.0
                yield event("".join(made), name="rows", id=offset)
            if opened.partial != partial:
                partial, silent = opened.partial, 0.0
                yield event(partial, name="partial")
            await anyio.sleep(TICK)
            silent += TICK
            if silent >= HEARTBEAT:
                silent = 0.0
                yield BEAT

    def _news(
        self, file: TranscriptFile, offset: int, opened: OpenSession, shown: Shown
    ) -> tuple[Window, list[str]]:
        # Calls that are not answered yet are among what was there last.
        window = file.after(file.before(offset, _FOLLOWED).start if offset else 0)
        while window.end <= offset and not window.is_last:
            window = file.after(window.end)
        return window, [str(row) for row in rows(window, shown, by_call(opened.agents()), live=True)]


def _age(info: StoredSession) -> float:
    return time.time() - info.last_modified.timestamp()


def _chosen_window(file: TranscriptFile, at: str | None, start: str | None) -> Window:
    if at is not None:
        return file.around(_number(at))
    return file.after(0) if start else file.last()


def _found(opened: OpenSession, search: Search) -> list[tuple[int, str, str]]:
    """Offsets, subagents as they stand in addresses, and the words around what was found."""
    made: list[tuple[int, str, str]] = []
    for agent in (None, *opened.agents()):
        query = f"&agent={quote(agent)}" if agent else ""
        for at, said in opened.transcript(agent).search(search):
            made.append((at, query, said))
            if len(made) == _MOST_HITS:
                return made
    return made


def _number(text: str) -> int:
    """A cursor. Raises `OptionsError`."""
    # No file is larger.
    if not (text.isascii() and text.isdigit() and len(text) <= 13):
        raise OptionsError(f"{text[:40]!r} is not a place in a session", hint="Follow a link of this page.")
    return int(text)


def _note(text: str) -> str:
    return h("p.empty", text)


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    media = _STATIC.get(name)
    if media is None:
        return PlainTextResponse("It is not there.", 404)
    content = (files("outrider.view") / "_static" / name).read_bytes()
    return Response(content, media_type=media)
