"""What a budget counts: what may be spent, what is spent, and who has to stop when it is too much.

Knows no session: `budget` charges what sessions spend.
"""

from __future__ import annotations

import time
from threading import Lock
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias, get_args
from weakref import WeakSet

import msgspec

from outrider.errors import LimitReached, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from outrider.session import Usage

Kind: TypeAlias = Literal["usd", "tokens", "tool_calls", "wall"]
Warned: TypeAlias = tuple[Kind, float, float]
"""What is nearly spent, how much of it, and of how much."""

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)


class Spent(msgspec.Struct, frozen=True):
    """What was spent. Can be added: `a + b`, `sum(all, Spent())`."""

    usd: float = 0.0
    tokens: int = 0
    """All of them, cached ones too."""
    tool_calls: int = 0
    wall: float = 0.0
    """Seconds on the clock."""

    @classmethod
    def of(cls, usage: Usage, *, tool_calls: int = 0) -> Spent:
        """What a `Usage` comes to."""
        return cls(usage.cost_usd, usage.total_tokens, tool_calls)

    def __add__(self, other: Spent) -> Spent:
        if not isinstance(other, Spent):  # pyright: ignore[reportUnnecessaryIsInstance]
            return NotImplemented
        return Spent(
            self.usd + other.usd,
            self.tokens + other.tokens,
            self.tool_calls + other.tool_calls,
            self.wall + other.wall,
        )

    def __sub__(self, other: Spent) -> Spent:
        if not isinstance(other, Spent):  # pyright: ignore[reportUnnecessaryIsInstance]
            return NotImplemented
        return self + Spent(-other.usd, -other.tokens, -other.tool_calls, -other.wall)


class Left(msgspec.Struct, frozen=True):
    """What may be spent; None where there is no limit."""

    usd: float | None = None
    tokens: int | None = None
    tool_calls: int | None = None
    wall: float | None = None

    def items(self) -> Iterator[tuple[Kind, float]]:
        """The limits that there are."""
        for kind in KINDS:
            limit: float | None = getattr(self, kind)
            if limit is not None:
                yield kind, limit


class Watcher(Protocol):
    """Somebody who spends, and has to stop when it is too much."""

    def wake(self) -> None:
        """It is too much. Called in any thread, at any time."""
        ...


