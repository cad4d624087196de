"""Asks a person before a tool is used, for as long as that takes: the session's side of `Approvals`.

Its hooks see every call first. A call that nobody has decided after a while is deferred: the turn ends with
it, and Claude Code offers it again when the session is resumed. What cannot be deferred is denied for now,
and the model is told to make it again once it is decided.
"""

from __future__ import annotations

import json
import logging
import os
import time
from contextlib import suppress
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Literal
from uuid import uuid4

import anyio
import msgspec

from outrider.approvals._approval import KINDS, digest_of
from outrider.approvals._approvals import KIND
from outrider.approvals._errors import ApprovalSettled, SessionParked
from outrider.errors import LeaseLost, OutriderError, SessionBusy, UsageError
from outrider.handlers._answers import Answer, Postponed, allow, ask, defer, deny
from outrider.handlers._calls import call, name_of
from outrider.handlers._hooks.hook import Hook
from outrider.handlers._policy.policy import Policy, call_of_hook
from outrider.handlers._router import PermissionHandled
from outrider.handlers._tool_names import check_names
from outrider.session._store.link import Leases
from outrider.transcripts import StoreCalls
from outrider.transcripts.stores._blocking import to_key
from outrider.transcripts.stores._heads import record_place

if TYPE_CHECKING:
    from collections.abc import Callable

    from outrider.approvals import Approval, Approvals
    from outrider.handlers import HookContext, PermissionRequest
    from outrider.handlers._router import Observe
    from outrider.options import Options
    from outrider.options._tool_names import ToolNames
    from outrider.session._streams.routing import Routing
    from outrider.session._streams.turn_state import TurnState
    from outrider.transcripts import SessionKey
    from outrider.wire import JsonObject
    from outrider.wire.hooks import PostToolUseFailureInput, PostToolUseInput, PreToolUseInput

log = logging.getLogger("outrider.session")

OFFER_SECONDS: Final = 10.0
"""How long a resumed session may take to begin with the call that it was left with. It does so at once."""

_FINISH_SECONDS: Final = 5.0
"""How long it may take to write down what became of calls, and to give back the lease."""

DECIDE_FIRST: Final = "Decide them first: `await approvals.decide(id, …)`."

_ANOTHER: Final = "Another call waits for approval. Make this one again once that is decided."
_NOT_HERE: Final = "Nobody decided about this in time, and a subagent cannot wait, so it is not allowed."
_TOO_LATE: Final = "Nobody decided about this in time, so it is not allowed."
_ONCE: Final = "This call was approved and made once already. Look at what it did."
_LATER: Final = (
    "A person has to approve this first, and has been asked. It was not done. Do not try another way: end "
    "your turn now. You will be told the decision."
)


