"""Where Claude Code is found, on which system, and what is said when it is not."""

from __future__ import annotations

import ntpath
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

import outrider.launch._program as find
from outrider.errors import AgentNotFound
from outrider.launch import Search, find_agent, search_agent
from tests.cases import every_case

PACKAGE = str(Path(find.__file__).parents[1])
HOME = "/home/me"
NOTHING: Mapping[str, str] = MappingProxyType({})


def holding(*programs: str, **others: find.Kind) -> Callable[[str], find.Kind]:
    """A machine with just these programs, and other things at other paths."""
    return lambda path: "program" if path in programs else others.get(path, "missing")


def reasons(search: Search) -> dict[str, str]:
    return {place.path: place.reason for place in search.tried}


POSIX_ORDER = (
    "/given/bundled",
    "/variable/bundled",
    f"{PACKAGE}/_bundled/claude",
    f"{Path(PACKAGE).parent}/_bundled/claude",
    "/first/claude",
    "/second/claude",
    f"{HOME}/.npm-global/bin/claude",
    "/usr/local/bin/claude",
    f"{HOME}/.local/bin/claude",
    f"{HOME}/node_modules/.bin/claude",
    f"{HOME}/.yarn/bin/claude",
    f"{HOME}/.claude/local/claude",
)
POSIX_ENV = {"PATH": "/first:/second", "HOME": HOME, "CLAUDE_CODE_BUNDLED_CLI": "/variable/bundled"}

WINDOWS_ENV = {
    "PATH": r"C:\first;D:/second",
    "USERPROFILE": r"C:\Users\me",
    "LOCALAPPDATA": r"C:\Users\me\AppData\Local",
    "APPDATA": r"C:\Users\me\AppData\Roaming",
    "CLAUDE_CODE_BUNDLED_CLI": r"C:\variable\claude.exe",
}
WINDOWS_ORDER = (
    r"C:\given\claude.exe",
    r"C:\variable\claude.exe",
    ntpath.join(PACKAGE, "_bundled", "claude.exe"),
    ntpath.join(str(Path(PACKAGE).parent), "_bundled", "claude.exe"),
    r"C:\first\claude.exe",
    r"D:/second\claude.exe",
    r"C:\Users\me\AppData\Local\Programs\claude\claude.exe",
    r"C:\Users\me\.local\bin\claude.exe",
)


@pytest.mark.requirement("B1")
@every_case("platform", ["linux", "darwin"])
@every_case("rank", range(len(POSIX_ORDER)))
def test_on_posix_the_first_place_that_has_it_wins(platform: str, rank: int) -> None:
    search = search_agent(
        bundled_path="/given/bundled",
        environ=POSIX_ENV,
        platform=platform,
        look=holding(*POSIX_ORDER[rank:]),
    )
    assert search.found == POSIX_ORDER[rank]
    assert tuple(place.path for place in search.tried) == POSIX_ORDER[: rank + 1]
    assert [bool(place.reason) for place in search.tried] == [True] * rank + [False]


@pytest.mark.requirement("B1")
@every_case("rank", range(len(WINDOWS_ORDER)))
def test_on_windows_the_first_place_that_has_it_wins(rank: int) -> None:
    search = search_agent(
        bundled_path=r"C:\given\claude.exe",
        environ=WINDOWS_ENV,
        platform="win32",
        look=holding(*WINDOWS_ORDER[rank:]),
    )
    assert search.found == WINDOWS_ORDER[rank]
    assert tuple(place.path for place in search.tried) == WINDOWS_ORDER[: rank + 1]


@pytest.mark.requirement("B1")
def test_an_explicit_path_is_all_that_counts() -> None:
    look = holding("/mine/claude", *POSIX_ORDER)
    assert (
        find_agent(cli_path="/mine/claude", environ=POSIX_ENV, platform="linux", look=look) == "/mine/claude"
    )
    with pytest.raises(AgentNotFound, match="`cli_path` is '/other/claude': no such file") as caught:
        find_agent(cli_path=Path("/other/claude"), environ=POSIX_ENV, platform="linux", look=look)
    assert caught.value.searched == ("/other/claude (cli_path): no such file",)


@pytest.mark.requirement("B1")
@pytest.mark.parametrize("platform", ["linux", "darwin", "win32"])
def test_nothing_on_an_empty_machine_is_found_and_nothing_fails(platform: str) -> None:
    search = search_agent(environ=NOTHING, platform=platform, look=holding())
    assert search.found is None
    told = reasons(search)
    assert "PATH is not set, or empty" in told.values()
    home = "USERPROFILE" if platform == "win32" else "HOME"
    assert f"there is no home folder: {home} is not set" in told.values()
    assert str(search).count("\n") == len(search.tried) - 1


