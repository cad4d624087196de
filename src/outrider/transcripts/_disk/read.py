"""Reads the sessions that Claude Code keeps on this machine: `Disk`.

Does not change them: `write` does. Everything here blocks: call it in a thread.
"""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, cast

import msgspec

from outrider.errors import SessionNotFound, TranscriptError
from outrider.transcripts._chain import History, conversation, is_chained, last_messages
from outrider.transcripts._describe import ARCHIVED, describe_data, fold_lines
from outrider.transcripts._disk.files import (
    METADATA,
    Ends,
    Found,
    SessionFile,
    agent_files,
    backwards,
    config_folder,
    is_same_project,
    lines,
    open_file,
    part_files,
    project_key,
    sessions_in,
    worktrees,
)
from outrider.transcripts._disk.search import Search
from outrider.transcripts._entries import TranscriptEntry, decode_line, finite, read_entry, to_object
from outrider.transcripts._values import (
    Bundle,
    SearchHit,
    SessionQuery,
    StoredSession,
    StrPath,
    check_count,
    check_range,
    checked_id,
)

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable, Generator, Iterator, Mapping

    from outrider.wire import JsonObject

__all__ = ["Disk", "describe_facts", "describe_file", "load_bundle", "read_facts"]


# One file.


def describe_file(found: Found, *, in_lists: bool = True) -> StoredSession | None:
    """A session, from the ends of its file; None if it has no place in lists. Raises `OSError`."""
    return describe_facts(found, read_facts(found), in_lists=in_lists)


def read_facts(found: Found) -> dict[str, object]:
    """What the ends of a session's file say of it, as in the summaries of stores. Raises `OSError`."""
    file = found.file
    data: dict[str, object] = {}
    with open_file(file.path, 0) as stream:
        ends = Ends(stream)
        fold_lines(data, ends.head)
        if not ("first_prompt" in data and "cwd" in data and "created_at" in data):
            fold_lines(data, [ends.next_line()])
        fold_lines(data, ends.tail())
    is_archived = _is_archived(file.folder)
    if is_archived is not None:
        data[ARCHIVED] = is_archived
    return data


def describe_facts(
    found: Found, data: Mapping[str, object], *, in_lists: bool = True
) -> StoredSession | None:
    """The session of which this is known; None if it has no place in lists."""
    file = found.file
    return describe_data(
        data,
        session_id=file.session_id,
        project=file.project,
        last_modified=found.last_modified,
        size=found.size,
        path=file.path,
        in_lists=in_lists,
    )


class _Note(msgspec.Struct):
    archived: bool


def _is_archived(folder: Path) -> bool | None:
    """What the note beside a session says; None if there is none."""
    try:
        with open_file(folder / "archived.json", 0) as stream:
            return msgspec.json.decode(stream.read(1 << 16), type=_Note).archived
    except (OSError, ValueError):
        return None


def load_bundle(file: SessionFile) -> Bundle:
    """Everything of a session. Raises `OSError` if any of it cannot be read: a part of a session is none."""
    entries = _bundled_entries(file.path)
    parts: dict[str, list[JsonObject]] = {}
    for subpath, path in part_files(file, strict=True):
        part = parts.setdefault(subpath, [])
        if path.name.endswith(METADATA):
            # Where the program puts it when it tells a store of it.
            part[:0] = [{"type": "agent_metadata", **told} for told in _objects(path)[-1:]]
        else:
            part += _bundled_entries(path)
    return Bundle(
        session_id=file.session_id,
        project=file.project,
        entries=entries,
        parts={subpath: part for subpath, part in parts.items() if part},
    )


def _bundled_entries(path: Path) -> list[JsonObject]:
    """The entries of a transcript: an object without a type is none, and no store would take it."""
    return [entry for entry in _objects(path) if isinstance(entry.get("type"), str)]


def _objects(path: Path) -> list[JsonObject]:
    with open_file(path) as stream:
        return [found for line in lines(stream) if (found := _object(line)) is not None]


def _object(line: bytes) -> JsonObject | None:
    try:
        return to_object(line.decode())
    except ValueError:
        pass
    try:
        return cast("JsonObject", finite(decode_line(line)))
    except ValueError:
        return None


_BUFFER: Final = 1 << 20


# All sessions.


