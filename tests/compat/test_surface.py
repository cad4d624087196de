"""Every public name of the reference is in the drop-in, with the same signature, fields, keys and values."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest

from tests.compat.scripts import load, run_reference

surface: ModuleType = load("reference_surface")
COMMITTED = Path(__file__).parent / "reference" / "surface.json"
REFERENCE = json.loads(COMMITTED.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def lines() -> list[str]:
    return list(surface.differences(REFERENCE, surface.Surface("outrider.compat").describe()))


def test_no_name_is_missing(lines: list[str]) -> None:
    assert [line for line in lines if line.endswith(": missing")] == []


def test_every_difference_is_explained(lines: list[str]) -> None:
    left, unused = surface.unexplained(lines, surface.explained())
    assert left == []
    assert unused == [], "explained, and no difference any more"


def test_the_reference_has_the_names_that_it_is_known_for() -> None:
    assert len(REFERENCE["(package)"]) == 159
    assert len(REFERENCE["types"]) > 150
    assert list(REFERENCE["testing"]) == ["run_session_store_conformance"]


@pytest.mark.parametrize(
    "was, now, found",
    [
        ({}, {}, []),
        ({"a": {"kind": "str"}}, {}, ["a: missing"]),
        ({}, {"a": {"kind": "str"}}, ["a: not in the reference"]),
        ({"a": {"kind": "str"}}, {"a": {"kind": "int"}}, ["a.kind: str, here int"]),
        (
            {"a": {"fields": {"x": {"type": "str"}, "y": {"type": "str"}}}},
            {"a": {"fields": {"y": {"type": "str"}, "x": {"type": "int"}, "z": {}}}},
            ["a.x.type: str, here int", "a.z: not in the reference", "a: another order of fields"],
        ),
        (
            {"a": {"keys": {"k": "str"}, "required": ["k"]}},
            {"a": {"keys": {}, "required": []}},
            ["a.k: missing", 'a.required: ["k"], here []'],
        ),
    ],
)
def test_a_difference_is_found(was: object, now: object, found: list[str]) -> None:
    assert list(surface.differences({"(package)": was}, {"(package)": now})) == found


def test_an_explanation_has_to_be_needed() -> None:
    assert surface.unexplained(["a.x: 1", "b: 2"], {"a.*: 1": "", "c: *": ""}) == (["b: 2"], ["c: *"])


def test_the_reference_is_still_as_it_was_described(tmp_path: Path) -> None:
    printed = run_reference(str(surface.__file__), "--package", "claude_agent_sdk", cwd=tmp_path)
    assert json.loads(printed) == REFERENCE
