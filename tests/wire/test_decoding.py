"""What a line becomes: typed where it can be, the nearest thing that is true where it cannot."""

from __future__ import annotations

import copy
import json
import pickle
import sys
from typing import Any, ClassVar, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.errors import MalformedFrame, MessageInvalid
from outrider.wire import (
    BLOCK_TYPES,
    FRAME_TYPES,
    SYSTEM_SUBTYPES,
    AssistantMessage,
    ContentBlock,
    ControlResponse,
    Frame,
    Framer,
    HookStartedMessage,
    InitMessage,
    KeepAlive,
    RateLimitEvent,
    ResultMessage,
    StreamEvent,
    SystemMessage,
    TaskUpdatedMessage,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UnknownBlock,
    UnknownMessage,
    UnknownSystemMessage,
    UserMessage,
    decode,
    decode_block,
    encode,
    frame_from_wire,
    to_wire,
)
from outrider.wire._decoding import (
    _FINISH,
    FLAT,
    decode_frame,
    decode_tolerantly,
    fast_decoder,
    known_frames,
)
from outrider.wire.tools import BashInput
from tests import tapes
from tests.cases import every_case


def line(**frame: Any) -> bytes:
    return json.dumps(frame).encode()


def assistant(*blocks: Any, **more: Any) -> Any:
    return decode(line(type="assistant", message={"content": list(blocks), "model": "m"}, **more))


# Blocks.

BLOCKS: dict[str, dict[str, Any]] = {
    "text": {"text": "hi"},
    "thinking": {"thinking": "hm", "signature": "s"},
    "redacted_thinking": {"data": "x"},
    "tool_use": {"id": "t", "name": "Bash", "input": {"command": "ls"}},
    "tool_result": {"tool_use_id": "t", "content": "done", "is_error": False},
    "server_tool_use": {"id": "t", "name": "web_search", "input": {}},
    "advisor_tool_result": {"tool_use_id": "t", "content": {"a": 1}},
    "web_search_tool_result": {"tool_use_id": "t", "content": [{"type": "web_search_result"}]},
    "web_fetch_tool_result": {"tool_use_id": "t", "content": {}},
    "code_execution_tool_result": {"tool_use_id": "t", "content": {}},
    "bash_code_execution_tool_result": {"tool_use_id": "t", "content": {}},
    "text_editor_code_execution_tool_result": {"tool_use_id": "t", "content": {}},
    "tool_search_tool_result": {"tool_use_id": "t", "content": {}},
    "mcp_tool_use": {"id": "t", "name": "n", "input": {}, "server_name": "s"},
    "mcp_tool_result": {"tool_use_id": "t", "content": [], "is_error": True},
    "image": {"source": {"type": "base64", "media_type": "image/png", "data": ""}},
    "document": {"source": {}, "title": "t"},
    "search_result": {"source": "s", "title": "t", "content": []},
    "tool_reference": {"tool_name": "Read"},
    "container_upload": {"file_id": "f"},
    "compaction": {"content": "c"},
}


@pytest.mark.requirement("A2")
@every_case("kind", BLOCKS)
def test_each_block_type(kind: str) -> None:
    data = {"type": kind, **BLOCKS[kind]}
    message = assistant(data)
    (block,) = message.content
    assert block.type == kind
    assert type(block) is BLOCK_TYPES[kind]
    assert decode_block(data) == block
    assert json.loads(encode([block])) == [data]


@pytest.mark.requirement("A2")
def test_the_table_of_blocks_is_whole() -> None:
    assert set(BLOCKS) == set(BLOCK_TYPES)


@pytest.mark.requirement("A2")
@every_case(
    "data, kind",
    [
        ({"type": "brand_new", "x": 1}, "brand_new"),
        ({"text": "no type"}, ""),
        ({"type": 5}, ""),
        ({"type": None}, ""),
        ("just text", ""),
        (None, ""),
        ({"type": "text", "text": 5}, "text"),
        ({"type": "tool_use", "id": "t", "name": "n", "input": "not an object"}, "tool_use"),
    ],
)
def test_a_block_that_is_no_known_one_is_kept_and_named(data: Any, kind: str) -> None:
    message = assistant({"type": "text", "text": "before"}, data)
    assert message.content == [TextBlock("before"), UnknownBlock(kind, data)]
    assert json.loads(encode(message))["message"]["content"][1] == data
    with pytest.raises(MessageInvalid) as refused:
        decode_block(data, strict=True)
    assert refused.value.data == data


