"""Faults are applied where they were planned, told, and can be repeated; all else goes through as it was."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import pairwise
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.command import Command
from outrider.errors import ConnectionLost, OptionsError, ProcessExited, TransportClosed, TurnTimedOut
from outrider.options import Timeouts
from outrider.session import Session
from outrider.testing import Fault, Faults, Faulty
from outrider.testing._faults import KINDS, Mangler, Pause
from outrider.transports import MemoryTransport, ProcessTransport, Transport, memory_pair
from outrider.wire import AssistantMessage, MalformedLine, UnknownMessage, UserMessage
from tests.cases import every_case
from tests.session.other_end import HostLeft, OtherEnd, turn

FRAMES = [b'{"n":%d,"text":"\xe2\x82\xac%s"}\n' % (number, b"x" * number) for number in range(1, 9)]
DATA = b"".join(FRAMES)

any_faults: Any = Faults
any_faulty: Any = Faulty
"""Taken with what their types forbid."""


def mangled(
    faults: Faults, seed: int = 1, chunks: list[bytes] | None = None
) -> tuple[list[Any], list[Fault]]:
    done: list[Fault] = []
    mangler = Mangler(faults, seed, "inbound", done)
    steps = [step for chunk in chunks or [DATA] for step in mangler.feed(chunk)]
    return [*steps, *mangler.flush()], done


def passed(steps: list[Any]) -> bytes:
    return b"".join(step for step in steps if isinstance(step, bytes))


# What faults do to bytes.


@every_case(
    "faults, expected, kinds",
    [
        pytest.param(Faults(), FRAMES, [], id="none"),
        pytest.param(Faults(drop={2, 4}), [FRAMES[0], FRAMES[2], *FRAMES[4:]], ["drop"] * 2, id="drop"),
        pytest.param(Faults(drop=1.0), [], ["drop"] * 8, id="drop all"),
        pytest.param(Faults(duplicate={8}), [*FRAMES, FRAMES[7]], ["duplicate"], id="duplicate"),
        pytest.param(Faults(reorder={1}), [FRAMES[1], FRAMES[0], *FRAMES[2:]], ["reorder"], id="reorder"),
        pytest.param(Faults(reorder={8}), FRAMES, ["reorder"], id="reorder the last"),
        pytest.param(Faults(kill={3}), FRAMES[:2], ["kill"], id="kill at a frame"),
        pytest.param(Faults(kill_at_byte=len(FRAMES[0])), FRAMES[:1], ["kill"], id="kill at a byte"),
        pytest.param(Faults(kill_at_byte=5), [FRAMES[0][:5]], ["kill"], id="kill inside a frame"),
        pytest.param(Faults(kill_at_byte=0), [], ["kill"], id="kill at the first byte"),
        pytest.param(Faults(kill_at_byte=10**6), FRAMES, [], id="kill too late"),
    ],
)
def test_a_fault_changes_the_frames_that_it_strikes(
    faults: Faults, expected: list[bytes], kinds: list[str]
) -> None:
    steps, done = mangled(faults)
    assert passed(steps) == b"".join(expected)
    assert [fault.kind for fault in done] == kinds


def test_splitting_cuts_frames_inside_a_character_and_loses_nothing() -> None:
    steps, done = mangled(Faults(split={2}))
    assert passed(steps) == DATA
    assert len(steps) >= 2
    assert any(step[0] & 0xC0 == 0x80 for step in steps)
    assert [fault.kind for fault in done] == ["split"]


def test_a_truncated_frame_is_the_beginning_of_itself() -> None:
    ends: set[bool] = set()
    for seed in range(20):
        steps, done = mangled(Faults(truncate={3}), seed)
        rest = passed(steps).removeprefix(b"".join(FRAMES[:2])).removesuffix(b"".join(FRAMES[3:]))
        assert len(rest.rstrip(b"\n")) < len(FRAMES[2]) - 1
        assert FRAMES[2].startswith(rest.rstrip(b"\n"))
        assert str(len(rest.rstrip(b"\n"))) in done[0].detail
        ends.add(rest.endswith(b"\n"))
    assert ends == {True, False}


def test_noise_and_large_frames_are_lines_of_their_own() -> None:
    steps, done = mangled(Faults(noise={1}, oversize={2}, oversize_bytes=100))
    first, second = passed(steps).split(FRAMES[0])
    assert first.endswith(b"\n")
    assert repr(first) == done[0].detail
    large = second.removesuffix(b"".join(FRAMES[1:]))
    assert len(large) == 101
    assert large.endswith(b"\n")


def test_waits_stand_before_their_frame() -> None:
    steps, _ = mangled(Faults(delay={2}, delay_seconds=1.5, stall={3}))
    assert steps == [FRAMES[0], Pause(1.5), FRAMES[1], Pause(None), b"".join(FRAMES[2:])]


ALL = any_faults(**dict.fromkeys([kind for kind in KINDS if kind != "kill"], 0.5), kill={7})


@given(st.integers(), st.lists(st.integers(0, len(DATA)), max_size=8))
def test_what_happens_follows_from_the_seed_and_not_from_the_chunks(seed: int, cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(DATA)]
    chunks = [DATA[start:end] for start, end in pairwise(edges)]
    whole, told = mangled(ALL, seed)
    pieces, told_again = mangled(ALL, seed, chunks)
    assert told == told_again
    assert passed(whole) == passed(pieces)


def test_other_seeds_do_other_things() -> None:
    assert len({tuple(map(str, mangled(ALL, seed)[1])) for seed in range(50)}) == 50


# What makes no sense.


@every_case(
    "make, words",
    [
        (lambda: any_faults(drop=1.5), "`drop` is 1.5"),
        (lambda: any_faults(drop=-0.1), "`drop` is -0.1"),
        (lambda: any_faults(drop=1), "1.0 is every frame"),
        (lambda: any_faults(drop=True), "`drop` is True"),
        (lambda: any_faults(drop="all"), "`drop` is 'all'"),
        (lambda: any_faults(split={0}), "numbers of frames"),
        (lambda: any_faults(split=[2, True]), "not all numbers of frames"),
        (lambda: any_faults(noise=float("nan")), "`noise` is nan"),
        (lambda: any_faults(kill_at_byte=-1), "`kill_at_byte` is -1"),
        (lambda: any_faults(kill_at_byte=1.5), "number of bytes"),
        (lambda: any_faults(delay_seconds=-1), "`delay_seconds` is -1"),
        (lambda: any_faults(stall_seconds=float("inf")), "`stall_seconds` is inf"),
        (lambda: any_faults(oversize_bytes=0), "`oversize_bytes` is 0"),
        (lambda: any_faulty(None), "not a transport"),
        (lambda: any_faulty(memory_pair()[0], seed="x"), "`seed` is 'x'"),
        (lambda: any_faulty(memory_pair()[0], inbound=0.5), "`inbound` is 0.5"),
        (lambda: any_faulty.random(memory_pair()[0], 1, kinds=["explode"]), "Choose from kill"),
        (lambda: any_faulty.random(memory_pair()[0], 1, kinds=[]), "`kinds` is []"),
    ],
    ids=str.split("""
        over_one below_none one yes text zero not_a_number no_number before_the_start half_a_byte
        negative_delay endless no_bytes no_transport no_seed no_plan unknown_kind no_kind
    """),
)
def test_what_makes_no_sense_is_refused(make: Callable[[], object], words: str) -> None:
    with pytest.raises(OptionsError, match=words.replace("[", r"\[")):
        make()


# On the way.


class Wrapper(Transport):
    """Another transport, as it is."""

    def __init__(self, inner: Transport) -> None:
        self.inner = inner

    async def connect(self) -> None:
        await self.inner.connect()

    async def receive(self) -> bytes:
        return await self.inner.receive()

    async def send(self, data: bytes) -> None:
        await self.inner.send(data)

    async def end_input(self) -> None:
        await self.inner.end_input()

    async def close(self) -> None:
        await self.inner.close()

    @property
    def is_ready(self) -> bool:
        return self.inner.is_ready


@asynccontextmanager
async def ends(
    make: Callable[[Transport], Faulty], deadline: float = 10
) -> AsyncGenerator[tuple[Faulty, MemoryTransport]]:
    inner, agent = memory_pair()
    host = make(inner)
    with anyio.fail_after(deadline):
        for end in (host, agent):
            await end.connect()
        yield host, agent
        await host.close()
        await agent.close()


async def receive_all(transport: Transport) -> tuple[bytes, Exception | None]:
    received = b""
    try:
        while data := await transport.receive():
            received += data
    except ConnectionLost as error:
        return received, error
    return received, None


@pytest.mark.anyio
async def test_without_faults_everything_goes_through_as_it_comes() -> None:
    async with ends(Faulty) as (host, agent):
        await agent.send(b"half a ")
        assert await host.receive() == b"half a "
        await host.send(b"line")
        assert await agent.receive() == b"line"
        ready = [host.is_ready]
        await host.end_input()
        assert [*ready, host.is_ready] == [True, False]
        assert await agent.receive() == b""
        await agent.close()
        assert [await host.receive(), await host.receive()] == [b"", b""]
        assert host.exit_error is None
        assert host.done == []


@pytest.mark.anyio
async def test_faults_strike_in_the_direction_chosen() -> None:
    plan = Faults(drop={1})
    async with ends(lambda inner: Faulty(inner, seed=1, inbound=plan)) as (host, agent):
        for frame in FRAMES[:2]:
            await host.send(frame)
            await agent.send(frame)
        assert await host.receive() == FRAMES[1]
        assert await agent.receive() == FRAMES[0]
    async with ends(lambda inner: Faulty(inner, seed=1, outbound=plan)) as (host, agent):
        for frame in FRAMES[:2]:
            await host.send(frame)
            await agent.send(frame)
        assert await host.receive() == FRAMES[0]
        assert await agent.receive() == FRAMES[1]
        assert "seed=1, outbound=Faults(drop=frozenset({1})); done: outbound 1: drop" in repr(host)


@pytest.mark.anyio
async def test_the_end_brings_what_was_held_back() -> None:
    plan = Faults(reorder={1}, delay_seconds=60)
    async with ends(lambda inner: Faulty(inner, inbound=plan, outbound=plan)) as (host, agent):
        await agent.send(FRAMES[0] + b"no line end")
        await agent.end_input()
        assert await receive_all(host) == (b"no line end" + FRAMES[0], None)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(host.send, FRAMES[0])
            await anyio.wait_all_tasks_blocked()
            await host.end_input()
            tasks.cancel_scope.cancel()
        assert await receive_all(agent) == (FRAMES[0], None)


@pytest.mark.anyio
async def test_a_frame_that_nothing_overtakes_comes_late() -> None:
    plan = Faults(reorder={1}, delay_seconds=0.01)
    async with ends(lambda inner: Faulty(inner, inbound=plan, outbound=plan)) as (host, agent):
        await agent.send(FRAMES[0])
        assert await host.receive() == FRAMES[0]
        await host.send(FRAMES[0])
        assert await agent.receive() == FRAMES[0]


@pytest.mark.anyio
async def test_a_frame_is_overtaken_by_what_another_task_sends() -> None:
    plan = Faults(reorder={1}, delay_seconds=60)
    make = partial(Faulty, outbound=plan)
    async with ends(make) as (host, agent), anyio.create_task_group() as tasks:
        tasks.start_soon(host.send, FRAMES[0])
        await anyio.wait_all_tasks_blocked()
        await host.send(FRAMES[1])
        assert await agent.receive() == FRAMES[1] + FRAMES[0]
        tasks.cancel_scope.cancel()


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["delay", "stall"])
async def test_a_wait_passes(kind: str) -> None:
    plan = any_faults(**{kind: {1}, f"{kind}_seconds": 0.01})
    async with ends(lambda inner: Faulty(inner, inbound=plan, outbound=plan)) as (host, agent):
        await agent.send(DATA)
        assert await host.receive() == DATA
        await host.send(DATA)
        assert await agent.receive() == DATA


@pytest.mark.anyio
async def test_waiting_for_what_is_late_can_be_cancelled_and_loses_nothing() -> None:
    plan = Faults(delay={1}, delay_seconds=0.2, split=1.0)
    async with ends(lambda inner: Faulty(inner, seed=1, inbound=plan)) as (host, agent):
        await agent.send(DATA)
        received = b""
        while len(received) < len(DATA):
            with anyio.move_on_after(0.01):
                received += await host.receive()
        assert received == DATA


@pytest.mark.anyio
async def test_a_stalled_direction_ends_when_it_is_closed() -> None:
    plan = Faults(stall={2})
    async with ends(lambda inner: Faulty(inner, inbound=plan, outbound=plan)) as (host, agent):
        told: list[Exception | None] = []

        async def send() -> None:
            try:
                await host.send(FRAMES[1])
            except TransportClosed as error:
                told.append(error)

        async def receive() -> None:
            told.append((await receive_all(host))[1])

        await host.send(FRAMES[0])
        await agent.send(DATA)
        assert await host.receive() == FRAMES[0]
        async with anyio.create_task_group() as tasks:
            for wait in (send, send, receive):
                tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            assert told == []
            assert await agent.receive() == FRAMES[0]
            await host.close()
        assert [type(error) for error in told] == [TransportClosed] * 3
        assert await agent.receive() == b""


@pytest.mark.anyio
async def test_a_stalled_send_can_be_cancelled_and_has_sent_nothing() -> None:
    async with ends(lambda inner: Faulty(inner, outbound=Faults(stall={1}))) as (host, agent):
        with anyio.move_on_after(0.01):
            await host.send(FRAMES[0])
        await host.send(FRAMES[1])
        assert await agent.receive() == FRAMES[1]


class SlowPair(Wrapper):
    """Takes its time for each piece."""

    async def send(self, data: bytes) -> None:
        await anyio.sleep(0.01)
        await super().send(data)


@pytest.mark.anyio
async def test_a_frame_in_pieces_is_sent_whole_also_if_the_sender_is_cancelled() -> None:
    plan = Faults(split=1.0)
    async with ends(lambda inner: Faulty(SlowPair(inner), seed=1, outbound=plan)) as (host, agent):
        for _ in range(5):
            with anyio.move_on_after(0.005) as scope:
                await host.send(FRAMES[0])
            assert scope.cancelled_caught
        await host.end_input()
        assert await receive_all(agent) == (FRAMES[0] * 5, None)


@pytest.mark.anyio
async def test_pieces_that_nobody_takes_do_not_hold_up_a_cancelled_sender(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Stuck(Wrapper):
        async def send(self, data: bytes) -> None:
            await anyio.sleep_forever()

    monkeypatch.setattr("outrider.testing._faults._PIECES_SECONDS", 0.01)
    async with ends(lambda inner: Faulty(Stuck(inner), seed=1, outbound=Faults(split=1.0))) as (host, _):
        with anyio.move_on_after(0.01) as scope:
            await host.send(FRAMES[0])
        assert scope.cancelled_caught


@pytest.mark.anyio
async def test_a_failure_between_pieces_is_raised() -> None:
    plan = Faults(split=1.0)
    async with ends(lambda inner: Faulty(SlowPair(inner), seed=1, outbound=plan)) as (host, agent):
        await agent.close()
        with pytest.raises(TransportClosed, match="other end"):
            await host.send(FRAMES[0])


@pytest.mark.anyio
@pytest.mark.parametrize("place", [Faults(kill={3}), Faults(kill_at_byte=len(FRAMES[0] + FRAMES[1]))])
async def test_an_agent_in_memory_dies_while_it_speaks(place: Faults) -> None:
    async with ends(lambda inner: Faulty(inner, seed=9, inbound=place)) as (host, agent):
        await agent.send(DATA)
        received, error = await receive_all(host)
        assert received == FRAMES[0] + FRAMES[1]
        assert isinstance(error, ConnectionLost)
        assert not isinstance(error, TransportClosed)
        assert "a fault ended the agent (inbound" in str(error)
        assert "The seed is 9." in str(error)
        with pytest.raises(ConnectionLost, match="a fault ended the agent"):
            await host.receive()
        with pytest.raises(ConnectionLost, match="a fault ended the agent"):
            await host.send(b"x\n")
        assert str(host.exit_error) == str(error)
        assert not host.is_ready
        assert await agent.receive() == b""


@pytest.mark.anyio
async def test_an_agent_in_memory_dies_while_it_is_spoken_to() -> None:
    async with ends(lambda inner: Faulty(inner, outbound=Faults(kill={2}))) as (host, agent):
        await agent.send(DATA)
        ended: list[Any] = []

        async def receive() -> None:
            ended.append(await receive_all(host))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(receive)
            await anyio.wait_all_tasks_blocked()
            await host.send(FRAMES[0])
            with pytest.raises(ConnectionLost, match=r"a fault ended the agent \(outbound 2: kill\)"):
                await host.send(FRAMES[1])
        [(received, error)] = ended
        # What had been said by then is not lost.
        assert received == DATA
        assert "a fault ended the agent" in str(error)
        assert await receive_all(agent) == (FRAMES[0], None)


@pytest.mark.anyio
@pytest.mark.parametrize("direction", ["inbound", "outbound"])
async def test_a_process_is_really_killed(direction: str) -> None:
    with anyio.fail_after(10):
        plan: Any = {direction: Faults(kill={2})}
        async with Faulty(ProcessTransport(Command(("cat",))), **plan) as host:
            await host.send(FRAMES[0])
            if direction == "inbound":
                await host.send(FRAMES[1])
                received, error = await receive_all(host)
            else:
                assert await host.receive() == FRAMES[0]
                with pytest.raises(ConnectionLost, match="a fault ended the agent"):
                    await host.send(FRAMES[1])
                received, error = FRAMES[0], (await receive_all(host))[1]
            assert received == FRAMES[0]
            assert isinstance(error, ProcessExited)
            assert error.signal == 9
            assert isinstance(host.exit_error, ProcessExited)
            assert host.returncode == -9
            assert host.pid is not None
            assert host.stderr_tail == ""


def test_a_random_plan_follows_from_its_seed() -> None:
    def plan(seed: int) -> str:
        return repr(Faulty.random(memory_pair()[0], seed))

    assert [plan(seed) for seed in range(100)] == [plan(seed) for seed in range(100)]
    plans = [Faulty.random(memory_pair()[0], seed) for seed in range(1000)]
    struck = {kind for plan in plans for kind in KINDS if getattr(plan.inbound, kind)}
    struck |= {kind for plan in plans for kind in KINDS if getattr(plan.outbound, kind)}
    assert struck == {*KINDS}
    assert any(plan.inbound.is_none and plan.outbound.is_none for plan in plans)
    only = [Faulty.random(memory_pair()[0], seed, kinds=["drop"]) for seed in range(20)]
    assert {kind for plan in only for kind in KINDS if getattr(plan.inbound, kind)} == {"drop"}
    assert Faulty.random(memory_pair()[0]).seed != Faulty.random(memory_pair()[0]).seed


# Under a session.


@asynccontextmanager
async def session_with(inbound: Faults, **fields: Any) -> AsyncGenerator[tuple[Session, Faulty]]:
    agent = OtherEnd()
    faulty = Faulty(agent.transport, seed=1, inbound=inbound)

    async def play() -> None:
        with suppress(HostLeft):
            await agent.open()
            while (event := await agent.next()) is not None:
                if isinstance(event, UserMessage):
                    await agent.say(*turn(str(event.uuid)))

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(play)
            async with Session(transport=faulty, **fields) as session:
                yield session, faulty
            tasks.cancel_scope.cancel()


@pytest.mark.anyio
async def test_a_session_goes_on_through_noise_and_pieces() -> None:
    plan = Faults(noise=1.0, split=1.0, oversize={4}, oversize_bytes=300_000, delay={2}, delay_seconds=0.01)
    async with session_with(plan) as (session, faulty):
        asked = await session.send("hello")
        kinds = {type(message) async for message in asked}
        assert (await asked.result()).text == "done"
    assert {MalformedLine, AssistantMessage, UnknownMessage} <= kinds
    assert {fault.kind for fault in faulty.done} == {"noise", "split", "oversize", "delay"}


@pytest.mark.anyio
async def test_a_session_that_stalls_ends_by_its_deadline() -> None:
    limits = Timeouts(first_event=0.1, silence=0.1, interrupt=0.1)
    async with session_with(Faults(stall={3}), timeouts=limits) as (session, faulty):
        with pytest.raises(TurnTimedOut):
            await session.ask("hello")
        with pytest.raises(ConnectionLost):
            await session.ask("again")
    assert [str(fault) for fault in faulty.done] == ["inbound 3: stall (until closed)"]


def test_stderr_can_be_listened_to_where_there_is_one() -> None:
    def tell(line: str) -> None:
        raise NotImplementedError

    heard: list[object] = []

    class Speaking(MemoryTransport):
        def on_stderr(self, tell: object) -> None:
            heard.append(tell)

    pipes: Any = (None, None)
    listening: Any = Faulty(Faulty(Speaking(*pipes)))
    listening.on_stderr(tell)
    assert heard == [tell]
    assert not hasattr(Faulty(MemoryTransport(*pipes)), "on_stderr")
