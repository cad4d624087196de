"""Servers of tools: what they are made of, and what sessions are told when that changes."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import pytest

from outrider.errors import OptionsError
from outrider.handlers import ToolServer, tool
from tests.cases import every_case
from tests.handlers.tooling import Post, Serving, text_of

pytestmark = pytest.mark.anyio

CHANGED = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}


@tool
async def one(a: int = 1) -> str:
    """The first."""
    return f"one {a}"


@tool(read_only=False)
def two() -> str:
    return "two"


def three() -> str:
    return "three"


async def names(serving: Serving) -> list[str]:
    return [each["name"] for each in (await serving.ask("tools/list"))["result"]["tools"]]


@pytest.mark.requirement("A11")
async def test_it_introduces_itself() -> None:
    serving = Serving(one, version="2.3", instructions="Use them well.")
    reply = await serving.ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}})
    assert reply["result"] == {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {"listChanged": True}},
        "serverInfo": {"name": "s", "version": "2.3"},
        "instructions": "Use them well.",
    }


@every_case("params", [None, {}, [], {"protocolVersion": "1999-01-01"}, {"protocolVersion": 5}])
async def test_an_unknown_version_is_answered_with_the_newest(params: Any) -> None:
    result = (await Serving(one).ask("initialize", params))["result"]
    assert result["protocolVersion"] == "2025-11-25"
    assert result["serverInfo"] == {"name": "s", "version": "1.0.0"}
    assert "instructions" not in result


@pytest.mark.requirement("A11")
async def test_it_lists_its_tools() -> None:
    result = (await Serving(one, two, always_load=False).ask("tools/list"))["result"]
    assert result == {
        "tools": [
            {"name": "one", "description": "The first.", "inputSchema": one.input_schema},
            {
                "name": "two",
                "description": "",
                "inputSchema": {
                    "type": "object",
                    "properties": {},
                    "required": [],
                    "additionalProperties": False,
                },
                "annotations": {"readOnlyHint": False},
            },
        ]
    }


@every_case(
    "server, own, expected",
    [(True, None, True), (True, False, False), (False, None, None), (False, True, True)],
)
async def test_tools_are_known_from_the_start_unless_told_otherwise(
    server: bool, own: bool | None, expected: bool | None
) -> None:
    serving = Serving(tool(always_load=own)(three), always_load=server)
    (listed,) = (await serving.ask("tools/list"))["result"]["tools"]
    assert listed.get("_meta", {}).get("anthropic/alwaysLoad") == expected
    assert ToolServer("s").always_load is True


async def test_plain_functions_become_tools() -> None:
    serving = Serving(three)
    assert [each.name for each in serving.server.tools] == ["three"]
    assert text_of(await serving.call("three")) == "three"
    assert repr(serving.server) == "<ToolServer 's': three>"
    assert repr(ToolServer("empty")) == "<ToolServer 'empty': no tools>"


# Changes.


async def test_tools_come_and_go_while_a_session_runs() -> None:
    serving = Serving(one)
    assert await names(serving) == ["one"]
    serving.server.add(two, three)
    assert serving.link.messages == [CHANGED]
    assert await names(serving) == ["one", "two", "three"]
    assert text_of(await serving.call("three")) == "three"
    serving.server.remove("one", "three")
    assert serving.link.messages == [CHANGED] * 2
    assert await names(serving) == ["two"]
    reply = await serving.ask("tools/call", {"name": "one"})
    assert "known are: two" in reply["error"]["message"]


async def test_only_who_has_asked_is_told() -> None:
    serving = Serving(one)
    await serving.ask("initialize")
    serving.server.add(two)
    assert serving.link.messages == []
    assert await names(serving) == ["one", "two"]


async def test_every_session_is_told_and_none_is_kept() -> None:
    server = ToolServer("s", [one])
    first, second = Serving(server=server), Serving(server=server)
    assert await names(first) == await names(second) == ["one"]
    gone = weakref.ref(second.endpoint)
    link = second.link
    del second
    gc.collect()
    assert gone() is None
    server.add(two)
    assert first.link.messages == [CHANGED]
    assert link.messages == []


async def test_from_many_threads_at_once() -> None:
    serving = Serving()
    await names(serving)

    def work(number: int) -> None:
        for each in range(20):
            serving.server.add(tool(name=f"t{number}_{each}")(three))
            if each % 2:
                serving.server.remove(f"t{number}_{each}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(await names(serving)) == sorted(
        f"t{number}_{each}" for number in range(4) for each in range(0, 20, 2)
    )
    assert len(serving.link.messages) == 4 * 30


async def test_a_link_that_waits_for_another_thread_holds_nobody_up() -> None:
    server = ToolServer("s", [one])

    class Slow(Post):
        def post(self, message: Any) -> None:
            super().post(message)
            if len(self.messages) == 1:
                thread = threading.Thread(target=server.add, args=(three,))
                thread.start()
                thread.join(10)
                assert not thread.is_alive()

    serving = Serving(server=server, link=Slow())
    await names(serving)
    server.add(two)
    assert await names(serving) == ["one", "two", "three"]


# What is refused.


@pytest.mark.parametrize("name", ["", "a b", "ä", "x" * 65, 5, None])
def test_names_that_no_server_can_have(name: Any) -> None:
    with pytest.raises(OptionsError, match="cannot be the name of a server"):
        ToolServer(name)


def test_two_tools_of_one_name() -> None:
    with pytest.raises(OptionsError, match="two tools named 'one'"):
        ToolServer("s", [one, one])
    server = ToolServer("s", [one])
    with pytest.raises(OptionsError, match="two tools named 'one'"):
        server.add(three, one)
    # None of them, if not all.
    assert [each.name for each in server.tools] == ["one"]


def test_names_that_are_too_long_together() -> None:
    long = tool(name="t" * 64)(three)
    assert ToolServer("s" * 57, [long]).tools
    with pytest.raises(OptionsError, match="129 characters, and models take 128"):
        ToolServer("s" * 58, [long])


def test_a_tool_that_is_not_there_cannot_be_removed() -> None:
    server = ToolServer("s", [one])
    with pytest.raises(OptionsError, match="has no tool 'two'"):
        server.remove("one", "two")
    assert [each.name for each in server.tools] == ["one"]


@pytest.mark.parametrize("thing", [5, "one", None, int])
def test_what_is_no_tool(thing: Any) -> None:
    server = ToolServer("s", [one])
    with pytest.raises(OptionsError):
        server.add(thing)
    assert [each.name for each in server.tools] == ["one"]
