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
    """One line of a transcript: any JSON object. Only these fields mean something to a store."""

    type: str
    uuid: NotRequired[str]
    timestamp: NotRequired[str]


class SessionStoreListEntry(TypedDict):
    """A session that is in a store."""

    session_id: str
    mtime: int
    """When it last got an entry, in milliseconds since 1970."""


class SessionSummaryEntry(TypedDict):
    """What a store knows about a session without reading it."""

    session_id: str
    mtime: int
    """As listed, when this summary was made; an older one is out of date."""
    data: dict[str, object]
    """Made and read by the SDK; a JSON object to the store."""


class SessionStore(Protocol):
    """Keeps transcripts. Derive from it: `append` and `load` have to be written, the others are optional.

    * Entries come back as they were given, in the order in which they were appended; the order of the fields
      of an entry may change.
    * An entry that has a `uuid` is kept once for each key: a batch that is sent again, because its answer got
      lost, changes nothing. Entries without one are always kept.
    * Keys are opaque text, and each is a transcript of its own.
    * What is given out and what was given can be changed by others without effect.

    Any exception is a failure; the session goes on. `outrider.testing.check_store` checks a store of yours.

    The methods from `append_batch` on make a store strict: nothing is kept twice, one writer at a time. All
    stores that come with Outrider have them; without them the rest works.
    """

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Add entries to the end of a transcript, which is made if it is not there. No entries: nothing."""
        ...

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """All entries of a transcript; None if it is not there."""
        ...

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """The sessions of a project that have a main transcript, in any order. Optional."""
        return _refuse("list_sessions")

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """What is known about the sessions of a project, for fast lists. Optional."""
        return _refuse("list_session_summaries")

    async def delete(self, key: SessionKey) -> None:
        """Remove a transcript, and with the main one all parts of the session. Optional.

        What is not there is no error.
        """
        _refuse("delete")

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """The subpaths of a session, in any order. Optional."""
        return _refuse("list_subkeys")

    async def append_batch(self, key: SessionKey, entries: list[SessionStoreEntry], batch: str) -> None:
        """As `append`, for a batch that may have come before: if one with this id was added to this
        transcript, nothing is added, whether its entries have uuids or not. Optional."""
        _refuse("append_batch")

    async def list_projects(self) -> list[str]:
        """The keys of all projects that have a session, in any order. Optional."""
        return _refuse("list_projects")

    async def find_session(self, session_id: str) -> list[str]:
        """The keys of the projects that have a session of this id, in any order. Optional."""
        return _refuse("find_session")

    async def acquire_lease(self, key: SessionListSubkeysKey, holder: str, seconds: float) -> str:
        """Become the only writer of a session, which need not be there yet, for so long; gives a token.
        `holder` is for people to read. Optional.

        Raises `SessionBusy` if there is another writer, be it by this same object. While a lease runs, all
        that would write to the session through another object (`append`, `append_batch`, `delete`) raises
        `SessionBusy`; so does a writer whose own has run out if somebody else has it now. With no lease,
        anybody may write.
        """
        _refuse("acquire_lease")
        return ""

    async def renew_lease(self, key: SessionListSubkeysKey, token: str, seconds: float) -> None:
        """Let a lease run for so long from now on. One that has run out, and that nobody else took, is had
        again. Raises `LeaseLost` if somebody did, or if it was released. Optional."""
        _refuse("renew_lease")

    async def release_lease(self, key: SessionListSubkeysKey, token: str) -> None:
        """End a lease. One that is not there any more is no error. Optional."""
        _refuse("release_lease")

    async def close(self) -> None:
        """Let go of connections and files. What is asked afterwards may connect again. Optional."""
        _refuse("close")


def _refuse(method: str) -> list[Any]:
    # A call: type checkers take a bare `raise` in a protocol for something that has to be written.
    raise NotImplementedError(f"This store has no `{method}`.")


_PASSED_ON: Final = frozenset(("list_sessions", "list_session_summaries", "delete", "list_subkeys"))
"""What counts even if only the object has it: wrappers pass on all that they do not know. The others have to
be in the class, as of a mock anything at all can be asked."""


def offers(store: object, method: str) -> bool:
    """Whether a store has one of the optional methods, and not only inherits the contract's."""
    own = getattr(type(store), method, None)
    if own is None and method in _PASSED_ON:
        own = getattr(store, method, None)
    return callable(own) and own is not getattr(SessionStore, method)
