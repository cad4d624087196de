"""A run of the simulated program without the program: what its parts need, and the frames that they write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

import anyio

from outrider.testing import clean_environment
from outrider.testing._simulator.frames import Outcome, ToolCall
from outrider.testing._simulator.program import Invocation
from outrider.testing._simulator.tools.tasks import Background
from outrider.testing._simulator.tools.tools import Tools
from outrider.testing._simulator.transcript import Transcript
from outrider.transcripts import project_folder
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from anyio.abc import TaskGroup

    from outrider.testing._simulator.run import Run


class World:
    """As much of a run as tools, background tasks and transcripts see."""

    version = "2.1.325"
    model = "claude-opus-5-5"
    permission_mode = "default"
    initialize: JsonObject | None = None
    tasks: TaskGroup

    def __init__(
        self, root: Path, session_id: str | None = None, *, cwd: Path | None = None, **flags: Any
    ) -> None:
        root = root.resolve()
        self.invocation = Invocation(**flags)
        # As `RealAgent` has them.
        self.cwd = cwd or root / "project"
        home = root / "home"
        self.config_dir = home / ".claude"
        self.cwd.mkdir(exist_ok=True)
        self.config_dir.mkdir(parents=True, exist_ok=True)
        self.environment: Mapping[str, str] = clean_environment(home)
        self.session_id = session_id or str(uuid4())
        self.frames: list[JsonObject] = []
        self.lines: list[str] = []
        self.transcript_path = project_folder(self.config_dir, self.cwd) / f"{self.session_id}.jsonl"
        run = cast("Run", self)
        self.transcript = Transcript(run)
        self.background = Background(run)
        self.tools = Tools(run, self.background)

    def say(self, frame: JsonObject) -> None:
        self.frames.append(frame)

    async def ask(self, subtype: str, fields: JsonObject) -> JsonObject:
        raise NotImplementedError

    def complain(self, line: str) -> None:
        self.lines.append(line)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[World]:
        """The time in which commands can be run; at its end all are."""
        with anyio.fail_after(30):
            async with anyio.create_task_group() as self.tasks:
                try:
                    yield self
                finally:
                    await self.background.stop_all()
                    self.tasks.cancel_scope.cancel()

    async def use(self, name: str, /, **given: Any) -> Outcome:
        """Call a tool."""
        return await self.tools.perform(ToolCall(id=f"toolu_{uuid4().hex}", name=name, input=given))

    def of(self, *subtypes: str) -> Iterator[JsonObject]:
        """The frames of these subtypes so far."""
        return (frame for frame in self.frames if frame.get("subtype") in subtypes)
