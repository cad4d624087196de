"""Owns which session of a store is resumed, and that all of it is loaded and held before anything is started.

Does not put it anywhere: `_laying_out` does.
"""

from __future__ import annotations

import logging
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast
from uuid import UUID, uuid4

import msgspec

from outrider.errors import FolderNotFound, OptionsError, SessionExists, SessionNotFound
from outrider.session._backlog import BATCH_ENTRIES
from outrider.session._laying_out import Layout, Places, laid_out_in
from outrider.transcripts import check_subpath, project_key
from outrider.transports import Transport, is_intercepted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from outrider.options import Options
    from outrider.session._leasing import Leases
    from outrider.transcripts import SessionKey, SessionStoreEntry, SessionStoreListEntry, StoreCalls
    from outrider.wire import JsonObject

__all__ = ["Restored", "restore"]

log = logging.getLogger("outrider.session")


class Restored(NamedTuple):
    """A session that has been loaded from a store."""

    options: Options
    """With the session named by its id."""
    session_id: str
    project: str
    """The key of the project that the store has it under."""
    places: Places
    layout: Layout
    calls: StoreCalls

    async def place(self) -> None:
        """Put it into the configuration folder of this machine."""
        # For a fork it is only read.
        await self.layout.place(self.places, None if self.options.fork_session else self._append)

    async def _append(self, part: str, entries: list[SessionStoreEntry]) -> None:
        log.warning(
            "%d entries of the session %s were only on disk; the store gets them",
            len(entries),
            self.session_id,
        )
        key = _key(self.project, self.session_id)
        if part:
            key["subpath"] = part
        for start in range(0, len(entries), BATCH_ENTRIES):
            await self.calls.append(key, entries[start : start + BATCH_ENTRIES], uuid4().hex)


async def restore(calls: StoreCalls, leases: Leases, options: Options) -> Restored | None:
    """Load the session that the options go on with; None if they begin a new one, or if a transport of the
    user's knows where it is.

    Raises `SessionNotFound` if it is not in the store, `SessionExists` if a new one is to have the id of one
    that is, `SessionBusy` if another writer has it, `StoreError` if the store fails, `OptionsError` if it
    cannot be found without a method that the store lacks.
    """
    transport = options.transport
    if transport is not None and (
        not isinstance(transport, Transport) or type(transport).prepare is Transport.prepare
    ):
        return None
    try:
        here = project_key(options.cwd or Path.cwd())
    except FileNotFoundError:
        raise FolderNotFound(".") from None
    if options.session_id is not None:
        await leases.ensure(_key(here, options.session_id))
        await _check_new(calls, options.session_id, here)
    if not (options.resume or options.continue_conversation):
        return None
    session_id, project = await _find(calls, options.resume, here)
    key = _key(project, session_id)
    if not options.fork_session:
        await leases.ensure(key)
    main = await calls.load(key)
    if not main:
        raise _not_found(calls, session_id, project)
    loaded = {"": main, **await _load_parts(calls, key)}
    parts = cast("dict[str, list[SessionStoreEntry]]", loaded)
    options = copy(options)
    msgspec.structs.force_setattr(options, "resume", session_id)
    msgspec.structs.force_setattr(options, "continue_conversation", False)
    places, layout = laid_out_in(options), Layout(session_id, parts, here, project)
    if places.config is None or is_intercepted():
        await layout.render()
    return Restored(options, session_id, project, places, layout, calls)


async def _load_parts(calls: StoreCalls, key: SessionKey) -> dict[str, list[JsonObject]]:
    async def load(subpath: str) -> list[JsonObject]:
        return await calls.load({**key, "subpath": subpath})

    subpaths: list[str] = []
    for subpath in await calls.list_subkeys(key) if calls.offers("list_subkeys") else []:
        try:
            subpaths.append(check_subpath(subpath))
        except OptionsError as error:
            log.warning("a part of the session %s is left out: %s", key["session_id"], error)
    return dict(zip(subpaths, await calls.each(load, subpaths), strict=True))


async def _check_new(calls: StoreCalls, session_id: str, here: str) -> None:
    """A new session must not go on where another one is."""
    key = _key(here, session_id)
    if await calls.find_session(session_id) if calls.offers("find_session") else await calls.load(key):
        raise SessionExists(session_id, calls.name)


async def _find(calls: StoreCalls, resume: str | None, here: str) -> tuple[str, str]:
    """The id of a session, and the project that it is in."""
    if resume is None:
        return await _latest(calls, here), here
    if not _is_uuid(resume):
        return await _titled(calls, resume, here), here
    if not calls.offers("find_session"):
        return resume, here
    projects = await calls.find_session(resume)
    if not projects:
        raise _not_found(calls, resume)
    if here in projects:
        return resume, here
    return resume, await _newest(calls, resume, projects)


async def _newest(calls: StoreCalls, session_id: str, projects: list[str]) -> str:
    """Of several projects that have a session, the one that wrote to it last."""
    if len(projects) == 1 or not calls.offers("list_sessions"):
        return min(projects)
    times: dict[str, float] = {}
    for project in sorted(projects):
        listed = await calls.list_sessions(project)
        times[project] = max((one["mtime"] for one in listed if one["session_id"] == session_id), default=0)
    return max(times, key=lambda project: times[project])


async def _latest(calls: StoreCalls, project: str) -> str:
    if calls.offers("list_session_summaries"):
        summaries = await calls.list_session_summaries(project)
        found = _newest_first(one for one in summaries if one["data"].get("is_sidechain") is not True)
    else:
        _require(calls, "list_sessions", "by which `continue_conversation` finds the latest session")
        found = []
        for one in _newest_first(await calls.list_sessions(project)):
            entries = await calls.load(_key(project, one["session_id"]))
            if entries and entries[0].get("isSidechain") is not True:
                found = [one]
                break
    if not found:
        raise _not_found(calls, "the latest", project)
    return found[0]["session_id"]


async def _titled(calls: StoreCalls, title: str, project: str) -> str:
    _require(calls, "list_session_summaries", f"so that no session can be found by its title {title!r}")
    summaries = await calls.list_session_summaries(project)
    found = _newest_first(one for one in summaries if one["data"].get("custom_title") == title)
    if not found:
        raise _not_found(calls, title, project)
    return found[0]["session_id"]


def _newest_first(listed: Iterable[SessionStoreListEntry]) -> list[SessionStoreListEntry]:
    """Those that can be sessions of the program: an id becomes the name of a file."""
    found = (one for one in listed if _is_uuid(one["session_id"]))
    return sorted(found, key=lambda one: (one["mtime"], one["session_id"]), reverse=True)


def _require(calls: StoreCalls, method: str, why: str) -> None:
    """Raises `OptionsError` if the store does not offer what the options need."""
    if not calls.offers(method):
        raise OptionsError(
            f"the session store has no `{method}`, {why}", hint="Name the session by its id as `resume`."
        )


def _not_found(calls: StoreCalls, session_id: str, project: str | None = None) -> SessionNotFound:
    where = calls.name if project is None else f"{calls.name}, project {project}"
    hint = "List the sessions to see which there are; one that is only on disk has to be copied first."
    return SessionNotFound(session_id, searched=[where], hint=hint)


def _key(project: str, session_id: str) -> SessionKey:
    return {"project_key": project, "session_id": session_id}


def _is_uuid(text: str) -> bool:
    try:
        return str(UUID(text)) == text.lower()
    except ValueError:
        return False
