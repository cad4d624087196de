"""`extra_args` cannot undo what another option says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.errors import OptionsError
from outrider.options import Options
from outrider.options._checks import OURS
from outrider.options._table import flag_owners
from tests.cases import every_case

OWNERS = flag_owners()

# Every flag by which a second word could weaken, redirect or end what the first one set up.
SAFETY = [
    "output-format",
    "input-format",
    "verbose",
    "print",
    "permission-prompt-tool",
    "permission-prompts",
    "permission-mode",
    "settings",
    "mcp-config",
    "setting-sources",
    "strict-mcp-config",
    "dangerously-skip-permissions",
    "allow-dangerously-skip-permissions",
    "allowedTools",
    "allowed-tools",
    "disallowedTools",
    "disallowed-tools",
    "tools",
    "managed-settings",
    "add-dir",
    "plugin-dir",
    "system-prompt",
    "append-system-prompt",
    "resume",
    "continue",
    "session-id",
    "no-session-persistence",
    "session-mirror",
    "json-schema",
    "agents",
    "agent",
    "model",
    "fallback-model",
    "max-turns",
    "max-budget-usd",
    "enable-auto-mode",
    "pool",
    "help",
    "version",
    "sdk-url",
]


@pytest.mark.requirement("C7")
@every_case("flag", SAFETY)
def test_a_flag_that_something_else_decides_on_is_refused(flag: str) -> None:
    with pytest.raises(OptionsError, match=f"`extra_args` cannot be '{flag}'"):
        Options(extra_args={flag: "x"})


@pytest.mark.requirement("C7")
@every_case("flag", sorted(OWNERS))
def test_the_option_that_owns_a_flag_is_named_and_exists(flag: str) -> None:
    assert OWNERS[flag] in Options.__struct_fields__
    with pytest.raises(OptionsError, match=f"Set `{OWNERS[flag]}`"):
        Options(extra_args={flag: None})


def test_a_flag_has_one_owner() -> None:
    assert not set(OWNERS) & OURS


@pytest.mark.parametrize("spelled", ["output_format", "mcp_config", "permission_mode"])
def test_underscores_do_not_get_a_flag_through(spelled: str) -> None:
    with pytest.raises(OptionsError):
        Options(extra_args={spelled: "x"})


MISWRITTEN = [
    ("--foo", "Leave out the dashes: 'foo'"),
    ("-x", "Leave out the dashes"),
    ("--settings", "Leave out the dashes"),
    ("foo=bar", '"flag": "value"'),
    ("foo bar", '"flag": "value"'),
    ("", '"flag": "value"'),
    ("x", "long name"),
    ("foo\n", "long name"),
    ("fo\0o", "NUL byte"),
]


@pytest.mark.requirement("C7")
@every_case("flag, hint", MISWRITTEN, ids=[repr(flag) for flag, _ in MISWRITTEN])
def test_what_cannot_be_a_flag_is_refused(flag: str, hint: str) -> None:
    with pytest.raises(OptionsError, match=hint):
        Options(extra_args={flag: None})


@pytest.mark.requirement("C7")
@pytest.mark.parametrize("value", [None, "", "x", "-x", "--settings", "a=b c", "ä"])
def test_any_text_can_be_the_value_of_a_flag(value: str | None) -> None:
    assert Options(extra_args={"some-flag": value}).extra_args == {"some-flag": value}


@pytest.mark.requirement("C7")
@given(st.text(max_size=20))
def test_a_flag_that_gets_through_is_one_harmless_word(name: str) -> None:
    try:
        Options(extra_args={name: None})
    except OptionsError:
        return
    assert name.isascii()
    assert name[0].isalnum()
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
    assert name not in OWNERS
    assert name not in OURS
