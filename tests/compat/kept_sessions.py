"""Kept sessions of all kinds, laid out as the program and stores have them. Writes no files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from outrider.transcripts import Bundle, project_key
from outrider.wire import JsonObject
from tests.compat.kept_chains import CHAINS, made_up, tamed
from tests.compat.kept_chains import message_id as _u
from tests.compat.kept_heads import HEADS, ODD_HEADS, text_of
from tests.transcripts.keeping import bundle
from tests.transcripts.lines import answer, boundary, called, line, prompt, result, session_id, title

__all__ = [
    "AGENTS",
    "CAPITALS",
    "LONG",
    "MADE_UP",
    "PROJECT",
    "RECORDED_AGENT",
    "RECORDED_ID",
    "TAMED",
    "UNICODE",
    "UNKNOWN",
    "WIDE",
    "WORLDS",
]

MADE_UP = range(40)
TAMED = range(1000, 1120)

_RECORDED = Path(__file__).parents[1] / "transcripts" / "disk" / "recordings" / "projects"
PROJECT = "/srv/project"
UNICODE = "/srv/pro\u0301jekt 日本"
WIDE = "/srv/😀"
LONG = "/srv/" + "long/" * 60 + "é"
RECORDED_ID = "e0ef52c5-b615-4592-a5ab-aa6343859ea1"
RECORDED_AGENT = "aef16c071d1ed3ada"
UNKNOWN = session_id(999)
CAPITALS = "AB000000-0000-4000-8000-0000000000CD"
_TIME = 1_772_000_000

_Files = dict[str, tuple[str, float]]


def _file(files: _Files, number: int, lines: list[JsonObject] | str, project: str = PROJECT) -> None:
    name = f"projects/{project_key(project)}/{session_id(number)}.jsonl"
    files[name] = (text_of(lines), _TIME + number * 10 + 0.25)


def _part(files: _Files, number: int, subpath: str, lines: list[JsonObject] | str) -> None:
    files[f"projects/{project_key(PROJECT)}/{session_id(number)}/{subpath}"] = (text_of(lines), _TIME)


def _lists(heads: dict[str, list[JsonObject] | str]) -> dict[str, Any]:
    files: _Files = {}
    for number, lines in enumerate(heads.values(), 1):
        _file(files, number, lines)
    return {"files": files}


def _said() -> dict[str, Any]:
    files: _Files = {}
    for number, lines in enumerate(CHAINS.values(), 101):
        _file(files, number, lines)
    for seed in MADE_UP:
        _file(files, 301 + seed, made_up(seed))
    for seed in TAMED:
        _file(files, seed, tamed(made_up(seed, 60)))
    for path in sorted(_RECORDED.rglob("*")):
        if path.is_file():
            files[f"projects/{path.relative_to(_RECORDED).as_posix()}"] = (path.read_text(), _TIME)
    return {"files": files}


# Where they are, and their subagents.


def _in_projects(*projects: str) -> _Files:
    """Two sessions for each."""
    files: _Files = {}
    for number, project in enumerate(projects, 1):
        _file(files, number, [prompt("u1", cwd=project), answer("a1", "u1", cwd=project)], project)
        _file(files, number + 10, [prompt("u1", cwd=project), title(f"Second of {number}")], project)
    return files


def _odd_places() -> dict[str, Any]:
    files = _in_projects(PROJECT, WIDE, LONG)
    # Another runtime's checksum.
    other = project_key(LONG)[:200] + "-abc123"
    files[f"projects/{other}/{session_id(23)}.jsonl"] = (text_of([prompt("u1", cwd=LONG)]), _TIME + 520)
    files[f"projects/{other}/{session_id(24)}.jsonl"] = (text_of([prompt("u1", cwd=LONG + "x")]), _TIME + 530)
    files[f"projects/{project_key(PROJECT)}/{CAPITALS}.jsonl"] = (
        text_of([prompt("u1", None, "capital letters")]),
        _TIME + 540,
    )
    return {"files": files}


def _places() -> dict[str, Any]:
    files = _in_projects(PROJECT, UNICODE, LONG, "/srv/other")
    # The same session in two projects, the later one elsewhere.
    _file(files, 21, [prompt("u1", None, "in the project")])
    name = f"projects/{project_key('/srv/other')}/{session_id(21)}.jsonl"
    files[name] = (text_of([prompt("u1", None, "elsewhere", cwd="/srv/other")]), _TIME + 500)
    # A stub of the session that is elsewhere.
    _file(files, 22, "")
    name = f"projects/{project_key('/srv/other')}/{session_id(22)}.jsonl"
    files[name] = (text_of([prompt("u1", None, "not the stub")]), _TIME + 510)
    files["projects/not-a-session/notes.jsonl"] = ("{}\n", _TIME)
    files[f"projects/{project_key(PROJECT)}/{session_id(25)[:-1]}.jsonl"] = (text_of([prompt("u1")]), _TIME)
    files[f"projects/{project_key(PROJECT)}/{session_id(26)}.json"] = (text_of([prompt("u1")]), _TIME)
    _put(files, bundle(session_id(30)), 30)
    _part(
        files,
        30,
        "subagents/deep/er/agent-deep.jsonl",
        [prompt("d1", None, isSidechain=True, agentId="deep")],
    )
    _part(files, 30, "subagents/agent-empty.jsonl", "")
    _part(files, 30, "subagents/agent-damaged.jsonl", "{broken\n")
    _part(files, 30, "subagents/other.jsonl", [prompt("x1")])
    _part(files, 30, "subagents/agent-child.jsonl", [prompt("c1", isSidechain=True), answer("c2", "c1")])
    _part(
        files,
        30,
        "subagents/agent-child.meta.json",
        '{"toolUseId":"call-parent","parentAgentId":"first","agentType":"x"}',
    )
    _part(files, 30, "subagents/agent-broken-meta.jsonl", [prompt("k1", isSidechain=True)])
    _part(files, 30, "subagents/agent-broken-meta.meta.json", "{broken")
    _part(files, 30, "subagents/agent-odd-meta.jsonl", [prompt("o1", isSidechain=True)])
    _part(files, 30, "subagents/agent-odd-meta.meta.json", '{"toolUseId":5,"parentAgentId":null}')
    _part(
        files,
        30,
        "subagents/agent-branches.jsonl",
        [
            prompt("u1", isSidechain=True),
            answer("a1", "u1", isSidechain=True),
            prompt("u2", "a1", isSidechain=True, isMeta=True),
            answer("a2", "u2", isSidechain=True),
            prompt("u3", "a1", isSidechain=True, teamName="t"),
        ],
    )
    _part(
        files,
        30,
        "subagents/agent-parallel.jsonl",
        [
            prompt("u1", isSidechain=True),
            called("c1", "u1", "m1", isSidechain=True),
            called("c2", "c1", "m1", isSidechain=True),
            result("r1", "c1", source="c1", isSidechain=True),
            result("r2", "c2", source="c2", isSidechain=True),
            answer("a1", "r2", "m2", isSidechain=True),
        ],
    )
    _part(files, 30, "tool-results/out.txt", "x")
    return {"files": files}


def _put(files: _Files, kept: Bundle, number: int) -> None:
    _file(files, number, kept.entries)
    for subpath, part in kept.parts.items():
        said = [entry for entry in part if entry["type"] != "agent_metadata"]
        _part(files, number, f"{subpath}.jsonl", said)
        for told in (entry for entry in part if entry["type"] == "agent_metadata"):
            body = {name: value for name, value in told.items() if name != "type"}
            _part(files, number, f"{subpath}.meta.json", text_of([body]).rstrip("\n"))


AGENTS = [
    *("first", "nested", "late", "deep", "empty", "damaged", "other", "child"),
    *("broken-meta", "odd-meta", "branches", "parallel", "gone"),
]


# What is changed.


def _changed() -> dict[str, Any]:
    files: _Files = {}
    forked = [
        line("permission-mode", permissionMode="default"),
        prompt(_u(1), None, "Begin", slug="plan", teamName="", agentName="agent"),
        called(_u(2), _u(1), "m1", requestId="req"),
        line("progress", _u(3), _u(2)),
        result(_u(4), _u(3), _u(2), _u(2), toolUseResult={"stdout": "out", "agentId": "first"}),
        called(_u(5), _u(4), "m2"),
        called(_u(6), _u(5), "m2"),
        result(_u(7), _u(5), source=_u(5)),
        result(_u(8), _u(6), source=_u(6)),
        answer(_u(9), _u(8), "m3"),
        title("Titled"),
        {"type": "tag", "tag": "old", "sessionId": session_id(1)},
        prompt(_u(10), _u(9), "Go on"),
        answer(_u(11), _u(10), "m4"),
        {"type": "content-replacement", "sessionId": session_id(1), "replacements": [{"toolUseId": "c"}]},
        {"type": "content-replacement", "sessionId": session_id(1), "replacements": [{"toolUseId": "d"}]},
        {"type": "content-replacement", "sessionId": session_id(2), "replacements": [{"toolUseId": "e"}]},
        {"type": "last-prompt", "lastPrompt": "Go on", "leafUuid": _u(11), "sessionId": session_id(1)},
    ]
    _file(files, 1, forked)
    _part(files, 1, "subagents/agent-first.jsonl", [prompt(_u(20), None, isSidechain=True, agentId="first")])
    _part(files, 1, "subagents/agent-first.meta.json", '{"toolUseId":"t"}')
    _file(files, 2, text_of([prompt(_u(31)), answer(_u(32), _u(31))])[:-25])
    _file(files, 3, [title("Named only")])
    _file(files, 4, "")
    _file(files, 5, [prompt(_u(41), None, "Only a prompt")])
    _file(
        files,
        6,
        [
            prompt(_u(51)),
            answer(_u(52), _u(51)),
            boundary(_u(53), _u(52)),
            prompt(_u(54), _u(53), "Summed up", isCompactSummary=True),
            answer(_u(55), _u(54)),
            prompt(_u(56), _u(55), isSidechain=True),
            answer(_u(57), _u(56), isSidechain=True),
        ],
    )
    _file(files, 7, [prompt(_u(61), _u(62)), answer(_u(62), _u(61))])
    _file(files, 8, [prompt(_u(71), None, "x", isSidechain=True)])
    _file(
        files,
        9,
        text_of([prompt(_u(81)), {"type": "mode", "mode": "é"}])
        + "{broken\n"
        + text_of([answer(_u(82), _u(81))]),
    )
    name = f"projects/{project_key('/srv/other')}/{session_id(10)}.jsonl"
    files[name] = (text_of([prompt(_u(91), cwd="/srv/other")]), _TIME)
    _file(files, 11, [line("progress", _u(95)), line("system", _u(96), _u(95))])
    return {"files": files}


# Stores.


def _stored() -> dict[str, Any]:
    entries: list[tuple[dict[str, str], list[JsonObject]]] = []
    lists = [
        "plain",
        "title",
        "all titles",
        "tag cleared",
        "command",
        "sidechain",
        "only meta",
        "sidechain later",
    ]
    lists += ["quotes", "newlines", "no cwd"]
    for number, name in enumerate(lists, 1):
        lines = HEADS[name]
        assert isinstance(lines, list)
        entries.append(({"project_key": "-srv-project", "session_id": session_id(number)}, lines))
    for number, name in enumerate(("parallel", "compacted", "branches", "title only"), 21):
        lines = CHAINS[name]
        assert isinstance(lines, list)
        entries.append(({"project_key": "-srv-project", "session_id": session_id(number)}, lines))
    changed = _changed()["files"][f"projects/-srv-project/{session_id(1)}.jsonl"][0]
    kept = bundle(session_id(30))
    entries.append(({"project_key": "-srv-project", "session_id": session_id(30)}, kept.entries))
    for subpath, part in kept.parts.items():
        key = {"project_key": "-srv-project", "session_id": session_id(30), "subpath": subpath}
        entries.append((key, part))
    more: list[JsonObject] = [
        prompt("d1", isSidechain=True),
        {"type": "agent_metadata", "toolUseId": "one"},
        answer("d2", "d1", isSidechain=True),
        {"type": "agent_metadata", "toolUseId": "two", "parentAgentId": "first"},
    ]
    for subpath, part in {"subagents/deep/agent-deep": more, "other/agent-no": more}.items():
        key = {"project_key": "-srv-project", "session_id": session_id(30), "subpath": subpath}
        entries.append((key, part))
    entries.append(
        (
            {"project_key": "-srv-project", "session_id": session_id(40)},
            [json.loads(each) for each in changed.splitlines()],
        )
    )
    return {"files": {f"projects/-srv-project/{session_id(500)}.jsonl": ("", _TIME)}, "entries": entries}


def _imported() -> dict[str, Any]:
    files: _Files = _places()["files"]
    _put(files, bundle(session_id(31)), 31)
    _part(files, 31, "subagents/other.jsonl", [prompt("x1")])
    _part(files, 31, "subagents/deep/agent-deep.jsonl", [prompt("d1", isSidechain=True)])
    _part(files, 31, "tool-results/agent-no.jsonl", [prompt("x1")])
    _file(files, 32, "\n{broken\n[1]\n" + text_of([prompt("u1"), title("é")]) + '{"no": "type"}\n')
    _file(files, 33, text_of([prompt("u1"), answer("a1", "u1")])[:-20])
    return {"files": files, "entries": []}


WORLDS: dict[str, Any] = {
    "nothing": {"files": {}},
    "lists": _lists(HEADS),
    "odd lists": _lists(ODD_HEADS),
    "said": _said(),
    "places": _places(),
    "odd places": _odd_places(),
    "changed": _changed(),
    "stored": _stored(),
    "imported": _imported(),
}
