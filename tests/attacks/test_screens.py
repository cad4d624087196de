"""Whatever the agent, a session, a trace or a task says: every command shows it, and no terminal obeys it.

`COMMANDS` has every command of the parser, and every field of what each of them reads is poisoned: a command
or a field that is added later is found by itself.
"""

from __future__ import annotations

import ast
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest
import typer.main

import outrider.app
from outrider.app import main
from outrider.app._main import _app
from outrider.app._terminal import UNICODE
from outrider.fleet import Journal, Outcome, Task
from outrider.testing import Request, Step, answer, fail, say, use_tool
from outrider.transcripts import Bundle, project_key
from outrider.transports import Transport, read_trace
from tests import tapes
from tests.app.machines import ROOT, Machine, Picture, Screen, clean, machine
from tests.attacks.hostile import DISPATCHING, FORGED, HIDDEN, OWN_CODES, POISON, groups_of, keys_of, poisoned
from tests.transcripts.keeping import bundle, put_on_disk
from tests.transcripts.lines import SESSION
from tests.transcripts.lines import answer as answered

NAME = f"evil\x1b]0;owned\x07\x9b2J\u202e\u200b\n{FORGED}\r{FORGED}\u2028{FORGED}"
"""What a file can be called."""


class Shown(NamedTuple):
    """A command line, and how what it prints is to be read."""

    arguments: tuple[str, ...]
    form: str = "lines"
    """`lines`: none of the agent's begins where ours do. `text`: they are its own. `json`, `whole json`."""


def shown(*arguments: str, form: str = "lines") -> Shown:
    return Shown(arguments, form)


def assert_safe(out: str, err: str, form: str) -> None:
    for text in (out, err):
        assert [f"{found[0]!r} in {text!r}" for found in HIDDEN.finditer(text)][:1] == []
    own = err.splitlines() if form != "lines" else (out + err).splitlines()
    assert [line for line in own if line.startswith(FORGED)] == []
    if form == "json":
        for line in out.splitlines():
            json.loads(line)
    elif form == "whole json" and out:
        json.loads(out)


# Every command.


