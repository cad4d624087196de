"""How a layer above looks at all that a session receives, as it comes, and may refuse or end its turns.

It is no reader: what it sees stays unread for others, and reading pauses as if it were not there. Decides
nothing itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from outrider.errors import OutriderError
    from outrider.session._connection import Connection
    from outrider.session._session import Session
    from outrider.session._usage import Usage
    from outrider.wire import Message


class Observer(Protocol):
    """Is told what happens, in the order in which it does, before anybody who waits for it goes on.

    Only `begins` may raise.
    """

    def begins(self) -> None:
        """A turn is about to be sent: what this raises is raised by `send`, and nothing is sent."""
        ...

    def received(self, messages: Sequence[Message]) -> None:
        """These have come, for whatever turn."""
        ...

    def ended(self) -> None:
        """Nothing more will come."""
        ...


class Observed:
    """A session as its observer has it: the session itself may be dropped meanwhile."""

    def __init__(self, connection: Connection, observer: Observer) -> None:
        """Made by `observe`."""
        self._connection = connection
        self._observer = observer
        connection.routing.observers.append(observer)

    @property
    def usage(self) -> Usage:
        """What has been used since the session was opened here."""
        return self._connection.routing.meter.total

    @property
    def is_closed(self) -> bool:
        """Whether nothing more can come."""
        return self._connection.is_closed

    def end_turns(
        self, failure: Callable[[Sequence[Message], str | None], OutriderError], grace: float
    ) -> int:
        """Begin to end all turns that are not over, as `Turn.cancel` does; gives how many there are.

        Those that are cut off by it fail with what `failure` makes of the messages that came until then, and
        of the session's id.
        """
        connection = self._connection
        turns = list(connection.routing.outstanding)
        for turn in turns:
            connection.begin_stop(
                turn, lambda turn: failure(turn.received, connection.info.session_id), grace=grace
            )
        return len(turns)

    def stop(self) -> None:
        """Look no longer. A second call changes nothing."""
        if self._observer in self._connection.routing.observers:
            self._connection.routing.observers.remove(self._observer)


def observe(session: Session, observer: Observer) -> Observed:
    """Begin to observe a session that is open. Raises `UsageError` if it is not."""
    return Observed(session._conversation.connected(), observer)  # pyright: ignore[reportPrivateUsage]