def test_empty_and_relative_entries_of_path_are_not_searched() -> None:
    look = holding("claude", "./claude", "bin/claude", str(Path("claude").absolute()), "/last/claude")
    search = search_agent(environ={"PATH": ":bin:./:/last:"}, platform="linux", look=look)
    assert search.found == "/last/claude"
    assert "relative folder" in reasons(search)["bin/claude"]
    windows = {"PATH": r";bin;\rooted;C:drive;C:\last"}
    search = search_agent(environ=windows, platform="win32", look=lambda path: "program")
    assert search.found is not None
    assert search.found.endswith("_bundled\\claude.exe")
    search = search_agent(environ=windows, platform="win32", look=holding(r"C:\last\claude.exe"))
    assert search.found == r"C:\last\claude.exe"
    skipped = [place.path for place in search.tried if "relative folder" in place.reason]
    assert skipped == [r"bin\claude.exe", r"\rooted\claude.exe", r"C:drive\claude.exe"]


@pytest.mark.parametrize(
    "kind, reason",
    [
        ("folder", "it is a folder"),
        ("not executable", "the file is not executable"),
        ("special", "it is neither a file nor a folder"),
        ("no access", "this user may not look there"),
    ],
)
def test_what_is_no_program_is_passed_over_and_told(kind: find.Kind, reason: str) -> None:
    others: dict[str, find.Kind] = {"/first/claude": kind}
    look = holding("/second/claude", **others)
    search = search_agent(environ=POSIX_ENV, platform="linux", look=look)
    assert search.found == "/second/claude"
    assert reasons(search)["/first/claude"] == reason
    with pytest.raises(AgentNotFound, match=reason):
        find_agent(cli_path="/first/claude", environ=POSIX_ENV, platform="linux", look=look)


@pytest.mark.parametrize(
    "platform, environ, given, found",
    [
        ("linux", {"HOME": "/home/me"}, "~/bin/claude", "/home/me/bin/claude"),
        ("linux", {"HOME": "/"}, "~/bin/claude", "/bin/claude"),
        ("win32", {"USERPROFILE": r"C:\me"}, "~/claude.exe", r"C:\me/claude.exe"),
        ("win32", {"HOMEDRIVE": "C:", "HOMEPATH": r"\me"}, r"~\claude.exe", r"C:\me\claude.exe"),
    ],
)
def test_a_tilde_is_the_home_folder(platform: str, environ: dict[str, str], given: str, found: str) -> None:
    look = holding(found)
    assert find_agent(cli_path=given, environ=environ, platform=platform, look=look) == found
    assert find_agent(bundled_path=given, environ=environ, platform=platform, look=look) == found
    bundled = {**environ, "CLAUDE_CODE_BUNDLED_CLI": given}
    assert find_agent(environ=bundled, platform=platform, look=look) == found


def test_a_tilde_without_a_home_is_told() -> None:
    with pytest.raises(AgentNotFound, match="HOME is not set"):
        find_agent(cli_path="~/claude", environ=NOTHING, platform="linux", look=holding())


def test_a_bare_name_is_looked_up_on_path_and_a_path_object_is_not() -> None:
    here = str(Path("claude-next").absolute())
    look = holding(here, "/second/claude-next")
    found = find_agent(cli_path="claude-next", environ=POSIX_ENV, platform="linux", look=look)
    assert found == "/second/claude-next"
    assert find_agent(cli_path=Path("claude-next"), environ=POSIX_ENV, platform="linux", look=look) == here
    assert find_agent(cli_path="./claude-next", environ=POSIX_ENV, platform="linux", look=look) == here
    with pytest.raises(
        AgentNotFound, match=r"no such program on PATH; one in this folder would be './other'"
    ):
        find_agent(cli_path="other", environ=POSIX_ENV, platform="linux", look=look)
    look = holding(r"C:\first\claude.exe")
    found = find_agent(cli_path="claude", environ=WINDOWS_ENV, platform="win32", look=look)
    assert found == r"C:\first\claude.exe"


@pytest.mark.parametrize("given", ["", "\0", "a\0b/c", "/" + "x" * 5000])
def test_a_path_that_cannot_be_is_not_found(given: str) -> None:
    with pytest.raises(AgentNotFound):
        find_agent(cli_path=given, environ={"PATH": "/usr/bin"})


