"""The supervisor: one thread that runs the shutdown of all children of this process, come what may.

The thread is there while a child is. It drains stderr, notices exits, and takes the next step of each child
for which something has happened. Event loops only wait for it, so no cancellation, no dead loop and no
garbage collection can leave a child behind. Does not know what the steps are.
"""

from __future__ import annotations

import atexit
import heapq
import itertools
import logging
import math
import os
import secrets
import select
import time
from collections import deque
from threading import Lock, Thread
from typing import TYPE_CHECKING, Final

from outrider._threads import no_thread
from outrider.transports._process.child import POLL_SECONDS
from outrider.transports._process.processes import TAG_BITS, Tree
from outrider.transports._process.wakeup import Poller, WakeupFd
from outrider.transports._process.watchdog import Watchdog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from outrider.transports._process.child import Child

log = logging.getLogger("outrider.process")

_HOST_BITS: Final = 40
"""Of a tag, for the host."""
_LONGEST_WAIT: Final = 86400.0
"""The system takes no number of milliseconds above 2**31, and nobody minds a look at the pipes each day."""
_SEARCH_SHARE: Final = 20
"""After a search the next one has to wait for so many times as long as it took: children that end at the same
moment share it."""
_LONGEST_PAUSE: Final = 0.05
"""But no longer than this, in seconds."""


