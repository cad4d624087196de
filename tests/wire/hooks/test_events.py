"""Hook inputs: every event has a class, reads what was recorded, and survives what was not."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any, assert_type, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.wire import to_wire
from outrider.wire._tolerant import convert_leniently
from outrider.wire.hooks import _inputs
from outrider.wire.hooks._inputs import (
    HOOK_EVENTS,
    HOOK_INPUTS,
    BackgroundTaskSummary,
    HookEffort,
    HookEvent,
    HookInput,
    HookRegistration,
    McpServerSource,
    PermissionRequestInput,
    PostToolBatchInput,
    PreCompactInput,
    PreToolUseInput,
    SessionCronSummary,
    StopInput,
    SubagentStopInput,
    ToolCall,
    UnknownHookInput,
    UserPromptSubmitInput,
    hook_input_from_wire,
)
from outrider.wire.permissions import PermissionUpdate
from tests.cases import every_case

DATA = Path(__file__).parents[1] / "data"


def lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / name).read_text(encoding="utf-8").splitlines()]


RECORDED: list[dict[str, Any]] = [
    ask["input"] for ask in lines("asks.jsonl") if ask["subtype"] == "hook_callback"
]

COMMON: dict[str, Any] = {
    "session_id": "s",
    "transcript_path": "/t.jsonl",
    "cwd": "/c",
    "prompt_id": "p",
    "permission_mode": "default",
    "agent_id": "a",
    "agent_type": "general-purpose",
    "effort": {"level": "high"},
}
SERVER = {"name": "s", "source": "sdk"}
TOOL: dict[str, Any] = {"tool_name": "Bash", "tool_input": {"command": "ls"}, "mcp_server": SERVER}
TASKS: dict[str, Any] = {
    "background_tasks": [
        {
            "id": "b1",
            "type": "shell",
            "status": "running",
            "description": "d",
            "command": "sleep 9",
            "agent_type": "x",
            "server": "s",
            "tool": "t",
            "name": "n",
        }
    ],
    "session_crons": [{"id": "c1", "schedule": "* * * * *", "recurring": True, "prompt": "again"}],
}
MODEL_SWITCH: dict[str, Any] = {
    "from_model": "a",
    "to_model": "b",
    "requested_model": None,
    "source": "sdk",
    "context_tokens": 120,
    "prompt_cache_warm": True,
    "cache_ttl": "5m",
    "estimated_cache_write_usd": 0.5,
    "pricing": "catalog",
}
TASK: dict[str, Any] = {
    "task_id": "1",
    "task_subject": "s",
    "task_description": "d",
    "teammate_name": "n",
    "team_name": "t",
}

# What each event tells beyond the common fields, as the agent's documentation lists it.
EVENTS: dict[HookEvent, dict[str, Any]] = {
    "PreToolUse": {**TOOL, "tool_use_id": "t1"},
    "PostToolUse": {**TOOL, "tool_use_id": "t1", "tool_response": {"stdout": ""}, "duration_ms": 5},
    "PostToolUseFailure": {
        **TOOL,
        "tool_use_id": "t1",
        "error": "Exit code 3",
        "is_interrupt": False,
        "duration_ms": 5,
    },
    "PostToolBatch": {
        "tool_calls": [
            {"tool_name": "Bash", "tool_input": {}, "tool_use_id": "t1", "tool_response": "out"},
            {"tool_name": "Read", "tool_input": {}, "tool_use_id": "t2", "tool_response": [{"type": "text"}]},
            {"tool_name": "Read", "tool_input": {}, "tool_use_id": "t3"},
        ]
    },
    "Notification": {"message": "m", "title": "t", "notification_type": "idle_prompt"},
    "UserPromptSubmit": {"prompt": "hello", "source": "sdk", "session_title": "t"},
    "UserPromptExpansion": {
        "expansion_type": "slash_command",
        "command_name": "greet",
        "command_args": "Ann",
        "command_source": "projectSettings",
        "prompt": "/greet Ann",
    },
    "SessionStart": {
        "source": "resume",
        "model": "m",
        "session_title": "t",
        "seconds_since_last_response": 3.5,
        "context_tokens": 7,
        "prompt_cache_likely_expired": False,
        "estimated_cache_write_usd": 0.1,
    },
    "SessionEnd": {"reason": "clear"},
    "Stop": {"stop_hook_active": False, "last_assistant_message": "ok", **TASKS},
    "StopFailure": {"error": "rate_limit", "error_details": "429", "last_assistant_message": "no"},
    "SubagentStart": {},
    "SubagentStop": {
        "stop_hook_active": True,
        "agent_transcript_path": "/a.jsonl",
        "last_assistant_message": "ok",
        **TASKS,
    },
    "PreCompact": {"trigger": "manual", "custom_instructions": None},
    "PostCompact": {"trigger": "auto", "compact_summary": "s"},
    "PreModelSwitch": MODEL_SWITCH,
    "PostModelSwitch": {**MODEL_SWITCH, "source": "auto", "requested_model": "sonnet"},
    "PermissionRequest": {
        **TOOL,
        "permission_suggestions": [
            {"type": "setMode", "mode": "acceptEdits", "destination": "session"},
            {"type": "unheardOf", "x": [1]},
        ],
    },
    "PermissionDenied": {**TOOL, "tool_use_id": "t1", "reason": "r"},
    "Setup": {"trigger": "init"},
    "TeammateIdle": {"teammate_name": "n", "team_name": "t"},
    "TaskCreated": TASK,
    "TaskCompleted": TASK,
    "Elicitation": {
        "mcp_server_name": "s",
        "message": "m",
        "mode": "form",
        "url": "https://example.invalid",
        "elicitation_id": "e",
        "requested_schema": {"type": "object"},
    },
    "ElicitationResult": {
        "mcp_server_name": "s",
        "elicitation_id": "e",
        "mode": "form",
        "action": "accept",
        "content": {"name": "Ann"},
    },
    "ConfigChange": {"source": "user_settings", "file_path": "/f"},
    "WorktreeCreate": {"name": "wt"},
    "WorktreeRemove": {"worktree_path": "/wt"},
    "InstructionsLoaded": {
        "file_path": "/CLAUDE.md",
        "memory_type": "Project",
        "load_reason": "include",
        "globs": ["*.py"],
        "trigger_file_path": "/a",
        "parent_file_path": "/b",
    },
    "CwdChanged": {"old_cwd": "/a", "new_cwd": "/b"},
    "FileChanged": {"file_path": "/a", "event": "change"},
    "DirectoryAdded": {"directory": "/a", "source": "slash_command"},
    "MessageDisplay": {"turn_id": "t", "message_id": "m", "index": 0, "final": True, "delta": "ok"},
}


def whole(event: HookEvent) -> dict[str, Any]:
    return {**COMMON, "hook_event_name": event, **EVENTS[event]}


@pytest.mark.requirement("A8")
class TestEveryEvent:
    def test_there_are_33(self) -> None:
        assert len(HOOK_EVENTS) == 33
        assert set(EVENTS) == set(HOOK_EVENTS) == set(HOOK_INPUTS) == set(get_args(HookEvent))

    @every_case("event", HOOK_EVENTS)
    def test_class_is_named_after_the_event(self, event: HookEvent) -> None:
        kind = HOOK_INPUTS[event]
        assert kind is getattr(_inputs, f"{event}Input")
        assert kind.__struct_config__.tag == event

    @every_case("event", HOOK_EVENTS)
    def test_all_documented_fields_and_no_other(self, event: HookEvent) -> None:
        names = {field.encode_name for field in msgspec.structs.fields(HOOK_INPUTS[event])}
        assert names == {*COMMON, *EVENTS[event]}

    @every_case("event", HOOK_EVENTS)
    def test_round_trip(self, event: HookEvent) -> None:
        data = whole(event)
        value = hook_input_from_wire(data)
        assert type(value) is HOOK_INPUTS[event]
        assert value.hook_event_name == event
        assert value.raw is data
        assert value.to_wire() == data
        assert msgspec.convert(data, type(value)) == value

    @every_case("event", HOOK_EVENTS)
    def test_made_by_hand(self, event: HookEvent) -> None:
        data = whole(event)
        kind = HOOK_INPUTS[event]
        received = hook_input_from_wire(data)
        value = kind(**{name: getattr(received, name) for name in kind.__struct_fields__})
        assert value == received
        assert value.raw == data
        assert copy.copy(value) == pickle.loads(pickle.dumps(value)) == value

    @every_case("event", HOOK_EVENTS)
    def test_only_the_event_name(self, event: HookEvent) -> None:
        value = hook_input_from_wire({"hook_event_name": event})
        assert type(value) is HOOK_INPUTS[event]
        assert (value.session_id, value.transcript_path, value.cwd) == ("", "", "")
        assert value.prompt_id is value.permission_mode is value.agent_id is value.agent_type is None

    @every_case("event", [*HOOK_EVENTS, "BrandNewEvent"])
    def test_copies_keep_what_was_received(self, event: str) -> None:
        data = {**COMMON, "hook_event_name": event, "unheard_of": [1]}
        value = hook_input_from_wire(data)
        assert "unheard_of" not in repr(value) or event == "BrandNewEvent"
        for twin in (copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
            assert twin == value
            assert twin.raw == data
        assert copy.deepcopy(value).raw is not data


@pytest.mark.requirement("A8")
class TestRecorded:
    @every_case("data", RECORDED)
    def test_typed_with_every_key_known(self, data: dict[str, Any]) -> None:
        value = hook_input_from_wire(data)
        assert not isinstance(value, UnknownHookInput)
        assert value.to_wire() == data
        # The fast conversion takes it too, so nothing was mended.
        assert msgspec.convert(data, type(value)) == value

    def test_most_events_are_recorded(self) -> None:
        recorded = {data["hook_event_name"] for data in RECORDED}
        assert len(recorded) == 27
        assert recorded <= set(HOOK_EVENTS)


@pytest.mark.requirement("A8")
class TestReading:
    def test_parts_are_typed(self) -> None:
        stop = hook_input_from_wire(whole("Stop"))
        assert isinstance(stop, StopInput)
        assert stop.effort == HookEffort("high")
        assert stop.background_tasks == [
            BackgroundTaskSummary("b1", "shell", "running", "d", "sleep 9", "x", "s", "t", "n")
        ]
        assert stop.session_crons == [SessionCronSummary("c1", "* * * * *", True, "again")]
        batch = hook_input_from_wire(whole("PostToolBatch"))
        assert isinstance(batch, PostToolBatchInput)
        assert batch.tool_calls[0] == ToolCall("Bash", {}, "t1", "out")
        tool = hook_input_from_wire(whole("PreToolUse"))
        assert isinstance(tool, PreToolUseInput)
        assert tool.mcp_server == McpServerSource("s", "sdk")

    def test_suggestions_of_any_shape_are_kept(self) -> None:
        data = whole("PermissionRequest")
        value = hook_input_from_wire(data)
        assert isinstance(value, PermissionRequestInput)
        assert value.permission_suggestions is not None
        assert [update.to_dict() for update in value.permission_suggestions] == data["permission_suggestions"]
        assert value.permission_suggestions[0] == PermissionUpdate(
            "setMode", mode="acceptEdits", destination="session"
        )
        without = {key: item for key, item in data.items() if key != "permission_suggestions"}
        assert hook_input_from_wire(without).to_wire() == without

    def test_null_is_sent_where_the_agent_sends_it(self) -> None:
        value = PreCompactInput(trigger="auto", custom_instructions=None)
        assert value.to_wire()["custom_instructions"] is None

    def test_empty_text_is_not_absence(self) -> None:
        value = hook_input_from_wire({"hook_event_name": "SubagentStop", "agent_type": ""})
        assert isinstance(value, SubagentStopInput)
        assert value.agent_type == ""
        assert value.to_wire()["agent_type"] == ""

    def test_mistyped_fields(self) -> None:
        value = hook_input_from_wire(
            {
                "hook_event_name": "PreToolUse",
                "session_id": 7,
                "cwd": "/c",
                "effort": "high",
                "tool_name": None,
                "tool_input": "ls",
                "mcp_server": {"name": "s", "source": 4},
            }
        )
        assert value == PreToolUseInput(
            cwd="/c", tool_name="", tool_input={}, tool_use_id="", mcp_server=McpServerSource("s")
        )
        assert value.raw["tool_input"] == "ls"

    def test_match(self) -> None:
        match hook_input_from_wire(whole("PreToolUse")):
            case PreToolUseInput(tool_name="Bash", tool_input={"command": str(command)}):
                assert command == "ls"
            case other:
                pytest.fail(repr(other))
        match hook_input_from_wire(whole("Stop")):
            case HookInput(hook_event_name="Stop", session_id="s"):
                pass
            case other:
                pytest.fail(repr(other))


class TestUnknown:
    def test_event_of_a_later_release(self) -> None:
        data = {**COMMON, "hook_event_name": "BrandNew", "event": 5, "fields": [1], "x": {"y": 1}}
        value = hook_input_from_wire(data)
        assert isinstance(value, UnknownHookInput)
        assert value.hook_event_name == value.event == "BrandNew"
        assert value.fields == {"event": 5, "fields": [1], "x": {"y": 1}}
        assert value.effort == HookEffort("high")
        assert value.raw is data
        assert value.to_wire() == data

    @pytest.mark.parametrize("event", [None, 5, ["Stop"], {}])
    def test_name_that_is_no_text(self, event: object) -> None:
        data = {"session_id": "s", "hook_event_name": event}
        value = hook_input_from_wire(data)
        assert isinstance(value, UnknownHookInput)
        assert value.hook_event_name == ""
        assert value.to_wire() == {
            "session_id": "s",
            "transcript_path": "",
            "cwd": "",
            "hook_event_name": event,
        }

    def test_nothing_at_all(self) -> None:
        assert hook_input_from_wire({}) == UnknownHookInput(event="", fields={})

    def test_made_by_hand(self) -> None:
        value = UnknownHookInput(session_id="s", event="New", fields={"x": 1})
        expected = {"session_id": "s", "transcript_path": "", "cwd": "", "hook_event_name": "New", "x": 1}
        assert value.raw == expected


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
KEYS = sorted({key for event in HOOK_EVENTS for key in whole(event)})


@given(
    st.dictionaries(st.sampled_from(KEYS), json_values, max_size=6),
    st.sampled_from([*HOOK_EVENTS, "BrandNew"]) | json_values,
)
def test_garbage_never_raises(data: dict[str, Any], event: object) -> None:
    data = {**data, "hook_event_name": event}
    value = hook_input_from_wire(data)
    assert value.raw is data
    assert value.hook_event_name == (event if isinstance(event, str) else "")
    assert isinstance(value.to_wire(), dict)
    assert isinstance(repr(value), str)


def test_depth_never_raises() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    for key in ("tool_input", "effort", "session_id", "tool_response"):
        value = hook_input_from_wire({"hook_event_name": "PostToolUse", "tool_name": 5, key: {"x": deep}})
        assert value.hook_event_name == "PostToolUse"


@pytest.mark.requirement("A8")
class TestRegistration:
    @pytest.mark.parametrize("data", lines("hook_matchers.jsonl"))
    def test_recorded(self, data: dict[str, Any]) -> None:
        registration = convert_leniently(HookRegistration, data)
        assert to_wire(registration) == {"hookCallbackIds": [], **data}

    def test_written(self) -> None:
        assert to_wire(HookRegistration(["hook_0"], "Write|Edit", 2.5, "block")) == {
            "hookCallbackIds": ["hook_0"],
            "matcher": "Write|Edit",
            "timeout": 2.5,
            "onFailure": "block",
        }
        assert to_wire(HookRegistration(["a"])) == {"hookCallbackIds": ["a"]}
        assert to_wire(HookRegistration(["a"], None)) == {"hookCallbackIds": ["a"], "matcher": None}


def test_types() -> None:
    assert_type(hook_input_from_wire({}), HookInput)
    assert_type(HookInput.from_wire({}).hook_event_name, str)
    assert_type(PreToolUseInput.from_wire({}), PreToolUseInput)
    assert_type(PreToolUseInput.from_wire({}).tool_input, dict[str, Any])
    event: HookEvent = "PreToolUse"
    assert event in HOOK_EVENTS
    value = hook_input_from_wire({"hook_event_name": "UserPromptSubmit", "prompt": "p"})
    if isinstance(value, UserPromptSubmitInput):
        assert_type(value.prompt, str)
