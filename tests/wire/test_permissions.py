"""Permission decisions and updates, to and from the wire."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any, Literal, assert_type, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.wire.choices import PermissionUpdateType
from outrider.wire.permissions import (
    PermissionResult,
    PermissionResultAllow,
    PermissionResultDeny,
    PermissionRuleValue,
    PermissionUpdate,
    permission_result_from_wire,
    permission_updates_from_wire,
)
from tests.cases import every_case

DATA = Path(__file__).parent / "data"
RECORDED: list[dict[str, Any]] = [
    answer["response"]
    for answer in map(json.loads, (DATA / "ask_answers.jsonl").read_text(encoding="utf-8").splitlines())
    if answer["to"] == "can_use_tool"
]
SUGGESTED: list[dict[str, Any]] = [
    suggestion
    for ask in map(json.loads, (DATA / "asks.jsonl").read_text(encoding="utf-8").splitlines())
    for suggestion in ask.get("permission_suggestions", ())
]

json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
rules = st.fixed_dictionaries(
    {}, optional={"toolName": json_values, "ruleContent": json_values, "x": json_values}
)
updates = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(get_args(get_args(PermissionUpdateType)[0])) | json_values,
        "rules": st.lists(rules | json_values, max_size=3) | json_values,
        "behavior": json_values,
        "mode": json_values,
        "directories": st.lists(st.text(max_size=3), max_size=2) | json_values,
        "destination": json_values,
        "unheardOf": json_values,
    },
)


ALL: dict[str, Any] = {
    "rules": [PermissionRuleValue("Bash", "ls *"), PermissionRuleValue("Read")],
    "behavior": "deny",
    "mode": "plan",
    "directories": ["/a"],
    "destination": "session",
}
RULES = [{"toolName": "Bash", "ruleContent": "ls *"}, {"toolName": "Read"}]


@pytest.mark.requirement("A10")
class TestUpdate:
    @pytest.mark.parametrize(
        "kind, keys",
        [
            ("addRules", {"rules": RULES, "behavior": "deny"}),
            ("replaceRules", {"rules": RULES, "behavior": "deny"}),
            ("removeRules", {"rules": RULES, "behavior": "deny"}),
            ("setMode", {"mode": "plan"}),
            ("addDirectories", {"directories": ["/a"]}),
            ("removeDirectories", {"directories": ["/a"]}),
        ],
    )
    def test_only_the_keys_of_its_type(self, kind: str, keys: dict[str, Any]) -> None:
        wire = PermissionUpdate(kind, **ALL).to_dict()
        assert wire == {"type": kind, "destination": "session", **keys}
        assert PermissionUpdate.from_dict(wire).to_dict() == wire

    def test_unset_keys_stay_out(self) -> None:
        session = {"destination": "session"}
        assert PermissionUpdate("addRules").to_dict() == {"type": "addRules", **session}
        assert PermissionUpdate("setMode", mode="plan").to_wire() == {
            "type": "setMode",
            "mode": "plan",
            **session,
        }

    def test_unknown_type_keeps_all_that_is_set(self) -> None:
        update = PermissionUpdate("newKind", mode="plan", directories=["/a"])
        assert update.to_dict() == {"type": "newKind", "mode": "plan", "directories": ["/a"]}

    def test_positional_order(self) -> None:
        rule = PermissionRuleValue("Bash", None)
        update = PermissionUpdate("addRules", [rule], "ask", "plan", ["/a"], "userSettings")
        assert update == PermissionUpdate(
            type="addRules",
            rules=[rule],
            behavior="ask",
            mode="plan",
            directories=["/a"],
            destination="userSettings",
        )

    @every_case("data", SUGGESTED)
    def test_recorded_suggestions_have_no_unknown_key(self, data: dict[str, Any]) -> None:
        update = PermissionUpdate.from_dict(data)
        assert update.raw is data
        # Made anew it has no memory of what was received: every key comes from a field.
        assert msgspec.structs.replace(update).to_dict() == data

    @given(updates)
    def test_any_shape_comes_back_as_it_was(self, data: dict[str, Any]) -> None:
        before = copy.deepcopy(data)
        update = PermissionUpdate.from_dict(data)
        assert update.to_dict() == before
        assert copy.copy(update).to_dict() == before
        assert copy.deepcopy(update).to_dict() == before
        assert pickle.loads(pickle.dumps(update)).to_dict() == before
        assert PermissionResultAllow(updated_permissions=[update]).to_wire()["updatedPermissions"] == [before]

    def test_a_change_counts_more_than_what_was_received(self) -> None:
        update = PermissionUpdate.from_dict({"type": "setMode", "mode": "plan", "extra": 1})
        update.mode = "default"
        assert update.to_dict() == {"type": "setMode", "mode": "default", "destination": "session"}

    def test_list_of_updates(self) -> None:
        data = [{"type": "setMode", "mode": "plan"}, "junk", None, {}]
        updates = permission_updates_from_wire(data)
        assert updates == [PermissionUpdate("setMode", mode="plan"), PermissionUpdate("")]
        assert permission_updates_from_wire({}) is None
        assert permission_updates_from_wire(None) is None

    def test_equality_and_repr_ignore_what_was_received(self) -> None:
        received = PermissionUpdate.from_dict({"type": "setMode", "mode": "plan", "extra": 1})
        assert received == PermissionUpdate("setMode", mode="plan")
        assert repr(received) == "PermissionUpdate(type='setMode', mode='plan')"


@pytest.mark.requirement("A10")
class TestResult:
    def test_positional_order(self) -> None:
        update = PermissionUpdate("setMode", mode="plan")
        assert PermissionResultAllow("allow", {"a": 1}, [update]).updated_permissions == [update]
        deny = PermissionResultDeny("deny", "no", True)
        assert (deny.behavior, deny.message, deny.interrupt) == ("deny", "no", True)
        assert (PermissionResultAllow().behavior, PermissionResultDeny().behavior) == ("allow", "deny")

    def test_allow_repeats_the_original_input(self) -> None:
        original = {"command": "ls"}
        assert PermissionResultAllow().to_wire("t1", original) == {
            "behavior": "allow",
            "updatedInput": original,
            "toolUseID": "t1",
        }
        assert PermissionResultAllow().to_wire() == {"behavior": "allow"}

    def test_allow_with_changes(self) -> None:
        update = PermissionUpdate("addRules", [PermissionRuleValue("Bash")], "allow", destination="session")
        result = PermissionResultAllow(
            updated_input={}, updated_permissions=[update], decision_classification="user_permanent"
        )
        assert result.to_wire("t1", {"command": "ls"}) == {
            "behavior": "allow",
            "updatedInput": {},
            "updatedPermissions": [
                {
                    "type": "addRules",
                    "destination": "session",
                    "rules": [{"toolName": "Bash"}],
                    "behavior": "allow",
                }
            ],
            "toolUseID": "t1",
            "decisionClassification": "user_permanent",
        }

    def test_no_updates_are_not_the_same_as_unset(self) -> None:
        assert PermissionResultAllow(updated_permissions=[]).to_wire()["updatedPermissions"] == []

    def test_deny(self) -> None:
        assert PermissionResultDeny(message="no").to_wire("t1", {"a": 1}) == {
            "behavior": "deny",
            "message": "no",
            "toolUseID": "t1",
        }
        assert PermissionResultDeny(interrupt=True).to_wire() == {
            "behavior": "deny",
            "message": "",
            "interrupt": True,
        }

    @pytest.mark.parametrize("data", RECORDED)
    def test_recorded_answers_come_back_as_they_were(self, data: dict[str, Any]) -> None:
        result = permission_result_from_wire(data)
        assert result is not None
        assert result.to_wire(data.get("toolUseID")) == data

    def test_both_classes_are_recorded(self) -> None:
        kinds = {type(permission_result_from_wire(data)) for data in RECORDED}
        assert kinds == {PermissionResultAllow, PermissionResultDeny}

    def test_all_fields_are_read(self) -> None:
        data: dict[str, Any] = {
            "behavior": "allow",
            "updatedInput": {"a": 1},
            "updatedPermissions": [{"type": "new", "x": 1}],
            "decisionClassification": "user_temporary",
            "toolUseID": "t1",
        }
        result = permission_result_from_wire(data)
        updates = [PermissionUpdate("new")]
        assert result == PermissionResultAllow("allow", {"a": 1}, updates, "user_temporary", "t1")
        assert isinstance(result, PermissionResultAllow)
        assert result.to_wire() == data

    @pytest.mark.parametrize(
        "data",
        [
            {},
            {"behavior": "maybe"},
            {"behavior": "deny"},
            {"behavior": "deny", "message": 5},
            {"behavior": ["allow"]},
        ],
        ids=str,
    )
    def test_what_the_agent_refuses_is_none(self, data: dict[str, Any]) -> None:
        assert permission_result_from_wire(data) is None

    @given(
        st.fixed_dictionaries(
            {"behavior": st.sampled_from(["allow", "deny"])},
            optional={
                "updatedInput": json_values,
                "updatedPermissions": st.lists(updates | json_values, max_size=2) | json_values,
                "message": st.text(max_size=3) | json_values,
                "interrupt": json_values,
                "decisionClassification": json_values,
            },
        )
    )
    def test_garbage_never_raises(self, data: dict[str, Any]) -> None:
        result = permission_result_from_wire(data)
        if result is not None:
            assert result.behavior == data["behavior"]
            again = permission_result_from_wire(result.to_wire())
            assert again == result


def test_types() -> None:
    assert_type(PermissionResultAllow().behavior, Literal["allow"])
    assert_type(PermissionResultDeny().behavior, Literal["deny"])
    assert_type(permission_result_from_wire({}), PermissionResult | None)
    assert_type(PermissionUpdate("new").rules, list[PermissionRuleValue] | None)
    # Values of a later release type-check.
    PermissionUpdate("newType", behavior="newBehavior", mode="newMode", destination="newPlace")

    def decide(result: PermissionResult) -> str:
        if result.behavior == "deny":
            assert_type(result, PermissionResultDeny)
            return result.message
        assert_type(result, PermissionResultAllow)
        return ""

    assert decide(PermissionResultDeny(message="no")) == "no"
