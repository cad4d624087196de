"""Each option may be given in several forms, is kept in one, and belongs to its options alone."""

from __future__ import annotations

import copy
import enum
import pickle
import uuid
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.command import Command
from outrider.options import (
    AdaptiveThinking,
    AgentDefinition,
    CustomPrompt,
    DisabledThinking,
    EnabledThinking,
    EnvPolicy,
    FilePrompt,
    HttpServer,
    Isolation,
    JsonSchemaFormat,
    LocalPlugin,
    Options,
    PresetPrompt,
    Sandbox,
    SandboxFilesystem,
    SandboxNetwork,
    SdkServer,
    SseServer,
    StdioServer,
    Timeouts,
)
from tests.cases import every_case


class Hooked:
    """All that options know of a hook."""

    def __init__(self, event: str, *, allow_unknown: bool = False) -> None:
        self.event = event
        self.allow_unknown = allow_unknown


STOPS, ALSO_STOPS, GUARDS = Hooked("Stop"), Hooked("Stop"), Hooked("PreToolUse")
OF_TOMORROW = Hooked("EventOfTomorrow", allow_unknown=True)

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}


class Mode(str, enum.Enum):  # noqa: UP042 - the older form, whose `str()` is not its value
    PLAN = "plan"


class Count(int, enum.Enum):
    """Writes itself as `Count.FIVE`."""

    FIVE = 5


class Amount(float):
    """Writes itself in words, as the numbers of numpy do."""

    def __repr__(self) -> str:
        return f"Amount({float(self)})"


class Elsewhere:
    is_local = False

    def wrap(self, command: Command) -> Command:
        return command


SERVER = object()
RUNNER = Elsewhere()

