"""Answers about files of the workspace and about background tasks.

Not about what tools do to files during a turn: messages tell that.
"""

from __future__ import annotations

from outrider.wire._value import Json
from outrider.wire.control._answers import Nullable, Payload


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
