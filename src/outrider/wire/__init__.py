"""Converts bytes to typed values and back: framing, decoding, encoding, messages, content blocks.

Control requests and their answers are in `outrider.wire.control`, hooks in `outrider.wire.hooks`, permissions
in `outrider.wire.permissions`, inputs of built-in tools in `outrider.wire.tools`. Import those directly: this
package does not load them. Nothing here does I/O.
"""

from typing import TYPE_CHECKING

from outrider._lazy import lazily

if TYPE_CHECKING:
    from outrider.wire._blocks import BLOCK_TYPES as BLOCK_TYPES
    from outrider.wire._blocks import BashCodeExecutionToolResultBlock as BashCodeExecutionToolResultBlock
    from outrider.wire._blocks import CodeExecutionToolResultBlock as CodeExecutionToolResultBlock
    from outrider.wire._blocks import CompactionBlock as CompactionBlock
    from outrider.wire._blocks import ContainerUploadBlock as ContainerUploadBlock
    from outrider.wire._blocks import ContentBlock as ContentBlock
    from outrider.wire._blocks import DocumentBlock as DocumentBlock
    from outrider.wire._blocks import ImageBlock as ImageBlock
    from outrider.wire._blocks import McpToolResultBlock as McpToolResultBlock
    from outrider.wire._blocks import McpToolUseBlock as McpToolUseBlock
    from outrider.wire._blocks import RedactedThinkingBlock as RedactedThinkingBlock
    from outrider.wire._blocks import SearchResultBlock as SearchResultBlock
    from outrider.wire._blocks import ServerToolResultBlock as ServerToolResultBlock
    from outrider.wire._blocks import ServerToolUseBlock as ServerToolUseBlock
    from outrider.wire._blocks import TextBlock as TextBlock
    from outrider.wire._blocks import (
        TextEditorCodeExecutionToolResultBlock as TextEditorCodeExecutionToolResultBlock,
    )
    from outrider.wire._blocks import ThinkingBlock as ThinkingBlock
    from outrider.wire._blocks import ToolReferenceBlock as ToolReferenceBlock
    from outrider.wire._blocks import ToolResultBlock as ToolResultBlock
    from outrider.wire._blocks import ToolSearchToolResultBlock as ToolSearchToolResultBlock
    from outrider.wire._blocks import ToolUseBlock as ToolUseBlock
    from outrider.wire._blocks import UnknownBlock as UnknownBlock
    from outrider.wire._blocks import WebFetchToolResultBlock as WebFetchToolResultBlock
    from outrider.wire._blocks import WebSearchToolResultBlock as WebSearchToolResultBlock
    from outrider.wire._decoding import FRAME_TYPES as FRAME_TYPES
    from outrider.wire._decoding import decode as decode
    from outrider.wire._decoding import decode_block as decode_block
    from outrider.wire._decoding import frame_from_wire as frame_from_wire
    from outrider.wire._encoding import encode as encode
    from outrider.wire._encoding import to_wire as to_wire
    from outrider.wire._encoding import user_message as user_message
    from outrider.wire._frames import UNSUPPORTED_REQUEST as UNSUPPORTED_REQUEST
    from outrider.wire._frames import AnyFrame as AnyFrame
    from outrider.wire._frames import Arrival as Arrival
    from outrider.wire._frames import ControlCancelRequest as ControlCancelRequest
    from outrider.wire._frames import ControlFrame as ControlFrame
    from outrider.wire._frames import ControlOutcome as ControlOutcome
    from outrider.wire._frames import ControlRequest as ControlRequest
    from outrider.wire._frames import ControlResponse as ControlResponse
    from outrider.wire._frames import KeepAlive as KeepAlive
    from outrider.wire._frames import Message as Message
    from outrider.wire._frames import MessageFrame as MessageFrame
    from outrider.wire._frames import RequestId as RequestId
    from outrider.wire._frames import ServiceFrame as ServiceFrame
    from outrider.wire._frames import TranscriptMirror as TranscriptMirror
    from outrider.wire._frames import UpdateEnvironmentVariables as UpdateEnvironmentVariables
    from outrider.wire._framing import DEFAULT_LIMIT as DEFAULT_LIMIT
    from outrider.wire._framing import Framer as Framer
    from outrider.wire._framing import FrameReader as FrameReader
    from outrider.wire._messages import ActiveGoalMessage as ActiveGoalMessage
    from outrider.wire._messages import AssistantMessage as AssistantMessage
    from outrider.wire._messages import AttachmentMessage as AttachmentMessage
    from outrider.wire._messages import AuthStatusMessage as AuthStatusMessage
    from outrider.wire._messages import AutocompactStateMessage as AutocompactStateMessage
    from outrider.wire._messages import CommandLifecycleMessage as CommandLifecycleMessage
    from outrider.wire._messages import ConversationResetMessage as ConversationResetMessage
    from outrider.wire._messages import DeferredToolUse as DeferredToolUse
    from outrider.wire._messages import MalformedLine as MalformedLine
    from outrider.wire._messages import OversizedMessage as OversizedMessage
    from outrider.wire._messages import PromptSuggestionMessage as PromptSuggestionMessage
    from outrider.wire._messages import RateLimitEvent as RateLimitEvent
    from outrider.wire._messages import RateLimitInfo as RateLimitInfo
    from outrider.wire._messages import ResultMessage as ResultMessage
    from outrider.wire._messages import StreamDetails as StreamDetails
    from outrider.wire._messages import StreamEvent as StreamEvent
    from outrider.wire._messages import ToolProgressMessage as ToolProgressMessage
    from outrider.wire._messages import ToolUseSummaryMessage as ToolUseSummaryMessage
    from outrider.wire._messages import UnknownMessage as UnknownMessage
    from outrider.wire._messages import UserMessage as UserMessage
    from outrider.wire._system import SYSTEM_SUBTYPES as SYSTEM_SUBTYPES
    from outrider.wire._system import ApiRetryMessage as ApiRetryMessage
    from outrider.wire._system import BackgroundTasksChangedMessage as BackgroundTasksChangedMessage
    from outrider.wire._system import CommandsChangedMessage as CommandsChangedMessage
    from outrider.wire._system import CompactBoundaryMessage as CompactBoundaryMessage
    from outrider.wire._system import ControlRequestProgressMessage as ControlRequestProgressMessage
    from outrider.wire._system import ElicitationCompleteMessage as ElicitationCompleteMessage
    from outrider.wire._system import FilesPersistedMessage as FilesPersistedMessage
    from outrider.wire._system import HookEventMessage as HookEventMessage
    from outrider.wire._system import HookProgressMessage as HookProgressMessage
    from outrider.wire._system import HookResponseMessage as HookResponseMessage
    from outrider.wire._system import HookStartedMessage as HookStartedMessage
    from outrider.wire._system import InformationalMessage as InformationalMessage
    from outrider.wire._system import InitMessage as InitMessage
    from outrider.wire._system import LocalCommandOutputMessage as LocalCommandOutputMessage
    from outrider.wire._system import MemoryRecallMessage as MemoryRecallMessage
    from outrider.wire._system import MirrorErrorMessage as MirrorErrorMessage
    from outrider.wire._system import ModelFallbackMessage as ModelFallbackMessage
    from outrider.wire._system import ModelRefusalFallbackMessage as ModelRefusalFallbackMessage
    from outrider.wire._system import ModelRefusalNoFallbackMessage as ModelRefusalNoFallbackMessage
    from outrider.wire._system import NotificationMessage as NotificationMessage
    from outrider.wire._system import PermissionDeniedMessage as PermissionDeniedMessage
    from outrider.wire._system import PluginInstallMessage as PluginInstallMessage
    from outrider.wire._system import PostTurnSummaryMessage as PostTurnSummaryMessage
    from outrider.wire._system import SessionMetadataMessage as SessionMetadataMessage
    from outrider.wire._system import SessionStateChangedMessage as SessionStateChangedMessage
    from outrider.wire._system import SessionTitleChangedMessage as SessionTitleChangedMessage
    from outrider.wire._system import SessionWritesLostMessage as SessionWritesLostMessage
    from outrider.wire._system import StatusMessage as StatusMessage
    from outrider.wire._system import SystemMessage as SystemMessage
    from outrider.wire._system import TaskNotificationMessage as TaskNotificationMessage
    from outrider.wire._system import TaskProgressMessage as TaskProgressMessage
    from outrider.wire._system import TaskStartedMessage as TaskStartedMessage
    from outrider.wire._system import TaskSummaryMessage as TaskSummaryMessage
    from outrider.wire._system import TaskUpdatedMessage as TaskUpdatedMessage
    from outrider.wire._system import ThinkingTokensMessage as ThinkingTokensMessage
    from outrider.wire._system import UiInvalidateMessage as UiInvalidateMessage
    from outrider.wire._system import UnknownSystemMessage as UnknownSystemMessage
    from outrider.wire._system import WorkerShuttingDownMessage as WorkerShuttingDownMessage
    from outrider.wire._value import Frame as Frame
    from outrider.wire._value import Json as Json
    from outrider.wire._value import JsonObject as JsonObject
    from outrider.wire._value import Number as Number
    from outrider.wire._value import Value as Value
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
