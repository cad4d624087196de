"""Owns what a batch came to, at the command line: at its end, in `outrider fleet status`, and as a report.

Does not run it.
"""

from __future__ import annotations

import time
from shlex import quote
from typing import TYPE_CHECKING, Final

import msgspec
from rich.text import Text

from outrider._private import write_private
from outrider.app._failing import Code, Failed
from outrider.app._fleet_progress import clock
from outrider.app._saying import money, shortened
from outrider.app._terminal import Terminal, one_line, printable
from outrider.fleet import Journal, Report

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from outrider.app._fleet_commands import Format
    from outrider.fleet import Counts

__all__ = ["at_the_end", "named", "show_status", "write_report"]

_SUFFIXES: Final[Mapping[str, Format]] = {
    ".md": "markdown",
    ".markdown": "markdown",
    ".csv": "csv",
    ".json": "json",
    ".svg": "svg",
}


def named(count: int, thing: str) -> str:
    """A number of things: `1 task`, `2 tasks`."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def _path(path: Path) -> str:
    """A path, for a command that is to be copied."""
    return quote(one_line(str(path)))


# At the end.


def at_the_end(terminal: Terminal, report: Report, journal: Path, *, was_interrupted: bool = False) -> int:
    """Say what a batch came to; gives the exit code."""
    for line in _summary(terminal, report):
        terminal.note(line)
    sums = report.sums
    if report.pending:
        left = f"{named(report.pending, 'task')} left; go on with: outrider fleet resume {_path(journal)}"
        terminal.note(Text(left, style="yellow"))
    elif sums.failed or sums.over_budget:
        terminal.note(Text(f"run them again: outrider fleet retry-failed {_path(journal)}", style="dim"))
    terminal.note(Text(f"the report: outrider fleet report {_path(journal)}", style="dim"))
    if was_interrupted and report.pending:
        return Code.INTERRUPTED
    return Code.OK if sums.done == report.total else Code.FAILED


def _summary(terminal: Terminal, report: Report) -> Iterator[Text]:
    glyphs, sums = terminal.glyphs, report.sums
    dot = f" {glyphs.dot} "
    is_good = sums.done == report.total
    figures = [
        clock(report.active_seconds),
        money(sums.usage.cost_usd),
        f"{sums.usage.total_tokens:,} tokens",
    ]
    yield Text.assemble(
        (f"{glyphs.good if is_good else glyphs.warning} ", "green" if is_good else "yellow"),
        (f"{sums.done:,} of {named(report.total, 'task')} done", "bold"),
        (dot + dot.join(figures), "dim"),
    )
    for failure in report.failures:
        error = one_line(failure.error.strip().partition("\n")[0])
        line = Text.assemble(
            (f"{glyphs.bad} ", "red"),
            f"{failure.count:,} {one_line(failure.kind)}",
            (f"  {shortened(error, 200)}", "dim"),
        )
        if terminal.err.is_terminal:
            line.truncate(terminal.err.width - 1, overflow="ellipsis")
        yield line


# While it runs, and after.


def show_status(journal: Path, *, no_color: bool, as_json: bool) -> int:
    """Print how far a batch has come; gives the exit code."""
    terminal = Terminal(no_color=no_color)
    with Journal(journal) as opened:
        counts, spent = opened.counts(), opened.spent()
        runner = opened.runner()
        started = [(entry.task.id, entry.attempts, entry.started_at) for entry in opened.started()]
    if as_json:
        told = {
            **msgspec.to_builtins(counts),
            "total": counts.total,
            "runner": runner,
            "cost_usd": spent.usd,
            "tokens": spent.tokens,
            "tool_calls": spent.tool_calls,
            "running": [id for id, _, _ in started] if runner else [],
        }
        terminal.write_json(msgspec.json.encode(told).decode())
        return Code.OK
    dot = f" {terminal.glyphs.dot} "
    terminal.print(Text(f"{counts.ended:,} of {named(counts.total, 'task')} ended", style="bold"))
    terminal.print(Text.assemble((dot, "dim")).join(_states(counts, is_running=runner is not None)))
    terminal.print(
        Text(
            dot.join((money(spent.usd), f"{spent.tokens:,} tokens", named(spent.tool_calls, "tool call"))),
            "dim",
        )
    )
    if runner is not None:
        terminal.print(Text(f"run by {one_line(runner)}", style="dim"))
        for id, attempts, since in started:
            line = Text.assemble((f"  {terminal.glyphs.tool} ", "cyan"), shortened(one_line(id), 36))
            line.append(f"  {clock(time.time() - (since or time.time()))}", "dim")
            if attempts > 1:
                line.append(f"  try {attempts}", "yellow")
            terminal.print(line)
    elif counts.ended < counts.total:
        terminal.note(
            Text(f"nobody runs it; go on with: outrider fleet resume {_path(journal)}", style="yellow")
        )
    return Code.OK


def _states(counts: Counts, *, is_running: bool) -> list[Text]:
    states = (
        (counts.done, "done", "green"),
        (counts.failed, "failed", "red"),
        (counts.over_budget, "over budget", "yellow"),
        (counts.skipped, "skipped", "dim"),
        (counts.started, "running" if is_running else "cut off", "cyan"),
        (counts.pending, "to go", ""),
    )
    return [Text(f"{count:,} {name}", style) for count, name, style in states if count or name == "done"]


def write_report(journal: Path, format: Format | None, output: Path | None, *, no_color: bool) -> int:
    """Print or write a report; gives the exit code."""
    terminal = Terminal(no_color=no_color)
    chosen = format or _format(output)
    report = Report.from_journal(journal)
    written = {
        "markdown": report.to_markdown,
        "csv": report.to_csv,
        "json": report.to_json,
        "svg": report.to_svg,
    }[chosen]()
    if output is not None:
        write_private(output, written.encode())
        terminal.note(Text(f"the report is in {one_line(str(output))}", style="dim"))
    elif chosen == "markdown" and terminal.is_live:
        from rich.markdown import Markdown

        terminal.print(Markdown(printable(written), hyperlinks=False))
    else:
        terminal.write_json(written.rstrip()) if chosen == "json" else terminal.write(written)
    return Code.OK


def _format(output: Path | None) -> Format:
    if output is None:
        return "markdown"
    if (found := _SUFFIXES.get(output.suffix.lower())) is None:
        known = ", ".join(dict.fromkeys(_SUFFIXES.values()))
        raise Failed(f"{output}: a report is {known}. Say which with --format.", Code.USAGE)
    return found
