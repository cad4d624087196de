"""The link between a session and its store: what is resumed, the leases, and the order of start and end.

`mirror` copies the transcript while the session runs; `restore_files` writes what Claude Code reads.
"""

from __future__ import annotations

import logging
import os
import socket
from contextlib import aclosing
from contextvars import Context
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, cast
from uuid import UUID, uuid4

import anyio
import msgspec

from outrider.errors import (
    FolderNotFound,
    LeaseLost,
    OptionsError,
    OutriderError,
    SessionBusy,
    SessionExists,
    SessionNotFound,
    StoreError,
)
from outrider.handlers._calls import unwrapped
from outrider.session._connection.answering import is_failure
from outrider.session._connection.tasks import background
from outrider.session._store.mirror import BATCH_ENTRIES, Keys, Mirror
from outrider.session._store.restore_files import ConfigLocation, SessionFiles, locate_config
from outrider.transcripts import StoreCalls, check_subpath, open_store, project_key
from outrider.transcripts._library.store import latest_rows, newest_project
from outrider.transcripts.stores._base import up
from outrider.transcripts.stores._blocking import to_key
from outrider.transports import Transport, is_intercepted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from outrider.options import Options
    from outrider.transcripts import (
        SessionKey,
        SessionListSubkeysKey,
        SessionStore,
        SessionStoreEntry,
        SessionStoreListEntry,
    )
    from outrider.wire import JsonObject

    _Session: TypeAlias = tuple[str, str]
    """Project, session."""

log = logging.getLogger("outrider.session")

LEASE_SECONDS: Final = 30.0
RENEW_SECONDS: Final = 10.0

_ANSWER_SECONDS: Final = 1.0
"""How long to wait for a lease that is no longer wanted: once granted, it has to be released."""


class _Held(NamedTuple):
    token: str
    end: float
    """Until when no other writer can have it, by `up`: an event loop's clock may stand still while the
    machine sleeps."""


class Leases:
    """The leases of one connection. A store without leases is written to directly."""

    def __init__(self, calls: StoreCalls) -> None:
        self._calls = calls
        # With a part of its own: one process may have many.
        self._holder = f"{socket.gethostname()}:{os.getpid()}/{uuid4().hex[:8]}"
        self._held: dict[_Session, _Held] = {}
        self._lost: dict[_Session, SessionBusy | LeaseLost] = {}

    async def ensure(self, key: SessionKey | SessionListSubkeysKey) -> None:
        """Get exclusive access to the session of a key. Raises `SessionBusy` or `LeaseLost` if another writer
        has it, and a `StoreError` if the store fails."""
        session = key["project_key"], key["session_id"]
        held = self._held.get(session)
        if held is not None and held.end > up():
            return
        if (lost := self._lost.get(session)) is not None:
            raise lost
        if not self._calls.has_leases:
            return
        try:
            if held is None:
                await self._acquire(session)
            else:
                await self._renew(session, held.token)
        except (SessionBusy, LeaseLost) as error:
            if isinstance(error, SessionBusy) and error.holder == self._holder:
                reason = "it was granted before, but the answer got lost, and it has to run out"
                raise StoreError(self._calls.name, "acquire_lease", reason, retryable=True) from error
            self._lose(session, error)
            raise

    def lose(self, key: SessionKey, error: SessionBusy | LeaseLost) -> None:
        """Note that a write showed that another writer has it."""
        self._lose((key["project_key"], key["session_id"]), error)

    def _lose(self, session: _Session, error: SessionBusy | LeaseLost) -> None:
        self._lost[session] = error
        self._held.pop(session, None)

    async def _acquire(self, session: _Session) -> None:
        """Acquire it. If the caller is cancelled meanwhile, a granted lease is kept, to be released."""
        failed: list[BaseException] = []
        answered = anyio.Event()
        scope = anyio.CancelScope(shield=True)

        async def acquire() -> None:
            end = up() + LEASE_SECONDS
            try:
                with scope:
                    token = await self._calls.acquire_lease(to_key(*session), self._holder, LEASE_SECONDS)
                    self._held[session] = _Held(token, end)
            except anyio.get_cancelled_exc_class():
                raise
            except BaseException as error:  # noqa: BLE001 - raised below, alone and not in a group
                failed.append(error)
            finally:
                answered.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(acquire)
            try:
                await answered.wait()
            finally:
                scope.deadline = anyio.current_time() + _ANSWER_SECONDS
        if failed:
            raise failed[0]

    async def _renew(self, session: _Session, token: str) -> None:
        end = up() + LEASE_SECONDS
        await self._calls.renew_lease(to_key(*session), token, LEASE_SECONDS)
        self._held[session] = _Held(token, end)

    async def renew(self) -> None:
        """Renew the leases, until cancelled."""
        while True:
            await anyio.sleep(RENEW_SECONDS)
            for session, held in list(self._held.items()):
                try:
                    await self._renew(session, held.token)
                except (LeaseLost, SessionBusy) as error:
                    log.warning("the hold on the session %s is over: %s", session[1], error)
                    self._lose(session, error)
                except OutriderError as error:
                    # The next write fails if another writer has it by then.
                    log.debug("the hold on the session %s could not be renewed: %s", session[1], error)

    async def release(self) -> None:
        """Release the leases. One that cannot be released expires."""
        while self._held:
            session, held = self._held.popitem()
            try:
                await self._calls.release_lease(to_key(*session), held.token)
            except Exception as error:  # noqa: BLE001 - also what a store of the user's may raise
                log.debug("the hold on the session %s could not be given back: %s", session[1], error)


