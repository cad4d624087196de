"""What was given as a secret is in nothing that is written or shown, and what is written is its owner's."""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import anyio
import pytest

from outrider import fleet
from outrider.command import Command, File
from outrider.errors import OptionsError, ProcessExited, TurnFailed
from outrider.fleet import Journal, Task, resume
from outrider.fleet._errors import JournalBusy, JournalInvalid
from outrider.fleet._journal.sqlite import RunnerLock
from outrider.fleet._ray.worker import keep_traces
from outrider.launch import Ssh
from outrider.options import Options, Trace
from outrider.redaction import MASK, Redaction
from outrider.session import Session
from outrider.testing import Simulator, fail
from outrider.transports import ProcessTransport, Transport, live_processes, memory_pair, read_trace, traced
from tests.fleet.stub_engine import Stub
from tests.transports.conftest import DEADLINE

SECRET = "hunter22-of-no-known-shape"
"""Nothing tells that this is one but where it stands."""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can take another user's part")


def written_below(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


# Journals.

SECRET_OPTIONS: dict[str, dict[str, Any]] = {
    "a variable": {"env": {"API_TOKEN": SECRET, "SHARD": "3"}},
    "a header": {"mcp_servers": {"s": {"type": "http", "url": "http://h", "headers": {"X-Who": SECRET}}}},
    "a variable of a server": {"mcp_servers": {"s": {"command": "c", "env": {"WHO": SECRET}}}},
    "an argument of a server": {"mcp_servers": {"s": {"command": "c", "args": ["--api-key", SECRET]}}},
    "settings": {"settings": json.dumps({"env": {"API_TOKEN": SECRET}})},
    "a further argument": {"extra_args": {"api-key": SECRET}},
    "a store": {"session_store": f"postgresql://me:{SECRET}@h/db"},
}


@pytest.mark.anyio
@pytest.mark.parametrize("kind", SECRET_OPTIONS)
async def test_a_journal_has_no_secret_of_a_task_and_the_task_gets_it(kind: str, tmp_path: Path) -> None:
    options = SECRET_OPTIONS[kind]
    tasks: list[Task | str] = [Task("a", options=options), "b"]
    engine = Stub()
    async with fleet.map(tasks, engine=engine, concurrency=1, journal=tmp_path / "run.db") as run:
        await anext(run)
        run.drain()
        # While it runs, parts of it are in other files.
        assert SECRET.encode() not in written_below(tmp_path)
    assert SECRET.encode() not in written_below(tmp_path)
    assert SECRET in str(engine.works[0].task.to_json())
    expected = Options(**options)
    assert getattr(engine.works[0].options, next(iter(options))) == getattr(expected, next(iter(options)))


@pytest.mark.anyio
@pytest.mark.parametrize("kind", SECRET_OPTIONS)
async def test_a_resumed_run_says_which_secret_is_missing_and_takes_it_from_the_same_tasks(
    kind: str, tmp_path: Path
) -> None:
    journal, tasks = tmp_path / "run.db", [Task("a", id="one", options=SECRET_OPTIONS[kind])]
    with Journal(journal, writing=True) as opened:
        opened.add(enumerate(tasks))
    engine = Stub()
    with pytest.raises(OptionsError, match=r"'one' had a secret as `[\w.]+` of its options") as raised:
        await resume(journal, engine=engine)
    assert "call `map` with the same tasks and journal" in str(raised.value)
    assert SECRET not in str(raised.value)
    assert engine.works == []
    # It is neither busy nor harmed. A secret may have been renewed meanwhile.
    (outcome,) = await fleet.map(tasks, engine=engine, journal=journal)
    assert outcome.is_done
    assert SECRET in str(engine.works[0].task.to_json())
    assert await resume(journal, engine=engine)


@pytest.mark.anyio
@pytest.mark.parametrize("source", ["the options of the run", "the environment"])
async def test_a_resumed_run_takes_variables_from_where_they_are(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = tmp_path / "run.db"
    with Journal(journal, writing=True) as opened:
        opened.add(enumerate([Task("a", id="one", options=SECRET_OPTIONS["a variable"])]))
    fields: dict[str, Any] = {}
    if source == "the environment":
        monkeypatch.setenv("API_TOKEN", "a newer one")
    else:
        fields["env"] = {"API_TOKEN": "a newer one"}
    engine = Stub()
    await resume(journal, engine=engine, **fields)
    assert dict(engine.works[0].options.env) == {"API_TOKEN": "a newer one", "SHARD": "3"}


def test_what_is_no_secret_is_kept(tmp_path: Path) -> None:
    options = {
        "env": {"SHARD": "3"},
        "mcp_servers": {
            "s": {"type": "http", "url": "http://h", "headers": {"Authorization": "Bearer ${KEY}"}}
        },
        "model": "opus",
    }
    with Journal(tmp_path / "run.db", writing=True) as journal:
        journal.add(enumerate([Task("a", id="one", options=options)]))
        (entry,) = journal.todo()
    assert (entry.task.options, entry.not_kept) == (options, ())


def test_the_id_that_is_made_for_a_task_tells_nothing_of_a_secret() -> None:
    one, other = (
        Task("a", options={"env": {"API_TOKEN": token}}).placed(0).id for token in (SECRET, "another one")
    )
    assert one == other


# Locks.

LOCKING = """
import os, sqlite3, sys
os.setgid(65534), os.setuid(65534)
try:
    connection = sqlite3.connect("file:" + sys.argv[1] + "?mode=ro", uri=True, timeout=0)
    connection.execute("BEGIN")
    connection.execute("SELECT * FROM sqlite_master").fetchall()
except sqlite3.OperationalError as error:
    print(error, flush=True)
else:
    print("locked", flush=True)
    sys.stdin.read()
"""


@needs_root
def test_another_user_cannot_keep_a_runner_out_by_its_lock() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        Path(place).chmod(0o755)
        journal = Path(place, "run.db")
        lock = journal.with_name("run.db.lock")
        # As an earlier version made it.
        sqlite3.connect(lock).close()
        lock.chmod(0o644)
        with Journal(journal, writing=True):
            pass
        process = subprocess.Popen(
            [sys.executable, "-c", LOCKING, str(lock)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "unable to open database file\n"
            with Journal(journal, writing=True), pytest.raises(JournalBusy):
                Journal(journal, writing=True).open()
        finally:
            process.communicate()


@needs_root
@pytest.mark.parametrize("name", ["run.db", "run.db.lock"])
def test_a_file_that_another_user_planted_is_refused(name: str, tmp_path: Path) -> None:
    """As root, that is: anybody's but root's own."""
    place = tmp_path / "shared"
    place.mkdir()
    place.chmod(0o1777)
    planted = place / name
    planted.touch()
    os.chown(planted, 65534, 65534)
    with pytest.raises(JournalInvalid, match="belongs to another user"):
        Journal(place / "run.db", writing=True).open()
    assert planted.stat().st_size == 0
    # Where not everybody could have put it, it was meant to be there.
    place.chmod(0o755)
    with Journal(place / "run.db", writing=True):
        pass


def test_a_link_in_the_place_of_a_lock_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "run.db.lock").symlink_to(tmp_path / "elsewhere")
    lock = RunnerLock(tmp_path / "run.db")
    with pytest.raises(OSError):
        lock.take("")
    assert not (tmp_path / "elsewhere").exists()


# Files.

EVERYTHING = """
import asyncio, os, sys, tempfile
from pathlib import Path

os.umask(0)
place = Path(sys.argv[1])
os.chdir(place)

from outrider import fleet
from outrider.app import main
from outrider.command import Command, File
from outrider.fleet import Ledger, Task
from outrider.fleet._ray.worker import keep_traces
from outrider.options import Options
from outrider.session import Session
from outrider.testing import Simulator, record, say
from outrider.transports import ProcessTransport


def modes():
    for path in place.rglob("*"):
        if "agents" not in path.parts and not path.is_symlink():
            found = path.lstat()
            if found.st_mode & 0o077:
                print(oct(found.st_mode), path.relative_to(place))


async def use():
    with Simulator([say("Ada.")], otherwise=say("Ada."), executable=True, folder=agents) as agent:
        options = agent.options()
        for store in ("sqlite:///store.db", "file:" + str(place / "store")):
            async with Session(options, session_store=store, trace="trace.jsonl") as session:
                await session.ask("Who?")
                modes()
        for ledger in ("ledger.db", "ledger.jsonl"):
            async with fleet.map(
                [Task("x")], options, journal=f"{ledger}.journal", ledger=Ledger(ledger), trace="traces.jsonl"
            ) as run:
                async for _ in run:
                    modes()
        with record("cassette.jsonl"):
            async with Session(options) as session:
                await session.ask("Who?")
                modes()
    tempfile.tempdir = str(place / "tmp")
    async with ProcessTransport(Command(("cat",), files=(File("a/b", b"x"),), folders=("c",))):
        modes()


agents = place / "agents"
agents.mkdir()
(place / "tmp").mkdir(0o700)
asyncio.run(use())
keep_traces(Options(trace="worker.jsonl"), [b"x"])
for kind in ("md", "csv", "json", "svg"):
    main(["fleet", "report", "ledger.db.journal", "-o", f"report.{kind}"])
modes()
print("files:", sorted(path.name for path in place.iterdir()), file=sys.stderr)
"""


def test_nothing_private_is_ever_readable_by_others(tmp_path: Path) -> None:
    """With a umask of 0 whatever is made is open to all, unless it is made for its owner alone."""
    place = tmp_path / "place"
    place.mkdir(0o700)
    done = subprocess.run(
        [sys.executable, "-c", EVERYTHING, str(place)],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr[-3000:]
    names = {path.name for path in place.iterdir()}
    assert {"store.db", "store", "ledger.db", "ledger.jsonl", "cassette.jsonl", "report.csv"} <= names
    assert {"ledger.db.journal", "ledger.db.journal.lock", "worker.jsonl", "trace.jsonl"} <= names


def test_traces_that_came_from_workers_are_their_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        keep_traces(Options(trace=str(tmp_path / "trace.jsonl")), [b"one", b"two"])
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"trace.jsonl": 0o600, "trace-2.jsonl": 0o600}


# What a child repeats.

ECHO = Command(
    ("sh", "-c", 'read line; echo "$1"; echo "$1" >&2; exit 3', "sh", SECRET),
    env={"PATH": os.environ["PATH"], "SERVICE_PASSWORD": SECRET},
)


async def read_all(transport: Transport) -> None:
    while await transport.receive():
        pass


@pytest.mark.anyio
async def test_a_secret_that_a_child_repeats_without_its_name_is_in_no_trace_and_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    transport = traced(ProcessTransport(ECHO), Trace(str(tmp_path / "trace.jsonl")))
    with anyio.fail_after(DEADLINE):
        await transport.connect()
        shown = [repr(ECHO), *(" ".join(process.argv) for process in live_processes())]
        await transport.send(b'{"type":"user","message":"it is %s"}\n' % SECRET.encode())
        with pytest.raises(ProcessExited) as raised:
            await read_all(transport)
        await transport.close()
    error = raised.value
    shown += [str(error), repr(error), error.stderr_tail, str(error.args), caplog.text]
    assert MASK in error.stderr_tail
    assert SECRET not in " ".join(shown)
    assert SECRET not in (tmp_path / "trace.jsonl").read_text()
    said = [record.data for record in read_trace(tmp_path / "trace.jsonl").records if record.is_line]
    assert said[0] == b'{"type":"user","message":"it is ***"}'


SOURCES: dict[str, Command] = {
    "a variable": Command(("x",), env={"SERVICE_PASSWORD": SECRET}),
    "a flag": Command(("x", "--api-key", SECRET), env={}),
    "a header in a file": Command(
        ("x",),
        env={},
        files=(File("mcp.json", b'{"headers":{"Authorization":"Bearer %s"}}' % SECRET.encode()),),
    ),
    "a password in a URL": Command(("x",), env={"DATABASE": f"postgres://me:{SECRET}@h/db"}),
    "another machine": Ssh("host").wrap(Command(("x",), env={"SERVICE_PASSWORD": SECRET})),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(
    "text",
    [
        f"it is {SECRET}",
        f"{SECRET}{SECRET}",
        f"https://h/?q={SECRET}#x",
        json.dumps({"text": json.dumps({"said": SECRET})}),
        f"x{SECRET}x\n",
    ],
)
def test_a_secret_is_known_wherever_the_command_carries_it(source: str, text: str) -> None:
    assert SECRET not in SOURCES[source].redaction({}).mask(text)


def test_a_secret_is_known_however_it_is_written() -> None:
    secret = 'p"ß\\w\nsecond line of it/€'
    known = Redaction(values=[secret])
    for spelled in (
        secret,
        json.dumps(secret),
        json.dumps(secret, ensure_ascii=False),
        "p%22%C3%9F%5Cw%0Asecond%20line%20of%20it%2F%E2%82%AC",
        "second line of it/€",
    ):
        assert "second" not in known.mask(f"- {spelled} -"), spelled
    assert known == Redaction().with_values(secret) != Redaction()
    assert "second" not in repr(known)


def test_a_short_secret_is_not_looked_for() -> None:
    """It would be found in half of all words."""
    known = Redaction(values=["dev", "1234567", "********"])
    assert known.values == ()
    assert known.mask("dev devices 12345678 ********") == "dev devices 12345678 ********"


@pytest.mark.anyio
async def test_a_secret_of_a_request_is_hidden_in_what_follows(tmp_path: Path) -> None:
    """Servers can be set while a session runs: what they are given is in no command."""
    ours, theirs = memory_pair()
    transport = traced(ours, Trace(str(tmp_path / "trace.jsonl")))
    servers = {"s": {"type": "http", "url": "http://h", "headers": {"x-api-key": SECRET}}}
    request = {"subtype": "mcp_set_servers", "servers": servers}
    with anyio.fail_after(DEADLINE):
        await transport.connect()
        await theirs.connect()
        sent = {"type": "control_request", "request_id": "1", "request": request}
        await transport.send(json.dumps(sent).encode() + b"\n")
        await theirs.send(b'{"type":"assistant","text":"with %s"}\nand %s\n' % ((SECRET.encode(),) * 2))
        while b"and" not in await transport.receive():
            pass
        await transport.close()
    assert SECRET not in (tmp_path / "trace.jsonl").read_text()
    assert "with ***" in (tmp_path / "trace.jsonl").read_text()


@pytest.mark.anyio
async def test_a_secret_in_what_the_agent_says_of_a_failure_is_in_no_error() -> None:
    with Simulator([fail(400, message=f"the server says {SECRET}")], executable=True) as agent:
        options = agent.options().replace(env={**agent.options().env, "SERVICE_PASSWORD": SECRET})
        with anyio.fail_after(DEADLINE):
            async with Session(options) as session:
                with pytest.raises(TurnFailed) as raised:
                    await session.ask("Try")
    assert SECRET not in str(raised.value)
    assert SECRET not in str(vars(raised.value)["message"])
