"""Write the golden files anew, from the program itself: `python -m tests.conformance.renew [NAME …]`.

Each scenario is played twice: one that does not come out the same is named, and its file is left as it is.
With `--dry`, nothing is written, and what differs from the files is told.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import anyio

from scripts.agent_program import program
from tests.conformance.agents import play, real_place
from tests.conformance.golden import FOLDER, compare, read_golden, write_golden
from tests.conformance.host import Stage
from tests.conformance.scenario import Scenario, load


def course_of(scenario: Scenario) -> dict[str, Any]:
    """What the program makes of a scenario."""
    stage = Stage()
    path = os.environ.get("OUTRIDER_TEST_AGENT") or str(program())
    with real_place(scenario, stage, program=path) as place:
        course: dict[str, Any] = anyio.run(play, scenario, place, stage)
    return course


def renew(names: list[str], *, dry: bool) -> int:
    """Gives the number of scenarios that did not come out as they should."""
    failed = 0
    scenarios = load()
    for name in names or scenarios:
        try:
            first, second = course_of(scenarios[name]), course_of(scenarios[name])
        except Exception as error:  # noqa: BLE001 - the others are played all the same
            failed += 1
            print(f"{name}: {type(error).__name__}: {error}")
            continue
        if changes := compare(first, second):
            failed += 1
            print(f"{name}: comes out differently:", *changes, sep="\n    ")
        elif not dry:
            write_golden(name, first)
        elif changes := compare(read_golden(name), first):
            failed += 1
            print(f"{name}: is no longer as in its file:", *changes, sep="\n    ")
    if not names and not dry:
        for path in FOLDER.glob("*.json"):
            if path.stem not in scenarios:
                path.unlink()
    return failed


if __name__ == "__main__":
    arguments = [argument for argument in sys.argv[1:] if argument != "--dry"]
    sys.exit(1 if renew(arguments, dry="--dry" in sys.argv) else 0)
