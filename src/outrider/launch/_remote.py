"""Encodes a command for a shell on another machine.

Everything that may be secret travels on stdin, ahead of the agent's own input; the command line there is
always the same. Does not connect to the machine: the runners in `_runners` name the command that does.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

from outrider.command import FOLDER
from outrider.errors import LaunchError, OptionsError
from outrider.launch._program import POSIX_FOLDERS

if TYPE_CHECKING:
    from outrider.command import Command, File

__all__ = ["ARGV", "FAILED", "needs_preamble", "preamble"]

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
# program once nobody is left to talk to it. The last needs a parent that goes away with the connection.
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
