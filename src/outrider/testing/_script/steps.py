"""The steps of a script: what a model answers, as plain values and as messages of the API."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, cast

import msgspec

from outrider.errors import OptionsError
from outrider.options._tool_names import tool_name
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from outrider.testing._script.script import Item


class Gate:
    """A place in an answer where it waits for `open()`.

        gate = Gate()
        with MessagesApi([say("one two three", gate=gate)]) as api:
            ...                     # a prompt is sent
            gate.wait_reached()     # "one " was sent, and nothing more
            gate.open()             # the rest follows

    `after` is how many pieces of the answer are sent before: 0 holds back all of it, the status too.
    An open gate stays open. Any thread may use it.
    """

    def __init__(self, *, after: int = 1) -> None:
        self.after = after
        self.reached = threading.Event()
        """Set once an answer has come to the gate."""
        self._lock = threading.Lock()
        self._is_open = False
        self._listeners: list[Callable[[], object]] = []

    @property
    def is_open(self) -> bool:
        return self._is_open

    def open(self) -> None:
        """Let the answer continue, and all that come later."""
        with self._lock:
            self._is_open = True
            listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener()

    def wait_reached(self, timeout: float = 30.0) -> None:
        """Block this thread until an answer has come to the gate. Raises `TimeoutError` if none does."""
        if not self.reached.wait(timeout):
            raise TimeoutError(f"No answer came to the gate within {timeout:g} s: was the request made?")

    def on_open(self, listener: Callable[[], object]) -> None:
        """Call this when the gate opens; at once, if it is open."""
        with self._lock:
            if not self._is_open:
                self._listeners.append(listener)
                return
        listener()

    def forget(self, listener: Callable[[], object]) -> None:
        """Do not call this any more."""
        with self._lock:
            if listener in self._listeners:
                self._listeners.remove(listener)

    def __repr__(self) -> str:
        state = "open" if self._is_open else "reached" if self.reached.is_set() else "closed"
        return f"<Gate after={self.after} {state}>"


PROMPT_TOO_LONG: Final = "prompt is too long: 1000001 tokens > 1000000 maximum"
"""What the API says, with status 400, to a prompt that the model cannot hold."""
CREDIT_TOO_LOW: Final = "Your credit balance is too low to access the Anthropic API."
"""What the API says, with status 400, to an account without money."""


class Text(msgspec.Struct, frozen=True):
    """A text, in the pieces that it is streamed in."""

    pieces: tuple[str, ...]

    def __post_init__(self) -> None:
        _check_texts(self.pieces)


class Thinking(msgspec.Struct, frozen=True):
    """A thought, in the pieces that it is streamed in."""

    pieces: tuple[str, ...]
    signature: str = "c2lnbmF0dXJl"

    def __post_init__(self) -> None:
        _check_texts(self.pieces)


class ToolUse(msgspec.Struct, frozen=True):
    """A call of a tool."""

    name: str
    input: Mapping[str, object] = {}
    id: str | None = None
    """Unset: one is made up each time that the step is played."""
    steps: tuple[Item, ...] | None = None
    """For a call that starts a subagent: what that one answers. Unset: what the script has for any."""
    writes_plan: bool = False
    """Whether its `plan` is written first to the file that the agent reads plans from."""
    chunks: int = 1
    """In how many pieces the input is streamed, at most."""
    result: str | None = None
    """What the simulated agent returns instead of running the tool; the real program runs it."""

    def __post_init__(self) -> None:
        name = cast("object", self.name)
        if not isinstance(name, str) or not name:
            raise OptionsError(f"The name of a tool is {name!r}", hint='Write it: `use_tool("Read", …)`.')
        try:
            json.dumps(self.input, allow_nan=False)
        except (TypeError, ValueError) as error:
            hint = "Give what a model can: texts, numbers, lists and mappings."
            raise OptionsError(f"The input of {self.name!r} cannot be JSON: {error}", hint=hint) from error
        result = cast("object", self.result)
        if not isinstance(result, str | None):
            raise OptionsError(f"The `tool_result` of {self.name!r} is {result!r:.80}", hint="Give a text.")


Block: TypeAlias = Text | Thinking | ToolUse


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One message of the model."""

    blocks: tuple[Block, ...]
    stop_reason: str | None = None
    """Unset: `tool_use` if it uses a tool, else `end_turn`."""
    stop_details: Mapping[str, object] | None = None
    usage: Mapping[str, object] = {}
    """What differs from a few made-up tokens."""
    model: str | None = None
    """Unset: the model that was asked."""
    headers: Mapping[str, str] = {}
    delay: float = 0.0
    """Seconds to wait before each piece."""
    gate: Gate | None = None
    """Where to stop until a test lets it continue."""

    def __post_init__(self) -> None:
        delay = cast("object", self.delay)
        if not isinstance(delay, int | float) or not delay >= 0:
            raise OptionsError(f"`delay` is {delay!r}", hint="Give seconds.")


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """An error of the API."""

    status: int
    type: str
    message: str
    headers: Mapping[str, str] = {}
    after: str | None = None
    """Unset: the answer is the error. Else a stream starts with this text, and then holds the error."""


