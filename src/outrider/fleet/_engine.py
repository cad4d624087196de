"""Owns what a run and an engine say to each other: what is to be done, what comes on the way, and the end.

Does not run anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

import msgspec

from outrider.errors import OutriderError
from outrider.fleet._outcome import Status
from outrider.fleet._task import Task
from outrider.fleet._workspaces import Workspace
from outrider.options import Options
from outrider.session import Result, Usage
from outrider.wire import Json

if TYPE_CHECKING:
    from outrider.fleet._budget import Budget
    from outrider.fleet._gate import Gate
    from outrider.fleet._ledger import Ledger
    from outrider.fleet._restart import Restart
    from outrider.fleet._retry import Retry
    from outrider.fleet._starting import Starter

__all__ = ["Assignment", "Attempted", "Engine", "Note", "Shared", "Tell"]


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt at a task: all that an engine has to know."""

    id: str
    number: int
    attempt: int
    """From 1, over all runs of the journal."""
    task: Task
    options: Options
    """Those of the run with those of the task over them; the folder of a workspace is not among them yet."""
    output: object = None
    """The form that the answer must have: a type or a JSON Schema."""
    session_id: str | None = None
    """The session of this attempt: made up before it begins, so that it is known whatever happens."""
    is_picked_up: bool = False
    """An earlier attempt was cut off: its session is resumed, and told to go on. If it is not there, the
    attempt comes to `SessionNotFound`, and there is another, from the start."""
    workspace: Workspace | None = None
    """The folder to make, unless there is one of an earlier attempt to go on in."""
    root: str | None = None
    """Where folders are made."""
    usd: float | None = None
    """What is left of the task's own limits."""
    tokens: int | None = None
    tool_calls: int | None = None
    wall: float | None = None
    seconds: float | None = None
    """How long the attempt may take."""
    restarts: int = 0
    """How often the agent of this task was started again before, of as often as it may be."""
    tags: Mapping[str, str] = {}


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine tells of an attempt that is not over."""

    session_id: str | None = None
    """It goes on in this session now."""
    workspace: str | None = None
    """Its folder is made."""
    usage: Usage | None = None
    """What the attempt has used so far."""
    tool_calls: int | None = None
    """How many tools it has used so far."""
    is_rate_limited: bool = False
    """The API wants fewer requests."""
    worker: str | None = None
    """Where it runs."""
    restarts: int | None = None
    """How often the agent of the task was started again so far."""


class Attempted(msgspec.Struct, frozen=True, kw_only=True):
    """What an attempt came to."""

    status: Status
    text: str = ""
    output: Json = None
    """The structured output as it came."""
    usage: Usage = Usage()
    tool_calls: int = 0
    duration: float = 0.0
    session_id: str | None = None
    workspace: str | None = None
    """The folder that was made for it, if it is still there."""
    error: OutriderError | None = None
    result: Result[object] | None = None
    """All that came of it, where it ran in this process."""


class Shared(msgspec.Struct, kw_only=True):
    """What all attempts of a run have in common."""

    budget: Budget | None = None
    gate: Gate | None = None
    retry: Retry | None = None
    restart: Restart | None = None
    ledger: Ledger | None = None
    pool: Starter | None = None
    options: Options = msgspec.field(default_factory=Options)
    """Those of the run, for an engine that cannot do with all of them; each attempt has its own."""


Tell: TypeAlias = Callable[[Note], None]


@runtime_checkable
class Engine(Protocol):
    """Where attempts are made. One engine serves one run."""

    name: str

    def check(self, options: Options) -> None:
        """Raises `OptionsError` for options of a task that this engine cannot do."""

    async def open(self, shared: Shared) -> None:
        """Make ready. Raises `OptionsError` for what this engine cannot do, before anything is started."""

    async def attempt(self, work: Assignment, tell: Tell) -> Attempted:
        """Make one attempt, and tell what comes on the way, in the event loop's thread.

        A task that fails is what the attempt came to, no error of the engine. Raises `WorkerLost` if the
        place where it ran is gone. Cancelling the call ends the attempt, and leaves nothing running.
        """
        ...

    async def close(self) -> None:
        """Give back all that was taken. No attempt is running."""
