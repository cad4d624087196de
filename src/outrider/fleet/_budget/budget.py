"""`Budget`: what sessions may spend, what they have spent, and how they are stopped when that is too much."""

from __future__ import annotations

import logging
import time
import weakref
from contextlib import suppress
from math import isfinite
from operator import add, sub
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar, cast, get_args

import anyio
import msgspec
from anyio import from_thread
from anyio.lowlevel import EventLoopToken, current_token
from msgspec.structs import astuple

from outrider import errors, wire
from outrider._threads import start_thread
from outrider.options._validators import any_text, function, invalid_value, seconds, whole
from outrider.session import Result, Session, SessionState, background, observe
from outrider.wire._blocks import TOOL_CALLS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from contextlib import AbstractAsyncContextManager

    from outrider.session import Observed, Usage


log = logging.getLogger("outrider.fleet")

_ANSWER_SECONDS: Final = 1.0
"""How long the agent may take to answer a request to stop something. It takes milliseconds."""

_REPEAT_SECONDS: Final = 0.25
"""How long after that it is asked again."""

_TELLING: Final = (wire.AssistantMessage, wire.ResultMessage, wire.ConversationResetMessage)
"""Messages that may have usage, besides stream events, of which few do."""

T = TypeVar("T")

Kind: TypeAlias = Literal["usd", "tokens", "tool_calls", "wall"]
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
        """What a `Usage` counts as."""
        return cls(usage.cost_usd, usage.total_tokens, tool_calls)

    def __add__(self, other: Spent) -> Spent:
        if not isinstance(other, Spent):  # pyright: ignore[reportUnnecessaryIsInstance]
            return NotImplemented
        return Spent(*map(add, astuple(self), astuple(other)))

    def __sub__(self, other: Spent) -> Spent:
        if not isinstance(other, Spent):  # pyright: ignore[reportUnnecessaryIsInstance]
            return NotImplemented
        return Spent(*map(sub, astuple(self), astuple(other)))


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


_count = cast("Callable[[str, object], int]", whole(0))


class BudgetWarning(msgspec.Struct, frozen=True):
    """Most of a budget is spent."""

    budget: Budget
    kind: Kind
    spent: float
    limit: float

    def __str__(self) -> str:
        name = f"the budget {self.budget.name!r}" if self.budget.name else "the budget"
        return f"{name} has spent {self.spent:g} of {self.limit:g} ({self.kind})"


