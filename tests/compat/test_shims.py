"""What programs use of the reference beside its names: its modules, its transport, its import name."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType
from typing import Any, cast
from unittest import mock

import anyio
import anyio.lowlevel
import pytest

import outrider.compat
from outrider.compat import (
    AgentDefinition,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    ClaudeSDKError,
    CLIConnectionError,
    ProcessError,
    ResultMessage,
    TextBlock,
    UserMessage,
    create_sdk_mcp_server,
    query,
    tool,
)
from outrider.compat._alias import remove_alias
from outrider.compat._errors import MessageParseError
from outrider.compat._internal import sessions
from outrider.compat._internal.message_parser import parse_message
from outrider.compat._internal.transport.subprocess_cli import SubprocessCLITransport
from outrider.errors import UsageError
from outrider.testing import Simulator, say
from tests.cases import every_case
from tests.compat.test_messages import REFERENCE, frames, unequal

USER = {"type": "user", "message": {"role": "user", "content": "hello"}, "parent_tool_use_id": None}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def agent() -> Iterator[Simulator]:
    with Simulator([say("one"), say("two")], executable=True) as agent:
        yield agent


def options_of(agent: Simulator) -> ClaudeAgentOptions:
    native = agent.options()
    return ClaudeAgentOptions(cli_path=native.cli_path, env=dict(native.env))


async def result_of(options: ClaudeAgentOptions | None, transport: Any = None) -> str | None:
    messages = [each async for each in query(prompt="hello", options=options, transport=transport)]
    assert isinstance(messages[-1], ResultMessage)
    return messages[-1].result


# Modules.


def test_query_is_a_function_of_the_package_and_a_module() -> None:
    module = importlib.import_module("outrider.compat.query")
    assert isinstance(module, ModuleType)
    assert module.query is outrider.compat.query is query


def test_versions_are_those_of_the_reference() -> None:
    pinned = (Path(__file__).parents[2] / "benchmarks" / "reference.txt").read_text(encoding="utf-8")
    assert pinned.strip() == f"claude-agent-sdk=={outrider.compat.__version__}"
    assert outrider.compat._version.__version__ == outrider.compat.__version__
    assert outrider.compat._cli_version.__cli_version__.startswith("2.")


# Frames.


@every_case("name", frames.MADE)
def test_a_frame_is_parsed_or_refused_as_by_the_reference(name: str) -> None:
    (was,) = [each for each in REFERENCE if each["at"] == name]
    if "error" in was:
        assert was["error"] == MessageParseError.__name__
        with pytest.raises(MessageParseError):
            parse_message(frames.MADE[name])
    else:
        parsed = parse_message(frames.MADE[name])
        assert list(unequal(was["message"], parsed, "")) == []


def test_a_block_without_a_proper_type_is_dropped_as_by_the_reference() -> None:
    content: list[dict[str, Any]] = [{"type": []}, {"type": {}}, {"type": "text", "text": "kept"}]
    message = parse_message({"type": "user", "message": {"role": "user", "content": content}})
    assert isinstance(message, UserMessage)
    assert message.content == [TextBlock("kept")]


# The transport and the client's parts.


@pytest.mark.anyio
async def test_a_client_can_be_reached_through_its_transport(agent: Simulator) -> None:
    client = ClaudeSDKClient(options_of(agent))
    assert (client._transport, client._query) == (None, None)
    async with client:
        transport = cast("SubprocessCLITransport", client._transport)
        assert transport.is_ready()
        await transport.write(json.dumps(USER) + "\n")
        answers = map(parse_message, [frame async for frame in _up_to_the_result(client)])
        assert [type(each).__name__ for each in answers] == [
            *("SystemMessage", "AssistantMessage", "ResultMessage")
        ]
        await transport.close()
        assert not transport.is_ready()
    assert (client._transport, client._query) == (None, None)


@pytest.mark.anyio
async def test_requests_that_no_method_makes_go_through_the_clients_query(agent: Simulator) -> None:
    async with ClaudeSDKClient(options_of(agent)) as client:
        asked = client._query
        assert asked is not None
        assert asked.transport is client._transport
        request = {"subtype": "set_permission_mode", "mode": "plan"}
        answer = await asked._send_control_request(request, timeout=30.0)
        assert answer == {"mode": "plan"}
        assert request == {"subtype": "set_permission_mode", "mode": "plan"}
        with pytest.raises(ClaudeSDKError, match="no_such_thing"):
            await asked._send_control_request({"subtype": "no_such_thing"})


@pytest.mark.anyio
async def test_what_nobody_has_read_can_be_taken_at_once(agent: Simulator) -> None:
    async with ClaudeSDKClient(options_of(agent)) as client:
        asked = client._query
        assert asked is not None
        unread = asked._message_receive
        with pytest.raises(anyio.WouldBlock):
            unread.receive_nowait()
        await client.query("hello")
        taken: list[dict[str, Any]] = []
        with anyio.fail_after(30):
            while not taken or taken[-1]["type"] != "result":
                try:
                    taken.append(unread.receive_nowait())
                except anyio.WouldBlock:
                    await anyio.lowlevel.checkpoint()
        assert [frame["type"] for frame in taken] == ["system", "assistant", "result"]
        # It was taken from the others too.
        await client.query("again")
        left = [each async for each in client.receive_response()]
        assert isinstance(left[-1], ResultMessage)
        assert left[-1].result == "two"


@pytest.mark.anyio
async def test_the_process_can_be_looked_at_and_killed(agent: Simulator) -> None:
    client = ClaudeSDKClient(options_of(agent))
    await client.connect()
    process = cast("SubprocessCLITransport", client._transport)._process
    assert process is not None
    before = process.returncode
    os.kill(cast("int", process.pid), 0)
    process.kill()
    with pytest.raises(ProcessError) as raised:
        _ = [each async for each in client.receive_messages()]
    codes = (before, raised.value.exit_code, process.returncode, await process.wait())
    assert codes == (None, -9, -9, -9)
    process.terminate()
    await client.disconnect()


def test_sessions_are_found_where_the_reference_finds_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "config"))
    assert sessions._get_projects_dir() == sessions._get_claude_config_home_dir() / "projects"
    assert sessions._get_projects_dir({"CLAUDE_CONFIG_DIR": "/other"}) == Path("/other/projects")
    project = tmp_path / "pro.ject"
    (tmp_path / "link").symlink_to(project)
    path = sessions._canonicalize_path(str(tmp_path / "link"))
    assert path == str(project.resolve())
    assert sessions._sanitize_path("/a.b/ü") == "-a-b--"
    assert sessions._find_project_dir(path) is None
    folder = sessions._get_project_dir(path)
    assert folder.name == sessions.project_key_for_directory(project)
    folder.mkdir(parents=True)
    assert sessions._find_project_dir(path) == folder
    long = "/" + "x" * 300
    # Another runtime makes another checksum.
    other = folder.with_name(f"{sessions._sanitize_path(long)[:200]}-other")
    other.mkdir()
    assert sessions._find_project_dir(long) == other
    id = "00000000-0000-4000-8000-000000000001"
    assert sessions._resolve_session_file_path(id, path) is None
    file = folder / f"{id}.jsonl"
    file.write_text("{}\n")
    assert (
        sessions._resolve_session_file_path(id, path) == sessions._resolve_session_file_path(id, None) == file
    )
    assert sessions._resolve_session_file_path("none", None) is None


async def _up_to_the_result(client: ClaudeSDKClient) -> AsyncIterator[dict[str, Any]]:
    assert client._query is not None
    async for frame in client._query.receive_messages():
        yield frame
        if frame["type"] == "result":
            return


@pytest.mark.anyio
async def test_the_command_can_be_changed(agent: Simulator) -> None:
    built: list[str] = []

    class Wrapped(SubprocessCLITransport):
        def _build_command(self) -> list[str]:
            built.extend(super()._build_command())
            return ["env", "WRAPPED=1", *built]

    assert await result_of(None, Wrapped(prompt="hello", options=options_of(agent))) == "one"
    assert built[0] == str(agent.options().cli_path)
    assert "--verbose" in built


@pytest.mark.anyio
async def test_what_query_goes_through_can_be_replaced() -> None:
    client = "outrider.compat._internal.client"
    with mock.patch(f"{client}.InternalClient.process_query", return_value=iter(())) as called:
        assert query(prompt="hello") is called.return_value
    called.assert_called_once_with(prompt="hello", options=ClaudeAgentOptions(), transport=None)
    with mock.patch(f"{client}.SubprocessCLITransport", return_value=Simulator([say("one")])) as made:
        assert await result_of(None) == "one"
    made.assert_called_once_with(prompt="hello", options=ClaudeAgentOptions())


@pytest.mark.anyio
async def test_a_patched_transport_is_used(agent: Simulator, monkeypatch: pytest.MonkeyPatch) -> None:
    options = options_of(agent)
    path, options.cli_path = str(options.cli_path), None
    monkeypatch.setattr(SubprocessCLITransport, "_find_cli", lambda _: path)
    assert await result_of(options) == "one"


@pytest.mark.anyio
async def test_what_is_written_and_read_can_be_changed(agent: Simulator) -> None:
    seen: list[str] = []

    class Logged(SubprocessCLITransport):
        async def write(self, data: str) -> None:
            # In the spelling of the reference, which fakes in tests look for.
            assert data == json.dumps(json.loads(data)) + "\n"
            seen.append(json.loads(data)["type"])
            await super().write(data)

    options = options_of(agent)
    assert await result_of(options, Logged(prompt="hello", options=options)) == "one"
    assert seen == ["control_request", "user"]


@pytest.mark.anyio
async def test_an_old_program_behind_a_changed_transport_loses_no_option(
    agent: Simulator, tmp_path: Path
) -> None:
    (tmp_path / "package.json").write_text('{"name": "@anthropic-ai/claude-code", "version": "2.0.0"}')
    options = options_of(agent)
    options.cli_path = shutil.copy(str(options.cli_path), tmp_path / "claude")
    options.system_prompt = "Be brief."
    started: list[str] = []

    class Logged(SubprocessCLITransport):
        async def write(self, data: str) -> None:
            await super().write(data)

        def _build_command(self) -> list[str]:
            started.extend(super()._build_command())
            return super()._build_command()

    class Connected(Logged):
        async def connect(self) -> None:
            await super().connect()

    assert await result_of(options, Logged("hello", options)) == "one"
    assert any("system-prompt" in each for each in started)
    # What it connects to is not certain, so the prompt would go where newer ones look for it.
    with pytest.raises(CLIConnectionError, match="system_prompt"):
        await result_of(options, Connected("hello", options))
    options = replace(options, agents={"a": AgentDefinition("d", "p")})
    with pytest.raises(CLIConnectionError, match="agents"):
        await result_of(options, Logged("hello", options))


@pytest.mark.anyio
async def test_tools_can_be_called_through_the_handlers_of_the_library() -> None:
    types = pytest.importorskip("mcp.types")

    @tool("double", "Double a number.", {"n": int})
    async def double(args: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": str(2 * args["n"])}]}

    server = create_sdk_mcp_server("numbers", tools=[double])["instance"]
    entry = server.get_request_handler("tools/call")
    answer = await entry.handler(None, types.CallToolRequestParams(name="double", arguments={"n": 4}))
    assert [part.text for part in answer.content] == ["8"]
    listed = await server.get_request_handler("tools/list").handler(None, None)
    assert [each.name for each in listed.tools] == ["double"]


class _Proxy:
    """What an instrumentor puts around a stream. It says that it is of the class that it stands for."""

    def __init__(self, stream: Any, seen: list[str]) -> None:
        self.stream = stream
        self.seen = seen

    @property
    def __class__(self) -> type:
        return type(self.stream)

    @__class__.setter
    def __class__(self, value: type) -> None:
        raise AttributeError

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    async def __aiter__(self) -> AsyncIterator[Any]:
        async for message in self.stream:
            self.seen.append(type(message).__name__)
            yield message


@pytest.mark.anyio
async def test_a_proxy_around_receive_messages_sees_what_receive_response_gives(
    agent: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    receive = ClaudeSDKClient.receive_messages
    monkeypatch.setattr(ClaudeSDKClient, "receive_messages", lambda client: _Proxy(receive(client), seen))
    async with ClaudeSDKClient(options_of(agent)) as client:
        await client.query("hello")
        given = [type(each).__name__ async for each in client.receive_response()]
    assert seen == given == ["SystemMessage", "AssistantMessage", "ResultMessage"]


# The alias.


@pytest.fixture
def alias() -> Iterator[None]:
    yield
    remove_alias()


@pytest.mark.usefixtures("alias")
def test_the_references_name_means_the_drop_in() -> None:
    for _ in range(2):
        outrider.compat.install()
    named = importlib.import_module("claude_agent_sdk")
    assert named.__name__ == "claude_agent_sdk"
    for path in ("types", "client", "query", "_internal.transport.subprocess_cli", "testing"):
        module = importlib.import_module(f"claude_agent_sdk.{path}")
        assert module is importlib.import_module(f"outrider.compat.{path}")
        assert module.__spec__ is not None
        assert module.__spec__.name == f"outrider.compat.{path}"
    assert named.query is query
    for path in ("query.query", "tool"):
        with mock.patch(f"claude_agent_sdk.{path}") as patched:
            assert resolve_name(f"outrider.compat.{path}") is patched
    assert outrider.compat.tool is tool
    assert version("claude-agent-sdk") == version("claude_agent_sdk") == outrider.compat.__version__
    with pytest.raises(ModuleNotFoundError, match=r"claude_agent_sdk\.nothing"):
        importlib.import_module("claude_agent_sdk.nothing")


@pytest.mark.usefixtures("alias")
def test_the_name_can_be_loaded_again() -> None:
    outrider.compat.install()
    named = importlib.import_module("claude_agent_sdk")
    assert importlib.reload(named) is named
    assert outrider.compat.__name__ == "outrider.compat"
    # As tests do that want a module afresh.
    for name in ("claude_agent_sdk", "claude_agent_sdk.types"):
        del sys.modules[name]
    assert importlib.import_module("claude_agent_sdk").__name__ == "claude_agent_sdk"
    outrider.compat.install()
    assert importlib.import_module("claude_agent_sdk.types") is outrider.compat.types


def test_the_name_is_gone_with_the_alias() -> None:
    outrider.compat.install()
    remove_alias()
    program = "import claude_agent_sdk"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "ModuleNotFoundError" in done.stderr
    with pytest.raises(PackageNotFoundError):
        version("claude-agent-sdk")


def test_the_reference_itself_must_not_be_imported_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "claude_agent_sdk", ModuleType("claude_agent_sdk"))
    with pytest.raises(UsageError, match=r"imported already.*before anything imports it"):
        outrider.compat.install()
