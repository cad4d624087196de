"""Owns the shapes of MCP servers in options, and of what the agent says of them.

Does not start or call any.
"""

# Annotations are evaluated where they stand: else `NotRequired` would mean nothing at run time.

from typing import Any, Literal, NotRequired, TypeAlias, TypedDict

__all__ = [
    "McpClaudeAIProxyServerConfig",
    "McpHttpServerConfig",
    "McpSSEServerConfig",
    "McpSdkServerConfig",
    "McpSdkServerConfigStatus",
    "McpServer",
    "McpServerConfig",
    "McpServerConnectionStatus",
    "McpServerInfo",
    "McpServerStatus",
    "McpServerStatusConfig",
    "McpStatusResponse",
    "McpStdioServerConfig",
    "McpToolAnnotations",
    "McpToolInfo",
]

McpServer: TypeAlias = Any
"""A server of this process: what `create_sdk_mcp_server` makes, or one of the `mcp` library."""


class McpStdioServerConfig(TypedDict):
    """A server that the agent starts as a program."""

    type: NotRequired[Literal["stdio"]]
    command: str
    args: NotRequired[list[str]]
    env: NotRequired[dict[str, str]]


class McpSSEServerConfig(TypedDict):
    """A server that the agent reaches by HTTP with server-sent events."""

    type: Literal["sse"]
    url: str
    headers: NotRequired[dict[str, str]]


class McpHttpServerConfig(TypedDict):
    """A server that the agent reaches by HTTP."""

    type: Literal["http"]
    url: str
    headers: NotRequired[dict[str, str]]


class McpSdkServerConfig(TypedDict):
    """A server of this process."""

    type: Literal["sdk"]
    name: str
    instance: McpServer


McpServerConfig: TypeAlias = (
    McpStdioServerConfig | McpSSEServerConfig | McpHttpServerConfig | McpSdkServerConfig
)
"""A server in options."""


class McpSdkServerConfigStatus(TypedDict):
    """A server of this process, as the agent sees it."""

    type: Literal["sdk"]
    name: str


class McpClaudeAIProxyServerConfig(TypedDict):
    """A server that the account has."""

    type: Literal["claudeai-proxy"]
    url: str
    id: str


McpServerStatusConfig: TypeAlias = (
    McpStdioServerConfig
    | McpSSEServerConfig
    | McpHttpServerConfig
    | McpSdkServerConfigStatus
    | McpClaudeAIProxyServerConfig
)
"""A server as the agent was told of it."""

McpServerConnectionStatus: TypeAlias = Literal["connected", "failed", "needs-auth", "pending", "disabled"]
"""Where the agent stands with a server."""


class McpToolAnnotations(TypedDict, total=False):
    """What a tool says of its nature."""

    readOnly: bool
    destructive: bool
    openWorld: bool


class McpToolInfo(TypedDict):
    """A tool of a server."""

    name: str
    description: NotRequired[str]
    annotations: NotRequired[McpToolAnnotations]


class McpServerInfo(TypedDict):
    """What a server says of itself."""

    name: str
    version: str


class McpServerStatus(TypedDict):
    """A server, and where the agent stands with it."""

    name: str
    status: McpServerConnectionStatus
    serverInfo: NotRequired[McpServerInfo]
    error: NotRequired[str]
    config: NotRequired[McpServerStatusConfig]
    scope: NotRequired[str]
    tools: NotRequired[list[McpToolInfo]]


class McpStatusResponse(TypedDict):
    """All servers."""

    mcpServers: list[McpServerStatus]
