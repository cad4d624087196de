"""Owns how a batch is to be run: what the flags say, and what its journal keeps of them for `resume`.

Does not run it.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypedDict, cast, get_args

import msgspec

from outrider.app._failing import Code, Failed, in_one_line
from outrider.app._fleet_commands import BATCH_FLAGS
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
    Retry,
    Workspace,
    Worktree,
)
from outrider.fleet._secrets import kept_options
from outrider.options import OptionFields, Options

if TYPE_CHECKING:
    from typing import Self

    from outrider.fleet import Engine

__all__ = ["BatchFields", "Settings"]

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
