"""When a turn has taken too long, and by which limit.

Does not act on it, and has no clock: it is asked with the time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from outrider.options import Timeouts
    from outrider.session._turn_state import TurnState


class Deadline(NamedTuple):
    """A time by which something must have happened."""

    at: float
    which: str
    """The field of `Timeouts` that sets it."""
    seconds: float


def deadline_of(
    turn: TurnState, timeouts: Timeouts, *, heard_at: float, kept_until: float, is_excused: bool
) -> Deadline | None:
    """The first deadline of a turn that has no result yet; None if it has none for now.

    `heard_at`: when the agent last said something; `kept_until`: until when we last kept it waiting.
    `is_excused`: it may be silent, because it waits for us, or works on something else.
    """
    if turn.front_at is None or turn.is_waiting_for_prompts:
        # Another turn is before it, and has deadlines of its own; or it waits for its user.
        return None
    since = max(turn.front_at, turn.prompted_at)
    return min(_deadlines(turn, timeouts, since, heard_at, kept_until, is_excused), default=None)


def _deadlines(
    turn: TurnState, timeouts: Timeouts, since: float, heard_at: float, kept_until: float, is_excused: bool
) -> Iterator[Deadline]:
    if timeouts.turn is not None:
        yield Deadline(since + timeouts.turn, "turn", timeouts.turn)
    if turn.retrying_since is not None and timeouts.retries is not None:
        yield Deadline(turn.retrying_since + timeouts.retries, "retries", timeouts.retries)
    if is_excused:
        return
    since = max(since, kept_until)
    if not turn.has_sign_of_life and timeouts.first_event is not None:
        yield Deadline(since + timeouts.first_event, "first_event", timeouts.first_event)
    elif timeouts.silence is not None and not turn.open_tools:
        yield Deadline(max(since, heard_at) + timeouts.silence, "silence", timeouts.silence)


def patience(timeouts: Timeouts) -> float | None:
    """How long it may be at most until deadlines are looked at again: one that was not counted may count by
    then."""
    limits = (timeouts.first_event, timeouts.silence, timeouts.retries, timeouts.turn, timeouts.background)
    return min((limit for limit in limits if limit is not None), default=None)
