"""The pages of batches, pools and approvals."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import pytest

from outrider import Approvals, Sessions, fleet
from outrider.fleet import Journal
from outrider.view import app
from tests.cases import every_case
from tests.fleet.pool_agents import Agents
from tests.transcripts.stores import servers
from tests.view.sample import SESSION
from tests.view.serving import HOME, client
from tests.view.test_pages import words

ORIGIN = {"origin": HOME}


def batch(journal: Path) -> None:
    """Run a small batch."""

    async def main() -> None:
        options = Agents(journal.parent).options()
        await fleet.map([f"Task {number}" for number in range(7)], options=options, journal=journal)

    anyio.run(main)


def test_a_journal(tmp_path: Path, config: Path) -> None:
    path = tmp_path / "run.db"
    batch(path)
    looking = client(app(path, Sessions(config=config)))
    page = looking.get("/fleet").text
    said = words(page)
    assert "done 7 of 7" in said
    assert "not running" in said
    sessions = set(re.findall(r'href="/s/([0-9a-f-]{36})"', page))
    with Journal(path) as journal:
        assert sessions == {outcome.session_id for outcome in journal.outcomes() if outcome.session_id}
    plot = looking.get("/fleet/plot.svg")
    assert plot.headers["content-type"] == "image/svg+xml"
    assert "script" not in plot.headers["content-security-policy"]
    assert "7 of 7 tasks done" in plot.text
    assert "None." in words(looking.get("/fleet?status=failed&part=1").text)
    assert looking.get("/fleet?page=99999&status=<x>").status_code == 200


def test_a_batch_in_a_database() -> None:
    url = f"{servers.postgres().url()}?batch={uuid4().hex}"
    assert anyio.run(fleet.submit, ["one", "two"], url) == 2
    said = words(client(app(url)).get("/fleet").text)
    assert "done 0 of 2" in said
    assert "not running" in said


def test_failures_by_kind_and_a_batch_that_is_running(tmp_path: Path) -> None:
    from tests.fleet.test_report import outcome

    path = tmp_path / "run.db"
    with Journal(path, writing=True) as journal:
        journal.add((number, fleet.Task(id=f"task-{number}", prompt="x")) for number in range(6))
        for number, kind in enumerate(("ApiFailed", "ApiFailed", "TurnTimedOut")):
            journal.begin(f"task-{number}", 1, "w", SESSION)
            fields: dict[str, Any] = {
                "error_kind": kind,
                "error": "<b>it broke</b> sk-ant-api03-" + "a" * 40,
                "session_id": SESSION,
            }
            journal.end(outcome(number, "failed", **fields))
        journal.begin("task-3", 1, "w", SESSION)
        page = client(app(path)).get("/fleet").text
        said = words(page)
        assert "ApiFailed 2" in said
        assert "<b>it broke" not in page
        assert "a" * 40 not in page
        assert "running, by process" in said
        assert "task-3" in said
        only = client(app(path)).get("/fleet?error=TurnTimedOut&part=1").text
        assert len(re.findall("badge st-failed", only)) == 1


def test_a_run_of_this_process(tmp_path: Path) -> None:
    async def main() -> None:
        options = Agents(tmp_path).options()
        async with fleet.map(["one", "two", "three"], options=options) as run:
            looking = client(app(run))
            async for _ in run:
                page = await anyio.to_thread.run_sync(lambda: looking.get("/fleet"))
                assert page.status_code == 200
            said = words(await anyio.to_thread.run_sync(lambda: looking.get("/fleet").text))
        assert "done 3 of 3" in said

    anyio.run(main)


def test_a_pool(tmp_path: Path) -> None:
    async def main() -> None:
        async with fleet.Pool(
            Agents(tmp_path).options(), warm=1, max_processes=2, health_seconds=3600
        ) as pool:
            await pool.wait_warm()
            looking, page = client(app(pool)), ""
            async with pool.lease(), pool.lease(), anyio.create_task_group() as group:
                group.start_soon(waits, pool)
                while not pool.stats().waiting:  # noqa: ASYNC110 - nothing announces it
                    await anyio.sleep(0.01)
                page = await anyio.to_thread.run_sync(lambda: looking.get("/pool").text)
                # Whoever looks has it measured.
                while not pool.stats().memory:  # noqa: ASYNC110 - nothing announces it
                    await anyio.sleep(0.01)
                page = await anyio.to_thread.run_sync(lambda: looking.get("/pool").text)
                group.cancel_scope.cancel()
            said = words(page)
            assert re.search(r"memory \d[\d.]* [KMG]B", said)
            for expected in ("processes 2 of 2", "busy 2", "waiting 1", "ada 1", "in use"):
                assert expected in said

    async def waits(pool: fleet.Pool) -> None:
        async with pool.lease(tenant="ada"):
            pass

    anyio.run(main)


def test_what_is_not_there_has_no_page(config: Path) -> None:
    looking = client(app(Sessions(config=config)))
    for path in (
        "/fleet",
        "/fleet/plot.svg",
        "/watch/fleet",
        "/pool",
        "/watch/pool",
        "/approvals",
        "/watch/approvals",
    ):
        assert looking.get(path).status_code == 404


# Approvals.


def ask(approvals: Approvals, tool: str, **input: Any) -> str:
    async def main() -> str:
        return (await approvals.ask(SESSION, tool, input, reason="it is dangerous")).id

    return anyio.run(main)


def form(page: str, id: str) -> dict[str, str]:
    """The hidden fields of the form of an approval."""
    part = page[page.index(f'id="a{id}"') :]
    return {"digest": re.findall(r'name="digest" value="([0-9a-f]+)"', part)[0]}


@pytest.fixture
def approvals(tmp_path: Path) -> Approvals:
    return Approvals(tmp_path / "approvals.db")


def state(approvals: Approvals, id: str) -> Any:
    return anyio.run(approvals.get, id)


def test_allow_deny_and_edit(approvals: Approvals) -> None:
    looking = client(app(approvals, approve=True))
    ids = [ask(approvals, "Bash", command=f"./deploy.sh {name}") for name in ("one", "two", "three")]
    page = looking.get("/approvals").text
    assert "./deploy.sh one" in words(page).replace("deploy . sh", "deploy.sh") or "deploy" in words(page)
    assert "it is dangerous" in words(page)
    choices = (
        {"decision": "allow"},
        {"decision": "deny", "message": "Not on a Friday"},
        {"decision": "allow", "input.command": "./deploy.sh --dry-run"},
    )
    for id, chosen in zip(ids, choices, strict=True):
        answer = looking.post(f"/approvals/{id}", data={**form(page, id), **chosen}, headers=ORIGIN)
        assert (answer.status_code, answer.headers["location"]) == (303, "/approvals")
    granted, denied, edited = (state(approvals, id) for id in ids)
    assert (granted.state, granted.new_input) == ("granted", None)
    assert (denied.state, denied.message) == ("denied", "Not on a Friday")
    assert (edited.state, edited.new_input) == ("granted", {"command": "./deploy.sh --dry-run"})
    again = looking.post(
        f"/approvals/{ids[0]}", data={**form(page, ids[0]), "decision": "deny"}, headers=ORIGIN
    )
    assert again.status_code == 400
    assert "granted" in words(again.text)


def test_a_question_is_answered(approvals: Approvals) -> None:
    options = [
        {"label": "Red", "description": "like a rose"},
        {"label": "Blue", "description": "like the sea"},
    ]
    id = ask(approvals, "AskUserQuestion", questions=[{"question": "Which color?", "options": options}])
    looking = client(app(approvals, approve=True))
    page = looking.get("/approvals").text
    looking.post(
        f"/approvals/{id}", data={**form(page, id), "decision": "allow", "q0": "Blue"}, headers=ORIGIN
    )
    found = state(approvals, id)
    assert found.state == "granted"
    assert found.new_input["answers"] == {"Which color?": "Blue"}


def test_what_was_shown_is_what_is_decided(approvals: Approvals) -> None:
    id = ask(approvals, "Bash", command="ls", timeout=5)
    looking = client(app(approvals, approve=True))
    for data in ({"decision": "allow"}, {"decision": "allow", "digest": "0" * 64}):
        assert looking.post(f"/approvals/{id}", data=data, headers=ORIGIN).status_code == 400
    page = looking.get("/approvals").text
    for chosen in (
        {"decision": "maybe"},
        {"decision": "allow", "input.timeout": "{"},
        {"decision": "allow", "input.timeout": ""},
    ):
        answer = looking.post(f"/approvals/{id}", data={**form(page, id), **chosen}, headers=ORIGIN)
        assert answer.status_code == 400
    assert state(approvals, id).state == "pending"


def test_nothing_is_hidden_from_who_decides(approvals: Approvals) -> None:
    secret = "sk-ant-api03-" + "abcdefghij" * 5
    ask(approvals, "Bash", command=f"curl -H 'x-api-key: {secret}' " + "x" * 20_000 + " ; rm -rf /")
    page = unescape(client(app(approvals, approve=True)).get("/approvals").text)
    assert secret in page
    assert re.search(r"rm(<[^>]+>| )+-rf", page)


@every_case(
    "tool, input",
    [
        ("Bash", {"command": "ls", "timeout": 600_000, "dangerouslyDisableSandbox": True}),
        ("Read", {"file_path": "/etc/shadow", "offset": 7, "limit": 9}),
        ("Edit", {"file_path": "/etc/hosts", "old_string": "a", "new_string": "b", "replace_all": True}),
        ("Write", {"file_path": "/etc/cron.d/x", "content": "* * * * *"}),
        (
            "MultiEdit",
            {"file_path": "/x", "edits": [{"old_string": "", "new_string": "y", "replace_all": True}]},
        ),
        ("NotebookEdit", {"notebook_path": "/x.ipynb", "cell_id": "c7", "new_source": "1 / 0"}),
        ("Grep", {"pattern": "password", "path": "/home", "-A": 3}),
        ("WebFetch", {"url": "https://evil.example/?q=1", "prompt": "go"}),
        ("WebSearch", {"query": "x", "blocked_domains": ["y.example"]}),
        ("TodoWrite", {"todos": [{"content": "one", "status": "pending"}], "extra": "seen"}),
        ("ExitPlanMode", {"plan": "rest", "allowedPrompts": [{"tool": "Bash", "prompt": "anything"}]}),
        ("Agent", {"description": "look", "prompt": "around", "isolation": "remote", "model": "opus"}),
        ("mcp__a__b", {"query": "drop table", "deep": {"er": [1, None]}}),
    ],
)
def test_every_field_is_shown_to_who_decides(approvals: Approvals, tool: str, input: dict[str, Any]) -> None:
    ask(approvals, tool, **input)
    page = client(app(approvals)).get("/approvals").text
    said = re.sub(r"\s", "", re.sub(r"<[^>]+>", "", unescape(page)))

    def values(value: object) -> list[object]:
        if isinstance(value, dict):
            return [each for inner in value.values() for each in values(inner)]
        return [each for inner in value for each in values(inner)] if isinstance(value, list) else [value]

    for value in values(input):
        shown = value if isinstance(value, str) else json.dumps(value)
        assert re.sub(r"\s", "", shown) in said, value


def test_a_field_that_was_not_edited_stays_as_it_is(approvals: Approvals) -> None:
    input = {"command": "\none\r\ntwo\u202e", "deep": {"a": [1.0, True]}, "timeout": 5}
    looking = client(app(approvals, approve=True))
    for changes, expected in (({}, None), ({"input.timeout": "7"}, {**input, "timeout": 7})):
        id = ask(approvals, "Bash", **input)
        page = looking.get("/approvals").text
        part = page[page.index(f'id="a{id}"') :].partition("</form>")[0]
        areas = re.findall(r'<textarea name="([^"]+)"[^>]*>\n(.*?)</textarea>', part, re.DOTALL)
        # As browsers send it.
        sent = {name: unescape(words).replace("\n", "\r\n") for name, words in areas}
        assert sent.keys() == {"input.command", "input.deep", "input.timeout"}
        data = {**form(page, id), **sent, **changes, "decision": "allow"}
        assert looking.post(f"/approvals/{id}", data=data, headers=ORIGIN).status_code == 303
        assert state(approvals, id).new_input == expected


def test_without_approving_it_is_only_shown(approvals: Approvals) -> None:
    id = ask(approvals, "Edit", file_path="/srv/a.py", old_string="x = 1", new_string="x = 2")
    looking = client(app(approvals))
    page = looking.get("/approvals").text
    assert "<form method" not in page.replace('<form method="dialog"', "")
    assert 'class="l add"' in page
    assert "--approve" in page
    assert looking.post(f"/approvals/{id}", data={"decision": "allow"}, headers=ORIGIN).status_code == 403
    assert state(approvals, id).state == "pending"
