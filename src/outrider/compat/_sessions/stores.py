"""Has the reference SDK's functions for sessions in a store, and its store in memory.

Exceptions of a store are raised unchanged."""

from __future__ import annotations

import json
import logging
import os
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from outrider._threads import run_sync
from outrider.compat._sessions.disk import (
    check_id,
    check_message_id,
    check_tag,
    check_title,
    fork_of,
    is_id,
    page,
    project_key_for_directory,
    to_info,
    to_messages,
)
from outrider.compat._types.messages import (
    ForkSessionResult,
    SDKSessionInfo,
    SessionKey,
    SessionMessage,
    SessionStoreEntry,
    SessionSummaryEntry,
)
from outrider.compat._types.options import SessionStore
from outrider.errors import SessionNotFound
from outrider.transcripts import (
    BlockingSessions,
    Bundle,
    MemoryStore,
    StoreCalls,
    conversation,
    dated,
    offers,
    tag_entry,
    title_entry,
    to_entry,
)
from outrider.transcripts import SessionStore as NativeStore
from outrider.transcripts import fold_session_summary as fold

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from outrider.wire import JsonObject

log = logging.getLogger("outrider.compat")


@dataclass(frozen=True)
class _Row:
    """A session that may have to be loaded to be listed."""

    session_id: str
    mtime: int
    data: Mapping[str, Any] | None
    """Its summary in the store, if that is current."""


def _is_listed(data: Mapping[str, object]) -> bool:
    return to_info(data, session_id="", last_modified=0) is not None


async def _summaries(store: SessionStore, project: str) -> list[SessionSummaryEntry] | None:
    """The summaries in the store; None if it has none."""
    if not offers(store, "list_session_summaries"):
        return None
    try:
        return await store.list_session_summaries(project)
    except NotImplementedError:
        return None


async def _rows(store: SessionStore, project: str, summaries: list[SessionSummaryEntry] | None) -> list[_Row]:
    """The sessions of a project, newest first, each once."""
    known = {summary["session_id"]: summary for summary in summaries or ()}
    found: list[_Row] = []
    if offers(store, "list_sessions"):
        for entry in await store.list_sessions(project):
            summary = known.get(entry["session_id"])
            is_fresh = summary is not None and summary["mtime"] >= entry["mtime"]
            data = summary["data"] if summary is not None and is_fresh else None
            found.append(_Row(entry["session_id"], entry["mtime"], data))
    elif summaries is None:
        raise ValueError(
            "session_store implements neither list_session_summaries() nor list_sessions() -- cannot list "
            "sessions. Provide a store with at least one of those methods."
        )
    else:
        found = [_Row(id, summary["mtime"], summary["data"]) for id, summary in known.items()]
    found.sort(key=lambda row: row.mtime)
    newest = {row.session_id: row for row in found}
    return sorted(newest.values(), key=lambda row: row.mtime, reverse=True)


async def _described(store: SessionStore, project: str, row: _Row, folder: str) -> SDKSessionInfo | None:
    data, size = row.data, None
    if data is None:
        key: SessionKey = {"project_key": project, "session_id": row.session_id}
        try:
            entries = read_entries(await store.load(key))
        except Exception as error:  # noqa: BLE001 - a store may raise anything; the others are listed still
            log.warning("the session %s could not be loaded for a list: %s", row.session_id, error)
            return SDKSessionInfo(session_id=row.session_id, summary="", last_modified=row.mtime)
        data = fold(None, key, cast("list[SessionStoreEntry]", entries))["data"]
        size = size_of(entries)
    return to_info(data, session_id=row.session_id, last_modified=row.mtime, size=size, folder=folder)


def read_entries(loaded: Iterable[object] | None) -> list[JsonObject]:
    """The entries that a store has loaded."""
    return [cast("JsonObject", entry) for entry in loaded or () if isinstance(entry, dict)]


def size_of(entries: Sequence[JsonObject]) -> int:
    """The size of the entries as a file, in bytes."""
    return sum(len(json.dumps(entry, separators=(",", ":"))) + 1 for entry in entries)


_BATCH: Final = 500
_AGENTS: Final = "subagents/"
_AGENT: Final = "agent-"
_TOLD: Final = "agent_metadata"


class InMemorySessionStore(MemoryStore):
    """A store in memory, for tests."""

    def __init__(self) -> None:
        super().__init__()

    # Subclasses override `append` and `load`, and expect that nothing else is called.
    append_batch = NativeStore.append_batch
    find_session = NativeStore.find_session
    list_projects = NativeStore.list_projects
    acquire_lease = NativeStore.acquire_lease
    renew_lease = NativeStore.renew_lease
    release_lease = NativeStore.release_lease


