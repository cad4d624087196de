import asyncio
import os
from typing import Any

from claude_agent_sdk import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    HookContext,
    HookInput,
    HookJSONOutput,
    HookMatcher,
    ResultMessage,
    ToolResultBlock,
    UserMessage,
)


async def guard(input_data: HookInput, tool_use_id: str | None, context: HookContext) -> HookJSONOutput:
    command = input_data["tool_input"].get("command", "")
    print("guard:", input_data["hook_event_name"], input_data["tool_name"], command)
    if "forbidden" in command:
        return {
            "reason": "a rule",
            "systemMessage": "That was stopped",
            "hookSpecificOutput": {
                "hookEventName": "PreToolUse",
                "permissionDecision": "deny",
                "permissionDecisionReason": "forbidden things stay forbidden",
            },
        }
    if "rewrite" in command:
        return {
            "hookSpecificOutput": {
                "hookEventName": "PreToolUse",
                "permissionDecision": "allow",
                "updatedInput": {"command": "echo rewritten", "description": "Say something else"},
            }
        }
    return {}


async def allow(input_data: HookInput, tool_use_id: str | None, context: HookContext) -> HookJSONOutput:
    return {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "allow"}}


async def never(input_data: HookInput, tool_use_id: str | None, context: HookContext) -> HookJSONOutput:
    print("never called")
    return {}


async def review(input_data: HookInput, tool_use_id: str | None, context: HookContext) -> HookJSONOutput:
    response: Any = input_data["tool_response"]
    print("review:", response["stdout"], tool_use_id == input_data["tool_use_id"], context)
    if response["stdout"] == "stop here":
        return {"continue_": False, "stopReason": "That is enough"}
    return {"hookSpecificOutput": {"hookEventName": "PostToolUse", "additionalContext": "Mind the gap"}}


async def failed(input_data: HookInput, tool_use_id: str | None, context: HookContext) -> HookJSONOutput:
    print("failed:", input_data["error"].splitlines()[0])
    return {"async_": True, "asyncTimeout": 5000}


async def main() -> None:
    options = ClaudeAgentOptions(
        cli_path=os.environ["AGENT"],
        hooks={
            "PreToolUse": [
                HookMatcher(matcher="Bash", hooks=[guard]),
                HookMatcher(matcher="Bash|Read", hooks=[allow], timeout=30),
                HookMatcher(matcher="Write", hooks=[never]),
            ],
            "PostToolUse": [HookMatcher(hooks=[review])],
            "PostToolUseFailure": [HookMatcher(matcher=None, hooks=[failed])],
        },
    )
    async with ClaudeSDKClient(options) as client:
        for prompt in ("plain", "deny", "rewrite", "fail", "stop"):
            await client.query(prompt)
            async for message in client.receive_response():
                if isinstance(message, UserMessage) and isinstance(message.content, list):
                    for block in message.content:
                        if isinstance(block, ToolResultBlock):
                            print("tool:", block.content, block.is_error)
                elif isinstance(message, ResultMessage):
                    print("result:", message.subtype, message.result)


asyncio.run(main())
