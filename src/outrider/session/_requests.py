"""Owns `Requests`: all that a session can ask the agent, each question a method with a typed answer.

Does not know how a request travels, nor what a turn is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from enum import Enum
from os import PathLike
from typing import Final, Literal, TypeAlias, TypeVar, cast, overload

import msgspec

from outrider.errors import OptionsError, RequestFailed, RequestTimedOut, Unsupported, UsageError
from outrider.handlers._tool_names import resolved_settings
from outrider.options import LocalPlugin, SdkServer, StdioServer, ThinkingDisplay
from outrider.options._servers import read_permission_mode, read_servers
from outrider.options._tool_names import ANY_TOOL, ToolNames
from outrider.options._validators import (
    any_text,
    choice,
    fault,
    is_path,
    json_object,
    listed,
    open_choice,
    optional,
    path_text,
    switch,
    text,
    whole,
    within,
)
from outrider.options._values import part_reader
from outrider.wire import JsonObject, control
from outrider.wire.choices import PermissionMode
from outrider.wire.control import Request

__all__ = ["Asking", "Requests", "Timeout", "UNSET", "Unset"]


T = TypeVar("T")


class Unset(Enum):
    """The type of `UNSET`, which stands for an argument that is not given where None means something."""

    UNSET = "unset"

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = Unset.UNSET

Timeout: TypeAlias = float | Unset | None
"""Seconds to wait for an answer. Unset: the session's `timeouts.control`. None: for ever."""


class Asking(ABC):
    """What can ask the agent."""

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
        """Ask the agent anything, and wait for the answer.

        A text is the name of a request on the wire, with its fields as the agent spells them; the answer is
        then the payload as it came. Requests that have a class are in `outrider.wire.control`.

        Raises `RequestFailed` if the agent refuses, `Unsupported` if it does not know the request,
        `RequestTimedOut` if no answer comes, `ConnectionLost` if none can come any more. Cancelling the call
        takes the request back.
        """

    def _names_of_tools(self) -> ToolNames:
        """The tools that the session can have."""
        return ANY_TOOL


_read_display: Final = open_choice(("summarized", "omitted", "highlights"), typos=True)


def _read_past(place: str, value: object) -> object:
    if not isinstance(value, control.PastSideQuestion):
        raise fault(place, "a `PastSideQuestion`", value, "Import it from `outrider.wire.control`.")
    return value


_read_history: Final = listed(_read_past)


