"""`Result`, the outcome of a turn or a run, and its structured output as a typed value.

Does not decide whether it failed: `error` says that.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import TYPE_CHECKING, Final, Generic, cast

import msgspec

from outrider.errors import OptionsError, OutputInvalid, OutriderError, TurnFailed
from outrider.options._validators import invalid_value
from outrider.redaction import preview
from outrider.session._usage import Usage
from outrider.wire import (
    AssistantMessage,
    Json,
    JsonObject,
    Message,
    ResultMessage,
    StreamEvent,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
    Value,
)
from outrider.wire.choices import TerminalReason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import UnionType
    from typing import (
        Any,
        Self,
        TypeAlias,
        _SpecialForm,  # pyright: ignore[reportPrivateUsage]
    )

    from typing_extensions import TypeVar

    from outrider.approvals import Approval
    from outrider.handlers import Shape
    from outrider.options import Options
    from outrider.wire.shapes import BackgroundTask, PermissionDenial
    from outrider.wire.tools import ToolOutput

    Output = TypeVar("Output", default=Json)
    Output_co = TypeVar("Output_co", covariant=True, default=Json)

    # mypy takes a variable of this name for true. With `object` in the union it would not infer the type.
    MYPY = False
    if MYPY:
        OutputType: TypeAlias = type[Output] | Mapping[str, object] | UnionType | _SpecialForm | None  # pyright: ignore[reportRedeclaration]
    else:
        OutputType: TypeAlias = type[Output] | object  # pyright: ignore[reportRedeclaration]
else:
    from typing import TypeVar

    Output = TypeVar("Output")
    Output_co = TypeVar("Output_co", covariant=True)
    OutputType = object

_SHOWN_TEXT = 60


class UnfinishedTask(msgspec.Struct, frozen=True):
    """A background task that still ran when the turn ended."""

    id: str
    type: str = ""
    """`local_agent`, `local_bash`, `local_workflow`, …"""
    description: str = ""

    @classmethod
    def from_wire(cls, task: BackgroundTask) -> Self:
        """Read an item of `BackgroundTasksChangedMessage.tasks`."""
        fields = cast("dict[str, object]", task)
        return cls(*(str(fields.get(name) or "") for name in ("task_id", "task_type", "description")))


class ToolRun(msgspec.Struct, frozen=True):
    """A call of a tool, and what came of it."""

    call: ToolUseBlock
    parent_tool_use_id: str | None = None
    """The call of the Agent tool to whose subagent this belongs; None on the main thread."""
    result: ToolResultBlock | None = None
    """What the model was given; None as long as the tool has not ended."""
    message: UserMessage | None = None
    """The message with the result."""
    called_at: str | None = None
    """When the model called it, by the clock of Claude Code."""

    @property
    def duration(self) -> float | None:
        """Elapsed seconds from the call to its result; None if there is none yet, or a time is not known."""
        began, ended = self.called_at, None if self.message is None else self.message.timestamp
        try:
            return (datetime.fromisoformat(ended or "") - datetime.fromisoformat(began or "")).total_seconds()
        except (ValueError, TypeError):
            return None

    @property
    def name(self) -> str:
        """The tool's name."""
        return self.call.name

    @property
    def input(self) -> Value | JsonObject:
        """What the tool was given, as a typed value for a built-in tool."""
        return self.call.typed()

    @property
    def output(self) -> ToolOutput | list[ToolOutput] | Json:
        """The tool's own result: a typed value for a built-in tool (`BashOutput`, …), as sent for others. A
        text reports a failure. None if the tool has not ended, or has no more than `result`."""
        message = self.message
        # With several results in a message it is not known whose it is.
        if message is None or sum(isinstance(block, ToolResultBlock) for block in message.content) > 1:
            return None
        return message.typed_output(self.name)

    @property
    def is_error(self) -> bool:
        """Whether the model was told about an error."""
        return self.result is not None and bool(self.result.is_error)


