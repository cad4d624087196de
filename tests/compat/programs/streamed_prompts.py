import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

from claude_agent_sdk import AssistantMessage, ClaudeAgentOptions, ResultMessage, TextBlock, query

PROMPTS = ["Name a colour.", "Name another."]
answered = asyncio.Event()


async def prompts() -> AsyncIterator[dict[str, Any]]:
    for number, text in enumerate(PROMPTS):
        if number:
            await answered.wait()
        yield {
            "type": "user",
            "message": {"role": "user", "content": [{"type": "text", "text": text}]},
            "parent_tool_use_id": None,
            "session_id": "palette",
        }


async def main() -> None:
    options = ClaudeAgentOptions(cli_path=os.environ["AGENT"])
    async for message in query(prompt=prompts(), options=options):
        if isinstance(message, AssistantMessage):
            print(*(block.text for block in message.content if isinstance(block, TextBlock)))
        elif isinstance(message, ResultMessage):
            print(message.subtype, repr(message.result))
            answered.set()


asyncio.run(main())
