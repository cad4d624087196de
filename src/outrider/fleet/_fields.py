"""Owns the keywords that sessions, pools and runs have in common, and how they are told from options.

Does not carry them out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar, cast

from outrider.options import OptionFields
from outrider.options._readers import fault

if TYPE_CHECKING:
    from outrider.fleet._budget import Budget
    from outrider.fleet._gate import Gate
    from outrider.fleet._ledger import Ledger
    from outrider.fleet._restart import Restart
    from outrider.fleet._retry import Retry
    from outrider.fleet._starting import Starter

__all__ = ["LastingFields", "PolicyFields", "apart", "of_kind", "read_ledger", "read_starter"]

T = TypeVar("T")
F = TypeVar("F", bound=OptionFields)


class PolicyFields(OptionFields, total=False):
    """What may go wrong, and what may be spent: keywords of sessions and of runs, beside every option."""

    restart: Restart | None
    """What is done when the agent's process, or the worker of a task, is lost. Unset: `Restart()`; None:
    nothing."""
    retry: Retry | None
    """When a turn that the API failed is tried again. Unset: `Retry()`; None: never."""
    budget: Budget | None
    """What may be spent; may be shared. In a run, what earlier runs of its journal spent counts."""
    ledger: Ledger | None
    """Gets each turn."""
    gate: Gate | None
    """Where all that share it wait for a limit of the account. A run has one of its own, if none is given."""


class LastingFields(PolicyFields, total=False):
    """What a lasting session takes as keywords: these, and every option."""

    tags: Mapping[str, str] | None
    """What its turns are found by in the ledger."""


def apart(fields: F, kind: type[F]) -> tuple[F, OptionFields]:
    """The keywords that are this kind's own; the rest are options, or nothing that is known."""
    own = kind.__annotations__.keys() - OptionFields.__annotations__.keys()
    mine = {name: value for name, value in fields.items() if name in own}
    rest = {name: value for name, value in fields.items() if name not in own}
    return cast("F", mine), cast("OptionFields", rest)


def of_kind(name: str, value: object, kind: type[T]) -> T | None:
    """An object of a class, or None. Raises `OptionsError`."""
    if value is not None and not isinstance(value, kind):
        raise fault(f"`{name}`", f"a `{kind.__name__}` or None", value)
    return value


def read_ledger(name: str, value: object) -> Ledger | None:
    """What takes entries, or None. Raises `OptionsError`."""
    return cast("Ledger | None", _able(name, "a `Ledger` or None", value, "add"))


def read_starter(name: str, value: object) -> Starter | None:
    """What gives out processes, or None. Raises `OptionsError`."""
    wanted = "a `Pool`, or what has its `start` and `stop`"
    return cast("Starter | None", _able(name, wanted, value, "start", "stop"))


def _able(name: str, wanted: str, value: object, *methods: str) -> object:
    if value is not None and not all(callable(getattr(value, each, None)) for each in methods):
        raise fault(f"`{name}`", wanted, value)
    return value
