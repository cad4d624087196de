"""Owns the values that session functions give back, and the shapes that session stores work with.

Does not read or keep sessions. The contract of a store is Outrider's own.
"""

# Annotations are evaluated where they stand: else `NotRequired` would mean nothing at run time.

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NotRequired, Protocol, Required, TypeAlias, TypedDict

__all__ = [
    "ForkSessionResult",
    "SDKSessionInfo",
    "SessionKey",
    "SessionListSubkeysKey",
    "SessionMessage",
    "SessionStore",
    "SessionStoreEntry",
    "SessionStoreFlushMode",
    "SessionStoreListEntry",
    "SessionSummaryEntry",
]

SessionStoreFlushMode: TypeAlias = Literal["batched", "eager"]
"""When what the agent writes goes to a store: when a turn ends, or at once."""


class SessionKey(TypedDict):
    """Names one transcript."""

    project_key: str
    session_id: str
    subpath: NotRequired[str]
    """A part of the session, such as `subagents/agent-a1`; absent for the main transcript."""


class SessionListSubkeysKey(TypedDict):
    """Names a session, to ask for its parts."""

    project_key: str
    session_id: str


class SessionStoreEntry(TypedDict, total=False):
    """One line of a transcript: any JSON object. Only these fields mean something to a store."""

    type: Required[str]
    uuid: str
    timestamp: str


class SessionStoreListEntry(TypedDict):
    """A session that is in a store."""

    session_id: str
    mtime: int
    """When it last got an entry, in milliseconds since 1970."""


class SessionSummaryEntry(TypedDict):
    """What a store knows about a session without reading it."""

    session_id: str
    mtime: int
    data: dict[str, Any]
    """Made and read by the SDK; a JSON object to the store."""


if TYPE_CHECKING:
    # To type checkers, what a store has to have here: Outrider's own contract goes on from there, and a store
    # that does not derive from it would have to have all of it.
    class SessionStore(Protocol):
        """Keeps transcripts: `append` and `load` have to be written, the others are optional."""

        async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None: ...
        async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None: ...
        async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
            raise NotImplementedError

        async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
            raise NotImplementedError

        async def delete(self, key: SessionKey) -> None:
            raise NotImplementedError

        async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
            raise NotImplementedError
else:
    # The same class, so that both APIs agree on which of the optional methods a store has.
    from outrider.transcripts import SessionStore


@dataclass
class SDKSessionInfo:
    """A session, as lists show it."""

    session_id: str
    summary: str
    last_modified: int
    """Milliseconds since 1970."""
    file_size: int | None = None
    """Bytes; None where there is no file."""
    custom_title: str | None = None
    first_prompt: str | None = None
    git_branch: str | None = None
    cwd: str | None = None
    tag: str | None = None
    created_at: int | None = None
    """Milliseconds since 1970."""


@dataclass
class SessionMessage:
    """A message of a transcript."""

    type: Literal["user", "assistant"]
    uuid: str
    session_id: str
    message: Any
    """The API's own message object."""
    parent_tool_use_id: str | None = None
    parent_agent_id: str | None = None


@dataclass
class ForkSessionResult:
    """The copy that a fork made."""

    session_id: str
