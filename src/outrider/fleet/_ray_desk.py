"""Owns the desk: the one actor of a run through which its workers and its driver talk.

Keeps letters until they are fetched, and knows nothing of what is in them: bodies are bytes. It is a plain
class, which Ray makes an actor of. Its methods are called by workers or by the driver, never by users.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import anyio
import msgspec

__all__ = ["Desk", "Heard", "Letter", "LetterKind"]

LetterKind: TypeAlias = Literal["note", "charge", "call", "withdrawn", "end"]


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker has to say to the driver."""

    key: str
    """Which attempt it is from."""
    kind: LetterKind
    body: bytes = b""
    call: str = ""
    """For `call` and `withdrawn`: which one."""


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """What the driver has to say to a worker."""

    is_wanted: bool
    """Whether somebody still waits for what the attempt comes to."""
    version: int = 0
    left: bytes = b""
    """What is left of the budget, if that is news."""
    posts: tuple[bytes, ...] = ()
    """Messages for the agent, of servers that run at the driver."""


class _Visitor:
    """An attempt that is expected, or being made."""

    def __init__(self) -> None:
        self.news = anyio.Event()
        self.posts: list[bytes] = []

    def wake(self) -> None:
        self.news.set()
        self.news = anyio.Event()


class _Call:
    """A worker that waits for an answer."""

    def __init__(self, key: str) -> None:
        self.key: Final = key
        self.is_over = anyio.Event()
        self.answer: bytes | None = None


class Desk:
    """Letters, answers, and what is left of the budget."""

    def __init__(self) -> None:
        self._letters: list[Letter] = []
        self._calls: dict[str, _Call] = {}
        self._visitors: dict[str, _Visitor] = {}
        self._left = b""
        self._version = 0
        self._came: anyio.Event | None = None
        """Set when there is a letter for a driver that waits."""

    # For workers.

    async def post(self, letter: Letter) -> None:
        """Leave a letter. Those of one worker keep their order."""
        self._put(letter)

    async def ask(self, letter: Letter) -> bytes | None:
        """Leave a call, and wait for its answer; None if nobody will answer it any more."""
        if letter.key not in self._visitors:
            return None
        call = self._calls[letter.call] = _Call(letter.key)
        self._put(letter)
        try:
            await call.is_over.wait()
        finally:
            self._calls.pop(letter.call, None)
        return call.answer

    async def withdraw(self, letter: Letter) -> None:
        """Wait for the answer to a call no longer."""
        if (call := self._calls.get(letter.call)) is not None:
            call.is_over.set()
        self._put(letter)

    async def hear(self, key: str, version: int, seconds: float) -> Heard:
        """Wait for news, for so many seconds at most."""
        visitor = self._visitors.get(key)
        if visitor is not None and not visitor.posts and version == self._version:
            with anyio.move_on_after(seconds):
                await visitor.news.wait()
        if self._visitors.get(key) is None or visitor is None:
            return Heard(is_wanted=False)
        posts, visitor.posts = tuple(visitor.posts), []
        left = self._left if version != self._version else b""
        return Heard(is_wanted=True, version=self._version, left=left, posts=posts)

    # For the driver.

    async def expect(self, key: str) -> None:
        """An attempt is about to be made."""
        self._visitors[key] = _Visitor()

    async def drop(self, key: str) -> None:
        """Nobody waits for an attempt any more: whoever still makes it is told to stop."""
        visitor = self._visitors.pop(key, None)
        for call in self._calls.values():
            if call.key == key:
                call.is_over.set()
        if visitor is not None:
            visitor.wake()

    async def collect(self, seconds: float) -> list[Letter]:
        """Fetch all letters; wait for the first, for so many seconds at most."""
        if not self._letters:
            self._came = anyio.Event()
            with anyio.move_on_after(seconds):
                await self._came.wait()
            self._came = None
        letters, self._letters = self._letters, []
        return letters

    async def answer(self, call: str, body: bytes) -> None:
        """Answer a call. One that was withdrawn needs no answer."""
        if (waiting := self._calls.get(call)) is not None:
            waiting.answer = body
            waiting.is_over.set()

    async def send(self, key: str, body: bytes) -> None:
        """Leave a message for an agent."""
        if (visitor := self._visitors.get(key)) is not None:
            visitor.posts.append(body)
            visitor.wake()

    async def publish(self, left: bytes) -> None:
        """Tell all workers what is left of the budget."""
        self._left = left
        self._version += 1
        for visitor in self._visitors.values():
            visitor.wake()

    def _put(self, letter: Letter) -> None:
        self._letters.append(letter)
        if self._came is not None:
            self._came.set()
