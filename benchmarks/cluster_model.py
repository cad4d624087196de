"""A cluster that is only reckoned: nodes that fail, an account with limits, an agent that asks it.

Owns what is made up: how long calls take, when nodes are lost, what the account lets through. What is done
about it is decided by Outrider: see `SimulatedCluster`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import ceil, exp, log
from random import Random
from typing import NamedTuple

import anyio

from outrider import Options, fleet
from outrider.errors import ApiFailed
from outrider.fleet import Assignment, Attempted, Note, Shared, WorkerLost
from outrider.fleet._engine import Tell
from outrider.fleet._resilient.retry import Clock

START_SECONDS = 1.0
"""To start the program and to connect."""

LONGEST_OWN_WAIT = 60.0
"""The program gives up at once if the API tells it to wait longer."""


class Step(NamedTuple):
    """A call of the model, and what the agent does with its answer."""

    tokens: int
    seconds: float
    tool_seconds: float


@dataclass(frozen=True)
class World:
    """What is made up. A node has the size of the machine in docs/capacity.md."""

    tasks: int = 10_000
    steps: float = 6.0
    """Calls of the model in a task, on average."""
    tokens: float = 4000.0
    """Of a call; half of them have more."""
    call_seconds: float = 6.0
    tool_seconds: float = 2.0
    places: int = 16
    """Sessions that fit a node."""
    tokens_per_minute: float = 2_000_000.0
    """What the account gets, with as much in reserve as a minute brings."""
    allowance: float | None = None
    """Tokens that the account may use in `window` seconds; then it has to wait for the reset."""
    window: float = 3600.0
    failure_hours: float = 2.0
    """How long a node lasts, on average."""
    repair_seconds: float = 300.0
    own_retries: int = 10
    """How often the program itself tries a call again."""
    tells_own_retries: bool = False
    """Whether the run is told of these, too, and not only when the program gives up."""
    keeps_sessions: bool = True
    """Whether transcripts outlive a node, as in a store that all of them share."""
    seed: int = 1

    def work(self) -> list[list[Step]]:
        """What each task takes: the same for all clusters."""
        random = Random(self.seed)
        return [
            [
                Step(
                    int(_around(random, self.tokens)),
                    _around(random, self.call_seconds),
                    _around(random, self.tool_seconds),
                )
                for _ in range(1 + int(random.expovariate(1 / (self.steps - 0.5))))
            ]
            for _ in range(self.tasks)
        ]


def _around(random: Random, middle: float) -> float:
    return exp(random.gauss(log(middle), 0.5))


class Refusal(NamedTuple):
    """A 429."""

    retry_after: float
    resets_at: float | None = None


class Account:
    """What all nodes share: a bucket of tokens that fills up again, and an allowance for a longer time."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rate = world.tokens_per_minute / 60
        self._left = world.tokens_per_minute
        self._filled_at = 0.0
        self._window, self._used = 0, 0
        self.served = 0
        """Tokens."""
        self.refused = 0
        """Calls."""
        self.calls = 0

    def ask(self, tokens: int) -> Refusal | None:
        """Take so many, or say when to come back."""
        now, world = anyio.current_time(), self._world
        self._left = min(world.tokens_per_minute, self._left + (now - self._filled_at) * self._rate)
        self._filled_at = now
        if (window := int(now // world.window)) > self._window:
            self._window, self._used = window, 0
        self.calls += 1
        if world.allowance is not None and self._used + tokens > world.allowance:
            self.refused += 1
            resets_at = (window + 1) * world.window
            return Refusal(resets_at - now, resets_at)
        if tokens > self._left:
            self.refused += 1
            # In whole seconds, as the API says it.
            return Refusal(float(ceil((tokens - self._left) / self._rate)))
        self._left -= tokens
        self._used += tokens
        self.served += tokens
        return None


@dataclass(eq=False)
class Node:
    """A machine."""

    name: str
    is_up: bool = True
    running: dict[str, anyio.CancelScope] = field(default_factory=dict)
    """By task."""


@dataclass
class Spent:
    """Where tokens and the time of places went. All that the account served is in one of the first four."""

    useful: int = 0
    """Tokens of tasks that were done, each call once."""
    repeated: int = 0
    """Calls that were made again, because their session was lost."""
    cut: int = 0
    """Calls whose answer nobody was there to hear."""
    thrown: int = 0
    """Calls of tasks that failed."""
    working: float = 0.0
    """Seconds in which places did something of that."""
    held: float = 0.0
    """Seconds in which places were taken, to wait included."""
    lost_nodes: int = 0


class SimulatedCluster:
    """An engine whose nodes are made up. All else is Outrider's: the run decides what is started and when,
    `Adaptive` how much at once, `Retry` when a turn is tried again, and `Gate` when all wait."""

    name = "simulated"

    def __init__(self, world: World, nodes: int, clock: Clock, *, shares_gate: bool = True) -> None:
        """`shares_gate`: whether sessions wait for each other's limits, or each only for its own."""
        self.world, self.account, self.spent = world, Account(world), Spent()
        self.nodes = [Node(f"node-{number}") for number in range(nodes)]
        self._work = world.work()
        self._clock = clock
        self._random = Random(world.seed + 1)
        self._shared = Shared()
        self._shares_gate = shares_gate
        self._kept: dict[str, int] = {}
        """Calls of a task whose answers are in its transcript."""
        self._made: dict[str, int] = {}
        """Calls of a task that were ever answered."""
        self._freed = anyio.Event()

    def check(self, options: Options) -> None:
        pass

    async def open(self, shared: Shared) -> None:
        self._shared = shared

    async def close(self) -> None:
        pass

    def settle(self, outcomes: Iterable[fleet.Outcome[object]]) -> None:
        """Say what became of the calls of each task, once it is known what became of the task."""
        for outcome in outcomes:
            steps = self._work[outcome.number][: self._made.get(outcome.id, 0)]
            answered = sum(step.tokens for step in steps)
            if outcome.is_done:
                self.spent.useful += answered
            else:
                self.spent.thrown += answered

    # Nodes.

    async def fail_nodes(self) -> None:
        """Lose a node now and then, until cancelled. Each comes back empty."""
        async with anyio.create_task_group() as tasks:
            for node in self.nodes:
                tasks.start_soon(self._fail, node)

    async def _fail(self, node: Node) -> None:
        # Each has its own, so that it fails at the same times however the cluster is used.
        random = Random(f"{self.world.seed} {node.name}")
        while True:
            await anyio.sleep(random.expovariate(1 / (self.world.failure_hours * 3600)))
            self.spent.lost_nodes += 1
            node.is_up = False
            for scope in node.running.values():
                scope.cancel()
            await anyio.sleep(self.world.repair_seconds)
            node.is_up = True
            self._free()

    def _free(self) -> None:
        self._freed.set()
        self._freed = anyio.Event()

    async def _place(self) -> Node:
        """The node with the most room, as soon as one has some."""
        while True:
            up = [node for node in self.nodes if node.is_up]
            if up and len((node := min(up, key=lambda node: len(node.running))).running) < self.world.places:
                return node
            await self._freed.wait()

    @contextmanager
    def _taken(self, node: Node, id: str) -> Generator[anyio.CancelScope]:
        begin = anyio.current_time()
        with anyio.CancelScope() as scope:
            node.running[id] = scope
            try:
                yield scope
            finally:
                del node.running[id]
                self.spent.held += anyio.current_time() - begin
                self._free()

    @contextmanager
    def _working(self) -> Generator[None]:
        begin = anyio.current_time()
        try:
            yield
        finally:
            self.spent.working += anyio.current_time() - begin

    # Attempts.

    async def attempt(self, work: Assignment, tell: Tell) -> Attempted:
        node = await self._place()
        begin = anyio.current_time()
        with self._taken(node, work.id) as scope:
            error = await self._session(work, tell)
        if scope.cancelled_caught:
            if not self.world.keeps_sessions:
                self._kept.pop(work.id, None)
            raise WorkerLost(node.name, "the node is gone")
        took = anyio.current_time() - begin
        return Attempted(status="done" if error is None else "failed", error=error, duration=took, text="ok")

    async def _session(self, work: Assignment, tell: Tell) -> ApiFailed | None:
        """A session from its start to the end of its turn, tried as Outrider tries it."""
        with self._working():
            await anyio.sleep(START_SECONDS)
        gate, retry = self._shared.gate if self._shares_gate else None, self._shared.retry
        tries, since = 0, None
        while True:
            if gate is not None:
                await gate.wait()
            before = self._kept.get(work.id, 0)
            error = await self._turn(work, tell)
            if error is None:
                return None
            if self._kept.get(work.id, 0) > before:
                tries, since = 0, None
            tell(Note(is_rate_limited=True))
            now = self._clock.time()
            tries, since = tries + 1, now if since is None else since
            wait = None
            if retry is not None:
                wait = retry.wait_before(error, tries, since, now=now, random=self._clock.random)
            if wait is None:
                return error
            if error.resets_at is not None:
                since += wait
            if gate is not None:
                await gate.pause(now + wait)
            else:
                await self._clock.sleep(wait)

    async def _turn(self, work: Assignment, tell: Tell) -> ApiFailed | None:
        """The agent's own work: call after call, until it is done or the API fails."""
        steps = self._work[work.number]
        while (done := self._kept.get(work.id, 0)) < len(steps):
            if (error := await self._call(work.id, done, steps[done], tell)) is not None:
                return error
            self._kept[work.id] = done + 1
            with self._working():
                await anyio.sleep(steps[done].tool_seconds)
        return None

    async def _call(self, id: str, number: int, step: Step, tell: Tell) -> ApiFailed | None:
        """One call, with what the program itself does if it is refused."""
        tried = 0
        while (refusal := self.account.ask(step.tokens)) is not None:
            if self.world.tells_own_retries:
                tell(Note(is_rate_limited=True))
            after, resets_at = refusal
            if tried >= self.world.own_retries or after > LONGEST_OWN_WAIT:
                return ApiFailed(429, "rate_limit", retry_after=after, resets_at=resets_at)
            own = min(32.0, 0.5 * 2.0**tried) * (1 + 0.25 * self._random.random())
            await anyio.sleep(max(after, own))
            tried += 1
        is_answered = False
        try:
            with self._working():
                await anyio.sleep(step.seconds)
            is_answered = True
        finally:
            if not is_answered:
                self.spent.cut += step.tokens
        if number < self._made.get(id, 0):
            self.spent.repeated += step.tokens
        else:
            self._made[id] = number + 1
        return None
