"""Owns how the program asks its model, which a script plays: requests, retries, and the streamed answer.

Does not decide what the model says.
"""

from __future__ import annotations

import base64
import json
import secrets
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple, assert_never

import anyio
import anyio.from_thread
import anyio.lowlevel

from outrider.testing._api.requests import Request
from outrider.testing._script.steps import (
    CREDIT_TOO_LOW,
    Answer,
    Block,
    Drop,
    Failure,
    Hang,
    Text,
    Thinking,
    ToolUse,
)
from outrider.testing._simulator import frames
from outrider.testing._simulator.frames import displayed, resolve
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from outrider.testing._script.script import Script
    from outrider.testing._script.steps import Gate, Step
    from outrider.testing._simulator.model_loop import Hanging, Talk
    from outrider.testing._simulator.run import Run
    from outrider.testing._simulator.world import RequestLog

__all__ = [
    "ApiError",
    "Delta",
    "Model",
    "block_start",
    "deltas",
    "error_of",
    "is_retried",
    "message_cut",
    "message_end",
    "message_of",
    "message_start",
    "pause",
    "retry_delay",
    "retry_kind",
]

_USAGE: JsonObject = {
    "input_tokens": 10,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
    "output_tokens": 5,
}


class Delta(NamedTuple):
    """A piece of a block."""

    event: JsonObject
    is_piece: bool
    """Whether gates and delays count it."""


def message_of(answer: Answer, *, id: str, model: str) -> JsonObject:
    """The whole message."""
    uses_tool = any(isinstance(block, ToolUse) for block in answer.blocks)
    call = f"toolu_{id.removeprefix('msg_')}"
    return {
        "id": id,
        "type": "message",
        "role": "assistant",
        "model": answer.model or model,
        "content": [_block(block, f"{call}{at}") for at, block in enumerate(answer.blocks)],
        "stop_reason": answer.stop_reason or ("tool_use" if uses_tool else "end_turn"),
        "stop_sequence": None,
        "usage": {**_USAGE, **answer.usage},
    }


def _block(block: Block, id: str) -> JsonObject:
    match block:
        case Text(pieces):
            return {"type": "text", "text": "".join(pieces)}
        case Thinking(pieces, signature):
            return {"type": "thinking", "thinking": "".join(pieces), "signature": signature}
        case ToolUse(name=name, input=given, id=chosen):
            return {"type": "tool_use", "id": chosen or id, "name": name, "input": dict(given)}


def message_start(body: JsonObject) -> JsonObject:
    # Before it has written anything, the model has counted one token.
    opening: JsonObject = {
        **body,
        "content": [],
        "stop_reason": None,
        "usage": {**body["usage"], "output_tokens": 1},
    }
    return {"type": "message_start", "message": opening}


def block_start(whole: JsonObject, index: int) -> JsonObject:
    blank: JsonObject = {"text": "", "thinking": "", "signature": "", "input": {}}
    return {
        "type": "content_block_start",
        "index": index,
        "content_block": {key: blank.get(key, value) for key, value in whole.items()},
    }


def deltas(block: Block, whole: JsonObject, index: int) -> Iterator[Delta]:
    """The pieces of a block."""

    def event(delta: JsonObject) -> JsonObject:
        return {"type": "content_block_delta", "index": index, "delta": delta}

    match block:
        case Text(pieces):
            for piece in pieces:
                yield Delta(event({"type": "text_delta", "text": piece}), True)
        case Thinking(pieces, signature):
            for piece in pieces:
                yield Delta(event({"type": "thinking_delta", "thinking": piece}), True)
            yield Delta(event({"type": "signature_delta", "signature": signature}), False)
        case ToolUse():
            text = json.dumps(whole["input"], ensure_ascii=False)
            yield Delta(event({"type": "input_json_delta", "partial_json": text}), True)


def message_cut(usage: JsonObject) -> list[JsonObject]:
    """The end of a message that was cut off, which the program makes up."""
    names = ("container", "stop_details", "stop_reason", "stop_sequence")
    delta: JsonObject = dict.fromkeys(names)
    return [
        {"type": "message_delta", "context_management": None, "delta": delta, "usage": usage},
        {"type": "message_stop"},
    ]


def message_end(body: JsonObject) -> list[JsonObject]:
    ending = {key: body[key] for key in ("stop_reason", "stop_sequence", "stop_details") if key in body}
    return [
        {"type": "message_delta", "delta": ending, "usage": body["usage"]},
        {"type": "message_stop"},
    ]


