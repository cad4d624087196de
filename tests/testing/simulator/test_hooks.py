"""Hooks of the simulated agent, against recordings of the real one and one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.testing.simulator.asked import Asked, Reply, bash, call
from tests.testing.simulator.replayed import Alike, recorded, replay, shown

pytestmark = pytest.mark.anyio

RECORDED = [
    ("05-hooks-posttooluse-outputs", 0),
    ("05-hooks-posttoolusefailure-and-batch", 0),
    ("05-hooks-permissionrequest-outputs", 0),
    ("05-hooks-parallel-callbacks", 0),
    *[("05-hooks-init-variants", number) for number in range(5)],
    ("05-hooks-timeout", 0),
    ("05-hooks-timeout-on-failure-block", 0),
    ("05-hooks-userpromptsubmit-outputs", 0),
    ("05-hooks-stdin-closed-before-callback", 0),
    ("05-hooks-sdk", 0),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder that the agent works in."""
    path = tmp_path.resolve() / "project"
    path.mkdir()
    return path


@pytest.mark.requirement("H1")
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("name, number", RECORDED)
async def test_hooks_are_asked_and_heeded_as_by_the_real_agent(name: str, number: int, folder: Path) -> None:
    assert shown(await replay(name, number, folder)) == Alike(shown(recorded(name, number)))


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_outputs_of_pre_tool_use_are_taken_as_by_the_real_agent(folder: Path) -> None:
    name = "05-hooks-pretooluse-outputs"
    told = shown(recorded(name, 0))
    # The last answer is a bare text. The protocol layer makes an empty answer of it, the program complains.
    place = max(place for place, (kind, _) in enumerate(told) if kind == "system/informational")
    del told[place]
    assert shown(await replay(name, 0, folder)) == Alike(told)


def matchers(*patterns: str | None, **more: object) -> dict[str, list[dict[str, object]]]:
    return {"PreToolUse": [{"matcher": text, "hookCallbackIds": [str(text)], **more} for text in patterns]}


@pytest.mark.parametrize(
    "pattern, is_asked",
    [
        (None, True),
        ("", True),
        ("*", True),
        ("Bash", True),
        ("Write|Bash", True),
        ("Write, Bash", True),
        ("Bash ", True),
        ("Bash|", True),
        ("^Bash$", True),
        ("a.h", True),
        ("B*", True),
        ("Read|B.*", True),
        ("as", False),
        ("Bas", False),
        ("bash", False),
        ("mcp__s", False),
        ("mcp__.*", False),
        ("!Read", False),
        ("[", False),
    ],
)
async def test_a_matcher_is_a_list_of_names_or_a_regular_expression(
    pattern: str | None, is_asked: bool, tmp_path: Path
) -> None:
    run = Asked(tmp_path)
    run.hooks.register(matchers(pattern))
    await run.hooks.fire("PreToolUse", {"tool_name": "Bash"}, call=bash("ls"))
    assert len(run.of("hook_callback")) == is_asked


@pytest.mark.parametrize(
    "hooks",
    [
        {"PreToolUse": {"matcher": None}},
        {"PreToolUse": [{"matcher": None}]},
        {"PreToolUse": [{"matcher": 5, "hookCallbackIds": ["h"]}]},
        {"PreToolUse": [{"hookCallbackIds": [5]}]},
        {"PreToolUse": ["h"]},
    ],
)
async def test_hooks_of_another_form_are_refused_in_the_words_of_the_program(
    hooks: Any, tmp_path: Path
) -> None:
    run = Asked(tmp_path)
    run.hooks.register(matchers("*"))
    with pytest.raises(ValueError, match="hookCallbackIds arrays") as caught:
        run.hooks.register(hooks)
    assert str(caught.value).startswith("initialize: hooks must map hook events to arrays of matchers")
    assert run.hooks.has("PreToolUse")


