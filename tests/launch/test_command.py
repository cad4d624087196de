"""Options to a command: each option, in each of its forms, as the arguments and files that it becomes."""

from __future__ import annotations

import json
import os
import string
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.command import FOLDER
from outrider.errors import AgentNotFound, CommandTooLong, FolderNotFound, OptionsError
from outrider.launch import Docker, Local, Prefix, make_command, make_initialize
from outrider.options import (
    AdaptiveThinking,
    DisabledThinking,
    EnabledThinking,
    LocalPlugin,
    Options,
    SdkServer,
)
from tests.cases import every_case
from tests.launch.commands import INPUT, NO_SOURCES, OUTPUT, SERVERS, Remote, allow, arguments, command, files

SESSION = "11111111-2222-4333-8444-555555555555"
# Rows of the table, read both ways: what an option becomes, and that it becomes nothing else.


@pytest.mark.requirement("C1")
def test_nothing_set_gives_the_least_command_line() -> None:
    made = command()
    assert list(made.argv) == [sys.executable, *OUTPUT, NO_SOURCES, *INPUT]
    assert made.files == ()
    assert made.folders == ()
    assert not made.needs_folder


FLAGS: list[tuple[dict[str, Any], list[str]]] = [
    ({"model": "sonnet"}, ["--model=sonnet"]),
    ({"fallback_model": "opus"}, ["--fallback-model=opus"]),
    ({"fallback_model": ["opus", "haiku"]}, ["--fallback-model=opus,haiku"]),
    ({"betas": ["context-1m-2025-08-07", "other"]}, ["--betas=context-1m-2025-08-07", "--betas=other"]),
    ({"effort": "high"}, ["--effort=high"]),
    ({"max_turns": 3}, ["--max-turns=3"]),
    ({"task_budget": 1000}, ["--task-budget=1000"]),
    ({"task_budget": {"total": 1000}}, ["--task-budget=1000"]),
    ({"allowed_tools": ["Read", "Bash(git *)"]}, ["--allowedTools=Read,Bash(git *)"]),
    ({"disallowed_tools": ["Read", "Bash"]}, ["--disallowedTools=Read,Bash"]),
    ({"agent": "reviewer"}, ["--agent=reviewer"]),
    ({"strict_mcp_config": True}, ["--strict-mcp-config"]),
    ({"mcp_servers": "servers.json"}, ["--mcp-config=servers.json"]),
    ({"mcp_servers": Path("servers.json")}, ["--mcp-config=servers.json"]),
    ({"permission_mode": "plan"}, ["--permission-mode=plan"]),
    ({"permission": allow}, ["--permission-prompt-tool=stdio"]),
    ({"on_question": allow}, ["--permission-prompt-tool=stdio"]),
    ({"on_plan": allow}, ["--permission-prompt-tool=stdio"]),
    ({"permission": allow, "on_question": allow, "on_plan": allow}, ["--permission-prompt-tool=stdio"]),
    ({"permission_prompt_tool_name": "mcp__x__ask"}, ["--permission-prompt-tool=mcp__x__ask"]),
    ({"permission_prompts": "none"}, ["--permission-prompts=none"]),
    ({"continue_conversation": True}, ["--continue", "--await-initialize"]),
    ({"resume": SESSION}, [f"--resume={SESSION}", "--await-initialize"]),
    (
        {"resume": SESSION, "fork_session": True},
        [f"--resume={SESSION}", "--await-initialize", "--fork-session"],
    ),
    (
        {"resume": SESSION, "resume_session_at": SESSION, "resume_drops_turn": SESSION},
        [
            f"--resume={SESSION}",
            "--await-initialize",
            f"--resume-session-at={SESSION}",
            f"--resume-drops-turn={SESSION}",
        ],
    ),
    ({"session_id": SESSION}, [f"--session-id={SESSION}"]),
    ({"persist_session": False}, ["--no-session-persistence"]),
    ({"session_store": "agents.db"}, ["--session-mirror"]),
    ({"include_partial_messages": True}, ["--include-partial-messages"]),
    ({"include_hook_events": True}, ["--include-hook-events"]),
    ({"replay_user_messages": True}, ["--replay-user-messages"]),
    ({"debug": True}, ["--debug"]),
    ({"debug": "hooks,mcp"}, ["--debug=hooks,mcp"]),
    ({"debug_file": "log.txt"}, ["--debug-file=log.txt"]),
    ({"add_dirs": ["/a", Path("/b c")]}, ["--add-dir=/a", "--add-dir=/b c"]),
    ({"project_config_root": "/a"}, ["--project-config-root=/a"]),
    (
        {"allow_dangerously_skip_permissions": True, "env": {"IS_SANDBOX": "1"}},
        ["--allow-dangerously-skip-permissions"],
    ),
]


