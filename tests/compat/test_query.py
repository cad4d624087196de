"""`query` of the drop-in: it ends when it is left, tells what went wrong, and loses nothing."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import aclosing, suppress
from typing import Any, cast

import anyio
import pytest

from outrider.compat import (
    AgentDefinition,
    AssistantMessage,
    ClaudeAgentOptions,
    CLIConnectionError,
    CLIJSONDecodeError,
    CLINotFoundError,
    Message,
    ProcessError,
    ResultError,
    ResultMessage,
    SystemMessage,
    TextBlock,
    Transport,
    query,
)
from outrider.testing import Gate, Simulator, fail, hang, say
from outrider.transports import live_processes
from outrider.wire import UnknownBlock
from tests.cases import every_case
from tests.session.other_end import OtherEnd, assistant, init, result
from tests.session.surroundings import agent_at
from tests.transports.conftest import nothing_is_left, wait_for

__all__ = ["nothing_is_left"]

pytestmark = pytest.mark.anyio

SECONDS = 40.0


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def started(agent: Simulator, **fields: Any) -> ClaudeAgentOptions:
    """Options that start the simulator as a program."""
    native = agent.options()
    return ClaudeAgentOptions(cli_path=native.cli_path, env=dict(native.env), cwd=agent.folder, **fields)


def running(**given: Any) -> AsyncGenerator[Message]:
    messages = query(**given)
    assert isinstance(messages, AsyncGenerator)
    return messages


async def collected(messages: AsyncIterator[Message]) -> list[Message]:
    received: list[Message] = []
    await collect(messages, received)
    return received


async def collect(messages: AsyncIterator[Message], received: list[Message]) -> None:
    with anyio.fail_after(SECONDS):
        async for message in messages:
            received.append(message)  # noqa: PERF401 - what came before an error counts


def texts(messages: list[Message]) -> list[str]:
    return [
        block.text
        for message in messages
        if isinstance(message, AssistantMessage)
        for block in message.content
        if isinstance(block, TextBlock)
    ]


# Leaving.


async def leave_with_aclosing(messages: AsyncGenerator[Message]) -> None:
    async with aclosing(messages):
        async for _ in messages:
            break


async def leave_by_an_error(messages: AsyncGenerator[Message]) -> None:
    async with aclosing(messages):
        await anext(messages)
        raise ZeroDivisionError


async def leave_by_throwing(messages: AsyncGenerator[Message]) -> None:
    await anext(messages)
    await messages.athrow(ZeroDivisionError())


async def leave_from_another_task(messages: AsyncGenerator[Message]) -> None:
    async with anyio.create_task_group() as tasks:
        await anext(messages)
        tasks.start_soon(messages.aclose)


LEAVING = (leave_with_aclosing, leave_by_an_error, leave_by_throwing, leave_from_another_task)


@pytest.mark.parametrize("leave", LEAVING)
async def test_the_agent_is_gone_when_its_messages_are_closed(leave: Callable[..., Any]) -> None:
    with Simulator([hang()], executable=True) as agent:
        messages = query(prompt="Hello", options=started(agent))
        with suppress(ZeroDivisionError):
            await leave(messages)
        assert live_processes() == []
        assert await collected(messages) == []


async def test_the_agent_ends_when_a_loop_is_left() -> None:
    with Simulator([say("Hello")], executable=True) as agent:
        async for _ in query(prompt="Hello", options=started(agent)):
            assert len(live_processes()) == 1
            break
        await anyio.to_thread.run_sync(wait_for, lambda: not live_processes())


async def test_the_agent_is_gone_when_whoever_waits_for_it_is_cancelled() -> None:
    with Simulator([hang()], executable=True) as agent:
        messages = query(prompt="Hello", options=started(agent))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(collected, messages)
            await anyio.to_thread.run_sync(agent.wait_for_hang)
            tasks.cancel_scope.cancel()
        assert live_processes() == []
        assert await collected(messages) == []


# Trio knows no task that gives up a step and goes on.
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_agent_ends_when_a_step_is_never_gone_on_with() -> None:
    gate = Gate()
    agent = Simulator([say("Hello", gate=gate)])
    messages = running(prompt="Hello", transport=agent)
    await anext(messages)
    step = cast("Coroutine[Any, Any, object]", anext(messages))
    step.send(None)
    step.close()
    gate.open()
    await anyio.to_thread.run_sync(wait_for, lambda: not agent.is_ready)
    assert await collected(messages) == []


async def test_nothing_is_started_before_a_message_is_asked_for() -> None:
    messages = query(prompt="Hello", options=ClaudeAgentOptions(cli_path="/nowhere/claude"))
    with pytest.raises(CLINotFoundError, match="Claude Code not found at: /nowhere/claude"):
        await anext(messages)
    assert await collected(messages) == []


async def test_agents_may_be_dicts() -> None:
    agents: Any = {"plain": {"description": "A dict", "prompt": "Be one"}, "usual": AgentDefinition("a", "b")}
    received = await collected(
        query(prompt="Go", transport=Simulator([say("x")]), options=ClaudeAgentOptions(agents=agents))
    )
    assert isinstance(received[0], SystemMessage)
    assert {"plain", "usual"} <= {*received[0].data["agents"]}


@pytest.mark.parametrize(
    "fields", [{"agents": {"a": 5}}, {"hooks": {"Stop": "x"}}, {"can_use_tool": 5}], ids=str
)
async def test_what_cannot_work_starts_nothing(fields: dict[str, Any]) -> None:
    with Simulator([say("Hello")], executable=True) as agent:
        with pytest.raises((TypeError, ValueError)):
            await collected(query(prompt="Hello", options=started(agent, **fields)))
        assert live_processes() == []
        assert agent.requests == []


# Prompts.


@every_case("given", [5, None, [{"type": "user"}], b"text"], ids=str)
async def test_what_is_no_prompt_starts_nothing(given: Any) -> None:
    with Simulator([say("Hello")], executable=True) as agent:
        with pytest.raises(TypeError, match="prompt must be a text or an async iterable of messages, not"):
            await collected(query(prompt=given, options=started(agent)))
        assert live_processes() == []


async def test_no_prompts_at_all_end_the_run() -> None:
    async def prompts() -> AsyncGenerator[dict[str, Any]]:
        for _ in range(0):
            yield {}

    assert await collected(query(prompt=prompts(), transport=Simulator([say("x")]))) == []


def prompt(text: str) -> dict[str, Any]:
    return {"type": "user", "message": {"role": "user", "content": text}}


async def test_prompts_that_fail_at_once_end_the_run_with_their_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def prompts() -> AsyncGenerator[dict[str, Any]]:
        for _ in range(0):
            yield {}
        raise RuntimeError("none at all")

    received: list[Message] = []
    with pytest.raises(RuntimeError, match="none at all"):
        await collect(query(prompt=prompts(), transport=Simulator([say("x")])), received)
    assert received == []
    assert "the iterable of prompts failed" in caplog.text


async def test_prompts_that_fail_later_let_the_turn_end_first() -> None:
    async def prompts() -> AsyncGenerator[dict[str, Any]]:
        yield prompt("One")
        raise RuntimeError("no second one")

    received: list[Message] = []
    with pytest.raises(RuntimeError, match="no second one"):
        await collect(query(prompt=prompts(), transport=Simulator([say("Uno.")])), received)
    assert texts(received) == ["Uno."]
    assert isinstance(received[-1], ResultMessage)


async def test_prompts_can_wait_for_answers() -> None:
    answered = anyio.Event()

    async def prompts() -> AsyncGenerator[dict[str, Any]]:
        yield prompt("One")
        await answered.wait()
        yield prompt("Two")

    received: list[Message] = []
    async for message in query(prompt=prompts(), transport=Simulator([say("Uno."), say("Due.")])):
        received.append(message)
        if isinstance(message, ResultMessage):
            answered.set()
    assert texts(received) == ["Uno.", "Due."]


async def test_prompts_that_never_end_are_closed_with_the_run() -> None:
    closed = anyio.Event()

    async def prompts() -> AsyncGenerator[dict[str, Any]]:
        try:
            yield prompt("One")
            await anyio.sleep_forever()
        finally:
            closed.set()

    async with aclosing(running(prompt=prompts(), transport=Simulator([say("Uno.")]))) as messages:
        async for message in messages:
            if isinstance(message, ResultMessage):
                break
    with anyio.fail_after(10):
        await closed.wait()


# Frames.


async def played(*frames: dict[str, Any] | bytes, **fields: Any) -> list[Message]:
    """What comes of a run in which these frames come between the beginning and the end of a turn."""

    async def play(agent: OtherEnd) -> None:
        uuid = (await agent.prompt()).uuid or ""
        await agent.say(init(uuid))
        for frame in frames:
            await agent.write(frame if isinstance(frame, bytes) else json.dumps(frame).encode() + b"\n")
        await agent.say(assistant("the end"), result(uuid))
        await agent.wait_ended()
        await agent.leave()

    async with agent_at(play) as transport:
        return await collected(query(prompt="Go", transport=transport, options=ClaudeAgentOptions(**fields)))


def said(*blocks: Any) -> dict[str, Any]:
    frame = assistant("")
    frame["message"]["content"] = list(blocks)
    return frame


BROKEN: dict[str, dict[str, Any] | bytes] = {
    "thinking without signature": said({"type": "thinking", "thinking": "hm"}),
    "request without id": {"type": "control_request", "request": {"subtype": "can_use_tool"}},
    "mirror without anything": {"type": "transcript_mirror"},
    "block that is a text": said("plain"),
    "invalid UTF-8": b'{"type":"system","subtype":"note","text":"\xff"}\n',
    "no JSON": b"[SandboxDebug] hello\n",
    "cut": b'{"type":"assistant","mess\n',
    "no object": b"[1, 2]\n",
    "blank": b"  \n\n",
}


@every_case("name", BROKEN)
async def test_a_broken_frame_is_not_the_end(name: str) -> None:
    received = await played(BROKEN[name])
    assert texts(received)[-1] == "the end"
    assert isinstance(received[-1], ResultMessage)


async def test_blocks_of_kinds_that_are_not_known_are_kept() -> None:
    unknown = {"type": "hologram", "depth": 3}
    received = await played(said(unknown, {"type": "text", "text": "and a text"}))
    first = next(message for message in received if isinstance(message, AssistantMessage))
    assert [type(block) is TextBlock for block in first.content] == [False, True]
    assert isinstance(first.content[0], UnknownBlock)
    assert first.content[0].raw == unknown


async def test_a_message_may_be_larger_than_a_megabyte() -> None:
    text = "x" * (3 * 2**20)
    assert texts(await played(assistant(text))) == [text, "the end"]


async def test_a_limit_that_is_set_is_kept_to() -> None:
    with pytest.raises(CLIJSONDecodeError, match="JSON message exceeded maximum buffer size of 50000 bytes"):
        await played(assistant("x" * 100_000), max_buffer_size=50_000)


# Ends.


async def test_an_error_result_is_given_and_then_raised() -> None:
    received: list[Message] = []
    agent = Simulator([fail(403, message="no thanks")], environment={"CLAUDE_CODE_MAX_RETRIES": "0"})
    with pytest.raises(
        ResultError, match=r"Claude Code returned an error result: .*no thanks.*exit code: 1"
    ) as caught:
        await collect(query(prompt="Go", transport=agent), received)
    assert isinstance(received[-1], ResultMessage)
    assert caught.value.exit_code == 1
    assert caught.value.session_id == received[-1].session_id
    assert isinstance(caught.value, ProcessError)


class Tape(Transport):
    """A transport of a user's: answers each request, and each prompt with frames; then ends as told."""

    def __init__(self, *frames: dict[str, Any], error: Exception | None = None, answers: bool = True) -> None:
        self._frames, self._error, self._answers = frames, error, answers
        self._send, self._receive = anyio.create_memory_object_stream[dict[str, Any]](1000)
        self.is_closed = False

    async def connect(self) -> None:
        pass

    async def write(self, data: str) -> None:
        message = json.loads(data)
        if message["type"] == "control_request":
            if self._answers:
                answer = {"subtype": "success", "request_id": message["request_id"], "response": {}}
                await self._send.send({"type": "control_response", "response": answer})
            else:
                self._send.close()
        elif message["type"] == "user":
            for frame in self._frames:
                await self._send.send(frame)
            if self._error is not None:
                self._send.close()

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        async for message in self._receive:
            yield message
        if self._error is not None:
            raise self._error

    async def end_input(self) -> None:
        self._send.close()

    async def close(self) -> None:
        self.is_closed = True
        self._send.close()
        self._receive.close()

    def is_ready(self) -> bool:
        return not self.is_closed


