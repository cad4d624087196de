"""The host's callbacks for hook events: which match, how they are asked, and what their answers mean."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import anyio
import msgspec

from outrider.testing._simulator import frames
from outrider.testing._simulator.frames import Refused, as_object, present
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from anyio.abc import TaskStatus

    from outrider.testing._simulator.frames import ToolCall
    from outrider.testing._simulator.run import Run


_INVALID: Final = "the SDK host replied with an error or an invalid answer"
_FORM: Final = (
    "initialize: hooks must map hook events to arrays of matchers carrying hookCallbackIds arrays and string"
    " matchers"
)
_DECISIONS: Final = ("deny", "defer", "ask", "allow")
"""The strongest first."""
_LEGACY: Final[dict[object, str]] = {"block": "deny", "approve": "allow"}

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
_TOOL_EVENTS: Final = frozenset({"PreToolUse", "PostToolUse", "PostToolUseFailure"})
_TOLD_LATER: Final = _TOOL_EVENTS | {"UserPromptSubmit"}
"""Events whose notices are written with the tool's result, or once the turn has begun."""
_WITH_EFFORT: Final = _TOOL_EVENTS | {
    "PermissionRequest",
    "PostToolBatch",
    "Stop",
    "StopFailure",
    "SubagentStop",
}
_WITH_MODE: Final = (_WITH_EFFORT - {"StopFailure"}) | {"UserPromptExpansion", "UserPromptSubmit"}
_NAMES: Final = re.compile(r"[A-Za-z0-9_|, -]+")


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one callback."""

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


class Verdict(msgspec.Struct, kw_only=True):
    """The answers of an event's callbacks, combined."""

    decision: str | None = None
    reason: str | None = None
    updated_input: JsonObject | None = None
    updated_output: object = None
    additional_context: tuple[str, ...] = ()
    stop_reason: str | None = None
    """Set, perhaps to an empty text, when a callback answered `continue: false`."""
    blocked: str | None = None
    """The reason of `decision: "block"`, or of a callback that had to answer and did not."""
    output: tuple[JsonObject, ...] = ()
    """The answers as given."""
    notices: tuple[JsonObject, ...] = ()
    """Frames still to be written: those of `PreToolUse` right before the tool's result, those of
    `PostToolUse` and `PostToolUseFailure` right after it."""
    reminders: tuple[str, ...] = ()
    """What the model is told about the answers with its next request."""
    refusal: JsonObject | None = None
    """Set if a prompt does not run: the frame to be written; its `content` is the text of the result."""
    prompt_kept: bool = False
    """Whether such a prompt stays in the conversation."""
    session_title: str | None = None
    failure: str | None = None
    """`PreToolUse`: why the call cannot continue, without a decision."""
    is_gone: bool = False
    """There is no host any more that could answer."""


def _read_answer(event: str, answer: JsonObject) -> _Answer:
    """Check an answer. One that is not valid is a failure."""
    if answer.get("async") is True:
        return _Answer(output=answer)
    specific = as_object(answer.get("hookSpecificOutput"))
    wrong = [
        name
        for value, types in ((answer, _TYPES), (specific, _SPECIFIC_TYPES))
        for name, kind in types.items()
        if name in value and not isinstance(value[name], kind)
    ]
    if specific.get("permissionDecision", "allow") not in _DECISIONS:
        wrong.append("permissionDecision")
    if answer.get("decision", "block") not in _LEGACY:
        wrong.append("decision")
    if wrong:
        return _Answer(failure=f"ZodError: invalid {', '.join(wrong)}")
    named = specific.get("hookEventName", event)
    return _Answer(output=answer, other_event=str(named) if named != event else None)


