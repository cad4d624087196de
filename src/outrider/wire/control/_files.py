"""Defines the requests about workspace files and background tasks, and their answers."""

from __future__ import annotations

from outrider.wire._value import Json
from outrider.wire.control._base import Acknowledged, Nullable, OpenRequest, Payload, Request, Undocumented


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
    """True: some bytes were no text and are lost."""
    requested_path: str | None = None


class RewindReport(Payload, rename="camel"):
    """What taking files back did or would do."""

    can_rewind: bool = False
    """False is no failure of the request: see `error`."""
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
    """Ends a background task. An id that nobody knows is acknowledged too."""

    task_id: str


class BackgroundTasks(Request[TasksBackgrounded], tag="background_tasks"):
    """Moves running commands and subagents to the background, so that the turn goes on."""

    tool_use_id: str | None = None
    """Only this call."""


class GetTaskOutput(Request[TaskTail], tag="get_task_output"):
    """Asks for the end of what a background command has printed."""

    task_id: str
