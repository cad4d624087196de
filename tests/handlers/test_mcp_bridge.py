"""A server of the `mcp` library serves sessions in full, whichever version it is."""

from __future__ import annotations

import base64
import gc
import logging
import subprocess
import sys
import weakref
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.errors import OptionsError
from outrider.handlers import _mcp as bridge
from outrider.handlers._mcp import as_bridge, low_server
from outrider.wire import JsonObject
from outrider.wire.control import INTERNAL_ERROR, INVALID_REQUEST, Elicitation
from tests.cases import every_case
from tests.handlers.mcp_servers import (
    IS_FIRST,
    PNG,
    TOOLS,
    TURN,
    Agent,
    AnsweringLink,
    HighLevelServer,
    LowLevelServer,
    RecordingLink,
    Stopwatch,
    Who,
    counting_lifespan,
    high_level,
    low_level,
    serving,
    typed,
)

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.requirement("A11"),
    # Of early versions of mcp 1, with later ones of what they need.
    pytest.mark.filterwarnings("ignore:Field 'lifespan' has an incomplete definition"),
]


# What counts as a server.


@pytest.mark.parametrize("make", [high_level, low_level])
def test_servers_of_the_library_are_known(make: Any) -> None:
    assert low_server(make()) is not None


class Obliging:
    """Has whatever it is asked for."""

    def __getattr__(self, name: str) -> object:
        return low_level()


@pytest.mark.parametrize("other", [None, object(), HighLevelServer, LowLevelServer, Obliging(), "npx server"])
def test_nothing_else_counts_as_a_server(other: object) -> None:
    assert low_server(other) is None
    with pytest.raises(OptionsError, match=r"'mine'.*is not a server") as caught:
        as_bridge("mine", other)
    for accepted in ("ToolServer", "Server", "FastMCP", "MCPServer", "open(link, observe)"):
        assert accepted in str(caught.value)


def test_the_library_is_not_loaded_to_find_out() -> None:
    code = (
        "import sys; from outrider.handlers._mcp import low_server; "
        "assert low_server(object()) is None; assert 'mcp' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


# What it serves.


async def test_the_agent_is_told_who_serves_and_that_lists_may_change() -> None:
    async with serving(high_level(), connect=False) as agent:
        told = await agent.connect()
    assert told["serverInfo"]["name"] == "demo"
    assert told["instructions"] == "Be brief."
    assert all(told["capabilities"][kind]["listChanged"] for kind in ("tools", "resources", "prompts"))
    assert "completions" in told["capabilities"]


REQUESTS: list[tuple[str, JsonObject | None, Any]] = [
    ("ping", None, lambda result: result == {}),
    ("tools/list", None, lambda result: "add" in [tool["name"] for tool in result["tools"]]),
    ("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}, lambda r: r["content"][0]["text"] == "3"),
    ("resources/list", None, lambda result: result["resources"][0]["uri"] == "x://note"),
    ("resources/read", {"uri": "x://note"}, lambda r: r["contents"][0]["text"] == "a note for none"),
    ("resources/read", {"uri": "x://notes/9"}, lambda r: r["contents"][0]["text"] == "note 9"),
    (
        "resources/templates/list",
        None,
        lambda r: r["resourceTemplates"][0]["uriTemplate"] == "x://notes/{id}",
    ),
    ("prompts/list", None, lambda result: result["prompts"][0]["name"] == "greet"),
    (
        "prompts/get",
        {"name": "greet", "arguments": {"who": "Ann"}},
        lambda r: r["messages"][0]["content"]["text"] == "Greet Ann for none",
    ),
    (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "who", "value": "A"}},
        lambda result: result["completion"]["values"] == ["A!"],
    ),
]


@every_case("method, params, is_right", REQUESTS, ids=[f"{n}-{row[0]}" for n, row in enumerate(REQUESTS)])
async def test_every_kind_of_request_is_served(method: str, params: JsonObject | None, is_right: Any) -> None:
    async with serving(high_level()) as agent:
        reply = await agent.ask(method, params)
    assert is_right(reply["result"]), reply