class Restored(NamedTuple):
    """A session that has been loaded from a store."""

    options: Options
    """With the session named by its id."""
    session_id: str
    project: str
    """The key of the project that the store has it under."""
    location: ConfigLocation
    session_files: SessionFiles
    calls: StoreCalls

    async def restore_files(self) -> None:
        """Write it to the configuration folder of this machine."""
        # For a fork it is only read.
        await self.session_files.restore(self.location, None if self.options.fork_session else self._append)

    async def _append(self, part: str, entries: list[SessionStoreEntry]) -> None:
        log.warning(
            "%d entries of the session %s were only on disk; the store gets them",
            len(entries),
            self.session_id,
        )
        key = to_key(self.project, self.session_id, part or None)
        for start in range(0, len(entries), BATCH_ENTRIES):
            await self.calls.append(key, entries[start : start + BATCH_ENTRIES], uuid4().hex)


async def restore(calls: StoreCalls, leases: Leases, options: Options) -> Restored | None:
    """Load the session that the options continue; None if they begin a new one, or if a transport of the
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
        await leases.ensure(to_key(here, options.session_id))
        await _check_new(calls, options.session_id, here)
    if not (options.resume or options.continue_conversation):
        return None
    session_id, project = await _find(calls, options.resume, here)
    key = to_key(project, session_id)
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
    location, session_files = locate_config(options), SessionFiles(session_id, parts, here, project)
    if location.config is None or is_intercepted():
        await session_files.render()
    return Restored(options, session_id, project, location, session_files, calls)


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
    """A new session must not continue another one."""
    key = to_key(here, session_id)
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
    if len(projects) == 1 or not calls.offers("list_sessions"):
        return resume, min(projects)
    return resume, await newest_project(calls, resume, projects)


_LATEST: Final = 10
"""How many sessions are looked at first: some may be those of subagents."""


async def _latest(calls: StoreCalls, project: str) -> str:
    if calls.offers("list_latest_sessions"):
        async with aclosing(latest_rows(calls, [project], _LATEST)) as rows:
            async for row in rows:
                if _is_uuid(row.session_id) and (row.data or {}).get("is_sidechain") is not True:
                    return row.session_id
        found = []
    elif calls.offers("list_session_summaries"):
        summaries = await calls.list_session_summaries(project)
        found = _newest_first(one for one in summaries if one["data"].get("is_sidechain") is not True)
    else:
        _require(calls, "list_sessions", "by which `continue_conversation` finds the latest session")
        found = []
        for one in _newest_first(await calls.list_sessions(project)):
            entries = await calls.load(to_key(project, one["session_id"]))
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


def _is_uuid(text: str) -> bool:
    try:
        return str(UUID(text)) == text.lower()
    except ValueError:
        return False


FLUSH_SECONDS: Final = 5.0
"""How long what is left of the transcript may take to be stored at the end."""

LEAVE_SECONDS: Final = 2.0
"""How long the lease may take to be given back, and a store of the session's own to be closed."""


