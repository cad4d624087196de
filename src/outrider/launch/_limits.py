"""How long a command line may be, on each system.

Counts what is about to be started; shortens nothing.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

from outrider.command import FOLDER
from outrider.errors import CommandTooLong

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outrider.command import Command

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
