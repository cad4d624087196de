"""Makes errors of Outrider those that programs for the reference SDK catch, with the texts they look for.

Each has the error of Outrider as its `__cause__`. Does not decide what is an error.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from outrider.compat._errors import (
    ClaudeSDKError,
    CLIConnectionError,
    CLIJSONDecodeError,
    CLINotFoundError,
    ProcessError,
    ResultError,
)
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
)
from outrider.session import SessionState

if TYPE_CHECKING:
    from collections.abc import Generator

    from outrider.session import Session
    from outrider.wire import JsonObject, ResultMessage


class StoreFailed(ClaudeSDKError, RuntimeError):
    """A session store failed, or another process writes the session. The reference has `RuntimeError`s."""


@contextmanager
def translating() -> Generator[None]:
    """Raise errors of Outrider as those of the reference."""
    try:
        yield
    except OutriderError as error:
        if (told := translated(error)) is error:
            raise
        raise told from error


@contextmanager
def writing_to(session: Session) -> Generator[None]:
    """The same, where something is written: what has ended before is no news, but cannot be written to."""
    was_closed = session.state is SessionState.CLOSED
    with translating():
        try:
            yield
        except ProcessExited as error:
            if not was_closed:
                raise
            said = f"Cannot write to terminated process (exit code: {error.returncode})"
            raise CLIConnectionError(said) from error


def translated(error: OutriderError, result: ResultMessage | None = None) -> BaseException:
    """The error that the reference would raise. What is a `ValueError` there is one here, too, as it is.

    `result` is the error result that the agent ended with, if it did.
    """
    match error:
        case ProcessExited():
            return process_error(error, result)
        case ConnectionLost(__cause__=Exception() as cause) if not isinstance(cause, OutriderError):
            # Of a transport of the user's: it stays what it is.
            return _of_transport(cause, result)
        case AgentNotFound():
            return CLINotFoundError(_not_found(error))
        case FolderNotFound():
            return CLIConnectionError(f"Working directory does not exist: {error.path}")
        case LaunchError():
            return CLIConnectionError(f"Failed to start Claude Code: {error}")
        case SessionNotFound():
            said = f"No conversation found with session ID: {error.id}"
            data: JsonObject = {"subtype": "error_during_execution", "is_error": True, "errors": [said]}
            return result_error(data, getattr(error.__cause__, "returncode", None))
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
    """The program's end as an error: what its last result says, if that was an error."""
    code = error.returncode
    if result is not None:
        return result_error(result.raw, code)
    return ProcessError(f"Command failed with exit code {code}", code, error.stderr_tail or None)


def _of_transport(cause: Exception, result: ResultMessage | None) -> Exception:
    if isinstance(cause, ProcessError) and not isinstance(cause, ResultError) and result is not None:
        return result_error(result.raw, cause.exit_code)
    return cause


def result_error(data: JsonObject, code: int | None) -> ResultError:
    """The error for a result that is one."""
    return ResultError(f"Claude Code returned an error result: {_what_it_says(data)}", data, code)


def _what_it_says(data: JsonObject) -> str:
    errors: object = data.get("errors")
    told = [errors] if isinstance(errors, str) else cast("list[object]", errors or [])
    if said := "; ".join(text for text in told if isinstance(text, str) and text.strip()):
        return said
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