class Hang(msgspec.Struct, frozen=True):
    """No answer, until all that hang are released."""

    then: Answer | Failure | Drop | None = None
    """What is answered then; unset: the connection is cut."""

    def __post_init__(self) -> None:
        then = cast("object", self.then)
        if then is not None and not isinstance(then, Answer | Failure | Drop):
            hint = 'Give `say("…")` or `fail(…)`.'
            raise OptionsError(f"What follows a `hang` is {then!r:.80}", hint=hint)


class Drop(msgspec.Struct, frozen=True):
    """A connection that is cut."""

    after: str | None = None
    """Unset: before any answer. Else in the middle of a message, after this text."""


Step: TypeAlias = Answer | Failure | Hang | Drop
"""What happens to one request."""


def _check_texts(pieces: tuple[object, ...]) -> None:
    for piece in pieces:
        if not isinstance(piece, str):
            hint = f"Write `str(…)` around it, or `*` before it if it is a list. It is {piece!r:.60}."
            raise OptionsError(f"A model says texts, and no {type(piece).__name__}", hint=hint)


def say(
    *text: str,
    chunks: int | None = None,
    stop_reason: str | None = None,
    usage: Mapping[str, object] | None = None,
    model: str | None = None,
    headers: Mapping[str, str] | None = None,
    delay: float = 0.0,
    gate: Gate | None = None,
) -> Answer:
    """The model says this text.

    It is streamed in the pieces that are given, or in as many equal `chunks`; one text that has a `delay` or
    a `gate` is streamed word by word.

    Raises `OptionsError` if `chunks` is below 1, and for what is not text.
    """
    _check_texts(text)
    if chunks is not None:
        text = split("".join(text), chunks)
    elif len(text) == 1 and (delay or gate):
        text = tuple(re.findall(r"\s*\S+\s*", text[0])) or text
    return Answer(
        blocks=(Text(text),),
        stop_reason=stop_reason,
        usage=usage or {},
        model=model,
        headers=headers or {},
        delay=delay,
        gate=gate,
    )


