"""Owns `Retry`: whether and when a turn that the API failed is tried again.

Does not wait and does not send: it is a value that others ask.
"""

from __future__ import annotations

import time
from collections.abc import Set as AbstractSet
from random import random as chance
from typing import TYPE_CHECKING, Final, cast

import msgspec

from outrider.errors import ApiFailed
from outrider.options._readers import any_text, fault, is_list, seconds, text, whole

if TYPE_CHECKING:
    from collections.abc import Callable

CONTINUE: Final = "The API failed before you were done. Go on where you stopped, and do nothing twice."
"""What is sent to a turn that has acted, by default."""

PASSING_KINDS: Final = frozenset(("rate_limit", "overloaded", "server_error", "connection_failed"))
"""The kinds of `ApiFailed` that pass by themselves."""


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """When a turn that ended in `ApiFailed` is tried again, after what the agent has tried itself.

    A turn that has not acted is sent again; one in which a tool ran is told to go on, never sent again.
    Raises `OptionsError` for what cannot work.
    """

    max_tries: int = 5
    """How often a turn is tried, the first time included; a tool call between two failures begins the count
    anew."""
    max_seconds: float = 1800.0
    """How long after the first failure. To wait for a usage limit does not count."""
    backoff: float = 1.0
    """Seconds before the second try; they double with each. The API's own word counts if it is more."""
    max_backoff: float = 60.0
    jitter: float = 0.2
    """By how much of itself a wait is made longer at most, so that sessions do not come all at once."""
    kinds: frozenset[str] = PASSING_KINDS
    """The kinds of `ApiFailed` after which there is another try."""
    on_usage_limit: str = "wait"
    """What to do when the account's limit is used up and the API says when it is lifted: `wait` until then,
    `raise` at once, or the name of a model to go on with until then."""
    max_usage_wait: float = 6 * 3600.0
    """A usage limit that is lifted later than in so many seconds is raised at once."""
    continue_with: str | None = CONTINUE
    """What is sent to a turn that has acted, in place of its prompt; None: it is not tried again."""

    def __post_init__(self) -> None:
        whole(1)("`Retry.max_tries`", self.max_tries)
        for name in ("max_seconds", "backoff", "max_backoff", "jitter", "max_usage_wait"):
            seconds(f"`Retry.{name}`", getattr(self, name))
        text("`Retry.on_usage_limit`", self.on_usage_limit)
        if self.continue_with is not None:
            text("`Retry.continue_with`", self.continue_with)
        kinds = cast("object", self.kinds)
        if not isinstance(kinds, AbstractSet) and not is_list(kinds):
            raise fault(
                "`Retry.kinds`", "a set of kinds of `ApiFailed`", kinds, "For example {'overloaded'}."
            )
        read = frozenset(
            any_text("an item of `Retry.kinds`", kind) for kind in cast("AbstractSet[object]", kinds)
        )
        msgspec.structs.force_setattr(self, "kinds", read)

    @property
    def fallback_model(self) -> str | None:
        """The model to go on with when the usage limit is used up."""
        return None if self.on_usage_limit in ("wait", "raise") else self.on_usage_limit

    def wait_before(
        self,
        error: ApiFailed,
        tries: int,
        since: float,
        *,
        now: float | None = None,
        random: Callable[[], float] = chance,
    ) -> float | None:
        """Seconds to wait before the next try, after `tries` of them; None: there is none.

        `since`: when the first of them failed, in Unix seconds, as `now` is. A turn that goes on with the
        fallback model need not wait at all.
        """
        now = time.time() if now is None else now
        if tries >= self.max_tries or error.kind not in self.kinds:
            return None
        own = min(self.max_backoff, self.backoff * 2.0 ** min(tries - 1, 60))
        spread = own * self.jitter * random()
        if is_usage_limit(error):
            return self._wait_for_reset(error.resets_at or 0.0, now, own + spread)
        wait = max(own, error.retry_after or 0.0) + spread
        return wait if now + wait - since <= self.max_seconds else None

    def _wait_for_reset(self, resets_at: float, now: float, least: float) -> float | None:
        if self.on_usage_limit == "raise":
            return None
        if self.fallback_model is not None:
            return 0.0
        wait = max(resets_at - now, least)
        return wait if wait <= self.max_usage_wait else None


def is_usage_limit(error: ApiFailed) -> bool:
    """Whether the account has used up what it may, until a moment that the API tells."""
    return error.kind == "rate_limit" and error.resets_at is not None


class Retrying(msgspec.Struct, frozen=True):
    """A message of a turn: the API failed, and it is tried again after a while."""

    error: ApiFailed
    attempt: int
    """How often it has been tried so far."""
    seconds: float
    """How long that while is, at least."""
    resumes_at: float
    """When it is over, in Unix seconds."""