class Supervisor:
    """All children of this process. There is one for each process: a fork starts with an empty one."""

    def __init__(self) -> None:
        self.id = secrets.token_hex(8)
        """In the *name* of the variable that marks children, so that hosts inside hosts add theirs."""
        tag = secrets.randbits(_HOST_BITS) | 1
        self._tag = tag << TAG_BITS
        self._numbers: Iterator[int] = itertools.count(1)
        self._lock = Lock()
        self._children: dict[int, Child] = {}
        self._thread: Thread | None = None
        self.tree: Final = Tree(self.id, tag)
        self.watchdog: Final = Watchdog(self.id, tag, self.wake)
        self._poller: Poller | None = None
        self._wakeup: WakeupFd | None = None
        self._woken: deque[int] = deque()
        """Numbers, which keep nobody from being garbage collected."""
        self._is_woken = False
        self._unannounced: set[Child] = set()
        """Those whose exit has to be looked for, on a system without pidfd."""
        # All that follows is the thread's.
        self._by_descriptor: dict[int, Child] = {}
        self._timers: list[tuple[float, int]] = []
        """A heap of times, each with a key of `_waiting`."""
        self._timer_ids: Iterator[int] = itertools.count()
        self._waiting: dict[int, Child] = {}
        """Who waits for a time; one that does not any more is not here, and its time means nothing."""
        self._searches: dict[Child, tuple[int, ...]] = {}
        self._search_at = 0.0

    def next_number(self) -> int:
        return next(self._numbers)

    def marker(self, number: int) -> tuple[str, str]:
        """Name and value of the variable that marks the child of this number."""
        return f"OUTRIDER_{self.id}", str(number)

    def tag(self, number: int) -> int:
        """What marks the child of this number where it has lost its environment; see `put_tag`."""
        return self._tag | number & (1 << TAG_BITS) - 1

    def children(self) -> list[Child]:
        """Those that are there, the oldest first."""
        with self._lock:
            return list(self._children.values())

    def open(self) -> None:
        """Open what the thread needs. Raises `OSError`."""
        with self._lock:
            if self._poller is None or self._wakeup is None:
                self._wakeup = WakeupFd()
                self._poller = Poller()

    def take(self, child: Child, folder: str | None) -> None:
        """Take care of a child until it has ended. Raises `LaunchError` if there can be no thread, and the
        child is killed.

        The watchdog removes the private `folder` if this process is killed.
        """
        # First, because the thread takes it back at the end, and that may come at once.
        self.watchdog.watch(child.number, child.pid, child.leader.started, folder)
        # Up to the first wait, which has no end: the thread need not be woken for that.
        next(child.steps)
        failure: RuntimeError | None = None
        with self._lock:
            self._children[child.number] = child
            self.tree.add(child.leader)
            if self._thread is None:
                self._thread = Thread(target=self._run, name="outrider-supervisor", daemon=True)
                try:
                    self._thread.start()
                except RuntimeError as error:
                    failure = error
        if failure is not None:
            child.end(kill=True)
            self._run()
            raise no_thread(failure) from failure
        self._register(child)
        if not child.announces_its_exit:
            self._unannounced.add(child)
            self.wake()

    def wake(self, child: Child | None = None) -> None:
        """Have the next step of a child taken. Never blocks; the garbage collector may call it at any
        moment."""
        if child is not None:
            self._woken.append(child.number)
        if not self._is_woken and self._wakeup is not None:
            self._is_woken = True
            self._wakeup.notify()

    def request_search(self, child: Child, numbers: tuple[int, ...]) -> None:
        """Have what belongs to a child found and signalled; the next step has the answer in `found`."""
        self._searches[child] = numbers

    def run_aside(self, child: Child, work: Callable[[], object]) -> Callable[[], bool]:
        """Do what may take its time in a thread of its own, then take the next step of the child. Gives a
        function that says whether it is done."""
        done: list[bool] = []

        def run() -> None:
            try:
                work()
            finally:
                done.append(True)
                self.wake(child)

        try:
            Thread(target=run, name=f"outrider-cleanup-{child.pid}", daemon=True).start()
        except RuntimeError:  # the interpreter is ending, or there can be no more threads
            run()
        return lambda: bool(done)

    def end_all(self) -> None:
        """End every child and wait for it: the interpreter is about to go."""
        children = self.children()
        for child in children:
            child.end()
        for child in children:
            child.wait_blocking()
        self.watchdog.stop()

    def forget(self) -> None:
        """In a forked process: the children are the other one's. No lock is taken, it may have been held."""
        for child in self._children.values():
            child.forget()
        self.watchdog.forget()

    # The thread.

    def _run(self) -> None:
        while self._has_children():
            try:
                self._run_once()
            except BaseException:
                log.exception("the supervisor failed, and goes on")
                # Whatever it is must not take all of the processor.
                time.sleep(POLL_SECONDS)

    def _has_children(self) -> bool:
        with self._lock:
            if not self._children:
                self._thread = None
            return bool(self._children)

    def _run_once(self) -> None:
        """Wait until something happens, and take the next step of all children for which it did."""
        assert self._poller is not None
        assert self._wakeup is not None
        self._poller.register(self._wakeup.fileno(), select.POLLIN)
        watchdog_pipe = self.watchdog.register(self._poller)
        descriptors = self._poller.wait(self._time_left())
        due: dict[Child, set[int]] = {}
        for number in descriptors:
            if (child := self._by_descriptor.pop(number, None)) is not None:
                due.setdefault(child, set()).add(number)
        if self._wakeup.fileno() in descriptors:
            self._wakeup.clear()
        # In this order: who adds a child after the last look sees that it has to notify.
        self._is_woken = False
        while self._woken:
            if (woken := self._children.get(self._woken.popleft())) is not None:
                due.setdefault(woken, set())
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            if (waiting := self._waiting.pop(heapq.heappop(self._timers)[1], None)) is not None:
                due.setdefault(waiting, set())
        for child in tuple(self._unannounced):
            if child.notice_exit():
                self._unannounced.discard(child)
                due.setdefault(child, set())
        for child, numbers in due.items():
            self._step(child, numbers)
        if watchdog_pipe in descriptors or self.watchdog.due_in() == 0:
            self.watchdog.maintain()
        if self._searches and time.monotonic() >= self._search_at:
            self._search()

    def _time_left(self) -> float:
        """How long to wait at most, in seconds."""
        now = time.monotonic()
        times = [_LONGEST_WAIT]
        if self._timers:
            times.append(self._timers[0][0] - now)
        if self._searches:
            times.append(self._search_at - now)
        if (due := self.watchdog.due_in()) is not None:
            times.append(due)
        if self._unannounced:
            times.append(POLL_SECONDS)
        return max(0.0, min(times))

    def _step(self, child: Child, ready: set[int]) -> None:
        """Take the next step of a child. Whatever goes wrong is that child's alone."""
        if self._children.get(child.number) is not child:
            return
        try:
            try:
                child.serve(ready)
                deadline = next(child.steps)
                self._register(child)
            except StopIteration:
                self._release(child)
                return
            except BaseException as error:  # noqa: BLE001 - the steps take it from here
                deadline = child.steps.throw(error)
        except StopIteration:
            self._release(child)
        except BaseException:
            log.exception("the supervisor gives up process %d", child.pid)
            self._release(child)
        else:
            self._set_timer(child, deadline)

    def _set_timer(self, child: Child, deadline: float) -> None:
        self._waiting.pop(child.timer, None)
        if deadline < math.inf:
            child.timer = next(self._timer_ids)
            self._waiting[child.timer] = child
            heapq.heappush(self._timers, (deadline, child.timer))
        if len(self._timers) > 64 + 2 * len(self._waiting):
            # Most are of waits that were over long before their time.
            self._timers = [timer for timer in self._timers if timer[1] in self._waiting]
            heapq.heapify(self._timers)

    def _register(self, child: Child) -> None:
        """Have the poller report the descriptors of a child, each once."""
        assert self._poller is not None
        for number, events in child.descriptors():
            if self._by_descriptor.get(number) is not child:
                self._by_descriptor[number] = child
                child.registered.add(number)
                self._poller.register(number, events)

    def _release(self, child: Child) -> None:
        self._waiting.pop(child.timer, None)
        for number in child.registered:
            if self._by_descriptor.get(number) is child:
                del self._by_descriptor[number]
        self._searches.pop(child, None)
        self._unannounced.discard(child)
        self.tree.remove(child.leader)
        try:
            self.watchdog.release(child.number)
        finally:
            # Whatever happens, nobody waits for this in vain.
            with self._lock:
                self._children.pop(child.number, None)
            child.release()

    def _search(self) -> None:
        """Look at the processes of the machine once, for all children that have asked for it."""
        searches, self._searches = self._searches, {}
        numbers = {child.number: signals for child, signals in searches.items()}
        counts = dict.fromkeys(numbers, 0)
        began = time.monotonic()
        try:
            for number, pid in self.tree.find(numbers):
                # Each as soon as it is found: one that forks on and on does not get away.
                counts[number] += 1
                if numbers[number]:
                    self.tree.signal(pid, *numbers[number])
        except BaseException as error:
            if not isinstance(error, OSError):
                log.exception("the search for processes failed")
            # It is unclear whether these are all, or whose the others are.
            counts = {number: count + 1 for number, count in counts.items()}
        ended = time.monotonic()
        self._search_at = ended + min(_LONGEST_PAUSE, (ended - began) * _SEARCH_SHARE)
        for child in searches:
            child.found = counts[child.number]
            self._step(child, set())


_supervisor = Supervisor()


def supervisor() -> Supervisor:
    """That of this process."""
    return _supervisor


def _start_anew() -> None:
    global _supervisor
    # First: whatever happens, nothing of this process may carry the name of the other.
    forgotten, _supervisor = _supervisor, Supervisor()
    forgotten.forget()


def _end_all() -> None:
    _supervisor.end_all()


# Threads cannot be started any more when these run; the supervisor's is there already.
atexit.register(_end_all)
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_start_anew)
