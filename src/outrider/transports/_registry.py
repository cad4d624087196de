"""The processes that Outrider runs at this moment, for programs that want to show or check them.

Does not keep them alive, and cannot end them: whoever started one does.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from outrider.transports._host import host
from outrider.transports._keeper import Keeper


class LiveProcess(NamedTuple):
    """A child of this process, with all that it started."""

    pid: int
    argv: tuple[str, ...]
    """Its command line, secrets masked."""
    started_at: float
    """Seconds since the epoch."""
    is_ending: bool
    """Whether it has been asked to end."""
    marker: str
    """The variable that it and all that it started carry in their environment."""


def live_processes() -> list[LiveProcess]:
    """All of them, the oldest first. One leaves the list when it and all that it started is gone."""
    return [
        LiveProcess(
            keeper.pid,
            tuple(keeper.command.redaction(os.environ).mask_argv(keeper.command.argv)),
            keeper.started_at,
            keeper.is_ending,
            "=".join(host().marker(keeper.number)),
        )
        for keeper in host().live()
        if isinstance(keeper, Keeper)
    ]
