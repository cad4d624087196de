"""The worktrees of a repository, read from its files: the same that git tells of."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from outrider.transcripts._disk.files import worktrees

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not here")


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com")
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", *identity, *arguments]
    done = subprocess.run(command, cwd=folder, env=environ, check=True, capture_output=True, text=True)
    return done.stdout


def as_git_tells(folder: Path) -> list[str]:
    lines = git(folder, "worktree", "list", "--porcelain", "-z").split("\0")
    return [line.removeprefix("worktree ") for line in lines if line.startswith("worktree ")]


@pytest.fixture
def main(tmp_path: Path) -> Path:
    folder = tmp_path / "main"
    folder.mkdir()
    git(folder, "init", "-q")
    git(folder, "commit", "-q", "--allow-empty", "-m", "x")
    return folder


@needs_git
@pytest.mark.parametrize("name", ["plain", "with space", "日本 é", "two\nlines", ".git"])
def test_all_worktrees_are_told(
    main: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "others" / name if name == ".git" else tmp_path / name
    git(main, "worktree", "add", "-q", "--detach", str(other))
    (main / "inside").mkdir()
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    # What one is asked for must not depend on who asks.
    for place in (main, other, main / "inside", main / ".git"):
        assert worktrees(place) == [str(main), str(other)]
    assert as_git_tells(main) == [str(main), str(other)]


@needs_git
@pytest.mark.parametrize("kind", ["bare", "gone", "separate", "submodule"])
def test_they_are_those_that_git_tells_of(main: Path, tmp_path: Path, kind: str) -> None:
    there = tmp_path / "there"
    if kind == "bare":
        git(tmp_path, "clone", "-q", "--bare", str(main), str(there))
        git(there, "worktree", "add", "-q", "--detach", str(tmp_path / "other"))
    elif kind == "gone":
        there = main
        git(main, "worktree", "add", "-q", "--detach", str(tmp_path / "other"))
        shutil.rmtree(tmp_path / "other")
    elif kind == "separate":
        git(tmp_path, "init", "-q", "--separate-git-dir", str(tmp_path / "elsewhere"), str(there))
    else:
        there = main / "sub"
        git(main, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(main), "sub")
    assert worktrees(there) == as_git_tells(there)


@needs_git
def test_a_folder_that_is_in_no_repository_has_none(tmp_path: Path) -> None:
    assert worktrees(tmp_path) == []
    assert worktrees(tmp_path / "nowhere") == []
    assert worktrees("with\0nul") == []


@needs_git
def test_what_is_no_worktree_is_not_told(main: Path, tmp_path: Path) -> None:
    folder = main / ".git" / "worktrees"
    for name, text in {"a": b"", "b": b"\n", "c": b"/with\0nul/.git\n", "d": b"x" * 100_000}.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "gitdir").write_bytes(text)
    (folder / "pipe").mkdir()
    os.mkfifo(folder / "pipe" / "gitdir")
    (folder / "device").mkdir()
    (folder / "device" / "gitdir").symlink_to("/dev/zero")
    (folder / "file").touch()
    assert worktrees(main) == [str(main)]
    (folder / "relative").mkdir()
    (folder / "relative" / "gitdir").write_text("../../../../other/.git\n")
    assert worktrees(main) == [str(main), str(tmp_path / "other")]
