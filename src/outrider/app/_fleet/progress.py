"""Shows a batch while it runs: at the bottom of a terminal, or one line per task.

Does not run it: `run` does.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from typing import TYPE_CHECKING, Final

import msgspec
from rich.cells import cell_len, set_cell_size
from rich.console import Group
from rich.live import Live
from rich.text import Text

from outrider._display import escaped_json, one_line
from outrider.app._render import money, shortened
from outrider.app._terminal import UNICODE, Terminal

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self

    from rich.console import Console

    from outrider.app._terminal import Glyphs
    from outrider.fleet import Outcome, Progress


_MOST_RUNNING: Final = 8
_MOST_FAILURES: Final = 3
_WIDEST: Final = 100
"""The greatest width: longer lines are hard to read."""
_LONGEST_ID: Final = 36
STATUSES: Final = (
    ("done", "done", "green"),
    ("failed", "failed", "red"),
    ("over_budget", "over budget", "yellow"),
    ("waiting", "waiting", "blue"),
    ("skipped", "skipped", "dim"),
)


class Board:
    """Shows how far a batch has come, until it is left."""

    def __init__(self, terminal: Terminal, *, as_json: bool, ended: int = 0) -> None:
        """`ended`: how many tasks have ended before."""
        self._terminal = terminal
        self._as_json = as_json
        self._ended = ended
        self._console = _watched(terminal)
        self._live: Live | None = None
        self._failures: deque[tuple[str, str]] = deque(maxlen=_MOST_FAILURES)
        """Names and words."""
        self._rows = 0
        self._shown: list[Text] = []
        self._waits: str | None = None

    def __enter__(self) -> Self:
        if self._console is not None:
            self._live = Live(
                console=self._console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                # Warnings are to stand above it.
                redirect_stderr=sys.stderr.isatty(),
            )
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Erase what is drawn."""
        live, self._live = self._live, None
        if live is not None:
            live.update(Text(""))
            live.stop()

    def show(self, progress: Progress) -> None:
        """Draw the progress, if it has changed."""
        waits = waiting(progress)
        if self._live is None:
            if waits != self._waits and waits is not None:
                self._terminal.note(Text(waits))
            self._waits = waits
            return
        console = self._live.console
        self._rows = max(self._rows, min(progress.running, _MOST_RUNNING))
        lines = picture(
            progress,
            self._failures,
            size=(console.height, min(console.width - 1, _WIDEST)),
            glyphs=self._terminal.glyphs,
            rows=0 if progress.is_draining else self._rows,
            now=time.time(),
        )
        if lines != self._shown:
            self._shown = lines
            self._live.update(Group(*lines), refresh=True)

    def ended(self, outcome: Outcome[object], progress: Progress) -> None:
        """Show that a task has ended."""
        self._ended += 1
        if outcome.status != "done" and outcome.error is not None:
            self._failures.append((_name(outcome.id), _words(outcome)))
        if self._as_json:
            self._print(escaped_json(msgspec.json.encode(outcome.to_json()).decode()))
        elif self._live is None or not self._terminal.out.is_terminal:
            self._print(line_of(outcome, self._ended, progress.total))

    def say(self, text: str) -> None:
        """Print a line that stays."""
        said = Text(text, style="yellow")
        if self._live is not None:
            self._live.console.print(said)
        else:
            self._terminal.note(said)

    def _print(self, line: str) -> None:
        if self._live is not None and self._live.console is self._terminal.out:
            self._terminal.out.print(line, markup=False, highlight=False, soft_wrap=True)
        else:
            self._terminal.write(f"{line}\n")


def _watched(terminal: Terminal) -> Console | None:
    """The console that is a terminal on which drawn output can be erased."""
    for console in (terminal.out, terminal.err):
        if console.is_terminal and not console.is_dumb_terminal:
            return console
    return None


# Pictures.


def picture(
    progress: Progress,
    failures: Iterable[tuple[str, str]],
    *,
    size: tuple[int, int],
    glyphs: Glyphs,
    rows: int,
    now: float,
) -> list[Text]:
    """The progress of a batch, as lines that fit `size`. `failures` are names and errors; `rows` is the least
    number of lines for running tasks."""
    height, width = size
    dot = f" {glyphs.dot} "
    lines = [_bar(progress, width, glyphs), _joined(_counts(progress), dot, width)]
    lines.append(_joined(_rates(progress), dot, width))
    if waits := waiting(progress):
        lines.append(Text(waits, style="yellow"))
    failed = _failed(list(failures), glyphs)
    # One line is for the cursor, and two are empty.
    room = max(height - len(lines) - len(failed) - 3, 0)
    current = sorted(progress.current, key=lambda each: each.began_at)
    shown = current[: min(_MOST_RUNNING, room)]
    if shown:
        named = min(max(cell_len(_name(each.id)) for each in shown), max(width - 24, 8))
        lines.append(Text(""))
        for each in shown:
            line = Text.assemble((f"{glyphs.tool} ", "cyan"), set_cell_size(_name(each.id), named))
            line.append(f"  {clock(now - each.began_at):>7}", "dim")
            if each.attempt > 1:
                line.append(f"  try {each.attempt}", "yellow")
            lines.append(line)
        lines += [Text("")] * (min(rows, room) - len(shown))
    if failed:
        lines += [Text(""), *failed]
    for line in lines:
        line.truncate(width, overflow="ellipsis" if glyphs is UNICODE else "crop")
    return lines[: max(height - 1, 1)]