@pytest.mark.parametrize("always", [False, True])
async def test_tools_can_be_shown_to_the_model_from_the_start(always: bool) -> None:
    async with serving(high_level(), always_load=always) as agent:
        tools = (await agent.ask("tools/list"))["result"]["tools"]
    assert len(tools) > 5
    assert all(tool.get("_meta", {}).get("anthropic/alwaysLoad", False) is always for tool in tools)


@pytest.mark.parametrize("always", [False, True])
async def test_tools_are_offered_as_they_are(always: bool) -> None:
    async with serving(low_level(), always_load=always) as agent:
        tools = (await agent.ask("tools/list"))["result"]["tools"]
    if always:
        for tool in tools:
            del tool["_meta"]["anthropic/alwaysLoad"]
        tools = [{key: value for key, value in tool.items() if value != {}} for tool in tools]
    assert tools == TOOLS


async def test_a_low_level_server_is_served_too() -> None:
    told: list[str] = []
    async with serving(low_level(told.append)) as agent:
        assert await agent.text("double", x=4) == "8 none"
        for method, params in (
            ("logging/setLevel", {"level": "debug"}),
            ("resources/subscribe", {"uri": "x://a"}),
            ("resources/unsubscribe", {"uri": "x://a"}),
        ):
            assert (await agent.ask(method, params))["result"] == {}
    assert told == ["level debug", "subscribed x://a", "unsubscribed x://a"]


async def test_pictures_and_structured_content_arrive_whole() -> None:
    async with serving(high_level()) as agent:
        picture = (await agent.call("picture"))["content"]
        assert (await agent.call("add", a=2, b=3))["structuredContent"] == {"result": 5}
    assert [block["type"] for block in picture] == ["image", "text"]
    assert picture[0]["mimeType"] == "image/png"
    assert picture[0]["data"] == base64.b64encode(PNG).decode()


async def test_an_exception_of_a_tool_is_a_result_that_the_model_sees() -> None:
    async with serving(high_level()) as agent:
        result = await agent.call("fail")
    assert result["isError"] is True
    assert "Error executing tool fail" in result["content"][0]["text"]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_tool_in_which_something_else_was_cancelled_is_answered() -> None:
    async with serving(high_level()) as agent:
        reply = await agent.ask("tools/call", {"name": "cancelled_inside", "arguments": {}})
        assert "error" in reply
        assert await agent.text("add", a=1, b=1) == "2"


@pytest.mark.parametrize(
    "params", [{"name": "nobody", "arguments": {}}, {"name": "add", "arguments": {"a": "x"}}]
)
async def test_a_call_that_cannot_be_made_is_an_error_result(params: JsonObject) -> None:
    async with serving(high_level()) as agent:
        assert (await agent.ask("tools/call", params))["result"]["isError"] is True


async def test_an_unknown_method_is_an_error() -> None:
    async with serving(high_level()) as agent:
        assert "error" in await agent.ask("tools/dance")


@pytest.mark.parametrize("message", [{}, {"id": 1}, {"result": None, "method": 5}])
async def test_what_is_no_message_is_refused(message: JsonObject) -> None:
    async with serving(high_level()) as agent:
        reply = await agent.say(message)
        assert reply is None or reply["error"]["code"] == INVALID_REQUEST


async def test_parameters_that_are_no_object_are_refused() -> None:
    async with serving(high_level()) as agent:
        reply = await agent.say({"id": 1, "method": "tools/call", "params": [1]})
        assert reply["error"]["code"] == INVALID_REQUEST


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", "tools/call", "s"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "_meta"]), inner),
    max_leaves=6,
)
METHODS = st.sampled_from([
    "initialize", "tools/call", "tools/list", "ping", "notifications/cancelled", "notifications/progress", "x"
])  # fmt: skip
MESSAGES = st.fixed_dictionaries(
    {},
    optional={
        "method": METHODS | JSON,
        "id": JSON,
        "params": JSON | st.fixed_dictionaries({"requestId": JSON, "name": JSON, "arguments": JSON}),
        "result": JSON,
        "error": JSON,
    },
)


