"""Finds what can be looked at: the sessions of this machine or of a store, single files, traces, and sessions
of this process.

A session that is open is a file; see `spool` for those that are none.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from shutil import rmtree
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from uuid import NAMESPACE_URL, uuid5
from weakref import finalize

import anyio
import msgspec

from outrider._threads import run_sync
from outrider.errors import OptionsError, OutriderError, SessionNotFound
from outrider.transcripts import Sessions
from outrider.transcripts._disk.files import METADATA, SessionFile, agent_files, open_file, sessions_in
from outrider.transcripts._disk.read import describe_facts, read_facts
from outrider.transcripts._entries import fields_of, read_json
from outrider.transcripts._library.disk import DiskLibrary
from outrider.transcripts._values import SessionQuery, StoredSession, checked_id
from outrider.view._sources.outline import Outline
from outrider.view._sources.spool import LiveSpool, StoreSpool, TraceSpool
from outrider.view._sources.transcript import TranscriptFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outrider.session import Session
    from outrider.transcripts import Hits

_MOST_OPEN: Final = 12
"""Sessions whose outline, or whose copy, is kept; then the one goes that was looked at longest ago."""
_COST: Final = b'"type":"cost-state"'
_TAIL: Final = 1 << 16

Agents: TypeAlias = "Mapping[str, Sequence[tuple[str, str]]]"


class Agent(msgspec.Struct, frozen=True):
    """A subagent of a session."""

    id: str
    path: Path
    kind: str
    description: str
    call: str
    """The id of the call that started it."""


class Project(msgspec.Struct, frozen=True):
    """A folder that sessions were started in."""

    key: str
    folder: str | None
    count: int
    last_used: datetime


async def _nothing() -> None:
    pass


class OpenSession:
    """A session that somebody looks at."""

    def __init__(
        self,
        file: SessionFile,
        info: StoredSession,
        *,
        refresh: Callable[[], Awaitable[None]] = _nothing,
        live: LiveSpool | None = None,
        describe: Callable[[], StoredSession] | None = None,
    ) -> None:
        self.file = file
        self.info = info
        self.refresh = refresh
        self.live = live
        self._describe = describe
        self._outlines: dict[str, Outline] = {}
        self._reading = anyio.Lock()

    @property
    def partial(self) -> str:
        """What is being said at this moment."""
        return "" if self.live is None else self.live.partial

    def look(self) -> StoredSession:
        """What is known of it now."""
        if self._describe is not None:
            self.info = self._describe()
        return self.info

    def agents(self) -> dict[str, Agent]:
        """Its subagents, by id. Blocks."""
        found: dict[str, Agent] = {}
        for id, path in agent_files(self.file).items():
            try:
                with open_file(path.with_suffix(METADATA)) as stream:
                    told = fields_of(read_json(stream.read(_TAIL).decode()))
            except (OSError, ValueError):
                told = {}
            texts = [str(told.get(name) or "") for name in ("agentType", "description", "toolUseId")]
            found[id] = Agent(id, path, *texts)
        return found

    def transcript(self, agent: str | None) -> TranscriptFile:
        """Its transcript, or a subagent's. Blocks. Raises `SessionNotFound`."""
        if agent is None:
            return TranscriptFile(self.file.path)
        path = agent_files(self.file).get(agent)
        if path is None:
            raise SessionNotFound(
                f"{self.file.session_id}, subagent {agent}", searched=[str(self.file.folder)]
            )
        return TranscriptFile(path)

    async def outline(self, agent: str | None) -> Outline:
        """What there is to say of all of it, read anew as far as it is new."""
        async with self._reading:
            path = (await run_sync(self.transcript, agent)).path
            outline = self._outlines.setdefault(agent or "", Outline(path))
            await run_sync(outline.read)
            return outline


def by_call(agents: Mapping[str, Agent]) -> Agents:
    """The subagents that each call started."""
    found: dict[str, list[tuple[str, str]]] = {}
    for agent in agents.values():
        if agent.call:
            says = ": ".join(filter(None, (agent.kind, agent.description)))
            found.setdefault(agent.call, []).append((agent.id, says))
    return found


