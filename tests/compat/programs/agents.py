import asyncio
import os

from claude_agent_sdk import (
    AgentDefinition,
    AssistantMessage,
    ClaudeAgentOptions,
    ResultMessage,
    SystemMessage,
    TextBlock,
    ToolUseBlock,
    query,
)


async def main() -> None:
    options = ClaudeAgentOptions(
        cli_path=os.environ["AGENT"],
        agents={
            "reviewer": AgentDefinition(
                description="Reviews code",
                prompt="You review code. Be kind.",
                tools=["Read", "Grep"],
                model="sonnet",
            ),
            "tester": AgentDefinition(description="Writes tests", prompt="You write tests.", maxTurns=3),
        },
        forward_subagent_text=True,
    )
    async for message in query(prompt="Use the reviewer", options=options):
        if isinstance(message, SystemMessage) and message.subtype == "init":
            print([name for name in message.data["agents"] if name in ("reviewer", "tester")])
        elif isinstance(message, AssistantMessage):
            who = "main" if message.parent_tool_use_id is None else "subagent"
            for block in message.content:
                if isinstance(block, TextBlock):
                    print(f"{who}:", block.text)
                elif isinstance(block, ToolUseBlock):
                    print(f"{who} uses", block.name, block.input.get("subagent_type"))
        elif isinstance(message, SystemMessage) and message.subtype.startswith("task_"):
            print(type(message).__name__)
        elif isinstance(message, ResultMessage):
            print(message.subtype, message.result)


asyncio.run(main())
