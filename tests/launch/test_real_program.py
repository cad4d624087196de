"""What Outrider says to the program on its command line, said to the real one."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outrider.command import Command
from outrider.launch import (
    Prefix,
    Version,
    check_version,
    find_agent,
    make_command,
    make_initialize,
)
from outrider.launch._command import _INPUT, _OUTPUT
from outrider.options import (
    AgentDefinition,
    EnabledThinking,
    HttpServer,
    JsonSchemaFormat,
    LocalPlugin,
    Options,
    PresetPrompt,
    Sandbox,
    StdioServer,
)
from outrider.options._table import ROWS, File, Flag
from outrider.protocol import Peer, RequestAnswered
from outrider.wire.control import Initialize, Initialized
from scripts.agent_program import version
from tests.real_program import clean_environment, require_program

pytestmark = pytest.mark.real

DEADLINE = 30.0


def flags() -> set[str]:
    """Every flag that a command line can have, but for those that the user makes up."""
    named = {to.name for _, to in ROWS if isinstance(to, Flag | File)}
    return named | {each.text for each in (*_OUTPUT, *_INPUT) if each.text.startswith("--")}


@pytest.fixture(scope="module")
def real_program() -> str:
    return require_program()


@pytest.fixture(scope="module")
def listed(real_program: str, tmp_path_factory: pytest.TempPathFactory) -> frozenset[str]:
    """The flags that its help shows."""
    done = run(real_program, "--help", home=tmp_path_factory.mktemp("home"))
    assert done.returncode == 0
    return frozenset(re.findall(r"(?<![\w-])--[A-Za-z][\w-]*", done.stdout))


def run(program: str, *arguments: str, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=clean_environment(home),
        cwd=home,
        timeout=DEADLINE,
        check=False,
    )


def is_accepted(program: str, flag: str, home: Path) -> bool:
    """Whether the program knows a flag that its help does not show.

    Without a value and without input it ends at once, with one complaint or another.
    """
    done = run(program, "--print", flag, home=home)
    assert done.returncode == 1
    assert done.stderr
    return f"unknown option '{flag}'" not in done.stderr


@pytest.mark.requirement("C1")
@pytest.mark.parametrize("flag", sorted(flags()))
def test_every_flag_is_known_to_the_program(
    real_program: str, listed: frozenset[str], flag: str, tmp_path: Path
) -> None:
    assert flag in listed or is_accepted(real_program, flag, tmp_path), f"{flag} is unknown to {version()}"


def test_a_flag_that_is_made_up_is_not(real_program: str, listed: frozenset[str], tmp_path: Path) -> None:
    assert "--made-up" not in listed
    assert not is_accepted(real_program, "--made-up", tmp_path)
    assert {"--model", "--settings", "--print", "--verbose"} <= listed


@pytest.mark.requirement("B1")
def test_it_is_found_and_tells_its_version(real_program: str, tmp_path: Path) -> None:
    assert find_agent(cli_path=real_program) == real_program
    assert find_agent(environ={"PATH": str(Path(real_program).parent)}) == real_program
    said = run(real_program, "-v", home=tmp_path).stdout
    assert check_version(said, environ={}) == Version.parse(version())


def most(folder: Path) -> dict[str, Any]:
    """As many options as go together, in a folder with what they need."""
    plugin = folder / "plugin" / ".claude-plugin" / "plugin.json"
    plugin.parent.mkdir(parents=True)
    plugin.write_text('{"name": "plugin", "version": "1.0.0"}')
    (folder / "more").mkdir()
    return {
        "system_prompt": PresetPrompt(append="Be brief.", exclude_dynamic_sections=True, snapshot=True),
        "append_subagent_system_prompt": "Be brief, too.",
        "tools": ["Read", "Bash"],
        "allowed_tools": ["Bash(ls:*)", "Read"],
        "disallowed_tools": ["Write"],
        "agents": {"helper": AgentDefinition(description="Helps", prompt="Help.", tools=("Read",))},
        "agent": "helper",
        "plugins": [LocalPlugin(str(folder / "plugin"))],
        "mcp_servers": {
            "away": HttpServer(url="http://127.0.0.1:9/mcp", headers={"Authorization": "Bearer made-up"}),
            "near": StdioServer(command="no-such-server", env={"TOKEN": "made-up"}),
        },
        "strict_mcp_config": True,
        "model": "sonnet",
        "fallback_model": ["haiku"],
        "thinking": EnabledThinking(budget_tokens=2000, display="summarized"),
        "effort": "low",
        "max_turns": 3,
        "max_budget_usd": 0.00001,
        "task_budget": 50_000,
        "output_format": JsonSchemaFormat({"type": "object", "properties": {"a": {"type": "string"}}}),
        "permission_mode": "acceptEdits",
        "permission_prompt_tool_name": "stdio",
        "allow_dangerously_skip_permissions": True,
        "setting_sources": ["user", "project"],
        "settings": {"env": {"A": "b"}},
        "sandbox": Sandbox(enabled=False),
        "session_id": "01234567-89ab-4def-8123-456789abcdef",
        "title": "A test",
        "persist_session": False,
        "enable_file_checkpointing": True,
        "include_partial_messages": True,
        "include_hook_events": True,
        "replay_user_messages": True,
        "forward_subagent_text": True,
        "prompt_suggestions": True,
        "debug_file": folder / "debug.txt",
        "add_dirs": [folder / "more"],
        "project_config_root": folder,
        "client_app": "tests/1.0",
        "cwd": folder,
    }


def started(command: Command, folder: Path, env: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start it as a transport does."""
    for name in command.folders:
        (folder / name).mkdir(parents=True)
    for file in command.files:
        (folder / file.name).write_bytes(file.content)
    placed = command.placed(str(folder))
    return subprocess.Popen(
        placed.argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env if placed.env is None else dict(placed.env),
        cwd=placed.cwd,
    )


