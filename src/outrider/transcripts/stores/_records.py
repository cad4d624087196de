"""Owns how stores name a transcript, and what they keep of an entry.

Does not keep anything.
"""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from outrider.errors import UsageError

if TYPE_CHECKING:
    from outrider.transcripts._store import SessionKey, SessionListSubkeysKey, SessionStoreEntry

__all__ = ["Line", "Place", "decode", "encode", "later", "now", "plain", "restored"]


class Place(NamedTuple):
    """Names one transcript, or with no subpath a session."""

    project: str
    session: str
    subpath: str | None = None

    @classmethod
    def of(cls, key: SessionKey | SessionListSubkeysKey) -> Place:
        """Raises `UsageError` if it is no key."""
        try:
            place = cls(key["project_key"], key["session_id"], cast("SessionKey", key).get("subpath"))
        except (TypeError, LookupError, AttributeError):
            place = None
        names: tuple[object, ...] = (None,) if place is None else (*place[:2], place.subpath or "")
        if place is None or not all(isinstance(name, str) for name in names):
            raise UsageError(
                f"{key!r} is no key of a transcript",
                hint="Give a dict with the texts `project_key` and `session_id`, and perhaps `subpath`.",
            )
        return place

    @property
    def key(self) -> SessionKey:
        key: SessionKey = {"project_key": self.project, "session_id": self.session}
        if self.subpath is not None:
            key["subpath"] = self.subpath
        return key

    @property
    def main(self) -> Place:
        """The session's main transcript."""
        return self if self.subpath is None else Place(self.project, self.session)

    @property
    def part(self) -> str:
        """The subpath as text: empty for the main transcript. `Place.subpath_of` gives it back."""
        return "" if self.subpath is None else f"/{self.subpath}"

    @staticmethod
    def subpath_of(part: str) -> str | None:
        return part[1:] if part else None


class Line(NamedTuple):
    """An entry to be added."""

    entry: SessionStoreEntry
    data: bytes
    """It, as `encode` made it."""
    uuid: str | None

    @classmethod
    def of(cls, entry: SessionStoreEntry) -> Line:
        uuid: object = entry.get("uuid")
        return cls(entry, encode(entry), uuid if isinstance(uuid, str) else None)


def encode(value: object) -> bytes:
    """JSON in UTF-8, on one line, without NUL; any text and any number comes back from `decode` as it was.

    Raises `UsageError` if it is no JSON.
    """
    try:
        try:
            return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
        except UnicodeEncodeError:
            # A surrogate without its other half has no UTF-8.
            return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"an entry cannot be stored, it is no JSON: {error}") from error


def decode(data: bytes | str) -> SessionStoreEntry:
    """What `encode` was given. Raises `ValueError` if it did not make this."""
    # Not from bytes: it would guess at their encoding.
    try:
        found: object = json.loads(data.decode() if isinstance(data, bytes) else data)
    except (RecursionError, TypeError) as error:
        raise ValueError(str(error)) from error
    if not isinstance(found, dict):
        raise ValueError("no JSON object")  # noqa: TRY004 - the contents are wrong, not a caller
    return cast("SessionStoreEntry", found)


_NO_TEXT: Final = re.compile("[\\\\\x00\ud800-\udfff]")
_ESCAPED: Final = re.compile(r"\\u([0-9a-f]{4})")


def plain(text: str) -> str:
    """Text for a database, which can hold neither NUL nor half a surrogate pair; `restored` undoes it."""
    return _NO_TEXT.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def restored(text: str) -> str:
    """What `plain` was given."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)


def now() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def later(latest: int) -> int:
    """The time, in milliseconds since 1970; after the `latest` one, though it be the same millisecond."""
    return max(now(), latest + 1)
