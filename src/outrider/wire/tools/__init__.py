"""Defines the inputs of Claude Code's built-in tools as typed values, and finds them by the tool's name.

Claude Code runs these tools; nothing here calls one.
"""

from typing import TYPE_CHECKING

from outrider._lazy import lazily

if TYPE_CHECKING:
    from outrider.wire.tools._inputs import AgentInput as AgentInput
    from outrider.wire.tools._inputs import AllowedPrompt as AllowedPrompt
    from outrider.wire.tools._inputs import AskUserQuestionInput as AskUserQuestionInput
    from outrider.wire.tools._inputs import BashInput as BashInput
    from outrider.wire.tools._inputs import CronCreateInput as CronCreateInput
    from outrider.wire.tools._inputs import CronDeleteInput as CronDeleteInput
    from outrider.wire.tools._inputs import CronListInput as CronListInput
    from outrider.wire.tools._inputs import EditInput as EditInput
    from outrider.wire.tools._inputs import EnterPlanModeInput as EnterPlanModeInput
    from outrider.wire.tools._inputs import EnterWorktreeInput as EnterWorktreeInput
    from outrider.wire.tools._inputs import ExitPlanModeInput as ExitPlanModeInput
    from outrider.wire.tools._inputs import ExitWorktreeInput as ExitWorktreeInput
    from outrider.wire.tools._inputs import Finding as Finding
    from outrider.wire.tools._inputs import GlobInput as GlobInput
    from outrider.wire.tools._inputs import GrepInput as GrepInput
    from outrider.wire.tools._inputs import ListAgentsInput as ListAgentsInput
    from outrider.wire.tools._inputs import ListConnectorsInput as ListConnectorsInput
    from outrider.wire.tools._inputs import ListMcpResourcesInput as ListMcpResourcesInput
    from outrider.wire.tools._inputs import ListPluginsInput as ListPluginsInput
    from outrider.wire.tools._inputs import ListSkillsInput as ListSkillsInput
    from outrider.wire.tools._inputs import LSPInput as LSPInput
    from outrider.wire.tools._inputs import MonitorInput as MonitorInput
    from outrider.wire.tools._inputs import MonitorSocket as MonitorSocket
    from outrider.wire.tools._inputs import NotebookEditInput as NotebookEditInput
    from outrider.wire.tools._inputs import PlanApprovalResponse as PlanApprovalResponse
    from outrider.wire.tools._inputs import PluginSkill as PluginSkill
    from outrider.wire.tools._inputs import PowerShellInput as PowerShellInput
    from outrider.wire.tools._inputs import Question as Question
    from outrider.wire.tools._inputs import QuestionMetadata as QuestionMetadata
    from outrider.wire.tools._inputs import QuestionNotes as QuestionNotes
    from outrider.wire.tools._inputs import QuestionOption as QuestionOption
    from outrider.wire.tools._inputs import ReadInput as ReadInput
    from outrider.wire.tools._inputs import ReadMcpResourceDirInput as ReadMcpResourceDirInput
    from outrider.wire.tools._inputs import ReadMcpResourceInput as ReadMcpResourceInput
    from outrider.wire.tools._inputs import ReadNotificationsInput as ReadNotificationsInput
    from outrider.wire.tools._inputs import ReportFindingsInput as ReportFindingsInput
    from outrider.wire.tools._inputs import ScheduleWakeupInput as ScheduleWakeupInput
    from outrider.wire.tools._inputs import SearchMcpRegistryInput as SearchMcpRegistryInput
    from outrider.wire.tools._inputs import SearchPluginsInput as SearchPluginsInput
    from outrider.wire.tools._inputs import SearchSkillsInput as SearchSkillsInput
    from outrider.wire.tools._inputs import SendMessageInput as SendMessageInput
    from outrider.wire.tools._inputs import SendUserMessageInput as SendUserMessageInput
    from outrider.wire.tools._inputs import SentFile as SentFile
    from outrider.wire.tools._inputs import ShowOnboardingRolePickerInput as ShowOnboardingRolePickerInput
    from outrider.wire.tools._inputs import ShutdownRequest as ShutdownRequest
    from outrider.wire.tools._inputs import ShutdownResponse as ShutdownResponse
    from outrider.wire.tools._inputs import SkillInput as SkillInput
    from outrider.wire.tools._inputs import SuggestConnectorsInput as SuggestConnectorsInput
    from outrider.wire.tools._inputs import SuggestedPlugin as SuggestedPlugin
    from outrider.wire.tools._inputs import SuggestPluginInstallInput as SuggestPluginInstallInput
    from outrider.wire.tools._inputs import SuggestSkillsInput as SuggestSkillsInput
    from outrider.wire.tools._inputs import TaskCreateInput as TaskCreateInput
    from outrider.wire.tools._inputs import TaskGetInput as TaskGetInput
    from outrider.wire.tools._inputs import TaskListInput as TaskListInput
    from outrider.wire.tools._inputs import TaskStopInput as TaskStopInput
    from outrider.wire.tools._inputs import TaskUpdateInput as TaskUpdateInput
    from outrider.wire.tools._inputs import TeamMessage as TeamMessage
    from outrider.wire.tools._inputs import TodoItem as TodoItem
    from outrider.wire.tools._inputs import TodoWriteInput as TodoWriteInput
    from outrider.wire.tools._inputs import ToolSearchInput as ToolSearchInput
    from outrider.wire.tools._inputs import WebFetchInput as WebFetchInput
    from outrider.wire.tools._inputs import WebSearchInput as WebSearchInput
    from outrider.wire.tools._inputs import WorkflowInput as WorkflowInput
    from outrider.wire.tools._inputs import WriteInput as WriteInput
    from outrider.wire.tools._table import BUILTIN_TOOL_NAMES as BUILTIN_TOOL_NAMES
    from outrider.wire.tools._table import FORMER_TOOL_NAMES as FORMER_TOOL_NAMES
    from outrider.wire.tools._table import TOOL_ALIASES as TOOL_ALIASES
    from outrider.wire.tools._table import TOOL_INPUTS as TOOL_INPUTS
    from outrider.wire.tools._table import typed_input as typed_input
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
