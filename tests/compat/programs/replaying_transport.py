import json
from collections.abc import AsyncIterator
from typing import Any

import anyio
from claude_agent_sdk import AssistantMessage, ClaudeSDKClient, ResultMessage, SystemMessage, Transport, query

FRAMES: list[dict[str, Any]] = [
    {
        "type": "system",
        "subtype": "init",
        "session_id": "s",
        "uuid": "u1",
        "model": "m",
        "tools": [],
        "cwd": "/",
    },
    {"type": "something_new", "uuid": "u2"},
    {
        "type": "assistant",
        "session_id": "s",
        "uuid": "u3",
        "parent_tool_use_id": None,
        "message": {
            "role": "assistant",
            "model": "m",
            "content": [{"type": "text", "text": "From the tape"}],
        },
    },
    {
        "type": "result",
        "subtype": "success",
        "session_id": "s",
        "uuid": "u4",
        "is_error": False,
        "num_turns": 1,
        "duration_ms": 1,
        "duration_api_ms": 1,
        "result": "From the tape",
    },
]


class Broken(Exception):
    pass


class Tape(Transport):
    """Plays frames for each prompt; nothing is started."""

    def __init__(self, breaks: bool = False) -> None:
        self._send, self._receive = anyio.create_memory_object_stream[dict[str, Any]](1000)
        self._breaks = breaks
        self._ready = False

    async def connect(self) -> None:
        self._ready = True

    async def write(self, data: str) -> None:
        message = json.loads(data)
        if message["type"] == "control_request":
            response = {
                "subtype": "success",
                "request_id": message["request_id"],
                "response": {"commands": []},
            }
            await self._send.send({"type": "control_response", "response": response})
        elif message["type"] == "user":
            for frame in FRAMES:
                await self._send.send(frame)
            if self._breaks:
                self._send.close()

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        async for message in self._receive:
            yield message
        if self._breaks:
            raise Broken("the tape tore")

    async def end_input(self) -> None:
        self._send.close()

    async def close(self) -> None:
        self._ready = False
        self._send.close()
        self._receive.close()

    def is_ready(self) -> bool:
        return self._ready


async def main() -> None:
    async for message in query(prompt="Play", transport=Tape()):
        if isinstance(message, AssistantMessage):
            print(message.content)
        elif isinstance(message, SystemMessage | ResultMessage):
            print(message.subtype)
        else:
            print("something else")
    async with ClaudeSDKClient(transport=Tape()) as client:
        print(await client.get_server_info())
        for _ in range(2):
            await client.query("Play")
            async for message in client.receive_response():
                if isinstance(message, ResultMessage):
                    print(message.result)
    try:
        async for message in query(prompt="Play", transport=Tape(breaks=True)):
            if isinstance(message, ResultMessage):
                print(message.result)
    except Broken as error:
        print("broken:", error)


anyio.run(main)