class Library:
    """The sessions that can be looked at."""

    def __init__(self, sessions: Sessions | None) -> None:
        self.sessions = sessions
        self._folder: str | None = None
        self._removal: finalize[[str, bool], Library] | None = None
        self._open: OrderedDict[str, OpenSession] = OrderedDict()
        self._fixed: dict[str, OpenSession] = {}
        """Those that are not part of a store: given by themselves."""
        self._opening = anyio.Lock()

    @property
    def place(self) -> str:
        """Where they are, in words."""
        return "" if self.sessions is None else self.sessions._library.place  # pyright: ignore[reportPrivateUsage]

    @property
    def is_disk(self) -> bool:
        return self._disk is not None

    @property
    def _disk(self) -> DiskLibrary | None:
        library = None if self.sessions is None else self.sessions._library  # pyright: ignore[reportPrivateUsage]
        return library if isinstance(library, DiskLibrary) else None

    @property
    def single(self) -> str | None:
        """The only session there is, if no others were asked for."""
        return next(iter(self._fixed)) if self.sessions is None and len(self._fixed) == 1 else None

    async def close(self) -> None:
        """Remove the copies."""
        for each in self._fixed.values():
            if each.live is not None:
                each.live.stop()
        if self.sessions is not None:
            await self.sessions.close()
        if self._removal is not None:
            await run_sync(self._removal)
            self._folder = None

    def _spool_folder(self, name: str) -> Path:
        if self._folder is None:
            self._folder = mkdtemp(prefix="outrider-view-")
            self._removal = finalize(self, rmtree, self._folder, True)
        return Path(self._folder, name)

    # What was given by itself.

    def add_file(self, path: Path) -> None:
        """A transcript of Claude Code, anywhere."""
        path = path.absolute()
        id = _id_of(path)
        file = SessionFile(session_id=id, project=path.parent.name, path=path)

        def describe() -> StoredSession:
            return _described(file, path)

        self._fixed[id] = OpenSession(file, describe(), describe=describe)

    def add_trace(self, path: Path) -> None:
        """A trace. Raises what `read_trace` raises."""
        path = path.absolute()
        id = _id_of(path)
        spool = TraceSpool(path, self._spool_folder(id), id)
        spool.read()
        info = StoredSession(
            id=id, project="", title=path.name, cwd=spool.cwd, last_modified=_modified(path), path=path
        )
        self._fixed[id] = OpenSession(spool.spool.file, info, refresh=spool.refresh)

    def add_session(self, session: Session[Any]) -> None:
        """A session of this process, that is open. Raises `UsageError` if it is not."""
        id = session.id or str(uuid5(NAMESPACE_URL, f"session {id_of_object(session)}"))
        live = LiveSpool(session, self._spool_folder(id), id)

        def describe() -> StoredSession:
            return StoredSession(
                id=id,
                project="",
                title=f"Session {(live.real_id or id)[:8]}",
                cwd=live.cwd,
                last_modified=_modified(live.spool.file.path),
            )

        self._fixed[id] = OpenSession(live.spool.file, describe(), live=live, describe=describe)

    @property
    def given(self) -> list[StoredSession]:
        """Those that were given by themselves."""
        return [each.look() for each in self._fixed.values()]

    # Lists.

    async def list(self, query: SessionQuery) -> Sequence[StoredSession]:
        """As `Sessions.list`."""
        if self.sessions is None:
            return [info for info in self.given if query.matches(info)]
        return await self.sessions._library.list(query)  # pyright: ignore[reportPrivateUsage]

    def search(self, text: str, query: SessionQuery, limit: int) -> Hits | None:
        """As `Sessions.search`; None if there are none to search in."""
        if self.sessions is None:
            return None
        fields = {
            name: getattr(query, name)
            for name in ("project", "title", "tag", "branch", "since", "until", "archived", "worktrees")
        }
        return self.sessions.search(text, limit=limit, **fields)

    async def projects(self) -> Sequence[Project]:
        """The projects of this machine, those that were used last first; empty for a store."""
        disk = self._disk
        return [] if disk is None else await run_sync(_projects, disk)

    async def costs(self, infos: Sequence[StoredSession]) -> dict[str, float]:
        """What sessions have cost, as far as the ends of their files say so."""

        def read() -> dict[str, float]:
            return {
                info.id: cost
                for info in infos
                if info.path is not None and (cost := _cost(info.path)) is not None
            }

        return await run_sync(read)

    # One.

    async def open(self, session_id: str) -> OpenSession:
        """Raises `SessionNotFound`, `OptionsError` for what cannot be an id, and what a store raises."""
        if session_id in self._fixed:
            found = self._fixed[session_id]
            await found.refresh()
            return found
        if self.sessions is None:
            raise SessionNotFound(session_id, searched=[self.place or "what was given"])
        session_id = checked_id(session_id)
        async with self._opening:
            found = self._open.get(session_id) or await self._opened(session_id)
            self._open[session_id] = found
            self._open.move_to_end(session_id)
            while len(self._open) > _MOST_OPEN:
                self._open.popitem(last=False)
        try:
            if self.is_disk:
                found.info = await self.sessions.info(session_id)
                if found.info.path != found.file.path:
                    raise SessionNotFound(session_id, searched=[str(found.file.path)])
            await found.refresh()
        except OutriderError:
            self._open.pop(session_id, None)
            raise
        return found

    def resume_command(self, opened: OpenSession) -> str | None:
        """What continues a session, in a shell; None if nothing does."""
        info, path = opened.info, opened.info.path
        if path is not None and path.stem == info.id and path.parents[1].name == "projects":
            config = path.parents[2]
            where = "" if config == Path.home() / ".claude" else f"CLAUDE_CONFIG_DIR={quote(str(config))} "
            back = f"cd {quote(info.cwd)} && " if info.cwd else ""
            return f"{back}{where}claude --resume {info.id}"
        if path is None and opened.live is None and "://" in self.place:
            folder = f" --cwd {quote(info.cwd)}" if info.cwd else ""
            return f"outrider chat --resume {info.id} --store {quote(self.place)}{folder}"
        return None

    async def _opened(self, session_id: str) -> OpenSession:
        assert self.sessions is not None
        info = await self.sessions.info(session_id)
        if info.path is not None:
            file = SessionFile(session_id=info.id, project=info.project, path=info.path)
            return OpenSession(file, info)
        # A folder of its own each time: one that was closed may be read to its end.
        folder = self._spool_folder(f"{info.id}-{len(os.listdir(self._spool_folder('.')))}")  # noqa: PTH208
        spool = StoreSpool(self.sessions, info, folder)
        return OpenSession(spool.spool.file, info, refresh=spool.refresh)


