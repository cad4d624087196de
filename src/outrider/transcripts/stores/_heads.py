"""The logic that all stores share: each session has a head, and each transcript is a list of batches.

The head says which batches count, and holds the summary and the lease. A driver replaces a head only if it is
still the one that was read, together with the batch that the new head counts. So each call takes effect at
once or not at all, and a call whose answer was lost can be repeated: the mark of its batch is there already.
"""

from __future__ import annotations

import logging
import re
import time
from abc import abstractmethod
from contextlib import contextmanager, suppress
from hashlib import sha256
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeVar, cast
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from outrider.errors import StoreError
from outrider.transcripts.stores._base import (
    RESERVED,
    Lease,
    LeaseTime,
    Place,
    decode,
    fold_summary,
    fresh_lines,
    later,
    plain,
    restored,
    to_bytes,
)
from outrider.transcripts.stores._blocking import BlockingStore, raise_if_abandoned

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator

    from outrider.transcripts.stores._base import (
        LatestSessionEntry,
        Line,
        SessionKey,
        SessionStoreEntry,
        SessionSummaryEntry,
    )

_T = TypeVar("_T")

_log: Final = logging.getLogger("outrider.transcripts")

_REMEMBERED: Final = 64
"""How many heads, and transcripts, an object remembers besides those of sessions that it has the lease of. An
append to another one reads all of it."""


class KeptLease(msgspec.Struct, frozen=True):
    token: str
    holder: str
    time: LeaseTime


class Part(msgspec.Struct, frozen=True):
    """A transcript, as its head counts it."""

    generation: str
    """The name of its batches; another one after a deletion."""
    count: int = 0
    last: str = ""
    """Differs for each batch that was ever the last one, also for the same batch written by two."""
    size: int = 0
    """Bytes of the entries, each on a line of its own."""


