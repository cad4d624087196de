"""The host's side of the watchdog: a small process that ends what is left when the host is killed.

`kill -9` gives no one a chance to clean up, and a plain SIGTERM skips `atexit`. Does not end anything itself:
`watchdog_main.py` does. Where there is no interpreter to start it with, children only see the end of their
input. One that dies is started again: the supervisor polls its pipe.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final

from outrider.transports._process.processes import PsutilTable, processes
from outrider.transports._process.wakeup import process_log as log

if TYPE_CHECKING:
    from collections.abc import Callable

    from outrider.transports._process.wakeup import Poller


_PROGRAM: Final = Path(__file__).with_name("watchdog_main.py")
_AGAIN_SECONDS: Final = 1.0
"""The shortest time between two starts: what ended one may end the next as well."""
_BEHIND_LIMIT: Final = 1024 * 1024
"""A watchdog that is this many bytes behind is stopped or hangs, and is replaced."""


class Watchdog:
    """Starts the watchdog with the first child, and keeps it informed of all children."""

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
