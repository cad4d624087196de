"""Defines the inputs of the built-in tools that work on this machine and with the model, and finds an input's
class by the tool's name.

The tools that an account brings are in `_services`, what tools give back in `_outputs`.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

import msgspec

from outrider.wire._value import JsonObject, Number, Value
from outrider.wire.tools import TOOL_ALIASES as _ALIASES
from outrider.wire.tools._services import ToolInput


class ReadInput(ToolInput):
    """Shows a file to the agent, whole or in part; also images, notebooks and PDF files."""

    file_path: str
    offset: int | None = None
    """The line to begin with."""
    limit: int | None = None
    """How many lines at the most."""
    pages: str | None = None
    """A range of PDF pages, such as `"3-7"`."""
    allow_large: bool | None = None
    """Go past the usual size limits."""


class WriteInput(ToolInput):
    """Creates a file or replaces all that is in it."""

    file_path: str
    content: str


class EditInput(ToolInput):
    """Replaces one piece of text in a file by another."""

    file_path: str
    old_string: str
    new_string: str
    replace_all: bool | None = None
    """Every occurrence, not just one that must be unique. The program writes it out even when it is false."""


class NotebookEditInput(ToolInput):
    """Replaces, adds or removes a cell of a Jupyter notebook."""

    notebook_path: str
    new_source: str
    cell_id: str | None = None
    """The cell to change, or the one that a new cell comes after."""
    cell_type: Literal["code", "markdown"] | None = None
    edit_mode: Literal["replace", "insert", "delete"] | None = None


class GlobInput(ToolInput):
    """Finds files whose path matches a pattern."""

    pattern: str
    path: str | None = None
    """The folder to search, the working folder if left out."""


class GrepInput(
    ToolInput,
    rename={
        "after": "-A",
        "before": "-B",
        "around": "-C",
        "ignore_case": "-i",
        "line_numbers": "-n",
        "only_matching": "-o",
    },
):
    """Finds lines that match a regular expression."""

    pattern: str
    path: str | None = None
    glob: str | None = None
    """Only files whose name matches this pattern."""
    type: str | None = None
    """Only files of this kind, by ripgrep's names: `"py"`, `"rust"`."""
    output_mode: Literal["content", "files_with_matches", "count"] | None = None
    after: Number | None = None
    """Lines to show behind each match."""
    before: Number | None = None
    """Lines to show ahead of each match."""
    around: Number | None = None
    """Lines to show on both sides of each match."""
    context: Number | None = None
    """The same as `around`, by its long name."""
    ignore_case: bool | None = None
    line_numbers: bool | None = None
    only_matching: bool | None = None
    """Show just the part of a line that matched."""
    head_limit: Number | None = None
    """How many entries to return."""
    offset: Number | None = None
    """How many entries to pass over first."""
    multiline: bool | None = None
    """Let a match run over line ends."""


class LSPInput(ToolInput, rename={"file_path": "filePath"}):
    """Asks a language server about the symbol at a place in a file."""

    operation: str
    """`goToDefinition`, `findReferences`, `hover`, `documentSymbol`, `workspaceSymbol`, `goToImplementation`,
    `prepareCallHierarchy`, `incomingCalls`, `outgoingCalls`, or what a later program adds."""
    file_path: str
    line: int
    """Counted from 1."""
    character: int
    """Counted from 1."""
    query: str | None = None
    """The name to look for, with `workspaceSymbol`."""


class EnterWorktreeInput(ToolInput):
    """Moves the session into a git worktree, a new one or one that is there."""

    name: str | None = None
    """What to call a new one."""
    path: str | None = None
    """Where an existing one is."""


class ExitWorktreeInput(ToolInput):
    """Leaves the worktree that the session had moved into."""

    action: Literal["keep", "remove"]
    discard_changes: bool | None = None
    """Remove it even if that loses work."""


class BashInput(ToolInput, rename={"disable_sandbox": "dangerouslyDisableSandbox"}):
    """Runs a shell command."""

    command: str
    description: str | None = None
    """What the command is for, as shown to a person."""
    timeout: Number | None = None
    """In milliseconds."""
    run_in_background: bool | None = None
    disable_sandbox: bool | None = None
    """Run outside the sandbox (`dangerouslyDisableSandbox` on the wire)."""


class PowerShellInput(ToolInput, rename={"disable_sandbox": "dangerouslyDisableSandbox"}):
    """Runs a PowerShell command."""

    command: str
    description: str | None = None
    """What the command is for, as shown to a person."""
    timeout: Number | None = None
    """In milliseconds."""
    run_in_background: bool | None = None
    disable_sandbox: bool | None = None
    """Run outside the sandbox (`dangerouslyDisableSandbox` on the wire)."""


class MonitorSocket(Value):
    """The websocket that a monitor listens to."""

    url: str
    protocols: list[str] | None = None
    """Subprotocols to offer."""


class MonitorInput(ToolInput):
    """Watches a command's output or a websocket, and wakes the agent at each event."""

    description: str
    command: str | None = None
    """What to run, if `ws` is not given."""
    timeout_ms: Number | None = None
    """When to give up; the program takes five minutes if left out."""
    ws: MonitorSocket | None = None


