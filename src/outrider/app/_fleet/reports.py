"""Reports on a batch: at its end, in `outrider fleet status`, and as a file.

Also keeps the batch's settings in its journal. Does not run it: `run` does.
"""

from __future__ import annotations

import re
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Final, TypedDict, cast, get_args

import msgspec
from rich.text import Text

from outrider._display import one_line, printable
from outrider._folders import write_private
from outrider.app._flags import Code, Failed, in_one_line
from outrider.app._fleet.commands import BATCH_FLAGS
from outrider.app._fleet.progress import clock
from outrider.app._render import money, shortened
from outrider.app._terminal import Terminal
from outrider.errors import OptionsError
from outrider.fleet import (
    Adaptive,
    Budget,
    Copy,
    Empty,
    Journal,
    JournalInvalid,
    Keep,
    Ledger,
    Report,
    Retry,
    Workspace,
    Worktree,
)
from outrider.fleet._task import kept_options
from outrider.options import OptionFields, Options

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    from outrider.app._fleet.commands import Format
    from outrider.fleet import Counts, Engine

__all__ = ["BatchFields", "Settings", "at_the_end", "named", "show_status", "write_report"]


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


# Settings.

_META: Final = "command"
_KEEPS: Final = get_args(Keep)
_SPOKEN: Final[Mapping[str, str]] = {
    **{flag.option: flag.names[0] for flag in BATCH_FLAGS},
    "usd": "--budget-usd",
    "tokens": "--budget-tokens",
    "tool_calls": "--budget-tool-calls",
    "wall": "--budget-seconds",
    "Retry": "--tries",
    "Adaptive": "--concurrency",
}
"""What the library's words are on the command line."""


