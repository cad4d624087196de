"""What turns use adds up to what the program says, and nothing is counted twice."""

from __future__ import annotations

import copy
import json
import math
import pickle
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.session import Usage
from outrider.session._streams.routing import Routing
from outrider.session._streams.stream import Flow
from outrider.session._usage import UsageMeter
from outrider.wire import (
    AssistantMessage,
    ConversationResetMessage,
    Framer,
    Message,
    ResultMessage,
    StreamEvent,
    TextBlock,
    decode,
    encode,
    to_wire,
)
from tests.cases import every_case
from tests.session.recorded_runs import all_runs, messages_of, results_of

RUNS = all_runs()


def program_total(reported: Any) -> Usage:
    """The program's own totals by model, read without the code under test."""
    parts = {
        model: Usage(
            part["inputTokens"],
            part["outputTokens"],
            part["cacheReadInputTokens"],
            part["cacheCreationInputTokens"],
            part["webSearchRequests"],
            part["costUSD"],
        )
        for model, part in reported.items()
    }
    sums = {name: sum(getattr(part, name) for part in parts.values()) for name in Usage.__struct_fields__[:6]}
    return Usage(**sums, by_model=parts)


def assert_same(one: Usage, other: Usage) -> None:
    for name in Usage.__struct_fields__[:5]:
        assert getattr(one, name) == getattr(other, name)
    assert one.cost_usd == pytest.approx(other.cost_usd)
    assert one.by_model.keys() == other.by_model.keys()
    for model, part in one.by_model.items():
        assert_same(part, other.by_model[model])


def answer(id: str | None, output: int = 1, *, model: str = "m", **fields: Any) -> AssistantMessage:
    usage: Any = {"input_tokens": 100, "output_tokens": output, "cache_read_input_tokens": 7}
    return AssistantMessage([TextBlock("x")], model, message_id=id, usage=usage, **fields)


def part(tokens: int, cost: float = 0.0) -> Any:
    return {"inputTokens": tokens, "outputTokens": 0, "costUSD": cost}


def result(uuid: str = "r", **fields: Any) -> ResultMessage:
    return ResultMessage("success", 1, 1, False, 1, "s", uuid=uuid, **fields)


def metered(*messages: Message, **options: Any) -> UsageMeter:
    meter = UsageMeter(**options)
    for message in messages:
        meter.receive(message)
    return meter


def forgetting(message: Message, *names: str) -> Message:
    """The same from a program that does not tell these."""
    if not isinstance(message, ResultMessage):
        return message
    return msgspec.structs.replace(message, **dict.fromkeys(names))


@every_case("name, number", RUNS)
def test_turns_add_up_to_the_total_and_to_what_the_program_says(name: str, number: int) -> None:
    meter = UsageMeter(resumed=True)
    turns: list[Usage] = []
    expected = Usage()
    for message in messages_of(name, number):
        meter.receive(message)
        if not isinstance(message, ResultMessage):
            continue
        turns.append(meter.finish_turn(message))
        if message.model_usage_since_last_result is not None:
            expected += program_total(message.model_usage_since_last_result)
        elif message.usage:
            expected += Usage(message.usage.get("input_tokens", 0), message.usage.get("output_tokens", 0))
        assert_same(sum(turns, Usage()), expected)
        assert_same(meter.total, expected)
        assert meter.turn == Usage()
        assert meter.session_cost_usd == message.total_cost_usd


NEW = [
    pytest.param(name, number, id=f"{name}-{number}")
    for name, number in RUNS
    if results_of(name, number)[0].model_usage == results_of(name, number)[0].model_usage_since_last_result
    and not any(isinstance(message, ConversationResetMessage) for message in messages_of(name, number))
]


@every_case("name, number", NEW)
@every_case("forgotten", [(), ("model_usage_since_last_result",)], ids=["told", "reckoned"])
def test_the_total_of_a_new_session_is_the_last_one_of_the_program(
    name: str, number: int, forgotten: tuple[str, ...]
) -> None:
    meter = metered(*(forgetting(message, *forgotten) for message in messages_of(name, number)))
    last = results_of(name, number)[-1]
    assert_same(meter.total, program_total(last.model_usage))
    assert meter.total.cost_usd == pytest.approx(last.total_cost_usd)


def test_there_are_runs_of_every_kind_to_check_with() -> None:
    several = {name for name, number in RUNS if len(results_of(name, number)) > 1}
    assert {"11-subagent-background", "10-multi-turn-queueing", "05-hooks-all-events"} <= several
    assert len(NEW) > 100
    assert ("14-resume", 1) in RUNS


