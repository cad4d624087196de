"""Defines `RedisStore`, a session store in Redis.

What has to be atomic is a Lua script that the server runs.
"""

from __future__ import annotations

import threading
from hashlib import sha1
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote_from_bytes

from outrider._lazy import with_extra
from outrider.errors import OptionsError
from outrider.transcripts.stores._base import Place, check_version, to_bytes, to_text
from outrider.transcripts.stores._blocking import DEFAULT_TIMEOUT
from outrider.transcripts.stores._heads import Batch, Change, Conflict, Head, HeadStore, Part, read_head
from outrider.transcripts.stores._urls import FLAG, SECONDS, TEXT, shown, take_parameters

if TYPE_CHECKING:
    from typing import Self

_PARAMETERS: Final = {"prefix": TEXT, "cluster": FLAG, "timeout": SECONDS}
_GRACE: Final = 0.25
"""The driver gives up so much later than the call, which says so better."""

_VERSION: Final = 1

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


class _Connected:
    """A client, and the scripts as it runs them: by their hash, or whole where the server forgot it."""

    def __init__(self, client: Any) -> None:  # noqa: ANN401 - its types say that each answer may be awaited
        self.client = client
        self.read = client.register_script(_READ)
        self.replace = client.register_script(_REPLACE)


class RedisStore(HeadStore):
    """Stores sessions in Redis or a compatible server, with redis-py.

        RedisStore("redis://:password@host:6379/0")
        RedisStore("rediss://host:7000", cluster=True)

    All keys begin with `prefix`; those of a session are in one slot of a cluster. Each call writes
    atomically. Whether that survives a crash of the server depends on its settings: set `appendonly yes`, and
    `appendfsync always` where not even a second may be lost. Do not set a `maxmemory-policy` that drops keys.

    Raises `StoreError` if it fails; `retryable` says whether a later call may succeed.
    """

    _connection: _Connected | None
    _is_checked: bool

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
        self._url, self._prefix, self._is_cluster = url, to_bytes(prefix), cluster
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
        [is_replaced] = self._connected().replace(keys, values)
        if change.is_first:
            # Again: it may have been deleted in between, and taken off the list.
            self._list(session)
        if not is_replaced:
            raise Conflict
        if change.is_last:
            self._unlist(session)
        return data

    def _read_batches(self, place: Place, part: Part, start: int) -> list[Batch]:
        found: list[bytes] = self._connected().client.lrange(self._batches(place.main, part), start, -1)
        split = (batch.partition(b"\n") for batch in found)
        return [Batch(mark.decode(), data) for mark, _, data in split]

    def _find_heads(
        self, *, project: str | None = None, session: str | None = None
    ) -> list[tuple[str, bytes]]:
        client = self._connected().client
        listed: set[bytes]
        if project is not None:
            listed = client.smembers(self._named("project", project))
            places = [Place(project, to_text(one)) for one in listed]
        else:
            listed = client.smembers(self._named("session", session))
            places = [Place(to_text(one), session or "") for one in listed]
        pipeline = client.pipeline(transaction=False)
        for place in places:
            pipeline.get(self._key(place))
        # What is listed may not be there.
        heads: list[bytes | None] = pipeline.execute()
        found = zip(places, heads, strict=True)
        return [(place.session, data) for place, data in found if data is not None]

    def _list_projects(self) -> list[str]:
        projects = map(to_text, self._connected().client.smembers(self._named("projects")))
        return [project for project in projects if self._list_summaries(project)]

    def _list(self, session: Place) -> None:
        pipeline = self._connected().client.pipeline(transaction=False)
        project, name = to_bytes(session.project), to_bytes(session.session)
        pipeline.sadd(self._named("projects"), project)
        pipeline.sadd(self._named("project", session.project), name)
        pipeline.sadd(self._named("session", session.session), project)
        pipeline.execute()

    def _unlist(self, session: Place) -> None:
        client = self._connected().client
        project, of_project = to_bytes(session.project), self._named("project", session.project)
        client.srem(of_project, to_bytes(session.session))
        client.srem(self._named("session", session.session), project)
        if not client.scard(of_project):
            client.srem(self._named("projects"), project)
        # Somebody may have written to it, or to another of the project, just now.
        if self._read(session)[0].mtime is not None:
            self._list(session)
        elif client.scard(of_project):
            client.sadd(self._named("projects"), project)

    # Keys and connections.

    def _key(self, session: Place) -> bytes:
        """The key of a head. What is in braces says which slot all keys of the session are in."""
        return b"%s:{%s:%s}" % (self._prefix, _escaped(session.project), _escaped(session.session))

    def _batches(self, session: Place, part: Part) -> bytes:
        return b"%s:%s" % (self._key(session), part.generation.encode())

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

    def _make_client(self) -> Any:  # noqa: ANN401 - as above
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
            return self._driver.RedisCluster.from_url(self._url, **options)
        return self._driver.Redis.from_url(self._url, **options)

    def _check_version(self, client: Any) -> None:  # noqa: ANN401 - as above
        name = self._named("version")
        client.set(name, str(_VERSION).encode(), nx=True)
        check_version(self._name, "its keys are", int(client.get(name) or _VERSION), _VERSION, "`prefix`")

    def _close(self) -> None:
        with self._connecting:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.client.close()

    def _forget(self) -> None:
        super()._forget()
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


def _escaped(text: str) -> bytes:
    return quote_from_bytes(to_bytes(text), safe="").encode()
