import asyncio
import os
from pathlib import Path
from typing import Any

from claude_agent_sdk import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    PermissionResult,
    PermissionResultAllow,
    PermissionResultDeny,
    ResultMessage,
    ToolPermissionContext,
    ToolResultBlock,
    UserMessage,
)


async def ask_me(name: str, tool_input: dict[str, Any], context: ToolPermissionContext) -> PermissionResult:
    path = Path(tool_input["file_path"]).name
    print(
        "asked:", name, path, [update.type for update in context.suggestions], context.tool_use_id is not None
    )
    if path == "no.txt":
        return PermissionResultDeny(message="not that one")
    if path == "changed.txt":
        return PermissionResultAllow(updated_input={**tool_input, "content": "changed"})
    if path == "always.txt":
        return PermissionResultAllow(updated_permissions=context.suggestions)
    if path == "broken.txt":
        raise RuntimeError("the callback broke")
    return PermissionResultAllow()


async def main() -> None:
    options = ClaudeAgentOptions(cli_path=os.environ["AGENT"], can_use_tool=ask_me, permission_mode="default")
    async with ClaudeSDKClient(options) as client:
        for name in ("yes.txt", "no.txt", "changed.txt", "broken.txt", "always.txt", "after.txt"):
            await client.query(f"Write {name}")
            async for message in client.receive_response():
                if isinstance(message, UserMessage) and isinstance(message.content, list):
                    for block in message.content:
                        if isinstance(block, ToolResultBlock) and block.is_error:
                            print("tool:", block.content)
                elif isinstance(message, ResultMessage):
                    denied = [denial["tool_name"] for denial in message.permission_denials or []]
                    print(message.result, denied)
            if Path(name).exists():
                print(name, "has", Path(name).read_text())


asyncio.run(main())
