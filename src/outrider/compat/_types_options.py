"""Owns the options of the reference SDK, and the shapes of what stands in them.

Does not check them, and does not know what Outrider makes of each.
"""

# Annotations are evaluated where they stand: else `NotRequired` would mean nothing at run time.

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NotRequired, TypeAlias, TypedDict

from outrider.compat._types_hooks import HookEvent, HookMatcher
from outrider.compat._types_mcp import McpServerConfig
from outrider.compat._types_permissions import CanUseTool, PermissionMode
from outrider.compat._types_sessions import SessionStore, SessionStoreFlushMode

__all__ = [
    "AgentDefinition",
    "ClaudeAgentOptions",
    "EffortLevel",
    "SandboxIgnoreViolations",
    "SandboxNetworkConfig",
    "SandboxSettings",
    "SdkBeta",
    "SdkPluginConfig",
    "SettingSource",
    "SystemPromptCustom",
    "SystemPromptFile",
    "SystemPromptPreset",
    "TaskBudget",
    "ThinkingConfig",
    "ThinkingConfigAdaptive",
    "ThinkingConfigDisabled",
    "ThinkingConfigEnabled",
    "ThinkingDisplay",
    "ToolsPreset",
]

SdkBeta: TypeAlias = Literal["context-1m-2025-08-07"]
"""A feature of the API that has to be asked for."""

SettingSource: TypeAlias = Literal["user", "project", "local"]
"""A settings file that the agent reads."""

EffortLevel: TypeAlias = Literal["low", "medium", "high", "xhigh", "max"]
"""How hard the model thinks."""

ThinkingDisplay: TypeAlias = Literal["summarized", "omitted"]
"""What of the model's thinking arrives."""


class SystemPromptPreset(TypedDict):
    """The agent's own system prompt, with or without more."""

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
    """The tools that the agent has by itself."""

    type: Literal["preset"]
    preset: Literal["claude_code"]


class TaskBudget(TypedDict):
    """Tokens that the model is told it may use."""

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
    """What commands in the sandbox reach."""

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
"""By command, or `*`: parts of what is not worth a report."""


class SandboxSettings(TypedDict, total=False):
    """How commands are shut in."""

    enabled: bool
    autoAllowBashIfSandboxed: bool
    excludedCommands: list[str]
    allowUnsandboxedCommands: bool
    network: SandboxNetworkConfig
    ignoreViolations: SandboxIgnoreViolations
    enableWeakerNestedSandbox: bool


@dataclass
class AgentDefinition:
    """A subagent. The names are those that the agent itself uses; what is None is left out."""

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
class ClaudeAgentOptions:
    """How the agent runs. Making them checks nothing; what cannot be is refused when they are used."""

    tools: list[str] | ToolsPreset | None = None
    """The agent's own tools that there are; an empty list for none."""
    allowed_tools: list[str] = field(default_factory=list[str])
    """Tools that run without asking."""
    system_prompt: str | SystemPromptPreset | SystemPromptCustom | SystemPromptFile | None = None
    """None is an empty one."""
    mcp_servers: dict[str, McpServerConfig] | str | Path = field(default_factory=dict[str, McpServerConfig])
    """By name, or the path of a file or its text."""
    strict_mcp_config: bool = False
    """No other servers than these."""
    permission_mode: PermissionMode | None = None
    continue_conversation: bool = False
    """Go on with the last session of the folder."""
    resume: str | None = None
    """The session to go on with."""
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
    """The agent's program."""
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
    """Gets each line of the program's error output."""
    can_use_tool: CanUseTool | None = None
    hooks: dict[HookEvent, list[HookMatcher]] | None = None
    user: str | None = None
    """The user of the operating system that the program runs as."""
    include_partial_messages: bool = False
    include_hook_events: bool = False
    forward_subagent_text: bool = False
    verbatim_prompts: bool = False
    """Slash commands and @mentions in prompts mean nothing."""
    fork_session: bool = False
    """Go on in a copy of the session."""
    resume_session_at: str | None = None
    resume_drops_turn: str | None = None
    agents: dict[str, AgentDefinition] | None = None
    setting_sources: list[SettingSource] | None = None
    """The settings files that count; None for what the program does by itself."""
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
    """Of one call of the store, when a session is resumed."""
    task_budget: TaskBudget | None = None
    client_app: str | None = None
    """What the program calls itself towards the API."""
