"""Talking to a child: connecting, writing, reading, splitting, and what is said when it cannot be done."""

from __future__ import annotations

import json
import math
import os
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest

from outrider.command import FOLDER, Command, File, UserId
from outrider.errors import (
    FrameTooLarge,
    MessageInvalid,
    OptionsError,
    ProcessExited,
    TransportClosed,
    UsageError,
)
from outrider.transports import ProcessTransport, Transport, live_processes
from outrider.wire import Arrival, KeepAlive, MalformedLine, UnknownMessage
from tests.transports.conftest import child, impatient, logged, own_processes, wait_for

pytestmark = pytest.mark.anyio


async def take(transport: Any, count: int) -> list[Arrival]:
    messages = transport.messages()
    return [await anext(messages) for _ in range(count)]


async def report(transport: ProcessTransport) -> dict[str, Any]:
    message = await anext(transport.messages())
    assert isinstance(message, UnknownMessage)
    return message.data


# Connecting.


@pytest.mark.requirement("H2")
async def test_a_program_starts_and_talks_over_stdin_and_stdout() -> None:
    async with ProcessTransport(child("polite")) as transport:
        for number in range(3):
            await transport.write({"type": "note", "number": number})
        ready, *notes = await take(transport, 4)
        assert isinstance(ready, UnknownMessage)
        assert [note.raw["number"] for note in notes if isinstance(note, UnknownMessage)] == [0, 1, 2]
    assert transport.returncode == 0


@pytest.mark.requirement("F5")
async def test_connecting_twice_and_at_once_starts_one_process() -> None:
    transport = impatient("polite")
    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(transport.connect)
    await transport.connect()
    wait_for(lambda: own_processes() == [transport.pid])
    await transport.close()
    with pytest.raises(TransportClosed, match="has been closed"):
        await transport.connect()


