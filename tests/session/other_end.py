"""An agent at the other end of a transport in memory, played by a test line by line.

Uses the same `Peer` as a host does, in the agent's role; knows nothing of sessions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any
from uuid import uuid4

import anyio
from anyio.lowlevel import checkpoint

from outrider.errors import TransportClosed
from outrider.handlers import Handlers
from outrider.options import Options
from outrider.protocol import Event, Peer, RequestReceived, RequestWithdrawn
from outrider.session import Session
from outrider.transports import memory_pair
from outrider.wire import JsonObject, UserMessage

VERSION = "2.1.325"
SESSION = "5e551011-0000-4000-8000-000000000001"


class HostLeft(Exception):
    """The host has closed its side, and a test's agent expected more of it."""


class OtherEnd:
    """The agent's end. Give `transport` to the session."""

    def __init__(self) -> None:
        self.transport, self._own = memory_pair()
        self.peer = Peer("agent")
        self._events: deque[Event] = deque()
        self.is_ended = False
        """Whether the host has closed its side."""

    async def open(self, **answer: Any) -> JsonObject:
        """Answer the first request; gives it back."""
        await self.connect()
        asked = await self.asked("initialize")
        await self.answer(asked, claude_code_version=VERSION, **answer)
        return asked.request.to_wire()

    async def connect(self) -> None:
        """Begin to listen, and answer nothing."""
        await self._own.connect()

    # Hearing.

    async def next(self) -> Event | None:
        """The next event; None at the end."""
        while not self._events:
            data = await self._own.receive()
            if not data:
                self.is_ended = True
                return None
            self._events.extend(self.peer.receive(data))
        return self._events.popleft()

    async def prompt(self) -> UserMessage:
        """The next prompt."""
        event = await self._expect()
        assert isinstance(event, UserMessage), event
        return event

    async def asked(self, subtype: str) -> RequestReceived:
        """The next request, which has to be of this kind."""
        event = await self._expect()
        assert isinstance(event, RequestReceived), event
        assert event.request.subtype == subtype, event
        return event

    async def taken_back(self) -> RequestWithdrawn:
        event = await self._expect()
        assert isinstance(event, RequestWithdrawn), event
        return event

    async def _expect(self) -> Event:
        event = await self.next()
        if event is None:
            raise HostLeft
        return event

    # Speaking.

    async def answer(self, asked: RequestReceived, **payload: Any) -> None:
        self.peer.respond(asked.id, payload or None)
        await self.flush()

    async def refuse(self, asked: RequestReceived, error: str, code: str | None = None) -> None:
        self.peer.refuse(asked.id, error, code)
        await self.flush()

    async def ask(self, subtype: str, **fields: Any) -> str:
        """Ask the host; gives the id under which its reply will come."""
        id = self.peer.request(subtype, **fields)
        await self.flush()
        return str(id)

    async def say(self, *frames: JsonObject) -> None:
        """Write frames, in one piece."""
        for frame in frames:
            self.peer.send(frame)
        await self.flush()

    async def write(self, data: bytes) -> None:
        """Write bytes as they are."""
        try:
            await self._own.send(data)
        except TransportClosed as error:
            raise HostLeft from error

    async def heard(self) -> None:
        """Wait until the host has received all that was said."""
        while not self._own.is_received:
            await checkpoint()

    async def flush(self) -> None:
        if output := self.peer.take_output():
            await self.write(output)

    async def reply(self, text: str = "done", **fields: Any) -> UserMessage:
        """Take the next prompt and answer it."""
        prompt = await self.prompt()
        assert prompt.uuid is not None
        await self.say(*turn(prompt.uuid, text, **fields))
        return prompt

    async def leave(self) -> None:
        """Close this side."""
        await self._own.close()

    async def wait_ended(self) -> None:
        """Wait until the host has closed its side."""
        while await self.next() is not None:
            pass


def lifecycle(uuid: str, state: str) -> JsonObject:
    return {"type": "command_lifecycle", "command_uuid": uuid, "state": state, **_ids()}


def init(*uuids: str, **fields: Any) -> JsonObject:
    frame: JsonObject = {
        "type": "system",
        "subtype": "init",
        "cwd": "/project",
        "model": "claude-test",
        "tools": ["Bash", "Task"],
        "mcp_servers": [],
        "permissionMode": "default",
        "slash_commands": ["clear"],
        "claude_code_version": VERSION,
        **_ids(),
    }
    if uuids:
        frame["user_message_uuids"] = list(uuids)
    return frame | fields


