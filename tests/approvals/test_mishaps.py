"""What can go wrong with calls that wait: no call runs that nobody approved, none twice, and none waits for
ever."""

from __future__ import annotations

import gc
import json
import os
import signal
from pathlib import Path
from typing import Any

import anyio
import pytest

import outrider
from outrider import Approval, Approvals, Policy, Session, allow, deny
from outrider.answers import ask
from outrider.approvals import ApprovalSettled, SessionParked
from outrider.errors import ApiFailed, OptionsError, ProcessExited, SessionBusy, StoreError, UsageError
from outrider.fleet import ResilientSession
from outrider.session import _gate
from outrider.testing import Answer, Request, ToolUse, answer, fail, say, use_tool
from outrider.transcripts import MemoryStore
from outrider.transcripts.stores._base import Place
from outrider.transcripts.stores._heads import Change, Conflict, Record
from tests.approvals.test_sessions import (
    AGENTS,
    MAKE,
    ONE,
    POLICY,
    made,
    nothing_is_left,
    parked,
    parking,
    real,
    refusals,
    simulated,
)

__all__ = ["nothing_is_left"]

pytestmark = pytest.mark.anyio

SESSION = "2f5b6a4e-5d64-4a4e-9d7c-0c8a5a3f1c11"
WAIT = (use_tool("Bash", command=MAKE), say("I wait."))


def callback(_: object) -> Any:
    return ask("it writes")


async def claimed(approvals: Approvals, id: str) -> None:
    """As by a process that was killed then."""
    await approvals.decide(id, True)
    await approvals.change(id, lambda one, now: one.claimed(now, claim="another"))


async def left_with(approvals: Approvals, session_id: str | None) -> Approval:
    """A call that was parked, but not written to the transcript: its process was killed in between."""
    asked = await approvals.ask(session_id or "", "Bash", {"command": MAKE}, tool_use_id="toolu_1")
    return await approvals.change(
        asked.id, lambda one, now: one.parked(now, is_deferred=True, tool_use_id="toolu_1")
    )


# A call that waits is not destroyed.


@AGENTS
async def test_a_prompt_to_a_resumed_session_does_not_destroy_the_call(playing: Any) -> None:
    approvals = parking()
    async with playing(*ONE) as (make, folder):
        options = make(permission=POLICY, approvals=approvals)
        id, pending = await parked(options)
        with pytest.raises(SessionParked, match=pending.id):
            await outrider.run("Never mind", options, resume=id)
        await approvals.decide(pending.id, True)
        assert (await outrider.go_on(id, options)).text == "All done."
        assert made(folder) == 1


@AGENTS
async def test_a_prompt_that_is_queued_does_not_destroy_the_call(playing: Any) -> None:
    approvals = parking()
    again = (use_tool("Bash", command=MAKE), say("All done."))
    async with playing(*WAIT, *again) as (make, folder):
        options = make(permission=POLICY, approvals=approvals)
        async with Session(options) as session:
            first, second = await session.send("Make it"), await session.send("Hello")
            (pending,) = (await first.result()).pending
            # Claude Code takes it up in the same turn, after the call that is refused for now.
            assert (pending.is_deferred, (await second.result()).text) == (False, "I wait.")
        await approvals.decide(pending.id, True)
        assert (await outrider.go_on(pending.session_id, options)).text == "All done."
        assert made(folder) == 1


async def test_a_resilient_session_goes_on_in_the_next_process() -> None:
    approvals = parking()
    async with (
        simulated(*ONE) as (make, folder),
        ResilientSession(make(permission=POLICY, approvals=approvals)) as session,
    ):
        (pending,) = (await session.ask("Make it")).pending
        with pytest.raises(SessionParked):
            await session.ask("Never mind")
        # As a pool does with one that is idle: the next process is offered the call, and parks it once more.
        await session.park()
        with pytest.raises(SessionParked):
            await session.ask("Never mind")
        await approvals.decide(pending.id, True)
        result = await (await session.continue_turn()).result()
        assert (result.text, made(folder), result.pending) == ("All done.", 1, ())


