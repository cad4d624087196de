"""Requests about files of the workspace and about background tasks.

What the agent answers is in `_answers_files`.
"""

from __future__ import annotations

from outrider.wire.control._answers import Acknowledged, Undocumented
from outrider.wire.control._answers_files import (
    FileContents,
    RewindReport,
    SuggestedFiles,
    TasksBackgrounded,
    TaskTail,
    WorkspaceDiff,
)
from outrider.wire.control._requests import OpenRequest, Request


class FileSuggestions(Request[SuggestedFiles], tag="file_suggestions"):
    """Asks which files a typed name may mean."""

    answer = SuggestedFiles

    query: str


class ReadFile(Request[FileContents], tag="read_file"):
    """Reads a file of the workspace; missing and forbidden files fail alike."""

    answer = FileContents

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

    answer = RewindReport

    user_message_id: str
    dry_run: bool | None = None
    """Only say what would change."""


class StageFile(OpenRequest[Undocumented], tag="stage_file"):
    """Puts a file where the agent can use it."""

    answer = Undocumented


class GetWorkspaceDiff(OpenRequest[WorkspaceDiff], tag="get_workspace_diff"):
    """Asks what differs from the last commit."""

    answer = WorkspaceDiff


class StopTask(Request[Acknowledged], tag="stop_task"):
    """Ends a background task. An id that nobody knows is acknowledged too."""

    task_id: str


class BackgroundTasks(Request[TasksBackgrounded], tag="background_tasks"):
    """Moves running commands and subagents to the background, so that the turn goes on."""

    answer = TasksBackgrounded

    tool_use_id: str | None = None
    """Only this call."""


class GetTaskOutput(Request[TaskTail], tag="get_task_output"):
    """Asks for the end of what a background command has printed."""

    answer = TaskTail

    task_id: str
