"""Owns how a run of the simulated program begins its session: a new one, or one that is gone on with.

Where sessions are kept is known to `_transcript`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from outrider.testing._simulator._invocation import StartFailed
from outrider.testing._simulator._structured import check_schema
from outrider.testing._simulator._usage import Tally

if TYPE_CHECKING:
    from outrider.testing._simulator._run import Run

__all__ = ["open_session"]


def open_session(run: Run) -> bool:
    """Begin. False if there is no such session, which was said. Raises `StartFailed` for other mistakes."""
    found = run.invocation
    if found.json_schema is not None and (wrong := check_schema(found.json_schema)) is not None:
        raise StartFailed(f"Error: --json-schema is not a valid JSON Schema: {wrong}")
    try:
        _begin(run)
    except FileExistsError as error:
        raise StartFailed(str(error)) from error
    except LookupError as error:
        text = str(error.args[0]) if error.args else str(error)
        run.complain(text)
        run.code = 1
        if found.resume is not None and text.endswith(f"session ID: {found.resume}"):
            run.session_id = found.resume
        _say_failed(run, text)
        return False
    run.transcript_path = run.transcript.path
    if found.name:
        run.set_title(found.name)
    return True


def _begin(run: Run) -> None:
    found = run.invocation
    resumed = found.resume
    if resumed is None and found.continue_conversation:
        resumed = run.transcript.latest()
    if resumed is None:
        run.transcript.open_new(run.session_id)
        return
    fork = run.session_id if found.fork_session else None
    run.session_id, run.messages = run.transcript.resume(resumed, at=found.resume_session_at, fork_as=fork)
    run.deferred.found(run.transcript.deferred)
    run.meter.earlier_usd = run.transcript.cost_so_far


def _say_failed(run: Run, text: str) -> None:
    run.say(
        {
            "type": "result",
            "subtype": "error_during_execution",
            "duration_ms": 0,
            "duration_api_ms": 0,
            "is_error": True,
            "num_turns": 0,
            "stop_reason": None,
            "total_cost_usd": 0,
            "usage": Tally().to_wire(),
            "modelUsage": {},
            "permission_denials": [],
            "errors": [text],
            "result_index": 0,
        }
    )
