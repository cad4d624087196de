"""The policies of a resilient turn: `Retry` after failures of the API, `Restart` after a lost process.

They are values that decide, and `Recovery` is the one count that they decide by; `turn_runner` waits, sends
and starts. A `Gate` makes all sessions of an account wait together.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from collections.abc import Set as AbstractSet
from itertools import count
from random import random as chance
from typing import Final, TypeAlias, cast

import anyio
import msgspec
from anyio.lowlevel import checkpoint

from outrider.errors import ApiFailed, ConnectionLost, ProcessExited, TransportClosed
from outrider.options._validators import any_text, invalid_value, is_list, seconds, text, whole

CONTINUE: Final = "The API failed before you were done. Go on where you stopped, and do nothing twice."
"""What is sent to a turn that has acted, by default."""

PASSING_KINDS: Final = frozenset(("rate_limit", "overloaded", "server_error", "connection_failed"))
"""The kinds of `ApiFailed` that pass by themselves."""


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """When a turn that ended in `ApiFailed` is retried, after Claude Code's own retries.

    A turn without a tool call is sent again. After a tool call the agent is asked to continue instead.
    Raises `OptionsError` for invalid values.
    """

    max_tries: int = 5
    """How often a turn is tried, the first time included. A tool call resets the count."""
    max_seconds: float = 1800.0
    """How long after the first failure. Waiting for a usage limit does not count."""
    backoff: float = 1.0
    """Seconds before the second try; doubled for each further one. The API's own wait counts if longer."""
    max_backoff: float = 60.0
    jitter: float = 0.2
    """The most by which a wait grows at random, as a share of it: sessions do not return all at once."""
    kinds: frozenset[str] = PASSING_KINDS
    """The kinds of `ApiFailed` that are retried."""
    on_usage_limit: str = "wait"
    """What to do when the usage limit of the account is reached and the API says when it resets: `wait`,
    `raise` at once, or the name of a model to use until then."""
    max_usage_wait: float = 6 * 3600.0
    """A usage limit that resets later than this, in seconds, is raised at once."""
    continue_with: str | None = CONTINUE
    """The prompt for a turn in which a tool was called; None: such a turn is not retried."""

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
        """The model to use when the usage limit is reached."""
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

        `since`: when the first of them failed, in Unix seconds, as `now` is. A turn that continues with
        the fallback model need not wait.
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
    """Whether the account has reached its usage limit and the API says when it resets."""
    return error.kind == "rate_limit" and error.resets_at is not None


class Retrying(msgspec.Struct, frozen=True):
    """In a turn's messages: the API failed, and the turn is retried after a wait."""

    error: ApiFailed
    attempt: int
    """How many tries have failed so far."""
    seconds: float
    """The wait, at least."""
    resumes_at: float
    """When the wait ends, in Unix seconds."""


# SIGHUP, SIGINT and SIGTERM, and the codes with which a program exits that handles them itself.
_STOPPED: Final = (1, 2, 15)
_STOPPED_CODES: Final = tuple(128 + number for number in _STOPPED)


class Restarted(msgspec.Struct, frozen=True, kw_only=True):
    """In a turn's messages: the agent's process was lost, and another has taken its place."""

    cause: ConnectionLost
    attempt: int
    """How often it was started again in this turn, or in this task of a run."""
    session_id: str | None = None
    """The session that was resumed; None: it had not begun."""
    has_acted: bool = False
    """Whether a tool was called in the turn before."""
    is_resent: bool = False
    """Whether the prompt goes to the new process. If it does not, the turn continues with
    `Restart.continue_with`, or fails with the `cause`."""


Resend: TypeAlias = Callable[[Restarted], bool | Awaitable[bool]] | bool | None


class Restart(msgspec.Struct, frozen=True, kw_only=True):
    """When an agent whose process ended unexpectedly is started again, and its session resumed.

    Raises `OptionsError` for invalid values.
    """

    max: int = 3
    """How often in one turn, or in one task of a run: one count for all causes."""
    backoff: float = 0.5
    """Seconds before the second restart; doubled for each further one. The first is immediate."""
    max_backoff: float = 30.0
    resend: Resend = None
    """Whether the interrupted turn is sent again: always, never, or as a function, async or not, decides from
    the `Restarted`. None: only if no tool was called in it."""
    continue_with: str | None = None
    """The prompt for a turn that is not sent again; None: it fails. Tasks of a run have a default."""

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


