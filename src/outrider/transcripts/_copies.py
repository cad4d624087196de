"""Makes a session of another one: forks and renames it, reads an export or a transcript, compares two copies.

Does not read or write sessions: the libraries in `_library` do.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from json import JSONDecodeError
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from outrider.errors import OptionsError, TranscriptDamaged, TranscriptError
from outrider.transcripts._chain import CHAINED
from outrider.transcripts._describe import ARCHIVED, title_entry, title_of
from outrider.transcripts._disk.files import (
    METADATA,
    SessionFile,
    check_subpath,
    open_file,
    part_files,
    project_key,
)
from outrider.transcripts._entries import fields_of, from_line, read_json, to_object
from outrider.transcripts._export.turns import FORMAT, VERSION
from outrider.transcripts._values import Bundle, checked_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from outrider.transcripts._values import StrPath
    from outrider.wire import JsonObject

_SAID: Final = ("message", "toolUseResult")
"""Fields of what was said: an id in there is part of the conversation, and stays."""

_PARENTS: Final = ("parentUuid", "logicalParentUuid", "sourceToolAssistantUUID")

_NOT_INHERITED: Final = ("teamName", "agentName", "slug")
"""Fields that tie a session to something that belongs to one session only: a team, a plan."""

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


def _kept(source: Bundle, at: str | None) -> list[JsonObject]:
    """The entries of the conversation up to the message, in their order.

    All up to there, not its ancestors alone: calls that ran side by side are not ancestors of each other, nor
    is what was said before a compaction one of what came after it.
    """
    chained = [entry for entry in source.entries if _uuid(entry) and _text(entry, "type") in CHAINED]
    if not any(entry["type"] in ("user", "assistant") for entry in chained):
        raise TranscriptError(
            f"the session {source.session_id} has no messages",
            hint="Fork a session that has messages.",
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


_TEXT: Final = "the text"
"""What a source is called that has no path."""

_EXPORT: Final = re.compile(rf'"format"\s*:\s*"{FORMAT}"')

_EXAMPLE: Final = "Give an export in JSON, or a .jsonl transcript of Claude Code."


def imported(source: StrPath) -> Bundle:
    """The session in a file, or in a text: a `str` that begins with a brace or has several lines.

    Raises `OptionsError` for what is not a session, and `TranscriptDamaged`, with the number of the line, for
    one that cannot be read. Of a last line that was not written to its end nothing is taken over. Where it
    is not told, the id is empty, and so is the project.
    """
    if isinstance(source, str) and (source.lstrip("\ufeff \t\r\n").startswith("{") or "\n" in source):
        return _from_text(source.removeprefix("\ufeff"), _TEXT)
    if not isinstance(cast("object", source), (str, os.PathLike)) or not os.fspath(source):
        raise OptionsError(f"a session cannot be imported from {source!r}", hint=_EXAMPLE)
    path = Path(source)
    bundle = _from_text(_text_of(path), str(path))
    return _with_parts(bundle, path) if path.suffix == ".jsonl" else bundle


def renamed(bundle: Bundle, session_id: str) -> Bundle:
    """The same session under another id."""

    def all_renamed(entries: list[JsonObject]) -> list[JsonObject]:
        return [
            {**entry, "sessionId": session_id} if "sessionId" in entry else dict(entry) for entry in entries
        ]

    parts = {subpath: all_renamed(part) for subpath, part in bundle.parts.items()}
    return replace(bundle, session_id=session_id, entries=all_renamed(bundle.entries), parts=parts)


def _text_of(path: Path, *, is_part: bool = False) -> str:
    """What a file says. That of a session may be a pipe, one that lies beside it may not: no one named it."""
    try:
        with open_file(path) if is_part else path.open("rb") as stream:
            data = stream.read()
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise TranscriptDamaged(path, line, message="it is not UTF-8") from error


def _unreadable(path: StrPath, error: Exception) -> OptionsError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return OptionsError(f"{os.fspath(path)!r} cannot be read: {reason}", hint=_EXAMPLE)


def _from_text(text: str, name: str) -> Bundle:
    first = text.lstrip()[:200]
    if _EXPORT.search(first) or first.startswith(("{\n", "{\r\n", "[")):
        return _from_export(text, name)
    return _from_lines(text, name)


# JSON exports.


def _from_export(text: str, name: str) -> Bundle:
    try:
        value = read_json(text)
    except JSONDecodeError as error:
        raise TranscriptDamaged(name, error.lineno, message=error.msg) from error
    except ValueError as error:
        raise TranscriptDamaged(name, message=str(error)) from error
    fields = fields_of(value)
    if fields.get("format") != FORMAT:
        raise OptionsError(f"{name} is JSON, but not a session", hint=_EXAMPLE)
    if fields.get("version") != VERSION or isinstance(fields["version"], bool):
        raise OptionsError(
            f"{name} has the version {fields.get('version')!r}, and this Outrider reads {VERSION}",
            hint="Update Outrider.",
        )
    try:
        msgspec.convert(fields, _Export)
    except msgspec.ValidationError as error:
        raise OptionsError(f"{name} is not a session: {error}", hint=_EXAMPLE) from None
    return Bundle(
        session_id=checked_id(fields["session_id"]),
        project=fields["project"],
        entries=fields["entries"],
        parts={check_subpath(subpath): part for subpath, part in fields["parts"].items()},
    )


class _Typed(msgspec.Struct):
    type: str


class _Export(msgspec.Struct):
    """What has to be in an export."""

    session_id: str
    project: str
    entries: list[_Typed]
    parts: dict[str, list[_Typed]]


# Transcripts of Claude Code.


def _from_lines(text: str, name: str) -> Bundle:
    entries = _lines(text, name)
    if not any(entry["type"] in ("user", "assistant") and entry.get("uuid") for entry in entries):
        raise OptionsError(f"{name} has no messages of a session", hint=_EXAMPLE)
    cwd = next((entry["cwd"] for entry in entries if isinstance(entry.get("cwd"), str) and entry["cwd"]), "")
    return Bundle(
        session_id=_named_id(Path(name).stem) or _most_named(entries),
        project=project_key(cwd) if cwd else "",
        entries=entries,
        parts={},
    )


def _lines(text: str, name: str) -> list[JsonObject]:
    lines = text.split("\n")
    entries: list[JsonObject] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entries.append(from_line(line))
        except ValueError as error:
            if number == len(lines) and entries and isinstance(error, JSONDecodeError):
                # No line end: it was being written.
                break
            if not entries and not line.lstrip().startswith("{"):
                raise OptionsError(
                    f"{name} is not a session: line {number} is not JSON", hint=_EXAMPLE
                ) from error
            reason = error.msg if isinstance(error, JSONDecodeError) else str(error)
            raise TranscriptDamaged(name, number, message=reason) from error
    return entries


def _with_parts(bundle: Bundle, path: Path) -> Bundle:
    """The session with the transcripts of its subagents, which the program writes beside it."""
    parts: dict[str, list[JsonObject]] = {}
    session = SessionFile(session_id=bundle.session_id, project="", path=path)
    try:
        files = list(part_files(session, strict=True))
    except OSError as error:
        raise _unreadable(error.filename or path, error) from error
    for subpath, file in files:
        part = parts.setdefault(check_subpath(subpath), [])
        text = _text_of(file, is_part=True)
        if file.name.endswith(METADATA):
            try:
                part.insert(0, {**to_object(text), "type": "agent_metadata"})
            except ValueError as error:
                raise TranscriptDamaged(file, message=str(error)) from error
        else:
            part += _lines(text, str(file))
    return replace(bundle, parts={subpath: part for subpath, part in parts.items() if part})


def _named_id(text: str) -> str:
    try:
        return checked_id(text)
    except OptionsError:
        return ""


def _most_named(entries: Iterable[JsonObject]) -> str:
    ids = (_named_id(id) for entry in entries if isinstance(id := entry.get("sessionId"), str))
    counted = Counter(id for id in ids if id).most_common(1)
    return counted[0][0] if counted else ""


# Copies of a session.


def is_same(one: Bundle, other: Bundle) -> bool:
    """Whether two are copies of one session."""
    return _plain(one.entries) == _plain(other.entries) and {
        subpath: _plain(part) for subpath, part in one.parts.items() if part
    } == {subpath: _plain(part) for subpath, part in other.parts.items() if part}


def left_of(entries: list[JsonObject], there: list[JsonObject]) -> list[JsonObject] | None:
    """What has to be added to those that are there; None if these are not the beginning of it."""
    if _plain(entries) == _plain(there):
        return []
    wanted = kept_once(entries)
    begun = kept_once(there)
    return wanted[len(begun) :] if wanted[: len(begun)] == begun else None


def kept_once(entries: Iterable[JsonObject]) -> list[JsonObject]:
    """As a store keeps them: one entry for each uuid."""
    made: list[JsonObject] = []
    seen: set[object] = set()
    for entry in entries:
        uuid = entry.get("uuid")
        if isinstance(uuid, str):
            if uuid in seen:
                continue
            seen.add(uuid)
        made.append(entry)
    return made


def says_archived(entries: Iterable[JsonObject]) -> bool:
    """Whether entries of a store say so; the last one counts."""
    said = [entry.get(ARCHIVED) for entry in entries if entry.get("type") == ARCHIVED]
    return said[-1:] == [True]


def without_notes(bundle: Bundle) -> Bundle:
    """The session without what only a store says in its transcript."""
    return replace(bundle, entries=[entry for entry in bundle.entries if entry.get("type") != ARCHIVED])


def _plain(entries: list[JsonObject]) -> list[JsonObject]:
    metadata = [entry for entry in entries if entry.get("type") == "agent_metadata"][-1:]
    said = (entry for entry in entries if entry.get("type") not in ("agent_metadata", ARCHIVED))
    return [*metadata, *kept_once(said)]
