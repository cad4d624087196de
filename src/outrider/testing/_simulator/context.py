"""The values that the parts of the simulated agent hand to each other."""

from __future__ import annotations

import base64
import json
import mimetypes
import secrets
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, cast

import msgspec

from outrider.wire import Json, JsonObject


class Refused(Exception):
    """The host answered a request with an error."""

    is_gone = False
    """Whether there is no host any more: stdin has ended."""


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as it is described to the model."""

    name: str
    """For tools of servers, `mcp__SERVER__TOOL`."""
    description: str = ""
    input_schema: JsonObject = {}
    annotations: JsonObject = {}


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a tool by the model."""

    id: str
    name: str
    input: JsonObject
    agent_id: str | None = None
    """The subagent that calls; None for the main conversation."""
    agent_type: str | None = None


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a call."""

    content: str | list[JsonObject]
    """What the model is given as the result."""
    is_error: bool = False
    detail: object = None
    """`tool_use_result` of the frame: an object, a list or a text, as the program has it for that tool."""

    @classmethod
    def of_server(cls, result: JsonObject, *, tool: str, server: str, folder: Path) -> Outcome:
        """An MCP server's result as the program passes it on. Binary data is saved in `folder`."""
        given = [as_object(block) for block in as_list(result.get("content"))]
        if result.get("isError") is True:
            texts = [str(block.get("text", "")) for block in given if block.get("type") == "text"]
            text = "\n".join(texts) or "Unknown error"
            return cls(content=text, is_error=True, detail=f"Error: {text}")
        blocks = [made for block in given for made in _read_block(block, server, folder)]
        plain = [{name: block[name] for name in block if name != "_meta"} for block in blocks]
        content: str | list[JsonObject] = plain
        detail: object = blocks
        structured = result.get("structuredContent")
        if structured is not None:
            text = json.dumps(structured, ensure_ascii=False, separators=(",", ":"))
            # In place of all texts; pictures stay, with where they were saved.
            images = [at for at, block in enumerate(blocks) if block["type"] == "image"]
            pictures = [block for at in images for block in blocks[at : at + 2]]
            detail = content = [*pictures, {"type": "text", "text": text}] if pictures else text
        elif not any(block.get("text") != "" for block in plain):
            content = f"({tool} completed with no output)"
        links = [block for block in given if block.get("type") == "resource_link"]
        fields = ("uri", "name", "title", "description", "mimeType")
        more = present(
            _meta=result.get("_meta"),
            structuredContent=structured,
            resourceLinks=[pick(link, *fields) for link in links] or None,
        )
        return cls(content=content, detail={"content": detail, **more} if more else detail)


def _read_block(block: JsonObject, server: str, folder: Path) -> list[JsonObject]:
    kind, resource = block.get("type"), as_object(block.get("resource"))
    if kind == "text":
        return [pick(block, "type", "text", "_meta")]
    if kind == "resource_link":
        about = f" ({block['description']})" if block.get("description") else ""
        return [_text(f"[Resource link: {block.get('name')}] {block.get('uri')}{about}")]
    label = {
        "audio": f"[Audio from {server}] ",
        "resource": f"[Resource from {server} at {resource.get('uri')}] ",
    }
    opening = label.get(str(kind), "")
    data = block.get("data", resource.get("blob"))
    if data is None:
        return [_text(f"{opening}{resource.get('text', '')}")] if resource else []
    media_type = str(block.get("mimeType") or resource.get("mimeType") or "application/octet-stream")
    try:
        raw = base64.b64decode(str(data))
    except ValueError:
        raw = b""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"mcp-{server}-blob-{secrets.randbits(40)}-{secrets.token_hex(3)}"
    ending = ".wav" if media_type == "audio/wav" else mimetypes.guess_extension(media_type) or ".bin"
    path = folder / f"{name}{ending}"
    path.write_bytes(raw)
    if not media_type.startswith("image/"):
        return [_text(f"{opening}Binary content ({media_type}, {len(raw)} bytes) saved to {path}")]
    source: JsonObject = {"type": "base64", "media_type": media_type, "data": data}
    shown = [{"type": "image", "source": source}, _text(f"[Image: source: {path}]")]
    return [_text(opening), *shown] if opening else shown


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def as_object(value: object) -> JsonObject:
    """An object; an empty one for anything else."""
    return cast("JsonObject", value) if isinstance(value, dict) else {}


