"""How long a user waits for the real program: with a session that is opened now, and with one of a pool.

    python warm.py outrider cold COUNT
    python warm.py outrider pool COUNT
    python warm.py claude_agent_sdk cold COUNT

Prints the times of all rounds as a line of JSON. The agent's program is named by the variable AGENT. It
imports nothing else of this repository, so that it runs in the environment of either side.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

Times = dict[str, float]
"""Seconds until the session is there, `connect`; until its `first` message; until the first `words`; and of
its `close`, which is not measured with a pool."""


async def of_session(count: int) -> list[Times]:
    """Outrider, with a session that is opened for the question."""
    from outrider import Options, Session

    options, found = Options(cli_path=os.environ["AGENT"]), list[Times]()
    for _ in range(count):
        since = _watch()
        async with Session(options) as session:
            times = {"connect": since()}
            await _read(aiter(await session.send("hello")), since, times)
            since = _watch()
        times["close"] = since()
        found.append(times)
    return found


async def of_pool(count: int) -> list[Times]:
    """Outrider, with a session of a pool, as soon as one is ready."""
    from outrider import Options
    from outrider.fleet import Pool

    found = list[Times]()
    async with Pool(Options(cli_path=os.environ["AGENT"]), warm=1, max_processes=2) as pool:
        for _ in range(count):
            await pool.wait_warm()
            # By then it is at rest.
            await asyncio.sleep(1.0)
            since = _watch()
            session = await pool.acquire()
            times = {"connect": since()}
            await _read(aiter(await session.send("hello")), since, times)
            await pool.release(session)
            found.append(times)
    return found


async def of_client(count: int) -> list[Times]:
    """The reference."""
    import importlib

    sdk: Any = importlib.import_module("claude_agent_sdk")
    found = list[Times]()
    for _ in range(count):
        since = _watch()
        client = sdk.ClaudeSDKClient(sdk.ClaudeAgentOptions(cli_path=os.environ["AGENT"]))
        await client.connect()
        times = {"connect": since()}
        await client.query("hello")
        await _read(client.receive_response(), since, times)
        since = _watch()
        await client.disconnect()
        times["close"] = since()
        found.append(times)
    return found


def _watch() -> Callable[[], float]:
    begin = time.perf_counter()
    return lambda: time.perf_counter() - begin


async def _read(messages: AsyncIterator[object], since: Callable[[], float], times: Times) -> None:
    async for message in messages:
        times.setdefault("first", since())
        if type(message).__name__ == "AssistantMessage":
            times.setdefault("words", since())


WORK = {
    ("outrider", "cold"): of_session,
    ("outrider", "pool"): of_pool,
    ("claude_agent_sdk", "cold"): of_client,
}

if __name__ == "__main__":
    print(json.dumps(asyncio.run(WORK[sys.argv[1], sys.argv[2]](int(sys.argv[3])))))