@pytest.mark.requirement("A2")
@pytest.mark.parametrize(
    "data, block",
    [
        ({"type": "thinking", "thinking": "hm"}, ThinkingBlock("hm", "")),
        ({"type": "thinking", "thinking": "hm", "signature": None}, ThinkingBlock("hm", "")),
        ({"type": "text"}, TextBlock("")),
        ({"type": "tool_use", "id": "t"}, ToolUseBlock("t", "", {})),
        ({"type": "tool_result", "tool_use_id": "t"}, ToolResultBlock("t")),
        ({"type": "text", "text": "x", "citations": None, "new": 1}, TextBlock("x")),
    ],
)
def test_a_block_that_lacks_a_field_is_delivered(data: Any, block: ContentBlock) -> None:
    assert assistant(data).content == [block]


def test_a_tool_call_knows_its_typed_input() -> None:
    assert ToolUseBlock("t", "Bash", {"command": "ls"}).typed() == BashInput("ls")
    assert ToolUseBlock("t", "mcp__x__y", {"a": 1}).typed() == {"a": 1}


def test_the_text_of_a_tool_result() -> None:
    parts = [
        {"type": "text", "text": "a"},
        {"type": "image"},
        {"type": "text", "text": "b"},
        {"type": "text"},
    ]
    assert ToolResultBlock("t", parts).joined_text() == "ab"
    assert ToolResultBlock("t", "plain").joined_text() == "plain"
    assert ToolResultBlock("t").joined_text() == ""


# Messages.


@pytest.mark.requirement("A3")
def test_an_assistant_message() -> None:
    message = decode(
        line(
            type="assistant",
            message={
                "id": "m1",
                "content": [{"type": "text", "text": "hi"}],
                "model": "opus",
                "usage": {"input_tokens": 3},
            },
            parent_tool_use_id=None,
            error="rate_limit",
            session_id="s",
            uuid="u",
        )
    )
    assert message == AssistantMessage(
        [TextBlock("hi")],
        "opus",
        error="rate_limit",
        usage={"input_tokens": 3},
        message_id="m1",
        session_id="s",
        uuid="u",
    )
    assert message.type == "assistant"


@pytest.mark.requirement("A3")
@pytest.mark.parametrize("content", ["hello", [{"type": "text", "text": "hello"}]])
def test_a_user_message(content: Any) -> None:
    message = decode(line(type="user", message={"role": "user", "content": content}, isReplay=True, uuid="u"))
    assert isinstance(message, UserMessage)
    assert message.text == "hello"
    assert (message.is_replay, message.uuid, message.type) == (True, "u", "user")


@pytest.mark.requirement("A3")
def test_a_result_message() -> None:
    message = decode(
        line(
            type="result",
            subtype="success",
            duration_ms=1,
            duration_api_ms=2,
            is_error=False,
            num_turns=3,
            session_id="s",
            total_cost_usd=0,
            modelUsage={"m": {"costUSD": 1}},
            structured_output={"a": [1]},
            deferred_tool_use={"id": "t", "name": "Bash", "input": {}},
        )
    )
    assert isinstance(message, ResultMessage)
    assert message.model_usage == {"m": {"costUSD": 1}}
    assert message.structured_output == {"a": [1]}
    assert message.deferred_tool_use is not None
    assert message.deferred_tool_use.name == "Bash"


@pytest.mark.requirement("A5")
@pytest.mark.parametrize(
    "subtype, is_error, cost, is_success, cost_usd",
    [
        ("success", False, 0.5, True, 0.5),
        ("success", True, None, False, 0.0),
        ("error_max_turns", False, 1, False, 1.0),
        ("error_during_execution", True, 0, False, 0.0),
    ],
)
def test_the_helpers_of_a_result(
    subtype: str, is_error: bool, cost: float | None, is_success: bool, cost_usd: float
) -> None:
    message = ResultMessage(subtype, 1, 1, is_error, 1, "s", total_cost_usd=cost)
    assert message.is_success is is_success
    assert message.cost_usd == cost_usd
    assert isinstance(message.cost_usd, float)


