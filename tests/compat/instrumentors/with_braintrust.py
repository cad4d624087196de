import asyncio

from braintrust import logger
from braintrust.test_helpers import init_test_logger, simulate_login
from braintrust.wrappers.claude_agent_sdk import setup_claude_agent_sdk

with logger._internal_with_memory_background_logger() as kept:
    setup_claude_agent_sdk()
    simulate_login()
    init_test_logger("tests")

    from work import work

    asyncio.run(work())
    spans = kept.pop()
names = {span["span_id"]: span["span_attributes"]["name"] for span in spans}
for span in spans:
    parents = [names.get(each) for each in span.get("span_parents") or ()]
    print(span["span_attributes"]["name"], "<", parents, bool(span.get("input")), bool(span.get("output")))
