"""Which sessions are on disk."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from outrider.transcripts import SessionQuery, StoredSession, project_key
from outrider.transcripts._disk import files, read
from outrider.transcripts._disk.read import Disk, Search
from outrider.wire import encode
from tests.transcripts.disk.shelf import TALK, Shelf, at
from tests.transcripts.lines import SESSION, answer, line, prompt, session_id, title, written

HEAD = 1 << 16


def listed(shelf: Shelf, **asked: Any) -> list[str]:
    return [str(int(info.id[-12:], 16)) for info in shelf.disk.list(SessionQuery(**asked))]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are opened."""
    names: list[str] = []
    real = files.open_file

    def open_file(path: str | os.PathLike[str], buffering: int = -1) -> Any:
        found = real(path, buffering)
        names.append(Path(path).name)
        return found

    for module in (read, read):
        monkeypatch.setattr(module, "open_file", open_file)
    return names


def test_the_session_that_was_used_last_comes_first(shelf: Shelf) -> None:
    for number, hour in ((1, 3), (2, 5), (3, 4)):
        shelf.write(number, hour=hour)
    assert listed(shelf) == ["2", "3", "1"]
    assert listed(shelf, limit=2) == ["2", "3"]
    assert listed(shelf, limit=2, offset=1) == ["3", "1"]
    assert listed(shelf, offset=3) == []
    assert listed(shelf, limit=0) == []


def test_what_is_told_of_a_session(shelf: Shelf) -> None:
    path = shelf.write(1, [*TALK, title("Named"), {"type": "tag", "tag": "ci"}], hour=5)
    assert shelf.disk.list() == [
        StoredSession(
            id=SESSION,
            project="-srv-project",
            title="Named",
            custom_title="Named",
            first_prompt="prompt u1",
            tag="ci",
            cwd="/srv/project",
            git_branch="main",
            created_at=at(12),
            last_modified=at(5),
            size=path.stat().st_size,
            path=path,
        )
    ]
    assert shelf.disk.info(SESSION) == shelf.disk.list()[0]


def test_no_more_files_are_opened_than_needed(shelf: Shelf, opened: list[str]) -> None:
    for number in range(1, 20):
        shelf.write(number, hour=number)
    shelf.write(18, b"", hour=18)
    shelf.write(17, [line("progress", "p")], hour=17)
    assert listed(shelf, limit=2, offset=1) == ["16", "15"]
    assert opened == [f"{session_id(number)}.jsonl" for number in (19, 17, 16, 15)]
    opened.clear()
    assert listed(shelf, until=at(3), limit=1) == ["3"]
    assert opened == [f"{session_id(3)}.jsonl"]


