"""Tools are listed and answer as the reference's do, over the same messages."""

from __future__ import annotations

import copy
import dataclasses
import json
import logging
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import anyio
import pytest

from outrider.compat import ClaudeAgentOptions, SdkMcpTool, ToolAnnotations, create_sdk_mcp_server, tool
from outrider.compat._tools import PlainAnnotations, as_result
from outrider.errors import OptionsError
from outrider.handlers import AgentLink, Endpoint, Handled, Origin, ToolHandled, ToolServer
from tests.compat import tool_cases
from tests.compat.scripts import run_reference

REFERENCE = json.loads((Path(__file__).parent / "reference" / "tools.json").read_text(encoding="utf-8"))
MESSAGES = tool_cases.messages()

T = TypeVar("T")

EXPLAINED = {
    "initialize": "tools may be added while a session runs, so the server says that its list can change",
    "result error in camel case": "`isError`, as MCP spells it, counts like `is_error`",
    "result audio": "sounds reach the agent",
    "result binary resource": "binary resources reach the agent",
    "result a text": "a text is a result",
    "result none": "so is nothing",
    "result a list": "so is a list of content",
    "result data": "and data, which the reference drops",
    "result content is a text": "the error says what is wrong",
    "result number in text": "the error says what is wrong",
    "result text without text": "the error says what is wrong",
    "result image without type": "the error says what is wrong",
    "error empty": "an exception without a text is told by its name",
    "error stop": "an exception without a text is told by its name",
}


