"""An agent whose process is lost is started again, and what it was doing is never blindly done twice."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import anyio
import pytest

from outrider.errors import (
    ConnectionLost,
    LimitReached,
    OptionsError,
    ProcessExited,
    SessionBusy,
    SessionNotFound,
    StoreError,
    TurnFailed,
)
from outrider.fleet import Budget, DirectStarter, Ledger, LedgerEntry, ResilientSession, Restart, Restarted
from outrider.options import Options
from outrider.session import Result, Session, SessionState, Usage
from outrider.testing import Faults, Faulty, Simulator, say
from outrider.wire import AssistantMessage, ToolUseBlock
from tests.fleet.resilient import NOW, ONE_LOOP, FakeClock, Frail, begun, kinds_of, state_of, until
from tests.transports.conftest import nothing_is_left, own_processes

__all__ = ["nothing_is_left"]

pytestmark = pytest.mark.anyio

DEADLINE = 20.0
OWN_ID = "5e551011-0000-4000-8000-00000000000a"


@pytest.fixture
def frail(tmp_path: Path) -> Frail:
    return Frail(tmp_path)


def _is_gone(session: ResilientSession[Any]) -> bool:
    return session.session is None or session.session.state is SessionState.CLOSED


def came_to(error: Any) -> Result[object]:
    assert isinstance(error.result, Result)
    return error.result


# Lost before, in and after a turn.


async def test_a_process_that_is_killed_between_turns_is_replaced_by_the_next_one(frail: Frail) -> None:
    with anyio.fail_after(DEADLINE):
        async with frail.session() as session:
            await session.ask("one")
            assert session.session is not None
            assert session.session.pid is not None
            pid = session.session.pid
            os.kill(pid, signal.SIGKILL)
            turn = await session.send("two")
            (told,) = await kinds_of(turn, Restarted)
            assert (await turn.result()).text == "done"
            assert isinstance(told.cause, ProcessExited)
            assert told.cause.signal == signal.SIGKILL
            assert (told.attempt, told.session_id, told.has_acted, told.is_resent) == (
                1,
                session.id,
                False,
                True,
            )
            assert session.session.pid not in (None, pid)
    assert [start["resume"] for start in frail.starts] == [None, session.id]
    assert frail.prompts[-1] == "two"
    assert own_processes() == []


@ONE_LOOP
@pytest.mark.parametrize("restart", [None, Restart(max=0), Restart()], ids=str)
async def test_one_that_ended_after_its_answer_is_no_failure_of_the_next_turn(
    frail: Frail, restart: Restart | None
) -> None:
    frail.plan(["answer_die"], ["answer_die"])
    with anyio.fail_after(DEADLINE):
        async with frail.session(restart=restart) as session:
            for prompt in ("one", "two", "three"):
                assert (await session.ask(prompt)).is_success
                await until(lambda: prompt == "three" or _is_gone(session))  # noqa: B023 - used at once
    assert frail.prompts == ["one", "two", "three"]


async def test_a_turn_in_which_nothing_was_done_is_sent_again(frail: Frail) -> None:
    frail.plan(["die"], ["answer"])
    clock = FakeClock()
    with anyio.fail_after(DEADLINE):
        async with frail.session(clock=clock) as session:
            turn = await session.send("go")
            (told,) = await kinds_of(turn, Restarted)
            result = await turn.result()
            assert [message.text for message in result.messages if isinstance(message, AssistantMessage)] == [
                "begun",
                "done",
            ]
            assert result.usage.total_tokens == 30 == session.usage.total_tokens
            assert result.total_usage == session.usage
            assert (told.has_acted, told.is_resent, told.session_id) == (False, True, session.id)
    assert [start["resume"] for start in frail.starts] == [None, session.id]
    assert frail.prompts == ["go", "go"]
    assert clock.slept == [0.0]


@pytest.mark.parametrize("word", ["act_die", "subagent_die"])
async def test_a_turn_in_which_a_tool_was_called_is_not_sent_again(frail: Frail, word: str) -> None:
    frail.plan([word], ["answer"])
    with anyio.fail_after(DEADLINE):
        async with frail.session() as session:
            turn = await session.send("act")
            (told,) = await kinds_of(turn, Restarted)
            assert (told.has_acted, told.is_resent) == (True, False)
            with pytest.raises(ProcessExited) as raised:
                await turn.result()
            assert raised.value.signal == signal.SIGKILL
            (message,) = [
                each for each in came_to(raised.value).messages if isinstance(each, AssistantMessage)
            ]
            assert isinstance(message.content[0], ToolUseBlock)
            assert state_of(session) == "idle"
            assert (await session.ask("What have you done?")).text == "done"
    assert frail.prompts == ["act", "What have you done?"]
    assert [start["resume"] for start in frail.starts] == [None, session.id]


@ONE_LOOP
@pytest.mark.parametrize("given", [None, OWN_ID])
async def test_one_that_never_said_its_id_begins_again(frail: Frail, given: str | None) -> None:
    frail.plan(["die_unheard"], *(["missing"] if given else []), ["answer"])
    with anyio.fail_after(DEADLINE):
        async with frail.session(session_id=given) as session:
            assert (await session.ask("go")).text == "done"
    resumed = [(start["resume"], start["session_id"]) for start in frail.starts]
    # What was asked for by its id may have been written.
    assert resumed == ([(None, OWN_ID), (OWN_ID, None), (None, OWN_ID)] if given else [(None, None)] * 2)


@ONE_LOOP
async def test_what_is_resumed_once_is_not_cut_or_copied_again(frail: Frail) -> None:
    frail.plan(["die"])
    fields = {"resume": OWN_ID, "fork_session": True, "resume_session_at": OWN_ID.replace("a", "b")}
    with anyio.fail_after(DEADLINE):
        async with frail.session(**fields) as session:
            await session.ask("go")
    assert [start["resume"] for start in frail.starts] == [OWN_ID, session.id]


# Whether it is sent again.


@ONE_LOOP
@pytest.mark.parametrize("kind", ["plain", "function", "async function"])
@pytest.mark.parametrize("may", [True, False])
async def test_the_policy_says_whether_a_turn_is_sent_again(frail: Frail, kind: str, may: bool) -> None:
    frail.plan(["act_die" if may else "die"])
    seen: list[Restarted] = []

    def answer(told: Restarted) -> bool:
        seen.append(told)
        return may

    async def answer_later(told: Restarted) -> bool:
        return answer(told)

    resend: Any = {"plain": may, "function": answer, "async function": answer_later}[kind]
    with anyio.fail_after(DEADLINE):
        async with frail.session(restart=Restart(resend=resend)) as session:
            turn = await session.send("go")
            (told,) = await kinds_of(turn, Restarted)
            assert told.is_resent is may
            assert (await turn.result(check=False)).is_success is may
    assert frail.prompts == ["go", "go"] if may else ["go"]
    if kind != "plain":
        # It is shown what would be done without it.
        assert [(each.has_acted, each.is_resent, each.cause) for each in seen] == [(may, not may, told.cause)]


@ONE_LOOP
@pytest.mark.parametrize("resend", [None, False])
async def test_a_turn_that_is_not_sent_again_may_be_told_to_go_on(frail: Frail, resend: bool | None) -> None:
    frail.plan(["act_die"], ["fail:529", "answer"])
    with anyio.fail_after(DEADLINE):
        async with frail.session(restart=Restart(resend=resend, continue_with="Go on.")) as session:
            turn = await session.send("go")
            (told,) = await kinds_of(turn, Restarted)
            assert not told.is_resent
            result = await turn.result()
            assert result.text == "done"
            # It is one turn, with all that came of it.
            calls = [message for message in result.messages if isinstance(message, AssistantMessage)]
            assert isinstance(calls[0].content[0], ToolUseBlock)
    first, second, *_ = frail.prompts
    assert (first, second) == ("go", "Go on.")


@ONE_LOOP
async def test_a_policy_that_fails_is_the_failure_of_the_turn(frail: Frail) -> None:
    frail.plan(["die"])

    def broken(_: Restarted) -> bool:
        raise ValueError("no idea")

    with anyio.fail_after(DEADLINE):
        async with frail.session(restart=Restart(resend=broken)) as session:
            with pytest.raises(TurnFailed, match="no idea") as raised:
                await session.ask("go")
            assert isinstance(raised.value.__cause__, ValueError)
            assert (await session.ask("next")).text == "done"


# How often.


async def test_a_crash_loop_ends(frail: Frail) -> None:
    frail.plan(["die"], ["die"], "dead", ["die"], ["answer"])
    clock = FakeClock()
    with anyio.fail_after(DEADLINE):
        async with frail.session(clock=clock) as session:
            turn = await session.send("go")
            told = await kinds_of(turn, Restarted)
            with pytest.raises(ProcessExited):
                await turn.result()
            # One of the starts came to nothing, and counts.
            assert [each.attempt for each in told] == [1, 3]
            assert session.session is None
            assert own_processes() == []
            assert (await session.ask("next")).text == "done"
    assert clock.slept == [0.0, 0.5, 1.0]
    assert len(frail.starts) == 5


@ONE_LOOP
async def test_an_agent_that_cannot_be_started_is_tried_as_often(frail: Frail) -> None:
    frail.plan("dead", "dead", "dead", "dead", ["answer"])
    with anyio.fail_after(DEADLINE):
        session = frail.session()
        with pytest.raises(ProcessExited):
            await session.ask("go")
        assert len(frail.starts) == 4
        assert state_of(session) == "new"
        assert (await session.ask("next")).text == "done"
        await session.close()


# On purpose, or not.


@ONE_LOOP
@pytest.mark.parametrize("word", ["signal:15", "signal:2", "signal:1", "exit:143"])
async def test_what_was_stopped_on_purpose_is_not_started_again(frail: Frail, word: str) -> None:
    frail.plan([word])
    with anyio.fail_after(DEADLINE):
        async with frail.session() as session:
            turn = await session.send("go")
            assert await kinds_of(turn, Restarted) == []
            with pytest.raises(ProcessExited):
                await turn.result()
            assert state_of(session) == "parked"
            assert len(frail.starts) == 1
            # A prompt is reason enough to start it.
            assert (await session.ask("next")).text == "done"
    assert frail.starts[1]["resume"] == session.id


@ONE_LOOP
@pytest.mark.parametrize("word", ["signal:11", "exit:0", "exit:3"])
async def test_an_exit_that_nobody_asked_for_is_a_loss(frail: Frail, word: str) -> None:
    frail.plan([word])
    with anyio.fail_after(DEADLINE):
        async with frail.session() as session:
            assert (await session.ask("go")).text == "done"
    assert frail.prompts == ["go", "go"]


@ONE_LOOP
async def test_without_a_policy_a_lost_turn_fails_and_the_next_one_goes_on(frail: Frail) -> None:
    frail.plan(["die"])
    with anyio.fail_after(DEADLINE):
        async with frail.session(restart=None) as session:
            with pytest.raises(ProcessExited):
                await session.ask("go")
            assert (await session.ask("next")).text == "done"
    assert frail.prompts == ["go", "next"]
    assert frail.starts[1]["resume"] == session.id


# Sessions that are not there.


async def test_what_was_never_written_begins_anew(frail: Frail) -> None:
    frail.plan(["die"], "missing", ["answer"])
    with anyio.fail_after(DEADLINE):
        async with frail.session() as session:
            assert (await session.ask("go")).text == "done"
    assert [bool(start["resume"]) for start in frail.starts] == [False, True, False]


@ONE_LOOP
@pytest.mark.parametrize("words", [["answer", "die"], ["act_die"]], ids=str)
async def test_what_is_lost_is_an_error_and_never_a_silent_new_conversation(
    frail: Frail, words: list[str]
) -> None:
    frail.plan(words, "missing", "missing")
    with anyio.fail_after(DEADLINE):
        async with frail.session() as session:
            for prompt in words[1:]:
                await session.ask(prompt)
            with pytest.raises(SessionNotFound) as raised:
                await session.ask("go")
            assert raised.value.id == session.id
            with pytest.raises(SessionNotFound):
                await session.ask("again")
    assert len(frail.starts) == 3


# What it costs.


@ONE_LOOP
async def test_every_try_is_in_the_ledger_and_the_sums_agree(frail: Frail, tmp_path: Path) -> None:
    frail.plan(["fail:529", "die"], ["answer", "act_die"], ["answer"])
    results: list[Result[Any]] = []
    with anyio.fail_after(DEADLINE):
        async with (
            Ledger(tmp_path / "ledger.db") as ledger,
            frail.session(ledger=ledger, tags={"team": "search"}) as session,
        ):
            results += [await session.ask(prompt, check=False) for prompt in ("one", "two", "three")]
            entries = await ledger.entries()
            total = (await ledger.totals("tag:team"))["search"]
    outcomes = ["ApiFailed", "ProcessExited", "success", "ProcessExited", "success"]
    assert [entry.outcome for entry in entries] == outcomes
    assert len({entry.turn for entry in entries}) == 5
    used = sum((result.usage for result in results), Usage())
    assert used.total_tokens == total.total_tokens == session.usage.total_tokens == 75
    assert used.cost_usd == pytest.approx(total.cost_usd)


@ONE_LOOP
async def test_a_ledger_that_is_full_fails_no_answer_and_stops_the_spending(
    frail: Frail, caplog: pytest.LogCaptureFixture
) -> None:
    class Full(Ledger):
        is_full = True
        added: list[str]

        async def add(self, entry: LedgerEntry) -> None:
            if self.is_full:
                raise StoreError("ledger.db", "add", "the disk is full", retryable=True)
            self.added = [*getattr(self, "added", []), entry.outcome]

    ledger = Full("unused.db")
    with anyio.fail_after(DEADLINE):
        async with frail.session(ledger=ledger) as session:
            # It is paid for.
            assert (await session.ask("go")).text == "done"
            assert "nothing more is spent until it is written" in caplog.text
            caplog.clear()
            with pytest.raises(StoreError, match="the disk is full"):
                await session.ask("more")
            assert frail.prompts == ["go"]
            ledger.is_full = False
            assert (await session.ask("again")).text == "done"
    assert ledger.added == ["success", "success"]


@ONE_LOOP
async def test_a_budget_ends_a_turn_for_good(frail: Frail) -> None:
    frail.plan(["hang"], ["answer"])
    budget = Budget(tokens=10)
    with anyio.fail_after(DEADLINE):
        async with frail.session(budget=budget) as session:
            turn = await session.send("go")
            await begun(turn)
            with pytest.raises(LimitReached) as raised:
                await turn.result()
            assert raised.value.kind == "budget.tokens"
            assert came_to(raised.value).messages != ()
            with pytest.raises(LimitReached):
                await session.ask("more")
    assert frail.prompts == ["go"]
    assert budget.spent.tokens == session.usage.total_tokens


@ONE_LOOP
async def test_a_budget_counts_what_is_used_in_every_process(frail: Frail) -> None:
    frail.plan(["die"], ["die"], ["answer"])
    budget = Budget(tokens=1000)
    with anyio.fail_after(DEADLINE):
        async with frail.session(budget=budget) as session:
            await session.ask("go")
            await session.park()
            await session.ask("more")
            assert budget.spent.tokens == session.usage.total_tokens == 60


# The value.


@ONE_LOOP
async def test_waits_double_up_to_the_most() -> None:
    restart = Restart(max=1000, backoff=1.0, max_backoff=5.0)
    assert [restart.wait_before(attempt) for attempt in (1, 2, 3, 4, 5, 999)] == [
        0.0,
        1.0,
        2.0,
        4.0,
        5.0,
        5.0,
    ]


@ONE_LOOP
@pytest.mark.parametrize(
    "fields",
    [
        {"max": -1},
        {"max": True},
        {"backoff": -1},
        {"max_backoff": "1"},
        {"resend": "yes"},
        {"resend": 1},
        {"continue_with": ""},
    ],
    ids=str,
)
async def test_values_are_checked(fields: dict[str, Any]) -> None:
    with pytest.raises(OptionsError, match=rf"`Restart\.{next(iter(fields))}`"):
        Restart(**fields)


@ONE_LOOP
async def test_a_lost_transport_of_the_users_cannot_be_replaced() -> None:
    agent = Faulty(Simulator([say("one"), say("two")]), seed=1, inbound=Faults(kill={10}))
    with anyio.fail_after(DEADLINE):
        async with ResilientSession(transport=agent) as session:
            assert (await session.ask("one")).text == "one"
            for _ in range(2):
                with pytest.raises(ConnectionLost):
                    await session.ask("two")


@ONE_LOOP
@pytest.mark.parametrize("hold, slept", [(12.5, [12.5]), (3600.0, [30.0, 30.0, 30.0])])
async def test_a_session_that_whoever_was_killed_still_holds_is_waited_for(
    frail: Frail, hold: float, slept: list[float]
) -> None:
    class Held(DirectStarter):
        async def start(self, options: Options, output: object) -> Session[Any]:
            if (left := NOW + hold - clock.time()) > 0:
                raise SessionBusy("id", "another", retry_after=left)
            return await super().start(options, output)

    clock = FakeClock()
    session = frail.session(starter=Held(), clock=clock)
    with anyio.fail_after(DEADLINE):
        with pytest.raises(SessionBusy):
            await session.connect()
        result = await session.ask("go", check=False)
        await session.close()
    assert clock.slept == slept
    assert isinstance(result.error, SessionBusy) == (hold > 100)
