"""The option table: `option` declares a field of `Options` with its validator and its destinations."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn, TypeAlias, TypeVar, cast

import msgspec

from outrider.errors import OptionsError
from outrider.options._validators import Validator, fold, near, optional
from outrider.options._values import differing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Version: TypeAlias = tuple[int, ...]

NEWEST: Final[Version] = (1_000_000,)
"""Later than every version: what one counts as that is not known."""

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)
D = TypeVar("D", bound="Destination")


class Destination(msgspec.Struct, frozen=True):
    """Where an option goes, and how its value is encoded there."""

    name: str
    encode: Callable[..., object] | None = None
    """Gets the option's value and those of `also`; returns None to send nothing. None: the value as it is."""
    also: tuple[str, ...] = ()
    """Other options that have a say in it."""
    always: bool = False
    """Whether it also says something when none of these options is set."""
    since: Version = ()
    """The first version of Claude Code that knows it; empty: all that are supported do."""
    until: Version = ()
    """The first version that knows a better way, by another destination; empty: none does."""
    optional: bool = False
    """Whether versions before `since` do without it, or have another destination for it."""


class Flag(Destination, frozen=True):
    """An argument: `--name=value`, or `--name` for True. Several values repeat it."""


class File(Destination, frozen=True, kw_only=True):
    """An argument that names a file with the value: `--name=<folder>/file`. A path that the caller gave
    (`GivenPath`) is passed on as it is."""

    file: str


class Init(Destination, frozen=True):
    """A field of the `initialize` request."""


class Variable(Destination, frozen=True):
    """An environment variable."""


class Host(Destination, frozen=True):
    """Not sent to Claude Code by the command or in a request; `name` says what reads it instead."""


class GivenPath(str):
    """A path that the caller gave: passed on, not read."""

    __slots__ = ()


class Option(msgspec.Struct, frozen=True):
    default: object
    validate: Validator
    destinations: tuple[Destination, ...]
    reserved: tuple[str, ...]


OPTIONS: Final[dict[str, Option]] = {}
"""Every option by its name."""

ROWS: Final[list[tuple[str, Destination]]] = []
"""Each destination with its option, in the order of the arguments."""

_ALWAYS: Final[set[int]] = set()
_ROWS_OF: Final[dict[str, list[int]]] = {}


def option(default: T, validate: Validator, *destinations: Destination, reserves: str = "") -> T:
    """Declare an option, for which None is valid if it is the default. Type checkers take it for its default.
    `reserves` are further flags that it stands for, which `extra_args` may not set."""
    validate = optional(validate) if default is None else validate
    return cast("T", Option(default, validate, destinations, tuple(reserves.split())))


def _declare(name: str, declared: Option) -> None:
    OPTIONS[name] = declared
    for destination in declared.destinations:
        row = len(ROWS)
        ROWS.append((name, destination))
        if destination.always:
            _ALWAYS.add(row)
        for each in (name, *destination.also):
            _ROWS_OF.setdefault(each, []).append(row)


@cache
def flag_owners() -> Mapping[str, str]:
    """The option that stands for each flag."""
    made = {to.name.removeprefix("--"): name for name, to in reversed(ROWS) if isinstance(to, Flag | File)}
    return {flag: name for name, each in OPTIONS.items() for flag in each.reserved} | made


def encode_set(
    options: msgspec.Struct, *kinds: type[D], version: Version = NEWEST
) -> list[tuple[str, D, object]]:
    """What the options that are set send to destinations of these kinds, with the option that it is for, if
    Claude Code is of this version."""
    return _encode(
        options,
        [
            (name, to)
            for name, to in _set_rows(options)
            if isinstance(to, kinds) and to.since <= version and (not to.until or version < to.until)
        ],
    )


def _set_rows(options: msgspec.Struct) -> list[tuple[str, Destination]]:
    """The destinations of the options that are set, and those that always get something."""
    rows = set(_ALWAYS)
    for name in differing(options):
        rows.update(_ROWS_OF.get(name, ()))
    return [ROWS[row] for row in sorted(rows)]


