"""Answers the agent with what the user supplies: tools, MCP servers, hooks, permissions, questions.

Does not know processes or how requests travel: `outrider.session` does. Names are loaded on first use,
because most sessions need few of them.
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
    from outrider.handlers._calls import CallContext, CallTimedOut, call, name_of
    from outrider.handlers._hooks.dispatch import HookNeverCalledWarning
    from outrider.handlers._hooks.hook import Hook, HookContext, hook
    from outrider.handlers._permissions.elicitation import (
        Choice,
        DialogRequest,
        ElicitationRequest,
        FormField,
        accept,
        cancel,
        decline,
    )
    from outrider.handlers._permissions.requests import PermissionRequest, Plan, Question, QuestionReply
    from outrider.handlers._policy.policy import Considered, Explanation, Policy, UnreachableRuleWarning
    from outrider.handlers._policy.rule import Rule
    from outrider.handlers._router import (
        DialogHandled,
        ElicitationHandled,
        Endpoint,
        Handled,
        Handlers,
        HookHandled,
        Link,
        Observe,
        Origin,
        Outcome,
        PermissionHandled,
        Server,
        ToolHandled,
    )
    from outrider.handlers._tools.content import Audio, Image, Resource, ResourceLink, ToolResult
    from outrider.handlers._tools.server import RawTool, RawToolServer, ToolServer
    from outrider.handlers._tools.shape import Shape
    from outrider.handlers._tools.shape_errors import ShapeError
    from outrider.handlers._tools.tool import Tool, ToolContext, as_tool, tool

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
    "_calls": (
        "CallContext",
        "CallTimedOut",
        "call",
        "name_of",
    ),
    "_hooks.dispatch": ("HookNeverCalledWarning",),
    "_hooks.hook": (
        "Hook",
        "HookContext",
        "hook",
    ),
    "_permissions.elicitation": (
        "Choice",
        "DialogRequest",
        "ElicitationRequest",
        "FormField",
        "accept",
        "cancel",
        "decline",
    ),
    "_permissions.requests": (
        "PermissionRequest",
        "Plan",
        "Question",
        "QuestionReply",
    ),
    "_policy.policy": (
        "Considered",
        "Explanation",
        "Policy",
        "UnreachableRuleWarning",
    ),
    "_policy.rule": ("Rule",),
    "_router": (
        "DialogHandled",
        "ElicitationHandled",
        "Endpoint",
        "Handled",
        "Handlers",
        "HookHandled",
        "Link",
        "Observe",
        "Origin",
        "Outcome",
        "PermissionHandled",
        "Server",
        "ToolHandled",
    ),
    "_tools.content": (
        "Audio",
        "Image",
        "Resource",
        "ResourceLink",
        "ToolResult",
    ),
    "_tools.server": (
        "RawTool",
        "RawToolServer",
        "ToolServer",
    ),
    "_tools.shape": ("Shape",),
    "_tools.shape_errors": ("ShapeError",),
    "_tools.tool": (
        "Tool",
        "ToolContext",
        "as_tool",
        "tool",
    ),
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
    "ShapeError",
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
