"""Structured output: the type that is asked for is what the model is told, and what comes back."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypedDict, assert_type

import msgspec
import pydantic
import pytest

import outrider
from outrider.errors import OptionsError, OutputInvalid
from outrider.session import Result, Session, run, stream
from outrider.testing import RealAgent, say, use_tool
from outrider.wire import Json
from tests.session.real.talking import real_agent

pytestmark = pytest.mark.anyio


@dataclass
class Line:
    item: str
    price: float = 0.0


class Invoice(msgspec.Struct):
    total: int
    lines: list[Line] = []


class Receipt(pydantic.BaseModel):
    total: int
    lines: list[Line] = []


class Bill(TypedDict):
    total: int


GIVEN = {"total": 5, "lines": [{"item": "tea", "price": 5}]}
SCHEMA = {"type": "object", "properties": {"total": {"type": "integer"}}, "required": ["total"]}

KINDS: list[tuple[Any, dict[str, Any], object]] = [
    (Invoice, GIVEN, Invoice(5, [Line("tea", 5)])),
    (Receipt, GIVEN, Receipt(total=5, lines=[Line("tea", 5)])),
    (Line, {"item": "tea"}, Line("tea")),
    (Bill, {"total": 5}, {"total": 5}),
    (list[Line], {"value": [{"item": "tea"}]}, [Line("tea")]),
    (Literal["yes", "no"], {"value": "yes"}, "yes"),
    (int, {"value": 5}, 5),
    (Line | None, {"value": None}, None),
    (SCHEMA, {"total": 5}, {"total": 5}),
]
IDS = ["msgspec", "pydantic", "dataclass", "TypedDict", "list", "Literal", "int", "union", "schema"]


def answered(agent: RealAgent) -> dict[str, Any]:
    """The schema that the model was shown."""
    (tool,) = [
        tool for tool in agent.api.main_requests[0].body["tools"] if tool["name"] == "StructuredOutput"
    ]
    schema: dict[str, Any] = tool["input_schema"]
    return schema


@pytest.mark.parametrize("kind, given, expected", KINDS, ids=IDS)
async def test_each_kind_of_type_comes_back_as_a_value_of_it(
    kind: Any, given: dict[str, Any], expected: object
) -> None:
    with real_agent(use_tool("StructuredOutput", **given), say("done")) as agent:
        result = await run("work", agent.options(), output=kind)
        assert result.output == expected
        assert type(result.output) is type(expected)
        assert set(answered(agent)["properties"]) >= set(given)


async def test_a_session_gives_a_value_for_each_turn() -> None:
    steps = [step for total in (1, 2) for step in (use_tool("StructuredOutput", total=total), say("done"))]
    with real_agent(*steps) as agent:
        async with Session(agent.options(), output=Invoice) as session:
            totals = [(await session.ask("work")).output.total for _ in range(2)]
    assert totals == [1, 2]


async def test_the_model_may_not_give_any() -> None:
    with real_agent(otherwise=say("only words")) as agent:
        with pytest.raises(OutputInvalid, match="text alone") as caught:
            await run("work", agent.options(), output=Invoice)
        assert isinstance(caught.value.result, Result)
        assert caught.value.result.text == "only words"


async def test_a_schema_that_is_not_taken_is_not_blamed_on_the_model() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "discriminator": {"propertyName": "a"},
    }
    with real_agent(otherwise=say("only words")) as agent:
        options = agent.options(output_format={"type": "json_schema", "schema": schema})
        with pytest.raises(OutputInvalid, match=r"does not take the JSON Schema.*--json-schema"):
            await run("work", options)


class Picky(msgspec.Struct):
    """What a schema cannot say: the agent lets it pass."""

    when: str

    def __post_init__(self) -> None:
        if self.when != "now":
            raise ValueError("`when` must be now")


async def test_what_the_schema_cannot_say_is_checked_here() -> None:
    with real_agent(use_tool("StructuredOutput", when="later"), say("done")) as agent:
        with pytest.raises(OutputInvalid, match="must be now") as caught:
            await run("work", agent.options(), output=Picky)
        assert isinstance(caught.value.result, Result)
        assert caught.value.result.output == {"when": "later"}


async def test_what_does_not_fit_is_given_back_to_the_model() -> None:
    script = [use_tool("StructuredOutput", total="many"), use_tool("StructuredOutput", total=5), say("done")]
    with real_agent(*script) as agent:
        result = await run("work", agent.options(), output=Invoice)
        assert result.output == Invoice(5)
        assert agent.api.main_requests[1].tool_results[0]["is_error"]


async def test_what_never_fits_ends_the_turn() -> None:
    with real_agent(otherwise=use_tool("StructuredOutput", total="many")) as agent:
        with pytest.raises(OutputInvalid, match="must be integer") as caught:
            await run("work", agent.options(), output=Invoice)
        assert len(agent.api.main_requests) == 5
        assert caught.value.errors
        assert isinstance(caught.value.result, Result)
        assert caught.value.result.output is None


@pytest.mark.parametrize("event", ["PreToolUse", "UserPromptSubmit"])
async def test_a_turn_that_a_hook_ends_has_none(event: Literal["PreToolUse", "UserPromptSubmit"]) -> None:
    def end(_: object) -> outrider.Answer:
        return outrider.answers.stop("not now")

    script = [use_tool("Read", file_path="x"), use_tool("StructuredOutput", total=5), say("done")]
    with real_agent(*script) as agent:
        result = await run("work", agent.options(hooks={event: [end]}), output=Invoice)
        assert result.is_success
        assert result.output is None


async def test_a_stream_has_its_output_in_the_result() -> None:
    with real_agent(use_tool("StructuredOutput", total=5), say("done")) as agent:
        async with stream("work", agent.options(), output=Invoice) as turn:
            assert (await turn.result()).output == Invoice(5)


@pytest.mark.parametrize(
    "output",
    [lambda: None, len, partial(Line), object(), "Invoice", "int", "", b"", 5, Line("tea")],
    ids=[str(number) for number in range(10)],
)
def test_what_is_no_type_is_refused_before_anything_starts(output: Any) -> None:
    with pytest.raises(OptionsError):
        Session(output=output)


def test_two_forms_for_one_answer_are_refused() -> None:
    with pytest.raises(OptionsError, match="output_format"):
        Session(output=Invoice, output_format={"type": "json_schema", "schema": SCHEMA})


async def check_types() -> None:
    """Not run: for the type checkers."""
    assert_type((await run("x")).output, Json)
    assert_type((await run("x", output=Invoice)).output, Invoice)
    assert_type((await run("x", output=list[Line])).output, list[Line])
    assert_type((await run("x", output=SCHEMA)).output, Json)
    async with Session(output=Invoice) as session:
        assert_type(session, Session[Invoice])
        assert_type((await session.ask("x")).output, Invoice)
        turn = await session.send("x")
        assert_type((await turn.result()).output, Invoice)
    async with Session() as plain:
        assert_type((await plain.ask("x")).output, Json)
    async with stream("x", output=Invoice) as streamed:
        assert_type((await streamed.result()).output, Invoice)
    assert_type(outrider.sync.run("x", output=Invoice).output, Invoice)
    with outrider.sync.Session(output=Invoice) as waiting:
        assert_type(waiting.ask("x").output, Invoice)