async def test_later_hooks_replace_the_earlier_ones(tmp_path: Path) -> None:
    run = Asked(tmp_path)
    run.hooks.register(matchers("*"))
    run.hooks.register({"Stop": [{"hookCallbackIds": ["s"]}]})
    assert run.hooks.has("Stop")
    assert not run.hooks.has("PreToolUse")
    run.hooks.register(None)
    assert not run.hooks.has("Stop")


async def test_callbacks_are_asked_in_the_order_of_their_registration(tmp_path: Path) -> None:
    run = Asked(tmp_path)
    names = [str(number) for number in range(20)]
    run.hooks.register({"Stop": [{"hookCallbackIds": names[:7]}, {"hookCallbackIds": names[7:]}]})
    await run.hooks.fire("Stop", {})
    assert [request["callback_id"] for request in run.of("hook_callback")] == names


@pytest.mark.parametrize(
    "event, fields",
    [
        ("PreToolUse", {"permission_mode", "effort"}),
        ("PostToolUse", {"permission_mode", "effort"}),
        ("PostToolBatch", {"permission_mode", "effort"}),
        ("Stop", {"permission_mode", "effort"}),
        ("StopFailure", {"effort"}),
        ("UserPromptSubmit", {"permission_mode"}),
        ("SessionEnd", set[str]()),
        ("PreCompact", set[str]()),
    ],
)
async def test_an_event_has_the_fields_that_the_program_gives_it(
    event: str, fields: set[str], tmp_path: Path
) -> None:
    run = Asked(tmp_path, "--effort", "high")
    run.hooks.register({event: [{"hookCallbackIds": ["h"]}]})
    await run.hooks.fire(event, {"own": 1})
    (request,) = run.of("hook_callback")
    usual = {"session_id", "transcript_path", "cwd", "prompt_id", "hook_event_name", "own"}
    assert set(request["input"]) == usual | fields
    assert request["input"].get("effort", {"level": "high"}) == {"level": "high"}
    assert request["tool_use_id"].startswith("hook-") == (event == "PostToolBatch")


async def test_an_event_of_a_subagent_says_whose_it_is(tmp_path: Path) -> None:
    run = Asked(tmp_path)
    run.hooks.register(matchers("*"))
    one = call("Bash", command="ls")
    theirs = type(one)(id="toolu_2", name="Bash", input={}, agent_id="a1", agent_type="Explore")
    await run.hooks.fire("PreToolUse", {"tool_name": "Bash"}, call=one)
    await run.hooks.fire("PreToolUse", {"tool_name": "Bash"}, call=theirs)
    first, second = (request["input"] for request in run.of("hook_callback"))
    assert "agent_id" not in first
    assert (second["agent_id"], second["agent_type"]) == ("a1", "Explore")


def decide(decision: str, **more: object) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": decision, **more}}


@pytest.mark.parametrize(
    "answers, decision, reason",
    [
        ([{}, {}, {}], None, None),
        ([decide("allow"), decide("ask", permissionDecisionReason="hm"), {}], "ask", "hm"),
        ([decide("allow"), decide("deny", permissionDecisionReason="no"), decide("ask")], "deny", "no"),
        ([{"decision": "approve", "reason": "fine"}, {}, {"async": True}], "allow", "fine"),
        ([{"decision": "block", "reason": "old"}, decide("allow"), {}], "deny", "old"),
        ([decide("defer"), decide("allow"), {"unknown": 1}], "defer", None),
    ],
)
async def test_the_strongest_decision_wins(
    answers: list[dict[str, Any]], decision: str | None, reason: str | None, tmp_path: Path
) -> None:
    waiting = iter(answers)
    run = Asked(tmp_path, answer=lambda subtype, fields: next(waiting))
    run.hooks.register({"PreToolUse": [{"hookCallbackIds": ["a", "b", "c"]}]})
    verdict = await run.hooks.fire("PreToolUse", {"tool_name": "Bash"}, call=bash("ls"))
    assert (verdict.decision, verdict.reason) == (decision, reason)


