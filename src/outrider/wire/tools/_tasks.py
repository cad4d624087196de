"""Inputs of the built-in tools that start, plan or steer work: shells, agents, tasks, workflows, schedules.

Does not hold what the agent says to people (`_dialog`) or the task frames that such work causes.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from outrider.wire._value import JsonObject, Number, Value


class BashInput(Value, rename={"disable_sandbox": "dangerouslyDisableSandbox"}):
    """Runs a shell command."""

    command: str
    description: str | None = None
    """What the command is for, as shown to a person."""
    timeout: Number | None = None
    """In milliseconds."""
    run_in_background: bool | None = None
    disable_sandbox: bool | None = None
    """Run outside the sandbox (`dangerouslyDisableSandbox` on the wire)."""


class PowerShellInput(Value, rename={"disable_sandbox": "dangerouslyDisableSandbox"}):
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


class MonitorInput(Value):
    """Watches a command's output or a websocket, and wakes the agent at each event."""

    description: str
    command: str | None = None
    """What to run, if `ws` is not given."""
    timeout_ms: Number | None = None
    """When to give up; the program takes five minutes if left out."""
    ws: MonitorSocket | None = None


class AgentInput(Value):
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


class ListAgentsInput(Value, rename={"query": "q"}):
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


class SendMessageInput(Value):
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


class TodoWriteInput(Value):
    """Replaces the agent's to-do list."""

    todos: list[TodoItem]


class TaskCreateInput(Value, rename="camel"):
    """Adds a task to the session's list."""

    subject: str
    description: str
    active_form: str | None = None
    """The same work in words for while it is being done."""
    metadata: JsonObject | None = None


class TaskGetInput(Value, rename="camel"):
    """Looks up one task of the list."""

    task_id: str


class TaskListInput(Value):
    """Lists all tasks."""


class TaskUpdateInput(Value, rename="camel"):
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


class TaskStopInput(Value):
    """Ends something that runs in the background."""

    task_id: str | None = None
    shell_id: str | None = None
    """The older name of `task_id`, from when only shells could be ended."""


class WorkflowInput(Value, rename="camel"):
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
    """An earlier run to go on from."""


class CronCreateInput(Value):
    """Has a prompt sent at set times."""

    cron: str
    """Five fields, as in a crontab."""
    prompt: str
    recurring: bool | None = None
    durable: bool | None = None
    """Keep it beyond the end of this session."""


class CronDeleteInput(Value):
    """Takes back a scheduled prompt."""

    id: str


class CronListInput(Value):
    """Lists the scheduled prompts."""


class ScheduleWakeupInput(Value, rename="camel"):
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