def as_list(value: object) -> list[Json]:
    """A list; an empty one for anything else."""
    return cast("list[Json]", value) if isinstance(value, list) else []


def pick(value: JsonObject, *names: str) -> JsonObject:
    """The fields that are present."""
    return {name: value[name] for name in names if name in value}


def present(**fields: object) -> JsonObject:
    """The fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def blocks_of(message: Mapping[str, object]) -> list[JsonObject]:
    """The content blocks of a message; none if its content is a text."""
    return [as_object(block) for block in as_list(message.get("content")) if isinstance(block, dict)]


def text_of(message: JsonObject) -> str:
    """The texts of a message."""
    if isinstance(content := message.get("content"), str):
        return content
    return "\n".join(str(block["text"]) for block in blocks_of(message) if block.get("type") == "text")


def covers_tool(rule: str, name: str) -> bool:
    """Whether a rule names a tool as a whole: `Bash`, `mcp__server`, `mcp__server__*`."""
    own, name = ("Agent" if each == "Task" else each for each in (rule, name))
    is_server = own.startswith("mcp__") and own.count("__") == 1
    return own == name or fnmatchcase(name, own) or (is_server and name.startswith(f"{own}__"))


class ToolFailed(Exception):
    """A call that was carried out, and failed. The text is for the model."""

    def outcome(self) -> Outcome:
        return Outcome(content=str(self), is_error=True, detail=f"Error: {self}")


class Unusable(ToolFailed):
    """A call that makes no sense here: nothing was asked and nothing was done."""

    def __init__(self, text: str, detail: str | None = None) -> None:
        super().__init__(text)
        self._detail = f"Error: {text}" if detail is None else detail

    def outcome(self) -> Outcome:
        text = f"<tool_use_error>{self}</tool_use_error>"
        return Outcome(content=text, is_error=True, detail=self._detail)


def no_such_tool(name: str, why: str = "") -> Outcome:
    """The outcome of a call of a tool that the session does not have."""
    text = f"Error: No such tool available: {name}{why}"
    return Unusable(text, text).outcome()


_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "boolean": (bool,),
    "number": (int, float),
    "integer": (int, float),
    "string": (str,),
    "array": (list,),
    "object": (dict,),
}


def check_input(spec: ToolSpec, given: JsonObject) -> None:
    """Raises `Unusable` for an input that lacks a parameter or has one of another type."""
    found = _issues(spec, given)
    if found:
        issues = json.dumps([issue for issue, _ in found], indent=2)
        text = f"InputValidationError: {_describe(spec, found)}"
        raise Unusable(text, f"InputValidationError: {issues}")


def wrong_input(spec: ToolSpec, given: JsonObject) -> str | None:
    """What is wrong with an input, in the program's words."""
    found = _issues(spec, given)
    return _describe(spec, found) if found else None


def _describe(spec: ToolSpec, found: list[tuple[JsonObject, str]]) -> str:
    issues = "issue" if len(found) == 1 else "issues"
    return "\n".join([f"{spec.name} failed due to the following {issues}:", *(text for _, text in found)])


def _issues(spec: ToolSpec, given: JsonObject) -> list[tuple[JsonObject, str]]:
    found: list[tuple[JsonObject, str]] = []
    required = [str(name) for name in as_list(spec.input_schema.get("required"))]
    properties = as_object(spec.input_schema.get("properties"))
    for name in dict.fromkeys((*properties, *required)):
        declared = as_object(properties.get(name)).get("type")
        kind = declared if isinstance(declared, str) else "string"
        if name not in given:
            if name not in required:
                continue
            received, text = "undefined", f"The required parameter `{name}` is missing"
        else:
            if declared != kind or kind not in _TYPES or _fits(given[name], kind):
                continue
            value = given[name]
            received = "null" if value is None else next(each for each in _TYPES if _fits(value, each))
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
