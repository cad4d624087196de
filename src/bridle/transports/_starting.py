"""Starts a child together with its keeper, of the kind that this system needs.

Does not keep the child: the keeper does, from the moment on when it is started.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from bridle.transports._folder import make_folder, remove_folder
from bridle.transports._host import host
from bridle.transports._spawn import explain, spawn
from bridle.transports._stderr import StderrLog

if sys.platform == "win32":
    from bridle.transports._windows import JobKeeper as SystemKeeper
else:
    from bridle.transports._polling import PollingKeeper as SystemKeeper

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridle.command import Command
    from bridle.transports._keeper import Keeper, Patience


def start(command: Command, stderr: Callable[[str], object] | None, patience: Patience) -> Keeper:
    """Start the process and its keeper. Raises a `LaunchError`, and nothing is left running and no file is
    left behind."""
    owner = host()
    owner.warden.start()
    number = owner.next_number()
    folder = make_folder(command) if command.needs_folder else None
    try:
        placed = command if folder is None else command.placed(str(folder))
        spawned = spawn(placed, owner.marker(number))
        log = StderrLog(stderr)
        try:
            keeper = SystemKeeper(spawned, command, number, stderr=log, patience=patience, folder=folder)
        except OSError as error:
            spawned.discard()
            raise explain(error, placed) from error
    except BaseException:
        if folder is not None:
            remove_folder(folder)
        raise
    keeper.start()
    if command.preamble:
        keeper.input.put(command.preamble)
    return keeper
