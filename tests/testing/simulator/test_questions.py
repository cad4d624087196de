"""Questions and plans of the simulated agent, against recordings and through sessions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

import outrider
from outrider.testing import Simulator, ask_question, exit_plan_mode, say, use_tool
from outrider.wire import JsonObject
from tests.testing.simulator.asked import WITH_HOST, Asked, Reply, call, source
from tests.testing.simulator.replayed import Alike, recorded, replay, shown

pytestmark = pytest.mark.anyio


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder that the agent works in."""
    path = tmp_path.resolve() / "project"
    path.mkdir()
    return path


@pytest.mark.requirement("H1")
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("number", [0, 1])
async def test_questions_are_put_and_answered_as_by_the_real_agent(number: int, folder: Path) -> None:
    name = "19-ask-user-question"
    assert shown(await replay(name, number, folder)) == Alike(shown(recorded(name, number)))


def question(text: str, *, multiple: bool = False, labels: tuple[str, ...] = ("a", "b")) -> JsonObject:
    options = [{"label": label, "description": label.upper()} for label in labels]
    return {"question": text, "header": "H", "multiSelect": multiple, "options": options}


ONE = [question("Q1?")]
ANSWERED: list[tuple[list[JsonObject], JsonObject, str]] = [
    (ONE, {"answers": {"Q1?": "a"}}, 'Your questions have been answered: "Q1?"="a". You can now'),
    (ONE, {}, "The user did not answer the questions."),
    (ONE, {"answers": {}, "response": "neither"}, "The user responded: neither"),
    (
        [question("Q1?"), question("Q2?", multiple=True)],
        {"answers": {"Q1?": "b", "Q2?": "a, b"}},
        'Your questions have been answered: "Q1?"="b", "Q2?"="a, b". You',
    ),
    (
        [question("Q2?", multiple=True)],
        {"answers": {"Q2?": ["a", "b"]}},
        'Your questions have been answered: "Q2?"="a, b". You',
    ),
    (
        [question("Q1?"), question("Q2?")],
        {"answers": {"Q1?": "a"}},
        'Your questions have been answered: "Q1?"="a".',
    ),
]


@pytest.mark.parametrize("questions, given, text", ANSWERED)
async def test_the_model_is_told_what_the_user_said(
    questions: list[JsonObject], given: JsonObject, text: str, tmp_path: Path
) -> None:
    run = Asked(tmp_path, *WITH_HOST)
    outcome = run.questions.perform(call("AskUserQuestion", questions=questions, **given))
    assert isinstance(outcome.content, str)
    assert outcome.content.startswith(text)
    assert not outcome.is_error
    assert outcome.detail == {"questions": questions, "answers": {}, **given}


@pytest.mark.parametrize("questions", [[], [question("Q?", labels=("only",))], ["Q?"], None])
async def test_a_question_without_a_choice_is_refused_before_anybody_sees_it(
    questions: Any, tmp_path: Path
) -> None:
    run = Asked(tmp_path, *WITH_HOST)
    run.hooks.register({"PreToolUse": [{"hookCallbackIds": ["h"]}]})
    decision = await run.permissions.decide(call("AskUserQuestion", questions=questions))
    assert not decision.is_allowed
    assert decision.message.startswith("<tool_use_error>InputValidationError: ")
    assert decision.meta is None
    assert run.asked == []


async def test_a_hook_can_answer_in_the_place_of_the_user_but_not_just_allow(tmp_path: Path) -> None:
    specific: JsonObject = {"hookEventName": "PreToolUse", "permissionDecision": "allow"}

    def host(subtype: str, fields: JsonObject) -> Reply:
        if subtype == "hook_callback":
            return {"hookSpecificOutput": specific}
        return {"behavior": "deny", "message": "skipped"}

    run = Asked(tmp_path, *WITH_HOST, answer=host)
    run.hooks.register({"PreToolUse": [{"hookCallbackIds": ["h"]}]})
    assert not (await run.permissions.decide(call("AskUserQuestion", questions=ONE))).is_allowed
    (asked,) = run.of("can_use_tool")
    assert asked["requires_user_interaction"] is True
    specific["updatedInput"] = {"questions": ONE, "answers": {"Q1?": "b"}}
    decision = await run.permissions.decide(call("AskUserQuestion", questions=ONE))
    assert decision.is_allowed
    assert source(decision) == "hook"
    assert len(run.of("can_use_tool")) == 1


