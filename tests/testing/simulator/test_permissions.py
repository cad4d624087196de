"""Permissions of the simulated agent, against recordings and observations of the real one."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from outrider.testing._simulator.frames import ToolSpec, covers_tool
from outrider.testing._simulator.host.permissions import ModeRefused
from outrider.wire import JsonObject
from tests.testing.simulator.asked import WITH_HOST, Asked, Reply, bash, call, source
from tests.testing.simulator.replayed import Alike, recorded, replay, shown

pytestmark = pytest.mark.anyio

RECORDED = [
    ("04-can-use-tool-allow", 0),
    ("04-can-use-tool-deny", 0),
    ("04-can-use-tool-callback-raises", 0),
    ("04-can-use-tool-parallel", 0),
    ("04-can-use-tool-updated-input", 0),
    *[("04-permission-no-prompt-surface", number) for number in (1, 2, 4, 6, 7)],
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
async def test_permissions_are_asked_for_as_by_the_real_agent(name: str, number: int, folder: Path) -> None:
    assert shown(await replay(name, number, folder)) == Alike(shown(recorded(name, number)))


# Rules.


@pytest.mark.parametrize(
    "rule, tool, is_covered",
    [
        ("Bash", "Bash", True),
        ("Task", "Agent", True),
        ("mcp__s", "mcp__s__t", True),
        ("mcp__s", "mcp__st__t", False),
        ("mcp__s__*", "mcp__s__t", True),
        ("mcp__s__t", "mcp__s__u", False),
    ],
)
def test_a_rule_names_tools(rule: str, tool: str, is_covered: bool) -> None:
    assert covers_tool(rule, tool) is is_covered


def settings(**permissions: list[str]) -> tuple[str, str]:
    return ("--settings", json.dumps({"permissions": permissions}))


@pytest.mark.parametrize(
    "command, runs",
    [("ls", True), ("echo hi", True), ("npm test", False), ("echo hi > x", False), ("ls; rm x", False)],
)
async def test_commands_that_only_look_run_and_others_are_asked_for(
    command: str, runs: bool, tmp_path: Path
) -> None:
    run = Asked(tmp_path, *WITH_HOST, answer=lambda subtype, fields: {"behavior": "allow"})
    decision = await run.permissions.decide(bash(command))
    assert decision.is_allowed
    asked = [fields["decision_reason_type"] for fields in run.of("can_use_tool")]
    assert asked == ([] if runs else ["other"])


async def test_a_rule_does_not_allow_what_follows_the_command_that_it_names(tmp_path: Path) -> None:
    run = Asked(tmp_path, *WITH_HOST, *settings(allow=["Bash(npm test:*)"]))
    await run.permissions.decide(bash("npm test all"))
    assert run.asked == []
    await run.permissions.decide(bash("npm test; rm -rf x"))
    assert len(run.of("can_use_tool")) == 1


MODES: list[tuple[str, str, str]] = [
    # mode, tool, what becomes of it
    ("default", "Read", "mode"),
    ("default", "Write", "ask None"),
    ("acceptEdits", "Write", "mode"),
    ("plan", "Read", "mode"),
    ("plan", "Write", "ask mode"),
    ("dontAsk", "Read", "mode"),
    ("dontAsk", "Write", "denied mode"),
    ("bypassPermissions", "Write", "mode"),
]


@pytest.mark.parametrize("mode, tool, expected", MODES)
async def test_tools_for_files_are_judged_by_the_mode(
    mode: str, tool: str, expected: str, tmp_path: Path
) -> None:
    run = Asked(tmp_path, *WITH_HOST, answer=lambda subtype, fields: {"behavior": "allow"})
    run.permission_mode = mode
    decision = await run.permissions.decide(call(tool, file_path="a.txt"))
    assert decision.meta is not None
    found = str(decision.meta["permission_decision"].get("reason_type"))
    if asked := run.of("can_use_tool"):
        found = f"ask {asked[0].get('decision_reason_type')}"
        assert asked[0]["input"]["file_path"] == str(run.cwd / "a.txt")
    elif not decision.is_allowed:
        found = f"denied {found}"
        assert run.frames[-1]["subtype"] == "permission_denied"
    assert found == expected


@pytest.mark.parametrize(
    "rules, message",
    [
        (settings(deny=["Bash"]), "Permission to use Bash has been denied."),
        (("--disallowedTools", "Bash(rm:*)"), "Permission to use Bash with command rm x has been denied."),
    ],
    ids=["settings", "flag"],
)
@pytest.mark.parametrize("mode", ["default", "bypassPermissions"])
async def test_a_rule_denies_in_every_mode_and_the_host_is_told(
    rules: tuple[str, str], message: str, mode: str, tmp_path: Path
) -> None:
    run = Asked(tmp_path, *WITH_HOST, *rules)
    run.permission_mode = mode
    decision = await run.permissions.decide(bash("rm x"))
    assert (decision.is_allowed, decision.message) == (False, message)
    assert run.asked == []
    (told,) = run.frames
    assert (told["subtype"], told["decision_reason_type"]) == ("permission_denied", "rule")
    assert told["message"] == message
    denial = {"tool_name": "Bash", "tool_use_id": "toolu_1", "tool_input": {"command": "rm x"}}
    assert run.permissions.denials == [denial]


@pytest.mark.parametrize("behavior", ["allow", "deny"])
async def test_a_rule_about_some_files_makes_the_tool_one_that_is_asked_about(
    behavior: str, tmp_path: Path
) -> None:
    rules = settings(**{behavior: ["Write(./a.txt)"]})
    run = Asked(tmp_path, *WITH_HOST, *rules, answer=lambda subtype, fields: {"behavior": "allow"})
    assert (await run.permissions.decide(call("Write", file_path="a.txt"))).is_allowed
    assert len(run.of("can_use_tool")) == 1


async def test_an_ask_rule_asks_even_where_a_hook_and_the_mode_allow(tmp_path: Path) -> None:
    allow = {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "allow"}}

    def host(subtype: str, fields: JsonObject) -> Reply:
        return allow if subtype == "hook_callback" else {"behavior": "deny", "message": "no"}

    run = Asked(tmp_path, *WITH_HOST, *settings(ask=["Bash(ls:*)"]), answer=host)
    run.permission_mode = "bypassPermissions"
    run.hooks.register({"PreToolUse": [{"hookCallbackIds": ["h"]}]})
    decision = await run.permissions.decide(bash("ls -l"))
    assert not decision.is_allowed
    (asked,) = run.of("can_use_tool")
    assert asked["matched_ask_rule"] == {"source": "flagSettings", "tool_name": "Bash"}


# What the host says.


@pytest.mark.parametrize(
    "answer, message, meta",
    [
        ("it broke", "Tool permission request failed: Error: it broke", ("config", "other")),
        ({}, "The canUseTool callback returned an invalid", ("config", "other")),
        ({"behavior": "deny"}, "The canUseTool callback returned an invalid", ("config", "other")),
        ({"behavior": "perhaps"}, "The canUseTool callback returned an invalid", ("config", "other")),
        ({"behavior": "allow", "updatedInput": 5}, "The canUseTool callback", ("config", "other")),
        ({"behavior": "deny", "message": "never"}, "never", ("user_reject", None)),
    ],
)
async def test_a_refusal_and_an_unusable_answer_keep_the_call_from_running(
    answer: Reply, message: str, meta: tuple[str, str | None], tmp_path: Path
) -> None:
    run = Asked(tmp_path, *WITH_HOST, answer=lambda subtype, fields: answer)
    decision = await run.permissions.decide(bash("npm test"))
    assert not decision.is_allowed
    assert decision.message.startswith(message)
    assert decision.detail == f"Error: {decision.message}"
    assert decision.meta is not None
    told = decision.meta["permission_decision"]
    assert (told["source"], told.get("reason_type")) == meta
    assert len(run.permissions.denials) == 1


async def test_a_denial_that_interrupts_does_not_show_its_message_to_the_model(tmp_path: Path) -> None:
    answer = {"behavior": "deny", "message": "stop it", "interrupt": True}
    run = Asked(tmp_path, *WITH_HOST, answer=lambda subtype, fields: answer)
    decision = await run.permissions.decide(bash("npm test"))
    assert not decision.is_allowed
    assert decision.interrupt
    assert "stop it" not in decision.message
    assert decision.meta == {"id": "toolu_1", "non_execution_kind": "user-rejected"}


async def test_a_host_that_is_gone_denies(tmp_path: Path) -> None:
    run = Asked(tmp_path, *WITH_HOST)
    run.is_gone = True
    decision = await run.permissions.decide(bash("npm test"))
    assert not decision.is_allowed
    assert decision.message.endswith("AbortError: Tool permission stream closed before response received")
    run.hooks.register({"PreToolUse": [{"hookCallbackIds": ["h"]}]})
    decision = await run.permissions.decide(bash("ls"))
    assert not decision.is_allowed
    assert decision.meta == {"id": "toolu_1", "non_execution_kind": "cancelled"}


SPEC = ToolSpec(name="Bash", input_schema={"type": "object", "required": ["command"]})


@pytest.mark.parametrize(
    "changed, expected",
    [({"command": "echo 2"}, {"command": "echo 2"}), ({}, {"command": "npm test"}), ({"x": 1}, None)],
)
async def test_the_host_may_change_the_input_if_it_fits_the_tool(
    changed: JsonObject, expected: JsonObject | None, tmp_path: Path
) -> None:
    answer = {"behavior": "allow", "updatedInput": changed}
    run = Asked(tmp_path, *WITH_HOST, answer=lambda subtype, fields: answer, offered=[SPEC])
    decision = await run.permissions.decide(bash("npm test"))
    if expected is not None:
        assert decision.is_allowed
        assert decision.input == expected
        return
    assert not decision.is_allowed
    assert "The required parameter `command` is missing" in decision.message
    assert run.permissions.denials == []


async def test_changed_permissions_hold_for_what_follows(tmp_path: Path) -> None:
    def host(subtype: str, fields: JsonObject) -> Reply:
        return {"behavior": "allow", "updatedPermissions": fields["permission_suggestions"]}

    run = Asked(tmp_path, *WITH_HOST, answer=host)
    await run.permissions.decide(bash("npm test"))
    await run.permissions.decide(bash("npm test"))
    assert len(run.asked) == 1
    await run.permissions.decide(call("Write", file_path="a.txt"))
    await run.permissions.decide(call("Write", file_path="b.txt"))
    assert len(run.asked) == 2
    assert run.permission_mode == "acceptEdits"
    assert run.frames == [
        {"type": "system", "subtype": "status", "status": None, "permissionMode": "acceptEdits"}
    ]


def test_updates_add_replace_and_remove(tmp_path: Path) -> None:
    run = Asked(tmp_path)

    def update(kind: str, *rules: str) -> JsonObject:
        named = [{"toolName": "Bash", "ruleContent": rule} for rule in rules]
        return {"type": kind, "rules": named, "behavior": "allow", "destination": "session"}

    def rules() -> list[str]:
        return [rule["rule"] for rule in run.permissions.listing()["state"]["rules"]]

    run.permissions.apply([update("addRules", "a", "b")])
    assert rules() == ["Bash(a)", "Bash(b)"]
    run.permissions.apply([update("removeRules", "a"), {"type": "addDirectories", "directories": ["/x"]}])
    assert rules() == ["Bash(b)"]
    assert run.permissions.listing()["state"]["workspaceDirectories"] == ["/x"]
    run.permissions.apply([update("replaceRules", "c"), {"type": "removeDirectories", "directories": ["/x"]}])
    assert rules() == ["Bash(c)"]
    assert run.permissions.listing()["state"]["workspaceDirectories"] == []
    run.permissions.apply([{"type": "unheard of"}, {"type": "setMode", "mode": "bypassPermissions"}])
    assert run.permission_mode == "default"


@pytest.mark.parametrize(
    "argv, mode, code",
    [
        ((), "acceptEdits", None),
        ((), "nonsense", "invalid_mode"),
        ((), "bypassPermissions", "bypass_not_launched"),
        (("--allow-dangerously-skip-permissions",), "bypassPermissions", None),
    ],
)
def test_a_mode_can_be_set_or_is_refused_with_the_programs_code(
    argv: tuple[str, ...], mode: str, code: str | None, tmp_path: Path
) -> None:
    run = Asked(tmp_path, *argv)
    if code is None:
        run.permissions.set_mode(mode)
        assert run.permission_mode == mode
        return
    with pytest.raises(ModeRefused) as caught:
        run.permissions.set_mode(mode)
    assert caught.value.code == code
    assert run.frames == []


# Hooks beside the host.


def deciding(**decision: object) -> JsonObject:
    return {"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": decision}}


async def test_a_hook_that_is_faster_withdraws_the_question_to_the_host(tmp_path: Path) -> None:
    def host(subtype: str, fields: JsonObject) -> Reply:
        return None if subtype == "can_use_tool" else deciding(behavior="deny", message="hook says no")

    run = Asked(tmp_path, *WITH_HOST, answer=host)
    run.hooks.register({"PermissionRequest": [{"hookCallbackIds": ["h"]}]})
    async with run.running():
        decision = await run.permissions.decide(bash("npm test"))
        assert not decision.is_allowed
        assert decision.message == "hook says no"
        assert source(decision) == "hook"
        assert [kind for kind, _ in run.asked] == ["can_use_tool", "hook_callback"]
        assert run.withdrawn == ["can_use_tool"]


async def test_a_host_that_is_faster_leaves_the_hook_alone(tmp_path: Path) -> None:
    def host(subtype: str, fields: JsonObject) -> Reply:
        return {"behavior": "allow"} if subtype == "can_use_tool" else None

    run = Asked(tmp_path, *WITH_HOST, answer=host)
    run.hooks.register({"PermissionRequest": [{"hookCallbackIds": ["h"]}]})
    async with run.running():
        decision = await run.permissions.decide(bash("npm test"))
        assert decision.is_allowed
        assert source(decision) == "user_temporary"
        assert run.withdrawn == []


async def test_both_questions_end_with_the_turn(tmp_path: Path) -> None:
    run = Asked(tmp_path, *WITH_HOST, answer=lambda subtype, fields: None)
    run.hooks.register({"PermissionRequest": [{"hookCallbackIds": ["h"]}]})
    async with run.running():
        async with anyio.create_task_group() as turn:
            turn.start_soon(run.permissions.decide, bash("npm test"))
            while len(run.asked) < 2:
                await anyio.lowlevel.checkpoint()
            turn.cancel_scope.cancel()
        while len(run.withdrawn) < 2:
            await anyio.lowlevel.checkpoint()
        assert sorted(run.withdrawn) == ["can_use_tool", "hook_callback"]


@pytest.mark.parametrize("argv", [(), (*WITH_HOST, "--permission-prompts", "none")])
async def test_a_hook_can_allow_where_nobody_can_be_asked(argv: tuple[str, ...], tmp_path: Path) -> None:
    run = Asked(tmp_path, *argv, answer=lambda subtype, fields: deciding(behavior="allow"))
    decision = await run.permissions.decide(bash("npm test"))
    assert not decision.is_allowed
    assert run.frames[0]["subtype"] == "permission_denied"
    run.hooks.register({"PermissionRequest": [{"hookCallbackIds": ["h"]}]})
    assert (await run.permissions.decide(bash("npm test"))).is_allowed


async def test_a_hook_puts_a_call_off(tmp_path: Path) -> None:
    defer = {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "defer"}}
    run = Asked(tmp_path, answer=lambda subtype, fields: defer)
    run.hooks.register({"PreToolUse": [{"hookCallbackIds": ["h"]}]})
    decision = await run.permissions.decide(bash("ls"))
    assert not decision.is_allowed
    assert decision.deferred
    assert run.permissions.denials == []


async def test_a_hook_changes_the_input_and_rules_judge_what_it_made_of_it(tmp_path: Path) -> None:
    changed = {"hookSpecificOutput": {"hookEventName": "PreToolUse", "updatedInput": {"command": "rm x"}}}

    def host(subtype: str, fields: JsonObject) -> Reply:
        return changed if subtype == "hook_callback" else {"behavior": "allow"}

    run = Asked(tmp_path, *WITH_HOST, *settings(deny=["Bash(rm:*)"]), answer=host)
    run.hooks.register({"PreToolUse": [{"hookCallbackIds": ["h"]}]})
    decision = await run.permissions.decide(bash("ls"))
    assert not decision.is_allowed
    assert decision.message == "Permission to use Bash with command rm x has been denied."
