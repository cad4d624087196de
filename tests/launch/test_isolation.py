"""Isolation: what a run sees and keeps of this machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from outrider.command import FOLDER, Command
from outrider.launch import Ssh, make_command, make_environment
from outrider.options import Isolation, Options

MACHINE = {
    "PATH": "/bin",
    "HOME": "/home/me",
    "TMPDIR": "/var/tmp",
    "LANG": "C",
    "ANTHROPIC_API_KEY": "key",
    "CLAUDE_CONFIG_DIR": "/home/me/.claude",
    "XDG_CONFIG_HOME": "/home/me/.config",
    "XDG_RUNTIME_DIR": "/run/me",
    "HTTPS_PROXY": "http://proxy",
    "NODE_OPTIONS": "--require=x",
}


def command(**fields: Any) -> Command:
    fields.setdefault("cli_path", sys.executable)
    return make_command(Options(**fields), environ=MACHINE)


def environment(platform: str = "linux", **fields: Any) -> dict[str, str]:
    return make_environment(Options(**fields), environ=MACHINE, platform=platform)


def test_by_default_the_configuration_of_the_machine_is_used() -> None:
    made = command()
    assert made.folders == ()
    assert made.env is not None
    assert MACHINE.items() <= made.env.items()


def test_another_configuration_folder_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = environment(isolation=Isolation(config_dir="config"))
    assert made["CLAUDE_CONFIG_DIR"] == str(tmp_path / "config")
    assert made["HOME"] == MACHINE["HOME"]


def test_a_hermetic_run_has_folders_of_its_own() -> None:
    made = command(isolation="hermetic")
    assert made.folders == ("config", "home", "tmp")
    assert made.env is not None
    assert made.env["CLAUDE_CONFIG_DIR"] == f"{FOLDER}/config"
    assert made.env["HOME"] == f"{FOLDER}/home"
    assert made.env["TMPDIR"] == made.env["CLAUDE_CODE_TMPDIR"] == f"{FOLDER}/tmp"
    assert made.needs_folder


def test_a_hermetic_run_reads_no_settings_no_servers_and_no_memory() -> None:
    made = command(isolation="hermetic")
    assert {"--setting-sources=", "--strict-mcp-config"} <= set(made.argv)
    assert made.env is not None
    assert made.env["CLAUDE_CODE_DISABLE_AUTO_MEMORY"] == "1"
    assert made.env["CLAUDE_CODE_DISABLE_CLAUDE_MDS"] == "1"


def test_a_hermetic_run_gets_no_variable_that_is_not_named() -> None:
    made = environment(isolation="hermetic")
    kept = {name for name, value in made.items() if MACHINE.get(name) == value}
    assert kept == {"PATH", "LANG"}
    assert not set(MACHINE) - {"PATH", "LANG", "HOME", "TMPDIR", "CLAUDE_CONFIG_DIR"} & set(made)


def test_credentials_are_named_or_given() -> None:
    named = environment(isolation="hermetic", env_policy=["ANTHROPIC_API_KEY", "HTTPS_*"])
    assert named["ANTHROPIC_API_KEY"] == "key"
    assert named["HTTPS_PROXY"] == "http://proxy"
    given = environment(isolation="hermetic", env={"ANTHROPIC_API_KEY": "other"})
    assert given["ANTHROPIC_API_KEY"] == "other"


def test_naming_the_home_folder_does_not_bring_it_back() -> None:
    made = environment(isolation="hermetic", env_policy=["HOME", "CLAUDE_CONFIG_DIR", "*"])
    assert made["HOME"] == f"{FOLDER}/home"
    assert made["CLAUDE_CONFIG_DIR"] == f"{FOLDER}/config"


def test_a_folder_that_lasts_can_be_given(tmp_path: Path) -> None:
    made = command(isolation=Isolation.hermetic(tmp_path))
    assert made.folders == ("home", "tmp")
    assert made.env is not None
    assert made.env["CLAUDE_CONFIG_DIR"] == str(tmp_path)


def test_what_the_options_ask_for_is_still_there() -> None:
    made = command(isolation="hermetic", plugins=["/plugin"], mcp_servers={"x": {"command": "y"}})
    assert "--plugin-dir=/plugin" in made.argv
    assert [file.name for file in made.files] == ["mcp.json"]


def test_on_windows_a_home_folder_has_more_names() -> None:
    made = environment("win32", isolation="hermetic")
    home = {"HOME", "USERPROFILE", "APPDATA", "LOCALAPPDATA"}
    assert {name for name, value in made.items() if value == f"{FOLDER}/home"} == home
    assert {name for name, value in made.items() if value == f"{FOLDER}/tmp"} == {
        *("TEMP", "TMP", "CLAUDE_CODE_TMPDIR")
    }


def test_elsewhere_folders_are_those_of_the_other_machine() -> None:
    made = environment(isolation=Isolation.hermetic("config"), runner=Ssh("host"))
    assert made["CLAUDE_CONFIG_DIR"] == "config"
    assert made["HOME"] == f"{FOLDER}/home"
    assert "PATH" not in made
