"""An agent in this process: says back what it is told, and answers requests."""

from __future__ import annotations

import threading
from collections import deque

import anyio
import anyio.lowlevel

from outrider.errors import TransportClosed
from outrider.protocol import Peer, RequestReceived
from outrider.transports import Transport
from outrider.wire import JsonObject, UserMessage
from tests.session.other_end import VERSION, assistant, init, interrupted, lifecycle, result


class Agent(Transport):
    """Answers `say X` with X, word by word; anything else it only thinks about."""

    def __init__(self, answers: dict[str, JsonObject] | None = None) -> None:
        self.answers: dict[str, JsonObject] = {
            "initialize": {"claude_code_version": VERSION},
            "interrupt": {"still_queued": []},
            **(answers or {}),
        }
        self.asked: list[str] = []
        self.threads: set[str] = set()
        """The names of the threads that it was used in."""
        self.has_heard = threading.Event()
        """It has been given a prompt."""
        self.closed = threading.Event()
        self._peer = Peer("agent")
        self._output: deque[bytes] = deque()
        self._is_ready = False
        self._waiting: deque[tuple[str, str]] = deque()
        self._thinks_about = ""

    async def connect(self) -> None:
        await self._note()
        self._is_ready, self._moved = True, anyio.Event()

    async def receive(self) -> bytes:
        await self._note()
        while not self._output and not self.is_closed:
            await self._moved.wait()
            self._moved = anyio.Event()
        return self._output.popleft() if self._output else b""

    async def send(self, data: bytes) -> None:
        await self._note()
        if self.is_closed:
            raise TransportClosed("it has been closed")
        for event in self._peer.receive(data):
            if isinstance(event, RequestReceived):
                self._on_request(event)
            elif isinstance(event, UserMessage):
                self._on_prompt(event)
        self._flush()

    def _on_request(self, event: RequestReceived) -> None:
        self.asked.append(event.request.subtype)
        answer = self.answers.get(event.request.subtype)
        if answer is None:
            self._peer.refuse(event.id, "I will not")
        else:
            self._peer.respond(event.id, answer)
        if event.request.subtype == "interrupt" and self._thinks_about:
            uuid, self._thinks_about = self._thinks_about, ""
            self._say(interrupted(uuid), lifecycle(uuid, "cancelled"))
            self._go_on()

    def _on_prompt(self, message: UserMessage) -> None:
        assert message.uuid is not None
        self._say(lifecycle(message.uuid, "queued"))
        self._waiting.append((message.uuid, str(message.content)))
        self._go_on()
        self.has_heard.set()

    def _go_on(self) -> None:
        while self._waiting and not self._thinks_about:
            uuid, prompt = self._waiting.popleft()
            verb, _, text = prompt.partition(" ")
            self._say(lifecycle(uuid, "started"), init(uuid))
            if verb == "say":
                self._say(
                    *map(assistant, text.split()), result(uuid, text=text), lifecycle(uuid, "completed")
                )
            else:
                self._thinks_about = uuid

    def _say(self, *frames: JsonObject) -> None:
        for frame in frames:
            self._peer.send(frame)

    def _flush(self) -> None:
        if data := self._peer.take_output():
            self._output.append(data)
            self._moved.set()

    async def end_input(self) -> None:
        await self._note()

    async def close(self) -> None:
        # First: it may be called by one who is cancelled.
        self.closed.set()
        if self._is_ready:
            self._moved.set()
        await self._note()

    @property
    def is_closed(self) -> bool:
        return self.closed.is_set()

    @property
    def is_ready(self) -> bool:
        return self._is_ready and not self.is_closed

    async def _note(self) -> None:
        self.threads.add(threading.current_thread().name)
        await anyio.lowlevel.checkpoint()
