"""Where Claude Code runs: here, behind a command, in a container, in a pod, or on another machine."""

from __future__ import annotations

import os
import re
import shlex
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final, TypeAlias, cast

import msgspec

from outrider.command import FOLDER, Command
from outrider.errors import LaunchError, OptionsError
from outrider.launch._program import POSIX_FOLDERS
from outrider.redaction import mask, mask_argv

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from os import PathLike

    from outrider.command import File


ARGV: Final = ("sh", "-c", 'IFS= read -r outrider_line && eval "$outrider_line"', "outrider")
"""What runs on the far side: a shell that takes its script from the first line of its input.

`read` takes one byte at a time from a pipe, so what follows stays for the agent; `sh -s`, `head` and `cat`
would take more. There is no single quote, backslash or `!` in it, which csh or fish read in their own ways.
"""

FAILED: Final = 125
"""What the far side exits with if it could not get as far as to start the program; stderr has the reason."""

_CHUNK: Final = 16 * 1024
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAME_OR_BEGINNING: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)?\*|[A-Za-z_][A-Za-z0-9_]*")
# A shell refuses to set these, some shells by ending.
_KEPT_BY_SHELLS: Final = frozenset(("BASHOPTS", "BASH_VERSINFO", "EUID", "PPID", "SHELLOPTS", "UID"))


def needs_preamble(command: Command) -> bool:
    """Whether there is anything to carry to the far side but the command line itself."""
    has_env = bool(command.env) or command.far_env is not None
    return has_env or command.cwd is not None or command.needs_folder


def preamble(command: Command) -> bytes:
    """What the far side has to read first, to start the command with all that it needs.

    Its variables are added to those of the far side, or to what is kept of them. `~/` at the start of the
    program and of the working folder is the home there. A program without a slash is looked for on PATH, then
    where installers put it.

    Raises `OptionsError` for variables that a shell cannot set, `LaunchError` for files outside the folder.
    """
    lines = [b"outrider_n=$(printf '\\n.'); outrider_n=${outrider_n%.}; eval " + _quoted(_script())]
    if command.needs_folder:
        for name in (*command.folders, *(file.name for file in command.files)):
            if name.startswith("/") or ".." in name.split("/"):
                raise LaunchError(
                    f"{name!r} is outside of the private folder", hint="Give a path inside of it."
                )
        lines.append(b"outrider_make_folder " + os.urandom(16).hex().encode())
        lines += [b'mkdir -p -- "$outrider_folder"/' + _quoted(_bytes(name)) for name in command.folders]
        for file in command.files:
            lines += _file(file)
    lines += [b".", b"; ".join(_start(command))]
    return b"\n".join(lines) + b"\n" + command.preamble


@cache
def _script() -> bytes:
    """The script without what only a reader needs."""
    places = " ".join(f'"{folder.replace("~", "$outrider_home", 1)}"' for folder in POSIX_FOLDERS)
    text = (files("outrider.launch") / "far_side.sh").read_text(encoding="utf-8")
    script = text.replace("@PLACES@", places).replace("@FAILED@", str(FAILED))
    return "\n".join(
        line for line in script.strip().splitlines() if not line.lstrip().startswith("#")
    ).encode()


def _start(command: Command) -> list[bytes]:
    """The commands that turn a subshell into the program, but for the last one."""
    lines: list[bytes] = []
    if command.far_env is not None:
        kept = "|".join(filter(_NAME_OR_BEGINNING.fullmatch, command.far_env)) or "''"
        lines.append(f"outrider_is_kept() {{ case $1 in {kept}) ;; *) return 1 ;; esac; }}".encode())
        lines.append(b"outrider_forget")
    for name, value in (command.env or {}).items():
        if not _NAME.fullmatch(name) or name in _KEPT_BY_SHELLS or name.startswith("outrider_"):
            raise OptionsError(
                f"`env` has {name!r}, and no shell can set a variable of this name on another machine",
                hint="Leave it out, or set it there.",
            )
        lines.append(b"export " + name.encode() + b"=" + _placed(value, f"the variable {name!r}"))
    if command.cwd is not None:
        # A dash alone would lead to the folder before.
        lines.append(b"outrider_go_to " + _at_home("./-" if command.cwd == "-" else command.cwd, "`cwd`"))
    program, *arguments = command.argv
    if program.startswith("-"):
        raise OptionsError(f"the program {program!r} would be taken for a flag", hint="Give its path.")
    words = [_at_home(program, "the program"), *(_placed(each, "an argument") for each in arguments)]
    lines.append(b"set -- " + b" ".join(words))
    return lines


