"""Appends to stores, against the bare driver. The reference has no such stores, so nothing of it is here."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias, cast
from uuid import uuid4

import anyio

from outrider.transcripts import (
    FileStore,
    PostgresStore,
    RedisStore,
    SessionKey,
    SessionStore,
    SessionStoreEntry,
    SqliteStore,
)
from outrider.transcripts.stores._base import encode
from tests.transcripts.stores import servers

ENTRY_SIZE = 2000
SIZES = (1, 50)
"""Entries of a batch."""

CREATE = "CREATE TABLE bare (id {serial}, uuid text UNIQUE, body {blob} NOT NULL)"
"""The least that keeps entries in order and each of them once."""


class Appends(NamedTuple):
    """How long one append took, at best, by the store and by the bare driver."""

    store: str
    size: int
    ours: float
    bare: float


Rows: TypeAlias = list[tuple[str, bytes]]
Subject: TypeAlias = tuple[str, SessionStore, Callable[[Rows], None]]
"""A store, its name, and how the bare driver does it."""


def measure(folder: Path, *, quick: bool) -> Iterator[Appends]:
    """Nothing for a store whose server is not installed."""
    rounds, batches = (2, 40) if quick else (5, 200)
    for make in (_file, _sqlite, _postgres, _redis):
        subject = make(folder)
        if subject is None:
            continue
        name, store, insert = subject
        for size in SIZES:
            ours: list[float] = []
            bare: list[float] = []
            for _ in range(rounds):
                given = [_entries(size) for _ in range(batches)]
                ours.append(anyio.run(_append, store, given) / batches)
                bare.append(_insert(insert, given) / batches)
            yield Appends(name, size, min(ours), min(bare))
        anyio.run(store.close)


async def _append(store: SessionStore, batches: list[list[SessionStoreEntry]]) -> float:
    key: SessionKey = {"project_key": "bench", "session_id": str(uuid4())}
    # Connects, and makes the session.
    await store.append_batch(key, _entries(1), "first")
    begin = time.perf_counter()
    for number, batch in enumerate(batches):
        await store.append_batch(key, batch, str(number))
    return time.perf_counter() - begin


def _insert(insert: Callable[[Rows], None], batches: list[list[SessionStoreEntry]]) -> float:
    begin = time.perf_counter()
    for batch in batches:
        insert([(cast("str", entry.get("uuid")), encode(entry)) for entry in batch])
    return time.perf_counter() - begin


def _entries(count: int) -> list[SessionStoreEntry]:
    text = "x" * (ENTRY_SIZE - 100)
    return cast(
        "list[SessionStoreEntry]",
        [{"type": "user", "uuid": str(uuid4()), "message": {"content": text}} for _ in range(count)],
    )


def _file(folder: Path) -> Subject:
    number = os.open(folder / "bare.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def insert(rows: Rows) -> None:
        os.write(number, b"".join(body + b"\n" for _, body in rows))
        os.fsync(number)

    return "files", FileStore(folder / "files"), insert


def _redis(_: Path) -> Subject | None:
    server = servers.started_redis()
    if server is None:
        return None
    bare = server.client()

    def insert(rows: Rows) -> None:
        # Each entry once, in order: what a program would do that keeps nothing else.
        pipeline = bare.pipeline()
        pipeline.sadd("bare uuids", *(uuid for uuid, _ in rows))
        pipeline.rpush("bare", *(body for _, body in rows))
        pipeline.execute()

    return "Redis", RedisStore(server.url()), insert


def _sqlite(folder: Path) -> Subject:
    bare = sqlite3.connect(folder / "bare.db", isolation_level=None)
    for pragma in ("journal_mode = WAL", "synchronous = FULL"):
        bare.execute(f"PRAGMA {pragma}")
    bare.execute(CREATE.format(serial="INTEGER PRIMARY KEY", blob="BLOB"))

    def insert(rows: Rows) -> None:
        bare.execute("BEGIN IMMEDIATE")
        for row in rows:
            bare.execute("INSERT INTO bare (uuid, body) VALUES (?, ?)", row)
        bare.execute("COMMIT")

    return "SQLite", SqliteStore(folder / "store.db"), insert


def _postgres(_: Path) -> Subject | None:
    import psycopg

    server = servers.started_postgres()
    if server is None:
        return None
    bare = psycopg.connect(server.url())
    bare.execute(CREATE.format(serial="bigserial PRIMARY KEY", blob="bytea").encode())
    bare.commit()

    def insert(rows: Rows) -> None:
        for row in rows:
            bare.execute("INSERT INTO bare (uuid, body) VALUES (%s, %s)", row)
        bare.commit()

    return "PostgreSQL", PostgresStore(server.url()), insert
