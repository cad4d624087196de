"""Requests about MCP servers: state, connection, tools and resources, logins.

What the agent answers is in `_answers_mcp`.
"""

from __future__ import annotations

from outrider.wire._value import Json, JsonObject, Value
from outrider.wire.control._answers import Acknowledged, Undocumented
from outrider.wire.control._answers_mcp import (
    McpAuthentication,
    McpCallResult,
    McpPermissionModeOverridden,
    McpResource,
    McpServers,
    McpServersSet,
)
from outrider.wire.control._requests import Request


class McpStatus(Request[McpServers], tag="mcp_status", rename="camel"):
    """Asks for all servers and the state of their connections."""

    answer = McpServers

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

    answer = McpServersSet

    servers: dict[str, JsonObject]
    """Configurations by name, spelled as the agent reads them."""


class SendMcpMessage(Request[Acknowledged], tag="mcp_message"):
    """Carries a JSON-RPC message from a server in the host to the agent."""

    server_name: str
    message: JsonObject


class McpReadResource(Request[McpResource], tag="mcp_read_resource", rename="camel"):
    """Reads a resource of a server."""

    answer = McpResource

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

    answer = McpCallResult

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

    answer = McpPermissionModeOverridden

    server_name: str
    mode: str | None
    """`default` or `auto`. None, sent as null: that of the session."""


class McpAuthenticate(Request[McpAuthentication], tag="mcp_authenticate", rename="camel"):
    """Begins a login to a server."""

    answer = McpAuthentication

    server_name: str
    redirect_uri: str | None = None
    redirect_uri_only: bool | None = None


class McpOauthCallbackUrl(Request[Undocumented], tag="mcp_oauth_callback_url", rename="camel"):
    """Hands over the address that a login was sent back to."""

    answer = Undocumented

    server_name: str
    callback_url: str


class McpClearAuth(Request[Undocumented], tag="mcp_clear_auth", rename="camel"):
    """Forgets the login to a server."""

    answer = Undocumented

    server_name: str


class ChannelEnable(Request[Acknowledged], tag="channel_enable", rename="camel"):
    """Lets a server send messages into the conversation."""

    server_name: str
