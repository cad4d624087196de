"""Defines the requests about the session, its conversation, files and background tasks, and their answers.

Settings, usage, plugins and dialogs are in `_settings`.
"""

from msgspec import UNSET, UnsetType, field

from outrider.wire._value import Json, JsonObject, Value
from outrider.wire.control._base import Acknowledged, Nullable, OpenRequest, Payload, Request, Undocumented
from outrider.wire.hooks._inputs import HookRegistration


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
    """False: its turn had begun, or no one knows it."""


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

    cancel_queued: bool | None = None
    """Also drop the messages that wait for their turn."""


class CancelAsyncMessage(Request[MessageCancelled], tag="cancel_async_message"):
    """Takes a queued message back."""

    message_uuid: str


class SetPermissionMode(Request[PermissionModeSet], tag="set_permission_mode"):
    """Changes how tool calls are allowed."""

    mode: str
    """`default`, `acceptEdits`, `plan`, `dontAsk`, `auto` or `bypassPermissions` (only if launched so)."""


class SetModel(Request[ModelSet], tag="set_model", omit_defaults=False):
    """Changes the model. A name that is not an alias is tried first, which can take 15 seconds."""

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
    """Says whether anyone watches; if not, stream events may be held back."""

    has_subscribers: bool | None
    """None, sent as null: not known."""


class SetPromptSuggestionsPaused(Request[Acknowledged], tag="set_prompt_suggestions_paused"):
    """Stops or resumes suggestions for the next prompt."""

    paused: bool


class SetCwd(Request[DirectoryChanged], tag="set_cwd"):
    """Moves the session to another working directory."""

    path: str
    trust_accepted: bool | None = None
    """The user was asked and trusts the directory, which `trusted_directory` must name."""
    trusted_directory: str | None = None


class RegisterRepoRoot(Request[RepoRootRegistered], tag="register_repo_root"):
    """Makes a repository below the working directory part of the workspace."""

    directory: str
    reload_claude_md: bool | None = None
    reload_plugins: bool | None = None
    reload_skills: bool | None = None


class AddDirectory(OpenRequest[Undocumented], tag="add_directory"):
    """Lets tools work in one more directory."""


class ClaimSession(Request[SessionClaimed], tag="claim_session"):
    """Turns a process that was started with `--await-claim` into a session."""

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

    question: str
    history: list[PastSideQuestion] | None = None


class GenerateSessionTitle(Request[SessionTitle], tag="generate_session_title"):
    """Has a title made from a description."""

    description: str
    persist: bool | None = None
    """Also give it to the session."""


class GetPlan(Request[PlanReport], tag="get_plan"):
    """Asks for the plan of plan mode."""


class ExportConversation(Request[ConversationExport], tag="export_conversation"):
    """Asks for the conversation as text."""


class RewindConversation(Request[ConversationRewound], tag="rewind_conversation"):
    """Rewinds the conversation to before a message."""

    target_message_uuid: str
    interrupt_if_running: bool | None = None
    last_seen_user_message_uuid: str | None = None


class ForkConversation(OpenRequest[Undocumented], tag="fork_conversation"):
    """Continues from here in a new conversation."""


class EndSession(Request[Acknowledged], tag="end_session"):
    """Says that nothing more will be sent; the process still waits for the end of its input."""

    reason: str | None = None


class ClaudeAuthenticate(Request[AuthenticationUrls], tag="claude_authenticate", rename="camel"):
    """Starts a login to the account."""

    login_with_claude_ai: bool
    """With a subscription; else with an API account."""
    console_profile: str | None = None


class ClaudeOauthCallback(Request[Undocumented], tag="claude_oauth_callback", rename="camel"):
    """Passes on the code that the login page showed."""

    authorization_code: str
    state: str


class ClaudeOauthWaitForCompletion(Request[LoggedIn], tag="claude_oauth_wait_for_completion"):
    """Waits until the login has ended: use a long `timeout`."""


class RemoteControl(Request[RemoteControlled], tag="remote_control"):
    """Opens the session to the user's other devices, or closes it."""

    enabled: bool
    name: str | None = None
    reattach_session_id: str | None = None
    keep_session_on_exit: bool | None = None
    work_secret: str | None = None


class MessageRated(Request[Acknowledged], tag="message_rated", rename="camel"):
    """Reports how the user rated a message."""

    message_uuid: str
    sentiment: str | None = None
    surface: str | None = None
    cleared: bool | None = None
    """The rating was taken back."""


