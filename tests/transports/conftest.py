"""Every test here is held to this: no process, thread, descriptor or file of its own is left behind."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from outrider.command import Command
from outrider.transports import ProcessTransport, live_processes
from outrider.transports._process.supervisor import supervisor
from outrider.transports._process.wakeup import process_log
from tests.proc import environment_of, process_ids, stat_of

DEADLINE = 30.0
"""Far longer than anything takes, and shorter than the limit of a test."""

CHILDREN = Path(__file__).with_name("children.py")

BACKENDS: list[object] = [
    pytest.param(("asyncio", {"use_uvloop": False}), id="asyncio"),
    pytest.param(("trio", {}), id="trio"),
]
if find_spec("uvloop") is not None:
    BACKENDS.append(pytest.param(("asyncio", {"use_uvloop": True}), id="uvloop"))


@pytest.fixture(params=BACKENDS)
def anyio_backend(request: pytest.FixtureRequest) -> object:
    return request.param


def child(name: str, *arguments: str) -> Command:
    """The command for one of the children."""
    return Command((sys.executable, "-I", "-S", str(CHILDREN), name, *arguments))


ENDS_WITH_ITS_INPUT = {"leaves_a_daemon", "leaves_an_escaped_one", "polite"}


def impatient(name: str, *arguments: str, **options: Any) -> ProcessTransport:
    """A transport that does not give its child long; the defaults are tested where they matter.

    One that ends by itself may take as long as a busy machine needs."""
    seconds = 10.0 if name in ENDS_WITH_ITS_INPUT else 0.1
    options = {"grace": seconds, "terminate": seconds} | options
    return ProcessTransport(child(name, *arguments), **options)


def marked_processes(marker: str) -> list[int]:
    """Processes that carry the marker in their environment: found by looking, not by asking the transport."""
    wanted = b"\0" + marker.encode()
    return [
        pid
        for pid in process_ids()
        if (stat := stat_of(pid)) is not None and stat.is_running and wanted in environment_of(pid)
    ]


def own_processes() -> list[int]:
    """All that this test process has started through Outrider and that still runs."""
    return marked_processes(f"OUTRIDER_{supervisor().id}=")


@pytest.fixture(autouse=True, scope="session")
def libraries_are_warm() -> None:
    """uvloop opens a pipe with its first loop and keeps it."""
    if find_spec("uvloop") is not None:
        anyio.run(anyio.lowlevel.checkpoint, backend_options={"use_uvloop": True})


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    # The watchdog is started once and stays, and so does what the supervisor waits with.
    supervisor().open()
    supervisor().watchdog.start()
    # So are threads of other tests: that of `outrider.sync` stays as long as the process.
    descriptors, folders, threads = _descriptors(), _folders(), _threads()
    yield
    gc.collect()
    try:
        # A child that was not closed but dropped ends by itself, a moment later.
        wait_for(lambda: not live_processes() and not _threads() - threads)
    finally:
        for one in supervisor().children():
            one.end(kill=True)
    # What a thread held until now may have been part of a cycle, and one may be about to close it.
    with suppress(AssertionError):
        wait_for(lambda: not _opened_since(descriptors))
    assert own_processes() == []
    assert _opened_since(descriptors) == set()
    assert _folders() - folders == set()


def _threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("outrider-")}


def _descriptors() -> set[tuple[str, str]]:
    """What is open, by number and target. The numbers of what is made and closed at once come and go."""
    opened: set[tuple[str, str]] = set()
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        try:
            opened.add((name, os.readlink(f"/proc/self/fd/{name}")))  # noqa: PTH115
        except OSError:
            continue
    return {(name, target) for name, target in opened if not target.startswith("/proc/")}


def _opened_since(before: set[tuple[str, str]]) -> set[tuple[str, str]]:
    gc.collect()
    return _descriptors() - before


def _folders() -> set[str]:
    return {str(path) for path in Path(tempfile.gettempdir()).glob(f"outrider-{os.getpid()}-*")}


def logged(caplog: pytest.LogCaptureFixture) -> str:
    """What is in the log, once the supervisor's records have reached it."""
    process_log.thread.drain(DEADLINE)
    return caplog.text


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until something is true that nothing announces."""
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, "it never became true"
        time.sleep(0.005)
