"""Owns the words of a script for what an agent does with tools of its own: questions, plans, subagents.

Does not do it: each is a call of a tool, as a model makes it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias, cast

import msgspec

from outrider._display import plain
from outrider.errors import OptionsError
from outrider.options._tool_names import names_in, tool_name, tools_named
from outrider.testing._api.requests import Request, text_of
from outrider.testing._script.steps import Answer, Drop, Failure, Hang, ToolUse, use_tool

if TYPE_CHECKING:
    from outrider.testing._script.script import Item
    from outrider.wire import JsonObject

__all__ = [
    "Check",
    "Expectation",
    "ExpectationFailed",
    "Match",
    "STEPS",
    "When",
    "ask_question",
    "background_task",
    "checked_items",
    "exit_plan_mode",
    "expect",
    "found",
    "structured",
    "subagent",
    "when",
]


STEPS: Final = (Answer, Failure, Hang, Drop)

Match: TypeAlias = str | re.Pattern[str]
"""A text that has to be in another, or a pattern that has to be found in it."""

Check: TypeAlias = Callable[[Request], object]
"""Looks at a request, and returns False or raises if it is not as it should be."""

_SHOWN = 2000


class ExpectationFailed(AssertionError):
    """A request was not as `expect` says: what was expected, and what came."""

    def __str__(self) -> str:
        return plain(super().__str__())


class Expectation(msgspec.Struct, frozen=True, kw_only=True):
    """What is expected of the request that the next step answers."""

    prompt: Match | None = None
    tool_result: Match | None = None
    is_error: bool | None = None
    model: Match | None = None
    tools: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()

    def check(self, request: Request) -> None:
        """Raises `ExpectationFailed`, or what one of the functions raises."""
        if self.prompt is not None and not found(self.prompt, request.prompt):
            raise _failed("prompt", self.prompt, request.prompt)
        self._check_results(request.tool_results)
        if self.model is not None and not found(self.model, request.model):
            raise _failed("model", self.model, request.model)
        for name in self.tools:
            if not tools_named(name, names_in(request.tools).own):
                raise _failed("tools", name, ", ".join(request.tools) or "(none)")
        for check in self.checks:
            if check(request) is False:
                raise ExpectationFailed(
                    f"`{_name(check)}` says no to the request.\n  prompt: {request.prompt}"
                )

    def _check_results(self, results: list[JsonObject]) -> None:
        came = [(text_of(result.get("content")), result.get("is_error") is True) for result in results]
        shown = "\n".join(f"(error) {text}" if is_error else text for text, is_error in came)
        if self.tool_result is not None:
            came = [each for each in came if found(self.tool_result, each[0])]
            if not came:
                raise _failed("tool_result", self.tool_result, shown or "(no results)")
        if self.is_error is not None and self.is_error not in [is_error for _, is_error in came]:
            raise _failed("is_error", str(self.is_error), shown or "(no results)")


class When(msgspec.Struct, frozen=True):
    """Steps for the turns whose prompt is such."""

    prompt: Match | Check
    then: tuple[Item, ...]
    times: int | None = None
    """For so many turns; unset: for all."""

    def matches(self, request: Request) -> bool:
        if callable(self.prompt):
            return bool(self.prompt(request))
        return found(self.prompt, request.prompt)


def expect(
    *checks: Check,
    prompt: Match | None = None,
    tool_result: Match | None = None,
    is_error: bool | None = None,
    model: Match | None = None,
    tools: Iterable[str | Callable[..., object]] = (),
) -> Expectation:
    """Say what the request must be like that the next step answers. It takes no request itself.

    `prompt`, `tool_result` and `model` are texts that must be in it, or compiled patterns that must be found;
    `prompt` is that of the turn, without what the agent adds. Of several results of tools, one has to fit.
    `is_error` says whether it is an error. `tools` must be offered; short names, or tools of yours, will do.
    A function gets the `Request`, and fails by an exception, or by returning False.

    What does not fit fails the turn, and is raised as `ExpectationFailed` at the end of the `with` block.

    Raises `OptionsError` if nothing is expected, or something that cannot be.
    """
    for name, match in (("prompt", prompt), ("tool_result", tool_result), ("model", model)):
        _check_match(name, match)
    for check in checks:
        if not callable(check):
            raise OptionsError(f"`expect` was given {check!r:.80}", hint=f"Write `prompt={check!r:.60}`.")
    given = (tools,) if isinstance(tools, str) else tuple(tools)
    names = tuple(cast("str", tool_name("`tools`", tool)) for tool in given)
    expectation = Expectation(
        prompt=prompt, tool_result=tool_result, is_error=is_error, model=model, tools=names, checks=checks
    )
    if expectation == Expectation():
        raise OptionsError(
            "`expect()` expects nothing", hint="Give it a `prompt`, a `tool_result` or a function."
        )
    return expectation


def when(prompt: Match | Check, then: Item | Iterable[Item], *, times: int | None = None) -> When:
    """Answer each turn with these steps whose prompt has this text in it, fits this pattern, or is such that
    this function of the first `Request` says so.

    It may stand anywhere in a script, and takes nothing from the steps around it. The first that fits counts.
    After its steps, a turn that is not over gets what follows a script that is used up.

    Raises `OptionsError` if there are no steps, or something else among them.
    """
    if not callable(prompt):
        _check_match("prompt", prompt)
    is_one = isinstance(then, (*STEPS, Expectation, When)) or callable(then)
    items = checked_items((then,) if is_one else then)
    if not items:
        raise OptionsError("`when` has no steps", hint='Give it what to answer: `then=[say("…")]`.')
    if any(isinstance(item, When) for item in items):
        raise OptionsError("There is a `when` within a `when`", hint="Put them beside each other.")
    if times is not None and times < 1:
        raise OptionsError(f"`times` is {times}", hint="Give a number from 1 on, or leave it out.")
    return When(prompt, tuple(items), times)


def _check_match(name: str, match: object) -> None:
    if match is not None and not isinstance(match, str | re.Pattern):
        hint = "Give a text that has to be in it, or a compiled pattern."
        raise OptionsError(f"`{name}` is {match!r:.80}", hint=hint)


def checked_items(items: object) -> list[Item]:
    """The items of a script, each of which is one.

    Raises `OptionsError` otherwise.
    """
    if isinstance(items, str | Mapping) or not isinstance(items, Iterable):
        hint = 'Give a list: `[say("…")]`.'
        raise OptionsError(f"A script is a list of steps, and this is {items!r:.80}", hint=hint)
    checked: list[Item] = []
    for at, item in enumerate(cast("Iterable[object]", items), 1):
        if not isinstance(item, (*STEPS, Expectation, When)) and not callable(item):
            hint = (
                f"Write `say({item!r:.60})`."
                if isinstance(item, str)
                else "`say()` and the others make them."
            )
            raise OptionsError(f"Item {at} of a script is no step: {item!r:.80}", hint=hint)
        checked.append(cast("Item", item))
    return checked


def found(match: Match, text: str) -> bool:
    """Whether a text has it."""
    return match in text if isinstance(match, str) else match.search(text) is not None


def _failed(what: str, expected: Match, actual: str) -> ExpectationFailed:
    wanted = expected if isinstance(expected, str) else f"/{expected.pattern}/"
    shown = actual if len(actual) <= _SHOWN else f"{actual[:_SHOWN]}… ({len(actual)} characters)"
    return ExpectationFailed(
        f"The `{what}` of a request is not as expected.\n  expected: {wanted}\n  actual:   {shown}"
    )


def _name(check: Check) -> str:
    return str(getattr(check, "__qualname__", type(check).__name__))


def ask_question(
    text: str,
    options: Iterable[str] | Mapping[str, str],
    *,
    header: str = "Question",
    multiple: bool = False,
) -> Answer:
    """The model asks the user, who may choose one of these options, or several if `multiple` are allowed.

    A mapping gives each option a description. The agent wants two to four.
    """
    told = (
        cast("Mapping[str, str]", options)
        if isinstance(options, Mapping)
        else {each: each for each in options}
    )
    question = {
        "question": text,
        "header": header,
        "multiSelect": multiple,
        "options": [{"label": label, "description": text} for label, text in told.items()],
    }
    return use_tool("AskUserQuestion", questions=[question])


def exit_plan_mode(plan: str) -> Answer:
    """The model has a plan and asks whether it may go on with it.

    The plan is written first to the file that the agent reads it from, if the request tells of one.
    """
    return Answer(blocks=(ToolUse("ExitPlanMode", {"plan": plan}, writes_plan=True),))


def subagent(
    prompt: str,
    *steps: Item,
    type: str | None = None,
    background: bool = False,
    description: str | None = None,
    model: str | None = None,
) -> Answer:
    """The model starts a subagent, which answers with these steps; its first request is told by the prompt.

    With `background`, the agent does not wait for it, and starts a turn of its own when it is done.
    Several in one message, which run side by side, are an `answer()` of several: give them different prompts.

    Raises `OptionsError` for an empty prompt, and for a step that is none.
    """
    if not prompt.strip():
        raise OptionsError(
            "The prompt of a subagent is empty", hint="Say what it has to do: it is told by that."
        )
    given: dict[str, object] = {
        "description": description or " ".join(prompt.split()[:5]),
        "prompt": prompt,
        "run_in_background": background,
    }
    if type is not None:
        given["subagent_type"] = type
    if model is not None:
        given["model"] = model
    return Answer(blocks=(ToolUse("Agent", given, steps=tuple(checked_items(steps)) or None),))


def background_task(command: str, *, description: str | None = None, timeout: float | None = None) -> Answer:
    """The model runs a command that goes on while the conversation does; `timeout` is in seconds."""
    given: dict[str, object] = {"description": description or command[:60], "run_in_background": True}
    if timeout is not None:
        given["timeout"] = timeout * 1000
    return use_tool("Bash", given, command=command)


def structured(value: object) -> Answer:
    """The model answers in the form that was asked for. It ends the turn.

    Takes anything that msgspec or pydantic can make JSON of. What is no object becomes the property `value`
    of one, as `output=` does it.

    Raises `OptionsError` for what cannot be JSON.
    """
    dump = getattr(value, "model_dump", None)
    try:
        plain: object = dump(mode="json") if callable(dump) else msgspec.to_builtins(value, str_keys=True)
    except (TypeError, ValueError) as error:
        raise OptionsError(f"`structured` was given what cannot be JSON: {error}") from error
    given = cast("Mapping[str, object]", plain if isinstance(plain, dict) else {"value": plain})
    return use_tool("StructuredOutput", given)
