"""Answers permission requests with the user's callbacks, and denies everything they do not clearly allow."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from time import perf_counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import msgspec

from outrider.errors import Denied, OutriderError
from outrider.handlers._answers import Answer, Postponed
from outrider.handlers._calls import Attempt, CallContext, CallTimedOut, attempt, name_of, outcome_of
from outrider.handlers._router import PermissionHandled
from outrider.handlers._tool_names import resolved_updates
from outrider.options._validators import is_list
from outrider.redaction import preview, preview_value
from outrider.wire import JsonObject, Value, encode
from outrider.wire._encoding import to_wire
from outrider.wire._tolerant import is_object
from outrider.wire.permissions import (
    UPDATE_KEYS,
    PermissionResultAllow,
    PermissionResultDeny,
    PermissionUpdate,
)
from outrider.wire.tools import QuestionOption, typed_input

if TYPE_CHECKING:
    from collections.abc import Callable

    from outrider.handlers._router import Observe, Origin, Outcome
    from outrider.options._tool_names import ToolNames
    from outrider.wire import Json
    from outrider.wire.choices import DecisionReasonType
    from outrider.wire.control import CanUseTool, ComputerFolder, MatchedAskRule
    from outrider.wire.hooks import McpServerSource


NO_REASON: Final = "The host does not allow this, and gave no reason."
"""The message of a denial without a reason."""

_ALLOW_KEYS: Final = frozenset(("updatedInput", "updatedPermissions"))
_DENY_KEYS: Final = frozenset(("message", "interrupt"))
_ANY_KEYS: Final = frozenset(("behavior", "toolUseID", "decisionClassification"))


class NotADecision(ValueError):
    """A callback returned something that is not a decision; the text says why."""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """A permission request decided, as sent."""

    wire: JsonObject
    reason: str
    """Who decided and why, for observers; the model sees at most `wire["message"]`."""
    outcome: Outcome = "answered"
    error: BaseException | None = None
    is_postponed: bool = False
    """Whether it denies only for now."""

    @property
    def is_allowed(self) -> bool:
        return bool(self.wire["behavior"] == "allow")

    @property
    def verdict(self) -> Literal["allow", "deny", "pending"]:
        """The same, for observers."""
        return "allow" if self.is_allowed else "pending" if self.is_postponed else "deny"


def allowed(input: JsonObject, reason: str, **more: object) -> Decision:
    """The tool may run, with this input."""
    return Decision(wire={"behavior": "allow", "updatedInput": input} | more, reason=reason)


def denied(
    message: str,
    reason: str,
    *,
    interrupt: bool = False,
    outcome: Outcome = "answered",
    error: BaseException | None = None,
) -> Decision:
    """The tool may not run; the message is for the model."""
    wire: JsonObject = {"behavior": "deny", "message": message}
    return Decision(
        wire=wire | {"interrupt": True} if interrupt else wire, reason=reason, outcome=outcome, error=error
    )


def read_decision(value: object, original: JsonObject, tool_use_id: str, who: str) -> Decision:
    """The decision that a callback returned about a call with the input `original`. `who` names the callback.
    Raises `NotADecision` for anything that is not clearly a decision."""
    if value is True:
        return allowed(original, f"{who} allowed it")
    if value is False:
        return denied(NO_REASON, f"{who} denied it")
    if isinstance(value, Answer):
        return _from_answer(value, original, who)
    if isinstance(value, PermissionResultAllow | PermissionResultDeny):
        try:
            value = value.to_wire()
        except Exception as error:
            raise NotADecision(f"{preview_value(value)} cannot be written as JSON: {error}") from error
    if is_object(value):
        return _from_wire(value, original, tool_use_id, who)
    raise NotADecision(f"{preview_value(value)} is not a decision: return allow() or deny('why')")


def _from_answer(answer: Answer, original: JsonObject, who: str) -> Decision:
    note = answer.notice if isinstance(answer.notice, str) else None
    if answer.verdict == "deny":
        decision = _denial(answer.reason, answer.interrupt, who, note)
        return msgspec.structs.replace(decision, is_postponed=isinstance(answer, Postponed))
    if answer.verdict != "allow":
        raise NotADecision(
            f"{answer.verdict or 'an answer without a verdict'} does not decide a permission: "
            "return allow() or deny('why')"
        )
    changed = original
    if answer.value is not msgspec.UNSET:
        changed = _input(answer.value)
    elif answer.changes:
        changed = original | _input(answer.changes)
    note = note or (answer.reason if isinstance(answer.reason, str) else None)
    more = {"updatedPermissions": updates} if (updates := read_updates(answer.updates)) else {}
    return allowed(changed, _says(who, "allowed it", note), **more)


def _from_wire(value: JsonObject, original: JsonObject, tool_use_id: str, who: str) -> Decision:
    behavior = value.get("behavior")
    if behavior not in ("allow", "deny"):
        raise NotADecision(f"`behavior` must be 'allow' or 'deny', not {preview_value(behavior)}")
    # A misspelled `updatedInput` would let the call through as it was.
    if unknown := value.keys() - _ANY_KEYS - (_ALLOW_KEYS if behavior == "allow" else _DENY_KEYS):
        raise NotADecision(f"{sorted(map(str, unknown))} are unknown with `behavior` {behavior!r}")
    if value.get("toolUseID") not in (None, tool_use_id):
        raise NotADecision("it decides about another tool call, by its `toolUseID`")
    classification = value.get("decisionClassification")
    if not isinstance(classification, str | None):
        raise NotADecision("`decisionClassification` must be a text")
    aside: JsonObject = {} if classification is None else {"decisionClassification": classification}
    if behavior == "deny":
        decision = _denial(value.get("message", ""), value.get("interrupt", False), who)
        return msgspec.structs.replace(decision, wire=decision.wire | aside)
    if updates := read_updates(value.get("updatedPermissions")):
        aside["updatedPermissions"] = updates
    changed: object = value.get("updatedInput")
    return allowed(original if changed is None else _input(changed), f"{who} allowed it", **aside)


def _denial(message: object, interrupt: object, who: str, note: str | None = None) -> Decision:
    if not isinstance(message, str):
        raise NotADecision(f"a denial says why in a text, not in {preview_value(message)}")
    if not isinstance(interrupt, bool):
        raise NotADecision(f"`interrupt` must be True or False, not {preview_value(interrupt)}")
    said = message if message.strip() else NO_REASON
    return denied(said, _says(who, "denied it", note or message.strip()), interrupt=interrupt)


def _input(value: object) -> JsonObject:
    if not is_object(value):
        raise NotADecision(f"the input of a tool must be a dict, not {preview_value(value)}")
    if not all(isinstance(key, str) for key in cast("dict[object, object]", value)):
        raise NotADecision("the keys in the input of a tool must be text")
    try:
        plain: JsonObject = to_wire(value)
        encode(plain)
    except (OutriderError, RecursionError) as error:
        raise NotADecision("the input of a tool must be JSON") from error
    return plain


def read_updates(value: object) -> list[JsonObject]:
    """Permission updates as they are sent. Raises `NotADecision` for those that Claude Code would ignore."""
    if value is None:
        return []
    if not is_list(value):
        raise NotADecision(f"updates must be a list, not {preview_value(value)}")
    return [_update(each) for each in value]


def _update(value: object) -> JsonObject:
    # An update that the agent suggested is returned unchanged, even if its kind is unknown.
    is_suggested = getattr(value, "_raw", None) is not None
    try:
        given = value.to_dict() if isinstance(value, PermissionUpdate) else value
        update = msgspec.convert(given, PermissionUpdate)
    except Exception as error:
        raise NotADecision(f"{preview_value(value)} is not a `PermissionUpdate`: {error}") from error
    plain = _input(given)
    if update.type not in UPDATE_KEYS:
        if is_suggested:
            return plain
        raise NotADecision(f"there is no update of the type {update.type!r}")
    for needed in UPDATE_KEYS[update.type]:
        if getattr(update, needed) is None:
            raise NotADecision(f"an update of the type {update.type!r} needs `{needed}`")
    return {"destination": "session", **plain}


def _says(who: str, did: str, why: str | None) -> str:
    return f"{who} {did}: {why}" if why else f"{who} {did}"


log = logging.getLogger("outrider.session")

_UNTOUCHED: Final = object()


class PermissionRequest(CallContext):
    """Claude Code asks whether it may use a tool.

    `tool_input` and `tool` are copies. To run the tool with another input, return `allow(input=…)`: a call
    that is allowed after they were changed in place is denied, because it is not clear what was meant.
    """

    def __init__(self, ask: CanUseTool, origin: Origin) -> None:
        super().__init__(origin, ask.tool_use_id)
        self.ask: Final = ask
        """The request as received; do not change it."""
        self.tool_name: Final[str] = ask.tool_name
        self.tool_input: Final[JsonObject] = copied(ask.input)
        """The input of the tool."""
        self.suggestions: Final[tuple[PermissionUpdate, ...]] = tuple(ask.permission_suggestions or ())
        """Permission updates that would avoid the question next time, for `allow(updates=…)`."""
        self.blocked_path: Final[str | None] = ask.blocked_path
        """The path that made the agent ask."""
        self.decision_reason: Final[str | None] = ask.decision_reason
        """Why the agent asks, in words."""
        self.decision_reason_type: Final[DecisionReasonType | None] = ask.decision_reason_type
        self.decision_reason_code: Final[str | None] = ask.decision_reason_code
        self.decision_reason_hook_event: Final[str | None] = ask.decision_reason_hook_event
        """Where a hook wanted the question: its event."""
        self.decision_reason_hook_source: Final[str | None] = ask.decision_reason_hook_source
        """Where a hook wanted the question: which settings it is from."""
        self.decision_reason_rule_source: Final[str | None] = ask.decision_reason_rule_source
        """Where a rule wanted the question: which settings it is from."""
        self.matched_ask_rule: Final[MatchedAskRule | None] = ask.matched_ask_rule
        """The rule of the agent's settings because of which it asks."""
        self.classifier_approvable: Final[bool | None] = ask.classifier_approvable
        """A classifier may decide in place of a person."""
        self.suppress_always_allow_rule: Final[bool | None] = ask.suppress_always_allow_rule
        """Do not offer to always allow similar calls."""
        self.default_to_no: Final[bool | None] = ask.default_to_no
        """Offer the refusal first."""
        self.requires_user_interaction: Final[bool | None] = ask.requires_user_interaction
        """Only a person can answer: the tool itself is a question."""
        self.server_policy_ask_only: Final[bool | None] = ask.server_policy_ask_only
        self.title: Final[str | None] = ask.title
        self.display_name: Final[str | None] = ask.display_name
        """The tool's name for people."""
        self.description: Final[str | None] = ask.description
        """What the call does, for people."""
        self.agent_id: Final[str | None] = ask.agent_id
        """The subagent that wants to use the tool; None for the main one."""
        self.mcp_server: Final[McpServerSource | None] = ask.mcp_server
        """Of a tool that an MCP server offers."""
        self.computer_folder: Final[ComputerFolder | None] = ask.computer_folder
        self.plugin: Final[Json] = ask.plugin
        self.server_prompt: Final[Json] = ask.server_prompt
        self._tool: object = _UNTOUCHED

    @property
    def tool(self) -> Value | None:
        """The input as a typed value of `outrider.wire.tools` for a built-in tool: `BashInput(command="ls")`.
        None for all others, and where it does not have the form that is known."""
        if self._tool is _UNTOUCHED:
            self._tool = self._typed()
        return cast("Value | None", self._tool)

    @property
    def plan(self) -> str | None:
        """The plan to approve, for `ExitPlanMode`: empty where the agent wrote none. None for other tools."""
        if self.tool_name != "ExitPlanMode":
            return None
        plan: object = self.tool_input.get("plan")
        return plan if isinstance(plan, str) else ""

    @property
    def is_changed(self) -> bool:
        """Whether someone has changed `tool_input` or `tool` in place."""
        return self.tool_input != self.ask.input or (
            self._tool is not _UNTOUCHED and self._tool != self._typed()
        )

    def _typed(self) -> Value | None:
        value = typed_input(self.tool_name, self.ask.input)
        return value if isinstance(value, Value) else None

    def __repr__(self) -> str:
        agent = f" by {self.agent_id}" if self.agent_id else ""
        return f"<{type(self).__name__} {self.tool_name} {preview_value(self.tool_input)}{agent}>"


