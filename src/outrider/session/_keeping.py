"""Owns what a session has of its store from the beginning to the end: what it resumes, the lease, the mirror.

The parts are in `_resuming`, `_leasing` and `_mirror`; here is in which order they begin and end, and within
which bounds.
"""

from __future__ import annotations

import logging
import os
from contextvars import Context
from typing import TYPE_CHECKING, Final, cast

import anyio

from outrider.errors import OutriderError
from outrider.session._background import background
from outrider.session._laying_out import laid_out_in
from outrider.session._leasing import Leases
from outrider.session._mirror import Mirror
from outrider.session._mirror_keys import Keys
from outrider.session._raising import is_failure, unwrapped
from outrider.session._resuming import restore
from outrider.transcripts import StoreCalls, open_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from outrider.options import Options
    from outrider.session._resuming import Restored
    from outrider.transcripts import SessionStore

__all__ = ["FLUSH_SECONDS", "LEAVE_SECONDS", "Keeping"]

log = logging.getLogger("outrider.session")

FLUSH_SECONDS: Final = 5.0
"""How long what is left of the transcript may take to be stored at the end."""

LEAVE_SECONDS: Final = 2.0
"""How long the lease may take to be given back, and a store of the session's own to be closed."""


class Keeping:
    """The store of one connection. Runs in a task of the event loop, from `begin` until `finish`.

    It does not keep the options, which may well lead to the session: that could not be dropped then.
    """

    def __init__(self, options: Options) -> None:
        """Raises `OptionsError` for what is no store, `UserNotFound` for what is no user."""
        self.on_crash: Callable[[BaseException], None] = lambda _: None
        """Told what the store raised that is meant for the whole program, such as Ctrl-C."""
        place = cast("SessionStore | str | os.PathLike[str]", options.session_store)
        # First: it may be refused, and an opened store would have to be closed.
        places = laid_out_in(options)
        self._is_own = isinstance(place, (str, os.PathLike))
        self._calls = StoreCalls(open_store(place), options.timeouts.store)
        self._leases = Leases(self._calls)
        self.mirror = Mirror(
            self._calls,
            self._leases,
            Keys(places.config if places.is_certain else None),
            is_eager=options.session_store_flush == "eager",
            is_only_copy=places.is_private,
        )
        self._scope = anyio.CancelScope(shield=True)
        self._flushing = anyio.CancelScope(shield=True)
        self._is_begun = False
        self._is_over = anyio.Event()
        self._process = os.getpid()

    @property
    def _is_inherited(self) -> bool:
        """Whether this process was forked from the one whose session it is. There it goes on: nothing of it
        is stored, and no lease given back, by whoever unwinds its tasks here."""
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
                # A store that does not let itself be cancelled is left behind.
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
        """Store what comes until the end."""
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
                # The event loop goes down. Whoever reads tells when nothing more comes.
                self._flushing = anyio.CancelScope(shield=True)

    async def _store(self, seconds: float | None) -> None:
        with anyio.move_on_after(seconds):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._leases.renew)
                await self.mirror.serve(tasks)
                tasks.cancel_scope.cancel()
