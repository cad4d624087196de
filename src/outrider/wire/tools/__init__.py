"""Defines the inputs and outputs of Claude Code's built-in tools, and finds them by the tool's name.

Claude Code runs these tools; nothing here calls one.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from outrider.wire.tools._inputs import *
    from outrider.wire.tools._outputs import *
    from outrider.wire.tools._services import *

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

_BUILTIN: Final = """
Agent Artifact AskUserQuestion Bash ClaudeDesign CronCreate CronDelete CronList DesignSync Edit
EndConversation EnterPlanMode EnterWorktree ExitPlanMode ExitWorktree Glob Grep LSP ListAgents
ListConnectors ListMcpResourcesTool ListPlugins ListSkills Monitor NotebookEdit OfferChromeSetup Poll
PowerShell Projects ProposeGoal PushNotification Read ReadMcpResourceDirTool ReadMcpResourceTool
ReadNotifications RefreshMcpTools RemoteTrigger ReportFindings ScheduleWakeup SearchMcpRegistry
SearchPlugins SearchSkills SendFeedback SendMessage SendUserFile SendUserMessage ShareOnboardingGuide
ShowOnboardingRolePicker Skill StructuredOutput SubagentHandback SuggestConnectors SuggestPluginInstall
SuggestSkills TaskCreate TaskGet TaskList TaskStop TaskUpdate TodoWrite ToolSearch WaitForMcpServers
WebFetch WebSearch Workflow Write propose_skills
"""
BUILTIN_TOOL_NAMES: Final = frozenset(_BUILTIN.split())
"""The tools that the program has of its own, whether a session offers them or not.

Those without a class stay plain objects: the schema of `StructuredOutput` is the caller's, and a session with
an API key is not offered the others.
"""

_FORMER: Final = """
AgentOutputTool BashOutput LS MCPSearch MultiEdit NotebookRead SlashCommand TaskOutput TodoRead
"""
FORMER_TOOL_NAMES: Final = frozenset(_FORMER.split())
"""Tools that the program once had. Rules and matchers that name them are still in use."""

_MODULES = ("_inputs", "_outputs", "_services")
"""Where the classes are, which are loaded only as far as they are used."""


def __getattr__(name: str) -> object:
    if not name.startswith("_"):
        for module in _MODULES:
            found: object = getattr(import_module(f"{__name__}.{module}"), name, None)
            if found is not None:
                globals()[name] = found
                return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
