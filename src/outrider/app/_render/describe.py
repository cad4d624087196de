"""Describes a frame in a few lines: who speaks, and the words.

Does not print: the layouts in `page` and `stream` do.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Final, Literal, NamedTuple, TypeAlias, cast

import msgspec

from outrider.app._terminal import one_line, printable
from outrider.wire import (
    ApiRetryMessage,
    AssistantMessage,
    CompactBoundaryMessage,
    ContentBlock,
    ControlCancelRequest,
    ControlRequest,
    ControlResponse,
    InformationalMessage,
    InitMessage,
    MalformedLine,
    ModelFallbackMessage,
    OversizedMessage,
    PermissionDeniedMessage,
    ResultMessage,
    StreamEvent,
    TaskNotificationMessage,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UnknownMessage,
    UserMessage,
)
from outrider.wire.control import CanUseTool, HookCallback, ask_from_wire, request_from_wire

__all__ = ["Kind", "Said", "call_in_words", "money", "outcome", "said", "shortened", "tool_name"]

Kind: TypeAlias = Literal[
    "user",
    "agent",
    "thinks",
    "tool",
    "returns",
    "fails",
    "asks",
    "answer",
    "request",
    "refused",
    "note",
    "done",
    "failed",
]
"""Who speaks, or what happens."""


class Said(NamedTuple):
    """Something to show: what kind of thing it is, its heading, and its words."""

    kind: Kind
    text: str
    name: str = ""
    """Of a tool call: the tool."""
    is_aside: bool = False
    """Said by a subagent, or otherwise beside the conversation."""


# The field that tells most about a call.
_TELLING: Final[Mapping[str, str]] = {
    "Bash": "command",
    "Read": "file_path",
    "Write": "file_path",
    "Edit": "file_path",
    "MultiEdit": "file_path",
    "NotebookEdit": "notebook_path",
    "Glob": "pattern",
    "Grep": "pattern",
    "WebFetch": "url",
    "WebSearch": "query",
    "Agent": "description",
    "Task": "description",
    "Skill": "skill",
    "ToolSearch": "query",
}
_LONG: Final = 200


def said(
    message: object, *, cwd: str | None = None, is_from_agent: bool = True, with_requests: bool = False
) -> Iterator[Said]:
    """What there is to show of a frame; stream events have nothing: their message follows.

    `with_requests`: of what the two sides ask each other, too.
    """
    match message:
        case UserMessage() if not is_from_agent or message.is_replay:
            if text := message.text.strip():
                yield Said("user", printable(text))
        case UserMessage(content=list(blocks)) | AssistantMessage(content=list(blocks)):
            is_aside = message.parent_tool_use_id is not None
            for block in blocks:
                for each in _of_block(block, cwd, is_spoken=isinstance(message, AssistantMessage)):
                    yield each._replace(is_aside=is_aside)
        case ResultMessage():
            yield Said("done" if message.is_success else "failed", outcome(message))
        case ControlRequest() | ControlResponse() | ControlCancelRequest():
            if with_requests:
                yield from _of_request(message, cwd, is_from_agent)
        case StreamEvent():
            pass
        case _:
            if note := _note(message):
                yield Said("note", one_line(note))


def _of_block(block: ContentBlock, cwd: str | None, *, is_spoken: bool) -> Iterator[Said]:
    match block:
        case TextBlock(text):
            # What stands in the user's role beside tool results was written by the agent itself.
            if text.strip() and is_spoken:
                yield Said("agent", printable(text.strip("\n")))
        case ThinkingBlock(thinking):
            if thinking.strip():
                yield Said("thinks", printable(thinking.strip()))
        case ToolUseBlock(name=name, input=input):
            yield Said("tool", call_in_words(name, input, cwd), tool_name(name))
        case ToolResultBlock():
            text = printable(_from_here(block.text.strip("\n"), cwd)) or "(nothing)"
            yield Said("fails" if block.is_error else "returns", text)
        case _:
            pass


def _of_request(
    frame: ControlRequest | ControlResponse | ControlCancelRequest, cwd: str | None, is_from_agent: bool
) -> Iterator[Said]:
    match frame:
        case ControlRequest(request=request) if is_from_agent:
            asked = ask_from_wire(request)
            if isinstance(asked, CanUseTool):
                what = call_in_words(asked.tool_name, asked.input, cwd)
                yield Said("asks", f"may it use {tool_name(asked.tool_name)}? {what}".rstrip())
            elif isinstance(asked, HookCallback):
                yield Said("asks", one_line(f"the hook {_hook_event(request)}"))
        case ControlRequest(request=request):
            yield Said("request", one_line(request_from_wire(request).subtype))
        case ControlResponse(response=response) if is_from_agent:
            if response.error:
                yield Said("refused", printable(response.error))
        case ControlResponse(response=response):
            if answer := _answer(response.response, response.error):
                yield Said("answer", printable(answer))
        case _:
            yield Said("note", "takes its question back")


def _hook_event(request: Mapping[str, object]) -> str:
    given = request.get("input")
    if not isinstance(given, Mapping):
        return ""
    fields = cast("Mapping[str, object]", given)
    return " ".join(str(fields[name]) for name in ("hook_event_name", "tool_name") if fields.get(name))


def _answer(payload: object, error: str | None) -> str:
    if error:
        return error
    if not isinstance(payload, Mapping):
        return ""
    fields = cast("Mapping[str, object]", payload)
    if "behavior" in fields:
        return f"{fields['behavior']} {fields.get('message') or ''}".strip()
    own = fields.get("hookSpecificOutput")
    if isinstance(own, Mapping):
        decided = cast("Mapping[str, object]", own)
        parts = (decided.get("permissionDecision"), decided.get("permissionDecisionReason"))
        return " ".join(str(part) for part in parts if part)
    return ""


def _note(message: object) -> str:
    match message:
        case InitMessage(model=model, tools=tools, permission_mode=mode):
            return f"{model}, {len(tools)} tools, permission mode {mode}"
        case ApiRetryMessage():
            status = f"status {message.error_status}" if message.error_status else "no answer"
            return f"the API failed ({status}): attempt {message.attempt} of {message.max_retries}"
        case CompactBoundaryMessage():
            return "the conversation was compacted"
        case PermissionDeniedMessage(tool_name=name):
            return f"{tool_name(name)} was denied by the agent's own rules"
        case ModelFallbackMessage():
            return "another model has taken over"
        case InformationalMessage(content=content):
            return content
        case TaskNotificationMessage():
            return f"background task {message.status}: {message.summary}"
        case MalformedLine():
            return f"noise on the agent's stdout: {message.text}"
        case OversizedMessage():
            return f"a message of {message.size:,} bytes was left out"
        case UnknownMessage(type=type):
            return f"a message of an unknown type: {type}"
        case _:
            return ""


def tool_name(name: str) -> str:
    """A tool's name for people: `mcp__tools__lookup` is the `lookup` of their own."""
    if not name.startswith("mcp__"):
        return one_line(name)
    server, _, tool = name.removeprefix("mcp__").partition("__")
    return one_line(tool if server == "tools" else f"{server}.{tool}")