@pytest.mark.requirement("C1")
@every_case(
    "fields, expected", FLAGS, ids=[" ".join(fields) + f"-{i}" for i, (fields, _) in enumerate(FLAGS)]
)
def test_an_option_becomes_a_flag_and_nothing_else(fields: dict[str, Any], expected: list[str]) -> None:
    assert sorted(arguments(**fields)) == sorted(expected)
    assert files(**fields) == {}
    assert make_initialize(Options(**fields)) == make_initialize(Options())


NOT_ON_ARGV: dict[str, Any] = {
    "system_prompt": "You are a pirate",
    "append_system_prompt": "Say arr",
    "plan_mode_instructions": "Plan well",
    "tool_aliases": {"Read": "Look"},
    "agents": {"a": {"description": "d", "prompt": "p"}},
    "title": "Treasure",
    "output_format": {"type": "json_schema", "schema": {"type": "object"}},
    "forward_subagent_text": True,
    "forward_nested_subagent_tool_calls": True,
    "prompt_suggestions": True,
    "agent_progress_summaries": True,
    "per_task_stop_affordance": True,
    "hooks": {"Stop": [allow]},
    "on_elicitation": allow,
    "on_user_dialog": allow,
    "on_auth_refresh": allow,
    "verbatim_prompts": True,
    "tools": [allow],
    "stderr": allow,
    "max_buffer_size": 1000,
    "session_store_flush": "eager",
    "timeouts": {"turn": 10},
    "give_up_on": [401, 403],
    "enable_file_checkpointing": True,
    "client_app": "app",
    "question_preview_format": "html",
    "env": {"A": "b"},
    "env_policy": ["A"],
    "mcp_servers": {"here": SdkServer(name="here")},
}


@pytest.mark.requirement("C1")
@every_case("field", NOT_ON_ARGV)
def test_what_goes_elsewhere_adds_no_argument_and_no_file(field: str) -> None:
    assert arguments(**{field: NOT_ON_ARGV[field]}) == []
    assert files(**{field: NOT_ON_ARGV[field]}) == {}


@pytest.mark.requirement("C1")
@pytest.mark.parametrize(
    "amount, text",
    [
        (1, "1"),
        (0.5, "0.5"),
        (1e-7, "0.0000001"),
        (1e20, "100000000000000000000"),
        (0.1 + 0.2, "0.30000000000000004"),
    ],
)
def test_money_is_written_in_plain_decimals(amount: float, text: str) -> None:
    assert arguments(max_budget_usd=amount) == [f"--max-budget-usd={text}"]


@pytest.mark.requirement("C1")
@given(st.floats(min_value=0, exclude_min=True, allow_infinity=False))
def test_money_is_never_rounded(amount: float) -> None:
    (argument,) = arguments(max_budget_usd=amount)
    text = argument.partition("=")[2]
    assert set(text) <= set(string.digits + ".")
    assert float(text) == amount > 0


# Tools and skills.


@pytest.mark.requirement("C3")
@pytest.mark.parametrize(
    "tools, expected",
    [
        (None, []),
        ([], ["--tools="]),
        (["Read", "Bash"], ["--tools=Read,Bash"]),
        ("default", ["--tools=default"]),
        ({"type": "preset", "preset": "claude_code"}, ["--tools=default"]),
        ([allow], []),
        (["Read", allow], ["--tools=Read"]),
    ],
    ids=["unset", "empty", "names", "default", "preset", "own", "names and own"],
)
def test_tools(tools: object, expected: list[str]) -> None:
    assert arguments(tools=tools) == expected


@pytest.mark.requirement("C1")
@pytest.mark.parametrize(
    "skills, allowed, expected",
    [
        (None, ["Read"], "Read"),
        ("all", [], "Skill"),
        ("all", ["Read", "Skill"], "Read,Skill"),
        (["pdf", "docx"], ["Read"], "Read,Skill(pdf),Skill(docx)"),
        (["pdf"], ["Skill(pdf)"], "Skill(pdf)"),
    ],
)
def test_skills_may_be_used_without_asking(skills: Any, allowed: list[str], expected: str) -> None:
    assert arguments(skills=skills, allowed_tools=allowed) == [f"--allowedTools={expected}"]


@pytest.mark.requirement("C5")
@pytest.mark.parametrize(
    "sources, expected",
    [((), "--setting-sources="), (["user", "project"], "--setting-sources=user,project"), (None, None)],
    ids=["none", "two", "the program's default"],
)
def test_setting_sources(sources: Any, expected: str | None) -> None:
    found = [a for a in command(setting_sources=sources).argv if a.startswith("--setting-sources")]
    assert found == ([] if expected is None else [expected])


