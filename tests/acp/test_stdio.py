"""`outrider acp` as editors start it, with the client of the protocol's own package at the other end."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import IO, Any, cast

import acp
import pytest
from acp import schema

from outrider.app._flags import Failed
from outrider.app._serve import load_options
from tests.proc import environment_of, process_ids

MODULE = """
import os
import outrider
from outrider.testing import Simulator, say, use_tool

print("loaded")

@outrider.tool
async def look_up(ticket: int) -> str:
    "Look a ticket up."
    print("looked up")
    os.write(1, b"and more")
    return f"Ticket {ticket} is done."

script = [
    use_tool("mcp__tools__look_up", ticket=7),
    use_tool("Write", file_path="made.txt", content="made"),
    say("It is done."),
]
agent = Simulator(script, executable=True)
talker = Simulator([say(("word" * 300 + " ") * 1000)], executable=True)
talking = talker.options()
options = agent.options(tools=[look_up], permission=outrider.Policy.of({"allow": "look_up"}))

async def make(cwd):
    return options

number = 7
class Thing: pass
"""


class Person:
    """Allows everything, and remembers what it saw."""

    def __init__(self) -> None:
        self.updates: list[Any] = []
        self.asked: list[schema.ToolCallUpdate] = []

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append(update)

    async def request_permission(
        self,
        session_id: str,
        tool_call: schema.ToolCallUpdate,
        options: list[schema.PermissionOption],
        **_: Any,
    ) -> schema.RequestPermissionResponse:
        self.asked.append(tool_call)
        chosen = schema.AllowedOutcome(outcome="selected", option_id=options[0].option_id)
        return schema.RequestPermissionResponse(outcome=chosen)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "my_agent.py").write_text(MODULE)
    return tmp_path


def command(*flags: str) -> list[str]:
    return [sys.executable, "-m", "outrider", "acp", *flags]


@asynccontextmanager
async def started(
    project: Path, *flags: str, env: dict[str, str] | None = None
) -> AsyncGenerator[tuple[acp.Agent, Person, asyncio.subprocess.Process]]:
    person = Person()
    given = {"CLAUDE_CONFIG_DIR": str(project / "config"), **(env or {})}
    async with (
        asyncio.timeout(50),
        acp.spawn_agent_process(
            cast("Any", person),
            *command(*flags),
            env=given,
            cwd=project,
            # To end takes longer than the client waits by itself, on a machine with much to do.
            transport_kwargs={"stderr": None, "shutdown_timeout": 40.0},
            use_unstable_protocol=True,
        ) as (agent, process),
    ):
        yield agent, person, process


async def converse(project: Path) -> None:
    async with started(project, "--module", "my_agent:make") as (agent, person, process):
        told = await agent.initialize(acp.PROTOCOL_VERSION)
        assert told.agent_info is not None
        assert told.agent_info.name == "outrider"
        made = await agent.new_session(str(project), mcp_servers=[])
        answer = await agent.prompt(made.session_id, [acp.text_block("Look it up.")])
        assert answer.stop_reason == "end_turn"
        kinds = {type(each).__name__ for each in person.updates}
        assert kinds >= {
            "AgentMessageChunk",
            "ToolCallStart",
            "ToolCallProgress",
            "AvailableCommandsUpdate",
            "UsageUpdate",
        }
        # The policy of the module decides about its tool, the person about the rest.
        assert [each.title for each in person.asked] == ["Write made.txt"]
        assert (project / "made.txt").read_text() == "made"
        listed = await agent.list_sessions(cwd=str(project))
        assert [each.session_id for each in listed.sessions] == [made.session_id]
        await agent.set_session_mode(made.session_id, "plan")
        await agent.close_session(made.session_id)
        person.updates.clear()
        loaded = await agent.load_session(str(project), made.session_id, mcp_servers=[])
        assert loaded is not None
        assert any(isinstance(each, schema.UserMessageChunk) for each in person.updates)
        resumed = await agent.fork_session(made.session_id, str(project), mcp_servers=[])
        assert resumed.session_id != made.session_id
    assert process.returncode == 0


def test_a_conversation_with_the_client_of_the_package(project: Path) -> None:
    """What the module prints, even past Python, is not among the frames: the client would log an error."""
    asyncio.run(converse(project))


def children_of(project: Path) -> list[int]:
    mark = f"\0OF_TEST={project}\0".encode()
    return [pid for pid in process_ids() if mark in environment_of(pid)]


def unread(pipe: IO[bytes]) -> int:
    found: int = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0]
    return found


ENDS = ["stdin while it starts", "stdin, and it reads nothing", "SIGTERM", "SIGKILL of the server"]


@pytest.mark.parametrize("end", ENDS)
def test_nothing_is_left_when_the_editor_goes(project: Path, end: str) -> None:
    env = {**os.environ, "OF_TEST": str(project)}
    with subprocess.Popen(
        command("--module", "my_agent:talking" if "nothing" in end else "my_agent:options"),
        cwd=project,
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
    ) as server:
        stdin, stdout = server.stdin, server.stdout
        assert stdin is not None
        assert stdout is not None

        def begin(method: str, **params: Any) -> None:
            frame = {"jsonrpc": "2.0", "id": method, "method": method, "params": params}
            stdin.write(json.dumps(frame).encode() + b"\n")

        def call(method: str, **params: Any) -> Any:
            begin(method, **params)
            for line in stdout:
                read = json.loads(line)
                if read.get("id") == method:
                    return read["result"]
            raise AssertionError("it ended")

        call("initialize", protocolVersion=1)
        session = ""
        if end == "stdin while it starts":
            begin("session/new", cwd=str(project), mcpServers=[])
            # Some process of the agent is there; that it is ready is not waited for.
            while not (set(children_of(project)) - {server.pid}):
                assert server.poll() is None
        else:
            session = call("session/new", cwd=str(project), mcpServers=[])["sessionId"]
            assert len(children_of(project)) > 1
        if "nothing" in end:
            begin("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "Talk."}])
            # The pipe is soon full, and what comes next is far more.
            while unread(stdout) < 30_000:
                assert server.poll() is None
        match end:
            case "SIGTERM":
                server.send_signal(signal.SIGTERM)
            case "SIGKILL of the server":
                server.kill()
            case _:
                stdin.close()
        assert server.wait(30) == {"SIGKILL of the server": -9, "SIGTERM": 143}.get(end, 0)
    # If the server was killed, its watchdog ends the rest, and then itself, in its own time.
    for _ in range(3):
        for pid in children_of(project):
            with suppress(ProcessLookupError):
                child = os.pidfd_open(pid)
                select.select([child], [], [], 10)
                os.close(child)
    assert children_of(project) == []


@pytest.mark.parametrize(
    "spec, words",
    [
        ("my_agent", "--module my_agent:options"),
        (":options", "--module my_agent:options"),
        ("nothing_here:options", "no module 'nothing_here'"),
        ("my_agent.inner:options", "no module 'my_agent.inner'"),
        ("my_agent:missing", "has no 'missing'"),
        ("my_agent:number", "is a int"),
        ("my_agent:Thing", "is a class"),
        ("broken:options", "ZeroDivisionError"),
        ("needy:options", "ModuleNotFoundError"),
    ],
)
def test_a_module_that_has_no_options(
    project: Path, spec: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "broken.py").write_text("1 / 0")
    (project / "needy.py").write_text("import not_installed_at_all")
    monkeypatch.chdir(project)
    monkeypatch.setattr(sys, "path", sys.path[:])
    for name in ("my_agent", "broken", "needy"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises((Failed, ZeroDivisionError, ModuleNotFoundError)) as failed:
        load_options(spec)
    assert words in f"{type(failed.value).__name__}: {failed.value}"
    monkeypatch.delitem(sys.modules, "my_agent", raising=False)


def test_the_command_says_what_is_wrong_with_a_module(project: Path) -> None:
    ran = subprocess.run(
        command("--module", "my_agent:missing"),
        cwd=project,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert "error: --module: my_agent has no 'missing'. Give a module and a name in it" in ran.stderr
    assert (ran.stdout, ran.returncode) == ("", 2)
