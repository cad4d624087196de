"""Something in the way of connections: `intercept`, and what a transport is told before it connects."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import anyio
import pytest

import outrider
from outrider.command import Command
from outrider.errors import AgentNotFound, SessionNotFound, UsageError
from outrider.options import Options
from outrider.session import Session
from outrider.transports import (
    MemoryTransport,
    ProcessTransport,
    Transport,
    intercept,
    intercepted,
    is_intercepted,
    memory_pair,
)
from tests.session.other_end import OtherEnd, playing
from tests.sync.agent import Agent

pytestmark = pytest.mark.anyio


class Told(Agent):
    """Keeps what it was told."""

    command: Command | None = None

    def prepare(self, command: Command) -> None:
        assert not self.is_ready
        self.command = command


async def test_a_transport_of_the_users_is_told_how_the_program_would_be_started(tmp_path: Path) -> None:
    transport = Told()
    async with Session(transport=transport, model="claude-x", cwd=tmp_path, env={"A": "b"}) as session:
        assert (await session.ask("say hello")).text == "hello"
    assert transport.command is not None
    assert transport.command.argv[0] == "claude"
    assert "--model=claude-x" in transport.command.argv
    assert transport.command.cwd == str(tmp_path)
    assert (transport.command.env or {})["A"] == "b"


async def test_what_follows_from_handlers_is_told_as_well() -> None:
    @outrider.tool
    def lookup(ticket: int) -> str:
        """Look a ticket up."""
        return ""

    transport = Told()
    async with Session(transport=transport, tools=[lookup], cli_path="/nowhere/agent"):
        pass
    assert transport.command is not None
    assert transport.command.argv[0] == "/nowhere/agent"
    assert "--allowedTools=mcp__tools" in transport.command.argv


async def test_an_interceptor_takes_the_place_of_a_program_that_is_not_installed(tmp_path: Path) -> None:
    seen: list[Transport] = []

    def change(transport: Transport) -> Transport:
        seen.append(transport)
        return Agent()

    with intercept(change):
        result = await outrider.run("say hello", cli_path=tmp_path / "no-such-program", model="claude-x")
    assert result.text == "hello"
    command = getattr(seen[0], "command", None)
    assert isinstance(command, Command)
    assert "--model=claude-x" in command.argv


async def test_an_interceptor_is_given_the_process_that_would_be_started(program: Any) -> None:
    seen: list[Transport] = []

    def change(transport: Transport) -> Transport:
        seen.append(transport)
        return Agent()

    path = program("echo")
    with intercept(change):
        await outrider.run("say hello", cli_path=path)
    assert isinstance(seen[0], ProcessTransport)
    assert seen[0].command.argv[0] == str(path)
    assert seen[0].pid is None


async def test_without_another_choice_a_missing_program_is_still_an_error(tmp_path: Path) -> None:
    with intercept(lambda transport: transport), pytest.raises(AgentNotFound):
        await outrider.run("hello", cli_path=tmp_path / "no-such-program")


async def test_with_something_in_the_way_there_must_still_be_a_session_to_continue(
    program: Any, tmp_path: Path
) -> None:
    environment = {"CLAUDE_CONFIG_DIR": str(tmp_path / "config")}
    with intercept(lambda transport: transport), pytest.raises(SessionNotFound, match="to continue"):
        await outrider.run("hello", cli_path=program("echo"), continue_conversation=True, env=environment)


async def test_the_innermost_interceptor_comes_first() -> None:
    order: list[str] = []

    def noting(name: str) -> Any:
        def change(transport: Transport) -> Transport:
            order.append(name)
            return transport

        return change

    with (
        intercept(noting("process-wide"), everywhere=True),
        intercept(noting("outer")),
        intercept(noting("inner")),
    ):
        async with playing(_play):
            pass
    assert order == ["inner", "outer", "process-wide"]


async def _play(end: OtherEnd) -> None:
    await end.wait_ended()


async def test_a_block_counts_for_its_own_task_alone() -> None:
    inside, outside = anyio.Event(), anyio.Event()
    seen: list[bool] = []

    async def other() -> None:
        await inside.wait()
        seen.append(is_intercepted())
        outside.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(other)
        with intercept(lambda transport: transport):
            inside.set()
            await outside.wait()
            assert is_intercepted()
    assert seen == [False]
    assert not is_intercepted()


def test_with_everywhere_it_counts_for_other_threads() -> None:
    seen: list[bool] = []
    with intercept(lambda transport: transport, everywhere=True):
        thread = threading.Thread(target=lambda: seen.append(is_intercepted()))
        thread.start()
        thread.join()
    assert seen == [True]
    assert not is_intercepted()


def test_it_counts_for_the_synchronous_functions() -> None:
    with intercept(lambda _: Agent()):
        assert outrider.sync.run("say hello", cli_path="/nowhere/agent").text == "hello"


@pytest.fixture
def unconnected() -> MemoryTransport:
    return memory_pair()[0]


def test_what_is_no_transport_is_refused(unconnected: MemoryTransport) -> None:
    with intercept(lambda _: "no transport"), pytest.raises(UsageError, match="'no transport'"):  # type: ignore[arg-type, return-value]  # pyright: ignore[reportArgumentType]
        intercepted(unconnected)


async def test_a_transport_that_does_not_want_to_know_is_told_nothing(unconnected: MemoryTransport) -> None:
    # The options would be refused for a program; here nobody looks at them.
    options = Options(transport=unconnected, cwd="/nowhere/at/all")
    assert Session(options=options) is not None
