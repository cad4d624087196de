"""Bytes in any chunking become frames; nothing is lost, nothing raises, memory is bounded."""

from __future__ import annotations

import itertools
import json
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from outrider.errors import FrameTooLarge, MalformedFrame, OptionsError
from outrider.wire import (
    DEFAULT_LIMIT,
    FRAME_TYPES,
    Arrival,
    AssistantMessage,
    Framer,
    FrameReader,
    KeepAlive,
    MalformedLine,
    OversizedMessage,
    PromptSuggestionMessage,
    TextBlock,
    UnknownMessage,
    UserMessage,
    decode,
)
from tests.cases import every_case


def suggestion(text: str) -> bytes:
    return json.dumps({"type": "prompt_suggestion", "suggestion": text}, ensure_ascii=False).encode()


ALIVE = b'{"type":"keep_alive"}'


def frames(data: bytes, size: int = 0, limit: int | None = None) -> list[Arrival]:
    """All that is in the data, fed in pieces of `size` (0: at once)."""
    framer = Framer(limit)
    arrivals: list[Arrival] = []
    for start in range(0, len(data), size or len(data) or 1):
        arrivals += framer.feed(data[start : start + (size or len(data))])
    return arrivals + framer.flush()


def shown(arrivals: list[Arrival]) -> list[Any]:
    """Arrivals in a form that tests can spell: suggestions by text, noise by its bytes."""
    return [
        arrival.suggestion
        if isinstance(arrival, PromptSuggestionMessage)
        else (arrival.line if isinstance(arrival, MalformedLine) else type(arrival).__name__)
        for arrival in arrivals
    ]


# Before 3.12, functions of Python's own that call themselves came to an end long before the JSON parser did.
DEEP = 700 if sys.version_info < (3, 12) else 200_000

