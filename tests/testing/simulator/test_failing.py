"""How the simulated agent takes failures of the API: what it tries again, and what it says in the end."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.testing import (
    CREDIT_TOO_LOW,
    PROMPT_TOO_LONG,
    Failure,
    Simulator,
    drop,
    fail,
    hang,
    refuse,
    say,
)
from tests.cases import every_case
from tests.testing.simulator.driving import driven, user
from tests.testing.simulator.recorded_host import kinds

pytestmark = pytest.mark.anyio

FINAL = [
    pytest.param(
        fail(400, message="bad thing"), "unknown", "api_error", "API Error: 400 bad thing", id="400"
    ),
    pytest.param(
        fail(400, message=CREDIT_TOO_LOW),
        "billing_error",
        "api_error",
        "Credit balance is too low",
        id="credit",
    ),
    pytest.param(
        fail(400, message=PROMPT_TOO_LONG),
        "invalid_request",
        "prompt_too_long",
        "Prompt is too long",
        id="long",
    ),
    pytest.param(
        fail(403), "authentication_failed", "api_error", "Failed to authenticate. API Error: 403", id="403"
    ),
    pytest.param(
        fail(404), "model_not_found", "api_error", "There's an issue with the selected model", id="404"
    ),
    pytest.param(fail(413), "invalid_request", "image_error", "Request too large (max 32MB)", id="413"),
]


@every_case("step, error, terminal, text", FINAL)
async def test_what_is_not_tried_again_ends_the_turn(
    step: Failure, error: str, terminal: str, text: str
) -> None:
    async with driven([step, say("next")]) as host:
        result = await host.ask("hello")
        assert (await host.ask("go on"))["result"] == "next"
    assert (result["subtype"], result["is_error"]) == ("success", True)
    assert (result["terminal_reason"], result["stop_reason"]) == (terminal, "stop_sequence")
    assert (result["api_error_status"], result["api_error_type"]) == (step.status, step.type)
    assert result["result"].startswith(text)
    said = next(frame for frame in host.said if frame.get("is_api_error_message"))
    assert said["error"] == error
    assert said["message"]["model"] == "<synthetic>"
    assert said["message"]["content"] == [{"type": "text", "text": result["result"]}]


RETRIED = [
    pytest.param(fail(401), 401, "authentication_failed", id="401"),
    pytest.param(fail(429), 429, "rate_limit", id="429"),
    pytest.param(fail(500), 500, "server_error", id="500"),
    pytest.param(fail(529), 529, "overloaded", id="529"),
    pytest.param(drop(), None, "unknown", id="dropped"),
    pytest.param(drop(after="half"), None, "unknown", id="dropped in the middle"),
]


@every_case("step, status, error", RETRIED)
async def test_what_is_tried_again_says_so_each_time(step: Any, status: int | None, error: str) -> None:
    async with driven([step, step, say("recovered")]) as host:
        result = await host.ask("hello")
    assert result["result"] == "recovered"
    retries = [frame for frame in host.said if frame.get("subtype") == "api_retry"]
    assert [(frame["attempt"], frame["max_retries"]) for frame in retries] == [(1, 10), (2, 10)]
    assert [frame["retry_delay_ms"] for frame in retries] == [500, 1000]
    assert {(frame["error_status"], frame["error"]) for frame in retries} == {(status, error)}
    assert "half" not in str([frame for frame in host.said if frame["type"] == "assistant"])


async def test_the_delay_that_the_api_asks_for_is_told() -> None:
    async with driven([fail(429, retry_after=7), say("recovered")]) as host:
        await host.ask("hello")
    assert [f["retry_delay_ms"] for f in host.said if f.get("subtype") == "api_retry"] == [7000]


EXHAUSTED = [
    pytest.param(
        fail(429, message="slow down"),
        "API Error: Request rejected (429) · slow down",
        "rate_limit",
        id="429",
    ),
    pytest.param(fail(401), "Invalid API key · Fix external API key", "authentication_failed", id="401"),
    pytest.param(fail(500), "API Error: 500 Internal server error", "server_error", id="500"),
    pytest.param(fail(529), "API Error: 529 Overloaded", "server_error", id="529"),
    pytest.param(drop(), "API Error: Connection dropped (ECONNRESET)", "server_error", id="dropped"),
]


@every_case("step, text, error", EXHAUSTED)
async def test_when_tries_are_used_up_the_turn_fails(step: Any, text: str, error: str) -> None:
    script = Simulator([step] * 3)
    async with driven(script, env={"CLAUDE_CODE_MAX_RETRIES": "2"}) as host:
        result = await host.ask("hello")
    assert len(script.requests) == 3
    assert result["is_error"] is True
    assert result["result"].startswith(text)
    assert next(frame for frame in host.said if frame.get("error"))["type"] == "system"
    assert [f["error"] for f in host.said if f.get("is_api_error_message")] == [error]
    # The program exits so after a result that is an error.
    assert script.returncode == 1


async def test_an_error_inside_a_stream_is_tried_again_without_a_word() -> None:
    async with driven([fail(529, after="half"), say("recovered")]) as host:
        assert (await host.ask("hello"))["result"] == "recovered"
    assert "system/api_retry" not in kinds(host.said)


async def test_overload_falls_back_to_the_other_model_for_this_prompt_alone() -> None:
    script = Simulator([fail(529), fail(529), fail(529), say("from the fallback"), say("again")])
    async with driven(script, "--fallback-model", "sonnet") as host:
        assert (await host.ask("hello"))["result"] == "from the fallback"
        await host.ask("and now")
    told = next(frame for frame in host.said if frame.get("subtype") == "model_fallback")
    assert (told["original_model"], told["fallback_model"]) == ("claude-opus-5-5", "claude-sonnet-5-5")
    assert [request.model for request in script.requests[3:]] == ["claude-sonnet-5-5", "claude-opus-5-5"]


async def test_a_refusal_is_gone_on_from_once_then_with_another_model_then_told() -> None:
    async with driven([refuse("I cannot")] * 3) as host:
        result = await host.ask("please")
    assert kinds(host.said)[1:] == [
        "system/init",
        "assistant[text]",
        "system/informational",
        "user[text] isSynthetic",
        "assistant[text]",
        "system/model_refusal_fallback",
        "assistant[text]",
        "system/model_refusal_no_fallback",
        "assistant[text] error",
        "result/success",
    ]
    assert (result["is_error"], result["stop_reason"], result["num_turns"]) == (True, "refusal", 2)
    fallback = next(frame for frame in host.said if frame.get("subtype") == "model_refusal_fallback")
    third = [frame for frame in host.said if frame["type"] == "assistant"][2]
    assert third["supersedes"] == fallback["retracted_message_uuids"]


async def test_an_answer_that_is_cut_off_goes_on_three_times() -> None:
    cut = say("cut off", stop_reason="max_tokens")
    async with driven([cut, cut, cut, cut]) as host:
        result = await host.ask("please")
    assert (result["api_error"], result["num_turns"]) == ("max_output_tokens", 4)
    assert kinds(host.said).count("user[text] isSynthetic") == 3


async def test_what_hangs_can_be_released() -> None:
    script = Simulator([hang(say("late"))])
    async with driven(script) as host:
        await host.send(user("hello"))
        await host.until("system/init")
        script.wait_for_hang()
        script.release()
        assert (await host.until("result"))[-1]["result"] == "late"
