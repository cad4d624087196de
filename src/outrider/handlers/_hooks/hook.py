"""Defines `Hook`, a function with its event, matcher and timeout, and the decorator that makes one."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Sequence
from functools import update_wrapper
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypedDict,
    TypeVar,
    cast,
    get_args,
    overload,
)

from outrider.errors import OptionsError
from outrider.handlers._calls import CallContext, name_of
from outrider.handlers._hooks.events import EVENTS, Fails, facts_of
from outrider.options._forms import NEW_EVENT
from outrider.options._tool_names import ambiguous, is_pattern, known_tools, tool_name
from outrider.options._validators import did_you_mean
from outrider.wire import hooks as wire
from outrider.wire.hooks import HOOK_EVENTS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping
    from os import PathLike
    from typing import Unpack

    from outrider.handlers._answers import Answer
    from outrider.handlers._router import Origin
    from outrider.options._tool_names import ToolNames

    Returned: TypeAlias = (
        Answer
        | wire.HookOutput
        | wire.AsyncHookOutput
        | wire.SpecificOutput
        | Mapping[str, object]
        | str
        | PathLike[str]
        | None
    )
    """What a hook may return; a path only for `WorktreeCreate`."""


# Matchers.

Matcher: TypeAlias = (
    str | re.Pattern[str] | Callable[..., object] | Sequence[str | Callable[..., object]] | None
)
"""A name, a pattern, a tool of yours, or a list of names: of tools, or of causes of an event. None: all."""

_EVERYTHING: Final = ("", "*")
_NAMES: Final = re.compile(r"[\w ,|-]*\Z", re.ASCII)
"""The agent reads this as a list of whole names, and anything else as a pattern to search for."""
_RULE: Final = re.compile(r"\w+\(.*\)\Z", re.DOTALL)
_SPECIAL: Final = re.compile(r"[\\^$.*+?()\[\]{}|/]")
_GROUPED: Final = re.compile(r"(\^?)\((?:\?:)?(?!\?)([^()]*)\)(\$?)\Z")
_PIECE: Final = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|.", re.DOTALL)
_BEGINNING: Final = re.compile(r"\^?((?:[\w-](?![*?{]))*)", re.ASCII)
_ONLY_PYTHON: Final = re.compile(r"\(\?(?:P[<=>]|#|[aiLmsux]+[:)-])|\\[AZ]|[*+?}]\+")


def read_matcher(
    matcher: object, event: str, *, allow_unknown: bool = False, as_it_is: bool = False
) -> str | None:
    """A matcher as Claude Code reads it, with names as given; None for all. With `as_it_is`, text is not
    checked. Raises `OptionsError` for one that cannot work, as far as that is known without a session."""
    if matcher is None or (isinstance(matcher, str) and matcher.strip() in _EVERYTHING):
        return None
    if as_it_is and isinstance(matcher, str):
        return matcher
    facts = facts_of(event)
    if not facts.matcher:
        raise OptionsError(
            f"A {event} hook has nothing that a matcher could look at",
            hint="Leave `matcher` out, and look at the input in the function.",
        )
    found = _text_of(matcher, facts.tool)
    if not _NAMES.match(found):
        _check_pattern(found)
    if facts.words and not allow_unknown:
        _check_words(found, event, facts.words)
    return found


def resolve_matcher(place: str, matcher: str, names: ToolNames, *, allow_unknown: bool = False) -> str:
    """The matcher of an event about tools, as sent: with full tool names. Raises `OptionsError` for an
    ambiguous name and, unless `allow_unknown`, if a part of it matches no tool that the session can have."""
    if names.takes_any:
        return matcher
    if not _NAMES.match(matcher):
        for pattern in _alternatives(matcher):
            _check_finds(place, pattern, names, allow_unknown=allow_unknown)
        return matcher
    given = _names_in(matcher)
    found: list[str] = []
    for name in given:
        try:
            tools = names.resolve(place, name, permits=False)
        except OptionsError:
            if not allow_unknown:
                raise
            tools = (name,)
        if len(tools) > 1 and {*tools} - {*given, names.aliases.get(name)}:
            # The hook would decide about the other tool, too.
            raise ambiguous(place, name, tools)
        # All tools of a server: the agent would read it as the name of one tool.
        found += [f"{tool}__*" if names.is_server(tool) else tool for tool in tools]
    if not any(is_pattern(tool) for tool in found):
        return matcher if found == given else "|".join(dict.fromkeys(found))
    patterns = (".*".join(_SPECIAL.sub(_escaped, part) for part in tool.split("*")) for tool in found)
    return f"^(?:{'|'.join(dict.fromkeys(patterns))})$"


def _check_finds(place: str, pattern: str, names: ToolNames, *, allow_unknown: bool) -> None:
    regex = _compiled(pattern)
    # A pattern with `mcp` in it is about full names: `^(?!mcp__)` means the built-in tools.
    for full, short in () if "mcp" in pattern else names.own.items():
        if any(regex.search(each) for each in short) and not regex.search(full):
            raise OptionsError(
                f"{place}: the matcher {pattern!r} finds {full!r} only by its short name, which the agent "
                "does not know",
                hint=f"Write a pattern that fits {full!r}, or the name alone.",
            )
    known = (*names.all_known(), *names.extra)
    if not (allow_unknown or any(regex.search(each) for each in known) or _may_find_unknown(pattern, names)):
        meant = did_you_mean(_beginning_of(pattern), known)
        hint = (
            f"{meant} It is searched for in the names of tools, in which upper and lower case differ. Name a "
            "tool that is not known here in `extra_tools`."
        )
        what = f"the matcher {pattern!r} finds no tool that the session can have"
        raise OptionsError(f"{place}: {what}", hint=hint.lstrip())


def _may_find_unknown(pattern: str, names: ToolNames) -> bool:
    """Whether a pattern may match a tool that is not known here, judged by the beginning of the name."""
    beginning = _beginning_of(pattern)
    if beginning == "mcp__":
        # It fits any server, and is not a misspelling of one.
        return True
    is_bound = pattern.startswith("^") or beginning.startswith("mcp__")
    return names.may_be_unknown((is_bound and beginning) or "mcp__")


def _beginning_of(pattern: str) -> str:
    found = _BEGINNING.match(pattern)
    return "" if found is None else found[1]


def _alternatives(pattern: str) -> list[str]:
    """The alternatives of a pattern, each of which must match something: `^(Bash|Write)$` has two."""
    found: list[str] = []
    for part in _split(pattern):
        grouped = _GROUPED.match(part)
        found += [f"{grouped[1]}{each}{grouped[3]}" for each in _split(grouped[2])] if grouped else [part]
    return found


def _split(pattern: str) -> list[str]:
    parts, depth = [""], 0
    for piece in _PIECE.findall(pattern):
        depth += (piece == "(") - (piece == ")")
        if piece == "|" and not depth:
            parts.append("")
        else:
            parts[-1] += piece
    return parts


def _check_words(matcher: str, event: str, words: Sequence[str]) -> None:
    if not _NAMES.match(matcher):
        if any(_compiled(matcher).search(word) for word in words):
            return
        unknown = matcher
    else:
        unknown = next((name for name in _names_in(matcher) if name not in words), "")
        if not unknown:
            return
    hint = did_you_mean(unknown, words) or f"There are {', '.join(map(repr, words))}."
    raise OptionsError(
        f"A {event} hook is never called for {unknown!r}",
        hint=f"{hint} One that is not known here needs `allow_unknown=True`.",
    )


def _names_in(matcher: str) -> list[str]:
    return [name for name in (part.strip() for part in re.split("[|,]", matcher)) if name]


def _text_of(matcher: object, is_tool: bool) -> str:
    kind = type(matcher).__name__
    matcher = tool_name("`matcher`", matcher)
    if isinstance(matcher, str):
        return matcher
    if isinstance(matcher, re.Pattern):
        pattern = cast("re.Pattern[str] | re.Pattern[bytes]", matcher)
        text = pattern.pattern
        if isinstance(text, bytes) or pattern.flags & ~re.UNICODE:
            raise OptionsError(
                f"The agent takes no pattern with flags, or of bytes: {matcher!r}",
                hint="Write it without them: '[Bb]ash' in place of re.IGNORECASE.",
            )
        # Without a special character it would be read as whole names.
        return f"(?:{text})" if _NAMES.match(text) else text
    if isinstance(matcher, list | tuple):
        names = [tool_name("`matcher`", name) for name in cast("Sequence[object]", matcher)]
        if names and all(isinstance(name, str) and name.strip() for name in names):
            return _any_of(cast("Sequence[str]", names), is_tool)
    raise OptionsError(
        f"`matcher` must be a text, a pattern or a list of names, not {kind}",
        hint="Write matcher='Bash', matcher='mcp__github__.*' or matcher=['Write', 'Edit'].",
    )


def _any_of(names: Sequence[str], is_tool: bool) -> str:
    special = [name for name in names if not _NAMES.match(name)]
    if not special:
        return "|".join(names)
    if is_tool:
        raise OptionsError(
            f"`matcher` lists {special[0]!r}, and no tool has such a name",
            hint="In a list are whole names. Write a pattern as one text: matcher='Bash|mcp__github__.*'.",
        )
    return f"^(?:{'|'.join(_SPECIAL.sub(_escaped, name) for name in names)})$"


def _escaped(found: re.Match[str]) -> str:
    return f"\\{found[0]}"


def _check_pattern(pattern: str) -> None:
    if _RULE.match(pattern) and pattern.partition("(")[0] in known_tools():
        raise OptionsError(
            f"A matcher names tools, and {pattern!r} is a permission rule",
            hint="Give the name of the tool, and look at the input in the function.",
        )
    try:
        _compiled(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise OptionsError(f"`matcher` is not a valid pattern: {pattern!r} ({error})") from error
    if found := _ONLY_PYTHON.search(pattern):
        raise OptionsError(
            f"`matcher` has {found[0]!r}, which only Python understands: {pattern!r}",
            hint="The agent reads patterns as JavaScript does.",
        )


def _compiled(pattern: str) -> re.Pattern[str]:
    # JavaScript names groups without the P.
    return re.compile(re.sub(r"\(\?<(?=\w)", "(?P<", pattern))


# Hooks.

P = ParamSpec("P")
T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)

_OPTIONS: Final = ("matcher", "timeout", "fails", "allow_unknown", "in_order", "allow_undelivered")

DEFAULT_TIMEOUT: Final = 60.0
"""Seconds; the agent waits for hooks."""


class HookContext(CallContext):
    """Information about the call besides the input: the second parameter of a hook's function."""

    def __init__(self, origin: Origin, tool_use_id: str | None = None, occurrence: str | None = None) -> None:
        super().__init__(origin, tool_use_id)
        self.occurrence: Final = occurrence
        """The id of the event, which all its hooks are given; of a tool call, that of the call."""