async def test_an_abandoned_session_asks_and_holds_no_longer() -> None:
    approvals = parking(patience=20.0)
    async with simulated(*ONE) as (make, _):
        session = Session(make(permission=POLICY, approvals=approvals))
        await session.connect()
        await session.send("Make it")
        while not (found := await approvals.list()):  # noqa: ASYNC110 - as another process would
            await anyio.sleep(0.01)
        session.abandon()
        while await approvals.store.is_record_leased("approvals", found[0].session_id):  # noqa: ASYNC110
            await anyio.sleep(0.01)
        assert (await approvals.get(found[0].id)).state == "expired"


async def test_nobody_goes_on_with_a_session_that_is_still_open() -> None:
    approvals = parking()
    async with simulated(*ONE) as (make, folder):
        options = make(permission=POLICY, approvals=approvals)
        async with Session(options) as session:
            (pending,) = (await session.ask("Make it")).pending
            with pytest.raises(SessionParked):
                await session.go_on()
            await approvals.decide(pending.id, True)
            with anyio.move_on_after(0.1):
                async for _ in approvals.ready(poll=0.01):
                    pytest.fail("it is open")
            with pytest.raises(SessionBusy):
                await outrider.go_on(pending.session_id, options)
        async for id in approvals.ready(poll=0.01):
            assert (await outrider.go_on(id, options)).text == "All done."
            break
        assert made(folder) == 1


@AGENTS
async def test_of_several_that_go_on_at_once_one_does(playing: Any, tmp_path: Path) -> None:
    place = f"sqlite:///{tmp_path}/approvals.db"
    ends: list[str] = []
    async with playing(*ONE) as (make, folder):
        # Each as on a machine of its own.
        workers = [
            make(permission=POLICY, approvals=Approvals(place, patience=0), env={"WORKER": str(number)})
            for number in range(3)
        ]
        id, pending = await parked(workers[0])
        await workers[0].approvals.decide(pending.id, True)

        async def go_on(options: outrider.Options) -> None:
            try:
                ends.append((await outrider.go_on(id, options)).text)
            except (SessionBusy, UsageError) as error:
                # Somebody else has it, or was done with it by then.
                ends.append(type(error).__name__)

        async with anyio.create_task_group() as tasks:
            for options in workers:
                tasks.start_soon(go_on, options)
        assert (made(folder), ends.count("All done.")) == (1, 1)
        for options in workers:
            await options.approvals.close()


async def test_a_session_is_ready_once_all_is_decided() -> None:
    approvals = parking()
    one, two = [await approvals.ask(SESSION, "Bash", {"command": each}) for each in ("a", "b")]
    await approvals.decide(one.id, True)
    with anyio.move_on_after(0.1):
        async for _ in approvals.ready(poll=0.01):
            pytest.fail("one is not decided")
    await approvals.decide(two.id, False)
    assert await anext(aiter(approvals.ready())) == SESSION


# No call runs twice, or without approval.


@AGENTS
async def test_a_call_that_was_made_is_not_made_again_where_nobody_asks(playing: Any) -> None:
    """The process was killed before the transcript had its result, and the policy has changed since."""
    approvals = parking()
    async with playing(*ONE) as (make, folder):
        options = make(permission=POLICY, approvals=approvals)
        id, pending = await parked(options)
        await claimed(approvals, pending.id)
        await approvals.change(
            pending.id, lambda one, now: one.done(now, claim="another", outcome="succeeded")
        )
        everything = Policy.of({"allow": "*"})
        async with Session(options, resume=id, permission=everything) as session:
            async for message in session:
                if isinstance(message, outrider.ResultMessage):
                    break
        assert made(folder) == 0