class StoreLink:
    """The store of one connection. Runs in a task of the event loop, from `begin` until `finish`.

    It does not keep the options, which may well lead to the session: that could not be dropped then.
    """

    def __init__(self, options: Options) -> None:
        """Raises `OptionsError` for an invalid store, `UserNotFound` for an unknown user."""
        self.on_crash: Callable[[BaseException], None] = lambda _: None
        """Called with an exception of the store that is meant for the whole program, such as Ctrl-C."""
        place = cast("SessionStore | str | os.PathLike[str]", options.session_store)
        # First: this may raise, and an opened store would have to be closed.
        location = locate_config(options)
        self._is_own = isinstance(place, (str, os.PathLike))
        self._calls = StoreCalls(open_store(place), options.timeouts.store)
        self._leases = Leases(self._calls)
        self.mirror = Mirror(
            self._calls,
            self._leases,
            Keys(location.config if location.is_certain else None),
            is_eager=options.session_store_flush == "eager",
            is_only_copy=location.is_private,
        )
        self._scope = anyio.CancelScope(shield=True)
        self._flushing = anyio.CancelScope(shield=True)
        self._is_begun = False
        self._is_over = anyio.Event()
        self._process = os.getpid()

    @property
    def _is_inherited(self) -> bool:
        """Whether this process was forked from the one whose session it is. It continues there: this
        process must not store anything of it or release its leases when it unwinds its tasks."""
        return os.getpid() != self._process

    @property
    def bound(self) -> float:
        """How long `finish` takes at most, in seconds."""
        return FLUSH_SECONDS + LEAVE_SECONDS

    async def begin(self, options: Options) -> Restored | None:
        """Take the lease and load what is resumed; None if nothing is, or if a transport of the user's knows
        where it is.

        Raises `SessionNotFound`, `SessionExists`, `SessionBusy`, `StoreError` or `OptionsError`; nothing is
        left then.
        """
        try:
            place = await background()
            await place.start(self._run, name="outrider mirror", context=Context())
            self._is_begun = True
            restored = await restore(self._calls, self._leases, options)
        except BaseException:
            await self.finish()
            raise
        if restored is not None:
            self.mirror.keys.place(restored.session_id, restored.project)
        return restored

    async def finish(self) -> None:
        """Store what is left, give back the lease, close an own store; within `bound` seconds, whatever the
        store does. The second time it waits for the first."""
        if self._is_inherited:
            return
        with anyio.CancelScope(shield=True):
            self.mirror.end()
            if self._is_begun:
                with anyio.move_on_after(FLUSH_SECONDS):
                    await self._is_over.wait()
                self._flushing.cancel()
                with anyio.move_on_after(LEAVE_SECONDS):
                    await self._is_over.wait()
                # A store that cannot be cancelled is left behind.
                self._scope.cancel()
            self.mirror.leave()

    async def _run(self) -> None:
        try:
            with self._scope:
                await self._serve()
                if self._is_inherited:
                    return
                self.mirror.leave()
                with anyio.move_on_after(LEAVE_SECONDS, shield=True):
                    await self._leases.release()
                    if self._is_own:
                        await self._calls.close()
        except OutriderError as error:
            log.warning("a session store could not be closed: %s", error)
        finally:
            if not self._is_inherited:
                self.mirror.leave()
            self._is_over.set()

    async def _serve(self) -> None:
        """Store all entries until the end."""
        for seconds in (None, self.bound):
            try:
                with self._flushing:
                    await self._store(seconds)
                return
            except Exception:
                # It is caught wherever the user's store is called.
                log.exception("a transcript could not be mirrored")
                return
            except BaseException as error:  # noqa: BLE001 - Ctrl-C and its like, and cancellations
                if not is_failure(error):
                    self.on_crash(unwrapped(error))
                    return
                if self._is_inherited:
                    return
                # The event loop is closing. The reader calls `end` when nothing more comes.
                self._flushing = anyio.CancelScope(shield=True)

    async def _store(self, seconds: float | None) -> None:
        with anyio.move_on_after(seconds):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._leases.renew)
                await self.mirror.serve(tasks)
                tasks.cancel_scope.cancel()
