"""Files that somebody else has written, or an agent: sessions, journals, tasks, and programs that lie about.

None of them is trusted to be what it looks like: none runs anything, leads elsewhere, or holds anything up.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from outrider._folders import remove_folder
from outrider.errors import OptionsError, StoreError, TranscriptError
from outrider.fleet import Journal, JournalInvalid, Outcome, Task, map  # noqa: A004
from outrider.launch import search_agent
from outrider.session._store.restore_files import ConfigLocation, SessionFiles
from outrider.transcripts import MemoryStore, Sessions
from outrider.transcripts._disk import files
from outrider.transcripts._entries import to_line
from tests.fleet.working import AT_ONCE, Works, nobody_left
from tests.transcripts.keeping import KEY
from tests.transcripts.lines import SESSION, answer, prompt

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.timeout(30),
    pytest.mark.skipif(
        sys.platform == "win32", reason="there are no pipes with names, and links need rights"
    ),
]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


# Sessions


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """A session that is as it should be."""
    path = tmp_path / "config" / "projects" / KEY / f"{SESSION}.jsonl"
    agent = path.with_suffix("") / "subagents" / "agent-a1.jsonl"
    agent.parent.mkdir(parents=True)
    data = b"".join(to_line(entry).encode() + b"\n" for entry in (prompt("u1"), answer("u2", "u1")))
    path.write_bytes(data)
    agent.write_bytes(data)
    yield path
    # pytest cannot, if it is deep.
    remove_folder(tmp_path / "config")


@pytest.fixture
def sessions(path: Path) -> Sessions:
    return Sessions(config=path.parents[2])


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """What is nobody's business."""
    folder = tmp_path / "outside"
    (folder / "folder").mkdir(parents=True)
    (folder / "agent-a1.jsonl").write_text(to_line(prompt("secret", None, "A secret")) + "\n")
    (folder / "agent-a1.meta.json").write_text('{"secret":"A secret"}')
    return folder


def state(folder: Path) -> dict[str, bytes | None]:
    found = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*"))}
    return {name: path.read_bytes() if path.is_file() else None for name, path in found.items()}


Operation = Callable[[Sessions, Path], Awaitable[object]]


async def search(sessions: Sessions, _: Path) -> object:
    return [hit async for hit in sessions.search("secret")]


OPERATIONS: dict[str, Operation] = {
    "list": lambda sessions, _: sessions.list(),
    "info": lambda sessions, _: sessions.info(SESSION),
    "read": lambda sessions, _: sessions.read(SESSION),
    "read the end": lambda sessions, _: sessions.read(SESSION, last=1),
    "read an agent": lambda sessions, _: sessions.read(SESSION, agent="a1"),
    "agents": lambda sessions, _: sessions.agents(SESSION),
    "search": search,
    "export": lambda sessions, _: sessions.export(SESSION, "json"),
    "copy": lambda sessions, _: sessions.copy(SESSION, to=Sessions(MemoryStore())),
    "import": lambda _, path: Sessions(MemoryStore()).import_(path),
    "fork": lambda sessions, _: sessions.fork(SESSION),
    "rename": lambda sessions, _: sessions.rename(SESSION, "Renamed"),
    "tag": lambda sessions, _: sessions.tag(SESSION, "tagged"),
    "archive": lambda sessions, _: sessions.archive(SESSION),
    "delete": lambda sessions, _: sessions.delete(SESSION),
}
"""All that can be done with a session."""


def link_all(path: Path, outside: Path) -> None:
    (path.with_suffix("") / "subagents").rename(path.parent.parent / "moved")
    (path.with_suffix("") / "subagents").symlink_to(outside)


def link_folder(path: Path, outside: Path) -> None:
    path.with_suffix("").rename(path.parent.parent / "moved")
    path.with_suffix("").symlink_to(outside.parent / "around")
    (outside.parent / "around").mkdir()
    outside.rename(outside.parent / "around" / "subagents")
    outside.symlink_to("around/subagents")


def link_main(path: Path, outside: Path) -> None:
    path.rename(outside / "profile")
    path.symlink_to(outside / "profile")


