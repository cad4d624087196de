"""What can be said, and how each event says it."""

from __future__ import annotations

import pickle
from typing import Any

import msgspec
import pytest

from outrider.errors import UsageError
from outrider.handlers import Answer, add_context, allow, ask, block, defer, deny, later, modify, notify, stop
from outrider.handlers._hooks.events import EVENTS
from outrider.wire import JsonObject
from outrider.wire.hooks import HOOK_EVENTS
from outrider.wire.permissions import PermissionUpdate
from tests.cases import every_case
from tests.handlers.hooking import told

UPDATE = PermissionUpdate("setMode", mode="acceptEdits", destination="session")


# Made.


@every_case(
    "made, fields",
    [
        (allow(), {"verdict": "allow"}),
        (allow({"a": 1}), {"verdict": "allow", "value": {"a": 1}}),
        (
            allow(updates=[UPDATE], reason="r", context="c", notice="n"),
            {"verdict": "allow", "updates": (UPDATE,), "reason": "r", "context": "c", "notice": "n"},
        ),
        (deny("why"), {"verdict": "deny", "reason": "why"}),
        (
            deny("why", interrupt=True, context="c", notice="n"),
            {"verdict": "deny", "reason": "why", "interrupt": True, "context": "c", "notice": "n"},
        ),
        (ask(), {"verdict": "ask"}),
        (
            ask("why", context="c", notice="n"),
            {"verdict": "ask", "reason": "why", "context": "c", "notice": "n"},
        ),
        (defer(), {"verdict": "defer"}),
        (modify({"a": 1}), {"value": {"a": 1}}),
        (modify(None), {"value": None}),
        (modify(a=1, value=2), {"changes": {"a": 1, "value": 2}}),
        (add_context("c"), {"context": "c"}),
        (notify("n"), {"notice": "n"}),
        (
            block("why", context="c", notice="n"),
            {"verdict": "block", "reason": "why", "context": "c", "notice": "n"},
        ),
        (stop(), {"verdict": "stop"}),
        (stop("why", notice="n"), {"verdict": "stop", "reason": "why", "notice": "n"}),
        (later(), {"verdict": "later"}),
        (later(5), {"verdict": "later", "timeout": 5}),
    ],
)
def test_each_function_says_one_thing(made: Answer, fields: dict[str, Any]) -> None:
    assert made == Answer(**fields)
    assert pickle.loads(pickle.dumps(made)) == made


def test_answers_are_values_that_show_what_they_say() -> None:
    answer = deny("not here", context="the folder is shared")
    assert repr(answer) == "Answer(verdict='deny', reason='not here', context='the folder is shared')"
    with pytest.raises(AttributeError):
        answer.reason = "else"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]


def test_an_answer_is_extended_and_stays_as_it_was() -> None:
    first = allow()
    more = first.with_changes(command="ls").with_context("one").with_context("two").with_notice("shown")
    assert more == Answer(verdict="allow", changes={"command": "ls"}, context="one\ntwo", notice="shown")
    assert first == Answer(verdict="allow")


def test_the_input_that_was_given_is_not_shared() -> None:
    given: dict[str, Any] = {"a": 1}
    answer = allow(given)
    given["a"] = 2
    assert answer.input == {"a": 1}


@pytest.mark.parametrize(
    "answer, expected",
    [(allow(), None), (allow({"a": 1}), {"a": 1}), (modify("text"), None), (modify(a=1), None)],
)
def test_input_is_the_whole_of_a_new_input(answer: Answer, expected: JsonObject | None) -> None:
    assert answer.input == expected


@pytest.mark.parametrize("call", [modify, lambda: modify({"a": 1}, b=2)], ids=["none", "both"])
def test_modify_takes_all_or_some(call: Any) -> None:
    with pytest.raises(UsageError, match=r"either the whole new value, or the keys.*modify\(command='ls'\)"):
        call()


# What each event can say, written down once more: as it was seen with the agent.

CAN: dict[str, str] = {
    "PreToolUse": "permission ask defer stop context change",
    "PostToolUse": "block stop context change",
    "PostToolUseFailure": "block context",
    "PostToolBatch": "block stop context",
    "Notification": "context",
    "UserPromptSubmit": "block stop context",
    "UserPromptExpansion": "block stop context",
    "SessionStart": "context",
    "SessionEnd": "",
    "Stop": "block stop context",
    "StopFailure": "",
    "SubagentStart": "context",
    "SubagentStop": "block stop context",
    "PreCompact": "block",
    "PostCompact": "",
    "PreModelSwitch": "permission ask",
    "PostModelSwitch": "context",
    "PermissionRequest": "decision",
    "PermissionDenied": "",
    "Setup": "context",
    "TeammateIdle": "block",
    "TaskCreated": "block",
    "TaskCompleted": "block",
    "Elicitation": "block",
    "ElicitationResult": "block",
    "ConfigChange": "block",
    "WorktreeCreate": "block",
    "WorktreeRemove": "",
    "InstructionsLoaded": "",
    "CwdChanged": "",
    "FileChanged": "",
    "DirectoryAdded": "",
    "MessageDisplay": "change",
}

