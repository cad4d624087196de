"""Kept sessions of which lists tell: each a transcript with one oddity."""

from __future__ import annotations

from outrider.wire import JsonObject
from tests.transcripts.lines import answer, called, line, prompt, result, session_id, title, written

__all__ = ["HEADS", "HEAD_IDS", "ODD_HEADS", "ODD_HEAD_IDS", "text_of"]


def text_of(lines: list[JsonObject] | str) -> str:
    return lines if isinstance(lines, str) else written(lines).decode("utf-8", "surrogateescape")


_TAGGED: list[JsonObject] = [{"type": "tag", "tag": "old"}, {"type": "tag", "tag": "new"}]
HEADS: dict[str, list[JsonObject] | str] = {
    "plain": [prompt("u1"), answer("a1", "u1")],
    "title": [prompt("u1"), title("First"), answer("a1", "u1"), title("Second")],
    "title with spaces": [prompt("u1"), title("  a  \n b "), answer("a1", "u1")],
    "empty title": [prompt("u1"), title("Named"), title("")],
    "empty branch": [prompt("u1"), answer("a1", "u1", gitBranch="")],
    "empty last prompt": [
        prompt("u1"),
        {"type": "last-prompt", "lastPrompt": "The last"},
        {"type": "last-prompt", "lastPrompt": ""},
    ],
    "empty made-up title": [
        prompt("u1"),
        {"type": "ai-title", "aiTitle": "Made up"},
        {"type": "ai-title", "aiTitle": ""},
    ],
    "title over a made-up one": [prompt("u1"), title("Given"), {"type": "ai-title", "aiTitle": "Made up"}],
    "made-up title": [prompt("u1"), {"type": "ai-title", "aiTitle": "Made up"}, answer("a1", "u1")],
    "last prompt": [prompt("u1"), {"type": "last-prompt", "lastPrompt": "The last", "sessionId": "x"}],
    "summary": [{"type": "summary", "summary": "In short", "leafUuid": "u1"}, prompt("u1")],
    "summary alone": [{"type": "summary", "summary": "In short", "leafUuid": "u1"}],
    "all titles": [
        {"type": "summary", "summary": "In short", "leafUuid": "u1"},
        prompt("u1"),
        {"type": "last-prompt", "lastPrompt": "The last"},
        {"type": "ai-title", "aiTitle": "Made up"},
    ],
    "tag": [prompt("u1"), *_TAGGED],
    "tag cleared": [prompt("u1"), *_TAGGED, {"type": "tag", "tag": ""}],
    "tag in a call": [prompt("u1"), *_TAGGED, called("a1", "u1", "m", tag="docker")],
    "meta first": [prompt("u0", None, "meta", isMeta=True), prompt("u1", "u0", "said")],
    "compacted first": [prompt("u0", None, "sum", isCompactSummary=True), prompt("u1", "u0", "said")],
    "only meta": [prompt("u0", None, "meta", isMeta=True), answer("a", "u0")],
    "command": [
        prompt("u1", None, "<command-name>/model</command-name> x"),
        prompt("u2", "u1", "<local-command-stdout>Set</local-command-stdout>"),
        answer("a", "u2"),
    ],
    "command then prompt": [
        prompt("u1", None, "<command-name>/model</command-name>"),
        prompt("u2", "u1", "Real one"),
    ],
    "empty command": [prompt("u1", None, "<command-name></command-name>"), answer("a", "u1")],
    "tick": [prompt("u1", None, "<tick>12</tick>"), prompt("u2", "u1", "after tick")],
    "goal": [prompt("u1", None, "<goal>go</goal>"), prompt("u2", "u1", "after goal")],
    "interrupted": [prompt("u1", None, "[Request interrupted by user]"), prompt("u2", "u1", "after")],
    "interrupted for tool": [
        prompt("u1", None, "[Request interrupted by user for tool use]"),
        prompt("u2", "u1", "after"),
    ],
    "ide file": [
        prompt("u1", None, "<ide_opened_file>a.py</ide_opened_file>"),
        prompt("u2", "u1", "after"),
    ],
    "ide file and words": [prompt("u1", None, "<ide_opened_file>a.py</ide_opened_file> and words")],
    "ide selection": [
        prompt("u1", None, "<ide_selection>a\nb</ide_selection>\n"),
        prompt("u2", "u1", "after"),
    ],
    "bash input": [prompt("u1", None, "<bash-input>ls</bash-input>"), prompt("u2", "u1", "after")],
    "space before a mark": [prompt("u1", None, "  <tick>1"), prompt("u2", "u1", "after")],
    "mark in capitals": [prompt("u1", None, "<TICK>1"), prompt("u2", "u1", "after")],
    "blank prompt": [prompt("u1", None, "  \n "), prompt("u2", "u1", "after")],
    "blocks": [line("user", "u1", message={"content": [{"type": "text", "text": "in a block"}]})],
    "two blocks": [
        line(
            "user",
            "u1",
            message={"content": [{"type": "text", "text": "<tick>"}, {"type": "text", "text": "second"}]},
        )
    ],
    "image block": [
        line("user", "u1", message={"content": [{"type": "image"}, {"type": "text", "text": "look"}]})
    ],
    "result first": [result("u1", None), prompt("u2", "u1", "after")],
    "result and text": [
        line(
            "user",
            "u1",
            message={"content": [{"type": "tool_result", "tool_use_id": "t"}, {"type": "text", "text": "x"}]},
        ),
        prompt("u2", "u1", "after"),
    ],
    "long prompt": [prompt("u1", None, "word " * 100)],
    "200": [prompt("u1", None, "x" * 200)],
    "201": [prompt("u1", None, "x" * 201)],
    "cut at a space": [prompt("u1", None, "x" * 199 + " " + "y" * 50)],
    "newlines": [prompt("u1", None, "\none\ntwo\r\nthree\tfour  five\n")],
    "long title": [prompt("u1"), title("t" * 500)],
    "quotes": [prompt("u1", None, 'say "hi" \\ back\\"slash'), title('a "quoted" \\ title\u00e9\n😀')],
    "no text": [line("user", "u1", message={"content": []}), answer("a", "u1")],
    "message is text": [{**prompt("u1"), "message": "text"}, answer("a", "u1")],
    "sidechain": [prompt("u1", None, "side", isSidechain=True), answer("a", "u1", isSidechain=True)],
    "sidechain later": [prompt("u1"), answer("a", "u1", isSidechain=True)],
    "no cwd": [{key: value for key, value in prompt("u1").items() if key not in ("cwd", "gitBranch")}],
    "branches": [prompt("u1", gitBranch="one"), answer("a", "u1", gitBranch="two")],
    "cwd twice": [prompt("u1", cwd="/srv/one"), answer("a", "u1", cwd="/srv/two")],
    "no times": [{key: value for key, value in prompt("u1").items() if key != "timestamp"}],
    "time with zone": [prompt("u1", timestamp="2026-03-01T12:00:00.123456+02:00")],
    "time without zone": [prompt("u1", timestamp="2026-03-01T12:00:00")],
    "time on the second line": [{"type": "mode", "mode": "x"}, prompt("u1")],
    "half a line": text_of([prompt("u1"), answer("a", "u1")])[:-40],
    "half a title": text_of([prompt("u1"), title("Whole")]) + '{"type":"custom-title","customTitle":"Half',
    "damaged lines": "nonsense\n{}\n[1]\n\x00\x00\n" + text_of([prompt("u1"), answer("a", "u1")]) + '{"x":\n',
    "bad bytes": text_of([prompt("u1", None, "one")]) + "\udcff\udcfe\n" + text_of([title("After")]),
    "blank lines": "\n\n  \n" + text_of([prompt("u1")]) + "\n\n",
    "blank only": "\n\n\n",
    "one byte": "x",
    "empty": "",
    "no newline at the end": text_of([prompt("u1"), answer("a", "u1")]).rstrip("\n"),
    "CRLF": text_of([prompt("u1"), title("Crlf")]).replace("\n", "\r\n"),
    "metadata only": [title("Named"), {"type": "tag", "tag": "t"}],
    "large": [
        prompt("u1", None, "large one"),
        *(answer(f"a{n}", "u1", blob="x" * 9000) for n in range(30)),
        title("At the end"),
        {"type": "tag", "tag": "end"},
    ],
    "title in the middle": [
        prompt("u1", None, "large one"),
        *(answer(f"a{n}", "u1", blob="x" * 9000) for n in range(15)),
        title("Lost in the middle"),
        {"type": "tag", "tag": "middle"},
        *(answer(f"b{n}", "u1", blob="x" * 9000) for n in range(15)),
    ],
    "long last line": [prompt("u1"), title("Before"), answer("a", "u1", blob="x" * 200_000)],
    "queued": [
        {"type": "queue-operation", "operation": "enqueue", "timestamp": "2026-02-01T00:00:00.000Z"},
        prompt("u1"),
    ],
}

