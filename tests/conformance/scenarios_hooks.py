"""Scenarios: what hooks of the host are shown, and what their answers do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from outrider.testing import say, use_tool
from tests.conformance.host import SILENT, Frame, Host, Refusal
from tests.conformance.scenario import scenario
from tests.conformance.scenarios_permissions import ASKING, CHANGE, allow
from tests.conformance.scenarios_tools import ANYTHING, turns

ECHO = use_tool("Bash", command="echo hi")

EVENTS = (
    *("PreToolUse", "PostToolUse", "PostToolUseFailure", "PostToolBatch", "UserPromptSubmit", "Stop"),
    *("PermissionRequest", "SubagentStart", "SubagentStop", "PreCompact", "SessionStart", "SessionEnd"),
    *("Notification", "MessageDisplay"),
)


def registered(*events: str, **how: Any) -> dict[str, Any]:
    """A hook for each of these events, with the name of its event."""
    return {event: [{"hookCallbackIds": [event], **how}] for event in events}


def specific(event: str, **fields: Any) -> Frame:
    return {"hookSpecificOutput": {"hookEventName": event, **fields}}


def answering(answers: Mapping[str, object]) -> Callable[[Frame], object]:
    """A host whose hooks say these things, one after the other if it is a list, and nothing after that."""

    def answered(request: Frame) -> object:
        said = answers.get(request["callback_id"], {})
        if isinstance(said, list):
            said = said.pop(0) if said else {}
        if isinstance(said, Exception):
            raise said
        return said

    return answered


async def hooked(
    host: Host, answers: Mapping[str, object], prompts: int = 1, hooks: dict[str, Any] | None = None
) -> None:
    host.answers["hook_callback"] = answering(answers)
    host.answers["can_use_tool"] = allow
    async with host.started():
        await host.initialize(hooks=hooks or registered(*answers))
        for number in range(prompts):
            await host.ask(f"go {number}")


@scenario(ECHO, use_tool("Bash", command="exit 3"), say("done"), flags=ANYTHING, everywhere=True)
async def every_event(host: Host) -> None:
    await hooked(host, {}, hooks=registered(*EVENTS))


@scenario(*turns(*[CHANGE] * 6), flags=ASKING, everywhere=True)
async def before_a_tool(host: Host) -> None:
    says: list[object] = [
        specific("PreToolUse", permissionDecision="allow", permissionDecisionReason="fine"),
        specific("PreToolUse", permissionDecision="deny", permissionDecisionReason="not this"),
        specific("PreToolUse", permissionDecision="ask", permissionDecisionReason="please look"),
        specific("PreToolUse", updatedInput={"command": "echo instead"}),
        {"decision": "block", "reason": "the old way"},
        {"systemMessage": "look here", "suppressOutput": True},
    ]
    await hooked(host, {"PreToolUse": says}, 6, registered("PreToolUse", matcher="Bash"))


@scenario(ECHO, say("never"), flags=ANYTHING)
async def before_a_tool_that_is_the_last(host: Host) -> None:
    await hooked(host, {"PreToolUse": {"continue": False, "stopReason": "enough"}})


@scenario(*turns(ECHO), flags=ANYTHING)
async def two_hooks_for_a_tool(host: Host) -> None:
    hooks = {
        "PreToolUse": [
            {"matcher": "Write", "hookCallbackIds": ["other"]},
            {"matcher": "Ba.*", "hookCallbackIds": ["yes", "no"]},
        ]
    }
    answers = {
        "yes": specific("PreToolUse", permissionDecision="allow"),
        "no": specific("PreToolUse", permissionDecision="deny", permissionDecisionReason="no"),
    }
    await hooked(host, answers, hooks=hooks)


@scenario(*turns(*[ECHO] * 4), flags=ANYTHING, everywhere=True)
async def after_a_tool(host: Host) -> None:
    says: list[object] = [
        specific("PostToolUse", additionalContext="it took long"),
        {"decision": "block", "reason": "do not look"},
        specific(
            "PostToolUse",
            updatedToolOutput={"stdout": "changed", "stderr": "", "interrupted": False, "isImage": False},
        ),
        {"continue": False, "stopReason": "enough"},
    ]
    await hooked(host, {"PostToolUse": says}, 4)


@scenario(say("one"), say("two"), say("three"))
async def before_a_prompt(host: Host) -> None:
    says: list[object] = [
        specific("UserPromptSubmit", additionalContext="it is raining"),
        {"decision": "block", "reason": "not this one"},
        {"continue": False, "stopReason": "enough"},
        specific("UserPromptSubmit", sessionTitle="A title"),
    ]
    await hooked(host, {"UserPromptSubmit": says}, 4)


@scenario(*[say(word) for word in ("one", "two", "three", "four", "five")])
async def before_the_end(host: Host) -> None:
    says: list[object] = [
        {"decision": "block", "reason": "the tests have not run"},
        {},
        {"continue": False, "stopReason": "enough"},
    ]
    await hooked(host, {"Stop": says}, 2)


@scenario(*turns(CHANGE, CHANGE), flags=ASKING)
async def a_hook_that_decides_for_the_user(host: Host) -> None:
    host.answers["can_use_tool"] = lambda _: SILENT
    says: list[object] = [
        specific("PermissionRequest", decision={"behavior": "allow"}),
        specific("PermissionRequest", decision={"behavior": "deny", "message": "not this"}),
    ]
    host.answers["hook_callback"] = answering({"PermissionRequest": says})
    async with host.started():
        await host.initialize(hooks=registered("PermissionRequest"))
        await host.ask("go")
        await host.ask("go")


@scenario(*turns(ECHO, ECHO), flags=ANYTHING)
async def a_hook_that_fails(host: Host) -> None:
    says: list[object] = [Refusal("it broke"), {"hookSpecificOutput": {"hookEventName": "Stop"}}]
    await hooked(host, {"PreToolUse": says}, 2)


@scenario(*turns(ECHO), flags=ANYTHING)
async def a_hook_that_fails_and_blocks(host: Host) -> None:
    hooks = registered("PreToolUse", onFailure="block")
    await hooked(host, {"PreToolUse": Refusal("it broke")}, hooks=hooks)


@scenario(*turns(ECHO), flags=ANYTHING)
async def a_hook_that_takes_too_long(host: Host) -> None:
    await hooked(host, {"PreToolUse": SILENT}, hooks=registered("PreToolUse", timeout=0.05))


@scenario(say("never"))
async def a_hook_for_a_prompt_that_takes_too_long(host: Host) -> None:
    await hooked(host, {"UserPromptSubmit": SILENT}, hooks=registered("UserPromptSubmit", timeout=0.05))


@scenario(*turns(ECHO, ECHO), flags=ANYTHING)
async def hooks_that_are_replaced(host: Host) -> None:
    host.answers["hook_callback"] = answering({})
    async with host.started():
        await host.initialize(hooks=registered("PreToolUse"))
        await host.ask("go")
        await host.initialize(hooks=registered("PostToolUse"))
        await host.ask("go")


@scenario()
async def hooks_that_are_none(host: Host) -> None:
    async with host.started():
        await host.initialize(hooks={"PreToolUse": "nonsense"})


@scenario(say("in ", "lower case"), say("next"))
async def a_text_that_is_shown_otherwise(host: Host) -> None:
    await hooked(host, {"MessageDisplay": [specific("MessageDisplay", displayContent="IN UPPER CASE")]}, 2)
