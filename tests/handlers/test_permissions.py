"""A tool is used only if somebody said so in so many words: every other outcome is a denial."""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
from collections.abc import Callable
from contextlib import nullcontext
from contextvars import ContextVar
from typing import Any

import anyio
import pytest
from anyio import to_thread

from outrider.errors import Denied
from outrider.handlers import (
    PermissionRequest,
    add_context,
    allow,
    ask,
    block,
    defer,
    deny,
    later,
    modify,
    stop,
)
from outrider.handlers._permissions.requests import Permissions
from outrider.options._tool_names import ANY_TOOL
from outrider.wire import encode
from outrider.wire.control import CanUseTool
from outrider.wire.permissions import (
    PermissionResultAllow,
    PermissionResultDeny,
    PermissionRuleValue,
    PermissionUpdate,
)
from outrider.wire.tools import BashInput
from tests import tapes
from tests.cases import every_case
from tests.handlers.deciding import ID, LS, PLAN, Asker, Decider, can_use, request

pytestmark = pytest.mark.anyio

ALLOWED = {"behavior": "allow", "updatedInput": LS}
OTHER = {"command": "pwd"}
MODE = PermissionUpdate(type="setMode", mode="acceptEdits", destination="session")
MODE_WIRE = {"type": "setMode", "mode": "acceptEdits", "destination": "session"}
RULE = PermissionUpdate(
    type="addRules", rules=[PermissionRuleValue("Bash", "ls *")], behavior="allow", destination="session"
)
RULE_WIRE = {
    "type": "addRules",
    "rules": [{"toolName": "Bash", "ruleContent": "ls *"}],
    "behavior": "allow",
    "destination": "session",
}
NO_VALID = "The host gave no valid decision about this, so it is not allowed."
NO_REASON = "The host does not allow this, and gave no reason."


def returning(value: object) -> Callable[[object], object]:
    return lambda _: value


def raising(error: BaseException) -> Callable[[object], object]:
    def callback(_: object) -> object:
        raise error

    return callback


def in_async(callback: Callable[[object], object]) -> Callable[[object], object]:
    """The same as an async function."""

    async def async_callback(request: object) -> object:
        return callback(request)

    return async_callback


class Callback:
    """The same as an object that can be called."""

    def __init__(self, callback: Callable[[object], object]) -> None:
        self.callback = callback

    async def __call__(self, request: object) -> object:
        return self.callback(request)

    def method(self, request: object) -> object:
        return self.callback(request)


FORMS: dict[str, Callable[[Callable[[object], object]], Callable[[object], object]]] = {
    "sync": lambda callback: callback,
    "async": in_async,
    "object": Callback,
    "method": lambda callback: Callback(callback).method,
    "partial": lambda callback: functools.partial(in_async(callback)),
}

# What decides.

