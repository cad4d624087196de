import asyncio
import os
from typing import Any

from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    ResultMessage,
    TextBlock,
    ToolAnnotations,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
    create_sdk_mcp_server,
    tool,
)

both = asyncio.Barrier(2)


@tool("add", "Add two numbers", {"a": float, "b": float})
async def add(args: dict[str, Any]) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": f"{args['a']} + {args['b']} = {args['a'] + args['b']}"}]}


@tool("divide", "Divide one number by another", {"a": float, "b": float})
async def divide(args: dict[str, Any]) -> dict[str, Any]:
    if args["b"] == 0:
        return {"content": [{"type": "text", "text": "Error: division by zero"}], "is_error": True}
    return {"content": [{"type": "text", "text": str(args["a"] / args["b"])}]}


@tool("root", "Square root", {"n": float})
async def root(args: dict[str, Any]) -> dict[str, Any]:
    raise ValueError("cannot take the root of that")


@tool("meet", "Wait for another call", {"who": str}, annotations=ToolAnnotations(readOnlyHint=True))
async def meet(args: dict[str, Any]) -> dict[str, Any]:
    await both.wait()
    return {"content": [{"type": "text", "text": f"{args['who']} met"}]}


async def main() -> None:
    calculator = create_sdk_mcp_server("calculator", "2.0.0", tools=[add, divide, root, meet])
    options = ClaudeAgentOptions(
        cli_path=os.environ["AGENT"],
        mcp_servers={"calc": calculator},
        allowed_tools=[f"mcp__calc__{name}" for name in ("add", "divide", "root", "meet")],
    )
    async with ClaudeSDKClient(options=options) as client:
        for prompt in ("sum", "zero", "root", "wrong", "meet"):
            results: list[tuple[str, bool | None]] = []
            await client.query(prompt)
            async for message in client.receive_response():
                if isinstance(message, AssistantMessage):
                    for block in message.content:
                        if isinstance(block, TextBlock):
                            print("Claude:", block.text)
                        elif isinstance(block, ToolUseBlock):
                            print("uses", block.name, block.input)
                elif isinstance(message, UserMessage):
                    for block in message.content:
                        if isinstance(block, ToolResultBlock):
                            text = (
                                block.content if isinstance(block.content, str) else block.content[0]["text"]
                            )
                            results.append((text.splitlines()[0], block.is_error))
                elif isinstance(message, ResultMessage):
                    print(*sorted(results), "in", message.num_turns, "turns")
        status = await client.get_mcp_status()
        for server in status["mcpServers"]:
            print(
                server["name"],
                server["status"],
                server["serverInfo"],
                sorted(t["name"] for t in server["tools"]),
            )


asyncio.run(main())
