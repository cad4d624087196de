"""Sessions: what a user of Outrider sees is the same, whichever agent it is.

What is beneath, frame by frame, is in `test_frames`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeAlias

import anyio
import pytest
from anyio import to_thread

from outrider.errors import (
    ApiFailed,
    LimitReached,
    OptionsError,
    OutputInvalid,
    RequestFailed,
    SessionNotFound,
    TurnInterrupted,
)
from outrider.handlers import Hook, PermissionRequest, allow, deny
from outrider.session import Session
from outrider.testing import (
    SIMULATED_VERSION,
    Gate,
    Request,
    Step,
    answer,
    fail,
    hang,
    refuse,
    say,
    think,
    use_tool,
)
from outrider.wire import (
    AssistantMessage,
    CommandLifecycleMessage,
    InitMessage,
    ResultMessage,
    StreamEvent,
    UserMessage,
)
from scripts.agent_program import version
from tests.conformance.agents import ACTORS, Actor, acting
from tests.conformance.host import DEADLINE

pytestmark = pytest.mark.anyio

Playing: TypeAlias = Callable[..., AbstractAsyncContextManager[tuple[Actor, Session]]]

RETRIES = "CLAUDE_CODE_MAX_RETRIES"
SCHEMA = {"type": "object", "properties": {"total": {"type": "integer"}}, "required": ["total"]}


@pytest.fixture(params=ACTORS)
def playing(request: pytest.FixtureRequest) -> Playing:
    """A session with one of the agents, which follows a script."""

    @asynccontextmanager
    async def play(*script: Any, **fields: Any) -> AsyncGenerator[tuple[Actor, Session]]:
        fields = {"permission_mode": "bypassPermissions"} | fields
        with acting(request.param, script, subagents=fields.pop("subagents", ())) as actor:
            with anyio.fail_after(DEADLINE):
                async with Session(actor.options(**fields)) as session:
                    yield actor, session

    return play


def told(actor: Actor) -> list[Any]:
    """What the model was given as results of tools."""
    return [block["content"] for request in actor.requests for block in request.tool_results]


def text_of(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def kinds(result: Any, *besides: type) -> list[str]:
    """The messages of a turn that are about what is said."""
    told = (InitMessage, AssistantMessage, UserMessage, ResultMessage, *besides)
    return [type(message).__name__ for message in result.messages if isinstance(message, told)]


# What is said.


async def test_a_text_comes_with_all_that_belongs_to_it(playing: Playing) -> None:
    async with playing(say("hello"), say("again"), model="haiku") as (actor, session):
        result = await session.ask("hi")
        assert (result.text, result.is_success, result.num_turns) == ("hello", True, 1)
        assert (result.stop_reason, result.terminal_reason) == ("end_turn", "completed")
        assert kinds(result) == ["InitMessage", "AssistantMessage", "ResultMessage"]
        assert result.session_id == session.id == session.info.session_id
        assert session.info.cwd == str(actor.folder)
        assert session.info.permission_mode == "bypassPermissions"
        assert session.info.version in (SIMULATED_VERSION, version())
        assert session.info.model is not None
        assert session.info.model.startswith("claude-haiku")
        assert {"Bash", "Read", "Write", "Edit"} <= set(session.info.tools)
        again = await session.ask("hi")
        assert again.text == "again"
        assert again.session_id == result.session_id


async def test_usage_and_cost_add_up(playing: Playing) -> None:
    script = [say("one", usage={"input_tokens": 1000, "output_tokens": 200}), say("two")]
    async with playing(*script) as (_, session):
        first, second = await session.ask("a"), await session.ask("b")
        assert (first.usage.input_tokens, first.usage.output_tokens) == (1000, 200)
        assert (second.usage.input_tokens, second.usage.output_tokens) == (10, 5)
        assert session.usage == first.usage + second.usage
        assert first.cost_usd > second.cost_usd > 0
        assert second.message is not None
        assert second.message.total_cost_usd == pytest.approx(session.usage.cost_usd)
        assert list(session.usage.by_model) == [session.info.model]


async def test_an_answer_comes_in_pieces(playing: Playing) -> None:
    script = answer(think("hm"), say("one ", "two ", "three"))
    async with playing(script, include_partial_messages=True) as (_, session):
        turn = await session.send("count")
        pieces = [message.text async for message in turn if isinstance(message, StreamEvent) and message.text]
        assert pieces == ["one ", "two ", "three"]
        result = await turn.result()
        assert result.text == "one two three"
        thoughts = [message.thinking for message in result.messages if isinstance(message, AssistantMessage)]
        assert thoughts == ["hm", ""]


# Tools.


async def test_built_in_tools_work_in_the_folder(playing: Playing) -> None:
    script = [
        use_tool("Write", file_path="note.txt", content="one\n"),
        use_tool("Bash", command="cat note.txt; echo two >> note.txt"),
        use_tool("Read", file_path="note.txt"),
        use_tool("Bash", command="exit 4"),
        say("done"),
    ]
    async with playing(*script) as (actor, session):
        result = await session.ask("go")
        assert (result.text, result.num_turns) == ("done", 5)
        assert (actor.folder / "note.txt").read_text() == "one\ntwo\n"
        assert kinds(result) == [
            "InitMessage",
            *["AssistantMessage", "UserMessage"] * 4,
            "AssistantMessage",
            "ResultMessage",
        ]
        assert [text_of(content) for content in told(actor)[1:]] == [
            "one",
            "1\tone\n2\ttwo\n3\t",
            "Exit code 4",
        ]


async def test_tools_of_this_process_are_called(playing: Playing, caplog: pytest.LogCaptureFixture) -> None:
    # The log keeps what was raised, with all that was there at the time: descriptors too.
    caplog.set_level("CRITICAL", logger="outrider")
    calls: list[int] = []

    def double(number: int) -> int:
        """Twice as much."""
        calls.append(number)
        return number * 2

    def fails() -> str:
        """Never works."""
        raise ValueError("of the user's")

    script = [
        answer(use_tool("mcp__tools__double", number=4), use_tool("mcp__tools__fails")),
        use_tool("mcp__tools__double", number="many"),
        say("done"),
    ]
    async with playing(*script, tools=[double, fails]) as (actor, session):
        result = await session.ask("go")
        assert result.text == "done"
        assert calls == [4]
        assert {"mcp__tools__double", "mcp__tools__fails"} <= set(session.info.tools)
        first, second, third = (text_of(content) for content in told(actor))
        assert first == "8"
        assert "of the user's" in second
        assert "number" in third
        blocks = [block for request in actor.requests for block in request.tool_results]
        assert [bool(block.get("is_error")) for block in blocks] == [False, True, True]
        (server,) = await session.mcp_status()
        assert (server.name, server.status) == ("tools", "connected")


# Who is asked.


async def test_a_permission_callback_decides(playing: Playing) -> None:
    asked: list[tuple[str, Any]] = []
    answers = [allow(), deny("not this"), allow({"command": "echo instead"})]

    async def permission(request: PermissionRequest) -> Any:
        asked.append((request.tool_name, dict(request.tool_input)))
        return answers.pop(0)

    script = [step for name in "abc" for step in (use_tool("Bash", command=f"touch {name}"), say("done"))]
    async with playing(*script, permission=permission, permission_mode="default") as (actor, session):
        results = [await session.ask("go") for _ in range(3)]
        assert asked == [("Bash", {"command": f"touch {name}"}) for name in "abc"]
        assert sorted(path.name for path in actor.folder.glob("?")) == ["a"]
        assert [len(result.permission_denials) for result in results] == [0, 1, 0]
        assert text_of(told(actor)[1]) == "not this"
        assert text_of(told(actor)[2]) == "instead"


async def test_hooks_see_and_decide(playing: Playing) -> None:
    seen: list[Any] = []

    async def before(input: Any) -> Any:
        seen.append(input)
        return deny("no writing") if input.tool_name == "Write" else None

    async def after(input: Any) -> Any:
        seen.append(input)
        return None

    async def prompted(input: Any) -> Any:
        seen.append(input)
        return deny("not that word") if "secret" in input.prompt else None

    hooks = [Hook(before, "PreToolUse"), Hook(after, "PostToolUse"), Hook(prompted, "UserPromptSubmit")]
    script = [use_tool("Write", file_path="x", content=""), use_tool("Bash", command="echo hi"), say("done")]
    async with playing(*script, hooks=hooks) as (actor, session):
        result = await session.ask("go")
        assert result.text == "done"
        assert [input.hook_event_name for input in seen] == [
            *("UserPromptSubmit", "PreToolUse", "PreToolUse", "PostToolUse"),
        ]
        assert all(input.session_id == session.id and input.cwd == str(actor.folder) for input in seen)
        assert seen[2].tool_input == {"command": "echo hi"}
        assert seen[3].tool_response["stdout"] == "hi"
        assert "no writing" in text_of(told(actor)[0])
        assert [denial["tool_name"] for denial in result.permission_denials] == ["Write"]
        blocked = await session.ask("a secret")
        assert "not that word" in blocked.text
        assert blocked.num_turns == 0
        assert len(actor.requests) == 3


async def test_a_question_is_answered(playing: Playing) -> None:
    question = {
        "question": "Which colour?",
        "header": "Colour",
        "multiSelect": False,
        "options": [{"label": "Red", "description": "Warm"}, {"label": "Blue", "description": "Cold"}],
    }

    async def questions(request: Any) -> Any:
        return "Blue"

    script = [use_tool("AskUserQuestion", questions=[question]), say("done")]
    async with playing(*script, on_question=questions, permission_mode="default") as (actor, session):
        await session.ask("go")
        assert '"Which colour?"="Blue"' in text_of(told(actor)[0])


# What can be asked for.


async def test_output_has_the_form_that_was_asked_for(playing: Playing) -> None:
    script = [use_tool("StructuredOutput", total="many"), use_tool("StructuredOutput", total=7)]
    output = {"type": "json_schema", "schema": SCHEMA}
    async with playing(*script, *[say("only words")] * 2, output_format=output) as (actor, session):
        assert (await session.ask("add")).output == {"total": 7}
        assert "must be integer" in text_of(told(actor)[0])
        with pytest.raises(OutputInvalid):
            await session.ask("add")


async def test_the_model_and_the_mode_can_be_changed(playing: Playing) -> None:
    async with playing(say("one"), say("two"), permission_mode="default", model="opus") as (actor, session):
        assert (await session.set_model("haiku")).startswith("claude-haiku")
        assert await session.set_permission_mode("acceptEdits") == "acceptEdits"
        await session.ask("a")
        assert session.info.permission_mode == "acceptEdits"
        assert str(session.info.model).startswith("claude-haiku")
        assert str(actor.requests[0].body["model"]).startswith("claude-haiku")
        with pytest.raises(RequestFailed, match="no_such_request"):
            await session.request("no_such_request")
        usage = await session.context_usage()
        assert usage.max_tokens > usage.total_tokens > 0


# What goes wrong.


@pytest.mark.parametrize(
    "step, status, kind, retryable",
    [
        pytest.param(fail(403), 403, "authentication_failed", False, id="403"),
        pytest.param(fail(429, retry_after=0), 429, "rate_limit", True, id="429"),
        pytest.param(fail(529), 529, "overloaded", True, id="529"),
        pytest.param(refuse(), None, "refusal", False, id="refusal"),
    ],
)
async def test_a_failure_is_told_by_its_kind(
    playing: Playing, step: Any, status: int | None, kind: str, retryable: bool
) -> None:
    # The program tries some of them again in other ways, which it does not tell.
    async with playing(*[step] * 6, env={RETRIES: "0"}) as (_, session):
        with pytest.raises(ApiFailed) as caught:
            await session.ask("hi")
        error = caught.value
        assert (error.status, error.kind, error.retryable) == (status, kind, retryable)
        assert error.session_id == session.id


async def test_limits_end_a_turn(playing: Playing) -> None:
    async with playing(use_tool("Bash", command="true"), say("next"), max_turns=1) as (_, session):
        with pytest.raises(LimitReached) as caught:
            await session.ask("work")
        assert (caught.value.kind, caught.value.limit) == ("max_turns", 1)
        assert (await session.ask("go on")).text == "next"


async def test_a_turn_can_be_stopped_while_the_model_is_asked(playing: Playing) -> None:
    gate = Gate(after=0)
    async with playing(say("one two", gate=gate), say("next")) as (_, session):
        turn = await session.send("count")
        await to_thread.run_sync(gate.wait_reached)
        receipt = await turn.cancel()
        assert receipt.outcome == "cancelled"
        assert receipt.result is not None
        assert receipt.result.terminal_reason == "aborted_streaming"
        with pytest.raises(TurnInterrupted) as caught:
            await turn.result()
        assert caught.value.session_id == session.id
        assert (await session.ask("go on")).text == "next"


async def test_a_turn_can_be_stopped_right_behind_its_prompt(playing: Playing) -> None:
    def model(request: Request) -> Step:
        # Whether a cancelled prompt gets to it is a matter of chance.
        return say("next") if "go on" in str(request.messages) else hang()

    async with playing(model, model) as (_, session):
        turn = await session.send("first")
        assert (await turn.cancel()).outcome == "cancelled"
        with pytest.raises(TurnInterrupted):
            await turn.result()
        assert (await session.ask("go on")).text == "next"


async def test_prompts_queue_up(playing: Playing) -> None:
    gate = Gate()
    async with playing(say("one", gate=gate), say("two")) as (actor, session):
        first = await session.send("a")
        second = await session.send("b")
        gate.open()
        assert (await first.result()).text == "one"
        result = await second.result()
        assert result.text == "two"
        states = [
            message.state for message in result.messages if isinstance(message, CommandLifecycleMessage)
        ]
        assert states[-1:] in (["completed"], ["started"], [])
        assert len(actor.requests) == 2


# Sessions that are gone on with.


@pytest.mark.parametrize("agent", ACTORS)
async def test_a_session_is_gone_on_with(agent: str) -> None:
    with (
        acting(agent, [say("one"), say("two"), say("three"), say("four")]) as actor,
        anyio.fail_after(DEADLINE),
    ):
        async with Session(actor.options()) as session:
            await session.ask("first prompt")
            began = session.id
        async with Session(actor.options(resume=began)) as session:
            assert (await session.ask("second prompt")).session_id == began
        async with Session(actor.options(resume=began, fork_session=True)) as session:
            assert (await session.ask("third prompt")).session_id != began
        async with Session(actor.options(continue_conversation=True)) as session:
            assert (await session.ask("fourth prompt")).text == "four"
        assert ["first prompt" in str(request.messages) for request in actor.requests] == [True] * 4
        assert ["second prompt" in str(request.messages) for request in actor.requests[1:3]] == [True] * 2


@pytest.mark.parametrize("agent", ACTORS)
async def test_a_session_that_is_not_there_is_named(agent: str) -> None:
    with acting(agent) as actor, anyio.fail_after(DEADLINE), pytest.raises(SessionNotFound):
        await Session(actor.options(resume="00000000-0000-4000-8000-000000000000")).connect()


@pytest.mark.parametrize("agent", ACTORS)
async def test_a_flag_that_means_nothing_is_told_of(agent: str) -> None:
    told = pytest.raises(OptionsError, match="does not know `--no-such-flag`")
    with acting(agent) as actor, anyio.fail_after(DEADLINE), told:
        await Session(actor.options(extra_args={"no-such-flag": None})).connect()


# Beside the turn.


async def test_a_subagent_tells_whose_it_is(playing: Playing) -> None:
    call = use_tool(
        "Agent",
        description="Look",
        prompt="look around",
        subagent_type="general-purpose",
        run_in_background=False,
    )
    own = (use_tool("Bash", command="echo hi"), say("found it"))
    async with playing(call, say("all done"), subagents=own) as (actor, session):
        result = await session.ask("go")
        assert result.text == "all done"
        inner = [
            message
            for message in result.messages
            if isinstance(message, AssistantMessage) and message.parent_tool_use_id
        ]
        (outer,) = [
            block.id
            for message in result.messages
            if isinstance(message, AssistantMessage)
            for block in message.tool_uses
            if block.name == "Agent"
        ]
        assert [message.parent_tool_use_id for message in inner] == [outer]
        assert "found it" in text_of(told(actor)[-1])


async def test_a_command_in_the_background_wakes_the_model(playing: Playing) -> None:
    script = [
        use_tool("Bash", command="echo hi", run_in_background=True),
        say("it has begun"),
        say("it is over"),
    ]
    async with playing(*script) as (_, session):
        # Before: what comes together with the first result would be over when that is there.
        everything = aiter(session)
        turn = await session.send("go")
        result = await turn.result()
        assert result.text in ("it has begun", "it is over")
        async for message in everything:
            if isinstance(message, ResultMessage) and message.result == "it is over":
                break
