"""Owns a conversation with the model, round by round: the user's, or a subagent's.

Does not begin or end turns.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast
from uuid import uuid4

import anyio
import msgspec

from outrider.handlers._tools.shape_errors import JsonSchema
from outrider.testing._simulator import frames
from outrider.testing._simulator.context import Outcome, ToolCall, ToolFailed, ToolSpec, as_object
from outrider.testing._simulator.frames import Tally, displayed, reminder
from outrider.testing._simulator.model import ApiError
from outrider.testing._simulator.tools.calls import Calls
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from outrider.testing._simulator.run import Run

__all__ = ["Ended", "ModelLoop", "check_schema"]


_STOPPED: Final = (
    "Your response above was stopped by a safeguard. Go on in another way, or say what you cannot do."
)
_OTHER_MODELS: Final = {"cyber": "claude-opus-4-8"}
"""What goes on, by what was refused."""
_OTHER_MODEL: Final = "claude-opus-5"


class _Refusals:
    """The refusals of one conversation."""

    def __init__(self, run: Run, loop: ModelLoop) -> None:
        self._run, self._loop = run, loop
        self._count = 0

    def take(self, body: JsonObject, request_id: str, prompt_uuid: str | None) -> None:
        """Take a message that is a refusal: the conversation goes on. Raises `ApiError` if it cannot."""
        loop = self._loop
        details: JsonObject = body.get("stop_details") or {}
        facts: JsonObject = {
            "request_id": request_id,
            "api_refusal_category": details.get("category"),
            "api_refusal_explanation": details.get("explanation"),
            "refused_user_message_uuid": prompt_uuid,
        }
        self._count += 1
        loop.safety_stops += 1
        shown = displayed(loop.model)
        if self._count == 1 and body["content"]:
            text = f"{shown}'s safeguards stopped the response above · continuing once with that noted"
            self._run.say(frames.informational(text, "notice"))
            loop.tell_model(_STOPPED, refused_message_id=body["id"])
            return
        other = _OTHER_MODELS.get(str(details.get("category")), _OTHER_MODEL)
        if self._count <= 2 and loop.model not in (*_OTHER_MODELS.values(), other):
            self._fall_back(other, facts)
            return
        self._give_up(body, details, facts)

    def _fall_back(self, other: str, facts: JsonObject) -> None:
        loop = self._loop
        self._count = 2
        shown = displayed(loop.model)
        self._run.say(
            {
                "type": "system",
                "subtype": "model_refusal_fallback",
                "trigger": "refusal",
                "direction": "retry",
                "scope": "session",
                "original_model": loop.model,
                "fallback_model": other,
                **facts,
                "retracted_message_uuids": loop.retract(),
                "content": f"{shown}'s safeguards flagged this session; {displayed(other)} goes on.",
            }
        )
        loop.model = other

    def _give_up(self, body: JsonObject, details: JsonObject, facts: JsonObject) -> None:
        loop = self._loop
        told: JsonObject = {"type": "system", "subtype": "model_refusal_no_fallback"}
        self._run.say(told | {"original_model": loop.model, **facts, "content": ""})
        text = f"{displayed(loop.model)}'s safeguards flagged this message. Change it, or use another model."
        error = ApiError(f"API Error: {text}", error="invalid_request", request_id=str(facts["request_id"]))
        error.stop_details = {
            "type": "refusal",
            "category": details.get("category"),
            "explanation": details.get("explanation"),
        }
        error.refused_message_id = body["id"]
        raise error


_OUTPUT_TRIES: Final = 5
_CUT_OFF_TRIES: Final = 3
_NUDGE: Final = (
    "[structured-output-enforce] You MUST call the StructuredOutput tool to complete this request. "
    "Call this tool now."
)
_GO_ON: Final = "Output token limit hit. Resume directly where you stopped, without an apology or a recap."


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How a conversation came to a stop."""

    reason: str
    """`terminal_reason`."""
    error: ApiError | None = None
    errors: tuple[str, ...] = ()
    deferred: ToolCall | None = None
    output: object = None
    has_output: bool = False


