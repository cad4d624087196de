"""Defines tools as the reference SDK does, and makes a server of Outrider from them.

Also makes the JSON Schema of their arguments, and MCP results of what they return. Does not need the `mcp`
library.
"""

# Annotations are evaluated where they stand, so that `get_type_hints` finds what they name.

import logging
import re
import types
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from itertools import count
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Generic,
    NotRequired,
    Required,
    Self,
    TypeAlias,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from outrider.compat._types.options import McpSdkServerConfig
from outrider.errors import ToolFailed
from outrider.handlers import AgentLink, Handled, Origin, RawTool, RawToolServer, call
from outrider.handlers._calls import is_async
from outrider.handlers._tools.shape_errors import JsonSchema

__all__ = ["SdkMcpTool", "ToolAnnotations", "create_sdk_mcp_server", "tool"]

log = logging.getLogger("outrider.compat")

T = TypeVar("T")

_SIZE: Final = "maxResultSizeChars"
_HINTS: Final[Mapping[str, type]] = {
    "title": str,
    "readOnlyHint": bool,
    "destructiveHint": bool,
    "idempotentHint": bool,
    "openWorldHint": bool,
    _SIZE: int,
}
_SIZE_META: Final = "anthropic/maxResultSizeChars"
"""Where a tool's definition says how long its results may be before the agent puts them into a file."""


def _snake(name: str) -> str:
    return re.sub(r"[A-Z]", lambda letter: f"_{letter[0].lower()}", name)


_WIRE_NAMES: Final = {_snake(name): name for name in _HINTS}


def _by_wire_name(data: dict[str, Any]) -> dict[str, Any]:
    named = {_WIRE_NAMES.get(name, name): value for name, value in data.items()}
    # Where both are given, the one that the agent knows counts.
    return named | {name: value for name, value in data.items() if name in _HINTS}


class PlainAnnotations:
    """Hints about a tool for the agent: `title`, `readOnlyHint`, `destructiveHint`, `idempotentHint`,
    `openWorldHint`, and `maxResultSizeChars`. Each may also be written with underscores.

    Raises ValueError for a hint of the wrong type.
    """

    def __init__(self, **data: Any) -> None:  # noqa: ANN401 - hints of any kind are kept
        self._hints: Final[dict[str, object]] = _by_wire_name(data)
        for name, value in self._hints.items():
            _check(name, value)

    def __getattr__(self, name: str) -> object:
        wire = _WIRE_NAMES.get(name, name)
        if wire in _HINTS:
            return self._hints.get(wire)
        try:
            return self._hints[name]
        except KeyError:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}") from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlainAnnotations) and self._set() == other._set()

    def __hash__(self) -> int:
        return hash(frozenset(self._set().items()))

    def __repr__(self) -> str:
        return f"ToolAnnotations({', '.join(f'{name}={value!r}' for name, value in self._set().items())})"

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        # Not by its attributes: what is made without them has none to look for.
        return _annotations, (self._hints,)

    @classmethod
    def __get_pydantic_core_schema__(cls, *_: object) -> dict[str, str]:
        # Models of users have tools in them, whichever of the two classes their hints are of.
        return {"type": "any"}

    def model_dump(self, **_how: object) -> dict[str, Any]:
        """The hints that are set, by the names that the agent knows."""
        return self._set()

    def _set(self) -> dict[str, Any]:
        return {name: value for name, value in self._hints.items() if value is not None}


def _check(name: str, value: object) -> None:
    if name not in _HINTS or value is None:
        return
    kind = _HINTS[name]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ValueError(f"{name!r} must be of the type {kind.__name__}, not {value!r}")


def _annotations(hints: dict[str, object]) -> PlainAnnotations:
    return PlainAnnotations(**hints)


PlainAnnotations.__name__ = PlainAnnotations.__qualname__ = "ToolAnnotations"

if TYPE_CHECKING:
    ToolAnnotations: TypeAlias = PlainAnnotations


def __getattr__(name: str) -> object:
    # On first use: pydantic takes longer to import than all else here.
    if name != "ToolAnnotations":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = made = _annotations_of_library() or PlainAnnotations
    return made


def _annotations_of_library() -> type | None:
    """A class of annotations that the `mcp` library takes for its own; None if it is not installed."""
    # Its types are a package of their own since 2.0.
    for module in ("mcp_types", "mcp.types"):
        try:
            base: Any = import_module(module).ToolAnnotations
            break
        except ImportError:
            pass
    else:
        return None

    content = {
        "__module__": __name__,
        "__qualname__": "ToolAnnotations",
        "__doc__": PlainAnnotations.__doc__,
        "__annotations__": {_SIZE: int | None},
        _SIZE: None,
    }
    made: type = type(base)("ToolAnnotations", (_BothSpellings, base), content, extra="allow")
    return made


class _BothSpellings:
    def __init__(self, **data: Any) -> None:  # noqa: ANN401 - hints of any kind are kept
        super().__init__(**_by_wire_name(data))


