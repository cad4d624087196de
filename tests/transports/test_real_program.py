"""The real program, with all that it starts, ends like any other."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from outrider.launch import check_version
from outrider.testing import RealAgent, say, use_tool
from outrider.wire import ResultMessage
from tests.proc import stat_of
from tests.real_program import Conversation, require_program
from tests.transports.conftest import own_processes, wait_for

pytestmark = [pytest.mark.anyio, pytest.mark.real]


# Not `sleep`: the program refuses to sleep for long in the foreground.
ENDLESS = "tail -f /dev/null"


def endless() -> list[int]:
    """The commands of the agent's shell tool that never end."""
    wanted = ENDLESS.replace(" ", "\0").encode()
    return [pid for pid in own_processes() if wanted in _command_line(pid)]


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.requirement("B3")
async def test_an_idle_one_says_its_version_and_ends_at_once() -> None:
    with RealAgent(program=require_program()) as agent:
        one = Conversation(agent.options())
        initialized = await one.open()
        assert check_version(initialized.claude_code_version).is_known
        await one.transport.close()
    assert one.transport.returncode == 0


@pytest.mark.parametrize("is_in_background", [True, False])
async def test_a_shell_that_left_its_group_goes_with_the_agent(is_in_background: bool) -> None:
    """With a command in the background the program lives on after the end of its input."""
    command = use_tool("Bash", command=ENDLESS, run_in_background=is_in_background)
    with RealAgent([command, say("done")], program=require_program()) as agent:
        one = Conversation(agent.options(permission_mode="bypassPermissions"), grace=0.2)
        await one.open()
        one.ask("wait")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one.until, lambda event: isinstance(event, ResultMessage))
            await anyio.to_thread.run_sync(wait_for, lambda: bool(endless()))
            tasks.cancel_scope.cancel()
        (shell, *_) = endless()
        stat = stat_of(shell)
        assert stat is not None
        assert stat.session != one.transport.pid
        with anyio.fail_after(one.transport.bound):
            await one.transport.close()
    assert own_processes() == []
    left = stat_of(shell)
    assert left is None or not left.is_running


async def test_the_last_line_of_a_failed_start_is_in_the_error() -> None:
    with RealAgent(program=require_program()) as agent:
        one = Conversation(agent.options(extra_args={"no-such-flag": None}))
        await one.transport.connect()
        with pytest.raises(Exception, match="unknown option '--no-such-flag'") as raised:
            await one.transport.receive()
        assert type(raised.value).__name__ == "ProcessExited"
        await one.transport.close()
