"""Connects twice, streams prompts into a conversation, and reads it in two places."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from claude_agent_sdk import AssistantMessage, ClaudeAgentOptions, ClaudeSDKClient, ResultMessage


def agents() -> int:
    mark = f"HOME={os.environ['HOME']}\0".encode()
    count = 0
    for place in Path("/proc").glob("[0-9]*"):
        try:
            is_one = b"stream-json" in (place / "cmdline").read_bytes()
            count += is_one and mark in (place / "environ").read_bytes()
        except OSError:
            pass
    return count


async def prompts() -> AsyncIterator[dict[str, Any]]:
    yield {"type": "user", "message": {"role": "user", "content": "First"}}


async def read(client: ClaudeSDKClient) -> list[str]:
    said = []
    async for message in client.receive_response():
        if isinstance(message, AssistantMessage):
            said += [block.text for block in message.content]
        elif isinstance(message, ResultMessage):
            said.append(message.subtype)
    return said


async def main() -> None:
    client = ClaudeSDKClient(ClaudeAgentOptions(cli_path=os.environ["AGENT"]))
    await client.connect()
    await client.connect(prompts())
    print("agents:", agents())
    print(await read(client))
    try:
        await client.query("Second")
        print(await asyncio.wait_for(asyncio.gather(read(client), read(client)), 3))
    except Exception as error:
        print(type(error).__name__)
    await client.disconnect()
    print("agents:", agents())


asyncio.run(main())
