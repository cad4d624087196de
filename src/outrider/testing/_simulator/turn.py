"""A turn of the main conversation, from its prompts to its result; also `/clear`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Literal, cast
from uuid import uuid4

import anyio
import msgspec

from outrider.testing._simulator import frames
from outrider.testing._simulator.frames import reminder, text_of
from outrider.testing._simulator.host.hooks import Verdict
from outrider.testing._simulator.model import ApiError
from outrider.testing._simulator.model_loop import Ended, ModelLoop
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from outrider.testing._simulator.frames import ToolCall
    from outrider.testing._simulator.run import Run


_ORDER: Final = {"now": 0, "next": 1, "later": 2}


class Prompt(msgspec.Struct, kw_only=True):
    """A message of the user, or one that the program writes itself."""

    content: str | list[JsonObject]
    uuid: str | None = None
    priority: str = "next"
    should_query: bool = True
    is_verbatim: bool = False
    is_synthetic: bool = False
    origin: JsonObject | None = None
    """Of a turn that the program starts itself, and of a synthetic message."""

    @property
    def text(self) -> str:
        return text_of({"content": self.content})

    @property
    def is_command(self) -> bool:
        return self.text.strip().startswith("/") and not self.is_verbatim and self.origin is None

    @property
    def is_clear(self) -> bool:
        return self.is_command and self.text.split()[0] in ("/clear", "/reset", "/new")

    def goes_with(self, other: Prompt) -> bool:
        """Whether both can be answered by one turn."""
        kinds = {(prompt.priority, prompt.is_verbatim, prompt.is_synthetic) for prompt in (self, other)}
        return len(kinds) == 1 and all(
            prompt.should_query and not prompt.is_command and prompt.origin is None
            for prompt in (self, other)
        )

    @classmethod
    def of(cls, frame: JsonObject) -> Prompt:
        """Of a `user` line, whose message is known to be one."""
        message = cast("JsonObject", frame["message"])
        priority, uuid = frame.get("priority"), frame.get("uuid")
        is_synthetic = frame.get("isSynthetic") is True
        return cls(
            content=cast("str | list[JsonObject]", message.get("content")),
            uuid=uuid if isinstance(uuid, str) else None,
            priority=priority if priority in _ORDER else "next",
            should_query=frame.get("shouldQuery") is not False,
            is_verbatim=frame.get("client_composed") is True,
            is_synthetic=is_synthetic,
            origin={"kind": "unclassified"} if is_synthetic else None,
        )


class PromptQueue:
    """Prompts in the order in which they will run."""

    def __init__(self) -> None:
        self._waiting: list[Prompt] = []
        self._seen: set[str] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def uuids(self) -> list[str]:
        return [prompt.uuid for prompt in self._waiting if prompt.uuid is not None]

    def add(self, prompt: Prompt) -> bool:
        """Add a prompt. Returns False, and drops it, if its uuid was seen before."""
        if prompt.uuid is not None:
            if prompt.uuid in self._seen:
                return False
            self._seen.add(prompt.uuid)
        self._waiting.append(prompt)
        self._waiting.sort(key=lambda each: _ORDER[each.priority])
        return True

    def take(self, *, alone: bool = False) -> list[Prompt]:
        """The prompts of the next turn: those that go together, or only the first."""
        if not self._waiting:
            return []
        batch = [self._waiting.pop(0)]
        while not alone and self._waiting and batch[0].goes_with(self._waiting[0]):
            batch.append(self._waiting.pop(0))
        return batch

    def take_folded(self) -> list[Prompt]:
        """The prompts that the running turn takes up between two rounds."""
        folded = [
            prompt
            for prompt in self._waiting
            if prompt.priority == "next" and prompt.should_query and not prompt.is_command
        ]
        self._waiting = [prompt for prompt in self._waiting if prompt not in folded]
        return folded

    def cancel(self, uuid: str) -> bool:
        left = [prompt for prompt in self._waiting if prompt.uuid != uuid]
        is_found = len(left) < len(self._waiting)
        self._waiting = left
        return is_found

    def clear(self) -> list[str]:
        """Withdraw all prompts that have a uuid; returns the uuids."""
        uuids = self.uuids
        self._waiting = [prompt for prompt in self._waiting if prompt.uuid is None]
        return uuids


def _joined(prompts: list[Prompt]) -> str | list[JsonObject]:
    """The content of several prompts as one."""
    if all(isinstance(prompt.content, str) for prompt in prompts):
        return "\n".join(cast("str", prompt.content) for prompt in prompts)
    return [block for prompt in prompts for block in _blocks(prompt.content)]


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
        self.content = _joined(prompts)
        self.uuids = [prompt.uuid for prompt in prompts if prompt.uuid is not None]
        """The ids of its prompts, also of those that joined it later."""
        self.loop: ModelLoop | None = None
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
        state = "completed" if not fields["is_error"] and self._why is None else "cancelled"
        for uuid in self._folded:
            run.say(frames.lifecycle(uuid, state))
        run.write_result(self._whole(fields))
        for uuid in self.uuids:
            if uuid not in self._folded:
                run.say(frames.lifecycle(uuid, state))

    async def _answer(self) -> JsonObject:
        run, first = self._run, self.prompts[0]
        await run.mcp.settle()
        if first.is_clear and not run.invocation.disable_slash_commands:
            return await self._clear()
        if not first.should_query:
            self.begin()
            self.show()
            self._keep()
            return self._local("")
        if (left := run.deferred.take_unavailable()) is not None:
            loop = self._begin_loop()
            if (ended := await loop.carry_out(left)) is not None:
                return self._ended(loop, ended)
        run.hooks.prompt_id = str(uuid4())
        verdict = await self._submit()
        self.begin()
        for frame in verdict.notices:
            run.say(frame)
        if verdict.refusal is not None:
            run.say(verdict.refusal)
            return self._local(str(verdict.refusal["content"]))
        self._keep(*verdict.reminders)
        loop = self._begin_loop()
        if run.take_latched_interrupt():
            self.interrupt()
            await anyio.lowlevel.checkpoint()
        ended = await loop.run()
        return self._ended(loop, ended)

    def _begin_loop(self) -> ModelLoop:
        run = self._run
        self.loop = ModelLoop(
            run,
            frames.Speaker(),
            run.messages,
            model=run.model,
            tools=run.offered,
            system=run.introspection.system_prompt(),
            max_turns=run.invocation.max_turns,
            schema=run.introspection.schema,
            uuids=self.uuids,
        )
        return self.loop

    async def _submit(self) -> Verdict:
        """Ask the hooks about the prompt."""
        run = self._run
        if self.prompts[0].origin is not None and not self.prompts[0].is_synthetic:
            return Verdict()
        text = "\n".join(prompt.text for prompt in self.prompts)
        titled = {"session_title": run.title} if run.title is not None else {}
        verdict = await run.hooks.fire("UserPromptSubmit", {"prompt": text, **titled})
        if verdict.session_title is not None:
            run.set_title(verdict.session_title)
        if verdict.prompt_kept:
            self._keep()
        return verdict

    def begin(self) -> None:
        """Write the `init` frame, once."""
        if not self._is_begun:
            self._is_begun = True
            self._run.say(self._run.introspection.init_frame(self.uuids))

    def show(self) -> None:
        """Replay the prompts, once, if the host asked for that."""
        if self._has_shown:
            return
        self._has_shown = True
        first = self.prompts[0]
        if self._run.invocation.replay_user_messages and first.origin is None:
            uuid = self.uuids[-1] if self.uuids else None
            self._run.say(frames.replay(self.content, uuid=uuid))

    def fold(self, prompts: list[Prompt]) -> None:
        """Add prompts that came while tools ran."""
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
            content = [*_blocks(content), *reminders]
        run.messages.append({"role": "user", "content": content})

    # How it ended.

    def _ended(self, loop: ModelLoop, ended: Ended) -> JsonObject:
        fields: JsonObject = {
            "stop_reason": loop.stop_reason,
            "terminal_reason": ended.reason,
            "is_error": False,
            "num_turns": loop.num_turns,
            "subtype": "success",
            "api_error_status": None,
            "result": loop.text,
        }
        if ended.error is not None:
            return fields | self._failed(loop, ended.error)
        if ended.reason == "aborted_tools" and self._why != "now":
            return self._interrupted(loop, "aborted_tools")
        if ended.reason in _SUBTYPES:
            fields |= {"is_error": True, "subtype": _SUBTYPES[ended.reason], "errors": list(ended.errors)}
            if not loop.is_asked:
                fields["stop_reason"] = None
            del fields["result"], fields["api_error_status"]
        if ended.deferred is not None:
            del fields["api_error_status"]
        return fields | ended.fields

    def _failed(self, loop: ModelLoop, error: ApiError) -> JsonObject:
        """The message that the program writes in place of the model, and what the result says."""
        run = self._run
        self.show()
        message = frames.synthetic(error.text, stop_reason=error.stop_reason)
        message["stop_details"] = error.stop_details
        known: JsonObject = {"error": error.error, "is_api_error_message": True, **error.facts, **error.more}
        known |= loop.first_marks()
        uuid = str(uuid4())
        run.say(frames.assistant(message, frames.Speaker(), request_id=error.request_id, uuid=uuid, **known))
        run.transcript.append_assistant(message, uuid=uuid, isApiErrorMessage=True)
        return {"is_error": True, "stop_reason": error.stop_reason, "result": error.text, **error.facts}

    def _aborted(self) -> JsonObject:
        run, loop = self._run, self.loop
        self.begin()
        self.show()
        if loop is None:
            self._keep()
            loop = ModelLoop(run, frames.Speaker(), run.messages, model=run.model, tools=run.offered)
            return self._interrupted(loop, "aborted_streaming")
        has_calls = bool(loop.calls) and not loop.is_streaming
        stop_reason = loop.stop_reason if has_calls else None
        if loop.is_streaming:
            loop.cut_off()
        if loop.calls:
            results = loop.calls.abort()
            if results:
                run.messages.append({"role": "user", "content": results})
        loop.stop_reason = stop_reason
        reason = "aborted_tools" if has_calls else "aborted_streaming"
        if self._why == "now":
            loop.end_stream()
            return self._ended(loop, Ended(reason=reason))
        return self._interrupted(loop, reason)

    def _interrupted(self, loop: ModelLoop, reason: str) -> JsonObject:
        run = self._run
        text = frames.INTERRUPTED_TOOL if reason == "aborted_tools" else frames.INTERRUPTED
        block: JsonObject = {"type": "text", "text": text}
        uuid = str(uuid4())
        run.say(frames.user([block], frames.Speaker(), uuid=uuid))
        loop.end_stream()
        run.transcript.append_user({"role": "user", "content": [block]}, uuid=uuid)
        run.messages.append({"role": "user", "content": [block]})
        loop.num_turns += 1
        stop = "null" if loop.stop_reason is None else loop.stop_reason
        diagnosis = f"[ede_diagnostic] result_type=user last_content_type=n/a stop_reason={stop}"
        return {
            "stop_reason": loop.stop_reason,
            "terminal_reason": reason,
            "is_error": True,
            "num_turns": loop.num_turns,
            "subtype": "error_during_execution",
            "errors": [diagnosis],
        }

    def _local(self, text: str, **fields: object) -> JsonObject:
        """The result of a turn that did not ask the model."""
        ended: JsonObject = {"is_error": False, "num_turns": 0, "stop_reason": None, "subtype": "success"}
        return {**ended, "result": text, **fields}

    async def _clear(self) -> JsonObject:
        """Continue with an empty conversation under another id."""
        run = self._run
        await run.hooks.fire("SessionEnd", {"reason": "clear"}, subject="clear")
        fresh = str(uuid4())
        run.say(
            {
                "type": "conversation_reset",
                "new_conversation_id": fresh,
                "uuid": fresh,
                "trigger": "clear",
                "user_message_uuid": self.uuids[-1] if self.uuids else str(uuid4()),
                "timestamp": frames.now(),
            }
        )
        run.background.tell_running()
        run.start_over()
        await run.hooks.fire("SessionStart", {"source": "clear"}, subject="clear")
        self.begin()
        return self._local("", local_command="clear")

    def _whole(self, fields: JsonObject) -> JsonObject:
        """The result with the fields that all results have, in the program's order."""
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
            "subagent_stats": run.subagents.stats,
            "safety_stops": 0 if self.loop is None else self.loop.safety_stops,
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
            if is_timed and self.loop is not None:
                whole["request_sent_wall_ms"] = int(self._began_wall * 1000)
                whole |= self.loop.first_usage()
        whole |= {"queued_turn_count": 0, "result_index": run.next_result_index()}
        whole["model_usage_since_last_result"] = run.meter.take_new()
        return whole


