"""The agents that all is played with: the program itself, and the simulated one, in memory and as a child.

Does not know what is expected of them.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeAlias, Unpack

import msgspec

from outrider.command import Command
from outrider.options import OptionFields, Options
from outrider.testing import Answer, RealAgent, Request, Script, Simulator, ToolUse, clean_environment
from outrider.transports import ProcessTransport, Transport
from tests.conformance.host import Host, Place, Stage
from tests.conformance.scenario import Scenario, load
from tests.conformance.shapes import Reading
from tests.real_program import require_program

__all__ = ["ACTORS", "Actor", "AgentKind", "acting", "play", "playing", "real_place", "script_of"]

AgentKind: TypeAlias = Literal["real", "simulator", "child"]
ACTORS: Final[tuple[AgentKind, ...]] = ("real", "simulator", "child")

ROOT: Final = Path(__file__).resolve().parents[2]

SCRIPT_VARIABLE: Final = "OUTRIDER_AGENT_SCRIPT"


# Frame by frame.


class RealPlace:
    """The folders of the program itself."""

    def __init__(self, agent: RealAgent) -> None:
        self.agent = agent
        self.folder, self.config_dir = agent.folder, agent.config_dir

    def transport(self, arguments: tuple[str, ...], env: Mapping[str, str]) -> Transport:
        environment = {**self.agent.environment, **env}
        return ProcessTransport(
            Command((self.agent.program, *arguments), env=environment, cwd=str(self.folder))
        )

    @property
    def requests(self) -> list[Request] | None:
        return self.agent.api.requests


class SimulatedPlace:
    """Folders of the simulated agent, as those of the program."""

    def __init__(self, root: Path, scenario: Scenario, stage: Stage) -> None:
        self.root = root
        self.folder, self.config_dir = root / "project", root / "home" / ".claude"
        for folder in (self.folder, self.config_dir):
            folder.mkdir(parents=True)
        self.agent: Simulator | None = None
        self._scenario, self._stage = scenario, stage

    def transport(self, arguments: tuple[str, ...], env: Mapping[str, str]) -> Transport:
        if self.agent is None:
            script = script_of(self._scenario, self._stage, self.folder)
            self.agent = Simulator(script, folder=self.folder, config_dir=self.config_dir)
        else:
            self.agent = self.agent.again()
        self.agent.prepare(self._command(("claude", *arguments), env))
        return self.agent

    @property
    def requests(self) -> list[Request] | None:
        return None if self.agent is None else self.agent.requests

    def _command(self, argv: tuple[str, ...], env: Mapping[str, str]) -> Command:
        environment = {**clean_environment(self.root / "home"), **env}
        return Command(argv, env=environment, cwd=str(self.folder))


class ChildPlace(SimulatedPlace):
    """The same for the simulated agent as a program."""

    def transport(self, arguments: tuple[str, ...], env: Mapping[str, str]) -> Transport:
        path = self.root / "script.py"
        path.write_text(
            "from tests.conformance.agents import script_by_name\n"
            f"script = script_by_name({self._scenario.name!r}, {str(self.folder)!r})\n"
        )
        variables = {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), SCRIPT_VARIABLE: str(path), **env}
        return ProcessTransport(
            self._command((sys.executable, "-m", "outrider.testing.agent", *arguments), variables)
        )

    @property
    def requests(self) -> list[Request] | None:
        return None


def script_of(scenario: Scenario, stage: Stage, folder: Path) -> Script:
    """What the model says in a scenario that is played in this folder."""
    return Script(placed(scenario.script(stage), folder), subagents=scenario.subagents)


def script_by_name(name: str, folder: str) -> Script:
    return script_of(load()[name], Stage(), Path(folder))


def placed(script: Iterable[Any], folder: Path) -> list[Any]:
    """The script with the folder filled in where tools are given `$FOLDER`."""

    def fill(value: Any) -> Any:
        match value:
            case str():
                return value.replace("$FOLDER", str(folder))
            case Mapping():
                return {key: fill(each) for key, each in value.items()}
            case list():
                return [fill(each) for each in value]
            case Answer():
                return msgspec.structs.replace(value, blocks=tuple(fill(block) for block in value.blocks))
            case ToolUse():
                return msgspec.structs.replace(value, input=fill(value.input))
            case _:
                return value

    return [fill(step) for step in script]


@contextmanager
def real_place(scenario: Scenario, stage: Stage, *, program: str) -> Generator[RealPlace]:
    with RealAgent(program=program, subagents=scenario.subagents) as agent:
        agent.api.add(*placed(scenario.script(stage), agent.folder))
        yield RealPlace(agent)


@contextmanager
def playing(kind: AgentKind, scenario: Scenario, stage: Stage) -> Generator[Any]:
    """A place for one of the agents; skips the test if it is the program, and that is not there."""
    if kind == "real":
        with real_place(scenario, stage, program=require_program()) as place:
            yield place
        return
    with _folder() as root:
        yield (SimulatedPlace if kind == "simulator" else ChildPlace)(root, scenario, stage)


async def play(scenario: Scenario, place: Any, stage: Stage) -> dict[str, Any]:
    """All that came of a scenario, reduced to what is compared."""
    for name, content in scenario.files.items():
        (place.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (place.folder / name).write_text(content)
    host = Host(place, stage, scenario.flags, scenario.env)
    await scenario.play(host)
    reading = Reading(_names(place), full=scenario.full, loose=scenario.loose)
    course: dict[str, Any] = {"runs": [reading.run(run) for run in host.runs]}
    if (requests := place.requests) is not None:
        course["requests"] = reading.requests(requests)
    return course


def _names(place: Place) -> list[tuple[str, str]]:
    # How the agent calls a folder in names of files.
    slug = "".join(char if char.isalnum() else "-" for char in str(place.folder))
    root = str(place.folder.parent)
    return [
        (str(place.folder), "$FOLDER"),
        (str(place.config_dir), "$CONFIG"),
        (root, "$ROOT"),
        (slug, "$SLUG"),
    ]


@contextmanager
def _folder() -> Generator[Path]:
    with tempfile.TemporaryDirectory(prefix="outrider-conformance-") as name:
        yield Path(name).resolve()


# Sessions.


class Actor(Protocol):
    """An agent for sessions, one after the other."""

    @property
    def folder(self) -> Path: ...

    @property
    def requests(self) -> list[Request]:
        """What the model of the main conversation was asked."""
        ...

    def options(self, **fields: Unpack[OptionFields]) -> Options: ...


class RealActor:
    def __init__(self, agent: RealAgent) -> None:
        self._agent = agent
        self.folder, self.options = agent.folder, agent.options

    @property
    def requests(self) -> list[Request]:
        return self._agent.api.main_requests


class SimulatedActor:
    def __init__(self, agent: Simulator, folder: Path) -> None:
        self._agent, self._is_used, self.folder = agent, False, folder

    def options(self, **fields: Unpack[OptionFields]) -> Options:
        if self._is_used:
            self._agent = self._agent.again()
        self._is_used = True
        # As `RealAgent` has it: without, nobody may switch permissions off as root.
        fields["env"] = {"IS_SANDBOX": "1", **fields.get("env", {})}
        return self._agent.options(**fields)

    @property
    def requests(self) -> list[Request]:
        return [request for request in self._agent.requests if request.kind == "main"]


@contextmanager
def acting(kind: str, script: Iterable[Any] = (), *, subagents: Iterable[Any] = ()) -> Generator[Actor]:
    """One of the agents; skips the test if it is the program, and that is not there."""
    if kind == "real":
        with RealAgent(list(script), program=require_program(), subagents=subagents) as agent:
            yield RealActor(agent)
        return
    with _folder() as root:
        folder, config_dir = root / "project", root / "home" / ".claude"
        for each in (folder, config_dir):
            each.mkdir(parents=True)
        whole = Script(list(script), subagents=subagents)
        with Simulator(whole, folder=folder, config_dir=config_dir, executable=kind == "child") as simulator:
            yield SimulatedActor(simulator, folder)
