"""The decorator `hook`, and its type for each event: which input the function below it gets.

What a hook is, is in `_hooks_hook`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, Protocol, TypedDict, TypeVar, overload

from outrider.handlers._hooks_events import Fails
from outrider.handlers._hooks_hook import DEFAULT_TIMEOUT, Hook
from outrider.handlers._hooks_matchers import Matcher
from outrider.wire import hooks as told

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from os import PathLike
    from typing import TypeAlias, Unpack

    from outrider.handlers._answers import Answer

    Said: TypeAlias = (
        Answer
        | told.HookOutput
        | told.AsyncHookOutput
        | told.SpecificOutput
        | Mapping[str, object]
        | str
        | PathLike[str]
        | None
    )
    """What a hook may return; a path only for `WorktreeCreate`."""

P = ParamSpec("P")
R = TypeVar("R", bound="Said | Awaitable[Said]")
Owner = TypeVar("Owner")
Told = TypeVar("Told")


class HookFields(TypedDict, total=False):
    """How a hook is to be called."""

    matcher: Matcher
    timeout: float | None
    fails: Fails | None
    allow_unknown: bool


class HookDecorator(Protocol[Told]):
    """Makes a hook of a function that takes the input of an event, or of a method that does."""

    @overload
    def __call__(self, function: Callable[Concatenate[Told, P], R], /) -> Hook[Concatenate[Told, P], R]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[Owner, Told, P], R], /
    ) -> Hook[Concatenate[Owner, Told, P], R]: ...


@overload
def hook(event: Literal["PreToolUse"], **how: Unpack[HookFields]) -> HookDecorator[told.PreToolUseInput]: ...
@overload
def hook(
    event: Literal["PostToolUse"], **how: Unpack[HookFields]
) -> HookDecorator[told.PostToolUseInput]: ...
@overload
def hook(
    event: Literal["PostToolUseFailure"], **how: Unpack[HookFields]
) -> HookDecorator[told.PostToolUseFailureInput]: ...
@overload
def hook(
    event: Literal["PostToolBatch"], **how: Unpack[HookFields]
) -> HookDecorator[told.PostToolBatchInput]: ...
@overload
def hook(
    event: Literal["Notification"], **how: Unpack[HookFields]
) -> HookDecorator[told.NotificationInput]: ...
@overload
def hook(
    event: Literal["UserPromptSubmit"], **how: Unpack[HookFields]
) -> HookDecorator[told.UserPromptSubmitInput]: ...
@overload
def hook(
    event: Literal["UserPromptExpansion"], **how: Unpack[HookFields]
) -> HookDecorator[told.UserPromptExpansionInput]: ...
@overload
def hook(
    event: Literal["SessionStart"], **how: Unpack[HookFields]
) -> HookDecorator[told.SessionStartInput]: ...
@overload
def hook(event: Literal["SessionEnd"], **how: Unpack[HookFields]) -> HookDecorator[told.SessionEndInput]: ...
@overload
def hook(event: Literal["Stop"], **how: Unpack[HookFields]) -> HookDecorator[told.StopInput]: ...
@overload
def hook(
    event: Literal["StopFailure"], **how: Unpack[HookFields]
) -> HookDecorator[told.StopFailureInput]: ...
@overload
def hook(
    event: Literal["SubagentStart"], **how: Unpack[HookFields]
) -> HookDecorator[told.SubagentStartInput]: ...
@overload
def hook(
    event: Literal["SubagentStop"], **how: Unpack[HookFields]
) -> HookDecorator[told.SubagentStopInput]: ...
@overload
def hook(event: Literal["PreCompact"], **how: Unpack[HookFields]) -> HookDecorator[told.PreCompactInput]: ...
@overload
def hook(
    event: Literal["PostCompact"], **how: Unpack[HookFields]
) -> HookDecorator[told.PostCompactInput]: ...
@overload
def hook(
    event: Literal["PreModelSwitch"], **how: Unpack[HookFields]
) -> HookDecorator[told.PreModelSwitchInput]: ...
@overload
def hook(
    event: Literal["PostModelSwitch"], **how: Unpack[HookFields]
) -> HookDecorator[told.PostModelSwitchInput]: ...
@overload
def hook(
    event: Literal["PermissionRequest"], **how: Unpack[HookFields]
) -> HookDecorator[told.PermissionRequestInput]: ...
@overload
def hook(
    event: Literal["PermissionDenied"], **how: Unpack[HookFields]
) -> HookDecorator[told.PermissionDeniedInput]: ...
@overload
def hook(event: Literal["Setup"], **how: Unpack[HookFields]) -> HookDecorator[told.SetupInput]: ...
@overload
def hook(
    event: Literal["TeammateIdle"], **how: Unpack[HookFields]
) -> HookDecorator[told.TeammateIdleInput]: ...
@overload
def hook(
    event: Literal["TaskCreated"], **how: Unpack[HookFields]
) -> HookDecorator[told.TaskCreatedInput]: ...
@overload
def hook(
    event: Literal["TaskCompleted"], **how: Unpack[HookFields]
) -> HookDecorator[told.TaskCompletedInput]: ...
@overload
def hook(
    event: Literal["Elicitation"], **how: Unpack[HookFields]
) -> HookDecorator[told.ElicitationInput]: ...
@overload
def hook(
    event: Literal["ElicitationResult"], **how: Unpack[HookFields]
) -> HookDecorator[told.ElicitationResultInput]: ...
@overload
def hook(
    event: Literal["ConfigChange"], **how: Unpack[HookFields]
) -> HookDecorator[told.ConfigChangeInput]: ...
@overload
def hook(
    event: Literal["WorktreeCreate"], **how: Unpack[HookFields]
) -> HookDecorator[told.WorktreeCreateInput]: ...
@overload
def hook(
    event: Literal["WorktreeRemove"], **how: Unpack[HookFields]
) -> HookDecorator[told.WorktreeRemoveInput]: ...
@overload
def hook(
    event: Literal["InstructionsLoaded"], **how: Unpack[HookFields]
) -> HookDecorator[told.InstructionsLoadedInput]: ...
@overload
def hook(event: Literal["CwdChanged"], **how: Unpack[HookFields]) -> HookDecorator[told.CwdChangedInput]: ...
@overload
def hook(
    event: Literal["FileChanged"], **how: Unpack[HookFields]
) -> HookDecorator[told.FileChangedInput]: ...
@overload
def hook(
    event: Literal["DirectoryAdded"], **how: Unpack[HookFields]
) -> HookDecorator[told.DirectoryAddedInput]: ...
@overload
def hook(
    event: Literal["MessageDisplay"], **how: Unpack[HookFields]
) -> HookDecorator[told.MessageDisplayInput]: ...
@overload
def hook(
    event: str,
    *,
    matcher: Matcher = None,
    timeout: float | None = DEFAULT_TIMEOUT,
    fails: Fails | None = None,
    allow_unknown: Literal[True],
) -> HookDecorator[Any]: ...
def hook(
    event: str,
    *,
    matcher: Matcher = None,
    timeout: float | None = DEFAULT_TIMEOUT,
    fails: Fails | None = None,
    allow_unknown: bool = False,
) -> object:
    """Make a hook of the function below: it is called when the event happens.

        @outrider.hook("PreToolUse", matcher="Bash")
        async def guard(input: PreToolUseInput) -> Answer | None:
            if "rm -rf" in input.tool_input["command"]:
                return deny("Not here.")

    The function gets the event's input and, as a second parameter if it has one, a `HookContext`. It may be
    async; if not, it runs in a thread. It returns None to have no say, an `Answer` (`allow()`, `deny("why")`,
    `modify(…)` and the like), an output of `outrider.wire.hooks`, or the same as a dict. To raise `Denied` is
    to deny.

    `matcher` says for what it is called: the name of a tool, several as a list or as `"Write|Edit"`, a tool
    of yours by its name or itself, or a pattern; with some events it is a cause in place of a tool, such as
    `manual` or `auto` of PreCompact. A name that no tool of the session has is an error when that is made.

    `allow_unknown`: the event, or what the matcher names, is one of the agent's that Outrider does not know.

    `fails` says what it means when the function raises, takes longer than `timeout` seconds or returns what
    means nothing: `closed` refuses what the hook was asked about, `open` goes on without it. Left out, it is
    `closed` for what guards (PreToolUse, PermissionRequest, UserPromptSubmit, UserPromptExpansion,
    PreModelSwitch, WorktreeCreate), and `open` for all else.

    Raises `OptionsError` for what cannot work.
    """
    # Made once for no function: a mistake in this line is to be found here.
    made = Hook(_nothing, event, matcher=matcher, timeout=timeout, fails=fails, allow_unknown=allow_unknown)

    def decorate(function: Callable[..., object], /) -> Hook[..., object]:
        return made.on(function)

    return decorate


def _nothing(told: object) -> None: ...