@pytest.mark.requirement("A5")
def test_the_helpers_of_an_assistant_message() -> None:
    tool = ToolUseBlock("t", "Bash", {})
    message = AssistantMessage(
        [ThinkingBlock("one", ""), TextBlock("a"), tool, ThinkingBlock("two", ""), TextBlock("b")], "m"
    )
    assert (message.text, message.thinking, message.tool_uses) == ("ab", "one", [tool])
    empty = AssistantMessage([], "m")
    assert (empty.text, empty.thinking, empty.tool_uses) == ("", "", [])


@pytest.mark.requirement("A4")
@pytest.mark.parametrize(
    "kind",
    [
        "authentication_failed",
        "billing_error",
        "rate_limit",
        "invalid_request",
        "server_error",
        "unknown",
        "of_tomorrow",
    ],
)
def test_error_kinds_are_an_open_set(kind: str) -> None:
    assert assistant(error=kind).error == kind


@pytest.mark.parametrize("verdict", ["true", "false", 0, None])
def test_a_result_whose_verdict_cannot_be_read_is_no_success(verdict: object) -> None:
    message = decode(line(type="result", subtype="success", is_error=verdict))
    assert isinstance(message, ResultMessage)
    assert not message.is_success


def test_a_user_message_holds_what_the_reference_drops() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}
    message = decode(line(type="user", message={"role": "user", "content": [image]}))
    assert isinstance(message, UserMessage)
    assert len(message.content) == 1


@pytest.mark.parametrize(
    "delta, text, thinking, partial",
    [
        ({"type": "text_delta", "text": "hi"}, "hi", "", ""),
        ({"type": "thinking_delta", "thinking": "hm"}, "", "hm", ""),
        ({"type": "input_json_delta", "partial_json": '{"a'}, "", "", '{"a'),
        ({"text": 5}, "", "", ""),
        (None, "", "", ""),
    ],
)
def test_the_deltas_of_a_stream_event(delta: Any, text: str, thinking: str, partial: str) -> None:
    event = StreamEvent("u", "s", {"type": "content_block_delta", "delta": delta})
    again = decode(encode(event))
    assert isinstance(again, StreamEvent)
    for each in (event, again):
        assert (each.text, each.thinking, each.partial_json) == (text, thinking, partial)


class TestLazyEvent:
    """A stream event's `event` is decoded when it is looked at; nobody can tell."""

    DATA = b'{"type":"stream_event","uuid":"u","session_id":"s","event":{"type":"ping","x":[1]}}'
    EVENT: ClassVar = {"type": "ping", "x": [1]}

    def fresh(self) -> StreamEvent:
        event = decode(self.DATA)
        assert isinstance(event, StreamEvent)
        return event

    def test_reading(self) -> None:
        event = self.fresh()
        assert event.event == self.EVENT
        assert event.event is event.event

    def test_comparing(self) -> None:
        made = StreamEvent("u", "s", cast("Any", self.EVENT))
        assert self.fresh() == made
        assert made == self.fresh()
        assert self.fresh() == self.fresh()
        assert self.fresh() != StreamEvent("u", "s", {"type": "pong"})
        assert self.fresh() != "u"

    def test_printing(self) -> None:
        assert repr(self.fresh()) == f"StreamEvent(uuid='u', session_id='s', event={self.EVENT!r})"

    def test_copying_and_pickling(self) -> None:
        for twin in (
            copy.copy(self.fresh()),
            copy.deepcopy(self.fresh()),
            pickle.loads(pickle.dumps(self.fresh())),
        ):
            assert twin == self.fresh()
            assert twin.raw_json == self.DATA

    def test_matching(self) -> None:
        match self.fresh():
            case StreamEvent(uuid, _, {"type": "ping"}):
                assert uuid == "u"
            case _:
                pytest.fail("did not match")

    def test_changing(self) -> None:
        event = self.fresh()
        event.event = {"type": "other"}
        assert event.event == {"type": "other"}
        assert json.loads(encode(event))["event"]["type"] == "other"

    def test_replacing(self) -> None:
        assert msgspec.structs.replace(self.fresh(), uuid="v").event == self.EVENT

    @pytest.mark.parametrize("event", [b"5", b"null", b'"x"'])
    def test_an_event_that_is_no_object(self, event: bytes) -> None:
        decoded = decode(self.DATA.replace(b'{"type":"ping","x":[1]}', event))
        assert isinstance(decoded, StreamEvent)
        assert not decoded.event

    def test_an_event_with_an_invalid_byte(self) -> None:
        decoded = decode(self.DATA.replace(b"ping", b"p\xffng"))
        assert isinstance(decoded, StreamEvent)
        assert decoded.event == {"type": "p\ufffdng", "x": [1]}

    def test_a_text_with_an_invalid_byte(self) -> None:
        decoded = decode(self.DATA.replace(b'"x":[1]', b'"delta":{"text":"a\xff"}'))
        assert isinstance(decoded, StreamEvent)
        assert decoded.text == "a\ufffd"


