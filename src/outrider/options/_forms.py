"""Defines MCP servers and subagents as values, and validates each option in all forms that it may have."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final, TypeAlias, cast

import msgspec

from outrider.command import Runner
from outrider.errors import OptionsError
from outrider.options._checks import is_one_rule, is_skill_name, is_tool_name
from outrider.options._tool_names import tool_name
from outrider.options._validators import (
    Validator,
    checked,
    choice,
    did_you_mean,
    either,
    invalid_value,
    is_list,
    is_mapping,
    is_path,
    json_object,
    listed,
    mapped,
    open_choice,
    optional,
    path_text,
    secret_text,
    text,
    thing,
    whole,
    within,
)
from outrider.options._values import (
    AdaptiveThinking,
    CustomPrompt,
    DisabledThinking,
    EnabledThinking,
    EnvPolicy,
    FilePrompt,
    Isolation,
    JsonSchemaFormat,
    LocalPlugin,
    OptionValue,
    PresetPrompt,
    Trace,
    from_mapping,
    is_variable_name,
    named,
    prompt_texts,
    value_of,
)
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


class _Server(OptionValue, frozen=True, kw_only=True, rename="camel", tag_field="type"):
    timeout: int | None = None
    """Milliseconds for a tool call. None: the agent decides."""
    always_load: bool | None = None
    """Offer its tools from the first turn on instead of on demand. None: the agent decides."""
    tools: list[JsonObject] | None = None
    """A policy for each tool: `{"name": …, "permission_policy": …}`."""
    extra: Mapping[str, object] = {}
    """Further keys, as the agent spells them; they win over the fields."""

    _validators: ClassVar[Mapping[str, Validator]] = {"tools": optional(_policies)}


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

    _validators: ClassVar[Mapping[str, Validator]] = {"args": listed(secret_text), "env": variables}
    _secret: ClassVar[frozenset[str]] = frozenset({"env"})


def _is_url(place: str, url: str) -> None:
    if "://" not in url:
        raise invalid_value(place, "a URL", url, "It begins with 'https://' or 'http://'.", hidden=True)


class _Remote(_External, frozen=True, rename="camel"):
    url: str
    headers: Mapping[str, str] = {}
    """Sent with each request; never shown."""

    _validators: ClassVar[Mapping[str, Validator]] = {
        "url": checked(_is_url),
        "headers": mapped(text, secret_text, hidden=True),
    }
    _secret: ClassVar[frozenset[str]] = frozenset({"headers"})


class SseServer(_Remote, frozen=True, tag="sse", rename="camel"):
    """An MCP server behind a URL, over server-sent events."""


class HttpServer(_Remote, frozen=True, tag="http", rename="camel"):
    """An MCP server behind a URL, over streamable HTTP."""


class SdkServer(_Server, frozen=True, tag="sdk", rename="camel"):
    """An MCP server that runs in this process: the agent only gets its name."""

    name: str
    instance: object = None
    """What answers for it; stays in this process."""

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


def tool(place: str, value: object) -> str:
    """The name of a tool, also if the tool itself is given."""
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
        **dict.fromkeys(("tools", "disallowed_tools"), optional(listed(tool))),
        "model": optional(text),
        "memory": optional(choice(*SETTING_SOURCES)),
        "mcp_servers": optional(listed(either(str, text, json_object))),
        "effort": optional(either(int, whole(0), effort_level)),
        "permission_mode": optional(mode_name),
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


_UUID: Final = r"(?i)[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z"
_ABSOLUTE: Final = r"/|[A-Za-z]:[\\/]|\\\\"
_STORING: Final = ("append", "load")
LARGEST_UID: Final = 2**32 - 2
"""One more stands for "no user" in the system's calls."""


NEW_EVENT: Final = "An event that is not known here needs `@outrider.hook(…, allow_unknown=True)`."


# Single options.


def is_uuid(place: str, value: str) -> None:
    if not re.match(_UUID, value):
        raise invalid_value(place, "a UUID", value, "Make one with `str(uuid.uuid4())`.")


def is_absolute(place: str, value: str) -> None:
    if not re.match(_ABSOLUTE, value):
        raise invalid_value(place, "an absolute path", value, "Give `Path(…).resolve()`.")


def session_store(place: str, value: object) -> object:
    if is_path(value):
        # A path stays one: as text it might be taken for a URL.
        return path_text(place, value) if isinstance(value, str) else Path(path_text(place, value))
    if isinstance(value, type) or not all(_is_async(getattr(value, name, None)) for name in _STORING):
        wanted = "a session store, with async `append` and `load`, or its URL or path"
        raise invalid_value(
            place, wanted, value, "Derive it from `outrider.transcripts.SessionStore`.", hidden=True
        )
    return value


def _is_async(method: object) -> bool:
    """Whether it can be awaited, as far as that is known without calling it."""
    own = inspect.unwrap(method) if callable(method) else method
    is_plain = inspect.isfunction(own) or inspect.ismethod(own)
    return callable(own) and (not is_plain or inspect.iscoroutinefunction(own))


def has_no_comma(place: str, value: str) -> None:
    if "," in value:
        raise invalid_value(place, "one name, without a comma", value, "Give each name as its own entry.")


def tools(place: str, value: object) -> object:
    if is_mapping(value):
        if value.get("type") != "preset" or value.get("preset", "claude_code") != "claude_code":
            raise invalid_value(place, "a list, or the preset 'claude_code'", value)
        return "default"
    if isinstance(value, str) and value == "default":
        return value
    own = thing("the name of a tool, or a tool of your own")
    return listed(either(str, checked(is_tool_name), own))(place, value)


def rule(place: str, value: object) -> object:
    return checked(is_one_rule)(place, tool_name(place, value))