class Disk:
    """The sessions in a configuration folder of the agent's program; by default, that of this environment.

    A folder that is not there, or may not be read, has no sessions. Methods that take the id of a session
    raise `OptionsError` if it can be none, `SessionNotFound` if there is no such session, and
    `TranscriptError` if it cannot be read.
    """

    def __init__(self, config: Path | None = None) -> None:
        if config is None:
            try:
                config = config_folder(os.environ)
            except RuntimeError:
                # A user without a home.
                config = None
        self.config: Path | None = config
        """None: there is no home folder that it could be in."""

    @property
    def projects(self) -> Path | None:
        """Where each project has a folder."""
        return None if self.config is None else self.config / "projects"

    # Which there are

    def list(self, query: SessionQuery | None = None) -> builtins.list[StoredSession]:
        """The sessions that are asked for, those that were used last first. No more files are opened than it
        takes to find them."""
        query = query or SessionQuery()
        if query.limit == 0:
            return []
        wanted = None if query.limit is None else query.offset + query.limit
        found: builtins.list[StoredSession] = []
        for session in self._listed(query):
            found.append(session)
            if len(found) == wanted:
                break
        return query.page(found)

    def find(self, session_id: str, project: StrPath | None = None) -> SessionFile:
        """Where a session is; if several projects have it, the one that was used last."""
        session_id = checked_id(session_id)
        best: Found | None = None
        refused: OSError | None = None
        try:
            places = self._places(project, with_worktrees=True, strict=True)
        except PermissionError as error:
            raise _unreadable(error, session_id) from error
        for folder in places:
            for name in (f"{session_id}.jsonl", f"{session_id.upper()}.jsonl"):
                try:
                    told = Path(folder, name).stat()
                except (FileNotFoundError, NotADirectoryError):
                    continue
                except OSError as error:
                    refused = error
                    continue
                if not (stat.S_ISREG(told.st_mode) and told.st_size):
                    continue
                if best is None or told.st_mtime_ns > best.mtime_ns:
                    best = Found(told.st_mtime_ns, told.st_size, session_id, folder, name)
        if best is not None:
            return best.file
        if refused is not None:
            raise _unreadable(refused, session_id)
        searched = list(places) or [str(self.projects or "no home folder")]
        raise SessionNotFound(session_id, searched=searched)

    def info(self, session_id: str, project: StrPath | None = None) -> StoredSession:
        """What lists say of a session; one that lists leave out, as nothing was said in it, has no title."""
        file = self.find(session_id, project)
        with _reading(file):
            session = describe_file(Found.of(file), in_lists=False)
        assert session is not None
        return session

    # What is said in one

    def read(
        self,
        session_id: str,
        project: StrPath | None = None,
        *,
        agent: str | None = None,
        last: int | None = None,
        limit: int | None = None,
        offset: int = 0,
        history: History = "compacted",
    ) -> builtins.list[TranscriptEntry]:
        """The messages of a conversation, first to last; of a subagent's if there is an `agent`.

        `last` gives so many from its end, and reads no more of the file than it takes; `limit` and `offset`
        count from its beginning. Where the conversation was compacted, a summary stands for what came before;
        `history="full"` gives that too. Lines that are damaged are left out; what follows one has no
        beginning.
        """
        check_range(last, limit, offset, history)
        file = self.find(session_id, project)
        path = file.path if agent is None else _agent_file(file, agent)
        with _reading(file):
            if last is not None:
                with open_file(path, 0) as stream:
                    return _read_last(stream, last, history, agent is not None)
            with open_file(path, _BUFFER) as stream:
                found = conversation(_entries(stream), history=history, agent=agent is not None)
        return found[offset : None if limit is None else offset + limit]

    def agents(self, session_id: str, project: StrPath | None = None) -> builtins.list[str]:
        """The ids of the subagents of a session that have a transcript."""
        return sorted(agent_files(self.find(session_id, project)))

    def search(
        self,
        text: str,
        query: SessionQuery | None = None,
        *,
        regex: bool = False,
        case_sensitive: bool = False,
        agents: bool = True,
        limit: int | None = None,
        is_over: Callable[[], bool] = lambda: False,
    ) -> Iterator[SearchHit]:
        """Where a text, or what matches a regular expression, is said: in messages, calls of tools and their
        results, titles. Sessions that were used last come first; `limit` is that of the hits. `is_over` is
        asked now and then: another thread may have given up waiting.

        Raises `OptionsError` at once for what cannot be searched for.
        """
        search = Search(text, regex=regex, case_sensitive=case_sensitive, agents=agents)
        check_count("limit", limit)
        query = query or SessionQuery()
        return search.run(self._paged(query), limit, is_over)

    def load(self, session_id: str, project: StrPath | None = None) -> Bundle:
        """Everything of a session: all entries, those of its subagents too. Damaged lines are left out."""
        file = self.find(session_id, project)
        with _reading(file):
            return load_bundle(file)

    # Looking

    def _paged(self, query: SessionQuery) -> Iterator[StoredSession]:
        for number, session in enumerate(self._listed(query)):
            if query.limit is not None and number >= query.offset + query.limit:
                return
            if number >= query.offset:
                yield session

    def _listed(self, query: SessionQuery) -> Iterator[StoredSession]:
        return (session for session, _ in self.facts(query))

    def facts(self, query: SessionQuery) -> Iterator[tuple[StoredSession, dict[str, object]]]:
        """All that match, newest first, each read when it is its turn; with all that its file says of it, as
        in the summaries of stores. Limits are not looked at."""
        places = self._places(query.project, with_worktrees=query.worktrees)
        found = [session for folder in places for session in sessions_in(folder)]
        found.sort(key=lambda session: (session.mtime_ns, session.session_id), reverse=True)
        seen: set[str] = set()
        for each in found:
            if each.session_id in seen or not query.is_in_time(each.last_modified):
                continue
            try:
                data = read_facts(each)
            except OSError:
                continue
            session = describe_facts(each, data)
            if session is None or not _is_of(session, places[each.folder]):
                continue
            seen.add(each.session_id)
            if query.matches(session):
                yield session, data

    def _places(
        self, project: StrPath | None, *, with_worktrees: bool, strict: bool = False
    ) -> dict[str, str | None]:
        """The folders to look in; where only a part of the name tells that it is the one, with the key of the
        project. Raises `PermissionError` if `strict` and they cannot be known."""
        if self.projects is None:
            return {}
        if project is None:
            return dict.fromkeys(self._folders(strict=strict))
        keys = {project_key(project): None}
        if with_worktrees:
            keys |= dict.fromkeys(project_key(folder) for folder in worktrees(project))
        found: dict[str, str | None] = {str(self.projects / key): None for key in keys}
        if any(is_same_project(f"{key}-", key) for key in keys):
            for folder in self._folders():
                name = Path(folder).name
                for key in keys:
                    if name not in keys and is_same_project(name, key):
                        found[folder] = key
        return found

    def _folders(self, *, strict: bool = False) -> Iterator[str]:
        try:
            entries = os.scandir(self.projects)
        except PermissionError:
            if strict:
                raise
            return
        except OSError:
            return
        # All at once, so that a caller who stops halfway leaves nothing open.
        with entries:
            listed = list(entries)
        for entry in listed:
            try:
                if entry.is_dir():
                    yield entry.path
            except OSError:
                continue