_FIRST_DELAY: Final = 500
_LONGEST_DELAY: Final = 32_000
_RETRIED: Final = (401, 408, 409, 429)

_PAUSE_SECONDS: Final = 0.02
_LONG_PAUSE_SECONDS: Final = 0.25

_KINDS: Final = {401: "authentication_failed", 429: "rate_limit", 529: "overloaded"}
"""`error` of `api_retry`, by status."""


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


def is_retried(step: Failure | Drop) -> bool:
    """Whether the program tries the request again."""
    return isinstance(step, Drop) or step.status in _RETRIED or step.status >= 500


def retry_kind(step: Failure | Drop) -> tuple[int | None, str]:
    """`error_status` and `error` of `api_retry`."""
    if isinstance(step, Drop):
        return None, "unknown"
    return step.status, _KINDS.get(step.status, "server_error" if step.status >= 500 else "unknown")


def retry_delay(step: Failure | Drop, attempt: int) -> int:
    """The milliseconds that the program would wait, without the part that it leaves to chance."""
    delay: int = min(_FIRST_DELAY << (attempt - 1), _LONGEST_DELAY)
    if isinstance(step, Failure):
        try:
            delay = max(delay, int(float(step.headers.get("retry-after", 0)) * 1000))
        except ValueError:
            pass
    return delay


def pause(step: Failure | Drop) -> float:
    """The seconds that the next try waits here: long enough for a host to give up, and no longer.

    A wrong key is what hosts give up on by themselves, so hardly anybody waits for all of it.
    """
    if isinstance(step, Failure) and step.headers.get("retry-after") == "0":
        return 0.0
    return _LONG_PAUSE_SECONDS if isinstance(step, Failure) and step.status == 401 else _PAUSE_SECONDS


def error_of(step: Failure | Drop, *, model: str, request_id: str) -> ApiError:
    """What the program says of a failure that it does not try again, or not any more."""
    if isinstance(step, Drop):
        return ApiError(
            "API Error: Connection dropped (ECONNRESET). "
            "Check the gateway set in ANTHROPIC_BASE_URL, then try again.",
            error="server_error",
            api_error="connection_failed",
        )
    status, message = step.status, step.message
    text, error, terminal = f"API Error: {status} {message}", "unknown", "api_error"
    if status == 400 and message == CREDIT_TOO_LOW:
        text, error = "Credit balance is too low", "billing_error"
    elif status == 400 and message.startswith("prompt is too long"):
        text, error, terminal = "Prompt is too long", "invalid_request", "prompt_too_long"
    elif status == 401:
        text, error = "Invalid API key · Fix external API key", "authentication_failed"
    elif status == 402:
        error = "billing_error"
    elif status == 403:
        text, error = f"Failed to authenticate. {text}", "authentication_failed"
    elif status == 404:
        text = (
            f"There's an issue with the selected model ({model}). It may not exist or you may not have "
            "access to it. Run --model to pick a different model."
        )
        error = "model_not_found"
    elif status == 413:
        text, error, terminal = f"Request too large (max 32MB). {message}", "invalid_request", "image_error"
    elif status == 429:
        text, error = f"API Error: Request rejected (429) · {message}", "rate_limit"
    elif status == 529:
        text, error = (
            "API Error: 529 Overloaded. The servers are busy; try again in a moment.",
            "server_error",
        )
    elif status >= 500:
        text, error = f"{text}. This is a problem of the server; try again in a moment.", "server_error"
    return ApiError(
        text, error=error, status=status, type=step.type, terminal=terminal, request_id=request_id
    )


_OVERLOADS_BEFORE_FALLBACK = 3
_CHARACTERS_PER_TOKEN = 4


class _Failed(Exception):
    """A request came to nothing."""

    def __init__(self, step: Failure | Drop, *, is_quiet: bool = False) -> None:
        super().__init__(step)
        self.step, self.is_quiet = step, is_quiet


