"""A path is allowed only if it is meant wherever one looks, and denied if it is meant from anywhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.errors import OptionsError
from outrider.handlers._policy import patterns
from outrider.handlers._policy.patterns import (
    Match,
    Where,
    check_path_pattern,
    check_pattern,
    path_match,
    path_regex,
)
from tests.cases import every_case

AWAY = Where("/project", is_local=False)


# Patterns.


@every_case(
    "pattern, path, fits",
    [
        ("/a/**", "/a", True),
        ("/a/**", "/a/b/c", True),
        ("/a/**", "/ab", False),
        ("/a/**/c", "/a/c", True),
        ("/a/**/c", "/a/x/y/c", True),
        ("/a/**/c", "/a/xc", False),
        ("/a/*", "/a/b", True),
        ("/a/*", "/a/.hidden", True),
        ("/a/*", "/a/b/c", False),
        ("/a/*.py", "/a/b.py", True),
        ("/a/?", "/a/b", True),
        ("/a/?", "/a//", False),
        ("/a/[bc]", "/a/c", True),
        ("/a/[!b]", "/a/b", False),
        ("/a/[!b]", "/a/c", True),
        ("/a/[!b]x", "/a//x", False),
        ("/a/[]]", "/a/]", True),
        ("/a/[[]x", "/a/[x", True),
        ("/a/[a-c]", "/a/b", True),
        ("/a/[z-a]", "/a/z", False),
        ("/a.b", "/axb", False),
        ("**/.env", ".env", True),
        ("**/.env", "/x/y/.env", True),
        ("**/.env", "/x/my.env", False),
        ("**", "/x/y", True),
        ("/**", "/x", True),
        ("/a/*", "/a/b\nc", True),
    ],
)
def test_a_pattern_for_paths_knows_their_parts(pattern: str, path: str, fits: bool) -> None:
    assert (path_regex(pattern).match(path) is not None) is fits


@every_case(
    "pattern, text",
    [
        ("", "empty pattern"),
        ("  ", "empty pattern"),
        (" a", "spaces around it"),
        ("a\nb", "control character"),
        ("a[b", "never closed"),
        ("a[", "never closed"),
        ("*.{py,js}", "Give a list of patterns"),
        ("a/**b", "next to something else"),
        ("a/b**/c", "next to something else"),
        ("a/***", "next to something else"),
        ("a/*/../b", "after a wildcard"),
    ],
)
def test_a_pattern_that_would_not_do_what_it_seems_to_is_refused(pattern: str, text: str) -> None:
    with pytest.raises(OptionsError, match=text) as caught:
        check_path_pattern("`path`", pattern)
    assert caught.value.hint


@every_case("pattern", ["*", "a", "../b/**", "~/x", "/a/[[]b]", "a{b}", "[!a]", "[]]"])
def test_other_patterns_are_accepted(pattern: str) -> None:
    check_path_pattern("`path`", pattern)
    check_pattern("`path`", pattern)


# Paths on this machine.


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with links in and out of it."""
    folder = tmp_path / "project"
    (folder / "src" / "deep").mkdir(parents=True)
    (folder / "secrets").mkdir()
    (tmp_path / "outside").mkdir()
    for file in ("src/a.py", "secrets/key", "../outside/b.py"):
        (folder / file).write_text("x")
    (folder / "src" / "out").symlink_to(tmp_path / "outside")
    (folder / "src" / "key").symlink_to(folder / "secrets" / "key")
    (folder / "alias").symlink_to(folder / "src")
    (tmp_path / "link").symlink_to(folder)
    return folder


@pytest.mark.requirement("A10")
@pytest.mark.parametrize(
    "path, expected",
    [
        ("src", Match.YES),
        ("src/a.py", Match.YES),
        ("src/new.py", Match.YES),
        ("./src/a.py", Match.YES),
        ("src//a.py", Match.YES),
        ("src/deep/../a.py", Match.YES),
        ("secrets/../src/a.py", Match.YES),
        ("src/../secrets/key", Match.NO),
        ("src/../../outside/b.py", Match.NO),
        # Written as inside, and really outside; and the other way round.
        ("src/out/b.py", Match.MAYBE),
        ("src/key", Match.MAYBE),
        ("alias/a.py", Match.MAYBE),
        # `..` follows the link, not what is written.
        ("src/out/../a.py", Match.MAYBE),
        ("secrets/key", Match.NO),
        ("/etc/passwd", Match.NO),
        ("~/x", Match.NO),
        ("src\0/a.py", Match.MAYBE),
        (".", Match.NO),
        ("", Match.NO),
    ],
)
def test_a_path_is_where_it_really_is(path: str, expected: Match, project: Path) -> None:
    assert path_match("src/**", path, Where(str(project))) is expected


@pytest.mark.parametrize("base", ["project", "link"])
@pytest.mark.parametrize("given_as", ["project", "link"])
def test_a_working_folder_may_itself_be_a_link(base: str, given_as: str, project: Path) -> None:
    where = Where(str(project.parent / base))
    path = str(project.parent / given_as / "src" / "a.py")
    expected = Match.MAYBE if (base, given_as) == ("project", "link") else Match.YES
    assert path_match("src/**", path, where) is expected
    assert path_match("src/**", "src/a.py", where) is Match.YES
    assert path_match("secrets/**", path, where) is Match.NO


@pytest.mark.requirement("A10")
@pytest.mark.parametrize("path", ["secrets/key", "src/key", "src/../secrets/key", "./secrets//key"])
@pytest.mark.parametrize("pattern", ["secrets/**", "secrets", "secrets/", "**/key", "**/secrets"])
def test_what_is_denied_is_denied_by_any_name(path: str, pattern: str, project: Path) -> None:
    assert path_match(pattern, path, Where(str(project))) is not Match.NO


