"""Defines `RedisStore`, a session store in Redis.

What has to be atomic is a Lua script that the server runs.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from functools import partial
from hashlib import sha1
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import quote_from_bytes, unquote_to_bytes

from outrider._lazy import with_extra
from outrider.errors import OptionsError
from outrider.transcripts.stores._base import RESERVED, Place, check_version, to_bytes, to_text
from outrider.transcripts.stores._blocking import DEFAULT_TIMEOUT
from outrider.transcripts.stores._heads import Batch, Change, Conflict, Head, HeadStore, Part, read_head
from outrider.transcripts.stores._shared import Resource, Share, close_later
from outrider.transcripts.stores._urls import FLAG, SECONDS, TEXT, shown, take_parameters

if TYPE_CHECKING:
    from collections.abc import Hashable
    from typing import Self

_PARAMETERS: Final = {"prefix": TEXT, "cluster": FLAG, "timeout": SECONDS}
_GRACE: Final = 0.25
"""The driver gives up so much later than the call, which says so better."""

_VERSION: Final = 2
"""Up to 1, the sessions of a project were in a set, and are in one that is sorted by time since."""

# Scripts. All keys of a session are in one slot of a cluster.

_READ: Final = """
local time = redis.call('TIME')
return {time[1], time[2], redis.call('GET', KEYS[1])}
"""
"""The server's time, and a head."""

_REPLACE: Final = """
-- KEYS: head, the batches that one is added to, and all that goes.
-- ARGV: checksum of the head that was read, or '', the new head, or '', and perhaps a batch.
local head = redis.call('GET', KEYS[1])
if (head and redis.sha1hex(head) or '') ~= ARGV[1] then
    return {0}
end
if ARGV[3] then
    redis.call('RPUSH', KEYS[2], ARGV[3])
end
for i = 3, #KEYS do
    redis.call('UNLINK', KEYS[i])
end
if ARGV[2] == '' then
    redis.call('DEL', KEYS[1])
else
    redis.call('SET', KEYS[1], ARGV[2])
end
return {1}
"""
"""Replace a head, if it is the one that was read."""


# The store.


Times: TypeAlias = dict[bytes, dict[bytes, int]]
"""Times of sessions, by the key of a list and the name in it."""


class _Client:
    """A client, and the scripts as it runs them: by their hash, or whole where the server forgot it."""

    def __init__(self, driver: Any, *, is_cluster: bool) -> None:  # noqa: ANN401 - its types say that each answer may be awaited
        self.driver = driver
        self.read = driver.register_script(_READ)
        self._replace = driver.register_script(_REPLACE)
        self._is_cluster = is_cluster

    def replace(self, keys: list[bytes], values: list[bytes], times: Times) -> bool:
        """Replace a head, and note the times of sessions in lists that are sorted by it; if the head is not
        replaced, the times may be noted all the same."""
        if not times:
            return bool(self._replace(keys, values)[0])
        if self._is_cluster:
            # They are on different nodes.
            is_replaced = bool(self._replace(keys, values)[0])
            return is_replaced and bool(self._note(self.driver.pipeline(), times))
        # All at once: the server may write to its disk before each answer.
        pipeline = self.driver.pipeline(transaction=False)
        pipeline.evalsha(self._replace.sha, len(keys), *keys, *values)
        answer: object = self._note(pipeline, times)[0]
        if isinstance(answer, import_module("redis").exceptions.NoScriptError):
            answer = self._replace(keys, values)
        if isinstance(answer, Exception):
            raise answer
        return answer == [1]

    @staticmethod
    def _note(pipeline: Any, times: Times) -> list[Any]:  # noqa: ANN401 - as above
        for name, its in times.items():
            pipeline.zadd(name, its)
        # Without its own words around an error, which have keys in them.
        answers: list[Any] = pipeline.execute(raise_on_error=False)
        for answer in answers[-len(times) :]:
            if isinstance(answer, Exception):
                raise answer
        return answers


