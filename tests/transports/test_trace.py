"""All that goes through a transport is written down, and nothing of it is harmed by that."""

from __future__ import annotations

import errno
import json
import logging
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from outrider.command import Command
from outrider.errors import OptionsError, ProcessExited, TransportClosed, UsageError
from outrider.options import Options, Trace
from outrider.redaction import Redaction
from outrider.session import Session
from outrider.testing import check_transport
from outrider.transports import (
    ProcessTransport,
    Recording,
    Traced,
    TraceFile,
    Transport,
    memory_pair,
    read_trace,
    traced,
)
from tests.sync.agent import Agent
from tests.transports.conftest import DEADLINE, child, impatient

SECRET = "sk-ant-api03-verysecretindeed"


def lines_of(recording: Recording, direction: str) -> list[bytes]:
    return [record.data for record in recording.records if record.direction == direction]


def events_of(recording: Recording) -> list[str | None]:
    return [record.event for record in recording.records if record.direction == "meta"]


def facts_of(recording: Recording, event: str) -> dict[str, Any]:
    found = recording.runs[0].first(event)
    assert found is not None
    return dict(found.facts)


async def received(transport: Transport) -> bytes:
    """All that comes, to the end."""
    pieces = []
    try:
        while data := await transport.receive():
            pieces.append(data)
    except (ProcessExited, TransportClosed):
        pass
    return b"".join(pieces)


# What is written.


