"""What the API refuses, and how it fails, as errors of turns of the real program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

import outrider
from outrider.errors import ApiFailed, LimitReached, OutputInvalid, TurnTimedOut
from outrider.session import Session, SessionState
from outrider.testing import (
    CREDIT_TOO_LOW,
    PROMPT_TOO_LONG,
    Gate,
    Request,
    Step,
    drop,
    fail,
    hang,
    refuse,
    say,
    use_tool,
)
from outrider.wire import ApiRetryMessage, AssistantMessage
from outrider.wire.choices import usage_notice
from tests.session.real.talking import (
    DEADLINE,
    HOLD,
    RETRIES,
    came_to,
    opened,
    real_agent,
    state_of,
    talking,
)

pytestmark = pytest.mark.anyio

NOWHERE = "http://127.0.0.1:9"


FAILURES: list[tuple[Any, int | None, str, bool]] = [
    (fail(400, message="no such thing"), 400, "invalid_request", False),
    (fail(400, message=CREDIT_TOO_LOW), 400, "billing_error", False),
    (fail(401), 401, "authentication_failed", False),
    (fail(403), 403, "authentication_failed", False),
    (fail(404), 404, "model_not_found", False),
    (fail(413), 413, "request_too_large", False),
    (fail(429, retry_after=0), 429, "rate_limit", True),
    (fail(500), 500, "server_error", True),
    (fail(529), 529, "overloaded", True),
    (drop(), None, "connection_failed", True),
    (drop(after="half"), None, "connection_failed", True),
]


async def test_a_failure_has_its_own_kind_and_the_session_goes_on() -> None:
    async with talking(env={RETRIES: "0"}, model="opus") as (agent, session):
        for step, status, kind, retryable in FAILURES:
            # The agent tries some of them again in other ways, which it does not tell.
            agent.api.add(*[step] * 8)
            error = await failure(session)
            assert (error.status, error.kind, error.retryable) == (status, kind, retryable)
            agent.api.clear()
            agent.api.add(say("next"))
            assert (await session.ask("go on")).text == "next"


@pytest.mark.parametrize(
    "step, status, kind",
    [
        # With anything to compact, the agent would do that.
        pytest.param(fail(400, message=PROMPT_TOO_LONG), 400, "prompt_too_long", id="too long"),
        pytest.param(refuse(), None, "refusal", id="refusal"),
        pytest.param(say("la", stop_reason="max_tokens"), None, "max_output_tokens", id="endless"),
    ],
)
async def test_an_answer_that_is_none_has_its_own_kind(step: Any, status: int | None, kind: str) -> None:
    async with talking(otherwise=step) as (_, session):
        error = await failure(session)
        assert (error.status, error.kind, error.retryable) == (status, kind, False)


async def failure(session: Session) -> ApiFailed:
    with pytest.raises(ApiFailed) as caught:
        await session.ask("hi")
    error = caught.value
    assert came_to(error).error is error
    assert error.session_id == session.id
    assert error.hint
    # The text of the failure is not taken for an answer.
    assert came_to(error).text in ("", "half", "la")
    assert state_of(session) is SessionState.IDLE
    return error


async def test_a_wrong_key_fails_at_once() -> None:
    with real_agent(otherwise=fail(401)) as agent, anyio.fail_after(30):
        with pytest.raises(ApiFailed) as caught:
            await outrider.run("hi", agent.options())
        assert (caught.value.status, caught.value.kind) == (401, "authentication_failed")
        assert "API key" in caught.value.hint
        assert len(agent.api.main_requests) == 1


async def test_what_is_to_be_given_up_on_can_be_chosen() -> None:
    with real_agent(fail(401), say("after all")) as agent:
        async with opened(agent, give_up_on=[500]) as session:
            assert (await session.ask("hi")).text == "after all"
            agent.api.add(fail(500))
            with pytest.raises(ApiFailed) as caught:
                await session.ask("hi")
            assert (caught.value.status, caught.value.kind) == (500, "server_error")


async def test_what_passes_is_tried_again() -> None:
    async with talking(fail(429, retry_after=0), say("whole"), env={RETRIES: "1"}) as (agent, session):
        turn = await session.send("hi")
        retries = [message async for message in turn if isinstance(message, ApiRetryMessage)]
        assert [(retry.attempt, retry.error_status) for retry in retries] == [(1, 429)]
        assert (await turn.result()).text == "whole"
        agent.api.add(fail(429, retry_after=0), fail(429, retry_after=0))
        with pytest.raises(ApiFailed) as caught:
            await session.ask("again")
        assert (caught.value.status, caught.value.kind) == (429, "rate_limit")


async def test_no_server_is_a_failed_connection() -> None:
    async with talking(env={RETRIES: "0", "ANTHROPIC_BASE_URL": NOWHERE}) as (_, session):
        with pytest.raises(ApiFailed) as caught:
            await session.ask("hi")
        assert (caught.value.status, caught.value.kind) == (None, "connection_failed")
        assert caught.value.retryable


async def test_no_key_is_told_with_what_to_do() -> None:
    async with talking(env={"ANTHROPIC_API_KEY": ""}) as (agent, session):
        with pytest.raises(ApiFailed, match="log") as caught:
            await session.ask("hi")
        assert caught.value.kind == "authentication_failed"
        assert "ANTHROPIC_API_KEY" in caught.value.hint
        assert agent.api.main_requests == []


# Limits.


async def test_the_limit_of_rounds_is_per_prompt() -> None:
    async with talking(use_tool("Bash", command="true"), say("next"), max_turns=1) as (_, session):
        with pytest.raises(LimitReached, match="max_turns") as caught:
            await session.ask("work")
        assert (caught.value.kind, caught.value.limit) == ("max_turns", 1)
        assert came_to(caught.value).message is not None
        assert any(isinstance(message, AssistantMessage) for message in caught.value.messages)
        assert (await session.ask("go on")).text == "next"


async def test_the_budget_is_that_of_the_session() -> None:
    script = [use_tool("Bash", command="true"), say("next")]
    async with talking(*script, max_budget_usd=0.000001) as (_, session):
        for _ in range(2):
            with pytest.raises(LimitReached, match="max_budget_usd") as caught:
                await session.ask("work")
            assert (caught.value.kind, caught.value.limit) == ("max_budget_usd", 0.000001)
        assert session.usage.cost_usd > 0.000001


# Deadlines.


async def test_an_api_that_does_not_answer_or_falls_silent_runs_into_a_deadline() -> None:
    gate = Gate()
    quiet = use_tool("Bash", command="true; sleep 2.5")
    script = [hang(), say("next"), say("one two", gate=gate), say("next"), quiet, say("done")]
    timeouts = {"first_event": 5.0, "silence": 2.0}
    async with talking(*script, include_partial_messages=True, timeouts=timeouts) as (_, session):
        with pytest.raises(TurnTimedOut) as caught:
            await session.ask("hi")
        assert isinstance(caught.value, TimeoutError)
        assert (caught.value.which, caught.value.timeout) == ("first_event", 5.0)
        assert came_to(caught.value).text == ""
        assert (await session.ask("go on")).text == "next"

        with pytest.raises(TurnTimedOut) as caught:
            await session.ask("count")
        assert caught.value.which == "silence"
        assert came_to(caught.value).text == "one "
        assert (await session.ask("go on")).text == "next"

        # A tool may be silent for longer.
        assert (await session.ask("wait")).text == "done"


async def test_retries_and_turns_have_deadlines() -> None:
    script = [fail(529), use_tool("Bash", command=HOLD)]
    timeouts = {"retries": 0.3, "turn": 6.0}
    async with talking(*script, timeouts=timeouts) as (_, session):
        for which in ("retries", "turn"):
            with pytest.raises(TurnTimedOut) as caught:
                await session.ask("work")
            assert caught.value.which == which


# Structured output.

SCHEMA = {
    "type": "json_schema",
    "schema": {"type": "object", "properties": {"total": {"type": "integer"}}, "required": ["total"]},
}


async def test_structured_output_is_what_was_asked_for_or_an_error() -> None:
    good, bad = use_tool("StructuredOutput", total=7), use_tool("StructuredOutput", total="seven")
    async with talking(good, say("that is it"), output_format=SCHEMA) as (agent, session):
        result = await session.ask("add")
        assert result.output == {"total": 7}

        agent.api.add(*[say("seven")] * 2)
        with pytest.raises(OutputInvalid, match="text alone") as caught:
            await session.ask("add")
        assert came_to(caught.value).text == "seven"

        agent.api.clear()
        agent.api.add(*[bad] * 20)
        with pytest.raises(OutputInvalid) as caught:
            await session.ask("add")
        assert caught.value.errors
        assert came_to(caught.value).output is None


@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_a_failed_run_can_be_looked_at_without_an_exception() -> None:
    with real_agent(fail(403)) as agent, anyio.fail_after(DEADLINE):
        result = await outrider.run("hi", agent.options(), check=False)
        assert not result.is_success
        assert isinstance(result.error, ApiFailed)
        assert result.errors


async def test_the_limit_of_an_account_is_told_from_others_by_its_text() -> None:
    headers = {
        "anthropic-ratelimit-unified-status": "rejected",
        "anthropic-ratelimit-unified-representative-claim": "five_hour",
        "anthropic-ratelimit-unified-reset": "4102444800",
    }
    login = {"CLAUDE_CODE_OAUTH_TOKEN": "made-up", "ANTHROPIC_API_KEY": "", RETRIES: "0"}
    with real_agent(fail(429, headers=headers), fail(429)) as agent, anyio.fail_after(DEADLINE):
        limited = await outrider.run("hi", agent.options(env=login), check=False)
        other = await outrider.run("hi", agent.options(env={RETRIES: "0"}), check=False)
    assert [usage_notice(result.errors[0]) for result in (limited, other)] == ["limit", None]


async def test_a_session_outlives_its_token(tmp_path: Path) -> None:
    valid = {"token 1"}
    asked: list[str] = []

    def model(request: Request) -> Step:
        is_valid = request.headers.get("authorization", "").removeprefix("Bearer ") in valid
        return say("hello") if is_valid else fail(401)

    async def fresh() -> str:
        asked.append(f"token {len(asked) + 1}")
        return asked[-1]

    trace = tmp_path / "trace.jsonl"
    # It asks its own applications for a token, and no others.
    env = {"ANTHROPIC_API_KEY": "", "CLAUDE_CODE_SDK_HAS_OAUTH_REFRESH": "1"}
    with real_agent(otherwise=model) as agent:
        async with opened(agent, env=env, on_auth_refresh=fresh, trace=trace) as session:
            for token in ("token 1", "token 2"):
                valid.clear()
                valid.add(token)
                assert (await session.ask("hi")).text == "hello"
                assert asked[-1] == token
            valid.clear()
            assert (await failure(session)).status == 401
    said = trace.read_text(encoding="utf-8")
    assert "update_environment_variables" in said
    assert "oauth_token_refresh" not in said
    assert not any(token in said for token in asked)