class _Connections(Resource):
    """A client of one server or cluster, which has connections."""

    def __init__(self, url: str, is_cluster: bool, timeout: float | None) -> None:
        super().__init__()
        self._address = url, is_cluster, timeout
        self._client: _Client | None = None
        self._making = threading.Lock()
        self._used_at = 0.0
        self._is_open = False
        self.checked: set[bytes] = set()
        """The prefixes whose version is known."""

    def client(self) -> _Client:
        # Not when this is made: the client of a cluster connects at once.
        with self._making:
            if self._client is None:
                self._client = _Client(_make_client(*self._address), is_cluster=self._address[1])
            client, self._used_at, was_open = self._client, time.monotonic(), self._is_open
            self._is_open = True
        if not was_open:
            close_later()
        return client

    @property
    def has_idle(self) -> bool:
        return self._is_open

    def close_idle(self, seconds: float) -> None:
        with self._making:
            client, is_due = self._client, time.monotonic() - self._used_at >= seconds
            self._is_open = self._is_open and not is_due
        if client is None or not is_due:
            return
        is_cluster = self._address[1]
        # A node of a cluster may not have been asked yet.
        nodes = (
            [node.redis_connection for node in client.driver.get_nodes()] if is_cluster else [client.driver]
        )
        for one in filter(None, nodes):
            one.connection_pool.disconnect(inuse_connections=False)

    def close(self) -> None:
        with self._making:
            client, self._client, self._is_open = self._client, None, False
        if client is not None:
            client.driver.close()


class RedisStore(HeadStore):
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
        try:
            self._driver = import_module("redis")
        except ModuleNotFoundError as error:
            raise with_extra(error, "RedisStore") from error
        self._prefix = to_bytes(prefix)
        self._shared = Share(("redis", url, cluster, timeout), partial(_Connections, url, cluster, timeout))
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

    # Heads and batches.

    def _read(self, session: Place) -> tuple[Head, bytes | None]:
        answer: tuple[bytes, bytes, bytes | None] = self._connected().read([self._key(session)], [])
        seconds, microseconds, data = answer
        self._note_time(int(seconds) + int(microseconds) / 1e6)
        return read_head(session, data), data

    def _replace(self, session: Place, change: Change, version: bytes | None) -> bytes | None:
        keys, data = [self._key(session)], change.head.data
        seen = b"" if version is None else sha1(version).hexdigest().encode()
        values = [seen, data or b""]
        if change.batch is not None:
            keys.append(self._batches(session, change.head.parts[change.name]))
            values.append(change.batch.mark.encode() + b"\n" + change.batch.data)
        elif change.gone:
            # Stands for the batches that one is added to.
            keys.append(keys[0])
        keys += [self._batches(session, part) for _, part in change.gone]
        if change.is_first:
            self._list(session)
            self._note_time_of(session, change.head)
        is_new = change.head.mtime is not None and change.head.mtime != change.before.mtime
        is_replaced = self._connected().replace(
            keys, values, self._times(session, change.head) if is_new else {}
        )
        if change.is_first:
            # Again: it may have been deleted in between, and taken off the list.
            self._list(session)
            self._note_time_of(session, change.head)
        if not is_replaced:
            raise Conflict
        if change.is_last:
            self._unlist(session)
        return data

    def _read_batches(self, place: Place, part: Part, start: int, stop: int) -> list[Batch]:
        found: list[bytes] = self._connected().driver.lrange(self._batches(place.main, part), start, stop - 1)
        split = (batch.partition(b"\n") for batch in found)
        return [Batch(mark.decode(), data) for mark, _, data in split]

    def _find_heads(
        self, *, project: str | None = None, session: str | None = None
    ) -> list[tuple[str, bytes]]:
        client = self._connected().driver
        if project is not None:
            listed: list[bytes] = client.zrange(self._named("times", project), 0, -1)
            places = [Place(project, to_text(one)) for one in listed]
        else:
            projects: set[bytes] = client.smembers(self._named("session", session))
            places = [Place(to_text(one), session or "") for one in projects]
        return self._heads_of(places)

    def _find_latest(self, project: str | None, limit: int) -> list[tuple[str, bytes]]:
        name, found, start = self._named("times", project), list[tuple[str, bytes]](), 0
        while True:
            wanted = limit - len(found)
            listed: list[bytes] = self._connected().driver.zrevrange(name, start, start + wanted - 1)
            places = [
                Place(project, to_text(one)) if project is not None else _to_place(one) for one in listed
            ]
            found += self._heads_of(places)
            if len(found) >= limit or len(listed) < wanted:
                return found
            start += wanted

    def _heads_of(self, places: list[Place]) -> list[tuple[str, bytes]]:
        if not places:
            return []
        pipeline = self._connected().driver.pipeline(transaction=False)
        for place in places:
            pipeline.get(self._key(place))
        # What is listed may not be there.
        heads: list[bytes | None] = pipeline.execute()
        found = zip(places, heads, strict=True)
        return [(place.session, data) for place, data in found if data is not None]

    def _list_projects(self) -> list[str]:
        projects = map(to_text, self._connected().driver.smembers(self._named("projects")))
        return [project for project in projects if self._list_summaries(project)]

    def _list(self, session: Place) -> None:
        pipeline = self._connected().driver.pipeline(transaction=False)
        project = to_bytes(session.project)
        pipeline.sadd(self._named("projects"), project)
        pipeline.sadd(self._named("session", session.session), project)
        pipeline.execute()

    def _times(self, session: Place, head: Head) -> Times:
        mtime, own = head.mtime or 0, to_bytes(session.session)
        times = {self._named("times", session.project): {own: mtime}}
        if not session.project.startswith(RESERVED):
            times[self._named("times")] = {_to_member(session): mtime}
        return times

    def _note_time_of(self, session: Place, head: Head) -> None:
        for name, its in self._times(session, head).items():
            self._connected().driver.zadd(name, its)

    def _unlist(self, session: Place) -> None:
        client = self._connected().driver
        project, of_project = to_bytes(session.project), self._named("times", session.project)
        client.zrem(of_project, to_bytes(session.session))
        client.zrem(self._named("times"), _to_member(session))
        client.srem(self._named("session", session.session), project)
        if not client.zcard(of_project):
            client.srem(self._named("projects"), project)
        # Somebody may have written to it, or to another of the project, just now.
        head = self._read(session)[0]
        if head.mtime is not None:
            self._list(session)
            self._note_time_of(session, head)
        elif client.zcard(of_project):
            client.sadd(self._named("projects"), project)

    # Keys and connections.

    def _key(self, session: Place) -> bytes:
        """The key of a head. What is in braces says which slot all keys of the session are in."""
        return b"%s:{%s:%s}" % (self._prefix, _escaped(session.project), _escaped(session.session))

    def _batches(self, session: Place, part: Part) -> bytes:
        return b"%s:%s" % (self._key(session), part.generation.encode())

    def _named(self, what: str, name: str | None = None) -> bytes:
        return b":".join([self._prefix, what.encode(), *([] if name is None else [_escaped(name)])])

    def _connected(self) -> _Client:
        connections = self._shared.get()
        client = connections.client()
        if self._prefix not in connections.checked:
            self._check_version(client.driver)
            connections.checked.add(self._prefix)
        return client

    @property
    def _address(self) -> Hashable:
        return self._shared.key

    def _check_version(self, client: Any) -> None:  # noqa: ANN401 - as above
        name = self._named("version")
        client.set(name, str(_VERSION).encode(), nx=True)
        version = int(client.get(name) or _VERSION)
        check_version(self._name, "its keys are", version, _VERSION, "`prefix`")
        if version < _VERSION:
            self._upgrade(client)
            client.set(name, str(_VERSION).encode())

    def _upgrade(self, client: Any) -> None:  # noqa: ANN401 - as above
        """Several may do it at once, and again if it failed half-way."""
        for project in map(to_text, client.smembers(self._named("projects"))):
            for session in client.smembers(self._named("project", project)):
                place = Place(project, to_text(session))
                with suppress(ValueError):  # damaged: no list has it
                    head = read_head(place, client.get(self._key(place)))
                    for name, its in self._times(place, head).items() if head.mtime is not None else ():
                        client.zadd(name, its)
            client.unlink(self._named("project", project))

    def _close(self) -> None:
        self._shared.let_go()

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


