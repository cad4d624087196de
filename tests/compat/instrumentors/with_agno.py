import asyncio

from agno.agents.claude import ClaudeAgent
from work import options


async def main() -> None:
    agent = ClaudeAgent(name="agent", options=options())
    run = await agent.arun("first")
    print(run.content, [(each.tool_name, each.tool_args) for each in run.tools or ()], run.status)
    async for event in agent.arun("second", stream=True, stream_events=True):
        print(type(event).__name__)


asyncio.run(main())
