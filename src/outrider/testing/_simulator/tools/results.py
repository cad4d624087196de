"""Owns the two ways in which a built-in tool of the simulated agent refuses: before a call, and during it.

The program tells them apart: only the second comes after the question whether the call is allowed.
"""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from outrider.testing._simulator.world import Outcome, ToolSpec, as_list, as_object
from outrider.wire import Json, JsonObject

if TYPE_CHECKING:
    from outrider.testing._simulator.world import Surroundings

__all__ = [
    "Invalid",
    "Unusable",
    "WentWrong",
    "keep",
    "kilobytes",
    "no_such_tool",
    "preview",
    "read_input",
    "system_error",
]


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


def system_error(error: OSError, path: Path) -> str:
    """What the program says when a file cannot be opened."""
    name = errno.errorcode.get(error.errno or 0, "EIO")
    return f"{name}: {(error.strerror or str(error)).lower()}, open '{path}'"


def kilobytes(size: int) -> str:
    """A number of bytes, as the program says it."""
    return f"{size / 1024:.1f}".removesuffix(".0") + "KB"


_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


def read_input(spec: ToolSpec, given: JsonObject) -> JsonObject:
    """The input with numbers and switches that are written as texts read, as the program does.

    Raises `Invalid` for one that the schema does not allow.
    """
    if "properties" not in spec.input_schema:
        return given
    properties = as_object(spec.input_schema["properties"])
    required = as_list(spec.input_schema.get("required"))
    read: JsonObject = {}
    issues: list[JsonObject] = []
    told: list[str | None] = []
    for name, described in properties.items():
        schema = as_object(described)
        if name not in given:
            if name in required:
                issues.append(_wrong_type(schema, name, "undefined"))
                told.append(f"The required parameter `{name}` is missing")
            continue
        value = _read(schema, given[name])
        read[name] = value
        if issue := _issue(schema, name, value):
            issues.append(issue)
            told.append(_told(issue, name, value))
    if unknown := [name for name in given if name not in properties]:
        names = ", ".join(json.dumps(name) for name in unknown)
        word = "key" if len(unknown) == 1 else "keys"
        message = f"Unrecognized {word}: {names}"
        issues.append({"code": "unrecognized_keys", "keys": list(unknown), "path": [], "message": message})
        told += [f"An unexpected parameter `{name}` was provided" for name in unknown]
    if issues:
        raw = json.dumps(issues, indent=2, ensure_ascii=False)
        words = [text for text in told if text is not None]
        if not words:
            raise Invalid(raw, raw)
        issue_or_issues = "issue" if len(words) == 1 else "issues"
        raise Invalid(f"{spec.name} failed due to the following {issue_or_issues}:\n" + "\n".join(words), raw)
    return read


def _read(schema: JsonObject, value: Json) -> Json:
    kind = schema.get("type")
    if kind == "boolean" and value in ("true", "false"):
        return value == "true"
    if kind in ("number", "integer") and isinstance(value, str):
        try:
            number = float(value)
        except ValueError:
            return value
        return int(number) if number.is_integer() else number
    return value


def _issue(schema: JsonObject, name: str | None, value: Json) -> JsonObject | None:
    path = [] if name is None else [name]
    kind = schema.get("type")
    if isinstance(kind, str):
        is_number = kind in ("number", "integer")
        if not isinstance(value, _TYPES[kind]) or (is_number and isinstance(value, bool)):
            return {**_wrong_type(schema, "", _type_name(value)), "path": path}
    if "anyOf" in schema:
        issues = [_issue(as_object(part), None, value) for part in as_list(schema["anyOf"])]
        if all(issues):
            errors = [[issue] for issue in issues]
            return {"code": "invalid_union", "errors": errors, "path": path, "message": "Invalid input"}
    if (choices := _choices(schema)) and value not in choices:
        options = "|".join(json.dumps(choice) for choice in choices)
        one = "option: expected one of" if len(choices) > 1 else "input: expected"
        message = f"Invalid {one} {options}"
        return {"code": "invalid_value", "values": choices, "path": path, "message": message}
    least = schema.get("minLength")
    if isinstance(least, int) and isinstance(value, str) and len(value) < least:
        return {
            "origin": "string",
            "code": "too_small",
            "minimum": least,
            "inclusive": True,
            "path": path,
            "message": f"Too small: expected string to have >={least} characters",
        }
    if schema.get("format") == "uri" and isinstance(value, str) and not urlsplit(value).scheme:
        return {"code": "invalid_format", "format": "url", "path": path, "message": "Invalid URL"}
    return None


def _choices(schema: JsonObject) -> list[Json]:
    return [schema["const"]] if "const" in schema else as_list(schema.get("enum"))


def _wrong_type(schema: JsonObject, name: str, received: str) -> JsonObject:
    kind = schema.get("type", "string")
    expected = "number" if kind == "integer" else kind
    message = f"Invalid input: expected {expected}, received {received}"
    return {"expected": expected, "code": "invalid_type", "path": [name], "message": message}


def _told(issue: JsonObject, name: str, value: Json) -> str | None:
    if issue["code"] != "invalid_type":
        return None
    return (
        f"The parameter `{name}` type is expected as `{issue['expected']}` "
        f"but provided as `{_type_name(value)}`"
    )


def _type_name(value: Json) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


_PREVIEW: Final = 2_000


def keep(run: Surroundings, name: str, raw: bytes) -> Path:
    """Put a result beside the session's transcript."""
    folder = run.transcript_path.with_suffix("") / "tool-results"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.txt"
    path.write_bytes(raw)
    return path


def preview(text: str, path: Path, size: int) -> str:
    """What the model is told instead."""
    start = text[:_PREVIEW]
    if "\n" in start:
        start = start[: start.rindex("\n")]
    return (
        f"<persisted-output>\nOutput too large ({kilobytes(size)}). Full output saved to: {path}\n\n"
        f"Preview (first 2KB):\n{start}\n...\n</persisted-output>"
    )