def _file(file: File) -> list[bytes]:
    lines: list[bytes] = []
    folder, _, _ = file.name.rpartition("/")
    if folder:
        lines.append(b'mkdir -p -- "$outrider_folder"/' + _quoted(_bytes(folder)))
    lines.append(b"outrider_write " + _quoted(_bytes(file.name)))
    for start in range(0, len(file.content), _CHUNK):
        # A shell's text cannot hold a NUL byte, but its printf can write one.
        pieces = file.content[start : start + _CHUNK].split(b"\0")
        written = (b"printf %s " + _quoted(piece) + b" >&4" for piece in pieces)
        lines.append(b"; printf '\\000' >&4; ".join(written))
    lines.append(b"exec 4>&-")
    return lines


def _at_home(path: str, what: str) -> bytes:
    if path == "~" or path.startswith("~/"):
        return b'"$outrider_home"' + _placed(path[1:], what)
    return _placed(path, what)


def _placed(text: str, what: str) -> bytes:
    """A text as one word for the shell, with the folder filled in."""
    return b'"$outrider_folder"'.join(_quoted(_bytes(part, what)) for part in text.split(FOLDER))


def _bytes(text: str, what: str = "a name") -> bytes:
    if "\0" in text:
        raise OptionsError(f"{what} has a NUL byte, which no program can be given", hint="Remove it.")
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise OptionsError(f"{what} cannot be encoded: {error.reason}", hint="Give valid text.") from None


def _quoted(content: bytes) -> bytes:
    """Any bytes but NUL as one word on one line: the shell takes nothing in it for its own."""
    return b"'" + content.replace(b"'", b"'\\''").replace(b"\n", b"'\"$outrider_n\"'") + b"'"


if TYPE_CHECKING:
    StrPath: TypeAlias = str | PathLike[str]


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

    def _carried(self, command: Command, wrapped: Callable[[tuple[str, ...]], tuple[str, ...]]) -> Command:
        """The command that starts the client here; it takes this process's environment and folder."""
        if command.user is not None:
            raise OptionsError(
                f"`user` is a user of this machine, and `{type(self).__name__}` runs the agent on another",
                hint="Give it to the runner, as in `Ssh(host, user=…)` or `Docker(container=…, user=…)`.",
            )
        if not needs_preamble(command):
            return Command(wrapped(command.argv), preamble=command.preamble, secrets=command.secrets)
        secrets = command.known_secrets({})
        return Command(wrapped(ARGV), preamble=preamble(command), secrets=secrets)

    def _freeze(self, *fields: str) -> None:
        """Make fields of words tuples, so that the value cannot change."""
        for field in fields:
            words, place = getattr(self, field), f"`{field}` of `{type(self).__name__}`"
            if isinstance(words, str):
                meant = shlex.split(words) if _splits(words) else [words]
                raise OptionsError(f"{place} is the text {words!r}", hint=f"Give a list of words: {meant}.")
            try:
                words = tuple(words)
            except TypeError:
                raise OptionsError(f"{place} is {words!r}", hint="Give a list of words.") from None
            for word in words:
                if not isinstance(word, str) or "\0" in word:
                    raise OptionsError(f"{place} has {word!r}", hint="Give texts without NUL bytes.")
            msgspec.structs.force_setattr(self, field, words)

    def _check(self, *fields: str, hint: str = "", spaces: bool = False) -> None:
        """Refuse what the client would take for one of its flags, or for several words."""
        for field in fields:
            given: object = getattr(self, field)
            for value in cast("tuple[object, ...]", given) if isinstance(given, tuple) else (given,):
                if value is not None and (why := _problem(value, spaces=spaces)):
                    place = f"`{field}` of `{type(self).__name__}`"
                    raise OptionsError(f"{place} is {value!r}: {why}", hint=hint or "Give another value.")


