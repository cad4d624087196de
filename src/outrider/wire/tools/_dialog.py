"""Inputs of the built-in tools that turn to a person: questions, plans, messages, findings, notifications.

Does not hold the answers' way back: a host gives them as the updated input of a permission decision.
"""

from __future__ import annotations

from typing import Literal

from outrider.wire._value import Number, Value


class QuestionOption(Value):
    """One of the answers that a question offers."""

    label: str
    description: str
    preview: str | None = None
    """Something to show while this answer is picked out: a sketch, a piece of code."""


class Question(Value, rename={"multi_select": "multiSelect"}):
    """A question with answers to choose from."""

    question: str
    header: str
    """A word or two to put above it."""
    options: list[QuestionOption]
    multi_select: bool | None = None
    """More than one answer may be chosen."""


class QuestionNotes(Value):
    """What a person added to an answer."""

    notes: str | None = None
    preview: str | None = None
    """The preview of the answer that was chosen."""


class QuestionMetadata(Value):
    """Where a set of questions comes from."""

    source: str | None = None


class AskUserQuestionInput(Value):
    """Puts questions to the person; the host sends it back with `answers` filled in."""

    questions: list[Question]
    answers: dict[str, str] | None = None
    """The chosen label, or free text, by the question's text."""
    annotations: dict[str, QuestionNotes] | None = None
    """Remarks, by the question's text."""
    metadata: QuestionMetadata | None = None


class EnterPlanModeInput(Value):
    """Asks to plan first and change nothing meanwhile."""


class AllowedPrompt(Value):
    """A kind of action, in words, that a plan needs permission for."""

    tool: Literal["Bash"]
    prompt: str


class ExitPlanModeInput(Value, rename="camel"):
    """Presents the plan and asks to carry it out; the program fills in the plan from the agent's file."""

    plan: str | None = None
    plan_file_path: str | None = None
    allowed_prompts: list[AllowedPrompt] | None = None
    """Accepted and not used by today's program."""


class SentFile(Value):
    """A file that has been uploaded, to go with a message."""

    file_uuid: str
    file_name: str
    size: Number
    """In bytes."""
    is_image: bool
    media_type: str | None = None


class SendUserMessageInput(Value):
    """Says something to the person, in a session where plain answers are not shown."""

    message: str
    status: Literal["normal", "proactive"]
    """Whether it answers them or comes unasked."""
    attachments: list[str | SentFile] | None = None
    """Paths, or files that are uploaded already."""


class Finding(Value):
    """Something that a code review found."""

    file: str
    summary: str
    failure_scenario: str
    """How it would show."""
    line: int | None = None
    category: str | None = None
    short_summary: str | None = None
    verdict: Literal["CONFIRMED", "PLAUSIBLE"] | None = None
    outcome: Literal["fixed", "skipped", "no_change_needed"] | None = None


class ReportFindingsInput(Value):
    """Hands over the findings of a code review."""

    findings: list[Finding]
    level: str | None = None
    """The effort it was done with: `low`, `medium`, `high`, `xhigh`, `max`, or what a later program adds."""


class ReadNotificationsInput(Value):
    """Fetches the notices that have come in for the session."""


class ShowOnboardingRolePickerInput(Value):
    """Shows a newcomer the choice of roles."""
