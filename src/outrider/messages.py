"""The messages of a session and the blocks that they are made of: one class for each kind.

The common ones are also at the top: `outrider.AssistantMessage`.
"""

from typing import TYPE_CHECKING

from outrider._lazy import lazily

if TYPE_CHECKING:
    from outrider.wire import ActiveGoalMessage as ActiveGoalMessage
    from outrider.wire import ApiRetryMessage as ApiRetryMessage
    from outrider.wire import AssistantMessage as AssistantMessage
    from outrider.wire import AttachmentMessage as AttachmentMessage
    from outrider.wire import AuthStatusMessage as AuthStatusMessage
    from outrider.wire import AutocompactStateMessage as AutocompactStateMessage
    from outrider.wire import BackgroundTasksChangedMessage as BackgroundTasksChangedMessage
    from outrider.wire import BashCodeExecutionToolResultBlock as BashCodeExecutionToolResultBlock
    from outrider.wire import CodeExecutionToolResultBlock as CodeExecutionToolResultBlock
    from outrider.wire import CommandLifecycleMessage as CommandLifecycleMessage
    from outrider.wire import CommandsChangedMessage as CommandsChangedMessage
    from outrider.wire import CompactBoundaryMessage as CompactBoundaryMessage
    from outrider.wire import CompactionBlock as CompactionBlock
    from outrider.wire import ContainerUploadBlock as ContainerUploadBlock
    from outrider.wire import ContentBlock as ContentBlock
    from outrider.wire import ControlRequestProgressMessage as ControlRequestProgressMessage
    from outrider.wire import ConversationResetMessage as ConversationResetMessage
    from outrider.wire import DeferredToolUse as DeferredToolUse
    from outrider.wire import DocumentBlock as DocumentBlock
    from outrider.wire import ElicitationCompleteMessage as ElicitationCompleteMessage
    from outrider.wire import FilesPersistedMessage as FilesPersistedMessage
    from outrider.wire import HookEventMessage as HookEventMessage
    from outrider.wire import HookProgressMessage as HookProgressMessage
    from outrider.wire import HookResponseMessage as HookResponseMessage
    from outrider.wire import HookStartedMessage as HookStartedMessage
    from outrider.wire import ImageBlock as ImageBlock
    from outrider.wire import InformationalMessage as InformationalMessage
    from outrider.wire import InitMessage as InitMessage
    from outrider.wire import LocalCommandOutputMessage as LocalCommandOutputMessage
    from outrider.wire import MalformedLine as MalformedLine
    from outrider.wire import McpToolResultBlock as McpToolResultBlock
    from outrider.wire import McpToolUseBlock as McpToolUseBlock
    from outrider.wire import MemoryRecallMessage as MemoryRecallMessage
    from outrider.wire import Message as Message
    from outrider.wire import MirrorErrorMessage as MirrorErrorMessage
    from outrider.wire import ModelFallbackMessage as ModelFallbackMessage
    from outrider.wire import ModelRefusalFallbackMessage as ModelRefusalFallbackMessage
    from outrider.wire import ModelRefusalNoFallbackMessage as ModelRefusalNoFallbackMessage
    from outrider.wire import NotificationMessage as NotificationMessage
    from outrider.wire import OversizedMessage as OversizedMessage
    from outrider.wire import PermissionDeniedMessage as PermissionDeniedMessage
    from outrider.wire import PluginInstallMessage as PluginInstallMessage
    from outrider.wire import PostTurnSummaryMessage as PostTurnSummaryMessage
    from outrider.wire import PromptSuggestionMessage as PromptSuggestionMessage
    from outrider.wire import RateLimitEvent as RateLimitEvent
    from outrider.wire import RateLimitInfo as RateLimitInfo
    from outrider.wire import RedactedThinkingBlock as RedactedThinkingBlock
    from outrider.wire import ResultMessage as ResultMessage
    from outrider.wire import SearchResultBlock as SearchResultBlock
    from outrider.wire import ServerToolResultBlock as ServerToolResultBlock
    from outrider.wire import ServerToolUseBlock as ServerToolUseBlock
    from outrider.wire import SessionMetadataMessage as SessionMetadataMessage
    from outrider.wire import SessionStateChangedMessage as SessionStateChangedMessage
    from outrider.wire import SessionTitleChangedMessage as SessionTitleChangedMessage
    from outrider.wire import SessionWritesLostMessage as SessionWritesLostMessage
    from outrider.wire import StatusMessage as StatusMessage
    from outrider.wire import StreamEvent as StreamEvent
    from outrider.wire import SystemMessage as SystemMessage
    from outrider.wire import TaskNotificationMessage as TaskNotificationMessage
    from outrider.wire import TaskProgressMessage as TaskProgressMessage
    from outrider.wire import TaskStartedMessage as TaskStartedMessage
    from outrider.wire import TaskSummaryMessage as TaskSummaryMessage
    from outrider.wire import TaskUpdatedMessage as TaskUpdatedMessage
    from outrider.wire import TextBlock as TextBlock
    from outrider.wire import TextEditorCodeExecutionToolResultBlock as TextEditorCodeExecutionToolResultBlock
    from outrider.wire import ThinkingBlock as ThinkingBlock
    from outrider.wire import ThinkingTokensMessage as ThinkingTokensMessage
    from outrider.wire import ToolProgressMessage as ToolProgressMessage
    from outrider.wire import ToolReferenceBlock as ToolReferenceBlock
    from outrider.wire import ToolResultBlock as ToolResultBlock
    from outrider.wire import ToolSearchToolResultBlock as ToolSearchToolResultBlock
    from outrider.wire import ToolUseBlock as ToolUseBlock
    from outrider.wire import ToolUseSummaryMessage as ToolUseSummaryMessage
    from outrider.wire import UiInvalidateMessage as UiInvalidateMessage
    from outrider.wire import UnknownBlock as UnknownBlock
    from outrider.wire import UnknownMessage as UnknownMessage
    from outrider.wire import UnknownSystemMessage as UnknownSystemMessage
    from outrider.wire import UserMessage as UserMessage
    from outrider.wire import WebFetchToolResultBlock as WebFetchToolResultBlock
    from outrider.wire import WebSearchToolResultBlock as WebSearchToolResultBlock
    from outrider.wire import WorkerShuttingDownMessage as WorkerShuttingDownMessage
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
