"""`Approvals`: asks, lists and decides, each step one conditional write to a store.

The steps themselves are in `_approval`. Does not know sessions, beyond their ids.
"""

from __future__ import annotations

import hmac
import json
import logging
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, cast
from uuid import uuid4

import anyio

from outrider.approvals._approval import KINDS, STATES, Approval, Asked, digest_of
from outrider.approvals._errors import ApprovalError, ApprovalNotFound
from outrider.errors import OptionsError, StoreError
from outrider.handlers._answers import allow
from outrider.handlers._permissions.requests import NotADecision, answered, read_decision
from outrider.options._validators import above_zero, choice, text
from outrider.options._validators import seconds as seconds_of
from outrider.transcripts.stores._heads import HeadStore, Record
from outrider.transcripts.stores._urls import open_store

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence
    from typing import Self

    from outrider.approvals._approval import Step
    from outrider.handlers._answers import Answer
    from outrider.transcripts import SessionStore
    from outrider.wire import JsonObject

log = logging.getLogger("outrider.approvals")

KIND: Final = "approvals"
"""Of the records, for the store."""

PATIENCE: Final = 60.0
_WEEK: Final = 7 * 86400.0
_DAY: Final = 86400.0
_POLL_SECONDS: Final = 1.0
_FIRST_PAUSE: Final = 0.05
_GROWTH: Final = 1.5
_AGAIN_SECONDS: Final = 60.0
"""After which `ready` gives a session again."""
_LEAST_SECRET: Final = 16
"""Bytes. A shorter one can be found by trying."""
_DOMAIN: Final = b"outrider approval 1\0"
"""So that a signature made for anything else is none here."""

_read_state: Final = choice(*STATES)


