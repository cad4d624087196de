"""Defines the frames: messages of a conversation, control and service frames, and their unions.

Names and leading fields are in the reference SDK's order, so that both APIs can share the classes. System
messages are in `_system`, the contents of control frames in `outrider.wire.control`; `_decoding` turns lines
into frames.
"""

from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeAlias

import msgspec

from outrider.errors import FrameTooLarge, MalformedFrame
from outrider.wire._blocks import ContentBlock, TextBlock, ThinkingBlock, ToolUseBlock
from outrider.wire._system import SystemMessage
from outrider.wire._tolerant import convert_leniently
from outrider.wire._value import Frame, Json, JsonObject, Number, PartlyDecoded, Value, decode_on_use

if TYPE_CHECKING:
    from outrider.wire.choices import AssistantMessageError, RateLimitStatus, RateLimitType, TerminalReason
    from outrider.wire.shapes import (
        AbandonedBlocks,
        ActiveGoal,
        ApiEvent,
        InvalidConfigFile,
        LocalCommandOutcome,
        LocalCommandRun,
        MessageOrigin,
        ModelUsage,
        PermissionDenial,
        SubagentRetry,
        ToolResultMeta,
        ToolUseMeta,
        Usage,
    )
    from outrider.wire.tools import ToolOutput
else:
    # Plain dicts when decoding: msgspec would drop every key that a TypedDict does not name.
    MessageOrigin = Usage = ModelUsage = PermissionDenial = ToolUseMeta = ToolResultMeta = dict
    ActiveGoal = InvalidConfigFile = LocalCommandOutcome = LocalCommandRun = dict
    AbandonedBlocks = SubagentRetry = dict
    # Left undecoded until someone looks at it.
    ApiEvent = msgspec.Raw
    # Open sets: any text is accepted.
    AssistantMessageError = RateLimitStatus = RateLimitType = TerminalReason = str


def _as_sent(value: Json) -> Json:
    return value


def _object_or_none(value: Json) -> Json:
    return value if isinstance(value, dict) else None


def _objects_or_none(value: Json) -> Json:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else None


class UserMessage(
    PartlyDecoded,
    rename={"is_replay": "isReplay", "is_synthetic": "isSynthetic", "should_query": "shouldQuery"},
):
    """A message in the user's role: a prompt, a tool result, or a note that the agent wrote itself."""

    type: ClassVar[Literal["user"]] = "user"
    content: str | list[ContentBlock]
    uuid: str | None = None
    parent_tool_use_id: str | None = None
    """The call of the Agent tool to whose subagent this belongs; None on the main thread."""
    tool_use_result: Json = None
    """The tool's own result object; a text (`"Error: …"`) where it failed."""
    origin: MessageOrigin | None = None
    session_id: str | None = None
    timestamp: str | None = None
    is_replay: bool | None = None
    """The agent repeats a message that was sent to it."""
    is_synthetic: bool | None = None
    """Written by the agent, not by a person: hook feedback, summaries, nudges."""
    agent_id: str | None = None
    subagent_type: str | None = None
    task_description: str | None = None
    tool_result_meta: list[ToolResultMeta] | None = None
    refused_message_id: str | None = None
    priority: str | None = None
    """When a queued message is taken: `now`, `next` or `later`."""
    should_query: bool | None = None
    """False: added to the conversation without a turn of its own."""
    client_composed: bool | None = None
    """True: slash commands and @mentions in the text mean nothing."""
    file_attachments: list[JsonObject] | None = None
    pasted_content: Json = None
    inline_pastes: Json = None

    @property
    def text(self) -> str:
        """The text of the message, all text blocks joined with nothing."""
        return self.content if isinstance(self.content, str) else _joined_text(self.content)

    def typed_output(self, tool: str) -> "ToolOutput | list[ToolOutput] | Json":
        """What a built-in tool gave back as a typed value (`BashOutput`, …), or `tool_use_result` where none
        fits. The message does not name the tool; its call does, and `Result.tool_calls` has both."""
        from outrider.wire.tools import typed_output

        return typed_output(tool, self.tool_use_result)


decode_on_use(UserMessage, tool_use_result=_as_sent, tool_result_meta=_objects_or_none)


