"""Outrider's side: its wire format, transports and sessions, in the environment of this checkout."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from contextlib import AsyncExitStack

import anyio

from benchmarks.agent import ASKED, SERVER
from benchmarks.kept import LONG
from benchmarks.side import CONTROL_TYPES, SLOW_SECONDS, Seconds, Side, held, serve, started
from outrider import Answer, Options, Session, ToolServer, __version__, allow, hook, tool
from outrider.sync import Sessions
from outrider.transports import Command, ProcessTransport
from outrider.wire import Framer, StreamEvent
from outrider.wire.hooks import PreToolUseInput


def messages(chunks: Iterable[bytes]) -> int:
    framer = Framer()
    count = 0
    for chunk in chunks:
        for _ in framer.feed(chunk):
            count += 1
    return count + len(framer.flush())


def texts(chunks: Iterable[bytes]) -> int:
    framer = Framer()
    characters = 0
    for chunk in chunks:
        for message in framer.feed(chunk):
            if isinstance(message, StreamEvent):
                characters += len(message.text)
    return characters


def tally(chunks: Iterable[bytes]) -> Counter[str]:
    framer = Framer()
    seen = Counter[str]()
    for chunk in chunks:
        seen.update(str(message.raw.get("type")) for message in framer.feed(chunk))
    for kind in CONTROL_TYPES:
        del seen[kind]
    return seen


def start(program: str) -> tuple[float, float]:
    async def main() -> tuple[float, float]:
        begin = time.perf_counter()
        transport = ProcessTransport(Command((program,)))
        await transport.connect()
        await anext(transport.messages())
        there = time.perf_counter()
        await transport.close()
        return there - begin, time.perf_counter() - there

    return anyio.run(main)


def flood(program: str, count: int, in_batches: bool) -> float:
    async def main() -> float:
        async with ProcessTransport(Command((program,))) as transport:
            begin = time.process_time()
            messages = transport.messages()
            left = count
            while left > 0:
                if in_batches:
                    left -= len(await messages.batch())
                else:
                    await anext(messages)
                    left -= 1
            return time.process_time() - begin

    return anyio.run(main)


@hook("PreToolUse")
async def let_pass(_: PreToolUseInput) -> Answer:
    return allow()


def server(what: str) -> ToolServer:
    @tool
    async def work(text: str, count: int, tags: list[str]) -> str:
        """Do what is asked for."""
        if what == "parallel":
            await anyio.sleep(SLOW_SECONDS)
        return f"{text} {count} {tags}"

    return ToolServer(SERVER, [work])


def session(program: str, count: int, what: str) -> Seconds:
    async def main() -> Seconds:
        options = Options(cli_path=program)
        if what == "many":
            begin = started()
            async with anyio.create_task_group() as tasks:
                for _ in range(count):
                    tasks.start_soon(read_turn, options)
            return begin()
        if what in ASKED:
            options = options.replace(hooks=[let_pass], mcp_servers={SERVER: server(what)})
        async with Session(options) as session:
            begin = started()
            if what in ASKED:
                await session.ask(f"{what} {count}")
            elif what == "requests":
                for _ in range(count):
                    await session.mcp_status()
            elif what == "loop":
                left = count + 2
                async for _ in await session.send("go"):
                    left -= 1
                assert not left
            else:
                left, messages = count + 2, aiter(await session.send("go"))
                while left:
                    left -= len(await messages.batch())
            return begin()

    async def read_turn(options: Options) -> None:
        async with Session(options) as session:
            async for _ in await session.send("go"):
                pass

    return anyio.run(main)


def hold(program: str, count: int) -> dict[str, float]:
    async def main() -> dict[str, float]:
        options = Options(cli_path=program)
        async with AsyncExitStack() as stack:
            # What there is once, however many sessions are open, comes with the first.
            await stack.enter_async_context(Session(options))
            since = held()
            for _ in range(count):
                await stack.enter_async_context(Session(options))
            return since(count)

    return anyio.run(main)


def kept(config: str, what: str) -> int:
    sessions = Sessions(config=config)
    if what == "list":
        return len(sessions.list(limit=10))
    found = sessions.read(LONG, last=10 if what == "last" else None)
    return sum(len(entry.text) for entry in found) if what == "texts" else len(found)


if __name__ == "__main__":
    # A routed pass needs no code of its own here: control frames are typed like all others.
    passes = {"messages": messages, "texts": texts, "routed": messages}
    serve(Side("Outrider", __version__, passes, tally, start, flood, session, hold, kept))
