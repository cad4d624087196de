"""A conversation with the model, round by round: the user's, or a subagent's."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast
from uuid import uuid4

import anyio
import msgspec

from outrider.handlers._tools.shape_errors import JsonSchema
from outrider.testing._script.steps import Thinking, ToolUse, count_pieces, events_of, message_of, say
from outrider.testing._simulator import frames
from outrider.testing._simulator.frames import (
    Outcome,
    Tally,
    ToolCall,
    ToolFailed,
    ToolSpec,
    as_object,
    displayed,
    reminder,
)
from outrider.testing._simulator.model import ApiError, Calls, wait_at
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from outrider.testing._simulator.run import Run


_CHARACTERS_PER_TOKEN: Final = 4
_OUTPUT_TRIES: Final = 5
_CUT_OFF_TRIES: Final = 3
_NUDGE: Final = (
    "[structured-output-enforce] You MUST call the StructuredOutput tool to complete this request. "
    "Call this tool now."
)
_GO_ON: Final = "Output token limit hit. Resume directly where you stopped, without an apology or a recap."
_STOPPED: Final = (
    "Your response above was stopped by a safeguard. Go on in another way, or say what you cannot do."
)
_LOST: Final = "[Tool result missing due to internal error]"
_CYBER_MODEL: Final = "claude-opus-4-8"
_OTHER_MODEL: Final = "claude-opus-5"
"""The model that continues after a refusal; the one above if that is about attacks on computers."""


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How a conversation ended."""

    reason: str
    """`terminal_reason`."""
    error: ApiError | None = None
    errors: tuple[str, ...] = ()
    deferred: ToolCall | None = None
    fields: JsonObject = {}
    """More fields of the result."""


