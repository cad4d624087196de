"""Owns the ways in which a built-in tool of the simulated agent refuses: before a call, and during it.

The program tells them apart: only the second comes after the question whether the call is allowed.
"""

from __future__ import annotations

import json
from typing import Final

from outrider.testing._simulator.world import Outcome, ToolSpec, as_list, as_object
from outrider.wire import JsonObject

__all__ = ["Invalid", "Unusable", "WentWrong", "check_input", "no_such_tool", "wrong_input"]


class WentWrong(Exception):
    """A call that was carried out, and failed. The text is what the model is told."""

    def outcome(self) -> Outcome:
        return Outcome(content=str(self), is_error=True, detail=f"Error: {self}")


class Unusable(WentWrong):
    """A call that makes no sense here: nothing was asked and nothing was done."""

    def outcome(self) -> Outcome:
        return Outcome(
            content=f"<tool_use_error>{self}</tool_use_error>", is_error=True, detail=f"Error: {self}"
        )


class Invalid(Unusable):
    """An input that is not as the tool's schema says."""

    def __init__(self, text: str, issues: str) -> None:
        super().__init__(text)
        self.issues = issues

    def outcome(self) -> Outcome:
        return Outcome(
            content=f"<tool_use_error>InputValidationError: {self}</tool_use_error>",
            is_error=True,
            detail=f"InputValidationError: {self.issues}",
        )


def no_such_tool(name: str, why: str = "") -> Outcome:
    """The outcome of a call of a tool that the session does not have."""
    text = f"Error: No such tool available: {name}{why}"
    return Outcome(content=f"<tool_use_error>{text}</tool_use_error>", is_error=True, detail=text)


_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


def check_input(spec: ToolSpec, given: JsonObject) -> None:
    """Raises `Invalid` for an input that lacks a parameter or has one of another type."""
    found = _issues(spec, given)
    if found:
        raise Invalid(_told(spec, found), json.dumps([issue for issue, _ in found], indent=2))


def wrong_input(spec: ToolSpec, given: JsonObject) -> str | None:
    """What is wrong with an input, in the program's words."""
    found = _issues(spec, given)
    return _told(spec, found) if found else None


def _told(spec: ToolSpec, found: list[tuple[JsonObject, str]]) -> str:
    issues = "issue" if len(found) == 1 else "issues"
    return "\n".join([f"{spec.name} failed due to the following {issues}:", *(text for _, text in found)])


def _issues(spec: ToolSpec, given: JsonObject) -> list[tuple[JsonObject, str]]:
    found: list[tuple[JsonObject, str]] = []
    required = [str(name) for name in as_list(spec.input_schema.get("required"))]
    properties = as_object(spec.input_schema.get("properties"))
    for name in dict.fromkeys((*properties, *required)):
        kind = as_object(properties.get(name)).get("type", "string")
        received = _type_name(given[name]) if name in given else "undefined"
        if name not in given:
            if name not in required:
                continue
            text = f"The required parameter `{name}` is missing"
        elif kind not in _TYPES or _fits(given[name], str(kind)):
            continue
        else:
            text = f"The parameter `{name}` type is expected as `{kind}` but provided as `{received}`"
        issue: JsonObject = {
            "expected": kind,
            "code": "invalid_type",
            "path": [name],
            "message": f"Invalid input: expected {kind}, received {received}",
        }
        found.append((issue, text))
    return found


def _fits(value: object, kind: str) -> bool:
    return isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))


def _type_name(value: object) -> str:
    if value is None:
        return "null"
    return next(name for name in ("boolean", "number", "string", "array", "object") if _fits(value, name))
