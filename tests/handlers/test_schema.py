"""Schemas as data: definitions that are moved, merged and told apart."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.handlers._tools.shape_errors import Definitions, unfolded

POINT = {"type": "object", "properties": {"x": {"type": "integer"}}}


def test_what_only_refers_to_its_definition_is_that_definition() -> None:
    schema = {"$ref": "#/$defs/Point", "$defs": {"Point": POINT}, "description": "Where."}
    assert unfolded(schema) == {**POINT, "description": "Where."}


def test_a_definition_that_is_used_elsewhere_stays_one() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}
    schema = {"$ref": "#/$defs/Node", "$defs": {"Node": node}}
    assert unfolded(schema) == {**node, "$defs": {"Node": node}}


@pytest.mark.parametrize("schema", [{}, {"type": "integer"}, {"$ref": "https://example.com/schema"}])
def test_what_is_no_reference_to_a_definition_stays_as_it_is(schema: dict[str, Any]) -> None:
    assert unfolded(schema) == schema


def test_references_are_changed_where_schemas_are_and_nowhere_else() -> None:
    def schema(within: str) -> dict[str, Any]:
        reference, data = {"$ref": f"#/$defs/{within}"}, {"$ref": "#/$defs/P"}
        return {
            "properties": {"$ref": reference, "list": {"items": [reference]}},
            "default": data,
            "enum": [data],
            "anyOf": [{"not": reference}],
        }

    definitions = Definitions()
    definitions.all["P"] = {"other": True}
    assert definitions.hoist({**schema("P"), "$defs": {"P": POINT}}) == schema("P_2")


def test_equal_definitions_are_shared() -> None:
    definitions = Definitions()
    for _ in range(2):
        assert definitions.hoist({"$ref": "#/$defs/P", "$defs": {"P": POINT}}) == {"$ref": "#/$defs/P"}
    assert definitions.all == {"P": POINT}


def test_different_definitions_of_one_name_are_told_apart() -> None:
    definitions = Definitions()
    other = {"type": "array", "items": {"$ref": "#/$defs/P"}}
    assert definitions.hoist({"$ref": "#/$defs/P", "$defs": {"P": POINT}}) == {"$ref": "#/$defs/P"}
    moved = definitions.hoist({"anyOf": [{"$ref": "#/$defs/P"}], "$defs": {"P": other}})
    assert moved == {"anyOf": [{"$ref": "#/$defs/P_2"}]}
    # What referred to itself still does.
    assert definitions.all == {"P": POINT, "P_2": {"type": "array", "items": {"$ref": "#/$defs/P_2"}}}


def test_the_schema_that_was_given_is_not_changed() -> None:
    given = {"items": {"$ref": "#/$defs/P"}, "$defs": {"P": POINT}}
    definitions = Definitions()
    definitions.all["P"] = {"other": True}
    definitions.hoist(given)
    assert given == {"items": {"$ref": "#/$defs/P"}, "$defs": {"P": POINT}}
