"""The frames of the simulated program, what its parts hand to each other, and what it has used."""

from __future__ import annotations

import base64
import json
import mimetypes
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, NamedTuple, cast
from uuid import uuid4

import msgspec

from outrider.wire import Json, JsonObject

DEFAULT_MODEL: Final = "claude-opus-5-5"
"""The model of a session that names none."""


class _Model(NamedTuple):
    """A model, with what a million tokens cost."""

    name: str
    input_usd: float
    output_usd: float
    max_output: int = 128_000


# A million tokens of cache cost a tenth of those of input to read, and a quarter more to write.
_MODELS: Final = (
    _Model("claude-opus-5-5", 4.0, 20.0),
    _Model("claude-sonnet-5-5", 2.0, 10.0),
    _Model("claude-haiku-5-5", 0.1, 0.5),
    _Model("claude-fable-5-2", 4.0, 20.0),
    _Model("claude-opus-5", 5.0, 25.0, 64_000),
    _Model("claude-opus-4-8", 5.0, 25.0, 64_000),
)
_ALIASES: Final = {
    "default": DEFAULT_MODEL,
    "opus": "claude-opus-5-5",
    "fable": "claude-fable-5-2",
    "sonnet": "claude-sonnet-5-5",
    "haiku": "claude-haiku-5-5",
}


def _model_of(name: str) -> _Model:
    """What is known of a model; one that is not known costs as much as the default one."""
    return next((model for model in _MODELS if model.name == name), _Model(name, 4.0, 20.0, 32_000))


def resolve(name: str | None) -> str:
    """The full name of a model."""
    return DEFAULT_MODEL if name is None else _ALIASES.get(name, name)


def displayed(name: str) -> str:
    """A model's name for people: `Opus 5.5`."""
    words = name.removeprefix("claude-").split("-")
    return f"{words[0].capitalize()} {'.'.join(words[1:])}".strip()


def models() -> list[JsonObject]:
    return [
        {
            "value": alias,
            "resolvedModel": name,
            "displayName": "Default (recommended)" if alias == "default" else alias.capitalize(),
            "description": displayed(name),
            "supportsEffort": True,
            "supportedEffortLevels": ["low", "medium", "high", "xhigh", "max"],
            "supportsAdaptiveThinking": True,
            "supportsAutoMode": True,
            "supportsThinkingOff": False,
        }
        for alias, name in _ALIASES.items()
    ]


SKILLS: Final = ("code-review", "debug", "simplify", "verify")
COMMANDS: Final = {
    "clear": "[name]",
    "compact": "<instructions>",
    "context": "",
    "model": "<model>",
    "rename": "[name]",
    "usage": "",
}
"""Some of the program's commands, and what each takes."""


def commands() -> list[JsonObject]:
    """All that can be called with a slash, skills first."""
    hints = dict.fromkeys(SKILLS, "") | COMMANDS
    found: list[JsonObject] = [
        {"name": name, "description": f"/{name}", "argumentHint": hint, "builtin": True}
        for name, hint in hints.items()
    ]
    found[len(SKILLS)]["aliases"] = ["reset", "new"]
    return found


AGENTS: Final[dict[str, JsonObject]] = {
    "claude": {"description": "For any task."},
    "Explore": {"description": "Looks for things in files.", "model": "inherit"},
    "general-purpose": {"description": "For tasks of several steps."},
    "Plan": {"description": "Makes plans.", "model": "inherit"},
    "statusline-setup": {"description": "Sets up the status line.", "model": "sonnet"},
}
OUTPUT_STYLES: Final = ("default", "Proactive", "Concise", "Explanatory", "Learning")
PLUGINS: Final = ("cc-plugin-agents-md", "cc-plugin-privacy", "cc-plugin-plugin-authoring")
INITIALIZE_CAPABILITIES: Final = (
    *("ui_surface_v1", "mcp_call_result_not_for_model_v1", "mcp_call_check_permissions_v1"),
    *("voice_call_talk_line_v1", "ui_pane_widget_v1", "reload_plugins_refuse_if_busy_v1"),
)
CAPABILITIES: Final = (
    *("interrupt_receipt_v1", "interrupt_cancel_queued_v1", "interrupt_send_now_v1"),
    *("interrupt_requeue_taken_v1", "msg_lifecycle_v1", "request_marker_lists_v1"),
    *("ask_user_question_unanswered_v1", "lifecycle_wakeup_source_v1", "sdk_mcp_tools_list_changed"),
    *("sdk_mcp_manifests", "mcp_read_resource_v1", "mcp_tool_ui_meta_v1", "ui_surface_v1"),
    *("mcp_call_result_not_for_model_v1", "mcp_call_check_permissions_v1", "voice_call_talk_line_v1"),
    *("withdrawn_files_note_v2", "ui_pane_widget_v1", "reload_plugins_refuse_if_busy_v1"),
)


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
    """The conversation that frames belong to: the main one, or a subagent's."""

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
        """Whether the host sees its messages: not those of a subagent's subagent."""
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
    """A message that the program wrote in place of the model."""
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
    """A user message that the program writes itself."""
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
    """A user message, replayed."""
    return user(content, Speaker(), uuid=uuid or str(uuid4()), isReplay=True)