class AssistantMessage(PartlyDecoded):
    """What the model said: one content block for each message while a turn runs."""

    type: ClassVar[Literal["assistant"]] = "assistant"
    content: list[ContentBlock]
    model: str
    parent_tool_use_id: str | None = None
    """The call of the Agent tool to whose subagent this belongs; None on the main thread."""
    error: AssistantMessageError | None = None
    """Set if the agent reports a failure of the API as a message; the text says which."""
    usage: Usage | None = None
    """As known when the block began; the turn's figures are those of its result."""
    if TYPE_CHECKING:

        @property
        def undecoded_usage(self) -> msgspec.Raw | Usage | None: ...

    message_id: str | None = None
    """The API's id: the same for all blocks of one answer."""
    stop_reason: str | None = None
    session_id: str | None = None
    uuid: str | None = None
    user_message_uuid: str | None = None
    user_message_uuids: list[str] | None = None
    """The sent messages that this answers; on the first message of a turn only."""
    timestamp: str | None = None
    request_id: str | None = None
    """The API's request id."""
    thinking_duration_ms: int | None = None
    thinking_display: str | None = None
    tool_use_meta: list[ToolUseMeta] | None = None
    aborted: bool | None = None
    """True if an interrupt cut the message off."""
    supersedes: list[str] | None = None
    """Uuids of earlier messages that this one replaces."""
    agent_id: str | None = None
    subagent_type: str | None = None
    task_description: str | None = None
    is_api_error_message: bool | None = None
    api_error_status: int | None = None
    api_error_type: str | None = None
    api_error: str | None = None
    api_error_params: JsonObject | None = None
    refused_message_id: str | None = None
    local_command_source: str | None = None
    local_command_run: LocalCommandRun | None = None
    local_command_outcome: LocalCommandOutcome | None = None
    context_usage: JsonObject | None = None
    usage_report: JsonObject | None = None
    resume_reason: str | None = None
    resumed_from_incomplete_thinking: bool | None = None
    stop_sequence: str | None = None
    stop_details: JsonObject | None = None
    container: JsonObject | None = None
    context_management: JsonObject | None = None
    diagnostics: JsonObject | None = None

    @property
    def text(self) -> str:
        """The text of all text blocks, joined."""
        return _joined_text(self.content)

    @property
    def thinking(self) -> str:
        """The text of the first thinking block; empty if there is none."""
        return next((block.thinking for block in self.content if isinstance(block, ThinkingBlock)), "")

    @property
    def tool_uses(self) -> list[ToolUseBlock]:
        """The tool calls, in order."""
        return [block for block in self.content if isinstance(block, ToolUseBlock)]


decode_on_use(AssistantMessage, usage=_object_or_none)


def _joined_text(content: list[ContentBlock]) -> str:
    return "".join(block.text for block in content if isinstance(block, TextBlock))


class DeferredToolUse(Value):
    """A tool call that a hook put off; the turn ended without it."""

    id: str
    name: str
    input: JsonObject


class ResultMessage(Frame, tag_field="type", tag="result", rename={"model_usage": "modelUsage"}):
    """The end of a turn, good or bad."""

    type: ClassVar[Literal["result"]] = "result"
    subtype: str
    """`success` or `error_…`; a failed API call is a `success` with `is_error` set."""
    duration_ms: int
    duration_api_ms: int
    """Time spent in the API since the process began."""
    is_error: bool
    num_turns: int
    session_id: str
    stop_reason: str | None = None
    total_cost_usd: float | None = None
    """Since the session began, not for this turn alone: take the last one, never the sum."""
    usage: Usage | None = None
    """Tokens of this turn's main loop."""
    result: str | None = None
    structured_output: Any = None
    """The answer in the form that was asked for, of any JSON type."""
    model_usage: dict[str, ModelUsage] | None = None
    """By model, since the session began, even before it was resumed."""
    permission_denials: list[PermissionDenial] | None = None
    deferred_tool_use: DeferredToolUse | None = None
    errors: list[str] | None = None
    api_error_status: int | None = None
    uuid: str | None = None
    terminal_reason: TerminalReason | None = None
    """Why the turn ended; tells an interrupt (`aborted_…`) from other failures."""
    origin: MessageOrigin | None = None
    """What caused the turn; `task-notification` if it was background work."""
    user_message_uuid: str | None = None
    user_message_uuids: list[str] | None = None
    """The sent messages that this result answers."""
    model_usage_since_last_result: dict[str, ModelUsage] | None = None
    queued_turn_count: int | None = None
    result_index: int | None = None
    api_error_type: str | None = None
    api_error: str | None = None
    startup_failure_reason: str | None = None
    """Why the agent did not start; the turn never ran."""
    invalid_config_file: InvalidConfigFile | None = None
    local_command: str | None = None
    """The slash command that this ends."""
    subagent_stats: JsonObject | None = None
    safety_stops: int | None = None
    fast_mode_state: str | None = None
    fast_mode_disabled_reason: str | None = None
    ttft_ms: int | None = None
    """Time to the first token."""
    ttft_stream_ms: int | None = None
    time_to_request_ms: int | None = None
    time_to_request_from_spawn_ms: int | None = None
    first_content_frame_ms: int | None = None
    request_sent_wall_ms: int | None = None
    first_request_input_tokens: int | None = None
    first_request_cache_read_input_tokens: int | None = None
    warm_spare_claimed: bool | None = None
    credential_expires_at: Json = None
    resume_reason: str | None = None

    @property
    def is_success(self) -> bool:
        """Whether the turn did what it was asked to."""
        return not self.is_error and self.subtype == "success"

    @property
    def cost_usd(self) -> float:
        """The session's cost so far; 0.0 if the agent does not report one."""
        return float(self.total_cost_usd or 0)