class Gate:
    """The approvals of one session."""

    def __init__(self, approvals: Approvals, options: Options, observe: Observe) -> None:
        self._approvals = approvals
        self._observe = observe
        self._options = options
        self._claim = uuid4().hex
        self._loaded: set[str] = set()
        """The sessions whose approvals are known."""
        self._known: dict[str, Approval] = {}
        """Those that were asked for before, by their ids: by others that had the session, or parked here."""
        self._claims: dict[str, str] = {}
        """The approvals of calls that run now, by the ids of the calls."""
        self._outcomes: dict[str, str] = {}
        """What became of calls, by the ids of their approvals, until that is written down."""
        self._parked: dict[str, Approval] = {}
        self._own_turn: TurnState | None = None
        self._is_offered = False
        self._told: list[str] = []
        """What the model was told about, with a prompt."""
        self._told_in: TurnState | None = None
        self._leases = Leases(StoreCalls(approvals.store))
        self._writing = anyio.Lock()
        self._finishing = anyio.Lock()
        self._process = os.getpid()
        self.has_prompts_behind: Callable[[], bool] = lambda: False
        """Whether a prompt waits behind the one that the agent works on."""
        self.trace_of: Callable[[str], str] = lambda _: ""
        """The span of the turn that makes a call, if there is telemetry."""

    def guarded(self) -> Options:
        """The options, with hooks that ask, and a permission callback that does."""
        hooks: dict[Any, list[Any]] = {event: list(given) for event, given in self._options.hooks.items()}
        functions: dict[str, Callable[..., object]] = {
            "PreToolUse": self._before,
            "PostToolUse": self._after,
            "PostToolUseFailure": self._after,
        }
        for event, function in functions.items():
            # Last: what another hook denies is not asked about, and what it changes is.
            hooks.setdefault(event, []).append(Hook(function, event, timeout=None))
        return self._options.replace(hooks=hooks, permission=self._permission())

    def _permission(self) -> Callable[..., object]:
        given = self._options.permission
        if isinstance(given, Policy):
            given = msgspec.structs.replace(given, otherwise=_Asker(self, given.otherwise))
        return _Asker(self, given)

    # The session's life.

    async def begin(self) -> None:
        """Find out what the session was left with. Raises `SessionBusy` if somebody else has it open, and a
        `StoreError`."""
        options = self._options
        if options.resume is not None:
            await self._load(options.resume)
            if any(each.is_open for each in self._known.values()) and not options.fork_session:
                await self._leases.ensure(_lease_key(options.resume))

    async def _load(self, session_id: str) -> None:
        self._loaded.add(session_id)
        for each in await self._approvals.list(session_id=session_id):
            self._known.setdefault(each.id, each)

    async def _enter(self, session_id: str) -> None:
        """Before a call is decided: know what its session has asked for."""
        options = self._options
        is_resumed = options.resume is not None or options.continue_conversation
        if is_resumed and not options.fork_session and session_id not in self._loaded:
            # It was named by its title, or is the latest.
            await self._load(session_id)
        self._is_offered = True
        self._wake()

    def _wake(self) -> None:
        if self._own_turn is not None:
            self._own_turn.stream.wake()

    @property
    def is_left_with_a_call(self) -> bool:
        """Whether Claude Code goes on with a call by itself."""
        return any(each.is_deferred and each.is_open for each in self._known.values())

    @property
    def waits_for_own_tool(self) -> bool:
        """Whether that call is of a tool of this process, which may not be connected by then."""
        left = (each for each in self._known.values() if each.is_deferred and each.is_open)
        return any(each.tool.startswith("mcp__") for each in left)

    @property
    def _is_undecided(self) -> bool:
        return any(each.is_deferred and each.state == "pending" for each in self._known.values())

    @property
    def is_parked(self) -> bool:
        """Whether a call waits here that a prompt would destroy."""
        return any(each.is_deferred for each in self._parked.values())

    @property
    def pending(self) -> tuple[Approval, ...]:
        """What was parked here, and has not been answered since."""
        return tuple(self._parked.values())

    async def run(self) -> None:
        """Keep others from going on with the session, until its connection ends."""
        try:
            await self._leases.renew()
        finally:
            await self.finish()

    async def finish(self) -> None:
        """The session has ended. What was begun, and not seen to end, may have run or not."""
        if os.getpid() != self._process:
            # Forked: the session goes on in the other one.
            return
        with anyio.CancelScope(shield=True):
            async with self._finishing:
                with anyio.move_on_after(_FINISH_SECONDS):
                    await self._write_outcomes()
                with anyio.move_on_after(_FINISH_SECONDS):
                    await self._leases.release()

    async def _write_outcomes(self) -> None:
        while self._claims:
            _, id = self._claims.popitem()
            await self._try_change(id, lambda one, _: one.unknown())
        for id in list(self._outcomes):
            await self._try_change(id, self._done)
            self._outcomes.pop(id, None)
        if self._told_in is not None and _is_successful(self._told_in):
            while self._told:
                await self._try_change(self._told.pop(), lambda one, now: one.withdrawn(now).delivered())

    async def _try_change(self, id: str, step: Callable[[Approval, float], Approval]) -> None:
        try:
            await self._approvals.change(id, step)
        except ApprovalSettled:
            pass
        except OutriderError as error:
            log.warning("what became of the approval %s could not be written down: %s", id, error)

    def check_free(self, session_id: str | None) -> None:
        """Raises `SessionParked` if a call waits here that a prompt would destroy."""
        if self.is_parked:
            raise SessionParked(session_id, [each.id for each in self.pending if each.is_deferred])

    # Going on.

    def expect(self, state: TurnState) -> None:
        """The agent is about to go on with a call, in this turn."""
        self._own_turn = state

    async def give_up_own_turn(self, routing: Routing) -> None:
        """End the turn that was expected, if it does not begin: a process that was killed before it had
        written that a call waits has left none."""
        state = self._own_turn
        while not (state is None or self._is_offered or state.is_over):
            with anyio.move_on_after(OFFER_SECONDS):
                await self.wait_offered()
                return
            # Once it has begun, other hooks may take their time.
            if not routing.turns.is_turn_open:
                routing.fail(state, None, anyio.current_time())

    async def wait_offered(self) -> bool:
        """Wait until a resumed session goes on by itself; False if it does not."""
        state = self._own_turn
        if state is None:
            return False
        while not (self._is_offered or state.is_over):
            await state.stream.wait()
        while not state.is_over and self._is_undecided:
            # It is about to be parked once more. The agent must not be disturbed meanwhile.
            await state.stream.wait()
        return self._is_offered or bool(state.results) or state.failure is not None

    async def report(self) -> str:
        """What to tell the model about calls that it has to make again. Raises `SessionParked` if a decision
        is missing, `UsageError` if there is nothing to tell."""
        lines: list[str] = []
        asked = [await self._approvals.get(id) for id, each in self._known.items() if each.is_open]
        for each in asked:
            shown = f"{each.tool} {_to_json(each.given_input)}"
            if each.state == "claimed":
                # Nobody else has the session, so the process that began the call was killed.
                await self._try_change(each.id, lambda one, _: one.unknown())
                lines.append(f"{shown}\n{_unknown(each)}")
            elif each.state == "granted":
                lines.append(f"Approved: {shown}\nMake exactly this call again now.")
            elif each.is_ready:
                lines.append(f"Not approved: {shown}\n{each.message or _TOO_LATE}")
            else:
                continue
            self._told.append(each.id)
            self._parked.pop(each.id, None)
        if not lines and asked:
            raise SessionParked(
                asked[0].session_id, [each.id for each in asked if each.state == "pending"], hint=DECIDE_FIRST
            )
        if not lines:
            raise UsageError("Nothing waits in the session", hint="Send a prompt.")
        return "\n\n".join(lines)

    @property
    def parked_traces(self) -> tuple[str, ...]:
        """The spans of the turns that the next one continues: it tells of their calls, or makes one that is
        left."""
        told = [self._known[id] for id in self._told]
        left = [each for each in self._known.values() if each.is_deferred and each.is_open]
        return tuple(dict.fromkeys(each.trace for each in told or left if each.trace))

    def told(self, state: TurnState) -> None:
        """The report is the prompt of this turn."""
        self._told_in = state

    # Hooks.

    async def _before(self, hook_input: PreToolUseInput, context: HookContext) -> Answer | None:
        await self._enter(hook_input.session_id)
        began = perf_counter()
        tool, input, id = hook_input.tool_name, hook_input.tool_input, hook_input.tool_use_id
        can_wait = hook_input.agent_id is None
        if (approval := await self._known_call(id, digest_of(tool, input))) is not None:
            answer = await self._answer(approval, id, can_wait=can_wait, can_defer=True)
        elif (reason := self._reason(hook_input, context)) is not None:
            approval = await self._record(
                hook_input.session_id, tool, input, tool_use_id=id, reason=reason, cwd=hook_input.cwd
            )
            answer = await self._ask(approval, id, can_wait=can_wait, can_defer=True)
        else:
            return None
        handled = PermissionHandled(
            seconds=perf_counter() - began,
            outcome="answered",
            tool_use_id=id,
            tool_name=tool,
            input=input,
            decision=_verdict(answer),
            reason=f"approval {approval.id}",
            approval_id=approval.id,
        )
        self._observe(handled)
        self._wake()
        if answer.verdict != "allow" or tool in KINDS:
            return answer
        # Hooks of settings files run beside this one, and may have made another call of it. The permission
        # callback has the last word, and gets the call as it would run, whatever the mode.
        return ask(answer.reason).with_changes(answer.value)

    async def _after(self, hook_input: PostToolUseInput | PostToolUseFailureInput) -> None:
        id = self._claims.pop(hook_input.tool_use_id, None)
        if id is not None:
            outcome = "succeeded" if hook_input.hook_event_name == "PostToolUse" else "failed"
            self._outcomes[id] = outcome
            with suppress(ApprovalSettled):
                self._known[id] = await self._approvals.change(id, self._done)
            self._outcomes.pop(id, None)

    def _done(self, one: Approval, _: float) -> Approval:
        return one.done(self._claim, self._outcomes[one.id])

    def _reason(self, hook_input: PreToolUseInput, context: HookContext) -> str | None:
        """Why somebody has to be asked about a call; None: nobody."""
        options, tool = self._options, hook_input.tool_name
        callbacks = {"AskUserQuestion": options.on_question, "ExitPlanMode": options.on_plan}
        if tool in KINDS:
            return None if callbacks[tool] is not None else "the agent asks"
        policy = options.permission
        if not isinstance(policy, Policy) or policy.otherwise is not None:
            return None
        explained = policy.decide(call_of_hook(hook_input, context), context.names_of_tools())
        # By a rule: where none applies, Claude Code decides whether to ask.
        return explained.by if explained.decision == "ask" and explained.rule is not None else None

    # Deciding.

    def has_begun(self, call_id: str | None) -> bool:
        """Whether a call is approved, and about to run."""
        return call_id in self._claims

    async def ask_for(self, request: PermissionRequest, reason: str) -> Answer:
        """Ask about a call that Claude Code asks about."""
        session_id, call_id = request.session.id or "", request.tool_use_id or ""
        await self._enter(session_id)
        known = await self._known_call(call_id, digest_of(request.tool_name, request.tool_input))
        can_wait = request.agent_id is None
        if known is not None:
            return await self._answer(known, call_id, can_wait=can_wait, can_defer=False)
        asked = await self._record(
            session_id,
            request.tool_name,
            request.tool_input,
            tool_use_id=call_id,
            reason=reason or request.decision_reason or "Claude Code asks",
            cwd=request.session.info.cwd or "",
        )
        return await self._ask(asked, call_id, can_wait=can_wait, can_defer=False)

    async def _record(self, session_id: str, tool: str, input: JsonObject, **more: str) -> Approval:
        """Write down that a call waits. Nobody goes on with the session elsewhere while it is open here."""
        async with self._writing:
            # Two may have it open already: the other one has the lease.
            with suppress(SessionBusy, LeaseLost):
                await self._leases.ensure(_lease_key(session_id))
        trace = self.trace_of(more["tool_use_id"])
        return await self._approvals.ask(session_id, tool, input, trace=trace, **more)

    async def _known_call(self, call_id: str, digest: str) -> Approval | None:
        """The approval that a call was parked for: this very call, or one like it that was granted."""
        begun = self._claims.get(call_id)
        # The newest first: that a call was asked about before may have been withdrawn.
        for id, known in reversed(list(self._known.items())):
            is_same = bool(call_id) and known.tool_use_id == call_id
            if not (is_same or (known.is_open and (known.state == "pending" or known.is_for(digest)))):
                continue
            now = self._known[id] = await self._approvals.get(id)
            if now.is_for(digest):
                if is_same or begun == id or now.state == "granted":
                    return now
            elif is_same and now.state in ("claimed", "done", "unknown"):
                # With what was approved, or not at all.
                return now
            elif is_same and now.state in ("pending", "granted"):
                # A hook has changed it, or somebody the transcript: what was approved is another call.
                self._known[id] = await self._approvals.change(id, lambda one, at: one.withdrawn(at))
        return None

    async def _ask(self, asked: Approval, call_id: str, *, can_wait: bool, can_defer: bool) -> Answer:
        try:
            decided = await self._approvals.wait(asked, self._approvals.patience)
            return await self._answer(decided, call_id, can_wait=can_wait, can_defer=can_defer)
        except anyio.get_cancelled_exc_class():
            # The turn was interrupted, or the session closed: nobody waits for it.
            with anyio.CancelScope(shield=True), suppress(OutriderError):
                await self._approvals.change(asked.id, lambda one, now: one.withdrawn(now))
            raise

    async def _answer(self, approval: Approval, call_id: str, *, can_wait: bool, can_defer: bool) -> Answer:
        """The answer to a call, by the state of its approval; makes the step that goes with it."""
        while True:
            try:
                return await self._step(approval, call_id, can_wait=can_wait, can_defer=can_defer)
            except ApprovalSettled:
                # Somebody was faster.
                approval = await self._approvals.get(approval.id)

    async def _step(self, approval: Approval, call_id: str, *, can_wait: bool, can_defer: bool) -> Answer:
        change = self._approvals.change
        match approval.state:
            case "pending" if not can_wait:
                await change(
                    approval.id, lambda one, now: one.denied(now, by="", message=_NOT_HERE).delivered()
                )
                return deny(_NOT_HERE)
            case "pending":
                # The next prompt would destroy a call that is deferred.
                can_defer = can_defer and not self.has_prompts_behind()
                return await self._park(approval, can_defer=can_defer)
            case "granted":
                # Known from now on: Claude Code asks about a plan twice.
                self._known[approval.id] = await change(
                    approval.id, lambda one, now: one.claimed(now, self._claim)
                )
                self._claims[call_id] = approval.id
                self._parked.pop(approval.id, None)
                return _allowed(approval)
            case "denied" | "expired":
                self._known[approval.id] = await change(approval.id, lambda one, _: one.delivered())
                self._parked.pop(approval.id, None)
                return deny(approval.message or _TOO_LATE)
            case "claimed" if self._claims.get(call_id) == approval.id:
                return _allowed(approval)
            case "claimed" if approval.claim == self._claim:
                # By another call of the same message, which is about to run.
                return deny(_ONCE)
            case "claimed" if self._options.fork_session:
                return deny("The session that this one was forked from makes this call.")
            case "claimed":
                await change(approval.id, lambda one, _: one.unknown())
                log.warning("the outcome of the approved call %s is unknown", approval.id)
                return deny(_unknown(approval))
            case "unknown":
                return deny(_unknown(approval))
            case _:
                return deny(_ONCE)

    async def _park(self, approval: Approval, *, can_defer: bool) -> Answer:
        # One at a time: of two that are deferred, Claude Code loses the first.
        async with self._writing:
            if can_defer and any(each.is_deferred and each.id != approval.id for each in self.pending):
                await self._approvals.change(approval.id, lambda one, now: one.withdrawn(now))
                return deny(_ANOTHER)
            self._known[approval.id] = self._parked[approval.id] = await self._approvals.change(
                approval.id, lambda one, _: one.parked(is_deferred=can_defer)
            )
        return defer() if can_defer else Postponed(verdict="deny", reason=_LATER)


