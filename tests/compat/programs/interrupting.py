import asyncio
import os

from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, ResultMessage, StreamEvent


async def main() -> None:
    options = ClaudeAgentOptions(cli_path=os.environ["AGENT"], include_partial_messages=True)
    async with ClaudeSDKClient(options) as client:
        began = asyncio.Event()

        async def consume() -> None:
            async for message in client.receive_response():
                if isinstance(message, StreamEvent) and message.event["type"] == "content_block_delta":
                    began.set()
                elif isinstance(message, ResultMessage):
                    print("result:", message.subtype, message.is_error)

        await client.query("Count to a million")
        consuming = asyncio.create_task(consume())
        await began.wait()
        print("enough")
        await client.interrupt()
        await consuming

        await client.query("Just say hello")
        async for message in client.receive_response():
            if isinstance(message, ResultMessage):
                print("result:", message.subtype, message.is_error, message.result)


asyncio.run(main())
