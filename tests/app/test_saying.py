"""What is shown of a frame, in words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from outrider._display import printable
from outrider.app._render import DisplayLine, call_in_words, describe, money, tool_name
from outrider.wire import decode
from tests import tapes
from tests.cases import every_case


def shown(frame: dict[str, Any], **more: Any) -> list[DisplayLine]:
    return list(describe(decode(json.dumps(frame).encode()), **more))


def assistant(*blocks: dict[str, Any], **more: Any) -> dict[str, Any]:
    message = {"id": "m", "role": "assistant", "model": "x", "content": list(blocks)}
    return {"type": "assistant", "message": message, **more}


def test_a_message_is_shown_block_by_block() -> None:
    frame = assistant(
        {"type": "thinking", "thinking": "Hm.", "signature": ""},
        {"type": "text", "text": "Let me look.\n"},
        {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "ls  -la"}},
        {"type": "text", "text": "  \n"},
    )
    assert shown(frame) == [
        DisplayLine("thinks", "Hm."),
        DisplayLine("agent", "Let me look."),
        DisplayLine("tool", "ls -la", "Bash"),
    ]


def test_what_subagents_say_is_beside_the_conversation() -> None:
    frame = assistant({"type": "text", "text": "Hm."}, parent_tool_use_id="t")
    assert [each.is_aside for each in shown(frame)] == [True]


@pytest.mark.parametrize("is_error, kind", [(True, "fails"), (False, "returns")])
def test_what_a_tool_gives_is_told_from_what_goes_wrong(is_error: bool, kind: str) -> None:
    block = {"type": "tool_result", "tool_use_id": "t", "content": "no\n", "is_error": is_error}
    frame = {"type": "user", "message": {"role": "user", "content": [block]}}
    assert [(each.kind, each.text) for each in shown(frame)] == [(kind, "no")]


@every_case(
    "name, input, cwd, words",
    [
        ("Read", {"file_path": "/project/src/a.py"}, "/project", "src/a.py"),
        ("Read", {"file_path": "/workshop/a.py"}, "/project", "/workshop/a.py"),
        ("Bash", {"command": "cat /project/a"}, "/project", "cat /project/a"),
        ("mcp__tools__lookup", {"ticket": 7, "deep": True}, None, "ticket=7 deep=true"),
        ("Bash", {"command": ["odd"]}, None, 'command=["odd"]'),
        ("Bash", {"command": "a\n  b"}, None, "a b"),
        ("Glob", {}, None, ""),
        ("Write", {"file_path": "x" * 300}, None, "x" * 199 + "…"),
    ],
)
def test_a_call_is_told_on_one_line(name: str, input: dict[str, Any], cwd: str | None, words: str) -> None:
    assert call_in_words(name, input, cwd) == words


@pytest.mark.parametrize(
    "name, shown", [("Bash", "Bash"), ("mcp__tools__lookup", "lookup"), ("mcp__git__log", "git.log")]
)
def test_a_tool_has_a_name_for_people(name: str, shown: str) -> None:
    assert tool_name(name) == shown


@pytest.mark.parametrize(
    "text, safe",
    [
        ("a\x1b[31mb", "a�[31mb"),
        ("a\r\nb", "a\nb"),
        ("a\rb", "a�b"),
        ("\x9b31m", "�31m"),
        ("exe.\u202etxt", "exe.�txt"),
        ("\ttab", "    tab"),
        ("ÄÖÜ 漢字 🙂", "ÄÖÜ 漢字 🙂"),
    ],
    ids=repr,
)
def test_no_text_can_command_the_terminal(text: str, safe: str) -> None:
    assert printable(text) == safe


@pytest.mark.parametrize(
    "usd, text", [(0, "$0.0000"), (0.01234, "$0.0123"), (0.999, "$1.00"), (12.3, "$12.30")]
)
def test_money_has_as_many_digits_as_say_something(usd: float, text: str) -> None:
    assert money(usd) == text


@every_case("name", tapes.NAMES)
def test_every_recorded_frame_can_be_shown(name: str) -> None:
    for record in tapes.read(name):
        if isinstance(record.frame, dict):
            for each in describe(
                decode(record.line), is_from_agent=record.direction == "cli->host", with_requests=True
            ):
                assert each.text == printable(each.text)
                assert f"{each.name}{each.text}".strip()