CASES: dict[str, tuple[bytes, list[Any]]] = {
    "nothing": (b"", []),
    "one line": (suggestion("a") + b"\n", ["a"]),
    "several lines": (suggestion("a") + b"\n" + suggestion("b") + b"\n", ["a", "b"]),
    "no newline at the end": (suggestion("a") + b"\n" + suggestion("b"), ["a", "b"]),
    "CRLF": (suggestion("a") + b"\r\n" + suggestion("b") + b"\r\n", ["a", "b"]),
    "blank lines": (b"\n\n  \n\t\r\n" + suggestion("a") + b"\n\n", ["a"]),
    "spaces around": (b"  " + suggestion("a") + b"  \n", ["a"]),
    "byte-order mark": (b"\xef\xbb\xbf" + suggestion("a") + b"\n\xef\xbb\xbf" + suggestion("b"), ["a", "b"]),
    "only a byte-order mark": (b"\xef\xbb\xbf\n", []),
    "NUL bytes around": (b"\x00\x00" + suggestion("a") + b"\x00\n\x00\n", ["a"]),
    "NUL byte inside": (b'{"type":"prompt_suggestion","suggestion":"a\x00b"}\n', ["a\x00b"]),
    "control character inside": (b'{"type":"prompt_suggestion","suggestion":"a\tb"}\n', ["a\tb"]),
    "text of many bytes": (suggestion("häß € 😀 \u2028") + b"\n", ["häß € 😀 \u2028"]),
    "invalid byte in a text": (b'{"type":"prompt_suggestion","suggestion":"a\xffb"}\n', ["a\ufffdb"]),
    "lone surrogate": (b'{"type":"prompt_suggestion","suggestion":"a\\ud800b"}\n', ["a\ufffdb"]),
    "surrogate pair": (b'{"type":"prompt_suggestion","suggestion":"\\ud83d\\ude00"}\n', ["😀"]),
    "invalid byte as noise": (b"\xff\xfe\n" + suggestion("a"), [b"\xff\xfe", "a"]),
    "noise": (b"[SandboxDebug] hello\n" + suggestion("a"), [b"[SandboxDebug] hello", "a"]),
    "noise keeps its spaces": (b"  warning: x  \n", [b"  warning: x  "]),
    "null": (b"null\n", [b"null"]),
    "a number": (b"42\n", [b"42"]),
    "an array": (b"[]\n", [b"[]"]),
    "a string": (b'"x"\n', [b'"x"']),
    "two objects on a line": (suggestion("a") + suggestion("b") + b"\n", ["a", "b"]),
    "objects with spaces between": (suggestion("a") + b"  \t " + suggestion("b") + b"\n", ["a", "b"]),
    "objects with noise between": (suggestion("a") + b" oops " + suggestion("b"), ["a", b"oops", "b"]),
    "noise after an object": (suggestion("a") + b"}} x\n" + suggestion("b"), ["a", b"}} x", "b"]),
    "an object over lines": (
        b'{"type":\n"prompt_suggestion",\n"suggestion":\n"a"}\n' + suggestion("b"),
        ["a", "b"],
    ),
    "an object over lines, indented": (
        json.dumps({"type": "prompt_suggestion", "suggestion": "a", "x": [{"y": "}"}]}, indent=2).encode(),
        ["a"],
    ),
    "a text over lines": (b'{"type":"prompt_suggestion","suggestion":"a \n b"}\n', ["a  b"]),
    "a text over lines, CRLF": (b'{"type":"prompt_suggestion","suggestion":"a \r\n b"}\r\n', ["a  b"]),
    "a blank line in a text": (b'{"type":"prompt_suggestion","suggestion":"a\n  \nb"}\n', ["a  b"]),
    "a number over lines": (b'{"type":"prompt_suggestion","suggestion":"a","n":1\n2}', ["a"]),
    "an escape over lines": (b'{"type":"prompt_suggestion","suggestion":"a\\\n"b"}\n', ['a"b']),
    "object over lines, another behind it": (
        b'{"type":"keep_alive"\n}' + suggestion("b"),
        ["KeepAlive", "b"],
    ),
    "an object cut off": (
        b'{"type":"assistant","mess\n' + suggestion("b"),
        [b'{"type":"assistant","mess', "b"],
    ),
    "an object cut off, twice": (b'{"a\n{"b\n' + suggestion("c"), [b'{"a{"b', "c"]),
    "cut off inside a text and an escape, then an object over lines": (
        b'{"a":"b\\\n' + suggestion("a") + b'\n{"type":"prompt_suggestion",\n"suggestion":"b"}\n',
        [b'{"a":"b\\', "a", "b"],
    ),
    "cut off, and NUL bytes behind the next frame": (
        b'{"a\n' + suggestion("b") + b"\x00 \x00\n",
        [b'{"a', "b"],
    ),
    "an escape at the end of a text, another object behind": (
        suggestion("a\\") + suggestion('"') + suggestion("b") + b"\n",
        ["a\\", '"', "b"],
    ),
    "an escape over lines, at the end of a text": (
        b'{"type":"prompt_suggestion","suggestion":"a\\\n""}' + suggestion("b"),
        ['a"', "b"],
    ),
    "cut off at the end": (suggestion("a") + b'\n{"type":"result","x', ["a", b'{"type":"result","x']),
    "never JSON": (b"{oops}\n" + suggestion("a"), [b"{oops}", "a"]),
    "never JSON, open": (b"{oops\n" + suggestion("a"), [b"{oops", "a"]),
    "wrong brackets": (b'{"a":]}\n' + suggestion("a"), [b'{"a":]', b"}", "a"]),
    "a block on its own line": (
        b'{"type":"prompt_suggestion","suggestion":"a","x":[\n{"type":"text"}\n]}\n',
        ["a"],
    ),
    "a frame on its own line": (
        b'{"type":"transcript_mirror","filePath":"f","entries":[\n' + suggestion("a") + b"\n]}\n",
        [b'{"type":"transcript_mirror","filePath":"f","entries":[', "a", b"]}"],
    ),
    "no type": (b"{}\n", ["UnknownMessage"]),
    "unknown type": (b'{"type":"brand_new"}\n', ["UnknownMessage"]),
    "NaN": (b'{"type":"prompt_suggestion","suggestion":"a","x":NaN}\n', ["a"]),
    "nested too deeply": (
        b'{"a":' + b"[" * 200_000 + b"\n" + suggestion("a"),
        [b'{"a":' + b"[" * 200_000, "a"],
    ),
    "nested too deeply, closed": (
        b'{"a":' + b"[" * 200_000 + b"]" * 200_000 + b"}\n" + suggestion("a"),
        [b'{"a":' + b"[" * 200_000 + b"]" * 200_000 + b"}", "a"],
    ),
    "nested deeply, with a lone surrogate": (
        b'{"type":"keep_alive","x":' + b"[" * DEEP + b'"\\ud800"' + b"]" * DEEP + b"}\n" + suggestion("a"),
        [b'{"type":"keep_alive","x":' + b"[" * DEEP + b'"\\ud800"' + b"]" * DEEP + b"}", "a"],
    ),
    "carriage returns alone": (suggestion("a") + b"\r" + suggestion("b") + b"\r", ["a", "b"]),
    "the same key twice: the last counts": (
        b'{"type":"keep_alive","suggestion":"a","suggestion":"b","type":"prompt_suggestion"}\n',
        ["b"],
    ),
    "a number of many digits": (
        b'{"a":' + b"9" * 6000 + b"}\n" + suggestion("a"),
        [b'{"a":' + b"9" * 6000 + b"}", "a"],
    ),
}


