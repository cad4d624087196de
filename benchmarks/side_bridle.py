"""Bridle's side: bytes to typed messages with `bridle.wire`. Runs in the environment of this checkout."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from benchmarks.side import CONTROL_TYPES, Side, serve
from bridle import __version__
from bridle.wire import Framer, StreamEvent


def messages(chunks: Iterable[bytes]) -> int:
    framer = Framer()
    count = 0
    for chunk in chunks:
        for _ in framer.feed(chunk):
            count += 1
    return count + len(framer.flush())


def texts(chunks: Iterable[bytes]) -> int:
    framer = Framer()
    characters = 0
    for chunk in chunks:
        for message in framer.feed(chunk):
            if isinstance(message, StreamEvent):
                characters += len(message.text)
    return characters


def tally(chunks: Iterable[bytes]) -> Counter[str]:
    framer = Framer()
    seen = Counter[str]()
    for chunk in chunks:
        seen.update(str(message.raw.get("type")) for message in framer.feed(chunk))
    for kind in CONTROL_TYPES:
        del seen[kind]
    return seen


if __name__ == "__main__":
    # A routed pass needs no code of its own here: control frames are typed like all others.
    passes = {"messages": messages, "texts": texts, "routed": messages}
    serve(Side("Bridle", __version__, passes, tally))
