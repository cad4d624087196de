"""Defines the reference SDK's functions for sessions in a store, and its store in memory.

Exceptions of a store are raised unchanged. Lists are in `listing`.
"""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from outrider._threads import run_sync
from outrider.compat._sessions.sessions import project_key_for_directory
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
from outrider.compat._stores.listing import listed, read_entries, size_of
from outrider.compat._types.messages import ForkSessionResult
from outrider.errors import SessionNotFound
from outrider.transcripts import (
    BlockingSessions,
    Bundle,
    MemoryStore,
    conversation,
    dated,
    offers,
    tag_entry,
    title_entry,
    to_entry,
)
from outrider.transcripts import (
    SessionStore as Contract,
)
from outrider.transcripts import fold_session_summary as fold

if TYPE_CHECKING:
    from outrider.compat._types.messages import (
        SDKSessionInfo,
        SessionKey,
        SessionMessage,
        SessionStore,
        SessionStoreEntry,
        SessionSummaryEntry,
    )
    from outrider.wire import JsonObject

__all__ = [
    "InMemorySessionStore",
    "delete_session_via_store",
    "fold_session_summary",
    "fork_session_via_store",
    "get_session_info_from_store",
    "get_session_messages_from_store",
    "get_subagent_messages_from_store",
    "import_session_to_store",
    "list_sessions_from_store",
    "list_subagents_from_store",
    "rename_session_via_store",
    "tag_session_via_store",
]

_BATCH: Final = 500
_AGENTS: Final = "subagents/"
_AGENT: Final = "agent-"
_TOLD: Final = "agent_metadata"


class InMemorySessionStore(MemoryStore):
    """A store in the memory of this process, for tests and for trying things out."""

    def __init__(self) -> None:
        super().__init__()

    # What the reference's does not have is not offered: those who derive from it change `append` and `load`,
    # and expect these to be called.
    append_batch = Contract.append_batch
    find_session = Contract.find_session
    list_projects = Contract.list_projects
    acquire_lease = Contract.acquire_lease
    renew_lease = Contract.renew_lease
    release_lease = Contract.release_lease


def fold_session_summary(
    prev: SessionSummaryEntry | None, key: SessionKey, entries: list[SessionStoreEntry]
) -> SessionSummaryEntry:
    """The summary of a session with more entries of its main transcript; the one before stays as it is. Its
    `mtime` is the store's business."""
    return cast("SessionSummaryEntry", fold(prev, key, entries))


# Reading


async def list_sessions_from_store(
    session_store: SessionStore, directory: str | None = None, limit: int | None = None, offset: int = 0
) -> list[SDKSessionInfo]:
    """The sessions of a folder that are in a store, those used last first.

    One that cannot be loaded is listed without a summary. Raises `ValueError` for a store that cannot list.
    """
    project = project_key_for_directory(directory)
    return await listed(session_store, project, limit, offset, folder=_folder(directory))


async def get_session_info_from_store(
    session_store: SessionStore, session_id: str, directory: str | None = None
) -> SDKSessionInfo | None:
    """What lists say of a session; None if there is none, or lists leave it out."""
    entries = await _load(session_store, session_id, directory)
    if not entries:
        return None
    key = _key(session_id, directory)
    return to_info(
        fold(None, key, cast("list[SessionStoreEntry]", entries))["data"],
        session_id=session_id,
        last_modified=_last_used(entries[-1]),
        size=size_of(entries),
        folder=_folder(directory),
    )


async def get_session_messages_from_store(
    session_store: SessionStore,
    session_id: str,
    directory: str | None = None,
    limit: int | None = None,
    offset: int = 0,
) -> list[SessionMessage]:
    """The messages of a session, first to last; none if there is no such session."""
    entries = await _load(session_store, session_id, directory)
    return await run_sync(partial(_messages, entries, limit, offset, is_agent=False))


async def list_subagents_from_store(
    session_store: SessionStore, session_id: str, directory: str | None = None
) -> list[str]:
    """The ids of the subagents that a session had. Raises `ValueError` for a store without `list_subkeys`."""
    if not is_id(session_id):
        return []
    if not offers(session_store, "list_subkeys"):
        raise ValueError(
            "session_store does not implement list_subkeys() -- cannot list subagents. "
            "Provide a store with a list_subkeys() method."
        )
    found = (_agent_in(subpath) for subpath in await _subpaths(session_store, session_id, directory))
    return list(dict.fromkeys(agent for agent in found if agent is not None))


async def get_subagent_messages_from_store(
    session_store: SessionStore,
    session_id: str,
    agent_id: str,
    directory: str | None = None,
    limit: int | None = None,
    offset: int = 0,
) -> list[SessionMessage]:
    """The messages of a subagent of a session, first to last; none if there is no such."""
    if not is_id(session_id) or not agent_id:
        return []
    subpath: str | None = f"{_AGENTS}{_AGENT}{agent_id}"
    if offers(session_store, "list_subkeys"):
        subpaths = await _subpaths(session_store, session_id, directory)
        subpath = next((path for path in subpaths if _agent_in(path) == agent_id), None)
    if subpath is None:
        return []
    entries = await _load(session_store, session_id, directory, subpath)
    return await run_sync(partial(_messages, entries, limit, offset, is_agent=True))


