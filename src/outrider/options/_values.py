"""Defines the values inside options: prompts, thinking, plugins, timeouts, isolation, traces, sandbox."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from inspect import get_annotations
from typing import TYPE_CHECKING, ClassVar, Final, Literal, TypeAlias, TypeVar, cast, get_args

import msgspec

from outrider.errors import OptionsError
from outrider.options._validators import (
    Validator,
    above_zero,
    any_text,
    checked,
    choice,
    did_you_mean,
    invalid_value,
    is_mapping,
    json_object,
    listed,
    mapped,
    near,
    open_choice,
    optional,
    path_text,
    switch,
    text,
    whole,
    within,
)
from outrider.redaction import DEFAULT, MASK, Redaction, is_secret_key, mask_argv, mask_json, preview
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from os import PathLike
    from typing import Self

    StrPath: TypeAlias = str | PathLike[str]


# How values are shown, without secrets.

_LENGTH = 120
_ARGUMENTS = frozenset(("args", "executable_args"))
_ENVIRONMENTS = frozenset(("env", "extra_args"))
_JSON_TEXTS = frozenset(("settings", "mcp_servers"))
# Inside of settings and servers these are mappings of anything, under names that people choose.
_SECRET_MAPPINGS = frozenset(("env", "headers"))


def repr_fields(fields: Mapping[str, object], secret: frozenset[str] = frozenset()) -> str:
    """Fields as the arguments of a call. `secret` are mappings of which only the keys may be seen."""
    return ", ".join(f"{name}={_shown(name, value, secret)}" for name, value in fields.items())


def _shown(name: str, value: object, secret: frozenset[str]) -> str:
    if name in secret and isinstance(value, Mapping):
        return _cut(repr(dict.fromkeys(cast(Mapping[str, object], value), MASK)))
    if name in _ENVIRONMENTS and isinstance(value, Mapping):
        return _cut(repr(_masked_variables(cast(Mapping[str, object], value))))
    if name in _ARGUMENTS and isinstance(value, Sequence):
        return _cut(repr(tuple(mask_argv([str(item) for item in cast(Sequence[object], value)]))))
    if name in _JSON_TEXTS and isinstance(value, str) and value.lstrip().startswith(("{", "[")):
        return f"<JSON of {len(value)} characters>"
    return _value(value)


def _masked_variables(variables: Mapping[str, object]) -> dict[str, object]:
    return {
        name: MASK if value and is_secret_key(name) else mask_json(value) for name, value in variables.items()
    }


def _value(value: object) -> str:
    if value is None or isinstance(value, (bool, int, float)):
        return repr(value)
    if isinstance(value, str):
        return repr(preview(value, _LENGTH))
    if isinstance(value, Mapping):
        return _mapping(cast(Mapping[object, object], value))
    if isinstance(value, (tuple, list)):
        items = [_value(item) for item in cast(Sequence[object], value)]
        return f"[{', '.join(items)}]"
    if type(value).__module__.startswith("outrider."):
        return repr(value)
    # The `repr` of a store or a transport may well tell a password.
    return f"<{getattr(value, '__qualname__', type(value).__qualname__)}>"


def _mapping(value: Mapping[object, object]) -> str:
    if all(_is_json(item) for item in value.values()):
        return _cut(repr(mask_json(_without_secret_mappings(value))))
    return (
        "{" + ", ".join(f"{preview(repr(key), _LENGTH)}: {_value(item)}" for key, item in value.items()) + "}"
    )


def _without_secret_mappings(value: object) -> object:
    if isinstance(value, (list, tuple)):
        return [_without_secret_mappings(item) for item in cast(Sequence[object], value)]
    if not isinstance(value, Mapping):
        return value
    fields = cast(Mapping[object, object], value)
    shown = {key: _without_secret_mappings(item) for key, item in fields.items()}
    for key in _SECRET_MAPPINGS & shown.keys():
        if isinstance(hidden := shown[key], dict):
            shown[key] = dict.fromkeys(cast(dict[object, object], hidden), MASK)
    return shown


def _is_json(value: object) -> bool:
    if isinstance(value, Mapping):
        return all(map(_is_json, cast(Mapping[str, object], value).values()))
    if isinstance(value, (list, tuple)):
        return all(map(_is_json, cast(Sequence[object], value)))
    return value is None or isinstance(value, (str, bool, int, float))


def _cut(text: str) -> str:
    return text if len(text) <= 4 * _LENGTH else text[: 4 * _LENGTH] + "…"


T = TypeVar("T")
P = TypeVar("P", bound="OptionValue")

_texts: Final = optional(listed(text))
_BY_TYPE: Final[Mapping[str, Validator]] = {
    "bool": switch,
    "bool | None": optional(switch),
    "float": above_zero,
    "float | None": optional(above_zero),
    "int": whole(1),
    "int | None": optional(whole(1)),
    "str": text,
    "str | None": optional(any_text),
    "Sequence[str] | None": _texts,
    "tuple[str, ...] | None": _texts,
    "Mapping[str, object]": json_object,
}
"""How a field of this type is read, unless its class says otherwise."""


class OptionValue(msgspec.Struct, frozen=True, omit_defaults=True):
    """A value inside options: immutable, compared by its fields, with secrets hidden in its `repr`.

    Raises `OptionsError` for what cannot work.
    """

    _validators: ClassVar[Mapping[str, Validator]] = {}
    """How fields are read whose types do not say it."""
    _kept_here: ClassVar[frozenset[str]] = frozenset()
    """Fields that mean nothing to the agent."""
    _secret: ClassVar[frozenset[str]] = frozenset()
    """Fields whose values are all secret."""

    def __post_init__(self) -> None:
        for name, read in _validators_of(type(self)).items():
            given = getattr(self, name)
            if (normal := read(f"`{type(self).__name__}.{name}`", given)) is not given:
                msgspec.structs.force_setattr(self, name, normal)

    def copied(self) -> Self:
        """The same value, with mappings of its own."""
        return msgspec.structs.replace(self)

    def to_wire(self) -> JsonObject:
        """The part as the agent reads it: its keys, nothing that is unset, and what is in `extra`."""
        config = self.__struct_config__
        wire: JsonObject = {} if config.tag is None else {cast(str, config.tag_field): config.tag}
        keys = dict(zip(self.__struct_fields__, self.__struct_encode_fields__, strict=True))
        extra: JsonObject = {}
        for name, value in self._given().items():
            if name == "extra":
                extra = cast(JsonObject, plain(value))
            elif name not in self._kept_here:
                wire[keys[name]] = plain(value)
        return wire | extra

    def _given(self) -> dict[str, object]:
        """The fields that differ from their defaults."""
        return differing(self)

    def __copy__(self) -> Self:
        return self.copied()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({repr_fields(self._given(), self._secret)})"


@cache
def _validators_of(kind: type[OptionValue]) -> dict[str, Validator]:
    found: dict[str, Validator] = {}
    for each in reversed(kind.__mro__):
        types = get_annotations(each).items()
        found |= {name: _BY_TYPE[said] for name, said in types if said in _BY_TYPE}
        found |= vars(each).get("_validators", {})
    return found


@cache
def defaults_of(kind: type[msgspec.Struct]) -> dict[str, object]:
    """The default of each field that has one."""
    values = kind.__struct_defaults__
    names = kind.__struct_fields__[len(kind.__struct_fields__) - len(values) :]
    made = {name: _made_default(value) for name, value in zip(names, values, strict=True)}
    return {name: value for name, value in made.items() if value is not msgspec.NODEFAULT}


def _made_default(value: object) -> object:
    factory = getattr(value, "factory", None)
    return value if factory is None else factory()


@cache
def _all_defaults(kind: type[msgspec.Struct]) -> list[object]:
    """The default of each field, or a mark that it has none."""
    return [defaults_of(kind).get(name, msgspec.NODEFAULT) for name in kind.__struct_fields__]


def differing(struct: msgspec.Struct) -> dict[str, object]:
    """The fields that differ from their defaults, in their order."""
    values, defaults = msgspec.structs.astuple(struct), _all_defaults(type(struct))
    return {
        name: value
        for name, value, default in zip(struct.__struct_fields__, values, defaults, strict=True)
        # Objects of others are not compared: they may answer anything.
        if value is not default and not (type(value) is type(default) and value == default)
    }


def plain(value: object) -> object:
    """A value in JSON types, as the agent spells it: parts and tuples as mappings and lists, in copies."""
    if isinstance(value, OptionValue):
        return value.to_wire()
    if is_mapping(value):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in cast("list[object]", value)]
    return value


# From plain mappings.


@cache
def _spellings(kind: type[OptionValue]) -> dict[str, str]:
    """Each field by the names that it may be given: its own, in camel case, and the agent's."""
    names = kind.__struct_fields__
    by_wire_name = dict(zip(kind.__struct_encode_fields__, names, strict=True))
    return by_wire_name | {_camel(name): name for name in names} | {name: name for name in names}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