def test_a_floating_pattern_allows_inside_of_the_working_folder_and_denies_everywhere(project: Path) -> None:
    where = Where(str(project))
    assert path_match("**/*.py", "src/a.py", where) is Match.YES
    assert path_match("**/*.py", "../outside/b.py", where) is Match.MAYBE
    assert path_match("**/*.py", "/usr/lib/x.py", where) is Match.MAYBE
    assert path_match("**/*.py", "/usr/lib/x.txt", where) is Match.NO


@pytest.mark.parametrize(
    "pattern, folder, expected",
    [
        ("secrets/**", ".", Match.MAYBE),
        ("secrets/**", "src", Match.NO),
        ("secrets/**", "secrets", Match.YES),
        ("secrets/key", ".", Match.MAYBE),
        ("/etc/**", "/", Match.MAYBE),
        ("/etc/**", ".", Match.NO),
        ("**/.env", "src", Match.MAYBE),
        ("*/key", ".", Match.MAYBE),
        ("src/**", "src/deep", Match.YES),
    ],
)
def test_a_search_reaches_what_is_inside(pattern: str, folder: str, expected: Match, project: Path) -> None:
    assert path_match(pattern, folder, Where(str(project)), reaches_in=True) is expected


def test_the_home_folder_can_be_meant(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(project))
    where = Where("/somewhere")
    assert path_match("~/secrets/**", str(project / "secrets" / "key"), where) is Match.YES
    # It may be the home folder, or a folder with that name.
    assert path_match("~/secrets/**", "~/secrets/key", where) is Match.MAYBE
    assert path_match("~/secrets/**", "~nobody-of-that-name/x", where) is Match.NO


def test_the_working_folder_may_have_wildcards_in_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "a[b]*"
    (folder / "src").mkdir(parents=True)
    assert path_match("src/**", "src/x", Where(str(folder))) is Match.YES
    assert path_match("src/**", str(tmp_path / "ab" / "src" / "x"), Where(str(folder))) is Match.NO


@pytest.mark.parametrize("is_mac", [False, True])
def test_case_and_accents_count_where_they_count_for_files(
    is_mac: bool, monkeypatch: pytest.MonkeyPatch, project: Path
) -> None:
    monkeypatch.setattr(patterns, "IGNORES_CASE", is_mac)
    where = Where(str(project))
    for pattern, path in (("secrets/**", "SECRETS/key"), ("cafe\u0301/**", "caf\u00e9/x")):
        assert path_match(pattern, path, where) is (Match.MAYBE if is_mac else Match.NO)


def test_blanks_around_a_path_do_not_hide_it(project: Path) -> None:
    where = Where(str(project))
    assert path_match("**", " /etc/passwd", where) is Match.MAYBE
    assert path_match("/etc/**", "\u00a0/etc/passwd", where) is Match.MAYBE
    assert path_match("**/key", "secrets/key\n", where) is Match.MAYBE
    assert path_match("src/**", "\ufeff/etc/passwd", where) is Match.MAYBE
    assert path_match("caf\u00e9/**", "cafe\u0301/x", where) is Match.MAYBE


def test_patterns_begin_where_the_agent_began(project: Path) -> None:
    where = Where(str(project / "src"), root=str(project))
    assert path_match("src/**", "a.py", where) is Match.YES
    assert path_match("secrets/**", "../secrets/key", where) is Match.YES
    # What is allowed does not move along; what is denied does.
    assert path_match("deep/**", "deep/x", where) is Match.MAYBE


@pytest.mark.parametrize("path", ["a/" * 50_000, "../" * 50_000, "a" * 5_000])
def test_a_path_that_is_too_long_is_not_looked_at(path: str, project: Path) -> None:
    assert path_match("**/.env", path, Where(str(project))) is Match.MAYBE


# Paths on another machine.


@pytest.mark.parametrize(
    "pattern, path, expected",
    [
        ("src/**", "src/a.py", Match.YES),
        ("src/**", "/project/src/a.py", Match.YES),
        ("src/**", "src/../src/a.py", Match.MAYBE),
        ("src/**", "src/../x", Match.NO),
        ("/etc/**", "/etc/passwd", Match.YES),
        ("~/x", "~/x", Match.YES),
    ],
)
def test_far_away_nothing_is_looked_up(pattern: str, path: str, expected: Match) -> None:
    assert path_match(pattern, path, AWAY) is expected


def test_links_of_this_machine_mean_nothing_far_away(project: Path) -> None:
    assert path_match("src/**", "src/out/b.py", Where(str(project), is_local=False)) is Match.YES


PARTS = st.lists(st.sampled_from(["src", "secrets", "..", ".", "", "out", "key", "alias", "a.py", "deep"]))


@given(parts=PARTS, absolute=st.booleans())
def test_no_way_of_writing_a_path_leads_out_of_what_is_allowed(
    parts: list[str], absolute: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.getbasetemp() / "allowed"
    if not root.exists():
        (root / "project" / "src" / "deep").mkdir(parents=True)
        (root / "project" / "secrets").mkdir()
        (root / "project" / "src" / "out").symlink_to(root)
        (root / "project" / "src" / "key").symlink_to(root / "project" / "secrets")
        (root / "project" / "alias").symlink_to(root / "project" / "src")
    project = root / "project"
    path = "/".join([str(project), *parts] if absolute else parts)
    if path_match("src/**", path, Where(str(project))) is Match.YES:
        assert (project / path).resolve().is_relative_to((project / "src").resolve())
    if (project / path).resolve().is_relative_to((project / "secrets").resolve()):
        assert path_match("secrets/**", path, Where(str(project))) is not Match.NO
