"""Owns `Request`, a request as the API got it, and what it was made for.

Does not answer it.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import takewhile
from typing import Final, Literal, TypeAlias, cast

import msgspec

from bridle.wire import JsonObject

__all__ = ["Request", "RequestKind", "kind_of"]

RequestKind: TypeAlias = Literal["main", "subagent", "count_tokens", "probe", "title", "other"]
"""What a request is for: a round of the conversation or of a subagent's, the size of a prompt, whether a
model is there, a title for the session, or another path than that of messages."""


_MESSAGES: Final = "/v1/messages"
_AGENT_HEADER: Final = "x-claude-code-agent-id"


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request as it arrived."""

    kind: RequestKind
    method: str
    path: str
    """Without what follows a `?`."""
    headers: Mapping[str, str]
    """By name in lower case."""
    body: JsonObject
    """Empty if there was none, or no JSON object."""

    @property
    def agent_id(self) -> str | None:
        """The subagent that asks; none for the main conversation."""
        return self.headers.get(_AGENT_HEADER)

    @property
    def messages(self) -> list[JsonObject]:
        """The conversation so far."""
        return cast("list[JsonObject]", self.body.get("messages", []))

    @property
    def tool_results(self) -> list[JsonObject]:
        """The results of the tools that the model's last message called, as blocks."""
        found: list[JsonObject] = []
        # Notes of the agent's may follow the message that has them.
        for message in takewhile(lambda message: message.get("role") != "assistant", reversed(self.messages)):
            content = message.get("content")
            blocks = cast("list[JsonObject]", content if isinstance(content, list) else [])
            found[:0] = [block for block in blocks if block.get("type") == "tool_result"]
        return found


def kind_of(method: str, path: str, headers: Mapping[str, str], body: JsonObject) -> RequestKind:
    """What a request is for, as far as it shows."""
    if method == "POST" and path == f"{_MESSAGES}/count_tokens":
        return "count_tokens"
    if method != "POST" or path != _MESSAGES:
        return "other"
    if body.get("max_tokens") == 1:
        return "probe"
    if _AGENT_HEADER in headers:
        return "subagent"
    if not body.get("tools") and _output_format(body) == "json_schema":
        return "title"
    return "main"


def _output_format(body: JsonObject) -> object:
    return _object(_object(body.get("output_config")).get("format")).get("type")


def _object(value: object) -> JsonObject:
    return cast("JsonObject", value) if isinstance(value, dict) else {}
