"""An agent in memory that does by itself what a test does not care about: it queues prompts, begins turns,
and takes interrupts, as the real one does.

What it says in a turn, and when the turn ends, is for the test to say.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import anyio

from outrider.errors import TransportClosed
from outrider.protocol import RequestReceived
from outrider.session import Session
from outrider.wire import JsonObject, UserMessage
from tests.session.other_end import OtherEnd, assistant, init, interrupted, lifecycle, playing, result

Answer = Callable[[RequestReceived], Awaitable[object]]


class Actor:
    """Works on one prompt at a time, until `finish` or an interrupt ends it."""

    def __init__(self, *, ignored: int = 0, is_eager: bool = True) -> None:
        """`ignored`: so many interrupts have no effect; `is_eager`: it takes up prompts as they come."""
        self._ignored = ignored
        self._is_eager = is_eager
        self.end = OtherEnd()
        self.opening: list[JsonObject] = [assistant("working")]
        """What it says first in a turn."""
        self.heard: list[str] = []
        """What it was asked, after the first request."""
        self.prompts: list[UserMessage] = []
        self.queue: list[str] = []
        self.current: list[str] = []
        self.on: dict[str, Answer] = {
            "interrupt": self.on_interrupt,
            "cancel_async_message": self.on_cancel_async_message,
        }
        self._news = anyio.Event()

    async def play(self, end: OtherEnd) -> None:
        self.end = end
        with suppress(TransportClosed):
            await self._play(end)

    async def _play(self, end: OtherEnd) -> None:
        while (event := await end.next()) is not None:
            if isinstance(event, UserMessage):
                await self.on_prompt(event)
            elif isinstance(event, RequestReceived):
                self.heard.append(event.request.subtype)
                await self.on[event.request.subtype](event)
            self._news.set()
            self._news = anyio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until what it hears has made something true."""
        while not condition():
            await self._news.wait()

    async def begun(self, count: int = 1) -> None:
        """Wait until it works, having been sent so many prompts, and has been heard."""
        await self.taken_up(count)
        await self.end.heard()

    async def taken_up(self, count: int) -> None:
        """The same, whether it has been heard or not."""
        await self.until(lambda: bool(self.current) and len(self.prompts) >= count)

    # Turns.

    async def on_prompt(self, prompt: UserMessage) -> None:
        self.prompts.append(prompt)
        self.queue.append(prompt.uuid or "")
        await self.end.say(lifecycle(self.queue[-1], "queued"))
        if self._is_eager and not self.current:
            await self.begin()

    async def begin(self, count: int = 1) -> None:
        """Take up so many prompts, as one turn."""
        self.current, self.queue = self.queue[:count], self.queue[count:]
        started = [lifecycle(uuid, "started") for uuid in self.current]
        await self.end.say(*started, init(*self.current), *self.opening)

    async def finish(self, text: str = "done", **fields: Any) -> None:
        """End the turn with its answer, and begin the next."""
        await self._end(result(*self.current, text=text, **fields), "completed")

    async def abort(self, **fields: Any) -> None:
        await self._end(interrupted(*self.current, **fields), "cancelled")

    async def _end(self, frame: dict[str, Any], state: str) -> None:
        ended, self.current = self.current, []
        await self.end.say(frame, *(lifecycle(uuid, state) for uuid in ended))
        if self._is_eager and self.queue and not self.current:
            await self.begin()

    # Requests.

    async def on_interrupt(self, asked: RequestReceived) -> None:
        if self.heard.count("interrupt") <= self._ignored:
            await self.end.answer(asked, still_queued=[*self.current, *self.queue])
            return
        await self.end.answer(asked, still_queued=self.queue)
        if self.current:
            await self.abort()

    async def on_cancel_async_message(self, asked: RequestReceived) -> None:
        uuid = asked.request.to_wire()["message_uuid"]
        if is_queued := uuid in self.queue:
            self.queue.remove(str(uuid))
        await self.end.answer(asked, cancelled=is_queued)

    async def ignore(self, asked: RequestReceived) -> None:
        """Do not even answer."""

    async def refuse(self, asked: RequestReceived) -> None:
        """Say that it does not know the request."""
        await self.end.refuse(asked, "Unsupported control request subtype", "unsupported_request")


def acting(actor: Actor, **fields: Any) -> Any:
    """A session with that agent."""
    return playing(actor.play, **fields)


async def check_usable(session: Session, actor: Actor) -> None:
    """The session answers the next prompt, and to that one."""
    before = len(actor.prompts)
    turn = await session.send("go on")
    await actor.taken_up(before + 1)
    await actor.finish("next")
    assert (await turn.result()).text == "next"
