"""A tool gives more than a megabyte."""

import asyncio
import os
from typing import Any

from claude_agent_sdk import (
    ClaudeAgentOptions,
    ResultMessage,
    ToolResultBlock,
    UserMessage,
    create_sdk_mcp_server,
    query,
    tool,
)


@tool("picture", "Take a picture", {})
async def picture(args: dict[str, Any]) -> dict[str, Any]:
    return {"content": [{"type": "image", "data": "A" * 1_200_000, "mimeType": "image/png"}]}


async def main() -> None:
    options = ClaudeAgentOptions(
        cli_path=os.environ["AGENT"],
        mcp_servers={"camera": create_sdk_mcp_server("camera", tools=[picture])},
        allowed_tools=["mcp__camera__picture"],
    )
    try:
        async for message in query(prompt="Take a picture", options=options):
            if isinstance(message, UserMessage):
                print(
                    [
                        block.content[0]["type"]
                        for block in message.content
                        if isinstance(block, ToolResultBlock)
                    ]
                )
            elif isinstance(message, ResultMessage):
                print(message.result)
    except Exception as error:
        print(type(error).__name__, str(error)[:60])


asyncio.run(main())
