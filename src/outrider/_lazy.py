"""Loads the names of a package on first use.

A package imports its names under `if TYPE_CHECKING` only; the table says the same for the running program.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Final

# Written by `scripts/lazy_names.py`: run that instead of changing it.
NAMES: Final = {
    "outrider": """
: acp answers approvals command compat errors fleet handlers launch messages options runners session sync
telemetry testing transcripts transports view wire ._version: MINIMUM_AGENT_VERSION __version__
.approvals: Approval Approvals SessionParked .errors: AgentNotFound ApiFailed ConnectionLost Denied
LaunchError LimitReached OptionsError OutputInvalid OutriderError ProcessExited RequestFailed
SessionNotFound StoreError ToolFailed TurnFailed TurnInterrupted TurnTimedOut UsageError .handlers:
Answer HookContext Image PermissionRequest Plan Policy Question Rule Tool ToolContext ToolResult
ToolServer allow deny hook tool .options: AgentDefinition HttpServer Isolation Options Sandbox SseServer
StdioServer Timeouts Trace .session: CancelReceipt Prompt Queued Result Session SessionInfo SessionState
Turn Usage document go_on image resolve_settings run stream .transcripts: Sessions .wire:
AssistantMessage ContentBlock InitMessage Message ResultMessage StreamEvent SystemMessage TextBlock
ThinkingBlock ToolResultBlock ToolUseBlock UnknownMessage UserMessage""",
    "outrider.acp": """._server: Source serve""",
    "outrider.answers": """
outrider.handlers: Answer add_context allow ask block defer deny later modify notify stop""",
    "outrider.approvals": """
._approval: Approval ._approvals: Approvals ._errors: ApprovalError ApprovalNotFound ApprovalSettled
SessionParked""",
    "outrider.compat": """
: _cli_version _errors _internal _version client testing types ._errors: CLIConnectionError
CLIJSONDecodeError CLINotFoundError ClaudeSDKError ProcessError ResultError ._sessions.disk:
delete_session fork_session get_session_info get_session_messages get_subagent_messages list_sessions
list_subagents project_key_for_directory rename_session tag_session ._sessions.stores:
InMemorySessionStore delete_session_via_store fold_session_summary fork_session_via_store
get_session_info_from_store get_session_messages_from_store get_subagent_messages_from_store
import_session_to_store list_sessions_from_store list_subagents_from_store rename_session_via_store
tag_session_via_store ._tools: SdkMcpTool ToolAnnotations create_sdk_mcp_server tool ._transport:
Transport ._types.hooks: BackgroundTaskSummary BaseHookInput CwdChangedHookSpecificOutput
ElicitationHookSpecificOutput ElicitationResultHookSpecificOutput FileChangedHookSpecificOutput
HookCallback HookContext HookEffort HookInput HookJSONOutput HookMatcher MessageDisplayHookSpecificOutput
NotificationHookInput NotificationHookSpecificOutput PermissionDeniedHookSpecificOutput
PermissionRequestHookInput PermissionRequestHookSpecificOutput PostModelSwitchHookSpecificOutput
PostToolBatchHookSpecificOutput PostToolUseFailureHookInput PostToolUseFailureHookSpecificOutput
PostToolUseHookInput PostToolUseHookSpecificOutput PreCompactHookInput PreModelSwitchHookSpecificOutput
PreToolUseHookInput PreToolUseHookSpecificOutput SessionCronSummary SessionStartHookSpecificOutput
StopHookInput StopHookSpecificOutput SubagentStartHookInput SubagentStartHookSpecificOutput
SubagentStopHookInput SubagentStopHookSpecificOutput UserPromptExpansionHookSpecificOutput
UserPromptSubmitHookInput UserPromptSubmitHookSpecificOutput WorktreeCreateHookSpecificOutput
._types.messages: ContextUsageCategory ContextUsageResponse FastModeDisabledReason FastModeState
ForkSessionResult McpServerConnectionStatus McpServerInfo McpServerStatus McpServerStatusConfig
McpStatusResponse McpToolAnnotations McpToolInfo MessageOrigin MessageOriginKind ModelUsage
RateLimitStatus RateLimitType SDKSessionInfo ServerToolName SessionKey SessionMessage SessionStoreEntry
SessionSummaryEntry SystemInitData SystemInitMcpServer SystemInitPlugin SystemInitPluginError
TaskNotificationOriginSubkind TaskNotificationStatus TaskUpdatedStatus ._types.options: AgentDefinition
CanUseTool CanUseToolShadowedWarning ClaudeAgentOptions EffortLevel McpSdkServerConfig McpServerConfig
PermissionMode SandboxIgnoreViolations SandboxNetworkConfig SandboxSettings SdkBeta SdkPluginConfig
SessionStore SessionStoreFlushMode SettingSource TaskBudget ThinkingConfig ThinkingConfigAdaptive
ThinkingConfigDisabled ThinkingConfigEnabled ToolPermissionContext ._version: __version__ .client:
ClaudeSDKClient .query: query outrider.transcripts: SessionListSubkeysKey SessionStoreListEntry
outrider.wire: AssistantMessage ContentBlock ConversationResetMessage DeferredToolUse HookEventMessage
Message MirrorErrorMessage RateLimitEvent RateLimitInfo ResultMessage ServerToolResultBlock
ServerToolUseBlock StreamEvent SystemMessage TaskNotificationMessage TaskProgressMessage
TaskStartedMessage TaskUpdatedMessage TextBlock ThinkingBlock ToolResultBlock ToolUseBlock UserMessage
outrider.wire.choices: TERMINAL_TASK_STATUSES outrider.wire.permissions: PermissionResult
PermissionResultAllow PermissionResultDeny PermissionUpdate outrider.wire.shapes: TaskUsage""",
    "outrider.compat.testing": """.session_store_conformance: run_session_store_conformance""",
    "outrider.fleet": """
