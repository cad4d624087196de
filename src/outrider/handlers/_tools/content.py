"""Defines the images, sounds and resources that a tool can return, and encodes results as MCP content."""

from __future__ import annotations

import enum
import json
import math
import os
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeGuard, cast
from urllib.parse import unquote_to_bytes, urlsplit

import msgspec

from outrider.errors import UsageError
from outrider.wire import Json, JsonObject
from outrider.wire._tolerant import is_object

# Content.

Bytes: TypeAlias = bytes | bytearray | memoryview
Source: TypeAlias = Bytes | str | os.PathLike[str]
"""Bytes, the path of a file, or a `file:` or `data:` URL."""

_SCHEME: Final = re.compile(r"(?=[+-]*[^\W_])(?:[^\W_]|[+-]){2,}:")
_STARTS: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"ID3", "audio/mpeg"),
    (b"\xff\xfb", "audio/mpeg"),
    (b"\xff\xf3", "audio/mpeg"),
    (b"\xff\xf2", "audio/mpeg"),
    (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
)
"""The first bytes of files. Of images, only those that models can see."""


def media_type(data: bytes) -> str | None:
    """The type of an image or a sound, by its first bytes; None for anything else."""
    for start, kind in _STARTS:
        if data.startswith(start):
            return kind
    if data[:4] == b"RIFF":
        return {b"WEBP": "image/webp", b"WAVE": "audio/wav"}.get(data[8:12])
    if data[4:12] == b"ftypM4A ":
        return "audio/mp4"
    return None


class _Media:
    """Bytes with their type."""

    _kind: str

    __slots__ = ("data", "mime_type")

    def __init__(self, source: Source, mime_type: str | None = None) -> None:
        """Reads the file, if it is one. Raises OSError if that fails, and `UsageError` if the type is neither
        given nor found, or there are no bytes."""
        self.data, named_type = _read(source)
        found = media_type(self.data)
        if found is not None and not found.startswith(self._kind):
            found = None
        if not self.data:
            raise UsageError(f"this {self._kind} has no bytes", hint="Models refuse what is empty.")
        kind = mime_type or found or named_type
        if kind is None or not kind.startswith(f"{self._kind}/"):
            what = "an" if self._kind[0] in "aeiou" else "a"
            raise UsageError(
                f"this does not look like {what} {self._kind} ({kind or 'unknown type'})",
                hint=f"Say what it is: `mime_type='{self._kind}/…'`.",
            )
        self.mime_type = kind

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.mime_type}, {len(self.data)} bytes>"

    def to_wire(self) -> JsonObject:
        return {"type": self._kind, "data": _base64(self.data), "mimeType": self.mime_type}


class Image(_Media):
    """A picture for the model: PNG, JPEG, GIF or WebP, as bytes, a path, or a `file:` or `data:` URL."""

    _kind = "image"
    __slots__ = ()


class Audio(_Media):
    """A sound, as bytes, a path, or a `file:` or `data:` URL."""

    _kind = "audio"
    __slots__ = ()


class Resource:
    """A document in a result: `Resource("notes.txt")` reads a file, `Resource("db:7", "text")` names its
    text."""

    __slots__ = ("data", "mime_type", "uri")

    def __init__(
        self,
        uri: str | os.PathLike[str],
        data: str | Bytes | None = None,
        mime_type: str | None = None,
    ) -> None:
        """Without `data` the file is read: raises OSError if that fails."""
        self.mime_type = mime_type
        self.data: str | bytes
        if data is None:
            content, named_type = _read(uri)
            self.mime_type = mime_type or named_type
            self.data = _text_or_bytes(content)
        else:
            # `bytes(5)` would be five zeros.
            self.data = data if isinstance(data, str) else bytes(memoryview(data))
        self.uri = _uri(uri)

    def __repr__(self) -> str:
        unit = "characters" if isinstance(self.data, str) else "bytes"
        return f"<Resource {self.uri}, {len(self.data)} {unit}>"

    def to_wire(self) -> JsonObject:
        resource: JsonObject = {"uri": self.uri}
        if self.mime_type is not None:
            resource["mimeType"] = self.mime_type
        if isinstance(self.data, str):
            resource["text"] = self.data
        else:
            resource["blob"] = _base64(self.data)
        return {"type": "resource", "resource": resource}


class ResourceLink:
    """A link to a document: a URL, or the path of a file. It is not read."""

    __slots__ = ("description", "mime_type", "name", "size", "title", "uri")

    def __init__(
        self,
        uri: str | os.PathLike[str],
        name: str | None = None,
        *,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        size: int | None = None,
    ) -> None:
        self.uri = _uri(uri)
        self.name = name or urlsplit(self.uri).path.rpartition("/")[2] or self.uri
        self.title, self.description, self.mime_type, self.size = title, description, mime_type, size

    def __repr__(self) -> str:
        return f"<ResourceLink {self.uri}>"

    def to_wire(self) -> JsonObject:
        optional = {
            "title": self.title,
            "description": self.description,
            "mimeType": self.mime_type,
            "size": self.size,
        }
        given = {key: value for key, value in optional.items() if value is not None}
        return {"type": "resource_link", "uri": self.uri, "name": self.name, **given}


