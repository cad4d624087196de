"""Owns the tools that put something before the user: AskUserQuestion, EnterPlanMode and ExitPlanMode.

Whether they may run is decided in `permissions`, as for other tools.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import msgspec

from outrider.testing._simulator.permissions.rules import read_rule
from outrider.testing._simulator.world import Outcome, ToolSpec
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from outrider.testing._simulator.permissions.permissions import Permissions
    from outrider.testing._simulator.world import Surroundings, ToolCall

__all__ = ["Questions", "refusal"]

_ENTERED: Final = (
    "Entered plan mode. You should now focus on exploring the codebase and designing an implementation"
    " approach."
)
_NOT_PLANNING: Final = (
    "You are not in plan mode. Call EnterPlanMode first, or carry out the plan if it was approved."
)
_READ_ALL: Final = "Read the answers carefully, and do what they say."
_FEELINGS: Final = ("calm", "curious", "eager", "gentle", "keen", "merry", "patient", "quiet", "witty")
_THINGS: Final = ("acorn", "bridge", "comet", "harbor", "lantern", "meadow", "pebble", "river", "summit")

_OPTION: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "label": {"type": "string"},
        "description": {"type": "string"},
        "preview": {"type": "string"},
    },
    "required": ["label", "description"],
    "additionalProperties": False,
}
_QUESTION: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "question": {"type": "string"},
        "header": {"type": "string"},
        "options": {"type": "array", "items": _OPTION, "minItems": 2, "maxItems": 4},
        "multiSelect": {"type": "boolean", "default": False},
    },
    "required": ["question", "header", "options"],
    "additionalProperties": False,
}
_SPECS: Final = (
    ToolSpec(
        name="AskUserQuestion",
        description="Ask the user to choose between options.",
        input_schema={
            "type": "object",
            "properties": {
                "questions": {"type": "array", "items": _QUESTION, "minItems": 1, "maxItems": 4},
            },
            "required": ["questions"],
            "additionalProperties": False,
        },
    ),
    ToolSpec(
        name="EnterPlanMode",
        description="Change to plan mode, to design before anything is changed.",
        input_schema={"type": "object", "properties": {}, "additionalProperties": False},
    ),
    ToolSpec(
        name="ExitPlanMode",
        description="Put the plan in the plan file before the user.",
        input_schema={"type": "object", "properties": {"allowedPrompts": {"type": "array"}}},
    ),
)
_NAMES: Final = frozenset(spec.name for spec in _SPECS)


class Questions:
    """The tools of one run that ask the user. They are there only if somebody can be asked."""

    def __init__(self, run: Surroundings, permissions: Permissions) -> None:
        self._run, self._permissions = run, permissions
        name = "-".join(secrets.choice(words) for words in (_FEELINGS, _FEELINGS, _THINGS))
        self.plan_path: Path = run.config_dir / "plans" / f"{name}.md"
        """Where the model keeps its plan."""
        self._doers: dict[str, Callable[[JsonObject], Outcome]] = {
            "AskUserQuestion": _answered,
            "EnterPlanMode": self._enter,
            "ExitPlanMode": self._exit,
        }

    def specs(self) -> list[ToolSpec]:
        """The tools, if the run has a host that answers."""
        found = self._run.invocation
        if found.permission_prompt_tool is None:
            return []
        barred = [read_rule(text, "") for text in found.disallowed_tools]
        return [
            spec
            for spec in _SPECS
            if (found.tools is None or {"default", spec.name} & set(found.tools))
            and not any(rule.covers_tool(spec.name) for rule in barred)
        ]

    def owns(self, name: str) -> bool:
        """Whether the tool is one of these."""
        return name in _NAMES

    def reminder(self) -> str | None:
        """What the model is told in plan mode: which file the plan is for."""
        if self._run.permission_mode != "plan":
            return None
        found = "A plan is" if self.plan_path.exists() else "No plan file exists yet: write the plan to"
        return (
            f"Plan mode is active: change nothing but the plan file. {found} {self.plan_path} . Call"
            " ExitPlanMode when it is complete."
        )

    def plan(self) -> JsonObject:
        """The answer to `get_plan`."""
        text = self._plan_text()
        if text is None:
            return {"exists": False}
        return {"exists": True, "content": text, "path": str(self.plan_path)}

    def _plan_text(self) -> str | None:
        try:
            return self.plan_path.read_text(encoding="utf-8")
        except OSError:
            return None

    def filled(self, call: ToolCall) -> ToolCall:
        """The call with what the program adds to its input before anybody sees it: the plan.

        A plan that the script gives, and that no file holds, is put into the file.
        """
        if call.name == "AskUserQuestion":
            return call
        rest = {name: call.input[name] for name in call.input if name != "plan"}
        given = call.input.get("plan")
        if call.name == "ExitPlanMode" and self._run.permission_mode == "plan":
            if isinstance(given, str) and self._plan_text() is None:
                self.plan_path.parent.mkdir(parents=True, exist_ok=True)
                self.plan_path.write_text(given, encoding="utf-8")
            text = self._plan_text()
            if text is not None:
                rest |= {"plan": text, "planFilePath": str(self.plan_path)}
        return msgspec.structs.replace(call, input=rest)

    async def perform(self, call: ToolCall) -> Outcome:
        """Carry the call out, with the input that was allowed."""
        return self._doers[call.name](call.input)

    def _enter(self, given: JsonObject) -> Outcome:
        del given
        self._permissions.set_mode("plan")
        text = (
            f"{_ENTERED}\n\nExplore, compare approaches, use AskUserQuestion for what is open, and call"
            " ExitPlanMode with the plan. DO NOT write or edit any files yet."
        )
        return Outcome(content=text, detail={"message": _ENTERED})

    def _exit(self, given: JsonObject) -> Outcome:
        if self._run.permission_mode == "plan":
            self._permissions.set_mode(self._permissions.mode_before_plan)
        kept, plan = self._plan_text(), given.get("plan")
        text = plan if isinstance(plan, str) else kept
        path = str(self.plan_path)
        detail: JsonObject = {"plan": text, "isAgent": False, "filePath": path}
        if text is None:
            return Outcome(content="User has approved exiting plan mode. You can now proceed.", detail=detail)
        is_edited = text != kept
        if is_edited:
            detail["planWasEdited"] = True
        title = "Approved Plan (edited by user)" if is_edited else "Approved Plan"
        told = (
            "User has approved your plan. You can now start coding.\n\nYour plan has been saved to:"
            f" {path}\n\n## {title}:\n{text}"
        )
        return Outcome(content=told, detail=detail)


def refusal(call: ToolCall, mode: str) -> str | None:
    """Why such a call is refused before anybody is asked."""
    if call.name == "ExitPlanMode" and mode != "plan":
        return _NOT_PLANNING
    if call.name != "AskUserQuestion":
        return None
    questions = call.input.get("questions")
    if not isinstance(questions, list) or not questions:
        return "InputValidationError: `questions` has to hold at least one question"
    for question in cast("list[object]", questions):
        options = cast("JsonObject", question).get("options") if isinstance(question, dict) else None
        if not isinstance(options, list) or len(cast("list[object]", options)) < 2:
            return (
                "InputValidationError: This call included a question with fewer than 2 options, so it was"
                " rejected and the person never saw it."
            )
    return None


def _answered(given: JsonObject) -> Outcome:
    questions = cast("list[JsonObject]", given.get("questions") or [])
    answers = cast("JsonObject", given.get("answers") or {})
    notes = cast("JsonObject", given.get("annotations") or {})
    detail: JsonObject = {"questions": questions, "answers": answers}
    for name in ("annotations", "response"):
        if name in given:
            detail[name] = given[name]
    if given.get("response"):
        return Outcome(content=f"The user responded: {given['response']}", detail=detail)
    told = [_told(question, answers, notes) for question in questions if question.get("question") in answers]
    if not told:
        return Outcome(content="The user did not answer the questions.", detail=detail)
    joined = ", ".join(told)
    if notes or not all(_is_offered(question, answers) for question in questions):
        return Outcome(content=f"The user answered: {joined}. {_READ_ALL}", detail=detail)
    text = f"Your questions have been answered: {joined}. You can now continue with these answers in mind."
    return Outcome(content=text, detail=detail)


def _told(question: JsonObject, answers: JsonObject, notes: JsonObject) -> str:
    asked = str(question.get("question"))
    text = f'"{asked}"="{_joined(answers[asked], ",")}"'
    note = cast("JsonObject", notes.get(asked) or {})
    if note.get("preview"):
        text += f" selected preview:\n{note['preview']}"
    if note.get("notes"):
        text += f" notes: {note['notes']}"
    return text


def _joined(answer: object, between: str) -> str:
    if isinstance(answer, list):
        return between.join(str(part) for part in cast("list[object]", answer))
    return str(answer)


def _is_offered(question: JsonObject, answers: JsonObject) -> bool:
    """Whether the answer, if there is one, is among the options."""
    answer = answers.get(str(question.get("question")))
    if answer is None:
        return True
    options = cast("list[JsonObject]", question.get("options") or [])
    labels = {str(option.get("label")) for option in options}
    text = _joined(answer, ", ")
    return text in labels or (question.get("multiSelect") is True and set(text.split(", ")) <= labels)
