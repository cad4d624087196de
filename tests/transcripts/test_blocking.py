"""`BlockingSessions`: the sessions on this machine, without an event loop."""

from __future__ import annotations

from pathlib import Path

import pytest

from outrider.errors import SessionNotFound, TranscriptError
from outrider.transcripts import BlockingSessions, SessionQuery, title_entry
from tests.transcripts.keeping import KEY, PROJECT, bundle, put_on_disk
from tests.transcripts.lines import SESSION, session_id


@pytest.fixture
def sessions(tmp_path: Path) -> BlockingSessions:
    put_on_disk(tmp_path)
    return BlockingSessions(tmp_path)


def test_facts_are_what_a_summary_would_say(sessions: BlockingSessions) -> None:
    ((session, data),) = sessions.facts(SessionQuery(project=PROJECT))
    assert (session.id, data["custom_title"], data["last_prompt"]) == (SESSION, "Titled", "Go on")
    assert sessions.facts_of(SESSION) == (session, data)


def test_facts_of_what_lists_leave_out_are_none(sessions: BlockingSessions, tmp_path: Path) -> None:
    (tmp_path / "projects" / KEY / f"{session_id(2)}.jsonl").write_text('{"type":"mode"}\n')
    assert sessions.facts_of(session_id(2)) is None


def test_a_subagent_is_read_with_what_is_told_of_it(sessions: BlockingSessions) -> None:
    assert sessions.agents(SESSION) == ["first", "late", "nested"]
    messages, told = sessions.read_agent(SESSION, "first")
    assert [entry.uuid for entry in messages] == ["s1", "s2"]
    assert told["toolUseId"] == "call-u2"
    with pytest.raises(TranscriptError, match="no subagent 'gone'"):
        sessions.read_agent(SESSION, "gone")


def test_a_damaged_note_on_a_subagent_tells_nothing(sessions: BlockingSessions) -> None:
    (sessions.find(SESSION).folder / "subagents" / "agent-first.meta.json").write_text("{broken")
    messages, told = sessions.read_agent(SESSION, "first")
    assert (len(messages), told) == (2, {})


def test_a_session_is_changed_and_removed(sessions: BlockingSessions) -> None:
    sessions.note(SESSION, title_entry(SESSION, "Other"))
    assert sessions.load(SESSION).entries[-1]["customTitle"] == "Other"
    assert [entry.uuid for entry in sessions.read(SESSION)][-1] == "u8"
    sessions.put(bundle(session_id(5)))
    sessions.delete(SESSION)
    with pytest.raises(SessionNotFound):
        sessions.find(SESSION)
    assert sessions.find(session_id(5)).project == KEY


def test_a_user_without_a_home_has_no_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CLAUDE_CONFIG_DIR", "HOME", "USERPROFILE"):
        monkeypatch.delenv(name, raising=False)

    def nowhere() -> Path:
        raise RuntimeError

    monkeypatch.setattr(Path, "home", nowhere)
    sessions = BlockingSessions()
    assert (sessions.projects, [*sessions.facts(SessionQuery())]) == (None, [])
    with pytest.raises(TranscriptError, match="no home folder"):
        sessions.put(bundle())
