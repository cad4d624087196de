"""The check passes transports that keep to the contract, and names each clause that is broken."""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from outrider.command import Command
from outrider.errors import ConnectionLost, OptionsError, OutriderError, TransportClosed
from outrider.testing import ContractBroken, Faults, Faulty, check_transport
from outrider.testing._contracts.transport import ECHOING, FAILING, STUCK
from outrider.transports import ProcessTransport, Transport, memory_pair

pytestmark = pytest.mark.anyio


def process(*argv: str) -> ProcessTransport:
    return ProcessTransport(Command(argv), grace=0.1, terminate=0.1)


def cat() -> ProcessTransport:
    return process("cat")


FAILS = partial(process, "sh", "-c", "echo hello; exit 3")
STICKS = partial(process, "sleep", "1000")

Wrap = Callable[[Transport], Transport]


def echoing(wrap: Wrap = lambda inner: inner) -> Callable[[], AbstractAsyncContextManager[Transport]]:
    """Makes transports in memory, each with an echo at the other end."""

    @asynccontextmanager
    async def make() -> AsyncGenerator[Transport]:
        host, agent = memory_pair()

        async def echo() -> None:
            with suppress(TransportClosed):
                await agent.connect()
                while data := await agent.receive():
                    await agent.send(data)
                await agent.close()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(echo)
            yield wrap(host)
            tasks.cancel_scope.cancel()

    return make


# What keeps to it.


@pytest.mark.requirement("A12")
async def test_a_process_keeps_to_the_contract() -> None:
    checked = await check_transport(cat, failing=FAILS, stuck=STICKS)
    assert checked == [clause.text for clause in (*ECHOING, *FAILING, *STUCK)]


async def test_a_pair_in_memory_keeps_to_the_contract() -> None:
    assert await check_transport(echoing()) == [clause.text for clause in ECHOING]


MILD = Faults(split=1.0, delay=0.01, delay_seconds=0.001)


async def test_faults_that_change_nothing_leave_the_contract_kept() -> None:
    await check_transport(echoing(lambda inner: Faulty(inner, inbound=MILD, outbound=MILD)))
    await check_transport(
        lambda: Faulty(cat()), failing=lambda: Faulty(FAILS()), stuck=lambda: Faulty(STICKS())
    )


async def test_a_transport_may_be_made_asynchronously() -> None:
    async def make() -> Transport:
        await checkpoint()
        return cat()

    await check_transport(make)


# What does not.


class Wrapped(Transport):
    """Another transport, with something changed."""

    def __init__(self, inner: Transport) -> None:
        self.inner = inner
        self.was_connected = False
        self.is_closed = False

    async def connect(self) -> None:
        self.was_connected = True
        await self.inner.connect()

    async def receive(self) -> bytes:
        return await self.inner.receive()

    async def send(self, data: bytes) -> None:
        await self.inner.send(data)

    async def end_input(self) -> None:
        await self.inner.end_input()

    async def close(self) -> None:
        self.is_closed = True
        await self.inner.close()

    @property
    def is_ready(self) -> bool:
        return self.inner.is_ready

    @property
    def exit_error(self) -> OutriderError | None:
        return self.inner.exit_error


class Silent(Wrapped):
    async def send(self, data: bytes) -> None:
        await checkpoint()


class ConnectsOnce(Wrapped):
    async def connect(self) -> None:
        if self.was_connected:
            raise RuntimeError("it is connected")
        await super().connect()


class ConnectsAfterClose(Wrapped):
    async def connect(self) -> None:
        if not self.is_closed:
            await super().connect()


class WaitsForConnect(Wrapped):
    async def receive(self) -> bytes:
        while not self.was_connected:  # noqa: ASYNC110
            await anyio.sleep(0.01)
        return await super().receive()


class FailsBeforeConnect(Wrapped):
    async def send(self, data: bytes) -> None:
        if not self.was_connected:
            raise AttributeError("no stream")
        await super().send(data)


