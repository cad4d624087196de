"""What depends on the machine is checked when an agent is started, and for any system on any other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from outrider.command import Command
from outrider.errors import FolderNotFound, OptionsError
from outrider.options import Options, check_place
from tests.cases import every_case

BYPASS = 'env={"IS_SANDBOX": "1"}'


class Remote:
    is_local = False

    def wrap(self, command: Command) -> Command:
        return command


class Here(Remote):
    is_local = True


def yes(_: str) -> bool:
    return True


def check(options: Options, **place: Any) -> None:
    there: dict[str, Any] = {"euid": 1000, "platform": "linux", "environ": {}, "is_dir": yes, "exists": yes}
    there.update(place)
    check_place(options, **there)


def test_nothing_is_looked_at_when_options_are_made() -> None:
    assert Options(cwd="/no/such/folder", user="nobody-here", permission_mode="bypassPermissions").cwd


# The folder.


def test_a_folder_that_is_not_there_is_told_from_a_program_that_is_not() -> None:
    with pytest.raises(FolderNotFound) as caught:
        check(Options(cwd="/no"), is_dir=lambda _: False, exists=lambda _: False)
    assert caught.value.path == "/no"


def test_a_folder_with_a_tilde_is_told_how_to_be_written() -> None:
    with pytest.raises(FolderNotFound, match="expanduser"):
        check(Options(cwd="~/work"), is_dir=lambda _: False, exists=lambda _: False)


def test_a_file_is_not_a_folder() -> None:
    with pytest.raises(OptionsError, match="`cwd` must be a folder, and '/file' is not one"):
        check(Options(cwd="/file"), is_dir=lambda _: False)


def test_the_real_file_system_is_looked_at_by_default(tmp_path: Path) -> None:
    check_place(Options(cwd=tmp_path), euid=1, platform="linux", environ={})
    with pytest.raises(FolderNotFound):
        check_place(Options(cwd=tmp_path / "no"), euid=1, platform="linux", environ={})
    (tmp_path / "file").touch()
    with pytest.raises(OptionsError, match="must be a folder"):
        check_place(Options(cwd=tmp_path / "file"), euid=1, platform="linux", environ={})


@pytest.mark.parametrize("runner", [None, Here()], ids=["none", "local"])
def test_the_folder_is_looked_for_on_this_machine(runner: Here | None) -> None:
    with pytest.raises(FolderNotFound):
        check(Options(cwd="/no", runner=runner), is_dir=lambda _: False, exists=lambda _: False)


def test_a_folder_of_another_machine_is_not_looked_for() -> None:
    check(Options(cwd="/no", runner=Remote()), is_dir=lambda _: False, exists=lambda _: False)


# Root.

DANGEROUS: list[dict[str, Any]] = [
    {"permission_mode": "bypassPermissions"},
    {"allow_dangerously_skip_permissions": True},
    {"permission_mode": "bypassPermissions", "env": {"IS_SANDBOX": "0"}},
]


@pytest.mark.parametrize("fields", DANGEROUS, ids=["mode", "allow", "no-sandbox"])
def test_root_may_not_skip_permissions(fields: dict[str, Any]) -> None:
    with pytest.raises(OptionsError, match="refused by the agent for root") as caught:
        check(Options(**fields), euid=0)
    assert BYPASS in caught.value.hint


HARMLESS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"permission_mode": "bypassPermissions"}, {"euid": 1000}),
    ({"permission_mode": "bypassPermissions"}, {"euid": None}),
    ({"permission_mode": "acceptEdits"}, {"euid": 0}),
    ({}, {"euid": 0}),
    ({"permission_mode": "bypassPermissions", "env": {"IS_SANDBOX": "1"}}, {"euid": 0}),
    ({"permission_mode": "bypassPermissions"}, {"euid": 0, "environ": {"IS_SANDBOX": "1"}}),
    ({"permission_mode": "bypassPermissions"}, {"euid": 0, "environ": {"CLAUDE_CODE_BUBBLEWRAP": "1"}}),
    ({"permission_mode": "bypassPermissions", "runner": Remote()}, {"euid": 0}),
]


@every_case("fields, place", HARMLESS, ids=[str(number) for number in range(len(HARMLESS))])
def test_others_and_root_in_a_sandbox_may(fields: dict[str, Any], place: dict[str, Any]) -> None:
    check(Options(**fields), **place)


def test_the_variables_of_options_win_over_those_of_the_machine() -> None:
    options = Options(permission_mode="bypassPermissions", env={"IS_SANDBOX": ""})
    with pytest.raises(OptionsError):
        check(options, euid=0, environ={"IS_SANDBOX": "1"})


# Windows.


@pytest.mark.requirement("B5")
@pytest.mark.parametrize("user", ["agent", 1000, 0])
def test_windows_cannot_start_as_another_user(user: str | int) -> None:
    with pytest.raises(OptionsError, match=r"`user` cannot be .* on Windows"):
        check(Options(user=user), platform="win32", euid=None)
    check(Options(user=user))


SPECIAL = '&|<>^%!"\r\n'


@pytest.mark.requirement("C7")
@every_case("character", SPECIAL, ids=ascii)
@every_case("name", ["resume", "resume_session_at", "resume_drops_turn"])
def test_windows_takes_no_special_characters_in_names_of_sessions(name: str, character: str) -> None:
    fields: dict[str, Any] = {"resume": "a", "resume_session_at": "b", "resume_drops_turn": "c"}
    fields[name] = f"x{character}y"
    options = Options(**fields)
    with pytest.raises(OptionsError, match=f"`{name}` contains"):
        check(options, platform="win32", euid=None)
    check(options, platform="darwin")


def test_windows_takes_plain_names_of_sessions() -> None:
    check(Options(resume="my session"), platform="win32", euid=None)
