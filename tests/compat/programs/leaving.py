import asyncio
import os
from contextlib import aclosing

from claude_agent_sdk import AssistantMessage, ClaudeAgentOptions, ClaudeSDKClient, query

OPTIONS = ClaudeAgentOptions(cli_path=os.environ["AGENT"])


async def main() -> None:
    async with aclosing(query(prompt="Hello", options=OPTIONS)) as messages:
        async for message in messages:
            if isinstance(message, AssistantMessage):
                print("aclosing:", message.content)
                break

    async for message in query(prompt="Hello", options=OPTIONS):
        if isinstance(message, AssistantMessage):
            print("break:", message.content)
            break

    try:
        async with asyncio.timeout(0.3):
            async with ClaudeSDKClient(OPTIONS) as client:
                await client.query("Hang")
                async for _ in client.receive_response():
                    pass
    except TimeoutError:
        print("timed out")

    async def read_all() -> None:
        async for _ in query(prompt="Hang", options=OPTIONS):
            pass

    task = asyncio.create_task(read_all())
    await asyncio.sleep(0.1)
    task.cancel()
    print("cancelled:", await asyncio.gather(task, return_exceptions=True))


asyncio.run(main())
