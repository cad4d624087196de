"""Programs that people write for the reference SDK print the same on Outrider, and leave nothing behind."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.compat.running import AGENTS, FOLDER, SIMULATED_ONLY, Agent, migrated, names, run_program
from tests.real_program import require_program

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="programs are looked for in /proc")

DIFFERENT = {
    "big_message": "messages may be larger than a megabyte",
    "plain_functions": "callbacks need not be async, None is no opinion, and a failing prompt is not hidden",
    "replaying_transport": "messages of a kind that is not known are given",
    "twice": "an agent is ended before the next is started, and stays connected; all who receive see all",
    "unread": "what is not read yet is in nobody's way",
}
"""Programs that print something else, and why. What they print is in `NAME.outrider.out`."""

LOUD = {
    "calculator": "the tool 'root' failed",
    "errors": "no licence",
    "permission": "the callback broke",
    "plain_functions": "the iterable of prompts failed",
}
"""Programs of which something is to be seen on stderr."""

OF_CLAUDE_CODE = ("Claude configuration file not found", "A backup file exists", "You can manually restore")
"""What it says when another one, which starts at the same moment, is just replacing the file."""

CASES = [
    (name, agent)
    for name in names()
    for agent in AGENTS
    if agent == "simulated" or name not in SIMULATED_ONLY
]


def expected(name: str, agent: Agent) -> str:
    endings = [".outrider.out"] if name in DIFFERENT else []
    endings += [".real.out"] if agent == "real" else []
    files = [FOLDER / f"{name}{ending}" for ending in (*endings, ".out")]
    return next(file for file in files if file.exists()).read_text(encoding="utf-8")


@pytest.mark.parametrize("name,agent", CASES)
def test_a_program_prints_what_it_does_with_the_reference(name: str, agent: Agent) -> None:
    if agent == "real":
        require_program()
    done = run_program(name, "outrider", agent)
    assert done.out == expected(name, agent), done.err
    assert done.code == 0
    assert done.left == 0
    assert LOUD.get(name, "") in done.err
    if name not in LOUD:
        assert [line for line in done.err.splitlines() if not line.startswith(OF_CLAUDE_CODE)] == []


def test_a_difference_is_one() -> None:
    for name in DIFFERENT:
        theirs, ours = ((FOLDER / f"{name}{ending}").read_text() for ending in (".out", ".outrider.out"))
        assert theirs != ours
    assert {path.name.removesuffix(".outrider.out") for path in FOLDER.glob("*.outrider.out")} == set(
        DIFFERENT
    )


def test_every_program_has_a_script_and_an_output() -> None:
    assert {path.stem for path in FOLDER.glob("*.yaml")} == set(names())
    for name in names():
        assert (FOLDER / f"{name}.out").exists()


@pytest.mark.parametrize("name", names())
def test_only_imports_are_changed(name: str) -> None:
    text = Path(FOLDER / f"{name}.py").read_text()
    changed = [
        new for old, new in zip(text.splitlines(), migrated(text).splitlines(), strict=True) if old != new
    ]
    assert changed
    assert all("outrider.compat import" in line for line in changed)
