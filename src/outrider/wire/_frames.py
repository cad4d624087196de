"""Defines the control and service frames, and the unions of all frames, for exhaustive `match`.

Messages are in `_messages` and `_system`, the contents of control frames in `outrider.wire.control`.
"""

from __future__ import annotations

from typing import ClassVar, Final, Literal, TypeAlias

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
    StreamEvent,
    ToolProgressMessage,
    ToolUseSummaryMessage,
    UnknownMessage,
    UserMessage,
)
from outrider.wire._system import SystemMessage
from outrider.wire._value import Frame, Json, JsonObject, Number, Value

RequestId: TypeAlias = str | Number
"""Ids of requests: text by custom, but a number is answered as well."""

UNSUPPORTED_REQUEST: Final = "unsupported_request"
"""The error code for a request that the other side does not know."""


class ControlRequest(Frame, tag_field="type", tag="control_request"):
    """One side asks the other for something; `request` names it by its `subtype`."""

    type: ClassVar[Literal["control_request"]] = "control_request"

    request_id: RequestId
    request: JsonObject


class ControlOutcome(Value):
    """The answer to one request: `success` with a payload, or `error` with a text."""

    subtype: str
    request_id: RequestId | None = None
    response: Json = None
    error: str | None = None
    error_code: str | None = None
    pending_permission_requests: list[JsonObject] | None = None
    """With an answer to `initialize`: requests that were open before, to be taken up again."""
    pending_user_dialog_requests: list[JsonObject] | None = None
    pending_elicitation_requests: list[JsonObject] | None = None
    model: str | None = None
    """With a refused `set_model`: the model that stays."""


class ControlResponse(Frame, tag_field="type", tag="control_response"):
    """Carries the answer to a request."""

    type: ClassVar[Literal["control_response"]] = "control_response"

    response: ControlOutcome


class ControlCancelRequest(Frame, tag_field="type", tag="control_cancel_request"):
    """The asker takes its own request back; there is no answer."""

    type: ClassVar[Literal["control_cancel_request"]] = "control_cancel_request"

    request_id: RequestId


class KeepAlive(Frame, tag_field="type", tag="keep_alive"):
    """Says only that the sender is alive."""

    type: ClassVar[Literal["keep_alive"]] = "keep_alive"

    startup_mark: str | None = None
    """A step of the start that was reached."""


class TranscriptMirror(Frame, tag_field="type", tag="transcript_mirror", rename={"file_path": "filePath"}):
    """Entries that the agent appended to a transcript file, for a copy elsewhere."""

    type: ClassVar[Literal["transcript_mirror"]] = "transcript_mirror"

    file_path: str
    entries: list[JsonObject]


class UpdateEnvironmentVariables(Frame, tag_field="type", tag="update_environment_variables"):
    """From the host: variables to set in the agent's environment."""

    type: ClassVar[Literal["update_environment_variables"]] = "update_environment_variables"

    variables: dict[str, str] = {}


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
