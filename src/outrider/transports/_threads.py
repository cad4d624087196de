"""Keeps a child where pipes cannot be polled and signals do not exist: a thread for whatever can block.

Needs a `Job` that holds the child with all that it starts. Does not know how the system does that.
"""

from __future__ import annotations

import logging
import os
import time
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Protocol

from outrider.transports._blocking import BlockingInput, BlockingOutput, read
from outrider.transports._keeper import Keeper

if TYPE_CHECKING:
    from pathlib import Path

    from outrider.command import Command
    from outrider.transports._keeper import Patience
    from outrider.transports._spawn import Spawned
    from outrider.transports._stderr import StderrLog

log = logging.getLogger("outrider.process")


class Job(Protocol):
    """A child with all that it starts. Every method may be called from any thread, also after `close`."""

    def count(self) -> int:
        """How many of them run."""
        ...

    def terminate(self) -> None:
        """Kill all of them."""
        ...

    def resident_bytes(self) -> int:
        """The memory that they have in use, added up."""
        ...

    def close(self) -> None:
        """Give it back; whatever still runs is killed."""
        ...


class ThreadedKeeper(Keeper):
    """Owns a child process, in threads that block: one for each pipe, one for its exit, one that ends it."""

    def __init__(
        self,
        spawned: Spawned,
        command: Command,
        number: int,
        *,
        stderr: StderrLog,
        patience: Patience,
        folder: Path | None,
        job: Job,
    ) -> None:
        super().__init__(spawned, command, number, stderr=stderr, patience=patience, folder=folder)
        # Its `put` may be called by the garbage collector, inside of another `put`: a condition's may not.
        self._news: SimpleQueue[None] = SimpleQueue()
        self._job = job
        wake = partial(self._news.put, None)
        self.input = self._stdin = BlockingInput(spawned.stdin, wake)
        self.output = self._stdout = BlockingOutput(spawned.stdout, wake)
        self._stderr = spawned.stderr
        self._is_stderr_closed = False
        self._is_given_up = False
        # The last one ends the child, so it is there only if all the others are.
        self._threads[:0] = [
            Thread(target=target, name=f"outrider-{name}-{self.pid}", daemon=True)
            for target, name in (
                (self._watch, "exit"),
                (self._stdout.run, "stdout"),
                (self._read_stderr, "stderr"),
                (self._stdin.run, "stdin"),
            )
        ]

    def resident_bytes(self) -> int:
        return self._job.resident_bytes()

    def forget(self) -> None:
        super().forget()
        if not self._is_stderr_closed:
            os.close(self._stderr)

    def _wake(self) -> None:
        self._news.put(None)

    def _serve_once(self, seconds: float | None) -> None:
        try:
            self._news.get(timeout=seconds)
        except Empty:
            pass

    def _ask(self) -> bool:
        return False

    def _ask_others(self) -> bool:
        # They have been told: their input has ended with the child.
        return self._has_others()

    def _has_others(self) -> bool:
        return self._job.count() > 0

    def _kill(self) -> bool:
        self._job.terminate()
        return self._has_others()

    def _drain(self) -> None:
        left = max(0.0, self._deadline - time.monotonic())
        self._serve(self._are_pipes_closed, left, exit_ends=False)
        if not self._are_pipes_closed():
            log.error("somebody outside of its job has pipes of process %d; they are left", self.pid)
        self._is_given_up = True

    def _reap(self) -> None:
        if self._has_exited:
            self.returncode = self.process.returncode
        else:
            log.error("process %d cannot be killed; it is left to the system", self.pid)
            self.process.returncode = 0

    def _clean_up(self) -> None:
        self._job.close()
        super()._clean_up()

    def _run_here(self) -> None:
        # With all of the tree dead and the pipes at their end, nothing blocks.
        self._job.terminate()
        self.input.close("there are no threads")
        self.output.hand_over()
        for thread in self._threads:
            if thread.ident is None:
                thread.run()

    def _are_pipes_closed(self) -> bool:
        return self._stdin.is_closed and self._stdout.is_closed and self._is_stderr_closed

    # The other threads.

    def _watch(self) -> None:
        self.process.wait()
        self._has_exited = True
        self._wake()

    def _read_stderr(self) -> None:
        while data := read(self._stderr):
            if not self._is_given_up:
                self.stderr.feed(data)
        os.close(self._stderr)
        self._is_stderr_closed = True
        self._wake()
