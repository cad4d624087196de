"""Functions that become hooks: what they take, what is refused before anything starts."""

from __future__ import annotations

import copy
import functools
import pickle
import re
from typing import Any

import pytest

from outrider.errors import OptionsError
from outrider.handlers import Hook, HookContext, hook
from outrider.handlers._hooks.events import EVENTS
from outrider.handlers._hooks.hook import takes_context
from outrider.options import Options
from outrider.wire.hooks import HOOK_EVENTS, PreToolUseInput, StopInput
from outrider.wire.tools import BashInput
from tests.cases import every_case
from tests.handlers.hooking import told

CLOSED = {
    "PreToolUse",
    "PermissionRequest",
    "UserPromptSubmit",
    "UserPromptExpansion",
    "PreModelSwitch",
    "WorktreeCreate",
}
CAN_CLOSE = CLOSED | {
    "PostToolUse",
    "PostToolBatch",
    "Stop",
    "SubagentStop",
    "PreCompact",
    "TeammateIdle",
    "TaskCreated",
    "TaskCompleted",
    "Elicitation",
    "ElicitationResult",
    "ConfigChange",
}


@hook("PreToolUse", matcher="Bash", timeout=5)
def guard(input: PreToolUseInput) -> None:
    """Looks at commands."""


class Checks:
    def __init__(self) -> None:
        self.seen: list[object] = []

    @hook("Stop")
    def at_end(self, input: StopInput) -> None:
        self.seen.append(input)

    @hook("Stop")
    async def at_end_too(self, input: StopInput, ctx: HookContext) -> None:
        self.seen.append(ctx)


def loose(value: Any) -> Any:
    """As those give it who check no types."""
    return value


# Made.


def test_a_hook_is_still_the_function() -> None:
    seen: list[object] = []
    noting = hook("Stop")(seen.append)
    noting(loose(told("Stop")))
    assert seen == [told("Stop")]
    assert (guard.name, guard.__doc__) == ("guard", "Looks at commands.")
    assert repr(guard) == "<Hook guard for PreToolUse 'Bash', fails closed>"
    assert (guard.event, guard.matcher, guard.timeout, guard.fails) == ("PreToolUse", "Bash", 5, "closed")


def test_a_hook_goes_where_its_function_could() -> None:
    assert pickle.loads(pickle.dumps(guard)) is guard
    assert copy.deepcopy(guard) is guard
    assert Options(hooks=[guard]).hooks == {"PreToolUse": (guard,)}
    assert Options().with_hook("PreToolUse", guard).hooks == {"PreToolUse": (guard,)}


def test_a_hook_in_a_class_belongs_to_its_object() -> None:
    one, other = Checks(), Checks()
    one.at_end(told("Stop"))
    one.at_end.function(told("Stop"))
    assert len(one.seen) == 2
    assert other.seen == []
    assert Checks.at_end.event == one.at_end.event == "Stop"


@every_case("event", HOOK_EVENTS)
def test_what_guards_fails_closed_unless_told_otherwise(event: str) -> None:
    assert Hook(print, event).fails == ("closed" if event in CLOSED else "open")
    assert Hook(print, event, fails="open").fails == "open"
    if event in CAN_CLOSE:
        assert Hook(print, event, fails="closed").fails == "closed"
    else:
        with pytest.raises(OptionsError, match=f"A {event} hook cannot fail closed"):
            Hook(print, event, fails="closed")


# What is called, and how.


def one(input: object) -> object:
    return ("one", input)


def two(input: object, ctx: object) -> object:
    return ("two", input, ctx)


def optional(input: object, dry: bool = False) -> object:
    return ("optional", input, dry)


def named(input: object, ctx: object = None) -> object:
    return ("named", input, ctx)


def any_number(*args: object) -> object:
    return ("any", *args)


class Callable2:
    def __call__(self, input: object, context: object) -> object:
        return ("object", input, context)


@every_case(
    "function, result",
    [
        (one, ("one", "in")),
        (two, ("two", "in", "ctx")),
        (optional, ("optional", "in", False)),
        (named, ("named", "in", "ctx")),
        (any_number, ("any", "in")),
        (Callable2(), ("object", "in", "ctx")),
        (functools.partial(two, ctx="own"), ("two", "in", "own")),
        (functools.partial(two, "first"), ("two", "first", "in")),
        (str, "in"),
    ],
)
def test_a_function_gets_the_context_if_it_wants_it(function: Any, result: object) -> None:
    arguments = ("in", "ctx") if takes_context(Hook(function, "Stop")) else ("in",)
    assert function(*arguments) == result


def three(a: object, b: object, c: object) -> None: ...


def none() -> None: ...


def keyword(input: object, *, must: object) -> None: ...


@pytest.mark.parametrize("function", [three, none, keyword])
def test_a_function_that_cannot_be_called_is_refused(function: Any) -> None:
    with pytest.raises(OptionsError, match=r"cannot be called with what it would get.*HookContext"):
        takes_context(Hook(function, "Stop"))


