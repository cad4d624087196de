"""Defines `SessionStore`, the contract of a store for transcripts, and the values that stores keep.

These are keys, entries, summaries, times and leases.
"""

from __future__ import annotations

import errno
import json
import os
import re
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NotRequired, Protocol, TypedDict, cast

import msgspec

from outrider.errors import StoreError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence


class SessionKey(TypedDict):
    """Names one transcript."""

    project_key: str
    """The project; `project_key()` makes it from a folder."""
    session_id: str
    subpath: NotRequired[str]
    """A part of the session, such as `subagents/agent-a1`; absent for the main transcript."""


class SessionListSubkeysKey(TypedDict):
    """Names a session, to ask for its parts."""

    project_key: str
    session_id: str


class SessionStoreEntry(TypedDict):
    """One line of a transcript: any JSON object. A store looks at these fields only."""

    type: str
    uuid: NotRequired[str]
    timestamp: NotRequired[str]


class SessionStoreListEntry(TypedDict):
    """A session that is in a store."""

    session_id: str
    mtime: int
    """When an entry was last added, in milliseconds since 1970."""


class SessionSummaryEntry(TypedDict):
    """What a store knows about a session without reading it."""

    session_id: str
    mtime: int
    """As in lists when this summary was made. If the list has a later time, the summary is out of date."""
    data: dict[str, object]
    """Any JSON object; the SDK makes and reads it."""


class LatestSessionEntry(SessionSummaryEntry):
    """One of the sessions that were written to last."""

    project_key: str


class SessionStore(Protocol):
    """Stores transcripts. Subclass it and implement `append` and `load`; the other methods are optional.

    * `load` returns entries as they were appended, in the same order. The order of the fields of an entry may
      change.
    * An entry with a `uuid` is stored once for each key, so appending the same batch again changes nothing.
      Entries without a `uuid` are always stored.
    * Keys are opaque strings. Each key is a separate transcript.
    * Changing an object that was passed in or returned does not change what is stored.

    Any exception counts as a failure of the store; the session continues. `outrider.testing.check_store`
    checks your own store against this contract.

    The methods from `append_batch` on make a store strict: nothing is stored twice, and there is one writer
    at a time. All stores that come with Outrider have them. They are optional.
    """

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Add entries to the end of a transcript, creating it if needed. An empty list does nothing."""
        ...

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """Return all entries of a transcript, or None if there is no such transcript."""
        ...

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """Return the sessions of a project that have a main transcript, in any order. Optional."""
        return _refuse("list_sessions")

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """Return summaries of the sessions of a project, for fast lists. Optional."""
        return _refuse("list_session_summaries")

    async def delete(self, key: SessionKey) -> None:
        """Delete a transcript; deleting the main transcript deletes all parts of the session. Optional.

        Deleting what does not exist is not an error.
        """
        _refuse("delete")

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """Return the subpaths of a session, in any order. Optional."""
        return _refuse("list_subkeys")

    async def get_session_summary(self, key: SessionListSubkeysKey) -> SessionSummaryEntry | None:
        """Return the summary of one session, up to date, or None if there is no such session. Optional."""
        _refuse("get_session_summary")
        return None

    async def list_latest_sessions(self, project_key: str | None, limit: int) -> list[LatestSessionEntry]:
        """Return the summaries of the sessions that were written to last, up to date and the latest first:
        `limit` of them, or all if there are fewer. None: of all projects. Optional.

        Without it, lists with a limit read the summaries of all sessions.
        """
        return _refuse("list_latest_sessions")

    async def append_batch(self, key: SessionKey, entries: list[SessionStoreEntry], batch: str) -> None:
        """As `append`, but do nothing if a batch with this id was appended to this transcript before, whether
        its entries have uuids or not. Optional."""
        _refuse("append_batch")

    async def list_projects(self) -> list[str]:
        """Return the keys of all projects that have a session, in any order. Optional."""
        return _refuse("list_projects")

    async def find_session(self, session_id: str) -> list[str]:
        """Return the keys of the projects that have a session with this id, in any order. Optional."""
        return _refuse("find_session")

    async def acquire_lease(self, key: SessionListSubkeysKey, holder: str, seconds: float) -> str:
        """Become the only writer of a session for some seconds, and return a token. The session need not
        exist yet. `holder` is for people to read. Optional.

        Raises `SessionBusy` if there is another writer, even one that uses this same object. While a lease
        runs, `append`, `append_batch` and `delete` through any other object raise `SessionBusy`; so they do
        for a writer whose own lease has expired and was taken over. Without a lease, anybody may write.
        """
        _refuse("acquire_lease")
        return ""

    async def renew_lease(self, key: SessionListSubkeysKey, token: str, seconds: float) -> None:
        """Extend a lease to some seconds from now. An expired lease that nobody else took is renewed. Raises
        `LeaseLost` if another writer took it, or if it was released. Optional."""
        _refuse("renew_lease")

    async def release_lease(self, key: SessionListSubkeysKey, token: str) -> None:
        """End a lease. It is not an error if it has ended already. Optional."""
        _refuse("release_lease")

    async def close(self) -> None:
        """Close connections and files. Later calls may connect again. Optional."""
        _refuse("close")


def _refuse(method: str) -> list[Any]:
    # A call: type checkers take a bare `raise` in a protocol for something that has to be written.
    raise NotImplementedError(f"This store has no `{method}`.")


_PASSED_ON: Final = frozenset(("list_sessions", "list_session_summaries", "delete", "list_subkeys"))
"""Methods that count even if only the object has them, since wrappers often forward unknown attributes. The
others have to be in the class, because a mock has every attribute."""


def offers(store: object, method: str) -> bool:
    """Whether a store implements an optional method, and does not just inherit it from `SessionStore`."""
    own = getattr(type(store), method, None)
    if own is None and method in _PASSED_ON:
        own = getattr(store, method, None)
    if not callable(own) or own is getattr(SessionStore, method):
        return False
    return method not in _FASTER or not _is_overruled(store, method)


_FASTER: Final = frozenset(("get_session_summary", "list_latest_sessions"))
"""Methods that say what these say, too."""
_SLOWER: Final = ("list_sessions", "list_session_summaries")


def _is_overruled(store: object, method: str) -> bool:
    """Whether a class that inherits the faster method has a slower one of its own, which may say less."""
    for names in (getattr(store, "__dict__", {}), *map(vars, type(store).__mro__)):
        if method in names:
            return False
        if any(slower in names for slower in _SLOWER):
            return True
    return False


RESERVED: Final = "\0"
"""The first character of projects that are none: they hold records of Outrider itself."""


class Place(NamedTuple):
    """Names one transcript, or with no subpath a session."""

    project: str
    session: str
    subpath: str | None = None

    @classmethod
    def of(cls, key: SessionKey | SessionListSubkeysKey) -> Place:
        """Raises `UsageError` if it is not a key."""
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


def fresh_lines(lines: list[Line], known: set[str]) -> list[Line]:
    """The lines whose uuid is not known, each once."""
    fresh: list[Line] = []
    seen: set[str | None] = set()
    for line in lines:
        if line.uuid is None or (line.uuid not in known and line.uuid not in seen):
            fresh.append(line)
        seen.add(line.uuid)
    return fresh


def fold_summary(place: Place, known: bytes | str | None, lines: Sequence[Line]) -> bytes:
    """The data of a session's summary with more lines, from the data before; both as `encode` made them."""
    previous: SessionSummaryEntry | None = None
    if known is not None:
        data = cast("dict[str, object]", decode(known))
        previous = {"session_id": place.session, "mtime": 0, "data": data}
    # Here, as in `encode`: programs for the reference load this module for the type of an option.
    from outrider.transcripts._describe import fold_session_summary

    return encode(fold_session_summary(previous, place.key, [line.entry for line in lines])["data"])


