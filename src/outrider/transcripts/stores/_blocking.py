"""Calls stores: those with blocking drivers in threads, and any kind with a timeout and checked answers.

Failures come as `StoreError`. Where anything is kept, the stores that derive from `BlockingStore` know.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from contextlib import aclosing, suppress
from contextvars import ContextVar
from threading import Event, Lock
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias, TypedDict, TypeVar, cast
from uuid import uuid4
from weakref import WeakValueDictionary

import anyio
import msgspec
from anyio.lowlevel import RunVar, checkpoint

from outrider._threads import run_sync, start_thread
from outrider.errors import (
    LaunchError,
    LeaseLost,
    OptionsError,
    OutriderError,
    SessionBusy,
    StoreError,
    StoreTimedOut,
)
from outrider.transcripts._entries import deep_copy
from outrider.transcripts.stores._base import RESERVED, Lease, Line, Place, SessionStore, offers
from outrider.transcripts.stores._shared import tell_of_forks

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Iterable, Sequence
    from types import TracebackType
    from typing import Self

    from outrider.transcripts.stores._base import (
        LatestSessionEntry,
        SessionKey,
        SessionListSubkeysKey,
        SessionStoreEntry,
        SessionStoreListEntry,
        SessionSummaryEntry,
    )
    from outrider.wire import JsonObject


T = TypeVar("T")
Explained: TypeAlias = tuple[str, bool] | tuple[str, bool, str]
"""What went wrong, whether it may pass, and what to do."""

DEFAULT_TIMEOUT: Final = 30.0
TO_TELL: Final = 0.9
"""The share of the timeout that a driver may wait, so that there is time to report what it waited for."""
_THREADS: Final = 8
"""How many calls to one address run at once in one event loop."""

_UNREADABLE: Final = (ValueError, msgspec.MsgspecError)
"""What is raised for data that is not as it was stored."""

_abandoned: ContextVar[Event | None] = ContextVar("outrider store call given up", default=None)
_limiters: RunVar[WeakValueDictionary[Hashable, anyio.CapacityLimiter]] = RunVar("outrider store threads")


class BlockingStore(SessionStore, ABC):
    """A strict `SessionStore` with a blocking driver. Subclasses implement the methods with an underscore.

    These run in worker threads, several at once. They raise what their driver raises, `SessionBusy` or
    `LeaseLost`. A call that takes longer than `timeout` seconds, or that is cancelled, returns at once, and
    its thread is abandoned: it may finish what it is doing, but must not start anything new
    (`raise_if_abandoned`). Drivers should have a timeout too.

    May be used from several tasks, threads and event loops, and after a fork. Stores of one address share
    connections and threads (`_shared`), and nothing else: for leases they are different writers.
    """

    _threads: int = _THREADS

    def __init__(self, name: str, *, timeout: float | None = DEFAULT_TIMEOUT) -> None:
        """`name` is the store's URL without a password, for people to read."""
        self._name = name
        if timeout is not None and not 0 < timeout < float("inf"):
            raise OptionsError(
                f"`timeout` is {timeout}; give a number of seconds above 0, or None for no limit"
            )
        self._timeout = timeout
        self._tokens: dict[Place, str] = {}
        tell_of_forks(self)

    @classmethod
    @abstractmethod
    def from_url(cls, url: str) -> Self:
        """Raises `OptionsError` for a URL that is not right."""

    @property
    def name(self) -> str:
        """The store's URL without a password."""
        return self._name

    @property
    def timeout(self) -> float | None:
        """How many seconds a call may take."""
        return self._timeout

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            await self.close()

    # The contract.

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        if entries:
            await self._run("append", self._encode_and_append, Place.of(key), entries, None)

    async def append_batch(self, key: SessionKey, entries: list[SessionStoreEntry], batch: str) -> None:
        if entries:
            await self._run("append_batch", self._encode_and_append, Place.of(key), entries, batch)

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        return await self._run("load", self._load, Place.of(key))

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """The sessions of a project, newest first."""
        found = await self._run("list_sessions", self._list_summaries, project_key)
        return [{"session_id": one["session_id"], "mtime": one["mtime"]} for one in found]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """What is known about the sessions of a project, newest first."""
        return await self._run("list_session_summaries", self._list_summaries, project_key)

    async def get_session_summary(self, key: SessionListSubkeysKey) -> SessionSummaryEntry | None:
        return await self._run("get_session_summary", self._get_summary, Place.of(key).main)

    async def list_latest_sessions(self, project_key: str | None, limit: int) -> list[LatestSessionEntry]:
        return await self._run("list_latest_sessions", self._list_latest, project_key, limit)

    async def delete(self, key: SessionKey) -> None:
        await self._run("delete", self._delete, Place.of(key))

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        return await self._run("list_subkeys", self._list_subkeys, Place.of(key).main)

    async def list_projects(self) -> list[str]:
        return _without_records(await self._run("list_projects", self._list_projects))

    async def find_session(self, session_id: str) -> list[str]:
        return _without_records(await self._run("find_session", self._find_session, session_id))

    async def acquire_lease(self, key: SessionListSubkeysKey, holder: str, seconds: float) -> str:
        check_seconds(seconds)
        token, session, deciding = uuid4().hex, Place.of(key).main, Lock()
        is_had = is_unwanted = False

        def acquire() -> None:
            nonlocal is_had
            self._acquire(session, token, holder, seconds)
            self._tokens[session] = token
            with deciding:
                is_had, is_to_undo = True, is_unwanted
            if is_to_undo:
                self._undo_acquire(session, token)

        try:
            await self._run("acquire_lease", acquire)
        except BaseException:
            with deciding:
                is_unwanted, is_late = True, not is_had
            if not is_late:
                # The thread has ended: it did not see that nobody waits any more.
                with suppress(LaunchError):  # without a thread it runs out by itself
                    start_thread(self._undo_acquire, session, token, name="outrider-store")
            raise
        return token

    async def renew_lease(self, key: SessionListSubkeysKey, token: str, seconds: float) -> None:
        check_seconds(seconds)
        await self._run("renew_lease", self._renew, Place.of(key).main, token, seconds)

    async def release_lease(self, key: SessionListSubkeysKey, token: str) -> None:
        await self._run("release_lease", self._release, Place.of(key).main, token)

    async def close(self) -> None:
        """Close connections and files. Later calls connect again."""
        await self._run("close", self._close)

    # What these do; `HeadStore` has all of it. It blocks.

    @abstractmethod
    def _append(self, place: Place, lines: list[Line], batch: str | None) -> None: ...

    @abstractmethod
    def _load(self, place: Place) -> list[SessionStoreEntry] | None: ...

    @abstractmethod
    def _list_summaries(self, project: str) -> list[SessionSummaryEntry]: ...

    @abstractmethod
    def _get_summary(self, session: Place) -> SessionSummaryEntry | None: ...

    @abstractmethod
    def _list_latest(self, project: str | None, limit: int) -> list[LatestSessionEntry]: ...

    @abstractmethod
    def _delete(self, place: Place) -> None: ...

    @abstractmethod
    def _list_subkeys(self, session: Place) -> list[str]: ...

    @abstractmethod
    def _list_projects(self) -> list[str]: ...

    @abstractmethod
    def _find_session(self, session_id: str) -> list[str]: ...

    @abstractmethod
    def _change_lease(self, session: Place, change: Callable[[Lease | None], Lease | None]) -> None:
        """In one transaction, keep what `change` makes of the lease that is kept, run out or not. If it gives
        back the same object, there is nothing to write."""

    @abstractmethod
    def _close(self) -> None: ...

    @abstractmethod
    def _forget(self) -> None:
        """Forget what was true of the parent process, and its locks, in a new process after a fork."""

    @abstractmethod
    def _explain(self, error: Exception) -> Explained | None:
        """Explain an error without showing a password; None if it is not a failure of the store."""

    # For those.

    def _token(self, session: Place) -> str | None:
        """The token of this object's lease, which may have expired."""
        return self._tokens.get(session.main)

    def _check_lease(self, place: Place, lease: Lease | None) -> None:
        """Raises `SessionBusy` if the lease that is kept still runs, and is somebody else's."""
        _raise_if_busy(place, lease, self._token(place))

    @property
    def _patience(self) -> float:
        """How many seconds the driver should wait for other writers and for its server."""
        return (self._timeout or DEFAULT_TIMEOUT) * TO_TELL

    # Within.

    def _encode_and_append(self, place: Place, entries: list[SessionStoreEntry], batch: str | None) -> None:
        self._append(place, [Line.of(entry) for entry in entries], batch)

    def _acquire(self, session: Place, token: str, holder: str, seconds: float) -> None:
        def acquire(lease: Lease | None) -> Lease:
            # Its own token is there if the answer to the first try was lost.
            _raise_if_busy(session, lease, token)
            return Lease(token, holder, seconds)

        self._change_lease(session, acquire)

    def _renew(self, session: Place, token: str, seconds: float) -> None:
        def renew(lease: Lease | None) -> Lease:
            if lease is None or lease.token != token:
                raise LeaseLost(session.session, "" if lease is None else lease.holder)
            return lease._replace(seconds=seconds)

        self._change_lease(session, renew)

    def _release(self, session: Place, token: str) -> None:
        def release(lease: Lease | None) -> Lease | None:
            return None if lease is None or lease.token == token else lease

        self._change_lease(session, release)
        if self._tokens.get(session) == token:
            self._tokens.pop(session, None)

    def _undo_acquire(self, session: Place, token: str) -> None:
        # That nobody waits for the lease does not mean that it may be kept.
        _abandoned.set(None)
        # If this fails, it runs out.
        with suppress(Exception):
            self._release(session, token)

    async def _run(self, operation: str, call: Callable[..., T], *arguments: object) -> T:
        abandoned = Event()

        def blocking() -> T:
            _abandoned.set(abandoned)
            try:
                return call(*arguments)
            except (OutriderError, _Abandoned):
                raise
            except Exception as error:
                explained = self._explain(error)
                if explained is None and isinstance(error, _UNREADABLE):
                    explained = f"what is in it is damaged ({error})", False, "Restore it from a copy."
                if explained is None:
                    raise
                reason, retryable, *hint = explained
                raise StoreError(
                    self._name, operation, reason, retryable=retryable, hint=" ".join(hint)
                ) from error

        # Held: it is there as long as somebody uses it.
        limiter = self._limiter()
        try:
            with anyio.move_on_after(self._timeout):
                return await run_sync(blocking, abandon_on_cancel=True, limiter=limiter)
        except LaunchError as error:
            raise StoreError(self._name, operation, str(error), retryable=True) from error
        finally:
            abandoned.set()
        raise StoreTimedOut(self._name, operation, self._timeout)

    def _limiter(self) -> anyio.CapacityLimiter:
        # Not the default one of anyio: a store that hangs must not take the threads of all others.
        try:
            limiters = _limiters.get()
        except LookupError:
            _limiters.set(limiters := WeakValueDictionary())
        limiter = limiters.get(self._address)
        if limiter is None:
            limiters[self._address] = limiter = anyio.CapacityLimiter(self._threads)
        return limiter

    @property
    def _address(self) -> Hashable:
        """The same for those that share what they need to be called."""
        return self

    def _begin_in_child(self) -> None:
        # A lease is the parent's: two processes would write under it.
        self._tokens = {}
        self._forget()