@pytest.mark.requirement("C5")
def test_no_setting_source_counts_unless_it_is_named_also_not_with_skills() -> None:
    assert NO_SOURCES in command().argv
    assert NO_SOURCES in command(skills="all").argv


# Thinking.


@pytest.mark.requirement("C6")
@every_case(
    "fields, expected",
    [
        ({"thinking": AdaptiveThinking()}, ["--thinking=adaptive"]),
        ({"thinking": "adaptive"}, ["--thinking=adaptive"]),
        ({"thinking": EnabledThinking(2048)}, ["--max-thinking-tokens=2048"]),
        ({"thinking": EnabledThinking()}, ["--thinking=adaptive"]),
        ({"thinking": DisabledThinking()}, ["--thinking=disabled"]),
        ({"max_thinking_tokens": 0}, ["--max-thinking-tokens=0"]),
        ({"max_thinking_tokens": 512}, ["--max-thinking-tokens=512"]),
        ({"thinking": DisabledThinking(), "max_thinking_tokens": 512}, ["--thinking=disabled"]),
        ({"thinking": EnabledThinking(2048), "max_thinking_tokens": 512}, ["--max-thinking-tokens=2048"]),
        ({"thinking": EnabledThinking(), "max_thinking_tokens": 512}, ["--thinking=adaptive"]),
        (
            {"thinking": AdaptiveThinking(display="summarized")},
            ["--thinking=adaptive", "--thinking-display=summarized"],
        ),
        ({"effort": "max"}, ["--effort=max"]),
    ],
    ids=lambda value: repr(value) if isinstance(value, dict) else None,
)
def test_thinking(fields: dict[str, Any], expected: list[str]) -> None:
    assert arguments(**fields) == expected


# Plugins and extra arguments.


@pytest.mark.requirement("C7")
def test_plugins_on_the_command_line() -> None:
    plugins: list[Any] = ["/a", LocalPlugin("/b", skip_mcp_discovery=True), {"type": "local", "path": "/c"}]
    assert arguments(plugins=plugins) == ["--plugin-dir=/a", "--plugin-dir=/c", "--plugin-dir-no-mcp=/b"]
    assert make_initialize(Options(plugins=plugins)).plugins is None


@pytest.mark.requirement("C7")
def test_plugins_in_the_first_request_make_the_agent_wait_for_it() -> None:
    fields: Any = {"plugins": ["/a"], "plugin_delivery": "initialize"}
    assert arguments(**fields) == ["--await-initialize"]
    assert make_initialize(Options(**fields)).plugins == [{"type": "local", "path": "/a"}]


@pytest.mark.requirement("C7")
def test_a_plugin_that_is_not_local_is_refused() -> None:
    with pytest.raises(OptionsError):
        arguments(plugins=[{"type": "remote", "path": "/a"}])


@pytest.mark.requirement("C7")
def test_extra_arguments_come_before_those_of_the_mode() -> None:
    extra = {"new-flag": None, "empty": "", "value": "-x", "other": "a=b"}
    argv = list(command(model="sonnet", extra_args=extra).argv)
    end = ["--new-flag", "--empty=", "--value=-x", "--other=a=b", *INPUT]
    assert argv[-len(end) :] == end


# Long and secret values.


@pytest.mark.requirement("A6")
@pytest.mark.requirement("C1")
def test_servers_of_the_agent_go_in_a_file_and_those_of_this_process_in_the_first_request() -> None:
    fields: Any = {"mcp_servers": {**SERVERS, "here": SdkServer(name="here", timeout=500)}}
    assert arguments(**fields) == [f"--mcp-config={FOLDER}/mcp.json"]
    assert json.loads(files(**fields)["mcp.json"]) == {
        "mcpServers": {
            "local": {"type": "stdio", "command": "server", "args": ["-v"], "env": {"TOKEN": "s3cret"}},
            "web": SERVERS["web"],
            "stream": SERVERS["stream"],
        }
    }
    request = make_initialize(Options(**fields))
    assert request.sdk_mcp_servers == ["here"]
    assert request.sdk_mcp_server_configs is not None
    assert request.sdk_mcp_server_configs["here"].timeout == 500


@pytest.mark.requirement("C1")
def test_servers_as_text_go_in_a_file_as_they_are() -> None:
    text = ' {"mcpServers": {}} '
    assert arguments(mcp_servers=text) == [f"--mcp-config={FOLDER}/mcp.json"]
    assert files(mcp_servers=text) == {"mcp.json": text.encode()}


