"""Servers of the `mcp` library in this process, with the real program."""

from __future__ import annotations

import base64
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from outrider.handlers import ToolHandled
from outrider.options import SdkServer
from outrider.testing import Request, say, use_tool
from tests.handlers.mcp_servers import (
    PNG,
    TURN,
    Context,
    Stopwatch,
    counting_lifespan,
    high_level,
    low_level,
    typed,
)
from tests.session.real.talking import opened, real_agent, talking

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.requirement("A11"),
    pytest.mark.filterwarnings("ignore:Field 'lifespan' has an incomplete definition"),
]

EXTERNAL = {
    "command": sys.executable,
    "args": [str(Path(__file__).parents[2] / "session" / "real" / "server.py")],
}


def results(requests: list[Request]) -> list[Any]:
    """What the model was told of each tool call."""
    return [result for request in requests for result in request.tool_results]


@pytest.mark.smoke
async def test_tools_resources_and_their_errors_reach_the_model() -> None:
    script = (
        use_tool("mcp__demo__add", a=20, b=22),
        use_tool("mcp__demo__picture"),
        use_tool("mcp__demo__fail"),
        use_tool("mcp__low__double", x=21),
        use_tool("ListMcpResourcesTool"),
        use_tool("ReadMcpResourceTool", server="demo", uri="x://note"),
        say("done"),
    )
    servers = {"demo": high_level(), "low": low_level()}
    async with talking(*script, mcp_servers=servers) as (agent, session):
        TURN.set("this turn")
        assert (await session.ask("go")).text == "done"
        added, picture, failed, doubled, listed, read = results(agent.api.main_requests)
        connected = {server.name: server.status for server in await session.mcp_status()}
    assert "42" in str(added["content"])
    # The program adds a word about the picture.
    assert [block["type"] for block in picture["content"]][:2] == ["image", "text"]
    assert picture["content"][0]["source"]["data"] == base64.b64encode(PNG).decode()
    assert failed["is_error"] is True
    assert "Error executing tool fail" in str(failed["content"])
    assert "42 this turn" in str(doubled["content"])
    assert "x://note" in str(listed["content"])
    assert "a note for this turn" in str(read["content"])
    assert connected == {"demo": "connected", "low": "connected"}


async def test_each_call_is_an_event_with_its_tool_use() -> None:
    async with talking(
        use_tool("mcp__demo__add", a=1, b=2), say("done"), mcp_servers={"demo": high_level()}
    ) as (agent, session):
        following = session.handled()
        await session.ask("go")
        event = await anext(aiter(following))
        assert isinstance(event, ToolHandled)
        assert (event.server, event.name, event.arguments) == ("demo", "add", {"a": 1, "b": 2})
        assert (event.outcome, event.is_error) == ("answered", False)
        assert event.tool_use_id == results(agent.api.main_requests)[0]["tool_use_id"]


async def test_a_server_may_report_ask_the_agent_and_get_new_tools_during_a_call() -> None:
    server = high_level()

    @typed(server.tool())
    async def grow(ctx: Context) -> str:
        @typed(server.tool())
        async def late() -> str:
            return "here I am"

        await ctx.report_progress(1, 2, "growing")
        await ctx.request_context.session.send_tool_list_changed()
        # Answered after the agent has read what came before.
        await ctx.request_context.session.send_ping()
        return "grown"

    script = (use_tool("mcp__demo__grow"), use_tool("mcp__demo__late"), say("done"))
    async with talking(*script, mcp_servers={"demo": server}) as (agent, session):
        assert (await session.ask("go")).text == "done"
        grown, late = results(agent.api.main_requests)
        [status] = await session.mcp_status()
    assert "grown" in str(grown["content"])
    assert "here I am" in str(late["content"])
    assert "late" in [tool.name for tool in status.tools or ()]


async def test_a_question_of_a_tool_reaches_the_users_callback() -> None:
    asked: list[tuple[str, str, str]] = []

    async def on_elicitation(request: Any) -> dict[str, str]:
        asked.append((request.server, request.message, TURN.get()))
        return {"name": "Ann"}

    async with talking(
        use_tool("mcp__demo__ask"),
        say("done"),
        mcp_servers={"demo": high_level()},
        on_elicitation=on_elicitation,
    ) as (agent, session):
        TURN.set("the asking turn")
        assert (await session.ask("go")).text == "done"
        [answer] = results(agent.api.main_requests)
    assert asked == [("demo", "Who are you?", "the asking turn")]
    assert "accept Ann the asking turn" in str(answer["content"])


