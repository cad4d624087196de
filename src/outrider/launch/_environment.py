"""The environment of the agent: what it inherits, what Outrider tells it, and what the user sets, which wins.

Does not change the environment of this process.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Final

from outrider._version import __version__
from outrider.launch._isolation import isolation_variables
from outrider.launch._places import Variable
from outrider.launch._spelling import absolute, runs_here
from outrider.launch._table import ROWS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from outrider.command import UserId
    from outrider.options import Options

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
    env.update(_told(options))
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


def _told(options: Options) -> dict[str, str]:
    told = {
        "CLAUDE_CODE_ENTRYPOINT": "sdk-py",
        "CLAUDE_AGENT_SDK_VERSION": __version__,
        "CLAUDE_CODE_SDK_READS_SESSION_STATE": "1",
    }
    for row in ROWS:
        if isinstance(row.to, Variable):
            value = row.value(options)
            if isinstance(value, str):
                told[row.to.name] = value
    if options.cwd is not None and runs_here(options.runner):
        told["PWD"] = absolute(options.cwd)
    return told


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
