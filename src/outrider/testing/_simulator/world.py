"""Owns the values that the parts of the simulated agent hand to each other, and what they see of a run.

Does nothing itself: `_run` does, and the parts that are named here.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

import msgspec

from outrider.wire import Json, JsonObject

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from outrider.testing._simulator.program.invocation import Invocation

__all__ = [
    "Outcome",
    "Places",
    "Refused",
    "Surroundings",
    "ToolCall",
    "ToolSpec",
    "as_list",
    "as_object",
    "blocks_of",
]


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


def as_object(value: object) -> JsonObject:
    """An object; an empty one for anything else."""
    return cast("JsonObject", value) if isinstance(value, dict) else {}


def as_list(value: object) -> list[Json]:
    """A list; an empty one for anything else."""
    return cast("list[Json]", value) if isinstance(value, list) else []


def blocks_of(message: Mapping[str, object]) -> list[JsonObject]:
    """The content blocks of a message; none if its content is a text."""
    return [as_object(block) for block in as_list(message.get("content")) if isinstance(block, dict)]


class Places:
    """The folders of one agent, or of several that share them. Those that were not given are temporary."""

    def __init__(
        self, folder: str | os.PathLike[str] | None, config_dir: str | os.PathLike[str] | None
    ) -> None:
        self._given = None if folder is None else Path(folder).absolute()
        self._given_config = None if config_dir is None else Path(config_dir).absolute()
        self._root: Path | None = None
        self._users = 0
        self._lock = threading.Lock()

    @property
    def folder(self) -> Path:
        if self._given is None:
            return self._made("project")
        self._given.mkdir(parents=True, exist_ok=True)
        return self._given

    @property
    def config_dir(self) -> Path:
        return self._made("config") if self._given_config is None else self._given_config

    def make_private(self) -> Path:
        """A folder for one agent alone, which removes it itself."""
        return Path(tempfile.mkdtemp(prefix="outrider-simulator-"))

    def enter(self) -> None:
        """Keep them until as many times `leave` was called."""
        with self._lock:
            self._users += 1

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users > 0 or self._root is None:
                return
            root, self._root = self._root, None
        shutil.rmtree(root, ignore_errors=True)

    def _made(self, name: str) -> Path:
        with self._lock:
            if self._root is None:
                # As the agent will say it: on some systems the folder for temporary files is a link.
                self._root = Path(tempfile.mkdtemp(prefix="outrider-simulator-")).resolve()
                weakref.finalize(self, shutil.rmtree, self._root, ignore_errors=True)
            path = self._root / name
            path.mkdir(exist_ok=True)
        return path
