"""Declares the commands of `outrider sessions` and their flags.

Each is carried out by the function of the same name in `sessions`, which is imported when it runs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias, cast

import typer

from outrider.app._flags import Code, Switches, argument, option, signed, switch

Format: TypeAlias = Literal["markdown", "json", "html"]

# Flags and arguments are described by types, where typer looks for them.
_Id: TypeAlias = Annotated[str, argument(help="A session's ID, or its beginning.", metavar="ID")]
_Store: TypeAlias = Annotated[
    str | None,
    option(
        metavar="URL",
        envvar="OUTRIDER_STORE",
        help="Use the store at this URL or path, not this machine's sessions.",
    ),
]
_Project: TypeAlias = Annotated[
    str | None, option("--project", "-C", metavar="FOLDER", help="Only sessions of this folder.")
]
_Json: TypeAlias = Annotated[bool, switch("--json", help="Print JSON, one object per line.")]
_Tag: TypeAlias = Annotated[str | None, option(metavar="TAG", help="Only sessions with this tag.")]
_Limit: TypeAlias = Annotated[int, typer.Option("--limit", "-n", min=1, metavar="N", help="Show at most N.")]


def list_(
    everywhere: Annotated[bool, switch("--all", "-a", help="List the sessions of all folders.")] = False,
    title: Annotated[
        str | None, option(metavar="TEXT", help="Only sessions with this text in the title.")
    ] = None,
    tag: _Tag = None,
    branch: Annotated[str | None, option(metavar="NAME", help="Only sessions of this git branch.")] = None,
    since: Annotated[
        str | None, option(metavar="TIME", help="Used since then: 2026-11-01, 3d, 12h, 30m.")
    ] = None,
    until: Annotated[str | None, option(metavar="TIME", help="Last used before then.")] = None,
    archived: Annotated[bool, switch("--archived", help="List archived sessions.")] = False,
    limit: _Limit = 20,
    offset: Annotated[int, typer.Option(min=0, metavar="N", help="Skip the first N.")] = 0,
    json: _Json = False,
) -> None:
    """List sessions, the latest first."""


def show(
    id: _Id,
    last: Annotated[
        int | None, option("--last", "-n", min=1, metavar="N", help="Only the last N messages.")
    ] = None,
    agent: Annotated[str | None, option(metavar="ID", help="Show what this subagent did.")] = None,
    json: _Json = False,
) -> None:
    """Show a session's conversation."""


def search(
    text: Annotated[str, argument(metavar="TEXT", help="The text to search for.")],
    regex: Annotated[bool, switch("--regex", "-e", help="TEXT is a regular expression.")] = False,
    case: Annotated[bool, switch("--case", help="Match upper and lower case.")] = False,
    limit: _Limit = 20,
    json: _Json = False,
) -> None:
    """Search all conversations, or those of one folder."""


def export(
    id: _Id,
    format: Annotated[Format, typer.Option("--format", "-f", help="The format.")] = "markdown",
    output: Annotated[
        Path | None, option("--output", "-o", metavar="FILE", help="Write to this file, not to stdout.")
    ] = None,
) -> None:
    """Export a session as Markdown, HTML, or JSON that can be imported."""


def import_(
    file: Annotated[
        Path, argument(metavar="FILE", help="A JSON export or a transcript (.jsonl); '-' for standard input.")
    ],
    as_new: Annotated[bool, switch("--as-new", help="Give it a new ID.")] = False,
) -> None:
    """Import a session that was exported here or elsewhere."""


def rename(
    id: _Id,
    title: Annotated[str, argument(metavar="TITLE", help="The new title.")],
) -> None:
    """Change a session's title."""


def tag(
    id: _Id,
    tag: Annotated[str | None, argument(metavar="TAG", help="The tag.")] = None,
    clear: Annotated[bool, switch("--clear", help="Remove the tag.")] = False,
) -> None:
    """Tag a session."""


def archive(
    id: _Id,
    undo: Annotated[bool, switch("--undo", help="Restore it.")] = False,
) -> None:
    """Archive a session: lists leave it out."""


def fork(
    id: _Id,
    at: Annotated[str | None, option(metavar="UUID", help="Copy up to this message only.")] = None,
    title: Annotated[str | None, option(metavar="TEXT", help="The title of the fork.")] = None,
) -> None:
    """Fork a session, and print the ID of the fork."""


def copy(
    id: _Id,
    to: Annotated[
        str, typer.Option(metavar="URL", help="A store's URL or path, or 'disk' for this machine.")
    ],
) -> None:
    """Copy a session to or from a store."""


def delete(
    id: _Id,
    yes: Annotated[bool, switch("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Delete a session and its subagents' transcripts, for good."""


def _command(declared: Callable[..., None]) -> Callable[..., int]:
    """The command that is declared so; every one has `--project` and `--store`."""

    def command(switches: Switches, *, project: str | None, store: str | None, **given: object) -> int:
        from outrider.app._sessions import sessions

        carry_out: Callable[..., int | None] = getattr(sessions, declared.__name__)
        may_make = declared is import_
        with sessions.Shelf(store, project, may_make=may_make, no_color=switches.no_color) as shelf:
            return carry_out(shelf, **given) or Code.OK

    common = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, kind, default in (("project", _Project, None), ("store", _Store, None))
    ]
    own = inspect.signature(declared, eval_str=True).parameters.values()
    switches = inspect.Parameter("switches", inspect.Parameter.POSITIONAL_ONLY)
    return cast("Callable[..., int]", signed(command, declared, [switches, *own, *common]))


SESSION_COMMANDS: Final = {
    declared.__name__.rstrip("_"): _command(declared)
    for declared in (list_, show, search, export, import_, rename, tag, archive, fork, copy, delete)
}