def test_what_is_no_session_is_passed_over(shelf: Shelf) -> None:
    shelf.write(1)
    shelf.write(2, b"")
    shelf.write(3, [prompt("u1", isSidechain=True)])
    shelf.write(4, [line("progress", "p")])
    shelf.write(5, b"\x00" * 100)
    shelf.write(6, b"not JSON\n[1]\n")
    folder = shelf.path().parent
    (folder / "notes.txt").write_text("x")
    (folder / "agent-a1.jsonl").write_bytes(written(TALK))
    (folder / "memory").mkdir()
    shelf.path(7).mkdir()
    (shelf.projects / "a-file").write_text("x")
    assert listed(shelf) == ["1"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with names")
@pytest.mark.timeout(20)
def test_a_pipe_is_not_waited_for(shelf: Shelf) -> None:
    shelf.write(1)
    os.mkfifo(shelf.path(2))
    assert listed(shelf) == ["1"]
    with pytest.raises(OSError, match="not a regular file"):
        files.open_file(shelf.path(2))


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
def test_links_are_followed_if_they_lead_somewhere(shelf: Shelf, tmp_path: Path) -> None:
    (tmp_path / "elsewhere.jsonl").write_bytes(written(TALK))
    shelf.write(1)
    shelf.path(2).symlink_to(tmp_path / "elsewhere.jsonl")
    shelf.path(3).symlink_to(tmp_path / "nowhere.jsonl")
    shelf.path(4).symlink_to(shelf.path(4))
    assert sorted(listed(shelf)) == ["1", "2"]


@pytest.mark.parametrize("config", ["missing", "a file"])
def test_where_nothing_is_there_are_no_sessions(tmp_path: Path, config: str) -> None:
    if config == "a file":
        (tmp_path / "config").write_text("x")
    assert Disk(tmp_path / "config").list() == []
    assert Disk(tmp_path / "config").list(SessionQuery(project=tmp_path)) == []


def test_a_user_without_a_home_has_no_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("HOME", "USERPROFILE", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    assert Disk().list() == []
    assert list(Disk().search(Search("x"))) == []


def test_what_may_not_be_read_is_passed_over(users_shelf: Shelf) -> None:
    users_shelf.write(1)
    users_shelf.write(2).chmod(0)
    other = users_shelf.write(3, project="/srv/other")
    other.parent.chmod(0)
    try:
        assert listed(users_shelf) == ["1"]
    finally:
        other.parent.chmod(0o700)


def test_a_file_that_cannot_be_opened_is_passed_over(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf.write(1, hour=1)
    shelf.write(2, hour=2)
    real = files.open_file

    def open_file(path: str | os.PathLike[str], buffering: int = -1) -> Any:
        if session_id(2) in os.fspath(path):
            raise FileNotFoundError(2, "it is gone by now", path)
        return real(path, buffering)

    monkeypatch.setattr(read, "open_file", open_file)
    assert listed(shelf, limit=1) == ["1"]


# Filters.


def test_sessions_are_chosen_by_what_is_told_of_them(shelf: Shelf) -> None:
    shelf.write(1, [*TALK, title("Release notes")], hour=1)
    shelf.write(2, [*TALK, {"type": "tag", "tag": "ci"}], hour=2)
    shelf.write(3, [prompt("u1", gitBranch="feature")], hour=3)
    shelf.write(4, hour=4)
    shelf.write_part("archived.json", b'{"archived":true}', 4)
    shelf.write_part("archived.json", b"damaged", 3)
    assert listed(shelf) == ["3", "2", "1"]
    assert listed(shelf, title="NOTES") == ["1"]
    assert listed(shelf, tag="ci") == ["2"]
    assert listed(shelf, branch="feature") == ["3"]
    assert listed(shelf, since=at(2)) == ["3", "2"]
    assert listed(shelf, until=at(2)) == ["2", "1"]
    assert listed(shelf, archived=True) == ["4"]
    assert listed(shelf, archived=None) == ["4", "3", "2", "1"]
    assert listed(shelf, archived=None, branch="main", limit=1, offset=1) == ["2"]
    assert shelf.disk.info(session_id(4)).is_archived


def test_a_session_of_several_projects_is_there_once_and_as_it_was_last(shelf: Shelf) -> None:
    shelf.write(1, [*TALK, title("old")], hour=1)
    shelf.write(1, [*TALK, title("new")], project="/srv/other", hour=2)
    assert [info.title for info in shelf.disk.list()] == ["new"]
    # The older one is not taken for it if the newer one is not asked for.
    assert listed(shelf, title="old") == []
    assert listed(shelf, title="old", project="/srv/project") == ["1"]
    # Nothing was said in the newer one.
    shelf.write(1, [line("progress", "p")], project="/srv/other", hour=2)
    assert [info.title for info in shelf.disk.list()] == ["old"]


def test_sessions_of_a_project_are_those_of_its_folder(shelf: Shelf, tmp_path: Path) -> None:
    shelf.write(1, project=tmp_path)
    shelf.write(2, project=f"{tmp_path}-2")
    shelf.write(3, project=tmp_path / "inside")
    assert listed(shelf, project=tmp_path) == ["1"]
    assert listed(shelf, project=tmp_path, worktrees=False) == ["1"]


def test_sessions_of_other_worktrees_belong_to_a_project(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf.write(1, project=tmp_path / "main", hour=1)
    shelf.write(2, project=tmp_path / "other", hour=2)
    shelf.write(3, project=tmp_path / "stranger", hour=3)
    places = [str(tmp_path / "main"), str(tmp_path / "other")]
    monkeypatch.setattr(read, "worktrees", lambda _: places)
    assert listed(shelf, project=tmp_path / "main") == ["2", "1"]
    assert listed(shelf, project=tmp_path / "main", worktrees=False) == ["1"]
    assert shelf.disk.find(session_id(2), tmp_path / "main").project == project_key(tmp_path / "other")


def test_a_long_path_is_found_under_the_checksum_of_another_runtime(shelf: Shelf) -> None:
    long = "/srv/" + "x" * 250
    key = project_key(long)
    theirs = shelf.projects / f"{key[:200]}-other1"
    theirs.mkdir(parents=True)
    (theirs / f"{session_id(1)}.jsonl").write_bytes(written([prompt("u1", cwd=long)]))
    # The same beginning, but another folder.
    (theirs / f"{session_id(2)}.jsonl").write_bytes(written([prompt("u1", cwd=long + "y")]))
    shelf.write(3, [prompt("u1", cwd=long)], project=long)
    assert sorted(listed(shelf, project=long, worktrees=False)) == ["1", "3"]
    assert shelf.disk.find(session_id(1), long).project == theirs.name
    assert listed(shelf, project="/srv/" + "x" * 190, worktrees=False) == []


# Large files.


def filler(size: int) -> bytes:
    return encode(answer("f", None) | {"padding": "x" * size}) + b"\n"


def test_the_ends_of_a_large_file_tell(shelf: Shelf) -> None:
    middle = written([title("lost"), {"type": "tag", "tag": "lost"}])
    shelf.write(1, written(TALK) + filler(HEAD) + middle + filler(HEAD) + written([title("Named")]))
    (info,) = shelf.disk.list()
    assert (info.title, info.first_prompt, info.created_at, info.tag) == ("Named", "prompt u1", at(12), None)


@pytest.mark.parametrize("size", [HEAD, 3 * HEAD, 5_000_000])
def test_a_prompt_that_is_larger_than_what_is_read_is_found(shelf: Shelf, size: int) -> None:
    shelf.write(1, [prompt("u1", text="Long " + "x" * size), *TALK[1:]])
    (info,) = shelf.disk.list()
    assert (info.first_prompt or "").startswith("Long xxx")
    assert (info.cwd, info.created_at) == ("/srv/project", at(12))
    shelf.write(1, [prompt("u1", text="Long " + "x" * size)] * 3)
    (info,) = shelf.disk.list()
    assert (info.first_prompt or "").startswith("Long xxx")


@pytest.mark.parametrize("shift", range(-3, 4))
@pytest.mark.parametrize("end", [b"", b"\n", b'\n{"type":"custom-title","customTi'])
def test_a_line_that_begins_where_the_end_begins_is_not_lost(shelf: Shelf, shift: int, end: bytes) -> None:
    last = encode(title("Named") | {"padding": ""})
    last = last.replace(b'"padding":""', b'"padding":"%s"' % (b"x" * (HEAD - len(last) - len(end) + shift)))
    shelf.write(1, written(TALK) + filler(2 * HEAD) + last + end)
    (info,) = shelf.disk.list()
    # Cut by a byte, it is a line that cannot be read.
    assert info.title == ("Named" if shift <= 0 else "prompt u1")


@pytest.mark.parametrize("size", [0, 1, HEAD - 1, HEAD, HEAD + 1, 2 * HEAD - 1, 2 * HEAD, 2 * HEAD + 1])
def test_files_of_all_sizes_are_read(shelf: Shelf, size: int) -> None:
    shelf.write(1, written(TALK) + b"x" * size + b"\n" + written([title("Named")]))
    (info,) = shelf.disk.list()
    assert (info.title, info.first_prompt) == ("Named", "prompt u1")