# System messages.


@pytest.mark.requirement("A3")
@every_case("subtype", SYSTEM_SUBTYPES)
def test_every_subtype_is_a_system_message_with_subtype_and_data(subtype: str) -> None:
    data = {"type": "system", "subtype": subtype, "extra": 1}
    message = decode(line(**data))
    assert type(message) is SYSTEM_SUBTYPES[subtype]
    assert isinstance(message, SystemMessage)
    assert (message.type, message.subtype, message.data) == ("system", subtype, data)
    match message:
        case SystemMessage(name, {"extra": extra}):
            assert (name, extra) == (subtype, 1)
        case _:
            pytest.fail("did not match")


def test_an_init_message() -> None:
    message = decode(
        line(
            type="system",
            subtype="init",
            session_id="s",
            cwd="/",
            model="m",
            tools=["Bash"],
            mcp_servers=[{"name": "x", "status": "connected", "new": 1}],
            permissionMode="plan",
            slash_commands=[],
            claude_code_version="2.1.325",
            apiKeySource="none",
        )
    )
    assert isinstance(message, InitMessage)
    assert (message.permission_mode, message.api_key_source) == ("plan", "none")
    assert message.mcp_servers == [{"name": "x", "status": "connected", "new": 1}]


def test_a_hook_message_of_an_older_program_is_named() -> None:
    message = decode(line(type="system", subtype="hook_started", hook_name="Stop"))
    assert isinstance(message, HookStartedMessage)
    assert message.hook_event_name == "Stop"


@pytest.mark.parametrize(
    "patch, expected, status",
    [({"status": "completed"}, {"status": "completed"}, "completed"), ("junk", {}, None), (None, {}, None)],
)
def test_the_status_of_a_task_is_taken_from_its_patch(patch: Any, expected: Any, status: str | None) -> None:
    message = decode(line(type="system", subtype="task_updated", task_id="t", patch=patch))
    assert isinstance(message, TaskUpdatedMessage)
    assert (message.patch, message.status) == (expected, status)


def test_a_rate_limit_event_keeps_its_object() -> None:
    info = {"status": "allowed", "resetsAt": 5, "rateLimitType": "five_hour", "new": 1}
    message = decode(line(type="rate_limit_event", rate_limit_info=info, uuid="u"))
    assert isinstance(message, RateLimitEvent)
    assert (message.rate_limit_info.resets_at, message.rate_limit_info.raw) == (5, info)
    assert json.loads(encode(message))["rate_limit_info"] == info
    del message.wire_line
    assert json.loads(encode(message))["rate_limit_info"] == info


@pytest.mark.parametrize("more", [{}, {"session_id": 5}])
@pytest.mark.parametrize("info", [{}, {"status": "rejected", "resetsAt": "soon"}])
def test_a_damaged_rate_limit_event_is_one_nevertheless(info: Any, more: Any) -> None:
    data = {"type": "rate_limit_event", "rate_limit_info": info, "uuid": "u", **more}
    message = decode(line(**data))
    assert isinstance(message, RateLimitEvent)
    assert (message.uuid, message.rate_limit_info.raw, message.raw) == ("u", info, data)
    assert message.rate_limit_info.status == info.get("status", "")
    assert message.rate_limit_info.resets_at is None


# Unknown, and damaged.


