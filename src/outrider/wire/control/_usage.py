"""Defines the answers about usage: the context window, tokens, costs, rate limits.

The requests are in `_settings`. Result messages carry a usage of their own (`outrider.wire.shapes`).
"""

from __future__ import annotations

from msgspec import field

from outrider.wire._value import Json
from outrider.wire.control._base import Nullable, Payload


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
