"""Defines the inputs and outputs of the built-in tools that an account or a host application brings:
artifacts, projects, triggers, connectors, plugins, skills. Has the base classes of all inputs and outputs.

Those of the other tools are in `_inputs` and `_outputs`.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from outrider.wire._value import JsonObject, Number, Value


class ToolInput(Value):
    """The input of a built-in tool, which its class is named after."""


class ToolOutput(Value):
    """What a built-in tool returns; its class is named after the tool."""


class ArtifactInput(ToolInput):
    """Publishes a page, or does something else with pages that were published."""

    action: str | None = None
    """`publish` if left out; `list`, `read`, `watch`, `unwatch`, `status`, `upload_asset`, `list_assets`,
    `read_asset`, `delete_asset`, `pin`, `unpin`, `list_types`, or what a later program adds."""
    file_path: str | None = None
    favicon: str | None = None
    icon: str | None = None
    limit: Number | None = None
    page_token: str | None = None
    scope: Literal["mine", "shared", "all"] | None = None
    title: str | None = None
    description: str | None = None
    label: str | None = None
    url: str | None = None
    prompt: str | None = None
    force: bool | None = None
    pin: bool | None = None
    out_dir: str | None = None
    file_paths: list[str] | None = None
    asset_id: str | None = None
    after: str | None = None
    capabilities: JsonObject | None = None
    contract: str | None = None


class ProjectsInput(ToolInput):
    """Reads, searches or changes the knowledge of a claude.ai project."""

    method: str
    """`project_info`, `project_read`, `project_search`, `project_write`, `project_delete`,
    `project_memory_list`, `project_memory_read`, or what a later program adds."""
    path: str | None = None
    content: str | None = None
    local_path: str | None = None
    """A file to upload in place of `content`."""
    present_to_user: bool | None = None
    query: str | None = None
    n: Number | None = None
    """How many hits."""


class ClaudeDesignInput(ToolInput):
    """Works with Claude Design."""

    operation: str
    arguments: JsonObject


class RemoteTriggerInput(ToolInput):
    """Manages agents that run in the cloud at set times."""

    action: str
    """`list`, `get`, `create`, `update`, `run`, `create_webhook_trigger`, `list_runs`, `get_run_log`, or
    what a later program adds."""
    trigger_id: str | None = None
    session_id: str | None = None
    cursor: str | None = None
    body: JsonObject | None = None


class PushNotificationInput(ToolInput):
    """Sends a notice to the person's devices."""

    message: str
    status: Literal["proactive"] | None = None


class SendFeedbackInput(ToolInput):
    """Writes a report to those who make Claude Code."""

    type: Literal["bug", "idea", "missing_capability"]
    title: str
    details: str
    area: str | None = None
    failure_mode: str | None = None
    """`instruction_following`, `destructive_actions`, `code_quality`, …"""
    task_category: str | None = None
    """`code_edit`, `debug`, `explain`, …"""


class ProposeGoalInput(ToolInput):
    """Proposes a goal to keep working towards."""

    condition: str
    ask_user: bool | None = None


class SkillEdit(Value):
    """A piece of a skill's text, and what to put in its place."""

    old_string: str
    new_string: str


class SkillProposal(Value, rename={"skill_md": "skillMd"}):
    """A skill to write, or to improve."""

    name: str
    kind: Literal["new", "improvement"]
    description: str
    target: str | None = None
    """The skill to improve."""
    evidence: list[str] | None = None
    edits: list[SkillEdit] | None = None
    skill_md: str | None = None
    """The whole text of a new one."""


class ProposeSkillsInput(ToolInput):
    """Shows skills that could be saved; `propose_skills` is the tool's name."""

    proposals: list[SkillProposal]


class OfferChromeSetupInput(ToolInput):
    """Offers to connect a browser."""

    reason: str | None = None


class ShowOnboardingRolePickerInput(ToolInput):
    """Shows a newcomer the choice of roles."""


