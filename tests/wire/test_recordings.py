"""Every frame of every recording of the real program decodes, keeps its line, and encodes without loss."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest

from outrider.wire import (
    SYSTEM_SUBTYPES,
    AnyFrame,
    AssistantMessage,
    Frame,
    Framer,
    StreamEvent,
    SystemMessage,
    UnknownBlock,
    UnknownMessage,
    UnknownSystemMessage,
    UserMessage,
    decode,
    encode,
    frame_from_wire,
    to_wire,
)
from tests import tapes
from tests.cases import every_case

Object = dict[str, Any]

DIRECTIONS = ["cli->host", "host->cli"]


def recorded(name: str) -> list[tapes.Recorded]:
    return [
        record
        for record in tapes.read(name)
        if record.direction in DIRECTIONS and isinstance(record.frame, dict)
    ]


def only(line: bytes) -> AnyFrame:
    framer = Framer()
    (frame,) = framer.feed(line + b"\n") + framer.flush()
    assert isinstance(frame, Frame)
    return frame


@pytest.mark.requirement("A3")
@pytest.mark.requirement("D4")
@every_case("name", tapes.NAMES)
def test_every_frame_decodes_and_keeps_what_was_sent(name: str) -> None:
    for record in recorded(name):
        frame = only(record.line)
        assert not isinstance(frame, UnknownMessage | UnknownSystemMessage), record.frame
        assert frame.type == record.frame["type"]
        assert frame.raw == record.frame
        assert frame.raw_json == record.line


@pytest.mark.requirement("A2")
@every_case("name", tapes.NAMES)
def test_every_content_block_is_known(name: str) -> None:
    for record in recorded(name):
        frame = only(record.line)
        if isinstance(frame, UserMessage | AssistantMessage) and isinstance(frame.content, list):
            assert not [block for block in frame.content if isinstance(block, UnknownBlock)]


@every_case("name", tapes.NAMES)
def test_encoding_gives_back_the_frame(name: str) -> None:
    for record in recorded(name):
        assert msgspec.json.decode(encode(only(record.line))) == record.frame


@pytest.mark.requirement("A3")
@every_case("name", tapes.NAMES)
def test_every_field_is_typed(name: str) -> None:
    """Without its line, and without the `data` of a system message, a frame still says all it said."""
    missing: Counter[str] = Counter()
    for record in recorded(name):
        frame = only(record.line)
        more = msgspec.to_builtins(frame.details) if isinstance(frame, StreamEvent) else {}
        del frame.wire_line
        if isinstance(frame, SystemMessage):
            frame.data = {}
        wire = to_wire(frame) | more
        missing.update(lost(record.frame, wire, f"{type(frame).__name__}"))
    assert not missing


def lost(before: Any, after: Any, path: str) -> list[str]:
    """The paths of what is in `before` and not in `after`; what is empty counts as absent."""
    if before in (None, "", [], {}):
        return []
    if isinstance(before, dict) and isinstance(after, dict):
        return [
            found for key, value in before.items() for found in lost(value, after.get(key), f"{path}.{key}")
        ]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return [found for pair in zip(before, after, strict=True) for found in lost(*pair, f"{path}[]")]
    return [] if before == after else [path]


@every_case("name", tapes.NAMES)
def test_the_two_paths_agree(name: str) -> None:
    for record in recorded(name):
        assert frame_from_wire(record.frame) == decode(record.line)


@every_case("name", tapes.NAMES)
def test_strict_decoding_takes_all_of_it(name: str) -> None:
    for record in recorded(name):
        if record.direction == "cli->host":
            assert decode(record.line, strict=True) == decode(record.line)


def test_the_recordings_are_there() -> None:
    assert len(tapes.NAMES) > 100
    subtypes = {
        record.frame.get("subtype")
        for name in tapes.NAMES
        for record in recorded(name)
        if record.frame["type"] == "system"
    }
    assert subtypes <= set(SYSTEM_SUBTYPES)
    assert len(subtypes) > 20