FORMS: list[tuple[str, object, object]] = [
    ("cli_path", Path("/bin/claude"), "/bin/claude"),
    ("cli_path", "claude", "claude"),
    ("executable", PurePosixPath("node"), "node"),
    ("extra_args", MappingProxyType({"flag": None, "other": ""}), {"flag": None, "other": ""}),
    ("runner", RUNNER, RUNNER),
    ("cwd", Path("a"), "a"),
    ("cwd", "b\udcff", "b\udcff"),
    ("add_dirs", [Path("a"), "b"], ("a", "b")),
    ("project_config_root", Path("/root"), "/root"),
    ("project_config_root", "C:\\work", "C:\\work"),
    ("env", {"A": "b\udcff"}, {"A": "b\udcff"}),
    ("env_policy", "inherit", EnvPolicy.INHERIT),
    ("env_policy", ["HOME", "AWS_*"], EnvPolicy.only("HOME", "AWS_*")),
    ("env_policy", [], EnvPolicy.only()),
    ("isolation", "inherit", Isolation.INHERIT),
    ("isolation", "hermetic", Isolation.HERMETIC),
    ("user", "agent", "agent"),
    ("user", 0, 0),
    ("timeouts", {"turn": 5, "silence": None}, Timeouts(turn=5, silence=None)),
    ("timeouts", {"firstEvent": 5}, Timeouts(first_event=5)),
    ("fallback_model", "opus", ("opus",)),
    ("fallback_model", "opus, haiku", ("opus", "haiku")),
    ("fallback_model", ["opus", "haiku"], ("opus", "haiku")),
    ("fallback_model", [], None),
    ("thinking", "adaptive", AdaptiveThinking()),
    ("thinking", "enabled", EnabledThinking()),
    ("thinking", "disabled", DisabledThinking()),
    ("thinking", {"type": "adaptive", "display": "omitted"}, AdaptiveThinking(display="omitted")),
    ("thinking", {"type": "enabled", "budget_tokens": 9}, EnabledThinking(9)),
    ("thinking", {"type": "enabled", "budgetTokens": 9}, EnabledThinking(9)),
    ("thinking", {"type": "disabled"}, DisabledThinking()),
    ("max_thinking_tokens", 0, 0),
    ("max_budget_usd", 0.000001, 0.000001),
    ("task_budget", {"total": 7}, 7),
    ("task_budget", 7, 7),
    ("output_format", {"type": "json_schema", "schema": SCHEMA}, JsonSchemaFormat(SCHEMA)),
    ("output_format", JsonSchemaFormat(SCHEMA), JsonSchemaFormat(SCHEMA)),
    ("system_prompt", "Be brief.", CustomPrompt("Be brief.")),
    ("system_prompt", "", CustomPrompt("")),
    ("system_prompt", ["a", "b"], CustomPrompt(("a", "b"))),
    ("system_prompt", {"type": "custom", "prompt": "x", "snapshot": True}, CustomPrompt("x", snapshot=True)),
    ("system_prompt", {"type": "custom", "prompt": ["x", "y"]}, CustomPrompt(("x", "y"))),
    ("system_prompt", {"type": "preset", "preset": "claude_code"}, PresetPrompt()),
    ("system_prompt", {"type": "preset", "append": "x"}, PresetPrompt(append="x")),
    (
        "system_prompt",
        {"type": "preset", "preset": "claude_code", "excludeDynamicSections": True},
        PresetPrompt(exclude_dynamic_sections=True),
    ),
    ("system_prompt", {"type": "file", "path": Path("p.md")}, FilePrompt("p.md")),
    ("tools", ["Bash", SERVER], ("Bash", SERVER)),
    ("tools", [], ()),
    ("tools", "default", "default"),
    ("tools", {"type": "preset", "preset": "claude_code"}, "default"),
    ("allowed_tools", ["Bash(git log, git diff)", "Read"], ("Bash(git log, git diff)", "Read")),
    ("skills", "all", "all"),
    ("skills", ["pdf"], ("pdf",)),
    ("skills", [], ()),
    (
        "agents",
        {"a": {"description": "d", "prompt": "p"}},
        {"a": AgentDefinition(description="d", prompt="p")},
    ),
    (
        "agents",
        {"a": {"description": "d", "prompt": "p", "maxTurns": 3, "disallowed_tools": ["Bash"]}},
        {"a": AgentDefinition(description="d", prompt="p", max_turns=3, disallowed_tools=("Bash",))},
    ),
    (
        "agents",
        {"a": {"description": "d", "prompt": "p", "criticalSystemReminder_EXPERIMENTAL": "x", "effort": 3}},
        {"a": AgentDefinition(description="d", prompt="p", critical_system_reminder="x", effort=3)},
    ),
    ("plugins", ["a", Path("b"), {"type": "local", "path": "c"}], tuple(map(LocalPlugin, "abc"))),
    ("plugins", [{"type": "local", "path": "c", "skipMcpDiscovery": True}], (LocalPlugin("c", True),)),
    ("mcp_servers", Path("servers.json"), "servers.json"),
    ("mcp_servers", {"s": {"command": "x"}}, {"s": StdioServer(command="x")}),
    (
        "mcp_servers",
        {"s": {"type": "stdio", "command": "x", "args": ["-y"], "env": {"A": "b"}, "alwaysLoad": True}},
        {"s": StdioServer(command="x", args=("-y",), env={"A": "b"}, always_load=True)},
    ),
    (
        "mcp_servers",
        {"s": {"type": "sse", "url": "http://h", "headers": {"A": "b"}}},
        {"s": SseServer(url="http://h", headers={"A": "b"})},
    ),
    ("mcp_servers", {"s": {"type": "http", "url": "http://h"}}, {"s": HttpServer(url="http://h")}),
    ("mcp_servers", {"s": {"type": "streamable-http", "url": "http://h"}}, {"s": HttpServer(url="http://h")}),
    ("mcp_servers", {"s": {"type": "sdk", "instance": SERVER}}, {"s": SdkServer(name="s", instance=SERVER)}),
    ("mcp_servers", {"s": {"type": "sdk", "name": "n"}}, {"s": SdkServer(name="n")}),
    ("mcp_servers", {"s": SERVER}, {"s": SdkServer(name="s", instance=SERVER)}),
    ("permission_mode", Mode.PLAN, "plan"),
    ("hooks", {"PreToolUse": [print]}, {"PreToolUse": (print,)}),
    ("hooks", {"EventOfTomorrow": [OF_TOMORROW]}, {"EventOfTomorrow": (OF_TOMORROW,)}),
    ("hooks", [], {}),
    ("hooks", [STOPS, GUARDS, ALSO_STOPS], {"Stop": (STOPS, ALSO_STOPS), "PreToolUse": (GUARDS,)}),
    ("sandbox", {"enabled": True}, Sandbox(enabled=True)),
    (
        "sandbox",
        {
            "autoAllowBashIfSandboxed": True,
            "network": {"allowedDomains": ["a"], "http_proxy_port": 1},
            "filesystem": {"denyRead": ["/etc"]},
        },
        Sandbox(
            auto_allow_bash_if_sandboxed=True,
            network=SandboxNetwork(allowed_domains=("a",), http_proxy_port=1),
            filesystem=SandboxFilesystem(deny_read=("/etc",)),
        ),
    ),
    ("setting_sources", ["user"], ("user",)),
    ("settings", {"a": (1, 2.5, None, True)}, {"a": [1, 2.5, None, True]}),
    ("settings", Path("s.json"), "s.json"),
    ("settings", '{"a": 1}', '{"a": 1}'),
    ("session_id", "550e8400-E29b-41d4-a716-446655440000", "550e8400-E29b-41d4-a716-446655440000"),
    ("max_buffer_size", 1, 1),
    ("debug", True, True),
    ("debug", "hooks,mcp", "hooks,mcp"),
    ("client_app", "", ""),
]


