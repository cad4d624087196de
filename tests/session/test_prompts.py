"""What can be sent becomes a message, and what cannot is refused before anything is written."""

from __future__ import annotations

import io
import pickle
from collections import deque
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from outrider.errors import MessageInvalid, OutriderError, UsageError
from outrider.options import Options
from outrider.session import Prompt, document, image
from outrider.session._prompts import has_files, is_prompt_stream, make_message
from outrider.wire import TextBlock, ToolResultBlock, UnknownBlock, UserMessage
from tests.cases import every_case

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)
TEXT = {"type": "text", "text": "hi"}
MESSAGE = {"type": "user", "message": {"role": "user", "content": "hi"}}


def frame(content: object, **more: object) -> dict[str, object]:
    return {
        "type": "user",
        "message": {"role": "user", "content": content},
        "parent_tool_use_id": None,
        "session_id": "default",
        **more,
    }


class Loud(str):
    __slots__ = ()


@every_case(
    "prompt, content",
    [
        pytest.param("hi", "hi", id="text"),
        pytest.param(Loud("hi"), "hi", id="a kind of text"),
        pytest.param("  hi\n", "  hi\n", id="white space is kept"),
        pytest.param(TextBlock("hi"), [TEXT], id="a block"),
        pytest.param(
            ToolResultBlock("t", "x"),
            [{"type": "tool_result", "tool_use_id": "t", "content": "x"}],
            id="result",
        ),
        pytest.param(
            UnknownBlock("odd", {"type": "odd", "x": 1}), [{"type": "odd", "x": 1}], id="an odd block"
        ),
        pytest.param({"type": "text", "text": "hi"}, [TEXT], id="a block as a dict"),
        pytest.param(["hi", TextBlock("hi"), TEXT], [TEXT, TEXT, TEXT], id="parts"),
        pytest.param(("hi",), [TEXT], id="a tuple"),
        pytest.param(UserMessage("hi"), "hi", id="a message"),
        pytest.param(UserMessage([TextBlock("hi")]), [TEXT], id="a message in blocks"),
        pytest.param(MESSAGE, "hi", id="a message as a dict"),
        pytest.param({"message": {"content": "hi"}}, "hi", id="a message without a type"),
        pytest.param({"type": "user", "message": "hi"}, "hi", id="a message that is text"),
        pytest.param({"role": "user", "content": [TEXT]}, [TEXT], id="the inside of a message"),
    ],
)
def test_whatever_can_be_said_becomes_a_message(prompt: Prompt, content: object) -> None:
    assert make_message(prompt) == frame(content)
    assert not is_prompt_stream(prompt)
    assert not has_files(prompt)


def test_files_are_sent_along(tmp_path: Path) -> None:
    picture, notes = tmp_path / "a.bin", tmp_path / "notes.txt"
    picture.write_bytes(PNG)
    notes.write_text("so be it")
    prompt: Prompt = ["What is this?", picture, notes]
    content = make_message(prompt)["message"]["content"]
    assert [block["type"] for block in content] == ["text", "image", "document"]
    assert content[1]["source"]["media_type"] == "image/png"
    assert content[2]["title"] == "notes.txt"
    assert has_files(prompt)
    assert has_files((notes,))


def test_blocks_made_by_hand_are_sent_as_they_are() -> None:
    blocks = [image(PNG), document("so be it", title="t", context="c")]
    content = make_message(blocks)["message"]["content"]
    assert content[0]["type"] == "image"
    assert content[1] == {
        "type": "document",
        "source": {"type": "text", "media_type": "text/plain", "data": "so be it"},
        "title": "t",
        "context": "c",
    }


def test_how_it_is_to_be_taken_is_said_in_the_message() -> None:
    made = make_message("hi", uuid="u-1", priority="now", should_query=False, verbatim=True)
    assert made == frame("hi", uuid="u-1", priority="now", shouldQuery=False, client_composed=True)
    assert make_message("hi", verbatim=False) == frame("hi")


def test_a_message_keeps_what_it_has() -> None:
    mine = UserMessage("hi", uuid="mine", priority="later", client_composed=True)
    assert make_message(mine, uuid="u-1") == frame("hi", uuid="mine", priority="later", client_composed=True)
    assert make_message(mine, priority="next")["priority"] == "next"
    given: Any = {**MESSAGE, "uuid": "mine", "extra": 1}
    assert make_message(given, uuid="u-1") == frame("hi", uuid="mine", extra=1)
    assert given == {**MESSAGE, "uuid": "mine", "extra": 1}


def numbers() -> Iterator[int]:
    yield 1


async def later() -> AsyncIterator[str]:
    yield "hi"


