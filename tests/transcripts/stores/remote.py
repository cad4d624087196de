"""The stores that have a server, as tests use them."""

from __future__ import annotations

from typing import Any, ClassVar
from uuid import uuid4

from outrider.transcripts import SessionKey, SessionStoreEntry
from outrider.transcripts.stores._blocking import BlockingStore
from outrider.transcripts.stores._postgres import PostgresStore
from outrider.transcripts.stores._redis import RedisStore
from outrider.transcripts.stores._s3 import S3Store
from tests.transcripts.stores import servers

__all__ = ["REMOTES", "Remote", "make_batch", "make_key"]


class Remote:
    """One kind of store, with its server."""

    def __init__(self, name: str) -> None:
        self.name = name

    def server(self) -> Any:
        match self.name:
            case "postgres":
                return servers.postgres()
            case "redis":
                return servers.redis()
            case "redis cluster":
                return servers.redis(is_cluster=True)
            case _:
                return servers.s3()

    def make(self, *, port: int = 0, timeout: float = 30.0, **more: Any) -> BlockingStore:
        server = self.server()
        match self.name:
            case "postgres":
                return PostgresStore(server.url(port=port), timeout=timeout, **more)
            case "redis":
                return RedisStore(server.url(port=port), timeout=timeout, **more)
            case "redis cluster":
                return RedisStore(server.url(port=port), cluster=True, timeout=timeout, **more)
            case _:
                return S3Store(
                    f"s3://{server.bucket}/{more.pop('prefix', 'tests')}",
                    endpoint=server.endpoint(port=port),
                    region="us-east-1",
                    access_key_id="made-up",
                    secret_access_key="made-up-word",
                    timeout=timeout,
                    **more,
                )

    __test__: ClassVar = False


REMOTES = {name: Remote(name) for name in ("postgres", "redis", "redis cluster", "s3")}


def make_key(subpath: str | None = None) -> SessionKey:
    key: SessionKey = {"project_key": f"project {uuid4()}", "session_id": str(uuid4())}
    if subpath is not None:
        key["subpath"] = subpath
    return key


def make_batch(number: int, *, size: int = 3, has_uuid: bool = False) -> list[SessionStoreEntry]:
    """Entries without a uuid are kept as often as they are stored."""
    made: list[Any] = [{"type": "user", "batch": number, "number": one} for one in range(size)]
    for entry in made if has_uuid else ():
        entry["uuid"] = str(uuid4())
    return made
