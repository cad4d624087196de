"""Makes the typed error of a failed turn from its result and the messages before it.

Does not raise it. Failed starts are in `_connection/start_errors`.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final, TypeVar

from outrider.command import Command
from outrider.errors import ApiFailed, LimitReached, OutputInvalid, OutriderError, TurnFailed, TurnInterrupted
from outrider.session._connection.start_errors import cause_of, startup_failure
from outrider.wire import ApiRetryMessage, AssistantMessage, RateLimitEvent, ResultMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outrider.options import Options
    from outrider.transports import Transport
    from outrider.wire import Message

__all__ = ["failure_of", "failure_of_retry", "hide_known", "startup_failure"]

E = TypeVar("E", bound=OutriderError)

# `success` with `is_error` means that the API failed, but for these.
_NOT_OF_THE_API: Final = (
    "malformed_tool_use_exhausted",
    "rapid_refill_breaker",
    "tool_deferred_unavailable",
    "turn_setup_failed",
)

_KIND_BY_REASON: Final = {
    "prompt_too_long": "prompt_too_long",
    "blocking_limit": "prompt_too_long",
    "image_error": "request_too_large",
}

# These say more than the agent's own word, which calls an overload a server error and a bad request unknown.
_KIND_BY_STATUS: Final = {400: "invalid_request", 413: "request_too_large", 529: "overloaded"}
_KIND_BY_BARE_STATUS: Final = {401: "authentication_failed", 403: "authentication_failed", 429: "rate_limit"}
_KIND_BY_TYPE: Final = {"overloaded_error": "overloaded", "request_too_large": "request_too_large"}
_VAGUE: Final = ("", "unknown", "server_error", "invalid_request")

_ADVICE: Final = {
    "authentication_failed": "Check the API key that the agent is given, or log in with `claude auth login`.",
    "not_logged_in": "Set `ANTHROPIC_API_KEY` in `env`, or log in with `claude auth login`.",
    "oauth_org_not_allowed": "Log in with an account of an organisation that is allowed here.",
    "account_on_hold": "Put the account in order at its provider, or use another.",
    "verification_required": "Complete the verification that the provider asks for, then try again.",
    "cloud_credential_error": "Renew the credentials of the cloud account that the agent uses.",
    "billing_error": "Add credit to the account, or use the key of another.",
    "model_not_found": "Give another `model`, or a key that may use this one.",
    "prompt_too_long": "Send less, or start a new session: the conversation does not fit the model any more.",
    "request_too_large": "Send less at once: smaller or fewer images and documents.",
    "max_output_tokens": "Ask for a shorter answer, or raise `CLAUDE_CODE_MAX_OUTPUT_TOKENS` in `env`.",
    "invalid_request": "The same request would fail again: change the prompt, the model or the options.",
    "refusal": "Put the request in another way, or use another `model`.",
    "connection_failed": "Check the network, the proxy and `ANTHROPIC_BASE_URL`, then try again.",
}

_PASSING: Final = ("rate_limit", "overloaded", "server_error", "connection_failed")


def hide_known(error: E, transport: Transport) -> E:
    """Hide in an error what the agent was given as a secret, and may have repeated."""
    command = getattr(transport, "command", None)
    return error.hide(command.redaction(os.environ)) if isinstance(command, Command) else error


def failure_of(
    message: ResultMessage,
    messages: Sequence[Message] = (),
    *,
    options: Options | None = None,
    searched: Sequence[str] = (),
) -> OutriderError | None:
    """Why a turn that ended with `message`, after `messages`, is no success; None if it is one.

    `searched` is where the agent looks for sessions.
    """
    reason = message.terminal_reason or ""
    if reason.startswith("aborted"):
        # By a message that was to be answered now: the agent does not call that an error.
        said = "" if message.is_error else "A newer message took the place of this one"
        return TurnInterrupted(message, messages, message=said)
    if message.is_success:
        return _missing_output(message, messages, options)
    if message.subtype == "error_max_turns" or reason == "max_turns":
        return LimitReached(
            "max_turns", _limit(message, options, "max_turns"), result=message, messages=messages
        )
    if message.subtype == "error_max_budget_usd" or reason == "budget_exhausted":
        limit = _limit(message, options, "max_budget_usd")
        return LimitReached("max_budget_usd", limit, result=message, messages=messages)
    if message.subtype == "error_max_structured_output_retries":
        return OutputInvalid(message.errors or (), result=message, messages=messages)
    if message.subtype == "success" and reason not in _NOT_OF_THE_API:
        return _api_failure(message, messages, options)
    return cause_of(message, options, searched=searched) or TurnFailed(message, messages)


def failure_of_retry(retry: ApiRetryMessage, messages: Sequence[Message] = ()) -> ApiFailed:
    """A call of the API that failed and would be tried again, as the failure of a turn that does not wait."""
    kind = _kind(retry.error, retry.error_status, None)
    if retry.error_status is None and kind == "unknown":
        kind = "connection_failed"
    passing = kind in _PASSING
    return ApiFailed(
        retry.error_status,
        kind,
        retryable=passing or None,
        retry_after=retry.retry_delay_ms / 1000 if passing else None,
        messages=messages,
        session_id=retry.session_id,
        hint="" if passing else _ADVICE.get(kind, ""),
    )


def _missing_output(
    message: ResultMessage, messages: Sequence[Message], options: Options | None
) -> OutputInvalid | None:
    if options is None or options.output_format is None:
        return None
    # A hook may end a turn before its time, and a command of the agent's own calls no model.
    if not message.num_turns or message.terminal_reason not in (None, "completed"):
        return None
    results = [message, *(each for each in messages if isinstance(each, ResultMessage))]
    if any(result.structured_output is not None for result in results):
        return None
    return OutputInvalid(
        result=message,
        messages=messages,
        message="The model answered with text alone",
        hint="Say in the prompt that the answer is to be given in that form; `result` has the text.",
    )


def _limit(message: ResultMessage, options: Options | None, name: str) -> float | None:
    limit = getattr(options, name, None)
    told = re.search(r"\(\$?(\d+(?:\.\d+)?)\)", " ".join(message.errors or ()))
    return limit if limit is not None else float(told[1]) if told else None


def _api_failure(message: ResultMessage, messages: Sequence[Message], options: Options | None) -> ApiFailed:
    told = _told(messages)
    status = message.api_error_status or told.api_error_status
    api_error = message.api_error or told.api_error
    if "refusal" in (message.stop_reason, told.stop_reason):
        kind = "refusal"
    elif api_error in ("connection_failed", "max_output_tokens"):
        kind = api_error
    elif message.terminal_reason in _KIND_BY_REASON:
        kind = _KIND_BY_REASON[message.terminal_reason]
    else:
        kind = _kind(told.error or "", status, message.api_error_type or told.api_error_type)
    resets_at = _resets_at(message, messages) if kind == "rate_limit" else None
    return ApiFailed(
        status,
        kind or None,
        retryable=True if kind in _PASSING else None if kind in ("", "unknown") else False,
        resets_at=resets_at,
        request_id=told.request_id,
        result=message,
        messages=messages,
        hint=_hint(kind, message, told, options, resets_at),
    )


def _told(messages: Sequence[Message]) -> AssistantMessage:
    """The message in which the agent tells of a failure of the API, the last one of the main thread; an empty
    one if it is not there.
    """
    for message in reversed(messages):
        if isinstance(message, AssistantMessage) and message.parent_tool_use_id is None:
            if message.error or message.is_api_error_message:
                return message
            break
    return AssistantMessage([], "")


def _kind(word: str, status: int | None, api_type: str | None) -> str:
    if word in _VAGUE:
        found = _KIND_BY_STATUS.get(status or 0) or _KIND_BY_TYPE.get(api_type or "")
        if found is None and word == "" and status is not None:
            found = _KIND_BY_BARE_STATUS.get(status) or ("server_error" if status >= 500 else None)
        return found or word
    return word


def _hint(
    kind: str,
    message: ResultMessage,
    told: AssistantMessage,
    options: Options | None,
    resets_at: float | None,
) -> str:
    if kind == "authentication_failed" and not (message.api_error_status or told.request_id):
        return _ADVICE["not_logged_in"]
    if kind == "model_not_found" and options is not None and options.model is not None:
        return f"`model` is {options.model!r}: give another, or a key that may use it."
    if kind == "refusal" and told.stop_details:
        words = [str(told.stop_details.get(name) or "") for name in ("category", "explanation")]
        why = ": ".join(filter(None, words))
        return f"The model declined{f' ({why})' if why else ''}. {_ADVICE['refusal']}"
    moment = "" if resets_at is None else _utc(resets_at)
    return f"Try again after {moment}." if moment else _ADVICE.get(kind, "")


def _resets_at(message: ResultMessage, messages: Sequence[Message]) -> float | None:
    """When a rate limit is lifted: the last event that tells of one, or a time at the end of the text."""
    for each in reversed(messages):
        if isinstance(each, RateLimitEvent) and each.rate_limit_info.status == "rejected":
            info = each.rate_limit_info
            return info.resets_at if info.resets_at is not None else info.overage_resets_at
    told = re.search(r"\|(\d{10})\b", message.result or "")
    return float(told[1]) if told else None


def _utc(moment: float) -> str:
    from datetime import UTC, datetime

    try:
        return f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M} UTC"
    except (ValueError, OverflowError, OSError):
        return ""