class Hook(Generic[P, R_co]):
    """A function and the event that it is called for, made by `@outrider.hook`. It can still be called.

    In a class it works like a method: `Session(hooks=[checks.guard])`.
    """

    def __init__(
        self,
        function: Callable[P, R_co],
        event: str,
        *,
        matcher: Matcher = None,
        timeout: float | None = DEFAULT_TIMEOUT,
        fails: Fails | None = None,
        allow_unknown: bool = False,
        in_order: bool = True,
        allow_undelivered: bool = False,
    ) -> None:
        """Raises `OptionsError` for invalid arguments."""
        if not callable(function):
            raise OptionsError(
                f"A hook must be a function, not {type(function).__name__}",
                hint='Write @outrider.hook("PreToolUse") above a function.',
            )
        if isinstance(function, Hook):
            # One of the two events would be forgotten.
            raise OptionsError(
                f"The hook {function.name} is for {function.event} already, and a hook has one event",
                hint="Give a plain function to each event: hooks={'PreToolUse': [guard], 'Stop': [guard]}.",
            )
        update_wrapper(self, cast("Callable[..., object]", function))
        self.function: Final = function
        self.allow_unknown: Final = allow_unknown
        """Whether Outrider need not know the event and the names in the matcher."""
        self.event: Final[str] = _read_event(event, allow_unknown=allow_unknown)
        self.matcher: Final[str | None] = read_matcher(
            matcher, event, allow_unknown=allow_unknown, as_it_is=allow_undelivered
        )
        """The tools or causes it is called for, with names as given; None: all."""
        self.timeout: Final[float | None] = _read_timeout(timeout)
        """Timeout in seconds; None: none."""
        self.fails: Final[Fails] = _read_fails(fails, event)
        """What a failure means: `closed`, a refusal; `open`, no answer."""
        self.fails_late: Fails = self.fails
        """The same for one that takes longer than its timeout."""
        self.in_order: Final = in_order
        """Whether it waits for the hooks before it, and is skipped if one of them refuses."""
        self.allow_undelivered: Final = allow_undelivered
        """Whether there is no warning if the event is never delivered or the matcher never matches."""

    @property
    def name(self) -> str:
        """The function's."""
        return name_of(self.function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        return self.function(*args, **kwargs)

    def on(self, function: Callable[..., T]) -> Hook[..., T]:
        """The same for another function."""
        return Hook(function, self.event, **{name: getattr(self, name) for name in _OPTIONS})

    def __get__(self, instance: object, owner: type | None = None) -> Hook[..., R_co]:
        if instance is None:
            return self
        return self.on(cast("Any", self.function).__get__(instance, owner))

    def __reduce__(self) -> str:
        # By name, as functions are pickled: it has replaced its function.
        return cast("str", getattr(self, "__qualname__", self.name))

    def __repr__(self) -> str:
        matcher = "" if self.matcher is None else f" {self.matcher!r}"
        return f"<Hook {self.name} for {self.event}{matcher}, fails {self.fails}>"


def takes_context(hook: Hook[..., object]) -> bool:
    """Whether the hook's function takes the context beside the input. Raises `OptionsError` if it can be
    called neither with both nor with the input alone."""
    try:
        signature = inspect.signature(hook.function)
    except (TypeError, ValueError):
        # Some functions that are not written in Python have no signature.
        return False
    places = [each for each in signature.parameters.values() if each.kind in _POSITIONAL]
    wanted = [each for each in places if each.default is each.empty]
    named = len(places) > 1 and places[1].name in ("ctx", "context")
    for count in (2, 1) if len(wanted) == 2 or named else (1, 2):
        try:
            signature.bind(*[None] * count)
        except TypeError:
            continue
        return count == 2
    raise OptionsError(
        f"The hook {hook.name} cannot be called with what it would get: {hook.name}{signature}",
        hint="It gets the event's input and, as a second parameter if it has one, a HookContext.",
    )


_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _read_event(event: object, *, allow_unknown: bool) -> str:
    if not isinstance(event, str) or not event.strip():
        raise OptionsError(
            f"A hook needs the name of an event, not {event!r}",
            hint='Write @outrider.hook("PreToolUse") above the function.',
        )
    if event not in EVENTS and not allow_unknown:
        hint = f"{did_you_mean(event, HOOK_EVENTS)} {NEW_EVENT}".lstrip()
        raise OptionsError(f"No event is called {event!r}", hint=hint)
    return event


def _read_timeout(timeout: object) -> float | None:
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout < math.inf:
        raise OptionsError(
            f"The timeout of a hook must be a number of seconds over 0, not {timeout!r}",
            hint="None stands for no limit.",
        )
    return float(timeout)


def _read_fails(fails: object, event: str) -> Fails:
    facts = facts_of(event)
    if fails is None:
        return facts.fails
    if fails not in get_args(Fails):
        raise OptionsError(f'`fails` must be "open" or "closed", not {fails!r}')
    if fails == "closed" and (facts.refusal is None or not facts.can_close):
        raise OptionsError(
            f"A {event} hook cannot fail closed: it cannot keep anything from happening",
            hint='Use fails="open", or an earlier event.',
        )
    return cast("Fails", fails)


# The decorator.

R = TypeVar("R", bound="Returned | Awaitable[Returned]")
Owner = TypeVar("Owner")
Input = TypeVar("Input")


class How(TypedDict, total=False):
    matcher: Matcher
    timeout: float | None
    fails: Fails | None
    allow_unknown: bool


class HookFor(Protocol[Input]):
    """Makes a hook of a function that takes the input of an event, or of a method that does."""

    @overload
    def __call__(self, function: Callable[Concatenate[Input, P], R], /) -> Hook[Concatenate[Input, P], R]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[Owner, Input, P], R], /
    ) -> Hook[Concatenate[Owner, Input, P], R]: ...


