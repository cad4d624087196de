"""Owns a run of the simulated agent as a process of its own: its standard streams, its signals, its script.

Where it is started from is `outrider.testing.agent`.
"""

from __future__ import annotations

import os
import queue
import signal
import stat
import sys
import threading
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import anyio

from outrider.testing._script import Script
from outrider.testing._simulator._hanging import Hanging
from outrider.testing._simulator._invocation import Invocation
from outrider.testing._simulator._launcher import KEY_VARIABLE, SCRIPT_VARIABLE, RemoteScript
from outrider.testing._simulator._one_shot import PrintMode, read_prompt
from outrider.testing._simulator._request_log import RequestLog
from outrider.testing._simulator._run import Run

if TYPE_CHECKING:
    from anyio.abc import TaskStatus

__all__ = ["play"]

_READ_BYTES: Final = 65536
_SIGNALS: Final = ("SIGINT", "SIGTERM", "SIGHUP")


async def play(invocation: Invocation, environment: Mapping[str, str], cwd: Path, version: str) -> int:
    """Run the agent; gives the exit code."""
    streams = _Standard()
    script = _script(environment)
    home = environment.get("HOME") or str(Path.home())
    config = environment.get("CLAUDE_CONFIG_DIR") or str(Path(home) / ".claude")
    prompt = None if invocation.is_streaming else await read_prompt(invocation, streams)
    run = Run(
        invocation,
        streams,
        script=cast("Script", script),
        requests=RequestLog(),
        hanging=Hanging(),
        environment=environment,
        cwd=cwd,
        config_dir=Path(config),
        version=version,
    )
    code = 1
    async with anyio.create_task_group() as tasks:
        if sys.platform != "win32":
            await tasks.start(_watch_signals, run)
        code = await run.main() if prompt is None else await PrintMode(run, streams).main(prompt)
        tasks.cancel_scope.cancel()
    for error in getattr(script, "errors", ()):
        told = "".join(traceback.format_exception_only(error)).rstrip()
        streams.complain(f"The script: {told}")
    return code


def _script(environment: Mapping[str, str]) -> Script | RemoteScript:
    source, key = environment.get(SCRIPT_VARIABLE), environment.get(KEY_VARIABLE)
    if source and key:
        return RemoteScript(source, key)
    return Script.of(source or None)


async def _watch_signals(run: Run, *, task_status: TaskStatus[None]) -> None:
    numbers = [getattr(signal, name) for name in _SIGNALS]
    with anyio.open_signal_receiver(*numbers) as received:
        task_status.started()
        async for number in received:
            await run.on_signal(signal.Signals(number).name)


class _Standard:
    """Stdin, stdout and stderr of this process."""

    def __init__(self) -> None:
        self._input, self._output = sys.stdin.fileno(), sys.stdout.fileno()
        mode = os.fstat(self._input).st_mode
        self._can_wait = sys.platform != "win32" and not stat.S_ISREG(mode)
        self._waiting: queue.SimpleQueue[bytes | threading.Event] = queue.SimpleQueue()
        # A thread: what reads may stop reading, and the program goes on all the same.
        threading.Thread(target=self._write_all, name="stdout", daemon=True).start()

    async def receive(self) -> bytes:
        try:
            if self._can_wait:
                await anyio.wait_readable(self._input)
                return os.read(self._input, _READ_BYTES)
            return await anyio.to_thread.run_sync(os.read, self._input, _READ_BYTES, abandon_on_cancel=True)
        except OSError:
            return b""

    def write(self, data: bytes) -> None:
        self._waiting.put(data)

    def complain(self, line: str) -> None:
        try:
            os.write(sys.stderr.fileno(), f"{line}\n".encode("utf-8", "replace"))
        except OSError:
            return

    async def drain(self) -> None:
        flag = threading.Event()
        self._waiting.put(flag)
        await anyio.to_thread.run_sync(flag.wait, abandon_on_cancel=True)

    def _write_all(self) -> None:
        is_broken = False
        while True:
            item = self._waiting.get()
            if isinstance(item, threading.Event):
                item.set()
                continue
            left = memoryview(item)
            while left and not is_broken:
                try:
                    left = left[os.write(self._output, left) :]
                except OSError:
                    is_broken = True