._budget.budget: Budget BudgetWarning Left Spent ._budget.ledger: Ledger LedgerEntry ._engine: Assignment
Attempted Engine LocalEngine Note Shared attempt_locally ._errors: ClusterNotFound JournalBusy
JournalInvalid PoolClosed QueueFull QueueTimedOut WorkerLost WorkspaceFailed ._fields: ResilientFields
._journal.journal: Counts Entry Journal ._map: RunFields map resume resume_or_start session_id_for submit
._pool.pool: Pool ._pool.slots: PoolStats ._progress: Adaptive Progress Running ._ray.engine: RayEngine
._report.report: FailureKind Latency Part Report ._resilient.retry: CONTINUE Clock Gate Restart Restarted
Retry Retrying ._resilient.session: ResilientReader ResilientSession ResilientState ResilientTurn
._resilient.turn_runner: DirectStarter Starter ._run: Run ._task: Outcome Status Task read_lines
._workspaces: Copy Empty Keep Workspace Worktree""",
    "outrider.handlers": """
._answers: Answer add_context allow ask block defer deny later modify notify stop ._calls: CallContext
CallTimedOut call name_of ._hooks.dispatch: HookNeverCalledWarning ._hooks.hook: Hook HookContext hook
._permissions.elicitation: Choice DialogRequest ElicitationRequest FormField accept cancel decline
._permissions.requests: PermissionRequest Plan Question QuestionReply ._policy.policy: Considered
Explanation Policy UnreachableRuleWarning ._policy.rule: Rule ._router: AgentLink DialogHandled
ElicitationHandled Endpoint Handled Handlers HookHandled Observe Origin Outcome PermissionHandled Server
ToolHandled ._tools.content: Audio Image Resource ResourceLink ToolResult ._tools.server: RawTool
RawToolServer ToolServer ._tools.shape: Shape ._tools.shape_errors: ShapeError ._tools.tool: Tool
ToolContext as_tool tool""",
    "outrider.launch": """
