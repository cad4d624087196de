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
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple, TypeAlias, TypeVar, cast

import typer

from outrider import errors
from outrider._display import one_line
from outrider.approvals import ApprovalError
from outrider.errors import OptionsError
from outrider.fleet import JournalBusy, JournalInvalid

if TYPE_CHECKING:
    from outrider.options import OptionFields

ENDING: Final = (signal.SIGTERM, *((signal.SIGHUP,) if sys.platform != "win32" else ()))
"""Signals that end a command. `nohup` ignores the second, and it stays ignored."""


class Code(IntEnum):
    """The exit codes of the command."""

    OK = 0
    FAILED = 1
    """The turn failed in a way that has no code of its own; `doctor` found a problem; `migrate --check` found
    something to change; `migrate` could not read or write a file; `sessions search` found nothing; a task of
    `fleet` failed; a bug in Outrider."""
    USAGE = 2
    """An invalid flag, argument or option; a file, folder or session that does not exist; a package that
    is not installed."""
    NO_AGENT = 3
    """Claude Code was not found, is too old, or could not be started."""
    API = 4
    """The API rejected the request, failed, or could not be reached."""
    LIMIT = 5
    """`--max-turns` or `--max-budget` was reached."""
    OUTPUT = 6
    """The answer does not match the schema of `--output`."""
    TIMED_OUT = 7
    """The turn, or a request to Claude Code, timed out."""
    LOST = 8
    """Claude Code exited before it had finished."""
    INTERRUPTED = 130
    """Interrupted with Ctrl-C."""
    PIPE_CLOSED = 141
    """The reader of the output closed the pipe."""


class Failed(Exception):
    """Ends a command with a message on stderr and an exit code."""

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
    (ApprovalError, Code.USAGE),
    (errors.CommandTooLong, Code.USAGE),
    (JournalBusy, Code.USAGE),
    (JournalInvalid, Code.USAGE),
    (errors.LaunchError, Code.NO_AGENT),
    (errors.McpServerFailed, Code.NO_AGENT),
    (errors.ConnectionLost, Code.LOST),
    (errors.ProtocolError, Code.LOST),
    (OSError, Code.USAGE),
)
"""The first match counts."""


def code_of(error: BaseException) -> Code:
    """The exit code for an error."""
    if isinstance(error, Failed):
        return error.code
    if isinstance(error, OSError) and error.errno is not None and error.filename is None:
        # Not a file that the user named, but a stream.
        return Code.FAILED
    return next((code for kind, code in _CODES if isinstance(error, kind)), Code.FAILED)


def in_one_line(error: BaseException, flags: Mapping[str, str]) -> str:
    """The message of an error on one line; `flags` maps the options it names to flags."""
    text = str(error).partition("\n")[0].strip() or type(error).__name__
    if isinstance(error, OSError) and error.filename is not None:
        text = f"{error.filename}: {error.strerror}."
    elif isinstance(error, OSError) and error.strerror:
        text = f"Reading or writing failed: {error.strerror}."
    if isinstance(error, errors.ProcessExited) and (lines := error.stderr_tail.split("\n")):
        # The last line with words: not a line drawn under them.
        last = next((line.strip() for line in reversed(lines) if any(map(str.isalnum, line))), "")
        text += f" It said: {last!r}" if last else ""
    # An option, or a part of one.
    text = re.sub(r"`(\w+)([\w.\[\]]*)`", lambda found: f"`{flags.get(found[1], found[1] + found[2])}`", text)
    # An option with a single part is named twice.
    text = re.sub(r"(`--[\w-]+`): \1", r"\1", text)
    return one_line(text)


Form: TypeAlias = Literal["text", "whole", "number", "switch", "several", "commas", "pairs", "arguments"]
"""How a flag is given: once with a value, without one, several times, or as a comma-separated list."""

AgentKind: TypeAlias = Literal["simulated", "real"]

F = TypeVar("F", bound=Callable[..., object])


option = partial(typer.Option, show_default=False)
argument = partial(typer.Argument, show_default=False)
switch = partial(typer.Option, metavar="")
"""Without a `metavar` of its own, a switch would be called a <bool>."""


