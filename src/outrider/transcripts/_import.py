"""Reads a session from a JSON export or a transcript of Claude Code, and compares two copies of a session.

Does not store it: the libraries in `_library` do.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from json import JSONDecodeError
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, cast

from outrider.errors import OptionsError, TranscriptDamaged
from outrider.transcripts._describe import ARCHIVED
from outrider.transcripts._disk.files import METADATA, SessionFile, open_file, part_files
from outrider.transcripts._entries import fields_of, from_line, read_json, to_object
from outrider.transcripts._export.turns import FORMAT, VERSION
from outrider.transcripts._paths import check_subpath, project_key
from outrider.transcripts._values import Bundle, checked_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from outrider.transcripts._values import StrPath
    from outrider.wire import JsonObject

__all__ = ["imported", "is_same", "kept_once", "left_of", "renamed", "says_archived", "without_notes"]


_TEXT: Final = "the text"
"""What a source is called that has no path."""

_EXPORT: Final = re.compile(rf'"format"\s*:\s*"{FORMAT}"')

_EXAMPLE: Final = "Give what `export(…, 'json')` gave, or a .jsonl transcript of the program."


def imported(source: StrPath) -> Bundle:
    """The session in a file, or in a text: a `str` that begins with a brace or has several lines.

    Raises `OptionsError` for what is no session, and `TranscriptDamaged`, with the number of the line, for
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

    return Bundle(
        session_id=session_id,
        project=bundle.project,
        entries=all_renamed(bundle.entries),
        parts={subpath: all_renamed(part) for subpath, part in bundle.parts.items()},
    )


def _text_of(path: Path, *, is_part: bool = False) -> str:
    """What a file says. That of a session may be a pipe, one that lies beside it may not: nobody named it."""
    try:
        with open_file(path) if is_part else path.open("rb") as stream:
            data = stream.read()
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise TranscriptDamaged(path, line, message="it is no UTF-8") from error


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
        raise OptionsError(f"{name} is JSON, but no session", hint=_EXAMPLE)
    if fields.get("version") != VERSION or isinstance(fields["version"], bool):
        raise OptionsError(
            f"{name} has the version {fields.get('version')!r}, and this Outrider reads {VERSION}",
            hint="Update Outrider.",
        )
    project, parts = fields.get("project"), fields.get("parts")
    if not isinstance(project, str):
        _refuse(name, "project", project)
    if not isinstance(parts, dict):
        _refuse(name, "parts", parts)
    return Bundle(
        session_id=checked_id(cast("str", fields.get("session_id"))),
        project=project,
        entries=_entries(name, "entries", fields.get("entries")),
        parts={
            check_subpath(subpath): _entries(name, f"parts[{subpath!r}]", part)
            for subpath, part in cast("Mapping[str, object]", parts).items()
        },
    )


def _entries(name: str, field: str, value: object) -> list[JsonObject]:
    if not isinstance(value, list):
        _refuse(name, field, value)
    for index, entry in enumerate(cast("list[object]", value)):
        if not isinstance(fields_of(entry).get("type"), str):
            _refuse(name, f"{field}[{index}]", entry)
    return cast("list[JsonObject]", value)


def _refuse(name: str, field: str, value: object) -> NoReturn:
    shown = repr(value)
    shown = shown if len(shown) <= 100 else f"{shown[:100]}…"
    raise OptionsError(f"{name} is no session: `{field}` cannot be {shown}", hint=_EXAMPLE)


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
                    f"{name} is no session: line {number} is no JSON", hint=_EXAMPLE
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
                part.insert(0, {"type": "agent_metadata", **to_object(text)})
            except ValueError as error:
                raise TranscriptDamaged(file, message=str(error)) from error
        else:
            part += _lines(text, str(file))
    return Bundle(
        session_id=bundle.session_id,
        project=bundle.project,
        entries=bundle.entries,
        parts={subpath: part for subpath, part in parts.items() if part},
    )


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
    if all(entry.get("type") != ARCHIVED for entry in bundle.entries):
        return bundle
    return Bundle(
        session_id=bundle.session_id,
        project=bundle.project,
        entries=[entry for entry in bundle.entries if entry.get("type") != ARCHIVED],
        parts=bundle.parts,
    )


def _plain(entries: list[JsonObject]) -> list[JsonObject]:
    told = [entry for entry in entries if entry.get("type") == "agent_metadata"][-1:]
    said = (entry for entry in entries if entry.get("type") not in ("agent_metadata", ARCHIVED))
    return [*told, *kept_once(said)]
