"""Requests about the session and its conversation: starting, steering, ending, asking on the side.

What the agent answers is in the `_answers_*` modules.
"""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from outrider.wire._value import Json, JsonObject, Value
from outrider.wire.control._answers import Acknowledged, Undocumented
from outrider.wire.control._answers_session import (
    ConversationExport,
    ConversationRewound,
    DirectoryChanged,
    Initialized,
    Interrupted,
    MessageCancelled,
    ModelSet,
    PermissionModeSet,
    PlanReport,
    RepoRootRegistered,
    SessionClaimed,
    SessionTitle,
    SideAnswer,
)
from outrider.wire.control._requests import OpenRequest, Request
from outrider.wire.hooks._events import HookRegistration


class SdkMcpServerSetup(Value, rename="camel"):
    """What the agent should know about a server that runs in the host."""

    timeout: float | None = None
    """Milliseconds for one call."""
    tools: list[JsonObject] | None = None
    """`{"name": …, "permission_policy": …}` for single tools."""
    disable_auto_background: Json = None
    connector_id: Json = None
    auto_mode_verdict_tools: Json = None
    data_flow_server: Json = None


class SdkMcpServerManifest(Value, rename="camel"):
    """Answers that a server in the host would give, so that the agent need not wait for them."""

    initialize_result: JsonObject
    tools_list_result: JsonObject | None = None


class Initialize(Request[Initialized], tag="initialize", rename="camel"):
    """Opens the session. Must be the first thing sent; sent again, it replaces the hooks."""

    answer = Initialized

    hooks: dict[str, list[HookRegistration]] | UnsetType | None = UNSET
    """By event."""
    sdk_mcp_servers: list[str] | None = None
    """Names of the MCP servers that run in the host."""
    sdk_mcp_server_configs: dict[str, SdkMcpServerSetup] | None = None
    sdk_mcp_server_manifests: dict[str, SdkMcpServerManifest] | None = None
    sdk_mcp_server_manifests_origin: str | None = None
    json_schema: JsonObject | None = None
    """What the structured output of each turn must be."""
    system_prompt: list[str] | None = None
    """In place of the agent's own; `[""]`: none at all."""
    append_system_prompt: str | None = None
    append_subagent_system_prompt: str | None = None
    system_prompt_snapshot: bool | None = None
    exclude_dynamic_sections: bool | None = None
    """Leave out what differs between machines and days, so that the prompt can be cached."""
    plan_mode_instructions: str | None = None
    tool_aliases: dict[str, str] | None = None
    agents: dict[str, JsonObject] | None = None
    """Subagents by name, spelled as the agent reads them."""
    title: str | None = None
    skills: list[str] | None = None
    """Names of the skills to offer. Unset: all."""
    plugins: list[JsonObject] | None = None
    prompt_suggestions: bool | None = None
    agent_progress_summaries: bool | None = None
    forward_subagent_text: bool | None = None
    forward_nested_subagent_tool_calls: bool | None = None
    supported_dialog_kinds: list[str] | None = None
    """The dialogs that the host can show; others are not asked for."""
    per_task_stop_affordance: bool | None = None
    """The host lets the user stop single tasks, so an interrupt spares those in the background."""
    code_running_mcp_tools: Json = None
    web_search_isolation_exempt_mcp_servers: list[str] | None = None
    rapid_followup_preempt: Json = None
    workspace_trust: Json = None
    managed_settings: JsonObject | None = None


class Interrupt(Request[Interrupted], tag="interrupt"):
    """Stops the running turn; its frames and its result still follow."""

    answer = Interrupted

    cancel_queued: bool | None = None
    """Also drop the messages that wait for their turn."""


class CancelAsyncMessage(Request[MessageCancelled], tag="cancel_async_message"):
    """Takes a queued message back."""

    answer = MessageCancelled

    message_uuid: str


class SetPermissionMode(Request[PermissionModeSet], tag="set_permission_mode"):
    """Changes how tool calls are allowed."""

    answer = PermissionModeSet

    mode: str
    """`default`, `acceptEdits`, `plan`, `dontAsk`, `auto` or `bypassPermissions` (only if launched so)."""


