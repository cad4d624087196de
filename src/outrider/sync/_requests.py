"""What a session can ask the agent, without `await`.

Written by `scripts/sync_surface.py`: run that instead of changing it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from os import PathLike
from typing import Literal, cast, overload

from outrider.options import LocalPlugin, ThinkingDisplay
from outrider.session import _requests
from outrider.session._requests import UNSET, StrPath, T, Timeout, Unset
from outrider.sync._portal import Wrapper
from outrider.wire import JsonObject, control
from outrider.wire.choices import PermissionMode
from outrider.wire.control import Request


class Requests(Wrapper):
    """The questions that a session can ask the agent, beside the prompts.

    They can be asked at any time, also during a turn. Every one takes `timeout`, in seconds: if it is left
    out, the session's `timeouts.control` counts; None waits for ever. Each may raise

    - `RequestFailed` if the agent refuses: its words are the message, its `code` tells why where it has one;
    - `Unsupported`, which is one of these, if the program that runs does not know the request;
    - `RequestTimedOut`, another, if no answer comes in time;
    - `ConnectionLost` if none can come any more;
    - `OptionsError` for an argument that cannot be meant; then nothing was sent.

    Interrupting a call takes the request back. What has no method here can be asked with `request`.
    """

    @property
    def _async(self) -> _requests.Requests:
        return cast(_requests.Requests, self._wrapped)

    @overload
    def request(self, request: Request[T], /, *, timeout: Timeout = UNSET) -> T: ...

    @overload
    def request(self, request: str, /, *, timeout: Timeout = UNSET, **fields: object) -> JsonObject: ...

    def request(
        self, request: Request[T] | str, /, *, timeout: Timeout = UNSET, **fields: object
    ) -> T | JsonObject:
        """Ask the agent anything, and wait for the answer.

        A text is the name of a request on the wire, with its fields as the agent spells them; the answer is
        then the payload as it came. Requests that have a class are in `outrider.wire.control`.

        Raises `RequestFailed` if the agent refuses, `Unsupported` if it does not know the request,
        `RequestTimedOut` if no answer comes, `ConnectionLost` if none can come any more. Interrupting the
        call takes the request back.
        """
        return self._wait(
            cast("Callable[..., Awaitable[T | JsonObject]]", self._async.request),
            request,
            timeout=timeout,
            **fields,
        )

    def interrupt(self, *, cancel_queued: bool = False, timeout: Timeout = UNSET) -> control.Interrupted:
        """Stop the running turn. Its last messages and its result still follow.

        `cancel_queued` also drops the prompts that wait for their turn. The answer tells which were dropped
        and which will still get one. Without a turn, nothing happens.
        """
        return self._wait(self._async.interrupt, cancel_queued=cancel_queued, timeout=timeout)

    def cancel_message(self, uuid: str, *, timeout: Timeout = UNSET) -> bool:
        """Take back a prompt that waits for its turn; False if its turn has begun or nobody knows it."""
        return self._wait(self._async.cancel_message, uuid, timeout=timeout)

    def end_session(self, reason: str | None = None, *, timeout: Timeout = UNSET) -> None:
        """Tell the agent that no more will come: it ends by itself. Close the session all the same."""
        self._wait(self._async.end_session, reason, timeout=timeout)

    def set_permission_mode(self, mode: PermissionMode, *, timeout: Timeout = UNSET) -> str:
        """Change what the agent may do without asking; gives back the mode that is now in force.

        `bypassPermissions` is refused with the code `bypass_not_launched` unless the session was started with
        `allow_dangerously_skip_permissions`.
        """
        return self._wait(self._async.set_permission_mode, mode, timeout=timeout)

    def set_model(self, model: str | None = None, *, timeout: Timeout = UNSET) -> str:
        """Change the model; gives back its full name. None: the model that the session began with.

        A full name is tried out first: the agent makes a small call to the API, which can take 15 seconds. If
        that fails, the model stays as it was, and the code of the `RequestFailed` tells why: `not_found`,
        `check_rejected`, `check_server_error` or `check_unreachable`.
        """
        return self._wait(self._async.set_model, model, timeout=timeout)

    def set_thinking(
        self,
        *,
        max_tokens: int | Unset | None = UNSET,
        display: ThinkingDisplay | Unset | None = UNSET,
        timeout: Timeout = UNSET,
    ) -> None:
        """Change how much the model may think, and how much of it is shown.

        None: the default. Left out: as it is.
        """
        self._wait(self._async.set_thinking, max_tokens=max_tokens, display=display, timeout=timeout)

    def list_models(self, *, timeout: Timeout = UNSET) -> list[control.ModelInfo]:
        """The models that `set_model` takes."""
        return self._wait(self._async.list_models, timeout=timeout)

    def ask_side_question(
        self, question: str, *, history: Iterable[control.PastSideQuestion] = (), timeout: Timeout = UNSET
    ) -> control.SideAnswer:
        """Ask the model something that does not become part of the conversation.

        It knows the conversation so far, and `history`: earlier questions of this kind. Works during a turn.
        A model may take long to answer: give `timeout` if `timeouts.control` is not enough.
        """
        return self._wait(self._async.ask_side_question, question, history=history, timeout=timeout)

    def generate_title(
        self, description: str, *, persist: bool = False, timeout: Timeout = UNSET
    ) -> str | None:
        """Have the model make a title; `persist` gives it to the session. None: none could be made."""
        return self._wait(self._async.generate_title, description, persist=persist, timeout=timeout)

    def rename(self, title: str, *, timeout: Timeout = UNSET) -> None:
        """Give the session a title, under which lists of sessions show it."""
        self._wait(self._async.rename, title, timeout=timeout)

    def set_color(self, color: str, *, timeout: Timeout = UNSET) -> None:
        """Change the colour of the session in a list of sessions; `default` is one."""
        self._wait(self._async.set_color, color, timeout=timeout)

    def rate_message(
        self,
        uuid: str,
        sentiment: Literal["positive", "negative"],
        *,
        surface: Literal["assistant_text", "tool_use"] = "assistant_text",
        cleared: bool = False,
        timeout: Timeout = UNSET,
    ) -> None:
        """Tell the makers of the agent how the user liked a message; `cleared`: not any more."""
        self._wait(
            self._async.rate_message, uuid, sentiment, surface=surface, cleared=cleared, timeout=timeout
        )

    def pause_prompt_suggestions(self, paused: bool = True, *, timeout: Timeout = UNSET) -> None:
        """Stop suggestions for the next prompt; `paused=False` resumes them."""
        self._wait(self._async.pause_prompt_suggestions, paused, timeout=timeout)

    def set_has_subscribers(self, has_subscribers: bool | None, *, timeout: Timeout = UNSET) -> None:
        """Tell whether anybody watches, for stream events may be held back if not. None: not known."""
        self._wait(self._async.set_has_subscribers, has_subscribers, timeout=timeout)

    def export_conversation(self, *, timeout: Timeout = UNSET) -> control.ConversationExport:
        """The conversation as a text for people, and a name for its file."""
        return self._wait(self._async.export_conversation, timeout=timeout)

    def plan(self, *, timeout: Timeout = UNSET) -> control.PlanReport:
        """The plan that was written in plan mode."""
        return self._wait(self._async.plan, timeout=timeout)

    def rewind_conversation(
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
        return self._wait(
            self._async.rewind_conversation,
            message_uuid,
            interrupt=interrupt,
            last_seen=last_seen,
            timeout=timeout,
        )

    def apply_settings(self, settings: Mapping[str, object], *, timeout: Timeout = UNSET) -> None:
        """Change settings for this session only.

        Keys are as in a settings file: `effortLevel`, `permissions`, … Each replaces what it was before; None
        takes it away. One bad value, and nothing is changed: the `RequestFailed` names it. In permission
        rules tools of yours may be named as in `allowed_tools`.
        """
        self._wait(self._async.apply_settings, settings, timeout=timeout)

    def update_settings(
        self, source: Literal["user", "local"], settings: Mapping[str, object], *, timeout: Timeout = UNSET
    ) -> None:
        """Write to a settings file, for this and later sessions.

        `setting_sources` must name it. Few keys are allowed: `outputStyle` in `local`, …
        """
        self._wait(self._async.update_settings, source, settings, timeout=timeout)

    def settings_report(self, *, timeout: Timeout = UNSET) -> control.SettingsReport:
        """The settings in force, where each comes from, and which files were skipped."""
        return self._wait(self._async.settings_report, timeout=timeout)

    def permission_rules(self, *, timeout: Timeout = UNSET) -> control.PermissionState:
        """The permission rules in force, and the directories of the workspace."""
        return self._wait(self._async.permission_rules, timeout=timeout)

    def hooks_listing(self, *, timeout: Timeout = UNSET) -> control.HooksListing:
        """The hooks that are set up, and the events there are."""
        return self._wait(self._async.hooks_listing, timeout=timeout)

    def reload_plugins(
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
        return self._wait(
            self._async.reload_plugins,
            add=add,
            hold_on_cache_impact=hold_on_cache_impact,
            refuse_if_busy=refuse_if_busy,
            timeout=timeout,
        )

    def reload_skills(self, *, timeout: Timeout = UNSET) -> list[control.SlashCommand]:
        """Read skills and commands again; gives back those there are now."""
        return self._wait(self._async.reload_skills, timeout=timeout)

    def reload_output_styles(self, *, timeout: Timeout = UNSET) -> list[str]:
        """Read output styles again; gives back the names of those there are now."""
        return self._wait(self._async.reload_output_styles, timeout=timeout)

    def context_usage(
        self, *, detail: Literal["summary", "full"] | None = None, timeout: Timeout = UNSET
    ) -> control.ContextUsage:
        """What fills the context window.

        `summary` is an estimate at once; `full`, the default, has the API count everything.
        """
        return self._wait(self._async.context_usage, detail=detail, timeout=timeout)

    def usage_report(self, *, skip_behaviors: bool = False, timeout: Timeout = UNSET) -> control.UsageReport:
        """What the session has used, and what the account has left.

        `skip_behaviors` saves the scan of the transcripts on the agent's machine.
        """
        return self._wait(self._async.usage_report, skip_behaviors=skip_behaviors, timeout=timeout)

    def session_cost(self, *, timeout: Timeout = UNSET) -> str:
        """The cost of the session as a text for people; `usage_report` has the numbers."""
        return self._wait(self._async.session_cost, timeout=timeout)

    def binary_version(self, *, timeout: Timeout = UNSET) -> control.BinaryVersion:
        """Which build of the agent's program runs."""
        return self._wait(self._async.binary_version, timeout=timeout)

    def status_report(self, *, timeout: Timeout = UNSET) -> control.StatusReport:
        """Facts about the session, in groups of lines for people."""
        return self._wait(self._async.status_report, timeout=timeout)

    def memory_dialog(self, *, timeout: Timeout = UNSET) -> control.MemoryDialog:
        """The instruction files and memories of the session."""
        return self._wait(self._async.memory_dialog, timeout=timeout)

    def skills_dialog(self, *, timeout: Timeout = UNSET) -> list[control.SkillEntry]:
        """The skills there are, and what each costs in the context."""
        return self._wait(self._async.skills_dialog, timeout=timeout)

    def sandbox_dialog(self, *, timeout: Timeout = UNSET) -> control.SandboxDialog:
        """Whether commands run in a sandbox, what it needs, and what it lets through."""
        return self._wait(self._async.sandbox_dialog, timeout=timeout)

    def read_file(
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
        return self._wait(
            self._async.read_file, path, max_bytes=max_bytes, encoding=encoding, timeout=timeout
        )

    def suggest_files(self, query: str, *, timeout: Timeout = UNSET) -> control.SuggestedFiles:
        """The files that a typed name may mean, best first."""
        return self._wait(self._async.suggest_files, query, timeout=timeout)

    def seed_read_state(self, path: StrPath, mtime_ns: int, *, timeout: Timeout = UNSET) -> None:
        """Let the agent edit a file as if it had read it.

        `mtime_ns` is when the file was last changed, as `Path.stat().st_mtime_ns` tells it: if it has been
        changed since, the agent must read it after all.
        """
        self._wait(self._async.seed_read_state, path, mtime_ns, timeout=timeout)

    def rewind_files(
        self, user_message_id: str, *, dry_run: bool = False, timeout: Timeout = UNSET
    ) -> control.RewindReport:
        """Take files back to what they were before a message of the user's.

        `dry_run` only tells what would change. Needs `enable_file_checkpointing`. If the agent cannot do it,
        that is no exception: `can_rewind` is False, and `error` tells why.
        """
        return self._wait(self._async.rewind_files, user_message_id, dry_run=dry_run, timeout=timeout)

    def workspace_diff(self, *, timeout: Timeout = UNSET) -> control.WorkspaceDiff:
        """What differs from the last commit."""
        return self._wait(self._async.workspace_diff, timeout=timeout)

    def set_cwd(
        self, path: StrPath, *, trusted_directory: StrPath | None = None, timeout: Timeout = UNSET
    ) -> control.DirectoryChanged:
        """Move the session to another working directory.

        Look at `status` in the answer. `needs_trust`: nothing was changed; ask the user whether `directory`
        can be trusted, and call again with it as `trusted_directory`.
        """
        return self._wait(self._async.set_cwd, path, trusted_directory=trusted_directory, timeout=timeout)

    def register_repo_root(
        self,
        directory: StrPath,
        *,
        reload_claude_md: bool = False,
        reload_plugins: bool = False,
        reload_skills: bool = False,
        timeout: Timeout = UNSET,
    ) -> str:
        """Make a repository below the working directory part of the workspace; gives back its path."""
        return self._wait(
            self._async.register_repo_root,
            directory,
            reload_claude_md=reload_claude_md,
            reload_plugins=reload_plugins,
            reload_skills=reload_skills,
            timeout=timeout,
        )

    def stop_task(self, task_id: str, *, timeout: Timeout = UNSET) -> None:
        """End a background task. The agent does not tell whether there was one of this id."""
        self._wait(self._async.stop_task, task_id, timeout=timeout)

    def background_tasks(self, tool_use_id: str | None = None, *, timeout: Timeout = UNSET) -> bool:
        """Move running commands and subagents to the background, so that the turn goes on.

        `tool_use_id` names one call; None: all. False if there was nothing to move. A command can be moved
        once it has run for some seconds.
        """
        return self._wait(self._async.background_tasks, tool_use_id, timeout=timeout)

    def task_output(self, task_id: str, *, timeout: Timeout = UNSET) -> control.TaskTail:
        """The end of what a command in the background has printed: at most 8 KiB."""
        return self._wait(self._async.task_output, task_id, timeout=timeout)

    def mcp_status(self, *, timeout: Timeout = UNSET) -> list[control.McpServerStatus]:
        """All servers of the session, the state of their connections, and their tools."""
        return self._wait(self._async.mcp_status, timeout=timeout)

    def mcp_set_servers(
        self, servers: Mapping[str, object], *, timeout: Timeout = UNSET
    ) -> control.McpServersSet:
        """Replace the servers that earlier calls of this method added; those of the start stay.

        Servers are given as in `Options.mcp_servers`, those that run in this process among them. Look at
        `errors` in the answer: a server that does not start is no exception.
        """
        return self._wait(self._async.mcp_set_servers, servers, timeout=timeout)

    def mcp_reconnect(self, server: str, *, timeout: Timeout = UNSET) -> None:
        """Connect to a server again. Raises `RequestFailed` if that does not work."""
        self._wait(self._async.mcp_reconnect, server, timeout=timeout)

    def mcp_toggle(self, server: str, enabled: bool, *, timeout: Timeout = UNSET) -> None:
        """Switch a server on or off."""
        self._wait(self._async.mcp_toggle, server, enabled, timeout=timeout)

    def mcp_call(
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
        return self._wait(
            self._async.mcp_call,
            tool,
            arguments,
            check_permissions=check_permissions,
            result_not_for_model=result_not_for_model,
            tool_seconds=tool_seconds,
            timeout=timeout,
        )

    def mcp_read_resource(
        self, server: str, uri: str, *, timeout: Timeout = UNSET
    ) -> list[control.McpResourceContents]:
        """Read a resource of a server. The agent gives out those whose `uri` begins with `ui://`."""
        return self._wait(self._async.mcp_read_resource, server, uri, timeout=timeout)

    def mcp_set_permission_mode(
        self, server: str, mode: PermissionMode | None, *, timeout: Timeout = UNSET
    ) -> str | None:
        """Give the tools of one server a permission mode of their own: `default` or `auto`. None: that of the
        session.

        Gives back a warning of the agent's, if it has one: that it does not know the server yet.
        """
        return self._wait(self._async.mcp_set_permission_mode, server, mode, timeout=timeout)

    def mcp_enable_channel(self, server: str, *, timeout: Timeout = UNSET) -> None:
        """Let a server send messages into the conversation."""
        self._wait(self._async.mcp_enable_channel, server, timeout=timeout)

    def mcp_authenticate(
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
        return self._wait(
            self._async.mcp_authenticate,
            server,
            redirect_uri=redirect_uri,
            redirect_uri_only=redirect_uri_only,
            timeout=timeout,
        )

    def mcp_submit_callback(
        self, server: str, callback_url: str, *, timeout: Timeout = UNSET
    ) -> control.Undocumented:
        """End a login to a server: `callback_url` is the address that the user was sent back to."""
        return self._wait(self._async.mcp_submit_callback, server, callback_url, timeout=timeout)

    def mcp_clear_authentication(self, server: str, *, timeout: Timeout = UNSET) -> control.Undocumented:
        """Forget the login to a server."""
        return self._wait(self._async.mcp_clear_authentication, server, timeout=timeout)
