"""Turns of the simulated agent, frame by frame: what is queued, merged and interrupted, how they end."""

from __future__ import annotations

import os
from typing import Any

import pytest

from outrider.testing import Gate, Simulator, answer, fail, hang, say, think, use_tool
from tests.testing.simulator.driving import answer as reply
from tests.testing.simulator.driving import driven, request, user
from tests.testing.simulator.recorded_host import kinds

pytestmark = pytest.mark.anyio

A, B, C = (f"aaaaaaaa-0000-4000-8000-00000000000{number}" for number in range(1, 4))


def states(frames: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(f["command_uuid"], f["state"]) for f in frames if f["type"] == "command_lifecycle"]


def results(frames: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [frame for frame in frames if frame["type"] == "result"]


async def test_a_turn_has_the_frames_of_the_program_in_their_order() -> None:
    async with driven([say("hello")], env={"CLAUDE_CODE_SDK_READS_SESSION_STATE": "1"}) as host:
        await host.send(user("hi", uuid=A))
        frames = await host.until("system/session_state_changed idle")
    assert kinds(frames) == [
        "system/session_state_changed running",
        "command_lifecycle/queued",
        "command_lifecycle/started",
        "system/init",
        "assistant[text]",
        "result/success",
        "command_lifecycle/completed",
        "system/session_state_changed idle",
    ]
    init, said, result = frames[3], frames[4], frames[5]
    assert init["user_message_uuids"] == said["user_message_uuids"] == result["user_message_uuids"] == [A]
    assert result["result"] == said["message"]["content"][0]["text"] == "hello"


async def test_a_uuid_that_was_seen_is_dropped_without_a_word() -> None:
    async with driven([say("one"), say("two")]) as host:
        await host.ask("first", uuid=A)
        await host.send(user("again", uuid=A), user("next", uuid=B))
        frames = await host.until("result")
    assert results(frames)[0]["user_message_uuids"] == [B]


async def test_prompts_that_come_during_a_turn_are_answered_together() -> None:
    gate = Gate()
    script = Simulator([say("one two", gate=gate), say("both")])
    async with driven(script) as host:
        await host.send(user("first", uuid=A))
        await host.until("system/init")
        await host.send(user("second", uuid=B), user("third", uuid=C))
        await host.until(lambda frame: frame.get("command_uuid") == C)
        gate.open()
        frames = await host.until(lambda frame: frame["type"] == "result" and frame["result"] == "both")
    assert [result["user_message_uuids"] for result in results(frames)] == [[A], [B, C]]
    assert script.requests[1].prompt == "second\nthird"


async def test_of_prompts_that_come_at_once_the_first_has_a_turn_of_its_own() -> None:
    async with driven([say("one"), say("two")]) as host:
        await host.send(user("a", uuid=A), user("b", uuid=B), user("c", uuid=C))
        frames = await host.until(lambda frame: frame["type"] == "result" and frame["result"] == "two")
    assert [result["user_message_uuids"] for result in results(frames)] == [[A], [B, C]]


async def test_a_prompt_that_comes_while_a_tool_runs_belongs_to_the_turn() -> None:
    script = Simulator([use_tool("Bash", command="cat fifo"), say("done")])
    fifo = script.folder / "fifo"
    os.mkfifo(fifo)
    async with driven(script, "--allowedTools", "Bash") as host:
        await host.send(user("use a tool", uuid=A))
        await host.until("assistant[tool_use]")
        await host.send(user("also this", uuid=B))
        await host.until("command_lifecycle/queued")
        fifo.write_text("out")
        frames = await host.until(lambda frame: frame.get("command_uuid") == A)
    assert results(frames)[0]["user_message_uuids"] == [A, B]
    assert states(frames) == [(B, "started"), (B, "completed"), (A, "completed")]
    blocks = script.requests[1].messages[-1]["content"]
    assert [block["type"] for block in blocks] == ["tool_result", "text"]
    assert blocks[1]["text"] == "also this"


async def test_an_urgent_prompt_ends_the_turn_without_an_error() -> None:
    gate = Gate()
    async with driven([say("one two three", gate=gate), say("at once")]) as host:
        await host.send(user("slow", uuid=A))
        await host.until("system/init")
        gate.wait_reached()
        await host.send(user("urgent", uuid=B, priority="now"))
        frames = await host.until(lambda frame: frame.get("result") == "at once")
    aborted, urgent = results(frames)
    assert (aborted["subtype"], aborted["is_error"]) == ("success", False)
    assert aborted["terminal_reason"] == "aborted_streaming"
    assert aborted["result"] == "one "
    assert urgent["user_message_uuids"] == [B]
    assert (A, "cancelled") in states(frames)


async def test_a_later_prompt_comes_after_the_others() -> None:
    gate = Gate()
    script = Simulator([say("one two", gate=gate), say("x"), say("y")])
    async with driven(script) as host:
        await host.send(user("first"))
        await host.until("system/init")
        await host.send(user("later", uuid=A, priority="later"), user("next", uuid=B, priority="next"))
        await host.until(lambda frame: frame.get("command_uuid") == B)
        gate.open()
        await host.until(lambda frame: frame.get("result") == "y")
    assert [one.prompt for one in script.requests] == ["first", "next", "later"]


async def test_a_prompt_that_asks_nothing_is_kept_for_the_next() -> None:
    script = Simulator([say("ok")])
    async with driven(script, "--replay-user-messages") as host:
        quiet = await host.ask("for later", shouldQuery=False, uuid=A)
        assert (quiet["num_turns"], quiet["result"], quiet["subtype"]) == (0, "", "success")
        assert "terminal_reason" not in quiet
        assert script.requests == []
        await host.ask("now", uuid=B)
    assert [message["content"] for message in script.requests[0].messages] == ["for later", "now"]
    replays = [frame for frame in host.said if frame.get("isReplay")]
    assert [frame["uuid"] for frame in replays] == [A, B]


# Interrupts.


async def test_an_interrupt_cuts_the_text_off() -> None:
    gate = Gate()
    async with driven([say("one two three", gate=gate), say("again")]) as host:
        await host.send(user("slow", uuid=A))
        await host.until("system/init")
        gate.wait_reached()
        receipt = await host.request("interrupt")
        frames = await host.until("command_lifecycle/cancelled")
        assert receipt["response"] == {"still_queued": []}
        assert kinds(frames) == [
            "assistant[text] aborted",
            "user[text]",
            "result/error_during_execution",
            "command_lifecycle/cancelled",
        ]
        assert frames[0]["message"]["content"] == [{"type": "text", "text": "one "}]
        assert frames[1]["message"]["content"][0]["text"] == "[Request interrupted by user]"
        assert frames[2]["terminal_reason"] == "aborted_streaming"
        assert frames[2]["num_turns"] == 2
        assert (await host.ask("go on"))["result"] == "again"


async def test_an_interrupt_ends_a_stream_of_partial_messages_in_order() -> None:
    gate = Gate()
    async with driven([say("one two three", gate=gate)], "--include-partial-messages") as host:
        await host.send(user("slow"))
        await host.until("stream_event/content_block_delta")
        gate.wait_reached()
        await host.request("interrupt")
        frames = await host.until("result")
    assert kinds(frames)[-6:] == [
        "assistant[text] aborted",
        "user[text]",
        "stream_event/content_block_stop",
        "stream_event/message_delta",
        "stream_event/message_stop",
        "result/error_during_execution",
    ]


async def test_an_interrupt_answers_the_calls_that_have_no_result() -> None:
    script = Simulator([use_tool("Bash", command="tail -f /dev/null")])
    async with driven(script, "--allowedTools", "Bash") as host:
        await host.send(user("sleep"))
        await host.until("assistant[tool_use]")
        await host.request("interrupt")
        frames = await host.until("result")
    assert kinds(frames)[-3:] == ["user[tool_result]", "user[text]", "result/error_during_execution"]
    rejected = frames[-3]
    assert rejected["message"]["content"][0]["is_error"] is True
    assert rejected["tool_result_meta"][0]["non_execution_kind"] == "user-rejected"
    assert frames[-1]["terminal_reason"] == "aborted_tools"
    assert (frames[-1]["num_turns"], frames[-1]["stop_reason"]) == (3, "tool_use")


async def test_an_interrupt_takes_a_permission_request_back_before_it_is_confirmed() -> None:
    argv = ("--permission-prompt-tool", "stdio")
    async with driven([use_tool("Bash", command="rm -rf x")], *argv) as host:
        await host.send(user("delete"))
        asked = (await host.until("control_request/can_use_tool"))[-1]
        await host.send(request("interrupt", id="stop"))
        frames = await host.until("result")
    assert kinds(frames)[:2] == ["control_cancel_request", "control_response/success"]
    assert frames[0]["request_id"] == asked["request_id"]


async def test_an_interrupt_behind_the_very_first_prompt_is_remembered() -> None:
    async with driven([say("never")]) as host:
        await host.send(user("go", uuid=A), request("interrupt", id="stop"))
        frames = await host.until("command_lifecycle/cancelled")
    receipt = next(frame for frame in frames if frame["type"] == "control_response")
    assert receipt["response"]["response"] == {"still_queued": [A]}
    assert results(frames)[0]["subtype"] == "error_during_execution"


async def test_an_interrupt_behind_a_later_prompt_does_not_stop_it() -> None:
    async with driven([say("one"), say("two")]) as host:
        await host.ask("first")
        await host.send(user("go", uuid=A), request("interrupt", id="stop"))
        frames = await host.until("result")
    receipt = next(frame for frame in frames if frame["type"] == "control_response")
    assert receipt["response"]["response"] == {"still_queued": [A]}
    assert results(frames)[0]["result"] == "two"


async def test_an_interrupt_can_take_back_what_waits() -> None:
    gate = Gate()
    async with driven([say("one two", gate=gate)]) as host:
        await host.send(user("slow", uuid=A))
        await host.until("system/init")
        await host.send(user("b", uuid=B), user("c", uuid=C))
        await host.until(lambda frame: frame.get("command_uuid") == C)
        receipt = await host.request("interrupt", cancel_queued=True)
        frames = await host.until("result")
    assert receipt["response"] == {"still_queued": [], "cancelled": [B, C]}
    assert results(frames)[0]["user_message_uuids"] == [A]


async def test_a_single_prompt_that_waits_can_be_taken_back() -> None:
    gate = Gate()
    async with driven([say("one two", gate=gate)]) as host:
        await host.send(user("slow"))
        await host.until("system/init")
        await host.send(user("b", uuid=B))
        assert (await host.request("cancel_async_message", message_uuid=B))["response"] == {"cancelled": True}
        assert (await host.request("cancel_async_message", message_uuid=B))["response"] == {
            "cancelled": False
        }
        gate.open()


async def test_a_hang_ends_with_an_interrupt() -> None:
    script = Simulator([hang(), say("after")])
    async with driven(script) as host:
        await host.send(user("hang"))
        script.wait_for(1)
        await host.request("interrupt")
        frames = await host.until("result")
        assert kinds(frames)[-2:] == ["user[text]", "result/error_during_execution"]
        assert (await host.ask("again"))["result"] == "after"


async def test_a_denial_that_interrupts_ends_the_turn() -> None:
    argv = ("--permission-prompt-tool", "stdio")
    async with driven([use_tool("Bash", command="rm -rf x"), say("next")], *argv) as host:
        await host.send(user("delete"))
        asked = (await host.until("control_request/can_use_tool"))[-1]
        await host.send(reply(asked, behavior="deny", message="no", interrupt=True))
        frames = await host.until("result")
        assert kinds(frames) == ["user[tool_result]", "user[text]", "result/error_during_execution"]
        assert frames[-1]["terminal_reason"] == "aborted_tools"
        assert len(frames[-1]["permission_denials"]) == 1
        following = await host.ask("go on")
    assert following["permission_denials"] == []


# Limits, thoughts, answers with a schema.


@pytest.mark.parametrize("limit", ["0", "-1"])
async def test_a_limit_of_turns_below_one_is_none(limit: str) -> None:
    async with driven([use_tool("Bash", command="ls"), say("done")], "--max-turns", limit) as host:
        assert (await host.ask("go"))["result"] == "done"


async def test_the_limit_of_turns_counts_for_each_prompt() -> None:
    steps = [use_tool("Bash", command="ls"), say("second")]
    async with driven(steps, "--max-turns", "1") as host:
        first = await host.ask("one")
        second = await host.ask("two")
    assert (first["subtype"], first["terminal_reason"]) == ("error_max_turns", "max_turns")
    assert first["errors"] == ["Reached maximum number of turns (1)"]
    assert second["result"] == "second"


async def test_money_that_is_used_up_ends_this_turn_and_every_later_one() -> None:
    costly = say("fine", usage={"input_tokens": 1_000_000})
    script = Simulator([costly, say("never")])
    async with driven(script, "--max-budget-usd", "0.5") as host:
        first = await host.ask("one")
        second = await host.ask("two")
    for result in (first, second):
        assert (result["subtype"], result["is_error"]) == ("error_max_budget_usd", True)
        assert result["errors"] == ["Reached maximum budget ($0.5)"]
    assert second["stop_reason"] is None
    assert len(script.requests) == 1


async def test_usage_and_cost_add_up() -> None:
    steps = [
        use_tool("Bash", command="ls"),
        say("one", usage={"input_tokens": 100, "output_tokens": 20}),
        say("two", usage={"input_tokens": 300, "output_tokens": 40, "cache_read_input_tokens": 1000}),
    ]
    async with driven(steps) as host:
        first = await host.ask("a")
        second = await host.ask("b")
    assert first["usage"]["input_tokens"] == 110
    assert second["usage"]["input_tokens"] == 300
    model = "claude-opus-5-5"
    assert second["modelUsage"][model]["inputTokens"] == 410
    assert second["model_usage_since_last_result"][model]["inputTokens"] == 300
    new = second["model_usage_since_last_result"][model]["costUSD"]
    assert new == pytest.approx((300 * 4 + 40 * 20 + 1000 * 0.4) / 1e6)
    assert second["total_cost_usd"] == pytest.approx(first["total_cost_usd"] + new)
    assert second["modelUsage"][model]["costUSD"] == pytest.approx(second["total_cost_usd"])


async def test_thoughts_are_counted_as_they_come() -> None:
    async with driven([think("one thought", "and another", then=say("so"))]) as host:
        result = await host.ask("think")
    counts = [f["estimated_tokens"] for f in host.said if f.get("subtype") == "thinking_tokens"]
    # The signature counts for one.
    assert counts == [3, 6, 7]
    assert result["result"] == "so"


SCHEMA = '{"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}'


async def test_a_structured_answer_is_asked_for_once_more() -> None:
    steps = [say("just text"), use_tool("StructuredOutput", age=6)]
    async with driven(steps, "--json-schema", SCHEMA) as host:
        result = await host.ask("how old")
    assert result["structured_output"] == {"age": 6}
    assert result["result"] == '{"age":6}'
    (nudge,) = (frame for frame in host.said if frame.get("isSynthetic"))
    assert "[structured-output-enforce]" in nudge["message"]["content"][0]["text"]


async def test_a_structured_answer_that_never_fits_is_given_up() -> None:
    steps = [use_tool("StructuredOutput", age="x")] * 5
    async with driven(steps, "--json-schema", SCHEMA) as host:
        result = await host.ask("how old")
    assert result["subtype"] == "error_max_structured_output_retries"
    texts = [f["tool_use_result"] for f in host.said if f["type"] == "user"]
    assert texts == ["Error: Output does not match required schema: /age: must be integer"] * 5


# Commands.


async def test_clear_begins_another_conversation_under_another_id() -> None:
    script = Simulator([say("one"), say("two")])
    async with driven(script) as host:
        before = await host.ask("hello")
        cleared = await host.ask("/clear")
        after = await host.ask("hello again")
    reset = next(frame for frame in host.said if frame["type"] == "conversation_reset")
    assert reset["session_id"] == before["session_id"] != cleared["session_id"] == after["session_id"]
    assert cleared["local_command"] == "clear"
    assert len(script.requests[1].messages) == 1
    assert after["total_cost_usd"] < before["total_cost_usd"] * 2


@pytest.mark.parametrize("prompt, fields", [("/no-such-command", {}), ("/clear", {"client_composed": True})])
async def test_what_is_no_command_goes_to_the_model(prompt: str, fields: dict[str, Any]) -> None:
    script = Simulator([say("what?")])
    async with driven(script) as host:
        assert (await host.ask(prompt, **fields))["result"] == "what?"
    assert script.requests[0].prompt == prompt


# Subagents in the background.


async def test_after_the_end_of_input_results_wait_for_subagents() -> None:
    gate = Gate()
    agent = use_tool("Agent", description="d", prompt="look")
    script = Simulator([agent, say("started"), say("heard of it")], subagents=[say("found it", gate=gate)])
    async with driven(script) as host:
        await host.send(user("go"))
        await host.transport.end_input()
        await host.until(lambda frame: "started" in str(frame.get("message")))
        gate.wait_reached()
        gate.open()
        frames = await host.rest()
        assert script.returncode == 0
    assert [result["result"] for result in results(frames)] == ["started", "heard of it"]
    assert "system/task_notification" in kinds(frames)[: kinds(frames).index("result/success")]


async def test_an_interrupt_ends_a_subagent_in_the_foreground() -> None:
    agent = use_tool("Agent", description="d", prompt="look", run_in_background=False)
    script = Simulator([agent], subagents=[hang()])
    async with driven(script) as host:
        await host.send(user("go"))
        await host.until("system/task_started")
        await host.request("interrupt")
        frames = await host.until("result")
    assert frames[-1]["terminal_reason"] == "aborted_tools"
    updated = next(frame for frame in frames if frame.get("subtype") == "task_updated")
    assert updated["patch"]["status"] == "killed"
    assert frames[-1]["subagent_stats"]["killed"]["user"] == 1


async def test_a_subagent_that_fails_is_told_to_the_model() -> None:
    agent = use_tool("Agent", description="d", prompt="look", run_in_background=False)
    script = Simulator([agent, say("too bad")], subagents=[fail(400, message="no")])
    async with driven(script) as host:
        result = await host.ask("go")
    assert result["result"] == "too bad"
    (told,) = script.main_requests[1].tool_results
    assert told["is_error"] is True
    assert "API Error: 400 no" in told["content"]


async def test_several_calls_of_one_message_are_answered_in_their_order() -> None:
    script = Simulator(
        [answer(use_tool("Bash", command="echo a"), use_tool("Bash", command="echo b")), say("x")]
    )
    async with driven(script, "--allowedTools", "Bash") as host:
        result = await host.ask("go")
    assert [block["content"] for block in script.requests[1].tool_results] == ["a", "b"]
    assert result["num_turns"] == 3
