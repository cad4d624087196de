"""Defines `ClaudeAgentOptions` and the types in it.

Does not validate or translate options: `outrider.compat._options` does.
"""

import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NotRequired, Protocol, TypeAlias, TypedDict

from outrider.compat._types.hooks import HookEvent, HookMatcher
from outrider.wire import choices as _choices
from outrider.wire.permissions import PermissionResult, PermissionUpdate

if TYPE_CHECKING:
    from outrider.compat._types.messages import SessionKey, SessionStoreEntry, SessionSummaryEntry
    from outrider.transcripts import SessionListSubkeysKey, SessionStoreListEntry

# Annotations are evaluated where they stand: else `NotRequired` would mean nothing at run time.

PermissionMode: TypeAlias = _choices.KnownPermissionMode

McpServer: TypeAlias = Any
"""A server of this process: what `create_sdk_mcp_server` makes, or one of the `mcp` library."""


class McpStdioServerConfig(TypedDict):
    """A server that the agent starts as a program."""

    type: NotRequired[Literal["stdio"]]
    command: str
    args: NotRequired[list[str]]
    env: NotRequired[dict[str, str]]


class McpSSEServerConfig(TypedDict):
    """A server that the agent reaches by HTTP with server-sent events."""

    type: Literal["sse"]
    url: str
    headers: NotRequired[dict[str, str]]


class McpHttpServerConfig(TypedDict):
    """A server that the agent reaches by HTTP."""

    type: Literal["http"]
    url: str
    headers: NotRequired[dict[str, str]]


class McpSdkServerConfig(TypedDict):
    """A server of this process."""

    type: Literal["sdk"]
    name: str
    instance: McpServer


McpServerConfig: TypeAlias = (
    McpStdioServerConfig | McpSSEServerConfig | McpHttpServerConfig | McpSdkServerConfig
)
"""A server in options."""


SdkBeta: TypeAlias = _choices.KnownBeta
SettingSource: TypeAlias = _choices.KnownSettingSource
EffortLevel: TypeAlias = _choices.KnownEffortLevel

ThinkingDisplay: TypeAlias = Literal["summarized", "omitted"]
"""How the model's thinking is shown."""


class SystemPromptPreset(TypedDict):
    """The agent's own system prompt, perhaps with more text."""

    type: Literal["preset"]
    preset: Literal["claude_code"]
    append: NotRequired[str]
    exclude_dynamic_sections: NotRequired[bool]
    snapshot: NotRequired[bool]


class SystemPromptCustom(TypedDict):
    """A system prompt in place of the agent's own."""

    type: Literal["custom"]
    prompt: str
    snapshot: NotRequired[bool]


class SystemPromptFile(TypedDict):
    """A system prompt that the agent reads from a file."""

    type: Literal["file"]
    path: str


class ToolsPreset(TypedDict):
    """The agent's own tools."""

    type: Literal["preset"]
    preset: Literal["claude_code"]


class TaskBudget(TypedDict):
    """How many tokens the model may use, for its information."""

    total: int


class ThinkingConfigAdaptive(TypedDict):
    """The model decides how much it thinks."""

    type: Literal["adaptive"]
    display: NotRequired[ThinkingDisplay]


class ThinkingConfigEnabled(TypedDict):
    """The model thinks, within a budget of tokens."""

    type: Literal["enabled"]
    budget_tokens: int
    display: NotRequired[ThinkingDisplay]


class ThinkingConfigDisabled(TypedDict):
    """The model does not think first."""

    type: Literal["disabled"]


ThinkingConfig: TypeAlias = ThinkingConfigAdaptive | ThinkingConfigEnabled | ThinkingConfigDisabled
"""Whether and how much the model thinks first."""


class SdkPluginConfig(TypedDict):
    """A plugin, by its folder."""

    type: Literal["local"]
    path: str


class SandboxNetworkConfig(TypedDict, total=False):
    """The network of commands in the sandbox."""

    allowedDomains: list[str]
    deniedDomains: list[str]
    allowManagedDomainsOnly: bool
    allowUnixSockets: list[str]
    allowAllUnixSockets: bool
    allowLocalBinding: bool
    allowMachLookup: list[str]
    httpProxyPort: int
    socksProxyPort: int


SandboxIgnoreViolations: TypeAlias = dict[str, list[str]]
"""By command, or `*`: parts of violations that are not reported."""


class SandboxSettings(TypedDict, total=False):
    """The sandbox of commands."""

    enabled: bool
    autoAllowBashIfSandboxed: bool
    excludedCommands: list[str]
    allowUnsandboxedCommands: bool
    network: SandboxNetworkConfig
    ignoreViolations: SandboxIgnoreViolations
    enableWeakerNestedSandbox: bool


@dataclass
class AgentDefinition:
    """A subagent. The names are those of the agent itself; None is omitted."""

    description: str
    """When the model should use it."""
    prompt: str
    """Its system prompt."""
    tools: list[str] | None = None
    disallowedTools: list[str] | None = None  # noqa: N815
    model: str | None = None
    skills: list[str] | None = None
    memory: Literal["user", "project", "local"] | None = None
    mcpServers: list[str | dict[str, Any]] | None = None  # noqa: N815
    initialPrompt: str | None = None  # noqa: N815
    maxTurns: int | None = None  # noqa: N815
    background: bool | None = None
    effort: EffortLevel | int | None = None
    permissionMode: PermissionMode | None = None  # noqa: N815