def stream_event(event: JsonObject, **fields: object) -> JsonObject:
    return {"type": "stream_event", "event": event, "parent_tool_use_id": None, **fields}


def informational(content: str, level: str) -> JsonObject:
    return {"type": "system", "subtype": "informational", "content": content, "level": level}


def stop_hook_error(event: str) -> JsonObject:
    return {
        "type": "system",
        "subtype": "notification",
        "key": "stop-hook-error",
        "text": f"{event} hook error occurred · ctrl+o to see",
        "priority": "immediate",
    }


def reminder(text: str) -> JsonObject:
    """A block for the model that is the program's, not the user's."""
    return {"type": "text", "text": f"<system-reminder>\n{text}\n</system-reminder>"}


def lifecycle(uuid: str, state: str) -> JsonObject:
    return {"type": "command_lifecycle", "command_uuid": uuid, "state": state}


def state_changed(state: str, *, is_for_host: bool) -> JsonObject:
    fields = {"sdk_host_only": True} if is_for_host else {}
    return {"type": "system", "subtype": "session_state_changed", "state": state, **fields}


def subagent_stats() -> JsonObject:
    return {
        "spawned": 0,
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


# What was used.

_TOKENS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


class Tally(msgspec.Struct):
    """Tokens and money."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cost_usd: float = 0.0

    @property
    def total_tokens(self) -> int:
        return sum(getattr(self, field) for field in _TOKENS)

    def add(self, other: Tally) -> None:
        for field in (*_TOKENS, "cost_usd"):
            setattr(self, field, getattr(self, field) + getattr(other, field))

    def counts(self) -> JsonObject:
        """The tokens alone."""
        return {field: getattr(self, field) for field in _TOKENS}

    def to_wire(self) -> JsonObject:
        """As `usage` of a result."""
        return {
            "input_tokens": self.input_tokens,
            "cache_creation_input_tokens": self.cache_creation_input_tokens,
            "cache_read_input_tokens": self.cache_read_input_tokens,
            "output_tokens": self.output_tokens,
            "output_tokens_details": {"thinking_tokens": 0},
            "server_tool_use": {"web_search_requests": 0, "web_fetch_requests": 0},
            "service_tier": "standard",
            "cache_creation": {
                "ephemeral_1h_input_tokens": 0,
                "ephemeral_5m_input_tokens": self.cache_creation_input_tokens,
            },
            "inference_geo": "",
            "iterations": [],
            "speed": "standard",
            "fallback_credit": None,
        }

    def to_model_usage(self, name: str) -> JsonObject:
        """As one entry of `modelUsage`."""
        return {
            "inputTokens": self.input_tokens,
            "outputTokens": self.output_tokens,
            "cacheReadInputTokens": self.cache_read_input_tokens,
            "cacheCreationInputTokens": self.cache_creation_input_tokens,
            "webSearchRequests": 0,
            "costUSD": _money(self.cost_usd),
            "contextWindow": 1_000_000,
            "maxOutputTokens": _model_of(name).max_output,
            "thinkingTokens": 0,
            "cacheCreationEphemeral5mInputTokens": self.cache_creation_input_tokens,
            "cacheCreationEphemeral1hInputTokens": 0,
            "canonicalModel": name,
            "provider": "firstParty",
            "costBasis": "list",
        }


class Meter:
    """Counts for one run."""

    def __init__(self) -> None:
        self.earlier_usd = 0.0
        """What the session had cost before this run."""
        self.turn = Tally()
        """Usage of the main conversation since its turn began."""
        self.last: Tally | None = None
        """Usage of its last request."""
        self.api_ms = 0
        self._all: dict[str, Tally] = {}
        self._new: dict[str, Tally] = {}

    @property
    def cost_usd(self) -> float:
        return _money(self.earlier_usd + sum(tally.cost_usd for tally in self._all.values()))

    def add(self, model: str, usage: JsonObject, *, is_main: bool) -> Tally:
        """Count a request; returns what it used."""
        known = _model_of(model)
        tally = Tally(**{field: _count(usage.get(field)) for field in _TOKENS})
        tally.cost_usd = (
            tally.input_tokens * known.input_usd
            + tally.output_tokens * known.output_usd
            + tally.cache_read_input_tokens * known.input_usd * 0.1
            + tally.cache_creation_input_tokens * known.input_usd * 1.25
        ) / 1e6
        for counted in (self._all, self._new):
            counted.setdefault(model, Tally()).add(tally)
        if is_main:
            self.turn.add(tally)
            self.last = tally
        return tally

    def begin_turn(self) -> None:
        self.turn = Tally()

    def by_model(self) -> JsonObject:
        """`modelUsage` of a result."""
        return {name: tally.to_model_usage(name) for name, tally in self._all.items()}

    def take_new(self) -> JsonObject:
        """`model_usage_since_last_result` of a result, which ends with it."""
        new, self._new = self._new, {}
        return {name: tally.to_model_usage(name) for name, tally in new.items()}

    def forget(self) -> None:
        """Start counting again, as after `/clear`."""
        self.earlier_usd = 0.0
        self._all.clear()
        self._new.clear()


def _money(usd: float) -> float:
    """Rounded, because sums of such small numbers are not exact."""
    return round(usd, 10)


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0


class Refused(Exception):
    """The host answered a request with an error."""

    is_gone = False
    """Whether there is no host any more: stdin has ended."""


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as it is described to the model."""

    name: str
    """For tools of servers, `mcp__SERVER__TOOL`."""
    description: str = ""
    input_schema: JsonObject = {}
    annotations: JsonObject = {}


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    input: JsonObject
    agent_id: str | None = None
    """The subagent that calls; None for the main conversation."""
    agent_type: str | None = None


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a tool call."""

    content: str | list[JsonObject]
    """What the model is given as the result."""
    is_error: bool = False
    detail: object = None
    """`tool_use_result` of the frame: an object, a list or a text, as the program has it for that tool."""

    @classmethod
    def of_server(cls, result: JsonObject, *, tool: str, server: str, folder: Path) -> Outcome:
        """An MCP server's result as the program passes it on. Binary data is saved in `folder`."""
        given = [as_object(block) for block in as_list(result.get("content"))]
        if result.get("isError") is True:
            texts = [str(block.get("text", "")) for block in given if block.get("type") == "text"]
            text = "\n".join(texts) or "Unknown error"
            return cls(content=text, is_error=True, detail=f"Error: {text}")
        blocks = [made for block in given for made in _read_block(block, server, folder)]
        plain = [{name: block[name] for name in block if name != "_meta"} for block in blocks]
        content: str | list[JsonObject] = plain
        detail: object = blocks
        structured = result.get("structuredContent")
        if structured is not None:
            text = json.dumps(structured, ensure_ascii=False, separators=(",", ":"))
            # In place of all texts; pictures stay, with where they were saved.
            images = [at for at, block in enumerate(blocks) if block["type"] == "image"]
            pictures = [block for at in images for block in blocks[at : at + 2]]
            detail = content = [*pictures, {"type": "text", "text": text}] if pictures else text
        elif not any(block.get("text") != "" for block in plain):
            content = f"({tool} completed with no output)"
        links = [block for block in given if block.get("type") == "resource_link"]
        fields = ("uri", "name", "title", "description", "mimeType")
        more = present(
            _meta=result.get("_meta"),
            structuredContent=structured,
            resourceLinks=[pick(link, *fields) for link in links] or None,
        )
        return cls(content=content, detail={"content": detail, **more} if more else detail)


def _read_block(block: JsonObject, server: str, folder: Path) -> list[JsonObject]:
    kind, resource = block.get("type"), as_object(block.get("resource"))
    if kind == "text":
        return [pick(block, "type", "text", "_meta")]
    if kind == "resource_link":
        about = f" ({block['description']})" if block.get("description") else ""
        return [_text(f"[Resource link: {block.get('name')}] {block.get('uri')}{about}")]
    label = {
        "audio": f"[Audio from {server}] ",
        "resource": f"[Resource from {server} at {resource.get('uri')}] ",
    }
    opening = label.get(str(kind), "")
    data = block.get("data", resource.get("blob"))
    if data is None:
        return [_text(f"{opening}{resource.get('text', '')}")] if resource else []
    media_type = str(block.get("mimeType") or resource.get("mimeType") or "application/octet-stream")
    try:
        raw = base64.b64decode(str(data))
    except ValueError:
        raw = b""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"mcp-{server}-blob-{secrets.randbits(40)}-{secrets.token_hex(3)}"
    ending = ".wav" if media_type == "audio/wav" else mimetypes.guess_extension(media_type) or ".bin"
    path = folder / f"{name}{ending}"
    path.write_bytes(raw)
    if not media_type.startswith("image/"):
        return [_text(f"{opening}Binary content ({media_type}, {len(raw)} bytes) saved to {path}")]
    source: JsonObject = {"type": "base64", "media_type": media_type, "data": data}
    shown = [{"type": "image", "source": source}, _text(f"[Image: source: {path}]")]
    return [_text(opening), *shown] if opening else shown


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def as_object(value: object) -> JsonObject:
    """An object; an empty one for anything else."""
    return cast("JsonObject", value) if isinstance(value, dict) else {}


def as_list(value: object) -> list[Json]:
    """A list; an empty one for anything else."""
    return cast("list[Json]", value) if isinstance(value, list) else []


def pick(value: JsonObject, *names: str) -> JsonObject:
    """The fields that are present."""
    return {name: value[name] for name in names if name in value}


def present(**fields: object) -> JsonObject:
    """The fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def blocks_of(message: Mapping[str, object]) -> list[JsonObject]:
    """The content blocks of a message; none if its content is a text."""
    return [as_object(block) for block in as_list(message.get("content")) if isinstance(block, dict)]


def text_of(message: JsonObject) -> str:
    if isinstance(content := message.get("content"), str):
        return content
    return "\n".join(str(block["text"]) for block in blocks_of(message) if block.get("type") == "text")


def covers_tool(rule: str, name: str) -> bool:
    """Whether a rule names a tool as a whole: `Bash`, `mcp__server`, `mcp__server__*`."""
    own, name = ("Agent" if each == "Task" else each for each in (rule, name))
    is_server = own.startswith("mcp__") and own.count("__") == 1
    return own == name or fnmatchcase(name, own) or (is_server and name.startswith(f"{own}__"))


class ToolFailed(Exception):
    """A call that was carried out, and failed. The text is for the model."""

    def outcome(self) -> Outcome:
        return Outcome(content=str(self), is_error=True, detail=f"Error: {self}")


class Unusable(ToolFailed):
    """A call that is refused before anyone is asked."""

    def __init__(self, text: str, detail: str | None = None) -> None:
        super().__init__(text)
        self._detail = f"Error: {text}" if detail is None else detail

    def outcome(self) -> Outcome:
        text = f"<tool_use_error>{self}</tool_use_error>"
        return Outcome(content=text, is_error=True, detail=self._detail)


def no_such_tool(name: str, why: str = "") -> Outcome:
    """The outcome of a call of a tool that the session does not have."""
    text = f"Error: No such tool available: {name}{why}"
    return Unusable(text, text).outcome()


_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "boolean": (bool,),
    "number": (int, float),
    "integer": (int, float),
    "string": (str,),
    "array": (list,),
    "object": (dict,),
}


def check_input(spec: ToolSpec, given: JsonObject) -> None:
    """Raises `Unusable` for an input that lacks a parameter or has one of another type."""
    found = _issues(spec, given)
    if found:
        issues = json.dumps([issue for issue, _ in found], indent=2)
        text = f"InputValidationError: {_describe(spec, found)}"
        raise Unusable(text, f"InputValidationError: {issues}")


def wrong_input(spec: ToolSpec, given: JsonObject) -> str | None:
    """What is wrong with an input, in the program's words."""
    found = _issues(spec, given)
    return _describe(spec, found) if found else None


def _describe(spec: ToolSpec, found: list[tuple[JsonObject, str]]) -> str:
    issues = "issue" if len(found) == 1 else "issues"
    return "\n".join([f"{spec.name} failed due to the following {issues}:", *(text for _, text in found)])


def _issues(spec: ToolSpec, given: JsonObject) -> list[tuple[JsonObject, str]]:
    found: list[tuple[JsonObject, str]] = []
    required = [str(name) for name in as_list(spec.input_schema.get("required"))]
    properties = as_object(spec.input_schema.get("properties"))
    for name in dict.fromkeys((*properties, *required)):
        declared = as_object(properties.get(name)).get("type")
        kind = declared if isinstance(declared, str) else "string"
        if name not in given:
            if name not in required:
                continue
            received, text = "undefined", f"The required parameter `{name}` is missing"
        else:
            if declared != kind or kind not in _TYPES or _fits(given[name], kind):
                continue
            value = given[name]
            received = "null" if value is None else next(each for each in _TYPES if _fits(value, each))
            text = f"The parameter `{name}` type is expected as `{kind}` but provided as `{received}`"
        issue: JsonObject = {
            "expected": kind,
            "code": "invalid_type",
            "path": [name],
            "message": f"Invalid input: expected {kind}, received {received}",
        }
        found.append((issue, text))
    return found


def _fits(value: object, kind: str) -> bool:
    return isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))