async def test_what_hooks_tell_the_model_and_the_user_is_collected(tmp_path: Path) -> None:
    answer = {
        "systemMessage": "look",
        "continue": False,
        "stopReason": "enough",
        "decision": "block",
        "reason": "lint",
        "hookSpecificOutput": {"hookEventName": "PostToolUse", "additionalContext": "generated"},
    }
    run = Asked(tmp_path, answer=lambda subtype, fields: answer)
    run.hooks.register({"PostToolUse": [{"hookCallbackIds": ["h"]}]})
    verdict = await run.hooks.fire("PostToolUse", {"tool_name": "Bash"}, call=bash("ls"))
    assert verdict.blocked == "lint"
    assert verdict.stop_reason == "enough"
    assert verdict.additional_context == ("generated",)
    assert verdict.reminders == (
        'PostToolUse:Bash hook blocking error from command: "callback": lint',
        "PostToolUse:Bash hook stopped continuation: enough",
        "PostToolUse:Bash hook additional context: generated",
    )
    # They are for after the tool's result, so others write them.
    assert [notice["content"] for notice in verdict.notices] == ["PostToolUse:Bash says: look"]
    assert run.frames == []


@pytest.mark.parametrize(
    "answer",
    [
        "it broke",
        {"continue": "no"},
        {"decision": "perhaps"},
        decide("perhaps"),
        {"hookSpecificOutput": {"hookEventName": "PreToolUse", "updatedInput": "ls"}},
    ],
)
@pytest.mark.parametrize("on_failure", [None, "block"])
async def test_a_failed_callback_counts_as_no_answer_unless_it_has_to_block(
    answer: Reply, on_failure: str | None, tmp_path: Path
) -> None:
    run = Asked(tmp_path, answer=lambda subtype, fields: answer)
    run.hooks.register(matchers("*", onFailure=on_failure))
    verdict = await run.hooks.fire("PreToolUse", {"tool_name": "Bash"}, call=bash("ls"))
    (notice,) = run.frames
    assert notice["tag"] == "hook_callback_failed"
    assert ("counts as a block" in notice["content"]) == (on_failure == "block")
    assert len(run.lines) == 1
    assert verdict.decision == (None if on_failure is None else "deny")


@pytest.mark.parametrize(
    "event, expected",
    [
        ("PreToolUse", {"failure": True, "blocked": False, "refusal": False}),
        ("UserPromptSubmit", {"failure": False, "blocked": True, "refusal": True}),
        ("PostToolUse", {"failure": False, "blocked": False, "refusal": False}),
        ("Stop", {"failure": False, "blocked": False, "refusal": False}),
    ],
)
async def test_a_callback_that_does_not_answer_in_time_is_withdrawn(
    event: str, expected: dict[str, bool], tmp_path: Path
) -> None:
    run = Asked(tmp_path, answer=lambda subtype, fields: None)
    run.hooks.register({event: [{"hookCallbackIds": ["h"], "timeout": 0.01}]})
    verdict = await run.hooks.fire(event, {"prompt": "hi"})
    assert run.withdrawn == ["hook_callback"]
    assert {name: getattr(verdict, name) is not None for name in expected} == expected


async def test_an_answer_for_another_event_is_an_error_of_the_call(tmp_path: Path) -> None:
    other = {"hookSpecificOutput": {"hookEventName": "Stop"}}
    run = Asked(tmp_path, answer=lambda subtype, fields: other)
    run.hooks.register(matchers("*"))
    verdict = await run.hooks.fire("PreToolUse", {"tool_name": "Bash"}, call=bash("ls"))
    assert verdict.failure is not None
    assert "unexpected error" in verdict.failure


async def test_a_host_that_is_gone_is_told_apart_from_an_error(tmp_path: Path) -> None:
    run = Asked(tmp_path)
    run.is_gone = True
    run.hooks.register(matchers("*", onFailure="block"))
    verdict = await run.hooks.fire("PreToolUse", {"tool_name": "Bash"}, call=bash("ls"))
    assert verdict.is_gone
    assert verdict.decision is None
    assert (run.frames, run.lines) == ([], [])