class BatchFields(TypedDict, total=False):
    """What the flags of a batch say."""

    concurrency: str
    workspace: str
    keep: Keep
    output: Mapping[str, object]
    """The schema itself, and not where it is: that may have changed when the batch is resumed."""
    ledger: str
    engine: str
    address: str
    budget_usd: float
    budget_tokens: int
    budget_tool_calls: int
    budget_seconds: float
    task_seconds: float
    tries: int
    on_usage_limit: str


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All that a batch is run with, but its tasks."""

    folder: str
    """Where it was begun: paths are meant from there."""
    batch: BatchFields = {}
    fields: dict[str, object] = {}
    """Options."""
    not_kept: tuple[str, ...] = ()
    """Variables of `--env`: a journal is no place for what may be secrets."""
    secret: tuple[str, ...] = ()
    """Options that had something in them that looks like a secret, and are not kept either."""

    @classmethod
    def read(cls, journal: Path) -> Self:
        """Those that the journal keeps. Raises `Failed` if it was not begun by the command."""
        with Journal(journal) as opened:
            kept = opened.meta(_META)
        if kept is None:
            raise Failed(
                f"{journal} was not begun by `outrider fleet run`. Use `outrider.fleet.resume` in Python.",
                Code.USAGE,
            )
        try:
            return msgspec.json.decode(kept, type=cls)
        except (ValueError, RecursionError) as error:
            raise JournalInvalid(journal, f"it is damaged ({error})") from error

    def keep(self, journal: Journal) -> None:
        """Write them into a journal."""
        env = cast("Mapping[str, str]", self.fields.get("env", {}))
        fields, secret = kept_options({name: value for name, value in self.fields.items() if name != "env"})
        kept = msgspec.structs.replace(self, fields=fields, not_kept=tuple(env), secret=tuple(secret))
        journal.set_meta(_META, msgspec.json.encode(kept).decode())

    def changed(self, batch: BatchFields, fields: OptionFields) -> Self:
        """With what was given now over it. Raises `Failed` if something that was not kept is missing."""
        env = fields.get("env", {})
        if missing := [name for name in self.not_kept if name not in env]:
            raise Failed(
                f"the batch was begun with --env {missing[0]}, whose value is not kept. Give it again.",
                Code.USAGE,
            )
        if missing := [name for name in self.secret if name not in fields]:
            raise Failed(
                f"the batch was begun with `{missing[0]}`, which had something in it that looks like a secret"
                " and is not kept. Give it again.",
                Code.USAGE,
            )
        return msgspec.structs.replace(
            self, batch={**self.batch, **batch}, fields={**self.fields, **fields}, not_kept=(), secret=()
        )

    # What they mean.

    @property
    def options(self) -> Options:
        """Raises `OptionsError`."""
        return Options(**cast("OptionFields", self.fields))

    def keywords(self) -> dict[str, object]:
        """Those of `outrider.fleet.map`. Raises `Failed`."""
        batch = self.batch
        with _spoken():
            chosen: dict[str, object] = {
                "concurrency": _concurrency(batch.get("concurrency")),
                "workspace": _workspace(batch),
                "output": batch.get("output"),
                "engine": _engine(batch),
                "budget": _budget(batch),
                "task_seconds": batch.get("task_seconds"),
                "retry": _retry(batch),
                "ledger": Ledger(batch["ledger"]) if "ledger" in batch else None,
            }
        return {name: value for name, value in chosen.items() if value is not None}


def _concurrency(given: str | None) -> Adaptive | None:
    if given is None:
        return None
    found = re.fullmatch(r"(\d{1,9})(?:\.\.(\d{1,9}))?", given.strip())
    if found is None:
        raise Failed(
            f"--concurrency is {given!r}. Give a number, or the least and the most: 2..16.", Code.USAGE
        )
    # A number alone is an `Adaptive` that stays: so both are checked alike.
    return Adaptive(int(found[1]), int(found[2] or found[1]))


def _workspace(batch: BatchFields) -> Workspace | None:
    given, keep = batch.get("workspace"), batch.get("keep", "never")
    if given is None:
        if "keep" in batch:
            raise Failed("--keep is for folders that --workspace makes. Give both.", Code.USAGE)
        return None
    if keep not in _KEEPS:
        raise Failed(f"--keep is {keep!r}. Give one of {', '.join(_KEEPS)}.", Code.USAGE)
    kind, _, place = given.partition(":")
    if kind == "empty" and not place:
        return Empty(keep=keep)
    if kind == "copy":
        return Copy(_folder(place), keep=keep)
    if kind == "worktree":
        # A folder may have an @ in its name.
        repo, at, ref = (place, "", "") if Path(place).is_dir() else place.rpartition("@")
        return Worktree(_folder(repo if at else place), ref if at else "HEAD", keep=keep)
    raise Failed(
        f"--workspace is {given!r}. Give empty, copy:FOLDER, worktree:REPO or worktree:REPO@REF.", Code.USAGE
    )


def _folder(place: str) -> str:
    path = Path(place or ".").absolute()
    if not path.is_dir():
        raise Failed(f"--workspace: there is no folder {str(path)!r}.", Code.USAGE)
    return str(path)


def _engine(batch: BatchFields) -> str | Engine | None:
    name, address = batch.get("engine"), batch.get("address")
    if name not in (None, "local", "ray"):
        raise Failed(f"--engine is {name!r}. Give local or ray.", Code.USAGE)
    if name == "ray":
        from outrider.fleet import RayEngine

        return RayEngine(address=address)
    if address is not None:
        raise Failed("--address is for --engine ray. Give both.", Code.USAGE)
    return name


def _budget(batch: BatchFields) -> Budget | None:
    if not any(name.startswith("budget_") for name in batch):
        return None
    return Budget(
        usd=batch.get("budget_usd"),
        tokens=batch.get("budget_tokens"),
        tool_calls=batch.get("budget_tool_calls"),
        wall=batch.get("budget_seconds"),
        name="batch",
    )


def _retry(batch: BatchFields) -> Retry | None:
    if not batch.keys() & {"tries", "on_usage_limit"}:
        return None
    usual = Retry()
    return Retry(
        max_tries=batch.get("tries", usual.max_tries),
        on_usage_limit=batch.get("on_usage_limit", usual.on_usage_limit),
    )


@contextmanager
def _spoken() -> Generator[None]:
    """Says what is wrong with a flag in the words of the command line."""
    try:
        yield
    except OptionsError as error:
        raise Failed(in_one_line(error, _SPOKEN), Code.USAGE) from error
