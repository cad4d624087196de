"""Keeps a child where pipes can be polled: one thread drains its stderr, notices its exit, and ends it.

Does not read stdout while all is well: the event loop does.
"""

from __future__ import annotations

import errno
import logging
import os
import select
import signal
import sys
from typing import TYPE_CHECKING, Final

from outrider.transports._process.pipes import Input
from outrider.transports._process.supervisor import LOOK_SECONDS, Keeper
from outrider.transports._process.wakeup import Bell, Descriptor
from outrider.transports._process.watchdog import host

if sys.platform != "win32":
    from outrider.transports._process.pipes import Output
    from outrider.transports._process.tree import Tree

# Not for Windows: there, type checkers need not look further.
assert sys.platform != "win32"

if TYPE_CHECKING:
    from pathlib import Path

    from outrider.command import Command
    from outrider.transports._process.spawn import Spawned
    from outrider.transports._process.stderr import StderrLog
    from outrider.transports._process.supervisor import Patience

log = logging.getLogger("outrider.process")

_STDERR_LIMIT: Final = 1024 * 1024
"""So much is read after the exit at most: no pipe holds more, so the rest is not the child's."""


class PollingKeeper(Keeper):
    """Owns a child process, in one thread that polls."""

    def __init__(
        self,
        spawned: Spawned,
        command: Command,
        number: int,
        *,
        stderr: StderrLog,
        patience: Patience,
        folder: Path | None,
    ) -> None:
        super().__init__(spawned, command, number, stderr=stderr, patience=patience, folder=folder)
        self._bell = Bell()
        self.input = self._stdin = Input(spawned.stdin, self._bell.ring)
        self.output = self._stdout = Output(spawned.stdout)
        name, value = host().marker(number)
        self.tree: Final = Tree(self.pid, f"{name}={value}", host().tag(number))
        self._pidfd = _open_pidfd(self.pid)
        # Last, because it owns what whoever spawned closes if any of this fails.
        self._stderr = Descriptor(spawned.stderr)
        os.set_blocking(spawned.stderr, False)

    def start(self) -> None:
        folder = None if self._folder is None else str(self._folder)
        # First, because the thread takes it back at the end, and that may come at once.
        host().warden.watch(self.number, self.pid, self.tree.started, folder)
        super().start()

    def resident_bytes(self) -> int:
        return self.tree.resident_bytes()

    def _wake(self) -> None:
        self._bell.ring()

    def _ask(self) -> bool:
        log.debug("process %d goes on without input; SIGTERM", self.pid)
        self.tree.signal_group(signal.SIGTERM)
        # A stopped process gets its signals only when it goes on.
        self.tree.signal_group(signal.SIGCONT)
        return True

    def _ask_others(self) -> bool:
        if not self.tree.signal_others(signal.SIGTERM):
            return False
        self.tree.signal_others(signal.SIGCONT)
        return True

    def _has_others(self) -> bool:
        return self.tree.has_others()

    def _kill(self) -> bool:
        # After the exit of the child its group is signalled with the others, if its number is still its own:
        # an application that ignores SIGCHLD has no zombies to keep one.
        if not self._has_exited:
            self.tree.signal_group(signal.SIGKILL)
        return bool(self.tree.signal_others(signal.SIGKILL))

    def _drain(self) -> None:
        left = _STDERR_LIMIT
        while left > 0 and self._stderr.fileno() >= 0 and self._read_stderr():
            left -= 65536

    def _reap(self) -> None:
        """Last of all: until now the zombie has kept its number, and that of its group, for itself."""
        if not self._has_exited:
            log.error("process %d cannot be killed; it is left to the system", self.pid)
            self.process.returncode = 0
            return
        try:
            self.returncode = _exit_code(_wait_for(self.pid, self._pidfd))
        except ChildProcessError:  # somebody else in this process waits for any child
            log.warning("process %d was reaped by somebody else; its exit code is lost", self.pid)
        # Popen would try to wait for it again.
        self.process.returncode = self.returncode or 0
        self.tree.reap_orphans()

    def _clean_up(self) -> None:
        self._stderr.close()
        self._pidfd.close()
        super()._clean_up()

    def _serve_once(self, seconds: float | None) -> None:
        poll = select.poll()
        poll.register(self._bell.fileno(), select.POLLIN)
        if self._stderr.fileno() >= 0:
            poll.register(self._stderr.fileno(), select.POLLIN)
        if self._pidfd.fileno() >= 0 and not self._has_exited:
            poll.register(self._pidfd.fileno(), select.POLLIN)
        if self._stdin.has_more and (stdin := self._stdin.fileno()) >= 0:
            poll.register(stdin, select.POLLOUT)
        if self._stdout.is_handed_over and (stdout := self._stdout.fileno()) >= 0:
            poll.register(stdout, select.POLLIN)
        warden = host().warden
        pipe = warden.register(poll)
        if (due := warden.due_in()) is not None:
            seconds = due if seconds is None else min(seconds, due)
        if self._pidfd.fileno() < 0:  # a system without pidfd: the exit has to be looked for
            seconds = LOOK_SECONDS if seconds is None else min(seconds, LOOK_SECONDS)
        ready = {number for number, _ in poll.poll(None if seconds is None else seconds * 1000)}
        if pipe in ready or (pipe < 0 and warden.due_in() == 0):
            warden.tend()
        if self._bell.fileno() in ready:
            self._bell.clear()
        if self._stderr.fileno() in ready:
            self._read_stderr()
        self._stdin.pump()
        if self._stdout.is_handed_over:
            self._stdout.drain()
        if not self._has_exited:
            self._has_exited = (
                _has_exited(self.pid) if self._pidfd.fileno() < 0 else self._pidfd.fileno() in ready
            )

    def _read_stderr(self) -> bool:
        try:
            data = os.read(self._stderr.fileno(), 65536)
        except BlockingIOError:
            return False
        if data:
            self.stderr.feed(data)
        else:
            self._stderr.close()
        return bool(data)


def _open_pidfd(pid: int) -> Descriptor:
    try:
        return Descriptor(os.pidfd_open(pid) if hasattr(os, "pidfd_open") else -1)
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise
        return Descriptor(-1)


def _has_exited(pid: int) -> bool:
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def _wait_for(pid: int, pidfd: Descriptor) -> os.waitid_result | None:
    if pidfd.fileno() >= 0:
        return os.waitid(os.P_PIDFD, pidfd.fileno(), os.WEXITED)
    return os.waitid(os.P_PID, pid, os.WEXITED)


def _exit_code(result: os.waitid_result | None) -> int | None:
    if result is None:
        return None
    return result.si_status if result.si_code == os.CLD_EXITED else -result.si_status
