"""What a tool may give back besides data: images, sounds, resources, and a result with all its parts.

Knows how MCP writes them; does not know how data becomes content.
"""

from __future__ import annotations

import mimetypes
import os
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import unquote_to_bytes, urlsplit

from outrider.errors import UsageError
from outrider.wire import JsonObject

Bytes: TypeAlias = bytes | bytearray | memoryview
Source: TypeAlias = Bytes | str | os.PathLike[str]
"""Bytes, the path of a file, or a `file:` or `data:` URL."""

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
"""How files begin. Of images, those that models can see."""


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
        self.data, told = _read(source)
        found = media_type(self.data)
        if found is not None and not found.startswith(self._kind):
            found = None
        if not self.data:
            raise UsageError(f"this {self._kind} has no bytes", hint="Models refuse what is empty.")
        kind = mime_type or found or told
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
    """A document as part of a result: `Resource("notes.txt")` reads a file, `Resource("db:7", "text")` gives
    what it holds along with its name."""

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
            content, told = _read(uri)
            self.mime_type = mime_type or told
            self.data = _text_or_bytes(content)
        else:
            # Of a number `bytes` would make as many zeros.
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
    """Where a document is: a URL, or the path of a file. It is not read."""

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
"""A part of a result that is no data."""


class ToolResult:
    """A result with all that it can have, for a tool that wants to say more than a value does.

    `content`: anything that a tool may return. `structured`: an object, which the program finds in the
    message as data. The agent shows it to the model in place of the texts in `content`; images stay. `meta`:
    the result's `_meta`, which the program finds in the message and the model does not see. `is_error`: the
    call failed; the model gets the texts, and nothing else.
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
    """Bytes of whatever kind, as content."""
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
    """The bytes, and the type that the name says they have."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        return bytes(source), None
    text = os.fspath(source)
    if text.startswith("data:"):
        return _read_data_url(text)
    path = _path_of_url(text) if text.startswith("file:") else text
    if "://" in path:
        raise UsageError(
            f"{text!r} is not fetched", hint="Fetch it and give the bytes, or give a `ResourceLink` to it."
        )
    return Path(path).read_bytes(), mimetypes.guess_type(path)[0]


def _path_of_url(text: str) -> str:
    from urllib.request import url2pathname  # It loads all of HTTP.

    return url2pathname(urlsplit(text).path)


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
            raise UsageError(f"the data of a `data:` URL is no base64: {error}") from error
    return data, kind or None


def _uri(uri: str | os.PathLike[str]) -> str:
    if isinstance(uri, str) and _has_scheme(uri):
        return uri
    return Path(uri).absolute().as_uri()


def _has_scheme(text: str) -> bool:
    scheme = text.partition(":")[0]
    # One letter is the drive of a path.
    return ":" in text and len(scheme) > 1 and scheme.replace("+", "").replace("-", "").isalnum()
