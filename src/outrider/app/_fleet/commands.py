"""Defines the flags and commands of `outrider fleet`, one function each.

They are implemented in `run` and `reports`, which are imported when one runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias, TypeVar

import typer

from outrider.app._flags import FLAGS, Flag, Switches, argument, grouped, switch, with_flags
from outrider.options import OptionFields

Format: TypeAlias = Literal["markdown", "csv", "json", "svg"]

F = TypeVar("F", bound=Callable[..., object])

BATCH_FLAGS: Final = grouped(
    {
        "Batch": (
            Flag(
                "--concurrency -j",
                "How many tasks run at once: 8, or the least and the most: 2..16. Default: 1..16.",
                "N",
            ),
            Flag(
                "--workspace -w",
                "A folder of its own for each task: empty, copy:FOLDER, worktree:REPO or worktree:REPO@REF.",
                "KIND",
            ),
            Flag("--keep", "Keep these folders: never, failed, always.", "WHEN"),
            Flag("--output", "A JSON Schema that the answers must fit: a file, or JSON.", "SCHEMA"),
            Flag("--ledger", "Record every turn in a ledger: .db, .jsonl or postgresql://….", "FILE"),
            Flag("--approvals", "Where questions wait for a person: a URL or a path.", "URL"),
            Flag(
                "--patience",
                "With --approvals: how long a task waits before it ends as waiting. Default: 60.",
                "SECONDS",
                "number",
            ),
            Flag("--engine", "Where tasks run: local, ray.", "NAME"),
            Flag("--address", "The cluster for --engine ray. Default: one here.", "URL"),
        ),
        "Limits of the batch": (
            Flag("--budget-usd", "What all tasks may cost together.", "USD", "number"),
            Flag("--budget-tokens", "How many tokens they may use together.", "N", "whole"),
            Flag("--budget-tool-calls", "How many tools they may call together.", "N", "whole"),
            Flag("--budget-seconds", "How long the batch may take.", "SECONDS", "number"),
            Flag("--task-seconds", "How long one task may take.", "SECONDS", "number"),
            Flag("--tries", "How often a task is tried when the API fails. Default: 5.", "N", "whole"),
            Flag("--max-failures", "Start no more tasks after so many failures: 10, or a share: 50%.", "N"),
            Flag("--on-usage-limit", "At a usage limit: wait, raise, or a model to use until then.", "WHAT"),
        ),
    }
)
"""The flags of `run`, `resume` and `retry-failed`."""

_OF_ONE_SESSION: Final = frozenset(
    ("resume", "continue_conversation", "fork_session", "title", "include_partial_messages", "trace")
)
TASK_FLAGS: Final[tuple[Flag, ...]] = tuple(flag for flag in FLAGS if flag.option not in _OF_ONE_SESSION)
"""The flags of `outrider run` that can hold for many tasks."""

# Flags and arguments are described by types, where typer looks for them.
_JournalPlace: TypeAlias = Annotated[
    str, argument(help="The journal of a batch: a file, or postgresql://host/database.", metavar="JOURNAL")
]
_TaskFile: TypeAlias = Annotated[
    Path,
    argument(help="Tasks, one per line: JSON objects with a prompt; '-': standard input.", metavar="TASKS"),
]
_Json: TypeAlias = Annotated[bool, switch("--json", help="Print JSON.")]
_JsonLines: TypeAlias = Annotated[
    bool, switch("--json", help="Print the outcome of each task as JSON, one per line.")
]


def _with_batch_flags(function: F) -> F:
    return with_flags(with_flags(function, BATCH_FLAGS, into="batch"), TASK_FLAGS)


@_with_batch_flags
def run(
    switches: Switches,
    file: _TaskFile,
    journal: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Where to keep the journal.", show_default="TASKS with .journal"),
    ] = None,
    json: _JsonLines = False,
    *,
    batch: Mapping[str, object],
    fields: OptionFields,
) -> int:
    """Run the tasks of a file. Ctrl-C finishes running tasks, a second one stops them; `resume` continues."""
    from outrider.app._fleet.run import run_tasks

    return run_tasks(file, journal, batch, fields, no_color=switches.no_color, as_json=json)


@_with_batch_flags
def submit(
    switches: Switches,
    file: _TaskFile,
    journal: _JournalPlace,
    append: Annotated[bool, switch("--append", help="Add them to the tasks that are there.")] = False,
    *,
    batch: Mapping[str, object],
    fields: OptionFields,
) -> int:
    """Put the tasks of a file into a database, for `outrider fleet work` on any number of machines."""
    from outrider.app._fleet.run import submit_tasks

    return submit_tasks(file, journal, batch, fields, no_color=switches.no_color, append=append)


@_with_batch_flags
def work(
    switches: Switches,
    journal: _JournalPlace,
    json: _JsonLines = False,
    stay: Annotated[bool, switch("--stay", help="Wait for more tasks after the last one.")] = False,
    *,
    batch: Mapping[str, object],
    fields: OptionFields,
) -> int:
    """Run tasks of a database, together with other workers, until all have ended. Ctrl-C as in `run`."""
    from outrider.app._fleet.run import resume_tasks

    return resume_tasks(journal, batch, fields, no_color=switches.no_color, as_json=json, stay=stay)


def status(switches: Switches, journal: _JournalPlace, json: _Json = False) -> int:
    """Show the progress of a batch, during the run or after it."""
    from outrider.app._fleet.reports import show_status

    return show_status(journal, no_color=switches.no_color, as_json=json)


def _resume(summary: str, *, retry_failed: bool) -> Callable[..., int]:
    def command(
        switches: Switches,
        journal: _JournalPlace,
        json: _JsonLines = False,
        *,
        batch: Mapping[str, object],
        fields: OptionFields,
    ) -> int:
        from outrider.app._fleet.run import resume_tasks

        look = {"no_color": switches.no_color, "as_json": json}
        return resume_tasks(journal, batch, fields, **look, retry_failed=retry_failed)

    command.__doc__ = summary
    return _with_batch_flags(command)


def report(
    switches: Switches,
    journal: _JournalPlace,
    format: Annotated[
        Format | None,
        typer.Option("--format", "-f", help="The format.", show_default="as FILE is named, else markdown"),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write to this file, not to stdout.", show_default=False
        ),
    ] = None,
) -> int:
    """Report on a batch, as Markdown, CSV, JSON or a plot (SVG)."""
    from outrider.app._fleet.reports import write_report

    return write_report(journal, format, output, no_color=switches.no_color)


FLEET_COMMANDS: Final[dict[str, Callable[..., int]]] = {
    "run": run,
    "submit": submit,
    "work": work,
    "status": status,
    "resume": _resume(
        "Continue an interrupted batch with its flags, and with those given here.",
        retry_failed=False,
    ),
    "report": report,
    "retry-failed": _resume(
        "Run failed and over-budget tasks again, from the start, and those that are still to do.",
        retry_failed=True,
    ),
}
