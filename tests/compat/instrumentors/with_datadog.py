import asyncio
import logging
import os
from typing import Any

os.environ["DD_INSTRUMENTATION_TELEMETRY_ENABLED"] = "false"
os.environ["DD_REMOTE_CONFIGURATION_ENABLED"] = "false"
# Nobody listens there.
os.environ["DD_TRACE_AGENT_URL"] = "http://127.0.0.1:9"
logging.disable(logging.CRITICAL)

from ddtrace import patch  # noqa: E402
from ddtrace.trace import TraceFilter, tracer  # noqa: E402

seen: list[str] = []


class Filter(TraceFilter):
    def process_trace(self, trace: Any) -> None:
        seen.extend(f"{span.name} {span.resource} {span.error}" for span in trace)


tracer.configure(trace_processors=[Filter()])
patch(claude_agent_sdk=True)

from work import work  # noqa: E402

asyncio.run(work())
tracer.flush()
for each in sorted(seen):
    print(each)
