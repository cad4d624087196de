"""What a pool is made of, without processes: sizes, rules, the fair queue, slots and their memory."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from outrider.errors import OptionsError, OutriderError
from outrider.fleet import JournalBusy, Pool, PoolClosed, PoolStats, QueueFull, QueueTimedOut, WorkerLost
from outrider.fleet._fields import read_seconds, read_size, write_size
from outrider.fleet._pool.slots import FIRST_GUESS, FairQueue, Slot, Slots, Ticket, WarmOptions
from outrider.options import Options
from outrider.testing import Simulator
from tests.cases import every_case

MIB = 1024 * 1024


@every_case(
    "given, size",
    [
        (1, 1),
        ("6GiB", 6 * 1024**3),
        ("1.5 mb", 1_500_000),
        ("512MiB", 512 * MIB),
        (" 10 ", 10),
        ("2 TB", 2 * 10**12),
    ],
)
def test_a_size_is_read(given: object, size: int) -> None:
    assert read_size("`memory`", given) == size


@every_case(
    "given", [0, -1, True, 1.5, None, "", "6 apples", "GiB", "-1GiB", "1e9", "0.1B", 2**60, "9" * 400]
)
def test_what_is_no_size_is_refused(given: object) -> None:
    with pytest.raises(OptionsError, match="`max_memory` must be a number of bytes"):
        read_size("`max_memory`", given)


def test_times_and_sizes_for_people() -> None:
    assert [read_seconds("`timeout`", value) for value in (0, 1.5, "90s", "250 ms", "5min", "2h", "1d")] == [
        *(0, 1.5, 90, 0.25, 300, 7200, 86400)
    ]
    for value in (-1, "soon", "5 weeks", True, None, float("nan"), float("inf")):
        with pytest.raises(OptionsError, match="`timeout` must be a finite number of seconds"):
            read_seconds("`timeout`", value)
    assert [write_size(size) for size in (0, 1023, 1536, 6 * 1024**3, 3 * 1024**4)] == [
        *("0 B", "1023 B", "1.5 KiB", "6 GiB", "3 TiB")
    ]


@every_case(
    "field",
    [
        {"warm": -1},
        {"warm": 1.5},
        {"max_processes": 0},
        {"max_memory": "much"},
        {"park_after": -1},
        {"max_age": 0},
        {"max_turns": 0},
        {"max_process_memory": 0},
        {"queue_limit": -1},
        {"queue_seconds": "soon"},
        {"health_seconds": 0},
        {"options": "opus"},
        {"options": []},
        {"options": [Options(), "opus"]},
        {"options": Options(session_id="5e551011-0000-4000-8000-000000000002")},
        {"options": Options(continue_conversation=True)},
        {"options": Options(resume="a")},
        {"options": Options(transport=Simulator())},
        {"max_memory": "1GiB", "max_process_memory": "2GiB"},
    ],
)
def test_what_cannot_work_is_refused_when_the_pool_is_made(field: dict[str, Any]) -> None:
    with pytest.raises(OptionsError, match=next(reversed(field))):
        Pool(**field)


def test_a_tool_that_cannot_work_is_refused_when_the_pool_is_made() -> None:
    with pytest.raises(OptionsError):
        Pool(Options(tools=[lambda x: x]))


@every_case("field", [{"transport": Simulator()}, {"persist_session": False}, {"isolation": "hermetic"}])
def test_a_session_that_could_not_come_back_is_refused(field: dict[str, Any]) -> None:
    with pytest.raises(OptionsError, match="could not be resumed after it was parked"):
        Pool().session(**field)


def test_options_are_told_apart() -> None:
    class Odd:
        def __call__(self, line: str) -> None: ...

        def __eq__(self, other: object) -> bool:
            raise ValueError

        def __hash__(self) -> int:
            return 0

    fork = Options(resume="a", fork_session=True)
    # Given twice is given once: nobody could tell which of them to hand out.
    warm_options = WarmOptions([Options(model="opus"), fork, Options(model="opus")])
    assert len(warm_options.all) == 2
    assert warm_options.number_of(Options(model="opus"), None) == 0
    assert warm_options.number_of(fork, None) == 1
    assert warm_options.number_of(Options(model="haiku"), None) is None
    assert warm_options.number_of(fork, dict[str, int]) is None
    odd = Options(stderr=Odd())
    assert WarmOptions(odd).number_of(odd, None) == 0
    assert WarmOptions(odd).number_of(Options(stderr=Odd()), None) is None


def test_errors_have_their_facts_and_travel() -> None:
    errors: list[tuple[OutriderError, str]] = [
        (QueueFull(3, "ada"), "3 callers already wait for a process of the pool (tenant 'ada')"),
        (QueueFull(0), "No process of the pool is free, and nobody may wait for one"),
        (QueueTimedOut(2.5), "No process of the pool was free within 2.5 s"),
        (PoolClosed(), "The pool is closed"),
        (WorkerLost("node-1", "it was shut down"), "The worker 'node-1' is gone: it was shut down"),
        (JournalBusy("a.db", "process 7"), "The journal 'a.db' is in use by process 7"),
    ]
    for error, text in errors:
        assert str(error).startswith(text)
        assert error.hint
        assert str(pickle.loads(pickle.dumps(error))) == str(error)
        assert error.retryable is (not isinstance(error, PoolClosed))
    assert isinstance(QueueTimedOut(), TimeoutError)


# The queue.


def entered(queue: FairQueue, *tenants: str) -> list[Ticket]:
    tickets = [Ticket(Options(), None, 0, tenant) for tenant in tenants]
    for ticket in tickets:
        queue.enter(ticket)
    return tickets


def test_tenants_are_served_in_turn() -> None:
    queue = FairQueue()
    tickets = entered(queue, *"aaaab", "c", "b")
    served = [queue.take() for _ in range(4)]
    late = entered(queue, "d")
    served += [queue.take() for _ in range(len(queue))]
    assert "".join(ticket.tenant for ticket in served) == "abcabada"
    assert {*served} == {*tickets, *late}
    assert [ticket for ticket in served if ticket.tenant == "a"] == tickets[:4]
    assert queue.next is None


def test_those_over_the_limit_of_their_tenant_are_sent_away() -> None:
    queue = FairQueue(2)
    tickets = entered(queue, *"aaaba")
    assert queue.trim() == [tickets[4], tickets[2]]
    assert queue.counts() == {"a": 2, "b": 1}
    queue.leave(tickets[2])
    queue.leave(tickets[0])
    assert queue.next is tickets[1]
    queue.leave(tickets[1])
    assert queue.counts() == {"b": 1}
    nobody = FairQueue(0)
    (ticket,) = entered(nobody, "a")
    assert nobody.trim() == [ticket]
    assert (nobody.counts(), nobody.empty()) == ({}, [])


# Slots.


def held(slots: Slots, size: int | None) -> Slot:
    slot = slots.take(Options(), 0, 0.0)
    slot.state, slot.size, slot.peak = "held", size, size or 0
    return slot


@pytest.mark.anyio
async def test_room_is_reckoned_with_what_processes_come_to_need() -> None:
    slots = Slots(4, 1000 * MIB)
    assert slots.is_room()
    starting = slots.take(Options(), 0, 0.0)
    assert slots.is_room()  # 300 and 300
    held(slots, 400 * MIB)
    # One of 400, one that will come to it, and the next.
    assert not slots.is_room()
    slots.give_back(starting)
    assert slots.is_room()
    small = held(slots, 20 * MIB)
    # The mean is 210 now: 400, 210 for the small one, and the next.
    assert slots.is_room()
    slots.give_back(small)
    slots.give_back(small)
    assert small.gone.is_set()
    assert slots.is_room()
    last = [held(slots, 20 * MIB) for _ in range(3)]
    assert slots.is_full
    assert not slots.is_room()
    for slot in last:
        slots.give_back(slot)
    assert len(slots) == 1


@pytest.mark.anyio
async def test_the_next_has_no_less_than_one_that_waits() -> None:
    slots = Slots(4, 1000 * MIB)
    slot = slots.take(Options(), 0, 0.0)
    slot.state, slot.size = "warm", 600 * MIB
    # It would be started and ended again and again.
    assert not slots.is_room()
    slot.size = 500 * MIB
    assert slots.is_room()


@pytest.mark.anyio
async def test_one_process_may_always_be_started_where_there_is_none() -> None:
    slots = Slots(2, 1)
    assert FIRST_GUESS > 1
    assert slots.is_room()
    assert slots.is_fresh(0.0)
    slot = held(slots, None)
    assert not slots.is_room()
    assert not slots.is_fresh(0.0)
    slots.give_back(slot)
    assert slots.is_room()


def test_statistics_are_told_in_a_line() -> None:
    stats = PoolStats(processes=3, max_processes=8, warm=1, busy=2, memory=MIB, waiting={"a": 2, "b": 1})
    assert str(stats) == "3 of 8 processes (2 busy, 0 idle, 1 warm, 1 MiB), 0 parked, 3 waiting"
