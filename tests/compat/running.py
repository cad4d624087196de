"""Runs programs that people write for the reference SDK: with it or with Outrider, and with a simulated agent
or the real one, whose model is a script.

Nothing of the machine is seen by them. Does not judge what they print.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, NamedTuple, TypeAlias
from uuid import uuid4

from benchmarks.reference import interpreter
from outrider.app._migrate import counterpart, read_code
from outrider.testing import MessagesApi, clean_environment
from outrider.testing._simulator.program import SCRIPT_VARIABLE, write_launcher
from scripts.agent_program import program as real_program
from tests.proc import environment_of, process_ids, stat_of

Package: TypeAlias = Literal["reference", "outrider"]
Agent: TypeAlias = Literal["simulated", "real"]
AGENTS: tuple[Agent, ...] = ("simulated", "real")

FOLDER = Path(__file__).with_name("programs")
SIMULATED_ONLY = frozenset(("big_message", "replaying_transport"))
"""Programs for which the real agent is no other: it makes images smaller, or is not asked."""
DEADLINE = 30.0
"""Far longer than any of them takes."""
LEFT_SECONDS = 10.0
"""How long a process may be seen that was told to end."""

_OF_TRIO = ("trio", "outcome", "sortedcontainers")

_MARK = "OUTRIDER_TEST_PROGRAM"


class Done(NamedTuple):
    """What a program came to."""

    code: int
    out: str
    err: str
    left: int
    """How many processes it left behind."""


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.py"))


def run_program(name: str, package: Package, agent: Agent) -> Done:
    """Run a program to its end. Raises `benchmarks.reference.Unavailable` if the reference is not here."""
    text = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    python = Path(sys.executable)
    if package == "outrider":
        text = migrated(text)
    else:
        python = interpreter()
    mark = f"{_MARK}={uuid4()}"
    # As agents will say it: on some systems the folder for temporary files is a link.
    with (
        TemporaryDirectory(prefix="outrider-program-") as place,
        _environment(Path(place).resolve(), name, agent) as env,
    ):
        work = Path(place).resolve() / "project"
        code = Path(place).resolve() / "code" / f"{name}.py"
        for folder in (work, code.parent):
            folder.mkdir()
        code.write_text(text, encoding="utf-8")
        marked = env | dict([mark.split("=", 1)])
        if package == "reference":
            marked["PYTHONPATH"] = str(_with_trio(Path(place).resolve()))
        try:
            done = _run([str(python), "-W", "always::ResourceWarning", str(code)], work, marked)
            return done._replace(left=_left(mark))
        finally:
            for pid in _marked(mark):
                os.kill(pid, signal.SIGKILL)


def _with_trio(place: Path) -> Path:
    """A folder with what the reference's environment has not, and nothing that it has."""
    folder = place / "modules"
    folder.mkdir()
    for name in _OF_TRIO:
        found = find_spec(name)
        assert found is not None
        assert found.origin is not None
        (folder / name).symlink_to(Path(found.origin).parent)
    return folder


def migrated(text: str) -> str:
    """The program after `outrider migrate --write`."""
    return read_code(text, counterpart()).after


@contextmanager
def _environment(place: Path, name: str, agent: Agent) -> Generator[dict[str, str]]:
    script = FOLDER / f"{name}.yaml"
    home = place / "home"
    (home / ".claude").mkdir(parents=True)
    if agent == "simulated":
        variables = {SCRIPT_VARIABLE: str(script), "AGENT": str(write_launcher(place))}
        yield clean_environment(home) | variables
        return
    with MessagesApi(script) as api:
        yield clean_environment(home, url=api.url) | {"AGENT": str(real_program())}


def _run(command: list[str], work: Path, environment: dict[str, str]) -> Done:
    child = subprocess.Popen(
        command,
        cwd=work,
        env={**environment, "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    with child:
        try:
            out, err = child.communicate(timeout=DEADLINE)
        except subprocess.TimeoutExpired:
            child.kill()
            out, err = child.communicate()
            return Done(child.returncode, f"{out}(did not end)\n", err, 0)
    return Done(child.returncode, out, err, 0)


def _left(mark: str) -> int:
    """The processes that are there when all had the time to end."""
    deadline = time.monotonic() + LEFT_SECONDS
    while (left := _marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return len(left)


def _marked(mark: str) -> list[int]:
    wanted = mark.encode()
    return [
        pid
        for pid in process_ids()
        if (stat := stat_of(pid)) is not None and stat.is_running and wanted in environment_of(pid)
    ]
