"""What goes wrong in programs for the drop-in, or in the agent, is neither lost nor made worse."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from outrider.compat import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    ClaudeSDKError,
    CLIConnectionError,
    Message,
    PermissionResultAllow,
    ProcessError,
    ResultError,
    ResultMessage,
    ToolResultBlock,
    Transport,
    UserMessage,
    query,
)
from outrider.compat._options import translated_options
from outrider.testing import Simulator, say, use_tool
from tests.cases import every_case
from tests.compat.test_query import Tape
from tests.session.other_end import OtherEnd, assistant, init, result
from tests.session.surroundings import agent_at, make_program
from tests.transports.conftest import nothing_is_left

__all__ = ["nothing_is_left"]

pytestmark = pytest.mark.anyio

SECONDS = 40.0


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def collect(messages: AsyncIterator[Message], received: list[Message]) -> None:
    with anyio.fail_after(SECONDS):
        async for message in messages:
            received.append(message)  # noqa: PERF401 - what came before an error counts


# Permission.


def answering(answer: object) -> Any:
    async def decide(name: str, given: dict[str, Any], context: Any) -> Any:
        return answer

    return decide


@pytest.mark.parametrize(
    "answer,is_error",
    [
        (PermissionResultAllow(), False),
        (True, True),
        ({"behavior": "allow"}, True),
        ({"behavior": "allow", "updatedInput": {}}, True),
        ("allow", True),
        (None, True),
    ],
    ids=["an allowance", "True", "dict", "dict with input", "text", "None"],
)
async def test_nothing_but_an_allowance_allows(
    answer: object, is_error: bool, caplog: pytest.LogCaptureFixture
) -> None:
    agent = Simulator([use_tool("Write", file_path="new.txt", content="x"), say("done")])
    received: list[Message] = []
    options = ClaudeAgentOptions(can_use_tool=answering(answer))
    await collect(query(prompt="Go", options=options, transport=agent), received)
    ended = [
        block.is_error
        for message in received
        if isinstance(message, UserMessage) and not isinstance(message.content, str)
        for block in message.content
        if isinstance(block, ToolResultBlock)
    ]
    assert [bool(each) for each in ended] == [is_error]
    assert ("answering.<locals>.decide failed to decide about Write" in caplog.text) is is_error
    assert ("Tool permission callback must return PermissionResult" in caplog.text) is is_error


# Prompts.


def prompt(content: object) -> dict[str, Any]:
    return {"type": "user", "message": {"role": "user", "content": content}}


UNSENDABLE: dict[str, Any] = {
    "None": None,
    "another frame": {"type": "keep_alive"},
    "a request": {"type": "control_request", "request_id": "1", "request": {"subtype": "interrupt"}},
    "no text": prompt(b"bytes"),
    "no JSON": prompt([{"type": "text", "text": "x", "more": object()}]),
}


@every_case("before", [0, 1])
@every_case("name", UNSENDABLE)
async def test_a_prompt_that_cannot_be_sent_is_told_when_those_before_it_are_answered(
    name: str, before: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.clear()

    async def prompts() -> AsyncGenerator[dict[str, Any]]:
        for _ in range(before):
            yield prompt("One")
        yield UNSENDABLE[name]

    received: list[Message] = []
    with pytest.raises(ClaudeSDKError):
        await collect(query(prompt=prompts(), transport=Simulator([say("Uno.")])), received)
    results = [message for message in received if isinstance(message, ResultMessage)]
    assert [message.result for message in results] == ["Uno."] * before
    assert "the iterable of prompts failed" in caplog.text


async def test_a_prompt_with_the_id_of_another_is_told() -> None:
    answered = anyio.Event()

    async def prompts() -> AsyncGenerator[dict[str, Any]]:
        yield {**prompt("One"), "uuid": "5e551011-0000-4000-8000-00000000aaaa"}
        await answered.wait()
        yield {**prompt("Two"), "uuid": "5e551011-0000-4000-8000-00000000aaaa"}

    async def read() -> None:
        async for message in query(prompt=prompts(), transport=Simulator([say("Uno.")])):
            if isinstance(message, ResultMessage):
                answered.set()

    with pytest.raises(ClaudeSDKError, match="was sent before"), anyio.fail_after(SECONDS):
        await read()


async def test_no_prompts_at_all_are_no_error() -> None:
    async def prompts() -> AsyncGenerator[dict[str, Any]]:
        for _ in range(0):
            yield {}

    received: list[Message] = []
    await collect(query(prompt=prompts(), transport=Simulator([say("Uno.")])), received)
    assert received == []


# Beginning.


class Slow(Simulator):
    """Takes as long to connect as it is let."""

    def __init__(self) -> None:
        super().__init__([say("Uno.")])
        self.is_asked, self.may_go_on = anyio.Event(), anyio.Event()

    async def connect(self) -> None:
        self.is_asked.set()
        await self.may_go_on.wait()
        await super().connect()


async def test_a_prompt_is_sent_once_whoever_asks_for_messages() -> None:
    agent = Slow()
    messages = query(prompt="Go", transport=agent)
    received: list[Message] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(collect, messages, received)
        await agent.is_asked.wait()
        with pytest.raises(RuntimeError, match="already running"):
            await anext(messages)
        agent.may_go_on.set()
    assert isinstance(received[-1], ResultMessage)
    assert len(agent.requests) == 1


async def test_a_run_that_is_closed_while_it_begins_sends_nothing() -> None:
    agent = Slow()
    messages = query(prompt="Go", transport=agent)
    assert isinstance(messages, AsyncGenerator)
    received: list[Message] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(collect, messages, received)
        await agent.is_asked.wait()
        await messages.aclose()
        agent.may_go_on.set()
    assert received == []
    assert agent.requests == []


# Long runs.


async def test_a_run_may_be_longer_than_what_may_be_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outrider.session._connection.conversation.BUDGET", 100_000)
    monkeypatch.setattr("outrider.session._connection.conversation.CEILING", 1_000_000)
    text = "x" * 10_000

    async def play(agent: OtherEnd) -> None:
        uuid = (await agent.prompt()).uuid or ""
        await agent.say(init(uuid))
        for _ in range(400):
            await agent.say(assistant(text))
        await agent.say(result(uuid))
        await agent.wait_ended()
        await agent.leave()

    count = 0
    async with agent_at(play) as transport:
        with anyio.fail_after(SECONDS):
            async for _ in query(prompt="Go", transport=transport):
                count += 1
    assert count == 402


async def test_nothing_is_kept_for_receivers_that_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outrider.session._connection.conversation.BUDGET", 10_000)
    monkeypatch.setattr("outrider.session._connection.conversation.CEILING", 100_000)
    receivers: list[AsyncIterator[Message]] = []
    agent = Simulator([say("x" * 30_000)] * 10)
    async with ClaudeSDKClient(transport=agent) as client:
        for _ in range(10):
            await client.query("Go")
            receivers.append(client.receive_response())
            received: list[Message] = []
            await collect(receivers[-1], received)
            assert isinstance(received[-1], ResultMessage)


async def test_a_receiver_that_is_closed_while_it_waits_is_done() -> None:
    async with ClaudeSDKClient(transport=Simulator([say("one")])) as client:
        receiver: Any = client.receive_messages()
        received: list[Message] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(collect, receiver, received)
            await anyio.lowlevel.checkpoint()
            await receiver.aclose()
            await client.query("Go")
        assert received == []
        # Nothing is lost for the next one.
        await collect(client.receive_response(), received)
        assert [type(message).__name__ for message in received][-2:] == ["AssistantMessage", "ResultMessage"]


# Ends.


async def test_a_program_that_is_gone_cannot_be_written_to(tmp_path: Path) -> None:
    client = ClaudeSDKClient(ClaudeAgentOptions(cli_path=make_program(tmp_path, "fails_in_a_turn")))
    await client.connect("Go")
    with pytest.raises(ProcessError, match="exit code 1"):
        await collect(client.receive_messages(), [])
    for write in (lambda: client.query("More"), client.interrupt, client.get_mcp_status):
        with pytest.raises(CLIConnectionError, match=r"^Cannot write to terminated process \(exit code: 1\)"):
            await write()
    await client.disconnect()


async def test_an_error_result_does_not_explain_the_crash_of_the_turn_after_it() -> None:
    failed = result(subtype="error_during_execution", is_error=True, errors=["out of paper"])
    tape = Tape(init(), failed, init(), error=ProcessError("Command failed", exit_code=4))
    with pytest.raises(ProcessError) as caught:
        await collect(query(prompt="Go", transport=tape), [])
    assert not isinstance(caught.value, ResultError)
    assert caught.value.exit_code == 4


class Torn(Exception):
    pass


class Brittle(Transport):
    """Cannot be read, and be closed only once."""

    def __init__(self) -> None:
        self.closed = 0

    async def connect(self) -> None:
        pass

    async def write(self, data: str) -> None:
        pass

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        for _ in range(0):
            yield {}
        raise Torn("in two")

    async def end_input(self) -> None:
        pass

    async def close(self) -> None:
        self.closed += 1
        assert self.closed == 1

    def is_ready(self) -> bool:
        return not self.closed


async def test_a_transport_is_closed_once(caplog: pytest.LogCaptureFixture) -> None:
    transport = Brittle()
    with pytest.raises(Torn, match="in two"):
        await collect(query(prompt="Go", transport=transport), [])
    assert transport.closed == 1
    assert caplog.text == ""


class Unreachable:
    """A store that cannot be read."""

    def __init__(self, *, answers: bool) -> None:
        self._answers = answers

    async def append(self, key: Any, entries: list[Any]) -> None:
        pass

    async def load(self, key: Any) -> None:
        if not self._answers:
            await anyio.sleep_forever()
        raise OSError("no route")


@pytest.mark.parametrize(
    "answers,said", [(True, r"load\(\) failed.*no route"), (False, r"load\(\) timed out after 10ms")]
)
async def test_a_store_that_fails_is_told_as_the_reference_does(answers: bool, said: str) -> None:
    store: Any = Unreachable(answers=answers)
    options = ClaudeAgentOptions(
        session_store=store,
        resume="5e551011-0000-4000-8000-00000000aaaa",
        load_timeout_ms=10,
        cli_path="/nowhere/claude",
    )
    with pytest.raises(RuntimeError, match=said):
        await collect(query(prompt="Go", options=options), [])


# Options.


def test_what_the_program_says_needs_no_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    tell = translated_options(ClaudeAgentOptions()).stderr
    assert tell is not None
    monkeypatch.setattr("sys.stderr", None)
    tell("out of cheese")


def test_no_folder_is_the_current_one() -> None:
    assert translated_options(ClaudeAgentOptions(cwd="")).cwd is None
