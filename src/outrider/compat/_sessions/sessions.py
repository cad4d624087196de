"""Defines the reference SDK's functions for sessions on this machine's disk: blocking calls, for any thread.

`outrider.transcripts` reads the transcripts; `values` converts the results.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from outrider.compat._sessions.values import (
    check_id,
    check_message_id,
    check_tag,
    check_title,
    fork_of,
    is_id,
    page,
    to_info,
    to_messages,
)
from outrider.compat._types.messages import ForkSessionResult
from outrider.errors import SessionNotFound, TranscriptError
from outrider.transcripts import (
    BlockingSessions,
    SessionQuery,
    project_key,
    tag_entry,
    title_entry,
)

if TYPE_CHECKING:
    from collections.abc import Generator

    from outrider.compat._types.messages import SDKSessionInfo, SessionMessage
    from outrider.transcripts import StoredSession
    from outrider.wire import JsonObject

__all__ = [
    "delete_session",
    "fork_session",
    "get_session_info",
    "get_session_messages",
    "get_subagent_messages",
    "list_sessions",
    "list_subagents",
    "project_key_for_directory",
    "rename_session",
    "tag_session",
]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def project_key_for_directory(directory: str | Path | None = None) -> str:
    """The name under which the sessions of a folder are kept; by default, of this one."""
    return project_key(Path.cwd() if directory is None else directory)


def list_sessions(
    directory: str | None = None,
    limit: int | None = None,
    offset: int = 0,
    include_worktrees: bool = True,
) -> list[SDKSessionInfo]:
    """The sessions of a folder, and of the other worktrees of its repository; by default, all. Those that
    were used last come first. A limit of 0 or less is none."""
    query = SessionQuery(project=directory or None, archived=None, worktrees=include_worktrees)
    told = BlockingSessions().facts(query)
    infos = (info for session, data in told if (info := _info(session, data, directory)) is not None)
    start = max(offset, 0)
    return list(islice(infos, start, start + limit if limit is not None and limit > 0 else None))


def get_session_info(session_id: str, directory: str | None = None) -> SDKSessionInfo | None:
    """What lists say of a session; None if there is none, or lists leave it out."""
    if not is_id(session_id):
        return None
    try:
        found = BlockingSessions().facts_of(session_id, directory or None)
    except (TranscriptError, OSError):
        return None
    return None if found is None else _info(*found, directory)


def get_session_messages(
    session_id: str, directory: str | None = None, limit: int | None = None, offset: int = 0
) -> list[SessionMessage]:
    """The messages of a session, first to last; none if there is no such session."""
    if not is_id(session_id):
        return []
    try:
        entries = BlockingSessions().read(session_id, directory or None)
    except TranscriptError:
        return []
    return to_messages(page(entries, limit, offset))


def list_subagents(session_id: str, directory: str | None = None) -> list[str]:
    """The ids of the subagents that a session had."""
    if not is_id(session_id):
        return []
    try:
        return BlockingSessions().agents(session_id, directory or None)
    except TranscriptError:
        return []


def get_subagent_messages(
    session_id: str,
    agent_id: str,
    directory: str | None = None,
    limit: int | None = None,
    offset: int = 0,
) -> list[SessionMessage]:
    """The messages of a subagent of a session, first to last; none if there is no such."""
    if not is_id(session_id) or not agent_id:
        return []
    try:
        entries, told = BlockingSessions().read_agent(session_id, agent_id, directory or None)
    except TranscriptError:
        return []
    return to_messages(page(entries, limit, offset), told)


def rename_session(session_id: str, title: str, directory: str | None = None) -> None:
    """Give a session another title. Raises `ValueError` for an empty one and for what is no id, and
    `FileNotFoundError` if there is no such session."""
    check_id(session_id)
    _note(session_id, title_entry(session_id, check_title(title)), directory)


def tag_session(session_id: str, tag: str | None, directory: str | None = None) -> None:
    """Give a session a tag, in place of the one that it has; None: none. Raises as `rename_session` does."""
    check_id(session_id)
    _note(session_id, tag_entry(session_id, check_tag(tag)), directory)


def delete_session(session_id: str, directory: str | None = None) -> None:
    """Remove a session, with the transcripts of its subagents. Raises `ValueError` for what is no id, and
    `FileNotFoundError` if there is no such session."""
    check_id(session_id)
    with _raising(session_id, directory):
        BlockingSessions().delete(session_id, directory or None)


def fork_session(
    session_id: str,
    directory: str | None = None,
    up_to_message_id: str | None = None,
    title: str | None = None,
) -> ForkSessionResult:
    """Make a new session with the conversation of another one, up to a message if one is given.

    Raises `ValueError` for what is no id and for a message that is not in it, and `FileNotFoundError` if
    there is no such session.
    """
    check_id(session_id)
    check_message_id(up_to_message_id)
    sessions = BlockingSessions()
    with _raising(session_id, directory):
        source = sessions.load(session_id, directory or None)
        made = fork_of(source, up_to_message_id, title)
        sessions.put(made)
    return ForkSessionResult(session_id=made.session_id)


def _note(session_id: str, entry: JsonObject, directory: str | None) -> None:
    sessions = BlockingSessions()
    is_there = sessions.projects is not None and sessions.projects.is_dir()
    with _raising(
        session_id, directory, " in any project directory" if is_there else " (no projects directory)"
    ):
        sessions.note(session_id, entry, directory or None)


@contextmanager
def _raising(session_id: str, directory: str | None, where: str = "") -> Generator[None]:
    """Raise what a caller expects of a function that works on files."""
    try:
        yield
    except SessionNotFound:
        if directory:
            where = f" in project directory for {directory}"
        raise FileNotFoundError(f"Session {session_id} not found{where}") from None
    except TranscriptError as error:
        if isinstance(error.__cause__, OSError):
            raise error.__cause__ from error
        raise


def _info(session: StoredSession, data: dict[str, object], directory: str | None) -> SDKSessionInfo | None:
    return to_info(
        data,
        session_id=session.id,
        last_modified=(session.last_modified - _EPOCH) // _MILLISECOND,
        size=session.size,
        folder=os.path.realpath(directory) if directory else None,
    )
