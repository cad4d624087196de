"""Makes the command that runs Claude Code, its environment, and the `initialize` request, from options."""

from __future__ import annotations

import importlib
import os
import re
import sys
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from outrider._version import __version__
from outrider.command import FOLDER, Command, File, UserId
from outrider.errors import CommandTooLong, OptionsError, UserNotFound
from outrider.launch._program import Version, find_agent
from outrider.options import check_place
from outrider.options._encode import absolute, json_of, runs_here
from outrider.options._table import NEWEST, Flag, GivenPath, Init, Variable, encode_set
from outrider.options._table import File as FileDestination

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pwd import struct_passwd

    from outrider.options import Isolation, Options
    from outrider.wire.control import Initialize


# Isolation.

FOLDERS: Final = ("config", "home", "tmp")
"""The folders that a hermetic run has of its own."""

_HOME_VARIABLES: Final = {False: ("HOME",), True: ("HOME", "USERPROFILE", "APPDATA", "LOCALAPPDATA")}
# The agent's sockets and task files follow `CLAUDE_CODE_TMPDIR`, its children the others.
_TEMPORARY_VARIABLES: Final = {
    False: ("TMPDIR", "CLAUDE_CODE_TMPDIR"),
    True: ("TEMP", "TMP", "CLAUDE_CODE_TMPDIR"),
}


def isolation_folders(isolation: Isolation) -> tuple[str, ...]:
    """The empty folders that a command needs."""
    if not isolation.is_hermetic:
        return ()
    return FOLDERS if isolation.config_dir is None else FOLDERS[1:]


def isolation_variables(options: Options, *, platform: str) -> dict[str, str]:
    """The variables that carry out `isolation`.

    Tried with the program (2.1.325): with these, without setting sources and with a strict MCP configuration,
    it reads no settings, memory, hooks, agents, skills, commands or servers of the user or the project, and
    writes nothing outside its private folder and its working folder. Policies that an administrator has set
    for the machine still count, as does the machine's git configuration. `--bare` and `--safe-mode` would
    do more than that: they take tools away, or change how it signs in.
    """
    isolation = options.isolation
    variables: dict[str, str] = {}
    if isolation.config_dir is not None:
        is_here = runs_here(options.runner)
        variables["CLAUDE_CONFIG_DIR"] = absolute(isolation.config_dir) if is_here else isolation.config_dir
    if not isolation.is_hermetic:
        return variables
    is_windows = platform == "win32"
    variables.setdefault("CLAUDE_CONFIG_DIR", f"{FOLDER}/config")
    variables |= dict.fromkeys(_HOME_VARIABLES[is_windows], f"{FOLDER}/home")
    variables |= dict.fromkeys(_TEMPORARY_VARIABLES[is_windows], f"{FOLDER}/tmp")
    variables["CLAUDE_CODE_DISABLE_AUTO_MEMORY"] = "1"
    variables["CLAUDE_CODE_DISABLE_CLAUDE_MDS"] = "1"
    return variables


# Variables.

# Those of an agent that this process itself runs in: they describe that one, not the new one.
_NOT_INHERITED: Final = ("CLAUDECODE", "CLAUDE_AGENT_SDK_DERIVED_CLIENT_APP")