def test_subagents_count_where_they_are_used_by_model() -> None:
    meter = metered(*messages_of("11-subagent"))
    usage = meter.finish_turn()
    assert usage.by_model.keys() == {"claude-opus-5-5", "claude-sonnet-5-5"}
    assert usage.total_tokens == 480
    assert usage.by_model["claude-sonnet-5-5"].total_tokens == 240
    assert usage.cost_usd == pytest.approx(0.0024)


def test_what_background_work_adds_is_in_the_turn_that_the_caller_gives_it_to() -> None:
    """One turn for the prompt and the background work that it began."""
    meter = UsageMeter()
    turns: list[int] = []
    for message in messages_of("11-subagent-background"):
        meter.receive(message)
        if isinstance(message, ResultMessage) and message.origin:
            turns.append(meter.finish_turn().total_tokens)
    assert turns == [600, 480]
    assert meter.total.total_tokens == 1080


@pytest.mark.parametrize("number, cost", [(1, 0.0016), (2, 0.0024), (3, 0.0032)])
def test_a_resumed_session_does_not_count_its_past(number: int, cost: float) -> None:
    meter = metered(*messages_of("14-resume", number), resumed=True)
    assert meter.total.total_tokens == 120
    assert meter.total.cost_usd == pytest.approx(0.0008)
    assert meter.session_cost_usd == pytest.approx(cost)


def test_nor_does_one_of_a_program_that_tells_only_its_totals() -> None:
    told = [forgetting(message, "model_usage_since_last_result") for message in messages_of("14-resume", 1)]
    meter = metered(*told, resumed=True)
    assert meter.total.total_tokens == 120
    assert meter.total.cost_usd == 0
    assert meter.session_cost_usd == pytest.approx(0.0016)


def test_a_cleared_conversation_begins_its_totals_again_and_keeps_ours() -> None:
    meter = metered(*messages_of("05-hooks-all-events"))
    assert meter.total.total_tokens == 2880
    assert meter.session_cost_usd == 0
    bare = [
        forgetting(message, "model_usage_since_last_result") for message in messages_of("05-hooks-all-events")
    ]
    assert_same(metered(*bare).total, meter.total)


def test_totals_that_begin_again_unannounced_are_not_negative() -> None:
    meter = metered(
        result("1", model_usage={"m": part(500, 5.0)}, total_cost_usd=5.0),
        result("2", model_usage={"m": part(20, 0.5)}, total_cost_usd=0.5),
    )
    assert (meter.total.total_tokens, meter.total.cost_usd) == (520, 5.5)


def test_what_no_result_covers_before_a_clear_is_kept() -> None:
    meter = metered(answer("a"), ConversationResetMessage("n"), answer("a"))
    assert meter.total.input_tokens == 100
    assert metered(answer("a"), ConversationResetMessage("n")).finish_turn().input_tokens == 100


def test_an_api_message_counts_once_however_many_messages_it_came_in() -> None:
    meter = metered(
        answer("a"), answer("a", 9), answer("a", 3), answer("b"), answer("b", parent_tool_use_id="t")
    )
    assert meter.turn == meter.total
    assert (meter.turn.input_tokens, meter.turn.output_tokens, meter.turn.cache_read_tokens) == (200, 10, 14)
    assert meter.turn.cost_usd == 0
    assert meter.turn.by_model["m"].input_tokens == 200


def test_messages_without_an_id_of_the_api_are_told_apart_by_their_own() -> None:
    meter = metered(answer(None, uuid="1"), answer(None, uuid="2"), answer(None, uuid="2"), answer(None))
    assert meter.turn.input_tokens == 200


def test_a_message_that_no_model_wrote_counts_for_nothing() -> None:
    assert metered(answer("a", model="<synthetic>")).turn == Usage()
    assert metered(AssistantMessage([], "m", message_id="a")).turn == Usage()


def test_a_message_that_is_repeated_after_its_result_counts_no_more() -> None:
    meter = metered(answer("a"), result(model_usage_since_last_result={"m": part(101)}), answer("a"))
    assert meter.turn.total_tokens == 101


def test_a_turn_without_a_result_has_what_its_messages_showed() -> None:
    meter = metered(*messages_of("17-exit-signals", 2))
    usage = meter.finish_turn(None)
    assert usage.input_tokens == 100
    assert usage.by_model.keys() == {"claude-opus-5-5"}


def test_the_result_of_a_turn_that_was_given_up_counts_only_what_is_new() -> None:
    meter = metered(answer("a"))
    first = meter.finish_turn()
    meter.receive(answer("a", 5))
    meter.receive(answer("b"))
    assert meter.turn.input_tokens == 100
    since = {"m": {"inputTokens": 200, "outputTokens": 30, "cacheReadInputTokens": 14, "costUSD": 0.5}}
    meter.receive(result(model_usage_since_last_result=since))
    second = meter.finish_turn()
    assert (first.input_tokens, second.input_tokens) == (100, 100)
    assert (first.output_tokens, second.output_tokens) == (1, 29)
    assert second.cost_usd == 0.5
    assert_same(first + second, meter.total)
    assert meter.total.total_tokens == 244


