"""Whatever a child says, masking it takes linear time, and the event loop goes on meanwhile."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.errors import OutriderError, ProcessExited
from outrider.options import Trace
from outrider.redaction import _SLICE, MASK, WINDOW, mask, mask_json
from outrider.transports import memory_pair, read_trace, traced
from outrider.transports._process.child import StderrLog
from tests.cases import every_case

DEADLINE = 50.0
SECRET = "sk-ant-api03-k3yBody0123456789abcdefXYZ"

PIECES = (
    *(
        "\\",
        '"',
        "'",
        "=",
        ":",
        "--",
        "-",
        "(",
        "[",
        "{",
        "]",
        ")",
        "<",
        ">",
        "</",
        "/",
        "://",
        "@",
        ".",
        ",",
    ),
    *(
        " ",
        "\t",
        "\n",
        "name",
        "value",
        "token",
        "api ",
        "authorization:",
        "cookie:",
        "is",
        "login ",
        "curl ",
    ),
    *("--user ", "sk-", "eyJ", "bearer ", "basic ", "-----BEGIN PRIVATE KEY-----", "sig=", 'b"', MASK, "\\n"),
    *("pwd=", "\x0b", "é", "0", "api_key=", "SecretStr("),
)


def slow_forms() -> list[str]:
    """What was slow once, and what chance makes of the pieces that patterns look for."""
    chance = random.Random(16)
    made = ["".join(chance.choices(PIECES, k=chance.randint(1, 5))) for _ in range(60)]
    return ["\\", '\\"', "authorization: is ", "cookie: set-cookie: no ", "://a:b/c/", *made]


def seconds(text: str) -> float:
    before = time.process_time()
    mask(text)
    return time.process_time() - before


@every_case("form", slow_forms())
def test_four_times_the_text_takes_about_four_times_as_long(form: str) -> None:
    mask("warm up")
    text = form * (8_000 // len(form))
    # Sixteen times, were it quadratic. What takes no time is not compared: the clock is coarser than that.
    assert seconds(text * 4) < 10 * max(min(seconds(text) for _ in range(2)), 0.003)


@pytest.mark.parametrize("before", ["token=", "x://u:", '"token": "', "<token>", "curl -u a:", "{"])
def test_a_value_of_any_length_is_hidden_at_once(before: str) -> None:
    assert len(mask(before + "a" * 1_000_000)) < 1_000_100
    assert seconds(before + "a1/b" * 250_000) < 40 * max(seconds(before + "a1/b" * 25_000), 0.003)


@pytest.mark.parametrize("place", [0, 1, _SLICE - 20, _SLICE, _SLICE + WINDOW - 20, 2 * _SLICE - 3])
@pytest.mark.parametrize(
    "planted", [SECRET, "password=hunter22", '{"api_key": "hunter22"}', "https://u:hunter22@h/"]
)
def test_a_secret_at_the_edge_of_a_slice_is_hidden(place: int, planted: str) -> None:
    text = "x " * (place // 2) + " " * (place % 2) + planted + " y" * 2 * _SLICE
    assert mask(text) == "x " * (place // 2) + " " * (place % 2) + mask(planted) + " y" * 2 * _SLICE
    assert "k3yBody" not in mask(text)
    assert "hunter22" not in mask(text)


def test_a_secret_longer_than_a_slice_is_hidden_whole() -> None:
    for planted in ("token=" + "s3" * _SLICE, "Bearer " + "s3" * _SLICE, 'token="' + "s 3" * _SLICE + '"'):
        assert "s" not in mask(f"- {planted} -").replace("Bearer", "").replace("token", "")


texts = st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=12).map("".join)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


@given(values)
def test_masked_json_stays_json_of_the_same_form(value: object) -> None:
    masked = mask_json(value)
    assert json.loads(json.dumps(masked)) == masked
    assert type(masked) is type(value)
    assert len(json.dumps(masked)) <= len(json.dumps(value)) + 3 * json.dumps(masked).count(MASK)


@given(texts, texts)
def test_what_stands_around_a_secret_never_unmasks_it(before: str, after: str) -> None:
    masked = mask(f"{before}\n{SECRET}\n{after}")
    assert "k3yBody" not in masked
    assert mask(masked) == masked


# On the event loop.


HOSTILE = {
    "backslashes": b"\\" * 400_000,
    "headers": b"authorization: is " * 40_000,
    "a frame": msgspec.json.encode({"type": "user", "text": "curl " * 100_000}),
    "many frames": b'{"type":"user","text":"token=hunter22"}\n' * 8_000,
}


@pytest.mark.anyio
@pytest.mark.parametrize("name", HOSTILE)
async def test_the_loop_goes_on_while_what_a_child_said_is_traced(tmp_path: Path, name: str) -> None:
    """Where it was masked on the loop, nothing else ran between the first byte and the last."""
    ours, theirs = memory_pair()
    transport = traced(ours, Trace(str(tmp_path / "trace.jsonl")))
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            await anyio.sleep(0.001)
            beats += 1

    with anyio.fail_after(DEADLINE):
        await transport.connect()
        await theirs.connect()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(theirs.send, HOSTILE[name] + b"\n")
            await anyio.lowlevel.checkpoint()
            tasks.start_soon(beat)
            while not (await transport.receive()).endswith(b"\n"):
                pass
            tasks.cancel_scope.cancel()
        assert beats >= 3
        await transport.close()
    assert sum(record.size for record in read_trace(tmp_path / "trace.jsonl").records) > 300_000


@pytest.mark.anyio
async def test_whoever_is_cancelled_meanwhile_loses_nothing(tmp_path: Path) -> None:
    ours, theirs = memory_pair()
    transport = traced(ours, Trace(str(tmp_path / "trace.jsonl")))
    line = HOSTILE["a frame"] + b"\n"
    received = b""
    with anyio.fail_after(DEADLINE):
        await transport.connect()
        await theirs.connect()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(theirs.send, line)
            while len(received) < len(line):
                with anyio.move_on_after(0.001):
                    received += await transport.receive()
        await transport.close()
    assert received == line
    (record,) = [each for each in read_trace(tmp_path / "trace.jsonl").records if each.is_line]
    assert record.size == len(line) - 1


@pytest.mark.anyio
async def test_lines_that_are_sent_at_once_stay_whole_in_a_trace(tmp_path: Path) -> None:
    ours, theirs = memory_pair()
    transport = traced(ours, Trace(str(tmp_path / "trace.jsonl")))
    sizes = [200_000, 10, 100_000, 20]
    with anyio.fail_after(DEADLINE):
        await transport.connect()
        await theirs.connect()
        async with anyio.create_task_group() as tasks:
            for size in sizes:
                tasks.start_soon(transport.send, b"%s\n" % (b"x " * size)[:size])
            missing = sum(sizes) + len(sizes)
            while missing:
                missing -= len(await theirs.receive())
        await transport.close()
    said = [record for record in read_trace(tmp_path / "trace.jsonl").records if record.is_line]
    assert sorted(len(record.data) for record in said) == sorted(sizes)


# What errors are made of.


def test_no_more_of_stderr_is_kept_than_can_be_shown_at_once() -> None:
    log = StderrLog()
    for _ in range(100):
        log.feed(b"\\" * 60_000 + b"\n")
    assert len(log.tail) < 70_000
    assert "showing last 1 lines" in log.tail
    assert len(ProcessExited(1, stderr_tail=log.tail).stderr_tail) < 70_000


def test_an_error_keeps_no_endless_text() -> None:
    error = OutriderError("é" * 10_000_000)
    assert len(error.message) < 40_000
    assert len(str(error)) < 40_000
