"""Reads and changes kept sessions, on Claude Code's disk and in stores.

Does not talk to a running agent: `outrider.session` mirrors and resumes sessions. Names are loaded on first
use.
"""

from typing import TYPE_CHECKING

from outrider._lazy import lazily

if TYPE_CHECKING:
    from outrider.transcripts._chain import conversation as conversation
    from outrider.transcripts._copies import forked as forked
    from outrider.transcripts._describe import dated as dated
    from outrider.transcripts._describe import fold_session_summary as fold_session_summary
    from outrider.transcripts._describe import tag_entry as tag_entry
    from outrider.transcripts._describe import title_entry as title_entry
    from outrider.transcripts._disk.files import check_can_continue as check_can_continue
    from outrider.transcripts._disk.files import check_project_key as check_project_key
    from outrider.transcripts._disk.files import check_subpath as check_subpath
    from outrider.transcripts._disk.files import config_folder as config_folder
    from outrider.transcripts._disk.files import has_sessions as has_sessions
    from outrider.transcripts._disk.files import project_folder as project_folder
    from outrider.transcripts._disk.files import project_key as project_key
    from outrider.transcripts._entries import TranscriptEntry as TranscriptEntry
    from outrider.transcripts._entries import to_entry as to_entry
    from outrider.transcripts._export.turns import ExportFormat as ExportFormat
    from outrider.transcripts._library.disk import BlockingSessions as BlockingSessions
    from outrider.transcripts._sessions import Sessions as Sessions
    from outrider.transcripts._values import Bundle as Bundle
    from outrider.transcripts._values import Hits as Hits
    from outrider.transcripts._values import SearchHit as SearchHit
    from outrider.transcripts._values import SessionQuery as SessionQuery
    from outrider.transcripts._values import StoredSession as StoredSession
    from outrider.transcripts.stores._base import LatestSessionEntry as LatestSessionEntry
    from outrider.transcripts.stores._base import SessionKey as SessionKey
    from outrider.transcripts.stores._base import SessionListSubkeysKey as SessionListSubkeysKey
    from outrider.transcripts.stores._base import SessionStore as SessionStore
    from outrider.transcripts.stores._base import SessionStoreEntry as SessionStoreEntry
    from outrider.transcripts.stores._base import SessionStoreListEntry as SessionStoreListEntry
    from outrider.transcripts.stores._base import SessionSummaryEntry as SessionSummaryEntry
    from outrider.transcripts.stores._base import offers as offers
    from outrider.transcripts.stores._blocking import StoreCalls as StoreCalls
    from outrider.transcripts.stores._file import FileStore as FileStore
    from outrider.transcripts.stores._memory import MemoryStore as MemoryStore
    from outrider.transcripts.stores._postgres import PostgresStore as PostgresStore
    from outrider.transcripts.stores._redis import RedisStore as RedisStore
    from outrider.transcripts.stores._s3 import S3Store as S3Store
    from outrider.transcripts.stores._sqlite import SqliteStore as SqliteStore
    from outrider.transcripts.stores._urls import open_store as open_store
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
