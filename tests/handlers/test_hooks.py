"""Hooks that are called: what they say, what a failure stands for, and in which order they have their say."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import enum
import logging
import math
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import given
from hypothesis import strategies as st

from outrider.errors import Denied, OptionsError
from outrider.handlers import (
    Answer,
    CallTimedOut,
    Hook,
    HookContext,
    HookHandled,
    HookNeverCalledWarning,
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
from outrider.handlers._hooks.dispatch import _KEPT, Hooks
from outrider.options._tool_names import ANY_TOOL
from outrider.wire import JsonObject, encode
from outrider.wire.hooks import (
    HOOK_EVENTS,
    AsyncHookOutput,
    HookInput,
    HookOutput,
    PreToolUseOutput,
    StopOutput,
    WorktreeCreateOutput,
)
from tests.cases import every_case
from tests.handlers.hooking import Asker, Hooked, answer_of, callback, is_refusal
from tests.handlers.test_hooks_hook import CAN_CLOSE, CLOSED, Checks, guard, loose

DENIED = {
    "hookSpecificOutput": {
        "hookEventName": "PreToolUse",
        "permissionDecision": "deny",
        "permissionDecisionReason": "why",
    }
}
ALLOWED = {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "allow"}}


class Oddity:
    """Cannot even be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


def circle() -> JsonObject:
    value: JsonObject = {}
    value["updatedInput"] = value
    return value


# What a function may return.


@pytest.mark.anyio
@every_case(
    "returned, wire",
    [
        (None, {}),
        ({}, {}),
        (Answer(), {}),
        (HookOutput(), {}),
        ({"reason": None, "hookSpecificOutput": None}, {}),
        (deny("why"), DENIED),
        (allow(), ALLOWED),
        (PreToolUseOutput(permission_decision="deny", permission_decision_reason="why"), DENIED),
        (
            HookOutput(
                hook_specific_output=PreToolUseOutput(
                    permission_decision="deny", permission_decision_reason="why"
                )
            ),
            DENIED,
        ),
        (HookOutput(hook_specific_output=DENIED["hookSpecificOutput"]), DENIED),
        (DENIED, DENIED),
        (
            {"hookSpecificOutput": {"permissionDecision": "deny", "permissionDecisionReason": "why"}},
            DENIED,
        ),
        # The agent takes an answer with a null for none.
        (
            {"hookSpecificOutput": DENIED["hookSpecificOutput"] | {"updatedInput": None}, "reason": None},
            DENIED,
        ),
        ({"continue_": False, "stopReason": "x"}, {"continue": False, "stopReason": "x"}),
        ({"continue": False}, {"continue": False}),
        ({"decision": "block", "reason": "x"}, {"decision": "block", "reason": "x"}),
        ({"decision": "allow"}, {"decision": "approve"}),
        ({"async_": True, "asyncTimeout": 5}, {"async": True, "asyncTimeout": 5}),
        ({"async": True}, {"async": True}),
        (AsyncHookOutput(7), {"async": True, "asyncTimeout": 7}),
        (later(), {"async": True}),
    ],
    ids=range(21),
)
@pytest.mark.requirement("A8")
async def test_an_answer_may_have_many_forms(returned: object, wire: JsonObject) -> None:
    assert await answer_of("PreToolUse", lambda _: returned) == wire


class Subclass(dict[str, Any]):
    pass


@pytest.mark.anyio
@every_case(
    "returned",
    [
        {"hookSpecificOutput": Subclass(DENIED["hookSpecificOutput"])},
        Subclass(DENIED),
        {"hookSpecificOutput": DENIED["hookSpecificOutput"] | {"updatedInput": {"n": float("nan")}}},
        {"hookSpecificOutput": DENIED["hookSpecificOutput"] | {"updatedInput": {"n": Subclass(n=circle())}}},
        {"hookSpecificOutput": Subclass(updatedInput={"n": Oddity()})},
        {"continue": 1},
        {5: "five"},
        {"hookSpecificOutput": {"hookEventName": "Stop", "permissionDecision": "allow"}},
        {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "yes"}},
        {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "\ud800"}},
    ],
    ids=range(10),
)
async def test_what_is_nearly_plain_is_looked_at_closely(returned: object) -> None:
    answer = await answer_of("PreToolUse", lambda _: returned)
    assert answer["hookSpecificOutput"]["permissionDecision"] == "deny"


