"""Owns the errors of sessions that are kept: on disk, or in a store.

Does not decide when to raise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from outrider.errors._root import OutriderError, Told, in_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Unpack

    from outrider.errors._root import StrPath

__all__ = [
    "LeaseLost",
    "SessionBusy",
    "SessionExists",
    "SessionNotFound",
    "StoreError",
    "StoreTimedOut",
    "TranscriptDamaged",
    "TranscriptError",
]


class TranscriptError(OutriderError):
    """A session on disk, or in a store, cannot be used."""

    hint = "List the sessions to see which there are."
    _what = "the transcript cannot be used"


class SessionNotFound(TranscriptError):
    """There is no session `id` in any of the places `searched`; none was started instead."""

    hint = "List the sessions to see which there are; each belongs to the folder that it was started in."

    def __init__(self, id: str, searched: Sequence[str] = (), **told: Unpack[Told]) -> None:
        super().__init__(**told)
        self.id = self.session_id = id
        self.searched: tuple[str, ...] = tuple(searched)
        self._what = f"there is no session {id!r}"
        self._evidence = ("Searched:", *(f"  {path}" for path in searched)) if searched else ()


class TranscriptDamaged(TranscriptError):
    """The transcript `path` cannot be read at `line_number`, counted from 1; None if all of it cannot."""

    hint = "Restore the file, or remove what cannot be read."

    def __init__(self, path: StrPath, line_number: int | None = None, **told: Unpack[Told]) -> None:
        super().__init__(**told)
        self.path, self.line_number = str(path), line_number
        place = "" if line_number is None else f" at line {line_number}"
        self._what = f"the transcript {self.path!r} is damaged{place}"


class SessionExists(TranscriptError):
    """There is a session `id` already, in the place `where`; it was left as it is."""

    hint = "Delete it first, or give the new one another id."

    def __init__(self, id: str, where: StrPath = "", **told: Unpack[Told]) -> None:
        super().__init__(**told)
        self.id = self.session_id = id
        self.where = str(where)
        self._what = f"there is a session {id!r} already" + (f" in {self.where!r}" if self.where else "")


class SessionBusy(TranscriptError):
    """Another writer, the `holder`, has the session `id`; in `retry_after` seconds its hold ends, unless it
    renews it."""

    retryable = True

    def __init__(
        self, id: str, holder: str = "", retry_after: float | None = None, **told: Unpack[Told]
    ) -> None:
        super().__init__(**told)
        self.id = self.session_id = id
        self.holder, self.retry_after = holder, retry_after
        self._what = f"the session {id!r} is in use" + (f" by {holder}" if holder else "")
        wait = in_seconds(" in", retry_after)
        self.hint = told.get("hint") or f"Close it there, or try again{wait or ' later'}; or fork it."


class LeaseLost(TranscriptError):
    """The hold on the session `id` is over: it ran out, or another writer, the `holder`, has it now."""

    hint = "Open the session again: what was stored is kept."

    def __init__(self, id: str, holder: str = "", **told: Unpack[Told]) -> None:
        super().__init__(**told)
        self.id = self.session_id = id
        self.holder = holder
        self._what = f"the hold on the session {id!r} is over" + (f": {holder} has it" if holder else "")


class StoreError(TranscriptError):
    """The `store` failed in the `operation`; `__cause__` is what its driver raised. `retryable` tells whether
    it may pass: a lost connection, a server that restarts."""

    hint = "Check that the store can be reached, and has room."

    def __init__(
        self, store: str, operation: str, reason: str = "", *, retryable: bool = False, **told: Unpack[Told]
    ) -> None:
        super().__init__(**told)
        self.store, self.operation, self.reason = store, operation, reason
        self.retryable = retryable
        self._what = f"the store {store} failed in `{operation}`" + (f": {reason}" if reason else "")


class StoreTimedOut(StoreError, TimeoutError):
    """The `store` did not answer within `timeout` seconds; what it was asked to do may still be done."""

    def __init__(
        self, store: str, operation: str, timeout: float | None = None, **told: Unpack[Told]
    ) -> None:
        super().__init__(store, operation, retryable=True, **told)
        self.timeout = timeout
        within = in_seconds(" within", timeout) or " in time"
        self._what = f"the store {store} did not answer `{operation}`{within}"