class Tries(msgspec.Struct, frozen=True):
    """How often something was tried again, in one turn or in one task of a run."""

    restarts: int = 0
    """How often the agent was started again."""
    failures: int = 0
    """How often the API has failed, one time after the other."""
    failing_since: float | None = None
    """When the first of these failures was, in Unix seconds."""
    refusals: int = 0
    """How often the session could not be had from its store."""


class Recovery:
    """The one count of a turn, or of a task: every further try is counted here first.

    `Retry` and `Restart` decide. Each method gives the seconds to wait before the next try, or None if there
    is none.
    """

    def __init__(
        self,
        restart: Restart | None,
        retry: Retry | None,
        tries: Tries | None = None,
        tell: Callable[[Tries], object] = lambda _: None,
    ) -> None:
        """`tries`: what was tried before; `tell` is called with each new count."""
        self._restart = restart
        self._retry = retry
        self.tries = tries or Tries()
        self._tell = tell

    def after_loss(self) -> float | None:
        """The agent, or its worker, was lost, or could not be started."""
        if self._restart is None or self.tries.restarts >= self._restart.max:
            return None
        self.count_start()
        return self._restart.wait_before(self.tries.restarts)

    def after_missing_session(self) -> float | None:
        """There is no session to resume: the process was lost before it had begun, and starts over.

        After the first loss this is not refused, though it counts: otherwise an agent that is lost before
        anything is written would be lost permanently.
        """
        if self.tries.restarts > 1:
            return None if self.after_loss() is None else 0.0
        self.count_start()
        return 0.0

    def after_refusal(self, least: float) -> float | None:
        """The store does not give the session yet. No agent was started, so this has a count of its own."""
        restart, refusals = self._restart, self.tries.refusals + 1
        if restart is None or refusals > restart.max:
            return None
        self._count(refusals=refusals)
        return max(min(least, restart.max_backoff), restart.wait_before(refusals))

    def after_api_failure(
        self, error: ApiFailed, *, now: float, random: Callable[[], float], has_acted: bool
    ) -> float | None:
        """The API failed, after the agent's own tries."""
        retry = self._retry
        if retry is None or (has_acted and retry.continue_with is None):
            return None
        failures = self.tries.failures + 1
        since = now if self.tries.failing_since is None else self.tries.failing_since
        wait = retry.wait_before(error, failures, since, now=now, random=random)
        if wait is not None and is_usage_limit(error):
            since += wait
        self._count(failures=failures, failing_since=since)
        return wait

    def count_start(self) -> None:
        """Count a start that is not refused in any case."""
        self._count(restarts=self.tries.restarts + 1)

    def note_progress(self) -> None:
        """A tool was called: the API failures before it are past."""
        if self.tries.failures:
            self._count(failures=0, failing_since=None)

    def _count(self, **changes: float | None) -> None:
        self.tries = msgspec.structs.replace(self.tries, **changes)
        self._tell(self.tries)


RETRY: Final = Retry()
RESTART: Final = Restart()


def is_unexpected(error: ConnectionLost) -> bool:
    """Whether the agent ended unexpectedly: a crash, a kill, an exit in the middle of its work."""
    if isinstance(error, ProcessExited):
        return error.signal not in _STOPPED and error.returncode not in _STOPPED_CODES
    return not isinstance(error, TransportClosed)


_LONGEST_SLEEP: Final = 30.0
"""After this many seconds a machine that slept, or whose clock was corrected, is noticed."""


class Clock:
    """What a `Gate` and a `ResilientSession` tell the time by. Reset times of the API are Unix seconds."""

    def time(self) -> float:
        """Now, in Unix seconds."""
        return time.time()

    def elapsed(self) -> float:
        """Seconds that pass evenly, even if the wall clock is changed."""
        return time.monotonic()

    def random(self) -> float:
        """A number from 0 up to 1."""
        return chance()

    async def sleep(self, seconds: float) -> None:
        """Wait for this many seconds on the wall clock; no longer if the clock is put back meanwhile."""
        until, end = self.time() + seconds, anyio.current_time() + seconds
        while (left := min(until - self.time(), end - anyio.current_time())) > 0:  # noqa: ASYNC110 - nothing tells that a clock was put right
            await anyio.sleep(min(left, _LONGEST_SLEEP))


