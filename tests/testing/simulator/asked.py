"""A run of the simulated program with nobody but a host that a test plays: for the parts that ask it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias, cast

import anyio
import anyio.lowlevel

from outrider.testing._simulator.frames import Refused, ToolCall, ToolSpec
from outrider.testing._simulator.host.hooks import Hooks
from outrider.testing._simulator.host.permissions import Decision, Permissions
from outrider.testing._simulator.program import read_invocation
from outrider.testing._simulator.tools.mcp import McpServers
from outrider.testing._simulator.tools.tools import Questions
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from outrider.testing._simulator.run import Run

Reply: TypeAlias = JsonObject | str | None
"""An answer; a text is an error, nothing is not an answer at all."""


class Asked:
    """A run, as its parts see it. `answer` is the host; what it was asked is in `asked`."""

    version = "2.1.325"
    model = "claude-opus-5-5"
    session_id = "00000000-0000-4000-8000-000000000000"
    initialize: JsonObject | None = None
    tasks: TaskGroup

    def __init__(
        self,
        root: Path,
        *argv: str,
        answer: Callable[[str, JsonObject], Reply] = lambda subtype, fields: {},
        environment: Mapping[str, str] | None = None,
        offered: list[ToolSpec] | None = None,
    ) -> None:
        root = root.resolve()
        self.cwd, self.config_dir = root / "project", root / "config"
        for folder in (self.cwd, self.config_dir):
            folder.mkdir(exist_ok=True)
        self.environment: Mapping[str, str] = environment or {}
        self.invocation = read_invocation(["--input-format", "stream-json", *_STREAM, *argv], {}, self.cwd)
        self.permission_mode = self.invocation.permission_mode or "default"
        self.transcript_path = self.config_dir / "projects" / "p" / f"{self.session_id}.jsonl"
        self.answer = answer
        self.is_gone = False
        self.asked: list[tuple[str, JsonObject]] = []
        self.withdrawn: list[str] = []
        self.frames: list[JsonObject] = []
        self.lines: list[str] = []
        self._offered = offered or []
        run = cast("Run", self)
        self.hooks = Hooks(run)
        self.permissions = Permissions(run, self.hooks)
        self.mcp = McpServers(run)
        self.questions = Questions(run, self.permissions)

    def offered(self) -> list[ToolSpec]:
        return self._offered

    def say(self, frame: JsonObject) -> None:
        self.frames.append(frame)

    async def ask(self, subtype: str, fields: JsonObject) -> JsonObject:
        if self.is_gone:
            raise _Gone("gone")
        self.asked.append((subtype, fields))
        reply = self.answer(subtype, fields)
        try:
            if reply is None:
                await anyio.sleep_forever()
            await anyio.lowlevel.checkpoint()
        except anyio.get_cancelled_exc_class():
            self.withdrawn.append(subtype)
            raise
        if isinstance(reply, str):
            raise Refused(reply)
        return reply or {}

    def complain(self, line: str) -> None:
        self.lines.append(line)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[Self]:
        """The time in which the parts can be used."""
        with anyio.fail_after(30):
            async with anyio.create_task_group() as self.tasks:
                try:
                    yield self
                finally:
                    self.tasks.cancel_scope.cancel()

    def of(self, subtype: str) -> list[JsonObject]:
        """The requests of this kind, so far."""
        return [fields for kind, fields in self.asked if kind == subtype]


class _Gone(Refused):
    is_gone = True


_STREAM = ("--output-format", "stream-json", "--verbose")
WITH_HOST = ("--permission-prompt-tool", "stdio")
"""The arguments with which the host is asked."""


def call(name: str, /, **given: Any) -> ToolCall:
    return ToolCall(id="toolu_1", name=name, input=given)


def bash(command: str) -> ToolCall:
    return call("Bash", command=command)


def source(decision: Decision) -> str:
    """Who decided."""
    assert decision.meta is not None
    return str(decision.meta["permission_decision"]["source"])