def find_tool_calls(messages: Sequence[Message]) -> tuple[ToolRun, ...]:
    """The calls of tools in messages, in order, each with what came of it."""
    results = {
        block.tool_use_id: (block, message)
        for message in messages
        if isinstance(message, UserMessage) and not isinstance(message.content, str)
        for block in message.content
        if isinstance(block, ToolResultBlock)
    }
    none: tuple[None, None] = (None, None)
    found: list[ToolRun] = []
    for message in (each for each in messages if isinstance(each, AssistantMessage)):
        for call in message.tool_uses:
            result, answer = results.get(call.id, none)
            found.append(ToolRun(call, message.parent_tool_use_id, result, answer, message.timestamp))
    return tuple(found)


class Result(msgspec.Struct, Generic[Output_co], frozen=True, kw_only=True):
    """The outcome of a turn or a run: the answer, the messages, and the cost.

    `str()` is the answer. A turn that failed has a result too: `raise_for_error` makes an exception of it.
    """

    message: ResultMessage | None = None
    """The message that ended the turn, or the last turn of a run; None if there was none."""
    messages: tuple[Message, ...] = ()
    """All that was received, in order."""
    usage: Usage = Usage()
    """What this turn or run has used."""
    total_usage: Usage = Usage()
    """What the session has used since it was opened here."""
    duration: float = 0.0
    """Elapsed seconds."""
    unfinished_tasks: tuple[UnfinishedTask, ...] = ()
    """The background tasks that still run."""
    error: OutriderError | None = None
    """Why it failed; None if it succeeded."""
    session_id: str | None = None
    """The id of the session, for `resume`; the last one, if it changed. Unset: found in the messages."""
    output: Output_co = cast("Output_co", None)
    """The structured output, if one was asked for."""
    pending: tuple[Approval, ...] = ()
    """What waits for a person: the session continues with `outrider.go_on` once it is decided."""

    def __post_init__(self) -> None:
        found: dict[str, object] = {
            "messages": tuple(self.messages),
            "unfinished_tasks": tuple(self.unfinished_tasks),
        }
        if self.session_id is None:
            found["session_id"] = _session_of(self.message, self.messages)
        if self.output is None:
            found["output"] = _output_of(self.message, self.messages)
        _fill(self, found)

    @property
    def text(self) -> str:
        """The final answer; without one, the last text of the model.

        The text of an error is not among it: that is in `errors`.
        """
        if self.message is not None and self.message.result is not None and not self.message.is_error:
            return self.message.result
        return _last_words(self.messages)

    @property
    def is_success(self) -> bool:
        """Whether it succeeded."""
        return self.error is None and self.message is not None and self.message.is_success

    @property
    def cost_usd(self) -> float:
        """What this turn or run has cost."""
        return self.usage.cost_usd

    @property
    def total_cost_usd(self) -> float:
        """What the session has cost by Claude Code's count, including the time before it was resumed."""
        total = None if self.message is None else self.message.total_cost_usd
        return self.total_usage.cost_usd if total is None else float(total)

    @property
    def subtype(self) -> str | None:
        """Claude Code's name for the outcome: `success` or `error_…`."""
        return None if self.message is None else self.message.subtype

    @property
    def terminal_reason(self) -> TerminalReason | None:
        """Why the turn ended: `completed`, `max_turns`, …"""
        return None if self.message is None else self.message.terminal_reason

    @property
    def stop_reason(self) -> str | None:
        """Why the model stopped: `end_turn`, `max_tokens`, …"""
        return None if self.message is None else self.message.stop_reason

    @property
    def num_turns(self) -> int:
        """How many times the model was called."""
        return 0 if self.message is None else self.message.num_turns

    @property
    def tool_calls(self) -> tuple[ToolRun, ...]:
        """The tools that were called, each with its input, its output and its duration."""
        return find_tool_calls(self.messages)

    @property
    def permission_denials(self) -> tuple[PermissionDenial, ...]:
        """The tool calls that were refused."""
        return tuple((self.message and self.message.permission_denials) or ())

    @property
    def errors(self) -> tuple[str, ...]:
        """The errors that Claude Code reports."""
        if self.message is None or not self.message.is_error:
            return ()
        return tuple(self.message.errors or filter(None, [self.message.result]))

    def raise_for_error(self) -> Self:
        """Raise `error` if it failed; otherwise return the result."""
        if self.is_success:
            return self
        if self.error is None:
            raise TurnFailed(self, self.messages)
        # It may be raised more than once, each time with a new traceback.
        raise self.error.with_traceback(None)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        outcome = type(self.error).__name__ if self.error else self.subtype or "no result"
        parts = [
            outcome,
            repr(preview(self.text, _SHOWN_TEXT)),
            f"{len(self.messages)} messages",
            str(self.usage),
        ]
        return f"<Result {', '.join(parts)}>"

    # In two steps, because the error of a result may hold the result.

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, object]]:
        return type(self), (), {name: getattr(self, name) for name in self.__struct_fields__}

    def __setstate__(self, state: dict[str, object]) -> None:
        _fill(self, state)