def test_turns_still_add_up_if_the_result_tells_of_less_than_was_seen() -> None:
    meter = metered(answer("a"))
    first = meter.finish_turn()
    meter.receive(result(model_usage_since_last_result={}))
    second = meter.finish_turn()
    assert second == Usage()
    assert meter.total == first


def test_a_result_counts_once_whether_received_or_given_at_the_end() -> None:
    one = result("1", model_usage_since_last_result={"m": part(10)})
    two = result("2", model_usage_since_last_result={"m": part(5)})
    meter = metered(one, two)
    assert meter.finish_turn(one).total_tokens == 15
    assert meter.finish_turn(two).total_tokens == 0
    assert UsageMeter().finish_turn(one).total_tokens == 10


def test_results_without_an_id_are_told_apart_by_their_number() -> None:
    since: Any = {"m": part(10)}
    messages = [
        ResultMessage("success", 1, 1, False, 1, "s", result_index=index, model_usage_since_last_result=since)
        for index in (0, 1, 1)
    ]
    assert metered(*messages).total.total_tokens == 20


def test_a_result_with_nothing_but_its_own_figures_is_taken_by_them() -> None:
    usage: Any = {"input_tokens": 10, "output_tokens": 2, "server_tool_use": {"web_search_requests": 3}}
    meter = metered(
        result("1", usage=usage, total_cost_usd=0.5), result("2", usage=usage, total_cost_usd=0.75)
    )
    assert (meter.total.total_tokens, meter.total.cost_usd) == (24, 0.75)
    assert meter.total.web_search_requests == 6
    assert meter.total.by_model == {}
    assert metered(result()).total == Usage()


@pytest.mark.parametrize("value", [None, "many", -5, {}, [1], math.inf], ids=str)
def test_figures_that_are_none_count_for_nothing(value: Any) -> None:
    since: Any = {"m": {"inputTokens": value, "costUSD": None}}
    assert metered(result(model_usage_since_last_result=since)).total.total_tokens == 0
    usage: Any = {"input_tokens": value, "server_tool_use": value}
    assert metered(AssistantMessage([], "m", message_id="a", usage=usage)).total.total_tokens == 0


@pytest.mark.parametrize("cost", [10**400, math.inf, "much", None], ids=["huge", "inf", "text", "none"])
def test_a_cost_that_is_no_amount_is_none(cost: Any) -> None:
    since: Any = {"m": {"inputTokens": 1, "costUSD": cost}}
    assert metered(result(model_usage_since_last_result=since)).total == Usage(1, by_model={"m": Usage(1)})


def test_stream_events_tell_how_long_an_answer_became() -> None:
    name = "02-partial-text-and-tool"
    seen = [message for message in messages_of(name) if isinstance(message, StreamEvent | AssistantMessage)]
    meter = metered(*seen)
    assert (meter.turn.input_tokens, meter.turn.output_tokens) == (200, 40)
    said = [message for message in seen if isinstance(message, AssistantMessage)]
    assert metered(*said).turn.output_tokens == 2


def stream_event(event: Any) -> Message:
    message = decode(json.dumps({"type": "stream_event", "event": event}, separators=(",", ":")))
    assert isinstance(message, StreamEvent)
    return message


FIGURES: list[Message] = [
    stream_event(
        {"type": "message_start", "message": {"id": "a", "model": "m", "usage": {"input_tokens": 5}}}
    ),
    stream_event({"type": "content_block_delta", "delta": {"type": "text_delta", "text": '"message_start"'}}),
    answer("a", 1),
    stream_event({"type": "message_delta", "usage": {"output_tokens": 500}}),
]


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_what_is_counted_does_not_depend_on_what_comes_together(size: int) -> None:
    meter = UsageMeter()
    for start in range(0, len(FIGURES), size):
        messages = FIGURES[start : start + size]
        meter.receive_output(messages, set(map(type, messages)))
    assert meter.turn == meter.total
    assert (meter.turn.input_tokens, meter.turn.output_tokens) == (100, 500)


def undecoded_answer(id: str, model: str, output: int) -> Message:
    """As it comes over a connection, with every field that the program always sends."""
    frame = to_wire(answer(id, output, model=model))
    frame["message"] = {"id": id, "type": "message", "role": "assistant", **frame["message"]}
    (message,) = Framer().feed(encode(frame) + b"\n")
    assert isinstance(message, AssistantMessage)
    assert type(message.undecoded_usage) is msgspec.Raw
    return message