class Permissions:
    """Decides the permission requests of one session.

    `permission` takes a `PermissionRequest` and returns `allow(…)`, `deny("why")`, True, False, a
    `PermissionResult` or such a result as a dict, or raises `Denied`. Anything else, an error, a timeout or a
    missing callback is a denial: the model learns the kind of failure, the log has the rest.
    """

    def __init__(
        self,
        permission: Callable[..., object] | None,
        on_question: Callable[..., object] | None,
        on_plan: Callable[..., object] | None,
        observe: Observe,
        names: Callable[[], ToolNames],
        timeout: float | None = None,
    ) -> None:
        """`names` returns the names of the session's tools. `timeout`: how many seconds a callback may take
        for one decision. None: no limit."""
        self._permission = permission
        self._on_question = on_question
        self._on_plan = on_plan
        self._observe = observe
        self._names = names
        self._timeout = timeout
        self._is_closed = False

    def close(self) -> None:
        """The session ends: from now on everything is denied, open requests included."""
        self._is_closed = True

    async def answer(self, ask: CanUseTool, origin: Origin) -> JsonObject:
        """The decision, as sent. Raises only cancellation and exceptions that end programs."""
        began = perf_counter()
        try:
            decision = await self._decide(ask, origin)
        except Exception as error:  # noqa: BLE001 - a mistake of ours allows nothing either
            decision = denied_by_failure(Attempt(outcome="failed", error=error), "Outrider", ask.tool_name)
        except BaseException as error:
            undecided = denied("", "it was not decided", outcome=outcome_of(error), error=error)
            self._report(ask, began, undecided)
            raise
        self._report(ask, began, decision)
        return decision.wire

    async def _decide(self, ask: CanUseTool, origin: Origin) -> Decision:
        decision = _closed() if self._is_closed else await self._decided(ask, origin)
        if updates := decision.wire.get("updatedPermissions"):
            suggested = ask.permission_suggestions or ()
            decision.wire["updatedPermissions"] = resolved_updates(updates, suggested, self._names())
        # It may have been closed meanwhile.
        return _closed() if self._is_closed else decision

    async def _decided(self, ask: CanUseTool, origin: Origin) -> Decision:
        if ask.tool_name == "AskUserQuestion" and self._on_question is not None:
            return await ask_questions(self._on_question, ask, origin, self._timeout)
        if ask.tool_name == "ExitPlanMode" and self._on_plan is not None:
            return await decided_by(self._on_plan, Plan(ask, origin), self._timeout, read_approval)
        if self._permission is not None:
            return await decided_by(self._permission, PermissionRequest(ask, origin), self._timeout)
        return denied("Nobody can be asked for permission here.", "there is no permission callback")

    def _report(self, ask: CanUseTool, began: float, decision: Decision) -> None:
        self._observe(
            PermissionHandled(
                seconds=perf_counter() - began,
                outcome=decision.outcome,
                error=decision.error,
                tool_use_id=ask.tool_use_id,
                tool_name=ask.tool_name,
                input=ask.input,
                decision=decision.verdict,
                reason=decision.reason,
            )
        )


