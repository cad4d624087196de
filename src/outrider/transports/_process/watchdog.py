"""The host's side of the watchdog: a small process that ends what is left when the host is killed.

`kill -9` gives no one a chance to clean up, and a plain SIGTERM skips `atexit`. Does not end anything itself:
`watchdog_main.py` does. Where there is no interpreter to start it with, children only see the end of their
input. One that dies is started again: the supervisor polls its pipe.
"""

from __future__ import annotations

import json
import logging
import os
import select
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final

from outrider.transports._process.processes import PsutilTable, processes

if TYPE_CHECKING:
    from collections.abc import Callable

    from outrider.transports._process.wakeup import Poller


log = logging.getLogger("outrider.process")

_PROGRAM: Final = Path(__file__).with_name("watchdog_main.py")
_AGAIN_SECONDS: Final = 1.0
"""So long after one was started at the earliest, the next is: whatever ends it may well end the next."""
_BEHIND_LIMIT: Final = 1024 * 1024
"""A watchdog that is behind by so many bytes is stopped, or hangs, and is replaced."""


class Watchdog:
    """Starts the watchdog with the first child and keeps it informed of which ones there are."""

    def __init__(self, host_id: str, tag: int = 0, wake: Callable[[], object] = lambda: None) -> None:
        """`wake` is called when the supervisor has to `register` it anew."""
        self._host_id = host_id
        self._tag = tag
        self._wake = wake
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe = self._reading = -1
        self._known: dict[int, bytes] = {}
        self._unsent = b""
        """What the pipe has not taken yet."""
        self._is_wanted = self._is_impossible = False
        self._not_before = 0.0
        """When another may be started, if this one dies."""

    @property
    def pid(self) -> int | None:
        """None if it does not run."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Make sure that it runs. To be called before a child is started: it finds what is ours by the marker
        alone."""
        with self._lock:
            self._is_wanted = True
            if self._process is None or self._process.poll() is not None:
                self._start()

    def expect(self, number: int, folder: str) -> None:
        """A child is about to be started, and this folder is about to be made for it."""
        self._note(number, {"group": None, "started": None, "folder": folder})

    # For the supervisor, which polls anyway.

    def register(self, poller: Poller) -> int:
        """Have a poller say when to call `maintain`; gives the number that it waits for, or -1."""
        with self._lock:
            if self._pipe >= 0:
                # That nobody reads from it any more is reported whether it is asked for or not.
                poller.register(self._pipe, select.POLLOUT if self._unsent else 0)
            return self._pipe

    def due_in(self) -> float | None:
        """In how many seconds to call `maintain`, whatever the poll says; None: not at all."""
        if self._pipe >= 0 or not self._is_wanted or self._is_impossible:
            return None
        return max(self._not_before - time.monotonic(), 0)

    def maintain(self) -> None:
        """Send what it has not been sent yet; if it has died, start another, which is sent everything."""
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
        """A child has started. The marker finds it; this helps where it lost its environment."""
        self._note(number, {"group": group, "started": started, "folder": folder})

    def _note(self, number: int, child: dict[str, object]) -> None:
        facts = {"do": "watch", "number": number, **child}
        line = json.dumps(facts).encode() + b"\n"
        with self._lock:
            self._known[number] = line
            self._queue(line)

    def release(self, number: int) -> None:
        """A child has ended, and all that was made for it is gone."""
        with self._lock:
            if self._known.pop(number, None) is not None:
                self._queue(json.dumps({"do": "release", "number": number}).encode() + b"\n")

    def stop(self) -> None:
        """Nothing is left to watch: let it end."""
        with self._lock:
            process, self._process = self._process, None
            self._is_wanted = False
            if process is not None:
                self._close_pipe()
                # It sees the end of its input; nobody waits for it, and a reaped child needs no warning.
                process.returncode = process.poll() or 0

    def forget(self) -> None:
        """In a forked process: it is the other one's."""
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
        with suppress(OSError):  # there may be no folder for such things at all
            arguments.append(tempfile.gettempdir())
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
                env={},
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

    def _queue(self, line: bytes) -> None:
        if self._pipe < 0:
            return
        self._unsent += line
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