@dataclass
class ToolPermissionContext:
    """Why the agent asks, and updates that would avoid the question next time."""

    signal: Any | None = None
    """Always None."""
    suggestions: list[PermissionUpdate] = field(default_factory=list[PermissionUpdate])
    """To return as `updated_permissions`."""
    tool_use_id: str | None = None
    agent_id: str | None = None
    """The subagent that asks; None on the main thread."""
    blocked_path: str | None = None
    decision_reason: str | None = None
    title: str | None = None
    display_name: str | None = None
    description: str | None = None


CanUseTool: TypeAlias = Callable[[str, dict[str, Any], ToolPermissionContext], Awaitable[PermissionResult]]
"""A permission callback: takes the tool's name, its input and the context."""


class CanUseToolShadowedWarning(UserWarning):
    """A permission callback is not called for some tools, or for any."""


SessionStoreFlushMode: TypeAlias = Literal["batched", "eager"]
"""When entries are sent to a store: at the end of a turn, or at once."""


if TYPE_CHECKING:
    # For type checkers, only what a store needs here: Outrider's own contract asks for more, and a store that
    # does not derive from it would have to have all of it.
    class SessionStore(Protocol):
        """Keeps transcripts: `append` and `load` have to be written, the others are optional."""

        async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None: ...
        async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None: ...
        async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
            raise NotImplementedError

        async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
            raise NotImplementedError

        async def delete(self, key: SessionKey) -> None:
            raise NotImplementedError

        async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
            raise NotImplementedError
else:
    # The same class, so that both APIs agree on which of the optional methods a store has.
    from outrider.transcripts import SessionStore


@dataclass
class ClaudeAgentOptions:
    """How the agent runs. Invalid options are rejected when they are used, not before."""

    tools: list[str] | ToolsPreset | None = None
    """The agent's own tools to offer; an empty list for none."""
    allowed_tools: list[str] = field(default_factory=list[str])
    """Tools that run without asking."""
    system_prompt: str | SystemPromptPreset | SystemPromptCustom | SystemPromptFile | None = None
    """None: an empty one."""
    mcp_servers: dict[str, McpServerConfig] | str | Path = field(default_factory=dict[str, McpServerConfig])
    """By name, or as the path or the text of a file."""
    strict_mcp_config: bool = False
    """Use no other servers than these."""
    permission_mode: PermissionMode | None = None
    continue_conversation: bool = False
    """Continue the last session of the folder."""
    resume: str | None = None
    """The session to continue."""
    session_id: str | None = None
    """The id of the new session."""
    max_turns: int | None = None
    max_budget_usd: float | None = None
    disallowed_tools: list[str] = field(default_factory=list[str])
    model: str | None = None
    fallback_model: str | None = None
    betas: list[SdkBeta] = field(default_factory=list[SdkBeta])
    permission_prompt_tool_name: str | None = None
    """An MCP tool that is asked for permission; not together with `can_use_tool`."""
    cwd: str | Path | None = None
    cli_path: str | Path | None = None
    """The path of Claude Code."""
    settings: str | None = None
    """The path of a settings file, or its text."""
    add_dirs: list[str | Path] = field(default_factory=list[str | Path])
    env: dict[str, str] = field(default_factory=dict[str, str])
    extra_args: dict[str, str | None] = field(default_factory=dict[str, str | None])
    """Further flags of the program, without their dashes; None for one that takes no value."""
    max_buffer_size: int | None = None
    """The longest message that is read."""
    debug_stderr: Any = sys.stderr
    """Not used any more."""
    stderr: Callable[[str], None] | None = None
    """Called with each line of the program's error output."""
    can_use_tool: CanUseTool | None = None
    hooks: dict[HookEvent, list[HookMatcher]] | None = None
    user: str | None = None
    """The user of the operating system that the program runs as."""
    include_partial_messages: bool = False
    include_hook_events: bool = False
    forward_subagent_text: bool = False
    verbatim_prompts: bool = False
    """Slash commands and @mentions in prompts have no effect."""
    fork_session: bool = False
    """Continue in a copy of the session."""
    resume_session_at: str | None = None
    resume_drops_turn: str | None = None
    agents: dict[str, AgentDefinition] | None = None
    setting_sources: list[SettingSource] | None = None
    """The settings files to read; None for the default of the program."""
    skills: list[str] | Literal["all"] | None = None
    sandbox: SandboxSettings | None = None
    plugins: list[SdkPluginConfig] = field(default_factory=list[SdkPluginConfig])
    max_thinking_tokens: int | None = None
    """Older than `thinking`, which wins."""
    thinking: ThinkingConfig | None = None
    effort: EffortLevel | None = None
    output_format: dict[str, Any] | None = None
    """`{"type": "json_schema", "schema": …}`."""
    enable_file_checkpointing: bool = False
    session_store: SessionStore | None = None
    session_store_flush: SessionStoreFlushMode = "batched"
    load_timeout_ms: int = 60_000
    """For one call of the store, when a session is resumed."""
    task_budget: TaskBudget | None = None
    client_app: str | None = None
    """The name of the application, for the API."""
