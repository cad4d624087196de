"""Scenarios: what may be done, and who is asked."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from outrider.testing import answer, say, use_tool
from tests.conformance.host import SILENT, Frame, Host, Refusal
from tests.conformance.scenario import scenario
from tests.conformance.scenarios_tools import serve, turns

ASKING = ("--permission-prompt-tool", "stdio")
CHANGE = use_tool("Bash", command="chmod 700 .")


async def asked(
    host: Host, answer: Callable[[Frame], object] | None, prompts: int = 1, **initialize: Any
) -> None:
    if answer is not None:
        host.answers["can_use_tool"] = answer
    async with host.started():
        await host.initialize(**initialize)
        for _ in range(prompts):
            await host.ask("go")


def allow(request: Frame) -> Frame:
    return {"behavior": "allow", "updatedInput": request["input"]}


def one_by_one(answers: list[Callable[[Frame], object]]) -> Callable[[Frame], object]:
    """The first answers the first request, and so on."""

    def answer(request: Frame) -> object:
        return answers.pop(0)(request)

    return answer


def deny(request: Frame) -> Frame:
    return {"behavior": "deny", "message": "not today"}


@scenario(
    CHANGE, say("done"), flags=ASKING, env={"CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS": "1"}, everywhere=True
)
async def permission_given(host: Host) -> None:
    await asked(host, allow)


@scenario(CHANGE, say("done"), flags=ASKING, everywhere=True)
async def permission_refused(host: Host) -> None:
    await asked(host, deny)


@scenario(CHANGE, say("never"), say("next"), flags=ASKING)
async def permission_refused_and_all_of_it(host: Host) -> None:
    await asked(host, lambda request: {"behavior": "deny", "message": "stop it", "interrupt": True}, 2)


@scenario(*turns(CHANGE, CHANGE), flags=ASKING)
async def permission_given_for_something_else(host: Host) -> None:
    changes: list[Frame] = [{"command": "echo instead"}, {"command": 5}]
    await asked(host, lambda request: {"behavior": "allow", "updatedInput": changes.pop(0)}, 2)


@scenario(*turns(CHANGE, CHANGE), flags=ASKING)
async def permission_given_from_now_on(host: Host) -> None:
    rule = {"toolName": "Bash"}
    update = {"type": "addRules", "rules": [rule], "behavior": "allow", "destination": "session"}
    await asked(host, lambda request: {**allow(request), "updatedPermissions": [update]}, 2)


WRITE = use_tool("Write", file_path="$FOLDER/new.txt", content="x\n")


@scenario(*turns(WRITE, use_tool("Write", file_path="$FOLDER/other.txt", content="x\n")), flags=ASKING)
async def permission_given_with_a_mode(host: Host) -> None:
    update = {"type": "setMode", "mode": "acceptEdits", "destination": "session"}
    await asked(host, lambda request: {**allow(request), "updatedPermissions": [update]}, 2)


@scenario(*turns(CHANGE, CHANGE, CHANGE, CHANGE), flags=ASKING)
async def answers_that_are_none(host: Host) -> None:
    def refuse(request: Frame) -> Frame:
        raise Refusal("the callback failed")

    answers: list[Callable[[Frame], object]] = [
        refuse,
        lambda _: {},
        lambda _: {"behavior": "perhaps"},
        lambda _: {"behavior": "deny"},
    ]
    await asked(host, one_by_one(answers), 4)


@scenario(CHANGE, say("done"), flags=ASKING)
async def nobody_left_to_ask(host: Host) -> None:
    host.answers["can_use_tool"] = lambda _: SILENT
    async with host.started():
        await host.initialize()
        await host.prompt("go")
        await host.until_requested("can_use_tool")


@scenario(
    answer(use_tool("Bash", command="chmod 700 ."), use_tool("Bash", command="chmod 755 .")),
    say("done"),
    flags=ASKING,
)
async def asked_one_after_the_other(host: Host) -> None:
    await asked(host, allow)


@scenario(
    *turns(CHANGE, WRITE, use_tool("Read", file_path="$FOLDER/a.txt")),
    flags=ASKING,
    files={"a.txt": "a\n"},
)
async def what_is_asked_about(host: Host) -> None:
    await asked(host, deny, 3)


@scenario(use_tool("mcp__tools__add", a=1), say("done"), flags=ASKING)
async def permission_for_a_tool_of_the_host(host: Host) -> None:
    host.answers |= {"mcp_message": serve, "can_use_tool": allow}
    async with host.started():
        await host.initialize(sdkMcpServers=["tools"])
        await host.ask("go")


@scenario(*turns(CHANGE, WRITE), everywhere=True)
async def nobody_to_ask(host: Host) -> None:
    await asked(host, None, 2)


@scenario(*turns(CHANGE), flags=("--allowedTools", "Bash"), everywhere=True)
async def rules(host: Host) -> None:
    await asked(host, None)


@scenario(
    *turns(CHANGE, WRITE),
    flags=(*ASKING, "--settings", json.dumps({"permissions": {"allow": ["Bash"], "ask": ["Write"]}})),
)
async def rules_of_settings(host: Host) -> None:
    await asked(host, deny, 2)


def by_mode(mode: str) -> tuple[str, ...]:
    return ("--permission-mode", mode)


@scenario(*turns(WRITE, CHANGE), flags=(*ASKING, *by_mode("acceptEdits")))
async def mode_accept_edits(host: Host) -> None:
    await asked(host, deny, 2)


@scenario(*turns(WRITE), flags=(*ASKING, *by_mode("plan")))
async def mode_plan(host: Host) -> None:
    await asked(host, deny, 1)


@scenario(*turns(WRITE, CHANGE), flags=by_mode("bypassPermissions"))
async def mode_bypass(host: Host) -> None:
    await asked(host, deny, 2)


@scenario(*turns(CHANGE, use_tool("Bash", command="echo hi")), flags=(*ASKING, *by_mode("dontAsk")))
async def mode_dont_ask(host: Host) -> None:
    await asked(host, allow, 2)


# Questions and plans.

QUESTIONS = [
    {
        "question": "Which colour?",
        "header": "Colour",
        "multiSelect": False,
        "options": [{"label": "Red", "description": "Warm"}, {"label": "Blue", "description": "Cold"}],
    }
]


@scenario(
    *turns(
        *[use_tool("AskUserQuestion", questions=QUESTIONS)] * 3, use_tool("AskUserQuestion", questions=[])
    ),
    flags=ASKING,
    everywhere=True,
)
async def questions(host: Host) -> None:
    answers: list[Callable[[Frame], object]] = [
        lambda request: {
            "behavior": "allow",
            "updatedInput": {**request["input"], "answers": {"Which colour?": "Red"}},
        },
        allow,
        deny,
        deny,
    ]
    await asked(host, one_by_one(answers), 4)


@scenario(use_tool("ExitPlanMode"), say("done"), flags=(*ASKING, *by_mode("plan")))
async def a_plan_that_is_approved(host: Host) -> None:
    await asked(host, allow)


@scenario(use_tool("ExitPlanMode"), say("done"), flags=(*ASKING, *by_mode("plan")))
async def a_plan_that_is_refused(host: Host) -> None:
    await asked(host, deny)


@scenario(use_tool("EnterPlanMode"), say("done"), flags=ASKING)
async def entering_plan_mode(host: Host) -> None:
    await asked(host, allow)