class Torn(Exception):
    pass


async def test_an_error_of_a_transport_keeps_its_type() -> None:
    tape = Tape(init(), assistant("so far"), error=Torn("in two"))
    received: list[Message] = []
    with pytest.raises(Torn, match="in two"):
        await collect(query(prompt="Go", transport=tape), received)
    assert texts(received) == ["so far"]
    assert tape.is_closed


@pytest.mark.parametrize("is_error", [True, False])
async def test_the_end_of_a_transport_is_told_by_the_result_before_it(is_error: bool) -> None:
    last = result(subtype="error_during_execution", is_error=is_error, errors=["out of paper"])
    tape = Tape(init(), last, {"type": "keep_alive"}, error=ProcessError("Command failed", exit_code=4))
    with pytest.raises(ProcessError) as caught:
        await collected(query(prompt="Go", transport=tape))
    assert caught.value.exit_code == 4
    assert isinstance(caught.value, ResultError) is is_error
    assert ("out of paper" in str(caught.value)) is is_error


async def test_a_transport_that_ends_while_something_is_asked_fails_at_once() -> None:
    tape = Tape(answers=False)
    with pytest.raises(CLIConnectionError):
        await collected(query(prompt="Go", transport=tape))
    assert tape.is_closed


async def test_a_transport_that_ends_well_ends_the_run() -> None:
    tape = Tape(init(), assistant("all"), result())
    assert texts(await collected(query(prompt="Go", transport=tape))) == ["all"]
    assert tape.is_closed