def assistant(text: str = "hello", *, tool: str | None = None, **fields: Any) -> JsonObject:
    block: JsonObject = {"type": "text", "text": text}
    if tool is not None:
        block = {"type": "tool_use", "id": tool, "name": "Bash", "input": {"command": text}}
    message: JsonObject = {"role": "assistant", "type": "message"}
    message |= {"id": f"msg_{uuid4().hex}", "model": "claude-test"}
    usage = {"input_tokens": 10, "output_tokens": 1}
    message |= {"content": [block], "usage": usage}
    return {"type": "assistant", "message": message, "parent_tool_use_id": None, **_ids()} | fields


def tool_result(tool: str, text: str = "ok", **fields: Any) -> JsonObject:
    content = [{"type": "tool_result", "tool_use_id": tool, "content": text}]
    message = {"role": "user", "content": content}
    return {"type": "user", "message": message, "parent_tool_use_id": None, **_ids()} | fields


def stream_event(text: str) -> JsonObject:
    delta = {"type": "text_delta", "text": text}
    event = {"type": "content_block_delta", "index": 0, "delta": delta}
    return {"type": "stream_event", "event": event, "parent_tool_use_id": None, **_ids()}


def result(*uuids: str, text: str = "done", **fields: Any) -> JsonObject:
    frame: JsonObject = {
        "duration_ms": 10,
        "duration_api_ms": 5,
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "num_turns": 1,
        "result": text,
        "stop_reason": "end_turn",
        "total_cost_usd": 0.01,
        "usage": {"input_tokens": 10, "output_tokens": 5},
        "permission_denials": [],
        "terminal_reason": "completed",
        **_ids(),
    }
    if uuids:
        frame["user_message_uuids"] = list(uuids)
    return frame | fields


def interrupted(*uuids: str, **fields: Any) -> JsonObject:
    """The result of a turn that was cut off."""
    told: JsonObject = {
        "subtype": "error_during_execution",
        "is_error": True,
        "terminal_reason": "aborted_streaming",
        "errors": ["[ede_diagnostic] cut off"],
    }
    return result(*uuids, **told | fields)


def state(name: str) -> JsonObject:
    return {"type": "system", "subtype": "session_state_changed", "state": name, **_ids()}


def retry(status: int | None, attempt: int = 1) -> JsonObject:
    return {
        "type": "system",
        "subtype": "api_retry",
        "attempt": attempt,
        "max_retries": 10,
        "retry_delay_ms": 500,
        "error_status": status,
        "error": "authentication_failed" if status == 401 else "server_error",
        **_ids(),
    }


def turn(uuid: str, text: str = "done", **fields: Any) -> list[JsonObject]:
    """A whole turn, as short as it can be."""
    return [
        lifecycle(uuid, "queued"),
        lifecycle(uuid, "started"),
        init(uuid),
        assistant(text),
        result(uuid, text=text, **fields),
        lifecycle(uuid, "completed"),
    ]


def _ids() -> JsonObject:
    return {"uuid": str(uuid4()), "session_id": SESSION}


class Routed(Handlers):
    """Answers each kind of request with a function of the test's, which gets it as it came."""

    def __init__(self, answers: Mapping[str, Callable[[Any], Awaitable[Any]]]) -> None:
        super().__init__(Options(), lambda _: None)
        self._answers = answers

    @property
    def serves(self) -> frozenset[str]:
        return frozenset(self._answers)

    @property
    def can_be_asked(self) -> bool:
        return bool(self._answers)

    async def answer(self, request: Any, origin: object) -> Any:
        return await self._answers[request.subtype](request)


def answering(**answers: Callable[[Any], Awaitable[Any]]) -> Callable[[Session], None]:
    """Have a session answer the agent."""

    def prepare(session: Session) -> None:
        session._conversation.handlers = Routed(answers)

    return prepare


@asynccontextmanager
async def playing(
    play: Callable[[OtherEnd], Awaitable[object]],
    deadline: float = 10.0,
    prepare: Callable[[Session], object] = lambda _: None,
    **fields: Any,
) -> AsyncGenerator[Session]:
    """A session with an agent that a function plays. What the function raises, the test raises.

    `prepare` is called with the session before it is opened.
    """
    agent = OtherEnd()

    async def play_on() -> None:
        with suppress(HostLeft):
            await agent.open()
            await play(agent)

    with anyio.fail_after(deadline):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(play_on)
            session = Session(transport=agent.transport, **fields)
            prepare(session)
            async with session:
                yield session
            tasks.cancel_scope.cancel()
