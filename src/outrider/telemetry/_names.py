"""The names of spans, attributes, events and metrics, in one table.

`gen_ai.…` are those of OpenTelemetry's conventions for generative AI, which are still in development and have
no package of their own; `outrider.…` are ours.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args

import msgspec

SCOPE: Final = "outrider"
"""The instrumentation scope of all spans and metrics."""

# Operations, which begin the names of their spans.
INVOKE_AGENT: Final = "invoke_agent"
CHAT: Final = "chat"
EXECUTE_TOOL: Final = "execute_tool"
INVOKE_WORKFLOW: Final = "invoke_workflow"

# Spans of our own.
AGENT_START: Final = "outrider.agent.start"
HOOK: Final = "outrider.hook"
PERMISSION: Final = "outrider.permission"
QUESTION: Final = "outrider.question"
POOL_ACQUIRE: Final = "outrider.pool.acquire"
TASK: Final = "outrider.task"
ATTEMPT: Final = "outrider.attempt"

# Events of turns.
RETRY: Final = "outrider.retry"
COMPACTION: Final = "outrider.compaction"
RATE_LIMIT: Final = "outrider.rate_limit"
MODEL_FALLBACK: Final = "outrider.model_fallback"
PROMPT_QUEUED: Final = "outrider.prompt.queued"
CONTENT_EVENT: Final = "gen_ai.client.inference.operation.details"

# Their attributes.
RETRY_ATTEMPT: Final = "outrider.retry.attempt"
RETRY_DELAY: Final = "outrider.retry.delay_seconds"
COMPACTION_TRIGGER: Final = "outrider.compaction.trigger"
COMPACTION_BEFORE: Final = "outrider.compaction.pre_tokens"
COMPACTION_AFTER: Final = "outrider.compaction.post_tokens"
RATE_LIMIT_TYPE: Final = "outrider.rate_limit.type"
RATE_LIMIT_USED: Final = "outrider.rate_limit.utilization"

# Attributes of the conventions.
OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
CONVERSATION: Final = "gen_ai.conversation.id"
AGENT_NAME: Final = "gen_ai.agent.name"
OUTPUT_TYPE: Final = "gen_ai.output.type"
REQUEST_MODEL: Final = "gen_ai.request.model"
RESPONSE_MODEL: Final = "gen_ai.response.model"
RESPONSE_ID: Final = "gen_ai.response.id"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_CALL: Final = "gen_ai.tool.call.id"
TOOL_TYPE: Final = "gen_ai.tool.type"
WORKFLOW_NAME: Final = "gen_ai.workflow.name"
TOKEN_TYPE: Final = "gen_ai.token.type"
ERROR_TYPE: Final = "error.type"
HTTP_STATUS: Final = "http.response.status_code"
PROCESS_ID: Final = "process.pid"
PROCESS_COMMAND: Final = "process.command"

# The same with content, which is only there if it was asked for.
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
SYSTEM_INSTRUCTIONS: Final = "gen_ai.system_instructions"
TOOL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_RESULT: Final = "gen_ai.tool.call.result"

# Attributes of our own.
COST: Final = "outrider.turn.cost_usd"
MODEL_CALLS: Final = "outrider.turn.num_turns"
QUEUED_SECONDS: Final = "outrider.turn.queued_seconds"
TERMINAL_REASON: Final = "outrider.turn.terminal_reason"
ORIGIN: Final = "outrider.turn.origin"
MESSAGE_UUID: Final = "outrider.message.uuid"
CLI_VERSION: Final = "outrider.cli.version"
TOOL_WHERE: Final = "outrider.tool.where"
TOOL_SECONDS: Final = "outrider.tool.seconds"
MCP_SERVER: Final = "outrider.mcp.server"
AGENT_ID: Final = "outrider.agent.id"
AGENT_TOKENS: Final = "outrider.agent.total_tokens"
AGENT_TOOL_USES: Final = "outrider.agent.tool_uses"
HOOK_EVENT: Final = "outrider.hook.event"
HOOK_NAME: Final = "outrider.hook.name"
PERMISSION_TOOL: Final = "outrider.permission.tool"
DECISION: Final = "outrider.decision"
APPROVAL_ID: Final = "outrider.approval.id"
OUTCOME: Final = "outrider.outcome"
SECONDS: Final = "outrider.seconds"
ERROR_KIND: Final = "outrider.error.kind"
TRANSPORT: Final = "outrider.transport"
RUNNER: Final = "outrider.runner"
IS_RESUMED: Final = "outrider.resumed"
STATUS: Final = "outrider.status"
ENGINE: Final = "outrider.engine"
TASK_ID: Final = "outrider.task.id"
TASK_INDEX: Final = "outrider.task.index"
ATTEMPT_NUMBER: Final = "outrider.attempt.number"
POOL_STATE: Final = "outrider.pool.state"

# Metrics.
INVOKE_AGENT_DURATION: Final = "gen_ai.invoke_agent.duration"
INFERENCE_CALLS: Final = "gen_ai.invoke_agent.inference_calls"
TOOL_CALLS: Final = "gen_ai.invoke_agent.tool_calls"
EXECUTE_TOOL_DURATION: Final = "gen_ai.execute_tool.duration"
INVOKE_WORKFLOW_DURATION: Final = "gen_ai.invoke_workflow.duration"
USAGE: Final = "gen_ai.client.inference.usage."
COST_METRIC: Final = "outrider.cost"
TURNS_METRIC: Final = "outrider.turns"
PROCESS_COUNT: Final = "outrider.process.count"
PROCESS_START: Final = "outrider.process.start.duration"
PROCESS_MEMORY: Final = "outrider.process.memory"
POOL_WAITING: Final = "outrider.pool.waiting"
POOL_PROCESSES: Final = "outrider.pool.processes"

OTHER: Final = "_OTHER"
"""Stands for all further values of a label that has too many."""

Semconv: TypeAlias = Literal["latest", "1.41"]
SEMCONVS: Final = get_args(Semconv)


class Names(msgspec.Struct, frozen=True, kw_only=True):
    """What has another name in older conventions."""

    cache_write_tokens: str = "gen_ai.usage.cache_write.input_tokens"
    inference_duration: str = "gen_ai.client.inference.duration"
    first_chunk_duration: str = "gen_ai.client.inference.time_to_first_chunk"
    token_histogram: str | None = None
    """One metric with a label for the kind of tokens, in place of a counter for each."""
    has_provider: bool = False
    """Whether spans of agents name the provider."""


NAMES: Final[dict[str, Names]] = {
    "latest": Names(),
    "1.41": Names(
        cache_write_tokens="gen_ai.usage.cache_creation.input_tokens",
        inference_duration="gen_ai.client.operation.duration",
        first_chunk_duration="gen_ai.client.operation.time_to_first_chunk",
        token_histogram="gen_ai.client.token.usage",
        has_provider=True,
    ),
}
