"""Defines the runners, which start a command here or elsewhere by putting another command in front of it.

Starts nothing: `outrider.transports` does. `_remote` encodes the command for another machine.
"""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, Final, TypeAlias, cast

import msgspec

from outrider.command import Command
from outrider.errors import OptionsError
from outrider.launch import _remote
from outrider.redaction import mask, mask_argv

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from os import PathLike

    StrPath: TypeAlias = str | PathLike[str]

__all__ = ["Docker", "Kubectl", "Local", "Prefix", "Ssh"]


_SPECIAL: Final = frozenset("'`\"$\\;&<>|(){}")


class _Runner(msgspec.Struct, frozen=True, omit_defaults=True, repr_omit_defaults=True):
    """A runner is a value: it can be compared, kept and used for many commands."""

    def __repr__(self) -> str:
        fields: dict[str, object] = {name: getattr(self, name) for name in self.__struct_fields__}
        words = {
            name: tuple(mask_argv(cast("tuple[str, ...]", value)))
            for name, value in fields.items()
            if isinstance(value, tuple)
        }
        shown = msgspec.structs.replace(self, **words) if words else self
        return mask(msgspec.Struct.__repr__(shown))


class Local(_Runner, frozen=True):
    """Runs the command on this machine, as it is."""

    @property
    def is_local(self) -> bool:
        return True

    def wrap(self, command: Command) -> Command:
        return command


class _Argv(_Runner, frozen=True):
    argv: Sequence[str]


class Prefix(_Argv, frozen=True, kw_only=True):
    """Runs the command behind another one: `Prefix(["nice", "-n", "10"])`.

    With `is_local=False`, the words lead to a place that does not share this machine's files, and hand on the
    arguments that follow them as they are: `Prefix(["podman", "exec", "-i", "box"], is_local=False)`. Such a
    place needs a POSIX `sh`; the environment, the working folder and files are carried there.
    """

    is_local: bool = True

    def __post_init__(self) -> None:
        _freeze(self, "argv")
        if not self.argv:
            raise OptionsError("`Prefix` has no words", hint="Give a command, or use `Local()`.")
        _check("Prefix", "argv", self.argv[0])

    def wrap(self, command: Command) -> Command:
        if self.is_local:
            return msgspec.structs.replace(command, argv=(*self.argv, *command.argv))
        return _carried(command, "Prefix", lambda far: (*self.argv, *far))


class _Host(_Runner, frozen=True):
    host: str
    """A name, an address, `user@host`, or an alias from the ssh configuration."""


class Ssh(_Host, frozen=True, kw_only=True):
    """Runs the command on another machine, through `ssh`.

    It never asks for a password (`BatchMode`): use a key or an agent. `options` are settings of ssh, such as
    `"ServerAliveInterval=15"`. The environment, the working folder and files are carried over on stdin, so
    nothing of them is on a command line. The machine needs a POSIX `sh`; the login shell may be another one.
    If the connection breaks, the agent there is ended as soon as sshd notices.
    """

    user: str | None = None
    port: int | None = None
    identity: StrPath | None = None
    """A file with the private key."""
    options: Sequence[str] = ()
    executable: str = "ssh"

    def __post_init__(self) -> None:
        _freeze(self, "options")
        for field in ("host", "user", "executable"):
            _check("Ssh", field, getattr(self, field))
        # A configuration of ssh may put these into a command for the shell of this machine.
        if _SPECIAL & set(self.host + (self.user or "")):
            raise OptionsError(
                f"`host` or `user` of `Ssh` has characters that a shell gives a meaning to: "
                f"{self.host!r}, {self.user!r}",
                hint="Give a plain name.",
            )
        for option in self.options:
            _check("Ssh", "options", option, hint='Give settings: "ServerAliveInterval=15".', spaces=True)
        if self.port is not None and not (type(self.port) is int and 0 < self.port < 65536):
            raise OptionsError(f"`port` of `Ssh` is {self.port!r}", hint="Give a number from 1 to 65535.")
        if self.identity is not None:
            msgspec.structs.force_setattr(self, "identity", os.fspath(self.identity))
            _check("Ssh", "identity", self.identity, spaces=True)

    @property
    def is_local(self) -> bool:
        return False

    def wrap(self, command: Command) -> Command:
        return _carried(command, "Ssh", self._argv)

    def _argv(self, far: tuple[str, ...]) -> tuple[str, ...]:
        argv = [self.executable, "-T"]
        argv += ["-l", self.user] if self.user else []
        argv += ["-p", str(self.port)] if self.port else []
        argv += ["-i", str(self.identity)] if self.identity else []
        # ssh takes the first value that it gets for a setting: the user's come first.
        for option in (*self.options, "BatchMode=yes"):
            argv += ["-o", option]
        # ssh joins its words with spaces, and the login shell of the far side takes them apart. That shell is
        # replaced, so that the connection is the parent of what runs.
        return (*argv, "--", self.host, "exec " + shlex.join(far))


