"""Outputs of built-in tools: the classes say what Claude Code declares, and what it sends fits them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from outrider import Result
from outrider.wire import AssistantMessage, ToolResultBlock, ToolUseBlock, UserMessage, Value, frame_from_wire
from outrider.wire.hooks import PostToolUseInput
from outrider.wire.tools import (
    TOOL_OUTPUTS,
    AgentLaunchedOutput,
    AgentOutput,
    BashOutput,
    EditOutput,
    FileText,
    McpResource,
    PatchHunk,
    ReadTextOutput,
    ToolOutput,
    typed_output,
)
from tests import tapes
from tests.cases import every_case
from tests.wire.test_tools import plain, values

# As declared for version 2.1.325, without their texts.
SCHEMAS: dict[str, Any] = json.loads(
    (Path(__file__).parent / "data" / "tool_output_schemas.json").read_text(encoding="utf-8")
)

# Known from what Claude Code sends; it declares none.
UNDECLARED = {"PowerShell", "Skill", "ToolSearch"}

# One class with the keys of all forms, which no key tells apart.
FLAT = {"Artifact"}


def loosened(schema: Any) -> Any:
    """A schema as the classes have it: any number, any text for a choice, and no form that only adds null."""
    match schema:
        case {"choices": _}:
            return "string"
        case "integer" | "float":
            return "number"
        case {"any of": kinds}:
            kinds = [loosened(kind) for kind in kinds if kind != "null"]
            return kinds[0] if len(kinds) == 1 else {"any of": sorted(kinds, key=repr)}
        case dict():
            return {name: loosened(part) for name, part in schema.items()}
        case tuple():
            return schema[0], loosened(schema[1])
        case _:
            return schema


def schema_of_class(tool: str) -> Any:
    schema = msgspec.json.schema(TOOL_OUTPUTS[tool])
    return loosened(plain(schema, schema["$defs"], tool))


def opaque(known: Any, declared: Any) -> bool:
    """Whether a class has what is declared, or leaves objects inside as they are."""
    match known, declared:
        case {"object of": "anything"}, dict():
            return True
        case {"list of": inner}, {"list of": wanted}:
            return opaque(inner, wanted)
        case {"any of": some}, {"any of": others}:
            return len(some) == len(others) and all(any(opaque(a, b) for a in some) for b in others)
        case dict(), dict():
            # A class that several outputs share has more keys, and asks for less.
            if not set(known) >= set(declared) or any(
                known[key][0] for key in known.keys() - declared.keys()
            ):
                return False
            return all(
                known[key][0] <= declared[key][0] and opaque(known[key][1], declared[key][1])
                if isinstance(known[key], tuple)
                else opaque(known[key], declared[key])
                for key in declared
            )
        case _:
            return bool(known in (declared, "anything"))


@every_case("tool", sorted(SCHEMAS.keys() - FLAT))
def test_class_says_what_is_declared(tool: str) -> None:
    known, declared = schema_of_class(tool), loosened(plain(SCHEMAS[tool], {}, tool))
    assert opaque(known, declared), f"{known}\n{declared}"


def test_flat_class_has_the_keys_of_all_forms() -> None:
    for tool in FLAT:
        declared = {key for form in SCHEMAS[tool]["anyOf"] for key in form["properties"]}
        assert schema_of_class(tool).keys() == declared


def test_there_is_a_type_for_each_declaration() -> None:
    assert TOOL_OUTPUTS.keys() == SCHEMAS.keys() | UNDECLARED


# --- what was recorded --------------------------------------------------------------------------------------


def recorded() -> Iterator[tuple[str, Any]]:
    """Each result of a tool in the recordings that is more than text, with the tool's name."""
    for name in tapes.NAMES:
        messages = [frame_from_wire(frame) for frame in tapes.frames(name, "cli->host")]
        for run in Result(messages=cast("Any", messages)).tool_calls:
            if run.message is not None and run.message.tool_use_result is not None:
                yield run.name, run.message.tool_use_result


# Nothing that concerns a user.
INTERNAL = {"canContinueAgent", "harnessNoteCount", "harnessSectionHash", "harnessTailCount"}


def without_none(data: dict[str, Any]) -> dict[str, Any]:
    return {key: part for key, part in data.items() if key not in INTERNAL and part is not None}


