"""The metrics: durations, tokens and cost by model, turns by outcome, processes and pools.

No label has values without end: no ids, paths or tenants, and of names that a model makes up only the first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar
from weakref import WeakSet, WeakValueDictionary

from opentelemetry.metrics import Observation

from outrider._version import __version__
from outrider.telemetry import _names as n
from outrider.telemetry._spans import Labels, harmless

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from opentelemetry.metrics import CallbackOptions, Histogram, Meter, MeterProvider

    from outrider.fleet import Pool, PoolStats
    from outrider.session import Usage
    from outrider.session._connection.connection import Connection
    from outrider.telemetry._spans import Branch

T = TypeVar("T")

_MOST_VALUES: Final = 200
"""How many values one label may have."""

# Boundaries, as the conventions have them.
_SECONDS: Final = tuple(0.01 * (1 << power) for power in range(14))
_AGENT_SECONDS: Final = tuple(0.1 * (1 << power) for power in range(13))
_RUN_SECONDS: Final = (1, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200)
_TOKEN_COUNTS: Final = tuple(4**power for power in range(14))
_CALLS: Final = tuple(1 << power for power in range(8))

_TOKENS: Final = ("input_tokens", "output_tokens", "cache_read.input_tokens", "cache_write.input_tokens")
_TOKEN_TYPES: Final = {"input_tokens": "input", "output_tokens": "output"}
_BOUNDED: Final = (n.TOOL_NAME, n.AGENT_NAME, n.REQUEST_MODEL, n.ERROR_TYPE, n.OUTCOME)
_POOL_STATES: Final = ("starting", "warm", "busy", "idle", "closing")


class _Gauges:
    """What is looked at when it is collected, in a thread of the collector's.

    There is one for each provider: of several gauges of the same name an SDK asks only the first.
    """

    def __init__(self, meter: Meter, provider: MeterProvider) -> None:
        self.provider: Final = provider
        """Held, so that its id stays its own."""
        self.processes: WeakSet[Connection] = WeakSet()
        self.pools: WeakSet[Pool] = WeakSet()
        meter.create_observable_gauge(
            n.PROCESS_MEMORY, [self._observe_memory], "By", "Memory of Claude Code and what it started."
        )
        meter.create_observable_gauge(
            n.POOL_WAITING, [self._observe_waiting], "{caller}", "Callers of pools that wait for a process."
        )
        meter.create_observable_gauge(
            n.POOL_PROCESSES, [self._observe_pools], "{process}", "Processes of pools, by state."
        )

    def _observe_memory(self, _: CallbackOptions) -> Iterable[Observation]:
        running = [connection for connection in _listed(self.processes) if not connection.is_closed]
        found = (getattr(connection.transport, "resident_bytes", None) for connection in running)
        measured = [int(measure()) for measure in found if measure is not None]
        return [Observation(sum(measured))] if measured else []

    def _observe_waiting(self, _: CallbackOptions) -> Iterable[Observation]:
        stats = self._pool_stats()
        return [Observation(sum(sum(each.waiting.values()) for each in stats))] if stats else []

    def _observe_pools(self, _: CallbackOptions) -> Iterable[Observation]:
        stats = self._pool_stats()
        states = _POOL_STATES if stats else ()
        return [
            Observation(sum(getattr(each, state) for each in stats), {n.POOL_STATE: state})
            for state in states
        ]

    def _pool_stats(self) -> list[PoolStats]:
        try:
            return [pool.stats() for pool in _listed(self.pools)]
        except RuntimeError:
            # What it counts was changed meanwhile, in the thread of its event loop.
            return []


def _listed(objects: WeakSet[T]) -> list[T]:
    while True:
        try:
            return list(objects)
        except RuntimeError:
            # One was added meanwhile, in the thread of its event loop.
            continue


_gauges: WeakValueDictionary[int, _Gauges] = WeakValueDictionary()
"""By the ids of their providers, which need not be hashable: that of Logfire is not."""


class Metrics:
    """The instruments of a provider."""

    def __init__(self, provider: MeterProvider, names: n.Names) -> None:
        meter = provider.get_meter(n.SCOPE, __version__)
        self._values: dict[str, set[str]] = {name: set() for name in _BOUNDED}

        def histogram(name: str, unit: str, description: str, boundaries: Sequence[float]) -> Histogram:
            return meter.create_histogram(
                name, unit, description, explicit_bucket_boundaries_advisory=boundaries
            )

        def seconds(name: str, description: str, boundaries: Sequence[float] = _SECONDS) -> Histogram:
            return histogram(name, "s", description, boundaries)

        self.turn_seconds = seconds(
            n.INVOKE_AGENT_DURATION, "How long turns and subagents take.", _AGENT_SECONDS
        )
        self.tool_seconds = seconds(n.EXECUTE_TOOL_DURATION, "How long calls of tools take.")
        self.run_seconds = seconds(n.INVOKE_WORKFLOW_DURATION, "How long runs of fleets take.", _RUN_SECONDS)
        self.chat_seconds = seconds(names.inference_duration, "How long calls of the model take.")
        self.first_chunk_seconds = seconds(
            names.first_chunk_duration, "How long the model takes to begin its answer."
        )
        self.start_seconds = seconds(n.PROCESS_START, "How long Claude Code takes to start.")
        self._inferences = histogram(
            n.INFERENCE_CALLS, "{inference_call}", "Calls of the model in a turn or a subagent.", _CALLS
        )
        self._tool_calls = histogram(
            n.TOOL_CALLS, "{tool_call}", "Calls of tools in a turn or a subagent.", _CALLS
        )
        self._turns = meter.create_counter(n.TURNS_METRIC, "{turn}", "Turns, by outcome.")
        self._cost = meter.create_counter(n.COST_METRIC, "USD", "What models cost, as Claude Code counts it.")
        self._count = meter.create_up_down_counter(n.PROCESS_COUNT, "{process}", "Running processes.")
        self._token_histogram = (
            None
            if names.token_histogram is None
            else histogram(names.token_histogram, "{token}", "Tokens that turns use, by kind.", _TOKEN_COUNTS)
        )
        self._token_counters = {
            kind: meter.create_counter(n.USAGE + kind, "{token}", f"Tokens that models use: {kind}.")
            for kind in (_TOKENS if names.token_histogram is None else ())
        }
        if (gauges := _gauges.get(id(provider))) is None:
            gauges = _gauges[id(provider)] = _Gauges(meter, provider)
        self._gauges = gauges

    def bounded(self, labels: Labels) -> Labels:
        """Labels that could have any number of values, because a model or a program makes them up: all beyond
        the first ones are put together."""
        for name in _BOUNDED:
            if (value := labels.get(name)) is not None:
                known = self._values[name]
                if value not in known:
                    if len(known) >= _MOST_VALUES:
                        labels[name] = n.OTHER
                    else:
                        known.add(value)
        return labels

    @harmless
    def took(self, what: Histogram, began: int, ended: int, labels: Labels, error: str | None = None) -> None:
        """Record how long something took, from two times in nanoseconds."""
        if error is not None:
            labels = self.bounded({**labels, n.ERROR_TYPE: error})
        what.record((ended - began) / 1e9, labels)

    @harmless
    def agent_ended(self, branch: Branch, ended: int, labels: Labels, error: str | None) -> None:
        """Record what a turn or a subagent took."""
        self.took(self.turn_seconds, branch.began, ended, labels, error)
        self._inferences.record(branch.inferences, labels)
        self._tool_calls.record(branch.tool_calls, labels)

    def turn_ended(self, outcome: str, agent: str) -> None:
        self._turns.add(1, self.bounded({n.AGENT_NAME: agent, n.OUTCOME: outcome}))

    def used(self, usage: Usage, model: str | None, provider: str) -> None:
        """Count what was used, by model where that is known, and else as that of `model`."""
        for name, part in (usage.by_model or {model or n.OTHER: usage}).items():
            own = self.bounded({n.PROVIDER: provider, n.REQUEST_MODEL: name})
            tokens = {**own, n.OPERATION: n.CHAT}
            cached = part.cache_read_tokens, part.cache_creation_tokens
            # The input includes what was cached, and has that once more by itself.
            counts = part.input_tokens + sum(cached), part.output_tokens, *cached
            for kind, count in zip(_TOKENS, counts, strict=True):
                if count and kind in self._token_counters:
                    self._token_counters[kind].add(count, tokens)
                elif count and self._token_histogram is not None and kind in _TOKEN_TYPES:
                    self._token_histogram.record(count, {**tokens, n.TOKEN_TYPE: _TOKEN_TYPES[kind]})
            if part.cost_usd:
                self._cost.add(part.cost_usd, own)

    def process_started(self, connection: Connection) -> None:
        self._gauges.processes.add(connection)
        self._count.add(1)

    def process_ended(self) -> None:
        self._count.add(-1)

    def pool_opened(self, pool: Pool) -> None:
        self._gauges.pools.add(pool)