@pytest.mark.parametrize(
    "answer, decision",
    [
        ({}, None),
        (DENIED, "deny"),
        (ALLOWED, "allow"),
        ({"decision": "block", "reason": "why"}, "block"),
        ({"continue": False, **ALLOWED}, "stop"),
        ({"hookSpecificOutput": {"decision": {"behavior": "deny"}}}, "deny"),
        ({"hookSpecificOutput": {"additionalContext": "more"}}, None),
    ],
)
def test_a_report_says_what_was_decided(answer: JsonObject, decision: str | None) -> None:
    report = HookHandled(seconds=0, outcome="answered", event="PreToolUse", name="guard", answer=answer)
    assert report.decision == decision


@pytest.mark.anyio
async def test_an_answer_stays_as_it_was_given() -> None:
    mine: JsonObject = {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "allow"}}
    answer = await answer_of("PreToolUse", lambda _: mine)
    mine["hookSpecificOutput"]["permissionDecision"] = "deny"
    assert answer == ALLOWED


@pytest.mark.anyio
@pytest.mark.parametrize("returned", ["/made/here", Path("/made/here"), WorktreeCreateOutput("/made/here")])
async def test_a_worktree_is_answered_with_its_path(returned: object) -> None:
    own = {"hookEventName": "WorktreeCreate", "worktreePath": os.fspath("/made/here")}
    assert await answer_of("WorktreeCreate", lambda _: returned) == {"hookSpecificOutput": own}


@pytest.mark.anyio
async def test_functions_of_all_kinds_are_called() -> None:
    async def asynchronous(input: HookInput) -> Answer:
        await checkpoint()
        return deny("why")

    def synchronous(input: HookInput) -> Answer:
        assert threading.current_thread() is not threading.main_thread()
        return deny("why")

    for function in (asynchronous, synchronous):
        assert await answer_of("PreToolUse", function) == DENIED
    checks = Checks()
    hooked = Hooked({"Stop": [checks.at_end, checks.at_end_too]})
    assert await hooked.answer("Stop") == await hooked.answer("Stop", 1) == {}
    assert [type(seen).__name__ for seen in checks.seen] == ["StopInput", "HookContext"]


@pytest.mark.anyio
async def test_a_function_knows_who_asks() -> None:
    seen: list[Any] = []

    async def note(input: HookInput, ctx: HookContext) -> None:
        seen.append(ctx)

    hooked = Hooked({"PreToolUse": [note], "Stop": [note]})
    await hooked.answer("PreToolUse", occurrence="toolu_7")
    await hooked.answer("Stop", occurrence="made up by the agent")
    assert [(ctx.session, ctx.turn, ctx.tool_use_id, ctx.is_cancelled) for ctx in seen] == [
        ("the session", "the turn", "toolu_7", False),
        ("the session", "the turn", None, False),
    ]


@pytest.mark.anyio
async def test_a_function_sees_the_context_of_its_call() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    variable.set("mine")
    assert await answer_of("PreToolUse", lambda _: deny(variable.get())) == await answer_of(
        "PreToolUse", lambda _: deny("mine")
    )


@pytest.mark.anyio
async def test_a_hook_that_there_is_not_is_not_answered_for() -> None:
    with pytest.raises(LookupError, match="no hook 'hook_9'"):
        await Hooks({"Stop": [print]}, lambda _: None, lambda: ANY_TOOL).answer(
            callback("Stop", "hook_9"), Asker()
        )


# What a failure stands for.


async def never(input: HookInput) -> None:
    await anyio.sleep_forever()


def raises(input: HookInput) -> None:
    raise ValueError("the secret of the house")


def ends_iteration(input: HookInput) -> None:
    raise StopIteration


async def cancelled_by_itself(input: HookInput) -> None:
    """Waits for something that somebody else has cancelled."""
    raise anyio.get_cancelled_exc_class()