def test_every_recorded_result_is_typed_and_whole() -> None:
    seen: set[str] = set()
    for tool, data in recorded():
        value = typed_output(tool, data)
        if isinstance(data, str) or tool.startswith("mcp__"):
            assert value is data
            continue
        assert isinstance(value, ToolOutput), (tool, data)
        seen.add(type(value).__name__)
        assert without_none(msgspec.to_builtins(value)) == without_none(data)
    assert {"BashOutput", "WriteOutput", "ReadTextOutput", "AgentOutput", "AgentLaunchedOutput"} <= seen
    assert len(seen) >= 13


# --- how one gets at them -----------------------------------------------------------------------------------

EDITED = {
    "filePath": "/a",
    "oldString": "x",
    "newString": "y",
    "originalFile": None,
    "structuredPatch": [{"oldStart": 1, "oldLines": 1, "newStart": 1, "newLines": 1, "lines": ["-x", "+y"]}],
    "userModified": False,
    "replaceAll": False,
    "of tomorrow": 1,
}
EDIT = EditOutput("/a", "x", "y", None, [PatchHunk(1, 1, 1, 1, ["-x", "+y"])], False, False)


def test_by_the_name_of_the_tool() -> None:
    assert typed_output("Edit", EDITED) == EDIT
    file = {"filePath": "/a", "content": "", "numLines": 1, "startLine": 1, "totalLines": 1}
    read = typed_output("Read", {"type": "text", "file": file})
    assert read == ReadTextOutput(FileText("/a", "", 1, 1, 1))
    launched = {"status": "async_launched", "agentId": "a", "description": "d", "prompt": "p"}
    assert typed_output("Task", {**launched, "outputFile": "/o"}) == AgentLaunchedOutput("a", "d", "p", "/o")
    assert not isinstance(typed_output("Agent", {**launched, "status": "completed"}), AgentOutput)
    resources = [{"uri": "a://b", "name": "b", "server": "s"}]
    assert typed_output("ListMcpResourcesTool", resources) == [McpResource("a://b", "b", "s")]
    assert typed_output("ListMcpResources", []) == []


def test_in_a_message_a_hook_and_a_run() -> None:
    at = "2026-03-01T12:00:{}Z".format
    message = UserMessage([ToolResultBlock("t1", "done")], tool_use_result=EDITED, timestamp=at("03.500"))
    assert message.typed_output("Edit") == EDIT
    assert message.typed_output("mcp__a__b") is EDITED
    told = PostToolUseInput(tool_name="Edit", tool_input={}, tool_use_id="t1", tool_response=EDITED)
    assert told.output == EDIT
    failed = PostToolUseInput(tool_name="Edit", tool_input={}, tool_use_id="t1", tool_response="Error: no")
    assert failed.output is None

    call = ToolUseBlock("t1", "Edit", {"file_path": "/a", "old_string": "x", "new_string": "y"})
    other = ToolUseBlock("t2", "Bash", {"command": "ls"})
    calling = AssistantMessage([call, other], "m", parent_tool_use_id="p", timestamp=at("02"))
    run, open_run = Result(messages=(calling, message)).tool_calls
    assert (run.name, run.output, run.is_error, run.parent_tool_use_id) == ("Edit", EDIT, False, "p")
    assert isinstance(run.input, Value)
    assert (open_run.result, open_run.output, open_run.is_error) == (None, None, False)
    assert (run.duration, open_run.duration) == (1.5, None)
    # Whose the object is, is not known then.
    both = UserMessage([ToolResultBlock("t1"), ToolResultBlock("t2", is_error=True)], tool_use_result=EDITED)
    first, second = Result(messages=(calling, both)).tool_calls
    assert (first.output, second.output, second.is_error) == (None, None, True)


@given(st.sampled_from(sorted(TOOL_OUTPUTS)), values)
def test_any_result_is_typed_or_kept(tool: str, data: Any) -> None:
    before = repr(data)
    value = typed_output(tool, data)
    assert value is data or isinstance(value, ToolOutput | list)
    assert repr(data) == before


def test_a_form_that_does_not_fit_is_kept() -> None:
    for tool, data in (
        ("Bash", {"stdout": "only"}),
        ("Read", {"type": "of tomorrow", "file": {}}),
        ("Bash", "Error: Exit code 1"),
        ("Bash", None),
        ("Unknown", {"a": 1}),
    ):
        assert typed_output(tool, data) is data
    assert isinstance(typed_output("Bash", {"stdout": "", "stderr": "", "interrupted": True}), BashOutput)
