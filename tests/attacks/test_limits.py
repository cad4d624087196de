"""Where something has no room any more, or is more than can be taken: errors are typed, nobody waits for
nothing, and nothing is left."""

from __future__ import annotations

import base64
import json
import logging
import os
import resource
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

import anyio
import pytest

import outrider
from outrider import image
from outrider.command import Command
from outrider.errors import LaunchError, OutriderError
from outrider.handlers import Policy, hook
from outrider.protocol import Peer
from outrider.session import Session, background
from outrider.sync import _portal
from outrider.transcripts import SqliteStore
from outrider.transports import ProcessTransport, live_processes
from outrider.wire import MalformedLine, OversizedMessage
from tests.session.other_end import OtherEnd
from tests.session.surroundings import QUICK, make_program
from tests.transports.conftest import libraries_are_warm, nothing_is_left, own_processes, wait_for
from tests.transports.test_scarcity import few_files

# Autouse, and so in force for this module.
__all__ = ["libraries_are_warm", "nothing_is_left"]

# Questions that cannot be read.

# From 3.13 on, a thousand levels are decoded.
DEEP = 20_000 if sys.version_info >= (3, 13) else 1000
"""More than a decoder takes."""


def nested(depth: int) -> str:
    return '{"a":' * depth + "1" + "}" * depth


def ask(id: str, input: str, *, order: tuple[str, ...] = ("type", "request_id", "request")) -> bytes:
    """A permission request as a line, with its fields in an order."""
    fields = {
        "type": '"control_request"',
        "request_id": id,
        "request": f'{{"subtype":"can_use_tool","tool_name":"Bash","request_id":"inner","input":{input}}}',
    }
    return ("{" + ",".join(f'"{name}":{fields[name]}' for name in order) + "}\n").encode()


def refused(peer: Peer) -> list[Any]:
    """The ids that were answered with an error."""
    answers = [json.loads(line)["response"] for line in peer.take_output().splitlines()]
    assert all(answer["subtype"] == "error" and answer["error"] for answer in answers)
    return [answer["request_id"] for answer in answers]


@pytest.mark.parametrize("depth", [*range(900, 1100, 7), 5000, 100_000])
def test_a_question_of_any_depth_is_handed_over_or_refused(depth: int) -> None:
    peer = Peer("host")
    events = peer.receive(ask('"deep"', nested(depth)))
    assert len(events) == 1
    if isinstance(events[0], MalformedLine):
        assert refused(peer) == ["deep"]
    else:
        assert list(peer.open) == ["deep"]


@pytest.mark.parametrize("order", [("request_id", "request", "type"), ("type", "request", "request_id")])
def test_the_id_is_found_wherever_it_stands(order: tuple[str, ...]) -> None:
    peer = Peer("host")
    peer.receive(ask('"behind"', nested(DEEP), order=order))
    peer.receive(ask("7", nested(DEEP), order=order))
    assert refused(peer) == ["behind", 7]


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"control_request","request_id":"cut","request":{"subtype":"can_use_tool","inp\n{"type":"keep_alive"}\n',
        b'{"type":"control_request","request_id":"cut","request":{"subtype":tru}}\n',
        b'{"request_id":"cut","type":"control_request","request":{"a":1}]}\n{"type":"keep_alive"}\n',
    ],
    ids=["cut off", "no JSON", "wrong bracket"],
)
def test_a_damaged_question_is_refused(line: bytes) -> None:
    peer = Peer("host")
    peer.receive(line)
    assert refused(peer) == ["cut"]


@pytest.mark.parametrize("order", [("type", "request_id", "request"), ("type", "request", "request_id")])
def test_a_question_over_the_size_limit_is_refused(order: tuple[str, ...]) -> None:
    peer = Peer("host", limit=100_000)
    (event,) = peer.receive(ask('"large"', '"' + "x" * 200_000 + '"', order=order))
    assert isinstance(event, OversizedMessage)
    assert refused(peer) == ["large"]


