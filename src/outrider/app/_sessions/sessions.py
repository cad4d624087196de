"""Implements `outrider sessions`: lists, shows, searches and changes kept sessions.

Does not read or write transcripts: `outrider.sync.Sessions` does.
"""

from __future__ import annotations

import os
import re
import sys
from datetime import UTC, datetime, timedelta
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from rich.text import Text

from outrider._display import one_line, printable
from outrider._folders import write_private
from outrider.app._flags import Code, Failed
from outrider.app._render import DisplayLine, Page, describe, shortened
from outrider.app._terminal import Terminal
from outrider.sync import Sessions
from outrider.transcripts import open_store
from outrider.wire import CompactBoundaryMessage, ToolResultBlock, UserMessage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self

    from outrider.transcripts import SearchHit, StoredSession, TranscriptEntry


# Tables.

_SHORT_ID: Final = 8
"""Characters of an ID that are shown, if they tell the sessions apart."""

_LONGEST_TITLE: Final = 60
_SHORTEST_TITLE: Final = 24
"""Characters of a title that take precedence over other columns."""
_BETWEEN: Final = 2
"""Spaces between columns."""
_STEPS: Final = ((60, "second"), (60, "minute"), (24, "hour"), (14, "day"))


def table(terminal: Terminal, infos: list[StoredSession], *, with_folder: bool) -> list[Text | str]:
    """Aligned columns for a terminal, fields separated by tabs for a pipe."""
    if not terminal.out.is_terminal:
        return [
            "\t".join(
                (
                    one_line(info.id),
                    info.last_modified.isoformat(timespec="seconds"),
                    title_of(info),
                    one_line(info.cwd or ""),
                )
            )
            for info in infos
        ]
    return columns(infos, terminal.out.width, with_folder=with_folder)


def columns(infos: Sequence[StoredSession], width: int, *, with_folder: bool) -> list[Text | str]:
    """One line for each session, cut to the width."""
    length = _telling_length([info.id for info in infos])
    now = datetime.now(UTC)
    ids = [Text(one_line(info.id[:length]), "cyan") for info in infos]
    ages = _Column([Text(ago(info.last_modified, now), "dim") for info in infos], justify="right")
    titles = _Column([Text(title_of(info), "bold") for info in infos])
    asides = [
        _Column([Text(f"#{one_line(info.tag)}" if info.tag else "", "magenta") for info in infos]),
        _Column([Text(_folder(info) if with_folder else "", "dim") for info in infos]),
        _Column([Text(shortened(one_line(info.git_branch or ""), 24), "dim") for info in infos]),
        _Column([Text(size_of(info.size) if info.size else "", "dim") for info in infos], justify="right"),
    ]
    asides = [column for column in asides if column.width]
    left = width - length - ages.width - 2 * _BETWEEN
    # If there is no room, drop the least useful column first: size, then branch, then folder.
    while asides and left - sum(column.width + _BETWEEN for column in asides) < min(
        titles.width, _SHORTEST_TITLE
    ):
        asides.pop()
    titles.width = max(min(titles.width, left - sum(column.width + _BETWEEN for column in asides)), 1)
    lines: list[Text | str] = []
    for row, id in enumerate(ids):
        cells = (id, *(column.cell(row) for column in (ages, titles, *asides)))
        line = Text(" " * _BETWEEN).join(cells)
        line.rstrip()
        line.truncate(width, overflow="ellipsis")
        lines.append(line)
    return lines


class _Column:
    """A column of the list, as wide as its widest text."""

    def __init__(self, texts: list[Text], *, justify: Literal["left", "right"] = "left") -> None:
        self._texts = texts
        self._justify: Literal["left", "right"] = justify
        self.width = max((text.cell_len for text in texts), default=0)

    def cell(self, row: int) -> Text:
        text = self._texts[row]
        text.truncate(self.width, overflow="ellipsis")
        text.align(self._justify, self.width)
        return text


def _folder(info: StoredSession) -> str:
    folder = one_line(info.cwd or "")
    home = os.environ.get("HOME")
    is_below = home and (folder == home or folder.startswith(home.rstrip(os.sep) + os.sep))
    return f"~{folder.removeprefix(home.rstrip(os.sep))}" if home and is_below else folder