class Approvals:
    """Where calls wait for a person.

        approvals = outrider.Approvals("postgresql://…")
        async with outrider.Session(permission=policy, approvals=approvals) as session:
            result = await session.ask("Deploy")
        result.pending  # what waits

    A call is asked about in the open session for `patience` seconds. Then it is parked: the turn ends, the
    process may, and `outrider.go_on` continues with the decision, on any machine that has the session.

    `place` is a URL or a store, as of `session_store`. Several processes may use the same.
    """

    def __init__(
        self,
        place: SessionStore | str | os.PathLike[str],
        *,
        patience: float = PATIENCE,
        expires: float | None = _WEEK,
        secret: str | bytes | Sequence[str | bytes] | None = None,
    ) -> None:
        """`patience`: how many seconds a session waits for the decision before it parks the call; 0 parks at
        once. `expires`: after how many seconds a call that nobody decided is denied; None: never. `secret`
        signs the tokens of `sign`; give all processes the same one. To change it, give the new one and the
        old one: the first signs, and `verify` takes both.

        Raises `OptionsError`.
        """
        store = open_store(place)
        if not isinstance(store, HeadStore):
            raise OptionsError(
                f"A {type(store).__name__} cannot keep approvals",
                hint="Give the URL of one of Outrider's own stores, or the path of a SQLite database.",
            )
        self._store = store
        self.patience: Final = seconds_of("`patience`", patience)
        self.expires: Final = None if expires is None else above_zero("`expires`", expires)
        self._secrets = _read_secrets(secret)

    def __repr__(self) -> str:
        return f"Approvals({self._store.name!r})"

    @property
    def store(self) -> HeadStore:
        """Where they are kept."""
        return self._store

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        with anyio.CancelScope(shield=True):
            await self.close()

    async def close(self) -> None:
        """Close the store's connections. Later calls connect again."""
        await self._store.close()

    # Looking.

    async def list(self, *, session_id: str | None = None, state: str | None = None) -> tuple[Approval, ...]:
        """Those that are open: undecided, or no turn has ended with the decision yet; the newest first.

        `session_id`: all that this session has asked for, settled ones too. `state`: only those.
        """
        if state is not None:
            _read_state("`state`", state)
        now = time.time()
        if session_id is not None:
            found = (await self._read(session_id)).expired(now).approvals
        else:
            records = await self._store.list_records(KIND)
            asked = [self._read_listed(data).expired(now) for data in records]
            found = tuple(each for one in asked for each in one.approvals if each.is_open)
        chosen = [each for each in found if state is None or each.state == state]
        return tuple(sorted(chosen, key=lambda each: each.asked_at, reverse=True))

    async def get(self, id: str) -> Approval:
        """One, as it is now. Raises `ApprovalNotFound`."""
        found = (await self._read(session_of(id))).expired(time.time()).find(id)
        if found is None:
            raise ApprovalNotFound(id, self._store.name)
        return found

    def ready(self, *, poll: float = _POLL_SECONDS) -> AsyncIterator[str]:
        """The ids of sessions that can go on, as they become so; never ends.

            async for session_id in approvals.ready():
                await outrider.go_on(session_id, options)

        A session can go on once all that it asked for is decided, and nobody has it open. It comes until a
        turn has ended with the decisions: again if its process was killed, or the API failed; a minute after
        the last time.

        Raises a `StoreError` if the store fails at the beginning; later it waits until it is back.
        """
        return _Ready(self, above_zero("`poll`", poll))

    async def delete(self, session_id: str) -> None:
        """Remove all that a session asked for, with the inputs. A call that still waits there is asked about
        anew once the session continues. Raises `SessionBusy` while somebody has the session open."""
        await self._store.delete_record(KIND, text("`session_id`", session_id))

    # Deciding.

    async def decide(self, id: str, answer: Answer | bool, *, by: str = "") -> Approval:
        """Decide about one: `allow()`, `allow({…})` with another input, `deny("why")`, True or False.

        Only the first decision counts. Raises `ApprovalSettled` if there is one already or the time is over,
        `ApprovalNotFound`, `OptionsError` for an answer that decides nothing, and `StoreError`.
        """
        if by:
            text("`by`", by)
        before = await self.get(id)
        try:
            decision = read_decision(answer, before.input, before.tool_use_id, by or "somebody")
        except NotADecision as error:
            raise OptionsError(str(error), hint="Give allow() or deny('why').") from error
        if decision.wire.get("updatedPermissions"):
            raise OptionsError(
                "`updates` change the permissions of a running session, and this one may have ended",
                hint="Give allow() without them.",
            )
        if decision.is_allowed:
            given: JsonObject = decision.wire["updatedInput"]
            # Not by `==`, for which 1 and True are the same.
            new_input = None if digest_of(before.tool, given) == before.digest else given
            if before.kind == "question" and new_input is None:
                raise OptionsError(
                    f"{id!r} is a question, and this does not answer it",
                    hint="Use `answer` (`--answer` at the command line), or deny it.",
                )

            return await self.change(id, partial(Approval.granted, by=by, new_input=new_input))
        return await self.change(id, partial(Approval.denied, by=by, message=decision.wire["message"]))

    async def answer(self, id: str, answers: JsonObject, *, by: str = "") -> Approval:
        """Answer the questions of one whose `kind` is `question`: the text of each, and the answer, or a list
        of several. One that is left out is not answered. Raises what `decide` raises."""
        before = await self.get(id)
        if before.kind != "question":
            raise OptionsError(f"{id!r} is a {before.kind}, and asks no questions", hint="Use `decide`.")
        try:
            decision = answered(answers, before.input, by or "somebody")
        except NotADecision as error:
            raise OptionsError(str(error), hint="See the `input` of the approval.") from error
        return await self.decide(id, allow(decision.wire["updatedInput"]), by=by)

    # Tokens, for links in mails and chats.

    def sign(self, approval: Approval, *, seconds: float = _DAY) -> str:
        """A token that stands for the right to decide this call, for some seconds.

        Everybody who has it can decide: put it into a link that only the right person gets, and let that page
        ask once more, because mail programs open links by themselves.
        """
        payload = [approval.id, approval.digest, time.time() + above_zero("`seconds`", seconds)]
        data = json.dumps(payload, separators=(",", ":")).encode()
        return f"{_to_text(data)}.{_to_text(self._signatures(data)[0])}"

    async def verify(self, token: str) -> Approval:
        """The approval that a token is for. Raises `ApprovalError` if it is not genuine or not valid any
        more."""
        try:
            data, signature = map(_from_text, token.split("."))
        except (ValueError, AttributeError, TypeError):
            raise ApprovalError("This is not a token of an approval") from None
        if not any(hmac.compare_digest(signature, genuine) for genuine in self._signatures(data)):
            raise ApprovalError("The token is not genuine", hint="Look for the `secret` that signed it.")
        id, digest, end = json.loads(data)
        if time.time() >= end:
            raise ApprovalError("The token is not valid any more", hint="Make a new one with `sign`.")
        found = await self.get(id)
        if found.digest != digest:
            raise ApprovalError("The token is for another call")
        return found

    def _signatures(self, data: bytes) -> tuple[bytes, ...]:
        if not self._secrets:
            raise OptionsError(
                "There is no `secret` to sign tokens with", hint="Write Approvals(…, secret=…)."
            )
        return tuple(hmac.digest(secret, _DOMAIN + data, "sha256") for secret in self._secrets)

    # For sessions.

    async def ask(
        self,
        session_id: str,
        tool: str,
        input: JsonObject,
        *,
        tool_use_id: str = "",
        reason: str = "",
        cwd: str = "",
        trace: str = "",
    ) -> Approval:
        """Write down that a call waits. Sessions do this by themselves."""
        now = time.time()
        asked = Approval(
            id=f"{session_id}.{uuid4().hex[:12]}",
            session_id=session_id,
            tool=tool,
            input=input,
            digest=digest_of(tool, input),
            tool_use_id=tool_use_id,
            kind=KINDS.get(tool, "tool"),
            reason=reason,
            cwd=cwd,
            trace=trace,
            asked_at=now,
            expires_at=None if self.expires is None else now + self.expires,
        )
        await self._change(session_id, lambda known: known.with_one(asked))
        return asked

    async def change(self, id: str, step: Step) -> Approval:
        """Make one step of an approval, if nobody was faster. Raises `ApprovalSettled` if it is too late."""
        changed: Approval | None = None

        def change(known: Asked) -> Asked:
            nonlocal changed
            now = time.time()
            known = known.expired(now)
            before = known.find(id)
            if before is None:
                raise ApprovalNotFound(id, self._store.name)
            if changed is not None and Asked((before,)).data == Asked((changed,)).data:
                # This step was written, and the store has lost the answer to that.
                return known
            changed = step(before, now)
            return known.with_one(changed)

        await self._change(session_of(id), change)
        return cast("Approval", changed)

    async def wait(self, approval: Approval, seconds: float) -> Approval:
        """Wait until one is decided, for some seconds at most; gives it as it is then."""
        end, pause = anyio.current_time() + seconds, _FIRST_PAUSE
        while approval.state == "pending" and (left := end - anyio.current_time()) > 0:
            # Polled: most decide in another process.
            await anyio.sleep(min(pause, left))
            pause = min(pause * _GROWTH, _POLL_SECONDS)
            with suppress(StoreError):  # there is time until it is back
                approval = await self.get(approval.id)
        return approval

    def _read_listed(self, data: str) -> Asked:
        """Read one of many: one that is damaged, or of a later version, must not hide the others."""
        try:
            return Asked.read(data, self._store.name)
        except StoreError as error:
            log.warning("what a session asked for is left out: %s", error)
            return Asked()

    async def _read(self, session_id: str) -> Asked:
        return Asked.read(await self._store.read_record(KIND, session_id), self._store.name)

    async def _change(self, session_id: str, change: Callable[[Asked], Asked]) -> None:
        def changed(data: str | None) -> Record:
            after = change(Asked.read(data, self._store.name))
            return Record(after.data, after.is_open)

        await self._store.change_record(KIND, session_id, changed)


