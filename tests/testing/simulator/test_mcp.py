"""MCP servers of the simulated agent: those of the host, against recordings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import outrider
from outrider.testing import Simulator, say, use_tool
from outrider.testing._simulator.frames import Outcome
from outrider.wire import JsonObject
from tests.testing.simulator.asked import Asked, Reply, call
from tests.testing.simulator.replayed import Alike, recorded, replay, shown

pytestmark = pytest.mark.anyio

SHORT = {"MCP_TOOL_TIMEOUT": "1000"}
"""So that the text that tells of it is that of the recordings."""
SILENT = ("06-mcp-raw-variants", 11)
"""Its server never answers, so the time for a handshake runs out; all others answer."""

RECORDED = [
    ("06-mcp-sdk-permission", 0),
    ("06-mcp-raw-initialize-sdkMcpServers", 1),
    *[("06-mcp-raw-variants", number) for number in range(13) if number != 2],
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder that the agent works in."""
    path = tmp_path.resolve() / "project"
    path.mkdir()
    return path


@pytest.mark.requirement("H1")
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("name, number", RECORDED)
async def test_servers_of_the_host_are_used_as_by_the_real_agent(
    name: str, number: int, folder: Path
) -> None:
    environment = {**SHORT, "MCP_TIMEOUT": "50"} if (name, number) == SILENT else SHORT
    assert shown(await replay(name, number, folder, environment)) == Alike(shown(recorded(name, number)))


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("name, number", [("06-mcp-raw-variants", 2), ("06-mcp-sdk-tools", 0)])
async def test_errors_of_tools_reach_the_model_without_a_hint_about_their_schema(
    name: str, number: int, folder: Path
) -> None:
    # The program keeps the schemas of such tools from the model, and tells it after an error.
    told = json.loads(json.dumps(shown(recorded(name, number))))
    for _, part in told:
        message = part.get("message") if isinstance(part, dict) else None
        for block in (message or {}).get("content") or []:
            if block.get("is_error") and block["content"].endswith("characters)"):
                block["content"] = part["tool_use_result"].removeprefix("Error: ")
    said = json.loads(json.dumps(shown(await replay(name, number, folder))))
    assert said == Alike(told)


# Servers of the host, one by one.


