import asyncio
import os

from claude_agent_sdk import AssistantMessage, ClaudeAgentOptions, ClaudeSDKClient, SystemMessage


async def main() -> None:
    options = ClaudeAgentOptions(
        cli_path=os.environ["AGENT"], model="claude-sonnet-4-5", permission_mode="plan"
    )
    async with ClaudeSDKClient(options) as client:
        info = await client.get_server_info()
        print(sorted(key for key in info or {} if key in ("commands", "models", "output_style", "account")))
        print((info or {})["output_style"])

        async def ask() -> None:
            await client.query("Hello")
            async for message in client.receive_response():
                if isinstance(message, SystemMessage) and message.subtype == "init":
                    print(message.data["model"], message.data["permissionMode"])
                elif isinstance(message, AssistantMessage):
                    print(message.model, message.content)

        await ask()
        print(await client.set_model("claude-opus-4-5"), await client.set_permission_mode("acceptEdits"))
        await ask()
        await client.set_model()
        await client.set_permission_mode("default")
        usage = await client.get_context_usage()
        print(
            usage["maxTokens"],
            usage["totalTokens"] > 0,
            "Messages" in [c["name"] for c in usage["categories"]],
        )
        print(await client.get_mcp_status())
        await client.interrupt()
        for call in (client.reconnect_mcp_server("none"), client.toggle_mcp_server("none", False)):
            try:
                await call
            except Exception as error:
                print(error)


asyncio.run(main())