class Budget:
    """What may be spent, by one session or by many.

        tenant = Budget(usd=50, name="tenant")
        budget = Budget(usd=2, tool_calls=100, wall=600, parent=tenant)
        async with outrider.Session() as session, budget.watching(session):
            await session.ask("…")

    What is charged to a budget is charged to its `parent` too, and each of them may be exceeded. It may be
    used by many sessions, on several event loops and threads.
    """

    def __init__(
        self,
        *,
        usd: float | None = None,
        tokens: int | None = None,
        tool_calls: int | None = None,
        wall: float | None = None,
        parent: Budget | None = None,
        warn_at: float = 0.8,
        on_warn: Callable[[BudgetWarning], object] | None = None,
        grace: float = 10.0,
        name: str = "",
    ) -> None:
        """`wall` is in seconds, from the first use of the budget. `on_warn` is called once for each kind, in
        the thread that spends, when the share `warn_at` is spent. `grace` is how many seconds a session may
        take to stop what it does, before it is closed. Raises `OptionsError`.
        """
        self.limits: Left = Left(
            None if usd is None else _amount("`usd`", usd),
            None if tokens is None else _count("`tokens`", tokens),
            None if tool_calls is None else _count("`tool_calls`", tool_calls),
            None if wall is None else seconds("`wall`", wall),
        )
        """What may be spent in all, as far as this budget itself limits it."""
        if parent is not None and not isinstance(parent, Budget):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise invalid_value("`parent`", "a `Budget`", parent)
        if on_warn is not None:
            function("`on_warn`", on_warn)
        self.parent = parent
        self.on_warn = on_warn
        self.grace = seconds("`grace`", grace)
        self.name = any_text("`name`", name)
        self._warn_at = _share("`warn_at`", warn_at)
        self._charged = Spent()
        self._began: float | None = None
        self._warned: set[Kind] = set()
        self._watchers: set[BudgetWatch] = set()
        self._watched: weakref.WeakSet[object] = weakref.WeakSet()
        # Held for moments only, and never that of two budgets at once.
        self._lock = Lock()

    def __repr__(self) -> str:
        spent = self.spent
        parts = [f"{getattr(spent, kind):g} of {limit:g} {kind}" for kind, limit in self.limits.items()]
        return f"<Budget {', '.join([*filter(None, [self.name]), *(parts or ['no limit'])])}>"

    # How it stands.

    @property
    def spent(self) -> Spent:
        """What is spent so far."""
        with self._lock:
            return self._total(time.monotonic())

    @property
    def left(self) -> Left:
        """What may still be spent, as far as this budget and its parents limit it; never below 0."""
        least: dict[str, float] = {}
        for budget in self._chain():
            spent = budget.spent
            for kind, limit in budget.limits.items():
                rest = max(type(limit)(0), limit - getattr(spent, kind))
                least[kind] = min(least.get(kind, rest), rest)
        return msgspec.convert(least, Left)

    @property
    def exceeded(self) -> Kind | None:
        """Of what more is spent than may be, by this budget or by a parent; None if all is well."""
        past = self.past()
        return None if past is None else past[1]

    def check(self, *, result: Result[object] | None = None, session_id: str | None = None) -> None:
        """Raises `LimitReached` if nothing is left of something, here or in a parent.

        Its `kind` is `budget.usd`, `budget.tokens`, `budget.tool_calls` or `budget.wall`; its `result` has
        the messages of the one that is given, or none.
        """
        self.begin()
        if (found := self.past(is_spent_up=True)) is not None:
            budget, kind = found
            raise _with_result(budget.failure(kind, session_id=session_id), result)

    # Spending.

    def charge(self, spent: Spent) -> None:
        """Add to what is spent, here and in the parents. Sessions that are watched stop if it is too much.

        Less than 0 takes back what was charged before. May be called in any thread; raises `OptionsError` for
        what is not an amount.
        """
        _checked(spent)
        self.begin()
        now = time.monotonic()
        # First, so that a warning sees all of them up to date.
        news = [(budget, *budget._take(spent, now)) for budget in self._chain()]
        for budget, warnings, watches in news:
            budget._warn(warnings)
            for watch in watches:
                watch.wake()

    def watching(self, session: Session[T]) -> AbstractAsyncContextManager[None]:
        """Charge what a session spends, subagents included, and stop it when that is too much.

            async with budget.watching(session): ...

        Tokens and tool calls count with each message, money with each result, time by the clock. Past a
        limit, the turns that run are interrupted, and tasks in the background are stopped; if something still
        runs after `grace` seconds, the session is closed. Turns that are cut off by it fail with
        `LimitReached`, and each `send` raises it from then on. What the session has used before does not
        count.

        Raises `UsageError` if the session is not open, or if this budget watches it already.
        """
        if not isinstance(session, Session):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise invalid_value("`session`", "a `Session`", session)
        return BudgetWatch(self, session)

    # What outlives a process.

    def snapshot(self) -> Spent:
        """What is spent so far, to be saved and given to `restore` later."""
        return self.spent

    def restore(self, spent: Spent) -> None:
        """Replace what is spent by this, here but not in the parents."""
        _checked(spent)
        now = time.monotonic()
        with self._lock:
            self._charged = spent
            self._began = None if self._began is None else now
        warnings, watches = self._take(Spent(), now)
        self._warn(warnings)
        for watch in watches:
            watch.wake()

    # For what watches sessions.

    def begin(self) -> None:
        """Start the clocks that do not run yet, here and in the parents."""
        now = time.monotonic()
        for budget in self._chain():
            with budget._lock:
                budget._began = now if budget._began is None else budget._began

    def warn(self) -> None:
        """Warn of what is nearly spent."""
        for budget in self._chain():
            budget._warn(budget._take(Spent(), time.monotonic())[0])

    def past(self, *, is_spent_up: bool = False) -> tuple[Budget, Kind] | None:
        """The budget whose limit is exceeded, and the kind; with `is_spent_up`, one that has nothing left."""
        for budget in self._chain():
            if (kind := budget._exceeded(budget.spent, is_spent_up=is_spent_up)) is not None:
                return budget, kind
        return None

    @property
    def next_mark(self) -> float | None:
        """The seconds until the clock leads to a warning, or to the end; None if it never does."""
        marks: list[float] = []
        for budget in self._chain():
            if (limit := budget.limits.wall) is not None:
                wall = budget.spent.wall
                marks += [mark - wall for mark in (limit * budget._warn_at, limit) if mark > wall]
        return min(marks, default=None)

    def join(self, watch: BudgetWatch, session: object) -> None:
        """Wake the watch when something is exceeded. Raises `UsageError` if the session is watched."""
        with self._lock:
            if session in self._watched:
                raise errors.UsageError(
                    "this budget watches the session already, and would charge it twice",
                    hint="Watch a session once with each budget.",
                )
            self._watched.add(session)
        for budget in self._chain():
            with budget._lock:
                budget._watchers.add(watch)

    def leave(self, watch: BudgetWatch, session: object | None) -> None:
        """Wake the watch no longer. The session may be gone."""
        for budget in self._chain():
            with budget._lock:
                budget._watchers.discard(watch)
        if session is not None:
            with self._lock:
                self._watched.discard(session)

    def failure(
        self, kind: Kind, messages: Sequence[object] = (), session_id: str | None = None
    ) -> errors.LimitReached:
        """What a turn fails with that this budget does not allow."""
        whose = f"the budget {self.name!r}" if self.name else "the budget"
        return errors.LimitReached(
            f"budget.{kind}",
            dict(self.limits.items()).get(kind),
            messages=messages,
            session_id=session_id,
            hint=f"Raise `{kind}` of {whose}, or resume the session with another.",
        )

    def _chain(self) -> Iterator[Budget]:
        """This one, its parent, and so on."""
        budget: Budget | None = self
        while budget is not None:
            yield budget
            budget = budget.parent

    def _total(self, now: float) -> Spent:
        """With the lock held."""
        began = self._began
        return self._charged if began is None else self._charged + Spent(wall=max(0.0, now - began))

    def _exceeded(self, spent: Spent, *, is_spent_up: bool = False) -> Kind | None:
        for kind, limit in self.limits.items():
            used = getattr(spent, kind)
            # With no time left, nothing else can be spent either.
            if used > limit or (used == limit and (is_spent_up or kind == "wall")):
                return kind
        return None

    def _take(self, spent: Spent, now: float) -> tuple[list[BudgetWarning], Collection[BudgetWatch]]:
        """Add to what is spent. Returns the warnings that are due, and the watches that have to stop."""
        with self._lock:
            self._charged += spent
            total = self._total(now)
            due: list[BudgetWarning] = []
            for kind, limit in self.limits.items():
                used = getattr(total, kind)
                if kind not in self._warned and used >= limit * self._warn_at:
                    self._warned.add(kind)
                    due.append(BudgetWarning(self, kind, used, limit))
            return due, () if self._exceeded(total) is None else tuple(self._watchers)

    def _warn(self, warnings: Iterable[BudgetWarning]) -> None:
        for warning in warnings:
            log.info("%s", warning)
            if self.on_warn is not None:
                try:
                    self.on_warn(warning)
                except Exception:
                    # An error in a callback must not stop those that spend.
                    log.exception("`on_warn` failed: %s", warning)


