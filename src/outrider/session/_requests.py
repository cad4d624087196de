"""Owns `Requests`: what a session can ask the agent, the questions that most programs ask as methods.

Does not know how a request travels, nor what a turn is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from enum import Enum
from typing import Any, Final, Literal, TypeAlias, TypeVar, cast, overload

from outrider.errors import OptionsError, RequestFailed, RequestTimedOut, Unsupported
from outrider.handlers._tool_names import resolved_settings
from outrider.options import SdkServer, StdioServer
from outrider.options._forms import mode_name, servers_by_name
from outrider.options._tool_names import ANY_TOOL, ToolNames
from outrider.options._validators import choice, invalid_value, is_path, json_object, switch, text, within
from outrider.wire import JsonObject, control
from outrider.wire.choices import PermissionMode
from outrider.wire.control import Request

T = TypeVar("T")


class Unset(Enum):
    """The type of `UNSET`, which stands for an argument that is not given where None means something."""

    UNSET = "unset"

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = Unset.UNSET

Timeout: TypeAlias = float | Unset | None
"""Seconds to wait for an answer. Unset: the session's `timeouts.control`. None: for ever."""


_RENAME: Final = "Give it another name."


class Requests(ABC):
    """The requests that a session can send to the agent, besides prompts.

    They can be asked at any time, also during a turn. What has no method is asked with `request`. Every one
    takes `timeout`, in seconds: if it is left out, the session's `timeouts.control` counts; None waits for
    ever. Each may raise

    - `RequestFailed` if the agent refuses: its words are the message, its `code` tells why where it has one;
    - `Unsupported`, which is one of these, if the program that runs does not know the request;
    - `RequestTimedOut`, another, if no answer comes in time;
    - `ConnectionLost` if none can come any more;
    - `OptionsError` for an argument that cannot be meant; then nothing was sent.

    Cancelling a call takes the request back.
    """

    @overload
    @abstractmethod
    async def request(self, request: Request[T], /, *, timeout: Timeout = UNSET) -> T: ...

    @overload
    @abstractmethod
    async def request(self, request: str, /, *, timeout: Timeout = UNSET, **fields: object) -> JsonObject: ...

    @abstractmethod
    async def request(
        self, request: Request[T] | str, /, *, timeout: Timeout = UNSET, **fields: object
    ) -> T | JsonObject:
        """Send any control request, and wait for the answer.

        Each request of `outrider.wire.control` names the type of its answer: `GetSettings()` gives a
        `SettingsReport`. A text is the name of a request on the wire, with its fields as the agent spells
        them; the answer is then the payload as it came.

        Raises `RequestFailed` if the agent refuses, `Unsupported` if it does not know the request,
        `RequestTimedOut` if no answer comes, `ConnectionLost` if none can come any more. Cancelling the call
        takes the request back.
        """

    # The turn.

    async def interrupt(
        self, *, cancel_queued: bool = False, timeout: Timeout = UNSET
    ) -> control.Interrupted:
        """Stop the running turn. Its last messages and its result still follow.

        `cancel_queued` also drops the prompts that wait for their turn. The answer tells which were dropped
        and which will still get one. Without a turn, nothing happens.
        """
        cancel = switch("`cancel_queued`", cancel_queued) or None
        return await self.request(control.Interrupt(cancel), timeout=timeout)

    async def cancel_message(self, uuid: str, *, timeout: Timeout = UNSET) -> bool:
        """Withdraw a queued prompt; False if its turn has started or it is unknown."""
        answer = await self.request(control.CancelAsyncMessage(text("`uuid`", uuid)), timeout=timeout)
        return answer.cancelled

    async def stop_task(self, task_id: str, *, timeout: Timeout = UNSET) -> None:
        """Stop a background task. Claude Code does not say whether a task with this id existed."""
        await self.request(control.StopTask(text("`task_id`", task_id)), timeout=timeout)

    # How the agent works.

    async def set_permission_mode(self, mode: PermissionMode, *, timeout: Timeout = UNSET) -> str:
        """Change the permission mode; returns the mode that is now in force.

        `bypassPermissions` is refused with the code `bypass_not_launched` unless the session was started
        with `allow_dangerously_skip_permissions`.
        """
        wanted = cast(str, mode_name("`mode`", mode))
        answer = await self.request(control.SetPermissionMode(wanted), timeout=timeout)
        return answer.mode or wanted

    async def set_model(self, model: str | None = None, *, timeout: Timeout = UNSET) -> str:
        """Change the model; returns its full name. None: the model that the session started with.

        A full name is tried out first: the agent makes a small call to the API, which can take 15 seconds. If
        that fails, the model stays as it was, and the code of the `RequestFailed` tells why: `not_found`,
        `check_rejected`, `check_server_error` or `check_unreachable`.
        """
        wanted = None if model is None else text("`model`", model)
        answer = await self.request(control.SetModel(wanted), timeout=timeout)
        # An older program does not say; "default" is its own word for what it began with.
        return answer.model or wanted or "default"

    async def apply_settings(self, settings: Mapping[str, object], *, timeout: Timeout = UNSET) -> None:
        """Change settings for this session only.

        Keys are as in a settings file: `effortLevel`, `permissions`, … Each replaces what it was before; None
        takes it away. One bad value, and nothing is changed: the `RequestFailed` names it. In permission
        rules tools of yours may be named as in `allowed_tools`.
        """
        changes = cast(JsonObject, json_object("`settings`", settings))
        request = control.ApplyFlagSettings(resolved_settings("`settings`", changes, self._names_of_tools()))
        await self.request(request, timeout=timeout)

    # The session.

    async def rename(self, title: str, *, timeout: Timeout = UNSET) -> None:
        """Set the title that lists of sessions show."""
        await self.request(control.RenameSession(text("`title`", title)), timeout=timeout)

    async def generate_title(
        self, description: str, *, persist: bool = False, timeout: Timeout = UNSET
    ) -> str | None:
        """Have the model write a title; with `persist`, the session gets it. None if that failed."""
        request = control.GenerateSessionTitle(
            text("`description`", description), switch("`persist`", persist)
        )
        return (await self.request(request, timeout=timeout)).title

    async def rewind_files(
        self, user_message_id: str, *, dry_run: bool = False, timeout: Timeout = UNSET
    ) -> control.RewindReport:
        """Restore files to their state before a message of the user.

        `dry_run` only reports what would change. Needs `enable_file_checkpointing`. If the agent cannot do
        it, this does not raise: `can_rewind` is False, and `error` says why.
        """
        dry = switch("`dry_run`", dry_run) or None
        request = control.RewindFiles(text("`user_message_id`", user_message_id), dry)
        try:
            return await self.request(request, timeout=timeout)
        except (Unsupported, RequestTimedOut):
            raise
        except RequestFailed as refused:
            # The agent refuses in two ways: by the answer to a dry run, and by an error otherwise.
            return control.RewindReport.from_wire({"canRewind": False, "error": refused.message})

    # Consumption.

    async def context_usage(
        self, *, detail: Literal["summary", "full"] | None = None, timeout: Timeout = UNSET
    ) -> control.ContextUsage:
        """What fills the context window.

        `summary` is an estimate at once; `full`, the default, has the API count everything.
        """
        wanted = None if detail is None else cast(str, choice("summary", "full")("`detail`", detail))
        return await self.request(control.GetContextUsage(wanted), timeout=timeout)

    async def usage_report(
        self, *, skip_behaviors: bool = False, timeout: Timeout = UNSET
    ) -> control.UsageReport:
        """What the session has used, and what the account has left.

        `skip_behaviors` saves the scan of the transcripts on the agent's machine.
        """
        skip = switch("`skip_behaviors`", skip_behaviors) or None
        return await self.request(control.GetUsage(skip), timeout=timeout)

    # MCP servers.

    async def mcp_status(self, *, timeout: Timeout = UNSET) -> list[control.McpServerStatus]:
        """All servers of the session, the state of their connections, and their tools."""
        return (await self.request(control.McpStatus(), timeout=timeout)).servers

    async def mcp_set_servers(
        self, servers: Mapping[str, object], *, timeout: Timeout = UNSET
    ) -> control.McpServersSet:
        """Replace the servers that earlier calls of this method added; those given at the start stay.

        Servers are given as in `Options.mcp_servers`, those that run in this process among them. Look at
        `errors` in the answer: a server that does not start raises nothing.
        """
        external, own = _sorted("`servers`", servers)
        async with self._serving(own) as internal:
            for name in external.keys() & internal.keys():
                place = within("`servers`", name)
                raise OptionsError(
                    f"{place} has the name of a server that runs in this process", hint=_RENAME
                )
            return await self.request(control.McpSetServers({**internal, **external}), timeout=timeout)

    async def mcp_reconnect(self, server: str, *, timeout: Timeout = UNSET) -> None:
        """Connect to a server again. Raises `RequestFailed` if that does not work."""
        await self.request(control.McpReconnect(text("`server`", server)), timeout=timeout)

    async def mcp_toggle(self, server: str, enabled: bool, *, timeout: Timeout = UNSET) -> None:
        """Turn a server on or off."""
        request = control.McpToggle(text("`server`", server), switch("`enabled`", enabled))
        await self.request(request, timeout=timeout)

    # What a session knows.

    def _serving(self, own: Mapping[str, SdkServer]) -> AbstractAsyncContextManager[Mapping[str, JsonObject]]:
        """Serve these as well, in place of those of an earlier call. Returns all servers of this process, for
        the request: the agent drops those that a request does not name."""
        for name in own:
            raise OptionsError(f"the server {name!r} runs in this process, and there is nothing to serve it")
        return nullcontext({})

    def _names_of_tools(self) -> ToolNames:
        """The tools that the session can have."""
        return ANY_TOOL


def _sorted(place: str, servers: object) -> tuple[dict[str, JsonObject], dict[str, SdkServer]]:
    """The servers that the agent connects to itself, as it reads them, and those of this process."""
    if is_path(servers):
        hint = "Read the file, and give what is under its `mcpServers`."
        raise invalid_value(place, "a mapping of names to servers", servers, hint, hidden=True)
    external: dict[str, JsonObject] = {}
    own: dict[str, SdkServer] = {}
    for name, server in servers_by_name(place, servers).items():
        if isinstance(server, SdkServer):
            own[name] = server
        else:
            # The agent fails for a command without `args`, even if there are none.
            none: JsonObject = {"args": []} if isinstance(server, StdioServer) else {}
            external[name] = none | server.to_wire()
    return external, own


def check_fields(request: Request[Any]) -> None:
    """Raise `OptionsError` if a field of a request does not have its type."""
    try:
        request.from_wire(request.to_wire())
    except (ValueError, TypeError, RecursionError) as error:
        # The text names the field, and never shows its value.
        raise OptionsError(f"{type(request).__name__} cannot be sent: {error}") from error
