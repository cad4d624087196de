"""Sessions and turns, without `await`.

Written by `scripts/sync_surface.py`: run that instead of changing it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Generic, Literal, Self, Unpack, cast, overload

from outrider.handlers import Handled
from outrider.options import OptionFields, Options
from outrider.session import _requests, _session, _turn
from outrider.session._connection import observers
from outrider.session._info import SessionInfo
from outrider.session._prompts import Prompt, Prompts
from outrider.session._requests import UNSET, Timeout
from outrider.session._result import Output_co, OutputType, Result, UnfinishedTask
from outrider.session._session import SessionState, T
from outrider.session._streams import stream
from outrider.session._streams.turn_state import Until
from outrider.session._turn import CancelReceipt, Delivery
from outrider.session._usage import Usage
from outrider.sync._portal import Wrapper, portal, wrap
from outrider.wire import JsonObject, Message, control
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


class Reader(Wrapper):
    """Reads a stream: `for message in reader`, or many at a time with `batch()`.

    Leaving the loop leaves nothing behind. Raises what ended the stream, after the last message.
    """

    @property
    def _async(self) -> stream.Reader:
        return cast(stream.Reader, self._wrapped)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        return self._wait(self._async.__anext__)

    def batch(self) -> list[Message]:
        """The messages that are there, at least one: a wake-up for many, where speed counts.

        Raises `StopIteration` at the end.
        """
        return self._wait(self._async.batch)

    def fork(self) -> Reader:
        """Another reader, which begins where this one is."""
        return wrap(Reader, self._read(self._async.fork), self._portal)


class EventReader(Wrapper):
    """Events as they come, for one reader: `for event in session.handled(): ...`.

    It ends with the session. Of more than 10,000 that are not read the oldest are dropped, and counted in
    `missed`.
    """

    @property
    def _async(self) -> observers.EventReader:
        return cast(observers.EventReader, self._wrapped)

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

    @property
    def _async(self) -> _turn.TextReader:
        return cast(_turn.TextReader, self._wrapped)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> str:
        return self._wait(self._async.__anext__)


class Queued(Wrapper):
    """A message that waits for the agent, and what becomes of it."""

    @property
    def _async(self) -> _turn.Queued:
        return cast(_turn.Queued, self._wrapped)

    @property
    def turn(self) -> Turn:
        return wrap(Turn, self._read(lambda: self._async.turn), self._portal)

    def __repr__(self) -> str:
        return self._read(self._async.__repr__)

    @property
    def uuid(self) -> str:
        """Its id, which the agent names in what it says about it."""
        return self._read(lambda: self._async.uuid)

    @property
    def state(self) -> Delivery:
        """Where it stands now."""
        return self._read(lambda: self._async.state)

    def wait(self) -> Delivery:
        """Wait until it is `consumed`, `withdrawn` or `lost`."""
        return self._wait(self._async.wait)

    def withdraw(self) -> bool:
        """Take it back. False if the agent has taken it up already."""
        return self._wait(self._async.withdraw)


class Turn(Wrapper, Generic[Output_co]):
    """A prompt and all that comes of it.

    `for message in turn` gives its messages as they come, up to its result; `text()` only what the model
    says; `result()` waits for the end. All of them can be used together, by several threads. A loop goes on
    where the one before it stopped; loops at the same time each see everything from there on.
    """

    @property
    def _async(self) -> _turn.Turn[Output_co]:
        return cast(_turn.Turn[Output_co], self._wrapped)

    def __repr__(self) -> str:
        return self._read(self._async.__repr__)

    @property
    def uuid(self) -> str | None:
        """The id of its prompt, which the agent names in what it says about it. Of several prompts, the
        first.
        """
        return self._read(lambda: self._async.uuid)

    @property
    def is_over(self) -> bool:
        """Whether it has its result, or failed."""
        return self._read(lambda: self._async.is_over)

    @property
    def delivery(self) -> Delivery:
        """Where its last prompt stands."""
        return self._read(lambda: self._async.delivery)

    @property
    def messages(self) -> tuple[Message, ...]:
        """All that came for it so far. Stream events stay only until the message is there that they are
        pieces of.
        """
        return self._read(lambda: self._async.messages)

    def __iter__(self) -> Reader:
        """Its messages, up to its result.

        A turn that the result says has failed ends like any other; one that ended without a result raises
        after the last message what `result` would raise.
        """
        return wrap(Reader, self._read(self._async.__aiter__), self._portal)

    def text(self) -> TextReader:
        """What the model says, as it says it: pieces with `include_partial_messages`, else whole blocks.

        Only the text of the answer: no thinking, and nothing that subagents say.
        """
        return wrap(TextReader, self._read(self._async.text), self._portal)

    def result(self, *, until: Until | None = None, check: bool = True) -> Result[Output_co]:
        """Wait for the end of the turn, and give what it came to.

        `until="idle"` waits for work in the background too, if it was begun in this turn
        (`timeouts.background` at most). What is not done then is among `unfinished_tasks`. By default it is
        as `send` was told.

        A turn that did not do what it was asked to raises its error: `TurnTimedOut`, `ApiFailed`,
        `LimitReached`, `TurnInterrupted`, `OutputInvalid` (all of them `TurnFailed`), or `ConnectionLost`. In
        each, `result` has what there is. With `check=False` the result is given back instead, with its
        `error`. Interrupting the call does not cancel the turn.
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
        """Add to what the agent is doing: it takes this up at the next boundary, between two of its steps.

        If the turn has no boundary left by then, it is the next turn. Raises `UsageError` once the turn is
        over.
        """
        return wrap(Queued, self._wait(self._async.steer, prompt), self._portal)


