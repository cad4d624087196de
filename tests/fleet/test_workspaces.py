"""Folders for tasks: made, kept, removed, and made anew where something was left."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path
from threading import Lock
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread
import pytest

from outrider.errors import OptionsError
from outrider.fleet import Copy, Empty, Workspace, WorkspaceFailed, Worktree
from outrider.fleet._task import STATUSES
from outrider.fleet._workspaces import folder_name, in_thread, sweep


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=x", "-c", "user.email=x@example.com", "-c", "commit.gpgsign=false")
    ran = subprocess.run(
        ["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return ran.stdout


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A repository with two commits and something that is not committed."""
    folder = tmp_path / "source"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    for number in ("1", "2"):
        (folder / "a.txt").write_text(number)
        git(folder, "add", ".")
        git(folder, "commit", "-q", "-m", number)
    (folder / "b.pyc").write_text("dirty")
    (folder / "link").symlink_to("a.txt")
    return folder


def kinds(source: Path) -> dict[str, Workspace]:
    return {"empty": Empty(), "copy": Copy(str(source)), "worktree": Worktree(str(source))}


@pytest.mark.parametrize("kind", ["empty", "copy", "worktree"])
def test_a_folder_is_made_anew_and_removed(kind: str, source: Path, tmp_path: Path) -> None:
    workspace, root = kinds(source)[kind], tmp_path / "root"
    path = workspace.make("task", root)
    first = sorted(each.name for each in path.iterdir())
    (path / "left.txt").write_text("by an attempt before")
    locked = path / "locked"
    locked.mkdir()
    (locked / "file").touch()
    locked.chmod(0o500)
    assert workspace.make("task", root) == path
    assert sorted(each.name for each in path.iterdir()) == first
    workspace.remove(path)
    workspace.remove(path)
    assert list(root.iterdir()) == []
    assert git(source, "worktree", "list", "--porcelain").count("worktree ") == 1