def fold_session_summary(
    prev: SessionSummaryEntry | None, key: SessionKey, entries: list[SessionStoreEntry]
) -> SessionSummaryEntry:
    """Add entries of the main transcript to a session's summary. The store sets `mtime`."""
    return cast("SessionSummaryEntry", fold(prev, key, entries))


# Read


async def list_sessions_from_store(
    session_store: SessionStore, directory: str | None = None, limit: int | None = None, offset: int = 0
) -> list[SDKSessionInfo]:
    """The sessions of a folder that are in a store, newest first.

    One that cannot be loaded is listed without a summary. Those without a current summary count for a page
    before they are loaded, and may then turn out not to be listed. Raises `ValueError` for a store that
    cannot list.
    """
    project, folder = project_key_for_directory(directory), _folder(directory)
    summaries = await _summaries(session_store, project)
    rows = await _rows(session_store, project, summaries)
    calls = StoreCalls(cast("NativeStore", session_store))
    start = max(offset, 0)
    wanted = start + limit if limit is not None and limit > 0 else None

    async def describe(row: _Row) -> SDKSessionInfo | None:
        return await _described(session_store, project, row, folder)

    if summaries is not None:
        known = [row for row in rows if row.data is None or _is_listed(row.data)]
        infos = await calls.each(describe, known[start:wanted])
        return [info for info in infos if info is not None]
    found: list[SDKSessionInfo] = []
    while rows and (wanted is None or len(found) < wanted):
        count = len(rows) if wanted is None else wanted - len(found)
        some, rows = rows[:count], rows[count:]
        found += [info for info in await calls.each(describe, some) if info is not None]
    return found[start:wanted]


async def get_session_info_from_store(
    session_store: SessionStore, session_id: str, directory: str | None = None
) -> SDKSessionInfo | None:
    """The list entry of a session; None if there is none."""
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
    """The messages of a session, oldest first; empty if there is no such session."""
    entries = await _load(session_store, session_id, directory)
    return await run_sync(partial(_messages, entries, limit, offset, is_agent=False))


async def list_subagents_from_store(
    session_store: SessionStore, session_id: str, directory: str | None = None
) -> list[str]:
    """The ids of a session's subagents. Raises `ValueError` for a store without `list_subkeys`."""
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
    """The messages of a subagent, oldest first; empty if there is none."""
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


# Change


async def rename_session_via_store(
    session_store: SessionStore, session_id: str, title: str, directory: str | None = None
) -> None:
    """Change a session's title. Raises `ValueError` for an empty title and an invalid id."""
    entry = title_entry(check_id(session_id), check_title(title))
    await _append(session_store, _key(session_id, directory), [dated(entry)])


async def tag_session_via_store(
    session_store: SessionStore, session_id: str, tag: str | None, directory: str | None = None
) -> None:
    """Set a session's tag, or clear it with None. Raises `ValueError` for an empty tag and an invalid id."""
    entry = tag_entry(check_id(session_id), check_tag(tag))
    await _append(session_store, _key(session_id, directory), [dated(entry)])


async def delete_session_via_store(
    session_store: SessionStore, session_id: str, directory: str | None = None
) -> None:
    """Delete a session, if the store can. Raises `ValueError` for an invalid id."""
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
    """Copy a session, up to a message if one is given.

    Raises `ValueError` for an invalid id or message, and `FileNotFoundError` if there is no such session.
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
    """Copy a session on disk to a store, in batches. Entries that the store has are appended again.

    Raises `ValueError` for an invalid id, and `FileNotFoundError` if there is no such session.
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
    metadata = [entry for entry in entries if entry.get("type") == _TOLD] if is_agent else []
    found = conversation(map(to_entry, entries), agent=is_agent)
    return to_messages(page(found, limit, offset), metadata[-1] if metadata else None)


def _last_used(entry: JsonObject) -> int:
    """When an entry was written, in milliseconds since 1970; now, if it does not say."""
    timestamp = entry.get("timestamp")
    try:
        written = datetime.fromisoformat(timestamp if isinstance(timestamp, str) else "")
        # Without a zone it is UTC, as elsewhere in transcripts.
        written = written.replace(tzinfo=UTC) if written.tzinfo is None else written
        return int(written.timestamp() * 1000)
    except (ValueError, OverflowError):
        return int(time.time() * 1000)
