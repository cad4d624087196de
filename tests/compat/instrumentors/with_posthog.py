import asyncio
from typing import Any

from posthog.ai import claude_agent_sdk as posthog
from posthog.client import Client
from work import options

seen: list[tuple[object, ...]] = []


class Kept(Client):
    def capture(self, event: str, **more: Any) -> None:
        seen.append((event, sorted(more["properties"])))


async def main() -> None:
    given = {"posthog_client": Kept("key", host="http://127.0.0.1:9"), "posthog_distinct_id": "somebody"}
    async for message in posthog.query(prompt="first", options=options(), **given):
        print(type(message).__name__)
    async with posthog.PostHogClaudeSDKClient(options(), **given) as client:
        await client.query("second")
        async for message in client.receive_response():
            print(type(message).__name__)


asyncio.run(main())
for each in seen:
    print(*each)
