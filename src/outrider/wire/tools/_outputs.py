"""Defines what the built-in tools give back, and finds an output's class by the tool's name.

It is the tool's own result (`UserMessage.tool_use_result`), not the text that the model reads. Choices are
plain texts, and keys that no field names are passed over: both grow from version to version.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias, cast

import msgspec

from outrider.wire._value import Json, JsonObject, Number, Value
from outrider.wire.tools import TOOL_ALIASES as _ALIASES
from outrider.wire.tools._inputs import Finding, Question, QuestionNotes, TodoItem
from outrider.wire.tools._services import ArtifactRead, ProjectsOutput, ProposeSkillsOutput, ToolOutput


class _CamelOutput(ToolOutput, rename="camel"):
    pass


class _CamelValue(Value, rename="camel"):
    pass


# Files.


class FileText(_CamelValue):
    """The lines of a file that were read."""

    file_path: str
    content: str
    num_lines: int
    start_line: int
    total_lines: int
    truncated_by_token_cap: bool | None = None


class ReadTextOutput(_CamelOutput, tag_field="type", tag="text"):
    """Text, or a part of it."""

    file: FileText
    artifact_read: ArtifactRead | None = None


class ImageDimensions(_CamelValue):
    """The size of an image in pixels, and as the model sees it."""

    original_width: int | None = None
    original_height: int | None = None
    display_width: int | None = None
    display_height: int | None = None


class FileImage(_CamelValue):
    """An image that was read."""

    base64: str
    type: str
    """Its media type."""
    original_size: int
    """In bytes."""
    dimensions: ImageDimensions | None = None


class ReadImageOutput(ToolOutput, tag_field="type", tag="image"):
    """An image."""

    file: FileImage


class FileNotebook(_CamelValue):
    """The cells of a Jupyter notebook."""

    file_path: str
    cells: list[Any]


class ReadNotebookOutput(ToolOutput, tag_field="type", tag="notebook"):
    """A Jupyter notebook."""

    file: FileNotebook


class FilePdf(_CamelValue):
    """A PDF file, whole."""

    file_path: str
    base64: str
    original_size: int


class ReadPdfOutput(ToolOutput, tag_field="type", tag="pdf"):
    """A PDF file."""

    file: FilePdf


class FilePages(_CamelValue):
    """A PDF file whose pages were saved as images."""

    file_path: str
    original_size: int
    count: int
    output_dir: str


class PageImage(_CamelValue):
    """A page as an image."""

    base64: str
    media_type: str
    error: str | None = None


class ReadPartsOutput(_CamelOutput, tag_field="type", tag="parts"):
    """Pages of a PDF file."""

    file: FilePages
    first_page: int | None = None
    pages: list[PageImage] | None = None


ReadOutput: TypeAlias = (
    ReadTextOutput | ReadImageOutput | ReadNotebookOutput | ReadPdfOutput | ReadPartsOutput
)


class PatchHunk(_CamelValue):
    """A piece of a patch; each line begins with a space, `+`, `-` or a backslash."""

    old_start: int
    old_lines: int
    new_start: int
    new_lines: int
    lines: list[str]


class GitDiff(Value):
    """The change as git shows it."""

    filename: str
    status: str
    additions: int
    deletions: int
    changes: int
    patch: str
    repository: str | None = None


class EditOutput(_CamelOutput):
    file_path: str
    old_string: str
    new_string: str
    original_file: str | None
    structured_patch: list[PatchHunk]
    user_modified: bool
    """A person changed the edit before it was made."""
    replace_all: bool
    git_diff: GitDiff | None = None
    staged: bool | None = None


class WriteOutput(_CamelOutput):
    type: str
    """`create` or `update`."""
    file_path: str
    content: str
    structured_patch: list[PatchHunk]
    original_file: str | None
    git_diff: GitDiff | None = None
    user_modified: bool | None = None
    staged: bool | None = None


class NotebookEditOutput(ToolOutput):
    new_source: str
    cell_type: str
    language: str
    edit_mode: str
    notebook_path: str
    original_file: str
    updated_file: str
    old_source: str | None = None
    cell_id: str | None = None
    error: str | None = None


class GlobOutput(_CamelOutput):
    duration_ms: Number
    num_files: int
    filenames: list[str]
    truncated: bool
    total_matches: int | None = None
    count_is_complete: bool | None = None
    timed_out: bool | None = None


class GrepOutput(_CamelOutput):
    num_files: int
    filenames: list[str]
    mode: str | None = None
    content: str | None = None
    num_lines: int | None = None
    num_matches: int | None = None
    total_files: int | None = None
    total_lines: int | None = None
    applied_limit: int | None = None
    applied_offset: int | None = None
    timed_out: bool | None = None


class EnterWorktreeOutput(_CamelOutput):
    worktree_path: str
    message: str
    worktree_branch: str | None = None


class ExitWorktreeOutput(_CamelOutput):
    action: str
    original_cwd: str
    worktree_path: str
    message: str
    worktree_branch: str | None = None
    tmux_session_name: str | None = None
    discarded_files: int | None = None
    discarded_commits: int | None = None


# Commands.


class GitCommit(Value):
    sha: str
    kind: str
    """`committed`, `amended` or `cherry-picked`."""
    branch: str | None = None


class GitPush(Value):
    branch: str


class GitBranch(Value):
    ref: str
    action: str
    """`merged` or `rebased`."""


class PullRequest(Value):
    number: int
    action: str
    """`created`, `edited`, `merged`, …"""
    url: str | None = None


class GitOperation(Value):
    """What a command did to a git repository."""

    commit: GitCommit | None = None
    push: GitPush | None = None
    branch: GitBranch | None = None
    pr: PullRequest | None = None


class BashOutput(_CamelOutput):
    stdout: str
    stderr: str
    interrupted: bool
    raw_output_path: str | None = None
    is_image: bool | None = None
    background_task_id: str | None = None
    """The command runs on, under this id."""
    backgrounded_by_user: bool | None = None
    timed_out_after_ms: Number | None = None
    background_cwd_hint: str | None = None
    background_ends_with_final_response: bool | None = None
    background_wakes_owner: bool | None = None
    dangerously_disable_sandbox: bool | None = None
    return_code_interpretation: str | None = None
    """What an exit code means that is not a failure."""
    no_output_expected: bool | None = None
    structured_content: list[Any] | None = None
    persisted_output_path: str | None = None
    """The file with all of an output that was too long."""
    persisted_output_size: int | None = None
    stale_read_file_state_hint: str | None = None
    gh_rate_limit_hint: str | None = None
    git_operation: GitOperation | None = None


class MonitorOutput(_CamelOutput):
    task_id: str
    timeout_ms: Number
    persistent: bool | None = None
    kept_in_sandbox_by_check: bool | None = None


class TaskStopOutput(ToolOutput):
    message: str
    task_id: str
    task_type: str
    command: str | None = None


# Agents, tasks, plans and questions.


class AgentToolStats(_CamelValue):
    """What a subagent used its tools for."""

    read_count: int
    search_count: int
    bash_count: int
    edit_file_count: int
    lines_added: int
    lines_removed: int
    other_tool_count: int
    frame_count: int | None = None


class AgentOutput(_CamelOutput, tag_field="status", tag="completed"):
    """The answer of a subagent."""

    agent_id: str
    content: list[JsonObject]
    """Text blocks."""
    total_tool_use_count: int
    total_duration_ms: Number
    total_tokens: int
    usage: JsonObject
    prompt: str
    agent_type: str | None = None
    resolved_model: str | None = None
    models_used: list[str] | None = None
    tools_used: list[str] | None = None
    tool_stats: AgentToolStats | None = None
    worktree_path: str | None = None
    worktree_branch: str | None = None


class AgentLaunchedOutput(_CamelOutput, tag_field="status", tag="async_launched"):
    """A subagent runs in the background."""

    agent_id: str
    description: str
    prompt: str
    output_file: str
    is_async: bool | None = None
    resolved_model: str | None = None
    models_used: list[str] | None = None
    can_read_output_file: bool | None = None


class RemoteAgentLaunchedOutput(_CamelOutput, tag_field="status", tag="remote_launched"):
    """A subagent runs in the cloud."""

    task_id: str
    session_url: str
    description: str
    prompt: str
    output_file: str


class WorkflowOutput(_CamelOutput):
    status: str
    """`async_launched` or `remote_launched`."""
    task_id: str
    task_type: str | None = None
    workflow_name: str | None = None
    run_id: str | None = None
    summary: str | None = None
    transcript_dir: str | None = None
    script_path: str | None = None
    session_url: str | None = None
    warning: str | None = None
    error: str | None = None


class TodoWriteOutput(_CamelOutput):
    old_todos: list[TodoItem]
    new_todos: list[TodoItem]


class CreatedTask(Value):
    id: str
    subject: str
    description: str | None = None


class TaskCreateOutput(ToolOutput):
    task: CreatedTask


class TaskDetails(_CamelValue):
    id: str
    subject: str
    description: str
    status: str
    blocks: list[str]
    blocked_by: list[str]


class TaskGetOutput(ToolOutput):
    task: TaskDetails | None


class StatusChange(Value, rename={"old": "from", "new": "to"}):
    old: str
    new: str


class TaskUpdateOutput(_CamelOutput):
    success: bool
    task_id: str
    updated_fields: list[str]
    error: str | None = None
    status_change: StatusChange | None = None


class ListedTask(_CamelValue):
    id: str
    subject: str
    status: str
    blocked_by: list[str]
    owner: str | None = None


class TaskListOutput(ToolOutput):
    tasks: list[ListedTask]


class EnterPlanModeOutput(ToolOutput):
    message: str


class ExitPlanModeOutput(_CamelOutput):
    plan: str | None
    is_agent: bool
    file_path: str | None = None
    has_task_tool: bool | None = None
    plan_was_edited: bool | None = None
    awaiting_leader_approval: bool | None = None
    request_id: str | None = None


class AnswerNotes(QuestionNotes):
    """What a person added to an answer, or why there is none."""

    unanswered: str | None = None
    """`skipped`, `replied_in_chat` or `dismissed`."""


class AskUserQuestionOutput(_CamelOutput):
    questions: list[Question]
    answers: dict[str, str]
    """The chosen label, or free text, by the question's text."""
    response: str | None = None
    annotations: dict[str, AnswerNotes] | None = None
    afk_timeout_ms: Number | None = None


