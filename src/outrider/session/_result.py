"""`Result`, what a turn or a run came to, and its structured output as a typed value.

Does not decide whether it failed: `error` says that.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import TYPE_CHECKING, Final, Generic, cast

import msgspec

from outrider.errors import OptionsError, OutputInvalid, OutriderError, TurnFailed
from outrider.options._validators import invalid_value
from outrider.redaction import preview
from outrider.session._usage import Usage
from outrider.wire import AssistantMessage, Json, Message, ResultMessage, StreamEvent
from outrider.wire.choices import TerminalReason
from outrider.wire.shapes import BackgroundTask, PermissionDenial

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

    from outrider.handlers import Shape
    from outrider.options import Options

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
    """Work in the background that was still going on when the turn ended."""

    id: str
    type: str = ""
    """`local_agent`, `local_bash`, `local_workflow`, …"""
    description: str = ""

    @classmethod
    def from_wire(cls, task: BackgroundTask) -> Self:
        """Read an item of `BackgroundTasksChangedMessage.tasks`."""
        fields = cast("dict[str, object]", task)
        return cls(*(str(fields.get(name) or "") for name in ("task_id", "task_type", "description")))


class Result(msgspec.Struct, Generic[Output_co], frozen=True, kw_only=True):
    """What a turn, or a run, came to: the answer, how it got there, and what it cost.

    `str()` is the answer. A turn that failed has a result too: `raise_for_error` makes an exception of it.
    """

    message: ResultMessage | None = None
    """What the agent ended the turn with, or the last of a run; None if it never came to that."""
    messages: tuple[Message, ...] = ()
    """All that was received, in order."""
    usage: Usage = Usage()
    """What this turn or run has used."""
    total_usage: Usage = Usage()
    """What the session has used since it was opened here."""
    duration: float = 0.0
    """Seconds on the clock."""
    unfinished_tasks: tuple[UnfinishedTask, ...] = ()
    """What still goes on in the background."""
    error: OutriderError | None = None
    """Why it is no success."""
    session_id: str | None = None
    """The session, to resume it by; the last one, if it changed. Unset: found in the messages."""
    output: Output_co = cast("Output_co", None)
    """The structured output, where one was asked for."""

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
        """The final answer; of a turn that did not come to one, what the model said last.

        The text of an error is not among it: that is in `errors`.
        """
        if self.message is not None and self.message.result is not None and not self.message.is_error:
            return self.message.result
        return _last_words(self.messages)

    @property
    def is_success(self) -> bool:
        """Whether it did what it was asked to."""
        return self.error is None and self.message is not None and self.message.is_success

    @property
    def cost_usd(self) -> float:
        """What this turn or run has cost."""
        return self.usage.cost_usd

    @property
    def total_cost_usd(self) -> float:
        """What the session has cost by the agent's count: with all that came before it was resumed."""
        told = None if self.message is None else self.message.total_cost_usd
        return self.total_usage.cost_usd if told is None else float(told)

    @property
    def subtype(self) -> str | None:
        """How the agent calls the outcome: `success` or `error_…`."""
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
    def permission_denials(self) -> tuple[PermissionDenial, ...]:
        """The tool calls that were refused."""
        return tuple((self.message and self.message.permission_denials) or ())

    @property
    def errors(self) -> tuple[str, ...]:
        """What the agent says went wrong."""
        if self.message is None or not self.message.is_error:
            return ()
        return tuple(self.message.errors or filter(None, [self.message.result]))

    def raise_for_error(self) -> Self:
        """Raise `error` if it is no success; otherwise give the result back."""
        if self.is_success:
            return self
        if self.error is None:
            raise TurnFailed(self, self.messages)
        # It may be raised more than once: the traceback is that of this time.
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
    """What is wanted, as far as the agent can be told. Raises `OptionsError` for what has no schema."""
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
