"""Owns the values that the parts of the simulated agent hand to each other, and what they see of a run.

Does nothing itself: `_run` does, and the parts that are named here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from outrider.wire import JsonObject

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from outrider.testing._simulator._invocation import Invocation

__all__ = ["Outcome", "Refused", "Surroundings", "ToolCall", "ToolSpec"]


class Refused(Exception):
    """The host answered a request with an error."""


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as the model is told of it."""

    name: str
    """For tools of servers, `mcp__SERVER__TOOL`."""
    description: str = ""
    input_schema: JsonObject = {}
    annotations: JsonObject = {}


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a tool by the model."""

    id: str
    name: str
    input: JsonObject
    parent_tool_use_id: str | None = None
    """The call of `Agent` that started the subagent which calls; none for the main conversation."""
    agent_id: str | None = None
    """The subagent that calls."""
    agent_type: str | None = None
    message_id: str = ""
    """The model's message that holds the call."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a call."""

    content: str | list[JsonObject]
    """What the model is given as the result."""
    is_error: bool = False
    detail: object = None
    """`tool_use_result` of the frame: an object, a list or a text, as the program has it for that tool."""
    structured_content: JsonObject | None = None
    meta: JsonObject | None = None


class Surroundings(Protocol):
    """A run of the simulated program, as its parts see it. One event loop, one thread."""

    invocation: Invocation
    """The command line, read."""
    environment: Mapping[str, str]
    cwd: Path
    config_dir: Path
    version: str
    model: str
    permission_mode: str
    session_id: str
    transcript_path: Path
    tasks: TaskGroup
    """For what goes on beside a turn. It is cancelled when the program ends."""
    initialize: JsonObject | None
    """The first request of the host, as sent; none if it sent none."""

    def say(self, frame: JsonObject) -> None:
        """Write a frame. `uuid` and `session_id` are added if it has none and is not of the control
        protocol."""
        ...

    async def ask(self, subtype: str, fields: JsonObject) -> JsonObject:
        """Ask the host, and wait for its answer. Cancelled, the request is taken back.

        Raises `Refused` for an error, and waits forever if the host is gone and the run is about to end.
        """
        ...

    def complain(self, line: str) -> None:
        """Write a line to stderr."""
        ...

    def on_end_of_turn(self, later: Callable[[], None]) -> None:
        """Call this once the turn that runs now has written its result; at once if none runs."""
        ...
