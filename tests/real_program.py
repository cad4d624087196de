"""Claude Code itself, for tests: where `make test` has put it, and a bare conversation with it.

Does not install it: `scripts/agent_program.py` does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import pytest

from outrider.launch import make_command, make_initialize
from outrider.options import Options
from outrider.protocol import Peer, RequestAnswered
from outrider.testing import clean_environment
from outrider.transports import ProcessTransport
from outrider.wire import ResultMessage, user_message
from scripts.agent_program import missing, program

__all__ = ["Conversation", "clean_environment", "mark", "require_program", "running"]


def mark(item: pytest.Item) -> None:
    """Mark a test as one that needs the program, if its folder or a parameter says so."""
    parameters = getattr(item, "callspec", None)
    if "real" in item.path.parts or (parameters and "real" in parameters.params.values()):
        item.add_marker("real")


def require_program() -> str:
    """The path of the program; skips the test if it is not there."""
    # Else `make conformance` would leave the test out.
    assert running.item is None or running.item.get_closest_marker("real"), (
        "mark this test with @pytest.mark.real"
    )
    path = program()
    if not path.exists():
        reason = missing().read_text(encoding="utf-8") if missing().exists() else "`make test` installs it"
        pytest.skip(f"Claude Code is not installed ({reason})")
    return str(path)


class _Running:
    item: pytest.Item | None = None


running = _Running()
"""The test that is being run."""


class Conversation:
    """As much of a session as tests below that layer need."""

    def __init__(self, options: Options, *, grace: float = 5.0) -> None:
        self.options = options
        self.transport = ProcessTransport(make_command(options), grace=grace)
        self.peer = Peer("host")
        self.received: list[Any] = []
        """All events so far."""
        self._looked_at = 0

    async def open(self) -> Any:
        """Start the program; gives its answer to the first request."""
        await self.transport.connect()
        return await self.request(make_initialize(self.options))

    async def request(self, request: Any) -> Any:
        sent = self.peer.request(request)
        answered = await self.until(lambda event: isinstance(event, RequestAnswered) and event.id == sent)
        return answered.request.read_answer(answered.payload)

    def ask(self, text: str) -> None:
        self.peer.send(user_message(text))

    async def turn(self, text: str) -> ResultMessage:
        """Ask, and wait for the result."""
        self.ask(text)
        result: ResultMessage = await self.until(lambda event: isinstance(event, ResultMessage))
        return result

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.transport.close()

    async def until(self, is_it: Callable[[Any], bool]) -> Any:
        """The next event that is the one, after the last that was waited for."""
        while True:
            if output := self.peer.take_output():
                await self.transport.send(output)
            for event in self.received[self._looked_at :]:
                self._looked_at += 1
                if is_it(event):
                    return event
            self.received += self.peer.receive(await self.transport.receive())
