"""Maps errors to exit codes and one-line messages of the command.

Does not print them: `_main` does.
"""

from __future__ import annotations

import re
import signal
import sys
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from outrider import errors
from outrider.app._terminal import one_line
from outrider.fleet import JournalBusy, JournalInvalid

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ENDING", "Code", "Failed", "code_of", "in_one_line"]

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
