"""Options that exclude each other, or need each other, are refused together and accepted apart."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from bridle.errors import OptionsError
from bridle.options import FilePrompt, Isolation, Options, PermissionShadowedWarning, PresetPrompt
from bridle.options._validation import RULES


def ids(examples: list[Any]) -> list[str]:
    fields = (example[0] if isinstance(example, tuple) else example for example in examples)
    return [f"{number}-{'+'.join(names)}" for number, names in enumerate(fields)]


ID = "550e8400-e29b-41d4-a716-446655440000"


class Store:
    """A session store that can find the latest session."""

    def list_sessions(self) -> list[str]:
        return []


class PlainStore:
    """A session store that cannot."""


def ask() -> None:
    """Stands for a permission callback."""


class EmptyQueue(list[object]):
    """A permission callback that counts as false."""

    def __call__(self) -> None: ...


BROKEN: list[tuple[dict[str, Any], str]] = [
    ({"permission": EmptyQueue(), "permission_prompt_tool_name": "mcp__a__b"}, "cannot both decide"),
    ({"permission": EmptyQueue(), "permission_prompts": "none"}, "`permission` is never asked"),
    ({"permission": ask, "permission_prompt_tool_name": "mcp__a__b"}, "cannot both decide"),
    ({"permission": ask, "permission_prompts": "none"}, "`permission` is never asked"),
    ({"permission_prompt_tool_name": "t", "permission_prompts": "none"}, "is never asked"),
    ({"supported_dialog_kinds": ["a"]}, "needs `on_user_dialog`"),
    ({"executable_args": ["-x"]}, "needs `executable`"),
    ({"model": "opus", "fallback_model": "opus"}, "`fallback_model` names `model`"),
    ({"model": "opus", "fallback_model": ["haiku", "opus"]}, "`fallback_model` names `model`"),
    ({"fallback_model": ["haiku", "haiku"]}, "one model twice"),
    ({"append_system_prompt": "a", "system_prompt": PresetPrompt(append="b")}, "say the same"),
    ({"append_system_prompt": "a", "system_prompt": FilePrompt("f")}, "Put the text into the file"),
    ({"continue_conversation": True, "resume": "a"}, "two sessions"),
    ({"fork_session": True}, "needs a session to copy"),
    ({"resume_session_at": "a"}, "needs `resume`"),
    ({"resume_session_at": "a", "continue_conversation": True}, "needs `resume`"),
    ({"resume_drops_turn": "a"}, "needs `resume` and `resume_session_at`"),
    ({"resume_drops_turn": "a", "resume": "b"}, "needs `resume` and `resume_session_at`"),
    ({"session_id": ID, "resume": "a"}, "set `fork_session`"),
    ({"session_id": ID, "continue_conversation": True}, "set `fork_session`"),
    ({"session_store": Store(), "persist_session": False}, "needs `persist_session`"),
    ({"session_store": Store(), "enable_file_checkpointing": True}, "cannot keep the copies"),
    ({"session_store": PlainStore(), "continue_conversation": True}, "`list_sessions`"),
    ({"isolation": "hermetic", "resume": "a"}, "has no sessions"),
    ({"isolation": "hermetic", "continue_conversation": True}, "has no sessions"),
    ({"isolation": "hermetic", "setting_sources": ["user"]}, "`setting_sources` names some"),
    ({"isolation": "hermetic", "setting_sources": None}, "`setting_sources` names some"),
    ({"isolation": "hermetic", "env": {"CLAUDE_CONFIG_DIR": "x"}}, "CLAUDE_CONFIG_DIR"),
    ({"isolation": Isolation(config_dir="d"), "env": {"CLAUDE_CONFIG_DIR": "x"}}, "CLAUDE_CONFIG_DIR"),
]

WORKING: list[dict[str, Any]] = [
    {"permission": ask, "permission_prompts": "host"},
    {"permission_prompt_tool_name": "mcp__a__b", "permission_prompts": "host"},
    {"permission_prompts": "none"},
    {"supported_dialog_kinds": ["a"], "on_user_dialog": ask},
    {"on_user_dialog": ask},
    {"executable": "node", "executable_args": ["-x"]},
    {"model": "opus", "fallback_model": ["haiku", "sonnet"]},
    {"fallback_model": ["haiku"]},
    {"append_system_prompt": "a"},
    {"append_system_prompt": "a", "system_prompt": "b"},
    {"append_system_prompt": "a", "system_prompt": PresetPrompt()},
    {"system_prompt": PresetPrompt(append="a")},
    {"continue_conversation": True},
    {"resume": "a", "fork_session": True},
    {"continue_conversation": True, "fork_session": True},
    {"resume": "a", "resume_session_at": "b", "resume_drops_turn": "c"},
    {"session_id": ID},
    {"session_id": ID, "resume": "a", "fork_session": True},
    {"session_store": PlainStore(), "resume": "a"},
    {"session_store": Store(), "continue_conversation": True},
    {"persist_session": False},
    {"enable_file_checkpointing": True},
    {"isolation": "hermetic"},
    {"isolation": Isolation.hermetic("folder"), "resume": "a"},
    {"isolation": "hermetic", "session_store": Store(), "continue_conversation": True},
    {"isolation": "hermetic", "env": {"A": "b"}},
    {"env": {"CLAUDE_CONFIG_DIR": "x"}},
]


@pytest.mark.requirement("A6")
@pytest.mark.parametrize("fields, text", BROKEN, ids=ids(BROKEN))
def test_options_that_cannot_work_together_are_refused(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(OptionsError, match=text) as caught:
        Options(**fields)
    assert caught.value.hint


@pytest.mark.requirement("A6")
@pytest.mark.parametrize("fields", WORKING, ids=ids(WORKING))
def test_options_that_can_work_together_are_accepted(fields: dict[str, Any]) -> None:
    assert all(hasattr(Options(**fields), name) for name in fields)


def test_every_rule_is_broken_by_an_example() -> None:
    said = set()
    for fields, _ in BROKEN:
        with pytest.raises(OptionsError) as caught:
            Options(**fields)
        said.add(caught.value.message)
    assert said == {rule.says for rule in RULES}


# A callback that is not asked.

SHADOWS: list[tuple[dict[str, Any], str]] = [
    ({"permission_mode": "bypassPermissions"}, "not asked about anything"),
    ({"allowed_tools": ["Read"]}, "not asked about Read"),
    ({"allowed_tools": ["Bash(git *)", "Read()", "Edit(*)"]}, r"not asked about Read\(\), Edit\(\*\),"),
    ({"allowed_tools": ["mcp__a__b"]}, "not asked about mcp__a__b"),
    ({"skills": "all"}, "not asked about skills"),
]
CLEAR: list[dict[str, Any]] = [
    {"allowed_tools": ["Bash(git *)", "Read(/src/*)"]},
    {"skills": ["pdf"]},
    {"permission_mode": "plan"},
    {"disallowed_tools": ["Read"]},
]


@pytest.mark.parametrize("fields, text", SHADOWS, ids=ids(SHADOWS))
def test_a_callback_that_is_not_asked_is_warned_of_once(fields: dict[str, Any], text: str) -> None:
    with pytest.warns(PermissionShadowedWarning, match=text) as caught:
        Options(permission=ask, **fields)
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_a_change_that_shadows_the_callback_is_warned_of_where_it_is_made() -> None:
    options = Options(permission=ask)
    with pytest.warns(PermissionShadowedWarning) as caught:
        options.replace(allowed_tools=["Read"])
    assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.parametrize("fields", CLEAR, ids=ids(CLEAR))
def test_a_callback_that_is_asked_is_not_warned_of(fields: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Options(permission=ask, **fields)


@pytest.mark.parametrize(
    "fields",
    [fields for fields, _ in SHADOWS],
    ids=ids(SHADOWS),
)
def test_without_a_callback_nothing_is_warned_of(fields: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Options(**fields)
