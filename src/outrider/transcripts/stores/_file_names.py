"""Owns where a store in files keeps what, and how any text becomes the name of a file.

Does not open anything.
"""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from outrider.transcripts.stores._records import Place

__all__ = ["Layout", "name_of", "text_of"]

_LONGEST: Final = 200
"""Bytes of a name; most file systems allow 255, and an ending is added."""
_CUT: Final = "~"
"""Stands before the checksum of a long text; no other name has it."""
_EMPTY: Final = "%"

_ESCAPED: Final = re.compile(rb"[^a-z0-9_.\-]|^\.|\.$")
_ESCAPE: Final = re.compile(r"%([0-9a-f]{2})")


def name_of(text: str) -> str:
    """The file name of a text: another one for each, also where upper and lower case, or two spellings of an
    accent, are the same. `text_of` undoes it, but for long ones."""
    data = text.encode("utf-8", "surrogatepass")
    name = _ESCAPED.sub(lambda found: b"%%%02x" % found[0][0], data).decode()
    if len(name) > _LONGEST:
        return f"{name[:100]}{_CUT}{sha256(data).hexdigest()}"
    return name or _EMPTY


def text_of(name: str) -> str | None:
    """The text of a file name; None if it was too long to be in it, or if it is no such name."""
    if name == _EMPTY:
        return ""
    data = _ESCAPE.sub(lambda found: chr(int(found[1], 16)), name).encode("latin-1", "replace")
    text = data.decode("utf-8", "surrogatepass") if _is_text(data) else ""
    return text if text and name_of(text) == name else None


def _is_text(data: bytes) -> bool:
    try:
        data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return False
    return True


class Layout:
    """The files of a store in a folder.

    `PROJECT/SESSION/main.jsonl` is a transcript, `PROJECT/SESSION/parts/SUBPATH.jsonl` a part of it, each
    with a `.log` of what was added when. What begins with a dot is the store's own.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.marker = root / "outrider.json"
        self.locks = root / ".locks"
        self.leases = root / ".leases"

    def deleted(self, name: str) -> Path:
        """Where a session is put that is about to be removed."""
        return self.root / f".deleted-{name}"

    def project(self, project: str) -> Path:
        return self.root / name_of(project)

    def session(self, place: Place) -> Path:
        return self.project(place.project) / name_of(place.session)

    def transcript(self, place: Place) -> Path:
        """Without an ending."""
        session = self.session(place)
        return session / "main" if place.subpath is None else session / "parts" / name_of(place.subpath)

    def summary(self, place: Place) -> Path:
        return self.session(place) / "summary.json"

    def lock(self, place: Place) -> Path:
        return self.locks / f"{_checksum(place)}.lock"

    def lease(self, place: Place) -> Path:
        return self.leases / f"{_checksum(place)}.json"


def _checksum(place: Place) -> str:
    # Not a name: these are needed where the session is not there, or not any more.
    return sha256(repr((place.project, place.session)).encode("utf-8", "surrogatepass")).hexdigest()[:40]
