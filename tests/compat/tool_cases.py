"""Tools that people define, and calls of them: run with the reference SDK and with the drop-in.

    python tests/compat/tool_cases.py > tests/compat/reference/tools.json

prints what the reference lists and answers, in its environment.
"""

import asyncio
import importlib
import json
import warnings
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal, NotRequired, Optional, Required, TypedDict, Union

Args = dict[str, Any]
Answer = Callable[[Args], Awaitable[Any]]


class Address(TypedDict):
    street: str
    number: NotRequired[int]


class Person(TypedDict):
    name: Annotated[str, "What they are called"]
    address: Address
    tags: NotRequired[list[str]]


class Loose(TypedDict, total=False):
    query: Required[str]
    limit: int


class Plain:
    """A class that is no TypedDict."""

    field: int


SCHEMAS: dict[str, Any] = {
    "simple": {"a": int, "b": float, "c": str, "d": bool},
    "empty": {},
    "described": {"city": Annotated[str, "The city"], "days": Annotated[int, "How many"]},
    "lists": {"words": list[str], "bare": list, "nested": list[list[int]]},
    "dicts": {"options": dict, "typed": dict[str, int]},
    "optional": {"a": Optional[int], "b": str | None, "c": Union[int, str], "d": int | str | None},  # noqa: UP007, UP045
    "odd": {"any": Any, "what": object, "kind": Literal["x", "y"], "raw": bytes, "pair": tuple[int, str]},
    "inner": {"person": Person, "people": list[Address]},
    "typed": Person,
    "loose": Loose,
    "class": Plain,
    "builtin": str,
    "json": {
        "type": "object",
        "properties": {"n": {"type": "integer", "minimum": 1, "maximum": 9}, "s": {"type": "string"}},
        "required": ["n"],
    },
    "closed": {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "additionalProperties": False,
    },
    "rich": {
        "type": "object",
        "properties": {
            "color": {"enum": ["red", "green"]},
            "size": {"const": 3},
            "name": {"type": "string", "minLength": 2, "maxLength": 4, "pattern": "^[a-z]+$"},
            "many": {"type": "array", "items": {"type": "number"}, "minItems": 1, "maxItems": 2},
            "either": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "kind": {"type": ["string", "integer"]},
        },
    },
    "params named type": {"type": str, "properties": str},
    "type only": {"type": "object"},
}

GOOD: dict[str, list[Args]] = {
    "simple": [{"a": 1, "b": 1.5, "c": "x", "d": True}, {"a": 1, "b": 2, "c": "x", "d": False, "more": 1}],
    "empty": [{}, {"x": 1}],
    "lists": [{"words": ["a"], "bare": [1, "x"], "nested": [[1], []]}],
    "optional": [{"a": 1, "b": "x", "c": 1, "d": "x"}],
    "typed": [{"name": "n", "address": {"street": "s"}}],
    "loose": [{"query": "q"}, {"query": "q", "limit": 3}],
    "json": [{"n": 5}, {"n": 5, "s": "x", "z": None}],
    "rich": [{"color": "red", "size": 3, "name": "abc", "many": [1.5], "either": None, "kind": 1}, {}],
}

BAD: dict[str, list[Args]] = {
    "simple": [
        {},
        {"a": 1, "b": 1.0, "c": "x"},
        {"a": "1", "b": 1.0, "c": "x", "d": True},
        {"a": True, "b": 1.0, "c": "x", "d": True},
        {"a": 1.5, "b": 1.0, "c": "x", "d": True},
        {"a": 1, "b": 1.0, "c": None, "d": True},
    ],
    "lists": [{"words": "a", "bare": [], "nested": []}, {"words": [1], "bare": [], "nested": []}],
    "optional": [{"a": None, "b": "x", "c": 1, "d": 1}, {"a": 1, "b": "x", "c": [], "d": 1}],
    "typed": [
        {"name": "n"},
        {"name": "n", "address": {"number": 1}},
        {"name": 1, "address": {"street": "s"}},
    ],
    "loose": [{"limit": 3}, {"query": "q", "limit": "3"}],
    "json": [{"n": 0}, {"n": 10}, {"s": "x"}, {"n": "5"}],
    "closed": [{"m": 1}, {"m": 1, "k": 2}],
    "rich": [
        {"color": "blue"},
        {"size": 4},
        {"name": "a"},
        {"name": "abcde"},
        {"name": "ABC"},
        {"many": []},
        {"many": [1, 2, 3]},
        {"many": ["x"]},
        {"either": 1},
        {"kind": 1.5},
    ],
}

PIXEL = "iVBORw0KGgo="


class Refused(Exception):
    """An error of the tool's own."""


