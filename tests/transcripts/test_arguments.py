"""Arguments that make no sense are refused by their names, wherever the sessions are."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from outrider.errors import OptionsError
from outrider.transcripts import MemoryStore, SessionQuery, Sessions, StoredSession
from outrider.transcripts._values import checked_id
from tests.cases import every_case
from tests.transcripts.keeping import PROJECT, put_on_disk
from tests.transcripts.lines import SESSION

pytestmark = pytest.mark.anyio
DEADLINE = 30.0

NO_FOLDERS = (5, "", "a\x00b", "\ud800", b"/srv", ["/srv"])
NO_COUNTS = (-1, 1.5, True, "5", float("nan"))
NO_TEXTS = (5, b"x", ["x"])
NO_TIMES = (5, "2026-01-01", date(2026, 1, 1))
NO_CHOICES = (5, "yes", "")

OF_ALL: dict[str, tuple[object, ...]] = {"session_id": (5, "", "7b1f", None), "project": NO_FOLDERS}
FILTERS: dict[str, tuple[object, ...]] = {
    "project": NO_FOLDERS,
    "title": NO_TEXTS,
    "tag": NO_TEXTS,
    "branch": NO_TEXTS,
    "since": NO_TIMES,
    "until": NO_TIMES,
    "archived": NO_CHOICES,
    "worktrees": NO_CHOICES,
    "limit": NO_COUNTS,
}
REFUSED: dict[str, dict[str, tuple[object, ...]]] = {
    "list": {**FILTERS, "offset": NO_COUNTS},
    "search": {**FILTERS, "text": (*NO_TEXTS, "", None)},
    "info": OF_ALL,
    "read": {
        **OF_ALL,
        "agent": NO_TEXTS,
        "history": (5, "all", ["full"]),
        "last": (*NO_COUNTS, 0),
        "limit": NO_COUNTS,
        "offset": NO_COUNTS,
    },
    "agents": OF_ALL,
    "export": {**OF_ALL, "format": (5, "pdf", ["json"], None), "redact": NO_CHOICES},
    "rename": {**OF_ALL, "title": (*NO_TEXTS, "", " ", None)},
    "tag": {**OF_ALL, "tag": (*NO_TEXTS, "", "\u200b")},
    "archive": OF_ALL,
    "unarchive": OF_ALL,
    "delete": OF_ALL,
    "fork": {**OF_ALL, "at": (*NO_TEXTS, "nowhere"), "title": (*NO_TEXTS, "")},
    "import_": {"source": (5, "", b"{}", None, "a\x00b", "\ud800"), "project": NO_FOLDERS},
    "copy": {**OF_ALL, "to": (5, "x.db", None), "to_project": NO_FOLDERS},
}
GIVEN: dict[str, dict[str, object]] = {
    "rename": {"title": "x"},
    "tag": {"tag": "x"},
    "search": {"text": "x"},
}


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["disk", "store"])
async def sessions(request: pytest.FixtureRequest, tmp_path: Path) -> Sessions:
    put_on_disk(tmp_path)
    disk = Sessions(config=tmp_path)
    if request.param == "disk":
        return disk
    store = Sessions(MemoryStore())
    await disk.copy(SESSION, to=store)
    return store


async def call(sessions: Sessions, method: str, arguments: dict[str, Any]) -> None:
    found = getattr(sessions, method)(**arguments)
    if method == "search":
        async for _ in found:
            pass
    else:
        await found


@every_case("method, name", [(method, name) for method in REFUSED for name in REFUSED[method]])
async def test_what_makes_no_sense_is_refused(sessions: Sessions, method: str, name: str) -> None:
    given: dict[str, Any] = {} if method in ("list", "search", "import_") else {"session_id": SESSION}
    given |= GIVEN.get(method, {})
    if method == "copy":
        given["to"] = Sessions(MemoryStore())
    if method == "import_":
        given |= {"source": await sessions.export(SESSION, "json"), "as_new": True}
    before = await sessions.list(archived=None)
    with anyio.fail_after(DEADLINE):
        for value in REFUSED[method][name]:
            with pytest.raises(OptionsError) as caught:
                await call(sessions, method, {**given, name: value})
            assert caught.value.hint, value
    assert await sessions.list(archived=None) == before


@pytest.mark.parametrize("config", NO_FOLDERS, ids=repr)
def test_a_folder_of_the_program_is_a_path(config: Any) -> None:
    with pytest.raises(OptionsError, match="config cannot be"):
        Sessions(config=config)


def test_a_long_value_is_not_repeated_in_full() -> None:
    with pytest.raises(OptionsError) as caught:
        SessionQuery(limit=cast("Any", "9" * 10_000))
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("zone", [None, UTC], ids=["local", "UTC"])
def test_the_ends_of_the_calendar_are_times(zone: Any) -> None:
    always = SessionQuery(since=datetime.min.replace(tzinfo=zone), until=datetime.max.replace(tzinfo=zone))
    info = StoredSession(
        id=SESSION, project=PROJECT, title="x", last_modified=datetime(2026, 3, 1, tzinfo=UTC)
    )
    assert always.matches(info)


async def test_a_path_that_is_too_long_for_the_system_has_no_sessions(sessions: Sessions) -> None:
    assert await sessions.list(project="/srv/" + "x" * 100_000) == []


@every_case(
    "id", ["", "x", "../../etc/passwd", SESSION[:-1], f"{{{SESSION}}}", SESSION.replace("-", ""), 5, None]
)
def test_an_id_that_is_none_is_refused(id: Any) -> None:
    with pytest.raises(OptionsError, match="id cannot be"):
        checked_id(id)


def test_an_id_is_written_in_small_letters() -> None:
    assert checked_id("ABCDEFAB-0000-4000-8000-000000000000") == "abcdefab-0000-4000-8000-000000000000"
