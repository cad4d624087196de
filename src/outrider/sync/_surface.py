"""Sessions, turns, and `run` and its like, without `await`.

Written by `scripts/sync_surface.py`: run that instead of changing it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Generic, Literal, Self, Unpack, cast, overload

from outrider.handlers import Handled
from outrider.options import OptionFields, Options
from outrider.session import _requests, _session, _turn
from outrider.session._connection import observers as _observers
from outrider.session._info import SessionInfo
from outrider.session._prompts import Prompt, Prompts
from outrider.session._requests import UNSET, Timeout
from outrider.session._result import Output, Output_co, OutputType, Result, ToolRun, UnfinishedTask
from outrider.session._session import SessionState, T
from outrider.session._streams import stream as _stream
from outrider.session._streams.turn_state import Until
from outrider.session._turn import CancelReceipt, Delivery
from outrider.session._usage import Usage
from outrider.sync._portal import Wrapper, portal, wrap
from outrider.wire import JsonObject, Message, control
from outrider.wire.choices import PermissionMode
from outrider.wire.control import Request, SettingsReport


class Requests(Wrapper):
    """The requests that a session can send to the agent, besides prompts.

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

    _async: _requests.Requests

    @overload
    def request(self, request: Request[T], /, *, timeout: Timeout = UNSET) -> T: ...

    @overload
    def request(self, request: str, /, *, timeout: Timeout = UNSET, **fields: object) -> JsonObject: ...

    def request(
        self, request: Request[T] | str, /, *, timeout: Timeout = UNSET, **fields: object
    ) -> T | JsonObject:
        """Send any control request, and wait for the answer.

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
        """Withdraw a queued prompt; False if its turn has started or it is unknown."""
        return self._wait(self._async.cancel_message, uuid, timeout=timeout)

    def stop_task(self, task_id: str, *, timeout: Timeout = UNSET) -> None:
        """Stop a background task. Claude Code does not say whether a task with this id existed."""
        self._wait(self._async.stop_task, task_id, timeout=timeout)

    def set_permission_mode(self, mode: PermissionMode, *, timeout: Timeout = UNSET) -> str:
        """Change the permission mode; returns the mode that is now in force.

        `bypassPermissions` is refused with the code `bypass_not_launched` unless the session was started with
        `allow_dangerously_skip_permissions`.
        """
        return self._wait(self._async.set_permission_mode, mode, timeout=timeout)

    def set_model(self, model: str | None = None, *, timeout: Timeout = UNSET) -> str:
        """Change the model; returns its full name. None: the model that the session started with.

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
        """Set the title that lists of sessions show."""
        self._wait(self._async.rename, title, timeout=timeout)

    def generate_title(
        self, description: str, *, persist: bool = False, timeout: Timeout = UNSET
    ) -> str | None:
        """Have the model write a title; with `persist`, the session gets it. None if that failed."""
        return self._wait(self._async.generate_title, description, persist=persist, timeout=timeout)

    def rewind_files(
        self, user_message_id: str, *, dry_run: bool = False, timeout: Timeout = UNSET
    ) -> control.RewindReport:
        """Restore files to their state before a message of the user.

        `dry_run` only reports what would change. Needs `enable_file_checkpointing`. If the agent cannot do
        it, this does not raise: `can_rewind` is False, and `error` says why.
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
        """Replace the servers that earlier calls of this method added; those given at the start stay.

        Servers are given as in `Options.mcp_servers`, those that run in this process among them. Look at
        `errors` in the answer: a server that does not start raises nothing.
        """
        return self._wait(self._async.mcp_set_servers, servers, timeout=timeout)

    def mcp_reconnect(self, server: str, *, timeout: Timeout = UNSET) -> None:
        """Connect to a server again. Raises `RequestFailed` if that does not work."""
        self._wait(self._async.mcp_reconnect, server, timeout=timeout)

    def mcp_toggle(self, server: str, enabled: bool, *, timeout: Timeout = UNSET) -> None:
        """Turn a server on or off."""
        self._wait(self._async.mcp_toggle, server, enabled, timeout=timeout)


class Reader(Wrapper):
    """Reads a stream: `for message in reader`, or many at a time with `batch()`.

    Leaving the loop leaves nothing behind. Raises what ended the stream, after the last message.
    """

    _async: _stream.Reader

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        return self._wait(self._async.__anext__)

    def batch(self) -> list[Message]:
        """All messages that are there, at least one: one wake-up for many, where speed matters.

        Raises `StopIteration` at the end.
        """
        return self._wait(self._async.batch)

    def batch_nowait(self) -> list[Message]:
        """All messages that are there, perhaps none. Raises what ended the stream, as `batch` does, but not
        its end.
        """
        return self._read(self._async.batch_nowait)

    @property
    def kinds(self) -> set[type]:
        """The types of the messages that it was last given, and perhaps more."""
        return self._read(lambda: self._async.kinds)

    def fork(self) -> Reader:
        """Another reader that begins where this one is."""
        return self._wrap(Reader, self._read(self._async.fork))


class EventReader(Wrapper):
    """Events as they come, for one reader: `for event in session.handled(): ...`.

    It ends with the session. Of more than 10,000 that are not read the oldest are dropped, and counted in
    `missed`.
    """

    _async: _observers.EventReader

    @property
    def missed(self) -> int:
        """How many events were dropped because they were not read."""
        return self._read(lambda: self._async.missed)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Handled:
        return self._wait(self._async.__anext__)


class TextReader(Wrapper):
    """Reads the text of a turn: `for text in turn.text()`."""

    _async: _turn.TextReader

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> str:
        return self._wait(self._async.__anext__)


class Queued(Wrapper):
    """A message that waits for the agent."""

    _async: _turn.Queued

    @property
    def turn(self) -> Turn:
        return self._wrap(Turn, self._read(lambda: self._async.turn))

    def __repr__(self) -> str:
        return self._read(self._async.__repr__)

    @property
    def uuid(self) -> str:
        """Its id; the agent names it in messages about it."""
        return self._read(lambda: self._async.uuid)

    @property
    def state(self) -> Delivery:
        """Its state now."""
        return self._read(lambda: self._async.state)

    def wait(self) -> Delivery:
        """Wait until it is `consumed`, `withdrawn` or `lost`."""
        return self._wait(self._async.wait)

    def withdraw(self) -> bool:
        """Withdraw it. False if the agent has already begun to work on it."""
        return self._wait(self._async.withdraw)


class Turn(Wrapper, Generic[Output_co]):
    """A prompt and the messages that answer it.

    `for message in turn` yields them as they come, up to the result; `text()` only yields what the model
    says; `result()` waits for the end. Several tasks may use all of these at once. A loop continues where the
    one before it stopped; concurrent loops each see everything from there on.
    """

    _async: _turn.Turn[Output_co]

    def __repr__(self) -> str:
        return self._read(self._async.__repr__)

    @property
    def uuid(self) -> str | None:
        """The id of its first prompt; the agent names it in messages about the turn."""
        return self._read(lambda: self._async.uuid)

    @property
    def is_over(self) -> bool:
        """Whether it has its result, or failed."""
        return self._read(lambda: self._async.is_over)

    @property
    def delivery(self) -> Delivery:
        """The state of its last prompt."""
        return self._read(lambda: self._async.delivery)

    @property
    def messages(self) -> tuple[Message, ...]:
        """All that came for it so far. Stream events are dropped once the whole message is there."""
        return self._read(lambda: self._async.messages)

    @property
    def tool_calls(self) -> tuple[ToolRun, ...]:
        """The tools that were called so far, with their inputs and outputs."""
        return self._read(lambda: self._async.tool_calls)

    def __iter__(self) -> Reader:
        """Its messages, up to its result.

        If the result reports a failure, the loop just ends. If the turn ended without a result, it raises
        what `result` would raise, after the last message.
        """
        return self._wrap(Reader, self._read(self._async.__aiter__))

    def text(self) -> TextReader:
        """What the model says: pieces of text with `include_partial_messages`, else whole blocks.

        Only the text of the answer: no thinking, and nothing that subagents say.
        """
        return self._wrap(TextReader, self._read(self._async.text))

    def result(self, *, until: Until | None = None, check: bool = True) -> Result[Output_co]:
        """Wait for the end of the turn, and return its result.

        `until="idle"` also waits for the background work that this turn began, for at most
        `timeouts.background`; `unfinished_tasks` lists what is left then. The default is the `until` of
        `send`.

        A failed turn raises its error: `TurnTimedOut`, `ApiFailed`, `LimitReached`, `TurnInterrupted`,
        `OutputInvalid` (all of them `TurnFailed`), or `ConnectionLost`. Its `result` has what came until
        then. With `check=False`, the result is returned instead, with its `error`. Interrupting the call does
        not cancel the turn.
        """
        return self._wait(self._async.result, until=until, check=check)

    def cancel(self, *, grace: float | None = None) -> CancelReceipt:
        """End the turn: take its prompt back, or interrupt it, for as long as it takes to take effect.

        If it is not over after `grace` seconds (by default `timeouts.interrupt`), the agent is ended, and the
        session with it. While it waits behind another turn and cannot be taken back, that time does not run:
        the other one is left alone. Interrupting this call does not stop any of it.
        """
        return self._wait(self._async.cancel, grace=grace)

    def steer(self, prompt: Prompt) -> Queued:
        """Add to what the agent is doing: it reads this between two of its steps.

        If the turn has no further step, this becomes the next turn. Raises `UsageError` once the turn is
        over.
        """
        return self._wrap(Queued, self._wait(self._async.steer, prompt))


class Session(Requests, Generic[Output_co]):
    """A conversation with an agent, which runs as long as the session is open.

        with outrider.sync.Session(cwd="project") as session:
            result = session.ask("What is this project about?")
            turn = session.send("Now write a README")
            for message in turn: ...

    `for message in session` yields the messages of all turns; each such loop has a position of its own. The
    first one begins with the messages that are still unread, later ones with those that come next.

    Several tasks may use it, and one may open and another close it. Without `with`, call `connect` and
    `close`. A session that is dropped unclosed ends its agent, with a `ResourceWarning`.
    """

    _async: _session.Session[Output_co]  # pyright: ignore[reportIncompatibleVariableOverride]

    @property
    def options(self) -> Options:
        return self._read(lambda: self._async.options)

    def __init__(
        self,
        options: Options | None = None,
        *,
        output: OutputType[Output_co] = None,
        **fields: Unpack[OptionFields],
    ) -> None:
        """Takes `options`, or single ones as keywords, which win. Raises `OptionsError`.

        `output` is the form that each answer must have: a type (a pydantic or msgspec model, a dataclass, a
        `TypedDict`, `list[…]`, `Literal[…]`, …), or a JSON Schema. The answer is checked here too, and is
        `Result.output`.
        """
        loop = portal()
        super().__init__(
            loop.read(cast("Callable[..., object]", _session.Session), options, output=output, **fields), loop
        )

    def __repr__(self) -> str:
        return self._read(self._async.__repr__)

    def connect(self) -> None:
        """Start the agent and wait until it is ready. A second call changes nothing.

        Raises a `LaunchError` (`AgentNotFound`, `AgentTooOld`, `FolderNotFound`, …), `SessionNotFound`,
        `ProcessExited` with what the program says about it, or `RequestTimedOut` after `timeouts.connect`;
        with a `session_store` also `SessionBusy` or a `StoreError`. Nothing is left running then.
        """
        self._wait(self._async.connect)

    def close(self) -> None:
        """Interrupt a running turn, give the agent time to write its transcript, and end it.

        Takes at most a few seconds longer than the `bound` of the transport; see the guide on endings.
        Unfinished turns fail with `TransportClosed`. Messages that came before can still be read. A second
        call does nothing.
        """
        self._wait(self._async.close)

    def end_input(self) -> None:
        """Send nothing more: the agent exits by itself once it has done everything it was asked.

        `for message in session` ends then, and raises `ProcessExited` if the agent exits with an error.
        Returns at once. Sending afterwards raises `TransportClosed`.
        """
        self._read(self._async.end_input)

    def abandon(self) -> None:
        """Begin to end the agent, without waiting. Safe in any thread, in `__del__`, and at any time."""
        self._read(self._async.abandon)

    def __enter__(self) -> Self:
        self._enter(self._async)
        return self

    def __exit__(self, *_: object) -> None:
        self._wait(self._async.__aexit__, *_)

    def send(
        self,
        prompt: Prompt | Prompts,
        *,
        until: Until = "result",
        priority: str | None = None,
        keep: bool = True,
    ) -> Turn[Output_co]:
        """Send a prompt; returns the turn that it begins, at once.

        A prompt is text, content blocks, or an iterable of prompts, async or not, which together make one
        turn. A prompt that is sent during another turn waits for that one; `priority="now"` ends that one
        first. With `until="idle"`, the turn ends when its background work does. With `keep=False`, messages
        are kept neither for the result nor for later readers: for a turn that runs for days while you read
        the session.

        A plain iterable may block, so it runs in a thread of its own. No deadline runs while it makes the
        next prompt. A generator is closed when its turn ends; one that fails ends the turn with `TurnFailed`.

        Raises `UsageError` or `MessageInvalid` for an invalid prompt, `ConnectionLost` if the agent is gone.
        """
        return cast(
            "Turn[Output_co]",
            self._wrap(Turn, self._wait(self._async.send, prompt, until=until, priority=priority, keep=keep)),
        )

    def ask(
        self, prompt: Prompt | Prompts, *, until: Until = "result", check: bool = True
    ) -> Result[Output_co]:
        """Send a prompt and wait for its result. Raises what `Turn.result` raises.

        Interrupting the call cancels the turn.
        """
        return self._wait(self._async.ask, prompt, until=until, check=check)

    def enqueue(self, prompt: Prompt) -> Queued:
        """Send a prompt that runs after those already waiting; returns a handle to follow or withdraw it."""
        return self._wrap(Queued, self._wait(self._async.enqueue, prompt))

    def continue_turn(self, *, until: Until = "result") -> Turn[Output_co]:
        """Continue after a call has waited for approval: open the session with `resume` and `approvals`
        before. Returns the turn.

        Raises `SessionParked` if the call was parked here or is not decided, `UsageError` if nothing waits.
        """
        return cast("Turn[Output_co]", self._wrap(Turn, self._wait(self._async.continue_turn, until=until)))

    def go_on(self, *, until: Until = "result", check: bool = True) -> Result[Output_co]:
        """Do as `continue_turn` does, and wait for the result."""
        return self._wait(self._async.go_on, until=until, check=check)

    def __iter__(self) -> Reader:
        return self._wrap(Reader, self._read(self._async.__aiter__))

    def wait_idle(self) -> None:
        """Wait until no turn and no background work is left."""
        self._wait(self._async.wait_idle)

    def reinitialize(self, *, timeout: Timeout = UNSET) -> SessionInfo:
        """Send the first request again, with the same options; returns the refreshed `info`."""
        return self._wait(self._async.reinitialize, timeout=timeout)

    @property
    def state(self) -> SessionState:
        """What it is doing."""
        return self._read(lambda: self._async.state)

    @property
    def id(self) -> str | None:
        """The session's id, for `resume`. Known from the first turn on; `/clear` changes it."""
        return self._read(lambda: self._async.id)

    @property
    def pid(self) -> int | None:
        """The agent's process id; None before the start, and if it runs on another machine."""
        return self._read(lambda: self._async.pid)

    def resident_bytes(self) -> int | None:
        """The memory of the agent's process and all that it started; shared pages count for each process.
        None if it is unknown. Looks at every process of the machine: call it in a thread if that matters.
        """
        return self._read(self._async.resident_bytes)

    @property
    def info(self) -> SessionInfo:
        """What Claude Code reports about itself; kept up to date."""
        return self._read(lambda: self._async.info)

    def handled(self) -> EventReader:
        """Each answer to the agent from now on: tool calls, hooks and decisions, with their latency.

            for event in session.handled(): ...

        It ends with the session.
        """
        return self._wrap(EventReader, self._read(self._async.handled))

    @property
    def usage(self) -> Usage:
        """What all turns since the start have used together."""
        return self._read(lambda: self._async.usage)

    @property
    def tasks(self) -> tuple[UnfinishedTask, ...]:
        """The tasks that run in the background."""
        return self._read(lambda: self._async.tasks)


