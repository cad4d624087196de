"""The spans of every recording of the real program, as trees in `trees.txt`.

python -m tests.telemetry.trees         # write them anew, to be looked at as a diff
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextvars import copy_context
from pathlib import Path
from typing import Any, cast

import anyio

from outrider.errors import ProcessExited
from outrider.handlers import ElicitationHandled, HookHandled, PermissionHandled, ToolHandled
from outrider.options import Options
from outrider.protocol import Peer, RequestReceived
from outrider.session import Session
from outrider.session._connection.connection import _REQUEST_EVENTS
from outrider.session._connection.conversation import Conversation
from outrider.session._streams.routing import Routing
from outrider.session._streams.stream import Flow
from outrider.session._streams.turn_state import TurnState
from outrider.wire import KeepAlive, TranscriptMirror
from tests import tapes
from tests.telemetry.recorder import Recorder

FILE = Path(__file__).with_name("trees.txt")


class Played:
    """A run of the program, played to what follows a session: prompts, messages and requests in order."""

    def __init__(self, records: list[tapes.Recorded], **fields: Any) -> None:
        self.recorder = Recorder(**fields)
        self._conversation = Conversation(Options(telemetry=self.recorder.telemetry), Session._over)
        follower = self._conversation.follower
        assert follower is not None
        self._follower = follower
        self._flow = Flow(1 << 30, 1 << 30)
        self.routing = Routing(self._flow, can_be_asked=True)
        self.routing.follower = follower
        self._peer = Peer("host")
        self._now = 0.0
        self._context = copy_context()
        self._asked: dict[str, tuple[Any, Any]] = {}
        with follower.starting():
            pass
        for record in records:
            self._now += 1
            if isinstance(record.frame, dict):
                (self._send if record.direction == "host->cli" else self._receive)(record)
        self.routing.receive_eof(ProcessExited(1), self._now)

    def _send(self, record: tapes.Recorded) -> None:
        frame = record.frame
        if record.direction == "host->cli" and frame.get("type") == "user":
            state = TurnState(self._flow, "result", self._now)
            self.routing.begin(state)
            self._context = copy_context()
            self._follower.turn_began(state, self._context)
            self._follower.prompt_sent(state, frame)
            self.routing.sent(state, str(frame.get("uuid") or self._now), self._now)
        elif frame.get("type") == "control_response":
            reply = frame["response"]
            asked = self._asked.pop(str(reply.get("request_id")), None)
            if asked is not None:
                context, request = asked
                context.run(self._follower.put, _handled(request, reply))

    def _receive(self, record: tapes.Recorded) -> None:
        if record.direction != "cli->host":
            return
        for event in self._peer.receive(record.line + b"\n"):
            if isinstance(event, RequestReceived):
                context = self._context.copy()
                request = cast("Any", event.request)
                context.run(self._follower.answering, request)
                self._asked[str(event.id)] = context, request
            elif not isinstance(event, (*_REQUEST_EVENTS, KeepAlive, TranscriptMirror)):
                self.routing.receive([cast("Any", event)], {type(event)}, 1, self._now)


def _handled(ask: Any, reply: Any) -> Any:
    """What is told of a request that got this reply at once."""
    is_refused, given = reply["subtype"] == "error", reply.get("response")
    # Some replies of the recordings are nonsense on purpose.
    answer: dict[str, Any] = given if isinstance(given, dict) else {}
    common: dict[str, Any] = {"seconds": 0.0, "outcome": "failed" if is_refused else "answered"}
    if ask.subtype == "can_use_tool":
        decision = "deny" if is_refused else answer.get("behavior", "ask")
        facts = {"tool_name": ask.tool_name, "input": ask.input, "decision": decision, "reason": ""}
        return PermissionHandled(tool_use_id=ask.tool_use_id, **facts, **common)
    if ask.subtype == "hook_callback":
        event = str(getattr(ask.input, "hook_event_name", ""))
        return HookHandled(tool_use_id=ask.tool_use_id, event=event, name="hook", answer=answer, **common)
    if ask.subtype != "mcp_message":
        return ElicitationHandled(server=ask.subtype, action=answer.get("action", "cancel"), **common)
    params = ask.message.get("params") or {}
    meta = params.get("_meta") or {}
    return ToolHandled(
        tool_use_id=meta.get("claudecode/toolUseId"),
        server=ask.server_name,
        name=str(params.get("name")),
        arguments={},
        is_error=bool((answer.get("mcp_response", {}).get("result") or {}).get("isError")),
        **common,
    )


@functools.cache
def played(name: str) -> list[Played]:
    """The runs of a recording, each played."""

    async def play() -> list[Played]:
        return [Played(run) for run in tapes.runs(name)]

    return anyio.run(play)


def trees(name: str) -> str:
    """What comes of a recording."""
    found = [one.recorder.tree() for one in played(name)]
    shown = [tree for tree in found if tree.count("\n")]
    return "\n--\n".join(shown)


def read() -> dict[str, str]:
    """The trees by recording, as they should be."""
    parts = FILE.read_text(encoding="utf-8").split("\n=== ")
    return dict(part.removeprefix("=== ").rstrip("\n").split("\n", 1) for part in parts if "\n" in part)


def _written() -> Iterator[str]:
    for name in tapes.NAMES:
        if tree := trees(name):
            yield f"=== {name}\n{tree}\n"


if __name__ == "__main__":
    FILE.write_text("\n".join(_written()), encoding="utf-8")
