"""Every scenario goes as written in its golden file, whichever agent plays it.

The files are the program's own doing: `python -m tests.conformance.renew` writes them.
"""

from __future__ import annotations

import anyio
import pytest

from tests.conformance.agents import ACTORS, AgentKind, play, playing
from tests.conformance.differences import DIFFERENCES, judge
from tests.conformance.golden import FOLDER, Deviation, compare, read_golden
from tests.conformance.host import Stage
from tests.conformance.scenario import Scenario, load

SCENARIOS = load()

SMOKE = ("bash", "every_event", "partial_messages")
"""What the program itself plays in `make test`."""


def plays(kind: AgentKind, scenario: Scenario) -> bool:
    match kind:
        case "real":
            return True
        case "simulator":
            return not scenario.alone
        case "child":
            return scenario.everywhere or scenario.alone


def cases() -> list[object]:
    """Each agent with the scenarios that it plays."""
    return [
        pytest.param(kind, name, id=f"{kind}-{name}", marks=[pytest.mark.smoke] if name in SMOKE else [])
        for kind in ACTORS
        for name, scenario in SCENARIOS.items()
        if plays(kind, scenario)
    ]


@pytest.mark.anyio
@pytest.mark.requirement("H1")
@pytest.mark.parametrize("kind, name", cases())
async def test_a_scenario_goes_as_written(kind: AgentKind, name: str) -> None:
    scenario, stage = SCENARIOS[name], Stage()
    with playing(kind, scenario, stage) as place, anyio.fail_after(45):
        course = await play(scenario, place, stage)
    deviations = compare(read_golden(name), course, in_own_words=kind != "real")
    if kind == "real":
        assert not deviations, told(name, deviations)
        return
    unexplained, unneeded = judge(name, deviations)
    assert not unexplained, told(name, unexplained)
    if kind == "simulator" or scenario.alone:
        assert not unneeded, f"{name}: these differences are gone, and can be taken off the list: {unneeded}"


def told(name: str, deviations: list[Deviation]) -> str:
    return f"{name} did not go as in {FOLDER.name}/{name}.json:\n" + "\n".join(map(str, deviations))


def test_each_scenario_has_a_file_and_each_file_a_scenario() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.json")) == sorted(SCENARIOS)


def test_each_difference_is_of_a_scenario() -> None:
    named = {name for difference in DIFFERENCES for name in difference.scenarios}
    assert named <= set(SCENARIOS)
    assert all(difference.reason for difference in DIFFERENCES)