@pytest.mark.requirement("D1")
@pytest.mark.requirement("D3")
@every_case(
    "name, size",
    [
        (name, size)
        for name, (data, _) in CASES.items()
        for size in (0, 1, 2, 3, 7, 64)
        # Many small pieces of a long line show nothing new.
        if not size or len(data) <= 1000 * size
    ],
)
def test_what_comes_out(name: str, size: int) -> None:
    data, expected = CASES[name]
    assert shown(frames(data, size)) == expected


@pytest.mark.requirement("D1")
@every_case("name", CASES)
def test_a_frame_before_and_a_frame_behind_are_untouched(name: str) -> None:
    data, expected = CASES[name]
    around = suggestion("before") + b"\n" + data + b"\n" + suggestion("behind") + b"\n"
    assert shown(frames(around)) == ["before", *expected, "behind"]


@pytest.mark.requirement("D3")
def test_noise_says_why_it_is_none() -> None:
    assert [
        line.reason for line in frames(b"null\ntrue\n[]\n4\nhm\n{x}\n") if isinstance(line, MalformedLine)
    ] == [
        "a JSON null, not an object",
        "a JSON boolean, not an object",
        "a JSON array, not an object",
        "a JSON number, not an object",
        "not JSON",
        "not JSON",
    ]
    (noise,) = frames(b"caf\xe9\n")
    assert isinstance(noise, MalformedLine)
    assert (noise.text, noise.raw_json, noise.raw, noise.type) == (
        "caf\ufffd",
        b"caf\xe9",
        {},
        "malformed_line",
    )
    assert isinstance(noise.error(), MalformedFrame)


# Size limits.


@pytest.mark.requirement("D2")
@every_case("size", [0, 1, 7, 50])
@every_case("end", [b"\n", b"\r\n", b""])
def test_exactly_the_limit_passes_and_one_byte_more_does_not(size: int, end: bytes) -> None:
    fits, over = suggestion("x" * 100), suggestion("x" * 101)
    limit = len(fits)
    assert shown(frames(fits + end, size, limit)) == ["x" * 100]
    (oversized,) = frames(over + end, size, limit)
    assert oversized == OversizedMessage(len(over), limit, over[:4096], "prompt_suggestion")


@pytest.mark.requirement("D2")
@pytest.mark.parametrize("size", [0, 1, 7, 50])
def test_the_limit_is_the_same_for_every_line(size: int) -> None:
    fits, over = suggestion("x" * 100), suggestion("x" * 101)
    data = b"\r\n".join([fits, fits, over, fits, over, over, fits, b""])
    shown_as = {fits: "x" * 100, over: "OversizedMessage", b"": None}
    expected = [shown_as[line] for line in data.split(b"\r\n") if line]
    assert shown(frames(data, size, len(fits))) == expected


