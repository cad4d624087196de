"""Many small cases as one test.

Owns `every_case`. A test of its own costs more than most cases take: each worker collects it, and reports it.
Where every case needs fixtures of its own, or takes long, it is a test of its own: `pytest.mark.parametrize`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Generator, Iterable
from contextlib import contextmanager
from functools import wraps
from types import ModuleType
from typing import Any, Final, NamedTuple, TypeVar, cast

import pytest

__all__ = ["every_case", "names_of"]

_Test = TypeVar("_Test", bound=Callable[..., object])

_PARAM: Final = type(pytest.param())


class Case(NamedTuple):
    """The arguments of one call, and what they are called if they have a name."""

    arguments: dict[str, Any]
    name: str | None

    def __str__(self) -> str:
        if self.name is not None:
            return self.name
        return ", ".join(f"{name}={_shown(value)}" for name, value in self.arguments.items())


class Failures:
    """What was wrong with which case."""

    def __init__(self) -> None:
        self._errors: list[BaseException] = []
        self._names: list[str] = []

    @contextmanager
    def of(self, case: Case) -> Generator[None]:
        """Keep what the case raises, so that the others have their turn."""
        try:
            yield
        except (Exception, pytest.fail.Exception, pytest.skip.Exception) as error:
            # The limit of the whole test comes once.
            if "pytest-timeout" in str(error):
                raise
            error.add_note(f"case: {case}")
            self._errors.append(error)
            self._names.append(str(case))

    def tell(self, total: int) -> None:
        """Raise if there are any."""
        if self._errors:
            names = "\n  ".join(self._names)
            raise BaseExceptionGroup(f"{len(self._errors)} of {total} cases:\n  {names}\n", self._errors)


def every_case(
    names: str, cases: Iterable[Any], *, ids: Collection[object] | Callable[[Any], object] | None = None
) -> Callable[[_Test], _Test]:
    """Call the test with one case after the other, as `pytest.mark.parametrize` would, in one test.

    All cases are tried; a failure names each that failed. None can be skipped or marked.
    """
    arguments = [name.strip() for name in names.split(",")]
    table = [_case(arguments, case) for case in cases]
    if callable(ids):
        ids = ["-".join(str(ids(value)) for value in case.arguments.values()) for case in table]
    if ids is not None:
        table = [case._replace(name=str(name)) for name, case in zip(ids, table, strict=True)]
    if not table:
        raise ValueError(f"no cases for {names}")

    def decorate(test: _Test) -> _Test:
        if inspect.iscoroutinefunction(test):

            @wraps(test)
            async def run_async(*given: Any, **fixtures: Any) -> None:
                failures = Failures()
                for case in table:
                    with failures.of(case):
                        await test(*given, **fixtures, **case.arguments)
                failures.tell(len(table))

            run: Any = run_async
        else:

            @wraps(test)
            def run_sync(*given: Any, **fixtures: Any) -> None:
                failures = Failures()
                for case in table:
                    with failures.of(case):
                        test(*given, **fixtures, **case.arguments)
                failures.tell(len(table))

            run = run_sync
        # What pytest reads to find the fixtures.
        signature = inspect.signature(test)
        assert set(arguments) <= set(signature.parameters), names
        rest = [it for name, it in signature.parameters.items() if name not in arguments]
        run.__signature__ = signature.replace(parameters=rest)
        return cast(_Test, run)

    return decorate


def _case(arguments: list[str], case: Any) -> Case:
    name = None
    if isinstance(case, _PARAM):
        if case.marks:
            raise ValueError("a case of many cannot be marked")
        values, name = case.values, case.id
    else:
        values = tuple(case) if len(arguments) > 1 else (case,)
    return Case(dict(zip(arguments, values, strict=True)), name if name is None else str(name))


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except (RecursionError, ValueError):
        # Too deep, or too long a number.
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 100 else text[:99] + "…"


def names_of(module: ModuleType) -> list[str]:
    """What a module offers; most load it on first use, which type checkers do not see."""
    names: list[str] = vars(module)["__all__"]
    return names
