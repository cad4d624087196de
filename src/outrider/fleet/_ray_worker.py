"""Runs one attempt in a worker of the cluster, on a line to the driver.

What an attempt does is known to `_attempting`; where it runs is Ray's decision.
"""

from __future__ import annotations

import os
import pickle
import platform
import tempfile
import traceback
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import anyio
import msgspec

from outrider.errors import OutriderError
from outrider.fleet._attempting import attempt_here
from outrider.fleet._budget_account import Left
from outrider.fleet._engine import Assignment, Attempted, Note, Shared
from outrider.fleet._ray_line import FarGate, FarLedger, Line, Share, line_here
from outrider.fleet._restart import Restart
from outrider.fleet._retry import Retry

if TYPE_CHECKING:
    from outrider.fleet._ledger import Ledger

__all__ = ["Order", "Reply", "run_order"]

_TRACES: Final = 64 * 1024 * 1024
"""Bytes of traces that are sent back at most. What is left stays on the worker, and goes with its folder."""


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is sent: an attempt, and what it shares with others."""

    work: Assignment
    retry: Retry | None
    restart: Restart | None
    left: Left | None
    """What is left of the run's budget; None if there is none."""
    budget_name: str = ""
    budget_grace: float = 10.0
    has_gate: bool = False
    has_ledger: bool = False


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker sends back."""

    attempted: Attempted | None = None
    """None if nobody wanted it any more, or it failed."""
    traces: tuple[bytes, ...] = ()
    failure: str = ""
    """What went wrong that is no outcome of a task."""


def run_order(desk: object, key: str, order: bytes) -> bytes:
    """Make the attempt. Ray calls this, in a process that does nothing else meanwhile.

    To cancel the task interrupts the process, which cancels the attempt: its agent is ended first.
    """
    try:
        reply = anyio.run(_run, desk, key, order)
    except Exception:  # noqa: BLE001 - Ray's own form of it cannot be read everywhere
        reply = Reply(failure=traceback.format_exc())
    return pickle.dumps(reply)


async def _run(desk: object, key: str, packed: bytes) -> Reply:
    order = cast("Order", pickle.loads(packed))
    left = order.left
    share = None if left is None else Share(left, name=order.budget_name, grace=order.budget_grace)
    line = Line(desk, key, share)
    line_here.set(line)
    line.note(Note(worker=_worker()))
    shared = Shared(
        budget=None if share is None else share.budget,
        gate=FarGate(line) if order.has_gate else None,
        retry=order.retry,
        restart=order.restart,
        ledger=cast("Ledger", FarLedger(line)) if order.has_ledger else None,
    )
    with tempfile.TemporaryDirectory(prefix="outrider-traces-") as folder:
        work = _traced(order.work, folder)
        attempted: Attempted | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(line.hear, tasks.cancel_scope)
            tasks.start_soon(line.report)
            attempted = await attempt_here(work, shared, line.note)
            tasks.cancel_scope.cancel()
        if attempted is None:
            return Reply()
        traces = _traces(Path(folder))
    from ray.exceptions import RayError

    # If the desk is gone, the driver knows.
    with suppress(RayError):
        await line.end()
    return Reply(attempted=_sendable(attempted), traces=traces)


def _worker() -> str:
    """The place, for people."""
    import ray

    context: Any = ray.get_runtime_context()
    return f"{platform.node()}:{os.getpid()} (node {str(context.get_node_id())[:8]})"


def _traced(work: Assignment, folder: str) -> Assignment:
    """The attempt with its trace in a folder here; the driver knows where it belongs."""
    if work.options.trace is None:
        return work
    trace = msgspec.structs.replace(work.options.trace, path=f"{folder}/")
    return msgspec.structs.replace(work, options=work.options.replace(trace=trace))


def _traces(folder: Path) -> tuple[bytes, ...]:
    found: list[bytes] = []
    for path in sorted(folder.iterdir()):
        if sum(map(len, found)) + path.stat().st_size <= _TRACES:
            found.append(path.read_bytes())
    return tuple(found)


def _sendable(attempted: Attempted) -> Attempted:
    """Without what is for the process alone that made it."""
    error = attempted.error
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - the facts of an error, or its cause, may be anything
        error = OutriderError(str(error))
    return msgspec.structs.replace(attempted, result=None, error=error)
