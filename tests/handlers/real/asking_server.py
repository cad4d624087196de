"""A small MCP server on stdin and stdout, for tests: one tool that adds, and one that asks the user."""

from __future__ import annotations

import json
import sys
from typing import Any

TOOLS = [
    {"name": name, "description": "For tests", "inputSchema": {"type": "object"}} for name in ("add", "ask")
]
NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def send(**message: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0"} | message), flush=True)


def said(id: object, text: str) -> None:
    send(id=id, result={"content": [{"type": "text", "text": text}]})


def main() -> None:
    asked: object = None
    for line in sys.stdin:
        message = json.loads(line)
        id, params = message.get("id"), message.get("params") or {}
        match message.get("method"):
            case "initialize":
                server = {"name": "asking", "version": "1"}
                version = params["protocolVersion"]
                send(
                    id=id,
                    result={"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server},
                )
            case "tools/list":
                send(id=id, result={"tools": TOOLS})
            case "tools/call" if params["name"] == "ask":
                asked = id
                send(
                    id="question",
                    method="elicitation/create",
                    params={"message": "Who?", "requestedSchema": NAME},
                )
            case "tools/call":
                said(id, str(sum(params["arguments"].values())))
            case None if id == "question":
                said(asked, f"answered: {json.dumps(message.get('result'))}")
            case _ if id is not None:
                send(id=id, result={})
            case _:
                pass


if __name__ == "__main__":
    main()
