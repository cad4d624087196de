"""Defines `query`, the reference SDK's function that runs prompts in a session of their own.

Opening the session and reading it are in `_reading`.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterator
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from outrider import transports
from outrider.compat._errors import translating
from outrider.compat._reading import MessageReader, opened
from outrider.compat._transport import Transport
from outrider.compat._types.options import ClaudeAgentOptions
from outrider.errors import TurnTimedOut, UsageError
from outrider.session._prompts import make_message
from outrider.wire import Message, encode

if TYPE_CHECKING:
    from outrider.session import Session, Turn

log = logging.getLogger("outrider.session")


def query(
    *,
    prompt: str | AsyncIterable[dict[str, Any]],
    options: ClaudeAgentOptions | None = None,
    transport: Transport | transports.Transport | None = None,
) -> AsyncIterator[Message]:
    """Run a prompt, or the messages of an async iterable, and give what the agent says until it ends.

        async for message in query(prompt="How many TODOs are in src?"): ...

    Leaving the loop ends the agent; `aclose` waits until it is gone. Raises `CLINotFoundError`,
    `CLIConnectionError`, and after an error result `ResultError`; for options that cannot work, `ValueError`
    or `TypeError`.
    """
    from outrider.compat._internal.client import InternalClient

    options = ClaudeAgentOptions() if options is None else options
    return InternalClient().process_query(prompt=prompt, options=options, transport=transport)


def message_of(prompt: str, session_id: str) -> dict[str, Any]:
    """The message for a text."""
    # Sessions take no empty text, and the program does.
    content: Any = prompt if prompt.strip() else [{"type": "text", "text": prompt}]
    message = {"role": "user", "content": content}
    return {"type": "user", "message": message, "parent_tool_use_id": None, "session_id": session_id}


# How it is run.


class Prompts:
    """The messages of an iterable. One that fails ends: the agent finishes what it was asked until then.

    Raises `TypeError` for what is none.
    """

    def __init__(self, prompts: object) -> None:
        if not isinstance(prompts, AsyncIterable):
            raise TypeError(f"prompt must be a text or an async iterable of messages, not {prompts!r:.100}")
        self._prompts = cast("AsyncIterable[dict[str, Any]]", prompts)
        self.error: Exception | None = None

    async def __aiter__(self) -> AsyncGenerator[dict[str, Any], None]:
        messages = self._prompts
        try:
            async for message in messages:
                # First: one that cannot be sent would end the turn with it.
                encode(make_message(message))
                yield message
        except Exception as error:
            log.exception("the iterable of prompts failed")
            self.error = error
        finally:
            if isinstance(messages, AsyncGenerator):
                await messages.aclose()


class MessageStream(AsyncGenerator["Message", None]):
    """The messages of one run. Begins when it is first asked for one.

    It is not a real generator: dropping it in the middle, by `break`, ends the agent, in any task and thread.
    """

    def __init__(
        self,
        prompt: str | AsyncIterable[dict[str, Any]],
        options: ClaudeAgentOptions,
        transport: Transport | transports.Transport | None,
        starts: Callable[..., Transport],
    ) -> None:
        self._prompt = prompt
        self._options = options
        self._transport = transport
        self._starts = starts
        """Makes the transport that starts Claude Code, if none is given."""
        self._prompts: Prompts | None = None
        self._session: Session | None = None
        self._turn: Turn | None = None
        self._reader: MessageReader | None = None
        self._ready: Iterator[Message] = iter(())
        """Messages that have come and were not taken yet."""
        self._is_begun = False
        self._is_over = False

    async def __anext__(self) -> Message:
        # Nearly every call ends here.
        for message in self._ready:
            return message
        return await self._next()

    async def _next(self) -> Message:
        if self._is_over:
            raise StopAsyncIteration
        if self._reader is None and self._is_begun:
            # Another task is at it, and a prompt is sent once. Generators say it like this.
            raise RuntimeError("anext(): asynchronous generator is already running")
        self._is_begun = True
        try:
            if self._reader is None:
                self._reader = await self._begin()
            message = await self._reader.__anext__()
            if not self._is_over:
                self._ready = self._reader.ready
        except StopAsyncIteration:
            await self.aclose()
            await self._raise_what_is_left()
            raise
        except GeneratorExit:
            # The event loop is gone, or will not run this any more: there is nothing to wait with.
            self._drop()
            raise
        except BaseException:
            # Also if it is cancelled: no agent keeps running unheard. It takes no longer than it must.
            await self.aclose()
            raise
        return message

    async def _begin(self) -> MessageReader:
        prompt: Any = self._prompt
        if isinstance(prompt, str):
            prompt = message_of(prompt, "")
        else:
            prompt = self._prompts = Prompts(prompt)
        transport = self._transport or self._starts(prompt=self._prompt, options=self._options)
        session = self._session = await opened(self._options, transport)
        if self._is_over:
            # It was closed meanwhile.
            raise StopAsyncIteration
        with translating():
            self._turn = await session.send(prompt, until="idle", keep=False)
            session.end_input()
        return MessageReader(session)

    async def _raise_what_is_left(self) -> None:
        """What went wrong on our side of a run that the agent ended well."""
        with translating():
            if self._prompts is not None and self._prompts.error is not None:
                raise self._prompts.error
            if self._turn is not None:
                error = (await self._turn.result(check=False)).error
                if isinstance(error, TurnTimedOut):
                    raise error
                if error is not None and isinstance(error.__cause__, UsageError):
                    # A prompt that could not be sent.
                    raise error

    # As a generator has them.

    async def asend(self, value: None, /) -> Message:
        return await self.__anext__()

    async def athrow(
        self,
        typ: type[BaseException] | BaseException,
        val: BaseException | object = None,
        tb: TracebackType | None = None,
        /,
    ) -> Message:
        await self.aclose()
        raise val if isinstance(val, BaseException) else typ

    async def aclose(self) -> None:
        """End the agent, and wait until it is gone."""
        self._is_over, self._ready = True, iter(())
        if self._session is not None:
            await self._session.close()

    def _drop(self) -> None:
        self._is_over, self._ready = True, iter(())
        if self._session is not None:
            self._session.abandon()

    def __del__(self) -> None:
        with suppress(AttributeError):
            self._drop()
