"""When turns and runs are over, from made-up orders of events and from recordings of the real program."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from outrider.protocol import (
    MESSAGE_TABLE,
    RUN_TABLE,
    MessageMoved,
    MessageState,
    RunMoved,
    RunState,
    TurnBegan,
    TurnEnded,
    TurnEvent,
    Turns,
)
from outrider.wire import ResultMessage, frame_from_wire
from tests import tapes
from tests.cases import every_case

Frame = dict[str, Any]


def result(*uuids: str, origin: str | None = None, **more: Any) -> Frame:
    frame: Frame = {"type": "result", "subtype": "success", "is_error": False, **more}
    frame |= {"duration_ms": 1, "duration_api_ms": 1, "num_turns": 1, "session_id": "s"}
    if uuids:
        frame["user_message_uuids"] = list(uuids)
    if origin:
        frame["origin"] = {"kind": origin}
    return frame


def state(name: str) -> Frame:
    return {"type": "system", "subtype": "session_state_changed", "state": name}


def init(*uuids: str) -> Frame:
    return {"type": "system", "subtype": "init", **({"user_message_uuids": list(uuids)} if uuids else {})}


def lifecycle(uuid: str, name: str) -> Frame:
    return {"type": "command_lifecycle", "command_uuid": uuid, "state": name}


def task(id: str, status: str | None = None, kind: str = "local_agent") -> Frame:
    if status is None:
        return {"type": "system", "subtype": "task_started", "task_id": id, "task_type": kind}
    return {"type": "system", "subtype": "task_updated", "task_id": id, "patch": {"status": status}}


ANSWER: Frame = {"type": "assistant", "message": {"content": [], "model": "m"}}
PARTIAL: Frame = {"type": "stream_event", "uuid": "u", "session_id": "s", "event": {}}
OF_SUBAGENT: Frame = {**ANSWER, "parent_tool_use_id": "toolu_1"}


def follow(turns: Turns, *frames: Frame) -> list[TurnEvent]:
    return [event for frame in frames for event in turns.receive(frame_from_wire(frame))]


def ended(events: list[TurnEvent]) -> list[list[str]]:
    return [event.uuids for event in events if isinstance(event, TurnEnded)]


# One message.


def test_a_turn_from_prompt_to_idle() -> None:
    turns = Turns()
    assert turns.sent("a") == [RunMoved(RunState.BUSY)]
    assert follow(turns, state("running"), lifecycle("a", "queued"), lifecycle("a", "started")) == [
        MessageMoved("a", MessageState.QUEUED),
        MessageMoved("a", MessageState.STARTED),
    ]
    assert follow(turns, init("a")) == [TurnBegan(["a"])]
    assert follow(turns, ANSWER, PARTIAL) == []
    done = frame_from_wire(result("a"))
    assert isinstance(done, ResultMessage)
    assert turns.receive(done) == [
        MessageMoved("a", MessageState.ANSWERED),
        TurnEnded(done, ["a"]),
        RunMoved(RunState.SETTLING),
    ]
    assert follow(turns, lifecycle("a", "completed")) == []
    assert follow(turns, state("idle")) == [RunMoved(RunState.OVER)]
    assert turns.is_over
    assert turns.outstanding == []
    assert turns.state_of("a") is MessageState.ANSWERED
    turns.forget("a")
    assert turns.state_of("a") is None


def test_an_agent_that_reports_no_state_is_done_with_its_result() -> None:
    turns = Turns()
    turns.sent("a")
    assert follow(turns, init("a"), ANSWER, result("a"))[-1] == RunMoved(RunState.OVER)


def test_a_result_without_uuids_answers_the_turn_in_progress() -> None:
    turns = Turns()
    turns.sent("a")
    turns.sent("b")
    assert ended(follow(turns, lifecycle("a", "started"), result())) == [["a"]]
    assert turns.outstanding == ["b"]


def test_results_without_uuids_of_an_agent_that_names_no_prompts_are_taken_in_order() -> None:
    turns = Turns()
    turns.sent("a")
    turns.sent("b")
    frames = (init(), ANSWER, result())
    assert ended(follow(turns, *frames, *frames, *frames)) == [["a"], ["b"], []]


@every_case(
    "shown",
    [
        [lifecycle("a", "queued")],
        [lifecycle("x", "started"), lifecycle("a", "queued")],
        [init("x"), result("x")],
        [result(user_message_uuid="x")],
    ],
)
def test_a_result_without_uuids_answers_no_prompt_that_waits_for_an_agent_that_names_them(
    shown: list[Frame],
) -> None:
    turns = Turns()
    turns.sent("a")
    follow(turns, *shown)
    # The rest of a turn that somebody else began.
    assert ended(follow(turns, init(), ANSWER, result())) == [[]]
    assert turns.outstanding == ["a"]
    mine = [lifecycle("a", "started"), init("a"), ANSWER, result("a")]
    assert ended(follow(turns, *mine)) == [["a"]]


def test_a_message_of_somebody_else_that_is_started_begins_a_turn_of_the_agents_own() -> None:
    turns = Turns()
    assert follow(turns, lifecycle("x", "started")) == [TurnBegan([]), RunMoved(RunState.BUSY)]
    turns.sent("a")
    assert ended(follow(turns, lifecycle("a", "queued"), result(), lifecycle("x", "completed"))) == [[]]
    assert follow(turns, lifecycle("a", "started")) == [MessageMoved("a", MessageState.STARTED)]


def test_a_message_of_somebody_else_within_a_turn_begins_none() -> None:
    turns = Turns()
    turns.sent("a")
    follow(turns, init("a"))
    assert follow(turns, lifecycle("x", "started")) == []


def test_a_result_without_uuids_answers_all_that_its_turn_took() -> None:
    turns = Turns()
    for uuid in "abcd":
        turns.sent(uuid)
    follow(turns, lifecycle("b", "started"), lifecycle("c", "completed"))
    assert [sorted(uuids) for uuids in ended(follow(turns, result()))] == [["b", "c"]]
    # Nothing has begun of what is left.
    assert ended(follow(turns, result(origin="human"), result())) == [[], []]
    assert turns.outstanding == ["a", "d"]


def test_a_result_may_name_its_message_in_the_singular() -> None:
    turns = Turns()
    turns.sent("a")
    turns.sent("b")
    assert ended(follow(turns, result(user_message_uuid="b"))) == [["b"]]


def test_a_second_result_for_a_message_answers_nobody() -> None:
    turns = Turns()
    turns.sent("a")
    turns.sent("b")
    assert ended(follow(turns, init("a"), result("a"), result("a"))) == [["a"], []]
    assert turns.outstanding == ["b"]


def test_a_beginning_names_and_moves_our_messages_only() -> None:
    turns = Turns()
    turns.sent("a")
    turns.sent("b")
    assert follow(turns, init("x", "a")) == [MessageMoved("a", MessageState.STARTED), TurnBegan(["a"])]
    assert turns.state_of("b") is MessageState.SENT
    follow(turns, result("a"))


@every_case(
    "names, expected",
    [
        ("started", MessageState.STARTED),
        ("completed", MessageState.CONSUMED),
        ("queued completed", MessageState.CONSUMED),
        ("queued cancelled", MessageState.WITHDRAWN),
        ("started cancelled", MessageState.WITHDRAWN),
        # Out of order: what is known already stays.
        ("started queued", MessageState.STARTED),
        ("completed queued started cancelled", MessageState.CONSUMED),
        ("cancelled completed", MessageState.WITHDRAWN),
    ],
)
def test_lifecycle_frames_move_a_message_forward_only(names: str, expected: MessageState) -> None:
    turns = Turns()
    turns.sent("a")
    follow(turns, *(lifecycle("a", name) for name in names.split()))
    assert turns.state_of("a") is expected
    if not MESSAGE_TABLE.is_final(expected):
        assert ended(follow(turns, result("a"))) == [["a"]]


def test_a_queued_message_may_be_answered_without_having_been_started() -> None:
    turns = Turns()
    turns.sent("a")
    assert ended(follow(turns, lifecycle("a", "queued"), result("a"))) == [["a"]]


def test_one_result_for_thousands_of_messages_is_cheap() -> None:
    uuids = [f"uuid-{number}" for number in range(20_000)]
    turns = Turns()
    for uuid in uuids:
        turns.sent(uuid)
    done = frame_from_wire(result(*reversed(uuids)))
    before = time.process_time()
    assert ended(turns.receive(done)) == [uuids]
    # To look each of them up in a list takes minutes.
    assert time.process_time() - before < 5


def test_a_result_before_anything_began_answers_the_oldest_message() -> None:
    turns = Turns()
    turns.sent("a")
    failed = result(subtype="error_during_execution", is_error=True, startup_failure_reason="cwd_unavailable")
    assert ended(follow(turns, failed)) == [["a"]]


def test_a_result_that_names_messages_of_somebody_else_answers_none() -> None:
    turns = Turns()
    turns.sent("a")
    assert ended(follow(turns, result("x"))) == [[]]
    assert turns.outstanding == ["a"]
    assert not turns.is_over


# Several messages.


def test_messages_taken_together_share_a_result() -> None:
    turns = Turns()
    for uuid in "abc":
        turns.sent(uuid)
    events = follow(turns, init("a"), result("a"), init("b", "c"), result("b", "c"))
    assert ended(events) == [["a"], ["b", "c"]]


def test_a_message_that_was_started_with_others_and_is_not_named_shares_their_result() -> None:
    turns = Turns()
    uuids = [f"u{number}" for number in range(100)]
    for uuid in uuids:
        turns.sent(uuid)
    # The agent names 64 at most.
    named = [*uuids[:63], uuids[-1]]
    began = follow(turns, *(lifecycle(uuid, "started") for uuid in uuids), init(*named))
    assert [sorted(event.uuids) for event in began if isinstance(event, TurnBegan)] == [sorted(uuids)]
    turns.sent("later")
    assert ended(follow(turns, result(*named))) == [uuids]
    assert turns.outstanding == ["later"]


def test_a_message_folded_into_a_running_turn_shares_its_result() -> None:
    turns = Turns()
    turns.sent("a")
    follow(turns, lifecycle("a", "started"), init("a"), ANSWER)
    turns.sent("b")
    follow(turns, lifecycle("b", "queued"), lifecycle("b", "started"), lifecycle("b", "completed"))
    assert turns.state_of("b") is MessageState.CONSUMED
    # Also where the result names the first alone.
    assert ended(follow(turns, result("a"))) == [["a", "b"]]


def test_the_run_is_not_over_while_a_message_waits_in_the_queue() -> None:
    turns = Turns()
    turns.sent("a")
    turns.sent("b")
    follow(turns, state("running"), init("a"), result("a"), state("idle"))
    assert not turns.is_over
    follow(turns, state("running"), init("b"), result("b"), state("idle"))
    assert turns.is_over


@pytest.mark.parametrize("by_lifecycle", [True, False])
def test_a_withdrawn_message_needs_no_result(by_lifecycle: bool) -> None:
    turns = Turns()
    turns.sent("a")
    turns.sent("b")
    follow(turns, init("a"), lifecycle("b", "queued"))
    events = follow(turns, lifecycle("b", "cancelled")) if by_lifecycle else turns.withdrawn(["b", "zzz"])
    assert events == [MessageMoved("b", MessageState.WITHDRAWN)]
    assert ended(follow(turns, result("a"))) == [["a"]]
    assert turns.is_over


@pytest.mark.parametrize("by_lifecycle", [True, False])
def test_withdrawing_the_only_message_ends_the_run(by_lifecycle: bool) -> None:
    turns = Turns()
    turns.sent("a")
    events = follow(turns, lifecycle("a", "cancelled")) if by_lifecycle else turns.withdrawn(["a"])
    assert events == [MessageMoved("a", MessageState.WITHDRAWN), RunMoved(RunState.OVER)]


def test_an_interrupted_turn_is_answered_and_its_late_cancel_says_nothing_new() -> None:
    turns = Turns()
    turns.sent("a")
    stopped = result("a", subtype="error_during_execution", is_error=True, terminal_reason="aborted_tools")
    assert ended(follow(turns, init("a"), stopped, lifecycle("a", "cancelled"))) == [["a"]]
    assert turns.state_of("a") is MessageState.ANSWERED


# Work in the background.


def test_background_work_adds_results_that_answer_nobody() -> None:
    turns = Turns()
    turns.sent("a")
    follow(turns, state("running"), init("a"), task("t"), result("a"))
    assert turns.run is RunState.SETTLING
    turns.sent("b")
    assert ended(
        follow(turns, task("t", "completed"), init(), ANSWER, result(origin="task-notification"))
    ) == [[]]
    assert turns.outstanding == ["b"]
    assert ended(follow(turns, init("b"), result("b"), state("idle"))) == [["b"]]
    assert turns.is_over


def test_a_background_agent_holds_the_run_also_where_no_state_is_reported() -> None:
    turns = Turns()
    turns.sent("a")
    follow(turns, init("a"), task("t"), result("a"))
    assert turns.run is RunState.SETTLING
    follow(turns, OF_SUBAGENT, task("t", "completed"))
    # The model is told next: its turn is still to come.
    assert turns.run is RunState.SETTLING
    follow(turns, init(), ANSWER, result(origin="task-notification"))
    assert turns.is_over


def test_a_task_that_was_stopped_has_no_turn_to_wait_for() -> None:
    turns = Turns()
    turns.sent("a")
    follow(turns, init("a"), task("t"), result("a"), task("t", "killed"))
    assert turns.is_over


def test_a_task_may_end_by_its_notification_and_in_no_other_way() -> None:
    turns = Turns()
    turns.sent("a")
    follow(turns, init("a"), task("t"), task("u"), result("a"), task("t", "running"), task("z", "killed"))
    assert turns.tasks == {"t", "u"}
    notice = {"type": "system", "subtype": "task_notification", "status": "stopped"}
    follow(turns, {**notice, "task_id": "t"})
    assert turns.run is RunState.SETTLING
    follow(turns, {**notice, "task_id": "u"})
    assert turns.is_over


@pytest.mark.parametrize("status", ["completed", "failed"])
def test_a_task_that_ended_by_itself_is_told_to_the_model_in_a_turn(status: str) -> None:
    turns = Turns()
    turns.sent("a")
    follow(turns, init("a"), task("t"), result("a"))
    assert follow(turns, task("t", status)) == []


@pytest.mark.parametrize("frame", [init(), ANSWER])
def test_a_turn_in_progress_keeps_the_run_busy_whatever_ends_beside_it(frame: Frame) -> None:
    turns = Turns()
    turns.sent("a")
    follow(turns, init("a"), task("t"), result("a"), frame)
    assert follow(turns, task("t", "killed")) == []
    assert turns.run is RunState.BUSY
    assert follow(turns, result(origin="task-notification"))[-1] == RunMoved(RunState.OVER)


def test_an_idle_agent_has_no_turn_and_no_task_left() -> None:
    turns = Turns()
    turns.sent("a")
    # As after /clear: neither the task nor the turn that it began has an end.
    follow(turns, state("running"), init("a"), task("t"), result("a"), init())
    assert turns.run is RunState.BUSY
    assert follow(turns, state("idle")) == [RunMoved(RunState.OVER)]
    assert turns.tasks == set()


def test_an_idle_agent_is_at_no_message_but_may_still_owe_it() -> None:
    turns = Turns()
    turns.sent("a")
    assert follow(turns, init("a"), state("idle"))[2:] == []
    assert (turns.outstanding, turns.run) == (["a"], RunState.BUSY)


def test_a_state_of_tomorrow_does_not_end_a_turn() -> None:
    turns = Turns()
    turns.sent("a")
    follow(turns, state("running"), init("a"), result("a"), init())
    assert follow(turns, state("dreaming")) == []
    assert turns.run is RunState.BUSY


def test_a_background_shell_does_not_hold_the_run() -> None:
    silent = Turns()
    silent.sent("a")
    follow(silent, init("a"), task("b", kind="local_bash"), result("a"))
    assert silent.is_over
    turns = Turns()
    turns.sent("a")
    follow(turns, state("running"), init("a"), task("b", kind="local_bash"), result("a"), state("idle"))
    assert turns.is_over
    # It wakes the agent when it ends: that opens the run again.
    assert follow(turns, state("running")) == [RunMoved(RunState.SETTLING)]
    assert follow(turns, init()) == [TurnBegan([]), RunMoved(RunState.BUSY)]
    follow(turns, ANSWER, result(origin="task-notification"), state("idle"))
    assert turns.is_over


@pytest.mark.parametrize("frame", [ANSWER, PARTIAL, init()])
def test_work_on_the_main_thread_opens_a_run_again(frame: Frame) -> None:
    turns = Turns()
    turns.sent("a")
    follow(turns, init("a"), result("a"))
    assert turns.is_over
    follow(turns, frame)
    assert turns.run is RunState.BUSY


def test_work_of_a_subagent_does_not_open_a_run_again() -> None:
    turns = Turns()
    turns.sent("a")
    follow(turns, init("a"), result("a"), OF_SUBAGENT)
    assert turns.is_over


# Questions.


def test_an_open_question_stops_the_clock() -> None:
    turns = Turns()
    turns.sent("a")
    follow(turns, state("running"), init("a"), state("requires_action"))
    assert turns.run is RunState.ASKING
    assert turns.sent("b") == []
    assert follow(turns, state("running")) == [RunMoved(RunState.BUSY)]


def test_an_open_question_stays_open_while_output_comes() -> None:
    turns = Turns()
    turns.sent("a")
    # The first question comes before the later frames of the same message.
    assert follow(turns, state("running"), init("a"), state("requires_action"), ANSWER, PARTIAL)[-1] == (
        RunMoved(RunState.ASKING)
    )


@pytest.mark.parametrize(
    "frame", [task("u", "completed"), task("z", "killed"), lifecycle("a", "completed"), result("x")]
)
def test_an_open_question_in_the_background_is_not_closed_by_what_ends_beside_it(frame: Frame) -> None:
    turns = Turns()
    turns.sent("a")
    follow(turns, state("running"), init("a"), task("t"), task("u"), result("a"), state("requires_action"))
    follow(turns, frame)
    assert turns.run is RunState.ASKING
    assert follow(turns, state("running")) == [RunMoved(RunState.SETTLING)]


def test_a_result_beside_an_open_question_does_not_end_the_run() -> None:
    turns = Turns()
    turns.sent("a")
    follow(turns, state("running"), init("a"), task("t"), state("requires_action"), result("a"))
    assert turns.run is RunState.ASKING
    assert turns.outstanding == []


@pytest.mark.parametrize("is_waiting", [True, False])
def test_after_a_question_the_run_is_busy_again_if_anything_is_owed(is_waiting: bool) -> None:
    turns = Turns()
    turns.sent("a")
    follow(turns, state("running"), init("a"), result("a"), state("idle"))
    turns.sent("b") if is_waiting else follow(turns, init())
    assert follow(turns, state("requires_action"), state("running"))[-1] == RunMoved(RunState.BUSY)


def test_a_run_settles_again_after_a_question_of_background_work() -> None:
    turns = Turns()
    turns.sent("a")
    follow(turns, state("running"), init("a"), result("a"), state("requires_action"))
    assert follow(turns, state("running")) == [RunMoved(RunState.SETTLING)]


def test_a_uuid_that_was_used_is_not_waited_for() -> None:
    turns = Turns()
    turns.sent("a")
    follow(turns, init("a"), result("a"))
    assert turns.sent("a") == []
    assert turns.is_over


# The end.


def test_what_has_no_result_at_the_end_is_lost() -> None:
    turns = Turns()
    for uuid in "abc":
        turns.sent(uuid)
    follow(turns, init("a"), result("a"), init("b"), task("t"))
    assert turns.receive_eof() == [
        MessageMoved("b", MessageState.LOST),
        MessageMoved("c", MessageState.LOST),
        RunMoved(RunState.CLOSED),
    ]
    assert turns.receive_eof() == []
    assert turns.is_over
    assert turns.tasks == set()
    assert turns.sent("d") == [MessageMoved("d", MessageState.LOST)]


def test_messages_that_mean_nothing_for_turns_change_nothing() -> None:
    turns = Turns()
    frames: list[Frame] = [
        {"type": "new"},
        {"type": "keep_alive"},
        lifecycle("zzz", "completed"),
        lifecycle("a", "hm"),
    ]
    assert follow(turns, *frames, task("zzz", "completed")) == []
    assert turns.receive(None) == []
    assert turns.run is RunState.QUIET


# The recordings.


@every_case("name", tapes.NAMES)
def test_every_message_of_every_recording_ends_as_the_agent_says(name: str) -> None:
    for run in tapes.runs(name):
        turns = Turns()
        sent: set[str] = set()
        claimed: dict[str, str] = {}
        answered: list[str] = []
        for record in run:
            if not isinstance(record.frame, dict):
                continue
            frame: Frame = record.frame
            if record.direction == "host->cli" and frame.get("type") == "user" and "uuid" in frame:
                sent.add(frame["uuid"])
                turns.sent(frame["uuid"])
            if record.direction != "cli->host":
                continue
            for event in turns.receive(frame_from_wire(frame)):
                if isinstance(event, TurnEnded):
                    answered += event.uuids
            if frame["type"] == "command_lifecycle":
                claimed[frame["command_uuid"]] = frame["state"]
            if frame["type"] == "result" and "user_message_uuids" in frame:
                assert set(frame["user_message_uuids"]) & sent <= set(answered)
        assert len(answered) == len(set(answered))
        for uuid in sent:
            if claimed.get(uuid) == "completed":
                assert turns.state_of(uuid) is MessageState.ANSWERED
            elif claimed.get(uuid) == "cancelled":
                assert turns.state_of(uuid) in (MessageState.ANSWERED, MessageState.WITHDRAWN)
        turns.receive_eof()
        assert turns.outstanding == []


@pytest.mark.parametrize(
    "name, states",
    [
        ("01-oneshot-client", ["busy", "settling", "over", "closed"]),
        ("04-can-use-tool-allow", ["busy", "asking", "busy", "settling", "over", "closed"]),
        # The first answer, the background agent, its turn; then the same again, stopped.
        ("11-subagent-background", ["busy", "settling", "busy", "settling", "over"] * 2 + ["closed"]),
    ],
)
def test_the_run_of_a_recording(name: str, states: list[str]) -> None:
    (run,) = tapes.runs(name)
    turns = Turns()
    seen: list[str] = []
    for number, record in enumerate(run):
        if not isinstance(record.frame, dict):
            continue
        if record.direction == "host->cli" and record.frame["type"] == "user":
            events = turns.sent(record.frame.get("uuid", str(number)))
        elif record.direction == "cli->host":
            events = turns.receive(frame_from_wire(record.frame))
        else:
            continue
        seen += [event.state.value for event in events if isinstance(event, RunMoved)]
    seen += [event.state.value for event in turns.receive_eof() if isinstance(event, RunMoved)]
    assert seen == states


# Any order of events.

UUIDS = st.sampled_from("abcd")
FRAMES = st.one_of(
    st.builds(
        lambda uuids, origin: result(*uuids, origin=origin),
        st.sets(UUIDS),
        st.sampled_from([None, "human", "task-notification"]),
    ),
    st.builds(lambda uuids: init(*uuids), st.sets(UUIDS)),
    st.builds(lifecycle, UUIDS, st.sampled_from(["queued", "started", "completed", "cancelled", "other"])),
    st.builds(state, st.sampled_from(["running", "requires_action", "idle", "other"])),
    st.builds(task, UUIDS, st.sampled_from([None, "running", "completed", "killed"])),
    st.sampled_from([ANSWER, PARTIAL, OF_SUBAGENT]),
)


class Life(RuleBasedStateMachine):
    """Whatever happens, in whatever order: each message ends at most once, and none is left at the end."""

    sent = Bundle("sent")

    def __init__(self) -> None:
        super().__init__()
        self.turns = Turns()
        self.endings: dict[str, MessageState] = {}
        self.known: set[str] = set()

    def note(self, events: list[TurnEvent]) -> None:
        for event in events:
            if isinstance(event, MessageMoved) and MESSAGE_TABLE.is_final(event.state):
                assert event.uuid not in self.endings
                self.endings[event.uuid] = event.state
            if isinstance(event, TurnEnded):
                assert all(self.endings[uuid] is MessageState.ANSWERED for uuid in event.uuids)

    @rule(target=sent, uuid=UUIDS)
    def send(self, uuid: str) -> str:
        self.known.add(uuid)
        self.note(self.turns.sent(uuid))
        return uuid

    @rule(frame=FRAMES)
    def receive(self, frame: Frame) -> None:
        self.note(self.turns.receive(frame_from_wire(frame)))

    @rule(uuid=consumes(sent))
    def withdraw(self, uuid: str) -> None:
        self.note(self.turns.withdrawn([uuid]))

    @rule()
    def end(self) -> None:
        self.note(self.turns.receive_eof())
        assert self.known == set(self.endings)

    @invariant()
    def what_has_not_ended_is_outstanding(self) -> None:
        assert set(self.turns.outstanding) == self.known - set(self.endings)

    @rule()
    def end_a_turn_that_names_nobody(self) -> None:
        """It ends no message that only waits, once the agent names messages."""
        follow(self.turns, lifecycle("somebody else's", "queued"))
        waiting = (MessageState.SENT, MessageState.QUEUED)
        before = {uuid for uuid in self.turns.outstanding if self.turns.state_of(uuid) in waiting}
        self.note(self.turns.receive(frame_from_wire(result())))
        assert before <= set(self.turns.outstanding)

    @invariant()
    def a_run_that_is_over_owes_nothing(self) -> None:
        if self.turns.run is RunState.OVER:
            assert not self.turns.outstanding


TestLife = Life.TestCase


@given(frames=st.lists(FRAMES, max_size=15))
def test_a_run_can_always_come_to_its_end(frames: list[Frame]) -> None:
    turns = Turns()
    turns.sent("a")
    follow(turns, *frames)
    outstanding = turns.outstanding
    follow(turns, *(task(name, "killed") for name in "abcd"), result(*outstanding), state("idle"))
    assert turns.is_over


# The tables.


@pytest.mark.parametrize("table", [MESSAGE_TABLE, RUN_TABLE])
def test_every_state_is_reached_and_every_target_has_a_row(table: Any) -> None:
    targets = {target for row in table.transitions.values() for target in row.values()}
    assert targets <= set(table.transitions)
    assert set(table.transitions) - targets <= {table.initial}


@pytest.mark.parametrize("table", [MESSAGE_TABLE, RUN_TABLE])
def test_the_diagrams_in_the_documentation_are_those_of_the_tables(table: Any) -> None:
    text = (Path(__file__).parents[2] / "docs" / "internals" / "parts.md").read_text(encoding="utf-8")
    diagrams = re.findall(r"```mermaid\n(stateDiagram.*?)\n```", text, re.DOTALL)
    assert table.diagram() in diagrams
