"""Folders that agents leave behind deep, locked, full of links and of what is not a file."""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from outrider._folders import copy_folder, remove_folder
from outrider.app._migrate import files_in
from outrider.fleet import Copy, Empty, Task, Worktree, map, resume  # noqa: A004
from outrider.fleet._errors import WorkspaceFailed
from outrider.fleet._journal.journal import Journal
from outrider.fleet._workspaces import Workspace, discard, sweep
from outrider.transcripts import FileStore, SessionKey
from tests.fleet.working import AT_ONCE, Works, nobody_left

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="folders cannot be opened there")

DEPTH = sys.getrecursionlimit() + 200
NAME = "d" * 100
"""So that a path to the last one is longer than any that the system takes."""


def names(folder: Path | int) -> list[str]:
    return sorted(os.listdir(folder))  # noqa: PTH208 - of a descriptor, too


def make_deep(folder: Path, depth: int = DEPTH, name: str = NAME) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    number = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=number)
        inside = os.open(name, os.O_RDONLY, dir_fd=number)
        os.close(number)
        number = inside
    os.close(os.open("file", os.O_CREAT, dir_fd=number))
    os.close(number)


def depth_of(folder: Path) -> int:
    """How deep a folder is, if there is one folder in each."""
    number, depth = os.open(folder, os.O_RDONLY), 0
    while NAME in names(number):
        inside = os.open(NAME, os.O_RDONLY, dir_fd=number)
        os.close(number)
        number, depth = inside, depth + 1
    assert names(number) == ["file"]
    os.close(number)
    return depth


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "root"
    # pytest cannot.
    for name in ("root", "source", "run.db.workspaces"):
        remove_folder(tmp_path / name)


# Depth


def test_a_deep_folder_is_copied_and_removed(tmp_path: Path, root: Path) -> None:
    make_deep(tmp_path / "source")
    workspace = Copy(str(tmp_path / "source"))
    path = workspace.make("task", root)
    assert depth_of(path) == DEPTH
    assert workspace.make("task", root) == path
    workspace.remove(path)
    assert list(root.iterdir()) == []
    assert depth_of(tmp_path / "source") == DEPTH


def test_a_deep_folder_that_was_left_is_swept_away(root: Path) -> None:
    make_deep(root / "task.leaving")
    make_deep(root / "other.partial")
    sweep(root)
    assert list(root.iterdir()) == []


@pytest.mark.parametrize("name", ["d", NAME])
def test_a_deep_folder_is_looked_through(tmp_path: Path, root: Path, name: str) -> None:
    """To its end, or to where a path would be too long, which is told."""
    source, told = tmp_path / "source", list[OSError]()
    make_deep(source, 1500 if name == "d" else DEPTH, name)
    (source / "a.py").write_text("import claude_agent_sdk\n")
    assert list(files_in([source], told.append)) == [source / "a.py"]
    assert [error.errno for error in told] == ([] if name == "d" else [errno.ENAMETOOLONG])


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_deep_folder_goes_with_its_session(anyio_backend: str, root: Path) -> None:
    key: SessionKey = {"project_key": "p", "session_id": "5e551011-0000-4000-8000-000000000002"}
    async with FileStore(root) as store:
        await store.append(key, [{"type": "user"}])
        make_deep(root / key["project_key"] / key["session_id"] / "deep")
        before = names(root)
        await store.delete(key)
    assert names(root) == before
    assert names(root / "p") == []


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_batch_goes_on_whatever_a_task_leaves_behind(
    anyio_backend: str, tmp_path: Path, root: Path
) -> None:
    """Each task ends as it did, and the batch can be resumed."""
    works, journal = Works(tmp_path / "agents"), tmp_path / "run.db"
    make_deep(tmp_path / "source")
    folders = journal.with_name("run.db.workspaces")
    make_deep(folders / "task.leaving")
    tasks = [Task(prompt, id=prompt.replace(" ", "-")) for prompt in ("write a", "fail400 b", "write c")]
    kind = Copy(str(tmp_path / "source"))
    outcomes = await map(tasks, works.options(), journal=journal, workspace=kind, **AT_ONCE)
    assert [outcome.status for outcome in outcomes] == ["done", "failed", "done"]
    assert not folders.exists()
    make_deep(folders / "fail400-b")
    again = await resume(journal, works.options(), workspace=kind, retry_failed=True, **AT_ONCE)
    assert [outcome.status for outcome in again] == ["done", "failed", "done"]
    assert not folders.exists()
    await nobody_left()