._command: check_length look_up_user make_command make_environment make_initialize make_version_probe
._program: AgentVersionUnknown Search Tried Version check_options check_version find_agent known_version
remember_version search_agent ._runners: Docker Kubectl Local Prefix Ssh outrider._version:
MINIMUM_AGENT_VERSION""",
    "outrider.messages": """
outrider.wire: ActiveGoalMessage ApiRetryMessage AssistantMessage AttachmentMessage AuthStatusMessage
AutocompactStateMessage BackgroundTasksChangedMessage BashCodeExecutionToolResultBlock
CodeExecutionToolResultBlock CommandLifecycleMessage CommandsChangedMessage CompactBoundaryMessage
CompactionBlock ContainerUploadBlock ContentBlock ControlRequestProgressMessage ConversationResetMessage
DeferredToolUse DocumentBlock ElicitationCompleteMessage FilesPersistedMessage HookEventMessage
HookProgressMessage HookResponseMessage HookStartedMessage ImageBlock InformationalMessage InitMessage
LocalCommandOutputMessage MalformedLine McpToolResultBlock McpToolUseBlock MemoryRecallMessage Message
MirrorErrorMessage ModelFallbackMessage ModelRefusalFallbackMessage ModelRefusalNoFallbackMessage
NotificationMessage OversizedMessage PermissionDeniedMessage PluginInstallMessage PostTurnSummaryMessage
PromptSuggestionMessage RateLimitEvent RateLimitInfo RedactedThinkingBlock ResultMessage
SearchResultBlock ServerToolResultBlock ServerToolUseBlock SessionMetadataMessage
SessionStateChangedMessage SessionTitleChangedMessage SessionWritesLostMessage StatusMessage StreamEvent
SystemMessage TaskNotificationMessage TaskProgressMessage TaskStartedMessage TaskSummaryMessage
TaskUpdatedMessage TextBlock TextEditorCodeExecutionToolResultBlock ThinkingBlock ThinkingTokensMessage
ToolProgressMessage ToolReferenceBlock ToolResultBlock ToolSearchToolResultBlock ToolUseBlock
ToolUseSummaryMessage UiInvalidateMessage UnknownBlock UnknownMessage UnknownSystemMessage UserMessage
WebFetchToolResultBlock WebSearchToolResultBlock WorkerShuttingDownMessage""",
    "outrider.options": """
._checks: PermissionShadowedWarning check_place ._forms: AgentDefinition HttpServer McpServer SdkServer
SseServer StdioServer ._options: OptionFields Options ._values: AdaptiveThinking CustomPrompt
DisabledThinking EnabledThinking EnvPolicy FilePrompt Isolation JsonSchemaFormat LocalPlugin OptionValue
PresetPrompt SYSTEM_PROMPT_DYNAMIC_BOUNDARY Sandbox SandboxFilesystem SandboxNetwork ThinkingDisplay
Timeouts Trace""",
    "outrider.protocol": """
._peer: Event Peer RequestAnswered RequestEvent RequestLost RequestReceived RequestRefused
RequestWithdrawn Table ._turns: HOLDING_TASKS MESSAGE_TABLE MessageMoved MessageSignal MessageState
RUN_TABLE RunMoved RunSignal RunState TurnBegan TurnEnded TurnEvent Turns""",
    "outrider.runners": """outrider.launch: Docker Kubectl Local Prefix Ssh""",
    "outrider.session": """
._connection.observers: EventReader Observed Observer observe ._connection.tasks: Background background
._info: SessionInfo ._prompts: Prompt document image ._requests: Requests Timeout UNSET Unset ._result:
Result ToolRun UnfinishedTask ._session: Session SessionState TurnContext go_on resolve_settings run
stream ._streams.stream: Reader ._turn: CancelReceipt Queued TextReader Turn ._usage: Usage""",
    "outrider.sync": """