class ToolProgressMessage(Frame, tag_field="type", tag="tool_progress"):
    """A tool, or a hook before it, is still at work."""

    type: ClassVar[Literal["tool_progress"]] = "tool_progress"
    tool_use_id: str
    """Made up for a heartbeat; the real id is then in `parent_tool_use_id`."""
    tool_name: str
    parent_tool_use_id: str | None = None
    elapsed_time_seconds: float = 0
    heartbeat: bool | None = None
    task_id: str | None = None
    subagent_type: str | None = None
    subagent_retry: SubagentRetry | None = None
    uuid: str | None = None
    session_id: str | None = None


class ToolUseSummaryMessage(Frame, tag_field="type", tag="tool_use_summary"):
    """A sentence about the tool calls before it."""

    type: ClassVar[Literal["tool_use_summary"]] = "tool_use_summary"
    summary: str
    preceding_tool_use_ids: list[str] = []
    uuid: str | None = None
    session_id: str | None = None


class AuthStatusMessage(
    Frame, tag_field="type", tag="auth_status", rename={"is_authenticating": "isAuthenticating"}
):
    """A sign-in is under way, or has ended."""

    type: ClassVar[Literal["auth_status"]] = "auth_status"
    is_authenticating: bool
    output: list[str] = []
    error: str | None = None
    uuid: str | None = None
    session_id: str | None = None


class AttachmentMessage(Frame, tag_field="type", tag="attachment"):
    """A note beside the conversation: after a resume, for example, what a hook said about a call."""

    type: ClassVar[Literal["attachment"]] = "attachment"
    attachment: JsonObject
    """Its `type` says what it is: `hook_success`, `hook_deferred_tool`, …"""
    parent_tool_use_id: str | None = None
    timestamp: str | None = None
    uuid: str | None = None
    session_id: str | None = None


class PromptSuggestionMessage(Frame, tag_field="type", tag="prompt_suggestion"):
    """What the user might say next; comes after the result."""

    type: ClassVar[Literal["prompt_suggestion"]] = "prompt_suggestion"
    suggestion: str
    uuid: str | None = None
    session_id: str | None = None


class ConversationResetMessage(Frame, tag_field="type", tag="conversation_reset"):
    """The conversation was cleared (`/clear`): a new session id follows, and totals start at 0."""

    type: ClassVar[Literal["conversation_reset"]] = "conversation_reset"
    new_conversation_id: str
    uuid: str | None = None
    session_id: str | None = None
    trigger: str | None = None
    user_message_uuid: str | None = None
    timestamp: str | None = None


class CommandLifecycleMessage(Frame, tag_field="type", tag="command_lifecycle"):
    """What became of a sent message that carries a uuid: queued, started, completed or cancelled."""

    type: ClassVar[Literal["command_lifecycle"]] = "command_lifecycle"
    command_uuid: str
    state: str
    uuid: str | None = None
    session_id: str | None = None


class ActiveGoalMessage(Frame, tag_field="type", tag="active_goal"):
    """The goal that the session works towards was set, moved on, or ended (None)."""

    type: ClassVar[Literal["active_goal"]] = "active_goal"
    value: ActiveGoal | None = None
    uuid: str | None = None
    session_id: str | None = None


class AutocompactStateMessage(Frame, tag_field="type", tag="autocompact_state"):
    """How near automatic compaction is; its fields are in `raw`."""

    type: ClassVar[Literal["autocompact_state"]] = "autocompact_state"
    uuid: str | None = None
    session_id: str | None = None


class RateLimitInfo(Value, rename="camel"):
    """The state of the account's rate limit."""

    status: RateLimitStatus
    resets_at: int | None = None
    """Unix seconds."""
    rate_limit_type: RateLimitType | None = None
    utilization: float | None = None
    overage_status: str | None = None
    overage_resets_at: int | None = None
    overage_disabled_reason: str | None = None
    raw: JsonObject = {}
    """The object as sent."""
    is_using_overage: bool | None = None
    overage_in_use: bool | None = None
    overage_enabled: bool | None = None
    surpassed_threshold: float | None = None
    limit_scope: str | None = None
    error_code: str | None = None
    can_user_purchase_credits: bool | None = None
    has_chargeable_saved_payment_method: bool | None = None


class RateLimitEvent(Frame):
    """The rate limit changed its state."""

    type: ClassVar[Literal["rate_limit_event"]] = "rate_limit_event"
    rate_limit_info: RateLimitInfo
    uuid: str | None = None
    session_id: str | None = None


