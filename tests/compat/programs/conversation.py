import asyncio
import os

from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    ResultMessage,
    SystemMessage,
    TextBlock,
    UserMessage,
)


async def main() -> None:
    sessions = set()
    options = ClaudeAgentOptions(cli_path=os.environ["AGENT"], allowed_tools=["Bash"])
    async with ClaudeSDKClient(options=options) as client:
        for prompt in ("My name is Ada.", "List the files.", "What is my name?"):
            print("User:", prompt)
            await client.query(prompt)
            async for message in client.receive_response():
                match message:
                    case SystemMessage(subtype=subtype):
                        print("  system", subtype)
                    case AssistantMessage(content=content, model=model):
                        print(
                            "  assistant", content if isinstance(content[0], TextBlock) else "", bool(model)
                        )
                    case UserMessage():
                        print("  user")
                    case ResultMessage(subtype, result=result):
                        sessions.add(message.session_id)
                        print("  result", subtype, result, message.num_turns)
    print("one session:", len(sessions) == 1)


asyncio.run(main())
