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
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, cast
from uuid import uuid4

import anyio
import msgspec

from outrider.approvals._approval import KINDS, Approval, digest_of
from outrider.approvals._approvals import KIND
from outrider.approvals._errors import ApprovalError, ApprovalSettled, SessionParked
from outrider.errors import LeaseLost, OutriderError, SessionBusy, UsageError
from outrider.handlers._answers import Answer, Postponed, allow, ask, defer, deny
from outrider.handlers._calls import call as call_handler
from outrider.handlers._calls import name_of
from outrider.handlers._hooks.hook import Hook
from outrider.handlers._policy.policy import Policy, call_of_hook
from outrider.handlers._router import PermissionHandled
from outrider.handlers._tool_names import check_names
from outrider.session._connection.observers import Observer
from outrider.session._store.link import Leases
from outrider.transcripts import StoreCalls
from outrider.transcripts.stores._blocking import to_key
from outrider.transcripts.stores._heads import record_place
from outrider.wire import ResultMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from outrider.approvals import Approvals
    from outrider.approvals._approval import Step
    from outrider.handlers import HookContext, PermissionRequest
    from outrider.handlers._router import Observe
    from outrider.options import Options
    from outrider.options._tool_names import ToolNames
    from outrider.session._connection.connection import Connection
    from outrider.session._streams.turn_state import TurnState
    from outrider.transcripts import SessionKey
    from outrider.wire import JsonObject, Message
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
_FORKED: Final = "The session that this one was forked from makes this call."
_LATER: Final = (
    "A person has to approve this first, and has been asked. It was not done. Do not try another way: end "
    "your turn now. You will be told the decision."
)


class _Call(NamedTuple):
    """A call that somebody may have to decide about."""

    session_id: str
    tool: str
    input: JsonObject
    id: str
    cwd: str
    can_wait: bool
    can_defer: bool


