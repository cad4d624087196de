"""What a turn came to: the answer, its figures, and an error where it failed."""

from __future__ import annotations

import copy
import pickle
from typing import Any, assert_type

import pytest

from outrider.errors import ApiFailed, ConnectionLost, OutriderError, TurnFailed
from outrider.session import Result, UnfinishedTask, Usage
from outrider.wire import (
    AssistantMessage,
    BackgroundTasksChangedMessage,
    Json,
    MalformedLine,
    Message,
    ResultMessage,
    StreamEvent,
    TextBlock,
    ToolUseBlock,
    UserMessage,
)
from tests.cases import every_case
from tests.session.recorded_runs import all_runs, messages_of, results_of, turns_of


def ended(subtype: str = "success", is_error: bool = False, **fields: Any) -> ResultMessage:
    return ResultMessage(subtype, 1, 1, is_error, 1, "s-1", **fields)


def said(text: str, id: str | None = "a", **fields: Any) -> AssistantMessage:
    return AssistantMessage([TextBlock(text)], "m", message_id=id, **fields)


def piece(event: Any, parent: str | None = None) -> StreamEvent:
    return StreamEvent("u", "s-2", event, parent)


def start(id: str) -> StreamEvent:
    return piece({"type": "message_start", "message": {"id": id}})


def delta(text: str, parent: str | None = None) -> StreamEvent:
    return piece({"type": "content_block_delta", "delta": {"type": "text_delta", "text": text}}, parent)


TOOL = ToolUseBlock("t", "Bash", {})


@every_case(
    "message, messages, text",
    [
        pytest.param(ended(result="42"), [said("no")], "42", id="what the agent calls the result"),
        pytest.param(ended(result=""), [said("no")], "", id="also if it is empty"),
        pytest.param(None, [said("one", "a"), said("two", "b")], "two", id="the last message"),
        pytest.param(None, [said("one"), said(" two")], "one two", id="all blocks of it"),
        pytest.param(None, [said("one", None), said("two", None)], "two", id="none belong together by no id"),
        pytest.param(
            None, [said("one"), UserMessage("x"), MalformedLine(b"", "")], "one", id="whatever follows"
        ),
        pytest.param(
            None, [said("one"), said("deep", "b", parent_tool_use_id="t")], "one", id="no words of a subagent"
        ),
        pytest.param(
            ended(is_error=True, result="API Error: 500"),
            [said("so far"), said("API Error: 500", "b", error="server_error")],
            "so far",
            id="no text of an error",
        ),
        pytest.param(
            ended(subtype="error_max_turns", is_error=True), [said("so far")], "so far", id="a limit reached"
        ),
        pytest.param(
            None, [said("one"), start("b"), delta("tw"), delta("o")], "two", id="pieces of a message not done"
        ),
        pytest.param(None, [start("a"), said("one"), delta(" two")], "one two", id="a block done and pieces"),
        pytest.param(None, [said("one"), start("b"), delta("x", "t")], "one", id="no pieces of a subagent"),
        pytest.param(
            None,
            [start("a"), delta("one"), said("one"), start("b")],
            "one",
            id="a message that has no text yet",
        ),
        pytest.param(None, [AssistantMessage([TOOL], "m")], "", id="no text at all"),
        pytest.param(None, [], "", id="nothing"),
    ],
)
def test_the_text_is_the_answer_or_what_was_said_last(
    message: ResultMessage | None, messages: list[Message], text: str
) -> None:
    result = Result(message=message, messages=tuple(messages))
    assert result.text == text
    assert str(result) == text


@every_case("name, number", all_runs())
def test_recorded_turns_have_what_the_program_said(name: str, number: int) -> None:
    for messages in turns_of(name, number):
        message = messages[-1]
        assert isinstance(message, ResultMessage)
        result = Result(message=message, messages=messages)
        assert result.session_id == message.session_id
        assert result.is_success == (message.subtype == "success" and not message.is_error)
        assert (result.raise_for_error() is result) if result.is_success else result.errors
        assert len(repr(result)) < 300
        if result.is_success:
            assert result.text == message.result
            assert result.errors == ()
        else:
            assert "API Error" not in result.text


def test_what_the_program_tells_is_at_hand() -> None:
    (message,) = results_of("09-structured-output-ok")
    usage, total = Usage(1, cost_usd=0.5), Usage(3, cost_usd=1.5)
    result = Result(message=message, usage=usage, total_usage=total, duration=2.5)
    assert result.output == {"name": "Ann", "age": 5}
    assert (result.subtype, result.terminal_reason, result.stop_reason) == (
        "success",
        "completed",
        "tool_use",
    )
    assert result.num_turns == 2
    assert (result.usage, result.total_usage, result.duration) == (usage, total, 2.5)
    assert result.cost_usd == 0.5
    assert result.total_cost_usd == message.total_cost_usd


def test_denied_tool_calls_are_listed() -> None:
    results = [Result(message=message) for message in results_of("04-can-use-tool-deny")]
    denials = [denial for result in results for denial in result.permission_denials]
    assert denials
    assert denials[0]["tool_name"] == "Bash"


