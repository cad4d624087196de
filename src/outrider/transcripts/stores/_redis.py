"""Defines `RedisStore`, a session store in Redis.

What has to be atomic is a Lua script that the server runs.
"""

from __future__ import annotations

import threading
from importlib import import_module
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, cast
from urllib.parse import quote_from_bytes
from uuid import uuid4

from outrider.errors import OptionsError, SessionBusy
from outrider.transcripts.stores._base import (
    Lease,
    Place,
    check_version,
    decode,
    fold_summary,
    fresh_lines,
    to_bytes,
    to_text,
)
from outrider.transcripts.stores._blocking import DEFAULT_TIMEOUT, BlockingStore, Listed, raise_if_abandoned
from outrider.transcripts.stores._urls import FLAG, SECONDS, TEXT, shown, take_parameters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Self

    from outrider.transcripts.stores._base import Line, SessionStoreEntry

_PARAMETERS: Final = {"prefix": TEXT, "cluster": FLAG, "timeout": SECONDS}
_GRACE: Final = 0.25
"""The driver gives up so much later than the call, which says so better."""

_VERSION: Final = 1

# Scripts. All keys of a session are in one slot of a cluster. Times are the server's, in milliseconds.

_LEASE_OF: Final = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local lease = redis.call('HMGET', KEYS[1], 'token', 'holder', 'until')
local left = lease[1] and tonumber(lease[3]) - now or 0
"""

_LOOK: Final = (
    _LEASE_OF
    + """
-- KEYS: session, uuids, batches. ARGV: stamp's name, batch or '', uuids.
local known = {}
for i = 3, #ARGV do
    known[i - 2] = redis.call('SISMEMBER', KEYS[2], ARGV[i])
end
local is_known = ARGV[2] ~= '' and redis.call('SISMEMBER', KEYS[3], ARGV[2]) or 0
local found = redis.call('HMGET', KEYS[1], ARGV[1], 'summary')
return {found[1] or '', found[2] or '', is_known, known, lease[1] or '', lease[2] or '', left}
"""
)
"""What has to be known before an append."""

_PUT: Final = (
    _LEASE_OF
    + """
-- KEYS: session, parts, entries, uuids, batches.
-- ARGV: token, stamp's name, stamp that was seen, new stamp, part, batch or '', summary, then uuid or '' and
-- entry in turns.
if left > 0 and lease[1] ~= ARGV[1] then
    return {'busy', lease[2], left}
end
if (redis.call('HGET', KEYS[1], ARGV[2]) or '') ~= ARGV[3] then
    return {'moved'}
end
local entries, uuids = {}, {}
local function flush(key, command, values)
    if #values > 0 then
        redis.call(command, key, unpack(values))
    end
    return {}
