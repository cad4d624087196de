"""One message of the model: how it is asked for, and the calls of tools in it."""

from __future__ import annotations

import secrets
import threading
import time
from typing import TYPE_CHECKING, Final, Literal, cast
from uuid import uuid4

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread
import msgspec

from outrider.testing._api.requests import Request, RequestLog
from outrider.testing._script.steps import CREDIT_TOO_LOW, Answer, Drop, Failure, Gate, Hang, message_of
from outrider.testing._simulator import frames
from outrider.testing._simulator.frames import Outcome, ToolCall, no_such_tool
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from outrider.testing._script.script import Script
    from outrider.testing._script.steps import Step
    from outrider.testing._simulator.host.hooks import Verdict
    from outrider.testing._simulator.model_loop import ModelLoop
    from outrider.testing._simulator.program import RemoteScript
    from outrider.testing._simulator.run import Run


_FIRST_DELAY: Final = 500
_LONGEST_DELAY: Final = 32_000
_RETRIED: Final = (401, 408, 409, 429)
_PAUSE_SECONDS: Final = 0.02
_LONG_PAUSE_SECONDS: Final = 0.25
_OVERLOADS_BEFORE_FALLBACK: Final = 3
_RETRY_KINDS: Final = {401: "authentication_failed", 429: "rate_limit", 529: "overloaded"}
"""`error` of `api_retry`, by status."""
_NO_MODEL: Final = (
    "There's an issue with the selected model ({model}). It may not exist or you may not have access to it. "
    "Run --model to pick a different model."
)
_DROPPED: Final = (
    "API Error: Connection dropped (ECONNRESET). Check the gateway set in ANTHROPIC_BASE_URL, then try again."
)
_FAILURES: Final = {
    401: ("Invalid API key · Fix external API key", "authentication_failed"),
    402: ("API Error: 402 {message}", "billing_error"),
    403: ("Failed to authenticate. API Error: 403 {message}", "authentication_failed"),
    404: (_NO_MODEL, "model_not_found"),
    413: ("Request too large (max 32MB). {message}", "invalid_request"),
    429: ("API Error: Request rejected (429) · {message}", "rate_limit"),
    529: ("API Error: 529 Overloaded. The servers are busy; try again in a moment.", "server_error"),
}
"""The program's text for a status, and the value of `error`."""


class ModelSource(msgspec.Struct, frozen=True):
    """Where the model's answers come from, and what it was asked; shared by all runs of one agent."""

    script: Script | RemoteScript
    requests: RequestLog = msgspec.field(default_factory=RequestLog)


class ApiError(Exception):
    """The API has failed for good; the turn ends with this."""

    def __init__(
        self,
        text: str,
        *,
        error: str,
        terminal: str = "api_error",
        request_id: str | None = None,
        stop_details: JsonObject | None = None,
        facts: JsonObject | None = None,
        more: JsonObject | None = None,
    ) -> None:
        super().__init__(text)
        self.text, self.error, self.terminal, self.request_id = text, error, terminal, request_id
        self.stop_details = stop_details
        self.stop_reason = "stop_sequence" if stop_details is None else "refusal"
        self.facts: JsonObject = facts or {}
        """Fields for both the message and the result."""
        self.more: JsonObject = more or {}
        """Fields for the message alone."""

    @classmethod
    def of(cls, step: Failure | Drop, *, model: str, request_id: str) -> ApiError:
        """The message for a failure that is not retried, or not any more."""
        if isinstance(step, Drop):
            return cls(_DROPPED, error="server_error", facts={"api_error": "connection_failed"})
        status, message = step.status, step.message
        terminal = "image_error" if status == 413 else "api_error"
        text, error = f"API Error: {status} {message}", "unknown"
        if status in _FAILURES:
            text, error = _FAILURES[status]
            text = text.format(message=message, model=model)
        elif status >= 500:
            text, error = f"{text}. This is a problem of the server; try again in a moment.", "server_error"
        elif message == CREDIT_TOO_LOW:
            text, error = "Credit balance is too low", "billing_error"
        elif message.startswith("prompt is too long"):
            text, error, terminal = "Prompt is too long", "invalid_request", "prompt_too_long"
        facts: JsonObject = {"api_error_status": status, "api_error_type": step.type}
        return cls(text, error=error, terminal=terminal, request_id=request_id, facts=facts)


