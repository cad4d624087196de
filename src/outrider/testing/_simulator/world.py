"""Owns the values that the parts of the simulated agent hand to each other, and what they see of a run.

Does nothing itself: `run` does, and the parts that are named here.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, cast

import msgspec

from outrider.testing._api.requests import Request
from outrider.wire import Json, JsonObject

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from outrider.testing._simulator.program.invocation import Invocation

__all__ = [
    "Invalid",
    "Outcome",
    "Places",
    "Refused",
    "RequestLog",
    "Surroundings",
    "ToolCall",
    "ToolSpec",
    "Unusable",
    "WentWrong",
    "as_list",
    "as_object",
    "blocks_of",
    "check_input",
    "no_such_tool",
    "wrong_input",
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


class WentWrong(Exception):
    """A call that was carried out, and failed. The text is what the model is told."""

    def outcome(self) -> Outcome:
        return Outcome(content=str(self), is_error=True, detail=f"Error: {self}")


class Unusable(WentWrong):
    """A call that makes no sense here: nothing was asked and nothing was done."""

    def outcome(self) -> Outcome:
        return Outcome(
            content=f"<tool_use_error>{self}</tool_use_error>", is_error=True, detail=f"Error: {self}"
        )


class Invalid(Unusable):
    """An input that is not as the tool's schema says."""

    def __init__(self, text: str, issues: str) -> None:
        super().__init__(text)
        self.issues = issues

    def outcome(self) -> Outcome:
        return Outcome(
            content=f"<tool_use_error>InputValidationError: {self}</tool_use_error>",
            is_error=True,
            detail=f"InputValidationError: {self.issues}",
        )


def no_such_tool(name: str, why: str = "") -> Outcome:
    """The outcome of a call of a tool that the session does not have."""
    text = f"Error: No such tool available: {name}{why}"
    return Outcome(content=f"<tool_use_error>{text}</tool_use_error>", is_error=True, detail=text)


_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


def check_input(spec: ToolSpec, given: JsonObject) -> None:
    """Raises `Invalid` for an input that lacks a parameter or has one of another type."""
    found = _issues(spec, given)
    if found:
        raise Invalid(_told(spec, found), json.dumps([issue for issue, _ in found], indent=2))


def wrong_input(spec: ToolSpec, given: JsonObject) -> str | None:
    """What is wrong with an input, in the program's words."""
    found = _issues(spec, given)
    return _told(spec, found) if found else None


def _told(spec: ToolSpec, found: list[tuple[JsonObject, str]]) -> str:
    issues = "issue" if len(found) == 1 else "issues"
    return "\n".join([f"{spec.name} failed due to the following {issues}:", *(text for _, text in found)])


def _issues(spec: ToolSpec, given: JsonObject) -> list[tuple[JsonObject, str]]:
    found: list[tuple[JsonObject, str]] = []
    required = [str(name) for name in as_list(spec.input_schema.get("required"))]
    properties = as_object(spec.input_schema.get("properties"))
    for name in dict.fromkeys((*properties, *required)):
        declared = as_object(properties.get(name)).get("type")
        kind = declared if isinstance(declared, str) else "string"
        received = _type_name(given[name]) if name in given else "undefined"
        if name not in given:
            if name not in required:
                continue
            text = f"The required parameter `{name}` is missing"
        elif declared != kind or kind not in _TYPES or _fits(given[name], kind):
            continue
        else:
            text = f"The parameter `{name}` type is expected as `{kind}` but provided as `{received}`"
        issue: JsonObject = {
            "expected": kind,
            "code": "invalid_type",
            "path": [name],
            "message": f"Invalid input: expected {kind}, received {received}",
        }
        found.append((issue, text))
    return found


def _fits(value: object, kind: str) -> bool:
    return isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))


def _type_name(value: object) -> str:
    if value is None:
        return "null"
    return next(name for name in ("boolean", "number", "string", "array", "object") if _fits(value, name))


class RequestLog:
    """Requests in the order in which they were made."""

    def __init__(self) -> None:
        self._requests: list[Request] = []
        self._arrived = threading.Condition()

    def __len__(self) -> int:
        return len(self._requests)

    def add(self, request: Request) -> None:
        with self._arrived:
            self._requests.append(request)
            self._arrived.notify_all()

    def all(self) -> list[Request]:
        with self._arrived:
            return list(self._requests)

    def main(self) -> list[Request]:
        """Those of the main conversation."""
        return [request for request in self.all() if request.kind == "main"]

    def wait_for(self, what: int | Callable[[Request], bool], timeout: float) -> Request:
        """Block this thread until one is there. Raises `TimeoutError` if it does not come."""
        deadline = time.monotonic() + timeout
        with self._arrived:
            while (found := self._find(what)) is None:
                left = deadline - time.monotonic()
                if left <= 0:
                    came = ", ".join(request.kind for request in self._requests) or "none"
                    wanted = f"main request {what}" if isinstance(what, int) else "the request"
                    raise TimeoutError(f"{wanted} did not come within {timeout:g} s; those that did: {came}")
                self._arrived.wait(left)
        return found

    def _find(self, what: int | Callable[[Request], bool]) -> Request | None:
        if callable(what):
            return next(filter(what, self._requests), None)
        main = [request for request in self._requests if request.kind == "main"]
        return main[what - 1] if 1 <= what <= len(main) else None
