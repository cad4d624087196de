"""Scenarios: calls that a hook defers, and what becomes of them when the session is resumed."""

from __future__ import annotations

from collections.abc import Sequence

from outrider.testing import answer, say, use_tool
from tests.conformance.host import HOLD, Frame, Host
from tests.conformance.scenario import scenario
from tests.conformance.scenarios_background import AGENT
from tests.conformance.scenarios_hooks import ECHO, answering, hooked, registered, specific
from tests.conformance.scenarios_permissions import ASKING, CHANGE, QUESTIONS
from tests.conformance.scenarios_tools import ANYTHING, serve


def decide(decision: str, **fields: object) -> Frame:
    return specific("PreToolUse", permissionDecision=decision, **fields)


DEFER, ALLOW, DENY = decide("defer"), decide("allow"), decide("deny")

BOTH = answer(use_tool("Bash", command="echo one"), use_tool("Bash", command="echo two"))


async def left_for_later(host: Host, *answers: Sequence[Frame]) -> None:
    """A hook gives the first answers in the turn of a prompt, and the others in one resumed session each."""
    await hooked(host, {"PreToolUse": list(answers[0])})
    put_calls_first(host)
    for each in answers[1:]:
        await resumed(host, *each)


async def resumed(host: Host, *answers: Frame, flags: tuple[str, ...] = (), id: str | None = None) -> None:
    """The session goes on by itself, up to a result."""
    host.answers["hook_callback"] = answering({"PreToolUse": list(answers)})
    async with host.started("--resume", id or host.session_id, "--await-initialize", *flags):
        await host.post("initialize", hooks=registered("PreToolUse"))
        # Nobody has asked for it.
        await host.result()
    leave_out_answers(host)


def put_calls_first(host: Host) -> None:
    # The hook may be asked about a call before the message has it, and before the next one, or after it.
    # So may a call run before the next one is asked about.
    at = next(number for number, frame in enumerate(host.frames) if frame["type"] == "assistant")
    host.frames[at:] = sorted(host.frames[at:], key=_by_kind)


def _by_kind(frame: Frame) -> int:
    return {"assistant": 0, "control_request": 1}.get(frame["type"], 2)


def leave_out_answers(host: Host) -> None:
    # The hook may be asked before the answer to `initialize`, or after it.
    host.frames[:] = [frame for frame in host.frames if frame.get("type") != "control_response"]


@scenario(ECHO, flags=ANYTHING)
async def a_tool_for_later(host: Host) -> None:
    await left_for_later(host, [DEFER])


@scenario(ECHO, say("then not"), flags=ANYTHING)
async def a_tool_for_later_that_is_denied_then(host: Host) -> None:
    await left_for_later(host, [DEFER], [DENY])


@scenario(ECHO, say("done"), flags=ANYTHING)
async def a_tool_for_later_that_is_allowed_then(host: Host) -> None:
    await left_for_later(host, [DEFER], [DEFER], [ALLOW])


@scenario(ECHO, say("done"), flags=ANYTHING)
async def a_tool_for_later_with_another_input_then(host: Host) -> None:
    other = {"command": "echo other", "description": "d"}
    await left_for_later(host, [DEFER], [decide("allow", updatedInput=other)])


@scenario(CHANGE, say("done"), flags=ASKING)
async def a_tool_for_later_that_is_asked_about_then(host: Host) -> None:
    await left_for_later(host, [DEFER], [{}])


@scenario(use_tool("AskUserQuestion", questions=QUESTIONS), say("done"), flags=ASKING)
async def a_question_for_later(host: Host) -> None:
    answered = {"questions": QUESTIONS, "answers": {"Which colour?": "Blue"}}
    await left_for_later(host, [DEFER], [decide("allow", updatedInput=answered)])


@scenario(BOTH, say("done"), flags=ANYTHING)
async def one_of_two_tools_for_later(host: Host) -> None:
    await left_for_later(host, [DEFER, DENY], [ALLOW])


@scenario(BOTH, say("done"), flags=ANYTHING)
async def one_of_two_tools_for_later_and_the_other_now(host: Host) -> None:
    await left_for_later(host, [ALLOW, DEFER], [ALLOW])


@scenario(BOTH, say("done"), flags=ANYTHING)
async def two_tools_for_later(host: Host) -> None:
    await left_for_later(host, [DEFER, DEFER], [ALLOW, ALLOW])


@scenario(ECHO, say("hello"), flags=ANYTHING)
async def a_tool_for_later_and_a_prompt(host: Host) -> None:
    await hooked(host, {"PreToolUse": [DEFER]}, 2)


@scenario(
    use_tool("Agent", AGENT, run_in_background=False),
    say("all done"),
    subagents=(ECHO, say("found it")),
    flags=ANYTHING,
)
async def a_tool_of_a_subagent_for_later(host: Host) -> None:
    # The first call is that of the subagent.
    await left_for_later(host, [ALLOW, DEFER])


@scenario(ECHO, say("done"), say("done again"), flags=ANYTHING)
async def a_tool_for_later_in_a_fork(host: Host) -> None:
    await left_for_later(host, [DEFER])
    original = host.session_id
    await resumed(host, ALLOW, flags=("--fork-session",))
    await resumed(host, ALLOW, id=original)


@scenario(use_tool("Bash", command=HOLD), say("done"), flags=ANYTHING)
async def a_tool_for_later_that_is_killed(host: Host) -> None:
    host.make_pipes()
    await left_for_later(host, [DEFER])
    host.answers["hook_callback"] = answering({"PreToolUse": [ALLOW]})
    async with host.started("--resume", host.session_id, "--await-initialize"):
        await host.post("initialize", hooks=registered("PreToolUse"))
        await host.until_requested("hook_callback")
        await host.began()
        await host.kill()
    leave_out_answers(host)
    await resumed(host, DENY)


@scenario(use_tool("mcp__tools__add", a=1), say("done"), flags=ANYTHING)
async def a_tool_of_the_host_for_later(host: Host) -> None:
    host.answers["hook_callback"] = answering({"PreToolUse": [DEFER, ALLOW]})
    host.answers["mcp_message"] = serve
    servers = ["tools"]
    async with host.started():
        await host.initialize(hooks=registered("PreToolUse"), sdkMcpServers=servers)
        await host.ask("go")
    async with host.started("--resume", host.session_id, "--await-initialize"):
        await host.post("initialize", hooks=registered("PreToolUse"), sdkMcpServers=servers)
        # It is not connected yet.
        await host.result()
        await host.ask("go on")
    leave_out_answers(host)
    # The server is connected beside the turn.
    methods = ("initialize", "notifications/initialized", "tools/list")
    host.frames[:] = [
        frame
        for frame in host.frames
        if frame.get("request", {}).get("message", {}).get("method") not in methods
    ]