class _Far(_Runner, frozen=True):
    @property
    def is_local(self) -> bool:
        return False

    def wrap(self, command: Command) -> Command:
        return self._carried(command, self._argv)

    def _argv(self, far: tuple[str, ...]) -> tuple[str, ...]:
        raise NotImplementedError


def _problem(value: object, *, spaces: bool) -> str:
    if not isinstance(value, str):
        return "it is not text"
    if not value.strip():
        return "it is empty"
    if value.startswith("-"):
        return "it would be taken for a flag"
    if not value.isprintable() or (not spaces and " " in value):
        return "it has white space or control characters"
    return ""


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
        self._freeze("argv")
        if not self.argv:
            raise OptionsError("`Prefix` has no words", hint="Give a command, or use `Local()`.")
        if why := _problem(self.argv[0], spaces=False):
            raise OptionsError(f"`argv` of `Prefix` is {self.argv[0]!r}: {why}", hint="Give another value.")

    def wrap(self, command: Command) -> Command:
        if self.is_local:
            return msgspec.structs.replace(command, argv=(*self.argv, *command.argv))
        return self._carried(command, lambda far: (*self.argv, *far))


class _Host(_Far, frozen=True):
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
        self._freeze("options")
        self._check("host", "user", "executable")
        # A configuration of ssh may put these into a command for the shell of this machine.
        if _SPECIAL & set(self.host + (self.user or "")):
            raise OptionsError(
                f"`host` or `user` of `Ssh` has characters that a shell gives a meaning to: "
                f"{self.host!r}, {self.user!r}",
                hint="Give a plain name.",
            )
        self._check("options", hint='Give settings: "ServerAliveInterval=15".', spaces=True)
        if self.port is not None and not (type(self.port) is int and 0 < self.port < 65536):
            raise OptionsError(f"`port` of `Ssh` is {self.port!r}", hint="Give a number from 1 to 65535.")
        if self.identity is not None:
            msgspec.structs.force_setattr(self, "identity", os.fspath(self.identity))
            self._check("identity", spaces=True)

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


class Docker(_Far, frozen=True, kw_only=True):
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
        self._freeze("volumes", "args")
        if (self.container is None) == (self.image is None):
            given = "neither" if self.image is None else "both"
            raise OptionsError(
                f"`Docker` has {given} of `container` and `image`", hint="Give exactly one of them."
            )
        if type(self.user) is int:
            msgspec.structs.force_setattr(self, "user", str(self.user))
        self._check("container", "image", "user", "executable")
        self._check("workdir", "volumes", spaces=True)
        if self.volumes and self.container is not None:
            raise OptionsError(
                "`volumes` of `Docker` cannot be added to a running container",
                hint="Give an `image`, or start the container with them.",
            )

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


class _Pod(_Far, frozen=True):
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
        self._check("pod", "container", "namespace", "executable")
        self._check("context", spaces=True)

    def _argv(self, far: tuple[str, ...]) -> tuple[str, ...]:
        argv = [self.executable]
        argv += ["--context", self.context] if self.context else []
        argv += ["--namespace", self.namespace] if self.namespace else []
        argv += ["exec", "-i", self.pod]
        argv += ["--container", self.container] if self.container else []
        return (*argv, "--", *far)


def _splits(words: str) -> bool:
    try:
        return bool(shlex.split(words))
    except ValueError:
        return False