def _telling_length(ids: list[str]) -> int:
    length = _SHORT_ID
    while len({id[:length] for id in ids}) < len(ids) and length < 36:
        length += 1
    return length


def title_of(info: StoredSession) -> str:
    return shortened(one_line(info.title), _LONGEST_TITLE) or "(no title)"


def ago(then: datetime, now: datetime) -> str:
    number = max((now - then).total_seconds(), 0)
    for most, unit in _STEPS:
        if number < most:
            whole = int(number)
            return f"{whole} {unit}{'' if whole == 1 else 's'} ago"
        number /= most if unit != "day" else 1
    return then.astimezone().strftime("%Y-%m-%d")


def size_of(size: int) -> str:
    return f"{size / 1024:,.0f} KB" if size < 1024 * 1024 else f"{size / 1024 / 1024:,.1f} MB"


_UNITS: Final[Mapping[str, str]] = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


# Commands.

_ON_DISK: Final = "disk"
_SPEAKERS: Final[Mapping[str, str]] = {
    "assistant": "agent",
    "custom-title": "title",
    "ai-title": "title",
}
"""How to label hits in entries of these types."""


class Shelf:
    """The sessions that a command works on, and the terminal it writes to."""

    def __init__(
        self,
        store: str | None,
        project: str | None,
        *,
        may_make: bool = False,
        no_color: bool = False,
    ) -> None:
        """With `may_make`, a store that does not exist is created; else its name is taken for a mistake."""
        if store is not None and not may_make:
            check_is_there(store)
        if project is not None and not Path(project).is_dir() and store is None:
            raise Failed(f"There is no folder {project!r}. Give an existing one as --project.", Code.USAGE)
        self.terminal = Terminal(no_color=no_color)
        self.sessions = Sessions(store)
        self.is_store = store is not None
        self.project = project

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.sessions.close()

    def note(self, text: str) -> None:
        """Say what was done."""
        self.terminal.note(Text(one_line(text), style="dim"))

    def find(self, beginning: str) -> StoredSession:
        """Find a session by the beginning of its ID. Raises `SessionNotFound` or `Failed`."""
        if len(beginning) == 36:
            return self.sessions.info(beginning, project=self.project)
        found = [
            info
            for info in self.sessions.list(project=self.project, archived=None)
            if info.id.startswith(beginning.lower())
        ]
        if not found:
            raise Failed(
                f"No session's ID begins with {beginning!r}. See `outrider sessions list`.", Code.USAGE
            )
        if len(found) > 1:
            named = ", ".join(info.id for info in found[:4])
            raise Failed(
                f"{len(found)} session IDs begin with {beginning!r}: {named}. Give more of the ID.",
                Code.USAGE,
            )
        return found[0]


# Read.


def list_(
    shelf: Shelf,
    *,
    everywhere: bool,
    since: str | None,
    until: str | None,
    limit: int,
    offset: int,
    json: bool,
    **filters: Any,  # noqa: ANN401 - those of `Sessions.list`
) -> None:
    if everywhere and shelf.project is not None:
        raise Failed("Give --all or --project, not both.", Code.USAGE)
    project = None if everywhere else shelf.project or "."
    found = shelf.sessions.list(
        project=project,
        since=_time(since, "--since"),
        until=_time(until, "--until"),
        limit=limit + 1,
        offset=offset,
        **filters,
    )
    shown, is_more = found[:limit], len(found) > limit
    if json:
        for info in shown:
            shelf.terminal.write_json(_json(msgspec.to_builtins(info, enc_hook=str)))
        return
    for line in table(shelf.terminal, shown, with_folder=project is None):
        shelf.terminal.write(line + "\n") if isinstance(line, str) else shelf.terminal.print(line)
    if not shown:
        is_narrowed = bool(offset or since or until or any(filters.values()))
        shelf.terminal.note(Text(_nothing(shelf, project, is_narrowed=is_narrowed), style="dim"))
    elif is_more:
        shelf.terminal.note(Text(f"More with --offset {offset + limit}.", style="dim"))