def from_mapping(kind: type[P], place: str, value: Mapping[object, object], **implied: object) -> P:
    """A part from a mapping with the keys of its fields or of the agent. A key that is neither goes into
    `extra`, if there is one and the key does not look misspelled; else it is refused."""
    fields: dict[str, object] = {}
    extra: dict[str, object] = {}
    for key, item in value.items():
        if not isinstance(key, str):
            raise invalid_value(f"a key of {place}", "a text", key)
        if key == kind.__struct_config__.tag_field:
            continue
        name = _spellings(kind).get(key)
        if name is None:
            extra[key] = item
        elif name in fields:
            raise OptionsError(f"{place} has `{name}` in two spellings", hint="Give it once.")
        else:
            fields[name] = item
    if extra:
        fields["extra"] = _joined(kind, place, fields.get("extra", {}), extra)
    _refuse_missing(kind, place, implied | fields)
    for key in extra:
        meant = near(key, list(_spellings(kind)), cutoff=0.85)
        # Not `disallowed_tools` for `allowedTools`.
        if meant and key[0].lower() == meant[0]:
            hint = f"Did you mean {meant!r}? If not, put it into `extra`."
            raise OptionsError(f"{place} has a key that means nothing: {key!r}", hint=hint)
    return named(place, lambda: kind(**(implied | fields)))


