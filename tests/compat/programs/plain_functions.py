"""Callbacks that are not async, or say nothing, and prompts that fail."""

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

from claude_agent_sdk import (
    ClaudeAgentOptions,
    HookMatcher,
    PermissionResultAllow,
    ResultMessage,
    ToolPermissionContext,
    ToolResultBlock,
    UserMessage,
    query,
)


async def quiet(input_data: Any, tool_use_id: str | None, context: Any) -> None:
    print("hook:", input_data["tool_name"])


def yes(name: str, tool_input: dict[str, Any], context: ToolPermissionContext) -> PermissionResultAllow:
    print("asked:", name)
    return PermissionResultAllow()


async def prompts() -> AsyncIterator[dict[str, Any]]:
    yield {"type": "user", "message": {"role": "user", "content": "Write it"}}
    raise RuntimeError("no more prompts")


async def main() -> None:
    options = ClaudeAgentOptions(
        cli_path=os.environ["AGENT"], can_use_tool=yes, hooks={"PreToolUse": [HookMatcher(hooks=[quiet])]}
    )
    try:
        async for message in query(prompt=prompts(), options=options):
            if isinstance(message, UserMessage):
                print([block.is_error for block in message.content if isinstance(block, ToolResultBlock)])
            elif isinstance(message, ResultMessage):
                print(message.result)
    except RuntimeError as error:
        print("error:", error)


asyncio.run(main())
