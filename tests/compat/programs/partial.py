import asyncio
import os
import sys

from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    ResultMessage,
    StreamEvent,
    ThinkingBlock,
    query,
)


async def main() -> None:
    options = ClaudeAgentOptions(cli_path=os.environ["AGENT"], include_partial_messages=True)
    async for message in query(prompt="Tell me a story", options=options):
        if isinstance(message, StreamEvent):
            event = message.event
            if event["type"] == "content_block_delta":
                delta = event["delta"]
                if delta["type"] in ("text_delta", "thinking_delta"):
                    sys.stdout.write(f"[{delta.get('text') or delta.get('thinking')}]")
            elif event["type"] == "content_block_stop":
                sys.stdout.write("\n")
            else:
                print(event["type"])
        elif isinstance(message, AssistantMessage):
            for block in message.content:
                print("whole:", block.thinking if isinstance(block, ThinkingBlock) else block.text)
        elif isinstance(message, ResultMessage):
            print("result:", message.result)


asyncio.run(main())
