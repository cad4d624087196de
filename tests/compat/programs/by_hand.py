import asyncio
import os

from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    CLIConnectionError,
    ResultMessage,
)


async def say(client: ClaudeSDKClient) -> None:
    async for message in client.receive_messages():
        if isinstance(message, AssistantMessage):
            print(message.content)
        if isinstance(message, ResultMessage):
            break


async def main() -> None:
    client = ClaudeSDKClient(ClaudeAgentOptions(cli_path=os.environ["AGENT"]))
    try:
        await client.query("too early")
    except CLIConnectionError as error:
        print(error)
    await client.connect("First words")
    try:
        await say(client)
        await client.query("Second words", session_id="other")
        await say(client)
    finally:
        await client.disconnect()
    await client.disconnect()
    try:
        await client.interrupt()
    except CLIConnectionError as error:
        print(error)
    await client.connect()
    await client.query("First words")
    await say(client)
    await client.disconnect()


asyncio.run(main())
