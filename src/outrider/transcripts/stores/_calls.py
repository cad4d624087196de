"""Calls a store of any kind: with a timeout, with its failures as `StoreError`s, and its answers checked.

Does not decide what a failure means to the caller.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any, Final, TypedDict, TypeVar, cast

import anyio
import msgspec
from anyio.lowlevel import checkpoint

from outrider.errors import OutriderError, StoreError, StoreTimedOut
from outrider.transcripts._entries import deep_copy
from outrider.transcripts.stores._base import offers
from outrider.transcripts.stores._blocking import BlockingStore

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
        return self._is_guarded and getattr(type(self._store), operation) is getattr(BlockingStore, operation)

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
