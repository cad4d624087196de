"""`check_transport`, which checks that a transport keeps its contract, in the order of its text."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, cast

import anyio
from anyio.lowlevel import checkpoint

from outrider.errors import ConnectionLost, MessageInvalid, OptionsError
from outrider.testing._contracts.contract import (
    Clauses,
    ContractBroken,
    Violation,
    check_clauses,
    expect,
    opened,
)
from outrider.transports import Transport
from outrider.wire import UnknownMessage

if TYPE_CHECKING:
    from outrider.testing._contracts.contract import Make


class Bench:
    """Makes transports, and knows what is being done to one."""

    def __init__(self, make: Make[Transport], deadline: float) -> None:
        self._make = make
        self.deadline = deadline
        self._doing = "it was made"

    def target(self) -> str:
        return f"while {self._doing}"

    def doing(self, what: str) -> None:
        self._doing = what

    @asynccontextmanager
    async def made(self) -> AsyncGenerator[Transport]:
        """A new one, that is closed at the end whatever happens."""
        self.doing("it was made")
        async with opened(self._make, lambda made: isinstance(made, Transport), "transport") as made:
            transport = cast("Transport", made)
            try:
                yield transport
            finally:
                with anyio.move_on_after(self.deadline, shield=True):
                    try:
                        await transport.close()
                    except Exception as error:  # noqa: BLE001 - not what this clause is about
                        self.doing(f"it was closed, which raised {error!r}")

    @asynccontextmanager
    async def connected(self) -> AsyncGenerator[Transport]:
        async with self.made() as transport:
            self.doing("`connect` was called")
            await transport.connect()
            yield transport

    async def receive(self, transport: Transport, size: int) -> bytes:
        """So many bytes, or those until the end."""
        received = bytearray()
        while len(received) < size:
            self.doing(f"{len(received)} of {size} bytes had been received")
            data = await transport.receive()
            expect(type(data) is bytes, f"`receive` gave {type(data).__name__}, not bytes")
            if not data:
                break
            received += data
        return bytes(received)

    async def echo(self, transport: Transport, *lines: bytes) -> None:
        """Send lines, and see that they come back. Sends and receives at the same time."""
        sent, received = b"".join(lines), [b""]

        async def send() -> None:
            for line in lines:
                await transport.send(line)

        async def receive() -> None:
            received[0] = await self.receive(transport, len(sent))

        await together(send, receive)
        expect(received[0] == sent, f"{told_bytes(sent)} was sent, and {told_bytes(received[0])} came back")

    async def lost(self, what: str, call: Awaitable[object]) -> ConnectionLost:
        """What a call raises that cannot succeed."""
        self.doing(what)
        try:
            given = await call
        except ConnectionLost as error:
            return error
        except Exception as error:
            raise Violation(f"{what}: {error!r}, which is no `ConnectionLost`") from error
        raise Violation(f"{what}: no error, and {given!r}")


async def together(*functions: Callable[[], Coroutine[Any, Any, object]]) -> None:
    """Run these at the same time."""
    async with anyio.create_task_group() as tasks:
        for function in functions:
            tasks.start_soon(function)


def told_bytes(data: bytes) -> str:
    return f"{data[:40]!r}{f' … ({len(data)} bytes)' if len(data) > 40 else ''}"


_WRITERS: Final = 20
_LINES: Final = 25
_ROUNDS: Final = 4
"""How often something must be left behind to be a leak, and no chance."""
_MOMENT: Final = 0.002
_STEPS: Final = 12
_LARGE: Final = 1024 * 1024


ECHOING: Clauses[Bench] = Clauses()
FAILING: Clauses[Bench] = Clauses()
STUCK: Clauses[Bench] = Clauses()


@ECHOING.clause("What is sent comes back, with an echo at the other side.")
async def _(bench: Bench) -> None:
    async with bench.connected() as transport:
        await bench.echo(transport, b'{"type":"hello"}\n')


# Connecting.


@ECHOING.clause("A second `connect` changes nothing, also at the same time.")
async def _(bench: Bench) -> None:
    async with bench.made() as transport:
        bench.doing("`connect` was called twice at the same time")
        await together(transport.connect, transport.connect)
        await bench.echo(transport, b"one\n")
        bench.doing("`connect` was called again")
        await transport.connect()
        await bench.echo(transport, b"two\n")


@ECHOING.clause("`connect` after `close` raises `ConnectionLost`, whether it was connected or not.")
async def _(bench: Bench) -> None:
    async with bench.connected() as transport:
        await transport.close()
        await bench.lost("`connect` after `close`", transport.connect())
    async with bench.made() as transport:
        bench.doing("`close` was called before `connect`")
        await transport.close()
        await bench.lost("`connect` after `close`, never connected", transport.connect())


@ECHOING.clause("Before `connect`, `send` and `receive` raise `ConnectionLost`; `end_input` does nothing.")
async def _(bench: Bench) -> None:
    async with bench.made() as transport:
        await bench.lost("`send` before `connect`", transport.send(b"early\n"))
        await bench.lost("`receive` before `connect`", transport.receive())
        bench.doing("`end_input` was called before `connect`")
        await transport.end_input()
        bench.doing("`connect` was called")
        await transport.connect()
        await bench.echo(transport, b"hello\n")


@ECHOING.clause("`is_ready` says whether something can be sent now; `exit_error` is None while all is well.")
async def _(bench: Bench) -> None:
    async with bench.made() as transport:
        expect(not transport.is_ready, "`is_ready` is true before `connect`")
        await transport.connect()
        expect(transport.is_ready, "`is_ready` is false after `connect`")
        expect(transport.exit_error is None, f"`exit_error` is {transport.exit_error!r} after `connect`")
        bench.doing("`end_input` was called")
        await transport.end_input()
        expect(not transport.is_ready, "`is_ready` is true after `end_input`")
    async with bench.connected() as transport:
        bench.doing("`close` was called")
        await transport.close()
        expect(not transport.is_ready, "`is_ready` is true after `close`")
        expect(transport.exit_error is None, f"`exit_error` is {transport.exit_error!r} after `close`")


# Receiving.


@ECHOING.clause("Bytes arrive as they were sent, in their order, all of them, whatever they are.")
async def _(bench: Bench) -> None:
    odd = bytes(byte for byte in range(256) if byte != 10)
    async with bench.connected() as transport:
        await bench.echo(transport, *(b"%d\n" % number for number in range(1000)))
        await bench.echo(transport, odd + b"\n", b"\r\n", b"\n", "€😀\n".encode())
        await bench.echo(transport, b"x" * _LARGE + b"\n", b"after it\n")


@ECHOING.clause("`receive` waits while there is nothing, and lets others send meanwhile.")
async def _(bench: Bench) -> None:
    async with bench.connected() as transport:
        for _ in range(3):
            received: list[bytes] = []

            async def receive(received: list[bytes] = received) -> None:
                received.append(await bench.receive(transport, 5))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(receive)
                await anyio.sleep(_MOMENT)
                expect(not received, f"with nothing there, `receive` gave {received[:1]!r}, and not the end")
                bench.doing("`send` was called while another task received")
                await transport.send(b"late\n")
            expect(received == [b"late\n"], f"b'late\\n' was sent, and {received!r} came back")


@ECHOING.clause("Cancelling `receive` loses nothing, wherever it is hit.")
async def _(bench: Bench) -> None:
    async with bench.connected() as transport:
        received = bytearray()

        async def receive_cancelled(steps: int, line: bytes = b"") -> None:
            """Send a line while it receives, if there is one; cancel it some steps later."""

            scope = anyio.CancelScope()

            async def cancel() -> None:
                if line:
                    await transport.send(line)
                for _ in range(steps):
                    await checkpoint()
                scope.cancel()

            bench.doing(f"`receive` was cancelled after {steps} steps of the event loop")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(cancel)
                with scope:
                    received.extend(await transport.receive())

        sent = b""
        for steps in range(_STEPS):
            # Cancelled when something has been there, and just when it comes.
            lines = b"there %d\n" % steps, b"comes %d\n" % steps
            await transport.send(lines[0])
            await anyio.sleep(_MOMENT)
            await receive_cancelled(steps)
            await receive_cancelled(steps, lines[1])
            sent += b"".join(lines)
        received += await bench.receive(transport, len(sent) - len(received))
        came = bytes(received)
        expect(came == sent, f"{told_bytes(sent)} was sent, and {told_bytes(came)} came back")


@ECHOING.clause('After the last byte `receive` gives b"", again at each call.')
async def _(bench: Bench) -> None:
    async with bench.connected() as transport:
        await transport.send(b"last\n")
        bench.doing("`end_input` was called")
        await transport.end_input()
        received = await bench.receive(transport, 100)
        expect(received == b"last\n", f"b'last\\n' was sent before the end, and {received!r} came back")
        for _ in range(3):
            bench.doing("`receive` was called after the end")
            data = await transport.receive()
            expect(data == b"", f"after the end, `receive` gave {data!r}")
        expect(transport.exit_error is None, f"`exit_error` is {transport.exit_error!r}, and nothing failed")


# Sending.


@ECHOING.clause("`send` may be called from several tasks; what one call sends stays together, in order.")
async def _(bench: Bench) -> None:
    lines = {
        (writer, number): b"%d %d " % (writer, number) + b"x" * (writer * number * 97 % 5000) + b"\n"
        for writer in range(_WRITERS)
        for number in range(_LINES)
    }
    received: list[bytes] = []

    async with bench.connected() as transport:

        async def write(writer: int) -> None:
            for number in range(_LINES):
                await transport.send(lines[writer, number])

        async def read() -> None:
            received.append(await bench.receive(transport, sum(map(len, lines.values()))))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            for writer in range(_WRITERS):
                tasks.start_soon(write, writer)
    came = received[0].splitlines(keepends=True)
    broken = [line for line in came if line not in lines.values()]
    expect(
        not broken, f"{len(broken)} lines are mixed with others, such as {told_bytes(b''.join(broken[:1]))}"
    )
    for writer in range(_WRITERS):
        sent = [lines[writer, number] for number in range(_LINES)]
        own = [line for line in came if line.startswith(b"%d " % writer)]
        expect(own == sent, f"{len(own)} of {len(sent)} lines of one task came back, or in another order")


@ECHOING.clause(
    "After `end_input`, what the agent still says can be received, and `send` raises `ConnectionLost`."
)
async def _(bench: Bench) -> None:
    async with bench.connected() as transport:
        line = b"x" * 65_536 + b"\n"
        received: list[bytes] = []

        async def send() -> None:
            await transport.send(line)
            bench.doing("`end_input` was called")
            await transport.end_input()
            await transport.end_input()
            await bench.lost("`send` after `end_input`", transport.send(b"too late\n"))

        async def receive() -> None:
            received.append(await bench.receive(transport, 10 * len(line)))

        await together(send, receive)
        expect(received == [line], f"{told_bytes(line)} was sent, and {told_bytes(received[0])} came back")


@ECHOING.clause("`write` sends one message as one line, and nothing of what is none.")
async def _(bench: Bench) -> None:
    async with bench.connected() as transport:
        nones: tuple[Any, ...] = ("two\nlines", "lone \ud800", {"type": object()})
        for none in nones:
            bench.doing("`write` was called with what is not a message")
            try:
                await transport.write(none)
            except MessageInvalid:
                continue
            raise Violation(f"`write({none!r})` raised no `MessageInvalid`")
        await transport.write({"type": "a"})
        await transport.write('{"type":"b"}')
        await transport.write(b'{"type":"c"}\n')
        expected = b'{"type":"a"}\n{"type":"b"}\n{"type":"c"}\n'
        received = await bench.receive(transport, len(expected))
        expect(received == expected, f"it came back as {told_bytes(received)}")


@ECHOING.clause(
    "`messages` gives what arrives, message by message; a second call goes on where the first one is."
)
async def _(bench: Bench) -> None:
    async with bench.connected() as transport:
        await transport.send(b'{"type":"a"}\n{"type":"b"}\n{"type":"c"}\n')
        await transport.end_input()
        bench.doing("messages were read")
        first = await anext(transport.messages())
        rest = [message async for message in transport.messages()]
        types = [
            message.type if isinstance(message, UnknownMessage) else message for message in (first, *rest)
        ]
        expect(types == ["a", "b", "c"], f"a, b and c were sent, and {types} came back")


# Closing.


@ECHOING.clause("`close` may be called more than once, and by several tasks at the same time.")
async def _(bench: Bench) -> None:
    async with bench.connected() as transport:
        await bench.echo(transport, b"hello\n")
        bench.doing("`close` was called by three tasks")
        await together(transport.close, transport.close, transport.close)
        bench.doing("`close` was called again")
        await transport.close()


@ECHOING.clause("`close` ends a `receive` that waits in another task.")
async def _(bench: Bench) -> None:
    async with bench.connected() as transport:
        ended: list[str] = []

        async def receive() -> None:
            try:
                ended.append(repr(await transport.receive()))
            except ConnectionLost:
                ended.append("b''")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(receive)
            await anyio.sleep(_MOMENT)
            bench.doing("`close` was called while another task received")
            await transport.close()
            bench.doing("the other task was still receiving after `close`")
        expect(ended == ["b''"], f"the other task received {ended}")


@ECHOING.clause("After `close`, `send` raises `ConnectionLost`, and `receive` too once nothing is left.")
async def _(bench: Bench) -> None:
    async with bench.connected() as transport:
        await bench.echo(transport, b"hello\n")
        await transport.close()
        await bench.lost("`send` after `close`", transport.send(b"too late\n"))
        for _ in range(2):
            await bench.lost("`receive` after `close`", transport.receive())
        bench.doing("`end_input` was called after `close`")
        await transport.end_input()


@ECHOING.clause("`close` does its work and returns also when the caller is cancelled.")
async def _(bench: Bench) -> None:
    async with bench.connected() as transport:
        await bench.echo(transport, b"hello\n")
        bench.doing("`close` was called in a cancelled scope")
        with anyio.CancelScope() as scope:
            scope.cancel()
            await transport.close()
        expect(not transport.is_ready, "`is_ready` is still true")
        await bench.lost("`send` after a cancelled `close`", transport.send(b"too late\n"))
        await bench.lost("`receive` after a cancelled `close`", transport.receive())


@ECHOING.clause("`close` frees everything: no thread and no file descriptor is left.")
async def _(bench: Bench) -> None:
    async with bench.connected() as transport:
        # What is made once and kept permanently is made now.
        await bench.echo(transport, b"hello\n")
    gc.collect()
    threads, descriptors = set(threading.enumerate()), _descriptors()
    for _ in range(_ROUNDS):
        async with bench.connected() as transport:
            await bench.echo(transport, b"hello\n")
            await transport.close()
    bench.doing("what is left was counted")
    # A thread that has done its work may need a moment to be gone.
    patience = anyio.current_time() + bench.deadline / 2
    while True:
        gc.collect()
        # Some other thread may end meanwhile.
        more = len(set(threading.enumerate()) - threads), _descriptors() - descriptors
        if max(more) < _ROUNDS:
            return
        if anyio.current_time() > patience:
            break
        await anyio.sleep(0.01)
    left = f"{more[0]} threads and {more[1]} descriptors"
    raise Violation(f"after {_ROUNDS} of them were closed, {left} are left")


def _descriptors() -> int:
    for folder in ("/proc/self/fd", "/dev/fd"):
        try:
            return len(os.listdir(folder))  # noqa: PTH208 - names only
        except OSError:
            continue
    return 0


# One that fails.


@FAILING.clause(
    "A failure is raised after the last byte, as `ConnectionLost` or a subclass, again at each call."
)
async def _(bench: Bench) -> None:
    async with bench.connected() as transport:
        received = b""
        bench.doing("all was received until the failure")
        try:
            while data := await transport.receive():
                received += data
        except ConnectionLost as error:
            kind = type(error)
        except Exception as error:
            raise Violation(f"`receive` raised {error!r}, which is no `ConnectionLost`") from error
        else:
            raise Violation(f"after {told_bytes(received)}, `receive` gave b'', as if nothing had failed")
        expect(received, "the failure was raised before the first byte, or nothing was said")
        for _ in range(2):
            again = await bench.lost("`receive` after the failure", transport.receive())
            expect(type(again) is kind, f"first {kind.__name__} was raised, then {again!r}")
        exit_error = transport.exit_error
        expect(
            isinstance(exit_error, kind), f"{kind.__name__} was raised, and `exit_error` is {exit_error!r}"
        )
        expect(not transport.is_ready, "`is_ready` is true after the failure")
        await bench.lost("`send` after the failure", transport.send(b"too late\n"))


@FAILING.clause("`exit_error` has the failure also if nobody reads.")
async def _(bench: Bench) -> None:
    async with bench.connected() as transport:
        bench.doing("`exit_error` was None, and nobody read")
        while transport.exit_error is None:  # noqa: ASYNC110 - nothing announces it
            await anyio.sleep(_MOMENT)
        bench.doing("`close` was called after the failure")
        await transport.close()
        expect(bool(transport.exit_error), "`exit_error` is None after `close`")


# One that is stuck.


@STUCK.clause("With an agent that does not read, `send` can be cancelled, and `close` ends it all in time.")
async def _(bench: Bench) -> None:
    async with bench.connected() as transport:
        bench.doing("`send` was cancelled")
        with anyio.move_on_after(0.05):
            for _ in range(64):
                await transport.send(b"x" * _LARGE + b"\n")
        bench.doing("`close` was called with an agent that does not read")
        await transport.close()


@STUCK.clause("`close` ends a `send` that waits in another task.")
async def _(bench: Bench) -> None:
    async with bench.connected() as transport:

        async def send() -> None:
            try:
                for _ in range(64):
                    await transport.send(b"x" * _LARGE + b"\n")
            except ConnectionLost:
                pass

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send)
            await anyio.sleep(0.05)
            bench.doing("`close` was called while another task sent")
            await transport.close()
            bench.doing("the other task was still sending after `close`")


async def check_transport(
    make: Make[Transport],
    *,
    failing: Make[Transport] | None = None,
    stuck: Make[Transport] | None = None,
    deadline: float = 10.0,
) -> list[str]:
    """Check a transport of yours against the contract of `Transport`; returns the clauses that were checked.

    `make` makes a new one, not connected yet, that leads to an echo: what is sent comes back as it is, and
    when the input ends, so does the output, without an error. The program `cat` is one. Two more ends, each
    of them optional, show more: `failing` says something and then fails, as a program does that exits with an
    error; `stuck` does not read, and says nothing.

        await check_transport(lambda: ProcessTransport(Command(("cat",))))

    Where a server or a task has to be there for it, `make` may give an async context manager of a transport.
    Runs on asyncio and trio; `anyio.run(check_transport, make)` runs it outside of a test. `deadline` bounds
    each clause, and so must be more than `close` takes.

    Raises `ContractBroken`, an `AssertionError`, with every clause that is not kept and what was seen.
    """
    if not deadline > 0:
        raise OptionsError(f"`deadline` is {deadline}; give a number of seconds")
    bench = Bench(make, deadline)
    async with bench.made() as transport:
        subject = type(transport).__name__
    broken = await check_clauses(ECHOING, bench, bench.target, deadline, is_first_vital=True)
    checked = [clause.text for clause in ECHOING]
    for clauses, other in ((FAILING, failing), (STUCK, stuck)):
        if other is not None:
            bench = Bench(other, deadline)
            broken += await check_clauses(clauses, bench, bench.target, deadline, is_first_vital=False)
            checked += [clause.text for clause in clauses]
    if broken:
        raise ContractBroken(subject, broken, len(checked))
    return checked
