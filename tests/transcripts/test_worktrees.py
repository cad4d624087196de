"""The worktrees of a repository, as git tells of them; a git that does not answer holds up nothing."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from bridle.transcripts._worktrees import worktrees

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not here")
needs_sh = pytest.mark.skipif(sys.platform == "win32", reason="stands in for git as a shell script")


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com")
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    subprocess.run(["git", *identity, *arguments], cwd=folder, env=environ, check=True, capture_output=True)


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    folder.mkdir()
    program = folder / "git"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


@needs_git
@pytest.mark.parametrize("name", ["plain", "with space", "日本 é", "two\nlines"])
def test_all_worktrees_are_told(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    main, other = tmp_path / "main", tmp_path / name
    main.mkdir()
    git(main, "init", "-q")
    git(main, "commit", "-q", "--allow-empty", "-m", "x")
    git(main, "worktree", "add", "-q", "--detach", str(other))
    (main / "inside").mkdir()
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    # What one is asked for must not depend on who asks.
    for place in (main, other, main / "inside"):
        assert sorted(worktrees(place)) == sorted([str(main.resolve()), str(other.resolve())])


@needs_git
def test_a_folder_that_is_in_no_repository_has_none(tmp_path: Path) -> None:
    assert worktrees(tmp_path) == []
    assert worktrees(tmp_path / "nowhere") == []


def test_without_git_there_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert worktrees(tmp_path) == []


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="others' children can be watched on Linux")
@pytest.mark.parametrize("then", ["wait", "printf 'worktree /srv/a\\0'"], ids=["hangs", "leaves it behind"])
def test_a_git_that_does_not_answer_is_ended_with_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    stand_in(tmp_path / "bin", monkeypatch, f"sleep 600 & echo $! > '{tmp_path}/child'; {then}")
    assert worktrees(tmp_path, timeout=1) == []
    with suppress(ProcessLookupError):
        watched = os.pidfd_open(int((tmp_path / "child").read_text()))
        assert select.select([watched], [], [], 10)[0]
        os.close(watched)


@needs_sh
def test_an_older_git_is_asked_its_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = r"worktree /srv/a\nHEAD x\n\nworktree /srv/b\n"
    script = f'for word; do [ "$word" = -z ] && exit 129; done; printf "{told}"'
    stand_in(tmp_path / "bin", monkeypatch, script)
    assert worktrees(tmp_path) == ["/srv/a", "/srv/b"]
