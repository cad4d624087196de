"""The servers of this process in a session: they come and go, and the agent is told of them."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from outrider.errors import OptionsError, RequestFailed
from outrider.handlers import AgentLink, Endpoint, Observe
from outrider.protocol import RequestAnswered
from outrider.session import Session
from outrider.wire import JsonObject
from tests.session.other_end import OtherEnd, playing, result
from tests.session.test_raising import MESSAGE, OddServer, reply_to

pytestmark = pytest.mark.anyio


class Unopened(OddServer):
    def open(self, link: AgentLink, observe: Observe) -> Endpoint:
        raise RuntimeError("it does not open")


async def test_servers_that_cannot_be_served_change_nothing() -> None:
    """Not even the one whose place they were to take."""
    kept = OddServer(None, None)
    nonsense: Any = {"type": "sdk", "name": "odd", "instance": object()}

    async def play(agent: OtherEnd) -> None:
        await agent.answer(await agent.asked("mcp_set_servers"))
        prompt = await agent.prompt()
        assert isinstance(await reply_to(agent, "mcp_message", **MESSAGE), RequestAnswered)
        assert not kept.has_ended.is_set()
        await agent.say(result(str(prompt.uuid)))
        await agent.wait_ended()

    async with playing(play) as session:
        await session.mcp_set_servers({"odd": kept})
        with pytest.raises(OptionsError, match="odd"):
            await session.mcp_set_servers({"new": OddServer(None, None), "odd": nonsense})
        with pytest.raises(RuntimeError, match="does not open"):
            await session.mcp_set_servers({"new": Unopened(None, None), "odd": OddServer(None, None)})
        assert [*session._conversation.handlers.servers.given] == ["odd"]
        assert (await session.ask("go")).text == "done"


async def test_of_servers_that_the_agent_refuses_the_old_ones_are_served_again() -> None:
    async def play(agent: OtherEnd) -> None:
        await agent.answer(await agent.asked("mcp_set_servers"))
        await agent.refuse(await agent.asked("mcp_set_servers"), "no")
        prompt = await agent.prompt()
        assert isinstance(await reply_to(agent, "mcp_message", **MESSAGE), RequestAnswered)
        await agent.say(result(str(prompt.uuid)))
        await agent.wait_ended()

    old, new = OddServer(None, None), OddServer(None, None)
    async with playing(play) as session:
        await session.mcp_set_servers({"odd": old})
        with pytest.raises(Exception, match="no"):
            await session.mcp_set_servers({"odd": new, "other": OddServer(None, None)})
        given = session._conversation.handlers.servers.given
        assert {name: server.instance for name, server in given.items()} == {"odd": old}
        await new.has_ended.wait()
        assert (await session.ask("go")).text == "done"


async def test_changes_that_are_made_at_once_are_made_one_after_the_other() -> None:
    """A first one that fails must not undo the second."""
    first_asked = anyio.Event()

    async def play(agent: OtherEnd) -> None:
        refused = await agent.asked("mcp_set_servers")
        first_asked.set()
        await agent.refuse(refused, "no")
        await agent.answer(await agent.asked("mcp_set_servers"))
        await agent.wait_ended()

    async def fail(session: Session) -> None:
        with pytest.raises(RequestFailed):
            await session.mcp_set_servers({"first": OddServer(None, None)})

    async with playing(play) as session:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fail, session)
            await first_asked.wait()
            await session.mcp_set_servers({"second": OddServer(None, None)})
        assert [*session._conversation.handlers.servers.given] == ["second"]


async def test_servers_of_the_start_stay_when_others_are_set() -> None:
    """The agent drops what a request does not name."""
    told: list[JsonObject] = []

    async def play(agent: OtherEnd) -> None:
        asked = await agent.asked("mcp_set_servers")
        told.append(asked.request.to_wire()["servers"])
        await agent.answer(asked)
        await agent.wait_ended()

    web = {"type": "http", "url": "http://h"}
    async with playing(play, mcp_servers={"mine": OddServer(None, None)}) as session:
        await session.mcp_set_servers({"other": web, "new": OddServer(None, None)})
    own = {name: {"type": "sdk", "name": name} for name in ("mine", "new")}
    assert told == [{**own, "other": web}]


@pytest.mark.parametrize(
    "server", [{"type": "http", "url": "http://h"}, OddServer(None, None)], ids=["http", "own"]
)
async def test_the_name_of_a_server_of_the_start_is_taken(server: Any) -> None:
    async def play(agent: OtherEnd) -> None:
        # Nothing is asked.
        await agent.reply()
        await agent.wait_ended()

    mine = OddServer(None, None)
    async with playing(play, mcp_servers={"mine": mine}) as session:
        with pytest.raises(OptionsError, match=r"'mine'.*of this process|'mine'.*in this process"):
            await session.mcp_set_servers({"new": OddServer(None, None), "mine": server})
        given = session._conversation.handlers.servers.given
        assert {name: server.instance for name, server in given.items()} == {"mine": mine}
        assert (await session.ask("go")).text == "done"
