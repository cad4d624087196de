"""What a session can ask about MCP servers: state, connection, tools and resources, logins.

Does not run servers, and does not carry their messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import cast

from outrider.errors import OptionsError
from outrider.options import SdkServer, StdioServer
from outrider.options._readers import fault, is_path, json_object, switch, text, whole, within
from outrider.options._servers import read_permission_mode, read_servers
from outrider.session._requests_asking import UNSET, Asking, Timeout
from outrider.wire import JsonObject, control
from outrider.wire.choices import PermissionMode

_RENAME = "Give it another name."


class McpRequests(Asking):
    """The part of `Requests` that is about MCP servers."""

    async def mcp_status(self, *, timeout: Timeout = UNSET) -> list[control.McpServerStatus]:
        """All servers of the session, the state of their connections, and their tools."""
        return (await self.request(control.McpStatus(), timeout=timeout)).servers

    async def mcp_set_servers(
        self, servers: Mapping[str, object], *, timeout: Timeout = UNSET
    ) -> control.McpServersSet:
        """Replace the servers that earlier calls of this method added; those of the start stay.

        Servers are given as in `Options.mcp_servers`, those that run in this process among them. Look at
        `errors` in the answer: a server that does not start is no exception.
        """
        external, own = _sorted("`servers`", servers)
        async with self._serving(own) as told:
            for name in external.keys() & told.keys():
                place = within("`servers`", name)
                raise OptionsError(
                    f"{place} has the name of a server that runs in this process", hint=_RENAME
                )
            return await self.request(control.McpSetServers({**told, **external}), timeout=timeout)

    def _serving(self, own: Mapping[str, SdkServer]) -> AbstractAsyncContextManager[Mapping[str, JsonObject]]:
        """Serve these as well, in place of those of an earlier call; gives all that run in this process as
        the agent has to be told: it drops what a request does not name."""
        for name in own:
            raise OptionsError(f"the server {name!r} runs in this process, and there is nothing to serve it")
        return nullcontext({})

    async def mcp_reconnect(self, server: str, *, timeout: Timeout = UNSET) -> None:
        """Connect to a server again. Raises `RequestFailed` if that does not work."""
        await self.request(control.McpReconnect(text("`server`", server)), timeout=timeout)

    async def mcp_toggle(self, server: str, enabled: bool, *, timeout: Timeout = UNSET) -> None:
        """Switch a server on or off."""
        request = control.McpToggle(text("`server`", server), switch("`enabled`", enabled))
        await self.request(request, timeout=timeout)

    async def mcp_call(
        self,
        tool: str,
        arguments: Mapping[str, object] | None = None,
        *,
        check_permissions: bool = False,
        result_not_for_model: bool = False,
        tool_seconds: float | None = None,
        timeout: Timeout = UNSET,
    ) -> control.McpCallResult:
        """Call a tool of a server directly, without the model.

        `tool` is named as the model does, `mcp__server__tool`. Permission rules are only looked at with
        `check_permissions`. `tool_seconds` is how long the agent waits for the tool, 1 to 600; give a longer
        `timeout` with it. Look at `is_error` in the answer: a tool that fails is no exception.
        """
        request = control.McpCall(
            _tool_name("`tool`", tool),
            None if arguments is None else cast(JsonObject, json_object("`arguments`", arguments)),
            timeout_ms=None if tool_seconds is None else _milliseconds("`tool_seconds`", tool_seconds),
            result_not_for_model=switch("`result_not_for_model`", result_not_for_model) or None,
            check_permissions=switch("`check_permissions`", check_permissions) or None,
        )
        return await self.request(request, timeout=timeout)

    async def mcp_read_resource(
        self, server: str, uri: str, *, timeout: Timeout = UNSET
    ) -> list[control.McpResourceContents]:
        """Read a resource of a server. The agent gives out those whose `uri` begins with `ui://`."""
        request = control.McpReadResource(text("`server`", server), text("`uri`", uri))
        return (await self.request(request, timeout=timeout)).contents

    async def mcp_set_permission_mode(
        self, server: str, mode: PermissionMode | None, *, timeout: Timeout = UNSET
    ) -> str | None:
        """Give the tools of one server a permission mode of their own: `default` or `auto`. None: that of the
        session.

        Gives back a warning of the agent's, if it has one: that it does not know the server yet.
        """
        wanted = None if mode is None else cast(str, read_permission_mode("`mode`", mode))
        request = control.SetMcpPermissionModeOverride(text("`server`", server), wanted)
        return (await self.request(request, timeout=timeout)).warning

    async def mcp_enable_channel(self, server: str, *, timeout: Timeout = UNSET) -> None:
        """Let a server send messages into the conversation."""
        await self.request(control.ChannelEnable(text("`server`", server)), timeout=timeout)

    # Logins.

    async def mcp_authenticate(
        self,
        server: str,
        *,
        redirect_uri: str | None = None,
        redirect_uri_only: bool = False,
        timeout: Timeout = UNSET,
    ) -> control.McpAuthentication:
        """Begin a login to a server; the answer has the address at which the user logs in.

        With a `redirect_uri` of its own, the caller then hands over where the user was sent, with
        `mcp_submit_callback`.
        """
        request = control.McpAuthenticate(
            text("`server`", server),
            None if redirect_uri is None else text("`redirect_uri`", redirect_uri),
            switch("`redirect_uri_only`", redirect_uri_only) or None,
        )
        return await self.request(request, timeout=timeout)

    async def mcp_submit_callback(
        self, server: str, callback_url: str, *, timeout: Timeout = UNSET
    ) -> control.Undocumented:
        """End a login to a server: `callback_url` is the address that the user was sent back to."""
        # Not shown if it is wrong: it holds the code of the login.
        if not isinstance(cast(object, callback_url), str) or "://" not in callback_url:
            raise fault("`callback_url`", "a URL", callback_url, "Give all of it.", hidden=True)
        request = control.McpOauthCallbackUrl(text("`server`", server), callback_url)
        return await self.request(request, timeout=timeout)

    async def mcp_clear_authentication(
        self, server: str, *, timeout: Timeout = UNSET
    ) -> control.Undocumented:
        """Forget the login to a server."""
        return await self.request(control.McpClearAuth(text("`server`", server)), timeout=timeout)


def _sorted(place: str, servers: object) -> tuple[dict[str, JsonObject], dict[str, SdkServer]]:
    """The servers that the agent connects to itself, as it reads them, and those of this process."""
    if is_path(servers):
        hint = "Read the file, and give what is under its `mcpServers`."
        raise fault(place, "a mapping of names to servers", servers, hint, hidden=True)
    external: dict[str, JsonObject] = {}
    own: dict[str, SdkServer] = {}
    for name, server in read_servers(place, servers).items():
        if isinstance(server, SdkServer):
            own[name] = server
        else:
            # The agent fails for a command without arguments if it is not told that there are none.
            none: JsonObject = {"args": []} if isinstance(server, StdioServer) else {}
            external[name] = none | server.to_wire()
    return external, own


def _tool_name(place: str, value: object) -> str:
    name = text(place, value)
    if not name.startswith("mcp__") or "__" not in name[5:].strip("_"):
        raise fault(place, "the full name of a tool of an MCP server", value, "Give 'mcp__server__tool'.")
    return name


def _milliseconds(place: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 1 <= value <= 600:
        raise fault(place, "a number of seconds from 1 to 600", value)
    return cast(int, whole(1)(place, int(value * 1000)))
