"""What the agent's program leaves on disk: where the sessions of a project are; and stores that keep sessions
elsewhere.

Does not talk to a running agent.
"""

from bridle.transcripts._memory_store import MemoryStore
from bridle.transcripts._places import (
    check_can_continue,
    config_folder,
    has_sessions,
    project_folder,
    project_key,
)
from bridle.transcripts._store import (
    SessionKey,
    SessionListSubkeysKey,
    SessionStore,
    SessionStoreEntry,
    SessionStoreListEntry,
    SessionSummaryEntry,
    offers,
)
from bridle.transcripts._summary import fold_session_summary

__all__ = [
    "MemoryStore",
    "SessionKey",
    "SessionListSubkeysKey",
    "SessionStore",
    "SessionStoreEntry",
    "SessionStoreListEntry",
    "SessionSummaryEntry",
    "check_can_continue",
    "config_folder",
    "fold_session_summary",
    "has_sessions",
    "offers",
    "project_folder",
    "project_key",
]