def limit_reached(budget: Budget | None, ended: Result[T]) -> errors.LimitReached | None:
    """The end of a turn as `LimitReached`, with its result, if a budget is why it ended; else None."""
    error = ended.error
    if isinstance(error, errors.LimitReached) and error.kind.startswith("budget."):
        return error
    if budget is None or not isinstance(error, errors.TurnInterrupted | errors.ConnectionLost):
        return None
    past = budget.past()
    if past is None:
        return None
    exceeded, kind = past
    failure = exceeded.failure(kind, ended.messages, error.session_id)
    failure.__cause__ = error
    return _with_result(failure, cast("Result[object]", ended))


def _with_result(error: errors.LimitReached, partial: Result[object] | None) -> errors.LimitReached:
    """Each has the other, as those of turns have."""
    result = Result[object](session_id=error.session_id) if partial is None else partial
    error.session_id = error.session_id or result.session_id
    error.result = msgspec.structs.replace(result, error=error)
    return error


def _checked(spent: Spent) -> None:
    if not isinstance(spent, Spent):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise invalid_value(
            "`spent`", "a `Spent`", spent, "`Spent.of(result.usage)` is what a turn has used."
        )
    for kind in KINDS:
        value: object = getattr(spent, kind)
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
            raise invalid_value(f"`{kind}`", "a finite number", value)