@every_case(
    "call, says",
    [
        (lambda: hook(loose("pre_tool_use")), "No event is called 'pre_tool_use'.*'PreToolUse'"),
        (lambda: hook(loose(guard)), r"needs the name of an event.*@outrider\.hook\(\"PreToolUse\"\)"),
        (lambda: hook(loose("")), "needs the name of an event"),
        (lambda: hook("Stop", timeout=0), "seconds over 0, not 0"),
        (lambda: hook("Stop", timeout=float("nan")), "seconds over 0"),
        (lambda: hook("Stop", timeout=float("inf")), "None stands for no limit"),
        (lambda: hook("Stop", timeout=True), "seconds over 0"),
        (lambda: hook("Stop", timeout=loose("5")), "seconds over 0"),
        (lambda: hook("Stop", fails=loose("never")), '"open" or "closed", not \'never\''),
        (lambda: hook("SessionEnd", fails="closed"), "cannot fail closed"),
        (lambda: hook("Stop", matcher="x"), "nothing that a matcher could look at"),
        (lambda: Hook(loose(5), "Stop"), "must be a function, not int"),
        (lambda: hook("Stop")(loose(hook("PreToolUse")(guard))), "is for PreToolUse already"),
    ],
    ids=range(13),
)
def test_what_cannot_work_is_refused_where_it_is_written(call: Any, says: str) -> None:
    with pytest.raises(OptionsError, match=says):
        call()


def test_an_event_of_tomorrow_is_no_mistake_if_that_is_said() -> None:
    made = Hook(print, "EventOfTomorrow", matcher="x", fails="closed", allow_unknown=True)
    assert (made.event, made.matcher, made.fails) == ("EventOfTomorrow", "x", "closed")
    assert made.on(repr).allow_unknown
    assert Hook(print, "EventOfTomorrow", allow_unknown=True).fails == "open"


# Matchers: what the agent was seen to do with each.


@every_case(
    "given, sent",
    [
        (None, None),
        ("", None),
        ("*", None),
        (" * ", None),
        ("Bash", "Bash"),
        ("Write|Edit", "Write|Edit"),
        ("Write, Edit", "Write, Edit"),
        ("Task", "Task"),
        ("mcp__github__.*", "mcp__github__.*"),
        ("mcp__my-server__tool", "mcp__my-server__tool"),
        ("(?<kind>Ba).h", "(?<kind>Ba).h"),
        (["Write", "Edit"], "Write|Edit"),
        (("Bash",), "Bash"),
        (["mcp__a-b__c", "Read"], "mcp__a-b__c|Read"),
        (re.compile("Ba.*"), "Ba.*"),
        (re.compile("Ba"), "(?:Ba)"),
    ],
)
def test_a_matcher_is_sent_as_the_agent_takes_it(given: Any, sent: str | None) -> None:
    assert Hook(print, "PreToolUse", matcher=given).matcher == sent


def test_names_of_files_are_sent_as_they_are() -> None:
    assert Hook(print, "FileChanged", matcher=[".env", "a.b"]).matcher == r"^(?:\.env|a\.b)$"


@every_case(
    "given, says",
    [
        ("(", r"not a valid pattern: '\('"),
        (["mcp__a.b__c", "Read"], "no tool has such a name"),
        (["mcp__github__*"], "no tool has such a name"),
        ("[", "not a valid pattern"),
        ("(?i)bash", r"only Python understands.*JavaScript"),
        (r"\ABash", "only Python"),
        ("(?P<a>Bash)x", "only Python"),
        ("Bash(echo *)", "is a permission rule.*look at the input"),
        (re.compile("bash", re.IGNORECASE), r"no pattern with flags.*\[Bb\]ash"),
        (re.compile(b"bash"), "or of bytes"),
        (5, "must be a text, a pattern or a list of names, not int"),
        ([], "not list"),
        (["Bash", 5], "not list"),
        ([""], "not list"),
        (b"Bash", "not bytes"),
    ],
)
def test_a_matcher_that_would_match_nothing_is_refused(given: Any, says: str) -> None:
    with pytest.raises(OptionsError, match=says):
        Hook(print, "PreToolUse", matcher=given)


def test_names_of_causes_are_not_taken_for_tools() -> None:
    assert Hook(print, "SubagentStart", matcher="explore").matcher == "explore"
    assert Hook(print, "PreCompact", matcher="manual").matcher == "manual"


NO_MATCHER = {
    "PostToolBatch",
    "UserPromptSubmit",
    "Stop",
    "TeammateIdle",
    "TaskCreated",
    "TaskCompleted",
    "WorktreeCreate",
    "WorktreeRemove",
    "CwdChanged",
    "MessageDisplay",
}


def test_the_events_without_a_matcher_are_those_of_the_agent() -> None:
    assert {event for event in EVENTS if not EVENTS[event].matcher} == NO_MATCHER


# Inputs.


def test_the_input_of_a_tool_is_typed() -> None:
    input = told("PreToolUse", tool_input={"command": "ls"})
    assert isinstance(input, PreToolUseInput)
    assert input.tool == BashInput(command="ls")
    match input.tool:
        case BashInput(command=command):
            assert command == "ls"
        case _:
            pytest.fail("not matched")


@pytest.mark.parametrize(
    "fields", [{"tool_name": "mcp__a__b"}, {"tool_input": {"command": 5}}, {"tool_input": {}}]
)
def test_an_input_of_another_form_stays_plain(fields: dict[str, object]) -> None:
    input = told("PreToolUse", **fields)
    assert isinstance(input, PreToolUseInput)
    assert input.tool is None