@pytest.mark.parametrize(
    "argv, names",
    [
        ((), []),
        (WITH_HOST, ["AskUserQuestion", "EnterPlanMode", "ExitPlanMode"]),
        ((*WITH_HOST, "--tools", "Bash"), []),
        ((*WITH_HOST, "--tools", "AskUserQuestion,Bash"), ["AskUserQuestion"]),
        ((*WITH_HOST, "--disallowedTools", "AskUserQuestion"), ["EnterPlanMode", "ExitPlanMode"]),
    ],
)
def test_the_tools_are_there_if_somebody_can_be_asked(
    argv: tuple[str, ...], names: list[str], tmp_path: Path
) -> None:
    assert [spec.name for spec in Asked(tmp_path, *argv).questions.specs()] == names


# Plans.


@pytest.mark.parametrize("before", ["default", "acceptEdits", "dontAsk"])
async def test_an_approved_plan_goes_back_to_the_mode_before_it(before: str, tmp_path: Path) -> None:
    run = Asked(
        tmp_path,
        *WITH_HOST,
        "--permission-mode",
        before,
        answer=lambda subtype, fields: {"behavior": "allow"},
    )
    run.questions.perform(call("EnterPlanMode"))
    assert run.permission_mode == "plan"
    leave = run.questions.filled(call("ExitPlanMode"))
    assert leave.input == {}
    assert (await run.permissions.decide(leave)).is_allowed
    outcome = run.questions.perform(leave)
    assert run.permission_mode == before
    assert outcome.content == "User has approved exiting plan mode. You can now proceed."
    assert outcome.detail == {"plan": None, "isAgent": False, "filePath": str(run.questions.plan_path)}
    assert [frame["permissionMode"] for frame in run.frames] == ["plan", before]


async def test_a_plan_is_read_from_its_file_and_may_be_edited_by_the_user(tmp_path: Path) -> None:
    run = Asked(tmp_path, *WITH_HOST, "--permission-mode", "plan")
    assert run.questions.plan() == {"exists": False}
    run.questions.plan_path.parent.mkdir()
    run.questions.plan_path.write_text("# Plan")
    leave = run.questions.filled(call("ExitPlanMode", plan="# Another"))
    assert leave.input == {"plan": "# Plan", "planFilePath": str(run.questions.plan_path)}
    assert run.questions.plan()["content"] == "# Plan"
    outcome = run.questions.perform(call("ExitPlanMode", plan="# Edited"))
    assert isinstance(outcome.detail, dict)
    assert outcome.detail["planWasEdited"] is True
    assert str(outcome.content).endswith("## Approved Plan (edited by user):\n# Edited")


async def test_a_plan_can_only_be_left_from_plan_mode(tmp_path: Path) -> None:
    run = Asked(tmp_path, *WITH_HOST)
    decision = await run.permissions.decide(run.questions.filled(call("ExitPlanMode", plan="x")))
    assert not decision.is_allowed
    assert decision.message.startswith("<tool_use_error>You are not in plan mode.")
    assert run.asked == []


# Through sessions.


async def test_a_session_answers_a_question_of_the_simulated_agent() -> None:
    def answer(question: outrider.Question) -> str:
        return question.options[1].label

    agent = Simulator([ask_question("Which one?", ["red", "blue"]), say("Blue it is.")])
    with anyio.fail_after(20):
        async with outrider.Session(on_question=answer, transport=agent) as session:
            result = await session.ask("Paint it")
    assert result.text == "Blue it is."
    content = agent.requests[1].tool_results[0]["content"]
    assert content.startswith('Your questions have been answered: "Which one?"="blue".')


async def test_a_session_approves_the_plan_of_the_simulated_agent() -> None:
    seen: list[str] = []

    def approve(plan: outrider.Plan) -> bool:
        seen.append(plan.text)
        return True

    agent = Simulator([exit_plan_mode("# Steps"), use_tool("Bash", command="ls"), say("Done.")])
    with anyio.fail_after(20):
        async with outrider.Session(permission_mode="plan", on_plan=approve, transport=agent) as session:
            result = await session.ask("Plan it")
    assert result.text == "Done."
    assert seen == ["# Steps"]
    texts = [str(found["content"]) for request in agent.requests for found in request.tool_results]
    assert any(text.startswith("User has approved your plan.") and "# Steps" in text for text in texts)


async def test_a_plan_that_is_sent_back_leaves_the_mode_as_it_is() -> None:
    agent = Simulator([exit_plan_mode("# Steps"), say("I will think again.")])
    with anyio.fail_after(20):
        async with outrider.Session(
            permission_mode="plan", on_plan=lambda plan: "Add a test", transport=agent
        ) as session:
            result = await session.ask("Plan it")
    (denial,) = result.permission_denials
    assert denial["tool_name"] == "ExitPlanMode"
    contents = [found["content"] for found in agent.requests[1].tool_results]
    assert "Add a test" in contents
