"""What is said of a tool, checked, and what follows from it and from its function.

Does not call the function.
"""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Callable, Mapping
from functools import partial
from sys import float_info
from typing import Any, Final, cast

import msgspec

from outrider.errors import OptionsError
from outrider.handlers._arguments import Arguments
from outrider.handlers._hints import names_in_sight
from outrider.handlers._signature import as_written, read_signature

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_BOUND_NAMES: Final = frozenset(("self", "cls", "mcs"))


class Traits(msgspec.Struct, frozen=True, kw_only=True):
    """What is said of a tool apart from its function."""

    name: str | None = None
    description: str | None = None
    title: str | None = None
    timeout: float | None = None
    concurrency: int | None = None
    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None
    always_load: bool | None = None
    max_result_chars: int | None = None
    schema: Mapping[str, Any] | None = None
    meta: Mapping[str, Any] | None = None


class ToolPlan:
    """A function with its traits, and what follows from them: made once, however often it is bound."""

    def __init__(
        self, function: Callable[..., object], traits: Traits, *, is_method: bool | None = None
    ) -> None:
        self.function: Final = function
        self.traits: Final = traits
        self.written: Final = as_written(function)
        self.name: Final = traits.name if traits.name is not None else _name_of(function)
        self.place: Final = f"tool `{getattr(self.written, '__qualname__', self.name)}`"
        _check(self.place, function, self.name, traits)
        self._local: dict[str, object] = {}
        self._arguments: dict[bool, Arguments] = {}
        self.text = ""
        """What the docstring says of it."""
        self.is_method: Final = self._looks_like_method() if is_method is None else is_method
        try:
            self._prepare(self.is_method)
        except NameError:
            # What is defined further down may be used all the same, but only now can local names be seen.
            self._local = names_in_sight(getattr(self.written, "__module__", ""))
            try:
                self._prepare(self.is_method)
            except NameError:
                self._local = self._mentioned()

    def arguments(self, *, is_bound: bool) -> Arguments:
        """What it takes from the model. Raises `OptionsError`."""
        if is_bound not in self._arguments:
            try:
                self._prepare(is_bound)
            except NameError as error:
                raise OptionsError(
                    f"{self.place}: an annotation mentions what is not there: {error}",
                    hint="Import it where the tool is written, and not for type checkers alone.",
                ) from error
        return self._arguments[is_bound]

    def _prepare(self, is_bound: bool) -> None:
        signature = read_signature(self.function, self.place, skips_first=is_bound, local=self._local)
        self.text = signature.description
        self._arguments[is_bound] = Arguments(signature, self.place, self.traits.schema)

    def _looks_like_method(self) -> bool:
        """Whether it was written in a class, and its first parameter is what it is bound to."""
        if not isinstance(self.function, types.FunctionType):
            return False
        holder = getattr(self.written, "__qualname__", "").rpartition(".")[0]
        first = next(iter(inspect.signature(self.function).parameters), None)
        return bool(holder) and not holder.endswith("<locals>") and first in _BOUND_NAMES

    def _mentioned(self) -> dict[str, object]:
        """Of the local names those alone that annotations mention: all of them would keep much alive."""
        annotations = getattr(self.written, "__annotations__", {}).values()
        mentioned = {word for each in annotations for word in re.findall(r"\w+", str(each))}
        return {name: value for name, value in self._local.items() if name in mentioned}


def _name_of(function: Callable[..., object]) -> str:
    while isinstance(function, partial):
        function = cast("partial[object]", function).func
    return str(getattr(function, "__name__", type(function).__name__))


def _check(place: str, function: Callable[..., object], name: object, traits: Traits) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise OptionsError(
            f"{place}: {name!r} cannot be the name of a tool",
            hint="Give it one with `name=`: 1 to 64 letters, digits, `_` and `-`.",
        )
    inner = as_written(function)
    if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        raise OptionsError(
            f"{place} is a generator, and a tool gives one result",
            hint="Return a list, or use `ctx.progress`.",
        )
    for field, least in (("timeout", 0.0), ("concurrency", 1), ("max_result_chars", 1)):
        _check_number(f"{place}: `{field}`", getattr(traits, field), least)
    for field in ("read_only", "destructive", "idempotent", "open_world", "always_load"):
        if not isinstance(value := getattr(traits, field), bool | None):
            raise OptionsError(f"{place}: `{field}` must be true, false or None, not {value!r}")
    for field in ("description", "title"):
        if not isinstance(value := getattr(traits, field), str | None):
            raise OptionsError(f"{place}: `{field}` must be text, not {value!r}")
    for field in ("schema", "meta"):
        if not isinstance(value := getattr(traits, field), Mapping | None):
            raise OptionsError(f"{place}: `{field}` must be a mapping, not {type(value).__name__}")


def _check_number(place: str, value: object, least: float) -> None:
    if value is None:
        return
    kinds = (int,) if isinstance(least, int) else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds) or not abs(value) <= float_info.max:
        raise OptionsError(f"{place} must be a {'whole ' if len(kinds) == 1 else ''}number, not {value!r}")
    if value < least or value == 0:
        raise OptionsError(
            f"{place} must be {'more than 0' if least == 0 else f'at least {least}'}, not {value!r}"
        )