class SetModel(Request[ModelSet], tag="set_model", omit_defaults=False):
    """Changes the model. A name that is no alias is tried out first, which can take 15 seconds."""

    answer = ModelSet

    model: str | None = None
    """None: back to the model that the session began with; sent as null."""


class SetMaxThinkingTokens(Request[Acknowledged], tag="set_max_thinking_tokens"):
    """Changes how much the model may think, and how that is shown."""

    max_thinking_tokens: int | UnsetType | None = UNSET
    """None: back to the default. Unset: as it is."""
    thinking_display: str | UnsetType | None = UNSET
    """`summarized`, `omitted` or `highlights`. None: back to the default. Unset: as it is."""


class RenameSession(Request[Acknowledged], tag="rename_session"):
    """Gives the session a title."""

    title: str
    source: str | None = None
    """`host` or `remote`: who chose it."""
    session_id: str | None = None


class SetColor(Request[Acknowledged], tag="set_color"):
    """Changes the colour of the session in a list of sessions."""

    color: str
    """The name of a colour, or `default`."""


class SetHasSubscribers(Request[Acknowledged], tag="set_has_subscribers"):
    """Tells whether anybody watches; stream events may be held back if not."""

    has_subscribers: bool | None
    """None, sent as null: not known."""


class SetPromptSuggestionsPaused(Request[Acknowledged], tag="set_prompt_suggestions_paused"):
    """Stops or resumes suggestions for the next prompt."""

    paused: bool


class SetCwd(Request[DirectoryChanged], tag="set_cwd"):
    """Moves the session to another working directory."""

    answer = DirectoryChanged

    path: str
    trust_accepted: bool | None = None
    """The user was asked and trusts the directory, which `trusted_directory` must name."""
    trusted_directory: str | None = None


class RegisterRepoRoot(Request[RepoRootRegistered], tag="register_repo_root"):
    """Makes a repository below the working directory part of the workspace."""

    answer = RepoRootRegistered

    directory: str
    reload_claude_md: bool | None = None
    reload_plugins: bool | None = None
    reload_skills: bool | None = None


class AddDirectory(OpenRequest[Undocumented], tag="add_directory"):
    """Lets tools work in one more directory."""

    answer = Undocumented


class ClaimSession(Request[SessionClaimed], tag="claim_session"):
    """Makes a session of a process that was started with `--await-claim`."""

    answer = SessionClaimed

    cwd: str
    permission_mode: str | None = None
    env: dict[str, str] | None = None
    """Only three variables may be given: two tokens and the host's session id."""
    additional_directories: list[str] | None = None
    append_system_prompt: str | None = None
    title: str | None = None
    agents: dict[str, JsonObject] | None = None
    workspace_trust: Json = None
    sdk_mcp_servers: list[str] | None = None
    include_initialize: bool | None = None
    """Answer with what `initialize` would have answered now."""


class PastSideQuestion(Value):
    """An earlier question on the side, and what was answered."""

    question: str
    response: str
    fallback_notice: str | None = None


class SideQuestion(Request[SideAnswer], tag="side_question"):
    """Asks the model something that does not become part of the conversation; also during a turn."""

    answer = SideAnswer

    question: str
    history: list[PastSideQuestion] | None = None


class GenerateSessionTitle(Request[SessionTitle], tag="generate_session_title"):
    """Has a title made from a description."""

    answer = SessionTitle

    description: str
    persist: bool | None = None
    """Also give it to the session."""


class GetPlan(Request[PlanReport], tag="get_plan"):
    """Asks for the plan of plan mode."""

    answer = PlanReport


class ExportConversation(Request[ConversationExport], tag="export_conversation"):
    """Asks for the conversation as text."""

    answer = ConversationExport


class RewindConversation(Request[ConversationRewound], tag="rewind_conversation"):
    """Takes the conversation back to before a message."""

    answer = ConversationRewound

    target_message_uuid: str
    interrupt_if_running: bool | None = None
    last_seen_user_message_uuid: str | None = None


class ForkConversation(OpenRequest[Undocumented], tag="fork_conversation"):
    """Goes on from here in a conversation of its own."""

    answer = Undocumented


class EndSession(Request[Acknowledged], tag="end_session"):
    """Says that no more will come; the process still waits for the end of its input."""

    reason: str | None = None