class Stubborn(Tape):
    """Does not stop reading when it is closed."""

    async def end_input(self) -> None:
        pass

    async def close(self) -> None:
        self.is_closed = True


async def test_a_transport_that_goes_on_after_it_was_closed_holds_nobody_up() -> None:
    tape = Stubborn(init(), assistant("all"))
    async with aclosing(running(prompt="Go", transport=tape)) as messages:
        async for message in messages:
            if isinstance(message, AssistantMessage):
                break
    assert tape.is_closed
    await Tape.close(tape)


async def test_what_a_transport_reads_with_is_closed_with_it() -> None:
    class Reading(Tape):
        is_read_out = False

        async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
            try:
                async for message in super().read_messages():
                    yield message
            finally:
                self.is_read_out = True

    tape = Reading(init(), assistant("all"))
    async with aclosing(running(prompt="Go", transport=tape)) as messages:
        await anext(messages)
    assert tape.is_read_out


# Beside each other.


async def test_runs_go_on_beside_each_other_and_inside_each_other() -> None:
    gate = Gate()
    outer: list[Message] = []
    async for message in query(prompt="Outer", transport=Simulator([say("slow", gate=gate)])):
        if not outer:
            assert texts(await collected(query(prompt="In", transport=Simulator([say("fast")])))) == ["fast"]
            gate.open()
        outer.append(message)
    assert texts(outer) == ["slow"]
