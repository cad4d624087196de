"""What servers and dialogs ask is answered as the callback says, and never made up when it fails."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from outrider.errors import Denied
from outrider.handlers import Choice, DialogRequest, ElicitationRequest, FormField, accept, cancel, decline
from outrider.handlers._permissions.elicitation import content_error, form_fields
from outrider.wire.control import DialogResult, Elicitation, ElicitationResult
from tests.cases import every_case
from tests.handlers.deciding import ID, Asker, Dialog, Elicited

pytestmark = pytest.mark.anyio

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Your name", "minLength": 2, "maxLength": 5},
        "age": {"type": "integer", "minimum": 0, "maximum": 150, "default": 30},
        "height": {"type": "number", "description": "In metres"},
        "agrees": {"type": "boolean", "default": False},
        "colour": {"type": "string", "enum": ["red", "green"], "enumNames": ["Red", "Green"]},
        "size": {"type": "string", "oneOf": [{"const": "s", "title": "Small"}, {"const": "l"}]},
        "tags": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "maxItems": 2},
        "kinds": {"type": "array", "items": {"anyOf": [{"const": "x", "title": "X"}]}, "minItems": 1},
        "mail": {"type": "string", "format": "email", "pattern": ".+@.+"},
        "odd": {"type": "object"},
    },
    "required": ["name"],
}
FORM: dict[str, Any] = {"requested_schema": SCHEMA}
PAGE: dict[str, Any] = {"mode": "url", "url": "https://example.com/login", "elicitation_id": "e1"}


def returning(value: object) -> Callable[[object], object]:
    return lambda _: value


# Answers.

ANSWERS: list[tuple[object, dict[str, Any], dict[str, Any]]] = [
    ({"name": "Ann"}, FORM, {"action": "accept", "content": {"name": "Ann"}}),
    (accept({"name": "Ann"}), FORM, {"action": "accept", "content": {"name": "Ann"}}),
    (
        {"name": "Ann", "age": 3, "height": 1.5, "agrees": True, "tags": ["a"], "odd": {"x": [1]}},
        FORM,
        {
            "action": "accept",
            "content": {
                "name": "Ann",
                "age": 3,
                "height": 1.5,
                "agrees": True,
                "tags": ["a"],
                "odd": {"x": [1]},
            },
        },
    ),
    (None, FORM, {"action": "decline"}),
    (False, FORM, {"action": "decline"}),
    (decline(), FORM, {"action": "decline"}),
    (cancel(), FORM, {"action": "cancel"}),
    ({}, {}, {"action": "accept", "content": {}}),
    (True, {}, {"action": "accept", "content": {}}),
    (
        True,
        {
            "requested_schema": {
                "properties": {"n": {"type": "integer", "default": 3}, "m": {"type": "string"}}
            }
        },
        {"action": "accept", "content": {"n": 3}},
    ),
    (True, PAGE, {"action": "accept"}),
    (accept(), PAGE, {"action": "accept"}),
    ({}, PAGE, {"action": "accept"}),
    (None, PAGE, {"action": "decline"}),
    (False, PAGE, {"action": "decline"}),
]


@every_case("value, asked, wire", ANSWERS, ids=[str(number) for number in range(len(ANSWERS))])
async def test_an_answer_reaches_the_server(
    value: object, asked: dict[str, Any], wire: dict[str, Any]
) -> None:
    elicited = Elicited(returning(value))
    assert await elicited.answer(**asked) == wire
    report = elicited.report
    assert (report.server, report.action, report.outcome) == ("good", wire["action"], "answered")
    assert report.seconds >= 0


async def test_an_async_callback_is_waited_for() -> None:
    async def answers(request: ElicitationRequest) -> dict[str, str]:
        await anyio.lowlevel.checkpoint()
        return {"name": request.server}

    assert await Elicited(answers).answer(**FORM) == {"action": "accept", "content": {"name": "good"}}


NO_ANSWERS: list[tuple[object, dict[str, Any], str]] = [
    ("Ann", FORM, "is not an answer"),
    (5, FORM, "is not an answer"),
    ([], FORM, "is not an answer"),
    (object(), FORM, "is not an answer"),
    ({}, FORM, "'name' is required"),
    (True, FORM, "'name' is required"),
    (accept(), FORM, "'name' is required"),
    ({"name": 5}, FORM, "'name' must be a text"),
    ({"name": None}, FORM, "'name' must be a text"),
    ({"name": "A"}, FORM, "'name' must be 2 or more characters"),
    ({"name": "Annabel"}, FORM, "'name' must be 5 or less characters"),
    ({"name": "Ann", "nmae": "x"}, FORM, "the form has no field 'nmae'"),
    ({"name": "Ann", "age": "3"}, FORM, "'age' must be a number"),
    ({"name": "Ann", "age": True}, FORM, "'age' must be a number"),
    ({"name": "Ann", "age": 3.5}, FORM, "'age' must be a whole number"),
    ({"name": "Ann", "age": -1}, FORM, "'age' must be 0 or more"),
    ({"name": "Ann", "age": 151}, FORM, "'age' must be 150 or less"),
    ({"name": "Ann", "height": float("nan")}, FORM, "cannot be written as JSON"),
    ({"name": "Ann", "agrees": 1}, FORM, "'agrees' must be True or False"),
    ({"name": "Ann", "colour": "blue"}, FORM, "'colour' must be one of 'red', 'green'"),
    ({"name": "Ann", "size": "Small"}, FORM, "'size' must be one of 's', 'l'"),
    ({"name": "Ann", "tags": "a"}, FORM, "'tags' must be a list of 'a', 'b'"),
    ({"name": "Ann", "tags": ["c"]}, FORM, "'tags' must be a list of"),
    ({"name": "Ann", "tags": ["a", "b", "a"]}, FORM, "'tags' must be 2 or less choices"),
    ({"name": "Ann", "kinds": []}, FORM, "'kinds' must be 1 or more choices"),
    ({"name": "Ann", "odd": object()}, FORM, "cannot be written as JSON"),
    ({"code": "1"}, PAGE, "a page to open has no form"),
    ("https://example.com", PAGE, "is not an answer"),
    (ElicitationResult(action="maybe"), FORM, "there is no action 'maybe'"),
    (ElicitationResult(action="accept", content=["x"]), FORM, "with a dict"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
]


@every_case("value, asked, text", NO_ANSWERS, ids=[str(number) for number in range(len(NO_ANSWERS))])
async def test_what_does_not_fit_the_form_cancels(
    value: object, asked: dict[str, Any], text: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.clear()
    elicited = Elicited(returning(value))
    assert await elicited.answer(**asked) == {"action": "cancel"}
    assert (elicited.report.outcome, elicited.report.action) == ("failed", "cancel")
    assert text in caplog.text
    assert caplog.records[0].name == "outrider.session"


async def test_without_a_callback_it_is_declined() -> None:
    elicited = Elicited(None)
    assert await elicited.answer(**FORM) == {"action": "decline"}
    assert (elicited.report.action, elicited.report.outcome) == ("decline", "answered")


async def test_a_callback_that_raises_cancels(caplog: pytest.LogCaptureFixture) -> None:
    def fails(_: object) -> None:
        raise ValueError("what went wrong")

    elicited = Elicited(fails)
    assert await elicited.answer(**FORM) == {"action": "cancel"}
    assert isinstance(elicited.report.error, ValueError)
    assert "what went wrong" in caplog.text


async def test_a_callback_that_takes_too_long_cancels(caplog: pytest.LogCaptureFixture) -> None:
    async def never(_: object) -> None:
        await anyio.sleep_forever()

    elicited = Elicited(never, timeout=0.01)
    assert await elicited.answer(**FORM) == {"action": "cancel"}
    assert elicited.report.outcome == "timed_out"
    assert "no answer within 0.01 s" in caplog.text


async def test_to_raise_denied_declines(caplog: pytest.LogCaptureFixture) -> None:
    def refuses(_: object) -> None:
        raise Denied("not you")

    assert await Elicited(refuses).answer(**FORM) == {"action": "decline"}
    assert caplog.records == []


@pytest.mark.parametrize("make", [Elicited, Dialog], ids=["elicitation", "dialog"])
async def test_a_withdrawn_question_cancels_the_callback(make: Callable[[Any], Any]) -> None:
    began = anyio.Event()
    told: list[Any] = []

    async def waiting(request: Any) -> None:
        told.append(request)
        began.set()
        await anyio.sleep_forever()

    asked = make(waiting)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(asked.answer)
        await began.wait()
        tasks.cancel_scope.cancel()
    assert asked.report.outcome == "cancelled"
    assert told[0].is_cancelled


@pytest.mark.parametrize("make", [Elicited, Dialog], ids=["elicitation", "dialog"])
async def test_what_ends_programs_is_let_through(make: Callable[[Any], Any]) -> None:
    async def ends(_: object) -> None:
        raise KeyboardInterrupt

    asked = make(ends)
    with pytest.raises(KeyboardInterrupt):
        await asked.answer()
    assert asked.report.outcome == "failed"


@pytest.mark.parametrize("make", [Elicited, Dialog], ids=["elicitation", "dialog"])
async def test_an_answer_that_fails_when_it_is_looked_at_is_none(
    make: Callable[[Any], Any], caplog: pytest.LogCaptureFixture
) -> None:
    class Trap(dict[str, Any]):
        def items(self) -> Any:
            raise RuntimeError("trapped")

    asked = make(returning(Trap(name="Ann")))
    assert list((await asked.answer()).values()) in (["cancel"], ["cancelled"])
    assert asked.report.outcome == "failed"
    assert caplog.records[0].levelno == logging.ERROR


# What a callback is told.


def test_a_form_is_told_field_by_field() -> None:
    order = ["age", "name", "nothing"]
    fields = form_fields(SCHEMA, order)
    assert [field.name for field in fields][:3] == ["age", "name", "height"]
    by_name = {field.name: field for field in fields}
    assert by_name["name"] == FormField(
        name="name", type="string", title="Your name", required=True, min_length=2, max_length=5
    )
    assert by_name["age"] == FormField(
        name="age", type="integer", title="age", default=30, minimum=0, maximum=150
    )
    assert (by_name["height"].type, by_name["height"].description) == ("number", "In metres")
    assert (by_name["agrees"].type, by_name["agrees"].default) == ("boolean", False)
    assert by_name["colour"].choices == (Choice("red", "Red"), Choice("green", "Green"))
    assert by_name["size"].choices == (Choice("s", "Small"), Choice("l", "l"))
    assert (by_name["tags"].type, by_name["tags"].max_items) == ("choices", 2)
    assert (by_name["kinds"].type, by_name["kinds"].choices) == ("choices", (Choice("x", "X"),))
    assert (by_name["mail"].format, by_name["mail"].pattern) == ("email", ".+@.+")
    assert by_name["odd"].type == "other"


@pytest.mark.parametrize(
    "schema",
    [None, {}, {"properties": None}, {"properties": []}, {"properties": {"a": 5}}, {"required": "a"}],
    ids=repr,
)
def test_a_schema_that_makes_no_sense_has_no_fields(schema: dict[str, Any] | None) -> None:
    assert form_fields(schema, None) == ()
    assert content_error({}, ()) == ""


def test_numbers_may_be_whole_in_either_form() -> None:
    (field,) = form_fields({"properties": {"n": {"type": "integer"}}}, None)
    assert (field.error_in(3), field.error_in(3.0)) == ("", "")
    assert field.error_in(float("inf")) == "must be a number"


def test_a_question_of_a_server_is_told_in_full() -> None:
    wire = {
        "mcp_server_name": "good",
        "message": "Who are you?",
        "mode": "url",
        "title": "T",
        "display_name": "Good",
        "description": "D",
        **PAGE,
    }
    told = ElicitationRequest(Elicitation.from_wire(wire), Asker())
    assert (told.server, told.message, told.mode, told.url, told.id) == (
        "good",
        "Who are you?",
        "url",
        PAGE["url"],
        "e1",
    )
    assert (told.title, told.display_name, told.description) == ("T", "Good", "D")
    assert (told.schema, told.fields, told.tool_use_id) == (None, (), None)
    assert repr(told) == "<ElicitationRequest of good: Who are you?>"


@pytest.mark.parametrize(
    "fields, mode",
    [({}, "form"), ({"url": "https://x"}, "url"), ({"mode": "form", "url": "https://x"}, "form")],
)
def test_a_mode_that_is_not_said_is_found(fields: dict[str, Any], mode: str) -> None:
    asked = Elicitation.from_wire({"mcp_server_name": "s", "message": "m"} | fields)
    assert ElicitationRequest(asked, Asker()).mode == mode


# Dialogs.


@every_case(
    "value, wire",
    [
        ("retry", {"behavior": "completed", "result": "retry"}),
        ({"choice": 1}, {"behavior": "completed", "result": {"choice": 1}}),
        (False, {"behavior": "completed", "result": False}),
        (0, {"behavior": "completed", "result": 0}),
        (["a"], {"behavior": "completed", "result": ["a"]}),
        (None, {"behavior": "cancelled"}),
        (DialogResult("cancelled"), {"behavior": "cancelled"}),
        (DialogResult("completed", "x"), {"behavior": "completed", "result": "x"}),
    ],
    ids=repr,
)
async def test_a_dialog_ends_with_its_result(value: object, wire: dict[str, Any]) -> None:
    dialog = Dialog(returning(value))
    assert await dialog.answer() == wire
    report = dialog.report
    assert (report.kind, report.result, report.tool_use_id) == (
        "refusal_fallback_prompt",
        wire.get("result"),
        ID,
    )
    assert report.outcome == "answered"


@pytest.mark.parametrize("value", [object(), {"a": object()}, float("nan")], ids=["object", "nested", "nan"])
async def test_a_result_that_json_cannot_say_cancels(value: object, caplog: pytest.LogCaptureFixture) -> None:
    dialog = Dialog(returning(value))
    assert await dialog.answer() == {"behavior": "cancelled"}
    assert dialog.report.outcome == "failed"
    assert "cannot be written as JSON" in caplog.text


@pytest.mark.parametrize("error, outcome", [(ValueError(), "failed"), (Denied("no"), "answered")])
async def test_a_dialog_whose_callback_raises_is_cancelled(error: Exception, outcome: str) -> None:
    def fails(_: object) -> None:
        raise error

    dialog = Dialog(fails)
    assert await dialog.answer() == {"behavior": "cancelled"}
    assert dialog.report.outcome == outcome


async def test_a_dialog_that_takes_too_long_is_cancelled() -> None:
    async def never(_: object) -> None:
        await anyio.sleep_forever()

    dialog = Dialog(never, timeout=0.01)
    assert await dialog.answer() == {"behavior": "cancelled"}
    assert dialog.report.outcome == "timed_out"


async def test_a_dialog_is_told_by_its_kind() -> None:
    told: list[DialogRequest] = []
    await Dialog(told.append).answer()
    assert (told[0].kind, told[0].payload, told[0].tool_use_id) == ("refusal_fallback_prompt", {"a": 1}, ID)
    assert repr(told[0]) == "<DialogRequest refusal_fallback_prompt {'a': 1}>"