@pytest.mark.parametrize(
    "data, expected",
    [
        ({"type": "brand_new", "x": 1}, UnknownMessage("brand_new", {"type": "brand_new", "x": 1})),
        ({"x": 1}, UnknownMessage("", {"x": 1})),
        ({"type": 5}, UnknownMessage("", {"type": 5})),
        ({"type": "system"}, UnknownMessage("system", {"type": "system"})),
        (
            {"type": "assistant", "message": "oops"},
            UnknownMessage("assistant", {"type": "assistant", "message": "oops"}),
        ),
        ({"type": "user"}, UnknownMessage("user", {"type": "user"})),
        (
            {"type": "system", "subtype": "brand_new"},
            UnknownSystemMessage("brand_new", {"type": "system", "subtype": "brand_new"}),
        ),
    ],
)
def test_what_is_unknown_is_kept(data: Any, expected: Frame) -> None:
    message = decode(line(**data))
    assert message == expected
    assert message.raw == data
    assert json.loads(encode(message)) == data
    with pytest.raises(MessageInvalid) as refused:
        decode(line(**data), strict=True)
    assert refused.value.data == data


@every_case(
    "data, expected",
    [
        ({"type": "assistant", "message": {}}, AssistantMessage([], "")),
        ({"type": "assistant", "message": {"content": "text"}}, AssistantMessage([TextBlock("text")], "")),
        (
            {"type": "assistant", "message": {"content": 5, "model": "m"}},
            AssistantMessage([UnknownBlock("", 5)], "m"),
        ),
        ({"type": "assistant", "message": {"content": [], "model": 5}, "uuid": 7}, AssistantMessage([], "")),
        ({"type": "user", "message": {}}, UserMessage([])),
        ({"type": "result"}, ResultMessage("", 0, 0, True, 0, "")),
        (
            {
                "type": "result",
                "subtype": "success",
                "duration_ms": 12.0,
                "num_turns": "x",
                "errors": ["a", 5],
            },
            ResultMessage("success", 12, 0, True, 0, "", errors=["a"]),
        ),
        ({"type": "stream_event"}, StreamEvent("", "", cast("Any", {}))),
    ],
)
def test_a_known_type_with_a_missing_or_mistyped_field_is_delivered(data: Any, expected: Frame) -> None:
    message = decode(line(**data))
    assert message == expected
    assert message.raw == data


RESULT: dict[str, Any] = {
    "type": "result",
    "subtype": "success",
    "duration_ms": 1,
    "duration_api_ms": 1,
    "is_error": False,
    "num_turns": 1,
    "session_id": "s",
}
EVENT: dict[str, Any] = {"type": "stream_event", "uuid": "u", "session_id": "s", "event": {"type": "ping"}}


@pytest.mark.parametrize("data", [RESULT, EVENT], ids=["result", "stream event"])
def test_strict_decoding_takes_what_fits(data: Any) -> None:
    assert frame_from_wire(data, strict=True) == decode(line(**data), strict=True) == decode(line(**data))


@pytest.mark.requirement("A2")
@every_case(
    "data",
    [
        {"type": "result"},
        {"type": "assistant", "message": {"content": [], "model": 5}},
        {"type": "assistant", "message": {"content": "text", "model": "m"}},
        {"type": "assistant", "message": {"content": [{"type": "brand_new"}], "model": "m"}},
        {"type": "system", "subtype": "session_state_changed"},
        {"type": "rate_limit_event"},
        {**RESULT, "is_error": "no"},
        {**RESULT, "num_turns": "1"},
        {key: value for key, value in RESULT.items() if key != "is_error"},
    ],
)
def test_strict_decoding_refuses_what_does_not_fit(data: Any) -> None:
    with pytest.raises(MessageInvalid):
        decode(line(**data), strict=True)


# Before 3.12, functions of Python's own that call themselves came to an end long before the JSON parser did.
DEEP = 700 if sys.version_info < (3, 12) else 200_000


@pytest.mark.requirement("A1")
@every_case(
    "text",
    [
        *(b"", b"null", b"true", b"1.5", b"1", b'"x"', b"[]", b"{", b"oops", b"\xff"),
        pytest.param(b'{"type":"keep_alive","x":' + b"[" * 9999 + b"]" * 9999 + b"}", id="deep"),
        pytest.param(b'{"x":"\\ud800","y":' + b"[" * DEEP + b"]" * DEEP + b"}", id="deep, to be mended"),
    ],
)
def test_what_is_not_an_object_is_malformed(text: bytes) -> None:
    with pytest.raises(MalformedFrame) as refused:
        decode(text)
    assert refused.value.line == text
    assert isinstance(refused.value.__cause__, ValueError)


