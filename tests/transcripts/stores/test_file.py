"""The store in files: what is in the folder, and what can be wrong with it."""

# ruff: noqa: ASYNC240 - nothing else runs while a test looks at a file

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.errors import StoreError
from outrider.transcripts import FileStore, SessionKey
from outrider.transcripts.stores import _file
from outrider.transcripts.stores._base import Place
from outrider.transcripts.stores._file import name_of
from tests.transcripts.stores.local import KEY, numbered

anyio_test = pytest.mark.anyio

PART: Any = {**KEY, "subpath": "subagents/agent-A1"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


@anyio_test
async def test_others_can_read_the_files(folder: Path) -> None:
    async with FileStore(folder) as store:
        await store.append_batch(KEY, numbered(0, 2), "one")
        await store.append(PART, numbered(2, 1))
    lines = (folder / "p" / "s" / "main.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == numbered(0, 2)
    [part] = (folder / "p" / "s" / "parts").glob("*.jsonl")
    assert part.name == "subagents%2fagent-%411.jsonl"
    assert json.loads(part.read_text()) == numbered(2, 1)[0]
    modes = {path.stat().st_mode & 0o077 for path in (folder, *folder.rglob("*"))}
    assert modes == {0}


@given(st.lists(st.text(st.characters(), max_size=300), min_size=2, max_size=2, unique=True))
def test_each_text_has_a_name_of_its_own(texts: list[str]) -> None:
    one, two = (name_of(text) for text in texts)
    # Also where upper and lower case are the same.
    assert one.casefold() != two.casefold()
    for name in (one, two):
        assert len(name) <= 200
        assert not {*name} & {*'/\\:*?"<>| \0\n'}
        assert not name.startswith(".")
        assert not name.endswith(".")
        assert name.isascii()


# What was not finished.


@anyio_test
@pytest.mark.parametrize("name, rest", [("main.jsonl", b'{"type": "x", "num'), ("session.log", b"{,")])
async def test_what_was_half_written_is_cut_off(name: str, rest: bytes, folder: Path) -> None:
    async with FileStore(folder) as store:
        await store.append(KEY, numbered(0, 2))
        with (folder / "p" / "s" / name).open("ab") as file:
            file.write(rest)
        assert await store.load(KEY) == numbered(0, 2)
        assert len(await store.list_sessions("p")) == 1
        await store.append(KEY, numbered(2, 1))
        assert await store.load(KEY) == numbered(0, 3)
    assert rest not in (folder / "p" / "s" / name).read_bytes()


@anyio_test
async def test_a_session_that_was_only_begun_is_not_there(folder: Path) -> None:
    async with FileStore(folder) as store:
        await store.append(KEY, numbered(0, 1))
        log = folder / "p" / "s" / "session.log"
        log.write_bytes(log.read_bytes().removesuffix(b"\n"))
        assert await store.load(KEY) is None
        assert await store.list_sessions("p") == []
        assert await store.list_projects() == []
        assert await store.find_session("s") == []
        await store.append(KEY, numbered(1, 1))
        assert await store.load(KEY) == numbered(1, 1)


@anyio_test
async def test_what_is_stored_is_not_read_again_at_each_append(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    real = FileStore._read_batches

    def load(self: FileStore, *given: Any) -> Any:
        found = real(self, *given)
        read.append(sum(len(batch.data) + 1 for batch in found))
        return found

    monkeypatch.setattr(FileStore, "_read_batches", load)
    async with FileStore(folder) as store, FileStore(folder) as other:
        for number in range(4):
            await store.append_batch(KEY, numbered(number, 1), f"batch {number}")
        assert sum(read) == 0
        # What others have added is read once.
        size = (folder / "p" / "s" / "main.jsonl").stat().st_size
        await other.append(KEY, numbered(4, 1))
        assert sum(read) == size
        await store.append(KEY, numbered(5, 1))
        assert size < sum(read) < 2 * size
        await store.append_batch(KEY, numbered(0, 1), "batch 0")
        assert len(await store.load(KEY) or []) == 6


@anyio_test
async def test_a_log_grows_by_the_batches_and_not_by_the_parts(folder: Path) -> None:
    keys: Any = [KEY, *({**KEY, "subpath": f"part {number}"} for number in range(60))]
    async with FileStore(folder) as store, FileStore(folder) as other:
        for key in keys:
            await store.append(key, numbered(0, 1))
        await store.delete(keys[7])
        await store.append(keys[7], numbered(1, 1))
        for number in range(2, 6):
            for key in keys[::3]:
                await other.append_batch(key, numbered(number, 1), str(number))
        log = folder / "p" / "s" / "session.log"
        lines = log.read_bytes().splitlines()
        assert len(lines) == 63 + 4 * 21
        assert sum(map(len, lines)) < 3 * 400 * len(lines)
        for reader in (store, other, FileStore(folder)):
            assert sorted(await reader.list_subkeys(KEY)) == sorted(key["subpath"] for key in keys[1:])
            for number, key in enumerate(keys):
                more = numbered(2, 4) if number % 3 == 0 else []
                assert await reader.load(key) == [*numbered(int(number == 7), 1), *more]
            for key in keys[::3]:
                await reader.append_batch(key, numbered(9, 1), "3")
        # What the last line needs is not there.
        assert b'"back"' in lines[-1]
        log.write_bytes(lines[-1] + b"\n")
        with pytest.raises(StoreError, match=r"session\.log is damaged"):
            await store.load(KEY)


@anyio_test
async def test_a_second_writer_reads_only_the_end_of_a_log(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[bytes] = []
    real = _file._decoded

    def note(path: Path, data: bytes, kind: Any) -> Any:
        decoded.append(data)
        return real(path, data, kind)

    async with FileStore(folder) as store, FileStore(folder) as other:
        for number in range(200):
            await store.append(KEY, numbered(number, 1))
        await other.append(KEY, numbered(200, 1))
        monkeypatch.setattr(_file, "_decoded", note)
        await store.append(KEY, numbered(201, 1))
        assert len(decoded) < 100
        assert await store.load(KEY) == numbered(0, 202)


@anyio_test
async def test_a_writer_with_many_sessions_does_not_read_them_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys: list[SessionKey] = [{"project_key": "p", "session_id": str(number)} for number in range(70)]
    async with FileStore(folder) as store:
        for key in keys:
            await store.acquire_lease(key, "me", 60)
            await store.append(key, numbered(0, 1))
        monkeypatch.setattr(FileStore, "_read_batches", None)
        for key in keys:
            await store.append(key, numbered(1, 1))


def test_a_log_that_gets_shorter_while_it_is_read_is_read_anew(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write_bytes(b"one\nhalf a li")
    real = _file.read

    def read(number: int, start: int, end: int) -> bytes:
        os.truncate(folder, 4)
        return real(number, start, end)

    monkeypatch.setattr(_file, "read", read)
    assert _file.read_lines(folder, lambda lines: len(lines) > 1) == ([b"one"], 4)


@anyio_test
async def test_a_project_may_have_the_name_of_the_marker(folder: Path) -> None:
    key: SessionKey = {"project_key": "outrider.json", "session_id": "outrider.json"}
    async with FileStore(folder) as store:
        await store.append(key, numbered(0, 1))
        assert await store.list_projects() == ["outrider.json"]
        assert await store.load(key) == numbered(0, 1)


@anyio_test
async def test_nothing_is_added_to_a_file_that_lost_its_end(folder: Path) -> None:
    async with FileStore(folder) as store:
        await store.append(KEY, numbered(0, 3))
        os.truncate(folder / "p" / "s" / "main.jsonl", 10)
        with pytest.raises(StoreError, match=r"main\.jsonl has 10 bytes, and .* were written"):
            await store.append(KEY, numbered(3, 1))


@anyio_test
async def test_what_is_remembered_ends_with_the_session(folder: Path) -> None:
    """Deleted by another, and made anew with as many bytes."""
    async with FileStore(folder) as store, FileStore(folder) as other:
        entries: Any = [{"type": "x", "uuid": "1"}]
        await store.append_batch(KEY, entries, "one")
        await other.delete(KEY)
        await other.append_batch(KEY, [{"type": "x", "uuid": "2"}], "two")
        await store.append_batch(KEY, entries, "one")
        assert [entry.get("uuid") for entry in await store.load(KEY) or []] == ["2", "1"]


@anyio_test
async def test_nothing_is_made_by_reading(folder: Path) -> None:
    async with FileStore(folder) as store:
        assert await store.load(KEY) is None
        assert await store.list_sessions("p") == []
        assert await store.list_projects() == []
        assert await store.list_subkeys(KEY) == []
        assert await store.find_session("s") == []
    assert not folder.exists()


# What is wrong with it.


@anyio_test
@pytest.mark.parametrize(
    "name, data, told",
    [
        ("main.jsonl", b"{}\n", "main.jsonl has 3 bytes, and"),
        ("main.jsonl", b"{}%s", "does not end a line"),
        ("main.jsonl", b"{}\n[]\n%s\n", "an entry of the session s: not a JSON object"),
        ("main.jsonl", b"{}\n{}\n%s\n", "an entry of the session s"),
        ("main.jsonl", None, "main.jsonl is missing"),
        ("session.log", b"nonsense\n", "session.log is damaged"),
        ("session.log", b"{}\n", "session.log is damaged"),
        ("session.log", b'{"head":{"project":"p","session":1}}\n', "session.log is damaged"),
    ],
)
async def test_damage_is_told(name: str, data: bytes | None, told: str, folder: Path) -> None:
    async with FileStore(folder) as store:
        await store.append(KEY, numbered(0, 3))
        path = folder / "p" / "s" / name
        if data is None:
            path.unlink()
        else:
            # As long as it was, where there is something to fill up.
            path.write_bytes(data.replace(b"%s", b" " * (path.stat().st_size + 2 - len(data))))
        before = {one: one.read_bytes() for one in (folder / "p" / "s").iterdir()}
        for call in (store.load(KEY), FileStore(folder).append(KEY, numbered(3, 1))):
            with pytest.raises(StoreError) as caught:
                await call
            assert not caught.value.retryable
            assert told in str(caught.value)
            assert "Restore it from a copy" in str(caught.value)
        assert {one: one.read_bytes() for one in (folder / "p" / "s").iterdir()} == before


@anyio_test
@pytest.mark.parametrize("kept", ["nonsense", "{}", '{"token":"x","holder":1,"ends":"y"}'])
async def test_a_damaged_lease_is_told(kept: str, folder: Path) -> None:
    async with FileStore(folder) as store:
        await store.acquire_lease(KEY, "me", 60)
        [lease] = (folder / ".leases").iterdir()
        lease.write_text(kept)
        with pytest.raises(StoreError, match="is damaged"):
            await store.append(KEY, numbered(0, 1))


@anyio_test
async def test_a_folder_of_something_else_is_left_alone(folder: Path) -> None:
    folder.mkdir()
    (folder / "notes.txt").write_text("x")
    for call in (FileStore(folder).append(KEY, numbered(0, 1)), FileStore(folder).load(KEY)):
        with pytest.raises(StoreError, match="the folder holds something else"):
            await call
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]


@anyio_test
@pytest.mark.parametrize(
    "marker, told",
    [('{"format": 2}', "version 2, and this Outrider knows up to 1"), ("x", "outrider.json is damaged")],
)
async def test_a_store_of_another_version_is_left_alone(marker: str, told: str, folder: Path) -> None:
    folder.mkdir()
    (folder / "outrider.json").write_text(marker)
    with pytest.raises(StoreError, match=told):
        await FileStore(folder).append(KEY, numbered(0, 1))


@anyio_test
async def test_an_empty_folder_is_an_empty_store(folder: Path) -> None:
    folder.mkdir()
    (folder / ".hidden").touch()
    async with FileStore(folder) as store:
        await store.append(KEY, numbered(0, 1))
        assert await store.list_projects() == ["p"]


@anyio_test
async def test_the_folder_above_has_to_be_there(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no such file or directory"):
        await FileStore(tmp_path / "no" / "store").append(KEY, numbered(0, 1))
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="not a directory"):
        await FileStore(tmp_path / "file").append(KEY, numbered(0, 1))


@anyio_test
async def test_a_writer_that_does_not_finish_is_told(folder: Path) -> None:
    async with FileStore(folder) as store, FileStore(folder, timeout=0.2) as hasty:
        await store.append(KEY, numbered(0, 1))
        [lock] = (folder / ".locks").iterdir()
        with lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            with pytest.raises(StoreError) as caught:
                await hasty.append(KEY, numbered(1, 1))
            assert caught.value.retryable
        await store.append(KEY, numbered(1, 1))
        assert await store.load(KEY) == numbered(0, 2)


@anyio_test
async def test_a_deletion_that_was_cut_short_is_finished(folder: Path) -> None:
    async with FileStore(folder) as store:
        await store.append(KEY, numbered(0, 1))
        (folder / ".deleted-old" / "parts").mkdir(parents=True)
        await store.delete(KEY)
        assert [path.name for path in folder.iterdir() if path.name.startswith(".deleted")] == []


@anyio_test
@pytest.mark.parametrize("left", ["nothing", "half", "zeros"])
@pytest.mark.parametrize("subpath", [None, "subagents/a"])
async def test_a_batch_that_was_lost_with_the_power_of_the_machine_was_not_acknowledged(
    folder: Path, monkeypatch: pytest.MonkeyPatch, left: str, subpath: str | None
) -> None:
    """Its record may be on the disk all the same. While the machine is up, the same is damage."""
    place = Place("project", str(uuid4()), subpath)
    entries = _file.Layout(folder).entries(place)
    async with FileStore(folder) as store:
        await store.append_batch(place.key, numbered(0, 2), "one")
        before = entries.read_bytes()
        await store.append_batch(place.key, numbered(2, 2), "two")
    whole = entries.read_bytes()
    half = whole[: len(before) + 5]
    lost = {"nothing": before, "half": half, "zeros": half.ljust(len(whole), bytes(1))}
    entries.write_bytes(lost[left])
    with pytest.raises(StoreError):
        await FileStore(folder).load(place.key)
    monkeypatch.setattr(_file, "boot", lambda: "another")
    async with FileStore(folder) as store:
        assert await store.load(place.key) == numbered(0, 2)
        for _ in range(2):
            await store.append_batch(place.key, numbered(2, 2), "two")
        await store.append(place.key, numbered(4, 1))
        assert await store.load(place.key) == numbered(0, 5)
        await store.delete(place.main.key)
        assert await store.load(place.key) is None