async def decided_by(
    callback: Callable[..., object],
    request: PermissionRequest,
    timeout: float | None,
    read: Callable[..., Decision] = read_decision,
) -> Decision:
    """The decision of a callback about a request; a denial if it fails in any way."""
    who = name_of(callback)
    tried = await attempt(callback, request, timeout)
    if tried.outcome != "answered":
        return denied_by_failure(tried, who, request.tool_name)
    try:
        decision = read(tried.value, request.ask.input, request.ask.tool_use_id, who)
        if decision.is_allowed and request.is_changed and decision.wire["updatedInput"] is request.ask.input:
            raise NotADecision("it changed the request in place: return allow(input=…) to change the input")
    except NotADecision as error:
        return denied_for_nonsense(error, who, request.tool_name)
    except Exception as error:  # noqa: BLE001 - of an object of the user's that was looked at
        return denied_by_failure(Attempt(outcome="failed", error=error), who, request.tool_name)
    return decision


def denied_by_failure(tried: Attempt, who: str, tool_name: str) -> Decision:
    """The denial for a callback that raised or took too long. It raises `Denied` to deny."""
    error = tried.error
    if isinstance(error, Denied):
        said = str(error.reason or "").strip() or NO_REASON
        return denied(said, f"{who} denied it: {said}", interrupt=bool(error.interrupt))
    if isinstance(error, CallTimedOut) and tried.outcome == "timed_out":
        log.error("%s did not decide about %s within %g s: denied", who, tool_name, error.seconds)
        message = f"Nobody decided about this within {error.seconds:g} s, so it is not allowed."
        return denied(message, f"{who} gave {error}", outcome="timed_out", error=error)
    log.error("%s failed to decide about %s: denied", who, tool_name, exc_info=error)
    kind = type(error).__name__
    return denied(
        f"The host failed to decide about this ({kind}), so it is not allowed.",
        f"{who} raised {kind}",
        outcome="failed",
        error=error,
    )


