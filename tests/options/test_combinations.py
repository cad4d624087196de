"""Options that exclude each other, or need each other, are refused together and accepted apart."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from outrider.approvals import Approvals
from outrider.errors import OptionsError
from outrider.launch import Ssh
from outrider.options import FilePrompt, Isolation, Options, PermissionShadowedWarning, PresetPrompt
from outrider.options._checks import RULES
from tests.cases import every_case


def ids(examples: list[Any]) -> list[str]:
    fields = (example[0] if isinstance(example, tuple) else example for example in examples)
    return [f"{number}-{'+'.join(names)}" for number, names in enumerate(fields)]


ID = "550e8400-e29b-41d4-a716-446655440000"


class PlainStore:
    """A session store that cannot find the latest session."""

    async def append(self, key: Any, entries: Any) -> None: ...

    async def load(self, key: Any) -> None: ...


class Store(PlainStore):
    """One that can."""

    async def list_sessions(self, project: str) -> list[Any]:
        return []


def ask(request: object) -> None:
    """Stands for a permission callback."""


class EmptyQueue(list[object]):
    """A permission callback that counts as false."""

    def __call__(self) -> None: ...


BROKEN: list[tuple[dict[str, Any], str]] = [
    ({"permission": EmptyQueue(), "permission_prompt_tool_name": "mcp__a__b"}, "cannot both decide"),
    ({"permission": EmptyQueue(), "permission_prompts": "none"}, "`permission` is never asked"),
    ({"permission": ask, "permission_prompt_tool_name": "mcp__a__b"}, "cannot both decide"),
    ({"permission": ask, "permission_prompts": "none"}, "`permission` is never asked"),
    (
        {"on_question": ask, "permission_prompt_tool_name": "t"},
        "asked with `permission_prompt_tool_name`",
    ),
    ({"on_plan": EmptyQueue(), "permission_prompt_tool_name": "t"}, "`on_plan` are never asked"),
    ({"on_question": EmptyQueue(), "permission_prompts": "none"}, "`on_question` and `on_plan` are never"),
    ({"on_plan": ask, "permission_prompts": "none"}, 'never asked with `permission_prompts="none"`'),
    ({"permission_prompt_tool_name": "t", "permission_prompts": "none"}, "is never asked"),
    ({"supported_dialog_kinds": ["a"]}, "needs `on_user_dialog`"),
    ({"on_auth_refresh": ask, "env": {"ANTHROPIC_API_KEY": "k"}}, "`on_auth_refresh` has no effect"),
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
    ({"approvals": Approvals("memory:"), "permission_prompt_tool_name": "t"}, "`approvals` decide nothing"),
    ({"approvals": Approvals("memory:"), "permission_prompts": "none"}, "`approvals` decide nothing"),
    ({"approvals": Approvals("memory:"), "persist_session": False}, "needs a session that is kept"),
    ({"approvals": Approvals("memory:"), "isolation": "hermetic"}, "needs a session that is kept"),
    ({"session_store": Store(), "enable_file_checkpointing": True}, "cannot keep the copies"),
    ({"session_store": PlainStore(), "continue_conversation": True}, "`list_sessions`"),
    ({"session_store": Store(), "resume": "a", "runner": Ssh("box")}, "the `runner` leads to"),
    ({"session_store": "a.db", "resume": "a", "runner": Ssh("box")}, "the `runner` leads to"),
    ({"isolation": "hermetic", "resume": "a"}, "has no sessions"),
    ({"isolation": "hermetic", "continue_conversation": True}, "has no sessions"),
    ({"isolation": "hermetic", "setting_sources": ["user"]}, "`setting_sources` names some"),
    ({"isolation": "hermetic", "setting_sources": None}, "`setting_sources` names some"),
    ({"isolation": "hermetic", "env": {"CLAUDE_CONFIG_DIR": "x"}}, "CLAUDE_CONFIG_DIR"),
    ({"isolation": Isolation(config_dir="d"), "env": {"CLAUDE_CONFIG_DIR": "x"}}, "CLAUDE_CONFIG_DIR"),
]

WORKING: list[dict[str, Any]] = [
    {"permission": ask, "permission_prompts": "host"},
    {"on_question": ask, "on_plan": ask, "permission_prompts": "host"},
    {"permission": ask, "on_question": ask, "on_plan": ask},
    {"permission_prompt_tool_name": "mcp__a__b", "permission_prompts": "host"},
    {"permission_prompts": "none"},
    {"supported_dialog_kinds": ["a"], "on_user_dialog": ask},
    {"on_user_dialog": ask},
    {"on_auth_refresh": ask, "env": {"ANTHROPIC_API_KEY": ""}},
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
    {"session_store": "sqlite:///a.db", "continue_conversation": True},
    {"session_store": Store(), "runner": Ssh("box")},
    {"session_store": Store(), "resume": "a", "runner": Ssh("box"), "isolation": "hermetic"},
    {"persist_session": False},
    {"approvals": Approvals("memory:")},
    {"approvals": Approvals("memory:"), "isolation": "hermetic", "session_store": Store()},
    {"approvals": Approvals("memory:"), "isolation": Isolation.hermetic("folder")},
    {"enable_file_checkpointing": True},
    {"isolation": "hermetic"},
    {"isolation": Isolation.hermetic("folder"), "resume": "a"},
    {"isolation": "hermetic", "session_store": Store(), "continue_conversation": True},
    {"isolation": "hermetic", "env": {"A": "b"}},
    {"env": {"CLAUDE_CONFIG_DIR": "x"}},
]


@pytest.mark.requirement("A6")
@every_case("fields, text", BROKEN, ids=ids(BROKEN))
def test_options_that_cannot_work_together_are_refused(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(OptionsError, match=text) as caught:
        Options(**fields)
    assert caught.value.hint


@pytest.mark.requirement("A6")
@every_case("fields", WORKING, ids=ids(WORKING))
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


def settings(**permissions: Any) -> dict[str, Any]:
    return {"permissions": permissions}


SHADOWS: list[tuple[dict[str, Any], str]] = [
    ({"permission_mode": "bypassPermissions"}, "not asked about anything but questions and plans"),
    ({"permission_mode": "dontAsk"}, '`permission` is not asked about anything: the mode "dontAsk" denies'),
    ({"permission_mode": "acceptEdits"}, "not asked about changes to files in the working folder"),
    ({"permission_mode": "auto"}, "not asked about what the classifier"),
    ({"permission_mode": "acceptEdits", "allowed_tools": ["Bash"]}, '"acceptEdits" allows and Bash, which'),
    ({"allowed_tools": ["Read"]}, "not asked about Read"),
    ({"allowed_tools": ["Bash(git *)", "Read()", "Edit(*)"]}, r"not asked about Read\(\), Edit\(\*\),"),
    ({"allowed_tools": ["mcp__a__b"]}, "not asked about mcp__a__b"),
    ({"skills": "all"}, "not asked about skills"),
    ({"settings": settings(allow=["Bash", "Edit(src/**)"])}, "not asked about Bash, which `settings` allows"),
    ({"managed_settings": settings(allow=["Edit"])}, "about Edit, which `managed_settings` allows"),
    ({"settings": settings(defaultMode="bypassPermissions")}, "not asked about anything but questions"),
    ({"settings": settings(defaultMode="dontAsk")}, "not asked about anything: "),
    ({"managed_settings": settings(defaultMode="acceptEdits")}, "changes to files"),
]
CLEAR: list[dict[str, Any]] = [
    {"allowed_tools": ["Bash(git *)", "Read(/src/*)"]},
    {"skills": ["pdf"]},
    {"permission_mode": "plan"},
    {"permission_mode": "default"},
    {"permission_mode": "default", "settings": settings(defaultMode="bypassPermissions")},
    {"disallowed_tools": ["Read"]},
    {"settings": settings(allow=["Bash(git *)"], deny=["Read"], defaultMode="plan")},
    {"settings": {"permissions": "nonsense"}},
    {"settings": settings(allow="nonsense", defaultMode=1)},
    {"settings": "settings.json"},
]


@every_case("fields, text", SHADOWS, ids=ids(SHADOWS))
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


@every_case("fields", CLEAR, ids=ids(CLEAR))
def test_a_callback_that_is_asked_is_not_warned_of(fields: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Options(permission=ask, **fields)


@every_case(
    "fields",
    [fields for fields, _ in SHADOWS],
    ids=ids(SHADOWS),
)
def test_without_a_callback_nothing_is_warned_of(fields: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Options(**fields)


@pytest.mark.parametrize("name", ["on_question", "on_plan"])
def test_a_mode_that_denies_questions_is_warned_of(name: str) -> None:
    fields: dict[str, Any] = {name: ask}
    with pytest.warns(PermissionShadowedWarning, match=f"^`{name}` is not asked about anything"):
        Options(permission_mode="dontAsk", **fields)
    with pytest.warns(PermissionShadowedWarning, match=f"^`permission` and `{name}` are not asked"):
        Options(permission_mode="dontAsk", permission=ask, **fields)


@pytest.mark.parametrize("mode", ["dontAsk", "bypassPermissions"])
def test_a_mode_in_which_nothing_waits_is_warned_of(mode: str) -> None:
    with pytest.warns(PermissionShadowedWarning, match=r"^`approvals` is not asked about anything") as caught:
        Options(permission_mode=mode, approvals=Approvals("memory:"))
    assert len(caught) == 1


@pytest.mark.parametrize("mode", ["bypassPermissions", "acceptEdits", "auto"])
def test_a_mode_that_allows_much_still_asks_questions(mode: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Options(permission_mode=mode, on_question=ask, on_plan=ask, allowed_tools=["Read"])
