"""`Faulty`, a transport on which things go wrong as planned, the plan, and what each fault does."""

from __future__ import annotations

import math
import os
import signal
from collections import deque
from collections.abc import Collection
from contextlib import suppress
from copy import copy
from random import Random
from secrets import randbits
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast, get_args

import anyio
import msgspec
from anyio.lowlevel import checkpoint, checkpoint_if_cancelled

from outrider.errors import ConnectionLost, OptionsError, TransportClosed
from outrider.transports import Transport

if TYPE_CHECKING:
    from collections.abc import Iterable

    from outrider.command import Command
    from outrider.errors import OutriderError


Direction: TypeAlias = Literal["inbound", "outbound"]
"""`inbound` is what the agent says, `outbound` what is said to it."""

FaultKind: TypeAlias = Literal[
    "kill", "stall", "delay", "noise", "oversize", "drop", "truncate", "duplicate", "reorder", "split"
]

Places: TypeAlias = float | Collection[int]
"""Where a fault strikes: a chance for each frame (0.0 to 1.0), or the numbers of frames, from 1: `{3, 5}`."""

KINDS: Final[tuple[FaultKind, ...]] = get_args(FaultKind)
"""In the order in which they are considered for a frame."""


class Faults(msgspec.Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """What goes wrong in one direction, and where: by chance, or at certain frames.

        Faults(drop=0.01, split=1.0)  # each frame with a chance of 1 %; every frame
        Faults(kill={5})              # before the fifth frame

    Raises `OptionsError` for what makes no sense.
    """

    drop: Places = 0.0
    """The frame never comes."""
    duplicate: Places = 0.0
    """It comes twice."""
    reorder: Places = 0.0
    """It comes behind the next one, if there is one within `delay_seconds`."""
    truncate: Places = 0.0
    """Its end is missing, the line end too in half of the cases."""
    delay: Places = 0.0
    """It comes `delay_seconds` late, and so does what is behind it."""
    stall: Places = 0.0
    """It does not come, nor anything behind it, for `stall_seconds`, or until the transport is closed."""
    noise: Places = 0.0
    """Before it comes a line that is not a frame: words, a blank, half a frame, bytes that are not text."""
    oversize: Places = 0.0
    """Before it comes a frame of `oversize_bytes`."""
    split: Places = 0.0
    """It comes in pieces, cut anywhere, inside a character too."""
    kill: Places = 0.0
    """The agent dies before it."""
    kill_at_byte: int | None = None
    """The agent dies when so many bytes have passed."""
    delay_seconds: float = 0.05
    stall_seconds: float | None = None
    oversize_bytes: int = 1024 * 1024

    def __post_init__(self) -> None:
        for kind in KINDS:
            msgspec.structs.force_setattr(self, kind, _places(kind, getattr(self, kind)))
        _check_number("delay_seconds", self.delay_seconds, 0, "seconds")
        if self.stall_seconds is not None:
            _check_number("stall_seconds", self.stall_seconds, 0, "seconds")
        if self.kill_at_byte is not None:
            _check_number("kill_at_byte", self.kill_at_byte, 0, "bytes", is_whole=True)
        _check_number("oversize_bytes", self.oversize_bytes, 1, "bytes", is_whole=True)

    @property
    def is_none(self) -> bool:
        """Whether nothing can go wrong."""
        return self.kill_at_byte is None and not any(getattr(self, kind) for kind in KINDS)


class Fault(msgspec.Struct, frozen=True):
    """A fault that was applied."""

    direction: Direction
    frame: int
    """Its number, from 1, in its direction."""
    kind: FaultKind
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.direction} {self.frame}: {self.kind}{f' ({self.detail})' if self.detail else ''}"


def random_faults(seed: int, kinds: Collection[FaultKind], faults: Faults) -> tuple[Faults, Faults]:
    """A few faults of these kinds for each direction, or none, with the times and sizes of `faults`."""
    random = Random(f"{seed} plan")
    chosen: tuple[dict[str, Places | int], dict[str, Places | int]] = ({}, {})
    ordered = [kind for kind in KINDS if kind in kinds]
    for _ in range(random.choice((0, 1, 1, 1, 2, 3))):
        # More is said by the agent than to it, and most of that is what a session lives on.
        direction, kind = random.choice((0, 0, 1)), random.choice(ordered)
        if kind == "kill" and random.random() < 0.5:
            chosen[direction]["kill_at_byte"] = random.randrange(6000)
        elif random.random() < 0.5:
            chosen[direction][kind] = frozenset({random.randint(1, 16)})
        else:
            chosen[direction][kind] = random.choice((0.05, 0.2, 1.0 if kind in _MILD else 0.5))
    first, second = chosen
    return msgspec.structs.replace(faults, **first), msgspec.structs.replace(faults, **second)