class TurnContext(Wrapper, Generic[Output_co]):
    """A turn in a session of its own, which closes with the block."""

    _async: _session.TurnContext[Output_co]

    def __enter__(self) -> Turn[Output_co]:
        return cast("Turn[Output_co]", self._wrap(Turn, self._enter(self._async)))

    def __exit__(self, *_: object) -> None:
        self._wait(self._async.__aexit__, *_)


def run(
    prompt: Prompt | Prompts,
    options: Options | None = None,
    *,
    output: OutputType[Output] = None,
    until: Until = "idle",
    check: bool = True,
    **fields: Unpack[OptionFields],
) -> Result[Output]:
    """Run one prompt, or an iterable of them, and return its result. The agent has ended by then.

        result = outrider.sync.run("How many TODOs are in src?", cwd="project")

    `output` is the form that the answer must have, a type or a JSON Schema; `Result.output` has that type.

    Waits for subagents in the background, too; with `until="result"`, only for the first answer. Raises what
    `Session.connect` and `Turn.result` raise; with `check=False`, a failed turn is returned as a result with
    its `error`.
    """
    loop = portal()
    return loop.call(
        cast("Callable[..., Awaitable[Result[Output]]]", _session.run),
        prompt,
        options,
        output=output,
        until=until,
        check=check,
        **fields,
    )