NONSENSE: list[Any] = [
    True,
    False,
    0,
    "deny",
    b"deny",
    [DENIED],
    ("deny", "why"),
    object(),
    Oddity(),
    {"foo": 1},
    {1: 2},
    {"permissionDecision": "deny"},
    {"decision": "deny"},
    {"decision": "block", "reason": 5},
    {"decision": ["block"]},
    {"continue": "no"},
    {"hookSpecificOutput": "deny"},
    {"hookSpecificOutput": {"hookEventName": "Other", "permissionDecision": "deny"}},
    {"async": "yes"},
    {"async": True, "asyncTimeout": "5"},
    {"async": True, "decision": "block", "reason": "x"},
    HookOutput(decision="perhaps"),
    HookOutput(reason=loose(5)),
    HookOutput(hook_specific_output={"hookEventName": "Other"}),
    Answer(verdict=loose("perhaps"), reason=loose(5)),
    Answer(notice=loose(5)),
    circle(),
    deny,
    Denied("why"),
]
OF_PRE_TOOL_USE: list[Any] = [
    {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permisionDecision": "deny"}},
    {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "perhaps"}},
    {"hookSpecificOutput": {"hookEventName": "PreToolUse", "updatedInput": "ls"}},
    {"hookSpecificOutput": {"hookEventName": "PreToolUse", "updatedInput": {"a": object()}}},
    {"hookSpecificOutput": {"hookEventName": "PreToolUse", "updatedInput": {"a": math.nan}}},
    {"hookSpecificOutput": {"hookEventName": "PreToolUse", "updatedInput": {1: "a"}}},
    {"hookSpecificOutput": {"hookEventName": "PreToolUse", "updatedInput": circle()}},
    StopOutput(additional_context="of another event"),
    modify("not an object"),
    modify({"a": object()}),
    modify(command=loose(object())),
    Answer(verdict="ask", reason=loose(5)),
]


@pytest.mark.anyio
@every_case("number", range(len(NONSENSE)))
async def test_what_means_nothing_is_a_refusal_where_the_hook_fails_closed(number: int) -> None:
    for event in CAN_CLOSE:
        if event == "WorktreeCreate" and isinstance(NONSENSE[number], str):
            continue
        wire = await answer_of(event, lambda _: NONSENSE[number], fails="closed")
        assert is_refusal(event, wire), event


@pytest.mark.anyio
@every_case("number", range(len(OF_PRE_TOOL_USE)))
async def test_what_means_nothing_to_a_guard_of_tools_is_a_denial(number: int) -> None:
    assert is_refusal("PreToolUse", await answer_of("PreToolUse", lambda _: OF_PRE_TOOL_USE[number]))


@pytest.mark.anyio
@every_case(
    "decision",
    [
        "allow",
        {},
        {"behavior": "perhaps"},
        {"behavior": "deny"},
        {"behavior": "deny", "message": None},
        {"behavior": "allow", "updatedInput": "ls"},
        {"behavior": "allow", "updated_input": {}},
    ],
)
async def test_what_decides_no_permission_is_a_denial(decision: object) -> None:
    wire = {"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": decision}}
    assert is_refusal("PermissionRequest", await answer_of("PermissionRequest", lambda _: wire))


@pytest.mark.anyio
async def test_a_part_that_an_event_does_not_have_is_no_answer() -> None:
    # The agent would take the whole for none.
    wire = {"decision": "block", "reason": "x", "hookSpecificOutput": {"hookEventName": "PreCompact"}}
    assert is_refusal("PreCompact", await answer_of("PreCompact", lambda _: wire, fails="closed"))
    assert await answer_of("PreCompact", lambda _: wire) == {}


@pytest.mark.anyio
@every_case("number", range(len(NONSENSE)))
async def test_what_means_nothing_is_no_answer_where_the_hook_fails_open(number: int) -> None:
    value = NONSENSE[number]
    wire = await answer_of("PreToolUse", lambda _: value, fails="open")
    # A key that is not known may be one of tomorrow.
    is_new = isinstance(value, dict) and value.keys() & {"foo", "permissionDecision"}
    assert wire == (value if is_new else {})


