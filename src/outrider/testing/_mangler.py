"""Owns what faults do to the bytes of one direction.

Does no I/O and has no clock: it says what is to be passed on, and where to wait or to break off.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from outrider.testing._faults import KINDS, Fault

if TYPE_CHECKING:
    from outrider.testing._faults import Direction, FaultKind, Faults, Places

__all__ = ["Mangler", "Pause", "Step"]

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
that is no frame, bytes that are no text."""

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
    """Applies faults to the bytes of one direction.

    What happens to a frame depends on the seed, the direction and its number, and on nothing else.
    """

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
        """Take bytes as they come; gives what is to be done with the frames that they complete."""
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
            told = "until closed" if faults.stall_seconds is None else f"{faults.stall_seconds:g} s"
            self._note("stall", told)
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
