"""Whatever a child sends, it is gone through in small steps, and the event loop goes on between them."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, suppress
from typing import Any
from unittest.mock import patch

import anyio
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import given
from hypothesis import strategies as st

from outrider import deny
from outrider.protocol import Peer, RequestAnswered
from outrider.session import Session
from outrider.session._connection import connection as _connection
from outrider.transports import memory_pair
from outrider.wire import Arrival, Framer, KeepAlive, MalformedLine, _framing
from outrider.wire._decoding import _TOKEN, asker_of
from tests.cases import every_case
from tests.session.other_end import OtherEnd
from tests.wire.test_framing import CASES, STREAMS

DEADLINE = 50.0
ALIVE = b'{"type":"keep_alive"}'

ATTACKS: dict[str, Callable[[int], bytes]] = {
    "opening brackets": lambda n: b'{"a":' + b"[" * n,
    "pairs of brackets": lambda n: b'{"a":' + b"[]" * (n // 2),
    "objects and noise": lambda n: b"{} x" * (n // 4),
    "objects": lambda n: ALIVE * (n // 21),
    "escapes": lambda n: b'{"a":"' + b'\\"' * (n // 2),
    "a long text": lambda n: b'{"a":"' + b"x" * (n * 20),
    "short lines": lambda n: b"x\n" * (n // 2),
    "empty lines": lambda n: b"\n" * n,
    "empty objects": lambda n: b"{}\n" * (n // 3),
    "short frames": lambda n: (ALIVE + b"\n") * (n // 22),
    "short system messages": lambda n: b'{"type":"system","subtype":"init"}\n' * (n // 35),
    "lines behind an open object": lambda n: b"{\n" + b"x\n" * (n // 2),
    "objects that are cut off": lambda n: (b'{"a":[[[\n' + ALIVE + b"\n") * (n // 31),
    "questions that cannot be read": lambda n: (
        (b'{"type":"control_request"' + b"," * 100 + b"}\n") * (n // 127)
    ),
}
"""What takes a framer the most work, in about so many bytes."""

MANY = 20_000
STEP = 1024
"""Smaller steps than usual, so that little is enough for many."""


def small_steps(size: int) -> Any:
    line = min(32, size)
    return patch.multiple(
        _framing,
        _STEP=size,
        _LINE=line,
        _SWEEP=max(1, size // line),
        _PIECE=size * 16,
        _GLANCE=min(128, size),
    )


def in_steps(framer: Framer | Peer, *chunks: bytes | None) -> list[list[Any]]:
    """What each step gives."""
    found: list[list[Any]] = []
    for chunk in chunks:
        found.append(framer.begin(chunk))
        while framer.has_more:
            found.append(framer.go_on())
    return found


# The same frames.


@pytest.mark.requirement("D1")
@given(
    data=STREAMS,
    size=st.sampled_from([1, 2, 7, 40, 300]),
    cut=st.integers(0, 200),
    limit=st.sampled_from([None, 20, 60]),
)
def test_steps_of_any_size_give_the_same_frames(data: bytes, size: int, cut: int, limit: int | None) -> None:
    whole = Framer(limit)
    expected = [*whole.feed(data[:cut]), *whole.feed(data[cut:]), *whole.flush()]
    with small_steps(size):
        found = [one for step in in_steps(Framer(limit), data[:cut], data[cut:], None) for one in step]
    assert found == expected
    assert [one.raw_json for one in found] == [one.raw_json for one in expected]


@pytest.mark.requirement("D1")
@every_case("name", [name for name, (data, _) in CASES.items() if len(data) < 5000])
def test_bytes_that_come_before_the_last_are_gone_through_wait_for_their_turn(name: str) -> None:
    data = CASES[name][0]
    expected = [*(framer := Framer()).feed(data), *framer.feed(data), *framer.flush()]
    with small_steps(3):
        framer = Framer()
        found = framer.begin(data) + framer.begin(data) + framer.begin(None)
        while framer.has_more:
            found += framer.go_on()
    assert found == expected


def test_what_is_dropped_leaves_nothing_behind() -> None:
    framer = Framer()
    assert framer.feed(b'{"a":[\n{"b') == []
    framer.begin(b"{} x" * 10_000)
    framer.drop()
    assert not framer.has_more
    assert framer.flush() == []
    assert [type(one) for one in framer.feed(ALIVE + b"\n")] == [KeepAlive]


# Bounded steps.


def lines_run(work: Callable[[], object]) -> int:
    """How many lines of Python a piece of work takes: the same on every machine."""
    count = 0

    def trace(*_: object) -> Any:
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()  # a coverage measurement, perhaps
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.requirement("D1")
@every_case("name", ATTACKS)
@every_case("end", [b"\n", b""])
def test_a_step_is_no_longer_however_much_there_is(name: str, end: bytes) -> None:
    def work(size: int) -> tuple[int, int]:
        """Of the longest step; and how many steps there are."""
        peer, longest, count = Peer(), 0, 0
        todo: list[Callable[[], object]] = [
            lambda: peer.begin(ATTACKS[name](size) + end),
            lambda: peer.begin(None),
        ]
        for begin in todo:
            longest, count = max(longest, lines_run(begin)), count + 1
            while peer.has_more:
                longest, count = max(longest, lines_run(peer.go_on)), count + 1
        return longest, count

    with small_steps(256):
        (short, few), (long, many) = work(4_000), work(12_000)
    assert long <= short * 1.2 + 100
    assert many >= few * 2
    assert long <= 256 * 40


@pytest.mark.requirement("D3")
def test_a_chunk_of_noise_is_not_handed_over_at_once() -> None:
    steps = in_steps(Framer(), b"x\n" * 32_768, None)
    assert sum(map(len, steps)) == 32_768
    assert max(map(len, steps)) <= 512
    assert all(isinstance(one, MalformedLine) for step in steps for one in step)


def test_a_chunk_of_ordinary_lines_is_one_step() -> None:
    framer = Framer()
    assert len(framer.begin((ALIVE + b"\n") * 400)) == 400
    assert not framer.has_more


@every_case(
    "data",
    [
        pytest.param(b'{"control_request' + b'\\"' * 10_000, id="a text without an end"),
        pytest.param(b'{"control_request"' + b"1" * 20_000 + b"x", id="a number that is none"),
    ],
)
def test_who_asks_is_looked_for_once(data: bytes) -> None:
    """A search that began again at each byte would take the square of their number."""
    assert b"".join(re.findall(_TOKEN, data)) == data
    assert asker_of(data, data) is None


# The event loop.


@pytest.fixture
def many_steps() -> Generator[None]:
    with small_steps(STEP):
        yield


class Heart:
    """Counts how often the event loop came round."""

    def __init__(self) -> None:
        self.beats = 0

    async def beat(self) -> None:
        while True:
            self.beats += 1
            await checkpoint()


@asynccontextmanager
async def heart() -> AsyncGenerator[Heart]:
    counting = Heart()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(counting.beat)
        yield counting
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def session_with(agent: OtherEnd, **options: Any) -> AsyncGenerator[Session]:
    with anyio.fail_after(DEADLINE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(agent.open)
            async with Session(transport=agent.transport, **options) as session:
                yield session


@pytest.mark.anyio
@pytest.mark.usefixtures("many_steps")
@every_case("name", ["pairs of brackets", "objects and noise", "short lines"])
async def test_a_session_sends_and_others_go_on_while_it_reads(name: str) -> None:
    agent = OtherEnd()
    async with session_with(agent) as session, heart() as counting, anyio.create_task_group() as tasks:
        peer = session._conversation.opened()._peer
        await agent.write(ATTACKS[name](MANY) + b"\n")
        while not peer.has_more:
            await checkpoint()
        before = counting.beats
        tasks.start_soon(session.set_model, "other")
        asked = await agent.asked("set_model")
        assert peer.has_more, "the request went out only when all had been read"
        # Its answer comes behind all that.
        await agent.answer(asked)
        while peer.pending:
            await checkpoint()
        assert counting.beats - before >= MANY // STEP // 2
        tasks.start_soon(agent.reply)
        assert (await session.ask("Are you there?")).text == "done"


@pytest.mark.anyio
@pytest.mark.usefixtures("many_steps")
async def test_the_last_line_needs_no_end_to_be_read_in_steps() -> None:
    agent = OtherEnd()
    async with session_with(agent) as session, heart() as counting:
        everything = aiter(session)
        await agent.write(ATTACKS["objects and noise"](MANY))
        before = counting.beats
        await agent.leave()
        count = len([message async for message in everything])
        assert count == MANY // 4 * 2
        assert counting.beats - before >= count // (STEP // 32) // 2


@pytest.mark.anyio
@pytest.mark.usefixtures("many_steps")
async def test_a_session_that_is_closed_does_not_read_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_connection, "_END_SECONDS", 0.0)
    agent = OtherEnd()
    async with session_with(agent) as session:
        connection = session._conversation.opened()
        await agent.write(ATTACKS["objects and noise"](4 * MANY) + b"\n")
        while not connection._peer.has_more:
            await checkpoint()
        await session.close()
        await connection._gone.wait()
        assert not connection._peer.has_more


@pytest.mark.anyio
@pytest.mark.usefixtures("many_steps")
@every_case("end", [b"\n", b""])
async def test_the_messages_of_a_transport_come_in_steps(end: bytes) -> None:
    ours, theirs = memory_pair()
    with anyio.fail_after(DEADLINE):
        async with ours, theirs, heart() as counting:
            await theirs.send(ATTACKS["objects and noise"](MANY) + end)
            await theirs.end_input()
            messages = ours.messages()
            batches: list[list[Arrival]] = []
            before = counting.beats
            with suppress(StopAsyncIteration):
                while True:
                    batches.append(await messages.batch())
            # Tasks that are ready come in any order, each once.
            assert counting.beats - before >= len(batches) - 1
    assert max(map(len, batches)) <= 2 * STEP // 32
    assert sum(map(len, batches)) == MANY // 4 * 2


@pytest.mark.anyio
async def test_thousands_of_questions_are_begun_a_few_at_a_time_and_answered_by_one_who_sends() -> None:
    agent, count = OtherEnd(), 1_000
    send, sending, most = agent.transport.send, 0, 0

    async def send_slowly(data: bytes) -> None:
        nonlocal sending, most
        sending += 1
        most = max(most, sending)
        for _ in range(20):
            await checkpoint()
        sending -= 1
        await send(data)

    async with heart() as counting:
        begun: Counter[int] = Counter()

        async def permit(_: object) -> Any:
            begun[counting.beats] += 1
            return deny("no")

        async with session_with(agent, permission=permit):
            with patch.object(agent.transport, "send", send_slowly):
                for _ in range(count):
                    agent.peer.request("can_use_tool", tool_name="Bash", input={"command": "ls"})
                await agent.flush()
                for _ in range(count):
                    assert isinstance(await agent.next(), RequestAnswered)
    assert most == 1
    assert sum(begun.values()) == count
    # In a round of the loop: those that were begun, and as many that these begin.
    assert max(begun.values()) <= 64


def test_a_damaged_block_costs_no_more_than_some_lines() -> None:
    """What fields there are was looked up anew for each, at a hundred times the price."""

    def decode(count: int) -> Callable[[], object]:
        blocks = b",".join([b'{"type":"text","text":3}'] * count)
        line = b'{"type":"assistant","message":{"content":[%s]}}\n' % blocks
        return lambda: Framer().feed(line)

    decode(1)()
    assert lines_run(decode(200)) - lines_run(decode(100)) < 100 * 60
