"""Answers the agent with what the user supplies: tools, MCP servers, hooks, permissions, questions."""

from typing import TYPE_CHECKING

from outrider._lazy import lazily

if TYPE_CHECKING:
    from outrider.handlers._answers import Answer as Answer
    from outrider.handlers._answers import add_context as add_context
    from outrider.handlers._answers import allow as allow
    from outrider.handlers._answers import ask as ask
    from outrider.handlers._answers import block as block
    from outrider.handlers._answers import defer as defer
    from outrider.handlers._answers import deny as deny
    from outrider.handlers._answers import later as later
    from outrider.handlers._answers import modify as modify
    from outrider.handlers._answers import notify as notify
    from outrider.handlers._answers import stop as stop
    from outrider.handlers._calls import CallContext as CallContext
    from outrider.handlers._calls import CallTimedOut as CallTimedOut
    from outrider.handlers._calls import call as call
    from outrider.handlers._calls import name_of as name_of
    from outrider.handlers._hooks.dispatch import HookNeverCalledWarning as HookNeverCalledWarning
    from outrider.handlers._hooks.hook import Hook as Hook
    from outrider.handlers._hooks.hook import HookContext as HookContext
    from outrider.handlers._hooks.hook import hook as hook
    from outrider.handlers._permissions.elicitation import Choice as Choice
    from outrider.handlers._permissions.elicitation import DialogRequest as DialogRequest
    from outrider.handlers._permissions.elicitation import ElicitationRequest as ElicitationRequest
    from outrider.handlers._permissions.elicitation import FormField as FormField
    from outrider.handlers._permissions.elicitation import accept as accept
    from outrider.handlers._permissions.elicitation import cancel as cancel
    from outrider.handlers._permissions.elicitation import decline as decline
    from outrider.handlers._permissions.requests import PermissionRequest as PermissionRequest
    from outrider.handlers._permissions.requests import Plan as Plan
    from outrider.handlers._permissions.requests import Question as Question
    from outrider.handlers._permissions.requests import QuestionReply as QuestionReply
    from outrider.handlers._policy.policy import Considered as Considered
    from outrider.handlers._policy.policy import Explanation as Explanation
    from outrider.handlers._policy.policy import Policy as Policy
    from outrider.handlers._policy.policy import UnreachableRuleWarning as UnreachableRuleWarning
    from outrider.handlers._policy.rule import Rule as Rule
    from outrider.handlers._router import AgentLink as AgentLink
    from outrider.handlers._router import DialogHandled as DialogHandled
    from outrider.handlers._router import ElicitationHandled as ElicitationHandled
    from outrider.handlers._router import Endpoint as Endpoint
    from outrider.handlers._router import Handled as Handled
    from outrider.handlers._router import Handlers as Handlers
    from outrider.handlers._router import HookHandled as HookHandled
    from outrider.handlers._router import Observe as Observe
    from outrider.handlers._router import Origin as Origin
    from outrider.handlers._router import Outcome as Outcome
    from outrider.handlers._router import PermissionHandled as PermissionHandled
    from outrider.handlers._router import Server as Server
    from outrider.handlers._router import ToolHandled as ToolHandled
    from outrider.handlers._tools.content import Audio as Audio
    from outrider.handlers._tools.content import Image as Image
    from outrider.handlers._tools.content import Resource as Resource
    from outrider.handlers._tools.content import ResourceLink as ResourceLink
    from outrider.handlers._tools.content import ToolResult as ToolResult
    from outrider.handlers._tools.server import RawTool as RawTool
    from outrider.handlers._tools.server import RawToolServer as RawToolServer
    from outrider.handlers._tools.server import ToolServer as ToolServer
    from outrider.handlers._tools.shape import Shape as Shape
    from outrider.handlers._tools.shape_errors import ShapeError as ShapeError
    from outrider.handlers._tools.tool import Tool as Tool
    from outrider.handlers._tools.tool import ToolContext as ToolContext
    from outrider.handlers._tools.tool import as_tool as as_tool
    from outrider.handlers._tools.tool import tool as tool
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