class Docker(_Runner, frozen=True, kw_only=True):
    """Runs the command in a container: a running one, by its name or id, or a new one of an `image`.

    A new one is removed at the end. `args` are further arguments of `docker exec` or `docker run`. The
    environment, the working folder and files are carried over on stdin, so nothing of them is on a command
    line or shown by `docker inspect`. The container needs a POSIX `sh`.

    If the client is killed, the agent in the container comes to the end of its input, and ends; one that is
    stuck stays until the container is stopped.
    """

    container: str | None = None
    image: str | None = None
    workdir: str | None = None
    """Where the command starts, unless it says so itself."""
    user: str | int | None = None
    """A name or number in the container, perhaps with a group: `"app:app"`."""
    volumes: Sequence[str] = ()
    """Folders of this machine that a new container sees: `"/here:/there:ro"`."""
    args: Sequence[str] = ()
    executable: str = "docker"

    def __post_init__(self) -> None:
        _freeze(self, "volumes")
        _freeze(self, "args")
        if (self.container is None) == (self.image is None):
            given = "neither" if self.image is None else "both"
            raise OptionsError(
                f"`Docker` has {given} of `container` and `image`", hint="Give exactly one of them."
            )
        if type(self.user) is int:
            msgspec.structs.force_setattr(self, "user", str(self.user))
        for field in ("container", "image", "user", "executable"):
            _check("Docker", field, getattr(self, field))
        _check("Docker", "workdir", self.workdir, spaces=True)
        for volume in self.volumes:
            _check("Docker", "volumes", volume, spaces=True)
        if self.volumes and self.container is not None:
            raise OptionsError(
                "`volumes` of `Docker` cannot be added to a running container",
                hint="Give an `image`, or start the container with them.",
            )

    @property
    def is_local(self) -> bool:
        return False

    def wrap(self, command: Command) -> Command:
        return _carried(command, "Docker", self._argv)

    def _argv(self, far: tuple[str, ...]) -> tuple[str, ...]:
        argv = [self.executable, *(("exec", "-i") if self.container else ("run", "-i", "--rm"))]
        argv += ["--workdir", self.workdir] if self.workdir else []
        argv += ["--user", str(self.user)] if self.user else []
        for volume in self.volumes:
            argv += ["--volume", volume]
        argv += self.args
        if self.container:
            return (*argv, self.container, *far)
        # An entry point of the image would get the command as its arguments.
        return (*argv, "--entrypoint", far[0], str(self.image), *far[1:])


class _Pod(_Runner, frozen=True):
    pod: str
    """The name of the pod, or `deployment/name`."""


class Kubectl(_Pod, frozen=True, kw_only=True):
    """Runs the command in a pod of a Kubernetes cluster, through `kubectl exec`.

    All else is as with a running container of `Docker`.
    """

    container: str | None = None
    namespace: str | None = None
    context: str | None = None
    executable: str = "kubectl"

    def __post_init__(self) -> None:
        for field in ("pod", "container", "namespace", "executable"):
            _check("Kubectl", field, getattr(self, field))
        _check("Kubectl", "context", self.context, spaces=True)

    @property
    def is_local(self) -> bool:
        return False

    def wrap(self, command: Command) -> Command:
        return _carried(command, "Kubectl", self._argv)

    def _argv(self, far: tuple[str, ...]) -> tuple[str, ...]:
        argv = [self.executable]
        argv += ["--context", self.context] if self.context else []
        argv += ["--namespace", self.namespace] if self.namespace else []
        argv += ["exec", "-i", self.pod]
        argv += ["--container", self.container] if self.container else []
        return (*argv, "--", *far)


def _carried(command: Command, runner: str, wrapped: Callable[[tuple[str, ...]], tuple[str, ...]]) -> Command:
    """The command that starts the client here; it takes this process's environment and folder."""
    if command.user is not None:
        raise OptionsError(
            f"`user` is a user of this machine, and `{runner}` runs the agent on another",
            hint="Give the user to the runner, as in `Ssh(host, user=…)` or `Docker(container=…, user=…)`.",
        )
    if not _remote.needs_preamble(command):
        return Command(wrapped(command.argv), preamble=command.preamble, secrets=command.secrets)
    secrets = command.known_secrets({})
    return Command(wrapped(_remote.ARGV), preamble=_remote.preamble(command), secrets=secrets)


def _freeze(runner: msgspec.Struct, field: str) -> None:
    """Make a field of words a tuple, so that the value cannot change."""
    words = getattr(runner, field)
    if isinstance(words, str):
        raise OptionsError(
            f"`{field}` of `{type(runner).__name__}` is the text {words!r}",
            hint=f"Give a list of words: {shlex.split(words) if _splits(words) else [words]}.",
        )
    try:
        words = tuple(words)
    except TypeError:
        raise OptionsError(
            f"`{field}` of `{type(runner).__name__}` is {words!r}", hint="Give a list of words."
        ) from None
    for word in words:
        if not isinstance(word, str) or "\0" in word:
            raise OptionsError(
                f"`{field}` of `{type(runner).__name__}` has {word!r}", hint="Give texts without NUL bytes."
            )
    msgspec.structs.force_setattr(runner, field, words)


def _splits(words: str) -> bool:
    try:
        return bool(shlex.split(words))
    except ValueError:
        return False


def _check(runner: str, field: str, value: object, *, hint: str = "", spaces: bool = False) -> None:
    """Refuse what the client would take for one of its flags, or for several words."""
    if value is None:
        return
    why = ""
    if not isinstance(value, str):
        why = "it is no text"
    elif not value.strip():
        why = "it is empty"
    elif value.startswith("-"):
        why = "it would be taken for a flag"
    elif not value.isprintable() or (not spaces and " " in value):
        why = "it has white space or control characters"
    if why:
        raise OptionsError(f"`{field}` of `{runner}` is {value!r}: {why}", hint=hint or "Give another value.")