@pytest.mark.requirement("C1")
def test_managed_settings_travel_in_the_first_request() -> None:
    fields: Any = {"managed_settings": {"env": {"TOKEN": "s3cret"}}}
    assert arguments(**fields) == ["--managed-settings-in-initialize", "--await-initialize"]
    assert make_initialize(Options(**fields)).managed_settings == {"env": {"TOKEN": "s3cret"}}


@pytest.mark.requirement("C2")
def test_what_subagents_are_told_goes_in_a_file() -> None:
    flag = f"--append-subagent-system-prompt-file={FOLDER}/append-subagent-system-prompt.txt"
    assert arguments(append_subagent_system_prompt="Ahoy") == [flag]
    assert files(append_subagent_system_prompt="Ahoy") == {"append-subagent-system-prompt.txt": b"Ahoy"}


# The program, the folder, the runner.


@pytest.mark.requirement("C1")
def test_an_interpreter_comes_before_the_program() -> None:
    made = command(executable="node", executable_args=["--no-warnings"])
    assert made.argv[:3] == ("node", "--no-warnings", sys.executable)


@pytest.mark.requirement("B4")
def test_a_missing_folder_is_told_apart_from_a_missing_program(tmp_path: Path) -> None:
    with pytest.raises(FolderNotFound) as missing_folder:
        command(cwd=tmp_path / "gone")
    assert missing_folder.value.path == str(tmp_path / "gone")
    with pytest.raises(AgentNotFound):
        command(cwd=tmp_path, cli_path=tmp_path / "gone")


@pytest.mark.requirement("B4")
def test_a_folder_on_another_machine_is_not_looked_for() -> None:
    made = command(cwd="/not/here", cli_path=None, runner=Remote())
    assert made.cwd == "/not/here"


def test_the_folder_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path)
    made = command(cwd="sub")
    assert made.cwd == str(tmp_path / "sub")
    assert made.env is not None
    assert made.env["PWD"] == made.cwd


def test_elsewhere_the_program_is_not_searched_for_here(tmp_path: Path) -> None:
    assert command(cli_path=None, runner=Remote()).argv[0] == "claude"
    assert command(cli_path="/far/claude", runner=Remote()).argv[0] == "/far/claude"


def test_elsewhere_a_user_is_a_matter_of_the_runner() -> None:
    with pytest.raises(OptionsError, match="`user`"):
        command(user="somebody", runner=Remote())


def test_a_runner_gets_the_finished_command() -> None:
    plain = command(model="sonnet")
    assert command(model="sonnet", runner=Local()) == plain
    behind = command(model="sonnet", runner=Prefix(["nice", "-n", "10"]))
    assert behind.argv == ("nice", "-n", "10", *plain.argv)


def test_what_is_carried_to_a_container_is_on_no_command_line() -> None:
    made = command(mcp_servers=SERVERS, env={"TOKEN": "s3cret"}, runner=Docker(container="box"))
    assert made.argv[0] == "docker"
    assert not any("s3cret" in argument for argument in made.argv)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such users")
def test_a_user_is_looked_up() -> None:
    made = command(user=os.getuid())
    assert made.user is not None
    assert made.user.uid == os.getuid()


# Lengths.


@pytest.mark.requirement("C9")
@pytest.mark.parametrize(
    "fields, option",
    [
        ({"allowed_tools": ["x" * 9000]}, "allowed_tools"),
        ({"add_dirs": ["/" + "x" * 9000]}, "add_dirs"),
        ({"extra_args": {"new": "x" * 9000}}, "extra_args"),
    ],
    ids=["allowed_tools", "add_dirs", "extra_args"],
)
def test_a_command_line_that_is_too_long_names_the_option(fields: dict[str, Any], option: str) -> None:
    options = Options(cli_path=sys.executable, runner=Remote(), **fields)
    with pytest.raises(CommandTooLong) as caught:
        make_command(options, environ={}, platform="win32")
    assert caught.value.option == option


@pytest.mark.requirement("C9")
def test_behind_a_prefix_the_option_is_still_named() -> None:
    with pytest.raises(CommandTooLong) as caught:
        command(model="x" * 131_072, runner=Prefix(["nice"]))
    assert caught.value.option == "model"


@pytest.mark.requirement("C2")
def test_a_long_system_prompt_does_not_matter() -> None:
    long = "x" * 1_000_000
    assert command(system_prompt=long, append_system_prompt=long).argv == command().argv
    assert files(system_prompt=long) == {}


@pytest.mark.requirement("C8")
def test_prompts_are_read_from_stdin() -> None:
    argv = command().argv
    assert list(argv[-2:]) == INPUT
    assert "--print" not in argv
