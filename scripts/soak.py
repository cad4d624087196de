"""Many short sessions under random faults: none may hang, leak, or lose what arrived.

    python scripts/soak.py --sessions 2000 --seed 1
    python scripts/soak.py --only 1234 --show     # one of them again, with what was done to it

Each session follows from its number alone: what the model says, what the host does, and the faults. The agent
is the simulated one, in this process or as a child (`--agent process`).
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import queue
import sys
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from random import Random
from types import FrameType
from typing import Any, Final, NamedTuple, cast

import anyio
import msgspec

from outrider.errors import OutriderError
from outrider.handlers import tool
from outrider.options import Options, Timeouts
from outrider.session import Session
from outrider.testing import Fault, Faults, Faulty, Simulator, answer, say, think, use_tool
from outrider.transports import Command, Transport, intercept, live_processes

LIMITS: Final = Timeouts(
    connect=3.0,
    first_event=2.5,
    silence=2.5,
    retries=2.5,
    turn=6.0,
    background=2.0,
    control=2.5,
    permission=2.0,
    write=2.0,
    interrupt=1.5,
    close=0.3,
    terminate=0.3,
)
"""Short, and yet far longer than anything takes that is not held up by a fault."""

LATE: Final = 0.5
"""On a machine that is this late, time says nothing about a session."""

DEADLINE: Final = 60.0
"""More than all limits together: a session that takes longer hangs."""

PATIENCE: Final = 5.0
"""How long what a session had may take to be gone."""

TIMES: Final = Faults(delay_seconds=0.02, oversize_bytes=200_000)

HIDDEN: Final = frozenset(
    ("control_request", "control_response", "control_cancel_request", "keep_alive", "transcript_mirror")
)
"""What travels, and is no message for the user."""

HARMLESS: Final = {
    "inbound": ("split", "delay", "noise", "oversize", "duplicate"),
    "outbound": ("split", "delay"),
}
"""Faults through which a session goes on; of the others, the agent or the session may die."""

TEXTS: Final = (
    "done",
    "Größe: 3 €",
    "日本語 😀\nline two",
    "x" * 3000,
    '{"type":"result"}',
    'a\u2028b \\ " ',
)


BATCH: Final = 200
"""After so many it is looked for what they left behind."""


class Tap(Transport):
    """Keeps what comes through another transport."""

    def __init__(self, inner: Transport) -> None:
        self.inner = inner
        self.received = bytearray()
        self.max_buffer_size = inner.max_buffer_size

    def prepare(self, command: Command) -> None:
        self.inner.prepare(command)

    async def connect(self) -> None:
        await self.inner.connect()

    async def receive(self) -> bytes:
        data = await self.inner.receive()
        self.received += data
        return data

    async def send(self, data: bytes) -> None:
        await self.inner.send(data)

    async def end_input(self) -> None:
        await self.inner.end_input()

    async def close(self) -> None:
        await self.inner.close()

    @property
    def is_ready(self) -> bool:
        return self.inner.is_ready

    @property
    def exit_error(self) -> OutriderError | None:
        return self.inner.exit_error

    @property
    def pid(self) -> int | None:
        return getattr(self.inner, "pid", None)

    @property
    def returncode(self) -> int | None:
        return getattr(self.inner, "returncode", None)

    @property
    def stderr_tail(self) -> str:
        return str(getattr(self.inner, "stderr_tail", ""))

    def lines(self) -> list[bytes]:
        return [line.strip() for line in bytes(self.received).split(b"\n")]


class Outcome(NamedTuple):
    """How a session went."""

    number: int
    ended: str
    """`ok`, or the name of the error."""
    seconds: float
    faults: tuple[Fault, ...]
    problems: tuple[str, ...]
    """What should not be."""
    told: str
    """The transport with its seed and faults, and the error."""


@tool
async def lookup(ticket: int) -> str:
    """Look up who owns a ticket."""
    return f"Ada owns {ticket} €"


class Pulse:
    """Sees when the event loop is held up."""

    def __init__(self) -> None:
        self._late: list[tuple[float, float]] = []

    async def run(self) -> None:
        while True:
            before = time.monotonic()
            await anyio.sleep(0.05)
            now = time.monotonic()
            if now - before > LATE:
                self._late.append((before, now))

    def was_late(self, since: float) -> bool:
        return any(until >= since for _, until in self._late)


async def run_one(number: int, agent_kind: str = "memory", pulse: Pulse | None = None) -> Outcome:
    """One session: everything follows from its number."""
    random = Random(f"{number} session")
    messages: list[Any] = []
    started = time.monotonic()
    turns = random.randint(1, 2)
    taps: list[Tap] = []
    faulty: list[Faulty] = []

    def put_faults(transport: Transport) -> Transport:
        taps.append(Tap(transport))
        faulty.append(Faulty.random(taps[0], number, times=TIMES))
        taps.append(Tap(faulty[0]))
        return taps[1]

    error: BaseException | None = None
    problems: list[str] = []
    with (
        Simulator(_script(random, turns), executable=agent_kind == "process") as agent,
        intercept(put_faults),
    ):
        options = agent.options(
            tools=[lookup],
            timeouts=LIMITS,
            allowed_tools=["mcp__tools__lookup", "Bash"],
            include_partial_messages=random.random() < 0.5,
        )
        with anyio.move_on_after(DEADLINE) as scope:
            try:
                await _talk(options, random, turns, messages)
            except* OutriderError as group:
                error = _leaf(group)
            except* Exception as group:  # noqa: BLE001 - none should come, so it is told
                error = _leaf(group)
                problems.append(f"an error that is no OutriderError: {error!r}")
        if scope.cancelled_caught:
            problems.append(f"it hung for {DEADLINE:g} s")
    problems += _lost(taps, faulty, messages)
    faults = tuple(faulty[0].done) if faulty else ()
    is_late = pulse is not None and pulse.was_late(started)
    if error is not None and not any(map(is_harmful, faults)) and not is_late:
        problems.append(f"nothing that matters went wrong, and it failed: {error!r}")
    ended = type(error).__name__ if error is not None else "ok"
    told = f"{faulty[0] if faulty else 'not connected'!r}\n    {error!r}"
    return Outcome(number, ended, time.monotonic() - started, faults, tuple(problems), told)


def _script(random: Random, turns: int) -> list[Any]:
    script: list[Any] = []
    for _ in range(turns):
        if random.random() < 0.3:
            script.append(use_tool("lookup", ticket=random.randrange(100)))
        if random.random() < 0.1:
            script.append(use_tool("Bash", command="echo $((6 * 7))"))
        if random.random() < 0.2:
            script.append(answer(think("hm €"), say(random.choice(TEXTS))))
        else:
            script.append(say(random.choice(TEXTS)))
    return script


async def _talk(options: Options, random: Random, turns: int, messages: list[Any]) -> None:
    """What the host does with the session."""
    async with Session(options) as session, anyio.create_task_group() as tasks:

        async def listen() -> None:
            with suppress(OutriderError):
                async for message in session:
                    messages.append(message)  # noqa: PERF401 - those before an error count

        tasks.start_soon(listen)
        # Before anything is sent, so that nothing is missed.
        await anyio.lowlevel.checkpoint()
        try:
            way = random.random()
            if way < 0.1:
                turn = await session.send("begin, and never mind")
                await turn.cancel()
            elif way < 0.2:
                await session.send("begin, and be left alone")
            elif way < 0.3 and turns > 1:
                both = [await session.send("one"), await session.send("two")]
                for turn in both:
                    await turn.result()
            else:
                for _ in range(turns):
                    turn = await session.send("go on €")
                    async for _ in turn:
                        pass
                    await turn.result()
        finally:
            with anyio.CancelScope(shield=True):
                await session.close()


def _leaf(group: BaseExceptionGroup[Any]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def is_harmful(fault: Fault) -> bool:
    """Whether a session may fail because of it."""
    return fault.kind not in HARMLESS[fault.direction]


def _lost(taps: list[Tap], faulty: list[Faulty], messages: list[Any]) -> Iterator[str]:
    """What arrived whole and is not among the messages, or is too often, or in another order."""
    if not messages or len(taps) < 2:
        return
    said = {line for line in taps[0].lines() if line and _type(line) not in HIDDEN}
    arrived = [line for line in taps[1].lines() if line in said]
    shown = [line for message in messages if (line := message.raw_json) in said]
    if shown == arrived:
        return
    left = iter(shown)
    missing = [line for line in arrived if line not in left]
    if missing:
        yield f"{len(missing)} of {len(arrived)} messages are missing, or out of order: {missing[0][:200]!r}"
    elif not any("without the line end" in fault.detail for fault in faulty[0].done):
        # Where a line end is missing, a frame may be found in the middle of a line.
        yield f"{len(shown) - len(arrived)} messages are there more often than they arrived"


def _type(line: bytes) -> object:
    try:
        return cast("dict[str, object]", msgspec.json.decode(line)).get("type")
    except msgspec.DecodeError:
        return None


class Soak:
    """Runs many of them, some at a time, and looks for what they leave behind."""

    def __init__(self, agent: str = "memory", at_once: int = 25) -> None:
        self.agent = agent
        self.at_once = at_once
        self.outcomes: list[Outcome] = []
        self.leaks: list[str] = []
        self._pulse = Pulse()

    async def run(self, numbers: range, tell: Callable[[Soak], Awaitable[None]] | None = None) -> None:
        await self._warm_up()
        for start in range(0, len(numbers), BATCH):
            batch = numbers[start : start + BATCH]
            before = _held()
            await self._run_batch(batch)
            if left := await _left(before):
                self.leaks.append(f"sessions {batch.start} to {batch.stop - 1} left {left}")
            if tell is not None:
                await tell(self)

    async def _warm_up(self) -> None:
        """Have made what is made once and kept."""
        for number in range(2):
            await run_one(-1 - number, self.agent, self._pulse)
        await anyio.sleep(0.05)

    async def _run_batch(self, batch: range) -> None:
        room = anyio.Semaphore(self.at_once)

        async def run(number: int) -> None:
            async with room:
                self.outcomes.append(await run_one(number, self.agent, self._pulse))

        async with anyio.create_task_group() as outer:
            outer.start_soon(self._pulse.run)
            async with anyio.create_task_group() as tasks:
                for number in batch:
                    tasks.start_soon(run, number)
            outer.cancel_scope.cancel()

    @property
    def problems(self) -> list[str]:
        found = [
            f"session {outcome.number}: {problem}\n    {outcome.told}"
            for outcome in self.outcomes
            for problem in outcome.problems
        ]
        return found + self.leaks

    def table(self) -> str:
        """How many ended how, by the kind of fault that did the most harm."""
        rows: dict[str, Counter[str]] = {}
        for outcome in self.outcomes:
            kinds = sorted({f"{fault.direction} {fault.kind}" for fault in outcome.faults})
            for kind in kinds or ["no fault"]:
                rows.setdefault(kind, Counter())[outcome.ended] += 1
        ends = [name for name, _ in Counter(outcome.ended for outcome in self.outcomes).most_common()]
        width = max(map(len, rows), default=0)
        lines = [" " * width + "".join(f"  {name}" for name in ends)]
        for kind, counts in sorted(rows.items()):
            cells = "".join(f"  {counts[name] or '·':>{len(name)}}" for name in ends)
            lines.append(f"{kind:<{width}}{cells}")
        return "\n".join(lines)


class Held(NamedTuple):
    """What the process has."""

    tasks: int
    threads: int
    descriptors: int
    processes: int


def _held() -> Held:
    gc.collect()
    try:
        descriptors = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names only
    except OSError:
        descriptors = 0
    return Held(len(anyio.get_running_tasks()), _busy_threads(), descriptors, len(live_processes()))


def _busy_threads() -> int:
    """The threads, without those that anyio and trio keep for the next function and that do nothing now."""
    frames = sys._current_frames()
    return sum(1 for thread in threading.enumerate() if not _is_idle(frames.get(thread.ident or 0)))


def _is_idle(frame: FrameType | None) -> bool:
    """Whether a worker thread waits for the next function, in its queue or at its lock."""
    while frame is not None and frame.f_code.co_filename == threading.__file__:
        frame = frame.f_back
    if frame is None:
        return False
    if frame.f_code.co_filename == queue.__file__ and frame.f_back is not None:
        return frame.f_back.f_globals.get("__name__") == "anyio._backends._asyncio"
    return (frame.f_globals.get("__name__"), frame.f_code.co_name) == ("trio._core._thread_cache", "_work")


async def _left(before: Held) -> str:
    """What is there that was not, in words."""
    until = time.monotonic() + PATIENCE
    while True:
        more = {
            name: there - was
            for name, there, was in zip(Held._fields, _held(), before, strict=True)
            if there > was
        }
        if not more or time.monotonic() > until:
            return ", ".join(f"{count} {name}" for name, count in more.items())
        await anyio.sleep(0.05)


async def _tell(soak: Soak) -> None:
    slowest = max(soak.outcomes, key=lambda outcome: outcome.seconds)
    done, bad = len(soak.outcomes), len(soak.problems)
    print(f"{done} sessions, {bad} problems, slowest {slowest.seconds:.1f} s ({slowest.number})", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sessions", type=int, default=2000, help="how many")
    parser.add_argument(
        "--seed", type=int, default=None, help="the number of the first one; else by the clock"
    )
    parser.add_argument("--agent", choices=("memory", "process"), default="memory")
    parser.add_argument("--backend", choices=("asyncio", "trio"), default="asyncio")
    parser.add_argument("--at-once", type=int, default=25)
    parser.add_argument("--only", type=int, default=None, help="one session again, by its number")
    parser.add_argument("--show", action="store_true", help="show each session with its faults")
    given = parser.parse_args()
    # What is expected here would be warned about in each second session.
    logging.getLogger("outrider").setLevel(logging.CRITICAL)
    seed = int(time.time()) * 100_000 if given.seed is None else given.seed
    numbers = range(seed, seed + given.sessions) if given.only is None else range(given.only, given.only + 1)
    print(f"seed {numbers.start}, {len(numbers)} sessions on {given.backend}, agent in {given.agent}")
    soak = Soak(given.agent, given.at_once)
    anyio.run(soak.run, numbers, _tell, backend=given.backend)
    if given.show:
        for outcome in sorted(soak.outcomes):
            print(f"{outcome.number} {outcome.ended} {outcome.seconds:.2f} s\n    {outcome.told}")
    print(soak.table())
    for problem in soak.problems:
        print(problem)
    print(f"{len(soak.problems)} problems; repeat one session with --only NUMBER --show")
    return 1 if soak.problems else 0


if __name__ == "__main__":
    sys.exit(main())
