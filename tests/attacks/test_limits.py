"""Where something has no room any more, or is more than can be taken: errors are typed, nobody waits for
nothing, and nothing is left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from bridle.handlers import Policy, hook
from bridle.protocol import Peer
from bridle.session import Session
from bridle.wire import MalformedLine, OversizedMessage
from tests.session.other_end import OtherEnd

# Questions that cannot be read.

DEEP = 1000
"""More than a decoder takes."""


def nested(depth: int) -> str:
    return '{"a":' * depth + "1" + "}" * depth


def ask(id: str, input: str, *, order: tuple[str, ...] = ("type", "request_id", "request")) -> bytes:
    """A permission request as a line, with its fields in an order."""
    fields = {
        "type": '"control_request"',
        "request_id": id,
        "request": f'{{"subtype":"can_use_tool","tool_name":"Bash","request_id":"inner","input":{input}}}',
    }
    return ("{" + ",".join(f'"{name}":{fields[name]}' for name in order) + "}\n").encode()


def refused(peer: Peer) -> list[Any]:
    """The ids that were answered with an error."""
    answers = [json.loads(line)["response"] for line in peer.take_output().splitlines()]
    assert all(answer["subtype"] == "error" and answer["error"] for answer in answers)
    return [answer["request_id"] for answer in answers]


@pytest.mark.parametrize("depth", [*range(900, 1100, 7), 5000, 100_000])
def test_a_question_of_any_depth_is_handed_over_or_refused(depth: int) -> None:
    peer = Peer("host")
    events = peer.receive(ask('"deep"', nested(depth)))
    assert len(events) == 1
    if isinstance(events[0], MalformedLine):
        assert refused(peer) == ["deep"]
    else:
        assert list(peer.open) == ["deep"]


@pytest.mark.parametrize("order", [("request_id", "request", "type"), ("type", "request", "request_id")])
def test_the_id_is_found_wherever_it_stands(order: tuple[str, ...]) -> None:
    peer = Peer("host")
    peer.receive(ask('"behind"', nested(DEEP), order=order))
    peer.receive(ask("7", nested(DEEP), order=order))
    assert refused(peer) == ["behind", 7]


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"control_request","request_id":"cut","request":{"subtype":"can_use_tool","inp\n{"type":"keep_alive"}\n',
        b'{"type":"control_request","request_id":"cut","request":{"subtype":tru}}\n',
        b'{"request_id":"cut","type":"control_request","request":{"a":1}]}\n{"type":"keep_alive"}\n',
    ],
    ids=["cut off", "no JSON", "wrong bracket"],
)
def test_a_damaged_question_is_refused(line: bytes) -> None:
    peer = Peer("host")
    peer.receive(line)
    assert refused(peer) == ["cut"]


@pytest.mark.parametrize("order", [("type", "request_id", "request"), ("type", "request", "request_id")])
def test_a_question_over_the_size_limit_is_refused(order: tuple[str, ...]) -> None:
    peer = Peer("host", limit=100_000)
    (event,) = peer.receive(ask('"large"', '"' + "x" * 200_000 + '"', order=order))
    assert isinstance(event, OversizedMessage)
    assert refused(peer) == ["large"]


@pytest.mark.parametrize(
    "line",
    [
        # What only speaks of a request is none.
        '{"type":"assistant","text":{"type":"control_request","request_id":"no"},"deep":'
        + nested(DEEP)
        + "}",
        '{"text":"\\"type\\":\\"control_request\\",\\"request_id\\":\\"no\\"","deep":' + nested(DEEP) + "}",
        '{"type":"control_request","request":' + nested(DEEP) + "}",
        '{"type":"control_request","request_id":"","request":' + nested(DEEP) + "}",
        '{"type":"control_request","request_id":{"a":"no"},"request":' + nested(DEEP) + "}",
        'noise "type":"control_request","request_id":"no"',
    ],
)
def test_what_is_no_question_or_has_no_id_is_not_answered(line: str) -> None:
    peer = Peer("host")
    peer.receive(line.encode() + b"\n")
    assert refused(peer) == []


def test_a_question_is_refused_once() -> None:
    peer = Peer("host")
    peer.receive(ask('"deep"', nested(DEEP)) * 2)
    assert refused(peer) == ["deep"]


@pytest.mark.anyio
@pytest.mark.parametrize("depth", [100, 300, 500, 900, 980, DEEP])
async def test_a_session_answers_a_deep_question_and_goes_on(depth: int, tmp_path: Path) -> None:
    """Whatever it takes to look at one, to write it down or to hand it to a function."""
    agent = OtherEnd()
    rules = Policy.of({"deny": "Bash(rm *)"}, {"allow": "*"})
    fields: Any = {"permission": rules, "hooks": [look], "trace": tmp_path / "trace.jsonl"}
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(agent.open)
            async with Session(transport=agent.transport, **fields) as session:
                await agent.write(ask('"deep"', nested(depth)))
                assert (await answer_to("deep", agent))["subtype"] in ("success", "error")
                hook = f'{{"subtype":"hook_callback","callback_id":"hook_0","input":{nested(depth)}}}'
                await agent.write(
                    f'{{"type":"control_request","request_id":"h","request":{hook}}}\n'.encode()
                )
                assert (await answer_to("h", agent))["subtype"] in ("success", "error")
                tasks.start_soon(agent.reply)
                assert (await session.ask("Are you there?")).text == "done"


@hook("PreToolUse")
async def look(event: Any) -> None:
    assert event


async def answer_to(id: str, agent: OtherEnd) -> Any:
    while True:
        for line in (await agent._own.receive()).splitlines():
            frame = json.loads(line)
            if frame["type"] == "control_response" and frame["response"]["request_id"] == id:
                return frame["response"]