def split(text: str, count: int) -> tuple[str, ...]:
    """A text in so many pieces of one size, or fewer if it is short."""
    if count < 1:
        raise OptionsError(f"`chunks` is {count}", hint="Give a number from 1 on, or leave it out.")
    size = max(1, -(-len(text) // count))
    return tuple(text[start : start + size] for start in range(0, len(text), size)) or ("",)


def think(*text: str, then: Answer | None = None) -> Answer:
    """The model thinks this, in these pieces, and `then` continues in the same message."""
    thought = Answer(blocks=(Thinking(text),))
    return thought if then is None else answer(thought, then)


def use_tool(
    tool: str | Callable[..., object],
    given: Mapping[str, object] | None = None,
    /,
    *,
    tool_use_id: str | None = None,
    tool_result: str | None = None,
    **input: object,
) -> Answer:
    """The model calls a tool, with the input as keywords, as a mapping, or both. One of yours may be given by
    its name, or itself.

    The simulated agent runs Bash, Read, Write, Edit and your own tools. For any other tool, give the
    `tool_result` that it returns. The real program runs its tools itself, and ignores `tool_result`.

    Several calls in one message, which run side by side, are an `answer()` of several.

    Raises `OptionsError` for an input that cannot be JSON, and for a result that is not text.
    """
    name = cast("str", tool_name("the tool of a step", tool))
    mapping = cast("object", given)
    if mapping is not None and not isinstance(mapping, Mapping):
        raise OptionsError(f"The input of {name!r} is {mapping!r:.80}", hint="Give a mapping, or keywords.")
    return Answer(blocks=(ToolUse(name, {**(given or {}), **input}, tool_use_id, result=tool_result),))


def answer(
    *parts: Answer,
    chunks: int | None = None,
    stop_reason: str | None = None,
    usage: Mapping[str, object] | None = None,
    model: str | None = None,
    headers: Mapping[str, str] | None = None,
    delay: float = 0.0,
    gate: Gate | None = None,
) -> Answer:
    """One message that is made of several: `answer(think("…"), say("…"), use_tool(…), use_tool(…))`.

    Each block is streamed in as many equal `chunks`, the input of a tool too. What is not given here is taken
    from the last part that has it.

    Raises `OptionsError` if `chunks` is below 1, and for what is not part of a message.
    """
    for each in cast("tuple[object, ...]", parts):
        if not isinstance(each, Answer):
            hint = "Only what `say()`, `think()`, `use_tool()` and the like make can be in one."
            raise OptionsError(f"{each!r:.80} is not part of a message", hint=hint)
    whole = Answer(
        blocks=(),
        stop_reason=stop_reason,
        usage=usage or {},
        model=model,
        headers=headers or {},
        delay=delay,
        gate=gate,
    )
    for part in reversed(parts):
        whole = Answer(
            blocks=tuple(_in_chunks(block, chunks) for block in part.blocks) + whole.blocks,
            stop_reason=whole.stop_reason or part.stop_reason,
            stop_details=whole.stop_details or part.stop_details,
            usage=whole.usage or part.usage,
            model=whole.model or part.model,
            headers=whole.headers or part.headers,
            delay=whole.delay or part.delay,
            gate=whole.gate or part.gate,
        )
    return whole


def _in_chunks(block: Block, count: int | None) -> Block:
    if count is None:
        return block
    match block:
        case ToolUse():
            split("", count)
            return msgspec.structs.replace(block, chunks=count)
        case Text(pieces) | Thinking(pieces):
            return msgspec.structs.replace(block, pieces=split("".join(pieces), count))


def refuse(text: str = "", *, category: str = "cyber") -> Answer:
    """The model stops with a refusal, perhaps after a text."""
    details = {"type": "refusal", "category": category, "explanation": None}
    blocks = (Text((text,)),) if text else ()
    return Answer(blocks=blocks, stop_reason="refusal", stop_details=details)


_ERRORS: Final = {
    400: ("invalid_request_error", "The request is invalid."),
    401: ("authentication_error", "invalid x-api-key"),
    402: ("billing_error", "There is a problem with billing."),
    403: ("permission_error", "This key may not use that."),
    404: ("not_found_error", "Not found."),
    413: ("request_too_large", "Request exceeds the maximum size"),
    429: ("rate_limit_error", "This request would exceed the rate limit."),
    500: ("api_error", "Internal server error"),
    504: ("timeout_error", "The request took too long."),
    529: ("overloaded_error", "Overloaded"),
}


def fail(
    status: int,
    *,
    type: str | None = None,
    message: str | None = None,
    headers: Mapping[str, str] | None = None,
    retry_after: float | None = None,
    after: str | None = None,
) -> Failure:
    """The API answers with an error.

    `type` and `message` follow from the status if they are left out; `PROMPT_TOO_LONG` and `CREDIT_TOO_LOW`
    are messages that the agent knows. A 429 reports a used-up limit in its headers. With `after`, the stream
    starts well, with that text, and the error is an event in it.

    The agent tries again after 401, 429, 500 and 529, ten times, and less often after others, but not after
    403 and 413; set `CLAUDE_CODE_MAX_RETRIES` for it.

    Raises `OptionsError` for a status that is not an error.
    """
    if not 400 <= status <= 599:
        hint = "Errors have one from 400 to 599; for an answer use `say()`."
        raise OptionsError(f"`status` is {status}", hint=hint)
    usual = _ERRORS.get(status) or _ERRORS[400 if status < 500 else 500]
    made: dict[str, str] = {}
    if status == 429:
        reset = datetime.now(UTC) + timedelta(seconds=60.0 if retry_after is None else retry_after)
        made |= _limit("requests", reset)
    if retry_after is not None:
        made["retry-after"] = f"{retry_after:g}"
    return Failure(
        status=status,
        type=usual[0] if type is None else type,
        message=usual[1] if message is None else message,
        headers=made | dict(headers or {}),
        after=after,
    )


def _limit(kind: str, reset: datetime) -> dict[str, str]:
    facts: Iterable[tuple[str, str]] = (
        ("limit", "50"),
        ("remaining", "0"),
        ("reset", reset.strftime("%Y-%m-%dT%H:%M:%SZ")),
    )
    return {f"anthropic-ratelimit-{kind}-{name}": value for name, value in facts}


def hang(then: Answer | Failure | Drop | None = None) -> Hang:
    """The request is accepted and not answered until `MessagesApi.release()`.

    Then it gets this answer, or the connection is cut; it is, too, when the API closes.
    """
    return Hang(then)


def drop(*, after: str | None = None) -> Drop:
    """The connection is cut: before any answer, or in the middle of a message `after` this text."""
    return Drop(after)


_USAGE: Final[JsonObject] = {
    "input_tokens": 10,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
    "output_tokens": 5,
}
_BLANK: Final[JsonObject] = {"text": "", "thinking": "", "signature": "", "input": {}}


class Event(NamedTuple):
    """An event of a stream."""

    data: JsonObject
    is_piece: bool = False
    """Whether it carries a piece of a block: gates and delays are counted by these."""


def message_of(answer: Answer, *, id: str, model: str) -> JsonObject:
    """The answer as one JSON object. Calls of tools that have no id get one that follows from this one."""
    blocks = [_block(block, f"{id.replace('msg', 'toolu')}_{at}") for at, block in enumerate(answer.blocks)]
    uses_tool = any(isinstance(block, ToolUse) for block in answer.blocks)
    body: JsonObject = {
        "id": id,
        "type": "message",
        "role": "assistant",
        "model": answer.model or model,
        "content": blocks,
        "stop_reason": answer.stop_reason or ("tool_use" if uses_tool else "end_turn"),
        "stop_sequence": None,
        "usage": {**_USAGE, **answer.usage},
    }
    if answer.stop_details is not None:
        body["stop_details"] = dict(answer.stop_details)
    return body


def _block(block: Block, id: str) -> JsonObject:
    match block:
        case Text(pieces):
            return {"type": "text", "text": "".join(pieces)}
        case Thinking(pieces, signature):
            return {"type": "thinking", "thinking": "".join(pieces), "signature": signature}
        case ToolUse(name, given, chosen):
            return {"type": "tool_use", "id": chosen or id, "name": name, "input": dict(given)}


def events_of(answer: Answer, body: JsonObject) -> Iterator[Event]:
    """The events that a message is streamed in; `body` is the same message whole."""
    usage: JsonObject = body["usage"]
    opening = {key: value for key, value in body.items() if key != "stop_details"}
    # Before it has written anything, the model has counted one token.
    opening |= {"content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    yield Event({"type": "message_start", "message": opening})
    for index, block in enumerate(answer.blocks):
        blank = {key: _BLANK.get(key, value) for key, value in body["content"][index].items()}
        yield Event({"type": "content_block_start", "index": index, "content_block": blank})
        for delta in _deltas(block):
            data: JsonObject = {"type": "content_block_delta", "index": index, "delta": delta}
            yield Event(data, delta["type"] != "signature_delta")
        yield Event({"type": "content_block_stop", "index": index})
    ending = {key: body[key] for key in ("stop_reason", "stop_sequence", "stop_details") if key in body}
    yield Event({"type": "message_delta", "delta": ending, "usage": usage})
    yield Event({"type": "message_stop"})


def count_pieces(answer: Answer) -> int:
    """How many pieces there are in its stream."""
    return sum(
        len(_input_pieces(block)) if isinstance(block, ToolUse) else len(block.pieces)
        for block in answer.blocks
    )


def _deltas(block: Block) -> Iterator[JsonObject]:
    match block:
        case Text(pieces):
            for piece in pieces:
                yield {"type": "text_delta", "text": piece}
        case Thinking(pieces, signature):
            for piece in pieces:
                yield {"type": "thinking_delta", "thinking": piece}
            yield {"type": "signature_delta", "signature": signature}
        case ToolUse():
            for piece in _input_pieces(block):
                yield {"type": "input_json_delta", "partial_json": piece}


def _input_pieces(block: ToolUse) -> tuple[str, ...]:
    return split(json.dumps(dict(block.input), ensure_ascii=False), block.chunks)
