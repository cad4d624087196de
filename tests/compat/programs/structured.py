import asyncio
import json
import os

from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "files": {"type": "array", "items": {"type": "string"}}},
    "required": ["name", "files"],
}


async def main() -> None:
    options = ClaudeAgentOptions(
        cli_path=os.environ["AGENT"], output_format={"type": "json_schema", "schema": SCHEMA}
    )
    async for message in query(prompt="Describe this project", options=options):
        if isinstance(message, ResultMessage):
            print(message.subtype, json.dumps(message.structured_output, sort_keys=True))


asyncio.run(main())