MESSAGES = st.one_of(
    st.builds(
        undecoded_answer,
        st.sampled_from("ab"),
        st.sampled_from("mn"),
        st.integers(0, 3),
    ),
    st.builds(
        lambda id, usage: stream_event(
            {"type": "message_start", "message": {"id": id, "model": "m", **usage}},
        ),
        st.sampled_from("ab"),
        st.sampled_from([{}, {"usage": {"input_tokens": 5}}]),
    ),
    st.builds(
        lambda output: stream_event({"type": "message_delta", "usage": {"output_tokens": output}}),
        st.integers(0, 9),
    ),
    st.just(stream_event({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "x"}})),
)


@given(messages=st.lists(MESSAGES, max_size=12), cuts=st.sets(st.integers(1, 11)))
def test_what_is_counted_is_the_same_in_any_pieces(messages: list[Any], cuts: set[int]) -> None:
    edges = [0, *sorted(cuts), len(messages)]
    pieces = [messages[start:end] for start, end in pairwise(edges) if start < end]
    meter = UsageMeter()
    for piece in pieces:
        meter.receive_output(piece, set(map(type, piece)))
    assert meter.turn.total_tokens == metered(*messages).turn.total_tokens


@pytest.mark.parametrize("size", [1, 4])
def test_a_session_tells_in_mid_turn_what_its_stream_events_say(size: int) -> None:
    routing = Routing(Flow(), can_be_asked=False)
    routing.turns.is_turn_open = True
    for start in range(0, len(FIGURES), size):
        messages = FIGURES[start : start + size]
        routing.receive(messages, set(map(type, messages)), 0, 0.0)
    assert routing.meter.turn.output_tokens == 500


def test_long_turns_are_counted_along_the_way_and_repeated_answers_once() -> None:
    meter = UsageMeter()
    messages: list[Message] = [answer(str(number // 2), 1 + number % 2) for number in range(40_000)]
    meter.receive_output(messages, {AssistantMessage})
    assert meter.turn.output_tokens == 40_000
    meter.receive(result("r"))
    meter.receive_output(messages, {AssistantMessage})
    assert meter.turn.output_tokens == 0


def test_stream_events_made_by_hand_count_too_and_broken_ones_do_no_harm() -> None:
    start: Any = {"type": "message_start", "message": {"id": "a", "model": "m", "usage": {"input_tokens": 4}}}
    delta: Any = {"type": "message_delta", "usage": {"output_tokens": 6}}
    meter = metered(StreamEvent("1", "s", start), StreamEvent("2", "s", delta))
    assert meter.turn == Usage(4, 6, by_model={"m": Usage(4, 6)})
    inners: list[Any] = [None, "x", {"usage": 5}]
    odd: list[Any] = [{}, delta, *({"type": "message_start", "message": inner} for inner in inners)]
    assert metered(*(StreamEvent("1", "s", event) for event in odd)).turn == Usage()


def test_text_about_messages_is_no_message() -> None:
    text = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": '"message_delta"'}}
    frame = {"type": "stream_event", "uuid": "u", "session_id": "s", "event": text}
    event = decode(json.dumps(frame).encode())
    assert isinstance(event, StreamEvent)
    assert metered(event).turn == Usage()


ONE = Usage(1, 2, 3, 4, 5, 0.5, {"m": Usage(1, 2, 3, 4, 5, 0.5)})


def test_usage_adds_up_by_model_too() -> None:
    other = Usage(10, by_model={"n": Usage(10)})
    both = ONE + other
    assert both == Usage(11, 2, 3, 4, 5, 0.5, {"m": ONE.by_model["m"], "n": Usage(10)})
    assert sum([ONE, other]) == both == sum([other, ONE], Usage())
    assert (ONE + ONE).by_model["m"].output_tokens == 4
    assert ONE.by_model.keys() == {"m"}
    assert ONE.total_tokens == 10
    with pytest.raises(TypeError):
        ONE + 5  # type: ignore[operator]  # pyright: ignore[reportOperatorIssue, reportUnusedExpression]
    with pytest.raises(TypeError):
        5 + ONE  # pyright: ignore[reportUnusedExpression]


def test_usage_is_a_value_that_reads_well() -> None:
    assert str(ONE) == "10 tokens (1 in, 2 out, 7 cached), $0.5000, 5 web searches"
    assert str(Usage(1234567)) == "1,234,567 tokens (1,234,567 in, 0 out), $0.0000"
    assert repr(Usage()) == "Usage()"
    assert repr(Usage(1, cost_usd=0.5)) == "Usage(input_tokens=1, cost_usd=0.5)"
    for same in (pickle.loads(pickle.dumps(ONE)), copy.copy(ONE), copy.deepcopy(ONE)):
        assert same == ONE
    assert msgspec.json.decode(msgspec.json.encode(ONE), type=Usage) == ONE
    with pytest.raises(AttributeError):
        ONE.input_tokens = 5  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
