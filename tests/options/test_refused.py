"""A value that cannot work is refused when options are made, with its option, what it is, and what to do."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.command import Runner
from outrider.errors import OptionsError, OutriderError
from outrider.options import (
    AdaptiveThinking,
    AgentDefinition,
    CustomPrompt,
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
from outrider.options._table import OPTIONS, OTHER_NAMES
from outrider.transcripts import MemoryStore
from tests.cases import every_case

AGENT = {"description": "d", "prompt": "p"}
CIRCLE: dict[str, object] = {}
CIRCLE["a"] = CIRCLE


class NoRunner:
    """Has the names of a runner, and nothing that can be called."""

    is_local = True
    wrap = None


class BlockingStore:
    """A session store whose methods cannot be awaited."""

    def append(self, key: object, entries: object) -> None: ...

    def load(self, key: object) -> None: ...


REFUSED: list[tuple[str, object, str]] = [
    # A lone text where a list is meant.
    ("allowed_tools", "Bash", r"Did you mean \['Bash'\]\?"),
    ("disallowed_tools", "Bash", r"Did you mean \['Bash'\]\?"),
    ("tools", "Bash", r"Did you mean \['Bash'\]\?"),
    ("betas", "b", r"Did you mean \['b'\]\?"),
    ("add_dirs", "/tmp", r"Did you mean \['/tmp'\]\?"),
    ("add_dirs", Path("/tmp"), r"Did you mean \["),
    ("executable_args", "-x", r"Did you mean \['-x'\]\?"),
    ("setting_sources", "user", r"Did you mean \['user'\]\?"),
    ("supported_dialog_kinds", "a", r"Did you mean \['a'\]\?"),
    ("plugins", "folder", r"Did you mean \['folder'\]\?"),
    ("skills", "pdf", r"Did you mean \['pdf'\]\?"),
    ("env_policy", "PATH", r"Did you mean \['PATH'\]\?"),
    ("hooks", {"Stop": print}, r"hooks\['Stop'\]` must be a list.*Did you mean \["),
    # Other types.
    ("allowed_tools", {"Bash"}, "must be a list"),
    ("allowed_tools", [1], r"`allowed_tools\[0\]` must be a text"),
    ("allowed_tools", iter(["Bash"]), "must be a list"),
    ("tools", [None], "a tool of your own"),
    ("tools", [{"name": "x"}], "a tool of your own"),
    ("tools", {"type": "preset", "preset": "other"}, "claude_code"),
    ("skills", {"pdf"}, "must be a list"),
    ("model", 5, "must be a text"),
    ("system_prompt", 5, "must be a PresetPrompt, CustomPrompt, FilePrompt or a mapping"),
    ("system_prompt", ["a", 5], r"system_prompt\[1\]` must be a text"),
    ("cwd", 5, "must be a path"),
    ("cwd", b"/tmp", "os.fsdecode"),
    ("env", ["A=b"], "must be a mapping"),
    ("env", {"A": 1}, r"`env\['A'\]` must be a text, not int"),
    ("env", {"A": None}, r"`env\['A'\]` must be a text"),
    ("env", {1: "A"}, "must be a text"),
    ("extra_args", {"flag": 1}, "must be a text"),
    ("extra_args", ["flag"], "must be a mapping"),
    ("hooks", {"Stop": [None]}, "a hook or a function"),
    ("hooks", [print], r"hooks\[0\]` must be a hook that knows its event, not builtin.*@outrider.hook"),
    ("hooks", print, r"must be a list of hooks, or a mapping.*Did you mean \[print\]"),
    ("hooks", "Stop", "must be a list of hooks, or a mapping"),
    ("runner", object(), "must be a runner"),
    ("runner", Runner, "must be a runner"),
    ("runner", NoRunner(), "must be a runner"),
    ("transport", "socket", "must be a transport"),
    ("session_store", {"a": "b"}, "must be a session store"),
    ("session_store", object(), "with async `append` and `load`"),
    ("session_store", MemoryStore, "with async `append` and `load`"),
    ("session_store", BlockingStore(), "with async `append` and `load`"),
    ("session_store", "", "must be a path"),
    ("permission", "ask", "must be a function"),
    ("stderr", "log.txt", "must be a function"),
    ("on_question", "ask", "must be a function"),
    ("on_plan", True, "must be a function"),
    ("system_prompt", ["a", "b __SYSTEM_PROMPT_DYNAMIC_BOUNDARY__"], "a text of its own"),
    ("system_prompt", "a __SYSTEM_PROMPT_DYNAMIC_BOUNDARY__ b", "a text of its own"),
    ("on_elicitation", 1, "must be a function"),
    ("on_user_dialog", [], "must be a function"),
    ("on_auth_refresh", "token", "must be a function"),
    ("agents", [AGENT], "must be a mapping"),
    ("agents", {"a": "prompt"}, r"agents\['a'\]` must be an AgentDefinition"),
    ("mcp_servers", ["a"], "must be a mapping"),
    ("mcp_servers", {"a": "npx server"}, "a server or a mapping"),
    ("mcp_servers", {"a": None}, "a server or a mapping"),
    ("timeouts", 5, "must be a Timeouts or a mapping"),
    ("isolation", True, "must be one of 'inherit', 'hermetic'"),
    ("sandbox", True, "must be a Sandbox or a mapping"),
    ("settings", ["a"], "must be a path"),
    ("managed_settings", "file", "must be a mapping"),
    ("user", 1.5, "must be a whole number"),
    ("thinking", True, "must be a AdaptiveThinking"),
    # Switches and numbers.
    ("fork_session", 1, "must be True or False"),
    ("continue_conversation", "yes", "must be True or False"),
    ("strict_mcp_config", None, "must be True or False"),
    ("max_turns", 0, "1 or more, not 0"),
    ("max_turns", -1, "1 or more"),
    ("max_turns", True, r"1 or more, not True \(bool\)"),
    ("max_turns", 1.0, "whole number"),
    ("max_turns", "5", "whole number"),
    ("max_budget_usd", 0, "over 0"),
    ("max_budget_usd", -1.5, "over 0"),
    ("max_budget_usd", math.nan, "finite"),
    ("max_budget_usd", math.inf, "None stands for no limit"),
    ("max_budget_usd", True, "finite number"),
    ("max_budget_usd", "5", "finite number"),
    ("max_thinking_tokens", -1, "0 or more"),
    ("task_budget", 0, "1 or more"),
    ("task_budget", {"totl": 5}, '"total"'),
    ("task_budget", {"total": 5, "more": 6}, '"total"'),
    ("max_turns", 10**5000, r"1 or more, not a number of \d+ bits"),
    ("max_turns", -(10**5000), r"1 or more, not a number of \d+ bits"),
    ("max_turns", 2**53, "1 or more"),
    ("max_budget_usd", 10**400, "finite"),
    ("timeouts", {"turn": 10**400}, "finite"),
    ("user", -1, "from 0 to 4294967294"),
    ("user", 2**32 - 1, "from 0 to 4294967294"),
    ("user", True, "whole number"),
    # Texts.
    ("model", "", "not empty"),
    ("model", "  ", "not empty"),
    ("resume", "", "not empty"),
    ("user", "", "not empty"),
    ("user", "a\0b", "NUL byte"),
    ("cwd", "", "The current folder is '.'"),
    ("cwd", "a\0b", "NUL byte"),
    ("cwd", "\ud800", "lone surrogate"),
    ("system_prompt", "a\0b", "NUL byte"),
    ("append_system_prompt", "\udcff", "lone surrogate"),
    ("title", "\ud83d", "lone surrogate"),
    ("env", {"A": "x\0y"}, r"`env\['A'\]` contains a NUL byte"),
    ("env", {"A": "\ud800"}, "lone surrogate"),
    ("env", {"A\0": "x"}, "NUL byte"),
    ("env", {"": "x"}, "not empty"),
    ("env", {"A=b": "x"}, "the name of a variable ends there"),
    ("env_policy", ["A=b"], "the name of a variable ends there"),
    ("env_policy", ["*A"], r"one `\*` at its end"),
    ("extra_args", {"flag": "\0"}, "NUL byte"),
    ("extra_args", {"flag": "\ud800"}, "lone surrogate"),
    ("betas", ["a,b"], "each name as its own entry"),
    ("fallback_model", ["a,b"], "each name as its own entry"),
    ("fallback_model", "a,,b", "not empty"),
    ("session_id", "abc", "must be a UUID"),
    ("session_id", "550e8400e29b41d4a716446655440000", "must be a UUID"),
    ("session_id", "550e8400-e29b-41d4-a716-446655440000\n", "must be a UUID"),
    ("project_config_root", "relative", "absolute"),
    ("agent", "", "not empty"),
    ("tool_aliases", {"": "a"}, "not empty"),
    # Closed choices.
    ("permission_prompts", "nobody", "one of 'host', 'none'"),
    ("session_store_flush", "eagre", "Did you mean 'eager'"),
    ("plugin_delivery", "init", "Did you mean 'initialize'"),
    ("question_preview_format", "HTML", "Did you mean 'html'"),
    ("setting_sources", ["User"], "Did you mean 'user'"),
    ("setting_sources", ["policy"], "one of 'user', 'project', 'local'"),
    ("plugins", [{"type": "git", "path": "x"}], "must be 'local', not 'git'"),
    ("plugins", [{"path": "x"}], "must be 'local', not None"),
    ("output_format", {"type": "object", "properties": {}}, '"type": "json_schema", "schema"'),
    ("output_format", {"type": "text"}, "must have the type 'json_schema', not 'text'"),
    ("output_format", {"type": "json_schema"}, "has no `schema`"),
    ("output_format", "json", "must be a JsonSchemaFormat or a mapping"),
    ("thinking", "off", "one of 'adaptive', 'enabled', 'disabled'"),
    ("thinking", {"type": "enabled", "budget": 5}, "Did you mean 'budget_tokens'"),
    ("system_prompt", {"type": "preset", "preset": "other"}, "must be 'claude_code'"),
    ("system_prompt", {"preset": "claude_code"}, "one of 'preset', 'custom', 'file'"),
    ("system_prompt", {"type": "file"}, "has no `path`"),
    ("timeouts", {"trun": 5}, "Did you mean 'turn'"),
    # Open choices, misspelled.
    ("permission_mode", "Plan", "Did you mean 'plan'"),
    ("permission_mode", "accept_edits", "Did you mean 'acceptEdits'"),
    ("permission_mode", "bypass", "Did you mean 'bypassPermissions'"),
    ("permission_mode", "", "not empty"),
    ("effort", "High", "Did you mean 'high'"),
    ("effort", 3, "must be a text"),
    ("hooks", {"pre_tool_use": [print]}, "Did you mean 'PreToolUse'"),
    # JSON.
    ("settings", {"a": math.nan}, r"settings\['a'\]` must be something that can be written as JSON, not nan"),
    ("settings", {"a": [object()]}, r"settings\['a'\]\[0\]"),
    ("settings", {1: "a"}, "a text, as in JSON"),
    ("settings", CIRCLE, "contains itself"),
    ("managed_settings", {"a": {"b": {1, 2}}}, r"managed_settings\['a'\]\['b'\]"),
    # Servers and subagents.
    ("mcp_servers", {"": {"command": "x"}}, "the name of a server in `mcp_servers`.*not empty"),
    ("mcp_servers", {"a\0": {"command": "x"}}, "NUL byte"),
    ("mcp_servers", {"a": {}}, r"`mcp_servers\['a'\]` has no `command`"),
    ("mcp_servers", {"a": {"comand": "x"}}, "It has 'comand': was that meant"),
    ("mcp_servers", {"a": {"command": "x", "envs": {"A": "b"}}}, "Did you mean 'env'.*put it into `extra`"),
    ("mcp_servers", {"a": {"type": "sse", "url": "http://h", "header": {}}}, "Did you mean 'headers'"),
    ("mcp_servers", {"a": {"command": ""}}, "not empty"),
    ("mcp_servers", {"a": {"url": "http://h"}}, '"type": "http"'),
    ("mcp_servers", {"a": {"type": "http"}}, "has no `url`"),
    ("mcp_servers", {"a": {"type": "htpp", "url": "http://h"}}, "Did you mean 'http'"),
    ("mcp_servers", {"a": {"type": "sse", "url": "example.com"}}, "must be a URL"),
    ("mcp_servers", {"a": {"command": "x", "args": "-y"}}, r"Did you mean \['-y'\]"),
    ("mcp_servers", {"a": {"command": "x", "env": {"A": 1}}}, "must be a text, not int"),
    ("mcp_servers", {"a": {"command": "x", "env": {"A=": "b"}}}, "ends there"),
    ("mcp_servers", {"a": {"command": "x", "timeout": 0}}, "1 or more"),
    ("mcp_servers", {"a": {"command": "x", "alwaysLoad": True, "always_load": True}}, "two spellings"),
    ("mcp_servers", {"a": {"command": "x", "more": object()}}, "written as JSON"),
    ("mcp_servers", {"a": {"command": "x", "extra": 5, "more": 1}}, "must be a mapping"),
    ("mcp_servers", {"a": {"command": "x", 5: 1}}, "must be a text"),
    ("agents", {"": AGENT}, "the name of a subagent in `agents`.*not empty"),
    ("agents", {"a": {"prompt": "p"}}, r"`agents\['a'\]` has no `description`"),
    ("agents", {"a": {**AGENT, "description": " "}}, "not empty"),
    ("agents", {"a": {**AGENT, "prompt": ""}}, "not empty"),
    ("agents", {"a": {**AGENT, "tools": "Bash"}}, r"Did you mean \['Bash'\]"),
    ("agents", {"a": {**AGENT, "maxTurns": 0}}, "1 or more"),
    ("agents", {"a": {**AGENT, "memory": "global"}}, "one of 'user', 'project', 'local'"),
    ("agents", {"a": {**AGENT, "permissionMode": "Plan"}}, "Did you mean 'plan'"),
    ("agents", {"a": {**AGENT, "effort": True}}, "whole number"),
    ("agents", {"a": {**AGENT, "skill": []}}, "Did you mean 'skills'"),
    ("sandbox", {"enabled": "yes"}, "must be True or False"),
    ("sandbox", {"network": {"httpProxyPort": 70000}}, "from 1 to 65535"),
    ("sandbox", {"network": True}, "must be a SandboxNetwork or a mapping"),
    ("sandbox", {"excludedCommands": "git"}, r"Did you mean \['git'\]"),
    ("sandbox", {"ignoreViolations": {"*": "a"}}, r"Did you mean \['a'\]"),
]


@every_case(
    "name, value, text", REFUSED, ids=[f"{name}-{number}" for number, (name, *_) in enumerate(REFUSED)]
)
def test_a_value_that_cannot_work_is_refused(name: str, value: object, text: str) -> None:
    fields: dict[str, Any] = {name: value}
    with pytest.raises(OptionsError, match=text) as caught:
        Options(**fields)
    assert name in str(caught.value)
    assert isinstance(caught.value, OutriderError)
    assert isinstance(caught.value, ValueError)


@pytest.mark.requirement("D2")
@pytest.mark.parametrize("size", [-1, True, 1.5, "1"])
def test_an_impossible_buffer_size_is_refused(size: Any) -> None:
    with pytest.raises(OptionsError, match="`max_buffer_size` must be a whole number of 0 or more"):
        Options(max_buffer_size=size)


@pytest.mark.requirement("C6")
def test_another_form_of_output_than_json_schema_is_refused() -> None:
    with pytest.raises(OptionsError, match="'json_schema', not 'grammar'"):
        Options(output_format={"type": "grammar", "schema": {}})


@pytest.mark.requirement("C7")
def test_a_plugin_that_is_not_local_is_refused() -> None:
    with pytest.raises(OptionsError, match=r"the type of `plugins\[1\]` must be 'local', not 'npm'"):
        Options(plugins=["folder", {"type": "npm", "path": "x"}])


@pytest.mark.requirement("B5")
@pytest.mark.parametrize("user", ["a\0b", -1, 2**32 - 1, "", True])
def test_an_impossible_user_is_refused(user: Any) -> None:
    with pytest.raises(OptionsError, match="`user`"):
        Options(user=user)


PARTS: list[tuple[type[Any], dict[str, object]]] = [
    (Timeouts, {"connect": 0}),
    (Timeouts, {"turn": -1.0}),
    (Timeouts, {"silence": math.nan}),
    (Timeouts, {"first_event": math.inf}),
    (Timeouts, {"control": True}),
    (Timeouts, {"close": None}),
    (Timeouts, {"terminate": 0}),
    (Timeouts, {"interrupt": "5"}),
    (EnvPolicy, {"names": "PATH"}),
    (EnvPolicy, {"names": [""]}),
    (Isolation, {"kind": "hermetik"}),
    (Isolation, {"config_dir": ""}),
    (PresetPrompt, {"preset": "x"}),
    (PresetPrompt, {"append": 5}),
    (CustomPrompt, {"prompt": 5}),
    (CustomPrompt, {"prompt": "x", "snapshot": "on"}),
    (FilePrompt, {"path": ""}),
    (AdaptiveThinking, {"display": "Omitted"}),
    (EnabledThinking, {"budget_tokens": 0}),
    (LocalPlugin, {"path": 5}),
    (LocalPlugin, {"path": "x", "skip_mcp_discovery": "no"}),
    (JsonSchemaFormat, {"schema": "x"}),
    (JsonSchemaFormat, {"schema": {"a": object()}}),
    (StdioServer, {"command": "a\0b"}),
    (SseServer, {"url": ""}),
    (HttpServer, {"url": "http://h", "headers": {"A": 1}}),
    (SdkServer, {"name": ""}),
    (AgentDefinition, {"description": "", "prompt": "p"}),
    (Sandbox, {"network": 5}),
    (SandboxNetwork, {"socks_proxy_port": 0}),
]


@every_case(
    "kind, fields", PARTS, ids=[f"{kind.__name__}-{number}" for number, (kind, _) in enumerate(PARTS)]
)
def test_a_part_checks_itself(kind: type[Any], fields: dict[str, object]) -> None:
    with pytest.raises(OptionsError, match=f"`{kind.__name__}\\.({'|'.join(fields)})"):
        kind(**fields)


@every_case("name", ["connect", "first_event", "silence", "turn", "background", "control", "write", "store"])
def test_a_deadline_can_be_turned_off(name: str) -> None:
    off: dict[str, Any] = {name: None}
    assert getattr(Options(timeouts=Timeouts(**off)).timeouts, name) is None


# Nothing is left unread.

EVERY_PART = [
    *(AdaptiveThinking, AgentDefinition, CustomPrompt, EnabledThinking, EnvPolicy, FilePrompt, HttpServer),
    *(Isolation, JsonSchemaFormat, LocalPlugin, PresetPrompt, Sandbox, SandboxFilesystem, SandboxNetwork),
    *(SdkServer, SseServer, StdioServer, Timeouts),
]
NEEDED = {
    "description": "d",
    "prompt": "p",
    "url": "http://h",
    "path": "p",
    "schema": {},
    "name": "n",
    "command": "c",
}
PART_FIELDS = [
    (kind, name)
    for kind in EVERY_PART
    for name in kind.__struct_fields__
    if (kind, name) != (SdkServer, "instance")
]


@every_case("name", sorted(OPTIONS))
def test_every_option_refuses_what_it_cannot_be(name: str) -> None:
    fields: dict[str, Any] = {name: 3j}
    with pytest.raises(OptionsError, match=f"`{name}` must be "):
        Options(**fields)


@every_case("kind, name", PART_FIELDS, ids=[f"{kind.__name__}.{name}" for kind, name in PART_FIELDS])
def test_every_field_of_a_part_refuses_what_it_cannot_be(kind: type[Any], name: str) -> None:
    needed = {key: value for key, value in NEEDED.items() if key in kind.__struct_fields__}
    assert kind(**needed)
    with pytest.raises(OptionsError, match=f"`{kind.__name__}\\.{name}` must be "):
        kind(**{**needed, name: 3j})


def takes(name: str, value: object) -> bool:
    try:
        OPTIONS[name].validate("it", value)
    except OptionsError:
        return False
    return True


TEXTS = [name for name in sorted(OPTIONS) if takes(name, "/ab")]
LISTS = [name for name in sorted(OPTIONS) if takes(name, ["ab"])]


def test_the_options_that_take_texts_are_known() -> None:
    assert {"cwd", "model", "system_prompt", "resume", "settings", "user", "debug"} <= set(TEXTS)
    assert {"add_dirs", "allowed_tools", "executable_args", "betas", "skills", "env_policy"} <= set(LISTS)


@pytest.mark.requirement("C7")
@every_case("odd", ["/a\0b", "/a\ud800b"], ids=["nul", "surrogate"])
@every_case("name", TEXTS)
def test_no_text_can_hold_what_a_command_line_cannot(name: str, odd: str) -> None:
    assert not takes(name, odd)


@pytest.mark.requirement("C7")
@every_case("odd", ["a\0b", "a\ud800b"], ids=["nul", "surrogate"])
@every_case("name", LISTS)
def test_no_text_in_a_list_can_hold_what_a_command_line_cannot(name: str, odd: str) -> None:
    assert not takes(name, ["ab", odd])


# Names that do not exist.

MISNAMED = [
    ("permisson_mode", "Did you mean `permission_mode`"),
    ("allowedTools", "Did you mean `allowed_tools`"),
    ("maxTurns", "Did you mean `max_turns`"),
    ("mcpServers", "Did you mean `mcp_servers`"),
    ("pathToClaudeCodeExecutable", "called `cli_path`"),
    ("can_use_tool", "called `permission`"),
    ("canUseTool", "called `permission`"),
    ("additionalDirectories", "called `add_dirs`"),
    ("load_timeout_ms", r"Timeouts\(store=…\)"),
    ("continue", "called `continue_conversation`"),
    ("Model", "Did you mean `model`"),
    ("xyzzy", "`Options` lists all"),
]


@every_case("name, hint", MISNAMED)
def test_a_name_that_does_not_exist_is_refused_with_what_was_meant(name: str, hint: str) -> None:
    fields: dict[str, Any] = {name: None}
    with pytest.raises(OptionsError, match=f"there is no option `{name}`.*{hint}"):
        Options(**fields)


def test_several_names_that_do_not_exist_are_all_named() -> None:
    fields: dict[str, Any] = {"modle": "a", "model": "b", "cwdd": "c"}
    with pytest.raises(OptionsError, match=r"`modle`, `cwdd`.*`model`.*`cwd`"):
        Options(**fields)


def test_other_names_are_names_of_nothing_here() -> None:
    assert not set(OTHER_NAMES) & set(OPTIONS)


# No value, however odd, raises anything else.

ODD = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.just(object())
    | st.just(print)
    | st.just(Path("a")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner) | st.tuples(inner),
    max_leaves=5,
)


@pytest.mark.filterwarnings("ignore::outrider.options.PermissionShadowedWarning")
@given(st.sampled_from(sorted(OPTIONS)), ODD)
def test_an_odd_value_is_kept_or_refused(name: str, value: object) -> None:
    fields: dict[str, Any] = {name: value}
    try:
        options = Options(**fields)
    except OptionsError:
        return
    fields[name] = getattr(options, name)
    assert Options(**fields) == options
    assert name in repr(options) or options == Options()
