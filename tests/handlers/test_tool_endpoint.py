"""Calls of tools: what the agent gets for each way that they can go, and that each is reported once."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from typing import Any

import anyio
import pytest
import trio
from anyio import from_thread, to_thread
from anyio.lowlevel import checkpoint
from hypothesis import given
from hypothesis import strategies as st

from outrider.errors import Denied, ToolFailed
from outrider.handlers import ShapeError, ToolContext, ToolServer, tool
from tests.cases import every_case
from tests.handlers.tooling import Serving, named, text_of

pytestmark = pytest.mark.anyio

CANCELLED = {"content": [{"type": "text", "text": "The call of `wait` was cancelled."}], "isError": True}
variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")


@tool
async def echo(text: str) -> str:
    return text


class Waiting:
    """A tool that waits until it is let go, and says what becomes of it."""

    def __init__(self, **how: Any) -> None:
        self.began = anyio.Event()
        self.go_on = anyio.Event()
        self.running = 0
        self.most = 0
        self.order: list[int] = []
        self.was_cancelled = 0
        self.tool = tool(name="wait", **how)(self.wait)

    async def wait(self, number: int = 0) -> str:
        self.running += 1
        self.most = max(self.most, self.running)
        self.order.append(number)
        self.began.set()
        try:
            await self.go_on.wait()
        except BaseException:
            self.was_cancelled += 1
            raise
        finally:
            self.running -= 1
        return f"went {number}"


async def settled() -> None:
    """Let all others go as far as they can."""
    await anyio.wait_all_tasks_blocked()


# What other methods are answered with.


@every_case("method", ["resources/list", "prompts/list", "logging/setLevel", "tools/other", ""])
async def test_methods_that_are_not_there(method: str) -> None:
    reply = await Serving(echo).ask(method)
    assert reply["error"]["code"] == -32601


async def test_ping() -> None:
    assert (await Serving(echo).ask("ping", id="text"))["result"] == {}


@every_case(
    "message",
    [
        {"method": "notifications/initialized"},
        {"method": "notifications/unknown", "params": {}},
        {"method": "tools/call", "params": {"name": "echo", "arguments": {"text": "a"}}},
        {"method": "tools/call", "id": None, "params": {"name": "echo", "arguments": {"text": "a"}}},
        {"method": "tools/list", "id": True},
        {"id": 5, "result": {}},
        {"id": 5, "error": {"code": 1, "message": "x"}},
        {"method": "notifications/cancelled"},
        {"method": "notifications/cancelled", "params": {}},
        {"method": "notifications/cancelled", "params": {"requestId": {}}},
        {"method": "notifications/cancelled", "params": {"requestId": 99}},
        {"method": "notifications/cancelled", "params": [1]},
        {},
        {"method": 5},
    ],
    ids=named,
)
async def test_what_gets_no_reply(message: dict[str, Any]) -> None:
    serving = Serving(echo)
    assert await serving.receive(message) is None
    assert serving.reports == []


async def test_what_is_no_request_is_refused() -> None:
    reply = await Serving(echo).receive({"id": 5, "method": 7})
    assert reply is not None
    assert reply["error"]["code"] == -32600


@every_case(
    "params, said",
    [
        (None, "`name` of a tool"),
        ([], "`name` of a tool"),
        ({}, "`name` of a tool"),
        ({"name": 5}, "`name` of a tool"),
        ({"name": "echo", "arguments": [1]}, "`arguments` must be an object"),
        ({"name": "echo", "arguments": "text"}, "`arguments` must be an object"),
    ],
    ids=named,
)
async def test_parameters_that_are_broken(params: Any, said: str) -> None:
    serving = Serving(echo)
    error = (await serving.ask("tools/call", params))["error"]
    assert error["code"] == -32602
    assert said in error["message"]
    assert serving.reports == []


async def test_a_tool_that_is_not_there() -> None:
    serving = Serving(echo)
    error = (await serving.ask("tools/call", {"name": "ecko", "arguments": {"a": 1}}))["error"]
    assert error == {"code": -32602, "message": "there is no tool 'ecko' on this server; known are: echo"}
    (report,) = serving.reports
    assert (report.name, report.outcome, report.is_error, report.arguments) == (
        "ecko",
        "failed",
        True,
        {"a": 1},
    )
    empty = (await Serving().ask("tools/call", {"name": "x"}))["error"]
    assert empty["message"].endswith("known are: none")


# Calls that go well.


async def test_a_call_is_answered_and_reported() -> None:
    serving = Serving(echo)
    assert await serving.call("echo", text="hello") == {"content": [{"type": "text", "text": "hello"}]}
    (report,) = serving.reports
    assert (report.server, report.name, report.arguments) == ("s", "echo", {"text": "hello"})
    assert (report.outcome, report.is_error, report.error) == ("answered", False, None)
    assert report.tool_use_id == "toolu_echo"
    assert 0 < report.seconds < 5


async def test_a_call_without_arguments_or_meta() -> None:
    @tool
    def nothing() -> None: ...

    serving = Serving(nothing)
    for params in ({"name": "nothing"}, {"name": "nothing", "arguments": None, "_meta": 5}):
        assert (await serving.ask("tools/call", params))["result"] == {"content": []}
    assert [report.tool_use_id for report in serving.reports] == [None, None]


async def test_an_error_that_a_tool_answers_with_is_reported_as_one() -> None:
    @tool
    def failing() -> object:
        return {"content": [{"type": "text", "text": "no"}], "is_error": True}

    serving = Serving(failing)
    assert (await serving.call("failing"))["isError"] is True
    assert (serving.reports[0].outcome, serving.reports[0].is_error) == ("answered", True)


async def test_parameters_may_have_any_name() -> None:
    @tool(timeout=5)
    def function(timeout: int, context: str, function: str, self: int, id: int) -> str:
        return f"{timeout} {context} {function} {self} {id}"

    given = {"timeout": 1, "context": "c", "function": "f", "self": 2, "id": 3}
    assert text_of(await Serving(function).call("function", given)) == "1 c f 2 3"


async def test_functions_that_block_run_side_by_side_in_threads() -> None:
    barrier = threading.Barrier(50)
    loop_thread = threading.get_ident()

    @tool
    def meet() -> str:
        barrier.wait(10)
        return "loop" if threading.get_ident() == loop_thread else "thread"

    serving = Serving(meet)
    results: list[str] = []

    async def call() -> None:
        results.append(text_of(await serving.call("meet")))

    async with anyio.create_task_group() as group:
        for _ in range(50):
            group.start_soon(call)
    assert len(serving.reports) == 50
    assert (
        text_of(
            await Serving(tool(name="alone")(lambda: str(threading.get_ident() == loop_thread))).call("alone")
        )
        == "False"
    )


async def test_tools_see_the_context_that_they_are_called_in() -> None:
    @tool
    def sync_tool() -> str:
        return variable.get()

    @tool
    async def async_tool() -> str:
        return variable.get()

    serving = Serving(sync_tool, async_tool)
    variable.set("here")
    assert text_of(await serving.call("sync_tool")) == "here"
    assert text_of(await serving.call("async_tool")) == "here"


async def test_a_function_that_gives_something_to_wait_for_is_waited_for() -> None:
    @tool
    def indirect() -> object:
        async def inner() -> str:
            await checkpoint()
            return "waited"

        return inner()

    assert text_of(await Serving(indirect).call("indirect")) == "waited"


async def test_large_arguments_and_results() -> None:
    text = "x" * 3_000_000
    assert text_of(await Serving(echo).call("echo", text=text)) == text


# Bad arguments.


async def test_bad_arguments_never_reach_the_function() -> None:
    seen: list[int] = []

    @tool
    async def add(a: int, b: int = 0) -> None:
        seen.append(a + b)

    serving = Serving(add)
    result = await serving.call("add", a="1", c=2)
    assert result["isError"] is True
    assert text_of(result).splitlines() == [
        "`add` was not called, because its arguments do not fit:",
        '- `a`: expected a whole number, got "1"',
        "- `c`: unknown; known are `a`, `b`",
    ]
    assert seen == []
    (report,) = serving.reports
    assert (report.outcome, report.is_error, type(report.error)) == ("failed", True, ShapeError)


# Failures.


class Odd(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


def error_of(error: BaseException) -> Any:
    @tool(name="fail")
    async def fail() -> None:
        raise error

    return fail


@every_case(
    "error, text",
    [
        (ValueError("bad value"), "ValueError: bad value"),
        (KeyError("k"), "KeyError: 'k'"),
        (RuntimeError(), "RuntimeError"),
        (Odd(), "Odd"),
        (StopIteration("x"), "RuntimeError: coroutine raised StopIteration"),
        (StopAsyncIteration("x"), "StopAsyncIteration: x"),
        (ExceptionGroup("g", [ValueError("inner")]), "ValueError: inner"),
        (
            ExceptionGroup("g", [ValueError("a"), ToolFailed("b")]),
            "ExceptionGroup: g (2 sub-exceptions)\n- ValueError: a\n- ToolFailed: b",
        ),
        (TimeoutError("of its own"), "TimeoutError: of its own"),
        (Denied("not you"), "Denied: not you"),
        (ConnectionError("postgres://u:secret@host/db"), "ConnectionError: postgres://u:***@host/db"),
    ],
    ids=named,
)
@every_case("kind", ["async", "sync"])
async def test_what_a_tool_raises_is_told_and_logged(
    error: Exception, text: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.clear()

    def fail() -> None:
        raise error

    made = error_of(error) if kind == "async" else tool(fail)
    serving = Serving(made)
    with caplog.at_level(logging.DEBUG, "outrider.session"):
        result = await serving.call("fail")
    assert result["isError"] is True
    said = text_of(result)
    # The kinds of functions say this in different words.
    assert said == text or ("raised Stop" in text and "raised Stop" in said)
    assert "Traceback" not in said
    (report,) = serving.reports
    assert (report.outcome, report.is_error) == ("failed", True)
    assert report.error is error or report.error.__cause__ is error  # type: ignore[union-attr] # pyright: ignore[reportOptionalMemberAccess]
    (record,) = [each for each in caplog.records if each.name == "outrider.session"]
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None
    assert "'fail'" in record.getMessage()


@pytest.mark.parametrize("text", ["Only this.", "a\nb", "token: sk-ant-made-up", "x" * 50_000])
@pytest.mark.parametrize("wrap", [False, True])
async def test_chosen_text_is_told_exactly(text: str, wrap: bool, caplog: pytest.LogCaptureFixture) -> None:
    error: Exception = ExceptionGroup("of a task group", [ToolFailed(text)]) if wrap else ToolFailed(text)
    serving = Serving(error_of(error))
    with caplog.at_level(logging.DEBUG, "outrider.session"):
        result = await serving.call("fail")
    assert result == {"content": [{"type": "text", "text": text}], "isError": True}
    assert serving.reports[0].error is error
    assert not any(record.exc_info for record in caplog.records)


async def test_a_failure_always_says_something() -> None:
    assert text_of(await Serving(error_of(ToolFailed(""))).call("fail")) == "The tool failed"


async def test_a_long_text_of_an_exception_is_cut() -> None:
    said = text_of(await Serving(error_of(ValueError("x" * 1_000_000))).call("fail"))
    assert len(said) < 11_000


async def test_what_cannot_be_sent_is_an_error_that_names_it(caplog: pytest.LogCaptureFixture) -> None:
    @tool
    async def odd() -> object:
        return {"a": object()}

    serving = Serving(odd)
    result = await serving.call("odd")
    assert result["isError"] is True
    assert text_of(result) == (
        "`odd` was called, but its result cannot be read: a value of type `object` cannot be sent"
    )
    assert serving.reports[0].outcome == "failed"
    assert any(record.exc_info for record in caplog.records)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
async def test_what_is_meant_for_the_program_passes_through(kind: type[BaseException]) -> None:
    serving = Serving(error_of(kind()))
    with pytest.raises(kind):
        await serving.call("fail")
    (report,) = serving.reports
    assert (report.outcome, type(report.error)) == ("failed", kind)


# Deadlines.


async def test_a_tool_that_never_returns_is_stopped() -> None:
    waiting = Waiting(timeout=0.01)
    serving = Serving(waiting.tool)
    result = await serving.call("wait")
    assert result == {
        "content": [{"type": "text", "text": "`wait` did not finish within 0.01 s and was stopped."}],
        "isError": True,
    }
    assert waiting.was_cancelled == 1
    (report,) = serving.reports
    assert (report.outcome, report.is_error) == ("timed_out", True)


async def test_a_thread_that_never_returns_is_left_to_itself() -> None:
    release, seen = threading.Event(), threading.Event()

    # Long enough for its thread to begin.
    @tool(timeout=0.5)
    def block(ctx: ToolContext) -> None:
        release.wait(10)
        if ctx.is_cancelled:
            seen.set()

    serving = Serving(block)
    assert "did not finish" in text_of(await serving.call("block"))
    release.set()
    assert await to_thread.run_sync(seen.wait, 10)


async def test_a_deadline_does_not_count_while_others_are_in_the_way() -> None:
    waiting = Waiting(timeout=30, concurrency=1)
    serving = Serving(waiting.tool)
    async with anyio.create_task_group() as group:
        for number in range(3):
            group.start_soon(serving.call, "wait", {"number": number})
        await settled()
        assert waiting.running == 1
        waiting.go_on.set()
    assert [report.outcome for report in serving.reports] == ["answered"] * 3


# How many at once.


@pytest.mark.parametrize("limit", [1, 2])
async def test_a_limit_holds_across_sessions(limit: int) -> None:
    waiting = Waiting(concurrency=limit)
    server = ToolServer("s", [waiting.tool])
    sessions = [Serving(server=server), Serving(server=server)]
    async with anyio.create_task_group() as group:
        for number in range(6):
            group.start_soon(sessions[number % 2].call, "wait", {"number": number})
            await settled()
        assert waiting.running == limit
        waiting.go_on.set()
    assert waiting.most == limit
    # Two that are let in together may begin in any order.
    assert sorted(waiting.order) == [0, 1, 2, 3, 4, 5]
    assert limit == 2 or waiting.order == [0, 1, 2, 3, 4, 5]


async def test_a_call_that_waits_can_be_taken_back() -> None:
    waiting = Waiting(concurrency=1)
    serving = Serving(waiting.tool)
    replies: dict[int, Any] = {}

    async def call(id: int) -> None:
        replies[id] = await serving.call("wait", {"number": id}, id=id)

    async with anyio.create_task_group() as group:
        for id in (1, 2, 3):
            group.start_soon(call, id)
            await settled()
        await serving.take_back(2)
        await settled()
        assert replies == {2: CANCELLED}
        waiting.go_on.set()
    assert waiting.order == [1, 3]
    assert waiting.was_cancelled == 0


async def test_bad_arguments_need_not_wait() -> None:
    waiting = Waiting(concurrency=1)
    serving = Serving(waiting.tool)
    async with anyio.create_task_group() as group:
        group.start_soon(serving.call, "wait")
        await waiting.began.wait()
        assert (await serving.call("wait", number="x"))["isError"] is True
        waiting.go_on.set()


def test_each_event_loop_has_its_own_limit() -> None:
    arrived = threading.Barrier(3)

    @tool(concurrency=1)
    async def meet() -> str:
        await to_thread.run_sync(arrived.wait, 10)
        return "met"

    server = ToolServer("s", [meet])

    async def main() -> str:
        return text_of(await Serving(server=server).call("meet"))

    results: list[str] = []
    backends = ["asyncio", "trio", "asyncio"]
    threads = [
        threading.Thread(target=lambda backend=backend: results.append(anyio.run(main, backend=backend)))
        for backend in backends
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert results == ["met"] * 3


# Cancellation.


async def test_a_call_that_is_taken_back_is_cancelled_and_answered() -> None:
    waiting = Waiting()
    serving = Serving(waiting.tool)
    result: Any = None

    async def call() -> None:
        nonlocal result
        result = await serving.call("wait", id=7)

    async with anyio.create_task_group() as group:
        group.start_soon(call)
        await waiting.began.wait()
        await serving.take_back(7)
    assert result == CANCELLED
    assert waiting.was_cancelled == 1
    (report,) = serving.reports
    assert (report.outcome, report.is_error) == ("cancelled", True)
    # What is over cannot be taken back.
    await serving.take_back(7)


async def test_only_the_call_that_is_meant_is_cancelled() -> None:
    waiting = Waiting()
    serving = Serving(waiting.tool)
    results: dict[Any, str] = {}

    async def call(id: Any) -> None:
        results[id] = text_of(await serving.call("wait", id=id))

    async with anyio.create_task_group() as group:
        for id in (1, "1", 2):
            group.start_soon(call, id)
        await settled()
        await serving.take_back("1")
        await settled()
        assert results == {"1": "The call of `wait` was cancelled."}
        waiting.go_on.set()
    assert results[1] == results[2] == "went 0"


async def test_a_call_may_be_taken_back_before_it_is_there() -> None:
    """Messages that come together are handled in any order."""
    waiting = Waiting()
    serving = Serving(waiting.tool)
    await serving.take_back(5)
    assert await serving.call("wait", id=5) == CANCELLED
    assert waiting.order == []
    assert [report.outcome for report in serving.reports] == ["cancelled"]
    # Only that one, and not the one that gets its number in a new connection.
    await serving.take_back(6)
    await serving.ask("initialize", id=0)
    waiting.go_on.set()
    assert text_of(await serving.call("wait", id=6)) == "went 0"


async def test_calls_that_never_come_are_not_remembered_for_ever() -> None:
    serving = Serving(echo)
    for id in range(10_000):
        await serving.take_back(id)
    assert len(serving.endpoint._taken_back_early) <= 64


async def test_when_the_session_gives_up_the_call_is_cancelled_and_not_answered() -> None:
    waiting = Waiting()
    serving = Serving(waiting.tool)
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(serving.call, "wait")
            await waiting.began.wait()
            scope.cancel()
    assert scope.cancelled_caught
    assert waiting.was_cancelled == 1
    (report,) = serving.reports
    assert (report.outcome, report.is_error) == ("cancelled", True)
    assert serving.endpoint._open == {}


async def test_a_thread_learns_that_its_call_was_taken_back() -> None:
    began, release, seen = threading.Event(), threading.Event(), threading.Event()

    @tool
    def block(ctx: ToolContext) -> None:
        began.set()
        release.wait(10)
        if ctx.is_cancelled:
            seen.set()

    serving = Serving(block)
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: serving.call("block", id=1))
        await to_thread.run_sync(began.wait, 10)
        await serving.take_back(1)
    assert [report.outcome for report in serving.reports] == ["cancelled"]
    release.set()
    assert await to_thread.run_sync(seen.wait, 10)


async def test_a_tool_that_answers_all_the_same_is_heard() -> None:
    began = anyio.Event()

    @tool
    async def stubborn() -> str:
        began.set()
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            pass
        return "anyway"

    serving = Serving(stubborn)
    result: list[Any] = []

    async def call() -> None:
        result.append(await serving.call("stubborn", id=1))

    async with anyio.create_task_group() as group:
        group.start_soon(call)
        await began.wait()
        await serving.take_back(1)
    assert text_of(result[0]) == "anyway"
    assert serving.reports[0].outcome == "answered"


@pytest.mark.parametrize("nested", [False, True])
async def test_a_tool_that_fails_while_it_is_cancelled_is_answered(nested: bool) -> None:
    began = anyio.Event()

    async def fail_at_the_end() -> None:
        began.set()
        try:
            await anyio.sleep_forever()
        finally:
            raise ValueError("while cleaning up")

    @tool
    async def untidy() -> None:
        if not nested:
            await fail_at_the_end()
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep_forever)
            group.start_soon(fail_at_the_end)

    serving = Serving(untidy)
    result: list[Any] = []

    async def call() -> None:
        result.append(await serving.call("untidy", id=1))

    async with anyio.create_task_group() as group:
        group.start_soon(call)
        await began.wait()
        await serving.take_back(1)
    assert result[0]["isError"] is True
    assert text_of(result[0]) == "ValueError: while cleaning up"
    assert len(serving.reports) == 1


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_what_a_tool_waited_for_being_cancelled_is_an_error_like_any_other() -> None:
    @tool
    async def fragile() -> None:
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    serving = Serving(fragile)
    result = await serving.call("fragile")
    assert result["isError"] is True
    assert text_of(result) == "CancelledError"
    assert serving.reports[0].outcome == "failed"


async def test_a_deadline_of_the_tools_own_is_its_own() -> None:
    @tool
    async def patient() -> str:
        with anyio.move_on_after(0.001):
            await anyio.sleep_forever()
        return "moved on"

    assert text_of(await Serving(patient).call("patient")) == "moved on"


# Any message.

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["name", "arguments", "_meta", "requestId", "progressToken", "text"]),
            inner | st.sampled_from(["echo"]),
            max_size=3,
        )
    ),
    max_leaves=6,
)
METHODS = ["tools/call", "tools/list", "initialize", "ping", "notifications/cancelled", "x"]
MESSAGES = st.fixed_dictionaries(
    {}, optional={"method": st.sampled_from(METHODS) | JSON, "id": JSON, "params": JSON, "result": JSON}
)


@given(st.lists(MESSAGES, max_size=5))
def test_no_message_is_too_strange(messages: list[dict[str, Any]]) -> None:
    async def main() -> None:
        serving = Serving(echo)
        for message in messages:
            reply = await serving.receive(message)
            if reply is not None:
                assert reply["id"] == message["id"]
                assert ("result" in reply) != ("error" in reply)

    trio.run(main)


async def test_the_event_loop_stays_free_for_a_thread_that_asks_it() -> None:
    @tool
    def ask_the_loop() -> str:
        return str(from_thread.run_sync(threading.get_ident) == loop_thread)

    loop_thread = threading.get_ident()
    assert text_of(await Serving(ask_the_loop).call("ask_the_loop")) == "True"
