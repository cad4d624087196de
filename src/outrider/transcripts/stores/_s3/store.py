"""Defines `S3Store`, a session store in a bucket of S3 or a compatible service.

Each batch is an object. Each session has a head, an object that lists the batches that count, with summary
and lease. A head is only replaced if it has not changed since it was read, so everything that a call writes
takes effect at once or not at all.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar, cast
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import msgspec

from outrider.errors import OptionsError, StoreError
from outrider.transcripts.stores._base import (
    Lease,
    Place,
    check_version,
    decode,
    encode,
    fold_summary,
    fresh_lines,
    plain,
    restored,
)
from outrider.transcripts.stores._blocking import DEFAULT_TIMEOUT, BlockingStore, Listed, raise_if_abandoned
from outrider.transcripts.stores._s3.bucket import (
    DRIVERS,
    LOST,
    NO_CREDENTIALS,
    START,
    Access,
    Batch,
    Bucket,
    Conflict,
    Names,
    chain,
    code_of,
    mark_of,
)
from outrider.transcripts.stores._urls import FLAG, SECONDS, TEXT, shown, take_parameters

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Self

    from outrider.transcripts.stores._base import Line, SessionStoreEntry

# The head of a session.


class KeptLease(msgspec.Struct):
    token: str
    holder: str
    until: float


class Part(msgspec.Struct):
    """A transcript: which of its batches count."""

    generation: str
    """Its name from one deletion to the next."""
    count: int = 0
    link: str = START


class Head(msgspec.Struct):
    """What is known of a session. Names are `plain`: JSON cannot hold half a surrogate pair."""

    project: str
    session: str
    parts: dict[str, Part] = {}
    """The main transcript has the empty name."""
    mtime: int | None = None
    summary: str | None = None
    lease: KeptLease | None = None


def with_batch(head: Head, place: Place, part: Part, batch: Batch, fresh: list[Line], now: float) -> Head:
    parts = {
        **head.parts,
        plain(place.part): msgspec.structs.replace(part, count=batch.number + 1, link=batch.link),
    }
    if place.subpath is not None or not fresh:
        return msgspec.structs.replace(head, parts=parts)
    return msgspec.structs.replace(
        head,
        parts=parts,
        summary=fold_summary(place, head.summary, fresh).decode(),
        mtime=max(int(now * 1000), (head.mtime or 0) + 1),
    )


def read_head(data: bytes) -> Head:
    return msgspec.json.decode(data, type=Head)


# The store.

_T = TypeVar("_T")

_PARAMETERS: Final = {"endpoint": TEXT, "region": TEXT, "path_style": FLAG, "timeout": SECONDS}
_GRACE: Final = 0.25
"""The driver gives up so much later than the call, which says so better."""

_VERSION: Final = 1
_KNOWN: Final = 64
"""So many transcripts, and heads, are remembered."""

_DENIED: Final = {"AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "403"}
_PASSING: Final = {
    "SlowDown",
    "InternalError",
    "ServiceUnavailable",
    "RequestTimeout",
    "404",
    "500",
    "502",
    "503",
}
"""A bare number is an answer without what S3 says: from something between, or cut off."""


_heeding: Final[set[tuple[str | None, str]]] = set()
"""Endpoints and buckets that were seen to heed conditions."""


class _Known(NamedTuple):
    """What this object remembers of a transcript that it appended to."""

    generation: str
    link: str
    marks: set[str]
    uuids: set[str]


class S3Store(BlockingStore):
    """Stores sessions in a bucket, with boto3: `S3Store("s3://bucket/prefix")`.

    Credentials are given, or found as boto3 finds them. For a service other than Amazon's give its
    `endpoint`; it has to support conditional writes (`If-Match` and `If-None-Match` of `PutObject`), which is
    checked on first use. An append takes two requests, and a list one request for each session.

    Raises `StoreError` if it fails; `retryable` says whether a later call may succeed.
    """

    def __init__(
        self,
        url: str,
        *,
        endpoint: str | None = None,
        region: str | None = None,
        path_style: bool | None = None,
        access_key_id: str | None = None,
        secret_access_key: str | None = None,
        session_token: str | None = None,
        timeout: float | None = DEFAULT_TIMEOUT,
    ) -> None:
        super().__init__(shown(url), timeout=timeout)
        try:
            parts = urlsplit(url, allow_fragments=False)
        except ValueError:
            parts = urlsplit("")
        if parts.scheme != "s3" or not parts.netloc or "@" in parts.netloc or parts.query:
            raise OptionsError(
                f"{self._name!r} is not a place in a bucket",
                hint="Write s3://bucket/prefix, and give credentials by the environment or the arguments.",
            )
        if endpoint is not None and not _is_endpoint(endpoint):
            # Not shown: there may be a password in it.
            raise OptionsError(
                "`endpoint` is not the address of a server", hint="Give https://host:port, without a user."
            )
        limit = None if timeout is None else timeout + _GRACE
        self._access = Access(
            parts.netloc,
            endpoint,
            region,
            # Names of buckets are part of the host name at Amazon; hardly anywhere else.
            endpoint is not None if path_style is None else path_style,
            access_key_id,
            secret_access_key,
            session_token,
            limit,
        )
        self._names = Names(unquote(parts.path))
        self._opened: Bucket | None = None
        self._opening = threading.Lock()
        self._forget()

    @classmethod
    def from_url(cls, url: str) -> Self:
        """With `?endpoint=`, `?region=`, `?path_style=1` and `?timeout=`."""
        rest, given = take_parameters(url, _PARAMETERS)
        return cls(rest, **given)

    # Writing.

    def _append(self, place: Place, lines: list[Line], batch: str | None) -> None:
        mark = mark_of(uuid4().hex if batch is None else batch)
        with self._alone(place.main):
            head, etag = self._heads.get(place.main) or self._read_head(place)
            while True:
                self._check(place, head)
                part = head.parts.get(plain(place.part)) or Part(uuid4().hex)
                known = self._bring_up_to_date(place, part)
                fresh = [line for line, _ in fresh_lines(lines, known.uuids, str)]
                if mark in known.marks or (not fresh and batch is None):
                    # Nothing is written that would fail if somebody else has the session by now.
                    self._check(place, self._read_head(place)[0])
                    return
                if place.subpath is None and head.mtime is None:
                    self._bucket().put(self._names.found_in(place), b"")
                name = Batch(part.count, part.link, mark, uuid4().hex[:16])
                key = self._names.batches(place, part.generation) + name.name
                self._bucket().put(key, b"\n".join(line.data for line in fresh))
                try:
                    self._replace(place, with_batch(head, place, part, name, fresh, self._now()), etag)
                except Conflict:
                    head, etag = self._read_head(place)
                    theirs = head.parts.get(plain(place.part))
                    if theirs is None or not self._counts(place, theirs, name):
                        self._bucket().delete([key])
                        continue
                known.marks.add(mark)
                known.uuids.update(line.uuid for line in fresh if line.uuid is not None)
                self._remember(place, known._replace(link=name.link))
                return

    def _counts(self, place: Place, part: Part, batch: Batch) -> bool:
        """Whether it was this that replaced the head, and only the answer was lost."""
        if part.count <= batch.number:
            return False
        found = self._chain(place, part)
        return len(found) > batch.number and found[batch.number] == batch

    def _bring_up_to_date(self, place: Place, part: Part) -> _Known:
        known = self._known.get(place)
        if known is None or known.generation != part.generation:
            known = _Known(part.generation, START, set(), set())
        if known.link == part.link:
            return known
        batches = self._chain(place, part)
        entries = self._read_batches(place, part, [one for one in batches if one.mark not in known.marks])
        known.uuids.update(uuid for entry in entries if isinstance(uuid := entry.get("uuid"), str))
        known.marks.update(one.mark for one in batches)
        known = known._replace(link=part.link)
        self._remember(place, known)
        return known

    def _delete(self, place: Place) -> None:
        with self._alone(place.main):
            while True:
                head, etag = self._read_head(place)
                self._check(place, head)
                wanted = place.subpath is None or plain(place.part)
                gone = {name: one for name, one in head.parts.items() if wanted in (True, name)}
                if etag is None or (not gone and head.mtime is None):
                    return
                kept = {name: one for name, one in head.parts.items() if name not in gone}
                lean = msgspec.structs.replace(head, parts=kept)
                if place.subpath is None:
                    lean = msgspec.structs.replace(lean, mtime=None, summary=None)
                try:
                    self._replace(place, lean, etag)
                except Conflict:
                    continue
                break
        for name, part in gone.items():
            its = place._replace(subpath=Place.subpath_of(restored(name)))
            self._known.pop(its, None)
            self._bucket().delete(self._bucket().list_keys(self._names.batches(its, part.generation)))
        if place.subpath is None:
            self._bucket().delete([self._names.found_in(place)])
            if self._read_head(place)[0].mtime is not None:
                # Somebody made it anew.
                self._bucket().put(self._names.found_in(place), b"")

    # Reading.

    def _load(self, place: Place) -> list[SessionStoreEntry] | None:
        while True:
            part = self._read_head(place)[0].parts.get(plain(place.part))
            if part is None:
                return None
            try:
                return self._read_batches(place, part, self._chain(place, part)) or None
            except _Missing:
                # It may have been deleted meanwhile.
                now = self._read_head(place)[0].parts.get(plain(place.part))
                if now is not None and now.generation == part.generation:
                    raise

    def _chain(self, place: Place, part: Part) -> list[Batch]:
        prefix = self._names.batches(place, part.generation)
        names = (key.removeprefix(prefix) for key in self._bucket().list_keys(prefix))
        found = chain(names, part.count, part.link)
        if found is None:
            raise _Missing(f"an object is missing of those that begin with {prefix!r}")
        return found

    def _read_batches(self, place: Place, part: Part, batches: list[Batch]) -> list[SessionStoreEntry]:
        prefix = self._names.batches(place, part.generation)
        entries: list[SessionStoreEntry] = []
        for batch, found in zip(
            batches, self._bucket().get_all([prefix + one.name for one in batches]), strict=True
        ):
            if found is None:
                raise _Missing(f"the object {prefix + batch.name!r} is missing")
            entries += [decode(line) for line in found.data.split(b"\n") if line]
        return entries

    def _list_sessions(self, project: str, *, summaries: bool) -> list[Listed]:
        keys = list(self._bucket().list_keys(self._names.project(project)))
        heads = [read_head(found.data) for found in self._bucket().get_all(keys) if found is not None]
        return [(restored(one.session), one.mtime, one.summary) for one in heads if one.mtime is not None]

    def _list_subkeys(self, session: Place) -> list[str]:
        parts = [Place.subpath_of(restored(name)) for name in self._read_head(session)[0].parts]
        return [subpath for subpath in parts if subpath is not None]

    def _list_projects(self) -> list[str]:
        found: list[str] = []
        for folder in self._bucket().list_folders(self._names.projects):
            for key in self._bucket().list_keys(folder):
                head = self._bucket().get(key)
                if head is not None and (read := read_head(head.data)).mtime is not None:
                    found.append(restored(read.project))
                    break
        return found

    def _find_session(self, session_id: str) -> list[str]:
        found = self._bucket().list_keys(self._names.found(session_id))
        heads = self._bucket().get_all([self._names.head_of_found(key, session_id) for key in found])
        read = [read_head(head.data) for head in heads if head is not None]
        return [restored(head.project) for head in read if head.mtime is not None]

    # Leases.

    def _change_lease(self, session: Place, change: Callable[[Lease | None], Lease | None]) -> None:
        with self._alone(session):
            while True:
                head, etag = self._read_head(session)
                kept = self._lease(head)
                lease = change(kept)
                if lease is kept:
                    return
                new = lease and KeptLease(lease.token, plain(lease.holder), self._now() + lease.seconds)
                try:
                    self._replace(session, msgspec.structs.replace(head, lease=new), etag)
                except Conflict:
                    continue
                return

    def _lease(self, head: Head) -> Lease | None:
        kept = head.lease
        return None if kept is None else Lease(kept.token, restored(kept.holder), kept.until - self._now())

    def _check(self, place: Place, head: Head) -> None:
        self._check_lease(place, self._lease(head))

    # Heads, and what is remembered.

    def _read_head(self, place: Place) -> tuple[Head, str | None]:
        found = self._bucket().get(self._names.head(place))
        if found is None:
            return Head(plain(place.project), plain(place.session)), None
        return read_head(found.data), found.etag

    def _replace(self, place: Place, head: Head, etag: str | None) -> None:
        self._heads.pop(place.main, None)
        new = self._bucket().put_if(self._names.head(place), msgspec.json.encode(head), etag)
        _keep(self._heads, place.main, (head, new))

    def _remember(self, place: Place, known: _Known) -> None:
        _keep(self._known, place, known)

    @contextmanager
    def _alone(self, session: Place) -> Generator[None]:
        """One call at a time within this object: those of other objects are found out by the head."""
        lock = self._locks[hash(session) % len(self._locks)]
        if not lock.acquire(timeout=self._patience):
            raise TimeoutError("other calls of this object did not finish in time")
        try:
            raise_if_abandoned()
            yield
        finally:
            lock.release()

    def _now(self) -> float:
        return self._bucket().time()

    def _bucket(self) -> Bucket:
        if (bucket := self._opened) is not None:
            return bucket
        with self._opening:
            if self._opened is None:
                bucket = Bucket(self._access)
                self._set_up(bucket)
                self._opened = bucket
            return self._opened

    def _set_up(self, bucket: Bucket) -> None:
        """Say which version this is, and find out whether conditions are heeded: not all endpoints do."""
        ours, where = encode({"version": _VERSION}), (self._access.endpoint, self._access.bucket)
        found = bucket.get(self._names.version)
        if found is None or where not in _heeding:
            for _ in range(2):
                try:
                    bucket.put_if(self._names.version, ours, None)
                except Conflict:
                    break
            else:
                self._refuse_endpoint()
        version = cast("dict[str, object]", decode(found.data)).get("version") if found else _VERSION
        check_version(self._name, "its objects are", version, _VERSION, "prefix")
        if where in _heeding:
            return
        try:
            bucket.put_if(self._names.version, ours, '"00000000000000000000000000000000"')
        except Conflict:
            _heeding.add(where)
            return
        self._refuse_endpoint()

    def _refuse_endpoint(self) -> None:
        raise StoreError(
            self._name,
            "set up",
            "the endpoint does not support conditional writes (If-Match, If-None-Match)",
            hint="Two writers would overwrite each other. Update the service, or take another one.",
        )

    def _close(self) -> None:
        with self._opening:
            bucket, self._opened = self._opened, None
        if bucket is not None:
            bucket.close()

    def _forget(self) -> None:
        self._opened, self._opening = None, threading.Lock()
        self._locks = [threading.Lock() for _ in range(_KNOWN)]
        self._heads: dict[Place, tuple[Head, str | None]] = {}
        self._known: dict[Place, _Known] = {}

    def _explain(self, error: Exception) -> tuple[str, bool] | None:
        code, reason = code_of(error), " ".join(str(error).split()) or type(error).__name__
        bucket = self._access.bucket
        if isinstance(error, _Missing):
            return reason, False
        if code == "NoSuchBucket":
            return f"there is no bucket {bucket!r}; create it with `aws s3 mb s3://{bucket}`", False
        if code == "NotImplemented":
            return "the endpoint has no conditional writes (If-Match, If-None-Match); take another one", False
        if code in _DENIED:
            return f"{reason}; check the credentials, and their rights on the bucket {bucket!r}", False
        if code:
            return reason, code in _PASSING
        if isinstance(error, NO_CREDENTIALS):
            return "there are no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY", False
        if isinstance(error, LOST):
            return reason, True
        return (reason, False) if isinstance(error, DRIVERS) else None


def _is_endpoint(url: str) -> bool:
    try:
        parts = urlsplit(url)
        # To read the port is to check it.
        is_whole = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return is_whole and parts.scheme in ("http", "https") and "@" not in url


class _Missing(Exception):
    """An object that should be there is not."""


def _keep(kept: dict[Place, _T], place: Place, value: _T) -> None:
    """As the newest one; the oldest go."""
    kept.pop(place, None)
    kept[place] = value
    while len(kept) > _KNOWN:
        kept.pop(next(iter(kept)), None)
