"""The session functions on disk: as the reference's, called in any way, and fast."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import anyio
import pytest

from outrider import compat
from outrider.compat._sessions.disk import (
    delete_session,
    fork_session,
    get_session_info,
    get_session_messages,
    get_subagent_messages,
    list_sessions,
    list_subagents,
    project_key_for_directory,
    rename_session,
    tag_session,
)
from outrider.compat._types import messages
from scripts.reference_sessions import KEPT, ask
from tests.cases import names_of
from tests.compat.kept_sessions import WORLDS
from tests.compat.scripts import reference_python
from tests.compat.session_answers import answers
from tests.compat.session_cases import CASES
from tests.compat.session_differences import DIFFERENCES
from tests.transcripts.keeping import put_on_disk
from tests.transcripts.lines import SESSION, answer, prompt, session_id, written

EXPLAINED = {name for names in DIFFERENCES.values() for name in names}
NAMES = {case["name"]: case for case in CASES}


def lookup(name: str) -> Any:
    for module in (compat, messages):
        if hasattr(module, name):
            return getattr(module, name)
    raise AttributeError(name)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    told = answers(WORLDS, CASES, lookup, tmp_path_factory.mktemp("kept"))
    return dict(json.loads(json.dumps(told)))


@pytest.fixture(scope="module")
def theirs() -> dict[str, Any]:
    return dict(json.loads(KEPT.read_text()))


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    return tmp_path


def differing(one: dict[str, Any], other: dict[str, Any]) -> set[str]:
    """The cases with other answers; how often a store was asked is not part of one."""
    without = [{name: {**told, "loads": 0} for name, told in each.items()} for each in (one, other)]
    return {name for name in NAMES if without[0].get(name) != without[1].get(name)}


# Against the reference


def test_every_answer_is_the_references_or_its_difference_is_explained(
    ours: dict[str, Any], theirs: dict[str, Any]
) -> None:
    found = differing(ours, theirs)
    unexplained = {name: (theirs.get(name), ours[name]) for name in found - EXPLAINED}
    assert unexplained == {}
    assert EXPLAINED - found == set(), "explained, and not different (any more)"
    # Nor is a store asked more often.
    more = {
        name: (told["loads"], ours[name]["loads"])
        for name, told in theirs.items()
        if name not in EXPLAINED and "loads" in told and ours[name]["loads"] > told["loads"]
    }
    assert more == {}


def test_the_kept_answers_are_of_these_cases(theirs: dict[str, Any]) -> None:
    # Otherwise: python scripts/reference_sessions.py --write …
    assert [*theirs] == [*NAMES]


def test_each_function_is_called_in_the_cases() -> None:
    functions = {name for name in names_of(compat) if "session" in name or "subagent" in name}
    assert functions - {case["call"] for case in CASES} == set()


def test_the_reference_still_answers_so(theirs: dict[str, Any]) -> None:
    assert ask(reference_python(), "claude_agent_sdk", WORLDS, CASES) == theirs


# Called in any way

CALLS: dict[str, Callable[[], object]] = {
    "list": lambda: [info.summary for info in list_sessions()],
    "info": lambda: get_session_info(SESSION),
    "messages": lambda: [message.uuid for message in get_session_messages(SESSION)],
    "agents": lambda: list_subagents(SESSION),
    "agent": lambda: get_subagent_messages(SESSION, "first"),
    "rename": lambda: rename_session(SESSION, "New"),
    "tag": lambda: tag_session(SESSION, "new"),
    "fork": lambda: fork_session(SESSION).session_id,
    "delete": lambda: delete_session(SESSION),
}


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_functions_work_within_an_event_loop_and_start_no_thread(config: Path, backend: str) -> None:
    put_on_disk(config)

    async def main() -> set[threading.Thread]:
        before = set(threading.enumerate())
        return {
            each for call in CALLS.values() if call() is not ... for each in threading.enumerate()
        } - before

    assert anyio.run(main, backend=backend) == set()
    assert get_session_info(SESSION) is None


def test_the_functions_work_in_a_thread(config: Path) -> None:
    put_on_disk(config)
    told: list[object] = []
    thread = threading.Thread(target=lambda: told.extend(call() for call in CALLS.values()))
    thread.start()
    thread.join(10)
    assert len(told) == len(CALLS)
    assert told[0] == ["Titled"]


def test_a_list_reads_no_more_files_than_it_takes(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = config / "projects" / project_key_for_directory("/srv/project")
    folder.mkdir(parents=True)
    text = written([prompt("u1"), answer("a1", "u1")])
    for number in range(1, 101):
        path = folder / f"{session_id(number)}.jsonl"
        path.write_bytes(text)
        os.utime(path, (number, number))
    opened: list[str] = []
    really = os.open

    def opening(path: Any, *args: Any) -> int:
        opened.append(str(path))
        return really(path, *args)

    monkeypatch.setattr(os, "open", opening)
    found = list_sessions(limit=10)
    assert [info.session_id for info in found] == [session_id(number) for number in range(100, 90, -1)]
    assert len([path for path in opened if path.endswith(".jsonl")]) == 10


# What the differences are for


def test_a_title_after_half_a_line_is_not_lost(config: Path) -> None:
    path = put_on_disk(config)
    with path.open("ab") as stream:
        stream.write(b'{"type":"assistant","mess')
    rename_session(SESSION, "Kept")
    info = get_session_info(SESSION)
    assert info is not None
    assert info.custom_title == "Kept"


def test_messages_of_a_file_with_bytes_that_are_no_text_are_given(config: Path) -> None:
    path = put_on_disk(config)
    path.write_bytes(path.read_bytes().replace(b'"Begin"', b'"Beg\xffin"'))
    assert get_session_messages(SESSION)[0].message == {"role": "user", "content": "Beg\ufffdin"}


def test_archived_sessions_are_listed_as_the_reference_does_not_know_of_it(config: Path) -> None:
    path = put_on_disk(config)
    note = path.with_suffix("") / "archived.json"
    note.write_text('{"archived":true}')
    assert [info.session_id for info in list_sessions()] == [SESSION]


def test_a_session_that_may_not_be_written_to_says_so(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_on_disk(config)

    def refused(*_: Any) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(PermissionError, match="Permission denied"):
        rename_session(SESSION, "New")


def test_the_key_of_this_folder_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert project_key_for_directory() == project_key_for_directory(tmp_path)


def test_the_sessions_of_other_worktrees_are_listed_unless_they_are_not_wanted(
    config: Path, tmp_path: Path
) -> None:
    git = ["git", "-c", "user.name=n", "-c", "user.email=e", "-C"]
    main, other = tmp_path / "main", tmp_path / "other"
    main.mkdir()
    for arguments in (
        ["init", "-q"],
        ["commit", "-q", "--allow-empty", "-m", "m"],
        ["worktree", "add", "-q", str(other)],
    ):
        subprocess.run([*git, str(main), *arguments], check=True, capture_output=True)
    for number, folder in ((1, main), (2, other), (3, tmp_path)):
        path = config / "projects" / project_key_for_directory(folder) / f"{session_id(number)}.jsonl"
        path.parent.mkdir(parents=True)
        path.write_bytes(written([prompt("u1", cwd=str(folder))]))
    both = list_sessions(str(main))
    assert {info.session_id for info in both} == {session_id(1), session_id(2)}
    (alone,) = list_sessions(str(main), include_worktrees=False)
    assert alone.session_id == session_id(1)
    assert get_session_info(session_id(2), str(main)) is not None


@pytest.mark.parametrize("function", [get_session_info, get_session_messages, list_subagents, delete_session])
def test_an_id_that_is_no_text_is_a_mistake_and_not_an_unknown_session(
    function: Callable[[Any], Any],
) -> None:
    with pytest.raises(TypeError, match="must be a string, not UUID"):
        function(UUID(session_id(1)))
