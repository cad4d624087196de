"""The channel between a worker and the driver, and the stand-ins for the driver's objects on the worker.

Functions, hooks, servers, the gate and the ledger stay at the driver; their stand-ins ask it.
"""

from __future__ import annotations

import logging
import pickle
import time
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Literal, SupportsIndex, TypeAlias, cast
from uuid import uuid4

import anyio
import msgspec

from outrider.errors import OutriderError, UsageError
from outrider.fleet._budget.budget import Budget, Left, Spent
from outrider.fleet._engine import Note
from outrider.fleet._resilient.retry import Gate
from outrider.handlers import Hook

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from outrider.fleet._budget.budget import Kind
    from outrider.fleet._budget.ledger import LedgerEntry
    from outrider.handlers import AgentLink, Endpoint, HookContext, Observe, Origin
    from outrider.wire import JsonObject
    from outrider.wire.hooks import HookInput


MessageKind: TypeAlias = Literal[
    "note", "charge", "call", "withdrawn", "end", "answer", "post", "left", "gate"
]
"""The driver sends the last four, workers the others."""


class ChannelMessage(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker and the driver send each other."""

    key: str
    """Which attempt it is about."""
    kind: MessageKind
    body: bytes = b""
    call: str = ""
    """For `call`, `withdrawn` and `answer`: which one."""


class _Inbox:
    """Messages for one reader."""

    def __init__(self) -> None:
        self._messages: list[ChannelMessage] = []
        self._came = anyio.Event()

    def put(self, *messages: ChannelMessage) -> None:
        self._messages += messages
        self._came.set()

    async def take(self, seconds: float) -> list[ChannelMessage]:
        """All messages; wait for the first one for at most this many seconds."""
        if not self._messages:
            with anyio.move_on_after(seconds):
                await self._came.wait()
        self._came = anyio.Event()
        messages, self._messages = self._messages, []
        return messages


class Mailbox:
    """The actor that workers and the driver talk through: the driver and each attempt have an inbox."""

    def __init__(self) -> None:
        self._driver = _Inbox()
        self._attempts: dict[str, _Inbox] = {}
        self._published: dict[MessageKind, ChannelMessage] = {}

    async def post(self, message: ChannelMessage) -> None:
        """Leave a message for the driver. Those of one worker keep their order."""
        self._driver.put(message)

    async def collect(self, seconds: float) -> list[ChannelMessage]:
        """The messages for the driver; wait for the first one for at most this many seconds."""
        return await self._driver.take(seconds)

    async def expect(self, key: str) -> None:
        """An attempt is about to be made."""
        inbox = self._attempts[key] = _Inbox()
        inbox.put(*self._published.values())

    async def drop(self, key: str) -> None:
        """An attempt is no longer wanted: its worker stops."""
        if (inbox := self._attempts.pop(key, None)) is not None:
            inbox.put()

    async def send(self, message: ChannelMessage) -> None:
        """Leave a message for an attempt, if it is still wanted."""
        if (inbox := self._attempts.get(message.key)) is not None:
            inbox.put(message)

    async def publish(self, message: ChannelMessage) -> None:
        """Leave a message for all attempts, now and later; it replaces the one of its kind before it."""
        self._published[message.kind] = message
        for inbox in self._attempts.values():
            inbox.put(message)

    async def hear(self, key: str, seconds: float) -> list[ChannelMessage] | None:
        """The messages for an attempt, as in `collect`; None if it is no longer wanted."""
        inbox = self._attempts.get(key)
        found = None if inbox is None else await inbox.take(seconds)
        return found if key in self._attempts else None


log = logging.getLogger("outrider.fleet")

_PACE: Final = 0.25
"""Seconds between two reports of what is spent."""
_SMALLEST: Final = {"usd": Spent(usd=1e-6), "tokens": Spent(tokens=1), "tool_calls": Spent(tool_calls=1)}
"""Turns a budget that is spent into one that is exceeded."""
_DUST: Final = 1e-9
"""Less money than this is a rounding error."""
_HEARING: Final = 20.0
"""Seconds that a worker listens to the mailbox at a time."""


class DriverChannel:
    """The way from one attempt to the driver and back."""

    def __init__(self, mailbox: object, key: str, share: Share | None) -> None:
        # A handle of Ray's, whose methods are made when they are looked up.
        self._mailbox: Final = cast("Any", mailbox)
        self._key: Final = key
        self._share: Final = share
        self._links: dict[str, AgentLink] = {}
        self._calls: dict[str, _Call] = {}
        self._is_over = False
        self.gate_until = 0.0
        """Until when the gate of the run is closed, in Unix seconds."""
        self.knows_gate = anyio.Event()

    def note(self, note: Note) -> None:
        """Report progress. Never waits."""
        # First, so that what is noted was charged, even if the worker is lost now.
        self.charge()
        self._post("note", note)

    async def ask(self, kind: str, *question: object) -> object:
        """Ask the driver for something, and wait for it. Raises what it raises there.

        Cancelling the call cancels what was begun there.
        """
        if self._is_over:
            raise _unwanted()
        id, call = uuid4().hex, _Call()
        self._calls[id] = call
        self._post("call", (kind, question), id)
        try:
            await call.is_over.wait()
        finally:
            del self._calls[id]
            if call.answer is None:
                self._post("withdrawn", None, id)
        if call.answer is None:
            raise _unwanted()
        try:
            error, value = cast("tuple[BaseException | None, object]", pickle.loads(call.answer))
        except Exception as unread:
            # Errors and values may need code that is not on this machine.
            raise OutriderError(f"the driver's answer cannot be read here: {unread!r}") from unread
        if error is not None:
            raise error
        return value

    async def hear(self, scope: anyio.CancelScope) -> None:
        """Receive from the driver until the attempt is no longer wanted; then cancel the scope."""
        try:
            while (messages := await self._mailbox.hear.remote(self._key, _HEARING)) is not None:
                for message in messages:
                    self._take(message)
        except Exception as error:  # noqa: BLE001 - Ray has many: the mailbox is gone, and the run with it
            log.warning("the driver cannot be reached any more: %s", error)
        self._is_over = True
        self.knows_gate.set()
        for call in self._calls.values():
            call.is_over.set()
        scope.cancel()

    def _take(self, message: ChannelMessage) -> None:
        if message.kind == "answer":
            if (call := self._calls.get(message.call)) is not None:
                call.answer = message.body
                call.is_over.set()
        elif message.kind == "post":
            server, content = pickle.loads(message.body)
            if (link := self._links.get(server)) is not None:
                link.post(content)
        elif message.kind == "gate":
            self.gate_until = cast("float", pickle.loads(message.body))
            self.knows_gate.set()
        elif self._share is not None:
            self._share.correct(*pickle.loads(message.body))

    async def report(self) -> None:
        """Report what is spent, again and again."""
        while True:
            await anyio.sleep(_PACE)
            self.charge()

    def charge(self) -> None:
        """Report what was spent since the last report."""
        if self._share is not None and (spent := self._share.news()) != Spent():
            self._post("charge", spent)

    async def end(self) -> None:
        """Send the last message. When this returns, all messages before it have arrived."""
        self.charge()
        await cast("Awaitable[object]", self._post("end"))

    def join(self, server: str, link: AgentLink) -> None:
        """Send messages of the server to this link from now on."""
        self._links[server] = link

    def _post(self, kind: MessageKind, body: object = None, call: str = "") -> object:
        message = ChannelMessage(key=self._key, kind=kind, body=pickle.dumps(body), call=call)
        return self._mailbox.post.remote(message)


class _Call:
    """A question to the driver that is not answered yet."""

    def __init__(self) -> None:
        self.is_over = anyio.Event()
        self.answer: bytes | None = None


def _unwanted() -> UsageError:
    return UsageError("nobody waits for this attempt any more")


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

    async def __call__(self, event: HookInput, context: HookContext) -> object:
        return await current_channel.get().ask("hook", self.event, self.place, event, context.tool_use_id)


class AskedHook(Hook[..., object]):
    """Stands for a hook of the driver: the one at this place among those of its event."""

    def __init__(self, name: str, event: str, place: int, facts: Mapping[str, Any]) -> None:
        super().__init__(_AskedHookFunction(name, event, place), event, **facts)
        self._made_of = (name, event, place, facts)

    @classmethod
    def of(cls, hook: Hook[..., object], place: int, matcher: str | None) -> AskedHook:
        """What stands for this one, with its matcher as it is sent: tools here have no names there."""
        facts = {name: getattr(hook, name) for name in ("timeout", "fails", "allow_unknown", "in_order")}
        # The driver warns.
        return cls(hook.name, hook.event, place, {**facts, "matcher": matcher, "allow_undelivered": True})

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[object, ...]:
        # Hooks are pickled by the name of their function, and here there is none.
        return AskedHook, self._made_of


class AskedServer:
    """Stands for an MCP server that runs at the driver."""

    def __init__(self, name: str) -> None:
        self.name: Final = name

    def open(self, link: AgentLink, observe: Observe) -> Endpoint:
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
        # The driver tells all workers when it closes: it is asked only then.
        await self._channel.knows_gate.wait()
        if self._channel.gate_until > time.time() or not self.is_open:
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
