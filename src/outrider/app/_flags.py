"""Has the words of the command line: flags and the options that they stand for, exit codes, errors.

Does not validate values: `Options` does."""

from __future__ import annotations

import inspect
import os
import re
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple, TypeAlias, TypeVar, cast

import typer

from outrider import errors
from outrider._display import one_line
from outrider.errors import OptionsError
from outrider.fleet import JournalBusy, JournalInvalid

if TYPE_CHECKING:
    from outrider.options import OptionFields

ENDING: Final = (signal.SIGTERM, *((signal.SIGHUP,) if sys.platform != "win32" else ()))
"""The signals that ask a command to end. Under `nohup` the second is ignored, and stays so."""


class Code(IntEnum):
    """What an exit code of the command means."""

    OK = 0
    FAILED = 1
    """The turn failed in a way that has no code of its own; `doctor` found a problem; `migrate --check` found
    something to change, or `migrate` a file that it cannot read or write; a task of `fleet` was not done; a
    mistake of ours."""
    USAGE = 2
    """A flag, an argument or an option that cannot work; a file, folder or session that is not there."""
    NO_AGENT = 3
    """The agent's program was not found, is too old, or cannot be started."""
    API = 4
    """The API refused, failed, or could not be reached."""
    LIMIT = 5
    """`--max-turns` or `--max-budget` is used up."""
    OUTPUT = 6
    """The answer does not have the form of `--output`."""
    TIMED_OUT = 7
    """The turn, or a request to the agent, took too long."""
    LOST = 8
    """The agent's process ended before its work did."""
    INTERRUPTED = 130
    """By Ctrl-C."""
    PIPE_CLOSED = 141
    """Whoever read the output has stopped."""


class Failed(Exception):
    """Ends a command with a line on stderr and a code."""

    def __init__(self, message: str, code: Code = Code.FAILED) -> None:
        super().__init__(message)
        self.code = code


_CODES: Final[tuple[tuple[type[BaseException], Code], ...]] = (
    (errors.ApiFailed, Code.API),
    (errors.LimitReached, Code.LIMIT),
    (errors.OutputInvalid, Code.OUTPUT),
    (errors.TurnInterrupted, Code.INTERRUPTED),
    (TimeoutError, Code.TIMED_OUT),
    (errors.OptionsError, Code.USAGE),
    (errors.UsageError, Code.USAGE),
    (errors.FolderNotFound, Code.USAGE),
    (errors.UserNotFound, Code.USAGE),
    (errors.TranscriptError, Code.USAGE),
    (errors.CommandTooLong, Code.USAGE),
    (JournalBusy, Code.USAGE),
    (JournalInvalid, Code.USAGE),
    (errors.LaunchError, Code.NO_AGENT),
    (errors.McpServerFailed, Code.NO_AGENT),
    (errors.ConnectionLost, Code.LOST),
    (errors.ProtocolError, Code.LOST),
    (OSError, Code.USAGE),
)
"""The first that fits counts."""


def code_of(error: BaseException) -> Code:
    """The exit code for an error."""
    if isinstance(error, Failed):
        return error.code
    if isinstance(error, OSError) and error.errno is not None and error.filename is None:
        # Of no file: a stream, for which nobody can name another.
        return Code.FAILED
    return next((code for kind, code in _CODES if isinstance(error, kind)), Code.FAILED)


def in_one_line(error: BaseException, flags: Mapping[str, str]) -> str:
    """What an error says, on one line, in the words of the command line: `flags` has them by option."""
    text = str(error).partition("\n")[0].strip() or type(error).__name__
    if isinstance(error, OSError) and error.filename is not None:
        text = f"{error.filename}: {error.strerror}."
    elif isinstance(error, OSError) and error.strerror:
        text = f"Reading or writing failed: {error.strerror}."
    if isinstance(error, errors.ProcessExited) and (lines := error.stderr_tail.split("\n")):
        # A line under something says nothing.
        last = next((line.strip() for line in reversed(lines) if any(map(str.isalnum, line))), "")
        text += f" It said: {last!r}" if last else ""
    # An option, or a part of one.
    text = re.sub(r"`(\w+)([\w.\[\]]*)`", lambda found: f"`{flags.get(found[1], found[1] + found[2])}`", text)
    # An option of one part is spoken of twice.
    text = re.sub(r"(`--[\w-]+`): \1", r"\1", text)
    return one_line(text)


Form: TypeAlias = Literal["text", "whole", "number", "switch", "several", "commas", "pairs", "arguments"]
"""How a flag is given: once with a value, without one, several times, or as a list with commas."""

F = TypeVar("F", bound=Callable[..., object])


class Switches:
    """What holds for all commands."""

    def __init__(self) -> None:
        self.is_debugging = False
        self.no_color = False


