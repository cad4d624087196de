"""The modes: how prompts reach the agent, and what options become where there is no first request."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.command import FOLDER
from outrider.errors import OptionsError, UsageError
from outrider.launch import Mode
from outrider.options import FilePrompt, PresetPrompt, SdkServer
from tests.cases import every_case
from tests.launch.commands import INPUT, SERVERS, allow, arguments, command, files


class Falsy:
    """A callback that counts as false."""

    def __bool__(self) -> bool:
        return False

    __call__ = staticmethod(allow)


@pytest.mark.requirement("C8")
@pytest.mark.parametrize("mode", [Mode.STREAMING, Mode.STREAMING_ONCE])
def test_both_ways_of_streaming_have_the_same_command_line(mode: Mode) -> None:
    assert list(command(mode, "hello").argv[-2:]) == INPUT
    assert mode.is_streaming


@pytest.mark.requirement("C8")
def test_a_one_shot_prompt_is_not_on_the_command_line() -> None:
    argv = command(Mode.ONE_SHOT, "hello").argv
    assert argv[-1] == "--print"
    assert "hello" not in argv
    assert "--input-format" not in argv


@pytest.mark.requirement("C8")
@pytest.mark.parametrize("prompt", ["hello", "--resume", "-p", "--", "a\nb", " "])
def test_a_prompt_on_the_command_line_is_the_last_word_and_no_flag(prompt: str) -> None:
    assert command(Mode.ONE_SHOT_ARGV, prompt).argv[-3:] == ("--print", "--", prompt)


@pytest.mark.requirement("C8")
@pytest.mark.parametrize("mode", list(Mode))
def test_an_empty_prompt_means_streaming(mode: Mode) -> None:
    assert command(mode, "").argv == command(Mode.STREAMING).argv
    assert mode.given("").is_streaming
    assert mode.given("x") is mode.given(None) is mode


@pytest.mark.requirement("C8")
@pytest.mark.parametrize("prompt", [None, "a\0b"])
def test_a_prompt_that_cannot_be_on_the_command_line_is_refused(prompt: str | None) -> None:
    with pytest.raises(UsageError):
        command(Mode.ONE_SHOT_ARGV, prompt)


EMPTY_PROMPT = f"--system-prompt-file={FOLDER}/system-prompt.txt"


@pytest.mark.requirement("C8")
@every_case(
    "fields, expected, written",
    [
        ({}, [EMPTY_PROMPT], {"system-prompt.txt": b""}),
        ({"system_prompt": "Hi"}, [EMPTY_PROMPT], {"system-prompt.txt": b"Hi"}),
        ({"system_prompt": ["a", "b"]}, [EMPTY_PROMPT], {"system-prompt.txt": b"a\n\nb"}),
        ({"system_prompt": PresetPrompt()}, [], {}),
        (
            {"system_prompt": PresetPrompt(append="More")},
            [f"--append-system-prompt-file={FOLDER}/append-system-prompt.txt"],
            {"append-system-prompt.txt": b"More"},
        ),
        (
            {"system_prompt": PresetPrompt(exclude_dynamic_sections=True, snapshot=False)},
            ["--system-prompt-snapshot=off", "--exclude-dynamic-system-prompt-sections"],
            {},
        ),
        (
            {"system_prompt": PresetPrompt(exclude_dynamic_sections=False, snapshot=True)},
            ["--system-prompt-snapshot=on"],
            {},
        ),
        (
            {"system_prompt": PresetPrompt(), "agents": {"a": {"description": "d", "prompt": "p"}}},
            [f"--agents={FOLDER}/agents.json"],
            {"agents.json": b'{"a":{"description":"d","prompt":"p"}}'},
        ),
        (
            {
                "system_prompt": PresetPrompt(),
                "output_format": {"type": "json_schema", "schema": {"type": "object"}},
                "title": "T",
                "forward_subagent_text": True,
                "prompt_suggestions": True,
            },
            [
                '--json-schema={"type":"object"}',
                "--name=T",
                "--forward-subagent-text",
                "--prompt-suggestions=true",
            ],
            {},
        ),
        ({"system_prompt": FilePrompt("p.txt")}, ["--system-prompt-file=p.txt"], {}),
    ],
    ids=lambda value: repr(value)[:60] if isinstance(value, dict) else None,
)
def test_a_one_shot_run_gets_by_flag_and_file_what_others_get_in_the_first_request(
    fields: dict[str, Any], expected: list[str], written: dict[str, bytes]
) -> None:
    assert arguments(Mode.ONE_SHOT, **fields) == expected
    assert files(Mode.ONE_SHOT, **fields) == written


@pytest.mark.requirement("C8")
@every_case(
    "fields",
    [
        {"hooks": {"Stop": [allow]}},
        {"permission": allow},
        {"on_question": allow},
        {"on_plan": allow},
        {"on_elicitation": allow},
        {"on_user_dialog": allow},
        {"tools": [allow]},
        {"mcp_servers": {"here": SdkServer(name="here")}},
        {"tool_aliases": {"Read": "Look"}},
        {"skills": ["pdf"]},
        {"plan_mode_instructions": "Plan"},
        {"managed_settings": {"a": 1}},
        {"plugins": ["/a"], "plugin_delivery": "initialize"},
        {"replay_user_messages": True},
        {"verbatim_prompts": True},
        {"agent_progress_summaries": True},
        {"per_task_stop_affordance": True},
        {"forward_nested_subagent_tool_calls": True},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_what_cannot_reach_a_one_shot_run_is_refused_by_name(fields: dict[str, Any]) -> None:
    with pytest.raises(OptionsError, match=f"`{next(iter(fields))}`"):
        command(Mode.ONE_SHOT, **fields)


def test_a_callback_that_counts_as_false_is_refused_too() -> None:
    for name in ("permission", "on_question", "on_plan", "on_elicitation", "on_user_dialog"):
        with pytest.raises(OptionsError, match=f"`{name}`"):
            command(Mode.ONE_SHOT, None, **{name: Falsy()})


@pytest.mark.requirement("C8")
@pytest.mark.parametrize("fields", [{}, {"skills": "all"}, {"tools": ["Read"]}, {"mcp_servers": SERVERS}])
def test_what_can_reach_it_is_not_refused(fields: dict[str, Any]) -> None:
    assert command(Mode.ONE_SHOT, **fields).argv[-1] == "--print"
