"""Owns the calls of tools in one message of the model: their order, who carries them out, their results.

Whether one may run is decided in `permissions`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Literal, cast
from uuid import uuid4

import anyio
import msgspec

from outrider.testing._simulator import frames
from outrider.testing._simulator.permissions.permissions import Denied
from outrider.testing._simulator.world import Outcome, ToolCall, no_such_tool
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from outrider.testing._simulator.host.hooks import Verdict
    from outrider.testing._simulator.model_loop import Talk
    from outrider.testing._simulator.run import Run

__all__ = ["REJECTED", "Calls", "reminder"]

REJECTED: Final = (
    "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was a file "
    "edit, the new_string was NOT written to the file). STOP what you are doing and wait for the user to "
    "tell you how to proceed."
)

_PARALLEL: Final = frozenset(("Agent", "Read", "Glob", "Grep", "WebFetch", "WebSearch"))


class _Pending:
    """A call that has begun or waits for others."""

    def __init__(self, call: ToolCall, *, is_parallel: bool) -> None:
        self.call = call
        self.is_parallel = is_parallel
        self.state: Literal["waiting", "running", "done"] = "waiting"
        self.result: JsonObject | None = None
        """The block for the model."""


class _Made(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a call, and what is written with its result."""

    outcome: Outcome
    meta: JsonObject | None = None
    before: tuple[JsonObject, ...] = ()
    after: tuple[JsonObject, ...] = ()


