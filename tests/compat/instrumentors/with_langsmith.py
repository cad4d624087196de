import asyncio
from typing import Any

import langsmith
from langsmith.integrations.claude_agent_sdk import configure_claude_agent_sdk

seen: list[tuple[object, ...]] = []


class Client(langsmith.Client):
    def create_run(self, name: str, inputs: Any, run_type: Any, **more: Any) -> None:
        seen.append(("begun:", name, run_type, "parent_run_id" in more and more["parent_run_id"] is not None))

    def update_run(self, run_id: Any, **more: Any) -> None:
        seen.append(("ended:", more.get("name"), bool(more.get("outputs")), more.get("error")))


configure_claude_agent_sdk(name="conversation")

from work import work  # noqa: E402

client = Client(api_key="none", api_url="http://127.0.0.1:9", auto_batch_tracing=False)
with langsmith.tracing_context(client=client, enabled=True):
    asyncio.run(work())
# A hook may run before the program has got the message with the call, or after.
for each in sorted(seen, key=str):
    print(*each)
