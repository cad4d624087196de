"""A session that outlives its process: used, parked, cancelled, closed and dropped, at any time."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, assert_type

import anyio
import anyio.lowlevel
import pytest

import outrider
from outrider.errors import (
    FrameTooLarge,
    LimitReached,
    OptionsError,
    TransportClosed,
    TurnInterrupted,
    TurnTimedOut,
    UsageError,
)
from outrider.fleet import (
    Budget,
    DirectStarter,
    Gate,
    ResilientSession,
    ResilientTurn,
    Restarted,
    Retrying,
    Spent,
)
from outrider.fleet._resilient.session import Part
from outrider.options import Options, Timeouts
from outrider.session import Session, SessionState, Turn
from outrider.session._streams.stream import Link
from outrider.testing import Simulator, background_task, say, structured, use_tool
from outrider.wire import AssistantMessage, Json, Message, ResultMessage, StreamEvent
from tests.fleet.resilient import NOW, ONE_LOOP, FakeClock, Frail, begun, state_of, until
from tests.transports.conftest import nothing_is_left, own_processes

__all__ = ["nothing_is_left"]

pytestmark = pytest.mark.anyio

DEADLINE = 20.0


@pytest.fixture
def frail(tmp_path: Path) -> Frail:
    return Frail(tmp_path)


@pytest.fixture
def simulated() -> Iterator[Simulator]:
    """An agent in memory, for every session of the test, which says whatever comes."""
    with Simulator([], otherwise=say("done")) as agent, agent.stand_in(everywhere=True):
        yield agent


# Use.


async def test_its_states_follow_what_it_does(frail: Frail) -> None:
    frail.plan(["hang"], ["answer"])
    session = frail.session()
    assert (session.id, session.session, session.idle_since) == (None, None, None)
    assert state_of(session) == "new"
    with anyio.fail_after(DEADLINE):
        await session.connect()
        assert state_of(session) == "idle"
        assert isinstance(session.idle_since, float)
        turn = await session.send("go")
        await begun(turn)
        assert repr(session).endswith("busy>")
        await turn.cancel()
        assert repr(session) == f"<ResilientSession {session.id}, idle>"
        await session.park()
        assert (state_of(session), session.session) == ("parked", None)
        assert own_processes() == []
        await session.ask("go on")
        await session.close()
    assert state_of(session) == "closed"


async def test_several_tasks_use_one_session_a_turn_at_a_time(frail: Frail) -> None:
    answers: list[str] = []

    async def use(number: int) -> None:
        answers.append((await session.ask(f"{number}")).text)

    with anyio.fail_after(DEADLINE):
        async with frail.session() as session, anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(use, number)
    assert answers == ["done"] * 20
    assert sorted(map(int, frail.prompts)) == list(range(20))


@ONE_LOOP
async def test_the_answer_has_the_form_that_is_asked_for_in_every_process() -> None:
    with Simulator([structured({"a": 1}), structured({"a": 2})]) as agent, agent.stand_in():
        with anyio.fail_after(DEADLINE):
            async with ResilientSession(output=dict[str, int]) as session:
                assert (await session.ask("one")).output == {"a": 1}
                await session.park()
                assert (await session.ask("two")).output == {"a": 2}


async def test_a_tool_sees_the_context_in_which_its_turn_was_sent() -> None:
    variable: ContextVar[str] = ContextVar("variable", default="")
    seen: list[str] = []

    @outrider.tool
    def look() -> str:
        """Look."""
        seen.append(variable.get())
        return "seen"

    script = [use_tool("look"), say("one"), use_tool("look"), say("two")]
    with Simulator(script) as agent, agent.stand_in(), anyio.fail_after(DEADLINE):
        async with ResilientSession(tools=[look]) as session:
            for name in ("first", "second"):
                variable.set(name)
                await session.ask("look")
                await session.park()
    assert seen == ["first", "second"]


async def test_loops_go_on_where_the_one_before_stopped_and_see_pieces_too() -> None:
    with Simulator([say("one two three", chunks=3)]) as agent, agent.stand_in(), anyio.fail_after(DEADLINE):
        async with ResilientSession(include_partial_messages=True) as session:
            turn = await session.send("go")
            first: list[Any] = []
            async for message in turn:
                first.append(message)
                if isinstance(message, StreamEvent):
                    break
            both = [item async for item in turn], [item async for item in turn]
            result = await turn.result()
    assert both[1] == []
    pieces = [each for each in (*first, *both[0]) if isinstance(each, StreamEvent)]
    assert "".join(piece.text for piece in pieces) == "one two three"
    assert tuple(each for each in (*first, *both[0]) if not isinstance(each, StreamEvent)) == result.messages
    assert turn.messages == result.messages


@ONE_LOOP
async def test_a_turn_has_all_that_turns_have() -> None:
    missing = {name for name in dir(Turn) if not name.startswith("_")} - set(dir(ResilientTurn))
    assert missing == set()
    is_allowed = anyio.Event()

    async def permit(_: outrider.PermissionRequest) -> outrider.Answer:
        await is_allowed.wait()
        return outrider.allow()

    script = [use_tool("Bash", command="touch x"), say("Steered."), say("one two", chunks=2)]
    with Simulator(script) as agent, agent.stand_in(), anyio.fail_after(DEADLINE):
        async with ResilientSession(include_partial_messages=True, permission=permit) as session:
            turn = await session.send("go")
            await begun(turn)
            # Its tool waits for a permission, so it has another step.
            queued = await turn.steer("And the changelog.")
            is_allowed.set()
            assert (await turn.result(until="idle")).text == "Steered."
            assert await queued.wait() == "consumed"
            assert turn.delivery == "consumed"
            assert "And the changelog." in str(agent.requests[1].messages)
            with pytest.raises(UsageError, match="The turn is over"):
                await turn.steer("Too late.")
            turn = await session.send("on")
            assert [piece async for piece in turn.text()] == ["one ", "two"]
            assert turn.uuid is not None


@ONE_LOOP
async def test_what_nobody_can_read_is_not_held(frail: Frail) -> None:
    frail.plan(["hang"])
    with anyio.fail_after(DEADLINE):
        async with frail.session() as session, anyio.create_task_group() as tasks:
            tasks.start_soon(session.ask, "go")
            await until(lambda: session._turn_log is not None and len(session._turn_log.messages) > 1)
            held = gc.get_objects()
            assert sum(isinstance(each, Part) for each in held) <= 2
            assert not any(isinstance(each, Link) and each.batch for each in held)
            tasks.cancel_scope.cancel()


@ONE_LOOP
async def test_loops_at_the_same_time_each_see_everything(frail: Frail) -> None:
    frail.plan(["hang"])
    with anyio.fail_after(DEADLINE):
        async with frail.session() as session:
            turn = await session.send("go")
            seen: list[list[Any]] = [[], []]

            async def read(into: list[Any]) -> None:
                async for message in turn:
                    into.append(message)  # noqa: PERF401 - it is looked at meanwhile

            async with anyio.create_task_group() as tasks:
                for into in seen:
                    tasks.start_soon(read, into)
                await until(lambda: all(seen))
                await turn.cancel()
    assert seen[0] == seen[1] == list(turn.messages)


@ONE_LOOP
async def test_a_message_that_is_too_large_is_an_error_in_its_place(frail: Frail) -> None:
    frail.plan(["ramble"])
    with anyio.fail_after(DEADLINE):
        async with frail.session(max_buffer_size=20_000) as session:
            turn = await session.send("go")
            with pytest.raises(FrameTooLarge):
                await _reading(turn)()
            rest = [message async for message in turn]
            assert isinstance(rest[-1], ResultMessage)
            assert (await turn.result()).text == "done"


@ONE_LOOP
async def test_what_goes_on_in_the_background_keeps_a_session_from_being_idle() -> None:
    script: list[Any] = [background_task("cat end"), say("started"), say("ended")]
    with Simulator(script) as agent, agent.stand_in(), anyio.fail_after(DEADLINE):
        os.mkfifo(agent.folder / "end")
        options: Any = {"permission_mode": "bypassPermissions", "allow_dangerously_skip_permissions": True}
        async with ResilientSession(env={"IS_SANDBOX": "1"}, **options) as session:
            await session.ask("go")
            assert session.session is not None
            await until(lambda: session.state == "idle")
            assert session.session.tasks != ()
            assert session.idle_since is None
            (agent.folder / "end").write_text("")
            await until(lambda: session.idle_since is not None)


@ONE_LOOP
async def test_a_deadline_that_ends_the_agent_does_not_end_the_session(frail: Frail) -> None:
    frail.plan(["stick"])
    timeouts = Timeouts(connect=10, close=0.1, terminate=0.1, interrupt=0.1, turn=0.3)
    with anyio.fail_after(DEADLINE):
        async with frail.session(timeouts=timeouts) as session:
            with pytest.raises(TurnTimedOut):
                await session.ask("go")
            assert (await session.ask("next")).text == "done"
    assert frail.prompts == ["go", "next"]
    assert frail.starts[1]["resume"] == session.id


# Parking.


async def test_a_parked_session_comes_back_with_its_context(simulated: Simulator) -> None:
    with anyio.fail_after(DEADLINE):
        async with ResilientSession() as session:
            await session.ask("My name is Ada.")
            for _ in range(2):
                await session.park()
            await session.ask("What is my name?")
    assert "My name is Ada." in str(simulated.main_requests[-1].messages)
    assert session.usage.total_tokens > 0


async def test_parking_waits_for_the_turn_and_the_next_prompt_for_parking(frail: Frail) -> None:
    frail.plan(["hang"], ["answer"])
    with anyio.fail_after(DEADLINE):
        async with frail.session() as session, anyio.create_task_group() as tasks:
            turn = await session.send("one")
            await begun(turn)
            tasks.start_soon(session.park)
            await anyio.lowlevel.checkpoint()
            assert state_of(session) == "busy"
            await turn.cancel()
            assert (await session.ask("two")).text == "done"
    assert [start["resume"] for start in frail.starts] == [None, session.id]


@ONE_LOOP
async def test_parking_that_is_cancelled_while_it_waits_does_not_happen(frail: Frail) -> None:
    frail.plan(["hang"])
    with anyio.fail_after(DEADLINE):
        async with frail.session() as session:
            turn = await session.send("one")
            await begun(turn)
            with anyio.move_on_after(0.01):
                await session.park()
            await turn.cancel()
            assert state_of(session) == "idle"
            assert (await session.ask("two")).text == "done"
    assert len(frail.starts) == 1


# Cancelling.


async def test_a_cancelled_turn_leaves_the_process_as_it_is(frail: Frail) -> None:
    frail.plan(["hang"])
    with anyio.fail_after(DEADLINE):
        async with frail.session() as session:
            turn = await session.send("go")
            await begun(turn)
            receipt = await turn.cancel()
            assert receipt.outcome == "cancelled"
            assert receipt.result is not None
            with pytest.raises(TurnInterrupted):
                await turn.result()
            assert (await turn.cancel()).outcome == "finished_first"
            assert (await session.ask("next")).text == "done"
    assert len(frail.starts) == 1


async def test_an_agent_that_does_not_react_is_ended_and_resumed_by_the_next_prompt(frail: Frail) -> None:
    frail.plan(["stick"])
    timeouts = Timeouts(connect=10, close=0.1, terminate=0.1, interrupt=0.1)
    with anyio.fail_after(DEADLINE):
        async with frail.session(timeouts=timeouts) as session:
            turn = await session.send("go")
            await begun(turn)
            assert (await turn.cancel()).outcome == "killed"
            assert state_of(session) == "parked"
            assert own_processes() == []
            assert (await session.ask("next")).text == "done"
    assert frail.prompts == ["go", "next"]


async def test_waiting_for_a_turn_can_be_given_up_without_giving_up_the_turn(frail: Frail) -> None:
    frail.plan(["hang"])
    with anyio.fail_after(DEADLINE):
        async with frail.session() as session:
            turn = await session.send("go")
            await begun(turn)
            for wait in (turn.result, aiter(turn).__anext__):
                with anyio.move_on_after(0.01) as scope:
                    await wait()
                assert scope.cancelled_caught
            assert not turn.is_over
            with anyio.move_on_after(0.01):
                await session.send("is never sent")
            await turn.cancel()
            await session.ask("next")
    assert frail.prompts == ["go", "next"]


async def test_asking_can_be_cancelled_at_any_moment(simulated: Simulator) -> None:
    """Each time a moment later, and until it has come to its end: the next one always works."""
    with anyio.fail_after(DEADLINE):
        async with ResilientSession() as session:
            outcomes: list[bool] = []
            for moments in range(0, 200, 3):
                with anyio.CancelScope() as scope:
                    async with anyio.create_task_group() as tasks:

                        async def cancel_later(moments: int = moments, scope: Any = scope) -> None:
                            for _ in range(moments):
                                await anyio.lowlevel.checkpoint()
                            scope.cancel()

                        tasks.start_soon(cancel_later)
                        await session.ask("go")
                        tasks.cancel_scope.cancel()
                outcomes.append(scope.cancelled_caught)
            assert True in outcomes
            assert (await session.ask("at last")).text == "done"
            assert state_of(session) == "idle"


@ONE_LOOP
async def test_asking_can_be_cancelled_by_a_bare_cancel_at_any_moment(simulated: Simulator) -> None:
    with anyio.fail_after(DEADLINE):
        async with ResilientSession() as session:
            outcomes: list[bool] = []
            for moments in range(0, 200, 3):
                task = asyncio.ensure_future(session.ask("go"))
                for _ in range(moments):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
                outcomes.append(task.cancelled())
            assert True in outcomes
            assert (await session.ask("at last")).text == "done"


@ONE_LOOP
@pytest.mark.parametrize("is_bare", [False, True])
async def test_opening_can_be_cancelled_at_any_moment(frail: Frail, is_bare: bool) -> None:
    with anyio.fail_after(DEADLINE):
        for number in range(6):
            session = frail.session()
            if is_bare:
                task = asyncio.ensure_future(session.connect())
                await asyncio.sleep(number * 0.01)
                task.cancel()
                await asyncio.wait([task])
            else:
                with anyio.move_on_after(number * 0.01):
                    await session.connect()
            # One that was opened half the way can be used, and closed.
            if number % 2:
                assert (await session.ask("go")).text == "done"
            await session.close()
            assert own_processes() == []


@ONE_LOOP
async def test_opening_that_is_cancelled_before_a_budget_watches_leaves_nothing(frail: Frail) -> None:
    class Slow(Budget):
        @asynccontextmanager
        async def watching(self, session: Any) -> AsyncGenerator[None]:
            asked.set()
            await anyio.sleep_forever()
            yield

    asked = anyio.Event()
    session = frail.session(budget=Slow())
    with anyio.fail_after(DEADLINE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.connect)
            await asked.wait()
            tasks.cancel_scope.cancel()
        assert own_processes() == []
        assert state_of(session) == "parked"
        await session.close()


@ONE_LOOP
async def test_a_process_that_was_lost_is_replaced_by_connecting(frail: Frail) -> None:
    with anyio.fail_after(DEADLINE):
        async with frail.session() as session:
            await session.ask("one")
            assert session.session is not None
            assert session.session.pid is not None
            os.kill(session.session.pid, signal.SIGKILL)
            await until(lambda: session.state == "parked")
            assert session.idle_since is None
            await session.connect()
            assert state_of(session) == "idle"
            assert len(frail.starts) == 2
            assert frail.starts[1]["resume"] == session.id


# Closing.


async def test_closing_ends_a_turn_that_has_not_begun_and_waits_at_a_gate(frail: Frail) -> None:
    clock = FakeClock(is_held=True)
    gate = Gate(clock=clock)
    session = frail.session(gate=gate, clock=clock)
    with anyio.fail_after(DEADLINE):
        await gate.pause(NOW + 3600)
        turn = await session.send("go")
        await session.close()
        with pytest.raises(TransportClosed):
            await turn.result()
    assert frail.log == []


async def test_closing_ends_opening(frail: Frail) -> None:
    class Slow(DirectStarter):
        async def start(self, options: Options, output: object) -> Session[Any]:
            asked.set()
            await anyio.sleep_forever()
            raise AssertionError

    asked = anyio.Event()
    session = frail.session(starter=Slow())

    async def connect() -> None:
        with pytest.raises(TransportClosed):
            await session.connect()

    with anyio.fail_after(DEADLINE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connect)
            await asked.wait()
            await session.close()


@ONE_LOOP
@pytest.mark.parametrize("times", [1, 3])
async def test_closing_that_is_cut_off_in_its_first_moments_gives_the_process_back(
    simulated: Simulator, times: int
) -> None:
    class Counting(DirectStarter):
        async def stop(self, session: Session[Any]) -> None:
            await super().stop(session)
            given_back.append(session)

    given_back: list[Session[Any]] = []
    with anyio.fail_after(DEADLINE):
        for moments in range(1, 6):
            session = ResilientSession(starter=Counting())
            await session.connect()
            task = asyncio.ensure_future(session.close())
            for _ in range(moments):
                await asyncio.sleep(0)
            for _ in range(times):
                task.cancel()
                await asyncio.sleep(0)
            await asyncio.wait([task])
            await until(lambda: bool(given_back))
            assert given_back.pop().state is SessionState.CLOSED
            assert state_of(session) == "closed"


@ONE_LOOP
async def test_closing_does_not_wait_for_a_budget_that_stops_the_turn(frail: Frail) -> None:
    frail.plan(["stick"])
    budget = Budget(tool_calls=5, grace=3600)
    session = frail.session(budget=budget)
    with anyio.fail_after(DEADLINE):
        turn = await session.send("go")
        await begun(turn)
        budget.charge(Spent(tool_calls=6))
        await session.close()
        with pytest.raises(LimitReached):
            await turn.result()


async def test_closing_ends_the_turn_and_all_that_wait_behind_it(frail: Frail) -> None:
    frail.plan(["hang"])
    session = frail.session()
    failed: list[BaseException] = []

    async def ask() -> None:
        try:
            await session.ask("behind")
        except TransportClosed as error:
            failed.append(error)

    with anyio.fail_after(DEADLINE):
        turn = await session.send("go")
        await begun(turn)
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(ask)
            await anyio.lowlevel.checkpoint()
            tasks.start_soon(session.close)
            await session.close()
        assert own_processes() == []
        assert len(failed) == 3
        with pytest.raises(TransportClosed) as raised:
            await turn.result()
        result: Any = raised.value.result
        assert any(isinstance(each, AssistantMessage) for each in result.messages)
        with pytest.raises(TransportClosed):
            await session.send("after")
        with pytest.raises(TransportClosed):
            await session.connect()
    assert frail.prompts == ["go"]
    assert len(frail.starts) == 1


@ONE_LOOP
@pytest.mark.parametrize("is_bare", [False, True])
async def test_closing_that_is_cancelled_goes_on(frail: Frail, is_bare: bool) -> None:
    frail.plan(["stick"])
    with anyio.fail_after(DEADLINE):
        session = frail.session(timeouts=Timeouts(connect=10, close=0.1, terminate=0.1, interrupt=0.1))
        await begun(await session.send("go"))
        if is_bare:
            task = asyncio.ensure_future(session.close())
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
        else:
            with anyio.CancelScope() as scope:
                scope.cancel()
                await session.close()
        await until(lambda: own_processes() == [])
        await session.close()


async def test_a_tool_that_closes_its_session_does_not_wait_for_itself() -> None:
    sessions: list[ResilientSession[Any]] = []

    @outrider.tool
    async def leave() -> str:
        """Leave."""
        await sessions[0].close()
        return "never"

    with Simulator([use_tool("leave"), say("never")]) as agent, agent.stand_in(), anyio.fail_after(DEADLINE):
        async with ResilientSession(tools=[leave]) as session:
            sessions.append(session)
            with pytest.raises(TransportClosed):
                await session.ask("go")


# Dropping.


async def test_a_dropped_turn_goes_on_to_its_end(frail: Frail) -> None:
    with anyio.fail_after(DEADLINE):
        async with frail.session() as session:
            await session.send("one")
            gc.collect()
            assert (await session.ask("two")).text == "done"
    assert frail.prompts == ["one", "two"]


@ONE_LOOP
async def test_a_dropped_session_ends_its_agent(frail: Frail) -> None:
    async def use_and_drop() -> None:
        session = frail.session()
        await session.ask("one")
        while session.idle_since is None:
            await anyio.lowlevel.checkpoint()
        del session
        gc.collect()

    with anyio.fail_after(DEADLINE):
        with pytest.warns(ResourceWarning, match="dropped"):
            await use_and_drop()
        await until(lambda: own_processes() == [])


def test_an_event_loop_that_ends_under_a_turn_leaves_nothing(frail: Frail) -> None:
    frail.plan(["hang"])
    turns: list[ResilientTurn[Any]] = []

    async def leave() -> None:
        session = frail.session()
        turns.append(await session.send("go"))
        await begun(turns[0])
        assert session.session is not None
        session.session.abandon()

    asyncio.run(leave())
    assert turns[0].is_over


@ONE_LOOP
async def test_what_ends_the_program_reaches_who_waits() -> None:
    @outrider.tool
    async def stop() -> str:
        """Stop."""
        raise KeyboardInterrupt("enough")

    with Simulator([use_tool("stop"), say("never")]) as agent, agent.stand_in(), anyio.fail_after(DEADLINE):
        session: ResilientSession[Any] = ResilientSession(tools=[stop])
        turn = await session.send("go")
        for wait in (turn.result, _reading(turn)):
            with pytest.raises(KeyboardInterrupt, match="enough"):
                await wait()
        await session.close()


def _reading(turn: Any) -> Any:
    async def read() -> None:
        async for _ in turn:
            pass

    return read


# Starters, and what cannot work.


@ONE_LOOP
async def test_a_starter_gets_back_every_session_that_it_gave(frail: Frail) -> None:
    frail.plan(["die"], ["answer"], ["act_die"])
    told: list[tuple[str, object]] = []

    class Counting(DirectStarter):
        async def start(self, options: Options, output: object) -> Session[Any]:
            session = await super().start(options, output)
            told.append(("start", session))
            return session

        async def stop(self, session: Session[Any]) -> None:
            told.append(("stop", session))
            await super().stop(session)

    with anyio.fail_after(DEADLINE):
        async with frail.session(starter=Counting()) as session:
            await session.ask("one")
            await session.park()
            await session.ask("two", check=False)
    assert [word for word, _ in told] == ["start", "stop"] * 4
    assert all(given is taken for (_, given), (_, taken) in zip(told[::2], told[1::2], strict=True))


@ONE_LOOP
@pytest.mark.parametrize(
    "fields, named",
    [
        ({"restart": 3}, "`restart`"),
        ({"retry": "always"}, "`retry`"),
        ({"gate": True}, "`gate`"),
        ({"budget": 5}, "`budget`"),
        ({"ledger": "ledger.db"}, "`ledger`"),
        ({"starter": 5}, "`starter`"),
        ({"clock": 0.5}, "`clock`"),
        ({"tags": ["a"]}, "`tags`"),
        ({"tags": {"a": 1}}, "`tags"),
        ({"model": 5}, "`model`"),
        ({"options": "opus"}, "`options`"),
    ],
    ids=str,
)
async def test_bad_values_are_refused_before_anything_starts(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(OptionsError) as raised:
        ResilientSession(**fields)
    assert named in str(raised.value)


@ONE_LOOP
async def test_what_cannot_be_sent_again_is_refused(simulated: Simulator) -> None:
    async def prompts() -> AsyncIterator[str]:
        yield "one"

    streams: tuple[Any, ...] = prompts(), iter(["one"])
    never: Any = "later"
    number: Any = 5
    with anyio.fail_after(DEADLINE):
        async with ResilientSession() as session:
            for stream in streams:
                with pytest.raises(UsageError, match="iterable"):
                    await session.send(stream)
            with pytest.raises(OptionsError, match="`until`"):
                await session.send("go", until=never)
            with pytest.raises(UsageError):
                await session.ask(number)
            assert (await session.ask(["a", "list"])).text == "done"


@ONE_LOOP
async def test_a_session_with_a_transport_cannot_be_parked() -> None:
    with anyio.fail_after(DEADLINE):
        async with ResilientSession(transport=Simulator([say("done")])) as session:
            assert (await session.ask("go")).text == "done"
            with pytest.raises(UsageError, match="transport"):
                await session.park()


async def check_types() -> None:
    """Read by type checkers, and never run."""
    assert_type(await ResilientSession().ask("a"), outrider.Result[Json])
    typed = ResilientSession(output=list[int])
    assert_type(await typed.ask("a"), outrider.Result[list[int]])
    async for message in await typed.send("a"):
        assert_type(message, Message | Restarted | Retrying)
