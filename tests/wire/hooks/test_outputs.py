"""What hook callbacks answer, to and from the wire."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any, assert_type

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.wire.hooks import _outputs
from outrider.wire.hooks._inputs import HOOK_EVENTS
from outrider.wire.hooks._outputs import (
    AsyncHookOutput,
    CwdChangedOutput,
    ElicitationOutput,
    ElicitationResultOutput,
    FileChangedOutput,
    HookAnswer,
    HookOutput,
    MessageDisplayOutput,
    NotificationOutput,
    PermissionDeniedOutput,
    PermissionRequestOutput,
    PostModelSwitchOutput,
    PostToolBatchOutput,
    PostToolUseFailureOutput,
    PostToolUseOutput,
    PreModelSwitchOutput,
    PreToolUseOutput,
    SessionStartOutput,
    SetupOutput,
    SpecificOutput,
    StopOutput,
    SubagentStartOutput,
    SubagentStopOutput,
    UserPromptExpansionOutput,
    UserPromptSubmitOutput,
    WorktreeCreateOutput,
    encode_output,
    hook_output_from_wire,
)
from outrider.wire.permissions import PermissionResultAllow, PermissionResultDeny, PermissionUpdate
from tests.cases import every_case

DATA = Path(__file__).parents[1] / "data"
RECORDED: list[dict[str, Any]] = [
    answer["response"]
    for answer in map(json.loads, (DATA / "ask_answers.jsonl").read_text(encoding="utf-8").splitlines())
    if answer["to"].startswith("hook_callback") and isinstance(answer["response"], dict)
]

# Each event's own part: the value and its wire form, all fields set.
SPECIFIC: list[tuple[SpecificOutput, dict[str, Any]]] = [
    (
        PreToolUseOutput("deny", "policy", {"command": "ls"}, "note"),
        {
            "permissionDecision": "deny",
            "permissionDecisionReason": "policy",
            "updatedInput": {"command": "ls"},
            "additionalContext": "note",
        },
    ),
    (
        PostToolUseOutput("note", "for the classifier", {"stdout": "x"}, "y"),
        {
            "additionalContext": "note",
            "classifierContext": "for the classifier",
            "updatedToolOutput": {"stdout": "x"},
            "updatedMCPToolOutput": "y",
        },
    ),
    (PostToolUseFailureOutput("note"), {"additionalContext": "note"}),
    (PostToolBatchOutput("note"), {"additionalContext": "note"}),
    (NotificationOutput("note"), {"additionalContext": "note"}),
    (
        UserPromptSubmitOutput("note", "title", True),
        {"additionalContext": "note", "sessionTitle": "title", "suppressOriginalPrompt": True},
    ),
    (
        UserPromptExpansionOutput("note", False),
        {"additionalContext": "note", "suppressOriginalPrompt": False},
    ),
    (
        SessionStartOutput("note", "hello", "title", ["/a"], True),
        {
            "additionalContext": "note",
            "initialUserMessage": "hello",
            "sessionTitle": "title",
            "watchPaths": ["/a"],
            "reloadSkills": True,
        },
    ),
    (StopOutput("note"), {"additionalContext": "note"}),
    (SubagentStartOutput("note"), {"additionalContext": "note"}),
    (SubagentStopOutput("note"), {"additionalContext": "note"}),
    (
        PreModelSwitchOutput("ask", "costly"),
        {"permissionDecision": "ask", "permissionDecisionReason": "costly"},
    ),
    (PostModelSwitchOutput("note"), {"additionalContext": "note"}),
    (
        PermissionRequestOutput(
            PermissionResultAllow(updated_input={"a": 1}, updated_permissions=[PermissionUpdate("x")])
        ),
        {"decision": {"behavior": "allow", "updatedInput": {"a": 1}, "updatedPermissions": [{"type": "x"}]}},
    ),
    (PermissionDeniedOutput(True), {"retry": True}),
    (SetupOutput("note"), {"additionalContext": "note"}),
    (ElicitationOutput("accept", {"name": "Ann"}), {"action": "accept", "content": {"name": "Ann"}}),
    (ElicitationResultOutput("decline", {}), {"action": "decline", "content": {}}),
    (WorktreeCreateOutput("/wt"), {"worktreePath": "/wt"}),
    (CwdChangedOutput([]), {"watchPaths": []}),
    (FileChangedOutput(["/a"]), {"watchPaths": ["/a"]}),
    (MessageDisplayOutput("shown"), {"displayContent": "shown"}),
]
NAMES = [type(value).__name__ for value, _ in SPECIFIC]


@pytest.mark.requirement("A8")
class TestCommonPart:
    def test_empty(self) -> None:
        assert HookOutput().to_wire() == {}

    def test_continue_false_reaches_the_wire_and_true_stays_out(self) -> None:
        assert HookOutput(continue_=False, stop_reason="enough").to_wire() == {
            "continue": False,
            "stopReason": "enough",
        }
        assert HookOutput(continue_=True).to_wire() == {}

    def test_all_fields_in_order(self) -> None:
        output = HookOutput(False, True, "stop", "block", "note", "why", "\a", PreToolUseOutput("ask"))
        assert output.to_wire() == {
            "continue": False,
            "suppressOutput": True,
            "stopReason": "stop",
            "decision": "block",
            "systemMessage": "note",
            "reason": "why",
            "terminalSequence": "\a",
            "hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "ask"},
        }

    @pytest.mark.parametrize(
        "decision, sent", [("allow", "approve"), ("approve", "approve"), ("block", "block"), ("new", "new")]
    )
    def test_allow_is_sent_as_approve(self, decision: str, sent: str) -> None:
        assert HookOutput(decision=decision).to_wire() == {"decision": sent}
        assert encode_output({"decision": decision}) == {"decision": sent}

    def test_own_part_as_a_dict_is_sent_as_it_is(self) -> None:
        own = {"hookEventName": "BrandNew", "x": 1}
        assert HookOutput(hook_specific_output=own).to_wire() == {"hookSpecificOutput": own}

    def test_later(self) -> None:
        assert AsyncHookOutput().to_wire() == {"async": True}
        assert AsyncHookOutput(500).to_wire() == {"async": True, "asyncTimeout": 500}


@pytest.mark.requirement("A8")
class TestOwnPart:
    @every_case("value, fields", SPECIFIC, ids=NAMES)
    def test_round_trip(self, value: SpecificOutput, fields: dict[str, Any]) -> None:
        event = type(value).__name__.removesuffix("Output")
        assert event in HOOK_EVENTS
        wire = {"hookEventName": event, **fields}
        assert value.to_wire() == wire
        answer = hook_output_from_wire({"hookSpecificOutput": wire})
        assert isinstance(answer, HookOutput)
        assert answer.hook_specific_output == value
        assert answer.to_wire() == {"hookSpecificOutput": wire}

    def test_every_class_is_covered(self) -> None:
        classes = {
            name
            for name, value in vars(_outputs).items()
            if isinstance(value, type) and issubclass(value, SpecificOutput) and not name.startswith("_")
        }
        assert classes - {"SpecificOutput"} == set(NAMES)
        assert len(NAMES) == 22

    def test_unset_fields_stay_out(self) -> None:
        assert PreToolUseOutput().to_wire() == {"hookEventName": "PreToolUse"}
        assert PreToolUseOutput(updated_input={}).to_wire() == {
            "hookEventName": "PreToolUse",
            "updatedInput": {},
        }

    @pytest.mark.parametrize(
        "decision, wire",
        [
            (PermissionResultAllow(), {"behavior": "allow"}),
            (PermissionResultDeny(message="no"), {"behavior": "deny", "message": "no"}),
            (
                PermissionResultDeny(message="no", interrupt=True),
                {"behavior": "deny", "message": "no", "interrupt": True},
            ),
            ({"behavior": "deny"}, {"behavior": "deny"}),
        ],
    )
    def test_permission_decisions(self, decision: Any, wire: dict[str, Any]) -> None:
        assert PermissionRequestOutput(decision).to_wire()["decision"] == wire

    @every_case(
        "own",
        [
            {"hookEventName": "BrandNew", "x": 1},
            {"hookEventName": "PreToolUse", "x": 1},
            {"hookEventName": "PreToolUse", "permissionDecision": 5},
            {"hookEventName": "PermissionRequest", "decision": {"behavior": "deny"}},
            {"hookEventName": "PermissionRequest", "decision": {"behavior": "maybe", "x": 1}},
            {"hookEventName": "PermissionRequest", "decision": "allow"},
            {"hookEventName": "PermissionRequest"},
            {"hookEventName": "WorktreeCreate"},
            {"hookEventName": ["PreToolUse"]},
            {"x": 1},
            {},
        ],
        ids=str,
    )
    def test_what_no_class_can_hold_stays_a_dict(self, own: dict[str, Any]) -> None:
        answer = hook_output_from_wire({"hookSpecificOutput": own})
        assert answer.to_wire() == {"hookSpecificOutput": own}

    def test_own_part_that_is_no_object_is_left_out(self) -> None:
        answer = hook_output_from_wire({"hookSpecificOutput": "text", "reason": "r"})
        assert answer == HookOutput(reason="r")


@pytest.mark.requirement("A8")
class TestReading:
    @every_case("data", RECORDED)
    def test_recorded_answers_come_back_as_they_were(self, data: dict[str, Any]) -> None:
        answer = hook_output_from_wire(data)
        assert answer.raw is data
        known = {key: value for key, value in data.items() if key != "nonsense"}
        assert answer.to_wire() == encode_output(known)
        assert not isinstance(answer, HookOutput) or not isinstance(answer.hook_specific_output, dict)

    def test_python_spellings(self) -> None:
        assert hook_output_from_wire({"continue_": False}) == HookOutput(continue_=False)
        assert hook_output_from_wire({"async_": True, "asyncTimeout": 5}) == AsyncHookOutput(5)
        assert hook_output_from_wire({"decision": "allow"}).to_wire() == {"decision": "approve"}

    def test_the_wire_spelling_wins(self) -> None:
        for data in ({"continue": False, "continue_": True}, {"continue_": True, "continue": False}):
            assert encode_output(data) == {"continue": False}

    def test_spelling_keeps_what_it_does_not_know(self) -> None:
        data = {"async_": False, "new": [1], "hookSpecificOutput": {"continue_": 1}}
        assert encode_output(data) == {"async": False, "new": [1], "hookSpecificOutput": {"continue_": 1}}
        assert data["async_"] is False

    @pytest.mark.parametrize("value", [False, None, 1, "true"])
    def test_only_true_means_later(self, value: object) -> None:
        assert isinstance(hook_output_from_wire({"async": value, "reason": "r"}), HookOutput)

    def test_mistyped_fields(self) -> None:
        assert hook_output_from_wire({"continue": "no", "reason": 5, "decision": []}) == HookOutput()

    def test_copies(self) -> None:
        data = {
            "reason": "r",
            "new": 1,
            "hookSpecificOutput": {"hookEventName": "Stop", "additionalContext": "c"},
        }
        answer = hook_output_from_wire(data)
        for twin in (copy.copy(answer), copy.deepcopy(answer), pickle.loads(pickle.dumps(answer))):
            assert twin == answer
            assert twin.raw == data


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
OWN_KEYS = sorted({key for _, fields in SPECIFIC for key in fields})
decisions = st.dictionaries(
    st.sampled_from(["behavior", "message", "updatedInput", "updatedPermissions", "interrupt"]),
    st.sampled_from(["allow", "deny"]) | json_values,
)
own_parts: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {"hookEventName": st.sampled_from([*HOOK_EVENTS, "BrandNew"]) | json_values},
    optional=dict.fromkeys(OWN_KEYS, json_values | decisions),
)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "continue": json_values,
            "continue_": json_values,
            "async": json_values,
            "async_": json_values,
            "asyncTimeout": json_values,
            "suppressOutput": json_values,
            "decision": json_values,
            "reason": json_values,
            "hookSpecificOutput": own_parts | json_values,
        },
    )
)
def test_garbage_never_raises(data: dict[str, Any]) -> None:
    answer = hook_output_from_wire(data)
    assert answer.raw is data
    wire = answer.to_wire()
    own = data.get("hookSpecificOutput")
    if isinstance(answer, HookOutput) and isinstance(own, dict):
        assert wire["hookSpecificOutput"] == own
    assert hook_output_from_wire(wire) == answer


def test_depth_never_raises() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    own = {"hookEventName": "PreToolUse", "updatedInput": {"x": deep}}
    answer = hook_output_from_wire({"hookSpecificOutput": own, "reason": {"x": deep}})
    assert isinstance(answer, HookOutput)
    assert answer.hook_specific_output is own


def test_types() -> None:
    assert_type(hook_output_from_wire({}), HookAnswer)
    assert_type(HookOutput().continue_, bool)
    assert_type(PreToolUseOutput("defer").to_wire(), dict[str, Any])
    # Values of a later release type-check, and so does a dict in place of a class.
    HookOutput(decision="brandNew", hook_specific_output={"hookEventName": "BrandNew"})
    PreToolUseOutput("brandNew")
    PermissionRequestOutput({"behavior": "brandNew"})