class ModelLoop:
    """One conversation. `run` continues it until the model has nothing more to do."""

    def __init__(
        self,
        run: Run,
        speaker: frames.Speaker,
        messages: list[JsonObject],
        *,
        model: str,
        tools: Callable[[], list[ToolSpec]],
        system: object = "",
        max_turns: int | None = None,
        schema: JsonObject | None = None,
        uuids: list[str] | None = None,
    ) -> None:
        self._run = run
        self.speaker, self.messages, self.model = speaker, messages, model
        self.tools, self.system = tools, system
        self.uuids = uuids or []
        """The prompts that are answered."""
        self._prompt_uuid = self.uuids[-1] if self.uuids else str(uuid4())
        self._is_streamed = speaker.is_main and run.invocation.include_partial_messages
        self.num_turns = 1
        self._turn_id = str(uuid4())
        self.safety_stops = 0
        self.tally = Tally()
        """What it has used."""
        self.began = time.monotonic()
        self.text = ""
        """What the model said last."""
        self.stop_reason: str | None = None
        self.used_tools: list[str] = []
        self.calls: Calls | None = None
        self._max_turns, self._schema = max_turns, schema
        self._rounds = 0
        self._first_usage: JsonObject = {}
        self._has_marked = False
        # Of the message that is being said.
        self.is_streaming = False
        self._body: JsonObject = {}
        self.request_id = ""
        self._pieces: list[str] = []
        self._kept: list[JsonObject] = []
        self._texts: list[str] = []
        """As they are shown."""
        self._held_calls: list[ToolCall] = []
        self._open_block: int | None = None
        self._uuids_of_message: list[str] = []
        self._is_cut = False
        self._superseded: list[str] = []
        self._output: list[object] = []
        self._bad_outputs = self._nudges = self._cuts = self._refusals = 0
        self._is_stop_hook_active = False

    # Rounds.

    async def run(self) -> Ended:
        """Ask, carry out, and ask again. Raises nothing but cancellation."""
        try:
            while (ended := await self._round()) is None:
                pass
        except ApiError as error:
            return Ended(reason=error.terminal, error=error)
        return ended

    async def carry_out(self, call: ToolCall) -> Ended | None:
        """Carry out a call of an earlier run; None if the model is to be asked next."""
        ended: Ended | None = None
        async with anyio.create_task_group() as tasks:
            self.calls = calls = Calls(self._run, self, tasks)
            calls.start(call)
            ended = self._after_calls(await calls.wait(), calls)
            if calls.is_interrupted:
                tasks.cancel_scope.cancel()
        return ended

    async def _round(self) -> Ended | None:
        run = self._run
        if self._has_spent_all():
            return self._over_budget()
        body: JsonObject = {}
        calls: Calls | None = None
        results: list[JsonObject] = []
        failure: ApiError | None = None
        async with anyio.create_task_group() as tasks:
            self.calls = calls = Calls(run, self, tasks)
            try:
                body = await self._speak()
                results = await calls.wait()
            except ApiError as error:
                # Raised outside: a task group would wrap it.
                failure = error
            if failure is not None or calls.is_interrupted:
                tasks.cancel_scope.cancel()
        if failure is not None or calls is None:
            raise failure or RuntimeError
        self._rounds += 1
        if not calls.is_interrupted:
            if self._has_spent_all():
                return self._over_budget()
            if not calls:
                return await self._after_text(body)
        if (ended := self._after_calls(results, calls)) is not None:
            return ended
        if self._max_turns is not None and 0 < self._max_turns <= self._rounds:
            text = f"Reached maximum number of turns ({self._max_turns})"
            return Ended(reason="max_turns", errors=(text,))
        if self.speaker.is_main:
            run.fold_prompts()
        return None

    def _after_calls(self, results: list[JsonObject], calls: Calls) -> Ended | None:
        """What follows the calls of a message; None if the model is to be asked next."""
        if calls.is_interrupted:
            self.messages.append({"role": "user", "content": results})
            return Ended(reason="aborted_tools")
        if (call := calls.deferred) is not None:
            # What the model sees of it if another prompt comes, which drops the call.
            lost: JsonObject = {
                "type": "tool_result",
                "tool_use_id": call.id,
                "content": _LOST,
                "is_error": True,
            }
            self.messages.append({"role": "user", "content": [*results, lost]})
            self.stop_reason = "tool_deferred"
            fields: JsonObject = {
                "deferred_tool_use": {"id": call.id, "name": call.name, "input": call.input}
            }
            return Ended(reason="tool_deferred", deferred=call, fields=fields)
        notes = [reminder(note) for note in calls.notes]
        self.messages.append({"role": "user", "content": [*results, *notes]})
        if self._output:
            self.text = json.dumps(self._output[-1], ensure_ascii=False, separators=(",", ":"))
            return Ended(reason="completed", fields={"structured_output": self._output[-1]})
        if self._bad_outputs >= _OUTPUT_TRIES:
            text = f"Failed to provide valid structured output after {_OUTPUT_TRIES} attempts"
            text += f" — last StructuredOutput error: {results[-1]['content']}"
            return Ended(reason="structured_output_retry_exhausted", errors=(text,))
        if calls.stop_reason is not None:
            self.text = ""
            return Ended(reason="hook_stopped")
        return None

    async def _after_text(self, body: JsonObject) -> Ended | None:
        """What follows a message that calls no tool."""
        stop = body["stop_reason"]
        if stop == "refusal":
            self._refused(body)
        elif stop == "max_tokens":
            self._cuts += 1
            if self._cuts > _CUT_OFF_TRIES:
                raise ApiError(
                    "API Error: Claude's response exceeded the output token maximum.",
                    error="max_output_tokens",
                    facts={"api_error": "max_output_tokens"},
                    more={"api_error_params": {"cut": "output_limit"}},
                )
            self._tell_model(_GO_ON)
        elif self._schema is not None and self.speaker.is_main and not self._nudges:
            self._nudges += 1
            self._tell_model(_NUDGE)
        else:
            return await self._stop()
        return None

    async def _stop(self) -> Ended | None:
        """Ask the hooks whether it is really over."""
        run, speaker = self._run, self.speaker
        fields: JsonObject = {
            "stop_hook_active": self._is_stop_hook_active,
            "last_assistant_message": self.text,
            "background_tasks": [],
            "session_crons": [],
        }
        event = "Stop"
        if not speaker.is_main:
            event = "SubagentStop"
            named: JsonObject = {
                "agent_id": speaker.agent_id,
                "agent_type": speaker.agent_type,
                "agent_transcript_path": str(run.transcript.agent_path(speaker.agent_id or "")),
            }
            fields = named | fields
        verdict = await run.hooks.fire(event, fields, subject=speaker.agent_type)
        if verdict.stop_reason is not None:
            return Ended(reason="stop_hook_prevented")
        if verdict.blocked is not None:
            self._is_stop_hook_active = True
            self._tell_model(f"{event} hook feedback:\n{verdict.blocked}")
            if speaker.is_main:
                run.say(frames.stop_hook_error(event))
            return None
        if verdict.additional_context:
            self._is_stop_hook_active = True
            notes = [reminder(note) for note in verdict.reminders]
            self.messages.append({"role": "user", "content": notes})
            return None
        return Ended(reason="completed")

    def _has_spent_all(self) -> bool:
        limit = self._run.invocation.max_budget_usd
        return limit is not None and self._run.meter.cost_usd >= limit

    def _over_budget(self) -> Ended:
        # As JavaScript writes numbers: without an exponent.
        amount = f"{self._run.invocation.max_budget_usd:.9f}".rstrip("0").rstrip(".")
        return Ended(reason="budget_exhausted", errors=(f"Reached maximum budget (${amount})",))

    def _refused(self, body: JsonObject) -> None:
        """Continue after a refusal: once with a note, once with another model; then raises `ApiError`."""
        run, shown = self._run, displayed(self.model)
        details = as_object(body.get("stop_details"))
        category, explanation = details.get("category"), details.get("explanation")
        self._refusals += 1
        self.safety_stops += 1
        if self._refusals == 1 and body["content"]:
            text = f"{shown}'s safeguards stopped the response above · continuing once with that noted"
            run.say(frames.informational(text, "notice"))
            self._tell_model(_STOPPED, refused_message_id=body["id"])
            return
        facts: JsonObject = {
            "request_id": self.request_id,
            "api_refusal_category": category,
            "api_refusal_explanation": explanation,
            "refused_user_message_uuid": self._prompt_uuid,
        }
        other = _CYBER_MODEL if category == "cyber" else _OTHER_MODEL
        if self._refusals <= 2 and self.model not in (_CYBER_MODEL, other):
            self._refusals = 2
            notice: JsonObject = {
                "type": "system",
                "subtype": "model_refusal_fallback",
                "trigger": "refusal",
                "direction": "retry",
                "scope": "session",
                "original_model": self.model,
                "fallback_model": other,
                **facts,
                "retracted_message_uuids": list(self._uuids_of_message),
                "content": f"{shown}'s safeguards flagged this session; {displayed(other)} goes on.",
            }
            run.say(notice)
            # Another model answers in its place.
            self._superseded = list(self._uuids_of_message)
            if self.messages and self.messages[-1]["role"] == "assistant":
                self.messages.pop()
            self.model = other
            return
        notice = {"type": "system", "subtype": "model_refusal_no_fallback", "original_model": self.model}
        run.say({**notice, **facts, "content": ""})
        raise ApiError(
            f"API Error: {shown}'s safeguards flagged this message. Change it, or use another model.",
            error="invalid_request",
            request_id=self.request_id,
            stop_details={"type": "refusal", "category": category, "explanation": explanation},
            more={"refused_message_id": body["id"]},
        )

    def _tell_model(self, text: str, **fields: object) -> None:
        """Send this to the model in place of the user, and continue."""
        block: JsonObject = {"type": "text", "text": text}
        uuid = str(uuid4())
        self.messages.append({"role": "user", "content": [block]})
        self.num_turns += 1
        if self.speaker.is_main:
            self._run.say(frames.user([block], self.speaker, uuid=uuid, isSynthetic=True, **fields))
        self._run.transcript.append_user(
            {"role": "user", "content": [block]}, uuid=uuid, agent_id=self.speaker.agent_id, isMeta=True
        )

    # What is called.

    def spec(self, name: str) -> ToolSpec | None:
        asked = "Agent" if name == "Task" else name
        return next((spec for spec in self.tools() if spec.name == asked), None)

    def take_output(self, call: ToolCall) -> Outcome:
        """The structured answer."""
        if (wrong := _check_output(call.input, self._schema or {})) is not None:
            self._bad_outputs += 1
            return ToolFailed(f"Output does not match required schema: {wrong}").outcome()
        self._output.append(call.input)
        text = "Structured output provided successfully"
        return Outcome(content=text, detail=text)

    def count(self, body: JsonObject) -> None:
        """Count what a message has used."""
        tally = self._run.meter.add(str(body["model"]), body["usage"], is_main=self.speaker.is_main)
        self.tally.add(tally)

    # What the model says, piece by piece.

    def marks(self, *names: str) -> JsonObject:
        """The fields that tie frames to the prompts of the turn."""
        if not self.uuids or not self.speaker.is_main:
            return {}
        known: JsonObject = {"user_message_uuid": self.uuids[-1], "user_message_uuids": list(self.uuids)}
        return {name: known[name] for name in names}

    @property
    def is_asked(self) -> bool:
        """Whether the model was asked at all."""
        return self._rounds > 0

    def first_usage(self) -> JsonObject:
        """What the first request of the turn used, as its result tells it."""
        names = ("input_tokens", "cache_read_input_tokens")
        return {f"first_request_{name}": self._first_usage.get(name, 0) for name in names}

    def first_marks(self) -> JsonObject:
        """The marks of the first message, if it is still to come."""
        return {} if self._has_marked else self.marks("user_message_uuid", "user_message_uuids")

    async def _speak(self) -> JsonObject:
        """Have the model say its next message, and write each block as it is finished. Raises `ApiError`."""
        run, began = self._run, time.monotonic()
        if self._is_streamed:
            status: JsonObject = {"type": "system", "subtype": "status", "status": "requesting"}
            run.say(status | self.marks("user_message_uuids"))
        answer, body, self.request_id = await run.script_model.answer(self)
        gate, passed = answer.gate, 0
        # An answer that is too short is held before its end.
        held_at = -1 if gate is None else min(gate.after, count_pieces(answer))
        if gate is not None and held_at == 0:
            await wait_at(gate)
        if self._is_streamed:
            run.show_prompts()
        self._body, self.is_streaming, self._open_block = body, True, None
        self._uuids_of_message, self._kept, self._texts = [], [], []
        thought, thinking_began = 0, 0.0
        for event, is_piece in events_of(answer, body):
            kind, index = event["type"], int(event.get("index", 0))
            extra: JsonObject = {}
            if kind == "content_block_start":
                block = answer.blocks[index]
                if isinstance(block, ToolUse) and block.result is not None:
                    run.scripted_results[body["content"][index]["id"]] = block.result
                thinking_began, thought = time.monotonic(), 0
                self._pieces, self._open_block = [], index
            if kind.startswith("content_block") and isinstance(answer.blocks[index], Thinking):
                extra = {"thinking_display": "updates"}
            if kind == "content_block_delta":
                if is_piece and answer.delay:
                    await anyio.sleep(answer.delay)
                thought += self._say_thinking(event["delta"], thought)
                extra = extra if is_piece else {}
            elif kind == "content_block_stop":
                if extra and self.speaker.is_main:
                    extra["thinking_duration_ms"] = int((time.monotonic() - thinking_began) * 1000)
                await self._finish_block(body["content"][index], extra if self.speaker.is_main else {})
                extra = {}
            self._say_event(event, **extra)
            if is_piece:
                self._pieces.append(event["delta"].get("text", ""))
                passed += 1
                if gate is not None and passed == held_at:
                    await wait_at(gate)
            elif kind == "content_block_stop":
                # What is called begins before the next block is there.
                await anyio.lowlevel.checkpoint()
        self.is_streaming = False
        self._first_usage = self._first_usage or body["usage"]
        self.count(body)
        if not self._has_spent_all():
            self._start_calls()
        self.stop_reason = body["stop_reason"]
        self._keep()
        self.text = self._texts[-1] if self._texts else ""
        run.meter.api_ms += int((time.monotonic() - began) * 1000)
        return body

    def say_beginning(self, text: str, id: str) -> None:
        """Write the beginning of a message that is never finished."""
        answer = say(text)
        self._body = message_of(answer, id=id, model=self.model)
        for event, is_piece in events_of(answer, self._body):
            self._say_event(event)
            if is_piece:
                break

    def _say_event(self, event: JsonObject, **fields: object) -> None:
        if not self._is_streamed:
            return
        if event["type"] == "message_start":
            marks = self.first_marks()
            fields |= {"ttft_ms": 1, "thinking_display": "updates"} | marks
            if marks:
                fields["owed_rows"] = []
        self._run.say(frames.stream_event(event, **fields, api_message_id=self._body["id"]))

    def _say_thinking(self, delta: JsonObject, so_far: int) -> int:
        """Tell how much was thought; returns the tokens of this piece. A valid signature counts as one."""
        text = delta.get("thinking", "" if _is_signature(delta.get("signature")) else None)
        if text is None or not self.speaker.is_main:
            return 0
        tokens = -(-len(text) // _CHARACTERS_PER_TOKEN) or int("signature" in delta)
        frame: JsonObject = {"type": "system", "subtype": "thinking_tokens"}
        frame |= {"estimated_tokens": so_far + tokens, "estimated_tokens_delta": tokens}
        self._run.say(frame | self.marks("user_message_uuid"))
        return tokens

    async def _displayed(self, block: JsonObject) -> JsonObject:
        """A text as hooks want it to be shown."""
        if block["type"] != "text" or not block["text"] or not self.speaker.is_main:
            return block
        id = str(uuid4())
        fields: JsonObject = {"turn_id": self._turn_id, "message_id": id, "index": 0, "final": True}
        fields["delta"] = block["text"]
        verdict = await self._run.hooks.fire("MessageDisplay", fields, tool_use_id=f"{id}-0")
        for output in verdict.output:
            shown = as_object(output.get("hookSpecificOutput")).get("displayContent")
            if isinstance(shown, str):
                return {**block, "text": shown}
        return block

    async def _finish_block(self, block: JsonObject, fields: JsonObject) -> None:
        shown = await self._displayed(block)
        self._open_block = None
        call: ToolCall | None = None
        if block["type"] == "tool_use":
            call = self._call(block)
            block = shown = {**block, "input": call.input}
        self._kept.append(block)
        if shown["type"] == "text":
            self._texts.append(str(shown["text"]))
        speaker = self.speaker
        if call is not None and not (speaker.is_main or speaker.is_background):
            self._run.subagents.note_call(self, call)
        self._say_block(block, call, fields, shown)
        if call is None:
            return
        if speaker.is_background:
            self._run.subagents.note_call(self, call)
        self.used_tools.append(call.name)
        self._held_calls.append(call)
        # With a budget, it shows first whether there is anything left of it.
        if self._run.invocation.max_budget_usd is None:
            self._start_calls()

    def _start_calls(self) -> None:
        held, self._held_calls = self._held_calls, []
        for call in held if self.calls is not None else ():
            cast("Calls", self.calls).start(call)

    def _say_block(
        self, block: JsonObject, call: ToolCall | None, fields: JsonObject, shown: JsonObject
    ) -> None:
        run, speaker = self._run, self.speaker
        message: JsonObject = {
            "id": self._body["id"],
            "type": "message",
            "role": "assistant",
            "model": self._body["model"],
            "content": [block],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {**self._body["usage"], "output_tokens": 1},
            "context_management": None,
        }
        uuid = str(uuid4())
        self._uuids_of_message.append(uuid)
        more: JsonObject = dict(fields)
        if self._superseded:
            more["supersedes"], self._superseded = self._superseded, []
        more |= self.first_marks()
        self._has_marked = True
        if call is not None and (meta := run.mcp.tool_meta(call)) is not None:
            more["tool_use_meta"] = [meta]
        is_told = call is not None or speaker.is_main or speaker.is_background
        if speaker.is_shown and (is_told or run.introspection.forwards_text):
            run.show_prompts()
            shown_message = {**message, "content": [shown]}
            run.say(frames.assistant(shown_message, speaker, request_id=self.request_id, uuid=uuid, **more))
        run.transcript.append_assistant(message, uuid=uuid, agent_id=speaker.agent_id)

    def _call(self, block: JsonObject) -> ToolCall:
        name = "Agent" if block["name"] == "Task" else str(block["name"])
        given: JsonObject = block["input"]
        if name == "Edit":
            given = {**given, "replace_all": given.get("replace_all", False)}
        agent_id, agent_type = self.speaker.agent_id, self.speaker.agent_type
        call = ToolCall(id=str(block["id"]), name=name, input=given, agent_id=agent_id, agent_type=agent_type)
        return self._run.questions.filled(call) if self._run.questions.owns(name) else call

    def _keep(self) -> None:
        if self._kept:
            self.messages.append({"role": "assistant", "content": list(self._kept)})

    # Cut off.

    def cut_off(self) -> None:
        """Write what there is of a message that will not be finished."""
        self.is_streaming, self._is_cut = False, True
        text = "".join(self._pieces)
        if self._open_block is not None and text:
            self._kept.append({"type": "text", "text": text})
            self._say_block(self._kept[-1], None, {"aborted": True}, self._kept[-1])
            self.text = text
        self._first_usage = self._first_usage or self._body["usage"]
        self._keep()
        self.stop_reason = None

    def end_stream(self) -> None:
        """Write the end of the stream of a message that was cut off, which the program makes up."""
        if not self._is_cut:
            return
        self._is_cut = False
        more: JsonObject = {}
        if (index := self._open_block) is not None:
            self._say_event({"type": "content_block_stop", "index": index})
            more["abandoned_blocks"] = {"api_message_id": self._body["id"], "from_block_index": index + 1}
        delta: JsonObject = dict.fromkeys(("container", "stop_details", "stop_reason", "stop_sequence"))
        usage = {**self._body["usage"], "output_tokens": 1}
        self._say_event({"type": "message_delta", "context_management": None, "delta": delta, "usage": usage})
        self._say_event({"type": "message_stop"}, **more)


def _is_signature(value: object) -> bool:
    try:
        return isinstance(value, str) and bool(base64.b64decode(value, validate=True))
    except ValueError:
        return False


# Structured output.


def _check_output(value: object, schema: JsonObject) -> str | None:
    """The first thing that does not fit, as `/path: what`; none if all does. Raises `OptionsError` if
    `jsonschema` is not installed."""
    found = next(iter(JsonSchema(schema, extra="testing").errors(value)), None)
    if found is None:
        return None
    path = "".join(f"/{step}" for step in found.absolute_path) or "root"
    if found.validator != "type":
        return f"{path}: {found.message}"
    kinds: object = found.validator_value
    named = cast("list[object]", kinds) if isinstance(kinds, list) else [kinds]
    return f"{path}: must be {','.join(map(str, named))}"