def _joined(kind: type[OptionValue], place: str, given: object, found: Mapping[str, object]) -> object:
    known = kind.__struct_fields__
    if "extra" not in known:
        key = next(iter(found))
        hint = did_you_mean(key, known) or f"It may have {', '.join(known) or 'no keys at all'}."
        raise OptionsError(f"{place} has a key that means nothing: {key!r}", hint=hint)
    if not is_mapping(given):
        raise invalid_value(within(place, "extra"), "a mapping", given, hidden=True)
    return dict(given) | dict(found)


def _refuse_missing(kind: type[OptionValue], place: str, fields: Mapping[str, object]) -> None:
    for name in kind.__struct_fields__:
        if name not in fields and name not in defaults_of(kind):
            others = [str(key) for key in cast("dict[str, object]", fields.get("extra", {}))]
            meant = near(name, others)
            hint = f"It has {meant!r}: was that meant?" if meant else f"Add {name!r} to the mapping."
            raise OptionsError(f"{place} has no `{name}`, which every {kind.__name__} needs", hint=hint)


def named(place: str, make: Callable[[], T]) -> T:
    """What is made, with the place named in its error."""
    try:
        return make()
    except OptionsError as error:
        raise OptionsError(f"{place}: {error.message}", hint=error.hint) from None


