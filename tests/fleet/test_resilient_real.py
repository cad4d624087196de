"""Resilient sessions with the real program: what is killed comes back with its context."""

from __future__ import annotations

import os
import signal
from typing import Any

import anyio
import pytest
from anyio import to_thread

from outrider.errors import ApiFailed, ProcessExited
from outrider.fleet import ResilientSession, Restarted, Retry, Retrying
from outrider.testing import RealAgent, fail, hang, say, use_tool
from tests.fleet.resilient import FakeClock, kinds_of
from tests.fleet.working import until
from tests.session.real.talking import HOLD, RETRIES, make_pipes, real_agent
from tests.transports.conftest import nothing_is_left, own_processes

__all__ = ["nothing_is_left"]

pytestmark = [pytest.mark.anyio, pytest.mark.real]

DEADLINE = 50.0
"""Several starts of the program are in one test; shorter than the limit of a test."""


@pytest.fixture
def anyio_backend() -> str:
    """One is enough: this is about the program."""
    return "asyncio"


def kill(session: ResilientSession[Any]) -> None:
    assert session.session is not None
    assert session.session.pid is not None
    os.kill(session.session.pid, signal.SIGKILL)


def transcripts(agent: RealAgent) -> str:
    """All that the program has written down so far."""
    return "".join(path.read_text() for path in agent.config_dir.glob("projects/*/*.jsonl"))


async def test_one_that_is_killed_comes_back_with_its_context() -> None:
    with real_agent(say("Hello, Ada."), hang(), say("Ada."), say("Still Ada.")) as agent:
        with anyio.fail_after(DEADLINE):
            async with ResilientSession(agent.options(), clock=FakeClock()) as session:
                await session.ask("My name is Ada.")
                kept = session.id
                # In the middle of a turn, in which nothing was done.
                turn = await session.send("What is my name?")
                await to_thread.run_sync(agent.api.wait_for, 2)
                kill(session)
                (told,) = await kinds_of(turn, Restarted)
                assert (told.has_acted, told.is_resent, told.session_id) == (False, True, kept)
                assert (await turn.result()).text == "Ada."
                assert "My name is Ada." in str(agent.api.main_requests[-1].messages)
                # Between two turns, and parked.
                kill(session)
                await session.park()
                assert own_processes() == []
                assert (await session.ask("Are you sure?")).text == "Still Ada."
                assert "Hello, Ada." in str(agent.api.main_requests[-1].messages)
                assert session.id == kept


async def test_one_that_is_killed_at_work_is_not_asked_again() -> None:
    work = use_tool("Bash", command=HOLD)
    with real_agent(work, say("I was at work.")) as agent:
        make_pipes(agent)
        options = agent.options(permission_mode="bypassPermissions", allow_dangerously_skip_permissions=True)
        with anyio.fail_after(DEADLINE):
            async with ResilientSession(options, clock=FakeClock()) as session:
                turn = await session.send("Work.")
                await to_thread.run_sync((agent.folder / "began").read_text)
                await until(lambda: "cat end" in transcripts(agent))
                kill(session)
                (told,) = await kinds_of(turn, Restarted)
                assert (told.has_acted, told.is_resent) == (True, False)
                with pytest.raises(ProcessExited) as raised:
                    await turn.result()
                assert raised.value.signal == signal.SIGKILL
                # With all of its tree: nobody reads from the pipe any more.
                with pytest.raises(OSError, match="No such device"):
                    os.open(agent.folder / "end", os.O_WRONLY | os.O_NONBLOCK)
                assert (await session.ask("What have you done?")).text == "I was at work."
                last = str(agent.api.main_requests[-1].messages)
                assert "Work." in last
                assert "cat end" in last
    assert len(agent.api.main_requests) == 2


async def test_a_failing_api_is_tried_again_in_the_same_process() -> None:
    with real_agent(fail(529), say("done"), fail(401)) as agent:
        options = agent.options(env={RETRIES: "0"})
        with anyio.fail_after(DEADLINE):
            async with ResilientSession(options, clock=FakeClock(), retry=Retry(max_tries=2)) as session:
                turn = await session.send("go")
                (told,) = await kinds_of(turn, Retrying)
                assert told.error.kind == "overloaded"
                assert (await turn.result()).text == "done"
                with pytest.raises(ApiFailed) as raised:
                    await session.ask("again")
                assert raised.value.status == 401
