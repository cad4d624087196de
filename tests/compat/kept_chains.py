"""Kept sessions in which something is said: conversations with one oddity each, and made-up ones."""

from __future__ import annotations

import random

from outrider.wire import JsonObject
from tests.compat.kept_heads import text_of
from tests.transcripts.lines import answer, boundary, called, line, prompt, result, session_id, title
from tests.transcripts.made_up import _made

__all__ = ["CHAINS", "CHAIN_IDS", "made_up", "message_id", "tamed"]


def message_id(number: int) -> str:
    """An id of a message that can be forked at: these have to be UUIDs."""
    return session_id(7000 + number)


_u = message_id
CHAINS: dict[str, list[JsonObject] | str] = {
    "talk": [prompt(_u(1)), answer(_u(2), _u(1)), prompt(_u(3), _u(2)), answer(_u(4), _u(3))],
    "branches": [
        prompt("u1"),
        answer("a1", "u1"),
        prompt("u2", "a1"),
        answer("a2", "u2"),
        prompt("u3", "a1"),
        answer("a3", "u3"),
    ],
    "cycle": [prompt("u1", "a2"), answer("a1", "u1"), prompt("u2", "a1"), answer("a2", "u2")],
    "cycle of itself": [prompt("u1", "u1"), answer("a1", "u1")],
    "all in a cycle": [prompt("u1", "a1"), answer("a1", "u1")],
    "missing parent": [prompt("u1"), answer("a1", "gone"), prompt("u2", "a1")],
    "parent below": [answer("a1", "u1"), prompt("u1")],
    "sidechains": [
        prompt("u1"),
        answer("a1", "u1"),
        prompt("s1", "a1", isSidechain=True),
        answer("s2", "s1", isSidechain=True),
    ],
    "branches and sidechains": [
        prompt("u1"),
        answer("a1", "u1"),
        prompt("u2", "u1"),
        answer("a2", "u2"),
        prompt("s1", "a2", isSidechain=True),
    ],
    "only sidechains": [prompt("s1", None, isSidechain=True), answer("s2", "s1", isSidechain=True)],
    "meta": [prompt("u1"), prompt("u2", "u1", "meta", isMeta=True), answer("a1", "u2")],
    "meta last": [prompt("u1"), answer("a1", "u1"), prompt("u2", "a1", "meta", isMeta=True)],
    "team": [prompt("u1"), answer("a1", "u1"), answer("a2", "a1", teamName="team")],
    "compacted": [
        prompt("u1"),
        answer("a1", "u1"),
        boundary("b", "a1"),
        prompt("u2", "b", "summary", isCompactSummary=True),
        prompt("u3", "u2"),
        answer("a3", "u3"),
    ],
    "parallel": [
        prompt("u1"),
        called("c1", "u1", "m1"),
        called("c2", "c1", "m1"),
        called("c3", "c2", "m1"),
        result("r1", "c1", source="c1"),
        result("r2", "c2", source="c2"),
        result("r3", "c3", source="c3"),
        answer("a1", "r3", "m2"),
    ],
    "parallel, first result followed": [
        prompt("u1"),
        called("c1", "u1", "m1"),
        called("c2", "c1", "m1"),
        result("r2", "c2", source="c2"),
        result("r1", "c1", source="c1"),
        answer("a1", "r1", "m2"),
        prompt("u2", "a1"),
    ],
    "progress": [
        prompt("u1"),
        called("c1", "u1", "m1"),
        line("progress", "p1", "c1"),
        result("r1", "p1", "c1", "c1"),
        answer("a1", "r1", "m2"),
        line("progress", "p2", "a1"),
        line("attachment", "x1", "p2"),
    ],
    "system last": [prompt("u1"), answer("a1", "u1"), line("system", "y1", "a1", content="done")],
    "attachment between": [prompt("u1"), line("attachment", "x1", "u1"), answer("a1", "x1")],
    "no uuid": [prompt("u1"), {key: value for key, value in answer("a1", "u1").items() if key != "uuid"}],
    "uuid twice": [prompt("u1"), answer("a1", "u1"), prompt("u1", "a1", "again"), answer("a2", "u1")],
    "no message": [
        {key: value for key, value in prompt("u1").items() if key != "message"},
        answer("a", "u1"),
    ],
    "no session": [{key: value for key, value in prompt("u1").items() if key != "sessionId"}],
    "half a line": text_of([prompt("u1"), answer("a1", "u1"), prompt("u2", "a1")])[:-30],
    "damaged": text_of([prompt("u1")]) + "{broken\n" + text_of([answer("a1", "u1")]) + "[]\n5\n",
    "damaged parent": text_of([prompt("u1"), answer("a1", "u1")]).replace('"uuid":"u1"', '"uuid":"u1')
    + text_of([prompt("u2", "a1")]),
    "bad bytes": text_of([prompt("u1", None, "cafe"), answer("a1", "u1")]).replace("cafe", "caf\udce9"),
    "big numbers": text_of([prompt("u1"), answer("a1", "u1", big=1)]).replace('"big":1', '"big":1e999'),
    "empty": "",
    "title only": [title("Named")],
    "called by a tool": [prompt("u1", None, parentToolUseID="t1", parent_tool_use_id="t2")],
    "flags of other types": [prompt("u1", isMeta=1), answer("a1", "u1", isSidechain="no", teamName="")],
    "parent of another type": [{**prompt("u1"), "parentUuid": 5}, answer("a1", "u1")],
    "NaN": text_of([prompt("u1", None, extra=1)]).replace('"extra":1', '"extra":NaN'),
    "deep": text_of([prompt("u1", None, extra=1)]).replace('"extra":1', '"extra":' + "[" * 400 + "]" * 400),
    "unhashable": [{**prompt("u1"), "uuid": ["x"]}, answer("a1", None)],
}
CHAIN_IDS = {name: session_id(number) for number, name in enumerate(CHAINS, 101)}


def made_up(seed: int, longest: int = 30) -> list[JsonObject]:
    """A transcript of any kind."""
    chosen = random.Random(seed)
    return _made([chosen.randrange(2**40) for _ in range(chosen.randrange(2, longest))])


def tamed(lines: list[JsonObject]) -> list[JsonObject]:
    """The lines without those that the program would not write so: an id that is there already, a parent that
    is not before it, a field of another type, a block of an answer after something else came, lines of
    subagents in between."""
    kept: list[JsonObject] = []
    known: set[str] = set()
    ended: set[str] = set()
    current: str | None = None
    for each in lines:
        uuid, parent, message = each.get("uuid"), each.get("parentUuid"), each.get("message")
        if "uuid" not in each:
            kept.append(each)
            continue
        if not isinstance(uuid, str) or uuid in known or not isinstance(each.get("type"), str):
            continue
        if parent is not None and parent not in known:
            continue
        if each.get("isSidechain") or "teamName" in each:
            continue
        id = message.get("id") if isinstance(message, dict) else None
        if each["type"] == "assistant" and id == current and parent is None:
            continue
        if each["type"] == "assistant" and id != current:
            if id in ended or not isinstance(id, str):
                continue
            ended.add(id)
            current = id
        elif each["type"] == "system" or isinstance(_content(message), str):
            # Nothing of the answer comes after what somebody said.
            current = None
        known.add(uuid)
        kept.append(each)
    return kept


def _content(message: object) -> object:
    return message.get("content") if isinstance(message, dict) else None
