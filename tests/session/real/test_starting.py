"""Starts of the real program that fail, by their cause; and what ends a session."""

from __future__ import annotations

import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

import outrider
from outrider.errors import (
    AgentNotFound,
    AgentTooOld,
    FolderNotFound,
    LaunchError,
    OptionsError,
    OutriderError,
    ProcessExited,
    RequestTimedOut,
    TransportClosed,
)
from outrider.session import Session, SessionState
from outrider.testing import Gate, hang, say, use_tool
from outrider.transports import live_processes
from tests.session.real.talking import (
    DEADLINE,
    HOLD,
    began,
    came_to,
    is_piece,
    opened,
    reached,
    real_agent,
    requested,
    seen,
    state_of,
    talking,
)

pytestmark = pytest.mark.anyio


async def failed_start(**fields: Any) -> OutriderError:
    """What a start with these options raises; nothing is left of it."""
    with real_agent() as agent, anyio.fail_after(DEADLINE):
        session = Session(agent.options(**fields))
        with pytest.raises(OutriderError) as caught:
            await session.connect()
        assert live_processes() == []
        assert session.pid is None
        return caught.value


@pytest.mark.parametrize(
    "fields, expected, words",
    [
        pytest.param({"extra_args": {"no-such-flag": None}}, OptionsError, "no-such-flag", id="flag"),
        pytest.param({"settings": "missing.json"}, OptionsError, "settings", id="settings"),
        pytest.param({"mcp_servers": "missing.json"}, OptionsError, "mcp_servers", id="servers"),
        pytest.param(
            {"system_prompt": {"type": "file", "path": "missing.md"}},
            OptionsError,
            "system_prompt",
            id="prompt",
        ),
        pytest.param({"cwd": "/no/such/folder"}, FolderNotFound, "/no/such/folder", id="folder"),
        pytest.param({"cli_path": "/no/such/program"}, AgentNotFound, "/no/such/program", id="program"),
    ],
)
async def test_a_start_fails_with_its_cause(fields: Any, expected: type[OutriderError], words: str) -> None:
    error = await failed_start(**fields)
    assert isinstance(error, expected)
    assert words in str(error)
    assert error.hint


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() != 0, reason="this is about root")
async def test_root_may_not_skip_permissions_outside_of_a_sandbox() -> None:
    error = await failed_start(permission_mode="bypassPermissions", env={"IS_SANDBOX": ""})
    assert isinstance(error, OptionsError)
    assert "root" in str(error)


async def test_bad_servers_in_a_file_are_told(tmp_path: Path) -> None:
    (tmp_path / "servers.json").write_text('{"servers": {}}')
    error = await failed_start(mcp_servers=str(tmp_path / "servers.json"))
    assert isinstance(error, OptionsError)
    assert "mcpServers" in str(error)


async def test_a_damaged_configuration_is_told() -> None:
    with real_agent() as agent, anyio.fail_after(DEADLINE):
        (agent.config_dir / ".claude.json").write_text("{ not json")
        with pytest.raises(LaunchError, match="damaged"):
            await Session(agent.options()).connect()


async def test_a_program_that_is_no_agent_is_told() -> None:
    error = await failed_start(cli_path="/bin/true")
    assert isinstance(error, ProcessExited)
    assert error.returncode == 0
    assert "may not be Claude Code" in error.__notes__[0]


async def test_a_program_that_never_answers_is_ended() -> None:
    error = await failed_start(cli_path="/bin/cat", timeouts={"connect": 0.2})
    assert isinstance(error, OutriderError)
    assert live_processes() == []


async def test_a_program_that_is_silent_runs_into_the_deadline(tmp_path: Path) -> None:
    script = tmp_path / "agent"
    script.write_text('#!/bin/sh\n[ "$1" = -v ] && echo 2.1.325 && exit\nwhile read line; do :; done\n')
    script.chmod(0o755)
    error = await failed_start(cli_path=str(script), timeouts={"connect": 0.2})
    assert isinstance(error, RequestTimedOut)
    assert error.timeout == 0.2


