"""Describes the JSON objects inside messages as `TypedDict`s, for type checkers and readers.

At run time they stay plain dicts with Claude Code's keys, so that unknown keys are kept. Nothing here decodes
or validates.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, Required, TypedDict

# fmt: off
MessageOrigin = TypedDict(
    "MessageOrigin",
    {
        "kind": Required[str],
        "server": str, "from": str, "fromMode": str, "name": str, "fromSession": str, "senderTaskId": str,
        "body": str, "verifiedPeerPid": int, "subkind": str, "fireReason": str, "runId": str, "producer": str,
    },
    total=False,
)
"""Who caused a turn or a user message; `kind` is one of `MessageOriginKind`. Left out: the host itself."""
# fmt: on


class CacheCreation(TypedDict, total=False):
    """Cached tokens by lifetime."""

    ephemeral_5m_input_tokens: int
    ephemeral_1h_input_tokens: int


class Usage(TypedDict, total=False):
    """Tokens of one API response, or of the main loop of one turn."""

    input_tokens: int
    output_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    cache_creation: CacheCreation
    server_tool_use: dict[str, int]
    service_tier: str | None
    inference_geo: str | None
    iterations: list[dict[str, Any]]
    speed: str | None


class ModelUsage(TypedDict):
    """Tokens and money by model, added up since the process began."""

    inputTokens: int
    outputTokens: int
    cacheReadInputTokens: int
    cacheCreationInputTokens: int
    webSearchRequests: int
    costUSD: float
    contextWindow: int
    maxOutputTokens: int
    thinkingTokens: NotRequired[int]
    cacheCreationEphemeral5mInputTokens: NotRequired[int]
    cacheCreationEphemeral1hInputTokens: NotRequired[int]
    canonicalModel: NotRequired[str]
    provider: NotRequired[str]
    costBasis: NotRequired[str]


class TaskUsage(TypedDict):
    """What a background task has used so far."""

    total_tokens: int
    tool_uses: int
    duration_ms: int


class PermissionDenial(TypedDict):
    """A tool call that was refused during the turn."""

    tool_name: str
    tool_use_id: str
    tool_input: dict[str, Any]


class ToolUseMeta(TypedDict, total=False):
    """How to show a tool call of an MCP server to a person."""

    id: Required[str]
    display_name: str
    server_display_name: str
    tool_name: str


class PermissionDecision(TypedDict, total=False):
    """Who let a tool call through or stopped it."""

    decision: Required[str]
    source: str
    reason_type: str


class ToolResultMeta(TypedDict, total=False):
    """What became of a tool call, beside its result."""

    id: Required[str]
    permission_decision: PermissionDecision
    non_execution_kind: str


class InvalidConfigFile(TypedDict, total=False):
    """The configuration file that kept the agent from starting."""

    path: Required[str]
    is_global: bool
    backup_searched: bool
    backup_path: str


class LocalCommandRun(TypedDict):
    """A slash command that the agent carried out itself."""

    command: str
    args: str


class LocalCommandOutcome(TypedDict, total=False):
    """How a slash command ended."""

    kind: Required[str]


class SystemInitMcpServer(TypedDict):
    """An MCP server as the init message lists it."""

    name: str
    status: str
    source: NotRequired[str]


class SystemInitMcpServerError(TypedDict):
    """An MCP server that was skipped, and why."""

    name: str
    type: str
    message: str


class SystemInitPlugin(TypedDict):
    """A plugin that was loaded."""

    name: str
    path: str
    version: NotRequired[str]
    source: NotRequired[str]


class SystemInitPluginError(TypedDict):
    """A plugin that was skipped, and why."""

    plugin: str
    type: str
    message: str
    path: NotRequired[str]
    managed_lock: NotRequired[bool]


class SystemInitData(TypedDict):
    """The `data` of an init message, keys as sent."""

    type: Literal["system"]
    subtype: Literal["init"]
    uuid: str
    session_id: str
    apiKeySource: str
    claude_code_version: str
    cwd: str
    tools: list[str]
    mcp_servers: list[SystemInitMcpServer]
    model: str
    permissionMode: str
    slash_commands: list[str]
    output_style: str
    skills: list[str]
    plugins: list[SystemInitPlugin]
    agents: NotRequired[list[str]]
    betas: NotRequired[list[str]]
    terminal_slash_commands: NotRequired[list[str]]
    plugin_errors: NotRequired[list[SystemInitPluginError]]
    fast_mode_state: NotRequired[str]
    fast_mode_disabled_reason: NotRequired[str]
    capabilities: NotRequired[list[str]]


class SlashCommandShape(TypedDict):
    """A slash command that the agent offers."""

    name: str
    description: str
    argumentHint: str
    aliases: NotRequired[list[str]]
    builtin: NotRequired[bool]


class PreservedSegment(TypedDict):
    """The ends of the stretch of history that a compaction kept."""

    head_uuid: str
    anchor_uuid: str
    tail_uuid: str


class PreservedMessages(TypedDict):
    """The messages that a compaction kept."""

    anchor_uuid: str
    uuids: list[str]
    all_uuids: NotRequired[list[str]]


class CompactMetadata(TypedDict, total=False):
    """What a compaction did."""

    trigger: Required[str]
    pre_tokens: int
    post_tokens: int
    cumulative_dropped_tokens: int
    duration_ms: int
    preserved_segment: PreservedSegment
    preserved_messages: PreservedMessages


class TaskPatch(TypedDict, total=False):
    """The fields of a task that changed."""

    status: str
    description: str
    end_time: int
    total_paused_ms: int
    error: str
    is_backgrounded: bool


class BackgroundTask(TypedDict):
    """A task that is alive in the background."""

    task_id: str
    task_type: str
    description: str
    run_id: NotRequired[str]
    subagent_type: NotRequired[str]
    parent_task_id: NotRequired[str]
    ambient: NotRequired[bool]


class PromptSubmitOutcome(TypedDict, total=False):
    """What a hook did with a prompt."""

    kind: Required[str]
    prompt_kept: bool
    reason: str
    no_verdict_kind: str


class NoResponse(TypedDict):
    """How long an API request was waited for in vain."""

    waited_ms: int
    retry_wait_ms: int


class SubagentRetry(TypedDict, total=False):
    """An API retry inside a subagent."""

    agent_id: str
    attempt: int
    max_retries: int
    retry_delay_ms: int
    error_status: int | None
    error_category: str


class RecalledMemory(TypedDict, total=False):
    """A memory that was put before the model."""

    path: Required[str]
    scope: str
    content: str


class PersistedFile(TypedDict):
    """A file that was stored."""

    filename: str
    file_id: str


class FailedFile(TypedDict):
    """A file that could not be stored."""

    filename: str
    error: str


class ActiveGoal(TypedDict, total=False):
    """The goal that the session works towards."""

    condition: Required[str]
    iterations: int
    set_at: int
    tokens_at_start: int
    last_reason: str


class AbandonedBlocks(TypedDict):
    """From which content block on a cut-off API message is void."""

    api_message_id: str
    from_block_index: int


class ApiEvent(TypedDict, total=False):
    """An event of the API's message stream; which keys there are depends on `type`."""

    type: Required[str]
    index: int
    delta: dict[str, Any]
    content_block: dict[str, Any]
    message: dict[str, Any]
    usage: Usage
    context_management: dict[str, Any] | None