@pytest.mark.parametrize(
    "before", [b"", b" ", b"\x00", b"\xef\xbb\xbf", b" \xef\xbb\xbf", b"\xef\xbb\xbf\x00 "]
)
def test_what_means_nothing_around_a_frame_is_passed_over(before: bytes) -> None:
    frame = decode(before + line(type="keep_alive") + b"\x00\r\n")
    assert frame == decode(line(type="keep_alive"))
    assert frame.raw_json == line(type="keep_alive")


def test_text_and_views_can_be_decoded() -> None:
    data = line(type="keep_alive")
    assert decode(data) == decode(data.decode()) == decode(memoryview(data)) == decode(bytearray(data))


# The frame as sent.


@pytest.mark.requirement("D4")
def test_raw_is_the_frame_as_sent_and_never_shared() -> None:
    data = b'{"type": "keep_alive",   "startup_mark":"x", "new":[1]}'
    frame = decode(b"  " + data + b"\r\n")
    assert frame.raw_json == data
    assert frame.raw == {"type": "keep_alive", "startup_mark": "x", "new": [1]}
    frame.raw["new"] = 2
    assert frame.raw["new"] == [1]


@pytest.mark.requirement("D4")
def test_raw_of_a_frame_made_by_hand_is_its_wire_form() -> None:
    message = AssistantMessage([TextBlock("hi")], "m", session_id="s")
    assert message.raw == {
        "type": "assistant",
        "message": {
            "role": "assistant",
            "type": "message",
            "content": [{"type": "text", "text": "hi"}],
            "model": "m",
        },
        "session_id": "s",
    }


@pytest.mark.parametrize(
    "name", ["02-partial-text-and-tool", "05-hooks-all-events", "11-subagent-background"]
)
def test_frames_survive_copy_and_pickle_with_their_line(name: str) -> None:
    for data in tapes.frames(name, "cli->host"):
        frame = decode(line(**data))
        for twin in (copy.copy(frame), copy.deepcopy(frame), pickle.loads(pickle.dumps(frame))):
            assert twin == frame
            assert type(twin) is type(frame)
            assert twin.raw_json == frame.raw_json
    made = UserMessage("x")
    assert copy.copy(made) == pickle.loads(pickle.dumps(made)) == made


def test_the_line_takes_no_part_in_comparing_and_printing() -> None:
    decoded = decode(line(type="user", message={"role": "user", "content": "x"}, new=1))
    assert decoded == UserMessage("x")
    assert repr(decoded) == "UserMessage(content='x')"


def test_values_are_made_by_position_and_by_keyword() -> None:
    assert TextBlock("a") == TextBlock(text="a")
    assert ToolUseBlock("t", "n", {}) == ToolUseBlock(id="t", name="n", input={})
    match TextBlock("a"):
        case TextBlock(text):
            assert text == "a"


# The two paths.

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
SEEDS = [
    frame
    for name in [
        "02-partial-text-and-tool",
        "05-hooks-all-events",
        "11-subagent-background",
        "10-multi-turn-queueing",
    ]
    for frame in tapes.frames(name, "cli->host")
]


@st.composite
def mutated(draw: st.DrawFn) -> dict[str, Any]:
    """A real frame in which some values were replaced, dropped or added."""
    frame: dict[str, Any] = copy.deepcopy(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(0, 3))):
        place: Any = frame
        for _ in range(draw(st.integers(0, 3))):
            inner = [
                value
                for value in (place.values() if isinstance(place, dict) else place)
                if isinstance(value, dict | list) and value
            ]
            if not inner:
                break
            place = draw(st.sampled_from(inner))
        key = (
            draw(st.sampled_from(sorted(place)))
            if isinstance(place, dict)
            else draw(st.integers(0, len(place) - 1))
        )
        match draw(st.sampled_from(["replace", "drop", "add", "retype"])):
            case "drop":
                del place[key]
            case "add" if isinstance(place, dict):
                place[draw(st.text(max_size=5))] = draw(JSON)
            case "retype":
                frame["type"] = draw(st.sampled_from(sorted(FRAME_TYPES)))
            case _:
                place[key] = draw(JSON)
        if not frame:
            break
    return frame


@given(frame=mutated())
def test_any_frame_is_delivered_and_keeps_what_it_said(frame: dict[str, Any]) -> None:
    data = json.dumps(frame).encode()
    decoded = decode_frame(data)
    assert decoded.raw == frame
    assert json.loads(encode(decoded)) == frame
    assert repr(decoded)


