"""Tools whose definition is given as MCP lists it."""

from __future__ import annotations

from typing import Any, cast

import anyio
import pytest

from outrider.handlers import AgentLink, Handled, Origin, RawTool, RawToolServer, ToolServer

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "$comment": "kept"}
DEFINITION: dict[str, Any] = {
    "name": "any name, even this",
    "description": "d",
    "title": "t",
    "inputSchema": SCHEMA,
    "annotations": {"readOnlyHint": True},
    "_meta": {"x": 1},
}


class NoLink:
    def post(self, message: dict[str, Any]) -> None:
        raise AssertionError("nothing changes here")


async def ask(server: ToolServer, method: str, params: Any) -> Any:
    handled: list[Handled] = []
    endpoint = server.open(cast(AgentLink, NoLink()), handled.append)
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    with anyio.fail_after(10):
        return await endpoint.receive(message, cast(Origin, None))


async def echo(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"given": arguments}


def test_a_tool_is_what_its_definition_says() -> None:
    raw = RawTool(DEFINITION, echo)
    assert raw.definition is DEFINITION
    assert (raw.name, raw.description, raw.title) == ("any name, even this", "d", "t")
    assert raw.input_schema is SCHEMA
    assert (raw.annotations, raw.meta) == ({"readOnlyHint": True}, {"x": 1})
    assert (raw.timeout, raw.concurrency, raw.needs_instance) == (None, None, False)
    assert repr(raw) == "<Tool 'any name, even this'>"


def test_what_a_definition_leaves_out_is_empty() -> None:
    raw = RawTool({"name": "n", "inputSchema": {}}, echo)
    assert (raw.description, raw.title, raw.annotations, raw.meta) == ("", None, {}, {})


@pytest.mark.anyio
async def test_arguments_come_as_they_are() -> None:
    server = RawToolServer("any name", [RawTool(DEFINITION, echo)], always_load=False)
    given = {"a": "no number", "self": 1, "class": None}
    answer = await ask(server, "tools/call", {"name": DEFINITION["name"], "arguments": given})
    assert answer["result"]["structuredContent"] == {"given": given}
    assert (await ask(server, "tools/list", {}))["result"] == {"tools": [DEFINITION]}


@pytest.mark.anyio
async def test_a_function_need_not_be_async() -> None:
    server = RawToolServer("s", [RawTool({"name": "n", "inputSchema": {}}, lambda given: f"{given}")])
    answer = await ask(server, "tools/call", {"name": "n", "arguments": {"a": 1}})
    assert answer["result"]["content"] == [{"type": "text", "text": "{'a': 1}"}]


@pytest.mark.anyio
async def test_of_two_with_one_name_the_later_counts() -> None:
    def definition(description: str) -> dict[str, Any]:
        return {"name": "n", "description": description, "inputSchema": {}}

    server = RawToolServer("s", [RawTool(definition("one"), echo), RawTool(definition("two"), echo)])
    assert [each.description for each in server.tools] == ["two"]


@pytest.mark.anyio
async def test_a_server_may_answer_for_a_tool_that_is_not_there() -> None:
    class Answering(RawToolServer):
        def missing(self, name: str) -> dict[str, Any]:
            return {"content": [], "isError": True, "_meta": {"name": name}}

    answer = await ask(Answering("s"), "tools/call", {"name": "gone"})
    assert answer["result"] == {"content": [], "isError": True, "_meta": {"name": "gone"}}
    assert "error" in await ask(RawToolServer("s"), "tools/call", {"name": "gone"})
