"""What type checkers see: checked by mypy and pyright in strict mode, run here as well."""

from __future__ import annotations

from typing import Any, assert_never, assert_type

from outrider.wire import (
    ActiveGoalMessage,
    AnyFrame,
    Arrival,
    AssistantMessage,
    AttachmentMessage,
    AuthStatusMessage,
    AutocompactStateMessage,
    CommandLifecycleMessage,
    ContentBlock,
    ConversationResetMessage,
    Framer,
    JsonObject,
    MalformedLine,
    Message,
    OversizedMessage,
    PromptSuggestionMessage,
    RateLimitEvent,
    ResultMessage,
    StreamEvent,
    SystemMessage,
    TextBlock,
    ToolProgressMessage,
    ToolUseBlock,
    ToolUseSummaryMessage,
    UnknownMessage,
    UserMessage,
    Value,
    decode,
)
from outrider.wire.shapes import ApiEvent, ModelUsage, Usage


def kind_of(message: Message) -> str:
    """Every message there is: leaving one out is an error of type."""
    match message:
        case UserMessage() | AssistantMessage() | SystemMessage() | ResultMessage() | StreamEvent():
            return "conversation"
        case ToolProgressMessage() | ToolUseSummaryMessage() | RateLimitEvent() | AuthStatusMessage():
            return "state"
        case PromptSuggestionMessage() | ConversationResetMessage() | CommandLifecycleMessage():
            return "news"
        case ActiveGoalMessage() | AttachmentMessage() | AutocompactStateMessage() | UnknownMessage():
            return "other"
        case MalformedLine() | OversizedMessage():
            return "damage"
        case _:
            assert_never(message)


def test_a_match_over_all_messages() -> None:
    assert kind_of(UserMessage("x")) == "conversation"
    assert kind_of(MalformedLine(b"", "")) == "damage"


def test_what_decoding_gives() -> None:
    frame = decode(b'{"type":"keep_alive"}')
    assert_type(frame, AnyFrame)
    assert_type(Framer().feed(b""), list[Arrival])


def test_fields_have_types() -> None:
    message = AssistantMessage([TextBlock("x")], "m")
    assert_type(message.content, list[ContentBlock])
    assert_type(message.tool_uses, list[ToolUseBlock])
    assert_type(message.usage, Usage | None)
    result = ResultMessage("success", 1, 1, False, 1, "s")
    assert_type(result.model_usage, dict[str, ModelUsage] | None)
    assert_type(result.structured_output, Any)
    event = StreamEvent("u", "s", {"type": "ping"})
    assert_type(event.event, ApiEvent)
    assert_type(ToolUseBlock("t", "n", {}).typed(), Value | JsonObject)
