"""Owns the check of values against JSON Schemas, by the `jsonschema` library, which is loaded on first use.

Checks no formats and fetches nothing: a reference leads into its own schema or to a published draft.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol, Self, cast

from outrider.errors import OptionsError
from outrider.wire import JsonObject

__all__ = ["JsonSchema", "ValidationError"]


class ValidationError(Protocol):
    """What the library says of a value that is not valid."""

    @property
    def message(self) -> str:
        """What is wrong, without the place."""
        ...

    @property
    def absolute_path(self) -> Sequence[str | int]:
        """The place: names and positions, from the whole value downwards."""
        ...

    @property
    def validator(self) -> str | None:
        """The keyword that is not met, such as `required`."""
        ...

    @property
    def validator_value(self) -> Any:  # noqa: ANN401 - as the schema has it
        """What the schema says there."""
        ...

    @property
    def instance(self) -> Any:  # noqa: ANN401 - any JSON
        """The part of the value that is not valid."""
        ...


class _Validator(Protocol):
    def iter_errors(self, instance: object, /) -> Iterator[ValidationError]: ...

    def evolve(self, *, schema: object) -> Self: ...


class JsonSchema:
    """A JSON Schema, compiled when the first value is checked.

    Where a schema is not valid itself, values are: what cannot be decided is left to whoever takes them.
    `extra` is what brings the library; raises `OptionsError` where it is missing.
    """

    def __init__(self, schema: object, *, extra: str) -> None:
        if find_spec("jsonschema") is None:
            raise OptionsError(
                "Checking a value against a JSON Schema needs jsonschema, which is not installed",
                hint=f"Run: pip install 'outrider[{extra}]'",
            )
        self._schema = schema

    def is_valid(self, value: object, part: object = None) -> bool:
        """Whether a value is as the schema says, or as a part of it says."""
        return next(self._errors(value, part), None) is None

    def errors(self, value: object) -> list[ValidationError]:
        """All that is wrong with a value."""
        return list(self._errors(value))

    def best_error(self, value: object) -> ValidationError | None:
        """The one error that says most. One near the top says more than those below it."""
        library = import_module("jsonschema.exceptions")
        return cast("ValidationError | None", library.best_match(self._errors(value)))

    def _errors(self, value: object, part: object = None) -> Iterator[ValidationError]:
        validator = self._validator
        if validator is None:
            return
        unresolvable: type[Exception] = import_module("referencing.exceptions").Unresolvable
        try:
            yield from (validator if part is None else validator.evolve(schema=part)).iter_errors(value)
        except (re.error, unresolvable):
            # A pattern of another language, or a reference to nothing.
            return

    @cached_property
    def _validator(self) -> _Validator | None:
        """For the draft that the schema names, or the first one by which it is valid."""
        schema = self._schema
        if not isinstance(schema, bool | dict):
            return None
        library, registry = import_module("jsonschema"), import_module("referencing").Registry()
        newest, seventh, fourth = (
            getattr(library, f"Draft{draft}Validator") for draft in ("202012", "7", "4")
        )
        named = newest
        if isinstance(schema, dict) and isinstance(cast("JsonObject", schema).get("$schema"), str):
            named = library.validators.validator_for(schema, default=newest)
        for draft in (named, seventh, fourth):
            try:
                draft.check_schema(schema, format_checker=None)
            except library.SchemaError:
                continue
            # With a registry of its own it does not look for schemas on the network.
            return cast("_Validator", draft(schema, registry=registry))
        return None
