"""Outrider without `await`: the same names, for scripts, threads, workers and notebooks.

All of it runs in one event loop, in a thread of its own; nothing is decided here. The values that come back
are those of `outrider.session` and `outrider.transcripts`. Each name is loaded when it is first used: whoever
only lists sessions needs nothing of those that run.
"""

from typing import TYPE_CHECKING

from outrider._lazy import lazily

if TYPE_CHECKING:
    from outrider.sync._requests import Requests
    from outrider.sync._run import TurnContext, run, stream
    from outrider.sync._surface import (
        EventReader,
        Queued,
        Reader,
        Session,
        TextReader,
        Turn,
    )
    from outrider.sync._transcripts import Hits, Sessions

__all__ = [
    "EventReader",
    "Hits",
    "Queued",
    "Reader",
    "Requests",
    "Session",
    "Sessions",
    "TextReader",
    "Turn",
    "TurnContext",
    "run",
    "stream",
]

_HOMES = {
    "_requests": ("Requests",),
    "_run": ("TurnContext", "run", "stream"),
    "_surface": ("EventReader", "Queued", "Reader", "Session", "TextReader", "Turn"),
    "_transcripts": ("Hits", "Sessions"),
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazily(__name__, _HOMES)
