"""What the user supplies, and how it answers the agent: tools, MCP servers, hooks, permissions, questions.

Does not know processes, nor how requests travel. Names are loaded when they are first used: most sessions
need few of them.
"""

from typing import TYPE_CHECKING

from outrider._lazy import lazily

if TYPE_CHECKING:
    from outrider.handlers._answers import (
        Answer,
        add_context,
        allow,
        ask,
        block,
        defer,
        deny,
        later,
        modify,
        notify,
        stop,
    )
    from outrider.handlers._calling import CallContext, CallTimedOut, call, name_of
    from outrider.handlers._content import Audio, Image, Resource, ResourceLink, ToolResult
    from outrider.handlers._elicitation import DialogRequest, ElicitationRequest, accept, cancel, decline
    from outrider.handlers._faults import Misfit
    from outrider.handlers._forms import Choice, FormField
    from outrider.handlers._handled import (
        DialogHandled,
        ElicitationHandled,
        Handled,
        HookHandled,
        Observe,
        Outcome,
        PermissionHandled,
        ToolHandled,
    )
    from outrider.handlers._handlers import Handlers
    from outrider.handlers._hooks import HookNeverCalledWarning
    from outrider.handlers._hooks_decorator import hook
    from outrider.handlers._hooks_hook import Hook, HookContext
    from outrider.handlers._origin import Endpoint, Link, Origin, Server
    from outrider.handlers._permissions import PermissionRequest
    from outrider.handlers._policy import Considered, Explanation, Policy, UnreachableRuleWarning
    from outrider.handlers._policy_rule import Rule
    from outrider.handlers._questions import Plan, Question, QuestionReply
    from outrider.handlers._shape import Shape
    from outrider.handlers._tool import Tool, as_tool, tool
    from outrider.handlers._tool_context import ToolContext
    from outrider.handlers._tool_raw import RawTool, RawToolServer
    from outrider.handlers._tool_server import ToolServer

_HOMES = {
    "_answers": (
        "Answer",
        "add_context",
        "allow",
        "ask",
        "block",
        "defer",
        "deny",
        "later",
        "modify",
        "notify",
        "stop",
    ),
    "_calling": (
        "CallContext",
        "CallTimedOut",
        "call",
        "name_of",
    ),
    "_content": (
        "Audio",
        "Image",
        "Resource",
        "ResourceLink",
        "ToolResult",
    ),
    "_elicitation": (
        "DialogRequest",
        "ElicitationRequest",
        "accept",
        "cancel",
        "decline",
    ),
    "_faults": ("Misfit",),
    "_forms": (
        "Choice",
        "FormField",
    ),
    "_handled": (
        "DialogHandled",
        "ElicitationHandled",
        "Handled",
        "HookHandled",
        "Observe",
        "Outcome",
        "PermissionHandled",
        "ToolHandled",
    ),
    "_handlers": ("Handlers",),
    "_hooks": ("HookNeverCalledWarning",),
    "_hooks_decorator": ("hook",),
    "_hooks_hook": (
        "Hook",
        "HookContext",
    ),
    "_origin": (
        "Endpoint",
        "Link",
        "Origin",
        "Server",
    ),
    "_permissions": ("PermissionRequest",),
    "_policy": (
        "Considered",
        "Explanation",
        "Policy",
        "UnreachableRuleWarning",
    ),
    "_policy_rule": ("Rule",),
    "_questions": (
        "Plan",
        "Question",
        "QuestionReply",
    ),
    "_shape": ("Shape",),
    "_tool": (
        "Tool",
        "as_tool",
        "tool",
    ),
    "_tool_context": ("ToolContext",),
    "_tool_raw": ("RawTool", "RawToolServer"),
    "_tool_server": ("ToolServer",),
}
"""Where the names are."""

__getattr__, __dir__ = lazily(__name__, _HOMES)

__all__ = [
    "Answer",
    "Audio",
    "CallContext",
    "CallTimedOut",
    "Choice",
    "Considered",
    "DialogHandled",
    "DialogRequest",
    "ElicitationHandled",
    "ElicitationRequest",
    "Endpoint",
    "Explanation",
    "FormField",
    "Handled",
    "Handlers",
    "Hook",
    "HookContext",
    "HookHandled",
    "HookNeverCalledWarning",
    "Image",
    "Link",
    "Misfit",
    "Observe",
    "Origin",
    "Outcome",
    "PermissionHandled",
    "PermissionRequest",
    "Plan",
    "Policy",
    "Question",
    "QuestionReply",
    "RawTool",
    "RawToolServer",
    "Resource",
    "ResourceLink",
    "Rule",
    "Server",
    "Shape",
    "Tool",
    "ToolContext",
    "ToolHandled",
    "ToolResult",
    "ToolServer",
    "UnreachableRuleWarning",
    "accept",
    "add_context",
    "allow",
    "as_tool",
    "ask",
    "block",
    "call",
    "cancel",
    "decline",
    "defer",
    "deny",
    "hook",
    "later",
    "modify",
    "name_of",
    "notify",
    "stop",
    "tool",
]