def _is_of(session: StoredSession, key: str | None) -> bool:
    """Whether a session is of the project with a key; of no other if None."""
    return key is None or session.cwd is None or project_key(session.cwd) == key


def _entries(stream: BinaryIO) -> Iterator[TranscriptEntry]:
    for line in lines(stream):
        entry = read_entry(line)
        if entry is not None:
            yield entry


def _read_last(stream: BinaryIO, count: int, history: History, agent: bool) -> builtins.list[TranscriptEntry]:
    known: builtins.list[TranscriptEntry] = []
    for some in backwards(stream):
        read = (read_entry(line) for line in some)
        known[:0] = [entry for entry in read if entry is not None and is_chained(entry)]
        found = last_messages(known, count, history=history, agent=agent)
        if found is not None:
            return found
    return conversation(known, history=history, agent=agent)[-count:]


def _agent_file(file: SessionFile, agent: str) -> Path:
    files = agent_files(file)
    if agent not in files:
        known = ", ".join(sorted(files)) or "it has none"
        raise TranscriptError(
            f"the session has no subagent {agent!r}",
            hint=f"Its subagents: {known}.",
            session_id=file.session_id,
        )
    return files[agent]


@contextmanager
def _reading(file: SessionFile) -> Generator[None]:
    """Say what went wrong with the files of a session."""
    try:
        yield
    except FileNotFoundError:
        raise SessionNotFound(file.session_id, searched=[str(file.path.parent)]) from None
    except OSError as error:
        raise _unreadable(error, file.session_id) from error


def _unreadable(error: OSError, session_id: str) -> TranscriptError:
    return TranscriptError(
        f"{error.filename or 'the transcript'} cannot be read: {error.strerror or error}",
        hint="Let this user read it, and the folders that it is in.",
        session_id=session_id,
    )