@settings(max_examples=40)
@given(messages=st.lists(MESSAGES, max_size=5))
def test_whatever_comes_is_answered_and_the_server_goes_on(messages: list[JsonObject]) -> None:
    async def talk() -> None:
        async with serving(high_level()) as agent:
            for message in messages:
                reply = await agent.say(message)
                assert reply is None or {"result", "error"} & reply.keys()
            assert await agent.text("add", a=1, b=2) == "3"

    logging.disable(logging.CRITICAL)
    try:
        anyio.run(talk)
    finally:
        logging.disable(logging.NOTSET)


# What the server says by itself.


async def test_notifications_go_out_before_the_answer_and_in_order() -> None:
    async with serving(high_level()) as agent:
        assert await agent.text("tell") == "told"
        posted = list(agent.link.posted)
    assert [message["method"] for message in posted] == [
        "notifications/progress",
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        "notifications/resources/updated",
    ]
    assert posted[0]["params"] == {"progressToken": 7, "progress": 1, "total": 3, "message": "one"}
    assert all(message["jsonrpc"] == "2.0" and "id" not in message for message in posted)


async def test_a_request_of_the_server_gets_the_reply_of_the_agent() -> None:
    texts: list[str] = []
    async with serving(high_level()) as agent, anyio.create_task_group() as tasks:

        async def call() -> None:
            texts.append(await agent.text("ping_client"))

        tasks.start_soon(call)
        asked = await agent.link.wait_for("ping")
        assert await agent.say({"id": asked["id"], "result": {}}) is None
    assert texts == ["ponged"]


async def test_what_the_agent_refuses_is_an_error_in_the_tool() -> None:
    replies: list[Any] = []
    async with serving(high_level()) as agent, anyio.create_task_group() as tasks:

        async def call() -> None:
            replies.append(await agent.ask("tools/call", {"name": "ask", "arguments": {}}))

        tasks.start_soon(call)
        asked = await agent.link.wait_for("elicitation/create")
        refusal = {"code": -32601, "message": "Method not found"}
        assert await agent.say({"id": asked["id"], "error": refusal}) is None
    assert "Method not found" in str(replies)


# Questions to the user.


async def test_a_question_is_answered_here_in_the_context_of_its_turn() -> None:
    asked: list[tuple[Elicitation, Any, str]] = []

    async def answer(ask: Elicitation, origin: Any) -> JsonObject:
        asked.append((ask, origin, TURN.get()))
        return {"action": "accept", "content": {"name": "Ann"}}

    async with serving(high_level(), AnsweringLink(answer)) as agent:
        assert await agent.text("ask", turn="seventh") == "accept Ann seventh"
        assert agent.link.posted == []
    [(ask, origin, turn)] = asked
    assert (ask.mcp_server_name, ask.message, ask.mode) == ("s", "Who are you?", "form")
    assert (ask.property_order, origin, turn) == (["name"], Who("seventh"), "seventh")


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_question_may_be_declined(action: str) -> None:
    async def answer(ask: Elicitation, origin: Any) -> JsonObject:
        return {"action": action}

    async with serving(high_level(), AnsweringLink(answer)) as agent:
        assert (await agent.text("ask")).startswith(action)


async def test_a_question_that_fails_is_an_error_in_the_tool(caplog: pytest.LogCaptureFixture) -> None:
    async def answer(ask: Elicitation, origin: Any) -> JsonObject:
        raise LookupError("nobody is here")

    async with serving(high_level(), AnsweringLink(answer)) as agent:
        reply = await agent.ask("tools/call", {"name": "ask", "arguments": {}})
        assert "nobody is here" in str(reply)
        assert await agent.text("add", a=1, b=2) == "3"
    assert "LookupError" in caplog.text


