"""`outrider fleet`: batches at the command line, in pipes."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import pytest

import outrider
from outrider import fleet
from outrider.app import main
from outrider.app._fleet.reports import BatchFields, Settings
from outrider.fleet import Journal, Report, Task
from outrider.testing import Gate, Request, Step, fail, say, use_tool
from outrider.transcripts import project_key
from tests.app.machines import COMMAND, Machine, clean, machine
from tests.cases import every_case
from tests.transcripts.stores import servers

SECRET = "hunter2-and-more"


def write_tasks(folder: Path, *tasks: object) -> Path:
    path = folder / "tasks.jsonl"
    path.write_text("".join(f"{json.dumps(task)}\n" for task in tasks))
    return path


def test_a_batch_from_its_first_task_to_its_report(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(*arguments: str) -> str:
        assert main(["fleet", *arguments]) == 0
        return capsys.readouterr().out

    refused: list[str] = []

    def model(request: Request) -> Step:
        if "Break" in request.prompt and not refused:
            refused.append(request.prompt)
            return fail(400, message="No.")
        return say(f"I did: {request.prompt}")

    with machine(otherwise=model) as here:
        write_tasks(
            here.folder,
            {"prompt": "Mend", "id": "mend", "tags": {"team": "core"}},
            {"prompt": "Break", "id": "b"},
        )
        done = here.run("fleet", "run", "tasks.jsonl", "-j", "1", "--ledger", "money.jsonl", "-w", "empty")
        assert done.code == 1
        assert len((here.folder / "money.jsonl").read_text().splitlines()) == 2
        mended, broken = done.out.splitlines()
        assert re.fullmatch(r"\[1/2\] done    mend  \d+\.\d s  \$0\.\d{4}", mended)
        assert re.fullmatch(r"\[2/2\] failed  b  \d+\.\d s  \$0\.0000  ApiFailed: The API call .*", broken)
        assert re.match(r"! 1 of 2 tasks done · 0:\d\d · \$0\.\d{4} · \d+ tokens\n✗ 1 ApiFailed  ", done.err)
        assert "\nTo run them again: outrider fleet retry-failed tasks.journal\n" in done.err

        monkeypatch.chdir(here.folder)
        assert look("status", "tasks.journal").startswith("2 of 2 tasks ended\n1 done · 1 failed\n$0.")
        told = json.loads(look("status", "tasks.journal", "--json"))
        assert (told["total"], told["done"], told["failed"], told["runner"]) == (2, 1, 1, None)

        again = here.run("fleet", "retry-failed", "tasks.journal")
        assert (again.code, again.err.split(" ·")[0]) == (0, "✓ 2 of 2 tasks done")
        assert again.out.startswith("[2/2] done    b  ")
        assert look("resume", "tasks.journal") == ""
        assert here.is_empty()
        assert _asked(here) == ["Mend", "Break", "Break"]

        report = Report.from_journal("tasks.journal")
        assert look("report", "tasks.journal") == report.to_markdown()
        rows = list(csv.DictReader(io.StringIO(look("report", "tasks.journal", "-f", "csv"))))
        assert [(row["id"], row["text"], row["tag:team"]) for row in rows] == [
            ("mend", "I did: Mend", "core"),
            ("b", "I did: Break", ""),
        ]
        for name, text in (("r.svg", "<svg "), ("r.json", "{"), ("r.md", "# 2 of 2"), ("r.csv", '"number"')):
            assert look("report", "tasks.journal", "-o", name) == ""
            assert Path(name).read_text().startswith(text)


def test_a_task_that_waits_for_a_person_is_resumed_once_it_is_decided() -> None:
    call = use_tool("Bash", command="chmod 700 . && echo x >> made")

    def model(request: Request) -> Step:
        is_told = "Make exactly this call again" in request.prompt and not request.tool_results
        return call if is_told else say("All done.")

    with machine(call, otherwise=model) as here:
        write_tasks(here.folder, {"prompt": "Make it", "id": "a"})
        flags = ("--approvals", "approvals.db", "--patience", "0", "-j", "1")
        begun = here.run("fleet", "run", "tasks.jsonl", *flags)
        assert (begun.code, begun.out.split()[1]) == (1, "waiting")
        assert "1 task waiting for approval. Once decided: outrider fleet resume tasks.journal" in begun.err
        # Nothing is decided, so nothing is begun.
        still = here.run("fleet", "resume", "tasks.journal")
        assert (still.code, "1 task waiting for approval" in still.err) == (1, True)
        assert not (here.folder / "made").exists()
        listed = here.run("approvals", "list", "--store", "approvals.db").out
        assert here.run("approvals", "allow", listed.split("\t")[0], "--store", "approvals.db").code == 0
        resumed = here.run("fleet", "resume", "tasks.journal")
        assert (resumed.code, resumed.err.split(" ·")[0]) == (0, "✓ 1 of 1 task done")
        assert (here.folder / "made").read_text() == "x\n"


def test_tasks_of_a_pipe_and_answers_of_a_form() -> None:
    schema = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}
    steps = use_tool("StructuredOutput", count=2), say("Counted.")
    with machine(*steps) as here:
        (here.folder / "schema.json").write_text(json.dumps(schema))
        arguments = "fleet", "run", "-", "--journal", "of/a/pipe", "--json", "--output", "schema.json"
        done = here.run(*arguments, stdin='# Counts.\n\n"How many are there?"\n')
        assert done.code == 0, done.err
        told = json.loads(done.out)
        assert (told["status"], told["output"], told["attempts"]) == ("done", {"count": 2}, 1)
        assert (here.folder / "of" / "a" / "pipe").exists()


def test_a_batch_goes_on_where_and_how_it_was_begun(tmp_path: Path) -> None:
    with machine(otherwise=lambda request: say("Done.")) as here:
        path = begun(
            here.folder,
            Task("First"),
            Task("Second"),
            Task("Third"),
            fields={"model": "opus"},
            batch={"concurrency": "1", "budget_tokens": 10},
        )
        (tmp_path / "elsewhere").mkdir()
        folder, here.folder = here.folder, tmp_path / "elsewhere"
        done = here.run("fleet", "resume", str(path), "--append-system-prompt", "Be brief.")
        assert done.code == 1
        assert [line.split()[:2] for line in done.out.splitlines()] == [
            ["[1/3]", "done"],
            ["[2/3]", "over"],
            ["[3/3]", "over"],
        ]
        assert done.err.startswith("! 1 of 3 tasks done · ")
        (request,) = here.requests
        assert "opus" in str(request.body["model"])
        assert "Be brief." in str(request.body["system"])
        (session,) = Path(here.environment["CLAUDE_CONFIG_DIR"], "projects").iterdir()
        assert session.name == project_key(folder)


def test_a_batch_whose_runner_is_killed_is_resumed() -> None:
    gate = Gate()

    def model(request: Request) -> Step:
        return say("Done.") if "First" in request.prompt else say("Done after all.", gate=gate)

    with machine(otherwise=model) as here:
        write_tasks(here.folder, "First", {"prompt": "Second", "id": "b"})
        command = [*COMMAND, "fleet", "run", "tasks.jsonl", "-j", "1", "-w", "empty", "--model", "opus"]
        with subprocess.Popen(
            command,
            cwd=here.folder,
            env=clean(here.child_environment()),
            stdout=subprocess.PIPE,
            encoding="utf-8",
        ) as runner:
            assert runner.stdout is not None
            assert runner.stdout.readline().startswith("[1/2] done    000000-")
            gate.wait_reached()
            runner.kill()
        # Its agent ends with it.
        assert here.is_empty()
        gate.open()
        done = here.run("fleet", "resume", "tasks.journal")
        assert (done.code, done.out.startswith("[2/2] done    b  ")) == (0, True), done.err
        assert here.is_empty()
        first, second, picked_up = here.requests
        assert [request.prompt for request in (first, second)] == ["First", "Second"]
        assert picked_up.prompt.startswith("You were cut off")
        assert "Second" in str(picked_up.body["messages"])
        assert "opus" in str(picked_up.body["model"])
        (_, ended) = Report.from_journal(here.folder / "tasks.journal").outcomes
        assert (ended.text, ended.attempts) == ("Done after all.", 2)
        assert not (here.folder / "tasks.journal.workspaces").exists()


# What is wrong. Nothing is begun, so there is no agent.


class Shell:
    """The command, in a folder of its own."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys

    def refuses(self, *arguments: str) -> str:
        """What it says; it must be one line, and a mistake of whoever called it."""
        code = main(["fleet", *arguments])
        out, err = self._capsys.readouterr()
        assert (code, out) == (2, "")
        assert err.startswith("error: ")
        assert err.count("\n") == 1
        return err.removeprefix("error: ").rstrip()


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.chdir(tmp_path)
    return Shell(tmp_path, capsys)


