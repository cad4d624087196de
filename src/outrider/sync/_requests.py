"""What a session can ask the agent, without `await`.

Written by `scripts/sync_surface.py`: run that instead of changing it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Literal, cast, overload

from outrider.session import _requests
from outrider.session._requests import UNSET, T, Timeout
from outrider.sync._portal import Wrapper
from outrider.wire import JsonObject, control
from outrider.wire.choices import PermissionMode
from outrider.wire.control import Request


class Requests(Wrapper):
    """The questions that a session can ask the agent, beside the prompts.

    They can be asked at any time, also during a turn. What has no method is asked with `request`. Every one
    takes `timeout`, in seconds: if it is left out, the session's `timeouts.control` counts; None waits for
    ever. Each may raise

    - `RequestFailed` if the agent refuses: its words are the message, its `code` tells why where it has one;
    - `Unsupported`, which is one of these, if the program that runs does not know the request;
    - `RequestTimedOut`, another, if no answer comes in time;
    - `ConnectionLost` if none can come any more;
    - `OptionsError` for an argument that cannot be meant; then nothing was sent.

    Interrupting a call takes the request back.
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

        Each request of `outrider.wire.control` names the type of its answer: `GetSettings()` gives a
        `SettingsReport`. A text is the name of a request on the wire, with its fields as the agent spells
        them; the answer is then the payload as it came.

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

    def stop_task(self, task_id: str, *, timeout: Timeout = UNSET) -> None:
        """End a background task. The agent does not tell whether there was one of this id."""
        self._wait(self._async.stop_task, task_id, timeout=timeout)

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

    def apply_settings(self, settings: Mapping[str, object], *, timeout: Timeout = UNSET) -> None:
        """Change settings for this session only.

        Keys are as in a settings file: `effortLevel`, `permissions`, … Each replaces what it was before; None
        takes it away. One bad value, and nothing is changed: the `RequestFailed` names it. In permission
        rules tools of yours may be named as in `allowed_tools`.
        """
        self._wait(self._async.apply_settings, settings, timeout=timeout)

    def rename(self, title: str, *, timeout: Timeout = UNSET) -> None:
        """Give the session a title, under which lists of sessions show it."""
        self._wait(self._async.rename, title, timeout=timeout)

    def generate_title(
        self, description: str, *, persist: bool = False, timeout: Timeout = UNSET
    ) -> str | None:
        """Have the model make a title; `persist` gives it to the session. None: none could be made."""
        return self._wait(self._async.generate_title, description, persist=persist, timeout=timeout)

    def rewind_files(
        self, user_message_id: str, *, dry_run: bool = False, timeout: Timeout = UNSET
    ) -> control.RewindReport:
        """Take files back to what they were before a message of the user's.

        `dry_run` only tells what would change. Needs `enable_file_checkpointing`. If the agent cannot do it,
        that is no exception: `can_rewind` is False, and `error` tells why.
        """
        return self._wait(self._async.rewind_files, user_message_id, dry_run=dry_run, timeout=timeout)

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