class ModelLoop:
    """One conversation. `run` goes on with it until the model has nothing more to do."""

    def __init__(
        self,
        run: Run,
        speaker: frames.Speaker,
        messages: list[JsonObject],
        *,
        model: str,
        tools: Callable[[], list[ToolSpec]],
        system: object,
        max_turns: int | None = None,
        schema: JsonObject | None = None,
        uuids: list[str] | None = None,
    ) -> None:
        self._run = run
        self.speaker = speaker
        self.messages = messages
        self.model = model
        self.tools = tools
        self.system = system
        self.uuids = uuids or []
        """The prompts that are answered."""
        self._prompt_uuid = self.uuids[-1] if self.uuids else str(uuid4())
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
        self.is_streaming = False
        self._max_turns = max_turns
        self._schema = schema
        self._rounds = 0
        self._first_usage: JsonObject = {}
        self._has_marked = False
        self._body: JsonObject = {}
        self.request_id = ""
        self._pieces: list[str] = []
        self._kept: list[JsonObject] = []
        self._texts: list[str] = []
        """Of a message, as they are shown."""
        self._held_calls: list[ToolCall] = []
        self._open_block: int | None = None
        self._cut_at: int | None = None
        self._is_cut = False
        self._block_count = 0
        self._uuids_of_message: list[str] = []
        self._superseded: list[str] = []
        self._output: list[object] = []
        self._bad_outputs = 0
        self._nudges = 0
        self._cuts = 0
        self._refusals = _Refusals(run, self)
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
        if (limit := run.invocation.max_budget_usd) is not None and run.meter.cost_usd >= limit:
            return self._over_budget(limit)
        body: JsonObject = {}
        calls: Calls | None = None
        results: list[JsonObject] = []
        failure: ApiError | None = None
        async with anyio.create_task_group() as tasks:
            self.calls = calls = Calls(run, self, tasks)
            try:
                body = await run.script_model.answer(self)
                results = await calls.wait()
            except ApiError as error:
                # Raised outside: a task group would wrap it.
                failure = error
            if failure is not None or calls.is_interrupted:
                tasks.cancel_scope.cancel()
        if failure is not None or calls is None:
            raise failure or RuntimeError
        self._rounds += 1
        return await self._after(body, results, calls)

    async def _after(self, body: JsonObject, results: list[JsonObject], calls: Calls) -> Ended | None:
        run = self._run
        if not calls.is_interrupted:
            limit = run.invocation.max_budget_usd
            if limit is not None and run.meter.cost_usd >= limit:
                return self._over_budget(limit)
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
        if calls.deferred is not None:
            self.stop_reason = "tool_deferred"
            return Ended(reason="tool_deferred", deferred=calls.deferred)
        notes = [reminder(note) for note in calls.notes]
        self.messages.append({"role": "user", "content": [*results, *notes]})
        if self._output:
            self.text = json.dumps(self._output[-1], ensure_ascii=False, separators=(",", ":"))
            return Ended(reason="completed", output=self._output[-1], has_output=True)
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
            self._refusals.take(body, self.request_id, self._prompt_uuid)
            return None
        if stop == "max_tokens":
            self._cuts += 1
            if self._cuts > _CUT_OFF_TRIES:
                error = ApiError(
                    "API Error: Claude's response exceeded the output token maximum.",
                    error="max_output_tokens",
                    api_error="max_output_tokens",
                )
                error.cut = "output_limit"
                raise error
            self.tell_model(_GO_ON)
            return None
        if self._schema is not None and self.speaker.is_main and not self._nudges:
            self._nudges += 1
            self.tell_model(_NUDGE)
            return None
        return await self._stop()

    async def _stop(self) -> Ended | None:
        """Ask the hooks whether it is really over."""
        run, speaker = self._run, self.speaker
        fields: JsonObject = {
            "stop_hook_active": self._is_stop_hook_active,
            "last_assistant_message": self.text,
            "background_tasks": [],
            "session_crons": [],
        }
        if speaker.is_main:
            event = "Stop"
            verdict = await run.hooks.fire(event, fields)
        else:
            event = "SubagentStop"
            path = run.transcript.path_of(run.session_id).with_suffix("")
            named = {
                "agent_id": speaker.agent_id,
                "agent_type": speaker.agent_type,
                "agent_transcript_path": str(path / "subagents" / f"agent-{speaker.agent_id}.jsonl"),
            }
            verdict = await run.hooks.fire(event, named | fields, subject=speaker.agent_type)
        if verdict.stop_reason is not None:
            return Ended(reason="stop_hook_prevented")
        if verdict.blocked is not None:
            self._is_stop_hook_active = True
            self.tell_model(f"{event} hook feedback:\n{verdict.blocked}")
            if speaker.is_main:
                run.say(frames.stop_hook_error(event))
            return None
        if verdict.additional_context:
            self._is_stop_hook_active = True
            notes = [reminder(note) for note in verdict.reminders]
            self.messages.append({"role": "user", "content": notes})
            return None
        return Ended(reason="completed")

    def _over_budget(self, limit: float) -> Ended:
        # As JavaScript writes numbers: small ones, too, without an exponent.
        amount = f"{limit:.6f}".rstrip("0").rstrip(".") if limit >= 1e-6 else repr(limit)
        return Ended(reason="budget_exhausted", errors=(f"Reached maximum budget (${amount})",))

    def retract(self) -> list[str]:
        """Take the last message back, because another model will answer; gives the uuids of its frames."""
        self._superseded = list(self._uuids_of_message)
        if self.messages and self.messages[-1]["role"] == "assistant":
            self.messages.pop()
        return self._superseded

    def tell_model(self, text: str, **fields: object) -> None:
        """Go on with this, said in the place of the user."""
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
        wrong = _check_output(call.input, self._schema or {})
        if wrong is not None:
            self._bad_outputs += 1
            text = f"Output does not match required schema: {wrong}"
            return ToolFailed(text).outcome()
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
        return {
            f"first_request_{name}": self._first_usage.get(name, 0)
            for name in ("input_tokens", "cache_read_input_tokens")
        }

    def first_marks(self) -> JsonObject:
        """The marks of the first message, if it is still to come."""
        return {} if self._has_marked else self.marks("user_message_uuid", "user_message_uuids")

    def begin_message(self, body: JsonObject, request_id: str) -> None:
        if self.speaker.is_main and self._run.invocation.include_partial_messages:
            self._run.show_prompts()
        self._body, self.request_id = body, request_id
        self._uuids_of_message = []
        self._block_count = 0
        self._open_block = None
        self._kept = []
        self._texts = []
        self.is_streaming = True

    def begin_block(self) -> None:
        self._pieces = []
        self._open_block = self._block_count

    def add_piece(self, text: str) -> None:
        self._pieces.append(text)

    async def displayed(self, block: JsonObject) -> JsonObject:
        """A text as hooks want it to be shown."""
        if block["type"] != "text" or not block["text"] or not self.speaker.is_main:
            return block
        id = str(uuid4())
        fields: JsonObject = {
            "turn_id": self._turn_id,
            "message_id": id,
            "index": 0,
            "final": True,
            "delta": block["text"],
        }
        verdict = await self._run.hooks.fire("MessageDisplay", fields, tool_use_id=f"{id}-0")
        for output in verdict.output:
            shown = as_object(output.get("hookSpecificOutput")).get("displayContent")
            if isinstance(shown, str):
                return {**block, "text": shown}
        return block

    def finish_block(self, block: JsonObject, fields: JsonObject, shown: JsonObject) -> None:
        self._block_count += 1
        self._open_block = None
        call: ToolCall | None = None
        if block["type"] == "tool_use":
            call = self._call(block)
            block = shown = {**block, "input": call.input}
        self._kept.append(block)
        if shown["type"] == "text":
            self._texts.append(shown["text"])
        is_foreground = not (self.speaker.is_main or self.speaker.is_background)
        if call is not None and is_foreground:
            self._run.subagents.note_call(self, call)
        self._say_block(block, call, fields, shown)
        if call is not None and self.speaker.is_background:
            self._run.subagents.note_call(self, call)
        if call is not None and self.calls is not None:
            self.used_tools.append(call.name)
            self._held_calls.append(call)
            # With a budget, it shows first whether there is anything left of it.
            if self._run.invocation.max_budget_usd is None:
                self._start_calls(self.calls)

    def _start_calls(self, calls: Calls) -> None:
        held, self._held_calls = self._held_calls, []
        for call in held:
            calls.start(call)

    def _say_block(
        self, block: JsonObject, call: ToolCall | None, fields: JsonObject, shown: JsonObject
    ) -> None:
        run, speaker = self._run, self.speaker
        usage = {**self._body["usage"], "output_tokens": 1}
        message: JsonObject = {
            "id": self._body["id"],
            "type": "message",
            "role": "assistant",
            "model": self._body["model"],
            "content": [block],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage,
            "context_management": None,
        }
        uuid = str(uuid4())
        self._uuids_of_message.append(uuid)
        more: JsonObject = dict(fields)
        if self._superseded:
            more["supersedes"], self._superseded = self._superseded, []
        if not self._has_marked:
            more |= self.marks("user_message_uuid", "user_message_uuids")
            self._has_marked = True
        if call is not None and (meta := run.mcp.tool_meta(call)) is not None:
            more["tool_use_meta"] = [meta]
        is_told = (
            call is not None or speaker.is_main or speaker.is_background or run.introspection.forwards_text
        )
        if is_told and speaker.is_shown:
            run.show_prompts()
            told = {**message, "content": [shown]}
            frame = frames.assistant(told, speaker, request_id=self.request_id, uuid=uuid, **more)
            run.say(frame)
        run.transcript.append_assistant(message, uuid=uuid, agent_id=speaker.agent_id)

    def _call(self, block: JsonObject) -> ToolCall:
        name = "Agent" if block["name"] == "Task" else str(block["name"])
        speaker = self.speaker
        call = ToolCall(
            id=str(block["id"]),
            name=name,
            input=block["input"],
            agent_id=speaker.agent_id,
            agent_type=speaker.agent_type,
        )
        if name == "Edit":
            filled = {**call.input, "replace_all": call.input.get("replace_all", False)}
            return msgspec.structs.replace(call, input=filled)
        return self._run.questions.filled(call) if self._run.questions.owns(name) else call

    def finish_message(self, body: JsonObject) -> None:
        """The message is there: count it, and keep it for the next request."""
        self.is_streaming = False
        self._first_usage = self._first_usage or body["usage"]
        self.count(body)
        limit = self._run.invocation.max_budget_usd
        if self.calls is not None and (limit is None or self._run.meter.cost_usd < limit):
            self._start_calls(self.calls)
        self.stop_reason = body["stop_reason"]
        self._keep()
        self.text = self._texts[-1] if self._texts else ""

    def _keep(self) -> None:
        if self._kept:
            self.messages.append({"role": "assistant", "content": list(self._kept)})

    # Cut off.

    def cut_off(self) -> None:
        """Write what there is of a message that will not be finished."""
        self.is_streaming = False
        text = "".join(self._pieces)
        open_block = self._open_block
        if open_block is not None and text:
            self._kept.append({"type": "text", "text": text})
            self._say_block(self._kept[-1], None, {"aborted": True}, self._kept[-1])
            self.text = text
        self._first_usage = self._first_usage or self._body["usage"]
        self._cut_at = open_block
        self._is_cut = True
        self._keep()
        self.stop_reason = None

    def end_stream(self) -> None:
        """Write the end of the stream of a message that was cut off."""
        if self._is_cut:
            self._is_cut = False
            self._run.script_model.abandon(self, self._body, self._cut_at)