@pytest.mark.requirement("B1")
@every_case(
    "given",
    [
        r"C:\npm\claude.cmd",
        r"C:\npm\claude.bat",
        r"C:\npm\CLAUDE.CmD",
        r"C:\npm\claude.cmd.",
        r"C:\npm\claude.cmd. . ",
        r"C:\npm\claude.cmd ",
        r"C:\npm\claude.cmd::$DATA",
        r"C:\npm\claude.cmd ::$DATA",
        r"C:\npm\claude.cmd.:stream",
        r"C:\npm\claude.cmd\...\..",
        r"C:\npm\claude.cmd\.",
        r"C:/npm/claude.bat/x/..",
        r'"C:\npm\claude.cmd"',
        r"\\?\C:\npm\claude.cmd",
        "claude.cmd",
    ],
)
def test_on_windows_no_batch_file_is_ever_taken(given: str) -> None:
    with pytest.raises(AgentNotFound, match=r"cmd\.exe would run this batch file"):
        find_agent(cli_path=given, environ=WINDOWS_ENV, platform="win32", look=lambda path: "program")


def test_a_batch_file_is_no_matter_elsewhere_nor_a_name_that_only_has_the_word() -> None:
    for platform, given in [("linux", "/opt/claude.cmd"), ("win32", r"C:\cmd\batch.command\claude.exe")]:
        assert (
            find_agent(cli_path=given, environ=NOTHING, platform=platform, look=lambda _: "program") == given
        )


@pytest.mark.requirement("B1")
def test_a_batch_file_of_npm_is_listed_with_the_reason() -> None:
    script = r"C:\Users\me\AppData\Roaming\npm\claude.cmd"
    search = search_agent(environ=WINDOWS_ENV, platform="win32", look=holding(script))
    assert search.found is None
    assert "cmd.exe" in reasons(search)[script]
    assert [place.path for place in search.tried].count(script) == 1
    home_only = {"USERPROFILE": r"C:\Users\me"}
    assert script in reasons(search_agent(environ=home_only, platform="win32", look=holding(script)))
    assert script not in reasons(search_agent(environ=WINDOWS_ENV, platform="win32", look=holding()))


@pytest.mark.requirement("B2")
def test_what_was_not_found_says_where_and_what_to_do() -> None:
    with pytest.raises(AgentNotFound) as caught:
        find_agent(environ=POSIX_ENV, platform="linux", look=holding())
    text = str(caught.value)
    for path in POSIX_ORDER[1:]:
        assert f"{path} (" in text
    assert "npm install -g @anthropic-ai/claude-code" in text
    assert "PATH" in text
    assert "`cli_path`" in text
    assert len(caught.value.searched) == len(POSIX_ORDER) - 1


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A folder that stands for a home, with a program, a script that may not be run, a folder and a pipe."""
    for name in ("program", "plain"):
        (tmp_path / name).write_text("#!/bin/sh\n")
    (tmp_path / "program").chmod(0o755)
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("program")
    (tmp_path / "broken").symlink_to("nothing")
    return tmp_path


@pytest.mark.parametrize(
    "name, kind",
    [
        ("program", "program"),
        ("link", "program"),
        ("plain", "not executable"),
        ("folder", "folder"),
        ("pipe", "special"),
        ("broken", "missing"),
        ("nothing", "missing"),
        ("plain/below", "missing"),
    ],
)
def test_this_machine_is_looked_at(machine: Path, name: str, kind: find.Kind) -> None:
    assert find.look_at(str(machine / name)) == kind


def test_a_folder_that_may_not_be_entered_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> os.stat_result:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "stat", refuse)
    assert find.look_at("/closed/claude") == "no access"


@pytest.mark.requirement("B1")
def test_a_program_on_path_is_found_on_this_machine(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders: Iterable[str] = ("bin", ".local/bin")
    for folder in folders:
        (machine / folder).mkdir(parents=True)
        (machine / folder / "claude").symlink_to(machine / "program")
    monkeypatch.setenv("HOME", str(machine))
    monkeypatch.setenv("PATH", str(machine / "bin"))
    monkeypatch.delenv("CLAUDE_CODE_BUNDLED_CLI", raising=False)
    assert find_agent() == str(machine / "bin" / "claude")
    (machine / "bin" / "claude").unlink()
    monkeypatch.setattr(find, "POSIX_FOLDERS", ("~/.local/bin",))
    assert find_agent() == str(machine / ".local/bin/claude")


def test_a_relative_path_becomes_absolute(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(machine)
    assert find_agent(cli_path="./program") == str(machine / "program")
    assert find_agent(cli_path="folder/../program") == str(machine / "program")
    gone = machine / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(AgentNotFound, match="the current folder does not exist any more"):
        find_agent(cli_path="./program")
