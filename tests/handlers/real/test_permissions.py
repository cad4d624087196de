"""Permissions, questions, plans, forms and policies with the real program."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread

from outrider.errors import Denied
from outrider.handlers import (
    Answer,
    ElicitationHandled,
    ElicitationRequest,
    PermissionHandled,
    PermissionRequest,
    Plan,
    Policy,
    Question,
    QuestionReply,
    accept,
    allow,
    ask,
    cancel,
    decline,
    deny,
    hook,
)
from outrider.options import StdioServer
from outrider.session import Result, Session
from outrider.testing import RealAgent, answer, say, use_tool
from outrider.wire import StatusMessage
from outrider.wire.permissions import PermissionUpdate
from outrider.wire.tools import BashInput
from tests.handlers.real import eliciting_server
from tests.session.real.talking import talking

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("A10")]

TURN: ContextVar[str] = ContextVar("TURN", default="no turn")
SERVER = StdioServer(command=sys.executable, args=(str(Path(eliciting_server.__file__)),))


class Decides:
    """A callback that says what it is told to, and keeps what it was asked."""

    def __init__(self, answer: Any = None) -> None:
        self.answer = answer
        self.asked: list[Any] = []
        self.began = anyio.Event()
        self.was_cancelled = False

    async def __call__(self, request: Any) -> object:
        self.asked.append(request)
        said = self.answer(request) if callable(self.answer) else self.answer
        if isinstance(said, BaseException):
            raise said
        return said

    async def wait(self, request: Any) -> object:
        """The same, but for ever."""
        self.asked.append(request)
        self.began.set()
        try:
            await anyio.sleep_forever()
        finally:
            self.was_cancelled = True
        return True


def makes(name: str) -> Any:
    return use_tool("Bash", command=f"echo made > {name}")


async def turn(session: Session, text: str = "go") -> Result[Any]:
    return await session.ask(text, check=False)


def told(agent: RealAgent) -> str:
    """What the model was told of its last tool call."""
    return json.dumps(agent.api.main_requests[-1].tool_results[-1]["content"], ensure_ascii=False)


@asynccontextmanager
async def reported(session: Session) -> AsyncGenerator[list[Any]]:
    """What is reported meanwhile; complete after the block."""
    following, events = session.handled(), list[Any]()

    async def follow() -> None:
        async for event in following:
            events.append(event)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow)
        yield events
        await session.close()


async def test_each_answer_does_what_it_says(caplog: pytest.LogCaptureFixture) -> None:
    decides = Decides()
    names = [f"f{number}" for number in range(9)]
    script = [step for name in names for step in (makes(name), say("done"))]
    async with (
        talking(*script, permission=decides, permission_mode="default") as (agent, session),
        reported(session) as events,
    ):

        def made(name: str) -> bool:
            return (agent.folder / name).exists()

        decides.answer = True
        TURN.set("the first")
        await turn(session)
        assert made("f0")
        request = decides.asked[0]
        assert isinstance(request, PermissionRequest)
        assert request.tool == BashInput(command="echo made > f0")
        assert (request.session.id, request.turn is not None) == (session.id, True)
        assert request.blocked_path == str(agent.folder / "f0")
        assert {update.type for update in request.suggestions} >= {"addRules"}

        decides.answer = deny("Not in this folder")
        result = await turn(session)
        assert (made("f1"), "Not in this folder" in told(agent)) == (False, True)
        assert [denial["tool_name"] for denial in result.permission_denials] == ["Bash"]

        decides.answer = allow({"command": "echo instead > other"})
        await turn(session)
        assert (made("f2"), made("other")) == (False, True)

        decides.answer = allow().with_changes(command="echo changed > another")
        await turn(session)
        assert (made("f3"), made("another")) == (False, True)

        decides.answer = ValueError("the password is 1234")
        await turn(session)
        assert not made("f4")
        assert "The host failed to decide about this (ValueError)" in told(agent)
        assert "1234" not in told(agent)

        decides.answer = ask()
        await turn(session)
        assert (made("f5"), "no valid decision" in told(agent)) == (False, True)

        decides.answer = None
        await turn(session)
        assert (made("f6"), "no valid decision" in told(agent)) == (False, True)

        decides.answer = {"behavior": "allow", "updated_input": {"command": "ls"}}
        await turn(session)
        assert not made("f7")

        decides.answer = Denied("Raised")
        await turn(session)
        assert (made("f8"), "Raised" in told(agent)) == (False, True)
        assert len(decides.asked) == 9
    decisions = [event.decision for event in events if isinstance(event, PermissionHandled)]
    assert decisions == ["allow", "deny", "allow", "allow", "deny", "deny", "deny", "deny", "deny"]
    assert [record.levelno for record in caplog.records if record.name == "outrider.session"] == [
        logging.ERROR
    ] * 4


async def test_a_callback_runs_in_the_context_of_its_turn() -> None:
    seen: list[str] = []

    def permission(_: PermissionRequest) -> bool:
        seen.append(TURN.get())
        return True

    script = [step for name in "ab" for step in (makes(name), say("done"))]
    async with talking(*script, permission=permission, permission_mode="default") as (_, session):
        for name in ("first", "second"):
            TURN.set(name)
            await turn(session)
    assert seen == ["first", "second"]


async def test_updates_make_the_next_question_unnecessary() -> None:
    decides = Decides()
    script = [step for name in ("a", "b", "c") for step in (makes(name), say("done"))]
    async with talking(*script, permission=decides, permission_mode="default") as (agent, session):
        decides.answer = allow(updates=[PermissionUpdate(type="setMode", mode="acceptEdits")])
        result = await turn(session)
        modes = [each.permission_mode for each in result.messages if isinstance(each, StatusMessage)]
        assert "acceptEdits" in modes
        await turn(session)
        assert len(decides.asked) == 1
        assert (agent.folder / "b").exists()


async def test_a_denial_can_end_the_turn_and_the_session_goes_on() -> None:
    decides = Decides(deny("Enough", interrupt=True))
    async with talking(makes("a"), say("again"), permission=decides, permission_mode="default") as (
        agent,
        session,
    ):
        result = await turn(session)
        assert result.terminal_reason == "aborted_tools"
        assert not (agent.folder / "a").exists()
        assert (await turn(session)).text == "again"


@pytest.mark.smoke
async def test_several_are_asked_at_once() -> None:
    inside, all_in = 0, anyio.Event()
    paths: list[str] = []

    async def permission(request: PermissionRequest) -> bool:
        nonlocal inside
        inside += 1
        paths.append(request.tool_input["file_path"])
        if inside == 3:
            all_in.set()
        await all_in.wait()
        return bool(paths[0] != request.tool_input["file_path"])

    names = ("hostname", "hosts", "group")
    reads = [use_tool("Read", file_path=f"/etc/{name}") for name in names]
    async with talking(answer(*reads), say("done"), permission=permission, permission_mode="default") as (
        agent,
        session,
    ):
        await turn(session)
        results = agent.api.main_requests[-1].tool_results
        assert sorted(paths) == ["/etc/group", "/etc/hostname", "/etc/hosts"]
        assert sorted(bool(result.get("is_error")) for result in results) == [False, False, True]


async def test_an_interrupt_cancels_the_callback() -> None:
    decides = Decides()
    async with (
        talking(makes("a"), say("again"), permission=decides.wait, permission_mode="default") as (
            agent,
            session,
        ),
        reported(session) as events,
    ):
        sent = await session.send("go")
        await decides.began.wait()
        assert session.state.value == "waiting"
        assert (await sent.cancel()).outcome == "cancelled"
        assert decides.was_cancelled
        assert decides.asked[0].is_cancelled
        assert not (agent.folder / "a").exists()
        assert (await turn(session)).text == "again"
    (event,) = [each for each in events if isinstance(each, PermissionHandled)]
    assert (event.outcome, event.decision) == ("cancelled", "deny")


async def test_to_close_the_session_cancels_the_callback() -> None:
    decides = Decides()
    async with talking(makes("a"), permission=decides.wait, permission_mode="default") as (agent, session):
        await session.send("go")
        await decides.began.wait()
        await session.close()
        assert decides.was_cancelled
        assert not (agent.folder / "a").exists()


@pytest.mark.parametrize("winner", ["hook", "callback"])
async def test_a_hook_and_the_callback_are_asked_at_once_and_the_first_to_decide_counts(winner: str) -> None:
    decides, hooked = Decides(), anyio.Event()

    @hook("PermissionRequest")
    async def on_request(_: object) -> Answer | None:
        hooked.set()
        if winner == "callback":
            # It is not withdrawn when the callback has decided, so it has to come to an end by itself.
            await decides.began.wait()
            return None
        return deny("The hook says no")

    async def permission(request: PermissionRequest) -> object:
        if winner == "hook":
            return await decides.wait(request)
        await hooked.wait()
        decides.began.set()
        return True

    async with talking(
        makes("a"), say("done"), permission=permission, hooks=[on_request], permission_mode="default"
    ) as (agent, session):
        assert (await turn(session)).text == "done"
        assert (agent.folder / "a").exists() is (winner == "callback")
        assert decides.was_cancelled is (winner == "hook")
        assert ("The hook says no" in told(agent)) is (winner == "hook")


# Questions and plans.

QUESTIONS: list[dict[str, Any]] = [
    {
        "question": "Which library?",
        "header": "Library",
        "options": [{"label": "httpx", "description": "New"}, {"label": "aiohttp", "description": "Old"}],
        "multiSelect": False,
    },
    {
        "question": "Which checks?",
        "header": "Checks",
        "options": [{"label": "types", "description": "T"}, {"label": "lint", "description": "L"}],
        "multiSelect": True,
    },
]


async def test_questions_are_answered_one_by_one() -> None:
    given: list[Any] = []
    put: list[Question] = []

    def on_question(question: Question) -> object:
        put.append(question)
        said = given[question.index]
        if isinstance(said, Exception):
            raise said
        return said

    script = [
        step for _ in range(6) for step in (use_tool("AskUserQuestion", questions=QUESTIONS), say("done"))
    ]
    # Also where the agent may do all else without asking.
    async with talking(*script, on_question=on_question) as (agent, session):

        async def model_is_told(*answers: Any) -> str:
            given[:] = answers
            await turn(session)
            return told(agent).replace('\\"', "'")

        assert "'Which library?'='httpx', 'Which checks?'='types, lint'" in await model_is_told(
            "httpx", ["types", "lint"]
        )
        assert "'Which library?'='urllib3, I think'" in await model_is_told("urllib3, I think", "lint")
        assert "did not answer" in await model_is_told(None, None)
        assert "notes: but pinned" in await model_is_told(QuestionReply("httpx", "but pinned"), None)
        assert "no valid decision" in await model_is_told(["httpx", "aiohttp"], "lint")
        assert "Nobody is here" in await model_is_told("httpx", Denied("Nobody is here"))
    assert [question.text for question in put[:2]] == ["Which library?", "Which checks?"]
    assert put[1].labels == ("types", "lint")


def writes_plan(request: Any) -> Any:
    """The model writes its plan to the file that it was told of."""
    (path,) = set(re.findall(r"(/[^\s\"'`\\]+/plans/[\w-]+\.md)", json.dumps(request.body)))
    return use_tool("Write", file_path=path, content="# Plan\n1. Write it\n")


async def test_a_plan_is_sent_back_and_then_approved() -> None:
    said: list[Any] = ["Add a rollback step", deny("Still none"), allow(updates=[])]
    plans: list[Plan] = []

    async def on_plan(plan: Plan) -> object:
        plans.append(plan)
        return said[len(plans) - 1]

    async def nobody(request: PermissionRequest) -> bool:
        raise AssertionError(f"asked about {request.tool_name}")

    script = [writes_plan, *[use_tool("ExitPlanMode")] * 3, say("done")]
    async with talking(*script, on_plan=on_plan, permission=nobody, permission_mode="plan") as (
        agent,
        session,
    ):
        assert (await turn(session)).text == "done"
        results = [request.tool_results[-1]["content"] for request in agent.api.main_requests[2:]]
    assert "Add a rollback step" in str(results[0])
    assert "Still none" in str(results[1])
    assert "approved" in str(results[2])
    assert [plan.text for plan in plans] == ["# Plan\n1. Write it\n"] * 3
    assert plans[0].path is not None


# What servers ask.


async def test_forms_and_pages_of_a_server_are_answered(caplog: pytest.LogCaptureFixture) -> None:
    decides = Decides()
    answers: list[tuple[str, Any, Any]] = [
        ("form", {"name": "Ann", "age": 3}, {"action": "accept", "content": {"name": "Ann", "age": 3}}),
        ("form", accept({"name": "Ann"}), {"action": "accept", "content": {"name": "Ann"}}),
        ("form", None, {"action": "decline"}),
        ("form", decline(), {"action": "decline"}),
        ("form", cancel(), {"action": "cancel"}),
        ("form", {"name": "Ann", "colour": "blue"}, {"action": "cancel"}),
        ("form", {}, {"action": "cancel"}),
        ("form", ValueError("what went wrong"), {"action": "cancel"}),
        ("page", True, {"action": "accept"}),
        ("page", False, {"action": "decline"}),
    ]
    script = [step for kind, *_ in answers for step in (use_tool(f"mcp__s__{kind}"), say("done"))]
    async with (
        talking(*script, mcp_servers={"s": SERVER}, on_elicitation=decides) as (agent, session),
        reported(session) as events,
    ):
        for _, said, wire in answers:
            decides.answer = said
            await turn(session)
            content = agent.api.main_requests[-1].tool_results[-1]["content"]
            assert json.loads(content[0]["text"]) == wire
    form, page = decides.asked[0], decides.asked[-1]
    assert isinstance(form, ElicitationRequest)
    assert (form.server, form.message, form.mode) == ("s", "Who are you?", "form")
    assert [(field.name, field.type, field.required) for field in form.fields] == [
        ("name", "string", True),
        ("age", "integer", False),
        ("colour", "choice", False),
    ]
    assert (page.mode, page.url, page.id) == ("url", "https://example.invalid/login", "e1")
    assert [event.action for event in events if isinstance(event, ElicitationHandled)] == [
        wire["action"] for _, _, wire in answers
    ]
    assert "'colour' must be one of" in caplog.text
    assert "what went wrong" in caplog.text


async def test_a_form_is_declined_where_nobody_fills_it_in() -> None:
    script = (use_tool("mcp__s__form"), say("done"))
    async with talking(*script, mcp_servers={"s": SERVER}) as (agent, session):
        await turn(session)
        assert '\\"decline\\"' in told(agent)


async def test_a_form_that_is_left_open_is_withdrawn_by_an_interrupt() -> None:
    decides = Decides()
    script = (use_tool("mcp__s__form"), say("again"))
    async with talking(*script, mcp_servers={"s": SERVER}, on_elicitation=decides.wait) as (_, session):
        sent = await session.send("go")
        await decides.began.wait()
        assert (await sent.cancel()).outcome == "cancelled"
        assert decides.was_cancelled


# Policies.


async def test_a_policy_decides_what_the_agent_asks() -> None:
    asked: list[str] = []

    def otherwise(request: PermissionRequest) -> bool:
        asked.append(request.tool_input["command"])
        return False

    policy = Policy.of(
        {"deny": "Bash", "command": "rm *", "reason": "Nothing is removed here."},
        {"allow": "Bash", "command": "awk *"},
        {"allow": "Write", "path": "src/**"},
        {"deny": "Write"},
        otherwise=otherwise,
    )
    calls = [
        use_tool("Bash", command="awk 'BEGIN { print 6 * 7 }'"),
        use_tool("Bash", command="awk 'BEGIN { print 1 }' > out; rm -rf src"),
        use_tool("Bash", command="awk 'BEGIN { print 2 }' > out"),
        use_tool("Write", file_path="src/a.py", content="x"),
        use_tool("Write", file_path="b.py", content="x"),
        use_tool("Write", file_path="src/link/c.py", content="x"),
    ]
    async with talking(*calls, say("done"), permission=policy, permission_mode="default") as (agent, session):
        (agent.folder / "src").mkdir()
        (agent.folder / "src" / "link").symlink_to(agent.folder)
        await turn(session)
        results = [request.tool_results[-1] for request in agent.api.main_requests[1:]]
        texts = [json.dumps(result["content"]) for result in results]
        assert "42" in texts[0]
        assert "Nothing is removed here." in texts[1]
        assert results[2]["is_error"]
        assert (agent.folder / "src" / "a.py").exists()
        assert "does not allow this use of Write" in texts[4]
        assert "does not allow this use of Write" in texts[5]
        assert sorted(path.name for path in agent.folder.iterdir() if path.suffix == ".py") == []
    assert asked == ["awk 'BEGIN { print 2 }' > out"]


async def test_a_guard_denies_what_the_agent_would_not_ask_about() -> None:
    policy = Policy.of(
        {"deny": "Bash", "command": "ls *", "reason": "No looking."}, {"deny": "*", "path": "**/.env"}
    )
    calls = (
        use_tool("Bash", command="ls"),
        use_tool("Read", file_path=".env"),
        use_tool("Bash", command="pwd"),
    )
    async with talking(*calls, say("done"), hooks=[policy.guard()]) as (agent, session):
        await to_thread.run_sync((agent.folder / ".env").write_text, "KEY=1")
        await turn(session)
        results = [json.dumps(request.tool_results[-1]["content"]) for request in agent.api.main_requests[1:]]
        assert "No looking." in results[0]
        assert "The policy does not allow this use of Read." in results[1]
        assert "KEY=1" not in results[1]
        assert agent.folder.name in results[2]
