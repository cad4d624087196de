"""Owns the plan of what goes wrong on the way between Outrider and an agent: which faults, and where.

What they do to the bytes is in `_mangler`.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from random import Random
from typing import Final, Literal, TypeAlias, cast, get_args

import msgspec

from outrider.errors import OptionsError

__all__ = ["KINDS", "Direction", "Fault", "FaultKind", "Faults", "Places", "random_faults"]

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