def go_on(
    session_id: str,
    /,
    options: Options | None = None,
    *,
    output: OutputType[Output] = None,
    until: Until = "idle",
    check: bool = True,
    **fields: Unpack[OptionFields],
) -> Result[Output]:
    """Continue with a session that waited for approvals, in a process of its own, and return the result.

        result = outrider.sync.go_on(session_id, permission=policy, approvals=approvals)

    Give the options that the session had. If more has to be approved, `Result.pending` has it.

    Raises `SessionParked` if something is not decided yet, `UsageError` if nothing waits, `SessionBusy` if
    someone has it open; else what `run` raises.
    """
    loop = portal()
    return loop.call(
        cast("Callable[..., Awaitable[Result[Output]]]", _session.go_on),
        session_id,
        options,
        output=output,
        until=until,
        check=check,
        **fields,
    )


def stream(
    prompt: Prompt | Prompts,
    options: Options | None = None,
    *,
    output: OutputType[Output] = None,
    until: Until = "idle",
    **fields: Unpack[OptionFields],
) -> TurnContext[Output]:
    """Run one prompt and read its messages as they come.

        with outrider.sync.stream("Explain the build") as turn:
            for message in turn: ...

    Leaving the block ends the agent, even in the middle of a turn. Raises what `Session.connect` raises.
    """
    loop = portal()
    return cast(
        "TurnContext[Output]",
        wrap(
            TurnContext,
            loop.read(
                cast("Callable[..., object]", _session.stream),
                prompt,
                options,
                output=output,
                until=until,
                **fields,
            ),
            loop,
        ),
    )


def resolve_settings(options: Options | None = None, **fields: Unpack[OptionFields]) -> SettingsReport:
    """The settings that a session with these options would have, merged and by source.

        report = outrider.sync.resolve_settings(cwd="project", setting_sources=["user", "project"])
        print(report.effective.get("model"), report.provenance.get("model"))

    Claude Code itself merges them, in a process of its own. No model is asked, and nothing that the settings
    name is run: no hook, MCP server, plugin or helper that fetches a key.

    Raises what `Session.connect` raises.
    """
    loop = portal()
    return loop.call(
        cast("Callable[..., Awaitable[SettingsReport]]", _session.resolve_settings), options, **fields
    )
