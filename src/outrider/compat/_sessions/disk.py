"""Has the reference SDK's functions for sessions on disk, and converts and checks their values.

`outrider.transcripts` reads and writes the transcripts."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeVar, cast
from uuid import uuid4

from outrider.compat._types.messages import ForkSessionResult, SDKSessionInfo, SessionMessage
from outrider.errors import OptionsError, SessionNotFound, TranscriptError
from outrider.transcripts import (
    BlockingSessions,
    Bundle,
    SessionQuery,
    dated,
    forked,
    project_key,
    tag_entry,
    title_entry,
)
from outrider.transcripts._describe import without_unseen

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping, Sequence

    from outrider.transcripts import StoredSession, TranscriptEntry
    from outrider.wire import JsonObject

T = TypeVar("T")

_ID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_NOT_SHOWN: Final = ("Cf", "Co", "Cn")
"""Categories of characters that are removed from tags: format, private, unassigned."""
_REPLACED: Final = "content-replacement"
"""The type of entries that say which tool results were shortened."""


def is_id(text: object) -> bool:
    """Whether it is a UUID. Raises `TypeError` if it is not a string."""
    if not isinstance(text, str):
        raise TypeError(f"An id must be a string, not {type(text).__name__}: {text!r}")
    return _ID.fullmatch(text) is not None


def check_id(session_id: str) -> str:
    if not is_id(session_id):
        raise ValueError(f"Invalid session_id: {session_id}")
    return session_id


def check_message_id(uuid: str | None) -> None:
    if uuid and not is_id(uuid):
        raise ValueError(f"Invalid up_to_message_id: {uuid}")


def check_title(title: str) -> str:
    stripped = title.strip()
    if not stripped:
        raise ValueError("title must be non-empty")
    return stripped


def check_tag(tag: str | None) -> str | None:
    if tag is None:
        return None
    plain = without_unseen(tag, _NOT_SHOWN)
    if not plain:
        raise ValueError("tag must be non-empty (use None to clear)")
    return plain


def page(found: Sequence[T], limit: int | None, offset: int) -> list[T]:
    """The items from an offset on, up to a positive limit."""
    if limit is not None and limit > 0:
        return list(found[offset : offset + limit])
    return list(found[max(offset, 0) :])


def to_info(
    data: Mapping[str, object],
    *,
    session_id: str,
    last_modified: int,
    size: int | None = None,
    folder: str | None = None,
) -> SDKSessionInfo | None:
    """The list entry for a summary; None if it is not listed. `folder` is the default of `cwd`."""

    def text(name: str) -> str | None:
        value = data.get(name)
        return value if isinstance(value, str) and value else None

    first_prompt = text("first_prompt") or text("command_fallback")
    title = text("custom_title") or text("ai_title")
    summary = title or text("last_prompt") or text("summary_hint") or first_prompt
    if data.get("is_sidechain") is True or summary is None:
        return None
    created = data.get("created_at")
    return SDKSessionInfo(
        session_id=session_id,
        summary=summary,
        last_modified=last_modified,
        file_size=size,
        custom_title=title,
        first_prompt=first_prompt,
        git_branch=text("git_branch"),
        cwd=text("cwd") or folder,
        tag=text("tag"),
        created_at=created if isinstance(created, int) else None,
    )


def to_messages(
    entries: Iterable[TranscriptEntry], metadata: Mapping[str, object] | None = None
) -> list[SessionMessage]:
    """Convert entries to messages, with the metadata of their subagent if `metadata`."""
    call, parent = (_text(metadata or {}, name) for name in ("toolUseId", "parentAgentId"))
    made: list[SessionMessage] = []
    for entry in entries:
        raw = entry.raw
        made.append(
            SessionMessage(
                type=cast("Literal['user', 'assistant']", entry.type),
                uuid=entry.uuid or "",
                session_id=entry.session_id or "",
                message=raw.get("message"),
                parent_tool_use_id=call,
                parent_agent_id=parent,
            )
        )
    return made


def _text(metadata: Mapping[str, object], name: str) -> str | None:
    value = metadata.get(name)
    return value if isinstance(value, str) else None


def _is_own(entry: JsonObject, session_id: str) -> bool:
    """Whether an entry belongs to the session itself, not to a subagent or another session."""
    if entry.get("type") == _REPLACED:
        return entry.get("sessionId") == session_id
    return entry.get("isSidechain") is not True


def fork_of(source: Bundle, at: str | None, title: str | None) -> Bundle:
    """Fork a session. Raises `ValueError`."""
    session_id = str(uuid4())
    main = Bundle(
        session_id=source.session_id,
        project=source.project,
        entries=[entry for entry in source.entries if _is_own(entry, source.session_id)],
    )
    try:
        made = forked(main, session_id, at=at or None, title=(title or "").strip() or None)
    except OptionsError:
        raise ValueError(f"Message {at} not found in session {source.session_id}") from None
    except TranscriptError:
        raise ValueError(f"Session {source.session_id} has no messages to fork") from None
    said = [entry for entry in made.entries if "forkedFrom" in entry]
    for entry in said:
        entry.pop("sourceToolAssistantUUID", None)
        entry.setdefault("logicalParentUuid", None)
    noted = [dated(entry) for entry in _merged(made.entries[len(said) :])]
    # The fork was last used now.
    said[-1]["timestamp"] = noted[-1]["timestamp"]
    made.entries = [*said, *noted]
    return made


def _merged(noted: list[JsonObject]) -> list[JsonObject]:
    """The metadata of a fork, with all shortened results in one entry."""
    replaced = [entry for entry in noted if entry.get("type") == _REPLACED]
    if not replaced:
        return noted
    lists = [entry.get("replacements") for entry in replaced]
    every = [item for some in lists if isinstance(some, list) for item in cast("list[object]", some)]
    rest = [entry for entry in noted if entry.get("type") != _REPLACED]
    return [cast("JsonObject", {**replaced[0], "replacements": every}), *rest]


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def project_key_for_directory(directory: str | Path | None = None) -> str:
    """The key of a folder's sessions; by default, of this folder."""
    return project_key(Path.cwd() if directory is None else directory)


