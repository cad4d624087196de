"""Answers of the agent: every recorded key has a field, nothing is lost, nothing malformed raises."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.wire._encoding import encode
from outrider.wire.control._base import Acknowledged, Payload, Undocumented
from outrider.wire.control._mcp import McpServers, McpServerStatus, McpToolInfo
from outrider.wire.control._session import (
    AgentInfo,
    Initialized,
    Interrupted,
    ModelInfo,
    ModelSet,
    RewindReport,
    SessionTitle,
)
from outrider.wire.control._settings import (
    REQUESTS,
    ApiUsage,
    ContextSquare,
    ContextUsage,
    ModelList,
    UsageReport,
)
from tests.cases import every_case
from tests.wire.control.sampling import complete

JsonObject = dict[str, Any]

pytestmark = pytest.mark.requirement("A9")

# From the recordings of version 2.1.325: one of each shape, lists cut down to one item of each shape.
RECORDED: list[JsonObject] = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data" / "answers.jsonl")
    .read_text(encoding="utf-8")
    .splitlines()
]

# Shapes that are documented or were seen elsewhere, but are in no recording at hand.
DOCUMENTED: list[tuple[str, JsonObject]] = [
    (
        "rewind_files",
        {"canRewind": True, "filesChanged": ["/a"], "insertions": 1, "deletions": 1, "skippedLinks": 0},
    ),
    ("background_tasks", {"backgrounded": True}),
    ("read_file", {"contents": "x", "absPath": "/x", "truncated": True}),
    ("file_suggestions", {"suggestions": [{"path": "hello.txt"}], "cwd": "/"}),
    ("get_workspace_diff", {"diff": None}),
    ("set_mcp_permission_mode_override", {"warning": "not trusted"}),
    ("mcp_authenticate", {"authUrl": "https://login.invalid", "requiresUserAction": True}),
    ("claude_authenticate", {"manualUrl": "https://m.invalid", "automaticUrl": "https://a.invalid"}),
    ("claude_oauth_wait_for_completion", {"account": {"email": "a@b.invalid", "subscriptionType": "max"}}),
    ("set_cwd", {"status": "ok", "cwd": "/x", "changed": False, "transcript_relocated": True}),
    ("set_cwd", {"status": "needs_trust", "directory": "/x"}),
    (
        "rewind_conversation",
        {"rewound": True, "targetMessageUuid": "u", "prefillText": "hi", "precedingAssistantUuid": "v"},
    ),
    (
        "mcp_call",
        {
            "content": [{"type": "text", "text": "1"}],
            "structuredContent": {"n": 1},
            "isError": False,
            "_meta": {"ui": {}},
            "staging": {"error_code": "expired", "detail": "late"},
        },
    ),
    (
        "side_question",
        {
            "response": None,
            "synthetic": True,
            "refusal_fallback": {"original_model": "a", "fallback_model": "b", "content": "why"},
        },
    ),
    (
        "get_usage",
        {
            "session": {
                "total_cost_usd": 0.5,
                "total_api_duration_ms": 1,
                "total_duration_ms": 2,
                "total_lines_added": 3,
                "total_lines_removed": 4,
                "model_usage": {},
            },
            "subscription_type": "max",
            "rate_limits_available": True,
            "rate_limits": {
                "five_hour": {"utilization": 12, "resets_at": "2026-01-01T00:00:00Z"},
                "seven_day": {"utilization": None, "resets_at": None},
                "model_scoped": [{"display_name": "Opus", "utilization": 1.5, "resets_at": None}],
                "extra_usage": {
                    "is_enabled": True,
                    "monthly_limit": None,
                    "used_credits": 1,
                    "utilization": None,
                },
            },
            "behaviors": {"day": {"x": 1}, "week": {}},
        },
    ),
    (
        "get_hooks_listing",
        {
            "events": ["Stop"],
            "hooks": [
                {
                    "event": "Stop",
                    "matcher": "x",
                    "source": "user",
                    "sourceLabel": "User",
                    "type": "command",
                    "displayText": "run",
                    "commandText": "run.sh",
                    "contentLabel": "Command",
                    "timeout": 5,
                    "runsOnce": True,
                }
            ],
            "eventCatalog": [],
            "policy": {
                "disabledByPolicy": False,
                "managedOnly": False,
                "pluginOnly": False,
                "allDisabled": False,
                "policyHookCount": 0,
            },
            "safeMode": False,
            "bareMode": False,
            "errors": [],
        },
    ),
    (
        "list_permission_rules",
        {
            "state": {
                "rules": [
                    {
                        "behavior": "allow",
                        "source": "user",
                        "rule": "Bash(ls)",
                        "description": {"prefix": "Any", "emphasis": "ls", "suffix": "command"},
                        "editability": "editable",
                        "notInEffect": True,
                    }
                ],
                "workspaceDirectories": [{"path": "/x", "source": "session"}],
                "originalCwd": "/",
                "managedOnly": False,
            }
        },
    ),
    (
        "reload_plugins",
        {
            "commands": [],
            "agents": [],
            "plugins": [],
            "mcpServers": [{"name": "s", "status": "pending"}],
            "error_count": 0,
            "held": True,
            "cache_impact": {"mcp_servers_added": ["s"], "mcp_servers_removed": [], "lsp_tool_change": False},
        },
    ),
    (
        "mcp_status",
        {
            "mcpServers": [
                {
                    "name": "s",
                    "status": "needs-auth",
                    "config": {"type": "claudeai-proxy", "url": "https://x.invalid", "id": "1"},
                    "tools": [
                        {
                            "name": "t",
                            "description": "does it",
                            "annotations": {"readOnly": True, "destructive": False, "openWorld": False},
                            "_meta": {"x": 1},
                        }
                    ],
                }
            ]
        },
    ),
]

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


def kinds_of(kind: type[Payload]) -> Iterator[type[Payload]]:
    for child in kind.__subclasses__():
        yield child
        yield from kinds_of(child)


KINDS = [pytest.param(kind, id=kind.__name__) for kind in kinds_of(Payload)]


def unknown_keys(value: object, path: str) -> Iterator[str]:
    """Keys that were received and that no field names, at any depth of typed objects."""
    if isinstance(value, Payload):
        names = dict(zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True))
        yield from (f"{path}.{key}" for key in value.raw if key not in names)
        for wire_name, name in names.items():
            yield from unknown_keys(getattr(value, name), f"{path}.{wire_name}")
    elif isinstance(value, dict):
        for item in cast(JsonObject, value).values():
            yield from unknown_keys(item, f"{path}.*")
    elif isinstance(value, list):
        for item in cast(list[object], value):
            yield from unknown_keys(item, f"{path}[]")


def answer_to(subtype: str, payload: object) -> Payload:
    answer = REQUESTS[subtype].answer.from_wire(payload)
    assert isinstance(answer, Payload)
    return answer


@every_case(
    "subtype, payload",
    [
        *(
            pytest.param(*line.values(), id=f"recorded-{n}-{line['subtype']}")
            for n, line in enumerate(RECORDED)
        ),
        *(pytest.param(*pair, id=f"documented-{n}-{pair[0]}") for n, pair in enumerate(DOCUMENTED)),
    ],
)
def test_every_key_has_a_field_and_none_is_lost(subtype: str, payload: JsonObject | None) -> None:
    answer = answer_to(subtype, payload)

    assert list(unknown_keys(answer, subtype)) == []
    assert answer.raw == (payload or {})
    assert answer.to_wire() == (payload or {})
    assert json.loads(encode(answer)) == (payload or {})


def test_recorded_answers_are_read_right() -> None:
    [payload] = [line["payload"] for line in RECORDED if line["subtype"] == "list_models"]
    answer = ModelList.from_wire(payload)
    assert (answer.models[0].value, answer.models[0].resolved_model) == ("default", "claude-opus-5-5")
    assert answer.models[0].supported_effort_levels == ["low", "medium"]

    payload = next(line["payload"] for line in RECORDED if line["subtype"] == "get_context_usage")
    usage = ContextUsage.from_wire(payload)
    assert usage.total_tokens == 11615
    assert usage.categories[0].name == "System prompt"
    assert usage.grid_rows[0][0].category_name == "System prompt"
    assert usage.message_breakdown is not None
    assert usage.message_breakdown.attachments_by_type[0].tokens > 0

    payload = next(line["payload"] for line in RECORDED if line["subtype"] == "get_usage")
    assert UsageReport.from_wire(payload).session.model_usage["claude-opus-5-5"].cost_usd == 0.0008


@every_case("kind", KINDS)
def test_there_and_back(kind: type[Payload]) -> None:
    answer = complete(kind)

    wire = answer.to_wire()

    assert set(wire) == set(kind.__struct_encode_fields__)
    assert json.loads(json.dumps(wire)) == wire
    assert kind.from_wire(wire) == answer
    assert kind.from_wire(wire).to_wire() == wire


@every_case("kind", KINDS)
def test_all_of_it_may_be_missing(kind: type[Payload]) -> None:
    assert kind.from_wire({}) == kind() == kind.from_wire(kind().to_wire())
    assert kind.from_wire({}).raw == {}


@every_case("kind", KINDS)
def test_garbage_does_no_harm(kind: type[Payload]) -> None:
    pieces: list[object] = [None, "text", 5, 1.5, True, [], [1, {}], {"a": 1}, {"a": {"b": []}}]

    for garbage in pieces:
        assert isinstance(kind.from_wire(garbage), kind)

        payload = dict.fromkeys(kind.__struct_encode_fields__, garbage)
        answer = kind.from_wire(payload)

        assert isinstance(answer, kind)
        assert answer.raw is payload
        assert set(answer.to_wire()) <= set(payload)


@given(st.sampled_from(list(kinds_of(Payload))), st.data())
def test_nothing_raises(kind: type[Payload], data: st.DataObject) -> None:
    names = st.sampled_from([*kind.__struct_encode_fields__, "other"])
    payload = data.draw(st.dictionaries(names, json_values, max_size=4) | json_values)

    answer = kind.from_wire(payload)

    assert answer.raw == (payload if isinstance(payload, dict) else {})
    assert kind.from_wire(answer.to_wire()) == answer


def test_a_mistyped_field_spoils_no_other() -> None:
    answer = Initialized.from_wire(
        {"commands": "none", "pid": "x", "models": [{"value": "a", "supportsEffort": 1}], "output_style": "b"}
    )

    assert answer == Initialized(models=[ModelInfo(value="a")], output_style="b")


def test_items_that_do_not_fit_are_left_out_and_sources_stay_in_step() -> None:
    models: list[object] = ["x", {"value": "a", "new": 1}, 5, [], {"value": 6}]

    answer = ModelList.from_wire({"models": models})

    assert answer.models == [ModelInfo(value="a"), ModelInfo()]
    assert [model.raw for model in answer.models] == [{"value": "a", "new": 1}, {"value": 6}]


def test_sources_are_found_in_lists_of_lists_and_in_dicts() -> None:
    usage = ContextUsage.from_wire({"gridRows": [None, [], ["x", {"color": "red", "new": 1}]]})
    assert usage.grid_rows == [[], [ContextSquare(color="red")]]
    assert usage.grid_rows[1][0].raw == {"color": "red", "new": 1}

    models = {"a": {"costUSD": 2, "new": 1}, "b": 3}
    report = UsageReport.from_wire({"session": {"model_usage": models}})
    assert report.session.model_usage["a"].raw == {"costUSD": 2, "new": 1}
    assert list(report.session.model_usage) == ["a"]


def test_unknown_keys_are_reachable_and_go_back_out() -> None:
    payload = {"mcpServers": [{"name": "s", "status": "connected", "mood": "good"}], "more": [1]}

    answer = McpServers.from_wire(payload)

    assert answer.raw == payload
    assert answer.servers[0].raw["mood"] == "good"
    assert answer.to_wire() == payload

    answer.servers[0].status = "failed"
    assert answer.to_wire()["mcpServers"] == [{"name": "s", "status": "failed", "mood": "good"}]
    assert answer.raw == payload


def test_made_by_hand() -> None:
    answer = McpServers(
        servers=[McpServerStatus(name="s", status="connected", tools=[McpToolInfo(name="t")])],
    )

    assert answer.to_wire() == {
        "mcpServers": [{"name": "s", "status": "connected", "tools": [{"name": "t"}]}],
    }
    assert answer.raw == answer.to_wire()
    assert McpServers.from_wire(answer.to_wire()) == answer


@every_case(
    "answer, wire",
    [
        (SessionTitle(), {"title": None}),
        (SessionTitle(title="x"), {"title": "x"}),
        (RewindReport(), {"canRewind": False}),
        (Interrupted(), {"still_queued": []}),
        (Interrupted(cancelled=[]), {"still_queued": [], "cancelled": []}),
        (AgentInfo(name="a"), {"name": "a", "description": ""}),
        (ModelSet(), {}),
        (Acknowledged(), {}),
    ],
)
def test_null_is_sent_only_where_the_agent_sends_it(answer: Payload, wire: JsonObject) -> None:
    assert answer.to_wire() == wire


def test_an_undocumented_answer_is_all_raw() -> None:
    answer = Undocumented.from_wire({"a": {"b": 1}})

    assert answer.raw == {"a": {"b": 1}}
    assert answer.to_wire() == {"a": {"b": 1}}


def test_the_source_takes_no_part_in_comparison_and_repr() -> None:
    received = ModelSet.from_wire({"model": "m", "new": 1})

    assert received == ModelSet(model="m")
    assert repr(received) == "ModelSet(model='m')"


def pickled(answer: Payload) -> object:
    return pickle.loads(pickle.dumps(answer))


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickled])
def test_the_source_survives_copies(duplicate: Any) -> None:
    payload = {"apiUsage": {"input_tokens": 1, "new": 2}, "more": 3}

    twin = duplicate(ContextUsage.from_wire(payload))

    assert twin == ContextUsage(api_usage=ApiUsage(input_tokens=1))
    assert twin.raw == payload
    assert twin.api_usage.raw == payload["apiUsage"]


def test_defaults_are_not_shared() -> None:
    first, second = Initialized(), Initialized()
    first.commands.clear()
    first.account.email = "a@b.invalid"

    assert second.account.email is None
    assert first.commands is not second.commands
