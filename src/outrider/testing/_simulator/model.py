"""Owns how the program asks its model, which a script plays: requests, retries, and the streamed answer.

Does not decide what the model says.
"""

from __future__ import annotations

import base64
import secrets
import threading
import time
from typing import TYPE_CHECKING, Final

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread

from outrider.testing._api.requests import Request
from outrider.testing._script.steps import (
    CREDIT_TOO_LOW,
    Answer,
    Drop,
    Failure,
    Gate,
    Hang,
    Thinking,
    ToolUse,
    count_pieces,
    events_of,
    message_of,
    say,
)
from outrider.testing._simulator import frames
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from outrider.testing._api.requests import RequestLog
    from outrider.testing._script.script import Script
    from outrider.testing._script.steps import Step
    from outrider.testing._simulator.model_loop import ModelLoop
    from outrider.testing._simulator.run import Run

__all__ = ["ApiError", "Hanging", "Model"]

_FIRST_DELAY: Final = 500
_LONGEST_DELAY: Final = 32_000
_RETRIED: Final = (401, 408, 409, 429)
_PAUSE_SECONDS: Final = 0.02
_LONG_PAUSE_SECONDS: Final = 0.25
_OVERLOADS_BEFORE_FALLBACK: Final = 3
_CHARACTERS_PER_TOKEN: Final = 4
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
"""What the program says of a status, and what `error` is."""


class Hanging:
    """The gate that requests wait at now. Any thread may use it."""

    def __init__(self) -> None:
        self.gate = Gate(after=0)

    def release(self) -> None:
        """Let all go on that wait; later ones wait at another gate."""
        gate, self.gate = self.gate, Gate(after=0)
        gate.open()


class ApiError(Exception):
    """The API has failed for good; the turn ends with this."""

    def __init__(
        self,
        text: str,
        *,
        error: str,
        status: int | None = None,
        type: str | None = None,
        api_error: str | None = None,
        terminal: str = "api_error",
        request_id: str | None = None,
    ) -> None:
        super().__init__(text)
        self.text = text
        self.error = error
        self.status = status
        self.type = type
        self.api_error = api_error
        self.terminal = terminal
        self.request_id = request_id
        self.cut: str | None = None
        self.stop_details: dict[str, object] | None = None
        self.refused_message_id: str | None = None

    @property
    def stop_reason(self) -> str:
        return "stop_sequence" if self.stop_details is None else "refusal"

    @classmethod
    def of(cls, step: Failure | Drop, *, model: str, request_id: str) -> ApiError:
        """What the program says of a failure that it does not try again, or not any more."""
        if isinstance(step, Drop):
            return cls(_DROPPED, error="server_error", api_error="connection_failed")
        status, message, terminal = step.status, step.message, "api_error"
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
        if status == 413:
            terminal = "image_error"
        return cls(text, error=error, status=status, type=step.type, terminal=terminal, request_id=request_id)


class _Failed(Exception):
    """A request came to nothing."""

    def __init__(self, step: Failure | Drop) -> None:
        super().__init__(step)
        self.step = step