class AgentInput(ToolInput):
    """Gives a piece of work to a subagent."""

    description: str
    """A few words for displays."""
    prompt: str
    subagent_type: str | None = None
    model: str | None = None
    """`sonnet`, `opus`, `haiku`, `fable`, or what a later program adds."""
    effort: str | None = None
    """`low`, `medium`, `high`, `xhigh`, `max`, or what a later program adds."""
    run_in_background: bool | None = None
    """Left out means true to the program."""
    isolation: str | None = None
    """`worktree`, `remote`, or what a later program adds; left out, the agent shares the working folder."""
    name: str | None = None
    """What others call the agent when they write to it."""
    team_name: str | None = None
    """Accepted and not used by today's program, as is `mode`."""
    mode: str | None = None


class ListAgentsInput(ToolInput, rename={"query": "q"}):
    """Lists the agents and sessions that a message can be sent to."""

    query: str | None = None
    channel: str | None = None


class ShutdownRequest(Value, tag_field="type", tag="shutdown_request"):
    """Asks a teammate to end."""

    reason: str | None = None


class ShutdownResponse(Value, tag_field="type", tag="shutdown_response"):
    """Says whether the sender will end, as it was asked to."""

    request_id: str
    approve: bool
    reason: str | None = None


class PlanApprovalResponse(Value, tag_field="type", tag="plan_approval_response"):
    """Accepts or sends back the plan of a teammate."""

    request_id: str
    approve: bool
    feedback: str | None = None


TeamMessage: TypeAlias = ShutdownRequest | ShutdownResponse | PlanApprovalResponse
"""A message between teammates that is more than text."""


class SendMessageInput(ToolInput):
    """Writes to another agent or session."""

    to: str
    message: str | TeamMessage | None = None
    """Left out when only `notify_when_idle` is wanted."""
    summary: str | None = None
    """A few words for the sender's own display."""
    notify_when_idle: bool | None = None
    """Tell the sender once the other has come to rest."""


class TodoItem(Value, rename="camel"):
    """A line of the agent's to-do list."""

    content: str
    status: Literal["pending", "in_progress", "completed"]
    active_form: str
    """The same work in words for while it is being done."""


class TodoWriteInput(ToolInput):
    """Replaces the agent's to-do list."""

    todos: list[TodoItem]


class TaskCreateInput(ToolInput, rename="camel"):
    """Adds a task to the session's list."""

    subject: str
    description: str
    active_form: str | None = None
    """The same work in words for while it is being done."""
    metadata: JsonObject | None = None


class TaskGetInput(ToolInput, rename="camel"):
    """Looks up one task of the list."""

    task_id: str


class TaskListInput(ToolInput):
    """Lists all tasks."""


class TaskUpdateInput(ToolInput, rename="camel"):
    """Changes a task of the list, or takes it out."""

    task_id: str
    status: Literal["pending", "in_progress", "completed", "deleted"] | None = None
    subject: str | None = None
    description: str | None = None
    active_form: str | None = None
    owner: str | None = None
    add_blocks: list[str] | None = None
    """Tasks that have to wait for this one."""
    add_blocked_by: list[str] | None = None
    """Tasks that this one has to wait for."""
    metadata: JsonObject | None = None
    """Merged into what is there; a null takes its key out."""


class TaskStopInput(ToolInput):
    """Ends something that runs in the background."""

    task_id: str | None = None
    shell_id: str | None = None
    """The older name of `task_id`, from when only shells could be ended."""


class WorkflowInput(ToolInput, rename="camel"):
    """Runs a script that directs many agents; one of `script`, `name` and `script_path` says which."""

    script: str | None = None
    """The text of the script."""
    name: str | None = None
    """A workflow that is known by name."""
    script_path: str | None = None
    args: Any = None
    """Handed to the script as it is."""
    description: str | None = None
    """Accepted and not used by today's program, as is `title`: the script says both."""
    title: str | None = None
    resume_from_run_id: str | None = None
    """An earlier run to continue from."""


class CronCreateInput(ToolInput):
    """Has a prompt sent at set times."""

    cron: str
    """Five fields, as in a crontab."""
    prompt: str
    recurring: bool | None = None
    durable: bool | None = None
    """Keep it beyond the end of this session."""


class CronDeleteInput(ToolInput):
    """Takes back a scheduled prompt."""

    id: str


class CronListInput(ToolInput):
    """Lists the scheduled prompts."""


class ScheduleWakeupInput(ToolInput, rename="camel"):
    """Decides when a looping agent takes its next step, or that it takes none."""

    delay_seconds: Number | None = None
    """The program demands this and `reason` unless `stop` is true."""
    reason: str | None = None
    prompt: str | None = None
    """What to be woken with."""
    stop: bool | None = None
    """End the loop."""
    noop: bool | None = None
    """Nothing came of this step."""


class QuestionOption(Value):
    """One of the answers that a question offers."""

    label: str
    description: str
    preview: str | None = None
    """Something to show while this answer is picked out: a sketch, a piece of code."""


