"""Reports on a batch: at its end, in `outrider fleet status`, and as a file.

Also keeps the batch's settings in its journal. Does not run it: `run` does.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Final, TypedDict, cast, get_args

import msgspec
from rich.text import Text

from outrider import fleet
from outrider._display import one_line, printable
from outrider._folders import write_private
from outrider.app._flags import BY_OPTION, Code, Failed, in_one_line
from outrider.app._fleet.commands import BATCH_FLAGS
from outrider.app._fleet.progress import STATUSES, clock
from outrider.app._render import counted, money, parsed_markdown, shortened
from outrider.app._terminal import Terminal
from outrider.approvals import Approvals
from outrider.approvals._approvals import PATIENCE
from outrider.errors import OptionsError
from outrider.fleet._journal.journal import is_queue
from outrider.fleet._task import is_secret, kept_options
from outrider.options import OptionFields, Options
from outrider.transcripts.stores._urls import shown

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    from outrider.app._fleet.commands import Format


_SUFFIXES: Final[Mapping[str, Format]] = {
    ".md": "markdown",
    ".markdown": "markdown",
    ".csv": "csv",
    ".json": "json",
    ".svg": "svg",
}


def shown_journal(journal: str) -> str:
    """A path or a URL, without its password, for a command that is to be copied."""
    return quote(one_line(shown(journal) if is_queue(journal) else journal))


# At the end.


def at_the_end(
    terminal: Terminal, report: fleet.Report, journal: str, *, was_interrupted: bool = False
) -> int:
    """Print the result of a batch; gives the exit code."""
    for line in _summary(terminal, report):
        terminal.note(line)
    sums = report.sums
    if report.pending:
        left = f"{counted(report.pending, 'task')} left. To continue: {_resumption(journal)}"
        terminal.note(Text(left, style="yellow"))
    elif sums.waiting:
        waiting = (
            f"{counted(sums.waiting, 'task')} waiting for approval. Once decided: {_resumption(journal)}"
        )
        terminal.note(Text(waiting, style="blue"))
    elif sums.failed or sums.over_budget:
        terminal.note(
            Text(f"To run them again: outrider fleet retry-failed {shown_journal(journal)}", style="dim")
        )
    terminal.note(Text(f"For a report: outrider fleet report {shown_journal(journal)}", style="dim"))
    if was_interrupted and report.pending:
        return Code.INTERRUPTED
    return Code.OK if sums.done == report.total else Code.FAILED


def _summary(terminal: Terminal, report: fleet.Report) -> Iterator[Text]:
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
        (f"{sums.done:,} of {counted(report.total, 'task')} done", "bold"),
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


def show_status(journal: str, *, no_color: bool, as_json: bool) -> int:
    """Print the progress of a batch; gives the exit code."""
    terminal = Terminal(no_color=no_color)
    with fleet.Journal(journal) as opened:
        counts, spent = opened.counts(), opened.spent()
        runner = opened.runner()
        started = [(entry.task.id, entry.attempts, entry.started_at) for entry in opened.started()]
    if as_json:
        content = {
            **msgspec.to_builtins(counts),
            "total": counts.total,
            "runner": runner,
            "cost_usd": spent.usd,
            "tokens": spent.tokens,
            "tool_calls": spent.tool_calls,
            "running": [id for id, _, _ in started] if runner else [],
        }
        terminal.write_json(msgspec.json.encode(content).decode())
        return Code.OK
    dot = f" {terminal.glyphs.dot} "
    terminal.print(Text(f"{counts.ended:,} of {counted(counts.total, 'task')} ended", style="bold"))
    terminal.print(Text.assemble((dot, "dim")).join(_states(counts, is_running=runner is not None)))
    terminal.print(
        Text(
            dot.join((money(spent.usd), f"{spent.tokens:,} tokens", counted(spent.tool_calls, "tool call"))),
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
        terminal.note(Text(f"It is not running. To continue: {_resumption(journal)}", style="yellow"))
    return Code.OK


def _resumption(journal: str) -> str:
    """How to go on with a batch."""
    settings = Settings.read(journal)
    if settings.without_flag is not None:
        named = ", ".join(f"`{name}`" for name in settings.needs)
        return f"outrider.fleet.resume({one_line(journal)!r}, …) in Python, with the same {named}"
    return " ".join(("outrider fleet resume", shown_journal(journal), *settings.missing))


def _states(counts: fleet.Counts, *, is_running: bool) -> list[Text]:
    states = (
        *STATUSES,
        ("started", "running" if is_running else "cut off", "cyan"),
        ("pending", "to go", ""),
    )
    found = [(getattr(counts, state), name, style) for state, name, style in states]
    return [Text(f"{count:,} {name}", style) for count, name, style in found if count or name == "done"]


def write_report(journal: str, format: Format | None, output: Path | None, *, no_color: bool) -> int:
    """Print or write a report; gives the exit code."""
    terminal = Terminal(no_color=no_color)
    chosen = format or _format(output)
    report = fleet.Report.from_journal(journal)
    written = {
        "markdown": report.to_markdown,
        "csv": report.to_csv,
        "json": report.to_json,
        "svg": report.to_svg,
    }[chosen]()
    if output is not None:
        write_private(output, written.encode())
        terminal.note(Text(f"Report written to {one_line(str(output))}", style="dim"))
    elif chosen == "markdown" and terminal.is_live:
        terminal.print(parsed_markdown(printable(written)))
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

META: Final = "command"
_KEEPS: Final = get_args(fleet.Keep)
_SPOKEN: Final[Mapping[str, str]] = {
    **{flag.option: flag.names[0] for flag in BATCH_FLAGS},
    "usd": "--budget-usd",
    "tokens": "--budget-tokens",
    "tool_calls": "--budget-tool-calls",
    "wall": "--budget-seconds",
    "Retry": "--tries",
    "Adaptive": "--concurrency",
}
"""The flag for each name that errors of the library use."""
_FLAG_OF: Final[Mapping[str, str]] = {
    **BY_OPTION,
    **_SPOKEN,
    # One of its limits is enough.
    **dict.fromkeys(
        ("budget", "budget_usd", "budget_tokens", "budget_tool_calls", "budget_seconds"), "--budget-usd"
    ),
}
"""The flag for each argument of a batch, as far as there is one."""


class BatchFields(TypedDict, total=False):
    """The flags of a batch."""

    concurrency: str
    workspace: str
    keep: fleet.Keep
    output: Mapping[str, object]
    """The schema itself: its file may have changed when the batch is resumed."""
    ledger: str
    approvals: str
    patience: float
    engine: str
    address: str
    budget_usd: float
    budget_tokens: int
    budget_tool_calls: int
    budget_seconds: float
    task_seconds: float
    tries: int
    max_failures: str
    on_usage_limit: str


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a batch, except its tasks."""

    folder: str
    """Where it began: paths are relative to it."""
    batch: BatchFields = {}
    fields: dict[str, object] = {}
    """Options."""
    not_kept: tuple[str, ...] = ()
    """Variables of `--env`, which may be secrets and are not kept."""
    secret: tuple[str, ...] = ()
    """Options that are not kept because they seem to contain a secret."""
    needs: dict[str, bool] = {}
    """What a batch was given in Python and its journal does not have; True for what a flag could give."""

    @classmethod
    def read(cls, journal: str) -> Self:
        """Read those of a journal. Raises `JournalInvalid`."""
        with fleet.Journal(journal) as opened:
            kept, needs, folder = (opened.meta(name) for name in (META, "needs", "folder"))
        try:
            if kept is not None:
                return msgspec.json.decode(kept, type=cls)
            # It was begun in Python.
            given = msgspec.json.decode(needs or "{}", type=dict[str, bool])
            return cls(folder=folder or str(Path.cwd()), needs=given)
        except (ValueError, RecursionError) as error:
            raise fleet.JournalInvalid(journal, f"it is damaged ({error})") from error

    @property
    def without_flag(self) -> str | None:
        """Something that is needed and that no flag can give."""
        needed = self.needs.items()
        return next((name for name, is_plain in needed if not is_plain or name not in _FLAG_OF), None)

    @property
    def missing(self) -> list[str]:
        """The flags that have to be given to go on with the batch, each with its value left open."""
        flags = [f"{_FLAG_OF[name]} …" for name in self.needs if name in _FLAG_OF]
        unset = [name for name in self.not_kept if name not in os.environ]
        return [
            *flags,
            *(f"--env {name}=…" for name in unset),
            *(f"{_FLAG_OF[each]} …" for each in self.secret),
        ]

    def keep(self, journal: fleet.Journal) -> None:
        """Write them into a journal."""
        env = cast("Mapping[str, str]", self.fields.get("env", {}))
        fields, secret = kept_options({name: value for name, value in self.fields.items() if name != "env"})
        batch = self.batch.copy()
        if is_secret(batch.get("approvals")):
            secret.append("approvals")
            del batch["approvals"]
        kept = msgspec.structs.replace(
            self, batch=batch, fields=fields, not_kept=tuple(env), secret=tuple(secret)
        )
        journal.set_meta(META, msgspec.json.encode(kept).decode())

    def changed(self, batch: BatchFields, fields: OptionFields) -> Self:
        """Override them with flags. Raises `Failed` if something that was not kept is missing."""
        if self.without_flag is not None:
            raise Failed(
                f"The batch was begun in Python with {self.without_flag!r}, which no flag can give. Continue"
                " it there, with `outrider.fleet.resume`.",
                Code.USAGE,
            )
        given = {_FLAG_OF.get(name) for name in (*batch, *fields)}
        if lacking := [name for name in self.needs if _FLAG_OF[name] not in given]:
            raise Failed(
                f"The batch was begun in Python with {lacking[0]!r}. Give it as {_FLAG_OF[lacking[0]]}.",
                Code.USAGE,
            )
        env = {name: os.environ[name] for name in self.not_kept if name in os.environ}
        env |= fields.get("env", {})
        if missing := [name for name in self.not_kept if name not in env]:
            raise Failed(
                f"The batch was begun with --env {missing[0]}, whose value is not kept. `export` it, or give"
                " it again.",
                Code.USAGE,
            )
        if env:
            fields = {**fields, "env": env}
        if missing := [name for name in self.secret if name not in (*batch, *fields)]:
            raise Failed(
                f"The batch was begun with `{missing[0]}`, which had something in it that looks like a secret"
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
        options = Options(**cast("OptionFields", self.fields))
        batch = self.batch
        if "approvals" in batch:
            with _spoken():
                given = Approvals(batch["approvals"], patience=batch.get("patience", PATIENCE))
            return options.replace(approvals=given)
        if "patience" in batch:
            raise Failed("--patience is for --approvals. Give both.", Code.USAGE)
        return options

    def keywords(self) -> dict[str, object]:
        """The keywords for `outrider.fleet.map`. Raises `Failed`."""
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
                "max_failures": _failures(batch.get("max_failures")),
                "ledger": fleet.Ledger(batch["ledger"]) if "ledger" in batch else None,
            }
        return {name: value for name, value in chosen.items() if value is not None}