class Flag(NamedTuple):
    """A flag, and the option that it stands for."""

    names: tuple[str, ...]
    option: str
    help: str
    form: Form = "text"
    value: str = ""
    """How its value is called in the help."""
    group: str = ""
    key: str = ""
    """Of an option that has parts: which one."""
    means: object = True
    """Of a switch: what it sets the option to."""

    @property
    def parameter(self) -> str:
        """Its name in Python."""
        return "flag_" + self.names[0].lstrip("-").replace("-", "_")

    @property
    def annotation(self) -> object:
        kinds: dict[Form, object] = {"switch": bool, "whole": int | None, "number": float | None}
        several = self.form in ("several", "pairs", "arguments")
        kind = kinds.get(self.form, list[str] | None if several else str | None)
        option = typer.Option(
            *self.names,
            help=self.help,
            # Without one, a switch would be called a <bool>.
            metavar=self.value,
            rich_help_panel=self.group or None,
            show_default=False,
        )
        return Annotated[kind, option]


_MODEL, _MAY, _WHERE, _TALK = "Model", "What it may do", "Where it runs", "Conversation"

FLAGS: Final[tuple[Flag, ...]] = (
    Flag(("--model", "-m"), "model", "A model's name or short name.", value="NAME", group=_MODEL),
    Flag(
        ("--fallback-model",),
        "fallback_model",
        "A model to try when that one is overloaded; may be repeated.",
        "several",
        "NAME",
        _MODEL,
    ),
    Flag(("--effort",), "effort", "How hard the model works on an answer.", value="LEVEL", group=_MODEL),
    Flag(
        ("--max-thinking-tokens",),
        "max_thinking_tokens",
        "The most tokens to think with; 0: no thinking.",
        "whole",
        "N",
        _MODEL,
    ),
    Flag(("--max-turns",), "max_turns", "How many times the model may be called.", "whole", "N", _MODEL),
    Flag(("--max-budget",), "max_budget_usd", "What it may cost.", "number", "USD", _MODEL),
    Flag(("--system-prompt",), "system_prompt", "Replaces the agent's own.", value="TEXT", group=_MODEL),
    Flag(
        ("--append-system-prompt",),
        "append_system_prompt",
        "Added to the agent's own.",
        value="TEXT",
        group=_MODEL,
    ),
    Flag(
        ("--permission-mode",),
        "permission_mode",
        "default, acceptEdits, plan, dontAsk, bypassPermissions.",
        value="MODE",
        group=_MAY,
    ),
    Flag(
        ("--allow",),
        "allowed_tools",
        "A rule for what needs no asking: Read, 'Bash(git *)'; may be repeated.",
        "several",
        "RULE",
        _MAY,
    ),
    Flag(
        ("--deny",),
        "disallowed_tools",
        "A rule for what may not be used; may be repeated.",
        "several",
        "RULE",
        _MAY,
    ),
    Flag(
        ("--extra-tool",),
        "extra_tools",
        "A tool that the agent has and Outrider does not know, so that rules may name it; may be repeated.",
        "several",
        "NAME",
        _MAY,
    ),
    Flag(("--tools",), "tools", "The built-in tools to offer; '' for none.", "commas", "NAMES", _MAY),
    Flag(("--mcp-config",), "mcp_servers", "A file that lists MCP servers.", value="FILE", group=_MAY),
    Flag(("--strict-mcp-config",), "strict_mcp_config", "No other MCP servers.", "switch", group=_MAY),
    Flag(("--plugin",), "plugins", "A plugin's folder; may be repeated.", "several", "PATH", _MAY),
    Flag(
        ("--setting-sources",),
        "setting_sources",
        "Settings files that count: user, project, local. Default: none.",
        "commas",
        "NAMES",
        _MAY,
    ),
    Flag(("--settings",), "settings", "A settings file, or JSON.", value="FILE", group=_MAY),
    Flag(("--cwd", "-C"), "cwd", "The working folder.", value="FOLDER", group=_WHERE),
    Flag(("--add-dir",), "add_dirs", "A further folder; may be repeated.", "several", "FOLDER", _WHERE),
    Flag(
        ("--hermetic",),
        "isolation",
        "See nothing of this machine's configuration.",
        "switch",
        group=_WHERE,
        means="hermetic",
    ),
    Flag(("--env",), "env", "A variable for the agent; may be repeated.", "pairs", "NAME=VALUE", _WHERE),
    Flag(
        ("--pass-env",),
        "env_policy",
        "A variable of this process that the agent gets, and no other; may be repeated.",
        "several",
        "NAME",
        _WHERE,
    ),
    Flag(("--program",), "cli_path", "The agent's program.", value="PATH", group=_WHERE),
    Flag(
        ("--agent-arg",),
        "extra_args",
        "A further flag for the program, without its dashes; may be repeated.",
        "arguments",
        "NAME[=VALUE]",
        _WHERE,
    ),
    Flag(("--timeout",), "timeouts", "What a turn may take.", "number", "SECONDS", _WHERE, key="turn"),
    Flag(("--resume", "-r"), "resume", "Go on with this session.", value="ID", group=_TALK),
    Flag(
        ("--continue", "-c"),
        "continue_conversation",
        "Go on with the latest session of the folder.",
        "switch",
        group=_TALK,
    ),
    Flag(
        ("--store",),
        "session_store",
        "Keep the session there as well, and resume from there: a URL or a path.",
        value="URL",
        group=_TALK,
    ),
    Flag(("--fork",), "fork_session", "Go on in a copy of it.", "switch", group=_TALK),
    Flag(("--title",), "title", "The session's title.", value="TEXT", group=_TALK),
    Flag(
        ("--no-persist",),
        "persist_session",
        "Do not keep the session on disk.",
        "switch",
        group=_TALK,
        means=False,
    ),
    Flag(
        ("--partial",),
        "include_partial_messages",
        "The pieces of messages too; for --json.",
        "switch",
        group=_TALK,
    ),
    Flag(
        ("--trace",),
        "trace",
        "Record all that travels, for `outrider trace show`.",
        value="FILE",
        group=_TALK,
    ),
)
"""The flags of `run` and `chat`."""

