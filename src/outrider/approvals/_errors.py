"""Defines the exceptions of `outrider.approvals`, with the facts of each failure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outrider.errors import OutriderError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Unpack

    from outrider.errors import Details


class ApprovalError(OutriderError):
    """Something is wrong with an approval, or with the way that somebody uses it."""


class ApprovalNotFound(ApprovalError):
    """There is no approval `id` in the `store`."""

    hint = "List them to see which there are."

    def __init__(self, id: str, store: str = "", **details: Unpack[Details]) -> None:
        super().__init__(**details)
        self.id, self.store = id, store
        self._what = f"there is no approval {id!r}" + (f" in {store}" if store else "")


class ApprovalSettled(ApprovalError):
    """It is too late for a step: the approval `id` is in this `state`, decided by `by`."""

    def __init__(self, id: str, state: str, by: str = "", **details: Unpack[Details]) -> None:
        super().__init__(**details)
        self.id, self.state, self.by = id, state, by
        self._what = f"the approval {id!r} is {state} already" + (f", by {by}" if by else "")


class SessionParked(ApprovalError):
    """A call of the session waits for these `approvals`, and a prompt would destroy it."""

    hint = "Decide them, close this session, and go on with `outrider.go_on(session_id)`."

    def __init__(self, id: str | None, approvals: Sequence[str], **details: Unpack[Details]) -> None:
        super().__init__(**details)
        self.id = self.session_id = id
        self.approvals: tuple[str, ...] = tuple(approvals)
        ids = ", ".join(approvals)
        self._what = f"the session waits for approval ({ids}), and a prompt would destroy the call"
