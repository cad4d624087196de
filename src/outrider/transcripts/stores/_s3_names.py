"""Owns how `S3Store` names its objects, and how it tells from the names of batches which of them count.

Does not read or write any.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from outrider.transcripts.stores._records import Place

__all__ = ["START", "Batch", "Names", "chain", "mark_of"]

_ODD: Final = re.compile(rb"[^A-Za-z0-9_-]")
_LONGEST: Final = 180
"""A key has up to 1024 bytes, and three such pieces."""
_HEAD: Final = 100

START: Final = "0" * 16
"""The link before the first batch."""


def _escaped(text: str) -> str:
    data = text.encode("utf-8", "surrogatepass")
    # Dots too: some take `..` for a step up. No percent signs: some decode them.
    escaped = _ODD.sub(lambda found: b"!%02X" % found[0][0], data).decode() or "!"
    if len(escaped) <= _LONGEST:
        return escaped
    return f"{escaped[:_HEAD]}!!{hashlib.sha256(data).hexdigest()}"


def mark_of(batch: str) -> str:
    """What a batch is known by, whatever is in its id."""
    return hashlib.sha256(batch.encode("utf-8", "surrogatepass")).hexdigest()[:32]


class Batch(NamedTuple):
    """The name of a batch: its number in the transcript, the link to the one before, its mark, and what makes
    it another one than that of a second try, or of another writer."""

    number: int
    previous: str
    mark: str
    nonce: str

    @property
    def link(self) -> str:
        """By this the next one names it. It depends on all that went before."""
        return hashlib.sha256(f"{self.previous} {self.mark} {self.nonce}".encode()).hexdigest()[:16]

    @property
    def name(self) -> str:
        return f"{self.number:010d}-{self.previous}-{self.mark}-{self.nonce}"

    @classmethod
    def read(cls, name: str) -> Batch | None:
        match name.split("-"):
            case [number, previous, mark, nonce] if number.isdecimal():
                return cls(int(number), previous, mark, nonce)
            case _:
                return None


def chain(names: Iterable[str], count: int, link: str) -> list[Batch] | None:
    """Those of the batches that lead up to this link, in order; None if one is missing.

    What a writer left that was overtaken, or died, before it changed the session's head is none of them.
    """
    by_link = {(batch.number, batch.link): batch for name in names if (batch := Batch.read(name))}
    found: list[Batch] = []
    for number in range(count - 1, -1, -1):
        batch = by_link.get((number, link))
        if batch is None:
            return None
        found.append(batch)
        link = batch.previous
    return found[::-1]


class Names:
    """The keys of objects, under a prefix."""

    def __init__(self, prefix: str) -> None:
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self.version = f"{self._prefix}outrider.json"
        self.projects = f"{self._prefix}sessions/"

    def project(self, project: str) -> str:
        return f"{self.projects}{_escaped(project)}/"

    def head(self, place: Place) -> str:
        return f"{self.project(place.project)}{_escaped(place.session)}"

    def found(self, session: str) -> str:
        """What begins so tells in which projects the session is."""
        return f"{self._prefix}found/{_escaped(session)}/"

    def found_in(self, place: Place) -> str:
        return f"{self.found(place.session)}{_escaped(place.project)}"

    def head_of_found(self, key: str, session: str) -> str:
        return f"{self.projects}{key.rpartition('/')[2]}/{_escaped(session)}"

    def batches(self, place: Place, generation: str) -> str:
        """What begins so is the transcript, of the time between two deletions."""
        session = f"{_escaped(place.project)}/{_escaped(place.session)}"
        return f"{self._prefix}batches/{session}/{_escaped(place.part)}/{generation}/"
