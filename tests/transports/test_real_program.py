"""The real program, with all that it starts, ends like any other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from bridle.launch import check_version, make_command, make_initialize
from bridle.options import Options
from bridle.protocol import Peer, RequestAnswered
from bridle.transports import ProcessTransport
from bridle.transports._tree import stat_of
from bridle.wire import ResultMessage, user_message
from tests.messages_api import MessagesApi
from tests.real_program import clean_environment, require_program
from tests.transports.conftest import own_processes, wait_for

pytestmark = pytest.mark.anyio


def tool_use(**fields: Any) -> list[dict[str, Any]]:
    return [{"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": fields}]


class Conversation:
    """As much of a session as these tests need."""

    def __init__(self, home: Path, api: MessagesApi, **fields: Any) -> None:
        self.options = Options(
            cli_path=require_program(),
            cwd=home,
            permission_mode="bypassPermissions",
            env_policy=["PATH"],
            env=clean_environment(home) | {"ANTHROPIC_BASE_URL": api.url},
            **fields,
        )
        self.transport = ProcessTransport(make_command(self.options))
        self._peer = Peer("host")

    async def open(self) -> Any:
        """Start the program; gives its answer to the first request."""
        await self.transport.connect()
        self._peer.request(make_initialize(self.options))
        answered = await self.until(lambda event: isinstance(event, RequestAnswered))
        return answered.request.read_answer(answered.payload)

    def ask(self, text: str) -> None:
        self._peer.send(user_message(text))

    async def until(self, is_it: Callable[[Any], bool]) -> Any:
        while True:
            if output := self._peer.take_output():
                await self.transport.send(output)
            for event in self._peer.receive(await self.transport.receive()):
                if is_it(event):
                    return event


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
async def test_an_idle_one_says_its_version_and_ends_at_once(tmp_path: Path) -> None:
    with MessagesApi() as api:
        one = Conversation(tmp_path, api)
        initialized = await one.open()
        assert check_version(initialized.claude_code_version).is_known
        await one.transport.close()
    assert one.transport.returncode == 0


@pytest.mark.parametrize("is_in_background", [True, False])
async def test_a_shell_that_left_its_group_goes_with_the_agent(
    tmp_path: Path, is_in_background: bool
) -> None:
    """With a command in the background the program lives on after the end of its input."""
    command = tool_use(command=ENDLESS, run_in_background=is_in_background)
    with MessagesApi([command, "done"]) as api:
        one = Conversation(tmp_path, api)
        one.transport = ProcessTransport(one.transport.command, grace=0.2)
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


async def test_the_last_line_of_a_failed_start_is_in_the_error(tmp_path: Path) -> None:
    with MessagesApi() as api:
        one = Conversation(tmp_path, api, extra_args={"no-such-flag": None})
        await one.transport.connect()
        with pytest.raises(Exception, match="unknown option '--no-such-flag'") as raised:
            await one.transport.receive()
        assert type(raised.value).__name__ == "ProcessExited"
        await one.transport.close()
