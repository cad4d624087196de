"""Defines the reference SDK's error classes, and translates Outrider's errors into them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from outrider.errors import (
    AgentNotFound,
    ConnectionLost,
    FolderNotFound,
    FrameTooLarge,
    LaunchError,
    OptionsError,
    OutriderError,
    ProcessExited,
    RequestFailed,
    RequestTimedOut,
    SessionBusy,
    SessionNotFound,
    StoreError,
    StoreTimedOut,
    TranscriptError,
)
from outrider.session import SessionState

if TYPE_CHECKING:
    from collections.abc import Generator

    from outrider.session import Session
    from outrider.wire import JsonObject, ResultMessage

__all__ = [
    "CLIConnectionError",
    "CLIJSONDecodeError",
    "CLINotFoundError",
    "ClaudeSDKError",
    "MessageParseError",
    "ProcessError",
    "ResultError",
]


class ClaudeSDKError(Exception):
    """The base of all errors."""


class CLIConnectionError(ClaudeSDKError):
    """Claude Code cannot be started, or is not connected."""


class CLINotFoundError(CLIConnectionError):
    """Claude Code is not installed."""

    def __init__(self, message: str = "Claude Code not found", cli_path: str | None = None) -> None:
        super().__init__(f"{message}: {cli_path}" if cli_path else message)


class ProcessError(ClaudeSDKError):
    """The process of Claude Code failed."""

    def __init__(self, message: str, exit_code: int | None = None, stderr: str | None = None) -> None:
        self.exit_code = exit_code
        self.stderr = stderr
        text = message if exit_code is None else f"{message} (exit code: {exit_code})"
        super().__init__(f"{text}\nError output: {stderr}" if stderr else text)


class ResultError(ProcessError):
    """The process ended after an error result, which `data` holds."""

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
    """A line of output is not valid JSON."""

    def __init__(self, line: str, original_error: Exception) -> None:
        self.line = line
        self.original_error = original_error
        super().__init__(f"Failed to decode JSON: {line[:100]}...")

    def __reduce__(self) -> tuple[Callable[..., CLIJSONDecodeError], tuple[object, ...], dict[str, Any]]:
        # The default would call the constructor with the text alone.
        return type(self), (self.line, self.original_error), vars(self)


class MessageParseError(ClaudeSDKError):
    """A message could not be parsed."""

    def __init__(self, message: str, data: dict[str, Any] | None = None) -> None:
        self.data = data
        super().__init__(message)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _texts(value: object) -> list[str]:
    """The non-blank texts of a list, or of a single value."""
    each: list[object] = cast("list[object]", value) if isinstance(value, list) else [value]
    return [text.strip() for text in each if isinstance(text, str) and text.strip()]


# Outrider's errors as those of the reference.


class StoreFailed(ClaudeSDKError, RuntimeError):
    """A session store failed, or another process writes the session. The reference has `RuntimeError`s."""


@contextmanager
def translating() -> Generator[None]:
    """Raise Outrider's errors as those of the reference."""
    try:
        yield
    except OutriderError as error:
        if (found := translated(error)) is error:
            raise
        raise found from error


class writing_to:  # noqa: N801 - as `translating`, but without a generator: it is entered for each request
    """The same for writes: a session that had ended before is a connection error."""

    def __init__(self, session: Session) -> None:
        self._was_closed = session.state is SessionState.CLOSED

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, ProcessExited) and self._was_closed:
            said = f"Cannot write to terminated process (exit code: {error.returncode})"
            raise CLIConnectionError(said) from error
        if isinstance(error, OutriderError) and (found := translated(error)) is not error:
            raise found from error


