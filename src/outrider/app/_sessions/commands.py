"""Defines the flags and commands of `outrider sessions`, one function each.

They are implemented in `sessions`, which is imported when one runs.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias

import typer

from outrider.app._flags import Switches

if TYPE_CHECKING:
    from outrider.app._sessions.sessions import Shelf

Format: TypeAlias = Literal["markdown", "json", "html"]

# How flags and arguments are described; as types, because that is where typer looks.
_Id: TypeAlias = Annotated[
    str, typer.Argument(help="A session's id, or how it begins.", metavar="ID", show_default=False)
]
_Store: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        envvar="OUTRIDER_STORE",
        help="A store's URL or path, instead of this machine's own sessions.",
        show_default=False,
    ),
]
_Project: TypeAlias = Annotated[
    str | None,
    typer.Option("--project", "-C", metavar="FOLDER", help="Sessions of this folder.", show_default=False),
]
_Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON, one a line.", metavar="")]
_Tag: TypeAlias = Annotated[
    str | None, typer.Option(metavar="TAG", help="With this tag.", show_default=False)
]
_Limit: TypeAlias = Annotated[int, typer.Option("--limit", "-n", min=1, metavar="N", help="How many.")]


def list_(
    switches: Switches,
    project: _Project = None,
    everywhere: Annotated[
        bool, typer.Option("--all", "-a", help="Of all folders, not only this one.", metavar="")
    ] = False,
    title: Annotated[
        str | None, typer.Option(metavar="TEXT", help="With this in the title.", show_default=False)
    ] = None,
    tag: _Tag = None,
    branch: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of this git branch.", show_default=False)
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Used since: 2026-11-01, 3d, 12h, 30m.", show_default=False),
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Last used before that.", show_default=False)
    ] = None,
    archived: Annotated[bool, typer.Option("--archived", help="The archived ones.", metavar="")] = False,
    limit: _Limit = 20,
    offset: Annotated[int, typer.Option(min=0, metavar="N", help="Leave out the first ones.")] = 0,
    store: _Store = None,
    json: _Json = False,
) -> int:
    """List sessions, the latest first."""
    from outrider.app._sessions.sessions import list_sessions

    with _shelf(switches, store, project, everywhere=everywhere) as shelf:
        return list_sessions(
            shelf,
            title=title,
            tag=tag,
            branch=branch,
            since=since,
            until=until,
            archived=archived,
            limit=limit,
            offset=offset,
            as_json=json,
        )


def show(
    switches: Switches,
    id: _Id,
    last: Annotated[
        int | None,
        typer.Option("--last", "-n", min=1, metavar="N", help="Only the last N.", show_default=False),
    ] = None,
    agent: Annotated[
        str | None, typer.Option(metavar="ID", help="What a subagent did.", show_default=False)
    ] = None,
    project: _Project = None,
    store: _Store = None,
    json: _Json = False,
) -> int:
    """Show the conversation of a session."""
    from outrider.app._sessions.sessions import show_session

    with _shelf(switches, store, project) as shelf:
        return show_session(shelf, id, last=last, agent=agent, as_json=json)


def search(
    switches: Switches,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What was said.", show_default=False)],
    regex: Annotated[
        bool, typer.Option("--regex", "-e", help="TEXT is a regular expression.", metavar="")
    ] = False,
    case: Annotated[bool, typer.Option("--case", help="Mind capital letters.", metavar="")] = False,
    project: _Project = None,
    limit: _Limit = 20,
    store: _Store = None,
    json: _Json = False,
) -> int:
    """Find where something was said, in all folders unless one is named."""
    from outrider.app._sessions.sessions import search_sessions

    with _shelf(switches, store, project) as shelf:
        return search_sessions(shelf, text, regex=regex, case=case, limit=limit, as_json=json)


def export(
    switches: Switches,
    id: _Id,
    format: Annotated[Format, typer.Option("--format", "-f", help="How.")] = "markdown",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Where to; else stdout.", show_default=False),
    ] = None,
    project: _Project = None,
    store: _Store = None,
) -> int:
    """Write a session as Markdown, as JSON that can be imported, or as HTML."""
    from outrider.app._sessions.sessions import export_session

    with _shelf(switches, store, project) as shelf:
        return export_session(shelf, id, format, output)


def import_(
    switches: Switches,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="A JSON export, or a transcript (.jsonl); '-': standard input.",
            show_default=False,
        ),
    ],
    as_new: Annotated[bool, typer.Option("--as-new", help="Give it a new id.", metavar="")] = False,
    project: _Project = None,
    store: _Store = None,
) -> int:
    """Take in a session that was exported, here or on another machine."""
    from outrider.app._sessions.sessions import import_session

    with _shelf(switches, store, project, may_make=True) as shelf:
        return import_session(shelf, file, as_new=as_new)


def rename(
    switches: Switches,
    id: _Id,
    title: Annotated[str, typer.Argument(metavar="TITLE", help="The new title.", show_default=False)],
    project: _Project = None,
    store: _Store = None,
) -> int:
    """Give a session another title."""
    from outrider.app._sessions.sessions import change

    with _shelf(switches, store, project) as shelf:
        return change(
            shelf, id, "renamed", lambda shelf, id: shelf.sessions.rename(id, title, project=shelf.project)
        )


def tag(
    switches: Switches,
    id: _Id,
    tag: Annotated[str | None, typer.Argument(metavar="TAG", help="The tag.", show_default=False)] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Take its tag away.", metavar="")] = False,
    project: _Project = None,
    store: _Store = None,
) -> int:
    """Tag a session, to find it by."""
    from outrider.app._flags import Code, Failed
    from outrider.app._sessions.sessions import change

    if (tag is None) != clear:
        raise Failed("give a tag, or --clear to take the present one away.", Code.USAGE)
    done = "tag taken away from" if clear else "tagged"
    with _shelf(switches, store, project) as shelf:
        return change(shelf, id, done, lambda shelf, id: shelf.sessions.tag(id, tag, project=shelf.project))


def archive(
    switches: Switches,
    id: _Id,
    undo: Annotated[bool, typer.Option("--undo", help="Bring it back.", metavar="")] = False,
    project: _Project = None,
    store: _Store = None,
) -> int:
    """Put a session aside: lists leave it out."""
    from outrider.app._sessions.sessions import change

    def make(shelf: Shelf, id: str) -> None:
        change = shelf.sessions.unarchive if undo else shelf.sessions.archive
        change(id, project=shelf.project)

    with _shelf(switches, store, project) as shelf:
        return change(shelf, id, "brought back" if undo else "archived", make)


def fork(
    switches: Switches,
    id: _Id,
    at: Annotated[
        str | None,
        typer.Option(metavar="UUID", help="Up to this message; else all of it.", show_default=False),
    ] = None,
    title: Annotated[str | None, typer.Option(metavar="TEXT", help="Its title.", show_default=False)] = None,
    project: _Project = None,
    store: _Store = None,
) -> int:
    """Make a session that goes another way from a message on; prints its id."""
    from outrider.app._sessions.sessions import fork_session

    with _shelf(switches, store, project) as shelf:
        return fork_session(shelf, id, at=at, title=title)


def copy(
    switches: Switches,
    id: _Id,
    to: Annotated[
        str, typer.Option(metavar="URL", help="A store's URL or path; 'disk': this machine's own sessions.")
    ],
    project: _Project = None,
    store: _Store = None,
) -> int:
    """Copy a session to a store, from one, or between two."""
    from outrider.app._sessions.sessions import copy_session

    with _shelf(switches, store, project) as shelf:
        return copy_session(shelf, id, to)


def delete(
    switches: Switches,
    id: _Id,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.", metavar="")] = False,
    project: _Project = None,
    store: _Store = None,
) -> int:
    """Delete a session and what its subagents left. It cannot be brought back."""
    from outrider.app._sessions.sessions import delete_session

    with _shelf(switches, store, project) as shelf:
        return delete_session(shelf, id, is_sure=yes)


SESSION_COMMANDS: Final[dict[str, Callable[..., int]]] = {
    "list": list_,
    "show": show,
    "search": search,
    "export": export,
    "import": import_,
    "rename": rename,
    "tag": tag,
    "archive": archive,
    "fork": fork,
    "copy": copy,
    "delete": delete,
}


def _shelf(
    switches: Switches,
    store: str | None,
    project: str | None,
    *,
    everywhere: bool = False,
    may_make: bool = False,
) -> Shelf:
    from outrider.app._sessions.sessions import Shelf

    return Shelf(store, project, is_everywhere=everywhere, may_make=may_make, no_color=switches.no_color)
