"""The real program with a scripted model does what the script says."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread

import outrider
from outrider.errors import AgentNotFound, UsageError
from outrider.testing import (
    CREDIT_TOO_LOW,
    PROMPT_TOO_LONG,
    Gate,
    RealAgent,
    Request,
    Simulator,
    Step,
    answer,
    clean_environment,
    drop,
    expect,
    fail,
    hang,
    refuse,
    say,
    think,
    use_tool,
)
from outrider.transports import Transport
from outrider.wire import (
    AssistantMessage,
    InitMessage,
    ResultMessage,
    StreamEvent,
    TextBlock,
    ThinkingBlock,
    ToolUseBlock,
)
from outrider.wire.control import GenerateSessionTitle, Interrupt, SetModel
from tests.real_program import Conversation, require_program

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """One is enough: this is about the program, and it takes its time."""
    return "asyncio"


RETRIES = "CLAUDE_CODE_MAX_RETRIES"


def real_agent(*script: Any, **more: Any) -> RealAgent:
    return RealAgent(script, program=require_program(), **more)


def trusting(agent: RealAgent, **fields: Any) -> Conversation:
    return Conversation(agent.options(permission_mode="bypassPermissions", **fields))


def blocks(one: Conversation) -> list[Any]:
    return [block for event in one.received if isinstance(event, AssistantMessage) for block in event.content]


@pytest.mark.real
async def test_it_says_what_the_script_says() -> None:
    step = say("hel", "lo", usage={"input_tokens": 70, "output_tokens": 7})
    with real_agent(step, say("more"), say("too much")) as agent:
        async with Conversation(agent.options()) as one:
            first, second = await one.turn("hi"), await one.turn("go on")
        assert [result.result for result in (first, second)] == ["hello", "more"]
        assert first.usage is not None
        assert (first.usage.get("input_tokens"), first.usage.get("output_tokens")) == (70, 7)
        assert len(agent.api.main_requests) == 2
        assert len(agent.api.remaining) == 1
        (init, *_) = [event for event in one.received if isinstance(event, InitMessage)]
        assert init.data["cwd"] == str(agent.folder)
        assert any(agent.config_dir.rglob("*.jsonl")), "the session is kept in the agent's own folder"


@pytest.mark.real
async def test_it_runs_the_tools_of_the_script() -> None:
    command = use_tool("Bash", command="echo $((6 * 7)) | tee made", tool_use_id="toolu_mine")
    with real_agent(command, say("done")) as agent:
        async with trusting(agent) as one:
            result = await one.turn("calculate")
        assert result.result == "done"
        assert (agent.folder / "made").read_text() == "42\n"
        (outcome,) = agent.api.main_requests[1].tool_results
        assert (outcome["tool_use_id"], outcome["content"]) == ("toolu_mine", "42")


@pytest.mark.real
async def test_it_runs_several_tools_of_one_message() -> None:
    script = answer(say("both"), use_tool("Bash", command="echo 1"), use_tool("Bash", command="echo 2"))
    with real_agent(script, say("done")) as agent:
        async with trusting(agent) as one:
            await one.turn("go")
        used = [block for block in blocks(one) if isinstance(block, ToolUseBlock)]
        results = agent.api.main_requests[1].tool_results
    # They run at the same time: which ends first is chance.
    answers = {result["tool_use_id"]: result["content"] for result in results}
    assert [answers[block.id] for block in used] == ["1", "2"]


@pytest.mark.real
async def test_it_thinks() -> None:
    with real_agent(think("hm, ", "so", then=say("yes"))) as agent:
        async with Conversation(agent.options()) as one:
            await one.turn("think")
    thought, text = blocks(one)
    assert isinstance(thought, ThinkingBlock)
    assert (thought.thinking, text) == ("hm, so", TextBlock("yes"))


@pytest.mark.real
async def test_pieces_are_the_partial_messages() -> None:
    with real_agent(say("one ", "two ", "three")) as agent:
        async with Conversation(agent.options(include_partial_messages=True)) as one:
            await one.turn("count")
    events: list[Any] = [event.event for event in one.received if isinstance(event, StreamEvent)]
    texts = [event["delta"]["text"] for event in events if event["type"] == "content_block_delta"]
    assert texts == ["one ", "two ", "three"]


FAILURES = [
    (fail(400, message="no such thing"), "no such thing"),
    (fail(400, message=CREDIT_TOO_LOW), "Credit balance is too low"),
    (fail(401), "Invalid API key"),
    (fail(403), "may not use"),
    (fail(413), "too large"),
    (fail(429), "rate limit"),
    (fail(500), "Internal server error"),
    (fail(529), "529"),
    (fail(400, message=PROMPT_TOO_LONG), "too long"),
]


@pytest.mark.real
async def test_an_error_of_the_api_is_the_result() -> None:
    # The program tries some of them again in other ways: each is all that it gets, until the next turn.
    now = FAILURES[0][0]
    with real_agent(otherwise=lambda _: now) as agent:
        async with Conversation(agent.options(env={RETRIES: "0"})) as one:
            for now, text in FAILURES:
                result = await one.turn("hi")
                assert result.is_error, now
                assert result.api_error_status == now.status
                assert text.lower() in str(result.result).lower()


@pytest.mark.real
async def test_it_tries_again_after_what_may_pass() -> None:
    passing = [fail(429, retry_after=0), fail(529), fail(529, after="half"), drop(), drop(after="half a ")]
    with real_agent(*[step for it in passing for step in (it, say("whole"))]) as agent:
        async with Conversation(agent.options(env={RETRIES: "1"})) as one:
            for number, step in enumerate(passing, start=1):
                result = await one.turn("hi")
                assert (result.result, result.is_error) == ("whole", False), step
                assert len(agent.api.main_requests) == 2 * number, step


@pytest.mark.real
async def test_a_refusal_ends_the_turn() -> None:
    with real_agent(otherwise=refuse()) as agent:
        async with Conversation(agent.options()) as one:
            result = await one.turn("something bad")
    assert result.is_error
    assert result.stop_reason == "refusal"


@pytest.mark.real
async def test_a_function_sees_what_the_tools_gave() -> None:
    def repeat(request: Request) -> Step:
        return say(f"it is {request.tool_results[0]['content']}")

    with real_agent(use_tool("Bash", command="echo 42"), repeat) as agent:
        async with trusting(agent) as one:
            assert (await one.turn("calculate")).result == "it is 42"


@pytest.mark.real
async def test_a_subagent_has_a_script_of_its_own() -> None:
    start = use_tool("Agent", description="look", prompt="look there", run_in_background=False)
    subagents = [use_tool("Bash", command="echo seen"), say("I saw it")]
    with real_agent(start, say("done"), subagents=subagents) as agent:
        async with trusting(agent) as one:
            result = await one.turn("delegate")
        assert result.result == "done"
        kinds = [request.kind for request in agent.api.requests]
        assert kinds == ["main", "subagent", "subagent", "main"]
        assert agent.api.requests[1].agent_id
        assert agent.api.requests[2].tool_results[0]["content"] == "seen"
        assert "I saw it" in str(agent.api.main_requests[1].tool_results)


@pytest.mark.real
async def test_a_held_stream_can_be_interrupted() -> None:
    gate = Gate()
    with real_agent(say("one two three", gate=gate), say("next")) as agent:
        async with Conversation(agent.options(include_partial_messages=True)) as one:
            one.ask("count")
            await one.until(
                lambda event: isinstance(event, StreamEvent) and event.event["type"] == "content_block_delta"
            )
            await to_thread.run_sync(gate.wait_reached)
            await one.request(Interrupt())
            result = await one.until(lambda event: isinstance(event, ResultMessage))
            assert result.terminal_reason == "aborted_streaming"
            assert not gate.is_open
            assert (await one.turn("go on")).result == "next"


@pytest.mark.real
async def test_a_held_stream_goes_on_when_the_gate_opens() -> None:
    gate = Gate()
    with real_agent(say("one two", gate=gate)) as agent:
        async with Conversation(agent.options()) as one, anyio.create_task_group() as tasks:

            async def turn() -> None:
                assert (await one.turn("count")).result == "one two"

            tasks.start_soon(turn)
            await to_thread.run_sync(gate.wait_reached)
            gate.open()


@pytest.mark.real
async def test_what_hangs_can_be_interrupted_too() -> None:
    with real_agent(hang(), say("next")) as agent:
        async with Conversation(agent.options()) as one, anyio.create_task_group() as tasks:

            async def turn() -> None:
                assert (await one.turn("hi")).terminal_reason == "aborted_streaming"

            tasks.start_soon(turn)
            await anyio.to_thread.run_sync(agent.api.wait_for, 1)
            one.peer.request(Interrupt())
            await one.transport.send(one.peer.take_output())


@pytest.mark.real
async def test_side_requests_take_nothing_from_the_script() -> None:
    side: dict[Any, Any] = {"title": say('{"title": "Mine"}')}
    with real_agent(say("main"), side=side) as agent:
        async with Conversation(agent.options()) as one:
            title = await one.request(
                GenerateSessionTitle(description="Mend the parser of numbers", persist=False)
            )
            await one.request(SetModel("claude-made-up-1"))
            assert (await one.turn("hi")).result == "main"
        assert [request.kind for request in agent.api.requests] == ["title", "probe", "main"]
        assert "Mine" in str(title)
        assert agent.api.main_requests[0].body["model"] == "claude-made-up-1"


# The agent's place.


@pytest.mark.real
def test_options_are_added_to_those_of_the_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "of the user")
    with real_agent() as agent:
        options = agent.options(model="sonnet", env={"MINE": "1", "ANTHROPIC_API_KEY": "other"})
        assert (options.cli_path, options.cwd) == (agent.program, str(agent.folder))
        assert options.model == "sonnet"
        assert options.env == agent.environment | {"MINE": "1", "ANTHROPIC_API_KEY": "other"}
        assert options.env["ANTHROPIC_BASE_URL"] == agent.api.url
        assert options.env_policy.names == ("PATH",)
        assert agent.options(cwd="/").cwd == "/"


@pytest.mark.real
@pytest.mark.parametrize("isolation", ["inherit", "hermetic"])
async def test_a_hermetic_run_chooses_its_own_folders(isolation: Any) -> None:
    with real_agent(say("hello")) as agent:
        async with Conversation(agent.options(isolation=isolation)) as one:
            assert (await one.turn("hi")).result == "hello"
        assert any(agent.home.rglob("*.jsonl")) == (isolation == "inherit")


@pytest.mark.real
def test_its_folders_are_there_in_the_block_alone() -> None:
    agent = real_agent()
    with pytest.raises(UsageError, match="no folders yet"):
        _ = agent.folder
    with agent:
        root = agent.folder.parent
        assert list(agent.folder.iterdir()) == []
        assert agent.config_dir.is_dir()
        assert agent.program in repr(agent)
        with pytest.raises(UsageError, match="started already"):
            agent.start()
        assert root.is_dir()
    assert not root.exists()
    agent.close()


@pytest.mark.real
def test_what_a_function_raises_comes_out_of_the_block() -> None:
    agent = real_agent()
    with pytest.raises(KeyError), agent:
        agent.api._errors.append(KeyError())


@pytest.mark.real
def test_it_does_without_folders_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = real_agent()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    with pytest.raises(FileNotFoundError):
        agent.start()


@pytest.fixture
def a_program(tmp_path: Path) -> str:
    path = tmp_path / "agent"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


def test_the_program_is_the_one_given(a_program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTRIDER_TEST_AGENT", "/no/such/program")
    assert RealAgent(program=Path(a_program)).program == a_program


def test_a_variable_names_the_program(a_program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTRIDER_TEST_AGENT", a_program)
    assert RealAgent().program == a_program
    monkeypatch.setenv("OUTRIDER_TEST_AGENT", "/no/such/program")
    with pytest.raises(AgentNotFound, match="/no/such/program"):
        RealAgent()


def test_the_program_may_be_the_installed_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "claude"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    for name in ("OUTRIDER_TEST_AGENT", "CLAUDE_CODE_BUNDLED_CLI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert RealAgent().program == str(program)


def test_a_clean_environment_has_nothing_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "of the user")
    environment = clean_environment(tmp_path)
    assert "of the user" not in environment.values()
    assert environment["HOME"] == str(tmp_path)
    assert environment["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:9"


@pytest.mark.real
def test_it_stands_in_and_has_what_a_simulated_agent_has_for_tests() -> None:
    of_transports = {*dir(Transport), "again", "command", "executable_path", "returncode", "stderr_tail"}
    of_simulators = {name for name in dir(Simulator) if not name.startswith("_")} - of_transports
    assert of_simulators - set(dir(RealAgent)) == set()
    with RealAgent(program=require_program()) as agent, agent.stand_in():
        agent.add(expect(prompt="Hi"), say("Hello!"))
        # As code under test does it, which knows nothing of the agent.
        assert outrider.sync.run("Hi").text == "Hello!"
        assert agent.remaining == ()
        assert agent.main_requests[0].prompt == "Hi"
        assert (agent.config_dir / "projects").is_dir()
