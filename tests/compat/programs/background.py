import asyncio
import os
from pathlib import Path

from claude_agent_sdk import (
    TERMINAL_TASK_STATUSES,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    ResultMessage,
    TaskNotificationMessage,
    TaskStartedMessage,
    TaskUpdatedMessage,
)

OPTIONS = ClaudeAgentOptions(cli_path=os.environ["AGENT"], allowed_tools=["Bash"])


async def main() -> None:
    os.mkfifo("gate")
    async with ClaudeSDKClient(OPTIONS) as client:
        await client.query("Start it")
        results = 0
        async for message in client.receive_messages():
            if isinstance(message, TaskStartedMessage):
                print("started:", message.description, message.task_type)
            elif isinstance(message, TaskUpdatedMessage):
                print("updated:", message.status, message.status in TERMINAL_TASK_STATUSES)
            elif isinstance(message, TaskNotificationMessage):
                print("notified:", message.status)
            elif isinstance(message, ResultMessage):
                results += 1
                print("result:", message.result, message.origin and message.origin["kind"])
                if results == 2:
                    break
                await asyncio.to_thread(Path("gate").write_text, "go on\n")


asyncio.run(main())