@dataclass
class SdkMcpTool(Generic[T]):
    """A tool, made by `tool` from a function."""

    name: str
    description: str
    input_schema: type[T] | dict[str, Any]
    handler: Callable[[T], Awaitable[dict[str, Any]]]
    annotations: PlainAnnotations | None = None


def tool(
    name: str,
    description: str,
    input_schema: type | dict[str, Any],
    annotations: PlainAnnotations | None = None,
) -> Callable[[Callable[[Any], Awaitable[dict[str, Any]]]], SdkMcpTool[Any]]:
    """Make a tool from a function that takes the arguments as a dict and returns `{"content": […]}`.

    `input_schema` is a dict of names and types, a TypedDict, or a JSON Schema. The arguments are checked
    before the function is called. One that is not async works as well; it runs in a thread.
    """

    def decorate(handler: Callable[[Any], Awaitable[dict[str, Any]]]) -> SdkMcpTool[Any]:
        # By keywords, as in the reference: instrumentors put a class of their own in its place.
        return SdkMcpTool(
            name=name,
            description=description,
            input_schema=input_schema,
            handler=handler,
            annotations=annotations,
        )

    return decorate


def create_sdk_mcp_server(
    name: str, version: str = "1.0.0", tools: list[SdkMcpTool[Any]] | None = None
) -> McpSdkServerConfig:
    """Make a server of tools, for `mcp_servers`. It runs in this process; many sessions may use one."""
    # As in the reference, the agent decides which tools the model knows from the start.
    server = _Server(name, [_raw(each) for each in tools or ()], version=version, always_load=False)
    return McpSdkServerConfig(type="sdk", name=name, instance=server)