class _Asker:
    """The permission callback of a session with approvals: `ask()` has a person decide."""

    warns_itself: Final = True
    """That it is not asked about something: the options that it comes from have done so."""

    def __init__(self, gate: Gate, callback: Callable[..., object] | None) -> None:
        self._gate = gate
        self._callback = callback
        self.__name__ = self.__qualname__ = "approvals" if callback is None else name_of(callback)

    def check_names(self, names: ToolNames) -> None:
        check_names(self._callback, names)

    async def __call__(self, request: PermissionRequest) -> object:
        if self._callback is None or self._gate.has_begun(request.tool_use_id):
            return await self._gate.ask_for(request, "")
        value = await call(self._callback, request, context=request)
        if isinstance(value, Answer) and value.verdict == "ask":
            return await self._gate.ask_for(request, value.reason or "")
        return value


def _allowed(approval: Approval) -> Answer:
    # With its input, even if nobody changed it here: what Claude Code has may be another.
    return allow(approval.given_input, reason=f"approved by {approval.by}" if approval.by else None)


def _verdict(answer: Answer) -> Literal["allow", "deny", "pending"]:
    if answer.verdict == "defer" or isinstance(answer, Postponed):
        return "pending"
    return "allow" if answer.verdict == "allow" else "deny"


def _lease_key(session_id: str) -> SessionKey:
    place = record_place(KIND, session_id)
    return to_key(place.project, place.session)


def _is_successful(state: TurnState) -> bool:
    return state.failure is None and bool(state.results) and not state.results[-1].is_error


def _to_json(input: JsonObject) -> str:
    # Half a surrogate pair cannot be sent.
    return json.dumps(input, ensure_ascii=False).encode(errors="replace").decode()


def _unknown(approval: Approval) -> str:
    at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(approval.claimed_at or 0))
    return (
        f"This call was approved and begun at {at}, and its outcome is unknown. Find out what it did before "
        "you make it again."
    )
