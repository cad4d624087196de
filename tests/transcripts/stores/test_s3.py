"""What is particular to the store in S3: its objects, its clock, and endpoints that will not do."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import uuid4

import anyio
import anyio.to_thread
import pytest

from outrider.errors import OptionsError, StoreError
from outrider.transcripts import SessionKey, open_store
from outrider.transcripts.stores import _s3
from outrider.transcripts.stores._base import Place
from outrider.transcripts.stores._s3 import BatchName, Names, S3Store, chain
from tests.transcripts.stores import servers
from tests.transcripts.stores.local import noted
from tests.transcripts.stores.remote import make_batch, make_key

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def nothing_is_known_of_endpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_s3, "_heeding", set())


@pytest.fixture
def server() -> servers.S3:
    return servers.s3()


@pytest.fixture
def prefix() -> str:
    return f"t{uuid4().hex[:10]}"


def make(server: servers.S3, prefix: str, *, bucket: str = "", endpoint: str = "", **more: Any) -> S3Store:
    return S3Store(
        f"s3://{bucket or server.bucket}/{prefix}",
        endpoint=endpoint or server.endpoint(),
        region="us-east-1",
        access_key_id="made-up",
        secret_access_key="secret-of-mine",
        **more,
    )


def objects(server: servers.S3, prefix: str) -> list[str]:
    listed = server.client().list_objects_v2(Bucket=server.bucket, Prefix=f"{prefix}/")
    return [one["Key"].removeprefix(f"{prefix}/") for one in listed.get("Contents", ())]


# Objects.


async def test_a_batch_is_an_object_and_names_sort_in_the_order_of_the_batches(
    server: servers.S3, prefix: str
) -> None:
    key = make_key()
    async with make(server, prefix) as store:
        for number in range(12):
            await store.append_batch(key, make_batch(number), str(number))
    names = [name for name in objects(server, prefix) if name.startswith("batches/")]
    assert len(names) == 12
    bodies = [
        server.client().get_object(Bucket=server.bucket, Key=f"{prefix}/{name}")["Body"].read()
        for name in names
    ]
    assert [body.count(b'"batch":%d,' % number) for number, body in enumerate(bodies)] == [3] * 12


async def test_what_a_writer_left_that_died_before_the_end_does_not_count(
    server: servers.S3, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = make_key()

    def die(*_: object) -> None:
        raise OSError("the host is gone")

    async with make(server, prefix) as store, make(server, prefix) as other:
        await store.append_batch(key, make_batch(0), "zero")
        with monkeypatch.context() as patch:
            patch.setattr(store._bucket(), "put_if", die)
            with pytest.raises(StoreError, match="the host is gone"):
                await store.append_batch(key, make_batch(1), "one")
        assert len([name for name in objects(server, prefix) if name.startswith("batches/")]) == 2
        for reader in (store, other):
            assert await reader.load(key) == make_batch(0)
        await other.append_batch(key, make_batch(2), "two")
        await store.append_batch(key, make_batch(1), "one")
        for reader in (store, other):
            assert await reader.load(key) == make_batch(0) + make_batch(2) + make_batch(1)


async def test_a_batch_that_is_missing_is_told_and_not_passed_over(server: servers.S3, prefix: str) -> None:
    key = make_key()
    async with make(server, prefix) as store:
        for number in range(3):
            await store.append(key, make_batch(number))
        second = [name for name in objects(server, prefix) if name.startswith("batches/")][1]
        server.client().delete_object(Bucket=server.bucket, Key=f"{prefix}/{second}")
        with pytest.raises(StoreError, match="missing") as told:
            await store.load(key)
        assert not told.value.retryable


async def test_all_objects_of_a_session_are_deleted_however_many(
    server: servers.S3, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_s3, "_DELETE_AT_ONCE", 2)
    key, part = make_key(), make_key("subagents/a")
    async with make(server, prefix) as store:
        for number in range(5):
            await store.append(key, make_batch(number))
        await store.append({**key, "subpath": "subagents/a"}, make_batch(9))
        await store.append(part, make_batch(7))
        await store.delete(key)
        left = [name for name in objects(server, prefix) if name.startswith(("batches/", "found/"))]
        assert len(left) == 1
        assert await store.load(part) == make_batch(7)


async def test_a_deletion_that_failed_half_way_is_completed_by_the_next(
    server: servers.S3, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("the host is gone")

    key = make_key()
    async with make(server, prefix) as store, make(server, prefix) as other:
        await store.append(key, make_batch(0))
        with monkeypatch.context() as patch:
            patch.setattr(store._bucket(), "delete", fail)
            with pytest.raises(StoreError, match="the host is gone"):
                await store.delete(key)
        await other.append(key, make_batch(1))
        assert len([name for name in objects(server, prefix) if name.startswith("batches/")]) == 2
        await other.delete(key)
        assert not [name for name in objects(server, prefix) if name.startswith("batches/")]


async def test_a_session_is_found_that_is_made_anew_while_it_is_deleted(
    server: servers.S3, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = make_key()
    async with make(server, prefix) as store, make(server, prefix) as other:
        await store.append(key, make_batch(0))
        await store.delete(key)
        real = store._bucket().put_if

        def late(*given: Any) -> str:
            # The one who deleted it removes what leads to it only now.
            other._bucket().delete([other._names.found_in(Place.of(key))])
            return real(*given)

        monkeypatch.setattr(store._bucket(), "put_if", late)
        await other.load(key)
        await store.append(key, make_batch(1))
        assert await other.find_session(key["session_id"]) == [key["project_key"]]


async def test_a_writer_reads_only_what_others_added_since(
    server: servers.S3, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, listed = make_key(), list[str]()
    async with make(server, prefix) as store, make(server, prefix) as other:
        for number in range(5):
            await store.append(key, make_batch(number))
        await other.append(key, make_batch(5))
        real = store._bucket().list_keys

        def note(*given: Any) -> Generator[str]:
            for found in real(*given):
                listed.append(found)
                yield found

        monkeypatch.setattr(store._bucket(), "list_keys", note)
        await store.append(key, make_batch(6))
        assert {found.rpartition("/")[2][:10] for found in listed} == {"0000000005"}
        assert await other.load(key) == [entry for number in range(7) for entry in make_batch(number)]


async def test_long_lists_come_in_pages(
    server: servers.S3, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = make_key()
    async with make(server, prefix) as store:
        for number in range(5):
            await store.append(key, make_batch(number))
        client: Any = store._bucket()._client
        whole = client.list_objects_v2
        monkeypatch.setattr(client, "list_objects_v2", lambda **given: whole(**given, MaxKeys=2))
        assert len(await store.load(key) or []) == 15


def test_only_batches_that_lead_to_the_head_count() -> None:
    first = BatchName(0, "", "a", "1")
    second, stray = BatchName(1, "1", "b", "2"), BatchName(1, "1", "c", "3")
    third = BatchName(2, "2", "d", "4")
    names = [one.text for one in (first, stray, second, third)] + ["something else"]
    assert chain(names, 3, "4") == [first, second, third]
    assert chain(names, 2, "3") == [first, stray]
    assert chain(names, 0, "") == []
    assert chain([third.text, first.text], 3, "4") == []


@pytest.mark.parametrize("text", ["", ".", "..", "a/b", "a%2Fb", "a!2Fb", "é", "\ud83d", "\0", "x" * 3000])
def test_names_of_objects_are_plain_and_short_and_differ(text: str) -> None:
    names = Names("prefix")
    key = names.batches(Place(text, text), "0" * 32) + BatchName(1, "", "0" * 32, "0" * 16).text
    assert len(key) < 1024
    assert set(key) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_!/")
    others = ["", ".", "..", "a/b", "a%2Fb", "a!2Fb", "é", "\ud83d", "\0", "x" * 3000, "x" * 3001]
    assert [other for other in others if names.project(other) == names.project(text)] == [text]


# Endpoints.


@contextmanager
def answering(status: int, code: str = "", headers: tuple[tuple[str, str], ...] = ()) -> Generator[str]:
    """An endpoint that says the same to everything."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            body = f"<Error><Code>{code}</Code><Message>so it is</Message></Error>".encode() if code else b""
            if status == 200 and self.command == "GET":
                body = b'{"version": 1}'
            self.send_response(status)
            for name, value in (("ETag", '"1"'), ("Content-Length", str(len(body))), *headers):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PUT = do_POST = answer  # noqa: N815 - their names in http.server

        def log_request(self, code: object = "-", size: object = "-") -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as endpoint:
        thread = threading.Thread(target=endpoint.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{endpoint.server_port}"
        finally:
            endpoint.shutdown()
            thread.join()


@pytest.mark.parametrize(
    "status, code, told, retryable",
    [
        (200, "", r"does not support conditional writes.* Two writers would overwrite", False),
        (501, "NotImplemented", "has no conditional writes", False),
        (403, "SignatureDoesNotMatch", "check the credentials, and their rights on the bucket", False),
        (403, "AccessDenied", "check the credentials, and their rights on the bucket", False),
        (503, "SlowDown", "SlowDown", True),
    ],
)
async def test_an_endpoint_that_will_not_do_is_told(
    server: servers.S3,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    code: str,
    told: str,
    *,
    retryable: bool,
) -> None:
    # What may pass, the driver would try again, after a while.
    monkeypatch.setattr(_s3, "_TRIES", 1)
    with answering(status, code) as endpoint:
        async with make(server, "x", endpoint=endpoint, timeout=30) as store:
            with pytest.raises(StoreError, match=told) as caught:
                await store.append(make_key(), make_batch(0))
    assert caught.value.retryable is retryable
    assert "secret-of-mine" not in f"{caught.value} {caught.value!r} {store!r}"


async def test_a_bucket_that_is_not_there_is_told_with_what_to_do(server: servers.S3) -> None:
    async with make(server, "x", bucket="nowhere") as store:
        with pytest.raises(
            StoreError, match=r"no bucket 'nowhere'; create it with `aws s3 mb s3://nowhere`"
        ) as told:
            await store.load(make_key())
        assert not told.value.retryable


async def test_without_credentials_it_says_so(
    server: servers.S3, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr(_s3, "_session", None)
    store: Any = open_store(server.url())
    with pytest.raises(StoreError, match="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"):
        await store.load(make_key())
    await store.close()


async def test_what_a_newer_version_wrote_is_refused(server: servers.S3, prefix: str) -> None:
    server.client().put_object(Bucket=server.bucket, Key=f"{prefix}/outrider.json", Body=b'{"version": 99}')
    async with make(server, prefix) as store:
        with pytest.raises(StoreError, match=r"version 99.* Update Outrider"):
            await store.load(make_key())


async def test_the_clock_of_the_server_counts_where_the_one_here_is_wrong(
    server: servers.S3, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    key: SessionKey = make_key()
    async with make(server, prefix) as store:
        await store.append(key, make_batch(0))
        bucket = store._bucket()
        assert abs(bucket.time() - time.time()) < 1
        now = time.time()
        bucket._note_time(answered(now + 3600), now, now)
        assert abs(bucket.time() - time.time() - 3600) < 3
        bucket._note_time({"ResponseMetadata": {"HTTPHeaders": {"date": "some day"}}}, now, now)
        assert abs(bucket.time() - time.time() - 3600) < 3
        bucket._note_time(answered(now), now, now)
        assert abs(bucket.time() - time.time()) < 3


async def test_an_answer_that_takes_long_does_not_turn_the_clock_back(
    server: servers.S3, prefix: str
) -> None:
    """The time in it is that of its beginning."""
    async with make(server, prefix) as store:
        bucket, now = store._bucket(), time.time()
        for seconds in (0, 5, 60):
            bucket._note_time(answered(now), now - 0.1, now + seconds)
            bucket._note_time(answered(now + seconds), now - 0.1, now + seconds)
            assert bucket._skew == 0


def answered(at: float) -> dict[str, Any]:
    date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(at))
    return {"ResponseMetadata": {"HTTPHeaders": {"date": date}}}


@pytest.mark.parametrize(
    "url, told",
    [
        ("s3:///prefix", "not a place in a bucket"),
        ("s3://key:secret-of-mine@bucket", "not a place in a bucket"),
        ("s3://bucket?endpoint=host", "`endpoint` is not the address"),
        ("s3://bucket?path_style=yes", "`path_style` is 'yes'"),
        ("s3://bucket?colour=red", "'colour', which is not known"),
        ("s3://bucket?timeout=0", "`timeout` is '0'"),
    ],
)
async def test_a_url_that_is_not_right_is_refused_before_anything_is_done(url: str, told: str) -> None:
    with pytest.raises(OptionsError, match=told) as caught:
        open_store(url)
    assert "secret-of-mine" not in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"nonsense", b"{}", b"[]", b"\xff"])
async def test_damage_is_told(server: servers.S3, prefix: str, data: bytes) -> None:
    key = make_key()
    async with make(server, prefix) as store:
        await store.append(key, make_batch(0))
        head = store._names.head(Place.of(key))
        server.client().put_object(Bucket=server.bucket, Key=head, Body=data)
        with pytest.raises(StoreError, match=f"what is in it is damaged .*{key['session_id']}"):
            await store.load(key)


async def test_what_was_given_up_while_it_waited_is_not_done_later(server: servers.S3, prefix: str) -> None:
    key = make_key()
    async with make(server, prefix) as store:
        await store.append(key, make_batch(0))
        begun, ended = noted(store, "_append")
        with anyio.fail_after(20), store._alone(Place.of(key)):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(store.append, key, make_batch(1))
                await anyio.to_thread.run_sync(begun.wait, 20)
                tasks.cancel_scope.cancel()
        assert await anyio.to_thread.run_sync(ended.wait, 20)
        assert await store.load(key) == make_batch(0)