@pytest.mark.requirement("A6")
@every_case("name, form, kept", FORMS, ids=[f"{name}-{number}" for number, (name, *_) in enumerate(FORMS)])
def test_an_option_is_kept_in_one_form(name: str, form: object, kept: object) -> None:
    fields: dict[str, Any] = {name: form}
    found = getattr(Options(**fields), name)
    assert found == kept
    assert type(found) is type(kept)
    again: dict[str, Any] = {name: found}
    assert Options(**again) == Options(**fields)


@pytest.mark.requirement("D2")
@pytest.mark.parametrize("size", [0, None])
def test_no_buffer_size_stands_for_the_default(size: int | None) -> None:
    assert Options(max_buffer_size=size).max_buffer_size is None


# Unknown keys.


def test_unknown_keys_of_a_server_travel_to_the_program() -> None:
    servers = Options(
        mcp_servers={"s": {"type": "http", "url": "http://h", "oauth": {"clientId": "x"}}}
    ).mcp_servers
    assert not isinstance(servers, str)
    server = servers["s"]
    assert server.extra == {"oauth": {"clientId": "x"}}
    assert server.to_wire() == {"type": "http", "url": "http://h", "oauth": {"clientId": "x"}}


def test_unknown_keys_of_a_subagent_travel_to_the_program() -> None:
    given = {"description": "d", "prompt": "p", "tools": [], "color": "red"}
    agent = Options(agents={"a": given}).agents["a"]
    assert agent.extra == {"color": "red"}
    assert agent.to_wire() == given


def test_unknown_keys_of_a_sandbox_travel_to_the_program() -> None:
    given = {
        "enabled": True,
        "network": {"strictAllowlist": True, "allowUnixSockets": ["/s"]},
        "filesystem": {"disabled": False, "allowWrite": ["/tmp"]},
        "ripgrep": {"command": "rg"},
    }
    sandbox = Options(sandbox=given).sandbox
    assert sandbox is not None
    assert sandbox.extra == {"ripgrep": {"command": "rg"}}
    assert sandbox.to_wire() == given


def test_extra_keys_win_over_fields() -> None:
    assert Sandbox(enabled=True, extra={"enabled": False}).to_wire() == {"enabled": False}


def test_extra_can_be_named_beside_unknown_keys() -> None:
    agent = Options(agents={"a": {"description": "d", "prompt": "p", "extra": {"x": 1}, "y": 2}}).agents["a"]
    assert agent.extra == {"x": 1, "y": 2}


def test_a_server_of_this_process_tells_the_agent_its_name_alone() -> None:
    assert SdkServer(name="n", instance=object()).to_wire() == {"type": "sdk", "name": "n"}


def test_a_part_on_the_wire_shares_nothing_with_the_part() -> None:
    server = StdioServer(command="x", env={"A": "b"}, extra={"deep": {"list": [1]}})
    server.to_wire()["env"]["A"] = "changed"
    server.to_wire()["deep"]["list"].append(2)
    assert server == StdioServer(command="x", env={"A": "b"}, extra={"deep": {"list": [1]}})


# Ownership.


def test_a_part_and_its_copy_share_nothing() -> None:
    variables = {"A": "b"}
    server = StdioServer(command="x", env=variables)
    copied: Any = copy.copy(server)
    assert copied == server
    variables["A"] = copied.env["A"] = "changed"
    assert server.env == {"A": "b"}


