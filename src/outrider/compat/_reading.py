"""Opens sessions from `ClaudeAgentOptions`, and reads their messages as the reference SDK gives them.

Does not decide when a session ends: `_query` and `_client` do.
"""

from __future__ import annotations

import logging
from copy import copy
from typing import TYPE_CHECKING, Final

from outrider.compat._callbacks import has_to_block
from outrider.compat._errors import CLIConnectionError, translated, translating
from outrider.compat._options import translated_options
from outrider.errors import OutriderError, SessionNotFound
from outrider.launch import make_environment
from outrider.session import Session
from outrider.transcripts import Sessions, config_folder
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

    from outrider import transports
    from outrider.compat._transport import Transport
    from outrider.compat.types import ClaudeAgentOptions
    from outrider.options import Options
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
        self.ready: Iterator[Message] = iter(())
        """Those that have come and were not taken yet."""
        self._failed = failed
        """The last result, if it was an error and nothing was begun after it."""

    def fork(self) -> MessageReader:
        """Another reader, which begins where this one is."""
        other = MessageReader(self._reader.fork(), self._failed)
        other.ready = copy(self.ready)
        return other

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        while True:
            # Nearly every call ends here.
            for message in self.ready:
                return message
            await self.advance()

    async def advance(self) -> bool:
        """Go on to the next messages, perhaps none. Gives whether there is a result among them."""
        batch, kinds = await self._more()
        self.ready = iter(batch)
        return ResultMessage in kinds

    async def _more(self) -> tuple[list[Message], set[type]]:
        try:
            batch = await self._reader.batch()
        except OutriderError as error:
            if (told := translated(error, self._failed)) is error:
                raise
            raise told from error
        kinds = set(map(type, batch))
        if self._failed is not None or not _SPECIAL.isdisjoint(kinds):
            batch = [message for message in batch if self._is_shown(message)]
        return batch, kinds

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


# Sessions.


async def opened(
    given: ClaudeAgentOptions | None, transport: Transport | transports.Transport | None
) -> Session:
    """A session that is connected.

    Raises `CLINotFoundError`, `CLIConnectionError`, `ProcessError`, `ValueError`, `TypeError`.
    """
    options = translated_options(given, transport)
    with translating():
        try:
            session = await _connected(options)
        except SessionNotFound:
            if options.session_store is None:
                raise
            session = await _connected(await _without_what_the_store_lacks(options))
    if given is not None and has_to_block(given.hooks):
        await _ensure_blocking(session)
    return session


async def _connected(options: Options) -> Session:
    session = Session(options)
    await session.connect()
    return session


async def _without_what_the_store_lacks(options: Options) -> Options:
    """Options for a store that has nothing to go on with: the program would look on disk, or begin anew.

    Raises `SessionNotFound` if it would find nothing."""
    if options.resume is None:
        return options.replace(continue_conversation=False, fork_session=False)
    here = Sessions(config=config_folder(make_environment(options)))
    await here.copy(options.resume, Sessions(options.session_store))
    return options


async def _ensure_blocking(session: Session) -> None:
    told = session.info.initialized
    if told is not None and told.hook_on_failure_supported and told.hooks_applied is not False:
        return
    await session.close()
    raise CLIConnectionError(
        'A hook has on_failure="block", and the program does not say that it blocks when that fails. '
        "Update it with `claude update`, or leave on_failure out."
    )
