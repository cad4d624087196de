"""`outrider approvals`: what waits for a person, at the command line."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import anyio
import pytest

from outrider import Approvals
from outrider.app import main
from tests.transcripts.lines import session_id


@pytest.fixture
def ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What waits: two calls, of two sessions."""
    place = str(tmp_path / "approvals.db")
    monkeypatch.setenv("OUTRIDER_APPROVALS", place)

    async def ask() -> list[str]:
        async with Approvals(place) as approvals:
            return [
                (await approvals.ask(session_id(number), "Bash", {"command": command}, reason="a rule")).id
                for number, command in ((1, "make release"), (2, "rm -rf build"))
            ]

    return anyio.run(ask)


def outrider(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["approvals", *arguments])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


async def state_of(id: str, place: Path) -> tuple[str, str, object]:
    async with Approvals(place) as approvals:
        found = await approvals.get(id)
        return found.state, found.message, found.new_input


def test_what_waits_is_listed_shown_and_decided(
    ids: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = outrider(capsys, "list")
    newest = out.splitlines()[0].split("\t")
    assert (newest[0], newest[1], newest[3]) == (ids[1], "pending", "Bash rm -rf build")
    assert [json.loads(line)["id"] for line in outrider(capsys, "list", "--json")[1].splitlines()] == ids[
        ::-1
    ]
    _, out, _ = outrider(capsys, "show", ids[0].rpartition(".")[2])
    assert "make release" in out
    assert "a rule" in out
    code, _, err = outrider(capsys, "allow", ids[0][-12:-4], "--input", '{"command": "make"}', "--by", "Ada")
    assert (code, err) == (0, "granted: Bash make\n")
    assert outrider(capsys, "deny", ids[1], "Not now.")[0] == 0
    read = partial(state_of, place=tmp_path / "approvals.db")
    assert anyio.run(read, ids[0]) == ("granted", "", {"command": "make"})
    assert anyio.run(read, ids[1]) == ("denied", "Not now.", None)
    code, _, err = outrider(capsys, "deny", ids[0], "Too late.")
    assert (code, err) == (2, f"error: The approval {ids[0]!r} is granted already, by Ada\n")


def test_the_whole_input_is_shown_line_by_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = str(tmp_path / "approvals.db")
    monkeypatch.setenv("OUTRIDER_APPROVALS", place)

    async def ask() -> str:
        async with Approvals(place) as approvals:
            content = "a\n    b  c\x1b[2J\r\n    state  denied"
            return (await approvals.ask(session_id(1), "Write", {"file_path": "x", "content": content})).id

    _, out, _ = outrider(capsys, "show", anyio.run(ask))
    _, _, shown = out.partition("\n\n")
    # Beside a bar, so that nothing in there passes for what we say.
    assert shown == "│ file_path: x\n│ content:\n│ + a\n│ +     b  c\ufffd[2J\n│ +     state  denied\n"


def test_a_question_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = str(tmp_path / "approvals.db")
    monkeypatch.setenv("OUTRIDER_APPROVALS", place)

    async def ask(tool: str, **input: object) -> str:
        async with Approvals(place) as approvals:
            return (await approvals.ask(session_id(1), tool, input)).id

    more: dict[str, object] = {"header": "H", "options": [], "multiSelect": False}
    asked = [{"question": text, **more} for text in ("Which?", "When?")]
    id = anyio.run(partial(ask, "AskUserQuestion", questions=asked))
    call = anyio.run(partial(ask, "Bash", command="ls"))
    for arguments, said in (
        ((id,), "does not answer it. Use `answer` (`--answer` at the command line)"),
        ((id, "--answer", "Red"), "asks 2; --answer gives 1"),
        ((id, "--answer", "Red", "--input", "{}"), "not both"),
        ((call, "--answer", "Red"), "is not a question"),
    ):
        code, out, err = outrider(capsys, "allow", *arguments)
        assert (code, out, said in err) == (2, "", True)
    code, _, err = outrider(capsys, "allow", id, "--answer", "Red", "--answer", "Now", "--by", "Ada")
    assert (code, err) == (0, "granted: AskUserQuestion Which?\n")
    _, _, given = anyio.run(partial(state_of, place=tmp_path / "approvals.db"), id)
    assert isinstance(given, dict)
    assert given["answers"] == {"Which?": "Red", "When?": "Now"}


@pytest.mark.parametrize(
    "arguments, said",
    [
        (("show", "nope"), "No open approval has the ID 'nope'"),
        (("show", "a1"), "2 approvals have"),
        (("allow", "x", "--input", "{"), "--input is not JSON"),
        (("allow", "x", "--input", "[1]"), "--input is not a JSON object"),
        (("list", "--store", "missing.db"), "There is no store"),
        (("allow", ""), "The ID is empty"),
        (("list", "--state", "open"), "`state` must be one of 'pending'"),
    ],
)
def test_a_mistake_is_said_in_a_line(
    arguments: tuple[str, ...], said: str, ids: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    if said.startswith("2 "):
        # What the ids of both sessions begin with.
        arguments = ("show", ids[0][:4])
    code, out, err = outrider(capsys, *arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1
