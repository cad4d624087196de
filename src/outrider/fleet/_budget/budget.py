"""`Budget`, what sessions may spend, and `Gate`, which pauses all sessions while a usage limit lasts.

`account` does the counting.
"""

from __future__ import annotations

import logging
import weakref
from contextlib import suppress
from itertools import count
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import anyio
import msgspec
from anyio import from_thread
from anyio.lowlevel import EventLoopToken, checkpoint, current_token

from outrider._threads import start_thread
from outrider.errors import (
    ConnectionLost,
    LaunchError,
    LimitReached,
    OutriderError,
    TurnInterrupted,
    UsageError,
)
from outrider.fleet._budget.account import KINDS, Account, Kind, Left, Spent
from outrider.fleet._resilient.retry import Clock
from outrider.options._validators import any_text, function, invalid_value, seconds, whole
from outrider.session import Result, Session, SessionState, background, observe
from outrider.wire import (
    AssistantMessage,
    ConversationResetMessage,
    ResultMessage,
    StreamEvent,
    TaskNotificationMessage,
    TaskProgressMessage,
)
from outrider.wire._blocks import TOOL_CALLS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from outrider.session import Observed
    from outrider.wire import Message


log = logging.getLogger("outrider.fleet")

_ANSWER_SECONDS: Final = 1.0
"""How long the agent may take to answer that it will stop something. It takes milliseconds."""

_REPEAT_SECONDS: Final = 0.25
"""How long after that it is asked again."""

_TELLING: Final = (AssistantMessage, ResultMessage, ConversationResetMessage)
"""What tells of usage, but for stream events, of which few do."""


class _Calls:
    """Counts tool calls, each once: those of subagents are in their messages, or only in a number of theirs.

    The agent does not pass on all messages of subagents, and none of those that subagents start.
    """

    def __init__(self) -> None:
        self._seen: dict[str | None, set[str]] = {}
        """By the call that started the subagent, or None; each by its id."""
        self._told: dict[str | None, int] = {}
        """The same, as numbers."""

    def take(self, message: Message) -> bool:
        """Whether there may be more of them now."""
        if isinstance(message, AssistantMessage):
            calls = {block.id for block in message.content if isinstance(block, TOOL_CALLS)}
            self._seen.setdefault(message.parent_tool_use_id, set()).update(calls)
            return bool(calls)
        if isinstance(message, TaskProgressMessage | TaskNotificationMessage) and message.usage:
            caller = message.tool_use_id or message.task_id
            told: object = message.usage.get("tool_uses")
            # It comes as the agent has written it.
            if isinstance(told, int):  # pyright: ignore[reportUnnecessaryIsInstance]
                self._told[caller] = max(told, self._told.get(caller, 0))
            return True
        return False

    @property
    def count(self) -> int:
        """All of them."""
        callers = self._seen.keys() | self._told.keys()
        return sum(max(len(self._seen.get(each, ())), self._told.get(each, 0)) for each in callers)