@pytest.mark.requirement("F5")
def test_connecting_from_several_threads_starts_one_process() -> None:
    transport = impatient("polite")
    threads = [threading.Thread(target=anyio.run, args=(transport.connect,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # A process that has just been started may not show its environment yet.
    wait_for(lambda: own_processes() == [transport.pid])
    anyio.run(transport.close)


@pytest.mark.requirement("F6")
async def test_readiness_liveness_pid_and_exit_code_can_be_asked() -> None:
    transport = impatient("polite")
    before = (transport.pid, transport.returncode, transport.is_ready, transport.is_alive)
    assert before == (None, None, False, False)
    assert (transport.stderr_tail, transport.resident_bytes(), transport.dropped_bytes) == ("", 0, 0)
    await transport.connect()
    # It has begun, and the system may still be loading it.
    wait_for(lambda: own_processes() == [transport.pid])
    wait_for(lambda: transport.resident_bytes() > 1_000_000)
    assert (transport.is_ready, transport.is_alive) == (True, True)
    await transport.end_input()
    assert (transport.is_ready, await transport.wait_exited()) == (False, 0)
    assert (transport.is_alive, transport.returncode) == (False, 0)
    await transport.close()


async def test_a_running_process_is_listed_with_its_secrets_masked() -> None:
    async with impatient("polite", "--api-key", "sk-ant-api03-secretsecret") as transport:
        (listed,) = live_processes()
        assert listed.pid == transport.pid
        assert "secretsecret" not in " ".join(listed.argv)
        assert not listed.is_ending
        assert listed.marker.startswith("OUTRIDER_")
        assert listed.started_at > 0
    assert live_processes() == []


# Before, after, at the wrong time.


@pytest.mark.requirement("D9")
@pytest.mark.requirement("E2")
async def test_before_connect_nothing_can_be_read_or_written() -> None:
    transport = impatient("polite")
    for call in (transport.receive, transport.wait_exited):
        with pytest.raises(TransportClosed, match="not connected yet"):
            await call()
    with pytest.raises(TransportClosed, match="not connected yet"):
        await transport.write("{}")
    await transport.end_input()


@pytest.mark.requirement("D9")
@pytest.mark.requirement("E2")
async def test_after_close_nothing_can_be_read_or_written() -> None:
    transport = impatient("polite")
    await transport.connect()
    await transport.receive()
    await transport.close()
    messages = transport.messages()
    with pytest.raises(TransportClosed, match="closed"):
        await anext(messages)
    with pytest.raises(TransportClosed, match="closed"):
        await transport.write("{}")
    await transport.end_input()


@pytest.mark.requirement("F2")
@pytest.mark.requirement("F3")
@pytest.mark.requirement("H2")
async def test_closing_before_connect_and_three_times_is_safe() -> None:
    unused = impatient("polite")
    await unused.close()
    await unused.kill()
    with pytest.raises(TransportClosed):
        await unused.connect()
    with pytest.raises(TransportClosed, match="has been closed"):
        await unused.receive()
    used = impatient("polite")
    await used.connect()
    for _ in range(3):
        await used.close()
    await used.kill()


async def test_closing_from_two_tasks_at_once_waits_in_both() -> None:
    transport = impatient("ignores_everything")
    await transport.connect()
    await take(transport, 1)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(transport.close)
        tasks.start_soon(transport.close)
    assert transport.returncode == -9


@pytest.mark.requirement("F3")
async def test_kill_overtakes_a_close_that_is_waiting() -> None:
    transport = impatient("ignores_everything", grace=1000.0)
    await transport.connect()
    await take(transport, 1)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(transport.close)
        await anyio.lowlevel.checkpoint()
        await transport.kill()
    assert transport.returncode == -9


@pytest.mark.requirement("E2")
async def test_writing_to_a_process_that_has_ended_gives_its_exit_code() -> None:
    async with impatient("fails_at_once") as transport:
        await transport.wait_exited()
        with pytest.raises(ProcessExited, match="code 3"):
            await transport.write("{}")


@pytest.mark.requirement("E2")
async def test_writing_while_the_process_ends_gives_its_exit_code() -> None:
    async with impatient("fails_at_once") as transport:

        async def write_for_ever() -> None:
            while True:
                await transport.write("{}")

        with pytest.raises(ProcessExited, match="code 3"):
            await write_for_ever()


@pytest.mark.requirement("E2")
@pytest.mark.requirement("E3")
async def test_after_the_input_was_ended_nothing_can_be_written() -> None:
    async with impatient("polite") as transport:
        await transport.end_input()
        await transport.end_input()
        with pytest.raises(TransportClosed, match="its input has been ended"):
            await transport.write("{}")


async def test_two_tasks_cannot_receive_at_once() -> None:
    async with impatient("never_reads") as transport:
        await take(transport, 1)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(transport.receive)
            await anyio.lowlevel.checkpoint()
            await anyio.lowlevel.checkpoint()
            with pytest.raises(UsageError, match="two tasks receive"):
                await transport.receive()
            tasks.cancel_scope.cancel()


async def test_cancelling_a_receive_loses_nothing() -> None:
    async with impatient("polite") as transport:
        await take(transport, 1)
        with anyio.move_on_after(0):
            await transport.receive()
        await transport.write('{"type":"keep_alive"}')
        assert await take(transport, 1) == [KeepAlive()]


# Writing.


@pytest.mark.requirement("E1")
@pytest.mark.parametrize(
    "message",
    [
        '{"type":"keep_alive"}',
        b'{"type":"keep_alive"}\n',
        b'{"type":"keep_alive"}\r\n',
        KeepAlive(),
        {"type": "keep_alive"},
    ],
    ids=["text", "line", "crlf", "frame", "json"],
)
async def test_one_message_is_one_line(message: Any) -> None:
    async with impatient("polite") as transport:
        await take(transport, 1)
        await transport.write(message)
        assert await transport.receive() == b'{"type":"keep_alive"}\n'


@pytest.mark.requirement("E1")
@pytest.mark.parametrize("message", ["a\nb", b"{}\n{}\n", {"a": math.nan}, {"a": object()}, "\ud800"])
async def test_what_cannot_be_one_line_is_an_error_and_nothing_is_written(message: Any) -> None:
    async with impatient("polite") as transport:
        await take(transport, 1)
        with pytest.raises(MessageInvalid):
            await transport.write(message)
        await transport.write("{}")
        assert await transport.receive() == b"{}\n"


@pytest.mark.requirement("E1")
@pytest.mark.requirement("H2")
@pytest.mark.parametrize("writers, messages, size", [(10, 10, 10), (50, 100, 200), (10, 5, 300_000)])
async def test_what_many_writers_send_arrives_whole_and_in_the_order_of_each(
    writers: int, messages: int, size: int
) -> None:
    seen: dict[int, list[int]] = {writer: [] for writer in range(writers)}

    async def write(transport: ProcessTransport, writer: int) -> None:
        for number in range(messages):
            await transport.write({"type": "note", "writer": writer, "number": number, "text": "x" * size})

    async with impatient("polite") as transport:
        await take(transport, 1)
        async with anyio.create_task_group() as tasks:
            for writer in range(writers):
                tasks.start_soon(write, transport, writer)
            source = transport.messages()
            for _ in range(writers * messages):
                message = await anext(source)
                assert isinstance(message, UnknownMessage), message
                assert len(message.data["text"]) == size
                seen[message.data["writer"]].append(message.data["number"])
    assert all(numbers == list(range(messages)) for numbers in seen.values())


@pytest.mark.requirement("E3")
async def test_ending_the_input_waits_for_writers_that_came_before() -> None:
    async with impatient("polite") as transport:
        await take(transport, 1)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(transport.write, '{"type":"note","text":"' + "x" * 1_000_000 + '"}')
            await anyio.lowlevel.checkpoint()
            await anyio.lowlevel.checkpoint()
            tasks.start_soon(transport.end_input)
            (note,) = await take(transport, 1)
            assert len(note.raw_json) > 1_000_000
        assert await transport.wait_exited() == 0


async def test_a_write_that_is_cancelled_before_it_began_sends_nothing() -> None:
    async with impatient("never_reads", write_timeout=None) as transport:
        await take(transport, 1)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(transport.write, "x" * 1_000_000)
            await anyio.wait_all_tasks_blocked()
            assert transport._child is not None
            stdin = transport._child.input
            waiting = stdin.waiting_bytes
            with anyio.move_on_after(0.01):
                await transport.write("y" * 1000)
            assert stdin.waiting_bytes == waiting
            tasks.cancel_scope.cancel()


# Reading.


@pytest.mark.requirement("H2")
@pytest.mark.requirement("A12")
async def test_noise_comes_in_its_place_and_the_stream_goes_on() -> None:
    async with impatient("polite") as transport:
        await take(transport, 1)
        await transport.send(b'noise\n{"type":\n"keep_alive"}\n{"type":"keep_alive"}{"type":"keep_alive"}\n')
        noise, *alive = await take(transport, 4)
        assert isinstance(noise, MalformedLine)
        assert alive == [KeepAlive()] * 3


@pytest.mark.requirement("A12")
async def test_a_message_over_a_limit_that_was_set_is_raised_once_in_its_place() -> None:
    async with impatient("polite", max_buffer_size=1000) as transport:
        await take(transport, 1)
        for size in (10, 2000, 10):
            await transport.write({"type": "note", "text": "x" * size})
        messages = transport.messages()
        await anext(messages)
        with pytest.raises(FrameTooLarge):
            await anext(messages)
        assert isinstance(await anext(messages), UnknownMessage)


@pytest.mark.parametrize("option", ["max_buffer_size", "grace", "terminate", "write_timeout"])
def test_negative_numbers_are_refused(option: str) -> None:
    with pytest.raises(OptionsError, match=f"{option} is -1"):
        impatient("polite", **{option: -1})


# From different tasks.


@pytest.mark.requirement("D7")
async def test_one_task_reads_another_writes_a_third_closes() -> None:
    transport = impatient("polite")
    await transport.connect()
    # Two messages at once, so that one is read ahead: the next reader gets it.
    await transport.send(b'{"type":"keep_alive"}\n{"type":"note"}\n{"type":"cut')
    await take(transport, 2)
    received: list[Arrival] = []
    is_read = anyio.Event()

    async def read() -> None:
        received.extend(await take(transport, 2))
        is_read.set()
        with pytest.raises(TransportClosed):
            await transport.receive()

    async def write() -> None:
        assert transport.is_ready
        await transport.send(b'"}\n')

    async def close() -> None:
        await is_read.wait()
        await transport.close()

    async with anyio.create_task_group() as tasks:
        for each in (read, write, close):
            tasks.start_soon(each)
    assert [message.raw["type"] for message in received if isinstance(message, UnknownMessage)] == [
        "note",
        "cut",
    ]
    assert (transport.returncode, transport.exit_error) == (0, None)


# What it starts with.


async def test_the_child_gets_its_environment_folder_and_files(tmp_path: Path) -> None:
    files = (File("settings.json", b"{}"), File("deep/er/one", b"two"))
    command = child(
        "reports", f"--settings={FOLDER}/settings.json", f"{FOLDER}/deep/er/one", f"{FOLDER}/empty"
    )
    command = Command(
        command.argv,
        env={"PATH": os.environ["PATH"], "HERE": f"{FOLDER}/empty"},
        cwd=str(tmp_path),
        files=files,
        folders=("empty",),
    )
    async with ProcessTransport(command) as transport:
        facts = await report(transport)
        folder = Path(facts["env"]["HERE"]).parent
        assert facts["cwd"] == str(tmp_path)
        assert facts["argv"][0] == f"--settings={folder}/settings.json"
        assert {name.removeprefix(str(folder)): file["text"] for name, file in facts["files"].items()} == {
            "/settings.json": "{}",
            "/deep/er/one": "two",
        }
        assert {file["mode"] for file in facts["files"].values()} == {0o600}
        assert (folder / "empty").is_dir()
        assert folder.stat().st_mode & 0o777 == 0o700
        others = set(facts["env"]) - {"PATH", "HERE", "LC_CTYPE"}
        assert [name.startswith("OUTRIDER_") for name in others] == [True]
    assert not folder.exists()


@pytest.mark.requirement("B5")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process as another user")
async def test_the_child_runs_as_its_user_and_its_files_belong_to_that_user(tmp_path: Path) -> None:
    command = Command(
        ("/bin/sh", "-c", 'stat -c "%u %a" "$0" "$(dirname "$0")"; id -u; cat "$0"', f"{FOLDER}/secret"),
        files=(File("secret", b"mine"),),
        user=UserId(65534, 65534),
        cwd="/",
    )
    async with ProcessTransport(command) as transport:
        data = b""
        while piece := await transport.receive():
            data += piece
    assert data.decode().split() == ["65534", "600", "65534", "700", "65534", "mine"]


async def test_what_a_runner_puts_before_the_input_comes_first() -> None:
    command = Command(child("polite").argv, preamble=b"first\n" * 20_000)
    async with ProcessTransport(command) as transport:
        data = b""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(transport.send, b"last\n")
            while not data.endswith(b"last\n"):
                data += await transport.receive()
    assert data == b'{"type":"ready"}\n' + b"first\n" * 20_000 + b"last\n"


@pytest.mark.requirement("F2")
@pytest.mark.requirement("H2")
async def test_clean_ups_run_after_the_end_and_one_that_fails_is_only_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    early, late = tmp_path / "early", tmp_path / "late"
    early.touch()
    late.touch()
    transport = impatient("polite")
    transport.on_cleanup(lambda: 1 / 0)
    transport.on_cleanup(early.unlink)
    await transport.connect()
    transport.on_cleanup(late.unlink)
    await transport.close()
    assert not early.exists()
    assert not late.exists()
    assert "ZeroDivisionError" in logged(caplog)
    caplog.clear()  # the records hold on to frames


async def test_two_loops_one_after_the_other_use_the_same_process() -> None:
    """In a thread, so that this test's own loop is not in the way."""
    answers: list[Arrival] = []

    def use(transport: ProcessTransport) -> None:
        async def talk() -> None:
            await transport.write(KeepAlive())
            answers.extend(await take(transport, 1))

        for backend in ("asyncio", "trio", "asyncio"):
            anyio.run(talk, backend=backend)

    async with impatient("polite") as transport:
        await take(transport, 1)
        await anyio.to_thread.run_sync(use, transport)
    assert answers == [KeepAlive()] * 3


# A transport of one's own.


class Canned(Transport):
    """A user's transport: the least that is needed."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = list(pieces)
        self.sent = b""
        self.is_open = False

    async def connect(self) -> None:
        self.is_open = True

    async def receive(self) -> bytes:
        return self.pieces.pop(0) if self.pieces else b""

    async def send(self, data: bytes) -> None:
        self.sent += data

    async def end_input(self) -> None:
        pass

    async def close(self) -> None:
        self.is_open = False

    @property
    def is_ready(self) -> bool:
        return self.is_open


@pytest.mark.requirement("A12")
async def test_a_transport_of_ones_own_needs_six_members() -> None:
    async with Canned(b'{"type":"keep', b'_alive"}\n', b'{"type":"keep_alive"}') as transport:
        await transport.write({"a": 1})
        assert transport.is_ready
        assert [message async for message in transport.messages()] == [KeepAlive()] * 2
        assert transport.exit_error is None
    assert json.loads(transport.sent) == {"a": 1}
    assert not transport.is_ready