def _nothing(shelf: Shelf, project: str | None, *, is_narrowed: bool) -> str:
    """What a list says that has nothing in it."""
    what = "No session matches" if is_narrowed else "There are no sessions yet"
    if project is not None:
        where = "in this folder" if shelf.project is None else f"of {one_line(project)}"
        return f"{what} {where}. --all looks in all folders."
    return f"{what}." if is_narrowed or shelf.is_store else f"{what}. `outrider chat` begins one."


def show(shelf: Shelf, id: str, *, last: int | None, agent: str | None, json: bool) -> None:
    info = shelf.find(id)
    entries = shelf.sessions.read(info.id, agent=agent, last=last, project=shelf.project)
    if json:
        for entry in entries:
            shelf.terminal.write_json(_json(entry.raw))
        return
    terminal = shelf.terminal
    page = Page(terminal, with_markdown=True)
    terminal.print(Text(one_line(info.title or "(no title)"), style="bold"))
    terminal.print(Text(_about(info, terminal.glyphs.dot), style="dim"))
    for entry in entries:
        for each in _said(entry):
            if each.kind == "user":
                page.print()
            page.say(each)
    if not entries:
        terminal.note(Text("The conversation is empty.", style="dim"))
    elif agent is None and (agents := shelf.sessions.agents(info.id, project=shelf.project)):
        terminal.print()
        terminal.print(Text(f"Subagents, for --agent: {', '.join(map(one_line, agents))}", style="dim"))


def search(shelf: Shelf, text: str, *, regex: bool, case: bool, limit: int, json: bool) -> int:
    terminal, session, count = shelf.terminal, None, 0
    for hit in shelf.sessions.search(
        text, regex=regex, case_sensitive=case, project=shelf.project, limit=limit + 1
    ):
        count += 1
        if count > limit:
            break
        if json:
            terminal.write_json(_hit_as_json(hit))
            continue
        if hit.session.id != session:
            if session is not None:
                terminal.print()
            session = hit.session.id
            terminal.print(
                _fitting(
                    terminal,
                    Text.assemble((one_line(session), "cyan"), "  ", (title_of(hit.session), "bold")),
                )
            )
        line = Text(one_line(hit.excerpt))
        if not regex:
            line.highlight_words([text], "bold yellow", case_sensitive=case)
        terminal.print(_fitting(terminal, Text.assemble((f"  {_who(hit):>9}  ", "dim"), line)))
    if json:
        return Code.OK if count else Code.FAILED
    if not count:
        terminal.note(Text("Nothing was found.", style="dim"))
    elif count > limit:
        terminal.note(Text(f"More with --limit {limit * 2}.", style="dim"))
    return Code.OK if count else Code.FAILED


def _fitting(terminal: Terminal, line: Text) -> Text:
    """Cut a line to the width of the terminal; a pipe gets all of it."""
    if terminal.out.is_terminal:
        line.truncate(terminal.out.width, overflow="ellipsis")
    return line


def _who(hit: SearchHit) -> str:
    spoken = _SPEAKERS.get(hit.entry.type, hit.entry.type)
    return one_line(spoken if hit.agent_id is None else f"{spoken} of {hit.agent_id}")


def export(shelf: Shelf, id: str, format: Literal["markdown", "json", "html"], output: Path | None) -> None:
    info = shelf.find(id)
    text = shelf.sessions.export(info.id, format, project=shelf.project)
    if output is not None:
        write_private(output, text.encode())
        shelf.note(f"{info.id} written to {output}")
    elif format == "json":
        shelf.terminal.write_json(text.rstrip())
    else:
        shelf.terminal.write(text)


# Change.


def import_(shelf: Shelf, file: Path, *, as_new: bool) -> None:
    source = sys.stdin.read() if str(file) == "-" else file
    if not source:
        raise Failed("There is nothing on standard input to import.", Code.USAGE)
    made = shelf.sessions.import_(source, project=shelf.project, as_new=as_new)
    shelf.terminal.write(f"{one_line(made)}\n")


def fork(shelf: Shelf, id: str, *, at: str | None, title: str | None) -> None:
    info = shelf.find(id)
    made = shelf.sessions.fork(info.id, at=at, title=title, project=shelf.project)
    shelf.terminal.write(f"{one_line(made)}\n")