class ListConnectorsInput(ToolInput):
    """Lists the connectors that are set up."""

    keywords: list[str] | None = None


class SearchMcpRegistryInput(ToolInput):
    """Searches the registry of MCP servers."""

    keywords: list[str]


class SuggestConnectorsInput(ToolInput):
    """Offers connectors to the person for setting up."""

    uuids: list[str]
    """Their ids in the registry."""


class ListPluginsInput(ToolInput):
    """Lists the plugins that are installed."""

    keywords: list[str] | None = None


class SearchPluginsInput(ToolInput):
    """Searches for plugins to install."""

    keywords: list[str]


class PluginSkill(Value):
    """A skill that a suggested plugin would bring."""

    name: str
    description: str | None = None


class SuggestedPlugin(Value, rename="camel"):
    """A plugin that the agent would have installed."""

    plugin_id: str
    plugin_name: str
    description: str
    skills: list[PluginSkill] | None = None


class SuggestPluginInstallInput(ToolInput, rename="camel"):
    """Offers plugins to the person for installing."""

    context_label: str
    """What they would help with."""
    plugins: list[SuggestedPlugin]
    trigger: Literal["user_asked", "proactive"] | None = None


class ListSkillsInput(ToolInput):
    """Lists the skills that are installed."""

    keywords: list[str] | None = None


class SearchSkillsInput(ToolInput):
    """Searches for skills to install."""

    keywords: list[str]


class SuggestSkillsInput(ToolInput, rename="camel"):
    """Offers skills to the person for installing."""

    keywords: list[str]
    context_label: str | None = None
    """What they would help with."""
    trigger: Literal["user_asked", "proactive"] | None = None


# Outputs.


class ArtifactRead(Value):
    """The published page that was read."""

    slug: str
    ver: str | None = None
    seeded: bool | None = None


def _artifact_key(field: str) -> str:
    """Claude Code spells some of its keys in camel case, and most not."""
    first, *others = field.split("_")
    camel = first + "".join(map(str.capitalize, others))
    return camel if camel in _CAMEL_KEYS else field


_CAMEL_KEYS = [
    "publishesRemaining",
    "publishesResetAt",
    "faviconSent",
    "iconDropped",
    "liveSubscription",
    "artifactRead",
]


class ArtifactOutput(ToolOutput, rename=_artifact_key):
    """What became of a page, or of several: the keys that are set depend on the action."""

    url: str | None = None
    path: str | None = None
    artifact_id: str | None = None
    title: str | None = None
    version: str | None = None
    capabilities: Any = None
    stored: JsonObject | None = None
    warnings: list[str] | None = None
    publishes_remaining: int | None = None
    publishes_reset_at: Number | None = None
    contract: str | None = None
    updated: bool | None = None
    owned: bool | None = None
    icon: str | None = None
    favicon_sent: bool | None = None
    icon_dropped: bool | None = None
    audience: str | None = None
    folder_audience: Literal["others", "unknown"] | None = None
    seq: int | None = None
    unchanged: bool | None = None
    live_subscription: str | None = None
    pinned: bool | None = None
    artifacts: list[JsonObject] | None = None
    truncated: bool | None = None
    total: int | None = None
    total_at_least: bool | None = None
    next_page_token: str | None = None
    pins_enabled: bool | None = None
    scope: str | None = None
    external_listed: bool | None = None
    read: JsonObject | None = None
    artifact_read: ArtifactRead | None = None
    watch: JsonObject | None = None
    unwatch: JsonObject | None = None
    watches: list[JsonObject] | None = None
    filter_url: str | None = None
    arms: list[JsonObject] | None = None
    written: JsonObject | None = None
    asset_upload: JsonObject | None = None
    asset_uploads: JsonObject | None = None
    asset_list: JsonObject | None = None
    asset_read: JsonObject | None = None
    asset_delete: JsonObject | None = None
    pin: JsonObject | None = None


