"""Answers about the session and its conversation: what it starts with, its model, mode, title and history.

Not about settings, usage, MCP servers, files or tasks: these have modules of their own.
"""

from __future__ import annotations

from msgspec import field

from outrider.wire._value import Json
from outrider.wire.control._answers import Nullable, Payload


class SlashCommand(Payload, rename="camel"):
    """A slash command or skill that the session offers."""

    name: str = ""
    """Without the slash."""
    description: str = ""
    argument_hint: str = ""
    aliases: list[str] | None = None
    builtin: bool | None = None


class AgentInfo(Payload):
    """A kind of subagent that the session can start."""

    name: str = ""
    description: str = ""
    model: str | None = None
    """`inherit`: the model of the session."""


class ModelInfo(Payload, rename="camel"):
    """A model that the session can be switched to, and what it can do."""

    value: str = ""
    """What `set_model` takes."""
    resolved_model: str | None = None
    """The full name of the model behind it."""
    display_name: str = ""
    description: str = ""
    supports_effort: bool | None = None
    supported_effort_levels: list[str] | None = None
    supports_adaptive_thinking: bool | None = None
    supports_fast_mode: bool | None = None
    supports_auto_mode: bool | None = None
    supports_thinking_off: bool | None = None


class AccountInfo(Payload, rename="camel"):
    """Who pays, and where the credentials come from."""

    email: str | None = None
    organization: str | None = None
    subscription_type: str | None = None
    token_source: str | None = None
    """`none` if no login is used."""
    api_key_source: str | None = None
    """For example the name of an environment variable."""
    api_provider: str | None = None
    """`firstParty`, or the cloud that the requests go to."""


class FeedbackMode(Payload):
    """Whether the user may send feedback about the product."""

    kind: str = ""


class Initialized(Payload):
    """The session as it stands after `initialize`."""

    commands: list[SlashCommand] = []
    agents: list[AgentInfo] = []
    output_style: str = ""
    available_output_styles: list[str] = []
    user_output_styles_dir: str | None = None
    models: list[ModelInfo] = []
    account: AccountInfo = field(default_factory=AccountInfo)
    pid: int | None = None
    claude_code_version: str | None = None
    current_permission_mode: str | None = None
    hook_on_failure_supported: bool | None = None
    """Whether `on_failure` of hooks is honoured; ask before relying on it."""
    hooks_applied: bool | None = None
    """False: the hooks that were sent are not in force."""
    other_hook_ask_outranks_host: bool | None = None
    feedback_mode: FeedbackMode | None = None
    analytics_disabled: bool | None = None
    remote_control_auto_enable: bool | None = None
    remote_control_auto_connect_default: bool | None = None
    remote_control_available: bool | None = None
    remote_control_auto_on_by_default: bool | None = None
    ide_rc_auto_enable_gate: bool | None = None
    fast_mode_state: str | None = None
    fast_mode_disabled_reason: str | None = None
    session_state: str | None = None
    capabilities: list[str] | None = None
    """Names of what this version can do; look here, not at the version number."""
    sdk_mcp_manifests_parked: dict[str, str] | None = None
    """For each server that came with a manifest: `parked`, or why it could not be."""
    plugins_applied: Json = None
    managed_settings_applied: Json = None
    code_running_mcp_tools_applied: Json = None
    inbound_read_receipts: Json = None


class Interrupted(Payload):
    """Which queued messages an interrupt left alone, and which it took out."""

    still_queued: list[str] = []
    """Uuids of messages that will still get a turn."""
    cancelled: list[str] | None = None
    """Uuids of messages that were dropped; only said if that was asked for."""


class MessageCancelled(Payload):
    """Whether a queued message could be taken back."""

    cancelled: bool = False
    """False: its turn had begun, or nobody knows it."""


class PermissionModeSet(Payload):
    """The permission mode that is now in force."""

    mode: str | None = None


class ModelSet(Payload):
    """The model that is now in use."""

    model: str | None = None
    """Its full name, also if an alias was asked for."""


class DirectoryChanged(Payload):
    """What became of a change of the working directory."""

    status: str = ""
    """`ok`; `needs_trust`: nothing was changed, ask the user first; `rejected`: see `reason`."""
    cwd: str | None = None
    directory: str | None = None
    """The directory that needs trust."""
    changed: bool | None = None
    transcript_relocated: bool | None = None
    """The step that moves the transcript was run, even if there was nothing to move."""
    trust_root: str | None = None
    reason: str | None = None
    message: str | None = None


class RepoRootRegistered(Payload):
    """The repository that now counts as part of the workspace."""

    directory: str | None = None


class SessionClaimed(Payload):
    """A process that was started ahead of time is now a session."""

    cwd: str = ""
    session_id: str = ""
    parked_ms: float | None = None
    """How long the process had waited."""
    sdk_mcp_settled: Json = None
    initialize: Initialized | None = None
    """Only said if that was asked for."""


class RefusalFallback(Payload):
    """A question was refused by one model and answered by another."""

    original_model: str = ""
    fallback_model: str = ""
    content: str | None = None


class SideAnswer(Payload):
    """The answer to a question beside the conversation."""

    response: Nullable[str] = None
    """None: there was nothing to answer from."""
    synthetic: bool | None = None
    """Written by the program, not by a model."""
    refusal_fallback: RefusalFallback | None = None


class SessionTitle(Payload):
    """A title for the session."""

    title: Nullable[str] = None
    """None: no title could be made."""


class ConversationExport(Payload):
    """The conversation as text."""

    text: str = ""
    default_filename: str | None = None


class ConversationRewound(Payload, rename="camel"):
    """The point that the conversation was taken back to."""

    rewound: bool = False
    target_message_uuid: str | None = None
    prefill_text: str | None = None
    """The prompt that was undone, to be edited and sent again."""
    preceding_assistant_uuid: str | None = None
    error: str | None = None
    reason: str | None = None


class PlanReport(Payload):
    """The plan of plan mode, if there is one."""

    exists: bool = False
    content: str | None = None
    path: str | None = None


class AuthenticationUrls(Payload, rename="camel"):
    """Where the user logs in."""

    manual_url: str | None = None
    """Shows a code to be handed to `claude_oauth_callback`."""
    automatic_url: str | None = None
    """Completes by itself, in a browser on the agent's machine."""


class LoggedIn(Payload):
    """The account that a login ended with."""

    account: AccountInfo = field(default_factory=AccountInfo)


class RemoteControlled(Payload):
    """How another device reaches the session."""

    bridge_session_id: str | None = None
    session_url: str | None = None
    connect_url: str | None = None
    environment_id: str | None = None