@given(frame=mutated())
def test_both_paths_agree_on_all_that_the_fast_one_takes(frame: dict[str, Any]) -> None:
    data = json.dumps(frame).encode()
    known = known_frames([b'{"type":"keep_alive"}', data, data])
    if known is None:
        with pytest.raises(ValueError):
            fast_decoder()(data)
        return
    decoded = decode_tolerantly(data)
    assert decode_frame(data) == decoded
    assert known == [KeepAlive(), decoded, decoded]


def pretty(frame: Any) -> list[tuple[str, object]]:
    """As `rich` shows it."""
    return list(frame.__rich_repr__())


@every_case("usage", [b'{"input_tokens":1}', b"null", b"5", b'"\\ud800"', b'{"a":"\xff"}', b"[]"])
@every_case("meta", [b'[{"id":"a"},5]', b"null", b"{}", b"[]"])
def test_what_is_left_undecoded_is_decoded_as_ever(usage: bytes, meta: bytes) -> None:
    answer = b'{"id":"m","type":"message","role":"assistant","model":"x","content":[],"usage":%b}' % usage
    lines = [
        b'{"type":"assistant","message":%b,"uuid":"u"}' % answer,
        b'{"type":"user","message":{"role":"user","content":"hi"},"tool_use_result":%b,'
        b'"tool_result_meta":%b}' % (usage, meta),
    ]
    tolerant, sent = [decode_tolerantly(line) for line in lines], b"".join(line + b"\n" for line in lines)
    assert [copy.copy(frame) for frame in Framer().feed(sent)] == tolerant
    assert copy.deepcopy(Framer().feed(sent)) == tolerant
    assert pickle.loads(pickle.dumps(Framer().feed(sent))) == tolerant
    # Each of a new one: whatever looks at it decodes it.
    for show in (repr, pretty):
        assert [show(frame) for frame in Framer().feed(sent)] == [show(frame) for frame in tolerant]
    for frame, other in zip(Framer().feed(sent), tolerant, strict=True):
        assert vars(frame) == vars(other)
        assert to_wire(frame) == to_wire(other)


def test_a_field_that_is_undecoded_can_be_set() -> None:
    line = b'{"type":"user","message":{"role":"user","content":"hi"},"tool_use_result":{"a":1}}'
    frame = Framer().feed(line + b"\n")[0]
    assert isinstance(frame, UserMessage)
    frame.tool_use_result = {"b": 2}
    assert frame.tool_use_result == {"b": 2}
    assert json.loads(encode(frame))["tool_use_result"] == {"b": 2}


@every_case("name", tapes.NAMES)
def test_the_fast_path_takes_all_that_the_real_program_writes(name: str) -> None:
    known = [
        record.frame
        for run in tapes.runs(name)
        for record in run
        if record.direction == "cli->host" and isinstance(record.frame, dict)
    ]
    for frame in known:
        assert type(fast_decoder()(line(**frame))) in {*FLAT.values(), *_FINISH}


def test_a_frame_from_an_object_keeps_what_no_field_names() -> None:
    data = {"type": "keep_alive", "new": {"x": 1}}
    assert frame_from_wire(data).raw == data


def test_a_block_is_decoded_with_patience_unless_told_otherwise() -> None:
    assert decode_block({"type": "brand_new"}) == UnknownBlock("brand_new", {"type": "brand_new"})
    assert decode_block(None) == UnknownBlock("", None)


@given(
    data=st.dictionaries(st.text(max_size=8), JSON, max_size=5),
    kind=st.sampled_from([None, *sorted(FRAME_TYPES)]),
)
def test_any_object_is_a_frame(data: dict[str, Any], kind: str | None) -> None:
    frame = {**data, "type": kind} if kind else data
    assert frame_from_wire(frame) == decode(json.dumps(frame))


@given(data=st.binary(max_size=200))
def test_random_bytes_raise_nothing_but_the_documented_error(data: bytes) -> None:
    try:
        decoded = decode(data)
    except MalformedFrame:
        return
    assert isinstance(decoded, Frame)


def test_a_control_response_may_hold_anything() -> None:
    frame = decode(
        line(type="control_response", response={"subtype": "success", "request_id": 5, "response": "text"})
    )
    assert isinstance(frame, ControlResponse)
    assert (frame.response.request_id, frame.response.response) == (5, "text")