# Structured output.

_SCHEMA_TYPES: Final = frozenset(["object", "array", "string", "integer", "number", "boolean", "null"])
_SCHEMA_TEXTS: Final = {
    "additionalProperties": "must NOT have additional properties",
    "const": "must be equal to constant",
    "enum": "must be equal to one of the allowed values",
}


def check_schema(schema: JsonObject) -> str | None:
    """What is wrong with a schema, if it is not one."""
    if all(kind in _SCHEMA_TYPES for kind in _listed(schema.get("type", "object"))):
        return None
    return (
        "data/type must be equal to one of the allowed values, data/type must be array, "
        "data/type must match a schema in anyOf"
    )


def _check_output(value: object, schema: JsonObject) -> str | None:
    """The first thing that does not fit, as `/path: what`; none if all does.

    Raises `OptionsError` if `jsonschema` is not installed.
    """
    found = next(iter(JsonSchema(schema, extra="testing").errors(value)), None)
    if found is None:
        return None
    path = "".join(f"/{step}" for step in found.absolute_path) or "root"
    match found.validator:
        case "type":
            return f"{path}: must be {','.join(map(str, _listed(found.validator_value)))}"
        case "required":
            names = set(cast("JsonObject", found.instance))
            missing = next(name for name in _listed(found.validator_value) if name not in names)
            return f"{path}: must have required property '{missing}'"
        case keyword:
            return f"{path}: {_SCHEMA_TEXTS.get(keyword or '', found.message)}"


def _listed(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else [value]
