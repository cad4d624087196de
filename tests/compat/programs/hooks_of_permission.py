import asyncio
import os
from pathlib import Path
from typing import Any

from claude_agent_sdk import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    HookMatcher,
    PermissionRequestHookInput,
    PermissionRequestHookSpecificOutput,
    PermissionResultDeny,
    ResultMessage,
)

heard = asyncio.Event()


async def on_request(
    input_data: PermissionRequestHookInput, tool_use_id: str | None, context: Any
) -> dict[str, Any]:
    path = Path(input_data["tool_input"]["file_path"]).name
    heard.set()
    print(input_data["hook_event_name"], input_data["tool_name"], path)
    if path == "mine.txt":
        output: PermissionRequestHookSpecificOutput = {
            "hookEventName": "PermissionRequest",
            "decision": {"behavior": "allow"},
        }
        return {"hookSpecificOutput": output}
    if path == "never.txt":
        decision = {"behavior": "deny", "message": "never"}
        return {"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": decision}}
    return {}


async def ask(name: str, tool_input: dict[str, Any], context: Any) -> PermissionResultDeny:
    path = Path(tool_input["file_path"]).name
    print("asked:", name, path)
    if path in ("mine.txt", "never.txt"):
        # The user takes a long time; the hook is faster.
        await asyncio.sleep(3600)
    # Claude Code asks both at once: an answer that comes first may spare it the hook.
    await heard.wait()
    return PermissionResultDeny(message="not now", interrupt=tool_input["content"] == "stop")


async def main() -> None:
    options = ClaudeAgentOptions(
        cli_path=os.environ["AGENT"],
        can_use_tool=ask,
        hooks={"PermissionRequest": [HookMatcher(matcher="Write", hooks=[on_request])]},
    )
    async with ClaudeSDKClient(options) as client:
        for name in ("mine.txt", "never.txt", "other.txt", "last.txt"):
            heard.clear()
            await client.query(f"Write {name}")
            async for message in client.receive_response():
                if isinstance(message, ResultMessage):
                    print(message.subtype, message.result, message.is_error)
            print(name, Path(name).exists())


asyncio.run(main())