class Head(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of a session. Names are `plain`: JSON cannot hold half a surrogate pair."""

    project: str
    session: str
    parts: dict[str, Part] = {}
    """The main transcript has the empty name."""
    mtime: int | None = None
    """None: the session has no main transcript, so no list has it."""
    summary: str | None = None
    lease: KeptLease | None = None
    removed: tuple[str, ...] = ()
    """Generations whose batches may not have been removed yet."""

    @property
    def data(self) -> bytes | None:
        """It, encoded; None if there is nothing to keep."""
        return msgspec.json.encode(self) if self.parts or self.lease or self.summary else None


_decode_head: Final = msgspec.json.Decoder(Head).decode


class Batch(NamedTuple):
    """Entries that are stored together, once."""

    mark: str
    """Two batches have the same mark if they have the same id."""
    data: bytes
    """The entries, one per line."""


class Change(NamedTuple):
    """What becomes of a session in one step."""

    before: Head
    head: Head
    name: str = ""
    """The part that the batch belongs to."""
    batch: Batch | None = None
    gone: tuple[tuple[str, Part], ...] = ()
    """Parts that are removed, with their names."""

    @property
    def is_first(self) -> bool:
        """Whether lists get a new session."""
        return self.before.mtime is None and self.head.mtime is not None

    @property
    def is_last(self) -> bool:
        """Whether lists lose a session."""
        return self.before.mtime is not None and self.head.mtime is None


class Record(NamedTuple):
    """A small value that is kept beside the sessions, and changed one step at a time."""

    text: str
    """A JSON object."""
    is_listed: bool


class Conflict(Exception):
    """The head is not the one that was read: somebody else wrote it, or this call, whose answer was lost."""


class Missing(ValueError):
    """A batch is not there that the head counts."""


class Damaged(ValueError):
    """A head cannot be read."""

    def __init__(
        self, text: str, session: Place, data: bytes, *, version: object, lease: KeptLease | None
    ) -> None:
        super().__init__(text)
        # All that may be a generation: their batches would stay when the head is deleted. The first is none.
        generations = ["", *(found.decode() for found in _GENERATION.findall(data))]
        parts = {str(number): Part(generation) for number, generation in enumerate(generations)}
        self.head: Final = replace(read_head(session, None), parts=parts, mtime=0, lease=lease)
        """What a deletion has to remove."""
        self.version: Final = version


_GENERATION: Final = re.compile(rb"[0-9a-f]{32}")


class _Known:
    """What this object remembers of the first batches of a transcript."""

    def __init__(self, generation: str) -> None:
        self.generation = generation
        self.count = 0
        self.marks: set[str] = set()
        self.uuids: set[str] = set()


class HeadStore(BlockingStore):
    """Drivers implement `_read`, `_replace`, `_read_batches`, `_find_heads` and `_list_projects`."""

    _is_local: ClassVar[bool] = False
    """Whether there is no server, whose clock would count."""
    _page_bytes: ClassVar[int] = 1 << 20
    """How much of a transcript is read at once where not all of it is needed."""
    _removes_later: ClassVar[bool] = False
    """Whether batches are removed in a step after that which replaces the head."""

    def __init__(self, name: str, *, timeout: float | None) -> None:
        super().__init__(name, timeout=timeout)
        self._left_out: set[str] = set()
        self._latest = 0
        self._ahead = 0.0
        self._forget()

    # What a driver has to implement.

    @abstractmethod
    def _read(self, session: Place) -> tuple[Head, Any]:
        """The head and its version, None for a session without one. Notes the server's time.

        Raises `Damaged`.
        """

    @abstractmethod
    def _replace(self, session: Place, change: Change, version: Any) -> Any:  # noqa: ANN401 - the driver's own
        """Write a change, all or nothing, if the head is of this version; gives the new version. Removes a
        head without data.

        Raises `Conflict` if it is not.
        """

    @abstractmethod
    def _read_batches(self, place: Place, part: Part, start: int, stop: int) -> list[Batch]:
        """The batches of a transcript from a number on and before another, in order."""

    @abstractmethod
    def _find_heads(
        self, *, project: str | None = None, session: str | None = None
    ) -> Iterable[tuple[str, bytes]]:
        """The heads of a project, or those with this session id, each with a name for its session."""

    # Pages.

    async def load_pages(
        self, key: SessionKey, *, backwards: bool = False
    ) -> AsyncGenerator[list[SessionStoreEntry], None]:
        """The entries of a transcript as it is now, piece by piece. `backwards`: the last piece first, and
        each in order. Close it."""
        place = Place.of(key)
        begun = await self._run("load", self._begin_pages, place)
        if begun is not None:
            part, pages = begun
            for start, stop in reversed(pages) if backwards else pages:
                page = await self._run("load", self._load_later_page, place, part, start, stop)
                if page:
                    yield page

    # Records.

    async def read_record(self, kind: str, id: str) -> str | None:
        """The record of this kind and id, or None."""
        return await self._run("read_record", self._read_record, record_place(kind, id))

    async def change_record(self, kind: str, id: str, change: Callable[[str | None], Record | None]) -> None:
        """Replace a record by what `change` makes of it, in one step; None leaves it as it is.

        `change` runs in a thread, and again if somebody else was faster: it must do nothing else.
        """
        await self._run("change_record", self._change_record, record_place(kind, id), change)

    async def delete_record(self, kind: str, id: str) -> None:
        """Remove a record, if there is one. Raises `SessionBusy` if somebody has its lease."""
        await self._run("delete_record", self._delete, record_place(kind, id))

    async def list_records(self, kind: str) -> list[str]:
        """The listed records of a kind, those that were changed last first."""
        return await self._run("list_records", self._list_records, kind)

    async def is_record_leased(self, kind: str, id: str) -> bool:
        """Whether somebody has the lease of a record."""
        return await self._run("read_record", self._is_leased, record_place(kind, id))

    def _is_leased(self, place: Place) -> bool:
        lease = self._lease(self._read(place)[0])
        return lease is not None and lease.seconds > 0

    def _read_record(self, place: Place) -> str | None:
        return self._read(place)[0].summary

    def _change_record(self, place: Place, change: Callable[[str | None], Record | None]) -> None:
        def changed(head: Head) -> Change | None:
            record = change(head.summary)
            if record is None:
                return None
            mtime = self._next_mtime(head) if record.is_listed else None
            return Change(head, replace(head, summary=record.text, mtime=mtime))

        with self._alone(place):
            # Others write it as often as this object does.
            self._seen.pop(place, None)
            self._update(place, changed)

    def _list_records(self, kind: str) -> list[str]:
        heads = [one for one, _ in self._listed(self._find_heads(project=record_place(kind, "").project))]
        return [one.summary or "" for one in sorted(heads, key=lambda one: one.mtime or 0, reverse=True)]

    # Clocks.

    def _now(self) -> float:
        """The server's time, in seconds since 1970."""
        return time.monotonic() + self._ahead

    def _note_time(self, seconds: float) -> None:
        self._ahead = seconds - time.monotonic()

    def _lease_time(self, seconds: float) -> LeaseTime:
        return LeaseTime.of(seconds) if self._is_local else LeaseTime(self._now() + seconds)

    def _lease(self, head: Head) -> Lease | None:
        if (kept := head.lease) is None:
            return None
        left = kept.time.left if self._is_local else kept.time.ends - self._now()
        return Lease(kept.token, restored(kept.holder), left)

    def _next_mtime(self, head: Head) -> int:
        latest = max(self._latest, head.mtime or 0)
        self._latest = later(latest) if self._is_local else max(int(self._now() * 1000), latest + 1)
        return self._latest

    # Writing.

    def _append(self, place: Place, lines: list[Line], batch: str | None) -> None:
        # Also without an id: what was sent twice must be there once.
        mark = sha256(to_bytes(uuid4().hex if batch is None else batch)).hexdigest()[:32]
        name, known = plain(place.part), _Known("")

        def add(head: Head) -> Change | None:
            nonlocal known
            self._check_lease(place, self._lease(head))
            part = head.parts.get(name) or Part(uuid4().hex)
            known = self._catch_up(place, part)
            fresh = fresh_lines(lines, known.uuids)
            if mark in known.marks or (not fresh and batch is None):
                return None
            size = part.size + sum(len(line.data) + 1 for line in fresh)
            new = Part(part.generation, part.count + 1, uuid4().hex[:16], size)
            made = replace(head, parts={**head.parts, name: new})
            if fresh and place.subpath is None:
                summary = fold_summary(place, head.summary, fresh).decode()
                made = replace(made, mtime=self._next_mtime(head), summary=summary)
            return Change(head, made, name, Batch(mark, b"\n".join(line.data for line in fresh)))

        with self._alone(place):
            made = self._update(place, add)
            if made is not None:
                known.marks.add(mark)
                known.uuids.update(line.uuid for line in lines if line.uuid is not None)
                known.count = made.head.parts[name].count

    def _delete(self, place: Place) -> None:
        def remove(head: Head) -> Change | None:
            self._check_lease(place, self._lease(head))
            is_gone = {name: place.subpath is None or name == plain(place.part) for name in head.parts}
            gone = tuple((name, part) for name, part in head.parts.items() if is_gone[name])
            # A record has a summary and no parts.
            if not gone and (place.subpath is not None or head.summary is None):
                return None
            made = replace(head, parts={name: head.parts[name] for name in is_gone if not is_gone[name]})
            if place.subpath is None:
                made = replace(made, mtime=None, summary=None)
            if self._removes_later:
                made = replace(made, removed=(*head.removed, *(part.generation for _, part in gone)))
            return Change(head, made, gone=gone)

        with self._alone(place):
            while True:
                try:
                    self._update(place, remove)
                except Damaged as damaged:
                    change = remove(damaged.head) if place.subpath is None else None
                    if change is None:
                        raise
                    with suppress(Conflict):
                        raise_if_abandoned()
                        self._replace(place, change, damaged.version)
                        return
                else:
                    return

    def _change_lease(self, session: Place, change: Callable[[Lease | None], Lease | None]) -> None:
        def changed(head: Head) -> Change | None:
            kept = self._lease(head)
            lease = change(kept)
            if lease is kept:
                return None
            new = lease and KeptLease(lease.token, plain(lease.holder), self._lease_time(lease.seconds))
            return Change(head, replace(head, lease=new))

        with self._alone(session):
            # By what the clock of the server says now.
            self._seen.pop(session, None)
            self._update(session, changed)

    def _update(self, place: Place, change: Callable[[Head], Change | None]) -> Change | None:
        """Replace the head by what `change` makes of it, again and again until nobody came between."""
        session = place.main
        while True:
            seen = self._seen.pop(session, None)
            # The lease of another may have run out.
            if seen is not None and (lease := seen[0].lease) and lease.token != self._token(session):
                seen = None
            head, version = seen or self._read(session)
            try:
                made = change(head)
                if made is not None:
                    raise_if_abandoned()
                    version = self._replace(session, made, version)
            except Missing:
                if self._read(session)[0] == head:
                    raise
                continue
            except Conflict:
                continue
            if made is not None:
                self._keep(self._seen, session, (made.head, version))
            elif seen is not None:
                # Nothing was written that would fail if somebody else has the session by now.
                continue
            return made

    def _catch_up(self, place: Place, part: Part) -> _Known:
        known = self._known.get(place)
        if known is None or known.generation != part.generation or known.count > part.count:
            known = _Known(part.generation)
        if known.count < part.count:
            for batch in self._counted(place, part, known.count, part.count):
                known.marks.add(batch.mark)
                found = (entry.get("uuid") for entry in _entries(place, batch))
                known.uuids.update(uuid for uuid in found if isinstance(uuid, str))
            known.count = part.count
        self._keep(self._known, place, known)
        return known

    @contextmanager
    def _alone(self, place: Place) -> Generator[None]:
        """One writer to a session at a time within this object; others are noticed by a `Conflict`."""
        lock = self._locks[hash(place.main) % len(self._locks)]
        if not lock.acquire(timeout=self._patience):
            reason = "other calls of this object did not finish in time"
            raise StoreError(self._name, "write", reason, retryable=True)
        try:
            raise_if_abandoned()
            yield
        finally:
            lock.release()

    # Reading.

    def _load(self, place: Place) -> list[SessionStoreEntry] | None:
        while True:
            head, _ = self._read(place.main)
            part = head.parts.get(plain(place.part))
            if part is None:
                return None
            try:
                pages = [self._load_page(place, part, *page) for page in self._pages_of(part)]
            except Missing:
                # It may have been deleted meanwhile.
                if self._read(place.main)[0] == head:
                    raise
                continue
            return [entry for page in pages for entry in page] or None

    def _begin_pages(self, place: Place) -> tuple[Part, list[tuple[int, int]]] | None:
        part = self._read(place.main)[0].parts.get(plain(place.part))
        return None if part is None else (part, self._pages_of(part))

    def _pages_of(self, part: Part) -> list[tuple[int, int]]:
        """From which batch to which: so many that a page has about `_page_bytes`."""
        step = max(1, part.count * self._page_bytes // max(1, part.size))
        return [(start, min(start + step, part.count)) for start in range(0, part.count, step)]

    def _load_page(self, place: Place, part: Part, start: int, stop: int) -> list[SessionStoreEntry]:
        return [entry for one in self._counted(place, part, start, stop) for entry in _entries(place, one)]

    def _load_later_page(self, place: Place, part: Part, start: int, stop: int) -> list[SessionStoreEntry]:
        try:
            return self._load_page(place, part, start, stop)
        except Missing as error:
            now = self._read(place.main)[0].parts.get(plain(place.part))
            if now is not None and now.generation == part.generation:
                raise
            reason = f"the session {place.session} was deleted while it was read"
            raise StoreError(self._name, "load", reason) from error

    def _counted(self, place: Place, part: Part, start: int, stop: int) -> list[Batch]:
        found = self._read_batches(place, part, start, stop)[: stop - start]
        if start + len(found) < stop:
            raise Missing(f"batch {start + len(found) + 1} of {part.count} is missing")
        return found

    def _list_summaries(self, project: str) -> list[SessionSummaryEntry]:
        found: list[SessionSummaryEntry] = [
            {"session_id": restored(one.session), "mtime": one.mtime or 0, "data": data}
            for one, data in self._listed(self._find_heads(project=project))
        ]
        return sorted(found, key=lambda one: one["mtime"], reverse=True)

    def _get_summary(self, session: Place) -> SessionSummaryEntry | None:
        head = self._read(session)[0]
        return None if head.mtime is None else _summary_of(head, decode(head.summary or "{}"))

    def _list_latest(self, project: str | None, limit: int) -> list[LatestSessionEntry]:
        wanted = limit
        while True:
            found = list(self._find_latest(project, wanted))
            listed = [_summary_of(head, data) for head, data in self._listed(found)]
            # Damaged ones are left out.
            if len(listed) >= limit or len(found) < wanted:
                return sorted(listed, key=lambda one: one["mtime"], reverse=True)[:limit]
            wanted *= 2

    def _find_latest(self, project: str | None, limit: int) -> Iterable[tuple[str, bytes]]:
        """The heads of the sessions of a project, or of all projects, that were written to last. More may be
        given than are asked for, in any order."""
        if project is not None:
            return self._find_heads(project=project)
        projects = [one for one in self._list_projects() if not one.startswith(RESERVED)]
        return (found for one in projects for found in self._find_heads(project=one))

    def _list_subkeys(self, session: Place) -> list[str]:
        parts = [Place.subpath_of(restored(name)) for name in self._read(session)[0].parts]
        return [subpath for subpath in parts if subpath is not None]

    def _find_session(self, session_id: str) -> list[str]:
        listed = self._listed(self._find_heads(session=session_id))
        return [restored(one.project) for one, _ in listed]

    def _listed(self, found: Iterable[tuple[str, bytes]]) -> Iterator[tuple[Head, dict[str, object]]]:
        """The heads that lists have, with the data of their summaries. Damaged ones are left out: they must
        not hide all others."""
        for name, kept in found:
            try:
                head = self._decode_head(kept)
                data = cast("dict[str, object]", decode(head.summary or "{}"))
            except ValueError as error:
                if name not in self._left_out:
                    self._left_out.add(name)
                    _log.warning(
                        "%s: the session %s is damaged, so lists leave it out (%s); restore it from a copy,"
                        " or delete it",
                        *(self._name, name, error),
                    )
                continue
            if head.mtime is not None:
                yield head, data

    def _decode_head(self, data: bytes) -> Head:
        """Decode what `_find_heads` gave. Raises `ValueError`."""
        return _decode_head(data)

    # The rest.

    def _keep(self, kept: dict[Place, _T], place: Place, value: _T) -> None:
        """As the newest one; the oldest go."""
        is_new = kept.pop(place, None) is None
        kept[place] = value
        if is_new and len(kept) > _REMEMBERED:
            others = [one for one in list(kept) if one.main not in self._tokens]
            for oldest in others[:-_REMEMBERED]:
                kept.pop(oldest, None)

    def _forget(self) -> None:
        self._locks = [Lock() for _ in range(_REMEMBERED)]
        self._seen: dict[Place, tuple[Head, Any]] = {}
        self._known: dict[Place, _Known] = {}


def _summary_of(head: Head, data: object) -> LatestSessionEntry:
    return {
        "session_id": restored(head.session),
        "project_key": restored(head.project),
        "mtime": head.mtime or 0,
        "data": cast("dict[str, object]", data),
    }


def record_place(kind: str, id: str) -> Place:
    """Where a record is kept: in a project that no folder can have, and that no list shows."""
    return Place(f"{RESERVED}{kind}", id)


def read_head(session: Place, data: bytes | None, version: object = None) -> Head:
    """The head that is kept so, or the one that a session begins with.

    Raises `Damaged`, with a version, which is the data itself unless given.
    """
    if data is None:
        return Head(plain(session.project), plain(session.session))
    try:
        return _decode_head(data)
    except ValueError as error:
        text = f"the head of the session {session.session}: {error}"
        raise Damaged(text, session, data, version=version or data, lease=None) from error


def _entries(place: Place, batch: Batch) -> list[SessionStoreEntry]:
    try:
        return [decode(line) for line in batch.data.split(b"\n") if line]
    except ValueError as error:
        raise ValueError(f"an entry of the session {place.session}{place.part}: {error}") from error
