"""The plan of what goes wrong between Outrider and an agent, and what each fault does to the bytes.

`faulty` decides when.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from random import Random
from typing import Final, Literal, TypeAlias, cast, get_args

import msgspec

from outrider.errors import OptionsError

__all__ = [
    "Direction",
    "Fault",
    "FaultKind",
    "Faults",
    "KINDS",
    "Mangler",
    "Pause",
    "Places",
    "Step",
    "random_faults",
]


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
    """Before it comes a line that is no frame: words, a blank, half a frame, bytes that are no text."""
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
