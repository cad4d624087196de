"""The store in files: what is in the folder, and what can be wrong with it."""

# ruff: noqa: ASYNC240 - nothing else runs while a test looks at a file

from __future__ import annotations

import fcntl
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.errors import StoreError
from outrider.transcripts import FileStore
from outrider.transcripts.stores._file import Transcript, name_of, text_of
from tests.cases import every_case
from tests.transcripts.stores.local import KEY, numbered

anyio_test = pytest.mark.anyio

PART: Any = {**KEY, "subpath": "subagents/agent-A1"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


def summary_of(folder: Path) -> Path:
    return folder / "p" / "s" / "summary.json"


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
    for text, name in zip(texts, (one, two), strict=True):
        assert text_of(name) in (text, None)
        assert text_of(name) == text or len(name) > 100
        assert len(name) <= 200
        assert not {*name} & {*'/\\:*?"<>| \0\n'}
        assert not name.startswith(".")
        assert not name.endswith(".")
        assert name.isascii()


@every_case("name", ["A", ".x", "%zz", "%ff", "a~b", "%2E", "é", "x" * 300, ""])
def test_a_name_that_was_not_made_here_has_no_text(name: str) -> None:
    assert text_of(name) is None


# What was not finished.


@anyio_test
@pytest.mark.parametrize("name, rest", [("main.jsonl", b'{"type": "x", "num'), ("main.log", b'{"size": 99')])
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
        log = folder / "p" / "s" / "main.log"
        log.write_bytes(log.read_bytes().splitlines(keepends=True)[0])
        summary_of(folder).unlink()
        assert await store.load(KEY) is None
        assert await store.list_sessions("p") == []
        assert await store.list_projects() == []
        assert await store.find_session("s") == []
        await store.append(KEY, numbered(1, 1))
        assert await store.load(KEY) == numbered(1, 1)


@anyio_test
@pytest.mark.parametrize(
    "kept",
    [None, b"", b"{", b"{}", b'{"id":1,"size":"x","mtime":null,"data":[]}', b"[" * 100_000, b"old"],
    ids=["lost", "empty", "damaged", "without anything", "of other types", "deep", "old"],
)
async def test_a_summary_is_made_again(kept: bytes | None, folder: Path) -> None:
    entries: Any = [
        {"type": "user", "message": {"content": "hello"}},
        {"type": "custom-title", "customTitle": "x"},
        {"type": "custom-title", "customTitle": "y"},
    ]
    async with FileStore(folder) as store:
        await store.append(KEY, entries[:1])
        old = summary_of(folder).read_bytes()
        await store.append(KEY, entries[1:2])
        [expected] = await store.list_session_summaries("p")
        summary_of(folder).unlink()
        if kept is not None:
            summary_of(folder).write_bytes(old if kept == b"old" else kept)
        [found] = await store.list_session_summaries("p")
        assert found["data"] == expected["data"]
        await store.append(KEY, entries[2:])
        [found] = await store.list_session_summaries("p")
        assert found["data"] == {**expected["data"], "custom_title": "y"}
        assert found["mtime"] > expected["mtime"]


@anyio_test
async def test_entries_are_stored_though_their_summary_cannot_be(folder: Path) -> None:
    async with FileStore(folder) as store:
        await store.append(KEY, numbered(0, 1))
        summary_of(folder).unlink()
        summary_of(folder).mkdir()
        await store.append(KEY, numbered(1, 1))
        assert await store.load(KEY) == numbered(0, 2)


@anyio_test
async def test_what_is_stored_is_not_read_again_at_each_append(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    real = Transcript.load

    def load(self: Transcript, start: int, end: int) -> Any:
        read.append(end - start)
        return real(self, start, end)

    monkeypatch.setattr(Transcript, "load", load)
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
async def test_the_summary_of_what_was_removed_is_not_kept(folder: Path) -> None:
    titles: Any = [[{"type": "custom-title", "customTitle": title}] for title in ("one", "two")]
    async with FileStore(folder) as store:
        await store.append(KEY, titles[0])
        (folder / "p" / "s" / "main.jsonl").unlink()
        assert await store.list_sessions("p") == []
        await store.append(KEY, titles[1])
        [found] = await store.list_session_summaries("p")
        assert found["data"]["custom_title"] == "two"


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
        ("main.jsonl", b"{}\n[]\n%s\n", "is damaged in line 2: not a JSON object"),
        ("main.jsonl", b"{}\n{}\n%s\n", "is damaged in line 3"),
        ("main.log", None, "main.log is missing"),
        ("main.log", b"nonsense\n", "main.log is damaged at byte 0"),
        ("main.log", b"{}\n", "main.log has no head"),
        ("main.log", b'{"format":2,"id":"x","place":[]}\n', "the format 2, and this Outrider knows 1"),
        ("main.log", b'{"format":1,"id":"x","place":[1,2]}\n', "main.log has no head"),
        ("main.log", b'{"format":1,"id":"x","place":["p","s",null]}\n{"size":-1}\n', "is damaged at byte 45"),
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
        before = {one: one.read_bytes() for one in folder.rglob("main.*")}
        for call in (store.load(KEY), FileStore(folder).append(KEY, numbered(3, 1))):
            with pytest.raises(StoreError) as caught:
                await call
            assert not caught.value.retryable
            assert told in str(caught.value)
            assert "Restore it from a copy" in str(caught.value)
        assert {one: one.read_bytes() for one in folder.rglob("main.*")} == before


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
    async with FileStore(folder, timeout=0.2) as store:
        await store.append(KEY, numbered(0, 1))
        [lock] = (folder / ".locks").iterdir()
        with lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            with pytest.raises(StoreError) as caught:
                await store.append(KEY, numbered(1, 1))
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
        # Parts are gone as soon as their entries are.
        await store.append(PART, numbered(0, 1))
        [part] = (folder / "p" / "s" / "parts").glob("*.jsonl")
        part.unlink()
        assert await store.load(PART) is None
        assert await store.list_subkeys(KEY) == []
        await store.append(PART, numbered(1, 1))
        assert await store.load(PART) == numbered(1, 1)
