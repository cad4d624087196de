"""Makes the typed errors of failed starts, failed turns and lost connections. Raises none of them.

A start is judged by stderr and the options, a turn by its result and the messages before it.
"""

from __future__ import annotations

import os
import re
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from outrider.command import Command
from outrider.errors import (
    ApiFailed,
    ConnectionLost,
    FolderNotFound,
    LaunchError,
    LimitReached,
    OptionsError,
    OutputInvalid,
    OutriderError,
    ProcessExited,
    RequestFailed,
    SessionNotFound,
    TranscriptError,
    TurnFailed,
    TurnInterrupted,
    Unsupported,
)
from outrider.options import Options
from outrider.redaction import preview
from outrider.session._streams.turn_state import is_interrupted
from outrider.wire import (
    UNSUPPORTED_REQUEST,
    ApiRetryMessage,
    AssistantMessage,
    InitMessage,
    RateLimitEvent,
    ResultMessage,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from outrider.protocol import RequestRefused
    from outrider.transports import Transport
    from outrider.wire import Message
    from outrider.wire.control import Request


class Case(NamedTuple):
    """A match in the agent's output, with what is known of its start."""

    match: re.Match[str]
    text: str
    options: Options | None
    searched: Sequence[str]

    def option(self, name: str) -> str:
        """An option with its value, for the text of an error."""
        value = getattr(self.options, name, None)
        return f"`{name}`" if value is None else f"`{name}` is {preview(repr(value), 100)}, and"


def startup_failure(
    error: ProcessExited,
    options: Options | None = None,
    *,
    searched: Sequence[str] = (),
    result: ResultMessage | None = None,
) -> OutriderError:
    """The cause of an exit before the first answer, with the exit as its `__cause__`; the exit itself if none
    is known.

    `searched` is where the agent looks for sessions; `result`, what it wrote before it ended, if it did.
    """
    cause = None if result is None else cause_of(result, options, searched=searched, stderr=error.stderr_tail)
    cause = cause or _cause_in(error.stderr_tail, options, searched)
    if cause is not None:
        cause.__cause__ = error
        cause.session_id = cause.session_id or error.session_id
        return cause
    if flag := re.search(r"unknown option '(--[^'\s]+)'", error.stderr_tail):
        # Not the caller's, so the program is older than the flag.
        error.hint = f"The program does not know `{flag[1]}`: update it with `claude update`."
    return error


def cause_of(
    result: ResultMessage, options: Options | None, *, searched: Sequence[str] = (), stderr: str = ""
) -> OutriderError | None:
    """What a result says about a start that failed; None if it says nothing about one.

    `stderr` is what the agent wrote there, if it is known.
    """
    if result.subtype != "error_during_execution" or result.num_turns or result.terminal_reason:
        return None
    said = "\n".join(result.errors or ())
    if result.startup_failure_reason == "cwd_unavailable":
        return FolderNotFound(_folder(options))
    if result.invalid_config_file:
        backup = result.invalid_config_file.get("backup_path")
        restore = f", or copy its backup over it: {backup}" if backup else ""
        return LaunchError(
            f"The agent's configuration file {result.invalid_config_file.get('path', '')!r} is damaged",
            hint=f"Correct it, or remove it{restore}.",
        )
    cause = _cause_in(stderr, options, searched) or _cause_in(said, options, searched)
    return cause or LaunchError(said or str(result.startup_failure_reason or ""))


def _cause_in(text: str, options: Options | None, searched: Sequence[str]) -> OutriderError | None:
    for pattern, make in _patterns():
        if (match := pattern.search(text)) and (
            cause := make(Case(match, text[match.start() :], options, searched))
        ):
            return cause
    return None


def _folder(options: Options | None) -> str:
    return "." if options is None or options.cwd is None else options.cwd


def _no_session(case: Case) -> OutriderError:
    asked = None if case.options is None else case.options.resume
    given = re.search(r'Provided value "(.*?)" is not', case.text)
    id = case.match[1] if case.match.re.groups else asked or (given[1] if given else "")
    return SessionNotFound(id, case.searched)


def _no_message(case: Case) -> OutriderError:
    session = None if case.options is None else case.options.resume
    where = f"the session {session!r}" if session else "the session"
    return TranscriptError(
        f"{case.match[1]!r} is not a message of {where}",
        hint="Give the uuid of one of its messages as `resume_session_at`, or leave it out.",
        session_id=session,
    )


def _drops_more(case: Case) -> OutriderError:
    session = None if case.options is None else case.options.resume
    return TranscriptError(
        f"{case.option('resume_session_at')} would forget more than the turn of `resume_drops_turn`: "
        f"{preview(case.match[1].strip(), 300)}",
        hint="Leave `resume_drops_turn` out to forget it all, or resume at a later message.",
        session_id=session,
    )


def _in_use(case: Case) -> OutriderError:
    return OptionsError(
        f"`session_id` is {case.match[1]!r}, and there is a session of that id already",
        hint="Give another id or none, or go on with that session by `resume`.",
    )


def _bad_id(case: Case) -> OutriderError:
    return OptionsError(
        f"{case.option('session_id')} must be a UUID", hint="Leave it out, or give `str(uuid.uuid4())`."
    )


def _not_forked(case: Case) -> OutriderError:
    return OptionsError(
        f"{case.option('session_id')} cannot be given to a session that is resumed",
        hint="Set `fork_session` to go on in a copy of that id, or leave `session_id` out.",
    )


def _root(case: Case) -> OutriderError:
    return OptionsError(
        f"{case.option('permission_mode')} the agent does not skip permissions for root",
        hint="Run it as another `user`, or choose another `permission_mode` and name what is allowed in "
        "`allowed_tools`.",
    )


def _unknown_flag(case: Case) -> OutriderError | None:
    flag = case.match[1]
    if case.options is None or flag.removeprefix("--") not in case.options.extra_args:
        return None
    return OptionsError(
        f"`extra_args` has {flag.removeprefix('--')!r}, and the agent does not know `{flag}`",
        hint="Correct its name, take it out, or update the agent with `claude update`.",
    )


def _bad_value(case: Case) -> OutriderError:
    flag, value, reason = case.match[1], case.match[2], case.match[3].strip()
    name = _option_of(flag, case.options)
    return OptionsError(
        f"The agent refuses {name}{'' if value is None else f' {preview(value)!r}'} (`{flag}`): {reason}",
        hint=f"Give another value for {name}; if it is a new one, update the agent with `claude update`.",
    )


def _bad_part(option: str, hint: str) -> Callable[[Case], OutriderError]:
    """For what is wrong with an option whose value may be long: the agent's own words say where."""

    def make(case: Case) -> OutriderError:
        words = " ".join(case.text.split()).removeprefix("Error: ")
        return OptionsError(f"The agent refuses `{option}`: {preview(words, 500)}", hint=hint)

    return make


def _no_folder(case: Case) -> OutriderError:
    return FolderNotFound(_folder(case.options))


def _damaged_config(case: Case) -> OutriderError:
    restore = re.search(r"cp -f .+", case.text)
    return LaunchError(
        f"The agent's configuration file {case.match[1]!r} is damaged",
        hint=f"Correct it, or remove it{f', or restore it: {restore[0]}' if restore else ''}.",
    )


def _option_of(flag: str, options: Options | None) -> str:
    name = flag.removeprefix("--")
    if options is not None and name in options.extra_args:
        return f"`extra_args[{name!r}]`"
    return (
        f"`{name.replace('-', '_')}`" if name.replace("-", "_") in Options.__struct_fields__ else f"`{flag}`"
    )


_MAKERS: Final[tuple[tuple[str, Callable[[Case], OutriderError | None]], ...]] = (
    (r"No conversation found with session ID: (\S+)", _no_session),
    (r"--resume requires a valid session", _no_session),
    (r"No message found with message\.uuid of: (\S+)", _no_message),
    (r"Resume rejected by --resume-drops-turn:(.*)", _drops_more),
    (r"Session ID (\S+) is already in use", _in_use),
    (r"Invalid session ID", _bad_id),
    (r"--session-id can only be used with", _not_forked),
    (r"cannot be used with root/sudo privileges", _root),
    (r"unknown option '(--[^'\s]+)'", _unknown_flag),
    (r"option '(--[\w-]+)[^']*' argument (?:'(.*)' is invalid\.|(?=missing))(.*)", _bad_value),
    (
        r"(?:Error: )?Invalid MCP configuration:",
        _bad_part("mcp_servers", "Correct the servers, or the file that lists them."),
    ),
    (
        r"(?:Error: )?Settings file not found",
        _bad_part(
            "settings", "Give a path that the agent can read, or the settings themselves as a mapping."
        ),
    ),
    (
        r"(?:Error: )?Invalid JSON provided to --settings",
        _bad_part("settings", "Give a mapping, which is always valid JSON."),
    ),
    (r"Error processing --setting-sources", _bad_part("setting_sources", "Name only those it has.")),
    (
        r"(?:Error: )?Invalid --agents configuration",
        _bad_part("agents", "Each needs a description and a prompt, both text."),
    ),
    (
        r"(?:Error: )?System prompt file not found",
        _bad_part("system_prompt", "Give a path that the agent can read, or the text itself."),
    ),
    (
        r"(?:Error: )?--json-schema is not",
        _bad_part("output_format", "Correct the schema: it must be a JSON Schema for an object."),
    ),
    (r"current directory no longer exists", _no_folder),
    (r"configuration file at (.+?) is corrupted", _damaged_config),
)
"""What the agent says (2.1.325), and what is made of it."""


@cache
def _patterns() -> list[tuple[re.Pattern[str], Callable[[Case], OutriderError | None]]]:
    return [(re.compile(pattern), make) for pattern, make in _MAKERS]


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
    "authentication_failed": "Check the API key that you `export`, or log in with `claude auth login`.",
    "not_logged_in": "`export` ANTHROPIC_API_KEY before you start, or log in with `claude auth login`.",
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
    """Hide the secrets in an error that the agent was given and may have repeated."""
    command = getattr(transport, "command", None)
    return error.hide(command.redaction(os.environ)) if isinstance(command, Command) else error


def failure_of(
    message: ResultMessage,
    messages: Sequence[Message] = (),
    *,
    options: Options | None = None,
    searched: Sequence[str] = (),
) -> OutriderError | None:
    """Why a turn that ended with `message`, after `messages`, failed; None if it succeeded.

    `searched` is where the agent looks for sessions.
    """
    reason = message.terminal_reason or ""
    if is_interrupted(message, messages):
        # By a message with priority `now`: the agent does not call that an error.
        said = "" if message.is_error or not reason else "A newer message took the place of this one"
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
    said = "The model answered with text alone"
    hint = "Say in the prompt that the answer is to be given in that form; `result` has the text."
    tools = next((each.tools for each in messages if isinstance(each, InitMessage)), None)
    if tools and "StructuredOutput" not in tools:
        said = "Claude Code does not take the JSON Schema, and has not told the model of it"
        hint = "It refuses keywords that it does not know; `claude -p --json-schema` says what it refuses."
    return OutputInvalid(result=message, messages=messages, message=said, hint=hint)


def _limit(message: ResultMessage, options: Options | None, name: str) -> float | None:
    limit = getattr(options, name, None)
    found = re.search(r"\(\$?(\d+(?:\.\d+)?)\)", " ".join(message.errors or ()))
    return limit if limit is not None else float(found[1]) if found else None


def _api_failure(message: ResultMessage, messages: Sequence[Message], options: Options | None) -> ApiFailed:
    report = _error_report(messages)
    status = message.api_error_status or report.api_error_status
    api_error = message.api_error or report.api_error
    if "refusal" in (message.stop_reason, report.stop_reason):
        kind = "refusal"
    elif api_error in ("connection_failed", "max_output_tokens"):
        kind = api_error
    elif message.terminal_reason in _KIND_BY_REASON:
        kind = _KIND_BY_REASON[message.terminal_reason]
    else:
        kind = _kind(report.error or "", status, message.api_error_type or report.api_error_type)
    resets_at = _resets_at(message, messages) if kind == "rate_limit" else None
    return ApiFailed(
        status,
        kind or None,
        retryable=True if kind in _PASSING else None if kind in ("", "unknown") else False,
        resets_at=resets_at,
        request_id=report.request_id,
        result=message,
        messages=messages,
        hint=_hint(kind, message, report, options, resets_at),
    )


def _error_report(messages: Sequence[Message]) -> AssistantMessage:
    """The message in which the agent reports a failure of the API: the last of the main thread, or an empty
    one."""
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
    report: AssistantMessage,
    options: Options | None,
    resets_at: float | None,
) -> str:
    if kind == "authentication_failed" and not (message.api_error_status or report.request_id):
        return _ADVICE["not_logged_in"]
    if kind == "model_not_found" and options is not None and options.model is not None:
        return f"`model` is {options.model!r}: give another, or a key that may use it."
    if kind == "refusal" and report.stop_details:
        words = [str(report.stop_details.get(name) or "") for name in ("category", "explanation")]
        why = ": ".join(filter(None, words))
        return f"The model declined{f' ({why})' if why else ''}. {_ADVICE['refusal']}"
    moment = "" if resets_at is None else _utc(resets_at)
    return f"Try again after {moment}." if moment else _ADVICE.get(kind, "")