class Session(Requests, Generic[Output_co]):
    """A conversation with an agent, which runs as long as this is open.

        with outrider.sync.Session(cwd="project") as session:
            result = session.ask("What is this project about?")
            turn = session.send("Now write a README")
            for message in turn: ...

    `for message in session` gives everything that the agent says, whatever turn it belongs to; each such loop
    has a position of its own. The first one begins with what nobody has read yet, later ones with what comes
    next.

    It may be used from several threads, and opened in one and closed in another. Without `with`, call
    `connect` and `close`. One that is dropped unclosed ends its agent, with a `ResourceWarning`.
    """

    @property
    def _async(self) -> _session.Session[Output_co]:
        return cast(_session.Session[Output_co], self._wrapped)

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
        """`options`, or single ones as keywords; given both, the keywords win. Raises `OptionsError`.

        `output`: the form that each answer must have: a type (a pydantic or msgspec model, a dataclass, a
        `TypedDict`, `list[…]`, `Literal[…]`, …), or a JSON Schema. It is checked here too, and is
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
        """End the agent: a turn that runs is interrupted, the agent is given time to write its transcript,
        and then it is made to end.

        It takes a few seconds longer than the transport says at most; see the guide on endings. Turns that
        are not over fail with `TransportClosed`. What came until then can still be read. Closing twice does
        no harm.
        """
        self._wait(self._async.close)

    def end_input(self) -> None:
        """Say that no more will be sent: when all that was asked is done, the agent ends by itself.

        `for message in session` comes to its end then, and raises `ProcessExited` if the agent calls that end
        a failure. Returns at once. Whatever is sent afterwards is a `TransportClosed`.
        """
        self._read(self._async.end_input)

    def abandon(self) -> None:
        """Begin to end the agent, without waiting for it: from any thread, from `__del__`, at any time."""
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
        """Send a prompt; gives the turn that it begins, at once.

        A prompt is text, content blocks, or an iterable of prompts, async or not, which are sent as they come
        and are one turn together. Sent while another turn runs, it waits behind that one; `priority="now"`
        ends that one first. `until="idle"`: the turn ends when its background work does. `keep=False`: what
        comes is kept neither for its result nor for whoever reads the turn later; for one that goes on for
        days while the session is read.

        A plain iterable is asked in a thread of its own, because it may block. No deadline runs while its
        next prompt is waited for. A generator is closed when its turn ends; one that fails ends the turn,
        with `TurnFailed`.

        Raises `UsageError` or `MessageInvalid` for what is no prompt, `ConnectionLost` if the agent is gone.
        """
        return cast(
            "Turn[Output_co]",
            wrap(
                Turn,
                self._wait(self._async.send, prompt, until=until, priority=priority, keep=keep),
                self._portal,
            ),
        )

    def ask(
        self, prompt: Prompt | Prompts, *, until: Until = "result", check: bool = True
    ) -> Result[Output_co]:
        """Send a prompt and wait for what it comes to. Raises what `Turn.result` raises.

        Interrupting the call cancels the turn.
        """
        return self._wait(self._async.ask, prompt, until=until, check=check)

    def enqueue(self, prompt: Prompt) -> Queued:
        """Send a prompt for the turn after those that wait already; gives a handle to follow it by, or to
        take it back.
        """
        return wrap(Queued, self._wait(self._async.enqueue, prompt), self._portal)

    def __iter__(self) -> Reader:
        return wrap(Reader, self._read(self._async.__aiter__), self._portal)

    def wait_idle(self) -> None:
        """Wait until nothing is asked and nothing goes on, in the background either."""
        self._wait(self._async.wait_idle)

    def reinitialize(self, *, timeout: Timeout = UNSET) -> SessionInfo:
        """Send the first request again, with the same options; gives the refreshed `info`."""
        return self._wait(self._async.reinitialize, timeout=timeout)

    @property
    def state(self) -> SessionState:
        """What it is doing."""
        return self._read(lambda: self._async.state)

    @property
    def id(self) -> str | None:
        """The session's id, to resume it by. Known from the first turn on; `/clear` changes it."""
        return self._read(lambda: self._async.id)

    @property
    def pid(self) -> int | None:
        """The agent's process; None before the start, and if it is none of this machine's."""
        return self._read(lambda: self._async.pid)

    def resident_bytes(self) -> int | None:
        """The memory that the agent's process and all that it started has in use, pages that they share
        counted for each; None if that is not known here. Looks at every process of the machine, so call it in
        a thread if that matters.
        """
        return self._read(self._async.resident_bytes)

    @property
    def info(self) -> SessionInfo:
        """What the agent says about itself; kept up to date."""
        return self._read(lambda: self._async.info)

    def handled(self) -> EventReader:
        """What is answered to the agent from now on: each tool call, hook and decision, with its latency.

            for event in session.handled(): ...

        It ends with the session.
        """
        return wrap(EventReader, self._read(self._async.handled), self._portal)

    @property
    def usage(self) -> Usage:
        """What all turns since the start have used together."""
        return self._read(lambda: self._async.usage)

    @property
    def tasks(self) -> tuple[UnfinishedTask, ...]:
        """What goes on in the background."""
        return self._read(lambda: self._async.tasks)
