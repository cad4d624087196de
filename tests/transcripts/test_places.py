"""Where the program keeps its sessions: the names are its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import outrider
from outrider.testing import RealAgent, say
from outrider.transcripts import config_folder, has_sessions, project_folder, project_key
from outrider.transcripts._disk.files import is_same_project
from tests.real_program import require_program


@pytest.mark.parametrize(
    "path, key",
    [
        ("/", "-"),
        ("/srv/My_app v1.2", "-srv-My-app-v1-2"),
        ("/srv/日本語", "-srv----"),
        # Two UTF-16 units, so two dashes.
        ("/srv/a😀b", "-srv-a--b"),
        ("/srv/" + "x" * 195, "-srv-" + "x" * 195),
        ("/srv/" + "x" * 196, "-srv-" + "x" * 195 + "-sa6ta1"),
        # Normalised first: both spellings of é are one folder.
        ("/srv/e\u0301", "-srv--"),
    ],
    ids=["root", "signs", "wide", "emoji", "longest", "too long", "normalised"],
)
def test_a_folder_has_a_key(path: str, key: str) -> None:
    assert project_key(path) == key


@pytest.mark.parametrize(
    "name, key, is_same",
    [
        ("-srv", "-srv", True),
        ("-srv-a", "-srv", False),
        ("x" * 200 + "-abc", "x" * 200 + "-xyz", True),
        ("x" * 200 + "-abc", "x" * 199 + "y-xyz", False),
        ("x" * 200, "x" * 200 + "-xyz", False),
        ("x" * 200 + "-abc", "x" * 200, False),
    ],
)
def test_the_checksum_of_a_long_name_does_not_matter(name: str, key: str, is_same: bool) -> None:
    assert is_same_project(name, key) is is_same


def test_a_link_has_the_key_of_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    assert project_key(tmp_path / "link") == project_key(tmp_path)


@pytest.mark.parametrize(
    "environ, folder",
    [
        ({"CLAUDE_CONFIG_DIR": "/config", "HOME": "/home/me"}, "/config"),
        ({"HOME": "/home/me"}, "/home/me/.claude"),
        ({"CLAUDE_CONFIG_DIR": "", "USERPROFILE": "/users/me"}, "/users/me/.claude"),
    ],
)
def test_the_configuration_folder(environ: dict[str, str], folder: str) -> None:
    assert config_folder(environ) == Path(folder)
    assert config_folder({}) == Path.home() / ".claude"


def test_whether_there_are_sessions(tmp_path: Path) -> None:
    assert not has_sessions(tmp_path / "nowhere")
    (tmp_path / "1.jsonl").touch()
    (tmp_path / "notes.txt").write_text("x")
    assert not has_sessions(tmp_path)
    (tmp_path / "2.jsonl").write_text("{}\n")
    assert has_sessions(tmp_path)


@pytest.mark.real
@pytest.mark.anyio
@pytest.mark.parametrize("name", ["a😀b", "x" * 210], ids=["emoji", "long"])
async def test_the_real_program_uses_the_same_names(name: str) -> None:
    with RealAgent([say("hello")], program=require_program()) as agent:
        folder = agent.folder / name
        folder.mkdir()
        result = await outrider.run("hello", agent.options(cwd=folder))
        sessions = project_folder(agent.config_dir, folder)
        assert f"{result.session_id}.jsonl" in os.listdir(sessions)  # noqa: PTH208 - names only
        assert has_sessions(sessions)
