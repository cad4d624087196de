import asyncio
import os

from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    ResultMessage,
    SystemMessage,
    TextBlock,
    query,
)


async def main() -> None:
    options = ClaudeAgentOptions(cli_path=os.environ["AGENT"], system_prompt="You are brief.", max_turns=2)
    async for message in query(prompt="What is 2 + 2?", options=options):
        if isinstance(message, SystemMessage):
            print("system:", message.subtype)
        elif isinstance(message, AssistantMessage):
            for block in message.content:
                if isinstance(block, TextBlock):
                    print("Claude:", block.text)
        elif isinstance(message, ResultMessage):
            print("result:", message.subtype, message.is_error, message.num_turns, message.result)
            print("cost known:", message.total_cost_usd is not None, "usage known:", bool(message.usage))


asyncio.run(main())
