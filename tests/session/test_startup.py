"""A start that fails names its cause, whatever way the program tells of it."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from outrider.errors import (
    FolderNotFound,
    LaunchError,
    OptionsError,
    OutriderError,
    ProcessExited,
    SessionNotFound,
    TranscriptError,
)
from outrider.options import Options
from outrider.session._failures import startup_failure
from tests import tapes
from tests.cases import every_case
from tests.session.recorded_runs import results_of, stderr_of

OLD = "22222222-3333-4444-8555-666666666666"
GONE = "99999999-3333-4444-8555-666666666666"
MARK = "bbbbbbbb-0000-4000-8000-000000000099"
SEARCHED = ("/home/dev/.claude/projects/-home-dev-project",)

CASES: dict[str, tuple[type[OutriderError], dict[str, object], tuple[str, ...]]] = {
    "01-no-initialize 2": (
        OptionsError,
        {},
        ("`session_id` is '11111111-2222-4333-8444-555555555555'", "`resume`"),
    ),
    "04-permission-no-prompt-surface 6": (OptionsError, {}, ("root", "`user`", "`permission_mode`")),
    "04-permission-no-prompt-surface 7": (OptionsError, {}, ("root", "`allowed_tools`")),
    "09-structured-output-variants 3": (OptionsError, {}, ("`output_format`", "data/type", "JSON Schema")),
    "09-structured-output-variants 4": (OptionsError, {}, ("`output_format`", "Parse error")),
    "14-resume-raw 3": (
        TranscriptError,
        {"session_id": OLD},
        (f"{MARK!r} is not a message", "`resume_session_at`"),
    ),
    "14-resume-raw 4": (
        TranscriptError,
        {"session_id": OLD},
        ("would forget more", "entry 2 [type=user", "`resume_drops_turn`"),
    ),
    "14-resume-raw 6": (OptionsError, {}, ("`session_id`", "`fork_session`")),
    "14-resume-raw 7": (SessionNotFound, {"id": GONE, "searched": SEARCHED}, (SEARCHED[0], "List")),
    "14-resume-raw 8": (SessionNotFound, {"id": OLD, "searched": SEARCHED}, ("There is no session",)),
    "14-resume-raw 9": (SessionNotFound, {"id": OLD}, ("There is no session",)),
    "14-resume-raw 10": (OptionsError, {}, ("`session_id`", "UUID")),
    "18-bad-cwd 1": (FolderNotFound, {"path": "/home/dev/gone"}, ("'/home/dev/gone'", "`cwd`")),
    "18-bad-cwd 2": (FolderNotFound, {"path": "/home/dev/gone"}, ("'/home/dev/gone'",)),
    "18-bad-cwd 5": (LaunchError, {}, ("'/home/dev/.claude/.claude.json' is damaged", "backup")),
    "18-bad-flags 1": (OptionsError, {}, ("`--output-format`", "'xml'", "text, json, stream-json")),
    "18-bad-flags 3": (OptionsError, {}, ("`permission_mode` 'nonsense'", "acceptEdits", "claude update")),
    "18-bad-flags 5": (OptionsError, {}, ("`max_turns` 'many'", "must be a number")),
    "18-bad-flags 8": (OptionsError, {}, ("`max_budget_usd` 'lots'", "positive")),
    "18-bad-flags 9": (OptionsError, {}, ("`max_budget_usd` '0'",)),
    "18-bad-flags 13": (OptionsError, {}, ("`model`", "missing")),
    "18-bad-flags 14": (OptionsError, {}, ("`settings`", "/home/dev/project/nowhere.json", "mapping")),
    "18-bad-flags 16": (OptionsError, {}, ("`settings`", "Invalid JSON")),
    "18-bad-flags 19": (OptionsError, {}, ("`setting_sources`", "nowhere")),
    "18-bad-flags 21": (OptionsError, {}, ("`mcp_servers`", "nowhere.json")),
    "18-bad-flags 22": (OptionsError, {}, ("`mcp_servers`", "{oops")),
    "18-bad-flags 23": (OptionsError, {}, ("`mcp_servers`", '"mcpServers"')),
    "18-bad-flags 26": (OptionsError, {}, ("`agents`", "invalid JSON")),
    "18-bad-flags 27": (OptionsError, {}, ("`agents`", "a.description", "a.prompt")),
    "18-bad-flags 34": (OptionsError, {}, ("`system_prompt`", "/no/such")),
    "18-bad-flags 36": (OptionsError, {}, ("`thinking` 'sideways'", "adaptive")),
    "18-bad-flags 37": (OptionsError, {}, ("`max_thinking_tokens` 'x'",)),
    # Nothing that options can bring about: Outrider's own mistake, or a program that it does not know.
    "01-oneshot-print-modes 4": (ProcessExited, {}, ("requires --verbose",)),
    "08-end-session-and-await-initialize 2": (ProcessExited, {}, ("first stdin line",)),
    "16-invalid-huge-line 1": (ProcessExited, {}, ("Error parsing streaming input line",)),
    "18-bad-flags 0": (ProcessExited, {}, ("does not know `--no-such-flag`", "claude update")),
    "18-bad-flags 2": (ProcessExited, {}, ("requires output-format",)),
    "18-bad-flags 39": (ProcessExited, {}, ("--include-partial-messages",)),
    "18-bad-flags 40": (ProcessExited, {}, ("Input must be provided",)),
}


def split(case: str) -> tuple[str, int]:
    name, _, number = case.rpartition(" ")
    return name, int(number)


@every_case("with_result", [False, True], ids=["stderr", "stderr and result"])
@every_case("case", CASES)
def test_recorded_failures_of_a_start_are_told_apart(case: str, with_result: bool) -> None:
    kind, facts, words = CASES[case]
    options = Options(resume=OLD, cwd="/home/dev/gone")
    ended = ProcessExited(1, stderr_tail=stderr_of(*split(case)))
    results: list[Any] = results_of(*split(case)) if with_result else []
    failure = startup_failure(ended, options, searched=SEARCHED, result=results[0] if results else None)
    assert type(failure) is kind
    assert facts.items() <= vars(failure).items()
    for word in words:
        assert word in str(failure)
    assert failure.hint
    assert not failure.retryable
    assert failure is ended or failure.__cause__ is ended
    assert type(pickle.loads(pickle.dumps(failure))) is kind


def test_every_recorded_start_that_failed_is_in_the_table() -> None:
    failed = {
        f"{name} {number}"
        for name in tapes.NAMES
        for number, run in enumerate(tapes.runs(name))
        if stderr_of(name, number).strip()
        and not any(
            isinstance(record.frame, dict)
            and record.frame.get("type") == "system"
            and record.frame.get("subtype") == "init"
            for record in run
        )
    }
    assert failed == CASES.keys()


def test_a_title_that_no_session_has_is_named_without_options() -> None:
    failure = startup_failure(ProcessExited(1, stderr_tail=stderr_of("14-resume-raw", 8)))
    assert isinstance(failure, SessionNotFound)
    assert failure.id == "my-title"


@pytest.mark.parametrize(
    "stderr, words",
    [
        ("error: unknown option '--colour'", "`extra_args` has 'colour'"),
        (
            "error: option '--colour <name>' argument 'it's' is invalid. No.",
            "refuses `extra_args['colour']` \"it's\" (`--colour`): No.",
        ),
    ],
)
def test_a_flag_of_the_callers_own_is_theirs_to_correct(stderr: str, words: str) -> None:
    failure = startup_failure(ProcessExited(1, stderr_tail=stderr), Options(extra_args={"colour": "it's"}))
    assert isinstance(failure, OptionsError)
    assert words in str(failure)


def test_the_session_is_kept() -> None:
    ended = ProcessExited(1, stderr_tail="Error: Invalid session ID", session_id="s-1")
    assert startup_failure(ended, Options()).session_id == "s-1"


@pytest.mark.parametrize("stderr", ["", "Segmentation fault", "TypeError: x is not a function\n    at y"])
def test_what_is_not_known_stays_what_it_is(stderr: str) -> None:
    ended = ProcessExited(-11, stderr_tail=stderr)
    hint = ended.hint
    assert startup_failure(ended, Options()) is ended
    assert ended.hint == hint