class BudgetWatch:
    """Looks at a session for a budget, as long as it is entered.

    A task of no task of the user's keeps the clock and stops the session: whatever becomes of who opened it,
    what is too much is stopped. It does not keep the session.
    """

    def __init__(self, budget: Budget, session: Session[Any]) -> None:
        """Made by `Budget.watching`."""
        self._budget = budget
        self._account = budget.account
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
            raise UsageError(
                "A watch is entered once. Call `budget.watching(session)` for each `async with`."
            )
        self._loop = current_token()
        self._account.join(self, session)
        try:
            self._observed = observe(session, self)
            self._counted = Spent.of(self._observed.usage)
            self._account.begin()
            await (await background()).start(self._guard, name="outrider budget")
        except BaseException:
            self._finish()
            raise

    async def __aexit__(self, *_: object) -> None:
        try:
            # What is to be stopped has stopped when this is left.
            if (past := self._account.past()) is not None:
                await self._stop(*past)
        finally:
            self._finish()

    def _finish(self) -> None:
        if self._observed is not None:
            self._observed.stop()
        self._account.leave(self, self._session())
        self.ended()

    # What the session tells, on its event loop.

    def begins(self) -> None:
        """Raises `LimitReached` if nothing is left."""
        session = self._session()
        self._budget.check(session_id=None if session is None else session.id)

    def received(self, messages: Sequence[Message]) -> None:
        """Charge what they tell of."""
        observed = self._observed
        is_told = False
        for message in messages:
            if isinstance(message, StreamEvent):
                # Thousands come between two that tell of usage; to look into each would cost more than all
                # else here.
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
                # Of a budget that was written elsewhere: the session is not to blame for it.
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
                log.debug("the event loop ended before a session that was to stop: %s", error)

        # In a thread, because two event loops that wait for each other would do so for ever.
        try:
            start_thread(call, name="outrider-budget")
        except LaunchError as error:
            # Whatever is said next makes it look.
            self._is_waking = False
            log.warning("a session that is to stop goes on for now: %s", error)

    def _look_again(self) -> None:
        self._is_waking = False
        self._news.set()

    # Stopping.

    async def _guard(self) -> None:
        while not self._is_over:
            self._news = anyio.Event()
            self._account.warn()
            past = self._account.past()
            if past is not None:
                await self._stop(*past)
            with anyio.move_on_after(self._account.next_mark):
                await self._news.wait()

    async def _stop(self, account: Account, kind: Kind) -> None:
        """Stop all that goes on: by asking, and then with the agent."""
        grace = self._budget.grace
        async with self._stopping:
            session = self._session()
            if session is None or self._observed is None or self._is_over or self._observed.is_closed:
                return
            with anyio.move_on_after(grace):
                await self._quiet(session, self._observed, account, kind)
                return
            # Who has left it may use the session for something else.
            if not self._is_over:
                log.warning(
                    "a session did not stop within %g s when its budget was spent: it is closed", grace
                )
                await session.close()

    async def _quiet(self, session: Session[Any], observed: Observed, account: Account, kind: Kind) -> None:
        """Stop turns, tasks, and what the agent does on its own account, until nothing goes on."""

        def failure(messages: Sequence[object], session_id: str | None) -> LimitReached:
            return account.failure(kind, messages, session_id)

        is_idle = False
        while not is_idle:
            has_turns = observed.end_turns(failure, self._budget.grace) > 0
            # What cannot be asked, or does not answer, goes on, and is ended with the session.
            for task in session.tasks:
                with suppress(OutriderError):
                    await session.stop_task(task.id, timeout=_ANSWER_SECONDS)
            if not has_turns and session.state is SessionState.BUSY:
                # It tells the model that a task has ended.
                with suppress(OutriderError):
                    await session.interrupt(timeout=_ANSWER_SECONDS)
            with anyio.move_on_after(_REPEAT_SECONDS):
                await session.wait_idle()
                is_idle = True


def _is_running(loop: EventLoopToken | None) -> bool:
    try:
        return current_token() == loop
    except Exception:  # noqa: BLE001 - each kind of loop has an error of its own for a thread without one
        return False