async def test_a_question_that_nobody_answers_is_declined() -> None:
    async with talking(use_tool("mcp__demo__ask"), say("done"), mcp_servers={"demo": high_level()}) as (
        agent,
        session,
    ):
        await session.ask("go")
        [answer] = results(agent.api.main_requests)
    assert "decline None" in str(answer["content"])


async def test_one_object_serves_two_sessions_at_once() -> None:
    events: list[str] = []
    server = high_level(lifespan=counting_lifespan(events))
    script = (use_tool("mcp__demo__resources"), use_tool("mcp__demo__turn"), say("done"))
    told: dict[str, str] = {}
    async with (
        talking(*script, mcp_servers={"demo": server}) as (first_agent, first),
        talking(*script, mcp_servers={"demo": server}) as (second_agent, second),
    ):

        async def ask(name: str, agent: Any, session: Any) -> None:
            TURN.set(name)
            await session.ask("go")
            told[name] = str([result["content"] for result in results(agent.api.main_requests)])

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, "first", first_agent, first)
            tasks.start_soon(ask, "second", second_agent, second)
        assert events == ["in", "in"]
    assert events == ["in", "in", "out", "out"]
    assert "first" in told["first"]
    assert "second" in told["second"]
    assert {"database 1" in told["first"], "database 1" in told["second"]} == {True, False}


async def test_an_interrupt_cancels_the_tool() -> None:
    watch = Stopwatch()
    async with talking(
        use_tool("mcp__demo__hold", name="long"), say("never"), mcp_servers={"demo": high_level(watch)}
    ) as (_, session):
        following = session.handled()
        turn = await session.send("go")
        await watch.until(lambda: watch.began == ["long"])
        await turn.cancel()
        await watch.until(lambda: watch.cancelled == ["long"])
        event = await anext(aiter(following))
        assert isinstance(event, ToolHandled)
        assert (event.outcome, event.is_error) == ("cancelled", True)


async def test_a_server_that_fails_leaves_the_session_alone(caplog: pytest.LogCaptureFixture) -> None:
    server = high_level(lifespan=counting_lifespan([], fails=True))
    with real_agent(use_tool("mcp__demo__add", a=1, b=2), say("without it")) as agent:
        async with opened(agent, mcp_servers={"demo": server}) as session:
            assert (await session.ask("go")).text == "without it"
            [status] = await session.mcp_status()
            # Why, the agent keeps to itself.
            assert (status.status, status.error) == ("failed", None)
    assert "no database" in caplog.text


@pytest.mark.parametrize("always", [None, True])
async def test_tools_can_be_in_the_first_request_to_the_model(always: bool | None) -> None:
    server = SdkServer(name="demo", instance=high_level(), always_load=always)
    async with talking(say("done"), mcp_servers={"demo": server}) as (agent, session):
        await session.ask("go")
        offered = {tool["name"] for tool in agent.api.main_requests[0].body["tools"]}
    assert ("mcp__demo__add" in offered) is bool(always)


async def test_a_server_stays_when_others_come_and_go() -> None:
    watch = Stopwatch()
    script = (use_tool("mcp__demo__hold", name="long"), use_tool("mcp__demo__add", a=1, b=2), say("done"))
    async with talking(*script, mcp_servers={"demo": high_level(watch)}) as (agent, session):
        assert (await session.mcp_set_servers({"other": EXTERNAL})).removed == []
        assert (await session.mcp_set_servers({})).removed == ["other"]
        # The agent connects to it in its own time; until then it is not even listed.
        statuses: list[str] = []
        while statuses in ([], ["pending"]):
            statuses = [server.status for server in await session.mcp_status()]
        assert statuses == ["connected"]
        turn = await session.send("go")
        await watch.until(lambda: watch.began == ["long"])
        assert watch.cancelled == []
        await turn.cancel()
        assert (await session.ask("again")).text == "done"
        assert "3" in str(results(agent.api.main_requests)[-1]["content"])
