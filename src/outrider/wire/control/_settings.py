"""Defines the requests about settings, rules, plugins, usage and dialogs, and their answers.

Also finds the class of any request by its name on the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import field

from outrider.wire._value import Json, JsonObject
from outrider.wire.control import _mcp, _session
from outrider.wire.control._base import Acknowledged, GenericRequest, Nullable, Payload, Request
from outrider.wire.control._mcp import McpServerStatus
from outrider.wire.control._session import AgentInfo, ModelInfo, SlashCommand

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class ContextCategory(Payload, rename="camel"):
    """A share of the context window."""

    id: str | None = None
    name: str = ""
    tokens: int = 0
    color: str = ""
    is_deferred: bool | None = None
    kind: str | None = None
    """`used`, `free`, `buffer` or `deferred`."""


class ContextSquare(Payload, rename="camel"):
    """A square of the picture that shows the context window."""

    color: str = ""
    is_filled: bool = False
    category_name: str = ""
    tokens: int = 0
    percentage: float = 0
    square_fullness: float = 0


class ContextFile(Payload):
    """An instruction file in the context."""

    path: str = ""
    type: str = ""
    tokens: int = 0


class ContextTool(Payload, rename="camel"):
    """A tool, or a section of the system prompt, in the context."""

    name: str = ""
    server_name: str | None = None
    """The MCP server that it belongs to."""
    tokens: int = 0
    is_loaded: bool | None = None
    """False: the model only knows its name."""


class ContextAgent(Payload, rename="camel"):
    """The description of a subagent in the context."""

    agent_type: str = ""
    source: str = ""
    tokens: int = 0


class ContextCommands(Payload, rename="camel"):
    """The slash commands in the context."""

    total_commands: int = 0
    included_commands: int = 0
    tokens: int = 0


class ContextSkill(Payload):
    """The description of a skill in the context."""

    name: str = ""
    source: str = ""
    tokens: int = 0
    path: str | None = None


class ContextSkills(Payload, rename="camel"):
    """The skills in the context."""

    total_skills: int = 0
    included_skills: int = 0
    tokens: int = 0
    skill_frontmatter: list[ContextSkill] = []


class ContextToolCalls(Payload, rename="camel"):
    """The calls of one tool in the conversation."""

    name: str = ""
    call_tokens: int = 0
    result_tokens: int = 0


class ContextAttachments(Payload):
    """The attachments of one kind in the conversation."""

    name: str = ""
    tokens: int = 0


class MessageBreakdown(Payload, rename="camel"):
    """What the messages of the conversation are made of."""

    tool_call_tokens: int = 0
    tool_result_tokens: int = 0
    attachment_tokens: int = 0
    assistant_message_tokens: int = 0
    user_message_tokens: int = 0
    redirected_context_tokens: int | None = None
    unattributed_tokens: int | None = None
    tool_calls_by_type: list[ContextToolCalls] = []
    attachments_by_type: list[ContextAttachments] = []


class ApiUsage(Payload):
    """Tokens of the last API response."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0


class ContextUsage(Payload, rename="camel"):
    """What fills the context window."""

    categories: list[ContextCategory] = []
    total_tokens: int = 0
    max_tokens: int = 0
    raw_max_tokens: int = 0
    """Of the model, whatever the settings say."""
    autocompact_source: str | None = None
    """Where the threshold comes from."""
    percentage: float = 0
    """0 to 100."""
    grid_rows: list[list[ContextSquare]] = []
    model: str = ""
    memory_files: list[ContextFile] = []
    mcp_tools: list[ContextTool] = []
    mcp_instructions: list[Json] | None = None
    deferred_builtin_tools: list[ContextTool] | None = None
    system_tools: list[ContextTool] | None = None
    system_prompt_sections: list[ContextTool] | None = None
    agents: list[ContextAgent] = []
    slash_commands: ContextCommands | None = None
    skills: ContextSkills | None = None
    auto_compact_threshold: int | None = None
    is_auto_compact_enabled: bool = False
    message_breakdown: MessageBreakdown | None = None
    api_usage: Nullable[ApiUsage] = None
    """None before the first turn."""