def translated(error: OutriderError, result: ResultMessage | None = None) -> BaseException:
    """The error that the reference would raise. `result` is the error result that came last, if any."""
    match error:
        case ProcessExited():
            return process_error(error, result)
        case ConnectionLost(__cause__=Exception() as cause) if not isinstance(cause, OutriderError):
            # Errors of a user's transport are raised unchanged.
            return _of_transport(cause, result)
        case AgentNotFound():
            return CLINotFoundError(_not_found(error))
        case FolderNotFound():
            return CLIConnectionError(f"Working directory does not exist: {error.path}")
        case LaunchError():
            return CLIConnectionError(f"Failed to start Claude Code: {error}")
        case SessionNotFound(__cause__=end):
            lines: list[str] = getattr(end, "stderr_tail", "").splitlines()
            # What Claude Code says of it, if it does.
            said = f"No conversation found with session ID: {error.id}"
            said = next((line for line in lines if error.id and error.id in line), said)
            data: JsonObject = {"subtype": "error_during_execution", "is_error": True, "errors": [said]}
            # Without it, as Claude Code would exit.
            return result_error(data, getattr(end, "returncode", 1))
        case TranscriptError(__cause__=ProcessExited() as end):
            # A message to resume at that Claude Code refuses.
            data = {"subtype": "error_during_execution", "is_error": True, "errors": [end.stderr_tail]}
            return result_error(data, end.returncode)
        case OptionsError(__cause__=ProcessExited() as end):
            # Claude Code itself has refused it, and ended.
            return process_error(end, result)
        case RequestTimedOut():
            subtype = getattr(error.request, "subtype", error.request)
            return CLIConnectionError(f"Control request timeout: {subtype}")
        case RequestFailed():
            return ClaudeSDKError(error.message)
        case FrameTooLarge():
            said = f"JSON message exceeded maximum buffer size of {error.limit} bytes"
            return CLIJSONDecodeError(said, ValueError(f"Message of {error.size} bytes"))
        case ConnectionLost():
            return CLIConnectionError(str(error))
        case StoreTimedOut():
            after = "" if error.timeout is None else f" after {error.timeout * 1000:g}ms"
            return StoreFailed(f"SessionStore.{error.operation}() timed out{after}. {error}")
        case StoreError():
            return StoreFailed(f"SessionStore.{error.operation}() failed. {error}")
        case SessionBusy():
            return StoreFailed(str(error))
        case OptionsError() if error.message.startswith("`settings`"):
            return CLIConnectionError(f"Failed to load settings: {error}")
        case OptionsError() if error.message.startswith("`cwd`"):
            return CLIConnectionError(f"Failed to start Claude Code: {error}")
        case OptionsError():
            return error
        case _:
            return ClaudeSDKError(str(error))


def process_error(error: ProcessExited, result: ResultMessage | None) -> ProcessError:
    """The error for an exit: that of the last result, if it was one."""
    code = error.returncode
    if result is not None:
        return result_error(result.raw, code)
    return ProcessError(f"Command failed with exit code {code}", code, error.stderr_tail or None)


def _of_transport(cause: Exception, result: ResultMessage | None) -> Exception:
    if isinstance(cause, ProcessError) and not isinstance(cause, ResultError) and result is not None:
        return result_error(result.raw, cause.exit_code)
    return cause


def result_error(data: JsonObject, code: int | None) -> ResultError:
    """The error for an error result."""
    return ResultError(f"Claude Code returned an error result: {_what_it_says(data)}", data, code)


def _what_it_says(data: JsonObject) -> str:
    errors: object = data.get("errors")
    if texts := _texts(errors):
        return "; ".join(texts)
    if isinstance(text := data.get("result"), str) and text.strip():
        return text
    if (subtype := data.get("subtype")) and subtype != "success":
        return str(subtype)
    status: object = data.get("api_error_status")
    return "unknown error" if status is None else f"API error (HTTP {status})"


def _not_found(error: AgentNotFound) -> str:
    places = ", ".join(map(str, error.searched))
    if len(error.searched) == 1:
        return f"Claude Code not found at: {places}"
    install = "Install it with `npm install -g @anthropic-ai/claude-code`, or give its path as `cli_path`."
    return f"Claude Code not found. {install} Searched: {places}"
