"""The real program plays the words of a script as they are meant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import anyio
import pytest

import outrider
from outrider.testing import (
    ExpectationFailed,
    RealAgent,
    Request,
    Step,
    answer,
    ask_question,
    background_task,
    exit_plan_mode,
    expect,
    fail,
    hang,
    say,
    structured,
    subagent,
    use_tool,
    when,
)
from outrider.testing._api.requests import text_of
from outrider.wire import TextBlock
from tests.real_program import require_program

pytestmark = [pytest.mark.anyio, pytest.mark.real]

DEADLINE = 60.0


@pytest.fixture
def anyio_backend() -> str:
    """One is enough: this is about the program, and it takes its time."""
    return "asyncio"


def real_agent(*script: Any, **more: Any) -> RealAgent:
    return RealAgent(script, program=require_program(), **more)


@outrider.tool
async def lookup(ticket: int) -> str:
    """Look a ticket up."""
    return f"ticket {ticket} is Ada's"


@outrider.tool
async def broken(name: str) -> str:
    """Never works."""
    raise outrider.ToolFailed(f"no {name} today")


def prompts(agent: RealAgent) -> list[tuple[str, bool]]:
    return [(request.prompt, request.starts_turn) for request in agent.api.main_requests]


async def test_a_prompt_is_the_users_own_words() -> None:
    with real_agent(use_tool("Bash", command="true"), say("1"), say("2")) as agent:
        async with outrider.Session(agent.options(permission_mode="bypassPermissions")) as session:
            with anyio.fail_after(DEADLINE):
                await session.ask("First,\n<b>bold</b>")
                await session.ask([TextBlock("one"), TextBlock("two")])
        assert prompts(agent) == [
            ("First,\n<b>bold</b>", True),
            ("First,\n<b>bold</b>", False),
            ("one\ntwo", True),
        ]
        assert agent.api.requests[0].session_id == session.id


async def test_a_prompt_after_one_that_failed_is_alone() -> None:
    with real_agent(fail(403), say("2")) as agent:
        async with outrider.Session(agent.options()) as session:
            with anyio.fail_after(DEADLINE):
                with pytest.raises(outrider.ApiFailed):
                    await session.ask("first")
                await session.ask("second")
        assert prompts(agent) == [("first", True), ("second", True)]


async def test_a_prompt_after_an_interrupted_answer_is_alone() -> None:
    with real_agent(hang(), say("2")) as agent:
        async with outrider.Session(agent.options()) as session:
            with anyio.fail_after(DEADLINE):
                turn = await session.send("first")
                await anyio.to_thread.run_sync(agent.api.wait_for, 1)
                await interrupted(session, turn)
                await session.ask("second")
        assert prompts(agent) == [("first", True), ("second", True)]


async def test_a_prompt_after_an_interrupted_tool_is_alone() -> None:
    is_called = anyio.Event()

    @outrider.tool
    async def wait() -> str:
        """Wait for ever."""
        is_called.set()
        await anyio.sleep_forever()
        return "never"

    with real_agent(use_tool("wait"), say("2")) as agent:
        options = agent.options(permission_mode="bypassPermissions")
        async with outrider.Session(options, tools=[wait]) as session:
            with anyio.fail_after(DEADLINE):
                turn = await session.send("first")
                await is_called.wait()
                await interrupted(session, turn)
                await session.ask("second")
        assert prompts(agent) == [("first", True), ("second", True)]


async def interrupted(session: outrider.Session, turn: outrider.Turn) -> None:
    await session.interrupt()
    with pytest.raises(outrider.TurnInterrupted):
        await turn.result()


async def test_a_nudge_does_not_start_a_turn() -> None:
    script = when("Say", then=[say("no"), structured({"word": "yes"})])
    with real_agent(script) as agent:
        options = agent.options()
        async with outrider.Session(options, output={"type": "object", "required": ["word"]}) as session:
            with anyio.fail_after(DEADLINE):
                result = await session.ask("Say it")
        assert result.output == {"word": "yes"}
        assert prompts(agent) == [("Say it", True), ("Say it", False)]


async def test_turns_are_matched_by_their_prompt() -> None:
    script = [
        when("weather", then=[use_tool("Bash", command="echo sunny"), say("It is sunny.")]),
        when("fail", then=[fail(529), say("Better now.")]),
        say("Hello."),
    ]
    with real_agent(*script) as agent:
        async with outrider.Session(agent.options(permission_mode="bypassPermissions")) as session:
            with anyio.fail_after(DEADLINE):
                asked = ["How is the weather?", "Hi", "And the weather now?", "Please fail"]
                texts = [(await session.ask(prompt)).text for prompt in asked]
        assert texts == ["It is sunny.", "Hello.", "It is sunny.", "Better now."]


async def test_what_is_not_as_expected_fails_the_turn_and_the_block() -> None:
    agent = real_agent(expect(prompt="Hello"), say("never"))

    async def ask() -> None:
        with agent:
            async with outrider.Session(agent.options()) as session:
                with anyio.fail_after(DEADLINE), pytest.raises(outrider.ApiFailed, match="not as expected"):
                    await session.ask("Hi")

    with pytest.raises(ExpectationFailed, match=r"expected: Hello\n  actual:   Hi"):
        await ask()
    assert len(agent.api.main_requests) == 1


async def test_a_short_name_is_the_tool_of_a_server() -> None:
    script = [
        use_tool("lookup", ticket=7),
        expect(tool_result="Ada", is_error=False, tools=["lookup"]),
        use_tool("broken", name="luck"),
        expect(tool_result="no luck today", is_error=True),
        say("done"),
    ]
    with real_agent(*script) as agent:
        options = agent.options(permission_mode="bypassPermissions")
        async with outrider.Session(options, tools=[lookup, broken]) as session:
            with anyio.fail_after(DEADLINE):
                assert (await session.ask("Who?")).text == "done"


async def test_subagents_answer_with_their_own_steps() -> None:
    both = answer(
        subagent("Look left.", use_tool("Bash", command="echo l"), say("left done")),
        subagent("Look right.", say("right done"), description="Right", type="general-purpose"),
    )
    with real_agent(both, say("done"), subagents=[say("nobody's")]) as agent:
        async with outrider.Session(agent.options(permission_mode="bypassPermissions")) as session:
            with anyio.fail_after(DEADLINE):
                await session.ask("Look around.")
        # They run at the same time: which ends first is chance.
        results = sorted(text_of(result["content"]) for result in agent.api.main_requests[1].tool_results)
        assert ["left done" in result for result in results] in ([True, False], [False, True])
        assert ["right done" in result for result in results] in ([True, False], [False, True])


async def test_a_subagent_in_the_background_starts_a_turn_when_it_is_done() -> None:
    def told(request: Request) -> Step:
        return say("It is done." if "<task-notification>" in request.prompt else f"What? {request.prompt}")

    script = [subagent("Take your time.", say("I am ready."), background=True), say("Started."), told]
    with real_agent(*script) as agent:
        async with outrider.Session(agent.options(permission_mode="bypassPermissions")) as session:
            with anyio.fail_after(DEADLINE):
                assert (await session.ask("Start.")).text == "Started."
                await anyio.to_thread.run_sync(agent.api.wait_for, 3)
        assert "I am ready." in agent.api.main_requests[2].prompt
        assert agent.api.main_requests[2].starts_turn


async def test_a_command_in_the_background_is_started() -> None:
    with real_agent(
        background_task("echo out; exit 3"), expect(tool_result="running in background"), say("x")
    ) as agent:
        async with outrider.Session(agent.options(permission_mode="bypassPermissions")) as session:
            with anyio.fail_after(DEADLINE):
                await session.ask("Start.")
                await anyio.to_thread.run_sync(agent.api.wait_for, 3)
        assert "<task-notification>" in agent.api.main_requests[2].prompt


async def test_a_question_reaches_the_user() -> None:
    asked: list[Any] = []

    async def choose(question: outrider.Question) -> str:
        asked.append(question)
        return "Tea"

    step = ask_question("What to drink?", {"Tea": "hot", "Juice": "cold"}, header="Drink")
    with real_agent(step, expect(tool_result="Tea"), say("So be it.")) as agent:
        async with outrider.Session(agent.options(), on_question=choose) as session:
            with anyio.fail_after(DEADLINE):
                assert (await session.ask("Ask me.")).text == "So be it."
    assert "What to drink?" in repr(asked)


async def test_a_plan_reaches_the_user() -> None:
    plans: list[Any] = []

    async def look(request: Any) -> Any:
        plans.append(request.tool_input)
        return outrider.allow()

    script = [exit_plan_mode("1. Do it."), expect(tool_result="approved"), say("Done.")]
    with real_agent(*script) as agent:
        async with outrider.Session(agent.options(permission_mode="plan"), permission=look) as session:
            with anyio.fail_after(DEADLINE):
                assert (await session.ask("Plan it.")).text == "Done."
    assert [plan["plan"] for plan in plans] == ["1. Do it."]


@dataclass
class Owner:
    name: str
    tickets: list[int]


async def test_an_answer_has_the_form_that_was_asked_for() -> None:
    with real_agent(structured(Owner("Ada", [7])), structured([1, 2]), say("not needed")) as agent:
        options = agent.options()
        with anyio.fail_after(DEADLINE):
            assert (await outrider.run("Who?", options=options, output=Owner)).output == Owner("Ada", [7])
            assert (await outrider.run("Which?", options=options, output=list[int])).output == [1, 2]
        assert len(agent.api.remaining) == 1


async def test_an_automatic_script_tries_every_tool_of_the_users() -> None:
    automatic: Any = None
    with RealAgent(automatic, program=require_program()) as agent:
        options = agent.options(permission_mode="bypassPermissions")
        with anyio.fail_after(DEADLINE):
            async with outrider.Session(options, tools=[lookup, broken]) as session:
                first, second = await session.ask("Try them."), await session.ask("And now?")
            one = await outrider.run("Who?", options=options, tools=[lookup], output=Owner)
    assert first.text.splitlines() == [
        "mcp__tools__broken failed: no text today",
        "mcp__tools__lookup gave: ticket 1 is Ada's",
    ]
    assert second.text == "You said: And now?"
    assert one.output == Owner("text", [1])


async def test_a_model_that_is_not_there_is_told() -> None:
    with real_agent(otherwise=fail(404)) as agent:
        async with outrider.Session(agent.options(env={"CLAUDE_CODE_MAX_RETRIES": "0"})) as session:
            with anyio.fail_after(DEADLINE), pytest.raises(outrider.ApiFailed, match="404"):
                await session.ask("Hi")


async def test_the_input_of_a_tool_may_be_streamed_in_chunks() -> None:
    step = answer(use_tool("Bash", command="echo in pieces"), chunks=5, delay=0.01)
    with real_agent(step, expect(tool_result="in pieces"), say("done")) as agent:
        options = agent.options(permission_mode="bypassPermissions", include_partial_messages=True)
        pieces: list[str] = []
        async with outrider.Session(options) as session:
            with anyio.fail_after(DEADLINE):
                async for message in await session.send("go"):
                    if isinstance(message, outrider.StreamEvent):
                        delta: Any = message.event.get("delta", {})
                        pieces += [delta["partial_json"]] if "partial_json" in delta else []
    assert len(pieces) == 5
    assert "".join(pieces) == '{"command": "echo in pieces"}'
