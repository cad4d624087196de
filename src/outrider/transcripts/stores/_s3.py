"""Defines `S3Store`, a session store in a bucket of S3 or a compatible service.

Each batch is an object, and so is the head of each session. A batch counts as soon as a head leads to it.
"""

from __future__ import annotations

import hashlib
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from email.utils import parsedate_to_datetime
from functools import partial
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec.structs import replace

from outrider.errors import OptionsError, StoreError
from outrider.transcripts.stores._base import check_version, decode, encode, restored, to_bytes
from outrider.transcripts.stores._blocking import DEFAULT_TIMEOUT, raise_if_abandoned
from outrider.transcripts.stores._heads import Batch, Change, Conflict, Head, HeadStore, Part, read_head
from outrider.transcripts.stores._shared import Resource, Share, close_later
from outrider.transcripts.stores._urls import FLAG, SECONDS, TEXT, shown, take_parameters

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
    from typing import Self

    from outrider.transcripts.stores._base import Place

# The bucket.

_AT_ONCE: Final = 16
"""Requests of one call."""

_DELETE_AT_ONCE: Final = 1000
"""The most that one request may name."""

_SKEW: Final = 1.0
"""A clock that is off by no more is taken as right."""

_TRIES: Final = 3

_errors: Final = import_module("botocore.exceptions")
_Errors: TypeAlias = tuple[type[Exception], ...]

CUT_OFF: Final[_Errors] = (_errors.IncompleteReadError, _errors.ResponseStreamingError)
LOST: Final[_Errors] = (
    *CUT_OFF,
    _errors.ConnectionError,
    _errors.HTTPClientError,
    import_module("botocore.parsers").ResponseParserError,
    OSError,
)
"""Something went wrong on the way."""
NO_CREDENTIALS: Final[_Errors] = (_errors.NoCredentialsError, _errors.PartialCredentialsError)
DRIVERS: Final[_Errors] = (_errors.BotoCoreError,)
"""All that the driver raises for itself."""

_CONFLICTS: Final = {"PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey", "404", "409", "412"}


class Found(NamedTuple):
    data: bytes
    etag: str


class Access(NamedTuple):
    """Where the bucket is, and with what right."""

    bucket: str
    endpoint: str | None
    region: str | None
    path_style: bool
    access_key_id: str | None
    secret_access_key: str | None
    session_token: str | None
    timeout: float | None


_session: Any = None
_making: Final = threading.Lock()


def _make_client(access: Access) -> Any:  # noqa: ANN401 - its methods are made at run time
    # The driver reads megabytes of descriptions for each session of its own; two threads may not share one.
    global _session
    with _making:
        if _session is None:
            _session = import_module("boto3.session").Session()
        config = import_module("botocore.config").Config(
            connect_timeout=access.timeout,
            read_timeout=access.timeout,
            retries={"mode": "standard", "max_attempts": _TRIES},
            max_pool_connections=2 * _AT_ONCE,
            s3={"addressing_style": "path" if access.path_style else "auto"},
            # Many endpoints do not know the newer checksums.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        client: Any = _session.client(
            "s3",
            endpoint_url=access.endpoint,
            region_name=access.region,
            aws_access_key_id=access.access_key_id,
            aws_secret_access_key=access.secret_access_key,
            aws_session_token=access.session_token,
            config=config,
        )
    # At each try: the driver makes several.
    client.meta.events.register("before-send.s3", _raise_if_abandoned)
    return client


def _raise_if_abandoned(**_: object) -> None:
    raise_if_abandoned()