def link_part(path: Path, outside: Path) -> None:
    agent = path.with_suffix("") / "subagents" / "agent-a1.jsonl"
    agent.unlink()
    agent.symlink_to(outside / agent.name)
    agent.with_suffix(".meta.json").symlink_to(outside / "agent-a1.meta.json")


@pytest.mark.parametrize("link", [link_all, link_folder, link_part])
@pytest.mark.parametrize("operation", OPERATIONS)
async def test_no_link_in_a_session_is_followed(
    path: Path, sessions: Sessions, outside: Path, operation: str, link: Callable[[Path, Path], None]
) -> None:
    link(path, outside)
    before = state(outside)
    with anyio.fail_after(20):
        try:
            given = await OPERATIONS[operation](sessions, path)
        except (TranscriptError, OptionsError) as error:
            given = error
    assert "A secret" not in str(given)
    assert state(outside) == before


@pytest.mark.parametrize("operation", ["rename", "tag"])
async def test_nothing_is_added_to_what_a_link_leads_to(
    path: Path, sessions: Sessions, outside: Path, operation: str
) -> None:
    link_main(path, outside)
    before = state(outside)
    with pytest.raises(TranscriptError):
        await OPERATIONS[operation](sessions, path)
    await sessions.delete(SESSION)
    assert path.name not in state(path.parent)
    assert state(outside) == before


async def test_a_session_with_deep_folders_is_one_like_others(path: Path, sessions: Sessions) -> None:
    number = os.open(path.with_suffix(""), os.O_RDONLY)
    for _ in range(sys.getrecursionlimit() + 200):
        os.mkdir("deep", dir_fd=number)
        inside = os.open("deep", os.O_RDONLY, dir_fd=number)
        os.close(number)
        number = inside
    os.close(number)
    with anyio.fail_after(20):
        # The last one removes it.
        for operation in OPERATIONS.values():
            await operation(sessions, path)
    assert not [name for name in state(path.parent) if name.startswith(SESSION)]


OF_ITS_ENDS = ("list", "info", "agents", "rename", "tag", "archive", "delete")
"""Operations that do not read all of a file, which takes its time."""