def id_of_object(value: object) -> int:
    return id(value)


def _id_of(path: Path) -> str:
    """A session's id: that of its file, or one made from its path."""
    try:
        return checked_id(path.stem)
    except OptionsError:
        return str(uuid5(NAMESPACE_URL, str(path)))


def _modified(path: Path) -> datetime:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC)


def _described(file: SessionFile, path: Path) -> StoredSession:
    from outrider.transcripts._disk.files import Found

    found = Found.of(file)
    info = describe_facts(found, read_facts(found), in_lists=False)
    assert info is not None
    return info if info.title else msgspec.structs.replace(info, title=path.name)


def _projects(library: DiskLibrary) -> list[Project]:
    disk = library._disk  # pyright: ignore[reportPrivateUsage]
    if disk.projects is None or not disk.projects.is_dir():
        return []
    made: list[Project] = []
    for folder in disk.projects.iterdir():
        found = list(sessions_in(folder))
        if found:
            newest = max(found, key=lambda each: each.mtime_ns)
            made.append(Project(folder.name, _cwd(newest), len(found), newest.last_modified))
    return sorted(made, key=lambda project: project.last_used, reverse=True)


def _cwd(found: object) -> str | None:
    from outrider.transcripts._disk.files import Found

    assert isinstance(found, Found)
    try:
        cwd = read_facts(found).get("cwd")
    except OSError:
        return None
    return cwd if isinstance(cwd, str) else None


def _cost(path: Path) -> float | None:
    """What the last account at the end of a file says."""
    try:
        with open_file(path, 0) as file:
            file.seek(max(os.fstat(file.fileno()).st_size - _TAIL, 0))
            tail = file.read(_TAIL)
    except OSError:
        return None
    place = tail.rfind(_COST)
    if place < 0:
        return None
    start = tail.rfind(b"\n", 0, place) + 1
    try:
        told = fields_of(msgspec.json.decode(tail[start:].partition(b"\n")[0]))
    except (ValueError, RecursionError):
        return None
    cost = told.get("totalCostUSD")
    return float(cost) if isinstance(cost, int | float) and not isinstance(cost, bool) else None
