"""Owns the process of a resilient session: starts, resumes and ends it, and adds up what its processes use.

Does not decide when. Whoever calls has the session to itself meanwhile.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, TypeAlias, cast

import anyio
import msgspec

from outrider.errors import ConnectionLost, OutriderError, TransportClosed
from outrider.fleet._budget.budget import limit_reached
from outrider.session import Session, SessionState, Usage

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractAsyncContextManager

    from outrider.fleet._budget.budget import Budget, Gate
    from outrider.fleet._budget.ledger import Ledger
    from outrider.fleet._resilient.retry import Clock, Restart, Retry
    from outrider.options import Options
    from outrider.session import Result


_IDLE_SECONDS: Final = 300.0
"""A process that would wait longer for the API is ended meanwhile. To start one takes a second or less."""

Phase: TypeAlias = Literal["busy", "waiting", "restarting"]


class Policies(NamedTuple):
    """What a resilient session goes by."""

    restart: Restart | None
    retry: Retry | None
    budget: Budget | None
    ledger: Ledger | None
    gate: Gate | None
    tags: Mapping[str, str]
    starter: Starter
    clock: Clock


class ResilientProcess:
    """The processes of one conversation, one after the other."""

    def __init__(self, options: Options, output: object, policies: Policies) -> None:
        self.policies = policies
        self.session: Session[Any] | None = None
        """The one that runs, as far as is known."""
        self.id: str | None = None
        """Of the conversation, as soon as it is known."""
        self.phase: Phase | None = None
        """What is done in a turn; None between turns."""
        self.was_started = False
        self.is_closed = False
        self._options = options
        self._output = output
        self._watch: AbstractAsyncContextManager[None] | None = None
        self._has_history = options.resume is not None or options.continue_conversation
        """Whether there is something that must not be lost: a turn that ended, or a tool that was called."""
        self._past = Usage()
        """Of the processes that are gone."""
        self._fallback: tuple[str, float] | None = None
        """The model in place of the given one, and when that may be used again, in Unix seconds."""

    @property
    def can_start_again(self) -> bool:
        """A transport of the user's can be used once."""
        return self._options.transport is None

    @property
    def usage(self) -> Usage:
        """Of all processes together."""
        return self._past if self.session is None else self._past + self.session.usage

    @property
    def is_working(self) -> bool:
        """Whether something goes on in the background, which would be ended with the process."""
        return self.session is not None and bool(self.session.tasks)

    # Beginning and end.

    def check(self) -> None:
        """Raises `TransportClosed` after the end."""
        if self.is_closed:
            raise TransportClosed("the session was closed", hint="Open a new one.")

    async def start(self) -> Session[Any]:
        """The process; it is started if there is none, and resumes the conversation if that has begun.

        Raises what `Starter.start` raises.
        """
        self.check()
        if self.session is None:
            if self.was_started and not self.can_start_again:
                hint = "Leave `transport` out, so that the agent can be started again."
                raise TransportClosed("the transport that was given has ended", hint=hint)
            self.session = await self.policies.starter.start(self._next_options(), self._output)
            self.was_started = True
        session = self.session
        if self.policies.budget is not None and self._watch is None:
            watch = self.policies.budget.watching(session)
            try:
                await watch.__aenter__()
            except BaseException:
                # What nobody watches must not run.
                await self.end()
                raise
            self._watch = watch
        return session

    def forget(self) -> bool:
        """Begin anew with the next start; False if something would be lost: more was written, or done, than
        to give the conversation its id."""
        if self.id is None or self._has_history:
            return False
        self.id = None
        return True

    def _next_options(self) -> Options:
        options = self._options
        if self.id is not None:
            options = options.replace(
                resume=self.id,
                continue_conversation=False,
                fork_session=False,
                resume_session_at=None,
                resume_drops_turn=None,
                session_id=None,
            )
        return options if self._fallback is None else options.replace(model=self._fallback[0])

    async def end(self) -> None:
        """End the process, if there is one. The conversation can be resumed."""
        session = self.session
        if session is None:
            return
        with anyio.CancelScope(shield=True):
            # First: there is nothing to be stopped in good order any more, which might take long.
            await self.policies.starter.stop(session)
            if self._watch is not None:
                watch, self._watch = self._watch, None
                await watch.__aexit__(None, None, None)
        self._note(session)
        self._past += session.usage
        self.session = None

    async def rest(self, seconds: float) -> None:
        """Nothing will be asked for so long: end the process, if that is worth it and harms nothing."""
        if seconds > _IDLE_SECONDS and self.can_start_again and not self.is_working:
            await self.end()

    async def tidy(self) -> None:
        """Let go of a process that has ended by itself."""
        if self.session is not None and self.session.state is SessionState.CLOSED:
            await self.end()

    # What turns tell.

    def sent(self) -> None:
        """A prompt is on its way: an id that was asked for may be taken from now on."""
        if self.id is None:
            self.id = self._options.session_id

    def acted(self) -> None:
        """A tool was called."""
        self._has_history = True

    def _note(self, session: Session[Any]) -> None:
        self.id = session.id or self.id

    async def account(self, result: Result[object], uuid: str | None) -> Result[object]:
        """Take account of a try: for the ledger, and for a budget, which may be why it ended."""
        if self.session is not None:
            self._note(self.session)
        self._has_history = self._has_history or result.message is not None
        if (error := limit_reached(self.policies.budget, result)) is not None:
            result = msgspec.structs.replace(result, error=error)
        if self.policies.ledger is not None:
            return await self._entered(self.policies.ledger, result, uuid)
        return result

    async def _entered(self, ledger: Ledger, result: Result[object], uuid: str | None) -> Result[object]:
        from outrider.fleet._budget.ledger import LedgerEntry

        entry = LedgerEntry.of(result, turn=uuid or "", tags=self.policies.tags)
        try:
            with anyio.CancelScope(shield=True):
                await ledger.add(entry)
        except OutriderError as error:
            # An account with holes in it is none: whoever waits for the turn is told.
            return msgspec.structs.replace(result, error=error)
        return result

    # The model for when a usage limit is used up.

    async def fall_back(self, model: str, until: float) -> bool:
        """Go on with another model until then; False if it is in use already, or cannot be used."""
        if self._fallback is not None:
            return False
        self._fallback = model, until
        try:
            if self.session is not None:
                await self.session.set_model(model)
        except ConnectionLost:
            # The next process is started with it.
            return True
        except OutriderError:
            self._fallback = None
            return False
        return True

    async def leave_fallback(self) -> None:
        """Go back to the given model once it may be used again."""
        if self._fallback is None or self.policies.clock.time() < self._fallback[1] or self.is_working:
            return
        self._fallback = None
        if self.can_start_again:
            # What began with the other model would take that for the given one.
            await self.end()
        elif self.session is not None:
            await self.session.set_model(self._options.model)


log = logging.getLogger("outrider.fleet")


class Starter(Protocol):
    """Gives out connected sessions, and takes them back. A `Pool` is one."""

    async def start(self, options: Options, output: object) -> Session[Any]:
        """A session that is connected. Raises what `Session.connect` raises; cancelled, it leaves nothing."""
        ...

    async def stop(self, session: Session[Any]) -> None:
        """End a session that `start` gave, also one that has ended by itself. Never raises."""
        ...


class DirectStarter(Starter):
    """Starts a process for each session, and ends it."""

    async def start(self, options: Options, output: object) -> Session[Any]:
        session = Session(options, output=cast(Any, output))
        await session.connect()
        return session

    async def stop(self, session: Session[Any]) -> None:
        try:
            await session.close()
        except Exception:
            log.exception("a session could not be closed")