def call_in_words(name: str, input: Mapping[str, object], cwd: str | None = None) -> str:
    """What a tool is called with, on one line."""
    telling = input.get(_TELLING.get(name, ""))
    if isinstance(telling, str):
        text = _relative(telling, cwd) if name not in ("Bash", "WebFetch") else telling
    else:
        text = " ".join(f"{key}={_value(value)}" for key, value in input.items())
    return shortened(one_line(text))


def _value(value: object) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode()


def _relative(path: str, cwd: str | None) -> str:
    """A path as seen from the working folder, if it is in there."""
    if cwd is None or not os.path.isabs(path):  # noqa: PTH117 - a text of the agent's, perhaps of another system
        return path
    return path.removeprefix(cwd.rstrip("/") + "/")


def _from_here(text: str, cwd: str | None) -> str:
    """A text with its paths as seen from the working folder."""
    return text.replace(cwd.rstrip("/") + "/", "") if cwd and cwd != "/" else text


def shortened(text: str, length: int = _LONG) -> str:
    """The beginning of a text that is too long."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


def outcome(result: ResultMessage) -> str:
    """How a turn ended, on one line."""
    if not result.is_success and (result.errors or result.result):
        return shortened(one_line((result.errors or [str(result.result)])[0]))
    words = "" if result.is_success else f"{one_line(result.subtype)}, "
    seconds = result.duration_ms / 1000
    return f"{words}{result.num_turns} model calls, {seconds:.1f} s, {money(result.cost_usd)} so far"


def money(usd: float) -> str:
    """An amount, with as many digits as say something."""
    return f"${usd:.2f}" if usd >= 0.995 else f"${usd:.4f}"