_MILD: Final = frozenset(("split", "noise", "duplicate"))


def _places(kind: str, given: object) -> Places:
    if isinstance(given, Collection) and not isinstance(given, str | bytes | bytearray):
        numbers: list[object] = list(cast("Collection[object]", given))
        frames = frozenset(number for number in numbers if type(number) is int and number >= 1)
        if len(frames) < len({*map(repr, numbers)}):
            raise OptionsError(
                f"`{kind}` is {given!r}, which are not all numbers of frames",
                hint="Give whole numbers from 1 on: `{1}` is the first frame.",
            )
        return frames
    if isinstance(given, float) and 0 <= given <= 1:
        return given
    if type(given) is int and given == 0:
        return 0.0
    raise OptionsError(
        f"`{kind}` is {given!r}; give a chance from 0.0 to 1.0, or the numbers of frames",
        hint="1.0 is every frame, `{1}` the first one.",
    )


def _check_number(name: str, given: object, least: int, unit: str, *, is_whole: bool = False) -> None:
    kinds = (int,) if is_whole else (int, float)
    if isinstance(given, kinds) and not isinstance(given, bool) and least <= given < math.inf:
        return
    raise OptionsError(f"`{name}` is {given!r}; give a number of {unit}, {least} or more")


NOISE: Final[tuple[bytes, ...]] = (
    b"\n",
    b" \t \r\n",
    b"npm warn deprecated something@1.0.0\n",
    b'{"type": "assistant", "message": {"content": [\n',
    b"null\n",
    b"[1, 2]\n",
    b"\xff\xfe\x00\x80\xc3\n",
    b"\xe2\x82\n",
)
"""What programs and their wrappers write where only frames belong: blank lines, words, half a frame, JSON
that is not a frame, bytes that are not text."""

_MOST_CUTS: Final = 3


class Pause(msgspec.Struct):
    """A wait before what follows."""

    seconds: float | None
    """None: until the transport is closed."""
    until: float | None = None
    """Set once it has begun."""


Step: TypeAlias = bytes | Pause | Fault
"""Bytes to pass on, a wait, or the fault that kills the agent, which is the last."""


