"""The policies of a resilient turn: `Retry` after failures of the API, `Restart` after a lost process.

They are values that decide; `turn_runner` waits, sends and starts.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from collections.abc import Set as AbstractSet
from random import random
from random import random as chance
from typing import Final, TypeAlias, cast

import anyio
import msgspec

from outrider.errors import ApiFailed, ConnectionLost, ProcessExited, TransportClosed
from outrider.options._validators import any_text, invalid_value, is_list, seconds, text, whole

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
            raise invalid_value(
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


# SIGHUP, SIGINT and SIGTERM, and the codes with which a program exits that handles them itself.
_STOPPED: Final = (1, 2, 15)
_STOPPED_CODES: Final = tuple(128 + number for number in _STOPPED)


class Restarted(msgspec.Struct, frozen=True, kw_only=True):
    """A message of a turn: the agent's process was lost, and another has taken its place."""

    cause: ConnectionLost
    attempt: int
    """How often it was started again in this turn, or in this task of a run."""
    session_id: str | None = None
    """The session that was resumed; None: it had not begun."""
    has_acted: bool = False
    """Whether a tool was called in the turn before."""
    is_resent: bool = False
    """Whether the prompt goes to the new process. If it does not, the turn goes on with
    `Restart.continue_with`, or fails with the `cause`."""


Resend: TypeAlias = Callable[[Restarted], bool | Awaitable[bool]] | bool | None


class Restart(msgspec.Struct, frozen=True, kw_only=True):
    """When an agent whose process ended unexpectedly is started again, and resumed.

    Raises `OptionsError` for what cannot work.
    """

    max: int = 3
    """How often in one turn, or in one task of a run. It is one count, whatever the cause."""
    backoff: float = 0.5
    """Seconds before the second time; they double with each. The first time there is no wait."""
    max_backoff: float = 30.0
    resend: Resend = None
    """Whether the turn that was running is sent again: always, never, or as a function says, async or not,
    which is shown what would be done. None: unless a tool was called in it."""
    continue_with: str | None = None
    """What is sent to a turn that is not sent again, in place of its prompt; None: it fails. A task of a run
    is told to go on, unless this says it in other words."""

    def __post_init__(self) -> None:
        whole(0)("`Restart.max`", self.max)
        seconds("`Restart.backoff`", self.backoff)
        seconds("`Restart.max_backoff`", self.max_backoff)
        resend: object = self.resend
        if not (resend is None or isinstance(resend, bool) or callable(resend)):
            raise invalid_value(
                "`Restart.resend`", "True, False, None or a function of a `Restarted`", resend
            )
        if self.continue_with is not None:
            text("`Restart.continue_with`", self.continue_with)

    def wait_before(self, attempt: int) -> float:
        """Seconds to wait before this start, counted from 1."""
        return 0.0 if attempt <= 1 else min(self.max_backoff, self.backoff * 2.0 ** min(attempt - 2, 60))


class Restarts:
    """The one count of a turn, or of a task: who starts the agent again asks here first."""

    def __init__(
        self, policy: Restart | None, count: int = 0, tell: Callable[[int], object] = lambda _: None
    ) -> None:
        """`count`: how often it was started again before; `tell` is called with each new count."""
        self._policy = policy
        self.count = count
        self._tell = tell

    def again(self) -> bool:
        """Count one more start; False: it was often enough."""
        if self._policy is None or self.count >= self._policy.max:
            return False
        self.add()
        return True

    def add(self) -> None:
        """Count a start that is not refused in any case."""
        self.count += 1
        self._tell(self.count)

    def anew(self) -> bool:
        """The same, after a start that found no session to resume: what was lost had not begun.

        After the first loss it is not refused, though it counts: else what is lost at once, and was never
        written, would be lost for good.
        """
        if self.count > 1:
            return self.again()
        self.add()
        return True


def is_unexpected(error: ConnectionLost) -> bool:
    """Whether nobody meant the agent to end: a crash, a kill, an exit in the middle of its work."""
    if isinstance(error, ProcessExited):
        return error.signal not in _STOPPED and error.returncode not in _STOPPED_CODES
    return not isinstance(error, TransportClosed)


_LONGEST_SLEEP: Final = 30.0
"""A machine that slept, or whose clock was put right, is noticed after as many seconds."""


class Clock:
    """What a `Gate` and a `ResilientSession` tell the time by. Reset times of the API are Unix seconds."""

    def time(self) -> float:
        """Now, in Unix seconds."""
        return time.time()

    def elapsed(self) -> float:
        """Seconds that go on evenly, whatever is done to the clock on the wall."""
        return time.monotonic()

    def random(self) -> float:
        """A number from 0 up to 1."""
        return random()

    async def sleep(self, seconds: float) -> None:
        """Wait for so many seconds on the wall clock; no longer, if that is put back meanwhile."""
        until, end = self.time() + seconds, anyio.current_time() + seconds
        while (left := min(until - self.time(), end - anyio.current_time())) > 0:  # noqa: ASYNC110 - nothing tells that a clock was put right
            await anyio.sleep(min(left, _LONGEST_SLEEP))
