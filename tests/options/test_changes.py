"""Options are changed by making others: `replace`, `with_env`, `with_hook`."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.errors import OptionsError
from outrider.options import CustomPrompt, Options


@pytest.mark.requirement("A6")
def test_replace_changes_a_copy() -> None:
    options = Options(model="a", cwd="b")
    changed = options.replace(model="c", system_prompt="d")
    assert (changed.model, changed.cwd, changed.system_prompt) == ("c", "b", CustomPrompt("d"))
    assert options == Options(model="a", cwd="b")


@pytest.mark.requirement("A6")
def test_replace_replaces_env_and_hooks() -> None:
    options = Options(env={"A": "1"}, hooks={"Stop": [print]})
    changed = options.replace(env={"B": "2"}, hooks={"PreToolUse": [len]})
    assert changed.env == {"B": "2"}
    assert changed.hooks == {"PreToolUse": (len,)}


@pytest.mark.requirement("A6")
def test_with_env_adds_variables() -> None:
    options = Options(env={"A": "1", "B": "2"})
    assert options.with_env(B="3", C="4").env == {"A": "1", "B": "3", "C": "4"}
    assert options.with_env({"D.E": "5"}, B="6").env == {"A": "1", "B": "6", "D.E": "5"}
    assert options.env == {"A": "1", "B": "2"}


@pytest.mark.requirement("A6")
def test_with_hook_adds_matchers() -> None:
    options = Options().with_hook("Stop", print).with_hook("Stop", len, repr).with_hook("PreToolUse", print)
    assert options.hooks == {"Stop": (print, len, repr), "PreToolUse": (print,)}


def test_replace_can_go_back_to_a_default() -> None:
    assert Options(model="a", max_turns=3).replace(model=None, max_turns=None) == Options()


@pytest.mark.parametrize(
    "changes", [{"max_turns": 0}, {"fork_session": True}, {"env": {"": "x"}}], ids=["value", "rule", "env"]
)
def test_a_change_is_checked(changes: dict[str, Any]) -> None:
    with pytest.raises(OptionsError):
        Options(model="a").replace(**changes)


def test_a_change_of_what_does_not_exist_names_what_was_meant() -> None:
    changes: dict[str, Any] = {"modle": "a"}
    with pytest.raises(OptionsError, match=r"`modle`.*`model`"):
        Options().replace(**changes)


@pytest.mark.parametrize("name", ["", "A=B"])
def test_added_variables_are_checked(name: str) -> None:
    with pytest.raises(OptionsError):
        Options().with_env({name: "x"})


def test_options_cannot_be_assigned_to() -> None:
    options: Any = Options()
    with pytest.raises(AttributeError):
        options.model = "a"