def _without_records(projects: list[str]) -> list[str]:
    return [project for project in projects if not project.startswith(RESERVED)]


def _raise_if_busy(place: Place, lease: Lease | None, token: str | None) -> None:
    if lease is not None and lease.seconds > 0 and lease.token != token:
        raise SessionBusy(place.session, lease.holder, retry_after=round(lease.seconds, 3))


class _Abandoned(Exception):
    """Ends the thread of a call that nobody waits for."""


def is_abandoned() -> bool:
    """Whether nobody waits any more for the call that this thread makes."""
    abandoned = _abandoned.get()
    return abandoned is not None and abandoned.is_set()


def raise_if_abandoned() -> None:
    """End the thread of a call that nobody waits for any more. Call it in that thread after each wait, before
    anything is written: what is written so late would come after what was written since."""
    if is_abandoned():
        raise _Abandoned


def check_seconds(seconds: float) -> None:
    """Raises `OptionsError` unless a lease can be this long."""
    if not 0 < seconds < float("inf"):
        raise OptionsError(f"a lease of {seconds} seconds cannot be; give a number above 0")


A = TypeVar("A")
B = TypeVar("B")

_AT_ONCE: Final = 16
"""How many transcripts are loaded side by side."""

_Time = Annotated[float, msgspec.Meta(ge=-sys.float_info.max)]
"""Not NaN, which has no order."""