@pytest.mark.anyio
async def test_a_process_is_written_down_from_start_to_end(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    transport = traced(impatient("polite"), Trace(str(path)))
    with anyio.fail_after(DEADLINE):
        async with transport:
            assert transport.trace_path == str(path)
            assert transport.pid is not None
            await transport.write({"type": "ping"})
            await transport.end_input()
            said = await received(transport)
    recording = read_trace(path)
    assert said == b'{"type":"ready"}\n{"type":"ping"}\n'
    assert recording.version == 1
    assert lines_of(recording, "host->cli") == [b'{"type":"ping"}']
    assert lines_of(recording, "cli->host") == said.splitlines()
    assert events_of(recording) == ["start", "connected", "stdin_eof", "exit"]
    assert facts_of(recording, "connected")["pid"] == transport.pid
    assert facts_of(recording, "exit") == {"returncode": 0}
    times = [record.time for record in recording.records]
    assert times == sorted(times)
    assert recording.runs[0].argv[-1] == "polite"
    assert recording.runs[0].returncode == 0


@pytest.mark.anyio
async def test_the_environment_is_told_by_its_names_and_arguments_without_secrets(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    bare = child("polite", "--api-key", SECRET)
    env = {**os.environ, "MY_TOKEN": "hidden-value"}
    transport = traced(impatient("polite"), Trace(str(path)))
    transport.prepare(Command(bare.argv, env=env, cwd=str(tmp_path)))
    with anyio.fail_after(DEADLINE):
        async with transport:
            pass
    start = facts_of(read_trace(path), "start")
    assert "MY_TOKEN" in start["env"]
    assert start["cwd"] == str(tmp_path)
    text = path.read_text()
    assert "hidden-value" not in text
    assert "verysecret" not in text


@pytest.mark.anyio
async def test_stderr_is_written_down_and_still_given_to_the_callback(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    heard: list[str] = []
    transport = traced(impatient("fails_at_once", stderr=heard.append), Trace(str(path)))
    with anyio.fail_after(DEADLINE):
        async with transport:
            with pytest.raises(ProcessExited):
                await transport.receive()
            assert transport.stderr_tail == "cannot go on"
            assert transport.returncode == 3
            assert isinstance(transport.exit_error, ProcessExited)
    assert heard == ["cannot go on"]
    recording = read_trace(path)
    assert lines_of(recording, "stderr") == [b"cannot go on"]
    assert facts_of(recording, "exit")["returncode"] == 3
    assert "ProcessExited" in facts_of(recording, "exit")["error"]


@pytest.mark.anyio
async def test_stderr_cannot_be_listened_to_once_the_process_runs() -> None:
    with anyio.fail_after(DEADLINE):
        async with impatient("polite") as transport:
            with pytest.raises(UsageError, match="before `connect`"):
                transport.on_stderr(lambda line: None)


@pytest.mark.anyio
async def test_a_start_that_fails_is_written_down(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    transport = traced(ProcessTransport(Command((str(tmp_path / "nothing"),))), Trace(str(path)))
    with pytest.raises(Exception, match="nothing"):
        await transport.connect()
    assert events_of(read_trace(path)) == ["start", "exit"]


@pytest.mark.anyio
async def test_a_line_that_could_not_be_sent_is_marked(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    near, far = memory_pair()
    transport = traced(near, Trace(str(path)))
    await transport.connect()
    await far.connect()
    await far.close()
    with pytest.raises(TransportClosed):
        await transport.write({"type": "ping"})
    assert "send_failed" in events_of(read_trace(path))


def test_what_a_transport_does_not_offer_the_traced_one_does_not_either(tmp_path: Path) -> None:
    near, _ = memory_pair()
    transport = traced(near, Trace(str(tmp_path / "trace.jsonl")))
    for name in ("end", "pid", "returncode", "stderr_tail"):
        assert not hasattr(transport, name)
    assert not transport.is_ready
    assert transport.exit_error is None


# Secrets.


@pytest.mark.parametrize(
    "line",
    [
        pytest.param({"type": "x", "text": f"key {SECRET} here"}, id="by its shape"),
        pytest.param({"type": "x", "api_key": "verysecretindeed"}, id="by its name"),
        pytest.param({"type": "x", "env": [{"name": "TOKEN", "value": "verysecretindeed"}]}, id="labelled"),
        pytest.param({"type": "x", "headers": [["x-api-key", "verysecretindeed"]]}, id="a pair"),
        pytest.param({"type": "x", "a": {"password": {"deep": ["verysecretindeed"]}}}, id="nested"),
        pytest.param({"type": "x", SECRET: 1}, id="in a name"),
        pytest.param({"type": "x", "mine": "internal-verysecretindeed"}, id="by a rule of the user"),
    ],
)
def test_secrets_are_hidden_and_the_line_stays_a_frame(tmp_path: Path, line: dict[str, Any]) -> None:
    redaction = Redaction(patterns=[r"internal-\w+"])
    file = TraceFile(tmp_path / "trace.jsonl", redaction=redaction)
    data = json.dumps(line).encode()
    file.new_run().lines("cli->host").feed(data + b"\n")
    file.close()
    assert b"verysecret" not in (tmp_path / "trace.jsonl").read_bytes()
    (record,) = read_trace(tmp_path / "trace.jsonl").records
    assert record.frame is not None
    assert record.frame["type"] == "x"
    assert record.is_masked
    assert record.size == len(data)


def test_a_name_that_comes_twice_hides_both_values(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "trace.jsonl")
    file.new_run().lines("cli->host").feed(b'{"password":"verysecretindeed","password":""}\n')
    file.close()
    assert b"verysecret" not in (tmp_path / "trace.jsonl").read_bytes()


def test_a_private_key_is_hidden_that_comes_line_by_line(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "trace.jsonl")
    run = file.new_run()
    begin, end = (f"-----{word} RSA PRIVATE KEY-----" for word in ("BEGIN", "END"))
    for line in ("before", begin, "MIIEowIBAAKCAQEA", "c2VjcmV0", end, "after"):
        run.stderr(line)
    file.close()
    told = [record.text for record in read_trace(file.path).records]
    assert told == ["before", f"{begin}***", "***", "***", "***", "after"]


def test_the_command_line_of_a_server_is_hidden_in_a_frame(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "trace.jsonl")
    file.new_run().lines("host->cli").feed(b'{"servers":{"x":{"args":["serve","--token","hunter2"]}}}\n')
    file.close()
    assert "hunter2" not in Path(file.path).read_text(encoding="utf-8")


def test_text_that_is_no_frame_is_masked_too(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "trace.jsonl")
    run = file.new_run()
    run.lines("cli->host").feed(b"\xff token=" + SECRET.encode() + b"\n")
    run.stderr(f"using {SECRET}")
    file.close()
    assert b"verysecret" not in (tmp_path / "trace.jsonl").read_bytes()
    first, second = read_trace(tmp_path / "trace.jsonl").records
    assert first.data.startswith(b"\xff token=")
    assert second.text == "using sk-ant-***"


def test_a_secret_at_the_cut_of_a_long_line_is_hidden(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "trace.jsonl", max_line=100)
    file.new_run().lines("cli->host").feed(b"x" * 80 + b" " + SECRET.encode() + b"y" * 1000 + b"\n")
    file.close()
    assert b"verysecret" not in (tmp_path / "trace.jsonl").read_bytes()


# Bytes.


@given(
    st.lists(
        st.one_of(
            st.binary(max_size=40),
            st.sampled_from(
                [b"\n", b"\r\n", b"{}\n", b'{"a": 1.0e5}\n', b"\xff\xfe\n", b" {} \n", b"\x00\n"]
            ),
            st.dictionaries(
                st.text(max_size=5), st.integers() | st.text(max_size=9) | st.floats(), max_size=3
            ).map(lambda value: json.dumps(value).encode() + b"\n"),
        ),
        max_size=12,
    )
)
@example([b'{"a":"\\ud800"}\n'])
@example([b'{"a":1,"a":2}\n', b"{" * 2000 + b"\n"])
@example([b'{"a":"\xff"}\n', b"half a line"])
def test_any_bytes_are_read_back_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, chunks: list[bytes]
) -> None:
    path = tmp_path_factory.mktemp("bytes") / "trace.jsonl"
    file = TraceFile(path)
    lines = file.new_run().lines("cli->host")
    for chunk in chunks:
        lines.feed(chunk)
    lines.finish()
    file.close()
    records = read_trace(path).records
    data = b"".join(record.data + (b"" if record.is_open else b"\n") for record in records)
    whole = b"".join(chunks)
    if not any(record.is_masked for record in records):
        assert data == whole
    assert sum(record.size + (not record.is_open) for record in records) == len(whole)


def test_only_the_beginning_of_a_huge_line_is_kept(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "trace.jsonl", max_line=1000)
    lines = file.new_run().lines("cli->host")
    for _ in range(100):
        lines.feed(b"a " * 500)
    lines.feed(b'end\n{"type":"next"}\n')
    file.close()
    huge, after = read_trace(tmp_path / "trace.jsonl").records
    assert (huge.size, huge.is_cut, len(huge.data)) == (100_003, True, 1000)
    assert after.frame == {"type": "next"}


# The file.


def test_the_file_is_for_its_user_alone(tmp_path: Path) -> None:
    TraceFile(tmp_path / "trace.jsonl").close()
    assert stat.S_IMODE((tmp_path / "trace.jsonl").stat().st_mode) == 0o600


@pytest.mark.parametrize("ending", ["", "/"])
def test_a_folder_gets_a_file_for_each_session(tmp_path: Path, ending: str) -> None:
    for _ in range(3):
        traced(memory_pair()[0], Trace(f"{tmp_path}{ending}"))
    names = [path.name for path in tmp_path.iterdir()]
    assert len(names) == 3
    assert all(f"-{os.getpid()}" in name and name.endswith(".jsonl") for name in names)


def test_a_file_that_is_there_is_kept_and_the_next_is_numbered(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text("mine")
    transports = [traced(memory_pair()[0], Trace(str(path))) for _ in range(2)]
    assert path.read_text() == "mine"
    assert [Path(one.trace_path).name for one in transports] == ["run-2.jsonl", "run-3.jsonl"]


def test_a_name_may_hold_the_time_and_the_process(tmp_path: Path) -> None:
    transport = traced(memory_pair()[0], Trace(str(tmp_path / "a-{pid}-{time}-{other}.jsonl")))
    name = Path(transport.trace_path).name
    assert name.startswith(f"a-{os.getpid()}-2")
    assert name.endswith("-{other}.jsonl")


@pytest.mark.anyio
async def test_a_folder_that_is_missing_is_refused_before_anything_starts(tmp_path: Path) -> None:
    agent = Agent()
    with pytest.raises(OptionsError, match="there is no folder"):
        await Session(transport=agent, trace=tmp_path / "missing" / "t.jsonl").connect()
    assert not agent.is_ready


@pytest.mark.parametrize(
    "wrong, match",
    [
        (7, "must be a Trace"),
        ("", "must be a path"),
        ("t.jsonl.gz", "Compress it afterwards"),
        ({"path": "t", "redaction": "x"}, "Redaction"),
        ({"path": "t", "max_line": 0}, "max_line"),
    ],
)
def test_what_is_no_trace_is_refused(wrong: Any, match: str) -> None:
    with pytest.raises(OptionsError, match=match):
        Options(trace=wrong)


def test_runs_of_one_file_are_told_apart(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "trace.jsonl")
    one, other = file.new_run(), file.new_run()
    first, second = one.lines("cli->host"), other.lines("cli->host")
    first.feed(b"a")
    second.feed(b"b\n")
    first.feed(b"c\n")
    file.close()
    runs = read_trace(tmp_path / "trace.jsonl").runs
    assert {run.number: [record.data for record in run.records] for run in runs} == {2: [b"b"], 1: [b"ac"]}


# When it cannot be written.


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device here")
@pytest.mark.anyio
async def test_a_full_disk_ends_the_trace_and_not_the_session(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    real = os.open
    monkeypatch.setattr(os, "open", lambda path, *more: real("/dev/full", os.O_WRONLY))
    transport = traced(Agent(), Trace(str(tmp_path / "trace.jsonl")))
    monkeypatch.undo()
    with anyio.fail_after(DEADLINE):
        async with Session(transport=transport) as session:
            assert (await session.ask("say hello")).text == "hello"
    assert not transport._run.file.is_open
    told = [record.getMessage() for record in caplog.records if record.name == "outrider.trace"]
    assert len(told) == 1
    assert "No space left" in told[0]


def test_a_failing_write_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = TraceFile(tmp_path / "trace.jsonl")

    def fail(number: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with caplog.at_level(logging.WARNING, "outrider.trace"):
        monkeypatch.setattr(os, "write", fail)
        for _ in range(3):
            file.write(b"{}\n")
    assert [record.getMessage() for record in caplog.records] == [
        f"the trace {tmp_path / 'trace.jsonl'} cannot be written any more: [Errno 28] No space left on device"
    ]
    assert not file.is_open


def test_a_limit_of_the_file_is_kept_to(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = TraceFile(tmp_path / "trace.jsonl", max_bytes=1000)
    lines = file.new_run().lines("cli->host")
    for _ in range(100):
        lines.feed(b'{"type":"x"}\n')
    recording = read_trace(tmp_path / "trace.jsonl")
    assert events_of(recording) == ["full"]
    assert 5 < len(recording.records) < 20
    assert (tmp_path / "trace.jsonl").stat().st_size < 1200
    assert not file.is_open


LIMITED = """
import resource, sys
from outrider.transports import TraceFile
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
file = TraceFile(sys.argv[1])
lines = file.new_run().lines("cli->host")
for number in range(15):
    lines.feed(b'{"type":"x","number":%d}\\n' % number)
# The limit is inside of this one, wherever it begins.
lines.feed(b'{"type":"%s"}\\n' % (b"x" * 5000))
print(file.is_open)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such limits")
def test_a_file_that_may_not_grow_keeps_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(path)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
    assert "cannot be written any more" in done.stderr
    recording = read_trace(path)
    assert recording.is_cut_short
    numbers = [(record.frame or {})["number"] for record in recording.records]
    assert numbers == list(range(len(numbers)))
    assert len(numbers) > 10


KILLED = """
import os, signal, sys
from outrider.transports import TraceFile
lines = TraceFile(sys.argv[1]).new_run().lines("cli->host")
for number in range(50):
    lines.feed(b'{"type":"x","number":%d}\\n' % number)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such signal")
def test_what_was_written_is_there_after_the_host_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(read_trace(path).records) == 50


# In a session.


@pytest.mark.anyio
async def test_a_session_is_traced_as_its_options_say(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    with anyio.fail_after(DEADLINE):
        async with Session(transport=Agent(), trace=path) as session:
            assert (await session.ask("say hello")).text == "hello"
            # Before the end: it is there at any time.
            assert b"say hello" in lines_of(read_trace(path), "host->cli")[-1]
    recording = read_trace(path)
    kinds = [(record.frame or {}).get("type") for record in recording.records if record.is_line]
    assert kinds[:3] == ["control_request", "control_response", "user"]
    assert "result" in kinds
    assert events_of(recording)[-1] == "exit"


@pytest.mark.anyio
async def test_a_traced_transport_can_be_traced_again(tmp_path: Path) -> None:
    inner = traced(Agent(), Trace(str(tmp_path / "inner.jsonl")))
    with anyio.fail_after(DEADLINE):
        async with Session(transport=Traced(inner, TraceFile(tmp_path / "outer.jsonl"))) as session:
            await session.ask("say hello")
    inner_lines, outer_lines = (
        [record.data for record in read_trace(tmp_path / name).records if record.is_line]
        for name in ("inner.jsonl", "outer.jsonl")
    )
    assert inner_lines == outer_lines


@pytest.mark.anyio
async def test_a_traced_transport_keeps_to_the_contract(tmp_path: Path) -> None:
    def follow(command: str) -> Traced:
        transport = ProcessTransport(Command(("/bin/sh", "-c", command)), grace=0.1, terminate=0.1)
        return traced(transport, Trace(str(tmp_path)))

    checked = await check_transport(
        lambda: follow("exec cat"),
        failing=lambda: follow("echo said; exit 3"),
        stuck=lambda: follow("exec sleep 1000"),
    )
    assert len(checked) > 3
