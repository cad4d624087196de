"""Owns the frames of the program: what each holds, in which form.

Does not decide when one is written.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import msgspec

from outrider.testing._simulator.host import catalogue
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from outrider.testing._simulator.world import ToolSpec

__all__ = [
    "INTERRUPTED",
    "INTERRUPTED_TOOL",
    "Speaker",
    "assistant",
    "init",
    "lifecycle",
    "now",
    "replay",
    "state_changed",
    "stream_event",
    "subagent_stats",
    "synthetic",
    "tool_result",
    "user",
]

INTERRUPTED: Final = "[Request interrupted by user]"
INTERRUPTED_TOOL: Final = "[Request interrupted by user for tool use]"

_NO_USAGE: Final[JsonObject] = {
    "output_tokens_details": None,
    "input_tokens": 0,
    "output_tokens": 0,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
    "server_tool_use": {"web_search_requests": 0, "web_fetch_requests": 0},
    "service_tier": None,
    "cache_creation": {"ephemeral_1h_input_tokens": 0, "ephemeral_5m_input_tokens": 0},
    "inference_geo": None,
    "iterations": None,
    "speed": None,
    "fallback_credit": None,
}


class Speaker(msgspec.Struct, frozen=True, kw_only=True):
    """Whose frames these are: the main conversation's, or those of a subagent."""

    parent_tool_use_id: str | None = None
    agent_id: str | None = None
    agent_type: str | None = None
    description: str = ""
    is_background: bool = False
    depth: int = 0

    @property
    def is_main(self) -> bool:
        return self.agent_id is None

    @property
    def is_shown(self) -> bool:
        """Whether the host sees its messages: those of a subagent's subagent it does not."""
        return self.depth <= 1

    @property
    def beginning(self) -> JsonObject:
        """The fields that say who speaks, where they stand in a frame."""
        named = {} if self.agent_id is None else {"agent_id": self.agent_id}
        return {"parent_tool_use_id": self.parent_tool_use_id, **named}

    @property
    def ending(self) -> JsonObject:
        if self.agent_id is None:
            return {}
        return {"subagent_type": self.agent_type, "task_description": self.description}


def attachment(content: JsonObject, *, uuid: str | None = None) -> JsonObject:
    """A note beside the conversation."""
    return {
        "attachment": content,
        "type": "attachment",
        "uuid": str(uuid4()) if uuid is None else uuid,
        "timestamp": now(),
        "parent_tool_use_id": None,
    }


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def assistant(
    message: JsonObject, speaker: Speaker, *, request_id: str | None, uuid: str, **fields: object
) -> JsonObject:
    """A block of the model's message."""
    return {
        "type": "assistant",
        "message": message,
        **speaker.beginning,
        "uuid": uuid,
        "timestamp": now(),
        **({} if request_id is None else {"request_id": request_id}),
        **fields,
        **speaker.ending,
    }


def synthetic(text: str, *, stop_reason: str = "stop_sequence") -> JsonObject:
    """A message that the program wrote in the place of the model."""
    return {
        "diagnostics": None,
        "id": str(uuid4()),
        "container": None,
        "model": "<synthetic>",
        "role": "assistant",
        "stop_details": None,
        "stop_reason": stop_reason,
        "stop_sequence": "",
        "type": "message",
        "usage": dict(_NO_USAGE),
        "content": [{"type": "text", "text": text}],
        "context_management": None,
    }


def user(content: object, speaker: Speaker, *, uuid: str, **fields: object) -> JsonObject:
    """What the program says in the place of the user."""
    return {
        "type": "user",
        "message": {"role": "user", "content": content},
        **speaker.beginning,
        "uuid": uuid,
        "timestamp": now(),
        **fields,
        **speaker.ending,
    }


def tool_result(
    block: JsonObject,
    speaker: Speaker,
    *,
    uuid: str,
    detail: object,
    meta: JsonObject | None,
) -> JsonObject:
    """The result of a tool. A subagent's has no detail, unless it is an error."""
    frame = user([block], speaker, uuid=uuid)
    for key in speaker.ending:
        del frame[key]
    if speaker.is_main or isinstance(detail, str):
        frame["tool_use_result"] = detail
    if meta is not None:
        frame["tool_result_meta"] = [meta]
    return frame | speaker.ending


def replay(content: object, *, uuid: str | None = None) -> JsonObject:
    """A message of the user, as it was taken up."""
    return user(content, Speaker(), uuid=uuid or str(uuid4()), isReplay=True)


def stream_event(event: JsonObject, **fields: object) -> JsonObject:
    return {"type": "stream_event", "event": event, "parent_tool_use_id": None, **fields}


def lifecycle(uuid: str, state: str) -> JsonObject:
    return {"type": "command_lifecycle", "command_uuid": uuid, "state": state}


def state_changed(state: str, *, is_for_host: bool) -> JsonObject:
    fields = {"sdk_host_only": True} if is_for_host else {}
    return {"type": "system", "subtype": "session_state_changed", "state": state, **fields}


def init(
    *,
    cwd: str,
    session_id: str,
    tools: Iterable[ToolSpec],
    servers: Sequence[JsonObject],
    model: str,
    permission_mode: str,
    version: str,
    agents: Sequence[str],
    memory: str,
    folders: Sequence[str],
    key_source: str,
    uuids: Sequence[str] = (),
) -> JsonObject:
    """What each turn begins with."""
    names = ["Task" if spec.name == "Agent" else spec.name for spec in tools]
    frame: JsonObject = {
        "type": "system",
        "subtype": "init",
        "cwd": cwd,
        "session_id": session_id,
        "tools": sorted(names, key=lambda name: (name != "Task", name.startswith("mcp__"), name)),
        "mcp_servers": list(servers),
        "model": model,
        "permissionMode": permission_mode,
        "slash_commands": [*catalogue.SKILLS, *catalogue.COMMANDS],
        "terminal_slash_commands": ["doctor", "color", "focus", "reload-plugins"],
        "apiKeySource": key_source,
        "claude_code_version": version,
        "output_style": "default",
        "agents": list(agents),
        "skills": list(catalogue.SKILLS),
        "plugins": [
            {"name": name, "path": "builtin", "source": f"{name}@builtin"} for name in catalogue.PLUGINS
        ],
        "capabilities": list(catalogue.CAPABILITIES),
        "analytics_disabled": True,
        "product_feedback_disabled": True,
        "uuid": str(uuid4()),
        "memory_paths": {"auto": memory},
        "original_cwd": cwd,
        "additional_directories": list(folders),
        "fast_mode_state": "off",
        "fast_mode_disabled_reason": "sdk_opt_in_required",
        "per_turn_effort_active": True,
        "ultrathink_available": False,
        "ultrathink_typed_raises": False,
        "view_mode": "default",
    }
    if uuids:
        frame["user_message_uuids"] = list(uuids)
    return frame


def subagent_stats(spawned: int = 0, **counts: object) -> JsonObject:
    stats: JsonObject = {
        "spawned": spawned,
        "requested": {"background": 0, "foreground": 0, "unset": 0},
        "started_in_background": 0,
        "max_depth": 0,
        "spawned_by_subagents": 0,
        "completed": 0,
        "failed": 0,
        "killed": {"parent": 0, "user": 0, "system": 0},
        "refused": {"depth_limit": 0, "concurrency_limit": 0, "budget": 0},
        "by_type": {},
    }
    return stats | counts