@pytest.mark.anyio
@pytest.mark.parametrize(
    "anyio_backend, function",
    [
        *((backend, function) for backend in ("asyncio", "trio") for function in (raises, ends_iteration)),
        # Trio lets nobody make a cancellation.
        ("asyncio", cancelled_by_itself),
    ],
)
@every_case("event", sorted(CAN_CLOSE))
async def test_a_hook_that_fails_closed_refuses(
    event: str, function: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.clear()
    wire = await answer_of(event, function, fails="closed")
    assert is_refusal(event, wire)
    assert "secret" not in str(wire)
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("outrider.session", logging.ERROR)
    assert function.__name__ in record.getMessage()
    assert record.exc_info


@pytest.mark.anyio
@every_case("event", HOOK_EVENTS)
async def test_a_hook_that_fails_open_says_nothing(event: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.clear()
    assert await answer_of(event, raises, fails="open") == {}
    assert await answer_of(event, never, fails="open", timeout=0.001) == {}
    assert len(caplog.records) == 2


@pytest.mark.anyio
@every_case("event", sorted(CLOSED))
async def test_a_guard_that_is_slow_refuses(event: str) -> None:
    wire = await answer_of(event, never, timeout=0.001)
    assert is_refusal(event, wire)
    assert "no answer within 0.001 s" in str(wire)


@pytest.mark.anyio
async def test_a_slow_function_in_a_thread_is_left_to_itself() -> None:
    release, ended = threading.Event(), threading.Event()
    contexts: list[HookContext] = []

    def slow(input: HookInput, ctx: HookContext) -> Answer:
        contexts.append(ctx)
        release.wait(20)
        ended.set()
        return allow()

    hooked = Hooked({"PreToolUse": [Hook(slow, "PreToolUse", timeout=0.5)]})
    assert is_refusal("PreToolUse", await hooked.answer("PreToolUse"))
    assert contexts[0].is_cancelled
    release.set()
    assert await anyio.to_thread.run_sync(ended.wait, 20)


@pytest.mark.anyio
async def test_a_hook_without_limit_is_waited_for() -> None:
    hooked = Hooked({"PreToolUse": [Hook(never, "PreToolUse", timeout=None)]})
    with anyio.move_on_after(0.01) as scope:
        await hooked.answer("PreToolUse")
    assert scope.cancelled_caught
    assert [report.outcome for report in hooked.reports] == ["cancelled"]


@pytest.mark.anyio
async def test_a_withdrawn_call_is_cancelled_and_not_answered() -> None:
    began = anyio.Event()
    ends: list[str] = []

    async def waits(input: HookInput, ctx: HookContext) -> None:
        began.set()
        try:
            await anyio.sleep_forever()
        finally:
            ends.append(f"cancelled: {ctx.is_cancelled}")

    hooked = Hooked({"PreToolUse": [waits]})
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(hooked.answer, "PreToolUse")
        await began.wait()
        tasks.cancel_scope.cancel()
    assert len(ends) == 1
    assert [(report.outcome, report.answer) for report in hooked.reports] == [("cancelled", {})]


@pytest.mark.anyio
@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), SystemExit(), BaseExceptionGroup("", [KeyboardInterrupt()])], ids=repr
)
async def test_what_ends_programs_goes_through(error: BaseException) -> None:
    async def ends(input: HookInput) -> None:
        raise error

    hooked = Hooked({"PreToolUse": [ends]})
    with pytest.raises(type(error)):
        await hooked.answer("PreToolUse")
    assert [report.outcome for report in hooked.reports] == ["failed"]


@pytest.mark.anyio
@pytest.mark.parametrize("fails", ["open", "closed"])
async def test_denied_is_an_answer(fails: Any, caplog: pytest.LogCaptureFixture) -> None:
    def denies(input: HookInput) -> None:
        raise Denied("why")

    async def denies_within(input: HookInput) -> None:
        async with anyio.create_task_group():
            raise Denied("why")

    hooked = Hooked({"PreToolUse": [Hook(denies, "PreToolUse", fails=fails)]})
    assert await hooked.answer("PreToolUse") == DENIED
    assert await answer_of("PreToolUse", denies_within, fails=fails) == DENIED
    assert [(report.outcome, report.error) for report in hooked.reports] == [("answered", None)]
    assert not caplog.records


@pytest.mark.anyio
async def test_denied_may_end_the_turn() -> None:
    def denies(input: HookInput) -> None:
        raise Denied("why", interrupt=True)

    assert await answer_of("PreToolUse", denies) == {"continue": False, "stopReason": "why"} | DENIED
    # An event that can refuse nothing has no use for it.
    assert await answer_of("SubagentStart", denies) == {}


@pytest.mark.anyio
async def test_a_gate_that_fails_does_not_keep_the_model_busy_for_ever() -> None:
    hooked = Hooked({"Stop": [Hook(raises, "Stop", fails="closed")]})
    first = await hooked.answer("Stop", stop_hook_active=False)
    assert (first["decision"], first.get("continue")) == ("block", None)
    second = await hooked.answer("Stop", stop_hook_active=True)
    assert second["continue"] is False