class Account:
    """The figures of one budget, and the way to those of its parents. May be used in any thread."""

    def __init__(
        self,
        limits: Left,
        parent: Account | None,
        *,
        warn_at: float,
        warn: Callable[[Kind, float, float], None],
        name: str,
    ) -> None:
        self.limits: Final = limits
        self.name: Final = name
        self.chain: Final[tuple[Account, ...]] = (self, *(() if parent is None else parent.chain))
        """This one, its parent, and so on."""
        self._limits = tuple(limits.items())
        self._warn_at = warn_at
        self._warn = warn
        self._charged = Spent()
        self._began: float | None = None
        self._warned: set[Kind] = set()
        self._watchers: set[Watcher] = set()
        self._watched: WeakSet[object] = WeakSet()
        # Held for moments only, and never that of two accounts at once.
        self._lock = Lock()

    # How it stands.

    @property
    def spent(self) -> Spent:
        with self._lock:
            return self._spent(time.monotonic())

    @property
    def left(self) -> Left:
        """The least of the chain; never below 0."""
        least: dict[str, float] = {}
        for account in self.chain:
            spent = account.spent
            for kind, limit in account._limits:
                rest = max(type(limit)(0), limit - getattr(spent, kind))
                least[kind] = min(least.get(kind, rest), rest)
        return msgspec.convert(least, Left)

    def past(self) -> tuple[Account, Kind] | None:
        """Whose limit is exceeded, and in what."""
        for account in self.chain:
            if (kind := account._past(account.spent)) is not None:
                return account, kind
        return None

    def spent_up(self) -> tuple[Account, Kind] | None:
        """Who has nothing left, and of what."""
        for account in self.chain:
            spent = account.spent
            for kind, limit in account._limits:
                if getattr(spent, kind) >= limit:
                    return account, kind
        return None

    @property
    def next_mark(self) -> float | None:
        """The seconds until the clock leads to a warning, or to the end; None if it never does."""
        marks: list[float] = []
        for account in self.chain:
            limit = account.limits.wall
            if limit is not None:
                wall = account.spent.wall
                marks += [mark - wall for mark in (limit * account._warn_at, limit) if mark > wall]
        return min(marks, default=None)

    # Spending.

    def begin(self) -> None:
        """Start the clocks of the chain that do not run yet."""
        now = time.monotonic()
        for account in self.chain:
            with account._lock:
                account._began = now if account._began is None else account._began

    def add(self, spent: Spent) -> None:
        """Add to what is spent, in the whole chain; warn of what is nearly spent, and wake those who have to
        stop."""
        now = time.monotonic()
        # First, so that who is told of one finds all of them as they are.
        news = [account._take(spent, now) for account in self.chain]
        for account, (due, watchers) in zip(self.chain, news, strict=True):
            account._tell(due, watchers)

    def set(self, spent: Spent) -> None:
        """Put this in place of what is spent, here alone."""
        with self._lock:
            self._charged = spent
            self._began = None if self._began is None else time.monotonic()
        self._tell(*self._take(Spent(), time.monotonic(), is_use=False))

    def warn(self) -> None:
        """Warn of what is nearly spent."""
        for account in self.chain:
            account._tell(account._take(Spent(), time.monotonic(), is_use=False)[0], ())

    # Who spends.

    def join(self, watcher: Watcher, watched: object) -> None:
        """Wake it when something is exceeded. Raises `UsageError` for what is watched already."""
        with self._lock:
            if watched in self._watched:
                raise UsageError(
                    "this budget watches the session already, and would charge it twice",
                    hint="Watch a session once with each budget.",
                )
            self._watched.add(watched)
        for account in self.chain:
            with account._lock:
                account._watchers.add(watcher)

    def leave(self, watcher: Watcher, watched: object | None) -> None:
        """Wake it no longer. What it has watched may be gone."""
        for account in self.chain:
            with account._lock:
                account._watchers.discard(watcher)
        if watched is not None:
            with self._lock:
                self._watched.discard(watched)

    def failure(
        self, kind: Kind, messages: Sequence[object] = (), session_id: str | None = None
    ) -> LimitReached:
        """What a turn fails with that this account does not allow."""
        whose = f"the budget {self.name!r}" if self.name else "the budget"
        return LimitReached(
            f"budget.{kind}",
            dict(self._limits).get(kind),
            messages=messages,
            session_id=session_id,
            hint=f"Raise `{kind}` of {whose}, or resume the session with another.",
        )

    def _spent(self, now: float) -> Spent:
        """With the lock held."""
        began = self._began
        return self._charged if began is None else self._charged + Spent(wall=max(0.0, now - began))

    def _past(self, spent: Spent) -> Kind | None:
        for kind, limit in self._limits:
            used = getattr(spent, kind)
            # With no time left, nothing else can be spent either.
            if used > limit or (kind == "wall" and used >= limit):
                return kind
        return None

    def _take(
        self, spent: Spent, now: float, *, is_use: bool = True
    ) -> tuple[list[Warned], Collection[Watcher]]:
        """Add to what is spent; gives what is to be warned of, and who has to stop."""
        with self._lock:
            if is_use and self._began is None:
                self._began = now
            self._charged += spent
            total = self._spent(now)
            due: list[Warned] = []
            for kind, limit in self._limits:
                used = getattr(total, kind)
                if kind not in self._warned and used >= limit * self._warn_at:
                    self._warned.add(kind)
                    due.append((kind, used, limit))
            return due, () if self._past(total) is None else tuple(self._watchers)

    def _tell(self, due: list[Warned], watchers: Collection[Watcher]) -> None:
        for warning in due:
            self._warn(*warning)
        for watcher in watchers:
            watcher.wake()
