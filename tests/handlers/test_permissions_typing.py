"""What type checkers know of permissions and policies. The file is the test: mypy and pyright read it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Literal, assert_type

from outrider.handlers import (
    Answer,
    Choice,
    Considered,
    DialogRequest,
    ElicitationRequest,
    Explanation,
    FormField,
    Hook,
    PermissionRequest,
    Plan,
    Policy,
    Question,
    QuestionReply,
    Rule,
    accept,
    allow,
    cancel,
    decline,
    deny,
)
from outrider.handlers._permissions.elicitation import FieldType
from outrider.handlers._policy.rule import Verdict
from outrider.options import Options
from outrider.wire import Json, JsonObject, Value
from outrider.wire.control import ElicitationResult
from outrider.wire.permissions import PermissionUpdate
from outrider.wire.tools import BashInput, QuestionOption


async def permission(request: PermissionRequest) -> Answer | bool:
    assert_type(request.tool_name, str)
    assert_type(request.tool_input, JsonObject)
    assert_type(request.tool_use_id, str | None)
    assert_type(request.suggestions, tuple[PermissionUpdate, ...])
    assert_type(request.tool, Value | None)
    assert_type(request.plan, str | None)
    assert_type(request.agent_id, str | None)
    assert_type(request.is_cancelled, bool)
    match request.tool:
        case BashInput(command=command):
            assert_type(command, str)
            return deny(command)
        case _:
            return allow(updates=request.suggestions)


def on_question(question: Question) -> str | list[str] | QuestionReply | None:
    assert_type(question.text, str)
    assert_type(question.options, tuple[QuestionOption, ...])
    assert_type(question.multi_select, bool)
    assert_type(question.answers, Mapping[str, str])
    return QuestionReply(question.labels[0], "why") if question.is_offered("x") else None


def on_plan(plan: Plan) -> Answer | bool | str:
    assert_type(plan.text, str)
    assert_type(plan.path, str | None)
    return "Add a step"


def on_elicitation(request: ElicitationRequest) -> JsonObject | ElicitationResult | bool | None:
    assert_type(request.mode, Literal["form", "url"])
    assert_type(request.fields, tuple[FormField, ...])
    assert_type(request.fields[0].type, FieldType)
    assert_type(request.fields[0].choices, tuple[Choice, ...])
    return accept({"a": 1}) if request.url else decline() if request.schema else cancel()


def on_user_dialog(request: DialogRequest) -> Json:
    assert_type(request.kind, str)
    assert_type(request.payload, Json)
    return None


def test_policies_are_typed() -> None:
    policy = Policy.of(
        {"deny": "Bash", "command": ["rm *"]}, Rule("allow", "Read", path="a"), otherwise=permission
    )
    assert_type(policy, Policy)
    assert_type(policy.rules, tuple[Rule, ...])
    assert_type(policy.rules[0].command, tuple[str, ...])
    assert_type(policy.default, Verdict)
    assert_type(policy.to_data(), JsonObject)
    assert_type(policy.guard(), Hook[..., Awaitable[Answer | None]])
    explained = policy.explain("Bash", {"command": "ls"})
    assert_type(explained, Explanation)
    assert_type(explained.decision, Verdict)
    assert_type(explained.rule, Rule | None)
    assert_type(explained.considered, tuple[Considered, ...])


def test_callbacks_are_options() -> None:
    options = Options(
        permission=permission,
        on_question=on_question,
        on_plan=on_plan,
        on_elicitation=on_elicitation,
        on_user_dialog=on_user_dialog,
    )
    assert_type(options.on_question, Callable[..., object] | None)
    assert_type(options.on_plan, Callable[..., object] | None)
    assert Options(permission=Policy.of({"allow": "Read"})).permission