@pytest.mark.requirement("D2")
@pytest.mark.parametrize("size", [0, 1000])
def test_of_an_oversized_frame_the_first_bytes_are_kept(size: int) -> None:
    big = suggestion("".join(map(str, range(5000))))
    (oversized,) = frames(big + b"\n", size, limit=100)
    assert oversized == OversizedMessage(len(big), 100, big[:4096], "prompt_suggestion")


@pytest.mark.requirement("D2")
@pytest.mark.parametrize("size", [0, 3, 1000])
def test_the_stream_goes_on_after_an_oversized_frame(size: int) -> None:
    big = suggestion("y" * 5000)
    data = b"\n".join([suggestion("a"), big, suggestion("b"), big, big, suggestion("c")]) + b"\n"
    assert shown(frames(data, size, 1000)) == [
        "a",
        "OversizedMessage",
        "b",
        "OversizedMessage",
        "OversizedMessage",
        "c",
    ]


@pytest.mark.requirement("D2")
@pytest.mark.parametrize("size", [0, 1, 38, 41])
def test_only_one_carriage_return_belongs_to_the_line_end(size: int) -> None:
    (oversized,) = frames(b"x" * 40 + b"\r\r\n", size, limit=32)
    assert oversized == OversizedMessage(41, 32, b"x" * 40 + b"\r", None)


@pytest.mark.requirement("D2")
def test_the_limit_is_for_each_frame_not_for_all_together() -> None:
    line = suggestion("x" * 200) + b"\n"
    assert len(frames(line * 100, limit=400)) == 100


@pytest.mark.requirement("D2")
def test_an_object_that_goes_on_over_lines_is_limited_too() -> None:
    arrivals = frames(b'{"type":"assistant","a":[\n' + b"1,\n" * 100 + ALIVE + b"\n", limit=100)
    assert isinstance(arrivals[0], OversizedMessage)
    assert arrivals[0].frame_type == "assistant"
    assert isinstance(arrivals[-1], KeepAlive)


@pytest.mark.requirement("D2")
@pytest.mark.parametrize("size", [0, 1, 50])
def test_the_limit_is_the_same_for_objects_over_lines(size: int) -> None:
    def cut(text: str) -> bytes:
        return suggestion(text).replace(b" ", b"\n", 1)

    fits, over = cut("x" * 100), cut("x" * 101)
    data = b"\n".join([fits, over, fits, over, over, fits, fits])
    big = "OversizedMessage"
    expected = ["x" * 100, big, "x" * 100, big, big, "x" * 100, "x" * 100]
    assert shown(frames(data, size, len(fits) - 1)) == expected


@pytest.mark.requirement("D2")
def test_every_object_on_a_line_within_the_limit_is_within_it() -> None:
    line = b" ".join(map(suggestion, "abcdef"))
    assert shown(frames(line + b"\n", limit=len(line))) == list("abcdef")


@pytest.mark.requirement("D2")
@pytest.mark.parametrize("size", [0, 1, 50, 5000])
def test_an_object_does_not_go_on_behind_an_oversized_line(size: int) -> None:
    # With the line left out, what is around it would be a result that never was.
    lines = [b'{"type":"result",', b'"result":"' + b"x" * 200 + b'",', b'"is_error":false}', ALIVE]
    cut_off, oversized, rest, alive = frames(b"\n".join(lines), size, limit=100)
    assert cut_off == MalformedLine(lines[0], "cut off by a line over the size limit")
    assert oversized == OversizedMessage(len(lines[1]), 100, lines[1], None)
    assert rest == MalformedLine(lines[2], "not JSON")
    assert isinstance(alive, KeepAlive)


@pytest.mark.requirement("D2")
def test_the_type_of_an_oversized_result_is_found_though_it_comes_last() -> None:
    frame = {
        "duration_ms": 1,
        "usage": {"type": "nested"},
        "result": '"type":"user"' * 10_000,
        "type": "result",
        "uuid": "u",
    }
    (oversized,) = frames(json.dumps(frame).encode() + b"\n", 4096, limit=1000)
    assert isinstance(oversized, OversizedMessage)
    assert oversized.frame_type == "result"
    assert (oversized.raw, oversized.raw_json, oversized.type) == ({}, oversized.head, "oversized_message")


