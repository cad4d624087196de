"""What was answered to the agent, as events with their latency.

Who is told of them is not known here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec

from outrider.wire import Json, JsonObject

Outcome: TypeAlias = Literal["answered", "failed", "timed_out", "cancelled"]
"""Whether the user's function answered; if not, the agent was told of a failure, or what the failure policy
says."""


class Handled(msgspec.Struct, frozen=True, kw_only=True):
    """A request of the agent that was answered here."""

    seconds: float
    """From the request's arrival to the answer."""
    outcome: Outcome
    error: BaseException | None = None
    """What the function raised, if it failed."""
    tool_use_id: str | None = None


class ToolHandled(Handled, frozen=True, kw_only=True):
    """A call of a tool in this process."""

    server: str
    name: str
    arguments: JsonObject
    """As the model gave them."""
    is_error: bool
    """Whether the model was told of an error."""


class HookHandled(Handled, frozen=True, kw_only=True):
    """A hook that ran."""

    event: str
    name: str
    """The function's."""
    answer: JsonObject
    """As sent."""


class PermissionHandled(Handled, frozen=True, kw_only=True):
    """A decision about the use of a tool."""

    tool_name: str
    input: JsonObject
    """What the agent wanted to do."""
    decision: Literal["allow", "deny"]
    reason: str
    """Who decided and why: a rule, the callback, or that there was none."""


class ElicitationHandled(Handled, frozen=True, kw_only=True):
    """An answer to a question of an MCP server."""

    server: str
    action: str


class DialogHandled(Handled, frozen=True, kw_only=True):
    """An answer to a dialog of the agent."""

    kind: str
    result: Json


Observe: TypeAlias = Callable[[Handled], None]
"""Takes each event; called on the event loop."""
