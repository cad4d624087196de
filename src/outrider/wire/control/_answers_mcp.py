"""Answers about MCP servers: their state, their tools and resources, logins.

Not the JSON-RPC messages that pass between a server and the agent.
"""

from __future__ import annotations

from outrider.wire._value import Json, JsonObject
from outrider.wire.control._answers import Payload


class McpServerInfo(Payload):
    """How a server introduces itself."""

    name: str = ""
    version: str | None = None


class McpToolAnnotations(Payload, rename="camel"):
    """What a server says about a tool of its own."""

    read_only: bool | None = None
    destructive: bool | None = None
    open_world: bool | None = None


class McpToolInfo(Payload, rename={"meta": "_meta"}):
    """A tool of a server."""

    name: str = ""
    description: str | None = None
    annotations: McpToolAnnotations | None = None
    meta: JsonObject | None = None


class McpServerSetup(Payload):
    """The configuration of a server; which fields are there depends on `type`."""

    type: str | None = None
    """`stdio` (also if left out), `sse`, `http`, `sdk` or `claudeai-proxy`."""
    command: str | None = None
    args: list[str] | None = None
    env: dict[str, str] | None = None
    url: str | None = None
    headers: dict[str, str] | None = None
    name: str | None = None
    id: str | None = None
    timeout: float | None = None
    tools: list[Json] | None = None


class McpServerStatus(Payload, rename="camel"):
    """A server and the state of its connection."""

    name: str = ""
    status: str = ""
    """`connected`, `failed`, `needs-auth`, `pending` or `disabled`."""
    server_info: McpServerInfo | None = None
    error: str | None = None
    config: McpServerSetup | None = None
    transport: str | None = None
    scope: str | None = None
    """Where it was configured: `dynamic`, `user`, `project`, …"""
    source: str | None = None
    tools: list[McpToolInfo] | None = None
    """None: not known, because it is not connected."""


class McpServers(Payload, rename={"servers": "mcpServers"}):
    """All servers of the session."""

    servers: list[McpServerStatus] = []


class McpServersSet(Payload):
    """What changed when the dynamic servers were replaced."""

    added: list[str] = []
    """With those that then failed."""
    removed: list[str] = []
    errors: dict[str, str] = {}
    """By server, why it could not be started."""


class McpResourceContents(Payload, rename={"mime_type": "mimeType", "meta": "_meta"}):
    """A piece of a resource: text, or base64 in `blob`."""

    uri: str = ""
    mime_type: str | None = None
    text: str | None = None
    blob: str | None = None
    meta: JsonObject | None = None


class McpResource(Payload):
    """A resource of a server."""

    contents: list[McpResourceContents] = []


class McpStaging(Payload):
    """What became of the files of a call."""

    error_code: str | None = None
    """`expired`, `input_missing`, `tool_error`, `output_conflict` or `output_too_large`."""
    detail: Json = None


class McpCallResult(
    Payload, rename={"structured_content": "structuredContent", "is_error": "isError", "meta": "_meta"}
):
    """What a tool gave back."""

    content: list[JsonObject] = []
    """Content blocks as MCP spells them."""
    structured_content: JsonObject | None = None
    is_error: bool | None = None
    meta: JsonObject | None = None
    staging: McpStaging | None = None


class McpPermissionModeOverridden(Payload):
    """The permission mode of a server was changed."""

    warning: str | None = None


class McpAuthentication(Payload, rename="camel"):
    """What a login to a server needs."""

    auth_url: str | None = None
    """Where the user logs in."""
    requires_user_action: bool | None = None