@pytest.mark.parametrize(
    "line",
    [
        # What only speaks of a request is none.
        '{"type":"assistant","text":{"type":"control_request","request_id":"no"},"deep":'
        + nested(DEEP)
        + "}",
        '{"text":"\\"type\\":\\"control_request\\",\\"request_id\\":\\"no\\"","deep":' + nested(DEEP) + "}",
        '{"type":"control_request","request":' + nested(DEEP) + "}",
        '{"type":"control_request","request_id":"","request":' + nested(DEEP) + "}",
        '{"type":"control_request","request_id":{"a":"no"},"request":' + nested(DEEP) + "}",
        'noise "type":"control_request","request_id":"no"',
    ],
)
def test_what_is_no_question_or_has_no_id_is_not_answered(line: str) -> None:
    peer = Peer("host")
    peer.receive(line.encode() + b"\n")
    assert refused(peer) == []


def test_a_question_is_refused_once() -> None:
    peer = Peer("host")
    peer.receive(ask('"deep"', nested(DEEP)) * 2)
    assert refused(peer) == ["deep"]


@pytest.mark.anyio
@pytest.mark.parametrize("depth", [100, 300, 500, 900, 980, DEEP])
async def test_a_session_answers_a_deep_question_and_goes_on(depth: int, tmp_path: Path) -> None:
    """Whatever it takes to look at one, to write it down or to hand it to a function."""
    agent = OtherEnd()
    rules = Policy.of({"deny": "Bash(rm *)"}, {"allow": "*"})
    fields: Any = {"permission": rules, "hooks": [look], "trace": tmp_path / "trace.jsonl"}
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(agent.open)
            async with Session(transport=agent.transport, **fields) as session:
                await agent.write(ask('"deep"', nested(depth)))
                assert (await answer_to("deep", agent))["subtype"] in ("success", "error")
                hook = f'{{"subtype":"hook_callback","callback_id":"hook_0","input":{nested(depth)}}}'
                await agent.write(
                    f'{{"type":"control_request","request_id":"h","request":{hook}}}\n'.encode()
                )
                assert (await answer_to("h", agent))["subtype"] in ("success", "error")
                tasks.start_soon(agent.reply)
                assert (await session.ask("Are you there?")).text == "done"


@hook("PreToolUse")
async def look(event: Any) -> None:
    assert event


async def answer_to(id: str, agent: OtherEnd) -> Any:
    while True:
        for line in (await agent._own.receive()).splitlines():
            frame = json.loads(line)
            if frame["type"] == "control_response" and frame["response"]["request_id"] == id:
                return frame["response"]


# No more threads, files or processes.


@contextmanager
def few_threads(free: int) -> Generator[None]:
    """So many threads can be started and no more, as with a limit on them."""
    name = "_start_joinable_thread" if sys.version_info >= (3, 13) else "_start_new_thread"
    start: Any = vars(threading)[name]
    left = count(free, -1)

    def begin(*arguments: Any, **options: Any) -> Any:
        if next(left) <= 0:
            raise RuntimeError("can't start new thread")
        return start(*arguments, **options)

    with patch.object(threading, name, begin):
        yield


async def talk(program: str, folder: Path) -> str:
    """All that takes a thread: a session, its store, what is attached, prompts that may block."""
    store = SqliteStore(folder / "kept.db")
    picture = folder / "picture.png"
    picture.write_bytes(base64.b64decode(PIXEL))
    try:
        async with Session(cli_path=program, timeouts=QUICK, session_store=store) as session:
            await session.ask(["Look", image(picture)])
            return (await session.ask(iter(["Hello"]))).text
    finally:
        with suppress(OutriderError):
            await store.close()


PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_without_threads_a_session_fails_with_an_error_of_its_own_and_nothing_is_left(
    backend: str, tmp_path: Path
) -> None:
    """What is left is looked for after each test."""
    program = make_program(tmp_path, "answers")
    came: list[str] = []
    for free in range(12):
        with few_threads(free):
            try:
                came.append(anyio.run(talk, program, tmp_path, backend=backend))
            except OutriderError as error:
                came.append(
                    "refused" if "can't start new thread" in f"{error} {error.__cause__}" else str(error)
                )
        assert own_processes() == []
    assert set(came) == {"refused", "done"}
    # Trio keeps threads for the next run.
    assert came[0] == "refused"
    assert came[-1] == "done"


