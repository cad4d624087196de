"""Defines the inputs of all hook events, and the answers of hooks, as typed values.

Does not register or call hooks: `outrider.handlers` does.
"""

from typing import TYPE_CHECKING

from outrider._lazy import lazily

if TYPE_CHECKING:
    from outrider.wire.hooks._events import HOOK_EVENTS as HOOK_EVENTS
    from outrider.wire.hooks._events import HOOK_INPUTS as HOOK_INPUTS
    from outrider.wire.hooks._events import HookEvent as HookEvent
    from outrider.wire.hooks._events import HookRegistration as HookRegistration
    from outrider.wire.hooks._events import UnknownHookInput as UnknownHookInput
    from outrider.wire.hooks._events import hook_input_from_wire as hook_input_from_wire
    from outrider.wire.hooks._inputs import BackgroundTaskSummary as BackgroundTaskSummary
    from outrider.wire.hooks._inputs import ConfigChangeInput as ConfigChangeInput
    from outrider.wire.hooks._inputs import CwdChangedInput as CwdChangedInput
    from outrider.wire.hooks._inputs import DirectoryAddedInput as DirectoryAddedInput
    from outrider.wire.hooks._inputs import ElicitationInput as ElicitationInput
    from outrider.wire.hooks._inputs import ElicitationResultInput as ElicitationResultInput
    from outrider.wire.hooks._inputs import FileChangedInput as FileChangedInput
    from outrider.wire.hooks._inputs import HookEffort as HookEffort
    from outrider.wire.hooks._inputs import HookInput as HookInput
    from outrider.wire.hooks._inputs import InstructionsLoadedInput as InstructionsLoadedInput
    from outrider.wire.hooks._inputs import McpServerSource as McpServerSource
    from outrider.wire.hooks._inputs import MessageDisplayInput as MessageDisplayInput
    from outrider.wire.hooks._inputs import NotificationInput as NotificationInput
    from outrider.wire.hooks._inputs import PermissionDeniedInput as PermissionDeniedInput
    from outrider.wire.hooks._inputs import PermissionRequestInput as PermissionRequestInput
    from outrider.wire.hooks._inputs import PostCompactInput as PostCompactInput
    from outrider.wire.hooks._inputs import PostModelSwitchInput as PostModelSwitchInput
    from outrider.wire.hooks._inputs import PostToolBatchInput as PostToolBatchInput
    from outrider.wire.hooks._inputs import PostToolUseFailureInput as PostToolUseFailureInput
    from outrider.wire.hooks._inputs import PostToolUseInput as PostToolUseInput
    from outrider.wire.hooks._inputs import PreCompactInput as PreCompactInput
    from outrider.wire.hooks._inputs import PreModelSwitchInput as PreModelSwitchInput
    from outrider.wire.hooks._inputs import PreToolUseInput as PreToolUseInput
    from outrider.wire.hooks._inputs import SessionCronSummary as SessionCronSummary
    from outrider.wire.hooks._inputs import SessionEndInput as SessionEndInput
    from outrider.wire.hooks._inputs import SessionStartInput as SessionStartInput
    from outrider.wire.hooks._inputs import SetupInput as SetupInput
    from outrider.wire.hooks._inputs import StopFailureInput as StopFailureInput
    from outrider.wire.hooks._inputs import StopInput as StopInput
    from outrider.wire.hooks._inputs import SubagentStartInput as SubagentStartInput
    from outrider.wire.hooks._inputs import SubagentStopInput as SubagentStopInput
    from outrider.wire.hooks._inputs import TaskCompletedInput as TaskCompletedInput
    from outrider.wire.hooks._inputs import TaskCreatedInput as TaskCreatedInput
    from outrider.wire.hooks._inputs import TeammateIdleInput as TeammateIdleInput
    from outrider.wire.hooks._inputs import ToolCall as ToolCall
    from outrider.wire.hooks._inputs import UserPromptExpansionInput as UserPromptExpansionInput
    from outrider.wire.hooks._inputs import UserPromptSubmitInput as UserPromptSubmitInput
    from outrider.wire.hooks._inputs import WorktreeCreateInput as WorktreeCreateInput
    from outrider.wire.hooks._inputs import WorktreeRemoveInput as WorktreeRemoveInput
    from outrider.wire.hooks._outputs import AsyncHookOutput as AsyncHookOutput
    from outrider.wire.hooks._outputs import CwdChangedOutput as CwdChangedOutput
    from outrider.wire.hooks._outputs import ElicitationAction as ElicitationAction
    from outrider.wire.hooks._outputs import ElicitationOutput as ElicitationOutput
    from outrider.wire.hooks._outputs import ElicitationResultOutput as ElicitationResultOutput
    from outrider.wire.hooks._outputs import FileChangedOutput as FileChangedOutput
    from outrider.wire.hooks._outputs import HookAnswer as HookAnswer
    from outrider.wire.hooks._outputs import HookDecision as HookDecision
    from outrider.wire.hooks._outputs import HookOutput as HookOutput
    from outrider.wire.hooks._outputs import HookPermissionDecision as HookPermissionDecision
    from outrider.wire.hooks._outputs import MessageDisplayOutput as MessageDisplayOutput
    from outrider.wire.hooks._outputs import NotificationOutput as NotificationOutput
    from outrider.wire.hooks._outputs import PermissionDeniedOutput as PermissionDeniedOutput
    from outrider.wire.hooks._outputs import PermissionRequestOutput as PermissionRequestOutput
    from outrider.wire.hooks._outputs import PostModelSwitchOutput as PostModelSwitchOutput
    from outrider.wire.hooks._outputs import PostToolBatchOutput as PostToolBatchOutput
    from outrider.wire.hooks._outputs import PostToolUseFailureOutput as PostToolUseFailureOutput
    from outrider.wire.hooks._outputs import PostToolUseOutput as PostToolUseOutput
    from outrider.wire.hooks._outputs import PreModelSwitchOutput as PreModelSwitchOutput
    from outrider.wire.hooks._outputs import PreToolUseOutput as PreToolUseOutput
    from outrider.wire.hooks._outputs import SessionStartOutput as SessionStartOutput
    from outrider.wire.hooks._outputs import SetupOutput as SetupOutput
    from outrider.wire.hooks._outputs import SpecificOutput as SpecificOutput
    from outrider.wire.hooks._outputs import StopOutput as StopOutput
    from outrider.wire.hooks._outputs import SubagentStartOutput as SubagentStartOutput
    from outrider.wire.hooks._outputs import SubagentStopOutput as SubagentStopOutput
    from outrider.wire.hooks._outputs import UserPromptExpansionOutput as UserPromptExpansionOutput
    from outrider.wire.hooks._outputs import UserPromptSubmitOutput as UserPromptSubmitOutput
    from outrider.wire.hooks._outputs import WorktreeCreateOutput as WorktreeCreateOutput
    from outrider.wire.hooks._outputs import hook_output_from_wire as hook_output_from_wire
    from outrider.wire.hooks._outputs import spelled_for_wire as spelled_for_wire
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
