"""JSON-RPC messages, as MCP servers in the host get and give them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, assert_type

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.wire.control._asks import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    JsonRpcError,
    JsonRpcInvalid,
    JsonRpcMessage,
    JsonRpcNotification,
    JsonRpcRequest,
    JsonRpcSuccess,
    jsonrpc_from_wire,
)
from tests.cases import every_case

DATA = Path(__file__).parents[1] / "data"


def lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / name).read_text(encoding="utf-8").splitlines()]


RECORDED = [ask["message"] for ask in lines("asks.jsonl") if ask["subtype"] == "mcp_message"] + [
    answer["response"]["mcp_response"]
    for answer in lines("ask_answers.jsonl")
    if answer["to"] == "mcp_message"
]


@every_case("data", RECORDED)
def test_recorded_messages_come_back_as_they_were(data: dict[str, Any]) -> None:
    message = jsonrpc_from_wire(data)
    assert not isinstance(message, JsonRpcInvalid)
    wire = message.to_wire()
    if "id" not in data and isinstance(message, JsonRpcSuccess):
        del wire["id"]  # what the reference SDK answers notifications with
    assert wire == data


def test_every_kind_is_recorded() -> None:
    kinds = {type(jsonrpc_from_wire(data)) for data in RECORDED}
    assert kinds == {JsonRpcRequest, JsonRpcNotification, JsonRpcSuccess, JsonRpcError}


@every_case(
    "data, expected",
    [
        ({"method": "ping", "id": 0}, JsonRpcRequest("ping", 0)),
        ({"method": "ping", "id": ""}, JsonRpcRequest("ping", "")),
        ({"method": "ping", "id": 1.5, "params": [1]}, JsonRpcRequest("ping", 1.5, [1])),
        ({"method": "ping", "id": 1, "params": "bad"}, JsonRpcRequest("ping", 1, "bad")),
        ({"method": "n", "params": {}}, JsonRpcNotification("n", {})),
        ({"method": "n", "id": None}, JsonRpcNotification("n")),
        ({"method": "n", "id": True}, JsonRpcNotification("n")),
        ({"method": "n", "id": {}, "result": 1}, JsonRpcNotification("n")),
        ({"id": 1, "result": None}, JsonRpcSuccess(1, None)),
        ({"id": 1, "result": {}, "error": None}, JsonRpcSuccess(1, {})),
        ({"result": 5}, JsonRpcSuccess(None, 5)),
        (
            {"id": 1, "result": {}, "error": {"code": -32601, "message": "no", "data": [1]}},
            JsonRpcError(1, METHOD_NOT_FOUND, "no", [1]),
        ),
        ({"id": None, "error": {"code": -32700.0}}, JsonRpcError(None, PARSE_ERROR, "")),
        ({"id": 1, "error": {"code": "bad", "message": 5}}, JsonRpcError(1, INTERNAL_ERROR, "")),
        ({"id": 1, "error": "it broke"}, JsonRpcError(1, INTERNAL_ERROR, "", "it broke")),
        ({"id": 1}, JsonRpcInvalid({"id": 1})),
        ({"method": 5}, JsonRpcInvalid({"method": 5})),
        ({"error": None}, JsonRpcInvalid({"error": None})),
        ({}, JsonRpcInvalid({})),
    ],
    ids=str,
)
def test_reading(data: dict[str, Any], expected: JsonRpcMessage) -> None:
    assert jsonrpc_from_wire(data) == expected


@pytest.mark.parametrize(
    "message, wire",
    [
        (JsonRpcRequest("ping", 0), {"jsonrpc": "2.0", "id": 0, "method": "ping"}),
        (JsonRpcRequest("m", "a", {}), {"jsonrpc": "2.0", "id": "a", "method": "m", "params": {}}),
        (JsonRpcNotification("n", {"a": 1}), {"jsonrpc": "2.0", "method": "n", "params": {"a": 1}}),
        (JsonRpcSuccess(1, None), {"jsonrpc": "2.0", "id": 1, "result": None}),
        (
            JsonRpcError(None, INVALID_REQUEST, "no"),
            {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "no"}},
        ),
        (
            JsonRpcError(1, INVALID_PARAMS, "no", {"field": "a"}),
            {"jsonrpc": "2.0", "id": 1, "error": {"code": -32602, "message": "no", "data": {"field": "a"}}},
        ),
        (JsonRpcInvalid({"x": 1}), {"x": 1}),
    ],
)
def test_writing_and_back(message: JsonRpcMessage, wire: dict[str, Any]) -> None:
    assert message.to_wire() == wire
    assert jsonrpc_from_wire(wire) == message


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
errors = st.dictionaries(st.sampled_from(["code", "message", "data"]), json_values)


@given(
    st.dictionaries(
        st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error"]), json_values | errors
    )
)
def test_garbage_never_raises(data: dict[str, Any]) -> None:
    message = jsonrpc_from_wire(data)
    assert isinstance(message.to_wire(), dict)


def test_types() -> None:
    message = jsonrpc_from_wire({})
    assert_type(message, JsonRpcMessage)
    if isinstance(message, JsonRpcRequest):
        assert_type(message.id, str | int | float)
