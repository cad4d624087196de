"""Which store a URL or a path stands for."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from outrider.errors import OptionsError
from outrider.transcripts import FileStore, MemoryStore, SessionStore, SqliteStore, open_store
from outrider.transcripts.stores import _urls as _open
from outrider.transcripts.stores._urls import shown
from tests.cases import every_case
from tests.transcripts.stores.local import KEY, numbered


def test_a_store_is_given_back() -> None:
    store = MemoryStore()
    assert open_store(store) is store


@pytest.mark.parametrize(
    "place, path",
    [
        ("sqlite:///agents.db", "agents.db"),
        ("sqlite:///data/my%20agents.db?timeout=5", "data/my agents.db"),
        ("sqlite:////srv/agents.db", "/srv/agents.db"),
        ("SQLITE:///a%23b%3f.db", "a#b?.db"),
        ("agents.db", "agents.db"),
        ("./odd:name.db", "odd:name.db"),
        ("/srv/agents.db", "/srv/agents.db"),
        ("c:/agents.db", "c:/agents.db"),
        (Path("a.db"), "a.db"),
    ],
    ids=str,
)
def test_a_path_is_a_sqlite_database(
    place: Any, path: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store(place)
    assert isinstance(store, SqliteStore)
    assert store.path == tmp_path / path
    assert store.timeout == (5 if "timeout" in str(place) else 30)


def test_the_home_folder_is_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    store = open_store("~/agents.db")
    assert isinstance(store, SqliteStore)
    assert store.path == tmp_path / "agents.db"


def test_a_folder_is_a_store_of_files(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/my%20sessions?timeout=2.5")
    assert isinstance(store, FileStore)
    assert store.folder == tmp_path / "my sessions"
    assert store.timeout == 2.5


@pytest.mark.anyio
async def test_a_name_stands_for_the_same_memory() -> None:
    here, there = uuid4().hex, uuid4().hex
    one, two, other = (open_store(f"memory://{name}") for name in (here, here, there))
    await one.append(KEY, numbered(0, 1))
    assert await two.load(KEY) == numbered(0, 1)
    assert one is not two
    for empty in (other, open_store("memory:"), open_store("memory://")):
        assert isinstance(empty, MemoryStore)
        assert await empty.load(KEY) is None


@every_case(
    "place, told",
    [
        ("", "is an empty string"),
        (None, "a NoneType is not a session store"),
        (5, "a int is not a session store"),
        ("mysql://me:hush@host/db", "no session store for 'mysql://me@host/db'"),
        ("http://host", "Begin it with one of sqlite:, file:, memory:, postgresql:"),
        ("sqlite://agents.db", "names the host 'agents.db'"),
        ("sqlite://", "has no path"),
        ("sqlite:///", "has no path"),
        ("sqlite:///:memory:", "`memory:` is a store in memory"),
        (":memory:", "`memory:` is a store in memory"),
        ("sqlite:///a.db?timeout=soon", "`timeout` is 'soon'"),
        ("sqlite:///a.db?timeout=-1", "`timeout` is '-1'"),
        ("sqlite:///a.db?timeout=1&timeout=2", "'timeout' appears twice"),
        ("sqlite:///a.db?mode=ro", "the parameter 'mode'"),
        ("file:///srv?mode=ro", "Known: timeout."),
        ("file://host/srv", "names the host 'host'"),
        ("file://me:hush@host/srv", "names the host 'host'"),
        ("file://[::1/x", "is not a URL"),
        ("memory:?timeout=1", "the parameter 'timeout'"),
        ("~nobody-of-that-name/agents.db", "is not a path of a SQLite database"),
        ("\ud800.db", "is not a path of a SQLite database"),
        ("file:///%00", "is not a path of a folder"),
        ("file:///srv/\ud800", "is not a path of a folder"),
        ("s3://[bucket", "is not a place in a bucket"),
        ("s3://bucket?endpoint=http://[host", "`endpoint` is not the address of a server"),
        ("s3://bucket?endpoint=http://", "`endpoint` is not the address of a server"),
        ("s3://bucket?endpoint=http://host:99999", "`endpoint` is not the address of a server"),
        ("s3://bucket?endpoint=me:hush@host", "`endpoint` is not the address of a server"),
        ("s3://bucket?endpoint=http%3A%2F%2Fme%3Ahush%40host", "`endpoint` is not the address of a server"),
        ("redis://:hush/hush@host:1", "'redis://@host:1' is not the address of a Redis server"),
        ("redis://:hush?hush@host:1", "is not the address of a Redis server"),
        ("redis://:hush@host?colour=red", "has to be a parameter of the driver"),
        ("redis://host:port", "is not the address of a Redis server"),
        ("rediss://host?ssl_cert_reqs=perhaps", "is not the address of a Redis server"),
        ("postgresql:host=here password=hush", "not the URL of a PostgreSQL database"),
    ],
)
def test_what_is_no_store_is_refused(place: Any, told: str) -> None:
    with pytest.raises(OptionsError) as caught:
        open_store(place)
    assert told in str(caught.value)
    assert "hush" not in str(caught.value)


def test_a_driver_that_is_not_whole_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> Any:
        raise ImportError("no pq wrapper available")

    monkeypatch.setattr(_open, "import_module", fail)
    with pytest.raises(OptionsError, match=r"needs psycopg: no pq wrapper available. Run: pip install"):
        open_store("postgresql://host/db")


@pytest.mark.parametrize(
    "url, driver, extra",
    [
        ("postgresql://me:hush@host/db", "psycopg", "postgres"),
        ("postgres://host", "psycopg", "postgres"),
        ("redis://:hush@host", "redis", "redis"),
        ("rediss://host", "redis", "redis"),
        ("unix:///run/redis.sock", "redis", "redis"),
        ("s3://bucket", "boto3", "s3"),
    ],
)
def test_a_driver_that_is_not_installed_is_named(
    url: str, driver: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, driver, None)
    with pytest.raises(OptionsError) as caught:
        open_store(url)
    assert f"needs {driver}" in str(caught.value)
    assert f"pip install 'outrider[{extra}]'" in str(caught.value)
    assert "hush" not in str(caught.value)


@every_case(
    "url, text",
    [
        ("redis://host/0", "redis://host/0"),
        ("redis://me@host", "redis://me@host"),
        ("redis://me:hush@host:1/0?a=b", "redis://me@host:1/0?a=b"),
        ("redis://:hush@host", "redis://@host"),
        ("redis://me:hu:sh/h@h@host", "redis://me@host"),
        ("redis://:hu?sh%40host%3A1=", "redis://@host%3A1="),
        ("postgresql://host/db?user=me&password=hush&x=1", "postgresql://host/db?user=me&password=***&x=1"),
        ("s3://bucket?secret_access_key=hush", "s3://bucket?secret_access_key=***"),
        ("postgresql://me:hush@h1:1,h2:2/db", "postgresql://me@h1:1,h2:2/db"),
    ],
)
def test_a_password_is_not_shown(url: str, text: str) -> None:
    assert shown(url) == text


def test_a_store_of_ones_own_is_one() -> None:
    class Mine(SessionStore):
        async def append(self, key: Any, entries: Any) -> None: ...

        async def load(self, key: Any) -> Any: ...

    mine = Mine()
    assert open_store(mine) is mine
