"""Owns what a pool was told, checked: its limits, and the options that it keeps processes ready for.

Carries nothing out.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from outrider.errors import OptionsError
from outrider.fleet._sizes import write_size
from outrider.options import Options
from outrider.options._readers import Reader, above_zero, fault, is_list, optional, seconds, whole, within
from outrider.session import Session


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a pool; see `Pool`. Raises `OptionsError` when made with what cannot work."""

    warm: int
    max_processes: int
    max_memory: int | None
    park_after: float | None
    max_age: float | None
    max_turns: int | None
    max_process_memory: int | None
    queue_limit: int | None
    queue_seconds: float | None
    health_seconds: float | None

    def __post_init__(self) -> None:
        for name, read in _READERS.items():
            msgspec.structs.force_setattr(self, name, read(f"`{name}`", getattr(self, name)))
        each, together = self.max_process_memory, self.max_memory
        if each is not None and together is not None and each > together:
            raise OptionsError(
                f"`max_process_memory` ({write_size(each)}) is over `max_memory` ({write_size(together)})",
                hint="All processes together cannot have less than one of them.",
            )


_READERS: dict[str, Reader] = {
    "warm": whole(0),
    "max_processes": whole(1),
    "park_after": optional(seconds),
    "max_age": optional(above_zero),
    "max_turns": optional(whole(1)),
    "queue_limit": optional(whole(0)),
    "queue_seconds": optional(seconds),
    "health_seconds": optional(above_zero),
}


class Kinds:
    """The options that a pool keeps processes ready for."""

    def __init__(self, options: Options | Sequence[Options] | None) -> None:
        given: object = Options() if options is None else options
        if isinstance(given, Options):
            given = (given,)
        if not is_list(given):
            raise fault("`options`", "an `Options`, or a list of them", given)
        if not given:
            raise OptionsError("`options` is an empty list", hint="Leave it out for the defaults.")
        checked = [
            _checked("`options`" if len(given) == 1 else within("`options`", number), each)
            for number, each in enumerate(given)
        ]
        self.all: tuple[Options, ...] = tuple(
            each
            for number, each in enumerate(checked)
            if not any(_is_same(other, each) for other in checked[:number])
        )

    def __len__(self) -> int:
        return len(self.all)

    def number_of(self, options: Options, output: object) -> int | None:
        """Which of them these are; None: none, or a process that is ready would not know the output."""
        if output is not None:
            return None
        return next((number for number, own in enumerate(self.all) if _is_same(own, options)), None)


def _is_same(own: Options, other: Options) -> bool:
    try:
        return own is other or bool(own == other)
    except Exception:  # noqa: BLE001 - tools and stores of a user's may answer anything
        return False


def check_can_park(options: Options) -> None:
    """Raises `OptionsError` if a session with these options could not be resumed."""
    why = ""
    if options.transport is not None:
        why = "`transport` can be used once"
    elif not options.persist_session:
        why = "with `persist_session=False` nothing is kept"
    elif options.isolation.is_hermetic and not options.isolation.config_dir and not options.session_store:
        why = "a hermetic run keeps nothing without a `config_dir` of its own or a `session_store`"
    if why:
        raise OptionsError(
            f"the session could not be resumed after it was parked: {why}",
            hint="Change that, or use `Pool.acquire`, which parks nothing.",
        )


def _checked(place: str, options: object) -> Options:
    if not isinstance(options, Options):
        raise fault(place, "an `Options`", options, "Single options go into it: `Options(model='opus')`.")
    if options.transport is not None:
        raise OptionsError(
            f"{place} has a `transport`, which is one connection, and a pool makes many",
            hint="Leave it out; in tests, use `Simulator.stand_in()` or its executable.",
        )
    names = ("session_id", "resume", "continue_conversation")
    one = next((name for name in names if getattr(options, name)), None)
    if one == "session_id" or (one is not None and not options.fork_session):
        raise OptionsError(
            f"{place} has `{one}`, and all processes of the pool would be in that one session",
            hint=f"Give `{one}` to `Pool.session` or `Pool.acquire` instead.",
        )
    # What is wrong with tools, hooks and the like is said when a session is made.
    Session(options)
    return options
