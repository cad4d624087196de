"""Owns the two streams of the simulated program: lines that come in, bytes that go out.

Does not know what a line says.
"""

from __future__ import annotations

from typing import Protocol

__all__ = ["Lines", "Streams"]


class Streams(Protocol):
    """Where a run reads and writes."""

    async def receive(self) -> bytes:
        """The next bytes of stdin; `b""` at its end."""
        ...

    def write(self, data: bytes) -> None:
        """Write to stdout. Never waits, and never fails: the program does not notice that nobody reads."""
        ...

    def complain(self, line: str) -> None:
        """Write a line to stderr."""
        ...

    async def drain(self) -> None:
        """Wait until all that was written is on its way, or cannot be."""
        ...


class Lines:
    """Cuts bytes into lines, at line feeds alone."""

    def __init__(self) -> None:
        self._held: list[bytes] = []

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that are whole now, without their ends."""
        *whole, rest = data.split(b"\n")
        if whole:
            whole[0] = b"".join((*self._held, whole[0]))
            self._held = []
        if rest:
            self._held.append(rest)
        return whole

    def flush(self) -> bytes:
        """What has no end."""
        rest = b"".join(self._held)
        self._held = []
        return rest
