"""The `outrider` command: runs, shows, replays and examines conversations with an agent.

Stands on top of all other packages. Needs the extra `app`, which is only imported when a command runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

_MISSING = "The outrider command needs packages that are not installed. Run: pip install 'outrider[app]'"


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out a command line, that of this process if none is given; gives its exit code."""
    import sys
    from importlib.util import find_spec

    _open_streams()
    if any(find_spec(package) is None for package in ("rich", "typer")):
        sys.stderr.write(f"{_MISSING}\n")
        return 2
    try:
        from outrider.app._main import carry_out

        return carry_out(arguments)
    except KeyboardInterrupt:
        return 130


def _open_streams() -> None:
    """Who closes a stream has nothing to say, or does not want to hear it. In order: files take the first
    number that is free, and no other file may become one of these three."""
    import os
    import sys

    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115 - stays open
