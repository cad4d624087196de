"""Calls a store with a timeout and a limit on concurrent calls, and turns its failures into `StoreError`s.

Also validates what a store returns. Does not decide what a failure means to the caller.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias, TypedDict, TypeVar, cast

import anyio
import msgspec
from anyio.lowlevel import checkpoint

from outrider.errors import OutriderError, StoreError, StoreTimedOut
from outrider.transcripts.stores._base import offers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from outrider.transcripts.stores._base import (
        SessionKey,
        SessionListSubkeysKey,
        SessionStore,
        SessionStoreEntry,
        SessionStoreListEntry,
        SessionSummaryEntry,
    )
    from outrider.wire import JsonObject

    _Place: TypeAlias = dict[Any, object] | list[object]

__all__ = ["StoreCalls", "to_key"]

A = TypeVar("A")
B = TypeVar("B")

_AT_ONCE: Final = 16
"""How many transcripts are loaded side by side."""

_PASSING: Final = (OSError, TimeoutError)
"""What a driver raises when its server cannot be reached: the next call may well succeed."""

_Time = Annotated[float, msgspec.Meta(ge=-sys.float_info.max)]
"""Not NaN, which has no order."""


class _Listed(TypedDict):
    session_id: str
    mtime: _Time


class _Summary(_Listed):
    data: dict[str, object]


class StoreCalls:
    """A store, which may be of the user's own kind: what it gives is looked at before it is used.

    An optional method may be called if the store `offers` it. Each raises a `StoreError`, or another of
    Outrider's errors if the store does; a `StoreTimedOut` after `timeout` seconds, if there is one.
    """

    def __init__(self, store: SessionStore, timeout: float | None = None) -> None:
        self._store = store
        self._timeout = timeout

    @property
    def name(self) -> str:
        """What it is called in errors."""
        told = getattr(self._store, "name", None)
        return told if isinstance(told, str) else type(self._store).__name__

    @property
    def has_leases(self) -> bool:
        return all(map(self.offers, ("acquire_lease", "renew_lease", "release_lease")))

    def offers(self, method: str) -> bool:
        return offers(self._store, method)

    async def load(self, key: SessionKey) -> list[JsonObject]:
        """The entries of a transcript; none if it is not there."""
        found = await self._call("load", self._store.load, key)
        return self._read("load", [] if found is None else found, list[dict[str, Any]])

    async def append(
        self,
        key: SessionKey,
        entries: Sequence[SessionStoreEntry] | Sequence[JsonObject],
        batch: str | None = None,
    ) -> None:
        """Add entries; those of a `batch` once, if the store can tell."""
        # It may well change what it gets, and it may have to get the same again.
        given = cast("list[SessionStoreEntry]", _copied(entries))
        if batch is not None and self.offers("append_batch"):
            await self._call("append_batch", self._store.append_batch, key, given, batch)
        else:
            await self._call("append", self._store.append, key, given)

    async def delete(self, key: SessionKey) -> None:
        await self._call("delete", self._store.delete, key)

    async def list_sessions(self, project: str) -> list[SessionStoreListEntry]:
        found = await self._call("list_sessions", self._store.list_sessions, project)
        return cast("list[SessionStoreListEntry]", self._read("list_sessions", found, list[_Listed]))

    async def list_session_summaries(self, project: str) -> list[SessionSummaryEntry]:
        found = await self._call("list_session_summaries", self._store.list_session_summaries, project)
        return cast("list[SessionSummaryEntry]", self._read("list_session_summaries", found, list[_Summary]))

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        found = await self._call("list_subkeys", self._store.list_subkeys, key)
        return self._read("list_subkeys", found, list[str])

    async def list_projects(self) -> list[str]:
        return self._read(
            "list_projects", await self._call("list_projects", self._store.list_projects), list[str]
        )

    async def find_session(self, session_id: str) -> list[str]:
        found = await self._call("find_session", self._store.find_session, session_id)
        return self._read("find_session", found, list[str])

    async def acquire_lease(self, key: SessionListSubkeysKey, holder: str, seconds: float) -> str:
        found = await self._call("acquire_lease", self._store.acquire_lease, key, holder, seconds)
        return self._read("acquire_lease", found, str)

    async def renew_lease(self, key: SessionListSubkeysKey, token: str, seconds: float) -> None:
        await self._call("renew_lease", self._store.renew_lease, key, token, seconds)

    async def release_lease(self, key: SessionListSubkeysKey, token: str) -> None:
        await self._call("release_lease", self._store.release_lease, key, token)

    async def close(self) -> None:
        """Close it, if it can be closed; for the one who opened it."""
        if self.offers("close"):
            await self._call("close", self._store.close)

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

    def _read(self, operation: str, found: object, kind: type[A]) -> A:
        """What the store has given, if it is what it should be."""
        try:
            return msgspec.convert(found, kind)
        except msgspec.ValidationError as error:
            hint = "Correct the store; `outrider.testing.check_store` tells what else it has to do."
            raise StoreError(
                self.name, operation, f"what it gives is no answer: {error}", hint=hint
            ) from None

    async def _call(self, operation: str, call: Callable[..., Awaitable[A]], *arguments: object) -> A:
        try:
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
            passes = isinstance(error, _PASSING)
            raise StoreError(self.name, operation, _reason(error), retryable=passes) from error
        raise StoreTimedOut(self.name, operation, self._timeout)


def to_key(project: str, session_id: str, subpath: str | None = None) -> SessionKey:
    key: SessionKey = {"project_key": project, "session_id": session_id}
    if subpath is not None:
        key["subpath"] = subpath
    return key


def _copied(entries: Iterable[object]) -> list[object]:
    """A copy of what came as JSON, however deep it is."""
    copy = list(entries)
    left: list[_Place] = [cast("_Place", copy)]
    while left:
        place = left.pop()
        for at, value in list(place.items()) if isinstance(place, dict) else enumerate(place):
            if isinstance(value, dict | list):
                place[at] = inner = cast("_Place", value).copy()
                left.append(inner)
    return copy


def _reason(error: BaseException) -> str:
    kind = type(error).__name__
    try:
        words = str(error)
    except Exception:  # noqa: BLE001 - an exception of the user's, which may be anything
        words = ""
    return f"{kind}: {words}" if words else kind