def _blocks(content: str | list[JsonObject]) -> list[JsonObject]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


_CONTINUE: Final = "Continue from where you left off."


class Deferred:
    """The call that this run has to continue, if there is one."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._call: ToolCall | None = None
        self._unavailable: ToolCall | None = None

    def found(self, call: ToolCall) -> None:
        """Note the call that the resumed session was left with."""
        self._call, hooks = call, self._run.hooks
        hooks.continued, hooks.prompt_id = call.id, None
        # In the program, they race; here the host always loses where it has not asked to be waited for.
        hooks.is_late = not self._run.invocation.await_initialize

    @property
    def is_due(self) -> bool:
        """Whether to continue with the call now."""
        has_waited = not self._run.invocation.await_initialize or self._run.initialize is not None
        return self._call is not None and has_waited

    def take(self) -> Turn | None:
        """The turn in which it continues; None if there is nothing to continue, or not yet."""
        if not self.is_due or self._call is None:
            return None
        call, self._call = self._call, None
        if self._run.mcp.is_of_host(call.name):
            # In the program the host's servers are not connected yet, or only just.
            self._unavailable = call
        return _ContinuedTurn(self._run, call, is_available=self._unavailable is None)

    def take_unavailable(self) -> ToolCall | None:
        """The call that the next prompt brings back, because its tool was not there before."""
        call, self._unavailable = self._unavailable, None
        return call

    def note(self, call: ToolCall) -> None:
        """A hook wants a call to be decided later: write down what it takes to continue."""
        run = self._run
        attachment: JsonObject = {
            "type": "hook_deferred_tool",
            "toolUseID": call.id,
            "toolName": call.name,
            "toolInput": call.input,
            "hookName": "settings",
            "hookEvent": "PreToolUse",
            "permissionMode": run.permission_mode,
        }
        uuid = str(uuid4())
        if run.hooks.continued == call.id:
            run.say(frames.attachment(attachment, uuid=uuid))
        run.transcript.append_attachment(attachment, uuid=uuid)


class _ContinuedTurn(Turn):
    """The turn of a deferred call."""

    def __init__(self, run: Run, call: ToolCall, *, is_available: bool) -> None:
        super().__init__(run, [Prompt(content=_CONTINUE)])
        self._call = call
        self._is_available = is_available

    async def run(self) -> None:
        """Carry out the call, and continue. Its prompt is the program's own."""
        uuid = str(uuid4())
        self._run.say(frames.lifecycle(uuid, "started"))
        await super().run()
        self._run.say(frames.lifecycle(uuid, "completed" if self._is_available else "cancelled"))

    async def _answer(self) -> JsonObject:
        if not self._is_available:
            return self._local(
                f"{self._call.name} isn't available, so its deferred call didn't run.",
                is_error=True,
                stop_reason="tool_deferred_unavailable",
                terminal_reason="tool_deferred_unavailable",
                deferred_tool_use={"id": self._call.id, "name": self._call.name, "input": self._call.input},
            )
        loop = self._begin_loop()
        ended = await loop.carry_out(self._call)
        # What follows is counted for itself.
        loop.num_turns = 1
        if ended is None:
            self.begin()
            self._keep(is_own=True)
            ended = await loop.run()
        fields = self._ended(loop, ended)
        if ended.deferred is not None:
            del fields["terminal_reason"]
        return fields