OF_SESSIONS = {
    "sessions list": [shown("list", "--all"), shown("list", "--all", "--json", form="json")],
    "sessions show": [
        *(shown("show", SESSION), shown("show", SESSION, "--agent", "first")),
        shown("show", SESSION, "--json", form="json"),
    ],
    "sessions search": [
        shown("search", "u"),
        shown("search", "o", "--json", form="json"),
        shown("search", "evil"),
    ],
    "sessions export": [
        shown("export", SESSION, form="text"),
        shown("export", SESSION, "-f", "html", form="text"),
        shown("export", SESSION, "-f", "json", form="whole json"),
        shown("export", SESSION, "-o", NAME),
    ],
    "sessions import": [shown("import", "exported.json", "--as-new"), shown("import", NAME)],
    "sessions rename": [shown("rename", SESSION, POISON)],
    "sessions tag": [shown("tag", SESSION, POISON), shown("tag", POISON, "x")],
    "sessions archive": [shown("archive", SESSION), shown("archive", SESSION, "--undo")],
    "sessions fork": [shown("fork", SESSION, "--title", POISON), shown("fork", SESSION, "--at", POISON)],
    "sessions copy": [shown("copy", SESSION, "--to", "kept.db"), shown("copy", SESSION, "--to", POISON)],
    "sessions delete": [shown("delete", SESSION), shown("delete", SESSION, "--yes")],
}
OF_RECORDINGS = {
    "replay": [shown("replay", "trace.jsonl"), shown("replay", NAME)],
    "trace show": [
        shown("trace", "show", "trace.jsonl"),
        shown("trace", "show", "trace.jsonl", "--partials"),
    ],
}
OF_JOURNALS = {
    "fleet status": [shown("status", "a.journal"), shown("status", "a.journal", "--json", form="json")],
    "fleet report": [
        shown("report", "a.journal"),
        shown("report", "a.journal", "-f", "csv", form="text"),
        shown("report", "a.journal", "-f", "json", form="whole json"),
        shown("report", "a.journal", "-f", "svg"),
        shown("report", "a.journal", "-o", NAME),
        shown("report", NAME),
    ],
}
OF_APPROVALS = {
    "approvals list": [shown("list"), shown("list", "--json", form="json"), shown("list", "--state", POISON)],
    "approvals show": [
        shown("show", "ID"),
        shown("show", "ID", "--json", form="json"),
        shown("show", POISON),
    ],
    "approvals allow": [shown("allow", "ID", "--by", POISON), shown("allow", "ID", "--input", POISON)],
    "approvals deny": [shown("deny", "ID", POISON), shown("deny", POISON, "no")],
}
OF_FILES = {
    "migrate": [
        shown("migrate", "code"),
        shown("migrate", "code", "--json", form="whole json"),
        shown("migrate", NAME),
    ],
    "init": [
        *(shown("init", NAME), shown("init", "bot", "--name", POISON)),
        # The second time, its files exist.
        *(shown("init", NAME, "--name", "bot"), shown("init", NAME, "--name", "bot")),
    ],
}
OF_SERVERS = {
    "view": [
        *(shown("view", NAME, "--no-open"), shown("view", POISON, "--no-open")),
        shown("view", "--store", f"sqlite:///{NAME}", "--no-open"),
        shown("view", "--approvals", NAME, "--no-open", "--approve"),
        shown("view", f"postgresql://{NAME}/x?batch=y", "--no-open"),
    ],
    "acp": [shown("acp", "--module", POISON), shown("acp", "--module", f"{NAME}:options")],
}
LIVE = {
    "run": [
        shown("run", "Go", form="text"),
        shown("run", "Go", "--json", form="json"),
        shown("run", "-q", "--allow", "Bash", "Go", form="text"),
        shown("run", "--model", POISON, "--resume", POISON, "Go"),
    ],
    "chat": [shown("chat", form="text")],
    "doctor": [
        shown("doctor"),
        shown("doctor", "--json", form="whole json"),
        shown("doctor", "--program", NAME),
    ],
    "fleet run": [
        shown("fleet", "run", "tasks.jsonl"),
        shown("fleet", "run", "t.jsonl", "--json", form="json"),
    ],
    "fleet resume": [shown("fleet", "resume", "tasks.journal"), shown("fleet", "resume", NAME)],
    "fleet retry-failed": [shown("fleet", "retry-failed", "tasks.journal")],
    "fleet work": [shown("fleet", "work", "tasks.journal"), shown("fleet", "work", NAME)],
    "fleet submit": [
        shown("fleet", "submit", "tasks.jsonl", f"postgresql://{NAME}"),
        shown("fleet", "submit", "tasks.jsonl", NAME),
    ],
    "demo": [shown("demo", "--speed", "0"), shown("demo", "--agent", "real", "--program", NAME)],
}
COMMANDS: dict[str, list[Shown]] = {
    **OF_SESSIONS,
    **OF_RECORDINGS,
    **OF_JOURNALS,
    **OF_APPROVALS,
    **OF_FILES,
    **OF_SERVERS,
    **LIVE,
}


def parsed(command: Any, name: str = "") -> Iterator[str]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield name.strip()
        return
    for each, below in inner.items():
        yield from parsed(below, f"{name} {each}")


def test_every_command_is_attacked() -> None:
    assert set(parsed(typer.main.get_command(_app()))) == set(COMMANDS)


