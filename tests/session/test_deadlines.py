"""Every turn ends: what each limit counts, and what happens past it, whatever the agent does."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from outrider.command import Command
from outrider.errors import ApiFailed, OutriderError, RequestTimedOut, TransportClosed, TurnTimedOut
from outrider.options import Timeouts
from outrider.protocol import MessageState, RequestAnswered, RequestReceived
from outrider.session import Session, SessionState, Turn
from outrider.session._connection.deadlines import deadline_of, patience
from outrider.session._streams.stream import Flow
from outrider.session._streams.turn_state import TurnState
from outrider.transports import ProcessTransport, Transport, memory_pair
from outrider.wire import JsonObject, Message, ResultMessage, encode, frame_from_wire
from tests.cases import every_case
from tests.session import stubborn
from tests.session.acting import Actor, acting, check_usable
from tests.session.other_end import (
    HostLeft,
    OtherEnd,
    answering,
    assistant,
    init,
    lifecycle,
    playing,
    result,
    retry,
    state,
    stream_event,
    tool_result,
)

SHORT = 0.1
"""A limit that is meant to pass."""

LONGER = 0.4
"""One that passes next, if the shorter one is not counted."""

NONE = dict.fromkeys(("first_event", "silence", "retries", "turn", "background"))


def only(**limits: float | None) -> Timeouts:
    """No limit for turns but these."""
    return Timeouts(**cast("dict[str, Any]", NONE | limits))


# The rule.


def message(frame: JsonObject) -> Message:
    return cast("Message", frame_from_wire(frame))


def waiting(turn: TurnState) -> None:
    turn.is_fed = False


def answered_in_part(turn: TurnState) -> None:
    turn.take(message(assistant()), 1.0)
    turn.uuids["1"] = MessageState.ANSWERED
    turn.is_fed = False


def prompted_again(turn: TurnState) -> None:
    answered_in_part(turn)
    turn.uuids["2"] = MessageState.SENT
    turn.prompted_at = 60.0


def taking(*frames: JsonObject) -> Callable[[TurnState], None]:
    def take(turn: TurnState) -> None:
        for at, frame in enumerate(frames, 1):
            turn.take(message(frame), float(at))

    return take


def moved_up(turn: TurnState) -> None:
    turn.front_at = 40.0


def behind(turn: TurnState) -> None:
    turn.front_at = None


LIMITS: dict[str, float | None] = {"first_event": 10.0, "silence": 20.0, "retries": 30.0, "turn": 100.0}
PRELIMINARY = (lifecycle("1", "queued"), lifecycle("1", "started"), state("running"), init("1"))
NO_SILENCE = LIMITS | {"silence": None}
RULES: dict[str, tuple[Callable[[TurnState], object], dict[str, Any], tuple[str, float] | None]] = {
    "sent": (taking(), {}, ("first_event", 10.0)),
    "announced": (taking(*PRELIMINARY), {"heard_at": 4.0}, ("first_event", 10.0)),
    "first sign": (taking(assistant()), {"heard_at": 5.0}, ("silence", 25.0)),
    "a piece": (taking(stream_event("a")), {"heard_at": 5.0}, ("silence", 25.0)),
    "excused": (taking(), {"is_excused": True}, ("turn", 100.0)),
    "excused after a sign": (taking(assistant()), {"is_excused": True}, ("turn", 100.0)),
    "kept waiting": (taking(), {"kept_until": 50.0}, ("first_event", 60.0)),
    "kept waiting after a sign": (
        taking(assistant()),
        {"heard_at": 5.0, "kept_until": 50.0},
        ("silence", 70.0),
    ),
    "tool open": (taking(assistant("ls", tool="t")), {"heard_at": 5.0}, ("turn", 100.0)),
    "tool of a subagent": (
        taking(assistant("ls", tool="t", parent_tool_use_id="p")),
        {"heard_at": 5.0},
        ("silence", 25.0),
    ),
    "one of two tools": (
        taking(assistant("ls", tool="t"), assistant("ls", tool="u"), tool_result("t")),
        {"heard_at": 5.0},
        ("turn", 100.0),
    ),
    "tool done": (taking(assistant("ls", tool="t"), tool_result("t")), {"heard_at": 9.0}, ("silence", 29.0)),
    "retry": (taking(retry(500)), {"heard_at": 1.0}, ("silence", 21.0)),
    "retries": (taking(retry(500), retry(500, 2)), {"limits": NO_SILENCE}, ("retries", 31.0)),
    "retries, excused": (taking(retry(500)), {"is_excused": True}, ("retries", 31.0)),
    "retried": (taking(retry(500), assistant()), {"heard_at": 2.0, "limits": NO_SILENCE}, ("turn", 100.0)),
    "behind another": (behind, {}, None),
    "moved up": (moved_up, {"heard_at": 39.0}, ("first_event", 50.0)),
    "no prompt yet": (waiting, {}, None),
    "prompts answered": (answered_in_part, {"heard_at": 1.0}, None),
    "prompted again": (prompted_again, {"heard_at": 1.0}, ("silence", 80.0)),
    "unlimited": (taking(), {"limits": {}}, None),
    "only a turn": (taking(assistant()), {"limits": {"turn": 100.0}}, ("turn", 100.0)),
}


@every_case("name", RULES)
def test_a_limit_counts_what_it_is_meant_to(name: str) -> None:
    prepare, facts, expected = RULES[name]
    turn = TurnState(Flow(), "result", 0.0)
    turn.front_at = 0.0
    prepare(turn)
    told: dict[str, Any] = {"heard_at": 0.0, "kept_until": 0.0, "is_excused": False, **facts}
    deadline = deadline_of(turn, only(**told.pop("limits", LIMITS)), **told)
    assert expected == (deadline and (deadline.which, deadline.at))
    assert deadline is None or deadline.seconds in LIMITS.values()


@pytest.mark.parametrize("which", NONE)
def test_deadlines_are_looked_at_before_any_can_have_passed(which: str) -> None:
    assert patience(only(**{which: 3.0})) == 3.0
    assert patience(only(**LIMITS | {which: 0.5})) == 0.5


def test_without_limits_nothing_is_looked_at() -> None:
    assert patience(only()) is None


# Past the limit, in memory.

OPENINGS: dict[str, list[JsonObject]] = {
    "first_event": [],
    "silence": [assistant("working")],
    "retries": [retry(529)],
    "turn": [assistant("working"), assistant("ls", tool="t")],
}


async def read_into(seen: list[object], turn: Turn) -> None:
    async for each in turn:
        seen.append(each)  # noqa: PERF401 - what came before an error counts


@pytest.mark.anyio
@every_case("which", OPENINGS)
async def test_a_turn_that_takes_too_long_is_interrupted(which: str) -> None:
    actor = Actor()
    actor.opening = OPENINGS[which]
    async with acting(actor, timeouts=only(**{which: SHORT})) as session:
        turn = await session.send("a")
        with pytest.raises(TurnTimedOut, match=f"`{which}` deadline of 0.1 s") as caught:
            await turn.result()
        error = caught.value
        assert (error.which, error.timeout, error.retryable) == (which, SHORT, True)
        assert len(error.messages) >= len(actor.opening)
        assert cast("Any", error.result).messages == tuple(turn.messages)
        assert cast("Any", error.result).terminal_reason == "aborted_streaming"
        assert actor.heard[-1] == "interrupt"
        # Whoever reads it learns that too, after the last message.
        seen: list[object] = []
        with pytest.raises(TurnTimedOut):
            await read_into(seen, turn)
        assert isinstance(seen[-1], ResultMessage)
        assert error.session_id == session.id
        actor.opening = [assistant("working")]
        await check_usable(session, actor)


@pytest.mark.anyio
@every_case("which", OPENINGS)
async def test_an_agent_that_ignores_the_interrupt_is_ended(which: str) -> None:
    actor = Actor(ignored=1000)
    actor.opening = OPENINGS[which]
    limits = only(**{which: SHORT}, interrupt=SHORT)
    async with acting(actor, timeouts=limits) as session:
        turn = await session.send("a")
        other = await session.send("b")
        with pytest.raises(TurnTimedOut) as caught:
            await read_into([], turn)
        assert caught.value.which == which
        assert len(caught.value.messages) >= len(actor.opening)
        with pytest.raises(TransportClosed, match="did not stop within"):
            await other.result()
        assert session.state is SessionState.CLOSED


@pytest.mark.anyio
async def test_an_agent_that_was_never_heard_of_again_is_ended() -> None:
    async def say_nothing(agent: OtherEnd) -> None:
        await agent.wait_ended()

    limits = only(first_event=SHORT, interrupt=SHORT)
    async with playing(say_nothing, timeouts=limits) as session:
        with pytest.raises(TurnTimedOut, match="first_event"):
            await session.ask("a")


@pytest.mark.anyio
async def test_an_answer_to_the_interrupt_counts() -> None:
    actor = Actor()

    async def finish(asked: RequestReceived) -> None:
        await actor.end.answer(asked, still_queued=[])
        await actor.finish("in time")

    actor.on["interrupt"] = finish
    async with acting(actor, timeouts=only(silence=SHORT)) as session:
        assert (await session.ask("a")).text == "in time"


class Piped(Transport):
    """What leads to an agent, with a pipe beside it for what it says later."""

    def __init__(self, way: Transport) -> None:
        self.way = way
        self.reading, self.writing = os.pipe()
        self.is_piped = False

    async def connect(self) -> None:
        await self.way.connect()

    async def receive(self) -> bytes:
        if not self.is_piped:
            return await self.way.receive()
        await anyio.wait_readable(self.reading)
        return os.read(self.reading, 65536)

    async def send(self, data: bytes) -> None:
        await self.way.send(data)

    async def end_input(self) -> None:
        await self.way.end_input()

    async def close(self) -> None:
        if self.writing >= 0:
            os.close(self.writing)
            self.writing = -1
        await self.way.close()

    @property
    def is_ready(self) -> bool:
        return self.way.is_ready


@pytest.mark.anyio
@pytest.mark.parametrize("which", ["first_event", "silence"])
async def test_what_has_come_when_the_deadline_passes_is_read_first(which: str) -> None:
    """The loop was blocked, and finds both at once, in any order: hence more than once."""
    # Long enough for a busy machine to get from one step to the next.
    limit = 0.4
    agent = OtherEnd()
    way = Piped(agent.transport)

    async def play() -> None:
        with suppress(HostLeft):
            await agent.open()
            way.is_piped = True
            # Whoever waits at the other way is sent to the new one.
            await agent.write(b"\n")
            while True:
                uuid = (await agent.prompt()).uuid or ""
                os.write(way.writing, b"".join(encode(frame) + b"\n" for frame in (init(uuid), assistant())))
                time.sleep(limit * 1.2)  # noqa: ASYNC251 - that is the point
                await anyio.sleep(limit / 8)
                os.write(way.writing, encode(result(uuid)) + b"\n")

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(play)
            async with Session(transport=way, timeouts=only(**{which: limit})) as session:
                for _ in range(4):
                    assert (await session.ask("a")).text == "done"
    os.close(way.reading)


# What is not counted.


@pytest.mark.anyio
@pytest.mark.parametrize("first", [True, False], ids=["first event", "silence"])
async def test_time_is_not_counted_while_the_agent_waits_for_us(first: bool) -> None:
    is_answered: list[float] = []

    async def hook(_: object) -> None:
        await anyio.sleep(LONGER)
        is_answered.append(anyio.current_time())

    async def play(agent: OtherEnd) -> None:
        uuid = (await agent.prompt()).uuid or ""
        await agent.say(init(uuid), *([] if first else [assistant()]))
        await agent.ask("hook_callback", callback_id="h", input={})
        assert isinstance(await agent.next(), RequestAnswered)
        asked = await agent.asked("interrupt")
        await agent.answer(asked, still_queued=[])
        await agent.say(result(uuid, text="", terminal_reason="aborted_streaming"))

    which = "first_event" if first else "silence"
    prepare = answering(hook_callback=hook)
    async with playing(play, prepare=prepare, timeouts=only(**{which: SHORT})) as session:
        with pytest.raises(TurnTimedOut, match=which):
            await session.ask("a")
        # It counts from the answer on.
        assert anyio.current_time() - is_answered[0] >= SHORT


@pytest.mark.anyio
@pytest.mark.parametrize("opening", [[assistant("ls", tool="t")], [retry(500), assistant("ls", tool="t")]])
async def test_silence_is_not_counted_while_a_tool_is_open(opening: list[JsonObject]) -> None:
    actor = Actor()
    actor.opening = opening
    async with acting(actor, timeouts=only(silence=SHORT, turn=LONGER)) as session:
        with pytest.raises(TurnTimedOut) as caught:
            await session.ask("a")
        assert caught.value.which == "turn"


@pytest.mark.anyio
async def test_silence_counts_again_when_the_tool_is_done() -> None:
    actor = Actor()
    actor.opening = [assistant("ls", tool="t"), tool_result("t")]
    async with acting(actor, timeouts=only(silence=SHORT, turn=30.0)) as session:
        with pytest.raises(TurnTimedOut) as caught:
            await session.ask("a")
        assert caught.value.which == "silence"


@pytest.mark.anyio
@pytest.mark.parametrize("noise", [{"type": "keep_alive"}, None], ids=["keep_alive", "answers"])
async def test_what_says_nothing_about_the_turn_is_silence(noise: JsonObject | None) -> None:
    actor = Actor()

    async def status(asked: RequestReceived) -> None:
        await actor.end.answer(asked)

    async def make_noise(session: Session) -> None:
        while True:
            await anyio.sleep(SHORT / 4)
            if noise is not None:
                await actor.end.say(noise)
            else:
                await session.request("get_status")

    actor.on["get_status"] = status
    async with acting(actor, timeouts=only(silence=SHORT)) as session, anyio.create_task_group() as tasks:
        turn = await session.send("a")
        tasks.start_soon(make_noise, session)
        with pytest.raises(TurnTimedOut, match="silence"):
            await turn.result()
        tasks.cancel_scope.cancel()


@pytest.mark.anyio
async def test_a_long_message_that_comes_in_pieces_is_no_silence() -> None:
    actor = Actor()
    async with acting(actor, timeouts=only(silence=SHORT * 2)) as session:
        turn = await session.send("a")
        await actor.begun()
        await actor.end.write(b'{"type":"assistant_to_come","text":"')
        for _ in range(10):
            await anyio.sleep(SHORT / 2)
            await actor.end.write(b"x" * 1000)
        await actor.end.write(b'"}\n')
        await actor.finish()
        assert (await turn.result()).text == "done"


@pytest.mark.anyio
async def test_time_is_not_counted_while_nobody_reads() -> None:
    actor = Actor()

    def prepare(session: Session) -> None:
        session._conversation.budget = 5000

    # The other one has the clock looked at often.
    limits = only(silence=LONGER, background=0.02)
    async with acting(actor, prepare=prepare, timeouts=limits) as session, anyio.create_task_group() as tasks:
        turn = await session.send("a")
        await actor.begun()
        await actor.end.say(*(stream_event("x" * 100) for _ in range(100)))
        while not session._conversation.opened().reading.is_paused:
            await anyio.wait_all_tasks_blocked()
        await anyio.sleep(LONGER * 1.5)
        assert not turn.is_over
        # From now on it counts, and not what has passed.
        tasks.start_soon(turn.result)
        await anyio.sleep(LONGER / 4)
        await actor.finish()
        assert (await turn.result()).text == "done"
        assert actor.heard == []


@pytest.mark.anyio
async def test_a_turn_behind_another_has_no_deadline() -> None:
    actor = Actor()
    async with acting(actor, timeouts=only(first_event=SHORT)) as session:
        long, waiting = await session.send("a"), await session.send("b")
        await actor.begun(2)
        actor.opening = []
        await anyio.sleep(LONGER)
        assert not waiting.is_over
        await actor.finish()
        assert (await long.result()).text == "done"
        # Now it has one.
        with pytest.raises(TurnTimedOut, match="first_event"):
            await waiting.result()


@pytest.mark.anyio
async def test_a_turn_that_was_overtaken_has_no_deadline() -> None:
    actor = Actor(is_eager=False)
    async with acting(actor, timeouts=only(first_event=SHORT)) as session:
        later = await session.enqueue("a")
        first = await session.send("b")
        await actor.until(lambda: len(actor.prompts) == 2)
        actor.queue.reverse()
        await actor.begin()
        await anyio.sleep(LONGER)
        assert not later.turn.is_over
        await actor.finish("b")
        await actor.begin()
        await actor.finish("a")
        assert [(await turn.result()).text for turn in (first, later.turn)] == ["b", "a"]


@pytest.mark.anyio
async def test_a_turn_moves_up_when_the_one_before_it_is_taken_back() -> None:
    actor = Actor(is_eager=False)
    async with acting(actor, timeouts=only(first_event=LONGER)) as session:
        first, second = await session.send("a"), await session.send("b")
        assert (await first.cancel()).outcome == "cancelled"
        with pytest.raises(TurnTimedOut, match="first_event"):
            await second.result()


@pytest.mark.anyio
async def test_a_turn_behind_work_of_the_agents_own_ends_too() -> None:
    actor = Actor(is_eager=False)
    async with acting(actor, timeouts=only(first_event=SHORT, silence=SHORT, turn=LONGER)) as session:
        await actor.end.say(lifecycle("of another", "completed"), init(), assistant("a task has ended"))
        with pytest.raises(TurnTimedOut) as caught:
            await session.ask("a")
        assert caught.value.which == "turn"
        assert actor.heard == ["cancel_async_message"]


@pytest.mark.anyio
async def test_work_of_the_agents_own_is_not_counted() -> None:
    actor = Actor(is_eager=False)
    async with acting(actor, timeouts=only(first_event=SHORT, silence=SHORT, turn=LONGER)) as session:
        turn = await session.send("a")
        await actor.until(lambda: len(actor.prompts) == 1)
        await actor.end.say(init(), assistant("a task has ended"))
        await anyio.sleep(LONGER / 2)
        await actor.end.say(result(origin={"kind": "task-notification"}))
        await actor.begin()
        await actor.finish()
        assert (await turn.result()).text == "done"


@pytest.mark.anyio
async def test_a_turn_that_waits_for_its_prompts_has_no_deadline() -> None:
    actor = Actor()

    async def prompts() -> AsyncIterator[str]:
        for prompt in "ab":
            await anyio.sleep(LONGER)
            yield prompt

    async with acting(actor, timeouts=only(first_event=SHORT, silence=SHORT, turn=SHORT * 2)) as session:
        turn = await session.send(prompts())
        for count in (1, 2):
            await actor.begun(count)
            await actor.finish(str(count))
        assert (await turn.result()).text == "2"


# Retries.


@pytest.mark.anyio
async def test_a_wrong_key_is_not_tried_for_minutes(caplog: pytest.LogCaptureFixture) -> None:
    actor = Actor()
    actor.opening = [retry(401)]
    async with acting(actor) as session:
        with pytest.raises(ApiFailed) as caught:
            await session.ask("a")
        assert (caught.value.status, caught.value.kind) == (401, "authentication_failed")
        assert not caught.value.retryable
        assert caught.value.messages
        assert cast("Any", caught.value.result).terminal_reason == "aborted_streaming"
        assert caught.value.session_id == session.id
        # From the first one on: nobody waits for minutes without knowing why.
        assert "the API failed (401), and Claude Code tries again: 1 of 10" in caplog.text
        actor.opening = []
        await check_usable(session, actor)


@pytest.mark.anyio
@every_case("give_up_on, status", [((), 401), ((401,), 500), ((401,), None), ((529,), 401)])
async def test_other_failures_are_tried_again(give_up_on: tuple[int, ...], status: int | None) -> None:
    actor = Actor()
    actor.opening = [retry(status), assistant("better")]
    async with acting(actor, give_up_on=give_up_on) as session:
        turn = await session.send("a")
        await actor.begun()
        await actor.finish()
        assert (await turn.result()).text == "done"
        assert actor.heard == []


@pytest.mark.anyio
async def test_giving_up_hits_the_turn_that_is_tried() -> None:
    """Also where it comes with the end of the turn before."""

    async def play(agent: OtherEnd) -> None:
        one, two = [(await agent.prompt()).uuid or "" for _ in range(2)]
        await agent.say(init(one), assistant(), result(one), init(two), retry(401))
        await agent.answer(await agent.asked("interrupt"), still_queued=[])
        await agent.say(result(two, terminal_reason="aborted_streaming"))

    async with playing(play) as session:
        one, two = await session.send("a"), await session.send("b")
        assert (await one.result()).text == "done"
        with pytest.raises(ApiFailed):
            await two.result()


@pytest.mark.anyio
async def test_all_that_runs_as_one_turn_fails_for_the_same_reason() -> None:
    actor = Actor(is_eager=False)
    actor.opening = [retry(401)]
    async with acting(actor) as session:
        turns = [await session.send("a"), await session.send("b")]
        await actor.until(lambda: len(actor.prompts) == 2)
        await actor.begin(2)
        for turn in turns:
            with pytest.raises(ApiFailed):
                await turn.result()


@pytest.mark.anyio
async def test_giving_up_on_an_agent_that_ignores_it() -> None:
    actor = Actor(ignored=1000)
    actor.opening = [retry(401)]
    async with acting(actor, timeouts=Timeouts(interrupt=SHORT)) as session:
        with pytest.raises(ApiFailed):
            await session.ask("a")
        assert session.state is SessionState.CLOSED


# Work in the background, and requests.


@pytest.mark.anyio
async def test_work_in_the_background_is_waited_for_only_so_long() -> None:
    task = {"type": "system", "subtype": "task_started", "task_id": "t1", "task_type": "local_agent"}
    task |= {"description": "dig", "uuid": "1", "session_id": "2"}
    actor = Actor()
    actor.opening = [state("running"), task, assistant("begun")]
    # The other limits are far off: this one has to be seen in time all the same.
    async with acting(actor, timeouts=Timeouts(background=SHORT)) as session:
        turn = await session.send("a", until="idle")
        await actor.begun()
        await actor.finish("begun")
        done = await turn.result()
        assert done.text == "begun"
        assert [task.id for task in done.unfinished_tasks] == ["t1"]
        assert actor.heard == []
        actor.opening = []
        await check_usable(session, actor)


@pytest.mark.anyio
@pytest.mark.parametrize("limit", [None, SHORT], ids=["the session's", "its own"])
async def test_a_request_is_waited_for_only_so_long(limit: float | None) -> None:
    actor = Actor()
    actor.on["get_status"] = actor.ignore
    control = SHORT if limit is None else 30.0
    options = {} if limit is None else {"timeout": limit}
    async with acting(actor, timeouts=Timeouts(control=control)) as session:
        with pytest.raises(RequestTimedOut, match=r"get_status` within 0\.1 s") as caught:
            await session.request("get_status", **options)
        assert isinstance(caught.value, TimeoutError)
        assert caught.value.retryable
        await check_usable(session, actor)


@pytest.mark.anyio
async def test_an_agent_that_never_gets_ready_is_given_up() -> None:
    transport, other = memory_pair()
    await other.connect()
    with anyio.fail_after(10), pytest.raises(RequestTimedOut, match="initialize"):
        await Session(transport=transport, timeouts=Timeouts(connect=SHORT)).connect()
    with pytest.raises(TransportClosed):
        await other.send(b"{}\n")


class Unreachable(Transport):
    """One that never connects."""

    def __init__(self) -> None:
        self.is_closed = False

    async def connect(self) -> None:
        await anyio.sleep_forever()

    async def receive(self) -> bytes:
        raise NotImplementedError

    async def send(self, data: bytes) -> None:
        raise NotImplementedError

    async def end_input(self) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        self.is_closed = True

    @property
    def is_ready(self) -> bool:
        return False


@pytest.mark.anyio
async def test_a_transport_that_never_connects_is_given_up() -> None:
    transport = Unreachable()
    session = Session(transport=transport, timeouts=Timeouts(connect=SHORT))
    with anyio.fail_after(10), pytest.raises(RequestTimedOut, match="did not connect"):
        await session.connect()
    assert transport.is_closed


# Past the limit, with real programs.


def stubborn_agent(*arguments: str) -> ProcessTransport:
    command = Command((sys.executable, "-I", "-S", str(Path(stubborn.__file__)), *arguments))
    return ProcessTransport(command, grace=0.2, terminate=0.2)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


STAGES: dict[str, tuple[tuple[str, ...], int]] = {
    "ends at the end of its input": (("eof",), stubborn.EOF_CODE),
    "ends at SIGTERM": (("sigterm",), stubborn.SIGTERM_CODE),
    "ends by SIGKILL": (("kill",), -signal.SIGKILL),
    "is stopped": (("sigterm", "stops"), stubborn.SIGTERM_CODE),
    "floods": (("sigterm", "floods"), stubborn.SIGTERM_CODE),
    "floods and ignores SIGTERM": (("kill", "floods"), -signal.SIGKILL),
}


@pytest.mark.anyio
async def test_a_program_that_obeys_goes_on() -> None:
    transport = stubborn_agent("interrupt")
    with anyio.fail_after(30):
        async with Session(transport=transport, timeouts=only(silence=SHORT)) as session:
            for _ in range(2):
                with pytest.raises(TurnTimedOut, match="silence"):
                    await session.ask("work")
            assert (await session.ask("answer")).text == "done"
    assert transport.returncode == stubborn.EOF_CODE


@pytest.mark.anyio
@pytest.mark.parametrize("stage", STAGES)
async def test_no_program_outlives_its_last_limit(stage: str) -> None:
    arguments, code = STAGES[stage]
    transport = stubborn_agent(*arguments)
    which = "turn" if "floods" in arguments else "silence"
    timeouts = only(**{which: 0.2}, interrupt=0.2)
    with anyio.fail_after(30):
        async with Session(transport=transport, timeouts=timeouts) as session:
            pid = session.pid
            assert pid is not None
            with pytest.raises(TurnTimedOut, match=which) as caught:
                await session.ask("work")
            assert caught.value.messages
            # Before the session is closed by its user.
            assert not is_running(pid)
            assert session.state is SessionState.CLOSED
            with pytest.raises(OutriderError, match="did not stop within"):
                await session.send("more")
    assert transport.returncode == code


@pytest.mark.anyio
async def test_a_program_whose_answer_waits_while_the_loop_is_blocked_is_in_time() -> None:
    transport = stubborn_agent("interrupt")
    with anyio.fail_after(30):
        async with Session(transport=transport, timeouts=only(turn=SHORT)) as session:
            turn = await session.send("answer")
            time.sleep(SHORT * 2)  # noqa: ASYNC251 - that is the point
            assert (await turn.result()).text == "done"