class ConversationRequests(Asking):
    """The part of `Requests` that is about the conversation and the model."""

    # What runs and what waits.

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
        """Take back a prompt that waits for its turn; False if its turn has begun or nobody knows it."""
        answer = await self.request(control.CancelAsyncMessage(text("`uuid`", uuid)), timeout=timeout)
        return answer.cancelled

    async def end_session(self, reason: str | None = None, *, timeout: Timeout = UNSET) -> None:
        """Tell the agent that no more will come: it ends by itself. Close the session all the same."""
        given = None if reason is None else text("`reason`", reason)
        await self.request(control.EndSession(given), timeout=timeout)

    # How the agent works.

    async def set_permission_mode(self, mode: PermissionMode, *, timeout: Timeout = UNSET) -> str:
        """Change what the agent may do without asking; gives back the mode that is now in force.

        `bypassPermissions` is refused with the code `bypass_not_launched` unless the session was started
        with `allow_dangerously_skip_permissions`.
        """
        wanted = cast(str, read_permission_mode("`mode`", mode))
        answer = await self.request(control.SetPermissionMode(wanted), timeout=timeout)
        return answer.mode or wanted

    async def set_model(self, model: str | None = None, *, timeout: Timeout = UNSET) -> str:
        """Change the model; gives back its full name. None: the model that the session began with.

        A full name is tried out first: the agent makes a small call to the API, which can take 15 seconds. If
        that fails, the model stays as it was, and the code of the `RequestFailed` tells why: `not_found`,
        `check_rejected`, `check_server_error` or `check_unreachable`.
        """
        wanted = None if model is None else text("`model`", model)
        answer = await self.request(control.SetModel(wanted), timeout=timeout)
        # An older program does not say; "default" is its own word for what it began with.
        return answer.model or wanted or "default"

    async def set_thinking(
        self,
        *,
        max_tokens: int | Unset | None = UNSET,
        display: ThinkingDisplay | Unset | None = UNSET,
        timeout: Timeout = UNSET,
    ) -> None:
        """Change how much the model may think, and how much of it is shown.

        None: the default. Left out: as it is.
        """
        if max_tokens is UNSET and display is UNSET:
            raise UsageError("set_thinking() has nothing to change", hint="Give `max_tokens` or `display`.")
        tokens = msgspec.UNSET if max_tokens is UNSET else optional(whole(0))("`max_tokens`", max_tokens)
        shown = msgspec.UNSET if display is UNSET else optional(_read_display)("`display`", display)
        request = control.SetMaxThinkingTokens(
            cast("int | msgspec.UnsetType | None", tokens), cast("str | msgspec.UnsetType | None", shown)
        )
        await self.request(request, timeout=timeout)

    async def list_models(self, *, timeout: Timeout = UNSET) -> list[control.ModelInfo]:
        """The models that `set_model` takes."""
        return (await self.request(control.ListModels(), timeout=timeout)).models

    # Beside the conversation.

    async def ask_side_question(
        self,
        question: str,
        *,
        history: Iterable[control.PastSideQuestion] = (),
        timeout: Timeout = UNSET,
    ) -> control.SideAnswer:
        """Ask the model something that does not become part of the conversation.

        It knows the conversation so far, and `history`: earlier questions of this kind. Works during a turn.
        A model may take long to answer: give `timeout` if `timeouts.control` is not enough.
        """
        earlier = cast("tuple[control.PastSideQuestion, ...]", _read_history("`history`", list(history)))
        request = control.SideQuestion(text("`question`", question), list(earlier) or None)
        return await self.request(request, timeout=timeout)

    async def generate_title(
        self, description: str, *, persist: bool = False, timeout: Timeout = UNSET
    ) -> str | None:
        """Have the model make a title; `persist` gives it to the session. None: none could be made."""
        request = control.GenerateSessionTitle(
            text("`description`", description), switch("`persist`", persist)
        )
        return (await self.request(request, timeout=timeout)).title

    async def rename(self, title: str, *, timeout: Timeout = UNSET) -> None:
        """Give the session a title, under which lists of sessions show it."""
        await self.request(control.RenameSession(text("`title`", title)), timeout=timeout)

    async def set_color(self, color: str, *, timeout: Timeout = UNSET) -> None:
        """Change the colour of the session in a list of sessions; `default` is one."""
        await self.request(control.SetColor(text("`color`", color)), timeout=timeout)

    async def rate_message(
        self,
        uuid: str,
        sentiment: Literal["positive", "negative"],
        *,
        surface: Literal["assistant_text", "tool_use"] = "assistant_text",
        cleared: bool = False,
        timeout: Timeout = UNSET,
    ) -> None:
        """Tell the makers of the agent how the user liked a message; `cleared`: not any more."""
        request = control.MessageRated(
            text("`uuid`", uuid),
            cast(str, choice("positive", "negative")("`sentiment`", sentiment)),
            cast(str, choice("assistant_text", "tool_use")("`surface`", surface)),
            switch("`cleared`", cleared),
        )
        await self.request(request, timeout=timeout)

    async def pause_prompt_suggestions(self, paused: bool = True, *, timeout: Timeout = UNSET) -> None:
        """Stop suggestions for the next prompt; `paused=False` resumes them."""
        await self.request(control.SetPromptSuggestionsPaused(switch("`paused`", paused)), timeout=timeout)

    async def set_has_subscribers(self, has_subscribers: bool | None, *, timeout: Timeout = UNSET) -> None:
        """Tell whether anybody watches, for stream events may be held back if not. None: not known."""
        known = None if has_subscribers is None else switch("`has_subscribers`", has_subscribers)
        await self.request(control.SetHasSubscribers(known), timeout=timeout)

    # What was said.

    async def export_conversation(self, *, timeout: Timeout = UNSET) -> control.ConversationExport:
        """The conversation as a text for people, and a name for its file."""
        return await self.request(control.ExportConversation(), timeout=timeout)

    async def plan(self, *, timeout: Timeout = UNSET) -> control.PlanReport:
        """The plan that was written in plan mode."""
        return await self.request(control.GetPlan(), timeout=timeout)

    async def rewind_conversation(
        self,
        message_uuid: str,
        *,
        interrupt: bool = False,
        last_seen: str | None = None,
        timeout: Timeout = UNSET,
    ) -> control.ConversationRewound:
        """Take the conversation back to before a message of the user's. Files stay: see `rewind_files`.

        `interrupt` stops a running turn for it. `last_seen` is the newest message of the user's that the
        caller knows. Look at `rewound` in the answer: False is no exception.
        """
        request = control.RewindConversation(
            text("`message_uuid`", message_uuid),
            switch("`interrupt`", interrupt) or None,
            None if last_seen is None else text("`last_seen`", last_seen),
        )
        return await self.request(request, timeout=timeout)