@pytest.mark.parametrize("free", range(4))
def test_without_threads_outrider_sync_says_so_and_works_again_later(free: int, tmp_path: Path) -> None:
    program = make_program(tmp_path, "answers")
    done = in_a_process(without_threads_for_sync, free, program)
    assert done in ("refused done", "done done")
    assert (free, done) != (0, "done done")


def without_threads_for_sync(free: int, program: str) -> str:
    with few_threads(free):
        try:
            came = outrider.sync.run("Hello", cli_path=program).text
        except LaunchError:
            came = "refused"
    assert own_processes() == []
    return f"{came} {outrider.sync.run('Hello', cli_path=program).text}"


@pytest.mark.parametrize("way", ["async", "sync"])
def test_without_files_a_run_fails_with_an_error_of_its_own_and_nothing_is_left(
    way: str, tmp_path: Path
) -> None:
    program = make_program(tmp_path, "answers")
    came = in_a_process(without_files, way, program).split()
    assert set(came) == {"refused", "done"}
    # Once there are enough, more change nothing.
    assert came == sorted(came, reverse=True)


def without_files(way: str, program: str) -> str:
    async def run_async() -> str:
        return (await outrider.run("Hello", cli_path=program, timeouts=QUICK)).text

    def run_sync() -> str:
        return outrider.sync.run("Hello", cli_path=program, timeouts=QUICK).text

    # What is loaded on first use needs files, too.
    assert anyio.run(run_async) == run_sync() == "done"
    _portal._end()
    came: list[str] = []
    for free in range(100):
        if came[-3:] == ["done"] * 3:
            break
        if way == "sync":
            with few_files(free):
                came.append(outcome_of(run_sync))
            _portal._end()
        else:
            # The loop itself is the caller's.
            async def within(free: int = free) -> None:
                with few_files(free):
                    try:
                        came.append(await run_async())
                    except LaunchError:
                        came.append("refused")

            anyio.run(within)
        assert own_processes() == []
    return " ".join(came)


def outcome_of(function: Callable[[], str]) -> str:
    try:
        return function()
    except LaunchError:
        return "refused"


@pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can become another user, whose processes are counted"
)
def test_without_processes_a_start_fails_with_an_error_of_its_own_and_nothing_is_left() -> None:
    said = in_a_process(without_processes)
    came = said.split()
    assert set(came) == {"refused", "done"}, said
    assert came[0] == "refused"
    assert came[-1] == "done"


def without_processes() -> str:
    async def start() -> str:
        try:
            async with ProcessTransport(Command(("cat",)), grace=1) as transport:
                await background()
                await transport.write({"type": "keep_alive"})
                await anext(transport.messages())
        except LaunchError:
            return "refused"
        return "done"

    # Of libraries that start theirs again in each fork, as OpenTelemetry's exporters do.
    threads = set(threading.enumerate())
    assert anyio.run(start) == "done"
    logging.disable()
    # A user of its own: the processes of all runs of this test would be counted together.
    os.setuid(1_000_000 + os.getpid())
    came: list[str] = []
    for limit in range(1, 8):
        resource.setrlimit(resource.RLIMIT_NPROC, (limit, 100))
        came.append(anyio.run(start))
        wait_for(lambda: not live_processes() and set(threading.enumerate()) <= threads)
    return " ".join(came)


def in_a_process(function: Callable[..., str], *arguments: object) -> str:
    """Call a function in a process of its own, whose limits are nobody else's; gives what it gives."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        signal.alarm(50)
        try:
            os.write(writing, function(*arguments).encode())
        except BaseException:  # noqa: BLE001 - the test shows it
            os.write(writing, traceback.format_exc().encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        said = told.read()
    assert os.waitpid(pid, 0)[1] == 0, said
    return said
