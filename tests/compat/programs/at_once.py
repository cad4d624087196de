import asyncio
import os

from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    ResultMessage,
    TextBlock,
    query,
)


async def ask(prompt: str) -> str:
    said = ""
    async for message in query(prompt=prompt, options=ClaudeAgentOptions(cli_path=os.environ["AGENT"])):
        if isinstance(message, AssistantMessage):
            said += "".join(block.text for block in message.content if isinstance(block, TextBlock))
    return said


async def main() -> None:
    print(await asyncio.gather(*(ask(f"number {number}") for number in (1, 2, 3))))
    async with (
        ClaudeSDKClient(ClaudeAgentOptions(cli_path=os.environ["AGENT"])) as one,
        ClaudeSDKClient(ClaudeAgentOptions(cli_path=os.environ["AGENT"])) as two,
    ):
        await asyncio.gather(one.query("number 1"), two.query("number 2"))
        for client in (two, one):
            async for message in client.receive_response():
                if isinstance(message, ResultMessage):
                    print(message.result)


asyncio.run(main())