# Variables that every program needs: search path, folders, locale. Proxies and certificates are not among
# them, and have to be named.
_INDISPENSABLE: Final = ("PATH", "HOME", "TMPDIR", "TERM", "TZ", "LANG", "LANGUAGE", "LC_*")
_INDISPENSABLE_ON_WINDOWS: Final = (
    *("PATH", "PATHEXT", "COMSPEC", "SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "TEMP", "TMP", "TZ", "LANG"),
    *("USERPROFILE", "HOMEDRIVE", "HOMEPATH", "APPDATA", "LOCALAPPDATA", "PROGRAMDATA", "PROGRAMFILES"),
    *("PROGRAMFILES(X86)", "NUMBER_OF_PROCESSORS", "PROCESSOR_ARCHITECTURE", "OS"),
)


def make_environment(
    options: Options,
    *,
    user: UserId | None = None,
    environ: Mapping[str, str] | None = None,
    platform: str = sys.platform,
) -> dict[str, str]:
    """The whole environment of the agent; if it runs elsewhere, only what has to travel: what `env_policy`
    names, and what is set.

    `user` is the one that it runs as, if not that of this process, and `environ` stands for the variables of
    this process.
    """
    env = _inherited(options, os.environ if environ is None else environ, platform)
    trace = _trace()
    if trace:
        # An old state would not fit the new parent.
        _remove(env, ("TRACEPARENT", "TRACESTATE"), platform)
    own = (
        {} if user is None else _identity(user),
        _own(options),
        isolation_variables(options, platform=platform),
        trace,
        options.env,
    )
    for variables in own:
        if platform == "win32":
            _remove(env, variables, platform)
        env |= variables
    return env


def kept_elsewhere(options: Options) -> tuple[str, ...] | None:
    """The variables of another machine that a hermetic run keeps: the same as of this one. None: all."""
    return (*_INDISPENSABLE, *(options.env_policy.names or ())) if options.isolation.is_hermetic else None


def _remove(env: dict[str, str], names: Iterable[str], platform: str) -> None:
    """Remove variables; on Windows also under names that differ only in case."""
    if platform == "win32":
        folded = {name.upper() for name in names}
        names = [name for name in env if name.upper() in folded]
    for name in names:
        env.pop(name, None)


def _inherited(options: Options, environ: Mapping[str, str], platform: str) -> dict[str, str]:
    is_windows, is_here = platform == "win32", runs_here(options.runner)
    names = options.env_policy.names
    if names is None and (options.isolation.is_hermetic or not is_here):
        names = ()
    if names is not None:
        # Another machine has its own indispensable variables.
        indispensable = (_INDISPENSABLE_ON_WINDOWS if is_windows else _INDISPENSABLE) if is_here else ()
        environ = _only((*indispensable, *names), environ, is_windows=is_windows)
    dropped = _NOT_INHERITED if names is None else [name for name in _NOT_INHERITED if name not in names]
    return {
        name: value
        for name, value in environ.items()
        if (name.upper() if is_windows else name) not in dropped
    }


def _identity(user: UserId) -> dict[str, str]:
    """The variables of another user, who could neither read nor write in the home of this one."""
    # A number without a user has no home; containers use this one.
    known = {"HOME": user.home or "/", "USER": user.name, "LOGNAME": user.name}
    return {name: value for name, value in known.items() if value is not None}


def _only(names: Iterable[str], environ: Mapping[str, str], *, is_windows: bool) -> dict[str, str]:
    def fold(name: str) -> str:
        return name.upper() if is_windows else name

    exact = {fold(name) for name in names if not name.endswith("*")}
    beginnings = tuple(fold(name[:-1]) for name in names if name.endswith("*"))
    return {
        name: value
        for name, value in environ.items()
        if fold(name) in exact or fold(name).startswith(beginnings)
    }


def _own(options: Options) -> dict[str, str]:
    own = {
        "CLAUDE_CODE_ENTRYPOINT": "sdk-py",
        "CLAUDE_AGENT_SDK_VERSION": __version__,
        "CLAUDE_CODE_SDK_READS_SESSION_STATE": "1",
    }
    for _, to, value in encode_set(options, Variable):
        own[to.name] = str(value)
    if options.cwd is not None and runs_here(options.runner):
        own["PWD"] = absolute(options.cwd)
    return own


def _trace() -> dict[str, str]:
    """The caller's OpenTelemetry trace, for the agent to continue; empty if it does not use that."""
    if "opentelemetry.trace" not in sys.modules:
        return {}
    carrier: dict[str, str] = {}
    try:
        # Not an import statement: type checkers do not find what is not installed.
        importlib.import_module("opentelemetry.propagate").inject(carrier)
    except Exception:  # noqa: BLE001 - no propagator may keep an agent from starting
        return {}
    if not carrier.get("traceparent"):
        return {}
    return {name.upper(): carrier[name] for name in ("traceparent", "tracestate") if name in carrier}


# Users.

# The largest number of 32 bits means "leave as it is" to the system: switching to it changes nothing.
_NO_USER: Final = 2**32 - 1
_NUMBER: Final = re.compile(r"[+-]?[0-9]+")


def look_up_user(user: str | int, *, platform: str | None = None) -> UserId:
    """The user with its groups, by name or by number; a text of digits is a number.

    A number that no user has is allowed, as in a container: its group is the one of the same number, and it
    has no others. (To keep the group of this process would leave a program of root in root's group.)

    Raises `UserNotFound` if there is no such user, if it cannot be looked up, or if this process may not
    switch to it; `OptionsError` on Windows, where a program cannot be started as another user this way.
    """
    if (platform or sys.platform) == "win32":
        raise OptionsError("`user` has no meaning on Windows", hint="Leave it out, or run as that user.")
    number = _number(user)
    entry = _by_name(str(user)) if number is None else _by_number(user, number)
    if entry is None:
        assert number is not None
        found = UserId(number, number, (number,))
    else:
        found = UserId(entry.pw_uid, entry.pw_gid, _groups(user, entry), entry.pw_name, entry.pw_dir)
    if os.geteuid() not in (0, found.uid):
        raise UserNotFound(
            user,
            message=f"Only root may start the agent as another user, and this process runs as {os.geteuid()}",
            hint="Run as root, or leave `user` out to run as yourself.",
        )
    return found


def _number(user: str | int) -> int | None:
    if isinstance(user, str):
        if not _NUMBER.fullmatch(user):
            return None
        # Longer ones are out of range, and Python refuses to parse very long ones.
        number = int(user) if len(user) <= 20 else _NO_USER
    else:
        number = user
    if not 0 <= number < _NO_USER:
        raise UserNotFound(user, message=f"A user's number is from 0 to {_NO_USER - 1}")
    return number


def _by_name(name: str) -> struct_passwd | None:
    import pwd

    if not name:
        raise UserNotFound(name, message="The name of the user is empty")
    if "\0" in name:
        raise UserNotFound(name, message="The name of the user has a NUL byte, which no name can have")
    try:
        return pwd.getpwnam(name)
    except KeyError:
        raise UserNotFound(name, message="There is no user of this name on this machine") from None
    except UnicodeError:
        raise UserNotFound(name, message="The name of the user cannot be encoded") from None
    except OSError as error:
        raise _failed(name, error) from error


def _by_number(user: str | int, number: int) -> struct_passwd | None:
    import pwd

    try:
        return pwd.getpwuid(number)
    except KeyError:
        return None
    except OSError as error:
        raise _failed(user, error) from error


def _groups(user: str | int, entry: struct_passwd) -> tuple[int, ...]:
    try:
        return tuple(os.getgrouplist(entry.pw_name, entry.pw_gid))
    except OSError as error:
        raise _failed(user, error) from error


def _failed(user: str | int, error: OSError) -> UserNotFound:
    return UserNotFound(
        user,
        message=f"The user could not be looked up: {error.strerror or error}",
        hint="Check the user database of this machine (`getent passwd`), or try again.",
    )


# How long a command may be.

WINDOWS_LIMIT: Final = 8191
"""Characters in a whole command line: what `cmd.exe` takes, and so every wrapper script of the agent."""
LINUX_ARGUMENT_LIMIT: Final = 131_072
"""Bytes in one argument or one variable, with the NUL at its end: 32 pages, fixed in the kernel."""
POSIX_LIMIT: Final = {"linux": 2_097_152, "darwin": 1_048_576}
"""Bytes in all arguments and variables, where the system itself cannot be asked."""

_POINTER = 8
_LONGEST_CHARACTER: Final = 4
# The private folder's path is not known yet; a temporary folder is rarely deeper than this.
_FOLDER_LENGTH: Final = 120


def check_length(
    command: Command, *, arguments: Sequence[Argument] = (), platform: str = sys.platform
) -> None:
    """Raise `CommandTooLong` if the system would not start the command.

    `arguments` tell which option each came from, for the error to name.
    """
    environ = os.environ if command.env is None else command.env
    if platform != "win32" and _is_short(command.argv, environ):
        return
    argv = [argument.replace(FOLDER, "x" * _FOLDER_LENGTH) for argument in command.argv]
    names = _origins(arguments, command)
    if platform == "win32":
        from subprocess import list2cmdline

        longest = names[max(range(len(argv)), key=lambda index: len(argv[index]))]
        _refuse(longest, len(list2cmdline(argv)), WINDOWS_LIMIT, command)
        return
    sized = [(_size(argument), name) for argument, name in zip(argv, names, strict=True)]
    sized += [
        (_size(f"{name}={value.replace(FOLDER, 'x' * _FOLDER_LENGTH)}"), f"env[{name!r}]")
        for name, value in environ.items()
    ]
    size, longest = max(sized)
    if platform == "linux":
        _refuse(longest, size, LINUX_ARGUMENT_LIMIT, command)
    _refuse(longest, sum(size + _POINTER for size, _ in sized), _total_limit(platform), command)


def _is_short(argv: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Whether everything together is shorter than one argument may be, so that nothing needs measuring."""
    characters = sum(map(len, argv)) + sum(map(len, environ)) + sum(map(len, environ.values()))
    others = (len(argv) + len(environ)) * (_POINTER + 2 + _FOLDER_LENGTH)
    return _LONGEST_CHARACTER * characters + others < LINUX_ARGUMENT_LIMIT


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

_UNKNOWN: Final = Version()


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
    version: Version = _UNKNOWN,
    files: Iterable[File] = (),
    environ: Mapping[str, str] | None = None,
    platform: str = sys.platform,
) -> Command:
    """The command that runs an agent as the options say.

    `program` is taken as it is: nothing is looked for, and it does not matter whether it could run here.
    `version` is that of the program; if it is not known, it counts as the newest.
    `files` are added to those that the options need. `environ` and `platform` stand for this machine.

    Raises `AgentNotFound`, `FolderNotFound`, `UserNotFound`, `CommandTooLong`, and `OptionsError` for options
    that cannot be used with this runner.
    """
    user = _user(options, platform)
    env = make_environment(options, user=user, environ=environ, platform=platform)
    euid = os.geteuid() if platform == sys.platform and hasattr(os, "geteuid") else None
    if program is None:
        check_place(options, euid=euid if user is None else user.uid, platform=platform, environ=env)
    made, own_files = _arguments(options, version)
    words = (program,) if program is not None else _program(options, environ, platform)
    first = [Argument(word, "cli_path") for word in words]
    arguments = [*first, *_OUTPUT, *made, *_INPUT]
    command = Command(
        tuple([argument.text for argument in arguments]),
        env=env,
        far_env=kept_elsewhere(options),
        cwd=absolute(options.cwd) if options.cwd is not None and runs_here(options.runner) else options.cwd,
        files=(*own_files, *files),
        folders=isolation_folders(options.isolation),
        user=user,
    )
    wrapped = command if options.runner is None else options.runner.wrap(command)
    check_length(wrapped, arguments=arguments, platform=platform)
    if not runs_here(options.runner):
        # Another machine most likely runs Linux, and would just fail to start it.
        check_length(command, arguments=arguments, platform="linux")
    return wrapped


def make_version_probe(
    options: Options, *, environ: Mapping[str, str] | None = None, platform: str = sys.platform
) -> Command:
    """The command that asks Claude Code for its version, on the machine that it would run on.

    Used when a session cannot be opened, to find out whether the program is too old or does not run at all.
    Raises what `make_command` raises.
    """
    user = _user(options, platform)
    command = Command(
        (*_program(options, environ, platform), "-v"),
        env=make_environment(options, user=user, environ=environ, platform=platform),
        folders=isolation_folders(options.isolation),
        user=user,
    )
    return command if options.runner is None else options.runner.wrap(command)


def _arguments(options: Options, version: Version) -> tuple[list[Argument], list[File]]:
    """The arguments and files that options make: from the table, and then from `extra_args`."""
    arguments: list[Argument] = []
    files: list[File] = []
    for name, to, value in encode_set(options, Flag, FileDestination, version=version.numbers or NEWEST):
        if isinstance(to, FileDestination) and not isinstance(value, GivenPath):
            files.append(File(to.file, _content(value)))
            arguments.append(Argument(f"{to.name}={FOLDER}/{to.file}", name))
        else:
            arguments += [Argument(text, name) for text in _flags(to.name, value)]
    for name, text in options.extra_args.items():
        arguments.append(Argument(f"--{name}" if text is None else f"--{name}={text}", "extra_args"))
    return arguments, files


def _flags(name: str, value: object) -> list[str]:
    # `=` binds a value to its flag: one that begins with a dash is not taken for a flag.
    if isinstance(value, bool):
        return [name] if value else []
    if isinstance(value, list | tuple):
        return [f"{name}={item}" for item in cast("Sequence[str]", value)]
    return [f"{name}={value}"]


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


def _origins(arguments: Sequence[Argument], wrapped: Command) -> list[str]:
    """The option that each argument came from, even if a runner has added words or joined them all."""
    if not arguments:
        return ["the command line"] * len(wrapped.argv)
    added = len(wrapped.argv) - len(arguments)
    if added >= 0 and wrapped.argv[added:] == tuple(argument.text for argument in arguments):
        return ["runner"] * added + [argument.option for argument in arguments]
    longest = max(arguments, key=lambda argument: len(argument.text))
    return [longest.option] * len(wrapped.argv)


def make_initialize(options: Options, version: Version = _UNKNOWN) -> Initialize:
    """The `initialize` request for these options, as a program of this version reads it."""
    from outrider.wire.control import Initialize

    request = Initialize()
    for _, to, value in encode_set(options, Init, version=version.numbers or NEWEST):
        setattr(request, to.name, value)
    return request