@every_case(
    "prompt, words",
    [
        pytest.param("", ("The prompt is empty", "Send some text"), id="empty"),
        pytest.param(" \n", ("nothing but white space",), id="white space"),
        pytest.param([], ("empty list", "Path("), id="an empty list"),
        pytest.param(["hi", ""], ("Part 2 of the prompt is empty",), id="an empty part"),
        pytest.param(None, ("The prompt is None", "Send text"), id="None"),
        pytest.param(5, ("The prompt is 5, of type int",), id="a number"),
        pytest.param(b"hi", ("b'hi'", "`.decode()`", "`image`"), id="bytes"),
        pytest.param(io.StringIO("hi"), ("StringIO", "`.read()`"), id="an open file"),
        pytest.param({"hi"}, ("{'hi'}, of type set",), id="a set"),
        pytest.param(deque(["hi"]), ("of type deque", "a list of"), id="another kind of list"),
        pytest.param(Options(), ("of type Options",), id="options"),
        pytest.param(Path("a.png"), ("a.png", "in a list"), id="a file alone"),
        pytest.param(
            ["hi", 5], ("Part 2 of the prompt is 5, of type int", "a list of text"), id="a number in it"
        ),
        pytest.param([None], ("Part 1 of the prompt is None",), id="None in it"),
        pytest.param(["hi", ["hi"]], ("Part 2", "of type list"), id="a list in it"),
        pytest.param(
            ["hi", UserMessage("x")], ("Part 2 of the prompt is a whole message",), id="a message in it"
        ),
        pytest.param(["hi", MESSAGE], ("Part 2 of the prompt is a whole message",), id="a message as a dict"),
        pytest.param([Path("/no/such.png")], ("'/no/such.png'", "does not exist"), id="a missing file"),
        pytest.param(numbers(), ("a stream of messages", "one by one"), id="a generator"),
        pytest.param(later(), ("a stream of messages", "one by one"), id="an async generator"),
        pytest.param(b"sk-ant-api03-hunter2hunter2", ("sk-ant-***",), id="a secret"),
    ],
)
def test_what_is_no_prompt_is_refused_by_name(prompt: Any, words: tuple[str, ...]) -> None:
    with pytest.raises(UsageError) as caught:
        make_message(prompt)
    for word in words:
        assert word in str(caught.value)
    assert caught.value.hint


@every_case(
    "prompt, words",
    [
        pytest.param({}, "`content`", id="nothing"),
        pytest.param({"text": "hi"}, "`content`", id="no content"),
        pytest.param({"role": "user", "content": ""}, "`content`", id="empty content"),
        pytest.param({"role": "user", "content": 5}, "`content`", id="a number"),
        pytest.param({"role": "assistant", "content": "hi"}, "its role is 'assistant'", id="another role"),
        pytest.param({"type": "user"}, "no content", id="no message"),
        pytest.param({"type": "user", "message": None}, "no content", id="a message of None"),
        pytest.param({"type": "user", "message": " "}, "no content", id="a message of white space"),
        pytest.param({"type": "user", "message": {"role": "user"}}, "`content`", id="a message of nothing"),
        pytest.param(
            {"type": "user", "message": {"role": "system", "content": "x"}}, "its role is 'system'", id="role"
        ),
        pytest.param({"type": "control_request", "request": {}}, "'control_request'", id="a request"),
        pytest.param({"type": "result"}, "'result'", id="a result"),
        pytest.param(["hi", {"text": "hi"}], "part 2 of the prompt is a dict with no `type`", id="no block"),
        pytest.param(UserMessage(""), "`content`", id="an empty message"),
        pytest.param(UserMessage([]), "`content`", id="no blocks"),
        pytest.param(UserMessage(cast(Any, ["hi"])), "`content`", id="blocks that are none"),
        pytest.param({"type": ["user"]}, "`type`", id="a type that is none"),
        pytest.param({**MESSAGE, "uuid": 5}, "`uuid`", id="an id that is none"),
        pytest.param({"role": "user", "content": [5]}, "`content`", id="a number for a block"),
        pytest.param({"role": "user", "content": [{"type": "text"}]}, "`content`", id="text of no text"),
        pytest.param({"type": "text", "text": 5}, "the prompt is a block of text without", id="a lone block"),
        pytest.param(["hi", {"type": "text"}], "part 2 of the prompt is a block of text", id="a part"),
        pytest.param(TextBlock(cast(Any, None)), "part 1 of the prompt is a block of text", id="a typed one"),
    ],
)
def test_a_message_that_the_program_could_not_read_is_refused(prompt: Any, words: str) -> None:
    with pytest.raises(MessageInvalid) as caught:
        make_message(prompt)
    assert words in str(caught.value)
    assert isinstance(pickle.loads(pickle.dumps(caught.value)), OutriderError)


def test_a_priority_that_there_is_not_is_refused() -> None:
    with pytest.raises(UsageError, match=r"`priority` is 'soon'.*'now', 'next' and 'later'"):
        make_message("hi", priority="soon")


class Endless:
    def __aiter__(self) -> Endless:
        return self

    async def __anext__(self) -> str:
        return "hi"


@every_case(
    "prompt, is_stream",
    [
        pytest.param(later(), True, id="an async generator"),
        pytest.param(Endless(), True, id="an async iterable"),
        pytest.param(numbers(), True, id="a generator"),
        pytest.param(iter(["hi"]), True, id="an iterator"),
        pytest.param(map(str, [1]), True, id="a map"),
        pytest.param([UserMessage("a"), UserMessage("b")], True, id="messages"),
        pytest.param((MESSAGE, {"message": {"content": "hi"}}), True, id="messages as dicts"),
        pytest.param([UserMessage("a")], True, id="one message in a list"),
        pytest.param([UserMessage("a"), "b"], False, id="a message and text"),
        pytest.param(["a", "b"], False, id="a list of text"),
        pytest.param([TEXT], False, id="a list of blocks"),
        pytest.param([{"role": "user", "content": "hi"}], False, id="the inside of a message"),
        pytest.param([], False, id="an empty list"),
        pytest.param("hi", False, id="text"),
        pytest.param(MESSAGE, False, id="a message"),
        pytest.param(UserMessage("hi"), False, id="a typed message"),
        pytest.param(b"hi", False, id="bytes"),
        pytest.param({"hi"}, False, id="a set"),
        pytest.param(range(3), False, id="a range"),
        pytest.param(io.StringIO("hi"), False, id="an open file"),
        pytest.param(None, False, id="None"),
        pytest.param(5, False, id="a number"),
    ],
)
def test_several_messages_are_told_from_one_prompt(prompt: object, is_stream: bool) -> None:
    assert is_prompt_stream(prompt) is is_stream