def encode(value: object) -> bytes:
    """JSON in UTF-8, on one line, without NUL; any text and any number comes back from `decode` as it was.

    Raises `UsageError` if it is not JSON.
    """
    from outrider.transcripts._entries import to_json

    try:
        return to_json(value).encode()
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


_NO_TEXT: Final = "[\\\\\x00\ud800-\udfff]"
_ESCAPED: Final = r"\\u([0-9a-f]{4})"


def plain(text: str) -> str:
    """Text for a database, which can hold neither NUL nor half a surrogate pair; `restored` undoes it."""
    return re.sub(_NO_TEXT, lambda found: f"\\u{ord(found[0]):04x}", text)


def restored(text: str) -> str:
    """What `plain` was given."""
    return re.sub(_ESCAPED, lambda found: chr(int(found[1], 16)), text)


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
        return cls(time.time() + seconds, seconds, boot(), up() + seconds)

    @property
    def left(self) -> float:
        """The seconds that it runs for; below zero if it has run out."""
        if self.boot and self.boot == boot():
            return self.ends_up - up()
        left = self.ends - time.time()
        # Leases are not that long: the clock was set back since. The holder renews it soon.
        return -1.0 if 0 < 2 * self.seconds < left else left


@cache
def boot() -> str:
    """A name for the time from the start of this machine to its end; empty if it has none."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip() if hasattr(time, "CLOCK_BOOTTIME") else ""
    except (OSError, ValueError):
        return ""


def up() -> float:
    """Seconds since this machine was started, sleep included where there is such a clock."""
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
