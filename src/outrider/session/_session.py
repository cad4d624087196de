"""`Session`: a conversation with an agent, for its user. `run` and `stream` have one for a single prompt,
`resolve_settings` for its settings.

What a session shares with its turns is in `_connection/conversation`.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast, overload

import anyio

from outrider.errors import AgentTooOld, OptionsError, UsageError
from outrider.launch import Version, make_initialize
from outrider.options import Options
from outrider.options._validators import invalid_value, text
from outrider.protocol import RunState
from outrider.session._connection.conversation import Conversation, wait_idle
from outrider.session._connection.observers import EventReader
from outrider.session._requests import UNSET, Requests, Timeout, check_fields
from outrider.session._result import Output, Output_co, output_shape
from outrider.session._streams.turn_state import Until, read_until
from outrider.session._turn import Turn, queue
from outrider.wire.control import Request

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractAsyncContextManager
    from typing import Self, Unpack

    from outrider.options import OptionFields, SdkServer
    from outrider.options._tool_names import ToolNames
    from outrider.session._info import SessionInfo
    from outrider.session._prompts import Prompt, Prompts
    from outrider.session._result import OutputType, Result, UnfinishedTask
    from outrider.session._streams.stream import Reader
    from outrider.session._turn import Queued
    from outrider.session._usage import Usage
    from outrider.wire import JsonObject
    from outrider.wire.control import SettingsReport

T = TypeVar("T")

_APPROVALS = frozenset(("can_use_tool", "elicitation", "request_user_dialog"))
_GO_ON = "The decision has come. Go on."


class SessionState(Enum):
    """What a session is doing."""

    STARTING = "starting"
    IDLE = "idle"
    BUSY = "busy"
    WAITING = "waiting"
    """It waits for an approval, or for another answer of a person."""
    CLOSED = "closed"


class Session(Requests, Generic[Output_co]):
    """A conversation with an agent, which runs as long as the session is open.

        async with outrider.Session(cwd="project") as session:
            result = await session.ask("What is this project about?")
            turn = await session.send("Now write a README")
            async for message in turn: ...

    `async for message in session` yields the messages of all turns; each such loop has a position of its
    own. The first one begins with the messages that are still unread, later ones with those that come next.

    Several tasks may use it, and one may open and another close it, on one event loop. Without `async with`,
    call `connect` and `close`. A session that is dropped unclosed ends its agent, with a `ResourceWarning`.
    """

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
        if options is None:
            self.options: Options = Options(**fields)
        elif isinstance(options, Options):  # pyright: ignore[reportUnnecessaryIsInstance]
            self.options = options.replace(**fields) if fields else options
        else:
            raise invalid_value(
                "`options`", "an `Options`", options, "Single options are keywords: `model='opus'`."
            )
        shape = None if output is None else output_shape(output, self.options)
        self._conversation = Conversation(self.options, Session._over, shape)
        self._conversation.session = cast("Session", self)

    @classmethod
    def _over(cls, conversation: Conversation) -> Self:
        session = cls.__new__(cls)
        session.options = conversation.given
        session._conversation = conversation
        return session

    def __repr__(self) -> str:
        return f"<Session {self.id or '(no id yet)'}, {self.state.value}>"

    # Beginning and end.

    async def connect(self) -> None:
        """Start the agent and wait until it is ready. A second call changes nothing.

        Raises a `LaunchError` (`AgentNotFound`, `AgentTooOld`, `FolderNotFound`, …), `SessionNotFound`,
        `ProcessExited` with what the program says about it, or `RequestTimedOut` after `timeouts.connect`;
        with a `session_store` also `SessionBusy` or a `StoreError`. Nothing is left running then.
        """
        await self._conversation.connect()

    async def close(self) -> None:
        """Interrupt a running turn, give the agent time to write its transcript, and end it.

        Takes at most a few seconds longer than the `bound` of the transport; see the guide on endings.
        Unfinished turns fail with `TransportClosed`. Messages that came before can still be read. A second
        call does nothing.
        """
        await self._conversation.close()

    def end_input(self) -> None:
        """Send nothing more: the agent exits by itself once it has done everything it was asked.

        `async for message in session` ends then, and raises `ProcessExited` if the agent exits with an error.
        Returns at once. Sending afterwards raises `TransportClosed`.
        """
        self._conversation.end_input()

    def abandon(self) -> None:
        """Begin to end the agent, without waiting. Safe in any thread, in `__del__`, and at any time."""
        self._conversation.abandon()

    async def __aenter__(self) -> Self:
        await self._conversation.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._conversation.close()

    # Talking.

    async def send(
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
        state, start = await self._conversation.send(prompt, until, priority, keep=keep)
        return Turn[Output_co](self._conversation, state, start)

    async def ask(
        self, prompt: Prompt | Prompts, *, until: Until = "result", check: bool = True
    ) -> Result[Output_co]:
        """Send a prompt and wait for its result. Raises what `Turn.result` raises.

        Cancelling the call cancels the turn.
        """
        state, _ = await self._conversation.send(prompt, until, None)
        try:
            return await Turn[Output_co](self._conversation, state).result(check=check)
        except anyio.get_cancelled_exc_class():
            self._conversation.connected().begin_stop(state)
            raise

    async def enqueue(self, prompt: Prompt) -> Queued:
        """Send a prompt that runs after those already waiting; returns a handle to follow or withdraw it."""
        return await queue(self._conversation, prompt, "later")

    async def continue_turn(self, *, until: Until = "result") -> Turn[Output_co]:
        """Continue after a call has waited for approval: open the session with `resume` and `approvals`
        before. Returns the turn.

        Raises `SessionParked` if the call was parked here or is not decided, `UsageError` if nothing waits.
        """
        conversation, gate = self._conversation, self._conversation.gate
        read_until("`until`", until)
        if gate is None:
            raise UsageError(
                "The session has no `approvals`", hint="Open it with those that it was left with."
            )
        own = await conversation.offered_turn()
        if own is None:
            gate.check_free(self.id)
            report = await gate.report()
            state, start = await conversation.send(report, until, None, continues=gate.parked_traces)
            gate.told(state)
            return Turn[Output_co](conversation, state, start)
        conversation.own_turn = None
        own[0].until = until
        turn = Turn[Output_co](conversation, *own)
        if gate.waits_for_own_tool:
            result = await turn.result(check=False)
            if result.terminal_reason == "tool_deferred_unavailable":
                # It was not there yet: the call is offered again with the next prompt.
                return await self.send(_GO_ON, until=until)
        return turn

    async def go_on(self, *, until: Until = "result", check: bool = True) -> Result[Output_co]:
        """Do as `continue_turn` does, and wait for the result."""
        return await (await self.continue_turn(until=until)).result(check=check)

    # Reading.

    def __aiter__(self) -> Reader:
        return self._conversation.read_everything()

    async def wait_idle(self) -> None:
        """Wait until no turn and no background work is left."""
        connection = self._conversation.opened()
        await wait_idle(connection)
        while connection.mirror is not None and connection.mirror.is_holding:
            await connection.routing.everything.wait_changed()

    # Asking.

    @overload
    async def request(self, request: Request[T], /, *, timeout: Timeout = UNSET) -> T: ...

    @overload
    async def request(self, request: str, /, *, timeout: Timeout = UNSET, **fields: object) -> JsonObject: ...

    async def request(
        self, request: Request[T] | str, /, *, timeout: Timeout = UNSET, **fields: object
    ) -> T | JsonObject:
        """Send any control request, and wait for the answer.

            settings = await session.request(outrider.wire.control.GetSettings())

        Each request of `outrider.wire.control` names the type of its answer: here it is a `SettingsReport`. A
        text is the name of a request on the wire, with its fields as Claude Code spells them; the answer is
        then the payload as it came.

        Raises `OptionsError` for fields that do not fit, before anything is sent; `RequestFailed` if the
        agent refuses, `Unsupported` if it does not know the request, `RequestTimedOut` if no answer comes,
        `ConnectionLost` if none can come any more. Cancelling the call takes the request back.
        """
        if isinstance(request, str):
            text("`request`", request)
        elif not isinstance(request, Request):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise invalid_value(
                "`request`", "the name of a request, or one of `outrider.wire.control`", request
            )
        elif fields:
            raise UsageError(f"{type(request).__name__} has fields of its own: set {', '.join(fields)} there")
        else:
            check_fields(request)
        return cast("T | JsonObject", await self._conversation.request(request, dict(fields), timeout))

    def _serving(self, own: Mapping[str, SdkServer]) -> AbstractAsyncContextManager[Mapping[str, JsonObject]]:
        return self._conversation.serving().exchanged(own)

    def _names_of_tools(self) -> ToolNames:
        return self._conversation.handlers.tool_names()

    async def reinitialize(self, *, timeout: Timeout = UNSET) -> SessionInfo:
        """Send the first request again, with the same options; returns the refreshed `info`."""
        conversation = self._conversation
        connection = conversation.connected()
        version = Version.parse(connection.info.version)
        request = conversation.handlers.complete(make_initialize(conversation.options, version))
        answer = await self.request(request, timeout=timeout)
        connection.info = connection.info.with_initialized(answer)
        return connection.info

    # Its state.

    @property
    def state(self) -> SessionState:
        """What it is doing."""
        connection = self._conversation.connection
        if self._conversation.is_closed or (connection is not None and connection.is_closed):
            return SessionState.CLOSED
        if connection is None or not self._conversation.is_ready:
            return SessionState.STARTING
        turns = connection.routing.turns
        if turns.run is RunState.ASKING or not _APPROVALS.isdisjoint(connection.open_requests):
            return SessionState.WAITING
        # The agent reports that it is idle a moment after its answer; only tasks make it busy until then.
        is_busy = turns.run is RunState.BUSY or (turns.run is RunState.SETTLING and bool(turns.tasks))
        return SessionState.BUSY if is_busy else SessionState.IDLE

    @property
    def id(self) -> str | None:
        """The session's id, for `resume`. Known from the first turn on; `/clear` changes it."""
        connection = self._conversation.connection
        return None if connection is None else connection.info.session_id

    @property
    def pid(self) -> int | None:
        """The agent's process id; None before the start, and if it runs on another machine."""
        connection = self._conversation.connection
        return None if connection is None else getattr(connection.transport, "pid", None)

    def resident_bytes(self) -> int | None:
        """The memory of the agent's process and all that it started; shared pages count for each process.
        None if it is unknown. Looks at every process of the machine: call it in a thread if that matters."""
        connection = self._conversation.connection
        measure = None if connection is None else getattr(connection.transport, "resident_bytes", None)
        return None if measure is None else int(measure())

    @property
    def info(self) -> SessionInfo:
        """What Claude Code reports about itself; kept up to date."""
        return self._conversation.opened().info

    def handled(self) -> EventReader:
        """Each answer to the agent from now on: tool calls, hooks and decisions, with their latency.

            async for event in session.handled(): ...

        It ends with the session.
        """
        return self._conversation.event_feed.subscribe(self._conversation)

    @property
    def usage(self) -> Usage:
        """What all turns since the start have used together."""
        return self._conversation.opened().routing.meter.total

    @property
    def tasks(self) -> tuple[UnfinishedTask, ...]:
        """The tasks that run in the background."""
        return tuple(self._conversation.opened().routing.tasks.values())


