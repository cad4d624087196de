"""Bugs that other SDKs had in answering the agent (security, MCP), each as a test. Those of the command line
are in `tests/launch`."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import outrider
from outrider.handlers import Handled, Handlers
from outrider.options import Options
from outrider.wire import JsonObject
from outrider.wire.control import CanUseTool, HookCallback, McpMessage
from outrider.wire.hooks import hook_input_from_wire
from tests.cases import every_case
from tests.handlers.hooking import Unlimited

pytestmark = pytest.mark.anyio


class Nowhere(Unlimited):
    session: Any = None
    turn: Any = None
    tool_names: Any = None


class Silent:
    def post(self, message: JsonObject) -> None:
        del message


class Host:
    """What answers for a session, without one."""

    def __init__(self, **fields: Any) -> None:
        self.events: list[Handled] = []
        self._handlers = Handlers(Options(**fields), self.events.append)
        for name in self._handlers.servers.given:
            self._handlers.servers.open(name, Silent())

    async def decide(self, tool: str = "Bash", **input: Any) -> JsonObject:
        return await self._handlers.answer(CanUseTool(tool, input, "toolu_1"), Nowhere())

    async def hook(self, event: str = "PreToolUse", **told: Any) -> JsonObject:
        given = {"hook_event_name": event, "tool_name": "Bash", "tool_input": {"command": "ls"}} | told
        ask = HookCallback("hook_0", hook_input_from_wire(given), "toolu_1")
        return await self._handlers.answer(ask, Nowhere())

    async def rpc(self, method: str, **params: Any) -> JsonObject:
        message: JsonObject = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        reply = await self._handlers.answer(McpMessage("tools", message), Nowhere())
        answer: JsonObject = reply["mcp_response"]
        return answer

    async def use(self, tool: str, **arguments: Any) -> JsonObject:
        result: JsonObject = (await self.rpc("tools/call", name=tool, arguments=arguments))["result"]
        return result

    async def listed(self) -> list[JsonObject]:
        tools: list[JsonObject] = (await self.rpc("tools/list"))["result"]["tools"]
        return tools


# Security.


async def test_nothing_is_allowed_without_a_callback() -> None:
    """VA, FO, JV, EX: allowed by default."""
    assert (await Host().decide())["behavior"] == "deny"


@every_case("answer", [None, "allow", {}, {"behavior": "maybe"}, 1, [], object], ids=repr)
async def test_nothing_is_allowed_by_an_answer_that_means_nothing(answer: object) -> None:
    async def permit(_: object) -> object:
        return answer

    assert (await Host(permission=permit).decide())["behavior"] == "deny"


async def test_a_hook_that_raises_or_hangs_does_not_allow() -> None:
    """MO: a time-out or an exception meant yes."""

    async def fails(_: object) -> None:
        raise LookupError("no rules")

    for guard in (outrider.hook("PreToolUse")(fails), outrider.hook("PreToolUse", timeout=0.01)(never)):
        answer = await Host(hooks=[guard]).hook()
        assert answer["hookSpecificOutput"]["permissionDecision"] == "deny"


async def never(_: object) -> None:
    await anyio.sleep_forever()


async def test_that_a_turn_is_to_end_reaches_the_agent() -> None:
    """VA: `continue: false` was dropped, because it is false."""

    async def ends(_: object) -> outrider.Answer:
        return outrider.answers.stop("enough")

    async def ends_by_dict(_: object) -> JsonObject:
        return {"continue_": False, "stopReason": "enough"}

    for function in (ends, ends_by_dict):
        answer = await Host(hooks={"PostToolUse": [function]}).hook("PostToolUse")
        assert answer["continue"] is False
        assert answer["stopReason"] == "enough"


async def test_all_that_goes_with_a_decision_reaches_the_agent() -> None:
    """MO, TY: changed input and updates of the rules were dropped."""
    from outrider.wire.permissions import PermissionUpdate

    update = PermissionUpdate("setMode", mode="acceptEdits", destination="session")

    async def permit(_: object) -> outrider.Answer:
        return outrider.allow({"command": "true"}, updates=[update])

    answer = await Host(permission=permit).decide(command="rm -r /")
    assert answer["updatedInput"] == {"command": "true"}
    assert answer["updatedPermissions"] == [
        {"type": "setMode", "mode": "acceptEdits", "destination": "session"}
    ]

    async def refuse(_: object) -> outrider.Answer:
        return outrider.deny("no", interrupt=True)

    answer = await Host(permission=refuse).decide()
    assert (answer["message"], answer["interrupt"]) == ("no", True)


async def test_an_asynchronous_callback_is_awaited_and_a_plain_one_does_not_block() -> None:
    """TY: the coroutine itself was taken for the answer, and was true."""

    def permit(_: object) -> Any:
        async def later() -> bool:
            return False

        return later()

    assert (await Host(permission=permit).decide())["behavior"] == "deny"


# MCP.


async def test_an_exception_of_a_tool_is_a_result_that_the_model_sees() -> None:
    """A6-M7: it was an error of the protocol, and the model saw nothing of it."""

    @outrider.tool
    def fails() -> None:
        """Fail."""
        raise LookupError("no such ticket")

    result = await Host(tools=[fails]).use("fails")
    assert result["isError"] is True
    assert "no such ticket" in result["content"][0]["text"]
    assert "Traceback" not in str(result)


async def test_an_annotation_that_is_false_is_told() -> None:
    """RB: `readOnlyHint: false` was left out."""

    @outrider.tool(read_only=False, destructive=False)
    def writes() -> None:
        """Write."""

    (listed,) = await Host(tools=[writes]).listed()
    assert listed["annotations"] == {"readOnlyHint": False, "destructiveHint": False}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
        {"type": "object", "properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}},
    ],
    ids=["no properties", "oneOf", "anyOf"],
)
async def test_a_schema_is_told_as_it_was_given(schema: JsonObject) -> None:
    """A7-P1: schemas without properties, and with `oneOf`, were mangled."""

    @outrider.tool(schema=schema)
    def anything(**arguments: object) -> str:
        """Take anything."""
        return str(arguments)

    (listed,) = await Host(tools=[anything]).listed()
    assert listed["inputSchema"] == schema


async def test_a_tool_without_parameters_has_a_schema() -> None:
    @outrider.tool
    def now() -> str:
        """Tell the time."""
        return "late"

    host = Host(tools=[now])
    (listed,) = await host.listed()
    assert listed["inputSchema"]["type"] == "object"
    assert (await host.use("now"))["content"] == [{"type": "text", "text": "late"}]


def test_a_typed_server_is_told_as_an_object() -> None:
    """A7-M17: it was told as the text of its class."""
    from outrider.launch import make_command

    options = Options(
        mcp_servers={"db": outrider.StdioServer(command="db", args=["--fast"])}, cli_path="/bin/true"
    )
    (file,) = [file for file in make_command(options).files if b"mcpServers" in file.content]
    assert b'"command":"db"' in file.content
    assert b"StdioServer" not in file.content


async def test_a_large_result_can_be_announced() -> None:
    """RB: large results were cut unless the tool says how large they may be."""

    @outrider.tool(max_result_chars=500_000)
    def dump() -> str:
        """Give all of it."""
        return "x" * 400_000

    host = Host(tools=[dump])
    (listed,) = await host.listed()
    assert listed["_meta"]["anthropic/maxResultSizeChars"] == 500_000
    assert len((await host.use("dump"))["content"][0]["text"]) == 400_000


async def test_own_tools_are_known_to_the_model_from_the_start() -> None:
    """inspect_swe: they were missing in the first call of the model."""

    @outrider.tool
    def mine() -> None:
        """Do nothing."""

    (listed,) = await Host(tools=[mine]).listed()
    assert listed["_meta"]["anthropic/alwaysLoad"] is True


async def test_images_and_structured_content_are_not_dropped() -> None:
    """RB: only text came through, and `is_error` was spelled as the model's API does."""
    png = b"\x89PNG\r\n\x1a\n" + bytes(16)

    @outrider.tool
    def show() -> Any:
        """Show it."""
        return [outrider.Image(png), {"width": 16}]

    @outrider.tool
    def measure() -> dict[str, int]:
        """Measure it."""
        return {"width": 16}

    host = Host(tools=[show, measure])
    shown = (await host.use("show"))["content"]
    assert [block["type"] for block in shown] == ["image", "text"]
    assert shown[0]["mimeType"] == "image/png"
    measured = await host.use("measure")
    assert measured["structuredContent"] == {"width": 16}
    assert "is_error" not in measured


async def test_a_tool_that_is_listed_can_be_called() -> None:
    """JV: it was offered, and calls were not implemented."""

    @outrider.tool
    def add(a: int, b: int = 1) -> int:
        """Add."""
        return a + b

    host = Host(tools=[add])
    for listed in await host.listed():
        assert (await host.use(listed["name"], a=1))["content"] == [{"type": "text", "text": "2"}]