class Mangler:
    """Applies faults to the bytes of one direction. What happens to a frame depends on the seed, the
    direction and its number, and on nothing else."""

    def __init__(self, faults: Faults, seed: int, direction: Direction, done: list[Fault]) -> None:
        self.faults = faults
        self._seed = seed
        self._direction: Direction = direction
        self._done = done
        self._rest = bytearray()
        """The beginning of a frame whose end has not come."""
        self._held = b""
        """A frame that the next one overtakes."""
        self._frame = 0
        self._passed = 0
        """How many bytes have been given out."""
        self._is_killed = False
        self._steps: list[Step] = []
        self._piece = bytearray()

    @property
    def is_holding(self) -> bool:
        """Whether a frame waits for the next one."""
        return bool(self._held)

    def feed(self, data: bytes) -> list[Step]:
        """Take bytes as they come; returns what is to be done with the frames that they complete."""
        searched = len(self._rest)
        self._rest += data
        start = 0
        while (end := self._rest.find(b"\n", max(start, searched))) >= 0:
            self._take(bytes(self._rest[start : end + 1]))
            start = end + 1
        del self._rest[:start]
        return self._taken()

    def release(self) -> list[Step]:
        """Nothing came that could have overtaken the frame that is held."""
        held, self._held = self._held, b""
        self._emit(held)
        return self._taken()

    def flush(self) -> list[Step]:
        """Nothing more comes in this direction."""
        if self._rest:
            self._take(bytes(self._rest))
            self._rest.clear()
        return self.release()

    def _taken(self) -> list[Step]:
        self._break()
        steps, self._steps = self._steps, []
        return steps

    def _take(self, frame: bytes) -> None:
        self._frame += 1
        faults = self.faults
        # One of its own for each frame: nothing that happens to one changes what happens to the next.
        random = Random(f"{self._seed} {self._direction} {self._frame}")
        struck = {kind for kind in KINDS if _strikes(getattr(faults, kind), self._frame, random.random())}
        if "kill" in struck:
            self._kill()
            return
        if "stall" in struck:
            duration = "until closed" if faults.stall_seconds is None else f"{faults.stall_seconds:g} s"
            self._note("stall", duration)
            self._wait(faults.stall_seconds)
        if "delay" in struck:
            self._note("delay", f"{faults.delay_seconds:g} s")
            self._wait(faults.delay_seconds)
        if "noise" in struck:
            noise = random.choice(NOISE)
            self._note("noise", repr(noise))
            self._emit(noise)
        if "oversize" in struck:
            self._note("oversize", f"{faults.oversize_bytes} bytes")
            self._emit(_large_frame(faults.oversize_bytes))
        if "drop" in struck:
            self._note("drop")
            return
        if "truncate" in struck:
            frame = self._truncated(frame, random)
        if "duplicate" in struck:
            self._note("duplicate")
            frame *= 2
        if "reorder" in struck and not self._held:
            self._note("reorder")
            self._held = frame
            return
        if "split" in struck and len(frame) > 1:
            self._emit_pieces(frame, random)
        else:
            self._emit(frame)
        held, self._held = self._held, b""
        self._emit(held)

    def _truncated(self, frame: bytes, random: Random) -> bytes:
        content = frame.rstrip(b"\r\n")
        kept = random.randrange(max(len(content), 1))
        end = frame[len(content) :] if random.random() < 0.5 else b""
        self._note("truncate", f"{kept} of {len(content)} bytes, {'with' if end else 'without'} the line end")
        return frame[:kept] + end

    def _emit_pieces(self, frame: bytes, random: Random) -> None:
        cuts = {random.randrange(1, len(frame)) for _ in range(random.randint(1, _MOST_CUTS))}
        if inside := [index for index, byte in enumerate(frame) if byte & 0xC0 == 0x80]:
            cuts.add(random.choice(inside))
        start = 0
        for cut in sorted(cuts - {0}):
            self._emit(frame[start:cut])
            self._break()
            start = cut
        self._emit(frame[start:])
        self._note("split", "at " + ", ".join(map(str, sorted(cuts))))

    def _emit(self, data: bytes) -> None:
        last = self.faults.kill_at_byte
        if self._is_killed:
            return
        if last is not None and self._passed + len(data) >= last and data:
            self._piece += data[: last - self._passed]
            self._passed = last
            self._kill(f"at byte {last}")
        else:
            self._piece += data
            self._passed += len(data)

    def _wait(self, seconds: float | None) -> None:
        if not self._is_killed:
            self._break()
            self._steps.append(Pause(seconds))

    def _break(self) -> None:
        if self._piece:
            self._steps.append(bytes(self._piece))
            self._piece.clear()

    def _kill(self, detail: str = "") -> None:
        if not self._is_killed:
            self._break()
            self._steps.append(self._note("kill", detail))
            self._is_killed = True

    def _note(self, kind: FaultKind, detail: str = "") -> Fault:
        fault = Fault(self._direction, self._frame, kind, detail)
        if not self._is_killed:
            self._done.append(fault)
        return fault


def _strikes(places: Places, frame: int, roll: float) -> bool:
    return roll < places if isinstance(places, int | float) else frame in places


def _large_frame(size: int) -> bytes:
    """A frame of just so many bytes, unless it could not be one then."""
    head, end = b'{"type":"oversize","text":"', b'"}'
    return head + b"x" * max(size - len(head) - len(end), 0) + end + b"\n"


_PIECES_SECONDS: Final = 1.0
"""How long the rest of a frame may take to be sent when its sender is cancelled. Half of one would be a
fault that no one asked for."""


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
        """Without a `seed`, one is chosen. Raises `OptionsError` for an invalid transport, seed or plan."""
        if not isinstance(transport, Transport):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise OptionsError(f"`transport` is {transport!r}, which is not a transport")
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
            raise OptionsError(f"`kinds` is {kinds!r}, which are not kinds of faults", hint=hint)
        seed = randbits(32) if seed is None else seed
        inbound, outbound = random_faults(seed, kinds, times or Faults())
        return cls(transport, seed=seed, inbound=inbound, outbound=outbound)

    def __repr__(self) -> str:
        plans = [f"{name}={plan!r}" for name, plan in self._plans() if not plan.is_none]
        facts = ", ".join([type(self.transport).__name__, f"seed={self.seed}", *plans])
        return f"<Faulty {facts}; done: {'; '.join(map(str, self.done)) or 'nothing'}>"

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
        """Receive from the transport inside. Returns what passes unchanged; None if something has to be done
        first."""
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
            # Another sender may overtake meanwhile.
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
        # So that a trace has what is written to stderr. Nothing else: it would bypass the faults.
        if name != "on_stderr":
            raise AttributeError(name)
        return getattr(self.transport, name)

    # Waiting and dying.

    async def _wait(self, pause: Pause) -> None:
        if pause.seconds is None:
            await self._closing.wait()
            raise TransportClosed("it has been closed")
        if pause.until is None:
            # Kept, so that waiting that is cancelled continues where it was.
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
