"""Requests in both directions: each ends exactly once, whatever comes late, twice, wrong or not at all."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from outrider.errors import MessageInvalid, TransportClosed, UsageError
from outrider.protocol import (
    Event,
    Peer,
    RequestAnswered,
    RequestLost,
    RequestReceived,
    RequestRefused,
    RequestWithdrawn,
)
from outrider.wire import MalformedLine, PromptSuggestionMessage, RequestId, Value
from outrider.wire.control import (
    CanUseTool,
    DialogResult,
    Elicitation,
    ElicitationResult,
    GenericRequest,
    Initialize,
    Interrupt,
    McpReply,
    ModelSet,
    SetModel,
    UnknownAsk,
)
from outrider.wire.hooks import AsyncHookOutput, HookOutput
from outrider.wire.permissions import PermissionResultAllow, PermissionResultDeny, PermissionUpdate
from tests.cases import every_case

Frame = dict[str, Any]


def line(frame: object) -> bytes:
    return json.dumps(frame).encode() + b"\n"


def sent(peer: Peer) -> list[Frame]:
    return [json.loads(text) for text in peer.take_output().splitlines()]


def ask(id: object = "r1", subtype: str = "can_use_tool", **fields: object) -> bytes:
    return line({"type": "control_request", "request_id": id, "request": {"subtype": subtype, **fields}})


def answer(id: object, response: object = None, **more: object) -> bytes:
    outcome = {"subtype": "success", "request_id": id, "response": response, **more}
    return line({"type": "control_response", "response": outcome})


def error(id: object, text: str, **more: object) -> bytes:
    outcome = {"subtype": "error", "request_id": id, "error": text, **more}
    return line({"type": "control_response", "response": outcome})


# Our requests.


@pytest.mark.requirement("A9")
@pytest.mark.requirement("D5")
def test_a_request_and_its_answer() -> None:
    peer = Peer()
    id = peer.request(SetModel("opus"))
    assert sent(peer) == [
        {"type": "control_request", "request_id": id, "request": {"subtype": "set_model", "model": "opus"}}
    ]
    assert list(peer.pending) == [id]
    (event,) = peer.receive(answer(id, {"model": "claude-opus"}))
    assert isinstance(event, RequestAnswered)
    assert (event.id, event.request, event.payload) == (id, SetModel("opus"), {"model": "claude-opus"})
    assert SetModel("opus").read_answer(event.payload).model == "claude-opus"
    assert peer.pending == {}


@pytest.mark.requirement("D5")
def test_a_refused_request_says_why() -> None:
    peer = Peer()
    id = peer.request(SetModel("no"))
    assert peer.receive(error(id, "Model 'no' not found", error_code="not_found")) == [
        RequestRefused(id, SetModel("no"), "Model 'no' not found", "not_found")
    ]
    id = peer.request(Interrupt())
    assert peer.receive(
        line({"type": "control_response", "response": {"subtype": "error", "request_id": id}})
    ) == [RequestRefused(id, Interrupt(), "no reason given")]


@pytest.mark.requirement("D5")
def test_ids_are_as_documented_and_unique_under_concurrency() -> None:
    peer = Peer()
    with ThreadPoolExecutor(8) as pool:
        ids = list(pool.map(lambda _: peer.request(Interrupt()), range(400)))
    assert len(set(ids)) == 400
    assert all(re.fullmatch(r"req_\d+_[0-9a-f]{8}", str(id)) for id in ids)
    assert re.fullmatch(r"req_1_[0-9a-f]{8}", str(Peer().request(Interrupt())))


def test_ids_can_be_chosen() -> None:
    assert Peer(make_id=lambda number: f"mine-{number}").request(Interrupt()) == "mine-1"


@pytest.mark.requirement("D5")
def test_answers_come_in_any_order() -> None:
    peer = Peer()
    first, second = peer.request(Interrupt()), peer.request("get_settings")
    events = peer.receive(answer(second, {"a": 1}) + answer(first))
    assert [event.id for event in events if isinstance(event, RequestAnswered)] == [second, first]


@pytest.mark.requirement("D5")
@pytest.mark.parametrize(
    "late",
    [
        pytest.param(answer, id="answered twice"),
        pytest.param(lambda id: error(id, "x"), id="refused after the answer"),
        pytest.param(lambda id: answer("req_9_ffffffff"), id="unknown id"),
        pytest.param(lambda id: answer(None), id="null id"),
        pytest.param(
            lambda id: line({"type": "control_response", "response": {"subtype": "success"}}), id="no id"
        ),
        pytest.param(lambda id: line({"type": "control_response"}), id="no response"),
        pytest.param(lambda id: line({"type": "control_response", "response": 5}), id="response is a number"),
        pytest.param(
            lambda id: line({"type": "control_cancel_request", "request_id": id}), id="cancel of our own"
        ),
        pytest.param(lambda id: line({"type": "control_cancel_request"}), id="cancel without id"),
    ],
)
def test_what_belongs_to_no_open_request_is_dropped_with_a_log_line(
    late: Any, caplog: pytest.LogCaptureFixture
) -> None:
    peer = Peer()
    id = peer.request(Interrupt())
    peer.receive(answer(id))
    with caplog.at_level("DEBUG", "outrider.wire"):
        assert peer.receive(late(id)) == []
    assert "dropped" in caplog.text


@pytest.mark.requirement("D5")
def test_a_cancelled_request_is_withdrawn_and_its_late_answer_dropped() -> None:
    peer = Peer()
    id = peer.request(Interrupt())
    peer.take_output()
    assert peer.cancel(id)
    assert sent(peer) == [{"type": "control_cancel_request", "request_id": id}]
    assert peer.pending == {}
    assert peer.receive(answer(id)) == []
    assert not peer.cancel(id)
    assert sent(peer) == []


def test_an_answer_that_is_no_object_is_an_empty_one() -> None:
    peer = Peer()
    id = peer.request(Interrupt())
    assert peer.receive(answer(id, "just text")) == [RequestAnswered(id, Interrupt(), {})]


def test_a_request_that_has_no_class() -> None:
    peer = Peer()
    id = peer.request("brand_new", level=3)
    assert sent(peer)[0]["request"] == {"subtype": "brand_new", "level": 3}
    (event,) = peer.receive(answer(id, {"x": 1}))
    assert isinstance(event, RequestAnswered)
    assert event.request == GenericRequest("brand_new", {"level": 3})


def test_a_request_that_cannot_be_encoded_leaves_nothing_behind() -> None:
    peer = Peer()
    with pytest.raises(MessageInvalid, match="level"):
        peer.request("brand_new", level=float("nan"))
    with pytest.raises(MessageInvalid, match="key"):
        peer.request("brand_new", level={None: 1})
    assert peer.pending == {}
    assert peer.take_output() == b""


def test_fields_beside_a_typed_request_are_not_dropped_without_a_word() -> None:
    peer = Peer()
    with pytest.raises(UsageError, match="SetModel has fields of its own: set model there"):
        peer.request(SetModel(), model="opus")
    assert peer.take_output() == b""


# Their requests.


def test_a_request_of_the_agent_is_typed_and_answered() -> None:
    peer = Peer()
    (event,) = peer.receive(ask("r1", tool_name="Bash", input={"command": "ls"}, tool_use_id="t"))
    assert isinstance(event, RequestReceived)
    assert isinstance(event.request, CanUseTool)
    assert (event.id, event.request.tool_name) == ("r1", "Bash")
    assert list(peer.open) == ["r1"]
    assert peer.respond("r1", {"behavior": "allow"})
    assert sent(peer) == [
        {
            "type": "control_response",
            "response": {"subtype": "success", "request_id": "r1", "response": {"behavior": "allow"}},
        }
    ]
    assert peer.open == {}
    assert not peer.respond("r1", {"behavior": "deny"})
    assert not peer.refuse("r1", "no")
    assert sent(peer) == []


@every_case(
    "answer, expected",
    [
        (PermissionResultAllow(), {"behavior": "allow"}),
        (PermissionResultDeny(message="no"), {"behavior": "deny", "message": "no"}),
        (
            PermissionResultAllow(updated_permissions=[PermissionUpdate("setMode", mode="plan")]),
            {
                "behavior": "allow",
                "updatedPermissions": [{"type": "setMode", "destination": "session", "mode": "plan"}],
            },
        ),
        (HookOutput(continue_=False), {"continue": False}),
        (AsyncHookOutput(), {"async": True}),
        (DialogResult(), {"behavior": "completed", "result": None}),
        (ElicitationResult("accept", {"a": 1}), {"action": "accept", "content": {"a": 1}}),
        (McpReply({"jsonrpc": "2.0", "id": 1}), {"mcp_response": {"jsonrpc": "2.0", "id": 1}}),
        (ModelSet(model="m"), {"model": "m"}),
        (None, "absent"),
    ],
)
def test_an_answer_may_be_a_typed_value_or_nothing(answer: Value | None, expected: object) -> None:
    peer = Peer()
    peer.receive(ask("r1"))
    peer.respond("r1", answer)
    assert sent(peer)[0]["response"].get("response", "absent") == expected


def test_both_ends_read_answers_typed() -> None:
    host, agent = Peer("host"), Peer("agent")
    id = agent.request(CanUseTool("Bash", {}, "t"))
    host.receive(agent.take_output())
    host.respond(id, PermissionResultDeny(message="no"))
    (event,) = agent.receive(host.take_output())
    assert isinstance(event, RequestAnswered)
    assert event.request.read_answer(event.payload) == PermissionResultDeny(message="no")


def test_an_answer_that_cannot_be_encoded_leaves_the_request_open() -> None:
    peer = Peer()
    peer.receive(ask("r1"))
    with pytest.raises(MessageInvalid):
        peer.respond("r1", {"x": object()})
    assert peer.refuse("r1", "could not answer")
    assert len(sent(peer)) == 1


def test_a_refusal_carries_text_and_code() -> None:
    peer = Peer()
    peer.receive(ask("r1"))
    assert peer.refuse("r1", "nobody is here", "no_one")
    assert sent(peer)[0]["response"] == {
        "subtype": "error",
        "request_id": "r1",
        "error": "nobody is here",
        "error_code": "no_one",
    }
    peer.receive(ask("r2"))
    with pytest.raises(UsageError, match="Not A Code"):
        peer.refuse("r2", "x", "Not A Code")


@pytest.mark.parametrize("id", ["x", 7, 0, -1.5, 2**70, "req_1_00000000"])
def test_ids_of_the_other_side_are_echoed_whatever_they_are(id: RequestId) -> None:
    peer = Peer()
    peer.receive(ask(id))
    peer.respond(id)
    assert sent(peer)[0]["response"]["request_id"] == id


def test_a_withdrawn_request_is_never_answered() -> None:
    peer = Peer()
    peer.receive(ask("r1"))
    assert peer.receive(line({"type": "control_cancel_request", "request_id": "r1"})) == [
        RequestWithdrawn("r1", CanUseTool("", {}, ""))
    ]
    assert not peer.respond("r1", {"behavior": "allow"})
    assert sent(peer) == []


def test_a_cancel_is_looked_up_among_their_requests_not_ours() -> None:
    peer = Peer(make_id=lambda number: "same")
    peer.request(Interrupt())
    peer.receive(ask("same"))
    (event,) = peer.receive(line({"type": "control_cancel_request", "request_id": "same"}))
    assert isinstance(event, RequestWithdrawn)
    assert list(peer.pending) == ["same"]


@pytest.mark.parametrize("is_answered", [True, False])
def test_a_repeated_request_is_handed_over_once(is_answered: bool) -> None:
    peer = Peer()
    assert len(peer.receive(ask("r1"))) == 1
    if is_answered:
        peer.respond("r1")
    assert peer.receive(ask("r1")) == []


def test_repeated_requests_are_remembered_for_a_while_only() -> None:
    peer = Peer()
    for number in range(3000):
        peer.receive(ask(number))
        peer.respond(number)
    assert peer.receive(ask(2999)) == []
    assert len(peer.receive(ask(0))) == 1
    assert len(peer._finished) <= 1024


def test_an_unknown_request_is_refused_at_once() -> None:
    peer = Peer()
    assert peer.receive(ask("r1", "brand_new")) == []
    assert sent(peer)[0]["response"] == {
        "subtype": "error",
        "request_id": "r1",
        "error": "Unsupported control request subtype: brand_new",
        "error_code": "unsupported_request",
    }
    assert peer.open == {}


def test_what_nobody_serves_is_refused_and_what_somebody_serves_handed_over() -> None:
    peer = Peer(serves=["elicitation", "brand_new"])
    assert peer.receive(ask("r1")) == []
    assert sent(peer)[0]["response"]["error_code"] == "unsupported_request"
    elicitation, new = peer.receive(ask("r2", "elicitation") + ask("r3", "brand_new", x=1))
    assert isinstance(elicitation, RequestReceived)
    assert isinstance(elicitation.request, Elicitation)
    assert isinstance(new, RequestReceived)
    assert isinstance(new.request, UnknownAsk)


def test_a_cancel_of_what_was_answered_or_never_asked_means_nothing() -> None:
    peer = Peer()
    peer.receive(ask("r1"))
    peer.respond("r1")
    peer.take_output()
    for id in ("r1", "r2", 3):
        assert peer.receive(line({"type": "control_cancel_request", "request_id": id})) == []
    # A cancel that overtook its request is not held against it: the asker would wait for ever.
    assert len(peer.receive(ask("r2"))) == 1
    assert peer.take_output() == b""


def test_a_request_too_deep_to_be_read_whole_does_not_end_the_stream() -> None:
    deep = b"[" * 700 + b'"\\ud800"' + b"]" * 700
    bad = ask("r1", input="?").replace(b'"?"', deep)
    *_, last = Peer().receive(bad + ask("r2"))
    assert isinstance(last, RequestReceived)
    assert last.id == "r2"


def test_broadcasts_are_left_alone() -> None:
    peer = Peer()
    assert peer.receive(ask("r1", "remote_tools_probe")) == []
    assert peer.take_output() == b""
    assert peer.open == {}


@pytest.mark.parametrize(
    "frame",
    [
        {"type": "control_request", "request_id": "r1"},
        {"type": "control_request", "request_id": "r1", "request": None},
        {"type": "control_request", "request_id": "r1", "request": {"subtype": 5}},
    ],
)
def test_a_request_without_a_subtype_is_refused(frame: Frame) -> None:
    peer = Peer()
    assert peer.receive(line(frame)) == []
    assert sent(peer)[0]["response"] == {
        "subtype": "error",
        "request_id": "r1",
        "error": "control request without a subtype",
        "error_code": "invalid_request",
    }


def test_a_number_and_a_text_are_two_ids() -> None:
    peer = Peer()
    assert len(peer.receive(ask(7) + ask("7") + ask(7.5))) == 3
    assert peer.respond(7)
    assert list(peer.open) == ["7", 7.5]


@pytest.mark.parametrize(
    "frame",
    [
        {"request": {"subtype": "can_use_tool"}},
        {"request_id": None, "request": {}},
        {"request_id": ["r1"], "request": {"subtype": "can_use_tool"}},
        {"request_id": True, "request": {"subtype": "can_use_tool"}},
    ],
)
def test_a_request_without_an_id_cannot_be_answered(frame: Frame, caplog: pytest.LogCaptureFixture) -> None:
    peer = Peer()
    assert peer.receive(line({"type": "control_request", **frame})) == []
    assert peer.take_output() == b""
    assert "no id" in caplog.text


def test_requests_that_were_open_before_come_again_with_the_answer_to_initialize() -> None:
    peer = Peer()
    id = peer.request(Initialize())
    again = json.loads(ask("old", tool_name="Bash"))
    events = peer.receive(
        answer(
            id,
            {},
            pending_permission_requests=[again, again, "junk", 5, {"type": "keep_alive"}],
            pending_user_dialog_requests=[json.loads(ask("dialog", "request_user_dialog"))],
            pending_elicitation_requests=[json.loads(ask("question", "elicitation"))],
        )
    )
    assert [type(event) for event in events] == [RequestAnswered, *[RequestReceived] * 3]
    assert list(peer.open) == ["old", "dialog", "question"]
    assert len(peer.receive(answer(peer.request(Initialize()), {}))) == 1
    # With any other answer they mean nothing.
    other = peer.request(Interrupt())
    assert len(peer.receive(answer(other, {}, pending_permission_requests=[json.loads(ask("new"))]))) == 1


# Messages among them, and the end.


def test_messages_come_through_in_their_order() -> None:
    peer = Peer()
    id = peer.request(Interrupt())
    message = line({"type": "prompt_suggestion", "suggestion": "a"})
    events = peer.receive(message + answer(id) + b"noise\n" + ask("r1") + message)
    assert [type(event) for event in events] == [
        PromptSuggestionMessage,
        RequestAnswered,
        MalformedLine,
        RequestReceived,
        PromptSuggestionMessage,
    ]


def test_a_request_in_pieces() -> None:
    peer = Peer()
    data = ask("r1")
    events: list[Event] = []
    for index in range(len(data)):
        events += peer.receive(data[index : index + 1])
    assert len(events) == 1


@pytest.mark.requirement("D5")
def test_the_end_closes_every_open_request_at_once() -> None:
    peer = Peer()
    first, second = peer.request(Interrupt()), peer.request(SetModel())
    peer.receive(ask("r1") + b"half a li")
    noise, *events = peer.receive_eof()
    assert isinstance(noise, MalformedLine)
    assert events == [
        RequestLost(first, Interrupt()),
        RequestLost(second, SetModel()),
        RequestWithdrawn("r1", CanUseTool("", {}, ""), is_lost=True),
    ]
    assert (peer.pending, peer.open, peer.is_closed) == ({}, {}, True)
    assert peer.receive_eof() == []
    assert peer.respond("r1") is False
    assert peer.cancel(first) is False
    with pytest.raises(TransportClosed):
        peer.request(Interrupt())


def test_an_answer_without_a_newline_counts_at_the_end() -> None:
    peer = Peer()
    id = peer.request(Interrupt())
    peer.receive(answer(id).rstrip())
    (event,) = peer.receive_eof()
    assert isinstance(event, RequestAnswered)


def test_sending_adds_a_line() -> None:
    peer = Peer()
    peer.send({"type": "user", "message": {"role": "user", "content": "a\nb"}})
    output = peer.take_output()
    assert output.endswith(b"\n")
    assert output.count(b"\n") == 1
    assert peer.take_output() == b""


# Two ends of one connection.


def test_both_ends_are_the_same_class() -> None:
    host, agent = Peer("host"), Peer("agent")
    id = host.request(SetModel("opus"))
    (received,) = agent.receive(host.take_output())
    assert received == RequestReceived(id, SetModel("opus"))
    agent.respond(id, {"model": "claude-opus"})
    question = agent.request(CanUseTool("Bash", {"command": "ls"}, "toolu_1"))
    answered, asked = host.receive(agent.take_output())
    assert isinstance(answered, RequestAnswered)
    assert asked == RequestReceived(question, CanUseTool("Bash", {"command": "ls"}, "toolu_1"))


class Connection(RuleBasedStateMachine):
    """Two peers and a link that delays, cuts and repeats what they send: each request ends exactly once."""

    def __init__(self) -> None:
        super().__init__()
        self.peers = (Peer("host"), Peer("agent"))
        self.links: list[list[bytes]] = [[], []]
        self.asked: tuple[set[RequestId], ...] = (set(), set())
        self.ended: tuple[list[RequestId], ...] = ([], [])
        self.received: tuple[list[RequestId], ...] = ([], [])
        self.is_cut = [False, False]

    def collect(self, side: int) -> None:
        if output := self.peers[side].take_output():
            self.links[side].append(output)

    def note(self, side: int, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, RequestAnswered | RequestRefused | RequestLost):
                self.ended[side].append(event.id)
            elif isinstance(event, RequestReceived):
                self.received[side].append(event.id)
            else:
                assert isinstance(event, RequestWithdrawn | MalformedLine)

    @rule(side=st.integers(0, 1), known=st.booleans())
    def ask(self, side: int, known: bool) -> None:
        peer = self.peers[side]
        if peer.is_closed:
            with pytest.raises(TransportClosed):
                peer.request(Interrupt())
            return
        request: Any = (Interrupt() if side == 0 else CanUseTool("Bash", {}, "t")) if known else "brand_new"
        self.asked[side].add(peer.request(request))
        self.collect(side)

    @rule(side=st.integers(0, 1), data=st.data(), refuse=st.booleans())
    def answer(self, side: int, data: st.DataObject, refuse: bool) -> None:
        if not self.received[side]:
            return
        id = data.draw(st.sampled_from(self.received[side]))
        was_open = id in self.peers[side].open
        done = self.peers[side].refuse(id, "no") if refuse else self.peers[side].respond(id, {})
        assert done == was_open
        self.collect(side)

    @rule(side=st.integers(0, 1), data=st.data())
    def cancel(self, side: int, data: st.DataObject) -> None:
        if not self.asked[side]:
            return
        id = data.draw(st.sampled_from(sorted(map(str, self.asked[side]))))
        if self.peers[side].cancel(id):
            self.ended[side].append(id)
        self.collect(side)

    @rule(side=st.integers(0, 1), cut=st.integers(0, 200))
    def deliver(self, side: int, cut: int) -> None:
        """Bytes of one side reach the other, in pieces."""
        if self.links[side] and not self.peers[1 - side].is_closed:
            data = self.links[side].pop(0)
            self.note(
                1 - side, self.peers[1 - side].receive(data[:cut]) + self.peers[1 - side].receive(data[cut:])
            )
            self.collect(1 - side)

    @precondition(lambda self: any(self.links))
    @rule(side=st.integers(0, 1))
    def repeat(self, side: int) -> None:
        """The same bytes come twice."""
        if self.links[side]:
            self.links[side].insert(0, self.links[side][0])

    @rule(side=st.integers(0, 1))
    def end(self, side: int) -> None:
        self.note(side, self.peers[side].receive_eof())

    @invariant()
    def nothing_ends_twice_or_is_handed_over_twice(self) -> None:
        for side in (0, 1):
            assert len(self.ended[side]) == len(set(self.ended[side]))
            assert len(self.received[side]) == len(set(self.received[side]))
            assert set(self.ended[side]) | set(self.peers[side].pending) == self.asked[side]
            assert not set(self.ended[side]) & set(self.peers[side].pending)

    def teardown(self) -> None:
        for side in (0, 1):
            self.note(side, self.peers[side].receive_eof())
            assert sorted(map(str, self.ended[side])) == sorted(map(str, self.asked[side]))
            assert self.peers[side].open == {}


Connection.TestCase.settings = settings(stateful_step_count=40)
TestConnection = Connection.TestCase