def _make_client(url: str, is_cluster: bool, timeout: float | None) -> Any:  # noqa: ANN401 - as above
    driver, limit = import_module("redis"), None if timeout is None else timeout + _GRACE
    retry = import_module("redis.retry").Retry
    no_wait = import_module("redis.backoff").NoBackoff
    # To try again is safe here, whatever the server had done: all is done once, or does the same twice.
    lost = (driver.ConnectionError,)
    options: dict[str, object] = {
        "socket_timeout": limit,
        "socket_connect_timeout": limit,
        "decode_responses": False,
        "protocol": 2,
        "retry": retry(no_wait(), 1, supported_errors=lost),
    }
    if not url.startswith("unix:"):
        options["socket_keepalive"] = True
    return (driver.RedisCluster if is_cluster else driver.Redis).from_url(url, **options)


def _to_member(session: Place) -> bytes:
    """The name of a session among those of all projects; `_to_place` undoes it."""
    return b"%s:%s" % (_escaped(session.project), _escaped(session.session))


def _to_place(member: bytes) -> Place:
    project, _, session = member.partition(b":")
    return Place(to_text(unquote_to_bytes(project)), to_text(unquote_to_bytes(session)))


def _escaped(text: str) -> bytes:
    return quote_from_bytes(to_bytes(text), safe="").encode()