def list_sessions(
    directory: str | None = None,
    limit: int | None = None,
    offset: int = 0,
    include_worktrees: bool = True,
) -> list[SDKSessionInfo]:
    """The sessions of a folder and the other worktrees of its repository, or of all folders, newest first.

    A limit of 0 or less means none."""
    query = SessionQuery(project=directory or None, archived=None, worktrees=include_worktrees)
    found = BlockingSessions().facts(query)
    infos = (info for session, data in found if (info := _info(session, data, directory)) is not None)
    start = max(offset, 0)
    return list(islice(infos, start, start + limit if limit is not None and limit > 0 else None))


def get_session_info(session_id: str, directory: str | None = None) -> SDKSessionInfo | None:
    """The list entry of a session; None if there is none."""
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
    """The messages of a session, oldest first; empty if there is no such session."""
    if not is_id(session_id):
        return []
    try:
        entries = BlockingSessions().read(session_id, directory or None)
    except TranscriptError:
        return []
    return to_messages(page(entries, limit, offset))


def list_subagents(session_id: str, directory: str | None = None) -> list[str]:
    """The ids of a session's subagents."""
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
    """The messages of a subagent, oldest first; empty if there is none."""
    if not is_id(session_id) or not agent_id:
        return []
    try:
        entries, metadata = BlockingSessions().read_agent(session_id, agent_id, directory or None)
    except TranscriptError:
        return []
    return to_messages(page(entries, limit, offset), metadata)


def rename_session(session_id: str, title: str, directory: str | None = None) -> None:
    """Change a session's title. Raises `ValueError` for an empty title and an invalid id, and
    `FileNotFoundError` if there is no such session."""
    check_id(session_id)
    _note(session_id, title_entry(session_id, check_title(title)), directory)


def tag_session(session_id: str, tag: str | None, directory: str | None = None) -> None:
    """Set a session's tag, or clear it with None. Raises as `rename_session` does."""
    check_id(session_id)
    _note(session_id, tag_entry(session_id, check_tag(tag)), directory)


def delete_session(session_id: str, directory: str | None = None) -> None:
    """Delete a session and its subagents' transcripts. Raises `ValueError` for an invalid id, and
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
    """Copy a session, up to a message if one is given.

    Raises `ValueError` for an invalid id or message, and `FileNotFoundError` if there is no such session.
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
    """Raise errors as functions that work on files do."""
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
