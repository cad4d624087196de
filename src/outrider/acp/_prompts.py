"""Reads what an editor gives: the blocks of a prompt, folders, and MCP servers.

Raises `RpcError` for what cannot be meant, before an agent sees any of it.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, assert_never
from urllib.parse import unquote, urlsplit

from acp import schema

from outrider.acp._rpc import INVALID_PARAMS, RpcError
from outrider.errors import OptionsError, UsageError
from outrider.options import HttpServer, SseServer, StdioServer
from outrider.session import document, image
from outrider.wire import TextBlock

if TYPE_CHECKING:
    from typing import TypeAlias

    from outrider.options._forms import McpServer
    from outrider.wire import ContentBlock

    Block: TypeAlias = (
        schema.TextContentBlock
        | schema.ImageContentBlock
        | schema.AudioContentBlock
        | schema.ResourceContentBlock
        | schema.EmbeddedResourceContentBlock
    )
    Server: TypeAlias = (
        schema.HttpMcpServer | schema.SseMcpServer | schema.AcpMcpServer | schema.McpServerStdio
    )

_LINES: Final = re.compile(r"L?(\d+)(?:[:-]L?(\d+))?")


def invalid(message: str) -> RpcError:
    """The error for parameters that have the right form and cannot be meant."""
    return RpcError(INVALID_PARAMS, message)


def read_prompt(blocks: Sequence[Block]) -> list[ContentBlock]:
    """The prompt, as an agent takes it. What the user wrote stays as written, slash commands included."""
    found: list[ContentBlock] = []
    for index, block in enumerate(blocks):
        try:
            read = _block(block)
        except (UsageError, ValueError) as error:
            raise invalid(f"`prompt.{index}` cannot be sent: {error}") from error
        if read is not None:
            found.append(read)
    if not found:
        raise invalid("`prompt` is empty")
    return found


def _block(block: Block) -> ContentBlock | None:
    match block:
        case schema.TextContentBlock():
            return TextBlock(block.text) if block.text.strip() else None
        case schema.ImageContentBlock():
            if not block.data and block.uri and block.uri.startswith(("https://", "http://")):
                return image(block.uri)
            return image(_bytes(block.data), media_type=block.mime_type)
        case schema.AudioContentBlock():
            raise UsageError("audio is not supported, as the capabilities say")
        case schema.ResourceContentBlock():
            return TextBlock(_mention(block.uri, block.title or block.name))
        case schema.EmbeddedResourceContentBlock(resource=schema.TextResourceContents() as resource):
            text = resource.text
            if not text.strip():
                return TextBlock(f"{_mention(resource.uri, resource.uri)} is empty.")
            return document(text.encode(errors="replace"), title=_name(resource.uri), context=resource.uri)
        case schema.EmbeddedResourceContentBlock(resource=schema.BlobResourceContents() as resource):
            data, kind = _bytes(resource.blob), resource.mime_type or ""
            if kind.startswith("image/"):
                return image(data, media_type=kind)
            return document(data, title=_name(resource.uri), context=resource.uri)
        case schema.EmbeddedResourceContentBlock():
            raise UsageError("its resource is neither text nor bytes")
        case _:
            assert_never(block)


def _bytes(data: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except binascii.Error as error:
        raise UsageError(f"its data is not base64: {error}") from error


def path_of(uri: str) -> str | None:
    """The path that a `file:` URI names; None for any other."""
    parts = urlsplit(uri)
    return unquote(parts.path) if parts.scheme == "file" and parts.path else None


def _name(uri: str) -> str:
    return path_of(uri) or uri


def _mention(uri: str, name: str) -> str:
    """A link, in the way in which Claude Code reads a file by itself if it is one."""
    path = path_of(uri)
    if path is None or '"' in path or "\n" in path:
        return f"[{name}]({uri})"
    lines = _LINES.fullmatch(urlsplit(uri).fragment)
    part = f"#L{lines[1]}{f'-{lines[2]}' if lines[2] else ''}" if lines else ""
    return f'@"{path}{part}"' if re.search(r"\s", path) else f"@{path}{part}"


def read_folder(name: str, path: str) -> str:
    """A folder, which has to exist and be named by an absolute path."""
    folder = Path(path)
    if not folder.is_absolute():
        raise invalid(f"`{name}` is {path!r}, and has to be an absolute path")
    if not folder.is_dir():
        raise invalid(f"`{name}` is {path!r}, and there is no such folder")
    return path


def read_servers(servers: Sequence[Server] | None) -> dict[str, McpServer]:
    """The MCP servers of the editor, by name."""
    found: dict[str, McpServer] = {}
    for server in servers or ():
        try:
            found[server.name] = _server(server)
        except OptionsError as error:
            raise invalid(f"the MCP server {server.name!r} cannot be used: {error}") from error
    return found


def _server(server: Server) -> McpServer:
    match server:
        case schema.McpServerStdio():
            env = {each.name: each.value for each in server.env}
            return StdioServer(command=server.command, args=tuple(server.args), env=env)
        case schema.HttpMcpServer() | schema.SseMcpServer():
            headers = {each.name: each.value for each in server.headers}
            kind = HttpServer if isinstance(server, schema.HttpMcpServer) else SseServer
            return kind(url=server.url, headers=headers)
        case schema.AcpMcpServer():
            raise OptionsError("servers over the protocol itself are not supported, as the capabilities say")
        case _:
            assert_never(server)