@pytest.mark.anyio
async def test_a_result_that_could_not_be_checked_is_kept_from_the_model() -> None:
    wire = await answer_of("PostToolUse", raises, fails="closed")
    assert (wire["decision"], wire["continue"]) == ("block", False)


# Any value at all.

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from(
    ["continue", "continue_", "decision", "reason", "systemMessage", "stopReason", "async", "suppressOutput"]
)
OWN_KEYS = st.sampled_from(
    ["permissionDecision", "permissionDecisionReason", "updatedInput", "additionalContext", "decision"]
)
WORDS = st.sampled_from(["allow", "deny", "ask", "defer", "block", "approve", "perhaps", "", "stop", "later"])
VALUES = WORDS | st.booleans() | st.none() | JSON
OWN = st.fixed_dictionaries(
    {"hookEventName": st.sampled_from(HOOK_EVENTS) | VALUES},
) | st.dictionaries(OWN_KEYS, VALUES, max_size=3)
DICTS = st.builds(
    lambda top, own: top | own,
    st.dictionaries(KEYS | st.text(), VALUES, max_size=3),
    st.just({}) | st.fixed_dictionaries({"hookSpecificOutput": OWN | VALUES}),
)
ANSWERS = st.builds(
    Answer,
    verdict=WORDS | st.none(),
    reason=VALUES,
    value=VALUES,
    context=VALUES,
    notice=VALUES,
    interrupt=st.booleans(),
)
ANYTHING = JSON | DICTS | ANSWERS | st.binary() | st.sampled_from([object(), Oddity(), deny, HookOutput])


def says_nothing(value: object) -> bool:
    """Whether a hook that returned this has, beyond doubt, nothing to say."""
    if isinstance(value, Answer):
        return value in (Answer(), allow()) or value.verdict in ("allow", None)
    return value is None or (isinstance(value, dict) and all(each is None for each in value.values()))


@given(event=st.sampled_from(sorted(CAN_CLOSE - {"WorktreeCreate"})), value=ANYTHING)
def test_a_hook_that_fails_closed_is_never_misunderstood(event: str, value: object) -> None:
    async def answer() -> JsonObject:
        return await answer_of(event, _returning(value), fails="closed")

    logging.getLogger("outrider.session").disabled = True
    try:
        wire = anyio.run(answer)
    finally:
        logging.getLogger("outrider.session").disabled = False
    assert encode(wire)
    assert wire or says_nothing(value)
    assert None not in wire.values()
    own = wire.get("hookSpecificOutput", {"hookEventName": event})
    assert own["hookEventName"] == event
    assert own.get("permissionDecision", "deny") in ("allow", "deny", "ask", "defer")
    assert wire.get("decision", "block") in ("block", "approve")
    assert isinstance(wire.get("reason", ""), str)


def _returning(value: object) -> Callable[[object], object]:
    async def function(input: object) -> object:
        return value

    return function


# The order.


def noting(seen: list[object], name: str, answer: object = None) -> Callable[[Any], Any]:
    async def function(input: Any) -> object:
        seen.append((name, dict(input.tool_input)))
        await checkpoint()
        return answer

    return function


async def all_answers(hooked: Hooked, event: str, places: list[int], **fields: Any) -> dict[int, JsonObject]:
    """What the hooks at these places say when the agent calls them at the same time."""
    answers: dict[int, JsonObject] = {}

    async def one(place: int) -> None:
        answers[place] = await hooked.answer(event, place, **fields)

    async with anyio.create_task_group() as tasks:
        for place in places:
            tasks.start_soon(one, place)
    return answers


def updated(command: str) -> JsonObject:
    own = {"hookEventName": "PreToolUse", "updatedInput": {"command": command, "timeout": 5}}
    return {"hookSpecificOutput": own}


