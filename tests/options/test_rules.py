"""Rules for tools and names of skills reach the program as they were written, or not at all."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.errors import OptionsError
from outrider.options import Options
from outrider.options._checks import allows_whole_tool, split_rules
from tests.cases import every_case

GOOD = [
    "Read",
    "Bash(git log:*)",
    "Bash(a, b)",
    "Bash(a,b c)",
    "mcp__server__tool",
    "mcp__server__*",
    "WebFetch(domain:example.com)",
    "Read()",
    "Read(//etc/**)",
    "Agent(reviewer)",
]
BAD = [
    ("Bash,Read", r"\['Bash', 'Read'\]"),
    ("Bash Read", r"\['Bash', 'Read'\]"),
    ("Bash(a),Read", r"\['Bash\(a\)', 'Read'\]"),
    ("Bash(echo $(date), x)", "`settings`"),
    ("Bash(git", "both parentheses"),
    ("Bash(a)(", "both parentheses"),
    (" Bash", "no blanks around"),
    ("Bash ", "no blanks around"),
    (",Bash", "no blanks around"),
    ("Bash\tRead", "no blanks"),
    ("Bash\nRead(x)", "no blanks"),
    ("", "not empty"),
    (" ", "not empty"),
]


@pytest.mark.requirement("C3")
@every_case("rule", GOOD)
def test_a_rule_is_kept(rule: str) -> None:
    assert Options(allowed_tools=[rule], disallowed_tools=[rule]).allowed_tools == (rule,)


@pytest.mark.requirement("C3")
@every_case("rule, hint", BAD, ids=[repr(rule) for rule, _ in BAD])
@every_case("option", ["allowed_tools", "disallowed_tools"])
def test_a_rule_that_would_be_read_as_another_is_refused(option: str, rule: str, hint: str) -> None:
    fields: dict[str, Any] = {option: ["Read", rule]}
    with pytest.raises(OptionsError, match=hint):
        Options(**fields)


@pytest.mark.requirement("C3")
@given(st.lists(st.text(alphabet="aB(), *:\t$", max_size=12), max_size=4))
def test_the_program_reads_the_rules_that_were_given(rules: list[str]) -> None:
    try:
        kept = Options(allowed_tools=rules).allowed_tools
    except OptionsError:
        return
    assert split_rules(",".join(kept)) == rules


@pytest.mark.requirement("C3")
@pytest.mark.parametrize("name", ["Bash,Read", "Bash Read", "", " Bash", "Ba\tsh", "Ba\0sh"])
def test_the_name_of_a_tool_is_one_name(name: str) -> None:
    with pytest.raises(OptionsError, match=r"tools\[0\]"):
        Options(tools=[name])


@pytest.mark.parametrize("rule", ["Read", "Read()", "Read(*)", "Read(**)", "mcp__a", "mcp__a__b"])
def test_a_whole_tool_is_recognised(rule: str) -> None:
    assert allows_whole_tool(rule)


@pytest.mark.parametrize("rule", ["Read(a)", "Bash(*a)", "Bash(git *)", "Skill(pdf)"])
def test_a_part_of_a_tool_is_recognised(rule: str) -> None:
    assert not allows_whole_tool(rule)


# Skills.

SKILLS = ["pdf", "my-skill", "plugin:skill", "a b", "a*b", "a\\b", "ä", "skill/part", "日本"]
NO_SKILLS = [
    "",
    "  ",
    "\ud800",
    " pdf",
    "pdf ",
    "\u00a0pdf",
    "a(b",
    "a)b",
    "a,b",
    "a\tb",
    "a\nb",
    "a\x00b",
    "a\x1fb",
    "a\x7fb",
    "a\x80b",
    "a\x9fb",
    "a\ufeffb",
    "*",
    "plugin:*",
    "a *",
    "/pdf",
    "a\\\\b",
    "a\\",
]


@every_case("name", SKILLS)
def test_the_name_of_a_skill_is_kept(name: str) -> None:
    assert Options(skills=[name]).skills == (name,)


@every_case("name", NO_SKILLS, ids=ascii)
def test_a_name_that_cannot_stand_in_a_rule_is_no_skill(name: str) -> None:
    with pytest.raises(OptionsError, match=r"`skills\[1\]`"):
        Options(skills=["pdf", name])


@pytest.mark.parametrize("skills", [5, None, b"pdf"], ids=repr)
def test_a_skill_is_named_by_a_text(skills: object) -> None:
    with pytest.raises(OptionsError, match=r"`skills\[0\]` must be a text"):
        Options(skills=[skills])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
