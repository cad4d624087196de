"""Which tools a name stands for, where it denies and where it allows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.errors import OptionsError
from outrider.options._tool_names import ToolNames, full_name, short_names, tools_named
from tests.cases import every_case

NAMES = ToolNames(
    own={
        "mcp__tools__delete": ("delete",),
        "mcp__tools__Read": ("Read",),
        "mcp__my_server__find": ("find",),
        "mcp__two__lines__find": ("find",),
        "mcp__quiet__hush": (),
    },
    servers={"tools": True, "my server": True, "two__lines": True, "quiet": True, "github": False},
    aliases={"Shell": "Bash", "Erase": "delete", "Glob": "delete"},
    extra=("Teleport", "mcp__later__*"),
)


@every_case(
    "name, denied, allowed",
    [
        ("Bash", ("Bash",), ("Bash",)),
        ("Task", ("Task",), ("Task",)),
        ("delete", ("mcp__tools__delete",), ("mcp__tools__delete",)),
        ("Read", ("Read", "mcp__tools__Read"), ("Read",)),
        ("find", ("mcp__my_server__find", "mcp__two__lines__find"), None),
        ("hush", None, None),
        ("mcp__quiet__hush", ("mcp__quiet__hush",), ("mcp__quiet__hush",)),
        ("mcp__tools", ("mcp__tools",), ("mcp__tools",)),
        ("mcp__my_server", ("mcp__my_server",), ("mcp__my_server",)),
        ("mcp__two__lines", ("mcp__two__lines__*",), ("mcp__two__lines__*",)),
        ("mcp__tools__gone", None, None),
        ("mcp__github__anything", ("mcp__github__anything",), ("mcp__github__anything",)),
        ("mcp__gitlab__anything", None, None),
        ("mcp__later__x", ("mcp__later__x",), ("mcp__later__x",)),
        ("Teleport", ("Teleport",), ("Teleport",)),
        ("Shell", ("Bash",), ("Bash",)),
        ("Erase", ("mcp__tools__delete",), ("mcp__tools__delete",)),
        ("Glob", ("Glob", "mcp__tools__delete"), ("Glob",)),
        ("*", ("*",), ("*",)),
        ("mcp__*", ("mcp__*",), ("mcp__*",)),
        ("mcp__tools__*", ("mcp__tools__*",), ("mcp__tools__*",)),
        ("mcp__tools__gone*", None, None),
        ("mcp__github__*", ("mcp__github__*",), ("mcp__github__*",)),
        ("mcp__gitlab__*", None, None),
        ("del*", ("mcp__tools__delete",), ("mcp__tools__delete",)),
        ("R*", ("R*", "mcp__tools__Read"), ("R*",)),
        ("fi*", ("mcp__my_server__find", "mcp__two__lines__find"), None),
        ("bash", None, None),
        ("", None, None),
    ],
)
def test_a_name_stands_for(
    name: str, denied: tuple[str, ...] | None, allowed: tuple[str, ...] | None
) -> None:
    for permits, wanted in ((False, denied), (True, allowed)):
        if wanted is None:
            with pytest.raises(OptionsError):
                NAMES.resolve("here", name, permits=permits)
        else:
            assert NAMES.resolve("here", name, permits=permits) == wanted


def test_other_servers_may_have_any_tool_but_none_that_is_nearly_ours() -> None:
    names = ToolNames(
        own={"mcp__tools__delete_customer": ("delete_customer",)},
        servers={"tools": True},
        has_other_servers=True,
    )
    assert names.resolve("here", "mcp__gitlab__push", permits=False) == ("mcp__gitlab__push",)
    with pytest.raises(OptionsError, match="Did you mean 'mcp__tools__delete_customer'"):
        names.resolve("here", "mcp__tool__delete_customer", permits=False)


def test_names_of_servers_are_as_the_agent_makes_them() -> None:
    assert full_name("Größe 2.0/x", "a-b") == "mcp__Gr__e_2_0_x__a-b"


def test_where_nothing_is_known_but_full_names_the_short_ones_are_all_that_fit() -> None:
    assert short_names("mcp__a__b__c") == ("a__b__c", "b__c", "c")
    assert short_names("Bash") == ()
    full = ["Bash", "mcp__a__Bash", "mcp__a__find", "mcp__b__find"]
    assert tools_named("Bash", full) == ["Bash"]
    assert tools_named("find", full) == ["mcp__a__find", "mcp__b__find"]
    assert tools_named("Find", full) == []


@given(st.text(alphabet="Redlt_*mcpos", max_size=24))
def test_what_is_allowed_by_a_name_is_denied_by_it(name: str) -> None:
    try:
        allowed = NAMES.resolve("here", name, permits=True)
    except OptionsError:
        return
    assert set(allowed) <= set(NAMES.resolve("here", name, permits=False))
