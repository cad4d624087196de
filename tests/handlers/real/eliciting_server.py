"""A small MCP server on stdin and stdout, for tests: it has the user fill in a form or open a page."""

from __future__ import annotations

import json
import sys
from typing import Any

FORM = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Your name"},
        "age": {"type": "integer", "minimum": 0},
        "colour": {"type": "string", "enum": ["red", "green"]},
    },
    "required": ["name"],
}
QUESTIONS: dict[str, dict[str, Any]] = {
    "form": {"message": "Who are you?", "requestedSchema": FORM},
    "page": {
        "mode": "url",
        "message": "Log in",
        "url": "https://example.invalid/login",
        "elicitationId": "e1",
    },
}
TOOLS = [{"name": name, "description": "Asks", "inputSchema": {"type": "object"}} for name in QUESTIONS]


def send(**message: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0"} | message), flush=True)


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        id, params = message.get("id"), message.get("params") or {}
        match message.get("method"):
            case "initialize":
                result = {
                    "protocolVersion": params["protocolVersion"],
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "eliciting", "version": "1"},
                }
                send(id=id, result=result)
            case "tools/list":
                send(id=id, result={"tools": TOOLS})
            case "tools/call":
                # The answer comes with this id, which names the call that waits for it.
                send(id=f"q{id}", method="elicitation/create", params=QUESTIONS[params["name"]])
            case None if str(id).startswith("q"):
                text = json.dumps(message.get("result", message.get("error")), sort_keys=True)
                if (message.get("result") or {}) == {"action": "accept"}:
                    send(method="notifications/elicitation/complete", params={"elicitationId": "e1"})
                send(id=int(str(id)[1:]), result={"content": [{"type": "text", "text": text}]})
            case _ if id is not None:
                send(id=id, result={})
            case _:
                pass


if __name__ == "__main__":
    main()