DECISIONS: list[tuple[object, dict[str, Any]]] = [
    (True, ALLOWED),
    (allow(), ALLOWED),
    (allow(OTHER), ALLOWED | {"updatedInput": OTHER}),
    (allow(input={}), ALLOWED | {"updatedInput": {}}),
    (allow().with_changes(command="pwd"), ALLOWED | {"updatedInput": LS | OTHER}),
    (allow(updates=[MODE, RULE]), ALLOWED | {"updatedPermissions": [MODE_WIRE, RULE_WIRE]}),
    # Without a place, all updates would be ignored.
    (
        allow(updates=[PermissionUpdate("setMode", mode="acceptEdits")]),
        ALLOWED | {"updatedPermissions": [MODE_WIRE]},
    ),
    (
        {"behavior": "allow", "updatedPermissions": [{"type": "setMode", "mode": "acceptEdits"}]},
        ALLOWED | {"updatedPermissions": [MODE_WIRE]},
    ),
    (allow(reason="because", context="c", notice="n"), ALLOWED),
    (PermissionResultAllow(), ALLOWED),
    (PermissionResultAllow(updated_input=OTHER), ALLOWED | {"updatedInput": OTHER}),
    (PermissionResultAllow(updated_permissions=[MODE]), ALLOWED | {"updatedPermissions": [MODE_WIRE]}),
    (
        PermissionResultAllow(decision_classification="user_permanent"),
        ALLOWED | {"decisionClassification": "user_permanent"},
    ),
    (PermissionResultAllow(tool_use_id=ID), ALLOWED),
    ({"behavior": "allow"}, ALLOWED),
    ({"behavior": "allow", "updatedInput": None, "updatedPermissions": None}, ALLOWED),
    ({"behavior": "allow", "updatedInput": OTHER, "toolUseID": ID}, ALLOWED | {"updatedInput": OTHER}),
    (
        {"behavior": "allow", "updatedPermissions": [RULE_WIRE]},
        ALLOWED | {"updatedPermissions": [RULE_WIRE]},
    ),
    (False, {"behavior": "deny", "message": NO_REASON}),
    (deny("No"), {"behavior": "deny", "message": "No"}),
    (deny("No", interrupt=True), {"behavior": "deny", "message": "No", "interrupt": True}),
    (deny(""), {"behavior": "deny", "message": NO_REASON}),
    (deny("  ", interrupt=True), {"behavior": "deny", "message": NO_REASON, "interrupt": True}),
    (PermissionResultDeny(message="No"), {"behavior": "deny", "message": "No"}),
    (PermissionResultDeny(), {"behavior": "deny", "message": NO_REASON}),
    (
        PermissionResultDeny(message="No", interrupt=True, decision_classification="user_reject"),
        {"behavior": "deny", "message": "No", "interrupt": True, "decisionClassification": "user_reject"},
    ),
    ({"behavior": "deny", "message": "No"}, {"behavior": "deny", "message": "No"}),
    ({"behavior": "deny"}, {"behavior": "deny", "message": NO_REASON}),
]


@pytest.mark.requirement("A10")
@every_case("value, wire", DECISIONS, ids=lambda value: repr(value)[:60])
@every_case("form", FORMS)
async def test_a_decision_is_sent_as_it_was_made(form: str, value: object, wire: dict[str, Any]) -> None:
    decider = Decider(FORMS[form](returning(value)))
    answer = await decider.answer()
    assert answer == wire
    assert decider.report.decision == wire["behavior"]
    assert decider.report.outcome == "answered"


@pytest.mark.requirement("A10")
async def test_suggestions_go_back_as_they_came() -> None:
    suggestions = [
        RULE_WIRE | {"unknown": [1]},
        {"type": "somethingNew", "level": 5, "destination": "session"},
    ]

    async def always(request: PermissionRequest) -> object:
        return allow(updates=request.suggestions)

    answer = await Decider(always).answer(permission_suggestions=suggestions)
    assert answer == ALLOWED | {"updatedPermissions": suggestions}


