"""Owns `Restart`: whether an agent that went away is started again, and what becomes of its turn.

Does not start anything: it is a value that others ask.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import msgspec

from outrider.errors import ConnectionLost, ProcessExited, TransportClosed
from outrider.options._readers import fault, seconds, text, whole

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
            raise fault("`Restart.resend`", "True, False, None or a function of a `Restarted`", resend)
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