class AlwaysReady(Wrapped):
    @property
    def is_ready(self) -> bool:
        return True


class NeverReady(Wrapped):
    @property
    def is_ready(self) -> bool:
        return False


class ErrorAfterClose(Wrapped):
    @property
    def exit_error(self) -> OutriderError | None:
        return TransportClosed("closed") if self.is_closed else None


class StripsLineEnds(Wrapped):
    async def receive(self) -> bytes:
        return (await super().receive()).replace(b"\r", b"")


class GivesBytearray(Wrapped):
    async def receive(self) -> bytes:
        return bytearray(await super().receive())  # type: ignore[return-value]  # pyright: ignore[reportReturnType]


class LimitsLines(Wrapped):
    async def receive(self) -> bytes:
        return (await super().receive())[:65_536]


class Reorders(Wrapped):
    async def receive(self) -> bytes:
        data = await super().receive()
        lines = data.splitlines(keepends=True)
        return b"".join([*lines[-2:], *lines[:-2]]) if len(lines) > 2 else data


class EndsWhenIdle(Wrapped):
    async def receive(self) -> bytes:
        with anyio.move_on_after(0.001):
            return await super().receive()
        return b""


class LocksBoth(Wrapped):
    def __init__(self, inner: Transport) -> None:
        super().__init__(inner)
        self.lock = anyio.Lock()

    async def receive(self) -> bytes:
        async with self.lock:
            return await super().receive()

    async def send(self, data: bytes) -> None:
        async with self.lock:
            await super().send(data)


class LosesWhenCancelled(Wrapped):
    async def receive(self) -> bytes:
        data = await super().receive()
        await anyio.sleep(0.001)
        return data


class EndsOnce(Wrapped):
    has_ended = False

    async def receive(self) -> bytes:
        data = b"" if self.has_ended else await super().receive()
        if self.has_ended:
            raise ValueError("I/O operation on closed file")
        self.has_ended = not data
        return data


class LosesTheLast(Wrapped):
    async def end_input(self) -> None:
        await self.inner.close()


class MixesLines(Wrapped):
    async def send(self, data: bytes) -> None:
        middle = len(data) // 2
        await super().send(data[:middle])
        await checkpoint()
        await super().send(data[middle:])


class SwapsLines(Wrapped):
    """The second and the third line of each task."""

    def __init__(self, inner: Transport) -> None:
        super().__init__(inner)
        self.held: dict[bytes, bytes] = {}

    async def send(self, data: bytes) -> None:
        match data.split(b" "):
            case [writer, b"1", _]:
                self.held[writer] = data
            case [writer, b"2", _]:
                await super().send(data + self.held[writer])
            case _:
                await super().send(data)


class SwallowsLateSends(Wrapped):
    async def send(self, data: bytes) -> None:
        if self.inner.is_ready or not self.was_connected:
            await super().send(data)


class WritesAnything(Wrapped):
    async def write(self, message: Any) -> None:
        await self.send(message if isinstance(message, bytes) else str(message).encode("utf-8", "replace"))


class ReadsAhead(Wrapped):
    def messages(self) -> Any:
        self._inbox = None
        return super().messages()


class ClosesOnce(Wrapped):
    async def close(self) -> None:
        if self.is_closed:
            raise RuntimeError("it is closed")
        await super().close()


class CloseLeavesReaders(Wrapped):
    async def receive(self) -> bytes:
        try:
            return await super().receive()
        except TransportClosed:
            if not self.was_connected:
                raise
            if self.is_closed:
                await anyio.sleep_forever()
            raise


class EndsAfterClose(Wrapped):
    async def receive(self) -> bytes:
        return b"" if self.is_closed else await super().receive()


class CloseIsCancelled(Wrapped):
    async def close(self) -> None:
        await checkpoint()
        await super().close()


