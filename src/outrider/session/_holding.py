"""Owns what holds a result back from its readers until what the agent wrote before it is stored.

Does not know when that is, nor how long it may take: `_mirror` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from outrider.wire import ResultMessage

if TYPE_CHECKING:
    from outrider.session._stream import Link, Stream
    from outrider.session._turn_state import TurnState
    from outrider.wire import Message


class Gate:
    """Stands before one result, in the stream of its turn and in that of the session.

    The agent is done, and all but the readers know it: no deadline runs, and an interrupt comes too late.
    """

    def __init__(self) -> None:
        self.is_open = False
        self._opened = anyio.Event()
        self._links: list[tuple[Stream, Link]] = []
        self._turns: list[TurnState] = []

    def hold(self, stream: Stream, link: Link) -> None:
        """A link that readers must not pass yet."""
        self._links.append((stream, link))

    def hold_turn(self, turn: TurnState) -> None:
        """A turn that is not over yet for whoever waits for it."""
        self._turns.append(turn)

    async def wait(self) -> None:
        await self._opened.wait()

    def open(self, told: Message | None = None) -> None:
        """Let the result through, behind a message that says why it was not held longer, if there is one."""
        if self.is_open:
            return
        self.is_open = True
        if told is not None:
            for turn in self._turns:
                _insert_before_result(turn.messages, told)
            for _, link in self._links:
                link.batch = [told, *link.batch]
        for stream in (*(stream for stream, _ in self._links), *(turn.stream for turn in self._turns)):
            stream.wake()
        self._opened.set()


def _insert_before_result(messages: list[Message], told: Message) -> None:
    places = [place for place, message in enumerate(messages) if isinstance(message, ResultMessage)]
    messages.insert(places[-1] if places else len(messages), told)
