"""What a stream of frames holds, as closed unions: for annotations, and for `match` with nothing left out.

Only names; the classes are elsewhere.
"""

from __future__ import annotations

from typing import TypeAlias

from outrider.wire._control import (
    ControlCancelRequest,
    ControlRequest,
    ControlResponse,
    KeepAlive,
    TranscriptMirror,
    UpdateEnvironmentVariables,
)
from outrider.wire._messages import (
    ActiveGoalMessage,
    AssistantMessage,
    AttachmentMessage,
    AuthStatusMessage,
    AutocompactStateMessage,
    CommandLifecycleMessage,
    ConversationResetMessage,
    MalformedLine,
    OversizedMessage,
    PromptSuggestionMessage,
    RateLimitEvent,
    ResultMessage,
    ToolProgressMessage,
    ToolUseSummaryMessage,
    UnknownMessage,
    UserMessage,
)
from outrider.wire._stream_event import StreamEvent
from outrider.wire._system_message import SystemMessage

ControlFrame: TypeAlias = ControlRequest | ControlResponse | ControlCancelRequest
"""Requests and answers, which the two ends settle between themselves."""

ServiceFrame: TypeAlias = KeepAlive | TranscriptMirror | UpdateEnvironmentVariables
"""What serves the connection and is neither message nor request."""

MessageFrame: TypeAlias = (
    UserMessage
    | AssistantMessage
    | SystemMessage
    | ResultMessage
    | StreamEvent
    | ToolProgressMessage
    | ToolUseSummaryMessage
    | RateLimitEvent
    | AuthStatusMessage
    | AttachmentMessage
    | PromptSuggestionMessage
    | ConversationResetMessage
    | CommandLifecycleMessage
    | ActiveGoalMessage
    | AutocompactStateMessage
    | UnknownMessage
)
"""A message that came as a frame."""

Message: TypeAlias = MessageFrame | MalformedLine | OversizedMessage
"""What the agent has to say: all that reaches the user."""

AnyFrame: TypeAlias = MessageFrame | ControlFrame | ServiceFrame
"""Whatever one line may be."""

Arrival: TypeAlias = AnyFrame | MalformedLine | OversizedMessage
"""Anything that comes out of a stream."""
