import asyncio

import logfire
from spans import processor, show

logfire.configure(send_to_logfire=False, console=False, additional_span_processors=[processor])
logfire.instrument_claude_agent_sdk()

from work import work  # noqa: E402

asyncio.run(work())
# Spans of the library `mcp`, which the reference uses inside.
show("initialize", "notifications/", "tools/")
