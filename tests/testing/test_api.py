"""The scripted Messages API, byte by byte."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from http.client import BadStatusLine, HTTPException, IncompleteRead
from typing import Any

import pytest

from outrider.errors import OptionsError, UsageError
from outrider.testing import (
    Gate,
    MessagesApi,
    Request,
    Step,
    answer,
    drop,
    expect,
    fail,
    hang,
    refuse,
    say,
    think,
    use_tool,
    when,
)
from tests.cases import every_case
from tests.testing.client import DEADLINE, ask, connected, deltas, events, next_event, post, stream

SUBAGENT = {"X-Claude-Code-Agent-Id": "a1"}


# What each step answers.


def test_a_text_is_a_whole_message_if_no_stream_was_asked_for() -> None:
    with MessagesApi([say("hel", "lo", usage={"input_tokens": 7})]) as api:
        status, body = ask(api)
    assert status == 200
    assert body["content"] == [{"type": "text", "text": "hello"}]
    assert (body["model"], body["stop_reason"]) == ("some-model", "end_turn")
    assert (body["usage"]["input_tokens"], body["usage"]["output_tokens"]) == (7, 5)


def test_a_text_is_streamed_in_its_pieces() -> None:
    with MessagesApi([say("hel", "lo", model="m", usage={"output_tokens": 9})]) as api:
        streamed = stream(api)
    assert [event["type"] for event in streamed] == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    message = streamed[0]["message"]
    assert (message["model"], message["content"], message["usage"]["output_tokens"]) == ("m", [], 1)
    assert [delta["text"] for delta in deltas(streamed)] == ["hel", "lo"]
    assert streamed[-2]["delta"]["stop_reason"] == "end_turn"
    assert streamed[-2]["usage"]["output_tokens"] == 9


def test_a_message_of_many_blocks_is_the_same_in_both_forms() -> None:
    step = answer(think("h", "m"), say("text"), use_tool("A", x=1), use_tool("B", tool_use_id="mine"))
    with MessagesApi([step, step]) as api:
        _, body = ask(api)
        streamed = stream(api)
    thinking, text, first, second = body["content"]
    assert thinking == {"type": "thinking", "thinking": "hm", "signature": "c2lnbmF0dXJl"}
    assert text == {"type": "text", "text": "text"}
    assert (first["name"], first["input"]) == ("A", {"x": 1})
    assert second == {"type": "tool_use", "id": "mine", "name": "B", "input": {}}
    assert body["stop_reason"] == "tool_use"
    starts = [event for event in streamed if event["type"] == "content_block_start"]
    assert [start["index"] for start in starts] == [0, 1, 2, 3]
    assert starts[0]["content_block"] == {"type": "thinking", "thinking": "", "signature": ""}
    assert starts[2]["content_block"]["input"] == {}
    assert deltas(streamed) == [
        {"type": "thinking_delta", "thinking": "h"},
        {"type": "thinking_delta", "thinking": "m"},
        {"type": "signature_delta", "signature": "c2lnbmF0dXJl"},
        {"type": "text_delta", "text": "text"},
        {"type": "input_json_delta", "partial_json": '{"x": 1}'},
        {"type": "input_json_delta", "partial_json": "{}"},
    ]


def test_the_input_of_a_tool_is_streamed_in_chunks() -> None:
    gate = Gate(after=4)
    step = answer(say("ab"), use_tool("A", x=1), chunks=3, gate=gate)
    with MessagesApi([step]) as api, connected(api) as connection:
        post(connection, stream=True)
        response = connection.getresponse()
        gate.wait_reached(DEADLINE)
        gate.open()
        pieces = [str(delta.get("text", delta.get("partial_json"))) for delta in deltas(events(response))]
    # The text is too short for three.
    assert pieces == ["a", "b", '{"x', '": ', "1}"]


def test_no_id_is_made_up_twice() -> None:
    """Not by another API either: it may go on with the same session."""
    step, ids = answer(use_tool("A"), use_tool("A")), list[str]()
    for _ in range(2):
        with MessagesApi([step, step]) as api:
            for _, body in (ask(api), ask(api)):
                ids += [body["id"], *(block["id"] for block in body["content"])]
    assert len(set(ids)) == 12


def test_a_refusal_says_why() -> None:
    with MessagesApi([refuse("so far"), refuse()]) as api:
        streamed = stream(api)
        _, body = ask(api)
    assert streamed[-2]["delta"]["stop_reason"] == "refusal"
    assert streamed[-2]["delta"]["stop_details"]["category"] == "cyber"
    assert (body["stop_reason"], body["content"]) == ("refusal", [])


def test_an_error_has_its_status_headers_and_body() -> None:
    with MessagesApi([fail(429, retry_after=3)]) as api, connected(api) as connection:
        post(connection, stream=True)
        response = connection.getresponse()
        assert response.status == 429
        assert response.headers["retry-after"] == "3"
        assert response.headers["anthropic-ratelimit-requests-remaining"] == "0"
        body = json.loads(response.read())
    assert body["type"] == "error"
    assert body["error"]["type"] == "rate_limit_error"
    assert body["request_id"] == response.headers["request-id"]


def test_an_error_may_come_in_the_middle_of_a_stream() -> None:
    with MessagesApi([fail(529, after="half a")]) as api:
        streamed = stream(api)
    assert deltas(streamed) == [{"type": "text_delta", "text": "half a"}]
    assert streamed[-1]["error"]["type"] == "overloaded_error"
    assert "message_stop" not in [event["type"] for event in streamed]


def test_a_connection_is_cut_before_any_answer() -> None:
    with MessagesApi([drop(), say("next")]) as api:
        with pytest.raises((ConnectionError, BadStatusLine)):
            ask(api)
        assert ask(api)[0] == 200


def test_a_connection_is_cut_in_the_middle_of_a_text() -> None:
    with MessagesApi([drop(after="half a")]) as api, connected(api) as connection:
        post(connection, stream=True)
        response = connection.getresponse()
        seen = [next_event(response) for _ in range(3)]
        assert seen[-1]["delta"]["text"] == "half a"
        with pytest.raises((ConnectionError, IncompleteRead)):
            response.read()


def test_headers_may_be_added_to_an_answer() -> None:
    with MessagesApi([say("x", headers={"x-mine": "1"})]) as api, connected(api) as connection:
        post(connection)
        response = connection.getresponse()
        response.read()
    assert response.headers["x-mine"] == "1"


# What waits.


def test_a_gate_holds_a_stream_in_the_middle() -> None:
    gate = Gate()
    with MessagesApi([say("one two three", gate=gate)]) as api, connected(api) as connection:
        post(connection, stream=True)
        response = connection.getresponse()
        seen = [next_event(response) for _ in range(3)]
        assert seen[-1]["delta"]["text"] == "one "
        gate.wait_reached(DEADLINE)
        assert "reached" in repr(gate)
        gate.open()
        assert [delta["text"] for delta in deltas(events(response))] == ["two ", "three"]


def test_a_gate_may_hold_back_all_of_an_answer() -> None:
    gate = Gate(after=0)
    with (
        MessagesApi([say("x", gate=gate)]) as api,
        connected(api) as connection,
        ThreadPoolExecutor(1) as pool,
    ):
        post(connection, stream=True)
        response = pool.submit(connection.getresponse)
        gate.wait_reached(DEADLINE)
        assert not response.done()
        gate.open()
        assert deltas(events(response.result(DEADLINE)))[0]["text"] == "x"


@pytest.mark.parametrize("step", [say("x", gate=Gate(after=9)), answer(use_tool("A"), gate=Gate(after=9))])
def test_a_gate_that_an_answer_is_too_short_for_holds_its_end(step: Any) -> None:
    with MessagesApi([step]) as api, connected(api) as connection:
        post(connection, stream=True)
        response = connection.getresponse()
        for _ in range(3):
            next_event(response)
        step.gate.wait_reached(DEADLINE)
        step.gate.open()
        assert events(response)[-1]["type"] == "message_stop"


def test_an_open_gate_holds_nothing() -> None:
    gate = Gate()
    gate.open()
    with MessagesApi(otherwise=say("a b", gate=gate)) as api:
        assert stream(api)
        assert ask(api)[0] == 200


def test_a_gate_that_is_not_reached_says_so() -> None:
    with pytest.raises(TimeoutError, match="No answer came"):
        Gate().wait_reached(0.0)


def test_what_hangs_is_answered_when_it_is_released() -> None:
    with MessagesApi([hang(say("at last")), hang()]) as api, ThreadPoolExecutor(2) as pool:
        first = pool.submit(ask, api)
        api.wait_for(1, DEADLINE)
        second = pool.submit(ask, api)
        api.wait_for(2, DEADLINE)
        assert not first.done()
        api.release()
        assert first.result(DEADLINE)[1]["content"][0]["text"] == "at last"
        with pytest.raises((ConnectionError, BadStatusLine)):
            second.result(DEADLINE)


@pytest.mark.parametrize(
    "step",
    [hang(), hang(say("never")), say("a b", gate=Gate()), say("x", gate=Gate(after=0)), say("x", delay=1e6)],
)
def test_closing_ends_what_waits(step: Step) -> None:
    api = MessagesApi([step])
    api.start()
    with connected(api) as connection, connected(api) as idle:
        idle.connect()
        post(connection, stream=True)
        api.wait_for(1, DEADLINE)
        api.close()
        api.close()
    assert "closed" in repr(api)


def test_a_client_that_leaves_ends_what_waits_for_it() -> None:
    gate = Gate()
    with MessagesApi([say("a b", gate=gate)]) as api:
        with connected(api) as connection:
            post(connection, stream=True)
            response = connection.getresponse()
            gate.wait_reached(DEADLINE)
            (thread,) = (each for each in threading.enumerate() if each.name.endswith("-client"))
            response.close()
        thread.join(DEADLINE)
        assert not thread.is_alive()
        assert not gate.is_open


def test_a_client_may_send_its_next_request_before_the_answer() -> None:
    gate = Gate(after=0)
    head = b"POST /v1/messages HTTP/1.1\r\ncontent-length: 2\r\n"
    with MessagesApi([say("one", gate=gate), say("two")]) as api, connected(api) as connection:
        connection.connect()
        connection.sock.sendall(head + b"\r\n{}")
        gate.wait_reached(DEADLINE)
        connection.sock.sendall(head + b"connection: close\r\n\r\n{}")
        gate.open()
        with connection.sock.makefile("rb") as reader:
            answers = reader.read()
    assert answers.count(b"HTTP/1.1 200") == 2
    assert 0 < answers.index(b'"one"') < answers.index(b'"two"')


# Who gets what.


def test_a_used_up_script_goes_on_with_the_otherwise() -> None:
    with MessagesApi([say("one")]) as api:
        texts = [ask(api)[1]["content"][0]["text"] for _ in range(3)]
        assert texts == ["one", "(end of script)", "(end of script)"]
        api.add(say("more"))
        before = len(api.remaining)
        assert ask(api)[1]["content"][0]["text"] == "more"
        assert (before, len(api.remaining)) == (1, 0)
    with MessagesApi(otherwise=fail(500)) as api:
        assert ask(api)[0] == 500


def test_a_function_chooses_a_step_by_the_request() -> None:
    def choose(request: Request) -> Step:
        return say(f"you said {request.messages[-1]['content']}")

    with MessagesApi([choose]) as api:
        assert ask(api)[1]["content"][0]["text"] == "you said hi"


def test_what_a_function_raises_comes_out_of_the_block() -> None:
    def choose(request: Request) -> Step:
        raise KeyError("mine")

    def use(more: type[Exception] | None = None) -> None:
        with MessagesApi([choose]) as api:
            status, body = ask(api)
            assert status == 418
            assert "mine" in body["error"]["message"]
            if more is not None:
                raise more

    with pytest.raises(KeyError, match="mine"):
        use()
    # The test's own failure counts more.
    with pytest.raises(ZeroDivisionError):
        use(ZeroDivisionError)


OTHER = {"role": "user", "content": "another"}
SCHEMA = {"format": {"type": "json_schema", "schema": {}}}


@every_case(
    "kind, path, more",
    [
        ("main", "/v1/messages", {}),
        ("main", "/v1/messages?beta=true", {}),
        ("main", "/v1/messages", {"output_config": SCHEMA, "tools": [{"name": "Bash"}]}),
        ("subagent", "/v1/messages", {"headers": SUBAGENT}),
        ("probe", "/v1/messages", {"max_tokens": 1}),
        ("title", "/v1/messages", {"output_config": SCHEMA}),
        ("count_tokens", "/v1/messages/count_tokens?beta=true", {}),
        ("other", "/v1/elsewhere", {}),
    ],
)
def test_requests_are_told_apart(kind: str, path: str, more: dict[str, Any]) -> None:
    with MessagesApi([say("main")], subagents=[say("sub")]) as api:
        status, body = ask(api, path, **more)
    (request,) = api.requests
    assert (request.kind, request.method, request.path) == (kind, "POST", path.partition("?")[0])
    assert status == (404 if kind == "other" else 200)
    assert len(api.remaining) == (0 if kind == "main" else 1)
    assert request.agent_id == ("a1" if kind == "subagent" else None)
    text = body["content"][0]["text"] if "content" in body else None
    expected = {"main": "main", "subagent": "sub", "probe": "ok", "title": '{"title": "A scripted session"}'}
    assert text == expected.get(kind)
    assert body.get("input_tokens") == (10 if kind == "count_tokens" else None)


def test_subagents_have_a_script_of_their_own() -> None:
    with MessagesApi([say("main")], subagents=[say("sub")]) as api:
        texts = [ask(api, headers=SUBAGENT)[1]["content"][0]["text"] for _ in range(2)]
        assert texts == ["sub", "subagent done"]
        assert ask(api)[1]["content"][0]["text"] == "main"
    assert [request.kind for request in api.main_requests] == ["main"]


def test_side_requests_may_be_answered_otherwise() -> None:
    count = say("", usage={"input_tokens": 3})
    with MessagesApi(side={"count_tokens": count, "probe": fail(404), "title": lambda _: say("t")}) as api:
        assert ask(api, "/v1/messages/count_tokens")[1] == {"input_tokens": 3}
        assert [ask(api, max_tokens=1)[0] for _ in range(2)] == [404, 404]
        assert ask(api, output_config=SCHEMA)[1]["content"][0]["text"] == "t"
    with MessagesApi(side={"count_tokens": fail(500)}) as api:
        assert ask(api, "/v1/messages/count_tokens")[0] == 500


def test_what_a_side_answer_raises_comes_out_of_the_block() -> None:
    def choose(request: Request) -> Step:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"), MessagesApi(side={"title": choose}) as api:
        assert ask(api, output_config=SCHEMA)[0] == 403


def test_steps_of_any_kind_can_be_added() -> None:
    with MessagesApi() as api:
        api.add(expect(prompt="hi"), say("added"), when("other", say("matched")))
        assert len(api.remaining) == 2
        texts = [ask(api)[1]["content"][0]["text"], ask(api, messages=[OTHER])[1]["content"][0]["text"]]
    assert texts == ["added", "matched"]


def test_without_a_script_the_tools_that_are_offered_are_called() -> None:
    with MessagesApi(None) as api:
        _, body = ask(
            api, tools=[{"name": "mcp__a__b", "input_schema": {"type": "object"}}, {"name": "Bash"}]
        )
        _, answered = ask(api)
    assert [block["name"] for block in body["content"]] == ["mcp__a__b"]
    assert answered["content"][0]["text"] == "You said: hi"


def test_a_kind_of_side_request_that_there_is_not_is_refused() -> None:
    side: Any = {"probes": say("x")}
    with pytest.raises(OptionsError, match="'probes'"):
        MessagesApi(side=side)


def test_a_look_whether_anyone_is_there_is_answered() -> None:
    with MessagesApi() as api, connected(api) as connection:
        connection.request("HEAD", "/")
        response = connection.getresponse()
        assert (response.status, response.read()) == (200, b"")
        connection.request("GET", "/x")
        assert connection.getresponse().status == 404
    assert [(request.method, request.body) for request in api.requests] == [("HEAD", {}), ("GET", {})]


# What is kept.


def test_a_request_is_kept_as_it_came() -> None:
    result = {"type": "tool_result", "tool_use_id": "t", "content": "out"}
    messages = [
        {"role": "user", "content": [result | {"content": "old"}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "A", "input": {}}]},
        {"role": "user", "content": [result, {"type": "text", "text": "note"}]},
        {"role": "system", "content": "another"},
    ]
    with MessagesApi() as api:
        ask(api, headers={"X-Api-Key": "key"}, messages=messages)
    (request,) = api.requests
    assert request.headers["x-api-key"] == "key"
    assert request.body["messages"] == request.messages == messages
    assert request.tool_results == [result]


def test_a_request_with_no_conversation_has_no_results() -> None:
    with MessagesApi() as api:
        ask(api, messages=[])
        ask(api)
    assert [request.tool_results for request in api.requests] == [[], []]


@pytest.mark.parametrize("body", [b"not json", b"[1]", b"\xff"])
def test_a_body_that_is_no_object_counts_as_empty(body: bytes) -> None:
    with MessagesApi() as api, connected(api) as connection:
        connection.request("POST", "/v1/messages", body)
        assert connection.getresponse().status == 200
    assert api.requests[0].body == {}


def test_a_connection_serves_many_requests() -> None:
    with MessagesApi([say("1"), say("2")]) as api, connected(api) as connection:
        for number in ("1", "2"):
            post(connection, stream=True)
            assert deltas(events(connection.getresponse()))[0]["text"] == number


def test_many_connections_at_once_lose_no_request() -> None:
    with MessagesApi([say(str(number)) for number in range(100)]) as api, ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: ask(api)[1]["content"][0]["text"], range(100)))
    assert sorted(answers, key=int) == [str(number) for number in range(100)]
    assert len(api.main_requests) == 100


def test_a_request_can_be_waited_for() -> None:
    with MessagesApi() as api, ThreadPoolExecutor(2) as pool:
        second = pool.submit(api.wait_for, 2, DEADLINE)
        chosen = pool.submit(api.wait_for, lambda request: request.kind == "probe", DEADLINE)
        ask(api)
        ask(api, max_tokens=1)
        ask(api, model="second")
        assert second.result(DEADLINE).body["model"] == "second"
        assert chosen.result(DEADLINE).kind == "probe"
        assert api.wait_for(1, 0.0) is api.requests[0]
        with pytest.raises(TimeoutError, match=r"main request 3 .*: main, probe, main"):
            api.wait_for(3, 0.0)
        with pytest.raises(TimeoutError, match="the request did not come"):
            api.wait_for(lambda request: False, 0.01)


# Its life.


def test_it_has_an_address_once_it_is_started() -> None:
    api = MessagesApi()
    with pytest.raises(UsageError, match="no address"):
        _ = api.url
    assert "not started" in repr(api)
    with api:
        assert api.url.startswith("http://127.0.0.1:")
        assert api.url in repr(api)
        with pytest.raises(UsageError, match="started already"):
            api.start()


def test_a_client_that_speaks_no_http_is_no_secret() -> None:
    api = MessagesApi()
    with api, connected(api) as connection:
        connection.connect()
        connection.sock.sendall(b"hello\r\n\r\n")
        assert connection.sock.recv(100) == b""
        with pytest.raises(HTTPException, match="Bad request syntax"):
            api.__exit__(None, None, None)
        api._errors.clear()


def test_a_body_of_unknown_length_is_refused() -> None:
    with MessagesApi() as api, connected(api) as connection:
        connection.putrequest("POST", "/v1/messages")
        connection.putheader("transfer-encoding", "chunked")
        # No body: it is refused before one is read, and who still writes then may find the connection closed.
        connection.endheaders()
        assert connection.getresponse().status == 411


def test_a_client_that_waits_to_be_told_is_told() -> None:
    with MessagesApi() as api, connected(api) as connection:
        connection.putrequest("POST", "/v1/messages")
        connection.putheader("expect", "100-continue")
        connection.putheader("content-length", "2")
        connection.putheader("connection", "close")
        connection.endheaders()
        assert connection.sock.recv(12) == b"HTTP/1.1 100"
        connection.sock.sendall(b"{}")
        rest = connection.sock.makefile("rb")
        with rest:
            assert b"(end of script)" in rest.read()