BY_OPTION: Final[Mapping[str, str]] = {
    **{flag.option: flag.names[0] for flag in FLAGS},
    "Timeouts": "--timeout",
}
"""The flag for an option, to speak of it."""


def with_flags(function: F, flags: Sequence[Flag] = FLAGS, into: str = "fields") -> F:
    """Give a command the flags of a table: it gets what was given as options, in `fields`."""

    def command(*args: object, **given: object) -> object:
        found = {flag: given.pop(flag.parameter) for flag in flags}
        return function(*args, **given, **{into: options_from(found)})

    signature = inspect.signature(function, eval_str=True)
    own = [each for name, each in signature.parameters.items() if name != into]
    added = [
        inspect.Parameter(
            flag.parameter,
            inspect.Parameter.KEYWORD_ONLY,
            default=False if flag.form == "switch" else None,
            annotation=flag.annotation,
        )
        for flag in flags
    ]
    return cast("F", signed(command, function, [*own, *added]))


def signed(
    command: Callable[..., object], like: Callable[..., object], parameters: Sequence[inspect.Parameter]
) -> Callable[..., object]:
    """The command with the name and docstring of another function, and these parameters."""
    command.__name__, command.__doc__ = like.__name__, like.__doc__
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


def options_from(given: Mapping[Flag, object]) -> OptionFields:
    """The options that flags stand for; those that were not given are left out."""
    fields: dict[str, object] = {}
    for flag, value in given.items():
        if value is None or value is False or value == []:
            continue
        read = _READERS.get(flag.form)
        meant = flag.means if flag.form == "switch" else value if read is None else read(flag, value)
        fields[flag.option] = {flag.key: meant} if flag.key else meant
    return cast("OptionFields", fields)


def working_folder(fields: OptionFields) -> str | None:
    """Where the agent will work, to show paths from there; None if that does not exist."""
    try:
        return str(fields.get("cwd") or os.getcwd())  # noqa: PTH109 - as text
    except FileNotFoundError:
        return None


def _commas(flag: Flag, value: object) -> object:
    return [part.strip() for part in str(value).split(",") if part.strip()]


def _pairs(flag: Flag, value: object) -> object:
    pairs = [str(each).partition("=") for each in cast("list[object]", value)]
    for name, equals, _ in pairs:
        if not equals or not name:
            raise OptionsError(
                f"`{flag.names[0]}` is {name!r}", hint=f"Give a name and a value: {flag.names[0]} NAME=VALUE."
            )
    return {name: text for name, _, text in pairs}


def _arguments(flag: Flag, value: object) -> object:
    pairs = [str(each).partition("=") for each in cast("list[object]", value)]
    for name, _, _ in pairs:
        if not name.lstrip("-"):
            raise OptionsError(
                f"`{flag.names[0]}` is {name!r}",
                hint=f"Give the name of a flag: {flag.names[0]} NAME, or NAME=VALUE.",
            )
    return {name.lstrip("-"): text if equals else None for name, equals, text in pairs}


_READERS: Final[Mapping[Form, Callable[[Flag, object], object]]] = {
    "commas": _commas,
    "pairs": _pairs,
    "arguments": _arguments,
}