class Question(Value, rename={"multi_select": "multiSelect"}):
    """A question with answers to choose from."""

    question: str
    header: str
    """A word or two to put above it."""
    options: list[QuestionOption]
    multi_select: bool | None = None
    """More than one answer may be chosen."""


class QuestionNotes(Value):
    """What a person added to an answer."""

    notes: str | None = None
    preview: str | None = None
    """The preview of the answer that was chosen."""


class QuestionMetadata(Value):
    """Where a set of questions comes from."""

    source: str | None = None


class AskUserQuestionInput(ToolInput):
    """Puts questions to the person; the host sends it back with `answers` filled in."""

    questions: list[Question]
    answers: dict[str, str] | None = None
    """The chosen label, or free text, by the question's text."""
    annotations: dict[str, QuestionNotes] | None = None
    """Remarks, by the question's text."""
    metadata: QuestionMetadata | None = None


class EnterPlanModeInput(ToolInput):
    """Asks to plan first and change nothing meanwhile."""


class AllowedPrompt(Value):
    """A kind of action, in words, that a plan needs permission for."""

    tool: Literal["Bash"]
    prompt: str


class ExitPlanModeInput(ToolInput, rename="camel"):
    """Presents the plan and asks to carry it out; the program fills in the plan from the agent's file."""

    plan: str | None = None
    plan_file_path: str | None = None
    allowed_prompts: list[AllowedPrompt] | None = None
    """Accepted and not used by today's program."""


class SentFile(Value):
    """A file that has been uploaded, to go with a message."""

    file_uuid: str
    file_name: str
    size: Number
    """In bytes."""
    is_image: bool
    media_type: str | None = None


class SendUserMessageInput(ToolInput):
    """Says something to the person, in a session where plain answers are not shown."""

    message: str
    status: Literal["normal", "proactive"]
    """Whether it answers them or comes unasked."""
    attachments: list[str | SentFile] | None = None
    """Paths, or files that are uploaded already."""


class Finding(Value):
    """Something that a code review found."""

    file: str
    summary: str
    failure_scenario: str
    """How it would show."""
    line: int | None = None
    category: str | None = None
    short_summary: str | None = None
    verdict: Literal["CONFIRMED", "PLAUSIBLE"] | None = None
    outcome: Literal["fixed", "skipped", "no_change_needed"] | None = None


class ReportFindingsInput(ToolInput):
    """Hands over the findings of a code review."""

    findings: list[Finding]
    level: str | None = None
    """The effort it was done with: `low`, `medium`, `high`, `xhigh`, `max`, or what a later program adds."""


class ReadNotificationsInput(ToolInput):
    """Fetches the notices that have come in for the session."""


class WebFetchInput(ToolInput):
    """Loads a web page and has a question answered from it."""

    url: str
    prompt: str
    """What to find out from the page."""
    offset: int | None = None
    """Where to continue in a page that was too long."""


class WebSearchInput(ToolInput):
    """Searches the web."""

    query: str
    allowed_domains: list[str] | None = None
    """Results from nowhere else."""
    blocked_domains: list[str] | None = None


class SkillInput(ToolInput):
    """Loads a skill, or runs a command that is written as one."""

    skill: str
    args: str | None = None


class ToolSearchInput(ToolInput):
    """Fetches the schemas of tools that the agent knows by name only."""

    query: str
    """Words, or `select:` and names."""
    max_results: Number | None = None
    """The program takes 5 if left out."""


class ListMcpResourcesInput(ToolInput):
    """Lists the resources that MCP servers offer."""

    server: str | None = None
    """Only those of this one."""


class ReadMcpResourceInput(ToolInput):
    """Reads a resource of an MCP server."""

    server: str
    uri: str


class ReadMcpResourceDirInput(ToolInput):
    """Lists what is in a resource that is a folder."""

    server: str
    uri: str


class RefreshMcpToolsInput(ToolInput):
    """Has MCP servers list their tools again."""

    server: str | None = None
    """Only those of this one."""


TOOL_INPUTS: Final[dict[str, type[Value]]] = {
    _ALIASES.get(name, name): kind
    for name, kind in sorted(
        (kind.__name__.removesuffix("Input"), kind) for kind in ToolInput.__subclasses__()
    )
}
TOOL_INPUTS["propose_skills"] = TOOL_INPUTS.pop("ProposeSkills")
"""The class of each built-in tool's input, by the name that the agent calls the tool by."""


def typed_input(name: str, data: JsonObject) -> Value | JsonObject:
    """The input `data` of the tool `name` as a typed value, or `data` itself if that would lose anything.

    A value comes back only if it encodes to the same object again. So it is `data` for tools without a class
    (`mcp__…` among them), and when a key is unknown or a field is missing, null or of another type.
    Never raises.
    """
    kind = TOOL_INPUTS.get(_ALIASES.get(name, name))
    if kind is None:
        return data
    try:
        value = msgspec.convert(data, kind)
        return value if msgspec.to_builtins(value) == data else data
    except (msgspec.MsgspecError, TypeError, RecursionError):
        return data