def test_few_descriptors_are_enough(tmp_path: Path, root: Path) -> None:
    make_deep(tmp_path / "source")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    probes = [os.open("/", os.O_RDONLY) for _ in range(8)]
    for probe in probes:
        os.close(probe)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(probes) + 1, hard))
    try:
        root.mkdir()
        copy_folder(tmp_path / "source", root / "copy")
        remove_folder(root / "copy")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert list(root.iterdir()) == []


# Links


def test_links_are_neither_followed_nor_changed(tmp_path: Path, root: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    (outside / "kept").chmod(0o400)
    source = tmp_path / "source"
    source.mkdir()
    for name, target in {
        "in": "in",
        "out": str(outside),
        "up": "..",
        "root": "/",
        "gone": "/nowhere",
    }.items():
        (source / name).symlink_to(target)
    os.link(outside / "kept", source / "hard")
    workspace = Copy(str(source))
    path = workspace.make("task", root)
    assert {each.name: str(each.readlink()) for each in path.iterdir() if each.is_symlink()} == {
        "in": "in",
        "out": str(outside),
        "up": "..",
        "root": "/",
        "gone": "/nowhere",
    }
    (path / "hard").chmod(0o600)
    (path / "hard").write_text("changed")
    workspace.remove(path)
    assert (outside / "kept").read_text() == "kept"
    assert (outside / "kept").stat().st_mode & 0o777 == 0o400
    assert names(outside) == ["kept"]


def test_a_folder_that_becomes_a_link_while_it_is_removed_leads_nowhere(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is still there replaces a folder between the look at it and the step into it."""
    outside, folder = tmp_path / "outside", root / "task"
    (outside / "kept").mkdir(parents=True)
    (folder / "inside").mkdir(parents=True)
    open_, is_done = os.open, threading.Event()

    def replace_first(path: Any, *arguments: Any, **named: Any) -> int:
        if path == "inside" and not is_done.is_set():
            is_done.set()
            (folder / "inside").rename(tmp_path / "moved")
            (folder / "inside").symlink_to(outside)
        return open_(path, *arguments, **named)

    monkeypatch.setattr(os, "open", replace_first)
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        remove_folder(folder)
    assert names(outside) == ["kept"]
    remove_folder(folder)
    assert names(outside) == ["kept"]


def test_a_folder_that_is_moved_while_it_is_removed_is_not_left_upwards(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside, folder = tmp_path / "outside", root / "task"
    outside.mkdir()
    (outside / "a").mkdir()
    (folder / "a" / "b").mkdir(parents=True)
    open_ = os.open

    def move_first(path: Any, *arguments: Any, **named: Any) -> int:
        if path == ".." and (folder / "a" / "b").exists():
            (folder / "a" / "b").rename(outside / "b")
        return open_(path, *arguments, **named)

    monkeypatch.setattr(os, "open", move_first)
    with pytest.raises(OSError, match="moved while it was worked on"):
        remove_folder(folder)
    assert names(outside) == ["a", "b"]


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_no_task_works_where_a_link_of_its_folder_leads(
    anyio_backend: str, tmp_path: Path, root: Path
) -> None:
    works, outside, source = Works(tmp_path / "agents"), tmp_path / "outside", tmp_path / "source"
    outside.mkdir()
    source.mkdir()
    (source / "sub").symlink_to(outside)
    (source / "real").mkdir()
    (source / "near").symlink_to("real")
    kind = Copy(str(source))
    tasks = [Task("write x", cwd=cwd, workspace=kind) for cwd in ("sub", "real", "near", "sub/..", "real/..")]
    outcomes = await map(tasks, works.options(), **AT_ONCE)
    assert [outcome.status for outcome in outcomes] == ["failed", "done", "done", "failed", "done"]
    assert {outcome.error_kind for outcome in outcomes} == {None, "WorkspaceFailed"}
    assert list(outside.iterdir()) == []
    await nobody_left()


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_task_is_not_picked_up_where_a_link_in_its_place_leads(
    anyio_backend: str, tmp_path: Path
) -> None:
    works, journal, outside = Works(tmp_path / "agents"), tmp_path / "run.db", tmp_path / "outside"
    outside.mkdir()
    folders, session = tmp_path / "run.db.workspaces", "11111111-1111-4111-8111-111111111111"
    (works.folder / "sessions").mkdir()
    (works.folder / "sessions" / session).write_text('"write x"\n')
    with Journal(journal, writing=True) as written:
        written.add([(0, Task("write x", id="task"))])
        written.begin("task", 1, "here", session)
        written.note("task", workspace=str(folders / "task"))
    folders.mkdir()
    (folders / "task").symlink_to(outside)
    await resume(journal, works.options(), workspace=Empty(keep="always"), **AT_ONCE)
    assert {entry["cwd"] for entry in works.log if "prompt" in entry} == {str(folders / "task")}
    assert not (folders / "task").is_symlink()
    await nobody_left()


# What is not a file


@pytest.mark.timeout(20)
def test_what_is_no_file_holds_up_nothing(tmp_path: Path, root: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "file").write_text("x")
    os.mkfifo(source / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.path.relpath(source / "socket"))
    if os.geteuid() == 0:
        os.mknod(source / "zero", stat.S_IFCHR | 0o666, os.makedev(1, 5))
    path = Copy(str(source)).make("task", root)
    assert names(path) == ["file"]
    remove_folder(source)
    assert not source.exists()


@pytest.mark.timeout(20)
def test_a_file_that_becomes_a_pipe_is_not_waited_for(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "file").write_text("x")
    open_ = os.open

    def replace_first(path: Any, *arguments: Any, **named: Any) -> int:
        if path == "file" and (source / "file").is_file():
            (source / "file").unlink()
            os.mkfifo(source / "file")
        return open_(path, *arguments, **named)

    monkeypatch.setattr(os, "open", replace_first)
    assert names(Copy(str(source)).make("task", root)) == []


def test_no_file_of_a_copy_runs_as_its_owner(tmp_path: Path, root: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "shell").touch()
    (source / "shell").chmod(0o6755)
    (source / "folder").mkdir()
    (source / "folder").chmod(0o3777)
    path = Copy(str(source)).make("task", root)
    assert stat.S_IMODE((path / "shell").stat().st_mode) == 0o755
    assert stat.S_IMODE((path / "folder").stat().st_mode) == 0o777


# What may not be changed


def as_nobody(work: Callable[[], None]) -> None:
    """Do something with the rights of a user who has none of those of root."""
    if os.geteuid():
        work()
        return
    failed: list[BaseException] = []

    def run() -> None:
        # This counts for the files that a thread uses, and for that thread alone.
        ctypes.CDLL(None).setfsuid(65534)
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised below
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    for error in failed:
        raise error


@pytest.mark.skipif(sys.platform != "linux", reason="needs rights that count for one thread")
def test_what_its_owner_may_not_change_is_copied_and_removed() -> None:
    base = Path(tempfile.mkdtemp(prefix="outrider-test-"))
    if not os.geteuid():
        os.chown(base, 65534, 65534)

    def work() -> None:
        source = base / "source"
        (source / "locked" / "deep").mkdir(parents=True)
        (source / "locked" / "deep" / "file").write_text("x")
        (source / "locked" / "deep" / "file").chmod(0o400)
        for folder in (source / "locked" / "deep", source / "locked", source):
            folder.chmod(0o500)
        path = Copy(str(source)).make("task", base / "root")
        assert (path / "locked" / "deep" / "file").read_text() == "x"
        assert stat.S_IMODE((path / "locked").stat().st_mode) == 0o500
        (path / "locked" / "deep").chmod(0o000)
        (path / "locked").chmod(0o000)
        Empty().remove(path)
        assert list((base / "root").iterdir()) == []
        remove_folder(source)
        # One that may not be read cannot be copied, and that is told of this task.
        source.mkdir()
        (source / "secret").touch(mode=0o000)
        with pytest.raises(WorkspaceFailed, match=r"Permission denied: '.*source/secret'"):
            Copy(str(source)).make("task", base / "root")

    try:
        as_nobody(work)
        assert list((base / "root").iterdir()) == []
    finally:
        shutil.rmtree(base)


def test_all_but_what_cannot_be_removed_is(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "c"):
        (root / name).mkdir(parents=True)
        (root / name / "file").touch()
    unlink = os.unlink

    def refuse(name: str, *, dir_fd: int | None = None) -> None:
        if name == "file" and Path(f"/proc/self/fd/{dir_fd}").resolve().name == "b":
            raise PermissionError(1, "Operation not permitted", name)
        unlink(name, dir_fd=dir_fd)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refuse)
        with pytest.raises(OSError, match=r"Operation not permitted: '.*root/b/file'"):
            remove_folder(root)
    assert [str(path.relative_to(root)) for path in root.rglob("*")] == ["b", "b/file"]


def test_what_is_written_while_a_folder_is_removed_goes_too(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "inside").mkdir(parents=True)
    rmdir, is_done = os.rmdir, threading.Event()

    def write_first(path: Any, **named: Any) -> None:
        if not is_done.is_set():
            is_done.set()
            (root / "inside" / "late").touch()
        rmdir(path, **named)

    monkeypatch.setattr(os, "rmdir", write_first)
    remove_folder(root)
    assert not root.exists()


# Whose failure it is


class Unmakeable(Workspace, frozen=True, kw_only=True, tag="unmakeable"):
    """Fails in a way that no system call does."""

    def _fill(self, path: Path) -> None:
        raise RecursionError("maximum recursion depth exceeded")


class Unremovable(Empty, frozen=True, kw_only=True, tag="unremovable"):
    """The same, later."""

    def _forget(self, path: Path) -> None:
        raise RecursionError("maximum recursion depth exceeded")


def test_whatever_happens_is_the_failure_of_that_folder(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(WorkspaceFailed, match="recursion depth"):
        Unmakeable().make("task", root)
    with pytest.raises(WorkspaceFailed, match="recursion depth"):
        Unremovable().remove(Empty().make("task", root))
    assert not discard(Unremovable(), root / "task")
    assert "could not be removed" in caplog.text


def test_sweeping_never_raises(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sweep(root)
    (tmp_path / "file").touch()
    sweep(tmp_path / "file")
    (root / "a.partial").mkdir(parents=True)

    def fail(*_: object, **__: object) -> None:
        raise RecursionError

    with monkeypatch.context() as patch:
        patch.setattr("outrider.fleet._workspaces.remove_folder", fail)
        sweep(root)
    assert "could not be removed" in caplog.text
    with monkeypatch.context() as patch:
        patch.setattr(Path, "iterdir", lambda _: (_ for _ in ()).throw(PermissionError(13, "denied")))
        sweep(root)
    assert "could not be listed" in caplog.text


def test_a_worktree_that_is_too_deep_fails_its_task_alone(tmp_path: Path, root: Path) -> None:
    """A tree of git can be deeper than a path can be long."""
    repository = tmp_path / "repository"
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.com"]
    subprocess.run([*git, "init", "-q", str(repository)], check=True)

    def told(*arguments: str, given: str = "") -> str:
        command = [*git, "-C", str(repository), *arguments]
        return subprocess.run(command, input=given, check=True, capture_output=True, text=True).stdout.strip()

    tree = told("mktree", given=f"100644 blob {told('hash-object', '-w', '--stdin')}\tfile\n")
    for _ in range(60):
        tree = told("mktree", given=f"040000 tree {tree}\t{NAME}\n")
    told("update-ref", "HEAD", told("commit-tree", tree, "-m", "x"))
    with pytest.raises(WorkspaceFailed, match="cannot create directory"):
        Worktree(str(repository)).make("task", root)
    assert list(root.iterdir()) == []
