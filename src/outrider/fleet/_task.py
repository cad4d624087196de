"""`Task` and `Outcome`, in code, in a file and in a journal, and which options are secret."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Final, Generic, Literal, TypeAlias, cast, get_args

import msgspec

from outrider.errors import OptionsError
from outrider.fleet._fields import read_seconds, read_size
from outrider.fleet._workspaces import Workspace, read_workspace
from outrider.options import OptionFields, Options
from outrider.options._table import refuse_unknown
from outrider.options._validators import (
    Validator,
    above_zero,
    any_text,
    invalid_value,
    is_mapping,
    json_object,
    mapped,
    near,
    path_text,
    text,
    whole,
)
from outrider.options._values import differing, plain
from outrider.redaction import is_secret_key, mask, mask_json, preview
from outrider.session import Result, Usage
from outrider.session._result import Output_co
from outrider.wire import Json, JsonObject

if TYPE_CHECKING:
    from typing import Self


WITH_SECRETS: Final = (
    "executable_args",
    "extra_args",
    "settings",
    "managed_settings",
    "mcp_servers",
    "agents",
    "plugins",
    "sandbox",
)
"""Options that hold what is used, and not only read."""
_ALL_SECRET: Final = ("env", "headers")
"""Fields of MCP servers in which any value may be a secret."""
_REFERENCE: Final = re.compile(r"\$\{\w+\}")
"""What the agent puts a variable of its own environment in the place of."""


def is_secret_variable(name: str, value: str) -> bool:
    """Whether a variable looks like a secret, by its name or by its value."""
    return bool(value) and (is_secret_key(name) or mask(value) != value)


def is_secret(given: object) -> bool:
    """Whether something in a value of JSON types looks like a secret. `${NAME}` is none."""
    value = _without_references(given)
    # A path says nothing, and JSON text what it says.
    return bool(value) and (mask(value) if isinstance(value, str) else mask_json(value)) != value


def kept_options(options: Mapping[str, object]) -> tuple[dict[str, object], list[str]]:
    """Options of JSON types without their secrets, and where those were: `env.NAME`, or the name of an
    option."""
    kept, places = dict(options), list[str]()
    variables = options.get("env")
    if isinstance(variables, Mapping):
        env = cast("Mapping[str, str]", variables)
        secret = [name for name, value in env.items() if is_secret_variable(name, str(value))]
        places += (f"env.{name}" for name in secret)
        kept["env"] = {name: value for name, value in env.items() if name not in secret}
    for name in (*WITH_SECRETS, "session_store"):
        value = plain(options.get(name))
        if is_secret(value) or (name == "mcp_servers" and _gives_anything(value)):
            places.append(name)
            del kept[name]
    return kept, places


def filled(
    options: Mapping[str, object], places: Sequence[str], env: Mapping[str, str]
) -> tuple[dict[str, object], list[str]]:
    """Options with what was left out of them, as far as `env` has it, and the places for which it has
    nothing."""
    variables = dict(cast("Mapping[str, str]", options.get("env", {})))
    missing: list[str] = []
    for place in places:
        name = place.removeprefix("env.")
        if name != place and name in env:
            variables[name] = env[name]
        else:
            missing.append(place)
    return {**options, **({"env": variables} if variables else {})}, missing


def _gives_anything(servers: object) -> bool:
    """Whether an MCP server is given a variable or a header that is not only referred to."""
    return any(
        not _REFERENCE.search(str(value))
        for server in _values(servers)
        for name in _ALL_SECRET
        for value in _values(server.get(name) if is_mapping(server) else None)
    )


def _values(given: object) -> Iterable[object]:
    return given.values() if is_mapping(given) else ()


def _without_references(value: object) -> object:
    if isinstance(value, str):
        rest, count = _REFERENCE.subn("", value)
        # `Bearer ${KEY}`: what is left tells how the key is used.
        return "" if count and mask(rest) == rest else rest
    if isinstance(value, dict):
        items = cast("dict[object, object]", value)
        return {key: _without_references(item) for key, item in items.items()}
    if isinstance(value, list):
        return [_without_references(item) for item in cast("list[object]", value)]
    return value


_LONGEST_ID: Final = 200
_NOT_IN_AN_ID: Final = re.compile(r"[\x00-\x1f\x7f]")
_OF_THE_FLEET: Final = {
    "cwd": "Give it as `cwd` of the task.",
    "output_format": "Give it as `output`.",
    "transport": "",
}
"""Options that a task says in another way, which is the hint, or that mean nothing in another process."""


class _Prompted(msgspec.Struct, frozen=True):
    prompt: str
    """What the agent is asked to do."""


class Task(_Prompted, frozen=True, kw_only=True):
    """A prompt, with options and limits of its own. Raises `OptionsError` for invalid values.

    Task("Translate intro.md", id="intro", options={"model": "haiku"}, cwd="docs", usd=0.5)
    """

    id: str = ""
    """Unique in its run. Unset: made from its number and its content."""
    options: Mapping[str, object] = {}
    """Options of its own, over those of the run, by name: what can be written as JSON. `env` is added to."""
    cwd: str | None = None
    """The folder to work in; in a `workspace`, the folder below it."""
    workspace: Workspace | None = None
    """A folder of its own. Unset: as the run says."""
    output: object = None
    """The form that the answer must have, a type or a JSON Schema. Unset: as the run says."""
    usd: float | None = None
    """What it may cost, in all its attempts."""
    tokens: int | None = None
    tool_calls: int | None = None
    wall: float | None = None
    """How many seconds an attempt may take."""
    memory: int | str | None = None
    """How much memory an engine sets aside for it, in bytes, or as in "512MiB", which becomes bytes."""
    cpus: float = 0.5
    """How many processors an engine sets aside for it."""
    tags: Mapping[str, str] = {}
    """What it is found by in the ledger and in reports."""

    def __post_init__(self) -> None:
        for name, (default, read) in _READERS.items():
            given = getattr(self, name)
            if given is not default and (normal := read(f"`{name}`", given)) is not given:
                msgspec.structs.force_setattr(self, name, normal)

    @property
    def memory_bytes(self) -> int | None:
        """`memory`, in bytes."""
        return cast("int | None", self.memory)

    @classmethod
    def from_json(cls, line: str | bytes, *, number: int | None = None) -> Self:
        """Read a line of a file of tasks: an object with these fields, or a text, which is a prompt.

        Raises `OptionsError`, which names the line by its `number`, from 1.
        """
        where = "" if number is None else f"Line {number}: "
        try:
            return cls._from_plain(msgspec.json.decode(line))
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise OptionsError(
                f"{where}{preview(str(error))}: {preview(repr(line), 80)}",
                hint='Each line is a JSON object with a "prompt", or a text.',
            ) from None
        except OptionsError as error:
            raise OptionsError(f"{where}{error.message}", hint=error.hint) from None

    @classmethod
    def _from_plain(cls, plain: object) -> Self:
        if isinstance(plain, str):
            return cls(plain)
        if not is_mapping(plain):
            raise invalid_value("A task", 'an object with a "prompt", or a text', plain)
        known = cls.__struct_fields__
        for name in plain:
            if name not in known:
                meant = near(str(name), known)
                hint = f"Did you mean {meant!r}?" if meant else f"There are {', '.join(known)}."
                raise OptionsError(f"A task has no field {preview(str(name), 80)!r}", hint=hint)
        if "prompt" not in plain:
            raise OptionsError("The task has no `prompt`", hint="Say what the agent is to do.")
        output = plain.get("output")
        if output is not None and not is_mapping(output):
            raise invalid_value("`output`", "a JSON Schema", output)
        return cast("Callable[..., Self]", cls)(**{str(name): value for name, value in plain.items()})

    def to_json(self) -> JsonObject:
        """The task as plain JSON. A type is written as its schema."""
        plain: JsonObject = {"prompt": self.prompt}
        for name, value in differing(self).items():
            plain[name] = _schema(value) if name == "output" else msgspec.to_builtins(value)
        return plain

    def kept(self) -> JsonObject:
        """The task as a journal keeps it: without the secrets in its options, but with the places where they
        were, as `not_kept`."""
        plain = self.to_json()
        if self.options:
            kept, places = kept_options(self.options)
            if places:
                plain |= {"options": cast("JsonObject", kept), "not_kept": cast("list[Json]", places)}
        return plain

    def placed(self, number: int) -> Self:
        """The same with an id, which is made if it has none. The same task at the same place has the same."""
        if self.id:
            return self
        # The id is shown, so it must not depend on secrets.
        written = msgspec.json.encode(self.kept(), order="sorted")
        placed = copy(self)
        made = f"{number:06d}-{hashlib.sha256(written).hexdigest()[:8]}"
        msgspec.structs.force_setattr(placed, "id", made)
        return placed

    def check_folder(self, workspace: Workspace | None) -> None:
        """Raises `OptionsError` if `cwd` leads out of its workspace, or out of that of the run."""
        if self.cwd is None or (workspace is None and self.workspace is None):
            return
        if Path(self.cwd).is_absolute() or os.path.normpath(self.cwd).partition(os.sep)[0] == os.pardir:
            raise OptionsError(
                f"`cwd` is {preview(self.cwd)!r}, which is not below the folder that the workspace makes",
                hint="Give it from there, as in 'src', or no workspace.",
            )

    def applied_to(self, options: Options) -> Options:
        """The options of the run with those of the task over them. Raises `OptionsError`."""
        own = dict(self.options)
        if is_mapping(env := own.get("env")):
            own["env"] = {**options.env, **cast("Mapping[str, str]", env)}
        if self.cwd is not None and self.workspace is None:
            own["cwd"] = self.cwd
        return options.replace(**cast("OptionFields", own)) if own else options


def _schema(output: object) -> object:
    if is_mapping(output):
        return msgspec.to_builtins(output)
    from outrider.handlers import Shape

    return Shape(output).schema


def numbered(
    tasks: Iterable[Task | str], check: Callable[[Task], None] = lambda _: None, *, placed: bool = True
) -> Iterator[tuple[int, Task]]:
    """Tasks with their numbers and ids, taken one by one and checked. Raises `OptionsError`, which names the
    place, also for what `check` raises and for an id that two tasks have. `placed`: make ids for those that
    have none."""
    seen: dict[str, int] = {}
    for number, task in enumerate(tasks):
        try:
            whole_task = Task(task) if isinstance(task, str) else task
            if not isinstance(whole_task, Task):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise invalid_value("A task", "a `Task`, or a text", task)
            check(whole_task)
        except OptionsError as error:
            raise OptionsError(f"`tasks[{number}]`: {error.message}", hint=error.hint) from None
        # Ids that are made are not remembered: there may be millions, and none is made twice.
        if whole_task.id and (first := seen.setdefault(whole_task.id, number)) != number:
            raise OptionsError(
                f"`tasks[{number}]` has the id of `tasks[{first}]`: {whole_task.id!r}",
                hint="Give each task an id of its own, or leave them all out.",
            )
        yield number, whole_task.placed(number) if placed else whole_task


def read_lines(lines: Iterable[str | bytes]) -> Iterator[Task]:
    """The tasks of a file, one in each line; empty lines and those that begin with `#` are left out. Raises
    `OptionsError`, which names the line."""
    for number, line in enumerate(lines, 1):
        stripped = line.strip()
        if stripped and stripped[:1] not in ("#", b"#"):
            yield Task.from_json(stripped, number=number)


# How the fields are read.


def _id(place: str, value: object) -> str:
    found = any_text(place, value)
    if len(found) > _LONGEST_ID or _NOT_IN_AN_ID.search(found):
        wanted = f"a text of at most {_LONGEST_ID} characters, without control characters"
        raise invalid_value(place, wanted, value)
    return found


def _options(place: str, value: object) -> object:
    found = cast("JsonObject", json_object(place, value))
    for name in found:
        if name in _OF_THE_FLEET:
            raise OptionsError(f"{place} cannot have {name!r}", hint=_OF_THE_FLEET[name])
    # Only their names: what they mean beside those of the run is seen when both are there.
    known = Options.__struct_fields__
    if any(name not in known for name in found):
        refuse_unknown(found, known)
    return found


def _output(place: str, value: object) -> object:
    if isinstance(value, (str, bytes, int, float)):
        raise invalid_value(place, "a type or a JSON Schema", value)
    return value


_ALWAYS: Final = object()

_READERS: Final[Mapping[str, tuple[object, Validator]]] = {
    "prompt": (_ALWAYS, text),
    "id": ("", _id),
    "options": (_ALWAYS, _options),
    "cwd": (None, path_text),
    "workspace": (None, read_workspace),
    "output": (None, _output),
    "usd": (None, above_zero),
    "tokens": (None, whole(1)),
    "tool_calls": (None, whole(0)),
    "wall": (None, read_seconds),
    "memory": (None, read_size),
    "cpus": (_ALWAYS, above_zero),
    "tags": (_ALWAYS, mapped(text, text)),
}
"""By the name of a field: what needs no reading, and how all else is read."""


Status: TypeAlias = Literal["done", "failed", "skipped", "over_budget", "waiting"]

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
    left; `skipped`: not begun, or not brought to its end, because the run was drained or stopped; `waiting`:
    a call waits for approval, and `resume` goes on once it is decided."""
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
    """The result of a task. Each task has exactly one."""

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
