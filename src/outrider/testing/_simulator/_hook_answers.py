"""Owns how the answers of hook callbacks are read, and what several of them come to.

Asks nobody, and writes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, Literal, Self, TypeAlias, cast

import msgspec

from outrider.wire import JsonObject

__all__ = ["HookAnswer", "Verdict", "combine", "read_answer"]

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