@pytest.mark.parametrize(
    "operation, size",
    [*((each, 1 << 24) for each in OPERATIONS), *((each, 1 << 40) for each in OF_ITS_ENDS)],
)
async def test_a_line_without_an_end_takes_no_memory(
    path: Path, sessions: Sessions, operation: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_LONGEST_KEPT", 1 << 20)
    with path.open("r+b") as file:
        file.truncate(size)
    with anyio.fail_after(20):
        try:
            given = await OPERATIONS[operation](sessions, path)
        except (TranscriptError, OptionsError) as error:
            given = error
    assert len(str(given)) < 1 << 20


def test_lines_that_are_too_long_are_left_out_however_a_file_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_LONGEST_KEPT", 100)
    monkeypatch.setattr(files, "_BUFFER", 32)
    monkeypatch.setattr(files, "_END", 16)
    lines = [b"a" * length for length in (5, 99, 300, 0, 7, 1000, 100, 3, 250)]
    (tmp_path / "file").write_bytes(b"\n".join(lines) + b"\n")
    short = [line for line in lines if line and len(line) < 100]
    with (tmp_path / "file").open("rb") as file:
        assert [line.strip() for line in files.lines(file) if line.strip()] == short
    with (tmp_path / "file").open("rb") as file:
        joined = b"".join(files.chunks(file))
    assert joined.count(b"\n") == len(lines)
    assert [line for line in joined.split(b"\n") if line and len(line) < 100] == short
    with (tmp_path / "file").open("rb") as file:
        found = [line for some in reversed(list(files.backwards(file))) for line in some]
    assert [line for line in found if line and len(line) < 100] == short
    assert max(len(line) for line in (*found, *joined.split(b"\n"))) <= 300


@pytest.mark.parametrize("id", ["../../x", "..", "/etc/passwd", "x/../../y", f"../{SESSION}", "", "a\0b"])
async def test_no_id_leads_elsewhere(path: Path, sessions: Sessions, outside: Path, id: str) -> None:
    before = state(path.parents[2])
    for operation in (sessions.info, sessions.read, sessions.fork, sessions.delete, sessions.archive):
        with pytest.raises(OptionsError):
            await operation(id)
    with pytest.raises((OptionsError, TranscriptError)):
        await sessions.read(SESSION, agent=f"../../../{id}")
    assert state(path.parents[2]) == before


@pytest.mark.parametrize(
    "change",
    [
        {"session_id": "../../x"},
        {"project": "../../outside"},
        {"parts": {"../../x": [{"type": "user"}]}},
        {"parts": {"/etc/x": [{"type": "user"}]}},
    ],
    ids=["id", "project", "part", "absolute part"],
)
async def test_no_name_in_an_export_leads_elsewhere(
    sessions: Sessions, path: Path, tmp_path: Path, change: dict[str, Any]
) -> None:
    text = json.dumps({**json.loads(await sessions.export(SESSION, "json")), **change})
    config = tmp_path / "new" / "config"
    with pytest.raises(OptionsError):
        await Sessions(config=config).import_(text)
    assert not [each for each in tmp_path.joinpath("new").rglob("*") if each.is_file()]


# Sessions that are restored for the program


@pytest.mark.parametrize(
    "make",
    [
        os.mkfifo,
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: path.symlink_to("/etc/passwd"),
        lambda path: path.symlink_to(path),
    ],
    ids=["pipe", "device", "another file", "circle"],
)
@pytest.mark.parametrize("place", ["", "subagents/agent-b"])
async def test_what_is_no_file_holds_up_no_resumption(
    path: Path, place: str, make: Callable[[Path], None]
) -> None:
    there = path if not place else path.with_suffix("") / f"{place}.jsonl"
    there.unlink(missing_ok=True)
    make(there)
    session_files = SessionFiles(SESSION, {"": [{"type": "user", "uuid": "x"}]}, KEY, KEY)
    location = ConfigLocation(path.parents[2], False)
    with anyio.fail_after(20):
        if there.is_symlink() and there.exists() and there.resolve().is_file() and not place:
            # It is replaced.
            await session_files.restore(location, None)
            assert not there.is_symlink()
        else:
            with pytest.raises(TranscriptError, match="cannot be restored"):
                await session_files.restore(location, None)


@pytest.mark.parametrize("link", [link_all, link_folder])
async def test_nothing_is_restored_where_a_link_leads(
    path: Path, outside: Path, link: Callable[[Path, Path], None]
) -> None:
    link(path, outside)
    before = state(outside)
    session_files = SessionFiles(
        SESSION, {"": [], "subagents/agent-new": [{"type": "user", "uuid": "x"}]}, KEY, KEY
    )
    with pytest.raises(TranscriptError, match="link"):
        await session_files.restore(ConfigLocation(path.parents[2], False), None)
    assert state(outside) == before


# Journals and tasks


ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"
STATEMENTS = {
    "a trigger": "CREATE TRIGGER t AFTER UPDATE ON tasks BEGIN UPDATE tasks SET task = 'x'; END",
    "a view": f"CREATE VIEW v AS {ENDLESS}",
    "a view in the place of a table": f"DROP TABLE meta; CREATE VIEW meta(name) AS {ENDLESS}",
    "an index": "CREATE INDEX i ON tasks (length(task))",
    "a table": "CREATE TABLE other (x)",
    "a table less": "DROP TABLE attempts",
}


def journal(tmp_path: Path) -> Path:
    path = tmp_path / "run.db"
    with Journal(path, writing=True) as written:
        written.add([(0, Task("one", id="one")), (1, Task("two", id="two"))])
        written.begin("two", 1, "here")
        written.end(Outcome(id="two", number=1, status="done", attempts=1))
    return path


def change(path: Path, script: str) -> None:
    connection = sqlite3.connect(path)
    connection.executescript(script)
    connection.close()


@pytest.mark.parametrize("writing", [False, True], ids=["reading", "writing"])
@pytest.mark.parametrize("statement", STATEMENTS.values(), ids=STATEMENTS)
def test_a_journal_that_does_more_than_keep_is_refused(
    tmp_path: Path, statement: str, *, writing: bool
) -> None:
    path = journal(tmp_path)
    change(path, statement)
    with pytest.raises(JournalInvalid, match="not those of a journal"):
        Journal(path, writing=writing).open()


DEEP = '{"a":' * 50_000 + "1" + "}" * 50_000


@pytest.mark.parametrize(
    "script",
    [
        f"UPDATE tasks SET task = '{DEEP}', outcome = iif(outcome IS NULL, NULL, '{DEEP}')",
        "UPDATE tasks SET task = x'ff', outcome = iif(outcome IS NULL, NULL, x'ff'), status = 'unknown'",
        "UPDATE tasks SET task = 5, outcome = iif(outcome IS NULL, NULL, 5)",
        "UPDATE tasks SET task = '{}', outcome = iif(outcome IS NULL, NULL, '[]'), status = 5",
        f"UPDATE attempts SET usage = '{DEEP}'; UPDATE tasks SET state = 'started', outcome = NULL",
    ],
    ids=["deep", "no text", "numbers", "others", "usage"],
)
def test_what_is_wrong_in_a_journal_is_told_as_such(tmp_path: Path, script: str) -> None:
    path = journal(tmp_path)
    change(path, script)
    with Journal(path) as opened, pytest.raises(JournalInvalid):
        sum(1 for _ in (*opened.todo(), *opened.outcomes()))


async def test_a_store_that_does_more_than_keep_is_refused(tmp_path: Path, sessions: Sessions) -> None:
    disk, path = sessions, tmp_path / "sessions.db"

    async with Sessions(path) as sessions:
        await disk.copy(SESSION, to=sessions)
    change(path, "CREATE TRIGGER t AFTER INSERT ON batches BEGIN DELETE FROM batches; END")
    async with Sessions(path) as sessions:
        with pytest.raises(StoreError, match="triggers or views"):
            await sessions.list()


@pytest.mark.parametrize(
    "line",
    [
        b'{"prompt":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"prompt":"x","options":' + DEEP.encode() + b"}",
        b'"\xff\xfe"',
        b'{"prompt":"\xff"}',
        b"\x00" * 100,
    ],
    ids=["deep", "deep options", "no UTF-8", "no UTF-8 within", "zeros"],
)
def test_a_line_that_is_no_task_is_told_as_such(line: bytes) -> None:
    with pytest.raises(OptionsError, match="Line 7"):
        Task.from_json(line, number=7)


# Programs that lie about


def trap(folder: Path, marks: Path) -> None:
    """A folder full of what could be taken for something else."""
    folder.mkdir(parents=True)
    for place in (".", "node_modules/.bin", ".venv/bin", "bin", "_bundled", ".local/bin", ".claude/local"):
        (folder / place).mkdir(parents=True, exist_ok=True)
        for name in ("claude", "claude.exe", "node", "git", "sh", "python", "python3", "env", "ps"):
            program = folder / place / name
            program.write_text(f"#!/bin/sh\necho {place}/{name} >> '{marks}'\n")
            program.chmod(0o755)
    # Modules that this and other Pythons start with.
    for name in ("sitecustomize", "usercustomize", "json", "os", "signal", "select", "socket", "outrider"):
        (folder / f"{name}.py").write_text(f"open({str(marks)!r}, 'a').write({name!r})\n")
    (folder / "pyvenv.cfg").write_text("home = .\n")


def test_no_program_is_found_in_the_folder_that_is_worked_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trap(tmp_path / "hostile", tmp_path / "marks")
    monkeypatch.chdir(tmp_path / "hostile")
    path = os.pathsep.join(["", ".", "node_modules/.bin", ".venv/bin", "bin", "./bin"])
    for environ in ({"PATH": path}, {}, {"PATH": path, "HOME": ""}):
        for given in (None, "claude"):
            search = search_agent(environ=environ, cli_path=given)
            assert search.found is None or not Path(search.found).is_relative_to(tmp_path)


async def test_nothing_runs_that_lies_in_the_folder_that_is_worked_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even what starts and ends agents, with the host in that folder and such a PATH."""
    works, hostile, marks = Works(tmp_path / "agents"), tmp_path / "hostile", tmp_path / "marks"
    trap(hostile, marks)
    monkeypatch.chdir(hostile)
    monkeypatch.setenv("PATH", os.pathsep.join(["", ".", os.environ["PATH"]]))
    outcomes = await map(["one", "act_die two"], works.options(cwd=str(hostile)), **AT_ONCE)
    await nobody_left()
    assert [outcome.status for outcome in outcomes] == ["done", "done"]
    assert not marks.exists()
