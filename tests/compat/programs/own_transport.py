import asyncio
import json
import os
from collections.abc import AsyncIterator
from typing import Any

from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    ResultMessage,
    Transport,
    query,
)


class Pipe(Transport):
    """Starts the agent itself."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self.written: list[str] = []

    async def connect(self) -> None:
        flags = ["--output-format", "stream-json", "--input-format", "stream-json", "--verbose"]
        self._process = await asyncio.create_subprocess_exec(
            os.environ["AGENT"],
            *flags,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=2**20,
        )

    async def write(self, data: str) -> None:
        self.written.append(json.loads(data)["type"])
        self._process.stdin.write(data.encode())
        await self._process.stdin.drain()

    def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        return self._read()

    async def _read(self) -> AsyncIterator[dict[str, Any]]:
        async for line in self._process.stdout:
            yield json.loads(line)

    async def end_input(self) -> None:
        self._process.stdin.close()

    async def close(self) -> None:
        if self._process.returncode is None:
            self._process.stdin.close()
            try:
                await asyncio.wait_for(self._process.wait(), 5)
            except TimeoutError:
                self._process.kill()
                await self._process.wait()

    def is_ready(self) -> bool:
        return self._process is not None and self._process.returncode is None


async def main() -> None:
    pipe = Pipe()
    async for message in query(prompt="Hello", options=ClaudeAgentOptions(), transport=pipe):
        if isinstance(message, AssistantMessage):
            print(message.content)
        elif isinstance(message, ResultMessage):
            print(message.subtype)
    print(pipe.written, pipe.is_ready())

    pipe = Pipe()
    async with ClaudeSDKClient(transport=pipe) as client:
        await client.query("Hello")
        print([message.content async for message in client.receive_response() if hasattr(message, "content")])
        print(pipe.is_ready())
    print(pipe.written, pipe.is_ready())


asyncio.run(main())
