"""What every instrumentor is tried with: a query and a client, each with a call of a tool."""

import os

import claude_agent_sdk
from claude_agent_sdk import ClaudeAgentOptions, create_sdk_mcp_server, tool


def options() -> ClaudeAgentOptions:
    @tool("lookup", "Look something up.", {"what": str})
    async def lookup(args: dict[str, str]) -> dict[str, object]:
        return {"content": [{"type": "text", "text": f"found {args['what']}"}]}

    server = create_sdk_mcp_server("things", tools=[lookup])
    return ClaudeAgentOptions(
        cli_path=os.environ["AGENT"],
        mcp_servers={"things": server},
        allowed_tools=["mcp__things__lookup"],
    )


async def work() -> None:
    # By their module: some instrumentors put others in their place.
    async for message in claude_agent_sdk.query(prompt="first", options=options()):
        print(type(message).__name__)
    async with claude_agent_sdk.ClaudeSDKClient(options=options()) as client:
        await client.query("second")
        async for message in client.receive_response():
            print(type(message).__name__)
