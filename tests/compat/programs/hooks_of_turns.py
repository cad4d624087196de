import asyncio
import os
from typing import Any

from claude_agent_sdk import (
    AgentDefinition,
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    HookMatcher,
    ResultMessage,
    TextBlock,
)

stops = 0


async def on_prompt(input_data: Any, tool_use_id: str | None, context: Any) -> dict[str, Any]:
    print("prompt:", input_data["prompt"], type(tool_use_id).__name__)
    if "secret" in input_data["prompt"]:
        return {"decision": "block", "reason": "no secrets here"}
    return {
        "hookSpecificOutput": {"hookEventName": "UserPromptSubmit", "additionalContext": "It is a Tuesday"}
    }


async def on_stop(input_data: Any, tool_use_id: str | None, context: Any) -> dict[str, Any]:
    global stops
    stops += 1
    print("stop:", input_data["stop_hook_active"], type(tool_use_id).__name__)
    return {"decision": "block", "reason": "Say goodbye first"} if stops == 1 else {}


async def on_agent(input_data: Any, tool_use_id: str | None, context: Any) -> dict[str, Any]:
    print(input_data["hook_event_name"], input_data["agent_type"], type(tool_use_id).__name__)
    return {}


async def main() -> None:
    options = ClaudeAgentOptions(
        cli_path=os.environ["AGENT"],
        agents={"looker": AgentDefinition(description="Looks", prompt="Look around.", tools=["Read"])},
        hooks={
            "UserPromptSubmit": [HookMatcher(hooks=[on_prompt])],
            "Stop": [HookMatcher(hooks=[on_stop])],
            "SubagentStart": [HookMatcher(hooks=[on_agent])],
            "SubagentStop": [HookMatcher(hooks=[on_agent])],
        },
    )
    async with ClaudeSDKClient(options) as client:
        for prompt in ("Which day is it?", "Tell me a secret", "Look around"):
            await client.query(prompt)
            async for message in client.receive_response():
                if isinstance(message, AssistantMessage) and message.parent_tool_use_id is None:
                    print(*(block.text for block in message.content if isinstance(block, TextBlock)))
                elif isinstance(message, ResultMessage):
                    print("result:", message.subtype, message.num_turns)


asyncio.run(main())
