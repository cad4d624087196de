"""Defines `SessionStore`, the contract of a store for transcripts.

`outrider.session` mirrors what an agent writes into it; `_calls` calls it.
"""

from __future__ import annotations

from typing import Any, Final, NotRequired, Protocol, TypedDict


class SessionKey(TypedDict):
    """Names one transcript."""

    project_key: str
    """The project; `project_key()` makes it from a folder."""
    session_id: str
    subpath: NotRequired[str]
    """A part of the session, such as `subagents/agent-a1`; absent for the main transcript."""


class SessionListSubkeysKey(TypedDict):
    """Names a session, to ask for its parts."""

    project_key: str
    session_id: str


class SessionStoreEntry(TypedDict):
    """One line of a transcript: any JSON object. A store looks at these fields only."""

    type: str
    uuid: NotRequired[str]
    timestamp: NotRequired[str]


class SessionStoreListEntry(TypedDict):
    """A session that is in a store."""

    session_id: str
    mtime: int
    """When an entry was last added, in milliseconds since 1970."""


class SessionSummaryEntry(TypedDict):
    """What a store knows about a session without reading it."""

    session_id: str
    mtime: int
    """As in lists when this summary was made. If the list has a later time, the summary is out of date."""
    data: dict[str, object]
    """Any JSON object; the SDK makes and reads it."""


class SessionStore(Protocol):
    """Stores transcripts. Subclass it and implement `append` and `load`; the other methods are optional.

    * `load` returns entries as they were appended, in the same order. The order of the fields of an entry may
      change.
    * An entry with a `uuid` is stored once for each key, so appending the same batch again changes nothing.
      Entries without a `uuid` are always stored.
    * Keys are opaque strings. Each key is a separate transcript.
    * Changing an object that was passed in or returned does not change what is stored.

    Any exception counts as a failure of the store; the session continues. `outrider.testing.check_store`
    checks your own store against this contract.

    The methods from `append_batch` on make a store strict: nothing is stored twice, and there is one writer
    at a time. All stores that come with Outrider have them. They are optional.
    """

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Add entries to the end of a transcript, creating it if needed. An empty list does nothing."""
        ...

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """Return all entries of a transcript, or None if there is no such transcript."""
        ...

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """Return the sessions of a project that have a main transcript, in any order. Optional."""
        return _refuse("list_sessions")

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """Return summaries of the sessions of a project, for fast lists. Optional."""
        return _refuse("list_session_summaries")

    async def delete(self, key: SessionKey) -> None:
        """Delete a transcript; deleting the main transcript deletes all parts of the session. Optional.

        Deleting what does not exist is not an error.
        """
        _refuse("delete")

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """Return the subpaths of a session, in any order. Optional."""
        return _refuse("list_subkeys")

    async def append_batch(self, key: SessionKey, entries: list[SessionStoreEntry], batch: str) -> None:
        """As `append`, but do nothing if a batch with this id was appended to this transcript before, whether
        its entries have uuids or not. Optional."""
        _refuse("append_batch")

    async def list_projects(self) -> list[str]:
        """Return the keys of all projects that have a session, in any order. Optional."""
        return _refuse("list_projects")

    async def find_session(self, session_id: str) -> list[str]:
        """Return the keys of the projects that have a session with this id, in any order. Optional."""
        return _refuse("find_session")

    async def acquire_lease(self, key: SessionListSubkeysKey, holder: str, seconds: float) -> str:
        """Become the only writer of a session for some seconds, and return a token. The session need not
        exist yet. `holder` is for people to read. Optional.

        Raises `SessionBusy` if there is another writer, even one that uses this same object. While a lease
        runs, `append`, `append_batch` and `delete` through any other object raise `SessionBusy`; so they do
        for a writer whose own lease has expired and was taken over. Without a lease, anybody may write.
        """
        _refuse("acquire_lease")
        return ""

    async def renew_lease(self, key: SessionListSubkeysKey, token: str, seconds: float) -> None:
        """Extend a lease to some seconds from now. An expired lease that nobody else took is renewed. Raises
        `LeaseLost` if another writer took it, or if it was released. Optional."""
        _refuse("renew_lease")

    async def release_lease(self, key: SessionListSubkeysKey, token: str) -> None:
        """End a lease. It is not an error if it has ended already. Optional."""
        _refuse("release_lease")

    async def close(self) -> None:
        """Close connections and files. Later calls may connect again. Optional."""
        _refuse("close")


def _refuse(method: str) -> list[Any]:
    # A call: type checkers take a bare `raise` in a protocol for something that has to be written.
    raise NotImplementedError(f"This store has no `{method}`.")


_PASSED_ON: Final = frozenset(("list_sessions", "list_session_summaries", "delete", "list_subkeys"))
"""Methods that count even if only the object has them, since wrappers often forward unknown attributes. The
others have to be in the class, because a mock has every attribute."""


def offers(store: object, method: str) -> bool:
    """Whether a store implements an optional method, and does not just inherit it from `SessionStore`."""
    own = getattr(type(store), method, None)
    if own is None and method in _PASSED_ON:
        own = getattr(store, method, None)
    return callable(own) and own is not getattr(SessionStore, method)
