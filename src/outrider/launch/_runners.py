"""Where Claude Code runs: here, behind a command, in a container, in a pod, or on another machine.

A runner wraps a command; the script that starts it on another machine is here, too. Starts nothing."""

from __future__ import annotations

import os
import re
import shlex
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

__all__ = ["ARGV", "Docker", "FAILED", "Kubectl", "Local", "Prefix", "Ssh", "needs_preamble", "preamble"]


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

# The far side, in the shell's POSIX form. It takes lines: each prepares something, a dot ends them, and one
# more line turns a subshell into the program. Its names begin with outrider_, so that they hide no variable
# of the program's, whose variables are set in the subshell alone: its PATH cannot lead this script astray.
#
# It stays beside the program for three reasons: to remove the folder, to pass signals on, and to end the
# program once no one is left to talk to it. The last needs a parent that goes away with the connection.
# Under sshd that is so; in a container the parent is outside and cannot be seen, and an agent that does not
# end with its input runs on until the container stops.
_SCRIPT: Final = r"""
outrider_fail() { printf 'outrider: %s\n' "$1" >&2; exit "${2:-@FAILED@}"; }
outrider_take() { IFS= read -r outrider_line || outrider_fail 'the input ended before the program started'; }
outrider_clear() { [ -z "$outrider_folder" ] || rm -rf -- "$outrider_folder"; }
outrider_pass() {
  outrider_caught=1
  if [ -n "${outrider_agent:-$!}" ]; then kill "-$1" "${outrider_agent:-$!}" 2>/dev/null; else exit "$2"; fi
}
outrider_make_folder() {
  outrider_folder=${TMPDIR:-/tmp}/outrider-$1
  mkdir "$outrider_folder" && return
  outrider_folder=; outrider_fail 'no private folder can be made here; set TMPDIR'
}
outrider_write() {
  case $(command -v printf) in
    printf) ;;
    *) outrider_fail 'sh has no printf of its own here, and another program would show what it is given' ;;
  esac
  exec 4>"$outrider_folder/$1"
}
outrider_go_to() {
  CDPATH= cd -- "$1" >/dev/null 2>&1 || outrider_fail "this user has no working folder '$1' on this machine"
}
outrider_find() {
  case $1 in */*) return ;; esac
  command -v "$1" >/dev/null 2>&1 && return
  for outrider_place in @PLACES@; do
    if [ -f "$outrider_place/$1" ] && [ -x "$outrider_place/$1" ]; then PATH=$PATH:$outrider_place; return; fi
  done
  outrider_fail "'$1' was not found on this machine; give its path there as \`cli_path\`" 127
}
outrider_forget() {
  outrider_before=
  set -f
  for outrider_word in $(export -p); do
    outrider_name=${outrider_word%%=*}
    case $outrider_before,$outrider_name in
      *,*[!A-Za-z0-9_]* | *,[0-9]*) ;;
      # To unset what is read-only ends some shells: a subshell tries it first.
      export,?* | -x,?*)
        outrider_is_kept "$outrider_name" || ! (unset "$outrider_name") || unset "$outrider_name" ;;
    esac
    outrider_before=$outrider_word
  done 2>/dev/null
  set +f
}
outrider_is_wanted() {
  kill -0 $$ && kill -0 "$outrider_agent" && { [ -z "$outrider_parent" ] || kill -0 "$outrider_parent"; }
}
outrider_watch() {
  while outrider_is_wanted; do sleep 1; done
  kill -TERM "$outrider_agent"
  for outrider_second in 1 2 3 4 5; do kill -0 "$outrider_agent" || break; sleep 1; done
  kill -0 "$outrider_agent" && kill -KILL "$outrider_agent"
  outrider_clear
}
outrider_home=${HOME-} outrider_umask=$(umask)
outrider_folder= outrider_agent= outrider_caught= outrider_again=
# A signal to this number means others than the parent; a parent that cannot be asked seems to be gone.
case $PPID in 0 | 1) outrider_parent= ;; *) outrider_parent=$PPID ;; esac
kill -0 "$outrider_parent" 2>/dev/null || outrider_parent=
trap outrider_clear EXIT
trap 'outrider_pass HUP 129' HUP
# Programs in the background are started with INT ignored.
trap 'outrider_pass TERM 130' INT
trap 'outrider_pass TERM 143' TERM
umask 077
while outrider_take; do
  case $outrider_line in .) break ;; esac
  eval "$outrider_line" || outrider_fail 'what the program needs cannot be prepared here'
done
outrider_take
umask "$outrider_umask"
exec 3<&0
( eval "$outrider_line"; outrider_find "$1"; exec "$@" ) <&3 3<&- &
outrider_agent=$!
# Only the program holds what it reads and writes, so that its ends are seen when it closes them.
exec 3<&- </dev/null >/dev/null 2>&1
( trap - EXIT; outrider_watch ) &
while :; do
  outrider_caught=
  wait "$outrider_agent"
  outrider_status=$?
  # A signal ends the wait early, or comes just when it is over: ask again, and 127 means that it was over.
  if [ -n "$outrider_again" ] && [ "$outrider_status" -eq 127 ]; then
    outrider_status=$outrider_again; break
  fi
  [ -n "$outrider_caught" ] || break
  outrider_again=$outrider_status
done
trap '' HUP INT TERM
kill "$!" 2>/dev/null
exit "$outrider_status"
"""


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


def _script() -> bytes:
    """The script without what only a reader needs."""
    places = " ".join(f'"{folder.replace("~", "$outrider_home", 1)}"' for folder in POSIX_FOLDERS)
    script = _SCRIPT.replace("@PLACES@", places).replace("@FAILED@", str(FAILED))
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
    if not needs_preamble(command):
        return Command(wrapped(command.argv), preamble=command.preamble, secrets=command.secrets)
    secrets = command.known_secrets({})
    return Command(wrapped(ARGV), preamble=preamble(command), secrets=secrets)


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
        why = "it is not text"
    elif not value.strip():
        why = "it is empty"
    elif value.startswith("-"):
        why = "it would be taken for a flag"
    elif not value.isprintable() or (not spaces and " " in value):
        why = "it has white space or control characters"
    if why:
        raise OptionsError(f"`{field}` of `{runner}` is {value!r}: {why}", hint=hint or "Give another value.")
