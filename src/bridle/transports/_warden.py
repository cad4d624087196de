"""The host's side of the warden: a small process that ends what is left when the host dies without a word.

`kill -9` gives no one a chance to clean up, and a plain SIGTERM skips `atexit`. Does not end anything itself:
`_warden_main.py` does. Where there is no interpreter to start it with, children are only told by the end of
their input.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Final

log = logging.getLogger("bridle.process")

_PROGRAM: Final = Path(__file__).with_name("_warden_main.py")


class Warden:
    """Starts the warden with the first child and tells it which ones there are."""

    def __init__(self, host_id: str) -> None:
        self._host_id = host_id
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe = -1
        self._known: dict[int, bytes] = {}
        self._is_impossible = False

    @property
    def pid(self) -> int | None:
        """None if it does not run."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Make sure that it runs. To be called before a child is started: the marker alone tells it what is
        ours."""
        if sys.platform != "win32":  # there, a job object ends what is left
            with self._lock:
                if self._process is None or self._process.poll() is not None:
                    self._start()

    def expect(self, number: int, folder: str) -> None:
        """A child is about to be started, and this folder is about to be made for it."""
        self._note(number, {"group": None, "started": None, "folder": folder})

    def watch(self, number: int, group: int, started: int, folder: str | None) -> None:
        """A child has started. The marker finds it; this helps where it lost its environment."""
        self._note(number, {"group": group, "started": started, "folder": folder})

    def _note(self, number: int, told: dict[str, object]) -> None:
        facts = {"do": "watch", "number": number, **told}
        line = json.dumps(facts).encode() + b"\n"
        with self._lock:
            self._known[number] = line
            self._tell(line)

    def release(self, number: int) -> None:
        """A child has ended, and all that was made for it is gone."""
        with self._lock:
            if self._known.pop(number, None) is not None:
                self._tell(json.dumps({"do": "release", "number": number}).encode() + b"\n")

    def dismiss(self) -> None:
        """Nothing is left to watch: let it go."""
        with self._lock:
            process, self._process = self._process, None
            if process is not None:
                self._close_pipe()
                # It sees the end of its input; nobody waits for it, and a reaped child needs no warning.
                process.returncode = process.poll() or 0

    def forget(self) -> None:
        """In a forked process: it is the other one's."""
        if self._process is not None:
            self._process.returncode = 0
        self._process = None
        self._close_pipe()

    def _start(self) -> None:
        if self._is_impossible:
            return
        if not sys.executable or getattr(sys, "frozen", False) or not _PROGRAM.is_file():
            self._is_impossible = True
            log.warning(
                "no Python to start a warden with: if this process is killed, agents end by themselves only"
            )
            return
        self._close_pipe()
        reading = -1
        command = [sys.executable, "-I", "-S", str(_PROGRAM), self._host_id, str(os.getpid())]
        with suppress(OSError):  # there may be no folder for such things at all
            command.append(tempfile.gettempdir())
        try:
            reading, self._pipe = os.pipe()
            if sys.platform != "win32":
                os.set_blocking(self._pipe, False)
            self._process = subprocess.Popen(
                command,
                stdin=reading,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={},
                start_new_session=True,
            )
        except OSError as error:
            log.warning("the warden cannot be started: %s", error)
            self._close_pipe()
            return
        finally:
            if reading >= 0:
                os.close(reading)
        for line in self._known.values():
            self._tell(line)

    def _tell(self, line: bytes) -> None:
        if self._pipe < 0:
            return
        try:
            os.write(self._pipe, line)
        except BlockingIOError:  # it is behind; the marker is enough for nearly all
            pass
        except OSError:  # it is gone; the next child starts another
            self._close_pipe()

    def _close_pipe(self) -> None:
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1
