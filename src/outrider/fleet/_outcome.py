"""Owns `Outcome`: what a task came to, as it is handed out and as it is written down.

Does not decide it: whoever ran the task does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Generic, Literal, TypeAlias, cast, get_args

import msgspec

from outrider.redaction import preview
from outrider.session import Result, Usage
from outrider.wire import Json, JsonObject

if TYPE_CHECKING:
    from typing import Self

    from typing_extensions import TypeVar

    Output_co = TypeVar("Output_co", covariant=True, default=Json)
else:
    from typing import TypeVar

    Output_co = TypeVar("Output_co", covariant=True)

__all__ = ["STATUSES", "Outcome", "Status"]

Status: TypeAlias = Literal["done", "failed", "skipped", "over_budget"]

STATUSES: Final[tuple[Status, ...]] = get_args(Status)

_SHOWN_TEXT: Final = 60


class _Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is written down as it is."""

    id: str
    """The task's id."""
    number: int = 0
    """Its place among the tasks, from 0."""
    status: Status = "done"
    """`done`; `failed`, with the `error`; `over_budget`: stopped by a budget, or not begun because none was
    left; `skipped`: not begun, or not brought to its end, because the run was drained or stopped."""
    text: str = ""
    """The answer, or what the model said last."""
    error: str | None = None
    error_kind: str | None = None
    """The name of the error's class: `ApiFailed`, `TurnTimedOut`, …"""
    usage: Usage = Usage()
    """Of all attempts together."""
    duration: float = 0.0
    """Seconds on the clock, of the last attempt."""
    attempts: int = 0
    """How many times it was begun, in all runs of its journal."""
    session_id: str | None = None
    workspace: str | None = None
    """The folder that was made for it, if it was kept."""
    started_at: float | None = None
    """Unix seconds, when it was begun first."""
    ended_at: float = 0.0
    tags: Mapping[str, str] = {}


class Outcome(_Facts, Generic[Output_co], frozen=True, kw_only=True):
    """What a task came to. Each task has one, whatever happened to it."""

    output: Output_co = cast("Output_co", None)
    """The structured output, where one was asked for: of the type that was asked for, where that is known, as
    it is not in a run that is resumed without it; otherwise as it came."""
    raw_output: Json = None
    """The structured output as it came."""
    result: Result[Output_co] | None = None
    """All that came of its last attempt: only in the process that ran it, and not written down."""

    @property
    def is_done(self) -> bool:
        return self.status == "done"

    @property
    def cost_usd(self) -> float:
        """What all attempts have cost."""
        return self.usage.cost_usd

    def to_json(self) -> JsonObject:
        """The outcome as plain JSON: the output as it came, and no `result`."""
        plain: JsonObject = {
            name: msgspec.to_builtins(value)
            for name in _Facts.__struct_fields__
            if (value := getattr(self, name)) not in (None, "")
        }
        return plain if self.raw_output is None else {**plain, "output": self.raw_output}

    @classmethod
    def from_json(cls, plain: JsonObject) -> Self:
        """Read what `to_json` has made. Raises `msgspec.ValidationError` for anything else."""
        facts = msgspec.structs.asdict(msgspec.convert(plain, _Facts))
        came = plain.get("output")
        return cls(**facts, output=cast("Output_co", came), raw_output=came)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        said = preview(self.error or self.text, _SHOWN_TEXT)
        return f"<Outcome {self.id} {self.error_kind or self.status}: {said!r}, {self.usage}>"