def test_only_one_module_writes_to_the_terminal() -> None:
    """Others print through it, or write to streams of Python's while those are guarded."""
    writers: set[str] = set()
    for path in Path(outrider.app.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if name.startswith(("sys.stdout.buffer", "os.write")) or name in ("Console", "print", "open_raw"):
                writers.add(path.name)
            if name.startswith("sys.stdout.write"):
                writers.add(path.name)
    # It says the version, which is ours.
    assert writers == {"_main.py"}


# What is kept: sessions, recordings, journals, code.


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.delenv("OUTRIDER_STORE", raising=False)
    monkeypatch.chdir(folder)
    return tmp_path


def attack(commands: list[Shown], capsys: pytest.CaptureFixture[str], *before: str) -> None:
    for command in commands:
        capsys.readouterr()
        main([*before, *command.arguments])
        out, err = capsys.readouterr()
        try:
            assert_safe(out, err, command.form)
        except AssertionError as error:
            error.add_note(f"of {command.arguments}")
            raise


def kept() -> Bundle:
    made = bundle(project=project_key(Path.cwd()))
    blocks: list[Any] = [{"type": "thinking", "thinking": "Hm"}, {"type": "text", "text": "So"}]
    made.entries += [
        answered("u9", "u8", "m5"),
        {"type": "summary", "summary": "In short", "leafUuid": "u9"},
        {**answered("u10", "u9", "m6"), "message": {"role": "assistant", "model": "m", "content": blocks}},
        {
            "type": "system",
            "subtype": "compact_boundary",
            "uuid": "u11",
            "parentUuid": "u10",
            "content": "Compacted",
        },
        {"type": "ai-title", "aiTitle": "Called so", "sessionId": SESSION},
    ]
    return made


def put_agents_of_any_name(transcript: Path) -> None:
    """The agent can write there, and call a file as it likes."""
    folder = transcript.with_suffix("") / "subagents"
    (folder / f"agent-{NAME}.jsonl").write_bytes((folder / "agent-first.jsonl").read_bytes())


@pytest.mark.parametrize("number", range(len(groups_of([kept().entries, list(kept().parts.values())]))))
def test_no_field_of_a_session_commands_the_terminal(
    number: int, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = kept()
    names = groups_of([made.entries, list(made.parts.values())])[number]
    made.entries, made.parts = poisoned(made.entries, names), poisoned(made.parts, names)
    put_agents_of_any_name(put_on_disk(place / "config", made))
    told = {"format": "outrider-session", "version": 1, "session_id": SESSION, "entries": made.entries}
    (place / "project" / "exported.json").write_text(json.dumps(told))
    looking = ("list", "show", "search", "export")
    for name, commands in OF_SESSIONS.items():
        # What changes a session says its id, and is slow.
        if number == 0 or name.endswith(looking):
            attack(commands, capsys, "sessions")


@pytest.mark.parametrize("tool", ["Bash", "AskUserQuestion", POISON])
def test_nothing_that_waits_commands_the_terminal(
    tool: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url = str(place / "approvals.db")
    monkeypatch.setenv("OUTRIDER_APPROVALS", url)

    async def ask() -> str:
        async with outrider.Approvals(url) as approvals:
            questions = [{"question": POISON, "header": POISON, "options": []}]
            input: dict[str, Any] = {"command": POISON, POISON: POISON, "questions": questions}
            return (await approvals.ask(SESSION, tool, input, reason=POISON, cwd=POISON)).id

    for commands in OF_APPROVALS.values():
        id = anyio.run(ask)
        for command in commands:
            arguments = [id if argument == "ID" else argument for argument in command.arguments]
            attack([command._replace(arguments=tuple(arguments))], capsys, "approvals")


def recorded() -> list[dict[str, Any]]:
    """One record of each shape in all recordings of the real program."""
    shapes: dict[object, dict[str, Any]] = {}
    for name in tapes.NAMES:
        for record in read_trace(tapes.FOLDER / f"{name}.jsonl.gz").records:
            line: dict[str, Any] = {"t": record.time, "dir": record.direction, "run": 1}
            frame = record.frame
            if frame is None:
                shapes.setdefault((record.direction, record.event), line | facts_of(record))
                continue
            request, message = (value if isinstance(value := frame.get(name), dict) else {} for name in PARTS)
            content = message.get("content")
            blocks = (
                [each.get("type") for each in content if isinstance(each, dict)]
                if isinstance(content, list)
                else []
            )
            kind = (
                record.direction,
                frame.get("type"),
                frame.get("subtype"),
                request.get("subtype"),
                *blocks,
            )
            shapes.setdefault(kind, {**line, "json": frame})
    return list(shapes.values())


PARTS = ("request", "message")


def facts_of(record: Any) -> dict[str, Any]:
    facts = {"event": record.event, **record.facts} if record.event else {"text": record.text, **record.facts}
    return {name: value for name, value in facts.items() if value is not None}


RECORDED = recorded()


@pytest.mark.parametrize("number", range(len(groups_of(RECORDED))))
def test_no_field_of_a_recording_commands_the_terminal(
    number: int, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = groups_of(RECORDED)[number]
    lines = poisoned(RECORDED, names)
    (place / "project" / "trace.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    attack([each for commands in OF_RECORDINGS.values() for each in commands], capsys)


def test_no_line_of_a_recording_that_is_no_frame_commands_the_terminal(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [
        {"t": 0.1, "dir": "cli->host", "run": 1, "text": POISON},
        {"t": 0.2, "dir": "stderr", "run": 1, "text": POISON},
        {"t": 0.3, "dir": "meta", "run": 1, "event": "exit", "returncode": POISON},
        {"t": 0.4, "dir": "cli->host", "run": 1, "json": {"type": "assistant", "message": {"content": [
            {"type": "tool_use", "id": "1", "name": "Any", "input": {POISON: {POISON: POISON}}}]}}},
    ]  # fmt: skip
    (place / "project" / "trace.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    attack([each for commands in OF_RECORDINGS.values() for each in commands], capsys)


def put_journal(path: Path, what: str) -> None:
    """A batch of three tasks, one ended and one begun; somebody has written poison into its file."""
    facts: dict[str, Any] = {
        name: name for name in ("text", "error", "error_kind", "session_id", "workspace")
    }
    with Journal(path, writing=True) as journal:
        journal.add(enumerate(Task("Go", id=name, tags={"team": "core"}) for name in "abc"))
        journal.begin("a", 1, "here", "session")
        journal.begin("b", 2, "here", "session")
        journal.end(
            Outcome(id="a", status="failed", attempts=1, tags={"team": "core"}, raw_output="x", **facts)
        )
    with closing(sqlite3.connect(path)) as connection, connection:
        if what == "texts":
            connection.execute("UPDATE tasks SET id = id || ?, session_id = ?, workspace = ?", 3 * (POISON,))
            connection.execute("UPDATE attempts SET worker = ?, session_id = ?", 2 * (POISON,))
            connection.execute("UPDATE meta SET value = value || ? WHERE name <> 'made_at'", (POISON,))
            return
        column, _, alone = what.partition(" ")
        for number, data in connection.execute(f"SELECT number, {column} FROM tasks").fetchall():
            if data is not None:
                value = json.loads(data)
                names = {alone} if alone else {*keys_of(value)} - {"id", "status"}
                changed = json.dumps(poisoned(value, names)).encode()
                connection.execute(f"UPDATE tasks SET {column} = ? WHERE number = ?", (changed, number))


@pytest.mark.parametrize("what", ["texts", "outcome", "outcome id", "outcome status", "task", "task id"])
def test_no_field_of_a_journal_commands_the_terminal(
    what: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = place / "project" / "a.journal"
    put_journal(path, what)
    commands = [each for commands in OF_JOURNALS.values() for each in commands]
    attack(commands, capsys, "fleet")
    with Journal(path, writing=True):
        # Somebody is at work in it.
        attack(commands[:2], capsys, "fleet")


def put_code(folder: Path) -> None:
    folder.mkdir()
    comment = f"# {POISON}".replace("\r", "").replace("\n", " ")
    source = f"from claude_agent_sdk import query  {comment}\nimport claude_agent_sdk.unknown  {comment}\n"
    (folder / f"a{NAME}.py").write_text(source)
    (folder / "b.py").write_text(source)


def test_no_code_commands_the_terminal(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put_code(place / "project" / "code")
    attack([each for commands in OF_FILES.values() for each in commands], capsys)


def test_no_name_of_a_server_commands_the_terminal(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    attack([each for commands in OF_SERVERS.values() for each in commands], capsys)


# A hostile agent.


class Hostile(Transport):
    """An agent that poisons all that another says: `alone`, that field of messages, else nearly all."""

    def __init__(self, agent: Transport, alone: str | None = None) -> None:
        self._agent = agent
        self._alone = alone
        self._begun = b""

    async def receive(self) -> bytes:
        while data := await self._agent.receive():
            *lines, self._begun = (self._begun + data).split(b"\n")
            if lines:
                return b"".join(map(self._poisoned, lines))
        return b""

    def _poisoned(self, line: bytes) -> bytes:
        frame = json.loads(line)
        names = {*keys_of(frame)} - {*DISPATCHING, "server_name"}
        if self._alone:
            names = set() if frame["type"].startswith("control") else {self._alone}
        said = json.dumps(poisoned(frame, names), ensure_ascii=False).encode() + b"\n"
        if frame.get("type") == "assistant":
            noise = "noise " + POISON.replace("\n", "").replace("\r", "")
            more = {"type": "system", "subtype": "informational", "content": POISON, "level": "info"}
            said += noise.encode() + b"\n" + json.dumps(more).encode() + b"\n"
        return said

    async def connect(self) -> None:
        await self._agent.connect()

    async def send(self, data: bytes) -> None:
        await self._agent.send(data)

    async def end_input(self) -> None:
        await self._agent.end_input()

    async def close(self) -> None:
        await self._agent.close()

    @property
    def is_ready(self) -> bool:
        return self._agent.is_ready


@contextmanager
def hostile_machine(alone: str | None = None) -> Generator[Machine]:
    """A machine whose agent poisons all that it says."""
    with machine(otherwise=model) as here:
        here.disguise = lambda agent: Hostile(agent, alone)
        yield here


def model(request: Request) -> Step:
    if "Break" in request.prompt:
        return fail(400, message=POISON)
    if request.tool_results:
        return say(f"Over. {POISON}")
    return answer(
        say(f"So: {POISON}"),
        use_tool("Bash", command=f"echo {POISON}".replace("\x00", ""), description=POISON),
    )


def arrange(here: Machine) -> None:
    """Tasks with ids as bad as they may be: control characters are refused."""
    ids = [f"{number} evil \u202e\u200b\u2066\ufeff {FORGED}" for number in range(2)]
    tasks = [{"prompt": "Go", "id": ids[0], "tags": {"a": POISON}}, {"prompt": "Break", "id": ids[1]}]
    for name in ("tasks", "t"):
        (here.folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(task)}\n" for task in tasks))


@pytest.mark.parametrize("name", LIVE)
def test_a_hostile_agent_cannot_command_the_terminal(name: str) -> None:
    with hostile_machine() as here:
        arrange(here)
        if name in ("fleet resume", "fleet retry-failed", "fleet work"):
            here.run("fleet", "run", "tasks.jsonl")
        for number, command in enumerate(LIVE[name]):
            stdin = "Go\n/model\n/mode\n/help\n/cost\n/nothing\x1b[2J\n" if name == "chat" else None
            done = here.run(*command.arguments, stdin=stdin)
            assert_safe(done.out, done.err, command.form)
            # The poison is shown, or the test shows nothing. The demo shows words of ours alone.
            assert number or name == "demo" or "evil" in done.out + done.err
        assert here.is_empty()


@pytest.mark.parametrize("key", ["subtype", "session_id", "id", "uuid", "status"])
def test_a_hostile_agent_cannot_command_the_terminal_by_what_is_dispatched_on(key: str) -> None:
    assert key in DISPATCHING
    with hostile_machine(key) as here:
        done = here.run("--debug", "run", "Go")
        # A traceback has lines of its own.
        assert_safe(done.out, "", "text")
        assert not HIDDEN.search(done.err)
        assert here.is_empty()


# At a terminal.


def assert_safe_screen(screen: Picture) -> None:
    raw = screen.raw.decode("utf-8", "replace")
    assert "\x1b[38;5;123;7m" not in raw
    assert HIDDEN.findall(OWN_CODES.sub("", raw)) == []
    assert [line for line in screen.lines if line.startswith(FORGED)] == []


AT_A_TERMINAL: list[tuple[str, ...]] = [
    ("sessions", "list", "--all"),
    ("sessions", "show", SESSION),
    ("sessions", "search", "u"),
    ("sessions", "delete", SESSION),
    ("replay", "trace.jsonl"),
    ("trace", "show", "trace.jsonl"),
    ("fleet", "status", "a.journal"),
    ("fleet", "report", "a.journal"),
    ("migrate", "code"),
]


@pytest.mark.parametrize("arguments", AT_A_TERMINAL, ids=lambda each: "-".join(each[:2]))
def test_nothing_that_is_kept_commands_a_real_terminal(arguments: tuple[str, ...], place: Path) -> None:
    made = kept()
    names = groups_of([made.entries, list(made.parts.values())])[0]
    made.entries, made.parts = poisoned(made.entries, names), poisoned(made.parts, names)
    put_on_disk(place / "config", made)
    lines = poisoned(RECORDED, groups_of(RECORDED)[0])
    (place / "project" / "trace.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    if "a.journal" in arguments:
        put_journal(place / "project" / "a.journal", "outcome")
    if "migrate" in arguments:
        put_code(place / "project" / "code")
    environment = {"CLAUDE_CONFIG_DIR": str(place / "config"), "PYTHONPATH": str(ROOT / "src")}
    with Screen(*arguments, environment=environment, cwd=place / "project", size=(24, 80)) as screen:
        if "delete" in arguments:
            screen.see("[y/N]")
            screen.press("n\n")
        screen.end()
        assert_safe_screen(screen)


def test_a_hostile_agent_cannot_command_a_real_terminal() -> None:
    with hostile_machine() as here, here.screen("run", "Go") as screen:
        screen.see("no (Enter)")
        screen.press("n")
        screen.end()
        assert_safe_screen(screen)
        assert len([line for line in screen.lines if line.startswith("━━ ")]) == 1


def test_a_hostile_agent_cannot_command_a_chat() -> None:
    with hostile_machine() as here, here.screen("chat", "--allow", "Bash", size=(40, 100)) as screen:
        screen.see(UNICODE.prompt)
        for line in ("/help", "/model", "/mode", "/cost"):
            screen.press(f"{line}\n")
            screen.see(UNICODE.prompt)
        screen.press("\x04")
        screen.end()
        assert_safe_screen(screen)


def test_a_batch_with_hostile_tasks_cannot_command_a_real_terminal() -> None:
    with hostile_machine() as here:
        arrange(here)
        _, picture = here.show("fleet", "run", "tasks.jsonl")
        assert_safe_screen(picture)
        assert "evil" in picture.text


# What Python and other packages write.


def test_logs_warnings_and_tracebacks_are_shown_and_not_obeyed() -> None:
    source = (
        "import logging, sys, threading, traceback, warnings\n"
        "from outrider.app._terminal import guarded_streams\n"
        "from tests.attacks.hostile import POISON\n"
        "with guarded_streams():\n"
        "    logging.getLogger('x').error('%s', POISON)\n"
        "    warnings.warn(POISON)\n"
        "    t = threading.Thread(target=lambda: (_ for _ in ()).throw(RuntimeError(POISON)))\n"
        "    t.start(); t.join()\n"
        "    print(POISON); print(POISON, file=sys.stderr); sys.stderr.writelines([POISON])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", source],
        capture_output=True,
        encoding="utf-8",
        env=clean({"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}),
        check=True,
    )
    assert done.stdout.startswith("evil")
    assert done.stderr.count("evil") >= 5
    assert not HIDDEN.search(done.stdout + done.stderr)
