"""Bugs that other SDKs had with kept sessions, each as a test at the level of `Sessions`.

Two are about more than that, and have their tests beside what they are about: `ELSEWHERE` names them.
"""

from __future__ import annotations

import ast
import os
from pathlib import Path
from typing import Any

import anyio
import pytest

from outrider.errors import SessionNotFound
from outrider.transcripts import MemoryStore, Sessions, project_key
from outrider.wire import JsonObject
from tests.transcripts.keeping import PROJECT, bundle, put_on_disk
from tests.transcripts.lines import SESSION, answer, called, line, prompt, session_id, title, written

pytestmark = pytest.mark.anyio
DEADLINE = 30.0

ELSEWHERE = {
    "cleaning up deletes the only copy": ("session/test_mirror.py", "test_the_only_copy_is_rescued"),
    "the tests empty a database of somebody": (
        "transcripts/stores/test_servers.py",
        "test_no_test_empties_a_database_or_asks_for_one_that_was_there",
    ),
}


@pytest.mark.parametrize("file, name", ELSEWHERE.values(), ids=ELSEWHERE)
def test_the_others_have_their_tests(file: str, name: str) -> None:
    tree = ast.parse((Path(__file__).parents[1] / file).read_text(encoding="utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, functions)}


def write(config: Path, lines: list[JsonObject], project: str = PROJECT, number: int = 1) -> Path:
    path = config / "projects" / project_key(project) / f"{session_id(number)}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(written(lines))
    return path


async def test_the_name_of_a_long_path_is_counted_in_utf_16(tmp_path: Path) -> None:
    # What JavaScript makes of it: 200 units, of which each emoji is two, and a checksum over all of them.
    folder = "/srv/" + "\N{GRINNING FACE}" * 120
    assert project_key(folder) == f"-srv-{'-' * 195}-6clv4h"
    write(tmp_path, [prompt("u1")], folder)
    assert [info.id for info in await Sessions(config=tmp_path).list(project=folder)] == [SESSION]


async def test_an_empty_file_is_no_session(tmp_path: Path) -> None:
    write(tmp_path, []).touch()
    write(tmp_path, [prompt("u1")], number=2)
    sessions = Sessions(config=tmp_path)
    assert [info.id for info in await sessions.list()] == [session_id(2)]
    with pytest.raises(SessionNotFound):
        await sessions.read(SESSION)


@pytest.mark.parametrize(
    "lines",
    [
        [prompt("a", "b"), answer("b", "a")],
        [prompt("a", "a")],
        [line("progress", "p", "q"), line("progress", "q", "p"), prompt("a", "p")],
    ],
    ids=["two", "itself", "progress"],
)
async def test_entries_in_a_circle_do_not_hang_a_fork(tmp_path: Path, lines: list[JsonObject]) -> None:
    write(tmp_path, lines)
    sessions = Sessions(config=tmp_path)
    with anyio.fail_after(DEADLINE):
        said = [entry.text for entry in await sessions.read(SESSION)]
        assert said
        assert [entry.text for entry in await sessions.read(await sessions.fork(SESSION))] == said


@pytest.mark.parametrize(
    "inside",
    [
        {"type": "user", "message": {"role": "user", "content": "Not said"}},
        {"isSidechain": True},
        {"type": "summary", "summary": "Not the summary"},
        {"type": "custom-title", "customTitle": "Not the title", "lastPrompt": "Not asked"},
        {"parentUuid": None, "uuid": "zz", "sessionId": session_id(9), "cwd": "/elsewhere"},
    ],
    ids=["type", "isSidechain", "summary", "title", "ids"],
)
async def test_what_a_tool_was_given_is_not_taken_for_the_sessions_own(
    tmp_path: Path, inside: JsonObject
) -> None:
    call: Any = called("u2", "u1", "m1")
    call["message"]["content"][0]["input"] = inside
    # First in the line, where something that searches it for text would meet it.
    tricky: JsonObject = {"message": call.pop("message"), "toolUseResult": inside, **call}
    write(tmp_path, [tricky, prompt("u1", None, "Asked"), tricky, answer("u3", "u2")])
    sessions = Sessions(config=tmp_path)
    (info,) = await sessions.list()
    assert (info.title, info.first_prompt, info.cwd, info.custom_title) == ("Asked", "Asked", PROJECT, None)
    assert [entry.uuid for entry in await sessions.read(SESSION)] == ["u1", "u2", "u3"]


async def test_a_machine_without_sessions_has_none(tmp_path: Path) -> None:
    sessions = Sessions(config=tmp_path / "never" / "made")
    assert await sessions.list() == await sessions.list(project=".") == []
    assert [hit async for hit in sessions.search("x")] == []
    with pytest.raises(SessionNotFound):
        await sessions.info(SESSION)
    assert not (tmp_path / "never").exists()


@pytest.mark.skipif(os.name == "nt", reason="the stand-in for git is a script of the shell")
async def test_a_git_that_hangs_does_not_hang_a_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git = tmp_path / "bin" / "git"
    git.parent.mkdir()
    git.write_text(f"#!/bin/sh\necho >> '{tmp_path}/asked'\nexec sleep 600\n")
    git.chmod(0o700)
    monkeypatch.setenv("PATH", f"{git.parent}{os.pathsep}{os.environ['PATH']}")
    write(tmp_path, [prompt("u1")], str(tmp_path))
    with anyio.fail_after(DEADLINE):
        assert [info.id for info in await Sessions(config=tmp_path).list(project=tmp_path)] == [SESSION]
    # It is not even asked.
    assert not (tmp_path / "asked").exists()


async def test_a_user_without_a_home_has_no_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("HOME", "USERPROFILE", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    sessions = Sessions()
    assert await sessions.list() == []
    with pytest.raises(SessionNotFound):
        await sessions.read(SESSION)


async def test_a_session_that_was_written_in_many_pieces_is_listed_once(tmp_path: Path) -> None:
    store = MemoryStore()
    for number in range(50):
        entry: Any = prompt(f"u{number}", None if not number else f"u{number - 1}")
        await store.append({"project_key": project_key(PROJECT), "session_id": SESSION}, [entry])
    assert [info.id for info in await Sessions(store).list()] == [SESSION]


async def test_what_is_told_of_a_session_is_not_told_of_its_fork(tmp_path: Path) -> None:
    kept = bundle()
    kept.entries += [title("Named"), {"type": "ai-title", "aiTitle": "Made up", "sessionId": SESSION}]
    put_on_disk(tmp_path, kept)
    sessions = Sessions(config=tmp_path)
    await sessions.archive(SESSION)
    made = await sessions.info(await sessions.fork(SESSION, title="Another way"))
    assert (made.title, made.tag, made.is_archived) == ("Another way", None, False)
    assert made.path is not None
    text = made.path.read_text(encoding="utf-8")
    assert SESSION not in text.replace(f'"forkedFrom":{{"sessionId":"{SESSION}"', "")
    assert "Made up" not in text
