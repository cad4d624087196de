"""Try another version of Claude Code: `make canary VERSION=latest`.

Installs it from npm into build/, prints what differs from the version that the tests are written for (flags,
tools, what it says of itself, the frames of every scenario), and runs all other tests with it that need
Claude Code. Fails if one of these does. What is different need not be wrong.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator

import anyio
from rich.console import Console

from outrider import Session
from outrider.testing import RealAgent, clean_environment, say
from scripts.agent_program import OTHERS, PROGRAM_VARIABLE, VERSION, Failed, install, newest
from tests.conformance.golden import Deviation, compare, read_golden
from tests.conformance.renew import course_of
from tests.conformance.scenario import load

_FLAG = re.compile(r"^\s+(?:-\w, )?(--[\w-]+)", re.MULTILINE)


def flags(program: str) -> set[str]:
    """The flags that its help lists."""
    shown = subprocess.run(
        [program, "--help"], env=clean_environment("/nowhere"), capture_output=True, text=True, check=True
    )
    return set(_FLAG.findall(shown.stdout))


async def description(program: str) -> dict[str, set[str]]:
    """What it says of itself in a session."""
    with RealAgent(program=program, otherwise=say("hello")) as agent:
        async with Session(agent.options(setting_sources=None)) as session:
            await session.ask("hello")
            info = session.info
            assert info.init is not None
            assert info.initialized is not None
            return {
                "tools": set(info.tools),
                "commands": {command.name for command in info.commands},
                "models": {model.value for model in info.models},
                "capabilities": set(info.capabilities),
                "keys of `initialize`": set(info.initialized.to_wire()),
                "keys of `init`": set(info.init.raw),
            }


def changes(old: dict[str, set[str]], new: dict[str, set[str]]) -> Iterator[str]:
    """What came and went, a line for each kind."""
    for kind, names in old.items():
        came, went = sorted(new[kind] - names), sorted(names - new[kind])
        if came or went:
            yield f"{kind}: {' '.join([*(f'+{name}' for name in came), *(f'-{name}' for name in went)])}"


def frames(version: str) -> Iterator[tuple[str, list[Deviation]]]:
    """Each scenario that does not go as with the version of the tests, and how it differs: by more than the
    number of the version."""
    for name, scenario in load().items():
        try:
            deviations = compare(read_golden(name), course_of(scenario))
        except Exception as error:  # noqa: BLE001 - the others are played all the same
            deviations = [Deviation("the scenario", "", "its course", f"{type(error).__name__}: {error}")]
        told = [
            each for each in deviations if str(each.actual).replace(version, VERSION) != str(each.expected)
        ]
        if told:
            yield name, told


def summary(found: Iterable[tuple[str, list[Deviation]]]) -> Iterator[str]:
    """What differs, an example for each place in each sort of frame, with the scenarios that it is in."""
    scenarios: dict[tuple[str, str], set[str]] = defaultdict(set)
    examples: dict[tuple[str, str], Deviation] = {}
    for name, deviations in found:
        for deviation in deviations:
            place = deviation.frame, deviation.key
            scenarios[place].add(name)
            examples.setdefault(place, deviation)
    for place, names in sorted(scenarios.items(), key=lambda item: (-len(item[1]), item[0])):
        yield f"{examples[place]} ({min(names)}{f' and {len(names) - 1} more' if len(names) > 1 else ''})"


def show(console: Console, title: str, lines: Iterable[str]) -> None:
    console.rule(title, align="left")
    shown = list(lines)
    for line in shown or ["no change"]:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def main(arguments: list[str]) -> int:
    """Gives the exit code of the tests."""
    console = Console()
    wanted, *pytest = arguments or ["latest"]
    try:
        version = newest() if wanted == "latest" else wanted
        with console.status(f"installing Claude Code {version} and {VERSION}"):
            program, pinned = str(install(OTHERS, version)), str(install(OTHERS, VERSION))
    except Failed as error:
        console.print(f"Claude Code cannot be installed: {error}", style="red")
        return 1
    console.print(f"Claude Code {version}, as compared with {VERSION}")
    before, after = anyio.run(description, pinned), anyio.run(description, program)
    told = {"flags": flags(pinned), **before}, {"flags": flags(program), **after}
    show(console, "what it has", changes(*told))
    os.environ[PROGRAM_VARIABLE] = program
    with console.status("playing the scenarios"):
        found = list(frames(version))
    show(console, "what it says", summary(found))
    console.rule("the tests", align="left")
    # The scenarios have been played, and differ in a word with almost every version.
    command = ("pytest", "-m", "real", "-k", "not test_a_scenario_goes_as_written", *pytest)
    return subprocess.run([sys.executable, "-m", *command], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
