"""The places that an option can go to, and what a row of the table of options is.

Does not know any option.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable


class Flag(NamedTuple):
    """An argument: `--name=value`, or `--name` for a value that is just true. Several values repeat it."""

    name: str
    words: tuple[str, str] | None = None
    """How true and false are written, where they are a value."""


class Filed(NamedTuple):
    """An argument that names a file with the value: `--name=<folder>/file`.

    A path that the caller gave (`Given`) is passed as it is.
    """

    name: str
    file: str


class Init(NamedTuple):
    """A field of the `initialize` request."""

    name: str


class Variable(NamedTuple):
    """An environment variable."""

    name: str


class Host(NamedTuple):
    """Not said to the agent as an argument, a variable or in a request; `user` says who reads it instead."""

    user: str


Place: TypeAlias = Flag | Filed | Init | Variable | Host


class Given(str):
    """A path that the caller gave: passed on, not read."""

    __slots__ = ()


SAME: Final = Host("the same place")


class Row(NamedTuple):
    """Where an option goes, and how its value is written there.

    `spell` gets the values of `fields`, in their order, and nothing else.
    """

    fields: tuple[str, ...]
    to: Place
    spell: Callable[..., object]
    one_shot: Place | None = SAME
    """Where it goes if there is no `initialize`. None: nowhere, so that a value for it is refused."""

    def place(self, *, streaming: bool) -> Place | None:
        return self.to if streaming or self.one_shot is SAME else self.one_shot

    def value(self, options: object) -> object:
        """What the options say here; None for nothing."""
        return self.spell(*(getattr(options, field) for field in self.fields))

    @property
    def option(self) -> str:
        """What a caller knows it by."""
        return self.fields[0]
