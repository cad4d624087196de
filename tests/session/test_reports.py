"""Work in the background: which turn it belongs to, and which turn hears of its end."""

from __future__ import annotations

from typing import Any, cast

import pytest

from outrider.session._streams.routing import Reports
from outrider.session._streams.turn_state import TurnState
from outrider.wire import (
    AssistantMessage,
    ResultMessage,
    TaskNotificationMessage,
    TaskStartedMessage,
    TaskUpdatedMessage,
)

A, B = (cast("TurnState", object()) for _ in range(2))
"""Nothing of a turn is looked at, only which it is."""


def began(reports: Reports, id: str, owner: TurnState, **fields: Any) -> None:
    fields = {"task_type": "local_agent", "run_id": f"run of {id}", "tool_use_id": f"call of {id}"} | fields
    message = TaskStartedMessage(
        "task_started", {}, task_id=id, description="", uuid="", session_id="", **fields
    )
    reports.began(message, reports.owners_of(message) or [owner])


def ended(reports: Reports, id: str, status: str = "completed") -> None:
    reports.changed(TaskUpdatedMessage("task_updated", {}, task_id=id, patch={}, status=cast(Any, status)))
    told = cast(Any, "stopped" if status == "killed" else status)
    reports.changed(
        TaskNotificationMessage(
            "task_notification",
            {},
            task_id=id,
            status=told,
            output_file="",
            summary="",
            uuid="",
            session_id="",
        )
    )


def result(run: str | None = None) -> ResultMessage:
    origin = {"kind": "task-notification"} | ({} if run is None else {"runId": run})
    return ResultMessage("success", 0, 0, False, 1, "s", origin=cast(Any, origin))


def test_a_result_is_heard_by_the_turn_that_began_its_task() -> None:
    reports = Reports()
    began(reports, "a", A)
    began(reports, "b", B)
    ended(reports, "b")
    ended(reports, "a")
    assert (reports.is_owed_to(A), reports.is_owed_to(B)) == (True, True)
    assert reports.next_owners == [B]
    assert reports.told(result("run of b")) == [B]
    assert (reports.is_owed_to(A), reports.is_owed_to(B)) == (True, False)
    # Without a name it is the next.
    assert [reports.told(result()), reports.next_owners, reports.told(result())] == [[A], None, None]


def test_a_result_covers_what_was_due_before_it() -> None:
    reports = Reports()
    began(reports, "a", A)
    began(reports, "b", B)
    ended(reports, "a")
    ended(reports, "b")
    assert reports.told(result("run of something else")) is None
    assert reports.told(result("run of b")) == [B]
    assert not reports.is_owed_to(A)


@pytest.mark.parametrize(
    "fields, status, is_due, is_owed",
    [
        pytest.param({}, "completed", True, True, id="subagent"),
        pytest.param({}, "killed", True, True, id="subagent stopped"),
        pytest.param({"is_backgrounded": False}, "completed", False, False, id="waited for"),
        pytest.param({"task_type": "local_bash"}, "failed", True, False, id="command"),
        pytest.param({"task_type": "local_bash"}, "killed", False, False, id="command stopped"),
    ],
)
def test_what_is_told_to_the_model(fields: Any, status: str, is_due: bool, is_owed: bool) -> None:
    reports = Reports()
    began(reports, "a", A, **fields)
    ended(reports, "a", status)
    assert (reports.next_owners == [A]) == is_due
    assert reports.is_owed_to(A) == is_owed


def test_a_call_that_is_moved_to_the_background_is_told_of() -> None:
    reports = Reports()
    began(reports, "a", A, is_backgrounded=False)
    reports.changed(TaskUpdatedMessage("task_updated", {}, task_id="a", patch={"is_backgrounded": True}))
    ended(reports, "a")
    assert reports.next_owners == [A]


def test_what_a_subagent_of_a_subagent_does_belongs_to_the_same_turn() -> None:
    reports = Reports()
    began(reports, "a", A)
    began(reports, "inner", B, parent_task_id="a")
    said = AssistantMessage([], "m", parent_tool_use_id="call of inner")
    assert reports.owners_of(said) == [A]
    assert reports.owners_of(AssistantMessage([], "m")) == []
    ended(reports, "inner")
    assert reports.next_owners is None


def test_a_turn_that_is_done_with_hears_nothing_more() -> None:
    reports = Reports()
    began(reports, "a", A)
    began(reports, "b", B)
    reports.forget(A)
    assert reports.owners_of(AssistantMessage([], "m", parent_tool_use_id="call of a")) == []
    ended(reports, "a")
    # Nobody hears of it, and in particular not the others.
    assert reports.next_owners == []
    assert reports.told(result("run of a")) == []
    ended(reports, "b")
    reports.clear()
    assert not reports.is_owed_to(B)
