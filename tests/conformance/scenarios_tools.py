"""Scenarios: tools of the agent, of the host, and structured output."""

from __future__ import annotations

import json
from typing import Any

from outrider.testing import answer, say, use_tool
from tests.conformance.host import Frame, Host
from tests.conformance.scenario import scenario

ANYTHING = ("--permission-mode", "bypassPermissions")


async def each_in_a_turn(host: Host, count: int) -> None:
    """As many prompts."""
    async with host.started():
        await host.initialize()
        for _ in range(count):
            await host.ask("go")


def turns(*calls: Any) -> list[Any]:
    """Each call, and a word after it."""
    return [step for call in calls for step in (call, say("done"))]


@scenario(
    *turns(
        use_tool("Bash", command="echo hi; echo there", description="Say hi"),
        use_tool("Bash", command="echo out; echo err >&2; exit 3"),
        use_tool("Bash", command="true"),
        use_tool("Bash", command="cd sub && pwd"),
        use_tool("Bash", command="no-such-program-at-all"),
        use_tool("Bash"),
    ),
    flags=ANYTHING,
    files={"sub/x": ""},
    everywhere=True,
)
async def bash(host: Host) -> None:
    await each_in_a_turn(host, 6)


@scenario(
    *turns(
        use_tool("Read", file_path="$FOLDER/text.txt"),
        use_tool("Read", file_path="$FOLDER/text.txt", offset=2, limit=1),
        use_tool("Read", file_path="$FOLDER/missing.txt"),
        use_tool("Read", file_path="$FOLDER/sub"),
        use_tool("Read", file_path="$FOLDER/empty.txt"),
        use_tool("Read", file_path="text.txt"),
    ),
    flags=ANYTHING,
    files={"text.txt": "one\ntwo\nthree\n", "sub/x": "", "empty.txt": ""},
    everywhere=True,
)
async def read(host: Host) -> None:
    await each_in_a_turn(host, 6)


@scenario(
    *turns(
        use_tool("Write", file_path="$FOLDER/new/deep.txt", content="one\ntwo\n"),
        use_tool("Write", file_path="$FOLDER/old.txt", content="new\n"),
        answer(use_tool("Read", file_path="$FOLDER/old.txt")),
        use_tool("Write", file_path="$FOLDER/old.txt", content="old\nand new\n"),
        use_tool("Write", file_path="$FOLDER/x.txt"),
    ),
    flags=ANYTHING,
    files={"old.txt": "old\n"},
)
async def write(host: Host) -> None:
    await each_in_a_turn(host, 5)


@scenario(
    *turns(
        use_tool("Edit", file_path="$FOLDER/a.txt", old_string="one", new_string="1"),
        use_tool("Read", file_path="$FOLDER/a.txt"),
        use_tool("Edit", file_path="$FOLDER/a.txt", old_string="one", new_string="1"),
        use_tool("Edit", file_path="$FOLDER/a.txt", old_string="no such", new_string="x"),
        use_tool("Edit", file_path="$FOLDER/a.txt", old_string="two", new_string="2"),
        use_tool("Edit", file_path="$FOLDER/a.txt", old_string="two", new_string="2", replace_all=True),
        use_tool("Edit", file_path="$FOLDER/a.txt", old_string="2", new_string="2"),
        use_tool("Edit", file_path="$FOLDER/missing.txt", old_string="a", new_string="b"),
    ),
    flags=ANYTHING,
    files={"a.txt": "one\ntwo\nand two\n"},
)
async def edit(host: Host) -> None:
    await each_in_a_turn(host, 8)


@scenario(
    answer(
        say("both"),
        use_tool("Read", file_path="$FOLDER/a.txt"),
        use_tool("Read", file_path="$FOLDER/b.txt"),
        use_tool("Bash", command="echo one"),
    ),
    say("done"),
    flags=ANYTHING,
    files={"a.txt": "a\n", "b.txt": "b\n"},
    loose=True,
)
async def several_calls_in_a_message(host: Host) -> None:
    await each_in_a_turn(host, 1)


@scenario(*turns(use_tool("NoSuchTool", x=1), use_tool("mcp__none__tool")), flags=ANYTHING)
async def unknown_tools(host: Host) -> None:
    await each_in_a_turn(host, 2)


@scenario(*turns(use_tool("Bash", command="echo no")), flags=(*ANYTHING, "--disallowedTools", "Bash"))
async def a_tool_that_is_taken_away(host: Host) -> None:
    await each_in_a_turn(host, 1)


