"""Requests to the agent: all are there, both ways over the wire, and each knows its answer."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any, assert_type

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, ValidationError

from outrider.wire._encoding import encode
from outrider.wire.control._base import Acknowledged, GenericRequest, OpenRequest, Request, Undocumented
from outrider.wire.control._mcp import McpServers, McpStatus, McpToggle, SetMcpPermissionModeOverride
from outrider.wire.control._session import (
    BackgroundTasks,
    EndSession,
    GenerateSessionTitle,
    GetWorkspaceDiff,
    Initialize,
    Initialized,
    Interrupt,
    Interrupted,
    ModelSet,
    RewindFiles,
    SetHasSubscribers,
    SetMaxThinkingTokens,
    SetModel,
    SetPermissionMode,
    StageFile,
    StopTask,
)
from outrider.wire.control._settings import (
    REQUESTS,
    ContextUsage,
    GetContextUsage,
    GetUsage,
    request_from_wire,
)
from outrider.wire.hooks import HookRegistration
from tests.cases import every_case
from tests.wire.control.sampling import complete, minimal

JsonObject = dict[str, Any]

pytestmark = pytest.mark.requirement("A9")

# One of each shape that was sent to version 2.1.325; `typed` is false where the sender meant it to be wrong.
RECORDED: list[JsonObject] = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data" / "requests.jsonl")
    .read_text(encoding="utf-8")
    .splitlines()
]

# fmt: off
SUBTYPES = {
    "initialize", "interrupt", "set_permission_mode", "set_model", "set_max_thinking_tokens",
    "apply_flag_settings", "update_settings", "get_settings", "mcp_status", "mcp_reconnect", "mcp_toggle",
    "mcp_set_servers", "mcp_message", "mcp_read_resource", "mcp_call", "get_context_usage", "get_usage",
    "get_session_cost", "list_models", "get_binary_version", "file_suggestions", "read_file",
    "seed_read_state", "rewind_files", "cancel_async_message", "stop_task", "background_tasks",
    "get_task_output", "reload_plugins", "reload_skills", "reload_output_styles", "register_repo_root",
    "get_hooks_listing", "list_permission_rules", "rename_session", "set_color", "set_has_subscribers",
    "set_mcp_permission_mode_override", "set_cwd", "claim_session", "side_question",
    "generate_session_title", "get_plan", "get_status", "export_conversation", "get_memory_dialog",
    "get_skills_dialog", "get_sandbox_dialog", "mcp_authenticate", "mcp_oauth_callback_url",
    "mcp_clear_auth", "claude_authenticate", "claude_oauth_callback", "claude_oauth_wait_for_completion",
    "channel_enable", "remote_control", "set_prompt_suggestions_paused", "message_rated", "submit_feedback",
    "submit_survey_feedback", "ultrareview_launch", "set_chrome_browser_hints", "get_chrome_dialog",
    "get_chrome_browsers", "select_chrome_browser", "end_session", "add_directory", "rewind_conversation",
    "stage_file", "get_workspace_diff", "fork_conversation",
}
# fmt: on

KINDS = [pytest.param(kind, id=subtype) for subtype, kind in sorted(REQUESTS.items())]

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


def test_every_subtype_has_a_class() -> None:
    assert set(REQUESTS) == SUBTYPES


@every_case("kind", KINDS)
def test_a_class_is_named_after_its_subtype_and_knows_its_answer(kind: type[Request[Any]]) -> None:
    subtype = minimal(kind).subtype

    name = "".join(word.capitalize() for word in subtype.split("_"))
    # The agent's own request of this name goes the other way and has the plain name.
    assert kind.__name__ == {"McpMessage": "SendMcpMessage"}.get(name, name)
    assert REQUESTS[subtype] is kind
    [base] = [base for base in vars(kind)["__orig_bases__"] if base.__origin__ in (Request, OpenRequest)]
    assert base.__args__ == (kind.answer,)


@every_case("make", [complete, minimal])
@every_case("kind", KINDS)
def test_there_and_back(kind: type[Request[Any]], make: Any) -> None:
    request = make(kind)

    wire = request.to_wire()

    assert wire["subtype"] == request.subtype
    assert request_from_wire(wire) == request
    assert json.loads(json.dumps(wire)) == wire
    assert json.loads(encode(request)) == wire


@every_case("kind", KINDS)
def test_every_set_field_is_sent(kind: type[Request[Any]]) -> None:
    request = complete(kind)
    fields = {"any"} if isinstance(request, OpenRequest) else set(kind.__struct_encode_fields__)
    if isinstance(request, OpenRequest):
        request.fields = {"any": 1}

    assert set(request.to_wire()) == {"subtype", *fields}


@every_case(
    "line", [pytest.param(line, id=f"{n}-{line['request']['subtype']}") for n, line in enumerate(RECORDED)]
)
def test_recorded_requests_are_typed_and_lose_nothing(line: JsonObject) -> None:
    sent: JsonObject = line["request"]

    request = request_from_wire(sent)

    assert type(request) is (REQUESTS[sent["subtype"]] if line["typed"] else GenericRequest)
    assert request.subtype == sent["subtype"]
    assert {**request.to_wire(), **sent} == request.to_wire()


def test_what_was_recorded_as_wrong_is_wrong() -> None:
    wrong = [line["request"] for line in RECORDED if not line["typed"]]

    assert {"subtype": "no_such_subtype", "a": 1} in wrong
    for sent in wrong:
        if kind := REQUESTS.get(sent["subtype"]):
            with pytest.raises(ValidationError):
                kind.from_wire(sent)


NULL_AND_ABSENT: list[tuple[Request[Any], JsonObject]] = [
    (SetModel("sonnet"), {"model": "sonnet"}),
    (SetModel(None), {"model": None}),
    (SetModel(), {"model": None}),
    (SetMaxThinkingTokens(), {}),
    (SetMaxThinkingTokens(None), {"max_thinking_tokens": None}),
    (SetMaxThinkingTokens(0), {"max_thinking_tokens": 0}),
    (SetMaxThinkingTokens(thinking_display=None), {"thinking_display": None}),
    (SetMaxThinkingTokens(UNSET, "omitted"), {"thinking_display": "omitted"}),
    (SetHasSubscribers(None), {"has_subscribers": None}),
    (SetHasSubscribers(False), {"has_subscribers": False}),
    (SetMcpPermissionModeOverride("s", None), {"serverName": "s", "mode": None}),
    (SetMcpPermissionModeOverride("s", "auto"), {"serverName": "s", "mode": "auto"}),
    (Initialize(), {}),
    (Initialize(hooks=None), {"hooks": None}),
    (Initialize(hooks={}), {"hooks": {}}),
    (
        Initialize(hooks={"Stop": [HookRegistration(["h"])]}),
        {"hooks": {"Stop": [{"hookCallbackIds": ["h"]}]}},
    ),
    (
        Initialize(hooks={"Stop": [HookRegistration(["h"], None, 5, "block")]}),
        {
            "hooks": {
                "Stop": [{"hookCallbackIds": ["h"], "matcher": None, "timeout": 5, "onFailure": "block"}]
            }
        },
    ),
    (Initialize(supported_dialog_kinds=[]), {"supportedDialogKinds": []}),
    (Initialize(system_prompt=[""], skills=[]), {"systemPrompt": [""], "skills": []}),
    (GenerateSessionTitle("x", persist=False), {"description": "x", "persist": False}),
    (GenerateSessionTitle("x"), {"description": "x"}),
    (Interrupt(), {}),
    (Interrupt(cancel_queued=False), {"cancel_queued": False}),
]


@every_case(
    "request_, fields",
    [pytest.param(*case, id=f"{n}-{case[0].subtype}") for n, case in enumerate(NULL_AND_ABSENT)],
)
def test_null_is_not_absent(request_: Request[Any], fields: JsonObject) -> None:
    assert request_.to_wire() == {"subtype": request_.subtype, **fields}
    assert request_from_wire(request_.to_wire()) == request_


def test_a_model_that_is_not_named_is_reset() -> None:
    assert request_from_wire({"subtype": "set_model"}) == SetModel(None)


def test_keys_that_a_known_request_does_not_name_do_not_hide_it() -> None:
    assert request_from_wire({"subtype": "interrupt", "soon": True}) == Interrupt()


def test_requests_with_unpublished_fields_carry_any() -> None:
    request = StageFile({"path": "a.txt", "null": None})

    assert request.to_wire() == {"subtype": "stage_file", "path": "a.txt", "null": None}
    assert request_from_wire(request.to_wire()) == request
    assert StageFile().to_wire() == {"subtype": "stage_file"}
    assert StageFile().fields is not StageFile().fields


def test_a_request_without_a_class() -> None:
    request = GenericRequest("from_the_future", {"a": [1], "b": None})

    assert request.to_wire() == {"subtype": "from_the_future", "a": [1], "b": None}
    assert json.loads(encode(request)) == request.to_wire()
    assert request_from_wire(request.to_wire()) == request
    assert GenericRequest("bare").to_wire() == {"subtype": "bare"}
    assert request.read_answer({"x": 1}) == {"x": 1}
    assert request.read_answer(None) == request.read_answer([]) == request.read_answer("text") == {}


@every_case(
    "data",
    [
        {},
        {"subtype": None},
        {"subtype": 5, "a": 1},
        {"subtype": ["interrupt"]},
        {"subtype": {}},
        {"subtype": "set_permission_mode", "mode": 1},
        {"subtype": "mcp_toggle", "server_name": "s", "enabled": True},
        {"subtype": "interrupt", "cancel_queued": "yes"},
    ],
)
def test_what_fits_no_class_is_kept_as_it_is(data: JsonObject) -> None:
    request = request_from_wire(data)

    assert type(request) is GenericRequest
    assert {**request.to_wire(), **data} == request.to_wire()


@given(st.dictionaries(st.sampled_from(["subtype", "path", "mode", "hooks", ""]), json_values, max_size=3))
def test_any_object_can_be_read(data: JsonObject) -> None:
    request = request_from_wire(data)

    assert isinstance(request, Request)
    if isinstance(request, GenericRequest):
        assert {**request.to_wire(), **data} == request.to_wire()


@given(st.sampled_from(sorted(SUBTYPES)), st.data())
def test_a_known_subtype_with_any_fields_can_be_read(subtype: str, data: st.DataObject) -> None:
    names = st.sampled_from([*REQUESTS[subtype].__struct_encode_fields__, "other"])
    sent = {**data.draw(st.dictionaries(names, json_values, max_size=4)), "subtype": subtype}

    assert request_from_wire(sent).subtype == subtype


def test_requests_are_values() -> None:
    request = McpToggle("s", enabled=True)

    assert copy.copy(request) == copy.deepcopy(request) == pickle.loads(pickle.dumps(request)) == request
    assert repr(request) == "McpToggle(server_name='s', enabled=True)"
    match request:
        case McpToggle(name, enabled):
            assert (name, enabled) == ("s", True)


def test_an_answer_has_the_type_that_its_request_says() -> None:
    assert_type(SetModel("x").read_answer({}), ModelSet)
    assert_type(Initialize().read_answer({}), Initialized)
    assert_type(Interrupt().read_answer(None), Interrupted)
    assert_type(McpStatus().read_answer({}), McpServers)
    assert_type(GetContextUsage().read_answer({}), ContextUsage)
    assert_type(StopTask("x").read_answer(None), Acknowledged)
    assert_type(EndSession().read_answer(None), Acknowledged)
    assert_type(StageFile().read_answer({}), Undocumented)
    assert_type(GenericRequest("x").read_answer({}), dict[str, Any])
    assert_type(BackgroundTasks().read_answer({}).backgrounded, bool | None)
    assert_type(RewindFiles("x").read_answer({}).files_changed, list[str] | None)
    assert_type(GetUsage().read_answer({}).session.total_cost_usd, float)
    assert_type(SetPermissionMode("plan").subtype, str)
    assert_type(GetWorkspaceDiff().to_wire(), dict[str, Any])


@every_case("kind", KINDS)
def test_any_payload_becomes_the_answer(kind: type[Request[Any]]) -> None:
    request = minimal(kind)
    payloads: list[object] = [None, {}, [], "text", 5, {"unheard": {"of": 1}}]

    for payload in payloads:
        answer = request.read_answer(payload)

        assert type(answer) is kind.answer
        assert answer.raw == (payload if isinstance(payload, dict) else {})
