"""Owns the commands that change the conversation: `/clear` and `/compact`.

Any other that begins with a slash goes to the model as it is.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING
from uuid import uuid4

from outrider.testing._simulator import frames
from outrider.testing._simulator.model import ApiError
from outrider.testing._simulator.model_loop import Talk
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from outrider.testing._simulator.run import Run
    from outrider.testing._simulator.turn import Prompt, Turn

__all__ = ["LocalCommands"]

_NAMES = {"reset": "clear", "new": "clear"}


class LocalCommands:
    """The commands of one turn."""

    def __init__(self, run: Run, turn: Turn) -> None:
        self._run, self._turn = run, turn

    def find(self, prompt: Prompt) -> Callable[[], Awaitable[JsonObject]] | None:
        """What carries a prompt out; none if it is for the model. It gives the fields of the result."""
        command = None if self._run.invocation.disable_slash_commands else prompt.command
        if command is None:
            return None
        name, arguments = _NAMES.get(command[0], command[0]), command[1]
        known: dict[str, Callable[[str], Awaitable[JsonObject]]] = {
            "clear": self._clear,
            "compact": self._compact,
        }
        if name not in known:
            return None
        return lambda: known[name](arguments)

    async def _clear(self, _: str) -> JsonObject:
        run = self._run
        await run.hooks.fire("SessionEnd", {"reason": "clear"}, subject="clear")
        fresh, uuids = str(uuid4()), self._turn.uuids
        frame: JsonObject = {
            "type": "conversation_reset",
            "new_conversation_id": fresh,
            "uuid": fresh,
            "trigger": "clear",
            "user_message_uuid": uuids[-1] if uuids else str(uuid4()),
            "timestamp": frames.now(),
        }
        run.say(frame)
        run.background.tell_running()
        run.start_over()
        await run.hooks.fire("SessionStart", {"source": "clear"}, subject="clear")
        self._turn.begin()
        return self._turn.local("", local_command="clear")

    async def _compact(self, instructions: str) -> JsonObject:
        run = self._run
        if not run.messages:
            self._turn.begin()
            return self._failed("compact", instructions, "Error: No messages to compact")
        run.say(_status("compacting"))
        verdict = await run.hooks.fire(
            "PreCompact",
            {"trigger": "manual", "custom_instructions": instructions or None},
            subject="manual",
        )
        if verdict.blocked is not None:
            told = "Compaction blocked by PreCompact hook: [callback]"
            run.say(_status(None, compact_result="failed", compact_error=f"skipped: {told}"))
            self._turn.begin()
            return self._failed("compact", instructions, told)
        began, before = time.monotonic(), len(run.messages)
        try:
            summary = await self._summary(instructions)
        except ApiError as error:
            told = f"Error during compaction: {error.text}"
            run.say(_status(None, compact_result="failed", compact_error=error.text))
            self._turn.begin()
            return self._failed("compact", instructions, told)
        run.say(_status(None, compact_result="success"))
        self._turn.begin()
        uuid, parent = str(uuid4()), run.last_uuid
        boundary: JsonObject = {
            "type": "system",
            "subtype": "compact_boundary",
            "uuid": str(uuid4()),
            "compact_metadata": {
                "trigger": "manual",
                "pre_tokens": before * 50,
                "post_tokens": 50,
                "cumulative_dropped_tokens": 0,
                "duration_ms": int((time.monotonic() - began) * 1000),
            },
        }
        if parent is not None:
            boundary["logical_parent_uuid"] = parent
        run.say(boundary)
        run.transcript.append_system(
            {"subtype": "compact_boundary", "compactMetadata": boundary["compact_metadata"]},
            uuid=boundary["uuid"],
        )
        text = f"This session is being continued from a previous conversation. Its summary:\n{summary}"
        run.messages[:] = [{"role": "user", "content": text}]
        run.say(frames.user(text, frames.Speaker(), uuid=uuid, isReplay=False, isSynthetic=True))
        run.transcript.append_user(
            {"role": "user", "content": text},
            uuid=uuid,
            isCompactSummary=True,
            isVisibleInTranscriptOnly=True,
        )
        await run.hooks.fire("SessionStart", {"source": "compact"}, subject="compact")
        await run.hooks.fire(
            "PostCompact", {"trigger": "manual", "compact_summary": summary}, subject="manual"
        )
        run.say(frames.replay("<local-command-stdout>Compacted </local-command-stdout>"))
        return self._turn.local("", local_command="compact")

    async def _summary(self, instructions: str) -> str:
        """Ask the model: the next step of the script is the summary."""
        run = self._run
        wanted = (
            f"Your task is to create a detailed summary of the conversation so far. {instructions}".strip()
        )
        messages = [*run.messages, {"role": "user", "content": wanted}]
        talk = Talk(
            run,
            frames.Speaker(),
            messages,
            model=run.model,
            tools=run.offered,
            system=run.offer.system_prompt(),
        )
        return await run.script_model.text(talk)

    def _failed(self, name: str, arguments: str, text: str) -> JsonObject:
        message = frames.synthetic(text, stop_reason="end_turn")
        message["stop_sequence"] = None
        frame = frames.assistant(
            message,
            frames.Speaker(),
            request_id=None,
            uuid=str(uuid4()),
            local_command_source=f"<local-command-stderr>{text}</local-command-stderr>",
            local_command_run={"command": name, "args": arguments},
            local_command_outcome={"kind": "failed"},
        )
        self._run.say(frame)
        return self._turn.local(text, local_command=name)


def _status(status: str | None, **fields: object) -> JsonObject:
    return {"type": "system", "subtype": "status", "status": status, **fields}