T = TypeVar("T")


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
        limits = Left(
            None if usd is None else _amount("`usd`", usd),
            None if tokens is None else _count("`tokens`", tokens),
            None if tool_calls is None else _count("`tool_calls`", tool_calls),
            None if wall is None else seconds("`wall`", wall),
        )
        if parent is not None and not isinstance(parent, Budget):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise invalid_value("`parent`", "a `Budget`", parent)
        if on_warn is not None:
            function("`on_warn`", on_warn)
        self.parent = parent
        self.on_warn = on_warn
        self.grace = seconds("`grace`", grace)
        self.name = any_text("`name`", name)
        this = weakref.ref(self)

        def warn(kind: Kind, spent: float, limit: float) -> None:
            if (budget := this()) is not None:
                budget._warn(BudgetWarning(budget, kind, spent, limit))

        self.account: Account = Account(
            limits,
            None if parent is None else parent.account,
            warn_at=_share("`warn_at`", warn_at),
            warn=warn,
            name=self.name,
        )
        """The figures, for what watches sessions."""

    def __repr__(self) -> str:
        spent = self.spent
        parts = [f"{getattr(spent, kind):g} of {limit:g} {kind}" for kind, limit in self.limits.items()]
        return f"<Budget {', '.join([*filter(None, [self.name]), *(parts or ['no limit'])])}>"

    # How it stands.

    @property
    def limits(self) -> Left:
        """What may be spent in all, as far as this budget itself limits it."""
        return self.account.limits

    @property
    def spent(self) -> Spent:
        """What is spent so far."""
        return self.account.spent

    @property
    def left(self) -> Left:
        """What may still be spent, as far as this budget and its parents limit it; never below 0."""
        return self.account.left

    @property
    def exceeded(self) -> Kind | None:
        """Of what more is spent than may be, by this budget or by a parent; None if all is well."""
        past = self.account.past()
        return None if past is None else past[1]

    def check(self, *, result: Result[object] | None = None, session_id: str | None = None) -> None:
        """Raises `LimitReached` if nothing is left of something, here or in a parent.

        Its `kind` is `budget.usd`, `budget.tokens`, `budget.tool_calls` or `budget.wall`; its `result` has
        the messages of the one that is given, or none.
        """
        self.account.begin()
        if (found := self.account.spent_up()) is not None:
            account, kind = found
            raise _with_result(account.failure(kind, session_id=session_id), result)

    # Spending.

    def charge(self, spent: Spent) -> None:
        """Add to what is spent, here and in the parents. Sessions that are watched stop if it is too much.

        Less than 0 takes back what was charged before. May be called in any thread; raises `OptionsError` for
        what is no amount.
        """
        self.account.add(_checked(spent))

    def watching(self, session: Session[T]) -> AbstractAsyncContextManager[None]:
        """Charge what a session spends, subagents included, and stop it when that is too much.

            async with budget.watching(session): ...

        Tokens and tool calls count with each message, money with each result, time by the clock. Past a
        limit, the turns that run are interrupted, and tasks in the background are stopped; if something still
        goes on after `grace` seconds, the session is closed. Turns that are cut off by it fail with
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
        self.account.set(_checked(spent))

    def _warn(self, warning: BudgetWarning) -> None:
        log.info("%s", warning)
        if self.on_warn is not None:
            try:
                self.on_warn(warning)
            except Exception:
                # Who spends need not be who wrote it, and has to go on.
                log.exception("`on_warn` failed: %s", warning)


def limit_reached(budget: Budget | None, ended: Result[T] | OutriderError) -> LimitReached | None:
    """The end of a turn as `LimitReached`, if a budget is why it ended; else None.

    `ended` is what it came to: its result, or what it failed with. The partial result is in the error.
    """
    error = ended.error if isinstance(ended, Result) else ended
    if isinstance(error, LimitReached) and error.kind.startswith("budget."):
        return error
    if budget is None or not isinstance(error, TurnInterrupted | ConnectionLost):
        return None
    past = budget.account.past()
    if past is None:
        return None
    account, kind = past
    found: object = ended if isinstance(ended, Result) else error.result
    partial = cast("Result[object]", found) if isinstance(found, Result) else None
    messages = getattr(error, "messages", ()) if partial is None else partial.messages
    failure = account.failure(kind, messages, error.session_id)
    failure.__cause__ = error
    return _with_result(failure, partial)


def _with_result(error: LimitReached, partial: Result[object] | None) -> LimitReached:
    """Each has the other, as those of turns have."""
    result = Result[object](session_id=error.session_id) if partial is None else partial
    error.session_id = error.session_id or result.session_id
    error.result = msgspec.structs.replace(result, error=error)
    return error


def _checked(spent: Spent) -> Spent:
    if not isinstance(spent, Spent):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise invalid_value(
            "`spent`", "a `Spent`", spent, "`Spent.of(result.usage)` is what a turn has used."
        )
    for kind in KINDS:
        value: object = getattr(spent, kind)
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
            raise invalid_value(f"`{kind}`", "a finite number", value)
    return spent


def _amount(place: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not (isfinite(value) and value >= 0):
        raise invalid_value(place, "a finite number, 0 or more", value, "None stands for no limit.")
    return value


def _share(place: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise invalid_value(place, "a share: more than 0, and 1 at the most", value)
    return float(value)


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
        """When it opens: in Unix seconds, and by time that goes on evenly, for a clock may be put back."""
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
        """Wait until it is open, and then for one's turn: those that waited go on one after another.

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