class ReportFindingsOutput(ToolOutput):
    count: int
    findings: list[Finding]
    level: str | None = None


class SkillOutput(_CamelOutput):
    success: bool
    command_name: str


class ToolSearchOutput(ToolOutput):
    matches: list[str]
    query: str
    total_deferred_tools: int


# Times.


class CronCreateOutput(_CamelOutput):
    id: str
    human_schedule: str
    recurring: bool
    durable: bool | None = None
    next_fire_at: Number | None = None
    """In milliseconds since 1970."""


class CronDeleteOutput(_CamelOutput):
    id: str
    ended_loop_wakeup: bool | None = None


class CronJob(_CamelValue):
    id: str
    cron: str
    human_schedule: str
    prompt: str
    recurring: bool | None = None
    durable: bool | None = None
    next_fire_at: Number | None = None


class CronListOutput(ToolOutput):
    jobs: list[CronJob]


class ScheduleWakeupOutput(_CamelOutput):
    scheduled_for: Number
    """In milliseconds since 1970."""
    clamped_delay_seconds: Number
    was_clamped: bool
    stopped: bool | None = None
    cancelled_wakeups: int | None = None


# The web and MCP servers.


class WebFetchOutput(_CamelOutput):
    bytes: int
    code: int
    """The HTTP status, and `code_text` its name."""
    code_text: str
    result: str
    duration_ms: Number
    url: str
    artifact_read: ArtifactRead | None = None


