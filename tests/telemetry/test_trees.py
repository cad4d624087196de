"""The spans of every recording of the real program."""

from __future__ import annotations

import anyio

from outrider.session import Usage
from tests import tapes
from tests.cases import every_case
from tests.telemetry import trees
from tests.telemetry.trees import Played, played


@every_case("name", tapes.NAMES)
def test_each_recording_has_its_tree(name: str) -> None:
    # To write them anew: python -m tests.telemetry.trees
    assert trees.trees(name) == trees.read().get(name, "")


@every_case("name", tapes.NAMES)
def test_every_span_ends_and_metrics_add_up(name: str) -> None:
    for one in played(name):
        one.recorder.check()
        total: Usage = one.routing.meter.total
        counted = {
            kind: one.recorder.total(f"gen_ai.client.inference.usage.{kind}")
            for kind in (
                "input_tokens",
                "output_tokens",
                "cache_read.input_tokens",
                "cache_write.input_tokens",
            )
        }
        cached = total.cache_read_tokens, total.cache_creation_tokens
        assert tuple(counted.values()) == (total.input_tokens + sum(cached), total.output_tokens, *cached)
        assert round(one.recorder.total("outrider.cost"), 9) == round(total.cost_usd, 9)
        # Also if one result is for several turns.
        costs = [(span.attributes or {}).get("outrider.turn.cost_usd", 0.0) for span in one.recorder.started]
        assert sum(map(float, map(str, costs))) <= total.cost_usd + 1e-9


@every_case("name", ["02-partial-text-and-tool", "11-subagent-background", "06-mcp-sdk-tools"])
def test_every_span_ends_wherever_the_program_is_killed(name: str) -> None:
    records = next(tapes.runs(name))

    async def play() -> None:
        for end in range(len(records)):
            Played(records[:end]).recorder.check()

    anyio.run(play)
