"""Reads and changes kept sessions, on Claude Code's disk and in stores.

Does not talk to a running agent: `outrider.session` mirrors and resumes sessions. Names are loaded on first
use.
"""

from typing import TYPE_CHECKING

from outrider._lazy import lazily

if TYPE_CHECKING:
    from outrider.transcripts._chain import conversation
    from outrider.transcripts._copies import forked
    from outrider.transcripts._describe import dated, fold_session_summary, tag_entry, title_entry
    from outrider.transcripts._disk.files import (
        check_can_continue,
        check_project_key,
        check_subpath,
        config_folder,
        has_sessions,
        project_folder,
        project_key,
    )
    from outrider.transcripts._entries import TranscriptEntry, to_entry
    from outrider.transcripts._export.turns import ExportFormat
    from outrider.transcripts._library.disk import BlockingSessions
    from outrider.transcripts._sessions import Sessions
    from outrider.transcripts._values import Bundle, Hits, SearchHit, SessionQuery, StoredSession
    from outrider.transcripts.stores._base import (
        SessionKey,
        SessionListSubkeysKey,
        SessionStore,
        SessionStoreEntry,
        SessionStoreListEntry,
        SessionSummaryEntry,
        offers,
    )
    from outrider.transcripts.stores._calls import StoreCalls
    from outrider.transcripts.stores._file.store import FileStore
    from outrider.transcripts.stores._memory import MemoryStore
    from outrider.transcripts.stores._postgres import PostgresStore
    from outrider.transcripts.stores._redis import RedisStore
    from outrider.transcripts.stores._s3.store import S3Store
    from outrider.transcripts.stores._sqlite import SqliteStore
    from outrider.transcripts.stores._urls import open_store

_HOMES = {
    "_chain": ("conversation",),
    "_describe": (
        "dated",
        "fold_session_summary",
        "tag_entry",
        "title_entry",
    ),
    "_entries": (
        "TranscriptEntry",
        "to_entry",
    ),
    "_export.turns": ("ExportFormat",),
    "_copies": ("forked",),
    "_library.disk": ("BlockingSessions",),
    "_disk.files": (
        "check_can_continue",
        "check_project_key",
        "check_subpath",
        "config_folder",
        "has_sessions",
        "project_folder",
        "project_key",
    ),
    "_sessions": ("Sessions",),
    "_values": (
        "Bundle",
        "Hits",
        "SearchHit",
        "SessionQuery",
        "StoredSession",
    ),
    "stores._base": (
        "SessionKey",
        "SessionListSubkeysKey",
        "SessionStore",
        "SessionStoreEntry",
        "SessionStoreListEntry",
        "SessionSummaryEntry",
        "offers",
    ),
    "stores._calls": ("StoreCalls",),
    "stores._file.store": ("FileStore",),
    "stores._memory": ("MemoryStore",),
    "stores._urls": ("open_store",),
    "stores._postgres": ("PostgresStore",),
    "stores._redis": ("RedisStore",),
    "stores._s3.store": ("S3Store",),
    "stores._sqlite": ("SqliteStore",),
}
"""Where the names are."""

__getattr__, __dir__ = lazily(__name__, _HOMES)

__all__ = [
    # Sessions that are kept.
    "Bundle",
    "ExportFormat",
    "Hits",
    "SearchHit",
    "SessionQuery",
    "Sessions",
    "StoredSession",
    "TranscriptEntry",
    # Stores.
    "FileStore",
    "MemoryStore",
    "PostgresStore",
    "RedisStore",
    "S3Store",
    "SqliteStore",
    "open_store",
    # The contract of a store.
    "SessionKey",
    "SessionListSubkeysKey",
    "SessionStore",
    "SessionStoreEntry",
    "SessionStoreListEntry",
    "SessionSummaryEntry",
    "StoreCalls",
    "fold_session_summary",
    "offers",
    # For code that has no event loop, or has the entries of a session already.
    "BlockingSessions",
    "conversation",
    "dated",
    "forked",
    "tag_entry",
    "title_entry",
    "to_entry",
    # Where the program keeps its sessions.
    "check_can_continue",
    "check_project_key",
    "check_subpath",
    "config_folder",
    "has_sessions",
    "project_folder",
    "project_key",
]
