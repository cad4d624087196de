"""Options, messages and blocks can be made, compared and changed as those of the reference."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import io
import json
import pickle
import pprint
import subprocess
import sys
import typing
import warnings
from pathlib import Path
from typing import Any

import msgspec
import pytest

import outrider.compat
from outrider import wire
from outrider.compat import types
from outrider.compat._internal.message_parser import parse_message
from outrider.compat._tools import PlainAnnotations
from outrider.errors import OptionsError
from outrider.handlers import tool as native_tool
from outrider.transcripts import SessionStore
from outrider.wire import Value, decode
from outrider.wire.permissions import PermissionResultAllow
from tests.cases import every_case

MESSAGES: dict[str, tuple[Any, ...]] = {
    "UserMessage": ("hello", "u", "p", {"a": 1}, {"kind": "human"}),
    "AssistantMessage": ([types.TextBlock("x")], "m", "p", "unknown", {"i": 1}, "id", "end", "s", "u"),
    "SystemMessage": ("init", {"a": 1}),
    "TaskStartedMessage": ("task_started", {}, "t", "d", "u", "s", "use", "local_agent"),
    "TaskProgressMessage": ("task_progress", {}, "t", "d", {"total_tokens": 1}, "u", "s", "use", "Bash"),
    "TaskNotificationMessage": ("n", {}, "t", "completed", "f", "sum", "u", "s", "use", {"total_tokens": 1}),
    "TaskUpdatedMessage": ("task_updated", {}, "t", {"status": "failed"}, "failed", "s", "u"),
    "MirrorErrorMessage": ("mirror_error", {}, {"project_key": "p", "session_id": "s"}, "why"),
    "HookEventMessage": ("hook_started", {}, "Stop", "s", "u"),
    "ResultMessage": (
        *("success", 1, 2, False, 3, "s", "end_turn", 0.5, {"i": 1}, "r", {"o": 1}, {"m": {}}, []),
        *(types.DeferredToolUse("i", "n", {}), ["e"], 529, "u", "completed", {"kind": "human"}),
    ),
    "StreamEvent": ("u", "s", {"type": "x"}, "p"),
    "RateLimitInfo": ("allowed", 1, "five_hour", 0.5, "rejected", 2, "why", {"a": 1}),
    "RateLimitEvent": (types.RateLimitInfo("allowed"), "u", "s"),
    "ConversationResetMessage": ("n", "u", "s"),
    "DeferredToolUse": ("i", "n", {"a": 1}),
    "TextBlock": ("x",),
    "ThinkingBlock": ("t", "s"),
    "ToolUseBlock": ("i", "n", {"a": 1}),
    "ToolResultBlock": ("i", [{"type": "text"}], True),
    "ServerToolUseBlock": ("i", "advisor", {"a": 1}),
    "ServerToolResultBlock": ("i", {"a": 1}),
    "PermissionRuleValue": ("Bash", "ls *"),
    "PermissionUpdate": ("addRules", [types.PermissionRuleValue("Bash")], "allow", "plan", ["/"], "session"),
    "PermissionResultAllow": ("allow", {"a": 1}, [types.PermissionUpdate("setMode", mode="plan")]),
    "PermissionResultDeny": ("deny", "no", True),
}


def every_value() -> list[type[Value]]:
    found: list[type[Value]] = []
    waiting: list[type[Value]] = [Value]
    while waiting:
        waiting += (subclasses := waiting.pop().__subclasses__())
        found += subclasses
    return sorted(set(found), key=lambda kind: (kind.__module__, kind.__qualname__))


@pytest.mark.parametrize("name", MESSAGES)
class TestMessages:
    def test_is_made_by_position_and_by_keyword(self, name: str) -> None:
        kind, values = getattr(types, name), MESSAGES[name]
        names = [field.name for field in dataclasses.fields(kind)][: len(values)]
        by_name = kind(**dict(zip(names, values, strict=True)))
        assert by_name == kind(*values)
        assert tuple(getattr(by_name, each) for each in names) == values

    def test_passes_for_a_dataclass(self, name: str) -> None:
        made: Value = getattr(types, name)(*MESSAGES[name])
        assert all(map(dataclasses.is_dataclass, (made, type(made))))
        fields = [field.name for field in dataclasses.fields(made)]
        shown = dataclasses.asdict(made)
        assert list(shown) == fields
        assert len(dataclasses.astuple(made)) == len(fields)
        assert dataclasses.replace(made) == made
        changed = dataclasses.replace(made, **{fields[0]: "other"})
        assert getattr(changed, fields[0]) == "other"
        assert changed != made
        assert copy.deepcopy(made) == pickle.loads(pickle.dumps(made)) == made

    def test_can_be_changed_and_is_not_hashed(self, name: str) -> None:
        made = getattr(types, name)(*MESSAGES[name])
        first = dataclasses.fields(made)[0].name
        setattr(made, first, "new")
        assert getattr(made, first) == "new"
        with pytest.raises(TypeError):
            hash(made)


def test_every_value_of_the_wire_has_fields() -> None:
    kinds = every_value()
    assert len(kinds) > 90
    for kind in kinds:
        fields = dataclasses.fields(kind)
        assert tuple(field.name for field in fields) == kind.__struct_fields__, kind
        missing = dataclasses.MISSING
        required = [field.default is missing and field.default_factory is missing for field in fields]
        assert required == [field.required for field in msgspec.structs.fields(kind)], kind


def test_what_is_inside_a_message_becomes_dicts_too() -> None:
    message = types.AssistantMessage([types.TextBlock("x"), types.ToolUseBlock("i", "n", {"a": [1]})], "m")
    shown = dataclasses.asdict(message)
    assert shown["content"][0]["text"] == "x"
    assert shown["content"][1]["input"] == {"a": [1]}
    shown["content"][1]["input"]["a"].append(2)
    assert message.tool_uses[0].input == {"a": [1]}
    assert dataclasses.astuple(types.RateLimitEvent(types.RateLimitInfo("allowed"), "u"))[0][0] == "allowed"


def test_the_event_of_a_stream_event_is_a_dict() -> None:
    line = b'{"type":"stream_event","uuid":"u","session_id":"s","event":{"type":"ping"}}'
    for changed in (dataclasses.asdict, lambda event: dataclasses.asdict(dataclasses.replace(event))):
        assert changed(decode(line))["event"] == {"type": "ping"}
    (event,) = [field for field in dataclasses.fields(types.StreamEvent) if field.name == "event"]
    assert event.type == dict[str, Any]


@pytest.mark.parametrize("name", MESSAGES)
def test_pydantic_reads_what_it_has_written(name: str) -> None:
    pydantic = pytest.importorskip("pydantic")
    kind = getattr(types, name)
    made = kind(*MESSAGES[name])
    adapter = pydantic.TypeAdapter(kind)
    assert adapter.validate_python(made) is made
    assert adapter.validate_python(adapter.dump_python(made)) == made
    assert adapter.validate_json(adapter.dump_json(made)) == made
    assert adapter.dump_python(made) == dataclasses.asdict(made)
    assert adapter.json_schema()["type"] == "object"


def test_pydantic_says_what_is_wrong_with_a_message() -> None:
    pydantic = pytest.importorskip("pydantic")

    class Kept(pydantic.BaseModel):  # type: ignore[name-defined, misc, unused-ignore]
        message: types.AssistantMessage

    assert Kept.model_validate({"message": {"content": [{"text": "x"}], "model": "m"}}).message.text == "x"
    with pytest.raises(pydantic.ValidationError) as raised:
        Kept.model_validate({"message": {"content": []}})
    assert [(error["loc"], error["type"]) for error in raised.value.errors()] == [
        (("message", "model"), "missing")
    ]
    event = decode(b'{"type":"stream_event","uuid":"u","session_id":"s","event":{"type":"ping"}}')
    assert pydantic.TypeAdapter(types.StreamEvent).dump_python(event)["event"] == {"type": "ping"}


def test_a_subclass_has_fields_of_its_own() -> None:
    assert [field.name for field in dataclasses.fields(types.SystemMessage)] == ["subtype", "data"]
    assert len(dataclasses.fields(types.TaskStartedMessage)) > 2
    assert issubclass(types.TaskStartedMessage, types.SystemMessage)


def test_a_replaced_message_does_not_keep_the_line_of_the_old_one() -> None:
    line = b'{"type":"conversation_reset","new_conversation_id":"a","uuid":"u","session_id":"s"}'
    changed = dataclasses.replace(typing.cast(Any, decode(line)), new_conversation_id="b")
    assert changed.raw["new_conversation_id"] == "b"


@every_case("name", MESSAGES)
def test_its_fields_are_its_variables(name: str) -> None:
    made = getattr(types, name)(*MESSAGES[name])
    assert vars(made) == {field.name: getattr(made, field.name) for field in dataclasses.fields(made)}


def test_a_message_becomes_json_as_people_write_it() -> None:
    message = types.UserMessage([types.TextBlock("x")], "u")
    shown = json.loads(json.dumps(message, default=vars))
    assert shown["content"] == [{"text": "x", "citations": None}]
    assert shown["uuid"] == "u"


RULE = types.PermissionRuleValue("Bash", "ls")
UPDATES: list[tuple[types.PermissionUpdate, dict[str, Any]]] = [
    (
        types.PermissionUpdate("addRules", [RULE], "allow", None, None, "session"),
        {
            "type": "addRules",
            "behavior": "allow",
            "destination": "session",
            "rules": [{"toolName": "Bash", "ruleContent": "ls"}],
        },
    ),
    (
        types.PermissionUpdate("setMode", mode="plan", directories=["/a"], destination="userSettings"),
        {"type": "setMode", "mode": "plan", "destination": "userSettings"},
    ),
    (
        types.PermissionUpdate("addDirectories", directories=[]),
        {"type": "addDirectories", "directories": [], "destination": "session"},
    ),
]


@pytest.mark.parametrize("update, wire", UPDATES)
def test_a_change_of_permissions_travels_as_that_of_the_reference(
    update: types.PermissionUpdate, wire: dict[str, Any]
) -> None:
    assert update.to_dict() == wire
    assert types.PermissionUpdate.from_dict(wire).to_dict() == wire


def test_a_model_of_pydantics_may_hold_a_message() -> None:
    pydantic = pytest.importorskip("pydantic")
    model = pydantic.create_model("Model", block=(types.TextBlock, ...))
    made = model(block=types.TextBlock("x"))
    assert made.block == types.TextBlock("x")
    assert made.model_dump() == {"block": {"text": "x", "citations": None}}


def test_a_model_of_pydantics_may_hold_tools() -> None:
    pydantic = pytest.importorskip("pydantic")
    model = pydantic.create_model("Model", tools=(list[outrider.compat.SdkMcpTool[Any]], ...))

    async def use(_: Any) -> Any: ...

    hints = (None, outrider.compat.ToolAnnotations(title="T"), PlainAnnotations(title="T"))
    tools = [outrider.compat.SdkMcpTool("t", "d", {}, use, each) for each in hints]
    assert model(tools=tools).tools == tools


def test_a_tool_takes_no_message_that_it_could_not_make() -> None:
    def read(message: types.AssistantMessage) -> None: ...

    with pytest.raises(OptionsError, match="cannot be used as a type"):
        native_tool(read)


def test_a_tool_takes_a_block() -> None:
    def read(block: types.TextBlock) -> None: ...

    bound = native_tool(read).arguments.bind({"block": {"type": "text", "text": "x"}})
    assert bound == ((), {"block": types.TextBlock("x")})


def test_a_message_is_printed_prettily() -> None:
    printed = io.StringIO()
    pprint.pprint(types.TextBlock("x" * 200), stream=printed)
    assert printed.getvalue() == f"TextBlock(text='{'x' * 200}')\n"


def test_values_load_no_dataclasses_until_asked() -> None:
    program = (
        "import sys, outrider, outrider.wire as w; b = w.TextBlock('x')\n"
        "assert 'dataclasses' not in sys.modules\n"
        "import dataclasses; print(dataclasses.asdict(b))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "{'text': 'x', 'citations': None}\n"


class TestOptions:
    def test_defaults_are_the_references(self) -> None:
        options = types.ClaudeAgentOptions()
        assert options.system_prompt is None
        assert options.session_store_flush == "batched"
        assert options.load_timeout_ms == 60_000
        assert len(dataclasses.fields(options)) == 50

    def test_no_default_is_shared(self) -> None:
        one, other = types.ClaudeAgentOptions(), types.ClaudeAgentOptions()
        for field in dataclasses.fields(one):
            value = getattr(one, field.name)
            if isinstance(value, list | dict):
                assert value is not getattr(other, field.name)

    def test_they_are_made_by_position_too(self) -> None:
        options = types.ClaudeAgentOptions(["Bash"], ["Read"], "Be brief.", {})
        assert (options.tools, options.allowed_tools, options.system_prompt) == (
            ["Bash"],
            ["Read"],
            "Be brief.",
        )

    def test_replacing_changes_one_and_keeps_the_rest(self) -> None:
        options = types.ClaudeAgentOptions(model="a", max_turns=3)
        changed = dataclasses.replace(options, model="b")
        assert (changed.model, changed.max_turns, options.model) == ("b", 3, "a")
        assert changed != options
        assert dataclasses.replace(options) == options

    def test_making_them_checks_nothing(self) -> None:
        odd: dict[str, Any] = {
            "max_turns": -1,
            "skills": 5,
            "plugins": [{"type": "odd"}],
            "permission_mode": 1,
        }

        async def allow(tool: str, given: dict[str, Any], context: types.ToolPermissionContext) -> Any:
            return PermissionResultAllow()

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            options = types.ClaudeAgentOptions(
                can_use_tool=allow, permission_prompt_tool_name="x", allowed_tools=["Read"], **odd
            )
            dataclasses.replace(options, permission_mode="bypassPermissions")

    def test_their_annotations_are_types(self) -> None:
        hints = typing.get_type_hints(types.ClaudeAgentOptions)
        assert hints["cwd"] == str | Path | None
        assert typing.get_type_hints(types.AgentDefinition)["effort"] == types.EffortLevel | int | None


def test_the_prompts_that_are_answered_are_named_as_in_newer_versions_of_the_reference() -> None:
    named = {"user_message_uuid": "b", "user_message_uuids": ["a", "b"]}
    frames: list[Any] = [
        {"type": "stream_event", "uuid": "u", "session_id": "s", "event": {"type": "ping"}},
        {"type": "assistant", "message": {"role": "assistant", "model": "m", "content": []}},
        {"type": "result", "subtype": "success", "is_error": False, "session_id": "s"}
        | {"duration_ms": 1, "duration_api_ms": 1, "num_turns": 1},
    ]
    for frame in frames:
        message = parse_message({**frame, **named})
        assert [getattr(message, name) for name in named] == list(named.values())
        without = parse_message(frame)
        assert [getattr(without, name) for name in named] == [None, None]


def parameters(function: Any) -> typing.Iterable[inspect.Parameter]:
    return inspect.signature(function, eval_str=True).parameters.values()


def test_annotations_of_functions_are_types_when_they_are_read() -> None:
    # Frameworks read them to find out what to pass: containers of dependencies, pydantic's `validate_call`.
    package: Any = outrider.compat
    every = [getattr(package, name) for name in package.__all__]
    own = [each for each in every if getattr(each, "__module__", "").startswith("outrider.compat")]
    functions = [each for each in own if inspect.isfunction(each)]
    methods = [
        method
        for kind in own
        if isinstance(kind, type)
        for name, method in vars(kind).items()
        if inspect.isfunction(method) and (name == "__init__" or not name.startswith("_"))
    ]
    assert len(functions) > 20
    assert len(methods) > 20
    for each in (*functions, *methods):
        typing.get_type_hints(each)
        assert not any(isinstance(kind.annotation, str) for kind in parameters(each))


def test_the_messages_are_the_native_ones() -> None:
    assert types.AssistantMessage is wire.AssistantMessage
    assert types.SessionStore is SessionStore


def test_a_typed_dict_knows_what_is_required() -> None:
    assert types.McpStdioServerConfig.__required_keys__ == {"command"}
    assert types.PreToolUseHookInput.__optional_keys__ >= {"agent_id", "agent_type", "effort"}
    assert types.MessageOrigin.__required_keys__ == {"kind"}
    assert types.SessionStoreEntry.__required_keys__ == {"type"}