ODD_HEADS: dict[str, list[JsonObject] | str] = {
    "tag with fields before": [prompt("u1"), {"sessionId": "x", "type": "tag", "tag": "late type"}],
    "empty cwd": [prompt("u1", cwd="", gitBranch=""), answer("a", "u1", cwd="/srv/two")],
    "bad time": [prompt("u1", timestamp="yesterday"), answer("a", "u1")],
    "spaced JSON": '{"type": "user", "uuid": "u1", "cwd": "/srv/spaced", "gitBranch": "b", "timestamp": '
    '"2026-03-01T12:00:00.000Z", "message": {"role": "user", "content": "spaced"}}\n'
    '{"type": "custom-title", "customTitle": "Spaced title"}\n{"type": "tag", "tag": "spaced"}\n',
    "BOM": "\ufeff" + text_of([prompt("u1"), answer("a", "u1")]),
    "title at the beginning": [
        prompt("u1", None, "large one"),
        title("At the beginning"),
        {"type": "tag", "tag": "beginning"},
        *(answer(f"b{n}", "u1", blob="x" * 9000) for n in range(30)),
    ],
    "long first line": [prompt("u1", None, "y" * 150_000), answer("a", "u1"), prompt("u2", "a", "second")],
    "long first line that is no prompt": [
        {"type": "file-history-snapshot", "snapshot": "z" * 100_000},
        prompt("u1", None, "behind it"),
        answer("a", "u1"),
    ],
    "file history first": [
        {
            "type": "file-history-snapshot",
            "messageId": "m",
            "snapshot": {"timestamp": "2026-01-01T00:00:00.000Z"},
        },
        prompt("u1"),
    ],
}
"""In these, the two packages do not see the same."""

HEAD_IDS = {name: session_id(number) for number, name in enumerate(HEADS, 1)}
ODD_HEAD_IDS = {name: session_id(number) for number, name in enumerate(ODD_HEADS, 1)}
