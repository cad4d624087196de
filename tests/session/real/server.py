"""A small MCP server on stdin and stdout, for tests: one tool, one resource, one prompt."""

from __future__ import annotations

import json
import sys
from typing import Any

TOOLS = [{"name": "add", "description": "Add two numbers", "inputSchema": {"type": "object"}}]
PROMPTS = [{"name": "greet", "description": "Greet somebody"}]
RESOURCES = [{"uri": "ui://card", "name": "card", "mimeType": "text/html"}]


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    match method:
        case "initialize":
            capabilities: dict[str, Any] = {"tools": {}, "prompts": {}, "resources": {}}
            return {
                "protocolVersion": params["protocolVersion"],
                "capabilities": capabilities,
                "serverInfo": {"name": "small", "version": "1"},
            }
        case "tools/list":
            return {"tools": TOOLS}
        case "prompts/list":
            return {"prompts": PROMPTS}
        case "resources/list":
            return {"resources": RESOURCES}
        case "resources/read":
            return {"contents": [{"uri": params["uri"], "mimeType": "text/html", "text": "<p>hi</p>"}]}
        case "tools/call":
            total = sum(params["arguments"].values())
            return {"content": [{"type": "text", "text": str(total)}]}
        case _:
            return {}


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            result = answer(message["method"], message.get("params") or {})
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)


if __name__ == "__main__":
    main()
