"""What the agent asks the host: every request that was recorded is typed, and none of any shape is lost."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any, Literal, assert_type

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.wire.control._asks import (
    ASKS,
    REMOTE_SUBTYPES,
    UI_SUBTYPES,
    Ask,
    CanUseTool,
    ComputerFolder,
    DialogResult,
    Elicitation,
    ElicitationResult,
    HookCallback,
    HostAuthToken,
    HostAuthTokenRefresh,
    JsonRpcError,
    JsonRpcInvalid,
    JsonRpcRequest,
    JsonRpcSuccess,
    MatchedAskRule,
    McpMessage,
    McpReply,
    OauthToken,
    OauthTokenRefresh,
    RemoteAsk,
    RemoteControlWorkSecret,
    RequestUserDialog,
    UiAsk,
    UnknownAsk,
    WorkSecret,
    ask_from_wire,
)
from outrider.wire.hooks._inputs import HookInput, McpServerSource, StopInput, UnknownHookInput
from outrider.wire.permissions import PermissionRuleValue, PermissionUpdate
from tests.cases import every_case

DATA = Path(__file__).parents[1] / "data"


def lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / name).read_text(encoding="utf-8").splitlines()]


RECORDED = lines("asks.jsonl")
ANSWERS = lines("ask_answers.jsonl")

# Every field that is documented or was seen, by subtype.
WHOLE: list[tuple[dict[str, Any], type[Any]]] = [
    (
        {
            "subtype": "can_use_tool",
            "tool_name": "Bash",
            "input": {"command": "ls"},
            "tool_use_id": "t1",
            "permission_suggestions": [{"type": "unheardOf", "x": 1}],
            "blocked_path": "/a",
            "decision_reason": "r",
            "decision_reason_type": "rule",
            "decision_reason_code": "c",
            "decision_reason_hook_event": "PreToolUse",
            "decision_reason_hook_source": "settings",
            "decision_reason_rule_source": "mcpServerPolicy",
            "classifier_approvable": False,
            "suppress_always_allow_rule": True,
            "default_to_no": False,
            "matched_ask_rule": {"source": "userSettings", "tool_name": "Bash", "rule_content": "ls *"},
            "title": "t",
            "display_name": "Bash",
            "description": "d",
            "agent_id": "a",
            "requires_user_interaction": True,
            "mcp_server": {"name": "s", "source": "sdk"},
            "server_policy_ask_only": False,
            "plugin": {"name": "p"},
            "server_prompt": "p",
            "computer_folder": {"path": "/f", "computer_name": "c"},
        },
        CanUseTool,
    ),
    (
        {
            "subtype": "hook_callback",
            "callback_id": "hook_0",
            "input": {
                "session_id": "s",
                "transcript_path": "/t",
                "cwd": "/c",
                "hook_event_name": "Stop",
                "stop_hook_active": True,
            },
            "tool_use_id": "t1",
        },
        HookCallback,
    ),
    (
        {
            "subtype": "mcp_message",
            "server_name": "s",
            "message": {"jsonrpc": "2.0", "id": 1, "method": "ping"},
        },
        McpMessage,
    ),
    (
        {
            "subtype": "elicitation",
            "mcp_server_name": "s",
            "message": "m",
            "mode": "form",
            "url": "https://example.invalid",
            "elicitation_id": "e",
            "requested_schema": {"type": "object"},
            "property_order": ["a", "b"],
            "title": "t",
            "display_name": "n",
            "description": "d",
        },
        Elicitation,
    ),
    (
        {
            "subtype": "request_user_dialog",
            "dialog_kind": "refusal_fallback_prompt",
            "payload": {"model": "m"},
            "tool_use_id": "t1",
        },
        RequestUserDialog,
    ),
    (
        {
            "subtype": "oauth_token_refresh",
            "kind": "k",
            "token_state": "refused",
            "refused_call": "model",
        },
        OauthTokenRefresh,
    ),
    ({"subtype": "host_auth_token_refresh", "status": 401}, HostAuthTokenRefresh),
    ({"subtype": "remote_control_work_secret", "session_id": "s"}, RemoteControlWorkSecret),
    *[({"subtype": subtype, "text": "t", "fields": 1}, UiAsk) for subtype in UI_SUBTYPES],
    *[({"subtype": subtype, "call": {"a": [1]}}, RemoteAsk) for subtype in REMOTE_SUBTYPES],
    ({"subtype": "brand_new", "subtypes": [1], "fields": {}}, UnknownAsk),
]
SUBTYPES = [data["subtype"] for data, _ in WHOLE]


@pytest.mark.requirement("A10")
@pytest.mark.requirement("A8")
class TestRecorded:
    @every_case("data", RECORDED)
    def test_typed_with_every_key_known(self, data: dict[str, Any]) -> None:
        ask = ask_from_wire(data)
        assert type(ask) is ASKS[data["subtype"]]
        assert ask.raw is data
        assert ask.to_wire() == data
        if isinstance(ask, CanUseTool):
            for update in ask.permission_suggestions or ():
                # Made anew it has no memory of what was received: every key comes from a field.
                assert msgspec.structs.replace(update).to_dict() == update.raw
        if isinstance(ask, HookCallback):
            assert not isinstance(ask.input, UnknownHookInput)
            assert ask.input.raw is data["input"]
        if isinstance(ask, McpMessage):
            assert not isinstance(ask.rpc, JsonRpcInvalid)

    def test_four_subtypes_are_recorded(self) -> None:
        assert {data["subtype"] for data in RECORDED} == {
            "can_use_tool",
            "hook_callback",
            "mcp_message",
            "elicitation",
        }


@pytest.mark.requirement("A10")
class TestEverySubtype:
    @every_case("data, kind", WHOLE, ids=SUBTYPES)
    def test_round_trip(self, data: dict[str, Any], kind: type[Any]) -> None:
        ask = ask_from_wire(data)
        assert type(ask) is kind
        assert ask.subtype == data["subtype"]
        assert ask.to_wire() == data
        assert ask.raw is data

    @every_case("data, kind", WHOLE[:8], ids=SUBTYPES[:8])
    def test_all_documented_fields_and_no_other(self, data: dict[str, Any], kind: type[Any]) -> None:
        assert {field.encode_name for field in msgspec.structs.fields(kind)} == {*data} - {"subtype"}

    @every_case("data, kind", WHOLE, ids=SUBTYPES)
    def test_copies(self, data: dict[str, Any], kind: type[Any]) -> None:
        ask = ask_from_wire({**data, "unheard_of": [1]})
        for twin in (copy.copy(ask), copy.deepcopy(ask), pickle.loads(pickle.dumps(ask))):
            assert type(twin) is kind
            assert twin == ask
            assert twin.raw == {**data, "unheard_of": [1]}
            assert twin.to_wire() == ask.to_wire()

    @every_case("subtype", SUBTYPES)
    def test_only_the_subtype(self, subtype: str) -> None:
        ask = ask_from_wire({"subtype": subtype})
        assert ask.subtype == subtype
        assert isinstance(ask.to_wire(), dict)

    def test_every_class_has_its_subtypes(self) -> None:
        assert set(ASKS) == set(SUBTYPES) - {"brand_new"}


class TestReading:
    def test_parts_are_typed(self) -> None:
        ask = ask_from_wire(WHOLE[0][0])
        assert isinstance(ask, CanUseTool)
        assert ask.mcp_server == McpServerSource("s", "sdk")
        assert ask.matched_ask_rule == MatchedAskRule("userSettings", "Bash", "ls *")
        assert ask.computer_folder == ComputerFolder("/f", "c")
        assert ask.permission_suggestions == [PermissionUpdate("unheardOf")]

    def test_suggestions(self) -> None:
        ask = ask_from_wire(RECORDED[0])
        assert isinstance(ask, CanUseTool)
        assert ask.permission_suggestions is not None
        first, second = ask.permission_suggestions
        assert first == PermissionUpdate(
            "addRules", [PermissionRuleValue("Bash", "echo hello *")], "allow", destination="localSettings"
        )
        assert second.directories == ["/home/dev/project"]

    def test_hook_input(self) -> None:
        ask = ask_from_wire(WHOLE[1][0])
        assert isinstance(ask, HookCallback)
        assert ask.input == StopInput(session_id="s", transcript_path="/t", cwd="/c", stop_hook_active=True)
        made = HookCallback("hook_0", ask.input)
        assert "tool_use_id" not in made.to_wire()

    def test_json_rpc(self) -> None:
        ask = ask_from_wire(WHOLE[2][0])
        assert isinstance(ask, McpMessage)
        assert ask.rpc == JsonRpcRequest("ping", 1)

    def test_mistyped_fields(self) -> None:
        ask = ask_from_wire(
            {"subtype": "can_use_tool", "tool_name": 5, "input": [], "title": 3, "default_to_no": 1}
        )
        assert ask == CanUseTool("", {}, "")
        assert ask.raw["tool_name"] == 5
        hook = ask_from_wire({"subtype": "hook_callback", "input": "x"})
        assert hook == HookCallback("", UnknownHookInput(event="", fields={}))

    @pytest.mark.parametrize("subtype", [None, 5, ["can_use_tool"], {}])
    def test_subtype_that_is_no_text(self, subtype: object) -> None:
        data = {"subtype": subtype, "x": 1}
        ask = ask_from_wire(data)
        assert ask == UnknownAsk("", data)
        assert ask.to_wire() == data

    def test_nothing_at_all(self) -> None:
        assert ask_from_wire({}) == UnknownAsk("", {})

    def test_match(self) -> None:
        match ask_from_wire(WHOLE[0][0]):
            case CanUseTool(tool_name="Bash", input={"command": str(command)}):
                assert command == "ls"
            case other:
                pytest.fail(repr(other))

    def test_depth(self) -> None:
        deep: Any = []
        for _ in range(100_000):
            deep = [deep]
        for subtype in SUBTYPES:
            keys = ("input", "message", "payload", "permission_suggestions", "url")
            data = {key: {"x": deep} for key in keys}
            assert ask_from_wire({**data, "subtype": subtype, "tool_name": 5}).subtype == subtype


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
KEYS = sorted({key for data, _ in WHOLE for key in data} - {"subtype"})


@given(
    st.sampled_from(SUBTYPES) | json_values,
    st.dictionaries(st.sampled_from(KEYS), json_values, max_size=6),
)
def test_garbage_never_raises(subtype: object, fields: dict[str, Any]) -> None:
    data = {"subtype": subtype, **fields}
    ask = ask_from_wire(data)
    assert ask.raw is data
    assert ask.subtype == (subtype if isinstance(subtype, str) else "")
    assert isinstance(ask.to_wire(), dict)
    assert isinstance(repr(ask), str)


class TestAnswers:
    @pytest.mark.parametrize(
        "data", [answer["response"] for answer in ANSWERS if answer["to"] == "elicitation"]
    )
    def test_recorded_elicitation_results(self, data: dict[str, Any]) -> None:
        result = ElicitationResult.from_wire(data)
        assert result.raw is data
        assert result.to_wire() == data

    def test_elicitation_result(self) -> None:
        assert ElicitationResult("cancel").to_wire() == {"action": "cancel"}
        assert ElicitationResult("accept", {}).to_wire() == {"action": "accept", "content": {}}
        assert ElicitationResult.from_wire({"action": 5}) == ElicitationResult("")

    @pytest.mark.parametrize(
        "result, wire",
        [
            (DialogResult(result={"model": "m"}), {"behavior": "completed", "result": {"model": "m"}}),
            (DialogResult("completed"), {"behavior": "completed", "result": None}),
            (DialogResult("cancelled"), {"behavior": "cancelled"}),
            (DialogResult("brandNew", 5), {"behavior": "brandNew", "result": 5}),
        ],
    )
    def test_dialog_result(self, result: DialogResult, wire: dict[str, Any]) -> None:
        assert result.to_wire() == wire
        assert DialogResult.from_wire(wire) == result

    @pytest.mark.parametrize(
        "data", [answer["response"] for answer in ANSWERS if answer["to"] == "mcp_message"]
    )
    def test_recorded_mcp_replies(self, data: dict[str, Any]) -> None:
        reply = McpReply.from_wire(data)
        assert reply.to_wire() == data
        assert isinstance(reply.rpc, JsonRpcSuccess | JsonRpcError)

    def test_mcp_reply(self) -> None:
        assert McpReply.of(JsonRpcSuccess(1, {"a": 1})).to_wire() == {
            "mcp_response": {"jsonrpc": "2.0", "id": 1, "result": {"a": 1}}
        }
        assert McpReply.to_notification().to_wire() == {
            "mcp_response": {"jsonrpc": "2.0", "id": 0, "result": {}}
        }
        assert McpReply.from_wire({}) == McpReply({})

    @pytest.mark.parametrize(
        "answer, wire",
        [
            (OauthToken("s3cret"), {"accessToken": "s3cret"}),
            (OauthToken(None, "signed_out"), {"accessToken": None, "reason": "signed_out"}),
            (HostAuthToken("s3cret"), {"authToken": "s3cret"}),
            (WorkSecret("s3cret"), {"work_secret": "s3cret"}),
            (WorkSecret(None), {"work_secret": None}),
        ],
    )
    def test_secrets(self, answer: OauthToken | HostAuthToken | WorkSecret, wire: dict[str, Any]) -> None:
        assert answer.to_wire() == wire
        assert type(answer).from_wire(wire) == answer
        assert "s3cret" not in repr(answer) + str([answer]) + str(answer.__rich_repr__())
        assert repr(answer) == f"{type(answer).__name__}(…)"


def test_types() -> None:
    ask = ask_from_wire({"subtype": "can_use_tool"})
    assert_type(ask, Ask)
    assert_type(CanUseTool.subtype, Literal["can_use_tool"])
    if isinstance(ask, CanUseTool):
        assert_type(ask.permission_suggestions, list[PermissionUpdate] | None)
        assert_type(ask.mcp_server, McpServerSource | None)
    elif isinstance(ask, HookCallback):
        assert_type(ask.input, HookInput)
    ElicitationResult("brandNew")