def _amount(place: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not (isfinite(value) and value >= 0):
        raise invalid_value(place, "a finite number, 0 or more", value, "None stands for no limit.")
    return value


def _share(place: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise invalid_value(place, "a share: more than 0, and 1 at the most", value)
    return float(value)


class _Calls:
    """Counts tool calls, each once: those of subagents are in their messages, or only in a number of theirs.

    The agent does not pass on all messages of subagents, and none of those that subagents start.
    """

    def __init__(self) -> None:
        self._seen: dict[str | None, set[str]] = {}
        """By the call that started the subagent, or None; each by its id."""
        self._reported: dict[str | None, int] = {}
        """The same, as numbers."""

    def take(self, message: wire.Message) -> bool:
        """Whether there may be more of them now."""
        if isinstance(message, wire.AssistantMessage):
            calls = {block.id for block in message.content if isinstance(block, TOOL_CALLS)}
            self._seen.setdefault(message.parent_tool_use_id, set()).update(calls)
            return bool(calls)
        if isinstance(message, wire.TaskProgressMessage | wire.TaskNotificationMessage) and message.usage:
            caller = message.tool_use_id or message.task_id
            reported: object = message.usage.get("tool_uses")
            # Claude Code may have written anything.
            if isinstance(reported, int):  # pyright: ignore[reportUnnecessaryIsInstance]
                self._reported[caller] = max(reported, self._reported.get(caller, 0))
            return True
        return False

    @property
    def count(self) -> int:
        """All of them."""
        callers = self._seen.keys() | self._reported.keys()
        return sum(max(len(self._seen.get(each, ())), self._reported.get(each, 0)) for each in callers)


class BudgetWatch:
    """Looks at a session for a budget, as long as it is entered.

    A background task keeps the clock and stops the session, even if the task that opened it is gone. It does
    not keep the session alive.
    """

    def __init__(self, budget: Budget, session: Session[Any]) -> None:
        """Made by `Budget.watching`."""
        self._budget = budget
        self._session = weakref.ref(session)
        self._observed: Observed | None = None
        self._counted = Spent()
        """What of the session's usage is charged, or was used before."""
        self._calls = _Calls()
        self._loop: EventLoopToken | None = None
        self._news = anyio.Event()
        self._stopping = anyio.Lock()
        self._is_over = False
        self._is_waking = False
        """Whether a thread is on its way to the event loop."""

    async def __aenter__(self) -> None:
        session = self._session()
        if session is None or self._loop is not None:
            raise errors.UsageError(
                "A watch is entered once. Call `budget.watching(session)` for each `async with`."
            )
        self._loop = current_token()
        self._budget.join(self, session)
        try:
            self._observed = observe(session, self)
            self._counted = Spent.of(self._observed.usage)
            self._budget.begin()
            await (await background()).start(self._guard, name="outrider budget")
        except BaseException:
            self._finish()
            raise

    async def __aexit__(self, *_: object) -> None:
        try:
            # The session has stopped when the block is left.
            if (past := self._budget.past()) is not None:
                await self._stop(*past)
        finally:
            self._finish()

    def _finish(self) -> None:
        if self._observed is not None:
            self._observed.stop()
        self._budget.leave(self, self._session())
        self.ended()

    # What the session tells, on its event loop.

    def begins(self) -> None:
        """Raises `LimitReached` if nothing is left."""
        session = self._session()
        self._budget.check(session_id=None if session is None else session.id)

    def received(self, messages: Sequence[wire.Message]) -> None:
        """Charge what they tell of."""
        observed = self._observed
        is_told = False
        for message in messages:
            if isinstance(message, wire.StreamEvent):
                # Few of thousands have usage; decoding each would cost more than all else here.
                is_told = is_told or b'"message_' in getattr(message, "wire_line", b'"message_')
            else:
                is_told = self._calls.take(message) or isinstance(message, _TELLING) or is_told
        if observed is not None and is_told:
            now = Spent.of(observed.usage, tool_calls=self._calls.count)
            spent, self._counted = now - self._counted, now
            try:
                if spent != Spent():
                    self._budget.charge(spent)
            except Exception:
                # A subclass of `Budget` failed; the session must not.
                log.exception("what a session has spent could not be charged")

    def ended(self) -> None:
        """There is nothing to look at any more."""
        self._is_over = True
        self._news.set()

    # What the budget tells, in any thread.

    def wake(self) -> None:
        """Look whether it is too much."""
        loop = self._loop
        if _is_running(loop):
            self._look_again()
            return
        if self._is_waking:
            return
        self._is_waking = True

        def call() -> None:
            try:
                from_thread.run_sync(self._look_again, token=loop)
            except Exception as error:  # noqa: BLE001 - the loop is closed, and its sessions with it
                log.debug("the event loop ended before a session over its budget could be stopped: %s", error)

        # In a thread, because two event loops that wait for each other would do so for ever.
        try:
            start_thread(call, name="outrider-budget")
        except errors.LaunchError as error:
            # The next message makes it look again.
            self._is_waking = False
            log.warning("a session that is over its budget runs on for now: %s", error)

    def _look_again(self) -> None:
        self._is_waking = False
        self._news.set()

    # Stopping.

    async def _guard(self) -> None:
        while not self._is_over:
            self._news = anyio.Event()
            self._budget.warn()
            past = self._budget.past()
            if past is not None:
                await self._stop(*past)
            with anyio.move_on_after(self._budget.next_mark):
                await self._news.wait()

    async def _stop(self, budget: Budget, kind: Kind) -> None:
        """Stop all that runs: by asking, and then by closing the session."""
        grace = self._budget.grace
        async with self._stopping:
            session = self._session()
            if session is None or self._observed is None or self._is_over or self._observed.is_closed:
                return
            with anyio.move_on_after(grace):
                await self._quiet(session, self._observed, budget, kind)
                return
            # After the block the session may be used for something else.
            if not self._is_over:
                log.warning(
                    "a session did not stop within %g s when its budget was spent: it is closed", grace
                )
                await session.close()

    async def _quiet(self, session: Session[Any], observed: Observed, budget: Budget, kind: Kind) -> None:
        """Stop turns, tasks, and what the agent does by itself, until it is idle."""

        def failure(messages: Sequence[object], session_id: str | None) -> errors.LimitReached:
            return budget.failure(kind, messages, session_id)

        is_idle = False
        while not is_idle:
            has_turns = observed.end_turns(failure, self._budget.grace) > 0
            # What cannot be asked, or does not answer, ends with the session.
            for task in session.tasks:
                with suppress(errors.OutriderError):
                    await session.stop_task(task.id, timeout=_ANSWER_SECONDS)
            if not has_turns and session.state is SessionState.BUSY:
                # It tells the model that a task has ended.
                with suppress(errors.OutriderError):
                    await session.interrupt(timeout=_ANSWER_SECONDS)
            with anyio.move_on_after(_REPEAT_SECONDS):
                await session.wait_idle()
                is_idle = True


def _is_running(loop: EventLoopToken | None) -> bool:
    try:
        return current_token() == loop
    except Exception:  # noqa: BLE001 - each kind of loop has an error of its own for a thread without one
        return False