def fallback_models(place: str, value: object) -> object:
    names = [name.strip() for name in value.split(",")] if isinstance(value, str) else value
    return listed(checked(has_no_comma))(place, names) or None


def task_budget(place: str, value: object) -> object:
    if is_mapping(value):
        if set(value) != {"total"}:
            raise invalid_value(place, 'a whole number, or {"total": number}', value)
        value = value["total"]
    return whole(1)(place, value)


def env_policy(place: str, value: object) -> object:
    if isinstance(value, EnvPolicy):
        return value
    if isinstance(value, str):
        if value != "inherit":
            raise invalid_value(place, '"inherit" or a list of names', value, f"Did you mean [{value!r}]?")
        return EnvPolicy.INHERIT
    names = cast("tuple[str, ...]", listed(text)(place, value))
    return named(place, lambda: EnvPolicy.only(*names))


def isolation(place: str, value: object) -> object:
    if isinstance(value, Isolation):
        return value
    kinds = {"inherit": Isolation.INHERIT, "hermetic": Isolation.HERMETIC}
    return kinds[cast(str, choice(*kinds)(place, value))]


def skills(place: str, value: object) -> object:
    if isinstance(value, str) and value == "all":
        return value
    return listed(checked(is_skill_name), example='Give a list of names, or "all".')(place, value)


def hooks(place: str, value: object) -> object:
    if is_list(value):
        return _by_event(place, value)
    if not is_mapping(value):
        hint = f"Did you mean [{getattr(value, '__name__', '…')}]?" if callable(value) else ""
        raise invalid_value(
            place, "a list of hooks, or a mapping of events to such lists", value, hint, hidden=True
        )
    found = mapped(text, listed(thing("a hook or a function")))(place, value)
    for event, hooks in cast("Mapping[str, Sequence[object]]", found).items():
        if not hooks or not all(getattr(hook, "allow_unknown", False) for hook in hooks):
            _check_event(f"a key of {place}", event)
    return found


def _by_event(place: str, hooks: Sequence[object]) -> object:
    found: dict[str, tuple[object, ...]] = {}
    for number, hook in enumerate(hooks):
        event: object = getattr(hook, "event", None)
        if not isinstance(event, str) or isinstance(hook, type):
            hint = 'Write @outrider.hook("PreToolUse") above a function, or say {"PreToolUse": [function]}.'
            raise invalid_value(within(place, number), "a hook that knows its event", hook, hint, hidden=True)
        found[event] = (*found.get(event, ()), hook)
    return found


def _check_event(place: str, event: str) -> None:
    from outrider.wire.hooks import HOOK_EVENTS

    if event not in HOOK_EVENTS:
        hint = f"{did_you_mean(event, HOOK_EVENTS)} {NEW_EVENT}".lstrip()
        raise invalid_value(place, "the name of an event", event, hint)


def runner(place: str, value: object) -> object:
    if isinstance(value, type) or not isinstance(value, Runner) or not callable(value.wrap):
        raise invalid_value(place, "a runner: something with `wrap` and `is_local`", value, hidden=True)
    return value


def mcp_servers(place: str, value: object) -> object:
    return path_text(place, value) if is_path(value) else servers_by_name(place, value)


def settings(place: str, value: object) -> object:
    return json_object(place, value) if is_mapping(value) else path_text(place, value)


def buffer_size(place: str, value: object) -> object:
    return whole(0)(place, value) or None


# Options that are parts.


def _tagged(*kinds: type[OptionValue]) -> Validator:
    """One of several parts, or a mapping whose `type` tells which."""
    by_tag = {cast(str, kind.__struct_config__.tag): kind for kind in kinds}
    names = ", ".join(kind.__name__ for kind in kinds)

    def read(place: str, value: object) -> object:
        if isinstance(value, kinds):
            return value.copied()
        if not is_mapping(value):
            raise invalid_value(place, f"a {names} or a mapping", value)
        tag = cast(str, choice(*by_tag)(f"the type of {place}", value.get("type")))
        return from_mapping(by_tag[tag], place, value)

    return read


_any_prompt: Final = _tagged(PresetPrompt, CustomPrompt, FilePrompt)
_any_thinking: Final = _tagged(AdaptiveThinking, EnabledThinking, DisabledThinking)
_any_plugin: Final = _tagged(LocalPlugin)
_any_format: Final = _tagged(JsonSchemaFormat)
_any_trace: Final = value_of(Trace)


def system_prompt(place: str, value: object) -> object:
    if isinstance(value, str) or is_list(value):
        return CustomPrompt(cast("str | tuple[str, ...]", prompt_texts(place, value)))
    return _any_prompt(place, value)


def thinking(place: str, value: object) -> object:
    return _any_thinking(place, {"type": value} if isinstance(value, str) else value)


def plugin(place: str, value: object) -> object:
    return LocalPlugin(path_text(place, value)) if is_path(value) else _any_plugin(place, value)


def trace(place: str, value: object) -> object:
    return named(place, lambda: Trace(cast(str, value))) if is_path(value) else _any_trace(place, value)


def telemetry(place: str, value: object) -> object:
    if value is False or callable(getattr(value, "follow", None)):
        return value
    hint = "True is not enough: `Telemetry()` has the defaults." if value is True else ""
    raise invalid_value(place, "an `outrider.telemetry.Telemetry`, or False", value, hint)


def output_format(place: str, value: object) -> object:
    if is_mapping(value) and (given := value.get("type")) != "json_schema":
        raise OptionsError(
            f"{place} must have the type 'json_schema', not {given!r}",
            hint='Put a schema into it like this: {"type": "json_schema", "schema": {…}}.',
        )
    return _any_format(place, value)
