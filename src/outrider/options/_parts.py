"""The parts that options are made of: prompts, thinking, plugins, deadlines, isolation, the environment.

Plain values that check themselves. How they are carried out is not known here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Final, Literal, TypeAlias, cast, get_args

from outrider.errors import OptionsError
from outrider.options._part import Part
from outrider.options._readers import (
    Reader,
    above_zero,
    any_text,
    checked,
    choice,
    fault,
    json_object,
    listed,
    open_choice,
    optional,
    path_text,
    switch,
    whole,
)
from outrider.redaction import DEFAULT, Redaction
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from os import PathLike

    StrPath: TypeAlias = str | PathLike[str]

# System prompts.


def _prompt(place: str, value: object) -> object:
    """A text or several; also an empty one, for an agent without a system prompt."""
    return any_text(place, value) if isinstance(value, str) else listed(any_text)(place, value)


class PresetPrompt(Part, frozen=True, tag_field="type", tag="preset"):
    """The agent's own system prompt, perhaps with something at its end."""

    preset: str = "claude_code"
    """The only one that there is."""
    append: str | None = None
    """Added at its end. Not together with `Options.append_system_prompt`."""
    exclude_dynamic_sections: bool | None = None
    """Leave out what differs between machines and days, so that the prompt can be cached across them."""
    snapshot: bool | None = None
    """Record the prompt once for each conversation and send that ever after, or never record it."""

    _readers: ClassVar[Mapping[str, Reader]] = {
        "preset": choice("claude_code"),
        "append": optional(any_text),
        "exclude_dynamic_sections": optional(switch),
        "snapshot": optional(switch),
    }


class CustomPrompt(Part, frozen=True, tag_field="type", tag="custom"):
    """A system prompt in place of the agent's own; several texts are separate blocks."""

    prompt: str | tuple[str, ...]
    snapshot: bool | None = None
    """Record the prompt once for each conversation and send that ever after, or never record it."""

    _readers: ClassVar[Mapping[str, Reader]] = {"prompt": _prompt, "snapshot": optional(switch)}


class FilePrompt(Part, frozen=True, tag_field="type", tag="file"):
    """A system prompt from a file, which the agent reads where it runs."""

    path: str

    _readers: ClassVar[Mapping[str, Reader]] = {"path": path_text}


# Thinking.

_ThinkingDisplay: TypeAlias = Literal["summarized", "omitted", "highlights"]
ThinkingDisplay: TypeAlias = _ThinkingDisplay | str
"""How much is shown of what the model thinks."""

_display: Final = optional(open_choice(get_args(_ThinkingDisplay), typos=True))


class AdaptiveThinking(Part, frozen=True, tag_field="type", tag="adaptive"):
    """The model decides how much it thinks."""

    display: ThinkingDisplay | None = None
    """What is shown of it. None: the agent decides."""

    _readers: ClassVar[Mapping[str, Reader]] = {"display": _display}


class EnabledThinking(Part, frozen=True, tag_field="type", tag="enabled"):
    """The model thinks, within a budget of tokens; without one it decides itself."""

    budget_tokens: int | None = None
    display: ThinkingDisplay | None = None
    """What is shown of it. None: the agent decides."""

    _readers: ClassVar[Mapping[str, Reader]] = {"budget_tokens": optional(whole(1)), "display": _display}


class DisabledThinking(Part, frozen=True, tag_field="type", tag="disabled"):
    """The model does not think before it answers."""


# Plugins and output.


class LocalPlugin(Part, frozen=True, tag_field="type", tag="local"):
    """A plugin in a folder or a .zip file."""

    path: str
    skip_mcp_discovery: bool = False
    """Do not start the MCP servers that it brings."""

    _readers: ClassVar[Mapping[str, Reader]] = {"path": path_text, "skip_mcp_discovery": switch}


class JsonSchemaFormat(Part, frozen=True, tag_field="type", tag="json_schema"):
    """The answer must be JSON of this schema."""

    schema: JsonObject

    _readers: ClassVar[Mapping[str, Reader]] = {"schema": json_object}


# What is ours.


class Timeouts(Part, frozen=True, kw_only=True):
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
    """Work that goes on in the background after the answer, if it is waited for."""
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

    _readers: ClassVar[Mapping[str, Reader]] = {
        **dict.fromkeys(
            (
                "connect",
                "first_event",
                "silence",
                "retries",
                "turn",
                "background",
                "control",
                "permission",
                "write",
                "store",
            ),
            optional(above_zero),
        ),
        **dict.fromkeys(("interrupt", "close", "terminate"), above_zero),
    }


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
        raise fault(place, "a name, or the beginning of names and one `*` at its end", name)


class EnvPolicy(Part, frozen=True):
    """Which variables of this process the program gets: all, or only those named. `env` adds to either.

    A name may end in `*` and then stands for all names that begin so.
    """

    names: tuple[str, ...] | None = None
    """None: all of them."""

    INHERIT: ClassVar[EnvPolicy]
    _readers: ClassVar[Mapping[str, Reader]] = {"names": optional(listed(checked(_is_name_or_prefix)))}

    @classmethod
    def only(cls, *names: str) -> EnvPolicy:
        """Nothing but what is named, and what no program can do without (`PATH`, the locale, …)."""
        return cls(names)


EnvPolicy.INHERIT = EnvPolicy()


class Isolation(Part, frozen=True):
    """How much of this machine's configuration the program sees."""

    kind: Literal["inherit", "hermetic"] = "inherit"
    config_dir: str | None = None
    """The agent's configuration folder. None: its own (inherit), or a new one that is removed (hermetic)."""

    INHERIT: ClassVar[Isolation]
    HERMETIC: ClassVar[Isolation]
    _readers: ClassVar[Mapping[str, Reader]] = {
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


# What is recorded.


def _trace_path(place: str, value: object) -> object:
    path = path_text(place, value)
    if path.endswith(".gz"):
        raise fault(place, "the path of a file that is not gzipped", path, "Compress it afterwards.")
    return path


def _redaction(place: str, value: object) -> object:
    if not isinstance(value, Redaction):
        raise fault(place, "a `outrider.redaction.Redaction`", value, hidden=True)
    return value


class Trace(Part, frozen=True):
    """Where all that is said in a session is written down, and how much of it."""

    path: str
    """A file, or a folder that gets a file for each session. A file that is there already is kept: the next
    one gets a number. `{time}` and `{pid}` in it stand for when the session began, and for this process."""
    redaction: Redaction = DEFAULT
    """What is hidden as a secret."""
    max_line: int = 1024 * 1024
    """The largest line that is written down whole, in bytes; of a longer one only the beginning is kept."""
    max_bytes: int | None = None
    """The largest file; past it nothing more is written down. None: no limit."""

    _readers: ClassVar[Mapping[str, Reader]] = {
        "path": _trace_path,
        "redaction": _redaction,
        "max_line": whole(1),
        "max_bytes": optional(whole(1)),
    }
