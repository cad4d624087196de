"""Turns of which nothing is kept: they may go on for days."""

from __future__ import annotations

import anyio
import pytest

from outrider.session import Session
from outrider.testing import Simulator, say
from outrider.wire import AssistantMessage, ResultMessage

pytestmark = pytest.mark.anyio


async def test_nothing_is_kept_but_the_last_result() -> None:
    async with Session(transport=Simulator([say("one"), say("two")])) as session:
        with anyio.fail_after(20):
            turn = await session.send(iter(["a", "b"]), keep=False)
            result = await turn.result()
        assert result.text == "two"
        assert result.messages == turn.messages == ()
        assert [message async for message in turn] == []


async def test_it_can_be_read_as_it_comes() -> None:
    async with Session(transport=Simulator([say("one")])) as session:
        reader = aiter(session)
        turn = await session.send("a", keep=False)
        with anyio.fail_after(20):
            types = {type(message) async for message in turn}
            assert ResultMessage in types
            async for message in reader:
                if isinstance(message, AssistantMessage):
                    break


async def test_it_does_not_count_as_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outrider.session._connection.conversation.BUDGET", 100)
    async with Session(transport=Simulator([say("x" * 100_000)])) as session:
        turn = await session.send("a", keep=False)
        with anyio.fail_after(20):
            await turn.result()
        connection = session._conversation.connection
        assert connection is not None
        assert connection.flow.unread == 0