# Changing


async def rename_session_via_store(
    session_store: SessionStore, session_id: str, title: str, directory: str | None = None
) -> None:
    """Give a session another title. Raises `ValueError` for an empty one and for what is no id."""
    entry = title_entry(check_id(session_id), check_title(title))
    await _append(session_store, _key(session_id, directory), [dated(entry)])


async def tag_session_via_store(
    session_store: SessionStore, session_id: str, tag: str | None, directory: str | None = None
) -> None:
    """Give a session a tag, in place of the one that it has; None: none. Raises `ValueError` for an empty one
    and for what is no id."""
    entry = tag_entry(check_id(session_id), check_tag(tag))
    await _append(session_store, _key(session_id, directory), [dated(entry)])


async def delete_session_via_store(
    session_store: SessionStore, session_id: str, directory: str | None = None
) -> None:
    """Remove a session; nothing, for a store that cannot delete. Raises `ValueError` for what is no id."""
    check_id(session_id)
    if offers(session_store, "delete"):
        await session_store.delete(_key(session_id, directory))


async def fork_session_via_store(
    session_store: SessionStore,
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
    entries = await _load(session_store, session_id, directory)
    if not entries:
        raise FileNotFoundError(f"Session {session_id} not found")
    key = _key(session_id, directory)
    source = Bundle(session_id=session_id, project=key["project_key"], entries=entries)
    made = await run_sync(fork_of, source, up_to_message_id, title)
    await _append(session_store, _key(made.session_id, directory), made.entries)
    return ForkSessionResult(session_id=made.session_id)


async def import_session_to_store(
    session_id: str,
    store: SessionStore,
    *,
    directory: str | None = None,
    include_subagents: bool = True,
    batch_size: int = _BATCH,
) -> None:
    """Copy a session of this machine to a store, some entries at a time. What it has already comes again.

    Raises `ValueError` for what is no id, and `FileNotFoundError` if there is no such session.
    """
    check_id(session_id)
    sessions = BlockingSessions()
    try:
        bundle = await run_sync(sessions.load, session_id, directory or None)
    except SessionNotFound:
        raise FileNotFoundError(f"Session {session_id} not found") from None
    size = batch_size if batch_size > 0 else _BATCH
    key: SessionKey = {"project_key": bundle.project, "session_id": session_id}
    await _append_all(store, key, bundle.entries, size)
    if not include_subagents:
        return
    for subpath, part in sorted(bundle.parts.items()):
        if subpath.startswith(_AGENTS):
            place: SessionKey = {**key, "subpath": subpath}
            await _append_all(store, place, [entry for entry in part if entry.get("type") != _TOLD], size)
            await _append_all(store, place, [entry for entry in part if entry.get("type") == _TOLD], size)


# Within


def _key(session_id: str, directory: str | None) -> SessionKey:
    return {"project_key": project_key_for_directory(directory), "session_id": session_id}


def _folder(directory: str | None) -> str:
    return os.path.realpath(directory or ".")


async def _load(
    store: SessionStore, session_id: str, directory: str | None, subpath: str | None = None
) -> list[JsonObject]:
    if not is_id(session_id):
        return []
    key = _key(session_id, directory)
    if subpath is not None:
        key["subpath"] = subpath
    return read_entries(await store.load(key))


async def _append(store: SessionStore, key: SessionKey, entries: list[JsonObject]) -> None:
    await store.append(key, cast("list[SessionStoreEntry]", entries))


async def _append_all(store: SessionStore, key: SessionKey, entries: list[JsonObject], size: int) -> None:
    for start in range(0, len(entries), size):
        await _append(store, key, entries[start : start + size])


async def _subpaths(store: SessionStore, session_id: str, directory: str | None) -> list[str]:
    return await store.list_subkeys(
        {"project_key": project_key_for_directory(directory), "session_id": session_id}
    )


def _agent_in(subpath: str) -> str | None:
    """The id of the subagent whose transcript has this subpath."""
    name = subpath.rpartition("/")[2]
    return name.removeprefix(_AGENT) if subpath.startswith(_AGENTS) and name.startswith(_AGENT) else None


def _messages(
    entries: list[JsonObject], limit: int | None, offset: int, *, is_agent: bool
) -> list[SessionMessage]:
    told = [entry for entry in entries if entry.get("type") == _TOLD] if is_agent else []
    found = conversation(map(to_entry, entries), agent=is_agent)
    return to_messages(page(found, limit, offset), told[-1] if told else None)


def _last_used(entry: JsonObject) -> int:
    """When an entry was written, in milliseconds since 1970; now, if it does not say."""
    told = entry.get("timestamp")
    try:
        written = datetime.fromisoformat(told if isinstance(told, str) else "")
        # Without a zone it is UTC, as elsewhere in transcripts.
        written = written.replace(tzinfo=UTC) if written.tzinfo is None else written
        return int(written.timestamp() * 1000)
    except (ValueError, OverflowError):
        return int(time.time() * 1000)
