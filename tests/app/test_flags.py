"""The table of flags: each stands for an option, and is read as that option wants it."""

from __future__ import annotations

import pytest

from outrider.app._flags import BY_OPTION, FLAGS, options_from
from outrider.errors import OptionsError
from outrider.options import OptionFields, Options
from tests.cases import every_case

BY_NAME = {name: flag for flag in FLAGS for name in flag.names}


@every_case("flag", FLAGS, ids=lambda flag: flag.names[0])
def test_a_flag_stands_for_an_option(flag: object) -> None:
    assert flag in FLAGS
    assert getattr(flag, "option") in OptionFields.__annotations__  # noqa: B009


def test_no_two_flags_have_a_name_or_an_option_in_common() -> None:
    names = [name for flag in FLAGS for name in flag.names]
    assert len(names) == len(set(names))
    assert len(FLAGS) == len({flag.option for flag in FLAGS}) == len(BY_OPTION) - 1


@every_case(
    "name, value, option, meant",
    [
        ("--model", "opus", "model", "opus"),
        ("--allow", ["Read", "Bash(git *)"], "allowed_tools", ["Read", "Bash(git *)"]),
        ("--tools", "Read, Grep", "tools", ["Read", "Grep"]),
        ("--tools", "", "tools", []),
        ("--setting-sources", "user,project", "setting_sources", ["user", "project"]),
        ("--hermetic", True, "isolation", "hermetic"),
        ("--no-persist", True, "persist_session", False),
        ("--env", ["A=1", "B=x=y", "C="], "env", {"A": "1", "B": "x=y", "C": ""}),
        ("--agent-arg", ["--verbose-log", "level=2"], "extra_args", {"verbose-log": None, "level": "2"}),
        ("--timeout", 30.0, "timeouts", {"turn": 30.0}),
        ("--max-thinking-tokens", 0, "max_thinking_tokens", 0),
        ("--max-budget", 0.5, "max_budget_usd", 0.5),
    ],
)
def test_a_flag_is_read_as_its_option(name: str, value: object, option: str, meant: object) -> None:
    fields = options_from({BY_NAME[name]: value})
    assert fields == {option: meant}
    Options(**fields)


def test_flags_that_are_not_given_are_left_to_the_defaults() -> None:
    given = {flag: False if flag.form == "switch" else None for flag in FLAGS}
    assert options_from(given) == {}
    assert options_from({BY_NAME["--allow"]: []}) == {}


@pytest.mark.parametrize("pair", ["NAME", "=value", ""])
def test_a_variable_needs_a_name_and_a_value(pair: str) -> None:
    with pytest.raises(OptionsError, match="--env NAME=VALUE"):
        options_from({BY_NAME["--env"]: [pair]})
