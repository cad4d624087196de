"""Owns where lasting sessions get their processes from: `Starter`, and the plain way.

Does not decide when one is started or stopped.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol

from outrider.session import Session

if TYPE_CHECKING:
    from outrider.options import Options

log = logging.getLogger("outrider.fleet")


class Starter(Protocol):
    """Gives out connected sessions, and takes them back. A `Pool` is one."""

    async def start(self, options: Options, output: object) -> Session[Any]:
        """A session that is connected. Raises what `Session.connect` raises; cancelled, it leaves nothing."""
        ...

    async def stop(self, session: Session[Any]) -> None:
        """End a session that `start` gave, also one that has ended by itself. Never raises."""
        ...


class DirectStarter(Starter):
    """Starts a process for each session, and ends it."""

    async def start(self, options: Options, output: object) -> Session[Any]:
        session = Session(options, output=output)
        await session.connect()
        return session

    async def stop(self, session: Session[Any]) -> None:
        try:
            await session.close()
        except Exception:
            log.exception("a session could not be closed")
