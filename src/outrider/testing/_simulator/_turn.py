"""Owns a turn of the main conversation, from its prompts to its result.

How the model is asked and its tools are called is in `_talk`; local commands are in `_local_commands`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Literal
from uuid import uuid4

import anyio

from outrider.testing._simulator import _frames as frames
from outrider.testing._simulator._calls import reminder
from outrider.testing._simulator._local_commands import LocalCommands
from outrider.testing._simulator._queue import Prompt, joined
from outrider.testing._simulator._talk import Ended, Talk
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from outrider.testing._simulator._failing import ApiError
    from outrider.testing._simulator._run import Run

__all__ = ["Turn"]

_SUBTYPES = {
    "max_turns": "error_max_turns",
    "budget_exhausted": "error_max_budget_usd",
    "structured_output_retry_exhausted": "error_max_structured_output_retries",
}


class Turn:
    """One turn: some prompts, and the result that answers them all."""

    def __init__(self, run: Run, prompts: list[Prompt]) -> None:
        self._run = run
        self.prompts = prompts
        self.content = joined(prompts)
        self.uuids = [prompt.uuid for prompt in prompts if prompt.uuid is not None]
        """Of its prompts, also those that it took up later."""
        self.talk: Talk | None = None
        self._scope = anyio.CancelScope()
        self._why: Literal["interrupt", "now"] | None = None
        self._folded: list[str] = []
        self._is_begun = False
        self._has_shown = False
        self._began = time.monotonic()
        self._began_wall = time.time()
        self._is_over = False

    def interrupt(self, why: Literal["interrupt", "now"] = "interrupt") -> None:
        """End it as soon as possible."""
        if not self._is_over and self._why is None:
            self._why = why
            self._scope.cancel()

    async def run(self) -> None:
        """Answer the prompts. What follows the result is written too."""
        run = self._run
        run.meter.begin_turn()
        run.subagents.reset()
        for uuid in self.uuids:
            run.say(frames.lifecycle(uuid, "started"))
        fields: JsonObject | None = None
        with self._scope:
            fields = await self._answer()
        self._is_over = True
        if fields is None:
            fields = self._aborted()
        is_done = not fields["is_error"] and self._why is None
        await self._end(fields, is_done=is_done)

    async def _end(self, fields: JsonObject, *, is_done: bool) -> None:
        run = self._run
        state = "completed" if is_done else "cancelled"
        for uuid in self._folded:
            run.say(frames.lifecycle(uuid, state))
        run.write_result(self._whole(fields))
        for uuid in self.uuids:
            if uuid not in self._folded:
                run.say(frames.lifecycle(uuid, state))

    async def _answer(self) -> JsonObject:
        run, first = self._run, self.prompts[0]
        await run.mcp.settle()
        if (command := LocalCommands(run, self).find(first)) is not None:
            return await command()
        if not first.should_query:
            self.begin()
            self.show()
            self._keep()
            return self._local("")
        run.hooks.prompt_id = str(uuid4())
        with run.holding("informational") as held:
            stopped = await self._submit()
        self.begin()
        for frame in held:
            run.say(frame)
        if isinstance(stopped, dict):
            run.say(stopped)
            return self._local(str(stopped["content"]))
        self._keep(*stopped)
        talk = self._begin_talk()
        if run.take_latched_interrupt():
            self.interrupt()
            await anyio.lowlevel.checkpoint()
        ended = await talk.run()
        return self._ended(talk, ended)

    def _begin_talk(self) -> Talk:
        run = self._run
        self.talk = Talk(
            run,
            frames.Speaker(),
            run.messages,
            model=run.model,
            tools=run.offered,
            system=run.offer.system_prompt(),
            max_turns=run.invocation.max_turns,
            schema=run.offer.schema,
            uuids=self.uuids,
        )
        return self.talk

    async def _submit(self) -> JsonObject | list[str]:
        """Ask the hooks about the prompt: what they add to it, or the notice that they hold it back."""
        run = self._run
        if self.prompts[0].origin is not None and not self.prompts[0].is_synthetic:
            return []
        text = "\n".join(prompt.text for prompt in self.prompts)
        titled = {"session_title": run.title} if run.title is not None else {}
        verdict = await run.hooks.fire("UserPromptSubmit", {"prompt": text, **titled})
        if verdict.session_title is not None:
            run.set_title(verdict.session_title)
        if verdict.refusal is None:
            return list(verdict.reminders)
        if verdict.prompt_kept:
            self._keep()
        return verdict.refusal

    def begin(self) -> None:
        """Write what a turn begins with, once."""
        if not self._is_begun:
            self._is_begun = True
            self._run.say(self._run.offer.init_frame(self.uuids))

    def show(self) -> None:
        """Write the prompts back, once, if the host wants to see them."""
        if self._has_shown:
            return
        self._has_shown = True
        first = self.prompts[0]
        if self._run.invocation.replay_user_messages and first.origin is None:
            uuid = self.uuids[-1] if self.uuids else None
            self._run.say(frames.replay(self.content, uuid=uuid))

    def fold(self, prompts: list[Prompt]) -> None:
        """Take up prompts that came while tools ran."""
        run = self._run
        for prompt in prompts:
            if run.invocation.replay_user_messages:
                run.say(frames.replay(prompt.content, uuid=prompt.uuid))
            if prompt.uuid is not None:
                run.say(frames.lifecycle(prompt.uuid, "started"))
                self.uuids.append(prompt.uuid)
                self._folded.append(prompt.uuid)
            # With the results of the tools: the model answers both at once.
            run.messages[-1]["content"] = [*run.messages[-1]["content"], *_blocks(prompt.content)]
            run.transcript.append_user(
                {"role": "user", "content": prompt.content}, uuid=prompt.uuid or str(uuid4())
            )

    def _keep(self, *notes: str, is_own: bool = False) -> None:
        """Add the prompts to the conversation, with what hooks tell the model."""
        run = self._run
        uuid = self.uuids[-1] if self.uuids else str(uuid4())
        content = self.content
        fields: JsonObject = {"isMeta": True} if is_own or self.prompts[0].origin is not None else {}
        run.transcript.append_user({"role": "user", "content": content}, uuid=uuid, **fields)
        reminders = [reminder(note) for note in notes]
        if reminders:
            own: list[JsonObject] = (
                [{"type": "text", "text": content}] if isinstance(content, str) else content
            )
            content = [*own, *reminders]
        run.messages.append({"role": "user", "content": content})

    # How it ended.

    def _ended(self, talk: Talk, ended: Ended) -> JsonObject:
        fields: JsonObject = {
            "stop_reason": talk.stop_reason,
            "terminal_reason": ended.reason,
            "is_error": False,
            "num_turns": talk.num_turns,
            "subtype": "success",
            "api_error_status": None,
            "result": talk.text,
        }
        if ended.error is not None:
            return fields | self._failed(talk, ended.error)
        if ended.reason == "aborted_tools":
            return self._interrupted(talk, "aborted_tools")
        if ended.reason in _SUBTYPES:
            fields |= {"is_error": True, "subtype": _SUBTYPES[ended.reason], "errors": list(ended.errors)}
            if not talk.is_asked:
                fields["stop_reason"] = None
            del fields["result"], fields["api_error_status"]
        if ended.has_output:
            fields["structured_output"] = ended.output
        if ended.deferred is not None:
            call = ended.deferred
            fields["deferred_tool_use"] = {"id": call.id, "name": call.name, "input": call.input}
            del fields["api_error_status"]
        return fields

    def _failed(self, talk: Talk, error: ApiError) -> JsonObject:
        """The message that the program writes in the place of the model, and what the result says."""
        run = self._run
        self.show()
        message = frames.synthetic(error.text, stop_reason=error.stop_reason)
        message["stop_details"] = error.stop_details
        known: JsonObject = {"error": error.error}
        known["is_api_error_message"] = True
        facts: JsonObject = {}
        if error.status is not None:
            facts["api_error_status"] = error.status
        if error.type is not None:
            facts["api_error_type"] = error.type
        if error.api_error is not None:
            facts["api_error"] = error.api_error
        known |= facts
        if error.cut is not None:
            known["api_error_params"] = {"cut": error.cut}
        if error.refused_message_id is not None:
            known["refused_message_id"] = error.refused_message_id
        known |= talk.first_marks()
        uuid = str(uuid4())
        run.say(frames.assistant(message, frames.Speaker(), request_id=error.request_id, uuid=uuid, **known))
        run.transcript.append_assistant(message, uuid=uuid, isApiErrorMessage=True)
        return {"is_error": True, "stop_reason": error.stop_reason, "result": error.text, **facts}

    def _aborted(self) -> JsonObject:
        """The turn was interrupted."""
        run, talk = self._run, self.talk
        self.begin()
        self.show()
        if talk is None:
            self._keep()
            talk = Talk(run, frames.Speaker(), run.messages, model=run.model, tools=run.offered, system="")
            return self._interrupted(talk, "aborted_streaming")
        has_calls = bool(talk.calls) and not talk.is_streaming
        stop_reason = talk.stop_reason if has_calls else None
        if talk.is_streaming:
            talk.cut_off()
        if talk.calls:
            results = talk.calls.abort()
            if results:
                run.messages.append({"role": "user", "content": results})
        talk.stop_reason = stop_reason
        reason = "aborted_tools" if has_calls else "aborted_streaming"
        if self._why == "now":
            talk.end_stream()
            return {
                "stop_reason": talk.stop_reason,
                "terminal_reason": reason,
                "is_error": False,
                "num_turns": talk.num_turns,
                "subtype": "success",
                "api_error_status": None,
                "result": talk.text,
            }
        return self._interrupted(talk, reason)

    def _interrupted(self, talk: Talk, reason: str) -> JsonObject:
        run = self._run
        text = frames.INTERRUPTED_TOOL if reason == "aborted_tools" else frames.INTERRUPTED
        block: JsonObject = {"type": "text", "text": text}
        uuid = str(uuid4())
        run.say(frames.user([block], frames.Speaker(), uuid=uuid))
        talk.end_stream()
        run.transcript.append_user({"role": "user", "content": [block]}, uuid=uuid)
        run.messages.append({"role": "user", "content": [block]})
        talk.count_user_frame()
        stop = "null" if talk.stop_reason is None else talk.stop_reason
        diagnosis = f"[ede_diagnostic] result_type=user last_content_type=n/a stop_reason={stop}"
        return {
            "stop_reason": talk.stop_reason,
            "terminal_reason": reason,
            "is_error": True,
            "num_turns": talk.num_turns,
            "subtype": "error_during_execution",
            "errors": [diagnosis],
        }

    def _local(self, text: str, **fields: object) -> JsonObject:
        """The end of a turn that did not ask the model."""
        return {
            "is_error": False,
            "num_turns": 0,
            "stop_reason": None,
            "subtype": "success",
            "result": text,
            **fields,
        }

    def local(self, text: str, **fields: object) -> JsonObject:
        """The same, for commands."""
        return self._local(text, **fields)

    def _whole(self, fields: JsonObject) -> JsonObject:
        """The result with what every one has. Its type does not come first, as in the program."""
        run = self._run
        took = int((time.monotonic() - self._began) * 1000)
        origin = self.prompts[0].origin
        whole: JsonObject = {
            "duration_api_ms": run.meter.api_ms,
            "stop_reason": fields["stop_reason"],
            "session_id": run.session_id,
            "total_cost_usd": run.meter.cost_usd,
            "usage": run.meter.turn.to_wire(),
            "modelUsage": run.meter.by_model(),
            "permission_denials": list(run.permissions.denials),
        }
        if "terminal_reason" in fields:
            whole["terminal_reason"] = fields["terminal_reason"]
        if origin is not None:
            whole["origin"] = origin
        whole |= {
            "fast_mode_state": "off",
            "fast_mode_disabled_reason": "sdk_opt_in_required",
            "subagent_stats": run.subagents.stats(),
            "safety_stops": 0 if self.talk is None else self.talk.safety_stops,
        }
        whole |= fields
        is_timed = fields["subtype"] == "success" and not fields["is_error"] and bool(fields["num_turns"])
        is_timed = is_timed and fields["stop_reason"] != "tool_deferred"
        if is_timed:
            whole["ttft_ms"] = took
        whole |= {"type": "result", "duration_ms": took, "uuid": str(uuid4())}
        if is_timed:
            whole |= {"ttft_stream_ms": took, "time_to_request_ms": 0, "first_content_frame_ms": took}
        if self.uuids:
            own = [uuid for uuid in self.uuids if uuid not in self._folded]
            # A turn of the agent's own has none but those that came while it ran.
            whole |= {"user_message_uuid": (own or self.uuids)[-1], "user_message_uuids": list(self.uuids)}
            if is_timed and self.talk is not None:
                whole["request_sent_wall_ms"] = int(self._began_wall * 1000)
                whole |= self.talk.first_usage()
        whole |= {"queued_turn_count": 0, "result_index": run.next_result_index()}
        whole["model_usage_since_last_result"] = run.meter.take_new()
        return whole


def _blocks(content: str | list[JsonObject]) -> list[JsonObject]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content
