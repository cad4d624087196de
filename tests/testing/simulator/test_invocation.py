"""The command line of the simulated agent: what is read, and what is refused in the words of the program."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from outrider.testing._simulator.program import Invocation, StartFailed, read_invocation
from tests.cases import every_case

STREAMING = ["--output-format", "stream-json", "--verbose", "--input-format", "stream-json"]


def read(*argv: str, env: dict[str, str] | None = None, cwd: Path = Path("/nowhere")) -> Invocation:
    return read_invocation(argv, env or {"IS_SANDBOX": "1"}, cwd)


REFUSED = [
    (["--no-such-flag"], "error: unknown option '--no-such-flag'"),
    (
        ["--permission-mode", "nonsense"],
        (
            "error: option '--permission-mode <mode>' argument 'nonsense' is invalid. "
            "Allowed choices are acceptEdits, auto, bypassPermissions, manual, dontAsk, plan."
        ),
    ),
    (
        ["--max-turns", "many"],
        "error: option '--max-turns <turns>' argument 'many' is invalid. must be a number",
    ),
    (
        ["--max-budget-usd", "0"],
        (
            "error: option '--max-budget-usd <amount>' argument '0' is invalid. "
            "--max-budget-usd must be a positive number greater than 0"
        ),
    ),
    (["--model"], "error: option '--model <model>' argument missing"),
    (["--settings", "nowhere.json"], "Error: Settings file not found: /nowhere/nowhere.json"),
    (["--settings", "{oops}"], "Error: Invalid JSON provided to --settings"),
    (
        ["--mcp-config", "{oops"],
        "Error: Invalid MCP configuration:\nMCP config file not found: /nowhere/{oops",
    ),
    (
        ["--mcp-config", '{"servers": {}}'],
        'Error: Invalid MCP configuration:\nmcpServers: Missing "mcpServers".',
    ),
    (["--system-prompt-file", "/no/such"], "Error: System prompt file not found: /no/such"),
    (["--session-id", "x"], "Error: Invalid session ID. Must be a valid UUID."),
    (
        ["-p", "--output-format", "text"],
        "Error: --input-format=stream-json requires output-format=stream-json.",
    ),
]


@every_case("argv, text", REFUSED, ids=[" ".join(argv) for argv, _ in REFUSED])
def test_what_the_program_refuses_is_refused_in_its_words(argv: list[str], text: str) -> None:
    with pytest.raises(StartFailed) as failed:
        read(*STREAMING, *argv)
    assert str(failed.value) == text


@pytest.mark.parametrize(
    "argv, text",
    [
        (["-p", "hi", "--output-format", "stream-json"], "requires --verbose"),
        (["-p", "hi"], "runs sessions only: start it with --input-format stream-json"),
    ],
)
def test_a_command_line_that_starts_no_session_is_refused(argv: list[str], text: str) -> None:
    with pytest.raises(StartFailed, match=text):
        read(*argv)


def test_values_are_read_in_every_form(tmp_path: Path) -> None:
    settings = tmp_path / "settings.json"
    settings.write_text(json.dumps({"model": "opus"}))
    servers = json.dumps({"mcpServers": {"tools": {"type": "sdk", "name": "tools"}}})
    found = read(
        *STREAMING,
        "--allowedTools=Bash(git *),Edit",
        "--disallowed-tools",
        "Write",
        "Read",
        "--model=sonnet",
        "--max-turns",
        "3",
        f"--settings={settings}",
        "--mcp-config",
        servers,
        "--resume=abc",
        "--fork-session",
        "--permission-mode=manual",
        "--setting-sources=",
        "--",
        "--not-a-flag",
        cwd=tmp_path,
    )
    assert found.allowed_tools == ("Bash(git *)", "Edit")
    assert found.disallowed_tools == ("Write", "Read")
    assert (found.model, found.max_turns, found.settings) == ("sonnet", 3, {"model": "opus"})
    assert found.mcp_config == {"tools": {"type": "sdk", "name": "tools"}}
    assert (found.resume, found.fork_session, found.permission_mode) == ("abc", True, "default")


def test_a_settings_file_that_is_broken_counts_for_nothing(tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text("{oops")
    assert read(*STREAMING, "--settings", str(path)).settings == {}