@overload
def hook(event: Literal["PreToolUse"], **how: Unpack[How]) -> HookFor[wire.PreToolUseInput]: ...
@overload
def hook(event: Literal["PostToolUse"], **how: Unpack[How]) -> HookFor[wire.PostToolUseInput]: ...
@overload
def hook(
    event: Literal["PostToolUseFailure"], **how: Unpack[How]
) -> HookFor[wire.PostToolUseFailureInput]: ...
@overload
def hook(event: Literal["PostToolBatch"], **how: Unpack[How]) -> HookFor[wire.PostToolBatchInput]: ...
@overload
def hook(event: Literal["Notification"], **how: Unpack[How]) -> HookFor[wire.NotificationInput]: ...
@overload
def hook(event: Literal["UserPromptSubmit"], **how: Unpack[How]) -> HookFor[wire.UserPromptSubmitInput]: ...
@overload
def hook(
    event: Literal["UserPromptExpansion"], **how: Unpack[How]
) -> HookFor[wire.UserPromptExpansionInput]: ...
@overload
def hook(event: Literal["SessionStart"], **how: Unpack[How]) -> HookFor[wire.SessionStartInput]: ...
@overload
def hook(event: Literal["SessionEnd"], **how: Unpack[How]) -> HookFor[wire.SessionEndInput]: ...
@overload
def hook(event: Literal["Stop"], **how: Unpack[How]) -> HookFor[wire.StopInput]: ...
@overload
def hook(event: Literal["StopFailure"], **how: Unpack[How]) -> HookFor[wire.StopFailureInput]: ...
@overload
def hook(event: Literal["SubagentStart"], **how: Unpack[How]) -> HookFor[wire.SubagentStartInput]: ...
@overload
def hook(event: Literal["SubagentStop"], **how: Unpack[How]) -> HookFor[wire.SubagentStopInput]: ...
@overload
def hook(event: Literal["PreCompact"], **how: Unpack[How]) -> HookFor[wire.PreCompactInput]: ...
@overload
def hook(event: Literal["PostCompact"], **how: Unpack[How]) -> HookFor[wire.PostCompactInput]: ...
@overload
def hook(event: Literal["PreModelSwitch"], **how: Unpack[How]) -> HookFor[wire.PreModelSwitchInput]: ...
@overload
def hook(event: Literal["PostModelSwitch"], **how: Unpack[How]) -> HookFor[wire.PostModelSwitchInput]: ...
@overload
def hook(event: Literal["PermissionRequest"], **how: Unpack[How]) -> HookFor[wire.PermissionRequestInput]: ...
@overload
def hook(event: Literal["PermissionDenied"], **how: Unpack[How]) -> HookFor[wire.PermissionDeniedInput]: ...
@overload
def hook(event: Literal["Setup"], **how: Unpack[How]) -> HookFor[wire.SetupInput]: ...
@overload
def hook(event: Literal["TeammateIdle"], **how: Unpack[How]) -> HookFor[wire.TeammateIdleInput]: ...
@overload
def hook(event: Literal["TaskCreated"], **how: Unpack[How]) -> HookFor[wire.TaskCreatedInput]: ...
@overload
def hook(event: Literal["TaskCompleted"], **how: Unpack[How]) -> HookFor[wire.TaskCompletedInput]: ...
@overload
def hook(event: Literal["Elicitation"], **how: Unpack[How]) -> HookFor[wire.ElicitationInput]: ...
@overload
def hook(event: Literal["ElicitationResult"], **how: Unpack[How]) -> HookFor[wire.ElicitationResultInput]: ...
@overload
def hook(event: Literal["ConfigChange"], **how: Unpack[How]) -> HookFor[wire.ConfigChangeInput]: ...
@overload
def hook(event: Literal["WorktreeCreate"], **how: Unpack[How]) -> HookFor[wire.WorktreeCreateInput]: ...
@overload
def hook(event: Literal["WorktreeRemove"], **how: Unpack[How]) -> HookFor[wire.WorktreeRemoveInput]: ...
@overload
def hook(
    event: Literal["InstructionsLoaded"], **how: Unpack[How]
) -> HookFor[wire.InstructionsLoadedInput]: ...
@overload
def hook(event: Literal["CwdChanged"], **how: Unpack[How]) -> HookFor[wire.CwdChangedInput]: ...
@overload
def hook(event: Literal["FileChanged"], **how: Unpack[How]) -> HookFor[wire.FileChangedInput]: ...
@overload
def hook(event: Literal["DirectoryAdded"], **how: Unpack[How]) -> HookFor[wire.DirectoryAddedInput]: ...
@overload
def hook(event: Literal["MessageDisplay"], **how: Unpack[How]) -> HookFor[wire.MessageDisplayInput]: ...
@overload
def hook(
    event: str,
    *,
    matcher: Matcher = None,
    timeout: float | None = DEFAULT_TIMEOUT,
    fails: Fails | None = None,
    allow_unknown: Literal[True],
) -> HookFor[Any]: ...
def hook(
    event: str,
    *,
    matcher: Matcher = None,
    timeout: float | None = DEFAULT_TIMEOUT,
    fails: Fails | None = None,
    allow_unknown: bool = False,
) -> object:
    """Make a hook from a function: it is called when the event occurs.

        @outrider.hook("PreToolUse", matcher="Bash")
        async def guard(input: PreToolUseInput) -> Answer | None:
            if "rm -rf" in input.tool_input["command"]:
                return deny("Not here.")

    The function takes the event's input and, if it has a second parameter, a `HookContext`. It may be async;
    if not, it runs in a thread. It returns None for no answer, an `Answer` (`allow()`, `deny("why")`,
    `modify(…)` and the like), an output of `outrider.wire.hooks`, or such an output as a dict. Raising
    `Denied` denies.

    `matcher` says what it is called for: the name of a tool, several in a list or as `"Write|Edit"`, a tool
    of yours or its name, or a pattern. With some events it matches a cause in place of a tool, such as
    `manual` or `auto` of PreCompact. A session rejects a name that none of its tools has.

    `allow_unknown`: Outrider need not know the event or the names in the matcher.

    `fails` says what it means if the function raises, takes longer than `timeout` seconds or returns
    something invalid: `closed` refuses what the hook was asked about, `open` continues without it. The
    default is `closed` for guards (PreToolUse, PermissionRequest, UserPromptSubmit, UserPromptExpansion,
    PreModelSwitch, WorktreeCreate), and `open` for all other events.

    Raises `OptionsError` for invalid arguments.
    """
    # Made once without the function, so that a mistake in the decorator is reported at its line.
    made = Hook(_nothing, event, matcher=matcher, timeout=timeout, fails=fails, allow_unknown=allow_unknown)

    def decorate(function: Callable[..., object], /) -> Hook[..., object]:
        return made.on(function)

    return decorate


def _nothing(hook_input: object) -> None: ...
