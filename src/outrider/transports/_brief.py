"""Runs a command to its end and gives what it said: for short questions to a program, such as its version.

Does not talk to it: its input is empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import anyio

from outrider.errors import ConnectionLost
from outrider.transports._process import ProcessTransport

if TYPE_CHECKING:
    from outrider.command import Command

_SAID_LIMIT = 1024 * 1024
"""An answer is short; a program that floods is none of those that are asked."""


class Finished(NamedTuple):
    """What became of a command."""

    returncode: int | None
    """None if it was still running when its time was up."""
    output: bytes
    """What it wrote to stdout until then."""
    stderr_tail: str


async def run_to_end(command: Command, *, timeout: float) -> Finished:
    """Run a command with empty input, for `timeout` seconds at most; then it is killed.

    Raises a `LaunchError` if it cannot be started. That it fails is no error here: the exit code tells.
    """
    output = bytearray()
    transport = ProcessTransport(command)
    await transport.connect()
    try:
        with anyio.move_on_after(timeout):
            await transport.end_input()
            while len(output) < _SAID_LIMIT and (data := await transport.receive()):
                output += data
    except ConnectionLost:
        pass
    finally:
        # What the program did on its own is known by now, or its time is up.
        code = transport.returncode
        await transport.kill()
    return Finished(code, bytes(output), transport.stderr_tail)