def copy(shelf: Shelf, id: str, to: str) -> None:
    info = shelf.find(id)
    with Sessions(None if to == _ON_DISK else to) as there:
        shelf.sessions.copy(info.id, to=there, project=shelf.project)
    shelf.note(f"{info.id} copied")


def delete(shelf: Shelf, id: str, *, yes: bool) -> int:
    info = shelf.find(id)
    if not yes:
        if not shelf.terminal.can_ask:
            raise Failed("Deleting needs a confirmation, and there is no terminal. Add --yes.", Code.USAGE)
        title = title_of(info)
        shelf.terminal.question(f"Delete {one_line(info.id)} ({title})? [y/N] ")
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            shelf.note("not deleted")
            return Code.FAILED
    shelf.sessions.delete(info.id, project=shelf.project)
    shelf.note(f"{info.id} deleted")
    return Code.OK


def rename(shelf: Shelf, id: str, title: str) -> None:
    info = shelf.find(id)
    shelf.sessions.rename(info.id, title, project=shelf.project)
    shelf.note(f"{info.id} renamed")


def tag(shelf: Shelf, id: str, tag: str | None, *, clear: bool) -> None:
    if (tag is None) != clear:
        raise Failed("Give a tag, or --clear to remove the present one.", Code.USAGE)
    info = shelf.find(id)
    shelf.sessions.tag(info.id, tag, project=shelf.project)
    shelf.note(f"tag removed from {info.id}" if clear else f"{info.id} tagged")


def archive(shelf: Shelf, id: str, *, undo: bool) -> None:
    info = shelf.find(id)
    change = shelf.sessions.unarchive if undo else shelf.sessions.archive
    change(info.id, project=shelf.project)
    shelf.note(f"{info.id} {'restored' if undo else 'archived'}")


# Helpers.


def _about(info: StoredSession, dot: str) -> str:
    when = info.last_modified.astimezone().strftime("%Y-%m-%d %H:%M")
    parts = [info.id, when, info.cwd, info.git_branch, info.tag and f"#{info.tag}"]
    parts += [size_of(info.size) if info.size else None, "archived" if info.is_archived else None]
    return one_line(f" {dot} ".join(str(part) for part in parts if part))


def _said(entry: TranscriptEntry) -> list[DisplayLine]:
    message = entry.message
    if entry.is_compact_summary:
        return [DisplayLine("note", "summary of the conversation so far: " + shortened(one_line(entry.text)))]
    if isinstance(message, CompactBoundaryMessage):
        return [DisplayLine("note", "the conversation was compacted")]
    if isinstance(message, UserMessage) and not any(isinstance(b, ToolResultBlock) for b in message.content):
        text = printable(message.text.strip())
        return [DisplayLine("user", text)] if text else []
    return list(describe(message, cwd=entry.cwd))


def _hit_as_json(hit: SearchHit) -> str:
    fields = {
        "session_id": hit.session.id,
        "project": hit.session.project,
        "title": hit.session.title,
        "agent_id": hit.agent_id,
        "type": hit.entry.type,
        "uuid": hit.entry.uuid,
        "line_number": hit.line_number,
        "excerpt": hit.excerpt,
    }
    return _json(fields)


def _json(value: object) -> str:
    """JSON on one line. The standard library's encoder accepts integers of any size."""
    return dumps(value, ensure_ascii=False)


def _time(text: str | None, flag: str) -> datetime | None:
    if text is None:
        return None
    try:
        if found := re.fullmatch(r"(\d+)\s*([mhdw])", text.strip()):
            return datetime.now(UTC) - timedelta(**{_UNITS[found[2]]: int(found[1])})
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        raise Failed(f"{flag} is {text!r}, which is not a time. Try 2026-11-01, or 3d.", Code.USAGE) from None


def check_is_there(store: str) -> None:
    """Raise `Failed` if a local store does not exist: opening it would create an empty one."""
    opened = open_store(store)
    place = getattr(opened, "path", getattr(opened, "folder", None))
    if isinstance(place, Path) and not place.exists():
        raise Failed(f"There is no store {str(place)!r}. Give an existing one as --store.", Code.USAGE)
