"""`outrider sessions`: what is kept of conversations, at the command line."""

from __future__ import annotations

import io
import json
import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.text import Text

from outrider.app import main
from outrider.app._sessions.sessions import columns
from outrider.testing import say
from outrider.transcripts import Bundle, StoredSession, project_key
from tests.app.machines import Screen, machine, show
from tests.transcripts.keeping import bundle, put_on_disk
from tests.transcripts.lines import line, prompt, session_id

ONE, TWO = session_id(1), session_id(2)


class Shell:
    """The command, on a machine that has two sessions of the folder that it is in, and one of another."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys

    def __call__(self, *arguments: str) -> list[str]:
        """What it prints; it must succeed."""
        code, out, err = self.fails(*arguments)
        assert code == 0, err
        return out.splitlines()

    def fails(self, *arguments: str) -> tuple[int, str, str]:
        code = main(["sessions", *arguments])
        shown = self._capsys.readouterr()
        return code, shown.out, shown.err

    def said(self, *arguments: str) -> str:
        """What it says about what it did; it must succeed."""
        code, out, err = self.fails(*arguments)
        assert (code, out) == (0, "")
        return err


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    config, folder = tmp_path / "config", tmp_path / "project"
    folder.mkdir()
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(config))
    monkeypatch.delenv("OUTRIDER_STORE", raising=False)
    monkeypatch.chdir(folder)
    put_on_disk(config, bundle(session_id(3)))
    for id in (ONE, TWO):
        put_on_disk(config, bundle(id, project_key(folder)))
    return config


@pytest.fixture
def shell(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Shell:
    assert config.is_dir()
    return Shell(tmp_path, capsys)


# Looking.


def test_sessions_of_the_folder_are_listed_the_latest_first(shell: Shell) -> None:
    lines = [line.split("\t") for line in shell("list")]
    assert [line[0] for line in lines] == [TWO, ONE]
    assert {line[2] for line in lines} == {"Titled"}
    assert [line.split("\t")[0] for line in shell("list", "--all")] == [TWO, ONE, session_id(3)]
    assert [line.split("\t")[0] for line in shell("list", "-n", "1", "--offset", "1")] == [ONE]
    assert [json.loads(line)["id"] for line in shell("list", "--json")] == [TWO, ONE]


@pytest.mark.parametrize(
    "filters",
    [
        ("--title", "TITL"),
        ("--tag", "old"),
        ("--branch", "main"),
        ("--since", "3d"),
        ("--since", "2026-01-01"),
    ],
    ids=" ".join,
)
def test_lists_can_be_narrowed(shell: Shell, filters: tuple[str, str]) -> None:
    assert len(shell("list", *filters)) == 2


@pytest.mark.parametrize(
    "filters", [("--title", "no"), ("--tag", "new"), ("--until", "2026-01-01"), ("--archived",)], ids=" ".join
)
def test_a_list_of_nothing_says_so(shell: Shell, filters: tuple[str, ...]) -> None:
    assert shell.said("list", *filters) == "No session matches in this folder. --all looks in all folders.\n"


def test_where_there_is_nothing_yet_it_says_how_to_begin(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "none"))
    assert shell.said("list", "--all") == "There are no sessions yet. `outrider chat` begins one.\n"
    assert shell.said("list").startswith("There are no sessions yet in this folder. --all")


def test_a_terminal_shows_markdown_as_it_is_meant(config: Path, tmp_path: Path) -> None:
    words = "Found **two** leaks in <name>:\n\n1. `cache.py`\n\n```python\nx = 1\n```\n\n<div>end</div>"
    message = {"role": "assistant", "id": "m1", "content": [{"type": "text", "text": words}]}
    entries = [prompt("u1", None, "Where?"), line("assistant", "u2", "u1", message=message)]
    put_on_disk(config, Bundle(session_id=session_id(9), project=project_key(tmp_path), entries=entries))
    environment = {"CLAUDE_CONFIG_DIR": str(config)}
    _, picture = show("sessions", "show", session_id(9), environment=environment, cwd=tmp_path)
    assert "    user  Where?\n   agent  Found two leaks in <name>:\n\n           1 cache.py\n" in picture.text
    assert "<div>end</div>" in picture.text
    assert "```" not in picture.text


def test_a_list_that_goes_on_says_how_to_see_more(shell: Shell) -> None:
    code, _, err = shell.fails("list", "-n", "1")
    assert (code, err) == (0, "More with --offset 1.\n")


def test_a_list_fits_the_terminal(config: Path) -> None:
    environment = {"CLAUDE_CONFIG_DIR": str(config)}
    with Screen("sessions", "list", "--all", size=(24, 90), environment=environment) as screen:
        assert screen.end() == 0
        assert re.search(r"seconds? ago  Titled  #old  /srv/project", screen.text)
        # As much of each id as tells them apart.
        assert screen.lines[0].startswith(f"{TWO} ")
        assert max(map(len, screen.lines)) <= 90


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120])
def test_a_list_is_in_columns_that_have_room(width: int) -> None:
    titles = ["x", "A title that goes on and on, longer than anybody would want", "修复内存泄漏问题" * 4]
    now = datetime.now(UTC)
    infos = [
        StoredSession(
            id=session_id(1 << 100 | number << 110),
            project="p",
            title=title,
            tag="ci" if number else None,
            git_branch="main",
            cwd=str(Path.home() / "work"),
            last_modified=now - timedelta(minutes=7**number),
            size=5000,
        )
        for number, title in enumerate(titles)
    ]
    lines = [line for line in columns(infos, width, with_folder=True) if isinstance(line, Text)]
    assert len(lines) == 3
    assert max(line.cell_len for line in lines) <= width
    if width >= 40:
        # The title begins in the same column everywhere.
        firsts = zip(lines, "xA修", strict=True)
        assert len({cell_len(line.plain.partition(first)[0]) for line, first in firsts}) == 1
    shown = lines[1].plain
    assert [part in shown for part in ("#ci", "~/work", "main", "5 KB")] == {
        20: [False, False, False, False],
        40: [False, False, False, False],
        60: [True, False, False, False],
        80: [True, True, True, True],
        120: [True, True, True, True],
    }[width]


def test_a_conversation_is_shown(shell: Shell) -> None:
    lines = shell("show", ONE)
    assert lines[0] == "Titled"
    assert lines[1].startswith(f"{ONE} · ")
    assert "    user  Begin" in lines
    assert "    tool  Bash run u2" in lines
    assert " returns  output u3" in lines
    assert lines[-1] == "Subagents, for --agent: first, late, nested"
    assert shell("show", ONE, "--last", "1")[-3] == "   agent  answer u8"
    assert "    user  Look" in shell("show", ONE, "--agent", "first")
    assert [json.loads(line)["uuid"] for line in shell("show", ONE, "-n", "2", "--json")] == ["u7", "u8"]


def test_the_beginning_of_an_id_is_enough(shell: Shell, config: Path) -> None:
    other = "abcdef01-0000-4000-8000-000000000001"
    put_on_disk(config, bundle(other))
    assert shell("show", "ABC")[1].startswith(other)
    code, _, err = shell.fails("show", "0")
    assert (code, err.startswith("error: 3 session IDs begin with '0': ")) == (2, True)
    code, _, err = shell.fails("show", "f")
    assert (code, "outrider sessions list" in err) == (2, True)


def test_what_was_said_is_found(shell: Shell) -> None:
    lines = shell("search", "RUN S2", "-C", ".")
    assert lines[0] == f"{TWO}  Titled"
    assert lines[1] == "  agent of first  run s2"
    assert json.loads(shell("search", r"r.n u\d", "--regex", "--json", "-n", "1")[0])["excerpt"] == "run u2"
    code, out, err = shell.fails("search", "--case", "RUN")
    assert (code, out, err) == (1, "", "Nothing was found.\n")
    code, out, err = shell.fails("search", "run", "-n", "1")
    assert (code, len(out.splitlines()), err) == (0, 2, "More with --limit 2.\n")


# Changing.


def test_sessions_are_changed(shell: Shell) -> None:
    assert shell.said("rename", ONE, "Release notes") == f"{ONE} renamed\n"
    assert shell.said("tag", ONE, "ci") == f"{ONE} tagged\n"
    assert shell("list", "--tag", "ci")[0].split("\t")[2] == "Release notes"
    assert shell.said("tag", ONE, "--clear") == f"tag removed from {ONE}\n"
    assert shell.said("archive", ONE) == f"{ONE} archived\n"
    assert [line.split("\t")[0] for line in shell("list")] == [TWO]
    assert shell("show", ONE)[1].endswith("archived")
    assert shell.said("archive", ONE, "--undo") == f"{ONE} restored\n"
    assert len(shell("list")) == 2


def test_a_fork_has_an_id_of_its_own(shell: Shell) -> None:
    (made,) = shell("fork", ONE, "--title", "Another way")
    assert made not in (ONE, TWO)
    assert shell("show", made)[0] == "Another way"


@pytest.mark.parametrize("format", ["markdown", "json", "html"])
def test_a_session_is_written_somewhere(shell: Shell, format: str) -> None:
    printed = shell("export", ONE, "--format", format)
    file = shell.folder / "out"
    assert shell.said("export", ONE, "-f", format, "-o", str(file)) == f"{ONE} written to {file}\n"
    assert file.read_text(encoding="utf-8").splitlines() == printed


def test_a_session_moves_to_another_machine(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    file = shell.folder / "session.json"
    shell.said("export", ONE, "-f", "json", "-o", str(file))
    said_here = shell("show", ONE)
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(shell.folder / "elsewhere"))
    assert shell("import", str(file)) == [ONE]
    assert shell("show", ONE)[2:] == said_here[2:]
    code, _, err = shell.fails("import", str(file))
    assert (code, "--as-new" in err or "already" in err) == (2, True)
    (made,) = shell("import", str(file), "--as-new")
    assert made != ONE


def test_a_session_goes_through_a_store(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    store = str(shell.folder / "agents.db")
    assert shell.said("copy", ONE, "--to", store) == f"{ONE} copied\n"
    assert [line.split("\t")[0] for line in shell("list", "--store", store)] == [ONE]
    assert shell("show", ONE, "--store", store)[2:] == shell("show", ONE)[2:]
    monkeypatch.setenv("OUTRIDER_STORE", store)
    shell.said("rename", ONE, "In the store")
    assert shell.said("delete", ONE, "--yes") == f"{ONE} deleted\n"
    monkeypatch.delenv("OUTRIDER_STORE")
    assert shell("show", ONE)[0] == "Titled"


def test_nothing_is_deleted_unasked(shell: Shell, config: Path) -> None:
    code, _, err = shell.fails("delete", ONE)
    assert (code, "Add --yes" in err) == (2, True)
    environment = {"CLAUDE_CONFIG_DIR": str(config)}
    for answer, code in (("n", 1), ("y", 0)):
        with Screen("sessions", "delete", ONE, size=(24, 100), environment=environment) as screen:
            screen.see("[y/N]")
            screen.press(f"{answer}\r")
            assert screen.end() == code
    assert [line.split("\t")[0] for line in shell("list")] == [TWO]


# What cannot be.


@pytest.mark.parametrize(
    "arguments, told",
    [
        (("show", session_id(9)), "There is no session"),
        (("list", "--since", "soon"), "--since is 'soon', which is not a time"),
        (("list", "--all", "-C", "."), "--all or --project"),
        (("list", "-C", "no/such/folder"), "There is no folder 'no/such/folder'"),
        (("list", "--store", "ftp://x"), "ftp"),
        (("tag", ONE), "Give a tag, or --clear"),
        (("tag", ONE, "x", "--clear"), "Give a tag, or --clear"),
        (("rename", ONE, " "), "title"),
        (("fork", ONE, "--at", "nowhere"), "nowhere"),
        (("show", ONE, "--agent", "nobody"), "nobody"),
        (("search", "(", "--regex"), "("),
        (("import", "no.json"), "no.json"),
        (("list", "--since", "9" * 20 + "w"), "which is not a time"),
        (("list", "--until", "0001-01-01T00:00:00+23:00"), "which is not a time"),
        (("export", ONE, "-o", "no/such/folder/x.md"), "no/such/folder/x.md"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_is_said_in_one_line(shell: Shell, arguments: tuple[str, ...], told: str) -> None:
    code, out, err = shell.fails(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert told in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("list",),
        ("show", ONE),
        ("search", "x"),
        ("export", ONE),
        ("rename", ONE, "x"),
        ("tag", ONE, "x"),
        ("archive", ONE),
        ("fork", ONE),
        ("copy", ONE, "--to", "disk"),
        ("delete", ONE, "--yes"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("store", ["typo.db", "sqlite:///typo.db", "file:typo.db"])
def test_a_store_that_is_not_there_is_not_made_to_look_into(
    shell: Shell, arguments: tuple[str, ...], store: str
) -> None:
    typo = shell.folder / "project" / "typo.db"
    place = store.replace("file:typo.db", f"file://{typo}")
    code, out, err = shell.fails(*arguments, "--store", place)
    assert (code, out) == (2, "")
    assert err.startswith("error: There is no store '")
    assert "typo.db" in err
    assert not typo.exists()


def test_a_store_is_made_to_put_something_in(shell: Shell) -> None:
    file = shell.folder / "session.json"
    shell.said("export", ONE, "-f", "json", "-o", str(file))
    for store in ("new.db", "sqlite:///newer.db"):
        assert shell("import", str(file), "--store", store) == [ONE]
        assert [line.split("\t")[0] for line in shell("list", "--store", store)] == [ONE]
        # Whoever moves the file moves all of it.
        assert not [path for path in Path.cwd().iterdir() if path.name.endswith(("-wal", "-shm"))]


def test_of_two_sessions_of_one_id_the_one_of_the_folder_is_meant(shell: Shell, config: Path) -> None:
    other = shell.folder / "other"
    other.mkdir()
    path = put_on_disk(config, bundle(ONE, project_key(other)))
    here = config / "projects" / project_key(shell.folder / "project") / path.name
    shell.said("rename", ONE, "Here", "-C", ".")
    assert shell("show", ONE, "-C", ".")[0] == "Here"
    assert shell("show", ONE, "-C", str(other))[0] == "Titled"
    os.utime(path, (2_000_000_000, 2_000_000_000))
    shell.said("delete", ONE, "-y", "-C", ".")
    assert (here.exists(), path.exists()) == (False, True)


def test_a_session_comes_through_a_pipe(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "\n".join(shell("export", ONE, "-f", "json"))
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    (made,) = shell("import", "-", "--as-new")
    assert shell("show", made)[0] == "Titled"
    code, _, err = shell.fails("import", "-")
    assert (code, err) == (2, "error: There is nothing on standard input to import.\n")


def test_json_is_printed_of_whatever_is_kept(shell: Shell, config: Path) -> None:
    id = session_id(6)
    entry = {**prompt("u1", None, "half \ud800"), "sessionId": id, "number": 10**400}
    kept = Bundle(session_id=id, project=project_key(shell.folder / "project"), entries=[entry], parts={})
    put_on_disk(config, kept)
    assert json.loads(shell("list", "--json", "-n", "1")[0])["title"] == "half \N{REPLACEMENT CHARACTER}"
    assert json.loads(shell("show", id, "--json")[0])["uuid"] == "u1"
    assert json.loads(shell("search", "half", "--json")[0])["excerpt"] == "half \N{REPLACEMENT CHARACTER}"


def test_what_the_terminal_would_obey_is_only_shown(shell: Shell, config: Path) -> None:
    entries = [entry for entry in bundle(session_id(5)).entries if entry.get("type") == "user"]
    entries[0]["message"] = {"role": "user", "content": "\x1b[2Jclear"}
    entries[0]["cwd"] = "/srv/\x1b[2J\tand\nmore"
    key = project_key(shell.folder / "project")
    put_on_disk(config, Bundle(session_id=session_id(5), project=key, entries=entries[:1], parts={}))
    lines = shell("list")
    assert [line.count("\t") for line in lines] == [3, 3, 3]
    assert not any("\x1b" in line for line in (*lines, *shell("show", session_id(5))))


def test_a_conversation_is_kept_in_a_store_and_resumed_from_there(tmp_path: Path) -> None:
    store = str(tmp_path / "agents.db")
    with machine(say("Hello, Ada."), say("Ada.")) as here:
        code, out, err = here.run("run", "My name is Ada.", "--store", store)
        assert (code, out) == (0, "Hello, Ada.\n")
        found = re.search(r"session (\S+)", err)
        assert found is not None
        assert here.run("sessions", "list", "--store", store).out.startswith(found[1])
        again = here.run("run", "-q", "What is my name?", "--store", store, "--resume", found[1])
        assert again == (0, "Ada.\n", "")
