"""Owns the callbacks of the host for hook events: which match, asking them, and what their answers come to.

Hooks that are commands in settings files are not run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal, Self, TypeAlias, cast
from uuid import uuid4

import anyio
import msgspec

from outrider.testing._simulator import frames
from outrider.testing._simulator.world import Refused
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from anyio.abc import TaskStatus

    from outrider.testing._simulator.world import Surroundings, ToolCall

__all__ = ["HOOKS_ERROR", "HookAnswer", "Hooks", "Verdict", "combine", "read_answer"]


Decision: TypeAlias = Literal["allow", "deny", "ask", "defer"]

_INVALID: Final = "the SDK host replied with an error or an invalid answer"
_DECISIONS: Final[tuple[Decision, ...]] = ("deny", "defer", "ask", "allow")
"""The strongest first."""
_LEGACY: Final[dict[object, Decision]] = {"block": "deny", "approve": "allow"}

_TYPES: Final[dict[str, type]] = {
    "continue": bool,
    "suppressOutput": bool,
    "stopReason": str,
    "reason": str,
    "systemMessage": str,
    "hookSpecificOutput": dict,
}
_SPECIFIC_TYPES: Final[dict[str, type]] = {
    "hookEventName": str,
    "permissionDecisionReason": str,
    "additionalContext": str,
    "updatedInput": dict,
    "sessionTitle": str,
    "suppressOriginalPrompt": bool,
}


class HookAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What one callback came to."""

    output: JsonObject = {}
    callback: str = ""
    failure: str | None = None
    """The host's error, or what is wrong with its answer."""
    is_gone: bool = False
    """There is no host any more."""
    is_blocking: bool = False
    """A failure counts as a block."""
    waited: float | None = None
    """Set, in seconds, if there was no answer in time."""
    other_event: str | None = None
    """The answer is for this event, which is not the one that was sent."""

    @classmethod
    def failed(cls, failure: str, *, is_gone: bool = False) -> Self:
        return cls(failure=failure, is_gone=is_gone)


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What the callbacks of one event answered, taken together."""

    decision: Decision | None = None
    reason: str | None = None
    updated_input: JsonObject | None = None
    additional_context: tuple[str, ...] = ()
    stop_reason: str | None = None
    """Set, perhaps to an empty text, when a callback answered `continue: false`."""
    system_messages: tuple[str, ...] = ()
    blocked: str | None = None
    """The reason of `decision: "block"`, or of a callback that had to answer and did not."""
    updated_output: object = None
    output: list[JsonObject] = []
    """The answers as given."""

    notices: tuple[JsonObject, ...] = ()
    """Frames still to be written: those of `PreToolUse` right before the tool's result, those of
    `PostToolUse` and `PostToolUseFailure` right after it."""
    reminders: tuple[str, ...] = ()
    """What the model is told of the answers with its next request."""
    refusal: JsonObject | None = None
    """Set if a prompt does not run: the frame to be written; its `content` is the text of the result."""
    prompt_kept: bool = False
    """Whether such a prompt stays in the conversation."""
    session_title: str | None = None
    failure: str | None = None
    """`PreToolUse`: why the call cannot go on, with no decision of anybody."""
    is_gone: bool = False
    """There is no host any more that could answer."""


def read_answer(event: str, answer: object) -> HookAnswer:
    """Check an answer. One that is not valid is a failure."""
    if not isinstance(answer, dict):
        return HookAnswer.failed("ZodError: expected an object")
    output = cast("JsonObject", answer)
    if output.get("async") is True:
        return HookAnswer(output=output)
    specific = cast("JsonObject", output.get("hookSpecificOutput") or {})
    wrong = [name for name, kind in _TYPES.items() if name in output and not isinstance(output[name], kind)]
    if not wrong:
        wrong = [
            name
            for name, kind in _SPECIFIC_TYPES.items()
            if name in specific and not isinstance(specific[name], kind)
        ]
    if specific.get("permissionDecision", "allow") not in _DECISIONS:
        wrong.append("permissionDecision")
    if output.get("decision", "block") not in _LEGACY:
        wrong.append("decision")
    if wrong:
        return HookAnswer.failed(f"ZodError: invalid {', '.join(wrong)}")
    named = specific.get("hookEventName", event)
    return HookAnswer(output=output, other_event=str(named) if named != event else None)


def combine(event: str, subject: str | None, fields: JsonObject, answers: Sequence[HookAnswer]) -> Verdict:
    """What the answers, in the order of the callbacks, come to."""
    label = f"{event}:{subject}" if subject and "tool_name" in fields else event
    sum_ = _Sum(event, label)
    for answer in answers:
        sum_.add(answer)
    verdict = sum_.verdict()
    return (
        _of_prompt(verdict, sum_, str(fields.get("prompt", ""))) if event == "UserPromptSubmit" else verdict
    )


class _Sum:
    """The answers so far."""

    def __init__(self, event: str, label: str) -> None:
        self.event, self.label = event, label
        self.given: list[tuple[Decision, str | None]] = []
        self.contexts: list[str] = []
        self.reminders: list[str] = []
        self.messages: list[str] = []
        self.notices: list[JsonObject] = []
        self.output: list[JsonObject] = []
        self.updated_input: JsonObject | None = None
        self.updated_output: object = None
        self.stop: str | None = None
        self.blocked: str | None = None
        self.no_verdict: str | None = None
        self.failure: str | None = None
        self.title: str | None = None
        self.hides_prompt = False
        self.is_gone = False

    def add(self, answer: HookAnswer) -> None:
        if answer.waited is not None:
            self._timed_out(answer.waited)
        elif answer.failure is not None:
            self._failed(answer)
        elif answer.other_event is not None:
            self._misnamed(answer)
        else:
            self._answered(answer.output)

    def _timed_out(self, seconds: float) -> None:
        if self.event == "PreToolUse":
            self.failure = (
                "PreToolUse hook did not respond before its timeout (host client may be unreachable). The"
                " tool call was not executed."
            )
        elif self.event == "UserPromptSubmit":
            self.blocked = f"UserPromptSubmit hook callback timed out after {seconds * 1000:.0f}ms"
            self.no_verdict = "callback_timed_out"
        elif self.event == "Stop":
            self.message("The app driving this session didn't respond, so this turn ended without it.")

    def _failed(self, answer: HookAnswer) -> None:
        self.is_gone |= answer.is_gone
        if self.event == "Stop" and not answer.is_gone:
            self.notices.append(
                {
                    "type": "system",
                    "subtype": "notification",
                    "key": "stop-hook-error",
                    "text": "Stop hook error occurred · ctrl+o to see",
                    "priority": "immediate",
                }
            )
        elif answer.is_blocking and not answer.is_gone:
            self.block(
                '[callback]: failed; blocking because onFailure is "block"\n'
                f"Hook callback {answer.callback} failed: {_INVALID}."
            )
            self.no_verdict = "hook_failed"

    def _misnamed(self, answer: HookAnswer) -> None:
        if self.event == "PreToolUse":
            self.failure = "PreToolUse hook failed with an unexpected error. The tool call was not executed."
        elif self.event == "Stop":
            text = (
                f"Stop hook failed: Hook returned incorrect event name: expected 'Stop' but got"
                f" '{answer.other_event}'. Full stdout: {json.dumps(answer.output, indent=2)}"
            )
            self.notices.append(_informational(text, "warning"))

    def _answered(self, output: JsonObject) -> None:
        self.output.append(output)
        specific = cast("JsonObject", output.get("hookSpecificOutput") or {})
        reason = specific.get("permissionDecisionReason", output.get("reason"))
        text = None if reason is None else str(reason)
        decision = specific.get("permissionDecision")
        if self.event == "PreToolUse" and decision is None:
            decision = _LEGACY.get(output.get("decision"))
        if decision is not None:
            self.given.append((cast("Decision", decision), text))
        elif output.get("decision") == "block":
            self.block(str(output.get("reason") or "Blocked by hook"))
        if output.get("continue") is False:
            self.stop = str(output.get("stopReason") or "")
            self.reminders.append(f"{self.label} hook stopped continuation: {self.stop}")
        if output.get("systemMessage"):
            self.message(str(output["systemMessage"]))
        if "updatedInput" in specific:
            self.updated_input = cast("JsonObject", specific["updatedInput"])
        for name in ("updatedMCPToolOutput", "updatedToolOutput"):
            self.updated_output = specific.get(name, self.updated_output)
        if specific.get("additionalContext"):
            context = str(specific["additionalContext"])
            self.contexts.append(context)
            self.reminders.append(f"{self.label} hook additional context: {context}")
        self.title = cast("str | None", specific.get("sessionTitle", self.title))
        self.hides_prompt |= specific.get("suppressOriginalPrompt") is True

    def block(self, reason: str) -> None:
        if self.event == "PreToolUse":
            self.given.append(("deny", reason))
            return
        self.blocked = reason
        self.reminders.append(f'{self.label} hook blocking error from command: "callback": {reason}')

    def message(self, text: str) -> None:
        self.messages.append(text)
        self.notices.append(_informational(f"{self.label} says: {text}", "notice"))

    def verdict(self) -> Verdict:
        chosen, reason = next(
            (given for strongest in _DECISIONS for given in self.given if given[0] == strongest),
            (None, None),
        )
        return Verdict(
            decision=chosen,
            reason=reason,
            updated_input=self.updated_input,
            additional_context=tuple(self.contexts),
            stop_reason=self.stop,
            system_messages=tuple(self.messages),
            blocked=self.blocked,
            updated_output=self.updated_output,
            output=self.output,
            notices=tuple(self.notices),
            reminders=tuple(self.reminders),
            session_title=self.title,
            failure=self.failure,
            is_gone=self.is_gone,
        )


def _of_prompt(verdict: Verdict, sum_: _Sum, prompt: str) -> Verdict:
    """Whether the prompt runs, and what is written if it does not."""
    outcome: JsonObject
    if sum_.blocked is not None:
        text = f"UserPromptSubmit operation blocked by hook:\n{sum_.blocked}"
        if sum_.no_verdict is not None:
            outcome = {"kind": "no_verdict", "prompt_kept": False, "no_verdict_kind": sum_.no_verdict}
        else:
            text += "" if sum_.hides_prompt else f"\n\nOriginal prompt: {prompt}"
            outcome = {"kind": "blocked_by_hook", "prompt_kept": False, "reason": sum_.blocked}
    elif sum_.stop is not None:
        text = f"Operation stopped by hook: {sum_.stop}" if sum_.stop else "Operation stopped by hook"
        outcome = {"kind": "stopped_by_hook", "prompt_kept": True}
        outcome |= {"reason": sum_.stop} if sum_.stop else {}
    else:
        return verdict
    notice = _informational(text, "warning")
    notice |= {"prevent_continuation": True, "prompt_submit_outcome": outcome}
    return msgspec.structs.replace(verdict, refusal=notice, prompt_kept=outcome["prompt_kept"] is True)


def _informational(content: str, level: str) -> JsonObject:
    return {"type": "system", "subtype": "informational", "content": content, "level": level}


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
