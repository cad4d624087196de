"""Reads and searches the sessions that Claude Code keeps on this machine. Everything here blocks."""

from __future__ import annotations

import os
import re
import stat
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, cast

import msgspec

from outrider.errors import OptionsError, SessionNotFound, TranscriptError
from outrider.transcripts._chain import History, conversation, is_chained, last_messages
from outrider.transcripts._describe import ARCHIVED, describe_data, fold_lines
from outrider.transcripts._disk.files import (
    METADATA,
    Ends,
    Found,
    SessionFile,
    agent_files,
    backwards,
    chunks,
    config_folder,
    is_same_project,
    lines,
    open_file,
    part_files,
    project_key,
    sessions_in,
    worktrees,
)
from outrider.transcripts._entries import TranscriptEntry, decode_line, finite, read_entry, to_object
from outrider.transcripts._values import (
    Bundle,
    MessageRange,
    SearchHit,
    SessionQuery,
    StoredSession,
    StrPath,
    check_count,
    checked_id,
)

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping

    from outrider.wire import JsonObject


_AROUND: Final = 40
"""So many characters of an excerpt are before what was found, and after it."""
_LONGEST: Final = 160
"""So many of what was found are in it."""

_TITLES: Final = {
    "custom-title": "customTitle",
    "ai-title": "aiTitle",
    "summary": "summary",
    "tag": "tag",
}
"""Where the words are in lines that are not messages."""

_PLAIN: Final = re.compile(r"[A-Za-z0-9 ,.;:!?()\[\]{}_=+*#@~^|$%-]+")
"""Characters that stand for themselves in JSON, but for those that someone chose to escape."""

_ESCAPE: Final = b"\\u"
_OTHER_LETTERS: Final = tuple(letter.encode() for letter in "\u017f\u212a\u0131\u0130")
"""Those that are `s`, `k` or `i` where capitals do not count. Lines with one of these, or with an escape,
cannot be passed over by their bytes."""


class Search:
    """Looks for a text, or for what matches a regular expression: in messages, calls of tools and their
    results, titles. Raises `OptionsError` for an invalid search."""

    def __init__(
        self, text: str, *, regex: bool = False, case_sensitive: bool = False, agents: bool = True
    ) -> None:
        if not text:
            raise OptionsError("there is no text to search for", hint="Give one.")
        flags = re.NOFLAG if case_sensitive else re.IGNORECASE
        try:
            self._pattern = re.compile(text if regex else re.escape(text), flags)
        except (re.error, RecursionError, OverflowError) as error:
            raise OptionsError(
                f"{text!r} is not a regular expression: {error}",
                hint="Correct it, or search for it as it is, with regex=False.",
            ) from error
        plain = [] if regex else _PLAIN.findall(text)
        self._bytes = max(plain, key=len, default="").encode()
        self._is_exact = case_sensitive
        if not case_sensitive:
            self._bytes = self._bytes.lower()
        self.with_agents = agents

    def run(
        self, sessions: Iterable[StoredSession], limit: int | None, is_over: Callable[[], bool]
    ) -> Iterator[SearchHit]:
        """The hits in sessions, no more than the limit, until it is over. What cannot be read is passed
        over."""
        if limit == 0:
            return
        count = 0
        for session in sessions:
            if is_over():
                return
            for hit in self._in_session(session, is_over):
                yield hit
                count += 1
                if count == limit:
                    return

    def _in_session(self, session: StoredSession, is_over: Callable[[], bool]) -> Iterator[SearchHit]:
        assert session.path is not None
        yield from self._in_file(session, session.path, None, is_over)
        if self.with_agents:
            file = SessionFile(session_id=session.id, project=session.project, path=session.path)
            for agent, path in agent_files(file).items():
                if is_over():
                    return
                yield from self._in_file(session, path, agent, is_over)

    def _in_file(
        self, session: StoredSession, path: Path, agent: str | None, is_over: Callable[[], bool]
    ) -> Iterator[SearchHit]:
        number = 0
        try:
            with open_file(path) as stream:
                for chunk in chunks(stream):
                    if is_over():
                        return
                    if not self.may_be_in(chunk):
                        number += chunk.count(b"\n")
                        continue
                    for line in chunk.removesuffix(b"\n").split(b"\n"):
                        number += 1
                        if self.may_be_in(line) and (hit := self.in_line(line)) is not None:
                            entry, excerpt = hit
                            yield SearchHit(
                                session=session,
                                entry=entry,
                                line_number=number,
                                excerpt=excerpt,
                                agent_id=agent,
                            )
        except OSError:
            return

    def may_be_in(self, data: bytes) -> bool:
        """Whether lines may hold it: a quick look at their bytes."""
        if not self._bytes or self._bytes in (data if self._is_exact else data.lower()) or _ESCAPE in data:
            return True
        if self._is_exact or data.isascii():
            return False
        # A single byte is found ten times as fast.
        return any(letter[:1] in data and letter in data for letter in _OTHER_LETTERS)

    def in_line(self, line: bytes) -> tuple[TranscriptEntry, str] | None:
        """The entry on a line, with the words around what was found in it."""
        entry = read_entry(line)
        excerpt = None if entry is None else self.excerpt(entry)
        return None if entry is None or excerpt is None else (entry, excerpt)

    def excerpt(self, entry: TranscriptEntry) -> str | None:
        """The words around what was found in an entry; None if it is not in it."""
        for text in words(entry):
            if found := self._pattern.search(text):
                return _excerpt(text, *found.span())
        return None


