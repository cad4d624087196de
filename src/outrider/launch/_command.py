"""Makes the command that runs Claude Code, and the `initialize` request, from options.

Starts and writes nothing. Looks on this machine for the program, the working folder, the user, and a settings
file that has to be merged or checked. Where each option goes is declared in `outrider.options`.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from outrider.command import FOLDER, Command, File
from outrider.errors import CommandTooLong, OptionsError
from outrider.launch._environment import isolation_folders, kept_elsewhere, look_up_user, make_environment
from outrider.launch._program import find_agent
from outrider.options import check_place
from outrider.options._encode import absolute, json_of, runs_here
from outrider.options._table import File as FileDestination
from outrider.options._table import Flag, GivenPath, Init, encode_set

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from outrider.command import UserId
    from outrider.options import Options
    from outrider.wire.control import Initialize


# How long a command may be.

WINDOWS_LIMIT: Final = 8191
"""Characters in a whole command line: what `cmd.exe` takes, and so every wrapper script of the agent."""
LINUX_ARGUMENT_LIMIT: Final = 131_072
"""Bytes in one argument or one variable, with the NUL at its end: 32 pages, fixed in the kernel."""
POSIX_LIMIT: Final = {"linux": 2_097_152, "darwin": 1_048_576}
"""Bytes in all arguments and variables, where the system itself cannot be asked."""

_POINTER = 8
# The private folder's path is not known yet; a temporary folder is rarely deeper than this.
_FOLDER_LENGTH: Final = 120


def check_length(command: Command, *, origins: Sequence[str] = (), platform: str = sys.platform) -> None:
    """Raise `CommandTooLong` if the system would not start the command.

    `origins` names the option that each argument came from, for the error to tell.
    """
    argv = [argument.replace(FOLDER, "x" * _FOLDER_LENGTH) for argument in command.argv]
    names = [*origins, *["the command line"] * (len(argv) - len(origins))]
    if platform == "win32":
        from subprocess import list2cmdline

        longest = names[max(range(len(argv)), key=lambda index: len(argv[index]))]
        _refuse(longest, len(list2cmdline(argv)), WINDOWS_LIMIT, command)
        return
    environ = os.environ if command.env is None else command.env
    sized = [(_size(argument), name) for argument, name in zip(argv, names, strict=True)]
    sized += [
        (_size(f"{name}={value.replace(FOLDER, 'x' * _FOLDER_LENGTH)}"), f"env[{name!r}]")
        for name, value in environ.items()
    ]
    size, longest = max(sized)
    if platform == "linux":
        _refuse(longest, size, LINUX_ARGUMENT_LIMIT, command)
    _refuse(longest, sum(size + _POINTER for size, _ in sized), _total_limit(platform), command)


def _refuse(option: str, size: int, limit: int, command: Command) -> None:
    if size > limit:
        raise CommandTooLong(option, size, limit, argv=[argument[:200] for argument in command.argv])


def _size(text: str) -> int:
    return len(os.fsencode(text)) + 1


def _total_limit(platform: str) -> int:
    if platform == sys.platform and "SC_ARG_MAX" in getattr(os, "sysconf_names", ()):
        asked = os.sysconf("SC_ARG_MAX")
        if asked > 0:
            return asked
    return POSIX_LIMIT.get(platform, POSIX_LIMIT["darwin"])


# The command.


class Argument(NamedTuple):
    """An argument, and the option that it came from."""

    text: str
    option: str


_OUTPUT: Final = tuple(Argument(word, "mode") for word in ("--output-format", "stream-json", "--verbose"))
_INPUT: Final = tuple(Argument(word, "mode") for word in ("--input-format", "stream-json"))


def make_command(
    options: Options,
    *,
    program: str | None = None,
    files: Iterable[File] = (),
    environ: Mapping[str, str] | None = None,
    platform: str = sys.platform,
) -> Command:
    """The command that runs an agent as the options say.

    `program` is taken as it is: nothing is looked for, and it does not matter whether it could run here.
    `files` are added to those that the options need. `environ` and `platform` stand for this machine.

    Raises `AgentNotFound`, `FolderNotFound`, `UserNotFound`, `CommandTooLong`, and `OptionsError` for options
    that cannot be used with this runner.
    """
    user = _user(options, platform)
    env = make_environment(options, user=user, environ=environ, platform=platform)
    euid = os.geteuid() if platform == sys.platform and hasattr(os, "geteuid") else None
    if program is None:
        check_place(options, euid=euid if user is None else user.uid, platform=platform, environ=env)
    made, own_files = _arguments(options)
    words = (program,) if program is not None else _program(options, environ, platform)
    first = [Argument(word, "cli_path") for word in words]
    arguments = [*first, *_OUTPUT, *made, *_INPUT]
    command = Command(
        tuple(argument.text for argument in arguments),
        env=env,
        far_env=kept_elsewhere(options),
        cwd=absolute(options.cwd) if options.cwd is not None and runs_here(options.runner) else options.cwd,
        files=(*own_files, *files),
        folders=isolation_folders(options.isolation),
        user=user,
    )
    wrapped = command if options.runner is None else options.runner.wrap(command)
    check_length(wrapped, origins=_origins(arguments, wrapped), platform=platform)
    if not runs_here(options.runner):
        # Another machine most likely runs Linux, and would tell it only by not starting.
        check_length(command, origins=_origins(arguments, command), platform="linux")
    return wrapped


def make_version_probe(
    options: Options, *, environ: Mapping[str, str] | None = None, platform: str = sys.platform
) -> Command:
    """The command that asks the agent's program for its version, on the machine that it would run on.

    For when a session cannot be opened, to tell whether the program is too old or does not run at all. Raises
    what `make_command` raises.
    """
    user = _user(options, platform)
    command = Command(
        (*_program(options, environ, platform), "-v"),
        env=make_environment(options, user=user, environ=environ, platform=platform),
        folders=isolation_folders(options.isolation),
        user=user,
    )
    return command if options.runner is None else options.runner.wrap(command)


def _arguments(options: Options) -> tuple[list[Argument], list[File]]:
    """The arguments and files that options make: from the table, and then from `extra_args`."""
    arguments: list[Argument] = []
    files: list[File] = []
    for name, to, value in encode_set(options, Flag, FileDestination):
        if isinstance(to, FileDestination) and not isinstance(value, GivenPath):
            files.append(File(to.file, _content(value)))
            arguments.append(Argument(f"{to.name}={FOLDER}/{to.file}", name))
        else:
            arguments += (Argument(text, name) for text in _flags(to.name, value))
    for name, text in options.extra_args.items():
        arguments.append(Argument(f"--{name}" if text is None else f"--{name}={text}", "extra_args"))
    return arguments, files


def _flags(name: str, value: object) -> Iterator[str]:
    # A value is bound to its flag with `=`, so that it can be no flag itself, whatever it begins with.
    if isinstance(value, bool):
        yield from [name] if value else []
    elif isinstance(value, list | tuple):
        for item in cast("Sequence[str]", value):
            yield f"{name}={item}"
    else:
        yield f"{name}={value}"


def _content(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else json_of(value)


def _program(options: Options, environ: Mapping[str, str] | None, platform: str) -> tuple[str, ...]:
    if runs_here(options.runner):
        program = find_agent(
            cli_path=options.cli_path, bundled_path=options.bundled_path, environ=environ, platform=platform
        )
    else:
        program = options.cli_path or "claude"
    return (
        (program,) if options.executable is None else (options.executable, *options.executable_args, program)
    )


def _user(options: Options, platform: str) -> UserId | None:
    if options.user is None:
        return None
    if not runs_here(options.runner):
        raise OptionsError(
            f"`user` is {options.user!r}, and the runner starts the agent elsewhere, where users are others",
            hint="Give the user to the runner instead, as in `Ssh(host, user=…)` or `Docker(…, user=…)`.",
        )
    return look_up_user(options.user, platform=platform)


def _origins(arguments: list[Argument], wrapped: Command) -> list[str]:
    """The option that each argument came from, also after a runner has put words in front or all into one."""
    added = len(wrapped.argv) - len(arguments)
    if added >= 0 and wrapped.argv[added:] == tuple(argument.text for argument in arguments):
        return ["runner"] * added + [argument.option for argument in arguments]
    longest = max(arguments, key=lambda argument: len(argument.text))
    return [longest.option] * len(wrapped.argv)


def make_initialize(options: Options) -> Initialize:
    """What the agent is told in the `initialize` request."""
    from outrider.wire.control import Initialize

    request = Initialize()
    for _, to, value in encode_set(options, Init):
        setattr(request, to.name, value)
    return request
