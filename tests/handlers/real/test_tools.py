"""Tools of this process with the real program: what the model sees of them, and what becomes of each call."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from typing import Annotated, Any, Literal

import anyio
import pytest
from anyio import to_thread

from outrider.errors import ToolFailed, TurnInterrupted
from outrider.handlers import (
    Audio,
    Image,
    Resource,
    ResourceLink,
    ToolContext,
    ToolHandled,
    ToolResult,
    ToolServer,
    tool,
)
from outrider.testing import RealAgent, answer, say, use_tool
from outrider.wire import JsonObject
from outrider.wire.tools import ToolSearchOutput
from tests.session.real.talking import talking

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("A11")]

# A picture of one dot that models accept.
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6364f8cf500f0003"
    "860180 5a347d6b0000000049454e44ae426082".replace(" ", "")
)
WAV = b"RIFF\x24\x00\x00\x00WAVEfmt " + bytes(30)


@dataclasses.dataclass
class Point:
    """A place."""

    x: Annotated[int, "To the right"]
    y: int = 0


def results(agent: RealAgent) -> list[JsonObject]:
    """What the model was told of each call."""
    return [result for request in agent.api.main_requests for result in request.tool_results]


def texts(result: JsonObject) -> str:
    content = result["content"]
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)


def definitions(agent: RealAgent) -> dict[str, JsonObject]:
    """The tools of this process that the model knew at its last call."""
    tools = agent.api.main_requests[-1].body["tools"]
    return {each["name"]: each for each in tools if each["name"].startswith("mcp__")}


# What the model sees.


@pytest.mark.smoke
async def test_the_model_knows_the_tools_from_the_first_request_on() -> None:
    def search(
        query: Annotated[str, "What to look for"],
        near: Point | None = None,
        *,
        order: Literal["up", "down"] = "up",
    ) -> str:
        """Look for something.

        Args:
            order: Which way.
        """
        return f"{query} {near} {order}"

    script = (use_tool("mcp__tools__search", query="tea", near={"x": 1}), say("done"))
    async with talking(*script, tools=[search]) as (agent, session):
        assert (await session.ask("go")).text == "done"
        first = agent.api.main_requests[0].body["tools"]
        (known,) = [each for each in first if each["name"] == "mcp__tools__search"]
        (result,) = results(agent)
    assert known["description"] == "Look for something."
    assert known["input_schema"] == {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "What to look for"},
            "near": {"anyOf": [{"$ref": "#/$defs/Point"}, {"type": "null"}], "default": None},
            "order": {"enum": ["down", "up"], "description": "Which way.", "default": "up"},
        },
        "required": ["query"],
        "additionalProperties": False,
        "$defs": {
            "Point": {
                "title": "Point",
                "description": "A place.",
                "type": "object",
                "properties": {
                    "x": {"type": "integer", "description": "To the right"},
                    "y": {"type": "integer", "default": 0},
                },
                "required": ["x"],
            }
        },
    }
    assert texts(result) == "tea Point(x=1, y=0) up"


async def test_tools_that_the_model_has_to_search_for_can_be_called_all_the_same() -> None:
    @tool
    def rare() -> str:
        return "found"

    server = ToolServer("s", [rare], always_load=False)
    async with talking(use_tool("mcp__s__rare"), say("done"), mcp_servers={"s": server}) as (agent, session):
        await session.ask("go")
        first = agent.api.main_requests[0].body["tools"]
        (result,) = results(agent)
    assert "mcp__s__rare" not in [each["name"] for each in first]
    assert texts(result) == "found"


async def test_a_search_finds_a_tool_by_its_hint() -> None:
    @tool(search_hint="giraffe zoo", always_load=False)
    def lookup() -> str:
        return "found"

    searches = [use_tool("ToolSearch", query=word) for word in ("giraffe", "zebra")]
    async with talking(*searches, say("done"), tools=[lookup]) as (_, session):
        runs = (await session.ask("go")).tool_calls
    matches = [run.output.matches for run in runs if isinstance(run.output, ToolSearchOutput)]
    assert matches == [["mcp__tools__lookup"], []]


async def test_instructions_reach_the_model() -> None:
    server = ToolServer("s", [tool(name="t")(lambda: "x")], instructions="Use t with care.")
    async with talking(say("done"), mcp_servers={"s": server}) as (agent, session):
        await session.ask("go")
        assert "Use t with care." in str(agent.api.main_requests[0].body)


# What the model gets.

KINDS: list[tuple[Callable[[], object], object]] = [
    (lambda: "plain", [{"type": "text", "text": "plain"}]),
    (lambda: None, "(mcp__s__t1 completed with no output)"),
    (lambda: 5, [{"type": "text", "text": "5"}]),
    (lambda: {"a": [1, "ü"]}, '{"a":[1,"ü"]}'),
    (lambda: Point(1), '{"x":1,"y":0}'),
    (lambda: ["a", 2], [{"type": "text", "text": '["a",2]'}]),
    (lambda: Resource("db:7", "a row", "text/plain"),
     [{"type": "text", "text": "[Resource from s at db:7] a row"}]),
    (lambda: ResourceLink("db://a/b"), [{"type": "text", "text": "[Resource link: b] db://a/b"}]),
    # What the model sees of structured data is that, and not the texts.
    (lambda: ToolResult("for nobody", structured={"a": 1}), '{"a":1}'),
    (lambda: ToolResult("seen", meta={"a": 1}), [{"type": "text", "text": "seen"}]),
]  # fmt: skip


async def test_results_of_each_kind_reach_the_model() -> None:
    server = ToolServer("s", [tool(name=f"t{index}")(give) for index, (give, _) in enumerate(KINDS)])
    script = [use_tool(f"mcp__s__t{index}") for index in range(len(KINDS))]
    async with talking(*script, say("done"), mcp_servers={"s": server}) as (agent, session):
        await session.ask("go")
        got = results(agent)
    assert [result["content"] for result in got] == [expected for _, expected in KINDS]
    assert not [result for result in got if result.get("is_error")]


async def test_pictures_sounds_and_other_bytes_reach_the_model() -> None:
    server = ToolServer(
        "s",
        [
            tool(name="picture")(lambda: ["see", Image(PNG), {"a": 1}]),
            tool(name="sound")(lambda: Audio(WAV)),
            tool(name="bytes")(lambda: b"\0\1\2"),
            tool(name="both")(lambda: ToolResult([PNG, "for nobody"], structured={"a": 1})),
        ],
    )
    script = [use_tool(f"mcp__s__{name}") for name in ("picture", "sound", "bytes", "both")]
    async with talking(*script, say("done"), mcp_servers={"s": server}) as (agent, session):
        await session.ask("go")
        picture, sound, other, both = results(agent)
    image = {"type": "base64", "media_type": "image/png"}
    # The program adds where it keeps the file.
    assert [part["type"] for part in picture["content"]] == ["text", "image", "text", "text"]
    assert picture["content"][1]["source"].items() >= image.items()
    assert picture["content"][3]["text"] == '{"a":1}'
    assert "audio/wav, 46 bytes" in texts(sound)
    assert "application/octet-stream, 3 bytes" in texts(other)
    assert both["content"][0]["source"].items() >= image.items()
    assert '{"a":1}' in texts(both)
    assert "for nobody" not in texts(both)


async def test_structured_data_and_meta_are_in_the_message() -> None:
    server = ToolServer("s", [tool(name="t")(lambda: ToolResult({"a": 1}, meta={"k": "v"}))])
    async with talking(use_tool("mcp__s__t"), say("done"), mcp_servers={"s": server}) as (_, session):
        result = await session.ask("go")
    (told,) = [got for message in result.messages if (got := getattr(message, "tool_use_result", None))]
    assert told["structuredContent"] == {"a": 1}
    assert told["_meta"] == {"k": "v"}


async def test_failures_of_each_kind_reach_the_model() -> None:
    @tool
    def chosen() -> None:
        raise ToolFailed("Try it with tea.")

    @tool
    async def raised() -> None:
        raise ValueError("bad thing")

    @tool
    async def typed(number: int) -> None:
        raise AssertionError("never called")

    @tool(timeout=0.05)
    async def endless() -> None:
        await anyio.sleep_forever()

    @tool
    def odd() -> object:
        return object()

    @tool
    def answered() -> object:
        return ToolResult("no luck", is_error=True)

    script = (
        use_tool("mcp__tools__chosen"),
        use_tool("mcp__tools__raised"),
        use_tool("mcp__tools__typed", number="five", numbr=5),
        use_tool("mcp__tools__endless"),
        use_tool("mcp__tools__odd"),
        use_tool("mcp__tools__answered"),
        say("done"),
    )
    tools = [chosen, raised, typed, endless, odd, answered]
    async with talking(*script, tools=tools) as (agent, session):
        assert (await session.ask("go")).text == "done"
        got = results(agent)
    assert all(result["is_error"] for result in got)
    said = [texts(result) for result in got]
    assert said[0] == "Try it with tea."
    assert said[1] == "ValueError: bad thing"
    assert said[2].splitlines()[:2] == [
        "`typed` was not called, because its arguments do not fit:",
        '- `number`: expected a whole number, got "five"',
    ]
    assert said[3] == "`endless` did not finish within 0.05 s and was stopped."
    assert "`object` cannot be sent" in said[4]
    assert said[5] == "no luck"


# Large ones.


async def test_large_results_stay_whole_if_the_tool_says_so() -> None:
    large = "\n".join(f"line {number} {'x' * 50}" for number in range(4000))

    @tool
    def short() -> str:
        return large

    @tool(max_result_chars=500_000)
    def long() -> str:
        return large

    script = (use_tool("mcp__tools__short"), use_tool("mcp__tools__long"), say("done"))
    async with talking(*script, tools=[short, long]) as (agent, session):
        await session.ask("go")
        cut, whole = results(agent)
    assert len(texts(cut)) < 10_000
    assert texts(whole) == large


async def test_three_megabytes_of_arguments() -> None:
    text = "0123456789" * 300_000
    seen: list[int] = []

    @tool
    async def measure(text: str) -> str:
        seen.append(len(text))
        return "measured"

    async with talking(use_tool("mcp__tools__measure", text=text), say("done"), tools=[measure]) as (
        _,
        session,
    ):
        await session.ask("go")
    assert seen == [3_000_000]


# Several at once.


def several(name: str, count: int) -> Any:
    return answer(*(use_tool(name, number=number) for number in range(count)))


async def test_tools_that_only_read_run_side_by_side() -> None:
    barrier = threading.Barrier(3)

    @tool(read_only=True)
    def look(number: int) -> str:
        barrier.wait(20)
        return f"saw {number}"

    async with talking(several("mcp__tools__look", 3), say("done"), tools=[look]) as (agent, session):
        await session.ask("go")
        assert sorted(texts(result) for result in results(agent)) == ["saw 0", "saw 1", "saw 2"]


@pytest.mark.parametrize("how", [{}, {"read_only": False}, {"read_only": True, "concurrency": 1}])
async def test_others_run_one_by_one(how: dict[str, Any]) -> None:
    running: list[int] = []
    most: list[int] = []

    @tool(**how)
    async def change(number: int) -> str:
        running.append(number)
        most.append(len(running))
        await anyio.sleep(0.01)
        running.remove(number)
        return f"changed {number}"

    async with talking(several("mcp__tools__change", 3), say("done"), tools=[change]) as (agent, session):
        await session.ask("go")
        assert [texts(result) for result in results(agent)] == ["changed 0", "changed 1", "changed 2"]
    assert most == [1, 1, 1]


# While they run.


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_an_interrupt_cancels_what_runs() -> None:
    began, cancelled = anyio.Event(), anyio.Event()

    @tool
    async def wait() -> None:
        began.set()
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()

    async with talking(use_tool("mcp__tools__wait"), say("next"), tools=[wait]) as (_, session):
        turn = await session.send("go")
        await began.wait()
        receipt = await turn.cancel()
        assert str(receipt) == "cancelled"
        await cancelled.wait()
        with pytest.raises(TurnInterrupted):
            await turn.result()
        assert (await session.ask("go on")).text == "next"


async def test_an_interrupt_is_told_to_a_thread() -> None:
    began, stopped = threading.Event(), threading.Event()

    @tool
    def work(ctx: ToolContext) -> None:
        began.set()
        while not ctx.is_cancelled:
            stopped.wait(0.01)
        stopped.set()

    async with talking(use_tool("mcp__tools__work"), say("next"), tools=[work]) as (_, session):
        turn = await session.send("go")
        await to_thread.run_sync(began.wait, 20)
        await turn.cancel()
        assert await to_thread.run_sync(stopped.wait, 20)
        assert (await session.ask("go on")).text == "next"


async def test_closing_a_session_cancels_what_runs() -> None:
    began, cancelled = anyio.Event(), anyio.Event()

    @tool
    async def wait() -> None:
        began.set()
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()

    async with talking(use_tool("mcp__tools__wait"), otherwise=say("never"), tools=[wait]) as (_, session):
        await session.send("go")
        await began.wait()
    await cancelled.wait()


async def test_progress_is_taken_by_the_agent() -> None:
    contexts: list[ToolContext] = []

    @tool
    async def steps(ctx: ToolContext) -> str:
        contexts.append(ctx)
        for step in range(3):
            ctx.progress(step + 1, 3, f"step {step}")
        return "done"

    @tool
    def from_a_thread(ctx: ToolContext) -> str:
        ctx.progress(1)
        return ctx.tool_name

    script = (use_tool("mcp__tools__steps"), use_tool("mcp__tools__from_a_thread"), say("done"))
    async with talking(*script, tools=[steps, from_a_thread]) as (agent, session):
        turn = await session.send("go")
        assert (await turn.result()).text == "done"
        (context,) = contexts
        assert context.session is session
        assert context.turn is not None
        assert (context.tool_name, context.server_name) == ("steps", "tools")
        assert context.tool_use_id is not None
        # Too late, and no harm.
        context.progress(4)
        assert [texts(result) for result in results(agent)] == ["done", "from_a_thread"]


async def test_each_call_can_be_followed() -> None:
    @tool
    def add(a: int, b: int) -> int:
        return a + b

    script = (use_tool("mcp__tools__add", a=1, b=2), use_tool("mcp__tools__add", a="x"), say("done"))
    async with talking(*script, tools=[add]) as (_, session):
        followed = session.handled()
        await session.ask("go")
        events = [await anext(followed) for _ in range(2)]
    calls = [event for event in events if isinstance(event, ToolHandled)]
    assert [(call.name, call.outcome) for call in calls] == [("add", "answered"), ("add", "failed")]


async def test_tools_come_and_go_while_the_session_runs() -> None:
    server = ToolServer("s", [tool(name="old")(lambda: "old")])
    script = (say("one"), use_tool("mcp__s__new"), say("two"), use_tool("mcp__s__old"), say("three"))
    async with talking(*script, mcp_servers={"s": server}) as (agent, session):
        await session.ask("a")
        assert set(definitions(agent)) == {"mcp__s__old"}
        await to_thread.run_sync(server.add, tool(name="new")(lambda: "new"))
        await listed(session, "s", {"old", "new"})
        await session.ask("b")
        assert set(definitions(agent)) == {"mcp__s__old", "mcp__s__new"}
        server.remove("old")
        await listed(session, "s", {"new"})
        await session.ask("c")
        # The program goes on to show the model what it has shown before, and refuses the call.
        assert "mcp__s__new" in definitions(agent)
        new, old = results(agent)
    assert texts(new) == "new"
    assert old["is_error"] is True
    assert "No such tool available" in texts(old)


async def listed(session: Any, server: str, names: set[str]) -> None:
    """Wait until the agent has asked again which tools there are."""
    while True:
        for status in await session.mcp_status():
            if status.name == server and {each.name for each in status.tools or ()} == names:
                return


async def test_one_server_may_be_used_by_many_sessions() -> None:
    meeting = threading.Barrier(2)

    @tool
    def meet(who: str) -> str:
        meeting.wait(20)
        return who

    server = ToolServer("s", [meet])

    async def run(who: str) -> None:
        async with talking(use_tool("mcp__s__meet", who=who), say("done"), mcp_servers={"s": server}) as (
            agent,
            session,
        ):
            await session.ask("go")
            (result,) = results(agent)
            assert texts(result) == who

    async with anyio.create_task_group() as group:
        group.start_soon(run, "one")
        group.start_soon(run, "two")