@every_case(
    "error, message, interrupt",
    [
        (Denied("Not on a Sunday"), "Not on a Sunday", False),
        (Denied("Enough", interrupt=True), "Enough", True),
        (Denied(""), NO_REASON, False),
        (ExceptionGroup("one", [Denied("Grouped")]), "Grouped", False),
    ],
    ids=["plain", "interrupt", "empty", "grouped"],
)
@every_case("form", FORMS)
async def test_to_raise_denied_is_to_deny(
    form: str, error: BaseException, message: str, interrupt: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.clear()
    decider = Decider(FORMS[form](raising(error)))
    answer = await decider.answer()
    assert answer == {"behavior": "deny", "message": message} | ({"interrupt": True} if interrupt else {})
    assert (decider.report.outcome, decider.report.error) == ("answered", None)
    assert caplog.records == []


# What does not. Made as if there were no type checkers: not everybody has one.

any_allow: Any = allow
any_deny: Any = deny
any_update: Any = PermissionUpdate
any_result: Any = PermissionResultAllow
any_denial: Any = PermissionResultDeny

ITSELF: dict[str, Any] = {}
ITSELF["itself"] = ITSELF

NONSENSE: list[object] = [
    None,
    "yes",
    "allow",
    1,
    0,
    1.0,
    b"allow",
    [],
    [True],
    (True,),
    {},
    object(),
    allow,
    ask(),
    ask("why"),
    defer(),
    modify(command="pwd"),
    modify({"command": "pwd"}),
    add_context("c"),
    block("why"),
    stop("why"),
    later(),
    any_deny(5),
    any_deny(None),
    any_deny("No", interrupt="yes"),
    any_allow().with_changes("pwd"),
    any_allow().with_changes(None),
    any_allow().with_changes([{"command": "pwd"}]),
    any_allow().with_changes(command=object()),
    any_allow({"command": float("nan")}),
    any_allow({"command": {"nested": float("inf")}}),
    any_allow({"command": object()}),
    any_allow({1: "ls"}),
    any_allow(ITSELF),
    any_allow(updates=["acceptEdits"]),
    any_allow(updates=[None]),
    any_allow(updates=[{"type": 5}]),
    any_allow(updates=[any_update(type="allowEverything")]),
    any_allow(updates=[any_update(type="setMode")]),
    any_allow(updates=[any_update(type="addRules", behavior="allow")]),
    any_allow(updates=[any_update(type="addRules", rules=[PermissionRuleValue("Bash")])]),
    any_allow(updates=[any_update(type="addDirectories")]),
    any_allow(updates=[any_update(type="addRules", rules="Bash")]),
    any_allow(updates=[any_update(type="setMode", mode=5)]),
    any_allow(updates=[any_update(type=None)]),
    {"behavior": "Allow"},
    {"behavior": True},
    {"behavior": None},
    {"behaviour": "allow"},
    {"allow": True},
    {"behavior": "ask"},
    {"behavior": "allow", "updated_input": OTHER},
    {"behavior": "allow", "updatedinput": OTHER},
    {"behavior": "allow", "message": "No"},
    {"behavior": "allow", "interrupt": True},
    {"behavior": "allow", "updatedInput": "pwd"},
    {"behavior": "allow", "updatedInput": []},
    {"behavior": "allow", "updatedInput": {"command": {1, 2}, "other": object()}},
    {"behavior": "allow", "updatedPermissions": {}},
    {"behavior": "allow", "updatedPermissions": "setMode"},
    {"behavior": "allow", "updatedPermissions": [5]},
    {"behavior": "allow", "toolUseID": "toolu_other"},
    {"behavior": "allow", "decisionClassification": 5},
    {"behavior": "deny", "message": 5},
    {"behavior": "deny", "message": None},
    {"behavior": "deny", "message": "No", "interrupt": "yes"},
    {"behavior": "deny", "message": "No", "updatedInput": OTHER},
    any_result(tool_use_id="toolu_other"),
    any_result(updated_input="pwd"),
    any_result(updated_permissions="all"),
    any_result(updated_permissions=[5]),
    any_result(decision_classification=5),
    any_denial(message=None),
    can_use(),
    nullcontext(True),
]


@pytest.mark.requirement("A10")
@every_case("form", FORMS)
@every_case("value", NONSENSE, ids=[str(number) for number in range(len(NONSENSE))])
async def test_what_is_no_decision_denies(form: str, value: object, caplog: pytest.LogCaptureFixture) -> None:
    caplog.clear()
    decider = Decider(FORMS[form](returning(value)))
    assert await decider.answer() == {"behavior": "deny", "message": NO_VALID}
    assert (decider.report.decision, decider.report.outcome) == ("deny", "failed")
    (record,) = caplog.records
    assert (record.levelno, record.name) == (logging.ERROR, "outrider.session")
    assert "denied, because" in record.getMessage()


FAILURES: dict[str, BaseException] = {
    "value": ValueError("the password is 1234"),
    "key": KeyError("password"),
    "lookup": LookupError(),
    "timeout_of_its_own": TimeoutError("the password is 1234"),
    "stop": StopIteration("password"),
    "stop_async": StopAsyncIteration("password"),
    "assertion": AssertionError("password"),
    "group": ExceptionGroup("password", [ValueError("password"), Denied("password")]),
    "recursion": RecursionError("password"),
    "memory": MemoryError("password"),
    "unicode": UnicodeDecodeError("utf-8", b"x", 0, 1, "password"),
}


@pytest.mark.requirement("A10")
@every_case("form", FORMS)
@every_case("error", FAILURES.values(), ids=FAILURES)
async def test_a_callback_that_raises_denies_and_the_model_learns_no_more_than_the_kind(
    form: str, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.clear()
    decider = Decider(FORMS[form](raising(error)))
    answer = await decider.answer()
    assert answer.keys() == {"behavior", "message"}
    assert answer["behavior"] == "deny"
    assert "password" not in answer["message"]
    assert "The host failed to decide about this (" in answer["message"]
    assert (decider.report.decision, decider.report.outcome) == ("deny", "failed")
    assert decider.report.error is not None
    (record,) = caplog.records
    assert record.exc_info is not None
    assert record.exc_info[1] is decider.report.error


@pytest.mark.requirement("A10")
async def test_a_callback_that_takes_too_long_denies(caplog: pytest.LogCaptureFixture) -> None:
    told: list[PermissionRequest] = []

    async def slow(request: PermissionRequest) -> bool:
        told.append(request)
        await anyio.sleep_forever()
        return True

    decider = Decider(slow, timeout=0.01)
    assert await decider.answer() == {
        "behavior": "deny",
        "message": "Nobody decided about this within 0.01 s, so it is not allowed.",
    }
    assert (decider.report.decision, decider.report.outcome) == ("deny", "timed_out")
    assert told[0].is_cancelled
    assert "within 0.01 s" in caplog.text


@pytest.mark.requirement("A10")
async def test_an_answer_that_comes_too_late_denies() -> None:
    async def stubborn(request: PermissionRequest) -> bool:
        with contextlib.suppress(anyio.get_cancelled_exc_class()):
            await anyio.sleep_forever()
        return True

    decider = Decider(stubborn, timeout=0.01)
    assert (await decider.answer())["behavior"] == "deny"
    assert (decider.report.decision, decider.report.outcome) == ("deny", "timed_out")


async def test_a_thread_that_takes_too_long_is_left_to_itself() -> None:
    told: list[PermissionRequest] = []
    begun, end = threading.Event(), threading.Event()

    def slow(request: PermissionRequest) -> bool:
        told.append(request)
        begun.set()
        return end.wait(30)

    decider = Decider(slow, timeout=0.01)
    try:
        # On a busy machine a call may be over before its thread begins.
        while not begun.is_set():
            assert (await decider.answer())["behavior"] == "deny"
        assert told[0].is_cancelled
    finally:
        end.set()


async def test_a_plain_function_may_return_an_awaitable() -> None:
    def starts(request: object) -> object:
        return in_async(returning(True))(request)

    assert await Decider(starts).answer() == ALLOWED


async def test_an_answer_in_time_is_no_timeout() -> None:
    decider = Decider(returning(True), timeout=30)
    assert await decider.answer() == ALLOWED


@pytest.mark.requirement("A10")
@pytest.mark.parametrize("input", [LS, {}, {"command": 5}], ids=["ls", "empty", "odd"])
async def test_without_a_callback_all_is_denied(input: dict[str, Any]) -> None:
    decider = Decider()
    answer = await decider.answer(input=input)
    assert answer == {"behavior": "deny", "message": "Nobody can be asked for permission here."}
    assert decider.report.reason == "there is no permission callback"


# The session's end.


@pytest.mark.requirement("A10")
async def test_a_closed_session_denies_and_asks_nobody() -> None:
    asked: list[object] = []
    decider = Decider(asked.append, on_question=asked.append, on_plan=asked.append)
    decider.permissions.close()
    for tool in ("Bash", "AskUserQuestion", "ExitPlanMode"):
        answer = await decider.answer(tool)
        assert (answer["behavior"], "being closed" in answer["message"]) == ("deny", True)
    assert asked == []


@pytest.mark.requirement("A10")
async def test_what_is_decided_while_the_session_closes_is_denied() -> None:
    decider = Decider()

    async def closing(_: object) -> bool:
        decider.permissions.close()
        return True

    decider.permissions._permission = closing
    answer = await decider.answer()
    assert (answer["behavior"], "being closed" in answer["message"]) == ("deny", True)


# Cancellation.


async def test_a_withdrawn_request_cancels_the_callback_and_is_not_answered() -> None:
    told: list[PermissionRequest] = []
    cancelled: list[bool] = []
    began = anyio.Event()

    async def waiting(request: PermissionRequest) -> bool:
        told.append(request)
        began.set()
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            cancelled.append(True)
            raise
        return True

    decider = Decider(waiting)
    answers: list[object] = []

    async def answer() -> None:
        answers.append(await decider.answer())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(answer)
        await began.wait()
        tasks.cancel_scope.cancel()
    assert (answers, cancelled) == ([], [True])
    assert told[0].is_cancelled
    assert (decider.report.outcome, decider.report.decision) == ("cancelled", "deny")


async def test_a_thread_whose_answer_is_not_wanted_can_see_that() -> None:
    told: list[PermissionRequest] = []
    began, end = anyio.Event(), threading.Event()
    stopped: list[bool] = []

    def waiting(request: PermissionRequest) -> bool:
        told.append(request)
        anyio.from_thread.run_sync(began.set)
        end.wait(30)
        stopped.append(request.is_cancelled)
        return True

    decider = Decider(waiting)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(decider.answer)
        await began.wait()
        tasks.cancel_scope.cancel()
    end.set()
    with anyio.fail_after(10):
        while not stopped:
            await to_thread.run_sync(lambda: None)
    assert stopped == [True]
    assert decider.report.outcome == "cancelled"


async def test_a_callback_that_answers_although_it_is_cancelled_has_not_answered() -> None:
    began = anyio.Event()

    async def stubborn(_: object) -> bool:
        began.set()
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            return True
        return False

    decider = Decider(stubborn)
    answers: list[object] = []

    async def answer() -> None:
        answers.append(await decider.answer())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(answer)
        await began.wait()
        tasks.cancel_scope.cancel()
    assert answers == []
    assert decider.report.outcome == "cancelled"


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_cancellation_of_something_else_is_a_failure() -> None:
    import asyncio

    async def waits_for_a_cancelled_task(_: object) -> bool:
        task = asyncio.ensure_future(asyncio.sleep(30))
        task.cancel()
        await task
        return True

    async def grouped(_: object) -> bool:
        raise BaseExceptionGroup("tasks", [asyncio.CancelledError(), ValueError()])

    for callback in (waits_for_a_cancelled_task, grouped):
        decider = Decider(callback)
        assert (await decider.answer())["behavior"] == "deny"
        assert decider.report.outcome == "failed"


async def test_a_cancelled_scope_of_its_own_is_its_own_affair() -> None:
    async def gives_up(_: object) -> bool:
        with anyio.move_on_after(0):
            await anyio.sleep_forever()
        return True

    assert await Decider(gives_up).answer() == ALLOWED


@every_case("error", [KeyboardInterrupt(), SystemExit(3)], ids=["ctrl_c", "exit"])
@every_case("grouped", [False, True], ids=["bare", "grouped"])
async def test_what_ends_programs_is_let_through(error: BaseException, grouped: bool) -> None:
    raised = BaseExceptionGroup("tasks", [error, ValueError()]) if grouped else error

    async def ends(_: object) -> bool:
        raise raised

    decider = Decider(ends)
    with pytest.raises(type(raised)) as caught:
        await decider.permissions.answer(can_use(), Asker())
    assert caught.value is raised
    assert (decider.report.decision, decider.report.error) == ("deny", raised)


async def test_many_are_decided_at_once() -> None:
    inside, most = 0, 0
    all_in = anyio.Event()

    async def together(_: object) -> bool:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        if inside == 20:
            all_in.set()
        await all_in.wait()
        inside -= 1
        return True

    decider = Decider(together)
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(decider.answer)
    assert most == 20
    assert [report.decision for report in decider.reports] == ["allow"] * 20


# What a callback is told.

FIELDS: dict[str, Any] = {
    "blocked_path": "/etc/hosts",
    "decision_reason": "It is outside",
    "decision_reason_type": "workingDir",
    "decision_reason_code": "c1",
    "decision_reason_hook_event": "PreToolUse",
    "decision_reason_hook_source": "userSettings",
    "decision_reason_rule_source": "localSettings",
    "classifier_approvable": True,
    "suppress_always_allow_rule": True,
    "default_to_no": True,
    "title": "Look",
    "display_name": "Shell",
    "description": "Lists files",
    "agent_id": "a123",
    "requires_user_interaction": True,
    "server_policy_ask_only": True,
    "plugin": {"name": "p"},
    "server_prompt": "s",
}


@pytest.mark.requirement("A10")
async def test_a_callback_is_told_all_that_the_agent_says() -> None:
    wire: dict[str, Any] = FIELDS | {
        "matched_ask_rule": {"source": "user", "tool_name": "Bash", "rule_content": "ls"},
        "mcp_server": {"name": "s", "source": "dynamic"},
        "computer_folder": {"path": "/p", "computer_name": "c"},
        "permission_suggestions": [RULE_WIRE],
    }
    told: Any = request(**wire)
    assert {name: getattr(told, name) for name in FIELDS} == FIELDS
    assert (told.tool_name, told.tool_input, told.tool_use_id) == ("Bash", LS, ID)
    assert told.suggestions == (RULE,)
    assert told.mcp_server.name == "s"
    assert told.matched_ask_rule.rule_content == "ls"
    assert told.computer_folder.path == "/p"
    assert told.turn == "the turn"
    assert told.session.info.cwd == "/project"
    assert told.is_cancelled is False


def test_every_field_of_the_wire_is_there() -> None:
    renamed = {"input": "tool_input", "permission_suggestions": "suggestions"}
    told = request()
    for name in CanUseTool.__struct_fields__:
        assert hasattr(told, renamed.get(name, name)), name


@pytest.mark.requirement("A10")
def test_every_request_that_was_recorded_can_be_told() -> None:
    seen = 0
    for name in tapes.NAMES:
        for frame in tapes.frames(name, "cli->host"):
            wire = frame.get("request", {})
            if frame.get("type") == "control_request" and wire.get("subtype") == "can_use_tool":
                told = PermissionRequest(CanUseTool.from_wire(wire), Asker())
                assert told.tool_input == wire["input"]
                assert [each.to_dict() for each in told.suggestions] == wire.get("permission_suggestions", [])
                assert not told.is_changed
                seen += 1
    assert seen > 30


def test_the_input_of_a_built_in_tool_is_typed() -> None:
    told = request()
    assert told.tool == BashInput(command="ls", description="Look")
    assert told.tool is told.tool
    assert request("mcp__s__t", {"x": 1}).tool is None
    assert request("Bash", {"command": 5}).tool is None


def test_a_plan_is_told_as_text() -> None:
    assert request("ExitPlanMode", PLAN).plan == "# Plan\n1. Write\n"
    assert request("ExitPlanMode", {}).plan == ""
    assert request("ExitPlanMode", {"plan": 5}).plan == ""
    assert request("Bash", PLAN).plan is None


def test_a_request_shows_what_it_is_about_and_no_secret() -> None:
    assert repr(request()) == "<PermissionRequest Bash {'command': 'ls', 'description': 'Look'}>"
    shown = repr(request("Bash", {"env": "ANTHROPIC_API_KEY=sk-ant-api03-abcdefghijklmnop"}, agent_id="a1"))
    assert "abcdefghijklmnop" not in shown
    assert shown.endswith(" by a1>")


async def test_callbacks_see_the_context_of_the_task_that_asks() -> None:
    user: ContextVar[str] = ContextVar("user", default="nobody")
    seen: list[str] = []

    def look(_: object) -> bool:
        seen.append(user.get())
        return True

    user.set("ann")
    for form in FORMS.values():
        await Decider(form(look)).answer()
    assert seen == ["ann"] * len(FORMS)


# What is done to a request.


@every_case("field", ["input", "nested", "tool"])
@every_case("value", [True, allow(), {"behavior": "allow"}, PermissionResultAllow()], ids=range(4))
async def test_a_request_that_was_changed_in_place_is_not_allowed(field: str, value: object) -> None:
    def change(request: PermissionRequest) -> object:
        if field == "input":
            request.tool_input["command"] = "pwd"
        elif field == "nested":
            request.tool_input["deep"][0]["a"] = 2
        else:
            assert isinstance(request.tool, BashInput)
            request.tool.command = "pwd"
        return value

    ask = can_use(input=LS | {"deep": [{"a": 1}]}) if field == "nested" else can_use()
    before = encode(ask.input)
    decider = Decider(change)
    answer = await decider.permissions.answer(ask, Asker())
    assert answer == {"behavior": "deny", "message": NO_VALID}
    assert "in place" in decider.report.reason
    assert encode(ask.input) == before
    assert encode(decider.report.input) == before


async def test_a_request_may_be_used_to_make_the_new_input() -> None:
    def change(request: PermissionRequest) -> object:
        request.tool_input["command"] = "pwd"
        return allow(request.tool_input)

    assert await Decider(change).answer() == ALLOWED | {"updatedInput": LS | OTHER}


async def test_a_request_that_was_changed_can_still_be_denied() -> None:
    def change(request: PermissionRequest) -> object:
        request.tool_input.clear()
        return deny("No")

    assert await Decider(change).answer() == {"behavior": "deny", "message": "No"}


async def test_an_answer_that_fails_when_it_is_looked_at_denies(caplog: pytest.LogCaptureFixture) -> None:
    class Trap(dict[str, Any]):
        def get(self, *_: object) -> Any:
            raise RuntimeError("trapped")

    decider = Decider(returning(Trap(behavior="allow")))
    answer = await decider.answer()
    assert (answer["behavior"], "RuntimeError" in answer["message"]) == ("deny", True)
    assert "trapped" in caplog.text


async def test_a_mistake_of_our_own_denies() -> None:
    deep: Any = "end"
    for _ in range(100_000):
        deep = {"in": deep}
    decider = Decider(returning(True))
    answer = await decider.answer(input={"deep": deep})
    assert answer["behavior"] == "deny"
    assert "RecursionError" in answer["message"]
    while isinstance(deep, dict):
        deep = deep["in"]


# What those who watch are told.


@every_case(
    "callback, reason",
    [
        (returning(True), " allowed it"),
        (returning(allow(reason="it is harmless")), " allowed it: it is harmless"),
        (returning(allow(notice="rule 3")), " allowed it: rule 3"),
        (returning(deny("No")), " denied it: No"),
        (returning(deny("No", notice="rule 4")), " denied it: rule 4"),
        (returning(False), " denied it"),
        (raising(Denied("No")), " denied it: No"),
        (raising(ValueError("x")), " raised ValueError"),
        (returning(None), " gave no valid decision: None is not a decision: return allow() or deny('why')"),
    ],
    ids=range(9),
)
async def test_each_decision_is_reported_once_with_who_made_it(
    callback: Callable[[object], object], reason: str
) -> None:
    decider = Decider(callback)
    await decider.answer()
    report = decider.report
    assert report.reason == callback.__qualname__ + reason
    assert (report.tool_name, report.input, report.tool_use_id) == ("Bash", LS, ID)
    assert 0 <= report.seconds < 30


def test_there_is_no_deadline_of_its_own_for_a_person() -> None:
    assert Permissions(None, None, None, lambda _: None, lambda: ANY_TOOL)._timeout is None
