"""Reads, writes, lists and deletes objects in a bucket for `S3Store`, and names them.

Writes can be conditional. What is in the objects is in `store`.
"""

from __future__ import annotations

import hashlib
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from importlib import import_module
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias, cast

from outrider.transcripts.stores._base import to_bytes
from outrider.transcripts.stores._blocking import raise_if_abandoned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from outrider.transcripts.stores._base import Place

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


class Conflict(Exception):
    """The object is not what the condition says: somebody else wrote it, or this, whose answer was lost."""


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


class _Client(Protocol):
    """What is used of the driver, whose methods are made at run time."""

    def get_object(self, **values: object) -> Mapping[str, object]: ...
    def put_object(self, **values: object) -> Mapping[str, object]: ...
    def delete_objects(self, **values: object) -> Mapping[str, object]: ...
    def list_objects_v2(self, **values: object) -> Mapping[str, object]: ...
    def close(self) -> None: ...


class _Body(Protocol):
    def read(self) -> bytes: ...


_session: object = None
_making: Final = threading.Lock()


def _make_client(access: Access) -> _Client:
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
        client: object = getattr(_session, "client")(  # noqa: B009 - its type is made at run time
            "s3",
            endpoint_url=access.endpoint,
            region_name=access.region,
            aws_access_key_id=access.access_key_id,
            aws_secret_access_key=access.secret_access_key,
            aws_session_token=access.session_token,
            config=config,
        )
    # At each try: the driver makes several.
    getattr(client, "meta").events.register("before-send.s3", _raise_if_abandoned)  # noqa: B009 - as above
    return cast("_Client", client)


def _raise_if_abandoned(**_: object) -> None:
    raise_if_abandoned()


class Bucket:
    """A bucket. May be used by several threads."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._name = access.bucket
        self._skew = 0.0
        self._client = _make_client(access)

    def get(self, key: str) -> Found | None:
        for left in range(_TRIES - 1, -1, -1):
            try:
                answer = self._ask(self._client.get_object, Key=key)
                return Found(cast("_Body", answer["Body"]).read(), cast("str", answer["ETag"]))
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
        return cast("str", answer["ETag"])

    def list_keys(self, prefix: str) -> Iterator[str]:
        """The keys that begin so, in the order of their bytes."""
        for page in self._pages(Prefix=prefix):
            for one in cast("list[dict[str, str]]", page.get("Contents", ())):
                yield one["Key"]

    def list_folders(self, prefix: str) -> Iterator[str]:
        """The next pieces, up to a slash, of the keys that begin so."""
        for page in self._pages(Prefix=prefix, Delimiter="/"):
            for one in cast("list[dict[str, str]]", page.get("CommonPrefixes", ())):
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

    def close(self) -> None:
        self._client.close()

    def _pages(self, **given: str) -> Iterator[Mapping[str, object]]:
        more: dict[str, object] = {}
        while True:
            page = self._ask(self._client.list_objects_v2, **given, **more)
            yield page
            if not page.get("IsTruncated"):
                return
            more = {"ContinuationToken": page["NextContinuationToken"]}

    def _delete(self, objects: list[dict[str, str]]) -> None:
        answer = self._ask(self._client.delete_objects, Delete={"Objects": objects, "Quiet": True})
        for error in cast("list[dict[str, str]]", answer.get("Errors", ())):
            raise OSError(
                f"{error.get('Key')} cannot be deleted: {error.get('Message') or error.get('Code')}"
            )

    def _ask(self, request: Callable[..., Mapping[str, object]], **values: object) -> Mapping[str, object]:
        begun = time.time()
        answer: Mapping[str, object] = {}
        try:
            answer = request(Bucket=self._name, **values)
        except Exception as error:
            # That something is not there is an answer, too, and may be all there is before a lease begins.
            answer = _response(error)
            raise
        finally:
            self._note_time(answer, begun, time.time())
        return answer

    def _note_time(self, answer: Mapping[str, object], begun: float, ended: float) -> None:
        """The server told its time, in whole seconds, some time between these two. What is thought of its
        clock changes only if it cannot be: an answer that took long says little."""
        try:
            told = cast("Mapping[str, Mapping[str, str]]", answer["ResponseMetadata"])
            there = parsedate_to_datetime(told["HTTPHeaders"]["date"]).timestamp()
        except (KeyError, ValueError, TypeError):
            return
        least, most = there - ended, there + 1 - begun
        if not least - _SKEW <= self._skew <= most + _SKEW:
            self._skew = (least + most) / 2


def code_of(error: Exception) -> str:
    """What the server calls its failure; empty if it is none of the server's."""
    about = cast("Mapping[str, object]", _response(error).get("Error", {}))
    return str(about.get("Code", ""))


def _response(error: Exception) -> Mapping[str, object]:
    return cast("Mapping[str, object]", getattr(error, "response", None) or {})


# Names of objects.

_ODD: Final = re.compile(rb"[^A-Za-z0-9_-]")
_LONGEST: Final = 180
"""A key has up to 1024 bytes, and three such pieces."""
_HEAD: Final = 100

START: Final = "0" * 16
"""The link before the first batch."""


def _escaped(text: str) -> str:
    data = to_bytes(text)
    # Dots too: some take `..` for a step up. No percent signs: some decode them.
    escaped = _ODD.sub(lambda found: b"!%02X" % found[0][0], data).decode() or "!"
    if len(escaped) <= _LONGEST:
        return escaped
    return f"{escaped[:_HEAD]}!!{hashlib.sha256(data).hexdigest()}"


def mark_of(batch: str) -> str:
    """What a batch is known by, whatever is in its id."""
    return hashlib.sha256(to_bytes(batch)).hexdigest()[:32]


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