def words(entry: TranscriptEntry) -> Iterator[str]:
    """What people see of an entry: text, thoughts, what tools were given and what they said; titles."""
    if entry.is_meta:
        return
    if entry.type in _TITLES:
        if isinstance(title := entry.raw.get(_TITLES[entry.type]), str):
            yield title
    elif entry.type in ("user", "assistant"):
        message = entry.raw.get("message")
        if isinstance(message, dict):
            yield from _of_content(cast("JsonObject", message).get("content"))
    elif entry.type == "system":
        yield from _of_content(entry.raw.get("content"))


def _of_content(content: object) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for block in cast("list[object]", content):
            if isinstance(block, dict):
                yield from _of_block(cast("JsonObject", block))


def _of_block(block: JsonObject) -> Iterator[str]:
    for name in ("text", "thinking", "name"):
        if isinstance(value := block.get(name), str):
            yield value
    yield from _texts(block.get("input"))
    yield from _of_content(block.get("content"))


def _texts(value: object) -> Iterator[str]:
    """All texts in what a tool was given; its own names for them are not words."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in cast("JsonObject", value).values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in cast("list[object]", value):
            yield from _texts(item)


def _excerpt(text: str, start: int, end: int) -> str:
    shown = min(end, start + _LONGEST)
    first, last = max(0, start - _AROUND), min(len(text), shown + _AROUND)
    before, after = "…" if first else "", "…" if last < len(text) else ""
    return before + " ".join(text[first:last].split()) + after


# One file.


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
    """Whether the note beside a session says so; None without a note."""
    try:
        with open_file(folder / "archived.json", 0) as stream:
            return msgspec.json.decode(stream.read(1 << 16), type=_Note).archived
    except (OSError, ValueError):
        return None


def load_bundle(file: SessionFile) -> Bundle:
    """Everything of a session. Raises `OSError` if any of it cannot be read: half a session is useless."""
    entries = _bundled_entries(file.path)
    parts: dict[str, list[JsonObject]] = {}
    for subpath, path in part_files(file, strict=True):
        part = parts.setdefault(subpath, [])
        if path.name.endswith(METADATA):
            # Where the program puts it when it mirrors to a store.
            part[:0] = [{**metadata, "type": "agent_metadata"} for metadata in _objects(path)[-1:]]
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
    """The sessions in a configuration folder of Claude Code; by default, that of this environment.

    A folder that is not there, or may not be read, has no sessions. Methods that take the id of a session
    raise `OptionsError` if it can be none, `SessionNotFound` if there is no such session, and
    `TranscriptError` if it cannot be read.
    """

    def __init__(self, config: StrPath | None = None) -> None:
        self.config: Path | None = None
        """None: this user has no home folder that it could be in."""
        with suppress(RuntimeError):
            self.config = config_folder(os.environ) if config is None else Path(config)

    @property
    def projects(self) -> Path | None:
        """Where each project has a folder."""
        return None if self.config is None else self.config / "projects"

    # Which there are

    def list(self, query: SessionQuery | None = None) -> builtins.list[StoredSession]:
        """The sessions that are asked for, those that were used last first. No more files are opened than it
        takes to find them."""
        return [*self._paged(query or SessionQuery())]

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
                    status = Path(folder, name).stat()
                except (FileNotFoundError, NotADirectoryError):
                    continue
                except OSError as error:
                    refused = error
                    continue
                if not (stat.S_ISREG(status.st_mode) and status.st_size):
                    continue
                if best is None or status.st_mtime_ns > best.mtime_ns:
                    best = Found(status.st_mtime_ns, status.st_size, session_id, folder, name)
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
            found = Found.of(file)
            session = describe_facts(found, read_facts(found), in_lists=False)
        assert session is not None
        return session

    # What is said in one

    def read(
        self, session_id: str, project: StrPath | None = None, wanted: MessageRange | None = None
    ) -> builtins.list[TranscriptEntry]:
        """The messages of a conversation, first to last. For the `last` ones no more of the file is read than
        it takes. Where the conversation was compacted, a summary stands for what came before, unless the
        history is `full`. Damaged lines are left out; what follows one has no beginning."""
        wanted = wanted or MessageRange()
        is_agent, history = wanted.agent is not None, wanted.history
        file = self.find(session_id, project)
        path = file.path if wanted.agent is None else _agent_file(file, wanted.agent)
        with _reading(file):
            if wanted.last is not None:
                with open_file(path, 0) as stream:
                    return _read_last(stream, wanted.last, history, is_agent)
            with open_file(path, _BUFFER) as stream:
                return wanted.cut(conversation(_entries(stream), history=history, agent=is_agent))

    def agents(self, session_id: str, project: StrPath | None = None) -> builtins.list[str]:
        """The ids of the subagents of a session that have a transcript, in the order of their files."""
        return list(agent_files(self.find(session_id, project)))

    def search(
        self,
        search: Search,
        query: SessionQuery | None = None,
        *,
        limit: int | None = None,
        is_over: Callable[[], bool] = lambda: False,
    ) -> Iterator[SearchHit]:
        """The hits of a search. Sessions that were used last come first; `limit` is that of the hits.
        `is_over` is asked now and then: another thread may have given up waiting."""
        check_count("limit", limit)
        return search.run(self._paged(query or SessionQuery()), limit, is_over)

    def load(self, session_id: str, project: StrPath | None = None) -> Bundle:
        """Everything of a session: all entries, those of its subagents too. Damaged lines are left out."""
        file = self.find(session_id, project)
        with _reading(file):
            return load_bundle(file)

    # Looking

    def _paged(self, query: SessionQuery) -> Iterator[StoredSession]:
        stop = None if query.limit is None else query.offset + query.limit
        return islice((session for session, _ in self.facts(query)), query.offset, stop)

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
        """The folders to look in; where only a part of the name identifies it, with the key of the
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
    """Convert the errors of reading a session's files."""
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