class Calls:
    """The calls of one message. Those that only read run side by side, the others one by one."""

    def __init__(self, run: Run, talk: Talk, tasks: TaskGroup) -> None:
        self._run, self._talk, self._tasks = run, talk, tasks
        self._pending: list[_Pending] = []
        self._moved = anyio.Event()
        self.stop_reason: str | None = None
        """Set when a hook wants the turn to end after these."""
        self.deferred: ToolCall | None = None
        self.is_interrupted = False
        """Whether the user said no, and that the turn is to end."""
        self.notes: list[str] = []
        """What hooks tell the model."""

    def __bool__(self) -> bool:
        return bool(self._pending)

    def start(self, call: ToolCall) -> None:
        spec = self._talk.spec(call.name)
        hints = spec.annotations if spec is not None else {}
        is_parallel = call.name in _PARALLEL or hints.get("readOnlyHint") is True
        self._pending.append(_Pending(call, is_parallel=is_parallel))
        self._advance()

    async def wait(self) -> list[JsonObject]:
        """Wait for all of them; gives their results in the order of the calls."""
        while any(pending.state != "done" for pending in self._pending) and not self.is_interrupted:
            self._moved = anyio.Event()
            await self._moved.wait()
        if self.is_interrupted:
            self.abort()
        elif self._pending:
            await self._tell_batch()
        return [pending.result for pending in self._pending if pending.result is not None]

    def abort(self) -> list[JsonObject]:
        """Answer those that have no result, because the user ends the turn."""
        for pending in self._pending:
            if pending.result is None and pending.call is not self.deferred:
                meta: JsonObject = {"id": pending.call.id, "non_execution_kind": "user-rejected"}
                rejected = Outcome(content=REJECTED, is_error=True, detail="User rejected tool use")
                self._finish(pending, _Made(outcome=rejected, meta=meta))
        return [pending.result for pending in self._pending if pending.result is not None]

    def _advance(self) -> None:
        for pending in self._pending:
            running = [other for other in self._pending if other.state == "running"]
            if pending.state != "waiting":
                continue
            if running and not (pending.is_parallel and all(other.is_parallel for other in running)):
                break
            pending.state = "running"
            self._tasks.start_soon(self._carry_out, pending, name=f"simulated {pending.call.name}")

    async def _carry_out(self, pending: _Pending) -> None:
        made = await self._made(pending.call)
        if pending.call is self.deferred:
            pending.state = "done"
        else:
            self._finish(pending, made)
        self._advance()
        self._moved.set()

    async def _made(self, call: ToolCall) -> _Made:
        """What becomes of a call."""
        run, talk = self._run, self._talk
        if (unusable := self._unusable(call)) is not None:
            return _Made(outcome=unusable)
        if call.name == "StructuredOutput":
            decision: JsonObject = {"decision": "accept", "source": "config"}
            meta: JsonObject = {"id": call.id, "permission_decision": decision}
            return _Made(outcome=talk.take_output(call), meta=meta)
        verdict = await run.permissions.decide(call)
        self.notes += verdict.reminders
        if verdict.stop_reason is not None:
            self.stop_reason = verdict.stop_reason
        if isinstance(verdict, Denied):
            if verdict.deferred:
                self.deferred = call
                run.deferred.note(call)
            self.is_interrupted = self.is_interrupted or verdict.interrupt
            detail = verdict.detail or f"Error: {verdict.message}"
            denied = Outcome(content=verdict.message, is_error=True, detail=detail)
            return _Made(outcome=denied, meta=verdict.meta, before=verdict.notices)
        allowed = msgspec.structs.replace(call, input=verdict.input)
        began = time.monotonic()
        outcome = await self._perform(allowed)
        after = await self._tell_hooks(allowed, outcome, int((time.monotonic() - began) * 1000))
        if after.updated_output is not None:
            outcome = _replaced(outcome, after.updated_output, is_server=run.mcp.owns(call.name))
        return _Made(outcome=outcome, meta=verdict.meta, before=verdict.notices, after=after.notices)

    def _unusable(self, call: ToolCall) -> Outcome | None:
        """What the program refuses before it asks anybody."""
        run = self._run
        if run.tools.owns(call.name):
            return run.tools.check(call)
        if self._talk.spec(call.name) is None and not run.mcp.owns(call.name):
            return no_such_tool(call.name)
        return None

    async def _perform(self, call: ToolCall) -> Outcome:
        run = self._run
        if (result := run.scripted_results.pop(call.id, None)) is not None:
            return Outcome(content=result, detail=result)
        if call.name == "Agent":
            return await run.subagents.perform(call, self._talk)
        for owner in (run.questions, run.tools):
            if owner.owns(call.name):
                return await owner.perform(call)
        return await run.mcp.call(call)

    async def _tell_hooks(self, call: ToolCall, outcome: Outcome, took: int) -> Verdict:
        fields: JsonObject = {"tool_name": call.name, "tool_input": call.input}
        if outcome.is_error:
            event = "PostToolUseFailure"
            error = outcome.content if isinstance(outcome.content, str) else _text(outcome.content)
            fields |= {"tool_use_id": call.id, "error": error, "is_interrupt": False, "duration_ms": took}
        else:
            event = "PostToolUse"
            fields |= {"tool_response": outcome.detail, "tool_use_id": call.id, "duration_ms": took}
        verdict = await self._run.hooks.fire(event, fields, call=call)
        self.notes += verdict.reminders
        if verdict.stop_reason is not None and not outcome.is_error:
            self.stop_reason = verdict.stop_reason
        return verdict

    async def _tell_batch(self) -> None:
        calls = [
            {
                "tool_name": pending.call.name,
                "tool_input": pending.call.input,
                "tool_use_id": pending.call.id,
                "tool_response": (pending.result or {}).get("content"),
            }
            for pending in self._pending
            if pending.result is not None
        ]
        if calls and self._talk.speaker.is_main:
            await self._run.hooks.fire("PostToolBatch", {"tool_calls": calls})

    def _finish(self, pending: _Pending, made: _Made) -> None:
        run, speaker, outcome = self._run, self._talk.speaker, made.outcome
        pending.state = "done"
        block: JsonObject = {
            "tool_use_id": pending.call.id,
            "type": "tool_result",
            "content": outcome.content,
        }
        if outcome.is_error:
            block = {"type": "tool_result", "content": outcome.content, "is_error": True}
            block["tool_use_id"] = pending.call.id
        elif pending.call.name == "Bash":
            block["is_error"] = False
        pending.result = block
        uuid, detail = str(uuid4()), _detail(outcome)
        self._talk.count_user_frame()
        for notice in made.before:
            run.say(dict(notice))
        if speaker.is_shown:
            run.say(frames.tool_result(block, speaker, uuid=uuid, detail=detail, meta=made.meta))
        for notice in made.after:
            run.say(dict(notice))
        run.transcript.append_user(
            {"role": "user", "content": [block]}, uuid=uuid, agent_id=speaker.agent_id, tool_use_result=detail
        )


def reminder(text: str) -> JsonObject:
    """What the model is told by the program and not by the user."""
    return {"type": "text", "text": f"<system-reminder>\n{text}\n</system-reminder>"}


def _detail(outcome: Outcome) -> object:
    """`tool_use_result`, with what a server gave beside the content."""
    if outcome.structured_content is None and outcome.meta is None:
        return outcome.detail
    detail: JsonObject = {"content": outcome.content}
    if outcome.structured_content is not None:
        detail["structuredContent"] = outcome.structured_content
    if outcome.meta is not None:
        detail["_meta"] = outcome.meta
    return detail


def _text(content: list[JsonObject]) -> str:
    return "\n".join(str(block["text"]) for block in content if block.get("type") == "text")


def _replaced(outcome: Outcome, output: object, *, is_server: bool) -> Outcome:
    """The outcome with what a hook put in its place. What has not the form of the tool's own counts not."""
    if is_server and isinstance(output, str | list):
        content = cast("str | list[JsonObject]", output)
        return msgspec.structs.replace(outcome, detail=content, content=content)
    if isinstance(output, dict) and isinstance(outcome.detail, dict):
        detail = cast("JsonObject", output)
        if isinstance(text := detail.get("stdout"), str):
            return msgspec.structs.replace(outcome, detail=detail, content=text)
    return outcome