@pytest.mark.anyio
async def test_hooks_are_called_one_after_the_other_and_see_what_was_changed() -> None:
    seen: list[Any] = []
    hooked = Hooked(
        {
            "PreToolUse": [
                noting(seen, "first", modify(command="one")),
                noting(seen, "second"),
                noting(seen, "third", modify(timeout=9)),
                noting(seen, "fourth", allow()),
            ]
        }
    )
    for _ in range(20):  # trio starts tasks in any order
        seen.clear()
        answers = await all_answers(hooked, "PreToolUse", [0, 1, 2, 3])
        assert seen == [
            ("first", {"command": "ls", "timeout": 5}),
            ("second", {"command": "one", "timeout": 5}),
            ("third", {"command": "one", "timeout": 5}),
            ("fourth", {"command": "one", "timeout": 9}),
        ]
        assert (answers[0], answers[1]) == (updated("one"), {})
        assert answers[2]["hookSpecificOutput"]["updatedInput"] == {"command": "one", "timeout": 9}
        assert answers[3] == ALLOWED


@pytest.mark.anyio
async def test_hooks_that_keep_no_order_do_not_wait_for_each_other_and_see_the_input_as_it_was() -> None:
    seen: list[Any] = []
    both = anyio.Event()

    async def first(told: Any) -> object:
        await both.wait()
        return deny("no")

    async def second(told: Any) -> object:
        seen.append(told.tool_input)
        both.set()
        return modify(command="two")

    hooked = Hooked({"PreToolUse": [Hook(each, "PreToolUse", in_order=False) for each in (first, second)]})
    with anyio.fail_after(10):
        answers = await all_answers(hooked, "PreToolUse", [0, 1])
    assert seen == [{"command": "ls", "timeout": 5}]
    said = [answers[place]["hookSpecificOutput"].get("permissionDecision") for place in (0, 1)]
    assert said == ["deny", None]
    told = hooked.hooks.registrations()["PreToolUse"]
    assert [each.timeout for each in told] == [90, 90]


@pytest.mark.anyio
async def test_a_hook_that_comes_after_the_answer_of_another_sees_its_changes_too() -> None:
    seen: list[Any] = []
    hooked = Hooked({"PreToolUse": [noting(seen, "first", modify(command="one")), noting(seen, "second")]})
    await hooked.answer("PreToolUse", 0)
    await hooked.answer("PreToolUse", 1)
    assert seen[-1] == ("second", {"command": "one", "timeout": 5})
    # The same call, made once more, begins anew.
    await hooked.answer("PreToolUse", 0)
    assert seen[-1] == ("first", {"command": "ls", "timeout": 5})


@pytest.mark.anyio
@every_case(
    "event, last_word",
    [
        ("PreToolUse", deny("why")),
        ("PreToolUse", defer()),
        ("PreToolUse", stop("why")),
        ("PreToolUse", {"decision": "block"}),
        ("PostToolUse", block("why")),
        ("PostToolUse", stop()),
        ("PermissionRequest", deny("why")),
        ("PermissionRequest", allow()),
    ],
)
async def test_the_last_word_ends_it(event: str, last_word: object) -> None:
    seen: list[Any] = []
    hooked = Hooked(
        {event: [noting(seen, "first"), noting(seen, "second", last_word), noting(seen, "third")]}
    )
    answers = await all_answers(hooked, event, [0, 1, 2])
    assert [name for name, _ in seen] == ["first", "second"]
    assert answers[0] == answers[2] == {}
    assert answers[1]
    assert [report.name.rpartition(".")[2] for report in hooked.reports] == ["function", "function"]
    # Also for one that is called late.
    assert await hooked.answer(event, 2, occurrence="toolu_2") == {}
    assert seen[-1][0] == "third"


@pytest.mark.anyio
@every_case("answer", [None, allow(), ask("why"), add_context("x"), modify({}), later()])
async def test_what_refuses_nothing_lets_the_others_speak(answer: object) -> None:
    seen: list[Any] = []
    hooked = Hooked({"PreToolUse": [noting(seen, "first", answer), noting(seen, "second", deny("why"))]})
    answers = await all_answers(hooked, "PreToolUse", [0, 1])
    assert [name for name, _ in seen] == ["first", "second"]
    assert answers[1] == DENIED


@pytest.mark.anyio
async def test_a_guard_that_fails_has_the_last_word() -> None:
    seen: list[Any] = []
    hooked = Hooked({"PreToolUse": [raises, noting(seen, "second")]})
    answers = await all_answers(hooked, "PreToolUse", [0, 1])
    assert is_refusal("PreToolUse", answers[0])
    assert (answers[1], seen) == ({}, [])
    hooked = Hooked({"PreToolUse": [Hook(raises, "PreToolUse", fails="open"), noting(seen, "second")]})
    await all_answers(hooked, "PreToolUse", [0, 1])
    assert [name for name, _ in seen] == ["second"]