Content: TypeAlias = Image | Audio | Resource | ResourceLink
"""A part of a result that is not data."""


class ToolResult:
    """The full result of a tool.

    `content`: anything that a tool may return. `structured`: an object, which is data in the message; Claude
    Code shows it to the model in place of the texts in `content`, but keeps images. `meta`: the result's
    `_meta`, which is in the message but not shown to the model. `is_error`: the call failed; the model gets
    the texts only.
    """

    __slots__ = ("content", "is_error", "meta", "structured")

    def __init__(
        self,
        content: object = None,
        *,
        structured: object = None,
        is_error: bool = False,
        meta: JsonObject | None = None,
    ) -> None:
        self.content, self.structured, self.is_error, self.meta = content, structured, is_error, meta

    def __repr__(self) -> str:
        fields = ((name, getattr(self, name)) for name in ("content", "structured", "is_error", "meta"))
        return f"ToolResult({', '.join(f'{name}={value!r}' for name, value in fields if value)})"


def bytes_content(data: bytes) -> JsonObject:
    """Bytes of any kind, as content."""
    kind = media_type(data)
    if kind is None:
        return Resource("bytes:result", data, "application/octet-stream").to_wire()
    return {"type": kind.partition("/")[0], "data": _base64(data), "mimeType": kind}


def _base64(data: bytes) -> str:
    return b64encode(data).decode("ascii")


def _text_or_bytes(data: bytes) -> str | bytes:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return data
    return data if "\0" in text else text


