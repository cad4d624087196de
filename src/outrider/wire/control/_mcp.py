"""Defines the requests about MCP servers (status, connection, tools, resources, logins) and their answers.

The servers' own messages are in `_jsonrpc`.
"""

from __future__ import annotations

from outrider.wire._value import Json, JsonObject, Value
from outrider.wire.control._base import Acknowledged, Payload, Request, Undocumented


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


class McpStatus(Request[McpServers], tag="mcp_status", rename="camel"):
    """Asks for all servers and the state of their connections."""

    live_reply: Json = None
    """Only means something to a remote session."""


class McpReconnect(Request[Acknowledged], tag="mcp_reconnect", rename="camel"):
    """Connects to a server again."""

    server_name: str


class McpToggle(Request[Acknowledged], tag="mcp_toggle", rename="camel"):
    """Switches a server on or off."""

    server_name: str
    enabled: bool


class McpSetServers(Request[McpServersSet], tag="mcp_set_servers"):
    """Replaces the servers that earlier requests of this kind added; others stay."""

    servers: dict[str, JsonObject]
    """Configurations by name, spelled as the agent reads them."""


class SendMcpMessage(Request[Acknowledged], tag="mcp_message"):
    """Carries a JSON-RPC message from a server in the host to the agent."""

    server_name: str
    message: JsonObject


class McpReadResource(Request[McpResource], tag="mcp_read_resource", rename="camel"):
    """Reads a resource of a server."""

    server_name: str
    uri: str
    """Only `ui://…` is allowed."""


class McpInputFile(Value):
    """A file that a call is given."""

    name: str
    lane_path: str


class McpOutputFile(Value):
    """A file that a call may write."""

    name: str
    lane_path: str
    if_match: str | None = None


class McpCall(Request[McpCallResult], tag="mcp_call"):
    """Calls a tool of a server directly, without a turn of the model."""

    tool: str
    """`mcp__server__tool`."""
    arguments: JsonObject | None = None
    expires_at: float | None = None
    timeout_ms: int | None = None
    """1,000 to 600,000."""
    result_not_for_model: bool | None = None
    check_permissions: bool | None = None
    """Without it, permission rules are not looked at."""
    input_files: list[McpInputFile] | None = None
    output_files: list[McpOutputFile] | None = None


class SetMcpPermissionModeOverride(
    Request[McpPermissionModeOverridden], tag="set_mcp_permission_mode_override", rename="camel"
):
    """Gives the tools of one server a permission mode of their own."""

    server_name: str
    mode: str | None
    """`default` or `auto`. None, sent as null: that of the session."""


class McpAuthenticate(Request[McpAuthentication], tag="mcp_authenticate", rename="camel"):
    """Starts a login to a server."""

    server_name: str
    redirect_uri: str | None = None
    redirect_uri_only: bool | None = None


class McpOauthCallbackUrl(Request[Undocumented], tag="mcp_oauth_callback_url", rename="camel"):
    """Passes on the address that a login was redirected to."""

    server_name: str
    callback_url: str


class McpClearAuth(Request[Undocumented], tag="mcp_clear_auth", rename="camel"):
    """Forgets the login to a server."""

    server_name: str


class ChannelEnable(Request[Acknowledged], tag="channel_enable", rename="camel"):
    """Lets a server send messages into the conversation."""

    server_name: str