._surface: EventReader Queued Reader Requests Session TextReader Turn TurnContext go_on resolve_settings
run stream ._transcripts: Hits Sessions""",
    "outrider.telemetry": """
._logs: JsonFormatter LogContext ._telemetry: Telemetry TelemetryFields instrument uninstrument""",
    "outrider.testing": """
._api.messages_api: MessagesApi RealAgent SideKind clean_environment ._api.requests: KIT_VARIABLE Request
RequestKind ._contracts.contract: ContractBroken ._contracts.store: check_store ._contracts.transport:
check_transport ._faults: Fault Faults Faulty ._replay.cassette: Replay conversation record replay
._replay.replay: ReplayMismatch ._script.script: Expectation ExpectationFailed Item Script ScriptSource
Scripted When ask_question background_task exit_plan_mode expect structured subagent when ._script.steps:
Answer Block CREDIT_TOO_LOW Drop Failure Gate Hang PROMPT_TOO_LONG Step Text Thinking ToolUse answer drop
fail hang refuse say think use_tool ._simulator.transport: SIMULATED_VERSION Simulator""",
    "outrider.transcripts": """
._chain: conversation ._copies: forked ._describe: dated fold_session_summary tag_entry title_entry
._disk.files: check_can_continue check_project_key check_subpath config_folder has_sessions
project_folder project_key ._entries: TranscriptEntry to_entry ._export.turns: ExportFormat
._library.disk: BlockingSessions ._sessions: Sessions ._values: Bundle Hits SearchHit SessionQuery
StoredSession .stores._base: LatestSessionEntry SessionKey SessionListSubkeysKey SessionStore
SessionStoreEntry SessionStoreListEntry SessionSummaryEntry offers .stores._blocking: StoreCalls
.stores._file: FileStore .stores._memory: MemoryStore .stores._postgres: PostgresStore .stores._redis:
RedisStore .stores._s3: S3Store .stores._sqlite: SqliteStore .stores._urls: open_store""",
    "outrider.transports": """
._process.transport: Finished LiveProcess ProcessTransport live_processes run_to_end ._trace.format:
Recording TimelineEntry TraceRecord TraceRun read_trace timeline ._trace.writer: TraceFile Traced traced
._transport: Interceptor MemoryTransport Messages Sendable Transport Unreachable intercept intercepted
is_intercepted memory_pair outrider.command: Command""",
    "outrider.view": """._app: View Viewable app""",
}
# End of the table.
"""By package: modules, which are relative if they begin with a dot, each with the names that it has. Those of
the package itself are modules."""


_EXTRAS: Final = {
    "acp": "acp",
    "boto3": "s3",
    "botocore": "s3",
    "psycopg": "postgres",
    "redis": "redis",
    "starlette": "view",
}
"""The extra that brings a package."""


def with_extra(error: ModuleNotFoundError, what: str) -> ModuleNotFoundError:
    """The error of an import that `what` needs, with the extra to install, if one brings the package."""
    missing = str(error.name).partition(".")[0]
    if missing not in _EXTRAS:
        return error
    hint = f"Run: pip install 'outrider[{_EXTRAS[missing]}]'"
    return ModuleNotFoundError(f"{what} needs {missing}, which is not installed. {hint}", name=missing)


def lazily(package: str) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """The `__getattr__`, `__dir__` and `__all__` of a package."""
    home_of: dict[str, str] = {}
    home = ""
    for word in NAMES[package].split():
        if word.endswith(":"):
            home = word[:-1]
        else:
            home_of[word] = home

    def get(name: str) -> object:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if not home_of[name]:
            return import_module(f"{package}.{name}")
        try:
            home = import_module(home_of[name], package)
        except ModuleNotFoundError as error:
            raise with_extra(error, f"{package}.{name}") from error
        found: object = getattr(home, name)
        setattr(sys.modules[package], name, found)
        return found

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home_of})

    return get, names, sorted(name for name, home in home_of.items() if home)
