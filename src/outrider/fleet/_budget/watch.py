"""Charges what a session spends to a budget while it does, and stops the session when that is too much.

Does not know what is too much: the budget does.
"""

from __future__ import annotations

import logging
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import anyio
from anyio import from_thread
from anyio.lowlevel import EventLoopToken, current_token

from outrider._threads import start_thread
from outrider.errors import LaunchError, OutriderError, UsageError
from outrider.fleet._budget.account import Spent
from outrider.session import SessionState, background, observe
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
    from collections.abc import Sequence

    from outrider.errors import LimitReached
    from outrider.fleet._budget.account import Account, Kind
    from outrider.fleet._budget.budget import Budget
    from outrider.session import Observed, Session
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