@pytest.mark.real
@pytest.mark.filterwarnings("ignore::outrider.options.PermissionShadowedWarning")
@pytest.mark.parametrize("mode", ["default", "acceptEdits", "dontAsk", "bypassPermissions"])
async def test_a_hook_of_the_settings_does_not_change_what_was_approved(mode: Any) -> None:
    approvals = parking()
    output = {"hookEventName": "PreToolUse", "updatedInput": {"command": "echo evil >> made"}}
    command = f"sleep 0.2; echo '{json.dumps({'hookSpecificOutput': output})}'"
    hooks = {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": command}]}]}
    policy = Policy.of({"ask": "Bash(*echo x*)"}, {"allow": "Bash"})
    async with real(*ONE) as (make, folder):
        given = {"settings": {"hooks": hooks}, "permission": policy, "permission_mode": mode}
        options = make(approvals=approvals, **given)
        id, pending = await parked(options)
        await approvals.decide(pending.id, True)
        await outrider.go_on(id, options)
        assert (folder / "made").read_text() == "x\n"


@AGENTS
async def test_a_subagent_may_do_what_is_approved_in_time(playing: Any) -> None:
    approvals = parking(patience=20.0)
    delegate = use_tool("Agent", prompt="Make it", description="d", subagent_type="general-purpose")
    there = [use_tool("Bash", command=MAKE), say("I did.")]
    async with (
        playing(delegate, say("All done."), say("Good."), subagents=there) as (make, folder),
        anyio.create_task_group() as tasks,
    ):

        async def decide() -> None:
            while not (found := await approvals.list()):  # noqa: ASYNC110 - as another process would
                await anyio.sleep(0.01)
            await approvals.decide(found[0].id, True)

        tasks.start_soon(decide)
        await outrider.run("Make it", make(permission=POLICY, approvals=approvals))
        assert (made(folder), await approvals.list()) == (1, ())


@pytest.mark.parametrize("at", ["ask", "get", "change"])
async def test_a_store_that_fails_allows_nothing(at: str) -> None:
    class Failing(Approvals):
        pass

    async def fail(*_: object, **__: object) -> None:
        raise StoreError("the store", at, "broken")

    setattr(Failing, at, fail)
    for permission in (POLICY, callback):
        async with simulated(*ONE) as (make, folder):
            approvals = Failing(MemoryStore(), patience=0.01)
            result = await outrider.run("Make it", make(permission=permission, approvals=approvals))
            # It can be asked about all the same if only the answer cannot be read.
            is_parked = at == "get" and permission is POLICY
            assert (made(folder), len(result.pending if is_parked else refusals(result))) == (0, 1)


class Forgetful(MemoryStore):
    """As with a server that writes, and whose answer does not arrive every other time: the driver tries
    again, in vain."""

    loses = False

    def _replace(self, session: Place, change: Change, version: Any) -> Any:
        made = super()._replace(session, change, version)
        self.loses = not self.loses
        if self.loses:
            raise Conflict
        return made


async def test_a_step_counts_whose_answer_was_lost() -> None:
    approvals = Approvals(Forgetful(), patience=0)
    async with simulated(*ONE) as (make, folder):
        options = make(permission=POLICY, approvals=approvals)
        id, pending = await parked(options)
        decided = await approvals.decide(pending.id, allow({"command": MAKE, "timeout": 5000}), by="ada")
        assert (decided.state, decided.by) == ("granted", "ada")
        with pytest.raises(ApprovalSettled, match="granted already, by ada"):
            await approvals.decide(pending.id, False, by="bob")
        assert (await outrider.go_on(id, options)).text == "All done."
        assert ((await approvals.get(pending.id)).state, made(folder)) == ("done", 1)


async def test_1_is_not_true() -> None:
    approvals = parking()
    asked = await approvals.ask(SESSION, "Deploy", {"force": 1})
    assert (await approvals.decide(asked.id, allow({"force": True}))).new_input == {"force": True}
    asked = await approvals.ask(SESSION, "Deploy", {"force": 1})
    assert (await approvals.decide(asked.id, allow({}))).given_input == {}


async def test_a_question_needs_an_answer() -> None:
    approvals = parking()
    asked = {"questions": [{"question": "Which?", "multiSelect": True}], "answers": {"Which?": "my own"}}
    waiting = await approvals.ask(SESSION, "AskUserQuestion", asked)
    with pytest.raises(OptionsError, match="does not answer it"):
        await approvals.decide(waiting.id, True)
    with pytest.raises(OptionsError, match="'Who\\?' was not asked"):
        await approvals.answer(waiting.id, {"Who?": "Ada"})
    decided = await approvals.answer(waiting.id, {"Which?": ["Red", "Blue"]})
    assert decided.given_input["answers"] == {"Which?": "Red, Blue"}


# What the model has to make again.


@AGENTS
async def test_another_input_may_be_approved_for_a_call_that_is_made_again(playing: Any) -> None:
    approvals = parking()
    other = "echo y >> made"
    async with playing(*WAIT, use_tool("Bash", command=other), say("All done.")) as (make, folder):
        options = make(permission=callback, approvals=approvals)
        id, pending = await parked(options)
        await approvals.decide(pending.id, allow({"command": other}))
        result = await outrider.go_on(id, options)
        assert (result.text, made(folder), result.pending) == ("All done.", 1, ())


@AGENTS
async def test_a_session_that_stays_open_goes_on_with_what_it_was_refused(playing: Any) -> None:
    approvals = parking()
    async with playing(*WAIT, use_tool("Bash", command=MAKE), say("All done.")) as (make, folder):
        async with Session(make(permission=callback, approvals=approvals)) as session:
            (pending,) = (await session.ask("Make it")).pending
            with pytest.raises(SessionParked):
                await session.go_on()
            await approvals.decide(pending.id, True)
            result = await session.go_on()
        assert (result.text, made(folder), result.pending) == ("All done.", 1, ())


async def test_what_the_model_does_not_make_again_waits_no_longer() -> None:
    approvals = parking()
    async with simulated(*WAIT, say("I would rather not.")) as (make, _):
        options = make(permission=callback, approvals=approvals)
        id, pending = await parked(options)
        await approvals.decide(pending.id, True)
        await outrider.go_on(id, options)
        assert (await approvals.list(), (await approvals.get(pending.id)).state) == ((), "expired")


async def test_a_call_that_was_made_again_and_killed_is_unknown() -> None:
    approvals = parking()
    async with simulated(*WAIT, say("I will look.")) as (make, folder):
        options = make(permission=callback, approvals=approvals)
        id, pending = await parked(options)
        await claimed(approvals, pending.id)
        assert (await outrider.go_on(id, options)).text == "I will look."
        assert ((await approvals.get(pending.id)).state, made(folder)) == ("unknown", 0)


@AGENTS
async def test_of_two_calls_that_are_made_again_for_one_approval_one_runs(playing: Any) -> None:
    calls: list[str] = []

    @outrider.tool(read_only=True)
    async def look(where: str) -> str:
        """Look there."""
        calls.append(where)
        return "seen"

    class Slow(Approvals):
        async def get(self, id: str) -> Approval:
            found = await super().get(id)
            await anyio.sleep(0.1)
            return found

    approvals, one = Slow(MemoryStore(), patience=0), use_tool(look, where="there")
    # Claude Code makes calls that only read at the same time.
    async with playing(one, say("I wait."), answer(one, one), say("All done.")) as (make, _):
        options = make(permission=callback, approvals=approvals, tools=[look])
        id, pending = await parked(options)
        await approvals.decide(pending.id, True)
        assert (await outrider.go_on(id, options)).text == "All done."
        assert calls == ["there"]
        assert (await approvals.get(pending.id)).state == "done"


# A turn that does not come.


@AGENTS
async def test_a_hook_at_the_start_is_not_the_call(playing: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_gate, "OFFER_SECONDS", 1.0)
    approvals = parking()
    async with playing(say("Hello."), say("I see.")) as (make, _):
        started = {"SessionStart": [{"hooks": [{"type": "command", "command": "echo hello"}]}]}
        options = make(approvals=approvals, include_hook_events=True, settings={"hooks": started})
        id = (await outrider.run("Hello", options)).session_id
        left = await left_with(approvals, id)
        await approvals.decide(left.id, deny("no"))
        assert (await outrider.go_on(left.session_id, options)).text == "I see."
        assert await approvals.list() == ()


@AGENTS
async def test_a_hook_that_is_slow_does_not_destroy_the_call(
    playing: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_gate, "OFFER_SECONDS", 0.2)
    approvals = parking()
    async with playing(*ONE) as (make, folder):
        options = make(permission=POLICY, approvals=approvals)
        id, pending = await parked(options)
        await approvals.decide(pending.id, True)

        @outrider.hook("PreToolUse")
        async def look(_: object) -> None:
            await anyio.sleep(3 * _gate.OFFER_SECONDS)

        assert (await outrider.go_on(id, options, hooks=[look])).text == "All done."
        assert made(folder) == 1


async def test_a_session_ends_that_does_not_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_gate, "OFFER_SECONDS", 0.1)
    approvals = parking()
    async with simulated(say("Hello.")) as (make, _):
        options = make(approvals=approvals)
        id = (await outrider.run("Hello", options)).session_id
        await left_with(approvals, id)
        async with Session(options, resume=id) as session:
            session.end_input()
            async for _ in session:
                pass


