"""The calls of tools in one message of the model: their order, who carries them out, their results."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Literal, cast
from uuid import uuid4

import anyio
import msgspec

from outrider.testing._simulator import frames
from outrider.testing._simulator.context import Outcome, ToolCall, no_such_tool
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from outrider.testing._simulator.host.hooks import Verdict
    from outrider.testing._simulator.model_loop import ModelLoop
    from outrider.testing._simulator.run import Run


_REJECTED: Final = (
    "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was a file "
    "edit, the new_string was NOT written to the file). STOP what you are doing and wait for the user to "
    "tell you how to proceed."
)
_PARALLEL: Final = frozenset(("Agent", "Read", "Glob", "Grep", "WebFetch", "WebSearch"))


class _Call:
    """A call that has begun or waits for others."""

    def __init__(self, call: ToolCall, *, is_parallel: bool) -> None:
        self.call = call
        self.is_parallel = is_parallel
        self.state: Literal["waiting", "running", "done"] = "waiting"
        self.result: JsonObject | None = None
        """The block for the model."""


class _Result(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a call, and the notices that are written before and after it."""

    outcome: Outcome
    meta: JsonObject | None = None
    before: tuple[JsonObject, ...] = ()
    after: tuple[JsonObject, ...] = ()


class Calls:
    """The calls of one message. Those that only read run side by side, the others one by one."""

    def __init__(self, run: Run, loop: ModelLoop, tasks: TaskGroup) -> None:
        self._run, self._loop, self._tasks = run, loop, tasks
        self._calls: list[_Call] = []
        self._moved = anyio.Event()
        self.stop_reason: str | None = None
        """Set when a hook wants the turn to end after these."""
        self.deferred: ToolCall | None = None
        self.is_interrupted = False
        """Whether the user said no, and that the turn is to end."""
        self.notes: list[str] = []
        """What hooks tell the model."""

    def __bool__(self) -> bool:
        return bool(self._calls)

    @property
    def results(self) -> list[JsonObject]:
        """In the order of the calls."""
        return [each.result for each in self._calls if each.result is not None]

    def start(self, call: ToolCall) -> None:
        spec = self._loop.spec(call.name)
        hints = spec.annotations if spec is not None else {}
        is_parallel = call.name in _PARALLEL or hints.get("readOnlyHint") is True
        self._calls.append(_Call(call, is_parallel=is_parallel))
        self._advance()

    async def wait(self) -> list[JsonObject]:
        """Wait for all of them; returns their results."""
        while any(each.state != "done" for each in self._calls) and not self.is_interrupted:
            self._moved = anyio.Event()
            await self._moved.wait()
        if self.is_interrupted:
            self.abort()
        elif self._calls and self._loop.speaker.is_main:
            await self._tell_batch()
        return self.results

    def abort(self) -> list[JsonObject]:
        """Answer those that have no result, because the user ends the turn."""
        for each in self._calls:
            if each.result is None and each.call is not self.deferred:
                meta: JsonObject = {"id": each.call.id, "non_execution_kind": "user-rejected"}
                rejected = Outcome(content=_REJECTED, is_error=True, detail="User rejected tool use")
                self._finish(each, _Result(outcome=rejected, meta=meta))
        return self.results

    def _advance(self) -> None:
        for each in self._calls:
            running = [other for other in self._calls if other.state == "running"]
            if each.state != "waiting":
                continue
            if running and not (each.is_parallel and all(other.is_parallel for other in running)):
                break
            each.state = "running"
            self._tasks.start_soon(self._carry_out, each, name=f"simulated {each.call.name}")

    async def _carry_out(self, each: _Call) -> None:
        result = await self._perform(each.call)
        if each.call is self.deferred:
            each.state = "done"
        else:
            self._finish(each, result)
        self._advance()
        self._moved.set()

    async def _perform(self, call: ToolCall) -> _Result:
        run, loop = self._run, self._loop
        if run.tools.owns(call.name):
            if (unusable := run.tools.check(call)) is not None:
                return _Result(outcome=unusable)
        elif loop.spec(call.name) is None and not (
            run.mcp.owns(call.name) or (call.id in run.scripted_results and run.mcp.is_configured(call.name))
        ):
            return _Result(outcome=no_such_tool(call.name))
        if call.name == "StructuredOutput":
            decision: JsonObject = {"decision": "accept", "source": "config"}
            meta: JsonObject = {"id": call.id, "permission_decision": decision}
            return _Result(outcome=loop.take_output(call), meta=meta)
        decided = await run.permissions.decide(call)
        self.notes += decided.reminders
        if decided.stop_reason is not None:
            self.stop_reason = decided.stop_reason
        if not decided.is_allowed:
            if decided.deferred:
                self.deferred = call
                for notice in decided.notices:
                    run.say(dict(notice))
                run.deferred.note(call)
            self.is_interrupted = self.is_interrupted or decided.interrupt
            denied = Outcome(content=decided.message, is_error=True, detail=decided.detail)
            return _Result(outcome=denied, meta=decided.meta, before=decided.notices)
        allowed = msgspec.structs.replace(call, input=decided.input)
        began = time.monotonic()
        outcome = await self._run_tool(allowed)
        after = await self._tell_hooks(allowed, outcome, int((time.monotonic() - began) * 1000))
        if after.updated_output is not None:
            outcome = _replaced(outcome, after.updated_output, is_server=run.mcp.owns(call.name))
        return _Result(outcome=outcome, meta=decided.meta, before=decided.notices, after=after.notices)

    async def _run_tool(self, call: ToolCall) -> Outcome:
        run = self._run
        if (result := run.scripted_results.pop(call.id, None)) is not None:
            return Outcome(content=result, detail=result)
        if call.name == "Agent":
            return await run.subagents.perform(call, self._loop)
        if run.questions.owns(call.name):
            return run.questions.perform(call)
        return await (run.tools.perform(call) if run.tools.owns(call.name) else run.mcp.call(call))

    async def _tell_hooks(self, call: ToolCall, outcome: Outcome, took: int) -> Verdict:
        fields: JsonObject = {"tool_name": call.name, "tool_input": call.input}
        event = "PostToolUseFailure" if outcome.is_error else "PostToolUse"
        if outcome.is_error:
            fields |= {"tool_use_id": call.id, "error": outcome.content, "is_interrupt": False}
        else:
            fields |= {"tool_response": outcome.detail, "tool_use_id": call.id}
        verdict = await self._run.hooks.fire(event, {**fields, "duration_ms": took}, call=call)
        self.notes += verdict.reminders
        if verdict.stop_reason is not None and not outcome.is_error:
            self.stop_reason = verdict.stop_reason
        return verdict

    async def _tell_batch(self) -> None:
        calls = [
            {
                "tool_name": each.call.name,
                "tool_input": each.call.input,
                "tool_use_id": each.call.id,
                "tool_response": each.result.get("content"),
            }
            for each in self._calls
            if each.result is not None
        ]
        if calls:
            await self._run.hooks.fire("PostToolBatch", {"tool_calls": calls})

    def _finish(self, each: _Call, result: _Result) -> None:
        run, speaker, outcome = self._run, self._loop.speaker, result.outcome
        each.state = "done"
        block: JsonObject = {"tool_use_id": each.call.id, "type": "tool_result", "content": outcome.content}
        if outcome.is_error or each.call.name == "Bash":
            block["is_error"] = outcome.is_error
        each.result = block
        uuid = str(uuid4())
        self._loop.num_turns += 1
        for notice in result.before:
            run.say(dict(notice))
        if speaker.is_shown:
            run.say(frames.tool_result(block, speaker, uuid=uuid, detail=outcome.detail, meta=result.meta))
        for notice in result.after:
            run.say(dict(notice))
        run.transcript.append_user(
            {"role": "user", "content": [block]},
            uuid=uuid,
            agent_id=speaker.agent_id,
            tool_use_result=outcome.detail,
        )


def _replaced(outcome: Outcome, output: object, *, is_server: bool) -> Outcome:
    """The outcome with what a hook put in its place. Output of another form is ignored."""
    if is_server and isinstance(output, str | list):
        content = cast("str | list[JsonObject]", output)
        return msgspec.structs.replace(outcome, detail=content, content=content)
    if isinstance(output, dict) and isinstance(outcome.detail, dict):
        detail = cast("JsonObject", output)
        if isinstance(text := detail.get("stdout"), str):
            return msgspec.structs.replace(outcome, detail=detail, content=text)
    return outcome
