"""Programs that use Outrider and end in some way: `python hosts.py NAME`. Each says which host it is."""

import asyncio
import ctypes
import gc
import os
import signal
import sys
import threading
import time
import tracemalloc
from pathlib import Path
from typing import Any

import anyio

from outrider.command import FOLDER, Command, File
from outrider.transports import ProcessTransport
from outrider.transports._process.processes import processes
from outrider.transports._process.supervisor import supervisor

CHILDREN = Path(__file__).with_name("children.py")
NAMES = ("polite", "ignores_everything", "leaves_an_escaped_one")


async def start(*names: str) -> list[ProcessTransport]:
    transports: list[ProcessTransport] = []
    for name in names:
        argv = (sys.executable, "-I", "-S", str(CHILDREN), name, f"{FOLDER}/secret")
        command = Command(argv, files=(File("secret", b"sk-ant-secret"),))
        transport = ProcessTransport(command, grace=0.1, terminate=0.1)
        await transport.connect()
        await anext(transport.messages())
        transports.append(transport)
    return transports


def announce(worker: int = 0) -> None:
    print(supervisor().id, supervisor().watchdog.pid, worker, flush=True)


def waits_to_be_killed() -> None:
    """Three trees, one of them with a grandchild that left its group."""
    kept = anyio.run(start, *NAMES)
    announce()
    assert kept
    signal.pause()


def waits_with_a_daemon(name: str = "leaves_a_daemon") -> None:
    """One tree, which has left a daemon without an environment; says its number."""

    async def begin() -> tuple[ProcessTransport, int]:
        argv = (sys.executable, "-I", "-S", str(CHILDREN), name)
        transport = ProcessTransport(Command(argv, folders=("a",)))
        await transport.connect()
        message: Any = await anext(transport.messages())
        return transport, message.data["pid"]

    kept, daemon = anyio.run(begin)
    announce(daemon)
    assert kept.is_alive
    signal.pause()


def waits_with_a_hidden_one() -> None:
    """The same, but its parent is there."""
    waits_with_a_daemon("stays_with_a_hidden_one")


def is_killed_while_its_worker_lives() -> None:
    """The same, with a forked worker that has inherited all descriptors."""
    kept = anyio.run(start, *NAMES)
    worker = os.fork()
    if not worker:
        time.sleep(3600)
    announce(worker)
    assert kept
    signal.pause()


def ends_without_closing() -> None:
    kept = anyio.run(start, *NAMES)
    announce()
    assert kept


def ends_with_an_error() -> None:
    kept = anyio.run(start, *NAMES)
    announce()
    assert not kept, "this is meant to fail"


def ends_with_the_loop_in_a_thread() -> None:
    started = threading.Event()

    async def main() -> None:
        kept = await start(*NAMES)
        announce()
        started.set()
        await asyncio.sleep(3600)
        assert kept

    threading.Thread(target=asyncio.run, args=(main(),), daemon=True).start()
    started.wait()


def ends_with_the_loop_running() -> None:
    """Leaves the loop by `sys.exit` while a task reads."""

    async def main() -> None:
        (transport, *kept) = await start(*NAMES)
        reader = asyncio.ensure_future(transport.receive())
        await asyncio.sleep(0)
        announce()
        assert kept
        assert not reader.done()
        sys.exit(0)

    asyncio.run(main())


def forks() -> None:
    """A forked worker ends and must leave the children of its parent alone, which then uses them."""

    async def talk(transport: ProcessTransport) -> None:
        await transport.write('{"type":"still_there"}')
        message = await anext(transport.messages())
        print(message.type, flush=True)
        await transport.close()

    (transport,) = anyio.run(start, "polite")
    if os.fork() == 0:
        # The worker drops what it inherited, starts a child of its own, and ends in the usual way.
        transport.end(kill=True)
        assert supervisor().children() == []
        anyio.run(start, "polite")
        sys.exit(0)
    _, status = os.wait()
    assert os.waitstatus_to_exitcode(status) == 0
    announce()
    anyio.run(talk, transport)


def leaves_the_block_in_a_forked_process() -> None:
    """The child is the other one's: there, neither reading nor closing waits for anything."""

    async def main() -> None:
        (transport,) = await start("polite")
        async with transport:
            worker = os.fork()
            if not worker:
                signal.alarm(20)
                try:
                    await transport.receive()
                finally:
                    # By the end of the block, as an exit would.
                    await transport.close()
                    os._exit(7)
            status = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])  # noqa: ASYNC222
            await transport.write('{"type":"still_there"}')
            message = await anext(transport.messages())
            print(status, message.type, flush=True)

    anyio.run(main, backend="trio")


def is_given_orphans() -> None:
    """As the first process of a container is: what the agent leaves behind becomes a child of the host."""
    ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER

    async def main() -> None:
        (transport,) = await start("leaves_an_escaped_one")
        await transport.close()

    anyio.run(main)
    # Only the watchdog is left to wait for, and it runs.
    announce(os.waitpid(-1, os.WNOHANG)[0])


def starts_hundreds() -> None:
    """One after the other; prints by how much what it holds has grown: bytes of objects, resident bytes,
    descriptors, threads."""

    async def cycle() -> None:
        async with ProcessTransport(Command(("cat",))) as transport:
            await transport.write('{"type":"keep_alive"}')
            await anext(transport.messages())

    def held() -> tuple[int, ...]:
        gc.collect()
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        descriptors = len(list(Path("/proc/self/fd").iterdir()))
        return tracemalloc.get_traced_memory()[0], resident, descriptors, threading.active_count()

    async def main() -> None:
        for _ in range(50):
            await cycle()
        before = held()
        # With psutil, a look at all processes takes fifty times as long.
        for _ in range(400 if processes().has_tags else 50):
            await cycle()
        print(*(now - then for now, then in zip(held(), before, strict=True)))

    tracemalloc.start()
    anyio.run(main, backend=sys.argv[2])


if __name__ == "__main__":
    globals()[sys.argv[1]]()
