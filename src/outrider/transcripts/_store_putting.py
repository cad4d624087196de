"""Owns how a session gets into a store: nothing of another one is touched, and what was cut short can go on.

Does not read the session that it comes from.
"""

from __future__ import annotations

import hashlib
import os
import socket
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final
from uuid import UUID, uuid5

import anyio

from outrider.errors import OutriderError, SessionExists
from outrider.transcripts._lines import to_line
from outrider.transcripts._same import left_of
from outrider.transcripts._store_calls import to_key
from outrider.transcripts._subpaths import check_subpath

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from outrider.transcripts._store_calls import StoreCalls
    from outrider.transcripts._values import Bundle
    from outrider.wire import JsonObject

__all__ = ["put"]

_IN_ONE_BATCH: Final = 500
_NAMESPACE: Final = UUID("6f0f3c9e-3f1b-4b53-9c43-0d6f6a2f7a10")
_HELD_SECONDS: Final = 60.0
"""For how long the session is held while it is written; longer than a batch takes."""
_RELEASE_SECONDS: Final = 5.0


async def put(store: StoreCalls, bundle: Bundle, *, resume: bool) -> None:
    """Write a session that is not there, its main transcript last: until then it is in no list.

    Raises `SessionExists` if one of its id is there; to `resume`, if that is another one. What fails, or is
    cancelled, is taken back, unless it can be resumed.
    """
    project, session_id = bundle.project, bundle.session_id
    transcripts: list[tuple[str | None, list[JsonObject]]] = [
        *((check_subpath(subpath), part) for subpath, part in bundle.parts.items() if part),
        (None, bundle.entries),
    ]
    async with _held(store, project, session_id) as renew:
        left: list[tuple[str | None, list[JsonObject], int]] = []
        for subpath, entries in transcripts:
            there = await store.load(to_key(project, session_id, subpath))
            rest = left_of(entries, there)
            if rest is None or (there and subpath is None and not resume):
                raise SessionExists(session_id, where=f"{store.name}: {project}")
            left.append((subpath, rest, len(there)))
        try:
            for subpath, entries, start in left:
                for index in range(0, len(entries), _IN_ONE_BATCH):
                    some = entries[index : index + _IN_ONE_BATCH]
                    batch = _batch(bundle, subpath, start + index, some)
                    await store.append(to_key(project, session_id, subpath), some, batch)
                    await renew()
        except BaseException:
            if not resume and not any(start for _, _, start in left):
                await _take_back(store, project, session_id)
            raise


async def _take_back(store: StoreCalls, project: str, session_id: str) -> None:
    """Remove half of a session that nobody will finish; where that fails, it stays."""
    if store.offers("delete"):
        with anyio.move_on_after(_RELEASE_SECONDS, shield=True), suppress(OutriderError):
            await store.delete(to_key(project, session_id))


def _batch(bundle: Bundle, subpath: str | None, start: int, entries: list[JsonObject]) -> str:
    """An id that is the same for the same entries at the same place."""
    content = hashlib.sha256("\n".join(map(to_line, entries)).encode()).hexdigest()
    place = [bundle.project, bundle.session_id, subpath or "", str(start), content]
    return str(uuid5(_NAMESPACE, "\0".join(place)))


@asynccontextmanager
async def _held(
    store: StoreCalls, project: str, session_id: str
) -> AsyncGenerator[Callable[[], Awaitable[None]], None]:
    """Be the only one who writes to a session, if the store has a way to be."""

    async def renew() -> None:
        if token:
            await store.renew_lease(key, token, _HELD_SECONDS)

    key, token = to_key(project, session_id), ""
    if store.has_leases:
        holder = f"a copy by process {os.getpid()} on {socket.gethostname()}"
        token = await store.acquire_lease(key, holder, _HELD_SECONDS)
    try:
        yield renew
    finally:
        if token:
            # If it fails, the hold runs out by itself.
            with anyio.move_on_after(_RELEASE_SECONDS, shield=True), suppress(OutriderError):
                await store.release_lease(key, token)
