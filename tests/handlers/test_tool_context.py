"""What a tool is told of its call, and what it can say of how far it has come."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import pytest
from anyio import to_thread

from outrider.handlers import ToolContext, tool
from tests.cases import every_case
from tests.handlers.tooling import Asker, Post, Serving

pytestmark = pytest.mark.anyio


def progress(**params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 5, **params}}


async def test_it_knows_who_asks_and_for_what() -> None:
    seen: list[ToolContext] = []

    @tool
    async def look(ctx: ToolContext) -> None:
        seen.append(ctx)

    await Serving(look).call("look")
    (context,) = seen
    assert context.session is Asker.session
    assert context.turn is Asker.turn
    assert (context.tool_name, context.server_name, context.tool_use_id) == ("look", "s", "toolu_look")
    assert context.is_cancelled is False


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_progress_is_told_while_the_tool_runs(kind: str) -> None:
    def work(ctx: ToolContext) -> None:
        ctx.progress(1)
        ctx.progress(2, 4)
        ctx.progress(2.5, total=4.0, message="half")

    async def work_async(ctx: ToolContext) -> None:
        work(ctx)

    serving = Serving(tool(name="work")(work if kind == "thread" else work_async))
    await serving.call("work")
    assert serving.link.messages == [
        progress(progress=1),
        progress(progress=2, total=4),
        progress(progress=2.5, total=4.0, message="half"),
    ]


@every_case("meta", [None, {}, {"progressToken": None}, {"progressToken": [1]}, "x"])
async def test_progress_that_nobody_asked_for_is_not_told(meta: Any) -> None:
    @tool
    async def work(ctx: ToolContext) -> None:
        ctx.progress(1)

    serving = Serving(work)
    await serving.ask("tools/call", {"name": "work", "_meta": meta})
    assert serving.link.messages == []
    assert serving.reports[0].outcome == "answered"


async def test_nothing_is_told_once_the_call_is_over() -> None:
    kept: list[ToolContext] = []

    @tool
    async def work(ctx: ToolContext) -> None:
        kept.append(ctx)

    serving = Serving(work)
    await serving.call("work")
    kept[0].progress(1)
    assert serving.link.messages == []


async def test_nothing_is_told_once_the_call_was_taken_back() -> None:
    began, go_on, done = threading.Event(), threading.Event(), threading.Event()

    @tool
    def work(ctx: ToolContext) -> None:
        began.set()
        go_on.wait(10)
        ctx.progress(1)
        done.set()

    serving = Serving(work)
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: serving.call("work", id=1))
        await to_thread.run_sync(began.wait, 10)
        await serving.take_back(1)
    go_on.set()
    assert await to_thread.run_sync(done.wait, 10)
    assert serving.link.messages == []


async def test_one_made_by_hand_serves_for_tests_of_tools() -> None:
    context = ToolContext(Asker(), "toolu_1", tool_name="t", server_name="s")
    context.progress(1)
    assert context.tool_use_id == "toolu_1"
    link = Post()
    ToolContext(Asker(), link=link, progress_token="x").progress(1)
    assert [message["params"] for message in link.messages] == [{"progressToken": "x", "progress": 1}]
