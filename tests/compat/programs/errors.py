import asyncio
import os
from pathlib import Path

from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    ClaudeSDKError,
    CLIConnectionError,
    CLINotFoundError,
    ProcessError,
    ResultError,
    ResultMessage,
    query,
)


def program(name: str, text: str) -> str:
    path = Path.cwd() / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


async def ask(name: str, **fields: object) -> None:
    print(f"{name}:")
    try:
        async for message in query(prompt=name, options=ClaudeAgentOptions(**fields)):
            if isinstance(message, AssistantMessage):
                print("  assistant:", message.error)
            elif isinstance(message, ResultMessage):
                print("  result:", message.subtype, message.is_error, message.errors)
    except CLINotFoundError as error:
        print("  not found:", str(error).split(" at: ")[0])
    except CLIConnectionError as error:
        print("  connection:", str(error).split(": ")[0])
    except ResultError as error:
        print("  result error:", str(error).splitlines()[0][:60], error.exit_code, error.subtype)
    except ProcessError as error:
        print("  process:", str(error).splitlines()[0], error.exit_code)
    except ClaudeSDKError as error:
        print("  other:", type(error).__name__, error)


async def main() -> None:
    agent = os.environ["AGENT"]
    await ask("absent", cli_path="/nowhere/claude")
    await ask("no folder", cli_path=agent, cwd="/no/such/folder")
    await ask("dies", cli_path=program("dies", "read line; echo no licence >&2; exit 3"))
    await ask("refused", cli_path=agent, env={"CLAUDE_CODE_MAX_RETRIES": "0"})
    await ask("too long", cli_path=agent, max_turns=1, allowed_tools=["Bash"])
    await ask("unknown session", cli_path=agent, resume="11111111-2222-4333-8444-555555555555")
    await ask("settings", cli_path=agent, settings="/no/such/file.json", sandbox={"enabled": True})

    client = ClaudeSDKClient(ClaudeAgentOptions(cli_path=program("dies", "read line; exit 3")))
    try:
        await client.connect()
    except ProcessError as error:
        print(error.exit_code)
    try:
        await client.query("anything")
    except ClaudeSDKError as error:
        print(error)
    await client.disconnect()

    async with ClaudeSDKClient(
        ClaudeAgentOptions(cli_path=agent, env={"CLAUDE_CODE_MAX_RETRIES": "0"})
    ) as client:
        for prompt in ("refused", "well"):
            await client.query(prompt)
            async for message in client.receive_response():
                if isinstance(message, ResultMessage):
                    print(prompt, message.subtype, message.is_error)


asyncio.run(main())
