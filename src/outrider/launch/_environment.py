"""Makes the environment of Claude Code: inherited variables, Outrider's own, and the user's, which win.

Also looks up the user to run as. Does not change the environment of this process.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from typing import TYPE_CHECKING, Final

from outrider._version import __version__
from outrider.command import FOLDER, UserId
from outrider.errors import OptionsError, UserNotFound
from outrider.options._encode import absolute, runs_here
from outrider.options._table import Variable, encode_set

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pwd import struct_passwd

    from outrider.options import Isolation, Options

__all__ = ["look_up_user"]


# Isolation.

FOLDERS: Final = ("config", "home", "tmp")
"""What a hermetic run has of its own."""

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

# What no program can do without: where to find others, where to write, how to speak. Not how to reach the
# network or whom to trust there: proxies and certificates have to be named.
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
    env = _Variables(platform)
    env.update(_inherited(options, os.environ if environ is None else environ, platform))
    if user is not None:
        env.update(_identity(user))
    env.update(_own(options))
    env.update(isolation_variables(options, platform=platform))
    env.set_trace(_trace())
    env.update(options.env)
    return env.values


def kept_elsewhere(options: Options) -> tuple[str, ...] | None:
    """What a hermetic run keeps of the variables of another machine: the same as of this one. None: all."""
    return (*_INDISPENSABLE, *(options.env_policy.names or ())) if options.isolation.is_hermetic else None


class _Variables:
    """Names and values; on Windows, names that differ only in case are one."""

    def __init__(self, platform: str) -> None:
        self.values: dict[str, str] = {}
        self._is_windows = platform == "win32"

    def update(self, values: Mapping[str, str]) -> None:
        for name, value in values.items():
            self.remove(name)
            self.values[name] = value

    def remove(self, name: str) -> None:
        if self._is_windows:
            for other in [known for known in self.values if known.upper() == name.upper()]:
                del self.values[other]
        else:
            self.values.pop(name, None)

    def set_trace(self, trace: Mapping[str, str]) -> None:
        if trace:
            # A stale state beside a new parent would say something wrong.
            self.remove("TRACEPARENT")
            self.remove("TRACESTATE")
            self.update(trace)


def _inherited(options: Options, environ: Mapping[str, str], platform: str) -> dict[str, str]:
    is_windows, is_here = platform == "win32", runs_here(options.runner)
    names = options.env_policy.names
    if names is None and (options.isolation.is_hermetic or not is_here):
        names = ()
    if names is not None:
        # Another machine has what is indispensable itself.
        indispensable = (_INDISPENSABLE_ON_WINDOWS if is_windows else _INDISPENSABLE) if is_here else ()
        environ = _only((*indispensable, *names), environ, is_windows=is_windows)
    dropped = _NOT_INHERITED if names is None else [name for name in _NOT_INHERITED if name not in names]
    return {
        name: value
        for name, value in environ.items()
        if (name.upper() if is_windows else name) not in dropped
    }


def _identity(user: UserId) -> dict[str, str]:
    """Who the agent is: in the home of another user it could neither read nor write."""
    # A number that stands for no user has no home; containers give it this one.
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
    """The trace that the caller is in, for the agent to go on with; only if it already uses OpenTelemetry."""
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

# The largest number of 32 bits means "leave as it is" to the system: to switch to it would switch nothing.
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
        # Longer ones are out of range, and Python refuses to read very long ones.
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
