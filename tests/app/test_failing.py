"""Each error has an exit code, and one line."""

from __future__ import annotations

import pytest

from outrider import errors
from outrider.app._flags import BY_OPTION, Code, Failed, code_of, in_one_line
from tests.cases import every_case


@every_case(
    "error, code",
    [
        (errors.TurnFailed(), Code.FAILED),
        (errors.OptionsError("x"), Code.USAGE),
        (errors.UsageError("x"), Code.USAGE),
        (errors.FolderNotFound("/x"), Code.USAGE),
        (errors.SessionNotFound("x"), Code.USAGE),
        (errors.AgentNotFound(), Code.NO_AGENT),
        (errors.AgentTooOld("1", "2"), Code.NO_AGENT),
        (errors.LaunchError(), Code.NO_AGENT),
        (errors.McpServerFailed("x"), Code.NO_AGENT),
        (errors.ApiFailed(429, "rate_limit"), Code.API),
        (errors.LimitReached("max_turns"), Code.LIMIT),
        (errors.OutputInvalid(), Code.OUTPUT),
        (errors.TurnTimedOut("turn", 1), Code.TIMED_OUT),
        (errors.RequestTimedOut("initialize", 1), Code.TIMED_OUT),
        (errors.ProcessExited(3), Code.LOST),
        (errors.TransportClosed("closed"), Code.LOST),
        (errors.TurnInterrupted(), Code.INTERRUPTED),
        (FileNotFoundError(2, "No such file", "x"), Code.USAGE),
        (OSError(28, "No space left on device"), Code.FAILED),
        (Failed("x", Code.OUTPUT), Code.OUTPUT),
        (ZeroDivisionError(), Code.FAILED),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_an_error_has_a_code(error: Exception, code: Code) -> None:
    assert code_of(error) is code


def test_every_error_of_the_library_has_one_line() -> None:
    error = errors.AgentNotFound(["/bin/claude (PATH): no such file"])
    line = in_one_line(error, BY_OPTION)
    assert "\n" not in line
    assert "/bin/claude" not in line
    assert line.startswith("Claude Code was not found. Install it")


def test_options_are_called_by_their_flags() -> None:
    line = in_one_line(errors.LimitReached("max_budget_usd", 1), BY_OPTION)
    assert line == "The turn reached `--max-budget` of 1. Raise `--max-budget`, or resume in a new session."


@pytest.mark.parametrize(
    "text, line",
    [
        ("`setting_sources[0]` must be `user`", "`--setting-sources` must be `user`"),
        ("`timeouts`: `Timeouts.turn` must be over 0", "`--timeout` must be over 0"),
        ("`other.part[1]` is wrong", "`other.part[1]` is wrong"),
    ],
    ids=["item", "part", "no-option"],
)
def test_a_part_of_an_option_is_called_by_its_flag(text: str, line: str) -> None:
    assert in_one_line(Failed(text), BY_OPTION) == line


def test_a_stream_that_fails_has_no_number() -> None:
    error = OSError(28, "No space left on device")
    assert in_one_line(error, {}) == "Reading or writing failed: No space left on device."


def test_what_the_program_said_last_is_part_of_the_line() -> None:
    error = errors.ProcessExited(3, stderr_tail="loading\nno licence\n+-----\n\n")
    assert in_one_line(error, {}).endswith("It said: 'no licence'")


def test_a_line_cannot_command_the_terminal() -> None:
    assert "\x1b" not in in_one_line(Failed("red \x1b[31m text"), {})
