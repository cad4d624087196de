"""What the agent's program leaves on disk: where the sessions of a project are; and stores that keep sessions
elsewhere.

Does not talk to a running agent. Names are loaded when they are first used.
"""

from typing import TYPE_CHECKING

from outrider._lazy import lazily

if TYPE_CHECKING:
    from outrider.transcripts._blocking import BlockingSessions
    from outrider.transcripts._chain import conversation
    from outrider.transcripts._entry import TranscriptEntry, to_entry
    from outrider.transcripts._exporting import ExportFormat
    from outrider.transcripts._forking import forked
    from outrider.transcripts._hits import Hits
    from outrider.transcripts._metadata import dated, tag_entry, title_entry
    from outrider.transcripts._places import (
        check_can_continue,
        config_folder,
        has_sessions,
        project_folder,
        project_key,
    )
    from outrider.transcripts._sessions import Sessions
    from outrider.transcripts._store import (
        SessionKey,
        SessionListSubkeysKey,
        SessionStore,
        SessionStoreEntry,
        SessionStoreListEntry,
        SessionSummaryEntry,
        offers,
    )
    from outrider.transcripts._store_calls import StoreCalls
    from outrider.transcripts._subpaths import check_project_key, check_subpath
    from outrider.transcripts._summary import fold_session_summary
    from outrider.transcripts._values import Bundle, SearchHit, SessionQuery, StoredSession
    from outrider.transcripts.stores._file import FileStore
    from outrider.transcripts.stores._memory import MemoryStore
    from outrider.transcripts.stores._opening import open_store
    from outrider.transcripts.stores._postgres import PostgresStore
    from outrider.transcripts.stores._redis import RedisStore
    from outrider.transcripts.stores._s3 import S3Store
    from outrider.transcripts.stores._sqlite import SqliteStore

_HOMES = {
    "_blocking": ("BlockingSessions",),
    "_chain": ("conversation",),
    "_entry": ("TranscriptEntry", "to_entry"),
    "_exporting": ("ExportFormat",),
    "_forking": ("forked",),
    "_hits": ("Hits",),
    "_metadata": ("dated", "tag_entry", "title_entry"),
    "_places": (
        "check_can_continue",
        "config_folder",
        "has_sessions",
        "project_folder",
        "project_key",
    ),
    "_sessions": ("Sessions",),
    "_store": (
        "SessionKey",
        "SessionListSubkeysKey",
        "SessionStore",
        "SessionStoreEntry",
        "SessionStoreListEntry",
        "SessionSummaryEntry",
        "offers",
    ),
    "_store_calls": ("StoreCalls",),
    "_subpaths": ("check_project_key", "check_subpath"),
    "_summary": ("fold_session_summary",),
    "_values": ("Bundle", "SearchHit", "SessionQuery", "StoredSession"),
    "stores._file": ("FileStore",),
    "stores._memory": ("MemoryStore",),
    "stores._opening": ("open_store",),
    "stores._postgres": ("PostgresStore",),
    "stores._redis": ("RedisStore",),
    "stores._s3": ("S3Store",),
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