class Bucket(Resource):
    """A bucket. May be used by several threads."""

    def __init__(self, access: Access) -> None:
        super().__init__()
        self._name = access.bucket
        self._skew = 0.0
        self._client = _make_client(access)
        self._used_at = 0.0
        self._is_open = False
        self.checked: set[str] = set()
        """The prefixes whose version is known."""
        self.checking = threading.Lock()

    def get(self, key: str) -> Found | None:
        for left in range(_TRIES - 1, -1, -1):
            try:
                answer = self._ask(self._client.get_object, Key=key)
                return Found(answer["Body"].read(), answer["ETag"])
            except CUT_OFF:
                # The driver tries again only until the body begins.
                if not left:
                    raise
            except Exception as error:
                if code_of(error) == "NoSuchKey":
                    return None
                raise
        raise AssertionError

    def get_all(self, keys: Sequence[str]) -> list[Found | None]:
        if len(keys) < 2:
            return [self.get(key) for key in keys]
        with ThreadPoolExecutor(min(_AT_ONCE, len(keys)), "outrider-s3") as threads:
            return list(threads.map(self.get, keys))

    def put(self, key: str, data: bytes) -> None:
        self._ask(self._client.put_object, Key=key, Body=data)

    def put_if(self, key: str, data: bytes, etag: str | None) -> str:
        """Write it if it is as it was, or with no `etag` if it is not there; gives the new one.

        Raises `Conflict` if it is not so.
        """
        condition = {"IfNoneMatch": "*"} if etag is None else {"IfMatch": etag}
        try:
            answer = self._ask(self._client.put_object, Key=key, Body=data, **condition)
        except Exception as error:
            if code_of(error) in _CONFLICTS:
                raise Conflict(key) from error
            raise
        return str(answer["ETag"])

    def list_keys(self, prefix: str, after: str = "") -> Iterator[str]:
        """The keys that begin so, and come after another, in the order of their bytes."""
        return (key for key, _ in self.list_etags(prefix, after))

    def list_etags(self, prefix: str, after: str = "") -> Iterator[tuple[str, str]]:
        """The same, each with its ETag, which is empty if the service does not tell it."""
        for page in self._pages(Prefix=prefix, StartAfter=prefix + after):
            for one in page.get("Contents", ()):
                yield one["Key"], one.get("ETag", "")

    def list_folders(self, prefix: str) -> Iterator[str]:
        """The next pieces, up to a slash, of the keys that begin so."""
        for page in self._pages(Prefix=prefix, Delimiter="/"):
            for one in page.get("CommonPrefixes", ()):
                yield one["Prefix"]

    def delete(self, keys: Iterable[str]) -> None:
        waiting: list[dict[str, str]] = []
        for key in keys:
            waiting.append({"Key": key})
            if len(waiting) == _DELETE_AT_ONCE:
                self._delete(waiting)
                waiting = []
        if waiting:
            self._delete(waiting)

    def time(self) -> float:
        """Seconds since 1970, by the server's clock where this machine's differs from it."""
        return time.time() + self._skew

    @property
    def has_idle(self) -> bool:
        return self._is_open

    def close_idle(self, seconds: float) -> None:
        if time.monotonic() - self._used_at >= seconds:
            self.close()

    def close(self) -> None:
        # It connects again when it is used again.
        self._is_open = False
        self._client.close()

    def _pages(self, **given: str) -> Iterator[Mapping[str, Any]]:
        more: dict[str, object] = {}
        while True:
            page = self._ask(self._client.list_objects_v2, **given, **more)
            yield page
            if not page.get("IsTruncated"):
                return
            more = {"ContinuationToken": page["NextContinuationToken"]}

    def _delete(self, objects: list[dict[str, str]]) -> None:
        answer = self._ask(self._client.delete_objects, Delete={"Objects": objects, "Quiet": True})
        for error in answer.get("Errors", ()):
            raise OSError(
                f"{error.get('Key')} cannot be deleted: {error.get('Message') or error.get('Code')}"
            )

    def _ask(self, request: Callable[..., Mapping[str, Any]], **values: object) -> Mapping[str, Any]:
        begun, self._used_at = time.time(), time.monotonic()
        if not self._is_open:
            self._is_open = True
            close_later()
        answer: Mapping[str, Any] = {}
        try:
            answer = request(Bucket=self._name, **values)
        except Exception as error:
            # That something is not there is an answer, too, and may be all there is before a lease begins.
            answer = _response(error)
            raise
        finally:
            self._note_time(answer, begun, time.time())
        return answer

    def _note_time(self, answer: Mapping[str, Any], begun: float, ended: float) -> None:
        """The server told its time, in whole seconds, some time between these two. What is thought of its
        clock changes only if the answer contradicts it: a slow answer says little."""
        try:
            date: str = answer["ResponseMetadata"]["HTTPHeaders"]["date"]
            there = parsedate_to_datetime(date).timestamp()
        except (KeyError, ValueError, TypeError):
            return
        least, most = there - ended, there + 1 - begun
        if not least - _SKEW <= self._skew <= most + _SKEW:
            self._skew = (least + most) / 2


def code_of(error: Exception) -> str:
    """The server's code for a failure; empty for other errors."""
    return str(_response(error).get("Error", {}).get("Code", ""))


def _response(error: Exception) -> Mapping[str, Any]:
    return getattr(error, "response", None) or {}


# Names of objects.

_ODD: Final = re.compile(rb"[^A-Za-z0-9_-]")
_LONGEST: Final = 180
"""A key has up to 1024 bytes, and three such pieces."""
_HEAD: Final = 100


def _escaped(text: str) -> str:
    data = to_bytes(text)
    # Dots too: some take `..` for a step up. No percent signs: some decode them.
    escaped = _ODD.sub(lambda found: b"!%02X" % found[0][0], data).decode() or "!"
    if len(escaped) <= _LONGEST:
        return escaped
    return f"{escaped[:_HEAD]}!!{hashlib.sha256(data).hexdigest()}"