class Wire:
    """The session's side of a server."""

    def __init__(self, server: ToolServer) -> None:
        self.handled: list[Handled] = []
        self._endpoint: Endpoint = server.open(cast(AgentLink, self), self.handled.append)

    def post(self, message: dict[str, Any]) -> None:
        raise AssertionError("nothing changes here")

    async def ask(self, message: dict[str, Any]) -> Any:
        with anyio.fail_after(10):
            return await self._endpoint.receive(message, cast(Origin, None))

    async def call(self, name: str, arguments: dict[str, Any]) -> Any:
        params = {"name": name, "arguments": arguments}
        answer = await self.ask({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        return answer["result"]


class Sdk:
    """The names that the cases use."""

    tool = staticmethod(tool)
    SdkMcpTool = SdkMcpTool
    ToolAnnotations = ToolAnnotations


@pytest.fixture(scope="module")
def config() -> Any:
    return create_sdk_mcp_server("cases", "2.0.0", tool_cases.definitions(Sdk))


def plain(answer: Any) -> Any:
    """An answer without what says nothing: hints that are none."""
    for each in (answer or {}).get("result", {}).get("tools", ()):
        if not each.get("annotations"):
            each.pop("annotations", None)
    return answer


@pytest.mark.anyio
@pytest.mark.parametrize("name", [name for name in MESSAGES if name not in EXPLAINED])
async def test_an_answer_is_that_of_the_reference(config: Any, name: str) -> None:
    answer = await Wire(config["instance"]).ask(MESSAGES[name])
    assert plain(copy.deepcopy(answer)) == plain(copy.deepcopy(REFERENCE["answers"][name]))


@pytest.mark.anyio
@pytest.mark.parametrize("name", EXPLAINED)
async def test_what_differs_differs(config: Any, name: str) -> None:
    answer = await Wire(config["instance"]).ask(MESSAGES[name])
    assert plain(copy.deepcopy(answer)) != plain(copy.deepcopy(REFERENCE["answers"][name]))


def test_the_config_is_that_of_the_reference(config: Any) -> None:
    assert {key: value for key, value in config.items() if key != "instance"} == REFERENCE["config"]
    assert isinstance(config["instance"], ToolServer)


def text(value: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": value}]


@pytest.mark.anyio
@pytest.mark.parametrize(
    "name, content, is_error",
    [
        ("result error in camel case", text("no"), True),
        ("result audio", tool_cases.RESULTS["audio"]["content"], False),
        ("result binary resource", tool_cases.RESULTS["binary resource"]["content"], False),
        ("result a text", text("just text"), False),
        ("result none", [], False),
        ("result a list", text("x"), False),
        ("result data", text('{"temperature":5}'), False),
        ("result content is a text", text("`content` must be a list, not str"), True),
        ("result number in text", text("content of the type 'text' must have a text as 'text'"), True),
        ("error empty", text("RuntimeError"), True),
    ],
)
async def test_what_the_reference_drops_or_refuses_arrives(
    config: Any, name: str, content: Any, is_error: bool
) -> None:
    result = await Wire(config["instance"]).call(name, {})
    assert result["content"] == content
    assert result.get("isError", False) is is_error


IMAGE = {"type": "image", "data": "AA==", "mimeType": "image/png"}


@pytest.mark.parametrize(
    "content, expected",
    [
        (({"type": "text", "text": "x"},), text("x")),
        ([{**IMAGE, "data": b"AA=="}], [IMAGE]),
        (["x"], text("x")),
        ([{"type": "resource"}, {"type": "resource", "resource": {"uri": "u"}}, {"type": "new"}], []),
    ],
    ids=["a tuple", "bytes of base64", "a text", "nothing that can be shown"],
)
def test_content_is_taken_as_people_give_it(content: Any, expected: Any) -> None:
    assert as_result({"content": content}) == {"content": expected, "isError": False}


def test_what_is_no_content_is_refused_and_not_dropped() -> None:
    with pytest.raises(ValueError, match="must be a dict, not int"):
        as_result({"content": [5]})


@pytest.mark.anyio
async def test_a_handler_need_not_be_async() -> None:
    async def later(args: Any) -> Any:
        return {"content": text(f"async {args['a']}")}

    def now(args: Any) -> Any:
        return {"content": text(f"plain {args['a']}")}

    def give(args: Any) -> Any:
        return later(args)

    class Called:
        async def __call__(self, args: Any) -> Any:
            return await later(args)

    handlers: dict[str, Callable[[Any], Any]] = {"now": now, "give": give, "called": Called()}
    tools = [tool(name, "", {"a": int})(handler) for name, handler in handlers.items()]
    wire = Wire(create_sdk_mcp_server("s", tools=tools)["instance"])
    assert (await wire.call("now", {"a": 1}))["content"] == text("plain 1")
    assert (await wire.call("give", {"a": 1}))["content"] == text("async 1")
    assert (await wire.call("called", {"a": 1}))["content"] == text("async 1")
    for name in handlers:
        refused = await wire.call(name, {})
        assert refused["content"] == text("Input validation error: 'a' is a required property")


@pytest.mark.anyio
@pytest.mark.parametrize("is_async", [True, False])
async def test_an_error_is_told_in_its_own_words_and_logged(
    is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(args: Any) -> Any:
        raise ValueError("no such city")

    async def fail_later(args: Any) -> Any:
        raise ValueError("no such city")

    async def fail_when_awaited(args: Any) -> Any:
        return {"content": [{"type": "text"}]}

    def give(args: Any) -> Any:
        return fail_when_awaited(args)

    made = [tool("t", "", {})(fail_later if is_async else cast(Any, fail)), tool("later", "", {})(give)]
    wire = Wire(create_sdk_mcp_server("s", tools=made)["instance"])
    with caplog.at_level(logging.ERROR, "outrider.compat"):
        assert await wire.call("t", {}) == {"content": text("no such city"), "isError": True}
        assert (await wire.call("later", {}))["isError"] is True
    assert [record.exc_info is not None for record in caplog.records] == [True, True]
    (handled, _) = wire.handled
    assert isinstance(handled, ToolHandled)
    assert (handled.outcome, handled.is_error) == ("failed", True)


@pytest.mark.anyio
async def test_names_are_as_free_as_those_of_the_reference() -> None:
    async def echo(args: Any) -> Any:
        return {"content": []}

    long = "x" * 100
    config = create_sdk_mcp_server(
        "My server, v2", tools=[tool(name, "", {})(echo) for name in ("a.b", long)]
    )
    wire = Wire(config["instance"])
    assert config["name"] == "My server, v2"
    assert (await wire.call("a.b", {}))["isError"] is False
    assert (await wire.call(long, {}))["isError"] is False


@pytest.mark.anyio
async def test_of_two_tools_with_one_name_the_later_counts() -> None:
    async def one(args: Any) -> Any:
        return {"content": text("one")}

    async def two(args: Any) -> Any:
        return {"content": text("two")}

    tools = [tool("t", "", {})(handler) for handler in (one, two)]
    wire = Wire(create_sdk_mcp_server("s", tools=tools)["instance"])
    assert (await wire.call("t", {}))["content"] == text("two")


def test_options_with_tools_can_be_copied(config: Any) -> None:
    options = ClaudeAgentOptions(mcp_servers={"s": config}, debug_stderr=None)
    for copied in (copy.deepcopy(options).mcp_servers, dataclasses.asdict(options)["mcp_servers"]):
        assert copied == options.mcp_servers
        assert copied is not options.mcp_servers


def test_a_tool_is_what_the_decorator_was_given() -> None:
    async def echo(args: Any) -> Any:
        return {}

    hints = ToolAnnotations(readOnlyHint=True)
    made = tool("n", "d", {"a": int}, hints)(echo)
    assert made == SdkMcpTool("n", "d", {"a": int}, echo, hints)
    assert made.handler is echo
    assert SdkMcpTool[int] is not SdkMcpTool


def test_annotations_are_those_of_the_library_where_it_is_installed() -> None:
    types = pytest.importorskip("mcp.types")
    hints = ToolAnnotations(readOnlyHint=True, destructive_hint=False, max_result_size_chars=5, futureHint=1)
    assert isinstance(hints, types.ToolAnnotations)
    assert types.Tool(name="t", input_schema={}, annotations=hints).annotations is hints
    told = {"readOnlyHint": True, "destructiveHint": False, "maxResultSizeChars": 5, "futureHint": 1}
    assert hints.model_dump(by_alias=True, exclude_none=True) == told
    assert copy.deepcopy(hints) == pickle.loads(pickle.dumps(hints)) == hints


class TestToolAnnotations:
    """Where the library is not installed."""

    def test_each_hint_has_two_spellings(self) -> None:
        hints = PlainAnnotations(readOnlyHint=True, destructive_hint=False, max_result_size_chars=5)
        assert hints == PlainAnnotations(read_only_hint=True, destructiveHint=False, maxResultSizeChars=5)
        assert hints.read_only_hint is hints.readOnlyHint is True
        assert hints.maxResultSizeChars == 5
        assert hints.title is hints.open_world_hint is None
        assert repr(hints) == (
            "ToolAnnotations(readOnlyHint=True, destructiveHint=False, maxResultSizeChars=5)"
        )

    def test_the_agents_spelling_wins(self) -> None:
        assert PlainAnnotations(read_only_hint=False, readOnlyHint=True).readOnlyHint is True
        assert PlainAnnotations(readOnlyHint=True, read_only_hint=False).readOnlyHint is True

    def test_others_are_kept(self) -> None:
        assert PlainAnnotations(futureHint=1).futureHint == 1
        with pytest.raises(AttributeError, match="no attribute 'other'"):
            _ = PlainAnnotations().other

    @pytest.mark.parametrize("hints", [{"readOnlyHint": "x"}, {"title": 5}, {"maxResultSizeChars": True}])
    def test_a_wrong_type_is_refused(self, hints: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match="must be of the type"):
            PlainAnnotations(**hints)

    def test_copies_are_equal(self) -> None:
        hints = PlainAnnotations(readOnlyHint=True, futureHint=1)
        assert copy.deepcopy(hints) == pickle.loads(pickle.dumps(hints)) == hints
        assert hash(copy.copy(hints)) == hash(hints)
        assert hints != PlainAnnotations()

    @pytest.mark.anyio
    async def test_those_of_the_mcp_library_work_as_well(self) -> None:
        types = pytest.importorskip("mcp.types")

        async def echo(args: Any) -> Any:
            return {}

        hints = types.ToolAnnotations(title="T", readOnlyHint=True)
        wire = Wire(create_sdk_mcp_server("s", tools=[tool("t", "", {}, hints)(echo)])["instance"])
        answer = await wire.ask({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
        (listed,) = answer["result"]["tools"]
        assert listed["annotations"] == {"title": "T", "readOnlyHint": True}


@pytest.mark.anyio
@pytest.mark.parametrize("is_async", [True, False])
async def test_wrong_arguments_do_not_reach_the_tool(is_async: bool) -> None:
    async def wait(args: Any) -> Any:
        raise AssertionError(args)

    def run(args: Any) -> Any:
        raise AssertionError(args)

    made: Any = tool("t", "", {"a": int})(wait if is_async else cast("Any", run))
    wire = Wire(create_sdk_mcp_server("s", tools=[made])["instance"])
    params = {"name": "t", "arguments": {"a": "x"}}
    answer = await wire.ask({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    text = "Input validation error: 'x' is not of type 'integer'"
    assert answer["result"] == {"content": [{"type": "text", "text": text}], "isError": True}


def test_tools_need_the_library_for_schemas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    create_sdk_mcp_server("s")
    with pytest.raises(OptionsError, match=re.escape("pip install 'outrider[compat]'")):
        create_sdk_mcp_server("s", tools=[tool("t", "", {"a": int})(cast("Any", print))])


def test_the_reference_still_answers_as_it_did(tmp_path: Path) -> None:
    assert json.loads(run_reference(str(tool_cases.__file__), cwd=tmp_path)) == REFERENCE


def test_making_tools_loads_no_libraries() -> None:
    program = (
        "import sys; from outrider.compat import tool, create_sdk_mcp_server\n"
        "create_sdk_mcp_server('s', tools=[tool('t', '', {'a': int})(lambda a: a)])\n"
        "print(sorted({'mcp', 'pydantic', 'jsonschema'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_tool_is_made_of_the_class_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrapped(SdkMcpTool[T]):
        # Instrumentors take what follows the function by keyword.
        def __init__(self, name: str, description: str, input_schema: Any, handler: Any, **more: Any) -> None:
            super().__init__(name, description, input_schema, handler, **more)

    monkeypatch.setattr("outrider.compat._tools.SdkMcpTool", Wrapped)

    @tool("double", "Double a number.", {"n": int})
    async def double(args: dict[str, Any]) -> dict[str, Any]:
        return {}

    assert isinstance(double, Wrapped)
