"""Lists the built-in tools, their older names and the classes of their inputs, and types an input by name.

The classes are in `_inputs`.
"""

from __future__ import annotations

from typing import Final

import msgspec

from outrider.wire._value import JsonObject, Value
from outrider.wire.tools._inputs import (
    AgentInput,
    AskUserQuestionInput,
    BashInput,
    CronCreateInput,
    CronDeleteInput,
    CronListInput,
    EditInput,
    EnterPlanModeInput,
    EnterWorktreeInput,
    ExitPlanModeInput,
    ExitWorktreeInput,
    GlobInput,
    GrepInput,
    ListAgentsInput,
    ListConnectorsInput,
    ListMcpResourcesInput,
    ListPluginsInput,
    ListSkillsInput,
    LSPInput,
    MonitorInput,
    NotebookEditInput,
    PowerShellInput,
    ReadInput,
    ReadMcpResourceDirInput,
    ReadMcpResourceInput,
    ReadNotificationsInput,
    ReportFindingsInput,
    ScheduleWakeupInput,
    SearchMcpRegistryInput,
    SearchPluginsInput,
    SearchSkillsInput,
    SendMessageInput,
    SendUserMessageInput,
    ShowOnboardingRolePickerInput,
    SkillInput,
    SuggestConnectorsInput,
    SuggestPluginInstallInput,
    SuggestSkillsInput,
    TaskCreateInput,
    TaskGetInput,
    TaskListInput,
    TaskStopInput,
    TaskUpdateInput,
    TodoWriteInput,
    ToolSearchInput,
    WebFetchInput,
    WebSearchInput,
    WorkflowInput,
    WriteInput,
)

TOOL_INPUTS: Final[dict[str, type[Value]]] = {
    "Agent": AgentInput,
    "AskUserQuestion": AskUserQuestionInput,
    "Bash": BashInput,
    "CronCreate": CronCreateInput,
    "CronDelete": CronDeleteInput,
    "CronList": CronListInput,
    "Edit": EditInput,
    "EnterPlanMode": EnterPlanModeInput,
    "EnterWorktree": EnterWorktreeInput,
    "ExitPlanMode": ExitPlanModeInput,
    "ExitWorktree": ExitWorktreeInput,
    "Glob": GlobInput,
    "Grep": GrepInput,
    "LSP": LSPInput,
    "ListAgents": ListAgentsInput,
    "ListConnectors": ListConnectorsInput,
    "ListMcpResourcesTool": ListMcpResourcesInput,
    "ListPlugins": ListPluginsInput,
    "ListSkills": ListSkillsInput,
    "Monitor": MonitorInput,
    "NotebookEdit": NotebookEditInput,
    "PowerShell": PowerShellInput,
    "Read": ReadInput,
    "ReadMcpResourceDirTool": ReadMcpResourceDirInput,
    "ReadMcpResourceTool": ReadMcpResourceInput,
    "ReadNotifications": ReadNotificationsInput,
    "ReportFindings": ReportFindingsInput,
    "ScheduleWakeup": ScheduleWakeupInput,
    "SearchMcpRegistry": SearchMcpRegistryInput,
    "SearchPlugins": SearchPluginsInput,
    "SearchSkills": SearchSkillsInput,
    "SendMessage": SendMessageInput,
    "SendUserMessage": SendUserMessageInput,
    "ShowOnboardingRolePicker": ShowOnboardingRolePickerInput,
    "Skill": SkillInput,
    "SuggestConnectors": SuggestConnectorsInput,
    "SuggestPluginInstall": SuggestPluginInstallInput,
    "SuggestSkills": SuggestSkillsInput,
    "TaskCreate": TaskCreateInput,
    "TaskGet": TaskGetInput,
    "TaskList": TaskListInput,
    "TaskStop": TaskStopInput,
    "TaskUpdate": TaskUpdateInput,
    "TodoWrite": TodoWriteInput,
    "ToolSearch": ToolSearchInput,
    "WebFetch": WebFetchInput,
    "WebSearch": WebSearchInput,
    "Workflow": WorkflowInput,
    "Write": WriteInput,
}
"""The class of each built-in tool's input, by the name that the agent calls the tool by."""

BUILTIN_TOOL_NAMES: Final[frozenset[str]] = frozenset(TOOL_INPUTS) | {
    "Artifact",
    "DesignSync",
    "EndConversation",
    "Poll",
    "Projects",
    "ProposeGoal",
    "PushNotification",
    "RemoteTrigger",
    "SendFeedback",
    "SendUserFile",
    "ShareOnboardingGuide",
    "StructuredOutput",
    "WaitForMcpServers",
}
"""The tools that the program has of its own, whether a session offers them or not.

Those without a class stay plain objects: the schema of `StructuredOutput` is the caller's, and a session with
an API key is not offered the others.
"""

TOOL_ALIASES: Final[dict[str, str]] = {
    "Brief": "SendUserMessage",
    "KillBash": "TaskStop",
    "KillShell": "TaskStop",
    "ListMcpResources": "ListMcpResourcesTool",
    "ListPeers": "ListAgents",
    "ReadMcpResource": "ReadMcpResourceTool",
    "ReadMcpResourceDir": "ReadMcpResourceDirTool",
    "Task": "Agent",
}
"""Today's name of tools by the older names that the program still answers to, and in places still uses."""

FORMER_TOOL_NAMES: Final[frozenset[str]] = frozenset(
    (
        "AgentOutputTool",
        "BashOutput",
        "LS",
        "MCPSearch",
        "MultiEdit",
        "NotebookRead",
        "SlashCommand",
        "TaskOutput",
        "TodoRead",
    )
)
"""Tools that the program once had. Rules and matchers that name them are still in use."""


def typed_input(name: str, data: JsonObject) -> Value | JsonObject:
    """The input `data` of the tool `name` as a typed value, or `data` itself if that would lose anything.

    A value comes back only if it encodes to the same object again. So it is `data` for tools without a class
    (`mcp__…` among them), and when a key is unknown or a field is missing, null or of another type.
    Never raises.
    """
    kind = TOOL_INPUTS.get(TOOL_ALIASES.get(name, name))
    if kind is None:
        return data
    try:
        value = msgspec.convert(data, kind)
        return value if msgspec.to_builtins(value) == data else data
    except (msgspec.MsgspecError, TypeError, RecursionError):
        return data
