"""Kept sessions without `await`: the same values, and errors where the call was made."""

from __future__ import annotations

from pathlib import Path

import pytest

import outrider.sync
from outrider.errors import SessionNotFound
from outrider.transcripts import MemoryStore, StoredSession
from outrider.transcripts._export.turns import exported
from tests.transcripts.keeping import PROJECT, bundle, put_on_disk
from tests.transcripts.lines import SESSION


def test_sessions_are_listed_changed_and_copied(tmp_path: Path) -> None:
    put_on_disk(tmp_path)
    sessions = outrider.sync.Sessions(config=tmp_path)
    [info] = sessions.list(project=PROJECT)
    assert isinstance(info, StoredSession)
    sessions.rename(SESSION, "Renamed")
    assert [entry.text for entry in sessions.read(SESSION, last=1)] == ["answer u8"]
    with outrider.sync.Sessions(tmp_path / "x.db") as store:
        sessions.copy(SESSION, to=store)
        assert store.info(SESSION).title == "Renamed"
        new = store.fork(SESSION)
        assert len(store.list()) == 2
        store.delete(new)
        with pytest.raises(SessionNotFound):
            store.info(new)


def test_hits_are_looped_over() -> None:
    sessions = outrider.sync.Sessions(MemoryStore())
    assert sessions.import_(exported(bundle(), "json")) == SESSION
    assert {hit.agent_id for hit in sessions.search("Look")} == {"first", "nested"}
    for hit in sessions.search("Begin"):
        assert hit.session.id == SESSION
        break
    assert repr(sessions) == "<Sessions in MemoryStore>"
