"""Owns the two ways in which a built-in tool of the simulated agent refuses: before a call, and during it.

The program tells them apart: only the second comes after the question whether the call is allowed.
"""

from __future__ import annotations

import errno
from pathlib import Path

from outrider.testing._simulator._world import Outcome

__all__ = ["Invalid", "Unusable", "WentWrong", "kilobytes", "no_such_tool", "system_error"]


class WentWrong(Exception):
    """A call that was carried out, and failed. The text is what the model is told."""

    def outcome(self) -> Outcome:
        return Outcome(content=str(self), is_error=True, detail=f"Error: {self}")


class Unusable(WentWrong):
    """A call that makes no sense here: nothing was asked and nothing was done."""

    def outcome(self) -> Outcome:
        return Outcome(
            content=f"<tool_use_error>{self}</tool_use_error>", is_error=True, detail=f"Error: {self}"
        )


class Invalid(Unusable):
    """An input that is not as the tool's schema says."""

    def __init__(self, text: str, issues: str) -> None:
        super().__init__(text)
        self.issues = issues

    def outcome(self) -> Outcome:
        return Outcome(
            content=f"<tool_use_error>InputValidationError: {self}</tool_use_error>",
            is_error=True,
            detail=f"InputValidationError: {self.issues}",
        )


def no_such_tool(name: str, why: str = "") -> Outcome:
    """The outcome of a call of a tool that the session does not have."""
    text = f"Error: No such tool available: {name}{why}"
    return Outcome(content=f"<tool_use_error>{text}</tool_use_error>", is_error=True, detail=text)


def system_error(error: OSError, path: Path) -> str:
    """What the program says when a file cannot be opened."""
    name = errno.errorcode.get(error.errno or 0, "EIO")
    return f"{name}: {(error.strerror or str(error)).lower()}, open '{path}'"


def kilobytes(size: int) -> str:
    """A number of bytes, as the program says it."""
    return f"{size / 1024:.1f}".removesuffix(".0") + "KB"