def _concurrency(given: str | None) -> fleet.Adaptive | None:
    if given is None:
        return None
    found = re.fullmatch(r"(\d{1,9})(?:\.\.(\d{1,9}))?", given.strip())
    if found is None:
        raise Failed(
            f"--concurrency is {given!r}. Give a number, or the least and the most: 2..16.", Code.USAGE
        )
    # A number alone is an `Adaptive` that stays: so both are checked alike.
    return fleet.Adaptive(int(found[1]), int(found[2] or found[1]))


def _failures(given: str | None) -> float | None:
    if given is None:
        return None
    found = re.fullmatch(r"(\d{1,9})(%?)", given.strip())
    if found is None or not int(found[1]) or (found[2] and int(found[1]) > 99):
        raise Failed(f"--max-failures is {given!r}. Give a number, or a share: 50%.", Code.USAGE)
    return int(found[1]) / 100 if found[2] else int(found[1])


def _workspace(batch: BatchFields) -> fleet.Workspace | None:
    given, keep = batch.get("workspace"), batch.get("keep", "never")
    if given is None:
        if "keep" in batch:
            raise Failed("--keep is for folders that --workspace makes. Give both.", Code.USAGE)
        return None
    if keep not in _KEEPS:
        raise Failed(f"--keep is {keep!r}. Give one of {', '.join(_KEEPS)}.", Code.USAGE)
    kind, _, place = given.partition(":")
    if kind == "empty" and not place:
        return fleet.Empty(keep=keep)
    if kind == "copy":
        return fleet.Copy(_folder(place), keep=keep)
    if kind == "worktree":
        # A folder may have an @ in its name.
        repo, at, ref = (place, "", "") if Path(place).is_dir() else place.rpartition("@")
        return fleet.Worktree(_folder(repo if at else place), ref if at else "HEAD", keep=keep)
    raise Failed(
        f"--workspace is {given!r}. Give empty, copy:FOLDER, worktree:REPO or worktree:REPO@REF.", Code.USAGE
    )


