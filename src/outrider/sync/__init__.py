"""Outrider without `await`: the same names, for scripts, threads, workers and notebooks.

Everything runs in one event loop in a background thread; the results are those of `outrider.session` and
`outrider.transcripts`. Names are loaded on first use, so that listing sessions does not load what runs them.
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
