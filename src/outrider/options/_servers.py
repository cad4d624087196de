"""Defines MCP servers and subagents as values in options, and validates them.

Does not connect to servers. Those that run in this process are in `outrider.handlers`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final, TypeAlias, cast

import msgspec

from outrider.errors import OptionsError
from outrider.options._tool_names import tool_name
from outrider.options._validators import (
    Validator,
    any_text,
    checked,
    choice,
    either,
    invalid_value,
    is_mapping,
    json_object,
    listed,
    mapped,
    open_choice,
    optional,
    secret_text,
    switch,
    text,
    thing,
    whole,
    within,
)
from outrider.options._values import OptionValue, from_mapping, is_variable_name
from outrider.wire import JsonObject
from outrider.wire.choices import (
    EFFORT_LEVELS,
    SETTING_SOURCES,
    AgentModel,
    EffortLevel,
    PermissionMode,
    SettingSource,
)

PERMISSION_MODES: Final = ("default", "acceptEdits", "plan", "bypassPermissions", "dontAsk", "auto", "manual")
"""What the program accepts today on its command line; it ends at once for any other."""

mode_name: Final = open_choice(PERMISSION_MODES, typos=True)
effort_level: Final = open_choice(EFFORT_LEVELS, typos=False)
variables: Final = mapped(checked(is_variable_name), secret_text, hidden=True)


def _policies(place: str, value: object) -> object:
    return list(cast(tuple[object, ...], listed(json_object)(place, value)))


_SERVER_VALIDATORS: Final[Mapping[str, Validator]] = {
    "timeout": optional(whole(1)),
    "always_load": optional(switch),
    "tools": optional(_policies),
    "extra": json_object,
}
_EXTERNAL_VALIDATORS: Final[Mapping[str, Validator]] = {"required": switch, **_SERVER_VALIDATORS}


class _Server(OptionValue, frozen=True, kw_only=True, rename="camel", tag_field="type"):
    timeout: int | None = None
    """Milliseconds for a tool call. None: the agent decides."""
    always_load: bool | None = None
    """Offer its tools from the first turn on instead of on demand. None: the agent decides."""
    tools: list[JsonObject] | None = None
    """A policy for each tool: `{"name": …, "permission_policy": …}`."""
    extra: Mapping[str, object] = {}
    """Further keys, as the agent spells them; they win over the fields."""


class _External(_Server, frozen=True, kw_only=True, rename="camel"):
    required: bool = False
    """A session cannot do without it: `connect` waits until the agent has reached it, and raises
    `McpServerFailed` if that fails."""

    _kept_here: ClassVar[frozenset[str]] = frozenset({"required"})


class StdioServer(_External, frozen=True, tag="stdio", rename="camel"):
    """An MCP server that the agent starts as a child of its own."""

    command: str
    args: Sequence[str] = ()
    env: Mapping[str, str] = {}
    """Variables for it; never shown."""

    _validators: ClassVar[Mapping[str, Validator]] = {
        "command": text,
        "args": listed(secret_text),
        "env": variables,
        **_EXTERNAL_VALIDATORS,
    }
    _secret: ClassVar[frozenset[str]] = frozenset({"env"})


def _is_url(place: str, url: str) -> None:
    if "://" not in url:
        raise invalid_value(place, "a URL", url, "It begins with 'https://' or 'http://'.", hidden=True)


_REMOTE_VALIDATORS: Final[Mapping[str, Validator]] = {
    "url": checked(_is_url),
    "headers": mapped(text, secret_text, hidden=True),
    **_EXTERNAL_VALIDATORS,
}


class SseServer(_External, frozen=True, tag="sse", rename="camel"):
    """An MCP server behind a URL, over server-sent events."""

    url: str
    headers: Mapping[str, str] = {}
    """Sent with each request; never shown."""

    _validators: ClassVar[Mapping[str, Validator]] = _REMOTE_VALIDATORS
    _secret: ClassVar[frozenset[str]] = frozenset({"headers"})


class HttpServer(_External, frozen=True, tag="http", rename="camel"):
    """An MCP server behind a URL, over streamable HTTP."""

    url: str
    headers: Mapping[str, str] = {}
    """Sent with each request; never shown."""

    _validators: ClassVar[Mapping[str, Validator]] = _REMOTE_VALIDATORS
    _secret: ClassVar[frozenset[str]] = frozenset({"headers"})


class SdkServer(_Server, frozen=True, tag="sdk", rename="camel"):
    """An MCP server that runs in this process: the agent only gets its name."""

    name: str
    instance: object = None
    """What answers for it; stays in this process."""

    _validators: ClassVar[Mapping[str, Validator]] = {"name": text, **_SERVER_VALIDATORS}
    _kept_here: ClassVar[frozenset[str]] = frozenset({"instance"})


McpServer: TypeAlias = StdioServer | SseServer | HttpServer | SdkServer

_SERVERS: Final[Mapping[str, type[StdioServer | SseServer | HttpServer | SdkServer]]] = {
    "stdio": StdioServer,
    "sse": SseServer,
    "http": HttpServer,
    # The agent takes this name for the same, and other programs write it.
    "streamable-http": HttpServer,
    "sdk": SdkServer,
}


def servers_by_name(place: str, value: object) -> dict[str, McpServer]:
    """MCP servers by name: parts, mappings, or objects of this process that are servers."""
    if not is_mapping(value):
        raise invalid_value(place, "a mapping of names to servers, or the path of a file", value, hidden=True)
    servers: dict[str, McpServer] = {}
    for name, given in value.items():
        known = text(f"the name of a server in {place}", name)
        servers[known] = _read_server(within(place, known), known, given)
    return servers


def _read_server(place: str, name: str, value: object) -> McpServer:
    if isinstance(value, (StdioServer, SseServer, HttpServer, SdkServer)):
        return value.copied()
    if not is_mapping(value):
        return SdkServer(name=name, instance=thing("a server or a mapping")(place, value))
    given = value.get("type")
    if given is None and "url" in value and "command" not in value:
        hint = 'Add `"type": "http"` or `"type": "sse"`.'
        raise OptionsError(f"{place} has a `url` but no `type`", hint=hint)
    kind = _SERVERS[cast(str, choice(*_SERVERS)(f"the type of {place}", "stdio" if given is None else given))]
    return from_mapping(kind, place, value, **({"name": name} if kind is SdkServer else {}))


def _tool(place: str, value: object) -> object:
    return text(place, tool_name(place, value))


class AgentDefinition(OptionValue, frozen=True, kw_only=True, rename="camel"):
    """A subagent: what it is for, how it is prompted, and what it may use."""

    description: str
    """When to use it, for the model."""
    prompt: str
    """Its system prompt."""
    tools: Sequence[str | Callable[..., object]] | None = None
    """Names of tools, tools of yours among them. None: all that the main agent has."""
    disallowed_tools: Sequence[str | Callable[..., object]] | None = None
    """What it may not use of them."""
    model: AgentModel | None = None
    """None: what the settings say, or else that of the main agent."""
    skills: Sequence[str] | None = None
    """Skills that it knows from the start."""
    memory: SettingSource | None = None
    """Which memory it has. None: none."""
    mcp_servers: Sequence[str | JsonObject] | None = None
    """Names of servers, or servers of its own."""
    initial_prompt: str | None = None
    """Comes before the first prompt, if it is the main agent."""
    max_turns: int | None = None
    """How many times the model may be called, 1 or more. None: no limit."""
    background: bool | None = None
    """It runs beside the main agent, which does not wait for it."""
    effort: EffortLevel | int | None = None
    permission_mode: PermissionMode | None = None
    """What it may do without asking. None: as the main agent."""
    auto_compact_window: int | None = None
    """The number of tokens at which it sums up what came before."""
    omit_claude_md: bool | None = None
    """It does not see the instruction files of the user and the project."""
    observer: str | None = None
    """A subagent that watches it."""
    observer_message: str | None = None
    """Instructions that the observer gets with each report."""
    critical_system_reminder: str | None = msgspec.field(
        default=None, name="criticalSystemReminder_EXPERIMENTAL"
    )
    """Repeated to it throughout; experimental."""
    extra: Mapping[str, object] = {}
    """Further keys, as the agent spells them; they win over the fields."""

    _validators: ClassVar[Mapping[str, Validator]] = {
        "description": text,
        "prompt": text,
        **dict.fromkeys(("tools", "disallowed_tools"), optional(listed(_tool))),
        "skills": optional(listed(text)),
        "model": optional(text),
        "memory": optional(choice(*SETTING_SOURCES)),
        "mcp_servers": optional(listed(either(str, text, json_object))),
        **dict.fromkeys(
            ("initial_prompt", "observer", "observer_message", "critical_system_reminder"), optional(any_text)
        ),
        **dict.fromkeys(("max_turns", "auto_compact_window"), optional(whole(1))),
        **dict.fromkeys(("background", "omit_claude_md"), optional(switch)),
        "effort": optional(either(int, whole(0), effort_level)),
        "permission_mode": optional(mode_name),
        "extra": json_object,
    }


def agents_by_name(place: str, value: object) -> dict[str, AgentDefinition]:
    """Subagents by name: parts or mappings."""
    if not is_mapping(value):
        raise invalid_value(place, "a mapping of names to subagents", value)
    agents: dict[str, AgentDefinition] = {}
    for name, given in value.items():
        known = text(f"the name of a subagent in {place}", name)
        agents[known] = _read_agent(within(place, known), given)
    return agents


def _read_agent(place: str, value: object) -> AgentDefinition:
    if isinstance(value, AgentDefinition):
        return value.copied()
    if not is_mapping(value):
        raise invalid_value(place, "an AgentDefinition or a mapping", value)
    return from_mapping(AgentDefinition, place, value)
