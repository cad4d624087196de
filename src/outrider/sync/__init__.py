"""Outrider without `await`: the same names, for scripts, threads, workers and notebooks.

Everything runs in one event loop in a background thread; the results are those of `outrider.session` and
`outrider.transcripts`. Names are loaded on first use, so that listing sessions does not load what runs them.
"""

from typing import TYPE_CHECKING

from outrider._lazy import lazily

if TYPE_CHECKING:
    from outrider.sync._surface import EventReader as EventReader
    from outrider.sync._surface import Queued as Queued
    from outrider.sync._surface import Reader as Reader
    from outrider.sync._surface import Requests as Requests
    from outrider.sync._surface import Session as Session
    from outrider.sync._surface import TextReader as TextReader
    from outrider.sync._surface import Turn as Turn
    from outrider.sync._surface import TurnContext as TurnContext
    from outrider.sync._surface import go_on as go_on
    from outrider.sync._surface import resolve_settings as resolve_settings
    from outrider.sync._surface import run as run
    from outrider.sync._surface import stream as stream
    from outrider.sync._transcripts import Hits as Hits
    from outrider.sync._transcripts import Sessions as Sessions
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
