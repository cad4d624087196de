"""Defines the flags and commands of `outrider fleet`, one function each.

They are implemented in `run` and `reports`, which are imported when one runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias, TypeVar

import typer

from outrider.app._flags import FLAGS, Flag, Switches, with_flags
from outrider.options import OptionFields

__all__ = ["BATCH_FLAGS", "FLEET_COMMANDS", "TASK_FLAGS", "Format"]

Format: TypeAlias = Literal["markdown", "csv", "json", "svg"]

F = TypeVar("F", bound=Callable[..., object])

_BATCH, _LIMITS = "Batch", "Limits of the batch"

BATCH_FLAGS: Final[tuple[Flag, ...]] = (
    Flag(
        ("--concurrency", "-j"),
        "concurrency",
        "How many tasks run at once: 8, or the least and the most: 2..16. Default: 1..16.",
        value="N",
        group=_BATCH,
    ),
    Flag(
        ("--workspace", "-w"),
        "workspace",
        "A folder of its own for each task: empty, copy:FOLDER, worktree:REPO or worktree:REPO@REF.",
        value="KIND",
        group=_BATCH,
    ),
    Flag(("--keep",), "keep", "Keep these folders: never, failed, always.", value="WHEN", group=_BATCH),
    Flag(("--output",), "output", "A JSON Schema that the answers must fit.", value="SCHEMA", group=_BATCH),
    Flag(
        ("--ledger",), "ledger", "Keep an account of every turn: .db or .jsonl.", value="FILE", group=_BATCH
    ),
    Flag(("--engine",), "engine", "Where tasks run: local, ray.", value="NAME", group=_BATCH),
    Flag(
        ("--address",),
        "address",
        "The cluster for --engine ray. Default: one here.",
        value="URL",
        group=_BATCH,
    ),
    Flag(("--budget-usd",), "budget_usd", "What all tasks may cost together.", "number", "USD", _LIMITS),
    Flag(
        ("--budget-tokens",), "budget_tokens", "How many tokens they may use together.", "whole", "N", _LIMITS
    ),
    Flag(
        ("--budget-tool-calls",),
        "budget_tool_calls",
        "How many tools they may call together.",
        "whole",
        "N",
        _LIMITS,
    ),
    Flag(
        ("--budget-seconds",), "budget_seconds", "How long the batch may take.", "number", "SECONDS", _LIMITS
    ),
    Flag(("--task-seconds",), "task_seconds", "What one task may take.", "number", "SECONDS", _LIMITS),
    Flag(
        ("--tries",),
        "tries",
        "How often a task is tried when the API fails. Default: 5.",
        "whole",
        "N",
        _LIMITS,
    ),
    Flag(
        ("--on-usage-limit",),
        "on_usage_limit",
        "wait, raise, or a model to go on with.",
        value="WHAT",
        group=_LIMITS,
    ),
)
"""The flags of `run`, `resume` and `retry-failed`."""

_OF_ONE_SESSION: Final = frozenset(
    ("resume", "continue_conversation", "fork_session", "title", "include_partial_messages", "trace")
)
TASK_FLAGS: Final[tuple[Flag, ...]] = tuple(flag for flag in FLAGS if flag.option not in _OF_ONE_SESSION)
"""The flags of `outrider run` that can hold for many tasks."""

# How flags and arguments are described; as types, because that is where typer looks.
_JournalFile: TypeAlias = Annotated[
    Path, typer.Argument(help="The journal of a batch.", metavar="JOURNAL", show_default=False)
]
_Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON.", metavar="")]
_JsonLines: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print the outcome of each task as JSON, one a line.", metavar="")
]


def _with_batch_flags(function: F) -> F:
    return with_flags(with_flags(function, BATCH_FLAGS, into="batch"), TASK_FLAGS)


@_with_batch_flags
def run(
    switches: Switches,
    file: Annotated[
        Path,
        typer.Argument(
            help="Tasks, one a line: JSON objects with a prompt; '-': standard input.",
            metavar="TASKS",
            show_default=False,
        ),
    ],
    journal: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Where to keep what becomes of them.", show_default="TASKS with .journal"
        ),
    ] = None,
    json: _JsonLines = False,
    *,
    batch: Mapping[str, object],
    fields: OptionFields,
) -> int:
    """Run the tasks of a file. Ctrl-C finishes what runs, twice stops it; `resume` goes on."""
    from outrider.app._fleet.run import run_tasks

    return run_tasks(file, journal, batch, fields, no_color=switches.no_color, as_json=json)


def status(switches: Switches, journal: _JournalFile, json: _Json = False) -> int:
    """Show how far a batch has come, while it runs or after."""
    from outrider.app._fleet.reports import show_status

    return show_status(journal, no_color=switches.no_color, as_json=json)


@_with_batch_flags
def resume(
    switches: Switches,
    journal: _JournalFile,
    json: _JsonLines = False,
    *,
    batch: Mapping[str, object],
    fields: OptionFields,
) -> int:
    """Go on with a batch that was interrupted, with the flags that it was begun with and those given here."""
    from outrider.app._fleet.run import resume_tasks

    return resume_tasks(journal, batch, fields, no_color=switches.no_color, as_json=json, retry_failed=False)


def report(
    switches: Switches,
    journal: _JournalFile,
    format: Annotated[
        Format | None,
        typer.Option("--format", "-f", help="How.", show_default="as FILE is named, else markdown"),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Where to; else stdout.", show_default=False),
    ] = None,
) -> int:
    """Write what a batch came to: as Markdown, CSV, JSON, or as a plot (SVG)."""
    from outrider.app._fleet.reports import write_report

    return write_report(journal, format, output, no_color=switches.no_color)


@_with_batch_flags
def retry_failed(
    switches: Switches,
    journal: _JournalFile,
    json: _JsonLines = False,
    *,
    batch: Mapping[str, object],
    fields: OptionFields,
) -> int:
    """Run the tasks that failed or were over budget again, from the start, and what is left to do."""
    from outrider.app._fleet.run import resume_tasks

    return resume_tasks(journal, batch, fields, no_color=switches.no_color, as_json=json, retry_failed=True)


FLEET_COMMANDS: Final[dict[str, Callable[..., int]]] = {
    "run": run,
    "status": status,
    "resume": resume,
    "report": report,
    "retry-failed": retry_failed,
}
