"""The simulated agent as a program, `python -m outrider.testing.agent`, with the arguments of Claude Code.

Its script is in the file that the variable `OUTRIDER_AGENT_SCRIPT` names; without one it is automatic.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from outrider.testing._simulator.program import Invocation

__all__ = ["main"]

_VERSION: Final = "2.1.325"
_HELP: Final = """\
Usage: claude [options] [prompt]

The simulated agent of Outrider, for tests. It takes the options of Claude Code; see OUTRIDER_AGENT_SCRIPT.
"""


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run the agent with these arguments, those of the process by default, and exit as it does."""
    _open_closed_streams()
    arguments = list(sys.argv[1:] if argv is None else argv)
    version = os.environ.get("OUTRIDER_AGENT_VERSION") or _VERSION
    if arguments and arguments[0] in ("-v", "--version"):
        # Nothing else is needed, and nothing is loaded.
        print(f"{version} (Claude Code)")  # noqa: T201 - what it is asked for
        sys.exit(0)
    code = _run(arguments, dict(os.environ), version)
    sys.stdout.flush()
    sys.stderr.flush()
    # Not an ordinary exit: a thread may hang in a read that never ends.
    os._exit(code)


def _open_closed_streams() -> None:
    """Put nothing in place of standard streams that are closed, before others take their numbers."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            # The lowest number that is free: this one.
            os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))


def _run(arguments: list[str], environment: Mapping[str, str], version: str) -> int:
    from outrider.errors import OptionsError
    from outrider.testing._simulator.program import StartFailed, read_invocation

    try:
        try:
            cwd = Path.cwd()
        except FileNotFoundError:
            raise StartFailed(
                "The current directory no longer exists (it was deleted or moved). "
                "Start Claude Code from an existing directory."
            ) from None
        invocation = read_invocation(arguments, environment, cwd)
        if invocation.version:
            print(f"{version} (Claude Code)")  # noqa: T201 - what it is asked for
            return 0
        if invocation.help:
            print(_HELP, end="")  # noqa: T201 - what it is asked for
            return 0
        return _play(invocation, environment, cwd, version)
    except (OptionsError, StartFailed) as failed:
        print(failed, file=sys.stderr)  # noqa: T201 - as the program does
        return 1


def _play(invocation: Invocation, environment: Mapping[str, str], cwd: Path, version: str) -> int:
    import anyio

    from outrider.testing._simulator.program import play

    return anyio.run(play, invocation, environment, cwd, version)


if __name__ == "__main__":
    main()
