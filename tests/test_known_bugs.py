"""Bugs that other SDKs of this kind had, each as a test. Those of framing and of control so far."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tracemalloc
from typing import Any

import pytest

from outrider.protocol import Peer, RequestAnswered, RequestLost, RequestReceived, RequestWithdrawn
from outrider.wire import (
    Arrival,
    Framer,
    MalformedLine,
    OversizedMessage,
    PromptSuggestionMessage,
)
from outrider.wire.control import CanUseTool, GetSettings, Initialize, Interrupt
from outrider.wire.hooks import HookRegistration


def suggestion(text: str) -> bytes:
    return json.dumps({"type": "prompt_suggestion", "suggestion": text}, ensure_ascii=False).encode() + b"\n"


def texts(arrivals: list[Arrival]) -> list[str]:
    return [arrival.suggestion for arrival in arrivals if isinstance(arrival, PromptSuggestionMessage)]


# Framing.


def test_a_line_that_is_not_json_does_not_poison_what_follows() -> None:
    framer = Framer()
    arrivals = framer.feed(b"{not json\n[SandboxDebug] started\n" + suggestion("a") + suggestion("b"))
    assert texts(arrivals) == ["a", "b"]


def test_a_line_over_the_limit_is_not_held_before_the_limit_counts() -> None:
    framer = Framer(limit=100_000)
    tracemalloc.start()
    try:
        for _ in range(200):
            framer.feed(b"x" * 50_000)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_the_limit_does_not_count_all_output_together() -> None:
    framer = Framer(limit=200)
    arrivals = [arrival for _ in range(100) for arrival in framer.feed(suggestion("x" * 100))]
    assert len(texts(arrivals)) == 100


def test_white_space_at_the_seam_of_two_chunks_survives() -> None:
    data = suggestion("one  two")
    middle = data.index(b"  ") + 1
    framer = Framer()
    assert texts(framer.feed(data[:middle]) + framer.feed(data[middle:])) == ["one  two"]


def test_white_space_at_every_seam_of_a_long_line_survives() -> None:
    text = " ".join(["word"] * 40_000)
    data = suggestion(text)
    framer = Framer()
    arrivals = [
        arrival
        for start in range(0, len(data), 65536)
        for arrival in framer.feed(data[start : start + 65536])
    ]
    assert texts(arrivals) == [text]


def test_one_invalid_byte_does_not_end_the_stream() -> None:
    framer = Framer()
    assert texts(framer.feed(suggestion("a").replace(b"a", b"a\xff") + suggestion("b")))[-1] == "b"
    assert texts(framer.feed(b"\xff\n" + suggestion("c"))) == ["c"]


def test_the_locale_does_not_matter() -> None:
    code = (
        "import sys; from outrider.wire import Framer, encode;"
        "frame, = Framer().feed(sys.stdin.buffer.read());"
        "sys.stdout.buffer.write(encode(frame))"
    )
    environment = {**os.environ, "LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, input=suggestion("häß € 😀"), capture_output=True, check=True, env=environment
    )
    assert json.loads(done.stdout)["suggestion"] == "häß € 😀"


def test_a_line_end_of_two_bytes_may_be_cut_in_the_middle() -> None:
    framer = Framer()
    data = suggestion("a").rstrip() + b"\r\n" + suggestion("b").rstrip() + b"\r\n"
    cut = data.index(b"\n")
    assert texts(framer.feed(data[:cut]) + framer.feed(data[cut:])) == ["a", "b"]


def test_several_objects_on_one_line() -> None:
    assert texts(Framer().feed(suggestion("a").rstrip() + suggestion("b"))) == ["a", "b"]


def test_the_last_line_needs_no_newline() -> None:
    framer = Framer()
    assert framer.feed(suggestion("a").rstrip()) == []
    assert texts(framer.flush()) == ["a"]


def test_a_message_of_megabytes_does_not_kill_the_session() -> None:
    framer = Framer()
    assert texts(framer.feed(suggestion("x" * 3_000_000) + suggestion("b"))) == ["x" * 3_000_000, "b"]
    framer = Framer(limit=1_000_000)
    oversized, behind = framer.feed(suggestion("x" * 3_000_000) + suggestion("b"))
    assert isinstance(oversized, OversizedMessage)
    assert isinstance(behind, PromptSuggestionMessage)


# Control.


def line(frame: object) -> bytes:
    return json.dumps(frame).encode() + b"\n"


def answer(id: object, response: object = None) -> bytes:
    outcome = {"subtype": "success", "request_id": id, "response": response}
    return line({"type": "control_response", "response": outcome})


def ask(id: str, subtype: str = "can_use_tool", **fields: object) -> bytes:
    return line({"type": "control_request", "request_id": id, "request": {"subtype": subtype, **fields}})


def test_an_answer_may_come_before_anybody_waits_for_it() -> None:
    peer = Peer()
    id = peer.request(Interrupt())
    # Nothing was even taken for writing yet: the request is known from the moment it has an id.
    (event,) = peer.receive(answer(id))
    assert isinstance(event, RequestAnswered)


def test_requests_do_not_hang_when_the_stream_ends() -> None:
    peer = Peer()
    id = peer.request(GetSettings())
    assert peer.receive_eof() == [RequestLost(id, GetSettings())]


def test_a_handler_that_asks_the_agent_does_not_wait_for_itself() -> None:
    peer = Peer()
    (asked,) = peer.receive(ask("r1"))
    id = peer.request(GetSettings())  # from inside the handler of r1
    (answered,) = peer.receive(answer(id, {"effective": {}}))
    assert isinstance(asked, RequestReceived)
    assert isinstance(answered, RequestAnswered)
    assert peer.respond("r1", {"behavior": "allow"})


def test_parallel_requests_of_the_agent_are_open_side_by_side() -> None:
    peer = Peer()
    assert len(peer.receive(ask("r1") + ask("r2") + ask("r3"))) == 3
    assert [peer.respond(id) for id in ("r3", "r1", "r2")] == [True, True, True]
    written = [json.loads(text)["response"]["request_id"] for text in peer.take_output().splitlines()]
    assert written == ["r3", "r1", "r2"]


def test_an_unknown_request_of_the_agent_gets_a_reply() -> None:
    peer = Peer()
    assert peer.receive(ask("r1", "of_tomorrow")) == []
    assert json.loads(peer.take_output())["response"]["error_code"] == "unsupported_request"


def test_a_cancel_means_the_senders_own_request() -> None:
    peer = Peer()
    ours = peer.request(Interrupt())
    peer.receive(ask("r1"))
    (event,) = peer.receive(line({"type": "control_cancel_request", "request_id": "r1"}))
    assert isinstance(event, RequestWithdrawn)
    assert peer.receive(line({"type": "control_cancel_request", "request_id": ours})) == []
    assert list(peer.pending) == [ours]


def test_a_late_answer_leaves_nothing_behind() -> None:
    peer = Peer()
    id = peer.request(Interrupt())
    peer.cancel(id)  # as after a time-out
    assert peer.receive(answer(id)) == []
    assert peer.pending == {}


def test_a_request_that_is_answered_at_once_leaves_nothing_behind() -> None:
    peer = Peer()
    peer.receive(ask("r1"))
    peer.respond("r1")
    assert peer.open == {}


def test_the_time_limit_of_a_hook_reaches_the_agent() -> None:
    peer = Peer()
    peer.request(Initialize(hooks={"PreToolUse": [HookRegistration(["hook_0"], "Bash", timeout=5.0)]}))
    assert json.loads(peer.take_output())["request"]["hooks"] == {
        "PreToolUse": [{"hookCallbackIds": ["hook_0"], "matcher": "Bash", "timeout": 5.0}]
    }


def test_what_is_written_is_always_whole_lines() -> None:
    peer = Peer()
    peer.send({"type": "user", "message": {"role": "user", "content": "a\nb"}})
    peer.receive(ask("r1"))
    peer.respond("r1", {"text": "c\nd"})
    peer.request(GetSettings())
    output = peer.take_output()
    assert output.endswith(b"\n")
    assert [json.loads(text)["type"] for text in output.splitlines()] == [
        "user",
        "control_response",
        "control_request",
    ]


def test_a_permission_request_keeps_every_field() -> None:
    fields: dict[str, Any] = {
        "tool_name": "Bash",
        "input": {"command": "ls"},
        "tool_use_id": "t",
        "permission_suggestions": [{"type": "setMode", "mode": "plan", "destination": "session"}],
        "blocked_path": "/etc",
        "decision_reason": "why",
        "decision_reason_type": "rule",
        "title": "Run a command",
        "display_name": "Bash",
        "description": "Lists",
        "agent_id": "a1",
        "mcp_server": {"name": "s", "source": "sdk"},
        "matched_ask_rule": {"source": "user", "tool_name": "Bash"},
        "default_to_no": True,
        "requires_user_interaction": False,
    }
    (event,) = Peer().receive(ask("r1", **fields))
    assert isinstance(event, RequestReceived)
    assert isinstance(event.request, CanUseTool)
    assert {key: value for key, value in event.request.to_wire().items() if key != "subtype"} == fields


@pytest.mark.parametrize(
    "frame", [{"type": "control_request"}, {"type": "control_response"}, {"type": "transcript_mirror"}]
)
def test_a_control_frame_without_its_keys_does_not_end_the_stream(frame: object) -> None:
    peer = Peer()
    events = peer.receive(line(frame) + b"noise\n" + suggestion("a"))
    assert isinstance(events[-1], PromptSuggestionMessage)
    assert isinstance(events[-2], MalformedLine)