async def test_a_question_is_withdrawn_with_the_call_that_asked() -> None:
    watch = Stopwatch()

    async def answer(ask: Elicitation, origin: Any) -> JsonObject:
        return {"action": await watch.hold("question")}

    async with serving(high_level(watch), AnsweringLink(answer)) as agent:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(agent.say, {"id": 77, "method": "tools/call", "params": {"name": "ask"}})
            await watch.until(lambda: watch.began == ["question"])
            await agent.say({"method": "notifications/cancelled", "params": {"requestId": 77}})
        await watch.until(lambda: watch.cancelled == ["question"])
        assert await agent.text("add", a=1, b=2) == "3"


# The context of the turn.


@pytest.mark.parametrize("tool", ["turn", "turn_of_sync"])
async def test_a_tool_runs_in_the_context_of_the_turn_that_calls_it(tool: str) -> None:
    async with serving(high_level()) as agent:
        for turn in ("first", "second"):
            assert await agent.text(tool, turn=turn) == turn


async def test_so_do_low_level_tools_resources_and_prompts() -> None:
    async with serving(low_level()) as agent:
        assert await agent.text("double", turn="first", x=1) == "2 first"
    async with serving(high_level()) as agent:
        note = await agent.ask("resources/read", {"uri": "x://note"}, turn="second")
        assert note["result"]["contents"][0]["text"] == "a note for second"
        prompt = await agent.ask("prompts/get", {"name": "greet", "arguments": {"who": "A"}}, turn="third")
        assert prompt["result"]["messages"][0]["content"]["text"] == "Greet A for third"


async def test_calls_at_the_same_time_keep_their_contexts_apart() -> None:
    texts: dict[str, str] = {}
    async with serving(high_level()) as agent:

        async def call(turn: str) -> None:
            texts[turn] = await agent.text("turn", turn=turn)

        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(call, f"turn {number}")
        assert await agent.text("set_turn", value="changed", turn="last") == "changed"
        assert await agent.text("turn", turn="last") == "last"
    assert texts == {turn: turn for turn in texts}
    assert len(texts) == 20


async def test_the_users_object_stays_as_it_is() -> None:
    server = low_level()
    before = dict(vars(server))
    handlers = dict(getattr(server, "request_handlers", {}))
    async with serving(server) as agent:
        await agent.text("double", x=1)
    assert {name: value for name, value in vars(server).items() if name in before} == before
    assert dict(getattr(server, "request_handlers", {})) == handlers


# Cancelling.


async def test_the_agent_can_cancel_a_call() -> None:
    watch = Stopwatch()
    replies: list[Any] = []
    async with serving(high_level(watch)) as agent:

        async def call() -> None:
            params = {"name": "hold", "arguments": {"name": "long"}}
            replies.append(await agent.say({"id": 41, "method": "tools/call", "params": params}))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await watch.until(lambda: watch.began == ["long"])
            cancelled = {"requestId": 41, "reason": "AbortError"}
            assert await agent.say({"method": "notifications/cancelled", "params": cancelled}) is None
        await watch.until(lambda: watch.cancelled == ["long"])
        assert replies[0]["id"] == 41
        assert "error" in replies[0]
        assert await agent.text("add", a=1, b=2) == "3"
    assert [(event.outcome, event.is_error) for event in agent.handled] == [
        ("cancelled", True),
        ("answered", False),
    ]


async def test_a_call_is_cancelled_with_the_task_that_waits_for_it() -> None:
    watch = Stopwatch()
    async with serving(high_level(watch)) as agent:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: agent.call("hold", name="long"))
            await watch.until(lambda: watch.began == ["long"])
            tasks.cancel_scope.cancel()
        await watch.until(lambda: watch.cancelled == ["long"])
        assert await agent.text("add", a=1, b=2) == "3"
        # Nothing of it is kept.
        assert vars(agent.endpoint)["_calls"] == {}
    assert [event.outcome for event in agent.handled] == ["cancelled", "answered"]