class LeaksDescriptors(Wrapped):
    async def connect(self) -> None:
        if not self.was_connected:
            LEAKED.extend(os.pipe())
        await super().connect()


class LeaksThreads(Wrapped):
    async def connect(self) -> None:
        if not self.was_connected:
            threading.Thread(target=RELEASE.wait, daemon=True).start()
        await super().connect()


LEAKED: list[int] = []
RELEASE = threading.Event()


@pytest.fixture
def leaks() -> Any:
    yield
    RELEASE.set()
    for descriptor in LEAKED:
        os.close(descriptor)
    LEAKED.clear()
    for thread in threading.enumerate():
        if getattr(thread, "_target", None) == RELEASE.wait:
            thread.join()
    RELEASE.clear()


@pytest.mark.usefixtures("leaks")
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize(
    "kind, clause, seen",
    [
        (Silent, "What is sent comes back", "0 of 17 bytes"),
        (ConnectsOnce, "A second `connect`", "RuntimeError: it is connected"),
        (ConnectsAfterClose, "`connect` after `close`", "no error"),
        (WaitsForConnect, "Before `connect`", "nothing for 1 s (while `receive` before `connect`)"),
        (FailsBeforeConnect, "Before `connect`", "AttributeError('no stream'), which is no `ConnectionLost`"),
        (AlwaysReady, "`is_ready` says", "`is_ready` is true before `connect`"),
        (NeverReady, "`is_ready` says", "`is_ready` is false after `connect`"),
        (ErrorAfterClose, "`is_ready` says", "`exit_error` is TransportClosed"),
        (StripsLineEnds, "Bytes arrive as they were sent", "265 of 267 bytes had been received"),
        (GivesBytearray, "What is sent comes back", "`receive` gave bytearray, not bytes"),
        (LimitsLines, "Bytes arrive as they were sent", "65545 of 1048586 bytes had been received"),
        (Reorders, "`messages` gives", "['b', 'c', 'a'] came back"),
        (EndsWhenIdle, "`receive` waits", "with nothing there"),
        (LocksBoth, "`receive` waits", "nothing for 1 s"),
        (LosesWhenCancelled, "Cancelling `receive`", "bytes had been received"),
        (EndsOnce, "After the last byte", "ValueError: I/O operation"),
        (LosesTheLast, "After the last byte", "closed"),
        (MixesLines, "`send` may be called from several tasks", "are mixed with others"),
        (SwapsLines, "`send` may be called from several tasks", "in another order"),
        (SwallowsLateSends, "After `end_input`", "`send` after `end_input`: no error"),
        (WritesAnything, "`write` sends one message", "raised no `MessageInvalid`"),
        (ReadsAhead, "`messages` gives", "['a'] came back"),
        (ClosesOnce, "`close` may be called more than once", "RuntimeError: it is closed"),
        (CloseLeavesReaders, "`close` ends a `receive`", "was still receiving after `close`"),
        (EndsAfterClose, "After `close`", "`receive` after `close`: no error, and b''"),
        (CloseIsCancelled, "`close` does its work", "`is_ready` is still true"),
        (LeaksDescriptors, "`close` frees everything", "8 descriptors are left"),
        (LeaksThreads, "`close` frees everything", "4 threads"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else None,
)
async def test_a_broken_clause_is_named_with_what_was_seen(
    kind: type[Wrapped], clause: str, seen: str
) -> None:
    with pytest.raises(ContractBroken) as caught:
        await check_transport(echoing(kind), deadline=1)
    broken = [one for one in caught.value.broken if one.clause.startswith(clause)]
    assert broken, caught.value
    assert seen in broken[0].seen
    assert str(broken[0]) in str(caught.value)
    assert str(caught.value).startswith(f"{kind.__name__} breaks")


def test_there_is_a_broken_one_for_each_clause() -> None:
    test: Any = test_a_broken_clause_is_named_with_what_was_seen
    [mark] = [
        mark for mark in test.pytestmark if mark.name == "parametrize" and mark.args[0].startswith("kind")
    ]
    shown = {
        clause.text for clause in ECHOING for _, begin, _ in mark.args[1] if clause.text.startswith(begin)
    }
    assert shown == {clause.text for clause in ECHOING}


class HidesFailure(Wrapped):
    async def receive(self) -> bytes:
        try:
            return await super().receive()
        except ConnectionLost:
            return b""


class RaisesForeign(Wrapped):
    async def receive(self) -> bytes:
        try:
            return await super().receive()
        except ConnectionLost as error:
            raise OSError("exit code 3") from error


class FailsOnce(Wrapped):
    has_failed = False

    async def receive(self) -> bytes:
        if self.has_failed:
            return b""
        try:
            return await super().receive()
        except ConnectionLost:
            self.has_failed = True
            raise


class ForgetsFailure(Wrapped):
    @property
    def exit_error(self) -> OutriderError | None:
        return None


class FailsFirst(Wrapped):
    async def receive(self) -> bytes:
        while await super().receive():
            pass
        return b""


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize(
    "kind, clause, seen",
    [
        (HidesFailure, "A failure is raised", "as if nothing had failed"),
        (RaisesForeign, "A failure is raised", "OSError('exit code 3'), which is no `ConnectionLost`"),
        (FailsOnce, "A failure is raised", "`receive` after the failure: no error"),
        (FailsFirst, "A failure is raised", "before the first byte"),
        (ForgetsFailure, "`exit_error` has the failure", "`exit_error` was None, and nobody read"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else None,
)
async def test_a_failure_that_is_not_told_is_found(kind: type[Wrapped], clause: str, seen: str) -> None:
    with pytest.raises(ContractBroken) as caught:
        await check_transport(echoing(), failing=lambda: kind(FAILS()), deadline=3)
    [broken] = [one for one in caught.value.broken if one.clause.startswith(clause)]
    assert seen in broken.seen


class SendsUncancelled(Wrapped):
    async def send(self, data: bytes) -> None:
        with anyio.CancelScope(shield=True):
            await super().send(data)


class SendsOn(Wrapped):
    async def send(self, data: bytes) -> None:
        try:
            await super().send(data)
        except ConnectionLost:
            await anyio.sleep_forever()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize(
    "kind, clause, seen",
    [
        (SendsUncancelled, "With an agent that does not read", "ConnectionLost"),
        (SendsOn, "`close` ends a `send`", "was still sending after `close`"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else None,
)
async def test_a_send_that_does_not_end_is_found(kind: type[Wrapped], clause: str, seen: str) -> None:
    def stuck() -> Transport:
        command = Command(("sleep", "1000"))
        return kind(ProcessTransport(command, grace=0.1, terminate=0.1, write_timeout=0.5))

    with pytest.raises(ContractBroken) as caught:
        await check_transport(echoing(), stuck=stuck, deadline=5 if kind is SendsUncancelled else 2)
    [broken] = [one for one in caught.value.broken if one.clause.startswith(clause)]
    assert seen in broken.seen


@asynccontextmanager
async def sevens() -> AsyncGenerator[int]:
    yield 7


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: None, "`make` gave None, which is not a transport"),
        (sevens, "context manager of 7"),
        (7, "`make` is 7, which makes nothing.*Give a function"),
    ],
    ids=["nothing", "a context manager of something else", "no function"],
)
async def test_what_makes_no_transports_is_refused(make: Any, words: str) -> None:
    with pytest.raises(OptionsError, match=words):
        await check_transport(make)


async def test_a_deadline_is_needed() -> None:
    with pytest.raises(OptionsError, match="`deadline` is 0"):
        await check_transport(cat, deadline=0)


def test_it_runs_outside_of_a_test() -> None:
    anyio.run(check_transport, cat)