def value_of(kind: type[OptionValue]) -> Validator:
    """A part of this kind, or a mapping that says the same."""

    def read(place: str, value: object) -> object:
        if isinstance(value, kind):
            return value.copied()
        if is_mapping(value):
            return from_mapping(kind, place, value)
        raise invalid_value(place, f"a {kind.__name__} or a mapping", value, hidden=True)

    return read


# System prompts.


SYSTEM_PROMPT_DYNAMIC_BOUNDARY: Final = "__SYSTEM_PROMPT_DYNAMIC_BOUNDARY__"
"""Among the texts of a `system_prompt`: those before it are the same in all sessions, so that Claude Code can
have them cached across sessions. It is not sent to the model."""


def _has_whole_boundary(place: str, value: str) -> None:
    if SYSTEM_PROMPT_DYNAMIC_BOUNDARY in value and value != SYSTEM_PROMPT_DYNAMIC_BOUNDARY:
        hint = 'Give a list: `["for all sessions", SYSTEM_PROMPT_DYNAMIC_BOUNDARY, "for this one"]`.'
        raise invalid_value(place, "a text without the boundary, which is a text of its own", value, hint)


_prompt_text: Final = checked(_has_whole_boundary, of=any_text)


def prompt_texts(place: str, value: object) -> object:
    """A text or several; also an empty one, for an agent without a system prompt."""
    return _prompt_text(place, value) if isinstance(value, str) else listed(_prompt_text)(place, value)


class PresetPrompt(OptionValue, frozen=True, tag_field="type", tag="preset"):
    """The agent's own system prompt, perhaps with something at its end."""

    preset: str = "claude_code"
    """The only one that there is."""
    append: str | None = None
    """Added at its end. Not together with `Options.append_system_prompt`."""
    exclude_dynamic_sections: bool | None = None
    """Leave out what differs between machines and days, so that the prompt can be cached across them."""
    snapshot: bool | None = None
    """Record the prompt once for each conversation and send that ever after, or never record it."""

    _validators: ClassVar[Mapping[str, Validator]] = {"preset": choice("claude_code")}


class CustomPrompt(OptionValue, frozen=True, tag_field="type", tag="custom"):
    """A system prompt in place of the agent's own; several texts are separate blocks."""

    prompt: str | tuple[str, ...]
    snapshot: bool | None = None
    """Record the prompt once for each conversation and send that ever after, or never record it."""

    _validators: ClassVar[Mapping[str, Validator]] = {"prompt": prompt_texts}


class FilePrompt(OptionValue, frozen=True, tag_field="type", tag="file"):
    """A system prompt from a file, which the agent reads where it runs."""

    path: str

    _validators: ClassVar[Mapping[str, Validator]] = {"path": path_text}


# Thinking.

_ThinkingDisplay: TypeAlias = Literal["summarized", "omitted", "highlights"]
ThinkingDisplay: TypeAlias = _ThinkingDisplay | str
"""How much is shown of what the model thinks."""

_display: Final = optional(open_choice(get_args(_ThinkingDisplay), typos=True))


class AdaptiveThinking(OptionValue, frozen=True, tag_field="type", tag="adaptive"):
    """The model decides how much it thinks."""

    display: ThinkingDisplay | None = None
    """What is shown of it. None: the agent decides."""

    _validators: ClassVar[Mapping[str, Validator]] = {"display": _display}


class EnabledThinking(OptionValue, frozen=True, tag_field="type", tag="enabled"):
    """The model thinks, within a budget of tokens; without one it decides itself."""

    budget_tokens: int | None = None
    display: ThinkingDisplay | None = None
    """What is shown of it. None: the agent decides."""

    _validators: ClassVar[Mapping[str, Validator]] = {"display": _display}


class DisabledThinking(OptionValue, frozen=True, tag_field="type", tag="disabled"):
    """The model does not think before it answers."""


# Plugins and output.


class LocalPlugin(OptionValue, frozen=True, tag_field="type", tag="local"):
    """A plugin in a folder or a .zip file."""

    path: str
    skip_mcp_discovery: bool = False
    """Do not start the MCP servers that it brings."""

    _validators: ClassVar[Mapping[str, Validator]] = {"path": path_text}