@scenario(*turns(use_tool("Bash", command="echo no")), flags=(*ANYTHING, "--tools", "Read"), full=True)
async def only_some_tools(host: Host) -> None:
    await each_in_a_turn(host, 1)


# Tools of the host.

TOOLS = [
    {
        "name": "add",
        "description": "Adds",
        "inputSchema": {"type": "object", "properties": {"a": {"type": "number"}}},
    },
    {
        "name": "look",
        "description": "Looks",
        "inputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True},
    },
    {"name": "fails", "description": "Fails", "inputSchema": {"type": "object"}},
    {"name": "breaks", "description": "Breaks", "inputSchema": {"type": "object"}},
    {"name": "rich", "description": "Gives more", "inputSchema": {"type": "object"}},
]


def serve(request: Frame) -> Frame:
    """A server of the host's."""
    message = request["message"]
    answer: Frame = {"jsonrpc": "2.0", "id": message.get("id")}
    match message["method"], message.get("params", {}):
        case "initialize", params:
            info = {"name": "tools", "version": "1"}
            version = params["protocolVersion"]
            answer["result"] = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list", _:
            answer["result"] = {"tools": TOOLS}
        case "tools/call", {"name": "fails"}:
            answer["result"] = {"content": [{"type": "text", "text": "it did not work"}], "isError": True}
        case "tools/call", {"name": "breaks"}:
            answer["error"] = {"code": -32603, "message": "it broke"}
        case "tools/call", {"name": "rich"}:
            content = [
                {"type": "text", "text": "a"},
                {"type": "image", "data": PIXEL, "mimeType": "image/png"},
            ]
            answer["result"] = {"content": content, "structuredContent": {"sum": 3}, "_meta": {"x": 1}}
        case "tools/call", {"name": name}:
            answer["result"] = {"content": [{"type": "text", "text": f"{name} ran"}]}
        case _:
            answer["result"] = {}
    return {"mcp_response": answer}


PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


async def with_server(host: Host, prompts: int = 1) -> None:
    host.answers["mcp_message"] = serve
    async with host.started():
        await host.initialize(sdkMcpServers=["tools"])
        await host.until(
            lambda frame: (
                frame["type"] == "control_request"
                and frame["request"].get("message", {}).get("method") == "tools/list"
            )
        )
        for _ in range(prompts):
            await host.ask("go")
        await host.request("mcp_status")


@scenario(
    *turns(
        use_tool("mcp__tools__add", a=1),
        use_tool("mcp__tools__fails"),
        use_tool("mcp__tools__breaks"),
        use_tool("mcp__tools__rich"),
        use_tool("mcp__tools__none"),
    ),
    flags=ANYTHING,
    everywhere=True,
)
async def tools_of_the_host(host: Host) -> None:
    await with_server(host, 5)


@scenario(
    answer(use_tool("mcp__tools__look"), use_tool("mcp__tools__add", a=1)),
    say("done"),
    flags=(
        *("--mcp-config", json.dumps({"mcpServers": {"tools": {"type": "sdk", "name": "tools"}}})),
        *("--allowedTools", "mcp__tools"),
    ),
)
async def a_server_that_is_configured(host: Host) -> None:
    host.answers["mcp_message"] = serve
    async with host.started():
        await host.initialize()
        await host.until(
            lambda frame: (
                frame["type"] == "control_request"
                and frame["request"].get("message", {}).get("method") == "tools/list"
            )
        )
        await host.ask("go")


# Structured output.

SCHEMA = json.dumps({"type": "object", "properties": {"total": {"type": "integer"}}, "required": ["total"]})
STRUCTURED = ("--json-schema", SCHEMA)


@scenario(use_tool("StructuredOutput", total=7), say("that is it"), flags=STRUCTURED, everywhere=True)
async def structured_output(host: Host) -> None:
    await each_in_a_turn(host, 1)


@scenario(say("seven"), say("seven, really"), say("and again"), flags=STRUCTURED)
async def structured_output_as_text_alone(host: Host) -> None:
    await each_in_a_turn(host, 1)


@scenario(
    use_tool("StructuredOutput", total="seven"),
    use_tool("StructuredOutput", total=7),
    say("that is it"),
    flags=STRUCTURED,
)
async def structured_output_at_the_second_try(host: Host) -> None:
    await each_in_a_turn(host, 1)


@scenario(*[use_tool("StructuredOutput", total="seven")] * 8, flags=STRUCTURED)
async def structured_output_that_never_fits(host: Host) -> None:
    await each_in_a_turn(host, 1)
