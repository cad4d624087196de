"""Owns what a permission callback is given, and which of Outrider's classes it answers with.

Does not ask anybody.
"""

# Annotations are evaluated where they stand, so that `get_type_hints` finds what they name.

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from outrider.wire.permissions import (
    PermissionResult,
    PermissionResultAllow,
    PermissionResultDeny,
    PermissionRuleValue,
    PermissionUpdate,
)

__all__ = [
    "CanUseTool",
    "CanUseToolShadowedWarning",
    "PermissionBehavior",
    "PermissionMode",
    "PermissionResult",
    "PermissionResultAllow",
    "PermissionResultDeny",
    "PermissionRuleValue",
    "PermissionUpdate",
    "PermissionUpdateDestination",
    "ToolPermissionContext",
]

PermissionMode: TypeAlias = Literal["default", "acceptEdits", "plan", "bypassPermissions", "dontAsk", "auto"]
"""What the agent may do without asking."""

PermissionBehavior: TypeAlias = Literal["allow", "deny", "ask"]
"""What a permission rule does."""

PermissionUpdateDestination: TypeAlias = Literal[
    "userSettings", "projectSettings", "localSettings", "session"
]
"""Where a change of permissions is kept."""


@dataclass
class ToolPermissionContext:
    """Why the agent asks, and what it would change if it were not to ask again."""

    signal: Any | None = None
    """Always None."""
    suggestions: list[PermissionUpdate] = field(default_factory=list[PermissionUpdate])
    """To be given back as `updated_permissions`."""
    tool_use_id: str | None = None
    agent_id: str | None = None
    """The subagent that asks; None on the main thread."""
    blocked_path: str | None = None
    decision_reason: str | None = None
    title: str | None = None
    display_name: str | None = None
    description: str | None = None


CanUseTool: TypeAlias = Callable[[str, dict[str, Any], ToolPermissionContext], Awaitable[PermissionResult]]
"""A permission callback: takes the tool's name, its input and the context."""


class CanUseToolShadowedWarning(UserWarning):
    """A permission callback that the agent will not ask for some tools, or for any."""
