"""A program for the reference SDK, run with either package: only the import differs.

    python dropin.py PACKAGE WORK COUNT

Prints what it took as a line of JSON. The agent's program is named by the variable AGENT. Of the package, it
uses what `claude_agent_sdk` documents; it imports nothing else of this repository.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

sdk: Any = importlib.import_module(sys.argv[1])


async def work(given: dict[str, Any]) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": f"{given['text']} {given['count']} {given['tags']}"}]}


async def let_pass(told: dict[str, Any], *_: object) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": told["hook_event_name"], "permissionDecision": "allow"}}


def options(**more: Any) -> Any:  # noqa: ANN401 - of either package
    return sdk.ClaudeAgentOptions(cli_path=os.environ["AGENT"], **more)


async def messages(count: int) -> None:
    left = count + 2
    async for _ in sdk.query(prompt="go", options=options()):
        left -= 1
    assert not left, left


async def texts(count: int) -> None:
    characters = 0
    async for message in sdk.query(prompt="go", options=options()):
        if isinstance(message, sdk.StreamEvent):
            characters += len(message.event["delta"]["text"])
    assert characters == 10 * count, characters


async def conversation(count: int, rest: float = 0.0) -> None:
    """A client's loop as its users write it."""
    left = count + 2
    async with sdk.ClaudeSDKClient(options(include_partial_messages=True)) as client:
        await client.query("go")
        async for _ in client.receive_response():
            left -= 1
            if rest and not left % 1000:
                await asyncio.sleep(rest)
    assert not left, left


async def slow(count: int) -> None:
    """The same loop where it cannot keep up: it rests for longer than it reads."""
    await conversation(count, rest=0.003)


async def kept(count: int) -> None:
    messages = [message async for message in sdk.query(prompt="go", options=options())]
    assert len(messages) == count + 2, len(messages)


async def hooks(count: int) -> None:
    matcher = sdk.HookMatcher(hooks=[let_pass])
    await _answering(f"hooks {count}", options(hooks={"PreToolUse": [matcher]}))


async def tools(count: int) -> None:
    schema = {"text": str, "count": int, "tags": list[str]}
    tool = sdk.tool("work", "Do what is asked for.", schema)(work)
    server = sdk.create_sdk_mcp_server("bench", tools=[tool])
    await _answering(f"tools {count}", options(mcp_servers={"bench": server}))


async def requests(count: int) -> None:
    async with sdk.ClaudeSDKClient(options()) as client:
        for _ in range(count):
            await client.get_mcp_status()


async def _answering(prompt: str, given: Any) -> None:  # noqa: ANN401 - of either package
    async with sdk.ClaudeSDKClient(given) as client:
        await client.query(prompt)
        async for _ in client.receive_response():
            pass


async def whole(count: int) -> None:
    """A short run; all of the process counts."""
    await messages(count)


async def first(count: int) -> float:
    """The first message of the real program, `count` times; gives the shortest wait."""
    best = 1e9
    for _ in range(count):
        begin = time.perf_counter()
        stream = sdk.query(prompt="hello", options=options())
        await anext(stream)
        best = min(best, time.perf_counter() - begin)
        async for _ in stream:
            pass
    return best


WORK: dict[str, Callable[[int], Awaitable[float | None]]] = {
    "messages": messages,
    "events": conversation,
    "unnamed": conversation,
    "trickle": conversation,
    "assistants": conversation,
    "texts": texts,
    "hooks": hooks,
    "tools": tools,
    "requests": requests,
    "first": first,
    "whole": whole,
    "slow": slow,
    "kept": kept,
}


def peak_bytes() -> int:
    """Not `ru_maxrss`: it survives exec, so a child begins with the figure of its parent."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


async def main() -> None:
    if sys.argv[2] not in ("first", "whole"):
        # What is loaded and made once is measured by `whole`, and what only these need is not measured.
        await WORK[sys.argv[2] if sys.argv[2] in ("hooks", "tools") else "requests"](1)
    cpu, wall = time.process_time(), time.perf_counter()
    best = await WORK[sys.argv[2]](int(sys.argv[3]))
    took = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall, "peak": peak_bytes()}
    if sys.argv[2] == "whole":
        took["cpu"] = time.process_time()
    print(json.dumps(took if best is None else {"cpu": best, "wall": best}))


if __name__ == "__main__":
    asyncio.run(main())
