"""External MCP servers with the real program: those that are required, those that fail, and what they get."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread

from outrider.errors import McpServerFailed
from outrider.options import HttpServer, SseServer, StdioServer, Timeouts
from outrider.session import Session
from outrider.testing import say, use_tool
from outrider.wire.control import McpCall
from tests.session.real.talking import opened, real_agent

pytestmark = pytest.mark.anyio

SMALL = str(Path(__file__).with_name("server.py"))
ODD = str(Path(__file__).with_name("odd_server.py"))
SECRET = "s3cr3t-of-a-server"


def small(**more: Any) -> StdioServer:
    return StdioServer(command=sys.executable, args=(SMALL,), **more)


def odd(*how: str, **more: Any) -> StdioServer:
    return StdioServer(command=sys.executable, args=(ODD, *how), **more)


class Refusing(BaseHTTPRequestHandler):
    """Says no, and keeps what it was asked with."""

    headers_seen: list[str | None]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        self.headers_seen.append(self.headers.get("X-Secret"))
        self.send_response(500)
        self.send_header("content-length", "11")
        self.end_headers()
        self.wfile.write(b"not today: ")

    def do_GET(self) -> None:
        self.do_POST()

    def log_message(self, format: str, *args: object) -> None: ...


@contextmanager
def refusing() -> Generator[tuple[str, list[str | None]]]:
    """The address of a server that says no, and the headers that it got."""
    seen: list[str | None] = []
    handler = type("Handler", (Refusing,), {"headers_seen": seen})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/mcp", seen
        finally:
            server.shutdown()
            thread.join()


async def failure(server: Any, **fields: Any) -> McpServerFailed:
    with real_agent() as agent:
        session = Session(agent.options(mcp_servers={"needed": server, "small": small()}, **fields))
        with pytest.raises(McpServerFailed) as caught, anyio.fail_after(30):
            await session.connect()
        await session.close()
        assert session.pid is None
    return caught.value


async def test_a_required_server_is_there_when_the_session_is() -> None:
    with real_agent() as agent:
        async with opened(agent, mcp_servers={"needed": small(required=True)}) as session:
            (server,) = await session.mcp_status()
            assert server.status == "connected"
            answer = await session.request(McpCall("mcp__needed__add", {"a": 1, "b": 2}))
            assert answer.content


async def test_a_slow_one_is_waited_for() -> None:
    with real_agent() as agent:
        gate = agent.folder / "gate"
        os.mkfifo(gate)
        servers = {"slow": odd("wait", str(gate), required=True), "small": small()}
        session = Session(agent.options(mcp_servers=servers))
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(session.connect)
                # Opens when the server does, which is when it has been started and not answered anything.
                await to_thread.run_sync(gate.write_text, "go")
            async with session:
                statuses = {server.name: server.status for server in await session.mcp_status()}
                assert statuses["slow"] == "connected"


async def test_a_program_that_is_missing_is_named() -> None:
    error = await failure(StdioServer(command="/no/such/server", required=True))
    assert (error.name, error.status, error.retryable) == ("needed", "failed", False)
    assert "ENOENT" in error.reason
    assert "/no/such/server" in str(error)


async def test_one_that_dies_at_the_start_fails() -> None:
    error = await failure(odd("die", required=True))
    assert (error.status, error.reason.partition(" (")[0]) == ("failed", "Connection closed")


@pytest.mark.parametrize("kind", [HttpServer, SseServer])
async def test_one_that_refuses_fails_with_its_words(kind: Any) -> None:
    with refusing() as (url, seen):
        error = await failure(kind(url=url, headers={"X-Secret": SECRET}, required=True))
    assert error.status == "failed"
    assert "not today" in error.reason or "500" in error.reason
    assert SECRET in seen
    assert SECRET not in str(error)


async def test_one_that_never_answers_is_waited_for_no_longer_than_the_connection() -> None:
    with real_agent() as agent:
        gate = agent.folder / "gate"
        os.mkfifo(gate)
        servers = {"stuck": odd("wait", str(gate), required=True)}
        # Longer than the program takes to start, also on a machine that is busy.
        options = agent.options(mcp_servers=servers, timeouts=Timeouts(connect=5))
        with pytest.raises(McpServerFailed) as caught:
            await Session(options).connect()
    assert (caught.value.status, caught.value.retryable) == ("pending", True)


async def test_without_required_the_session_starts_and_the_state_tells() -> None:
    with real_agent(say("fine")) as agent:
        servers = {"missing": StdioServer(command="/no/such/server"), "small": small(required=True)}
        async with opened(agent, mcp_servers=servers) as session:
            assert (await session.ask("hello")).text == "fine"
            statuses = {server.name: server.status for server in await session.mcp_status()}
            assert statuses == {"missing": "failed", "small": "connected"}


async def test_one_that_dies_later_fails_its_call_and_is_started_again() -> None:
    script = [use_tool("mcp__odd__add", a=1), use_tool("mcp__odd__add", a=1), say("it is gone")]
    with real_agent(*script) as agent:
        async with opened(agent, mcp_servers={"odd": odd("die-when-called", required=True)}) as session:
            assert (await session.ask("add")).text == "it is gone"
            # The program goes on calling it connected: it is started again by the next call.
            assert [server.status for server in await session.mcp_status()] == ["connected"]
        for request in agent.api.main_requests[1:3]:
            [result] = request.tool_results
            assert (result["is_error"], result["content"]) == (True, "Connection closed")


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="processes cannot be looked at here")
async def test_what_servers_are_given_is_on_no_command_line() -> None:
    with refusing() as (url, seen), real_agent(say("fine")) as agent:
        servers = {
            "near": small(env={"TOKEN": SECRET}, required=True),
            "away": HttpServer(url=url, headers={"X-Secret": SECRET}),
        }
        async with opened(agent, mcp_servers=servers) as session:
            assert (await session.ask("hello")).text == "fine"
            lines = {pid: cmdline(pid) for pid in tree(session.pid)}
            assert len(lines) >= 2
            assert any(SMALL in line for line in lines.values())
            assert not [line for line in lines.values() if SECRET in line]
            near = next(pid for pid, line in lines.items() if SMALL in line)
            assert f"TOKEN={SECRET}" in environment(near)
            assert SECRET not in environment(session.pid)
        assert SECRET in seen


def cmdline(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


def environment(pid: int | None) -> str:
    return Path(f"/proc/{pid}/environ").read_text()


def tree(pid: int | None) -> list[int]:
    """A process and all that it has started."""
    assert pid is not None
    found = [pid]
    for parent in found:
        children = Path(f"/proc/{parent}/task").glob("*/children")
        found += [int(child) for path in children for child in path.read_text().split()]
    return found
