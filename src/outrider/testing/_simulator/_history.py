"""Owns the reading of a session's file: the conversation in it, and what is told of it.

Does not write; `_transcript` does.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final, Self

import msgspec

from outrider.testing._simulator._json import as_object, blocks_of
from outrider.testing._simulator._world import ToolCall
from outrider.wire import JsonObject

__all__ = ["History"]

_CHAINED: Final = frozenset(["user", "assistant", "attachment", "system", "progress"])


class History(msgspec.Struct, frozen=True, kw_only=True):
    """What the file of a session says."""

    lines: list[JsonObject]
    """Those of the conversation, in the order of the file."""
    title: str | None = None
    state: JsonObject = {}
    """Costs so far, if a run wrote them."""

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file; lines that are no objects, as a run that was killed may leave, count for nothing."""
        lines: list[JsonObject] = []
        title: str | None = None
        state: JsonObject = {}
        for raw in path.read_bytes().split(b"\n"):
            try:
                line = as_object(json.loads(raw))
            except ValueError:
                continue
            if line.get("type") in _CHAINED and line.get("uuid") and not line.get("isSidechain"):
                lines.append(line)
            elif line.get("type") == "custom-title":
                title = str(line.get("customTitle"))
            elif line.get("type") == "cost-state":
                state = line
        return cls(lines=lines, title=title, state=state)

    def chain(self, at: str | None = None) -> list[JsonObject]:
        """The lines from the first to the last one, or to the one `at`: each is the parent of the next.

        Calls of one message that ran side by side, and their results, are all in it. Empty if there is
        no such line.
        """
        by_id = {str(line["uuid"]): line for line in self.lines}
        last = at
        if last is None:
            spoken = [line for line in self.lines if line["type"] in ("user", "assistant", "system")]
            last = str(spoken[-1]["uuid"]) if spoken else None
        wanted: set[str] = set()
        while last is not None and last in by_id and last not in wanted:
            wanted.add(last)
            parent = by_id[last].get("parentUuid")
            last = str(parent) if parent is not None else None
        wanted |= self._beside(wanted, at)
        return [line for line in self.lines if str(line["uuid"]) in wanted]

    def _beside(self, wanted: set[str], at: str | None) -> set[str]:
        """Other blocks of the messages in a chain, and the results of their calls."""
        messages = {
            _message_id(line)
            for line in self.lines
            if str(line["uuid"]) in wanted and line["type"] == "assistant" and str(line["uuid"]) != at
        }
        blocks = {
            str(line["uuid"])
            for line in self.lines
            if line["type"] == "assistant" and _message_id(line) in messages
        }
        results = {
            str(line["uuid"])
            for line in self.lines
            if line["type"] == "user" and line.get("sourceToolAssistantUUID") in blocks
        }
        return blocks | results

    def deferred(self, chain: list[JsonObject]) -> tuple[ToolCall, str] | None:
        """The call that the session was left with, and the uuid of its line.

        None if there is none, if it has been decided since, or if another prompt came after it.
        """
        noted = {
            str(attachment.get("toolUseID")): attachment
            for line in self.lines
            if (attachment := as_object(line.get("attachment"))).get("type") == "hook_deferred_tool"
        }
        found: tuple[ToolCall, str] | None = None
        for line in chain:
            for block in _blocks(line):
                id = str(block.get("id"))
                if block.get("type") == "tool_use" and id in noted:
                    call = ToolCall(id=id, name=str(block["name"]), input=as_object(block.get("input")))
                    found = call, str(line["uuid"])
                elif found is not None and _is_result(block) and block.get("tool_use_id") == found[0].id:
                    found = None
            if "turnPosition" in line:
                found = None
        return found

    def messages(self, chain: list[JsonObject], deferred: ToolCall | None = None) -> list[JsonObject]:
        """The conversation of a chain as the API takes it: users and models by turns.

        Results of calls that run side by side are in one message. A call that has no result is left out,
        as it was cut off; the one that was deferred has yet to get it.
        """
        answered = {
            str(block.get("tool_use_id")) for line in chain for block in _blocks(line) if _is_result(block)
        }
        if deferred is not None:
            answered.add(deferred.id)
        made: list[JsonObject] = []
        for line in chain:
            if line["type"] not in ("user", "assistant"):
                continue
            role = str(line["type"])
            content = line["message"].get("content")
            if role == "assistant":
                content = [
                    block
                    for block in _blocks(line)
                    if block.get("type") != "tool_use" or str(block.get("id")) in answered
                ]
                if not content:
                    continue
            if made and made[-1]["role"] == role:
                made[-1]["content"] = [*_as_blocks(made[-1]["content"]), *_as_blocks(content)]
            else:
                made.append({"role": role, "content": content})
        return made


def _message_id(line: JsonObject) -> str:
    return str(line["message"].get("id", line["uuid"]))


def _blocks(line: JsonObject) -> list[JsonObject]:
    return blocks_of(as_object(line.get("message")))


def _is_result(block: JsonObject) -> bool:
    return block.get("type") == "tool_result"


def _as_blocks(content: object) -> list[JsonObject]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return blocks_of({"content": content})