class JsonSchemaFormat(OptionValue, frozen=True, tag_field="type", tag="json_schema"):
    """The answer must be JSON of this schema."""

    schema: JsonObject

    _validators: ClassVar[Mapping[str, Validator]] = {"schema": json_object}


# Timeouts, environment and isolation.


class Timeouts(OptionValue, frozen=True, kw_only=True):
    """Deadlines, in seconds; None turns one off. Those of a turn are on by default: every turn ends."""

    connect: float | None = 60.0
    """From the start of the program until it answers `initialize`."""
    first_event: float | None = 600.0
    """From a prompt until the first sign of the model. Without `include_partial_messages` that is a whole
    piece of its answer, and the agent itself gives up a call of the API after 600 s."""
    silence: float | None = 600.0
    """Between two signs of life; not counted while a tool, a hook or an approval is open."""
    retries: float | None = 600.0
    """Calls of the API that fail and are tried again, until one succeeds."""
    turn: float | None = 3600.0
    """A whole turn."""
    background: float | None = 600.0
    """Work that continues in the background after the answer, if it is waited for."""
    control: float | None = 60.0
    """An answer to a control request."""
    permission: float | None = None
    """What the agent asks you: a permission, a question, a plan, a form. Past it, it is denied. None: as long
    as it takes a person."""
    write: float | None = 60.0
    """The program not reading what is sent to it."""
    interrupt: float = 10.0
    """How long a turn may take to end after it was interrupted, before the program is ended."""
    close: float = 5.0
    """How long the program may take to end after its input is closed; it writes its transcript then."""
    terminate: float = 5.0
    """How long it may take to end after SIGTERM, before it is killed."""
    store: float | None = 60.0
    """One call to a session store."""


def is_variable_name(place: str, name: str) -> None:
    """What the name of an environment variable must be."""
    if "=" in name:
        raise OptionsError(
            f"{place} cannot be {name.partition('=')[0]!r} with `=`: the name of a variable ends there",
            hint='Give the value apart: {"NAME": "value"}.',
        )


def _is_name_or_prefix(place: str, name: str) -> None:
    is_variable_name(place, name)
    if "*" in name[:-1]:
        raise invalid_value(place, "a name, or the beginning of names and one `*` at its end", name)


class EnvPolicy(OptionValue, frozen=True):
    """Which variables of this process the program gets: all, or only those named. `env` adds to either.

    A name may end in `*` and then stands for all names that begin so.
    """

    names: tuple[str, ...] | None = None
    """None: all of them."""

    INHERIT: ClassVar[EnvPolicy]
    _validators: ClassVar[Mapping[str, Validator]] = {"names": optional(listed(checked(_is_name_or_prefix)))}

    @classmethod
    def only(cls, *names: str) -> EnvPolicy:
        """Nothing but what is named, and what no program can do without (`PATH`, the locale, …)."""
        return cls(names)


EnvPolicy.INHERIT = EnvPolicy()


class Isolation(OptionValue, frozen=True):
    """How much of this machine's configuration the program sees."""

    kind: Literal["inherit", "hermetic"] = "inherit"
    config_dir: str | None = None
    """The agent's configuration folder. None: its own (inherit), or a new one that is removed (hermetic)."""

    INHERIT: ClassVar[Isolation]
    HERMETIC: ClassVar[Isolation]
    _validators: ClassVar[Mapping[str, Validator]] = {
        "kind": choice("inherit", "hermetic"),
        "config_dir": optional(path_text),
    }

    @classmethod
    def hermetic(cls, config_dir: StrPath | None = None) -> Isolation:
        """Nothing but what the options ask for. With a folder of your own, sessions in it can be resumed."""
        return cls("hermetic", cast("str | None", config_dir))

    @property
    def is_hermetic(self) -> bool:
        return self.kind == "hermetic"


Isolation.INHERIT = Isolation()
Isolation.HERMETIC = Isolation("hermetic")