RESULTS: dict[str, Any] = {
    "text": {"content": [{"type": "text", "text": "hello"}]},
    "no content": {},
    "empty content": {"content": []},
    "error": {"content": [{"type": "text", "text": "no"}], "is_error": True},
    "error in camel case": {"content": [{"type": "text", "text": "no"}], "isError": True},
    "no error": {"content": [{"type": "text", "text": "yes"}], "is_error": False},
    "image": {"content": [{"type": "image", "data": PIXEL, "mimeType": "image/png"}]},
    "several": {
        "content": [
            {"type": "text", "text": "a"},
            {"type": "image", "data": PIXEL, "mimeType": "image/png"},
            {"type": "text", "text": "b"},
        ]
    },
    "link": {"content": [{"type": "resource_link", "name": "n", "uri": "file:///x", "description": "d"}]},
    "link with little": {"content": [{"type": "resource_link", "uri": "file:///x"}]},
    "link with nothing": {"content": [{"type": "resource_link"}]},
    "resource": {"content": [{"type": "resource", "resource": {"uri": "file:///x", "text": "inside"}}]},
    "binary resource": {"content": [{"type": "resource", "resource": {"uri": "file:///x", "blob": "AA=="}}]},
    "audio": {"content": [{"type": "audio", "data": "AA==", "mimeType": "audio/wav"}]},
    "unknown": {"content": [{"type": "hologram", "x": 1}, {"type": "text", "text": "left"}]},
    "no type": {"content": [{"text": "x"}]},
    "structured": {"content": [{"type": "text", "text": "x"}], "structuredContent": {"a": 1}},
    "meta": {"content": [{"type": "text", "text": "x"}], "_meta": {"a": 1}},
    "text with more": {"content": [{"type": "text", "text": "x", "annotations": {"priority": 1}}]},
    "data": {"temperature": 5},
    "a text": "just text",
    "none": None,
    "a list": [{"type": "text", "text": "x"}],
    "content is a text": {"content": "x"},
    "number in text": {"content": [{"type": "text", "text": 5}]},
    "text without text": {"content": [{"type": "text"}]},
    "image without type": {"content": [{"type": "image", "data": PIXEL}]},
}

ERRORS: dict[str, Exception] = {
    "value": ValueError("bad value"),
    "own": Refused("refused"),
    "empty": RuntimeError(),
    "key": KeyError("k"),
    "stop": StopAsyncIteration(),
}

HINTS: dict[str, dict[str, Any]] = {
    "camel": {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False},
    "snake": {"read_only_hint": True, "destructive_hint": False, "idempotent_hint": True},
    "both": {"readOnlyHint": True, "read_only_hint": False},
    "title": {"title": "A title"},
    "size": {"maxResultSizeChars": 500},
    "snake size": {"max_result_size_chars": 500, "open_world_hint": True},
    "more": {"readOnlyHint": False, "futureHint": "x"},
    "nothing": {},
}


def definitions(sdk: Any) -> list[Any]:
    """All tools, as the names of a package make them."""
    tools: list[Any] = []

    async def echo(args: Args) -> Args:
        return {"content": [{"type": "text", "text": json.dumps(args, sort_keys=True)}]}

    for name, schema in SCHEMAS.items():
        tools.append(sdk.tool(f"schema {name}", f"Takes {name}", schema)(echo))
    for name, result in RESULTS.items():
        tools.append(sdk.tool(f"result {name}", "", {})(_giving(result)))
    for name, error in ERRORS.items():
        tools.append(sdk.tool(f"error {name}", "", {})(_raising(error)))
    for name, hints in HINTS.items():
        made = sdk.ToolAnnotations(**hints)
        tools.append(sdk.tool(f"hints {name}", "", {}, annotations=made)(echo))
    tools.append(sdk.SdkMcpTool("made by hand", "d", {"a": int}, echo))
    return tools


def _giving(result: Any) -> Answer:
    async def give(args: Args) -> Any:
        return result

    return give


def _raising(error: Exception) -> Answer:
    async def fail(args: Args) -> Any:
        raise error

    return fail


def messages() -> dict[str, Args]:
    """What the agent says to the server, by a name for each."""
    start = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    found: dict[str, Args] = {
        "initialize": _request(0, "initialize", start),
        "initialized": {"jsonrpc": "2.0", "method": "notifications/initialized"},
        "list": _request(1, "tools/list", {}),
        "unknown tool": _call(2, "nowhere", {}),
        "no arguments": {**_request(3, "tools/call", {"name": "schema empty"})},
        "made by hand": _call(4, "made by hand", {"a": 1}),
    }
    for kind, table in (("good", GOOD), ("bad", BAD)):
        for name, given in table.items():
            for number, arguments in enumerate(given):
                found[f"{kind} {name} {number}"] = _call(len(found), f"schema {name}", arguments)
    for name in RESULTS:
        found[f"result {name}"] = _call(len(found), f"result {name}", {})
    for name in ERRORS:
        found[f"error {name}"] = _call(len(found), f"error {name}", {})
    return found


def _call(id: int, name: str, arguments: Args) -> Args:
    return _request(id, "tools/call", {"name": name, "arguments": arguments})


def _request(id: int, method: str, params: Args) -> Args:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


async def _reference() -> dict[str, Any]:
    sdk = importlib.import_module("claude_agent_sdk")
    bridge: Any = importlib.import_module("claude_agent_sdk._internal.sdk_mcp_bridge")
    server = sdk.create_sdk_mcp_server("cases", "2.0.0", definitions(sdk))
    link = bridge.SdkMcpBridge("cases", server["instance"])
    answers = {name: await link.handle(message) for name, message in messages().items()}
    await link.aclose()
    return {"config": {"type": server["type"], "name": server["name"]}, "answers": answers}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps(asyncio.run(_reference()), indent=1))
