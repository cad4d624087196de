"""An MCP server in a program of its own, as small as it gets: it echoes, asks the user, or dies."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

TOOLS = ["echo", "ask", "visit", "die"]


def send(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def answer(id: object, text: str) -> None:
    send(id=id, result={"content": [{"type": "text", "text": text}]})


def call(id: object, name: str, given: dict[str, Any]) -> None:
    if name == "echo":
        answer(id, f"echo: {given['text']} {os.environ.get('WORD', '')}".strip())
    elif name == "ask":
        schema = {"type": "object", "properties": {"name": {"type": "string"}}}
        send(id="q", method="elicitation/create", params={"message": "Who?", "requestedSchema": schema})
        answer(id, json.dumps(json.loads(sys.stdin.readline())["result"]))
    elif name == "visit":
        params = {"mode": "url", "message": "Go", "url": "https://x.invalid", "elicitationId": "e1"}
        send(id="q", method="elicitation/create", params=params)
        answer(id, json.dumps(json.loads(sys.stdin.readline())["result"]))
    else:
        sys.exit(1)


print("not JSON: a reader has to skip it", flush=True)
for line in sys.stdin:
    message = json.loads(line)
    match message["method"]:
        case "initialize":
            info = {"name": "small", "version": "0.1"}
            result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
            send(id=message["id"], result=result)
        case "tools/list":
            tools = [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]
            if not (message.get("params") or {}).get("cursor"):
                send(id=message["id"], result={"tools": tools[:2], "nextCursor": "2"})
            else:
                send(id=message["id"], result={"tools": tools[2:]})
        case "tools/call":
            call(message["id"], message["params"]["name"], message["params"]["arguments"])
        case "resources/read":
            contents = [{"uri": message["params"]["uri"], "text": "<p>hi</p>"}]
            send(id=message["id"], result={"contents": contents})
        case _:
            pass