def begun(
    folder: Path, *tasks: Task, fields: dict[str, object] | None = None, batch: BatchFields | None = None
) -> Path:
    """A batch that `run` has begun in that folder, and that was ended before it did anything."""
    path = folder / "tasks.journal"
    with Journal(path, writing=True) as journal:
        journal.add((number, task.placed(number)) for number, task in enumerate(tasks))
        Settings(folder=str(folder), fields=fields or {}, batch=batch or {}).keep(journal)
    return path


@every_case(
    "content, said",
    [
        ('"One"\n\n{"prompt": "Two"\n', "tasks.jsonl, line 3: "),
        (
            '"One"\n{"promt": "Two"}\n',
            "tasks.jsonl, line 2: A task has no field 'promt'. Did you mean 'prompt'?",
        ),
        ('{"id": "a"}\n', "tasks.jsonl, line 1: The task has no 'prompt'."),
        ("[1]\n", "tasks.jsonl, line 1: A task must be an object"),
        ('{"prompt": "x", "usd": -1}\n', "tasks.jsonl, line 1: 'usd' must be a "),
        ('{"prompt": "x", "options": {"modle": "opus"}}\n', "tasks.jsonl, line 1: "),
        ('{"prompt": "x", "options": {"max_turns": 0}}\n', "tasks.jsonl, line 1: 'max_turns' must be"),
        (
            '{"prompt": "x", "id": "a"}\n# One more.\n{"prompt": "y", "id": "a"}\n',
            "tasks.jsonl, line 3: the id 'a' is that of line 1. Give each task one of its own, or none.",
        ),
        (
            '{"prompt": "x", "cwd": "/", "workspace": "empty"}\n',
            "tasks.jsonl, line 1: 'cwd' is '/', which is not",
        ),
        ("\n# Nothing.\n", "There are no tasks in tasks.jsonl. Write one per line, as JSON."),
        ("", "There are no tasks in tasks.jsonl."),
        ("\xff\xfe", "tasks.jsonl, line 1: "),
    ],
    ids=[
        *("bad-json", "unknown-field", "no-prompt", "no-object", "bad-limit", "unknown-option", "bad-option"),
        *("same-id", "cwd-elsewhere", "comments-only", "empty", "not-utf-8"),
    ],
)
def test_a_file_that_is_wrong_is_refused(content: str, said: str, shell: Shell) -> None:
    (shell.folder / "tasks.jsonl").write_bytes(content.encode("latin-1"))
    assert shell.refuses("run", "tasks.jsonl").startswith(said)
    assert [path.name for path in shell.folder.iterdir()] == ["tasks.jsonl"]


