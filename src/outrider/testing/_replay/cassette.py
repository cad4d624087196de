"""`record` and `replay`: sessions written to a file, and played again from it without a program."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final, Self

from outrider.errors import OptionsError, UsageError
from outrider.redaction import DEFAULT, Redaction
from outrider.testing._replay.replay import Player, ReplayMismatch, read_ignored
from outrider.transports import Recording, Traced, TraceFile, Transport, intercept, read_trace, timeline

if TYPE_CHECKING:
    from types import TracebackType

    from outrider.transports import TimelineEntry


PATIENCE: Final = 30.0
"""Seconds, far longer than a test takes to speak first."""


@contextmanager
def record(
    path: str | os.PathLike[str],
    *,
    redaction: Redaction = DEFAULT,
    max_line: int | None = None,
    everywhere: bool = False,
) -> Generator[Path]:
    """Record all sessions that are opened inside the block, in one file.

        with record("tests/cassettes/lookup.jsonl"):
            await outrider.run("Who owns ticket 7?", tools=[lookup])

    The file is there when the block has ended; if it ended with an error, what was said until then is in the
    same name with `.part` at its end, and a file of an earlier time stays as it is. `redaction` says what is
    hidden, `max_line` how many bytes of a line are kept at most. With `everywhere`, the block counts for all
    threads and tasks of the process.

    Raises `OptionsError` if the file cannot be written.
    """
    target = Path(path)
    if target.suffix == ".gz":
        raise OptionsError(f"{str(target)!r} would have to be gzipped", hint="Compress it afterwards.")
    if target.is_dir():
        raise OptionsError(f"{str(target)!r} is a folder", hint="Give the path of a file in it.")
    part = target.with_name(target.name + ".part")
    try:
        file = TraceFile(part, redaction=redaction, max_line=max_line, replaces=True)
    except OSError as error:
        raise OptionsError(
            f"The cassette {str(target)!r} cannot be written: {error.strerror or error}",
            hint="Make its folder first, and give a path that you may write to.",
        ) from error
    try:
        with intercept(lambda transport: Traced(transport, file), everywhere=everywhere):
            yield target
        is_whole = file.is_open
    finally:
        file.close()
        if file.is_empty:
            part.unlink(missing_ok=True)
    if not is_whole:
        raise UsageError(
            f"The cassette {str(target)!r} could not be written to its end: see {str(part)!r}",
            hint="Look whether the disk is full.",
        )
    if file.is_empty:
        raise UsageError(
            "No session was recorded",
            hint="Open one inside the block; and put `record` around whatever chooses a transport.",
        )
    part.replace(target)


class Replay(Player):
    """Play a cassette, a trace or a recording: no program runs, the agent says what it said.

        with replay("tests/cassettes/lookup.jsonl"):
            result = await outrider.run("Who owns ticket 7?", tools=[lookup])

        async with outrider.Session(tools=[lookup], transport=replay("lookup.jsonl")) as session: ...

    As a block, each session that is opened inside gets the next recorded run; at its end all must have been
    played. As a transport it plays one of them, `run`; `check` tells whether all of it was played.

    `strict`: each line that this side writes must be the recorded one, but for the ids that are made up in
    every run, and for secrets that were hidden. `ignore` names further places that may differ, by the keys
    that lead there: `"request.systemPrompt"`, `"message.content"`, `"*"` for any key or number. If not
    strict, only the kinds of lines must be the same. If this side waits for the agent, and the recording for
    something that this side said of itself, such as an interrupt, it is a mismatch after `patience` seconds;
    handlers may take as long as they like. With `everywhere`, the block counts for all threads and
    tasks of the process.

    What differs ends the session with `ReplayMismatch`, which shows both frames. Raises what `read_trace`
    raises, `UsageError` if there is no such run, and `OptionsError` for an invalid `ignore`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        strict: bool = True,
        ignore: Iterable[str] = (),
        run: int = 1,
        everywhere: bool = False,
        patience: float | None = PATIENCE,
    ) -> None:
        if patience is not None and (type(patience) not in (int, float) or not patience > 0):
            raise OptionsError(f"`patience` is {patience!r}", hint="Give seconds, or None to wait for ever.")
        self.recording: Recording = read_trace(path)
        self._runs = self.recording.runs
        if run not in range(1, len(self._runs) + 1):
            raise UsageError(
                f"{os.fspath(path)!r} has {len(self._runs)} runs, and no run {run!r}", hint="Record it anew."
            )
        super().__init__(
            self._runs[run - 1],
            strict=strict,
            ignore=read_ignored(ignore),
            patience=patience,
            source=self.recording.path,
        )
        self.players: list[Player] = []
        """Of each session that was opened in the block."""
        self._everywhere = everywhere
        self._lock = Lock()
        self._block: AbstractContextManager[None] | None = None
        self._was_block = False

    def __enter__(self) -> Self:
        if self._block is not None:
            raise UsageError("This cassette is being played already", hint="Replay the file anew.")
        self.players = []
        self._was_block = True
        self._block = intercept(self._next, everywhere=self._everywhere)
        self._block.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._block is not None:
            block, self._block = self._block, None
            block.__exit__(kind, error, trace)
        if error is None:
            self.check()

    def _next(self, transport: Transport) -> Transport:
        del transport
        # Sessions may be opened in several threads.
        with self._lock:
            number = len(self.players)
            if number == len(self._runs):
                raise ReplayMismatch(
                    f"{number} sessions were recorded, and one more has been opened",
                    source=self.recording.path,
                )
            player = self.another(self._runs[number], source=self.recording.path)
            self.players.append(player)
        return player

    def check(self) -> None:
        """Raises `ReplayMismatch` if what was said is not what was recorded: in all sessions of the block, if
        it was one, else in the one that it was the transport of."""
        if not self._was_block:
            super().check()
            return
        for player in self.players:
            player.check()
        if self.is_strict and len(self.players) < len(self._runs):
            raise ReplayMismatch(
                f"{len(self._runs)} sessions were recorded, and {len(self.players)} have been opened",
                source=self.recording.path,
            )


replay = Replay


_SIDES: Final = {"host->cli": "▶", "cli->host": "◀", "stderr": "!", "meta": "·", "note": "·"}


def conversation(path: str | os.PathLike[str], *, lines: int = 60, width: int = 110) -> str:
    """What was said in a trace, a line for each thing, with the middle left out if it is long.

        ▶ user                      Who owns ticket 7?
        ◀ assistant                 mcp__tools__lookup {"ticket": 7}

    ▶ is what this process said, ◀ what the agent did. Raises what `read_trace` raises.
    """
    entries = list(timeline(read_trace(path), width=width, partials=False))
    runs = len({entry.run for entry in entries})
    shown = [_line(entry, several=runs > 1) for entry in entries]
    if len(shown) > lines:
        first = lines // 2
        left_out = len(shown) - lines
        shown[first : first + left_out] = [f"  … {left_out} more …"]
    return "\n".join(shown)


def _line(entry: TimelineEntry, *, several: bool) -> str:
    run = f"{entry.run} " if several else ""
    return f"{run}{_SIDES[entry.direction]} {entry.kind:<25} {entry.summary}".rstrip()
