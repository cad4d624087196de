"""The channel between a worker and the driver, and what stands for the driver's own objects on the worker.

Functions, hooks, servers, the gate and the ledger stay at the driver: their stand-ins ask it.
"""

from __future__ import annotations

import logging
import pickle
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Literal, SupportsIndex, TypeAlias, cast
from uuid import uuid4

import anyio
import msgspec

from outrider.errors import OutriderError, UsageError
from outrider.fleet._budget.account import Left, Spent
from outrider.fleet._budget.budget import Budget, Gate
from outrider.fleet._engine import Note
from outrider.handlers import Hook

if TYPE_CHECKING:
    from collections.abc import Mapping

    from outrider.fleet._budget.account import Kind
    from outrider.fleet._budget.ledger import LedgerEntry
    from outrider.handlers import Endpoint, HookContext, Link, Observe, Origin
    from outrider.wire import JsonObject
    from outrider.wire.hooks import HookInput

__all__ = [
    "AskedFunction",
    "AskedHook",
    "AskedServer",
    "DriverChannel",
    "DriverMessage",
    "FarGate",
    "FarLedger",
    "Mailbox",
    "MessageKind",
    "Share",
    "WorkerMessage",
    "current_channel",
]


MessageKind: TypeAlias = Literal["note", "charge", "call", "withdrawn", "end"]


