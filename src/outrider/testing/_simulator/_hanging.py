"""Owns where requests wait that a script leaves without an answer.

Does not decide which do.
"""

from __future__ import annotations

from outrider.testing._gate import Gate

__all__ = ["Hanging"]


class Hanging:
    """The gate that requests wait at now. Any thread may use it."""

    def __init__(self) -> None:
        self.gate = Gate(after=0)

    def release(self) -> None:
        """Let all go on that wait; later ones wait at another gate."""
        gate, self.gate = self.gate, Gate(after=0)
        gate.open()