class ProjectDoc(Value):
    """A document of a project."""

    path: str
    created_at: str | None


class ProjectFile(ProjectDoc):
    """A file of a project."""

    file_kind: str


class ProjectKnowledge(Value):
    """How much of the room for a project's knowledge is taken."""

    knowledge_size: int
    max_knowledge_size: int


class _ProjectOutput(ToolOutput, tag_field="method", kw_only=True):
    notice: str | None = None


class ProjectInfoOutput(_ProjectOutput, tag="project_info", kw_only=True):
    name: str
    description: str
    instructions: str
    docs: list[ProjectDoc]
    knowledge: ProjectKnowledge
    files: list[ProjectFile] | None = None
    sync_sources: list[JsonObject] | None = None
    local_file: str | None = None


class ProjectReadOutput(_ProjectOutput, tag="project_read", kw_only=True):
    path: str
    created_at: str | None
    file_kind: str | None = None
    content: str | None = None
    local_file: str | None = None
    """The file that a long content was saved to."""


class ProjectHit(Value):
    """A passage that a search found."""

    name: str | None = None
    doc_uuid: str | None = None
    text: str | None = None
    image_attached: bool | None = None
    page: int | None = None


class ProjectSearchOutput(_ProjectOutput, tag="project_search", kw_only=True):
    rag: bool
    hits: list[ProjectHit] | None = None
    docs: list[str] | None = None


class ProjectWriteOutput(_ProjectOutput, tag="project_write", kw_only=True):
    path: str
    doc_uuid: str
    replaced: bool
    present_to_user: bool | None = None
    local_path: str | None = None


class ProjectDeleteOutput(_ProjectOutput, tag="project_delete", kw_only=True):
    path: str
    deleted: bool


class ProjectMemoryFile(Value):
    """A file of a project's memory."""

    path: str
    size_bytes: int
    updated_at: str | None
    truncated: bool


class ProjectMemoryListOutput(_ProjectOutput, tag="project_memory_list", kw_only=True):
    files: list[ProjectMemoryFile]
    truncated: bool


class ProjectMemoryReadOutput(_ProjectOutput, tag="project_memory_read", kw_only=True):
    path: str
    size_bytes: int
    updated_at: str | None
    truncated: bool
    content: str | None = None
    local_file: str | None = None


ProjectsOutput: TypeAlias = (
    ProjectInfoOutput
    | ProjectReadOutput
    | ProjectSearchOutput
    | ProjectWriteOutput
    | ProjectDeleteOutput
    | ProjectMemoryListOutput
    | ProjectMemoryReadOutput
)


class ClaudeDesignOutput(ToolOutput, rename="camel"):
    operation: str
    content: list[JsonObject]
    is_error: bool | None = None


class RemoteTriggerOutput(ToolOutput):
    status: int
    """The HTTP status."""
    json: str
    summary: str | None = None


class PushNotificationOutput(ToolOutput, rename="camel"):
    message: str
    push_sent: bool | None = None
    local_sent: bool | None = None
    disabled_reason: str | None = None
    """`config_off`, `user_present` or `no_transport`."""
    sent_at: str | None = None


class SendFeedbackOutput(ToolOutput):
    success: bool
    message: str


class ProposeGoalOutput(ToolOutput, rename="camel"):
    condition: str
    ask_user: bool


class ProposeSkillsOutput(ToolOutput, rename="camel"):
    proposal_count: int


class OfferChromeSetupOutput(ToolOutput):
    outcome: str
    """`connected`, `not_now` or `no_attempt_yet`."""


class ShowOnboardingRolePickerOutput(ToolOutput):
    role: str | None = None
    dismissed: bool | None = None


class QueuedNotice(Value):
    """A notice that has come in for the session."""

    notification_id: str
    origin: str
    queued_at: str
    content: str
    arrived_at: str | None = None


class ReadNotificationsOutput(ToolOutput):
    notifications: list[QueuedNotice]
    remaining: int
    read_at: str | None = None