def _read(source: Source) -> tuple[bytes, str | None]:
    """The bytes, and the type by the name."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        return bytes(source), None
    text = os.fspath(source)
    if text.startswith("data:"):
        return _read_data_url(text)
    path = text
    if text.startswith("file:"):
        from urllib.request import url2pathname  # It imports the modules for HTTP.

        path = url2pathname(urlsplit(text).path)
    if "://" in path:
        raise UsageError(
            f"{text!r} is not fetched", hint="Fetch it and give the bytes, or give a `ResourceLink` to it."
        )
    # Here: few tools give files.
    from mimetypes import guess_type

    return Path(path).read_bytes(), guess_type(path)[0]


def _read_data_url(text: str) -> tuple[bytes, str | None]:
    head, comma, body = text.removeprefix("data:").partition(",")
    if not comma:
        raise UsageError("a `data:` URL has a comma before its data", hint="data:image/png;base64,…")
    kind, _, encoding = head.partition(";")
    data = unquote_to_bytes(body)
    if encoding.endswith("base64"):
        try:
            data = b64decode(b"".join(data.split()), validate=True)
        except ValueError as error:
            raise UsageError(f"the data of a `data:` URL is not base64: {error}") from error
    return data, kind or None


def _uri(uri: str | os.PathLike[str]) -> str:
    # A single letter is the drive of a path.
    if isinstance(uri, str) and _SCHEME.match(uri):
        return uri
    return Path(uri).absolute().as_uri()


# Results.

_CONTENT: Final = (Image, Audio, Resource, ResourceLink)
_BYTES: Final = (bytes, bytearray, memoryview)
_OWN: Final = (*_CONTENT, *_BYTES)
_NEEDED: Final[Mapping[str, tuple[str, tuple[type, ...]]]] = {
    "text": ("text", (str,)),
    "image": ("data", (str, *_BYTES)),
    "audio": ("data", (str, *_BYTES)),
    "resource": ("resource", (dict,)),
    "resource_link": ("uri", (str,)),
}
"""The kinds of content, and the key that each must have."""
_ATOMS: Final = frozenset((str, int, float, bool, type(None)))
"""Types that are not content and hold none, for a fast check."""
_MCP: Final = ("mcp", "mcp_types")
_RESULT_KEYS: Final = frozenset(("content", "structuredContent", "isError", "is_error", "_meta"))


class NotSendable(TypeError):
    """A tool returned something that cannot be sent."""


def as_result(value: object) -> JsonObject:
    """The result for the agent. Raises `NotSendable`, which says why not."""
    if type(value) is str:
        return {"content": [{"type": "text", "text": value}]}
    try:
        if isinstance(value, ToolResult):
            return _full(value)
        if _is_of_mcp(value):
            value = _dumped(value)
        if _is_result(value):
            return _passed(value)
        return _simple(value)
    except NotSendable:
        raise
    except RecursionError as error:
        raise NotSendable(f"a value of type `{type(value).__name__}` is nested too deeply to send") from error
    except Exception as error:
        raise NotSendable(
            f"a value of type `{type(value).__name__}` cannot be sent ({type(error).__name__}: {error})"
        ) from error


def error_result(text: str) -> JsonObject:
    """A result that says what went wrong."""
    return {"content": [{"type": "text", "text": text}], "isError": True}


def _full(value: ToolResult) -> JsonObject:
    content = value.content
    if content is None and value.structured is not None:
        content = value.structured
    result = as_result(content)
    if value.structured is not None:
        result["structuredContent"] = _object("structured", value.structured)
    if value.is_error:
        result["isError"] = True
    if value.meta is not None:
        result["_meta"] = _object("meta", value.meta)
    return result


def _object(name: str, value: object) -> JsonObject:
    data = _data(value)
    if not is_object(data):
        raise NotSendable(f"`{name}` must be an object, not a value of type `{type(value).__name__}`")
    return data


def _passed(value: JsonObject) -> JsonObject:
    """A result in the form of MCP. Many write `is_error`, as in Python."""
    result = cast(JsonObject, _data(value))
    if "is_error" in result:
        result.setdefault("isError", result.pop("is_error"))
    return result


def _simple(value: object) -> JsonObject:
    if value is None or _has_content([value]):
        return {"content": _parts([value])}
    data = _data(value)
    result: JsonObject = {"content": [_text(data)]}
    if is_object(data):
        result["structuredContent"] = data
    return result


def _parts(values: Sequence[object]) -> list[JsonObject]:
    parts: list[JsonObject] = []
    for each in values:
        if _is_list(each) and _has_content(each):
            parts += _parts(each)
        elif each is not None:
            parts.append(_part(each) if _is_content(each) else _text(_data(each)))
    return parts


def _part(value: object) -> JsonObject:
    if isinstance(value, _CONTENT):
        return value.to_wire()
    if isinstance(value, _BYTES):
        return bytes_content(bytes(cast(bytes, value)))
    return cast(JsonObject, _dumped(value) if _is_of_mcp(value) else _data(value))


def _text(data: Json) -> JsonObject:
    if isinstance(data, str):
        return {"type": "text", "text": data}
    if isinstance(data, float) and not math.isfinite(data):
        # JSON cannot express it.
        return {"type": "text", "text": str(data)}
    try:
        text = msgspec.json.encode(data).decode()
    except UnicodeEncodeError:
        text = json.dumps(data, ensure_ascii=False)
    return {"type": "text", "text": text}


# Checks.


def _is_content(value: object) -> bool:
    return isinstance(value, _OWN) or _is_content_object(value) or _is_of_mcp(value)


def _has_content(values: Sequence[object]) -> bool:
    return any(
        _is_content(each) or (_is_list(each) and _has_content(each))
        for each in values
        if type(each) not in _ATOMS
    )


def _is_list(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, (list, tuple))


def _is_content_object(value: object) -> TypeGuard[JsonObject]:
    """Whether it is content in the form of MCP."""
    if not is_object(value):
        return False
    kind: object = value.get("type")
    if not isinstance(kind, str) or kind not in _NEEDED:
        return False
    name, kinds = _NEEDED[kind]
    return isinstance(value.get(name), kinds)


def _is_result(value: object) -> TypeGuard[JsonObject]:
    """Whether it is a result in the form of MCP."""
    if not is_object(value) or "content" not in value or not value.keys() <= _RESULT_KEYS:
        return False
    content: object = value["content"]
    return isinstance(content, list) and all(
        _is_content_object(each) for each in cast("list[object]", content)
    )


def _is_of_mcp(value: Any) -> TypeGuard[Any]:  # noqa: ANN401 - a class of the library
    """Whether it is a value of the `mcp` library, which has a method for that."""
    return type(value).__module__.partition(".")[0] in _MCP and hasattr(value, "model_dump")


def _dumped(value: Any) -> JsonObject:  # noqa: ANN401 - a value of the `mcp` library
    dumped: JsonObject = value.model_dump(mode="json", by_alias=True, exclude_none=True)
    # Newer versions add keys to whole results that the agent does not know.
    is_whole = isinstance(dumped.get("content"), list)
    return {key: each for key, each in dumped.items() if not is_whole or key in _RESULT_KEYS}


# Data.


def _data(value: object) -> Json:
    return cast(Json, msgspec.to_builtins(value, str_keys=True, enc_hook=_unusual))


def _unusual(value: object) -> object:
    """Convert subclasses of types that msgspec knows, and values of pydantic and numpy."""
    if isinstance(value, ToolResult):
        raise NotSendable("`ToolResult` must be the result itself")
    if isinstance(value, _CONTENT):
        raise NotSendable(f"`{type(value).__name__}` must be the result itself or an item of a list of them")
    serializer: Any = getattr(type(value), "__pydantic_serializer__", None)
    if serializer is not None:
        return serializer.to_python(value, mode="json")
    for kind, plain in _PLAIN:
        if isinstance(value, kind):
            return plain(value)
    to_list: Any = getattr(value, "tolist", None)
    # An object that has every attribute, as mocks do, would never end.
    if callable(to_list) and not hasattr(listed := to_list(), "tolist"):
        return listed
    raise NotSendable(f"a value of type `{type(value).__name__}` cannot be sent")


_PLAIN: Final[tuple[tuple[Any, Callable[[Any], object]], ...]] = (
    (enum.Enum, attrgetter("value")),
    # In messages, until someone looks at it.
    (msgspec.Raw, msgspec.json.decode),
    (str, str.__str__),
    (int, int),
    (float, float),
    (os.PathLike, os.fspath),
    (Mapping, dict),
    (Sequence, list),
    (AbstractSet, list),
)
