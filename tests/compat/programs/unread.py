"""Asks something while much that was said is not read yet."""

import asyncio
import os

from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, ResultMessage, StreamEvent


async def main() -> None:
    options = ClaudeAgentOptions(cli_path=os.environ["AGENT"], include_partial_messages=True)
    client = ClaudeSDKClient(options)
    await client.connect()
    await client.query("Talk")
    result = None
    async for message in client.receive_messages():
        if isinstance(message, StreamEvent):
            break
    try:
        print(type(await asyncio.wait_for(client.get_mcp_status(), 3)).__name__)
    except TimeoutError:
        print("stuck")
    async for message in client.receive_response():
        if isinstance(message, ResultMessage):
            result = message.subtype
    print(result)
    await client.disconnect()


asyncio.run(main())
