"""A conversation with an agent, for its user.

What it shares with its turns is in `_conversation`, what travels is the connection's business, what a turn
came to the turn's.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, TypeVar, cast, overload

import anyio

from bridle.errors import OptionsError, UsageError
from bridle.launch import make_initialize
from bridle.options import Options
from bridle.options._readers import fault, text
from bridle.protocol import RunState
from bridle.session._conversation import Conversation
from bridle.session._requests import UNSET, Requests, Timeout
from bridle.session._router import Router
from bridle.session._turn import Turn, queue
from bridle.wire.control import Request

if TYPE_CHECKING:
    from typing import Self, Unpack

    from bridle.options import OptionFields
    from bridle.protocol import Turns
    from bridle.session._feeding import Prompts
    from bridle.session._info import SessionInfo
    from bridle.session._prompts import Prompt
    from bridle.session._result import Result, UnfinishedTask
    from bridle.session._stream import Reader
    from bridle.session._turn import Queued
    from bridle.session._turn_state import Until
    from bridle.session._usage import Usage
    from bridle.wire import Json, JsonObject

T = TypeVar("T")

_APPROVALS = frozenset(("can_use_tool", "elicitation", "request_user_dialog"))


class SessionState(Enum):
    """What a session is doing."""

    STARTING = "starting"
    IDLE = "idle"
    BUSY = "busy"
    WAITING = "waiting"
    """For an approval, or another answer of a person."""
    CLOSED = "closed"


class Session(Requests):
    """A conversation with an agent, which runs as long as this is open.

        async with bridle.Session(cwd="project") as session:
            result = await session.ask("What is this project about?")
            turn = await session.send("Now write a README")
            async for message in turn: ...

    `async for message in session` gives everything that the agent says, whatever turn it belongs to; each
    such loop has a position of its own. The first one begins with what nobody has read yet, later ones with
    what comes next.

    It may be used from several tasks, and opened in one and closed in another, on one event loop. Without
    `async with`, call `connect` and `close`. One that is dropped unclosed ends its agent, with a
    `ResourceWarning`.
    """

    def __init__(self, options: Options | None = None, **fields: Unpack[OptionFields]) -> None:
        """`options`, or single ones as keywords; given both, the keywords win. Raises `OptionsError`."""
        options = Options() if options is None else options
        if not isinstance(options, Options):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise fault("`options`", "an `Options`", options, "Single options are keywords: `model='opus'`.")
        self.options: Options = options.replace(**fields) if fields else options
        _check_answerable(self.options)
        self._conversation = Conversation(self.options, Router())

    def __repr__(self) -> str:
        return f"<Session {self.id or '(no id yet)'}, {self.state.value}>"

    # Beginning and end.

    async def connect(self) -> None:
        """Start the agent and wait until it is ready. A second call changes nothing.

        Raises a `LaunchError` (`AgentNotFound`, `AgentTooOld`, `FolderNotFound`, …), `SessionNotFound`,
        `ProcessExited` with what the program says about it, or `RequestTimedOut` after `timeouts.connect`.
        Nothing is left running then.
        """
        await self._conversation.connect()

    async def close(self) -> None:
        """End the agent: a turn that runs is interrupted, the agent is given time to write its transcript,
        and then it is made to end.

        It takes a few seconds longer than the transport says at most; see the guide on endings. Turns that
        are
        not over fail with `TransportClosed`. What came until then can still be read. Closing twice does no
        harm.
        """
        await self._conversation.close()

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # Talking.

    async def send(
        self, prompt: Prompt | Prompts, *, until: Until = "result", priority: str | None = None
    ) -> Turn:
        """Send a prompt; gives the turn that it begins, at once.

        A prompt is text, content blocks, or an iterable of prompts, async or not, which are sent as they come
        and are one turn together. Sent while another turn runs, it waits behind that one; `priority="now"`
        ends that one first. `until="idle"`: the turn ends when its background work does.

        A plain iterable is asked in a thread of its own, because it may block. No deadline runs while its
        next prompt is waited for. A generator is closed when its turn ends; one that fails ends the turn,
        with `TurnFailed`.

        Raises `UsageError` or `MessageInvalid` for what is no prompt, `ConnectionLost` if the agent is gone.
        """
        return Turn(self._conversation, await self._conversation.send(prompt, until, priority))

    async def ask(
        self, prompt: Prompt | Prompts, *, until: Until = "result", check: bool = True
    ) -> Result[Json]:
        """Send a prompt and wait for what it comes to. Raises what `Turn.result` raises.

        Cancelling the call cancels the turn.
        """
        state = await self._conversation.send(prompt, until, None)
        try:
            return await Turn(self._conversation, state).result(check=check)
        except anyio.get_cancelled_exc_class():
            self._conversation.connected().begin_stop(state)
            raise

    async def enqueue(self, prompt: Prompt) -> Queued:
        """Send a prompt for the turn after those that wait already; gives a handle to follow it by, or to
        take it back."""
        return await queue(self._conversation, prompt, "later")

    # Reading.

    def __aiter__(self) -> Reader:
        return self._conversation.read_everything()

    async def wait_idle(self) -> None:
        """Wait until nothing is asked and nothing goes on, in the background either."""
        connection = self._conversation.opened()
        routing = connection.routing
        while not (connection.is_closed or (_is_idle(routing.turns) and not routing.outstanding)):
            await routing.everything.wait()

    # Asking.

    @overload
    async def request(self, request: Request[T], /, *, timeout: Timeout = UNSET) -> T: ...

    @overload
    async def request(self, request: str, /, *, timeout: Timeout = UNSET, **fields: object) -> JsonObject: ...

    async def request(
        self, request: Request[T] | str, /, *, timeout: Timeout = UNSET, **fields: object
    ) -> T | JsonObject:
        """Ask the agent anything, and wait for the answer.

        A text is the name of a request on the wire, with its fields as the agent spells them; the answer is
        then the payload as it came. Requests that have a class are in `bridle.wire.control`.

        Raises `RequestFailed` if the agent refuses, `Unsupported` if it does not know the request,
        `RequestTimedOut` if no answer comes, `ConnectionLost` if none can come any more. Cancelling the call
        takes the request back.
        """
        if isinstance(request, str):
            text("`request`", request)
        elif not isinstance(request, Request):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise fault("`request`", "the name of a request, or one of `bridle.wire.control`", request)
        elif fields:
            raise UsageError(f"{type(request).__name__} has fields of its own: set {', '.join(fields)} there")
        return cast("T | JsonObject", await self._conversation.request(request, dict(fields), timeout))

    async def reinitialize(self, *, timeout: Timeout = UNSET) -> SessionInfo:
        """Send the first request again, with the same options; gives the refreshed `info`."""
        answer = await self.request(make_initialize(self.options), timeout=timeout)
        connection = self._conversation.connected()
        connection.info = connection.info.with_initialized(answer)
        return connection.info

    # How it stands.

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
        # After its answer the agent takes a moment to say that it is idle; only tasks make that a state.
        is_busy = turns.run is RunState.BUSY or (turns.run is RunState.SETTLING and bool(turns.tasks))
        return SessionState.BUSY if is_busy else SessionState.IDLE

    @property
    def id(self) -> str | None:
        """The session's id, to resume it by. Known from the first turn on; `/clear` changes it."""
        connection = self._conversation.connection
        return None if connection is None else connection.info.session_id

    @property
    def pid(self) -> int | None:
        """The agent's process; None before the start, and if it is none of this machine's."""
        connection = self._conversation.connection
        return None if connection is None else getattr(connection.transport, "pid", None)

    @property
    def info(self) -> SessionInfo:
        """What the agent says about itself; kept up to date."""
        return self._conversation.opened().info

    @property
    def usage(self) -> Usage:
        """What all turns since the start have used together."""
        return self._conversation.opened().routing.meter.total

    @property
    def tasks(self) -> tuple[UnfinishedTask, ...]:
        """What goes on in the background."""
        return tuple(self._conversation.opened().routing.tasks.values())


def _is_idle(turns: Turns) -> bool:
    return turns.is_over or turns.run is RunState.QUIET


def _check_answerable(options: Options) -> None:
    """Refuse what nobody would answer: to leave it out silently would be to let everything through."""
    own_tools = isinstance(options.tools, tuple) and not all(isinstance(tool, str) for tool in options.tools)
    given = {
        "`permission`": options.permission,
        "`hooks`": options.hooks,
        "tools of your own": own_tools,
        "`on_elicitation`": options.on_elicitation,
        "`on_user_dialog`": options.on_user_dialog,
        "`session_store`": options.session_store,
    }
    if names := [name for name, value in given.items() if value]:
        raise OptionsError(
            f"{', '.join(names)}: sessions cannot answer the agent yet", hint="Leave it out in this version."
        )