def test_a_copy_has_all_but_what_is_ignored_and_a_worktree_what_is_committed(
    source: Path, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    copy = Copy(str(source), ignore=("*.pyc", ".git")).make("copy", root)
    assert sorted(each.name for each in copy.iterdir()) == ["a.txt", "link"]
    assert (copy / "link").is_symlink()
    tree = Worktree(str(source), ref="HEAD~1").make("tree", root)
    assert (tree / "a.txt").read_text() == "1"
    assert not (tree / "b.pyc").exists()
    # Two of one repository, side by side.
    assert Worktree(str(source)).make("other", root).joinpath("a.txt").read_text() == "2"


def test_a_copy_of_what_it_stands_in_ends_and_has_no_sockets(source: Path, tmp_path: Path) -> None:
    os.mkfifo(source / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.path.relpath(source / "socket"))
    root = source / "deep" / "run.db.workspaces"
    Empty().make("other", root)
    (tmp_path / "link").symlink_to(source)
    path = Copy(str(tmp_path / "link"), ignore=(".git",)).make("task", root)
    assert sorted(str(each.relative_to(path)) for each in path.rglob("*")) == [
        "a.txt",
        "b.pyc",
        "deep",
        "link",
    ]
    # Even one of the place where they are made.
    assert {each.name for each in Copy(str(root)).make("all", root).iterdir()} == {"other", "task"}


def test_a_worktree_that_is_locked_is_removed_and_made_anew(source: Path, tmp_path: Path) -> None:
    workspace, root = Worktree(str(source)), tmp_path / "root"
    path = workspace.make("task", root)
    git(source, "worktree", "lock", str(path))
    workspace.remove(path)
    assert git(source, "worktree", "list", "--porcelain").count("worktree ") == 1
    # As it is left when git itself is killed.
    git(source, "worktree", "lock", str(workspace.make("task", root)))
    path.rename(tmp_path / "gone")
    assert (workspace.make("task", root) / "a.txt").read_text() == "2"


def test_nothing_is_touched_that_a_link_leads_to(source: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    kept = source / "a.txt"
    kept.chmod(0o444)
    path = Empty().make("task", root)
    path.rmdir()
    path.symlink_to(source)
    Empty().remove(path)
    path.write_text("no folder")
    locked = Empty().make("task", root) / "locked"
    (locked / "deep").mkdir(parents=True)
    (locked / "link").symlink_to(kept)
    (locked / "folder").symlink_to(source)
    before = source.stat().st_mode
    Empty().remove(path)
    assert list(root.iterdir()) == []
    assert (source.stat().st_mode, kept.stat().st_mode & 0o777) == (before, 0o444)


def test_a_copy_that_fails_leaves_nothing_and_says_why(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfileobj", refuse)
    with pytest.raises(WorkspaceFailed, match=r"No space left on device: '[^']*/source/[^']*'"):
        Copy(str(source), ignore=(".git",)).make("task", tmp_path / "root")
    assert list((tmp_path / "root").iterdir()) == []


@pytest.mark.parametrize(
    "keep, kept",
    [("never", ("waiting",)), ("failed", ("failed", "skipped", "over_budget", "waiting")), ("always", None)],
)
def test_it_is_kept_as_it_says(keep: Any, kept: tuple[str, ...] | None) -> None:
    workspace = Empty(keep=keep)
    for status in STATUSES:
        assert workspace.is_kept(status) is (kept is None or status in kept)


def test_what_was_being_made_or_removed_is_swept_away(source: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    whole = Empty().make("whole", root)
    for name in ("half.partial", "gone.leaving"):
        (root / name / "deep").mkdir(parents=True)
    sweep(root)
    assert list(root.iterdir()) == [whole]
    (root / "whole.leaving").mkdir()
    Empty().remove(whole)
    assert list(root.iterdir()) == []


@pytest.mark.parametrize("id", ["plain-1.x", "a/../../b", "..", "über", "x" * 300, "A b", "x.partial", ""])
def test_every_id_has_a_folder_of_its_own_below_the_root(id: str, tmp_path: Path) -> None:
    name = folder_name(id)
    assert (tmp_path / name).resolve().parent == tmp_path.resolve()
    assert len(name) < 100
    assert (name == id) is (id == "plain-1.x")


@pytest.mark.parametrize(
    "make, reason",
    [
        (lambda folder: Copy(str(folder / "nothing")), "No such file"),
        (lambda folder: Worktree(str(folder)), "not a git repository"),
        (lambda folder: Worktree(str(folder / "source"), ref="nothing"), "nothing"),
    ],
    ids=["no source", "no repository", "no commit"],
)
def test_what_cannot_be_made_is_told(make: Any, reason: str, source: Path, tmp_path: Path) -> None:
    (tmp_path / "bare").mkdir()
    workspace = make(tmp_path)
    with pytest.raises(WorkspaceFailed) as raised:
        workspace.make("task", tmp_path / "root")
    assert reason in str(raised.value)
    assert "task" in raised.value.path


def test_a_word_that_is_no_way_to_keep_is_refused() -> None:
    unknown: Any = "sometimes"
    with pytest.raises(OptionsError, match="sometimes"):
        Empty(keep=unknown)


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_folders_are_made_in_a_few_threads_of_their_own(anyio_backend: str, source: Path) -> None:
    """So that agents can be started meanwhile. One of them only writes to a repository at a time."""
    running: dict[str, int] = {}
    most: dict[str, int] = {}
    counting, go = Lock(), anyio.Event()

    def work(kind: str) -> None:
        with counting:
            running[kind] = running.get(kind, 0) + 1
            most[kind] = max(most.get(kind, 0), running[kind])
        anyio.from_thread.run(go.wait)
        with counting:
            running[kind] -= 1

    async def until(kind: str, count: int) -> None:
        while most.get(kind) != count:
            await anyio.lowlevel.checkpoint()

    given = {"tree": Worktree(str(source)), "same": Worktree(f"{source}/."), "other": Worktree("elsewhere")}
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for kind, workspace in given.items():
                for _ in range(3):
                    tasks.start_soon(in_thread, workspace, work, "other" if kind == "other" else "tree")
            await until("tree", 1)
            await until("other", 1)
            for _ in range(20):
                tasks.start_soon(in_thread, Empty(), work, "empty")
            # Eight threads, of which two are taken.
            await until("empty", 6)
            limiter = anyio.to_thread.current_default_thread_limiter()
            assert limiter.borrowed_tokens == 0
            go.set()
    assert (most["tree"], most["other"]) == (1, 1)
    assert most["empty"] <= 8
