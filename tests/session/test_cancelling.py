"""Cancelling turns, whatever the agent makes of it, and messages that wait for it."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from typing import Any, cast

import anyio
import pytest
from anyio.lowlevel import checkpoint

from outrider.errors import ConnectionLost, OptionsError, TransportClosed, TurnInterrupted, UsageError
from outrider.options import Timeouts
from outrider.protocol import RequestReceived
from outrider.session import CancelReceipt, SessionState, Turn
from outrider.transports import Transport
from outrider.wire import AssistantMessage, ResultMessage
from tests.cases import every_case
from tests.session.acting import Actor, acting, check_usable
from tests.session.other_end import OtherEnd, lifecycle, playing, result, stream_event

pytestmark = pytest.mark.anyio

SOON = 0.1
"""A grace that is meant to pass."""

LATE = 30.0
"""One that is not, longer than any test takes."""


async def cancelled(turn: Turn, receipts: list[CancelReceipt], **options: Any) -> None:
    receipts.append(await turn.cancel(**options))


# Turns that run.


async def test_a_turn_that_runs_is_interrupted() -> None:
    actor = Actor()
    async with acting(actor) as session:
        turn = await session.send("a")
        await actor.begun()
        receipt = await turn.cancel()
        assert str(receipt) == receipt.outcome == "cancelled"
        assert receipt.result is not None
        assert receipt.result.terminal_reason == "aborted_streaming"
        assert actor.heard == ["interrupt"]
        with pytest.raises(TurnInterrupted) as caught:
            await turn.result()
        assert cast("Any", caught.value.result).text == "working"
        assert [type(message) for message in caught.value.messages][-2:] == [AssistantMessage, ResultMessage]
        assert (await turn.result(check=False)).is_success is False
        await check_usable(session, actor)


@pytest.mark.parametrize("ignored", [1, 6])
async def test_an_interrupt_that_came_too_early_is_repeated(ignored: int) -> None:
    actor = Actor(ignored=ignored)
    async with acting(actor) as session:
        turn = await session.send("a")
        receipt = await turn.cancel(grace=LATE)
        assert receipt.outcome == "cancelled"
        assert actor.heard.count("interrupt") == ignored + 1
        await check_usable(session, actor)


async def test_what_still_comes_does_not_bring_more_interrupts() -> None:
    actor = Actor()

    async def abort_slowly(asked: RequestReceived) -> None:
        await actor.end.answer(asked, still_queued=[])
        for number in range(50):
            await actor.end.say(stream_event(str(number)))
            await checkpoint()
            await checkpoint()
        await actor.abort()

    actor.on["interrupt"] = abort_slowly
    async with acting(actor) as session:
        turn = await session.send("a")
        await actor.begun()
        await turn.cancel(grace=LATE)
        # One, or one more on a slow machine.
        assert actor.heard.count("interrupt") < 5


async def test_an_answer_that_comes_first_counts() -> None:
    actor = Actor()

    async def finish(asked: RequestReceived) -> None:
        await actor.finish("in time")
        await actor.end.answer(asked, still_queued=[])

    actor.on["interrupt"] = finish
    async with acting(actor) as session:
        turn = await session.send("a")
        await actor.begun()
        receipt = await turn.cancel()
        assert receipt.outcome == "finished_first"
        assert receipt.result is not None
        assert receipt.result.result == "in time"
        assert (await turn.result()).text == "in time"


async def test_what_is_over_is_left_alone() -> None:
    actor = Actor()
    async with acting(actor) as session:
        done = await session.send("a")
        await actor.begun()
        await actor.finish()
        await done.result()
        assert (await done.cancel()).outcome == "finished_first"
        stopped = await session.send("b")
        await actor.begun(2)
        assert (await stopped.cancel()).outcome == "cancelled"
        assert (await stopped.cancel()).outcome == "finished_first"
        assert actor.heard == ["interrupt"]


async def test_two_at_once_get_the_same() -> None:
    actor = Actor()
    receipts: list[CancelReceipt] = []
    async with acting(actor) as session:
        turn = await session.send("a")
        await actor.begun()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cancelled, turn, receipts)
            tasks.start_soon(cancelled, turn, receipts)
        assert [receipt.outcome for receipt in receipts] == ["cancelled", "cancelled"]
        assert actor.heard == ["interrupt"]


async def test_the_less_patient_of_two_decides() -> None:
    actor = Actor(ignored=1000)
    receipts: list[CancelReceipt] = []
    async with acting(actor) as session:
        turn = await session.send("a")
        await actor.begun()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cancelled, turn, receipts)
            await actor.until(lambda: "interrupt" in actor.heard)
            await turn.cancel(grace=SOON)
        assert [receipt.outcome for receipt in receipts] == ["killed"]


@every_case("grace", [-1, math.nan, math.inf, "soon", 10**400], ids=lambda grace: str(grace)[:5])
async def test_a_grace_that_is_no_time_is_refused_and_changes_nothing(grace: Any) -> None:
    async with playing(lambda agent: agent.reply("done")) as session:
        turn = await session.send("go")
        with pytest.raises(OptionsError, match="`grace` must be a finite number of seconds"):
            await turn.cancel(grace=grace)
        assert (await turn.result()).text == "done"


async def test_it_goes_on_when_its_caller_is_cancelled() -> None:
    actor = Actor(ignored=1)
    async with acting(actor) as session:
        turn = await session.send("a")
        await actor.begun()
        with anyio.CancelScope() as scope:
            scope.cancel()
            await turn.cancel(grace=LATE)
        assert not turn.is_over
        with pytest.raises(TurnInterrupted):
            await turn.result()
        await check_usable(session, actor)


async def test_cancelling_ask_cancels_its_turn() -> None:
    actor = Actor()
    async with acting(actor) as session:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.ask, "a")
            await actor.begun()
            tasks.cancel_scope.cancel()
        await actor.until(lambda: not actor.current)
        assert actor.heard == ["interrupt"]
        await check_usable(session, actor)


async def test_cancelling_result_does_not() -> None:
    actor = Actor()
    async with acting(actor) as session:
        turn = await session.send("a")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(turn.result)
            await actor.begun()
            tasks.cancel_scope.cancel()
        await actor.finish()
        assert (await turn.result()).text == "done"
        assert actor.heard == []


# An agent that does not react.


async def test_an_agent_that_ignores_everything_is_ended() -> None:
    actor = Actor(ignored=1000)
    async with acting(actor) as session:
        turn = await session.send("a")
        other = await session.send("b")
        await actor.begun(2)
        receipt = await turn.cancel(grace=SOON)
        assert (receipt.outcome, receipt.result) == ("killed", None)
        assert actor.heard.count("interrupt") >= 1
        with pytest.raises(TurnInterrupted, match=r"did not stop within 0\.1 s") as caught:
            await turn.result()
        assert cast("Any", caught.value.result).text == "working"
        with pytest.raises(TransportClosed, match="did not stop within"):
            await other.result()
        assert session.state is SessionState.CLOSED
        with pytest.raises(TransportClosed, match="did not stop within"):
            await session.send("c")
        with pytest.raises(TransportClosed, match="did not stop within"):
            await session.interrupt()


async def test_an_agent_that_does_not_even_answer_is_ended() -> None:
    actor = Actor(is_eager=False)
    actor.on = dict.fromkeys(actor.on, actor.ignore)
    async with acting(actor) as session:
        turn = await session.send("a")
        assert (await turn.cancel(grace=SOON)).outcome == "killed"
        assert session.state is SessionState.CLOSED


async def test_the_limit_of_the_session_is_the_default() -> None:
    actor = Actor(ignored=1000)
    async with acting(actor, timeouts=Timeouts(interrupt=SOON)) as session:
        turn = await session.send("a")
        assert (await turn.cancel()).outcome == "killed"


async def test_an_agent_that_leaves_instead() -> None:
    actor = Actor()

    async def leave(_: RequestReceived) -> None:
        await actor.end.leave()

    actor.on["interrupt"] = leave
    async with acting(actor) as session:
        turn = await session.send("a")
        await actor.begun()
        assert (await turn.cancel(grace=LATE)).outcome == "killed"
        with pytest.raises(ConnectionLost, match="ended its output"):
            await turn.result()


class Unread(Transport):
    """What leads to an agent that at some point reads no more, as one that is stopped."""

    def __init__(self, way: Transport) -> None:
        self.way = way
        self.is_read = True
        self.is_closed = anyio.Event()

    async def connect(self) -> None:
        await self.way.connect()

    async def receive(self) -> bytes:
        return await self.way.receive()

    async def send(self, data: bytes) -> None:
        if not self.is_read:
            raise ConnectionLost("it has not read its input for a while")
        await self.way.send(data)

    async def end_input(self) -> None:
        await self.way.end_input()

    async def close(self) -> None:
        self.is_closed.set()
        await self.way.close()

    @property
    def is_ready(self) -> bool:
        return self.way.is_ready


async def test_an_agent_that_reads_no_more_is_ended() -> None:
    ways: list[Unread] = []

    def wrap(session: Any) -> None:
        ways.append(Unread(session.options.transport))
        session.options = session._conversation.options = session.options.replace(transport=ways[0])

    actor = Actor()
    async with playing(actor.play, prepare=wrap) as session:
        turn = await session.send("a")
        await actor.begun()
        ways[0].is_read = False
        assert (await turn.cancel(grace=SOON)).outcome == "killed"
        assert ways[0].is_closed.is_set()
        assert session.state is SessionState.CLOSED


# Turns that wait.


async def test_a_prompt_that_waits_is_taken_back_and_nothing_else() -> None:
    actor = Actor()
    async with acting(actor) as session:
        running, waiting = await session.send("a"), await session.send("b")
        await actor.begun(2)
        receipt = await waiting.cancel()
        assert (receipt.outcome, receipt.result) == ("cancelled", None)
        assert waiting.delivery == "withdrawn"
        assert actor.heard == ["cancel_async_message"]
        with pytest.raises(TurnInterrupted, match="taken back"):
            await waiting.result()
        await actor.finish("a")
        assert (await running.result()).text == "a"
        await check_usable(session, actor)


async def test_a_prompt_that_nothing_was_heard_of_is_taken_back() -> None:
    actor = Actor(is_eager=False)
    async with acting(actor) as session:
        turn = await session.send("a")
        assert (await turn.cancel()).outcome == "cancelled"
        assert actor.heard == ["cancel_async_message"]
        assert session.state is SessionState.IDLE
        await session.wait_idle()


@pytest.mark.parametrize("is_eager", [True, False], ids=["running", "not begun"])
async def test_the_turn_before_is_not_hit_where_nothing_can_be_taken_back(is_eager: bool) -> None:
    """Not by an interrupt, and not by the end of the agent, however long it takes."""
    actor = Actor(is_eager=is_eager)
    deadlines: list[float] = []

    async def refuse(asked: RequestReceived) -> None:
        deadlines.append(waiting._state.stopping.deadline)
        await actor.refuse(asked)

    actor.on["cancel_async_message"] = refuse
    receipts: list[CancelReceipt] = []
    async with acting(actor) as session:
        running, waiting = await session.send("a"), await session.send("b")
        await actor.until(lambda: len(actor.prompts) == 2)
        await actor.end.heard()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: cancelled(waiting, receipts, grace=LATE))
            await actor.until(lambda: len(actor.heard) == 3)
            # The grace begins anew with each try, however many there are.
            assert deadlines == sorted(set(deadlines))
            assert actor.heard == ["cancel_async_message"] * 3
            if not is_eager:
                await actor.begin()
            await actor.finish("a")
            if not is_eager:
                await actor.begin()
        assert [receipt.outcome for receipt in receipts] == ["cancelled"]
        assert (await running.result()).text == "a"
        assert actor.heard.count("interrupt") == 1


async def test_a_silent_agent_is_not_waited_for_on_account_of_the_turn_before() -> None:
    actor = Actor()
    actor.on = dict.fromkeys(actor.on, actor.ignore)
    async with acting(actor) as session:
        running, waiting = await session.send("a"), await session.send("b")
        await actor.begun(2)
        assert (await waiting.cancel(grace=SOON)).outcome == "killed"
        with pytest.raises(TransportClosed, match="did not stop"):
            await running.result()


async def test_prompts_that_run_as_one_turn_end_as_one() -> None:
    actor = Actor(is_eager=False)
    async with acting(actor) as session:
        one, two = await session.send("a"), await session.send("b")
        await actor.until(lambda: len(actor.prompts) == 2)
        await actor.begin(2)
        assert (await one.cancel()).outcome == "cancelled"
        with pytest.raises(TurnInterrupted):
            await two.result()
        assert (await two.cancel()).outcome == "finished_first"


# Turns of several prompts.


async def endless(first: str, *rest: str) -> AsyncIterator[str]:
    yield first
    for prompt in rest:
        yield prompt
    await anyio.sleep_forever()


async def test_an_iterable_that_waits_is_ended() -> None:
    actor = Actor()
    async with acting(actor) as session:
        turn = await session.send(endless("a"))
        await actor.begun()
        await actor.finish()
        await actor.until(lambda: not actor.current)
        receipt = await turn.cancel()
        assert receipt.outcome == "finished_first"
        assert (await turn.result()).text == "done"


async def test_what_is_left_of_several_prompts_is_taken_back() -> None:
    actor = Actor()
    async with acting(actor) as session:
        turn = await session.send(endless("a", "b"))
        await actor.until(lambda: len(actor.prompts) == 2)
        other = await session.send("c")
        await actor.until(lambda: len(actor.prompts) == 3)
        # The first one is answered, and another turn runs: an interrupt would hit that.
        actor.queue.sort(key=lambda uuid: uuid != other.uuid)
        await actor.finish("a")
        assert actor.current == [other.uuid]
        assert (await turn.cancel()).outcome == "cancelled"
        assert actor.heard == ["cancel_async_message"]
        await actor.finish("c")
        assert (await other.result()).text == "c"


async def test_a_turn_without_any_prompt_yet() -> None:
    async def never() -> AsyncIterator[str]:
        await anyio.sleep_forever()
        yield ""

    actor = Actor()
    async with acting(actor) as session:
        turn = await session.send(never())
        assert (await turn.cancel()).outcome == "cancelled"
        with pytest.raises(TurnInterrupted):
            await turn.result()
        await check_usable(session, actor)


# Sending that is cut short.


class Stuck(Unread):
    """Takes nothing for as long as it is stuck."""

    async def send(self, data: bytes) -> None:
        if not self.is_read:
            await anyio.sleep_forever()
        await self.way.send(data)


class Slow(Unread):
    """Takes it, and is slow to say so."""

    async def send(self, data: bytes) -> None:
        await self.way.send(data)
        if not self.is_read:
            await anyio.sleep_forever()


@pytest.mark.parametrize("kind, has_arrived", [(Stuck, False), (Slow, True)])
async def test_a_prompt_whose_sending_is_cancelled_leaves_no_turn(
    kind: type[Unread], has_arrived: bool
) -> None:
    """Whether the agent has got it, nobody knows. If it has, it is told to drop it."""
    ways: list[Unread] = []

    def wrap(session: Any) -> None:
        ways.append(kind(session.options.transport))
        session.options = session._conversation.options = session.options.replace(transport=ways[0])

    actor = Actor()
    async with playing(actor.play, prepare=wrap) as session:
        ways[0].is_read = False
        with anyio.move_on_after(0.01) as scope:
            await session.send("a")
        assert scope.cancelled_caught
        ways[0].is_read = True
        await session.wait_idle()
        assert session.state is SessionState.IDLE
        assert len(actor.prompts) == has_arrived
        assert ("interrupt" in actor.heard) is has_arrived
        await check_usable(session, actor)


# Messages that are added.


async def test_what_is_added_says_where_it_stands() -> None:
    actor = Actor()
    async with acting(actor) as session:
        turn = await session.send("a")
        await actor.begun()
        steered = await turn.steer("b")
        queued = await session.enqueue("c")
        await actor.until(lambda: len(actor.prompts) == 3)
        assert [prompt.priority for prompt in actor.prompts] == [None, "next", "later"]
        await until(steered, "queued")
        # Folded into the turn that runs.
        actor.queue.remove(steered.uuid)
        await actor.end.say(lifecycle(steered.uuid, "started"))
        await until(steered, "delivered")
        await actor.end.say(lifecycle(steered.uuid, "completed"))
        assert await steered.wait() == "consumed"
        assert not turn.is_over
        assert not await steered.withdraw()
        await actor.finish("both")
        assert [(await each.result()).text for each in (turn, steered.turn)] == ["both", "both"]
        # A turn of its own.
        await until(queued, "delivered")
        assert not await queued.withdraw()
        await actor.finish("c")
        assert await queued.wait() == "consumed"
        assert (await queued.turn.result()).text == "c"
        with pytest.raises(UsageError, match="turn is over"):
            await turn.steer("d")
        assert "interrupt" not in actor.heard


async def until(queued: Any, state: str) -> None:
    """Wait until a message stands there; it is moved by what the agent said already."""
    while queued.state != state:
        await anyio.wait_all_tasks_blocked()


async def test_what_waits_can_be_taken_back() -> None:
    actor = Actor()
    async with acting(actor) as session:
        turn = await session.send("a")
        await actor.begun()
        queued = await session.enqueue("b")
        assert await queued.withdraw()
        assert queued.state == await queued.wait() == "withdrawn"
        assert await queued.withdraw()
        assert actor.heard == ["cancel_async_message"]
        with pytest.raises(TurnInterrupted, match="taken back"):
            await queued.turn.result()
        await actor.finish()
        assert (await turn.result()).text == "done"


async def test_what_the_agent_takes_back_itself_is_withdrawn() -> None:
    actor = Actor()
    async with acting(actor) as session:
        await session.send("a")
        await actor.begun()
        queued = await session.enqueue("b")
        await actor.end.say(lifecycle(queued.uuid, "cancelled"))
        assert await queued.wait() == "withdrawn"


async def test_what_waits_is_lost_with_the_agent() -> None:
    actor = Actor()
    async with acting(actor) as session:
        turn = await session.send("a")
        await actor.begun()
        queued = await session.enqueue("b")
        steered = await turn.steer("c")
        await actor.end.leave()
        assert await queued.wait() == await steered.wait() == "lost"
        with pytest.raises(ConnectionLost, match="ended its output"):
            await queued.turn.result()


async def test_several_prompts_cannot_be_queued() -> None:
    async with acting(Actor()) as session:
        with pytest.raises(UsageError, match="iterable"):
            await session.enqueue(iter(["a", "b"]))


async def test_a_prompt_for_now_takes_the_place_of_the_turn_that_runs() -> None:
    async def play(agent: OtherEnd) -> None:
        one = (await agent.prompt()).uuid or ""
        await agent.say(lifecycle(one, "started"))
        urgent = await agent.prompt()
        assert urgent.priority == "now"
        # The agent does not call that an error.
        await agent.say(result(one, text="", terminal_reason="aborted_streaming"))
        await agent.say(result(urgent.uuid or "", text="now"))

    async with playing(play) as session:
        one = await session.send("a")
        now = await session.send("b", priority="now")
        assert (await now.result()).text == "now"
        with pytest.raises(TurnInterrupted, match="newer message"):
            await one.result()
