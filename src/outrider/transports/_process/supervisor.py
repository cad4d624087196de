"""The supervisor: one thread that runs the shutdown of all children of this process, in all circumstances.

The thread is there while a child is. It drains stderr, notices exits, and takes the next step of each child
for which something has happened. Event loops only wait for it, so no cancellation, no dead loop and no
garbage collection can leave a child behind. Does not know what the steps are.
"""

from __future__ import annotations

import atexit
import heapq
import itertools
import math
import os
import select
import time
from collections import deque
from threading import Lock, Thread
from typing import TYPE_CHECKING, Final

from outrider._threads import no_thread
from outrider.transports._process.child import POLL_SECONDS
from outrider.transports._process.processes import TAG_BITS, Tree
from outrider.transports._process.wakeup import Poller, WakeupFd
from outrider.transports._process.wakeup import process_log as log
from outrider.transports._process.watchdog import Watchdog

if TYPE_CHECKING:
    from collections.abc import Iterator

    from outrider.transports._process.child import Child


_HOST_BYTES: Final = 5
"""Of a tag, for the host."""
_LONGEST_WAIT: Final = 86400.0
"""The system accepts no more than 2**31 milliseconds; waking up once a day costs nothing."""
_LOG_SECONDS: Final = 1.0
"""For the log handlers to get the last records when the interpreter exits."""
_SEARCH_SHARE: Final = 20
"""The pause after a search, as a multiple of its duration, so that children that end together share one."""
_LONGEST_PAUSE: Final = 0.05
"""The longest such pause, in seconds."""