def denied_for_nonsense(error: NotADecision, who: str, tool_name: str) -> Decision:
    """The denial for something that is not a decision."""
    log.error("%s did not decide about %s: denied, because %s", who, tool_name, error)
    return denied(
        "The host gave no valid decision about this, so it is not allowed.",
        f"{who} gave no valid decision: {error}",
        outcome="failed",
        error=error,
    )


def _closed() -> Decision:
    return denied("The session is being closed, so nothing more is allowed.", "the session is closed")


def copied(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """A copy of a JSON value that shares nothing that can be changed."""
    if isinstance(value, dict):
        return {key: copied(item) for key, item in cast("JsonObject", value).items()}
    return [copied(item) for item in cast("list[object]", value)] if isinstance(value, list) else value


class Question(CallContext):
    """A question from the agent to its user.

    Answer with the label of an option or any other text, with several in a list if `multi_select`, or with
    None if the user has no answer.
    """

    def __init__(
        self,
        asked: JsonObject,
        ask: CanUseTool,
        origin: Origin,
        *,
        index: int,
        total: int,
        answers: Mapping[str, str],
    ) -> None:
        super().__init__(origin, ask.tool_use_id)
        self.ask: Final = ask
        """The request with all of its questions, as received; do not change it."""
        self.text: Final = _text(asked.get("question"))
        self.header: Final = _text(asked.get("header"))
        """A word or two to put above it."""
        self.options: Final = _options(asked.get("options"))
        """The answers that it offers."""
        self.multi_select: Final = asked.get("multiSelect") is True
        """More than one answer may be chosen."""
        self.index: Final = index
        """Which one of the questions it is, from 0."""
        self.total: Final = total
        """How many questions are asked together."""
        self.answers: Final[Mapping[str, str]] = answers
        """The answers to the questions before it, by their texts."""
        self.agent_id: Final = ask.agent_id
        """The subagent that asks; None for the main one."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of the options."""
        return tuple(option.label for option in self.options)

    def is_offered(self, answer: str) -> bool:
        """Whether an answer is the label of an option, and not a text of the user's own."""
        return answer in self.labels

    def __repr__(self) -> str:
        return f"<Question {self.index + 1} of {self.total}: {preview(self.text, 80)}>"


class QuestionReply(msgspec.Struct, frozen=True):
    """An answer to a question, with a remark."""

    answer: str | Sequence[str] | None
    """As without a remark: a label or a text, several, or None for no answer."""
    notes: str
    """What the user adds to it."""


class Plan(PermissionRequest):
    """A plan that the agent made in plan mode and wants to carry out.

    Return True or `allow()` to approve it, `allow(updates=[…])` to also choose the permission mode, or a text
    or `deny("…")` to send it back with what should change.
    """

    def __init__(self, ask: CanUseTool, origin: Origin) -> None:
        super().__init__(ask, origin)
        self.text: Final = _text(ask.input.get("plan"))
        """The plan, in Markdown; empty where the agent wrote none."""
        self.path: Final = _text(ask.input.get("planFilePath")) or None
        """The file that the plan is in, where the agent runs."""

    def __repr__(self) -> str:
        return f"<Plan {preview(self.text, 80)!r}>"


def read_approval(value: object, original: JsonObject, tool_use_id: str, who: str) -> Decision:
    """The decision about a plan: as with any permission; a text says what to change."""
    if isinstance(value, str):
        return denied(value if value.strip() else NO_REASON, f"{who} sent it back: {preview(value)}")
    return read_decision(value, original, tool_use_id, who)


async def ask_questions(
    on_question: Callable[..., object], ask: CanUseTool, origin: Origin, timeout: float | None
) -> Decision:
    """Ask the callback each of the questions, in order; a denial if one of them fails in any way. `timeout`
    is for each."""
    who = name_of(on_question)
    answers: dict[str, str] = {}
    annotations: dict[str, JsonObject] = {}
    try:
        asked = _questions(ask.input)
    except NotADecision as error:
        return denied_for_nonsense(error, "the agent", ask.tool_name)
    for index, each in enumerate(asked):
        question = Question(
            each, ask, origin, index=index, total=len(asked), answers=MappingProxyType(answers)
        )
        tried = await attempt(on_question, question, timeout)
        if tried.outcome != "answered":
            return denied_by_failure(tried, who, ask.tool_name)
        if isinstance(tried.value, Answer) and tried.value.verdict == "deny":
            return _refused(tried.value, ask, who)
        try:
            answer, notes = _read(tried.value, question)
        except NotADecision as error:
            return denied_for_nonsense(error, who, ask.tool_name)
        if answer is not None:
            answers[question.text] = answer
        if note := _annotation(question, answer, notes):
            annotations[question.text] = note
    more = {"annotations": annotations} if annotations else {}
    return allowed(
        _unanswered(ask.input) | {"answers": answers} | more,
        f"{who} answered {len(answers)} of {len(asked)} questions",
    )


def answered(given: Mapping[str, object], input: JsonObject, who: str) -> Decision:
    """The decision that answers the questions of this input, by their texts. Raises `NotADecision`."""
    asked = {str(each["question"]): each.get("multiSelect") is True for each in _questions(input)}
    answers: dict[str, str] = {}
    for name, value in given.items():
        if name not in asked:
            raise NotADecision(f"{preview_value(name)} was not asked, but {preview_value(list(asked))}")
        answer = _read_answer(value, name, multi_select=asked[name])
        if answer is not None:
            answers[name] = answer
    return allowed(_unanswered(input) | {"answers": answers}, f"{who} answered {len(answers)} questions")


def _unanswered(input: JsonObject) -> JsonObject:
    # Answers that the model filled in are not the user's.
    return {key: value for key, value in input.items() if key not in ("answers", "annotations")}


def _refused(answer: Answer, ask: CanUseTool, who: str) -> Decision:
    try:
        return read_decision(answer, ask.input, ask.tool_use_id, who)
    except NotADecision as error:
        return denied_for_nonsense(error, who, ask.tool_name)


def _read(value: object, question: Question) -> tuple[str | None, str | None]:
    """The answer as the agent takes it, and the remark."""
    notes: object = None
    if isinstance(value, QuestionReply):
        notes, value = value.notes, value.answer
        if not isinstance(cast(object, notes), str):
            raise NotADecision(f"the notes of a reply must be a text, not {preview_value(notes)}")
    answer = _read_answer(value, question.text, multi_select=question.multi_select)
    return answer, notes if isinstance(notes, str) and notes.strip() else None


def _read_answer(value: object, question: str, *, multi_select: bool) -> str | None:
    given = [value] if value is None or isinstance(value, str) else value
    if not is_list(given) or not all(isinstance(each, str | None) for each in given):
        wanted = "a label or a text, several in a list," if multi_select else "a label or a text"
        raise NotADecision(f"{preview_value(value)} answers no question: return {wanted} or None")
    texts = [each for each in given if isinstance(each, str) and each.strip()]
    if len(texts) > 1 and not multi_select:
        raise NotADecision(
            f"{preview_value(value)} are several answers, and {preview(question, 80)!r} takes one"
        )
    return ", ".join(texts) or None


def _annotation(question: Question, answer: str | None, notes: str | None) -> JsonObject:
    """The annotation of an answer: the preview that the user saw beside it, and the remark."""
    shown = next((each.preview for each in question.options if each.label == answer and each.preview), None)
    fields = {"preview": shown, "notes": notes}
    return {key: value for key, value in fields.items() if value}


def _questions(input: JsonObject) -> list[JsonObject]:
    asked: object = input.get("questions")
    if not is_list(asked) or not asked:
        raise NotADecision("it asked no questions")
    found = [each for each in asked if is_object(each) and _text(each.get("question"))]
    if len(found) < len(asked):
        raise NotADecision("it asked a question without words")
    return found


def _options(value: object) -> tuple[QuestionOption, ...]:
    offered = value if is_list(value) else ()
    return tuple(
        QuestionOption(
            label=_text(each.get("label")),
            description=_text(each.get("description")),
            preview=_text(each.get("preview")) or None,
        )
        for each in offered
        if is_object(each)
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