class WebSearchHit(Value):
    title: str
    url: str
    snippet: str | None = None


class WebSearchHits(Value):
    tool_use_id: str
    content: list[WebSearchHit]


class WebSearchOutput(_CamelOutput):
    query: str
    results: list[WebSearchHits | str]
    duration_seconds: Number
    search_count: int | None = None


class McpResource(_CamelOutput):
    """A resource of an MCP server. `ListMcpResources` gives a list of them."""

    uri: str
    name: str
    server: str
    mime_type: str | None = None
    description: str | None = None


class RefreshedServer(_CamelOutput):
    """A server whose tools were listed again. `RefreshMcpTools` gives a list of them."""

    server: str
    status: str
    """`refreshed`, `error` or `not_connected`."""
    tool_count: int | None = None
    added: list[str] | None = None
    removed: list[str] | None = None
    error: str | None = None


class ListedResource(_CamelValue):
    uri: str
    name: str
    mime_type: str | None = None


class ReadMcpResourceDirOutput(ToolOutput):
    resources: list[ListedResource]
    error: str | None = None


class ResourceContent(_CamelValue):
    uri: str
    mime_type: str | None = None
    text: str | None = None
    blob_saved_to: str | None = None
    """The file that holds what is not text."""


class ReadMcpResourceOutput(ToolOutput):
    contents: list[ResourceContent]
    error: str | None = None


_BY_CLASS: Final[dict[str, Any]] = {
    _ALIASES.get(name, name): kind
    for base in (ToolOutput, _CamelOutput)
    for kind in base.__subclasses__()
    # Those with a tag are one of several forms.
    if (name := kind.__name__.removesuffix("Output")) != kind.__name__ and not kind.__struct_config__.tag
}

TOOL_OUTPUTS: Final[dict[str, Any]] = {
    **{name: kind for name, kind in _BY_CLASS.items() if name not in ("ProposeSkills", "_Camel")},
    "Agent": AgentOutput | AgentLaunchedOutput | RemoteAgentLaunchedOutput,
    "ListMcpResourcesTool": list[McpResource],
    "PowerShell": BashOutput,
    "Projects": ProjectsOutput,
    "Read": ReadOutput,
    "RefreshMcpTools": list[RefreshedServer],
    "propose_skills": ProposeSkillsOutput,
}
"""The type of each built-in tool's output, by the name that the agent calls the tool by."""


def typed_output(name: str, data: Json) -> ToolOutput | list[ToolOutput] | Json:
    """What the tool `name` gave back as a typed value, or `data` itself where none fits.

    So it is `data` for tools without a class (`mcp__…` among them), for a text, which reports a failure, and
    when a field is missing or of another type. Keys that no field names are passed over. Never raises.
    """
    kind = TOOL_OUTPUTS.get(_ALIASES.get(name, name))
    if kind is None or isinstance(data, str):
        return data
    try:
        return cast("ToolOutput | list[ToolOutput]", msgspec.convert(data, kind))
    except (msgspec.MsgspecError, TypeError, RecursionError):
        return data