@every_case("steps", range(12))
async def test_a_call_that_is_cancelled_at_once_does_not_go_on(steps: int) -> None:
    watch = Stopwatch()
    async with serving(high_level(watch)) as agent:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: agent.call("hold", name="long"))
            for _ in range(steps):
                await checkpoint()
            tasks.cancel_scope.cancel()
        # Whatever is on its way has arrived when this has been answered.
        assert await agent.text("add", a=1, b=2) == "3"
        await watch.until(lambda: watch.cancelled == watch.began)
    assert watch.cancelled == watch.began


@every_case("id", [99, "2", None, [1]], ids=repr)
async def test_a_cancellation_of_nothing_hits_nothing(id: Any) -> None:
    watch = Stopwatch()
    async with serving(high_level(watch)) as agent, anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: agent.call("hold", name="long"))
        await watch.until(lambda: watch.began == ["long"])
        await agent.say({"method": "notifications/cancelled", "params": {"requestId": id}})
        assert await agent.text("add", a=1, b=2) == "3"
        assert watch.cancelled == []
        tasks.cancel_scope.cancel()


# Connecting anew: what the agent does when other servers come and go.


async def test_a_call_from_before_a_new_connection_is_answered_beside_one_of_the_same_id() -> None:
    events: list[str] = []
    release = anyio.Event()
    server = high_level(lifespan=counting_lifespan(events))

    @typed(server.tool())
    async def wait(name: str) -> str:
        await release.wait()
        return name

    replies: dict[str, Any] = {}
    async with serving(server) as agent:

        async def call(name: str) -> None:
            params = {"name": "wait", "arguments": {"name": name}}
            replies[name] = await agent.say({"id": 2, "method": "tools/call", "params": params})

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, "before")
            await agent.connect()
            tasks.start_soon(call, "after")
            assert await agent.text("resources") == "database 1"
            release.set()
        assert events == ["in"]
    for name, reply in replies.items():
        assert (reply["id"], reply["result"]["content"][0]["text"]) == (2, name)
    assert len(replies) == 2


# The life of a server.


async def test_each_session_has_a_lifespan_of_its_own_which_ends_in_order() -> None:
    events: list[str] = []
    server = high_level(lifespan=counting_lifespan(events))
    async with serving(server) as first, serving(server) as second:
        assert await first.text("resources") == "database 1"
        assert await second.text("resources") == "database 2"
        assert await first.text("tell") == "told"
        assert first.link.posted
        assert not second.link.posted
        assert events == ["in", "in"]
    assert events == ["in", "in", "out", "out"]


async def test_a_lifespan_is_told_of_the_users_own_object() -> None:
    told: list[object] = []

    @asynccontextmanager
    async def lifespan(server: object) -> AsyncGenerator[None]:
        told.append(server)
        yield

    server = LowLevelServer("low", lifespan=lifespan)
    async with serving(server):
        pass
    assert told == [server]


async def test_a_server_ends_in_order_while_a_call_is_open() -> None:
    events: list[str] = []
    watch = Stopwatch()
    server = high_level(watch, counting_lifespan(events))
    endpoint = as_bridge("s", server).open(RecordingLink(), lambda _: None)
    agent = Agent(endpoint, RecordingLink(), [])
    replies: list[Any] = []

    async def call() -> None:
        params = {"name": "hold", "arguments": {"name": "long"}}
        replies.append(await agent.ask("tools/call", params))

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            async with anyio.create_task_group() as running:
                running.start_soon(endpoint.run)
                await agent.connect()
                tasks.start_soon(call)
                await watch.until(lambda: watch.began == ["long"])
                running.cancel_scope.cancel()
            assert watch.cancelled == ["long"]
            assert events == ["in", "out"]
    assert "error" in replies[0]


