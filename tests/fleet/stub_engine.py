"""An engine that does what a test says, with no process at all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
from anyio.lowlevel import checkpoint

from outrider.fleet import Assignment, Attempted, Shared
from outrider.fleet._engine import Tell
from outrider.options import Options
from outrider.session import Usage

CENT = Usage(input_tokens=10, output_tokens=5, cost_usd=0.01)


async def answer(work: Assignment, tell: Tell) -> Attempted:
    await checkpoint()
    return Attempted(
        status="done", text=f"did {work.task.prompt}", usage=CENT, duration=0.1, session_id=work.session_id
    )


class Stub:
    """Makes attempts with a function, and keeps what it was asked for."""

    name = "stub"

    def __init__(self, attempt: Callable[[Assignment, Tell], Awaitable[Attempted]] = answer) -> None:
        self._attempt = attempt
        self.works: list[Assignment] = []
        self.running = 0
        self.most = 0
        self.shared: Shared | None = None
        self.is_closed = False

    def check(self, options: Options) -> None: ...

    async def open(self, shared: Shared) -> None:
        self.shared = shared

    async def attempt(self, work: Assignment, tell: Tell) -> Attempted:
        self.works.append(work)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            return await self._attempt(work, tell)
        finally:
            self.running -= 1

    async def close(self) -> None:
        assert not self.running
        self.is_closed = True


class Doors:
    """Attempts that wait until each is let go on."""

    def __init__(self) -> None:
        self._doors: dict[str, anyio.Event] = {}

    def _door(self, prompt: str) -> anyio.Event:
        return self._doors.setdefault(prompt, anyio.Event())

    def open(self, *prompts: str) -> None:
        for prompt in prompts:
            self._door(prompt).set()

    async def attempt(self, work: Assignment, tell: Tell) -> Attempted:
        await self._door(work.task.prompt).wait()
        return await answer(work, tell)