@every_case(
    "flags, said",
    [
        (("-j", "many"), "--concurrency is 'many'. Give a number, or the least and the most: 2..16."),
        (("-j", "0"), "`--concurrency` must be a whole number from 1 to 10000, not 0"),
        (("-j", "9..2"), "`--concurrency` is 9, which is over the maximum of 2"),
        (("-w", "cloud"), "--workspace is 'cloud'. Give empty, copy:FOLDER, worktree:REPO"),
        (("-w", "copy:nowhere"), "--workspace: there is no folder "),
        (("-w", "worktree:.@-f"), "`Worktree.ref` must be a commit, a branch or a tag"),
        (("--keep", "failed"), "--keep is for folders that --workspace makes. Give both."),
        (("-w", "empty", "--keep", "some"), "--keep is 'some'. Give one of never, failed, always."),
        (("--engine", "steam"), "--engine is 'steam'. Give local or ray."),
        (("--address", "auto"), "--address is for --engine ray. Give both."),
        (("--approvals", "ftp://there"), "there is no session store for 'ftp://there'"),
        (("--patience", "1"), "--patience is for --approvals. Give both."),
        (("--approvals", "a.db", "--patience", "-1"), "`--patience` must be a finite number of seconds"),
        (("--budget-usd", "-1"), "`--budget-usd` must be "),
        (("--tries", "0"), "`--tries` must be "),
        (("--output", "nowhere.json"), "--output: nowhere.json cannot be read: No such file or directory."),
        (("--max-turns", "0"), "`--max-turns` must be a whole number of 1 or more"),
        (("--journal", "tasks.jsonl"), "tasks.jsonl cannot be both the tasks and the journal."),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else "",
)
def test_a_flag_that_is_wrong_is_refused(flags: tuple[str, ...], said: str, shell: Shell) -> None:
    write_tasks(shell.folder, "One")
    assert shell.refuses("run", "tasks.jsonl", *flags).startswith(said)
    assert [path.name for path in shell.folder.iterdir()] == ["tasks.jsonl"]


def test_an_agent_that_is_missing_is_said_once(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    write_tasks(shell.folder, "One", "Two")
    assert main(["fleet", "run", "tasks.jsonl", "--program", "nowhere/claude"]) == 3
    assert capsys.readouterr().err.count("\n") == 1
    assert [path.name for path in shell.folder.iterdir()] == ["tasks.jsonl"]


def test_a_batch_is_not_begun_twice(shell: Shell) -> None:
    write_tasks(shell.folder, "One")
    begun(shell.folder, Task("One"))
    assert shell.refuses("run", "tasks.jsonl") == (
        "tasks.journal already has a batch. Continue it with `outrider fleet resume tasks.journal`,"
        " or give another --journal."
    )


def test_files_that_are_not_there_are_named(shell: Shell) -> None:
    assert shell.refuses("run", "tasks.jsonl") == "tasks.jsonl: No such file or directory."
    assert shell.refuses("run", "-") == "Tasks from standard input need --journal FILE."
    for command in ("status", "resume", "report", "retry-failed"):
        assert "cannot be used as a journal: there is no such file." in shell.refuses(command, "a.journal")
    write_tasks(shell.folder, "One")
    assert "cannot be used as a journal: it is not a journal, or it is damaged." in shell.refuses(
        "status", "tasks.jsonl"
    )
    assert [path.name for path in shell.folder.iterdir()] == ["tasks.jsonl"]


async def begin_in_python(path: str, **fields: Any) -> None:
    source = fleet.map([Task("One", id="one")], journal=path, **fields)._plan.source
    await source.open()
    await source.close()


def test_a_journal_of_a_program_is_resumed_if_it_has_all_that_is_needed(
    shell: Shell, capsys: pytest.CaptureFixture[str]
) -> None:
    def continued() -> str:
        assert main(["fleet", "status", "run.db"]) == 0
        return capsys.readouterr().err.removeprefix("It is not running. To continue: ").rstrip()

    @outrider.tool
    def look() -> str:
        """Look."""
        return ""

    anyio.run(partial(begin_in_python, "run.db", tools=[look], model="opus"))
    assert continued() == "outrider.fleet.resume('run.db', …) in Python, with the same `model`, `tools`"
    assert shell.refuses("resume", "run.db").startswith(
        "The batch was begun in Python with 'tools', which no flag "
    )
    anyio.run(partial(begin_in_python, "run.db", model="opus", budget=fleet.Budget(usd=1)))
    assert continued() == "outrider fleet resume run.db --model … --budget-usd …"
    assert shell.refuses("resume", "run.db", "--budget-tokens", "9") == (
        "The batch was begun in Python with 'model'. Give it as --model."
    )
    anyio.run(partial(begin_in_python, "run.db", concurrency=4))
    assert continued() == "outrider fleet resume run.db"
    with machine(say("Done.")) as here:
        done = here.run("fleet", "resume", str(shell.folder / "run.db"))
        assert done.out.startswith("[1/1] done    one  "), done.err


def test_a_journal_without_tasks_is_begun_again(shell: Shell) -> None:
    # It was killed before it had written its tasks down.
    begun(shell.folder)
    assert shell.refuses("resume", "tasks.journal").startswith(
        "There are no tasks in tasks.journal. Begin again"
    )


def test_a_journal_that_is_being_run_is_left_alone(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    with Journal(begun(shell.folder, Task("One", id="one")), writing=True) as journal:
        assert "tasks.journal' is in use by process " in shell.refuses("resume", "tasks.journal")
        journal.begin("one", 1, "here")
        assert main(["fleet", "status", "tasks.journal"]) == 0
        shown = capsys.readouterr().out
    assert "\n0 done · 1 running\n" in shown
    assert re.search(r"\nrun by process \d+ on .*\n  ⏺ one  0:\d\d\n", shown)
    assert main(["fleet", "status", "tasks.journal"]) == 0
    out, err = capsys.readouterr()
    assert "\n0 done · 1 cut off\n" in out
    assert err == "It is not running. To continue: outrider fleet resume tasks.journal\n"


def test_what_may_be_a_secret_is_not_kept(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    path = begun(shell.folder, Task("One"), fields={"env": {"TOKEN": SECRET}, "model": "opus"})
    assert SECRET.encode() not in b"".join(each.read_bytes() for each in shell.folder.iterdir())
    assert shell.refuses("resume", str(path)) == (
        "The batch was begun with --env TOKEN, whose value is not kept. `export` it, or give it again."
    )
    monkeypatch.setenv("TOKEN", SECRET)
    assert Settings.read(str(path)).changed({}, {}).fields["env"] == {"TOKEN": SECRET}
    again = Settings.read(str(path)).changed({}, {"env": {"TOKEN": SECRET}})
    assert again.fields == {"model": "opus", "env": {"TOKEN": SECRET}}


def test_a_report_has_a_form_that_is_known(shell: Shell) -> None:
    begun(shell.folder, Task("One"))
    assert shell.refuses("report", "tasks.journal", "-o", "report.pdf") == (
        "report.pdf: a report is markdown, csv, json, svg. Say which with --format."
    )


def test_tasks_are_submitted_to_a_database_and_workers_run_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    url = f"{servers.postgres().url()}?batch={uuid4().hex}"
    shown = url.replace(":made-up-word@", "@")

    def look(*arguments: str) -> str:
        assert main(["fleet", *arguments]) == 0
        return capsys.readouterr().out

    broken = [fail(400, message="No.")]

    def model(request: Request) -> Step:
        return broken.pop() if request.prompt == "Break" and broken else say(f"I did: {request.prompt}")

    with machine(otherwise=model) as here:
        write_tasks(here.folder, {"prompt": "Mend", "id": "m"}, {"prompt": "Break", "id": "b"})
        for new in ("2 tasks", "0 tasks"):
            done = here.run("fleet", "submit", "tasks.jsonl", url, "-j", "1")
            assert done.err == f"{new} submitted. To run them: outrider fleet work '{shown}'\n"
        done = here.run("fleet", "work", url)
        assert done.code == 1
        assert [line[:15] for line in done.out.splitlines()] == ["[1/2] done    m", "[2/2] failed  b"]
        assert "2 of 2 tasks ended\n1 done · 1 failed\n" in look("status", url)
        assert "made-up-word" not in done.err
        assert f"outrider fleet retry-failed '{shown}'" in done.err
        done = here.run("fleet", "retry-failed", url)
        assert (done.code, done.err.split(" ·")[0]) == (0, "✓ 2 of 2 tasks done")
        assert look("report", url, "-f", "csv").count("done") == 2
        write_tasks(here.folder, {"prompt": "More", "id": "x"})
        assert here.run("fleet", "submit", "tasks.jsonl", url, "--append").err.startswith("1 task submitted")
        again = here.run("fleet", "submit", "tasks.jsonl", url, "--append", "-j", "2")
        assert again.err.startswith(
            "The batch has its flags from its first `submit`: those given here are not"
        )
        done = here.run("fleet", "work", url, "--json")
        assert [json.loads(line)["text"] for line in done.out.splitlines()] == ["I did: More"]
        done = here.run("fleet", "submit", "tasks.jsonl", "a.db")
        assert (done.code, "postgresql://" in done.err) == (2, True)
        done = here.run("fleet", "work", "a.journal", "--stay")
        assert (done.code, "--stay is for a database" in done.err) == (2, True)


def _asked(here: Machine) -> list[str]:
    return [request.prompt for request in here.requests]