NEW_INPUT = {"command": "pwd"}
NEW_OUTPUT = {"stdout": "new", "stderr": ""}


def own(event: str, **fields: Any) -> JsonObject:
    return {"hookSpecificOutput": {"hookEventName": event} | fields}


def expected(event: str, kind: str) -> JsonObject | None:
    """What an event makes of a kind of answer; None: it cannot say it."""
    can = CAN[event].split()
    refusing = {"permission", "block", "decision"} & set(can)
    match kind:
        case "nothing":
            return {}
        case "notice":
            return None if event == "WorktreeCreate" else {"systemMessage": "shown"}
        case "later":
            return {"async": True}
        case "later in time":
            return {"async": True, "asyncTimeout": 1500}
        case "context":
            return own(event, additionalContext="ctx") if "context" in can else None
        case "allow" if "permission" in can:
            return own(event, permissionDecision="allow")
        case "allow" if "decision" in can:
            return own(event, decision={"behavior": "allow"})
        case "allow":
            return {} if refusing else None
        case "deny" | "block" if "permission" in can:
            return own(event, permissionDecision="deny", permissionDecisionReason="why")
        case "deny" | "block" if "decision" in can:
            return own(event, decision={"behavior": "deny", "message": "why"})
        case "deny" | "block" if "block" in can:
            return {"decision": "block", "reason": "why"}
        case "ask" if "ask" in can:
            return own(event, permissionDecision="ask", permissionDecisionReason="why")
        case "defer" if "defer" in can:
            return own(event, permissionDecision="defer")
        case "stop" if "decision" in can:
            return own(event, decision={"behavior": "deny", "message": "why", "interrupt": True})
        case "stop" if event == "PreToolUse":
            denied = own(event, permissionDecision="deny", permissionDecisionReason="why")
            return {"continue": False, "stopReason": "why"} | denied
        case "stop" if "stop" in can:
            return {"continue": False, "stopReason": "why"}
        case "deny and interrupt" if "decision" in can:
            return own(event, decision={"behavior": "deny", "message": "why", "interrupt": True})
        case "deny and interrupt" if event == "PreToolUse":
            denied = own(event, permissionDecision="deny", permissionDecisionReason="why")
            return {"continue": False, "stopReason": "why"} | denied
        case "deny and interrupt" if event in ("UserPromptSubmit", "UserPromptExpansion", "PostToolBatch"):
            return {"decision": "block", "reason": "why"}
        case "deny and interrupt" if "stop" in can:
            return {"continue": False, "stopReason": "why", "decision": "block", "reason": "why"}
        case "updates" if "decision" in can:
            return own(event, decision={"behavior": "allow", "updatedPermissions": [UPDATE.to_dict()]})
        case "allow another input" if event == "PreToolUse":
            return own(event, permissionDecision="allow", updatedInput=NEW_INPUT)
        case "allow another input" if "decision" in can:
            return own(event, decision={"behavior": "allow", "updatedInput": NEW_INPUT})
        case "modify" if event == "PreToolUse":
            return own(event, updatedInput=NEW_INPUT)
        case "modify keys" if event == "PreToolUse":
            return own(event, updatedInput={"command": "pwd", "timeout": 5})
        case _:
            return None


KINDS: dict[str, Answer] = {
    "nothing": Answer(),
    "notice": notify("shown"),
    "later": later(),
    "later in time": later(1.5),
    "context": add_context("ctx"),
    "allow": allow(),
    "deny": deny("why"),
    "block": block("why"),
    "ask": ask("why"),
    "defer": defer(),
    "stop": stop("why"),
    "deny and interrupt": deny("why", interrupt=True),
    "updates": allow(updates=[UPDATE]),
}
CHANGES: dict[str, Answer] = {
    "allow another input": allow(NEW_INPUT),
    "modify": modify(NEW_INPUT),
    "modify keys": modify(command="pwd"),
}


def test_the_table_knows_every_event() -> None:
    assert tuple(EVENTS) == HOOK_EVENTS == tuple(CAN)


@every_case("kind", KINDS)
@every_case("event", HOOK_EVENTS)
@pytest.mark.requirement("A8")
def test_an_event_says_what_it_can_and_refuses_the_rest(event: str, kind: str) -> None:
    wanted = expected(event, kind)
    if wanted is None:
        with pytest.raises(UsageError, match=f"A {event} hook cannot .*Return "):
            KINDS[kind].for_event(told(event))
    else:
        assert KINDS[kind].for_event(told(event)).to_wire() == wanted


