"""Owns how a report is written: as Markdown for people, as CSV for tables, as JSON for programs.

Does not work it out: `Report` does.
"""

from __future__ import annotations

import csv as tables
import io
from collections.abc import Container, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import msgspec

from outrider._display import escaped_json, one_line, plain
from outrider.redaction import mask

if TYPE_CHECKING:
    from outrider.fleet._report.report import FailureKind, Part, Report
    from outrider.fleet._task import Outcome

__all__ = ["csv", "in_words", "json", "markdown", "money"]

_LONGEST_ERROR: Final = 160
_FORMULAS: Final = ("=", "+", "-", "@", "\t", "\r", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""What a formula begins with, for some programs in their wide forms too."""
_BLANKS: Final = " \n\N{NO-BREAK SPACE}"
"""What some programs leave out before it."""
_COLUMNS: Final = (
    *("number", "id", "status", "duration", "attempts", "cost_usd"),
    *("input_tokens", "output_tokens", "cache_read_tokens", "cache_creation_tokens"),
    *("started_at", "ended_at", "session_id", "workspace", "error_kind", "error", "text", "output"),
)


# Markdown.


def markdown(report: Report) -> str:
    """A report as a page."""
    return "\n".join(_page(report))


def _page(report: Report) -> Iterator[str]:
    yield f"# {report.sums.done:,} of {report.total:,} tasks done\n"
    yield from _table(("", ""), _figures(report))
    if report.latency is not None:
        times = report.latency
        yield "\n## How long tasks took\n"
        figures = [in_words(each) for each in (times.p50, times.p90, times.p99, times.max)]
        yield from _table(("half", "90 %", "99 %", "all"), [figures], numbers=range(4))
        yield "\nThe slowest:\n"
        yield from _table(
            ("task", "time", "tries", "cost", "status"),
            [
                (
                    _code(each.id),
                    in_words(each.duration),
                    str(each.attempts),
                    money(each.usage.cost_usd),
                    each.status.replace("_", " "),
                )
                for each in report.slowest
            ],
            numbers=range(1, 4),
        )
    if report.failures:
        yield "\n## What failed\n"
        yield from _table(("error", "tasks", "for example", "what it says"), map(_failure, report.failures))
    for name, parts in report.by_tag.items():
        yield f"\n## By {_text(name)}\n"
        yield from _table(
            (_text(name), "done", "failed", "over budget", "cost", "tokens"),
            [(_text(value), *_part(part)) for value, part in parts.items()],
            numbers=range(1, 6),
        )
    yield ""


def _figures(report: Report) -> Iterator[tuple[str, str]]:
    sums, usage = report.sums, report.sums.usage
    yield "done", f"{sums.done:,}"
    for name, count in (
        ("failed", sums.failed),
        ("over budget", sums.over_budget),
        ("skipped", sums.skipped),
        ("not ended", report.pending),
    ):
        if count:
            yield name, f"{count:,}"
    yield "cost", money(usage.cost_usd)
    yield "tokens", f"{usage.total_tokens:,}"
    yield "tries", f"{report.attempts:,}"
    yield "time at work", in_words(report.active_seconds)
    if report.rate_per_minute is not None:
        yield "tasks a minute", f"{report.rate_per_minute:,.1f}"
    for name, moment in (("began", report.began_at), ("ended", report.ended_at)):
        if moment is not None:
            yield name, _moment(moment).strftime("%Y-%m-%d %H:%M:%S UTC")


def _failure(failure: FailureKind) -> tuple[str, ...]:
    # The lines below the first are details.
    error = mask(failure.error).strip().partition("\n")[0]
    if len(error) > _LONGEST_ERROR:
        error = f"{error[: _LONGEST_ERROR - 1]}…"
    return _code(failure.kind), f"{failure.count:,}", ", ".join(map(_code, failure.ids)), _text(error)


def _part(part: Part) -> tuple[str, ...]:
    counts = (part.done, part.failed, part.over_budget)
    return (
        *(f"{each:,}" for each in counts),
        money(part.usage.cost_usd),
        f"{part.usage.total_tokens:,}",
    )


def _table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Container[int] = (1,)
) -> Iterator[str]:
    """A table that is one in the source, too; `numbers`: the columns that stand at the right."""
    cells = [tuple(heads), *(tuple(row) for row in rows)]
    widths = [max(3, *(len(row[column]) for row in cells)) for column in range(len(heads))]
    rules = ["-" * (width - 1) + (":" if column in numbers else "-") for column, width in enumerate(widths)]
    for number, row in enumerate(cells):
        yield _row(
            cell.rjust(width) if column in numbers else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        if number == 0:
            yield _row(rules)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _text(text: str) -> str:
    """A text of somebody else's, for a cell of a table: neither markup nor a further cell."""
    text = one_line(text)
    for sign in "\\`*_[]<>|#":
        text = text.replace(sign, f"\\{sign}")
    return text


def _code(text: str) -> str:
    shown = one_line(text).replace("`", "'").replace("|", "\\|")
    return f"`{shown or ' '}`"


# Tables and values.


def csv(report: Report) -> str:
    """A line for each outcome, and one for the names of the columns; a column for each tag."""
    written = io.StringIO()
    # Otherwise a carriage return alone would stand without quotes.
    writer = tables.writer(written, lineterminator="\n", quoting=tables.QUOTE_NONNUMERIC)
    tags = list(report.by_tag)
    writer.writerow((*_COLUMNS, *(plain(f"tag:{name}") for name in tags)))
    for outcome in report.outcomes:
        fields = _fields(outcome)
        cells = (*(fields[name] for name in _COLUMNS), *(outcome.tags.get(name) for name in tags))
        writer.writerow(map(_no_formula, cells))
    return written.getvalue()


def _no_formula(cell: object) -> object:
    """A cell that a spreadsheet shows and does not reckon with: a quote before it makes it a text. CSV has no
    way to write what cannot be shown, so that is replaced."""
    if not isinstance(cell, str):
        return cell
    return f"'{plain(cell)}" if cell.lstrip(_BLANKS).startswith(_FORMULAS) else plain(cell)


def json(report: Report) -> str:
    """An object."""
    value = {
        "total": report.total,
        "pending": report.pending,
        **_sums(report.sums),
        "attempts": report.attempts,
        "began_at": _iso(report.began_at),
        "ended_at": _iso(report.ended_at),
        "active_seconds": report.active_seconds,
        "rate_per_minute": report.rate_per_minute,
        "latency": report.latency,
        "slowest": [outcome.id for outcome in report.slowest],
        "failures": report.failures,
        "by_tag": {
            name: {value: _sums(part) for value, part in parts.items()}
            for name, parts in report.by_tag.items()
        },
        "outcomes": [outcome.to_json() for outcome in report.outcomes],
    }
    return escaped_json(msgspec.json.format(msgspec.json.encode(value)).decode()) + "\n"


def _sums(part: Part) -> dict[str, object]:
    return {
        **{name: getattr(part, name) for name in ("done", "failed", "over_budget", "skipped")},
        **_usage(part),
    }


def _usage(used: Part | Outcome[object]) -> dict[str, object]:
    names = ("cost_usd", "input_tokens", "output_tokens", "cache_read_tokens", "cache_creation_tokens")
    return {name: getattr(used.usage, name) for name in names}


def _fields(outcome: Outcome[object]) -> dict[str, object]:
    output = outcome.raw_output
    return {
        "number": outcome.number,
        "id": outcome.id,
        "status": outcome.status,
        "duration": round(outcome.duration, 3),
        "attempts": outcome.attempts,
        **_usage(outcome),
        "started_at": _iso(outcome.started_at),
        "ended_at": _iso(outcome.ended_at),
        "session_id": outcome.session_id,
        "workspace": outcome.workspace,
        "error_kind": outcome.error_kind,
        "error": outcome.error,
        "text": outcome.text,
        "output": None if output is None else msgspec.json.encode(output).decode(),
    }


def _iso(moment: float | None) -> str | None:
    return None if moment is None else _moment(moment).isoformat(timespec="milliseconds")


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


# Words.


def in_words(seconds: float) -> str:
    """A time: `0.4 s`, `2 min 5 s`, `3 h 20 min`."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60:,} h {minutes % 60} min"


def money(usd: float) -> str:
    """An amount, with as many digits as say something."""
    return f"${usd:,.2f}" if usd >= 0.995 or usd == 0 else f"${usd:.4f}"