def _resets_at(message: ResultMessage, messages: Sequence[Message]) -> float | None:
    """When a rate limit is lifted: the last event that reports one, or a time at the end of the text."""
    for each in reversed(messages):
        if isinstance(each, RateLimitEvent) and each.rate_limit_info.status == "rejected":
            info = each.rate_limit_info
            return info.resets_at if info.resets_at is not None else info.overage_resets_at
    found = re.search(r"\|(\d{10})\b", message.result or "")
    return float(found[1]) if found else None


def _utc(moment: float) -> str:
    from datetime import UTC, datetime

    try:
        return f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M} UTC"
    except (ValueError, OverflowError, OSError):
        return ""


def why_lost(error: BaseException | None, transport: Transport) -> OutriderError:
    """Why a connection that was not closed has ended: by an error, or with the agent's output."""
    if isinstance(error, OutriderError):
        return error
    if error is not None:
        lost = ConnectionLost(f"the transport failed: {error!r}")
        lost.__cause__ = error
        return lost
    code = getattr(transport, "returncode", None)
    if isinstance(code, int):
        # With code 0, or it would be an error already. While a turn is unanswered, that is a failure too.
        tail = str(getattr(transport, "stderr_tail", ""))
        return ProcessExited(code, stderr_tail=tail)
    return ConnectionLost("the agent ended its output")


def refusal(request: Request[Any], refused: RequestRefused, session_id: str | None) -> RequestFailed:
    """The error of a request that was refused: `Unsupported` if Claude Code does not know it, for which old
    versions give no code."""
    is_unknown = refused.error.startswith("Unsupported control request subtype")
    kind = Unsupported if is_unknown or refused.code == UNSUPPORTED_REQUEST else RequestFailed
    return kind(request, refused.error, refused.code, session_id=session_id)
