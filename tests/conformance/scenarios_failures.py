"""Scenarios: what the model's side refuses, how it fails, and what limits a turn."""

from __future__ import annotations

from outrider.testing import CREDIT_TOO_LOW, PROMPT_TOO_LONG, drop, fail, refuse, say, use_tool
from tests.conformance.host import Host
from tests.conformance.scenario import scenario
from tests.conformance.scenarios_tools import ANYTHING, each_in_a_turn


def retries(count: int) -> dict[str, str]:
    return {"CLAUDE_CODE_MAX_RETRIES": str(count)}


# The program tries some of them again in ways of its own, which it does not tell.
@scenario(*[fail(400, message=CREDIT_TOO_LOW)] * 8, env=retries(0))
async def no_credit(host: Host) -> None:
    await each_in_a_turn(host, 1)


@scenario(*[fail(400, message=PROMPT_TOO_LONG)] * 8, env=retries(0))
async def a_prompt_that_is_too_long(host: Host) -> None:
    await each_in_a_turn(host, 1)


@scenario(fail(401), fail(401), env=retries(1))
async def a_wrong_key(host: Host) -> None:
    await each_in_a_turn(host, 1)


@scenario(fail(403))
async def forbidden(host: Host) -> None:
    await each_in_a_turn(host, 1)


@scenario(fail(404), fail(404), env=retries(0))
async def no_such_model(host: Host) -> None:
    await each_in_a_turn(host, 1)


@scenario(fail(413), fail(413), env=retries(0))
async def too_large(host: Host) -> None:
    await each_in_a_turn(host, 1)


@scenario(fail(429, retry_after=0), say("after all"), env=retries(1), everywhere=True)
async def a_limit_that_passes(host: Host) -> None:
    await each_in_a_turn(host, 1)


@scenario(fail(429, retry_after=0), fail(429, retry_after=0), env=retries(1))
async def a_limit_that_stays(host: Host) -> None:
    await each_in_a_turn(host, 1)


@scenario(*[fail(500)] * 4, env=retries(1))
async def an_error_of_the_server(host: Host) -> None:
    await each_in_a_turn(host, 1)


@scenario(fail(529), say("after all"), env=retries(1))
async def an_overload_that_passes(host: Host) -> None:
    await each_in_a_turn(host, 1)


@scenario(*[fail(529)] * 4, env=retries(1))
async def an_overload_that_stays(host: Host) -> None:
    await each_in_a_turn(host, 1)


@scenario(*[drop()] * 4, env=retries(0))
async def a_connection_that_is_cut(host: Host) -> None:
    await each_in_a_turn(host, 1)


@scenario(fail(403), say("fine"))
async def a_failure_and_then_none(host: Host) -> None:
    await each_in_a_turn(host, 2)


@scenario(*[refuse("no")] * 6)
async def a_refusal(host: Host) -> None:
    await each_in_a_turn(host, 1)


@scenario(say("one ", stop_reason="max_tokens"), say("two"))
async def an_answer_that_is_cut_off(host: Host) -> None:
    await each_in_a_turn(host, 1)


@scenario(*[say("la", stop_reason="max_tokens")] * 5)
async def an_answer_without_an_end(host: Host) -> None:
    await each_in_a_turn(host, 1)


@scenario(
    *[use_tool("Bash", command="true")] * 2,
    say("next"),
    flags=(*ANYTHING, "--max-turns", "2"),
    everywhere=True,
)
async def too_many_rounds(host: Host) -> None:
    await each_in_a_turn(host, 2)


@scenario(
    use_tool("Bash", command="true"),
    say("never"),
    flags=(*ANYTHING, "--max-budget-usd", "0.000001"),
)
async def too_expensive(host: Host) -> None:
    await each_in_a_turn(host, 2)