@every_case("kind", CHANGES)
@every_case("event", [event for event in HOOK_EVENTS if "change" not in CAN[event]])
def test_an_event_that_changes_nothing_says_so(event: str, kind: str) -> None:
    wanted = expected(event, kind)
    if wanted is None:
        with pytest.raises(UsageError, match=f"A {event} hook cannot "):
            CHANGES[kind].for_event(told(event))
    else:
        assert CHANGES[kind].for_event(told(event)).to_wire() == wanted


@pytest.mark.parametrize("kind", CHANGES)
def test_a_tool_can_be_given_another_input(kind: str) -> None:
    assert CHANGES[kind].for_event(told("PreToolUse")).to_wire() == expected("PreToolUse", kind)


@pytest.mark.parametrize(
    "answer, fields, specific",
    [
        (modify(NEW_OUTPUT), {}, {"updatedToolOutput": NEW_OUTPUT}),
        (modify(stdout="new"), {}, {"updatedToolOutput": NEW_OUTPUT}),
        (modify("text"), {"tool_name": "mcp__s__t"}, {"updatedMCPToolOutput": "text"}),
        (
            modify(a=1),
            {"tool_name": "mcp__s__t", "tool_response": {"b": 2}},
            {"updatedMCPToolOutput": {"a": 1, "b": 2}},
        ),
    ],
)
def test_a_tool_can_be_given_another_result(answer: Answer, fields: Any, specific: Any) -> None:
    told_of = told("PostToolUse", **fields)
    assert answer.for_event(told_of).to_wire() == own("PostToolUse", **specific)


def test_another_text_can_be_displayed() -> None:
    assert modify("Hi").for_event("MessageDisplay").to_wire() == own("MessageDisplay", displayContent="Hi")


def test_a_permission_request_is_changed_by_what_allows_it() -> None:
    allowed = allow().with_changes(command="pwd").for_event(told("PermissionRequest"))
    decision = {"behavior": "allow", "updatedInput": {"command": "pwd", "timeout": 5}}
    assert allowed.to_wire() == own("PermissionRequest", decision=decision)


@pytest.mark.parametrize(
    "answer, wire",
    [
        (
            deny("why", context="ctx", notice="shown"),
            {"systemMessage": "shown"}
            | own(
                "PreToolUse",
                additionalContext="ctx",
                permissionDecision="deny",
                permissionDecisionReason="why",
            ),
        ),
        (
            allow().with_changes(command="pwd").with_context("ctx"),
            own(
                "PreToolUse",
                additionalContext="ctx",
                updatedInput={"command": "pwd", "timeout": 5},
                permissionDecision="allow",
            ),
        ),
    ],
)
def test_several_things_are_said_at_once(answer: Answer, wire: JsonObject) -> None:
    assert answer.for_event(told("PreToolUse")).to_wire() == wire


@every_case("event", ["PreToolUse", "PermissionRequest", "Stop"])
@every_case("answer", [deny(""), stop(), block("")])
def test_a_refusal_always_has_words(event: str, answer: Answer) -> None:
    if event == "Stop" and answer.verdict == "stop":
        assert answer.for_event(event).to_wire() == {"continue": False}
    else:
        assert b"gave no reason" in msgspec.json.encode(answer.for_event(event).to_wire())


@every_case(
    "answer, event, says",
    [
        (later().with_context("x"), "PreToolUse", "anything else together with later"),
        (modify(a=1), "MessageDisplay", "keys that a MessageDisplay hook changes need the rest"),
        (modify(a=1), told("MessageDisplay"), "no keys to change in str"),
        (modify(a=1), told("PostToolUse", tool_response="text"), "no keys to change in str"),
        (deny("x"), "SessionEnd", r"cannot prevent anything.*Return None\."),
        (notify("x"), "WorktreeCreate", "Return the path of the worktree, deny"),
        (defer(), "PermissionRequest", r"Return allow\(\), deny\(…\), stop\(\), None\."),
        (ask(), "Stop", r"Return allow\(\), deny\(…\), stop\(\), add_context\(…\), None\."),
    ],
)
def test_what_cannot_be_said_is_told_with_what_can(answer: Answer, event: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        answer.for_event(event)


def test_an_event_of_tomorrow_is_taken_at_its_word() -> None:
    assert deny("why").for_event("Tomorrow").to_wire() == {"decision": "block", "reason": "why"}
    assert add_context("ctx").for_event("Tomorrow").to_wire() == own("Tomorrow", additionalContext="ctx")
    with pytest.raises(UsageError, match="A Tomorrow hook cannot change its input"):
        modify({}).for_event("Tomorrow")