@pytest.mark.requirement("D2")
def test_the_type_of_an_oversized_frame_may_stay_unknown() -> None:
    (oversized,) = frames(b"{" + b"x" * 5000 + b"\n", limit=1000)
    assert isinstance(oversized, OversizedMessage)
    assert oversized.frame_type is None


@pytest.mark.requirement("D2")
@pytest.mark.parametrize("limit", [0, None])
def test_no_limit_is_the_default_limit(limit: int | None) -> None:
    assert DEFAULT_LIMIT == 256 * 1024 * 1024
    assert Framer(limit)._limit == DEFAULT_LIMIT


@pytest.mark.requirement("D2")
def test_a_negative_limit_is_refused() -> None:
    with pytest.raises(OptionsError, match="-1"):
        Framer(-1)


@pytest.mark.requirement("D2")
def test_an_oversized_frame_takes_no_more_memory_than_the_limit() -> None:
    chunk = b"x" * 65536
    framer = Framer(limit=1024 * 1024)
    tracemalloc.start()
    try:
        for _ in range(400):  # 25 MB
            framer.feed(chunk)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 * 1024 * 1024
    (oversized,) = framer.feed(b"\n")
    assert isinstance(oversized, OversizedMessage)
    assert oversized.size == 400 * 65536


@pytest.mark.requirement("D2")
def test_the_reader_raises_once_and_goes_on() -> None:
    data = [
        suggestion("a") + b"\n" + suggestion("b" * 500),
        b"\n" + suggestion("c") + b"\nnoise\n",
        suggestion("d"),
    ]
    reader = FrameReader(data, limit=100, strict=True)
    assert shown([next(reader)]) == ["a"]
    with pytest.raises(FrameTooLarge) as too_large:
        next(reader)
    assert (too_large.value.size, too_large.value.limit) == (len(suggestion("b" * 500)), 100)
    assert shown([next(reader)]) == ["c"]
    with pytest.raises(MalformedFrame) as malformed:
        next(reader)
    assert malformed.value.line == b"noise"
    assert shown(list(reader)) == ["d"]
    assert list(reader) == []


def test_the_reader_delivers_everything_when_it_is_not_strict() -> None:
    assert shown(list(FrameReader([b"noise\n", suggestion("a")]))) == [b"noise", "a"]


# Time.


def steps(work: Callable[[], object]) -> int:
    """How many Python lines and calls a piece of work takes: the same on every machine."""
    count = 0

    def trace(*_: object) -> Any:
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()  # a coverage measurement, perhaps
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.requirement("D1")
@every_case(
    "make",
    [
        pytest.param(lambda n: [b'{"type":"keep_alive","x":"' + b"y" * (n * 10) + b'"}\n'], id="one chunk"),
        pytest.param(lambda n: [b'{"x":"', *[b"y" * 10] * n, b'"}\n'], id="many chunks"),
        pytest.param(lambda n: [b'{"x":[' + b"1,\n" * n + b"1]}\n"], id="many lines"),
        pytest.param(lambda n: [b'{"x":[', *[b"1,\n"] * n, b"1]}\n"], id="many lines in many chunks"),
        pytest.param(lambda n: [ALIVE * n + b"\n"], id="many objects on a line"),
        pytest.param(lambda n: [b"{" * n + b"\n"], id="many brackets"),
        pytest.param(lambda n: [b"{}x" * n + b"\n"], id="objects and noise"),
        pytest.param(lambda n: [ALIVE + b"\n", ALIVE[:9]] * n, id="frames and pieces"),
        pytest.param(lambda n: [b'{"\n' + b'"\n' * n], id="texts that open and close"),
    ],
)
def test_work_is_linear_however_a_frame_comes(make: Callable[[int], list[bytes]]) -> None:
    def work(n: int) -> int:
        framer, chunks = Framer(), make(n)

        def run() -> None:
            for chunk in chunks:
                framer.feed(chunk)
            framer.flush()

        return steps(run)

    small, large = work(50), work(500)
    assert large <= 12 * small


# Any bytes at all.

