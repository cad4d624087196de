"""Attacks by an agent that crashes, hangs, or meets a failing API whenever it is started: it is started as
often as `Restart` says and asked as often as `Retry` says, and not once more, whoever drives it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import anyio
import msgspec
import pytest

from outrider import fleet
from outrider.errors import SessionNotFound
from outrider.fleet import Assignment, Attempted, Restart, Retry, WorkerLost, attempt_locally
from outrider.fleet._engine import Tell
from outrider.transports import ProcessTransport
from tests.fleet.resilient import QUICK, Frail
from tests.fleet.stub_engine import Stub
from tests.transports.conftest import nothing_is_left

__all__ = ["nothing_is_left"]

pytestmark = pytest.mark.anyio

DEADLINE = 60.0
AT_ONCE = Restart(max=3, backoff=0.001)

CRASHES: dict[str, list[str] | str] = {
    "at its start": "dead",
    "by never answering at its start": "mute",
    "when it is asked": ["die_unheard"],
    "when it has said something": ["die"],
    "when it has called a tool": ["act_die"],
    "by an exit": ["exit:3"],
}
"""How it crashes, and what the frail agent is told for that."""

TWICE = Retry(max_tries=2, backoff=0.001, jitter=0.0)
UNANSWERED = msgspec.structs.replace(QUICK, connect=0.3)
HASTY = msgspec.structs.replace(QUICK, turn=0.5, interrupt=0.2)

Drive: TypeAlias = Callable[[Frail, Restart | None], Awaitable[object]]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def frail(tmp_path: Path) -> Frail:
    return Frail(tmp_path)


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> list[ProcessTransport]:
    """What was started, also if it was ended before it could say so."""
    found: list[ProcessTransport] = []
    connect = ProcessTransport.connect

    async def noted(transport: ProcessTransport) -> None:
        # One that fails to start is asked for its version.
        if transport.command.argv[-1] != "-v":
            found.append(transport)
        await connect(transport)

    monkeypatch.setattr(ProcessTransport, "connect", noted)
    return found


class Losing(Stub):
    """An engine whose worker is lost with the agent in it, as if the machine had no memory left.

    It stands for a cluster: what an attempt does there is done here.
    """

    def __init__(self, survived: int) -> None:
        """`survived`: how many crashes of the agent before that."""
        super().__init__(self._lose)
        self._survived = survived

    async def _lose(self, work: Assignment, tell: Tell) -> Attempted:
        shared = self.shared
        assert shared is not None
        restart = shared.restart
        if restart is not None:
            last = min(restart.max, work.tries.restarts + self._survived)
            shared = msgspec.structs.replace(shared, restart=msgspec.structs.replace(restart, max=last))
        attempted = await attempt_locally(work, shared, tell)
        if isinstance(attempted.error, SessionNotFound):
            return attempted
        raise WorkerLost("node", "it was lost with its agent")


# Who drives it.


async def resilient(frail: Frail, restart: Restart | None) -> None:
    async with frail.session(restart=restart, retry=TWICE) as session:
        await session.ask("go", check=False)


async def resilient_unconnected(frail: Frail, restart: Restart | None) -> None:
    session = frail.session(restart=restart, retry=TWICE)
    await session.ask("go", check=False)
    await session.close()


async def pooled(frail: Frail, restart: Restart | None) -> None:
    async with fleet.Pool(frail.options(), warm=0) as pool:
        session = pool.session(restart=restart, retry=TWICE)
        await session.ask("go", check=False)
        await session.close()


async def mapped(frail: Frail, restart: Restart | None) -> None:
    await fleet.map(["go"], frail.options(), restart=restart, retry=TWICE)


async def mapped_in_a_pool(frail: Frail, restart: Restart | None) -> None:
    async with fleet.Pool(frail.options(), warm=0) as pool:
        await fleet.map(["go"], frail.options(), restart=restart, retry=TWICE, pool=pool)


async def mapped_with_a_journal(frail: Frail, restart: Restart | None) -> None:
    await fleet.map(["go"], frail.options(), restart=restart, retry=TWICE, journal=frail.folder / "run.db")


async def mapped_elsewhere(frail: Frail, restart: Restart | None) -> None:
    await fleet.map(["go"], frail.options(), restart=restart, retry=TWICE, engine=Losing(survived=0))


async def mapped_elsewhere_and_here(frail: Frail, restart: Restart | None) -> None:
    await fleet.map(["go"], frail.options(), restart=restart, retry=TWICE, engine=Losing(survived=1))


SESSIONS: list[Drive] = [resilient_unconnected, pooled]
TASKS: list[Drive] = [
    *(mapped, mapped_in_a_pool, mapped_with_a_journal, mapped_elsewhere, mapped_elsewhere_and_here)
]


@pytest.mark.parametrize(
    "drive, how",
    [
        pytest.param(drive, how, id=f"{drive.__name__}-{how}")
        # Half of all pairs: each way to crash with three who drive it, and each of these with three ways.
        for number, drive in enumerate([*SESSIONS, *TASKS])
        for other, how in enumerate(CRASHES)
        if (number + other) % 2 == 0
    ],
)
async def test_a_crashing_agent_is_started_as_often_as_the_policy_says(
    frail: Frail, drive: Drive, how: str, connected: list[ProcessTransport]
) -> None:
    frail.plan(*[CRASHES[how]] * 30)
    frail.timeouts = UNANSWERED if how.startswith("by never") else QUICK
    with anyio.fail_after(DEADLINE):
        await drive(frail, AT_ONCE)
    # A turn that has acted is not sent again by a session, and a task is told to go on.
    is_final = how == "when it has called a tool" and drive in SESSIONS
    assert len(connected) == (2 if is_final else 4)


@pytest.mark.parametrize("drive", [resilient, *SESSIONS, *TASKS], ids=lambda drive: drive.__name__)
@pytest.mark.parametrize("restart", [None, Restart(max=0)], ids=["none", "max=0"])
async def test_without_restarts_it_is_started_once(
    frail: Frail, drive: Drive, restart: Restart | None
) -> None:
    frail.plan(*[["die"]] * 30)
    with anyio.fail_after(DEADLINE):
        await drive(frail, restart)
    assert len(frail.starts) == 1


@pytest.mark.parametrize("drive", [*SESSIONS, *TASKS], ids=lambda drive: drive.__name__)
async def test_starts_that_find_no_session_count_too(frail: Frail, drive: Drive) -> None:
    """It dies before anything of it is written, so that each second start only says so."""
    starts: list[list[str] | str] = [["die"], "missing"]
    frail.plan(*starts * 30)
    with anyio.fail_after(DEADLINE):
        await drive(frail, AT_ONCE)
    assert len(frail.starts) <= 4


async def test_a_turn_begins_to_count_anew(frail: Frail) -> None:
    frail.plan(*[["die"]] * 30)
    with anyio.fail_after(DEADLINE):
        session = frail.session(restart=Restart(max=1, backoff=0.001))
        await session.ask("go", check=False)
        assert len(frail.starts) == 2
        await session.ask("go", check=False)
        assert len(frail.starts) == 4
        await session.close()


@pytest.mark.parametrize("drive", [resilient, *SESSIONS, *TASKS], ids=lambda drive: drive.__name__)
async def test_a_failing_api_is_asked_as_often_as_the_policy_says(frail: Frail, drive: Drive) -> None:
    frail.plan(*[["fail:529"] * 30] * 30)
    with anyio.fail_after(DEADLINE):
        await drive(frail, AT_ONCE)
    # Where a worker is lost each time, the next is asked once: it goes on with the count.
    losses = 3 if drive in (mapped_elsewhere, mapped_elsewhere_and_here) else 0
    assert len(frail.prompts) == 2 + losses
    assert len(frail.starts) == 1 + losses


@pytest.mark.parametrize("word", ["hang", "stick"])
@pytest.mark.parametrize("drive", [resilient, *SESSIONS, *TASKS[:3]], ids=lambda drive: drive.__name__)
async def test_an_agent_that_hangs_in_a_turn_is_ended_and_not_started_again(
    frail: Frail, drive: Drive, word: str
) -> None:
    frail.plan(*[[word]] * 30)
    frail.timeouts = HASTY
    with anyio.fail_after(DEADLINE):
        await drive(frail, AT_ONCE)
    assert len(frail.starts) == 1
    # It may not have come to read it.
    assert len(frail.prompts) <= 1


async def test_failures_of_the_api_between_crashes_begin_no_new_count(frail: Frail) -> None:
    frail.plan(*[["fail:529", "die"]] * 30)
    with anyio.fail_after(DEADLINE):
        session = frail.session(restart=AT_ONCE)
        await session.ask("go", check=False)
        await session.close()
    assert len(frail.starts) == 4