class SubmitFeedback(Request[Undocumented], tag="submit_feedback"):
    """Sends what the user wrote about the product."""

    description: str
    surface: str | None = None
    draft_id: str | None = None
    type: str | None = None
    title: str | None = None
    area: str | None = None
    attach_transcript: bool | None = None
    save_locally: bool | None = None


class SubmitSurveyFeedback(OpenRequest[Undocumented], tag="submit_survey_feedback"):
    """Sends the answers to a survey."""


class UltrareviewLaunch(Request[Undocumented], tag="ultrareview_launch"):
    """Starts a review in the cloud."""

    args: Json = None
    confirm: bool | None = None


class SetChromeBrowserHints(OpenRequest[Undocumented], tag="set_chrome_browser_hints"):
    """Reports which browsers there are."""


class GetChromeDialog(Request[Undocumented], tag="get_chrome_dialog"):
    """Asks for what the browser dialog shows."""


class GetChromeBrowsers(Request[Undocumented], tag="get_chrome_browsers"):
    """Asks which browsers are connected."""


class SelectChromeBrowser(Request[Undocumented], tag="select_chrome_browser"):
    """Chooses the browser to work in."""

    device_id: str


class FileSuggestion(Payload):
    """A file that a typed name may mean."""

    path: str = ""


class SuggestedFiles(Payload):
    """The files that a typed name may mean, best first."""

    suggestions: list[FileSuggestion] = []
    cwd: str | None = None


class FileContents(Payload, rename={"abs_path": "absPath"}):
    """A file as the agent sees it."""

    contents: str = ""
    abs_path: str = ""
    truncated: bool | None = None
    """True: cut off at the size that was asked for."""
    encoding: str | None = None
    """`base64` if that was asked for."""
    lossy: bool | None = None
    """True: some bytes were not text and are lost."""
    requested_path: str | None = None


class RewindReport(Payload, rename="camel"):
    """What taking files back did or would do."""

    can_rewind: bool = False
    """False does not mean that the request failed: see `error`."""
    error: str | None = None
    files_changed: list[str] | None = None
    insertions: int | None = None
    deletions: int | None = None
    skipped_links: int | None = None


class WorkspaceDiff(Payload):
    """What differs from the last commit."""

    diff: Nullable[Json] = None
    """None: not a repository."""


class TasksBackgrounded(Payload):
    """Whether something was moved to the background."""

    backgrounded: bool | None = None
    """None: the agent does not say, as it does when no call was named."""


class TaskTail(Payload):
    """The end of what a background task has printed."""

    output: str = ""
    """At most the last 8 KiB."""
    total_bytes: int = 0
    truncated: bool = False


class FileSuggestions(Request[SuggestedFiles], tag="file_suggestions"):
    """Asks which files a typed name may mean."""

    query: str


class ReadFile(Request[FileContents], tag="read_file"):
    """Reads a file of the workspace; missing and forbidden files fail alike."""

    path: str
    max_bytes: int | None = None
    """Default: 1 MB."""
    encoding: str | None = None
    """`utf-8` or `base64`."""


class SeedReadState(Request[Acknowledged], tag="seed_read_state"):
    """Lets the model edit a file as if it had read it."""

    path: str
    mtime: int
    """When it was last changed, in whole milliseconds."""


class RewindFiles(Request[RewindReport], tag="rewind_files"):
    """Takes files back to what they were before a message. Needs checkpoints to be switched on."""

    user_message_id: str
    dry_run: bool | None = None
    """Only say what would change."""


class StageFile(OpenRequest[Undocumented], tag="stage_file"):
    """Puts a file where the agent can use it."""


class GetWorkspaceDiff(OpenRequest[WorkspaceDiff], tag="get_workspace_diff"):
    """Asks what differs from the last commit."""


class StopTask(Request[Acknowledged], tag="stop_task"):
    """Ends a background task. An id that no one knows is acknowledged too."""

    task_id: str


class BackgroundTasks(Request[TasksBackgrounded], tag="background_tasks"):
    """Moves running commands and subagents to the background, so that the turn continues."""

    tool_use_id: str | None = None
    """Only this call."""


class GetTaskOutput(Request[TaskTail], tag="get_task_output"):
    """Asks for the end of what a background command has printed."""

    task_id: str