class Gate(Observer):
    """The approvals of one session."""

    def __init__(self, approvals: Approvals, options: Options, observe: Observe) -> None:
        self._approvals = approvals
        self._observe = observe
        # Not the options: they may lead to the session, which could not be dropped then.
        self._resume = options.resume
        self._is_fork = options.fork_session
        self._is_resumed = options.resume is not None or options.continue_conversation
        policy = options.permission if isinstance(options.permission, Policy) else None
        self._policy = policy if policy is not None and policy.otherwise is None else None
        callbacks = {"AskUserQuestion": options.on_question, "ExitPlanMode": options.on_plan}
        self._answered = {tool for tool, callback in callbacks.items() if callback is not None}
        self._claim = uuid4().hex
        self._loaded: set[str] = set()
        """The sessions whose approvals are known."""
        self._known: dict[str, Approval] = {}
        """Those that were asked for before, by their ids: by others that had the session, or parked here."""
        self.claims: dict[str, str] = {}
        """The approvals of calls that run now, by the ids of the calls."""
        self._steps: list[tuple[str, Step]] = []
        """What became of approvals, with their ids, until that is written down."""
        self._parked: dict[str, Approval] = {}
        self.own_turn: TurnState | None = None
        """In which the agent is about to go on with a call."""
        self._is_offered = False
        self._session_id = ""
        """As hooks name it, also before Claude Code has said which one it resumes."""
        self._told: list[str] = []
        """What the model is told about, with the next prompt."""
        self._taken_up: dict[str, TurnState | None] = {}
        """The approvals whose decisions the model knows, or is told in this turn, until a turn has ended with
        them."""
        self._leases = Leases(StoreCalls(approvals.store))
        self._writing = anyio.Lock()
        self._finishing = anyio.Lock()
        self._process = os.getpid()
        self.connection: Connection | None = None
        self.trace_of: Callable[[str], str] = lambda _: ""
        """The span of the turn that makes a call, if there is telemetry."""

    def guarded(self, options: Options) -> Options:
        """The options, with hooks that ask, and a permission callback that does."""
        hooks: dict[Any, list[Any]] = {event: list(given) for event, given in options.hooks.items()}
        functions: dict[str, Any] = {"PreToolUse": self._before, "PostToolUse": self._after}
        for event, function in {**functions, "PostToolUseFailure": self._after}.items():
            # Last: what another hook denies is not asked about, and what it changes is.
            hooks.setdefault(event, []).append(Hook(function, event, timeout=None))
        given = options.permission
        if isinstance(given, Policy):
            given = msgspec.structs.replace(given, otherwise=_Asker(self, given.otherwise))
        return options.replace(hooks=hooks, permission=_Asker(self, given))

    # The session's life.

    async def begin(self) -> None:
        """Find out what the session was left with. Raises `SessionBusy` if somebody else has it open, and a
        `StoreError`."""
        if self._resume is not None:
            await self._load(self._resume)

    async def _load(self, session_id: str) -> None:
        found = await self._approvals.list(session_id=session_id)
        self._known = {each.id: each for each in found} | self._known
        left = [each for each in found if each.is_open]
        if left and not self._is_fork:
            await self._leases.ensure(_lease_key(session_id))
            ended = [each.id for each in left if each.state in ("done", "unknown")]
            self._taken_up.update(dict.fromkeys(ended))
        self._loaded.add(session_id)

    async def _enter(self, session_id: str) -> None:
        """Before a call is decided: know what its session has asked for."""
        self._session_id = session_id
        if self._is_resumed and not self._is_fork and session_id not in self._loaded:
            # It was named by its title, or is the latest.
            await self._load(session_id)
        self._is_offered = True
        self._wake()

    def _wake(self) -> None:
        if self.own_turn is not None:
            self.own_turn.stream.wake()

    @property
    def is_left_with_a_call(self) -> bool:
        """Whether Claude Code goes on with a call by itself."""
        return any(each.state != "done" for each in self._left)

    @property
    def waits_for_own_tool(self) -> bool:
        """Whether that call is of a tool of this process, which may not be connected by then."""
        return any(each.tool.startswith("mcp__") for each in self._left)

    @property
    def _left(self) -> list[Approval]:
        return [each for each in self._known.values() if each.is_deferred and each.is_open]

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

    def received(self, messages: Sequence[Message]) -> None:
        """When a turn ends, note what the session has gone on with."""
        results = [message for message in messages if isinstance(message, ResultMessage)]
        # After a failure of the API, somebody has to go on once more.
        if not (results and (results[-1].is_success or results[-1].subtype != "success")):
            return
        running = self.claims.values()
        for id, told_in in list(self._taken_up.items()):
            if id not in running and (told_in is None or told_in.is_over):
                del self._taken_up[id]
                self._steps.append((id, Approval.gone_on))
        if self._steps and self.connection is not None:
            self.connection.start(self._write)

    async def finish(self) -> None:
        """The session has ended. What was begun, and not seen to end, may have run or not."""
        if os.getpid() != self._process:
            # Forked: the session goes on in the other one.
            return
        with anyio.CancelScope(shield=True):
            async with self._finishing:
                self._steps += ((id, Approval.unknown) for id in self.claims.values())
                self.claims.clear()
                with anyio.move_on_after(_FINISH_SECONDS):
                    await self._write()
                with anyio.move_on_after(_FINISH_SECONDS):
                    await self._leases.release()

    async def _write(self, *steps: tuple[str, Step]) -> None:
        """Write down these steps, and those that could not be written before."""
        self._steps += steps
        async with self._writing:
            while self._steps:
                try:
                    with suppress(ApprovalError):  # it is settled, or was deleted
                        await self._approvals.change(*self._steps[0])
                except OutriderError as error:
                    log.warning("what became of an approval could not be written down: %s", error)
                    return
                del self._steps[0]

    def check_free(self, session_id: str | None) -> None:
        """Raises `SessionParked` if a call waits here that a prompt would destroy."""
        if self.is_parked:
            raise SessionParked(session_id, [each.id for each in self.pending if each.is_deferred])

    # Going on.

    async def give_up_own_turn(self) -> None:
        """End the turn that was expected, if it does not begin: a process that was killed before it had
        written that a call waits has left none."""
        state, routing = self.own_turn, cast("Connection", self.connection).routing
        while not (state is None or self._is_offered or state.is_over):
            with anyio.move_on_after(OFFER_SECONDS):
                await self.wait_offered()
                return
            # Once it has begun, other hooks may take their time.
            if not routing.turns.is_turn_open:
                routing.fail(state, None, anyio.current_time())

    async def wait_offered(self) -> bool:
        """Wait until a resumed session goes on by itself; False if it does not."""
        state = self.own_turn
        if state is None:
            return False
        while not (self._is_offered or state.is_over):
            await state.stream.wait()
        while not state.is_over and any(each.state == "pending" for each in self._left):
            # It is about to be parked once more. The agent must not be disturbed meanwhile.
            await state.stream.wait()
        return self._is_offered or bool(state.results) or state.failure is not None

    async def report(self) -> str:
        """What to tell the model about calls that it has to make again. Raises `SessionParked` if a decision
        is missing, `UsageError` if there is nothing to tell."""
        lines: list[str] = []
        self._told = []
        asked = [await self._approvals.get(id) for id, each in self._known.items() if each.is_open]
        for each in asked:
            if not each.is_ready or (each.state == "claimed" and each.claim == self._claim):
                # It is undecided, or runs here, or is dealt with.
                continue
            if each.state == "claimed":
                # Nobody else has the session, so the process that began the call was killed.
                await self._write((each.id, Approval.unknown))
            lines.append(_told_of(each))
            self._told.append(each.id)
            self._parked.pop(each.id, None)
        if lines:
            return "\n\n".join(lines)
        if waiting := [each for each in asked if each.state == "pending"]:
            raise SessionParked(waiting[0].session_id, [each.id for each in waiting], hint=DECIDE_FIRST)
        raise UsageError("Nothing waits in the session", hint="Send a prompt.")

    @property
    def parked_traces(self) -> tuple[str, ...]:
        """The spans of the turns that the next one continues: it tells of their calls, or makes one that is
        left."""
        told = [self._known[id] for id in self._told]
        return tuple(dict.fromkeys(each.trace for each in told or self._left if each.trace))

    def told(self, state: TurnState) -> None:
        """The report is the prompt of this turn."""
        self._taken_up.update(dict.fromkeys(self._told, state))

    # Hooks.

    async def _before(self, hook_input: PreToolUseInput, context: HookContext) -> Answer | None:
        began = perf_counter()
        call = _Call(
            session_id=hook_input.session_id,
            tool=hook_input.tool_name,
            input=hook_input.tool_input,
            id=hook_input.tool_use_id,
            cwd=hook_input.cwd,
            can_wait=hook_input.agent_id is None,
            can_defer=True,
        )
        decided = await self._decide(call, lambda: self._reason(hook_input, context))
        if decided is None:
            return None
        approval, answer = decided
        handled = PermissionHandled(
            seconds=perf_counter() - began,
            outcome="answered",
            tool_use_id=call.id,
            tool_name=call.tool,
            input=call.input,
            decision=_verdict(answer),
            reason=f"approval {approval.id}",
            approval_id=approval.id,
        )
        self._observe(handled)
        self._wake()
        if answer.verdict != "allow" or call.tool in KINDS:
            return answer
        # Hooks of settings files run beside this one, and may have made another call of it. The permission
        # callback has the last word, and gets the call as it would run, whatever the mode.
        return ask(answer.reason).with_changes(answer.value)

    async def _after(self, hook_input: PostToolUseInput | PostToolUseFailureInput) -> None:
        id = self.claims.pop(hook_input.tool_use_id, None)
        if id is not None:
            outcome = "succeeded" if hook_input.hook_event_name == "PostToolUse" else "failed"
            await self._write((id, partial(Approval.done, claim=self._claim, outcome=outcome)))

    def _reason(self, hook_input: PreToolUseInput, context: HookContext) -> str | None:
        """Why somebody has to be asked about a call; None: nobody."""
        tool = hook_input.tool_name
        if tool in KINDS:
            return None if tool in self._answered else "the agent asks"
        if self._policy is None:
            return None
        explained = self._policy.decide(call_of_hook(hook_input, context), context.names_of_tools())
        # By a rule: where none applies, Claude Code decides whether to ask.
        return explained.by if explained.decision == "ask" and explained.rule is not None else None

    # Deciding.

    async def ask_for(self, request: PermissionRequest, reason: str) -> Answer:
        """Ask about a call that Claude Code asks about."""
        call = _Call(
            session_id=self._session_id or request.session.id or "",
            tool=request.tool_name,
            input=request.tool_input,
            id=request.tool_use_id or "",
            cwd=request.session.info.cwd or "",
            can_wait=request.agent_id is None,
            can_defer=False,
        )
        reason = reason or request.decision_reason or "Claude Code asks"
        _, answer = cast("tuple[Approval, Answer]", await self._decide(call, lambda: reason))
        return answer

    async def _decide(self, call: _Call, why: Callable[[], str | None]) -> tuple[Approval, Answer] | None:
        """Decide about a call, or ask why somebody has to, and wait; None if nobody has to."""
        await self._enter(call.session_id)
        if (known := await self._known_call(call)) is not None:
            return known, await self._answer(known, call)
        if (reason := why()) is None:
            return None
        async with self._writing:
            # Nobody goes on with the session elsewhere while it is open here. Two may have it open already:
            # the other one has the lease.
            with suppress(SessionBusy, LeaseLost):
                await self._leases.ensure(_lease_key(call.session_id))
        more = {"tool_use_id": call.id, "cwd": call.cwd, "reason": reason, "trace": self.trace_of(call.id)}
        asked = await self._approvals.ask(call.session_id, call.tool, call.input, **more)
        try:
            decided = await self._approvals.wait(asked, self._approvals.patience)
            return asked, await self._answer(decided, call)
        except anyio.get_cancelled_exc_class():
            # The turn was interrupted, or the session closed: nobody waits for it. If Claude Code was lost,
            # the session can go on with the decision.
            if self.connection is None or self.connection.error is None:
                with anyio.CancelScope(shield=True), suppress(OutriderError):
                    await self._approvals.change(asked.id, Approval.withdrawn)
            raise

    async def _known_call(self, call: _Call) -> Approval | None:
        """The approval that a call was parked for: this very call, or one like it that was granted, or that
        the model makes again too early."""
        begun, digest = self.claims.get(call.id), digest_of(call.tool, call.input)
        # The newest first: that a call was asked about before may have been withdrawn.
        for id, known in reversed(list(self._known.items())):
            is_same = bool(call.id) and known.tool_use_id == call.id
            if not (is_same or (known.is_open and (known.state == "pending" or known.is_for(digest)))):
                continue
            now = self._known[id] = await self._approvals.get(id)
            if now.is_for(digest):
                is_early = now.state == "pending" and not now.is_deferred and not self._is_inherited(now)
                if is_same or (is_early and call.can_wait) or begun == id or now.state == "granted":
                    return now
            elif is_same and now.state in ("claimed", "done", "unknown"):
                # With what was approved, or not at all.
                return now
            elif is_same and now.state in ("pending", "granted"):
                # A hook has changed it, or somebody the transcript: what was approved is another call.
                self._known[id] = await self._approvals.change(id, Approval.withdrawn)
        return None

    async def _answer(self, approval: Approval, call: _Call) -> Answer:
        """The answer to a call, by the state of its approval; makes the step that goes with it."""
        while True:
            try:
                answer = await self._step(approval, call)
            except ApprovalSettled:
                # Somebody was faster.
                approval = await self._approvals.get(approval.id)
                continue
            if approval.state != "pending" and (
                answer.verdict == "allow" or not self._is_inherited(approval)
            ):
                self._taken_up.setdefault(approval.id, None)
                self._parked.pop(approval.id, None)
            return answer

    def _is_inherited(self, approval: Approval) -> bool:
        """Whether it is one of the session that this one was forked from."""
        return self._is_fork and approval.session_id == self._resume

    async def _step(self, approval: Approval, call: _Call) -> Answer:
        change = self._approvals.change
        match approval.state:
            case "pending" if not call.can_wait:
                await change(
                    approval.id, lambda one, now: one.denied(now, by="", message=_NOT_HERE).gone_on(now)
                )
                return deny(_NOT_HERE)
            case "pending":
                return await self._park(approval, call)
            case "granted":
                if self._is_inherited(approval):
                    try:
                        # Who has the session itself makes the call.
                        await self._leases.ensure(_lease_key(approval.session_id))
                    except (SessionBusy, LeaseLost):
                        return deny(_FORKED)
                # Known from now on: Claude Code asks about a plan twice.
                self._known[approval.id] = await change(
                    approval.id, partial(Approval.claimed, claim=self._claim)
                )
                self.claims[call.id] = approval.id
                return _allowed(approval)
            case "denied" | "expired":
                return deny(approval.message or _TOO_LATE)
            case "claimed" if self.claims.get(call.id) == approval.id:
                return _allowed(approval)
            case "claimed" if approval.claim == self._claim:
                # By another call of the same message, which is about to run.
                return deny(_ONCE)
            case "claimed" if self._is_inherited(approval):
                return deny(_FORKED)
            case "claimed":
                await change(approval.id, Approval.unknown)
                log.warning("the outcome of the approved call %s is unknown", approval.id)
                return deny(_unknown(approval))
            case "unknown":
                return deny(_unknown(approval))
            case _:
                return deny(_ONCE)

    async def _park(self, approval: Approval, call: _Call) -> Answer:
        can_defer = call.can_defer
        # One at a time: of two that are deferred, Claude Code loses the first.
        async with self._writing:
            if can_defer and any(each.is_deferred and each.id != approval.id for each in self.pending):
                await self._approvals.change(approval.id, Approval.withdrawn)
                return deny(_ANOTHER)
            while True:
                # The next prompt would destroy a call that is deferred. One may come while that is written.
                can_defer = can_defer and not self._has_prompts_behind
                step = partial(Approval.parked, is_deferred=can_defer, tool_use_id=call.id)
                parked = await self._approvals.change(approval.id, step)
                if not (can_defer and self._has_prompts_behind):
                    break
            self._known[approval.id] = self._parked[approval.id] = parked
        return defer() if can_defer else Postponed(verdict="deny", reason=_LATER)

    @property
    def _has_prompts_behind(self) -> bool:
        return self.connection is not None and self.connection.routing.has_prompts_behind


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
        if self._callback is None or request.tool_use_id in self._gate.claims:
            return await self._gate.ask_for(request, "")
        value = await call_handler(self._callback, request, context=request)
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


def _to_json(input: JsonObject) -> str:
    # Half a surrogate pair cannot be sent.
    return json.dumps(input, ensure_ascii=False).encode(errors="replace").decode()


def _told_of(approval: Approval) -> str:
    shown = f"{approval.tool} {_to_json(approval.given_input)}"
    match approval.state:
        case "granted":
            return f"Approved: {shown}\nMake exactly this call again now."
        case "done":
            return f"Approved, and made: {shown}\nIt {approval.outcome}. Go on from there."
        case "denied" | "expired":
            return f"Not approved: {shown}\n{approval.message or _TOO_LATE}"
        case _:
            return f"{shown}\n{_unknown(approval)}"


def _unknown(approval: Approval) -> str:
    at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(approval.claimed_at or 0))
    return (
        f"This call was approved and begun at {at}, and its outcome is unknown. Find out what it did before "
        "you make it again."
    )
