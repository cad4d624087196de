"""The reference SDK's side: the same work with its own decoder, framer and message parser.

Runs in the environment of the reference. The size guard of its transport is left out, so that messages over
its limit of 1 MiB can be measured without changing an option.
"""

from __future__ import annotations

import codecs
import importlib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AsyncExitStack
from typing import Any, Protocol

import anyio

from benchmarks.agent import ASKED, SERVER
from benchmarks.kept import LONG
from benchmarks.side import CONTROL_TYPES, SLOW_SECONDS, Seconds, Side, held, serve, started


class LineFramer(Protocol):
    """Its `_LineFramer`."""

    def push(self, chunk: str) -> list[str]: ...
    def flush(self) -> str: ...


# By name: the package is installed in the environment of the reference only, where no type checker looks.
_package = importlib.import_module("claude_agent_sdk")
_transport = importlib.import_module("claude_agent_sdk._internal.transport.subprocess_cli")
_parser = importlib.import_module("claude_agent_sdk._internal.message_parser")

new_framer: Callable[[], LineFramer] = _transport._LineFramer
parse_line: Callable[[str], dict[str, Any] | None] = _transport._parse_stdout_line
parse_message: Callable[[dict[str, Any]], Any] = _parser.parse_message
stream_event: type[Any] = _package.StreamEvent


def messages(chunks: Iterable[bytes]) -> int:
    # As anyio's TextReceiveStream does it, which the transport reads from.
    decode = codecs.getincrementaldecoder("utf-8")(errors="strict").decode
    push = new_framer().push
    count = 0
    for chunk in chunks:
        for line in push(decode(chunk)):
            data = parse_line(line)
            if data is not None and parse_message(data) is not None:
                count += 1
    return count


def texts(chunks: Iterable[bytes]) -> int:
    decode = codecs.getincrementaldecoder("utf-8")(errors="strict").decode
    push = new_framer().push
    characters = 0
    for chunk in chunks:
        for line in push(decode(chunk)):
            data = parse_line(line)
            if data is not None:
                message = parse_message(data)
                if isinstance(message, stream_event):
                    characters += len(message.event["delta"]["text"])
    return characters


def routed(chunks: Iterable[bytes]) -> int:
    """As its `Query` reads: control frames stay dicts, the rest is parsed."""
    decode = codecs.getincrementaldecoder("utf-8")(errors="strict").decode
    push = new_framer().push
    count = 0
    for chunk in chunks:
        for line in push(decode(chunk)):
            data = parse_line(line)
            if data is not None:
                if data.get("type") not in CONTROL_TYPES:
                    parse_message(data)
                count += 1
    return count


def tally(chunks: Iterable[bytes]) -> Counter[str]:
    return Counter(str(data.get("type")) for data in _objects(chunks) if _is_delivered(data))


def _objects(chunks: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    decode = codecs.getincrementaldecoder("utf-8")(errors="strict").decode
    framer = new_framer()
    for chunk in chunks:
        for line in framer.push(decode(chunk)):
            if (data := parse_line(line)) is not None:
                yield data


def _is_delivered(data: dict[str, Any]) -> bool:
    return data.get("type") not in CONTROL_TYPES and parse_message(data) is not None


def new_transport(program: str) -> Any:  # noqa: ANN401 - it has no type here
    options = _package.ClaudeAgentOptions(cli_path=program, max_buffer_size=1 << 30)
    return _transport.SubprocessCLITransport(prompt="", options=options)


def start(program: str) -> tuple[float, float]:
    async def main() -> tuple[float, float]:
        begin = time.perf_counter()
        transport = new_transport(program)
        await transport.connect()
        await anext(transport.read_messages())
        there = time.perf_counter()
        await transport.close()
        return there - begin, time.perf_counter() - there

    return anyio.run(main)


def flood(program: str, count: int, in_batches: bool) -> float:
    del in_batches  # it has none

    async def main() -> float:
        transport = new_transport(program)
        await transport.connect()
        begin = time.process_time()
        async for data in transport.read_messages():
            parse_message(data)
            nonlocal count
            count -= 1
            if not count:
                break
        seconds = time.process_time() - begin
        await transport.close()
        return seconds

    return anyio.run(main)


async def let_pass(*_: object) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "allow"}}


def server(what: str) -> Any:  # noqa: ANN401 - it has no type here
    schema = {"text": str, "count": int, "tags": list[str]}

    async def work(given: dict[str, Any]) -> dict[str, Any]:
        if what == "parallel":
            await anyio.sleep(SLOW_SECONDS)
        text = f"{given['text']} {given['count']} {given['tags']}"
        return {"content": [{"type": "text", "text": text}]}

    tool = _package.tool("work", "Do what is asked for.", schema)(work)
    return _package.create_sdk_mcp_server(SERVER, tools=[tool])


def session(program: str, count: int, what: str) -> Seconds:
    async def main() -> Seconds:
        more: dict[str, Any] = {}
        if what in ASKED:
            hooks = {"PreToolUse": [_package.HookMatcher(hooks=[let_pass])]}
            more = {"hooks": hooks, "mcp_servers": {SERVER: server(what)}}
        options = _package.ClaudeAgentOptions(cli_path=program, **more)
        if what == "many":
            begin = started()
            async with anyio.create_task_group() as tasks:
                for _ in range(count):
                    tasks.start_soon(read_turn, options)
            return begin()
        async with _package.ClaudeSDKClient(options) as client:
            begin = started()
            if what == "requests":
                for _ in range(count):
                    await client.get_mcp_status()
            else:
                await client.query(f"{what} {count}" if what in ASKED else "go")
                left = 2 if what in ASKED else count + 2
                async for _ in client.receive_response():
                    left -= 1
                assert not left
            return begin()

    async def read_turn(options: Any) -> None:  # noqa: ANN401 - it has no type here
        async with _package.ClaudeSDKClient(options) as client:
            await client.query("go")
            async for _ in client.receive_response():
                pass

    return anyio.run(main)


def hold(program: str, count: int) -> dict[str, float]:
    async def main() -> dict[str, float]:
        options = _package.ClaudeAgentOptions(cli_path=program)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(_package.ClaudeSDKClient(options))
            since = held()
            for _ in range(count):
                await stack.enter_async_context(_package.ClaudeSDKClient(options))
            return since(count)

    return anyio.run(main)


def kept(config: str, what: str) -> int:
    os.environ["CLAUDE_CONFIG_DIR"] = config
    if what == "list":
        return len(_package.list_sessions(limit=10))
    found = _package.get_session_messages(LONG)
    if what == "last":
        # It counts from the beginning only.
        return len(found[-10:])
    return sum(_characters(each.message["content"]) for each in found) if what == "texts" else len(found)


def _characters(content: Any) -> int:  # noqa: ANN401 - as decoded
    return len(content) if isinstance(content, str) else sum(len(block["text"]) for block in content)


if __name__ == "__main__":
    passes = {"messages": messages, "texts": texts, "routed": routed}
    serve(Side("the reference", _package.__version__, passes, tally, start, flood, session, hold, kept))
