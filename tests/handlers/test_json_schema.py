"""Values are checked as the library does, by the draft that a schema is written for. Nothing is fetched."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.handlers._tools.shape_errors import JsonSchema
from tests.cases import every_case


def check(schema: object, value: object) -> str | None:
    error = JsonSchema(schema, extra="compat").best_error(value)
    return None if error is None else error.message


@every_case(
    "schema, value, message",
    [
        ({"type": "integer"}, 1.0, None),
        ({"type": "integer"}, True, "True is not of type 'integer'"),
        (
            {"required": ["a"], "properties": {"b": {"type": "integer"}}},
            {"b": "x"},
            "'a' is a required property",
        ),
        (
            {"anyOf": [{"type": "object", "required": ["a"]}, {"type": "null"}]},
            {},
            "'a' is a required property",
        ),
        (False, 1, "False schema does not allow 1"),
        (True, 1, None),
        # As older drafts write it.
        ({"items": [{"type": "string"}, True]}, [1], "1 is not of type 'string'"),
        ({"minimum": 0, "exclusiveMinimum": True}, 0, "0 is less than or equal to the minimum of 0"),
        ({"minimum": 0, "exclusiveMinimum": False}, 0, None),
        (
            {"$schema": "http://json-schema.org/draft-04/schema#", "maximum": 3, "exclusiveMaximum": True},
            3,
            "3 is greater than or equal to the maximum of 3",
        ),
        ({"$schema": "https://example.com/draft", "type": "null"}, 1, "1 is not of type 'null'"),
    ],
)
def test_the_error_that_says_most_is_told(schema: Any, value: Any, message: str | None) -> None:
    assert check(schema, value) == message
    assert JsonSchema(schema, extra="compat").is_valid(value) is (message is None)


@every_case(
    "schema, value",
    [
        ({"type": "strange"}, 1),
        ({"minLength": "x"}, "a"),
        ({"pattern": "("}, "x"),
        ({"patternProperties": {"(": False}, "additionalProperties": False}, {"a": 1}),
        ({"$ref": "#/nowhere"}, 1),
        ({"$schema": 5, "type": "string"}, 1),
        (None, 1),
    ],
)
def test_what_cannot_be_decided_is_valid(schema: Any, value: Any) -> None:
    assert check(schema, value) is None
    assert JsonSchema(schema, extra="compat").is_valid(value)


def test_nothing_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(*_: object, **__: object) -> None:
        raise AssertionError("a schema is fetched")

    monkeypatch.setattr("urllib.request.urlopen", fetch)
    assert check({"$ref": "http://127.0.0.1/schema.json"}, 1) is None
    assert check({"$ref": "http://json-schema.org/draft-07/schema#"}, {"title": 5}) is not None


def test_all_errors_are_told_with_their_places() -> None:
    number = {"type": "integer"}
    schema = {"properties": {"a": {"items": number}}, "required": ["b"]}
    errors = JsonSchema(schema, extra="testing").errors({"a": [1, "x"]})
    assert sorted((list(error.absolute_path), error.validator) for error in errors) == [
        ([], "required"),
        (["a", 1], "type"),
    ]
    (wrong,) = (error for error in errors if error.validator == "type")
    assert (wrong.validator_value, wrong.instance) == ("integer", "x")


def test_a_part_refers_to_the_whole() -> None:
    schema = JsonSchema({"$defs": {"n": {"type": "integer"}}}, extra="testing")
    assert schema.is_valid(1, {"$ref": "#/$defs/n"})
    assert not schema.is_valid("x", {"$ref": "#/$defs/n"})
