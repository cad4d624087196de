import asyncio
import dataclasses
import json
import os
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, SystemMessage, query

KEPT = ("content", "parent_tool_use_id", "error", "origin", "is_error", "num_turns", "stop_reason", "result")
KEPT_OF_BLOCKS = ("text", "thinking", "name", "input", "content", "is_error")


def row(message: Any) -> str:
    """A message as a line of the log."""
    whole = json.loads(json.dumps(dataclasses.asdict(message)))
    kept = {key: whole[key] for key in KEPT if key in whole}
    if "content" in kept:
        kept["content"] = [
            {key: block[key] for key in KEPT_OF_BLOCKS if key in block} for block in kept["content"]
        ]
    return json.dumps(kept)


async def main() -> None:
    lines: list[str] = []
    options = ClaudeAgentOptions(
        cli_path=os.environ["AGENT"],
        allowed_tools=["Bash"],
        stderr=lines.append,
        extra_args={"debug-to-stderr": None},
    )
    async for message in query(prompt="Say it", options=options):
        assert dataclasses.is_dataclass(message)
        if isinstance(message, SystemMessage):
            print(message.subtype, len(json.dumps(dataclasses.asdict(message)["data"])) > 10)
        else:
            print(type(message).__name__, dataclasses.fields(message)[0].name, row(message))
    print("stderr:", all(isinstance(line, str) and not line.endswith("\n") for line in lines))


asyncio.run(main())
