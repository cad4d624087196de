"""No value of an option becomes a flag, and no secret is on the command line."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.launch import make_command, make_initialize
from outrider.options import CustomPrompt, FilePrompt, Options, PresetPrompt
from tests.cases import every_case
from tests.launch.commands import Remote, arguments, command

ODD_TEXT = st.text("-=abc \n\"'\\,()é{}[]$`;&|", min_size=1, max_size=12).filter(str.strip)
NASTY = st.one_of(ODD_TEXT, ODD_TEXT.map("-".__add__), ODD_TEXT.map("--resume=".__add__))

OPEN_TEXTS = (
    *("model", "agent", "resume", "debug", "title", "debug_file", "permission_prompt_tool_name"),
    *("system_prompt", "append_system_prompt", "append_subagent_system_prompt"),
)
OTHER_WAYS: dict[str, Callable[[str], dict[str, Any]]] = {
    "add_dirs": lambda value: {"add_dirs": [value]},
    "plugins": lambda value: {"plugins": [value]},
    "a prompt file": lambda value: {"system_prompt": FilePrompt(value)},
    "a settings file": lambda value: {"settings": f"x{value}", "runner": Remote()},
    "a file of servers": lambda value: {"mcp_servers": f"x{value}"},
    "a setting": lambda value: {"settings": {"x": value}},
    "cwd": lambda value: {"cwd": value, "runner": Remote()},
    "env": lambda value: {"env": {"X": value}},
    "extra_args": lambda value: {"extra_args": {"flag": value}},
}


def fields_with(way: str, value: str) -> dict[str, Any]:
    return {way: value} if way in OPEN_TEXTS else OTHER_WAYS[way](value)


@pytest.mark.requirement("C7")
@pytest.mark.parametrize("way", [*OPEN_TEXTS, *OTHER_WAYS])
@given(value=NASTY)
def test_no_value_becomes_a_flag_or_changes_another_argument(way: str, value: str) -> None:
    nasty, harmless = command(**fields_with(way, value)).argv, command(**fields_with(way, "x")).argv
    assert len(nasty) == len(harmless)
    differing = [pair for pair in zip(nasty, harmless, strict=True) if pair[0] != pair[1]]
    assert len(differing) <= 1
    for changed, harmless_argument in differing:
        assert changed.partition("=")[0] == harmless_argument.partition("=")[0]
        assert changed.endswith((f"={value}", f"=x{value}"))


@pytest.mark.requirement("C7")
@given(values=st.lists(NASTY, max_size=3))
def test_many_values_give_one_argument_each(values: list[str]) -> None:
    assert arguments(add_dirs=values) == [f"--add-dir={value}" for value in values]


SECRET = "s3cret-VALUE-0123456789"


@pytest.mark.requirement("C1")
@every_case(
    "fields",
    [
        {"env": {"ANTHROPIC_API_KEY": SECRET}},
        {"mcp_servers": {"x": {"command": "y", "env": {"A": SECRET}}}},
        {"mcp_servers": {"x": {"type": "http", "url": "https://x.test", "headers": {"A": SECRET}}}},
        {"mcp_servers": json.dumps({"mcpServers": {"x": {"command": SECRET}}})},
        {"settings": {"env": {"A": SECRET}}},
        {"settings": json.dumps({"env": {"A": SECRET}})},
        {"settings": {"env": {"A": SECRET}}, "sandbox": {"enabled": True}},
        {"system_prompt": SECRET},
        {"system_prompt": CustomPrompt((SECRET,))},
        {"append_system_prompt": SECRET},
        {"system_prompt": PresetPrompt(append=SECRET)},
        {"append_subagent_system_prompt": SECRET},
        {"agents": {"a": {"description": "d", "prompt": SECRET}}},
    ],
    ids=repr,
)
def test_no_secret_is_on_the_command_line(fields: dict[str, Any]) -> None:
    made = command(**fields)
    assert not any(SECRET in argument for argument in made.argv)
    assert SECRET not in repr(made)
    places = [file.content.decode() for file in made.files] + list((made.env or {}).values())
    request = str(make_initialize(Options(**fields)))
    assert any(SECRET in place for place in places) or SECRET in request


def test_options_are_left_as_they_were() -> None:
    options = Options(cli_path=sys.executable, skills=["pdf"], allowed_tools=["Read"], env={"A": "b"})
    before = repr(options)
    make_command(options, environ={})
    make_initialize(options)
    assert repr(options) == before


def test_a_command_shows_no_value_of_its_environment() -> None:
    made = command(env={"PLAIN_NAME": SECRET})
    assert SECRET not in repr(made)
    assert "PLAIN_NAME" in repr(made)
