"""Starts a child together with its keeper, of the kind that this system needs.

Does not keep the child: the keeper does, from the moment on when it is started.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import ExitStack
from functools import cache, partial
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Final

from outrider.transports._folder import discard_folder, make_folder
from outrider.transports._host import host
from outrider.transports._input import InputClosed
from outrider.transports._spawn import explain, spawn
from outrider.transports._stderr import StderrLog

if sys.platform == "win32":
    from outrider.transports._windows import JobKeeper as SystemKeeper
else:
    from outrider.transports._polling import PollingKeeper as SystemKeeper

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import FrameType

    from outrider.command import Command
    from outrider.transports._keeper import Keeper, Patience
    from outrider.transports._spawn import Spawned


_SIGNALS: Final = tuple(
    getattr(signal, name)
    for name in (
        "SIGINT",
        "SIGTERM",
        "SIGHUP",
        "SIGQUIT",
        "SIGUSR1",
        "SIGUSR2",
        "SIGALRM",
        "SIGCHLD",
        "SIGXCPU",
    )
    if hasattr(signal, name)
)
"""Those that programs have handlers for. To look at all that there are takes a tenth of a millisecond."""


def start(command: Command, stderr: Callable[[str], object] | None, patience: Patience) -> Keeper:
    """Start the process and its keeper. Raises a `LaunchError`, and nothing is left running and no file is
    left behind."""
    owner = host()
    owner.warden.start()
    number = owner.next_number()
    folder: Path | None = None
    placed = command
    spawned: Spawned | None = None
    try:
        if command.needs_folder:
            folder = make_folder(command, partial(owner.warden.expect, number))
            placed = command.placed(str(folder))
        spawned = spawn(placed, owner.marker(number), owner.tag(number))
        log = StderrLog(stderr, cache(lambda: command.redaction(os.environ)))
        keeper = SystemKeeper(spawned, command, number, stderr=log, patience=patience, folder=folder)
    except BaseException as error:
        if spawned is not None:
            spawned.discard()
        if folder is not None:
            discard_folder(folder, command)
        owner.warden.release(number)
        if isinstance(error, OSError):
            raise explain(error, placed) from error
        raise
    try:
        keeper.start()
        if command.preamble:
            keeper.input.put(command.preamble)
    except InputClosed:  # it has ended already; whoever reads is told why
        pass
    except BaseException:
        keeper.end(kill=True)
        raise
    return keeper


def run_uninterrupted(function: Callable[[], None]) -> None:
    """Call a function that no signal breaks into; they are heard afterwards.

    A handler may raise between any two steps in the main thread, as that of Ctrl-C does on trio, and a
    process that has been started and is not yet known to anybody would be left. (To start it in another
    thread would be safe too, and took three times as long on a busy machine.)
    """
    if current_thread() is not main_thread():
        function()
        return
    handlers = {each: handler for each in _SIGNALS if callable(handler := signal.getsignal(each))}
    heard: dict[int, FrameType | None] = {}
    with ExitStack() as stack:
        # The last that is put here is called first, and one that raises does not keep the others from it.
        # They are called, not sent again: an event loop that is told of signals has been told of these.
        for each, handler in handlers.items():
            stack.callback(_hear, each, handler, heard)
        for each, handler in handlers.items():
            stack.callback(signal.signal, each, handler)
            signal.signal(each, heard.__setitem__)
        function()


def _hear(
    number: int, handler: Callable[[int, FrameType | None], object], heard: dict[int, FrameType | None]
) -> None:
    if number in heard:
        handler(number, heard[number])