_TOLERANCE: Final = 1.0
"""Two clocks do not agree to the second."""


class Gate:
    """Lets sessions through, or makes all of them wait until a given time. Use one for each account.

        gate = Gate()
        sessions = [ResilientSession(cwd=each, gate=gate) for each in folders]

    A session that meets a limit of the account pauses it, so that the others wait for the reset too, instead
    of failing one by one. It belongs to one event loop. `wait`, `pause` and `open` are async so that a gate
    elsewhere can stand in its place.
    """

    def __init__(self, *, jitter: float = 1.0, name: str = "", clock: Clock | None = None) -> None:
        """`jitter`: the seconds over which those that waited are let through. Raises `OptionsError`."""
        self.jitter = seconds("`jitter`", jitter)
        self.name = any_text("`name`", name)
        self.why: str | None = None
        """What it was paused for; None while it is open."""
        self._clock = clock or Clock()
        self._opens_at = self._ends = 0.0
        """When it opens: in Unix seconds, and by a clock that no one can put back."""
        self._numbers = count()
        self._waiting: dict[int, anyio.CancelScope] = {}
        """Those that wait, in the order in which they came. To cancel a scope wakes its task."""
        self._crowd: tuple[int, int] | None = None
        """The first of those that waited when it opened, and how many they were."""

    def __repr__(self) -> str:
        name = f" {self.name}" if self.name else ""
        opens_at = self.opens_at
        state = "open" if opens_at is None else f"paused until {opens_at:.0f}"
        return f"<Gate{name}, {state}, {len(self._waiting)} waiting>"

    @property
    def is_open(self) -> bool:
        """Whether a session would be let through at once."""
        return self.opens_at is None

    @property
    def opens_at(self) -> float | None:
        """When it opens, in Unix seconds; None while it is open."""
        if self._left() > 0:
            return min(self._opens_at, self._clock.time() + self._ends - self._clock.elapsed() + _TOLERANCE)
        self.why = None
        return None

    def _left(self) -> float:
        """The seconds until it opens."""
        return min(self._opens_at - self._clock.time(), self._ends - self._clock.elapsed() + _TOLERANCE)

    async def wait(self) -> None:
        """Wait until it is open, and then for one's turn: those that waited continue one after another.

        Cancelling the call leaves nothing behind.
        """
        await checkpoint()
        if self.is_open:
            return
        number = next(self._numbers)
        try:
            while (opens_at := self.opens_at) is not None:
                await self._sleep(number, opens_at - self._clock.time())
                if self._left() <= 0:
                    await self._sleep(number, self._delay(number))
        finally:
            self._waiting.pop(number, None)

    async def _sleep(self, number: int, left: float) -> None:
        with anyio.CancelScope() as scope:
            self._waiting[number] = scope
            await self._clock.sleep(left)

    def _delay(self, number: int) -> float:
        """Each has a part of the time for itself, in the order in which they came."""
        # As it was for the first that asks: those that have gone on already must not move the others up.
        first, size = self._crowd = self._crowd or (next(iter(self._waiting)), len(self._waiting))
        part = (number - first + self._clock.random()) / size
        return min(part, 1.0) * self.jitter

    async def pause(self, until: float, why: str = "") -> None:
        """Close the gate until then, in Unix seconds. A later time extends the pause, an earlier one changes
        nothing."""
        moment = seconds("`until`", until)
        await checkpoint()
        now = self._clock.time()
        if moment > max(self.opens_at or 0.0, now):
            self._opens_at, self._ends = moment, self._clock.elapsed() + moment - now
            self._crowd = None
            self.why = why or None

    async def open(self) -> None:
        """Open the gate: those that wait go through one after another, later ones at once."""
        await checkpoint()
        self._opens_at = 0.0
        self.why = None
        for scope in self._waiting.values():
            scope.cancel()