class BatchName(NamedTuple):
    """The name of a batch: its number in the transcript, what `Part.last` was before and is with it, and its
    mark. So it is another one than that of a second try, or of another writer."""

    number: int
    previous: str
    mark: str
    last: str

    @property
    def text(self) -> str:
        return f"{self.start(self.number)}-{self.previous}-{self.mark}-{self.last}"

    @staticmethod
    def start(number: int) -> str:
        """What comes before the names of all batches from a number on."""
        return f"{number:010d}"

    @classmethod
    def read(cls, text: str) -> BatchName | None:
        match text.split("-"):
            case [number, previous, mark, last] if number.isdecimal():
                return cls(int(number), previous, mark, last)
            case _:
                return None


def chain(names: Iterable[str], count: int, last: str, start: int = 0) -> list[BatchName]:
    """Those of the batches that lead from a number up to the last one, in order; none if one is missing.

    What a writer left that was overtaken, or died, before it changed the session's head is none of them.
    """
    known = {(name.number, name.last): name for text in names if (name := BatchName.read(text))}
    found: list[BatchName] = []
    for number in range(count - 1, start - 1, -1):
        name = known.get((number, last))
        if name is None:
            return []
        found.append(name)
        last = name.previous
    return found[::-1]


class Names:
    """The keys of objects, under a prefix."""

    def __init__(self, prefix: str) -> None:
        self.prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self.version = f"{self.prefix}outrider.json"
        self.projects = f"{self.prefix}sessions/"

    def project(self, project: str) -> str:
        return f"{self.projects}{_escaped(project)}/"

    def index(self, project: str) -> str:
        return f"{self.prefix}index/{_escaped(project)}"

    def head(self, place: Place) -> str:
        return f"{self.project(place.project)}{_escaped(place.session)}"

    def found(self, session: str) -> str:
        """The prefix of the objects that name the projects of a session."""
        return f"{self.prefix}found/{_escaped(session)}/"

    def found_in(self, place: Place) -> str:
        return f"{self.found(place.session)}{_escaped(place.project)}"

    def head_of_found(self, key: str, session: str) -> str:
        return f"{self.projects}{key.rpartition('/')[2]}/{_escaped(session)}"

    def batches(self, session: Place, generation: str) -> str:
        """The prefix of the batches of a transcript, from one deletion to the next."""
        return f"{self.prefix}batches/{_escaped(session.project)}/{_escaped(session.session)}/{generation}/"


# The store.

_PARAMETERS: Final = {"endpoint": TEXT, "region": TEXT, "path_style": FLAG, "timeout": SECONDS}
_GRACE: Final = 0.25
"""The driver gives up so much later than the call, which says so better."""

_VERSION: Final = 1
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


_UNINDEXED: Final = 8
"""So few heads are read rather than an index, or before one is written."""


class _Index(msgspec.Struct):
    """The heads of a project as they were, without what lists do not need."""

    version: int = _VERSION
    heads: dict[str, tuple[str, str]] = {}
    """By key, each with its ETag."""

    @classmethod
    def read(cls, found: Found | None) -> _Index:
        """One that cannot be read is empty."""
        with suppress(msgspec.MsgspecError, UnicodeDecodeError):
            index = cls() if found is None else msgspec.json.decode(found.data, type=cls)
            return index if index.version == _VERSION else cls()
        return cls()

    def is_right(self, key: str, etag: str) -> bool:
        return bool(etag) and self.heads.get(key, ("", ""))[0] == etag


def _short(data: bytes) -> str:
    """A head as an index has it; empty if it is damaged."""
    with suppress(ValueError):
        head = msgspec.json.decode(data, type=Head)
        return msgspec.json.encode(replace(head, parts={}, lease=None, removed=())).decode()
    return ""


_heeding: Final[set[tuple[str | None, str]]] = set()
"""Endpoints and buckets that were seen to heed conditions."""