def _fill(result: Result[object], fields: dict[str, object]) -> None:
    for name, value in fields.items():
        msgspec.structs.force_setattr(result, name, value)


def _session_of(message: ResultMessage | None, messages: Sequence[Message]) -> str | None:
    for each in (message, *reversed(messages)):
        if found := getattr(each, "session_id", None):
            return str(found)
    return None


def _output_of(message: ResultMessage | None, messages: Sequence[Message]) -> Json:
    """That of the last result, or of one before it: work in the background ends with a result of its own."""
    for each in (message, *reversed(messages)):
        if isinstance(each, ResultMessage) and each.structured_output is not None:
            return cast("Json", each.structured_output)
    return None


def output_error(
    message: ResultMessage, messages: Sequence[Message], shape: Shape[object]
) -> OutputInvalid | None:
    """Why the output of a turn is not a value of the type that was asked for, if it is none."""
    from outrider.handlers import ShapeError

    try:
        if (output := _output_of(message, messages)) is not None:
            shape.convert(output)
    except ShapeError as misfit:
        return OutputInvalid(misfit.errors, result=message, messages=messages)
    return None


def _last_words(messages: Sequence[Message]) -> str:
    """The text of the model's last message, which comes in several if it has several blocks, or in pieces."""
    words: list[str] = []
    last: AssistantMessage | None = None
    for message in reversed(messages):
        if getattr(message, "parent_tool_use_id", None) is not None:
            continue
        if isinstance(message, AssistantMessage):
            if message.error or message.is_api_error_message:
                continue
            if last is not None and (message.message_id is None or message.message_id != last.message_id):
                break
            last = message
            words.append(message.text)
        elif isinstance(message, StreamEvent) and last is None:
            words.append(message.text)
            if any(words) and message.event.get("type") == "message_start":
                break
    return "".join(reversed(words))


_NO_TYPES: Final = (str, bytes, FunctionType, BuiltinFunctionType, MethodType, partial)


def output_shape(output: object, options: Options) -> Shape[object]:
    """The shape of the output that is wanted. Raises `OptionsError` if it has no schema."""
    if options.output_format is not None:
        raise OptionsError(
            "`output` and `output_format` both say what the answer must be",
            hint="Leave `output_format` out: a JSON Schema can be given as `output`, too.",
        )
    if issubclass(type(output), _NO_TYPES) or hasattr(type(output), "__dataclass_fields__"):
        # Some of these would pass: a text is taken for an annotation, and a function for its parameters.
        raise invalid_value(
            "`output`", "a type or a JSON Schema", output, "Give the class itself: `output=Invoice`."
        )
    from outrider.handlers import Shape

    return Shape.for_output(output)


def shape_output(result: Result[object], shape: Shape[object]) -> None:
    """Make the output of a result that was just made a value of the type that was asked for, or give it the
    error that it is none. What came is then left as it is."""
    if result.output is None:
        # The agent has not come to an answer of the model: a hook ended the turn, or a command of its own.
        return
    from outrider.handlers import ShapeError

    try:
        output = shape.convert(result.output)
    except ShapeError as misfit:
        error = OutputInvalid(misfit.errors, result=result.message, messages=result.messages)
        msgspec.structs.force_setattr(result, "error", error)
    else:
        msgspec.structs.force_setattr(result, "output", output)