StrPath: TypeAlias = str | PathLike[str]


class FileRequests(Asking):
    """The part of `Requests` that is about the workspace and about background tasks."""

    # Files.

    async def read_file(
        self,
        path: StrPath,
        *,
        max_bytes: int | None = None,
        encoding: Literal["utf-8", "base64"] | None = None,
        timeout: Timeout = UNSET,
    ) -> control.FileContents:
        """Read a file of the workspace, as the agent sees it; at most `max_bytes`, or else 1 MB.

        A file that is missing and one that may not be read both raise `RequestFailed`, with the same words.
        """
        request = control.ReadFile(
            path_text("`path`", path),
            None if max_bytes is None else cast(int, whole(1)("`max_bytes`", max_bytes)),
            None if encoding is None else cast(str, choice("utf-8", "base64")("`encoding`", encoding)),
        )
        return await self.request(request, timeout=timeout)

    async def suggest_files(self, query: str, *, timeout: Timeout = UNSET) -> control.SuggestedFiles:
        """The files that a typed name may mean, best first."""
        request = control.FileSuggestions(any_text("`query`", query))
        return await self.request(request, timeout=timeout)

    async def seed_read_state(self, path: StrPath, mtime_ns: int, *, timeout: Timeout = UNSET) -> None:
        """Let the agent edit a file as if it had read it.

        `mtime_ns` is when the file was last changed, as `Path.stat().st_mtime_ns` tells it: if it has been
        changed since, the agent must read it after all.
        """
        if isinstance(mtime_ns, bool) or not isinstance(cast(object, mtime_ns), int) or mtime_ns < 0:
            raise fault("`mtime_ns`", "a number of nanoseconds", mtime_ns, "Give `path.stat().st_mtime_ns`.")
        # Whole milliseconds, rounded down: the agent compares.
        request = control.SeedReadState(path_text("`path`", path), mtime_ns // 1_000_000)
        await self.request(request, timeout=timeout)

    async def rewind_files(
        self, user_message_id: str, *, dry_run: bool = False, timeout: Timeout = UNSET
    ) -> control.RewindReport:
        """Take files back to what they were before a message of the user's.

        `dry_run` only tells what would change. Needs `enable_file_checkpointing`. If the agent cannot do it,
        that is no exception: `can_rewind` is False, and `error` tells why.
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

    async def workspace_diff(self, *, timeout: Timeout = UNSET) -> control.WorkspaceDiff:
        """What differs from the last commit."""
        return await self.request(control.GetWorkspaceDiff(), timeout=timeout)

    # Directories.

    async def set_cwd(
        self,
        path: StrPath,
        *,
        trusted_directory: StrPath | None = None,
        timeout: Timeout = UNSET,
    ) -> control.DirectoryChanged:
        """Move the session to another working directory.

        Look at `status` in the answer. `needs_trust`: nothing was changed; ask the user whether `directory`
        can be trusted, and call again with it as `trusted_directory`.
        """
        trusted = None if trusted_directory is None else path_text("`trusted_directory`", trusted_directory)
        request = control.SetCwd(path_text("`path`", path), None if trusted is None else True, trusted)
        return await self.request(request, timeout=timeout)

    async def register_repo_root(
        self,
        directory: StrPath,
        *,
        reload_claude_md: bool = False,
        reload_plugins: bool = False,
        reload_skills: bool = False,
        timeout: Timeout = UNSET,
    ) -> str:
        """Make a repository below the working directory part of the workspace; gives back its path."""
        wanted = path_text("`directory`", directory)
        request = control.RegisterRepoRoot(
            wanted,
            switch("`reload_claude_md`", reload_claude_md) or None,
            switch("`reload_plugins`", reload_plugins) or None,
            switch("`reload_skills`", reload_skills) or None,
        )
        return (await self.request(request, timeout=timeout)).directory or wanted

    # Background tasks.

    async def stop_task(self, task_id: str, *, timeout: Timeout = UNSET) -> None:
        """End a background task. The agent does not tell whether there was one of this id."""
        await self.request(control.StopTask(text("`task_id`", task_id)), timeout=timeout)

    async def background_tasks(self, tool_use_id: str | None = None, *, timeout: Timeout = UNSET) -> bool:
        """Move running commands and subagents to the background, so that the turn goes on.

        `tool_use_id` names one call; None: all. False if there was nothing to move. A command can be moved
        once it has run for some seconds.
        """
        call = None if tool_use_id is None else text("`tool_use_id`", tool_use_id)
        answer = await self.request(control.BackgroundTasks(call), timeout=timeout)
        return answer.backgrounded is not False

    async def task_output(self, task_id: str, *, timeout: Timeout = UNSET) -> control.TaskTail:
        """The end of what a command in the background has printed: at most 8 KiB."""
        return await self.request(control.GetTaskOutput(text("`task_id`", task_id)), timeout=timeout)


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


class SettingsRequests(Asking):
    """The part of `Requests` that is about set-up and consumption."""

    # Settings.

    async def apply_settings(self, settings: Mapping[str, object], *, timeout: Timeout = UNSET) -> None:
        """Change settings for this session only.

        Keys are as in a settings file: `effortLevel`, `permissions`, … Each replaces what it was before; None
        takes it away. One bad value, and nothing is changed: the `RequestFailed` names it. In permission
        rules tools of yours may be named as in `allowed_tools`.
        """
        changes = cast(JsonObject, json_object("`settings`", settings))
        request = control.ApplyFlagSettings(resolved_settings("`settings`", changes, self._names_of_tools()))
        await self.request(request, timeout=timeout)

    async def update_settings(
        self, source: Literal["user", "local"], settings: Mapping[str, object], *, timeout: Timeout = UNSET
    ) -> None:
        """Write to a settings file, for this and later sessions.

        `setting_sources` must name it. Few keys are allowed: `outputStyle` in `local`, …
        """
        known = cast(str, choice("user", "local")("`source`", source))
        changes = cast(JsonObject, json_object("`settings`", settings))
        await self.request(control.UpdateSettings(f"{known}Settings", changes), timeout=timeout)

    async def settings_report(self, *, timeout: Timeout = UNSET) -> control.SettingsReport:
        """The settings in force, where each comes from, and which files were skipped."""
        return await self.request(control.GetSettings(), timeout=timeout)

    async def permission_rules(self, *, timeout: Timeout = UNSET) -> control.PermissionState:
        """The permission rules in force, and the directories of the workspace."""
        return (await self.request(control.ListPermissionRules(), timeout=timeout)).state

    async def hooks_listing(self, *, timeout: Timeout = UNSET) -> control.HooksListing:
        """The hooks that are set up, and the events there are."""
        return await self.request(control.GetHooksListing(), timeout=timeout)

    # What is loaded.

    async def reload_plugins(
        self,
        *,
        add: Iterable[LocalPlugin | str | PathLike[str]] = (),
        hold_on_cache_impact: bool = False,
        refuse_if_busy: bool = False,
        timeout: Timeout = UNSET,
    ) -> control.PluginsReloaded:
        """Load plugins again, and with them commands, agents and servers; `add` brings in more.

        `hold_on_cache_impact`: if the prompt would have to be cached anew, change nothing and say so in
        `held`. `refuse_if_busy`: fail with the code `reload_plugins_busy` during a turn.
        """
        added = _read_plugins("`add`", add if is_path(add) else list(add))
        request = control.ReloadPlugins(
            switch("`hold_on_cache_impact`", hold_on_cache_impact) or None,
            [_spelled(plugin) for plugin in cast("tuple[LocalPlugin, ...]", added)] or None,
            switch("`refuse_if_busy`", refuse_if_busy) or None,
        )
        return await self.request(request, timeout=timeout)

    async def reload_skills(self, *, timeout: Timeout = UNSET) -> list[control.SlashCommand]:
        """Read skills and commands again; gives back those there are now."""
        return (await self.request(control.ReloadSkills(), timeout=timeout)).skills

    async def reload_output_styles(self, *, timeout: Timeout = UNSET) -> list[str]:
        """Read output styles again; gives back the names of those there are now."""
        return (await self.request(control.ReloadOutputStyles(), timeout=timeout)).available_output_styles

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

    async def session_cost(self, *, timeout: Timeout = UNSET) -> str:
        """The cost of the session as a text for people; `usage_report` has the numbers."""
        return (await self.request(control.GetSessionCost(), timeout=timeout)).text

    # What the agent shows its users.

    async def binary_version(self, *, timeout: Timeout = UNSET) -> control.BinaryVersion:
        """Which build of the agent's program runs."""
        return await self.request(control.GetBinaryVersion(), timeout=timeout)

    async def status_report(self, *, timeout: Timeout = UNSET) -> control.StatusReport:
        """Facts about the session, in groups of lines for people."""
        return await self.request(control.GetStatus(), timeout=timeout)

    async def memory_dialog(self, *, timeout: Timeout = UNSET) -> control.MemoryDialog:
        """The instruction files and memories of the session."""
        return await self.request(control.GetMemoryDialog(), timeout=timeout)

    async def skills_dialog(self, *, timeout: Timeout = UNSET) -> list[control.SkillEntry]:
        """The skills there are, and what each costs in the context."""
        return (await self.request(control.GetSkillsDialog(), timeout=timeout)).skills

    async def sandbox_dialog(self, *, timeout: Timeout = UNSET) -> control.SandboxDialog:
        """Whether commands run in a sandbox, what it needs, and what it lets through."""
        return await self.request(control.GetSandboxDialog(), timeout=timeout)


_read_part = part_reader(LocalPlugin)


def _read_plugin(place: str, value: object) -> object:
    return LocalPlugin(path_text(place, value)) if is_path(value) else _read_part(place, value)


_read_plugins = listed(_read_plugin)


def _spelled(plugin: LocalPlugin) -> JsonObject:
    skipping: JsonObject = {"skipMcpDiscovery": True} if plugin.skip_mcp_discovery else {}
    return {"type": "local", "path": plugin.path} | skipping


class Requests(ConversationRequests, SettingsRequests, FileRequests, McpRequests):
    """The questions that a session can ask the agent, beside the prompts.

    They can be asked at any time, also during a turn. Every one takes `timeout`, in seconds: if it is left
    out, the session's `timeouts.control` counts; None waits for ever. Each may raise

    - `RequestFailed` if the agent refuses: its words are the message, its `code` tells why where it has one;
    - `Unsupported`, which is one of these, if the program that runs does not know the request;
    - `RequestTimedOut`, another, if no answer comes in time;
    - `ConnectionLost` if none can come any more;
    - `OptionsError` for an argument that cannot be meant; then nothing was sent.

    Cancelling a call takes the request back. What has no method here can be asked with `request`.
    """