def _encode(options: msgspec.Struct, rows: list[tuple[str, D]]) -> list[tuple[str, D, object]]:
    encoded: list[tuple[str, D, object]] = []
    for name, to in rows:
        value = getattr(options, name)
        if to.encode is not None:
            value = to.encode(value, *map(partial(getattr, options), to.also))
        if value is not None:
            encoded.append((name, to, value))
    return encoded


class OlderWays(NamedTuple):
    """What a version of Claude Code needs otherwise than the newest one, of the options that are set."""

    missing: dict[str, Version]
    """The options that it does not have, each with the first version that does."""
    moved: dict[str, Version]
    """The options that go another way, or not at all because it does without, in the same form."""


def older_ways(options: msgspec.Struct, version: Version) -> OlderWays:
    """How the options that are set go to a version that need not be the newest."""
    ways = OlderWays({}, {})
    later = [(name, to) for name, to in _set_rows(options) if version < to.since]
    for name, to, _ in _encode(options, later):
        found = ways.moved if to.optional else ways.missing
        found[name] = max(to.since, found.get(name, ()))
    return ways


# Making options.

OTHER_NAMES: Final[dict[str, str]] = {
    "abortController": "Cancel the task, or the turn with `turn.cancel()`.",
    "additionalDirectories": "It is called `add_dirs`.",
    "askUserQuestion": "It is called `question_preview_format`.",
    "can_use_tool": "It is called `permission`.",
    "canUseTool": "It is called `permission`.",
    "cli": "It is called `cli_path`.",
    "continue": "It is called `continue_conversation`.",
    "continue_": "It is called `continue_conversation`.",
    "debug_stderr": "It is called `stderr`, and is a function that gets each line.",
    "getOAuthToken": "It is called `on_auth_refresh`.",
    "load_timeout_ms": "It is `timeouts=Timeouts(store=…)`, in seconds.",
    "loadTimeoutMs": "It is `timeouts=Timeouts(store=…)`, in seconds.",
    "max_tokens": "There is `max_thinking_tokens`, `task_budget` and `max_budget_usd`.",
    "pathToClaudeCodeExecutable": "It is called `cli_path`.",
    "spawnClaudeCodeProcess": "It is called `runner`.",
    "timeout": "It is `timeouts=Timeouts(turn=…)`, in seconds.",
    "toolConfig": "It is called `question_preview_format`.",
    "working_directory": "It is called `cwd`.",
}


def refuse_unknown(given: Iterable[str], known: Sequence[str]) -> NoReturn:
    """Raise for the names that are not known, with what was probably meant."""
    unknown = [name for name in given if name not in known]
    named = ", ".join(f"`{name}`" for name in unknown)
    hints = (_hint(name, known) for name in unknown)
    raise OptionsError(
        f"there is no option {named}",
        hint=" ".join(dict.fromkeys(filter(None, hints))) or "`Options` lists all that there are.",
    )


def _hint(name: str, known: Sequence[str]) -> str:
    folded = {fold(other): hint for other, hint in OTHER_NAMES.items()}
    if fold(name) in folded:
        return folded[fold(name)]
    meant = near(name, known)
    return f"Did you mean `{meant}`?" if meant else ""


def validated(fields: Mapping[str, object]) -> dict[str, object]:
    """The fields in the forms that are kept, in copies."""
    if not fields.keys() <= OPTIONS.keys():
        refuse_unknown(fields, list(OPTIONS))
    return {name: OPTIONS[name].validate(f"`{name}`", value) for name, value in fields.items()}


def make_unchecked(kind: type[S], fields: Mapping[str, object]) -> S:
    """Options from fields that are validated already, without a look at how they go together."""
    return cast("S", msgspec.StructMeta.__call__(kind, **fields))


if TYPE_CHECKING:
    OptionsMeta = msgspec.StructMeta
else:

    class OptionsMeta(msgspec.StructMeta):
        """Fills the table from the class body, and validates what options are made from."""

        def __new__(cls, name, bases, namespace, **config):
            for field, declared in namespace.items():
                if isinstance(declared, Option):
                    _declare(field, declared)
                    namespace[field] = declared.default
            return super().__new__(cls, name, bases, namespace, **config)

        def __call__(self, **fields):
            made = make_unchecked(self, validated(fields))
            made._check(fields)
            return made
