"""Every frame of the agent becomes a message that equals the reference's, field by field."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from outrider.compat import types
from outrider.compat._reading import as_in_reference
from outrider.wire import Message, TextBlock, Value, decode
from outrider.wire._blocks import BLOCK_TYPES
from tests.cases import every_case
from tests.compat.scripts import load, run_reference

frames: ModuleType = load("reference_messages")
COMMITTED = Path(__file__).parent / "reference" / "messages.jsonl.gz"
RECORDED: dict[tuple[str, int], dict[str, Any]] = {
    (recording, number): frame for recording, number, frame in frames.recorded()
}

EXPLAINED = {
    "CommandLifecycleMessage: dropped by the reference": "the drop-in hides it too; the native API has it",
    "ImageBlock: dropped by the reference": "blocks that the reference drops arrive",
    "RedactedThinkingBlock: dropped by the reference": "blocks that the reference drops arrive",
    "ToolProgressMessage: dropped by the reference": "whole types of frames that the reference drops arrive",
}
"""What may differ in frames that the agent really sends, and why."""

EXPLAINED_OF_MADE = {
    "user with an image": "blocks that the reference drops arrive",
    "redacted thinking": "blocks that the reference drops arrive",
    "web search": "blocks that the reference drops arrive",
    "unknown block": "blocks that the reference drops arrive, unknown ones as `UnknownBlock`",
    "user with origin without kind": "an object is kept as it is",
    "thinking without signature": "a message that lacks something does not end the session",
    "user without content": "a message that lacks something does not end the session",
    "block that is no object": "a message with an odd part does not end the session",
    "assistant with text": "a message with an odd part does not end the session",
    "assistant without model": "a message that lacks something does not end the session",
    "system without subtype": "a message that lacks something does not end the session",
    "task started without description": "a message that lacks something does not end the session",
    "result without turns": "a message that lacks something does not end the session",
    "stream event without event": "a message that lacks something does not end the session",
    "rate limit without id": "a message that lacks something does not end the session",
    "reset without id": "a message that lacks something does not end the session",
    "new type": "frames of a type that is not known arrive as `UnknownMessage`",
    "no type": "what is no message does not end the session",
}
"""What may differ in frames that nobody has seen yet, and why."""


def described() -> list[dict[str, Any]]:
    with gzip.open(COMMITTED, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


REFERENCE = described()


def differences(was: dict[str, Any], frame: dict[str, Any]) -> list[str]:
    """Where our message is not that of the reference."""
    ours = as_in_reference(cast("Message", decode(json.dumps(frame).encode())))
    if "error" in was:
        return [f"{type(ours).__name__}: the reference raises {was['error']}"]
    if was["message"] is None:
        return [f"{type(ours).__name__}: dropped by the reference"]
    return list(unequal(was["message"], ours, ""))


def unequal(was: Any, ours: Any, path: str) -> Iterator[str]:
    if isinstance(was, dict) and was.keys() == {"class", "fields"}:
        kind: type[Value] = getattr(types, was["class"])
        if type(ours) is not kind:
            yield f"{path}: {type(ours).__name__}, not {was['class']}"
            return
        for name, value in was["fields"].items():
            yield from unequal(value, getattr(ours, name), f"{path}.{name}")
    elif isinstance(was, list) and isinstance(ours, list) and any(isinstance(each, Value) for each in ours):
        yield from (f"{type(each).__name__}: dropped by the reference" for each in ours if is_new(each))
        for one, other in zip_longest(was, (each for each in ours if not is_new(each))):
            yield from unequal(one, other, f"{path}[]")
    elif was != ours or isinstance(was, bool) is not isinstance(ours, bool):
        yield f"{path}: {was!r}, here {ours!r}"


def is_new(block: object) -> bool:
    """Whether it is a block of a kind that the reference has no class for."""
    return type(block).__name__ not in vars(types)


def test_the_recorded_frames_are_equal() -> None:
    assert len(REFERENCE) > 150
    found = {
        difference
        for each in REFERENCE
        if isinstance(each["at"], list)
        for difference in differences(each, RECORDED[each["at"][0], each["at"][1]])
    }
    assert found == set(EXPLAINED)


@every_case("name", frames.MADE)
def test_a_frame_that_was_not_recorded_is_equal_or_explained(name: str) -> None:
    (was,) = [each for each in REFERENCE if each["at"] == name]
    found = differences(was, frames.MADE[name])
    assert bool(found) == (name in EXPLAINED_OF_MADE), found


def test_only_text_blocks_have_a_text() -> None:
    """Programs collect answers from blocks with `hasattr(block, "text")`: no output of a tool is one."""
    assert [kind for kind in BLOCK_TYPES.values() if hasattr(kind, "text")] == [TextBlock]


def test_every_message_class_is_compared() -> None:
    seen = {each["message"]["class"] for each in REFERENCE if each.get("message")}
    made_by_outrider = {"MirrorErrorMessage"}
    offered = {name for name in vars(types) if name.endswith(("Message", "Event"))}
    assert seen == offered - made_by_outrider - {"HookEvent", "Message", "SessionMessage"}


def test_all_frames_of_all_recordings_are_equal(tmp_path: Path) -> None:
    """Also shows that the committed file is what the reference gives."""
    printed = run_reference(str(frames.__file__), "--all", cwd=tmp_path)
    found: set[str] = set()
    every: dict[str, Any] = {}
    for line in printed.splitlines():
        was = json.loads(line)
        every[json.dumps(was["at"])] = was
        if isinstance(was["at"], list):
            found.update(differences(was, RECORDED[was["at"][0], was["at"][1]]))
    assert found == set(EXPLAINED)
    assert len(every) > 2000
    assert [each for each in REFERENCE if every[json.dumps(each["at"])] != each] == []
