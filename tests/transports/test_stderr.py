"""stderr is always drained, line by line, the last lines kept."""

from __future__ import annotations

import logging
import threading

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.errors import ProcessExited
from outrider.transports._process import child as _child
from outrider.transports._process.child import StderrLog
from outrider.transports._process.wakeup import process_log
from tests.transports.conftest import DEADLINE, impatient, logged

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("F1")
async def test_the_callback_gets_each_line_before_close_returns() -> None:
    lines: list[str] = []
    texts = ["one  \n", "\n   \n", "two\r\nthree\n", "x" * 100_000 + "\n", "a partial line"]
    async with impatient("writes_to_stderr", *texts, stderr=lines.append) as transport:
        await anext(transport.messages())
    assert lines == ["one", "two", "three", "x" * 100_000, "a partial line"]


@pytest.mark.requirement("F1")
async def test_bytes_that_are_no_text_are_kept() -> None:
    lines: list[str] = []
    async with impatient("writes_to_stderr", "a\udcffb é\n", stderr=lines.append) as transport:
        await anext(transport.messages())
    assert lines == ["a\\xffb é"]


@pytest.mark.requirement("F1")
async def test_a_callback_that_raises_is_called_again(caplog: pytest.LogCaptureFixture) -> None:
    lines: list[str] = []

    def fail(line: str) -> None:
        lines.append(line)
        raise LookupError(line)

    async with impatient("writes_to_stderr", "one\ntwo\n", stderr=fail) as transport:
        await anext(transport.messages())
    assert lines == ["one", "two"]
    assert logged(caplog).count("the stderr callback failed") == 2
    caplog.clear()


@pytest.mark.requirement("F1")
async def test_a_callback_that_blocks_does_not_keep_close_from_returning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_child, "CALLBACK_SECONDS", 0.05)
    released = threading.Event()
    async with impatient("writes_to_stderr", "one\n", stderr=lambda _: released.wait()) as transport:
        await anext(transport.messages())
    assert "the stderr callback still runs" in logged(caplog)
    released.set()


class BlockedHandler(logging.Handler):
    """One that never gets its record off."""

    def __init__(self) -> None:
        super().__init__()
        self.is_reached, self.released = threading.Event(), threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.is_reached.set()
        self.released.wait()


async def test_a_handler_of_the_log_that_blocks_holds_up_nobody() -> None:
    log, handler = logging.getLogger("outrider.process"), BlockedHandler()
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    try:
        async with impatient("writes_to_stderr", "one\n" * 5000) as transport:
            await anext(transport.messages())
            assert handler.is_reached.wait(DEADLINE)
            with anyio.fail_after(DEADLINE):
                await transport.close()
        assert len(process_log.thread.calls) <= 1000
    finally:
        log.setLevel(level)
        log.removeHandler(handler)
        handler.released.set()
        process_log.thread.drain(DEADLINE)


@pytest.mark.requirement("F1")
async def test_much_stderr_does_not_block_the_child() -> None:
    async with impatient("floods") as transport:
        messages = transport.messages()
        for _ in range(5000):
            await anext(messages)
        while "truncated" not in transport.stderr_tail:
            await anext(messages)


@pytest.mark.requirement("F1")
def test_the_last_hundred_lines_are_kept_and_it_says_so() -> None:
    log = StderrLog()
    log.feed(b"".join(b"line %d\n" % number for number in range(100)))
    assert log.tail.startswith("line 0\n")
    log.feed(b"line 100\n")
    first, second, *_, last = log.tail.split("\n")
    assert first == "[stderr truncated, showing last 100 lines]"
    assert (second, last) == ("line 1", "line 100")


def test_a_line_without_an_end_takes_bounded_memory() -> None:
    log = StderrLog()
    for _ in range(40):
        log.feed(b"x" * 1_000_000)
    assert len(log.tail) < 400_000


@given(st.lists(st.binary(max_size=20).map(lambda data: data.replace(b"b", b"\n"))))
def test_any_cutting_gives_the_same_lines(pieces: list[bytes]) -> None:
    whole, cut = StderrLog(), StderrLog()
    whole.feed(b"".join(pieces))
    whole.finish(lambda: None)
    for piece in pieces:
        cut.feed(piece)
    cut.finish(lambda: None)
    assert whole.tail == cut.tail


async def test_the_words_of_a_child_that_failed_are_in_its_error() -> None:
    async with impatient("fails_at_once") as transport:
        with anyio.fail_after(30), pytest.raises(ProcessExited, match="cannot go on"):
            await anext(transport.messages())