class Switches:
    """The flags that all commands have."""

    def __init__(self) -> None:
        self.is_debugging = False
        self.is_verbose = False
        self.no_color = False


class Flag(NamedTuple):
    """A flag, and the option that it sets."""

    flags: str
    """Its name, and a short one."""
    help: str
    value: str = ""
    """The name of its value in the help."""
    form: Form = "text"
    sets: str = ""
    """The option that it sets, if that is not called as the flag is."""
    key: str = ""
    """The part of the option that it sets."""
    means: object = True
    """The value that a switch sets."""
    group: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.flags.split())

    @property
    def option(self) -> str:
        """The option that it sets."""
        return self.sets or self.names[0].lstrip("-").replace("-", "_")

    @property
    def parameter(self) -> str:
        """The name of its parameter."""
        return "flag_" + self.names[0].lstrip("-").replace("-", "_")

    @property
    def annotation(self) -> object:
        kinds: dict[Form, object] = {"switch": bool, "whole": int | None, "number": float | None}
        is_repeated = self.form in ("several", "pairs", "arguments")
        kind = kinds.get(self.form, list[str] | None if is_repeated else str | None)
        more = " Can be repeated." if is_repeated else ""
        group = self.group or None
        return Annotated[
            kind, option(*self.names, help=self.help + more, metavar=self.value, rich_help_panel=group)
        ]


def grouped(groups: Mapping[str, Sequence[Flag]]) -> tuple[Flag, ...]:
    """Flags by the heading that the help shows them under."""
    return tuple(flag._replace(group=group) for group, flags in groups.items() for flag in flags)


_GROUPS: Final[Mapping[str, tuple[Flag, ...]]] = {
    "Model": (
        Flag("--model -m", "Model name or alias.", "NAME"),
        Flag("--fallback-model", "Model to use if that one is overloaded.", "NAME", "several"),
        Flag("--effort", "How hard the model works on an answer.", "LEVEL"),
        Flag("--max-thinking-tokens", "Limit of thinking tokens; 0: no thinking.", "N", "whole"),
        Flag("--max-turns", "Limit of model calls.", "N", "whole"),
        Flag("--max-budget", "Limit of the cost.", "USD", "number", "max_budget_usd"),
        Flag("--system-prompt", "Replace the system prompt.", "TEXT"),
        Flag("--append-system-prompt", "Add to the system prompt.", "TEXT"),
    ),
    "Permissions": (
        Flag("--permission-mode", "default, acceptEdits, plan, dontAsk, bypassPermissions.", "MODE"),
        Flag(
            "--allow",
            "Allow without asking, such as Read, 'Bash(git *)'.",
            "RULE",
            "several",
            "allowed_tools",
        ),
        Flag("--deny", "Never allow.", "RULE", "several", "disallowed_tools"),
        Flag(
            "--extra-tool",
            "Let rules name a tool that Outrider does not know.",
            "NAME",
            "several",
            "extra_tools",
        ),
        Flag("--tools", "Built-in tools to offer; '' for none.", "NAMES", "commas"),
        Flag("--mcp-config", "File that lists MCP servers.", "FILE", sets="mcp_servers"),
        Flag("--strict-mcp-config", "Use no other MCP servers.", form="switch"),
        Flag("--plugin", "Folder of a plugin.", "PATH", "several", "plugins"),
        Flag("--setting-sources", "Settings to read: user, project, local; '' for none.", "NAMES", "commas"),
        Flag("--settings", "Settings file, or JSON.", "FILE"),
    ),
    "Environment": (
        Flag("--cwd -C", "Working folder.", "FOLDER"),
        Flag("--add-dir", "Further folder to work in.", "FOLDER", "several", "add_dirs"),
        Flag(
            "--hermetic", "Ignore this machine's configuration.", "", "switch", "isolation", means="hermetic"
        ),
        Flag("--env", "Set a variable for Claude Code.", "NAME=VALUE", "pairs"),
        Flag("--pass-env", "Pass this variable on, and no others.", "NAME", "several", "env_policy"),
        Flag("--program", "Path of Claude Code.", "PATH", sets="cli_path"),
        Flag(
            "--agent-arg",
            "Further flag for Claude Code, without dashes.",
            "NAME[=VALUE]",
            "arguments",
            "extra_args",
        ),
        Flag("--timeout", "Time limit of a turn.", "SECONDS", "number", "timeouts", key="turn"),
    ),
    "Conversation": (
        Flag("--resume -r", "Continue this session.", "ID"),
        Flag("--continue -c", "Continue the folder's latest session.", "", "switch", "continue_conversation"),
        Flag("--store", "Keep the session in a store, too, and resume from it.", "URL", sets="session_store"),
        Flag("--fork", "Continue in a copy of the session.", "", "switch", "fork_session"),
        Flag("--title", "Title of the session.", "TEXT"),
        Flag(
            "--no-persist", "Do not keep the session on disk.", "", "switch", "persist_session", means=False
        ),
        Flag(
            "--partial", "With --json: print partial messages, too.", "", "switch", "include_partial_messages"
        ),
        Flag("--trace", "Record all frames, for `outrider trace show`.", "FILE"),
    ),
}
FLAGS: Final[tuple[Flag, ...]] = grouped(_GROUPS)
"""The flags of `run` and `chat`."""