# Records.


async def test_what_is_deleted_is_asked_about_anew() -> None:
    store = MemoryStore()
    approvals = Approvals(store, patience=0)
    async with simulated(*ONE) as (make, folder):
        options = make(permission=POLICY, approvals=approvals)
        async with Session(options) as session:
            (pending,) = (await session.ask("Make it")).pending
            with pytest.raises(SessionBusy):
                # As by another process: this one has the lease.
                await Approvals(MemoryStore(store)).delete(pending.session_id)
        await approvals.decide(pending.id, True)
        await approvals.delete(pending.session_id)
        assert await approvals.list(session_id=pending.session_id) == ()
        async with Session(options.replace(resume=pending.session_id)) as session:
            async for message in session:
                if isinstance(message, outrider.ResultMessage):
                    break
        (anew,) = await approvals.list()
        assert (anew.state, anew.id != pending.id, made(folder)) == ("pending", True, 0)


async def test_a_damaged_record_hides_no_other(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    approvals = Approvals(store)
    asked = await approvals.ask(SESSION, "Bash", {"command": MAKE})
    damaged = Record('{"approvals": [{"id": 5}]}', is_listed=True)
    await store.change_record("approvals", "another", lambda _: damaged)
    assert await approvals.list() == (asked,)
    assert "left out" in caplog.text


# A turn that ends too early.


@AGENTS
async def test_a_session_goes_on_until_a_turn_has_ended_with_the_decision(playing: Any) -> None:
    approvals = parking()
    broken = fail(500)
    async with playing(use_tool("Bash", command=MAKE), broken, say("All done.")) as (make, folder):
        options = make(permission=POLICY, approvals=approvals, env={"CLAUDE_CODE_MAX_RETRIES": "0"})
        id, pending = await parked(options)
        await approvals.decide(pending.id, True)
        with pytest.raises(ApiFailed):
            await outrider.go_on(id, options)
        # The call is made, and the model has not said anything about it yet.
        (left,) = await approvals.list()
        assert (left.state, left.outcome, made(folder)) == ("done", "succeeded", 1)
        assert await anext(aiter(approvals.ready())) == id
        assert (await outrider.go_on(id, options)).text == "All done."
        assert (await approvals.list(), made(folder)) == ((), 1)


async def test_a_prompt_goes_on_as_well() -> None:
    approvals = parking()
    async with simulated(use_tool("Bash", command=MAKE), fail(500), say("All done.")) as (make, _):
        options = make(permission=POLICY, approvals=approvals, env={"CLAUDE_CODE_MAX_RETRIES": "0"})
        id, pending = await parked(options)
        await approvals.decide(pending.id, True)
        await outrider.go_on(id, options, check=False)
        assert (await outrider.run("What did it say?", options, resume=id)).text == "All done."
        assert await approvals.list() == ()


@AGENTS
async def test_a_prompt_that_comes_while_a_call_is_parked_does_not_destroy_it(playing: Any) -> None:
    class Late(Approvals):
        sent: outrider.Turn[Any] | None = None

        async def change(self, id: str, step: Any) -> Approval:
            changed = await super().change(id, step)
            if changed.is_deferred and self.sent is None:
                self.sent = await session.send("Hello")
            return changed

    approvals = Late(MemoryStore(), patience=0)
    again = (use_tool("Bash", command=MAKE), say("All done."))
    async with playing(*WAIT, *again) as (make, folder):
        options = make(permission=POLICY, approvals=approvals)
        async with Session(options) as session:
            (pending,) = (await session.ask("Make it")).pending
            assert approvals.sent is not None
            await approvals.sent.result()
        assert not pending.is_deferred
        await approvals.decide(pending.id, True)
        assert (await outrider.go_on(pending.session_id, options)).text == "All done."
        assert made(folder) == 1


@AGENTS
async def test_a_fork_leaves_the_call_to_a_session_that_is_open(playing: Any, tmp_path: Path) -> None:
    place = f"sqlite:///{tmp_path}/approvals.db"
    async with (
        playing(*ONE, use_tool("Bash", command=MAKE), say("All done.")) as (make, folder),
        Approvals(place, patience=0) as approvals,
        Approvals(place, patience=0) as others,
    ):
        options = make(permission=POLICY, approvals=approvals)
        async with Session(options) as session:
            (pending,) = (await session.ask("Make it")).pending
            await approvals.decide(pending.id, True)
            there = options.replace(resume=session.id, fork_session=True, approvals=others)
            async with Session(there) as fork:
                assert "makes this call" in refusals(await fork.go_on())[0]
            (left,) = await approvals.list()
            assert (left.state, made(folder)) == ("granted", 0)


@pytest.mark.real
async def test_a_question_outlives_the_program() -> None:
    approvals = parking(patience=20.0)
    again = (use_tool("Bash", command=MAKE), say("All done."))
    async with real(say("Hello."), use_tool("Bash", command=MAKE), *again) as (make, folder):
        options = make(permission=POLICY, approvals=approvals)
        async with Session(options) as session:
            await session.ask("Hello")
            turn = await session.send("Make it")
            while not (found := await approvals.list()):  # noqa: ASYNC110 - as another process would
                await anyio.sleep(0.01)
            assert session.pid is not None
            os.kill(session.pid, signal.SIGKILL)
            with pytest.raises(ProcessExited):
                await turn.result()
        assert await approvals.list() == tuple(found)
        await approvals.decide(found[0].id, True)
        assert (await outrider.go_on(found[0].session_id, options)).text == "All done."
        assert (made(folder), await approvals.list()) == (1, ())


@AGENTS
async def test_a_call_that_is_made_again_too_early_is_one_question(playing: Any) -> None:
    approvals = parking()
    again = (use_tool("Bash", command=MAKE), say("All done."))
    async with playing(*WAIT, *again) as (make, folder):
        options = make(permission=callback, approvals=approvals)
        async with Session(options) as session:
            (first,) = (await session.ask("Make it")).pending
            (then,) = (await session.ask("Now")).pending
            # By now it is known that somebody has to decide, so the call itself can wait.
            assert (then.id, first.is_deferred, then.is_deferred) == (first.id, False, True)
        async with Session(options.replace(resume=first.session_id)) as session:
            assert [each.id for each in (await session.go_on()).pending] == [first.id]
        await approvals.decide(first.id, True)
        assert (await outrider.go_on(first.session_id, options)).text == "All done."
        assert (made(folder), await approvals.list()) == (1, ())


@AGENTS
async def test_a_subagent_does_not_deny_what_its_session_asks_for(playing: Any) -> None:
    approvals = parking()
    delegate = use_tool(
        "Agent", prompt="Make it", description="d", subagent_type="general-purpose", run_in_background=False
    )
    there = [use_tool("Bash", command=MAKE), say("I could not.")]
    async with playing(*WAIT, delegate, say("All done."), subagents=there) as (make, folder):
        async with Session(make(permission=callback, approvals=approvals)) as session:
            (asked,) = (await session.ask("Make it")).pending
            assert (await session.ask("Let another one do it")).text == "All done."
        assert ((await approvals.get(asked.id)).state, made(folder)) == ("pending", 0)


async def test_a_worker_outlives_a_store_that_is_away(caplog: pytest.LogCaptureFixture) -> None:
    class Away(MemoryStore):
        calls = 0

        async def list_records(self, kind: str) -> list[str]:
            self.calls += 1
            if self.calls in (1, 3):
                raise StoreError("the store", "list_records", "broken")
            return await super().list_records(kind)

    store = Away()
    approvals = Approvals(store)
    ready = aiter(approvals.ready(poll=0.01))
    with pytest.raises(StoreError):
        # From the beginning: it is the wrong one, perhaps.
        await anext(ready)
    asked = await approvals.ask(SESSION, "Bash", {"command": MAKE})
    ready = aiter(approvals.ready(poll=0.01))
    with anyio.move_on_after(0.1):
        await anext(ready)
    await approvals.decide(asked.id, True)
    assert await anext(ready) == SESSION
    assert "not known for now" in caplog.text


async def test_a_person_decides_although_the_store_was_away() -> None:
    class Away(Approvals):
        failed = 0

        async def get(self, id: str) -> Approval:
            if self.failed < 2:
                self.failed += 1
                raise StoreError("the store", "get", "broken")
            if self.failed == 2:
                self.failed += 1
                await self.decide(id, True)
            return await super().get(id)

    approvals = Away(MemoryStore(), patience=20.0)
    async with simulated(*ONE) as (make, folder):
        assert (await outrider.run("Make it", make(permission=POLICY, approvals=approvals))).pending == ()
        assert made(folder) == 1


async def test_what_is_settled_is_kept_up_to_a_size() -> None:
    approvals = parking()
    for number in range(4):
        asked = await approvals.ask(SESSION, "Write", {"content": "x" * 600_000, "number": number})
        await approvals.decide(asked.id, False)
        await approvals.change(asked.id, lambda one, now: one.gone_on(now))
    kept = await approvals.list(session_id=SESSION)
    assert [each.input["number"] for each in kept] == [3, 2]


async def test_a_session_that_one_of_its_hooks_mentions_can_be_dropped() -> None:
    async with simulated(say("Hello.")) as (make, _):

        async def begin() -> None:
            known: list[Session] = []

            @outrider.hook("PreToolUse")
            def look(_: object) -> None:
                assert known

            known.append(Session(make(approvals=parking(), hooks=[look])))
            await known[0].connect()
            await known[0].ask("Hello")

        await begin()
        with pytest.warns(ResourceWarning, match="dropped without being closed"):
            gc.collect()


@AGENTS
async def test_several_sessions_go_on_at_once(playing: Any) -> None:
    def act(request: Request) -> Answer | ToolUse:
        has_made = "tool_result" in str(request.messages)
        return say("All done.") if has_made else use_tool("Bash", command=MAKE)

    approvals = parking()
    async with playing(otherwise=act) as (make, folder):
        options = make(permission=POLICY, approvals=approvals)
        ids = [(await parked(options))[0] for _ in range(3)]
        for each in await approvals.list():
            await approvals.decide(each.id, True)

        async def go_on(id: str) -> None:
            assert (await outrider.go_on(id, options)).text == "All done."

        async with anyio.create_task_group() as tasks:
            for id in ids:
                tasks.start_soon(go_on, id)
        assert (made(folder), await approvals.list()) == (3, ())
