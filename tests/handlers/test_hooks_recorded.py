"""What the agent told hooks, and what it was told, in recordings of it."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.handlers import Hook
from outrider.handlers._hooks.events import EVENTS
from outrider.wire.control import HookCallback
from outrider.wire.hooks import HOOK_INPUTS, HookInput
from tests import tapes
from tests.cases import every_case
from tests.handlers.hooking import Asker, Hooked, is_refusal

pytestmark = pytest.mark.anyio


def recorded(name: str) -> list[tuple[HookCallback, Any]]:
    """The calls of hooks in a recording, each with what the host answered; None if it did not, or failed."""
    answers = {
        frame["response"]["request_id"]: frame["response"].get("response")
        for frame in tapes.frames(name, "host->cli")
        if frame.get("type") == "control_response"
    }
    return [
        (HookCallback.from_wire(frame["request"]), answers.get(frame["request_id"]))
        for frame in tapes.frames(name, "cli->host")
        if frame.get("type") == "control_request" and frame["request"]["subtype"] == "hook_callback"
    ]


CALLS = {name: calls for name in tapes.NAMES if (calls := recorded(name))}

NOT_UNDERSTOOD: list[Any] = [
    {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "perhaps"}},
    {"hookSpecificOutput": {"hookEventName": "PostToolUse", "additionalContext": "x"}},
    {"nonsense": 1, "async_": True},
]
"""What was sent to see the agent refuse or overlook it."""


@every_case("name", CALLS)
async def test_a_hook_gets_what_the_agent_told(name: str) -> None:
    for call, _ in CALLS[name]:
        event, seen = call.input.hook_event_name, list[HookInput]()
        hooked = Hooked({event: [Hook(seen.append, event)]})
        call.callback_id = "hook_0"
        assert await hooked.hooks.answer(call, Asker()) == {}
        assert seen == [call.input]
        assert type(seen[0]) is HOOK_INPUTS[event]
        (report,) = hooked.reports
        assert report.tool_use_id == (call.tool_use_id if EVENTS[event].tool else None)
        assert not EVENTS[event].tool or str(call.tool_use_id).startswith("toolu_")


@every_case("name", CALLS)
async def test_what_the_agent_understood_goes_out_as_it_is_and_the_rest_does_not(name: str) -> None:
    for call, said in CALLS[name]:
        event = call.input.hook_event_name
        if not isinstance(said, dict):
            continue
        hooked = Hooked({event: [Hook(lambda _, said=said: said, event)]})
        call.callback_id = "hook_0"
        answer = await hooked.hooks.answer(call, Asker())
        if call.input.hook_event_name == "PreToolUse" and said in NOT_UNDERSTOOD[:2]:
            assert is_refusal(event, answer)
        elif said not in NOT_UNDERSTOOD:
            assert answer == said


def test_there_are_recordings_of_most_events() -> None:
    seen = {call.input.hook_event_name for calls in CALLS.values() for call, _ in calls}
    assert len(seen) == 27