class Host:
    """Answers `mcp_message`, as a server would."""

    def __init__(self, **answers: Any) -> None:
        self.answers: dict[str, Any] = {
            "initialize": {"capabilities": {"tools": {}}, "serverInfo": {"name": "hand", "version": "1"}},
            "tools/list": {"tools": [{"name": "look.up", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": "found"}]},
            **{name.replace("_", "/"): answer for name, answer in answers.items()},
        }

    def __call__(self, subtype: str, fields: JsonObject) -> Reply:
        message = fields["message"]
        answer: Reply = self.answers.get(message.get("method"), {})
        if not isinstance(answer, dict):
            return answer
        return {"mcp_response": {"jsonrpc": "2.0", "id": message.get("id"), "result": answer}}


OF_HOST = ("--mcp-config", json.dumps({"mcpServers": {"my server": {"type": "sdk", "name": "my server"}}}))


def methods(run: Asked) -> list[str]:
    return [fields["message"].get("method", "answer") for fields in run.of("mcp_message")]


async def test_the_greeting_goes_out_before_the_host_is_answered_and_the_rest_after(tmp_path: Path) -> None:
    run = Asked(tmp_path, *OF_HOST, answer=Host())
    async with run.running():
        await run.mcp.start()
        assert methods(run) == ["initialize"]
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        assert methods(run) == ["initialize"]
        await run.mcp.settle()
        assert methods(run) == ["initialize", "notifications/initialized", "tools/list"]
        assert [spec.name for spec in run.mcp.specs()] == ["mcp__my_server__look_up"]
        assert run.mcp.owns("mcp__my_server__look_up")
        assert not run.mcp.owns("mcp__my_server__other")


async def test_a_server_with_a_manifest_is_not_greeted(tmp_path: Path) -> None:
    run = Asked(tmp_path, answer=Host())
    run.initialize = {
        "sdkMcpServers": ["s"],
        "sdkMcpServerManifests": {
            "s": {
                "initializeResult": {"serverInfo": {"name": "hand", "version": "1"}},
                "toolsListResult": {"tools": [{"name": "t"}]},
            }
        },
    }
    async with run.running():
        await run.mcp.start()
        await run.mcp.settle()
        assert run.asked == []
        assert run.mcp.statuses(brief=True) == [{"name": "s", "status": "connected", "source": "sdk"}]
        outcome = await run.mcp.call(call("mcp__s__t"))
        assert outcome.content == [{"type": "text", "text": "found"}]
        assert methods(run) == ["tools/call"]


async def test_the_list_of_tools_is_asked_for_again_when_it_has_changed(tmp_path: Path) -> None:
    host = Host()
    run = Asked(tmp_path, *OF_HOST, answer=host)
    async with run.running():
        await run.mcp.start()
        await run.mcp.settle()
        host.answers["tools/list"] = {"tools": [{"name": "new"}]}
        run.mcp.receive("my server", {"method": "notifications/tools/list_changed"})
        while not run.mcp.owns("mcp__my_server__new"):
            await anyio.lowlevel.checkpoint()
        run.mcp.receive("nobody", {"method": "ping", "id": 1})
        run.mcp.receive("my server", {"method": "ping", "id": "p"})
        run.mcp.receive("my server", {"method": "roots/list", "id": "r"})
        while methods(run).count("answer") < 2:
            await anyio.lowlevel.checkpoint()
    pong, refused = sorted(
        (fields["message"] for fields in run.of("mcp_message") if "method" not in fields["message"]),
        key=lambda message: message["id"],
    )
    assert pong["result"] == {}
    assert refused["error"]["code"] == -32601


async def test_a_call_that_is_given_up_is_taken_back_at_the_server(tmp_path: Path) -> None:
    run = Asked(tmp_path, *OF_HOST, answer=Host(tools_call=None))
    async with run.running():
        await run.mcp.start()
        await run.mcp.settle()
        async with anyio.create_task_group() as turn:
            turn.start_soon(run.mcp.call, call("mcp__my_server__look_up"))
            while "tools/call" not in methods(run):
                await anyio.lowlevel.checkpoint()
            turn.cancel_scope.cancel()
        while "notifications/cancelled" not in methods(run):
            await anyio.lowlevel.checkpoint()
        message = run.of("mcp_message")[-1]["message"]
        assert message["params"] == {"requestId": 2, "reason": "AbortError: remote-cancel"}


async def test_a_server_that_fails_is_tried_twice_and_then_has_no_tools(tmp_path: Path) -> None:
    run = Asked(tmp_path, *OF_HOST, answer=Host(initialize="no such server"))
    async with run.running():
        await run.mcp.start()
        await run.mcp.settle()
        assert methods(run) == ["initialize", "initialize"]
        assert run.mcp.specs() == []
        (status,) = run.mcp.statuses()
        assert (status["status"], status["scope"]) == ("failed", "user")
        outcome = await run.mcp.call(call("mcp__my_server__look_up"))
        assert outcome.is_error
        assert outcome.detail == "Error: No such tool available: mcp__my_server__look_up"
        with pytest.raises(LookupError, match="no such server"):
            await run.mcp.reconnect("my server")


@pytest.mark.parametrize("rule", ["mcp__my_server", "mcp__my_server__*", "mcp__my_server__look_up"])
async def test_a_rule_takes_tools_away(rule: str, tmp_path: Path) -> None:
    run = Asked(tmp_path, *OF_HOST, "--disallowedTools", rule, answer=Host())
    async with run.running():
        await run.mcp.start()
        await run.mcp.settle()
        assert run.mcp.specs() == []


IMAGE = "iVBORw0KGgo="
CONTENT: list[tuple[JsonObject, Any, Any]] = [
    # result, content for the model, detail; PATH stands for a file that was kept
    ({}, "(T completed with no output)", []),
    ({"content": [{"type": "text", "text": ""}]}, "(T completed with no output)", "same"),
    (
        {"content": [{"type": "text", "text": "a", "annotations": {}}]},
        [{"type": "text", "text": "a"}],
        "same",
    ),
    ({"structuredContent": {"a": 1}}, '{"a":1}', {"content": '{"a":1}', "structuredContent": {"a": 1}}),
    (
        {"content": [{"type": "text", "text": "x"}], "_meta": {"k": 1}},
        [{"type": "text", "text": "x"}],
        {"content": [{"type": "text", "text": "x"}], "_meta": {"k": 1}},
    ),
    (
        {"content": [{"type": "image", "data": IMAGE, "mimeType": "image/png"}]},
        [
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": IMAGE}},
            {"type": "text", "text": "[Image: source: PATH.png]"},
        ],
        "same",
    ),
    (
        {"content": [{"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}]},
        [{"type": "text", "text": "[Audio from s] Binary content (audio/wav, 3 bytes) saved to PATH.wav"}],
        "same",
    ),
    (
        {"content": [{"type": "resource", "resource": {"uri": "u:1", "text": "hi"}}]},
        [{"type": "text", "text": "[Resource from s at u:1] hi"}],
        "same",
    ),
    (
        {"content": [{"type": "resource_link", "uri": "u:2", "name": "b", "description": "d"}]},
        [{"type": "text", "text": "[Resource link: b] u:2 (d)"}],
        {
            "content": [{"type": "text", "text": "[Resource link: b] u:2 (d)"}],
            "resourceLinks": [{"uri": "u:2", "name": "b", "description": "d"}],
        },
    ),
]


@pytest.mark.parametrize("result, content, detail", CONTENT)
def test_results_become_what_the_program_makes_of_them(
    result: JsonObject, content: Any, detail: Any, tmp_path: Path
) -> None:
    outcome = Outcome.of_server(result, tool="T", server="s", folder=tmp_path / "kept")
    text = json.dumps([outcome.content, outcome.detail])
    for kept in tmp_path.glob("kept/*"):
        assert kept.name.startswith("mcp-s-blob-")
        text = text.replace(str(kept.with_suffix("")), "PATH")
    found = json.loads(text)
    if detail == "same":
        detail = content if isinstance(content, list) else [{"type": "text", "text": ""}]
    assert found == [content, detail]
    assert not outcome.is_error


@pytest.mark.parametrize(
    "blocks, text",
    [
        ([{"type": "text", "text": "first"}, {"type": "text", "text": "second"}], "first\nsecond"),
        ([], "Unknown error"),
    ],
)
def test_errors_of_tools_are_told_as_text(blocks: list[JsonObject], text: str, tmp_path: Path) -> None:
    outcome = Outcome.of_server({"isError": True, "content": blocks}, tool="T", server="s", folder=tmp_path)
    assert (outcome.is_error, outcome.content, outcome.detail) == (True, text, f"Error: {text}")


# Programs of their own.


# Servers that come and go, and those that are not started.


def with_servers(**servers: JsonObject) -> tuple[str, str]:
    return ("--mcp-config", json.dumps({"mcpServers": servers}))


@pytest.mark.parametrize("kind", ["stdio", "http"])
async def test_a_server_of_somebody_else_is_not_started_and_says_so(kind: str, tmp_path: Path) -> None:
    run = Asked(tmp_path, *with_servers(other={"type": kind, "command": "/no/such/program"}))
    async with run.running():
        await run.mcp.start()
        await run.mcp.settle()
        (status,) = run.mcp.statuses()
    assert (status["status"], status["transport"], status["source"]) == ("failed", kind, "dynamic")
    assert "Give the results of their tools in the script" in status["error"]


async def test_the_script_gives_the_results_of_tools_whose_server_is_not_started() -> None:
    steps = [use_tool("mcp__files__read", path="x", tool_result="its text"), say("done")]
    agent = Simulator([*steps, use_tool("mcp__nobody__read", tool_result="its text"), say("done")])
    options = outrider.Options(
        transport=agent,
        mcp_servers={"files": outrider.StdioServer(command="/no/such/program")},
        permission_mode="bypassPermissions",
    )
    with anyio.fail_after(20):
        async with outrider.Session(options=options) as session:
            await session.ask("Read x.")
            await session.ask("Again.")
    assert agent.requests[1].tool_results[0]["content"] == "its text"
    assert "No such tool available" in agent.requests[3].tool_results[0]["content"]


async def test_servers_are_switched_off_and_on_replaced_and_connected_again(tmp_path: Path) -> None:
    small: JsonObject = {"type": "sdk", "name": "small"}
    run = Asked(tmp_path, *with_servers(small=small), answer=Host())

    def states() -> dict[str, str]:
        return {status["name"]: status["status"] for status in run.mcp.statuses(brief=True)}

    async with run.running():
        await run.mcp.start()
        await run.mcp.settle()
        await run.mcp.toggle("small", enabled=False)
        assert states() == {"small": "disabled"}
        assert run.mcp.specs() == []
        await run.mcp.settle()
        await run.mcp.toggle("small", enabled=True)
        assert states() == {"small": "connected"}
        await run.mcp.reconnect("small")
        assert run.mcp.owns("mcp__small__look_up")
        for unknown in (run.mcp.toggle("x", enabled=True), run.mcp.reconnect("x")):
            with pytest.raises(LookupError, match="Server not found: x"):
                await unknown
        given: JsonObject = {"more": {"type": "sdk", "name": "more"}, "bad": {"command": "/no/such"}}
        answer = await run.mcp.set_servers(given)
        assert (answer["added"], answer["removed"]) == (["more", "bad"], [])
        assert set(answer["errors"]) == {"bad"}
        again = await run.mcp.set_servers({"more": given["more"]})
        assert (again["added"], again["removed"], again["errors"]) == ([], ["bad"], {})
        assert (await run.mcp.set_servers({}))["removed"] == ["more"]
        assert states() == {"small": "connected"}
        with pytest.raises(LookupError, match="MCP server not connected: nobody"):
            await run.mcp.call_tool("mcp__nobody__t", {})


# Through a session.


async def test_a_tool_of_the_user_is_called_by_its_short_name() -> None:
    @outrider.tool
    async def lookup(ticket: int) -> str:
        """Says who owns a ticket."""
        return f"Ada owns {ticket}"

    agent = Simulator([use_tool("lookup", ticket=7), say("Ada owns it.")])
    with anyio.fail_after(20):
        async with outrider.Session(tools=[lookup], transport=agent) as session:
            result = await session.ask("Who owns ticket 7?")
            (status,) = await session.mcp_status()
    assert result.text == "Ada owns it."
    assert agent.requests[1].tool_results[0]["content"] == [{"type": "text", "text": "Ada owns 7"}]
    assert status.status == "connected"


async def test_a_permission_prompt_may_be_a_tool(tmp_path: Path) -> None:
    def host(subtype: str, fields: JsonObject) -> Reply:
        return Host(
            tools_list={"tools": [{"name": "ask"}]},
            tools_call={"content": [{"type": "text", "text": '{"behavior": "deny", "message": "not you"}'}]},
        )(subtype, fields)

    run = Asked(tmp_path, *OF_HOST, "--permission-prompt-tool", "mcp__my_server__ask", answer=host)
    async with run.running():
        await run.mcp.start()
        await run.mcp.settle()
        decision = await run.permissions.decide(call("Bash", command="npm test"))
        arguments = run.of("mcp_message")[-1]["message"]["params"]["arguments"]
    assert getattr(decision, "message", "") == "not you"
    assert set(arguments) == {"tool_name", "input", "tool_use_id"}


async def test_a_prompt_finds_the_tools_that_were_there_when_it_was_sent() -> None:
    @outrider.tool
    def first() -> str:
        """The first."""
        return "one"

    @outrider.tool
    def second() -> str:
        """The second."""
        return "two"

    server = outrider.ToolServer("library", [first])
    calls = [use_tool("mcp__library__first"), say("a"), use_tool("mcp__library__second"), say("b")]
    agent = Simulator(calls)
    with anyio.fail_after(30):
        async with outrider.Session(
            transport=agent, mcp_servers={"library": server}, allowed_tools=["mcp__library"]
        ) as session:
            await session.ask("one")
            server.add(second)
            await session.ask("two")
    assert "two" in str(agent.requests[-1].tool_results)