LINES = st.one_of(
    st.sampled_from([data for data, _ in CASES.values() if len(data) < 500]),
    st.binary(max_size=30),
    st.text(max_size=30).map(lambda text: suggestion(text) + b"\n"),
    st.sampled_from(
        [b"\n", b"\r\n", b"{", b"}", b'"', b"\\", b"[", b"]", ALIVE, b"\xef\xbb\xbf", b"\x00", b" "]
    ),
)
STREAMS = st.lists(LINES, max_size=12).map(b"".join)


@pytest.mark.requirement("D1")
@given(data=STREAMS, cuts=st.lists(st.integers(0, 400), max_size=20), limit=st.sampled_from([None, 20, 60]))
@example(data=suggestion("a") + b"\r\n", cuts=[len(suggestion("a")) + 1], limit=len(suggestion("a")))
def test_any_chunking_of_the_same_bytes_gives_the_same_frames(
    data: bytes, cuts: list[int], limit: int | None
) -> None:
    framer = Framer(limit)
    arrivals: list[Arrival] = []
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    for start, end in itertools.pairwise(edges):
        arrivals += framer.feed(data[start:end])
    arrivals += framer.flush()
    whole = frames(data, limit=limit)
    assert arrivals == whole
    assert [arrival.raw_json for arrival in arrivals] == [arrival.raw_json for arrival in whole]


@pytest.mark.requirement("D1")
@given(garbage=STREAMS, limit=st.sampled_from([None, 60]))
def test_a_whole_line_is_never_lost_whatever_came_before(garbage: bytes, limit: int | None) -> None:
    whole = suggestion("behind")
    arrivals = frames(garbage + b"\n" + whole + b"\n", limit=limit)
    assert shown(arrivals)[-1] == "behind"
    assert arrivals[-1].raw_json == whole


@pytest.mark.requirement("D3")
@given(data=st.binary(max_size=300))
def test_every_byte_that_is_not_blank_is_delivered(data: bytes) -> None:
    delivered = b"".join(arrival.raw_json for arrival in frames(data))
    blank = b" \t\r\n\x00\xef\xbb\xbf"
    assert sorted(delivered.translate(None, blank)) == sorted(data.translate(None, blank))


def test_bytearrays_and_views_are_bytes_too() -> None:
    framer = Framer()
    buffer = bytearray(suggestion("a") + b"\n")
    (first,) = framer.feed(buffer)
    (second,) = framer.feed(memoryview(bytes(buffer)))
    buffer[:] = b"z" * len(buffer)
    assert first == second
    assert first.raw == {"type": "prompt_suggestion", "suggestion": "a"}


def test_a_frame_in_the_middle_of_a_broken_one_is_known_by_its_type() -> None:
    assert "assistant" in FRAME_TYPES
    assert "text" not in FRAME_TYPES


@pytest.mark.requirement("D4")
def test_every_frame_of_a_chunk_keeps_its_line_and_what_no_field_names() -> None:
    lines = [
        b'{"type":"keep_alive","new":1}',
        b'{"type": "stream_event","uuid":"u","session_id":"s","event":{},"new":[1]}',
        b'{"type":"system","subtype":"init","new":{"x":1}}',
        b'{"type":"user","message":{"role":"user","content":"yo","new":1}}',
    ]
    for chosen in (lines, lines[:2], lines[2:]):
        arrivals = frames(b"\n".join(chosen) + b"\n")
        assert [arrival.raw_json for arrival in arrivals] == chosen
        assert [arrival.raw for arrival in arrivals] == list(map(json.loads, chosen))
        assert [type(arrival) for arrival in arrivals] == [type(decode(line)) for line in chosen]


def test_frames_of_every_kind_in_one_stream() -> None:
    data = (
        b'{"type":"assistant","message":{"content":[{"type":"text","text":"hi"}],"model":"m"}}\n'
        b'{"type":"user","message":{"role":"user","content":"yo"}}\n'
        b'{"type":"new"}\n'
    )
    assistant, user, new = frames(data)
    assert assistant == AssistantMessage([TextBlock("hi")], "m")
    assert user == UserMessage("yo")
    assert new == UnknownMessage("new", {"type": "new"})