# Traces.


def _trace_path(place: str, value: object) -> object:
    path = path_text(place, value)
    if path.endswith(".gz"):
        raise invalid_value(place, "the path of a file that is not gzipped", path, "Compress it afterwards.")
    return path


def _redaction(place: str, value: object) -> object:
    if not isinstance(value, Redaction):
        raise invalid_value(place, "a `outrider.redaction.Redaction`", value, hidden=True)
    return value


class Trace(OptionValue, frozen=True):
    """Where a session is recorded, and how much of it."""

    path: str
    """A file, or a folder that gets a file for each session. A file that is there already is kept: the next
    one gets a number. `{time}` and `{pid}` in it stand for when the session began, and for this process."""
    redaction: Redaction = DEFAULT
    """What is hidden as a secret."""
    max_line: int = 1024 * 1024
    """The largest line that is written down whole, in bytes; of a longer one only the beginning is kept."""
    max_bytes: int | None = None
    """The largest file; past it nothing more is written down. None: no limit."""

    _validators: ClassVar[Mapping[str, Validator]] = {
        "path": _trace_path,
        "redaction": _redaction,
    }


# The sandbox.

_port: Final = optional(whole(1, 65535))


class SandboxNetwork(OptionValue, frozen=True, kw_only=True, rename="camel"):
    """What a sandboxed command may reach. If a field is None, the agent decides."""

    allowed_domains: tuple[str, ...] | None = None
    denied_domains: tuple[str, ...] | None = None
    allow_managed_domains_only: bool | None = None
    allow_unix_sockets: tuple[str, ...] | None = None
    allow_all_unix_sockets: bool | None = None
    allow_local_binding: bool | None = None
    allow_mach_lookup: tuple[str, ...] | None = None
    http_proxy_port: int | None = None
    socks_proxy_port: int | None = None
    extra: Mapping[str, object] = {}
    """Further keys, as the agent spells them; they win over the fields."""

    _validators: ClassVar[Mapping[str, Validator]] = {"http_proxy_port": _port, "socks_proxy_port": _port}


class SandboxFilesystem(OptionValue, frozen=True, kw_only=True, rename="camel"):
    """Which folders a sandboxed command may use, beyond what the agent's own rules say."""

    allow_write: tuple[str, ...] | None = None
    deny_write: tuple[str, ...] | None = None
    allow_read: tuple[str, ...] | None = None
    """Exceptions from `deny_read`."""
    deny_read: tuple[str, ...] | None = None
    extra: Mapping[str, object] = {}
    """Further keys, as the agent spells them; they win over the fields."""


class Sandbox(OptionValue, frozen=True, kw_only=True, rename="camel"):
    """How shell commands of the agent are confined. If a field is None, the agent decides."""

    enabled: bool | None = None
    fail_if_unavailable: bool | None = None
    """Refuse to run rather than run unconfined. On unless said otherwise, as soon as `enabled` is."""
    auto_allow_bash_if_sandboxed: bool | None = None
    """A sandboxed command needs no permission."""
    excluded_commands: tuple[str, ...] | None = None
    """Commands that run outside of it."""
    allow_unsandboxed_commands: bool | None = None
    """The agent may ask to run a command outside of it."""
    enable_weaker_nested_sandbox: bool | None = None
    """Do with less where it cannot be had whole, as in an unprivileged container."""
    network: SandboxNetwork | None = None
    filesystem: SandboxFilesystem | None = None
    ignore_violations: dict[str, tuple[str, ...]] | None = None
    """By command pattern, or `*` for all: texts of violations that are not reported."""
    extra: Mapping[str, object] = {}
    """Further keys, as the agent spells them; they win over the fields."""

    _validators: ClassVar[Mapping[str, Validator]] = {
        "network": optional(value_of(SandboxNetwork)),
        "filesystem": optional(value_of(SandboxFilesystem)),
        "ignore_violations": optional(mapped(text, listed(text))),
    }
