"""Bridle without `await`: the same names, for scripts, threads, workers and notebooks.

All of it runs in one event loop, in a thread of its own; nothing is decided here. The values that come back
are those of `bridle.session`.
"""

from bridle.sync._requests import Requests
from bridle.sync._run import TurnContext, run, stream
from bridle.sync._surface import (
    Following,
    Queued,
    Reader,
    Session,
    TextReader,
    Turn,
)

__all__ = [
    "Following",
    "Queued",
    "Reader",
    "Requests",
    "Session",
    "TextReader",
    "Turn",
    "TurnContext",
    "run",
    "stream",
]