def test_a_turn_without_a_result_has_all_that_is_known() -> None:
    result = Result(messages=(said("half", session_id="s-9"),), total_usage=Usage(cost_usd=2.0))
    assert (result.subtype, result.terminal_reason, result.stop_reason, result.num_turns) == (
        None,
        None,
        None,
        0,
    )
    assert (result.errors, result.permission_denials, result.output) == ((), (), None)
    assert not result.is_success
    assert result.total_cost_usd == 2.0
    assert result.session_id == "s-9"
    assert Result().session_id is None
    assert Result(session_id="mine", message=ended()).session_id == "mine"


def test_the_output_of_an_earlier_result_outlives_the_one_of_background_work() -> None:
    first, last = ended(structured_output={"a": 1}), ended(result="done")
    assert Result(message=last, messages=(first, said("done"), last)).output == {"a": 1}
    assert Result(message=last, output=5).output == 5


def test_lists_are_taken_and_kept_as_tuples() -> None:
    given: Any = [said("x")]
    result = Result(messages=given, unfinished_tasks=[UnfinishedTask("b1")])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    given.clear()
    assert result.messages == (said("x"),)
    assert result.unfinished_tasks == (UnfinishedTask("b1"),)


def test_unfinished_tasks_are_read_from_the_program() -> None:
    changes = [
        message
        for message in messages_of("19-background-bash")
        if isinstance(message, BackgroundTasksChangedMessage) and message.tasks
    ]
    task = UnfinishedTask.from_wire(changes[0].tasks[0])
    assert task.type == "local_bash"
    assert task.id
    assert task.description
    broken: Any = {"task_id": "b1", "task_type": None}
    assert UnfinishedTask.from_wire(broken) == UnfinishedTask("b1")


def test_a_success_is_given_back_and_a_failure_raised() -> None:
    good = Result(message=ended(result="x"))
    assert good.raise_for_error() is good
    error = ApiFailed(529)
    bad = Result(message=ended(result="x"), error=error)
    assert not bad.is_success
    for _ in range(2):
        with pytest.raises(ApiFailed) as caught:
            bad.raise_for_error()
        assert caught.value is error
        assert len(caught.traceback) == 2


def test_a_failure_that_nobody_named_is_raised_too() -> None:
    message = ended(subtype="error_during_execution", is_error=True, errors=["no luck"])
    result = Result(message=message, messages=(said("x"), message))
    with pytest.raises(TurnFailed, match="no luck") as caught:
        result.raise_for_error()
    assert caught.value.result is result
    assert caught.value.session_id == "s-1"
    assert result.errors == ("no luck",)
    with pytest.raises(TurnFailed):
        Result().raise_for_error()


@pytest.mark.parametrize(
    "result, shown",
    [
        (
            Result(message=ended(result="y" * 500), messages=(said("x"),), usage=Usage(10, 2, cost_usd=0.25)),
            f"<Result success, '{'y' * 60}…', 1 messages, 12 tokens (10 in, 2 out), $0.2500>",
        ),
        (Result(), "<Result no result, '', 0 messages, 0 tokens (0 in, 0 out), $0.0000>"),
        (
            Result(message=ended(result="key sk-ant-api03-hunter2hunter2"), error=ConnectionLost()),
            "<Result ConnectionLost, 'key sk-ant-***', 0 messages, 0 tokens (0 in, 0 out), $0.0000>",
        ),
    ],
    ids=["long", "nothing", "secret"],
)
def test_a_repr_is_one_short_line(result: Result, shown: str) -> None:
    assert repr(result) == shown


def linked() -> Result:
    """A result whose error holds the result, as those that a session raises do."""
    error: OutriderError = ConnectionLost("gone")
    result = Result(
        message=ended(result="x"), messages=(said("x"),), usage=Usage(5), error=error, duration=1.5
    )
    error.result = result
    return result


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_it_travels_with_an_error_that_holds_it(protocol: int) -> None:
    copied = pickle.loads(pickle.dumps(linked(), protocol))
    assert copied.error.result is copied
    assert (copied.text, copied.messages, copied.usage, copied.duration) == ("x", (said("x"),), Usage(5), 1.5)
    error = pickle.loads(pickle.dumps(linked().error, protocol))
    assert error.result.error is error
    assert error.result.session_id == "s-1"


def test_it_can_be_copied() -> None:
    result = linked()
    deep = copy.deepcopy(result)
    assert deep.error is not result.error
    assert deep.error is not None
    assert deep.error.result is deep
    assert copy.copy(result) == result


def test_it_is_a_value() -> None:
    assert Result(message=ended()) == Result(message=ended())
    assert Result(message=ended()) != Result(message=ended(result="x"))
    with pytest.raises(AttributeError):
        Result().duration = 5  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]


def test_the_output_has_a_type() -> None:
    assert_type(Result().output, Json)
    assert_type(Result[int](output=5).output, int)
    assert Result[int](output=5).output == 5
