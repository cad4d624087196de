"""What a notebook does: one loop that goes on, and a task for each cell."""

import asyncio
import os

from claude_agent_sdk import AssistantMessage, ClaudeAgentOptions, ClaudeSDKClient, ResultMessage, query

loop = asyncio.new_event_loop()
client = ClaudeSDKClient(ClaudeAgentOptions(cli_path=os.environ["AGENT"]))


async def cell_1() -> None:
    await client.connect()


async def cell_2() -> None:
    await client.query("What is in cell 2?")


async def cell_3() -> None:
    async for message in client.receive_response():
        if isinstance(message, AssistantMessage):
            print(message.content[0].text)


async def cell_4() -> None:
    async def in_the_background() -> None:
        async for message in client.receive_messages():
            if isinstance(message, ResultMessage):
                print("in the background:", message.result)
                return

    task = asyncio.create_task(in_the_background())
    await client.query("What is in cell 4?")
    await task


async def cell_5() -> None:
    await client.query("What is in cell 5?")
    async for message in client.receive_response():
        if isinstance(message, AssistantMessage):
            # A run inside a conversation that goes on.
            async for inner in query(prompt="What is in cell 2?", options=client.options):
                if isinstance(inner, ResultMessage):
                    print("inner:", inner.result)
        elif isinstance(message, ResultMessage):
            print("outer:", message.result)


async def cell_6() -> None:
    await client.disconnect()


for cell in (cell_1, cell_2, cell_3, cell_4, cell_5, cell_6):
    loop.run_until_complete(cell())
loop.close()
