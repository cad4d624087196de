"""Owns how the program takes failures of the API: which it tries again, and what it says of the others.

Does not try anything.
"""

from __future__ import annotations

from typing import Final

from outrider.testing._steps import CREDIT_TOO_LOW, Drop, Failure

__all__ = ["ApiError", "error_of", "is_retried", "pause", "retry_delay", "retry_kind"]

_FIRST_DELAY: Final = 500
_LONGEST_DELAY: Final = 32_000
_RETRIED: Final = (401, 408, 409, 429)

_PAUSE_SECONDS: Final = 0.02
_LONG_PAUSE_SECONDS: Final = 0.25

_KINDS: Final = {401: "authentication_failed", 429: "rate_limit", 529: "overloaded"}
"""`error` of `api_retry`, by status."""


class ApiError(Exception):
    """The API has failed for good; the turn ends with this."""

    def __init__(
        self,
        text: str,
        *,
        error: str,
        status: int | None = None,
        type: str | None = None,
        api_error: str | None = None,
        terminal: str = "api_error",
        request_id: str | None = None,
    ) -> None:
        super().__init__(text)
        self.text = text
        self.error = error
        self.status = status
        self.type = type
        self.api_error = api_error
        self.terminal = terminal
        self.request_id = request_id
        self.cut: str | None = None
        self.stop_details: dict[str, object] | None = None
        self.refused_message_id: str | None = None

    @property
    def stop_reason(self) -> str:
        return "stop_sequence" if self.stop_details is None else "refusal"


def is_retried(step: Failure | Drop) -> bool:
    """Whether the program tries the request again."""
    return isinstance(step, Drop) or step.status in _RETRIED or step.status >= 500


def retry_kind(step: Failure | Drop) -> tuple[int | None, str]:
    """`error_status` and `error` of `api_retry`."""
    if isinstance(step, Drop):
        return None, "unknown"
    return step.status, _KINDS.get(step.status, "server_error" if step.status >= 500 else "unknown")


def retry_delay(step: Failure | Drop, attempt: int) -> int:
    """The milliseconds that the program would wait, without the part that it leaves to chance."""
    delay: int = min(_FIRST_DELAY << (attempt - 1), _LONGEST_DELAY)
    if isinstance(step, Failure):
        try:
            delay = max(delay, int(float(step.headers.get("retry-after", 0)) * 1000))
        except ValueError:
            pass
    return delay


def pause(step: Failure | Drop) -> float:
    """The seconds that the next try waits here: long enough for a host to give up, and no longer.

    A wrong key is what hosts give up on by themselves, so hardly anybody waits for all of it.
    """
    if isinstance(step, Failure) and step.headers.get("retry-after") == "0":
        return 0.0
    return _LONG_PAUSE_SECONDS if isinstance(step, Failure) and step.status == 401 else _PAUSE_SECONDS


def error_of(step: Failure | Drop, *, model: str, request_id: str) -> ApiError:
    """What the program says of a failure that it does not try again, or not any more."""
    if isinstance(step, Drop):
        return ApiError(
            "API Error: Connection dropped (ECONNRESET). "
            "Check the gateway set in ANTHROPIC_BASE_URL, then try again.",
            error="server_error",
            api_error="connection_failed",
        )
    status, message = step.status, step.message
    text, error, terminal = f"API Error: {status} {message}", "unknown", "api_error"
    if status == 400 and message == CREDIT_TOO_LOW:
        text, error = "Credit balance is too low", "billing_error"
    elif status == 400 and message.startswith("prompt is too long"):
        text, error, terminal = "Prompt is too long", "invalid_request", "prompt_too_long"
    elif status == 401:
        text, error = "Invalid API key · Fix external API key", "authentication_failed"
    elif status == 402:
        error = "billing_error"
    elif status == 403:
        text, error = f"Failed to authenticate. {text}", "authentication_failed"
    elif status == 404:
        text = (
            f"There's an issue with the selected model ({model}). It may not exist or you may not have "
            "access to it. Run --model to pick a different model."
        )
        error = "model_not_found"
    elif status == 413:
        text, error, terminal = f"Request too large (max 32MB). {message}", "invalid_request", "image_error"
    elif status == 429:
        text, error = f"API Error: Request rejected (429) · {message}", "rate_limit"
    elif status == 529:
        text, error = (
            "API Error: 529 Overloaded. The servers are busy; try again in a moment.",
            "server_error",
        )
    elif status >= 500:
        text, error = f"{text}. This is a problem of the server; try again in a moment.", "server_error"
    return ApiError(
        text, error=error, status=status, type=step.type, terminal=terminal, request_id=request_id
    )