def _failed(failures: list[tuple[str, str]], glyphs: Glyphs) -> list[Text]:
    width = max((cell_len(name) for name, _ in failures), default=0)
    return [
        Text.assemble((f"{glyphs.bad} ", "red"), set_cell_size(name, width), (f"  {words}", "dim"))
        for name, words in failures
    ]


def _bar(progress: Progress, width: int, glyphs: Glyphs) -> Text:
    full, empty = ("━", "─") if glyphs is UNICODE else ("#", "-")
    total = progress.total
    if total is None:
        return Text(f"{progress.ended:,} ended", style="bold")
    share = 100 if not total else progress.ended * 100 // total
    tail = f"  {progress.ended:,} of {total:,}  {share:>3} %"
    cells = max(width - len(tail), 8)
    line, used, so_far = Text(), 0, 0
    for status, _, style in STATUSES:
        so_far += getattr(progress, status)
        end = cells * so_far // max(total, 1)
        line.append(full * (end - used), style)
        used = end
    return line.append(empty * (cells - used), "dim").append(tail, "bold")


def _counts(progress: Progress) -> list[Text]:
    parts = [
        Text(f"{count:,} {name}", style)
        for status, name, style in STATUSES
        if (count := getattr(progress, status)) or status == "done"
    ]
    parts.append(Text(f"{progress.running:,} running", "cyan"))
    if progress.total is not None:
        left = progress.total - progress.ended - progress.running
        parts.append(Text(f"{max(left, 0):,} to go"))
    return parts


def _rates(progress: Progress) -> list[Text]:
    parts = [money(progress.cost_usd), f"{progress.tokens:,} tokens"]
    if progress.rate_per_minute:
        parts.insert(0, f"{progress.rate_per_minute:,.1f} a minute")
    if progress.seconds_left is not None and not progress.is_draining:
        parts.insert(0, f"{clock(progress.seconds_left)} left")
    return [Text(part, "dim") for part in parts]


def _joined(parts: list[Text], dot: str, width: int) -> Text:
    """As many of the parts as fit."""
    while len(parts) > 1 and sum(part.cell_len for part in parts) + len(dot) * (len(parts) - 1) > width:
        parts.pop()
    return Text.assemble((dot, "dim")).join(parts)


def waiting(progress: Progress) -> str | None:
    """What all tasks wait for, if anything."""
    if progress.away is not None:
        return f"paused: {_words_of(progress.away)}"
    if progress.waiting_until is None:
        return None
    until = time.strftime("%H:%M:%S", time.localtime(progress.waiting_until))
    why = f": {_words_of(progress.waiting_for)}" if progress.waiting_for else ""
    return f"waiting until {until}{why}"


# Lines.


def line_of(outcome: Outcome[object], place: int, of: int | None) -> str:
    """The end of a task, as a line of a log; `place` counts the tasks that have ended."""
    total = "" if of is None else f"/{of}"
    number = f"{place}{total}".rjust(2 * len(total) - 1 if total else 1)
    status = outcome.status.replace("_", " ")
    line = f"[{number}] {status:<6}  {_name(outcome.id)}  {outcome.duration:.1f} s  {money(outcome.cost_usd)}"
    return f"{line}  {_words(outcome)}" if outcome.error else line


def _words(outcome: Outcome[object]) -> str:
    text = _words_of((outcome.error or "").partition("\n")[0])
    kind = outcome.error_kind
    return text if kind is None or text.startswith(kind) else f"{one_line(kind)}: {text}"


def _words_of(text: str | None) -> str:
    return shortened(one_line(text or ""))


def _name(id: str) -> str:
    return shortened(one_line(id), _LONGEST_ID)


def clock(seconds: float) -> str:
    """A duration: `0:42`, `12:05`, `1:02:33`."""
    whole = max(int(seconds), 0)
    minutes = f"{whole // 60 % 60}:{whole % 60:02}"
    return f"{whole // 3600:,}:{minutes:0>5}" if whole >= 3600 else minutes
