"""Transcripts of all kinds for property tests: branches, circles, calls side by side, compaction, damage."""

from __future__ import annotations

from typing import Any, TypeVar

from hypothesis import strategies as st

from outrider.wire import JsonObject
from tests.transcripts.lines import answer, boundary, called, line, prompt, result, title

__all__ = ["transcripts"]

T = TypeVar("T")


def transcripts(longest: int = 40) -> st.SearchStrategy[list[JsonObject]]:
    """Lines of a transcript; most entries follow one of the last few, some follow anything or nothing."""
    return st.lists(st.integers(0, 2**40), max_size=longest).map(_made)


class _Chooser:
    """Makes choices of a number: one draw for each line is much faster than one for each choice."""

    def __init__(self, number: int) -> None:
        self._number = number

    def below(self, end: int) -> int:
        self._number, chosen = divmod(self._number, end)
        return chosen

    def one_of(self, *things: T) -> T:
        return things[self.below(len(things))]

    def is_one_in(self, count: int) -> bool:
        return self.below(count) == count - 1


def _made(numbers: list[int]) -> list[JsonObject]:
    made: list[JsonObject] = []
    uuids: list[str] = []
    calls: list[str] = []
    answers = 0
    for place, number in enumerate(numbers):
        choose = _Chooser(number)
        kind = choose.one_of(*_KINDS)
        parent = _parent(choose, uuids)
        uuid = choose.one_of(*uuids) if uuids and choose.is_one_in(15) else f"e{place}"
        answers += choose.is_one_in(3)
        message = f"m{answers - (answers > 0 and choose.is_one_in(3))}"
        fields = choose.one_of(*_ODD) if choose.is_one_in(7) else {}
        if kind == "title":
            made.append(title(f"title {place}"))
            continue
        made.append(_line(choose, kind, uuid, parent, message, calls, fields))
        uuids.append(uuid)
    return made


def _line(
    choose: _Chooser,
    kind: str,
    uuid: str,
    parent: str | None,
    message: str,
    calls: list[str],
    fields: dict[str, Any],
) -> JsonObject:
    if kind == "prompt":
        return {**prompt(uuid, parent), **fields}
    if kind == "answer":
        return {**answer(uuid, parent, message), **fields}
    if kind == "call":
        calls.append(uuid)
        return {**called(uuid, parent, message), **fields}
    if kind == "result":
        call = choose.one_of(*calls[-4:]) if calls else None
        follows = parent if choose.is_one_in(3) else call
        source = None if choose.is_one_in(2) else call
        return {**result(uuid, follows, call, source), **fields}
    if kind == "boundary":
        return boundary(uuid, parent)
    return line(kind, uuid, parent) | fields


_KINDS = [
    "prompt",
    "answer",
    "answer",
    "call",
    "call",
    "result",
    "result",
    "attachment",
    "progress",
    "boundary",
    "title",
    "system",
]

_ODD: list[dict[str, Any]] = [
    {"isMeta": True},
    {"isSidechain": True, "agentId": "a1"},
    {"teamName": "team"},
    {"isCompactSummary": True},
    {"timestamp": "2026-03-01T11:59:00.000Z"},
    {"timestamp": 5},
    {"uuid": 7},
    {"message": "text"},
    {"type": None},
    {"parentUuid": 3},
]


def _parent(choose: _Chooser, uuids: list[str]) -> str | None:
    if not uuids or choose.is_one_in(20):
        return None
    if choose.is_one_in(12):
        # Perhaps later in the file, or nowhere.
        return f"e{choose.below(60)}"
    return choose.one_of(*uuids[-5:]) if choose.is_one_in(3) else uuids[-1]