class S3Store(HeadStore):
    """Stores sessions in a bucket, with boto3: `S3Store("s3://bucket/prefix")`.

    Credentials are given, or found as boto3 finds them. For a service other than Amazon's give its
    `endpoint`; it has to support conditional writes (`If-Match` and `If-None-Match` of `PutObject`), which is
    checked on first use. An append takes two requests. A list takes one for a thousand sessions, one for an
    index, and one for each session that has changed since the index was written.

    Raises `StoreError` if it fails; `retryable` says whether a later call may succeed.
    """

    _removes_later = True
    # Each page lists the rest.
    _page_bytes = 8 << 20

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
        access = self._access = Access(
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
        self._shared = Share(access, partial(Bucket, access))

    @classmethod
    def from_url(cls, url: str) -> Self:
        """With `?endpoint=`, `?region=`, `?path_style=1` and `?timeout=`."""
        rest, given = take_parameters(url, _PARAMETERS)
        return cls(rest, **given)

    # Heads and batches.

    def _read(self, session: Place) -> tuple[Head, str | None]:
        found = self._bucket().get(self._names.head(session))
        return (
            (read_head(session, None), None)
            if found is None
            else (read_head(session, found.data, found.etag), found.etag)
        )

    def _replace(self, session: Place, change: Change, version: str | None) -> str:
        bucket, found = self._bucket(), self._names.found_in(session)
        if change.is_first:
            bucket.put(found, b"")
        if change.batch is not None:
            part = change.head.parts[change.name]
            before = change.before.parts.get(change.name) or Part(part.generation)
            name = BatchName(before.count, before.last, change.batch.mark, part.last)
            bucket.put(self._names.batches(session, part.generation) + name.text, change.batch.data)
        etag = bucket.put_if(self._names.head(session), msgspec.json.encode(change.head), version)
        if change.is_first:
            # Again: who deleted the session before may have removed it in between.
            bucket.put(found, b"")
        if change.is_last:
            bucket.delete([found])
            if self._read(session)[0].mtime is not None:
                # Somebody made it anew.
                bucket.put(found, b"")
        return etag

    def _delete(self, place: Place) -> None:
        super()._delete(place)
        # Also what an earlier deletion left that failed half-way.
        with self._alone(place):
            head, version = self._read(place.main)
            for generation in head.removed:
                bucket = self._bucket()
                bucket.delete(bucket.list_keys(self._names.batches(place, generation)))
            if head.removed:
                # Otherwise the next deletion does it again.
                with suppress(Conflict):
                    self._replace(place.main, Change(head, replace(head, removed=())), version)

    def _read_batches(self, place: Place, part: Part, start: int, stop: int) -> list[Batch]:
        bucket, prefix = self._bucket(), self._names.batches(place, part.generation)
        keys = bucket.list_keys(prefix, BatchName.start(start))
        names = chain((key.removeprefix(prefix) for key in keys), part.count, part.last, start)
        names = names[: stop - start]
        bodies = bucket.get_all([prefix + name.text for name in names])
        return [
            Batch(name.mark, body.data) for name, body in zip(names, bodies, strict=True) if body is not None
        ]

    def _find_heads(
        self, *, project: str | None = None, session: str | None = None
    ) -> list[tuple[str, bytes]]:
        bucket = self._bucket()
        if project is not None:
            return self._find_indexed(bucket, project)
        found = bucket.list_keys(self._names.found(session or ""))
        keys = [self._names.head_of_found(key, session or "") for key in found]
        heads = zip(keys, bucket.get_all(keys), strict=True)
        return [(key, one.data) for key, one in heads if one is not None]

    def _find_indexed(self, bucket: Bucket, project: str) -> list[tuple[str, bytes]]:
        """The heads of a project, of which only those are read that are not in its index as they are now.

        The index is no more than a copy: who lists writes it, and whatever becomes of it, lists are right.
        """
        listed = dict(bucket.list_etags(self._names.project(project)))
        name = self._names.index(project)
        index = _Index.read(bucket.get(name) if len(listed) > _UNINDEXED else None)
        known = {key: index.heads[key] for key, etag in listed.items() if index.is_right(key, etag)}
        missing = [key for key in listed if key not in known]
        read = zip(missing, bucket.get_all(missing), strict=True)
        found = {key: one for key, one in read if one is not None}
        if len(missing) > _UNINDEXED or len(index.heads) - len(known) > _UNINDEXED:
            added = {key: (one.etag, short) for key, one in found.items() if (short := _short(one.data))}
            try:
                bucket.put(name, msgspec.json.encode(_Index(heads={**known, **added})))
            except Exception as error:
                # Who may only read lists no less.
                if self._explain(error) is None:
                    raise
        heads = {key: head.encode() for key, (_, head) in known.items()}
        return list({**heads, **{key: one.data for key, one in found.items()}}.items())

    def _list_projects(self) -> list[str]:
        found: list[str] = []
        bucket = self._bucket()
        for folder in bucket.list_folders(self._names.projects):
            heads = ((key, one.data) for key in bucket.list_keys(folder) if (one := bucket.get(key)))
            found += [restored(head.project) for head, _ in islice(self._listed(heads), 1)]
        return found

    # The bucket.

    def _now(self) -> float:
        return self._bucket().time()

    def _bucket(self) -> Bucket:
        bucket, prefix = self._shared.get(), self._names.prefix
        if prefix not in bucket.checked:
            with bucket.checking:
                if prefix not in bucket.checked:
                    self._set_up(bucket)
                    bucket.checked.add(prefix)
        return bucket

    @property
    def _address(self) -> Hashable:
        return self._shared.key

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
        self._shared.let_go()

    def _explain(self, error: Exception) -> tuple[str, bool] | None:
        code, reason = code_of(error), " ".join(str(error).split()) or type(error).__name__
        bucket = self._access.bucket
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