class Supervisor:
    """All children of this process. There is one for each process: a fork starts with an empty one."""

    def __init__(self) -> None:
        self.id = os.urandom(8).hex()
        """In the *name* of the variable that marks children, so that hosts inside hosts add theirs."""
        tag = int.from_bytes(os.urandom(_HOST_BYTES)) | 1
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
        """The numbers of children to look at; numbers keep no child alive."""
        self._is_woken = False
        self._unannounced: set[Child] = set()
        """Children whose exit has to be polled, on a system without pidfd."""
        # Everything below is used by the thread alone.
        self._by_descriptor: dict[int, Child] = {}
        self._timers: list[tuple[float, int]] = []
        """A heap of times, each with a key of `_waiting`."""
        self._timer_ids: Iterator[int] = itertools.count()
        self._waiting: dict[int, Child] = {}
        """The children that wait for a time. A timer whose child is not here is void."""
        self._searches: dict[Child, tuple[int, ...]] = {}
        self._search_at = 0.0

    def next_number(self) -> int:
        return next(self._numbers)

    def marker(self, number: int) -> tuple[str, str]:
        """Name and value of the variable that marks the child of this number."""
        return f"OUTRIDER_{self.id}", str(number)

    def tag(self, number: int) -> int:
        """The tag of the child of this number, for processes without their environment; see `put_tag`."""
        return self._tag | number & (1 << TAG_BITS) - 1

    def children(self) -> list[Child]:
        """All children, the oldest first."""
        with self._lock:
            return list(self._children.values())

    def open(self) -> None:
        """Open what the thread needs. Raises `OSError`."""
        with self._lock:
            if self._poller is None or self._wakeup is None:
                self._wakeup = WakeupFd()
                self._poller = Poller()
                self._watch_wakeup()

    def take(self, child: Child, folder: str | None) -> None:
        """Supervise a child until it has ended. If no thread can be started, kills it and raises
        `LaunchError`.

        The watchdog removes the private `folder` if this process is killed.
        """
        # First: the thread releases it at the end, which may come at once.
        self.watchdog.watch(child.number, child.pid, child.leader.started, folder)
        # Up to the first wait, which has no deadline: the thread need not be woken for that.
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
            if failure is None:
                # Inside the lock: the thread may end the child, and close the rest, as soon as the first is
                # registered.
                self._register(child)
        if failure is not None:
            child.end(kill=True)
            self._run()
            raise no_thread(failure) from failure
        if not child.announces_its_exit:
            self._unannounced.add(child)
            self.wake()

    def wake(self, child: Child | None = None) -> None:
        """Wake the thread, to take the next step of a child. Never blocks; safe in the garbage collector."""
        if child is not None:
            self._woken.append(child.number)
        if not self._is_woken and self._wakeup is not None:
            self._is_woken = True
            self._wakeup.notify()

    def request_search(self, child: Child, numbers: tuple[int, ...]) -> None:
        """Find and signal the processes of a child. The next step has their number in `found`."""
        self._searches[child] = numbers

    def end_all(self) -> None:
        """End every child and wait for it, when the interpreter exits."""
        children = self.children()
        for child in children:
            child.end()
        for child in children:
            child.wait_blocking()
        self.watchdog.stop()
        log.thread.drain(_LOG_SECONDS)

    def forget(self) -> None:
        """Forget the children in a forked process, where the lock may be held by a missing thread."""
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
                # Events may be lost, so all children are checked. The pause keeps a repeated failure from
                # using all of the processor.
                self._woken.extend(tuple(self._children))
                self._watch_wakeup()
                time.sleep(POLL_SECONDS)

    def _watch_wakeup(self) -> None:
        if self._poller is not None and self._wakeup is not None:
            self._poller.register(self._wakeup.readable.number, select.POLLIN)

    def _has_children(self) -> bool:
        with self._lock:
            if not self._children:
                self._thread = None
            return bool(self._children)

    def _run_once(self) -> None:
        """Wait until something happens, and take the next step of all children for which it did."""
        assert self._poller is not None
        assert self._wakeup is not None
        watchdog_pipe = self.watchdog.register(self._poller)
        descriptors = self._poller.wait(self._time_left())
        due: dict[Child, set[int]] = {}
        for number in descriptors:
            if (child := self._by_descriptor.pop(number, None)) is not None:
                due.setdefault(child, set()).add(number)
        if self._wakeup.readable.number in descriptors:
            self._wakeup.clear()
            self._watch_wakeup()
        # In this order: a thread that adds a child after the last look sees that it has to notify.
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
        """Take the next step of a child. A failure affects that child alone."""
        with self._lock:
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
            # Most waits end long before their time.
            self._timers = [timer for timer in self._timers if timer[1] in self._waiting]
            heapq.heapify(self._timers)

    def _register(self, child: Child) -> None:
        """Register the descriptors of a child, each for one event."""
        assert self._poller is not None
        for number, events in child.descriptors():
            if number >= 0 and self._by_descriptor.get(number) is not child:
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
            # Always, so that nothing waits for ever.
            with self._lock:
                self._children.pop(child.number, None)
            child.release()

    def _search(self) -> None:
        """Search the processes of the machine once, for all children that asked for it."""
        searches, self._searches = self._searches, {}
        numbers = {child.number: signals for child, signals in searches.items()}
        counts = dict.fromkeys(numbers, 0)
        # CPU time: on a busy machine a search takes long because of other programs.
        began = time.thread_time()
        try:
            for number, pid in self.tree.find(numbers):
                # Each as soon as it is found: a process that keeps forking does not escape.
                counts[number] += 1
                if numbers[number]:
                    self.tree.signal(pid, *numbers[number])
        except BaseException as error:
            if not isinstance(error, OSError):
                log.exception("the search for processes failed")
            # There may be more, of any child.
            counts = {number: count + 1 for number, count in counts.items()}
        pause = min(_LONGEST_PAUSE, (time.thread_time() - began) * _SEARCH_SHARE)
        self._search_at = time.monotonic() + pause
        for child in searches:
            child.found = counts[child.number]
            self._step(child, set())


_supervisor = Supervisor()


def supervisor() -> Supervisor:
    """That of this process."""
    return _supervisor


def _start_anew() -> None:
    global _supervisor
    # First: nothing of this process may ever carry the name of the parent.
    forgotten, _supervisor = _supervisor, Supervisor()
    log.thread.forget()
    forgotten.forget()


def _end_all() -> None:
    _supervisor.end_all()


# No threads can be started any more when these run; the supervisor's already exists.
atexit.register(_end_all)
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_start_anew)
