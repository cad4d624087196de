"""What type checkers know of hooks. The file is the test: mypy and pyright read it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, assert_type

import pytest

from outrider.errors import OptionsError
from outrider.handlers import Answer, Hook, HookContext, allow, deny, hook
from outrider.handlers._hooks.hook import HookFor
from outrider.wire import JsonObject, Value
from outrider.wire.hooks import (
    HOOK_EVENTS,
    HOOK_INPUTS,
    HookInput,
    HookOutput,
    PreToolUseInput,
    StopInput,
    UserPromptSubmitInput,
    WorktreeCreateInput,
)
from outrider.wire.tools import BashInput


@hook("PreToolUse", matcher="Bash", timeout=5, fails="closed")
async def guard(input: PreToolUseInput) -> Answer | None:
    assert_type(input.tool, Value | None)
    match input.tool:
        case BashInput(command=command):
            assert_type(command, str)
            return deny(command)
        case _:
            return None


@hook("Stop")
def with_context(input: StopInput, ctx: HookContext) -> None:
    assert_type(ctx.tool_use_id, str | None)


@hook("Stop")
def of_any_event(input: HookInput) -> HookOutput:
    return HookOutput()


@hook("UserPromptSubmit")
def as_on_the_wire(input: UserPromptSubmitInput) -> JsonObject:
    return {"decision": "block"}


@hook("WorktreeCreate")
def makes(input: WorktreeCreateInput) -> Path:
    return Path(input.name)


@hook("EventOfTomorrow", allow_unknown=True)
def of_tomorrow(input: HookInput) -> None: ...


class Checks:
    @hook("PreToolUse")
    async def guard(self, input: PreToolUseInput) -> Answer:
        return allow()

    @hook("Stop")
    def at_end(self, input: StopInput, ctx: HookContext) -> None: ...


# Refused.


@hook("PreToolUse")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
def of_another_event(input: StopInput) -> None: ...


@hook("PreToolUse")  # type: ignore[type-var]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
def says_false(input: PreToolUseInput) -> bool:
    return False


def test_a_misspelled_event_is_a_mistake_to_type_checkers() -> None:
    with pytest.raises(OptionsError):
        hook("PreToolUsee")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]


def test_a_hook_is_a_function_with_types() -> None:
    told = StopInput(stop_hook_active=False)
    assert_type(guard, Hook[[PreToolUseInput], Any])  # type: ignore[assert-type]  # pyright: ignore[reportAssertTypeFailure]
    assert_type(of_any_event(told), HookOutput)
    assert_type(hook("Stop"), HookFor[StopInput])
    assert_type(Checks().at_end.event, str)
    call: Callable[[StopInput, HookContext], None] = with_context
    assert callable(call)


def test_there_is_a_type_for_every_event() -> None:
    from typing import get_overloads

    names = [str(each.__annotations__["event"]) for each in get_overloads(hook)]
    assert names == [*(f"Literal[{event!r}]" for event in HOOK_EVENTS), "str"]
    returned = [str(each.__annotations__["return"]) for each in get_overloads(hook)]
    wanted = [f"HookFor[wire.{HOOK_INPUTS[event].__name__}]" for event in HOOK_EVENTS]
    assert returned == [*wanted, "HookFor[Any]"]
