"""Owns the error classes of the reference SDK: what they are called, what they carry and what they say.

Does not say which of Outrider's own errors becomes which.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

__all__ = [
    "CLIConnectionError",
    "CLIJSONDecodeError",
    "CLINotFoundError",
    "ClaudeSDKError",
    "MessageParseError",
    "ProcessError",
    "ResultError",
]

_SHOWN = 100
"""Characters of a line that an error's text repeats."""


class ClaudeSDKError(Exception):
    """Anything that goes wrong between a program and the agent."""


class CLIConnectionError(ClaudeSDKError):
    """The agent cannot be started or reached, or there is no connection to it."""


class CLINotFoundError(CLIConnectionError):
    """The agent's program is not there."""

    def __init__(self, message: str = "Claude Code not found", cli_path: str | None = None) -> None:
        super().__init__(f"{message}: {cli_path}" if cli_path else message)


class ProcessError(ClaudeSDKError):
    """The agent's process failed."""

    def __init__(self, message: str, exit_code: int | None = None, stderr: str | None = None) -> None:
        self.exit_code = exit_code
        self.stderr = stderr
        text = message if exit_code is None else f"{message} (exit code: {exit_code})"
        super().__init__(f"{text}\nError output: {stderr}" if stderr else text)


class ResultError(ProcessError):
    """The agent's process ended after a result that is an error, which `data` is."""

    def __init__(
        self, message: str, data: dict[str, Any] | None = None, exit_code: int | None = None
    ) -> None:
        self.data: dict[str, Any] = data or {}
        self.subtype = _text(self.data.get("subtype"))
        self.errors = _texts(self.data.get("errors"))
        self.result = _text(self.data.get("result"))
        status: object = self.data.get("api_error_status")
        self.api_error_status = status if isinstance(status, int) else None
        self.terminal_reason = _text(self.data.get("terminal_reason"))
        self.session_id = _text(self.data.get("session_id"))
        super().__init__(message, exit_code)


class CLIJSONDecodeError(ClaudeSDKError):
    """A line of the agent is no JSON."""

    def __init__(self, line: str, original_error: Exception) -> None:
        self.line = line
        self.original_error = original_error
        super().__init__(f"Failed to decode JSON: {line[:_SHOWN]}...")

    def __reduce__(self) -> tuple[Callable[..., CLIJSONDecodeError], tuple[object, ...], dict[str, Any]]:
        # By itself Python would make it again of its text alone.
        return type(self), (self.line, self.original_error), vars(self)


class MessageParseError(ClaudeSDKError):
    """A message of the agent is not what it should be."""

    def __init__(self, message: str, data: dict[str, Any] | None = None) -> None:
        self.data = data
        super().__init__(message)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _texts(value: object) -> list[str]:
    """The texts of a list, or the one that stands in its place; what is blank is none."""
    each: list[object] = cast("list[object]", value) if isinstance(value, list) else [value]
    return [text for text in each if isinstance(text, str) and text.strip()]
