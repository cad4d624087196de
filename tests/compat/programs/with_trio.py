import os
from typing import Any

import anyio
from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    HookMatcher,
    ResultMessage,
    TextBlock,
    create_sdk_mcp_server,
    query,
    tool,
)


@tool("greet", "Greet somebody", {"name": str})
async def greet(args: dict[str, Any]) -> dict[str, Any]:
    await anyio.sleep(0)
    return {"content": [{"type": "text", "text": f"Hello, {args['name']}!"}]}


async def before(input_data: Any, tool_use_id: str | None, context: Any) -> dict[str, Any]:
    await anyio.sleep(0)
    print("before", input_data["tool_name"])
    return {}


async def main() -> None:
    options = ClaudeAgentOptions(
        cli_path=os.environ["AGENT"],
        mcp_servers={"hall": create_sdk_mcp_server("hall", tools=[greet])},
        allowed_tools=["mcp__hall__greet"],
        hooks={"PreToolUse": [HookMatcher(hooks=[before])]},
    )
    async for message in query(prompt="Greet Ada", options=options):
        if isinstance(message, ResultMessage):
            print(message.result)
    async with ClaudeSDKClient(options) as client:
        await client.query("Greet Ada")
        async with anyio.create_task_group() as tasks:

            async def consume() -> None:
                async for message in client.receive_response():
                    if isinstance(message, AssistantMessage) and isinstance(message.content[0], TextBlock):
                        print(message.content[0].text)

            tasks.start_soon(consume)
        with anyio.move_on_after(0.01):
            async for _ in client.receive_messages():
                pass
        await client.query("Greet Ada")
        print(
            [
                message.result
                async for message in client.receive_response()
                if isinstance(message, ResultMessage)
            ]
        )


anyio.run(main, backend="trio")
