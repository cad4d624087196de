"""Owns the leases of a session's transcripts: taken before the first write, renewed, given back at the end.

Does not write anything, and does not decide what becomes of a session that somebody else has.
"""

from __future__ import annotations

import logging
import os
import socket
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias
from uuid import uuid4

import anyio

from outrider.errors import LeaseLost, OutriderError, SessionBusy, StoreError

if TYPE_CHECKING:
    from outrider.transcripts import SessionKey, SessionListSubkeysKey, StoreCalls

    _Session: TypeAlias = tuple[str, str]
    """Project, session."""

__all__ = ["LEASE_SECONDS", "RENEW_SECONDS", "Leases"]

log = logging.getLogger("outrider.session")

LEASE_SECONDS: Final = 30.0
RENEW_SECONDS: Final = 10.0

_ANSWER_SECONDS: Final = 1.0
"""How long a lease that was asked for is waited for when nobody wants it any more: what is granted has to be
given back."""


class _Held(NamedTuple):
    token: str
    end: float
    """Until when nobody else can have it, by the clock of the event loop."""


class Leases:
    """Of one connection. A store without leases is written to as it is."""

    def __init__(self, calls: StoreCalls) -> None:
        self._calls = calls
        # With a part of its own: one process may have many.
        self._holder = f"{socket.gethostname()}:{os.getpid()}/{uuid4().hex[:8]}"
        self._held: dict[_Session, _Held] = {}
        self._lost: dict[_Session, SessionBusy | LeaseLost] = {}

    async def ensure(self, key: SessionKey | SessionListSubkeysKey) -> None:
        """Have the session of a key for this connection alone. Raises `SessionBusy` or `LeaseLost` if another
        writer has it, a `StoreError` if the store cannot tell."""
        session = key["project_key"], key["session_id"]
        if (lost := self._lost.get(session)) is not None:
            raise lost
        if not self._calls.has_leases:
            return
        held = self._held.get(session)
        try:
            if held is None:
                await self._acquire(session)
            elif held.end <= anyio.current_time():
                await self._renew(session, held.token)
        except (SessionBusy, LeaseLost) as error:
            if isinstance(error, SessionBusy) and error.holder == self._holder:
                reason = "it was granted before, but the answer got lost, and it has to run out"
                raise StoreError(self._calls.name, "acquire_lease", reason, retryable=True) from error
            self._lose(session, error)
            raise

    def lose(self, key: SessionKey, error: SessionBusy | LeaseLost) -> None:
        """Another writer has it, as a write has shown."""
        self._lose((key["project_key"], key["session_id"]), error)

    def _lose(self, session: _Session, error: SessionBusy | LeaseLost) -> None:
        self._lost[session] = error
        self._held.pop(session, None)

    async def _acquire(self, session: _Session) -> None:
        """Whoever waits for it may be cancelled: what the store grants then is kept, to be given back."""
        failed: list[BaseException] = []
        answered = anyio.Event()
        scope = anyio.CancelScope(shield=True)

        async def acquire() -> None:
            end = anyio.current_time() + LEASE_SECONDS
            try:
                with scope:
                    token = await self._calls.acquire_lease(_named(session), self._holder, LEASE_SECONDS)
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
        end = anyio.current_time() + LEASE_SECONDS
        await self._calls.renew_lease(_named(session), token, LEASE_SECONDS)
        self._held[session] = _Held(token, end)

    async def renew(self) -> None:
        """Keep what is held, until cancelled."""
        while True:
            await anyio.sleep(RENEW_SECONDS)
            for session, held in list(self._held.items()):
                try:
                    await self._renew(session, held.token)
                except (LeaseLost, SessionBusy) as error:
                    log.warning("the hold on the session %s is over: %s", session[1], error)
                    self._lose(session, error)
                except OutriderError as error:
                    # Whoever writes next is told if somebody else has it by then.
                    log.debug("the hold on the session %s could not be renewed: %s", session[1], error)

    async def release(self) -> None:
        """Give back what is held. A lease that cannot be given back runs out."""
        while self._held:
            session, held = self._held.popitem()
            try:
                await self._calls.release_lease(_named(session), held.token)
            except Exception as error:  # noqa: BLE001 - also what a store of the user's may raise
                log.debug("the hold on the session %s could not be given back: %s", session[1], error)


def _named(session: _Session) -> SessionListSubkeysKey:
    return {"project_key": session[0], "session_id": session[1]}
