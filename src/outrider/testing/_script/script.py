"""`Script`, what a model says in a test: words, expectations, and which step is for which request."""

from __future__ import annotations

import inspect
import os
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias, cast

import msgspec

from outrider._display import plain
from outrider.errors import OptionsError, OutriderError
from outrider.options._tool_names import ambiguous, tool_name, tools_named
from outrider.testing._api.requests import Request, blocks_of, text_of
from outrider.testing._script.samples import sample
from outrider.testing._script.steps import (
    Answer,
    Block,
    Drop,
    Failure,
    Hang,
    Step,
    ToolUse,
    fail,
    say,
    use_tool,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from outrider.wire import JsonObject


STEPS: Final = (Answer, Failure, Hang, Drop)

Match: TypeAlias = str | re.Pattern[str]
"""A text that has to be in another, or a pattern that has to be found in it."""

Check: TypeAlias = Callable[[Request], object]
"""Looks at a request, and returns False or raises if it is not as it should be."""

_LONGEST = 2000


class ExpectationFailed(AssertionError):
    """A request was not as `expect` says: what was expected, and what came."""

    __module__ = "outrider.testing"

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
            if not tools_named(name, request.tools):
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
    """Steps for turns with a certain prompt."""

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
    """Say what the request that the next step answers must look like. Takes no request itself.

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
    """The items of a script, each of which is one. Raises `OptionsError` otherwise."""
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
            raise OptionsError(f"Item {at} of a script is not a step: {item!r:.80}", hint=hint)
        checked.append(cast("Item", item))
    return checked


def found(match: Match, text: str) -> bool:
    return match in text if isinstance(match, str) else match.search(text) is not None


def _failed(what: str, expected: Match, actual: str) -> ExpectationFailed:
    wanted = expected if isinstance(expected, str) else f"/{expected.pattern}/"
    shown = actual if len(actual) <= _LONGEST else f"{actual[:_LONGEST]}… ({len(actual)} characters)"
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
    described = (
        cast("Mapping[str, str]", options)
        if isinstance(options, Mapping)
        else {each: each for each in options}
    )
    question = {
        "question": text,
        "header": header,
        "multiSelect": multiple,
        "options": [{"label": label, "description": text} for label, text in described.items()],
    }
    return use_tool("AskUserQuestion", questions=[question])


def exit_plan_mode(plan: str) -> Answer:
    """The model has a plan and asks whether it may carry it out.

    The plan is written first to the file that the agent reads it from, if the request reports one.
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
    """The model starts a subagent, which answers with these steps; it is recognized by its prompt.

    With `background`, the agent does not wait for it, and starts a turn of its own when it is done.
    Several in one message, which run side by side, are an `answer()` of several: give them different prompts.

    Raises `OptionsError` for an empty prompt, and for an invalid step.
    """
    if not prompt.strip():
        raise OptionsError(
            "The prompt of a subagent is empty",
            hint="Say what it has to do: the subagent is recognized by it.",
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
    """The model runs a command that continues while the conversation does; `timeout` is in seconds."""
    given: dict[str, object] = {"description": description or command[:60], "run_in_background": True}
    if timeout is not None:
        given["timeout"] = timeout * 1000
    return use_tool("Bash", given, command=command)


def structured(value: object) -> Answer:
    """The model answers in the form that was asked for. It ends the turn.

    Takes anything that msgspec or pydantic can encode as JSON. A value that is not an object becomes the
    property `value` of one, as with `output=`.

    Raises `OptionsError` for what cannot be JSON.
    """
    dump = getattr(value, "model_dump", None)
    try:
        plain: object = dump(mode="json") if callable(dump) else msgspec.to_builtins(value, str_keys=True)
    except (TypeError, ValueError) as error:
        raise OptionsError(f"`structured` was given what cannot be JSON: {error}") from error
    given = cast("Mapping[str, object]", plain if isinstance(plain, dict) else {"value": plain})
    return use_tool("StructuredOutput", given)


# The agent tells the model where it will look for the plan.
_PLAN_FILE: Final = re.compile(r"\S*[/\\]plans[/\\]\S+\.md")


def resolved(step: Step, request: Request) -> Step:
    """The step as this request needs it. Raises `OptionsError` for a short name that several tools have."""
    match step:
        case Answer(blocks=blocks):
            fitted = tuple(block for each in blocks for block in _fitted(each, request))
            return step if fitted == blocks else msgspec.structs.replace(step, blocks=fitted)
        case Hang(then=Answer() as then):
            return Hang(_answer(resolved(then, request)))
        case _:
            return step


def started(step: Step) -> Iterator[tuple[str, tuple[Item, ...]]]:
    """The subagents that a step starts, by prompt, and what they answer."""
    answer = step.then if isinstance(step, Hang) else step
    for block in answer.blocks if isinstance(answer, Answer) else ():
        if isinstance(block, ToolUse) and block.steps is not None:
            yield str(block.input.get("prompt", "")), block.steps


def _answer(step: Step) -> Answer | None:
    return step if isinstance(step, Answer) else None


def _fitted(block: Block, request: Request) -> Iterator[Block]:
    if not isinstance(block, ToolUse):
        yield block
        return
    if block.writes_plan and (path := _plan_file(request)) is not None:
        yield ToolUse("Write", {"file_path": path, "content": block.input.get("plan", "")})
    names = tools_named(block.name, request.tools)
    if len(names) > 1:
        raise ambiguous("a step", block.name, names)
    yield block if names in ([], [block.name]) else msgspec.structs.replace(block, name=names[0])


def _plan_file(request: Request) -> str | None:
    for message in reversed(request.messages):
        if message.get("role") != "assistant" and (
            paths := _PLAN_FILE.findall(text_of(message.get("content")))
        ):
            return str(paths[-1])
    return None


Scripted: TypeAlias = Step | Callable[[Request], Step]
"""A step, or a function that looks at the request and chooses one. It may run in any thread."""

Item: TypeAlias = Scripted | Expectation | When
"""What a script is made of."""

NOT_OURS: Final = (KeyboardInterrupt, GeneratorExit)
"""What is not held against a function in a script. What `pytest.fail` raises is, though no `Exception`."""

_END: Final = say("(end of script)")
_SUBAGENT_END: Final = say("subagent done")


class Script:
    """What the model says: a step for each request, in their order.

        Script([expect(prompt="Who"), use_tool("lookup", ticket=7), say("Ada.")])

    Left out, it is automatic: it calls each user's tool that is offered, once in a session, with an
    input made from its schema, and then says what came back. When the steps are used up, each request gets
    `otherwise`. `subagents` is for those subagents that are not given steps where they are started.

    One script may be used by several agents, one after the other or at the same time.

    Raises `OptionsError` for an invalid item.
    """

    def __init__(
        self,
        items: Iterable[Item] | None = None,
        *,
        subagents: Iterable[Item] = (),
        otherwise: Scripted | None = None,
    ) -> None:
        if items is None:
            if otherwise is not None:
                hint = "Give it steps, or an empty list, or leave `otherwise` out."
                raise OptionsError("An automatic script has no end that `otherwise` could follow", hint=hint)
            otherwise = Automatic()
        end = cast("object", otherwise)
        if end is not None and not isinstance(end, STEPS) and not callable(end):
            hint = (
                f"Write `say({end!r:.60})`." if isinstance(end, str) else 'Give a step, such as `say("…")`.'
            )
            raise OptionsError(f"`otherwise` is {end!r:.80}, which is not a step", hint=hint)
        self.errors: list[BaseException] = []
        """What its functions and expectations have raised so far."""
        self._lock = threading.RLock()
        self._main = _Part(items or (), otherwise or _END)
        self._subagents = _Part(subagents, _SUBAGENT_END)
        self._started: list[tuple[str, _Part]] = []
        self._conversations: dict[tuple[str | None, str | None], _Conversation] = {}

    @classmethod
    def of(
        cls,
        source: ScriptSource,
        *,
        subagents: Iterable[Item] = (),
        otherwise: Scripted | None = None,
    ) -> Script:
        """The script that is meant: itself, one of these items, that of a file, or the automatic one.

        Raises `OptionsError` for anything else, or a file without a script.
        """
        if isinstance(source, str | os.PathLike):
            from outrider.testing._script.file import read_script

            source = read_script(source)
        elif not isinstance(source, Script):
            return cls(source, subagents=subagents, otherwise=otherwise)
        more = tuple(subagents)
        if otherwise is not None:
            hint = "Say there what follows its steps."
            raise OptionsError("`otherwise` was given beside a whole script", hint=hint)
        if more:
            source._subagents.add(more)
        return source

    def take(self, request: Request) -> Step:
        """The step for a request. Names of tools in it are those that the request offers.

        Never raises: what a function or an expectation does is in `errors`, and the step is a failure that
        agents do not try again.
        """
        return self.reserve(request)()

    def reserve(self, request: Request) -> Callable[[], Step]:
        """Decide at once which step is for a request; what is returned gives it, once functions have run."""
        with self._lock:
            talk = self._conversation(request)
            is_repeated = talk.messages == request.messages and not isinstance(talk.step, Answer)
            if is_repeated and talk.mistake is not None:
                mistake = talk.mistake
                return lambda: mistake
            talk.messages, talk.step, talk.mistake = request.messages, None, None
            try:
                if request.starts_turn and not is_repeated:
                    talk.turn = talk.part.chosen(request)
            except NOT_OURS:
                raise
            except BaseException as error:  # noqa: BLE001 - a function of the user's
                mistake = self._mistake(talk, error)
                return lambda: mistake
            expectations, scripted = talk.part.next(talk.turn)
        return lambda: self._made(talk, request, expectations, scripted)

    def _made(
        self, talk: _Conversation, request: Request, expectations: list[Expectation], scripted: Scripted
    ) -> Step:
        # Without the lock: a function may take its time.
        try:
            for expectation in expectations:
                expectation.check(request)
            step = resolved(_called(scripted, request), request)
            begun = [(prompt, _Part(steps, _SUBAGENT_END)) for prompt, steps in started(step)]
        except NOT_OURS:
            raise
        except BaseException as error:  # noqa: BLE001 - a function of the user's
            with self._lock:
                return self._mistake(talk, error)
        with self._lock:
            talk.step = step
            self._started += begun
        return step

    def add(self, *items: Item) -> None:
        """Add items at the end. Raises `OptionsError` for an invalid item."""
        with self._lock:
            self._main.add(items)

    def clear(self) -> None:
        """Forget the steps that no request has taken."""
        with self._lock:
            self._main.steps.clear()

    @property
    def remaining(self) -> tuple[Item, ...]:
        """What no request has taken yet."""
        with self._lock:
            return tuple(self._main.steps)

    def check(self, *, after: BaseException | None = None) -> None:
        """Raise the first of `errors`, if there is one, with a note of the others.

        It takes the place of the failure of a turn, and becomes a note of any other `after`, which counts
        more.
        """
        with self._lock:
            if not self.errors:
                return
            error, *others = self.errors
        if not isinstance(after, OutriderError | None):
            after.add_note(f"The script of the agent objects, too: {error}")
            return
        for other in others:
            error.add_note(f"Also: {other!r}")
        # The failure of the turn says the same, in the words of an API.
        raise error from None

    def _conversation(self, request: Request) -> _Conversation:
        key = (request.session_id, request.agent_id)
        if key not in self._conversations:
            part = self._main
            if request.kind == "subagent":
                part = self._part_of_subagent(request.prompt.strip())
            self._conversations[key] = _Conversation(part)
        return self._conversations[key]

    def _part_of_subagent(self, prompt: str) -> _Part:
        exact = [entry for entry in self._started if entry[0].strip() == prompt]
        near = [entry for entry in self._started if entry[0].strip() in prompt]
        for entry in exact or near:
            self._started.remove(entry)
            return entry[1]
        return self._subagents

    def _mistake(self, talk: _Conversation, error: BaseException) -> Failure:
        self.errors.append(error)
        problem = (
            str(error) if isinstance(error, AssertionError | OptionsError) and str(error) else repr(error)
        )
        # A status that the agent does not try again, and that no one takes for a wrong key.
        talk.mistake = fail(418, message=f"The test's script is wrong: {problem}")
        talk.step = talk.mistake
        return talk.mistake

    def __repr__(self) -> str:
        return f"<Script remaining={len(self.remaining)} errors={len(self.errors)}>"


ScriptSource: TypeAlias = Script | Iterable[Item] | str | os.PathLike[str] | None
"""A script, its items, a file that has one, or none for the automatic one."""


class _Part:
    """The items for one kind of conversation."""

    def __init__(self, items: Iterable[Item], otherwise: Scripted) -> None:
        self.steps: deque[Item] = deque()
        self._rules: list[When] = []
        self._uses: list[int] = []
        self._otherwise = otherwise
        self.add(items)

    def add(self, items: Iterable[Item]) -> None:
        checked = checked_items(items)
        self._rules += [item for item in checked if isinstance(item, When)]
        self._uses += [0] * (len(self._rules) - len(self._uses))
        self.steps += [item for item in checked if not isinstance(item, When)]

    def chosen(self, request: Request) -> deque[Item] | None:
        """The steps that are for the prompt of this request alone, if there are."""
        for at, rule in enumerate(self._rules):
            if (rule.times is None or self._uses[at] < rule.times) and rule.matches(request):
                self._uses[at] += 1
                return deque(rule.then)
        return None

    def next(self, turn: deque[Item] | None) -> tuple[list[Expectation], Scripted]:
        """What comes next, of these steps or of those of the turn."""
        steps = self.steps if turn is None else turn
        expectations: list[Expectation] = []
        while steps:
            item = steps.popleft()
            if not isinstance(item, Expectation):
                return expectations, cast("Scripted", item)
            expectations.append(item)
        return expectations, self._otherwise


class _Conversation:
    """A conversation, as far as it has come."""

    def __init__(self, part: _Part) -> None:
        self.part = part
        self.turn: deque[Item] | None = None
        """What is left of the steps for its turn alone, if there are such."""
        self.messages: object = None
        """Those of the last request."""
        self.step: Step | None = None
        """The last one."""
        self.mistake: Failure | None = None
        """The same, if it tells that the script is at fault."""


def _called(scripted: Scripted, request: Request) -> Step:
    step = cast("object", scripted(request) if callable(scripted) else scripted)
    if inspect.iscoroutine(step):
        step.close()
        raise OptionsError(f"`{scripted!r:.80}` in the script is async", hint="Make it a plain function.")
    if not isinstance(step, STEPS):
        hint = 'It has to return a step, such as `say("…")`.'
        raise OptionsError(f"`{scripted!r:.80}` in the script returned {step!r:.80}", hint=hint)
    return step


OUTPUT_TOOL: Final = "StructuredOutput"
"""What the model calls to answer in a form that was asked for."""

_SHOWN: Final = 200


class Automatic:
    """Chooses the answers of a model that tries out what it is offered.

    It calls each tool of an MCP server, those of the user's among them, once in a session, one in a message.
    Then it says what they gave in this turn, or what it was asked if it had none to call. If
    `StructuredOutput` is offered, it ends with a call of that, with a value that fits.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._called: dict[str | None, set[str]] = {}

    def __call__(self, request: Request) -> Answer:
        with self._lock:
            called = self._called.setdefault(request.session_id, set())
            # A session may have begun with another script.
            called |= {name for message in request.messages for name in _calls(message).values()}
            left = [name for name in request.tools if name.startswith("mcp__") and name not in called]
            called |= set(left[:1])
        if left:
            return use_tool(left[0], _input(request.tools[left[0]]))
        if OUTPUT_TOOL in request.tools:
            return use_tool(OUTPUT_TOOL, _input(request.tools[OUTPUT_TOOL]))
        return say(_report(request) or f"You said: {request.prompt}")


def _input(tool: JsonObject) -> JsonObject:
    made = sample(tool.get("input_schema"))
    return made if isinstance(made, dict) else {}


def _report(request: Request) -> str:
    """What the tools gave in this turn, a line for each."""
    lines: list[str] = []
    names: dict[str, str] = {}
    for message in request.since_prompt:
        names |= _calls(message)
        for block in blocks_of(message):
            if block.get("type") == "tool_result":
                name = names.get(str(block.get("tool_use_id")), "a tool")
                text = " ".join(text_of(block.get("content")).split()) or "(no text)"
                text = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
                lines.append(f"{name} {'failed' if block.get('is_error') is True else 'gave'}: {text}")
    return "\n".join(lines)


def _calls(message: JsonObject) -> dict[str, str]:
    """The tools that a message calls, by the id of the call."""
    if message.get("role") != "assistant":
        return {}
    calls = [block for block in blocks_of(message) if block.get("type") == "tool_use"]
    return {str(block.get("id")): str(block.get("name")) for block in calls}
