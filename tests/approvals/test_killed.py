"""Whenever the host is killed: nothing runs twice, nothing is lost, and the state says what is known."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import anyio
import pytest

from outrider import Approval, Approvals
from tests.approvals import hosts
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
context.set_forkserver_preload(["tests.approvals.hosts"])


def host(function: Callable[..., None], place: str, root: Path, step: str = "") -> int | None:
    """How a host ended that did this."""
    process = context.Process(target=function, args=(place, root, step))
    process.start()
    process.join(DEADLINE)
    return process.exitcode


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("project", "config"):
        (tmp_path / name).mkdir()
    return tmp_path


def runs(root: Path) -> int:
    made = root / "project" / "made"
    return len(made.read_text().splitlines()) if made.exists() else 0


async def _decide(place: str, root: Path) -> None:
    async with Approvals(place) as approvals:
        session = (root / "session").read_text()
        (pending,) = await approvals.list(session_id=session, state="pending")
        await approvals.decide(pending.id, True, by="ada")


async def _state(place: str, root: Path) -> Approval:
    async with Approvals(place) as approvals:
        (found,) = await approvals.list(session_id=(root / "session").read_text())
        return found


@pytest.mark.parametrize("name", STORES)
@pytest.mark.parametrize("step", ["claimed", "running", "done"])
def test_a_call_that_was_granted_runs_once_at_most(name: str, step: str, root: Path) -> None:
    place = STORES[name](root)
    assert host(hosts.park, place, root, step) == 0
    anyio.run(_decide, place, root)
    assert host(hosts.go_on, place, root, step) == SIGKILL
    killed = anyio.run(_state, place, root)
    assert (killed.state, runs(root)) == ("done" if step == "done" else "claimed", step != "claimed")
    if step == "done":
        return
    # Nobody knows whether it has run: it does not run again, and the model is told.
    assert host(hosts.go_on, place, root) == 0
    assert (anyio.run(_state, place, root).state, runs(root)) == ("unknown", step == "running")
    assert "its outcome is unknown" in (root / "said").read_text()


@pytest.mark.parametrize("name", STORES)
@pytest.mark.parametrize("step", ["asked", "parked", "deferred"])
def test_what_was_asked_is_not_lost(name: str, step: str, root: Path) -> None:
    place = STORES[name](root)
    assert host(hosts.park, place, root, step) == SIGKILL
    assert runs(root) == 0
    anyio.run(_decide, place, root)
    if step != "deferred":
        # The session was not left with the call, so the model is told to make it again.
        (root / "again").touch()
    assert host(hosts.go_on, place, root) == 0
    assert (anyio.run(_state, place, root).state, runs(root)) == ("done", 1)
