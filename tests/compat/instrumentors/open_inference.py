import asyncio

from openinference.instrumentation.claude_agent_sdk import ClaudeAgentSDKInstrumentor
from spans import provider, show

ClaudeAgentSDKInstrumentor().instrument(tracer_provider=provider)

from work import work  # noqa: E402

asyncio.run(work())
show()
