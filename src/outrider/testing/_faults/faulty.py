"""`Faulty`, a transport around another one on which things go wrong as planned.

The faults themselves are in `faults`.
"""

from __future__ import annotations

import os
import signal
from collections import deque
from contextlib import suppress
from copy import copy
from secrets import randbits
from typing import TYPE_CHECKING, Final

import anyio
from anyio.lowlevel import checkpoint, checkpoint_if_cancelled

from outrider.errors import ConnectionLost, OptionsError, TransportClosed
from outrider.testing._faults.faults import KINDS, Fault, Faults, Mangler, Pause, random_faults
from outrider.transports import Transport

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from outrider.command import Command
    from outrider.errors import OutriderError
    from outrider.testing._faults.faults import FaultKind, Step

__all__ = ["Faulty"]

_PIECES_SECONDS: Final = 1.0
"""How long the rest of a frame may take to be sent when whoever sends it is cancelled. Half of one would be a
fault that nobody asked for."""


class Faulty(Transport):
    """Any transport, with faults: in what the agent says, in what is said to it, or in both.

        agent = Faulty(transport, seed=7, inbound=Faults(drop=0.05, split=0.5), outbound=Faults(stall={3}))
        async with outrider.Session(transport=agent) as session: ...

    The same seed does the same to the same frames, so that what it showed can be shown again. `done` has what
    was done, and `repr()` shows it with the seed.

    An agent that dies by a fault is a process that is killed, if the transport has the `pid` of one; else the
    transport is closed, and `ConnectionLost` is raised.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        seed: int | None = None,
        inbound: Faults | None = None,
        outbound: Faults | None = None,
    ) -> None:
        """Without a `seed`, one is made up. Raises `OptionsError` for what is no transport, seed or plan."""
        if not isinstance(transport, Transport):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise OptionsError(f"`transport` is {transport!r}, which is no transport")
        if seed is not None and type(seed) is not int:
            raise OptionsError(f"`seed` is {seed!r}; give a whole number, or None for a new one")
        for name, plan in (("inbound", inbound), ("outbound", outbound)):
            if plan is not None and not isinstance(plan, Faults):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise OptionsError(f"`{name}` is {plan!r}; give `Faults(…)`")
        self.transport = transport
        """The one inside."""
        self.seed: Final = randbits(32) if seed is None else seed
        self.done: list[Fault] = []
        """The faults so far, in the order in which they were applied."""
        self.max_buffer_size = transport.max_buffer_size
        self.inbound: Final = inbound or Faults()
        self.outbound: Final = outbound or Faults()
        self._inbound = Mangler(self.inbound, self.seed, "inbound", self.done)
        self._outbound = Mangler(self.outbound, self.seed, "outbound", self.done)
        self._ready: deque[Step] = deque()
        """What has come, and is still to be done."""
        self._is_ended = False
        """Whether the one inside has come to its end."""
        self._lock = anyio.Lock()
        self._closing = anyio.Event()
        self._killed: ConnectionLost | None = None
        self._is_deaf = False
        """Whether the agent died of what it said: nothing more comes through."""

    @classmethod
    def random(
        cls,
        transport: Transport,
        seed: int | None = None,
        *,
        kinds: Collection[FaultKind] = KINDS,
        times: Faults | None = None,
    ) -> Faulty:
        """Up to three faults that follow from the seed, or none; of these kinds.

        The seconds and sizes are those of `times`.
        """
        if not kinds or not {*kinds} <= {*KINDS}:
            hint = f"Choose from {', '.join(KINDS)}."
            raise OptionsError(f"`kinds` is {kinds!r}, which are no kinds of faults", hint=hint)
        seed = randbits(32) if seed is None else seed
        inbound, outbound = random_faults(seed, kinds, times or Faults())
        return cls(transport, seed=seed, inbound=inbound, outbound=outbound)

    def __repr__(self) -> str:
        plans = [f"{name}={plan!r}" for name, plan in self._plans() if not plan.is_none]
        told = ", ".join([type(self.transport).__name__, f"seed={self.seed}", *plans])
        return f"<Faulty {told}; done: {'; '.join(map(str, self.done)) or 'nothing'}>"

    def _plans(self) -> Iterable[tuple[str, Faults]]:
        return ("inbound", self.inbound), ("outbound", self.outbound)

    # The contract of a transport.

    def prepare(self, command: Command) -> None:
        self.transport.prepare(command)

    async def connect(self) -> None:
        await self.transport.connect()

    async def receive(self) -> bytes:
        """The next bytes. Raises what the transport inside raises; `ConnectionLost` when a fault has ended
        it."""
        while True:
            while self._ready and not self._is_deaf:
                step = self._ready[0]
                if isinstance(step, bytes):
                    await checkpoint()
                    self._ready.popleft()
                    return step
                if isinstance(step, Pause):
                    await self._wait(step)
                else:
                    self._is_deaf = True
                    await self._kill(step)
                self._ready.popleft()
            if (data := await self._receive()) is not None:
                return data

    async def _receive(self) -> bytes | None:
        """Have the transport inside receive. Gives what can be passed on as it is; None if something is to be
        done first."""
        mangler, data = self._inbound, None
        try:
            with anyio.move_on_after(mangler.faults.delay_seconds if mangler.is_holding else None):
                data = await self.transport.receive()
        except ConnectionLost as error:
            if self._has_more():
                return None
            raise self._told(error) from None
        if data is None:
            self._ready.extend(mangler.release())
            return None
        if not data:
            if self._has_more():
                return None
            if self._killed is not None:
                raise copy(self._killed)
            return b""
        if mangler.faults.is_none:
            return data
        if not self._is_deaf:
            self._ready.extend(mangler.feed(data))
        return None

    def _has_more(self) -> bool:
        """Whether something is left to be done when nothing more comes from inside."""
        if self._is_deaf:
            return False
        if not self._is_ended:
            self._is_ended = True
            self._ready.extend(self._inbound.flush())
        return bool(self._ready)

    async def send(self, data: bytes) -> None:
        """Send bytes, or what is left of them. Raises what the transport inside raises; `ConnectionLost` when
        a fault has ended it, `TransportClosed` when it was closed while it stalled."""
        await checkpoint_if_cancelled()
        if self._killed is not None:
            raise copy(self._killed)
        mangler = self._outbound
        if mangler.faults.is_none or not self.transport.is_ready:
            # Why it is not says the one inside.
            await self.transport.send(data)
            return
        async with self._lock:
            await self._pass_on(mangler.feed(data))
        if mangler.is_holding:
            # Whoever sends meanwhile overtakes.
            await anyio.sleep(mangler.faults.delay_seconds)
            async with self._lock:
                await self._pass_on(mangler.release())

    async def _pass_on(self, steps: list[Step]) -> None:
        pieces: list[bytes] = []
        for step in steps:
            if isinstance(step, bytes):
                pieces.append(step)
                continue
            await self._send_pieces(pieces)
            pieces = []
            if isinstance(step, Pause):
                await self._wait(step)
            else:
                raise copy(await self._kill(step))
        await self._send_pieces(pieces)

    async def _send_pieces(self, pieces: list[bytes]) -> None:
        try:
            if len(pieces) == 1:
                await self.transport.send(pieces[0])
            elif pieces:
                await self._send_whole(pieces)
        except ConnectionLost as error:
            raise self._told(error) from None

    async def _send_whole(self, pieces: list[bytes]) -> None:
        """Send all of them, also if the caller is cancelled meanwhile."""
        failure: ConnectionLost | None = None
        shield = anyio.CancelScope(shield=True)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_limit_when_cancelled, shield)
            with shield:
                try:
                    for piece in pieces:
                        await self.transport.send(piece)
                except ConnectionLost as error:
                    failure = error
            tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure
        await checkpoint_if_cancelled()

    async def end_input(self) -> None:
        async with self._lock:
            if self.transport.is_ready and self._killed is None:
                await self._pass_on(self._outbound.flush())
            await self.transport.end_input()

    async def close(self) -> None:
        self._closing.set()
        await self.transport.close()

    @property
    def is_ready(self) -> bool:
        return self._killed is None and not self._closing.is_set() and self.transport.is_ready

    @property
    def exit_error(self) -> OutriderError | None:
        return self.transport.exit_error or self._killed

    # What a process has, and others may have.

    @property
    def pid(self) -> int | None:
        return getattr(self.transport, "pid", None)

    @property
    def returncode(self) -> int | None:
        return getattr(self.transport, "returncode", None)

    @property
    def stderr_tail(self) -> str:
        return str(getattr(self.transport, "stderr_tail", ""))

    def __getattr__(self, name: str) -> object:
        # So that a trace has what is said on stderr. Nothing else: what is around this one would go round it.
        if name != "on_stderr":
            raise AttributeError(name)
        return getattr(self.transport, name)

    # Waiting and dying.

    async def _wait(self, pause: Pause) -> None:
        if pause.seconds is None:
            await self._closing.wait()
            raise TransportClosed("it has been closed")
        if pause.until is None:
            # Kept, so that waiting that is cancelled goes on where it was.
            pause.until = anyio.current_time() + pause.seconds
        with anyio.move_on_after(pause.until - anyio.current_time()):
            await self._closing.wait()

    async def _kill(self, fault: Fault) -> ConnectionLost:
        if self._killed is not None:
            return self._killed
        hint = f"The seed is {self.seed}."
        self._killed = killed = ConnectionLost(f"a fault ended the agent ({fault})", hint=hint)
        if self.pid is not None and self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, getattr(signal, "SIGKILL", signal.SIGTERM))
        else:
            await getattr(self.transport, "kill", self.transport.close)()
        return killed

    def _told(self, error: ConnectionLost) -> ConnectionLost:
        """What to raise at the end: how a process died says more than that a fault killed it, and that more
        than that the transport is closed."""
        if self._killed is None or not isinstance(error, TransportClosed):
            return error
        return copy(self._killed)


async def _limit_when_cancelled(shield: anyio.CancelScope) -> None:
    try:
        await anyio.sleep_forever()
    finally:
        shield.deadline = anyio.current_time() + _PIECES_SECONDS
