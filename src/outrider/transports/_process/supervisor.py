"""The supervisor: one thread that runs the shutdown of all children of this process, in all circumstances.

The thread is there while a child is. It drains stderr, notices exits, and takes the next step of each child
for which something has happened. Event loops only wait for it, so no cancellation, no dead loop and no
garbage collection can leave a child behind. Does not know what the steps are.

`kill -9` gives no one a chance to clean up, and a plain SIGTERM skips `atexit`: then the watchdog,
`watchdog_main.py`, ends what is left. Where there is no interpreter to start it with, children only see the
end of their input. One that dies is started again: the supervisor polls its pipe.
"""

from __future__ import annotations

import atexit
import heapq
import itertools
import math
import os
import select
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING, Final

from outrider._threads import no_thread
from outrider.transports._process.child import POLL_SECONDS
from outrider.transports._process.processes import TAG_BITS, PsutilTable, Tree, processes
from outrider.transports._process.wakeup import Poller, WakeupFd
from outrider.transports._process.wakeup import process_log as log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from outrider.transports._process.child import Child


_PROGRAM: Final = Path(__file__).with_name("watchdog_main.py")
_AGAIN_SECONDS: Final = 1.0
"""The shortest time between two starts: what ended one may end the next as well."""
_BEHIND_LIMIT: Final = 1024 * 1024
"""A watchdog that is this many bytes behind is stopped or hangs, and is replaced."""


class Watchdog:
    """Starts the watchdog, a small process, with the first child, and keeps it informed of all children."""

    def __init__(self, host_id: str, tag: int = 0, wake: Callable[[], object] = lambda: None) -> None:
        """`wake` is called when the supervisor has to `register` it again."""
        self._host_id = host_id
        self._tag = tag
        self._wake = wake
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe = self._reading = -1
        self._known: dict[int, bytes] = {}
        self._unsent = b""
        """Notes that the pipe has not taken yet."""
        self._is_wanted = self._is_impossible = False
        self._not_before = 0.0
        """When another may be started, if this one dies."""

    @property
    def pid(self) -> int | None:
        """None if it does not run."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Make sure that it runs, before a child is started: the marker alone is enough to find it."""
        with self._lock:
            self._is_wanted = True
            if self._process is None or self._process.poll() is not None:
                self._start()

    def expect(self, number: int, folder: str) -> None:
        """Note that a child is about to be started, with this folder."""
        self.watch(number, 0, 0, folder)

    # For the supervisor, which polls anyway.

    def register(self, poller: Poller) -> int:
        """Register it with a poller, for `maintain`; returns the descriptor, or -1."""
        with self._lock:
            if self._pipe >= 0:
                # A poller always reports that the reading end was closed.
                poller.register(self._pipe, select.POLLOUT if self._unsent else 0)
            return self._pipe

    def due_in(self) -> float | None:
        """In how many seconds to call `maintain` in any case; None: not at all."""
        if self._pipe >= 0 or not self._is_wanted or self._is_impossible:
            return None
        return max(self._not_before - time.monotonic(), 0)

    def maintain(self) -> None:
        """Send the waiting notes; if it has died, start another and send all notes."""
        with self._lock:
            if not self._is_wanted or self._is_impossible:
                return
            if self._process is not None and self._process.poll() is None:
                self._send()
            elif time.monotonic() >= self._not_before:
                if self._process is not None:
                    log.warning("the watchdog has died; another is started")
                self._start()
            else:
                self._close_pipe()

    def watch(self, number: int, group: int, started: int, folder: str | None) -> None:
        """Note that a child has started. The marker finds it; this helps if it lost its environment."""
        note = b"%d %d %d %s\0" % (number, group, started, os.fsencode(folder or ""))
        with self._lock:
            self._known[number] = note
            self._queue(note)

    def release(self, number: int) -> None:
        """Note that a child has ended, and all that was made for it is gone."""
        with self._lock:
            if self._known.pop(number, None) is not None:
                self._queue(b"%d\0" % number)

    def stop(self) -> None:
        """Let it end: nothing is left to watch."""
        with self._lock:
            process, self._process = self._process, None
            self._is_wanted = False
            if process is not None:
                self._close_pipe()
                # It exits at the end of its input. Nothing waits for it, so `Popen` must not warn.
                process.returncode = process.poll() or 0

    def forget(self) -> None:
        """Forget it in a forked process: it belongs to the parent."""
        if self._process is not None:
            self._process.returncode = 0
        self._process = None
        self._is_wanted = False
        self._close_pipe()
        if self._reading >= 0:
            os.close(self._reading)

    def _start(self) -> None:
        if self._is_impossible:
            return
        if not sys.executable or getattr(sys, "frozen", False) or not _PROGRAM.is_file():
            self._is_impossible = True
            log.warning(
                "no Python to start a watchdog with: if this process is killed, agents end by themselves only"
            )
            return
        self._close_pipe()
        self._not_before = time.monotonic() + _AGAIN_SECONDS
        table = processes()
        psutil = table.path if isinstance(table, PsutilTable) else ""
        arguments = [self._host_id, str(os.getpid()), str(self._tag), psutil]
        command = [sys.executable, "-I", "-S", str(_PROGRAM), *arguments]
        try:
            self._reading, self._pipe = os.pipe()
            os.set_blocking(self._pipe, False)
            self._process = subprocess.Popen(
                command,
                stdin=self._reading,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env=_folder_variables(),
                start_new_session=True,
            )
        except OSError as error:
            log.warning("the watchdog cannot be started: %s", error)
            self._close_pipe()
            return
        finally:
            if self._reading >= 0:
                os.close(self._reading)
                self._reading = -1
        self._unsent = b"".join(self._known.values())
        self._send()
        self._wake()

    def _queue(self, note: bytes) -> None:
        if self._pipe < 0:
            return
        self._unsent += note
        if len(self._unsent) > _BEHIND_LIMIT + sum(map(len, self._known.values())) and self._process:
            self._process.kill()
        self._send()
        if self._unsent:
            self._wake()

    def _send(self) -> None:
        if self._pipe < 0 or not self._unsent:
            return
        try:
            self._unsent = self._unsent[os.write(self._pipe, self._unsent) :]
        except BlockingIOError:  # it is behind; the supervisor sends the rest
            pass
        except OSError:  # it is gone, as the supervisor notices
            self._unsent = b""

    def _close_pipe(self) -> None:
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1


def _folder_variables() -> dict[str, str]:
    """The variables that say where private folders are made."""
    found = {name: os.environ[name] for name in ("TMPDIR", "TEMP", "TMP") if name in os.environ}
    # The program may have chosen another; the module is large, and is not loaded for this.
    chosen = getattr(sys.modules.get("tempfile"), "tempdir", None)
    return found if chosen is None else {"TMPDIR": os.fsdecode(chosen)}


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
