"""Writes sessions that are no file on this disk into one: those of a store, a trace, or a running `Session`.

So there is one way to read a window, wherever a session is. The files are as Claude Code's, in a folder of
this process.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import anyio

from outrider._threads import run_sync
from outrider.errors import OptionsError
from outrider.session import observe
from outrider.transcripts._disk.files import SessionFile, check_subpath
from outrider.transcripts._entries import fields_of, to_line
from outrider.transports import read_trace
from outrider.view._sources.transcript import blocks_of, is_call
from outrider.wire import StreamEvent

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from outrider.session import Session
    from outrider.transcripts import Sessions, StoredSession
    from outrider.transports import Recording
    from outrider.wire import JsonObject, Message

_PAUSE: Final = 1.5
"""Seconds between two looks at a store."""
_LONGEST_PARTIAL: Final = 20_000


class Spool:
    """The files of one session, which are only ever appended to."""

    def __init__(self, folder: Path, session_id: str) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.file = SessionFile(
            session_id=session_id, project=folder.name, path=folder / f"{session_id}.jsonl"
        )
        self.file.path.touch(mode=0o600)
        self._counts: dict[str, int] = {}

    def take(self, entries: Sequence[JsonObject], subpath: str = "") -> None:
        """Write those of all entries that are not written yet."""
        known = self._counts.get(subpath, 0)
        self.add(entries[known:], subpath)

    def add(self, entries: Iterable[JsonObject], subpath: str = "") -> None:
        """Write more entries."""
        if subpath:
            try:
                check_subpath(subpath)
            except OptionsError:
                # A store may hold anything: no name in it leads out of the folder.
                return
        path = self.file.folder.joinpath(f"{subpath}.jsonl") if subpath else self.file.path
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        written: list[str] = []
        for entry in entries:
            self._counts[subpath] = self._counts.get(subpath, 0) + 1
            if entry.get("type") == "agent_metadata":
                path.with_suffix(".meta.json").write_text(to_line(entry), encoding="utf-8")
            else:
                written.append(f"{to_line(entry)}\n")
        with path.open("a", encoding="utf-8") as file:
            file.write("".join(written))


# Stores.


class StoreSpool:
    """A session of a store."""

    def __init__(self, sessions: Sessions, info: StoredSession, folder: Path) -> None:
        self._sessions = sessions
        self._id = info.id
        self.spool = Spool(folder, info.id)
        self._seen: datetime | None = None
        self._looked_at = 0.0
        self._lock = anyio.Lock()

    async def refresh(self) -> None:
        """Write what is new in the store; looks there at most every second or so."""
        async with self._lock:
            if monotonic() - self._looked_at < _PAUSE:
                return
            info = await self._sessions.info(self._id)
            if info.last_modified != self._seen:
                bundle = await self._sessions._library.load(self._id, None)  # pyright: ignore[reportPrivateUsage]
                await run_sync(self._write, bundle.entries, bundle.parts)
                self._seen = info.last_modified
            self._looked_at = monotonic()

    def _write(self, entries: list[JsonObject], parts: dict[str, list[JsonObject]]) -> None:
        for subpath, part in parts.items():
            self.spool.take(part, subpath)
        self.spool.take(entries)


# Frames.

_RENAMED: Final = {"tool_use_result": "toolUseResult", "session_id": "sessionId", "isSynthetic": "isMeta"}


def entries_of(frame: JsonObject, when: datetime) -> tuple[str, list[JsonObject]]:
    """The entries for a frame of a conversation, and the call whose subagent said it, if one did."""
    kind = frame.get("type")
    if kind not in ("user", "assistant", "system", "result"):
        return "", []
    entry: JsonObject = {_RENAMED.get(name, name): value for name, value in frame.items()}
    entry.setdefault("timestamp", when.isoformat())
    agent = frame.get("parent_tool_use_id")
    made = [entry]
    if kind == "result" and isinstance(cost := frame.get("total_cost_usd"), int | float):
        made.append({"type": "cost-state", "totalCostUSD": cost})
    return agent if isinstance(agent, str) else "", made


class FrameSpool:
    """A session of which only the frames are known."""

    def __init__(self, folder: Path, session_id: str) -> None:
        self.spool = Spool(folder, session_id)
        self.cwd: str | None = None
        self.real_id: str | None = None
        self._agents: set[str] = set()
        self._tasks: dict[str, JsonObject] = {}
        """What subagents were given, by the ids of the calls, until they say something."""

    def add(self, frame: JsonObject, when: datetime) -> None:
        agent, made = entries_of(frame, when)
        if frame.get("subtype") == "init":
            self.cwd = str(frame.get("cwd") or "") or self.cwd
            self.real_id = str(frame.get("session_id") or "") or self.real_id
        for block in blocks_of(fields_of(frame.get("message")).get("content")):
            if is_call(block) and block.get("name") in ("Task", "Agent"):
                self._tasks[str(block.get("id"))] = fields_of(block.get("input"))
        if agent and agent not in self._agents:
            self._agents.add(agent)
            told = self._tasks.pop(agent, {})
            known: JsonObject = {
                "description": told.get("description"),
                "agentType": told.get("subagent_type"),
            }
            self.spool.add([{"type": "agent_metadata", "toolUseId": agent, **known}], _subpath(agent))
        if made:
            self.spool.add(made, _subpath(agent) if agent else "")


def _subpath(call: str) -> str:
    safe = "".join(sign if sign.isalnum() or sign in "-_" else "_" for sign in call)
    return f"subagents/agent-{safe[:80]}"


class TraceSpool(FrameSpool):
    """A trace, a cassette or a recording, which may be growing."""

    def __init__(self, path: Path, folder: Path, session_id: str) -> None:
        super().__init__(folder, session_id)
        self.path = path
        self._read = 0
        self._size = -1

    async def refresh(self) -> None:
        size = (await run_sync(self.path.stat)).st_size
        if size != self._size:
            self._size = size
            await run_sync(self.read)

    def read(self) -> None:
        """Write what is new in the trace. Raises what `read_trace` raises."""
        recording = read_trace(self.path)
        began = _began(recording, self.path)
        for record in recording.records[self._read :]:
            if record.frame is not None:
                self.add(record.frame, began + timedelta(seconds=record.time))
        self._read = len(recording.records)


def _began(recording: Recording, path: Path) -> datetime:
    for name in ("at", "started_at", "made_at", "time"):
        told = recording.header.get(name)
        try:
            if isinstance(told, str):
                return datetime.fromisoformat(told)
            if isinstance(told, int | float):
                return datetime.fromtimestamp(told, UTC)
        except (ValueError, OverflowError, OSError):
            continue
    return datetime.fromtimestamp(path.stat().st_mtime, UTC)


class LiveSpool(FrameSpool):
    """A `Session` of this process, as it is heard from now on; with what is being said at the moment."""

    def __init__(self, session: Session[Any], folder: Path, session_id: str) -> None:
        super().__init__(folder, session_id)
        self._session = session
        self.partial = ""
        self.is_over = False
        self._observed = observe(session, self)
        session._conversation.prompt_listeners.append(self._prompted)  # pyright: ignore[reportPrivateUsage]

    async def refresh(self) -> None:
        """It is told of what is new."""

    def begins(self) -> None:
        pass

    def _prompted(self, frame: JsonObject) -> None:
        self.add(frame, datetime.now(UTC))

    def received(self, messages: Sequence[Message]) -> None:
        now = datetime.now(UTC)
        for message in messages:
            if isinstance(message, StreamEvent):
                if not message.parent_tool_use_id:
                    self.partial = (self.partial + message.text)[-_LONGEST_PARTIAL:]
            else:
                raw = message.raw
                self.partial = "" if raw.get("type") in ("assistant", "result") else self.partial
                self.add(raw, now)

    def ended(self) -> None:
        self.partial, self.is_over = "", True

    def stop(self) -> None:
        """Stop listening."""
        self._observed.stop()
        listeners = self._session._conversation.prompt_listeners  # pyright: ignore[reportPrivateUsage]
        if self._prompted in listeners:
            listeners.remove(self._prompted)
