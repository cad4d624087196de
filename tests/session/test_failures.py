"""Every way in which the program ends a turn badly has an error of its own, with the facts."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from outrider.errors import (
    ApiFailed,
    FolderNotFound,
    LaunchError,
    LimitReached,
    OutputInvalid,
    SessionNotFound,
    TranscriptError,
    TurnFailed,
    TurnInterrupted,
)
from outrider.options import Options
from outrider.session._failures import failure_of, failure_of_retry
from outrider.wire import (
    ApiRetryMessage,
    AssistantMessage,
    Message,
    RateLimitEvent,
    RateLimitInfo,
    ResultMessage,
    TextBlock,
)
from outrider.wire.choices import ASSISTANT_MESSAGE_ERRORS
from tests import tapes
from tests.cases import every_case
from tests.session.recorded_runs import all_runs, messages_of, turns_of

RECORDED = ("05-hooks-extra-events", "07-", "09-", "10-", "12-", "13-", "14-", "16-", "17-", "18-", "21-")

SCHEMA: Any = {"type": "json_schema", "schema": {"type": "object"}}


def api(status: int | None, kind: str, retryable: bool, hint: str, request_id: str | None = None) -> Any:
    return ApiFailed, {"status": status, "kind": kind, "retryable": retryable, "request_id": request_id}, hint


def limit(kind: str, value: float) -> Any:
    return LimitReached, {"kind": kind, "limit": value}, f"Raise `{kind}`"


INTERRUPTED: Any = (TurnInterrupted, {"retryable": False}, "interrupted")
UNREACHABLE = api(None, "connection_failed", True, "`ANTHROPIC_BASE_URL`")
BAD_KEY = api(401, "authentication_failed", False, "API key", "req_stub_0002")
REFUSED = "declined (bio: policy)"

EXPECTED: dict[str, list[Any]] = {
    # For each run of a recording, what became of each of its turns.
    "05-hooks-extra-events 0": [
        api(403, "authentication_failed", False, "API key", "req_stub_0001"),
        *[None] * 3,
    ],
    "07-interrupt-first-message 0": [INTERRUPTED],
    "07-interrupt-first-message 1": [INTERRUPTED],
    "07-interrupt-no-partial 0": [INTERRUPTED],
    "07-interrupt-no-partial 1": [INTERRUPTED],
    "07-interrupt-variants 0": [
        *[INTERRUPTED, INTERRUPTED, None, INTERRUPTED, None],
        *[INTERRUPTED, INTERRUPTED, INTERRUPTED, None],
    ],
    "09-structured-output-variants 0": [(OutputInvalid, {"retryable": False}, "Failed to provide valid")],
    "10-multi-turn-queueing 0": [
        *[None] * 3,
        (TurnInterrupted, {}, "A newer message took the place"),
        *[None] * 10,
    ],
    "12-api-400 0": [api(400, "invalid_request", False, "would fail again", "req_stub_0006")],
    "12-api-400-credit 0": [api(400, "billing_error", False, "Add credit", "req_stub_0001")],
    "12-api-401 0": [BAD_KEY],
    "12-api-401-default-retries 0": [api(401, "authentication_failed", False, "API key", "req_stub_0011")],
    "12-api-404-model 0": [api(404, "model_not_found", False, "Give another `model`", "req_stub_0002")],
    "12-api-413 0": [api(413, "request_too_large", False, "Send less at once", "req_stub_0001")],
    "12-api-429-exhausted 0": [api(429, "rate_limit", True, "Try again later", "req_stub_0003")],
    "12-api-500-exhausted 0": [api(500, "server_error", True, "Try again later", "req_stub_0002")],
    "12-api-drop-always 0": [UNREACHABLE],
    "12-api-error-sdk 0": [BAD_KEY],
    "12-api-no-key 0": [api(None, "authentication_failed", False, "`export` ANTHROPIC_API_KEY")],
    "12-api-unreachable 0": [UNREACHABLE],
    "13-max-budget-raw-continue 0": [limit("max_budget_usd", 0.5), limit("max_budget_usd", 0.5)],
    "13-max-tokens-exhausted 0": [api(None, "max_output_tokens", False, "shorter answer")],
    "13-max-turns 0": [limit("max_turns", 1)],
    "13-max-turns-raw-continue 0": [limit("max_turns", 1), None],
    "13-refusal-always 0": [api(None, "refusal", False, REFUSED, "req_stub_0003")],
    "13-refusal-always 1": [api(None, "refusal", False, REFUSED, "req_stub_0006")],
    "13-refusal-always 2": [api(None, "refusal", False, REFUSED, "req_stub_0008")],
    "14-resume-raw 3": [(TranscriptError, {"retryable": False}, "bbbbbbbb-0000-4000-8000-000000000099")],
    "14-resume-raw 4": [(TranscriptError, {}, "`resume_drops_turn`")],
    "14-resume-raw 7": [
        (SessionNotFound, {"id": "99999999-3333-4444-8555-666666666666"}, "List the sessions")
    ],
    "14-resume-raw 8": [(SessionNotFound, {}, "there is no session")],
    "14-resume-raw 9": [(SessionNotFound, {"id": ""}, "there is no session")],
    "16-invalid-huge-line 0": [api(None, "prompt_too_long", False, "start a new session")],
    "17-exit-codes 1": [api(403, "authentication_failed", False, "API key", "req_stub_0002")],
    "17-exit-codes 2": [api(403, "authentication_failed", False, "API key", "req_stub_0003"), None],
    "17-exit-codes 3": [None, api(403, "authentication_failed", False, "API key", "req_stub_0006")],
    # One that was asked for the result alone, with no messages before it.
    "17-exit-codes 5": [api(403, "authentication_failed", False, "API key")],
    "17-exit-double-sigint-and-stdout-closed 0": [INTERRUPTED],
    "17-exit-signals 4": [INTERRUPTED],
    "17-exit-signals 5": [INTERRUPTED],
    "18-bad-cwd 2": [(FolderNotFound, {"path": "."}, "`cwd`")],
    "18-bad-cwd 5": [(LaunchError, {"retryable": False}, ".claude.json.backup.1794724051215")],
}


def turns() -> list[Any]:
    return [
        pytest.param(name, number, id=f"{name} {number}")
        for name, number in all_runs()
        if name.startswith(RECORDED)
    ]


@every_case("name, number", turns())
def test_recorded_failures_are_told_apart(name: str, number: int) -> None:
    run = turns_of(name, number)
    expected = EXPECTED.get(f"{name} {number}", [None] * len(run))
    assert len(expected) == len(run)
    for messages, wanted in zip(run, expected, strict=True):
        result = messages[-1]
        assert isinstance(result, ResultMessage)
        failure = failure_of(result, messages)
        if wanted is None:
            assert failure is None
            continue
        kind, facts, words = wanted
        assert type(failure) is kind
        assert failure is not None
        assert {name: getattr(failure, name) for name in facts} == facts
        assert words.lower() in str(failure).lower()
        assert failure.session_id in (result.session_id, getattr(failure, "id", None), None)
        assert failure.hint
        if isinstance(failure, TurnFailed):
            assert failure.result is result
            assert failure.messages == messages
        assert "ede_diagnostic" not in str(failure)
        assert str(pickle.loads(pickle.dumps(failure))) == str(failure)


def test_every_recorded_failure_is_in_the_table() -> None:
    failed = {
        f"{name} {number}"
        for name, number in all_runs()
        if name.startswith(RECORDED)
        and any(
            failure_of(turn[-1], turn)
            for turn in turns_of(name, number)
            if isinstance(turn[-1], ResultMessage)
        )
    }
    assert failed == EXPECTED.keys()


@every_case("name, number", all_runs())
def test_a_result_has_a_failure_exactly_if_it_is_an_error_or_was_aborted(name: str, number: int) -> None:
    for messages in turns_of(name, number):
        result = messages[-1]
        assert isinstance(result, ResultMessage)
        is_aborted = (result.terminal_reason or "").startswith("aborted")
        assert (failure_of(result, messages) is not None) == (result.is_error or is_aborted)


def ended(
    subtype: str = "success", is_error: bool = True, num_turns: int = 1, **fields: Any
) -> ResultMessage:
    return ResultMessage(subtype, 1, 1, is_error, num_turns, "s-1", **fields)


def told(error: str | None = None, **fields: Any) -> AssistantMessage:
    return AssistantMessage([TextBlock("API Error")], "<synthetic>", error=error, **fields)


def limited(status: str, **fields: Any) -> RateLimitEvent:
    return RateLimitEvent(RateLimitInfo(status, **fields))


@every_case(
    "message, messages, facts, words",
    [
        pytest.param(
            ended(api_error_status=529, terminal_reason="api_error"),
            [told("server_error", api_error_status=529)],
            {"status": 529, "kind": "overloaded", "retryable": True},
            "Try again later",
            id="529 is an overload",
        ),
        pytest.param(
            ended(),
            [told("server_error", api_error_type="overloaded_error")],
            {"status": None, "kind": "overloaded", "retryable": True},
            "Try again later",
            id="an overload in the stream",
        ),
        pytest.param(
            ended(),
            [told("overloaded", api_error_status=503)],
            {"status": 503, "kind": "overloaded", "retryable": True},
            "Try again later",
            id="the status is in the message alone",
        ),
        pytest.param(
            ended(api_error_status=429),
            [
                limited("rejected", resets_at=1),
                limited("rejected", resets_at=1794724059),
                limited("allowed", resets_at=5),
                told("rate_limit"),
            ],
            {"kind": "rate_limit", "resets_at": 1794724059, "retryable": True},
            "Try again after 2026-11-15 06:27 UTC",
            id="a limit that is lifted at a time",
        ),
        pytest.param(
            ended(),
            [limited("rejected", overage_resets_at=1794724059), told("rate_limit")],
            {"status": None, "kind": "rate_limit", "resets_at": 1794724059, "retryable": True},
            "UTC",
            id="a limit of what was bought on top",
        ),
        pytest.param(
            ended(result="Claude AI usage limit reached|1794724059"),
            [told("rate_limit")],
            {"resets_at": 1794724059.0},
            "Try again after 2026-11-15 06:27 UTC",
            id="a time in the text",
        ),
        pytest.param(
            ended(),
            [limited("rejected", resets_at=10**18), told("rate_limit")],
            {"resets_at": 10**18},
            "Try again later",
            id="a time that is none",
        ),
        pytest.param(
            ended(api_error_status=429),
            [],
            {"status": 429, "kind": "rate_limit", "retryable": True, "resets_at": None, "request_id": None},
            "Try again later",
            id="no more than a status",
        ),
        pytest.param(
            ended(api_error_status=502), [], {"kind": "server_error", "retryable": True}, "later", id="502"
        ),
        pytest.param(ended(api_error_status=418), [], {"kind": None, "retryable": False}, "again", id="418"),
        pytest.param(ended(), [], {"status": None, "kind": None, "retryable": False}, "again", id="nothing"),
        pytest.param(
            ended(terminal_reason="prompt_too_long", api_error_status=400),
            [told("invalid_request")],
            {"status": 400, "kind": "prompt_too_long", "retryable": False},
            "Send less",
            id="a conversation that became too long",
        ),
        pytest.param(
            ended(api_error_status=401),
            [told("authentication_failed"), told("rate_limit", parent_tool_use_id="t")],
            {"kind": "authentication_failed"},
            "API key",
            id="the words of a subagent do not count",
        ),
        pytest.param(
            ended(api_error_status=500),
            [told("billing_error"), AssistantMessage([TextBlock("more")], "m")],
            {"kind": "server_error"},
            "later",
            id="nor do those before the model spoke again",
        ),
        pytest.param(
            ended(stop_reason="refusal"),
            [told("invalid_request")],
            {"kind": "refusal", "retryable": False},
            "Put the request in another way",
            id="a refusal without a reason",
        ),
    ],
)
def test_failures_of_the_api_are_told_apart(
    message: ResultMessage, messages: list[Message], facts: dict[str, object], words: str
) -> None:
    failure = failure_of(message, messages)
    assert isinstance(failure, ApiFailed)
    assert facts.items() <= vars(failure).items()
    assert words in str(failure)


@every_case("word", ASSISTANT_MESSAGE_ERRORS)
def test_every_word_of_the_program_has_a_hint_that_fits(word: str) -> None:
    failure = failure_of(ended(), [told(word, request_id="r")])
    assert isinstance(failure, ApiFailed)
    assert failure.kind == word
    passing = word in ("rate_limit", "overloaded", "server_error", "unknown")
    assert failure.retryable is passing
    assert ("Try again" in failure.hint) is passing
    assert passing or failure.hint != ApiFailed(400).hint


def test_the_model_that_is_not_there_is_named() -> None:
    (turn,) = turns_of("12-api-404-model")
    result = turn[-1]
    assert isinstance(result, ResultMessage)
    assert "`model` is 'opus-99'" in str(failure_of(result, turn, options=Options(model="opus-99")))


@pytest.mark.parametrize(
    "options, subtype, expected",
    [
        (Options(max_turns=7), "error_max_turns", 7),
        (None, "error_max_turns", 3),
        (Options(max_budget_usd=0.25), "error_max_budget_usd", 0.25),
        (Options(max_turns=7), "error_max_budget_usd", 3),
    ],
)
def test_a_limit_is_that_of_the_options_or_the_one_that_the_program_names(
    options: Options | None, subtype: str, expected: float
) -> None:
    failure = failure_of(ended(subtype, errors=["Reached it ($3)"]), options=options)
    assert isinstance(failure, LimitReached)
    assert failure.limit == expected
    unknown = failure_of(ended(subtype, errors=["Reached it"]))
    assert isinstance(unknown, LimitReached)
    assert unknown.limit is None


@pytest.mark.parametrize(
    "name, number, fails",
    [("09-structured-output-ok", 0, False)]
    + [
        ("09-structured-output-variants", number, fails)
        for number, fails in [(0, True), (1, True), (2, False)]
    ],
)
def test_output_that_was_asked_for_and_did_not_come_is_a_failure(name: str, number: int, fails: bool) -> None:
    (turn,) = turns_of(name, number)
    result = turn[-1]
    assert isinstance(result, ResultMessage)
    failure = failure_of(result, turn, options=Options(output_format=SCHEMA))
    assert isinstance(failure, OutputInvalid) if fails else failure is None
    if number == 1:
        assert "text alone" in str(failure)
        assert failure_of(result, turn, options=Options()) is None


@pytest.mark.parametrize(
    "message, earlier",
    [
        pytest.param(ended(is_error=False, num_turns=0), [], id="no turn"),
        pytest.param(ended(is_error=False, terminal_reason="hook_stopped"), [], id="stopped by a hook"),
        pytest.param(ended(is_error=False), [ended(is_error=False, structured_output={})], id="came before"),
    ],
)
def test_there_is_no_output_to_miss(message: ResultMessage, earlier: list[Message]) -> None:
    assert failure_of(message, earlier, options=Options(output_format=SCHEMA)) is None


@pytest.mark.parametrize(
    "message",
    [
        ended(terminal_reason="malformed_tool_use_exhausted", result="no luck"),
        ended("error_during_execution", terminal_reason="model_error", errors=["no luck"]),
        ended("error_during_execution", errors=["no luck"]),
        ended("error_of_a_kind_to_come", errors=["no luck"]),
    ],
)
def test_any_other_failure_says_what_the_program_says(message: ResultMessage) -> None:
    failure = failure_of(message, [told("rate_limit")])
    assert type(failure) is TurnFailed
    assert "no luck" in str(failure)


def test_a_start_that_failed_for_a_reason_of_its_own_says_what_the_program_says() -> None:
    failure = failure_of(ended("error_during_execution", num_turns=0, errors=["The moon is full"]))
    assert type(failure) is LaunchError
    assert "The moon is full" in str(failure)
    named = failure_of(ended("error_during_execution", num_turns=0, startup_failure_reason="moon"))
    assert "moon" in str(named)


def test_where_a_session_was_searched_is_said() -> None:
    (turn,) = turns_of("14-resume-raw", 7)
    result = turn[-1]
    assert isinstance(result, ResultMessage)
    failure = failure_of(result, turn, searched=["/home/dev/.claude/projects/x"])
    assert isinstance(failure, SessionNotFound)
    assert failure.searched == ("/home/dev/.claude/projects/x",)


RETRIES = [
    pytest.param(message, id=f"{name} {position}")
    for name in tapes.NAMES
    if name.startswith("12-")
    for position, message in enumerate(messages_of(name))
    if isinstance(message, ApiRetryMessage)
]


@every_case("retry", RETRIES)
def test_a_retry_that_is_given_up_is_the_failure_that_it_would_have_become(retry: ApiRetryMessage) -> None:
    failure = failure_of_retry(retry)
    kinds = {401: "authentication_failed", 429: "rate_limit", 500: "server_error", 529: "overloaded"}
    assert failure.status == retry.error_status
    assert failure.kind == kinds.get(retry.error_status or 0, "connection_failed")
    assert failure.session_id == retry.session_id
    assert failure.retryable is (retry.error_status != 401)
    if failure.retryable:
        assert failure.retry_after == retry.retry_delay_ms / 1000
        assert f"Try again in {failure.retry_after:g} s" in str(failure)
    else:
        assert failure.retry_after is None
        assert "claude auth login" in str(failure)
