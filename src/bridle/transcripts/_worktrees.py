"""Owns the question to git which other worktrees a folder's repository has.

Does not read repositories itself.
"""

from __future__ import annotations

import os
import signal
import subprocess
import unicodedata
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["worktrees"]

_SECONDS: Final = 2.0
"""For the answer; a repository on a network that is down must not hold up a list."""

_COMMAND: Final = ("-c", "core.fsmonitor=false", "worktree", "list", "--porcelain")
_MARK: Final = b"worktree "


def worktrees(folder: str | os.PathLike[str], *, timeout: float = _SECONDS) -> list[str]:
    """The folders of all worktrees of the repository that a folder is in; none if it is in no repository, and
    if git is missing or does not answer in time."""
    place = os.path.realpath(folder)
    told = _ask(place, (*_COMMAND, "-z"), timeout)
    lines = (told or b"").split(b"\x00")
    if told == b"":
        # Before 2.36, git does not know `-z`.
        lines = (_ask(place, _COMMAND, timeout) or b"").split(b"\n")
    return [
        unicodedata.normalize("NFC", os.fsdecode(line.removeprefix(_MARK)))
        for line in lines
        if line.startswith(_MARK)
    ]


def _ask(place: str, arguments: Sequence[str], timeout: float) -> bytes | None:
    """What git says to this; an empty answer if it refuses, None if there is no use in asking again."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {"GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    try:
        process = subprocess.Popen(
            ["git", *arguments],
            cwd=place,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # Whatever it starts ends with it.
            start_new_session=os.name != "nt",
        )
    except (OSError, ValueError):
        return None
    try:
        told, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        return None
    finally:
        _end(process)
    return told if process.returncode == 0 else b""


def _end(process: subprocess.Popen[bytes]) -> None:
    """End it, and what it has left behind with its output open, if it was not read to its end."""
    output = process.stdout
    if output is None or output.closed:
        return
    with suppress(OSError):
        if os.name == "nt":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    output.close()
