"""Bugs that other SDKs had in building the command, each as a test."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.errors import OptionsError
from outrider.launch import make_command, make_environment, make_initialize
from outrider.options import EnvPolicy, Options, PermissionShadowedWarning
from outrider.options._table import ROWS

PROGRAM = "/bin/true"


def argv(**fields: Any) -> tuple[str, ...]:
    return make_command(Options(cli_path=PROGRAM, **fields), environ={"PATH": "/bin"}).argv


@pytest.mark.parametrize("option", ["resume", "model", "agent", "permission_prompt_tool_name"])
def test_a_value_that_begins_with_a_dash_is_no_flag(option: str) -> None:
    arguments = argv(**{option: "--dangerously-skip-permissions"})
    assert "--dangerously-skip-permissions" not in arguments
    assert any(argument.endswith("=--dangerously-skip-permissions") for argument in arguments)


def test_a_long_system_prompt_starts() -> None:
    options = Options(cli_path=PROGRAM, system_prompt="x" * 3_000_000)
    make_command(options, environ={})
    assert make_initialize(options).system_prompt == ["x" * 3_000_000]


@pytest.mark.parametrize(
    "flag", ["permission-mode", "dangerously-skip-permissions", "setting-sources", "tools"]
)
def test_extra_arguments_cannot_undo_an_option(flag: str) -> None:
    with pytest.raises(OptionsError, match=flag):
        Options(extra_args={flag: "anything"})


@pytest.mark.parametrize("name", ["pdf),Bash", "a,b", "*", " pdf", "pdf(x)"])
def test_the_name_of_a_skill_cannot_bring_other_rules_along(name: str) -> None:
    with pytest.raises(OptionsError, match="skills"):
        Options(skills=[name])


def test_a_callback_that_is_never_asked_is_warned_about() -> None:
    with pytest.warns(PermissionShadowedWarning, match="Bash"):
        Options(permission=print, allowed_tools=["Bash"])


def test_a_list_of_variables_is_a_list_of_variables() -> None:
    environ = {"PATH": "/bin", "WANTED": "1", "UNWANTED": "2"}
    made = make_environment(Options(env_policy=EnvPolicy.only("WANTED")), environ=environ)
    assert "WANTED" in made
    assert "UNWANTED" not in made


def test_a_copy_shares_nothing_with_what_it_was_made_from() -> None:
    tools, env = ["Read"], {"A": "1"}
    one = Options(allowed_tools=tools, env=env)
    other = one.replace(model="opus").with_env(B="2")
    tools.append("Bash")
    env["A"] = "changed"
    assert (one.allowed_tools, other.allowed_tools) == (("Read",), ("Read",))
    assert (one.env, other.env) == ({"A": "1"}, {"A": "1", "B": "2"})


def test_no_option_is_accepted_and_then_forgotten() -> None:
    assert {field for name, to in ROWS for field in (name, *to.also)} == set(Options.__struct_fields__)


def test_nothing_is_allowed_by_default() -> None:
    arguments = argv()
    assert not any(word in argument for argument in arguments for word in ("permission", "allow", "skip"))


def test_zero_is_no_unset_option() -> None:
    """`max_turns=0` was dropped without a word, and the run had no limit."""
    with pytest.raises(OptionsError, match="max_turns"):
        Options(max_turns=0)
    assert "--max-thinking-tokens=0" in argv(max_thinking_tokens=0) or "--thinking=disabled" in argv(
        max_thinking_tokens=0
    )


def test_a_small_budget_is_written_out() -> None:
    assert "--max-budget-usd=0.0000001" in argv(max_budget_usd=1e-7)


def test_nan_does_not_reach_the_agent() -> None:
    with pytest.raises(OptionsError):
        Options(settings={"a": float("nan")})
