"""The expected course of each scenario, in files, as the program itself has shown it; and how others differ.

Does not say which differences are meant: `differences` does.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, NamedTuple

from tests.conformance.shapes import CUT

__all__ = ["Deviation", "compare", "golden_path", "read_golden", "write_golden"]

FOLDER = Path(__file__).with_name("golden")


class Deviation(NamedTuple):
    """One way in which a run is not as expected."""

    frame: str
    """What sort of frame it is in."""
    key: str
    """Where in the frame; empty for the whole frame."""
    expected: object
    actual: object

    def __str__(self) -> str:
        place = f"{self.frame} {self.key or '(whole)'}"
        return f"{place}: expected {_short(self.expected)}, got {_short(self.actual)}"


MISSING = "(nothing)"

BEGINNING = 25
"""How much of a longer text has to be the same, in characters, if it is said in other words."""


def golden_path(name: str) -> Path:
    return FOLDER / f"{name}.json"


def read_golden(name: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(golden_path(name).read_text(encoding="utf-8"))
    return read


def write_golden(name: str, course: dict[str, Any]) -> None:
    """One line for each frame, so that a change of one is a change of one line."""
    FOLDER.mkdir(exist_ok=True)
    golden_path(name).write_text(_laid_out(course) + "\n", encoding="utf-8")


def _laid_out(value: Any, depth: int = 0) -> str:
    inner, outer = "  " * (depth + 1), "  " * depth
    text = json.dumps(value, ensure_ascii=False)
    if depth >= 4 or len(text) <= 100 or not value:
        return text
    match value:
        case dict():
            parts = [f"{json.dumps(key)}: {_laid_out(each, depth + 1)}" for key, each in value.items()]
            opening, closing = "{", "}"
        case list():
            parts = [_laid_out(each, depth + 1) for each in value]
            opening, closing = "[", "]"
        case _:
            return text
    return f"{opening}\n{inner}" + f",\n{inner}".join(parts) + f"\n{outer}{closing}"


def compare(
    expected: dict[str, Any], actual: dict[str, Any], *, in_own_words: bool = False
) -> list[Deviation]:
    """All that differs.

    The program's longer texts are prose for a model or a person. One that says them `in_own_words` only has
    to begin in the same way.
    """
    found = list(_courses(expected, actual))
    return [each for each in found if not (in_own_words and _is_reworded(each))]


def _is_reworded(deviation: Deviation) -> bool:
    expected, actual = deviation.expected, deviation.actual
    if not isinstance(expected, str) or not isinstance(actual, str) or not expected.endswith(CUT):
        return False
    return actual.startswith(expected[:BEGINNING])


def _courses(expected: dict[str, Any], actual: dict[str, Any]) -> list[Deviation]:
    found: list[Deviation] = []
    if len(expected["runs"]) != len(actual["runs"]):
        found.append(Deviation("runs", "", len(expected["runs"]), len(actual["runs"])))
    for one, other in zip(expected["runs"], actual["runs"], strict=False):
        found += _sequences(one["frames"], other["frames"], label)
        for key in ("mirrored", "output", "exit_code", "stderr"):
            found += _values("run", key, one.get(key), other.get(key))
    if "requests" in actual:
        # Each kind by itself: a subagent in the background asks when it gets round to it.
        for kind in sorted({request["kind"] for request in expected["requests"] + actual["requests"]}):
            ours, theirs = (
                [request for request in one["requests"] if request["kind"] == kind]
                for one in (actual, expected)
            )
            found += _sequences(theirs, ours, lambda request: f"request {request['kind']}")
    return found


def label(frame: dict[str, Any]) -> str:
    """What sort of frame it is: as much as tells apart those that follow each other."""
    name = str(frame.get("type"))
    match frame:
        case {"type": "control_request", "request": {"subtype": subtype, **rest}}:
            message: Any = rest.get("message", {})
            detail = rest.get("tool_name") or rest.get("callback_id") or message.get("method")
            return f"{name}/{subtype}" + (f" {detail}" if detail else "")
        case {"type": "control_response", "response": {"request_id": id}}:
            return f"{name} {id}"
        case {"type": "stream_event", "event": {"type": event}}:
            return f"{name}/{event}"
        case {"type": "assistant" | "user", "message": {"content": [{"type": block}, *_]}}:
            return f"{name}/{block}" + (" of a subagent" if frame.get("parent_tool_use_id") else "")
        case {"type": "command_lifecycle", "state": state}:
            return f"{name}/{state}"
        case {"subtype": "session_state_changed", "state": state}:
            return f"{name}/session_state_changed {state}"
        case {"subtype": subtype}:
            return f"{name}/{subtype}"
        case _:
            return name


def _sequences(expected: list[Any], actual: list[Any], name: Any) -> Iterator[Deviation]:
    before, after = [name(each) for each in expected], [name(each) for each in actual]
    for tag, a, b, c, d in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag == "equal":
            for one, other in zip(expected[a:b], actual[c:d], strict=True):
                yield from _values(name(one), "", one, other)
            continue
        for one in expected[a:b]:
            yield Deviation(name(one), "", one, MISSING)
        for other in actual[c:d]:
            yield Deviation(name(other), "", MISSING, other)


def _values(frame: str, key: str, expected: Any, actual: Any) -> Iterator[Deviation]:
    if isinstance(expected, dict) and isinstance(actual, dict):
        for name in sorted({*expected, *actual}):
            inner = f"{key}.{name}" if key else name
            yield from _values(frame, inner, expected.get(name, MISSING), actual.get(name, MISSING))
    elif isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        for at, (one, other) in enumerate(zip(expected, actual, strict=True)):
            yield from _values(frame, f"{key}[{at}]", one, other)
    elif expected != actual:
        yield Deviation(frame, key, expected, actual)


def _short(value: object) -> str:
    text = value if value == MISSING else json.dumps(value, ensure_ascii=False)
    return str(text) if len(str(text)) <= 300 else f"{str(text)[:300]}…"