async def test_an_old_program_is_told_by_its_version(tmp_path: Path) -> None:
    script = tmp_path / "agent"
    script.write_text('#!/bin/sh\n[ "$1" = -v ] && echo "1.0.3 (Claude Code)" && exit\nexit 1\n')
    script.chmod(0o755)
    error = await failed_start(cli_path=str(script))
    assert isinstance(error, AgentTooOld)
    assert error.version == "1.0.3"


async def test_a_start_can_be_cancelled() -> None:
    with real_agent() as agent:
        session = Session(agent.options())
        with anyio.move_on_after(0.05) as scope:
            await session.connect()
        assert scope.cancelled_caught
        assert state_of(session) in (SessionState.STARTING, SessionState.CLOSED)
        await session.close()


# The end.


async def test_a_session_that_is_closed_fails_its_turn() -> None:
    with real_agent(use_tool("Bash", command=HOLD)) as agent:
        async with opened(agent, timeouts={"close": 0.1}) as session:
            turn = await session.send("wait")
            await began(agent)
            pid = session.pid
            assert pid is not None
            await session.close()
            with pytest.raises(TransportClosed, match="closed") as caught:
                await turn.result()
            assert caught.value.result is not None
            assert caught.value.session_id == session.id
            with pytest.raises(TransportClosed):
                await session.send("more")
            with pytest.raises(TransportClosed):
                await session.interrupt()
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_a_program_that_is_killed_ends_its_turn_with_what_there_is() -> None:
    gate = Gate()
    with real_agent(say("hi"), say("one two", gate=gate), say("after")) as agent:
        async with opened(agent, include_partial_messages=True) as session:
            # A session that is killed in its first turn may not be on disk yet.
            await session.ask("hello")
            turn = await session.send("count")
            await seen(turn, is_piece)
            assert session.pid is not None
            os.kill(session.pid, signal.SIGKILL)
            with pytest.raises(ProcessExited) as caught:
                await turn.result()
            assert (caught.value.returncode, caught.value.signal) == (-9, signal.SIGKILL)
            assert caught.value.retryable
            assert came_to(caught.value).text == "one "
            assert caught.value.session_id == session.id
            assert state_of(session) is SessionState.CLOSED
            with pytest.raises(ProcessExited):
                await session.ask("more")
            with pytest.raises(ProcessExited):
                await session.interrupt()
            with pytest.raises(ProcessExited):
                async for _ in turn:
                    pass
            id = session.id
        async with opened(agent, resume=id) as session:
            assert (await session.ask("go on")).text == "after"


async def test_a_program_that_is_killed_when_idle_is_noticed() -> None:
    async with talking(say("one")) as (_, session):
        reader = aiter(session)
        await session.ask("a")
        assert session.pid is not None
        os.kill(session.pid, signal.SIGKILL)
        with pytest.raises(ProcessExited):
            async for _ in reader:
                pass
        assert state_of(session) is SessionState.CLOSED
        with pytest.raises(ProcessExited):
            await session.ask("more")


async def test_a_request_that_is_open_fails_with_the_program() -> None:
    async def ask() -> None:
        with pytest.raises(ProcessExited):
            await session.set_model("claude-made-up-1")

    async with talking(side={"probe": hang()}) as (agent, session), anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await requested(agent, lambda request: request.kind == "probe")
        assert session.pid is not None
        os.kill(session.pid, signal.SIGKILL)


async def test_twenty_sessions_run_at_once() -> None:
    answers: list[str] = []
    with real_agent(otherwise=say("yes")) as agent:

        async def one(number: int) -> None:
            async with Session(agent.options()) as session:
                answers.append((await session.ask(f"is {number} a number?")).text)

        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                for number in range(20):
                    tasks.start_soon(one, number)
    assert answers == ["yes"] * 20


async def test_cancelling_a_run_ends_the_agent() -> None:
    gate = Gate(after=0)
    with real_agent(say("no", gate=gate)) as agent, anyio.fail_after(DEADLINE):
        options = agent.options(timeouts={"close": 0.1})
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(outrider.run, "wait", options))
            await reached(gate)
            tasks.cancel_scope.cancel()
        assert live_processes() == []
