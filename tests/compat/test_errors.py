"""The errors say and carry what the reference's do."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

from outrider.compat import (
    ClaudeSDKError,
    CLIConnectionError,
    CLIJSONDecodeError,
    CLINotFoundError,
    ProcessError,
    ResultError,
)
from outrider.compat._errors import MessageParseError, translated
from outrider.errors import OptionsError, ProcessExited, SessionNotFound, TranscriptError
from tests.cases import every_case

LONG = "x" * 150
DATA: dict[str, Any] = {
    "subtype": "error_during_execution",
    "errors": ["one", 2, " ", "three "],
    "result": "the result",
    "api_error_status": 529,
    "terminal_reason": "api_error",
    "session_id": "s",
}

TEXTS: list[tuple[Exception, str]] = [
    (ClaudeSDKError("said"), "said"),
    (CLIConnectionError("said"), "said"),
    (CLINotFoundError(), "Claude Code not found"),
    (CLINotFoundError("gone"), "gone"),
    (CLINotFoundError("gone", "/bin/claude"), "gone: /bin/claude"),
    (CLINotFoundError(cli_path="/bin/claude"), "Claude Code not found: /bin/claude"),
    (CLINotFoundError("gone", ""), "gone"),
    (ProcessError("failed"), "failed"),
    (ProcessError("failed", 0), "failed (exit code: 0)"),
    (ProcessError("failed", 1, "why"), "failed (exit code: 1)\nError output: why"),
    (ProcessError("failed", stderr="why"), "failed\nError output: why"),
    (ProcessError("failed", 2, ""), "failed (exit code: 2)"),
    (ResultError("failed"), "failed"),
    (ResultError("failed", DATA, 1), "failed (exit code: 1)"),
    (CLIJSONDecodeError(LONG, ValueError("v")), f"Failed to decode JSON: {LONG[:100]}..."),
    (CLIJSONDecodeError("short", ValueError("v")), "Failed to decode JSON: short..."),
    (MessageParseError("odd"), "odd"),
    (MessageParseError("odd", {"type": "x"}), "odd"),
]


@every_case("error, text", TEXTS)
def test_an_error_says_what_the_references_does(error: Exception, text: str) -> None:
    assert str(error) == text
    assert error.args == (text,)


@every_case("copied", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
@every_case("error", [error for error, _ in TEXTS])
def test_a_copy_is_the_same(error: Exception, copied: Callable[[Any], Any]) -> None:
    made = copied(error)
    assert type(made) is type(error)
    assert str(made) == str(error)
    assert {name: repr(value) for name, value in vars(made).items()} == {
        name: repr(value) for name, value in vars(error).items()
    }


def test_the_hierarchy_is_the_references() -> None:
    bases = {
        CLIConnectionError: ClaudeSDKError,
        CLINotFoundError: CLIConnectionError,
        ProcessError: ClaudeSDKError,
        ResultError: ProcessError,
        CLIJSONDecodeError: ClaudeSDKError,
        MessageParseError: ClaudeSDKError,
        ClaudeSDKError: Exception,
    }
    assert {kind: kind.__bases__ for kind in bases} == {kind: (base,) for kind, base in bases.items()}


def test_a_result_error_carries_the_result() -> None:
    error = ResultError("failed", DATA, 1)
    assert error.data is DATA
    assert vars(error) == {
        "data": DATA,
        "subtype": "error_during_execution",
        "errors": ["one", "three"],
        "result": "the result",
        "api_error_status": 529,
        "terminal_reason": "api_error",
        "session_id": "s",
        "exit_code": 1,
        "stderr": None,
    }


@every_case(
    "data, name, value",
    [
        (None, "data", {}),
        ({"errors": "bare"}, "errors", ["bare"]),
        ({"errors": None}, "errors", []),
        ({"errors": {"a": 1}}, "errors", []),
        ({"subtype": 3}, "subtype", None),
        ({"result": ["x"]}, "result", None),
        ({"api_error_status": "529"}, "api_error_status", None),
        ({"terminal_reason": []}, "terminal_reason", None),
        ({"session_id": None}, "session_id", None),
    ],
)
def test_what_is_odd_in_a_result_is_left_out(data: Any, name: str, value: object) -> None:
    assert getattr(ResultError("failed", data), name) == value


def test_a_refused_resume_has_the_exit_and_the_line_of_the_program() -> None:
    line = "Resume rejected by --resume-drops-turn: 2 turns would be dropped"
    refused = TranscriptError("`resume_session_at` would forget more")
    refused.__cause__ = ProcessExited(1, stderr_tail=f"{line}\n")
    error = translated(refused)
    assert isinstance(error, ProcessError)
    assert error.exit_code == 1
    assert line in str(error)


@every_case(
    "id, said",
    [
        ("5f", "No conversation found with session ID: 5f"),
        ("my title", 'Error: --resume requires a valid session ID. Provided value "my title" is not a UUID.'),
    ],
)
def test_a_session_that_is_not_there_has_the_line_of_the_program(id: str, said: str) -> None:
    missing = SessionNotFound(id)
    missing.__cause__ = ProcessExited(1, stderr_tail=f"a warning\n{said}\n")
    error = translated(missing)
    assert isinstance(error, ResultError)
    assert (error.exit_code, error.errors) == (1, [said])


def test_an_option_that_the_program_refuses_has_its_exit_and_its_line() -> None:
    refused = OptionsError("`session_id` is in use")
    refused.__cause__ = ProcessExited(1, stderr_tail="Error: Session ID x is already in use.\n")
    error = translated(refused)
    assert isinstance(error, ProcessError)
    assert error.exit_code == 1
    assert "already in use" in str(error)
    # One that never reached it is still a `ValueError`.
    assert isinstance(translated(OptionsError("`max_turns` must be at least 1")), ValueError)


def test_an_error_of_the_others_carries_its_parts() -> None:
    cause = ValueError("v")
    broken = CLIJSONDecodeError(LONG, cause)
    assert (broken.line, broken.original_error) == (LONG, cause)
    failed = ProcessError("failed", 1, "why")
    assert (failed.exit_code, failed.stderr) == (1, "why")
    assert MessageParseError("odd", {"type": "x"}).data == {"type": "x"}
    assert MessageParseError("odd").data is None