class ModelTotals(
    Payload,
    rename={
        "input_tokens": "inputTokens",
        "output_tokens": "outputTokens",
        "cache_read_input_tokens": "cacheReadInputTokens",
        "cache_creation_input_tokens": "cacheCreationInputTokens",
        "web_search_requests": "webSearchRequests",
        "cost_usd": "costUSD",
        "context_window": "contextWindow",
        "max_output_tokens": "maxOutputTokens",
        "thinking_tokens": "thinkingTokens",
        "cache_creation_5m_input_tokens": "cacheCreationEphemeral5mInputTokens",
        "cache_creation_1h_input_tokens": "cacheCreationEphemeral1hInputTokens",
        "canonical_model": "canonicalModel",
        "cost_basis": "costBasis",
    },
):
    """Tokens and money of one model since the process began."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    web_search_requests: int = 0
    cost_usd: float = 0
    context_window: int = 0
    max_output_tokens: int = 0
    thinking_tokens: int | None = None
    cache_creation_5m_input_tokens: int | None = None
    cache_creation_1h_input_tokens: int | None = None
    canonical_model: str | None = None
    provider: str | None = None
    cost_basis: str | None = None
    """`list`, `managed` or `unknown`: which prices were used."""


class SessionUsage(Payload):
    """What the process has used since it began."""

    total_cost_usd: float = 0
    total_api_duration_ms: float = 0
    total_duration_ms: float = 0
    total_lines_added: int = 0
    total_lines_removed: int = 0
    model_usage: dict[str, ModelTotals] = {}


class RateLimitWindow(Payload):
    """How much of a rate limit is used up."""

    utilization: Nullable[float] = None
    """0 to 100."""
    resets_at: Nullable[str] = None
    """ISO 8601."""
    display_name: str | None = None
    """Of a limit for one model: its name."""


class ExtraUsage(Payload):
    """Paid usage beyond the subscription."""

    is_enabled: bool = False
    monthly_limit: Nullable[float] = None
    used_credits: Nullable[float] = None
    utilization: Nullable[float] = None


class RateLimits(Payload):
    """The limits of a subscription; those that do not apply are None."""

    five_hour: RateLimitWindow | None = None
    seven_day: RateLimitWindow | None = None
    seven_day_opus: RateLimitWindow | None = None
    seven_day_sonnet: RateLimitWindow | None = None
    seven_day_oauth_apps: RateLimitWindow | None = None
    model_scoped: list[RateLimitWindow] | None = None
    extra_usage: ExtraUsage | None = None


class UsageBehaviors(Payload):
    """What the usage went into, found by a scan of the transcripts on this machine."""

    day: Json = None
    week: Json = None


class UsageReport(Payload):
    """What the session has used, and what the account has left."""

    session: SessionUsage = field(default_factory=SessionUsage)
    subscription_type: Nullable[str] = None
    rate_limits_available: bool = False
    """False: the account has no such limits (an API key), or they could not be had."""
    rate_limits: Nullable[RateLimits] = None
    behaviors: Nullable[UsageBehaviors] = None
    """None: not asked for."""


class SessionCost(Payload):
    """The cost display: usage and money for a person to read."""

    text: str = ""


class SettingsSource(Payload):
    """The settings of one source, before they are merged."""

    source: str = ""
    settings: JsonObject = {}


class SettingsError(Payload):
    """A settings file, or a value in one, that was skipped."""

    file: str | None = None
    path: str = ""
    """Where in the file, as `a.b`; empty: all of it."""
    message: str = ""


class AppliedSettings(Payload, rename="camel"):
    """What the session really uses, after settings, flags and its own choices."""

    model: str | None = None
    effort: Nullable[str] = None
    advisor: Nullable[str] = None
    ultracode: bool | None = None
    ultracode_requested: bool | None = None
    ultracode_available: bool | None = None
    ultrathink_available: bool | None = None
    outside_file_tool_reads_blocked: bool | None = None
    outside_file_tool_writes_blocked: bool | None = None
    outside_blocks_count_launch_folders_only: bool | None = None
    launch_env_left_own_files_in_place: bool | None = None


class SettingsReport(Payload):
    """The settings, merged and by source."""

    effective: JsonObject = {}
    sources: list[SettingsSource] = []
    """Later ones win."""
    applied: AppliedSettings = field(default_factory=AppliedSettings)
    errors: list[SettingsError] | None = None

    @property
    def provenance(self) -> dict[str, str]:
        """By key, the last source of each setting. Objects and lists may have parts of those before."""
        return {key: each.source for each in self.sources for key in each.settings}


class ModelList(Payload):
    """The models that the session can be switched to."""

    models: list[ModelInfo] = []


class BinaryVersion(Payload, rename="camel"):
    """Which build of the program runs."""

    version: str = ""
    build_time: str | None = None


class RuleDescription(Payload):
    """A permission rule in words."""

    prefix: str = ""
    emphasis: str | None = None
    suffix: str | None = None


class PermissionRule(Payload, rename="camel"):
    """A permission rule and where it comes from."""

    behavior: str = ""
    """`allow`, `deny` or `ask`."""
    source: str = ""
    rule: str = ""
    description: RuleDescription | None = None
    editability: str | None = None
    not_in_effect: Json = None


class WorkspaceDirectory(Payload):
    """A directory that tools may work in."""

    path: str = ""
    source: str = ""


class PermissionState(Payload, rename="camel"):
    """The permission rules and the directories of the workspace."""

    rules: list[PermissionRule] = []
    workspace_directories: list[WorkspaceDirectory] = []
    original_cwd: str = ""
    managed_only: bool = False
    """Only the rules of the organisation count."""
    errors: list[Json] | None = None
    withheld: Json = None


class PermissionRules(Payload):
    """The permission rules in force."""

    state: PermissionState = field(default_factory=PermissionState)


class HookEntry(Payload, rename="camel"):
    """A hook that is set up."""

    event: str = ""
    matcher: str | None = None
    source: str = ""
    source_label: str | None = None
    type: str = ""
    """`command`, `prompt`, `callback`, …"""
    display_text: str | None = None
    command_text: str | None = None
    content_label: str | None = None
    condition: str | None = None
    timeout: float | None = None
    runs_once: bool | None = None
    runs_in_background: bool | None = None
    disabled: bool | None = None
    editable: bool | None = None


class HookEventInfo(Payload, rename="camel"):
    """An event that hooks can be set on."""

    name: str = ""
    summary: str = ""
    supports_matcher: bool = False


class HookPolicy(Payload, rename="camel"):
    """Which hooks may run at all."""

    disabled_by_policy: bool = False
    managed_only: bool = False
    plugin_only: bool = False
    all_disabled: bool = False
    policy_hook_count: int = 0


class HooksListing(Payload, rename="camel"):
    """The hooks that are set up, and the events there are."""

    events: list[Json] = []
    hooks: list[HookEntry] = []
    event_catalog: list[HookEventInfo] = []
    policy: HookPolicy = field(default_factory=HookPolicy)
    safe_mode: bool | None = None
    bare_mode: bool | None = None
    errors: list[Json] | None = None


class PluginInfo(Payload):
    """A plugin that is loaded."""

    name: str = ""
    path: str = ""
    source: str | None = None
    version: str | None = None


class CacheImpact(Payload):
    """What in the prompt would change, so that it has to be cached again."""

    mcp_servers_added: list[str] | None = None
    mcp_servers_removed: list[str] | None = None
    lsp_tool_change: Json = None


class PluginsReloaded(Payload, rename={"mcp_servers": "mcpServers"}):
    """What there is after the plugins were loaded again."""

    commands: list[SlashCommand] = []
    agents: list[AgentInfo] = []
    plugins: list[PluginInfo] = []
    mcp_servers: list[McpServerStatus] = []
    error_count: int = 0
    held: bool | None = None
    """True: nothing was loaded, because of `cache_impact`."""
    cache_impact: CacheImpact | None = None


class SkillsReloaded(Payload):
    """The skills and commands after they were read again."""

    skills: list[SlashCommand] = []


class OutputStylesReloaded(Payload):
    """The output styles after they were read again."""

    available_output_styles: list[str] = []


class StatusRow(Payload):
    """A line of the status display."""

    label: str = ""
    value: str = ""


class StatusSection(Payload):
    """A group of lines of the status display."""

    title: str = ""
    rows: list[StatusRow] = []


class StatusReport(Payload):
    """The status display: facts about the session for a person to read."""

    sections: list[StatusSection] = []


class MemoryFile(Payload):
    """An instruction file that the session reads, or would read."""

    kind: str = ""
    path: str = ""
    label: str = ""
    description: str = ""
    exists: bool = False


class MemoryFolder(Payload):
    """A folder that memories are kept in."""

    kind: str = ""
    path: str = ""
    label: str = ""
    description: str = ""


class MemorySwitch(Payload):
    """Whether the session keeps memories by itself."""

    shown: bool | None = None
    enabled: bool = False
    toggleable: bool = False
    status: str = ""
    detail: str | None = None


class MemoryDialog(Payload):
    """What the memory dialog shows."""

    files: list[MemoryFile] = []
    folders: list[MemoryFolder] = []
    memories: list[Json] = []
    auto_memory: MemorySwitch = field(default_factory=MemorySwitch)
    auto_dream: MemorySwitch = field(default_factory=MemorySwitch)


class SkillEntry(Payload):
    """A skill in the skills dialog."""

    name: str = ""
    display_name: str | None = None
    description: str = ""
    source: str = ""
    tokens: int = 0
    state: str = ""
    advertised: bool = False
    """The model is told about it."""
    handles: JsonObject = {}


class SkillsDialog(Payload):
    """What the skills dialog shows."""

    skills: list[SkillEntry] = []


class SandboxDependencies(Payload):
    """What the sandbox needs and does not find."""

    errors: list[str] = []
    warnings: list[str] = []


class SandboxRestrictions(Payload):
    """What a command in the sandbox may reach."""

    fs_deny_read: list[str] = []
    fs_allow_read: list[str] = []
    fs_allow_write: list[str] = []
    fs_deny_write: list[str] = []
    network_allowed_domains: list[str] = []
    network_denied_domains: list[str] = []
    network_managed: bool = False
    unix_sockets: list[str] = []
    allow_all_unix_sockets: bool = False
    ignored_glob_patterns: list[str] = []


class SandboxDialog(Payload):
    """What the sandbox dialog shows."""

    supported: bool = False
    locked: bool = False
    """The organisation decides."""
    overrides_locked: bool = False
    policy_origins: list[Json] = []
    enabled: bool = False
    enabled_in_settings: bool = False
    mode: str = ""
    auto_allow_available: bool = False
    no_sandbox_allowed: bool = False
    unsandboxed_fallback: bool = False
    dependencies: SandboxDependencies = field(default_factory=SandboxDependencies)
    excluded_commands: list[str] = []
    restrictions: SandboxRestrictions = field(default_factory=SandboxRestrictions)


class ApplyFlagSettings(Request[Acknowledged], tag="apply_flag_settings"):
    """Changes settings for this process only. One bad value, and nothing is changed."""

    settings: JsonObject
    """Laid over the settings key by key; None takes a key away."""


class UpdateSettings(Request[Acknowledged], tag="update_settings"):
    """Writes to a settings file. Only a few keys are allowed, such as `outputStyle`."""

    source: str
    """`localSettings` or `userSettings`."""
    settings: JsonObject


class GetSettings(Request[SettingsReport], tag="get_settings"):
    """Asks for the settings, merged and by source, and for what was skipped."""


class GetContextUsage(Request[ContextUsage], tag="get_context_usage"):
    """Asks what fills the context window."""

    detail: str | None = None
    """`summary` is an estimate at once; `full`, the default, has the API count and takes a second."""


class GetUsage(Request[UsageReport], tag="get_usage"):
    """Asks what the session has used, and what the account has left."""

    skip_behaviors: bool | None = None
    """Do not scan the transcripts on this machine."""


class GetSessionCost(Request[SessionCost], tag="get_session_cost"):
    """Asks for the cost display."""


class ListModels(Request[ModelList], tag="list_models"):
    """Asks which models there are."""


class GetBinaryVersion(Request[BinaryVersion], tag="get_binary_version"):
    """Asks which build of Claude Code runs."""


class GetHooksListing(Request[HooksListing], tag="get_hooks_listing"):
    """Asks which hooks are set up."""


class ListPermissionRules(Request[PermissionRules], tag="list_permission_rules"):
    """Asks which permission rules are in force."""


class ReloadPlugins(Request[PluginsReloaded], tag="reload_plugins"):
    """Loads plugins again, and with them commands, agents and servers."""

    hold_on_cache_impact: bool | None = None
    """Do nothing if the prompt would have to be cached again; say so instead."""
    add_plugins: list[JsonObject] | None = None
    refuse_if_busy: bool | None = None
    """Fail with `reload_plugins_busy` during a turn."""


class ReloadSkills(Request[SkillsReloaded], tag="reload_skills"):
    """Reads skills and commands again."""


class ReloadOutputStyles(Request[OutputStylesReloaded], tag="reload_output_styles"):
    """Reads output styles again."""


class GetStatus(Request[StatusReport], tag="get_status"):
    """Asks for the status display."""


class GetMemoryDialog(Request[MemoryDialog], tag="get_memory_dialog"):
    """Asks for what the memory dialog shows."""


class GetSkillsDialog(Request[SkillsDialog], tag="get_skills_dialog"):
    """Asks for what the skills dialog shows."""


class GetSandboxDialog(Request[SandboxDialog], tag="get_sandbox_dialog"):
    """Asks for what the sandbox dialog shows."""


def _requests_in(theme: Mapping[str, object]) -> Iterator[tuple[str, type[Request[Any]]]]:
    for kind in theme.values():
        if isinstance(kind, type) and issubclass(kind, Request) and kind.__module__ == theme["__name__"]:
            yield str(kind.__struct_config__.tag), kind


REQUESTS: Final[Mapping[str, type[Request[Any]]]] = dict(
    each for theme in (vars(_session), {**globals()}, vars(_mcp)) for each in _requests_in(theme)
)
"""Every request that has a class, by `subtype`."""


def request_from_wire(data: JsonObject) -> Request[Any]:
    """Type the `request` object of a control request; never raises for a dict.

    A subtype that is not known, or a field that is missing or does not fit, gives a `GenericRequest`.
    """
    subtype = data.get("subtype")
    kind = REQUESTS.get(subtype) if isinstance(subtype, str) else None
    if kind is not None:
        try:
            return kind.from_wire(data)
        except (ValueError, RecursionError):
            # A ValidationError is a ValueError, and so is what msgspec raises for a lone surrogate in a key.
            pass
    return GenericRequest.from_wire(data)