@pytest.mark.anyio
async def test_only_those_that_the_agent_means_are_waited_for() -> None:
    seen: list[Any] = []
    hooked = Hooked({"PreToolUse": [noting(seen, str(place)) for place in range(4)]})
    await all_answers(hooked, "PreToolUse", [1, 3])
    assert [name for name, _ in seen] == ["1", "3"]


@pytest.mark.anyio
async def test_other_calls_do_not_wait() -> None:
    held, released = anyio.Event(), anyio.Event()
    seen: list[Any] = []

    async def hold(input: Any) -> None:
        if input.tool_use_id == "held":
            held.set()
            await released.wait()

    hooked = Hooked({"PreToolUse": [hold, noting(seen, "second")]})
    async with anyio.create_task_group() as tasks:
        fields = {"occurrence": "held", "tool_use_id": "held"}
        tasks.start_soon(lambda: all_answers(hooked, "PreToolUse", [0, 1], **fields))
        await held.wait()
        await all_answers(hooked, "PreToolUse", [0, 1], occurrence="free", tool_use_id="free")
        assert len(seen) == 1
        released.set()
    assert len(seen) == 2


@pytest.mark.anyio
async def test_the_pieces_of_a_message_are_each_a_matter_of_their_own() -> None:
    seen: list[str] = []

    async def louder(input: Any) -> Answer:
        seen.append(input.delta)
        return modify(input.delta.upper())

    async def longer(input: Any) -> Answer:
        seen.append(input.delta)
        return modify(input.delta + "!")

    hooked = Hooked({"MessageDisplay": [louder, longer]})
    for piece in ("one", "two"):
        answers = await all_answers(hooked, "MessageDisplay", [0, 1], occurrence="message", delta=piece)
        own = {"hookEventName": "MessageDisplay", "displayContent": f"{piece.upper()}!"}
        assert answers[1] == {"hookSpecificOutput": own}
    assert seen == ["one", "ONE", "two", "TWO"]


@pytest.mark.anyio
async def test_a_result_is_handed_on_as_it_was_changed() -> None:
    async def first(input: Any) -> Answer:
        return modify(stdout="one")

    async def second(input: Any) -> Answer:
        return modify(stdout=input.tool_response["stdout"] + " two")

    answers = await all_answers(Hooked({"PostToolUse": [first, second]}), "PostToolUse", [0, 1])
    own = answers[1]["hookSpecificOutput"]
    assert own["updatedToolOutput"] == {"stdout": "one two", "stderr": ""}


@pytest.mark.anyio
async def test_a_withdrawn_hook_lets_the_next_one_go_on() -> None:
    began = anyio.Event()
    seen: list[Any] = []

    async def waits(input: HookInput) -> None:
        began.set()
        await anyio.sleep_forever()

    hooked = Hooked({"PreToolUse": [waits, noting(seen, "second")]})
    async with anyio.create_task_group() as tasks:
        scope = anyio.CancelScope()

        async def first() -> None:
            with scope:
                await hooked.answer("PreToolUse", 0)

        tasks.start_soon(first)
        await began.wait()
        tasks.start_soon(hooked.answer, "PreToolUse", 1)
        await anyio.wait_all_tasks_blocked()
        assert seen == []
        scope.cancel()
    assert [name for name, _ in seen] == ["second"]


@pytest.mark.anyio
async def test_what_nobody_asks_for_is_forgotten() -> None:
    hooked = Hooked({"PreToolUse": [lambda _: modify(a=1), print]})
    (lines,) = {each.lines for each in hooked.hooks._registered.values()}
    assert lines is not None
    for number in range(_KEPT * 2):
        await hooked.answer("PreToolUse", 0, occurrence=f"toolu_{number}")
    assert len(lines._lines) == _KEPT
    await hooked.answer("PreToolUse", 1, occurrence=f"toolu_{_KEPT * 2 - 1}")
    assert len(lines._lines) == _KEPT - 1


# What the agent is told of them.


