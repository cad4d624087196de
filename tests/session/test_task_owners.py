"""Work in the background: which turn it belongs to, and which turn hears of its end."""

from __future__ import annotations

from typing import Any, cast

import pytest

from outrider.session._streams.routing import TaskOwners
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


def began(owners: TaskOwners, id: str, owner: TurnState, **fields: Any) -> None:
    fields = {"task_type": "local_agent", "run_id": f"run of {id}", "tool_use_id": f"call of {id}"} | fields
    message = TaskStartedMessage(
        "task_started", {}, task_id=id, description="", uuid="", session_id="", **fields
    )
    owners.add(message, owners.owners_of(message) or [owner])


def ended(owners: TaskOwners, id: str, status: str = "completed") -> None:
    owners.update(TaskUpdatedMessage("task_updated", {}, task_id=id, patch={}, status=cast(Any, status)))
    told = cast(Any, "stopped" if status == "killed" else status)
    owners.update(
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
    owners = TaskOwners()
    began(owners, "a", A)
    began(owners, "b", B)
    ended(owners, "b")
    ended(owners, "a")
    assert (owners.is_owed_to(A), owners.is_owed_to(B)) == (True, True)
    assert owners.next_owners == [B]
    assert owners.take_reported(result("run of b")) == [B]
    assert (owners.is_owed_to(A), owners.is_owed_to(B)) == (True, False)
    # Without a name it is the next.
    assert [owners.take_reported(result()), owners.next_owners, owners.take_reported(result())] == [
        [A],
        None,
        None,
    ]


def test_a_result_covers_what_was_due_before_it() -> None:
    owners = TaskOwners()
    began(owners, "a", A)
    began(owners, "b", B)
    ended(owners, "a")
    ended(owners, "b")
    assert owners.take_reported(result("run of something else")) is None
    assert owners.take_reported(result("run of b")) == [B]
    assert not owners.is_owed_to(A)


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
    owners = TaskOwners()
    began(owners, "a", A, **fields)
    ended(owners, "a", status)
    assert (owners.next_owners == [A]) == is_due
    assert owners.is_owed_to(A) == is_owed


def test_a_call_that_is_moved_to_the_background_is_told_of() -> None:
    owners = TaskOwners()
    began(owners, "a", A, is_backgrounded=False)
    owners.update(TaskUpdatedMessage("task_updated", {}, task_id="a", patch={"is_backgrounded": True}))
    ended(owners, "a")
    assert owners.next_owners == [A]


def test_what_a_subagent_of_a_subagent_does_belongs_to_the_same_turn() -> None:
    owners = TaskOwners()
    began(owners, "a", A)
    began(owners, "inner", B, parent_task_id="a")
    said = AssistantMessage([], "m", parent_tool_use_id="call of inner")
    assert owners.owners_of(said) == [A]
    assert owners.owners_of(AssistantMessage([], "m")) == []
    ended(owners, "inner")
    assert owners.next_owners is None


def test_a_turn_that_is_done_with_hears_nothing_more() -> None:
    owners = TaskOwners()
    began(owners, "a", A)
    began(owners, "b", B)
    owners.forget(A)
    assert owners.owners_of(AssistantMessage([], "m", parent_tool_use_id="call of a")) == []
    ended(owners, "a")
    # Nobody hears of it, and in particular not the others.
    assert owners.next_owners == []
    assert owners.take_reported(result("run of a")) == []
    ended(owners, "b")
    owners.clear()
    assert not owners.is_owed_to(B)
