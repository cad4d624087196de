"""`Pool`: many sessions on few processes.

Slots are counted in `slots`; the scheduler starts and ends processes.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, cast
from weakref import ref

import anyio
from anyio.lowlevel import current_token

from outrider.errors import UsageError
from outrider.fleet._errors import PoolClosed
from outrider.fleet._fields import ResilientFields, split_keywords
from outrider.fleet._pool.scheduler import Scheduler
from outrider.fleet._pool.slots import PooledStarter, PoolStats, Rules, WarmOptions, check_can_park, stats_of
from outrider.fleet._resilient.session import ResilientSession
from outrider.fleet._resilient.turn_runner import Starter
from outrider.options import Options
from outrider.options._validators import any_text, invalid_value, seconds
from outrider.session import Session, SessionState, background
from outrider.session._connection.observers import instrument_of
from outrider.session._result import Output

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence
    from typing import Self, Unpack

    from outrider.session import Prompt, Result
    from outrider.session._result import OutputType
    from outrider.wire import Json


class Pool(Starter):
    """Starts processes before they are needed, and never more than its limits allow.

        async with outrider.fleet.Pool(options, warm=2, max_processes=8, max_memory="6GiB") as pool:
            async with pool.lease() as session: ...        # one conversation, in a process of its own
            chat = pool.session(tenant="ada")              # one that shares the processes with many others

    It belongs to the event loop that it is opened on, and may be used from any task there.
    """

    def __init__(
        self,
        options: Options | Sequence[Options] | None = None,
        *,
        warm: int = 2,
        max_processes: int = 8,
        max_memory: int | str | None = None,
        park_after: float | None = 60.0,
        max_age: float | None = None,
        max_turns: int | None = None,
        max_process_memory: int | str | None = None,
        queue_limit: int | None = None,
        queue_seconds: float | None = None,
        health_seconds: float | None = 30.0,
    ) -> None:
        """`options`: what processes are made ready for, `warm` of each, as far as `max_processes` leaves
        room. The first are those of a session that is given none.

        `max_memory`: what all processes and their children may have together, measured (`"6GiB"`); past it,
        nothing is started, and what is not used is ended. `park_after`: for how many seconds a resilient
        session may keep a process that it does not use, if no one else needs it. `max_age` (seconds),
        `max_turns`, `max_process_memory`: a process past one of these is exchanged for a new one as soon as
        it is not used. `queue_limit`, `queue_seconds`: how many of one tenant may wait for a process, and how
        long each. `health_seconds`: how often warm processes are asked whether they still answer. None: no
        limit, or never.

        Raises `OptionsError` for what cannot work.
        """
        # The names of the keywords are those of the fields.
        rules = Rules(**{name: value for name, value in locals().items() if name not in ("self", "options")})
        self._scheduler = Scheduler(rules, WarmOptions(options))
        self._opening = anyio.Lock()

    def __repr__(self) -> str:
        return f"<Pool: {self.stats()}>"

    # Beginning and end.

    async def open(self) -> None:
        """Begin to make processes ready; does not wait for them. A second call changes nothing, unless the
        first was cancelled. Raises `PoolClosed` or `UsageError`."""
        scheduler = self._scheduler
        scheduler.check_loop()
        async with self._opening:
            if not scheduler.is_closing and scheduler.token is None:
                await (await background()).start(scheduler.run, name="outrider pool")
                scheduler.token = current_token()
                if (instrument := instrument_of(scheduler.warm_options.all[0])) is not None:
                    instrument.pool_opened(self)
            if scheduler.token is not None:
                await scheduler.is_up.wait()
        if scheduler.is_closing:
            raise PoolClosed

    async def close(self, *, drain: bool = True, timeout: float | None = None) -> None:
        """Hand out nothing more, and end all processes.

        `drain`: first wait until what was acquired is released and running turns of resilient sessions are
        over, for `timeout` seconds at most. Those who wait for a process get `PoolClosed`. Cancelling the
        call ends everything at once, and does not wait for that. Closing twice does no harm.
        """
        if timeout is not None:
            seconds("`timeout`", timeout)
        scheduler = self._scheduler
        if scheduler.is_gone.is_set():
            return
        scheduler.check_loop()
        scheduler.close(hurry=not drain)
        if scheduler.token is None:
            return
        try:
            with anyio.move_on_after(timeout):
                await scheduler.is_gone.wait()
            scheduler.close(hurry=True)
            await scheduler.is_gone.wait()
        except BaseException:
            scheduler.close(hurry=True)
            raise

    async def __aenter__(self) -> Self:
        try:
            await self.open()
        except anyio.get_cancelled_exc_class():
            # The block is not entered, so its end would not close the pool.
            self._scheduler.close(hurry=True)
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.close(drain=kind is None)

    # One process for one conversation.

    async def acquire(
        self, options: Options | None = None, *, tenant: str = "", timeout: float | None = None
    ) -> Session:
        """A connected session in a process of its own, which was ready if `options` are among the pool's.

        `tenant`: whose it is; tenants that wait are served in turn. `timeout`: how long to wait for a slot,
        instead of `queue_seconds`.

        Raises `QueueFull`, `QueueTimedOut`, `PoolClosed`, or what `Session.connect` raises. Give it back with
        `release`: until then it holds its slot. Cancelling the call leaves nothing behind.
        """
        if timeout is not None:
            seconds("`timeout`", timeout)
        return await self._scheduler.take(
            self._options(options), None, any_text("`tenant`", tenant), timeout=timeout
        )

    async def release(self, session: Session) -> None:
        """End a session that was acquired, and give its slot back: a process serves one conversation, and
        nothing of it can get into another.

        Cancelling the call does not stop that. Raises `UsageError` if the session is not from this pool.
        """
        is_one = isinstance(session, Session)  # pyright: ignore[reportUnnecessaryIsInstance]
        if not is_one or (
            not await self._scheduler.give_back(session) and session.state is not SessionState.CLOSED
        ):
            raise UsageError(
                f"{session!r} is not from this pool. Release what `acquire` gave; close a resilient session."
            )

    @asynccontextmanager
    async def lease(
        self, options: Options | None = None, *, tenant: str = "", timeout: float | None = None
    ) -> AsyncGenerator[Session]:
        """A session as long as the block: `async with pool.lease() as session`. Raises what `acquire`
        raises."""
        session = await self.acquire(options, tenant=tenant, timeout=timeout)
        try:
            yield session
        finally:
            await self.release(session)

    async def run(
        self,
        prompt: Prompt,
        options: Options | None = None,
        *,
        tenant: str = "",
        timeout: float | None = None,
        check: bool = True,
    ) -> Result[Json]:
        """Run one prompt in a session of its own; see `outrider.run`. Raises what `acquire` and `Turn.result`
        raise."""
        async with self.lease(options, tenant=tenant, timeout=timeout) as session:
            result = await session.ask(prompt, until="idle", check=False)
        return result.raise_for_error() if check else result

    # Many conversations on few processes.

    def session(
        self,
        options: Options | None = None,
        *,
        output: OutputType[Output] = None,
        tenant: str = "",
        **fields: Unpack[ResilientFields],
    ) -> ResilientSession[Output]:
        """A session that has a process only while it needs one; the rest is as for `ResilientSession`.

        When someone else needs the slot, or after `park_after` seconds, an idle one is parked: its process
        is ended, its transcript kept, and the next prompt resumes it. Its `send` raises `QueueFull` if no one
        more may wait; its turns may fail with what else `acquire` raises. Raises `OptionsError`.
        """
        own, single = split_keywords(fields, ResilientFields)
        checked = self._options(options).replace(**single)
        check_can_park(checked)
        starter = PooledStarter(self._scheduler, any_text("`tenant`", tenant))
        session = ResilientSession[Output](checked, output=output, starter=starter, **own)
        starter.owner = ref(cast("ResilientSession[object]", session))
        self._scheduler.starters.add(starter)
        return session

    # For resilient sessions that are made elsewhere.

    async def start(self, options: Options, output: object) -> Session:
        """A process for a resilient session that has this pool as its `starter`. It is not parked by the
        pool."""
        return await self._scheduler.take(options, output, "")

    async def stop(self, session: Session) -> None:
        """Take back what `start` gave."""
        await self._scheduler.give_back(session)

    # How it stands.

    async def wait_warm(self) -> None:
        """Wait until as many processes are ready as there should be, as far as there is room for them.

        Raises `PoolClosed`, or why a process could not be started.
        """
        self._scheduler.check()
        await self._scheduler.wait_warm()

    def stats(self) -> PoolStats:
        """How it stands, and what it has done so far. Costs little: nothing is measured for it."""
        return stats_of(self._scheduler)

    def _options(self, options: Options | None) -> Options:
        if options is None:
            return self._scheduler.warm_options.all[0]
        if not isinstance(options, Options):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise invalid_value("`options`", "an `Options`", options)
        return options