class UnknownMessage(Frame):
    """A frame of a type that has no class here, or too damaged for its own."""

    type: str
    data: JsonObject
    """The frame as sent."""


class MalformedLine(Value):
    """Output of the agent that is not a frame: noise, or a broken frame."""

    type: ClassVar[Literal["malformed_line"]] = "malformed_line"
    line: bytes
    """The output as sent, without its line end."""
    reason: str
    """Why it is not a frame."""

    @property
    def text(self) -> str:
        """The line as text, with U+FFFD for invalid bytes."""
        return self.line.decode("utf-8", "replace")

    @property
    def raw_json(self) -> bytes:
        """The line: here for the sake of code that treats all messages alike."""
        return self.line

    @property
    def raw(self) -> JsonObject:
        """Nothing: there is no frame."""
        return {}

    def error(self) -> "MalformedFrame":
        """The same as an exception, for those who would rather stop."""
        return MalformedFrame(self.line, self.reason)


class OversizedMessage(Value):
    """A frame over the size limit: dropped, except for its beginning."""

    type: ClassVar[Literal["oversized_message"]] = "oversized_message"
    size: int
    """Bytes in the frame."""
    limit: int
    head: bytes
    """The first bytes of the frame."""
    frame_type: str | None = None
    """The type of the frame, if it could be found."""
    request_id: str | int | None = None
    """Of a control request, if it could be found."""

    @property
    def raw_json(self) -> bytes:
        """What is left of the frame: its first bytes."""
        return self.head

    @property
    def raw(self) -> JsonObject:
        """Nothing: the frame is gone."""
        return {}

    def error(self) -> "FrameTooLarge":
        """The same as an exception, for those who would rather stop."""
        return FrameTooLarge(self.size, self.limit)


# Stream events, which stay undecoded until they are looked at.


class StreamDetails(Value):
    """Fields of a stream event that few events have, or few readers want."""

    api_message_id: str | None = None
    ttft_ms: int | None = None
    """Time to the first token."""
    thinking_display: str | None = None
    user_message_uuid: str | None = None
    user_message_uuids: list[str] | None = None
    """The sent messages that this begins to answer."""
    resume_reason: str | None = None
    owed_rows: list[Any] | None = None
    abandoned_blocks: AbandonedBlocks | None = None


class _Delta(msgspec.Struct, frozen=True, gc=False):
    text: str = ""
    thinking: str = ""
    partial_json: str = ""


class _DeltaEvent(msgspec.Struct, frozen=True, gc=False):
    delta: _Delta = _Delta()


_decode_delta = msgspec.json.Decoder(_DeltaEvent).decode


class StreamEvent(PartlyDecoded, tag_field="type", tag="stream_event"):
    """A piece of a message while the model writes it (`include_partial_messages`).

    The event stays undecoded until `event` or a helper is used: most readers look at few of the many.
    """

    type: ClassVar[Literal["stream_event"]] = "stream_event"
    uuid: str
    session_id: str
    event: ApiEvent
    """The API's own event, as a dict."""
    parent_tool_use_id: str | None = None
    if TYPE_CHECKING:

        @property
        def undecoded_event(self) -> msgspec.Raw | ApiEvent: ...

    @property
    def details(self) -> StreamDetails:
        """The other fields of the frame, decoded again on each access: that keeps streams fast."""
        return convert_leniently(StreamDetails, self.raw)

    @property
    def user_message_uuid(self) -> str | None:
        """The same as in `details`."""
        return self.details.user_message_uuid

    @property
    def user_message_uuids(self) -> list[str] | None:
        """The same as in `details`."""
        return self.details.user_message_uuids

    @property
    def text(self) -> str:
        """The text that this event adds to the answer; empty for all but text deltas."""
        return self._delta().text

    @property
    def thinking(self) -> str:
        """The thinking that this event adds; empty for all but thinking deltas."""
        return self._delta().thinking

    @property
    def partial_json(self) -> str:
        """The piece of a tool's input that this event adds; empty for all but input deltas."""
        return self._delta().partial_json

    def _delta(self) -> _Delta:
        event = self.undecoded_event
        if type(event) is msgspec.Raw:
            # For the text alone, the event need not become a dict.
            try:
                return _decode_delta(event).delta
            except (ValueError, RecursionError):
                pass
        try:
            return msgspec.convert(self.event, _DeltaEvent).delta
        except (ValueError, RecursionError):
            return _Delta()


def _object(value: Json) -> Json:
    return value if isinstance(value, dict) else {}


decode_on_use(StreamEvent, event=_object)


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
"""Any message from the agent."""

AnyFrame: TypeAlias = MessageFrame | ControlFrame | ServiceFrame
"""Any frame that a line may hold."""

Arrival: TypeAlias = AnyFrame | MalformedLine | OversizedMessage
"""Anything that comes out of a stream."""
