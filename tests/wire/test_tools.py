"""Inputs of built-in tools: the classes say what the program's schemas say, and lose nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.wire._value import Value
from outrider.wire.tools import (
    BUILTIN_TOOL_NAMES,
    TOOL_ALIASES,
    TOOL_INPUTS,
    AgentInput,
    AskUserQuestionInput,
    BashInput,
    EditInput,
    ExitPlanModeInput,
    GrepInput,
    PlanApprovalResponse,
    Question,
    QuestionOption,
    ReadInput,
    SendMessageInput,
    SendUserMessageInput,
    SentFile,
    ShutdownRequest,
    TaskCreateInput,
    TaskListInput,
    TaskStopInput,
    TaskUpdateInput,
    TodoItem,
    TodoWriteInput,
    ToolSearchInput,
    WorkflowInput,
    WriteInput,
    typed_input,
)
from tests.cases import every_case

JsonObject = dict[str, Any]

DATA = Path(__file__).parent / "data"
# As offered to the model by version 2.1.325, without their texts; of several forms of a tool, the widest one.
SCHEMAS: dict[str, JsonObject] = json.loads((DATA / "tool_schemas.json").read_text())
# From the recordings: one of each shape.
RECORDED: list[JsonObject] = [
    json.loads(line) for line in (DATA / "tool_inputs.jsonl").read_text().splitlines()
]

# Choices that grow from version to version: a plain string, so that a new one does not cost the typed value.
OPEN_CHOICES = {
    "Agent.effort",
    "Agent.isolation",
    "Agent.mode",
    "Agent.model",
    "Artifact.action",
    "LSP.operation",
    "Projects.method",
    "RemoteTrigger.action",
    "ReportFindings.level",
    "SendFeedback.failure_mode",
    "SendFeedback.task_category",
}

# The program puts these in by itself; the model is not told of them.
FILLED_IN: dict[str, JsonObject] = {
    "ExitPlanMode": {"plan": {"type": "string"}, "planFilePath": {"type": "string"}}
}


def on_the_wire(value: object) -> Any:
    return json.loads(msgspec.json.encode(value))


# --- the classes and the schemas ----------------------------------------------------------------------------


def plain(schema: JsonObject, definitions: JsonObject, path: str) -> Any:
    """A schema in a form of its own that is the same for those of msgspec and those of the program."""
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        kinds = [plain(item, definitions, path) for item in alternatives(schema)]
        return union([kind for kind in kinds if kind != "null"])
    if "const" in schema or "enum" in schema:
        choices = [schema["const"]] if "const" in schema else schema["enum"]
        return (
            "string"
            if path in OPEN_CHOICES
            else {"choices": {choice for choice in choices if choice is not None}}
        )
    match schema.get("type"):
        case "array":
            return {"list of": plain(schema.get("items", {}), definitions, f"{path}[]")}
        case "object" if "properties" in schema:
            required = set(schema.get("required", ()))
            return {
                name: (
                    name in required and "default" not in item,
                    plain(item, definitions, f"{path}.{name}"),
                )
                for name, item in sorted(schema["properties"].items())
            }
        case "object":
            return {"object of": plain(schema.get("additionalProperties", {}), definitions, f"{path}{{}}")}
        case None:
            return "anything"
        case kind:
            return kind


def alternatives(schema: JsonObject) -> list[JsonObject]:
    return (
        [part for item in schema["anyOf"] for part in alternatives(item)] if "anyOf" in schema else [schema]
    )


def union(kinds: list[Any]) -> Any:
    if "number" in kinds:
        kinds = [kind for kind in kinds if kind != "integer"]
    if all(isinstance(kind, dict) and "choices" in kind for kind in kinds):
        return {"choices": set[Any]().union(*(kind["choices"] for kind in kinds))}
    return kinds[0] if len(kinds) == 1 else {"any of": sorted(kinds, key=repr)}


def schema_of(tool: str) -> Any:
    schema = SCHEMAS[tool]
    return plain({**schema, "properties": {**schema["properties"], **FILLED_IN.get(tool, {})}}, {}, tool)


def schema_of_class(tool: str) -> Any:
    schema = msgspec.json.schema(TOOL_INPUTS[tool])
    return plain(schema, schema["$defs"], tool)


def test_there_is_a_class_for_each_schema_and_a_schema_for_each_class() -> None:
    assert SCHEMAS.keys() == TOOL_INPUTS.keys()


@every_case("tool", sorted(SCHEMAS))
def test_class_says_what_the_schema_says(tool: str) -> None:
    assert schema_of_class(tool) == schema_of(tool)


def test_open_choices_are_choices_in_the_schemas() -> None:
    for path in OPEN_CHOICES:
        tool, _, name = path.partition(".")
        assert SCHEMAS[tool]["properties"][name]["enum"]


def test_what_is_filled_in_is_in_no_schema() -> None:
    for tool, properties in FILLED_IN.items():
        assert not properties.keys() & SCHEMAS[tool]["properties"].keys()


def test_stored_schemas_hold_no_texts() -> None:
    def keywords(schema: JsonObject) -> set[str]:
        found = set(schema)
        for part in (
            *schema.get("properties", {}).values(),
            *schema.get("anyOf", ()),
            *(schema[key] for key in ("items", "additionalProperties") if key in schema),
        ):
            found |= keywords(part)
        return found

    known = {
        "additionalProperties",
        "anyOf",
        "const",
        "default",
        "enum",
        "items",
        "properties",
        "required",
        "type",
    }
    for tool, schema in SCHEMAS.items():
        assert keywords(schema) <= known, tool


@every_case("tool", sorted(TOOL_INPUTS))
def test_class_is_named_after_its_tool(tool: str) -> None:
    kind = TOOL_INPUTS[tool]
    named = {"propose_skills": "ProposeSkills"}.get(tool, tool.removesuffix("Tool"))
    assert kind.__name__ == f"{named}Input"
    assert issubclass(kind, Value)


@every_case("tool", sorted(TOOL_INPUTS))
def test_fields_have_python_names(tool: str) -> None:
    for name in TOOL_INPUTS[tool].__struct_fields__:
        assert name.isidentifier()
        assert name == name.lower()


# --- names --------------------------------------------------------------------------------------------------


def test_names() -> None:
    assert TOOL_INPUTS.keys() < BUILTIN_TOOL_NAMES
    assert "StructuredOutput" in BUILTIN_TOOL_NAMES - TOOL_INPUTS.keys()


def test_aliases_lead_to_todays_names() -> None:
    assert not TOOL_ALIASES.keys() & BUILTIN_TOOL_NAMES
    assert set(TOOL_ALIASES.values()) <= TOOL_INPUTS.keys()


@pytest.mark.parametrize(
    "alias, data, expected",
    [
        ("Task", {"description": "d", "prompt": "p"}, AgentInput("d", "p")),
        ("KillShell", {"shell_id": "b1"}, TaskStopInput(shell_id="b1")),
        ("KillBash", {"shell_id": "b1"}, TaskStopInput(shell_id="b1")),
        ("Brief", {"message": "m", "status": "normal"}, SendUserMessageInput("m", "normal")),
    ],
    ids=["Task", "KillShell", "KillBash", "Brief"],
)
def test_input_by_alias(alias: str, data: JsonObject, expected: Value) -> None:
    assert typed_input(alias, data) == expected


# --- values, both ways --------------------------------------------------------------------------------------

VALUES: list[tuple[str, Value, JsonObject]] = [
    ("Bash", BashInput("ls"), {"command": "ls"}),
    (
        "Bash",
        BashInput("ls", "List", 500, run_in_background=True, disable_sandbox=False),
        {
            "command": "ls",
            "description": "List",
            "timeout": 500,
            "run_in_background": True,
            "dangerouslyDisableSandbox": False,
        },
    ),
    ("Bash", BashInput("ls", timeout=0.5), {"command": "ls", "timeout": 0.5}),
    ("Read", ReadInput("a.py", 0, 20), {"file_path": "a.py", "offset": 0, "limit": 20}),
    ("Write", WriteInput("a.py", ""), {"file_path": "a.py", "content": ""}),
    (
        "Edit",
        EditInput("a.py", "old", "new", replace_all=False),
        {"file_path": "a.py", "old_string": "old", "new_string": "new", "replace_all": False},
    ),
    (
        "Grep",
        GrepInput(
            "TODO",
            "src",
            after=1,
            before=2,
            around=3,
            context=4,
            ignore_case=True,
            line_numbers=False,
            only_matching=True,
        ),
        {
            "pattern": "TODO",
            "path": "src",
            "-A": 1,
            "-B": 2,
            "-C": 3,
            "context": 4,
            "-i": True,
            "-n": False,
            "-o": True,
        },
    ),
    ("ToolSearch", ToolSearchInput("select:Monitor"), {"query": "select:Monitor"}),
    ("TaskList", TaskListInput(), {}),
    (
        "TaskCreate",
        TaskCreateInput("s", "d", active_form="Doing", metadata={"k": [None, {"n": 1}]}),
        {"subject": "s", "description": "d", "activeForm": "Doing", "metadata": {"k": [None, {"n": 1}]}},
    ),
    (
        "TaskUpdate",
        TaskUpdateInput("1", "deleted", add_blocked_by=["2"], metadata={"gone": None}),
        {"taskId": "1", "status": "deleted", "addBlockedBy": ["2"], "metadata": {"gone": None}},
    ),
    (
        "TodoWrite",
        TodoWriteInput([TodoItem("Write", "pending", "Writing")]),
        {"todos": [{"content": "Write", "status": "pending", "activeForm": "Writing"}]},
    ),
    (
        "AskUserQuestion",
        AskUserQuestionInput(
            [Question("Which?", "Library", [QuestionOption("httpx", "Modern")])], {"Which?": "httpx"}
        ),
        {
            "questions": [
                {
                    "question": "Which?",
                    "header": "Library",
                    "options": [{"label": "httpx", "description": "Modern"}],
                }
            ],
            "answers": {"Which?": "httpx"},
        },
    ),
    ("ExitPlanMode", ExitPlanModeInput("# Plan", "/p.md"), {"plan": "# Plan", "planFilePath": "/p.md"}),
    ("SendMessage", SendMessageInput("main", "hello"), {"to": "main", "message": "hello"}),
    (
        "SendMessage",
        SendMessageInput("ann", ShutdownRequest()),
        {"to": "ann", "message": {"type": "shutdown_request"}},
    ),
    (
        "SendMessage",
        SendMessageInput("ann", PlanApprovalResponse("r1", approve=False, feedback="no")),
        {
            "to": "ann",
            "message": {
                "type": "plan_approval_response",
                "request_id": "r1",
                "approve": False,
                "feedback": "no",
            },
        },
    ),
    (
        "SendUserMessage",
        SendUserMessageInput("m", "proactive", ["a.png", SentFile("u", "b.png", 7, is_image=True)]),
        {
            "message": "m",
            "status": "proactive",
            "attachments": ["a.png", {"file_uuid": "u", "file_name": "b.png", "size": 7, "is_image": True}],
        },
    ),
    (
        "Workflow",
        WorkflowInput(name="review", args=[1, None], resume_from_run_id="wf_abcdef"),
        {"name": "review", "args": [1, None], "resumeFromRunId": "wf_abcdef"},
    ),
]


@every_case("tool, value, wire", VALUES, ids=[f"{index}-{case[0]}" for index, case in enumerate(VALUES)])
def test_values_both_ways(tool: str, value: Value, wire: JsonObject) -> None:
    assert on_the_wire(value) == wire
    assert typed_input(tool, wire) == value


@every_case("case", RECORDED, ids=[f"{index}-{case['name']}" for index, case in enumerate(RECORDED)])
def test_recorded_inputs(case: JsonObject) -> None:
    name: str = case["name"]
    data: JsonObject = case["input"]
    value = typed_input(name, data)
    if case["typed"]:
        assert type(value) is TOOL_INPUTS[TOOL_ALIASES.get(name, name)]
    else:
        assert value is data
    assert on_the_wire(value) == data


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@every_case(
    "tool, data",
    [
        ("Bash", {}),
        ("Bash", {"command": "ls", "extra": 1}),
        ("Bash", {"command": 5}),
        ("Bash", {"command": None}),
        ("Bash", {"command": "ls", "timeout": None}),
        ("Bash", {"command": "ls", "timeout": "5"}),
        ("Bash", {"command": "ls", "timeout": True}),
        ("Bash", {"command": "ls", "disable_sandbox": True}),
        ("Read", {"file_path": "a", "offset": 1.0}),
        ("TaskList", {"extra": None}),
        ("TodoWrite", {"todos": [{"content": "c", "status": "later", "activeForm": "a"}]}),
        ("TodoWrite", {"todos": [{"content": "c", "status": "pending", "activeForm": "a", "id": "1"}]}),
        ("SendMessage", {"to": "a", "message": {"type": "unheard_of"}}),
        ("SendMessage", {"to": "a", "message": {"type": "shutdown_request", "extra": 1}}),
        ("Workflow", {"args": None}),
        ("mcp__server__Bash", {"command": "ls"}),
        ("bash", {"command": "ls"}),
        ("StructuredOutput", {"command": "ls"}),
        ("", {}),
        ("TaskCreate", {"subject": "s", "description": "d", "metadata": {"deep": nested(200_000)}}),
        ("TaskCreate", {"subject": "s", "description": "d", "metadata": {"other": object()}}),
        ("Bash", cast("JsonObject", {1: 2})),
    ],
    ids=[
        "missing",
        "extra",
        "wrong-type",
        "null-required",
        "null-optional",
        "text-for-number",
        "bool-for-number",
        "python-name",
        "float-for-integer",
        "extra-in-empty",
        "unknown-choice",
        "extra-nested",
        "unknown-tag",
        "extra-in-tagged",
        "null-anything",
        "mcp",
        "case",
        "no-class",
        "no-name",
        "too-deep",
        "not-json",
        "key-not-text",
    ],
)
def test_what_does_not_fit_comes_back_itself(tool: str, data: JsonObject) -> None:
    assert typed_input(tool, data) is data


def test_a_choice_that_a_later_program_adds_is_typed() -> None:
    data = {"description": "d", "prompt": "p", "model": "next"}
    assert typed_input("Agent", data) == AgentInput("d", "p", model="next")


# --- any input ----------------------------------------------------------------------------------------------

texts = st.text(max_size=5)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from(sorted(BUILTIN_TOOL_NAMES | TOOL_ALIASES.keys())) | texts


def fitting(schema: JsonObject) -> st.SearchStrategy[Any]:
    """What a schema allows."""
    if "anyOf" in schema:
        return st.one_of([fitting(item) for item in schema["anyOf"]])
    if "const" in schema:
        return st.just(schema["const"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema.get("type"):
        case "array":
            return st.lists(fitting(schema["items"]), max_size=2)
        case "object" if "properties" in schema:
            properties = {name: fitting(item) for name, item in schema["properties"].items()}
            required = set(schema.get("required", ()))
            return st.fixed_dictionaries(
                {name: item for name, item in properties.items() if name in required},
                optional={name: item for name, item in properties.items() if name not in required},
            )
        case "object":
            return st.dictionaries(texts, fitting(schema["additionalProperties"]), max_size=2)
        case "string":
            return texts
        case "boolean":
            return st.booleans()
        case "integer":
            return st.integers()
        case "number":
            return st.integers() | st.floats(allow_nan=False, allow_infinity=False)
        case _:
            return values.filter(lambda value: value is not None)


@st.composite
def near_misses(draw: st.DrawFn) -> tuple[str, JsonObject]:
    """An input that fits, with a few of its keys set to anything."""
    tool = draw(st.sampled_from(sorted(SCHEMAS)))
    data: JsonObject = draw(fitting(SCHEMAS[tool]))
    keys = st.sampled_from(sorted(SCHEMAS[tool]["properties"])) if SCHEMAS[tool]["properties"] else texts
    return tool, {**data, **draw(st.dictionaries(keys | texts, values, max_size=2))}


def check_whole(tool: str, data: JsonObject) -> None:
    before = repr(data)
    value = typed_input(tool, data)
    assert value is data or type(value) is TOOL_INPUTS[TOOL_ALIASES.get(tool, tool)]
    assert repr(msgspec.to_builtins(value, order="sorted")) == repr(msgspec.to_builtins(data, order="sorted"))
    assert repr(data) == before


@given(names, st.dictionaries(texts, values, max_size=4))
def test_any_object_is_kept_whole(tool: str, data: JsonObject) -> None:
    check_whole(tool, data)


@given(near_misses())
def test_near_misses_are_kept_whole(case: tuple[str, JsonObject]) -> None:
    check_whole(*case)


@pytest.mark.parametrize("tool", sorted(SCHEMAS))
@settings(max_examples=25)
@given(data=st.data())
def test_what_the_schema_allows_is_typed(tool: str, data: st.DataObject) -> None:
    wire: JsonObject = data.draw(fitting(SCHEMAS[tool]))
    value = typed_input(tool, wire)
    assert type(value) is TOOL_INPUTS[tool]
    assert msgspec.to_builtins(value) == wire
