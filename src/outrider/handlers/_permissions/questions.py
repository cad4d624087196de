"""Answers the two tools that ask a person: `AskUserQuestion`, one question at a time, and `ExitPlanMode`.

`requests` decides when they are asked, and denies a call if its callback fails.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeGuard, cast

import msgspec

from outrider.handlers._answers import Answer
from outrider.handlers._calls import CallContext, attempt, name_of
from outrider.handlers._permissions.decisions import (
    NO_REASON,
    Decision,
    NotADecision,
    allowed,
    denied,
    read_decision,
)
from outrider.handlers._permissions.requests import PermissionRequest, denied_by_failure, denied_for_nonsense
from outrider.redaction import preview, preview_value
from outrider.wire.tools import QuestionOption

if TYPE_CHECKING:
    from collections.abc import Callable

    from outrider.handlers._router import Origin
    from outrider.wire import JsonObject
    from outrider.wire.control import CanUseTool


class Question(CallContext):
    """A question of the agent to its user.

    Answer it with the label of an option or with a text of your own; with several of them, if `multi_select`;
    with None, if the user has no answer.
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
        """The request with all of its questions, as the wire has it; not to be changed."""
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
        """What has been answered to the ones before it, by their texts."""
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
    """A plan of the agent, made in plan mode, that it wants to carry out.

    Return True or `allow()` to let it, `allow(updates=[…])` to choose the permission mode for that; a text or
    `deny("…")` sends it back with what is to be changed.
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
    """What was said to a plan: as with any permission, and a text is what is to be changed."""
    if isinstance(value, str):
        return denied(value if value.strip() else NO_REASON, f"{who} sent it back: {preview(value)}")
    return read_decision(value, original, tool_use_id, who)


async def ask_questions(
    on_question: Callable[..., object], ask: CanUseTool, origin: Origin, timeout: float | None
) -> Decision:
    """Put each of the questions to the callback, in order; a denial if one of them fails in any way.

    `timeout` is for each.
    """
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
    # What the model filled in itself is not an answer of the user's.
    original = {key: value for key, value in ask.input.items() if key not in ("answers", "annotations")}
    more = {"annotations": annotations} if annotations else {}
    return allowed(
        original | {"answers": answers} | more, f"{who} answered {len(answers)} of {len(asked)} questions"
    )


def _refused(answer: Answer, ask: CanUseTool, who: str) -> Decision:
    try:
        return read_decision(answer, ask.input, ask.tool_use_id, who)
    except NotADecision as error:
        return denied_for_nonsense(error, who, ask.tool_name)


def _read(value: object, question: Question) -> tuple[str | None, str | None]:
    """The answer, as the agent has it, and the remark."""
    notes: object = None
    if isinstance(value, QuestionReply):
        notes, value = value.notes, value.answer
        if not isinstance(cast(object, notes), str):
            raise NotADecision(f"the notes of a reply must be a text, not {preview_value(notes)}")
    given = [value] if value is None or isinstance(value, str) else value
    if not _is_list(given) or not all(isinstance(each, str | None) for each in given):
        wanted = "a label or a text, several in a list," if question.multi_select else "a label or a text"
        raise NotADecision(f"{preview_value(value)} answers no question: return {wanted} or None")
    texts = [each for each in given if isinstance(each, str) and each.strip()]
    if len(texts) > 1 and not question.multi_select:
        raise NotADecision(
            f"{preview_value(value)} are several answers, and {preview(question.text, 80)!r} takes one"
        )
    return ", ".join(texts) or None, notes if isinstance(notes, str) and notes.strip() else None


def _annotation(question: Question, answer: str | None, notes: str | None) -> JsonObject:
    """What goes along with an answer: the preview that the user saw beside it, and the remark."""
    shown = next((each.preview for each in question.options if each.label == answer and each.preview), None)
    fields = {"preview": shown, "notes": notes}
    return {key: value for key, value in fields.items() if value}


def _questions(input: JsonObject) -> list[JsonObject]:
    asked: object = input.get("questions")
    if not _is_list(asked) or not asked:
        raise NotADecision("it asked no questions")
    found = [each for each in asked if _is_object(each) and _text(each.get("question"))]
    if len(found) < len(asked):
        raise NotADecision("it asked a question without words")
    return found


def _options(value: object) -> tuple[QuestionOption, ...]:
    offered = value if _is_list(value) else ()
    return tuple(
        QuestionOption(
            label=_text(each.get("label")),
            description=_text(each.get("description")),
            preview=_text(each.get("preview")) or None,
        )
        for each in offered
        if _is_object(each)
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _is_object(value: object) -> TypeGuard[JsonObject]:
    return isinstance(value, dict)


def _is_list(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, list | tuple)
