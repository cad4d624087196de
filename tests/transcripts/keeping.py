"""Kept sessions for tests: one with all that a fork or an export has to deal with."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

from outrider.transcripts import Bundle, project_key
from outrider.transcripts._disk.files import put
from outrider.wire import JsonObject
from tests.transcripts.lines import SESSION, answer, called, line, prompt, result, title

__all__ = ["KEY", "PROJECT", "bundle", "put_on_disk"]

PROJECT = "/srv/project"
KEY = project_key(PROJECT)


def bundle(session_id: str = SESSION, project: str = KEY) -> Bundle:
    """A conversation of two turns, with calls of subagents, of which the first calls one of its own."""
    entries = [
        line("permission-mode", permissionMode="default"),
        prompt("u1", None, "Begin", slug="brave-plan", turnAttributionKey="u1"),
        called("u2", "u1", "m1"),
        line("progress", "p1", "u2"),
        line("progress", "p2", "p1"),
        result("u3", "p2", "u2", "u2", toolUseResult={"stdout": "u1", "agentId": "first"}),
        called("u4", "u3", "m2"),
        result("u5", "u4", "u4", "u4"),
        answer("u6", "u5", "m3"),
        title("Titled"),
        {"type": "tag", "tag": "old", "sessionId": SESSION},
        prompt("u7", "u6", "Go on"),
        answer("u8", "u7", "m4"),
        {"type": "content-replacement", "sessionId": SESSION, "replacements": [{"toolUseId": "call-u2"}]},
        {"type": "last-prompt", "lastPrompt": "Go on", "leafUuid": "u8", "sessionId": SESSION},
    ]
    parts: dict[str, list[JsonObject]] = {
        "subagents/agent-first": [
            {"type": "agent_metadata", "toolUseId": "call-u2", "description": "Look", "agentType": "Explore"},
            prompt("s1", None, "Look", isSidechain=True, agentId="first"),
            called("s2", "s1", "m9", isSidechain=True, agentId="first"),
        ],
        "subagents/agent-nested": [
            {"type": "agent_metadata", "toolUseId": "call-s2"},
            prompt("n1", None, "Look deeper", isSidechain=True, agentId="nested"),
        ],
        "subagents/agent-late": [
            {"type": "agent_metadata", "toolUseId": "call-of-a-later-turn"},
            prompt("l1", None, "Later", isSidechain=True, agentId="late"),
        ],
    }
    made = Bundle(session_id=session_id, project=project, entries=entries, parts=parts)
    for entry in [*entries, *(entry for part in parts.values() for entry in part)]:
        if "sessionId" in entry:
            entry["sessionId"] = session_id
    return deepcopy(made)


def put_on_disk(config: Path, kept: Bundle | None = None) -> Path:
    kept = kept or bundle()
    return put(config, kept, kept.project)
