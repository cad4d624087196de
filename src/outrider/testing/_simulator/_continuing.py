"""Owns how a session goes on by itself that was left with a deferred call, once it is resumed.

The call is put to the hooks once more, and the model is told to continue. That turn answers no prompt of the
host, so neither its beginning nor its result names one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import uuid4

from outrider.testing._simulator import _frames as frames
from outrider.testing._simulator._queue import Prompt
from outrider.testing._simulator._turn import Turn

if TYPE_CHECKING:
    from outrider.testing._simulator._run import Run
    from outrider.testing._simulator._world import ToolCall
    from outrider.wire import JsonObject

__all__ = ["Deferred"]

_CONTINUE: Final = "Continue from where you left off."


class Deferred:
    """The call that this run has to go on with, if there is one."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._call: ToolCall | None = None

    def found(self, call: ToolCall | None) -> None:
        """The session that is resumed was left with a call."""
        self._call = call
        if call is not None:
            hooks = self._run.hooks
            hooks.continued, hooks.prompt_id = call.id, None
            # In the program, they race; here the host always loses where it has not asked to be waited for.
            hooks.is_late = not self._run.invocation.await_initialize

    @property
    def is_due(self) -> bool:
        """Whether the session is to go on now."""
        has_waited = not self._run.invocation.await_initialize or self._run.initialize is not None
        return self._call is not None and has_waited

    def take(self) -> Turn | None:
        """The turn in which it goes on; None if there is nothing to go on with, or not yet."""
        if not self.is_due or self._call is None:
            return None
        call, self._call = self._call, None
        return _ContinuedTurn(self._run, call)

    def note(self, call: ToolCall) -> None:
        """A hook wants a call to be decided later: write down what it takes to go on."""
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

    def __init__(self, run: Run, call: ToolCall) -> None:
        super().__init__(run, [Prompt(content=_CONTINUE)])
        self._call = call

    async def run(self) -> None:
        """Carry out the call, and go on. Only here the prompt is named that the program writes itself."""
        uuid = str(uuid4())
        self._run.say(frames.lifecycle(uuid, "started"))
        await super().run()
        self._run.say(frames.lifecycle(uuid, "completed"))

    async def _answer(self) -> JsonObject:
        talk = self._begin_talk()
        ended = await talk.carry_out(self._call)
        # What follows is counted for itself.
        talk.num_turns = 1
        if ended is None:
            self.begin()
            self._keep(is_own=True)
            ended = await talk.run()
        fields = self._ended(talk, ended)
        if ended.deferred is not None:
            del fields["terminal_reason"]
        return fields