class _Ready:
    """What `Approvals.ready` gives. Not a generator: a loop that is left early leaves nothing to close."""

    def __init__(self, approvals: Approvals, poll: float) -> None:
        self._approvals, self._poll = approvals, poll
        self._given: dict[tuple[str, ...], float] = {}
        """When a session was given, by its id and those of its approvals."""
        self._next: list[tuple[str, ...]] = []
        self._has_looked = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        while True:
            try:
                while self._next:
                    key = self._next.pop()
                    if not await self._approvals.store.is_record_leased(KIND, key[0]):
                        self._given[key] = time.monotonic()
                        return key[0]
                if self._has_looked:
                    await anyio.sleep(self._poll)
                await self._look()
            except StoreError as error:
                if not self._has_looked:
                    raise
                # A worker outlives a store that is started anew.
                log.warning("which sessions can go on is not known for now: %s", error)
                await anyio.sleep(self._poll)
            self._has_looked = True

    async def _look(self) -> None:
        asked: dict[str, list[Approval]] = {}
        for each in await self._approvals.list():
            asked.setdefault(each.session_id, []).append(each)
        now = time.monotonic()
        self._given = {key: at for key, at in self._given.items() if now - at < _AGAIN_SECONDS}
        ready = (its for its in asked.values() if all(each.is_ready for each in its))
        keys = ((its[0].session_id, *sorted(each.id for each in its)) for its in ready)
        self._next = [key for key in keys if key not in self._given]


def session_of(id: str) -> str:
    """The session that an approval belongs to, from its id."""
    session, dot, _ = id.rpartition(".") if isinstance(cast("object", id), str) else ("", "", "")
    if not dot:
        raise ApprovalNotFound(id, hint="An id is that of its session, a dot, and twelve digits.")
    return session


def _read_secrets(given: str | bytes | Sequence[str | bytes] | None) -> tuple[bytes, ...]:
    several = given if isinstance(given, list | tuple) else () if given is None else (given,)
    secrets = tuple(
        one.encode() if isinstance(one, str) else one for one in cast("Iterable[object]", several)
    )
    if not all(isinstance(one, bytes) and len(one) >= _LEAST_SECRET for one in secrets):
        # Not shown: it is one.
        raise OptionsError("`secret` must be a text or bytes, at least 16 of them", hint="Make it at random.")
    return cast("tuple[bytes, ...]", secrets)


def _to_text(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


def _from_text(text: str) -> bytes:
    data = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if _to_text(data) != text:
        # Several texts decode to the same bytes; one of them is the token.
        raise ValueError
    return data
