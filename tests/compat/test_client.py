"""`ClaudeSDKClient` of the drop-in: it neither hangs nor leaks nor loses anything where it could."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any, NoReturn

import anyio
import anyio.abc
import anyio.to_thread
import pytest

from outrider.compat import (
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    ClaudeSDKError,
    CLIConnectionError,
    HookMatcher,
    Message,
    PermissionResultAllow,
    PermissionResultDeny,
    PermissionUpdate,
    ProcessError,
    ResultMessage,
    ToolResultBlock,
    UserMessage,
)
from outrider.protocol import RequestReceived
from outrider.testing import Simulator, hang, say, use_tool
from outrider.transports import live_processes
from tests.cases import every_case
from tests.compat.test_query import started, texts
from tests.session.other_end import OtherEnd, assistant, init, result, stream_event
from tests.session.surroundings import agent_at, answer_everything, make_program
from tests.transports.conftest import nothing_is_left, wait_for

__all__ = ["nothing_is_left"]

pytestmark = pytest.mark.anyio

SECONDS = 40.0


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def response(client: ClaudeSDKClient) -> list[Message]:
    with anyio.fail_after(SECONDS):
        return [message async for message in client.receive_response()]


async def everything(client: ClaudeSDKClient) -> list[Message]:
    with anyio.fail_after(SECONDS):
        return [message async for message in client.receive_messages()]


def prompt(text: str) -> dict[str, Any]:
    return {"type": "user", "message": {"role": "user", "content": text}}


# What subclasses and instrumentors change.


class Traced(ClaudeSDKClient):
    """Sees all messages, however they are received."""

    def __init__(self, *args: Any, **fields: Any) -> None:
        super().__init__(*args, **fields)
        self.seen: list[str] = []

    async def receive_messages(self) -> AsyncIterator[Message]:
        try:
            async for message in super().receive_messages():
                self.seen.append(type(message).__name__)
                yield message
        finally:
            self.seen.append("over")

    async def disconnect(self) -> None:
        self.seen.append("disconnect")
        await super().disconnect()


async def test_a_response_is_received_through_receive_messages() -> None:
    turn = ["SystemMessage", "AssistantMessage", "ResultMessage", "over"]
    async with Traced(transport=Simulator([say("one"), say("two")])) as client:
        for text in ("one", "two"):
            await client.query("hello")
            assert texts(await response(client)) == [text]
        assert client.seen == [*turn, *turn]
    assert client.seen[-1] == "disconnect"


async def test_a_client_that_cannot_connect_disconnects() -> None:
    client = Traced(ClaudeAgentOptions(cli_path="/nowhere/claude"))
    with pytest.raises(CLIConnectionError):
        await client.connect()
    assert client.seen == ["disconnect"]


# What hangs with the reference.


async def test_what_is_not_read_does_not_keep_answers_away() -> None:
    async def play(agent: OtherEnd) -> None:
        uuid = (await agent.prompt()).uuid or ""
        await agent.say(init(uuid), *(stream_event(str(number)) for number in range(150)))
        await agent.answer(await agent.asked("mcp_status"), mcpServers=[])
        await agent.answer(await agent.asked("interrupt"))
        await agent.say(result(uuid))
        await agent.wait_ended()

    received: list[Message] = []
    async with agent_at(play) as transport, ClaudeSDKClient(transport=transport) as client:
        await client.query("Talk")
        assert await client.get_mcp_status() == {"mcpServers": []}
        await client.interrupt()
        received = await response(client)
    assert len(received) == 152
    assert isinstance(received[-1], ResultMessage)


async def test_an_agent_that_ends_well_while_it_is_asked_fails_the_request() -> None:
    async def play(agent: OtherEnd) -> None:
        await agent.asked("mcp_status")
        await agent.leave()

    async with agent_at(play) as transport, ClaudeSDKClient(transport=transport) as client:
        with pytest.raises(ClaudeSDKError):
            await client.get_mcp_status()


async def test_a_program_that_ends_at_once_is_told_by_connect(tmp_path: Any) -> None:
    client = ClaudeSDKClient(ClaudeAgentOptions(cli_path=make_program(tmp_path, "fails_at_the_start")))
    with pytest.raises(ClaudeSDKError):
        await client.connect()
    with pytest.raises(CLIConnectionError, match="Not connected"):
        await client.query("Hello")
    await client.disconnect()


async def test_whoever_waits_for_messages_is_let_go_when_it_is_disconnected() -> None:
    client = ClaudeSDKClient(transport=Simulator([say("one")]))
    await client.connect()
    await client.query("Go")
    received: list[list[Message]] = []
    got_result = anyio.Event()

    async def receive() -> None:
        messages: list[Message] = []
        async for message in client.receive_messages():
            messages.append(message)
            if isinstance(message, ResultMessage):
                got_result.set()
        received.append(messages)

    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(receive)
            await got_result.wait()
            await client.disconnect()
    assert texts(received[0]) == ["one"]


# What is left over with the reference.


async def test_connecting_again_ends_the_agent_before() -> None:
    with Simulator([say("one"), say("two")], executable=True) as agent:
        client = ClaudeSDKClient(started(agent))
        await client.connect()
        first = live_processes()
        await client.connect()
        assert len(live_processes()) == len(first) == 1
        assert live_processes() != first
        await client.query("Go")
        assert texts(await response(client)) == ["one"]
        await client.disconnect()
        assert live_processes() == []


async def test_a_block_that_is_cancelled_leaves_no_agent() -> None:
    with Simulator([hang()], executable=True) as agent:
        async with anyio.create_task_group() as tasks:

            async def talk() -> None:
                async with ClaudeSDKClient(started(agent)) as client:
                    await client.query("Go")
                    await response(client)

            tasks.start_soon(talk)
            await anyio.to_thread.run_sync(agent.wait_for_hang)
            tasks.cancel_scope.cancel()
        assert live_processes() == []


async def test_connecting_that_is_cancelled_leaves_no_agent(tmp_path: Any) -> None:
    client = ClaudeSDKClient(ClaudeAgentOptions(cli_path=make_program(tmp_path, "hangs_at_the_start")))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(client.connect)
        await anyio.to_thread.run_sync(wait_for, lambda: len(live_processes()) == 1)
        tasks.cancel_scope.cancel()
    assert live_processes() == []


async def test_a_client_that_is_dropped_ends_its_agent() -> None:
    with Simulator([hang()], executable=True) as agent:
        client = ClaudeSDKClient(started(agent))
        await client.connect()
        with pytest.warns(ResourceWarning, match="dropped without being closed"):
            del client
        await anyio.to_thread.run_sync(wait_for, lambda: not live_processes())


# Prompts.


async def test_what_is_no_prompt_is_refused_before_anything_is_started() -> None:
    given: Any = 5
    client = ClaudeSDKClient(ClaudeAgentOptions(cli_path="/nowhere/claude"))
    with pytest.raises(TypeError, match="prompt must be a text or an async iterable of messages, not 5"):
        await client.connect(given)


async def test_more_can_be_asked_after_prompts_were_streamed() -> None:
    async def prompts() -> AsyncGenerator[dict[str, Any]]:
        yield prompt("First")

    client = ClaudeSDKClient(transport=Simulator([say("one"), say("two")]))
    await client.connect(prompts())
    assert texts(await response(client)) == ["one"]
    await client.query("Second")
    assert texts(await response(client)) == ["two"]
    assert await client.get_mcp_status() == {"mcpServers": []}
    await client.disconnect()


@pytest.mark.parametrize("before", [0, 1])
async def test_prompts_that_fail_leave_the_client_connected(
    before: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def prompts() -> AsyncGenerator[dict[str, Any]]:
        for _ in range(before):
            yield prompt("First")
        raise RuntimeError("no more")

    client = ClaudeSDKClient(transport=Simulator([say("one"), say("two")]))
    await client.connect(prompts())
    if before:
        assert texts(await response(client)) == ["one"]
    await client.query("Another")
    assert texts(await response(client)) == ["two" if before else "one"]
    await client.disconnect()
    assert "no more" in caplog.text


async def test_an_error_of_prompts_is_raised_to_whoever_sends_them() -> None:
    async def prompts() -> AsyncGenerator[dict[str, Any]]:
        yield prompt("First")
        raise RuntimeError("no more")

    async with ClaudeSDKClient(transport=Simulator([say("one")])) as client:
        with pytest.raises(RuntimeError, match="no more"):
            await client.query(prompts())
        assert texts(await response(client)) == ["one"]


async def test_messages_that_are_sent_stay_as_they_are() -> None:
    message = prompt("First")

    async def prompts() -> AsyncGenerator[dict[str, Any]]:
        yield message

    agent = Simulator([say("one")])
    async with ClaudeSDKClient(transport=agent) as client:
        await client.query(prompts(), session_id="mine")
        await response(client)
    assert message == prompt("First")
    assert any(b'"session_id":"mine"' in line for line in agent.written)


# Receiving.


async def test_each_receiver_sees_all() -> None:
    received: list[list[Message]] = []
    async with ClaudeSDKClient(transport=Simulator([say("one"), say("two")])) as client:

        async def receive(task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
            task_status.started()
            received.append(await response(client))

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                await tasks.start(receive)
            await client.query("Go")
        await client.query("Go on")
        assert texts(await response(client)) == ["two"]
    assert [texts(messages) for messages in received] == [["one"]] * 3
    assert received[0] == received[1] == received[2]


async def test_receivers_one_after_the_other_lose_nothing() -> None:
    async def play(agent: OtherEnd) -> None:
        for text in ("one", "two", "three"):
            uuid = (await agent.prompt()).uuid or ""
            await agent.say(init(uuid), assistant(text), result(uuid), assistant(f"after {text}"))
        await agent.wait_ended()

    said: list[str] = []
    async with agent_at(play) as transport, ClaudeSDKClient(transport=transport) as client:
        for _ in range(3):
            await client.query("Go")
            said += texts(await response(client))
        async for message in client.receive_messages():
            said += texts([message])
            break
    assert said == ["one", "after one", "two", "after two", "three", "after three"]


async def test_a_receiver_that_is_left_is_gone_on_from() -> None:
    async with ClaudeSDKClient(transport=Simulator([say("one"), say("two")])) as client:
        await client.query("Go")
        async for message in client.receive_messages():
            if isinstance(message, AssistantMessage):
                break
        assert [type(message) for message in await response(client)] == [ResultMessage]


async def test_each_thing_can_be_done_in_a_task_of_its_own() -> None:
    client = ClaudeSDKClient(transport=Simulator([say("one")]))
    received: list[Message] = []

    async def receive() -> None:
        received.extend(await response(client))

    async def ask() -> None:
        await client.query("Go")

    for step in (client.connect, ask, receive, client.disconnect):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(step)
    assert texts(received) == ["one"]


async def test_the_end_of_the_program_is_raised_to_receivers(tmp_path: Any) -> None:
    client = ClaudeSDKClient(ClaudeAgentOptions(cli_path=make_program(tmp_path, "dies_in_a_turn")))
    await client.connect()
    await client.query("Go")
    with pytest.raises(ProcessError, match="exit code"):
        await everything(client)
    with pytest.raises(ClaudeSDKError):
        await client.get_mcp_status()
    await client.disconnect()


# Being connected, or not.


async def consume(messages: AsyncIterator[Message]) -> None:
    async for _ in messages:
        pass


METHODS: dict[str, Callable[[ClaudeSDKClient], Any]] = {
    "query": lambda client: client.query("x"),
    "receive_messages": lambda client: consume(client.receive_messages()),
    "receive_response": lambda client: consume(client.receive_response()),
    "interrupt": lambda client: client.interrupt(),
    "set_permission_mode": lambda client: client.set_permission_mode("plan"),
    "set_model": lambda client: client.set_model("opus"),
    "rewind_files": lambda client: client.rewind_files("x"),
    "reconnect_mcp_server": lambda client: client.reconnect_mcp_server("x"),
    "toggle_mcp_server": lambda client: client.toggle_mcp_server("x", True),
    "stop_task": lambda client: client.stop_task("x"),
    "get_mcp_status": lambda client: client.get_mcp_status(),
    "get_context_usage": lambda client: client.get_context_usage(),
    "get_server_info": lambda client: client.get_server_info(),
}


@every_case("name", METHODS)
async def test_a_client_that_is_not_connected_says_so(name: str) -> None:
    client = ClaudeSDKClient(transport=Simulator([say("x")]))
    for _ in range(2):
        with pytest.raises(CLIConnectionError, match=r"^Not connected. Call connect\(\) first.$"):
            await METHODS[name](client)
        await client.connect()
        await client.disconnect()
        await client.disconnect()
        client = ClaudeSDKClient(transport=Simulator([say("x")]))


async def test_a_client_can_be_used_again() -> None:
    with Simulator([say("one"), say("two")], executable=True) as agent:
        client = ClaudeSDKClient(started(agent))
        for text in ("one", "two"):
            async with client as entered:
                assert entered is client
                await client.query("Go")
                assert texts(await response(client)) == [text]
            assert live_processes() == []


async def test_what_is_refused_is_an_error_of_the_sdk() -> None:
    async with ClaudeSDKClient(transport=Simulator([say("x")])) as client:
        with pytest.raises(ClaudeSDKError, match="Server not found: none"):
            await client.reconnect_mcp_server("none")


# Callbacks.


def results(messages: list[Message]) -> list[bool]:
    """Whether each result of a tool is an error."""
    return [
        bool(block.is_error)
        for message in messages
        if isinstance(message, UserMessage) and not isinstance(message.content, str)
        for block in message.content
        if isinstance(block, ToolResultBlock)
    ]


async def tried(**fields: Any) -> list[bool]:
    """How a call of a tool ends that has to be asked for."""
    agent = Simulator([use_tool("Write", file_path="new.txt", content="x"), say("done")])
    client = ClaudeSDKClient(ClaudeAgentOptions(**fields), agent)
    await client.connect("Go")
    ended = results(await response(client))
    await client.disconnect()
    return ended


def plainly(name: str, given: dict[str, Any], context: Any) -> PermissionResultAllow:
    return PermissionResultAllow()


async def allows(name: str, given: dict[str, Any], context: Any) -> PermissionResultAllow:
    return PermissionResultAllow()


def hands_on(name: str, given: dict[str, Any], context: Any) -> Any:
    """Not async itself, but what it calls is."""
    return allows(name, given, context)


def plain_refusal(name: str, given: dict[str, Any], context: Any) -> PermissionResultDeny:
    return PermissionResultDeny(message="no")


async def fails(name: str, given: dict[str, Any], context: Any) -> NoReturn:
    raise RuntimeError("the callback broke")


async def answers_nonsense(name: str, given: dict[str, Any], context: Any) -> Any:
    return "yes"


@every_case(
    "decide,is_error",
    [(plainly, False), (hands_on, False), (plain_refusal, True), (fails, True), (answers_nonsense, True)],
)
async def test_permission_callbacks_need_not_be_async_and_may_fail(decide: Any, is_error: bool) -> None:
    assert await tried(can_use_tool=decide) == [is_error]


async def test_a_call_is_allowed_without_updates_that_claude_code_would_ignore(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def allows_for_ever(name: str, given: dict[str, Any], context: Any) -> PermissionResultAllow:
        return PermissionResultAllow(updated_permissions=[PermissionUpdate("addRules", behavior="allow")])

    assert await tried(can_use_tool=allows_for_ever) == [False]
    assert "allows_for_ever allowed Write without its updates" in caplog.text
    assert "needs `rules`" in caplog.text


async def silent(given: Any, tool_use_id: str | None, context: Any) -> None:
    assert given["hook_event_name"] == "PreToolUse"
    assert tool_use_id
    assert context == {"signal": None}


def plain_hook(given: Any, tool_use_id: str | None, context: Any) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "deny"}}


def misnamed_hook(given: Any, tool_use_id: str | None, context: Any) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": "PostToolUse", "permissionDecision": "deny"}}


@pytest.mark.parametrize("hook,is_error", [(silent, False), (plain_hook, True), (misnamed_hook, True)])
async def test_hooks_need_not_be_async_nor_say_anything(hook: Any, is_error: bool) -> None:
    hooks = {"PreToolUse": [HookMatcher(hooks=[hook])]}
    assert await tried(hooks=hooks, permission_mode="acceptEdits") == [is_error]


async def test_a_hook_that_guards_and_takes_too_long_refuses() -> None:
    async def late(given: Any, tool_use_id: str | None, context: Any) -> Any:
        await anyio.sleep_forever()

    hooks = {"PreToolUse": [HookMatcher(hooks=[late], timeout=0.01)]}
    assert await tried(hooks=hooks, permission_mode="acceptEdits") == [True]


async def test_a_callback_is_answered_while_nothing_is_read() -> None:
    asked = anyio.Event()

    async def decide(name: str, given: dict[str, Any], context: Any) -> PermissionResultAllow:
        asked.set()
        return PermissionResultAllow()

    async def play(agent: OtherEnd) -> None:
        uuid = (await agent.prompt()).uuid or ""
        await agent.say(init(uuid), *(stream_event(str(number)) for number in range(500)))
        await agent.ask("can_use_tool", tool_name="Bash", input={"command": "ls"}, tool_use_id="t")
        event = await agent.next()
        assert not isinstance(event, RequestReceived)
        await agent.say(result(uuid))
        await answer_everything(agent)

    options = ClaudeAgentOptions(can_use_tool=decide)
    async with agent_at(play) as transport, ClaudeSDKClient(options, transport) as client:
        await client.query("Go")
        with anyio.fail_after(SECONDS):
            await asked.wait()
        assert len(await response(client)) == 502
