"""Whenever the host is killed: nothing runs twice, nothing is lost, and the state says what is known."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import anyio
import pytest

from outrider import Approval, Approvals
from outrider.approvals import ApprovalSettled
from outrider.testing import Answer, Request, ToolUse, say, use_tool
from outrider.transcripts import MemoryStore
from tests.approvals import hosts
from tests.approvals.hosts import Setting
from tests.session.real.talking import real_agent
from tests.transcripts.stores.remote import REMOTES

DEADLINE = 30.0
SIGKILL = -9


def _remote(name: str) -> str:
    server = REMOTES[name].server()
    match name:
        case "s3":
            endpoint = server.endpoint(port=0)
            return f"s3://{server.bucket}/{uuid4().hex}?endpoint={endpoint}&region=us-east-1"
        case _:
            return str(server.url(port=0))


STORES: dict[str, Callable[[Path], str]] = {
    "sqlite": lambda folder: f"sqlite:///{folder}/approvals.db",
    "file": lambda folder: f"file://{folder}/approvals",
    "postgres": lambda _: _remote("postgres"),
    "redis": lambda _: _remote("redis"),
    "s3": lambda _: _remote("s3"),
}

context = multiprocessing.get_context("forkserver")
# With the drivers: to import them takes longer than the rest of a host.
context.set_forkserver_preload(["tests.approvals.hosts", "boto3", "psycopg", "redis"])


AGENTS = pytest.mark.parametrize(
    "name, is_real",
    [
        *[pytest.param(name, False, id=name) for name in STORES],
        pytest.param("sqlite", True, id="real", marks=pytest.mark.real),
    ],
)


def host(function: Callable[..., None], setting: Setting, step: str = "") -> int | None:
    """How a host ended that did this."""
    process = context.Process(target=function, args=(setting, step))
    process.start()
    process.join(DEADLINE)
    return process.exitcode


@contextmanager
def playing(name: str, step: str, root: Path, *, is_real: bool) -> Generator[Setting]:
    """The simulator, or the real program with a model that says the same."""
    place = STORES[name](root)
    if is_real:
        call = use_tool("Bash", command=hosts.command(step))

        def react(request: Request) -> Answer | ToolUse:
            # It reads the end of its input before it is killed, refuses the call, and says so to the model.
            return call if "Make exactly this call again" in str(request.messages[-1]) else say("All done.")

        with real_agent(call, otherwise=react) as agent:
            yield Setting(place, root, agent.folder, agent.options())
            (root / "said").write_text(str(agent.main_requests[-1].messages))
    else:
        for folder in ("project", "config"):
            (root / folder).mkdir()
        yield Setting(place, root, root / "project")


def runs(setting: Setting) -> int:
    made = setting.folder / "made"
    return len(made.read_text().splitlines()) if made.exists() else 0


async def _state(setting: Setting) -> Approval:
    async with Approvals(setting.place) as approvals:
        (found,) = await approvals.list(session_id=(setting.root / "session").read_text())
        return found


async def _ready(setting: Setting, session_id: str) -> None:
    """Wait until a worker sees that the session can go on. Those of other tests may be in the same server."""
    async with Approvals(setting.place) as approvals:
        with anyio.fail_after(DEADLINE):
            async for each in approvals.ready(poll=0.05):
                if each == session_id:
                    return


@AGENTS
@pytest.mark.parametrize("step", ["claimed", "running", "done"])
def test_a_call_that_was_granted_runs_once_at_most(
    name: str, is_real: bool, step: str, tmp_path: Path
) -> None:
    with playing(name, step, tmp_path, is_real=is_real) as setting:
        assert host(hosts.park, setting, step) == 0
        assert host(hosts.decide, setting) == 0
        assert host(hosts.go_on, setting, step) == SIGKILL
        killed = anyio.run(_state, setting)
        assert (killed.state, runs(setting)) == ("done" if step == "done" else "claimed", step != "claimed")
        # The turn was cut off, so a worker is told of the session.
        anyio.run(_ready, setting, killed.session_id)
        assert host(hosts.go_on, setting) == 0
        # Unless it is done, nobody knows whether it has run: it does not run again, and the model is told.
        after = anyio.run(_state, setting)
        assert (after.state, after.is_open) == ("done" if step == "done" else "unknown", False)
        assert runs(setting) == (step != "claimed")
        assert host(hosts.go_on, setting) == 1, "there is nothing left"
    said = (tmp_path / "said").read_text()
    assert ("made" if step == "done" else "its outcome is unknown") in said


NOT_LEFT = ("asked", "parked")
"""Steps before the session is left with the call."""


@AGENTS
@pytest.mark.parametrize("step", ["asked", "parked", "deferred", "granted"])
def test_what_was_asked_is_not_lost(name: str, is_real: bool, step: str, tmp_path: Path) -> None:
    with playing(name, step, tmp_path, is_real=is_real) as setting:
        assert host(hosts.park, setting, step) == (0 if step == "granted" else SIGKILL)
        assert runs(setting) == 0
        assert host(hosts.decide, setting, step) == (SIGKILL if step == "granted" else 0)
        if step in NOT_LEFT:
            # The session was not left with the call, so the model is told to make it again.
            (tmp_path / "again").touch()
        assert host(hosts.go_on, setting) == 0
        assert (anyio.run(_state, setting).state, runs(setting)) == ("done", 1)


@pytest.mark.parametrize("name", [*STORES, "memory"])
def test_one_of_many_decisions_at_once_counts(name: str, tmp_path: Path) -> None:
    async def decide() -> None:
        place = MemoryStore() if name == "memory" else STORES[name](tmp_path)
        async with Approvals(place) as asking, anyio.create_task_group() as tasks:
            waiting = await asking.ask(str(uuid4()), "Bash", {"command": "ls"})
            settled: list[str] = []

            async def vote(number: int) -> None:
                # Each with connections of its own.
                async with Approvals(place) as approvals:
                    try:
                        await approvals.decide(waiting.id, number % 2 == 0, by=str(number))
                    except ApprovalSettled as error:
                        settled.append(error.by)

            for number in range(DECIDERS):
                tasks.start_soon(vote, number)
            with anyio.fail_after(DEADLINE):
                while len(settled) < DECIDERS - 1:  # noqa: ASYNC110 - one of them is told nothing
                    await anyio.sleep(0.01)
            found = await asking.get(waiting.id)
            assert found.state == ("granted" if int(found.by) % 2 == 0 else "denied")
            # The others are told who was first.
            assert settled == [found.by] * (DECIDERS - 1)

    anyio.run(decide)


DECIDERS = 6
