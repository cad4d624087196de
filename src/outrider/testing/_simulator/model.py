"""How the program asks its model, which a script plays: requests, tries, and failures of the API."""

from __future__ import annotations

import secrets
import threading
from typing import TYPE_CHECKING, Final

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread
import msgspec

from outrider.testing._api.requests import Request, RequestLog
from outrider.testing._script.steps import CREDIT_TOO_LOW, Answer, Drop, Failure, Gate, Hang, message_of
from outrider.testing._simulator import frames
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from outrider.testing._script.script import Script
    from outrider.testing._script.steps import Step
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
"""What the program says of a status, and what `error` is."""


class Hanging:
    """The gate that requests wait at now. Any thread may use it."""

    def __init__(self) -> None:
        self.gate = Gate(after=0)

    def release(self) -> None:
        """Let all continue that wait; later ones wait at another gate."""
        gate, self.gate = self.gate, Gate(after=0)
        gate.open()


class ModelSource(msgspec.Struct, frozen=True):
    """Where the model's answers come from, and what it was asked; shared by all runs of one agent."""

    script: Script | RemoteScript
    requests: RequestLog = msgspec.field(default_factory=RequestLog)
    hanging: Hanging = msgspec.field(default_factory=Hanging)


class ApiError(Exception):
    """The API has failed permanently; the turn ends with this."""

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
        """What the message and the result say of it."""
        self.more: JsonObject = more or {}
        """What only the message says."""

    @classmethod
    def of(cls, step: Failure | Drop, *, model: str, request_id: str) -> ApiError:
        """What the program says of a failure that it does not try again, or not any more."""
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

        Raises `ApiError` if the API fails permanently.
        """
        run, attempt, overloads = self._run, 0, 0
        max_retries = run.introspection.max_retries
        while True:
            self._count += 1
            id = f"{self._mark}{self._count:04}"
            step = await self._take(loop)
            while isinstance(step, Hang):
                await wait_at(self._source.hanging.gate)
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
    """The seconds that the next try waits here: long enough for a host to give up, and no longer.

    A wrong key is what hosts give up on by themselves, so hardly anyone waits that long.
    """
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