class _Sum:
    """Combines the answers of an event's callbacks, in their order."""

    def __init__(self, event: str, label: str, prompt: str) -> None:
        self._event, self._label, self._prompt = event, label, prompt
        self._made = Verdict()
        self._given: list[tuple[str, str | None]] = []
        self._no_verdict: str | None = None
        self._hides_prompt = False

    def add(self, answer: _Answer) -> None:
        made, event = self._made, self._event
        if answer.is_gone:
            made.is_gone = True
        elif answer.waited is not None:
            if event == "PreToolUse":
                made.failure = (
                    "PreToolUse hook did not respond before its timeout (host client may be unreachable). The"
                    " tool call was not executed."
                )
            elif event == "UserPromptSubmit":
                made.blocked = f"UserPromptSubmit hook callback timed out after {answer.waited * 1000:.0f}ms"
                self._no_verdict = "callback_timed_out"
            elif event == "Stop":
                self._message("The app driving this session didn't respond, so this turn ended without it.")
        elif answer.failure is not None:
            if event == "Stop":
                made.notices += (frames.stop_hook_error("Stop"),)
            elif answer.is_blocking:
                self._block(
                    '[callback]: failed; blocking because onFailure is "block"\n'
                    f"Hook callback {answer.callback} failed: {_INVALID}."
                )
                self._no_verdict = "hook_failed"
        elif answer.other_event is None:
            self._answered(answer.output)
        elif event == "PreToolUse":
            made.failure = "PreToolUse hook failed with an unexpected error. The tool call was not executed."
        elif event == "Stop":
            text = (
                f"Stop hook failed: Hook returned incorrect event name: expected 'Stop' but got"
                f" '{answer.other_event}'. Full stdout: {json.dumps(answer.output, indent=2)}"
            )
            made.notices += (frames.informational(text, "warning"),)

    def _answered(self, output: JsonObject) -> None:
        made, specific = self._made, as_object(output.get("hookSpecificOutput"))
        made.output += (output,)
        reason = specific.get("permissionDecisionReason", output.get("reason"))
        decision = specific.get("permissionDecision")
        if self._event == "PreToolUse" and decision is None:
            decision = _LEGACY.get(output.get("decision"))
        if decision is not None:
            self._given.append((str(decision), None if reason is None else str(reason)))
        elif output.get("decision") == "block":
            self._block(str(output.get("reason") or "Blocked by hook"))
        if output.get("continue") is False:
            made.stop_reason = str(output.get("stopReason") or "")
            made.reminders += (f"{self._label} hook stopped continuation: {made.stop_reason}",)
        if output.get("systemMessage"):
            self._message(str(output["systemMessage"]))
        made.updated_input = specific.get("updatedInput", made.updated_input)
        for name in ("updatedMCPToolOutput", "updatedToolOutput"):
            made.updated_output = specific.get(name, made.updated_output)
        if context := specific.get("additionalContext"):
            made.additional_context += (str(context),)
            made.reminders += (f"{self._label} hook additional context: {context}",)
        made.session_title = specific.get("sessionTitle", made.session_title)
        self._hides_prompt |= specific.get("suppressOriginalPrompt") is True

    def _block(self, reason: str) -> None:
        if self._event == "PreToolUse":
            self._given.append(("deny", reason))
            return
        self._made.blocked = reason
        self._made.reminders += (f'{self._label} hook blocking error from command: "callback": {reason}',)

    def _message(self, text: str) -> None:
        self._made.notices += (frames.informational(f"{self._label} says: {text}", "notice"),)

    def verdict(self) -> Verdict:
        made = self._made
        if self._given:
            made.decision, made.reason = min(self._given, key=lambda each: _DECISIONS.index(each[0]))
        if self._event == "UserPromptSubmit":
            self._refuse_prompt()
        return made

    def _refuse_prompt(self) -> None:
        """Set what is written if the prompt does not run."""
        made = self._made
        outcome: JsonObject
        if made.blocked is not None:
            text = f"UserPromptSubmit operation blocked by hook:\n{made.blocked}"
            if self._no_verdict is not None:
                outcome = {"kind": "no_verdict", "prompt_kept": False, "no_verdict_kind": self._no_verdict}
            else:
                text += "" if self._hides_prompt else f"\n\nOriginal prompt: {self._prompt}"
                outcome = {"kind": "blocked_by_hook", "prompt_kept": False, "reason": made.blocked}
        elif (stop := made.stop_reason) is not None:
            text = f"Operation stopped by hook: {stop}" if stop else "Operation stopped by hook"
            outcome = {"kind": "stopped_by_hook", "prompt_kept": True, **present(reason=stop or None)}
            made.prompt_kept = True
        else:
            return
        more: JsonObject = {"prevent_continuation": True, "prompt_submit_outcome": outcome}
        made.refusal = frames.informational(text, "warning") | more


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
    def __init__(self, run: Run) -> None:
        self._run = run
        self._matchers: dict[str, list[_Matcher]] = {}
        self.prompt_id: str | None = str(uuid4())
        """The id of the current prompt, which each event carries."""
        self.continued: str | None = None
        """The id of a deferred call, in a session that continues it."""
        self.is_late = False
        """Whether that call runs before the host has registered its hooks."""

    def register(self, hooks: JsonObject | None) -> None:
        """Take the hooks of an `initialize` request in place of earlier ones. Raises `ValueError`, with the
        text of the program, if they have another form."""
        try:
            self._matchers = msgspec.convert(hooks or {}, type=dict[str, list[_Matcher]])
        except msgspec.ValidationError:
            raise ValueError(_FORM) from None

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
        """Ask each callback that matches, all at once, and wait for the answers. `subject` is what matchers
        look at; unset, it is the tool of the call, if there is one. What the program reports about the
        answers is written; for events about tools and prompts, it is in `notices`."""
        if call is not None:
            subject, tool_use_id = subject or call.name, tool_use_id or call.id
        elif tool_use_id is None:
            tool_use_id = f"hook-{uuid4()}" if event == "PostToolBatch" else str(uuid4())
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
        answers: dict[int, _Answer] = {}

        async def put(at: int, *, task_status: TaskStatus[None]) -> None:
            # Started here, so that the requests go out in order.
            task_status.started()
            callback, matcher = due[at]
            answers[at] = await self._ask(event, {"callback_id": callback, **request}, matcher)

        async with anyio.create_task_group() as tasks:
            for at in range(len(due)):
                await tasks.start(put, at)
        label = f"{event}:{subject}" if subject and "tool_name" in fields else event
        total = _Sum(event, label, str(fields.get("prompt", "")))
        for at in sorted(answers):
            total.add(answers[at])
        verdict = total.verdict()
        if is_continued and verdict.decision != "deny":
            # Said only where a session continues a deferred call.
            note: JsonObject = {"type": "hook_success", "hookName": f"{event}:Callback"}
            note |= {"toolUseID": tool_use_id, "hookEvent": event, "content": "", "command": "callback"}
            verdict.notices = (frames.attachment(note), *verdict.notices)
        if event not in _TOLD_LATER:
            for notice in verdict.notices:
                self._run.say(notice)
            verdict.notices = ()
        return verdict

    async def _ask(self, event: str, request: JsonObject, matcher: _Matcher) -> _Answer:
        callback = str(request["callback_id"])
        with anyio.move_on_after(matcher.timeout):
            try:
                made = _read_answer(event, await self._run.ask("hook_callback", request))
            except Refused as refusal:
                made = _Answer(failure=str(refusal), is_gone=refusal.is_gone)
            if made.failure is not None and not made.is_gone:
                self._complain(event, callback, matcher, made.failure)
            return msgspec.structs.replace(made, callback=callback, is_blocking=matcher.is_blocking)
        return _Answer(callback=callback, waited=matcher.timeout)

    def _complain(self, event: str, callback: str, matcher: _Matcher, failure: str) -> None:
        self._run.complain(f"Error in hook callback {callback}: {failure}")
        meaning = "Its answer was treated as empty."
        # A turn that is over cannot be blocked.
        if matcher.is_blocking and event != "Stop":
            meaning = 'onFailure is "block", so this failure counts as a block.'
        text = f"{event}: Hook callback {callback} failed: {_INVALID}. {meaning}"
        self._run.say({**frames.informational(text, "warning"), "tag": "hook_callback_failed"})

    def _input(self, event: str, fields: JsonObject, call: ToolCall | None) -> JsonObject:
        run = self._run
        made: JsonObject = {"session_id": run.session_id, "transcript_path": str(run.transcript_path)}
        made |= {"cwd": str(run.cwd), **present(prompt_id=self.prompt_id)}
        if event in _WITH_MODE:
            made["permission_mode"] = run.permission_mode
        if call is not None and call.agent_id is not None:
            made |= {"agent_id": call.agent_id, "agent_type": call.agent_type or ""}
        if event in _WITH_EFFORT:
            made["effort"] = {"level": run.invocation.effort or "medium"}
        return {**made, "hook_event_name": event, **fields}


def _matches(pattern: str | None, subject: str | None) -> bool:
    """A list of names, or else a regular expression to be found; one that is invalid matches nothing."""
    if not pattern or pattern == "*" or subject is None:
        return True
    if _NAMES.fullmatch(pattern):
        return subject in (name.strip() for name in re.split(r"[|,]", pattern))
    try:
        return re.search(pattern, subject) is not None
    except re.error:
        return False
