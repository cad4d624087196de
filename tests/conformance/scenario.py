"""Scenarios: what the model says, how the agent is started, and what the host does, as one value with a name.

Does not know any agent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from tests.conformance.host import Host, Stage

__all__ = ["SCENARIOS", "Scenario", "load", "scenario"]


@dataclass(frozen=True)
class Scenario:
    name: str
    play: Callable[[Host], Awaitable[None]]
    """What the host does."""
    script: Callable[[Stage], list[Any]]
    """What the model says."""
    subagents: tuple[Any, ...] = ()
    """What the model says as a subagent."""
    flags: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    """What is in the folder at the start."""
    full: bool = False
    """Whether every key of the large frames is compared."""
    loose: bool = False
    """Whether results of tools that run beside each other may come in any order."""
    everywhere: bool = False
    """Whether all agents play it each time. The others are played by the simulated agent in memory, which
    takes next to nothing, and by the program itself when everything is asked for."""
    alone: bool = False
    """Whether it is about the program as such, which a transport in memory is not."""


SCENARIOS: Final[dict[str, Scenario]] = {}
"""All of them, by name."""


def scenario(
    *script: Any,
    held: Callable[[Stage], list[Any]] | None = None,
    subagents: tuple[Any, ...] = (),
    flags: tuple[str, ...] = (),
    env: Mapping[str, str] | None = None,
    files: Mapping[str, str] | None = None,
    full: bool = False,
    loose: bool = False,
    everywhere: bool = False,
    alone: bool = False,
) -> Callable[[Callable[[Host], Awaitable[None]]], Scenario]:
    """Makes a scenario of a function; `held` is a script that the host holds at gates."""

    def make(play: Callable[[Host], Awaitable[None]]) -> Scenario:
        made = Scenario(
            name=play.__name__,
            play=play,
            script=held or (lambda _: list(script)),
            subagents=subagents,
            flags=flags,
            env=env or {},
            files=files or {},
            full=full,
            loose=loose,
            everywhere=everywhere,
            alone=alone,
        )
        assert made.name not in SCENARIOS, f"two scenarios are called {made.name}"
        SCENARIOS[made.name] = made
        return made

    return make


def load() -> dict[str, Scenario]:
    """All scenarios, of all modules."""
    for path in sorted(Path(__file__).parent.glob("scenarios_*.py")):
        import_module(f"tests.conformance.{path.stem}")
    return SCENARIOS