class _Listed(TypedDict):
    session_id: str
    mtime: _Time


class _Summary(_Listed):
    data: dict[str, object]


class _Latest(_Summary):
    project_key: str


class StoreCalls:
    """A store, which may be of the user's own kind: what it gives is checked before it is used.

    An optional method may be called if the store `offers` it. Each raises a `StoreError`, or another of
    Outrider's errors if the store does; a `StoreTimedOut` after `timeout` seconds, if there is one. The
    methods of `BlockingStore` do all that by themselves: their answers and timeouts are trusted.
    """

    def __init__(self, store: SessionStore, timeout: float | None = None) -> None:
        self._store = store
        self._timeout = timeout
        self._is_guarded = isinstance(store, BlockingStore) and (
            timeout is None or (store.timeout is not None and store.timeout <= timeout)
        )

    @property
    def name(self) -> str:
        """What it is called in errors."""
        name = getattr(self._store, "name", None)
        return name if isinstance(name, str) else type(self._store).__name__

    @property
    def has_leases(self) -> bool:
        return all(map(self.offers, ("acquire_lease", "renew_lease", "release_lease")))

    def offers(self, method: str) -> bool:
        return offers(self._store, method)

    async def load(self, key: SessionKey) -> list[JsonObject]:
        """The entries of a transcript; none if it is not there."""
        found = await self._call("load", key)
        return self._checked("load", [] if found is None else found, list[dict[str, Any]])

    async def pages(
        self, key: SessionKey, *, backwards: bool = False
    ) -> AsyncGenerator[list[JsonObject], None]:
        """The entries of a transcript, piece by piece if the store can; `backwards`: the last piece first.
        Close it."""
        load_pages = getattr(self._store, "load_pages", None)
        if self._trusts("load") and load_pages is not None:
            async with aclosing(load_pages(key, backwards=backwards)) as pages:
                async for page in pages:
                    yield page
        elif entries := await self.load(key):
            yield entries

    async def append(
        self,
        key: SessionKey,
        entries: Sequence[SessionStoreEntry] | Sequence[JsonObject],
        batch: str | None = None,
    ) -> None:
        """Add entries; those of a `batch` once, if the store can tell."""
        operation = "append" if batch is None or not self.offers("append_batch") else "append_batch"
        # A store may change what it gets, and may have to get the same again.
        given = list(entries) if self._trusts(operation) else deep_copy(list[object](entries))
        await self._call(operation, key, given, *([] if operation == "append" else [batch]))

    async def delete(self, key: SessionKey) -> None:
        await self._call("delete", key)

    async def list_sessions(self, project: str) -> list[SessionStoreListEntry]:
        found = await self._ask(list[_Listed], "list_sessions", project)
        return cast("list[SessionStoreListEntry]", found)

    async def list_session_summaries(self, project: str) -> list[SessionSummaryEntry]:
        found = await self._ask(list[_Summary], "list_session_summaries", project)
        return cast("list[SessionSummaryEntry]", found)

    async def get_session_summary(self, project: str, session_id: str) -> SessionSummaryEntry | None:
        kind = cast("type[_Summary | None]", _Summary | None)
        found = await self._ask(kind, "get_session_summary", to_key(project, session_id))
        return cast("SessionSummaryEntry | None", found)

    async def list_latest_sessions(self, project: str | None, limit: int) -> list[LatestSessionEntry]:
        found = await self._ask(list[_Latest], "list_latest_sessions", project, limit)
        return cast("list[LatestSessionEntry]", found)

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        return await self._ask(list[str], "list_subkeys", key)

    async def list_projects(self) -> list[str]:
        return await self._ask(list[str], "list_projects")

    async def find_session(self, session_id: str) -> list[str]:
        return await self._ask(list[str], "find_session", session_id)

    async def acquire_lease(self, key: SessionListSubkeysKey, holder: str, seconds: float) -> str:
        return await self._ask(str, "acquire_lease", key, holder, seconds)

    async def renew_lease(self, key: SessionListSubkeysKey, token: str, seconds: float) -> None:
        await self._call("renew_lease", key, token, seconds)

    async def release_lease(self, key: SessionListSubkeysKey, token: str) -> None:
        await self._call("release_lease", key, token)

    async def close(self) -> None:
        """Close it, if it can be closed; for the one who opened it."""
        if self.offers("close"):
            await self._call("close")

    async def each(self, function: Callable[[A], Awaitable[B]], items: Iterable[A]) -> list[B]:
        """What the function gives for each, some of them side by side."""
        queue = list(enumerate(items))[::-1]
        made: dict[int, B] = {}
        failed: list[Exception] = []

        async def work() -> None:
            while queue and not failed:
                index, item = queue.pop()
                try:
                    made[index] = await function(item)
                except Exception as error:  # noqa: BLE001 - raised below, alone and not in a group
                    failed.append(error)

        async with anyio.create_task_group() as tasks:
            for _ in range(min(_AT_ONCE, len(queue))):
                tasks.start_soon(work)
        if failed:
            raise failed[0]
        return [made[index] for index in sorted(made)]

    async def _ask(self, kind: type[A], operation: str, *arguments: object) -> A:
        return self._checked(operation, await self._call(operation, *arguments), kind)

    def _checked(self, operation: str, found: object, kind: type[A]) -> A:
        if self._trusts(operation):
            return cast("A", found)
        try:
            return msgspec.convert(found, kind)
        except msgspec.ValidationError as error:
            hint = "Correct the store; `outrider.testing.check_store` tells what else it has to do."
            raise StoreError(
                self.name, operation, f"it returned something unexpected: {error}", hint=hint
            ) from None

    def _trusts(self, operation: str) -> bool:
        """Whether this is a method of ours, which a class of the user's has not replaced."""
        own: object = getattr(getattr(self._store, operation), "__func__", None)
        return self._is_guarded and own is getattr(BlockingStore, operation)

    async def _call(self, operation: str, *arguments: object) -> object:
        call: Callable[..., Awaitable[object]] = getattr(self._store, operation)
        try:
            if self._trusts(operation):
                return await call(*arguments)
            with anyio.move_on_after(self._timeout):
                return await call(*arguments)
        except OutriderError:
            raise
        except BaseException as error:
            # A cancellation may well be the store's own, alone or in a group. Ctrl-C and its like are not.
            kinds = (Exception, GeneratorExit, anyio.get_cancelled_exc_class())
            if BaseExceptionGroup("", [error]).split(kinds)[1] is not None:
                raise
            if not isinstance(error, Exception):
                # Raises it again if it was meant for this task.
                await checkpoint()
            # What a driver raises when its server cannot be reached may pass.
            passes = isinstance(error, (OSError, TimeoutError))
            raise StoreError(self.name, operation, _reason(error), retryable=passes) from error
        raise StoreTimedOut(self.name, operation, self._timeout)


def to_key(project: str, session_id: str, subpath: str | None = None) -> SessionKey:
    key: SessionKey = {"project_key": project, "session_id": session_id}
    if subpath is not None:
        key["subpath"] = subpath
    return key


def _reason(error: BaseException) -> str:
    kind = type(error).__name__
    try:
        words = str(error)
    except Exception:  # noqa: BLE001 - an exception of the user's, which may be anything
        words = ""
    return f"{kind}: {words}" if words else kind
