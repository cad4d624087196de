"""Defines the values that stores keep: keys, entries, summaries, times and leases.

Also explains errors of the file system. Does not keep anything.
"""

from __future__ import annotations

import errno
import json
import os
import re
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar, cast

import msgspec

from outrider.errors import StoreError, UsageError
from outrider.transcripts._describe import fold_session_summary

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from outrider.transcripts.stores._base import (
        SessionKey,
        SessionListSubkeysKey,
        SessionStoreEntry,
        SessionSummaryEntry,
    )


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
                f"{key!r} is not the key of a transcript",
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


_Mark = TypeVar("_Mark")


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


def fresh_lines(
    lines: list[Line], known: set[_Mark], mark: Callable[[str], _Mark]
) -> list[tuple[Line, _Mark | None]]:
    """The lines whose uuid is not known, each once, with what the store makes of the uuid."""
    fresh: list[tuple[Line, _Mark | None]] = []
    seen = known.copy()
    for line in lines:
        uuid = None if line.uuid is None else mark(line.uuid)
        if uuid is None or uuid not in seen:
            fresh.append((line, uuid))
        if uuid is not None:
            seen.add(uuid)
    return fresh


def fold_summary(place: Place, known: bytes | str | None, lines: Sequence[Line]) -> bytes:
    """The data of a session's summary with more lines, from the data before; both as `encode` made them."""
    previous: SessionSummaryEntry | None = None
    if known is not None:
        data = cast("dict[str, object]", decode(known))
        previous = {"session_id": place.session, "mtime": 0, "data": data}
    return encode(fold_session_summary(previous, place.key, [line.entry for line in lines])["data"])


def encode(value: object) -> bytes:
    """JSON in UTF-8, on one line, without NUL; any text and any number comes back from `decode` as it was.

    Raises `UsageError` if it is not JSON.
    """
    try:
        try:
            return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
        except UnicodeEncodeError:
            # A surrogate without its other half has no UTF-8.
            return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"an entry cannot be stored because it is not JSON: {error}") from error


def decode(data: bytes | str) -> SessionStoreEntry:
    """What `encode` was given. Raises `ValueError` if it did not make this."""
    # Not from bytes: it would guess at their encoding.
    try:
        found: object = json.loads(data.decode() if isinstance(data, bytes) else data)
    except (RecursionError, TypeError) as error:
        raise ValueError(str(error)) from error
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - the contents are wrong, not a caller
    return cast("SessionStoreEntry", found)


_NO_TEXT: Final = re.compile("[\\\\\x00\ud800-\udfff]")
_ESCAPED: Final = re.compile(r"\\u([0-9a-f]{4})")


def plain(text: str) -> str:
    """Text for a database, which can hold neither NUL nor half a surrogate pair; `restored` undoes it."""
    return _NO_TEXT.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def restored(text: str) -> str:
    """What `plain` was given."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)


def to_bytes(text: str) -> bytes:
    """Any text as bytes, half a surrogate pair too; `to_text` undoes it."""
    return text.encode("utf-8", "surrogatepass")


def to_text(data: bytes) -> str:
    """The text that `to_bytes` was given."""
    return data.decode("utf-8", "surrogatepass")


def check_version(store: str, what: str, found: object, known: int, instead: str) -> None:
    """Raises `StoreError` if a newer Outrider wrote what is there; `instead` is what else can be used."""
    if not isinstance(found, int) or found > known:
        raise StoreError(
            store,
            "open",
            f"{what} of version {found}, and this Outrider knows up to {known}",
            hint=f"Update Outrider here, or use another {instead}.",
        )


def now() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def later(latest: int) -> int:
    """The time, in milliseconds since 1970; after the `latest` one, though it be the same millisecond."""
    return max(now(), latest + 1)


# Leases.


class Lease(NamedTuple):
    """The right to be the only writer of a session."""

    token: str
    holder: str
    seconds: float
    """How long it runs from now on; zero or less if it has run out."""


_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class LeaseTime(msgspec.Struct, frozen=True):
    """When a lease runs out."""

    ends: float
    """By the clock of the machine that wrote it: seconds since 1970."""
    seconds: float = 0.0
    """How long it is; 0 if that was not kept."""
    boot: str = ""
    """From when to when that machine was up, by a name for it; empty if it has none."""
    ends_up: float = 0.0
    """In seconds since that machine was started."""

    @classmethod
    def of(cls, seconds: float) -> LeaseTime:
        """That of a lease that begins now."""
        return cls(time.time() + seconds, seconds, _boot(), _up() + seconds)

    @property
    def left(self) -> float:
        """The seconds that it runs for; below zero if it has run out."""
        if self.boot and self.boot == _boot():
            return self.ends_up - _up()
        left = self.ends - time.time()
        # Nobody gave it so much: since then the clock was put back. Whoever holds it renews it soon.
        return -1.0 if 0 < 2 * self.seconds < left else left


@cache
def _boot() -> str:
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip() if hasattr(time, "CLOCK_BOOTTIME") else ""
    except (OSError, ValueError):
        return ""


def _up() -> float:
    """Sleep included, where there is such a clock."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


# File system errors.

MAKE_ROOM: Final = "Make room, and try again."
RESTORE: Final = "Restore it from a copy; or move it away, and a new one is made."
WAIT_LONGER: Final = "Look for what holds it so long, or give a longer `timeout`."

_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)
_MAY_PASS: Final = (*_NO_ROOM, errno.EMFILE, errno.ENFILE, errno.EINTR, errno.EAGAIN)
_LITTLE: Final = 256 * 1024
"""Below this, SQLite may find no room though a few bytes are left."""


def explain_os_error(error: OSError) -> tuple[str, bool, str]:
    """What went wrong, whether it may pass, and what to do."""
    what, hint = (error.strerror or str(error)).lower(), ""
    if error.errno in _NO_ROOM:
        what, hint = f"there is no space left on its disk ({what})", MAKE_ROOM
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        what, hint = f"this process may not access it ({what})", "Let it write there."
    elif error.errno in (errno.ENOENT, errno.ENOTDIR):
        hint = "Make the folder that it should be in, or give another path."
    where = f": {error.filename}" if error.filename else ""
    return f"{what}{where}", error.errno in _MAY_PASS, hint


def has_room(folder: Path) -> bool:
    try:
        found = os.statvfs(folder)
    except OSError:
        return True
    return found.f_bavail * found.f_frsize > _LITTLE
