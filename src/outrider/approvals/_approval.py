"""`Approval`: a tool call, a question or a plan that waits for a person, and the states it goes through.

    pending ──▶ granted ──▶ claimed ──▶ done
       │         │              └─────▶ unknown
       │         └─────▶ expired
       └──────▶ denied, expired

Every step is made from the state before it and nothing else, so that a store can refuse a second one.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

import msgspec
from msgspec.structs import replace

from outrider.approvals._errors import ApprovalSettled
from outrider.errors import StoreError
from outrider.redaction import preview_value
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from collections.abc import Callable

State: TypeAlias = Literal["pending", "granted", "denied", "expired", "claimed", "done", "unknown"]
Step: TypeAlias = "Callable[[Approval, float], Approval]"
"""Makes the next state of an approval, at this time. Raises `ApprovalSettled` if it is too late for it."""
Kind: TypeAlias = Literal["tool", "question", "plan"]

STATES: Final = get_args(State)

KINDS: Final[dict[str, Kind]] = {"AskUserQuestion": "question", "ExitPlanMode": "plan"}
"""Tools that ask a person by themselves."""

_KEPT_BYTES: Final = 1_000_000
"""How much of settled ones a session keeps."""
_LEAST_BYTES: Final = 10_000
"""How much each counts at least."""


class Approval(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call that waits for a person, or did. It is a snapshot: `Approvals.get` returns the current state."""

    id: str
    session_id: str
    """The session to go on with, once it is decided."""
    tool: str
    input: JsonObject
    digest: str
    """Of the tool and its input. What was approved runs with this input, or with the one that the person
    gave."""
    tool_use_id: str = ""
    kind: Kind = "tool"
    reason: str = ""
    """Why somebody is asked."""
    cwd: str = ""
    trace: str = ""
    """The span of the turn that asked, as a `traceparent`, if there is telemetry."""
    is_deferred: bool = False
    """Whether the call itself waits in the session. Otherwise the model is told, and has to make it again."""
    asked_at: float = 0.0
    """Seconds since 1970, like all times here."""
    expires_at: float | None = None
    state: State = "pending"
    by: str = ""
    """Who decided."""
    decided_at: float | None = None
    new_input: JsonObject | None = None
    """What it runs with, if the person changed it."""
    message: str = ""
    """What the model is told about a denial."""
    claim: str = ""
    """Which run of the session has begun the call."""
    claimed_at: float | None = None
    is_delivered: bool = False
    """Whether the session has gone on since: a turn that knew of the decision has ended."""
    outcome: str = ""
    """What became of the call: `succeeded` or `failed`."""

    @property
    def is_open(self) -> bool:
        """Whether something still has to happen: a decision, or the session has to go on."""
        return not self.is_delivered

    @property
    def is_ready(self) -> bool:
        """Whether it is decided, and the session has not gone on since."""
        return self.state != "pending" and not self.is_delivered

    @property
    def given_input(self) -> JsonObject:
        """What it runs with, once it is granted."""
        return self.input if self.new_input is None else self.new_input

    def is_for(self, digest: str) -> bool:
        """Whether a call with this digest is the one that was asked about, or what the person made of it."""
        if digest == self.digest:
            return True
        return self.new_input is not None and digest == digest_of(self.tool, self.new_input)

    def __str__(self) -> str:
        return f"{self.tool} {preview_value(self.input)}"

    # Steps.

    def granted(self, now: float, *, by: str, new_input: JsonObject | None) -> Approval:
        self._require("pending")
        return replace(self, state="granted", by=by, decided_at=now, new_input=new_input)

    def denied(self, now: float, *, by: str, message: str) -> Approval:
        self._require("pending")
        return replace(self, state="denied", by=by, decided_at=now, message=message)

    def expired(self, now: float) -> Approval:
        """The same, or expired if nobody decided in time."""
        if self.state != "pending" or self.expires_at is None or now < self.expires_at:
            return self
        return replace(self, state="expired", decided_at=now)

    def claimed(self, now: float, *, claim: str) -> Approval:
        self._require("granted")
        return replace(self, state="claimed", claim=claim, claimed_at=now)

    def done(self, now: float, *, claim: str, outcome: str) -> Approval:
        self._require("claimed")
        if self.claim != claim:
            raise ApprovalSettled(self.id, self.state, self.by)
        return replace(self, state="done", outcome=outcome)

    def unknown(self, now: float) -> Approval:
        self._require("claimed")
        return replace(self, state="unknown")

    def parked(self, now: float, *, is_deferred: bool, tool_use_id: str) -> Approval:
        """The session does not wait for it any longer."""
        self._require("pending")
        return replace(self, is_deferred=is_deferred, tool_use_id=tool_use_id)

    def withdrawn(self, now: float) -> Approval:
        """Nobody needs the decision any more."""
        if self.state not in ("pending", "granted"):
            return self
        return replace(self, state="expired", decided_at=now, is_delivered=True)

    def gone_on(self, now: float) -> Approval:
        """A turn has ended with the decision. If the call was not made, it is not wanted any more."""
        return replace(self.withdrawn(now), is_delivered=True)

    def _require(self, state: State) -> None:
        if self.state != state:
            raise ApprovalSettled(self.id, self.state, self.by)


def digest_of(tool: str, input: JsonObject) -> str:
    """The same for the same call, whatever the order of its fields."""
    text = json.dumps([tool, input], sort_keys=True, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()


class Asked(msgspec.Struct, frozen=True):
    """What a store keeps for a session: all of its approvals, the oldest first."""

    approvals: tuple[Approval, ...] = ()

    @classmethod
    def read(cls, data: str | None, store: str) -> Asked:
        if data is None:
            return cls()
        try:
            return msgspec.convert(json.loads(data), cls)
        except (ValueError, RecursionError) as error:
            raise StoreError(store, "read", f"an approval is damaged: {error}") from error

    @property
    def data(self) -> str:
        # Not by msgspec, which refuses half a surrogate pair.
        return json.dumps(msgspec.to_builtins(self), separators=(",", ":"))

    @property
    def is_open(self) -> bool:
        return any(each.is_open for each in self.approvals)

    def find(self, id: str) -> Approval | None:
        return next((each for each in self.approvals if each.id == id), None)

    def with_one(self, approval: Approval) -> Asked:
        """With this one in the place of that with its id, or at the end."""
        known = {each.id: each for each in self.approvals} | {approval.id: approval}
        kept, size = list[Approval](), 0
        for each in reversed(known.values()):
            if not each.is_open:
                if size >= _KEPT_BYTES:
                    continue
                size += max(len(str(each.input)), _LEAST_BYTES)
            kept.append(each)
        return Asked(tuple(reversed(kept)))

    def expired(self, now: float) -> Asked:
        return Asked(tuple(each.expired(now) for each in self.approvals))
