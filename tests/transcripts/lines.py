"""Lines of transcripts as the program writes them, made up for tests. Writes no files."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from outrider.transcripts import TranscriptEntry, to_entry
from outrider.wire import JsonObject, encode

__all__ = [
    "SESSION",
    "answer",
    "boundary",
    "called",
    "entries",
    "line",
    "prompt",
    "result",
    "session_id",
    "title",
    "written",
]


def session_id(number: int = 1) -> str:
    return str(UUID(int=number, version=4))


SESSION = session_id()


def line(type: str, uuid: str | None = None, parent: str | None = None, **fields: Any) -> JsonObject:
    made: JsonObject = {"parentUuid": parent, "isSidechain": False, "type": type}
    if uuid is not None:
        made |= {"uuid": uuid, "timestamp": "2026-03-01T12:00:00.000Z"}
    return {**made, "cwd": "/srv/project", "sessionId": SESSION, "gitBranch": "main", **fields}


def prompt(uuid: str, parent: str | None = None, text: str | None = None, **fields: Any) -> JsonObject:
    message = {"role": "user", "content": f"prompt {uuid}" if text is None else text}
    return line("user", uuid, parent, message=message, **fields)


def answer(uuid: str, parent: str | None, message: str | None = None, **fields: Any) -> JsonObject:
    block = {"type": "text", "text": f"answer {uuid}"}
    return _said(uuid, parent, message or f"msg-{uuid}", block, fields)


def called(uuid: str, parent: str | None, message: str, **fields: Any) -> JsonObject:
    """A block of an answer: a call whose id is that of the entry."""
    block = {"type": "tool_use", "id": f"call-{uuid}", "name": "Bash", "input": {"command": f"run {uuid}"}}
    return _said(uuid, parent, message, block, fields)


def _said(
    uuid: str, parent: str | None, message: str, block: JsonObject, fields: dict[str, Any]
) -> JsonObject:
    body = {"id": message, "type": "message", "role": "assistant", "model": "m", "content": [block]}
    return line("assistant", uuid, parent, message=body, **fields)


def result(
    uuid: str, parent: str | None, call: str | None = None, source: str | None = None, **fields: Any
) -> JsonObject:
    """The result of the call in the entry `call`, by default the one that it follows."""
    block = {"type": "tool_result", "tool_use_id": f"call-{call or parent}", "content": f"output {uuid}"}
    if source is not None:
        fields["sourceToolAssistantUUID"] = source
    return line("user", uuid, parent, message={"role": "user", "content": [block]}, **fields)


def boundary(uuid: str, before: str | None) -> JsonObject:
    told = {"trigger": "manual", "preTokens": 15}
    return line(
        "system", uuid, None, subtype="compact_boundary", logicalParentUuid=before, compactMetadata=told
    )


def title(text: str) -> JsonObject:
    return {"type": "custom-title", "customTitle": text, "sessionId": SESSION}


def entries(lines: list[JsonObject]) -> list[TranscriptEntry]:
    return [to_entry(each) for each in lines]


def written(lines: list[JsonObject]) -> bytes:
    return b"".join(encode(each) + b"\n" for each in lines)
