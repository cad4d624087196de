"""Servers of this process that come and go while a session runs."""

from __future__ import annotations

import pytest

import outrider
from outrider.errors import OptionsError
from outrider.session import Session
from outrider.testing import say, use_tool
from tests.session.real.talking import talking

pytestmark = pytest.mark.anyio


def server(name: str) -> outrider.ToolServer:
    @outrider.tool
    def who() -> str:
        """Say which server this is."""
        return name

    return outrider.ToolServer(name, [who])


@outrider.tool
def mine() -> str:
    """Say that it is still there."""
    return "mine"


async def names(session: Session) -> set[str]:
    return {status.name for status in await session.mcp_status()}


async def test_servers_come_and_go_and_those_of_the_start_stay() -> None:
    tools = ["mcp__tools__mine", "mcp__first__who", "mcp__second__who", "mcp__third__who"]
    script = [step for name in tools for step in (use_tool(name), say("done"))]
    async with talking(*script, mcp_servers={"first": server("first")}, tools=[mine]) as (agent, session):

        async def use(expected: str) -> None:
            await session.ask("go")
            (result,) = agent.api.main_requests[-1].tool_results
            assert expected in str(result["content"])

        await use("mine")
        done = await session.mcp_set_servers({"second": server("second")})
        assert done.added == ["second"]
        assert await names(session) == {"tools", "first", "second"}
        await use("first")
        await use("second")
        done = await session.mcp_set_servers({"third": server("third")})
        assert (done.added, done.removed) == (["third"], ["second"])
        assert await names(session) == {"tools", "first", "third"}
        await use("third")
        await session.mcp_set_servers({})
        assert await names(session) == {"tools", "first"}


async def test_what_cannot_be_added_changes_nothing() -> None:
    async with talking(use_tool("mcp__second__who"), say("done"), tools=[mine]) as (agent, session):
        await session.mcp_set_servers({"second": server("second")})
        with pytest.raises(OptionsError, match="'tools'"):
            await session.mcp_set_servers({"tools": server("tools")})
        with pytest.raises(OptionsError, match="is not a server"):
            await session.mcp_set_servers({"third": object()})
        # Before the first turn, those of the start may not be listed yet.
        await session.ask("go")
        assert "second" in str(agent.api.main_requests[-1].tool_results)
        assert await names(session) == {"tools", "second"}
