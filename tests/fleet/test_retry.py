"""When a turn that the API failed is tried again: as a value, and in a session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from outrider.errors import ApiFailed, LimitReached, OptionsError
from outrider.fleet import CONTINUE, Budget, Clock, Gate, ResilientSession, Retry, Retrying
from outrider.testing import Simulator, fail, say, use_tool
from outrider.wire import ResultMessage, UserMessage
from tests.fleet.resilient import NOW, ONE_LOOP, FakeClock, Frail, begun, kinds_of, state_of, until
from tests.transports.conftest import nothing_is_left, own_processes

__all__ = ["nothing_is_left"]

pytestmark = pytest.mark.anyio

DEADLINE = 20.0
NO_OWN_RETRIES = {"CLAUDE_CODE_MAX_RETRIES": "0"}


@pytest.fixture
def frail(tmp_path: Path) -> Frail:
    return Frail(tmp_path)


def limit(seconds: float = 3600) -> ApiFailed:
    return ApiFailed(429, "rate_limit", resets_at=NOW + seconds)


# The value.


@pytest.mark.parametrize(
    "retry, error, tries, failing, wait",
    [
        # It doubles, up to the most.
        (Retry(), ApiFailed(529, "overloaded"), 1, 0, 1.0),
        (Retry(), ApiFailed(500, "server_error"), 2, 0, 2.0),
        (Retry(), ApiFailed(None, "connection_failed"), 4, 0, 8.0),
        (Retry(max_tries=2000), ApiFailed(529, "overloaded"), 1999, 0, 60.0),
        (Retry(backoff=0), ApiFailed(529, "overloaded"), 3, 0, 0.0),
        # The API's own word counts if it is more.
        (Retry(), ApiFailed(429, "rate_limit", retry_after=120), 1, 0, 120.0),
        (Retry(), ApiFailed(429, "rate_limit", retry_after=1), 3, 0, 4.0),
        # Tries and time are used up.
        (Retry(), ApiFailed(529, "overloaded"), 5, 0, None),
        (Retry(max_tries=1), ApiFailed(529, "overloaded"), 1, 0, None),
        (Retry(max_seconds=100), ApiFailed(529, "overloaded"), 1, 99, 1.0),
        (Retry(max_seconds=100), ApiFailed(529, "overloaded"), 1, 100, None),
        (Retry(), ApiFailed(429, "rate_limit", retry_after=1801), 1, 0, None),
        # Kinds that do not pass, and those that are not asked for.
        (Retry(), ApiFailed(401, "authentication_failed"), 1, 0, None),
        (Retry(), ApiFailed(None, None), 1, 0, None),
        (Retry(kinds=frozenset({"overloaded"})), ApiFailed(500, "server_error"), 1, 0, None),
        # Usage limits: whatever has passed does not count.
        (Retry(), limit(), 1, 1800, 3600.0),
        (Retry(), limit(-10), 2, 0, 2.0),
        (Retry(), limit(6 * 3600 + 1), 1, 0, None),
        (Retry(max_usage_wait=60), limit(61), 1, 0, None),
        (Retry(on_usage_limit="raise"), limit(), 1, 0, None),
        (Retry(on_usage_limit="raise"), ApiFailed(429, "rate_limit"), 1, 0, 1.0),
        (Retry(on_usage_limit="haiku"), limit(), 1, 0, 0.0),
    ],
)
@ONE_LOOP
async def test_when_the_next_try_is(
    retry: Retry, error: ApiFailed, tries: int, failing: float, wait: float | None
) -> None:
    assert retry.wait_before(error, tries, NOW - failing, now=NOW, random=lambda: 0.0) == wait


@ONE_LOOP
async def test_chance_makes_a_wait_longer_and_never_shorter() -> None:
    retry, overloaded = Retry(jitter=0.5), ApiFailed(529, "overloaded")
    assert retry.wait_before(overloaded, 3, NOW, now=NOW, random=lambda: 1.0) == 6.0
    assert retry.wait_before(limit(), 1, NOW, now=NOW, random=lambda: 1.0) == 3600.0
    waits = {Retry().wait_before(overloaded, 2, NOW, now=NOW) for _ in range(20)}
    assert len(waits) > 1
    assert all(wait is not None and 2.0 <= wait <= 2.4 for wait in waits)


@ONE_LOOP
@pytest.mark.parametrize(
    "fields",
    [
        {"max_tries": 0},
        {"max_tries": 1.5},
        {"max_seconds": -1},
        {"backoff": "1"},
        {"max_backoff": float("nan")},
        {"jitter": -0.1},
        {"kinds": "overloaded"},
        {"kinds": {1}},
        {"on_usage_limit": ""},
        {"max_usage_wait": None},
        {"continue_with": " "},
    ],
    ids=str,
)
async def test_values_are_checked(fields: dict[str, Any]) -> None:
    with pytest.raises(OptionsError, match=rf"`Retry\.{next(iter(fields))}`"):
        Retry(**fields)


@ONE_LOOP
async def test_a_list_of_kinds_is_a_set() -> None:
    kinds: Any = ["overloaded"]
    assert Retry(kinds=kinds).kinds == frozenset({"overloaded"})


# In a session.


async def test_a_turn_is_sent_again_until_the_api_answers() -> None:
    clock = FakeClock()
    script: list[Any] = [fail(529), fail(500), say("done", usage={"input_tokens": 7, "output_tokens": 3})]
    with Simulator(script, environment=NO_OWN_RETRIES) as agent, agent.stand_in(), anyio.fail_after(DEADLINE):
        async with ResilientSession(clock=clock) as session:
            turn = await session.send("What is it?")
            told = await kinds_of(turn, Retrying)
            result = await turn.result()
            assert result.text == "done"
            assert result.usage.total_tokens == 10 == session.usage.total_tokens == turn.usage.total_tokens
            assert [message.prompt for message in agent.main_requests][-1] == "What is it?"
    assert [(each.error.kind, each.attempt, each.seconds) for each in told] == [
        ("overloaded", 1, 1.0),
        ("server_error", 2, 2.0),
    ]
    assert [each.resumes_at for each in told] == [NOW + 1, NOW + 3]
    assert clock.slept == [1.0, 2.0]


@ONE_LOOP
async def test_the_last_failure_is_raised_when_the_tries_are_used_up() -> None:
    clock = FakeClock()
    script: list[Any] = [fail(529)] * 3 + [say("next")]
    with Simulator(script, environment=NO_OWN_RETRIES) as agent, agent.stand_in(), anyio.fail_after(DEADLINE):
        async with ResilientSession(clock=clock, retry=Retry(max_tries=3)) as session:
            with pytest.raises(ApiFailed) as raised:
                await session.ask("go")
            assert raised.value.status == 529
            result: Any = raised.value.result
            assert sum(isinstance(message, ResultMessage) for message in result.messages) == 3
            assert (await session.ask("go on")).text == "next"
    assert clock.slept == [1.0, 2.0]


@ONE_LOOP
@pytest.mark.parametrize("retry", [None, Retry(kinds=frozenset({"server_error"}))])
async def test_what_is_not_to_be_tried_again_is_raised_at_once(retry: Retry | None) -> None:
    with Simulator([fail(529)], environment=NO_OWN_RETRIES) as agent, agent.stand_in():
        async with ResilientSession(retry=retry) as session:
            with anyio.fail_after(DEADLINE), pytest.raises(ApiFailed):
                await session.ask("go")


async def test_retry_after_is_kept_to() -> None:
    clock = FakeClock()
    script: list[Any] = [fail(429, retry_after=120), say("done")]
    with Simulator(script) as agent, agent.stand_in(), anyio.fail_after(DEADLINE):
        async with ResilientSession(give_up_on=[429], clock=clock) as session:
            assert (await session.ask("go")).text == "done"
    assert clock.slept == [120.0]


async def test_a_turn_that_has_acted_is_told_to_go_on_and_never_sent_again() -> None:
    script: list[Any] = [use_tool("Bash", command="echo x >> acts"), fail(529), say("done")]
    with Simulator(script, environment=NO_OWN_RETRIES) as agent, agent.stand_in(), anyio.fail_after(DEADLINE):
        options: Any = {"permission_mode": "bypassPermissions", "allow_dangerously_skip_permissions": True}
        async with ResilientSession(clock=FakeClock(), env={"IS_SANDBOX": "1"}, **options) as session:
            assert (await session.ask("Act once.")).text == "done"
        assert [request.prompt for request in agent.main_requests] == ["Act once.", "Act once.", CONTINUE]
        assert (agent.folder / "acts").read_text() == "x\n"


async def test_without_words_for_it_a_turn_that_has_acted_is_not_tried_again(frail: Frail) -> None:
    frail.plan(["act_fail:529", "answer"])
    with anyio.fail_after(DEADLINE):
        async with frail.session(retry=Retry(continue_with=None)) as session:
            with pytest.raises(ApiFailed):
                await session.ask("act")
            assert (await session.ask("next")).text == "done"
    assert frail.prompts == ["act", "next"]


@ONE_LOOP
async def test_a_turn_that_gets_somewhere_between_failures_has_all_its_tries_again(frail: Frail) -> None:
    frail.plan([*["act_fail:529"] * 4, "answer"])
    with anyio.fail_after(DEADLINE):
        async with frail.session(retry=Retry(max_tries=2), clock=FakeClock()) as session:
            assert (await session.ask("act")).text == "done"
    assert frail.prompts == ["act", *[CONTINUE] * 4]


@ONE_LOOP
@pytest.mark.parametrize("is_typed", [False, True])
async def test_a_message_with_an_id_of_its_own_gets_another_when_it_is_sent_again(
    frail: Frail, is_typed: bool
) -> None:
    frail.plan(["fail:529", "fail:529"])
    uuid = "77777777-0000-4000-8000-000000000000"
    message: Any = {"type": "user", "message": {"role": "user", "content": "go"}, "uuid": uuid}
    prompt = UserMessage("go", uuid=uuid) if is_typed else message
    with anyio.fail_after(DEADLINE):
        async with frail.session() as session:
            assert (await session.ask(prompt)).text == "done"
    assert frail.prompts == ["go"] * 3


# Usage limits.


async def test_a_usage_limit_is_waited_for_without_a_process(frail: Frail) -> None:
    frail.plan([f"limit:{NOW + 3600:.0f}"], ["answer:after"])
    clock = FakeClock(is_held=True)
    with anyio.fail_after(DEADLINE):
        async with frail.session(clock=clock) as session:
            turn = await session.send("go")
            await until(lambda: clock.slept == [3600.0])
            assert state_of(session) == "waiting"
            assert session.session is None
            assert own_processes() == []
            clock.advance(3600)
            assert (await turn.result()).text == "after"
            assert state_of(session) == "idle"
    assert frail.starts[1]["resume"] == session.id
    assert frail.prompts == ["go", "go"]


@ONE_LOOP
async def test_a_usage_limit_that_is_lifted_too_late_is_raised_with_the_moment(frail: Frail) -> None:
    frail.plan([f"limit:{NOW + 86400:.0f}"])
    with anyio.fail_after(DEADLINE):
        async with frail.session() as session:
            with pytest.raises(ApiFailed) as raised:
                await session.ask("go")
    assert raised.value.resets_at == NOW + 86400


async def test_another_model_takes_over_until_the_limit_is_lifted(frail: Frail) -> None:
    frail.plan([f"limit:{NOW + 3600:.0f}", "answer:other", "answer", "answer"], ["answer:own"])
    clock = FakeClock()
    with anyio.fail_after(DEADLINE):
        async with frail.session(clock=clock, retry=Retry(on_usage_limit="haiku")) as session:
            assert (await session.ask("go")).text == "other"
            assert clock.slept == []
            assert [each["model"] for each in frail.log if "model" in each and "resume" not in each] == [
                "haiku"
            ]
            await session.ask("with the other")
            clock.advance(3600)
            assert (await session.ask("with its own")).text == "own"
    assert [start["model"] for start in frail.starts] == [None, None]
    assert frail.starts[1]["resume"] == session.id


@ONE_LOOP
async def test_a_limit_that_is_lifted_already_by_this_clock_is_no_reason_to_come_back_at_once(
    frail: Frail,
) -> None:
    frail.plan([f"limit:{NOW - 60:.0f}", "answer:other"])
    with anyio.fail_after(DEADLINE):
        async with frail.session(retry=Retry(on_usage_limit="haiku")) as session:
            assert (await session.ask("go")).text == "other"
    assert len(frail.starts) == 1


@ONE_LOOP
@pytest.mark.parametrize("at", ["the gate", "the next try"])
async def test_the_time_of_a_budget_runs_out_while_a_turn_waits(frail: Frail, at: str) -> None:
    frail.plan(["fail:529"])
    gate = Gate()
    if at == "the gate":
        await gate.pause(gate._clock.time() + 3600)
    budget, retry = Budget(wall=0.5), Retry(backoff=3600, max_backoff=3600, max_seconds=7200)
    with anyio.fail_after(DEADLINE):
        async with frail.session(gate=gate, budget=budget, retry=retry, clock=Clock()) as session:
            with pytest.raises(LimitReached) as caught:
                await session.ask("go")
    assert caught.value.kind == "budget.wall"
    assert frail.prompts == ([] if at == "the gate" else ["go"])


@ONE_LOOP
async def test_the_other_model_stays_through_a_crash_and_its_own_limit_is_raised(frail: Frail) -> None:
    frail.plan([f"limit:{NOW + 3600:.0f}", "die"], ["answer", f"limit:{NOW + 60:.0f}"])
    with anyio.fail_after(DEADLINE):
        async with frail.session(retry=Retry(on_usage_limit="haiku")) as session:
            await session.ask("go")
            with pytest.raises(ApiFailed):
                await session.ask("again")
    assert [start["model"] for start in frail.starts] == [None, "haiku"]


@ONE_LOOP
async def test_the_other_model_is_started_with_if_the_process_went_with_the_limit(frail: Frail) -> None:
    frail.plan([f"limit_die:{NOW + 3600:.0f}"], ["answer:other"])
    with anyio.fail_after(DEADLINE):
        async with frail.session(retry=Retry(on_usage_limit="haiku")) as session:
            assert (await session.ask("go")).text == "other"
    assert [start["model"] for start in frail.starts] == [None, "haiku"]


@ONE_LOOP
async def test_another_model_that_cannot_be_used_leaves_the_limit_as_it_is(frail: Frail) -> None:
    frail.plan([f"limit:{NOW + 3600:.0f}"])
    with anyio.fail_after(DEADLINE):
        async with frail.session(retry=Retry(on_usage_limit="unknown")) as session:
            with pytest.raises(ApiFailed) as raised:
                await session.ask("go")
            assert raised.value.resets_at == NOW + 3600
            assert (await session.ask("next")).text == "done"


@ONE_LOOP
@pytest.mark.parametrize("seconds", [60, 3600])
async def test_who_waits_long_for_a_gate_has_no_process(frail: Frail, seconds: float) -> None:
    clock = FakeClock(is_held=True)
    gate = Gate(jitter=0.0, clock=clock)
    with anyio.fail_after(DEADLINE):
        async with frail.session(clock=clock, gate=gate) as session:
            await session.ask("one")
            await gate.pause(NOW + seconds)
            turn = await session.send("two")
            await until(lambda: len(clock.slept) == 1)
            assert (session.session is None) is (seconds > 300)
            clock.advance(seconds)
            assert (await turn.result()).text == "done"


async def test_one_limit_pauses_all_sessions_of_an_account(tmp_path: Path) -> None:
    clock = FakeClock(is_held=True)
    gate = Gate(jitter=0.0, clock=clock)
    agents: list[Frail] = []
    for number in range(4):
        folder = tmp_path / str(number)
        folder.mkdir()
        agents.append(Frail(folder))
    agents[0].plan([f"limit:{NOW + 3600:.0f}"])
    sessions = [agent.session(gate=gate, clock=clock) for agent in agents]
    with anyio.fail_after(DEADLINE):
        first = await sessions[0].send("go")
        await until(lambda: not gate.is_open)
        assert gate.opens_at == NOW + 3600
        assert gate.why is not None
        assert "rate_limit" in gate.why
        turns = [await session.send("go") for session in sessions[1:]]
        await until(lambda: len(clock.slept) == 4)
        assert [session.state for session in sessions] == ["waiting"] * 4
        assert [agent.prompts for agent in agents] == [["go"], [], [], []]
        clock.advance(3600)
        for turn in (first, *turns):
            assert (await turn.result()).text == "done"
        for session in sessions:
            await session.close()
    assert [agent.prompts for agent in agents] == [["go", "go"], ["go"], ["go"], ["go"]]


# Stopping what waits.


@pytest.mark.parametrize("how", ["cancel", "close"])
async def test_a_turn_that_waits_can_be_stopped(frail: Frail, how: str) -> None:
    frail.plan(["fail:529"])
    clock = FakeClock(is_held=True)
    with anyio.fail_after(DEADLINE):
        async with frail.session(clock=clock) as session:
            turn = await session.send("go")
            await begun(turn)
            await until(lambda: bool(clock.slept))
            if how == "cancel":
                assert (await turn.cancel()).outcome == "cancelled"
                assert (await session.ask("next")).text == "done"
            else:
                await session.close()
                result = await turn.result(check=False)
                assert result.messages != ()
                assert type(result.error).__name__ == "TransportClosed"
    assert frail.prompts == (["go", "next"] if how == "cancel" else ["go"])