class WorkerMessage(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker sends to the driver."""

    key: str
    """Which attempt it is from."""
    kind: MessageKind
    body: bytes = b""
    call: str = ""
    """For `call` and `withdrawn`: which one."""


class DriverMessage(msgspec.Struct, frozen=True, kw_only=True):
    """What the driver sends to a worker."""

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


class Mailbox:
    """Messages, answers, and what is left of the budget."""

    def __init__(self) -> None:
        self._messages: list[WorkerMessage] = []
        self._calls: dict[str, _Call] = {}
        self._visitors: dict[str, _Visitor] = {}
        self._left = b""
        self._version = 0
        self._came: anyio.Event | None = None
        """Set when there is a message for a driver that waits."""

    # For workers.

    async def post(self, message: WorkerMessage) -> None:
        """Leave a message. Those of one worker keep their order."""
        self._put(message)

    async def ask(self, message: WorkerMessage) -> bytes | None:
        """Leave a call, and wait for its answer; None if nobody will answer it any more."""
        if message.key not in self._visitors:
            return None
        call = self._calls[message.call] = _Call(message.key)
        self._put(message)
        try:
            await call.is_over.wait()
        finally:
            self._calls.pop(message.call, None)
        return call.answer

    async def withdraw(self, message: WorkerMessage) -> None:
        """Wait for the answer to a call no longer."""
        if (call := self._calls.get(message.call)) is not None:
            call.is_over.set()
        self._put(message)

    async def hear(self, key: str, version: int, seconds: float) -> DriverMessage:
        """Wait for news for at most this many seconds."""
        visitor = self._visitors.get(key)
        if visitor is not None and not visitor.posts and version == self._version:
            with anyio.move_on_after(seconds):
                await visitor.news.wait()
        if self._visitors.get(key) is None or visitor is None:
            return DriverMessage(is_wanted=False)
        posts, visitor.posts = tuple(visitor.posts), []
        left = self._left if version != self._version else b""
        return DriverMessage(is_wanted=True, version=self._version, left=left, posts=posts)

    # For the driver.

    async def expect(self, key: str) -> None:
        """An attempt is about to be made."""
        self._visitors[key] = _Visitor()

    async def drop(self, key: str) -> None:
        """Nobody waits for an attempt any more: its worker is told to stop."""
        visitor = self._visitors.pop(key, None)
        for call in self._calls.values():
            if call.key == key:
                call.is_over.set()
        if visitor is not None:
            visitor.wake()

    async def collect(self, seconds: float) -> list[WorkerMessage]:
        """Fetch all messages; wait for the first one for at most this many seconds."""
        if not self._messages:
            self._came = anyio.Event()
            with anyio.move_on_after(seconds):
                await self._came.wait()
            self._came = None
        messages, self._messages = self._messages, []
        return messages

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

    def _put(self, message: WorkerMessage) -> None:
        self._messages.append(message)
        if self._came is not None:
            self._came.set()


log = logging.getLogger("outrider.fleet")

_PACE: Final = 0.25
"""Seconds between two reports of what is spent."""
_SMALLEST: Final = {"usd": Spent(usd=1e-6), "tokens": Spent(tokens=1), "tool_calls": Spent(tool_calls=1)}
"""What makes a budget that is spent up one that is exceeded."""
_DUST: Final = 1e-9
"""Less money than this is an error of reckoning."""
_HEARING: Final = 20.0
"""Seconds that a worker listens to the mailbox at a time."""


class DriverChannel:
    """The way from one attempt to the driver and back."""

    def __init__(self, mailbox: object, key: str, share: Share | None) -> None:
        # A handle of Ray's, whose methods are made when they are looked up.
        self._mailbox: Final = cast("Any", mailbox)
        self._key: Final = key
        self._share: Final = share
        self._links: dict[str, Link] = {}

    def note(self, note: Note) -> None:
        """Tell something on the way. Never waits."""
        # First: what is noted of a worker that is lost then, was charged.
        self.charge()
        self._post("note", note)

    async def ask(self, kind: str, *question: object) -> object:
        """Ask the driver for something, and wait for it. Raises what it raises there.

        Cancelling the call cancels what was begun there.
        """
        call = uuid4().hex
        message = WorkerMessage(key=self._key, kind="call", call=call, body=pickle.dumps((kind, question)))
        answer: bytes | None = None
        try:
            answer = await self._mailbox.ask.remote(message)
        finally:
            if answer is None:
                self._mailbox.withdraw.remote(WorkerMessage(key=self._key, kind="withdrawn", call=call))
        if answer is None:
            raise UsageError("nobody waits for this attempt any more")
        try:
            error, value = cast("tuple[BaseException | None, object]", pickle.loads(answer))
        except Exception as unread:
            # Errors and values of the user's may need code that is not here.
            raise OutriderError(f"the driver's answer cannot be read here: {unread!r}") from unread
        if error is not None:
            raise error
        return value

    async def hear(self, scope: anyio.CancelScope) -> None:
        """Receive from the driver until the attempt is no longer wanted; then cancel the scope."""
        version = -1
        try:
            while True:
                news: DriverMessage = await self._mailbox.hear.remote(self._key, version, _HEARING)
                if not news.is_wanted:
                    break
                version = news.version
                if news.left and self._share is not None:
                    self._share.correct(*pickle.loads(news.left))
                for body in news.posts:
                    server, message = pickle.loads(body)
                    if (link := self._links.get(server)) is not None:
                        link.post(message)
        except Exception as error:  # noqa: BLE001 - Ray has many: the mailbox is gone, and the run with it
            log.warning("the driver cannot be reached any more: %s", error)
        scope.cancel()

    async def report(self) -> None:
        """Tell what is spent, again and again."""
        while True:
            await anyio.sleep(_PACE)
            self.charge()

    def charge(self) -> None:
        """Tell what is spent since it was told last."""
        if self._share is not None and (spent := self._share.news()) != Spent():
            self._post("charge", spent)

    async def end(self) -> None:
        """Say that nothing more comes. All that was said before has arrived then."""
        self.charge()
        await self._mailbox.post.remote(WorkerMessage(key=self._key, kind="end"))

    def join(self, server: str, link: Link) -> None:
        """From here on, what the server has to say to the agent goes there."""
        self._links[server] = link

    def _post(self, kind: MessageKind, body: object) -> None:
        self._mailbox.post.remote(WorkerMessage(key=self._key, kind=kind, body=pickle.dumps(body)))


current_channel: Final[ContextVar[DriverChannel]] = ContextVar("outrider channel to the driver")
"""The channel of the attempt that runs. Callbacks run in the context of what caused them."""


# What stands for the driver's own.


class AskedFunction:
    """Stands for a callback of the driver."""

    def __init__(self, name: str) -> None:
        self.name: Final = name
        self.__qualname__ = f"{name} of the driver"

    async def __call__(self, request: object) -> object:
        asked = cast("Any", request)
        if self.name == "on_question":
            return await current_channel.get().ask(self.name, asked.ask, asked.index, dict(asked.answers))
        return await current_channel.get().ask(self.name, asked.ask)


class _AskedHookFunction:
    """Stands for the function of a hook of the driver."""

    def __init__(self, name: str, event: str, place: int) -> None:
        self.event: Final = event
        self.place: Final = place
        self.__qualname__ = name

    async def __call__(self, told: HookInput, context: HookContext) -> object:
        return await current_channel.get().ask("hook", self.event, self.place, told, context.tool_use_id)


class AskedHook(Hook[..., object]):
    """Stands for a hook of the driver: the one at this place among those of its event."""

    def __init__(self, name: str, event: str, place: int, facts: Mapping[str, Any]) -> None:
        super().__init__(_AskedHookFunction(name, event, place), event, **facts)
        self._made_of = (name, event, place, facts)

    @classmethod
    def of(cls, hook: Hook[..., object], place: int, matcher: str | None) -> AskedHook:
        """What stands for this one, with its matcher as it is sent: tools here have no names there."""
        facts = {name: getattr(hook, name) for name in ("timeout", "fails", "allow_unknown", "in_order")}
        # Who gave it is warned at the driver.
        return cls(hook.name, hook.event, place, {**facts, "matcher": matcher, "allow_undelivered": True})

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[object, ...]:
        # Hooks are pickled by the name of their function, and here there is none.
        return AskedHook, self._made_of


class AskedServer:
    """Stands for an MCP server that runs at the driver."""

    def __init__(self, name: str) -> None:
        self.name: Final = name

    def open(self, link: Link, observe: Observe) -> Endpoint:
        channel = current_channel.get()
        channel.join(self.name, link)
        return _AskedEndpoint(channel, self.name)


class _AskedEndpoint:
    def __init__(self, channel: DriverChannel, server: str) -> None:
        self._channel = channel
        self._server = server

    async def receive(self, message: JsonObject, origin: Origin) -> JsonObject | None:
        return cast("JsonObject | None", await self._channel.ask("server", self._server, message))

    async def run(self) -> None:
        """Nothing has to be done here."""


class FarGate(Gate):
    """Stands for the gate of the run."""

    def __init__(self, channel: DriverChannel) -> None:
        super().__init__()
        self._channel = channel

    async def wait(self) -> None:
        await self._channel.ask("gate", "wait")

    async def pause(self, until: float, why: str = "") -> None:
        await super().pause(until, why)
        await self._channel.ask("gate", "pause", until, why)

    async def open(self) -> None:
        await super().open()
        await self._channel.ask("gate", "open")


class FarLedger:
    """Stands for the ledger of the run."""

    def __init__(self, channel: DriverChannel) -> None:
        self._channel = channel

    async def add(self, entry: LedgerEntry) -> None:
        await self._channel.ask("ledger", entry)


class Share:
    """A copy of the run's budget, which one attempt spends from.

    It has what was left when the attempt began. What the attempt spends is reported; what others spend comes
    as what is left after it, and is charged here so that no more than that is left here either.
    """

    def __init__(self, left: Left, *, name: str, grace: float) -> None:
        self.budget: Final = Budget(
            usd=left.usd,
            tokens=left.tokens,
            tool_calls=left.tool_calls,
            wall=left.wall,
            name=name,
            grace=grace,
            # The driver's own warns.
            warn_at=1.0,
        )
        self._reported = Spent()
        self._corrected = Spent()

    def news(self) -> Spent:
        """What this attempt has spent since it was asked last; its time is not counted."""
        spent = self.budget.spent
        news = spent - self._corrected - self._reported
        news -= Spent(wall=news.wall)
        if abs(news.usd) < _DUST:
            news -= Spent(usd=news.usd)
        self._reported += news
        return news

    def correct(self, left: Left, exceeded: Kind | None) -> None:
        """No more than this is left of the run's budget, of which more is spent of one kind than may be."""
        here = self.budget.left
        missing = Spent(
            usd=max(0.0, (here.usd or 0.0) - (left.usd or 0.0)),
            tokens=max(0, (here.tokens or 0) - (left.tokens or 0)),
            tool_calls=max(0, (here.tool_calls or 0) - (left.tool_calls or 0)),
            # The clock of the run went on while the attempt waited for a place.
            wall=max(0.0, (here.wall or 0.0) - (left.wall or 0.0)) if exceeded == "wall" else 0.0,
        )
        if exceeded in _SMALLEST and self.budget.exceeded is None:
            missing += _SMALLEST[exceeded]
        self._corrected += missing
        self.budget.charge(missing)