class Model:
    """The scripted model of one run."""

    def __init__(self, run: Run, source: ModelSource) -> None:
        self._run, self._source = run, source
        # Ids of one run must differ from those of the next, which may continue the same session.
        self._mark = secrets.token_hex(4)
        self._count = 0

    async def answer(self, loop: ModelLoop) -> tuple[Answer, JsonObject, str]:
        """The next message: its step, its body, and the id of the request. Tries as often as the program.
        Raises `ApiError` if the API fails permanently."""
        run, attempt, overloads = self._run, 0, 0
        max_retries = run.introspection.max_retries
        while True:
            self._count += 1
            id = f"{self._mark}{self._count:04}"
            step = await self._take(loop)
            while isinstance(step, Hang):
                await wait_at(self._source.requests.hanging)
                step = step.then or Drop()
            if isinstance(step, Answer):
                return step, message_of(step, id=f"msg_{id}", model=loop.model), f"req_{id}"
            if step.after is not None:
                loop.say_beginning(step.after, f"msg_{id}")
            overloads += isinstance(step, Failure) and step.status == 529
            fallback = next(map(frames.resolve, run.invocation.fallback_model), loop.model)
            if overloads >= _OVERLOADS_BEFORE_FALLBACK and fallback != loop.model:
                self._fall_back(loop, fallback)
                attempt = overloads = 0
                continue
            attempt += 1
            is_retried = isinstance(step, Drop) or step.status in _RETRIED or step.status >= 500
            if not is_retried or attempt > max_retries:
                raise ApiError.of(step, model=loop.model, request_id=f"req_{id}")
            if isinstance(step, Drop) or step.after is None:
                run.say(_retry(step, attempt, max_retries))
                await anyio.sleep(_pause(step))

    def _fall_back(self, loop: ModelLoop, model: str) -> None:
        names = frames.displayed(model), frames.displayed(loop.model)
        self._run.say(
            {
                "type": "system",
                "subtype": "model_fallback",
                "trigger": "overloaded",
                "original_model": loop.model,
                "fallback_model": model,
                "content": f"Switched to {names[0]} due to high demand for {names[1]}",
            }
        )
        loop.model = model

    async def _take(self, loop: ModelLoop) -> Step:
        """Make a request, and find the step for it."""
        speaker = loop.speaker
        headers = {"x-claude-code-session-id": self._run.session_id}
        if speaker.agent_id is not None:
            headers["x-claude-code-agent-id"] = speaker.agent_id
        body: JsonObject = {
            "model": loop.model,
            # As they are now: the conversation continues, and the request is kept.
            "messages": list(loop.messages),
            "system": loop.system,
            "tools": [
                {"name": spec.name, "description": spec.description, "input_schema": spec.input_schema}
                for spec in loop.tools()
            ],
            "max_tokens": 32_000,
            "stream": True,
        }
        request = Request(kind="main" if speaker.is_main else "subagent", body=body, headers=headers)

        def take() -> Step:
            self._source.requests.add(request)
            return self._source.script.take(request)

        # In a thread: a user's function may take its time. What is asked has also taken its step.
        return await anyio.to_thread.run_sync(take, abandon_on_cancel=True)


def _retry(step: Failure | Drop, attempt: int, max_retries: int) -> JsonObject:
    status, error = None, "unknown"
    # The milliseconds that the program would wait, without the part that it leaves to chance.
    delay: int = min(_FIRST_DELAY << (attempt - 1), _LONGEST_DELAY)
    if isinstance(step, Failure):
        status = step.status
        error = _RETRY_KINDS.get(status, "server_error" if status >= 500 else "unknown")
        try:
            delay = max(delay, int(float(step.headers.get("retry-after", 0)) * 1000))
        except ValueError:
            pass
    return {
        "type": "system",
        "subtype": "api_retry",
        "attempt": attempt,
        "max_retries": max_retries,
        "retry_delay_ms": delay,
        "error_status": status,
        "error": error,
    }


def _pause(step: Failure | Drop) -> float:
    """The seconds that the next try waits here: long enough for a host to give up, and no longer. A wrong key
    is what hosts give up on by themselves, so hardly anyone waits that long."""
    if isinstance(step, Failure) and step.headers.get("retry-after") == "0":
        return 0.0
    return _LONG_PAUSE_SECONDS if isinstance(step, Failure) and step.status == 401 else _PAUSE_SECONDS


async def wait_at(gate: Gate) -> None:
    """Wait until someone opens the gate, from any thread."""
    opened, token, thread = anyio.Event(), anyio.lowlevel.current_token(), threading.get_ident()

    def wake() -> None:
        if threading.get_ident() == thread:
            opened.set()
            return
        try:
            anyio.from_thread.run_sync(opened.set, token=token)
        except RuntimeError:
            # The run has ended meanwhile.
            return

    gate.on_open(wake)
    gate.reached.set()
    try:
        await opened.wait()
    finally:
        gate.forget(wake)


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
    """The outcome of a call, with the notices to write before and after it."""

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
        """Notes of hooks for the model."""

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
        """Reject the calls that have no result, because the user ends the turn."""
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