def test_each_hook_is_registered_with_more_time_than_it_has() -> None:
    hooks = {
        "PreToolUse": [guard, Hook(print, "PreToolUse", fails="open"), print],
        "Stop": [Hook(print, "Stop", timeout=None), print],
    }
    told = Hooks(hooks, lambda _: None, lambda: ANY_TOOL).registrations()
    wire = {event: [encode(each) for each in registrations] for event, registrations in told.items()}
    assert wire == {
        "PreToolUse": [
            b'{"hookCallbackIds":["hook_0"],"matcher":"Bash","timeout":35.0,"onFailure":"block"}',
            b'{"hookCallbackIds":["hook_1"],"timeout":95.0}',
            b'{"hookCallbackIds":["hook_2"],"timeout":155.0,"onFailure":"block"}',
        ],
        # Without a number the agent would wait for 600 s.
        "Stop": [
            b'{"hookCallbackIds":["hook_3"],"timeout":2000000.0}',
            b'{"hookCallbackIds":["hook_4"],"timeout":2000000.0}',
        ],
    }


@pytest.mark.parametrize("given", [None, 5, "guard", str, object()])
def test_what_is_no_hook_is_refused(given: object) -> None:
    with pytest.raises(OptionsError, match=r"hooks\['Stop'\] has something that is not a hook"):
        Hooks({"Stop": [given]}, lambda _: None, lambda: ANY_TOOL)


def test_a_hook_for_another_event_is_refused() -> None:
    with pytest.raises(OptionsError, match=r"guard is for PreToolUse, and was given for Stop"):
        Hooks({"Stop": [guard]}, lambda _: None, lambda: ANY_TOOL)


UNSEEN = {
    "Notification": "never been seen",
    "SessionStart": "only for the sources 'clear' and 'compact'",
    "SessionEnd": "only when the conversation is cleared",
    "PermissionDenied": "never been seen.*'auto'",
    "Setup": "never been seen",
    "TeammateIdle": "never been seen.*teams",
    "CwdChanged": "never been seen",
}


@every_case("event", HOOK_EVENTS)
def test_a_hook_that_waits_in_vain_is_warned_of(event: str) -> None:
    expected = (
        pytest.warns(HookNeverCalledWarning, match=f"print waits for {event}.*{UNSEEN[event]}")
        if event in UNSEEN
        else contextlib.nullcontext()
    )
    with expected:
        Hooks({event: [print]}, lambda _: None, lambda: ANY_TOOL)


def test_a_hook_for_what_does_come_is_not_warned_of() -> None:
    Hooks(
        {"SessionStart": [Hook(print, "SessionStart", matcher="clear|compact")]},
        lambda _: None,
        lambda: ANY_TOOL,
    )


# What is reported.


@pytest.mark.anyio
async def test_each_call_is_reported_once() -> None:
    hooked = Hooked(
        {
            "PreToolUse": [lambda _: deny("why")],
            "PostToolUse": [raises],
            "Stop": [Hook(never, "Stop", timeout=0.001)],
        }
    )
    for event in ("PreToolUse", "PostToolUse", "Stop"):
        await hooked.answer(event)
    first, second, third = hooked.reports
    assert (first.event, first.outcome, first.error, first.answer) == ("PreToolUse", "answered", None, DENIED)
    assert (first.tool_use_id, third.tool_use_id) == ("toolu_1", None)
    assert (second.name, second.outcome, second.answer) == ("raises", "failed", {})
    assert isinstance(second.error, ValueError)
    assert (third.name, third.outcome) == ("never", "timed_out")
    assert isinstance(third.error, CallTimedOut)
    assert all(report.seconds >= 0 for report in hooked.reports)


class Kind(enum.Enum):
    A = "a"


@pytest.mark.anyio
async def test_what_json_can_say_is_sent_in_json() -> None:
    wire = await answer_of("PreToolUse", lambda _: modify({"kind": Kind.A, "path": ("a", "b")}))
    assert encode(wire) == (
        b'{"hookSpecificOutput":{"hookEventName":"PreToolUse","updatedInput":{"kind":"a","path":["a","b"]}}}'
    )


def test_many_hooks_run_beside_each_other_in_threads() -> None:
    barrier = threading.Barrier(30)

    def meets(input: HookInput) -> None:
        barrier.wait(20)

    async def main() -> None:
        hooked = Hooked({"Stop": [meets]})
        async with asyncio.TaskGroup() as tasks:
            for number in range(30):
                tasks.create_task(hooked.answer("Stop", occurrence=str(number)))

    asyncio.run(main())