def _folder(place: str) -> str:
    path = Path(place or ".").absolute()
    if not path.is_dir():
        raise Failed(f"--workspace: there is no folder {str(path)!r}.", Code.USAGE)
    return str(path)


def _engine(batch: BatchFields) -> str | fleet.Engine | None:
    name, address = batch.get("engine"), batch.get("address")
    if name not in (None, "local", "ray"):
        raise Failed(f"--engine is {name!r}. Give local or ray.", Code.USAGE)
    if name == "ray":
        from outrider.fleet import RayEngine

        return RayEngine(address=address)
    if address is not None:
        raise Failed("--address is for --engine ray. Give both.", Code.USAGE)
    return name


def _budget(batch: BatchFields) -> fleet.Budget | None:
    if not any(name.startswith("budget_") for name in batch):
        return None
    return fleet.Budget(
        usd=batch.get("budget_usd"),
        tokens=batch.get("budget_tokens"),
        tool_calls=batch.get("budget_tool_calls"),
        wall=batch.get("budget_seconds"),
        name="batch",
    )


def _retry(batch: BatchFields) -> fleet.Retry | None:
    if not batch.keys() & {"tries", "on_usage_limit"}:
        return None
    usual = fleet.Retry()
    return fleet.Retry(
        max_tries=batch.get("tries", usual.max_tries),
        on_usage_limit=batch.get("on_usage_limit", usual.on_usage_limit),
    )


@contextmanager
def _spoken() -> Generator[None]:
    """Turn an invalid option into an error that names its flag."""
    try:
        yield
    except OptionsError as error:
        raise Failed(in_one_line(error, _SPOKEN), Code.USAGE) from error
