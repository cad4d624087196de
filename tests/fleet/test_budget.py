"""What may be spent is, and no more: by one session or by many, with all that their subagents spend."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import anyio
import msgspec
import pytest

from outrider.command import Command
from outrider.errors import (
    ApiFailed,
    LimitReached,
    OptionsError,
    TransportClosed,
    TurnInterrupted,
    UsageError,
)
from outrider.fleet import Budget, BudgetWarning, Left, Spent
from outrider.fleet._budget.budget import _Calls, limit_reached
from outrider.protocol import RequestReceived
from outrider.session import Result, Session, SessionState, Usage
from outrider.testing import Request, Simulator, Step, hang, say, subagent, use_tool
from outrider.transports import ProcessTransport
from outrider.wire import AssistantMessage, TaskProgressMessage, UserMessage
from tests.session import stubborn
from tests.session.other_end import OtherEnd, assistant, init, result
from tests.session.real.talking import talking
from tests.session.recorded_runs import messages_of
from tests.session.surroundings import own_session
from tests.transports.conftest import own_processes

pytestmark = pytest.mark.anyio

DEADLINE = 20.0
ONE_LOOP = pytest.mark.parametrize("anyio_backend", ["asyncio"])
"""For what the kind of loop does not matter to."""

ASKED = {"input_tokens": 60, "output_tokens": 40}
"""What each answer uses: 100 tokens."""


def answer(text: str = "done") -> Any:
    return say(text, usage=ASKED)


def free(agent: Simulator) -> Session:
    """A session that may use every tool."""
    return Session(transport=agent, permission_mode="bypassPermissions")


def came_to(error: LimitReached) -> Result[object]:
    assert isinstance(error.result, Result)
    assert error.result.error is error
    return error.result


async def failing(session: Session, prompt: str = "go on") -> LimitReached:
    with pytest.raises(LimitReached) as caught:
        await session.ask(prompt)
    return caught.value


# What is counted.


async def test_what_is_charged_is_what_results_tell() -> None:
    budget = Budget()
    with anyio.fail_after(DEADLINE):
        async with Session(transport=Simulator([answer()] * 4)) as session:
            await session.ask("before it is watched")
            async with budget.watching(session):
                results = [await session.ask("now") for _ in range(2)]
            await session.ask("when it is watched no longer")
    used: Usage = sum((result.usage for result in results), Usage())
    assert budget.spent.usd == pytest.approx(used.cost_usd)
    assert budget.spent.tokens == 200
    assert used.total_tokens == 200
    assert used.cost_usd > 0
    assert budget.left == Left()
    assert budget.exceeded is None


async def test_what_subagents_use_counts() -> None:
    look = use_tool("Bash", command="true", description="look")
    nested = subagent("look closer", look, look, answer())
    agent = Simulator([look, subagent("look there", look, nested, answer()), answer()])
    budget = Budget()
    with anyio.fail_after(DEADLINE):
        async with free(agent) as session, budget.watching(session):
            result = await session.ask("start them")
    assert budget.spent.tokens == result.usage.total_tokens == session.usage.total_tokens
    assert budget.spent.usd == pytest.approx(result.cost_usd)
    # One itself and one subagent, which has one and another subagent, which has two.
    assert budget.spent.tool_calls == 6


def test_calls_of_subagents_that_are_only_told_as_a_number_count() -> None:
    calls, ids = _Calls(), set[str]()
    for message in messages_of("19-subagent-resume-and-nesting"):
        calls.take(message)
        if isinstance(message, AssistantMessage):
            ids |= {block.id for block in message.tool_uses}
    assert calls.count >= len(ids) > 0


@ONE_LOOP
@pytest.mark.parametrize("told", ["many", None, [3], {}])
async def test_a_number_of_calls_that_is_none_does_no_harm(told: object) -> None:
    calls = _Calls()
    for message in messages_of("19-subagent-resume-and-nesting"):
        if isinstance(message, TaskProgressMessage):
            usage = cast("Any", {**message.usage, "tool_uses": told})
            calls.take(msgspec.structs.replace(message, usage=usage))
    assert calls.count == 0


@ONE_LOOP
async def test_a_call_counts_once_however_often_it_is_told() -> None:
    calls = _Calls()
    for message in messages_of("11-subagent-background") * 2:
        calls.take(message)
    assert calls.count == 4


async def test_parents_count_what_all_their_children_spend() -> None:
    tenant = Budget(tokens=1000, name="tenant")
    first, second = Budget(tokens=500, parent=tenant), Budget(parent=tenant)
    first.charge(Spent(usd=0.5, tokens=100, tool_calls=1))
    second.charge(Spent(usd=0.25, tokens=300))
    assert (tenant.spent.usd, tenant.spent.tokens, tenant.spent.tool_calls) == (0.75, 400, 1)
    assert (first.left.tokens, second.left.tokens) == (400, 600)
    second.charge(Spent(tokens=700))
    # Its own limit would leave it 400.
    assert first.left.tokens == 0
    assert first.exceeded == second.exceeded == "tokens"
    with pytest.raises(LimitReached, match="'tenant'") as caught:
        first.check()
    assert (caught.value.kind, caught.value.limit) == ("budget.tokens", 1000)


def test_all_of_a_limit_may_be_spent_and_nothing_behind_it_begun() -> None:
    budget = Budget(tool_calls=3)
    budget.charge(Spent(tool_calls=3))
    assert budget.exceeded is None
    assert budget.left.tool_calls == 0
    with pytest.raises(LimitReached):
        budget.check()
    budget.charge(Spent(tool_calls=-1))
    budget.check()


def test_charges_of_many_threads_add_up_and_warn_once() -> None:
    warnings: list[BudgetWarning] = []
    tenant = Budget(tokens=10_000, on_warn=warnings.append, name="tenant")
    budgets = [Budget(tool_calls=10_000, parent=tenant, on_warn=warnings.append) for _ in range(4)]

    def spend(budget: Budget) -> None:
        for _ in range(2500):
            budget.charge(Spent(tokens=1, tool_calls=1))

    threads = [threading.Thread(target=spend, args=(budget,)) for budget in budgets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
    assert (tenant.spent.tokens, tenant.spent.tool_calls) == (10_000, 10_000)
    assert [(warning.budget, warning.kind, warning.spent) for warning in warnings] == [
        (tenant, "tokens", 8000)
    ]
    assert str(warnings[0]) == "the budget 'tenant' has spent 8000 of 10000 (tokens)"


def test_each_kind_is_warned_of_once_whatever_the_callback_does() -> None:
    kinds: list[str] = []

    def on_warn(warning: BudgetWarning) -> None:
        kinds.append(warning.kind)
        raise LookupError("a mistake in it")

    budget = Budget(usd=1, tokens=100, warn_at=0.5, on_warn=on_warn)
    for _ in range(3):
        budget.charge(Spent(usd=0.3))
    assert kinds == ["usd"]
    budget.charge(Spent(tokens=100))
    assert kinds == ["usd", "tokens"]


def test_what_was_spent_outlives_a_process() -> None:
    parent = Budget(usd=10)
    budget = Budget(usd=2, wall=1000, parent=parent)
    budget.restore(Spent(usd=2, tokens=5, wall=900))
    assert budget.snapshot() == Spent(usd=2, tokens=5, wall=900)
    assert parent.spent == Spent()
    with pytest.raises(LimitReached):
        budget.check()
    assert 0 < (budget.left.wall or 0) <= 100


# Stopping.


async def test_nothing_is_sent_when_nothing_is_left() -> None:
    agent = Simulator([answer()])
    budget = Budget(tool_calls=0, tokens=500)
    with anyio.fail_after(DEADLINE):
        async with Session(transport=agent) as session:
            await session.ask("before")
            async with budget.watching(session):
                error = await failing(session)
    assert (error.kind, error.limit, len(agent.requests)) == ("budget.tool_calls", 0, 1)
    assert error.session_id == session.id
    assert came_to(error).messages == ()


async def test_a_turn_is_cut_off_softly_with_what_it_came_to() -> None:
    def model(request: Request) -> Step:
        return answer("Here I am.") if request.prompt == "And now?" else hang()

    agent = Simulator([use_tool("Bash", command="true", description="look")], otherwise=model)
    budget = Budget(tool_calls=1, grace=DEADLINE)
    with anyio.fail_after(DEADLINE):
        async with free(agent) as session:
            async with budget.watching(session):
                turn = await session.send("Call a tool, then think.")
                async for message in turn:
                    if isinstance(message, AssistantMessage) and message.tool_uses:
                        break
                assert budget.exceeded is None
                budget.charge(Spent(tool_calls=1))
                with pytest.raises(LimitReached) as caught:
                    await turn.result()
            assert caught.value.kind == "budget.tool_calls"
            partial = came_to(caught.value)
            assert partial.usage.total_tokens > 0
            assert any(isinstance(each, AssistantMessage) for each in partial.messages)
            # It lives, and goes on without the budget.
            assert (await session.ask("And now?")).text == "Here I am."


async def test_a_turn_that_spends_too_much_itself_is_cut_off() -> None:
    look = use_tool("Bash", command="true", description="look")
    agent = Simulator([look] * 50)
    budget = Budget(tool_calls=3)
    with anyio.fail_after(DEADLINE):
        async with free(agent) as session, budget.watching(session):
            error = await failing(session, "look for ever")
    assert (error.kind, error.limit) == ("budget.tool_calls", 3)
    # The agent may be a little ahead of who reads it.
    assert 4 <= budget.spent.tool_calls < 40
    assert came_to(error).usage == session.usage


async def test_a_turn_that_has_its_answer_is_no_failure() -> None:
    # What it costs is known only then.
    budget = Budget(usd=0.000_001)
    with anyio.fail_after(DEADLINE):
        agent = Simulator([answer("All of it.")])
        async with Session(transport=agent) as session, budget.watching(session):
            assert (await session.ask("once")).text == "All of it."
            assert budget.exceeded == "usd"
            assert (await failing(session)).kind == "budget.usd"


async def test_the_end_of_a_parent_stops_all_sessions_that_run() -> None:
    tenant = Budget(usd=1, name="tenant")
    errors: list[LimitReached] = []

    async def run(begun: anyio.Event) -> None:
        agent = Simulator([hang()])
        async with Session(transport=agent) as session, Budget(parent=tenant).watching(session):
            turn = await session.send("think")
            async for _ in turn:
                begun.set()
                break
            with pytest.raises(LimitReached) as caught:
                await turn.result()
            errors.append(caught.value)

    with anyio.fail_after(DEADLINE):
        async with anyio.create_task_group() as tasks:
            begun = [anyio.Event() for _ in range(5)]
            for each in begun:
                tasks.start_soon(run, each)
            for each in begun:
                await each.wait()
            tenant.charge(Spent(usd=1.5))
    assert [(error.kind, error.limit) for error in errors] == [("budget.usd", 1)] * 5


async def test_many_sessions_share_a_budget_and_exceed_it_by_a_turn_each_at_most() -> None:
    sessions, limit = 8, 2000
    budget = Budget(tokens=limit)
    used: list[int] = []

    async def run() -> None:
        agent = Simulator([answer()] * 100)
        async with Session(transport=agent) as session, budget.watching(session):
            with suppress(LimitReached):
                while True:
                    await session.ask("more")
            used.append(session.usage.total_tokens)

    with anyio.fail_after(DEADLINE):
        async with anyio.create_task_group() as tasks:
            for _ in range(sessions):
                tasks.start_soon(run)
    assert budget.spent.tokens == sum(used)
    # A turn that is cut off may turn out to have used less than its messages told.
    assert limit - sessions * 100 < sum(used) <= limit + sessions * 100


def test_a_charge_in_one_event_loop_stops_a_session_in_another() -> None:
    budget = Budget(tokens=100)
    begun = threading.Event()
    errors: list[LimitReached] = []

    async def think() -> None:
        with anyio.fail_after(DEADLINE):
            async with Session(transport=Simulator([hang()])) as session, budget.watching(session):
                turn = await session.send("think")
                begun.set()
                with pytest.raises(LimitReached) as caught:
                    await turn.result()
                errors.append(caught.value)

    async def spend() -> None:
        with anyio.fail_after(DEADLINE):
            agent = Simulator([say("x", usage={"input_tokens": 101})])
            async with Session(transport=agent) as session, budget.watching(session):
                # It may be cut off itself, or have its answer by then.
                with suppress(LimitReached):
                    await session.ask("much")

    thread = threading.Thread(target=anyio.run, args=(think,), kwargs={"backend": "trio"})
    thread.start()
    assert begun.wait(DEADLINE)
    anyio.run(spend)
    thread.join(DEADLINE)
    assert [error.kind for error in errors] == ["budget.tokens"]


async def test_charges_in_other_threads_do_not_pile_up_while_an_event_loop_is_busy() -> None:
    budget = Budget(usd=1)

    def spend() -> None:
        for _ in range(50):
            budget.charge(Spent(usd=1))

    with anyio.fail_after(DEADLINE):
        async with Session(transport=Simulator([answer()])) as session, budget.watching(session):
            other = threading.Thread(target=spend)
            other.start()
            other.join()
            waking = [each for each in threading.enumerate() if each.name == "outrider-budget"]
            assert len(waking) == 1
            assert (await failing(session)).kind == "budget.usd"


async def test_time_is_up_also_when_nothing_comes() -> None:
    warnings: list[BudgetWarning] = []
    budget = Budget(wall=0.2, warn_at=0.1, on_warn=warnings.append)
    with anyio.fail_after(DEADLINE):
        async with Session(transport=Simulator([hang()])) as session, budget.watching(session):
            error = await failing(session, "think for ever")
            assert (error.kind, error.limit) == ("budget.wall", 0.2)
            assert came_to(error).messages
            assert (await failing(session)).kind == "budget.wall"
    assert [warning.kind for warning in warnings] == ["wall"]


async def test_what_goes_on_in_the_background_is_stopped() -> None:
    agent = Simulator([subagent("look there", hang(), background=True), answer("It is at it.")])
    budget = Budget(usd=1, grace=10)
    with anyio.fail_after(DEADLINE):
        async with Session(transport=agent) as session, budget.watching(session):
            assert (await session.ask("start it")).text == "It is at it."
            assert session.tasks
            budget.charge(Spent(usd=2))
            await session.wait_idle()
            assert session.tasks == ()
            assert session.state is SessionState.IDLE


async def test_what_is_to_stop_has_stopped_when_a_watch_is_left() -> None:
    agent = Simulator(
        [subagent("look there", hang(), background=True), answer()], otherwise=answer("And on.")
    )
    budget = Budget(usd=1, grace=DEADLINE)
    with anyio.fail_after(DEADLINE):
        async with Session(transport=agent) as session:
            async with budget.watching(session):
                await session.ask("start it")
                assert session.tasks
                budget.charge(Spent(usd=2))
            assert not session.tasks
            assert (await session.ask("go on")).text == "And on."


@pytest.mark.parametrize(
    "arguments", [("eof",), ("sigterm",), ("kill",), ("sigterm", "floods")], ids=" ".join
)
@ONE_LOOP
async def test_an_agent_that_does_not_stop_is_ended(arguments: tuple[str, ...]) -> None:
    command = Command((sys.executable, "-I", "-S", str(Path(stubborn.__file__)), *arguments))
    transport = ProcessTransport(command, grace=0.1, terminate=0.1)
    budget = Budget(tokens=100, grace=0.2)
    with anyio.fail_after(DEADLINE):
        async with Session(transport=transport) as session, budget.watching(session):
            turn = await session.send("think")
            async for _ in turn:
                break
            budget.charge(Spent(tokens=101))
            with pytest.raises(LimitReached) as caught:
                await turn.result()
            assert caught.value.kind == "budget.tokens"
            assert came_to(caught.value).messages
            assert session.state is SessionState.CLOSED
    assert own_processes() == []


async def never_quiet(agent: OtherEnd) -> None:
    """Begins a task that nothing stops."""
    task = {"type": "system", "subtype": "task_started", "task_id": "a1", "task_type": "local_agent"}
    task |= {"description": "look", "uuid": "u", "session_id": "s"}
    while (event := await agent.next()) is not None:
        if isinstance(event, UserMessage):
            uuid = event.uuid or ""
            await agent.say(init(uuid), task, assistant("It is at it."), result(uuid))
        elif isinstance(event, RequestReceived):
            await agent.answer(event)


async def test_a_background_that_does_not_stop_is_ended() -> None:
    budget = Budget(usd=1, grace=0.3)
    async with own_session(never_quiet) as session, budget.watching(session):
        assert (await session.ask("start it")).text == "done"
        assert len(session.tasks) == 1
        budget.charge(Spent(usd=2))
        # It ends with the session, and not before.
        await session.wait_idle()
        assert session.state is SessionState.CLOSED


# The real program.


@pytest.mark.real
@ONE_LOOP
async def test_a_subagent_of_the_real_program_is_cut_off() -> None:
    look = use_tool("Bash", command="true", description="look")
    start = use_tool("Agent", description="look", prompt="look there", run_in_background=False)
    budget = Budget(tool_calls=4)
    async with talking(start, subagents=[look] * 100, otherwise=say("next")) as (_, session):
        async with budget.watching(session):
            error = await failing(session, "have somebody look for ever")
        assert (error.kind, error.limit) == ("budget.tool_calls", 4)
        partial = came_to(error)
        assert any(getattr(each, "parent_tool_use_id", None) for each in partial.messages)
        assert partial.usage == session.usage
        assert budget.spent.tokens == session.usage.total_tokens > 0
        assert 5 <= budget.spent.tool_calls < 100
        assert (await session.ask("go on")).text == "next"


@pytest.mark.real
@ONE_LOOP
async def test_the_background_of_the_real_program_is_stopped() -> None:
    start = use_tool("Agent", description="look", prompt="look there", run_in_background=True)
    budget = Budget(usd=1, grace=DEADLINE)
    agents = talking(start, say("It is at it."), subagents=[hang()], otherwise=say("next", usage=ASKED))
    async with agents as (_, session):
        async with budget.watching(session):
            result = await session.ask("start it")
            assert session.tasks
            budget.charge(Spent(usd=2))
            await session.wait_idle()
            assert session.tasks == ()
            assert (await failing(session)).kind == "budget.usd"
            assert budget.spent.tokens == session.usage.total_tokens
        assert result.text == "It is at it."
        assert (await session.ask("go on")).text == "next"


# The watch.


@ONE_LOOP
async def test_a_watch_is_no_reader() -> None:
    budget = Budget()
    with anyio.fail_after(DEADLINE):
        async with Session(transport=Simulator([answer("Hello.")])) as session, budget.watching(session):
            turn = await session.send("hello")
            while not turn.is_over:
                await anyio.lowlevel.checkpoint()
            session.end_input()
            texts = [message.text async for message in session if isinstance(message, AssistantMessage)]
    assert texts == ["Hello."]


@ONE_LOOP
async def test_a_session_is_watched_once_by_a_budget_and_while_it_is_open() -> None:
    budget = Budget()
    session = Session(transport=Simulator([answer()]))
    with anyio.fail_after(DEADLINE):
        with pytest.raises(UsageError):
            await budget.watching(session).__aenter__()
        async with session:
            watch = budget.watching(session)
            async with watch:
                with pytest.raises(UsageError, match="already"):
                    await budget.watching(session).__aenter__()
            with pytest.raises(UsageError, match="once"):
                await watch.__aenter__()
            async with budget.watching(session):
                await session.ask("now")
    assert budget.spent.tokens == 100
    with pytest.raises(OptionsError, match="Session"):
        budget.watching(cast("Any", "session"))


@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_a_watch_does_not_keep_a_session_that_is_dropped() -> None:
    budget = Budget(wall=1000)
    with anyio.fail_after(DEADLINE):
        session = Session(transport=Simulator([answer()]))
        await session.connect()
        watch = budget.watching(session)
        await watch.__aenter__()
        dropped = weakref.ref(session)
        del session
        while dropped() is not None:
            gc.collect()
            await anyio.lowlevel.checkpoint()
        await watch.__aexit__(None, None, None)


# What a turn comes to.


def interrupted() -> Result[object]:
    error = TurnInterrupted(session_id="s")
    result: Result[object] = Result(error=error, usage=Usage(5), session_id="s")
    error.result = result
    return result


def test_an_end_that_a_budget_made_is_a_limit() -> None:
    budget = Budget(tokens=1, parent=Budget())
    result = interrupted()
    assert limit_reached(budget, result) is None
    budget.charge(Spent(tokens=2))
    error = limit_reached(budget, result)
    assert error is not None
    assert (error.kind, error.limit, error.session_id) == ("budget.tokens", 1, "s")
    assert came_to(error).usage == Usage(5)
    assert error.__cause__ is result.error
    assert limit_reached(budget, Result(error=error)) is error


def test_an_end_that_no_budget_made_is_none() -> None:
    budget = Budget(tokens=1)
    budget.charge(Spent(tokens=2))
    assert limit_reached(None, interrupted()) is None
    assert limit_reached(budget, Result[object]()) is None
    assert limit_reached(budget, Result(error=ApiFailed(529))) is None
    lost = limit_reached(budget, Result(error=TransportClosed("it was closed", session_id="s")))
    assert lost is not None
    assert lost.session_id == "s"


BAD: dict[str, Any] = {
    "usd": [-1, "5", float("nan"), float("inf"), True],
    "tokens": [-1, 1.5, "5", True],
    "tool_calls": [-1, 0.5],
    "wall": [-1, "60", float("inf")],
    "parent": [5, "tenant"],
    "warn_at": [0, 1.1, -1, "80%", None],
    "on_warn": ["print"],
    "grace": [-1, None],
    "name": [None, 5],
}


@pytest.mark.parametrize("name,value", [(name, value) for name, values in BAD.items() for value in values])
def test_a_bad_value_is_named(name: str, value: Any) -> None:
    with pytest.raises(OptionsError, match=f"`{name}` must be"):
        Budget(**{name: value})


@pytest.mark.parametrize("spent", [5, None, Spent(usd=float("nan")), Spent(tokens=cast("int", "5"))])
def test_what_is_no_amount_is_not_charged(spent: Any) -> None:
    budget = Budget()
    for take in (budget.charge, budget.restore):
        with pytest.raises(OptionsError):
            take(spent)
    assert budget.spent == Spent()


def test_it_shows_what_is_spent() -> None:
    budget = Budget(usd=5, tool_calls=10, name="tenant")
    budget.charge(Spent(usd=1.25, tool_calls=3))
    assert repr(budget) == "<Budget tenant, 1.25 of 5 usd, 3 of 10 tool_calls>"
    assert repr(Budget()) == "<Budget no limit>"
