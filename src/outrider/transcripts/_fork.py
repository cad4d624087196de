"""Forks a session: copies the conversation up to a message, under new ids.

Does not read or write sessions: the libraries in `_library` do.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import uuid4

from outrider.errors import OptionsError, TranscriptError
from outrider.transcripts._chain import CHAINED
from outrider.transcripts._describe import describe_entries, title_entry
from outrider.transcripts._values import Bundle

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from outrider.wire import JsonObject

__all__ = ["agents_in", "forked", "title_of"]

_SAID: Final = ("message", "toolUseResult")
"""Fields of what was said: an id in there is part of the conversation, and stays."""

_PARENTS: Final = ("parentUuid", "logicalParentUuid", "sourceToolAssistantUUID")

_NOT_INHERITED: Final = ("teamName", "agentName", "slug")
"""Fields that tie a session to something that belongs to one session only: a team, a plan."""

_NEVER: Final = datetime.fromtimestamp(0, UTC)

_KEPT_METADATA: Final = "content-replacement"
"""Which results of tools were shortened: the conversation is not the same without it."""


def forked(source: Bundle, session_id: str, *, at: str | None = None, title: str | None = None) -> Bundle:
    """A session of the given id with the conversation of another: all of it, or up to the message `at` and
    with it. Of its subagents, those come along that were called there.

    Raises `OptionsError` if it has no such message, and `TranscriptError` if it has none at all.
    """
    kept = _kept(source, at)
    parts = _kept_parts(source, kept, whole=at is None)
    every = [*kept, *(entry for part in parts.values() for entry in part)]
    renaming = _Renaming(source, session_id, every)
    entries = [renaming.renamed(entry) for entry in kept if entry.get("type") != "progress"]
    replaced = [
        renaming.renamed(entry, marked=False)
        for entry in source.entries
        if entry.get("type") == _KEPT_METADATA
    ]
    name = title or f"{title_of(source) or 'Session'} (fork)"
    return Bundle(
        session_id=session_id,
        project=source.project,
        entries=[*entries, *replaced, title_entry(session_id, name)],
        parts={
            subpath: [
                renaming.renamed(entry, marked=False) for entry in part if entry.get("type") != "progress"
            ]
            for subpath, part in parts.items()
        },
    )


def title_of(source: Bundle) -> str:
    """What a session is called: its title, or the first thing that was asked; empty if there is nothing."""
    told = describe_entries(
        source.entries, session_id=source.session_id, project=source.project, last_modified=_NEVER
    )
    return "" if told is None else told.title


def _kept(source: Bundle, at: str | None) -> list[JsonObject]:
    """The entries of the conversation up to the message, in their order.

    All up to there, not its ancestors alone: calls that ran side by side are no ancestors of each other, nor
    is what was said before a compaction one of what came after it.
    """
    chained = [entry for entry in source.entries if _uuid(entry) and _text(entry, "type") in CHAINED]
    if not any(entry["type"] in ("user", "assistant") for entry in chained):
        raise TranscriptError(
            f"the session {source.session_id} has no messages",
            hint="Fork one that something was said in.",
            session_id=source.session_id,
        )
    if at is None:
        return chained
    found = [
        index for index, entry in enumerate(chained) if entry["uuid"] == at and not entry.get("isSidechain")
    ]
    # Of several of one id, progress is not the one that is meant.
    last = max(found, key=lambda index: (chained[index]["type"] != "progress", index), default=None)
    if last is None:
        raise OptionsError(
            f"the session {source.session_id} has no message {at!r} in its main conversation",
            hint="Give the `uuid` of an entry that `read` gives.",
            session_id=source.session_id,
        )
    return chained[: last + 1]


def _kept_parts(source: Bundle, kept: list[JsonObject], *, whole: bool) -> dict[str, list[JsonObject]]:
    if whole:
        return dict(source.parts)
    found: dict[str, list[JsonObject]] = {}
    calls, agents = _calls(kept), agents_in(kept)
    more = True
    while more:
        # A subagent may have subagents of its own.
        more = False
        for subpath, part in source.parts.items():
            if subpath not in found and _belongs(subpath, part, calls, agents):
                found[subpath] = part
                calls |= _calls(part)
                agents |= agents_in(part)
                more = True
    return {subpath: part for subpath, part in source.parts.items() if subpath in found}


def _belongs(subpath: str, part: list[JsonObject], calls: set[str], agents: set[str]) -> bool:
    call = [entry.get("toolUseId") for entry in part if entry.get("type") == "agent_metadata"]
    if call and isinstance(call[-1], str):
        return call[-1] in calls
    return subpath.rpartition("/")[2].removeprefix("agent-") in agents


def _calls(entries: Iterable[JsonObject]) -> set[str]:
    """The ids of the calls of tools in these."""
    return {
        block["id"]
        for entry in entries
        for block in _blocks(entry)
        if block.get("type") == "tool_use" and isinstance(block.get("id"), str)
    }


def agents_in(entries: Iterable[JsonObject]) -> set[str]:
    """The ids of the subagents whose results are in these."""
    results = (entry.get("toolUseResult") for entry in entries)
    found = (
        cast("Mapping[str, object]", result).get("agentId") for result in results if isinstance(result, dict)
    )
    return {agent for agent in found if isinstance(agent, str)}


def _blocks(entry: JsonObject) -> Iterator[dict[str, Any]]:
    message = entry.get("message")
    content = cast("Mapping[str, object]", message).get("content") if isinstance(message, dict) else None
    for block in cast("list[object]", content) if isinstance(content, list) else ():
        if isinstance(block, dict):
            yield cast("dict[str, Any]", block)


class _Renaming:
    """Gives entries their new ids, the same one wherever an old one is named."""

    def __init__(self, source: Bundle, session_id: str, entries: list[JsonObject]) -> None:
        self._source, self._session_id = source, session_id
        self._new = {uuid: str(uuid4()) for entry in entries if (uuid := _uuid(entry))}
        self._progress = {
            uuid: entry.get("parentUuid")
            for entry in entries
            if entry.get("type") == "progress" and (uuid := _uuid(entry))
        }

    def renamed(self, entry: JsonObject, *, marked: bool = True) -> JsonObject:
        made: JsonObject = {}
        for name, value in entry.items():
            if name in _PARENTS:
                made[name] = self._parent(value)
            elif name in _SAID:
                made[name] = value
            elif name not in _NOT_INHERITED:
                try:
                    made[name] = self._replaced(value)
                except RecursionError:
                    made[name] = value
        if "sessionId" in made:
            made["sessionId"] = self._session_id
        if marked:
            made["forkedFrom"] = {"sessionId": self._source.session_id, "messageUuid": entry["uuid"]}
        return made

    def _parent(self, uuid: object) -> str | None:
        """The nearest ancestor that is in the fork: progress is not."""
        seen: set[str] = set()
        while isinstance(uuid, str) and uuid not in seen:
            if uuid not in self._progress:
                return self._new.get(uuid)
            seen.add(uuid)
            uuid = self._progress[uuid]
        return None

    def _replaced(self, value: Any) -> Any:  # noqa: ANN401 - anything made of JSON types
        if isinstance(value, str):
            return self._new.get(value, value)
        if isinstance(value, list):
            return [self._replaced(item) for item in cast("list[object]", value)]
        if isinstance(value, dict):
            return {name: self._replaced(item) for name, item in cast("dict[str, object]", value).items()}
        return value


def _uuid(entry: JsonObject) -> str:
    return _text(entry, "uuid")


def _text(entry: JsonObject, name: str) -> str:
    value = entry.get(name)
    return value if isinstance(value, str) else ""
