"""Owns the callbacks of the host for hook events: which match, asking them, and what their answers come to.

How answers are read is in `_hook_answers`. Hooks that are commands in settings files are not run.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import anyio
import msgspec

from outrider.testing._simulator import _frames as frames
from outrider.testing._simulator._hook_answers import HookAnswer, Verdict, combine, read_answer
from outrider.testing._simulator._world import Refused
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from anyio.abc import TaskStatus

    from outrider.testing._simulator._world import Surroundings, ToolCall

__all__ = ["HOOKS_ERROR", "Hooks", "Verdict"]

HOOKS_ERROR: Final = (
    "initialize: hooks must map hook events to arrays of matchers carrying hookCallbackIds arrays and string"
    " matchers"
)

_WITH_MODE: Final = frozenset(
    {
        "PermissionRequest",
        "PostToolBatch",
        "PostToolUse",
        "PostToolUseFailure",
        "PreToolUse",
        "Stop",
        "SubagentStop",
        "UserPromptExpansion",
        "UserPromptSubmit",
    }
)
_WITH_EFFORT: Final = (_WITH_MODE | {"StopFailure"}) - {"UserPromptExpansion", "UserPromptSubmit"}
# Their notices are written with the tool's result, by whoever writes that.
_LATER: Final = frozenset({"PreToolUse", "PostToolUse", "PostToolUseFailure"})


class _Matcher(
    msgspec.Struct,
    frozen=True,
    rename={"callbacks": "hookCallbackIds", "pattern": "matcher", "on_failure": "onFailure"},
):
    callbacks: list[str]
    pattern: str | None = None
    timeout: float | None = None
    on_failure: str | None = None

    @property
    def is_blocking(self) -> bool:
        return self.on_failure == "block"


class Hooks:
    """The hooks of one run."""

    def __init__(self, run: Surroundings) -> None:
        self._run = run
        self._matchers: dict[str, list[_Matcher]] = {}
        self.prompt_id: str | None = str(uuid4())
        """Of the prompt that is at work: set by the core when a turn begins; part of each event."""
        self.continued: str | None = None
        """The id of a deferred call, in a session that goes on with it."""
        self.is_late = False
        """Whether that call does not wait for the hooks, which the host has yet to name."""

    def register(self, hooks: JsonObject | None) -> None:
        """Take the hooks of an `initialize` request in place of earlier ones.

        Raises `ValueError`, with the text of the program, if they have another form.
        """
        try:
            self._matchers = msgspec.convert(hooks or {}, type=dict[str, list[_Matcher]])
        except msgspec.ValidationError:
            raise ValueError(HOOKS_ERROR) from None

    def has(self, event: str) -> bool:
        """Whether any callback waits for the event."""
        return bool(self._matchers.get(event))

    async def fire(
        self,
        event: str,
        fields: JsonObject,
        *,
        subject: str | None = None,
        tool_use_id: str | None = None,
        call: ToolCall | None = None,
    ) -> Verdict:
        """Ask each callback that matches, all at once, and wait for the answers.

        `subject` is what matchers look at; unset, it is the tool of the call, if there is one. What the
        program tells of the answers is written, but for `PreToolUse`, `PostToolUse` and `PostToolUseFailure`,
        where it is in `notices`.
        """
        if subject is None and call is not None:
            subject = call.name
        if tool_use_id is None:
            tool_use_id = _made_up_id(event) if call is None else call.id
        due = [
            (callback, matcher)
            for matcher in self._matchers.get(event, ())
            if _matches(matcher.pattern, subject)
            for callback in matcher.callbacks
        ]
        is_continued = event == "PreToolUse" and tool_use_id == self.continued
        if not due or (is_continued and self.is_late):
            return Verdict()
        request: JsonObject = {"input": self._input(event, fields, call), "tool_use_id": tool_use_id}
        answers: list[HookAnswer | None] = [None] * len(due)

        async def put(place: int, *, task_status: TaskStatus[None]) -> None:
            # Started here, so that the requests go out in order.
            task_status.started()
            callback, matcher = due[place]
            answers[place] = await self._ask(event, {"callback_id": callback, **request}, matcher)

        async with anyio.create_task_group() as tasks:
            for place in range(len(due)):
                await tasks.start(put, place)
        verdict = combine(event, subject, fields, [answer for answer in answers if answer is not None])
        if is_continued and verdict.decision != "deny":
            self._run.say(frames.attachment(_success(event, tool_use_id)))
        if event in _LATER:
            return verdict
        for notice in verdict.notices:
            self._run.say(notice)
        return msgspec.structs.replace(verdict, notices=())

    async def _ask(self, event: str, request: JsonObject, matcher: _Matcher) -> HookAnswer:
        callback = str(request["callback_id"])
        with anyio.move_on_after(matcher.timeout):
            try:
                answer = await self._run.ask("hook_callback", request)
            except Refused as refusal:
                made = HookAnswer.failed(str(refusal), is_gone=getattr(refusal, "is_gone", False))
            else:
                made = read_answer(event, answer)
            if made.failure is not None:
                self._complain(event, callback, matcher, made)
            return msgspec.structs.replace(made, callback=callback, is_blocking=matcher.is_blocking)
        return HookAnswer(callback=callback, waited=matcher.timeout)

    def _complain(self, event: str, callback: str, matcher: _Matcher, answer: HookAnswer) -> None:
        if answer.is_gone:
            return
        self._run.complain(f"Error in hook callback {callback}: {answer.failure}")
        # A turn that is over cannot be blocked.
        if matcher.is_blocking and event != "Stop":
            meaning = 'onFailure is "block", so this failure counts as a block.'
        else:
            meaning = "Its answer was treated as empty."
        text = (
            f"{event}: Hook callback {callback} failed: the SDK host replied with an error or an invalid"
            f" answer. {meaning}"
        )
        self._run.say(
            {
                "type": "system",
                "subtype": "informational",
                "content": text,
                "level": "warning",
                "tag": "hook_callback_failed",
            }
        )

    def _input(self, event: str, fields: JsonObject, call: ToolCall | None) -> JsonObject:
        run = self._run
        made: JsonObject = {
            "session_id": run.session_id,
            "transcript_path": str(run.transcript_path),
            "cwd": str(run.cwd),
        }
        if self.prompt_id is not None:
            made["prompt_id"] = self.prompt_id
        if event in _WITH_MODE:
            made["permission_mode"] = run.permission_mode
        if call is not None and call.agent_id is not None:
            made |= {"agent_id": call.agent_id, "agent_type": call.agent_type or ""}
        for name in ("agent_id", "agent_type"):
            if name in fields:
                made[name] = fields[name]
        if event in _WITH_EFFORT:
            made["effort"] = {"level": run.invocation.effort or "medium"}
        return {**made, "hook_event_name": event, **fields}


def _success(event: str, tool_use_id: str) -> JsonObject:
    """What the program says of a hook only where a session goes on with a deferred call."""
    return {
        "type": "hook_success",
        "hookName": f"{event}:Callback",
        "toolUseID": tool_use_id,
        "hookEvent": event,
        "content": "",
        "command": "callback",
    }


def _made_up_id(event: str) -> str:
    return f"hook-{uuid4()}" if event == "PostToolBatch" else str(uuid4())


_NAMES: Final = re.compile(r"[A-Za-z0-9_|, -]+")


def _matches(pattern: str | None, subject: str | None) -> bool:
    """A list of names, or else a regular expression to be found; what is none matches nothing."""
    if pattern in (None, "", "*") or subject is None:
        return True
    assert pattern is not None
    if _NAMES.fullmatch(pattern):
        return subject in (name.strip() for name in re.split(r"[|,]", pattern))
    try:
        return re.search(pattern, subject) is not None
    except re.error:
        return False