end
for i = 8, #ARGV, 2 do
    if ARGV[i] ~= '' then
        uuids[#uuids + 1] = ARGV[i]
    end
    entries[#entries + 1] = ARGV[i + 1]
    -- No more than some thousand arguments fit on Lua's stack.
    if #entries == 1000 then
        entries, uuids = flush(KEYS[3], 'RPUSH', entries), flush(KEYS[4], 'SADD', uuids)
    end
end
flush(KEYS[3], 'RPUSH', entries)
flush(KEYS[4], 'SADD', uuids)
if ARGV[6] ~= '' then
    redis.call('SADD', KEYS[5], ARGV[6])
end
redis.call('HSET', KEYS[1], ARGV[2], ARGV[4])
if ARGV[5] ~= '' then
    redis.call('SADD', KEYS[2], ARGV[5])
elseif #ARGV >= 8 then
    local latest = tonumber(redis.call('HGET', KEYS[1], 'mtime') or 0)
    redis.call('HSET', KEYS[1], 'summary', ARGV[7], 'mtime', string.format('%.0f', math.max(now, latest + 1)))
end
return {'done'}
"""
)
"""Append, if nobody did since it was looked."""

_DELETE: Final = (
    _LEASE_OF
    + """
-- KEYS: session, parts, and all that goes. ARGV: token, and the parts that there were, or for one part:
-- its name, its stamp's name.
if left > 0 and lease[1] ~= ARGV[1] then
    return {'busy', lease[2], left}
end
if ARGV[2] == 'part' then
    redis.call('SREM', KEYS[2], ARGV[3])
    redis.call('HDEL', KEYS[1], ARGV[4])
else
    if redis.call('SCARD', KEYS[2]) ~= #ARGV - 2 then
        return {'moved'}
    end
    for i = 3, #ARGV do
        if redis.call('SISMEMBER', KEYS[2], ARGV[i]) == 0 then
            return {'moved'}
        end
    end
    redis.call('DEL', KEYS[1], KEYS[2])
    if lease[1] then
        redis.call('HSET', KEYS[1], 'token', lease[1], 'holder', lease[2], 'until', lease[3])
    end
end
for i = 3, #KEYS do
    redis.call('UNLINK', KEYS[i])
end
return {'done'}
"""
)
"""Remove a part, or all of a session but its lease."""

_LEASE: Final = (
    _LEASE_OF
    + """
-- KEYS: session. ARGV: nothing, to look; or the token and the end that were seen, and the new token, or '',
-- holder, milliseconds.
if #ARGV == 0 then
    return {lease[1] or '', lease[2] or '', left, lease[3] or ''}
end
if (lease[1] or '') ~= ARGV[1] or (lease[3] or '') ~= ARGV[2] then
    return {'moved'}
end
if ARGV[3] == '' then
    redis.call('HDEL', KEYS[1], 'token', 'holder', 'until')
else
    redis.call('HSET', KEYS[1], 'token', ARGV[3], 'holder', ARGV[4])
    redis.call('HSET', KEYS[1], 'until', string.format('%.0f', now + tonumber(ARGV[5])))
end
return {'done'}
"""
)
"""Look at a lease; or change it, if nobody did since it was looked at."""


# The store.

_Script: TypeAlias = "Callable[[Sequence[bytes], Sequence[bytes]], list[object]]"


class _Commands(Protocol):
    """What is used of the driver: its own types say that each answer may have to be awaited."""

    def sadd(self, name: bytes, *values: bytes) -> object: ...
    def srem(self, name: bytes, *values: bytes) -> object: ...
    def smembers(self, name: bytes) -> set[bytes]: ...
    def scard(self, name: bytes) -> int: ...
    def lrange(self, name: bytes, start: int, end: int) -> list[bytes]: ...
    def hmget(self, name: bytes, keys: list[str]) -> list[bytes | None]: ...
    def set(self, name: bytes, value: bytes, *, nx: bool) -> object: ...
    def get(self, name: bytes) -> bytes | None: ...


class _Pipeline(_Commands, Protocol):
    def execute(self) -> list[object]: ...


class _Client(_Commands, Protocol):
    def register_script(self, script: str) -> _Script: ...
    def pipeline(self, *, transaction: bool) -> _Pipeline: ...
    def close(self) -> None: ...


class _Connected:
    """A client, and the scripts as it runs them: by their hash, or whole where the server forgot it."""

    def __init__(self, client: _Client) -> None:
        self.client = client
        self.look = client.register_script(_LOOK)
        self.put = client.register_script(_PUT)
        self.delete = client.register_script(_DELETE)
        self.lease = client.register_script(_LEASE)


class _Looked:
    """What there was before an append."""

    def __init__(self, answer: list[object]) -> None:
        stamp, summary, is_known, known, token, holder, left = answer
        self.stamp = cast("bytes", stamp)
        self.summary = cast("bytes", summary) or None
        self.is_known = bool(is_known)
        self.known = [bool(one) for one in cast("list[int]", known)]
        self.lease = _read_lease(token, holder, left)


class RedisStore(BlockingStore):
    """Stores sessions in Redis or a compatible server, with redis-py.

        RedisStore("redis://:password@host:6379/0")
        RedisStore("rediss://host:7000", cluster=True)

    All keys begin with `prefix`; those of a session are in one slot of a cluster. Each call writes
    atomically. Whether that survives a crash of the server depends on its settings: set `appendonly yes`, and
    `appendfsync always` where not even a second may be lost. Do not set a `maxmemory-policy` that drops keys.

    Raises `StoreError` if it fails; `retryable` says whether a later call may succeed.
    """

    def __init__(
        self,
        url: str,
        *,
        prefix: str = "outrider",
        cluster: bool = False,
        timeout: float | None = DEFAULT_TIMEOUT,
    ) -> None:
        super().__init__(shown(url), timeout=timeout)
        if not prefix or any(sign in prefix for sign in "{}"):
            raise OptionsError(f"`prefix` is {prefix!r}", hint="Give some text without braces.")
        self._driver = import_module("redis")
        self._url, self._prefix, self._is_cluster = url, to_bytes(prefix), cluster
        self._connection: _Connected | None = None
        self._is_checked = False
        self._forget()
        try:
            # Makes an object, and no connection: each parameter of the URL has to be one of the driver's.
            self._driver.ConnectionPool.from_url(url).make_connection()
        except (ValueError, TypeError, AttributeError, self._driver.RedisError):
            # The driver's text may hold a piece of the password.
            raise OptionsError(
                f"{self._name!r} is not the address of a Redis server",
                hint="Write redis://:password@host:6379/0, rediss://… or unix:///path; what follows a `?` has"
                " to be a parameter of the driver.",
            ) from None

    @classmethod
    def from_url(cls, url: str) -> Self:
        """With `?prefix=`, `?cluster=1` and `?timeout=`; all else is the driver's."""
        rest, given = take_parameters(url, _PARAMETERS, others=True)
        return cls(rest, **given)

    # Writing.

    def _append(self, place: Place, lines: list[Line], batch: str | None) -> None:
        redis, keys, stamp = self._connected(), self._keys(place), uuid4().hex.encode()
        asked = [_mark(line.uuid) for line in lines if line.uuid is not None]
        mark = b"" if batch is None else _mark(batch)
        if batch is None and len(asked) < len(lines):
            # The driver sends again what was not answered, and others may have appended meanwhile.
            mark = b"~" + stamp
        while True:
            seen = _Looked(redis.look([keys.session, keys.uuids, keys.batches], [keys.stamp, mark, *asked]))
            if seen.stamp == stamp:
                # The answer to the last try was lost on its way.
                break
            self._check_lease(place, seen.lease)
            if seen.is_known:
                return
            known = {uuid for uuid, is_in in zip(asked, seen.known, strict=True) if is_in}
            fresh = fresh_lines(lines, known, _mark)
            if not fresh and batch is None:
                return
            if place.subpath is None and not seen.stamp:
                self._list(place)
            summary = b""
            if place.subpath is None:
                summary = fold_summary(place, seen.summary, [line for line, _ in fresh])
            values = [value for line, uuid in fresh for value in (uuid or b"", line.data)]
            part = to_bytes(place.part)
            token = (self._token(place) or "").encode()
            raise_if_abandoned()
            answer = redis.put(
                [keys.session, keys.parts, keys.entries, keys.uuids, keys.batches],
                [token, keys.stamp, seen.stamp, stamp, part, mark, summary, *values],
            )
            if answer[0] == b"moved":
                continue
            self._refuse_busy(place, answer)
            if place.subpath is not None or seen.stamp:
                return
            break
        if place.subpath is None:
            # Again: it may have been deleted in between, and taken off the list.
            self._list(place)

    def _list(self, place: Place) -> None:
        pipeline = self._connected().client.pipeline(transaction=False)
        project, session = to_bytes(place.project), to_bytes(place.session)
        pipeline.sadd(self._named("projects"), project)
        pipeline.sadd(self._named("project", place.project), session)
        pipeline.sadd(self._named("session", place.session), project)
        pipeline.execute()

    def _delete(self, place: Place) -> None:
        redis, keys = self._connected(), self._keys(place)
        token = (self._token(place) or "").encode()
        while True:
            if place.subpath is not None:
                going, told = keys.transcript, [b"part", to_bytes(place.part), keys.stamp]
            else:
                parts = sorted(redis.client.smembers(keys.parts))
                going = [*keys.transcript]
                for part in parts:
                    subpath = Place.subpath_of(to_text(part))
                    going += self._keys(place._replace(subpath=subpath)).transcript
                told = [b"session", *parts]
            raise_if_abandoned()
            answer = redis.delete([keys.session, keys.parts, *going], [token, *told])
            if answer[0] != b"moved":
                break
        self._refuse_busy(place, answer)
        if place.subpath is None:
            self._unlist(place)

    def _unlist(self, place: Place) -> None:
        client = self._connected().client
        project, session = to_bytes(place.project), to_bytes(place.session)
        client.srem(self._named("project", place.project), session)
        client.srem(self._named("session", place.session), project)
        if not client.scard(self._named("project", place.project)):
            client.srem(self._named("projects"), project)
        # Somebody may have written to it, or to another of the project, just now.
        is_back = self._times([place])[0] is not None
        if is_back or client.scard(self._named("project", place.project)):
            client.sadd(self._named("projects"), project)
        if is_back:
            self._list(place)

    # Reading.

    def _load(self, place: Place) -> list[SessionStoreEntry] | None:
        entries = self._connected().client.lrange(self._keys(place).entries, 0, -1)
        return [decode(entry) for entry in entries] or None

    def _list_sessions(self, project: str, *, summaries: bool) -> list[Listed]:
        listed = self._connected().client.smembers(self._named("project", project))
        sessions = [Place(project, to_text(session)) for session in listed]
        fields = self._fields(sessions, "mtime", *(["summary"] if summaries else []))
        # What is listed may not be there; whether a session is, it tells itself.
        return [
            (session.session, int(mtime), summary[0] if summary else None)
            for session, (mtime, *summary) in zip(sessions, fields, strict=True)
            if mtime is not None
        ]

    def _list_subkeys(self, session: Place) -> list[str]:
        parts = self._connected().client.smembers(self._keys(session).parts)
        return [subpath for part in parts if (subpath := Place.subpath_of(to_text(part))) is not None]

    def _list_projects(self) -> list[str]:
        projects = [
            to_text(project) for project in self._connected().client.smembers(self._named("projects"))
        ]
        return [project for project in projects if self._list_sessions(project, summaries=False)]

    def _find_session(self, session_id: str) -> list[str]:
        found = self._connected().client.smembers(self._named("session", session_id))
        places = [Place(to_text(project), session_id) for project in found]
        times = self._times(places)
        return [place.project for place, time in zip(places, times, strict=True) if time is not None]

    def _times(self, sessions: Iterable[Place]) -> list[int | None]:
        return [None if time is None else int(time) for (time,) in self._fields(sessions, "mtime")]

    def _fields(self, sessions: Iterable[Place], *fields: str) -> list[list[bytes | None]]:
        pipeline = self._connected().client.pipeline(transaction=False)
        for session in sessions:
            pipeline.hmget(self._keys(session).session, list(fields))
        return cast("list[list[bytes | None]]", pipeline.execute())

    # Leases.

    def _change_lease(self, session: Place, change: Callable[[Lease | None], Lease | None]) -> None:
        redis, keys = self._connected(), [self._keys(session).session]
        while True:
            token, holder, left, end = cast("tuple[bytes, bytes, int, bytes]", redis.lease(keys, []))
            kept = _read_lease(token, holder, left)
            lease = change(kept)
            if lease is kept:
                return
            new = lease or Lease("", "", 0)
            wanted = [to_bytes(new.token), to_bytes(new.holder), b"%d" % round(min(new.seconds, 1e9) * 1000)]
            if redis.lease(keys, [token, end, *wanted])[0] != b"moved":
                return

    def _refuse_busy(self, place: Place, answer: list[object]) -> None:
        if answer[0] == b"busy":
            holder, left = cast("tuple[bytes, int]", answer[1:])
            raise SessionBusy(place.session, to_text(holder), retry_after=left / 1000)

    # Keys and connections.

    def _keys(self, place: Place) -> _Keys:
        return _Keys(self._prefix, place)

    def _named(self, what: str, name: str | None = None) -> bytes:
        return b":".join([self._prefix, what.encode(), *([] if name is None else [_escaped(name)])])

    def _connected(self) -> _Connected:
        with self._connecting:
            if self._connection is None:
                self._connection = _Connected(self._make_client())
            connection = self._connection
        if not self._is_checked:
            self._check_version(connection.client)
            self._is_checked = True
        return connection

    def _make_client(self) -> _Client:
        limit = None if self._timeout is None else self._timeout + _GRACE
        retry = import_module("redis.retry").Retry
        no_wait = import_module("redis.backoff").NoBackoff
        # To try again is safe here, whatever the server had done: all is done once, or does the same twice.
        lost = (self._driver.ConnectionError,)
        options: dict[str, object] = {
            "socket_timeout": limit,
            "socket_connect_timeout": limit,
            "decode_responses": False,
            "protocol": 2,
            "retry": retry(no_wait(), 1, supported_errors=lost),
        }
        if not self._url.startswith("unix:"):
            options["socket_keepalive"] = True
        if self._is_cluster:
            return cast("_Client", self._driver.RedisCluster.from_url(self._url, **options))
        return cast("_Client", self._driver.Redis.from_url(self._url, **options))

    def _check_version(self, client: _Client) -> None:
        name = self._named("version")
        client.set(name, str(_VERSION).encode(), nx=True)
        check_version(self._name, "its keys are", int(client.get(name) or _VERSION), _VERSION, "`prefix`")

    def _close(self) -> None:
        with self._connecting:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.client.close()

    def _forget(self) -> None:
        self._connecting = threading.Lock()
        self._connection = None
        self._is_checked = False

    def _explain(self, error: Exception) -> tuple[str, bool] | None:
        driver = self._driver
        # The second is none of the first, and is raised if no node can be reached.
        if not isinstance(error, (driver.RedisError, driver.exceptions.RedisClusterException)):
            return None
        reason = str(error) or type(error).__name__
        if isinstance(error, driver.AuthenticationError) or reason.startswith(("NOAUTH", "WRONGPASS")):
            return f"{reason}; check user and password in the URL", False
        if "DB index is out of range" in reason or "SELECT is not allowed" in reason:
            return f"there is no such database ({reason}); give another number at the end of the URL", False
        if reason.startswith("NOPERM"):
            return f"{reason}; the user needs all commands on the keys {to_text(self._prefix)}:*", False
        if "'maxmemory'" in reason:
            return f"{reason}; raise `maxmemory`, or delete sessions", True
        passing = (
            driver.ConnectionError,
            driver.TimeoutError,
            driver.ReadOnlyError,
            driver.exceptions.RedisClusterException,
        )
        return reason, isinstance(error, passing) or reason.startswith(
            ("TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN")
        )


class _Keys:
    """The keys of a session and of one of its transcripts. What is in braces says which slot they are in."""

    def __init__(self, prefix: bytes, place: Place) -> None:
        tag = b"{%s:%s}" % (_escaped(place.project), _escaped(place.session))
        base, part = prefix + b":" + tag, to_bytes(place.part)
        self.session = base
        self.parts = base + b":parts"
        self.entries = base + b":entries" + part
        self.uuids = base + b":uuids" + part
        self.batches = base + b":batches" + part
        self.stamp = b"stamp" + part
        """The field of the session that changes with each append to the transcript."""

    @property
    def transcript(self) -> list[bytes]:
        return [self.entries, self.uuids, self.batches]


def _read_lease(token: object, holder: object, left: object) -> Lease | None:
    if not token:
        return None
    return Lease(to_text(cast("bytes", token)), to_text(cast("bytes", holder)), cast("int", left) / 1000)


def _mark(text: str) -> bytes:
    """What a uuid, or the id of a batch, is known by."""
    return b"=" + to_bytes(text)


def _escaped(text: str) -> bytes:
    return quote_from_bytes(to_bytes(text), safe="").encode()
