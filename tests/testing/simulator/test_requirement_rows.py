"""What users of such a kit have tested before, with the simulated agent: in memory, and as a program."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import anyio
import pytest

import outrider
from outrider.command import Command
from outrider.errors import ProcessExited
from outrider.testing import Simulator, hang, say
from outrider.transports import ProcessTransport, Transport, intercept, live_processes

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("H2")]

SECONDS = 30.0
EXECUTABLE = pytest.mark.parametrize("executable", [False, True], ids=["in memory", "program"])


def echo(request: Any) -> Any:
    return say(request.prompt, chunks=4)


@EXECUTABLE
async def test_three_messages_are_answered_in_order(executable: bool) -> None:
    with Simulator([], otherwise=echo, executable=executable) as agent, anyio.fail_after(SECONDS):
        async with outrider.Session(options=agent.options()) as session:
            answers = [(await session.ask(text)).text for text in ("one", "two", "three")]
    assert answers == ["one", "two", "three"]
    assert [request.prompt for request in agent.requests] == answers


@EXECUTABLE
async def test_an_echo_is_streamed(executable: bool) -> None:
    with Simulator([], otherwise=echo, executable=executable) as agent, anyio.fail_after(SECONDS):
        options = agent.options(include_partial_messages=True)
        async with outrider.stream("abcdefgh", options=options) as turn:
            deltas = [
                message.raw["event"]["delta"]["text"]
                async for message in turn
                if isinstance(message, outrider.StreamEvent)
                and message.event["type"] == "content_block_delta"
            ]
    assert deltas == ["ab", "cd", "ef", "gh"]


class Altered(Transport):
    """Changes how the bytes of another transport are laid out, and not what they say."""

    def __init__(self, inner: Transport, *, size: int | None = None, indent: int | None = None) -> None:
        self._inner, self._size, self._indent = inner, size, indent
        self._ready = b""
        self._held = b""

    def prepare(self, command: Command) -> None:
        self._inner.prepare(command)

    async def connect(self) -> None:
        await self._inner.connect()

    async def receive(self) -> bytes:
        while not self._ready:
            data = await self._inner.receive()
            if not data:
                return b""
            *lines, self._held = (self._held + data).split(b"\n")
            for line in lines:
                self._ready += self._laid_out(line) + b"\n"
        data, self._ready = self._ready[: self._size], self._ready[len(self._ready[: self._size]) :]
        return data

    def _laid_out(self, line: bytes) -> bytes:
        return line if self._indent is None else json.dumps(json.loads(line), indent=self._indent).encode()

    async def send(self, data: bytes) -> None:
        size = self._size or len(data)
        for at in range(0, len(data), size):
            await self._inner.send(data[at : at + size])

    async def end_input(self) -> None:
        await self._inner.end_input()

    async def close(self) -> None:
        await self._inner.close()

    @property
    def is_ready(self) -> bool:
        return self._inner.is_ready


@pytest.mark.parametrize("size, indent", [(7, None), (None, 1), (997, 2)], ids=["pieces", "lines", "both"])
async def test_json_in_pieces_and_over_several_lines_is_put_together(
    size: int | None, indent: int | None
) -> None:
    agent = Altered(Simulator([say("whole \u2028 text"), say("again")]), size=size, indent=indent)
    with anyio.fail_after(SECONDS):
        async with outrider.Session(transport=agent) as session:
            assert (await session.ask("one")).text == "whole \u2028 text"
            assert (await session.ask("two")).text == "again"


STUBBORN = """
import signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('{"type":"keep_alive"}', flush=True)
while True:
    time.sleep(1)
"""


async def test_a_child_that_traps_sigterm_is_closed_within_ten_seconds() -> None:
    transport = ProcessTransport(Command((sys.executable, "-c", STUBBORN)), grace=0.1, terminate=0.1)
    await transport.connect()
    assert await transport.receive()
    with anyio.fail_after(10):
        await transport.close()
    assert transport.returncode == -signal.SIGKILL


@EXECUTABLE
async def test_it_can_be_closed_three_times(executable: bool) -> None:
    with Simulator([say("one")], executable=executable) as agent:
        transports: list[Transport] = []

        def keep(transport: Transport) -> Transport:
            transports.append(transport)
            return transport

        with intercept(keep), anyio.fail_after(SECONDS):
            await outrider.run("hi", options=agent.options())
            for _ in range(3):
                await transports[0].close()
        assert not transports[0].is_ready


@EXECUTABLE
async def test_the_files_of_a_session_are_gone_with_it(executable: bool) -> None:
    script = [say("one")]
    with Simulator(script, executable=executable) as agent, anyio.fail_after(SECONDS):
        transports: list[Any] = []

        def keep(transport: Transport) -> Transport:
            transports.append(transport)
            return transport

        with intercept(keep):
            options = agent.options(settings={"env": {"SECRET": "x"}})
            await outrider.run("hi", options=options)
        (transport,) = transports
        assert [file.name for file in transport.command.files] == ["settings.json"]
        folder = agent.folder
    assert not folder.exists()
    assert settings_left() == []


def settings_left() -> list[Path]:
    """Files of sessions that are still there, in the folder for temporary files."""
    files = Path(tempfile.gettempdir()).glob("outrider-*/settings.json")
    return [file for file in files if "SECRET" in file.read_text()]


@pytest.mark.parametrize("writers, lines", [(10, 1), (50, 100)])
@EXECUTABLE
async def test_lines_of_many_writers_stay_whole(writers: int, lines: int, executable: bool) -> None:
    with Simulator([say("one")], executable=executable) as agent, anyio.fail_after(SECONDS):
        async with outrider.Session(options=agent.options()) as session:
            answers: list[Any] = []

            async def write(number: int) -> None:
                for line in range(lines):
                    uuid = f"{number}-{line}"
                    answer = await session.request("cancel_async_message", message_uuid=uuid)
                    answers.append(answer)

            async with anyio.create_task_group() as tasks:
                for number in range(writers):
                    tasks.start_soon(write, number)
            assert (await session.ask("still there?")).text == "one"
    assert len(answers) == writers * lines


async def test_the_end_of_the_program_is_noticed_and_nothing_is_left() -> None:
    with Simulator([hang()], executable=True) as agent, anyio.fail_after(SECONDS):
        async with outrider.Session(options=agent.options()) as session:
            turn = await session.send("hang")
            await anyio.to_thread.run_sync(agent.wait_for_hang)
            (process,) = live_processes()
            os.kill(process.pid, signal.SIGKILL)
            with pytest.raises(ProcessExited) as exited:
                await turn.result()
        assert exited.value.signal == signal.SIGKILL
        assert live_processes() == []
