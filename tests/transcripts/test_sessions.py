"""`Sessions`: the same on disk and in stores of all kinds, and between them."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import anyio
import anyio.from_thread
import pytest

import outrider
from outrider.errors import OptionsError, SessionExists, SessionNotFound, TranscriptError
from outrider.transcripts import Bundle, MemoryStore, Sessions, StoredSession
from outrider.transcripts._disk import files
from outrider.transcripts._disk import files as _writing
from outrider.transcripts._disk import read as search
from tests.cases import every_case
from tests.transcripts.keeping import KEY, PROJECT, bundle, put_on_disk
from tests.transcripts.lines import SESSION, answer, prompt, session_id, written

pytestmark = pytest.mark.anyio
DEADLINE = 30.0

Places = Callable[[], Sessions]


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["disk", "memory", "sqlite", "file"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(request.param)


@pytest.fixture
def sessions(place: str, tmp_path: Path) -> Sessions:
    """An empty place."""
    return opened(place, tmp_path / "here")


def opened(place: str, folder: Path) -> Sessions:
    folder.mkdir(exist_ok=True)
    if place == "disk":
        return Sessions(config=folder)
    if place == "memory":
        return Sessions(MemoryStore())
    return Sessions(f"sqlite:///{folder}/x.db" if place == "sqlite" else f"file://{folder}")


async def keep(sessions: Sessions, kept: Bundle | None = None) -> str:
    from outrider.transcripts._export.turns import exported

    return await sessions.import_(exported(kept or bundle(), "json"))


async def test_a_session_is_listed_read_and_described(sessions: Sessions) -> None:
    async with sessions:
        with anyio.fail_after(DEADLINE):
            assert await keep(sessions) == SESSION
            [info] = await sessions.list(project=PROJECT)
            assert (info.id, info.project, info.title, info.tag) == (SESSION, KEY, "Titled", "old")
            assert info == (await sessions.list())[0] == await sessions.info(SESSION)
            entries = await sessions.read(SESSION)
            assert [entry.uuid for entry in entries] == ["u1", "u2", "u3", "u4", "u5", "u6", "u7", "u8"]
            assert [entry.uuid for entry in await sessions.read(SESSION, last=2)] == ["u7", "u8"]
            some = await sessions.read(SESSION, offset=1, limit=2, project=PROJECT)
            assert [entry.uuid for entry in some] == ["u2", "u3"]
            assert await sessions.agents(SESSION) == ["first", "late", "nested"]
            told = await sessions.read(SESSION, agent="nested")
            assert [entry.text for entry in told] == ["Look deeper"]


async def test_a_session_is_renamed_and_tagged(sessions: Sessions) -> None:
    async with sessions:
        await keep(sessions)
        await sessions.rename(SESSION, "  Release notes \n")
        await sessions.tag(SESSION, "ﬁx\u200b\u0007", project=PROJECT)
        info = await sessions.info(SESSION)
        assert (info.title, info.custom_title, info.tag) == ("Release notes", "Release notes", "fix")
        assert [info.id for info in await sessions.list(tag="fix", title="RELEASE")] == [SESSION]
        await sessions.tag(SESSION, None)
        assert (await sessions.info(SESSION)).tag is None
        assert len(await sessions.read(SESSION)) == 8


async def test_a_session_is_put_away_and_taken_out(sessions: Sessions) -> None:
    async with sessions:
        await keep(sessions)
        await sessions.archive(SESSION)
        assert (await sessions.info(SESSION)).is_archived
        assert await sessions.list() == []
        assert len(await sessions.list(archived=True)) == len(await sessions.list(archived=None)) == 1
        assert len(await sessions.read(SESSION)) == 8
        await sessions.unarchive(SESSION)
        assert len(await sessions.list()) == 1


async def test_a_session_is_deleted(sessions: Sessions) -> None:
    async with sessions:
        await keep(sessions)
        await keep(sessions, bundle(session_id(2)))
        await sessions.delete(SESSION)
        assert [info.id for info in await sessions.list()] == [session_id(2)]
        assert await sessions.agents(session_id(2)) == ["first", "late", "nested"]
        with pytest.raises(SessionNotFound):
            await sessions.delete(SESSION)


async def test_a_session_is_forked(sessions: Sessions) -> None:
    async with sessions:
        await keep(sessions)
        new = await sessions.fork(SESSION, at="u6", title=" Other way ")
        assert UUID(new).version == 4
        info = await sessions.info(new)
        assert (info.project, info.title, info.tag) == (KEY, "Other way", None)
        assert [entry.text for entry in await sessions.read(new)][-1] == "answer u6"
        assert await sessions.agents(new) == ["first", "nested"]
        assert (await sessions.info(await sessions.fork(SESSION))).title == "Titled (fork)"
        assert len(await sessions.list()) == 3


async def test_hits_come_as_they_are_found(sessions: Sessions) -> None:
    async with sessions:
        await keep(sessions)
        with anyio.fail_after(DEADLINE):
            hits = [hit async for hit in sessions.search("LOOK")]
            assert {(hit.agent_id, hit.excerpt) for hit in hits} >= {
                ("first", "Look"),
                ("nested", "Look deeper"),
            }
            assert {hit.session.id for hit in hits} == {SESSION}
            assert [hit async for hit in sessions.search("look", case_sensitive=True)] == []
            assert [hit async for hit in sessions.search("Look", agents=False)] == []
            assert len([hit async for hit in sessions.search("answer u[68]", regex=True, limit=1)]) == 1
            assert [hit async for hit in sessions.search("Look", tag="other")] == []


async def test_a_search_that_is_left_early_can_be_followed_by_another(sessions: Sessions) -> None:
    async with sessions:
        await keep(sessions)
        with anyio.fail_after(DEADLINE):
            async for _ in sessions.search("u"):
                break
            assert [hit async for hit in sessions.search("Begin")]


async def test_what_is_exported_can_be_imported_elsewhere(sessions: Sessions, tmp_path: Path) -> None:
    async with sessions:
        await keep(sessions)
        path = tmp_path / "export.json"
        path.write_text(await sessions.export(SESSION, "json"), encoding="utf-8")
        other = Sessions(MemoryStore())
        assert await other.import_(path, project=tmp_path) == SESSION
        [info] = await other.list(project=tmp_path)
        assert info.title == "Titled"
        assert await other.agents(SESSION) == ["first", "late", "nested"]
        assert "# Titled" in await sessions.export(SESSION)
        assert "<h1>Titled</h1>" in await sessions.export(SESSION, "html")


async def test_an_archived_session_of_a_store_is_so_elsewhere(sessions: Sessions) -> None:
    store = Sessions(MemoryStore())
    await keep(store)
    await store.archive(SESSION)
    async with sessions:
        await sessions.import_(await store.export(SESSION, "json"))
        assert (await sessions.info(SESSION)).is_archived
        await sessions.unarchive(SESSION)
        assert len(await sessions.list()) == 1


async def test_a_transcript_of_the_program_is_imported(sessions: Sessions, tmp_path: Path) -> None:
    async with sessions:
        path = put_on_disk(tmp_path / "theirs")
        assert await sessions.import_(path) == SESSION
        assert len(await sessions.read(SESSION, project=PROJECT)) == 8
        text = written([prompt("u1"), answer("u2", "u1")]).decode()
        new = await sessions.import_(text, as_new=True)
        assert new != SESSION
        assert {entry.session_id for entry in await sessions.read(new)} == {new}


async def test_a_session_that_is_there_is_not_written_over(sessions: Sessions) -> None:
    async with sessions:
        await keep(sessions)
        with pytest.raises(SessionExists, match=SESSION):
            await keep(sessions)
        assert len(await sessions.list()) == 1
        assert len(await sessions.read(SESSION)) == 8


# Between places


@pytest.mark.parametrize("target", ["disk", "memory", "sqlite", "file"])
async def test_a_session_is_copied_and_back(sessions: Sessions, target: str, tmp_path: Path) -> None:
    async with sessions, opened(target, tmp_path / "there") as there:
        await keep(sessions)
        await sessions.archive(SESSION)
        await sessions.copy(SESSION, to=there)
        # It is there already.
        await sessions.copy(SESSION, to=there)
        info = await there.info(SESSION)
        assert (info.title, info.is_archived, info.project) == ("Titled", True, KEY)
        assert await there.export(SESSION) == await sessions.export(SESSION)
        assert await there.agents(SESSION) == ["first", "late", "nested"]
        await sessions.delete(SESSION)
        await there.copy(SESSION, to=sessions)
        assert len(await sessions.read(SESSION)) == 8
        assert (await sessions.info(SESSION)).is_archived
        await sessions.copy(SESSION, to=there)


@pytest.mark.parametrize("target", ["disk", "memory"])
async def test_another_session_of_the_same_id_stays(sessions: Sessions, target: str, tmp_path: Path) -> None:
    async with sessions, opened(target, tmp_path / "there") as there:
        await keep(sessions)
        await keep(there, Bundle(session_id=SESSION, project=KEY, entries=[prompt("x", None, "Other")]))
        with pytest.raises(SessionExists):
            await sessions.copy(SESSION, to=there)
        assert [entry.text for entry in await there.read(SESSION)] == ["Other"]


async def test_a_copy_can_be_of_another_folder(sessions: Sessions, tmp_path: Path) -> None:
    async with sessions, opened("memory", tmp_path / "there") as there:
        await keep(sessions)
        await sessions.copy(SESSION, to=there, project=PROJECT, to_project=tmp_path)
        assert await there.list(project=PROJECT) == []
        assert len(await there.list(project=tmp_path)) == 1


# What is refused


EACH_METHOD = pytest.mark.parametrize(
    "method, arguments",
    [
        ("info", ()),
        ("read", ()),
        ("agents", ()),
        ("export", ()),
        ("rename", ("x",)),
        ("tag", ("x",)),
        ("archive", ()),
        ("unarchive", ()),
        ("delete", ()),
        ("fork", ()),
        ("copy", (Sessions(MemoryStore()),)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
"""All that take the id of a session."""

BAD_IDS: list[Any] = ["", "x", "../../x", SESSION + "x", None, 3, f"{{{SESSION}}}"]


@every_case("bad", BAD_IDS, ids=repr)
@EACH_METHOD
async def test_an_id_that_is_none_is_named(method: str, arguments: tuple[Any, ...], bad: Any) -> None:
    with pytest.raises(OptionsError, match="id"):
        await getattr(Sessions(MemoryStore()), method)(bad, *arguments)


@EACH_METHOD
@pytest.mark.parametrize("project", [None, PROJECT])
async def test_a_session_that_is_not_there_is_not_made(
    sessions: Sessions, method: str, arguments: tuple[Any, ...], project: str | None
) -> None:
    async with sessions:
        with pytest.raises(SessionNotFound, match=SESSION):
            await getattr(sessions, method)(SESSION, *arguments, project=project)
        assert await sessions.list(archived=None) == []


@every_case("bad", ["", "  \n", None, 3])
async def test_a_title_has_something_in_it(bad: Any) -> None:
    sessions = Sessions(MemoryStore())
    await keep(sessions)
    with pytest.raises(OptionsError, match="title"):
        await sessions.rename(SESSION, bad)
    if bad is not None:
        with pytest.raises(OptionsError, match="title"):
            await sessions.fork(SESSION, title=bad)
    assert len(await sessions.list()) == 1


@every_case("bad", ["", " ", "\u200b", "\u0007\u200d", "\ue000", "\ud800", "\u2028", 3], ids=ascii)
async def test_a_tag_has_something_to_see(bad: Any) -> None:
    with pytest.raises(OptionsError, match="tag"):
        await Sessions(MemoryStore()).tag(SESSION, bad)


@every_case(
    "tag, kept",
    [
        ("\uff43\uff49", "ci"),
        (" a b ", "a b"),
        ("e\u0301", "é"),
        ("a\u200b\u2060b", "ab"),
        ("\u0007x", "x"),
        ("日本", "日本"),
    ],
    ids=ascii,
)
async def test_a_tag_is_kept_in_its_plainest_form(tag: str, kept: str) -> None:
    sessions = Sessions(MemoryStore())
    await keep(sessions)
    await sessions.tag(SESSION, tag)
    assert (await sessions.info(SESSION)).tag == kept


@pytest.mark.parametrize(
    "arguments",
    [
        {"last": 0},
        {"last": -1},
        {"limit": -1},
        {"offset": -1},
        {"last": True},
        {"last": 1, "limit": 1},
        {"last": 1, "offset": 1},
        {"history": "all"},
    ],
    ids=str,
)
async def test_what_cannot_be_read_is_named(sessions: Sessions, arguments: dict[str, Any]) -> None:
    async with sessions:
        await keep(sessions)
        with pytest.raises(OptionsError):
            await sessions.read(SESSION, **arguments)


async def test_a_subagent_that_is_not_there_is_named(sessions: Sessions) -> None:
    async with sessions:
        await keep(sessions)
        with pytest.raises(TranscriptError, match="no subagent 'other'"):
            await sessions.read(SESSION, agent="other")


async def test_a_message_that_is_not_there_leaves_no_fork(sessions: Sessions) -> None:
    async with sessions:
        await keep(sessions)
        with pytest.raises(OptionsError, match="no message 'x'"):
            await sessions.fork(SESSION, at="x")
        assert len(await sessions.list()) == 1


@pytest.mark.parametrize("text", ["", 3, None])
def test_a_search_needs_a_text(sessions: Sessions, text: Any) -> None:
    with pytest.raises(OptionsError):
        sessions.search(text)


def test_a_search_tells_at_once_what_is_wrong(sessions: Sessions) -> None:
    with pytest.raises(OptionsError, match="regular expression"):
        sessions.search("(", regex=True)
    with pytest.raises(OptionsError, match="limit"):
        sessions.search("x", limit=-1)


async def test_sessions_are_in_one_place(tmp_path: Path) -> None:
    with pytest.raises(OptionsError, match="not in both"):
        Sessions(MemoryStore(), config=tmp_path)
    with pytest.raises(OptionsError):
        Sessions("gopher://x")
    with pytest.raises(OptionsError):
        Sessions(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(OptionsError, match="copied"):
        await Sessions(MemoryStore()).copy(SESSION, to=MemoryStore())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def test_a_transcript_that_tells_no_folder_needs_one(tmp_path: Path) -> None:
    said = json.dumps({"type": "user", "uuid": "u1", "message": {"role": "user", "content": "x"}})
    sessions = Sessions(config=tmp_path)
    with pytest.raises(OptionsError, match="is not known"):
        await sessions.import_(said)
    new = await sessions.import_(said, project=tmp_path)
    assert (await sessions.read(new))[0].text == "x"


async def test_an_export_cannot_name_a_project_elsewhere(tmp_path: Path) -> None:
    from outrider.transcripts._export.turns import exported

    sessions = Sessions(config=tmp_path / "config")
    with pytest.raises(OptionsError, match="project"):
        await sessions.import_(exported(bundle(project="../.."), "json"))
    assert not (tmp_path / "config").exists()


# Cancelling


async def test_a_write_is_finished_when_it_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_on_disk(tmp_path)
    sessions = Sessions(config=tmp_path)
    write = _writing._append_once
    left: list[bool] = []
    seen: list[bool] = []
    with anyio.CancelScope() as scope:

        def slow(number: int, path: Path, data: bytes) -> bool:
            anyio.from_thread.run_sync(scope.cancel)
            # Whoever could leave now has the time to.
            for _ in range(20):
                anyio.from_thread.run_sync(bool)
            seen.append(bool(left))
            return write(number, path, data)

        monkeypatch.setattr(_writing, "_append_once", slow)
        await sessions.rename(SESSION, "Renamed")
    left.append(True)
    assert seen == [False]
    assert (await sessions.info(SESSION)).title == "Renamed"


async def test_lists_are_newest_first_in_pages(tmp_path: Path, place: str) -> None:
    async with opened(place, tmp_path / "here") as sessions:
        for number in range(1, 6):
            await keep(sessions, bundle(session_id(number)))
        await sessions.rename(session_id(2), "Newest")
        ids = [info.id for info in await sessions.list()]
        assert ids[0] == session_id(2)
        pages = [await sessions.list(limit=2, offset=offset) for offset in (0, 2, 4, 6)]
        assert [info.id for page in pages for info in page] == ids
        assert await sessions.list(limit=0) == []
        now = datetime.now(UTC)
        assert await sessions.list(since=now + timedelta(hours=1)) == []
        assert len(await sessions.list(until=now + timedelta(hours=1))) == 5
        assert await sessions.list(branch="other") == []


def test_sessions_are_offered_at_the_top() -> None:
    assert outrider.Sessions is Sessions
    assert "Sessions" in dir(outrider)
    assert repr(Sessions(MemoryStore())) == "<Sessions in MemoryStore>"


async def test_nothing_is_there_when_there_is_no_folder(tmp_path: Path) -> None:
    sessions = Sessions(config=tmp_path / "nowhere")
    found: list[StoredSession] = await sessions.list()
    assert found == []
    assert [hit async for hit in sessions.search("x")] == []


async def test_a_search_that_is_given_up_reads_no_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, 4):
        put_on_disk(tmp_path, bundle(session_id(number)))
    begun, go_on, left = threading.Event(), threading.Event(), threading.Event()
    opened: list[str] = []

    def open_file(path: Path, buffering: int = -1) -> Any:
        if buffering == 0:
            # For a list.
            return files.open_file(path, buffering)
        opened.append(path.name)
        if len(opened) == 1:
            begun.set()
            go_on.wait(DEADLINE)
        return files.open_file(path)

    real_run = search.Search.run

    def run(*arguments: Any) -> Any:
        yield from real_run(*arguments)
        left.set()

    monkeypatch.setattr(search, "open_file", open_file)
    monkeypatch.setattr(search.Search, "run", run)
    hits = Sessions(config=tmp_path).search("nowhere")
    with anyio.fail_after(DEADLINE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hits.__anext__)
            await anyio.to_thread.run_sync(begun.wait, DEADLINE)
            tasks.cancel_scope.cancel()
        go_on.set()
        assert await anyio.to_thread.run_sync(left.wait, DEADLINE)
    assert len(opened) == 1