class Model:
    """The scripted model of one run."""

    def __init__(self, run: Run, script: Script, requests: RequestLog, hanging: Hanging) -> None:
        self._run, self._script, self._requests, self._hanging = run, script, requests, hanging
        # Ids of one run must differ from those of the next, which may go on with the same session.
        self._mark = secrets.token_hex(4)
        self._count = 0

    async def answer(self, talk: Talk) -> JsonObject:
        """Ask for the next message, and hand its blocks to the conversation as they are finished.

        Raises `ApiError` if the API fails for good.
        """
        run, attempt, overloads = self._run, 0, 0
        began = time.monotonic()
        if talk.speaker.is_main and run.invocation.include_partial_messages:
            status: JsonObject = {"type": "system", "subtype": "status", "status": "requesting"}
            run.say(status | talk.marks("user_message_uuids"))
        while True:
            self._count += 1
            id = f"{self._mark}{self._count:04}"
            try:
                body = await self._play(await self._take(talk), talk, id)
            except _Failed as failed:
                step, is_quiet = failed.step, failed.is_quiet
            else:
                run.meter.api_ms += int((time.monotonic() - began) * 1000)
                return body
            overloads += isinstance(step, Failure) and step.status == 529
            fallback = next(iter(run.invocation.fallback_model), None)
            if overloads >= _OVERLOADS_BEFORE_FALLBACK and fallback and talk.model != resolve(fallback):
                self._fall_back(talk, resolve(fallback))
                attempt = overloads = 0
                continue
            attempt += 1
            if not is_retried(step) or attempt > run.offer.max_retries:
                raise error_of(step, model=talk.model, request_id=f"req_{id}")
            if not is_quiet:
                error_status, error = retry_kind(step)
                run.say(
                    {
                        "type": "system",
                        "subtype": "api_retry",
                        "attempt": attempt,
                        "max_retries": run.offer.max_retries,
                        "retry_delay_ms": retry_delay(step, attempt),
                        "error_status": error_status,
                        "error": error,
                    }
                )
                await anyio.sleep(pause(step))

    async def text(self, talk: Talk) -> str:
        """Ask beside the conversation, and give only what the model says. Raises `ApiError`."""
        self._count += 1
        id = f"{self._mark}{self._count:04}"
        step = await self._take(talk)
        if isinstance(step, Hang):
            await wait_at(self._hanging.gate)
            step = step.then or Drop()
        if not isinstance(step, Answer):
            raise error_of(step, model=talk.model, request_id=f"req_{id}")
        body = message_of(step, id=f"msg_{id}", model=talk.model)
        self._run.count(talk, str(body["model"]), body["usage"])
        return "".join(block["text"] for block in body["content"] if block["type"] == "text")

    def _fall_back(self, talk: Talk, model: str) -> None:
        self._run.say(
            {
                "type": "system",
                "subtype": "model_fallback",
                "trigger": "overloaded",
                "original_model": talk.model,
                "fallback_model": model,
                "content": f"Switched to {displayed(model)} due to high demand for {displayed(talk.model)}",
            }
        )
        talk.model = model

    async def _take(self, talk: Talk) -> Step:
        """Make a request, and find the step for it."""
        run, speaker = self._run, talk.speaker
        headers = {"x-claude-code-session-id": run.session_id}
        if speaker.agent_id is not None:
            headers["x-claude-code-agent-id"] = speaker.agent_id
        body: JsonObject = {
            "model": talk.model,
            # As they are now: the conversation goes on, and the request is kept.
            "messages": list(talk.messages),
            "system": talk.system,
            "tools": [
                {"name": spec.name, "description": spec.description, "input_schema": spec.input_schema}
                for spec in talk.tools()
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

    async def _play(self, step: Step, talk: Talk, id: str) -> JsonObject:
        match step:
            case Answer():
                return await self._stream(step, talk, id)
            case Failure():
                if step.after is not None:
                    await self._begin(step.after, talk, id)
                raise _Failed(step, is_quiet=step.after is not None)
            case Hang():
                await wait_at(self._hanging.gate)
                return await self._play(step.then or Drop(), talk, id)
            case Drop():
                if step.after is not None:
                    await self._begin(step.after, talk, id)
                raise _Failed(step)
            case _:
                assert_never(step)

    async def _begin(self, text: str, talk: Talk, id: str) -> None:
        """Stream the beginning of a message, which is thrown away."""
        from outrider.testing._script.steps import say

        answer = say(text)
        body = message_of(answer, id=f"msg_{id}", model=talk.model)
        self._event(talk, message_start(body), body, is_first=True)
        self._event(talk, block_start(body["content"][0], 0), body)
        for delta in deltas(answer.blocks[0], body["content"][0], 0):
            self._event(talk, delta.event, body)

    async def _stream(self, answer: Answer, talk: Talk, id: str) -> JsonObject:
        body = message_of(answer, id=f"msg_{id}", model=talk.model)
        if answer.stop_details is not None:
            body["stop_details"] = dict(answer.stop_details)
        gate = _Held(answer)
        await gate.pass_after(0)
        talk.begin_message(body, f"req_{id}")
        self._event(talk, message_start(body), body, is_first=True)
        for index, block in enumerate(answer.blocks):
            whole: JsonObject = body["content"][index]
            if isinstance(block, ToolUse) and block.result is not None:
                self._run.scripted_results[whole["id"]] = block.result
            extra: JsonObject = {"thinking_display": "updates"} if isinstance(block, Thinking) else {}
            self._event(talk, block_start(whole, index), body, **extra)
            began = time.monotonic()
            await self._stream_block(answer, block, whole, index, talk, body, gate)
            fields: JsonObject = {}
            if isinstance(block, Thinking) and talk.speaker.is_main:
                fields["thinking_duration_ms"] = int((time.monotonic() - began) * 1000)
                fields |= extra
            talk.finish_block(whole, fields, shown=await talk.displayed(whole))
            self._event(talk, {"type": "content_block_stop", "index": index}, body)
            # What is called begins before the next block is there.
            await anyio.lowlevel.checkpoint()
        for event in message_end(body):
            self._event(talk, event, body)
        talk.finish_message(body)
        return body

    async def _stream_block(
        self,
        answer: Answer,
        block: Block,
        whole: JsonObject,
        index: int,
        talk: Talk,
        body: JsonObject,
        gate: _Held,
    ) -> None:
        talk.begin_block(whole)
        thought = 0
        extra: JsonObject = {"thinking_display": "updates"} if isinstance(block, Thinking) else {}
        for delta in deltas(block, whole, index):
            if delta.is_piece and answer.delay:
                await anyio.sleep(answer.delay)
            given: JsonObject = delta.event["delta"]
            # A signature counts for one, if it is one.
            text = given.get("thinking", "" if _is_signature(given.get("signature")) else None)
            if text is not None and talk.speaker.is_main:
                tokens = -(-len(text) // _CHARACTERS_PER_TOKEN) or int("signature" in given)
                thought += tokens
                self._run.say(
                    {
                        "type": "system",
                        "subtype": "thinking_tokens",
                        "estimated_tokens": thought,
                        "estimated_tokens_delta": tokens,
                        **talk.marks("user_message_uuid"),
                    }
                )
            self._event(talk, delta.event, body, **(extra if delta.is_piece else {}))
            if (piece := given.get("text")) is not None:
                talk.add_piece(piece)
            if delta.is_piece:
                await gate.passed_piece()

    def _event(
        self, talk: Talk, event: JsonObject, body: JsonObject, *, is_first: bool = False, **fields: object
    ) -> None:
        if not (talk.speaker.is_main and self._run.invocation.include_partial_messages):
            return
        if is_first:
            marks = talk.first_marks()
            fields |= {"ttft_ms": 1, "thinking_display": "updates"} | marks
            if marks:
                fields["owed_rows"] = []
        fields["api_message_id"] = body["id"]
        self._run.say(frames.stream_event(event, **fields))

    def abandon(self, talk: Talk, body: JsonObject, open_block: int | None) -> None:
        """Write the end of a stream that was cut off."""
        if open_block is not None:
            self._event(talk, {"type": "content_block_stop", "index": open_block}, body)
        usage: JsonObject = {**body["usage"], "output_tokens": 1}
        for event in message_cut(usage):
            more: JsonObject = {}
            if event["type"] == "message_stop" and open_block is not None:
                more["abandoned_blocks"] = {"api_message_id": body["id"], "from_block_index": open_block + 1}
            self._event(talk, event, body, **more)


def _is_signature(value: object) -> bool:
    try:
        return isinstance(value, str) and bool(base64.b64decode(value, validate=True))
    except ValueError:
        return False


class _Held:
    """Where an answer stops for a test."""

    def __init__(self, answer: Answer) -> None:
        self._gate = answer.gate
        pieces = sum(len(getattr(block, "pieces", "1")) for block in answer.blocks)
        # An answer that is too short is held before its end.
        self._at = -1 if self._gate is None else min(self._gate.after, pieces)
        self._passed = 0

    async def passed_piece(self) -> None:
        self._passed += 1
        await self.pass_after(self._passed)

    async def pass_after(self, count: int) -> None:
        if self._gate is not None and count == self._at:
            await wait_at(self._gate)


async def wait_at(gate: Gate) -> None:
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