_OF_ONE_SESSION: Final = (
    *("cwd", "resume", "continue_conversation", "fork_session", "title", "trace"),
    "include_partial_messages",
)
ACP_FLAGS: Final = tuple(flag for flag in FLAGS if flag.option not in _OF_ONE_SESSION)
"""The flags of `acp`: the editor decides on the rest."""

BY_OPTION: Final[Mapping[str, str]] = {
    **{flag.option: flag.names[0] for flag in FLAGS},
    "Timeouts": "--timeout",
}
"""The flag of each option, for messages."""


def with_flags(function: F, flags: Sequence[Flag] = FLAGS, into: str = "fields") -> F:
    """Add the flags of a table to a command, which gets the options they set as `fields`."""

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
    """Give a command the name and docstring of another function, and these parameters."""
    command.__name__, command.__doc__ = like.__name__, like.__doc__
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


def options_from(given: Mapping[Flag, object]) -> OptionFields:
    """The options that the given flags set."""
    fields: dict[str, object] = {}
    for flag, value in given.items():
        if value is None or value is False or value == []:
            continue
        read = _READERS.get(flag.form)
        meant = flag.means if flag.form == "switch" else value if read is None else read(flag, value)
        fields[flag.option] = {flag.key: meant} if flag.key else meant
    return cast("OptionFields", fields)


def working_folder(fields: OptionFields) -> str | None:
    """The folder that paths are shown relative to; None if it does not exist."""
    try:
        return str(fields.get("cwd") or os.getcwd())  # noqa: PTH109 - as text
    except FileNotFoundError:
        return None


def _pairs(flag: Flag, value: object) -> object:
    pairs = [str(each).partition("=") for each in cast("list[object]", value)]
    for name, equals, _ in pairs:
        if not equals or not name:
            raise _invalid(flag, name, f"Give a name and a value: {flag.names[0]} NAME=VALUE.")
    return {name: text for name, _, text in pairs}


def _arguments(flag: Flag, value: object) -> object:
    pairs = [str(each).partition("=") for each in cast("list[object]", value)]
    for name, _, _ in pairs:
        if not name.lstrip("-"):
            raise _invalid(flag, name, f"Give the name of a flag: {flag.names[0]} NAME, or NAME=VALUE.")
    return {name.lstrip("-"): text if equals else None for name, equals, text in pairs}


def _invalid(flag: Flag, given: str, hint: str) -> OptionsError:
    return OptionsError(f"`{flag.names[0]}` is {given!r}", hint=hint)


_READERS: Final[Mapping[Form, Callable[[Flag, object], object]]] = {
    "commas": lambda _, value: [part.strip() for part in str(value).split(",") if part.strip()],
    "pairs": _pairs,
    "arguments": _arguments,
}