def answers(child: subprocess.Popen[bytes], peer: Peer) -> Iterator[RequestAnswered]:
    assert child.stdout is not None
    while line := child.stdout.readline():
        for event in peer.receive(line):
            if isinstance(event, RequestAnswered):
                yield event


def talked(command: Command, request: Initialize, folder: Path, env: dict[str, str]) -> Initialized:
    """What the program answers to its first request; it has to end well afterwards."""
    folder.mkdir()
    child = started(command, folder, env)
    try:
        peer = Peer()
        peer.request(request)
        assert child.stdin is not None
        child.stdin.write(command.preamble + peer.take_output())
        child.stdin.flush()
        event = next(answers(child, peer), None)
        _, errors = child.communicate(timeout=DEADLINE)
    finally:
        child.kill()
        child.communicate()
    assert event is not None, errors
    assert child.returncode == 0
    return request.read_answer(event.payload)


@pytest.mark.requirement("C1")
def test_it_starts_with_nothing_set(real_program: str, tmp_path: Path) -> None:
    env = clean_environment(tmp_path)
    options = Options(cli_path=real_program, cwd=tmp_path)
    answer = talked(make_command(options, environ=env), make_initialize(options), tmp_path / "private", env)
    assert check_version(answer.claude_code_version, environ={}) == Version.parse(version())


@pytest.mark.smoke
@pytest.mark.requirement("C1")
@pytest.mark.requirement("B3")
def test_it_starts_with_everything_set(real_program: str, tmp_path: Path) -> None:
    env = clean_environment(tmp_path)
    options = Options(cli_path=real_program, **most(tmp_path))
    answer = talked(make_command(options, environ=env), make_initialize(options), tmp_path / "private", env)
    assert check_version(answer.claude_code_version, environ={}) == Version.parse(version())
    assert "helper" in {agent.name for agent in answer.agents}
    assert answer.current_permission_mode == "acceptEdits"


def test_it_starts_behind_a_shell_on_the_far_side(real_program: str, tmp_path: Path) -> None:
    env = clean_environment(tmp_path)
    runner = Prefix(["env", "--"], is_local=False)
    options = Options(cli_path=real_program, runner=runner, **most(tmp_path))
    command = make_command(options, environ=env)
    assert not command.files
    answer = talked(command, make_initialize(options), tmp_path / "private", env)
    assert check_version(answer.claude_code_version, environ={}) == Version.parse(version())
    assert not list(tmp_path.glob("outrider-*"))