def nested() -> dict[str, Any]:
    """Every option that holds something that can be changed from outside."""
    return {
        "executable": "node",
        "executable_args": ["a"],
        "extra_args": {"flag": "x"},
        "add_dirs": ["a"],
        "env": {"A": "b"},
        "env_policy": ["A"],
        "timeouts": {"turn": 5.0},
        "fallback_model": ["a", "b"],
        "betas": ["a"],
        "task_budget": {"total": 5},
        "output_format": {"type": "json_schema", "schema": {"type": "object", "required": ["a"]}},
        "system_prompt": ["a", "b"],
        "tools": ["Bash"],
        "allowed_tools": ["Bash"],
        "disallowed_tools": ["Read"],
        "tool_aliases": {"a": "b"},
        "skills": ["a"],
        "agents": {
            "a": {"description": "d", "prompt": "p", "tools": ["x"], "mcpServers": [{"s": {"command": "x"}}]}
        },
        "plugins": [{"type": "local", "path": "a"}],
        "mcp_servers": {
            "s": {
                "command": "x",
                "args": ["a"],
                "env": {"A": "b"},
                "tools": [{"name": "t"}],
                "more": {"deep": [1]},
            },
            "h": {"type": "http", "url": "http://h", "headers": {"A": "b"}},
            "part": StdioServer(command="x", env={"A": "b"}),
        },
        "hooks": {"Stop": [print]},
        "supported_dialog_kinds": ["a"],
        "on_user_dialog": print,
        "sandbox": {
            "excludedCommands": ["a"],
            "network": {"allowedDomains": ["a"], "more": {"a": [1]}},
            "ignoreViolations": {"*": ["a"]},
        },
        "setting_sources": ["user"],
        "settings": {"permissions": {"allow": ["Bash"]}},
        "managed_settings": {"env": {"A": "b"}},
    }


def reachable(value: object) -> list[Any]:
    """All lists and dicts in a value, also those in parts."""
    if isinstance(value, dict):
        return [value, *(found for item in value.values() for found in reachable(item))]
    if isinstance(value, list):
        return [value, *(found for item in value for found in reachable(item))]
    if isinstance(value, tuple):
        return [found for item in value for found in reachable(item)]
    names = getattr(type(value), "__struct_fields__", ())
    return [found for name in names for found in reachable(getattr(value, name))]


def spoil(container: Any) -> None:
    if isinstance(container, dict):
        container.clear()
        container["spoiled"] = "spoiled"
    else:
        container[:] = ["spoiled"]


@given(st.data())
def test_what_is_done_to_the_inputs_never_changes_options(data: st.DataObject) -> None:
    fields = nested()
    options = Options(**fields)
    spoil(data.draw(st.sampled_from(reachable(fields)), label="container"))
    assert options == Options(**nested())


COPIES: list[Callable[[Options], Options]] = [
    copy.copy,
    copy.deepcopy,
    lambda options: pickle.loads(pickle.dumps(options)),
    lambda options: options.replace(),
    lambda options: options.replace(model="other").replace(model=None),
    lambda options: options.with_env(X="y").replace(env=options.env),
    lambda options: Options(mcp_servers=options.mcp_servers, agents=options.agents, sandbox=options.sandbox),
]


@given(st.data(), st.sampled_from(COPIES))
def test_what_is_done_through_a_copy_never_changes_another(
    data: st.DataObject, copied: Callable[[Options], Options]
) -> None:
    options = Options(**nested())
    spoil(data.draw(st.sampled_from(reachable(copied(options))), label="container"))
    assert options == Options(**nested())


@pytest.mark.parametrize("number", range(6))
def test_a_copy_is_equal(number: int) -> None:
    options = Options(**nested())
    assert COPIES[number](options) == options


def test_defaults_are_not_shared() -> None:
    first: Any = Options().env
    first["A"] = "b"
    assert Options().env == {}
    assert repr(Options()) == "Options()"


def test_options_differ_by_what_they_say() -> None:
    assert Options(model="a") != Options(model="b")
    assert Options(system_prompt="a") == Options(system_prompt={"type": "custom", "prompt": "a"})


def test_a_new_uuid_is_a_session_id() -> None:
    made = str(uuid.uuid4())
    assert Options(session_id=made).session_id == made


def test_a_number_is_kept_without_what_a_subclass_makes_of_it() -> None:
    options = Options(
        max_turns=Count.FIVE,
        max_budget_usd=Amount(0.5),
        timeouts=Timeouts(turn=Amount(2.5)),
        settings={"a": Count.FIVE, "b": [Amount(0.5)]},
    )
    kept = (options.max_turns, options.max_budget_usd, options.timeouts.turn, options.settings)
    assert repr(kept) == "(5, 0.5, 2.5, {'a': 5, 'b': [0.5]})"