async def test_a_lifespan_that_does_not_end_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge, "_CLOSING_SECONDS", 0.05)
    events: list[str] = []
    async with serving(high_level(lifespan=counting_lifespan(events, hangs=True))) as agent:
        assert await agent.text("add", a=1, b=2) == "3"
    assert events == ["in"]


async def test_messages_wait_until_the_server_is_up() -> None:
    endpoint = as_bridge("s", high_level()).open(RecordingLink(), lambda _: None)
    agent = Agent(endpoint, RecordingLink(), [])
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(agent.connect)
            await anyio.wait_all_tasks_blocked()
            async with anyio.create_task_group() as others:
                others.start_soon(endpoint.run)
                assert await agent.text("add", a=1, b=2) == "3"
                others.cancel_scope.cancel()


async def test_a_server_that_fails_answers_with_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    server = high_level(lifespan=counting_lifespan([], fails=True))
    async with serving(server, connect=False) as agent:
        for _ in range(2):
            error = (await agent.ask("tools/call", {"name": "add", "arguments": {}}))["error"]
            assert error["code"] == INTERNAL_ERROR
            assert "'s' failed: ConnectionError: no database" in error["message"]
        assert await agent.say({"method": "notifications/initialized"}) is None
    [record] = [record for record in caplog.records if record.name == "outrider.session"]
    assert record.exc_info is not None
    assert "no database" in caplog.text
    assert [event.outcome for event in agent.handled] == ["failed", "failed"]


async def test_a_server_whose_session_is_over_says_so() -> None:
    async with serving(high_level()) as agent:
        pass
    error = (await agent.ask("tools/list"))["error"]
    assert error["message"] == "The MCP server 's' has ended"


async def test_a_server_that_has_ended_keeps_nothing_of_its_session() -> None:
    async with serving(high_level()) as agent:
        link = weakref.ref(agent.link)
        await agent.call("fail")
    await agent.ask("tools/list")
    endpoint = agent.endpoint
    del agent
    gc.collect()
    # Whatever keeps the endpoint: the library logs the failure, and a log may keep its traceback.
    assert link() is None, endpoint


class Stop(BaseException):
    """Like Ctrl-C, which asyncio treats in a way of its own."""


async def test_what_ends_programs_comes_out_of_a_tool_bare() -> None:
    server = high_level()

    @typed(server.tool())
    async def stop() -> str:
        raise Stop

    endpoint = as_bridge("s", server).open(RecordingLink(), lambda _: None)
    agent = Agent(endpoint, RecordingLink(), [])
    caught: list[BaseException] = []

    async def run() -> None:
        try:
            await endpoint.run()
        except Stop as error:
            caught.append(error)

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await agent.connect()
            assert "error" in await agent.ask("tools/call", {"name": "stop", "arguments": {}})
    assert len(caught) == 1


# What is told of it.


async def test_each_call_is_reported_once() -> None:
    async with serving(high_level()) as agent:
        meta = {"claudecode/toolUseId": "toolu_1", "progressToken": 2}
        params = {"name": "add", "arguments": {"a": 1, "b": 2}, "_meta": meta}
        await agent.ask("tools/call", params)
        await agent.call("fail")
        await agent.ask("tools/list")
        [good, bad] = agent.handled
    assert (good.server, good.name, good.arguments) == ("s", "add", {"a": 1, "b": 2})
    assert (good.tool_use_id, good.outcome, good.is_error) == ("toolu_1", "answered", False)
    assert good.seconds > 0
    assert (bad.name, bad.outcome, bad.is_error, bad.tool_use_id) == ("fail", "answered", True, None)


def test_the_version_under_test_is_named(record_property: Any) -> None:
    from importlib.metadata import version

    record_property("mcp", version("mcp"))
    assert version("mcp").startswith("1." if IS_FIRST else "2.")
