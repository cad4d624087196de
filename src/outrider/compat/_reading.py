"""Opens sessions from `ClaudeAgentOptions`, and reads their messages as the reference SDK gives them."""

from __future__ import annotations

import logging
from copy import copy
from typing import TYPE_CHECKING, Final

from outrider.compat._callbacks import has_to_block
from outrider.compat._errors import CLIConnectionError, ProcessError, translated, translating
from outrider.compat._internal.transport import subprocess_cli
from outrider.compat._options import translated_options
from outrider.errors import OptionsError, OutriderError, SessionNotFound
from outrider.launch import make_environment
from outrider.session import Session
from outrider.wire import (
    AssistantMessage,
    AttachmentMessage,
    CommandLifecycleMessage,
    HookEventMessage,
    HookResponseMessage,
    HookStartedMessage,
    InitMessage,
    MalformedLine,
    MirrorErrorMessage,
    OversizedMessage,
    ResultMessage,
    SessionStateChangedMessage,
    StreamEvent,
    SystemMessage,
    TaskNotificationMessage,
    TaskProgressMessage,
    TaskStartedMessage,
    TaskUpdatedMessage,
    UnknownSystemMessage,
    UserMessage,
)
from outrider.wire._system import SYSTEM_SUBTYPES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    from outrider import transports
    from outrider.compat._transport import Transport
    from outrider.compat._types.options import ClaudeAgentOptions
    from outrider.options import Options
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
_NAMED: Final = (
    *(MirrorErrorMessage, TaskNotificationMessage, TaskProgressMessage, TaskStartedMessage),
    TaskUpdatedMessage,
)
"""The system messages that are the same class here and in the reference."""
_NARROWER: Final = frozenset((*SYSTEM_SUBTYPES.values(), UnknownSystemMessage)).difference(_NAMED)
"""Classes that the reference does not have. Programs compare `type(message).__name__`."""


class MessageReader:
    """Reads messages one by one; several readers do not take them from each other."""

    def __init__(self, session: Session) -> None:
        self._reader = aiter(session)
        self.ready: Iterator[Message] = iter(())
        """Those that have come and were not taken yet."""
        self._failed: ResultMessage | None = None
        """The last result, if it was an error and nothing was begun after it."""
        self._special = _SPECIAL if session.options.output_format is None else _SPECIAL | {InitMessage}
        self._is_schema_taken = True

    def fork(self) -> MessageReader:
        """Another reader, which begins where this one is."""
        other = copy(self)
        other._reader, other.ready = self._reader.fork(), copy(self.ready)
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
        """Continue to the next messages, perhaps none. Gives whether there is a result among them."""
        try:
            batch = await self._reader.batch()
        except OutriderError as error:
            if (translation := translated(error, self._failed)) is error:
                raise
            raise translation from error
        self.ready = iter(self._shown(batch))
        return ResultMessage in self._reader.kinds

    def take(self) -> Message | None:
        """The next message if it is there."""
        while True:
            for message in self.ready:
                return message
            with translating():
                batch = self._reader.batch_nowait()
            if not batch:
                return None
            self.ready = iter(self._shown(batch))

    def _shown(self, batch: list[Message]) -> list[Message]:
        kinds = self._reader.kinds
        if self._failed is not None or not self._special.isdisjoint(kinds):
            batch = [message for message in batch if self._is_shown(message)]
        if not _NARROWER.isdisjoint(kinds):
            batch = [as_in_reference(message) for message in batch]
        return batch

    def _is_shown(self, message: Message) -> bool:
        if isinstance(message, ResultMessage):
            self._failed = message if message.is_error else None
            if message.is_success and message.structured_output is None and not self._is_schema_taken:
                # Of one in its arguments, as in the reference, Claude Code says so and exits.
                raise ProcessError("Claude Code does not take the JSON Schema of output_format", 1)
        elif isinstance(message, _NEW_WORK):
            self._failed = None
            if isinstance(message, InitMessage) and InitMessage in self._special and message.tools:
                self._is_schema_taken = "StructuredOutput" in message.tools
        elif isinstance(message, MalformedLine):
            log.debug("output of the agent that is not a message: %s", message.text)
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


def as_in_reference(message: Message) -> Message:
    """The message, as an instance of the class that the reference has for it."""
    if type(message) not in _NARROWER or not isinstance(message, SystemMessage):
        return message
    made = SystemMessage(message.subtype, message.data)
    if isinstance(message, HookStartedMessage | HookResponseMessage):
        made = HookEventMessage(
            *(message.subtype, message.data, message.hook_event_name, message.session_id, message.uuid)
        )
    if (line := getattr(message, "wire_line", None)) is not None:
        made.wire_line = line
    return made


# Sessions.


async def opened(given: ClaudeAgentOptions, transport: Transport | transports.Transport) -> Session:
    """A session that is connected.

    Raises `CLINotFoundError`, `CLIConnectionError`, `ProcessError`, `ValueError`, `TypeError`.
    """
    own = transport if isinstance(transport, subprocess_cli.OwnTransport) else None
    if own is None:
        options = translated_options(given, transport)
    else:
        given = own.launch_options(given)
        if own.moves_messages:
            options, own = translated_options(given, own), None
        else:
            options = own.with_command(translated_options(given))
    with translating():
        try:
            session = await _connected(options)
        except SessionNotFound:
            if options.session_store is None:
                raise
            session = await _connected(await _without_what_the_store_lacks(options))
    if has_to_block(given.hooks):
        await _ensure_blocking(session)
    if own is not None:
        own.attach(session)
    return session


async def _connected(options: Options) -> Session:
    session = Session(options)
    await session.connect()
    return session


async def _without_what_the_store_lacks(options: Options) -> Options:
    """Options for a store that has nothing to continue: the program would look on disk, or begin again.

    Raises `SessionNotFound` if it would find nothing."""
    if options.resume is None:
        return options.replace(continue_conversation=False, fork_session=False)
    # Here: it loads all that reads and writes transcripts, which most programs need not.
    from outrider.transcripts import Sessions, config_folder

    here = Sessions(config=config_folder(make_environment(options)))
    try:
        await here.copy(options.resume, Sessions(options.session_store))
    except OptionsError:
        # Not an id, but a title that no session has.
        raise SessionNotFound(options.resume) from None
    return options


async def _ensure_blocking(session: Session) -> None:
    answer = session.info.initialized
    if answer is not None and answer.hook_on_failure_supported and answer.hooks_applied is not False:
        return
    await session.close()
    raise CLIConnectionError(
        'A hook has on_failure="block", and the program does not say that it blocks when that fails. '
        "Update it with `claude update`, or leave on_failure out."
    )