async def run(
    prompt: Prompt | Prompts,
    options: Options | None = None,
    *,
    output: OutputType[Output] = None,
    until: Until = "idle",
    check: bool = True,
    **fields: Unpack[OptionFields],
) -> Result[Output]:
    """Run one prompt, or an iterable of them, and return its result. The agent has ended by then.

        result = await outrider.run("How many TODOs are in src?", cwd="project")

    `output` is the form that the answer must have, a type or a JSON Schema; `Result.output` has that type.

    Waits for subagents in the background, too; with `until="result"`, only for the first answer. Raises what
    `Session.connect` and `Turn.result` raise; with `check=False`, a failed turn is returned as a result with
    its `error`.
    """
    async with Session(options, output=output, **fields) as session:
        result = await session.ask(prompt, until=until, check=False)
    return result.raise_for_error() if check else result


async def go_on(
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

        result = await outrider.go_on(session_id, permission=policy, approvals=approvals)

    Give the options that the session had. If more has to be approved, `Result.pending` has it.

    Raises `SessionParked` if something is not decided yet, `UsageError` if nothing waits, `SessionBusy` if
    someone has it open; else what `run` raises.
    """
    fields["resume"] = text("`session_id`", session_id)
    session = Session(options, output=output, **fields)
    await check_decided(session.options, session_id)
    async with session:
        result = await session.go_on(until=until, check=False)
    return result.raise_for_error() if check else result


async def check_decided(options: Options, session_id: str) -> None:
    """Raise unless a session can continue: before a process is started for it."""
    from outrider.approvals import SessionParked
    from outrider.session._gate import DECIDE_FIRST

    if options.approvals is None:
        raise OptionsError("There are no `approvals` to go on with", hint="Give those that the session had.")
    found = await options.approvals.list(session_id=session_id)
    if waiting := [each.id for each in found if each.state == "pending"]:
        raise SessionParked(session_id, waiting, hint=DECIDE_FIRST)
    if not any(each.is_open for each in found):
        raise UsageError(
            f"Nothing waits in the session {session_id!r}", hint="Send a prompt: `run(…, resume=session_id)`."
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

        async with outrider.stream("Explain the build") as turn:
            async for message in turn: ...

    Leaving the block ends the agent, even in the middle of a turn. Raises what `Session.connect` raises.
    """
    return TurnContext(prompt, Session(options, output=output, **fields), until)


_OF_SETTINGS: Final = (
    *("cli_path", "bundled_path", "executable", "executable_args", "extra_args", "runner", "transport"),
    *("cwd", "project_config_root", "env", "env_policy", "isolation", "user", "timeouts"),
    *(
        "model",
        "effort",
        "setting_sources",
        "settings",
        "managed_settings",
        "strict_settings_merge",
        "sandbox",
    ),
)
"""The options that decide which settings there are, and where Claude Code is."""


_READ_ONLY: Final = "bare"
_READ_ONLY_SINCE: Final = "2.1.81"
"""The flag with which Claude Code reads all settings and carries out none, and the first version with it."""


async def resolve_settings(options: Options | None = None, **fields: Unpack[OptionFields]) -> SettingsReport:
    """The settings that a session with these options would have, merged and by source.

        report = await outrider.resolve_settings(cwd="project", setting_sources=["user", "project"])
        print(report.effective.get("model"), report.provenance.get("model"))

    Claude Code itself merges them, in a process of its own. No model is asked, and nothing that the settings
    name is run: no hook, MCP server, plugin or helper that fetches a key.

    Raises what `Session.connect` raises.
    """
    from outrider.options import Options
    from outrider.wire.control import GetSettings

    given = (options or Options()).replace(**fields)
    kept: dict[str, Any] = {name: getattr(given, name) for name in _OF_SETTINGS}
    kept["extra_args"] = {**given.extra_args, _READ_ONLY: None}
    try:
        async with Session(Options(**kept, strict_mcp_config=True)) as session:
            return await session.request(GetSettings())
    except OptionsError as error:
        if f"--{_READ_ONLY}" not in str(error):
            raise
        raise AgentTooOld("", _READ_ONLY_SINCE, message="It cannot resolve settings") from error


class TurnContext(Generic[Output_co]):
    """A turn in a session of its own, which closes with the block."""

    def __init__(self, prompt: Prompt | Prompts, session: Session[Output_co], until: Until) -> None:
        self._prompt = prompt
        self._session = session
        self._until: Until = until

    async def __aenter__(self) -> Turn[Output_co]:
        await self._session.connect()
        try:
            return await self._session.send(self._prompt, until=self._until)
        except BaseException:
            await self._session.close()
            raise

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()