class Model:
    """The scripted model of one run."""

    def __init__(self, run: Run, script: Script, requests: RequestLog, hanging: Hanging) -> None:
        self._run, self._script, self._requests, self._hanging = run, script, requests, hanging
        # Ids of one run must differ from those of the next, which may go on with the same session.
        self._mark = secrets.token_hex(4)
        self._count = 0

    def _next_id(self) -> str:
        self._count += 1
        return f"{self._mark}{self._count:04}"

    async def answer(self, loop: ModelLoop) -> JsonObject:
        """Ask for the next message, and hand its blocks to the conversation as they are finished.

        Raises `ApiError` if the API fails for good.
        """
        run, attempt, overloads = self._run, 0, 0
        began, max_retries = time.monotonic(), run.introspection.max_retries
        if loop.speaker.is_main and run.invocation.include_partial_messages:
            status: JsonObject = {"type": "system", "subtype": "status", "status": "requesting"}
            run.say(status | loop.marks("user_message_uuids"))
        while True:
            id = self._next_id()
            try:
                body = await self._play(await self._take(loop), loop, id)
            except _Failed as failed:
                step = failed.step
            else:
                run.meter.api_ms += int((time.monotonic() - began) * 1000)
                return body
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

    async def text(self, loop: ModelLoop) -> str:
        """Ask beside the conversation, and give only what the model says. Raises `ApiError`."""
        id, step = self._next_id(), await self._take(loop)
        if isinstance(step, Hang):
            await _wait_at(self._hanging.gate)
            step = step.then or Drop()
        if not isinstance(step, Answer):
            raise ApiError.of(step, model=loop.model, request_id=f"req_{id}")
        body = message_of(step, id=f"msg_{id}", model=loop.model)
        loop.count(body)
        return "".join(block["text"] for block in body["content"] if block["type"] == "text")

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
            # As they are now: the conversation goes on, and the request is kept.
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
            self._requests.add(request)
            return self._script.take(request)

        # In a thread: a function of the user's may take its time. What is asked has also taken its step.
        return await anyio.to_thread.run_sync(take, abandon_on_cancel=True)

    async def _play(self, step: Step, loop: ModelLoop, id: str) -> JsonObject:
        if isinstance(step, Hang):
            await _wait_at(self._hanging.gate)
            step = step.then or Drop()
        if isinstance(step, Answer):
            return await self._stream(step, loop, id)
        if isinstance(step, Hang):
            return await self._play(step, loop, id)
        if step.after is not None:
            # The beginning of a message, which is thrown away.
            answer = say(step.after)
            body = message_of(answer, id=f"msg_{id}", model=loop.model)
            for event in events_of(answer, body):
                self._say_event(loop, event.data, body)
                if event.is_piece:
                    break
        raise _Failed(step)

    async def _stream(self, answer: Answer, loop: ModelLoop, id: str) -> JsonObject:
        body = message_of(answer, id=f"msg_{id}", model=loop.model)
        # An answer that is too short is held before its end.
        held_at = -1 if answer.gate is None else min(answer.gate.after, count_pieces(answer))
        passed, thought, began = 0, 0, 0.0
        if answer.gate is not None and held_at == 0:
            await _wait_at(answer.gate)
        loop.begin_message(body, f"req_{id}")
        for event, is_piece in events_of(answer, body):
            index: int | None = event.get("index")
            block = None if index is None else answer.blocks[index]
            is_thinking = isinstance(block, Thinking)
            extra: JsonObject = {"thinking_display": "updates"} if is_thinking else {}
            match event["type"]:
                case "content_block_start":
                    whole: JsonObject = body["content"][index]
                    if isinstance(block, ToolUse) and block.result is not None:
                        self._run.scripted_results[whole["id"]] = block.result
                    began, thought = time.monotonic(), 0
                    loop.begin_block()
                case "content_block_delta":
                    if is_piece and answer.delay:
                        await anyio.sleep(answer.delay)
                    thought += self._say_thinking(loop, event["delta"], thought)
                    extra = extra if is_piece else {}
                case "content_block_stop":
                    fields: JsonObject = {}
                    if is_thinking and loop.speaker.is_main:
                        fields = {"thinking_duration_ms": int((time.monotonic() - began) * 1000), **extra}
                    whole = body["content"][index]
                    loop.finish_block(whole, fields, shown=await loop.displayed(whole))
                    extra = {}
                case _:
                    pass
            self._say_event(loop, event, body, **extra)
            if is_piece:
                loop.add_piece(event["delta"].get("text", ""))
                passed += 1
                if answer.gate is not None and passed == held_at:
                    await _wait_at(answer.gate)
            elif event["type"] == "content_block_stop":
                # What is called begins before the next block is there.
                await anyio.lowlevel.checkpoint()
        loop.finish_message(body)
        return body

    def _say_thinking(self, loop: ModelLoop, delta: JsonObject, so_far: int) -> int:
        """Tell how much was thought; gives the tokens of this piece. A valid signature counts as one."""
        text = delta.get("thinking", "" if _is_signature(delta.get("signature")) else None)
        if text is None or not loop.speaker.is_main:
            return 0
        tokens = -(-len(text) // _CHARACTERS_PER_TOKEN) or int("signature" in delta)
        self._run.say(
            {
                "type": "system",
                "subtype": "thinking_tokens",
                "estimated_tokens": so_far + tokens,
                "estimated_tokens_delta": tokens,
                **loop.marks("user_message_uuid"),
            }
        )
        return tokens

    def _say_event(self, loop: ModelLoop, event: JsonObject, body: JsonObject, **fields: object) -> None:
        if not (loop.speaker.is_main and self._run.invocation.include_partial_messages):
            return
        if event["type"] == "message_start":
            marks = loop.first_marks()
            fields |= {"ttft_ms": 1, "thinking_display": "updates"} | marks
            if marks:
                fields["owed_rows"] = []
        fields["api_message_id"] = body["id"]
        self._run.say(frames.stream_event(event, **fields))

    def abandon(self, loop: ModelLoop, body: JsonObject, open_block: int | None) -> None:
        """Write the end of a stream that was cut off, which the program makes up."""
        more: JsonObject = {}
        if open_block is not None:
            self._say_event(loop, {"type": "content_block_stop", "index": open_block}, body)
            more["abandoned_blocks"] = {"api_message_id": body["id"], "from_block_index": open_block + 1}
        delta: JsonObject = dict.fromkeys(("container", "stop_details", "stop_reason", "stop_sequence"))
        ending: JsonObject = {"type": "message_delta", "context_management": None, "delta": delta}
        self._say_event(loop, {**ending, "usage": {**body["usage"], "output_tokens": 1}}, body)
        self._say_event(loop, {"type": "message_stop"}, body, **more)


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
    """The seconds that the next try waits here: long enough for a host to give up, and no longer.

    A wrong key is what hosts give up on by themselves, so hardly anybody waits for all of it.
    """
    if isinstance(step, Failure) and step.headers.get("retry-after") == "0":
        return 0.0
    return _LONG_PAUSE_SECONDS if isinstance(step, Failure) and step.status == 401 else _PAUSE_SECONDS


def _is_signature(value: object) -> bool:
    try:
        return isinstance(value, str) and bool(base64.b64decode(value, validate=True))
    except ValueError:
        return False


async def _wait_at(gate: Gate) -> None:
    """Wait until somebody opens the gate, from any thread."""
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