class _Server(RawToolServer):
    def missing(self, name: str) -> dict[str, Any]:
        return _error(f"Tool {name!r} not found")

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - as the library has it
        # Tests of tools look there.
        if name not in ("request_handlers", "get_request_handler"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        try:
            return getattr(self._of_library, name)
        except ImportError as error:
            raise AttributeError(f"{name!r} needs the `mcp` library: pip install 'outrider[mcp]'") from error

    @cached_property
    def _of_library(self) -> object:
        """The same server, as one of the `mcp` library."""
        return _server_of_library(self)

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        # Options are copied, and many sessions may use one server.
        return self


class _Nowhere:
    """A link to no agent."""

    def post(self, message: dict[str, Any]) -> None:
        """Nothing to notify."""


def _server_of_library(server: RawToolServer) -> object:
    """A server of the library, with the tools of the given one. Raises `ImportError` without the library."""
    library: Any = import_module("mcp.server.lowlevel").Server
    types: Any = import_module("mcp.types")
    endpoint = server.open(cast("AgentLink", _Nowhere()), _forget)
    numbers = count()

    async def ask(method: str, **params: object) -> object:
        request = {"jsonrpc": "2.0", "id": next(numbers), "method": method, "params": params}
        reply = await endpoint.receive(request, cast("Origin", None))
        return (reply or {})["result"]

    async def list_tools(*_: object) -> Any:  # noqa: ANN401 - a class of the library
        return types.ListToolsResult.model_validate(await ask("tools/list"))

    async def call_tool(name: str, arguments: dict[str, Any] | None) -> Any:  # noqa: ANN401 - as before
        result = await ask("tools/call", name=name, arguments=arguments or {})
        return types.CallToolResult.model_validate(result)

    if hasattr(types, "jsonrpc_message_adapter"):

        async def on_call(_: object, params: Any) -> Any:  # noqa: ANN401 - a class of the library
            return await call_tool(params.name, params.arguments)

        return library(server.name, version=server.version, on_list_tools=list_tools, on_call_tool=on_call)

    async def listed() -> Any:  # noqa: ANN401 - as before
        return (await list_tools()).tools

    # Before 2.0.
    made = library(server.name, version=server.version)
    made.list_tools()(listed)
    made.call_tool(validate_input=False)(call_tool)
    return made


def _forget(_: Handled) -> None:
    pass


def _raw(given: SdkMcpTool[Any]) -> RawTool:
    schema = json_schema(given.input_schema)
    definition: dict[str, Any] = {
        "name": given.name,
        "description": given.description,
        "inputSchema": schema,
    }
    # What a user has from the `mcp` library writes itself in the same way.
    hints: dict[str, Any] = (
        given.annotations.model_dump(by_alias=True, exclude_none=True) if given.annotations else {}
    )
    if (size := hints.get(_SIZE)) is not None:
        definition["_meta"] = {_SIZE_META: size}
    if others := {key: value for key, value in hints.items() if key in _HINTS and key != _SIZE}:
        definition["annotations"] = others
    return RawTool(definition, _checked(given.name, schema, given.handler))


def _checked(
    name: str, schema: dict[str, Any], handler: Callable[[Any], object]
) -> Callable[[dict[str, Any]], object]:
    """The handler, called only with valid arguments; the model reads its errors in their own words."""
    checked, is_direct = JsonSchema(schema, extra="compat"), is_async(handler)

    async def called(arguments: dict[str, Any]) -> object:
        if (refused := checked.best_error(arguments)) is not None:
            return _error(f"Input validation error: {refused.message}")
        try:
            running = handler(arguments) if is_direct else call(handler, arguments)
            return as_result(await cast("Awaitable[object]", running))
        except Exception as error:
            log.exception("the tool %r failed", name)
            raise ToolFailed(str(error) or type(error).__name__) from error

    return called


def _error(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": True}


# What a handler returns, as MCP has it.

_TEXT: Final = ("text",)
_DATA: Final = ("data", "mimeType")
_PASSED: Final = {"text": _TEXT, "image": _DATA, "audio": _DATA}
"""What stays as it is, and the keys that it has."""
_RESULT: Final = frozenset(("content", "is_error", "isError"))


def as_result(given: object) -> object:
    """The result; what is not a dict with content is left to Outrider, which sends texts and data as well.

    Raises ValueError for content that lacks what its kind has to have.
    """
    if not isinstance(given, dict):
        return given
    result = cast("dict[str, Any]", given)
    if result and not _RESULT & result.keys():
        return result
    content: object = result.get("content", [])
    if not isinstance(content, list | tuple):
        raise ValueError(f"`content` must be a list, not {type(content).__name__}")  # noqa: TRY004 - as others
    parts = [_part(each) for each in cast("Sequence[object]", content)]
    is_error = result.get("is_error", result.get("isError", False))
    return {"content": [part for part in parts if part is not None], "isError": bool(is_error)}


def _part(given: object) -> dict[str, Any] | None:
    """One part of the content; None for what the agent has no use for."""
    if isinstance(given, str):
        return _as_text(given)
    if not isinstance(given, dict):
        raise ValueError(f"a part of `content` must be a dict, not {type(given).__name__}")  # noqa: TRY004
    part = cast("dict[str, Any]", given)
    kind = part.get("type")
    if keys := _PASSED.get(str(kind)):
        return {"type": kind, **{key: _text(part, key) for key in keys}}
    if kind == "resource_link":
        lines = (part.get("name"), part.get("uri"), part.get("description"))
        return _as_text("\n".join(str(each) for each in lines if each) or "Resource link")
    if kind == "resource":
        resource: object = part.get("resource")
        inner = cast("dict[str, Any]", resource) if isinstance(resource, dict) else {}
        if isinstance(inner.get("text"), str):
            return _as_text(inner["text"])
        if isinstance(inner.get("blob"), str) and inner.get("uri"):
            return part
    log.warning("a tool gave content of the type %r, which is left out", kind)
    return None


def _text(part: dict[str, Any], key: str) -> str:
    value = part.get(key)
    if isinstance(value, bytes):
        # `base64.b64encode` gives them.
        return value.decode()
    if not isinstance(value, str):
        raise ValueError(f"content of the type {part['type']!r} must have a text as {key!r}")  # noqa: TRY004
    return value


def _as_text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


# The schema of arguments.

_TYPE_NAMES: Final[Mapping[object, str]] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    list: "array",
    dict: "object",
}
_MARKS: Final = frozenset(("NotRequired", "Required", "ReadOnly"))
"""What says something of a key, and nothing of its type. The last is newer than the oldest Python here."""


def json_schema(given: object) -> dict[str, Any]:
    """The JSON Schema of a tool's arguments."""
    if isinstance(given, dict):
        schema = cast("dict[str, Any]", given)
        if isinstance(schema.get("type"), str) and "properties" in schema:
            return schema
        properties = {name: _of_type(kind) for name, kind in schema.items()}
        return {"type": "object", "properties": properties, "required": list(properties)}
    if is_typeddict(given):
        return _of_typed_dict(cast(type, given))
    return {"type": "object", "properties": {}}


def _of_typed_dict(kind: Any) -> dict[str, Any]:  # noqa: ANN401 - TypedDicts have no type
    hints = get_type_hints(kind, include_extras=True)
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: _of_type(hint) for name, hint in hints.items()},
    }
    if required := sorted(kind.__required_keys__):
        schema["required"] = required
    return schema


def _of_type(kind: object) -> dict[str, Any]:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        inner, *notes = arguments
        text = next((note for note in notes if isinstance(note, str)), None)
        return _of_type(inner) if text is None else {**_of_type(inner), "description": text}
    if origin in (NotRequired, Required) or getattr(origin, "_name", None) in _MARKS:
        return _of_type(arguments[0])
    if origin in (Union, types.UnionType):
        members = [_of_type(each) for each in arguments if each is not type(None)]
        return members[0] if len(members) == 1 else {"anyOf": members}
    if origin is list and arguments:
        return {"type": "array", "items": _of_type(arguments[0])}
    if is_typeddict(kind):
        return _of_typed_dict(kind)
    try:
        return {"type": _TYPE_NAMES.get(origin or kind, "string")}
    except TypeError:
        # What cannot be hashed is not a known type.
        return {"type": "string"}
