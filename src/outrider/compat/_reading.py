"""The messages of a session in the order and selection in which the reference SDK gives them.

Does not know how a session is opened, nor when it ends.
"""

from __future__ import annotations

import logging
from copy import copy
from typing import TYPE_CHECKING, Final

from outrider.compat._raising import translated
from outrider.errors import OutriderError
from outrider.wire import (
    AssistantMessage,
    AttachmentMessage,
    CommandLifecycleMessage,
    InitMessage,
    MalformedLine,
    OversizedMessage,
    ResultMessage,
    SessionStateChangedMessage,
    StreamEvent,
    UserMessage,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    from outrider.session import Reader
    from outrider.wire import Message

log = logging.getLogger("outrider.session")

_HIDDEN: Final = (
    AttachmentMessage,
    CommandLifecycleMessage,
    MalformedLine,
    OversizedMessage,
    SessionStateChangedMessage,
)
_NEW_WORK: Final = (AssistantMessage, InitMessage, UserMessage, StreamEvent)
_SPECIAL: Final = frozenset((*_HIDDEN, ResultMessage))


class MessageReader:
    """Reads messages one by one; several readers do not take them from each other."""

    def __init__(self, reader: Reader, failed: ResultMessage | None = None) -> None:
        self._reader = reader
        self._ready: Iterator[Message] = iter(())
        self._failed = failed
        """The last result, if it was an error and nothing was begun after it."""

    def fork(self) -> MessageReader:
        """Another reader, which begins where this one is."""
        other = MessageReader(self._reader.fork(), self._failed)
        other._ready = copy(self._ready)
        return other

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        while True:
            # Nearly every call ends here.
            for message in self._ready:
                return message
            self._ready = iter(await self._more())

    async def _more(self) -> list[Message]:
        try:
            batch = await self._reader.batch()
        except OutriderError as error:
            if (told := translated(error, self._failed)) is error:
                raise
            raise told from error
        if self._failed is None and _SPECIAL.isdisjoint(map(type, batch)):
            return batch
        return [message for message in batch if self._is_shown(message)]

    def _is_shown(self, message: Message) -> bool:
        if isinstance(message, ResultMessage):
            self._failed = message if message.is_error else None
        elif isinstance(message, _NEW_WORK):
            self._failed = None
        elif isinstance(message, MalformedLine):
            log.debug("output of the agent that is no message: %s", message.text)
            return False
        elif isinstance(message, OversizedMessage):
            log.warning("a message of %d bytes was left out: it is over the limit", message.size)
            return False
        elif isinstance(message, SessionStateChangedMessage):
            return not message.data.get("sdk_host_only")
        else:
            # The reference has no class for the former; the latter come because prompts are given ids here.
            return not isinstance(message, AttachmentMessage | CommandLifecycleMessage)
        return True
